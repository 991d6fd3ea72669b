//! Device configuration space (SPEC.md §4).

use crate::queues::QueueRoles;
use crate::{all_zero, Capabilities, GIGANTIC_SHIFT, HUGE_SHIFT, PAGE_SHIFT};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First word of the configuration space: the bytes `UMA` and 0x01.
pub const MAGIC: u32 = u32::from_le_bytes(*b"UMA\x01");
/// Major version of the protocol. A driver refuses any other.
pub const VERSION_MAJOR: u16 = 1;
/// Minor version of the protocol. Grows with compatible additions.
pub const VERSION_MINOR: u16 = 0;
/// Size of the configuration space in bytes; also QEMU's `config_size`.
pub const CONFIG_SIZE: usize = 256;
/// Offset of the first driver-writable byte.
pub const WRITABLE_START: usize = 120;
/// Offset just behind the last driver-writable byte.
pub const WRITABLE_END: usize = 136;
/// `window_id` of a device without a window.
pub const NO_WINDOW: u8 = 0xff;

/// Bounds that the device announces. 48 bytes. Zero is never a valid bound.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Limits {
    /// Address spaces that can exist at once (1..=65535; ASID indices are 1..=max_asids).
    pub max_asids: u32,
    /// Execution units (1..=62, see [`crate::sync::MAX_EUS`]).
    pub num_eus: u32,
    /// Jobs that can be in flight on the device, over all address spaces.
    pub max_jobs: u32,
    /// Fault records that can be pending, over all address spaces.
    pub max_pending_faults: u32,
    /// Entries in one migrate request.
    pub max_migrate_entries: u32,
    /// Fault records that the device writes into one buffer at most.
    pub max_fault_records: u32,
    /// Slots of an invalidation ring (power of two, see [`crate::sync`]).
    pub max_ring_entries: u32,
    /// Streams of one address space; stream numbers are 0..max_streams.
    pub max_streams: u32,
    /// Timeline fences of one address space; fence numbers are 1..=max_fences, 0 = none.
    pub max_fences: u32,
    /// Jobs of one address space that can be in flight.
    pub max_jobs_per_asid: u32,
    /// Must be zero.
    pub reserved: [u32; 2],
}

/// The configuration space. 256 bytes.
///
/// Everything but `session_id` and `accepted_capabilities` is constant while the device is started. Those two are
/// written by the driver for the benefit of whoever looks at the device from outside; what counts is NEGOTIATE.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct DeviceConfig {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION_MAJOR`].
    pub version_major: u16,
    /// [`VERSION_MINOR`].
    pub version_minor: u16,
    /// [`Capabilities`] bits.
    pub capabilities: u64,
    /// Bit n set: pages of 2^n bytes can be mapped. Bit 12 is always set.
    pub page_sizes: u64,
    /// Width of a virtual address in bits (48 or 57).
    pub va_bits: u8,
    /// Bit n set: tables of n levels are walked. Bit 4 is always set.
    pub table_levels: u8,
    /// Number of virtqueues.
    pub num_queues: u16,
    /// Must be zero.
    pub reserved0: u32,
    /// Bounds.
    pub limits: Limits,
    /// Bytes of device memory; DPAs are 0..dpa_size. Multiple of 2 MiB.
    pub dpa_size: u64,
    /// Bytes of the window, 0 = none.
    pub window_size: u64,
    /// Shared memory region id of the window, [`NO_WINDOW`] = none.
    pub window_id: u8,
    /// Must be zero.
    pub reserved1: [u8; 7],
    /// Must be zero.
    pub reserved2: [u64; 2],
    /// Written by the driver: the session id that it sent with NEGOTIATE.
    pub session_id: u64,
    /// Written by the driver: the capabilities that it accepted.
    pub accepted_capabilities: u64,
    /// Queue roles.
    pub queues: QueueRoles,
    /// Must be zero.
    pub reserved3: [u64; 11],
}

/// Why a driver must not use a configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFault {
    /// Another device, or none.
    Magic,
    /// A major version that this driver does not speak.
    Version,
    /// 4 KiB pages missing, or a page size that x86-64 tables do not have.
    PageSizes,
    /// VA width or table levels are missing or do not fit together.
    Levels,
    /// A bound is zero or larger than the protocol allows.
    Limits,
    /// Queue roles overlap, are missing or exceed `num_queues`.
    Queues,
    /// Device memory has a size of zero or that is no multiple of 2 MiB.
    DpaSize,
    /// Window id and size disagree.
    Window,
    /// A reserved field is not zero.
    Reserved,
}

impl DeviceConfig {
    /// Checks the whole space as a driver must before it uses the device (SPEC.md §4.3).
    ///
    /// # Errors
    /// The first [`ConfigFault`] in the order of the enumeration.
    pub fn validate(&self) -> Result<(), ConfigFault> {
        if self.magic != MAGIC {
            return Err(ConfigFault::Magic);
        }
        if self.version_major != VERSION_MAJOR {
            return Err(ConfigFault::Version);
        }
        let known = 1 << PAGE_SHIFT | 1 << HUGE_SHIFT | 1 << GIGANTIC_SHIFT;
        if self.page_sizes & 1 << PAGE_SHIFT == 0 || self.page_sizes & !known != 0 {
            return Err(ConfigFault::PageSizes);
        }
        let five = self.table_levels & 1 << 5 != 0;
        if self.table_levels & 1 << 4 == 0 || self.table_levels & !(1 << 4 | 1 << 5) != 0 {
            return Err(ConfigFault::Levels);
        }
        if self.va_bits != if five { 57 } else { 48 } {
            return Err(ConfigFault::Levels);
        }
        self.limits.validate()?;
        if !self.queues.is_valid() || self.queues.total() != u32::from(self.num_queues) {
            return Err(ConfigFault::Queues);
        }
        if self.dpa_size == 0 || !self.dpa_size.is_multiple_of(crate::HUGE_SIZE) || self.dpa_size >> 52 != 0 {
            return Err(ConfigFault::DpaSize);
        }
        if (self.window_id == NO_WINDOW) != (self.window_size == 0) || self.window_size > self.dpa_size {
            return Err(ConfigFault::Window);
        }
        let zero = self.reserved0 == 0
            && all_zero(&self.reserved1)
            && all_zero(&self.reserved2)
            && all_zero(&self.reserved3)
            && all_zero(&self.limits.reserved);
        zero.then_some(()).ok_or(ConfigFault::Reserved)
    }

    /// The capability bits that this version of the protocol knows.
    pub const fn known_capabilities(&self) -> Capabilities {
        Capabilities::from_bits_truncate(self.capabilities)
    }
}

impl Limits {
    fn validate(&self) -> Result<(), ConfigFault> {
        let within = |value: u32, max: u32| value >= 1 && value <= max;
        let ok = within(self.max_asids, 0xffff)
            && within(self.num_eus, crate::sync::MAX_EUS)
            && within(self.max_jobs, 1 << 16)
            && within(self.max_pending_faults, 1 << 16)
            && within(self.max_migrate_entries, crate::request::MAX_MIGRATE_ENTRIES)
            && within(self.max_fault_records, crate::fault::MAX_FAULT_RECORDS)
            && within(self.max_ring_entries, crate::sync::MAX_RING_ENTRIES)
            && self.max_ring_entries >= crate::sync::MIN_RING_ENTRIES
            && self.max_ring_entries.is_power_of_two()
            && within(self.max_streams, 1 << 16)
            && within(self.max_fences, 1 << 16)
            && within(self.max_jobs_per_asid, self.max_jobs);
        ok.then_some(()).ok_or(ConfigFault::Limits)
    }
}
