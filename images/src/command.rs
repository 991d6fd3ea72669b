//! Running programs.

use crate::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Lines of output that a failure shows.
const TAIL: usize = 40;

/// Runs a program to its end and gives its output; both streams together.
///
/// # Errors
/// [`Error::Start`], [`Error::Failed`].
pub fn output(command: &mut Command) -> Result<String, Error> {
    let program = name(command);
    let done =
        command.stdin(Stdio::null()).output().map_err(|source| Error::Start { program: program.clone(), source })?;
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if done.status.success() {
        return Ok(text);
    }
    Err(Error::Failed { program, status: done.status.to_string(), output: tail(&text, TAIL) })
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
    fn tails() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("", 2), "");
    }
}
