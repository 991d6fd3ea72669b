//! The copy threads and their queues.

use super::{Moved, Place};
use crate::device::state::Core;
use crate::device::{limits::MAX_QUEUE_SIZE, Ticket};
use std::collections::VecDeque;
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use uma_protocol::reply::ReplyHeader;
use uma_protocol::request::{migrate_reply_size, MigrateEntry};
use uma_protocol::Status;
use zerocopy::IntoBytes;

/// One MIGRATE on its way. Plain data: it goes on where it stopped.
pub struct Batch {
    ticket: Ticket,
    serial: u64,
    id: u64,
    entries: Vec<MigrateEntry>,
    statuses: Vec<u16>,
    moved: Moved,
}

/// State of one lane.
#[derive(Default)]
struct Lane {
    state: Mutex<LaneState>,
    changed: Condvar,
    /// Stop between two entries.
    stop: AtomicBool,
}

#[derive(Default)]
struct LaneState {
    /// At most `MAX_QUEUE_SIZE` · 13 KiB = 13 MiB.
    queue: VecDeque<Batch>,
    busy: bool,
    paused: bool,
    exit: bool,
}

/// The urgent and the bulk lane.
#[derive(Default)]
pub struct CopyLanes {
    lanes: [Lane; 2],
}

impl Batch {
    /// A batch that has not begun; `serial` is the device's reset count.
    pub fn new(ticket: Ticket, serial: u64, id: u64, entries: Vec<MigrateEntry>) -> Self {
        let statuses = Vec::with_capacity(entries.len());
        Self { ticket, serial, id, entries, statuses, moved: Moved::default() }
    }

    fn run(&mut self, core: &Core, stop: &AtomicBool) {
        let table = core.memory.load();
        let place = Place { table: &table, backing: &core.backing, pool: &core.pool };
        while let Some(entry) = self.entries.get(self.statuses.len()) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let status = place.run(entry, &mut self.moved).map_or_else(|status| status, |()| Status::Ok);
            self.moved.errors += u64::from(status != Status::Ok);
            self.statuses.push(status as u32 as u16);
        }
        // What was copied is visible before the used index moves.
        fence(Ordering::Release);
    }

    fn is_done(&self) -> bool {
        self.statuses.len() == self.entries.len()
    }

    fn reply(&self) -> Vec<u8> {
        let ok = self.statuses.len() as u64 - self.moved.errors;
        let status = if self.moved.errors == 0 { Status::Ok } else { Status::Partial };
        let mut bytes = ReplyHeader::new(status, self.id, ok).as_bytes().to_vec();
        bytes.extend_from_slice(self.statuses.as_bytes());
        bytes.resize(migrate_reply_size(self.statuses.len()), 0);
        bytes
    }

    fn complete(&self, core: &Core) {
        let mut state = core.lock();
        if state.serial != self.serial {
            return;
        }
        let counters = &mut state.counters;
        counters.pages_to_device += self.moved.to_device;
        counters.pages_to_system += self.moved.to_system;
        counters.pages_device_to_device += self.moved.device_to_device;
        counters.pages_zeroed += self.moved.zeroed;
        counters.pages_discarded += self.moved.discarded;
        counters.huge_entries += self.moved.huge;
        counters.migrate_errors += self.moved.errors;
        state.reply(&self.ticket, &self.reply());
    }
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a batch; `None` = end.
    fn take(&self) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            if state.exit {
                return None;
            }
            if !state.paused {
                if let Some(batch) = state.queue.pop_front() {
                    state.busy = true;
                    return Some(batch);
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the busy time; a batch that is not done goes back to the head.
    fn put_back(&self, batch: Option<Batch>) {
        let mut state = self.lock();
        state.busy = false;
        if let Some(batch) = batch {
            state.queue.push_front(batch);
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl CopyLanes {
    /// Queues a batch; `false` if there are more than a virtqueue can hold.
    pub(crate) fn push(&self, batch: Batch, urgent: bool) -> bool {
        let lane = &self.lanes[usize::from(!urgent)];
        let mut state = lane.lock();
        if state.queue.len() >= usize::from(MAX_QUEUE_SIZE) {
            return false;
        }
        state.queue.push_back(batch);
        drop(state);
        lane.changed.notify_all();
        true
    }

    /// Stops both lanes between two entries (2 MiB at most, under a millisecond) and waits until they have.
    pub(crate) fn pause(&self) {
        for lane in &self.lanes {
            lane.stop.store(true, Ordering::Relaxed);
            let mut state = lane.lock();
            state.paused = true;
            while state.busy {
                state = lane.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Lets both lanes go on.
    pub(crate) fn resume(&self) {
        for lane in &self.lanes {
            lane.stop.store(false, Ordering::Relaxed);
            lane.lock().paused = false;
            lane.changed.notify_all();
        }
    }

    /// Forgets what is queued. The lanes are paused.
    pub(crate) fn clear(&self) {
        for lane in &self.lanes {
            lane.lock().queue.clear();
        }
    }

    /// Ends both threads.
    pub(crate) fn exit(&self) {
        for lane in &self.lanes {
            lane.stop.store(true, Ordering::Relaxed);
            lane.lock().exit = true;
            lane.changed.notify_all();
        }
    }

    /// Body of a lane's thread.
    pub(crate) fn serve(core: &Arc<Core>, urgent: bool) {
        let lane = &core.lanes.lanes[usize::from(!urgent)];
        while let Some(mut batch) = lane.take() {
            batch.run(core, &lane.stop);
            if batch.is_done() {
                // Not busy any more before the device's lock is taken: who pauses holds it.
                lane.put_back(None);
                batch.complete(core);
            } else {
                lane.put_back(Some(batch));
            }
        }
    }
}
