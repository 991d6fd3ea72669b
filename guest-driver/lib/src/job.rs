//! Jobs as the driver takes them: raw addresses, no borrows.

use crate::{sys, AtomicElement, Elem, Element, Kernel};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// One job on raw addresses, for [`Context::submit`](crate::Context::submit). Prefer [`Task`](crate::Task), which borrows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub(crate) raw: sys::Submit,
}

/// Names a submitted job in its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobId(pub u64);

/// What the driver returned for a job.
#[derive(Debug)]
pub struct Submitted {
    /// The job's name.
    pub id: JobId,
    /// Polls readable when the job has ended, if [`Job::fence_fd`] asked for it.
    pub fence: Option<OwnedFd>,
}

impl Job {
    /// Any kernel with any arguments; what does not fit is refused by driver or device.
    pub fn raw(kernel: Kernel, elem: Option<Elem>, va: [u64; 4], n: [u64; 4], scalar: [u64; 2]) -> Self {
        let elem = elem.map_or(0, |elem| elem as u16);
        Self { raw: sys::Submit { kernel: kernel as u16, elem, va, n, scalar, fence_fd: -1, ..Default::default() } }
    }

    fn typed<T: Element>(kernel: Kernel, va: &[u64], n: &[usize], scalar: &[T]) -> Self {
        let mut job = Self::raw(kernel, Some(T::ELEM), [0; 4], [0; 4], [0; 2]);
        job.raw.va[..va.len()].copy_from_slice(va);
        for (slot, count) in job.raw.n.iter_mut().zip(n) {
            *slot = *count as u64;
        }
        for (slot, value) in job.raw.scalar.iter_mut().zip(scalar) {
            *slot = value.to_bits();
        }
        job
    }

    /// Does nothing.
    pub fn nop() -> Self {
        Self::raw(Kernel::Nop, None, [0; 4], [0; 4], [0; 2])
    }

    /// `dst[i] = value` for i < n.
    pub fn fill<T: Element>(dst: *mut T, n: usize, value: T) -> Self {
        Self::typed(Kernel::Fill, &[dst as u64], &[n], &[value])
    }

    /// `dst[i] = src[i]` for i < n, ascending.
    pub fn copy<T: Element>(dst: *mut T, src: *const T, n: usize) -> Self {
        Self::typed::<T>(Kernel::Copy, &[dst as u64, src as u64], &[n], &[])
    }

    /// `dst[i] = factor * src[i]` for i < n; the same array, or arrays apart.
    pub fn scale<T: Element>(dst: *mut T, src: *const T, n: usize, factor: T) -> Self {
        Self::typed(Kernel::Scale, &[dst as u64, src as u64], &[n], &[factor])
    }

    /// `y[i] = factor * x[i] + y[i]` for i < n.
    pub fn axpy<T: Element>(y: *mut T, x: *const T, n: usize, factor: T) -> Self {
        Self::typed(Kernel::Axpy, &[y as u64, x as u64], &[n], &[factor])
    }

    /// `*sum = sum of x[i]` for i < n, in [`SUM_LANES`](uma_protocol::kernel::SUM_LANES) lanes.
    pub fn reduce<T: Element>(sum: *mut T, x: *const T, n: usize) -> Self {
        Self::typed::<T>(Kernel::Reduce, &[sum as u64, x as u64], &[n], &[])
    }

    /// `*sum = sum of x[i] * y[i]` for i < n, in lanes like [`Job::reduce`].
    pub fn dot<T: Element>(sum: *mut T, x: *const T, y: *const T, n: usize) -> Self {
        Self::typed::<T>(Kernel::Dot, &[sum as u64, x as u64, y as u64], &[n], &[])
    }

    /// `dst[i] = src[index[i]]` for i < n; every index below `len`, the length of `src`.
    pub fn gather<T: Element>(dst: *mut T, src: *const T, index: *const u64, n: usize, len: usize) -> Self {
        Self::typed::<T>(Kernel::Gather, &[dst as u64, src as u64, index as u64], &[n, len], &[])
    }

    /// `dst[index[i]] = src[i]` for i < n; every index below `len`, the length of `dst`.
    pub fn scatter<T: Element>(dst: *mut T, src: *const T, index: *const u64, n: usize, len: usize) -> Self {
        Self::typed::<T>(Kernel::Scatter, &[dst as u64, src as u64, index as u64], &[n, len], &[])
    }

    /// `C = alpha * A * B + beta * C`, row-major and dense, C of `m × n`, A of `m × k`, B of `k × n`: `size` is (m, n, k).
    pub fn gemm(c: *mut f32, a: *const f32, b: *const f32, size: (usize, usize, usize), alpha: f32, beta: f32) -> Self {
        let (m, n, k) = size;
        Self::typed(Kernel::Gemm, &[c as u64, a as u64, b as u64], &[m, n, k], &[alpha, beta])
    }

    /// `ops` times atomically `slots[atomic_slot(seed, i, n)] += addend`, see
    /// [`atomic_slot`](uma_protocol::kernel::atomic_slot).
    pub fn atomic_add<A: AtomicElement>(slots: *const A, n: usize, ops: u64, addend: A::Value, seed: u64) -> Self {
        let mut job = Self::typed(Kernel::AtomicAdd, &[slots as u64], &[n, ops as usize], &[addend]);
        job.raw.scalar[1] = seed;
        job
    }

    /// For i < n atomically: `if slots[i] == old { slots[i] = new }`; the result counts the exchanges.
    pub fn atomic_cas<A: AtomicElement>(slots: *const A, n: usize, old: A::Value, new: A::Value) -> Self {
        Self::typed(Kernel::AtomicCas, &[slots as u64], &[n], &[old, new])
    }

    /// `n` times `p = *p` from `start` on; stores the last p to `*last`, and it is the result.
    pub fn chase(last: *mut u64, start: *const u64, n: u64) -> Self {
        Self::typed::<u64>(Kernel::Chase, &[start as u64, last as u64], &[n as usize], &[])
    }

    /// Jobs of one stream run in order; streams run beside each other. 0 if not said.
    #[must_use]
    pub fn stream(mut self, stream: u32) -> Self {
        self.raw.stream = stream;
        self
    }

    /// 0 (if not said) to 3; higher runs first.
    #[must_use]
    pub fn priority(mut self, priority: u16) -> Self {
        self.raw.priority = priority;
        self
    }

    /// The job ends with [`Status::Deadline`](crate::Status::Deadline) this long after its submission.
    #[must_use]
    pub fn deadline(mut self, after: Duration) -> Self {
        self.raw.deadline_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX).max(1);
        self
    }

    /// The job starts when timeline fence `fence` (1…) has reached `value`.
    #[must_use]
    pub fn wait_fence(mut self, fence: u32, value: u64) -> Self {
        (self.raw.wait_fence, self.raw.wait_value) = (fence, value);
        self
    }

    /// The job's end, however it ends, raises timeline fence `fence` (1…) to `value`.
    #[must_use]
    pub fn signal_fence(mut self, fence: u32, value: u64) -> Self {
        (self.raw.signal_fence, self.raw.signal_value) = (fence, value);
        self
    }

    /// Asks for a descriptor that polls readable when the job has ended.
    #[must_use]
    pub fn fence_fd(mut self) -> Self {
        self.raw.flags |= sys::SUBMIT_FENCE_FD;
        self
    }

    /// What is handed to the driver.
    pub fn as_raw(&self) -> &sys::Submit {
        &self.raw
    }
}
