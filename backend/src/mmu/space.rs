//! Address spaces as EUs see them.

use super::epoch::{Slot, SpacePage};
use crate::memory::{ControlPage, RegionTable};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use uma_protocol::request::CreateAsid;
use uma_protocol::sync::{ring_slot_offset, AsidSyncHeader, RingSlot};
use uma_protocol::{pte, AsidHandle, Status};

/// One address space, shared by all EUs. Made by CREATE_ASID.
pub struct AddressSpace {
    handle: AsidHandle,
    root: u64,
    levels: u32,
    sync_addr: u64,
    sync: ControlPage,
    ring_entries: u32,
    gone: AtomicBool,
    /// Counts invalidations that the device itself orders; an EU that sees it changed drops the address space.
    kicks: AtomicU64,
}

impl AddressSpace {
    /// Makes an address space of a validated request.
    ///
    /// # Errors
    /// `BadAddress` if the root table or the sync page is not in guest RAM.
    pub fn new(handle: AsidHandle, request: &CreateAsid, table: &Arc<RegionTable>) -> Result<Self, Status> {
        let sync = ControlPage::new(table, request.sync_addr).ok_or(Status::BadAddress)?;
        table.resolve(request.root, uma_protocol::PAGE_SIZE).ok_or(Status::BadAddress)?;
        Ok(Self {
            handle,
            root: request.root,
            levels: u32::from(request.levels),
            sync_addr: request.sync_addr,
            sync,
            ring_entries: request.ring_entries,
            gone: AtomicBool::new(false),
            kicks: AtomicU64::new(0),
        })
    }

    /// The same address space over new guest memory, or `None` if its sync page left.
    pub fn rebind(&self, table: &Arc<RegionTable>) -> Option<Self> {
        Some(Self {
            handle: self.handle,
            root: self.root,
            levels: self.levels,
            sync_addr: self.sync_addr,
            sync: ControlPage::new(table, self.sync_addr)?,
            ring_entries: self.ring_entries,
            gone: AtomicBool::new(self.is_gone()),
            kicks: AtomicU64::new(self.kicks()),
        })
    }

    /// Its name.
    pub fn handle(&self) -> AsidHandle {
        self.handle
    }

    /// First address that its tables do not cover.
    pub fn user_end(&self) -> u64 {
        pte::user_end(self.levels)
    }

    /// Device address of the root table.
    pub(super) fn root(&self) -> u64 {
        self.root
    }

    /// Levels of its tables.
    pub(super) fn levels(&self) -> u32 {
        self.levels
    }

    /// Ends it: no section begins any more, and those inside leave. [`super::Gates::wait_quiescent`] follows.
    pub fn kill(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.kick();
    }

    /// Whether it was killed.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Makes every EU drop what it has cached of it. [`super::Gates::wait_quiescent`] follows.
    pub fn kick(&self) {
        self.kicks.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn kicks(&self) -> u64 {
        self.kicks.load(Ordering::Relaxed)
    }
}

impl SpacePage for AddressSpace {
    #[inline]
    fn epoch(&self) -> &AtomicU64 {
        self.sync.u64_at(offset_of!(AsidSyncHeader, epoch))
    }

    #[inline]
    fn state(&self) -> &AtomicU64 {
        self.sync.u64_at(offset_of!(AsidSyncHeader, state))
    }

    fn slot(&self, seq: u64) -> Slot<'_> {
        let at = ring_slot_offset(seq, self.ring_entries);
        Slot {
            seq: self.sync.u64_at(at + offset_of!(RingSlot, seq)),
            start: self.sync.u64_at(at + offset_of!(RingSlot, start)),
            end: self.sync.u64_at(at + offset_of!(RingSlot, end)),
            flags: self.sync.u64_at(at + offset_of!(RingSlot, flags)),
        }
    }

    fn entries(&self) -> u64 {
        u64::from(self.ring_entries)
    }
}
