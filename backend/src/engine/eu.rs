//! The thread of an execution unit.

use super::sched::{Next, SliceEnd, Task};
use super::{Engine, Outcome};
use crate::device::state::Core;
use crate::mmu::{EuMmu, Refusal};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Steps inside one section at most: 256 · 4 KiB is some 120 µs. Whoever waits for the section does not wait for them:
/// the engine asks `must_leave` between two steps.
const FUEL: u32 = 256;
/// Time that a job keeps its EU while others wait.
const SLICE: Duration = Duration::from_millis(2);

/// Runs jobs until the device ends.
pub(crate) fn run<E>(core: &Arc<Core>, eu: u32, engine: &E)
where
    E: Engine<Cursor = super::fixed::Cursor>,
{
    let max_asids = core.limits.max_asids;
    let mut mmu = EuMmu::new(eu, core.memory.clone(), core.backing.clone(), core.gates.clone(), max_asids);
    core.add_mmu(mmu.counters());
    loop {
        match core.next_task(eu, mmu.generation()) {
            Next::Exit => return,
            Next::Refresh => mmu.refresh(),
            Next::Run(mut task) => {
                let begin = Instant::now();
                let end = catch_unwind(AssertUnwindSafe(|| slice(&mut mmu, engine, &mut task, begin)));
                match end {
                    Ok(end) => core.finish_slice(&task, end, begin.elapsed()),
                    Err(_) => core.lose(&mut core.lock(), "an execution unit panicked"),
                }
            }
        }
    }
}

/// Runs a job until it ends, faults, is to stop, or has had its time.
fn slice<E>(mmu: &mut EuMmu, engine: &E, task: &mut Task, begin: Instant) -> SliceEnd
where
    E: Engine<Cursor = super::fixed::Cursor>,
{
    loop {
        let outcome = match mmu.enter(&task.space, &task.stop) {
            Ok(section) => engine.step(&section, &task.request, &mut task.cursor, FUEL, &mut task.work),
            Err(Refusal::Gone) => return SliceEnd::Gone,
            Err(Refusal::Parked) => return SliceEnd::Parked,
        };
        let go_on = outcome == Outcome::Yield && !task.stop.load(Ordering::Relaxed) && begin.elapsed() < SLICE;
        if !go_on {
            return SliceEnd::Engine(outcome);
        }
    }
}
