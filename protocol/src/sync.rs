//! Sync pages: the epoch handshake that makes invalidation work without a queue (SPEC.md §10).
//!
//! Both kinds of page are one 4 KiB page of guest RAM. Each field has exactly one writer. The structures here give
//! the layout; both sides access the fields as atomics of their own.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a line that no two writers share.
pub const LINE: usize = 64;
/// Fewest slots of an invalidation ring.
pub const MIN_RING_ENTRIES: u32 = 8;
/// Most slots of an invalidation ring: a power of two with 128 + 32 · n ≤ 4096.
pub const MAX_RING_ENTRIES: u32 = 64;
/// Most EUs of a device: (4096 − 2 · 64) / 64.
pub const MAX_EUS: u32 = 62;

/// Sync page of one address space, written by the driver. 128 bytes, then the ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AsidSyncHeader {
    /// Number of the last invalidation; starts at 0, the first one is 1.
    pub epoch: u64,
    /// Rest of the line.
    pub reserved0: [u64; 7],
    /// One of [`asid_state`].
    pub state: u64,
    /// Rest of the line.
    pub reserved1: [u64; 7],
}

/// One slot of the invalidation ring; invalidation t is in slot t mod ring_entries. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RingSlot {
    /// Number of the invalidation that the slot holds, 0 while it is being written.
    pub seq: u64,
    /// First address.
    pub start: u64,
    /// Address behind the last; `u64::MAX` = to the end.
    pub end: u64,
    /// Must be zero; a reader that finds a bit it does not know drops the whole address space.
    pub flags: u64,
}

/// Values of [`AsidSyncHeader::state`].
pub mod asid_state {
    /// The device may use the address space.
    pub const LIVE: u64 = 1;
    /// The device must leave it for good.
    pub const DEAD: u64 = 2;
}

/// Values of the driver state word (offset 0 of the device's sync page).
pub mod driver_state {
    /// The driver serves faults.
    pub const RUNNING: u64 = 1;
    /// The driver is leaving: nothing will be served any more.
    pub const STOPPING: u64 = 2;
}

/// Values of the device state word (offset 64 of the device's sync page).
pub mod device_state {
    /// EUs may run.
    pub const RUNNING: u64 = 1;
    /// Every EU is parked.
    pub const PARKED: u64 = 2;
    /// The device gave up; only a reset helps.
    pub const LOST: u64 = 3;
}

/// Offset of the driver state word in the device's sync page.
pub const DRIVER_STATE_OFFSET: usize = 0;
/// Offset of the device state word in the device's sync page.
pub const DEVICE_STATE_OFFSET: usize = LINE;
/// Offset of the line of EU 0 in the device's sync page.
pub const EU_LINES_OFFSET: usize = 2 * LINE;

/// Line of one EU in the device's sync page, written by the device. 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct EuLine {
    /// ASID index and epoch of the section that the EU is in ([`active`]), [`IDLE`] outside.
    pub active: u64,
    /// Thread id of the EU in the low 30 bits; the host kernel sets [`OWNER_DIED`] when the thread ends.
    pub owner: u32,
    /// Zero.
    pub reserved0: u32,
    /// Rest of the line.
    pub reserved1: [u64; 6],
}

/// `active` outside of a section.
pub const IDLE: u64 = 0;
/// Bit 30 of `owner`: the thread died (FUTEX_OWNER_DIED of linux/futex.h). The driver counts the EU as idle and the
/// device as lost.
pub const OWNER_DIED: u32 = 0x4000_0000;
/// Bits of `active` that hold the epoch.
pub const EPOCH_BITS: u32 = 48;
/// Mask of the epoch in `active`.
pub const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;

/// Composes `active`: ASID index in bits 63:48, epoch in bits 47:0. Never [`IDLE`], since indices start at 1.
pub const fn active(asid_index: u32, epoch: u64) -> u64 {
    (asid_index as u64) << EPOCH_BITS | epoch & EPOCH_MASK
}

/// Offset of ring slot `seq mod entries` in an address space's sync page.
pub const fn ring_slot_offset(seq: u64, entries: u32) -> usize {
    size_of::<AsidSyncHeader>() + (seq % entries as u64) as usize * size_of::<RingSlot>()
}
