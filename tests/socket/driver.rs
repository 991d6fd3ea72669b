//! The little of a driver that tests need: a session, one address space, faults.

use crate::vm::Vm;
use uma_protocol::config::{VERSION_MAJOR, VERSION_MINOR};
use uma_protocol::fault::{FaultBatch, FaultRecord, FaultResponse, FaultResult};
use uma_protocol::kernel::{Elem, JobReply, JobRequest, Kernel, KernelArgs};
use uma_protocol::reply::ReplyHeader;
use uma_protocol::request::*;
use uma_protocol::sync::{asid_state, MAX_RING_ENTRIES};
use uma_protocol::{pte, Status, VaRange};
use zerocopy::{FromBytes, IntoBytes};

pub const CONTROL: usize = 0;
pub const INVALIDATE: usize = 1;
pub const URGENT: usize = 2;
pub const FAULT: usize = 4;
pub const RESPONSE: usize = 5;
pub const COMPUTE: usize = 6;

/// An address space with one 4-level branch of tables.
pub struct Space {
    pub asid: AsidHandle,
    root: u64,
}

pub fn header(vm: &mut Vm, opcode: Opcode, asid: AsidHandle) -> RequestHeader {
    let length = opcode.fixed_size() as u32;
    RequestHeader { opcode: opcode as u16, flags: 0, length, asid, id: vm.id() }
}

pub fn status(reply: &[u8]) -> Status {
    let (header, _) = ReplyHeader::read_from_prefix(reply).expect("a reply");
    Status::from_code(header.status).expect("a known status")
}

pub fn negotiate(vm: &mut Vm, session: u64) -> Status {
    let request = Negotiate {
        header: header(vm, Opcode::Negotiate, AsidHandle::NONE),
        session_id: session,
        capabilities: 1,
        version_major: VERSION_MAJOR,
        version_minor: VERSION_MINOR,
        ..Negotiate::default()
    };
    status(&vm.call(CONTROL, request.as_bytes(), 24))
}

/// NEGOTIATE, REGISTER_SYNC and fault buffers.
pub fn begin(vm: &mut Vm, session: u64) {
    assert_eq!(negotiate(vm, session), Status::Ok);
    let addr = vm.alloc(4096, 4096);
    let request = RegisterSync { header: header(vm, Opcode::RegisterSync, AsidHandle::NONE), addr, reserved: 0 };
    assert_eq!(status(&vm.call(CONTROL, request.as_bytes(), 24)), Status::Ok);
}

pub fn post_fault_buffer(vm: &mut Vm) -> u64 {
    let at = vm.alloc(4096, 4096);
    vm.post(FAULT, &[(at, 4096, true)]);
    at
}

pub fn query<T: FromBytes>(vm: &mut Vm, selector: u32) -> T {
    let request = Query { header: header(vm, Opcode::Query, AsidHandle::NONE), selector, reserved: 0 };
    let reply = vm.call(CONTROL, request.as_bytes(), 512);
    assert_eq!(status(&reply), Status::Ok);
    T::read_from_bytes(&reply[24..]).expect("the structure asked for")
}

pub fn create(vm: &mut Vm) -> Space {
    let (root, sync) = (vm.alloc(4096, 4096), vm.alloc(4096, 4096));
    vm.write_u64(sync + 64, asid_state::LIVE);
    let request = CreateAsid {
        header: header(vm, Opcode::CreateAsid, AsidHandle::NONE),
        mode: asid_mode::MIRRORED,
        format: table_format::X86_64,
        levels: 4,
        granule_shift: 12,
        root,
        sync_addr: sync,
        ring_entries: MAX_RING_ENTRIES,
        ..CreateAsid::default()
    };
    let reply = vm.call(CONTROL, request.as_bytes(), 24);
    assert_eq!(status(&reply), Status::Ok);
    let (reply, _) = ReplyHeader::read_from_prefix(&reply).unwrap();
    Space { asid: AsidHandle::from_bits(reply.detail), root }
}

pub fn destroy(vm: &mut Vm, space: &Space) -> Status {
    let request = header(vm, Opcode::DestroyAsid, space.asid);
    status(&vm.call(CONTROL, request.as_bytes(), 24))
}

/// Maps a page of guest memory at `va`.
pub fn map(vm: &mut Vm, space: &Space, va: u64, gpa: u64) {
    let rights = pte::PRESENT | pte::WRITABLE | pte::USER;
    let mut table = space.root;
    for level in (2..=4).rev() {
        let slot = table + 8 * pte::index(va, level) as u64;
        if vm.read_u64(slot) == 0 {
            let next = vm.alloc(4096, 4096);
            vm.write_u64(slot, next | rights);
        }
        table = vm.read_u64(slot) & pte::FRAME_MASK;
    }
    vm.write_u64(table + 8 * pte::index(va, 1) as u64, gpa | rights);
}

/// A FILL of `n` U64 at `va`.
pub fn fill(vm: &mut Vm, space: &Space, va: u64, n: u64, value: u64) -> JobRequest {
    let args = KernelArgs { va: [va, 0, 0, 0], n: [n, 0, 0, 0], scalar: [value, 0] };
    JobRequest {
        header: header(vm, Opcode::Submit, space.asid),
        kernel: Kernel::Fill as u16,
        elem: Elem::U64 as u16,
        args,
        ..JobRequest::default()
    }
}

/// A job that never ends by itself: it waits for a fence that nobody signals.
pub fn endless(vm: &mut Vm, space: &Space) -> JobRequest {
    JobRequest {
        header: header(vm, Opcode::Submit, space.asid),
        kernel: Kernel::Nop as u16,
        wait_fence: 1,
        wait_value: 1,
        ..JobRequest::default()
    }
}

/// Posts a job; where its reply will be.
pub fn submit(vm: &mut Vm, job: &JobRequest) -> u64 {
    let (at, to) = (vm.alloc(152, 8), vm.alloc(88, 8));
    vm.write(at, job.as_bytes());
    vm.post(COMPUTE, &[(at, 152, false), (to, 88, true)]);
    to
}

/// Waits for the end of a job.
pub fn reply(vm: &mut Vm, at: u64) -> JobReply {
    let (_, written) = vm.used(COMPUTE);
    assert_eq!(written, 88);
    JobReply::read_from_bytes(&vm.read(at, 88)).unwrap()
}

/// Waits for a fault buffer; its records.
pub fn faults(vm: &mut Vm, buffer: u64) -> Vec<FaultRecord> {
    let (_, written) = vm.used(FAULT);
    let bytes = vm.read(buffer, written as usize);
    let (batch, rest) = FaultBatch::read_from_prefix(&bytes).unwrap();
    let records = <[FaultRecord]>::ref_from_bytes(rest).unwrap();
    assert_eq!(batch.count as usize, records.len());
    records.to_vec()
}

pub fn respond(vm: &mut Vm, record: &FaultRecord, result: FaultResult) -> Status {
    let request = FaultResponse {
        header: header(vm, Opcode::FaultResponse, record.asid),
        range: VaRange { start: record.va, end: record.va + 4096 },
        sequence: record.sequence,
        result: result as u32,
        reserved: 0,
    };
    status(&vm.call(RESPONSE, request.as_bytes(), 24))
}
