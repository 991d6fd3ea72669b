//! The folder of one run: sockets, initramfs, console, logs, command lines.

use crate::error::Error;
use rustix::process::{test_kill_process, Pid};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Followed by the process that uses it. Folders that are kept have another name.
const PREFIX: &str = "uma-guest-";

/// Removed when it goes out of scope, unless it is kept.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes one. It is in the temporary folder of the system: sockets may not have long paths. What runs that were killed left is
    /// removed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new() -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let temporary = std::env::temp_dir();
        remove_left(&temporary);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = temporary.join(format!("{PREFIX}{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(Error::io("make", &path))?;
        Ok(Self { path })
    }

    /// Where a file of it is.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file of it as text; empty if there is none.
    pub fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Keeps it; gives where it is now.
    pub fn keep(mut self) -> PathBuf {
        let path = std::mem::take(&mut self.path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().replacen(PREFIX, "uma-kept-", 1);
        let kept = path.with_file_name(name);
        // Of an earlier process with our number.
        let _ = std::fs::remove_dir_all(&kept);
        match std::fs::rename(&path, &kept) {
            Ok(()) => kept,
            Err(_) => path,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes folders of processes that are no more. Those of other users stay: we may not.
fn remove_left(temporary: &Path) {
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner).and_then(Pid::from_raw);
        if owner.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The process in the name of a folder.
fn owner(name: &str) -> Option<i32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_end_with_their_process() {
        let temporary = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let left = temporary.path().join(format!("{PREFIX}{}-0", child.id()));
        let ours = temporary.path().join(format!("{PREFIX}{}-0", std::process::id()));
        let other = temporary.path().join("uma-kept-1-0");
        for folder in [&left, &ours, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        remove_left(temporary.path());
        assert!(!left.exists() && ours.exists() && other.exists());
    }

    #[test]
    fn what_is_kept_stays() {
        let folder = Folder::new().unwrap();
        std::fs::write(folder.join("log"), "x").unwrap();
        let kept = folder.keep();
        assert_eq!(std::fs::read_to_string(kept.join("log")).unwrap(), "x");
        std::fs::remove_dir_all(kept).unwrap();
        let folder = Folder::new().unwrap();
        let path = folder.path.clone();
        drop(folder);
        assert!(!path.exists());
    }
}
