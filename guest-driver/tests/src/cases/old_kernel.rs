//! A kernel without DEVICE_PRIVATE: everything works, nothing moves.

use crate::fixture::Fixture;
use crate::memory::{write_samples, Mapping};
use crate::reference::{assert_same, samples, Number};
use crate::{Code, Test};
use libuma::{Target, Task, HUGE_SIZE};

const fn test(name: &'static str, run: fn(&Fixture)) -> Test {
    Test::in_group(name, "load-6.12", "kernel=6.12", Code::Fixture(run))
}

pub(super) const TESTS: &[Test] =
    &[test("jobs_in_place", jobs_in_place), test("prefetch_not_offered", prefetch_not_offered)];

fn jobs_in_place(fixture: &Fixture) {
    assert!(!fixture.private(), "this kernel can't move pages");
    let mut memory = Mapping::small(2 * HUGE_SIZE);
    write_samples(memory.slice_mut::<u64>());
    let delta = fixture.counted(|| fixture.run(Task::scale(memory.slice_mut(), 3u64)));
    assert_eq!((delta.to_device(), delta.to_system(), delta.mapped_in_place), (0, 0, 1024));
    let expected: Vec<u64> = samples(0, memory.len() / 8).into_iter().map(|value: u64| value.times(3)).collect();
    assert_same("memory", memory.slice::<u64>(), &expected);
}

fn prefetch_not_offered(fixture: &Fixture) {
    let memory = Mapping::small(HUGE_SIZE);
    let refused = fixture.context.prefetch(memory.addr(), HUGE_SIZE, Target::Device).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::EOPNOTSUPP));
    let back = fixture.context.prefetch(memory.addr(), HUGE_SIZE, Target::System).expect("to the system");
    assert_eq!((back.moved, back.resident), (0, 0));
}
