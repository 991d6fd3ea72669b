//! Types that kernels work on.

use crate::Elem;
use std::sync::atomic::{AtomicU32, AtomicU64};

mod sealed {
    pub trait Sealed {}
}

/// An element of an array that the device works on: every bit pattern is a value.
pub trait Element: Copy + sealed::Sealed + 'static {
    /// The device's name for it.
    const ELEM: Elem;
    /// The value's bits, zero-extended.
    fn to_bits(self) -> u64;
    /// Inverse of [`Element::to_bits`].
    fn from_bits(bits: u64) -> Self;
}

/// An atomic integer that device and CPU may change at the same time.
pub trait AtomicElement: sealed::Sealed {
    /// What it holds.
    type Value: Element;
}

macro_rules! elements {
    ($($type:ty, $elem:ident, |$value:ident| $to:expr, |$bits:ident| $from:expr;)*) => {
        $(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                const ELEM: Elem = Elem::$elem;
                fn to_bits(self) -> u64 { let $value = self; $to }
                fn from_bits($bits: u64) -> Self { $from }
            }
        )*
    };
}

elements! {
    u8, U8, |value| value.into(), |bits| bits as u8;
    u32, U32, |value| value.into(), |bits| bits as u32;
    i32, U32, |value| (value as u32).into(), |bits| bits as i32;
    u64, U64, |value| value, |bits| bits;
    i64, U64, |value| value as u64, |bits| bits as i64;
    f32, F32, |value| f32::to_bits(value).into(), |bits| f32::from_bits(bits as u32);
    f64, F64, |value| f64::to_bits(value), |bits| f64::from_bits(bits);
}

impl sealed::Sealed for AtomicU32 {}
impl sealed::Sealed for AtomicU64 {}
impl AtomicElement for AtomicU32 {
    type Value = u32;
}
impl AtomicElement for AtomicU64 {
    type Value = u64;
}
