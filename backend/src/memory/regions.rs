//! Guest-physical regions and the table that resolves them.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// One mapped region of guest-physical memory.
pub struct GuestRegion {
    /// First guest-physical address.
    pub gpa: u64,
    /// Bytes.
    pub len: u64,
    host: NonNull<u8>,
    /// Keeps the mapping.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the mapping is kept by `_keep` and is shared with the guest anyway; the pointer itself is plain data.
unsafe impl Send for GuestRegion {}
// SAFETY: as above.
unsafe impl Sync for GuestRegion {}

impl GuestRegion {
    /// Describes a mapping.
    ///
    /// # Safety
    /// `host..host + len` must be mapped shared, readable and writable as long as `keep` lives.
    pub unsafe fn new(gpa: u64, len: u64, host: NonNull<u8>, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { gpa, len, host, _keep: keep }
    }
}

/// All regions at one moment. Immutable.
#[derive(Default)]
pub struct RegionTable {
    regions: Box<[GuestRegion]>,
    generation: u64,
}

impl RegionTable {
    /// Host address of `gpa..gpa + len`, if one region holds it whole.
    pub fn resolve(&self, gpa: u64, len: u64) -> Option<NonNull<u8>> {
        let _ = (gpa, len, self.regions.len());
        unimplemented!()
    }

    /// Grows with every update; 0 = the empty table of a new device.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Marks pages as written (for live migration). No-op while no log is installed.
    pub fn mark_dirty(&self, gpa: u64, len: u64) {
        let _ = (gpa, len);
    }
}

/// The current [`RegionTable`], swapped on memory updates.
#[derive(Default)]
pub struct GuestMemory {
    table: arc_swap::ArcSwap<RegionTable>,
}

impl GuestMemory {
    /// The table as of now. Readers keep it for one batch, not longer.
    pub fn load(&self) -> Arc<RegionTable> {
        self.table.load_full()
    }

    /// Swaps the table. The caller then waits until no EU can still use the old one.
    pub fn replace(&self, regions: Vec<GuestRegion>) {
        let _ = regions;
        unimplemented!()
    }
}
