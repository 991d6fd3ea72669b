//! CHASE: follows pointers, a hop per step.

use super::access::{Run, Stop};
use super::Cursor;
use crate::memory::bulk;
use crate::mmu::View;
use uma_protocol::fault::Access;
use uma_protocol::kernel::{Elem, KernelArgs};
use uma_protocol::Status;

pub(super) fn chase<V: View>(run: &mut Run<'_, V>, args: &KernelArgs, cursor: &mut Cursor) -> Result<u64, Stop> {
    while cursor.i < args.n[0] {
        if !cursor.value.is_multiple_of(8) {
            return Err(Stop::Trap(Status::Misaligned));
        }
        let node = run.operand(0, cursor.value, 8, Access::READ)?;
        cursor.value = bulk::load(node, Elem::U64);
        cursor.i += 1;
        run.book(&[node]);
        run.after_step(8)?;
    }
    let out = run.operand(1, args.va[1], 8, Access::STORE)?;
    bulk::store(out, Elem::U64, cursor.value);
    run.book(&[out]);
    Ok(cursor.value)
}
