//! Decoding of mirrored entries (SPEC.md §6).

use uma_protocol::fault::FaultCause;
use uma_protocol::pte;
use uma_protocol::{GIGANTIC_SHIFT, PAGE_SHIFT};

/// One entry, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The next table is at this device address.
    Table { addr: u64, writable: bool },
    /// A page.
    Leaf(Leaf),
}

/// A page as its entry describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// First byte: a device address in guest RAM, or a DPA if `local`.
    pub frame: u64,
    /// log2 of the page's bytes.
    pub shift: u32,
    pub writable: bool,
    pub local: bool,
    pub noatomic: bool,
}

/// Decodes `entry` of a table at `level` (1 holds 4 KiB pages).
///
/// # Errors
/// `NotPresent`; `BadEntry` for reserved bits, leaf bits in a table entry, a page size that does not exist or a frame that
/// is not aligned to its size; `NotPermitted` if user access is not allowed.
pub(super) fn decode(entry: u64, level: u32) -> Result<Entry, FaultCause> {
    if entry & pte::PRESENT == 0 {
        return Err(FaultCause::NotPresent);
    }
    if entry & pte::MIRRORED_RESERVED != 0 {
        return Err(FaultCause::BadEntry);
    }
    if entry & pte::USER == 0 {
        return Err(FaultCause::NotPermitted);
    }
    let writable = entry & pte::WRITABLE != 0;
    let frame = entry & pte::FRAME_MASK;
    // At level 1 bit 7 is not a page size but PAT, which a mirrored table has no use for.
    let large = entry & pte::PAGE_SIZE_BIT != 0;
    if level > 1 && !large {
        if entry & (pte::LOCAL | pte::NOATOMIC) != 0 {
            return Err(FaultCause::BadEntry);
        }
        return Ok(Entry::Table { addr: frame, writable });
    }
    let shift = pte::level_shift(level);
    if shift > GIGANTIC_SHIFT || (level == 1 && large) || frame & ((1 << shift) - 1) != 0 {
        return Err(FaultCause::BadEntry);
    }
    debug_assert!(shift >= PAGE_SHIFT);
    Ok(Entry::Leaf(Leaf {
        frame,
        shift,
        writable,
        local: entry & pte::LOCAL != 0,
        noatomic: entry & pte::NOATOMIC != 0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: u64 = pte::PRESENT | pte::USER | pte::WRITABLE | 0x20_0000;

    #[test]
    fn leaves_of_every_size() {
        for (level, shift) in [(1, 12), (2, 21), (3, 30)] {
            let large = if level > 1 { pte::PAGE_SIZE_BIT } else { 0 };
            let frame = 1u64 << shift.max(21);
            let entry = pte::PRESENT | pte::USER | pte::WRITABLE | large | frame;
            let leaf = Leaf { frame, shift, writable: true, local: false, noatomic: false };
            assert_eq!(decode(entry, level), Ok(Entry::Leaf(leaf)));
        }
    }

    #[test]
    fn malformed_entries_have_their_cause() {
        assert_eq!(decode(0, 1), Err(FaultCause::NotPresent));
        assert_eq!(decode(GOOD & !pte::USER, 1), Err(FaultCause::NotPermitted));
        assert_eq!(decode(GOOD | 1 << 63, 1), Err(FaultCause::BadEntry));
        assert_eq!(decode(GOOD | pte::PAGE_SIZE_BIT, 1), Err(FaultCause::BadEntry));
        assert_eq!(decode(GOOD | pte::PAGE_SIZE_BIT | 0x1000, 2), Err(FaultCause::BadEntry));
        assert_eq!(decode(GOOD | pte::PAGE_SIZE_BIT, 4), Err(FaultCause::BadEntry));
        assert_eq!(decode(GOOD | pte::LOCAL, 2), Err(FaultCause::BadEntry));
    }
}
