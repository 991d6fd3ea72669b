//! FILL, COPY, SCALE, AXPY: ascending, a chunk of at most one page per step.

use super::access::{chunk, Run, Stop};
use super::Cursor;
use crate::memory::bulk;
use crate::mmu::View;
use uma_protocol::fault::Access;
use uma_protocol::kernel::{Elem, KernelArgs};

pub(super) fn fill<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    let size = elem.size();
    while cursor.i < args.n[0] {
        let va = args.va[0] + cursor.i * size;
        let n = chunk(args.n[0] - cursor.i, elem, [va]);
        let dst = run.operand(0, va, n * size, Access::STORE)?;
        if cursor.i + n < args.n[0] {
            run.ahead(0, va + n * size, Access::STORE);
        }
        bulk::fill(dst, n as usize, elem, args.scalar[0]);
        cursor.i += n;
        run.book(&[dst]);
        if cursor.i < args.n[0] {
            run.after_step(n * size)?;
        }
    }
    Ok(0)
}

pub(super) fn copy<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    two(run, elem, args, cursor, Access::STORE, |dst, src, _| {
        bulk::copy(dst, src);
    })
}

pub(super) fn scale<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    two(run, elem, args, cursor, Access::STORE, |dst, src, n| bulk::scale(dst, src, n, elem, args.scalar[0]))
}

pub(super) fn axpy<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    two(run, elem, args, cursor, Access::UPDATE, |dst, src, n| bulk::axpy(dst, src, n, elem, args.scalar[0]))
}

/// Steps over a destination and a source of the same shape.
fn two<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
    dst_access: Access,
    apply: impl Fn(crate::memory::Span<'_>, crate::memory::Span<'_>, usize),
) -> Result<u64, Stop> {
    let size = elem.size();
    let [dst_va, src_va, ..] = args.va;
    while cursor.i < args.n[0] {
        let at = cursor.i * size;
        let n = chunk(args.n[0] - cursor.i, elem, [dst_va + at, src_va + at]);
        let src = run.operand(1, src_va + at, n * size, Access::READ)?;
        let dst = run.operand(0, dst_va + at, n * size, dst_access)?;
        if cursor.i + n < args.n[0] {
            run.ahead(1, src_va + at + n * size, Access::READ);
            run.ahead(0, dst_va + at + n * size, dst_access);
        }
        apply(dst, src, n as usize);
        cursor.i += n;
        let spans = [dst, src, dst];
        run.book(if dst_access.contains(Access::READ) { &spans } else { &spans[..2] });
        if cursor.i < args.n[0] {
            run.after_step(n * size)?;
        }
    }
    Ok(0)
}
