//! What the threads of a device share, and the way back to the guest.
//!
//! One lock guards the state of session, contexts, jobs and faults; EUs take it between slices of work, never inside one.
//! Order: this lock, then a copy lane's. Nobody waits for an EU's *job* with it held, only for its *section*, which ends by
//! itself without it.

use super::config_space::ConfigSpace;
use super::context::{ContextTable, JobKey};
use super::faults::FaultTable;
use super::jobs::Job;
use super::session::Session;
use super::{Ticket, Transport};
use crate::dma::CopyLanes;
use crate::memory::GuestMemory;
use crate::mmu::{Gates, MmuCounters};
use crate::pool::{Backing, Pool};
use crate::trace::Limited;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use uma_protocol::config::Limits;
use uma_protocol::fault::{batch_flags, FaultBatch, FaultRecord};
use uma_protocol::kernel::MAX_PRIORITY;
use uma_protocol::reply::ReplyHeader;
use uma_protocol::request::DeviceCounters;
use uma_protocol::Status;
use zerocopy::IntoBytes;

/// Bytes of a fault buffer that holds one record.
pub const MIN_FAULT_BUFFER: usize = size_of::<FaultBatch>() + size_of::<FaultRecord>();

/// Everything that the threads of one device share.
pub struct Core {
    pub(crate) limits: Limits,
    pub(crate) config: ConfigSpace,
    pub(crate) memory: Arc<GuestMemory>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) gates: Arc<Gates>,
    pub(crate) lanes: CopyLanes,
    /// Lines about sessions, which a guest can begin as often as it likes.
    pub(crate) sessions: Limited,
    state: Mutex<State>,
    mmus: Mutex<Vec<Arc<MmuCounters>>>,
    /// EUs wait here for work.
    pub(crate) work: Condvar,
    /// The timer waits here for deadlines.
    pub(crate) timer: Condvar,
}

/// The state behind the lock.
pub struct State {
    /// The transport may be used and EUs may run.
    pub running: bool,
    /// Threads end.
    pub exit: bool,
    /// The device gave up.
    pub lost: bool,
    /// Counts resets: what was begun under another serial has no chain to answer any more.
    pub serial: u64,
    pub transport: Option<Arc<dyn Transport>>,
    pub session: Option<Session>,
    pub contexts: ContextTable,
    pub jobs: HashMap<JobKey, Job>,
    pub last_job: JobKey,
    /// Jobs to run, by priority; each job is in one of them at most once.
    pub ready: [VecDeque<JobKey>; MAX_PRIORITY as usize],
    pub deadlines: BTreeSet<(Instant, JobKey)>,
    pub faults: FaultTable,
    /// Buffers for fault records; at most `MAX_QUEUE_SIZE`, whatever the guest posts twice.
    pub buffers: VecDeque<Ticket>,
    /// Replies that wait for the end of a park; each is of a chain in flight, so the queues bound them.
    pub held: VecDeque<(Ticket, Vec<u8>)>,
    pub counters: DeviceCounters,
}

impl Core {
    pub(crate) fn new(
        limits: Limits,
        config: ConfigSpace,
        backing: Arc<Backing>,
        pool: Arc<Pool>,
        lanes: CopyLanes,
    ) -> Self {
        Self {
            limits,
            config,
            memory: Arc::default(),
            backing,
            pool,
            gates: Arc::new(Gates::new(limits.num_eus)),
            lanes,
            sessions: Limited::default(),
            state: Mutex::new(State {
                running: false,
                exit: false,
                lost: false,
                serial: 0,
                transport: None,
                session: None,
                contexts: ContextTable::new(limits.max_asids),
                jobs: HashMap::new(),
                last_job: 0,
                ready: Default::default(),
                deadlines: BTreeSet::new(),
                faults: FaultTable::new(limits.max_pending_faults),
                buffers: VecDeque::new(),
                held: VecDeque::new(),
                counters: DeviceCounters::default(),
            }),
            mmus: Mutex::default(),
            work: Condvar::new(),
            timer: Condvar::new(),
        }
    }

    /// Adds the counters of an EU's MMU to those of the device.
    pub(crate) fn add_mmu(&self, counters: Arc<MmuCounters>) {
        self.mmus.lock().unwrap_or_else(PoisonError::into_inner).push(counters);
    }

    /// The counters, those of the EUs included.
    pub(crate) fn counters(&self, state: &State) -> DeviceCounters {
        let mut counters = state.counters;
        for mmu in self.mmus.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            counters.tlb_hits += mmu.hits.load(Ordering::Relaxed);
            counters.tlb_misses += mmu.misses.load(Ordering::Relaxed);
            counters.invalidations += mmu.invalidations.load(Ordering::Relaxed);
            counters.ring_overruns += mmu.overruns.load(Ordering::Relaxed);
        }
        counters
    }

    /// Starts the EUs' counters again, with a new session.
    pub(crate) fn clear_mmu_counters(&self) {
        for mmu in self.mmus.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for counter in [&mmu.hits, &mmu.misses, &mmu.invalidations, &mmu.overruns] {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }

    /// The state. A panic of another thread does not poison it: it is consistent between statements that can panic.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Answers a chain, now or when the park ends.
    pub fn reply(&mut self, ticket: &Ticket, reply: &[u8]) {
        match &self.transport {
            Some(transport) if self.running => transport.complete(ticket, reply),
            _ => self.held.push_back((*ticket, reply.to_vec())),
        }
    }

    /// Answers a chain with a header alone.
    pub fn reply_status(&mut self, ticket: &Ticket, status: Status, id: u64, detail: u64) {
        if status != Status::Ok {
            self.counters.requests_refused += 1;
        }
        self.reply(ticket, ReplyHeader::new(status, id, detail).as_bytes());
    }

    /// Hands pending fault records to the driver while it has buffers posted.
    pub fn deliver_faults(&mut self, max_records: u32) {
        while self.running && self.faults.has_undelivered() {
            let Some(ticket) = self.buffers.pop_front() else { return };
            let room = (ticket.capacity() - size_of::<FaultBatch>()) / size_of::<FaultRecord>();
            let (records, overflowed) = self.faults.take_batch(room.min(max_records as usize));
            let mut flags = if overflowed { batch_flags::OVERFLOW } else { 0 };
            if self.faults.has_undelivered() {
                flags |= batch_flags::MORE;
            }
            let batch = FaultBatch { count: records.len() as u32, flags, reserved: 0 };
            let mut bytes = batch.as_bytes().to_vec();
            bytes.extend_from_slice(records.as_bytes());
            self.counters.fault_batches += 1;
            self.reply(&ticket, &bytes);
        }
    }
}
