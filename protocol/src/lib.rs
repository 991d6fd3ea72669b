//! The virtio-uma wire protocol.
//!
//! `SPEC.md` in this crate's folder is the normative text; each structure here names the section it implements. All
//! structures are little-endian, have a size that is a multiple of 8 and carry explicit reserved fields that must be
//! zero. Validation stands beside the layout, so that driver and device agree on what is malformed and on the status
//! that names it. The C mirror is `guest-driver/kernel/include/uapi/linux/virtio_uma.h`; a test compares the two.
#![no_std]
#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("virtio-uma structures are laid out natively and the wire is little-endian");

pub mod caps;
pub mod config;
pub mod fault;
pub mod kernel;
pub mod pte;
pub mod queues;
pub mod range;
pub mod reply;
pub mod request;
pub mod sync;

pub use caps::Capabilities;
pub use config::DeviceConfig;
pub use range::VaRange;
pub use reply::Status;
pub use request::{AsidHandle, Opcode, RequestHeader};

/// Smallest page (granule) of the protocol in bytes.
pub const PAGE_SIZE: u64 = 4096;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Largest page that migrates as a whole: 2 MiB.
pub const HUGE_SHIFT: u32 = 21;
/// Bytes of a 2 MiB block.
pub const HUGE_SIZE: u64 = 1 << HUGE_SHIFT;
/// Largest page that a table may map: 1 GiB.
pub const GIGANTIC_SHIFT: u32 = 30;
/// Virtio device ID used unless the operator chooses another (SPEC.md §1). 39 and 21 are the spares.
pub const DEFAULT_VIRTIO_ID: u32 = 38;

/// Returns whether every byte of a reserved field is zero.
pub(crate) fn all_zero<T: zerocopy::IntoBytes + zerocopy::Immutable>(field: &T) -> bool {
    field.as_bytes().iter().all(|byte| *byte == 0)
}
