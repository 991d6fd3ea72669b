//! Every kernel against the CPU, on operands that cross pages and start somewhere inside one.

use crate::fixture::Fixture;
use crate::memory::Mapping;
use crate::reference::{self, assert_same, mix, samples, Number};
use crate::Test;
use libuma::{AtomicElement, Status, Task};
use std::sync::atomic::{AtomicU32, AtomicU64};

pub(super) const TESTS: &[Test] = &[
    Test::shared("kernel_nop", nop),
    Test::shared("kernel_fill", fill),
    Test::shared("kernel_copy", copy),
    Test::shared("kernel_copy_overlapping", copy_overlapping),
    Test::shared("kernel_scale", scale),
    Test::shared("kernel_axpy", axpy),
    Test::shared("kernel_reduce", reduce),
    Test::shared("kernel_dot", dot),
    Test::shared("kernel_gather", gather),
    Test::shared("kernel_scatter", scatter),
    Test::shared("kernel_index_out_of_bounds", index_out_of_bounds),
    Test::shared("kernel_gemm", gemm),
    Test::shared("kernel_atomic_add", atomic_add),
    Test::shared("kernel_atomic_cas", atomic_cas),
    Test::shared("kernel_chase", chase),
    Test::shared("kernel_empty", empty),
];

/// Elements of an operand: some pages and a bit.
const N: usize = 5000;
/// Element that an operand starts at: not at a page, nor at a vector's width.
const ODD: usize = 13;

/// An operand of `N` samples (shifted by `salt`) in a mapping of its own; what lies around it must stay.
struct Operand<T> {
    memory: Mapping,
    salt: usize,
    _type: std::marker::PhantomData<T>,
}

impl<T: Number> Operand<T> {
    fn new(salt: usize) -> Self {
        let mut memory = Mapping::small((N + 2 * ODD) * size_of::<T>());
        for (index, value) in memory.slice_mut::<T>().iter_mut().enumerate() {
            *value = T::sample(index + salt);
        }
        Self { memory, salt, _type: std::marker::PhantomData }
    }

    fn data(&mut self) -> &mut [T] {
        &mut self.memory.slice_mut::<T>()[ODD..ODD + N]
    }

    fn values(&self) -> Vec<T> {
        samples(self.salt + ODD, N)
    }

    #[track_caller]
    fn assert(&mut self, what: &str, expected: &[T]) {
        assert_same(what, self.data(), expected);
        let whole = self.memory.slice::<T>();
        assert_same("what lies before", &whole[..ODD], &samples(self.salt, ODD));
        let after = ODD + N;
        assert_same("what lies behind", &whole[after..], &samples(self.salt + after, whole.len() - after));
    }
}

fn nop(fixture: &Fixture) {
    let end = fixture.run(Task::nop());
    assert_eq!((end.bytes, end.faults, end.bits), (0, 0, 0));
}

fn fill(fixture: &Fixture) {
    fn typed<T: Number>(fixture: &Fixture) {
        let mut dst = Operand::<T>::new(0);
        fixture.run(Task::fill(dst.data(), T::sample(77)));
        dst.assert("fill", &[T::sample(77); N]);
    }
    typed::<u8>(fixture);
    typed::<u32>(fixture);
    typed::<u64>(fixture);
    typed::<f32>(fixture);
    typed::<f64>(fixture);
}

fn copy(fixture: &Fixture) {
    fn typed<T: Number>(fixture: &Fixture) {
        let (mut dst, mut src) = (Operand::<T>::new(0), Operand::<T>::new(9000));
        fixture.run(Task::copy(dst.data(), src.data()).expect("same length"));
        dst.assert("copy", &src.values());
        src.assert("source", &samples(9000 + ODD, N));
    }
    typed::<u8>(fixture);
    typed::<u32>(fixture);
    typed::<u64>(fixture);
    typed::<f32>(fixture);
    typed::<f64>(fixture);
}

/// Ascending: a destination below its source may overlap it, the other way is refused.
fn copy_overlapping(fixture: &Fixture) {
    let mut operand = Operand::<u32>::new(0);
    let start = operand.data().as_mut_ptr();
    let down = libuma::Job::copy(start, start.wrapping_add(1), N - 1);
    assert_eq!(fixture.run_raw(&down).status, Status::Ok);
    let mut expected = operand.values();
    expected.copy_within(1.., 0);
    operand.assert("copy downwards", &expected);
    let up = libuma::Job::copy(start.wrapping_add(1), start, N - 1);
    super::uapi::assert_refused(fixture, &up, libc::EINVAL);
    operand.assert("after the refusal", &expected);
}

fn scale(fixture: &Fixture) {
    fn typed<T: Number>(fixture: &Fixture) {
        let (mut dst, mut src) = (Operand::<T>::new(0), Operand::<T>::new(500));
        let factor = T::sample(3);
        let expected: Vec<T> = src.values().into_iter().map(|value| factor.times(value)).collect();
        fixture.run(Task::scale_into(dst.data(), src.data(), factor).expect("same length"));
        dst.assert("scale", &expected);
        fixture.run(Task::scale(src.data(), factor));
        src.assert("scale in place", &expected);
    }
    typed::<u32>(fixture);
    typed::<u64>(fixture);
    typed::<f32>(fixture);
    typed::<f64>(fixture);
}

fn axpy(fixture: &Fixture) {
    fn typed<T: Number>(fixture: &Fixture) {
        let (mut y, mut x) = (Operand::<T>::new(0), Operand::<T>::new(700));
        let mut expected = y.values();
        reference::axpy(&mut expected, &x.values(), T::sample(5));
        fixture.run(Task::axpy(y.data(), x.data(), T::sample(5)).expect("same length"));
        y.assert("axpy", &expected);
    }
    typed::<u32>(fixture);
    typed::<u64>(fixture);
    typed::<f32>(fixture);
    typed::<f64>(fixture);
}

fn reduce(fixture: &Fixture) {
    fn typed<T: Number>(fixture: &Fixture) {
        let (mut sum, mut x) = (Mapping::small(8), Operand::<T>::new(40));
        let expected = reference::sum(x.values().into_iter());
        let end = fixture.run(Task::reduce(&mut sum.slice_mut::<T>()[0], x.data()));
        assert_same("sum", &sum.slice::<T>()[..1], &[expected]);
        assert_eq!(end.bits, expected.to_bits(), "the result is the sum's bits");
    }
    typed::<u32>(fixture);
    typed::<u64>(fixture);
    typed::<f32>(fixture);
    typed::<f64>(fixture);
}

fn dot(fixture: &Fixture) {
    fn typed<T: Number>(fixture: &Fixture) {
        let (mut sum, mut x, mut y) = (Mapping::small(8), Operand::<T>::new(40), Operand::<T>::new(80));
        let expected = reference::dot(&x.values(), &y.values());
        let end = fixture.run(Task::dot(&mut sum.slice_mut::<T>()[0], x.data(), y.data()).expect("same length"));
        assert_same("sum", &sum.slice::<T>()[..1], &[expected]);
        assert_eq!(end.bits, expected.to_bits(), "the result is the sum's bits");
    }
    typed::<u32>(fixture);
    typed::<u64>(fixture);
    typed::<f32>(fixture);
    typed::<f64>(fixture);
}

/// A permutation of 0..N.
fn permutation() -> Vec<u64> {
    let mut index: Vec<u64> = (0..N as u64).collect();
    for i in (1..N).rev() {
        index.swap(i, mix(i) as usize % (i + 1));
    }
    index
}

fn gather(fixture: &Fixture) {
    fn typed<T: Number>(fixture: &Fixture) {
        let (mut dst, mut src, index) = (Operand::<T>::new(0), Operand::<T>::new(300), permutation());
        let values = src.values();
        let expected: Vec<T> = index.iter().map(|index| values[*index as usize]).collect();
        fixture.run(Task::gather(dst.data(), src.data(), &index).expect("same length"));
        dst.assert("gather", &expected);
    }
    typed::<u8>(fixture);
    typed::<u32>(fixture);
    typed::<u64>(fixture);
    typed::<f64>(fixture);
}

fn scatter(fixture: &Fixture) {
    fn typed<T: Number>(fixture: &Fixture) {
        let (mut dst, mut src, index) = (Operand::<T>::new(0), Operand::<T>::new(300), permutation());
        let mut expected = dst.values();
        for (value, index) in src.values().into_iter().zip(&index) {
            expected[*index as usize] = value;
        }
        fixture.run(Task::scatter(dst.data(), src.data(), &index).expect("same length"));
        dst.assert("scatter", &expected);
    }
    typed::<u8>(fixture);
    typed::<u32>(fixture);
    typed::<u64>(fixture);
    typed::<f64>(fixture);
}

/// An index beyond the array ends the job; nothing outside of the array is written.
fn index_out_of_bounds(fixture: &Fixture) {
    let (mut dst, mut src, mut index) = (Operand::<u32>::new(0), Operand::<u32>::new(300), permutation());
    index[N / 2] = N as u64;
    let error = fixture.context.run(Task::scatter(dst.data(), src.data(), &index).expect("same length")).unwrap_err();
    assert_eq!(error.status(), Some(Status::BadArgument));
    let behind = &dst.memory.slice::<u32>()[ODD + N..];
    assert_same("what lies behind", behind, &samples(ODD + N, behind.len()));
    index[N / 2] = u64::MAX;
    let error = fixture.context.run(Task::gather(dst.data(), src.data(), &index).expect("same length")).unwrap_err();
    assert_eq!(error.status(), Some(Status::BadArgument));
}

fn gemm(fixture: &Fixture) {
    for (m, n, k) in [(1, 1, 1), (17, 33, 9), (40, 70, 61)] {
        let (a, b) = (samples::<f32>(0, m * k), samples::<f32>(100, k * n));
        let mut c = samples::<f32>(200, m * n);
        let mut expected = c.clone();
        reference::gemm(&mut expected, &a, &b, (m, n, k), 0.75, -1.25);
        fixture.run(Task::gemm(&mut c, &a, &b, (m, n, k), 0.75, -1.25).expect("shapes"));
        assert_same("gemm", &c, &expected);
    }
}

fn atomic_add(fixture: &Fixture) {
    fn typed<A: AtomicElement<Value = T>, T: Number>(fixture: &Fixture, atomics: fn(&Mapping) -> &[A]) {
        for (slots, ops, seed) in [(1, 1000, 0), (700, 3000, 0), (2000, 5000, 42)] {
            let mut memory = Mapping::small(2000 * 8);
            crate::memory::write_samples(memory.slice_mut::<T>());
            let mut expected = memory.slice::<T>().to_vec();
            reference::atomic_add(&mut expected[..slots], ops, T::sample(8), seed);
            fixture.run(Task::atomic_add(&atomics(&memory)[..slots], ops, T::sample(8), seed));
            assert_same("slots", memory.slice::<T>(), &expected);
        }
    }
    typed::<AtomicU64, u64>(fixture, Mapping::atomics);
    typed::<AtomicU32, u32>(fixture, Mapping::atomics32);
}

fn atomic_cas(fixture: &Fixture) {
    fn typed<A: AtomicElement<Value = T>, T: Number>(fixture: &Fixture, atomics: fn(&Mapping) -> &[A]) {
        let mut memory = Mapping::small(N * size_of::<T>());
        for (index, value) in memory.slice_mut::<T>().iter_mut().enumerate() {
            *value = T::sample(index % 5);
        }
        let mut expected = memory.slice::<T>().to_vec();
        let exchanges = reference::atomic_cas(&mut expected, T::sample(2), T::sample(99));
        let end = fixture.run(Task::atomic_cas(atomics(&memory), T::sample(2), T::sample(99)));
        assert_eq!(end.bits, exchanges);
        assert_same("slots", memory.slice::<T>(), &expected);
    }
    typed::<AtomicU64, u64>(fixture, Mapping::atomics);
    typed::<AtomicU32, u32>(fixture, Mapping::atomics32);
}

fn chase(fixture: &Fixture) {
    let (mut list, mut last) = (Mapping::small(N * 8), Mapping::small(8));
    let (base, order) = (list.addr() as u64, permutation());
    let address = |slot: u64| base + slot * 8;
    for (position, slot) in order.iter().enumerate() {
        list.slice_mut::<u64>()[*slot as usize] = address(order[(position + 1) % N]);
    }
    for hops in [0, 1, 777, N, 3 * N + 5] {
        let expected = address(order[hops % N]);
        let start = address(order[0]) as *const u64;
        // SAFETY: the list is not written while the job runs, and `last` is in memory of its own.
        let end = fixture.run(unsafe { Task::chase(&mut last.slice_mut::<u64>()[0], start, hops as u64) });
        assert_eq!(end.bits, expected, "{hops} hops");
        assert_eq!(last.slice::<u64>()[0], expected, "{hops} hops, in memory");
    }
}

/// Jobs on nothing end well and touch nothing.
fn empty(fixture: &Fixture) {
    let mut sum = [5u64];
    fixture.run(Task::fill::<u64>(&mut [], 1));
    fixture.run(Task::copy::<f32>(&mut [], &[]).expect("same length"));
    fixture.run(Task::reduce::<u64>(&mut sum[0], &[]));
    assert_eq!(sum[0], 0, "the sum of nothing");
    fixture.run(Task::atomic_add(&[AtomicU64::new(0)], 0, 1, 0));
}
