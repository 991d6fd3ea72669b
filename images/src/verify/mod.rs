//! `cargo verify`: every test, stage by stage; goes on after a failed stage.

mod cargo;
mod skips;

use crate::error::{describe, Error};
use crate::tap::Tally;
use crate::{guest_tests, setup};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// How much a stage does: what fits into every `cargo verify`, or all that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A sample within the stage's share of an hour.
    Sample,
    /// The full numbers; hours, where that is what they take.
    Long,
}

/// A stage: name, what it does, and the doing.
struct Stage {
    name: &'static str,
    what: &'static str,
    run: fn(Effort) -> Result<Tally, Error>,
}

const STAGES: &[Stage] = &[
    Stage { name: "fmt", what: "formatting", run: |_| cargo::fmt() },
    Stage { name: "clippy", what: "lints, warnings are errors", run: |_| cargo::clippy() },
    Stage { name: "docs", what: "documentation, warnings are errors", run: |_| cargo::docs() },
    Stage { name: "tests", what: "unit, property and daemon-over-socket tests", run: |_| cargo::tests() },
    Stage { name: "loom", what: "the lock-free handshake under loom, and its mutants", run: |_| cargo::loom() },
    Stage { name: "deny", what: "licences and sources of dependencies", run: |_| cargo::deny() },
    Stage { name: "module-7.3", what: "module build with W=1 on Linux 7.3", run: |_| module("7.3") },
    Stage { name: "module-6.12", what: "module build with W=1 on Linux 6.12", run: |_| module("6.12") },
    Stage { name: "guest-7.3", what: "guest tests on Linux 7.3", run: |_| guest("7.3", true) },
    Stage { name: "guest-6.12", what: "guest tests on Linux 6.12", run: |_| guest("6.12", false) },
];

/// Prints the stages.
pub fn list() {
    for stage in STAGES {
        println!("{:12} {}", stage.name, stage.what);
    }
}

/// Runs all stages or those named.
pub fn run(only: &[String], effort: Effort) -> ExitCode {
    if let Some(wrong) = only.iter().find(|name| !STAGES.iter().any(|stage| stage.name == **name)) {
        println!("No stage {wrong}; --list names them");
        return ExitCode::from(2);
    }
    let mut total = Tally::default();
    for stage in STAGES.iter().filter(|stage| only.is_empty() || only.iter().any(|name| name == stage.name)) {
        println!("== {}: {}", stage.name, stage.what);
        let begin = Instant::now();
        let tally = (stage.run)(effort).unwrap_or_else(|error| outcome(stage.name, &error));
        let (passed, failed) = (tally.passed, tally.failed.len());
        println!("== {}: {passed} passed, {failed} failed, {} s\n", stage.name, begin.elapsed().as_secs());
        total.merge(tally);
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let allowed = std::fs::read_to_string(setup::root().join("tests/allowed-skips")).unwrap_or_default();
    skips::apply(&mut total, ci, &allowed);
    for name in &total.failed {
        println!("FAILED {name}");
    }
    for (name, reason) in &total.skipped {
        println!("SKIP {name}: {reason}");
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed.len(), total.skipped.len());
    if total.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A stage that could not run: skipped where no guest can be had, failed otherwise.
fn outcome(name: &str, error: &Error) -> Tally {
    println!("{}", describe(error));
    match error {
        Error::NoGuest { .. } => Tally { skipped: vec![(name.into(), describe(error))], ..Tally::default() },
        _ => Tally { failed: vec![name.into()], ..Tally::default() },
    }
}

fn one() -> Tally {
    Tally { passed: 1, ..Tally::default() }
}

fn module(kernel: &str) -> Result<Tally, Error> {
    let release = setup::module_for(kernel)?;
    println!("virtio_uma.ko builds without a warning for {release}");
    Ok(one())
}

fn guest(kernel: &str, usual: bool) -> Result<Tally, Error> {
    guest_tests::run(&setup::kit(kernel)?, usual, None)
}

fn in_root(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(setup::root());
    command
}
