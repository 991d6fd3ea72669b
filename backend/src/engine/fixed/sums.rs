//! REDUCE and DOT: sums in sixteen lanes, so that the result does not depend on where the kernel was interrupted.

use super::access::{chunk, Run, Stop};
use super::Cursor;
use crate::memory::bulk;
use crate::mmu::View;
use uma_protocol::fault::Access;
use uma_protocol::kernel::{Elem, KernelArgs};

pub(super) fn reduce<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    let size = elem.size();
    while cursor.i < args.n[0] {
        let va = args.va[1] + cursor.i * size;
        let n = chunk(args.n[0] - cursor.i, elem, [va]);
        let src = run.operand(1, va, n * size, Access::READ)?;
        if cursor.i + n < args.n[0] {
            run.ahead(1, va + n * size, Access::READ);
        }
        bulk::sum_lanes(&mut cursor.lanes, src, n as usize, elem, cursor.i);
        cursor.i += n;
        run.book(&[src]);
        run.after_step(n * size)?;
    }
    finish(run, elem, args, cursor)
}

pub(super) fn dot<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    let size = elem.size();
    while cursor.i < args.n[0] {
        let (x_va, y_va) = (args.va[1] + cursor.i * size, args.va[2] + cursor.i * size);
        let n = chunk(args.n[0] - cursor.i, elem, [x_va, y_va]);
        let x = run.operand(1, x_va, n * size, Access::READ)?;
        let y = run.operand(2, y_va, n * size, Access::READ)?;
        if cursor.i + n < args.n[0] {
            run.ahead(1, x_va + n * size, Access::READ);
            run.ahead(2, y_va + n * size, Access::READ);
        }
        bulk::dot_lanes(&mut cursor.lanes, x, y, n as usize, elem, cursor.i);
        cursor.i += n;
        run.book(&[x, y]);
        run.after_step(n * size)?;
    }
    finish(run, elem, args, cursor)
}

/// The last step: writes the sum.
fn finish<V: View>(run: &mut Run<'_, V>, elem: Elem, args: &KernelArgs, cursor: &Cursor) -> Result<u64, Stop> {
    let out = run.operand(0, args.va[0], elem.size(), Access::STORE)?;
    let sum = bulk::fold_lanes(&cursor.lanes, elem);
    bulk::store(out, elem, sum);
    run.book(&[out]);
    Ok(sum)
}
