//! What only the host can do: the guest writes `host <action>` on a serial line, the host answers `done`, `done <value>`
//! or `failed: <why>`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The serial line, unless the environment variable `UMA_HOST_TTY` names another.
pub const DEFAULT_TTY: &str = "/dev/ttyS2";

/// Longest time for one action.
const LIMIT: Duration = Duration::from_secs(60);

/// The line to the host.
#[derive(Debug)]
pub struct Host {
    line: File,
}

impl Host {
    /// Opens the line.
    ///
    /// # Errors
    /// Those of opening and setting up the terminal.
    pub fn open() -> io::Result<Self> {
        let path = std::env::var("UMA_HOST_TTY").unwrap_or_else(|_| DEFAULT_TTY.into());
        let line = OpenOptions::new().read(true).write(true).open(path)?;
        raw(&line)?;
        Ok(Self { line })
    }

    /// Has the host do something and returns the value it answered, often empty.
    pub fn ask(&mut self, action: &str) -> String {
        writeln!(self.line, "host {action}").expect("Cannot write to the host");
        let answer = self.read_line(action);
        match answer.strip_prefix("done") {
            Some(value) => value.trim().to_owned(),
            None => panic!("The host answered \"{answer}\" to \"{action}\""),
        }
    }

    fn read_line(&mut self, action: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "The host did not answer \"{action}\" within {LIMIT:?}");
            let mut poll = libc::pollfd { fd: self.line.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd, of an open descriptor, that lives for the call.
            unsafe { libc::poll(&mut poll, 1, left.as_millis() as i32) };
            let mut byte = [0];
            if poll.revents & libc::POLLIN != 0 && self.line.read(&mut byte).is_ok_and(|count| count == 1) {
                match byte[0] {
                    b'\n' if !line.is_empty() => return String::from_utf8_lossy(&line).into_owned(),
                    b'\n' | b'\r' => {}
                    other => line.push(other),
                }
            }
        }
    }
}

/// No echo and no line discipline: what is written must not come back as an answer.
fn raw(line: &File) -> io::Result<()> {
    let fd = line.as_raw_fd();
    // SAFETY: termios is plain data for which zero is a value; the calls read and write it during the calls only.
    unsafe {
        let mut termios: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(fd, &mut termios) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::cfmakeraw(&mut termios);
        if libc::tcsetattr(fd, libc::TCSANOW, &termios) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
