//! Loops over elements. `n` never exceeds what the spans hold: it is cut to it.

use super::super::Span;
use uma_protocol::kernel::{Elem, SUM_LANES};

/// Partial sums, as bits of the element type; plain data for a cursor.
pub type Lanes = [u64; SUM_LANES];

/// Arithmetic of one element type; integers wrap.
trait Number: Copy {
    fn from_bits64(bits: u64) -> Self;
    fn bits64(self) -> u64;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! number {
    ($type:ty, $from:expr, $bits:expr, $plus:expr, $times:expr) => {
        impl Number for $type {
            #[inline(always)]
            fn from_bits64(bits: u64) -> Self {
                $from(bits)
            }
            #[inline(always)]
            fn bits64(self) -> u64 {
                $bits(self)
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                $times(self, other)
            }
        }
    };
}

number!(u8, |b| b as u8, u64::from, u8::wrapping_add, u8::wrapping_mul);
number!(u32, |b| b as u32, u64::from, u32::wrapping_add, u32::wrapping_mul);
number!(u64, |b| b, |v| v, u64::wrapping_add, u64::wrapping_mul);
number!(f32, |b| f32::from_bits(b as u32), |v: f32| u64::from(v.to_bits()), |a, b| a + b, |a, b| a * b);
number!(f64, f64::from_bits, |v: f64| v.to_bits(), |a, b| a + b, |a, b| a * b);

macro_rules! by_type {
    ($elem:expr, $function:ident($($arg:expr),*)) => {
        match $elem {
            Elem::U8 => $function::<u8>($($arg),*),
            Elem::U32 => $function::<u32>($($arg),*),
            Elem::U64 => $function::<u64>($($arg),*),
            Elem::F32 => $function::<f32>($($arg),*),
            Elem::F64 => $function::<f64>($($arg),*),
        }
    };
}

/// Elements that all spans hold, `n` at most.
fn fit<T>(n: usize, spans: &[Span<'_>]) -> usize {
    spans.iter().map(|span| span.len() / size_of::<T>()).fold(n, usize::min)
}

/// Reads the element at the start of `span` once, as bits.
///
/// # Panics
/// If the span is shorter than the element.
pub fn load(span: Span<'_>, elem: Elem) -> u64 {
    fn one<T: Number>(span: Span<'_>) -> u64 {
        assert!(span.len() >= size_of::<T>());
        // SAFETY: mapped and long enough; volatile, so that it is read once although the guest may change it.
        unsafe { span.as_ptr().cast::<T>().read_volatile() }.bits64()
    }
    by_type!(elem, one(span))
}

/// Writes the element at the start of `span`.
///
/// # Panics
/// If the span is shorter than the element.
pub fn store(span: Span<'_>, elem: Elem, bits: u64) {
    fn one<T: Number>(span: Span<'_>, bits: u64) {
        assert!(span.len() >= size_of::<T>());
        // SAFETY: mapped writable and long enough.
        unsafe { span.as_ptr().cast::<T>().write_volatile(T::from_bits64(bits)) }
    }
    by_type!(elem, one(span, bits));
}

/// `dst[i] = bits`.
pub fn fill(dst: Span<'_>, n: usize, elem: Elem, bits: u64) {
    fn run<T: Number>(dst: Span<'_>, n: usize, bits: u64) {
        let (value, d) = (T::from_bits64(bits), dst.as_ptr().cast::<T>());
        for i in 0..fit::<T>(n, &[dst]) {
            // SAFETY: i is below what the span holds.
            unsafe { d.add(i).write_unaligned(value) };
        }
    }
    by_type!(elem, run(dst, n, bits));
}

/// `dst[i] = factor * src[i]`; the spans are the same or do not overlap.
pub fn scale(dst: Span<'_>, src: Span<'_>, n: usize, elem: Elem, factor: u64) {
    fn run<T: Number>(dst: Span<'_>, src: Span<'_>, n: usize, factor: u64) {
        let (a, d, s) = (T::from_bits64(factor), dst.as_ptr().cast::<T>(), src.as_ptr().cast::<T>());
        for i in 0..fit::<T>(n, &[dst, src]) {
            // SAFETY: i is below what both spans hold.
            unsafe { d.add(i).write_unaligned(a.times(s.add(i).read_unaligned())) };
        }
    }
    by_type!(elem, run(dst, src, n, factor));
}

/// `dst[i] = factor * src[i] + dst[i]`, rounded twice; the spans are the same or do not overlap.
pub fn axpy(dst: Span<'_>, src: Span<'_>, n: usize, elem: Elem, factor: u64) {
    fn run<T: Number>(dst: Span<'_>, src: Span<'_>, n: usize, factor: u64) {
        let (a, d, s) = (T::from_bits64(factor), dst.as_ptr().cast::<T>(), src.as_ptr().cast::<T>());
        for i in 0..fit::<T>(n, &[dst, src]) {
            // SAFETY: i is below what both spans hold.
            unsafe { d.add(i).write_unaligned(a.times(s.add(i).read_unaligned()).plus(d.add(i).read_unaligned())) };
        }
    }
    by_type!(elem, run(dst, src, n, factor));
}

/// Row of GEMM: `dst[j] = first * dst[j] + a * src[j]` in f32, each operation rounded; `first` only where given.
pub fn multiply_add_row(dst: Span<'_>, src: Span<'_>, n: usize, a: f32, first: Option<f32>) {
    let (d, s) = (dst.as_ptr().cast::<f32>(), src.as_ptr().cast::<f32>());
    let n = fit::<f32>(n, &[dst, src]);
    for i in 0..n {
        // SAFETY: i is below what both spans hold.
        unsafe {
            let old = d.add(i).read_unaligned();
            let old = first.map_or(old, |beta| beta * old);
            d.add(i).write_unaligned(old + a * s.add(i).read_unaligned());
        }
    }
}

/// Adds elements to the lanes; `first` is the index of the first one in the whole sum.
pub fn sum_lanes(lanes: &mut Lanes, src: Span<'_>, n: usize, elem: Elem, first: u64) {
    fn run<T: Number>(lanes: &mut Lanes, src: Span<'_>, n: usize, first: u64) {
        let s = src.as_ptr().cast::<T>();
        // SAFETY: `accumulate` asks for elements below the n that is cut here.
        accumulate::<T>(lanes, fit::<T>(n, &[src]), first, |i| unsafe { s.add(i).read_unaligned() });
    }
    by_type!(elem, run(lanes, src, n, first));
}

/// Adds products to the lanes; `first` is the index of the first one in the whole sum.
pub fn dot_lanes(lanes: &mut Lanes, x: Span<'_>, y: Span<'_>, n: usize, elem: Elem, first: u64) {
    fn run<T: Number>(lanes: &mut Lanes, x: Span<'_>, y: Span<'_>, n: usize, first: u64) {
        let (px, py) = (x.as_ptr().cast::<T>(), y.as_ptr().cast::<T>());
        // SAFETY: `accumulate` asks for elements below the n that is cut here.
        accumulate::<T>(lanes, fit::<T>(n, &[x, y]), first, |i| unsafe {
            px.add(i).read_unaligned().times(py.add(i).read_unaligned())
        });
    }
    by_type!(elem, run(lanes, x, y, n, first));
}

#[inline(always)]
fn accumulate<T: Number>(lanes: &mut Lanes, n: usize, first: u64, element: impl Fn(usize) -> T) {
    let mut sums = lanes.map(T::from_bits64);
    let mut i = 0;
    // Up to the next multiple of the lane count, so that the main loop has a fixed lane per position.
    while i < n && !(first as usize + i).is_multiple_of(SUM_LANES) {
        let lane = (first as usize + i) % SUM_LANES;
        sums[lane] = sums[lane].plus(element(i));
        i += 1;
    }
    while i + SUM_LANES <= n {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = sum.plus(element(i + lane));
        }
        i += SUM_LANES;
    }
    for (lane, sum) in sums.iter_mut().enumerate().take(n - i) {
        *sum = sum.plus(element(i + lane));
    }
    *lanes = sums.map(T::bits64);
}

/// The whole sum of the lanes: i with i+8, then i+4, i+2, i+1.
pub fn fold_lanes(lanes: &Lanes, elem: Elem) -> u64 {
    fn run<T: Number>(lanes: &Lanes) -> u64 {
        let mut sums = lanes.map(T::from_bits64);
        let mut width = SUM_LANES / 2;
        while width > 0 {
            for i in 0..width {
                sums[i] = sums[i].plus(sums[i + width]);
            }
            width /= 2;
        }
        sums[0].bits64()
    }
    by_type!(elem, run(lanes))
}
