//! Which job an EU runs next, and what becomes of it afterwards.

use super::fixed::Cursor;
use super::{Outcome, Work};
use crate::device::context::JobKey;
use crate::device::faults::Filed;
use crate::device::jobs::Phase;
use crate::device::state::{Core, State};
use crate::mmu::AddressSpace;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use uma_protocol::kernel::JobRequest;
use uma_protocol::Status;

/// A job while an EU has it.
pub(crate) struct Task {
    pub key: JobKey,
    pub space: Arc<AddressSpace>,
    pub request: JobRequest,
    pub cursor: Cursor,
    pub work: Work,
    pub stop: Arc<AtomicBool>,
}

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceEnd {
    /// As the engine said.
    Engine(Outcome),
    /// The address space is dead.
    Gone,
    /// The device keeps EUs out.
    Parked,
}

/// What an EU does next.
#[expect(clippy::large_enum_variant, reason = "moved once per slice; a box would allocate each time")]
pub(crate) enum Next {
    /// Run this.
    Run(Task),
    /// Look again at memory and the sync page.
    Refresh,
    /// End.
    Exit,
}

impl Core {
    /// Waits for something to do. `generation` is what the EU's MMU knows of memory and sync page.
    pub(crate) fn next_task(&self, eu: u32, generation: u64) -> Next {
        let mut state = self.lock();
        loop {
            if state.exit {
                return Next::Exit;
            }
            if self.gates.generation() != generation {
                return Next::Refresh;
            }
            if state.running && !state.lost {
                if let Some(task) = take_ready(&mut state, eu) {
                    return Next::Run(task);
                }
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes a job back from its EU.
    pub(crate) fn finish_slice(&self, task: &Task, end: SliceEnd, spent: Duration) {
        let mut state = self.lock();
        let state = &mut *state;
        // A reset may have taken the job away meanwhile.
        let Some(job) = state.jobs.get_mut(&task.key) else { return };
        let steps = task.work.steps - job.work.steps;
        state.counters.steps += steps;
        state.counters.bytes_system += task.work.bytes_system - job.work.bytes_system;
        state.counters.bytes_local += task.work.bytes_local - job.work.bytes_local;
        job.cursor = task.cursor;
        job.work = task.work;
        job.device_ns += spent.as_nanos() as u64;
        job.phase = Phase::Blocked;
        let ending = job.ending.take();
        match (end, ending) {
            (SliceEnd::Engine(Outcome::Done(result)), _) => {
                job.result = result;
                self.end_job(state, task.key, Status::Ok);
            }
            (_, Some(status)) => self.end_job(state, task.key, status),
            (SliceEnd::Gone, None) => self.end_job(state, task.key, Status::AsidGone),
            (SliceEnd::Engine(Outcome::Trap(status)), None) => self.end_job(state, task.key, status),
            (SliceEnd::Engine(Outcome::Yield) | SliceEnd::Parked, None) => self.make_ready(state, task.key),
            (SliceEnd::Engine(Outcome::Fault(fault)), None) => {
                job.fault = Some(fault);
                if !fault.cause.is_serviceable() {
                    return self.end_job(state, task.key, Status::Fault);
                }
                job.phase = Phase::Faulted;
                job.faults += 1;
                self.file_fault(state, task.key);
            }
        }
    }

    fn file_fault(&self, state: &mut State, key: JobKey) {
        let Some(job) = state.jobs.get(&key) else { return };
        let Some(fault) = job.fault else { return };
        let header = job.request.header;
        let counters = &mut state.counters;
        match state.faults.file(header.asid, &fault, key, header.id, job.eu) {
            Filed::New => counters.faults += 1,
            Filed::Joined => counters.faults_coalesced += 1,
            Filed::Overflow => counters.faults_overflowed += 1,
        }
        state.deliver_faults(self.limits.max_fault_records);
    }
}

fn take_ready(state: &mut State, eu: u32) -> Option<Task> {
    for priority in (0..state.ready.len()).rev() {
        while let Some(key) = state.ready[priority].pop_front() {
            let Some(job) = state.jobs.get(&key).filter(|job| job.phase == Phase::Ready) else { continue };
            let handle = job.request.header.asid;
            let Some(space) = Core::space_of(state, handle) else { continue };
            let Some(job) = state.jobs.get_mut(&key) else { continue };
            job.phase = Phase::Running;
            job.eu = eu;
            return Some(Task {
                key,
                space,
                request: job.request,
                cursor: job.cursor,
                work: job.work,
                stop: job.stop.clone(),
            });
        }
    }
    None
}
