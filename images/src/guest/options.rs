//! How to run a guest.

use std::time::Duration;

/// Options of one run; the first ones are also flags of `cargo vm`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Memory of the device
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub device_memory: String,
    /// Execution units of the device
    #[arg(long, value_name = "N")]
    pub eus: Option<u32>,
    /// Memory of the guest
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: String,
    /// How much the device logs: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// One more argument for QEMU; may be given several times
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub qemu_arg: Vec<String>,
    /// More of the guest kernel's command line
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub append: String,
    /// Seconds after which a guest that runs a command is given up
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub deadline: Duration,
    /// Keep console, logs and command lines even if nothing fails
    #[arg(long)]
    pub keep: bool,
    /// Let a reset boot again instead of ending QEMU.
    #[arg(skip)]
    pub reboot: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device_memory: "256M".into(),
            eus: None,
            memory: "1G".into(),
            log_level: "info".into(),
            qemu_arg: Vec::new(),
            append: String::new(),
            deadline: Duration::from_secs(600),
            keep: false,
            reboot: false,
        }
    }
}

fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn flags_left_out_are_the_defaults() {
        let line = Line::parse_from(["x"]);
        assert_eq!(format!("{:?}", line.options), format!("{:?}", Options::default()));
    }

    #[test]
    fn arguments_for_others_may_begin_with_a_dash() {
        let line = Line::parse_from(["x", "--qemu-arg", "-s", "--qemu-arg", "-S", "--deadline", "5"]);
        assert_eq!(line.options.qemu_arg, ["-s", "-S"]);
        assert_eq!(line.options.deadline, Duration::from_secs(5));
    }
}
