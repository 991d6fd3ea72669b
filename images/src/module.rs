//! Building virtio_uma.ko inside the tree.

use crate::cache::{Cache, Key};
use crate::command::output_with;
use crate::error::Error;
use crate::namespace::Entry;
use crate::tree::{Kernel, Tree};
use std::path::{Path, PathBuf};

/// Runs in namespaces of its own: $1 = tree, $2 = sources, $3 = headers. objtool needs /proc. The kernel-doc check needs
/// interpreters that the tree does not have. Nothing of the host's environment may change what is built.
const SCRIPT: &str = r#"set -e
mount -t proc proc "$1/proc"
mount --bind "$2" "$1/mnt"
exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
  make -s -j"$(nproc)" -C "$3" M=/mnt W=1 cmd_checkdoc=true modules 2>&1
"#;

/// Lines that say nothing about the code.
const NOISE: &[&str] = &["Skipping BTF generation", "make[", "make:"];

/// The module for a kernel, from the cache or built; a warning is a failure.
///
/// # Errors
/// [`Error::NoGuest`], [`Error::Failed`], [`Error::Warnings`].
pub fn build(cache: &Cache, tree: &Tree, kernel: &Kernel, sources: &Path) -> Result<PathBuf, Error> {
    let key = Key::new().add(SCRIPT).add(&kernel.release).add_folder(sources)?;
    let name = format!("virtio_uma-{}.ko", key.text());
    let path = cache.path(&name);
    if path.exists() {
        return Ok(path);
    }
    eprintln!("Building virtio_uma.ko for {}", kernel.release);
    let entry = Entry::find()?;
    let scratch = cache.scratch("module")?;
    copy_folder(sources, &scratch)?;
    let headers = Tree::headers(kernel);
    let mut command = entry.command();
    command.args(["sh", "-c", SCRIPT, "sh"]).arg(tree.path()).arg(&scratch).arg(headers);
    let printed = output_with(&mut command, cache.lock_as_input()?)?;
    let warnings: Vec<_> =
        printed.lines().filter(|line| !NOISE.iter().any(|noise| line.contains(noise)) && !line.is_empty()).collect();
    if !warnings.is_empty() {
        return Err(Error::Warnings { kernel: kernel.release.clone(), output: warnings.join("\n") });
    }
    // Debug information is 98 % of the file, and guests load slowly enough.
    let built = scratch.join("virtio_uma.ko");
    let _ = crate::command::succeeds(tree.program("usr/bin/strip").arg("-g").arg(&built));
    cache.publish(&built, &name)
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(to).map_err(Error::io("make", to))?;
    let entries = std::fs::read_dir(from).map_err(Error::io("read", from))?;
    for entry in entries.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            std::fs::copy(&source, &target).map_err(Error::io("copy", &source))?;
        }
    }
    Ok(())
}
