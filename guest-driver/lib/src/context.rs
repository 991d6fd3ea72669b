//! An address space of this process on the device.

use crate::{sys, Device, DeviceStats, Error, Job, JobId, JobResult, Residency, Result, Scope, Stats, Submitted, Task};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The address space of this process as the device sees it. It ends with this value, and its unfinished jobs with it.
#[derive(Debug)]
pub struct Context {
    file: File,
    asid: u32,
}

/// How a range will be used; changes where pages go, never what is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Advice {
    /// Forget all advice on the range.
    None = 0,
    /// The device's first touch moves a page there (the default).
    PreferDevice = 1,
    /// The device uses pages where they are.
    PreferSystem = 2,
    /// Device reads use a page where it is, device writes move it.
    ReadMostly = 3,
}

/// Where a prefetch moves pages to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Target {
    /// Guest RAM.
    System = sys::TARGET_SYSTEM,
    /// Device memory.
    Device = sys::TARGET_DEVICE,
}

/// What a prefetch did, in 4 KiB pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Moved to, or created on, the target.
    pub moved: u64,
    /// Were there already.
    pub resident: u64,
}

impl Context {
    pub(crate) fn create(file: File) -> Result<Self> {
        let mut raw = sys::Create { mode: sys::MODE_MIRRORED, ..Default::default() };
        // SAFETY: the structure is the one of the request, and holds no addresses.
        unsafe { sys::ioctl(file.as_fd(), sys::IOC_CREATE, &mut raw) }.map_err(call("UMA_IOC_CREATE"))?;
        Ok(Self { file, asid: raw.asid })
    }

    /// Index of the address space on the device, as it appears in traces and debugfs.
    pub fn asid(&self) -> u32 {
        self.asid
    }

    /// Queues a job on raw addresses.
    ///
    /// # Errors
    /// [`Error::Call`], with EAGAIN if too many jobs are unfinished or not waited for.
    ///
    /// # Safety
    /// Until the job has ended (a wait for it returned its result, or the context is gone), nothing else uses the memory
    /// that it writes and nothing writes what it reads, except through atomics in both cases.
    pub unsafe fn submit(&self, job: &Job) -> Result<Submitted> {
        let mut raw = *job.as_raw();
        // SAFETY: the structure is the one of the request; the caller vouches for the job's memory.
        unsafe { sys::ioctl(self.as_fd(), sys::IOC_SUBMIT, &mut raw) }.map_err(call("UMA_IOC_SUBMIT"))?;
        let asked = raw.flags & sys::SUBMIT_FENCE_FD != 0;
        // SAFETY: the driver installed this descriptor for us just now, and nobody else knows of it.
        let fence = (asked && raw.fence_fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(raw.fence_fd) });
        Ok(Submitted { id: JobId(raw.job), fence })
    }

    /// Waits for the end of a job without limit and takes its result, however it ended.
    ///
    /// # Errors
    /// [`Error::Call`], with ENOENT if there is no such job or its result was taken before.
    pub fn wait(&self, job: JobId) -> Result<JobResult> {
        loop {
            match self.wait_ns(job, u64::MAX) {
                Err(error) if matches!(error.errno(), Some(libc::EINTR | libc::ETIME)) => {}
                other => return other,
            }
        }
    }

    /// Like [`Context::wait`], for at most `timeout`.
    ///
    /// # Errors
    /// [`Error::Running`] when the time is up; else as [`Context::wait`].
    pub fn wait_timeout(&self, job: JobId, timeout: Duration) -> Result<JobResult> {
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX - 1);
            match self.wait_ns(job, left) {
                Err(error) if error.errno() == Some(libc::EINTR) => {}
                Err(Error::Call { source, .. }) if source.raw_os_error() == Some(libc::ETIME) => {
                    return Err(Error::Running)
                }
                other => return other,
            }
        }
    }

    fn wait_ns(&self, job: JobId, timeout_ns: u64) -> Result<JobResult> {
        let mut raw = sys::Wait { job: job.0, timeout_ns, ..Default::default() };
        // SAFETY: the structure is the one of the request, and holds no addresses.
        unsafe { sys::ioctl(self.as_fd(), sys::IOC_WAIT, &mut raw) }.map_err(call("UMA_IOC_WAIT"))?;
        JobResult::from_raw(&raw)
    }

    /// Ends a job early; it still has to be waited for.
    ///
    /// # Errors
    /// [`Error::Call`] with ENOENT if there is no such job or it has ended.
    pub fn cancel(&self, job: JobId) -> Result<()> {
        let mut raw = sys::Cancel { job: job.0 };
        // SAFETY: the structure is the one of the request, and holds no addresses.
        unsafe { sys::ioctl(self.as_fd(), sys::IOC_CANCEL, &mut raw) }.map_err(call("UMA_IOC_CANCEL"))
    }

    /// Runs a task to its end.
    ///
    /// # Errors
    /// [`Error::Job`] if it ends with anything but success, [`Error::Call`] if it is refused.
    pub fn run(&self, task: Task<'_>) -> Result<JobResult> {
        self.scope(|scope| scope.submit(task)?.wait())
    }

    /// Runs `work`, which can submit tasks on everything that outlives the call, and waits for all of them.
    pub fn scope<'env, F, T>(&'env self, work: F) -> T
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        crate::scope::run(self, work)
    }

    /// Says how the pages of `start..start + length` will be used; both are multiples of the page size.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn advise(&self, start: *const u8, length: usize, advice: Advice) -> Result<()> {
        let mut raw = sys::Advise { start: start as u64, length: length as u64, advice: advice as u32, flags: 0 };
        // SAFETY: the structure is the one of the request; advice changes where pages are, not what is in them.
        unsafe { sys::ioctl(self.as_fd(), sys::IOC_ADVISE, &mut raw) }.map_err(call("UMA_IOC_ADVISE"))
    }

    /// Moves the pages of `start..start + length`, both multiples of the page size, before they are used.
    ///
    /// # Errors
    /// [`Error::Call`]: EFAULT if part of the range is not mapped (the rest has moved), EOPNOTSUPP if pages can't move here.
    pub fn prefetch(&self, start: *const u8, length: usize, target: Target) -> Result<Moved> {
        self.prefetch_flags(start, length, target, 0)
    }

    /// Like [`Context::prefetch`], but returns at once.
    ///
    /// # Errors
    /// As [`Context::prefetch`].
    pub fn prefetch_async(&self, start: *const u8, length: usize, target: Target) -> Result<()> {
        self.prefetch_flags(start, length, target, sys::PREFETCH_ASYNC).map(drop)
    }

    fn prefetch_flags(&self, start: *const u8, length: usize, target: Target, flags: u32) -> Result<Moved> {
        let (start, length, target) = (start as u64, length as u64, target as u32);
        let mut raw = sys::Prefetch { start, length, target, flags, ..Default::default() };
        // SAFETY: the structure is the one of the request; pages move, their contents and addresses stay.
        unsafe { sys::ioctl(self.as_fd(), sys::IOC_PREFETCH, &mut raw) }.map_err(call("UMA_IOC_PREFETCH"))?;
        Ok(Moved { moved: raw.moved, resident: raw.resident })
    }

    /// Where the pages of `start..start + length`, both multiples of the page size, are now.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn residency(&self, start: *const u8, length: usize) -> Result<Residency> {
        Residency::ask(self.as_fd(), start as u64, length as u64)
    }

    /// What happened in this context so far.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn stats(&self) -> Result<Stats> {
        let mut raw = Stats::default();
        // SAFETY: the structure is the one of the request, and holds no addresses.
        unsafe { sys::ioctl(self.as_fd(), sys::IOC_STATS, &mut raw) }.map_err(call("UMA_IOC_STATS"))?;
        Ok(raw)
    }

    /// See [`Device::stats`].
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn device_stats(&self) -> Result<DeviceStats> {
        crate::device::device_stats(self.as_fd())
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl TryFrom<&Device> for Context {
    type Error = Error;
    fn try_from(device: &Device) -> Result<Self> {
        device.context()
    }
}

pub(crate) fn call(call: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Call { call, source }
}
