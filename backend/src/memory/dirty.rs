//! Dirty log for live migration: one bit per 4 KiB page of guest-physical memory, shared with the frontend.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use uma_protocol::PAGE_SHIFT;

/// The log of SET_LOG_BASE. Marking takes no lock.
pub struct DirtyLog {
    words: NonNull<AtomicU64>,
    count: usize,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the words are atomics in a mapping that `_keep` holds.
unsafe impl Send for DirtyLog {}
// SAFETY: as for Send.
unsafe impl Sync for DirtyLog {}

impl DirtyLog {
    /// Describes a mapped log of `bytes` bytes (rounded down to words).
    ///
    /// # Safety
    /// `base..base + bytes` must be 8-byte aligned and mapped shared and writable as long as `keep` lives.
    pub unsafe fn new(base: NonNull<u8>, bytes: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { words: base.cast(), count: bytes / 8, _keep: keep }
    }

    /// Marks the pages of `gpa..gpa + len`; pages beyond the log are ignored.
    pub fn mark(&self, gpa: u64, len: u64) {
        if len == 0 {
            return;
        }
        let last = gpa.saturating_add(len - 1) >> PAGE_SHIFT;
        for page in gpa >> PAGE_SHIFT..=last {
            let word = (page / 64) as usize;
            if word >= self.count {
                return;
            }
            // SAFETY: word < count, within the mapping that `new` was promised.
            let word = unsafe { self.words.add(word).as_ref() };
            word.fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_every_page_of_a_range_and_nothing_beyond() {
        let words: Arc<Vec<AtomicU64>> = Arc::new((0..2).map(|_| AtomicU64::new(0)).collect());
        let base = NonNull::new(words.as_ptr() as *mut u8).unwrap();
        // SAFETY: the Arc keeps the vector, which is never resized.
        let log = unsafe { DirtyLog::new(base, 16, words.clone()) };
        log.mark(0x3fff, 2);
        log.mark(63 << 12, 0x2000);
        log.mark(128 << 12, 0x1000);
        assert_eq!(words[0].load(Ordering::Relaxed), 0b11000 | 1 << 63);
        assert_eq!(words[1].load(Ordering::Relaxed), 1);
    }
}
