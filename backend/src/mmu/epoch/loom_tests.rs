//! The shipped EU side against a model of the driver, in every interleaving that loom finds. Run with `--cfg loom`.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use uma_protocol::sync::EPOCH_MASK;

const ASID: u32 = 1;
const ENTRIES: usize = 8;
/// Values of the one PTE.
const OLD: u64 = 1;
const NEW: u64 = 2;

struct Page {
    epoch: AtomicU64,
    state: AtomicU64,
    ring: Vec<[AtomicU64; 4]>,
}

impl Page {
    fn new() -> Self {
        // Only the first slots are used; atomics that are never touched cost loom nothing.
        let slot = || [0; 4].map(AtomicU64::new);
        Self {
            epoch: AtomicU64::new(0),
            state: AtomicU64::new(asid_state::LIVE),
            ring: (0..ENTRIES).map(|_| slot()).collect(),
        }
    }
}

impl SpacePage for Page {
    fn epoch(&self) -> &AtomicU64 {
        &self.epoch
    }

    fn state(&self) -> &AtomicU64 {
        &self.state
    }

    fn slot(&self, seq: u64) -> Slot<'_> {
        let [seq, start, end, flags] = &self.ring[seq as usize % ENTRIES];
        Slot { seq, start, end, flags }
    }

    fn entries(&self) -> u64 {
        ENTRIES as u64
    }
}

/// One page table entry, the frame that it named first, and what the handshake needs.
struct World {
    page: Page,
    line: AtomicU64,
    pte: AtomicU64,
    /// Who accesses it at the same time as somebody else makes the model fail.
    old_frame: UnsafeCell<u64>,
}

impl World {
    fn new() -> Self {
        Self { page: Page::new(), line: AtomicU64::new(IDLE), pte: AtomicU64::new(OLD), old_frame: UnsafeCell::new(0) }
    }

    /// The driver of SPEC.md §10: change the PTE, publish, wait, then use the frame for something else.
    fn take_back<const FENCE: bool>(&self) {
        self.pte.store(NEW, Ordering::Relaxed);
        let epoch = 1;
        let slot = self.page.slot(epoch);
        slot.seq.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        slot.start.store(0, Ordering::Relaxed);
        slot.end.store(4096, Ordering::Relaxed);
        slot.seq.store(epoch, Ordering::Release);
        self.page.epoch.store(epoch, Ordering::Release);
        if FENCE {
            fence(Ordering::SeqCst);
        }
        loop {
            let active = self.line.load(Ordering::Acquire);
            if active >> 48 != u64::from(ASID) || active & EPOCH_MASK >= epoch {
                break;
            }
            thread::yield_now();
        }
        self.old_frame.with_mut(|frame| {
            // SAFETY: loom reports any access at the same time, which is what is tested.
            unsafe { *frame = 99 }
        });
    }

    /// An EU that works twice on the page, with its translation cached in between.
    fn work<const FENCE: bool, const REREAD: bool>(&self) {
        let (mut seen, mut cached) = (None, None);
        for _ in 0..2 {
            let mut dropped = false;
            enter_with::<Page, FENCE, REREAD>(&self.line, &self.page, ASID, &mut seen, |_| dropped = true).unwrap();
            let pte = cached.take().filter(|_| !dropped).unwrap_or_else(|| self.pte.load(Ordering::Relaxed));
            cached = Some(pte);
            if pte == OLD {
                self.old_frame.with_mut(|frame| {
                    // SAFETY: as above.
                    unsafe { *frame += 1 }
                });
            }
            leave(&self.line);
        }
    }
}

fn check<const EU_FENCE: bool, const REREAD: bool, const DRIVER_FENCE: bool>() {
    loom::model(|| {
        let world = Arc::new(World::new());
        let eu = world.clone();
        let eu = thread::spawn(move || eu.work::<EU_FENCE, REREAD>());
        world.take_back::<DRIVER_FENCE>();
        eu.join().unwrap();
    });
}

fn fails(check: fn()) -> bool {
    std::panic::catch_unwind(check).is_err()
}

#[test]
fn loom_no_eu_uses_a_frame_that_was_taken_back() {
    check::<true, true, true>();
}

#[test]
fn loom_mutant_without_the_eus_fence_fails() {
    assert!(fails(check::<false, true, true>));
}

#[test]
fn loom_mutant_without_the_second_read_fails() {
    assert!(fails(check::<true, false, true>));
}

#[test]
fn loom_mutant_without_the_drivers_fence_fails() {
    assert!(fails(check::<true, true, false>));
}

#[test]
fn loom_a_dead_address_space_is_left_for_good() {
    loom::model(|| {
        let world = Arc::new(World::new());
        let eu = world.clone();
        let eu = thread::spawn(move || {
            let entered = enter(&eu.line, &eu.page, ASID, &mut None, |_| {});
            if entered.is_ok() {
                eu.old_frame.with_mut(|frame| {
                    // SAFETY: loom reports any access at the same time.
                    unsafe { *frame += 1 }
                });
                leave(&eu.line);
            }
        });
        // The driver's end of an address space: DEAD, then one invalidation of everything.
        world.page.state.store(asid_state::DEAD, Ordering::Release);
        world.take_back::<true>();
        eu.join().unwrap();
    });
}
