//! The kernels, computed by the CPU, to the bit.

use libuma::Element;
use uma_protocol::kernel::{atomic_slot, SUM_LANES};

/// An element with the device's arithmetic: integers wrap, floats round each operation.
pub trait Number: Element + PartialEq + std::fmt::Debug {
    /// Zero.
    const ZERO: Self;
    /// Sum.
    fn plus(self, other: Self) -> Self;
    /// Product.
    fn times(self, other: Self) -> Self;
    /// Some value for element `index`: all bytes of it change, and floats are neither huge nor tiny.
    fn sample(index: usize) -> Self;
}

/// A mixed-up version of a number.
pub fn mix(index: usize) -> u64 {
    let mut z = (index as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ z >> 27
}

macro_rules! integers {
    ($($type:ty)*) => { $(impl Number for $type {
        const ZERO: Self = 0;
        fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
        fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
        fn sample(index: usize) -> Self { mix(index) as $type }
    })* };
}
macro_rules! floats {
    ($($type:ty)*) => { $(impl Number for $type {
        const ZERO: Self = 0.0;
        fn plus(self, other: Self) -> Self { self + other }
        fn times(self, other: Self) -> Self { self * other }
        fn sample(index: usize) -> Self { (mix(index) % 2_000_003) as $type / 1024.0 - 900.0 }
    })* };
}
integers!(u8 u32 u64);
floats!(f32 f64);

/// `n` samples from index `from` on.
pub fn samples<T: Number>(from: usize, n: usize) -> Vec<T> {
    (from..from + n).map(T::sample).collect()
}

/// Sum in lanes, as REDUCE adds.
pub fn sum<T: Number>(values: impl Iterator<Item = T>) -> T {
    let mut lanes = [T::ZERO; SUM_LANES];
    for (index, value) in values.enumerate() {
        let lane = &mut lanes[index % SUM_LANES];
        *lane = lane.plus(value);
    }
    let mut width = SUM_LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = lanes[lane].plus(lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// DOT.
pub fn dot<T: Number>(x: &[T], y: &[T]) -> T {
    sum(x.iter().zip(y).map(|(x, y)| x.times(*y)))
}

/// AXPY.
pub fn axpy<T: Number>(y: &mut [T], x: &[T], factor: T) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = factor.times(*x).plus(*y);
    }
}

/// GEMM; `size` is (m, n, k).
pub fn gemm(c: &mut [f32], a: &[f32], b: &[f32], size: (usize, usize, usize), alpha: f32, beta: f32) {
    let (m, n, k) = size;
    for row in 0..m {
        for column in 0..n {
            let mut value = beta * c[row * n + column];
            for p in 0..k {
                value += (alpha * a[row * k + p]) * b[p * n + column];
            }
            c[row * n + column] = value;
        }
    }
}

/// ATOMIC_ADD alone on the slots.
pub fn atomic_add<T: Number>(slots: &mut [T], ops: u64, addend: T, seed: u64) {
    for op in 0..ops {
        let slot = &mut slots[atomic_slot(seed, op, slots.len() as u64) as usize];
        *slot = slot.plus(addend);
    }
}

/// ATOMIC_CAS alone on the slots: the number of exchanges.
pub fn atomic_cas<T: Number>(slots: &mut [T], old: T, new: T) -> u64 {
    let mut exchanges = 0;
    for slot in slots.iter_mut().filter(|slot| **slot == old) {
        *slot = new;
        exchanges += 1;
    }
    exchanges
}

/// Fails with the first element that differs, bit for bit.
#[track_caller]
pub fn assert_same<T: Number>(what: &str, got: &[T], expected: &[T]) {
    assert_eq!(got.len(), expected.len(), "length of {what}");
    if let Some(index) = (0..got.len()).find(|index| got[*index].to_bits() != expected[*index].to_bits()) {
        let wrong = (0..got.len()).filter(|index| got[*index].to_bits() != expected[*index].to_bits()).count();
        panic!("{what}[{index}] is {:?}, not {:?}; {wrong} of {} differ", got[index], expected[index], got.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_add_pairwise() {
        assert_eq!(sum((0..1000u64).chain([u64::MAX])), 999 * 500 - 1);
        // 17 elements: lane 0 holds two of them, and the tree adds (0,8), (0,4), (0,2), (0,1)
        let values = samples::<f32>(0, 17);
        let mut lanes: Vec<f32> = values[..16].iter().map(|value| 0.0 + value).collect();
        lanes[0] += values[16];
        for width in [8, 4, 2, 1] {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
        }
        assert_eq!(sum(values.iter().copied()).to_bits(), lanes[0].to_bits());
    }

    #[test]
    fn exchanges_are_counted() {
        let mut slots = [1u32, 2, 1, 3];
        assert_eq!(atomic_cas(&mut slots, 1, 9), 2);
        assert_eq!(slots, [9, 2, 9, 3]);
    }

    #[test]
    fn adds_reach_every_slot_once_per_round() {
        let mut slots = [0u64; 7];
        atomic_add(&mut slots, 14, 5, 0);
        assert_eq!(slots, [10; 7]);
        atomic_add(&mut slots, 1000, 1, 42);
        assert_eq!(slots.iter().sum::<u64>(), 70 + 1000);
    }
}
