//! The kernels as `uma_protocol::kernel` words them: one element after the other, over flat memory.

use super::memory::BASE;
use crate::engine::Outcome;
use uma_protocol::kernel::{atomic_slot, Elem, JobRequest, Kernel, SUM_LANES};
use uma_protocol::Status;

/// Memory from [`BASE`] on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flat(pub Vec<u8>);

impl Flat {
    pub fn get(&self, va: u64, size: u64) -> u64 {
        let at = (va - BASE) as usize;
        let mut word = [0; 8];
        word[..size as usize].copy_from_slice(&self.0[at..at + size as usize]);
        u64::from_le_bytes(word)
    }

    pub fn put(&mut self, va: u64, size: u64, bits: u64) {
        let at = (va - BASE) as usize;
        self.0[at..at + size as usize].copy_from_slice(&bits.to_le_bytes()[..size as usize]);
    }
}

fn f32s(a: u64, b: u64) -> (f32, f32) {
    (f32::from_bits(a as u32), f32::from_bits(b as u32))
}

fn add(elem: Elem, a: u64, b: u64) -> u64 {
    match elem {
        Elem::U8 => u64::from((a as u8).wrapping_add(b as u8)),
        Elem::U32 => u64::from((a as u32).wrapping_add(b as u32)),
        Elem::U64 => a.wrapping_add(b),
        Elem::F32 => u64::from((f32s(a, b).0 + f32s(a, b).1).to_bits()),
        Elem::F64 => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
    }
}

fn mul(elem: Elem, a: u64, b: u64) -> u64 {
    match elem {
        Elem::U8 => u64::from((a as u8).wrapping_mul(b as u8)),
        Elem::U32 => u64::from((a as u32).wrapping_mul(b as u32)),
        Elem::U64 => a.wrapping_mul(b),
        Elem::F32 => u64::from((f32s(a, b).0 * f32s(a, b).1).to_bits()),
        Elem::F64 => (f64::from_bits(a) * f64::from_bits(b)).to_bits(),
    }
}

/// The sum in lanes, and the lanes pairwise.
fn lane_sum(elem: Elem, values: impl Iterator<Item = u64>) -> u64 {
    let mut lanes = [0; SUM_LANES];
    for (i, value) in values.enumerate() {
        lanes[i % SUM_LANES] = add(elem, lanes[i % SUM_LANES], value);
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] = add(elem, lanes[i], lanes[i + half]);
        }
    }
    lanes[0]
}

/// Runs the whole job.
pub(crate) fn run(job: &JobRequest, flat: &mut Flat) -> Outcome {
    let (kernel, elem) = job.kernel().unwrap();
    let Some(elem) = elem else { return Outcome::Done(0) };
    match kernel {
        Kernel::Gather | Kernel::Scatter => moves(job, elem, kernel == Kernel::Gather, flat),
        Kernel::Chase => chase(job, flat),
        Kernel::AtomicAdd | Kernel::AtomicCas => Outcome::Done(atomics(job, elem, kernel, flat)),
        Kernel::Reduce | Kernel::Dot => Outcome::Done(sums(job, elem, kernel, flat)),
        Kernel::Gemm => {
            gemm(job, flat);
            Outcome::Done(0)
        }
        _ => {
            elementwise(job, elem, kernel, flat);
            Outcome::Done(0)
        }
    }
}

fn elementwise(job: &JobRequest, elem: Elem, kernel: Kernel, flat: &mut Flat) {
    let ([dst, src, ..], size, factor) = (job.args.va, elem.size(), job.args.scalar[0]);
    for at in (0..job.args.n[0]).map(|i| i * size) {
        let value = match kernel {
            Kernel::Fill => factor,
            Kernel::Copy => flat.get(src + at, size),
            Kernel::Scale => mul(elem, factor, flat.get(src + at, size)),
            Kernel::Axpy => add(elem, mul(elem, factor, flat.get(src + at, size)), flat.get(dst + at, size)),
            other => unreachable!("{other:?}"),
        };
        flat.put(dst + at, size, value);
    }
}

fn sums(job: &JobRequest, elem: Elem, kernel: Kernel, flat: &mut Flat) -> u64 {
    let ([out, x, y, _], size) = (job.args.va, elem.size());
    let sum = lane_sum(
        elem,
        (0..job.args.n[0]).map(|i| match kernel {
            Kernel::Reduce => flat.get(x + i * size, size),
            _ => mul(elem, flat.get(x + i * size, size), flat.get(y + i * size, size)),
        }),
    );
    flat.put(out, size, sum);
    sum
}

fn moves(job: &JobRequest, elem: Elem, gather: bool, flat: &mut Flat) -> Outcome {
    let ([dst, src, indices, _], size) = (job.args.va, elem.size());
    for i in 0..job.args.n[0] {
        let index = flat.get(indices + 8 * i, 8);
        if index >= job.args.n[1] {
            return Outcome::Trap(Status::BadArgument);
        }
        let (to, from) = if gather { (i, index) } else { (index, i) };
        let value = flat.get(src + from * size, size);
        flat.put(dst + to * size, size, value);
    }
    Outcome::Done(0)
}

fn gemm(job: &JobRequest, flat: &mut Flat) {
    let ([c, a, b, _], [rows, columns, terms, _]) = (job.args.va, job.args.n);
    let [alpha, beta] = job.args.scalar;
    let elem = Elem::F32;
    for i in 0..rows {
        for j in 0..columns {
            let at = c + 4 * (i * columns + j);
            let mut sum = mul(elem, beta, flat.get(at, 4));
            for p in 0..terms {
                let factor = mul(elem, alpha, flat.get(a + 4 * (i * terms + p), 4));
                sum = add(elem, sum, mul(elem, factor, flat.get(b + 4 * (p * columns + j), 4)));
            }
            flat.put(at, 4, sum);
        }
    }
}

fn atomics(job: &JobRequest, elem: Elem, kernel: Kernel, flat: &mut Flat) -> u64 {
    let (va, size, [first, second]) = (job.args.va[0], elem.size(), job.args.scalar);
    let [slots, operations, ..] = job.args.n;
    if kernel == Kernel::AtomicAdd {
        for i in 0..operations {
            let at = va + size * atomic_slot(second, i, slots);
            flat.put(at, size, add(elem, flat.get(at, size), first));
        }
        return 0;
    }
    let mut exchanged = 0;
    for at in (0..slots).map(|i| va + i * size) {
        if flat.get(at, size) == first {
            flat.put(at, size, second);
            exchanged += 1;
        }
    }
    exchanged
}

fn chase(job: &JobRequest, flat: &mut Flat) -> Outcome {
    let mut pointer = job.args.va[0];
    for _ in 0..job.args.n[0] {
        if !pointer.is_multiple_of(8) {
            return Outcome::Trap(Status::Misaligned);
        }
        pointer = flat.get(pointer, 8);
    }
    flat.put(job.args.va[1], 8, pointer);
    Outcome::Done(pointer)
}
