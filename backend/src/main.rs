//! `vhost-device-uma`: see `--help`.

mod args;
mod config;
mod daemon;
mod error;
mod socket;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vhost-device-uma: {}", error::describe(&error));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), error::Error> {
    let config = config::Config::new(args::Args::parse())?;
    vhost_device_uma::trace::init(config.log_level);
    daemon::serve(&config)
}
