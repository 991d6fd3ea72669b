//! Command line.

use clap::Parser;
use std::os::fd::RawFd;
use std::path::PathBuf;
use tracing::level_filters::LevelFilter;

/// A unified-memory accelerator behind a vhost-user socket.
///
/// Attach a stock QEMU (11.1 or later) or Cloud Hypervisor (52 or later) to the socket; the command lines are printed at
/// start.
#[derive(Debug, Default, Parser)]
#[command(version, name = "vhost-device-uma")]
pub struct Args {
    /// Socket to listen on. Several times for several VMs: each gets a device with memory of its own
    #[arg(long, value_name = "PATH")]
    pub socket_path: Vec<PathBuf>,
    /// Listening socket that is already open, instead of --socket-path (for service managers)
    #[arg(long, value_name = "N")]
    pub fd: Option<RawFd>,
    /// Device memory, e.g. 512M or 4G. Sparse: it costs the host what the guest uses [default: 1G]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Execution units, 1 to 62: threads that run jobs [default: 2]
    #[arg(long, value_name = "N")]
    pub eus: Option<u32>,
    /// Compute queues, 1 to 32; num_vqs of the hypervisor is this plus 6 [default: 2]
    #[arg(long, value_name = "N")]
    pub compute_queues: Option<u16>,
    /// File with the same settings in TOML (socket-path = ["…"], memory = "1G", …). Flags win over it
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Permissions of the socket, octal [default: 600]
    #[arg(long, value_name = "OCTAL")]
    pub socket_mode: Option<String>,
    /// Group of the socket, so that a hypervisor of another user can connect (with --socket-mode 660)
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<String>,
    /// End when the hypervisor disconnects, instead of listening again
    #[arg(long)]
    pub once: bool,
    /// Virtio id in the printed command lines: 38, or 39 or 21 if something else has that [default: 38]
    #[arg(long, value_name = "ID")]
    pub virtio_id: Option<u32>,
    /// What is logged to stderr: off, error, warn, info, debug, trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<LevelFilter>,
}
