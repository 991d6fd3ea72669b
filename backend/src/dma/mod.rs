//! Copies between guest RAM and device memory (SPEC.md §7, MIGRATE).
//!
//! Two lanes, urgent and bulk, each a thread with a queue of its own: neither takes a translated access, so no copy can
//! fault, and a stalled one does not stall the other.

mod lane;

pub(crate) use lane::{Batch, CopyLanes};

use crate::memory::bulk;
use crate::memory::{RegionTable, Span};
use crate::pool::{Backing, Pool};
use uma_protocol::request::{MigrateEntry, MigrateOp};
use uma_protocol::{Status, HUGE_SIZE};

/// What entries did, in 4 KiB pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// From guest RAM to device memory.
    pub to_device: u64,
    /// From device memory to guest RAM.
    pub to_system: u64,
    /// Inside device memory.
    pub device_to_device: u64,
    /// Zeroed.
    pub zeroed: u64,
    /// Given back.
    pub discarded: u64,
    /// Entries of 2 MiB.
    pub huge: u64,
    /// Entries that failed.
    pub errors: u64,
}

/// Where entries move to and from.
pub struct Place<'a> {
    /// Guest RAM.
    pub table: &'a RegionTable,
    /// Device memory.
    pub backing: &'a Backing,
    /// Its budget.
    pub pool: &'a Pool,
}

impl Place<'_> {
    /// Does one entry.
    ///
    /// # Errors
    /// As [`MigrateEntry::validate`]; `BadAddress` if the system address is not wholly in one region of guest RAM; `NoMemory`
    /// if the pool's budget is used up; `MemoryError` if the host refuses. Nothing was moved then.
    pub fn run(&self, entry: &MigrateEntry, moved: &mut Moved) -> Result<(), Status> {
        let op = entry.validate(self.backing.size())?;
        let bytes = entry.bytes();
        let pages = bytes / uma_protocol::PAGE_SIZE;
        let device = |dpa| self.backing.span(dpa, bytes).ok_or(Status::BadDpa);
        if matches!(op, MigrateOp::ToDevice | MigrateOp::DeviceToDevice | MigrateOp::Zero)
            && !self.pool.allows(self.backing, entry.dpa, bytes)
        {
            return Err(Status::NoMemory);
        }
        let counter = match op {
            MigrateOp::ToDevice => {
                bulk::copy(device(entry.dpa)?, self.system(entry.addr, bytes)?);
                &mut moved.to_device
            }
            MigrateOp::ToSystem => {
                bulk::copy(self.system(entry.addr, bytes)?, device(entry.dpa)?);
                self.table.mark_dirty(entry.addr, bytes);
                &mut moved.to_system
            }
            MigrateOp::DeviceToDevice => {
                bulk::copy(device(entry.dpa)?, device(entry.addr)?);
                &mut moved.device_to_device
            }
            MigrateOp::Zero => {
                bulk::zero(device(entry.dpa)?);
                &mut moved.zeroed
            }
            MigrateOp::Discard => {
                self.backing.discard(entry.dpa, bytes).map_err(|_| Status::MemoryError)?;
                &mut moved.discarded
            }
        };
        *counter += pages;
        moved.huge += u64::from(bytes == HUGE_SIZE);
        Ok(())
    }

    fn system(&self, addr: u64, bytes: u64) -> Result<Span<'_>, Status> {
        let ptr = self.table.resolve(addr, bytes).ok_or(Status::BadAddress)?;
        // SAFETY: the region table resolved all of it, and keeps it mapped as long as it is borrowed.
        Ok(unsafe { Span::new(ptr, bytes as usize, false) })
    }
}
