//! Advice changes where pages go, never what is computed.

use super::access::ZERO;
use crate::fixture::Fixture;
use crate::memory::{write_samples, Mapping};
use crate::reference::{assert_same, samples, sum, Number};
use crate::runner::skip;
use crate::Test;
use libuma::{Advice, Stats, Task, HUGE_SIZE};

pub(super) const TESTS: &[Test] = &[
    Test::shared("advice_prefer_system", prefer_system),
    Test::shared("advice_prefer_device", prefer_device),
    Test::shared("advice_read_mostly", read_mostly),
    Test::shared("advice_none", none),
    Test::shared("advice_on_part_of_a_block", part_of_a_block),
    Test::shared("advice_ranges_limit", ranges_limit),
];

const LEN: usize = 2 * HUGE_SIZE;
const PAGES: u64 = 1024;

fn written(fixture: &Fixture) -> Mapping {
    if !fixture.private() {
        skip("this kernel can't move pages to the device");
    }
    let mut memory = Mapping::small(LEN);
    write_samples(memory.slice_mut::<u64>());
    memory
}

fn advise(fixture: &Fixture, memory: &Mapping, advice: Advice) {
    fixture.expect(ZERO, || fixture.context.advise(memory.addr(), memory.len(), advice).expect("advise"));
}

fn triple(fixture: &Fixture, memory: &mut Mapping) -> Stats {
    let delta = fixture.counted(|| fixture.run(Task::scale(memory.slice_mut(), 3u64)));
    let expected: Vec<u64> = samples(0, memory.len() / 8).into_iter().map(|value: u64| value.times(3)).collect();
    assert_same("memory", memory.slice::<u64>(), &expected);
    delta
}

/// Nothing moves on a fault.
fn prefer_system(fixture: &Fixture) {
    let mut memory = written(fixture);
    advise(fixture, &memory, Advice::PreferSystem);
    let delta = triple(fixture, &mut memory);
    assert_eq!((delta.to_device(), delta.to_system(), delta.mapped_in_place), (0, 0, PAGES));
}

fn prefer_device(fixture: &Fixture) {
    let mut memory = written(fixture);
    advise(fixture, &memory, Advice::PreferDevice);
    assert_eq!(triple(fixture, &mut memory).to_device_fault, PAGES);
}

/// Reads leave the pages where they are, a write moves them.
fn read_mostly(fixture: &Fixture) {
    let (mut memory, mut total) = (written(fixture), Mapping::small(8));
    advise(fixture, &memory, Advice::ReadMostly);
    advise(fixture, &total, Advice::PreferSystem);
    let reads = fixture.counted(|| fixture.run(Task::reduce(&mut total.slice_mut::<u64>()[0], memory.slice())));
    assert_eq!(total.slice::<u64>()[0], sum(samples::<u64>(0, LEN / 8).into_iter()));
    assert_eq!((reads.to_device(), reads.mapped_in_place), (0, PAGES + 1));
    assert_eq!(triple(fixture, &mut memory).to_device_fault, PAGES);
}

/// Forgotten advice has no effect.
fn none(fixture: &Fixture) {
    let mut memory = written(fixture);
    advise(fixture, &memory, Advice::PreferSystem);
    advise(fixture, &memory, Advice::None);
    assert_eq!(triple(fixture, &mut memory).to_device_fault, PAGES);
}

/// Advice on a quarter of a block holds for that quarter.
fn part_of_a_block(fixture: &Fixture) {
    let mut memory = written(fixture);
    fixture.context.advise(memory.at(HUGE_SIZE / 4), HUGE_SIZE / 4, Advice::PreferSystem).expect("advise");
    let delta = fixture.counted(|| fixture.run(Task::scale(memory.slice_mut(), 3u64)));
    assert_eq!((delta.to_device_fault, delta.mapped_in_place), (PAGES - 128, 128));
    let found = fixture.context.residency(memory.addr(), LEN).expect("residency");
    assert_eq!((found.device, found.system), (PAGES - 128, 128));
}

/// ENOSPC when there are too many different ranges, and what was said before still holds.
fn ranges_limit(fixture: &Fixture) {
    let memory = Mapping::small(256 << 20);
    let mut said = 0;
    for page in (0..memory.pages() as usize).step_by(2) {
        match fixture.context.advise(memory.at(page * libuma::PAGE_SIZE), libuma::PAGE_SIZE, Advice::PreferSystem) {
            Ok(()) => said += 1,
            Err(error) => {
                assert_eq!(error.errno(), Some(libc::ENOSPC));
                break;
            }
        }
    }
    assert!((16..memory.pages() / 2).contains(&said), "{said} ranges were accepted");
    fixture.context.advise(memory.addr(), memory.len(), Advice::None).expect("forgetting all is always possible");
    fixture.context.advise(memory.addr(), memory.len(), Advice::ReadMostly).expect("and makes room");
}
