//! Guest atomics are host atomics on the same memory, so CPU and device are coherent with each other.

use super::super::Span;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

macro_rules! on_word {
    ($span:expr, $size:expr, |$word:ident: $type:ident| $run:expr) => {{
        assert!($span.len() >= size_of::<$type>() && $span.as_ptr() as usize % size_of::<$type>() == 0);
        // SAFETY: mapped, long enough and aligned, as just checked; an atomic may be shared with anybody.
        let $word = unsafe { &*$span.as_ptr().cast::<$type>() };
        $run
    }};
}

/// Adds to the word at the start of `span`, wrapping; `size` is 4 or 8. Returns the old value.
///
/// # Panics
/// If the span is shorter than `size` or not aligned to it: an EU's operands are checked to be aligned.
pub fn atomic_add(span: Span<'_>, size: u64, value: u64) -> u64 {
    if size == 4 {
        on_word!(span, 4, |word: AtomicU32| u64::from(word.fetch_add(value as u32, Ordering::SeqCst)))
    } else {
        on_word!(span, 8, |word: AtomicU64| word.fetch_add(value, Ordering::SeqCst))
    }
}

/// Exchanges the word at the start of `span` for `new` if it is `expected`; `size` is 4 or 8. Returns whether it did.
///
/// # Panics
/// As [`atomic_add`].
pub fn atomic_cas(span: Span<'_>, size: u64, expected: u64, new: u64) -> bool {
    if size == 4 {
        on_word!(span, 4, |word: AtomicU32| word
            .compare_exchange(expected as u32, new as u32, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok())
    } else {
        on_word!(span, 8, |word: AtomicU64| word
            .compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok())
    }
}
