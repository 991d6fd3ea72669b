//! The owner word of an EU line as a robust futex, so that the driver learns of an EU's death from the host kernel.
//!
//! When a thread ends for whatever reason, SIGKILL included, the kernel walks its robust list (set_robust_list(2),
//! kernel/futex/core.c, `exit_robust_list`) and sets FUTEX_OWNER_DIED in each futex that still holds the thread's id. The EU
//! line's owner word is the list's pending entry.
//!
//! The list is read only when the thread ends, so the device's control thread moves the registration while the EU is out of
//! its section: what a park or a reset leaves behind does not depend on when the EU wakes up. A word that was written after
//! a guest reset would be a wild write into the next guest's memory.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::Arc;

/// `struct robust_list_head` of linux/futex.h, then what we keep beside it. The kernel reads it when the thread ends.
#[repr(C)]
pub struct Owner {
    /// Circular: points to itself, the list is empty.
    list: AtomicPtr<Owner>,
    /// Added to an entry's address to find the futex.
    futex_offset: libc::c_long,
    /// The one entry that matters here.
    pending: AtomicPtr<u32>,
    /// The thread.
    thread: u32,
}

/// Size of the kernel's structure: list, offset and pending entry.
const HEAD_SIZE: usize = 3 * size_of::<usize>();

impl Owner {
    /// Names the owner in `word` and makes the kernel mark it should the thread die.
    pub fn attach(&self, word: &AtomicU32) {
        self.pending.store(word.as_ptr(), Ordering::SeqCst);
        word.store(self.thread, Ordering::Release);
    }

    /// Gives the registration up; `word` is cleared if it is given, that is if its page is still ours to write.
    pub fn detach(&self, word: Option<&AtomicU32>) {
        if let Some(word) = word {
            word.store(0, Ordering::Release);
        }
        self.pending.store(ptr::null_mut(), Ordering::SeqCst);
    }
}

/// Keeps the list of the thread that made it; not `Send`.
pub struct Registered {
    owner: Arc<Owner>,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Registered {
    /// Registers an empty list for the calling thread. glibc's own list of the thread is replaced: EU threads hold no
    /// robust mutex.
    pub fn this_thread() -> Self {
        let owner = Arc::new(Owner {
            list: AtomicPtr::new(ptr::null_mut()),
            futex_offset: 0,
            pending: AtomicPtr::new(ptr::null_mut()),
            thread: rustix::thread::gettid().as_raw_nonzero().get() as u32,
        });
        owner.list.store(Arc::as_ptr(&owner).cast_mut(), Ordering::Relaxed);
        // SAFETY: the Arc keeps the head where it is until `drop` registers nothing in its place, on this same thread.
        unsafe { libc::syscall(libc::SYS_set_robust_list, Arc::as_ptr(&owner), HEAD_SIZE) };
        Self { owner, _not_send: std::marker::PhantomData }
    }

    /// The owner, for whoever moves the registration.
    pub fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registering no list is always allowed; the head may go afterwards.
        unsafe { libc::syscall(libc::SYS_set_robust_list, ptr::null::<Owner>(), HEAD_SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uma_protocol::sync::OWNER_DIED;

    #[test]
    fn a_thread_that_dies_leaves_its_mark() {
        let word = Arc::new(AtomicU32::new(0));
        let inner = word.clone();
        std::thread::spawn(move || {
            let registered = Registered::this_thread();
            registered.owner().attach(&inner);
            assert_ne!(inner.load(Ordering::Acquire), 0);
            // As after a SIGKILL: nothing of ours runs any more.
            std::mem::forget(registered);
        })
        .join()
        .unwrap();
        assert_ne!(word.load(Ordering::Acquire) & OWNER_DIED, 0);
    }

    #[test]
    fn a_detached_word_is_nobodys_and_is_not_written_again() {
        let word = Arc::new(AtomicU32::new(0));
        let inner = word.clone();
        std::thread::spawn(move || {
            let registered = Registered::this_thread();
            registered.owner().attach(&inner);
            registered.owner().detach(Some(&inner));
            assert_eq!(inner.load(Ordering::Acquire), 0);
            inner.store(77, Ordering::Release);
            registered.owner().detach(None);
        })
        .join()
        .unwrap();
        assert_eq!(word.load(Ordering::Acquire), 77);
    }
}
