//! Listening sockets.

use crate::error::Error;
use rustix::fs::{chown, Gid};
use std::io::ErrorKind;
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A socket, removed when it is dropped if it was made here.
pub struct Socket {
    /// Not blocking.
    pub listener: UnixListener,
    /// Where it is, if it was made here.
    pub path: Option<PathBuf>,
}

impl Socket {
    /// Makes a socket at `path`. One that a dead daemon left behind is replaced.
    ///
    /// # Errors
    /// [`Error::NotASocket`], [`Error::InUse`], [`Error::Bind`].
    pub fn bind(path: &Path, mode: u32, group: Option<u32>) -> Result<Self, Error> {
        remove_stale(path)?;
        let failed = |source| Error::Bind { path: path.to_owned(), source };
        // Nobody may connect between the making and the permissions.
        let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(umask);
        let socket = Self { listener: bound.map_err(failed)?, path: Some(path.to_owned()) };
        if let Some(group) = group {
            chown(path, None, Some(Gid::from_raw(group))).map_err(|error| failed(error.into()))?;
        }
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(failed)?;
        socket.listener.set_nonblocking(true).map_err(failed)?;
        Ok(socket)
    }

    /// Takes a socket that a service manager made.
    ///
    /// # Errors
    /// [`Error::NotListening`].
    pub fn from_fd(fd: RawFd) -> Result<Self, Error> {
        let wrong = || Error::NotListening { fd };
        if fd < 3 {
            return Err(wrong());
        }
        // SAFETY: the operator gave this descriptor to us for this; nothing else here knows it.
        let listener = unsafe { UnixListener::from_raw_fd(fd) };
        if !rustix::net::sockopt::socket_acceptconn(&listener).unwrap_or(false) || listener.local_addr().is_err() {
            // Not ours to close.
            std::mem::forget(listener);
            return Err(wrong());
        }
        let _ = rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC);
        listener.set_nonblocking(true).map_err(|_| wrong())?;
        Ok(Self { listener, path: None })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), Error> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(Error::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(?path, "a socket that nobody serves is replaced");
            std::fs::remove_file(path).map_err(|source| Error::Bind { path: path.to_owned(), source })
        }
        _ => Err(Error::InUse { path: path.to_owned() }),
    }
}
