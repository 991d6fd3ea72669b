//! `uma-vm`: guests with the device. `cargo demo`, `cargo verify` and `cargo vm` run it.

mod cache;
mod command;
mod demo;
mod error;
mod guest;
mod guest_tests;
mod kvm;
mod module;
mod namespace;
mod setup;
mod tap;
mod tree;
mod verify;

use clap::{Parser, Subcommand};
use error::{describe, Error};
use guest::options::Options;
use std::process::ExitCode;

/// Fetches, builds and boots guests with the virtio-uma device.
#[derive(Parser)]
#[command(name = "cargo vm", version)]
struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Boot a guest and show a device computing on its malloc memory
    Demo {
        /// With the in-process guest instead of QEMU
        #[arg(long)]
        embedded: bool,
    },
    /// Run every test
    Verify {
        /// Only these stages
        #[arg(long, value_name = "STAGE")]
        only: Vec<String>,
        /// Name the stages
        #[arg(long)]
        list: bool,
        /// The full numbers of stages that otherwise run a sample; can take hours
        #[arg(long)]
        long: bool,
    },
    /// Only fetch and build
    Setup,
    /// A guest with a shell on this terminal; Ctrl-A x leaves
    Boot {
        /// Kernel of the guest, 7.3 or 6.12
        #[arg(long, default_value = setup::KERNEL)]
        kernel: String,
        #[command(flatten)]
        options: Options,
    },
    /// One command in a guest; its exit status is the command's
    Run {
        /// Kernel of the guest, 7.3 or 6.12
        #[arg(long, default_value = setup::KERNEL)]
        kernel: String,
        #[command(flatten)]
        options: Options,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// The tests that run inside guests
    GuestTests {
        /// Kernel of the guest, 7.3 or 6.12
        #[arg(long, default_value = setup::KERNEL)]
        kernel: String,
        /// Only groups and tests with this in their name
        filter: Option<String>,
    },
    #[command(hide = true)]
    KvmProbe,
}

fn main() -> ExitCode {
    match Args::parse().command {
        What::Demo { embedded: false } => demo::run(),
        What::Demo { embedded: true } => {
            println!("The in-process guest does not exist yet; `cargo demo` runs the job in a real one");
            ExitCode::from(2)
        }
        What::Verify { list: true, .. } => {
            verify::list();
            ExitCode::SUCCESS
        }
        What::Verify { only, long, .. } => {
            verify::run(&only, if long { verify::Effort::Long } else { verify::Effort::Sample })
        }
        What::Setup => report(setup::kit(setup::KERNEL).map(|_| 0)),
        What::Boot { kernel, options } => report(setup::kit(&kernel).and_then(|kit| kit.boot(&options)).map(|()| 0)),
        What::Run { kernel, options, command } => report(run(&kernel, &options, &command)),
        What::GuestTests { kernel, filter } => report(guest_tests(&kernel, filter.as_deref())),
        What::KvmProbe => match kvm::probe() {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run(kernel: &str, options: &Options, command: &[String]) -> Result<u8, Error> {
    let quoted: Vec<_> = command.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    let kit = setup::kit(kernel)?;
    let outcome = kit.run(&quoted.join(" "), options, |line| println!("{line}"))?;
    match outcome.status {
        Some(status) => {
            if let Some(complaint) = outcome.complaint() {
                return Err(outcome.failure(complaint));
            }
            if options.keep {
                eprintln!("Artefacts are in {:?}", outcome.keep());
            }
            Ok(status as u8)
        }
        None => {
            eprintln!("{}", guest::run::console_tail(&outcome.console));
            let what = outcome.complaint().unwrap_or_else(|| "the guest ended without a result".into());
            Err(outcome.failure(what))
        }
    }
}

fn guest_tests(kernel: &str, filter: Option<&str>) -> Result<u8, Error> {
    let tally = guest_tests::run(&setup::kit(kernel)?, kernel == setup::KERNEL, filter)?;
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failed.len(), tally.skipped.len());
    Ok(u8::from(!tally.failed.is_empty() || tally.total() == 0))
}

fn report(result: Result<u8, Error>) -> ExitCode {
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("{}", describe(&error));
            ExitCode::from(error.exit_code())
        }
    }
}
