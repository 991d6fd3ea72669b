//! The cache: `$XDG_CACHE_HOME/virtio-uma`, by content, safe against two runs at once and against kill -9.

use crate::error::Error;
use rustix::fs::{flock, FlockOperation};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The cache, locked for as long as it lives.
pub struct Cache {
    root: PathBuf,
    lock: File,
}

impl Cache {
    /// Opens and locks the cache; waits if another run has it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open() -> Result<Self, Error> {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_else(|| "/tmp".into());
        Self::at(base.unwrap_or_else(|| home.join(".cache")).join("virtio-uma"))
    }

    fn at(root: PathBuf) -> Result<Self, Error> {
        std::fs::create_dir_all(&root).map_err(Error::io("make", &root))?;
        let path = root.join("lock");
        let lock = File::create(&path).map_err(Error::io("make", &path))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            eprintln!("Another run uses {}; waiting for it", root.display());
            flock(&lock, FlockOperation::LockExclusive).map_err(|error| Error::Io {
                what: "lock",
                path,
                source: error.into(),
            })?;
        }
        Ok(Self { root, lock })
    }

    /// Where something is or will be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The lock as standard input of a program that works in the cache: should it outlive us, the next run waits for its end
    /// instead of working in the same folder.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn lock_as_input(&self) -> Result<Stdio, Error> {
        Ok(self.lock.try_clone().map_err(Error::io("lock", &self.root))?.into())
    }

    /// A fresh folder under a name that nobody looks for; what an earlier run left there is removed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn scratch(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.root.join(format!("unfinished-{name}"));
        remove(&path)?;
        std::fs::create_dir_all(&path).map_err(Error::io("make", &path))?;
        Ok(path)
    }

    /// Puts a finished file or folder where others look for it, in one step.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn publish(&self, from: &Path, name: &str) -> Result<PathBuf, Error> {
        let to = self.path(name);
        remove(&to)?;
        std::fs::rename(from, &to).map_err(Error::io("move to", &to))?;
        Ok(to)
    }
}

/// Removes a file or a folder if it is there.
fn remove(path: &Path) -> Result<(), Error> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let removed = if metadata.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    removed.or_else(|error| {
        // A tree that was made in a user namespace has files of subordinate users.
        let done = crate::namespace::Entry::find()
            .ok()
            .is_some_and(|entry| crate::command::succeeds(entry.command().args(["rm", "-rf", "--"]).arg(path)));
        if done {
            Ok(())
        } else {
            Err(Error::io("remove", path)(error))
        }
    })
}

/// Name for content: FNV-1a over all parts, 128 bits.
#[derive(Clone)]
pub struct Key(u128);

impl Key {
    /// Nothing yet.
    pub fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds one part.
    #[must_use]
    pub fn add(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        let length = (part.len() as u64).to_le_bytes();
        for byte in length.iter().chain(part) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        self
    }

    /// Adds every file below a folder, by name and content.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn add_folder(mut self, folder: &Path) -> Result<Self, Error> {
        let mut entries: Vec<_> = std::fs::read_dir(folder)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(Error::io("read", folder))?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            self = self.add(entry.file_name().as_encoded_bytes());
            self = if path.is_dir() {
                self.add_folder(&path)?
            } else {
                self.add(std::fs::read(&path).map_err(Error::io("read", &path))?)
            };
        }
        Ok(self)
    }

    /// As text for a file name.
    pub fn text(&self) -> String {
        format!("{:032x}", self.0)[..16].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_parts_and_their_borders() {
        let key = |parts: &[&str]| parts.iter().fold(Key::new(), |key, part| key.add(part)).text();
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["ab"]), key(&["ab", ""]));
    }

    #[test]
    fn unfinished_work_is_invisible_and_cleaned() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("c")).unwrap();
        let scratch = cache.scratch("x").unwrap();
        std::fs::write(scratch.join("half"), "1").unwrap();
        assert!(!cache.path("x").exists());
        let scratch = cache.scratch("x").unwrap();
        assert!(!scratch.join("half").exists());
        std::fs::write(scratch.join("whole"), "1").unwrap();
        assert!(cache.publish(&scratch, "x").unwrap().join("whole").exists());
        assert!(!scratch.exists());
    }
}
