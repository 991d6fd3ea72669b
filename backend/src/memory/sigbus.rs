//! A frontend may cut its file short under a region that is in use: the next access is SIGBUS. The handler maps zeros
//! over the page and marks the region lost, so that nothing of it resolves any more; the daemon goes on.
//!
//! The whole region is lost, not the page: what is read there may be zeros that the guest never wrote. An EU that holds
//! a translation from before keeps it until its next walk, so a job may still end well on such zeros.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Once;

/// Regions that can be watched at once: 8 of a frontend without memory slots, twice while they change, for 16 sockets.
const SLOTS: usize = 256;
const FREE: usize = usize::MAX;
const NOTE: &[u8] = b"vhost-device-uma: a file of guest memory was cut short under its region: the region is lost\n";

struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

impl Slot {
    /// Whether the slot watches `addr`; safe in a signal handler.
    fn holds(&self, addr: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        // Looked at again: another thread may just have given the slot to another region.
        start <= addr && addr < end && self.start.load(Ordering::Acquire) == start
    }
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; SLOTS];

/// Keeps a mapping watched; must end before the mapping does.
pub(super) struct Watch(Option<&'static Slot>);

impl Watch {
    /// Watches `len` bytes at `host`. Without a free slot the region is not watched, and its truncation ends the daemon.
    pub(super) fn new(host: NonNull<u8>, len: u64) -> Self {
        let free = |slot: &&Slot| !slot.taken.swap(true, Ordering::AcqRel);
        let slot = TABLE.iter().find(free);
        if let Some(slot) = slot {
            let start = host.as_ptr() as usize;
            slot.lost.store(false, Ordering::Relaxed);
            slot.end.store(start.saturating_add(len as usize), Ordering::Release);
            slot.start.store(start, Ordering::Release);
        }
        Self(slot)
    }

    /// Whether an access has met a hole.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_some_and(|slot| slot.lost.load(Ordering::Relaxed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.start.store(FREE, Ordering::Release);
            slot.taken.store(false, Ordering::Release);
        }
    }
}

/// Installs the handler, once per process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the action is zeroed and then filled in; the handler does only what is allowed in one. SA_ONSTACK: the
        // alternate stack that std gives its threads, if the thread has one.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    });
}

extern "C" fn handle(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo of a SIGBUS; errno is the thread's own and put back, since the code that was
    // interrupted may be about to read it; the calls are system calls without locks.
    unsafe {
        let errno = *libc::__errno_location();
        let addr = (*info).si_addr() as usize;
        let slot = TABLE.iter().find(|slot| slot.holds(addr));
        match slot {
            Some(slot) if (*info).si_code == libc::BUS_ADRERR && cover(addr) => {
                if !slot.lost.swap(true, Ordering::Relaxed) {
                    libc::write(2, NOTE.as_ptr().cast(), NOTE.len());
                }
            }
            // Not ours, or bad hardware: the access is repeated and ends the process as it would have.
            _ => {
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
            }
        }
        *libc::__errno_location() = errno;
    }
}

/// Maps zeros over the page of `addr`: 4 KiB, or the 2 MiB that a hugetlb mapping can be split at.
///
/// # Safety
/// `addr` must lie in a mapping that is watched.
unsafe fn cover(addr: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    [4096, 2 << 20].into_iter().any(|size: usize| {
        let page = addr & !(size - 1);
        // The larger page must not reach out of the region.
        let inside = TABLE.iter().any(|slot| slot.holds(page) && slot.holds(page + size - 1));
        // SAFETY: the page lies whole inside one watched mapping, of which every access is raw or atomic and expects any value.
        inside && unsafe { libc::mmap(page as *mut _, size, rights, flags, -1, 0) } != libc::MAP_FAILED
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_hole_reads_as_zero_and_the_region_is_lost() {
        install();
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of two pages of our own file.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), 8192, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let watch = Watch::new(NonNull::new(base.cast()).unwrap(), 8192);
        let (first, second) = (base.cast::<u64>(), base.wrapping_byte_add(4096).cast::<u64>());
        // SAFETY: both words are mapped; the second one's page is covered by the handler when the file has gone from under it.
        unsafe {
            first.write_volatile(1);
            second.write_volatile(2);
            file.set_len(4096).unwrap();
            assert!(!watch.is_lost());
            assert_eq!((first.read_volatile(), second.read_volatile()), (1, 0));
            assert!(watch.is_lost());
            second.write_volatile(3);
            drop(watch);
            libc::munmap(base, 8192);
        }
        assert_eq!(file.metadata().unwrap().len(), 4096);
    }
}
