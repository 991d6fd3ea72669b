//! ATOMIC_ADD and ATOMIC_CAS.

use super::access::{Run, Stop};
use super::Cursor;
use crate::memory::bulk;
use crate::mmu::View;
use uma_protocol::fault::Access;
use uma_protocol::kernel::{atomic_slot, Elem, KernelArgs};

pub(super) fn add<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    let [slots, operations, ..] = args.n;
    while cursor.i < operations {
        let slot = atomic_slot(args.scalar[1], cursor.i, slots);
        let word = run.operand(0, args.va[0] + slot * elem.size(), elem.size(), Access::RMW)?;
        bulk::atomic_add(word, elem.size(), args.scalar[0]);
        cursor.i += 1;
        run.book(&[word, word]);
        if cursor.i < operations {
            run.after_step(elem.size())?;
        }
    }
    Ok(0)
}

pub(super) fn cas<V: View>(
    run: &mut Run<'_, V>,
    elem: Elem,
    args: &KernelArgs,
    cursor: &mut Cursor,
) -> Result<u64, Stop> {
    while cursor.i < args.n[0] {
        let word = run.operand(0, args.va[0] + cursor.i * elem.size(), elem.size(), Access::RMW)?;
        cursor.value += u64::from(bulk::atomic_cas(word, elem.size(), args.scalar[0], args.scalar[1]));
        cursor.i += 1;
        run.book(&[word, word]);
        if cursor.i < args.n[0] {
            run.after_step(elem.size())?;
        }
    }
    Ok(cursor.value)
}
