//! More than one process: fork, inherited descriptors, death.

use super::jobs::Endless;
use crate::fixture::{until_equal, Balance, Fixture};
use crate::memory::{write_samples, Mapping};
use crate::process::{fork, End, Gate};
use crate::reference::{assert_same, samples, Number};
use crate::Test;
use libuma::{Device, Job, Status, Task, HUGE_SIZE, PAGE_SIZE};

pub(super) const TESTS: &[Test] = &[
    Test::shared("two_processes", two_processes),
    Test::shared("fork_parent_writes_first", fork_parent_writes_first),
    Test::shared("fork_child_writes_first", fork_child_writes_first),
    Test::shared("fork_device_writes_for_parent", fork_device_writes_for_parent),
    Test::shared("fork_child_has_own_context", fork_child_has_own_context),
    Test::shared("fork_inherited_context", fork_inherited_context),
    Test::shared("killed_mid_job", killed_mid_job),
    Test::shared("killed_while_waiting_for_a_fault", killed_while_waiting_for_a_fault),
    Test::shared("exec_ends_context", exec_ends_context),
];

fn own_fixture_scales(salt: u64) {
    let fixture = Fixture::open();
    let mut memory = Mapping::small(2 * HUGE_SIZE);
    write_samples(memory.slice_mut::<u64>());
    for _ in 0..3 {
        fixture.run(Task::scale(memory.slice_mut(), salt));
    }
    let expected: Vec<u64> =
        samples(0, memory.len() / 8).into_iter().map(|v: u64| v.times(salt * salt * salt)).collect();
    assert_same("own memory", memory.slice::<u64>(), &expected);
}

/// Two processes with equal addresses and different contents at the same time.
fn two_processes(_fixture: &Fixture) {
    let children = [3, 5].map(|salt| fork(|| own_fixture_scales(salt)));
    children.into_iter().for_each(|child| assert_eq!(child.wait(), End::Exit(0)));
}

/// Memory of samples that lies on the device.
fn on_device(fixture: &Fixture) -> Mapping {
    let mut memory = Mapping::small(2 * HUGE_SIZE);
    write_samples(memory.slice_mut::<u64>());
    fixture.run(Task::scale(memory.slice_mut(), 3u64));
    memory
}

fn tripled(memory: &Mapping) -> Vec<u64> {
    samples(0, memory.len() / 8).into_iter().map(|value: u64| value.times(3)).collect()
}

/// The parent changes its copy of device pages; the child still sees what was there at the fork, and the other way round.
fn fork_parent_writes_first(fixture: &Fixture) {
    let mut memory = on_device(fixture);
    let (written, expected) = (Gate::new(), tripled(&memory));
    let child = fork(|| {
        written.wait();
        assert_same("child's memory", memory.slice::<u64>(), &expected);
    });
    memory.slice_mut::<u64>().iter_mut().step_by(700).for_each(|value| *value = 1);
    written.open();
    assert_eq!(child.wait(), End::Exit(0));
    let expected: Vec<u64> = expected.into_iter().enumerate().map(|(i, v)| if i % 700 == 0 { 1 } else { v }).collect();
    assert_same("parent's memory", memory.slice::<u64>(), &expected);
}

fn fork_child_writes_first(fixture: &Fixture) {
    let mut memory = on_device(fixture);
    let expected = tripled(&memory);
    let child = fork(|| {
        memory.slice_mut::<u64>().iter_mut().step_by(700).for_each(|value| *value = 1);
        let mine = expected.iter().enumerate().map(|(i, v)| if i % 700 == 0 { 1 } else { *v });
        assert_same("child's memory", memory.slice::<u64>(), &mine.collect::<Vec<u64>>());
    });
    assert_eq!(child.wait(), End::Exit(0));
    assert_same("parent's memory", memory.slice::<u64>(), &expected);
}

/// The device writes for the parent after the fork: the child's copy stays as it was.
fn fork_device_writes_for_parent(fixture: &Fixture) {
    let mut memory = on_device(fixture);
    let (written, expected) = (Gate::new(), tripled(&memory));
    let child = fork(|| {
        written.wait();
        assert_same("child's memory", memory.slice::<u64>(), &expected);
    });
    fixture.run(Task::fill(memory.slice_mut(), 8u64));
    written.open();
    assert_eq!(child.wait(), End::Exit(0));
    assert!(memory.slice::<u64>().iter().all(|value| *value == 8));
}

/// The child's own jobs work on the child's copy.
fn fork_child_has_own_context(fixture: &Fixture) {
    let mut memory = on_device(fixture);
    let expected = tripled(&memory);
    let child = fork(|| {
        let context = Device::open(crate::DEVICE).and_then(|device| device.context()).expect("context");
        context.run(Task::scale(memory.slice_mut(), 5u64)).expect("job");
        let mine: Vec<u64> = expected.iter().map(|value| value.times(5)).collect();
        assert_same("child's memory", memory.slice::<u64>(), &mine);
    });
    assert_eq!(child.wait(), End::Exit(0));
    assert_same("parent's memory", memory.slice::<u64>(), &expected);
}

/// Calls of a child on its parent's context are refused, and the parent's jobs go on.
fn fork_inherited_context(fixture: &Fixture) {
    let mut memory = Mapping::small(PAGE_SIZE);
    let child = fork(|| {
        let context = &fixture.context;
        let errors = [
            // SAFETY: refused, so no job runs; it would have no operands.
            unsafe { context.submit(&Job::nop()) }.map(drop),
            context.wait(libuma::JobId(1)).map(drop),
            context.cancel(libuma::JobId(1)),
            context.advise(memory.addr(), PAGE_SIZE, libuma::Advice::None),
            context.prefetch(memory.addr(), PAGE_SIZE, libuma::Target::System).map(drop),
            context.residency(memory.addr(), PAGE_SIZE).map(drop),
        ];
        for (call, error) in errors.into_iter().enumerate() {
            assert_eq!(error.unwrap_err().errno(), Some(libc::EXDEV), "call {call}");
        }
    });
    assert_eq!(child.wait(), End::Exit(0));
    fixture.run(Task::fill(memory.slice_mut(), 1u8));
}

/// SIGKILL in the middle of a job: the process goes at once, and everything that it had on the device with it.
fn killed_mid_job(fixture: &Fixture) {
    let submitted = Gate::new();
    let before = Balance::now(&fixture.device);
    let child = fork(|| {
        let own = Fixture::open();
        let (_memory, endless) = (on_device(&own), Endless::new());
        let job = own.submit(&endless.job());
        submitted.open();
        own.context.wait(job).expect("never ends");
    });
    submitted.wait();
    child.kill(libc::SIGKILL);
    assert_eq!(child.wait(), End::Signal(libc::SIGKILL));
    until_equal("balance", &before, || Balance::now(&fixture.device));
    fixture.run(Task::nop());
}

/// The same while the device faults without end on memory that keeps going.
fn killed_while_waiting_for_a_fault(fixture: &Fixture) {
    let submitted = Gate::new();
    let before = Balance::now(&fixture.device);
    for _ in 0..5 {
        let child = fork(|| {
            let own = Fixture::open();
            let memory = Mapping::small(8 * HUGE_SIZE);
            let n = memory.len() / 8;
            for stream in 0..4 {
                own.submit(&Job::fill(memory.addr().cast(), n, 1u64).stream(stream));
            }
            submitted.open();
            loop {
                memory.madvise(libc::MADV_DONTNEED);
            }
        });
        submitted.wait();
        child.kill(libc::SIGKILL);
        assert_eq!(child.wait(), End::Signal(libc::SIGKILL));
    }
    until_equal("balance", &before, || Balance::now(&fixture.device));
    fixture.run(Task::nop());
}

/// exec closes the context (descriptors are close-on-exec) and gives its memory back, jobs running or not.
fn exec_ends_context(fixture: &Fixture) {
    use std::os::unix::process::CommandExt;
    let before = Balance::now(&fixture.device);
    let child = fork(|| {
        let own = Fixture::open();
        let (_memory, endless) = (on_device(&own), Endless::new());
        own.submit(&endless.job());
        let error =
            std::process::Command::new("/proc/self/exe").arg("--list").stdout(std::process::Stdio::null()).exec();
        panic!("exec: {error}");
    });
    assert_eq!(child.wait(), End::Exit(0));
    until_equal("balance", &before, || Balance::now(&fixture.device));
    assert_eq!(fixture.run_raw(&Job::nop()).status, Status::Ok);
}
