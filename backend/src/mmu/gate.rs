//! Quiescence inside the device: who changes something that EUs use waits until every EU has left the section in which it
//! could have seen the old state. EUs pay two plain stores and share the fence of the epoch handshake.

use super::owner::Owner;
use crate::memory::ControlPage;
use arc_swap::ArcSwapOption;
use std::mem::offset_of;
use std::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use uma_protocol::sync::{EuLine, EU_LINES_OFFSET};

/// Odd while the EU is inside a section. On a line of its own: each EU writes its own twice per section.
#[repr(align(64))]
#[derive(Default)]
struct Inside(AtomicU64);

/// State that all EUs of a device share.
pub struct Gates {
    eus: Box<[Inside]>,
    closed: AtomicBool,
    /// Changes whenever an EU has to look again at memory and sync page.
    generation: AtomicU64,
    sync_page: ArcSwapOption<ControlPage>,
    owners: Mutex<Owners>,
}

/// The threads behind the EUs, and whether they are named in the sync page.
#[derive(Default)]
struct Owners {
    threads: Vec<(u32, Arc<Owner>)>,
    attached: bool,
}

impl Gates {
    /// Gates of `eus` EUs; closed, without a sync page.
    pub fn new(eus: u32) -> Self {
        Self {
            eus: (0..eus).map(|_| Inside::default()).collect(),
            closed: AtomicBool::new(true),
            generation: AtomicU64::new(1),
            sync_page: ArcSwapOption::empty(),
            owners: Mutex::default(),
        }
    }

    /// Number of EUs.
    pub fn eus(&self) -> u32 {
        self.eus.len() as u32
    }

    /// The device's sync page.
    pub fn sync_page(&self) -> Option<Arc<ControlPage>> {
        self.sync_page.load_full()
    }

    /// Changes the device's sync page; EUs use it from their next section on.
    pub fn set_sync_page(&self, page: Option<Arc<ControlPage>>) {
        self.sync_page.store(page);
        self.touch();
    }

    /// Takes the thread of an EU in.
    pub(super) fn add_owner(&self, eu: u32, owner: Arc<Owner>) {
        let mut owners = self.owners();
        if let (true, Some(page)) = (owners.attached, self.sync_page()) {
            owner.attach(page.u32_at(owner_offset(eu)));
        }
        owners.threads.push((eu, owner));
    }

    /// Names the EUs' threads in their lines of the sync page, if there is one.
    pub fn attach_owners(&self) {
        let Some(page) = self.sync_page() else { return };
        let mut owners = self.owners();
        owners.attached = true;
        for (eu, owner) in &owners.threads {
            owner.attach(page.u32_at(owner_offset(*eu)));
        }
    }

    /// Takes the names back. The words are cleared only if `clear`: after a reset the page belongs to somebody else.
    pub fn detach_owners(&self, clear: bool) {
        let page = self.sync_page().filter(|_| clear);
        let mut owners = self.owners();
        if !std::mem::take(&mut owners.attached) {
            return;
        }
        for (eu, owner) in &owners.threads {
            owner.detach(page.as_ref().map(|page| page.u32_at(owner_offset(*eu))));
        }
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every EU look again at guest memory and the sync page before its next section.
    pub fn touch(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes with memory and sync page.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Lets EUs enter.
    pub fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Keeps EUs from entering and makes those inside leave; [`Self::wait_quiescent`] tells when they have.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Whether EUs may not enter.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Marks `eu` as inside. The caller fences (SeqCst) before it looks at anything that a waiter changes.
    #[inline]
    pub(super) fn mark_inside(&self, eu: u32) {
        let inside = &self.eus[eu as usize].0;
        inside.store(inside.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn mark_outside(&self, eu: u32) {
        let inside = &self.eus[eu as usize].0;
        inside.store(inside.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Waits until every EU that is inside a section now has left it. What the caller changed before is seen by every
    /// later section. Returns `false` at the deadline.
    ///
    /// Sections last at most 4 KiB or 16 translations of work, so this is microseconds unless the host preempts an EU; the
    /// loop yields its processor meanwhile. Never called from an EU.
    #[must_use]
    pub fn wait_quiescent(&self, deadline: Instant) -> bool {
        fence(Ordering::SeqCst);
        self.eus.iter().all(|Inside(count)| {
            let seen = count.load(Ordering::Acquire);
            if seen % 2 == 0 {
                return true;
            }
            while count.load(Ordering::Acquire) == seen {
                if Instant::now() >= deadline {
                    return false;
                }
                std::thread::yield_now();
            }
            true
        })
    }
}

/// Where an EU's owner word is in the sync page.
fn owner_offset(eu: u32) -> usize {
    EU_LINES_OFFSET + eu as usize * size_of::<EuLine>() + offset_of!(EuLine, owner)
}
