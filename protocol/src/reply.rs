//! Replies and status codes (SPEC.md §3.2, §3.3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of every device-written answer. 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ReplyHeader {
    /// A [`Status`].
    pub status: u32,
    /// Zero.
    pub reserved: u32,
    /// The request's id, or 0 if it was too short to carry one.
    pub id: u64,
    /// Meaning depends on the request; 0 where none is given.
    pub detail: u64,
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $wire:literal, $errno:literal, $text:literal;)*) => {
        /// Outcome of a request, a migrate entry or a job.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Status { $($(#[$doc])* $name = $code,)* }

        impl Status {
            /// Every status, in the order of the codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Status with this wire code.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// Name in SPEC.md and in the C header, without the `VIRTIO_UMA_S_` prefix.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $wire,)* }
            }

            /// Linux errno that a driver gives to its callers (positive), 0 for success.
            pub const fn errno(self) -> i32 {
                match self { $(Self::$name => $errno,)* }
            }

            /// What happened, for people.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

statuses! {
    /// Done.
    Ok = 0, "OK", 0, "done";
    /// The opcode is not one of this queue's.
    UnknownOpcode = 1, "UNKNOWN_OPCODE", 95, "the queue does not know this opcode";
    /// A reserved field or flag is not zero.
    ReservedNotZero = 2, "RESERVED_NOT_ZERO", 22, "a reserved field or flag is not zero";
    /// The request's length field, its readable bytes and its opcode do not agree.
    BadLength = 3, "BAD_LENGTH", 22, "the length does not fit the opcode or the buffers";
    /// No address space has this index.
    UnknownAsid = 4, "UNKNOWN_ASID", 2, "no address space has this ASID";
    /// The address space with this index is a later one.
    StaleAsid = 5, "STALE_ASID", 116, "the ASID's generation has passed";
    /// An address is not aligned as required.
    Misaligned = 6, "MISALIGNED", 22, "an address is not aligned";
    /// A range is empty, runs backwards, wraps or leaves the address space.
    BadRange = 7, "BAD_RANGE", 34, "a range is empty, wraps or is out of bounds";
    /// The request needs a session and none was negotiated.
    NotNegotiated = 8, "NOT_NEGOTIATED", 71, "no session: NEGOTIATE and REGISTER_SYNC come first";
    /// Well-formed, but this device does not offer it.
    Unsupported = 9, "UNSUPPORTED", 95, "this device does not offer it";
    /// A bound of the configuration space would be exceeded.
    Limit = 10, "LIMIT", 28, "a limit of the device is reached";
    /// A system address is not in guest RAM.
    BadAddress = 11, "BAD_ADDRESS", 14, "a system address is outside guest memory";
    /// A device address is outside device memory.
    BadDpa = 12, "BAD_DPA", 14, "a device address is outside device memory";
    /// The address space ended before the job did.
    AsidGone = 13, "ASID_GONE", 3, "the address space is gone";
    /// The job met a fault that could not be served.
    Fault = 14, "FAULT", 14, "a device access could not be served";
    /// The job was cancelled.
    Canceled = 15, "CANCELED", 125, "the job was cancelled";
    /// The job's deadline passed.
    Deadline = 16, "DEADLINE", 62, "the job's deadline passed";
    /// No such kernel or element type.
    BadKernel = 17, "BAD_KERNEL", 22, "no such kernel or element type";
    /// A kernel argument is out of its bounds.
    BadArgument = 18, "BAD_ARGUMENT", 22, "a kernel argument is out of its bounds";
    /// The device stopped working; only a reset helps.
    DeviceLost = 19, "DEVICE_LOST", 19, "the device is lost";
    /// The pool's budget does not allow more device memory.
    NoMemory = 20, "NO_MEMORY", 12, "the device's memory budget is used up";
    /// Some entries of a batch failed; their own statuses tell which.
    Partial = 21, "PARTIAL", 5, "some entries of the batch failed";
    /// The request does not fit the state: registered twice, in use, not registered.
    BadState = 22, "BAD_STATE", 16, "the request does not fit the device's state";
    /// Memory behind an address could not be read or written (a region's file was truncated).
    MemoryError = 23, "MEMORY_ERROR", 5, "memory behind an address could not be accessed";
    /// No job with this id is in flight.
    UnknownJob = 24, "UNKNOWN_JOB", 2, "no such job is in flight";
    /// A fault response or fence that is too old; ignored.
    Stale = 25, "STALE", 116, "a later event overtook this one; ignored";
}

impl ReplyHeader {
    /// Answer to request `id`.
    pub const fn new(status: Status, id: u64, detail: u64) -> Self {
        Self { status: status as u32, reserved: 0, id, detail }
    }
}
