//! From a checkout to a [`Kit`].

use crate::cache::Cache;
use crate::error::Error;
use crate::guest::programs;
use crate::guest::qemu::Qemu;
use crate::guest::run::Kit;
use crate::module;
use crate::tree::Tree;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The kernel that guests boot unless asked otherwise.
pub const KERNEL: &str = "7.3";

/// Top of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Fetches and builds everything for a guest with `kernel`.
///
/// # Errors
/// [`Error::NoGuest`] where no guest can be had; otherwise what failed.
pub fn kit(kernel: &str) -> Result<Kit, Error> {
    let root = root();
    let cache = Cache::open()?;
    let tree = Tree::get(&cache)?;
    let kernel = tree.kernel(kernel)?;
    let module = module::build(&cache, &tree, &kernel, &root.join("guest-driver/kernel"))?;
    // What follows does not work in the cache.
    drop(cache);
    let begin = Instant::now();
    eprintln!("Building the device and the guest's programs");
    let daemon = programs::daemon(&root)?;
    let programs = programs::build(&root)?;
    eprintln!("  {} s", begin.elapsed().as_secs());
    let qemu = Qemu::find(&tree)?;
    eprintln!("QEMU {}, Linux {}", qemu.version, kernel.release);
    Ok(Kit { tree, kernel, qemu, module, programs, daemon })
}

/// Builds the module for one kernel, with every warning an error.
///
/// # Errors
/// As [`module::build`].
pub fn module_for(kernel: &str) -> Result<String, Error> {
    let cache = Cache::open()?;
    let tree = Tree::get(&cache)?;
    let kernel = tree.kernel(kernel)?;
    module::build(&cache, &tree, &kernel, &root().join("guest-driver/kernel"))?;
    Ok(kernel.release)
}
