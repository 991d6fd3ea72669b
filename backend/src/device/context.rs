//! Address spaces: handles, generations, streams, fences.

use super::Ticket;
use crate::mmu::AddressSpace;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use uma_protocol::{AsidHandle, Status};

/// Key of a job in the job table; grows, never used twice.
pub type JobKey = u64;

/// A request that is answered when jobs have ended.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Its chain.
    pub ticket: Ticket,
    /// Its id.
    pub id: u64,
    /// The last job that it waits for.
    pub upto: JobKey,
}

/// One address space and what hangs on it.
pub struct Context {
    /// The MMU's view of it.
    pub space: Arc<AddressSpace>,
    /// Id of the CREATE_ASID, for replays.
    pub create_id: u64,
    /// Jobs in flight.
    pub jobs: BTreeSet<JobKey>,
    /// Jobs by stream, in order. A stream without jobs has no entry, so the jobs bound them.
    pub streams: HashMap<u32, VecDeque<JobKey>>,
    /// Fences that were signalled; at most max_fences.
    pub fences: HashMap<u32, u64>,
    /// DRAIN requests.
    pub drains: Vec<Waiter>,
    /// DESTROY_ASID: it is ending, and is answered with its last job.
    pub destroy: Option<(Ticket, u64)>,
}

impl Context {
    /// Whether fence `fence` has reached `value`; fence 0 always has.
    pub fn fence_reached(&self, fence: u32, value: u64) -> bool {
        fence == 0 || self.fences.get(&fence).copied().unwrap_or(0) >= value
    }

    /// Whether it was told to end.
    pub fn is_ending(&self) -> bool {
        self.space.is_gone()
    }
}

/// All address spaces of a device.
#[derive(Default)]
pub struct ContextTable {
    /// By index - 1.
    slots: Vec<Option<Context>>,
    /// Generation of the last user of each index.
    generations: Vec<u32>,
}

impl ContextTable {
    /// A table for `max` address spaces.
    pub fn new(max: u32) -> Self {
        Self { slots: (0..max).map(|_| None).collect(), generations: vec![0; max as usize] }
    }

    /// The handle that the next address space gets.
    ///
    /// # Errors
    /// `Limit` if all indices are in use.
    pub fn next_handle(&self) -> Result<AsidHandle, Status> {
        let free = self.slots.iter().position(Option::is_none).ok_or(Status::Limit)?;
        Ok(AsidHandle { index: free as u32 + 1, generation: self.generations[free].wrapping_add(1) })
    }

    /// Puts a context where [`Self::next_handle`] said.
    pub fn insert(&mut self, context: Context) {
        let handle = context.space.handle();
        let at = handle.index as usize - 1;
        self.generations[at] = handle.generation;
        self.slots[at] = Some(context);
    }

    /// The context of `handle`, ending ones included.
    ///
    /// # Errors
    /// `StaleAsid` if the handle's time has passed, `UnknownAsid` if it never was.
    pub fn find(&mut self, handle: AsidHandle) -> Result<&mut Context, Status> {
        let at = (handle.index as usize).wrapping_sub(1);
        let generation = *self.generations.get(at).ok_or(Status::UnknownAsid)?;
        match self.slots[at].as_mut() {
            Some(context) if generation == handle.generation => Ok(context),
            _ if handle.generation != 0 && handle.generation <= generation => Err(Status::StaleAsid),
            _ => Err(Status::UnknownAsid),
        }
    }

    /// The context of `handle` if it can take work.
    ///
    /// # Errors
    /// As [`Self::find`]; `AsidGone` if it is ending.
    pub fn live(&mut self, handle: AsidHandle) -> Result<&mut Context, Status> {
        let context = self.find(handle)?;
        if context.is_ending() {
            return Err(Status::AsidGone);
        }
        Ok(context)
    }

    /// Takes a context out; its index is free again.
    pub fn remove(&mut self, handle: AsidHandle) -> Option<Context> {
        self.find(handle).ok()?;
        self.slots[handle.index as usize - 1].take()
    }

    /// Every context.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Context> {
        self.slots.iter_mut().flatten()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}
