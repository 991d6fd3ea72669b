//! Jobs and the fixed-function kernels (SPEC.md §8).

use crate::reply::ReplyHeader;
use crate::request::{body, parse_header, Refused, RequestHeader, RequestQueue};
use crate::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Lanes of the sums of REDUCE and DOT: lane i adds up the elements with index ≡ i (mod 16) in ascending order; the
/// lanes are then added pairwise (i with i+8, then i+4, i+2, i+1). So the result does not depend on where the device
/// interrupts the kernel, and a driver can compute the same bits.
pub const SUM_LANES: usize = 16;
/// Priorities are 0..MAX_PRIORITY; higher runs first.
pub const MAX_PRIORITY: u16 = 4;

macro_rules! codes {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $name:ident = $code:literal, $wire:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum $type { $($(#[$doc])* $name = $code,)* }

        impl $type {
            /// Every value, in the order of the codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            /// Value with this wire code.
            pub const fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
            /// Name in SPEC.md and (with a prefix) in the C header.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $wire,)* }
            }
        }
    };
}

codes! {
    /// Type of the elements that a kernel works on. Integers wrap.
    Elem {
        /// Unsigned 8 bit.
        U8 = 1, "U8";
        /// Unsigned or signed 32 bit.
        U32 = 2, "U32";
        /// Unsigned or signed 64 bit.
        U64 = 3, "U64";
        /// IEEE 754 binary32.
        F32 = 4, "F32";
        /// IEEE 754 binary64.
        F64 = 5, "F64";
    }
}

codes! {
    /// A fixed-function kernel. The meaning of [`KernelArgs`] per kernel is given with each; `va`, `n` and `scalar`
    /// that a kernel does not use must be zero. Element i of an operand is at `va + i * size`.
    Kernel {
        /// Does nothing.
        Nop = 0, "NOP";
        /// `va0[i] = scalar0` for i < n0.
        Fill = 1, "FILL";
        /// `va0[i] = va1[i]` for i < n0, ascending; a destination that begins inside the source is refused.
        Copy = 2, "COPY";
        /// `va0[i] = scalar0 * va1[i]` for i < n0; the operands are the same array or do not overlap.
        Scale = 3, "SCALE";
        /// `va0[i] = scalar0 * va1[i] + va0[i]` for i < n0, product and sum rounded one after the other.
        Axpy = 4, "AXPY";
        /// `*va0 = sum of va1[i]` for i < n0, lanes as of [`SUM_LANES`].
        Reduce = 5, "REDUCE";
        /// `*va0 = sum of va1[i] * va2[i]` for i < n0, lanes as of [`SUM_LANES`].
        Dot = 6, "DOT";
        /// `va0[i] = va1[va2[i]]` for i < n0; va2 holds U64 indices, each below n1.
        Gather = 7, "GATHER";
        /// `va0[va2[i]] = va1[i]` for i < n0; va2 holds U64 indices, each below n1.
        Scatter = 8, "SCATTER";
        /// `C = scalar0 * A * B + scalar1 * C`, F32 only, row-major and dense: C = va0 (n0 × n1), A = va1 (n0 × n2),
        /// B = va2 (n2 × n1). Per element: `c = scalar1 * c`, then for ascending p `c = c + (scalar0 * a[p]) * b[p]`.
        Gemm = 9, "GEMM";
        /// n1 times atomically `va0[slot] += scalar0`, slot = [`atomic_slot`]`(scalar1, i, n0)`. U32 and U64 only.
        AtomicAdd = 10, "ATOMIC_ADD";
        /// For i < n0 atomically: if `va0[i] == scalar0` then `va0[i] = scalar1`; the result is the number of
        /// exchanges. U32 and U64 only.
        AtomicCas = 11, "ATOMIC_CAS";
        /// n0 times `p = *p`, from p = va0; pointers are U64 addresses. `*va1 = p` at the end, which is the result too.
        Chase = 12, "CHASE";
    }
}

impl Elem {
    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::U32 | Self::F32 => 4,
            Self::U64 | Self::F64 => 8,
        }
    }
}

/// Slot that operation `i` of ATOMIC_ADD hits: `i mod slots` for seed 0, otherwise `splitmix64(seed + i) mod slots`.
pub const fn atomic_slot(seed: u64, i: u64, slots: u64) -> u64 {
    if seed == 0 {
        return i % slots;
    }
    let mut z = seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ z >> 31) % slots
}

/// Arguments of a kernel. 80 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct KernelArgs {
    /// Operand addresses, aligned to the element.
    pub va: [u64; 4],
    /// Counts.
    pub n: [u64; 4],
    /// Values as bits of the element type, zero-extended.
    pub scalar: [u64; 2],
}

/// SUBMIT: one job. 152 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct JobRequest {
    /// Header; its id names the job.
    pub header: RequestHeader,
    /// A [`Kernel`].
    pub kernel: u16,
    /// An [`Elem`]; 0 for NOP.
    pub elem: u16,
    /// Below [`MAX_PRIORITY`].
    pub priority: u16,
    /// Must be zero.
    pub reserved: u16,
    /// Jobs of one stream run in the order of their submission.
    pub stream: u32,
    /// Must be zero.
    pub flags: u32,
    /// Nanoseconds from submission after which the job ends with DEADLINE; 0 = never.
    pub deadline_ns: u64,
    /// Fence that the job waits for before its first step, 0 = none.
    pub wait_fence: u32,
    /// Fence that the job's end signals, whatever its status; 0 = none.
    pub signal_fence: u32,
    /// The job starts when the fence's value is at least this.
    pub wait_value: u64,
    /// The fence's value becomes the greater of its own and this.
    pub signal_value: u64,
    /// Arguments.
    pub args: KernelArgs,
}

/// Answer to SUBMIT. 88 bytes. `header.detail` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct JobReply {
    /// Header.
    pub header: ReplyHeader,
    /// With status FAULT: the page that could not be accessed.
    pub fault_va: u64,
    /// With status FAULT: [`Access`](crate::fault::Access) bits.
    pub fault_access: u16,
    /// With status FAULT: a [`FaultCause`](crate::fault::FaultCause).
    pub fault_cause: u16,
    /// With status FAULT of a served cause: the [`FaultResult`](crate::fault::FaultResult).
    pub fault_result: u16,
    /// EU that ran the last step.
    pub eu: u16,
    /// Steps done.
    pub steps: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Times that the job was parked on a fault.
    pub faults: u64,
    /// Nanoseconds that EUs spent on the job.
    pub device_ns: u64,
    /// The kernel's result where it has one: CAS, CHASE; the bits of the sum for REDUCE and DOT.
    pub result: u64,
    /// Zero.
    pub reserved: u64,
}

/// What one operand is used for; the byte range `va..va + bytes`.
struct Operand {
    va: u64,
    count: u64,
    size: u64,
}

impl Operand {
    const fn new(va: u64, count: u64, size: u64) -> Self {
        Self { va, count, size }
    }

    fn check(&self, user_end: u64) -> Result<(u64, u64), Status> {
        if !self.va.is_multiple_of(self.size) {
            return Err(Status::Misaligned);
        }
        let bytes = self.count.checked_mul(self.size).ok_or(Status::BadRange)?;
        let end = self.va.checked_add(bytes).ok_or(Status::BadRange)?;
        if end > user_end {
            return Err(Status::BadRange);
        }
        Ok((self.va, end))
    }
}

impl JobRequest {
    /// The kernel and element type, `None` for the element of NOP.
    ///
    /// # Errors
    /// `BadKernel` if there is no such kernel, no such type, or the kernel does not work on it.
    pub fn kernel(&self) -> Result<(Kernel, Option<Elem>), Status> {
        let kernel = Kernel::from_code(self.kernel).ok_or(Status::BadKernel)?;
        let elem = Elem::from_code(self.elem);
        let fits = match (kernel, elem) {
            (Kernel::Nop, None) => self.elem == 0,
            (Kernel::Nop, Some(_)) | (_, None) => false,
            (Kernel::Gemm, Some(elem)) => elem == Elem::F32,
            (Kernel::AtomicAdd | Kernel::AtomicCas, Some(elem)) => matches!(elem, Elem::U32 | Elem::U64),
            (Kernel::Chase, Some(elem)) => elem == Elem::U64,
            (Kernel::Scale | Kernel::Axpy | Kernel::Reduce | Kernel::Dot, Some(elem)) => elem != Elem::U8,
            (Kernel::Fill | Kernel::Copy | Kernel::Gather | Kernel::Scatter, Some(_)) => true,
        };
        fits.then_some((kernel, elem)).ok_or(Status::BadKernel)
    }

    /// Checks everything that does not depend on the device's state. `user_end` is the first address that the
    /// address space's tables do not cover, [`crate::pte::user_end`].
    ///
    /// # Errors
    /// `ReservedNotZero`, `BadKernel`, `BadArgument` (priority, an unused argument that is not zero, slots of 0, a
    /// scalar wider than the element, overlap), `Misaligned`, `BadRange`; in this order.
    pub fn validate(&self, user_end: u64) -> Result<(), Status> {
        if self.reserved != 0 || self.flags != 0 {
            return Err(Status::ReservedNotZero);
        }
        let (kernel, elem) = self.kernel()?;
        let unused_fence =
            self.wait_fence == 0 && self.wait_value != 0 || self.signal_fence == 0 && self.signal_value != 0;
        if self.priority >= MAX_PRIORITY || unused_fence {
            return Err(Status::BadArgument);
        }
        self.args.validate(kernel, elem, user_end)
    }
}

impl KernelArgs {
    fn validate(&self, kernel: Kernel, elem: Option<Elem>, user_end: u64) -> Result<(), Status> {
        let (vas, ns, scalars) = kernel.uses();
        let unused = |values: &[u64], used: usize| values[used..].iter().all(|value| *value == 0);
        if !unused(&self.va, vas) || !unused(&self.n, ns) || !unused(&self.scalar, scalars) {
            return Err(Status::BadArgument);
        }
        let size = elem.map_or(1, Elem::size);
        let wide = |value: u64| size < 8 && value >> (8 * size) != 0;
        let atomic_seed = kernel == Kernel::AtomicAdd;
        if wide(self.scalar[0]) || !atomic_seed && wide(self.scalar[1]) {
            return Err(Status::BadArgument);
        }
        if kernel == Kernel::AtomicAdd && self.n[0] == 0 && self.n[1] != 0 {
            return Err(Status::BadArgument);
        }
        let mut spans = [(0, 0); 3];
        for (span, operand) in spans.iter_mut().zip(self.operands(kernel, size)?) {
            if let Some(operand) = operand {
                *span = operand.check(user_end)?;
            }
        }
        self.check_overlap(kernel, &spans)
    }

    fn operands(&self, kernel: Kernel, size: u64) -> Result<[Option<Operand>; 3], Status> {
        let [a, b, c, _] = self.va;
        let [n, m, k, _] = self.n;
        let op = |va, count, size| Some(Operand::new(va, count, size));
        let area = |x: u64, y: u64| x.checked_mul(y).ok_or(Status::BadRange);
        Ok(match kernel {
            Kernel::Nop => [None, None, None],
            Kernel::Fill | Kernel::AtomicAdd | Kernel::AtomicCas => [op(a, n, size), None, None],
            Kernel::Copy | Kernel::Scale | Kernel::Axpy => [op(a, n, size), op(b, n, size), None],
            Kernel::Reduce => [op(a, 1, size), op(b, n, size), None],
            Kernel::Dot => [op(a, 1, size), op(b, n, size), op(c, n, size)],
            Kernel::Gather => [op(a, n, size), op(b, m, size), op(c, n, 8)],
            Kernel::Scatter => [op(a, m, size), op(b, n, size), op(c, n, 8)],
            Kernel::Gemm => [op(a, area(n, m)?, size), op(b, area(n, k)?, size), op(c, area(k, m)?, size)],
            Kernel::Chase => [op(a, 1, 8), op(b, 1, 8), None],
        })
    }

    fn check_overlap(&self, kernel: Kernel, spans: &[(u64, u64); 3]) -> Result<(), Status> {
        let [dst, src, third] = *spans;
        let overlap = |x: (u64, u64), y: (u64, u64)| x.0 < y.1 && y.0 < x.1;
        let bad = match kernel {
            Kernel::Copy => dst.0 > src.0 && overlap(dst, src),
            Kernel::Scale | Kernel::Axpy => dst.0 != src.0 && overlap(dst, src),
            Kernel::Gather | Kernel::Scatter | Kernel::Gemm | Kernel::Dot => overlap(dst, src) || overlap(dst, third),
            Kernel::Reduce => overlap(dst, src),
            Kernel::Nop | Kernel::Fill | Kernel::AtomicAdd | Kernel::AtomicCas | Kernel::Chase => false,
        };
        if bad {
            return Err(Status::BadArgument);
        }
        Ok(())
    }
}

impl Kernel {
    /// How many of `va`, `n` and `scalar` the kernel uses.
    pub const fn uses(self) -> (usize, usize, usize) {
        match self {
            Self::Nop => (0, 0, 0),
            Self::Fill => (1, 1, 1),
            Self::Copy => (2, 1, 0),
            Self::Scale | Self::Axpy => (2, 1, 1),
            Self::Reduce => (2, 1, 0),
            Self::Dot => (3, 1, 0),
            Self::Gather | Self::Scatter => (3, 2, 0),
            Self::Gemm => (3, 3, 2),
            Self::AtomicAdd => (1, 2, 2),
            Self::AtomicCas => (1, 1, 2),
            Self::Chase => (2, 1, 0),
        }
    }
}

/// Parses a request of a compute queue; [`JobRequest::validate`] follows when the address space is known.
///
/// # Errors
/// [`Refused`] as of [`parse_header`].
pub fn parse_job(bytes: &[u8]) -> Result<JobRequest, Refused> {
    let (_, header) = parse_header(RequestQueue::Compute, bytes)?;
    body(bytes, &header, |_: &JobRequest| Ok(()))
}
