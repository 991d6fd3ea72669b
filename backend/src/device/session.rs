//! Sessions: park, resume, reset, memory updates (docs/architecture.md, *Sessions*).

use super::context::ContextTable;
use super::faults::FaultTable;
use super::state::{Core, State};
use super::{Start, Transport};
use crate::memory::{ControlPage, GuestRegion};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uma_protocol::sync::{device_state, EuLine, DEVICE_STATE_OFFSET, EU_LINES_OFFSET};
use uma_protocol::{Capabilities, Status};

/// How long a section may take to end. It ends within microseconds of running; only a host that does not run the EU's
/// thread makes it longer, and after this the device is lost.
const SECTION_DEADLINE: Duration = Duration::from_secs(10);

/// From NEGOTIATE to reset.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// The driver's random id.
    pub id: u64,
    /// What the driver uses.
    pub capabilities: Capabilities,
    /// Device address of the device's sync page, once registered.
    pub sync_addr: Option<u64>,
}

impl Core {
    /// Makes every EU leave and keeps it out; returns when all have left. Copies stop between entries.
    fn quiesce(&self, state: &mut State) {
        self.gates.close();
        if !self.gates.wait_quiescent(Instant::now() + SECTION_DEADLINE) {
            self.lose(state, "an EU did not leave its section");
        }
        self.lanes.pause();
    }

    /// Undoes [`Self::quiesce`] if the device runs.
    fn release(&self, state: &State) {
        if state.running && !state.lost {
            self.gates.open();
            self.lanes.resume();
        }
        self.work.notify_all();
    }

    /// See [`super::Device::start`].
    pub(crate) fn start(&self, transport: Arc<dyn Transport>, how: Start) {
        let mut state = self.lock();
        if how == Start::Fresh {
            self.reset_locked(&mut state);
        } else {
            state.counters.resumes += 1;
        }
        state.transport = Some(transport);
        state.running = true;
        self.gates.attach_owners();
        self.write_device_state(device_state::RUNNING);
        while let Some((ticket, reply)) = state.held.pop_front() {
            state.reply(&ticket, &reply);
        }
        state.deliver_faults(self.limits.max_fault_records);
        self.release(&state);
    }

    /// See [`super::Device::park`].
    pub(crate) fn park(&self) {
        let mut state = self.lock();
        if !state.running {
            return;
        }
        self.quiesce(&mut state);
        state.running = false;
        state.transport = None;
        state.counters.parks += 1;
        // The last words to guest memory: the next guest may own it when this returns.
        self.write_device_state(device_state::PARKED);
        self.gates.detach_owners(true);
    }

    /// See [`super::Device::abandon`].
    pub(crate) fn abandon(&self) {
        self.park();
        // The guest may live on without us; this is how it learns that nothing will be answered any more.
        self.write_device_state(device_state::LOST);
        self.reset();
    }

    /// See [`super::Device::reset`].
    pub(crate) fn reset(&self) {
        let mut state = self.lock();
        self.reset_locked(&mut state);
        self.release(&state);
    }

    /// Forgets the session. EUs are kept out until [`Self::release`].
    pub(super) fn reset_locked(&self, state: &mut State) {
        self.quiesce(state);
        self.gates.detach_owners(false);
        self.lanes.clear();
        if let Some(session) = state.session {
            if let Some(dropped) = self.sessions.pass() {
                tracing::info!(session = session.id, capabilities = ?session.capabilities, dropped, "session ends, device reset");
            }
        }
        for job in state.jobs.values() {
            job.stop.store(true, Ordering::Relaxed);
        }
        state.serial += 1;
        state.session = None;
        state.contexts = ContextTable::new(self.limits.max_asids);
        state.jobs.clear();
        state.ready = Default::default();
        state.deadlines.clear();
        state.faults = FaultTable::new(self.limits.max_pending_faults);
        state.buffers.clear();
        state.held.clear();
        state.counters = Default::default();
        self.clear_mmu_counters();
        state.lost = false;
        self.gates.set_sync_page(None);
        self.config.clear();
        if let Err(error) = self.backing.discard(0, self.backing.size()) {
            tracing::error!(%error, "device memory could not be punched");
            self.lose(state, "old contents could not be discarded");
        }
    }

    /// Ends a reset inside a running session (NEGOTIATE with a new id).
    pub(super) fn reset_while_running(&self, state: &mut State) {
        self.reset_locked(state);
        self.release(state);
    }

    /// See [`super::Device::set_memory`].
    pub(crate) fn set_memory(&self, regions: Vec<GuestRegion>) {
        let mut state = self.lock();
        self.quiesce(&mut state);
        self.gates.detach_owners(true);
        self.memory.replace(regions);
        let table = self.memory.load();
        let page = state.session.and_then(|session| session.sync_addr).map(|addr| ControlPage::new(&table, addr));
        match page {
            Some(None) => {
                // Without the EU lines nobody can be told apart from an EU that works: nothing may run.
                tracing::warn!("the device's sync page left guest memory: the session can't go on");
                self.gates.set_sync_page(None);
                self.lose(&mut state, "the device's sync page left guest memory");
            }
            Some(Some(page)) => self.gates.set_sync_page(Some(Arc::new(page))),
            None => self.gates.touch(),
        }
        if state.running {
            self.gates.attach_owners();
        }
        let mut ended = Vec::new();
        for context in state.contexts.iter_mut() {
            match context.space.rebind(&table) {
                Some(space) => context.space = Arc::new(space),
                None => ended.push(context.space.handle()),
            }
        }
        for handle in ended {
            tracing::warn!(asid = handle.index, "an address space ended: its sync page left guest memory");
            self.end_context(&mut state, handle, None);
        }
        self.release(&state);
    }

    /// Registers the device's sync page: every line is idle and without owner before an EU uses it.
    pub(super) fn register_sync(&self, state: &mut State, addr: u64) -> Result<(), Status> {
        let session = state.session.as_mut().ok_or(Status::NotNegotiated)?;
        match session.sync_addr {
            Some(known) if known == addr => return Ok(()),
            Some(_) => return Err(Status::BadState),
            None => {}
        }
        let page = ControlPage::new(&self.memory.load(), addr).ok_or(Status::BadAddress)?;
        for eu in 0..self.limits.num_eus as usize {
            let line = EU_LINES_OFFSET + eu * size_of::<EuLine>();
            page.u64_at(line).store(0, Ordering::Relaxed);
            page.u64_at(line + 8).store(0, Ordering::Relaxed);
        }
        page.u64_at(DEVICE_STATE_OFFSET).store(device_state::RUNNING, Ordering::Release);
        session.sync_addr = Some(addr);
        self.gates.set_sync_page(Some(Arc::new(page)));
        self.gates.attach_owners();
        self.work.notify_all();
        Ok(())
    }

    /// Gives up: every job ends, every later request is refused, the driver sees it in the device state word.
    pub(crate) fn lose(&self, state: &mut State, why: &str) {
        if state.lost {
            return;
        }
        tracing::error!(why, "the device is lost; a reset is needed");
        state.lost = true;
        self.gates.close();
        self.write_device_state(device_state::LOST);
        let jobs: Vec<_> = state.jobs.keys().copied().collect();
        for job in jobs {
            self.end_job(state, job, Status::DeviceLost);
        }
    }

    fn write_device_state(&self, value: u64) {
        if let Some(page) = self.gates.sync_page() {
            page.u64_at(DEVICE_STATE_OFFSET).store(value, Ordering::Release);
        }
    }
}
