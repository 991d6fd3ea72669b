//! munmap, mremap, mprotect on memory that lies on the device: contents and order stay, what is unmapped is freed.

use crate::fixture::{until_equal, Fixture};
use crate::memory::{write_samples, Mapping};
use crate::reference::{assert_same, samples, Number};
use crate::Test;
use libuma::{Task, HUGE_SIZE, PAGE_SIZE};

pub(super) const TESTS: &[Test] = &[
    Test::shared("munmap_part_of_small_pages", |fixture| munmap_part(fixture, Mapping::small(LEN), false)),
    Test::shared("munmap_part_of_huge_pages", |fixture| munmap_part(fixture, Mapping::huge(LEN), true)),
    Test::shared("mremap_whole_huge_pages", |fixture| mremap(fixture, 0, LEN, false)),
    Test::shared("mremap_part_of_huge_page", |fixture| mremap(fixture, 100 * PAGE_SIZE, 30 * PAGE_SIZE, false)),
    Test::shared("mremap_across_huge_pages", |fixture| {
        mremap(fixture, HUGE_SIZE - 5 * PAGE_SIZE, 11 * PAGE_SIZE, false)
    }),
    Test::shared("mremap_dontunmap_huge_pages", |fixture| mremap(fixture, 0, LEN, true)),
    Test::shared("mremap_dontunmap_part", |fixture| mremap(fixture, 100 * PAGE_SIZE, 30 * PAGE_SIZE, true)),
    Test::shared("mprotect_part_of_huge_page", mprotect_part),
    Test::shared("dontneed_part_of_huge_page", dontneed_part),
];

const LEN: usize = 2 * HUGE_SIZE;
const PAGES: u64 = 1024;

/// Memory on the device that holds samples times three.
fn fill_device(fixture: &Fixture, memory: &mut Mapping) -> Vec<u64> {
    write_samples(memory.slice_mut::<u64>());
    fixture.run(Task::scale(memory.slice_mut(), 3u64));
    samples(0, memory.len() / 8).into_iter().map(|value: u64| value.times(3)).collect()
}

/// Words of a part that is mapped.
fn words(memory: &Mapping, offset: usize, len: usize) -> &[u64] {
    // SAFETY: callers name parts that are mapped and that nothing writes while the slice is used.
    unsafe { std::slice::from_raw_parts(memory.at(offset).cast(), len / 8) }
}

/// The rest stays on the device, the part is freed (F4). Of a 2 MiB folio the kernel frees nothing before its last page is
/// unmapped.
fn munmap_part(fixture: &Fixture, mut memory: Mapping, huge: bool) {
    let expected = fill_device(fixture, &mut memory);
    let on_device = fixture.stats().device_pages;
    let (from, len) = (HUGE_SIZE - 7 * PAGE_SIZE, 20 * PAGE_SIZE);
    let delta = fixture.counted(|| memory.unmap(from, len));
    assert_eq!((delta.to_system(), delta.cpu_faults), (0, 0), "nothing was brought back");
    if fixture.private() {
        assert_eq!(on_device, PAGES);
        let kept = if huge && fixture.large() { PAGES } else { PAGES - 20 };
        until_equal("device pages", &kept, || fixture.stats().device_pages);
        let found = fixture.context.residency(memory.addr(), from).expect("residency");
        assert_eq!(found.device as usize, from / PAGE_SIZE);
    }
    assert_same("before the hole", words(&memory, 0, from), &expected[..from / 8]);
    let behind = from + len;
    assert_same("behind the hole", words(&memory, behind, LEN - behind), &expected[behind / 8..]);
}

/// Contents and order are kept, the device finds them at the new address, and the old one is empty or gone (F5).
fn mremap(fixture: &Fixture, from: usize, len: usize, keep: bool) {
    let mut memory = Mapping::huge(LEN);
    let expected = fill_device(fixture, &mut memory);
    let mut target = Mapping::small(len);
    memory.move_part(from, len, &target, keep);
    fixture.run(Task::scale(target.slice_mut(), 7u64));
    let moved: Vec<u64> = expected[from / 8..(from + len) / 8].iter().map(|value| value.times(7)).collect();
    assert_same("moved part", target.slice::<u64>(), &moved);
    assert_same("before it", words(&memory, 0, from), &expected[..from / 8]);
    assert_same("behind it", words(&memory, from + len, LEN - from - len), &expected[(from + len) / 8..]);
    if keep {
        assert!(words(&memory, from, len).iter().all(|value| *value == 0), "what was moved away reads as zero");
    }
}

fn mprotect_part(fixture: &Fixture) {
    let mut memory = Mapping::huge(LEN);
    let expected = fill_device(fixture, &mut memory);
    memory.protect(50 * PAGE_SIZE, PAGE_SIZE, libc::PROT_READ);
    let job = libuma::Job::fill(memory.addr(), LEN, 1u8);
    let end = fixture.run_raw(&job);
    assert_eq!(end.fault.expect("a fault").va, memory.at(50 * PAGE_SIZE) as u64);
    assert!(memory.slice::<u8>()[..50 * PAGE_SIZE].iter().all(|value| *value == 1));
    assert_same("the rest", &memory.slice::<u64>()[50 * 512..], &expected[50 * 512..]);
}

fn dontneed_part(fixture: &Fixture) {
    let mut memory = Mapping::huge(LEN);
    let mut expected = fill_device(fixture, &mut memory);
    memory.madvise_part(300 * PAGE_SIZE, 3 * PAGE_SIZE, libc::MADV_DONTNEED);
    expected[300 * 512..303 * 512].fill(0);
    assert_same("memory", memory.slice::<u64>(), &expected);
}
