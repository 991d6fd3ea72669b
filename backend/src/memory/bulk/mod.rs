//! Bulk data: copies and element loops over raw pointers.
//!
//! Nothing here makes a reference to guest memory: the guest and other EUs change it at any time. What is read may be torn; no
//! address, length or branch that safety rests on comes from it, but for indices and pointers that a caller reads once with
//! [`load`] and then checks or translates.

mod atomic;
mod elements;

pub use atomic::{atomic_add, atomic_cas};
pub use elements::{axpy, dot_lanes, fill, fold_lanes, load, multiply_add_row, scale, store, sum_lanes, Lanes};

use super::Span;
use std::ptr::{self, NonNull};

/// The `len` bytes at `offset` of `span`, if it has them.
#[inline]
pub fn part(span: Span<'_>, offset: u64, len: u64) -> Option<Span<'_>> {
    let have = span.len() as u64;
    if len > have || offset > have - len {
        return None;
    }
    // SAFETY: `offset + len` is at most the length of `span`, which vouches for all its bytes and for the lifetime.
    Some(unsafe {
        let ptr = NonNull::new_unchecked(span.as_ptr().add(offset as usize));
        Span::new(ptr, len as usize, span.is_local())
    })
}

/// Copies the whole of `src`, or as much as `dst` holds; the two may overlap. Returns the bytes copied.
pub fn copy(dst: Span<'_>, src: Span<'_>) -> usize {
    let len = dst.len().min(src.len());
    // SAFETY: both spans are mapped for `len` bytes; `ptr::copy` allows overlap and needs no alignment for bytes.
    unsafe { ptr::copy(src.as_ptr(), dst.as_ptr(), len) };
    len
}

/// Zeroes the whole span.
pub fn zero(dst: Span<'_>) {
    // SAFETY: the span is mapped writable for its length.
    unsafe { ptr::write_bytes(dst.as_ptr(), 0, dst.len()) };
}
