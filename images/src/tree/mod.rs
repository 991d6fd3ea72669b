//! The Debian tree with QEMU, kernels, headers and a compiler.

mod bootstrap;
mod sources;

use crate::cache::{Cache, Key};
use crate::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the tree holds.
const PACKAGES: &[&str] = &[
    "qemu-system-x86",
    "seabios",
    "linux-image-cloud-amd64",
    "linux-headers-cloud-amd64",
    "make",
    "gcc-14",
    "binutils",
    "kmod",
    "busybox-static",
    "libc6-dev",
];
/// Changes when the way the tree is made changes.
const RECIPE: &str = "1";

/// A tree in the cache.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Its root.
    pub root: PathBuf,
}

/// A kernel in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// As of `uname -r`.
    pub release: String,
}

impl Tree {
    /// Takes the tree from the cache or makes it.
    ///
    /// # Errors
    /// [`Error::NoGuest`] where none can be made; otherwise what went wrong.
    pub fn get(cache: &Cache) -> Result<Self, Error> {
        let sources = sources::Sources::find();
        let key = PACKAGES.iter().fold(Key::new().add(RECIPE).add(sources.mirror()), |key, package| key.add(package));
        let name = format!("tree-{}", key.text());
        let root = cache.path(&name);
        if !root.join("usr/bin/qemu-system-x86_64").exists() {
            bootstrap::make(cache, &sources, PACKAGES, &name)?;
        }
        Ok(Self { root })
    }

    /// The kernel whose release begins with `wanted`, e.g. `7.3`.
    ///
    /// # Errors
    /// [`Error::NoKernel`].
    pub fn kernel(&self, wanted: &str) -> Result<Kernel, Error> {
        let names: Vec<String> = std::fs::read_dir(self.root.join("lib/modules"))
            .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        pick(&names, wanted)
            .map(|release| Kernel { release })
            .ok_or_else(|| Error::NoKernel { wanted: wanted.into(), have: names.join(", ") })
    }

    /// A program of the tree, run from outside by the tree's own loader: no root, no chroot.
    pub fn program(&self, path: &str) -> Command {
        let mut command = Command::new(self.root.join("lib64/ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(self.root.join("usr/lib/x86_64-linux-gnu")).arg(self.root.join(path));
        command
    }

    /// Where a kernel's image is.
    pub fn image(&self, kernel: &Kernel) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", kernel.release))
    }

    /// The static busybox.
    pub fn busybox(&self) -> PathBuf {
        let path = self.root.join("usr/bin/busybox");
        if path.exists() {
            path
        } else {
            self.root.join("bin/busybox")
        }
    }

    /// Folder of a kernel's headers, as seen inside the tree.
    pub fn headers(kernel: &Kernel) -> String {
        format!("/usr/src/linux-headers-{}", kernel.release)
    }

    /// The root as a path.
    pub fn path(&self) -> &Path {
        &self.root
    }
}

/// The newest release that begins with the numbers of `wanted`.
fn pick(names: &[String], wanted: &str) -> Option<String> {
    let matches = |name: &&String| {
        name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    names.iter().filter(matches).max_by_key(|name| numbers(name)).cloned()
}

/// The leading numbers of a release, for comparing.
fn numbers(release: &str) -> Vec<u32> {
    release.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_picked_by_whole_numbers() {
        let names =
            ["6.12.9-amd64", "6.12.117+deb13-cloud-amd64", "7.3.4+deb13-cloud-amd64", "7.30.1-x"].map(String::from);
        assert_eq!(pick(&names, "6.12").unwrap(), "6.12.117+deb13-cloud-amd64");
        assert_eq!(pick(&names, "7.3").unwrap(), "7.3.4+deb13-cloud-amd64");
        assert_eq!(pick(&names, "6.1"), None);
    }
}
