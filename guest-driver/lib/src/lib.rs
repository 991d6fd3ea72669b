//! libuma: jobs of a virtio-uma device on the plain memory of this process.
//!
//! A [`Context`] is this process's address space as the device sees it. A job is described by a [`Task`], which borrows
//! the memory that the job uses, and is run in one of two ways:
//!
//! ```no_run
//! use libuma::{Device, Task};
//! # fn main() -> Result<(), libuma::Error> {
//! let context = Device::open("/dev/uma0")?.context()?;
//! let (mut a, mut b) = (vec![1.5f32; 1 << 20], vec![2.5f32; 1 << 20]);
//!
//! context.run(Task::scale(&mut a, 3.0))?; // submit and wait
//!
//! context.scope(|scope| {
//!     let first = scope.submit(Task::scale(&mut a, 2.0).stream(1))?; // two jobs at once
//!     scope.submit(Task::fill(&mut b, 0.0).stream(2))?;
//!     first.wait()
//! })?; // every job of the scope has ended here
//! # Ok(())
//! # }
//! ```
//!
//! # Memory safety
//! A job reads and writes memory while the CPU runs on. A guard that waits in `Drop` would not be enough: a guard can be
//! leaked in safe code, and the borrow would end before the job does. So, as with `std::thread::scope`, jobs that
//! outlive a call need a [`Scope`], whose end waits for every one of them. [`Context::submit`] takes raw addresses and
//! is `unsafe`; everything else is safe. If the end of a job can't be established (which the driver rules out), the
//! process is aborted: there is no other way to keep the borrow's promise.
//!
//! Atomics of the device and of the CPU are coherent, so [`Task::atomic_add`] takes `&[AtomicU64]` that other threads
//! may use meanwhile.

mod context;
mod device;
mod element;
mod error;
mod job;
mod residency;
mod result;
mod scope;
pub mod sys;
mod task;

pub use context::{Advice, Context, Moved, Target};
pub use device::{Device, DeviceStats, Features, Info};
pub use element::{AtomicElement, Element};
pub use error::{Error, Result};
pub use job::{Job, JobId, Submitted};
pub use residency::{PageState, Residency};
pub use result::{FaultDetail, JobResult};
pub use scope::{Pending, Scope};
pub use sys::Stats;
pub use task::Task;

pub use uma_protocol::fault::{Access, FaultCause, FaultResult};
pub use uma_protocol::kernel::{Elem, Kernel};
pub use uma_protocol::Status;

/// Bytes of the smallest page.
pub const PAGE_SIZE: usize = uma_protocol::PAGE_SIZE as usize;
/// Bytes of a huge page, and of the blocks that device faults move.
pub const HUGE_SIZE: usize = uma_protocol::HUGE_SIZE as usize;
