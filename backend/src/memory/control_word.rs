//! Control data: atomics in guest memory, each field read once.

use super::RegionTable;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;
use uma_protocol::PAGE_SIZE;

/// One page of guest memory that both sides use as atomics (a sync page).
pub struct ControlPage {
    base: NonNull<u8>,
    /// Keeps the mapping.
    _table: Arc<RegionTable>,
}

// SAFETY: only atomics are reached through `base`, in a mapping that the table keeps.
unsafe impl Send for ControlPage {}
// SAFETY: as for Send.
unsafe impl Sync for ControlPage {}

impl ControlPage {
    /// The page at `gpa`, if it is aligned and in guest memory.
    pub fn new(table: &Arc<RegionTable>, gpa: u64) -> Option<Self> {
        if !gpa.is_multiple_of(PAGE_SIZE) {
            return None;
        }
        let base = table.resolve(gpa, PAGE_SIZE)?;
        (base.as_ptr() as usize).is_multiple_of(8).then(|| Self { base, _table: table.clone() })
    }

    /// The 64-bit word at `offset`.
    ///
    /// # Panics
    /// If `offset` is not a constant of the layout: unaligned or beyond the page. No guest value gets here.
    #[inline]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= PAGE_SIZE as usize);
        // SAFETY: aligned and inside the page that `new` resolved; the table keeps it mapped for the borrow.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// The 32-bit word at `offset`.
    ///
    /// # Panics
    /// As [`Self::u64_at`].
    #[inline]
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= PAGE_SIZE as usize);
        // SAFETY: as in `u64_at`.
        unsafe { self.base.add(offset).cast().as_ref() }
    }
}

/// One 64-bit entry of a table in guest memory.
#[inline]
pub fn read_entry(table: &RegionTable, gpa: u64) -> Option<u64> {
    let ptr = table.resolve(gpa, 8)?.cast::<AtomicU64>();
    if !gpa.is_multiple_of(8) || !(ptr.as_ptr() as usize).is_multiple_of(8) {
        return None;
    }
    // SAFETY: aligned, and inside a region that `table` keeps mapped; the reference lives for this load only.
    Some(unsafe { ptr.as_ref() }.load(Ordering::Acquire))
}

/// Bytes outside of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

/// Copies `gpa..` into `out`, each byte read once.
///
/// # Errors
/// [`Outside`] if any byte is not in guest memory; `out` is then partly written.
pub fn read_bytes(table: &RegionTable, gpa: u64, out: &mut [u8]) -> Result<(), Outside> {
    pieces(table, gpa, out.len(), |done, ptr, len| {
        for (i, byte) in out[done..done + len].iter_mut().enumerate() {
            // SAFETY: i < len, inside the piece that `pieces` resolved.
            *byte = unsafe { ptr.add(i).cast::<AtomicU8>().as_ref() }.load(Ordering::Relaxed);
        }
    })
}

/// Copies `data` to `gpa..` and marks the pages dirty.
///
/// # Errors
/// [`Outside`] if any byte is not in guest memory; the bytes before it are then written.
pub fn write_bytes(table: &RegionTable, gpa: u64, data: &[u8]) -> Result<(), Outside> {
    pieces(table, gpa, data.len(), |done, ptr, len| {
        for (i, byte) in data[done..done + len].iter().enumerate() {
            // SAFETY: i < len, inside the piece that `pieces` resolved.
            unsafe { ptr.add(i).cast::<AtomicU8>().as_ref() }.store(*byte, Ordering::Relaxed);
        }
    })?;
    table.mark_dirty(gpa, data.len() as u64);
    Ok(())
}

fn pieces(
    table: &RegionTable,
    gpa: u64,
    total: usize,
    mut each: impl FnMut(usize, NonNull<u8>, usize),
) -> Result<(), Outside> {
    let mut done = 0;
    while done < total {
        let at = gpa.checked_add(done as u64).ok_or(Outside)?;
        let len = table.contiguous(at).min((total - done) as u64) as usize;
        let ptr = table.resolve(at, len as u64).ok_or(Outside)?;
        each(done, ptr, len);
        done += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::regions::testing::heap_region;
    use super::super::GuestMemory;
    use super::*;

    #[test]
    fn bytes_cross_region_borders() {
        let memory = GuestMemory::default();
        memory.replace(vec![heap_region(0x1000, 0x1000), heap_region(0x2000, 0x1000)]);
        let table = memory.load();
        write_bytes(&table, 0x1ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let mut out = [0; 8];
        read_bytes(&table, 0x1ffc, &mut out).unwrap();
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(read_bytes(&table, 0x2ffc, &mut out), Err(Outside));
        assert_eq!(write_bytes(&table, u64::MAX, &[0; 4]), Err(Outside));
    }

    #[test]
    fn pages_must_be_aligned_and_inside() {
        let memory = GuestMemory::default();
        memory.replace(vec![heap_region(0x1000, 0x1000)]);
        let table = memory.load();
        assert!(ControlPage::new(&table, 0x1000).is_some());
        assert!(ControlPage::new(&table, 0x1800).is_none());
        assert!(ControlPage::new(&table, 0x2000).is_none());
    }
}
