//! A piece of mapped memory that a translation or a lookup has vouched for.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// `len` bytes of guest RAM or device memory, mapped and accessible for `'a`.
///
/// The bytes may change at any time under the feet of the holder (the guest and other EUs share them), so they are
/// reached through [`super::bulk`] only.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    ptr: NonNull<u8>,
    len: usize,
    local: bool,
    _owner: PhantomData<&'a ()>,
}

impl<'a> Span<'a> {
    /// Makes a span.
    ///
    /// # Safety
    /// `ptr..ptr + len` must stay mapped readable and writable for `'a`.
    pub unsafe fn new(ptr: NonNull<u8>, len: usize, local: bool) -> Self {
        Self { ptr, len, local, _owner: PhantomData }
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it is device memory.
    pub fn is_local(&self) -> bool {
        self.local
    }

    /// The first `len` bytes; the whole span if it is shorter.
    #[must_use]
    pub fn truncate(self, len: usize) -> Self {
        Self { len: self.len.min(len), ..self }
    }
}
