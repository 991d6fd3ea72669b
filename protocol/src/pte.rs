//! Entries of the device's page tables (SPEC.md §6).
//!
//! The shape is x86-64's (Intel SDM vol. 3A, 4.5): 512 entries of 8 bytes per table, 9 bits of address per level, so
//! that one walker serves mirrored and shared tables and any page-table dumper can show them.

/// The entry is valid.
pub const PRESENT: u64 = 1 << 0;
/// Writes are allowed below this entry.
pub const WRITABLE: u64 = 1 << 1;
/// User access is allowed below this entry; must be set wherever the device may go.
pub const USER: u64 = 1 << 2;
/// Accessed. Written by the device in shared tables only.
pub const ACCESSED: u64 = 1 << 5;
/// Dirty. Written by the device in shared tables only.
pub const DIRTY: u64 = 1 << 6;
/// At level 2 or 3: the entry maps a page of 2 MiB or 1 GiB.
pub const PAGE_SIZE_BIT: u64 = 1 << 7;
/// Mirrored tables, leaf only: the frame is a DPA.
pub const LOCAL: u64 = 1 << 9;
/// Mirrored tables, leaf only: atomic access is refused.
pub const NOATOMIC: u64 = 1 << 10;
/// The frame: bits 51:12.
pub const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;
/// Mirrored tables: bits that must be zero (the upper software bits, NX and protection keys; bits 8 and 11).
pub const MIRRORED_RESERVED: u64 = !(FRAME_MASK | 0xff | LOCAL | NOATOMIC);
/// Entries of one table.
pub const ENTRIES: usize = 512;
/// Address bits that one level resolves.
pub const LEVEL_BITS: u32 = 9;

/// log2 of the bytes that one entry of a table at `level` covers; level 1 holds 4 KiB pages.
pub const fn level_shift(level: u32) -> u32 {
    crate::PAGE_SHIFT + LEVEL_BITS * (level - 1)
}

/// Index into the table at `level` for `va`.
pub const fn index(va: u64, level: u32) -> usize {
    (va >> level_shift(level)) as usize & (ENTRIES - 1)
}

/// First address that the lower half of `levels`-level tables does not cover. The upper half belongs to the kernel
/// and is never walked.
pub const fn user_end(levels: u32) -> u64 {
    1 << (level_shift(levels) + LEVEL_BITS - 1)
}
