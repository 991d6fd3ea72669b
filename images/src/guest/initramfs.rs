//! The guest's root: busybox, the module, programs, one script.

use super::cpio::Cpio;
use crate::error::Error;
use flate2::{write::GzEncoder, Compression};
use std::path::{Path, PathBuf};

/// First process. The console is ttyS0; results go to ttyS1, so that kernel messages never mix with them.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp TERM=linux
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /tmp
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
ip link set lo up 2>/dev/null
insmod /virtio_uma.ko || echo "virtio_uma.ko does not load" >&2
if [ -f /command ]; then
  stty -F /dev/ttyS1 raw 2>/dev/null
  sh /command >/dev/ttyS1 2>&1 </dev/null
  echo "UMA-EXIT $?" >/dev/ttyS1
else
  echo
  echo "This guest has the device: /dev/uma0. Try: uma-demo, example-scale, uma-test --list. Ctrl-A x leaves."
  setsid cttyhack sh
fi
sync
poweroff -f
"#;

/// What goes in.
pub struct Contents<'a> {
    /// The static busybox.
    pub busybox: &'a Path,
    /// virtio_uma.ko.
    pub module: &'a Path,
    /// Programs for /bin.
    pub programs: &'a [PathBuf],
    /// Shell script to run; without one the guest gives a shell.
    pub command: Option<&'a str>,
}

/// Writes the archive to `path`.
///
/// # Errors
/// [`Error::Io`].
pub fn write(path: &Path, contents: &Contents<'_>) -> Result<(), Error> {
    let failed = || Error::io("write", path);
    let file = std::fs::File::create(path).map_err(failed())?;
    let mut cpio = Cpio::new(GzEncoder::new(file, Compression::fast()));
    for folder in ["bin", "dev", "proc", "sys", "tmp", "root"] {
        cpio.folder(folder).map_err(failed())?;
    }
    let mut files = vec![("bin/busybox".to_owned(), read(contents.busybox)?)];
    files.push(("virtio_uma.ko".into(), read(contents.module)?));
    for program in contents.programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        files.push((format!("bin/{name}"), read(program)?));
    }
    files.push(("init".into(), INIT.into()));
    files.extend(contents.command.map(|command| ("command".to_owned(), command.as_bytes().to_vec())));
    for (name, content) in files {
        cpio.file(&name, 0o755, &content).map_err(failed())?;
    }
    cpio.finish().and_then(GzEncoder::finish).map_err(failed())?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(Error::io("read", path))
}
