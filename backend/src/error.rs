//! Why the daemon can't start or go on.

use std::path::PathBuf;
use thiserror::Error;

/// Errors of the daemon. Each says what to do where there is something to do.
#[derive(Debug, Error)]
pub enum Error {
    /// No way to be reached was given.
    #[error("No socket given: use --socket-path PATH (several times for several VMs) or --fd N")]
    NoSocket,
    /// Both ways were given.
    #[error("--fd and --socket-path exclude each other")]
    FdAndPath,
    /// A size that is none.
    #[error("Memory size {text:?} is not a number with an optional suffix K, M, G or T")]
    Size {
        /// As given.
        text: String,
    },
    /// A size that the device can't have.
    #[error("Memory size {bytes} must be a multiple of 2 MiB between 2 MiB and 16 TiB")]
    SizeRange {
        /// As given.
        bytes: u64,
    },
    /// A number out of range.
    #[error("{name} {value} must be between {min} and {max}")]
    Range {
        /// Flag or key.
        name: &'static str,
        /// As given.
        value: u64,
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// A mode that is no octal number of permissions.
    #[error("Socket mode {text:?} is not an octal number up to 777")]
    Mode {
        /// As given.
        text: String,
    },
    /// A log level that is none.
    #[error("Log level {text:?} is not one of off, error, warn, info, debug, trace")]
    LogLevel {
        /// As given.
        text: String,
    },
    /// A virtio id that stock hypervisors and kernels leave free: 38, 39, 21.
    #[error(
        "Virtio id {id} is not one of 38, 39, 21, the ids that are free in stock guests and accepted by stock QEMU"
    )]
    VirtioId {
        /// As given.
        id: u32,
    },
    /// The configuration file can't be read.
    #[error("Configuration file {path:?} can't be read")]
    ReadConfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The configuration file is not in order.
    #[error("Configuration file {path:?} is not valid")]
    ParseConfig {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// The socket's path has something else.
    #[error("{path:?} exists and is not a socket: choose another path or remove it")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Another process serves the socket.
    #[error("Socket {path:?} is in use by another process: stop it or choose another path")]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The socket can't be made.
    #[error("Socket {path:?} can't be made")]
    Bind {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The group is not known here.
    #[error("Group {name:?} is neither a group of this machine nor a number")]
    Group {
        /// As given.
        name: String,
    },
    /// The descriptor given is no listening socket.
    #[error("Descriptor {fd} is not a listening Unix socket")]
    NotListening {
        /// As given.
        fd: i32,
    },
    /// The device can't be made.
    #[error("The device can't be made")]
    Device {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The control loop failed.
    #[error("The control loop failed while {doing}")]
    Loop {
        /// What it did.
        doing: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The event manager failed.
    #[error("The event manager failed")]
    Events {
        /// Why.
        #[source]
        source: event_manager::Error,
    },
}

/// The error and all its causes on one line.
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}
