//! Jobs, faults and migration through real queues.

use crate::daemon::Daemon;
use crate::driver::*;
use crate::vm::{Order, Vm};
use uma_protocol::fault::{Access, FaultCause, FaultResult};
use uma_protocol::request::{self, query as selector, DeviceCounters, MigrateEntry, MigrateHeader, MigrateOp, Opcode};
use uma_protocol::{AsidHandle, Status, VaRange};
use zerocopy::IntoBytes;

const VA: u64 = 0x7000_0000_0000;

fn ready() -> (Daemon, Vm, Space) {
    let daemon = Daemon::start(&[]);
    let mut vm = Vm::start(&daemon, Order::Qemu);
    begin(&mut vm, 42);
    let space = create(&mut vm);
    (daemon, vm, space)
}

#[test]
fn a_job_on_memory_that_is_mapped() {
    let (_daemon, mut vm, space) = ready();
    let page = vm.alloc(4096, 4096);
    map(&mut vm, &space, VA, page);
    let job = fill(&mut vm, &space, VA, 512, 0x1234);
    let at = submit(&mut vm, &job);
    let reply = reply(&mut vm, at);
    assert_eq!((reply.header.status, reply.header.id, reply.faults), (0, job.header.id, 0));
    assert_eq!((reply.steps, reply.bytes), (1, 4096));
    assert!(vm.read(page, 4096).chunks(8).all(|word| word == 0x1234u64.to_le_bytes()));
    assert_eq!(destroy(&mut vm, &space), Status::Ok);
}

#[test]
fn a_fault_is_served_and_the_job_goes_on() {
    let (_daemon, mut vm, space) = ready();
    let buffer = post_fault_buffer(&mut vm);
    let (one, two) = (vm.alloc(4096, 4096), vm.alloc(4096, 4096));
    map(&mut vm, &space, VA, one);
    let job = fill(&mut vm, &space, VA, 1024, 7);
    let at = submit(&mut vm, &job);
    let records = faults(&mut vm, buffer);
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].asid, records[0].va, records[0].job), (space.asid, VA + 4096, job.header.id));
    assert_eq!(records[0].access, Access::WRITE.bits());
    map(&mut vm, &space, VA + 4096, two);
    assert_eq!(respond(&mut vm, &records[0], FaultResult::Retry), Status::Ok);
    let reply = reply(&mut vm, at);
    assert_eq!((reply.header.status, reply.faults, reply.steps), (0, 1, 2));
    assert!(vm.read(two, 4096).chunks(8).all(|word| word == 7u64.to_le_bytes()));
    assert_eq!(respond(&mut vm, &records[0], FaultResult::Retry), Status::Stale);
}

#[test]
fn a_fault_that_cannot_be_served_ends_the_job_with_its_address() {
    let (_daemon, mut vm, space) = ready();
    let buffer = post_fault_buffer(&mut vm);
    let job = fill(&mut vm, &space, VA, 1, 7);
    let at = submit(&mut vm, &job);
    let record = faults(&mut vm, buffer)[0];
    assert_eq!(respond(&mut vm, &record, FaultResult::NoMapping), Status::Ok);
    let reply = reply(&mut vm, at);
    assert_eq!(reply.header.status, Status::Fault as u32);
    assert_eq!((reply.fault_va, reply.fault_cause), (VA, FaultCause::NotPresent as u16));
    assert_eq!(reply.fault_result, FaultResult::NoMapping as u16);
}

#[test]
fn a_frame_outside_of_memory_ends_the_job_at_once() {
    let (_daemon, mut vm, space) = ready();
    map(&mut vm, &space, VA, 0x7f_ffff_f000);
    let job = fill(&mut vm, &space, VA, 1, 7);
    let at = submit(&mut vm, &job);
    let reply = reply(&mut vm, at);
    assert_eq!((reply.header.status, reply.fault_cause), (Status::Fault as u32, FaultCause::BadFrame as u16));
}

#[test]
fn destroying_ends_the_jobs() {
    let (_daemon, mut vm, space) = ready();
    let buffer = post_fault_buffer(&mut vm);
    let waiting = endless(&mut vm, &space);
    let first = submit(&mut vm, &waiting);
    let mut faulting = fill(&mut vm, &space, VA, 1, 7);
    faulting.stream = 1;
    let second = submit(&mut vm, &faulting);
    let record = faults(&mut vm, buffer)[0];
    assert_eq!(destroy(&mut vm, &space), Status::Ok);
    for _ in 0..2 {
        vm.used(COMPUTE);
    }
    for at in [first, second] {
        assert_eq!(status(&vm.read(at, 88)), Status::AsidGone);
    }
    assert_eq!(respond(&mut vm, &record, FaultResult::Retry), Status::Stale);
    assert_eq!(destroy(&mut vm, &space), Status::StaleAsid);
}

fn migrate(vm: &mut Vm, entries: &[MigrateEntry]) -> (Status, Vec<u16>) {
    let mut head = MigrateHeader { count: entries.len() as u32, ..MigrateHeader::default() };
    head.header = header(vm, Opcode::Migrate, AsidHandle::NONE);
    head.header.length += (entries.len() * 24) as u32;
    let mut bytes = head.as_bytes().to_vec();
    bytes.extend_from_slice(entries.as_bytes());
    let reply = vm.call(URGENT, &bytes, request::migrate_reply_size(entries.len()));
    let statuses = reply[24..].chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).take(entries.len());
    (status(&reply), statuses.collect())
}

#[test]
fn pages_go_and_come_back_and_failures_are_exact() {
    let (_daemon, mut vm, _space) = ready();
    let (from, to) = (vm.alloc(4096, 4096), vm.alloc(4096, 4096));
    vm.write(from, &[0xab; 4096]);
    let entry = |op: MigrateOp, addr, dpa| MigrateEntry { addr, dpa, op: op as u16, order: 0, reserved: 0 };
    let (whole, statuses) = migrate(
        &mut vm,
        &[
            entry(MigrateOp::ToDevice, from, 0x5000),
            entry(MigrateOp::ToDevice, 1 << 40, 0x6000),
            entry(MigrateOp::ToSystem, from, 64 << 20),
            entry(MigrateOp::ToSystem, from, 0x5100),
            entry(MigrateOp::DeviceToDevice, 0x5000, 0x7000),
            entry(MigrateOp::ToSystem, to, 0x7000),
        ],
    );
    assert_eq!(whole, Status::Partial);
    let expected = [0, Status::BadAddress as u16, Status::BadDpa as u16, Status::Misaligned as u16, 0, 0];
    assert_eq!(statuses, expected);
    assert_eq!(vm.read(to, 4096), [0xab; 4096]);
    let (whole, _) = migrate(&mut vm, &[entry(MigrateOp::Zero, 0, 0x7000), entry(MigrateOp::ToSystem, to, 0x7000)]);
    assert_eq!((whole, vm.read(to, 4096)), (Status::Ok, vec![0; 4096]));
    let counters: DeviceCounters = query(&mut vm, selector::COUNTERS);
    assert_eq!((counters.pages_to_device, counters.pages_to_system), (1, 2));
    assert_eq!((counters.pages_device_to_device, counters.pages_zeroed, counters.migrate_errors), (1, 1, 3));
}

#[test]
fn the_invalidate_queue() {
    let (_daemon, mut vm, space) = ready();
    let header = header(&mut vm, Opcode::Invalidate, space.asid);
    let request = request::Invalidate { header, range: VaRange::ALL };
    assert_eq!(status(&vm.call(INVALIDATE, request.as_bytes(), 24)), Status::Ok);
    let wrong = request::Invalidate { header, range: VaRange { start: 4096, end: 4096 } };
    assert_eq!(status(&vm.call(INVALIDATE, wrong.as_bytes(), 24)), Status::BadRange);
}
