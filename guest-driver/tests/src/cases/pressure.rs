//! More memory in use than the device has.

use super::jobs::Endless;
use crate::fixture::Fixture;
use crate::memory::{write_samples, Mapping};
use crate::process::{fork, End, Gate};
use crate::reference::{assert_same, samples, Number};
use crate::{Code, Test};
use libuma::{Job, Status, Target, Task, HUGE_SIZE, PAGE_SIZE};
use std::sync::atomic::{AtomicBool, Ordering};

const fn test(name: &'static str, run: fn(&Fixture)) -> Test {
    Test::in_group(name, "small-memory", "memory=64M", Code::Fixture(run))
}

pub(super) const TESTS: &[Test] = &[
    test("evict_small_pages", |fixture| evict(fixture, Mapping::small(SET))),
    test("evict_huge_pages", |fixture| evict(fixture, Mapping::huge(SET))),
    test("evict_for_prefetch", evict_for_prefetch),
    test("evict_for_two_jobs", evict_for_two_jobs),
    test("evict_other_process", evict_other_process),
    test("evict_while_cpu_faults", evict_while_cpu_faults),
    test("evict_killed", evict_killed),
];

/// Twice the device's memory.
const SET: usize = 128 << 20;
const CAPACITY: u64 = (64 << 20) / PAGE_SIZE as u64;

#[track_caller]
fn assert_within_memory(fixture: &Fixture) {
    let info = fixture.device.query().expect("query");
    assert_eq!(info.device_bytes, 64 << 20, "the boot has the memory that the group needs");
    let used = fixture.device.stats().expect("stats").pages_used;
    assert!(used <= CAPACITY, "{used} pages of {CAPACITY} in use");
}

/// Two passes over twice the memory: everything is right, what came has gone or is there, and the job got on.
fn evict(fixture: &Fixture, mut memory: Mapping) {
    write_samples(memory.slice_mut::<u64>());
    let delta = fixture.counted(|| {
        for _ in 0..2 {
            fixture.run(Task::scale(memory.slice_mut(), 3u64));
        }
    });
    assert_within_memory(fixture);
    assert!(delta.to_system_evict >= memory.pages() - CAPACITY, "{} pages evicted", delta.to_system_evict);
    assert_eq!(delta.to_device() - delta.to_system(), delta.device_pages, "pages that came and did not go are there");
    assert_eq!(delta.faults_failed, 0);
    let expected: Vec<u64> = samples(0, memory.len() / 8).into_iter().map(|value: u64| value.times(9)).collect();
    assert_same("memory", memory.slice::<u64>(), &expected);
}

fn evict_for_prefetch(fixture: &Fixture) {
    let mut memory = Mapping::small(SET);
    write_samples(memory.slice_mut::<u64>());
    let moved = fixture.context.prefetch(memory.addr(), SET, Target::Device).expect("prefetch");
    let found = fixture.context.residency(memory.addr(), SET).expect("residency");
    assert!(moved.moved >= found.device, "{moved:?}, but {} pages are there", found.device);
    assert_eq!(found.device + found.system, memory.pages());
    assert!(found.device > CAPACITY / 2, "only {} pages are there", found.device);
    assert_within_memory(fixture);
    assert_same("memory", memory.slice::<u64>(), &samples(0, SET / 8));
}

/// Operands of one step that together do not fit beside another job's: both jobs end (F1).
fn evict_for_two_jobs(fixture: &Fixture) {
    let mut memory: Vec<Mapping> = (0..4).map(|_| Mapping::small(SET / 4)).collect();
    memory.iter_mut().for_each(|mapping| write_samples(mapping.slice_mut::<u64>()));
    let n = SET / 4 / 8;
    let at = |index: usize| memory[index].addr().cast::<u64>();
    let jobs = [(0, 1), (2, 3)].map(|(y, x)| fixture.submit(&Job::axpy(at(y), at(x), n, 2).stream(y as u32)));
    jobs.into_iter().for_each(|job| assert_eq!(fixture.wait(job).status, Status::Ok));
    let expected: Vec<u64> = samples(0, n).into_iter().map(|value: u64| value.times(3)).collect();
    assert_same("first", memory[0].slice::<u64>(), &expected);
    assert_same("second", memory[2].slice::<u64>(), &expected);
}

/// What one process has on the device gives way to another one, and is right when it looks again.
fn evict_other_process(fixture: &Fixture) {
    let mut memory = Mapping::huge(SET / 2);
    write_samples(memory.slice_mut::<u64>());
    fixture.run(Task::scale(memory.slice_mut(), 3u64));
    let child = fork(|| {
        let own = Fixture::open();
        let mut mine = Mapping::huge(SET / 2);
        own.run(Task::fill(mine.slice_mut(), 6u64));
        assert!(mine.slice::<u64>().iter().all(|value| *value == 6));
    });
    assert_eq!(child.wait(), End::Exit(0));
    let expected: Vec<u64> = samples(0, SET / 16).into_iter().map(|value: u64| value.times(3)).collect();
    assert_same("memory", memory.slice::<u64>(), &expected);
}

/// Threads take pages back while prefetches fill the device: every CPU fault is served.
fn evict_while_cpu_faults(fixture: &Fixture) {
    let memory = Mapping::small(SET);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for offset in (0..SET).step_by(8 * HUGE_SIZE) {
                    fixture.context.prefetch(memory.at(offset), 8 * HUGE_SIZE, Target::Device).expect("prefetch");
                }
            }
        });
        let workers: Vec<_> = (0..8usize)
            .map(|worker| {
                let memory = &memory;
                threads.spawn(move || {
                    for round in 1..=3u64 {
                        for slot in memory.atomics().iter().skip(worker * 64).step_by(PAGE_SIZE * 16 / 8) {
                            assert_eq!(slot.fetch_add(1, Ordering::Relaxed) + 1, round);
                        }
                    }
                })
            })
            .collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok), "a worker lost a count");
    });
}

/// SIGKILL works in the middle of it.
fn evict_killed(fixture: &Fixture) {
    let started = Gate::new();
    let child = fork(|| {
        let own = Fixture::open();
        let (memory, endless) = (Mapping::small(SET), Endless::new());
        own.submit(&endless.job().stream(1));
        for stream in 2..6 {
            own.submit(&Job::fill(memory.addr().cast(), SET / 8, 1u64).stream(stream));
        }
        started.open();
        loop {
            own.context.prefetch(memory.addr(), SET, Target::Device).expect("prefetch");
        }
    });
    started.wait();
    child.kill(libc::SIGKILL);
    assert_eq!(child.wait(), End::Signal(libc::SIGKILL));
    fixture.run(Task::nop());
}
