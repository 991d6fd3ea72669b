//! Memory of every kind, at addresses where it meets no neighbour.

use libuma::{Element, HUGE_SIZE, PAGE_SIZE};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// A mapping that starts at a 2 MiB boundary, between guards, so that it never merges with another one and what a fault
/// moves is known. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
    reserved: (*mut u8, usize),
}

// SAFETY: the mapping is plain memory that belongs to this value alone.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out addresses and shared slices only.
unsafe impl Sync for Mapping {}

fn map(addr: *mut u8, len: usize, prot: i32, flags: i32, fd: i32) -> io::Result<*mut u8> {
    // SAFETY: with MAP_FIXED, `addr` lies in a reservation of ours that nothing uses yet; without it, nothing is replaced.
    let mapped = unsafe { libc::mmap(addr.cast(), len, prot, flags, fd, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(mapped.cast())
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

impl Mapping {
    fn with(len: usize, prot: i32, flags: i32, fd: i32) -> io::Result<Self> {
        let len = len.next_multiple_of(PAGE_SIZE);
        let room = len.next_multiple_of(HUGE_SIZE) + 3 * HUGE_SIZE;
        let start = map(ptr::null_mut(), room, libc::PROT_NONE, ANONYMOUS | libc::MAP_NORESERVE, -1)?;
        let base = start.wrapping_add(start.align_offset(HUGE_SIZE) + HUGE_SIZE);
        map(base, len, prot, flags | libc::MAP_FIXED, fd)?;
        Ok(Self { base, len, reserved: (start, room) })
    }

    /// Private anonymous memory, in 4 KiB pages for sure.
    pub fn small(len: usize) -> Self {
        let mapping = Self::with(len, READ_WRITE, ANONYMOUS, -1).expect("mmap");
        mapping.madvise(libc::MADV_NOHUGEPAGE);
        mapping
    }

    /// Private anonymous memory, in 2 MiB pages where a whole one fits.
    pub fn huge(len: usize) -> Self {
        let mapping = Self::with(len, READ_WRITE, ANONYMOUS, -1).expect("mmap");
        mapping.madvise(libc::MADV_HUGEPAGE);
        mapping
    }

    /// Shared anonymous memory.
    pub fn shared(len: usize) -> Self {
        Self::with(len, READ_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1).expect("mmap")
    }

    /// 2 MiB pages from the hugetlb pool.
    ///
    /// # Errors
    /// Those of mmap(2), if there is no such pool or it is empty.
    pub fn hugetlb(len: usize) -> io::Result<Self> {
        Self::with(len, READ_WRITE, ANONYMOUS | libc::MAP_HUGETLB, -1)
    }

    /// A file, private or shared.
    pub fn file(fd: BorrowedFd<'_>, len: usize, shared: bool) -> Self {
        let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        Self::with(len, READ_WRITE, flags, fd.as_raw_fd()).expect("mmap")
    }

    /// First address.
    pub fn addr(&self) -> *mut u8 {
        self.base
    }

    /// Address of byte `offset`.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        self.base.wrapping_add(offset)
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// 4 KiB pages.
    pub fn pages(&self) -> u64 {
        (self.len / PAGE_SIZE) as u64
    }

    /// The whole as a slice.
    pub fn slice<T: Element>(&self) -> &[T] {
        // SAFETY: mapped, aligned and big enough; any bits are a value. What writes it has exclusive access (see
        // `slice_mut`), or the test accepts torn values and compares after the job's end only.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / size_of::<T>()) }
    }

    /// The whole as a slice that can be written.
    pub fn slice_mut<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: as for `slice`, and the exclusive borrow keeps everything else out.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast(), self.len / size_of::<T>()) }
    }

    /// The whole as atomics, for CPU and device at the same time.
    pub fn atomics(&self) -> &[std::sync::atomic::AtomicU64] {
        // SAFETY: mapped, aligned and big enough; atomics may be shared.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / 8) }
    }

    /// The whole as 32-bit atomics.
    pub fn atomics32(&self) -> &[std::sync::atomic::AtomicU32] {
        // SAFETY: mapped, aligned and big enough; atomics may be shared.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / 4) }
    }

    /// madvise(2) on the whole.
    pub fn madvise(&self, advice: i32) {
        self.madvise_part(0, self.len, advice);
    }

    /// madvise(2) on a part.
    pub fn madvise_part(&self, offset: usize, len: usize, advice: i32) {
        assert!(offset + len <= self.len);
        // SAFETY: within the mapping. Advice that drops contents leaves zeros, which are values of every element type.
        let rc = unsafe { libc::madvise(self.at(offset).cast(), len, advice) };
        assert_eq!(rc, 0, "madvise {advice}: {}", io::Error::last_os_error());
    }

    /// mprotect(2) on a part.
    pub fn protect(&self, offset: usize, len: usize, prot: i32) {
        assert!(offset + len <= self.len);
        // SAFETY: within the mapping; a test touches the part only as the protection allows.
        let rc = unsafe { libc::mprotect(self.at(offset).cast(), len, prot) };
        assert_eq!(rc, 0, "mprotect: {}", io::Error::last_os_error());
    }

    /// Unmaps a part, leaving a hole that allows no access; a test touches it with jobs only.
    pub fn unmap(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len);
        // SAFETY: within the mapping, which is ours; nothing touches the hole afterwards except jobs.
        let rc = unsafe { libc::munmap(self.at(offset).cast(), len) };
        assert_eq!(rc, 0, "munmap: {}", io::Error::last_os_error());
    }

    /// Maps fresh private anonymous memory over a part.
    pub fn remap_fresh(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len);
        map(self.at(offset), len, READ_WRITE, ANONYMOUS | libc::MAP_FIXED, -1).expect("mmap");
    }

    /// Maps fresh private anonymous memory into a hole that [`Mapping::unmap`] made; panics if somebody else took it.
    pub fn fill_hole(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len);
        let flags = ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing.
        let mapped = unsafe { libc::mmap(self.at(offset).cast(), len, READ_WRITE, flags, -1, 0) };
        assert_eq!(mapped, self.at(offset).cast(), "mmap: {}", io::Error::last_os_error());
    }

    /// mremap(2) of a part to `to`'s start, with MREMAP_DONTUNMAP if `keep`.
    pub fn move_part(&self, offset: usize, len: usize, to: &Mapping, keep: bool) {
        assert!(offset + len <= self.len && len <= to.len);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | if keep { libc::MREMAP_DONTUNMAP } else { 0 };
        // SAFETY: both ranges are mappings of ours; what was at the destination is given up.
        let moved = unsafe { libc::mremap(self.at(offset).cast(), len, len, flags, to.base) };
        assert_eq!(moved, to.base.cast(), "mremap: {}", io::Error::last_os_error());
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (start, len) = self.reserved;
        // SAFETY: the reservation and all in it is ours, and borrows of it have ended.
        unsafe { libc::munmap(start.cast(), len) };
    }
}

/// Writes samples into a slice.
pub fn write_samples<T: crate::reference::Number>(slice: &mut [T]) {
    for (index, value) in slice.iter_mut().enumerate() {
        *value = T::sample(index);
    }
}
