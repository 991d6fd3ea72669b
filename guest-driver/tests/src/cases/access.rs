//! Jobs on memory of every kind: what they compute, what moves, what a fault that can't be served says.

use crate::fixture::Fixture;
use crate::memory::{write_samples, Mapping};
use crate::reference::{assert_same, samples, sum, Number};
use crate::runner::skip;
use crate::Test;
use libuma::{Access, FaultCause, FaultResult, Job, Stats, Status, Task, HUGE_SIZE, PAGE_SIZE};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, FromRawFd};

pub(super) const TESTS: &[Test] = &[
    Test::shared("untouched_small_pages", untouched_small_pages),
    Test::shared("untouched_huge_pages", untouched_huge_pages),
    Test::shared("untouched_read", untouched_read),
    Test::shared("untouched_part_of_block", untouched_part_of_block),
    Test::shared("written_small_pages", written_small_pages),
    Test::shared("written_huge_pages", written_huge_pages),
    Test::shared("zero_page", zero_page),
    Test::shared("file_private", file_private),
    Test::shared("file_shared", file_shared),
    Test::shared("shared_anonymous", shared_anonymous),
    Test::shared("hugetlb", hugetlb),
    Test::shared("stack", stack),
    Test::shared("read_only", read_only),
    Test::shared("prot_none", prot_none),
    Test::shared("unmapped", unmapped),
    Test::shared("beyond_user_space", beyond_user_space),
];

/// 2 MiB blocks of the usual mapping.
const BLOCKS: u64 = 3;
const LEN: usize = BLOCKS as usize * HUGE_SIZE;
const PAGES: u64 = BLOCKS * 512;
/// What any one job counts.
const JOB: Stats = Stats { jobs: 1, jobs_ended: 1, ..ZERO };
pub(super) const ZERO: Stats = Stats {
    faults: 0,
    faults_failed: 0,
    faults_stale: 0,
    to_device_fault: 0,
    to_device_prefetch: 0,
    zero_filled: 0,
    to_system_cpu: 0,
    to_system_prefetch: 0,
    to_system_evict: 0,
    to_system_release: 0,
    huge_to_device: 0,
    huge_to_system: 0,
    mapped_in_place: 0,
    cpu_faults: 0,
    invalidations: 0,
    jobs: 0,
    jobs_ended: 0,
    device_pages: 0,
    reserved: [0; 6],
};

/// One fault per block brings it whole; what has no content is not copied. The CPU then fetches it back. One page of each
/// block is written before: a block that is empty as a whole becomes a large page, see below.
fn untouched_small_pages(fixture: &Fixture) {
    let mut memory = Mapping::small(LEN);
    memory.slice_mut::<u8>().iter_mut().step_by(HUGE_SIZE).for_each(|byte| *byte = 1);
    let empty = PAGES - BLOCKS;
    let to_device = Stats { faults: BLOCKS, to_device_fault: PAGES, zero_filled: empty, device_pages: PAGES, ..JOB };
    fixture.expect(to_device, || fixture.run(Task::fill(memory.slice_mut(), 7u64)));
    let back = Stats { cpu_faults: BLOCKS, to_system_cpu: PAGES, device_pages: PAGES.wrapping_neg(), ..ZERO };
    fixture.expect(back, || assert!(memory.slice::<u64>().iter().all(|value| *value == 7)));
}

fn untouched_huge_pages(fixture: &Fixture) {
    let mut memory = Mapping::huge(LEN);
    let large = if fixture.large() { BLOCKS } else { 0 };
    let moved = Stats { faults: BLOCKS, to_device_fault: PAGES, zero_filled: PAGES, device_pages: PAGES, ..JOB };
    fixture.expect(Stats { huge_to_device: large, ..moved }, || fixture.run(Task::fill(memory.slice_mut(), 7u64)));
    let back = Stats { cpu_faults: BLOCKS, to_system_cpu: PAGES, device_pages: PAGES.wrapping_neg(), ..ZERO };
    fixture.expect(Stats { huge_to_system: large, ..back }, || {
        assert!(memory.slice::<u64>().iter().all(|value| *value == 7));
    });
}

/// Reading what was never written sees zeros.
fn untouched_read(fixture: &Fixture) {
    let (memory, mut total) = (Mapping::small(LEN), Mapping::small(8));
    total.slice_mut::<u64>()[0] = 99;
    let delta = fixture.counted(|| fixture.run(Task::reduce(&mut total.slice_mut::<u64>()[0], memory.slice())));
    assert_eq!(total.slice::<u64>()[0], 0);
    assert_eq!(delta.faults, BLOCKS + 1, "one per block and one for the sum");
    assert_eq!((delta.to_device_fault, delta.zero_filled), (PAGES + 1, PAGES), "the sum's page had content");
}

/// What moves is the block clipped to the mapping.
fn untouched_part_of_block(fixture: &Fixture) {
    let mut memory = Mapping::small(5 * PAGE_SIZE);
    let moved = Stats { faults: 1, to_device_fault: 5, zero_filled: 5, device_pages: 5, ..JOB };
    fixture.expect(moved, || fixture.run(Task::fill(&mut memory.slice_mut::<u8>()[PAGE_SIZE..][..1], 3)));
    assert_eq!(memory.slice::<u8>()[PAGE_SIZE], 3);
    assert_eq!(sum(memory.slice::<u8>().iter().map(|value| u64::from(*value))), 3);
}

fn scale_written(fixture: &Fixture, mut memory: Mapping, huge: u64) {
    write_samples(memory.slice_mut::<f32>());
    let to_device = Stats { faults: BLOCKS, to_device_fault: PAGES, huge_to_device: huge, device_pages: PAGES, ..JOB };
    fixture.expect(to_device, || fixture.run(Task::scale(memory.slice_mut(), 2.5f32)));
    let expected: Vec<f32> = samples(0, LEN / 4).into_iter().map(|value: f32| 2.5 * value).collect();
    let gone = PAGES.wrapping_neg();
    let back = Stats { cpu_faults: BLOCKS, to_system_cpu: PAGES, huge_to_system: huge, device_pages: gone, ..ZERO };
    fixture.expect(back, || assert_same("scaled", memory.slice::<f32>(), &expected));
}

fn written_small_pages(fixture: &Fixture) {
    scale_written(fixture, Mapping::small(LEN), 0);
}

fn written_huge_pages(fixture: &Fixture) {
    scale_written(fixture, Mapping::huge(LEN), if fixture.large() { BLOCKS } else { 0 });
}

/// Pages that the CPU has only read are the zero page: no content either.
fn zero_page(fixture: &Fixture) {
    let mut memory = Mapping::small(LEN);
    assert!(memory.slice::<u64>().iter().all(|value| *value == 0));
    let moved = Stats { faults: BLOCKS, to_device_fault: PAGES, zero_filled: PAGES, device_pages: PAGES, ..JOB };
    fixture.expect(moved, || fixture.run(Task::fill(memory.slice_mut(), 1u8)));
    assert!(memory.slice::<u8>().iter().all(|value| *value == 1));
}

/// A file of samples on a memory file system.
fn file_of_samples(len: usize) -> File {
    // SAFETY: a NUL-terminated name; the descriptor is new and ours.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"uma-test".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        File::from_raw_fd(fd)
    };
    let bytes: Vec<u8> = samples::<u64>(0, len / 8).into_iter().flat_map(u64::to_ne_bytes).collect();
    file.write_all(&bytes).expect("write");
    file
}

fn file_words(file: &mut File) -> Vec<u64> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("seek");
    file.read_to_end(&mut bytes).expect("read");
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect()
}

fn tripled(len: usize) -> Vec<u64> {
    samples::<u64>(0, len / 8).into_iter().map(|value| value.times(3)).collect()
}

/// The job's writes go to private copies; the file stays.
fn file_private(fixture: &Fixture) {
    let mut file = file_of_samples(LEN);
    let mut memory = Mapping::file(file.as_fd(), LEN, false);
    fixture.run(Task::scale(memory.slice_mut(), 3u64));
    assert_same("mapping", memory.slice::<u64>(), &tripled(LEN));
    assert_same("file", &file_words(&mut file), &samples::<u64>(0, LEN / 8));
}

/// File pages stay where they are, and the job's writes are the file's contents.
fn file_shared(fixture: &Fixture) {
    let mut file = file_of_samples(LEN);
    let mut memory = Mapping::file(file.as_fd(), LEN, true);
    let delta = fixture.counted(|| fixture.run(Task::scale(memory.slice_mut(), 3u64)));
    assert_eq!((delta.to_device(), delta.device_pages), (0, 0), "nothing moves");
    assert_eq!(delta.mapped_in_place, PAGES);
    assert_same("file", &file_words(&mut file), &tripled(LEN));
    assert_same("mapping", memory.slice::<u64>(), &tripled(LEN));
}

fn shared_anonymous(fixture: &Fixture) {
    let mut memory = Mapping::shared(LEN);
    memory.madvise(libc::MADV_NOHUGEPAGE);
    write_samples(memory.slice_mut::<u64>());
    let delta = fixture.counted(|| fixture.run(Task::scale(memory.slice_mut(), 3u64)));
    assert_eq!((delta.to_device(), delta.mapped_in_place), (0, PAGES), "nothing moves");
    assert_same("mapping", memory.slice::<u64>(), &tripled(LEN));
}

fn hugetlb(fixture: &Fixture) {
    if std::fs::write("/proc/sys/vm/nr_hugepages", "8").is_err() {
        skip("this kernel has no hugetlb pool");
    }
    let Ok(mut memory) = Mapping::hugetlb(2 * HUGE_SIZE) else { skip("the hugetlb pool is empty") };
    write_samples(memory.slice_mut::<u64>());
    let delta = fixture.counted(|| fixture.run(Task::scale(memory.slice_mut(), 3u64)));
    assert_eq!((delta.to_device(), delta.mapped_in_place), (0, 1024), "nothing moves");
    assert_same("mapping", memory.slice::<u64>(), &tripled(2 * HUGE_SIZE));
    drop(memory);
    std::fs::write("/proc/sys/vm/nr_hugepages", "0").expect("nr_hugepages");
}

/// Arrays on the stacks of two threads.
fn stack(fixture: &Fixture) {
    let work = || {
        let mut array = [0u32; 3000];
        write_samples(&mut array);
        fixture.run(Task::scale(&mut array, 5));
        let expected: Vec<u32> = samples(0, 3000).into_iter().map(|value: u32| value.times(5)).collect();
        assert_same("stack", &array, &expected);
    };
    work();
    std::thread::scope(|scope| scope.spawn(work).join().expect("thread"));
}

/// What a job says about a fault that can't be served.
#[track_caller]
fn assert_fault(fixture: &Fixture, job: &Job, page: *const u8, access: Access, cause: FaultCause, result: FaultResult) {
    let end = fixture.run_raw(job);
    assert_eq!(end.status, Status::Fault);
    let fault = end.fault.expect("detail of a fault");
    let said = (fault.va, fault.access, fault.cause, fault.result);
    assert_eq!(said, (page as u64, access, cause, Some(result)));
}

/// Reads work, writes fail and change nothing.
fn read_only(fixture: &Fixture) {
    let (mut memory, mut total) = (Mapping::small(4 * PAGE_SIZE), Mapping::small(8));
    write_samples(memory.slice_mut::<u64>());
    memory.protect(0, memory.len(), libc::PROT_READ);
    fixture.run(Task::reduce(&mut total.slice_mut::<u64>()[0], memory.slice()));
    let expected = samples::<u64>(0, memory.len() / 8);
    assert_eq!(total.slice::<u64>()[0], sum(expected.iter().copied()));
    let page = memory.at(PAGE_SIZE);
    let job = Job::fill(page.cast::<u64>(), 10, 1);
    let failed = fixture.counted(|| {
        assert_fault(fixture, &job, page, Access::STORE, FaultCause::NotPermitted, FaultResult::NoPermission);
    });
    assert_eq!((failed.faults, failed.faults_failed), (1, 1));
    assert_same("memory", memory.slice::<u64>(), &expected);
}

/// A mapping without any access, with contents from before: a fault, and the contents are there afterwards.
fn prot_none(fixture: &Fixture) {
    let mut memory = Mapping::small(4 * PAGE_SIZE);
    write_samples(memory.slice_mut::<u64>());
    memory.protect(0, memory.len(), libc::PROT_NONE);
    let page = memory.at(2 * PAGE_SIZE);
    let (read, write) = (Job::reduce(memory.at(0).cast(), page.cast::<u64>(), 1), Job::fill(page.cast::<u64>(), 1, 5));
    let (none, gone) = (FaultCause::NotPresent, FaultResult::NoMapping);
    assert_fault(fixture, &read, page, Access::READ, none, gone);
    assert_fault(fixture, &write, page, Access::STORE, none, gone);
    memory.protect(0, memory.len(), libc::PROT_READ);
    assert_same("memory", memory.slice::<u64>(), &samples(0, memory.len() / 8));
}

/// A job runs into a hole: what lies before it is done, and the fault names its first page.
fn unmapped(fixture: &Fixture) {
    let memory = Mapping::small(8 * PAGE_SIZE);
    memory.unmap(3 * PAGE_SIZE, PAGE_SIZE);
    let hole = memory.at(3 * PAGE_SIZE);
    let job = Job::fill(memory.addr(), memory.len(), 9u8);
    let counted = fixture.counted(|| {
        assert_fault(fixture, &job, hole, Access::STORE, FaultCause::NotPresent, FaultResult::NoMapping);
    });
    assert_eq!(counted.faults_failed, 1);
    assert!(memory.slice::<u8>()[..3 * PAGE_SIZE].iter().all(|value| *value == 9), "done before the hole");
    // SAFETY: behind the hole, mapped and never written by anything.
    let behind = unsafe { std::slice::from_raw_parts(memory.at(4 * PAGE_SIZE), 4 * PAGE_SIZE) };
    assert!(behind.iter().all(|value| *value == 0), "nothing done behind it");
}

/// Addresses of the kernel and addresses that are none.
fn beyond_user_space(fixture: &Fixture) {
    for address in [0xffff_8000_0000_0000u64, 0x0000_8000_0000_0000, u64::MAX - 4095] {
        let job = Job::fill(address as *mut u8, 1, 1);
        super::uapi::assert_refused(fixture, &job, libc::ERANGE);
    }
}
