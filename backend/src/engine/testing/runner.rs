//! Runs a job to its end with interruptions.

use super::memory::{Asked, FakeMemory, FakeView, Interrupt};
use crate::engine::fixed::{Cursor, FixedEngine};
use crate::engine::{Engine, Outcome, Work};
use uma_protocol::fault::FaultCause;
use uma_protocol::kernel::JobRequest;
use zerocopy::{FromBytes, IntoBytes};

/// How one run is to be interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub interrupt: Interrupt,
    pub fuel: u32,
}

impl Plan {
    pub const NONE: Self = Self { interrupt: Interrupt { fault_at: None, leave_at: None }, fuel: u32::MAX };

    pub const fn fault_at(translation: u64) -> Self {
        Self { interrupt: Interrupt { fault_at: Some(translation), leave_at: None }, ..Self::NONE }
    }

    pub const fn leave_at(look: u64) -> Self {
        Self { interrupt: Interrupt { fault_at: None, leave_at: Some(look) }, ..Self::NONE }
    }

    pub const fn fuel(fuel: u32) -> Self {
        Self { fuel, ..Self::NONE }
    }
}

/// What a whole job did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub outcome: Outcome,
    pub work: Work,
    pub bytes: Vec<u8>,
}

/// What a job asked of its views, over all runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub runs: u64,
    pub looks: u64,
    pub asked: Vec<Asked>,
}

/// Runs the job; `plan` is asked before each run, with the run's number and what has been done. After each interruption
/// every page lies elsewhere, and the cursor has been stored and loaded as bytes.
pub(crate) fn run(
    job: &JobRequest,
    memory: &mut FakeMemory,
    mut plan: impl FnMut(u64, &Work) -> Plan,
) -> (Finished, Trace) {
    let (mut cursor, mut work, mut trace) = (FixedEngine.start(job), Work::default(), Trace::default());
    loop {
        let Plan { interrupt, fuel } = plan(trace.runs, &work);
        let before = interrupt.fault_at.map(|_| (memory.bytes(), cursor, work));
        let view = FakeView::new(memory, interrupt);
        let outcome = FixedEngine.step(&view, job, &mut cursor, fuel, &mut work);
        let looks = view.looks();
        trace.asked.extend(view.asked());
        trace.runs += 1;
        trace.looks += looks;
        match outcome {
            Outcome::Fault(fault) if fault.cause == FaultCause::NotPresent => {
                let before = before.expect("nobody made a page absent");
                if work.steps == before.2.steps {
                    assert!((memory.bytes(), cursor, work) == before, "a step that faults does nothing");
                }
            }
            Outcome::Yield => assert!(fuel < u32::MAX || interrupt.leave_at.is_some_and(|look| look < looks)),
            _ => return (Finished { outcome, work, bytes: memory.bytes() }, trace),
        }
        memory.move_all();
        cursor = Cursor::read_from_bytes(cursor.as_bytes()).unwrap();
        assert!(trace.runs < 1_000_000, "no progress");
    }
}
