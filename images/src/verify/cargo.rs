//! The stages that cargo does.

use super::{in_root, one};
use crate::command::{capture, output, succeeds, tail};
use crate::error::Error;
use crate::guest::programs::cargo;
use crate::tap::Tally;
use std::process::{Command, Stdio};

fn command(args: &[&str]) -> Command {
    let mut command = in_root(cargo());
    command.args(args);
    command
}

pub(super) fn fmt() -> Result<Tally, Error> {
    output(&mut command(&["fmt", "--all", "--check"])).map(|_| one())
}

pub(super) fn clippy() -> Result<Tally, Error> {
    output(&mut command(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])).map(|_| one())
}

pub(super) fn docs() -> Result<Tally, Error> {
    let mut command = command(&["doc", "--quiet", "--no-deps", "--workspace"]);
    output(command.env("RUSTDOCFLAGS", "-D warnings")).map(|_| one())
}

pub(super) fn tests() -> Result<Tally, Error> {
    count(command(&["test", "--workspace", "--no-fail-fast"]), "tests")
}

pub(super) fn loom() -> Result<Tally, Error> {
    let mut command =
        command(&["test", "-p", "vhost-device-uma", "--release", "--lib", "--target-dir", "target/loom", "loom"]);
    command.env("RUSTFLAGS", "--cfg loom").env("LOOM_MAX_PREEMPTIONS", "3");
    count(command, "loom")
}

pub(super) fn deny() -> Result<Tally, Error> {
    if !succeeds(&mut command(&["deny", "--version"])) {
        let reason = "cargo-deny is not installed".to_owned();
        return Ok(Tally { skipped: vec![("deny".into(), reason)], ..Tally::default() });
    }
    output(&mut command(&["deny", "check", "licenses", "bans", "sources"])).map(|_| one())
}

/// Runs libtest binaries and counts what they print.
fn count(mut command: Command, stage: &str) -> Result<Tally, Error> {
    let (text, status) = capture(&mut command, Stdio::null())?;
    let mut tally = parse(&text);
    if !status.success() {
        println!("{}", tail(&failures(&text), 200));
        if tally.failed.is_empty() {
            tally.failed.push(format!("{stage}: did not run to its end"));
        }
    } else if tally.total() == 0 {
        tally.failed.push(format!("{stage}: no test ran"));
    }
    Ok(tally)
}

/// Without the lines about tests that are fine and about what is compiled.
fn failures(text: &str) -> String {
    let fine = |line: &str| {
        line.starts_with("test ") && (line.ends_with(" ... ok") || line.contains(" ... ignored"))
            || line.trim_start().starts_with("Compiling ")
    };
    text.lines().filter(|line| !fine(line)).collect::<Vec<_>>().join("\n")
}

/// Counts from lines `test result: ok. 3 passed; 0 failed; 1 ignored; …` and names from `test a::b ... FAILED`.
fn parse(text: &str) -> Tally {
    let mut tally = Tally::default();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("test result: ") {
            let mut words = rest.split_whitespace().skip_while(|word| word.parse::<u32>().is_err());
            tally.passed += words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        } else if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            tally.failed.push(name.into());
        } else if let Some(program) = line.trim().strip_prefix("process didn't exit successfully: ") {
            // A binary that died gives no results.
            tally.failed.push(program.into());
        } else if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ignored")) {
            let reason = name.1.trim_start_matches([',', ' ']);
            let reason = if reason.is_empty() { "ignored" } else { reason };
            tally.skipped.push((name.0.into(), reason.into()));
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_that_die_count() {
        let text =
            "test c ... FAILED\nCaused by:\n  process didn't exit successfully: `deps/x-1` (signal: 6, SIGABRT)\n";
        assert_eq!(parse(text).failed.len(), 2);
    }

    #[test]
    fn what_is_shown_of_a_failure() {
        let text = "   Compiling a v1\ntest a ... ok\ntest b ... FAILED\nassertion failed\n";
        assert_eq!(failures(text), "test b ... FAILED\nassertion failed");
    }

    #[test]
    fn counts_of_libtest() {
        let text = "test a::b ... ok\ntest c ... FAILED\ntest d ... ignored, needs a moon\n\
                    test result: FAILED. 7 passed; 1 failed; 1 ignored; 0 measured\ntest result: ok. 2 passed; 0 failed\n";
        let tally = parse(text);
        assert_eq!((tally.passed, tally.failed), (9, vec!["c".to_owned()]));
        assert_eq!(tally.skipped, [("d".to_owned(), "needs a moon".to_owned())]);
    }
}
