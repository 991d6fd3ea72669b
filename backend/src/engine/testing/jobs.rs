//! Random jobs that pass validation, with the memory that they work on.

use super::memory::{BASE, PAGE};
use super::reference::Flat;
use super::Random;
use uma_protocol::kernel::{Elem, JobRequest, Kernel, KernelArgs};
use uma_protocol::{pte, PAGE_SIZE};

/// Pages of each of the three areas that operands lie in.
const AREA: u64 = 8;
/// Pages that one operand covers at most, so that it fits into its area at any offset in the first page.
const OPERAND: u64 = 5;
/// Steps of the kernels that do one element per step.
const MAX_ELEMENTS: u64 = 70;

/// A job and its memory before the first step.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub job: JobRequest,
    pub memory: Flat,
}

/// Every kernel with every element type that it works on; NOP is not among them.
pub(crate) fn kinds() -> Vec<(Kernel, Elem)> {
    let job =
        |kernel: Kernel, elem: Elem| JobRequest { kernel: kernel as u16, elem: elem as u16, ..Default::default() };
    let all = Kernel::ALL.iter().flat_map(|kernel| Elem::ALL.iter().map(|elem| (*kernel, *elem)));
    all.filter(|(kernel, elem)| job(*kernel, *elem).kernel().is_ok()).collect()
}

/// The job that `seed` stands for; counts grow with `percent`.
pub(crate) fn random(kernel: Kernel, elem: Elem, seed: u64, percent: u64) -> Case {
    let mut maker = Maker { random: Random(seed), elem, percent };
    let mut memory = Flat(vec![0; 3 * AREA as usize * PAGE]);
    for word in memory.0.chunks_exact_mut(8) {
        let bits = match elem {
            Elem::F32 => maker.value() << 32 | maker.value(),
            Elem::F64 => maker.value(),
            _ => maker.random.next(),
        };
        word.copy_from_slice(&bits.to_le_bytes());
    }
    let args = maker.args(kernel, &mut memory);
    let job = JobRequest { kernel: kernel as u16, elem: elem as u16, args, ..Default::default() };
    assert_eq!(job.validate(pte::user_end(4)), Ok(()), "{kernel:?} {elem:?} {args:x?}");
    Case { job, memory }
}

struct Maker {
    random: Random,
    elem: Elem,
    percent: u64,
}

impl Maker {
    /// Bits of a value of moderate size: sums stay finite, so that every bit of them is determined.
    fn value(&mut self) -> u64 {
        let real = |random: &mut Random| (random.below(20_001) as f64 - 10_000.0) / 128.0;
        match self.elem {
            Elem::U8 => self.random.below(1 << 8),
            Elem::U32 => self.random.below(1 << 32),
            Elem::U64 => self.random.next(),
            Elem::F32 => u64::from((real(&mut self.random) as f32 / 3.0).to_bits()),
            Elem::F64 => (real(&mut self.random) / 3.0).to_bits(),
        }
    }

    /// 0..=max, less if the job is to be smaller.
    fn count(&mut self, max: u64) -> u64 {
        self.random.below(max * self.percent / 100 + 1)
    }

    /// An address in the first page of area `index`; `align` is a power of two. Often close to the page's end.
    fn place(&mut self, index: u64, align: u64) -> u64 {
        let offset = match self.random.below(3) {
            0 => 0,
            1 => PAGE_SIZE - align * (1 + self.random.below(20.min(PAGE_SIZE / align))),
            _ => self.random.below(PAGE_SIZE),
        };
        BASE + index * AREA * PAGE_SIZE + offset / align * align
    }

    fn args(&mut self, kernel: Kernel, memory: &mut Flat) -> KernelArgs {
        match kernel {
            Kernel::Nop => KernelArgs::default(),
            Kernel::Fill | Kernel::Copy | Kernel::Scale | Kernel::Axpy => self.elementwise(kernel),
            Kernel::Reduce | Kernel::Dot => self.sums(kernel),
            Kernel::Gather | Kernel::Scatter => self.moves(kernel, memory),
            Kernel::Gemm => self.gemm(),
            Kernel::AtomicAdd | Kernel::AtomicCas => self.atomics(kernel, memory),
            Kernel::Chase => self.chase(memory),
        }
    }

    fn elementwise(&mut self, kernel: Kernel) -> KernelArgs {
        let size = self.elem.size();
        let n = self.count(OPERAND * PAGE_SIZE / size);
        let dst = self.place(0, size);
        let src = match (kernel, self.random.below(3)) {
            (Kernel::Fill, _) => 0,
            // Copied downwards over itself.
            (Kernel::Copy, 0) => dst + size * self.random.below((2 * PAGE_SIZE / size).min(n + 1)),
            (Kernel::Scale | Kernel::Axpy, 0) => dst,
            _ => self.place(1, size),
        };
        let factor = if kernel == Kernel::Copy { 0 } else { self.value() };
        KernelArgs { va: [dst, src, 0, 0], n: [n, 0, 0, 0], scalar: [factor, 0] }
    }

    fn sums(&mut self, kernel: Kernel) -> KernelArgs {
        let size = self.elem.size();
        let n = self.count(OPERAND * PAGE_SIZE / size);
        let x = self.place(1, size);
        let y = match (kernel, self.random.below(3)) {
            (Kernel::Reduce, _) => 0,
            (_, 0) => x,
            _ => self.place(2, size),
        };
        KernelArgs { va: [self.place(0, size), x, y, 0], n: [n, 0, 0, 0], scalar: [0; 2] }
    }

    fn moves(&mut self, kernel: Kernel, memory: &mut Flat) -> KernelArgs {
        let size = self.elem.size();
        let n = self.count(MAX_ELEMENTS);
        let bound = 1 + self.count(OPERAND * PAGE_SIZE / size - 1);
        let va = [self.place(0, size), self.place(1, size), self.place(2, 8), 0];
        for i in 0..n {
            memory.put(va[2] + 8 * i, 8, self.random.below(bound));
        }
        if n > 0 && self.random.below(6) == 0 {
            let at = va[2] + 8 * self.random.below(n);
            memory.put(at, 8, bound + self.random.next() % (u64::MAX - bound));
        }
        debug_assert!(matches!(kernel, Kernel::Gather | Kernel::Scatter));
        KernelArgs { va, n: [n, bound, 0, 0], scalar: [0; 2] }
    }

    fn gemm(&mut self) -> KernelArgs {
        let (rows, terms) = (self.count(4), self.count(4));
        let columns = self.count(OPERAND * PAGE_SIZE / 16);
        let va = [self.place(0, 4), self.place(1, 4), self.place(2, 4), 0];
        KernelArgs { va, n: [rows, columns, terms, 0], scalar: [self.value(), self.value()] }
    }

    fn atomics(&mut self, kernel: Kernel, memory: &mut Flat) -> KernelArgs {
        let size = self.elem.size();
        let va = self.place(0, size);
        if kernel == Kernel::AtomicAdd {
            let slots = 1 + self.count(OPERAND * PAGE_SIZE / size - 1);
            let seed = self.random.next() * self.random.below(2);
            return KernelArgs {
                va: [va, 0, 0, 0],
                n: [slots, self.count(MAX_ELEMENTS), 0, 0],
                scalar: [self.value(), seed],
            };
        }
        let n = self.count(MAX_ELEMENTS);
        let [expected, new] = [self.value(), self.value()];
        for i in (0..n).filter(|_| self.random.below(2) == 0).collect::<Vec<_>>() {
            memory.put(va + i * size, size, expected);
        }
        KernelArgs { va: [va, 0, 0, 0], n: [n, 0, 0, 0], scalar: [expected, new] }
    }

    /// Hops at random over the areas 0 and 1; sometimes the last pointer is where the result goes, or is not aligned.
    fn chase(&mut self, memory: &mut Flat) -> KernelArgs {
        let hops = self.count(MAX_ELEMENTS);
        let words = 2 * AREA * PAGE_SIZE / 8;
        let mut nodes: Vec<u64> = (0..words).map(|i| BASE + 8 * i).collect();
        self.random.shuffle(&mut nodes);
        nodes.truncate(hops as usize + 1);
        for pair in nodes.windows(2) {
            memory.put(pair[0], 8, pair[1]);
        }
        let out = match self.random.below(4) {
            0 => nodes[self.random.below(nodes.len() as u64) as usize],
            _ => self.place(2, 8),
        };
        if hops > 1 && self.random.below(6) == 0 {
            let node = nodes[self.random.below(hops) as usize];
            memory.put(node, 8, nodes[0] + 1 + self.random.below(7));
        }
        KernelArgs { va: [nodes[0], out, 0, 0], n: [hops, 0, 0, 0], scalar: [0; 2] }
    }
}
