//! GATHER and SCATTER: an element per step, at an address that an index names.

use super::access::{Run, Stop};
use super::Cursor;
use crate::memory::bulk;
use crate::mmu::View;
use uma_protocol::fault::Access;
use uma_protocol::kernel::{Elem, KernelArgs};
use uma_protocol::Status;

pub(super) fn gather<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    each(run, elem, args, cursor, |i, index| (args.va[0] + i * elem.size(), args.va[1] + index * elem.size()))
}

pub(super) fn scatter<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    each(run, elem, args, cursor, |i, index| (args.va[0] + index * elem.size(), args.va[1] + i * elem.size()))
}

/// Moves n0 elements; `place` gives destination and source for element i and its index, which is below n1.
fn each<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
    place: impl Fn(u64, u64) -> (u64, u64),
) -> Result<u64, Stop> {
    while cursor.i < args.n[0] {
        let indices = run.operand(2, args.va[2] + cursor.i * 8, 8, Access::READ)?;
        // Read once: the guest may change it, but not what was checked.
        let index = bulk::load(indices, Elem::U64);
        if index >= args.n[1] {
            return Err(Stop::Trap(Status::BadArgument));
        }
        let (dst_va, src_va) = place(cursor.i, index);
        let src = run.operand(1, src_va, elem.size(), Access::READ)?;
        let dst = run.operand(0, dst_va, elem.size(), Access::STORE)?;
        bulk::store(dst, elem, bulk::load(src, elem));
        cursor.i += 1;
        run.book(&[indices, src, dst]);
        if cursor.i < args.n[0] {
            run.after_step(8)?;
        }
    }
    Ok(0)
}
