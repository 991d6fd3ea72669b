//! Where pages are.

use crate::context::call;
use crate::{sys, Result, PAGE_SIZE};
use std::os::fd::BorrowedFd;

/// Where the pages of a range are; counts are 4 KiB pages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residency {
    /// Pages in guest RAM.
    pub system: u64,
    /// Pages in device memory.
    pub device: u64,
    /// Pages that are nowhere.
    pub none: u64,
    /// Pages that the device has a translation for.
    pub mapped: u64,
    /// Every page in order.
    pub pages: Vec<PageState>,
}

/// Where one page is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PageState(pub u8);

impl PageState {
    /// In guest RAM.
    pub const fn in_system(self) -> bool {
        self.0 & sys::PAGE_WHERE_MASK == sys::PAGE_SYSTEM
    }
    /// In device memory.
    pub const fn in_device(self) -> bool {
        self.0 & sys::PAGE_WHERE_MASK == sys::PAGE_DEVICE
    }
    /// Part of a 2 MiB page.
    pub const fn huge(self) -> bool {
        self.0 & sys::PAGE_HUGE != 0
    }
    /// The device has a translation for it.
    pub const fn mapped(self) -> bool {
        self.0 & sys::PAGE_MAPPED != 0
    }
}

impl std::fmt::Debug for PageState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match self.0 & sys::PAGE_WHERE_MASK {
            sys::PAGE_NONE => "none",
            sys::PAGE_SYSTEM => "system",
            sys::PAGE_DEVICE => "device",
            _ => "?",
        };
        let huge = if self.huge() { "+huge" } else { "" };
        let mapped = if self.mapped() { "+mapped" } else { "" };
        write!(f, "{place}{huge}{mapped}")
    }
}

impl Residency {
    pub(crate) fn ask(fd: BorrowedFd<'_>, start: u64, length: u64) -> Result<Self> {
        // one byte per page; the driver refuses lengths above 1 GiB before it writes anything
        let pages = length.min(1 << 30) as usize / PAGE_SIZE;
        let mut bytes = vec![0u8; pages];
        let mut raw = sys::Residency { start, length, vec: bytes.as_mut_ptr() as u64, ..Default::default() };
        // SAFETY: the structure is the one of the request; `vec` has a byte for each page of the range, and a range that
        // was cut to size here is one that the driver refuses.
        unsafe { sys::ioctl(fd, sys::IOC_RESIDENCY, &mut raw) }.map_err(call("UMA_IOC_RESIDENCY"))?;
        let pages = bytes.into_iter().map(PageState).collect();
        Ok(Self { system: raw.system, device: raw.device, none: raw.none, mapped: raw.mapped, pages })
    }
}
