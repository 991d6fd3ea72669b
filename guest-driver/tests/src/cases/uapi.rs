//! Bad input: every call refuses what it must, by the right errno, and goes on.

use crate::fixture::Fixture;
use crate::memory::Mapping;
use crate::Test;
use libuma::sys::{self, ioctl};
use libuma::{Job, Kernel, Task, PAGE_SIZE};
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;

pub(super) const TESTS: &[Test] = &[
    Test::shared("uapi_unknown_calls", unknown_calls),
    Test::shared("uapi_bad_pointers", bad_pointers),
    Test::shared("uapi_reserved_fields", reserved_fields),
    Test::shared("uapi_create", create),
    Test::shared("uapi_calls_before_create", calls_before_create),
    Test::shared("uapi_submit_arguments", submit_arguments),
    Test::shared("uapi_ranges", ranges),
    Test::shared("uapi_query", query),
];

/// Asserts that a job is refused at once.
#[track_caller]
pub(super) fn assert_refused(fixture: &Fixture, job: &Job, errno: i32) {
    // SAFETY: the job is refused; were it not, it would write to the test's own memory only.
    match unsafe { fixture.context.submit(job) } {
        Ok(submitted) => panic!("accepted, and ended with {:?}", fixture.wait(submitted.id).status),
        Err(error) => assert_eq!(error.errno(), Some(errno), "{error:?}"),
    }
}

/// Calls with a structure and returns the errno, 0 for success.
fn errno<T>(fd: impl AsFd, request: u32, mut argument: T) -> i32 {
    // SAFETY: `argument` is the structure of the request or larger. Calls that name memory name that of the test.
    match unsafe { ioctl(fd.as_fd(), request, &mut argument) } {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().expect("an errno"),
    }
}

/// A file that is no context yet.
fn fresh() -> File {
    OpenOptions::new().read(true).write(true).open(crate::DEVICE).expect("device")
}

fn unknown_calls(fixture: &Fixture) {
    for request in [0xC008_AE0A, 0x0000_AE00, 0x8008_AE00, 0x8008_AD00, sys::IOC_QUERY + (8 << 16), u32::MAX] {
        assert_eq!(errno(&fixture.context, request, [0u64; 64]), libc::ENOTTY, "{request:#x}");
    }
}

/// Addresses that are not mapped, of the kernel, and on the edge of a mapping.
fn bad_pointers(fixture: &Fixture) {
    use std::os::fd::AsRawFd;
    let memory = Mapping::small(PAGE_SIZE);
    let edge = memory.addr() as usize + PAGE_SIZE - 8;
    let requests = [
        sys::IOC_QUERY,
        sys::IOC_CREATE,
        sys::IOC_SUBMIT,
        sys::IOC_WAIT,
        sys::IOC_ADVISE,
        sys::IOC_PREFETCH,
        sys::IOC_RESIDENCY,
        sys::IOC_STATS,
        sys::IOC_DEVICE_STATS,
    ];
    for request in requests {
        for address in [0, 8, 0xffff_8880_0000_0000usize, edge] {
            let fd = fixture.context.as_fd().as_raw_fd();
            // SAFETY: the kernel checks the address and writes to it only if it is mapped: at most the test's own page.
            let rc = unsafe { libc::ioctl(fd, request as _, address) };
            let error = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((rc, error), (-1, Some(libc::EFAULT)), "{request:#x} at {address:#x}");
        }
    }
    let raw = sys::Residency { start: memory.addr() as u64, length: PAGE_SIZE as u64, vec: 8, ..Default::default() };
    assert_eq!(errno(&fixture.context, sys::IOC_RESIDENCY, raw), libc::EFAULT);
    fixture.run(Task::nop());
}

/// A structure with one bit set where zero is demanded.
fn reserved_fields(fixture: &Fixture) {
    let fd = &fixture.context;
    let submit = sys::Submit { kernel: Kernel::Nop as u16, ..Default::default() };
    let start = Mapping::small(PAGE_SIZE);
    let (start, length) = (start.addr() as u64, PAGE_SIZE as u64);
    let mode = sys::MODE_MIRRORED;
    let refused = [
        errno(fresh(), sys::IOC_CREATE, sys::Create { mode, flags: 1, ..Default::default() }),
        errno(fresh(), sys::IOC_CREATE, sys::Create { mode, reserved: 1, ..Default::default() }),
        errno(fd, sys::IOC_SUBMIT, sys::Submit { reserved0: 1, ..submit }),
        errno(fd, sys::IOC_SUBMIT, sys::Submit { reserved1: 1, ..submit }),
        errno(fd, sys::IOC_SUBMIT, sys::Submit { flags: 2, ..submit }),
        errno(fd, sys::IOC_SUBMIT, sys::Submit { flags: 1 << 31, ..submit }),
        errno(fd, sys::IOC_ADVISE, sys::Advise { start, length, flags: 1, ..Default::default() }),
        errno(fd, sys::IOC_ADVISE, sys::Advise { start, length, advice: 4, ..Default::default() }),
        errno(fd, sys::IOC_PREFETCH, sys::Prefetch { start, length, flags: 2, ..Default::default() }),
        errno(fd, sys::IOC_PREFETCH, sys::Prefetch { start, length, target: 2, ..Default::default() }),
    ];
    assert_eq!(refused, [libc::EINVAL; 10]);
}

fn create(fixture: &Fixture) {
    let again = sys::Create { mode: sys::MODE_MIRRORED, ..Default::default() };
    assert_eq!(errno(&fixture.context, sys::IOC_CREATE, again), libc::EBUSY);
    let shared = sys::Create { mode: sys::MODE_SHARED, ..Default::default() };
    assert_eq!(errno(fresh(), sys::IOC_CREATE, shared), libc::EOPNOTSUPP);
    for mode in [0, 3, u32::MAX] {
        let refused = errno(fresh(), sys::IOC_CREATE, sys::Create { mode, ..Default::default() });
        assert!(matches!(refused, libc::EINVAL | libc::EOPNOTSUPP), "mode {mode}: {refused}");
    }
    let file = fresh();
    assert_eq!(errno(&file, sys::IOC_CREATE, shared), libc::EOPNOTSUPP);
    assert_eq!(errno(&file, sys::IOC_CREATE, again), 0, "a refusal leaves the file usable");
}

/// Calls on a file that is no context.
fn calls_before_create(_fixture: &Fixture) {
    fn refused(what: impl Debug, got: i32) {
        assert_eq!(got, libc::EINVAL, "{what:?}");
    }
    let file = fresh();
    refused("submit", errno(&file, sys::IOC_SUBMIT, sys::Submit::default()));
    refused("wait", errno(&file, sys::IOC_WAIT, sys::Wait::default()));
    refused("cancel", errno(&file, sys::IOC_CANCEL, sys::Cancel::default()));
    refused("advise", errno(&file, sys::IOC_ADVISE, sys::Advise { length: 4096, ..Default::default() }));
    refused("prefetch", errno(&file, sys::IOC_PREFETCH, sys::Prefetch { length: 4096, ..Default::default() }));
    refused("residency", errno(&file, sys::IOC_RESIDENCY, sys::Residency { length: 4096, ..Default::default() }));
    refused("stats", errno(&file, sys::IOC_STATS, sys::Stats::default()));
}

/// What the device would refuse is refused at once: no job comes into being.
fn submit_arguments(fixture: &Fixture) {
    let mut memory = Mapping::small(PAGE_SIZE);
    let data = memory.addr().cast::<u32>();
    let raw = |kernel: u16, elem: u16| sys::Submit { kernel, elem, ..Default::default() };
    let fill = Kernel::Fill as u16;
    let before = fixture.stats().jobs;
    for bad in [raw(13, 1), raw(u16::MAX, 1), raw(fill, 0), raw(fill, 6), raw(0, 1), raw(Kernel::Gemm as u16, 5)] {
        assert_eq!(errno(&fixture.context, sys::IOC_SUBMIT, bad), libc::EINVAL, "{bad:?}");
    }
    let wide = sys::Submit { va: [data as u64, 0, 0, 0], n: [1, 0, 0, 0], scalar: [1 << 32, 0], ..raw(fill, 2) };
    assert_eq!(errno(&fixture.context, sys::IOC_SUBMIT, wide), libc::EINVAL);
    assert_refused(fixture, &Job::fill(data.cast::<u8>().wrapping_add(2).cast::<u32>(), 1, 1), libc::EINVAL);
    assert_refused(fixture, &Job::nop().priority(4), libc::EINVAL);
    assert_refused(fixture, &Job::nop().wait_fence(0, 1), libc::EINVAL);
    assert_refused(fixture, &Job::nop().signal_fence(0, 1), libc::EINVAL);
    let info = fixture.device.query().expect("query");
    assert_refused(fixture, &Job::nop().stream(info.max_streams), libc::EINVAL);
    assert_refused(fixture, &Job::nop().wait_fence(info.max_fences + 1, 1), libc::EINVAL);
    assert_refused(fixture, &Job::fill(data, usize::MAX, 1), libc::ERANGE);
    assert_refused(fixture, &Job::fill(data, 1 << 60, 1), libc::ERANGE);
    assert_eq!(fixture.stats().jobs, before, "no job came into being");
    fixture.run(Task::fill(memory.slice_mut::<u32>(), 1).stream(info.max_streams - 1).priority(3));
}

/// Ranges that are empty, not aligned, wrap, or lie where no process has memory.
fn ranges(fixture: &Fixture) {
    let memory = Mapping::small(4 * PAGE_SIZE);
    let (base, page) = (memory.addr() as u64, PAGE_SIZE as u64);
    let bad =
        [(base, 0), (base + 1, page), (base, page + 8), (base, u64::MAX - page + 1), (u64::MAX - page + 1, 2 * page)];
    for (start, length) in bad {
        let refused = [
            errno(&fixture.context, sys::IOC_ADVISE, sys::Advise { start, length, ..Default::default() }),
            errno(&fixture.context, sys::IOC_PREFETCH, sys::Prefetch { start, length, ..Default::default() }),
            errno(&fixture.context, sys::IOC_RESIDENCY, sys::Residency { start, length, ..Default::default() }),
        ];
        assert!(
            refused.iter().all(|errno| matches!(*errno, libc::EINVAL | libc::ERANGE)),
            "{start:#x}+{length:#x}: {refused:?}"
        );
    }
    let large = sys::Residency { start: base, length: (1 << 30) + page, ..Default::default() };
    assert!(matches!(errno(&fixture.context, sys::IOC_RESIDENCY, large), libc::EINVAL | libc::ERANGE));
}

/// The answers make sense together.
fn query(fixture: &Fixture) {
    let info = fixture.device.query().expect("query");
    assert!(!info.lost && info.features.mirrored() && info.session != 0);
    assert!(info.num_eus > 0 && info.max_jobs > 0 && info.max_streams > 1 && info.max_fences > 7);
    assert!(info.device_bytes >= 16 << 20 && info.device_free <= info.device_bytes);
    let stats = fixture.device.stats().expect("stats");
    assert_eq!(stats.memory.dpa_size, info.device_bytes);
    assert_eq!(stats.asids, stats.memory.asids, "driver and device agree on the address spaces");
    let raw = sys::Query { reserved0: 1, ..Default::default() };
    assert_eq!(errno(&fixture.device, sys::IOC_QUERY, raw), 0, "an out structure is not read");
}
