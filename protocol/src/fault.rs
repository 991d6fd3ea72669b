//! Fault records and responses (SPEC.md §7).

use crate::request::{body, parse_header, AsidHandle, Refused, RequestHeader, RequestQueue};
use crate::{Status, VaRange};
use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Records in one fault buffer that the protocol allows: (4096 − 16) / 48.
pub const MAX_FAULT_RECORDS: u32 = 85;

bitflags! {
    /// Rights that an access needs.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u16 {
        /// Loads.
        const READ = 1 << 0;
        /// Stores.
        const WRITE = 1 << 1;
        /// Atomic read-modify-write; always together with both others.
        const ATOMIC = 1 << 2;
    }
}

impl Access {
    /// Rights of a store that does not read.
    pub const STORE: Self = Self::WRITE;
    /// Rights of a read-modify-write that is not atomic.
    pub const UPDATE: Self = Self::READ.union(Self::WRITE);
    /// Rights of an atomic read-modify-write.
    pub const RMW: Self = Self::UPDATE.union(Self::ATOMIC);
}

/// Why a translation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FaultCause {
    /// An entry on the way is not present. Filed for the driver.
    NotPresent = 1,
    /// Present, but the access is not allowed. Filed for the driver.
    NotPermitted = 2,
    /// The address is not canonical or beyond the tables. Ends the job at once.
    BadAddress = 3,
    /// An entry has a reserved bit set or maps a page size that does not exist. Ends the job at once.
    BadEntry = 4,
    /// A table or frame lies outside guest RAM or device memory. Ends the job at once.
    BadFrame = 5,
    /// An atomic access to memory that is marked NOATOMIC. Ends the job at once.
    AtomicDenied = 6,
    /// Memory behind the frame could not be accessed. Ends the job at once.
    MemoryError = 7,
}

impl FaultCause {
    /// Cause with this wire code.
    pub const fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            1 => Self::NotPresent,
            2 => Self::NotPermitted,
            3 => Self::BadAddress,
            4 => Self::BadEntry,
            5 => Self::BadFrame,
            6 => Self::AtomicDenied,
            7 => Self::MemoryError,
            _ => return None,
        })
    }

    /// Whether the driver may be able to serve it.
    pub const fn is_serviceable(self) -> bool {
        matches!(self, Self::NotPresent | Self::NotPermitted)
    }
}

/// Flags of a fault batch.
pub mod batch_flags {
    /// Job faults had found the record table full since the last batch; they are filed again as records end.
    pub const OVERFLOW: u32 = 1 << 0;
    /// More records wait for buffers.
    pub const MORE: u32 = 1 << 1;
}

/// First bytes of a filled fault buffer; `count` [`FaultRecord`] follow. 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FaultBatch {
    /// Records that follow, at least 1.
    pub count: u32,
    /// [`batch_flags`].
    pub flags: u32,
    /// Zero.
    pub reserved: u64,
}

/// One fault that waits for a response. 48 bytes.
///
/// Faults of one address space and one 2 MiB block are one record while it is pending.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FaultRecord {
    /// Address space.
    pub asid: AsidHandle,
    /// Page that was accessed first, 4 KiB aligned.
    pub va: u64,
    /// Names the record in the response. Never 0, never used twice in a session.
    pub sequence: u64,
    /// Id of the job that faulted first.
    pub job: u64,
    /// [`Access`] bits.
    pub access: u16,
    /// A [`FaultCause`] that is serviceable.
    pub cause: u16,
    /// EU that faulted first.
    pub eu: u16,
    /// Must be zero.
    pub reserved: u16,
    /// Pages from `va` on that the job is about to use as well (a hint), at least 1.
    pub pages_wanted: u32,
    /// Must be zero.
    pub reserved1: u32,
}

/// Result of serving a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum FaultResult {
    /// The tables hold what is needed, or may do so: try again.
    Retry = 0,
    /// No mapping covers the address, or it allows no access.
    NoMapping = 1,
    /// The mapping does not allow this access.
    NoPermission = 2,
    /// The page could not be brought (I/O error, poisoned, lost device).
    Bus = 3,
    /// No memory.
    NoMemory = 4,
    /// The process is gone.
    AsidGone = 5,
}

impl FaultResult {
    /// Result with this wire code.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::Retry,
            1 => Self::NoMapping,
            2 => Self::NoPermission,
            3 => Self::Bus,
            4 => Self::NoMemory,
            5 => Self::AsidGone,
            _ => return None,
        })
    }
}

/// FAULT_RESPONSE. 56 bytes.
///
/// Every job that waits for the record runs again; with a result other than Retry those whose faulting page lies in
/// `range` end with status FAULT instead.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FaultResponse {
    /// Header.
    pub header: RequestHeader,
    /// Pages that the result is about.
    pub range: VaRange,
    /// The record's sequence.
    pub sequence: u64,
    /// A [`FaultResult`].
    pub result: u32,
    /// Must be zero.
    pub reserved: u32,
}

impl FaultResponse {
    /// Checks reserved fields, range and result.
    ///
    /// # Errors
    /// `ReservedNotZero`, `BadRange`, `Misaligned`, `BadArgument` for an unknown result; in this order.
    pub fn validate(&self) -> Result<(), Status> {
        if self.reserved != 0 {
            return Err(Status::ReservedNotZero);
        }
        self.range.validate()?;
        FaultResult::from_code(self.result).map(|_| ()).ok_or(Status::BadArgument)
    }
}

/// Parses a request of the fault-response queue.
///
/// # Errors
/// [`Refused`] as of [`parse_header`] and [`FaultResponse::validate`].
pub fn parse_fault_response(bytes: &[u8]) -> Result<FaultResponse, Refused> {
    let (_, header) = parse_header(RequestQueue::FaultResponse, bytes)?;
    body(bytes, &header, FaultResponse::validate)
}
