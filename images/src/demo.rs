//! `cargo demo`.

use crate::error::{describe, Error};
use crate::guest::options::Options;
use crate::guest::run::{console_tail, Kit};
use crate::setup;
use std::process::ExitCode;
use std::time::Duration;

/// Sets everything up, runs the main job in a guest, and ends with the verdict.
pub fn run() -> ExitCode {
    match setup::kit(setup::KERNEL).and_then(|kit| show(&kit)) {
        Ok(verdict) => {
            println!("{verdict}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            // The verdict is one line; what else there is to say comes before it.
            let text = describe(&error);
            let (verdict, more) = text.split_once('\n').unwrap_or((&text, ""));
            if !more.is_empty() {
                println!("{more}");
            }
            println!("FAILED: {}", verdict.trim_end_matches(':'));
            ExitCode::from(error.exit_code())
        }
    }
}

fn show(kit: &Kit) -> Result<String, Error> {
    println!("Booting a guest with the device\n");
    let options = Options { deadline: Duration::from_secs(300), ..Options::default() };
    let mut result = None;
    let outcome = kit.run("uname -r; uma-demo", &options, |line| match line.strip_prefix("RESULT ") {
        Some(verdict) => result = Some(verdict.to_owned()),
        None => println!("  {line}"),
    })?;
    println!();
    match (result.as_deref(), outcome.status, outcome.complaint()) {
        (Some("ok"), Some(0), None) => {
            Ok(format!("VERIFIED on QEMU {}, Linux {}", kit.qemu.version, kit.kernel.release))
        }
        (_, _, Some(complaint)) => Err(outcome.failure(complaint)),
        (Some("ok"), _, _) => Err(outcome.failure("the demonstration's exit status denies its verdict")),
        (Some(verdict), _, _) => {
            let why = verdict.trim_start_matches("failed:").trim().to_owned();
            Err(outcome.failure(why))
        }
        (None, ..) => {
            println!("{}", console_tail(&outcome.console));
            Err(outcome.failure("the guest ended without a result"))
        }
    }
}
