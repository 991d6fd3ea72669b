//! Children.

use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A child made by fork(2). Killed and reaped when dropped.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
    reaped: bool,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It returned; the status is 0 if its code did not panic.
    Exit(i32),
    /// A signal killed it.
    Signal(i32),
}

/// Runs `code` in a child process; a panic becomes exit status 101.
pub fn fork(code: impl FnOnce()) -> Child {
    // SAFETY: the child goes on in a copy of this thread alone. The tests fork while their other threads, if any, hold
    // no lock that the child needs: none of them allocates meanwhile.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        let status = if catch_unwind(AssertUnwindSafe(code)).is_ok() { 0 } else { 101 };
        // SAFETY: ends the process at once; no handlers of the parent run.
        unsafe { libc::_exit(status) };
    }
    Child { pid, reaped: false }
}

impl Child {
    /// Process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal.
    pub fn kill(&self, signal: i32) {
        assert!(!self.reaped);
        // SAFETY: a process of ours that has not been reaped, so the number is not somebody else's.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Waits for the end.
    pub fn wait(mut self) -> End {
        self.reap()
    }

    fn reap(&mut self) -> End {
        let mut status = 0;
        loop {
            // SAFETY: a child of ours and a place for its status.
            let rc = unsafe { libc::waitpid(self.pid, &mut status, 0) };
            if rc == self.pid {
                break;
            }
            let error = std::io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EINTR), "waitpid: {error}");
        }
        self.reaped = true;
        if libc::WIFSIGNALED(status) {
            End::Signal(libc::WTERMSIG(status))
        } else {
            End::Exit(libc::WEXITSTATUS(status))
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill(libc::SIGKILL);
            self.reap();
        }
    }
}

/// A pipe: the end to read from and the end to write to.
///
/// # Errors
/// Those of pipe2(2).
pub fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: both are new, and ours alone.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// A one-way signal between processes: whoever waits goes on when the other end has let go.
#[derive(Debug)]
pub struct Gate {
    read: OwnedFd,
    write: OwnedFd,
}

impl Gate {
    /// A closed gate; made before the fork.
    pub fn new() -> Self {
        let (read, write) = pipe().expect("pipe");
        Self { read, write }
    }

    /// Lets one waiter go on.
    pub fn open(&self) {
        use std::io::Write;
        std::fs::File::from(self.write.try_clone().expect("dup")).write_all(b"g").expect("gate");
    }

    /// Waits for one [`Gate::open`].
    pub fn wait(&self) {
        use std::io::Read;
        std::fs::File::from(self.read.try_clone().expect("dup")).read_exact(&mut [0]).expect("gate");
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}
