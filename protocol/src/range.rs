//! Ranges of virtual addresses (SPEC.md §3.4).

use crate::{Status, PAGE_SIZE};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Half-open range `start..end` of virtual addresses, both multiples of 4 KiB. 16 bytes.
///
/// `end == u64::MAX` means "to the end of the address space"; it is the one end that need not be aligned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct VaRange {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
}

impl VaRange {
    /// Every address.
    pub const ALL: Self = Self { start: 0, end: u64::MAX };

    /// Checks order and alignment.
    ///
    /// # Errors
    /// [`Status::BadRange`] if the range is empty or runs backwards, [`Status::Misaligned`] if an end is not a
    /// multiple of 4 KiB.
    pub fn validate(&self) -> Result<(), Status> {
        if self.start >= self.end {
            return Err(Status::BadRange);
        }
        let end_ok = self.end == u64::MAX || self.end.is_multiple_of(PAGE_SIZE);
        if !self.start.is_multiple_of(PAGE_SIZE) || !end_ok {
            return Err(Status::Misaligned);
        }
        Ok(())
    }

    /// Returns whether `va` lies inside.
    pub const fn contains(&self, va: u64) -> bool {
        va >= self.start && (va < self.end || self.end == u64::MAX)
    }

    /// Returns whether the two ranges share an address.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}
