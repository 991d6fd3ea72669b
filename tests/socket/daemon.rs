//! The daemon as a process.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take; a machine under load is slow, but no test waits this long when all is well.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A daemon that listens; killed when it is dropped.
pub struct Daemon {
    pub child: Child,
    pub socket: PathBuf,
    _folder: TempDir,
}

/// The daemon's program.
pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_vhost-device-uma"))
}

/// Waits for a condition.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < DEADLINE, "{what} does not come");
        std::thread::yield_now();
    }
}

impl Daemon {
    pub fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("uma.sock");
        Self::start_at(socket, folder, args)
    }

    fn start_at(socket: PathBuf, folder: TempDir, args: &[&str]) -> Self {
        let mut child = program()
            .arg("--socket-path")
            .arg(&socket)
            .args(["--memory", "64M"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It prints how to attach once it listens.
        let first = BufReader::new(child.stdout.take().unwrap()).lines().next();
        assert!(first.is_some_and(|line| line.unwrap().starts_with("Attach QEMU")), "the daemon does not start");
        Self { child, socket, _folder: folder }
    }

    /// Starts another one at the same place after this one has ended.
    pub fn restart(mut self, args: &[&str]) -> Self {
        let folder = std::mem::replace(&mut self._folder, tempfile::tempdir().unwrap());
        Self::start_at(self.socket.clone(), folder, args)
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is our child, which has not been waited for, so the number is its.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the daemon's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Descriptors that it has open.
    pub fn fds(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the daemon with arguments that it refuses; what it says.
pub fn refusal(args: &[&str]) -> String {
    let Output { status, stderr, .. } = program().args(args).stdin(Stdio::null()).output().unwrap();
    assert!(!status.success(), "{args:?} is accepted");
    let mut text = String::new();
    stderr.as_slice().read_to_string(&mut text).unwrap();
    text
}
