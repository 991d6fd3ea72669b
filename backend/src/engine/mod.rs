//! What execution units run.

pub(crate) mod eu;
#[cfg(test)]
mod every_step_tests;
pub mod fixed;
pub mod null;
pub(crate) mod sched;
#[cfg(test)]
pub(crate) mod testing;

use crate::mmu::{Fault, View};
use uma_protocol::kernel::JobRequest;
use uma_protocol::Status;

/// How a run of steps ended. Always between two steps: all that the cursor says is done is done, exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job is complete; the value goes into the reply.
    Done(u64),
    /// The next step needs a translation that is not there.
    Fault(Fault),
    /// The fuel is used up or [`View::must_leave`] said so; go on with the same cursor.
    Yield,
    /// The job can't go on.
    Trap(Status),
}

/// What a run did, added up over all runs of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Steps done.
    pub steps: u64,
    /// Bytes read or written in guest RAM.
    pub bytes_system: u64,
    /// Bytes read or written in device memory.
    pub bytes_local: u64,
}

/// A kind of execution unit. Stateless: everything that a job needs to go on is in its cursor, which is plain data.
pub trait Engine: Send + Sync {
    /// Progress of a job.
    type Cursor: Copy + Send + std::fmt::Debug;

    /// Cursor of a job that has not begun. `job` has passed [`JobRequest::validate`].
    fn start(&self, job: &JobRequest) -> Self::Cursor;

    /// Runs steps until the job ends, a translation fails, `fuel` steps are done or the view wants the EU to leave.
    ///
    /// Each step first translates every operand page with its final rights, then touches bytes and advances the cursor.
    fn step<V: View>(
        &self,
        view: &V,
        job: &JobRequest,
        cursor: &mut Self::Cursor,
        fuel: u32,
        work: &mut Work,
    ) -> Outcome;
}
