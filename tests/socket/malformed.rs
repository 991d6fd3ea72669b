//! Everything that is wrong gets its named status, and everybody else goes on.

use crate::daemon::Daemon;
use crate::driver::*;
use crate::vm::{Order, Vm, RAM};
use uma_protocol::request::{query as selector, *};
use uma_protocol::Status;
use zerocopy::IntoBytes;

fn vm() -> (Daemon, Vm) {
    let daemon = Daemon::start(&[]);
    let vm = Vm::start(&daemon, Order::Qemu);
    (daemon, vm)
}

/// The device still answers.
fn lives(vm: &mut Vm) {
    query::<MemoryInfo>(vm, selector::MEMORY);
}

#[test]
fn requests_before_a_session() {
    let (_daemon, mut vm) = vm();
    for opcode in [Opcode::DestroyAsid, Opcode::Drain] {
        let request = header(&mut vm, opcode, AsidHandle { index: 1, generation: 1 });
        assert_eq!(status(&vm.call(CONTROL, request.as_bytes(), 24)), Status::NotNegotiated);
    }
    lives(&mut vm);
}

#[test]
fn control_requests() {
    let (_daemon, mut vm) = vm();
    begin(&mut vm, 5);
    let good = header(&mut vm, Opcode::Drain, AsidHandle { index: 1, generation: 1 });
    let cases = [
        (RequestHeader { opcode: 0x7777, ..good }, Status::UnknownOpcode),
        (RequestHeader { opcode: Opcode::Submit as u16, ..good }, Status::UnknownOpcode),
        (RequestHeader { length: 25, ..good }, Status::BadLength),
        (RequestHeader { flags: 1, ..good }, Status::ReservedNotZero),
        (RequestHeader { asid: AsidHandle::NONE, ..good }, Status::UnknownAsid),
        (good, Status::UnknownAsid),
        (RequestHeader { asid: AsidHandle { index: u32::MAX, generation: 1 }, ..good }, Status::UnknownAsid),
        (RequestHeader { opcode: Opcode::WindowMap as u16, asid: AsidHandle::NONE, ..good }, Status::Unsupported),
    ];
    for (request, expected) in cases {
        assert_eq!(status(&vm.call(CONTROL, request.as_bytes(), 24)), expected, "{request:?}");
    }
    assert_eq!(status(&vm.call(CONTROL, &[1, 2, 3], 24)), Status::BadLength);
    assert_eq!(negotiate(&mut vm, 0), Status::BadState);
    lives(&mut vm);
}

#[test]
fn address_spaces() {
    let (_daemon, mut vm) = vm();
    begin(&mut vm, 5);
    let page = vm.alloc(4096, 4096);
    let good = CreateAsid {
        header: header(&mut vm, Opcode::CreateAsid, AsidHandle::NONE),
        mode: asid_mode::MIRRORED,
        format: table_format::X86_64,
        levels: 4,
        granule_shift: 12,
        root: page,
        sync_addr: page,
        ring_entries: 64,
        ..CreateAsid::default()
    };
    let cases = [
        (CreateAsid { mode: asid_mode::SHARED, ..good }, Status::Unsupported),
        (CreateAsid { levels: 3, ..good }, Status::Unsupported),
        (CreateAsid { root: page + 8, ..good }, Status::Misaligned),
        (CreateAsid { root: RAM, ..good }, Status::BadAddress),
        (CreateAsid { sync_addr: 1 << 50, ..good }, Status::BadAddress),
        (CreateAsid { ring_entries: 63, ..good }, Status::Limit),
        (CreateAsid { reserved2: 1, ..good }, Status::ReservedNotZero),
    ];
    for (request, expected) in cases {
        assert_eq!(status(&vm.call(CONTROL, request.as_bytes(), 24)), expected, "{request:?}");
    }
    // A replay of the same id is the same address space; another id is another one.
    let first = vm.call(CONTROL, good.as_bytes(), 24);
    assert_eq!((status(&first), vm.call(CONTROL, good.as_bytes(), 24)), (Status::Ok, first));
    assert_eq!(query::<MemoryInfo>(&mut vm, selector::MEMORY).asids, 1);
}

type Chain = [(u64, u32, bool)];

#[test]
fn chains() {
    let (_daemon, mut vm) = vm();
    begin(&mut vm, 5);
    let (request, to) = (vm.alloc(64, 8), vm.alloc(64, 8));
    // (chain, bytes that come back): a reply where there is room, nothing where there is none.
    let cases: [(&Chain, u32); 6] = [
        (&[(request, 24, false)], 0),
        (&[(request, 24, false), (to, 8, true)], 0),
        (&[(to, 24, true), (request, 24, false)], 24),
        (&[(request, 1 << 20, false), (to, 24, true)], 24),
        (&[(RAM - 8, 24, false), (to, 24, true)], 24),
        (&[(request, 24, false), (RAM, 24, true)], 0),
    ];
    for (chain, expected) in cases {
        vm.post(CONTROL, chain);
        assert_eq!(vm.used(CONTROL).1, expected, "{chain:?}");
    }
    lives(&mut vm);
}

#[test]
fn a_chain_that_loops_ends() {
    let (_daemon, mut vm) = vm();
    let at = vm.alloc(64, 8);
    let head = vm.post(CONTROL, &[(at, 8, false), (at, 8, false)]);
    // The second descriptor points back to the first. The chain may have been read before; then it is one that is too short.
    let mut desc = at.to_le_bytes().to_vec();
    desc.extend(8u32.to_le_bytes());
    desc.extend(1u16.to_le_bytes());
    desc.extend(head.to_le_bytes());
    vm.write(0x4000 + u64::from(head + 1) * 16, &desc);
    vm.used(CONTROL);
    vm.post(CONTROL, &[(at, 8, false)]);
    vm.used(CONTROL);
    lives(&mut vm);
}

#[test]
fn an_avail_index_that_makes_no_sense_stops_one_queue_only() {
    let (_daemon, mut vm) = vm();
    begin(&mut vm, 5);
    vm.set_avail(COMPUTE, 0x8000);
    lives(&mut vm);
    let space = create(&mut vm);
    assert_eq!(destroy(&mut vm, &space), Status::Ok);
}

#[test]
fn jobs_with_wrong_arguments() {
    let (_daemon, mut vm) = vm();
    begin(&mut vm, 5);
    let space = create(&mut vm);
    let good = fill(&mut vm, &space, 0x1000, 1, 1);
    let mut cases = Vec::new();
    let mut case = |expected, change: fn(&mut uma_protocol::kernel::JobRequest)| {
        let mut job = good;
        change(&mut job);
        cases.push((job, expected));
    };
    case(Status::BadKernel, |job| job.kernel = 99);
    case(Status::BadKernel, |job| job.elem = 0);
    case(Status::BadArgument, |job| job.priority = 4);
    case(Status::BadArgument, |job| job.stream = 1 << 20);
    case(Status::BadArgument, |job| job.args.va[3] = 1);
    case(Status::Misaligned, |job| job.args.va[0] = 4);
    case(Status::BadRange, |job| job.args.n[0] = u64::MAX);
    case(Status::BadRange, |job| job.args.va[0] = 1 << 47);
    case(Status::ReservedNotZero, |job| job.flags = 1);
    case(Status::StaleAsid, |job| job.header.asid.generation = 0);
    for (job, expected) in cases {
        let at = submit(&mut vm, &job);
        let got = reply(&mut vm, at);
        let expected = if job.header.asid.generation == 0 { Status::UnknownAsid } else { expected };
        assert_eq!(got.header.status, expected as u32, "{job:?}");
    }
    lives(&mut vm);
}
