//! Requests to actions: everything that depends on the device's state.

use super::config_space::CAPABILITIES;
use super::context::{Context, Waiter};
use super::jobs::{Job, Phase};
use super::limits::MAX_QUEUE_SIZE;
use super::session::Session;
use super::state::{Core, State, MIN_FAULT_BUFFER};
use super::Ticket;
use crate::dma::Batch;
use crate::engine::fixed::FixedEngine;
use crate::engine::{Engine, Work};
use crate::mmu::AddressSpace;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uma_protocol::fault::{parse_fault_response, FaultResponse, FaultResult};
use uma_protocol::kernel::{parse_job, JobReply, JobRequest};
use uma_protocol::reply::ReplyHeader;
use uma_protocol::request::{self, ControlRequest, CreateAsid, MemoryInfo, Negotiate, Refused};
use uma_protocol::{Capabilities, RequestHeader, Status, VaRange};
use zerocopy::IntoBytes;

/// How long INVALIDATE waits for sections to end; see `session::SECTION_DEADLINE`.
const INVALIDATE_DEADLINE: Duration = Duration::from_secs(10);

/// Status and detail of an answer; `None` = answered later.
type Answer = Result<Option<u64>, Status>;

impl Core {
    /// See [`super::Device::control`].
    pub(crate) fn control(&self, ticket: &Ticket, bytes: &[u8]) {
        let mut state = self.lock();
        let request = match request::parse_control(bytes) {
            Ok(request) => request,
            Err(refused) => return refuse(&mut state, ticket, refused),
        };
        let header = header_of(&request);
        let answer = match request {
            ControlRequest::Negotiate(request) => self.negotiate(&mut state, &request),
            ControlRequest::Query(request) => return self.query(&mut state, ticket, &request),
            ControlRequest::RegisterSync(request) => self.register_sync(&mut state, request.addr).map(|()| Some(0)),
            ControlRequest::WindowMap(_) => Err(Status::Unsupported),
            other => ready(&state).and_then(|()| self.with_session(&mut state, ticket, &other)),
        };
        match answer {
            Ok(Some(detail)) => state.reply_status(ticket, Status::Ok, header.id, detail),
            Ok(None) => {}
            Err(status) => state.reply_status(ticket, status, header.id, 0),
        }
    }

    fn with_session(&self, state: &mut State, ticket: &Ticket, request: &ControlRequest) -> Answer {
        match request {
            ControlRequest::CreateAsid(request) => self.create(state, request).map(Some),
            ControlRequest::DestroyAsid(header) => self.destroy(state, ticket, header),
            ControlRequest::Drain(header) => self.drain(state, ticket, header),
            ControlRequest::Cancel(request) => {
                let context = state.contexts.live(request.header.asid)?;
                let mut keys = context.jobs.iter();
                let key =
                    keys.find(|key| state.jobs.get(key).is_some_and(|job| job.request.header.id == request.job_id));
                let key = *key.ok_or(Status::UnknownJob)?;
                self.stop_job(state, key, Status::Canceled);
                Ok(Some(0))
            }
            _ => Err(Status::UnknownOpcode),
        }
    }

    fn negotiate(&self, state: &mut State, request: &Negotiate) -> Answer {
        let capabilities = Capabilities::from_bits(request.capabilities).ok_or(Status::Unsupported)?;
        if !CAPABILITIES.contains(capabilities) {
            return Err(Status::Unsupported);
        }
        match state.session {
            Some(session) if session.id == request.session_id => {}
            old => {
                if old.is_some() || state.lost {
                    self.reset_while_running(state);
                }
                if let Some(dropped) = self.sessions.pass() {
                    tracing::info!(session = request.session_id, ?capabilities, dropped, "session begins");
                }
                state.session = Some(Session { id: request.session_id, capabilities, sync_addr: None });
            }
        }
        Ok(Some(capabilities.bits()))
    }

    fn create(&self, state: &mut State, request: &CreateAsid) -> Result<u64, Status> {
        let id = request.header.id;
        if let Some(known) = state.contexts.iter_mut().find(|context| context.create_id == id && !context.is_ending()) {
            return Ok(known.space.handle().to_bits());
        }
        let handle = state.contexts.next_handle()?;
        let space = AddressSpace::new(handle, request, &self.memory.load())?;
        state.contexts.insert(Context {
            space: Arc::new(space),
            create_id: id,
            jobs: Default::default(),
            streams: Default::default(),
            fences: Default::default(),
            drains: Vec::new(),
            destroy: None,
        });
        Ok(handle.to_bits())
    }

    fn destroy(&self, state: &mut State, ticket: &Ticket, header: &RequestHeader) -> Answer {
        let context = state.contexts.find(header.asid)?;
        if context.destroy.is_some() {
            return Err(Status::BadState);
        }
        self.end_context(state, header.asid, Some((*ticket, header.id)));
        Ok(None)
    }

    fn drain(&self, state: &mut State, ticket: &Ticket, header: &RequestHeader) -> Answer {
        let context = state.contexts.live(header.asid)?;
        let Some(upto) = context.jobs.last().copied() else { return Ok(Some(0)) };
        if context.drains.len() >= usize::from(MAX_QUEUE_SIZE) {
            return Err(Status::Limit);
        }
        context.drains.push(Waiter { ticket: *ticket, id: header.id, upto });
        Ok(None)
    }

    fn query(&self, state: &mut State, ticket: &Ticket, request: &request::Query) {
        let mut reply = ReplyHeader::new(Status::Ok, request.header.id, 0).as_bytes().to_vec();
        match request.selector {
            request::query::MEMORY => {
                let info = MemoryInfo {
                    dpa_size: self.backing.size(),
                    budget: self.pool.budget(),
                    populated: self.backing.populated(),
                    asids: state.contexts.len() as u64,
                    jobs: state.jobs.len() as u64,
                    pending_faults: state.faults.len() as u64,
                    reserved: [0; 2],
                };
                reply.extend_from_slice(info.as_bytes());
            }
            _ => reply.extend_from_slice(self.counters(state).as_bytes()),
        }
        state.reply(ticket, &reply);
    }

    /// See [`super::Device::invalidate`].
    pub(crate) fn invalidate(&self, ticket: &Ticket, bytes: &[u8]) {
        let (serial, id, asid) = {
            let mut state = self.lock();
            let request = match request::parse_invalidate(bytes) {
                Ok(request) => request,
                Err(refused) => return refuse(&mut state, ticket, refused),
            };
            let id = request.header.id;
            let kicked = ready(&state).and_then(|()| {
                let context = state.contexts.live(request.header.asid)?;
                context.space.kick();
                Ok(())
            });
            if let Err(status) = kicked {
                return state.reply_status(ticket, status, id, 0);
            }
            state.counters.queue_invalidations += 1;
            (state.serial, id, request.header.asid)
        };
        // Without the lock: EUs take it between their sections.
        let left = self.gates.wait_quiescent(Instant::now() + INVALIDATE_DEADLINE);
        let mut state = self.lock();
        if state.serial != serial {
            return;
        }
        if !left {
            tracing::error!(asid = asid.index, "an EU did not leave its section in time");
            self.lose(&mut state, "an EU did not leave its section");
        }
        state.reply_status(ticket, if left { Status::Ok } else { Status::DeviceLost }, id, 0);
    }

    /// See [`super::Device::migrate`].
    pub(crate) fn migrate(&self, ticket: &Ticket, bytes: &[u8], urgent: bool) {
        let mut state = self.lock();
        let (head, entries) = match request::parse_migrate(bytes, self.limits.max_migrate_entries) {
            Ok(parsed) => parsed,
            Err(refused) => return refuse(&mut state, ticket, refused),
        };
        let id = head.header.id;
        if let Err(status) = negotiated(&state) {
            return state.reply_status(ticket, status, id, 0);
        }
        if ticket.capacity() < request::migrate_reply_size(entries.len()) {
            return state.reply_status(ticket, Status::BadLength, id, 0);
        }
        if !self.lanes.push(Batch::new(*ticket, state.serial, id, entries.to_vec()), urgent) {
            state.reply_status(ticket, Status::Limit, id, 0);
        }
    }

    /// See [`super::Device::fault_buffer`].
    pub(crate) fn fault_buffer(&self, ticket: &Ticket) {
        let mut state = self.lock();
        // A guest that posts a chain twice has more in flight than its queue has entries.
        if ticket.capacity() < MIN_FAULT_BUFFER || state.buffers.len() >= usize::from(MAX_QUEUE_SIZE) {
            return state.reply(ticket, &[]);
        }
        state.buffers.push_back(*ticket);
        state.deliver_faults(self.limits.max_fault_records);
    }

    /// See [`super::Device::fault_response`].
    pub(crate) fn fault_response(&self, ticket: &Ticket, bytes: &[u8]) {
        let mut state = self.lock();
        let response = match parse_fault_response(bytes) {
            Ok(response) => response,
            Err(refused) => return refuse(&mut state, ticket, refused),
        };
        let status = ready(&state).map_or_else(|status| status, |()| self.answer_fault(&mut state, &response));
        match status {
            // A response that came too late is no error of the driver's.
            Status::Stale => state.reply(ticket, ReplyHeader::new(status, response.header.id, 0).as_bytes()),
            _ => state.reply_status(ticket, status, response.header.id, 0),
        }
    }

    fn answer_fault(&self, state: &mut State, response: &FaultResponse) -> Status {
        let Some(pending) = state.faults.answer(response) else {
            state.counters.fault_responses_stale += 1;
            return Status::Stale;
        };
        state.counters.fault_responses += 1;
        let result = FaultResult::from_code(response.result).unwrap_or(FaultResult::Retry);
        for key in pending.waiting {
            self.resolve(state, key, result, &response.range);
        }
        while let Some(key) = state.faults.take_overflow() {
            self.make_ready(state, key);
        }
        Status::Ok
    }

    fn resolve(&self, state: &mut State, key: u64, result: FaultResult, range: &VaRange) {
        let Some(job) = state.jobs.get_mut(&key) else { return };
        let hit = job.fault.is_some_and(|fault| range.contains(fault.va));
        match result {
            FaultResult::Retry => self.make_ready(state, key),
            _ if !hit => self.make_ready(state, key),
            FaultResult::AsidGone => self.end_job(state, key, Status::AsidGone),
            _ => {
                job.fault_result = result as u16;
                self.end_job(state, key, Status::Fault);
            }
        }
    }

    /// See [`super::Device::submit`].
    pub(crate) fn submit(&self, ticket: &Ticket, bytes: &[u8]) {
        let mut state = self.lock();
        let request = match parse_job(bytes) {
            Ok(request) => request,
            Err(refused) => return refuse(&mut state, ticket, refused),
        };
        match self.accept(&mut state, ticket, &request) {
            Ok(job) => self.add_job(&mut state, job),
            Err(status) => {
                state.counters.requests_refused += 1;
                let header = ReplyHeader::new(status, request.header.id, 0);
                state.reply(ticket, JobReply { header, ..JobReply::default() }.as_bytes());
            }
        }
    }

    fn accept(&self, state: &mut State, ticket: &Ticket, request: &JobRequest) -> Result<Job, Status> {
        ready(state)?;
        if ticket.capacity() < size_of::<JobReply>() {
            return Err(Status::BadLength);
        }
        let context = state.contexts.live(request.header.asid)?;
        request.validate(context.space.user_end())?;
        let limits = &self.limits;
        if request.stream >= limits.max_streams || request.wait_fence.max(request.signal_fence) > limits.max_fences {
            return Err(Status::BadArgument);
        }
        let same_id = |key| state.jobs.get(key).is_some_and(|job| job.request.header.id == request.header.id);
        if context.jobs.iter().any(same_id) {
            return Err(Status::BadState);
        }
        if state.jobs.len() >= limits.max_jobs as usize || context.jobs.len() >= limits.max_jobs_per_asid as usize {
            return Err(Status::Limit);
        }
        let deadline = (request.deadline_ns != 0)
            .then(|| Instant::now().checked_add(Duration::from_nanos(request.deadline_ns)))
            .flatten();
        Ok(Job {
            ticket: *ticket,
            request: *request,
            cursor: FixedEngine.start(request),
            work: Work::default(),
            faults: 0,
            device_ns: 0,
            deadline,
            phase: Phase::Blocked,
            fault: None,
            fault_result: 0,
            eu: 0,
            result: 0,
            ending: None,
            stop: Arc::new(AtomicBool::new(false)),
        })
    }
}

fn refuse(state: &mut State, ticket: &Ticket, refused: Refused) {
    state.reply_status(ticket, refused.status, refused.id, 0);
}

/// A session there must be, and a device that works.
fn negotiated(state: &State) -> Result<(), Status> {
    if state.lost {
        return Err(Status::DeviceLost);
    }
    state.session.map(|_| ()).ok_or(Status::NotNegotiated)
}

/// A session with a sync page.
fn ready(state: &State) -> Result<(), Status> {
    negotiated(state)?;
    state.session.and_then(|session| session.sync_addr).map(|_| ()).ok_or(Status::NotNegotiated)
}

fn header_of(request: &ControlRequest) -> RequestHeader {
    match request {
        ControlRequest::Negotiate(request) => request.header,
        ControlRequest::RegisterSync(request) => request.header,
        ControlRequest::CreateAsid(request) => request.header,
        ControlRequest::Cancel(request) => request.header,
        ControlRequest::Query(request) => request.header,
        ControlRequest::DestroyAsid(header) | ControlRequest::Drain(header) | ControlRequest::WindowMap(header) => {
            *header
        }
    }
}
