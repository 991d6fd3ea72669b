//! Prefetch and residency: pages reported are pages moved.

use super::access::ZERO;
use crate::fixture::{until_equal, Fixture};
use crate::memory::{write_samples, Mapping};
use crate::reference::{assert_same, samples};
use crate::runner::skip;
use crate::Test;
use libuma::{Stats, Target, Task, HUGE_SIZE, PAGE_SIZE};

pub(super) const TESTS: &[Test] = &[
    Test::shared("prefetch_there_and_back", prefetch_there_and_back),
    Test::shared("prefetch_huge", prefetch_huge),
    Test::shared("prefetch_partly_there", prefetch_partly_there),
    Test::shared("prefetch_holes", prefetch_holes),
    Test::shared("prefetch_unmapped_part", prefetch_unmapped_part),
    Test::shared("prefetch_read_only", prefetch_read_only),
    Test::shared("prefetch_file", prefetch_file),
    Test::shared("prefetch_then_job_without_copies", prefetch_then_job_without_copies),
    Test::shared("prefetch_async", prefetch_async),
    Test::shared("residency_bytes", residency_bytes),
];

const LEN: usize = 2 * HUGE_SIZE;
const PAGES: u64 = 1024;

fn need_private(fixture: &Fixture) {
    if !fixture.private() {
        skip("this kernel can't move pages to the device");
    }
}

/// Asserts what a prefetch reports, and that the counters say the same.
#[track_caller]
fn prefetch(fixture: &Fixture, memory: &Mapping, target: Target, moved: u64, resident: u64, counters: Stats) {
    fixture.expect(counters, || {
        let done = fixture.context.prefetch(memory.addr(), memory.len(), target).expect("prefetch");
        assert_eq!((done.moved, done.resident), (moved, resident), "moved and resident");
    });
}

fn to_device(pages: u64) -> Stats {
    Stats { to_device_prefetch: pages, device_pages: pages, ..ZERO }
}

fn to_system(pages: u64) -> Stats {
    Stats { to_system_prefetch: pages, device_pages: pages.wrapping_neg(), ..ZERO }
}

fn written(mut memory: Mapping) -> Mapping {
    write_samples(memory.slice_mut::<u64>());
    memory
}

#[track_caller]
fn assert_samples(memory: &Mapping) {
    assert_same("memory", memory.slice::<u64>(), &samples(0, memory.len() / 8));
}

fn prefetch_there_and_back(fixture: &Fixture) {
    need_private(fixture);
    let memory = written(Mapping::small(LEN));
    prefetch(fixture, &memory, Target::System, 0, PAGES, ZERO);
    prefetch(fixture, &memory, Target::Device, PAGES, 0, to_device(PAGES));
    prefetch(fixture, &memory, Target::Device, 0, PAGES, ZERO);
    prefetch(fixture, &memory, Target::System, PAGES, 0, to_system(PAGES));
    assert_samples(&memory);
}

fn prefetch_huge(fixture: &Fixture) {
    need_private(fixture);
    let memory = written(Mapping::huge(LEN));
    let large = if fixture.large() { 2 } else { 0 };
    prefetch(fixture, &memory, Target::Device, PAGES, 0, Stats { huge_to_device: large, ..to_device(PAGES) });
    prefetch(fixture, &memory, Target::Device, 0, PAGES, ZERO);
    prefetch(fixture, &memory, Target::System, PAGES, 0, Stats { huge_to_system: large, ..to_system(PAGES) });
    assert_samples(&memory);
}

/// Every third page was fetched back by the CPU (one at a time, by prefetch, so that no neighbour comes along).
fn prefetch_partly_there(fixture: &Fixture) {
    need_private(fixture);
    let memory = written(Mapping::small(LEN));
    prefetch(fixture, &memory, Target::Device, PAGES, 0, to_device(PAGES));
    let back = (0..PAGES).step_by(3).count() as u64;
    for page in (0..PAGES as usize).step_by(3) {
        let one = fixture.context.prefetch(memory.at(page * PAGE_SIZE), PAGE_SIZE, Target::System).expect("prefetch");
        assert_eq!((one.moved, one.resident), (1, 0));
    }
    prefetch(fixture, &memory, Target::Device, back, PAGES - back, to_device(back));
    assert_samples(&memory);
}

/// Holes are created on the device and left alone on the way back; pages that have content and pages that have none mix.
fn prefetch_holes(fixture: &Fixture) {
    need_private(fixture);
    let mut memory = Mapping::small(LEN);
    memory.slice_mut::<u8>()[5 * PAGE_SIZE] = 1;
    memory.slice_mut::<u8>()[HUGE_SIZE] = 1; // a block that is empty as a whole would become a large page
    let created = Stats { zero_filled: PAGES - 2, ..to_device(PAGES) };
    prefetch(fixture, &memory, Target::Device, PAGES, 0, created);
    assert_eq!(memory.slice::<u8>()[5 * PAGE_SIZE], 1);
    let empty = Mapping::small(LEN);
    prefetch(fixture, &empty, Target::System, 0, 0, ZERO);
    let where_now = fixture.context.residency(empty.addr(), LEN).expect("residency");
    assert_eq!(where_now.none, PAGES, "prefetch to the system creates nothing");
}

/// The rest moves, and the call says EFAULT.
fn prefetch_unmapped_part(fixture: &Fixture) {
    need_private(fixture);
    let memory = written(Mapping::small(LEN));
    memory.unmap(100 * PAGE_SIZE, 10 * PAGE_SIZE);
    let delta = fixture.counted(|| {
        let error = fixture.context.prefetch(memory.addr(), LEN, Target::Device).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EFAULT));
    });
    assert_eq!(delta.to_device_prefetch, PAGES - 10);
    let behind = 110 * PAGE_SIZE / 8;
    // SAFETY: the part behind the hole is mapped, and nothing writes it now.
    let words = unsafe { std::slice::from_raw_parts(memory.at(110 * PAGE_SIZE).cast::<u64>(), LEN / 8 - behind) };
    assert_same("behind the hole", words, &samples(behind, words.len()));
}

/// A mapping that can't be written moves like any other.
fn prefetch_read_only(fixture: &Fixture) {
    need_private(fixture);
    let memory = written(Mapping::small(LEN));
    memory.protect(0, LEN, libc::PROT_READ);
    prefetch(fixture, &memory, Target::Device, PAGES, 0, to_device(PAGES));
    prefetch(fixture, &memory, Target::System, PAGES, 0, to_system(PAGES));
    assert_samples(&memory);
}

/// File pages and shared memory stay, and count in neither number.
fn prefetch_file(fixture: &Fixture) {
    need_private(fixture);
    let memory = written(Mapping::shared(LEN));
    prefetch(fixture, &memory, Target::Device, 0, 0, ZERO);
    prefetch(fixture, &memory, Target::System, 0, PAGES, ZERO);
    assert_samples(&memory);
}

/// After a prefetch a job finds its pages: faults fill the tables only, nothing moves.
fn prefetch_then_job_without_copies(fixture: &Fixture) {
    need_private(fixture);
    let mut memory = written(Mapping::small(LEN));
    prefetch(fixture, &memory, Target::Device, PAGES, 0, to_device(PAGES));
    let delta = fixture.counted(|| fixture.run(Task::scale(memory.slice_mut(), 1u64)));
    assert_eq!((delta.to_device(), delta.to_system(), delta.cpu_faults), (0, 0, 0));
    assert_samples(&memory);
}

fn prefetch_async(fixture: &Fixture) {
    need_private(fixture);
    let memory = written(Mapping::small(LEN));
    fixture.context.prefetch_async(memory.addr(), LEN, Target::Device).expect("prefetch");
    until_equal("pages on the device", &PAGES, || fixture.stats().device_pages);
    fixture.context.prefetch_async(memory.addr(), LEN, Target::System).expect("prefetch");
    until_equal("pages on the device", &0, || fixture.stats().device_pages);
    assert_samples(&memory);
}

/// One byte per page says where it is, and asking moves nothing.
fn residency_bytes(fixture: &Fixture) {
    need_private(fixture);
    let mut memory = Mapping::small(LEN);
    memory.slice_mut::<u8>()[..4 * PAGE_SIZE].fill(1);
    fixture.context.prefetch(memory.at(2 * PAGE_SIZE), 4 * PAGE_SIZE, Target::Device).expect("prefetch");
    fixture.expect(ZERO, || {
        let found = fixture.context.residency(memory.addr(), LEN).expect("residency");
        assert_eq!((found.system, found.device, found.none), (2, 4, PAGES - 6));
        let place = |page: usize| (found.pages[page].in_system(), found.pages[page].in_device());
        assert_eq!(
            [place(1), place(2), place(5), place(6)],
            [(true, false), (false, true), (false, true), (false, false)]
        );
        assert!(found.pages.iter().all(|page| !page.huge()));
    });
    let huge = written(Mapping::huge(HUGE_SIZE));
    fixture.context.prefetch(huge.addr(), HUGE_SIZE, Target::Device).expect("prefetch");
    let found = fixture.context.residency(huge.addr(), HUGE_SIZE).expect("residency");
    assert_eq!(found.device, 512);
    assert_eq!(found.pages.iter().all(|page| page.huge()), fixture.large());
}
