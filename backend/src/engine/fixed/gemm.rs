//! GEMM in f32: row by row of C, term by term, so that each element sums its terms in ascending order.

use super::access::{chunk, Run, Stop};
use super::Cursor;
use crate::memory::bulk;
use crate::mmu::View;
use uma_protocol::fault::Access;
use uma_protocol::kernel::{Elem, KernelArgs};

const SIZE: u64 = Elem::F32.size();

pub(super) fn gemm<V: View>(run: &mut Run<'_, V>, args: &KernelArgs, cursor: &mut Cursor) -> Result<u64, Stop> {
    let [rows, columns, terms, _] = args.n;
    if columns == 0 {
        return Ok(0);
    }
    while cursor.i < rows {
        let n = step(run, args, cursor)?;
        cursor.j += n;
        if cursor.j == columns {
            cursor.j = 0;
            cursor.p += 1;
            // With no terms a row is still scaled, in one pass.
            if cursor.p >= terms {
                cursor.p = 0;
                cursor.i += 1;
            }
        }
        if cursor.i < rows {
            run.after_step(n * SIZE)?;
        }
    }
    Ok(0)
}

/// Adds one term to a chunk of one row; the first term scales what is there first. Returns the columns of the chunk.
fn step<V: View>(run: &mut Run<'_, V>, args: &KernelArgs, cursor: &Cursor) -> Result<u64, Stop> {
    let [_, columns, terms, _] = args.n;
    let [alpha, beta] = args.scalar.map(|bits| f32::from_bits(bits as u32));
    let Cursor { i, p, j, .. } = *cursor;
    let c_va = args.va[0] + (i * columns + j) * SIZE;
    if terms == 0 {
        let n = chunk(columns - j, Elem::F32, [c_va]);
        let c = run.operand(0, c_va, n * SIZE, Access::UPDATE)?;
        bulk::scale(c, c, n as usize, Elem::F32, args.scalar[1]);
        run.book(&[c, c]);
        return Ok(n);
    }
    let b_va = args.va[2] + (p * columns + j) * SIZE;
    let n = chunk(columns - j, Elem::F32, [c_va, b_va]);
    let a = run.operand(1, args.va[1] + (i * terms + p) * SIZE, SIZE, Access::READ)?;
    let b = run.operand(2, b_va, n * SIZE, Access::READ)?;
    let c = run.operand(0, c_va, n * SIZE, Access::UPDATE)?;
    let factor = alpha * f32::from_bits(bulk::load(a, Elem::F32) as u32);
    bulk::multiply_add_row(c, b, n as usize, factor, (p == 0).then_some(beta));
    run.book(&[a, b, c, c]);
    Ok(n)
}
