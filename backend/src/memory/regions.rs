//! Guest-physical regions and the table that resolves them.

use super::dirty::DirtyLog;
use super::sigbus::Watch;
use arc_swap::ArcSwap;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use uma_protocol::PAGE_SIZE;

/// One mapped region of guest-physical memory.
#[derive(Clone)]
pub struct GuestRegion {
    /// First guest-physical address.
    pub gpa: u64,
    /// Bytes.
    pub len: u64,
    host: NonNull<u8>,
    /// Before `_keep`: it ends before the mapping does.
    watch: Arc<Watch>,
    /// Keeps the mapping.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the mapping is kept by `_keep` and is shared with the guest anyway; the pointer itself is plain data.
unsafe impl Send for GuestRegion {}
// SAFETY: as for Send: nothing is reached through the pointer but by the atomics and raw copies of this module.
unsafe impl Sync for GuestRegion {}

impl GuestRegion {
    /// Describes a mapping.
    ///
    /// # Safety
    /// `host..host + len` must be mapped shared, readable and writable as long as `keep` lives.
    pub unsafe fn new(gpa: u64, len: u64, host: NonNull<u8>, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { gpa, len, host, watch: Arc::new(Watch::new(host, len)), _keep: keep }
    }
}

/// All regions at one moment. Immutable.
#[derive(Default)]
pub struct RegionTable {
    /// Sorted by address, not overlapping.
    regions: Box<[GuestRegion]>,
    generation: u64,
    log: Option<Arc<DirtyLog>>,
}

impl RegionTable {
    fn new(mut regions: Vec<GuestRegion>, generation: u64, log: Option<Arc<DirtyLog>>) -> Self {
        regions.sort_by_key(|region| region.gpa);
        let mut end = 0;
        regions.retain(|region| {
            // Aligned like the guest sees it: what is aligned for the guest is aligned for our atomics.
            let aligned = (region.host.as_ptr() as u64 ^ region.gpa).is_multiple_of(PAGE_SIZE);
            let ends = region.gpa.checked_add(region.len).is_some();
            let keep = region.len > 0 && region.gpa >= end && ends && aligned;
            if keep {
                end = region.gpa + region.len;
            }
            keep
        });
        Self { regions: regions.into(), generation, log }
    }

    /// Host address of `gpa..gpa + len`, if one region that is not lost holds it whole and `len` is not 0.
    #[inline]
    pub fn resolve(&self, gpa: u64, len: u64) -> Option<NonNull<u8>> {
        let next = self.regions.partition_point(|region| region.gpa <= gpa);
        let region = self.regions.get(next.checked_sub(1)?)?;
        let offset = gpa - region.gpa;
        if len == 0 || offset >= region.len || len > region.len - offset || region.watch.is_lost() {
            return None;
        }
        // SAFETY: offset < len of the mapping, which `GuestRegion::new` was promised to be mapped whole.
        Some(unsafe { region.host.add(offset as usize) })
    }

    /// Bytes from `gpa` to the end of its region, 0 outside.
    pub fn contiguous(&self, gpa: u64) -> u64 {
        let next = self.regions.partition_point(|region| region.gpa <= gpa);
        let region = next.checked_sub(1).and_then(|index| self.regions.get(index));
        region.map_or(0, |region| (region.gpa + region.len).saturating_sub(gpa))
    }

    /// Grows with every update; 0 = the empty table of a new device.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there are no regions.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Whether a dirty log is installed.
    #[inline]
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Marks pages as written (for live migration). No-op while no log is installed.
    #[inline]
    pub fn mark_dirty(&self, gpa: u64, len: u64) {
        if let Some(log) = &self.log {
            log.mark(gpa, len);
        }
    }
}

/// The current [`RegionTable`], swapped on memory updates.
#[derive(Default)]
pub struct GuestMemory {
    table: ArcSwap<RegionTable>,
}

impl GuestMemory {
    /// The table as of now. Readers keep it for one batch, not longer.
    pub fn load(&self) -> Arc<RegionTable> {
        self.table.load_full()
    }

    /// Generation of the table as of now.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.table.load().generation
    }

    /// Swaps the table; the dirty log stays. The caller then waits until no EU can still use the old one.
    pub fn replace(&self, regions: Vec<GuestRegion>) {
        let old = self.table.load();
        self.table.store(Arc::new(RegionTable::new(regions, old.generation + 1, old.log.clone())));
    }

    /// Installs or removes the dirty log; the regions stay.
    pub fn set_log(&self, log: Option<Arc<DirtyLog>>) {
        let old = self.table.load();
        self.table.store(Arc::new(RegionTable::new(old.regions.to_vec(), old.generation + 1, log)));
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::GuestRegion;
    use std::ptr::NonNull;
    use std::sync::Arc;

    /// A region over pages of the heap, for tests that need no file.
    pub(crate) fn heap_region(gpa: u64, len: u64) -> GuestRegion {
        let mut words = vec![0u64; (len as usize).div_ceil(4096) * 512 + 512].into_boxed_slice();
        let base = words.as_mut_ptr().cast::<u8>();
        let aligned = base.wrapping_add(base.align_offset(4096));
        let host = NonNull::new(aligned).unwrap();
        // SAFETY: the box is one page longer than needed for the alignment and is kept by the Arc; nobody else has it.
        unsafe { GuestRegion::new(gpa, len, host, Arc::new(words)) }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::heap_region;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_table_resolves_nothing() {
        assert!(RegionTable::default().resolve(0, 1).is_none());
    }

    #[test]
    fn overlapping_regions_are_dropped() {
        let table = RegionTable::new(vec![heap_region(0x1000, 0x2000), heap_region(0x2000, 0x1000)], 1, None);
        assert_eq!(table.len(), 1);
    }

    proptest! {
        #[test]
        fn resolve_agrees_with_a_linear_search(gpa in 0u64..0xa000, len in 0u64..0x5000) {
            let spans = [(0x1000u64, 0x2000u64), (0x3000, 0x1000), (0x6000, 0x3000)];
            let regions: Vec<_> = spans.iter().rev().map(|(gpa, len)| heap_region(*gpa, *len)).collect();
            let base: Vec<_> = spans.iter().map(|(gpa, _)| regions.iter().find(|r| r.gpa == *gpa).unwrap().host).collect();
            let table = RegionTable::new(regions, 1, None);
            let expected = spans.iter().zip(base).find(|((start, size), _)| {
                len > 0 && gpa >= *start && gpa + len <= start + size
            }).map(|((start, _), host)| host.as_ptr() as u64 + gpa - start);
            prop_assert_eq!(table.resolve(gpa, len).map(|ptr| ptr.as_ptr() as u64), expected);
        }
    }
}
