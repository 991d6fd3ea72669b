//! The ioctl interface of `/dev/uma<N>` as it is in `uma.h`, which documents every field. `tests/c_header.rs` compiles
//! that header and compares sizes, offsets and numbers with these.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Letter of the ioctl numbers.
pub const MAGIC: u8 = 0xAE;

/// `uma_query.features`: contexts with mirrored tables.
pub const FEATURE_MIRRORED: u64 = 1 << 0;
/// `uma_query.features`: pages move to device memory.
pub const FEATURE_PRIVATE: u64 = 1 << 1;
/// `uma_query.features`: 2 MiB folios move as a whole.
pub const FEATURE_LARGE: u64 = 1 << 2;
/// `uma_query.features`: kernels with atomics.
pub const FEATURE_ATOMICS: u64 = 1 << 3;
/// `uma_query.state`: the device works.
pub const STATE_OK: u32 = 0;
/// `uma_query.state`: the device is lost.
pub const STATE_LOST: u32 = 1;
/// `uma_create.mode`: tables written by the driver.
pub const MODE_MIRRORED: u32 = 1;
/// `uma_create.mode`: tables of the process; refused with EOPNOTSUPP.
pub const MODE_SHARED: u32 = 2;
/// `uma_submit.flags`: return a pollable descriptor.
pub const SUBMIT_FENCE_FD: u32 = 1 << 0;
/// `uma_prefetch.target`: guest RAM.
pub const TARGET_SYSTEM: u32 = 0;
/// `uma_prefetch.target`: device memory.
pub const TARGET_DEVICE: u32 = 1;
/// `uma_prefetch.flags`: return at once.
pub const PREFETCH_ASYNC: u32 = 1 << 0;
/// `uma_residency.vec`: mask of the place of a page.
pub const PAGE_WHERE_MASK: u8 = 3;
/// `uma_residency.vec`: the page is nowhere.
pub const PAGE_NONE: u8 = 0;
/// `uma_residency.vec`: the page is in guest RAM.
pub const PAGE_SYSTEM: u8 = 1;
/// `uma_residency.vec`: the page is in device memory.
pub const PAGE_DEVICE: u8 = 2;
/// `uma_residency.vec`: part of a 2 MiB page.
pub const PAGE_HUGE: u8 = 4;
/// `uma_residency.vec`: the device has a translation.
pub const PAGE_MAPPED: u8 = 8;

macro_rules! uapi {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[allow(missing_docs)] // uma.h documents the fields
            pub struct $name { $(pub $field: $type,)* }

            impl $name {
                /// Field names, offsets and sizes in order, for comparison with the C header.
                pub const LAYOUT: &'static [(&'static str, usize, usize)] =
                    &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$type>()),)*];
            }
        )*
    };
}

uapi! {
    /// `struct uma_query`
    Query {
        features: u64, device_bytes: u64, device_free: u64, capabilities: u64, session: u64, max_jobs: u32,
        max_streams: u32, max_fences: u32, num_eus: u32, state: u32, reserved0: u32, reserved: [u64; 4],
    }
    /// `struct uma_create`
    Create { mode: u32, flags: u32, asid: u32, reserved: u32, }
    /// `struct uma_submit`
    Submit {
        kernel: u16, elem: u16, priority: u16, reserved0: u16, flags: u32, stream: u32, deadline_ns: u64,
        wait_fence: u32, signal_fence: u32, wait_value: u64, signal_value: u64, va: [u64; 4], n: [u64; 4],
        scalar: [u64; 2], job: u64, fence_fd: i32, reserved1: u32,
    }
    /// `struct uma_wait`
    Wait {
        job: u64, timeout_ns: u64, status: u32, error: i32, fault_va: u64, fault_access: u16, fault_cause: u16,
        fault_result: u16, eu: u16, steps: u64, bytes: u64, faults: u64, device_ns: u64, result: u64,
    }
    /// `struct uma_cancel`
    Cancel { job: u64, }
    /// `struct uma_advise`
    Advise { start: u64, length: u64, advice: u32, flags: u32, }
    /// `struct uma_prefetch`
    Prefetch { start: u64, length: u64, target: u32, flags: u32, moved: u64, resident: u64, }
    /// `struct uma_residency`
    Residency { start: u64, length: u64, vec: u64, system: u64, device: u64, none: u64, mapped: u64, }
    /// `struct uma_stats`: what happened in one context since it was created; pages are 4 KiB.
    Stats {
        faults: u64, faults_failed: u64, faults_stale: u64, to_device_fault: u64, to_device_prefetch: u64,
        zero_filled: u64, to_system_cpu: u64, to_system_prefetch: u64, to_system_evict: u64, to_system_release: u64,
        huge_to_device: u64, huge_to_system: u64, mapped_in_place: u64, cpu_faults: u64, invalidations: u64, jobs: u64,
        jobs_ended: u64, device_pages: u64, reserved: [u64; 6],
    }
    /// `struct uma_device_stats`
    RawDeviceStats {
        counters: [u64; 32], memory: [u64; 8], asids: u64, pages_used: u64, pages_quarantined: u64, reserved: [u64; 5],
    }
}

/// Number of an ioctl in Linux's generic encoding; `direction`: 1 = written by the caller, 2 = read, 3 = both.
const fn number(direction: u32, nr: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (MAGIC as u32) << 8 | nr
}

/// `UMA_IOC_QUERY`
pub const IOC_QUERY: u32 = number(2, 0x00, size_of::<Query>());
/// `UMA_IOC_CREATE`
pub const IOC_CREATE: u32 = number(3, 0x01, size_of::<Create>());
/// `UMA_IOC_SUBMIT`
pub const IOC_SUBMIT: u32 = number(3, 0x02, size_of::<Submit>());
/// `UMA_IOC_WAIT`
pub const IOC_WAIT: u32 = number(3, 0x03, size_of::<Wait>());
/// `UMA_IOC_CANCEL`
pub const IOC_CANCEL: u32 = number(1, 0x04, size_of::<Cancel>());
/// `UMA_IOC_ADVISE`
pub const IOC_ADVISE: u32 = number(1, 0x05, size_of::<Advise>());
/// `UMA_IOC_PREFETCH`
pub const IOC_PREFETCH: u32 = number(3, 0x06, size_of::<Prefetch>());
/// `UMA_IOC_RESIDENCY`
pub const IOC_RESIDENCY: u32 = number(3, 0x07, size_of::<Residency>());
/// `UMA_IOC_STATS`
pub const IOC_STATS: u32 = number(2, 0x08, size_of::<Stats>());
/// `UMA_IOC_DEVICE_STATS`
pub const IOC_DEVICE_STATS: u32 = number(2, 0x09, size_of::<RawDeviceStats>());

/// Calls the driver.
///
/// # Errors
/// The errno of the call.
///
/// # Safety
/// `T` is the structure that `request` is about (or at least as large), and addresses inside it are good for what the
/// request does with them, a job's until the job has ended.
pub unsafe fn ioctl<T>(fd: BorrowedFd<'_>, request: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the borrow; `argument` is a valid, writable T, which is what
    // the request reads and writes, as the caller promises.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument as *mut T) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Stats {
    /// Every counter with its name.
    pub fn fields(&self) -> [(&'static str, u64); 18] {
        [
            ("faults", self.faults),
            ("faults_failed", self.faults_failed),
            ("faults_stale", self.faults_stale),
            ("to_device_fault", self.to_device_fault),
            ("to_device_prefetch", self.to_device_prefetch),
            ("zero_filled", self.zero_filled),
            ("to_system_cpu", self.to_system_cpu),
            ("to_system_prefetch", self.to_system_prefetch),
            ("to_system_evict", self.to_system_evict),
            ("to_system_release", self.to_system_release),
            ("huge_to_device", self.huge_to_device),
            ("huge_to_system", self.huge_to_system),
            ("mapped_in_place", self.mapped_in_place),
            ("cpu_faults", self.cpu_faults),
            ("invalidations", self.invalidations),
            ("jobs", self.jobs),
            ("jobs_ended", self.jobs_ended),
            ("device_pages", self.device_pages),
        ]
    }

    /// Pages moved to the device, for whatever reason.
    pub fn to_device(&self) -> u64 {
        self.to_device_fault + self.to_device_prefetch
    }

    /// Pages moved back, for whatever reason.
    pub fn to_system(&self) -> u64 {
        self.to_system_cpu + self.to_system_prefetch + self.to_system_evict + self.to_system_release
    }
}
