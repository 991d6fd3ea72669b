//! The file behind one logical device's memory.

use crate::memory::Span;
use rustix::fs::{
    fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create, FallocateFlags, MemfdFlags, SealFlags, SeekFrom,
};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::fs::File;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Sparse file, mapped whole; a DPA is an offset in it.
///
/// The file is a memfd of this logical device alone: a window onto it can never show another VM's bytes. It can't be
/// shrunk (sealed), so the mapping never faults.
pub struct Backing {
    file: File,
    base: NonNull<u8>,
    size: u64,
}

// SAFETY: the mapping lives as long as the value and is reached as atomics or raw copies only.
unsafe impl Send for Backing {}
// SAFETY: as for Send.
unsafe impl Sync for Backing {}

impl Backing {
    /// Makes a sparse file of `size` bytes and maps it.
    ///
    /// # Errors
    /// What the kernel says: no memory for the mapping, no file descriptor.
    pub fn new(size: u64) -> std::io::Result<Self> {
        let fd = memfd_create("uma-device-memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, size)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nobody else's.
        let base =
            unsafe { mmap(std::ptr::null_mut(), size as usize, ProtFlags::READ | ProtFlags::WRITE, flags, &fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { file: File::from(fd), base, size })
    }

    /// Bytes of device memory.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The file, to recognise it in a memory table or to map a window.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of the file that are populated.
    pub fn populated(&self) -> u64 {
        fstat(self.file.as_fd()).map_or(0, |stat| stat.st_blocks as u64 * 512)
    }

    /// Whether all of `dpa..dpa + len` is populated.
    pub fn is_populated(&self, dpa: u64, len: u64) -> bool {
        // A seek moves nobody's position: the file is used through its mapping only.
        rustix::fs::seek(&self.file, SeekFrom::Hole(dpa)).is_ok_and(|hole| hole >= dpa + len)
    }

    /// Where `len` bytes at `dpa` are mapped, or `None` beyond the end.
    #[inline]
    pub fn resolve(&self, dpa: u64, len: u64) -> Option<NonNull<u8>> {
        if dpa >= self.size || len > self.size - dpa {
            return None;
        }
        // SAFETY: `dpa` is inside the mapping of `size` bytes.
        Some(unsafe { self.base.add(dpa as usize) })
    }

    /// `len` bytes at `dpa`, or `None` beyond the end.
    pub fn span(&self, dpa: u64, len: u64) -> Option<Span<'_>> {
        let ptr = self.resolve(dpa, len)?;
        // SAFETY: `resolve` checked the bounds; the mapping lives as long as `self`.
        Some(unsafe { Span::new(ptr, len as usize, true) })
    }

    /// Gives the memory of `dpa..dpa + len` back; it reads as zero from then on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn discard(&self, dpa: u64, len: u64) -> std::io::Result<()> {
        fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, dpa, len)?;
        Ok(())
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: nothing borrows the mapping any more, since spans borrow `self`. A failure leaves it mapped, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.size as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_sparse_and_gives_back() {
        let backing = Backing::new(1 << 36).unwrap();
        assert_eq!(backing.populated(), 0);
        let span = backing.span(0x20_0000, 0x1000).unwrap();
        // SAFETY: nobody else has the new device memory.
        unsafe { span.as_ptr().write(7) };
        assert_eq!(backing.populated(), 0x1000);
        assert!(backing.is_populated(0x20_0000, 0x1000));
        assert!(!backing.is_populated(0x20_0000, 0x2000) && !backing.is_populated(0x1f_f000, 0x1000));
        backing.discard(0x20_0000, 0x1000).unwrap();
        assert_eq!(backing.populated(), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { span.as_ptr().read() }, 0);
    }

    #[test]
    fn ends_where_it_ends() {
        let backing = Backing::new(0x20_0000).unwrap();
        assert!(backing.span(0x1f_f000, 0x1000).is_some());
        assert!(backing.span(0x1f_f000, 0x1001).is_none());
        assert!(backing.span(u64::MAX, 2).is_none());
    }
}
