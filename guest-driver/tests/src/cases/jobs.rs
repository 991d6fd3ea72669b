//! Streams, fences, waiting, cancelling, deadlines.

use crate::fixture::{Fixture, LIMIT};
use crate::memory::Mapping;
use crate::Test;
use libuma::{Error, Job, JobId, Status, Task};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

pub(super) const TESTS: &[Test] = &[
    Test::shared("stream_in_order", stream_in_order),
    Test::shared("streams_beside_each_other", streams_beside_each_other),
    Test::shared("fence_orders_streams", fence_orders_streams),
    Test::shared("fence_signalled_by_failure", fence_signalled_by_failure),
    Test::shared("fence_descriptor", fence_descriptor),
    Test::shared("wait_once", wait_once),
    Test::shared("wait_timeout", wait_timeout),
    Test::shared("cancel_running", cancel_running),
    Test::shared("cancel_queued", cancel_queued),
    Test::shared("deadline", deadline),
    Test::shared("job_limit", job_limit),
    Test::shared("context_closed_with_jobs", context_closed_with_jobs),
];

/// A word that points to itself: a list without an end.
pub(super) struct Endless(Mapping);

impl Endless {
    pub(super) fn new() -> Self {
        let mut memory = Mapping::small(16);
        let address = memory.addr() as u64;
        memory.slice_mut::<u64>()[0] = address;
        Self(memory)
    }

    /// A job that does not end by itself while anyone waits.
    pub(super) fn job(&self) -> Job {
        Job::chase(self.0.at(8).cast(), self.0.addr().cast(), 1 << 50)
    }

    /// Ends it and checks that it was still going.
    #[track_caller]
    pub(super) fn end(&self, fixture: &Fixture, job: JobId) {
        fixture.context.cancel(job).expect("cancel");
        assert_eq!(fixture.wait(job).status, Status::Canceled);
    }
}

/// Each job of a stream sees what those before it did.
fn stream_in_order(fixture: &Fixture) {
    let mut memory = Mapping::small(64 << 10);
    memory.slice_mut::<u32>().fill(1);
    let data = memory.addr().cast::<u32>();
    let n = memory.len() / 4;
    let ids: Vec<JobId> =
        (2..10u32).map(|factor| fixture.submit(&Job::scale(data, data, n, factor).stream(3))).collect();
    let last = fixture.submit(&Job::fill(data, 1, 0u32).stream(3));
    ids.into_iter().chain([last]).for_each(|id| assert_eq!(fixture.wait(id).status, Status::Ok));
    assert_eq!(memory.slice::<u32>()[0], 0);
    assert!(memory.slice::<u32>()[1..].iter().all(|value| *value == 362_880), "9 factorial");
}

/// A stream whose job does not end holds up no other.
fn streams_beside_each_other(fixture: &Fixture) {
    let (endless, mut word) = (Endless::new(), Mapping::small(8));
    let stuck = fixture.submit(&endless.job().stream(1));
    fixture.run(Task::fill(&mut word.slice_mut::<u64>()[..1], 4).stream(2));
    assert_eq!(word.slice::<u64>()[0], 4);
    endless.end(fixture, stuck);
}

/// The second stream waits for the value that the first one's job raises the fence to.
fn fence_orders_streams(fixture: &Fixture) {
    let mut memory = Mapping::small(8);
    let word = memory.addr().cast::<u64>();
    for round in 1..20u64 {
        memory.slice_mut::<u64>()[0] = 0;
        let (two, three) = (3 * round, 3 * round + 1);
        let third = fixture.submit(&Job::scale(word, word, 1, 10).stream(2).wait_fence(1, three));
        let second = fixture.submit(&Job::axpy(word, word, 1, 2).stream(1).wait_fence(1, two).signal_fence(1, three));
        let first = fixture.submit(&Job::fill(word, 1, 1).stream(3).signal_fence(1, two));
        [first, second, third].into_iter().for_each(|id| assert_eq!(fixture.wait(id).status, Status::Ok));
        assert_eq!(memory.slice::<u64>()[0], 30, "1, then 1 + 2 * 1, then times 10");
    }
}

/// A job that fails signals too, or its successors would hang.
fn fence_signalled_by_failure(fixture: &Fixture) {
    let memory = Mapping::small(8);
    memory.protect(0, memory.len(), libc::PROT_READ);
    let waiter = fixture.submit(&Job::nop().stream(1).wait_fence(2, 5));
    let failing = fixture.submit(&Job::fill(memory.addr(), 1, 1).stream(2).signal_fence(2, 5));
    assert_eq!(fixture.wait(failing).status, Status::Fault);
    assert_eq!(fixture.wait(waiter).status, Status::Ok);
}

fn readable(fence: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fence.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, of an open descriptor, that lives for the call.
    let ready = unsafe { libc::poll(&mut poll, 1, timeout.as_millis() as i32) };
    ready == 1 && poll.revents & libc::POLLIN != 0
}

/// Readable from the job's end on, not before; it works after the result was taken, and after the context was closed.
fn fence_descriptor(fixture: &Fixture) {
    let endless = Endless::new();
    // SAFETY: the mapping lives until the job has ended.
    let submitted = unsafe { fixture.context.submit(&endless.job().fence_fd()) }.expect("submit");
    let fence = submitted.fence.expect("a fence descriptor");
    let fence = std::os::fd::AsFd::as_fd(&fence);
    assert!(!readable(fence, Duration::ZERO));
    fixture.context.cancel(submitted.id).expect("cancel");
    assert!(readable(fence, LIMIT));
    assert_eq!(fixture.wait(submitted.id).status, Status::Canceled);
    assert!(readable(fence, Duration::ZERO));
}

fn wait_once(fixture: &Fixture) {
    let id = fixture.submit(&Job::nop());
    assert_eq!(fixture.wait(id).status, Status::Ok);
    assert_eq!(fixture.context.wait(id).unwrap_err().errno(), Some(libc::ENOENT));
    assert_eq!(fixture.context.wait(JobId(u64::MAX)).unwrap_err().errno(), Some(libc::ENOENT));
}

fn wait_timeout(fixture: &Fixture) {
    let endless = Endless::new();
    let id = fixture.submit(&endless.job());
    assert!(matches!(fixture.context.wait_timeout(id, Duration::ZERO), Err(Error::Running)));
    assert!(matches!(fixture.context.wait_timeout(id, Duration::from_millis(20)), Err(Error::Running)));
    endless.end(fixture, id);
}

fn cancel_running(fixture: &Fixture) {
    let endless = Endless::new();
    let id = fixture.submit(&endless.job());
    endless.end(fixture, id);
    assert_eq!(fixture.context.cancel(id).unwrap_err().errno(), Some(libc::ENOENT));
}

/// A job behind another one of its stream, and one that waits for a fence, can be cancelled.
fn cancel_queued(fixture: &Fixture) {
    let endless = Endless::new();
    let first = fixture.submit(&endless.job().stream(1));
    let behind = fixture.submit(&Job::nop().stream(1));
    let waiting = fixture.submit(&Job::nop().stream(2).wait_fence(7, 1));
    for id in [behind, waiting] {
        fixture.context.cancel(id).expect("cancel");
        assert_eq!(fixture.wait(id).status, Status::Canceled);
    }
    endless.end(fixture, first);
}

/// It ends a job that runs and one that only waits.
fn deadline(fixture: &Fixture) {
    let endless = Endless::new();
    let soon = Duration::from_millis(50);
    let running = fixture.submit(&endless.job().stream(1).deadline(soon));
    let waiting = fixture.submit(&Job::nop().stream(2).wait_fence(7, 1).deadline(soon));
    assert_eq!(fixture.wait(running).status, Status::Deadline);
    assert_eq!(fixture.wait(waiting).status, Status::Deadline);
    fixture.run(Task::nop().deadline(LIMIT));
}

/// EAGAIN at the limit, and one more as soon as one was waited for.
fn job_limit(fixture: &Fixture) {
    let limit = fixture.device.query().expect("query").max_jobs;
    let mut ids: Vec<JobId> = (0..limit).map(|_| fixture.submit(&Job::nop())).collect();
    super::uapi::assert_refused(fixture, &Job::nop(), libc::EAGAIN);
    let last = ids.pop().expect("a job");
    assert_eq!(fixture.wait(last).status, Status::Ok);
    ids.push(fixture.submit(&Job::nop()));
    ids.into_iter().for_each(|id| assert_eq!(fixture.wait(id).status, Status::Ok));
}

/// Jobs that run, wait and are done when their context goes: nothing is left.
fn context_closed_with_jobs(fixture: &Fixture) {
    let endless = Endless::new();
    for _ in 0..5 {
        let context = fixture.device.context().expect("context");
        for job in [Job::nop(), endless.job().stream(1), Job::nop().stream(1), Job::nop().stream(2).wait_fence(1, 1)] {
            // SAFETY: the mapping outlives the context, and its jobs end with it.
            unsafe { context.submit(&job) }.expect("submit");
        }
    }
}
