//! CPU and device on the same memory.

use crate::fixture::Fixture;
use crate::memory::Mapping;
use crate::Test;
use libuma::{Job, Stats, Status, Task, HUGE_SIZE, PAGE_SIZE};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::access::ZERO;

pub(super) const TESTS: &[Test] = &[
    Test::shared("alternating", alternating),
    Test::shared("alternating_huge", alternating_huge),
    Test::shared("atomics_on_one_word", atomics_on_one_word),
    Test::shared("atomics_on_many_pages", atomics_on_many_pages),
    Test::shared("atomics_while_pages_move", atomics_while_pages_move),
    Test::shared("munmap_under_two_submitters", munmap_under_two_submitters),
    Test::shared("dontneed_between_jobs", dontneed_between_jobs),
];

const ROUNDS: u64 = 8;

/// CPU and device add one in turn; each round moves every page once each way.
fn alternate(fixture: &Fixture, mut memory: Mapping, huge: u64) {
    let (pages, blocks) = (memory.pages(), memory.len().div_ceil(HUGE_SIZE) as u64);
    let mut ones = Mapping::small(memory.len());
    ones.slice_mut::<u64>().fill(1);
    fixture.run(Task::fill(ones.slice_mut::<u64>(), 1)); // on the device, where they stay
    memory.slice_mut::<u64>().fill(0);
    fixture.run(Task::axpy(memory.slice_mut::<u64>(), ones.slice(), 1).expect("same length"));
    memory.slice_mut::<u64>().iter_mut().for_each(|value| *value += 1);
    let round = Stats {
        faults: blocks,
        to_device_fault: pages,
        huge_to_device: huge,
        cpu_faults: blocks,
        to_system_cpu: pages,
        huge_to_system: huge,
        jobs: 1,
        jobs_ended: 1,
        ..ZERO
    };
    for _ in 1..ROUNDS {
        fixture.expect(round, || {
            fixture.run(Task::axpy(memory.slice_mut::<u64>(), ones.slice(), 1).expect("same length"));
            memory.slice_mut::<u64>().iter_mut().for_each(|value| *value += 1);
        });
    }
    assert!(memory.slice::<u64>().iter().all(|value| *value == 2 * ROUNDS));
}

fn alternating(fixture: &Fixture) {
    alternate(fixture, Mapping::small(2 * HUGE_SIZE), 0);
}

fn alternating_huge(fixture: &Fixture) {
    alternate(fixture, Mapping::huge(2 * HUGE_SIZE), if fixture.large() { 2 } else { 0 });
}

/// Two CPU threads and two jobs add to the same words at the same time; nothing is lost.
fn count_together(fixture: &Fixture, slots: &[AtomicU64], ops: u64) {
    fixture.context.scope(|scope| {
        let jobs =
            [1, 2].map(|stream| scope.submit(Task::atomic_add(slots, ops, 1, 0).stream(stream)).expect("submit"));
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    for op in 0..ops as usize {
                        slots[op % slots.len()].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        for job in jobs {
            job.wait().expect("job");
        }
    });
    let total: u64 = slots.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
    assert_eq!(total, 4 * ops);
}

fn atomics_on_one_word(fixture: &Fixture) {
    let memory = Mapping::small(8);
    count_together(fixture, &memory.atomics()[..1], 20_000);
}

fn atomics_on_many_pages(fixture: &Fixture) {
    let memory = Mapping::small(16 * PAGE_SIZE);
    count_together(fixture, memory.atomics(), 20_000);
}

/// The same while a third thread moves the pages to and fro.
fn atomics_while_pages_move(fixture: &Fixture) {
    let memory = Mapping::small(8 * PAGE_SIZE);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for target in [libuma::Target::Device, libuma::Target::System] {
                    match fixture.context.prefetch(memory.addr(), memory.len(), target) {
                        Ok(moved) => assert!(moved.moved + moved.resident <= memory.pages()),
                        Err(error) => assert_eq!(error.errno(), Some(libc::EOPNOTSUPP)),
                    }
                }
            }
        });
        let context = fixture.device.context().expect("context"); // a second one on the same memory
        let ops = 20_000;
        context.scope(|scope| {
            let job = scope.submit(Task::atomic_add(memory.atomics(), ops, 1, 7)).expect("submit");
            for op in 0..ops as usize {
                memory.atomics()[op % 4096].fetch_add(1, Ordering::Relaxed);
            }
            job.wait().expect("job");
        });
        done.store(true, Ordering::Relaxed);
        let total: u64 = memory.atomics().iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
        assert_eq!(total, 2 * ops);
    });
}

/// Two threads submit on memory that a third keeps unmapping and mapping anew: each job ends well or with a fault, and
/// no write of a job lands in memory that was mapped after the job ended.
fn munmap_under_two_submitters(fixture: &Fixture) {
    const ROUNDS: usize = 60;
    let memory = Mapping::small(2 * HUGE_SIZE);
    let half = memory.len() / 2;
    std::thread::scope(|threads| {
        let mut workers = Vec::new();
        for worker in 0..2 {
            let start = memory.at(worker * half).cast::<u64>();
            let job = Job::fill(start, half / 8, worker as u64 + 1);
            let address = start as usize;
            workers.push(threads.spawn(move || {
                let mut ends = [0; 2];
                for _ in 0..ROUNDS {
                    let status = fixture.run_raw(&job).status;
                    assert!(matches!(status, Status::Ok | Status::Fault), "{status:?} at {address:#x}");
                    ends[usize::from(status == Status::Fault)] += 1;
                }
                ends
            }));
        }
        while workers.iter().any(|worker| !worker.is_finished()) {
            memory.unmap(half / 2, half);
            memory.fill_hole(half / 2, half);
        }
        let ends: Vec<[i32; 2]> = workers.into_iter().map(|worker| worker.join().expect("worker")).collect();
        assert_eq!(ends.iter().flatten().sum::<i32>(), 2 * ROUNDS as i32);
    });
    memory.remap_fresh(0, memory.len());
    assert!(memory.slice::<u64>().iter().all(|value| *value == 0), "fresh memory is empty");
}

/// Memory that the process gave back reads as zero to the device as well, wherever it was.
fn dontneed_between_jobs(fixture: &Fixture) {
    let (mut memory, mut total) = (Mapping::small(HUGE_SIZE), Mapping::small(8));
    fixture.run(Task::fill(memory.slice_mut(), 1u64));
    memory.madvise_part(PAGE_SIZE, 2 * PAGE_SIZE, libc::MADV_DONTNEED);
    fixture.run(Task::reduce(&mut total.slice_mut::<u64>()[0], memory.slice()));
    assert_eq!(total.slice::<u64>()[0], (HUGE_SIZE - 2 * PAGE_SIZE) as u64 / 8);
}
