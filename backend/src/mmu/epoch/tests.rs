//! What one thread can show, the ring's overrun among it: random interleavings do not find that one.

use super::*;
use std::cell::Cell;

const ENTRIES: u64 = 8;

struct Page {
    epoch: AtomicU64,
    state: AtomicU64,
    ring: Vec<[AtomicU64; 4]>,
    /// Invalidations that the driver publishes while the EU reads the first slot.
    sneaks: Cell<u64>,
}

impl Page {
    fn new() -> Self {
        Self {
            epoch: AtomicU64::new(0),
            state: AtomicU64::new(asid_state::LIVE),
            ring: (0..ENTRIES).map(|_| [0; 4].map(AtomicU64::new)).collect(),
            sneaks: Cell::new(0),
        }
    }

    /// Publishes the next invalidation; its range tells its number.
    fn publish(&self) {
        let epoch = self.epoch.load(Ordering::Relaxed) + 1;
        let [seq, start, end, _] = &self.ring[(epoch % ENTRIES) as usize];
        seq.store(0, Ordering::Relaxed);
        start.store(epoch << 12, Ordering::Relaxed);
        end.store((epoch + 1) << 12, Ordering::Relaxed);
        seq.store(epoch, Ordering::Release);
        self.epoch.store(epoch, Ordering::Release);
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
        for _ in 0..self.sneaks.take() {
            self.publish();
        }
        let [seq, start, end, flags] = &self.ring[(seq % ENTRIES) as usize];
        Slot { seq, start, end, flags }
    }

    fn entries(&self) -> u64 {
        ENTRIES
    }
}

fn drops<const CHECK: bool>(page: &Page, last: u64, now: u64) -> Vec<Drop> {
    let mut drops = Vec::new();
    catch_up::<Page, CHECK>(page, last, now, |drop| drops.push(drop));
    drops
}

fn range(seq: u64) -> Drop {
    Drop::Range { start: seq << 12, end: (seq + 1) << 12 }
}

#[test]
fn ranges_come_in_order() {
    let page = Page::new();
    (0..3).for_each(|_| page.publish());
    assert_eq!(drops::<true>(&page, 0, 3), [range(1), range(2), range(3)]);
    assert_eq!(drops::<true>(&page, 3, 3), []);
}

#[test]
fn a_gap_as_large_as_the_ring_is_everything() {
    let page = Page::new();
    (0..ENTRIES).for_each(|_| page.publish());
    assert_eq!(drops::<true>(&page, 0, ENTRIES), [Drop::All { overrun: true }]);
    assert_eq!(drops::<true>(&page, 1, ENTRIES).len(), ENTRIES as usize - 1);
}

#[test]
fn an_epoch_that_runs_backwards_is_everything() {
    let page = Page::new();
    assert_eq!(drops::<true>(&page, 5, 2), [Drop::All { overrun: true }]);
}

#[test]
fn a_flag_that_is_not_known_is_everything() {
    let page = Page::new();
    page.publish();
    page.ring[1][3].store(1, Ordering::Relaxed);
    assert_eq!(drops::<true>(&page, 0, 1), [Drop::All { overrun: true }]);
}

/// The driver laps the EU while it reads: invalidation 1 is overwritten by 9 before its slot is looked at.
#[test]
fn a_slot_that_is_overrun_under_the_read_is_everything() {
    let lapped = || {
        let page = Page::new();
        (0..ENTRIES - 1).for_each(|_| page.publish());
        page.sneaks.set(2);
        page
    };
    assert_eq!(drops::<true>(&lapped(), 0, ENTRIES - 1), [Drop::All { overrun: true }]);
    // Without the check range 1 is lost, and the stale translation with it would live on.
    assert!(!drops::<false>(&lapped(), 0, ENTRIES - 1).contains(&range(1)));
}

#[test]
fn entering_publishes_and_leaving_clears() {
    let (page, line) = (Page::new(), AtomicU64::new(IDLE));
    let mut seen = None;
    enter(&line, &page, 7, &mut seen, |_| panic!("nothing was cached")).unwrap();
    assert_eq!(line.load(Ordering::Relaxed), active(7, 0));
    assert!(!is_behind(&page, 0));
    page.publish();
    assert!(is_behind(&page, 0));
    leave(&line);
    assert_eq!(line.load(Ordering::Relaxed), IDLE);
    let mut dropped = Vec::new();
    enter(&line, &page, 7, &mut seen, |drop| dropped.push(drop)).unwrap();
    assert_eq!((dropped, seen), (vec![range(1)], Some(1)));
}

#[test]
fn a_dead_address_space_is_refused_and_the_line_idle() {
    let (page, line) = (Page::new(), AtomicU64::new(IDLE));
    page.state.store(asid_state::DEAD, Ordering::Relaxed);
    assert_eq!(enter(&line, &page, 7, &mut None, |_| {}), Err(Dead));
    assert_eq!(line.load(Ordering::Relaxed), IDLE);
}
