//! The TLB of one EU.
//!
//! One direct-mapped array per page size, indexed by a hash of the page number: direct bits would let two arrays that lie
//! a power of two apart evict each other at every step. Entries belong to a *token*; dropping an address space gives
//! it a new token and leaves its entries to be overwritten.

use super::pte::Leaf;
use std::cell::Cell;
use std::ptr::NonNull;
use uma_protocol::{GIGANTIC_SHIFT, HUGE_SHIFT, PAGE_SHIFT};

/// Entries per page size, as log2: 4096 · 4 KiB, 1024 · 2 MiB, 64 · 1 GiB. 5184 entries of 40 bytes = 203 KiB per EU.
const SIZES: [(u32, u32); 3] = [(PAGE_SHIFT, 12), (HUGE_SHIFT, 10), (GIGANTIC_SHIFT, 6)];
/// Pages of a range up to which single entries are looked up; beyond, the whole address space is dropped.
const MAX_PROBES: u64 = 512;

/// Owner of entries; 0 owns nothing.
pub(super) type Token = u64;

/// A cached translation.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    token: Token,
    vpn: u64,
    /// First byte of the page in our address space.
    pub host: NonNull<u8>,
    /// First byte of the page as the leaf names it.
    pub frame: u64,
    pub shift: u8,
    pub writable: bool,
    pub local: bool,
    pub noatomic: bool,
}

pub(super) struct Tlb {
    arrays: [Box<[Cell<Entry>]>; 3],
    last_token: Cell<Token>,
}

fn slot(vpn: u64, token: Token, bits: u32) -> usize {
    // Fibonacci hashing; the token keeps processes with the same layout apart.
    ((vpn ^ token << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
}

impl Tlb {
    pub fn new() -> Self {
        let empty = Entry {
            token: 0,
            vpn: 0,
            host: NonNull::dangling(),
            frame: 0,
            shift: 0,
            writable: false,
            local: false,
            noatomic: false,
        };
        let array = |bits: u32| (0..1usize << bits).map(|_| Cell::new(empty)).collect();
        Self { arrays: SIZES.map(|(_, bits)| array(bits)), last_token: Cell::new(0) }
    }

    /// A token that no entry has.
    pub fn new_token(&self) -> Token {
        // 2^64 address-space drops do not happen.
        self.last_token.set(self.last_token.get() + 1);
        self.last_token.get()
    }

    #[inline]
    pub fn lookup(&self, token: Token, va: u64) -> Option<Entry> {
        for ((shift, bits), array) in SIZES.iter().zip(&self.arrays) {
            let vpn = va >> shift;
            let entry = array[slot(vpn, token, *bits)].get();
            if entry.token == token && entry.vpn == vpn {
                return Some(entry);
            }
        }
        None
    }

    pub fn insert(&self, token: Token, va: u64, leaf: &Leaf, host: NonNull<u8>) -> Entry {
        let size = SIZES.iter().position(|(shift, _)| *shift == leaf.shift).unwrap_or(0);
        let (shift, bits) = SIZES[size];
        let vpn = va >> shift;
        let entry = Entry {
            token,
            vpn,
            host,
            frame: leaf.frame,
            shift: shift as u8,
            writable: leaf.writable,
            local: leaf.local,
            noatomic: leaf.noatomic,
        };
        self.arrays[size][slot(vpn, token, bits)].set(entry);
        entry
    }

    /// Drops what `token` has of `start..end`. Returns `false` if the range is too long to look up; the caller then takes
    /// a new token.
    pub fn drop_range(&self, token: Token, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        if (end - start) >> PAGE_SHIFT > MAX_PROBES {
            return false;
        }
        for ((shift, bits), array) in SIZES.iter().zip(&self.arrays) {
            for vpn in start >> shift..=(end - 1) >> shift {
                let cell = &array[slot(vpn, token, *bits)];
                let entry = cell.get();
                if entry.token == token && entry.vpn == vpn {
                    cell.set(Entry { token: 0, ..entry });
                }
            }
        }
        true
    }
}
