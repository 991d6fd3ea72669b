//! The programs that run in the guest, built statically.

use crate::command::{output, visible};
use crate::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the binaries of `uma-guest-tests` and the C examples; gives their paths.
///
/// # Errors
/// [`Error::Failed`] with the compiler's words.
pub fn build(root: &Path) -> Result<Vec<PathBuf>, Error> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let folder = root.join("target/guest");
    // A target folder of its own: the flag would rebuild everything else each time.
    visible(
        Command::new(cargo())
            .args(["build", "--release", "-p", "uma-guest-tests", "--bins", "--target", TARGET, "--target-dir"])
            .arg(&folder)
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .current_dir(root),
    )?;
    let built = folder.join(TARGET).join("release");
    let mut programs: Vec<_> = ["uma-demo", "uma-test"].iter().map(|name| built.join(name)).collect();
    programs.extend(examples(root, &folder)?);
    Ok(programs)
}

fn examples(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let source = root.join("guest-driver/lib/examples");
    let entries = std::fs::read_dir(&source).map_err(Error::io("read", &source))?;
    let mut programs = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let program = folder.join(format!("example-{name}"));
        output(
            Command::new("gcc")
                .args(["-static", "-O2", "-Wall", "-Werror", "-pthread"])
                .arg("-I")
                .arg(root.join("guest-driver/lib/include"))
                .arg("-I")
                .arg(root.join("guest-driver/kernel/include/uapi"))
                .arg("-o")
                .arg(&program)
                .arg(&path),
        )?;
        programs.push(program);
    }
    programs.sort();
    Ok(programs)
}

/// Builds the daemon; gives its path.
///
/// # Errors
/// [`Error::Failed`] with the compiler's words.
pub fn daemon(root: &Path) -> Result<PathBuf, Error> {
    visible(Command::new(cargo()).args(["build", "--release", "-p", "vhost-device-uma"]).current_dir(root))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).unwrap_or_else(|| root.join("target"));
    Ok(root.join(target).join("release/vhost-device-uma"))
}

/// The cargo that runs us.
pub fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
