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

/// Lines that [`prefetch`] asks for: enough for the processor to see a stream and go on by itself.
const PREFETCH: usize = 2;

/// Begins to bring the first lines of `span` near.
#[inline]
pub fn prefetch(span: Span<'_>) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..PREFETCH {
        // SAFETY: a prefetch accesses nothing, whatever the address.
        unsafe {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            _mm_prefetch::<_MM_HINT_T0>(span.as_ptr().wrapping_add(64 * line).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = span;
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

#[cfg(test)]
mod tests {
    use super::*;
    use uma_protocol::kernel::Elem;

    fn span(bytes: &mut [u8]) -> Span<'_> {
        // SAFETY: the slice is borrowed mutably as long as the span lives.
        unsafe { Span::new(NonNull::from(&mut *bytes).cast(), bytes.len(), false) }
    }

    #[test]
    fn parts_end_where_the_span_ends() {
        let mut bytes = [0; 16];
        let whole = span(&mut bytes);
        assert_eq!(
            part(whole, 12, 4).map(|part| (part.as_ptr() as usize - whole.as_ptr() as usize, part.len())),
            Some((12, 4))
        );
        assert!(part(whole, 16, 0).is_some());
        assert!(part(whole, 13, 4).is_none() && part(whole, 0, 17).is_none());
        assert!(part(whole, u64::MAX, 1).is_none() && part(whole, u64::MAX - 3, 8).is_none());
    }

    #[test]
    fn copies_overlap_in_both_directions_and_are_cut() {
        let mut bytes: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
        let whole = span(&mut bytes);
        assert_eq!(copy(part(whole, 2, 6).unwrap(), whole), 6);
        assert_eq!(bytes, [0, 1, 0, 1, 2, 3, 4, 5]);
        let whole = span(&mut bytes);
        assert_eq!(copy(whole, part(whole, 2, 6).unwrap()), 6);
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 4, 5]);
    }

    #[test]
    fn loops_stay_within_their_spans() {
        let (mut a, mut b) = ([1u8; 24], [2u8; 24]);
        let (dst, src) = (part(span(&mut a), 4, 13).unwrap(), span(&mut b));
        fill(dst, 100, Elem::U32, 0);
        scale(dst, src, 100, Elem::U32, 1);
        axpy(dst, src, 100, Elem::U32, 1);
        multiply_add_row(dst, src, 100, 1.0, Some(0.0));
        let mut lanes = [0; 16];
        sum_lanes(&mut lanes, dst, 100, Elem::U32, 0);
        dot_lanes(&mut lanes, src, dst, 100, Elem::U32, 0);
        assert!(lanes[..3].iter().all(|lane| *lane != 0) && lanes[3..].iter().all(|lane| *lane == 0));
        zero(part(src, 20, 4).unwrap());
        assert!(a[..4].iter().chain(&a[16..]).all(|byte| *byte == 1));
        assert_eq!(b[16..], [2, 2, 2, 2, 0, 0, 0, 0]);
    }
}
