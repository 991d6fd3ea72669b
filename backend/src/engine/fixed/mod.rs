//! The fixed-function engine: one file per family of kernels.

mod access;
mod atomics;
mod chase;
mod elementwise;
mod gemm;
mod moves;
mod sums;
#[cfg(test)]
mod tests;

use super::{Engine, Outcome, Work};
use crate::memory::bulk::Lanes;
use crate::mmu::View;
use access::{Run, Stop};
use uma_protocol::kernel::{Elem, JobRequest, Kernel};
use uma_protocol::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The kernels of SPEC.md §8.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedEngine;

/// Progress of a job: loop counters and what has been summed up. Plain data, without padding, so that it can be saved.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Cursor {
    /// Elements, operations, hops or rows that are done.
    pub i: u64,
    /// GEMM: terms of the row that are done.
    pub p: u64,
    /// GEMM: columns of the term that are done.
    pub j: u64,
    /// CHASE: the pointer. CAS: exchanges made.
    pub value: u64,
    /// REDUCE and DOT: partial sums.
    pub lanes: Lanes,
}

impl Engine for FixedEngine {
    type Cursor = Cursor;

    fn start(&self, job: &JobRequest) -> Cursor {
        let chase = job.kernel == Kernel::Chase as u16;
        Cursor { value: if chase { job.args.va[0] } else { 0 }, ..Cursor::default() }
    }

    fn step<V: View>(&self, view: &V, job: &JobRequest, cursor: &mut Cursor, fuel: u32, work: &mut Work) -> Outcome {
        let Ok((kernel, elem)) = job.kernel() else {
            return Outcome::Trap(Status::BadKernel);
        };
        let Some(elem) = elem else {
            return Outcome::Done(0);
        };
        let mut run = Run::new(view, fuel, work);
        match dispatch(&mut run, kernel, elem, job, cursor) {
            Ok(result) => Outcome::Done(result),
            Err(Stop::Fault(fault)) => Outcome::Fault(fault),
            Err(Stop::Yield) => Outcome::Yield,
            Err(Stop::Trap(status)) => Outcome::Trap(status),
        }
    }
}

fn dispatch<V: View>(
    run: &mut Run<'_, V>,
    kernel: Kernel,
    elem: Elem,
    job: &JobRequest,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    let args = &job.args;
    match kernel {
        Kernel::Nop => Ok(0),
        Kernel::Fill => elementwise::fill(run, elem, args, cursor),
        Kernel::Copy => elementwise::copy(run, elem, args, cursor),
        Kernel::Scale => elementwise::scale(run, elem, args, cursor),
        Kernel::Axpy => elementwise::axpy(run, elem, args, cursor),
        Kernel::Reduce => sums::reduce(run, elem, args, cursor),
        Kernel::Dot => sums::dot(run, elem, args, cursor),
        Kernel::Gather => moves::gather(run, elem, args, cursor),
        Kernel::Scatter => moves::scatter(run, elem, args, cursor),
        Kernel::Gemm => gemm::gemm(run, args, cursor),
        Kernel::AtomicAdd => atomics::add(run, elem, args, cursor),
        Kernel::AtomicCas => atomics::cas(run, elem, args, cursor),
        Kernel::Chase => chase::chase(run, args, cursor),
    }
}
