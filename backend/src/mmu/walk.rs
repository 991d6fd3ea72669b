//! The page-table walk.

use super::pte::{decode, Entry, Leaf};
use crate::memory::control_word::read_entry;
use crate::memory::RegionTable;
use uma_protocol::fault::FaultCause;
use uma_protocol::pte;

/// Walks from the table at `root` down to the page that maps `va`. Rights accumulate: a page is writable only if every
/// level says so. A table can point anywhere, itself included; the walk still ends after `levels` reads.
///
/// # Errors
/// What stopped the walk; `BadFrame` for a table outside of guest RAM.
#[inline]
pub(super) fn walk(table: &RegionTable, root: u64, levels: u32, va: u64) -> Result<Leaf, FaultCause> {
    let mut base = root;
    let mut may_write = true;
    for level in (1..=levels).rev() {
        let at = base + 8 * pte::index(va, level) as u64;
        let entry = read_entry(table, at).ok_or(FaultCause::BadFrame)?;
        match decode(entry, level)? {
            Entry::Table { addr, writable } => {
                base = addr;
                may_write &= writable;
            }
            Entry::Leaf(leaf) => return Ok(Leaf { writable: leaf.writable && may_write, ..leaf }),
        }
    }
    // Level 1 decodes to a leaf or an error.
    Err(FaultCause::BadEntry)
}
