//! Jobs that borrow the memory they use.

use crate::{AtomicElement, Element, Error, Job, Result};
use std::marker::PhantomData;
use std::time::Duration;

/// One job together with the borrow of its memory, for [`Context::run`](crate::Context::run) and
/// [`Scope::submit`](crate::Scope::submit).
#[derive(Debug)]
#[must_use = "a task does nothing until it is run or submitted"]
pub struct Task<'a> {
    pub(crate) job: Job,
    _memory: PhantomData<&'a mut [u8]>,
}

fn same_length(left: usize, right: usize) -> Result<usize> {
    if left == right {
        Ok(left)
    } else {
        Err(Error::Shape { left, right })
    }
}

impl<'a> Task<'a> {
    const fn new(job: Job) -> Self {
        Self { job, _memory: PhantomData }
    }

    /// A task from a job on raw addresses.
    ///
    /// # Safety
    /// For `'a`, nothing but the job uses the memory that it writes, and nothing writes what it reads, except through
    /// atomics in both cases.
    pub const unsafe fn from_job(job: Job) -> Self {
        Self::new(job)
    }

    /// Does nothing.
    pub fn nop() -> Self {
        Self::new(Job::nop())
    }

    /// `dst[i] = value`
    pub fn fill<T: Element>(dst: &'a mut [T], value: T) -> Self {
        Self::new(Job::fill(dst.as_mut_ptr(), dst.len(), value))
    }

    /// `dst[i] = src[i]`
    ///
    /// # Errors
    /// [`Error::Shape`] unless both have the same length; so do the others.
    pub fn copy<T: Element>(dst: &'a mut [T], src: &'a [T]) -> Result<Self> {
        let n = same_length(dst.len(), src.len())?;
        Ok(Self::new(Job::copy(dst.as_mut_ptr(), src.as_ptr(), n)))
    }

    /// `data[i] = factor * data[i]`
    pub fn scale<T: Element>(data: &'a mut [T], factor: T) -> Self {
        let data_ptr = data.as_mut_ptr();
        Self::new(Job::scale(data_ptr, data_ptr, data.len(), factor))
    }

    /// `dst[i] = factor * src[i]`
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn scale_into<T: Element>(dst: &'a mut [T], src: &'a [T], factor: T) -> Result<Self> {
        let n = same_length(dst.len(), src.len())?;
        Ok(Self::new(Job::scale(dst.as_mut_ptr(), src.as_ptr(), n, factor)))
    }

    /// `y[i] = factor * x[i] + y[i]`
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn axpy<T: Element>(y: &'a mut [T], x: &'a [T], factor: T) -> Result<Self> {
        let n = same_length(y.len(), x.len())?;
        Ok(Self::new(Job::axpy(y.as_mut_ptr(), x.as_ptr(), n, factor)))
    }

    /// `*sum = sum of x[i]`, see [`Job::reduce`].
    pub fn reduce<T: Element>(sum: &'a mut T, x: &'a [T]) -> Self {
        Self::new(Job::reduce(sum, x.as_ptr(), x.len()))
    }

    /// `*sum = sum of x[i] * y[i]`
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn dot<T: Element>(sum: &'a mut T, x: &'a [T], y: &'a [T]) -> Result<Self> {
        let n = same_length(x.len(), y.len())?;
        Ok(Self::new(Job::dot(sum, x.as_ptr(), y.as_ptr(), n)))
    }

    /// `dst[i] = src[index[i]]`; an index out of bounds ends the job with an error.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn gather<T: Element>(dst: &'a mut [T], src: &'a [T], index: &'a [u64]) -> Result<Self> {
        let n = same_length(dst.len(), index.len())?;
        Ok(Self::new(Job::gather(dst.as_mut_ptr(), src.as_ptr(), index.as_ptr(), n, src.len())))
    }

    /// `dst[index[i]] = src[i]`; an index out of bounds ends the job with an error.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn scatter<T: Element>(dst: &'a mut [T], src: &'a [T], index: &'a [u64]) -> Result<Self> {
        let n = same_length(src.len(), index.len())?;
        Ok(Self::new(Job::scatter(dst.as_mut_ptr(), src.as_ptr(), index.as_ptr(), n, dst.len())))
    }

    /// `C = alpha * A * B + beta * C` with rows of `n` elements in B and C and of `k` elements in A.
    ///
    /// # Errors
    /// [`Error::Shape`] unless C is m × n, A m × k and B k × n for some m.
    pub fn gemm(
        c: &'a mut [f32],
        a: &'a [f32],
        b: &'a [f32],
        size: (usize, usize, usize),
        alpha: f32,
        beta: f32,
    ) -> Result<Self> {
        let (m, n, k) = size;
        same_length(c.len(), m.saturating_mul(n))?;
        same_length(a.len(), m.saturating_mul(k))?;
        same_length(b.len(), k.saturating_mul(n))?;
        Ok(Self::new(Job::gemm(c.as_mut_ptr(), a.as_ptr(), b.as_ptr(), size, alpha, beta)))
    }

    /// `ops` atomic additions over `slots`, see [`Job::atomic_add`]; other threads may use them meanwhile.
    pub fn atomic_add<A: AtomicElement>(slots: &'a [A], ops: u64, addend: A::Value, seed: u64) -> Self {
        Self::new(Job::atomic_add(slots.as_ptr(), slots.len(), ops, addend, seed))
    }

    /// One compare-and-exchange per slot, see [`Job::atomic_cas`]; other threads may use them meanwhile.
    pub fn atomic_cas<A: AtomicElement>(slots: &'a [A], old: A::Value, new: A::Value) -> Self {
        Self::new(Job::atomic_cas(slots.as_ptr(), slots.len(), old, new))
    }

    /// `n` times `p = *p` from `start` on, the last p goes to `*last`.
    ///
    /// # Safety
    /// For `'a`, nothing writes the words on the way except through atomics, and `last` is none of them.
    pub unsafe fn chase(last: &'a mut u64, start: *const u64, n: u64) -> Self {
        Self::new(Job::chase(last, start, n))
    }

    /// See [`Job::stream`].
    pub fn stream(mut self, stream: u32) -> Self {
        self.job = self.job.stream(stream);
        self
    }

    /// See [`Job::priority`].
    pub fn priority(mut self, priority: u16) -> Self {
        self.job = self.job.priority(priority);
        self
    }

    /// See [`Job::deadline`].
    pub fn deadline(mut self, after: Duration) -> Self {
        self.job = self.job.deadline(after);
        self
    }

    /// See [`Job::wait_fence`].
    pub fn wait_fence(mut self, fence: u32, value: u64) -> Self {
        self.job = self.job.wait_fence(fence, value);
        self
    }

    /// See [`Job::signal_fence`].
    pub fn signal_fence(mut self, fence: u32, value: u64) -> Self {
        self.job = self.job.signal_fence(fence, value);
        self
    }

    /// See [`Job::fence_fd`].
    pub fn fence_fd(mut self) -> Self {
        self.job = self.job.fence_fd();
        self
    }
}
