//! Running programs.

use crate::error::Error;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Lines of output that a failure shows.
const TAIL: usize = 40;

/// Runs a program to its end and gives its output; both streams together.
///
/// # Errors
/// [`Error::Start`], [`Error::Failed`].
pub fn output(command: &mut Command) -> Result<String, Error> {
    output_with(command, Stdio::null())
}

/// As [`output`], with something as standard input.
///
/// # Errors
/// [`Error::Start`], [`Error::Failed`].
pub fn output_with(command: &mut Command, input: Stdio) -> Result<String, Error> {
    let (text, status) = capture(command, input)?;
    if status.success() {
        return Ok(text);
    }
    Err(Error::Failed { program: name(command), status: status.to_string(), output: tail(&text, TAIL) })
}

/// Runs a program to its end with what it prints on our standard error: for those that take long and show how far they are.
///
/// # Errors
/// [`Error::Start`], [`Error::Failed`].
pub fn visible(command: &mut Command) -> Result<(), Error> {
    let program = name(command);
    let status = die_with_us(command.stdin(Stdio::null()).stdout(Stdio::null()))
        .status()
        .map_err(|source| Error::Start { program: program.clone(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed { program, status: status.to_string(), output: "Its words are above".into() })
}

/// Runs a program to its end and gives everything that it printed and how it ended.
///
/// # Errors
/// [`Error::Start`].
pub fn capture(command: &mut Command, input: Stdio) -> Result<(String, ExitStatus), Error> {
    let done =
        die_with_us(command).stdin(input).output().map_err(|source| Error::Start { program: name(command), source })?;
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    Ok((text, done.status))
}

/// Waits for a child to end, for a limited time; nothing if it is still there.
pub fn wait_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let ended = Pid::from_raw(child.id() as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Without a descriptor it has ended already.
    if ended.is_none_or(|descriptor| readable(std::os::fd::AsFd::as_fd(&descriptor), limit)) {
        return child.wait().ok();
    }
    child.try_wait().ok().flatten()
}

/// Waits until a descriptor has something, for a limited time.
pub fn readable(descriptor: BorrowedFd<'_>, limit: Duration) -> bool {
    let begin = Instant::now();
    loop {
        let left = Timespec::try_from(limit.saturating_sub(begin.elapsed())).ok();
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.is_ok_and(|count| count > 0),
        }
    }
}

/// Whether a program runs and succeeds; silent.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Makes a child die with the thread that starts it, so that nothing is left if we are killed.
pub fn die_with_us(command: &mut Command) -> &mut Command {
    let hook = || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        Ok(())
    };
    // SAFETY: the hook makes one system call and touches no memory of ours, so it may run between fork and exec.
    unsafe { command.pre_exec(hook) }
}

/// Last `count` lines.
pub fn tail(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_show_the_end_of_the_output() {
        let error = output(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("two") && text.contains('3'), "{text}");
    }

    #[test]
    fn waiting_for_a_child_ends_with_it_or_with_the_time() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        assert_eq!(wait_within(&mut child, Duration::from_millis(1)), None);
        drop(child.stdin.take());
        assert!(wait_within(&mut child, Duration::from_secs(60)).unwrap().success());
    }

    #[test]
    fn tails() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("", 2), "");
    }
}
