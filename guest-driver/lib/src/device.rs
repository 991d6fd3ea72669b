//! The device file.

use crate::{sys, Context, Error, Result};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use uma_protocol::request::{DeviceCounters, MemoryInfo};

/// A device; [`Device::context`] makes an address space on it.
#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    file: File,
}

/// What the driver and this kernel can do with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

/// What a device is and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// What works.
    pub features: Features,
    /// Bytes of device memory.
    pub device_bytes: u64,
    /// Of these, in use by no page now.
    pub device_free: u64,
    /// Capability bits that the driver accepted.
    pub capabilities: u64,
    /// Session between driver and device.
    pub session: u64,
    /// Jobs that a context can have unfinished or not waited for.
    pub max_jobs: u32,
    /// Streams of a context.
    pub max_streams: u32,
    /// Timeline fences of a context.
    pub max_fences: u32,
    /// Execution units.
    pub num_eus: u32,
    /// The device is lost: every job ends with an error until the driver is bound anew.
    pub lost: bool,
}

/// Totals of the device over every process.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DeviceStats {
    /// The device's own counters.
    pub counters: DeviceCounters,
    /// Its memory and what is in flight.
    pub memory: MemoryInfo,
    /// Address spaces that the driver has created.
    pub asids: u64,
    /// 4 KiB device pages in use.
    pub pages_used: u64,
    /// 4 KiB device pages kept back until a reset.
    pub pages_quarantined: u64,
}

impl Features {
    /// Contexts can be created.
    pub const fn mirrored(self) -> bool {
        self.0 & sys::FEATURE_MIRRORED != 0
    }
    /// Pages move to device memory; without it jobs use every page where it is.
    pub const fn private(self) -> bool {
        self.0 & sys::FEATURE_PRIVATE != 0
    }
    /// 2 MiB pages move as a whole.
    pub const fn large(self) -> bool {
        self.0 & sys::FEATURE_LARGE != 0
    }
    /// Kernels with atomics are offered.
    pub const fn atomics(self) -> bool {
        self.0 & sys::FEATURE_ATOMICS != 0
    }
}

impl Device {
    /// Opens a device file, usually `/dev/uma0`.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        match open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(Error::Open { path, source }),
        }
    }

    /// Makes the address space of this process known to the device.
    ///
    /// # Errors
    /// [`Error::Open`]; [`Error::Call`], with ENOSPC if the device has no address space left.
    pub fn context(&self) -> Result<Context> {
        let file = open(&self.path).map_err(|source| Error::Open { path: self.path.clone(), source })?;
        Context::create(file)
    }

    /// Asks what the device is.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn query(&self) -> Result<Info> {
        let mut raw = sys::Query::default();
        // SAFETY: the structure is the one of the request, and holds no addresses.
        unsafe { sys::ioctl(self.as_fd(), sys::IOC_QUERY, &mut raw) }
            .map_err(|source| Error::Call { call: "UMA_IOC_QUERY", source })?;
        Ok(Info {
            features: Features(raw.features),
            device_bytes: raw.device_bytes,
            device_free: raw.device_free,
            capabilities: raw.capabilities,
            session: raw.session,
            max_jobs: raw.max_jobs,
            max_streams: raw.max_streams,
            max_fences: raw.max_fences,
            num_eus: raw.num_eus,
            lost: raw.state != sys::STATE_OK,
        })
    }

    /// Asks for the totals of the device; a round trip to the device itself.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn stats(&self) -> Result<DeviceStats> {
        device_stats(self.as_fd())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

pub(crate) fn device_stats(fd: BorrowedFd<'_>) -> Result<DeviceStats> {
    let mut raw = sys::RawDeviceStats::default();
    // SAFETY: the structure is the one of the request, and holds no addresses.
    unsafe { sys::ioctl(fd, sys::IOC_DEVICE_STATS, &mut raw) }
        .map_err(|source| Error::Call { call: "UMA_IOC_DEVICE_STATS", source })?;
    Ok(DeviceStats {
        counters: zerocopy::transmute!(raw.counters),
        memory: zerocopy::transmute!(raw.memory),
        asids: raw.asids,
        pages_used: raw.pages_used,
        pages_quarantined: raw.pages_quarantined,
    })
}
