//! Jobs that run beside the code that submitted them, and end before their memory's borrow does.

use crate::{Context, Error, JobId, JobResult, Result, Task};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::Duration;

/// Jobs of one [`Context::scope`] call.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    context: &'env Context,
    running: RefCell<Vec<JobId>>,
    // invariant, so that a task can't be given a shorter life than the scope's
    _scope: PhantomData<&'scope mut &'scope ()>,
}

/// A job of a scope that may be running. Dropping it does not end the job: the scope waits for it.
#[derive(Debug)]
pub struct Pending<'scope, 'env: 'scope> {
    scope: &'scope Scope<'scope, 'env>,
    id: JobId,
    fence: Option<OwnedFd>,
}

pub(crate) fn run<'env, F, T>(context: &'env Context, work: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope { context, running: RefCell::default(), _scope: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| work(&scope)));
    scope.join(result.is_err());
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Queues a task.
    ///
    /// # Errors
    /// [`Error::Call`], with EAGAIN if too many jobs are unfinished or not waited for.
    pub fn submit(&'scope self, task: Task<'scope>) -> Result<Pending<'scope, 'env>> {
        // SAFETY: the task's memory is borrowed for 'scope, and `run` does not return before the job has ended.
        let submitted = unsafe { self.context.submit(&task.job) }?;
        self.running.borrow_mut().push(submitted.id);
        Ok(Pending { scope: self, id: submitted.id, fence: submitted.fence })
    }

    fn join(&self, cancel: bool) {
        for id in self.running.take() {
            if cancel {
                let _ = self.context.cancel(id); // ENOENT: it has ended
            }
            if let Err(error) = self.context.wait(id) {
                abort_unless_over(&error);
            }
        }
    }
}

/// Aborts unless the error of a wait means that the job does not run any more: its result was taken, device or driver
/// are gone, this is the child of a fork (whose memory no job touches), or the job ended in a way we have no name for.
fn abort_unless_over(error: &Error) {
    match error.errno() {
        Some(libc::ENOENT | libc::ENODEV | libc::EXDEV) => {}
        _ if matches!(error, Error::Unknown { .. }) => {}
        _ => {
            eprintln!("libuma: cannot tell whether a job still uses borrowed memory: {error} ({:?})", error.errno());
            std::process::abort();
        }
    }
}

impl Pending<'_, '_> {
    /// Name of the job in its context.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Waits for the end and takes the result.
    ///
    /// # Errors
    /// [`Error::Job`] if the job ended with anything but success.
    pub fn wait(self) -> Result<JobResult> {
        self.wait_end()?.ok()
    }

    /// Waits for the end, however it comes.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn wait_end(self) -> Result<JobResult> {
        let result = self.scope.context.wait(self.id);
        self.ended(&result);
        result
    }

    /// Waits at most `timeout`; the job is given back if it still runs then.
    ///
    /// # Errors
    /// Outer: still running. Inner: as [`Pending::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> std::result::Result<Result<JobResult>, Self> {
        match self.scope.context.wait_timeout(self.id, timeout) {
            Err(Error::Running) => Err(self),
            result => {
                self.ended(&result);
                Ok(result.and_then(JobResult::ok))
            }
        }
    }

    /// Asks the device to end the job early.
    ///
    /// # Errors
    /// [`Error::Call`] with ENOENT if it has ended.
    pub fn cancel(&self) -> Result<()> {
        self.scope.context.cancel(self.id)
    }

    /// The descriptor that polls readable when the job has ended, if the task asked for one.
    pub fn fence(&self) -> Option<BorrowedFd<'_>> {
        self.fence.as_ref().map(AsFd::as_fd)
    }

    /// Forgets a job whose end is known; after an error it stays on the list, and the scope's end looks again.
    fn ended(&self, result: &Result<JobResult>) {
        if result.is_ok() {
            self.scope.running.borrow_mut().retain(|id| *id != self.id);
        }
    }
}
