//! The logical device: session, contexts, jobs, faults; everything that vhost-user does not need to know.

mod config_space;
pub(crate) mod context;
mod dispatch;
pub(crate) mod faults;
pub(crate) mod jobs;
pub mod limits;
mod session;
pub(crate) mod state;

pub use config_space::CAPABILITIES;

use crate::dma::CopyLanes;
use crate::engine::{eu, fixed::FixedEngine};
use crate::memory::GuestRegion;
use crate::pool::{Backing, Pool};
use config_space::ConfigSpace;
use state::Core;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;
use uma_protocol::queues::QueueRoles;

/// Largest request that a queue takes: MIGRATE with 512 entries, 32 + 512 · 24 bytes.
pub const MAX_REQUEST: usize = 32 + 512 * 24;
/// Device-writable segments of one chain that are kept.
pub const MAX_SEGMENTS: usize = 4;

/// A descriptor chain that the device took and has not answered. Plain data, part of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Queue index.
    pub queue: u16,
    /// Head of the chain.
    pub head: u16,
    /// Segments in use.
    pub count: u8,
    /// Device-writable segments: guest-physical address and bytes.
    pub segments: [(u64, u32); MAX_SEGMENTS],
}

/// The way back to the guest. Called by any thread; never while the device is parked.
pub trait Transport: Send + Sync {
    /// Writes `reply` into the chain's segments, puts the chain into the used ring and signals the queue as the
    /// driver asked. A reply longer than the segments is cut. Never blocks on the guest.
    fn complete(&self, ticket: &Ticket, reply: &[u8]);
}

/// How the queues start again after a stop (docs/architecture.md, *Sessions*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The same guest goes on: keep the session.
    Resume,
    /// Anything else: forget the session first.
    Fresh,
}

/// What the operator chose for one logical device.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of device memory, a multiple of 2 MiB.
    pub memory: u64,
    /// Execution units, 1..=62.
    pub eus: u32,
    /// Compute queues, at least 1.
    pub compute_queues: u16,
}

/// One VM's device.
pub struct Device {
    core: Arc<Core>,
    roles: QueueRoles,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Ticket {
    /// Bytes that a reply can have.
    pub fn capacity(&self) -> usize {
        self.segments[..usize::from(self.count)].iter().map(|(_, len)| *len as usize).sum()
    }
}

impl Device {
    /// Makes the device with its file, EU threads and copy threads; parked, without session or memory.
    ///
    /// # Errors
    /// If the file or a thread can't be made.
    pub fn new(settings: &Settings, pool: &Arc<Pool>) -> std::io::Result<Arc<Self>> {
        let backing = pool.add(settings.memory)?;
        let limits = limits::limits(settings);
        let config = ConfigSpace::new(settings);
        let core = Arc::new(Core::new(limits, config, backing, pool.clone(), CopyLanes::default()));
        let device =
            Arc::new(Self { core, roles: QueueRoles::standard(settings.compute_queues), threads: Mutex::default() });
        for index in 0..limits.num_eus {
            device.spawn(format!("uma-eu{index}"), move |core| eu::run(core, index, &FixedEngine))?;
        }
        device.spawn("uma-urgent".into(), |core| CopyLanes::serve(core, true))?;
        device.spawn("uma-bulk".into(), |core| CopyLanes::serve(core, false))?;
        device.spawn("uma-timer".into(), serve_deadlines)?;
        Ok(device)
    }

    fn spawn(&self, name: String, body: impl FnOnce(&Arc<Core>) + Send + 'static) -> std::io::Result<()> {
        let core = self.core.clone();
        let thread = Builder::new().name(name).spawn(move || body(&core))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Device memory's file, for the window and for recognising it in a memory table.
    pub fn backing(&self) -> &Arc<Backing> {
        &self.core.backing
    }

    /// Queue roles, as config space shows them.
    pub fn queue_roles(&self) -> QueueRoles {
        self.roles
    }

    /// Reads config space; bytes beyond its end are zero. Always answers, at once, in every state.
    pub fn read_config(&self, offset: usize, out: &mut [u8]) {
        self.core.config.read(offset, out);
    }

    /// Writes config space: only the driver-writable words change, the rest of `bytes` is ignored (QEMU sends the whole
    /// space back).
    pub fn write_config(&self, offset: usize, bytes: &[u8]) {
        self.core.config.write(offset, bytes);
    }

    /// Installs new guest memory. Returns when no EU and no copy can still use the old regions. Sync pages and tables
    /// of address spaces are looked up again; an address space whose sync page left ends.
    pub fn set_memory(&self, regions: Vec<GuestRegion>) {
        self.core.set_memory(regions);
    }

    /// Guest memory as the device has it now.
    pub fn memory(&self) -> Arc<crate::memory::RegionTable> {
        self.core.memory.load()
    }

    /// Lets the device run. `Start::Fresh` resets first. Completions that were held back while parked go out now.
    pub fn start(&self, transport: Arc<dyn Transport>, how: Start) {
        self.core.start(transport, how);
    }

    /// Stops everything that touches guest memory, within 10 ms: EUs leave and their lines are IDLE, copies stop
    /// between entries, completions are held back. In-flight requests stay. When it returns, the transport is not
    /// used any more. Idempotent.
    pub fn park(&self) {
        self.core.park();
    }

    /// Forgets the session: contexts, jobs and in-flight chains are gone, device memory is punched.
    pub fn reset(&self) {
        self.core.reset();
    }

    /// The frontend is gone: parks, tells the driver in the device state word, and resets.
    pub fn abandon(&self) {
        self.core.abandon();
    }

    /// Whether a driver has negotiated.
    pub fn has_session(&self) -> bool {
        self.core.lock().session.is_some()
    }

    /// Takes a request of the control queue. Answered through the transport, perhaps later (DRAIN, DESTROY_ASID).
    pub fn control(&self, ticket: Ticket, request: &[u8]) {
        self.core.control(&ticket, request);
    }

    /// Takes a request of the invalidate queue.
    pub fn invalidate(&self, ticket: Ticket, request: &[u8]) {
        self.core.invalidate(&ticket, request);
    }

    /// Takes a request of a migrate queue; the copy threads answer it.
    pub fn migrate(&self, ticket: Ticket, request: &[u8], urgent: bool) {
        self.core.migrate(&ticket, request, urgent);
    }

    /// Takes an empty buffer for fault records.
    pub fn fault_buffer(&self, ticket: Ticket) {
        self.core.fault_buffer(&ticket);
    }

    /// Takes a fault response.
    pub fn fault_response(&self, ticket: Ticket, request: &[u8]) {
        self.core.fault_response(&ticket, request);
    }

    /// Takes a job.
    pub fn submit(&self, ticket: Ticket, request: &[u8]) {
        self.core.submit(&ticket, request);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.core.park();
        self.core.lock().exit = true;
        self.core.work.notify_all();
        self.core.timer.notify_all();
        self.core.lanes.exit();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A thread that panicked has already been reported.
            let _ = thread.join();
        }
    }
}

/// Ends jobs whose deadline has passed.
fn serve_deadlines(core: &Arc<Core>) {
    let mut state = core.lock();
    while !state.exit {
        let now = Instant::now();
        state = match core.expire(&mut state, now) {
            Some(next) => match core.timer.wait_timeout(state, next - now) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            },
            None => core.timer.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
