//! The file behind one logical device's memory.

use crate::memory::Span;

/// Sparse file, mapped whole; a DPA is an offset in it.
pub struct Backing {
    size: u64,
}

impl Backing {
    /// Bytes of device memory.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// `len` bytes at `dpa`, or `None` beyond the end.
    pub fn span(&self, dpa: u64, len: u64) -> Option<Span<'_>> {
        let _ = (dpa, len);
        unimplemented!()
    }
}
