//! Jobs: streams, fences, deadlines, ends (SPEC.md §8).

use super::context::{Context, JobKey, Waiter};
use super::state::{Core, State};
use super::Ticket;
use crate::engine::fixed::Cursor;
use crate::engine::Work;
use crate::mmu::{AddressSpace, Fault};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;
use uma_protocol::kernel::{JobReply, JobRequest};
use uma_protocol::reply::ReplyHeader;
use uma_protocol::{AsidHandle, Status};
use zerocopy::IntoBytes;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Behind another job of its stream, or before its fence.
    Blocked,
    /// In a ready queue.
    Ready,
    /// On an EU.
    Running,
    /// Waits for a fault response, or for room in the fault table.
    Faulted,
}

/// A job in flight. But for `stop` it is plain data.
pub struct Job {
    pub ticket: Ticket,
    pub request: JobRequest,
    pub cursor: Cursor,
    pub work: Work,
    pub faults: u64,
    pub device_ns: u64,
    pub deadline: Option<Instant>,
    pub phase: Phase,
    /// The fault that it waits for, or that ended it.
    pub fault: Option<Fault>,
    /// How the driver answered that fault.
    pub fault_result: u16,
    pub eu: u32,
    pub result: u64,
    /// Set when the job must end although an EU has it: the EU ends it when it comes back.
    pub ending: Option<Status>,
    /// Makes the EU come back.
    pub stop: Arc<AtomicBool>,
}

impl Job {
    fn reply(&self, status: Status) -> JobReply {
        let mut reply = JobReply {
            header: ReplyHeader::new(status, self.request.header.id, 0),
            eu: self.eu as u16,
            steps: self.work.steps,
            bytes: self.work.bytes_system + self.work.bytes_local,
            faults: self.faults,
            device_ns: self.device_ns,
            result: self.result,
            ..JobReply::default()
        };
        if let (Status::Fault, Some(fault)) = (status, self.fault) {
            reply.fault_va = fault.va;
            reply.fault_access = fault.access.bits();
            reply.fault_cause = fault.cause as u16;
            reply.fault_result = self.fault_result;
        }
        reply
    }
}

impl Core {
    /// Takes a job that has been validated.
    pub(super) fn add_job(&self, state: &mut State, job: Job) {
        let handle = job.request.header.asid;
        let stream = job.request.stream;
        state.last_job += 1;
        let key = state.last_job;
        if let Some(deadline) = job.deadline {
            state.deadlines.insert((deadline, key));
            self.timer.notify_one();
        }
        state.jobs.insert(key, job);
        state.counters.jobs_submitted += 1;
        if let Ok(context) = state.contexts.find(handle) {
            context.jobs.insert(key);
            context.streams.entry(stream).or_default().push_back(key);
        }
        self.wake_heads(state, handle);
    }

    /// Makes ready what is at the head of its stream and whose fence was reached.
    fn wake_heads(&self, state: &mut State, handle: AsidHandle) {
        let Ok(context) = state.contexts.find(handle) else { return };
        let heads: Vec<JobKey> = context.streams.values().filter_map(|stream| stream.front().copied()).collect();
        for key in heads {
            let Some(job) = state.jobs.get_mut(&key) else { continue };
            let Ok(context) = state.contexts.find(handle) else { return };
            let go =
                job.phase == Phase::Blocked && context.fence_reached(job.request.wait_fence, job.request.wait_value);
            if go {
                self.make_ready(state, key);
            }
        }
    }

    /// Puts a job into its ready queue and wakes an EU.
    pub(crate) fn make_ready(&self, state: &mut State, key: JobKey) {
        if let Some(job) = state.jobs.get_mut(&key) {
            job.phase = Phase::Ready;
            state.ready[usize::from(job.request.priority)].push_back(key);
            self.work.notify_one();
        }
    }

    /// Ends a job: at once, or as soon as its EU comes back.
    pub(crate) fn stop_job(&self, state: &mut State, key: JobKey, status: Status) {
        let Some(job) = state.jobs.get_mut(&key) else { return };
        if job.phase == Phase::Running {
            job.ending.get_or_insert(status);
            job.stop.store(true, Ordering::Relaxed);
        } else {
            self.end_job(state, key, status);
        }
    }

    /// Answers a job and lets go what waited for it.
    pub(crate) fn end_job(&self, state: &mut State, key: JobKey, status: Status) {
        let Some(job) = state.jobs.remove(&key) else { return };
        job.stop.store(true, Ordering::Relaxed);
        if let Some(deadline) = job.deadline {
            state.deadlines.remove(&(deadline, key));
        }
        match job.phase {
            Phase::Faulted => state.faults.forget_job(key),
            // Submitting and cancelling behind a busy queue must not make it grow.
            Phase::Ready => state.ready[usize::from(job.request.priority)].retain(|other| *other != key),
            Phase::Blocked | Phase::Running => {}
        }
        let ok = status == Status::Ok;
        let counter = if ok { &mut state.counters.jobs_ok } else { &mut state.counters.jobs_failed };
        *counter += 1;
        let handle = job.request.header.asid;
        if let Ok(context) = state.contexts.find(handle) {
            retire(context, key, &job.request);
        }
        state.reply(&job.ticket, job.reply(status).as_bytes());
        self.wake_heads(state, handle);
        self.answer_waiters(state, handle);
    }

    /// Answers the drains whose jobs have all ended, and the destroy if this was the last job.
    pub(super) fn answer_waiters(&self, state: &mut State, handle: AsidHandle) {
        let Ok(context) = state.contexts.find(handle) else { return };
        let first = context.jobs.first().copied().unwrap_or(JobKey::MAX);
        let (done, left): (Vec<Waiter>, Vec<Waiter>) = context.drains.drain(..).partition(|drain| drain.upto < first);
        context.drains = left;
        let destroy = if context.jobs.is_empty() && context.is_ending() { context.destroy.take() } else { None };
        for drain in done {
            state.reply_status(&drain.ticket, Status::Ok, drain.id, 0);
        }
        if let Some((ticket, id)) = destroy {
            state.contexts.remove(handle);
            state.reply_status(&ticket, Status::Ok, id, 0);
        }
    }

    /// Ends an address space; `destroy` is the request to answer when its last job has ended. Without one it stays as a
    /// dead entry until the driver destroys it.
    pub(super) fn end_context(&self, state: &mut State, handle: AsidHandle, destroy: Option<(Ticket, u64)>) {
        let Ok(context) = state.contexts.find(handle) else { return };
        context.space.kill();
        if destroy.is_some() {
            context.destroy = destroy;
        }
        let jobs: Vec<JobKey> = context.jobs.iter().copied().collect();
        state.faults.forget_asid(handle);
        for key in jobs {
            self.stop_job(state, key, Status::AsidGone);
        }
        self.answer_waiters(state, handle);
    }

    /// Ends the jobs whose deadline has passed; the next deadline, if any.
    pub(crate) fn expire(&self, state: &mut State, now: Instant) -> Option<Instant> {
        while let Some((deadline, key)) = state.deadlines.first().copied() {
            if deadline > now {
                return Some(deadline);
            }
            state.deadlines.pop_first();
            self.stop_job(state, key, Status::Deadline);
        }
        None
    }

    /// Whether `space` is what the table has for its handle.
    pub(crate) fn space_of(state: &mut State, handle: AsidHandle) -> Option<Arc<AddressSpace>> {
        state.contexts.find(handle).ok().map(|context| context.space.clone())
    }
}

/// Takes an ended job off its context, and signals its fence.
fn retire(context: &mut Context, key: JobKey, request: &JobRequest) {
    context.jobs.remove(&key);
    if let Some(stream) = context.streams.get_mut(&request.stream) {
        stream.retain(|other| *other != key);
        if stream.is_empty() {
            context.streams.remove(&request.stream);
        }
    }
    if request.signal_fence != 0 {
        let fence = context.fences.entry(request.signal_fence).or_default();
        *fence = request.signal_value.max(*fence);
    }
}
