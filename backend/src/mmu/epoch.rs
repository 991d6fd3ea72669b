//! The EU's side of the epoch handshake (SPEC.md §10).
//!
//! The driver changes a PTE, publishes the range in the ring, advances the epoch, fences, and waits for every EU that is
//! in a section of this address space with an older epoch. The EU publishes its section, fences, and only then reads the
//! epoch again. One of the two therefore sees the other: either the driver sees the section and waits, or the EU
//! sees the new epoch and drops the translation. The loom tests show that each fence and the second read are needed.

use super::atomics::{fence, AtomicU64, Ordering};
use uma_protocol::sync::{active, asid_state, IDLE};

/// The words of one ring slot.
pub struct Slot<'a> {
    /// [`uma_protocol::sync::RingSlot::seq`].
    pub seq: &'a AtomicU64,
    /// First address.
    pub start: &'a AtomicU64,
    /// Address behind the last.
    pub end: &'a AtomicU64,
    /// Flags.
    pub flags: &'a AtomicU64,
}

/// The sync page of one address space.
pub trait SpacePage {
    /// Number of the last invalidation.
    fn epoch(&self) -> &AtomicU64;
    /// LIVE or DEAD.
    fn state(&self) -> &AtomicU64;
    /// The slot of invalidation `seq`.
    fn slot(&self, seq: u64) -> Slot<'_>;
    /// Slots of the ring.
    fn entries(&self) -> u64;
}

/// What a section has to drop before it may translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// One range.
    Range {
        /// First address.
        start: u64,
        /// Address behind the last.
        end: u64,
    },
    /// Everything of the address space; `overrun` if the ring could not tell what.
    All {
        /// The ring had run over, or a slot was not as expected.
        overrun: bool,
    },
}

/// The address space is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead;

/// Publishes a section in `line` (the EU's `active` word), then hands every invalidation since `seen` to `apply` and
/// advances `seen`. `None` = the EU has nothing cached of this address space.
///
/// # Errors
/// [`Dead`] if the address space may not be used any more; the section is left again.
#[inline]
pub fn enter<P: SpacePage>(
    line: &AtomicU64,
    page: &P,
    asid: u32,
    seen: &mut Option<u64>,
    apply: impl FnMut(Drop),
) -> Result<(), Dead> {
    enter_with::<P, true, true>(line, page, asid, seen, apply)
}

/// [`enter`], with its fence and its second read of the epoch to be left out: the tests show that both are needed.
#[inline(always)]
fn enter_with<P: SpacePage, const FENCE: bool, const REREAD: bool>(
    line: &AtomicU64,
    page: &P,
    asid: u32,
    seen: &mut Option<u64>,
    apply: impl FnMut(Drop),
) -> Result<(), Dead> {
    let before = page.epoch().load(Ordering::Relaxed);
    line.store(active(asid, before), Ordering::Release);
    if FENCE {
        fence(Ordering::SeqCst);
    }
    let now = if REREAD { page.epoch().load(Ordering::Acquire) } else { before };
    if let Some(last) = *seen {
        catch_up::<P, true>(page, last, now, apply);
    }
    *seen = Some(now);
    if page.state().load(Ordering::Acquire) != asid_state::LIVE {
        leave(line);
        return Err(Dead);
    }
    Ok(())
}

/// Ends a section: nothing translated in it is used from here on.
#[inline]
pub fn leave(line: &AtomicU64) {
    line.store(IDLE, Ordering::Release);
}

/// Whether something was published since `seen`: leave and enter again.
#[inline]
pub fn is_behind<P: SpacePage>(page: &P, seen: u64) -> bool {
    page.epoch().load(Ordering::Relaxed) != seen
}

/// Hands out the invalidations `last + 1..=now`. A gap of the ring's size or more, an epoch that ran backwards and a
/// slot that is being overwritten all mean "everything". `CHECK` is off only where a test shows that it is needed.
fn catch_up<P: SpacePage, const CHECK: bool>(page: &P, last: u64, now: u64, mut apply: impl FnMut(Drop)) {
    if now.wrapping_sub(last) >= page.entries() {
        apply(Drop::All { overrun: true });
        return;
    }
    for seq in last.wrapping_add(1)..=now {
        match read_slot::<CHECK>(&page.slot(seq), seq) {
            Some((start, end)) => apply(Drop::Range { start, end }),
            None => {
                apply(Drop::All { overrun: true });
                return;
            }
        }
    }
}

/// The range in a slot, if it holds `seq` before and after the read and no flag that we do not know.
fn read_slot<const CHECK: bool>(slot: &Slot<'_>, seq: u64) -> Option<(u64, u64)> {
    if CHECK && slot.seq.load(Ordering::Acquire) != seq {
        return None;
    }
    let start = slot.start.load(Ordering::Relaxed);
    let end = slot.end.load(Ordering::Relaxed);
    let flags = slot.flags.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    let held = !CHECK || slot.seq.load(Ordering::Relaxed) == seq;
    (held && flags == 0).then_some((start, end))
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
