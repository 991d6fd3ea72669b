//! The owner word of an EU line as a robust futex, so that the driver learns of an EU's death from the host kernel.
//!
//! When a thread ends for whatever reason, SIGKILL included, the kernel walks its robust list (set_robust_list(2),
//! kernel/futex/core.c, `exit_robust_list`) and sets FUTEX_OWNER_DIED in each futex that still holds the thread's id. The EU
//! line's owner word is the list's pending entry.

use crate::memory::ControlPage;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;
use uma_protocol::sync::{EuLine, EU_LINES_OFFSET};

/// `struct robust_list_head` of linux/futex.h. The kernel reads it when the thread ends.
#[repr(C)]
struct Head {
    /// Circular: points to itself, the list is empty.
    list: AtomicPtr<Head>,
    /// Added to an entry's address to find the futex.
    futex_offset: libc::c_long,
    /// The one entry that matters here.
    pending: AtomicPtr<u32>,
}

/// The registration of the calling thread. Not `Send`: it belongs to the thread that made it.
pub struct Owner {
    head: Box<Head>,
    page: Option<(Arc<ControlPage>, u32)>,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Owner {
    /// Registers an empty list for the calling thread. glibc's own list of the thread is replaced: EU threads hold no
    /// robust mutex.
    pub fn of_this_thread() -> Self {
        let mut head = Box::new(Head {
            list: AtomicPtr::new(ptr::null_mut()),
            futex_offset: 0,
            pending: AtomicPtr::new(ptr::null_mut()),
        });
        let address: *mut Head = &mut *head;
        head.list.store(address, Ordering::Relaxed);
        // SAFETY: the head is boxed, so it stays where it is, until `drop` registers nothing in its place.
        unsafe { libc::syscall(libc::SYS_set_robust_list, address, size_of::<Head>()) };
        Self { head, page: None, _not_send: std::marker::PhantomData }
    }

    /// Moves the registration to the line of `eu` in `page`, or to nowhere.
    pub fn register(&mut self, page: Option<Arc<ControlPage>>, eu: u32) {
        self.release();
        if let Some(page) = page {
            let word = page.u32_at(word_offset(eu));
            self.head.pending.store(word.as_ptr(), Ordering::SeqCst);
            word.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Release);
            self.page = Some((page, eu));
        }
    }

    fn release(&mut self) {
        if let Some((page, eu)) = self.page.take() {
            page.u32_at(word_offset(eu)).store(0, Ordering::Release);
        }
        self.head.pending.store(ptr::null_mut(), Ordering::SeqCst);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.release();
        // SAFETY: registering no list is always allowed; the box may go afterwards.
        unsafe { libc::syscall(libc::SYS_set_robust_list, ptr::null::<Head>(), size_of::<Head>()) };
    }
}

fn word_offset(eu: u32) -> usize {
    EU_LINES_OFFSET + eu as usize * size_of::<EuLine>() + offset_of!(EuLine, owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::regions::testing::heap_region;
    use crate::memory::GuestMemory;
    use uma_protocol::sync::OWNER_DIED;

    fn page() -> Arc<ControlPage> {
        let memory = GuestMemory::default();
        memory.replace(vec![heap_region(0, 0x1000)]);
        Arc::new(ControlPage::new(&memory.load(), 0).unwrap())
    }

    #[test]
    fn a_thread_that_dies_leaves_its_mark() {
        let page = page();
        let inner = page.clone();
        std::thread::spawn(move || {
            let mut owner = Owner::of_this_thread();
            owner.register(Some(inner), 3);
            // As after a SIGKILL: nothing of ours runs any more.
            std::mem::forget(owner);
        })
        .join()
        .unwrap();
        assert_ne!(page.u32_at(word_offset(3)).load(Ordering::Acquire) & OWNER_DIED, 0);
    }

    #[test]
    fn a_thread_that_ends_in_order_leaves_nothing() {
        let page = page();
        let inner = page.clone();
        std::thread::spawn(move || {
            let mut owner = Owner::of_this_thread();
            owner.register(Some(inner.clone()), 0);
            assert_ne!(inner.u32_at(word_offset(0)).load(Ordering::Acquire), 0);
        })
        .join()
        .unwrap();
        assert_eq!(page.u32_at(word_offset(0)).load(Ordering::Acquire), 0);
    }
}
