//! Settings: flags over the configuration file over defaults, checked.

use crate::args::Args;
use crate::error::Error;
use serde::Deserialize;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use tracing::level_filters::LevelFilter;
use uma_protocol::sync::MAX_EUS;
use uma_protocol::{DEFAULT_VIRTIO_ID, HUGE_SIZE};
use vhost_device_uma::device::Settings;

/// Most compute queues: vhost-user-backend serves 64 queues in all, and 32 are more than anybody has streams for.
const MAX_COMPUTE_QUEUES: u16 = 32;
/// Most device memory: 16 TiB of address space per device.
const MAX_MEMORY: u64 = 16 << 40;

/// The configuration file. Keys are the flags' names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    socket_path: Vec<PathBuf>,
    memory: Option<String>,
    eus: Option<u32>,
    compute_queues: Option<u16>,
    socket_mode: Option<String>,
    socket_group: Option<String>,
    #[serde(default)]
    once: bool,
    virtio_id: Option<u32>,
    log_level: Option<String>,
}

/// Where the daemon listens.
#[derive(Debug, PartialEq, Eq)]
pub enum Listen {
    /// Sockets to make.
    Paths(Vec<PathBuf>),
    /// A socket that is there.
    Fd(RawFd),
}

/// Settings in order.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: Listen,
    /// What each device is like.
    pub device: Settings,
    /// Permissions of the sockets.
    pub socket_mode: u32,
    /// Group of the sockets.
    pub socket_group: Option<u32>,
    /// End after the first connection.
    pub once: bool,
    /// For the printed command lines.
    pub virtio_id: u32,
    /// What is logged.
    pub log_level: LevelFilter,
}

impl Config {
    /// Merges and checks.
    ///
    /// # Errors
    /// The first setting that is not in order.
    pub fn new(args: Args) -> Result<Self, Error> {
        let file = args.config.as_deref().map(read).transpose()?.unwrap_or_default();
        let paths = if args.socket_path.is_empty() { file.socket_path } else { args.socket_path };
        let listen = match (args.fd, paths.is_empty()) {
            (Some(_), false) => return Err(Error::FdAndPath),
            (Some(fd), true) => Listen::Fd(fd),
            (None, false) => Listen::Paths(paths),
            (None, true) => return Err(Error::NoSocket),
        };
        let memory = size(&args.memory.or(file.memory).unwrap_or_else(|| "1G".into()))?;
        let eus = args.eus.or(file.eus).unwrap_or(2);
        let compute_queues = args.compute_queues.or(file.compute_queues).unwrap_or(2);
        within("eus", u64::from(eus), u64::from(MAX_EUS))?;
        within("compute-queues", u64::from(compute_queues), u64::from(MAX_COMPUTE_QUEUES))?;
        let virtio_id = args.virtio_id.or(file.virtio_id).unwrap_or(DEFAULT_VIRTIO_ID);
        if ![38, 39, 21].contains(&virtio_id) {
            return Err(Error::VirtioId { id: virtio_id });
        }
        let level = file.log_level.map(|text| text.parse().map_err(|_| Error::LogLevel { text })).transpose()?;
        Ok(Self {
            listen,
            device: Settings { memory, eus, compute_queues },
            socket_mode: mode(&args.socket_mode.or(file.socket_mode).unwrap_or_else(|| "600".into()))?,
            socket_group: args.socket_group.or(file.socket_group).map(|name| group(&name)).transpose()?,
            once: args.once || file.once,
            virtio_id,
            log_level: args.log_level.or(level).unwrap_or(LevelFilter::INFO),
        })
    }
}

fn read(path: &Path) -> Result<File, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::ReadConfig { path: path.to_owned(), source })?;
    toml::from_str(&text).map_err(|source| Error::ParseConfig { path: path.to_owned(), source: Box::new(source) })
}

fn within(name: &'static str, value: u64, max: u64) -> Result<(), Error> {
    if value == 0 || value > max {
        return Err(Error::Range { name, value, min: 1, max });
    }
    Ok(())
}

/// Bytes of `512M`, `4G`, …
fn size(text: &str) -> Result<u64, Error> {
    let wrong = || Error::Size { text: text.to_owned() };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    if bytes == 0 || bytes % HUGE_SIZE != 0 || bytes > MAX_MEMORY {
        return Err(Error::SizeRange { bytes });
    }
    Ok(bytes)
}

fn mode(text: &str) -> Result<u32, Error> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| Error::Mode { text: text.to_owned() })
}

/// Number of a group, by name from /etc/group or as a number.
fn group(name: &str) -> Result<u32, Error> {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let by_name = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    by_name.or_else(|| name.parse().ok()).ok_or_else(|| Error::Group { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn args() -> Args {
        Args { socket_path: vec!["/tmp/a.sock".into()], ..Args::default() }
    }

    #[test]
    fn defaults() {
        let config = Config::new(args()).unwrap();
        assert_eq!(config.device.memory, 1 << 30);
        assert_eq!((config.device.eus, config.device.compute_queues, config.virtio_id), (2, 2, 38));
        assert_eq!((config.socket_mode, config.once), (0o600, false));
    }

    #[test]
    fn sizes() {
        assert_eq!(size("4G").unwrap(), 4 << 30);
        assert_eq!(size("64MiB").unwrap(), 64 << 20);
        for wrong in ["", "G", "1X", "-1", "1.5G", "99999999999T", "1M", "0", "17T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_unknown_keys_are_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "memory = \"2G\"\neus = 7\nonce = true").unwrap();
        let config = Config::new(Args { config: Some(file.path().into()), eus: Some(3), ..args() }).unwrap();
        assert_eq!((config.device.memory, config.device.eus, config.once), (2 << 30, 3, true));
        let mut loud = tempfile::NamedTempFile::new().unwrap();
        writeln!(loud, "log-level = \"loud\"").unwrap();
        let error = Config::new(Args { config: Some(loud.path().into()), ..args() }).unwrap_err();
        assert!(matches!(error, Error::LogLevel { .. }), "{error}");
        writeln!(file, "memroy = \"2G\"").unwrap();
        let error = Config::new(Args { config: Some(file.path().into()), ..args() }).unwrap_err();
        assert!(crate::error::describe(&error).contains("memroy"), "{error}");
    }

    #[test]
    fn refusals() {
        assert!(matches!(Config::new(Args::default()), Err(Error::NoSocket)));
        assert!(matches!(Config::new(Args { fd: Some(3), ..args() }), Err(Error::FdAndPath)));
        assert!(matches!(Config::new(Args { eus: Some(0), ..args() }), Err(Error::Range { .. })));
        assert!(matches!(Config::new(Args { eus: Some(63), ..args() }), Err(Error::Range { .. })));
        assert!(matches!(Config::new(Args { virtio_id: Some(14), ..args() }), Err(Error::VirtioId { .. })));
        assert!(matches!(Config::new(Args { socket_mode: Some("8".into()), ..args() }), Err(Error::Mode { .. })));
        let nobody = Some("no-such-group-here".into());
        assert!(matches!(Config::new(Args { socket_group: nobody, ..args() }), Err(Error::Group { .. })));
    }
}
