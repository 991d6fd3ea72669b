//! Requests of the control, invalidate, migrate and fault-response queues (SPEC.md §3, §5–§8).

use crate::{Status, VaRange, HUGE_SHIFT, PAGE_SHIFT, PAGE_SIZE};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Name of one address space: ASID index and the generation that tells it from earlier users of the index. 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AsidHandle {
    /// 1..=max_asids; 0 in requests that concern no address space.
    pub index: u32,
    /// Counts the users of this index.
    pub generation: u32,
}

impl AsidHandle {
    /// The handle of requests that concern no address space.
    pub const NONE: Self = Self { index: 0, generation: 0 };

    /// As carried in the detail word of CREATE_ASID's reply.
    pub const fn to_bits(self) -> u64 {
        self.index as u64 | (self.generation as u64) << 32
    }

    /// Inverse of [`Self::to_bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// First bytes of every request. 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RequestHeader {
    /// An [`Opcode`].
    pub opcode: u16,
    /// Must be zero.
    pub flags: u16,
    /// Bytes of the whole request, this header included.
    pub length: u32,
    /// Address space that the request concerns, or [`AsidHandle::NONE`].
    pub asid: AsidHandle,
    /// Chosen by the driver; comes back in the reply. Unique among the requests in flight.
    pub id: u64,
}

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $wire:literal, $role:ident, $asid:literal, $size:expr;)*) => {
        /// What a request asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Opcode { $($(#[$doc])* $name = $code,)* }

        impl Opcode {
            /// Every opcode, in the order of the codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            /// Opcode with this wire code.
            pub const fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
            /// Name in SPEC.md and in the C header, without the `VIRTIO_UMA_OP_` prefix.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $wire,)* }
            }
            /// The queues that take it.
            pub const fn queue(self) -> RequestQueue {
                match self { $(Self::$name => RequestQueue::$role,)* }
            }
            /// Whether it names an address space.
            pub const fn names_asid(self) -> bool {
                match self { $(Self::$name => $asid,)* }
            }
            /// Bytes of the request; of its fixed part for MIGRATE.
            pub const fn fixed_size(self) -> usize {
                match self { $(Self::$name => $size,)* }
            }
        }
    };
}

/// Kind of queue that takes a request; both migrate queues are one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestQueue {
    /// The control queue.
    Control,
    /// The invalidate queue.
    Invalidate,
    /// The urgent and the bulk migrate queue.
    Migrate,
    /// The fault-response queue.
    FaultResponse,
    /// The compute queues.
    Compute,
}

opcodes! {
    /// Begin a session, see [`Negotiate`].
    Negotiate = 0x0001, "NEGOTIATE", Control, false, size_of::<Negotiate>();
    /// Name the sync page of the device, see [`RegisterSync`].
    RegisterSync = 0x0002, "REGISTER_SYNC", Control, false, size_of::<RegisterSync>();
    /// Create an address space, see [`CreateAsid`].
    CreateAsid = 0x0003, "CREATE_ASID", Control, false, size_of::<CreateAsid>();
    /// Destroy an address space; answered when no EU uses it any more. Header only.
    DestroyAsid = 0x0004, "DESTROY_ASID", Control, true, size_of::<RequestHeader>();
    /// Answered when every job that the address space had in flight is complete. Header only.
    Drain = 0x0005, "DRAIN", Control, true, size_of::<RequestHeader>();
    /// Cancel one job, see [`Cancel`].
    Cancel = 0x0006, "CANCEL", Control, true, size_of::<Cancel>();
    /// Ask for counters, see [`Query`].
    Query = 0x0007, "QUERY", Control, false, size_of::<Query>();
    /// Map the window. Header only. Reserved: answered UNSUPPORTED.
    WindowMap = 0x0008, "WINDOW_MAP", Control, false, size_of::<RequestHeader>();
    /// Drop translations of a range, see [`Invalidate`].
    Invalidate = 0x0101, "INVALIDATE", Invalidate, true, size_of::<Invalidate>();
    /// Move pages, see [`MigrateHeader`].
    Migrate = 0x0201, "MIGRATE", Migrate, false, size_of::<MigrateHeader>();
    /// Answer a fault, see [`FaultResponse`](crate::fault::FaultResponse).
    FaultResponse = 0x0301, "FAULT_RESPONSE", FaultResponse, true, size_of::<crate::fault::FaultResponse>();
    /// Run a job, see [`JobRequest`](crate::kernel::JobRequest).
    Submit = 0x0401, "SUBMIT", Compute, true, size_of::<crate::kernel::JobRequest>();
}

/// NEGOTIATE: starts a session. 56 bytes. A new `session_id` resets the device first (SPEC.md §9).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Negotiate {
    /// Header.
    pub header: RequestHeader,
    /// Random, not zero.
    pub session_id: u64,
    /// Capabilities that the driver will use; a subset of the offered ones.
    pub capabilities: u64,
    /// Major version that the driver speaks.
    pub version_major: u16,
    /// Minor version that the driver speaks.
    pub version_minor: u16,
    /// Must be zero.
    pub reserved: u32,
    /// Must be zero.
    pub reserved1: u64,
}

/// REGISTER_SYNC: tells where the device's sync page is, see [`crate::sync`]. 40 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RegisterSync {
    /// Header.
    pub header: RequestHeader,
    /// Device address of one page of guest RAM, 4 KiB aligned.
    pub addr: u64,
    /// Must be zero.
    pub reserved: u64,
}

/// Kinds of address space.
pub mod asid_mode {
    /// Tables written by the driver.
    pub const MIRRORED: u16 = 1;
    /// Tables of the process. Reserved: answered UNSUPPORTED.
    pub const SHARED: u16 = 2;
}

/// Formats of page tables.
pub mod table_format {
    /// x86-64 as of [`crate::pte`].
    pub const X86_64: u16 = 1;
    /// Reserved: answered UNSUPPORTED.
    pub const ARM64: u16 = 2;
}

/// CREATE_ASID: the reply's detail is the handle ([`AsidHandle::to_bits`]). 64 bytes.
///
/// Idempotent by id: a replay with the id that created a living address space answers with its handle.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CreateAsid {
    /// Header.
    pub header: RequestHeader,
    /// One of [`asid_mode`].
    pub mode: u16,
    /// One of [`table_format`].
    pub format: u16,
    /// Levels of the tables, 4 or 5.
    pub levels: u8,
    /// log2 of the smallest page, 12.
    pub granule_shift: u8,
    /// Must be zero.
    pub reserved: u16,
    /// Device address of the root table, 4 KiB aligned.
    pub root: u64,
    /// Device address of the address space's sync page, 4 KiB aligned.
    pub sync_addr: u64,
    /// Slots of the invalidation ring: a power of two within [`crate::sync`]'s bounds.
    pub ring_entries: u32,
    /// Must be zero.
    pub reserved1: u32,
    /// Must be zero.
    pub reserved2: u64,
}

/// CANCEL: ends a job with status CANCELED unless it completed before. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Cancel {
    /// Header.
    pub header: RequestHeader,
    /// The id of the job's SUBMIT.
    pub job_id: u64,
}

/// What QUERY can ask for.
pub mod query {
    /// [`super::MemoryInfo`].
    pub const MEMORY: u32 = 1;
    /// [`super::DeviceCounters`].
    pub const COUNTERS: u32 = 2;
}

/// QUERY: the reply is a [`ReplyHeader`](crate::reply::ReplyHeader) followed by the structure asked for. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Query {
    /// Header.
    pub header: RequestHeader,
    /// One of [`query`].
    pub selector: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// Answer to QUERY MEMORY, behind the reply header. 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MemoryInfo {
    /// Bytes of device memory.
    pub dpa_size: u64,
    /// Bytes that may be populated at once.
    pub budget: u64,
    /// Bytes of the device's file that are populated now.
    pub populated: u64,
    /// Address spaces that exist.
    pub asids: u64,
    /// Jobs in flight.
    pub jobs: u64,
    /// Fault records that wait for a response.
    pub pending_faults: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Answer to QUERY COUNTERS, behind the reply header. Totals since the session began. 256 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct DeviceCounters {
    /// Fault records created (after coalescing).
    pub faults: u64,
    /// Job faults that joined a record that was pending already.
    pub faults_coalesced: u64,
    /// Job faults that found the record table full and waited for a rescan.
    pub faults_overflowed: u64,
    /// Fault buffers handed to the driver.
    pub fault_batches: u64,
    /// Fault responses that ended a pending record.
    pub fault_responses: u64,
    /// Fault responses ignored as stale.
    pub fault_responses_stale: u64,
    /// Jobs accepted.
    pub jobs_submitted: u64,
    /// Jobs completed with OK.
    pub jobs_ok: u64,
    /// Jobs completed with any other status.
    pub jobs_failed: u64,
    /// Steps done by the engines.
    pub steps: u64,
    /// Bytes that kernels read or wrote in guest RAM.
    pub bytes_system: u64,
    /// Bytes that kernels read or wrote in device memory.
    pub bytes_local: u64,
    /// 4 KiB pages copied from guest RAM to device memory.
    pub pages_to_device: u64,
    /// 4 KiB pages copied from device memory to guest RAM.
    pub pages_to_system: u64,
    /// 4 KiB pages copied inside device memory.
    pub pages_device_to_device: u64,
    /// 4 KiB pages of device memory zeroed on request.
    pub pages_zeroed: u64,
    /// 4 KiB pages of device memory discarded on request.
    pub pages_discarded: u64,
    /// Migrate entries of order 2 MiB among all of the above.
    pub huge_entries: u64,
    /// Migrate entries that failed.
    pub migrate_errors: u64,
    /// Translations answered by a TLB.
    pub tlb_hits: u64,
    /// Translations that walked.
    pub tlb_misses: u64,
    /// Ring entries applied by EUs.
    pub invalidations: u64,
    /// Times an EU dropped an address space from its TLB because the ring had run over.
    pub ring_overruns: u64,
    /// Requests of the invalidate queue.
    pub queue_invalidations: u64,
    /// Requests answered with a status other than OK.
    pub requests_refused: u64,
    /// Times the device was parked.
    pub parks: u64,
    /// Times a session went on after a park.
    pub resumes: u64,
    /// Zero.
    pub reserved: [u64; 5],
}

/// INVALIDATE: answered when no EU uses an old translation of the range. 40 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Invalidate {
    /// Header.
    pub header: RequestHeader,
    /// What to drop; [`VaRange::ALL`] = everything.
    pub range: VaRange,
}

/// Entries in one MIGRATE that the protocol allows: a 2 MiB block of single pages.
pub const MAX_MIGRATE_ENTRIES: u32 = 512;

/// MIGRATE: this, then `count` [`MigrateEntry`]. 32 bytes.
///
/// The reply is a [`ReplyHeader`](crate::reply::ReplyHeader) (detail = entries that succeeded) followed by one `u16`
/// status code per entry, padded with zeros to a multiple of 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MigrateHeader {
    /// Header.
    pub header: RequestHeader,
    /// Number of entries, 1..=max_migrate_entries.
    pub count: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// What a migrate entry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum MigrateOp {
    /// Copy guest RAM at `addr` to device memory at `dpa`.
    ToDevice = 1,
    /// Copy device memory at `dpa` to guest RAM at `addr`.
    ToSystem = 2,
    /// Copy device memory at `addr` to device memory at `dpa`.
    DeviceToDevice = 3,
    /// Zero device memory at `dpa`; `addr` must be zero.
    Zero = 4,
    /// Give the backing of device memory at `dpa` back; it reads as zero from then on. `addr` must be zero.
    Discard = 5,
}

/// One piece of a MIGRATE. 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MigrateEntry {
    /// System address, or source DPA of DeviceToDevice; aligned to the order.
    pub addr: u64,
    /// Device address; aligned to the order.
    pub dpa: u64,
    /// A [`MigrateOp`].
    pub op: u16,
    /// log2 of the number of 4 KiB pages, 0..=9.
    pub order: u16,
    /// Must be zero.
    pub reserved: u32,
}

impl MigrateOp {
    /// Operation with this wire code.
    pub const fn from_code(code: u16) -> Option<Self> {
        match code {
            1 => Some(Self::ToDevice),
            2 => Some(Self::ToSystem),
            3 => Some(Self::DeviceToDevice),
            4 => Some(Self::Zero),
            5 => Some(Self::Discard),
            _ => None,
        }
    }
}

impl MigrateEntry {
    /// Bytes that the entry moves; meaningful after [`Self::validate`].
    pub const fn bytes(&self) -> u64 {
        PAGE_SIZE << self.order
    }

    /// Checks everything that does not depend on the guest's memory; `dpa_size` is the size of device memory.
    ///
    /// # Errors
    /// `Unsupported` for an unknown operation, `ReservedNotZero`, `BadRange` for an order above 2 MiB, `Misaligned`,
    /// `BadDpa`; in this order.
    pub fn validate(&self, dpa_size: u64) -> Result<MigrateOp, Status> {
        let op = MigrateOp::from_code(self.op).ok_or(Status::Unsupported)?;
        let dataless = matches!(op, MigrateOp::Zero | MigrateOp::Discard);
        if self.reserved != 0 || dataless && self.addr != 0 {
            return Err(Status::ReservedNotZero);
        }
        if u32::from(self.order) > HUGE_SHIFT - PAGE_SHIFT {
            return Err(Status::BadRange);
        }
        let bytes = self.bytes();
        if !self.addr.is_multiple_of(bytes) || !self.dpa.is_multiple_of(bytes) {
            return Err(Status::Misaligned);
        }
        let inside = |dpa: u64| dpa < dpa_size && bytes <= dpa_size - dpa;
        if !inside(self.dpa) || op == MigrateOp::DeviceToDevice && !inside(self.addr) {
            return Err(Status::BadDpa);
        }
        Ok(op)
    }
}

/// Bytes of MIGRATE's reply for `count` entries.
pub const fn migrate_reply_size(count: usize) -> usize {
    size_of::<crate::reply::ReplyHeader>() + (count * 2).next_multiple_of(8)
}

/// A request that the device refuses before it looks at any state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub status: Status,
    /// The request's id, 0 if it was too short to carry one.
    pub id: u64,
}

/// A well-formed request of the control queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// See [`Negotiate`].
    Negotiate(Negotiate),
    /// See [`RegisterSync`].
    RegisterSync(RegisterSync),
    /// See [`CreateAsid`].
    CreateAsid(CreateAsid),
    /// See [`Opcode::DestroyAsid`].
    DestroyAsid(RequestHeader),
    /// See [`Opcode::Drain`].
    Drain(RequestHeader),
    /// See [`Cancel`].
    Cancel(Cancel),
    /// See [`Query`].
    Query(Query),
    /// See [`Opcode::WindowMap`].
    WindowMap(RequestHeader),
}

/// Checks the header of a request as SPEC.md §3.1 orders it: bytes for a header, an opcode of this queue, the
/// length, flags, the presence or absence of an ASID.
///
/// # Errors
/// [`Refused`] with `BadLength`, `UnknownOpcode`, `ReservedNotZero` or `UnknownAsid`.
pub fn parse_header(queue: RequestQueue, bytes: &[u8]) -> Result<(Opcode, RequestHeader), Refused> {
    let (header, _) =
        RequestHeader::read_from_prefix(bytes).map_err(|_| Refused { status: Status::BadLength, id: 0 })?;
    let refuse = |status| Refused { status, id: header.id };
    let opcode = Opcode::from_code(header.opcode)
        .filter(|opcode| opcode.queue() == queue)
        .ok_or(refuse(Status::UnknownOpcode))?;
    let fits = match opcode {
        Opcode::Migrate => bytes.len() >= opcode.fixed_size(),
        _ => bytes.len() == opcode.fixed_size(),
    };
    if !fits || header.length as usize != bytes.len() {
        return Err(refuse(Status::BadLength));
    }
    if header.flags != 0 {
        return Err(refuse(Status::ReservedNotZero));
    }
    match (opcode.names_asid(), header.asid) {
        (false, AsidHandle::NONE) => Ok((opcode, header)),
        (false, _) => Err(refuse(Status::ReservedNotZero)),
        (true, asid) if asid.index == 0 => Err(refuse(Status::UnknownAsid)),
        (true, _) => Ok((opcode, header)),
    }
}

/// Reads and validates a fixed-size request whose header has been checked.
pub(crate) fn body<T: FromBytes>(
    bytes: &[u8],
    header: &RequestHeader,
    validate: impl FnOnce(&T) -> Result<(), Status>,
) -> Result<T, Refused> {
    let refuse = |status| Refused { status, id: header.id };
    let body = T::read_from_bytes(bytes).map_err(|_| refuse(Status::BadLength))?;
    validate(&body).map_err(refuse)?;
    Ok(body)
}

/// Parses a request of the control queue. What depends on the device's state is left to the device.
///
/// # Errors
/// [`Refused`] as of [`parse_header`] and of each structure's `validate`.
pub fn parse_control(bytes: &[u8]) -> Result<ControlRequest, Refused> {
    let (opcode, header) = parse_header(RequestQueue::Control, bytes)?;
    Ok(match opcode {
        Opcode::Negotiate => ControlRequest::Negotiate(body(bytes, &header, Negotiate::validate)?),
        Opcode::RegisterSync => ControlRequest::RegisterSync(body(bytes, &header, RegisterSync::validate)?),
        Opcode::CreateAsid => ControlRequest::CreateAsid(body(bytes, &header, CreateAsid::validate)?),
        Opcode::DestroyAsid => ControlRequest::DestroyAsid(header),
        Opcode::Drain => ControlRequest::Drain(header),
        Opcode::Cancel => ControlRequest::Cancel(body(bytes, &header, |_| Ok(()))?),
        Opcode::Query => ControlRequest::Query(body(bytes, &header, Query::validate)?),
        Opcode::WindowMap => ControlRequest::WindowMap(header),
        Opcode::Invalidate | Opcode::Migrate | Opcode::FaultResponse | Opcode::Submit => {
            return Err(Refused { status: Status::UnknownOpcode, id: header.id })
        }
    })
}

/// Parses a request of the invalidate queue.
///
/// # Errors
/// [`Refused`] as of [`parse_header`] and [`VaRange::validate`].
pub fn parse_invalidate(bytes: &[u8]) -> Result<Invalidate, Refused> {
    let (_, header) = parse_header(RequestQueue::Invalidate, bytes)?;
    body(bytes, &header, |request: &Invalidate| request.range.validate())
}

/// Parses a request of a migrate queue; the entries are validated one by one with [`MigrateEntry::validate`].
///
/// # Errors
/// [`Refused`] as of [`parse_header`]; `Limit` above `max_entries`, `BadLength` if the count and the bytes disagree
/// or the count is zero.
pub fn parse_migrate(bytes: &[u8], max_entries: u32) -> Result<(MigrateHeader, &[MigrateEntry]), Refused> {
    let (_, header) = parse_header(RequestQueue::Migrate, bytes)?;
    let refuse = |status| Refused { status, id: header.id };
    let (head, rest) = MigrateHeader::read_from_prefix(bytes).map_err(|_| refuse(Status::BadLength))?;
    if head.reserved != 0 {
        return Err(refuse(Status::ReservedNotZero));
    }
    if head.count > max_entries.min(MAX_MIGRATE_ENTRIES) {
        return Err(refuse(Status::Limit));
    }
    let entries = <[MigrateEntry]>::ref_from_bytes(rest).map_err(|_| refuse(Status::BadLength))?;
    if head.count == 0 || entries.len() != head.count as usize {
        return Err(refuse(Status::BadLength));
    }
    Ok((head, entries))
}

impl Negotiate {
    /// Checks reserved fields, the session id and the version.
    ///
    /// # Errors
    /// `ReservedNotZero`; `BadState` for session id 0; `Unsupported` for another major version.
    pub fn validate(&self) -> Result<(), Status> {
        if self.reserved != 0 || self.reserved1 != 0 {
            return Err(Status::ReservedNotZero);
        }
        if self.session_id == 0 {
            return Err(Status::BadState);
        }
        if self.version_major != crate::config::VERSION_MAJOR {
            return Err(Status::Unsupported);
        }
        Ok(())
    }
}

impl RegisterSync {
    /// Checks reserved fields and alignment.
    ///
    /// # Errors
    /// `ReservedNotZero`, `Misaligned`.
    pub fn validate(&self) -> Result<(), Status> {
        if self.reserved != 0 {
            return Err(Status::ReservedNotZero);
        }
        page_aligned(self.addr)
    }
}

impl CreateAsid {
    /// Checks everything but addresses against guest memory and levels against the device.
    ///
    /// # Errors
    /// `ReservedNotZero`; `Unsupported` for a mode, format, level count or granule that the protocol does not define
    /// or reserves; `Misaligned`; `Limit` for a ring size out of bounds.
    pub fn validate(&self) -> Result<(), Status> {
        if self.reserved != 0 || self.reserved1 != 0 || self.reserved2 != 0 {
            return Err(Status::ReservedNotZero);
        }
        let known = self.mode == asid_mode::MIRRORED
            && self.format == table_format::X86_64
            && matches!(self.levels, 4 | 5)
            && u32::from(self.granule_shift) == PAGE_SHIFT;
        if !known {
            return Err(Status::Unsupported);
        }
        page_aligned(self.root)?;
        page_aligned(self.sync_addr)?;
        let entries = self.ring_entries;
        let bounds = crate::sync::MIN_RING_ENTRIES..=crate::sync::MAX_RING_ENTRIES;
        if !bounds.contains(&entries) || !entries.is_power_of_two() {
            return Err(Status::Limit);
        }
        Ok(())
    }
}

impl Query {
    /// Checks the selector.
    ///
    /// # Errors
    /// `ReservedNotZero`, `Unsupported`.
    pub fn validate(&self) -> Result<(), Status> {
        if self.reserved != 0 {
            return Err(Status::ReservedNotZero);
        }
        match self.selector {
            query::MEMORY | query::COUNTERS => Ok(()),
            _ => Err(Status::Unsupported),
        }
    }

    /// Bytes of the whole reply; of the reply header alone for an unknown selector.
    pub const fn reply_size(&self) -> usize {
        let head = size_of::<crate::reply::ReplyHeader>();
        match self.selector {
            query::MEMORY => head + size_of::<MemoryInfo>(),
            query::COUNTERS => head + size_of::<DeviceCounters>(),
            _ => head,
        }
    }
}

fn page_aligned(addr: u64) -> Result<(), Status> {
    addr.is_multiple_of(PAGE_SIZE).then_some(()).ok_or(Status::Misaligned)
}

const _: () = {
    assert!(size_of::<Negotiate>() == 56 && size_of::<CreateAsid>() == 64);
};
