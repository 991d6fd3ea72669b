//! Loading, unloading, binding and unbinding the driver, as init or an administrator would.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Name of the module.
pub const MODULE: &str = "virtio_uma";
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_uma";

/// The module's file: the environment variable `UMA_MODULE`, or `/virtio_uma.ko`.
pub fn file() -> PathBuf {
    std::env::var_os("UMA_MODULE").unwrap_or_else(|| "/virtio_uma.ko".into()).into()
}

/// insmod.
///
/// # Errors
/// Those of opening the file and of finit_module(2).
pub fn load() -> io::Result<()> {
    let file = File::open(file())?;
    // SAFETY: an open descriptor, an empty string, no flags: the call touches no other memory of ours.
    let rc = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    check(rc)
}

/// rmmod.
///
/// # Errors
/// Those of delete_module(2).
pub fn unload() -> io::Result<()> {
    let name = CString::new(MODULE).expect("no NUL");
    // SAFETY: a NUL-terminated name and flags; the call touches no other memory of ours.
    let rc = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    check(rc)
}

fn check(rc: libc::c_long) -> io::Result<()> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Names of the virtio devices that the driver is bound to.
///
/// # Errors
/// Those of reading sysfs.
pub fn bound() -> io::Result<Vec<String>> {
    let names =
        fs::read_dir(DRIVER)?.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.starts_with("virtio")).collect())
}

/// Takes the driver from a device.
///
/// # Errors
/// Those of writing to sysfs.
pub fn unbind(device: &str) -> io::Result<()> {
    fs::write(format!("{DRIVER}/unbind"), device)
}

/// Gives a device to the driver.
///
/// # Errors
/// Those of writing to sysfs.
pub fn bind(device: &str) -> io::Result<()> {
    fs::write(format!("{DRIVER}/bind"), device)
}
