//! A pause is not a reset.

use crate::daemon::Daemon;
use crate::driver::*;
use crate::vm::{Order, Vm};
use uma_protocol::request::{query as selector, DeviceCounters, MemoryInfo};
use uma_protocol::Status;
use vhost::vhost_user::VhostUserFrontend;

fn ready() -> (Daemon, Vm, Space) {
    let daemon = Daemon::start(&[]);
    let mut vm = Vm::start(&daemon, Order::Qemu);
    begin(&mut vm, 42);
    let space = create(&mut vm);
    (daemon, vm, space)
}

/// Queues are served beside each other: a query may overtake a submission.
fn until_a_job_waits(vm: &mut Vm) {
    crate::daemon::until("a job in flight", || query::<MemoryInfo>(vm, selector::MEMORY).jobs == 1);
}

#[test]
fn a_pause_keeps_jobs_and_they_complete_afterwards() {
    let (_daemon, mut vm, space) = ready();
    let waiting = endless(&mut vm, &space);
    let at = submit(&mut vm, &waiting);
    until_a_job_waits(&mut vm);
    for round in 1..=5 {
        vm.stop_queues();
        assert!(!vm.has_used(COMPUTE));
        vm.start_queues(Order::Qemu);
        let counters: DeviceCounters = query(&mut vm, selector::COUNTERS);
        assert_eq!((counters.parks, counters.resumes), (round, round));
    }
    // Another job signals what the first one waits for.
    let mut signal = endless(&mut vm, &space);
    (signal.stream, signal.wait_fence, signal.wait_value) = (1, 0, 0);
    (signal.signal_fence, signal.signal_value) = (1, 1);
    submit(&mut vm, &signal);
    vm.used(COMPUTE);
    vm.used(COMPUTE);
    assert_eq!(status(&vm.read(at, 88)), Status::Ok);
}

#[test]
fn after_a_start_every_queue_is_signalled() {
    let (_daemon, mut vm, _space) = ready();
    vm.stop_queues();
    while vm.take_signal(COMPUTE) {}
    vm.start_queues(Order::Qemu);
    crate::daemon::until("a signal", || vm.take_signal(COMPUTE));
}

#[test]
fn a_guest_reset_forgets_everything() {
    let (_daemon, mut vm, space) = ready();
    let waiting = endless(&mut vm, &space);
    submit(&mut vm, &waiting);
    until_a_job_waits(&mut vm);
    vm.stop_queues();
    vm.forget_rings();
    let before = vm.read(0, 0x10_0000);
    vm.start_queues(Order::Qemu);
    let info: MemoryInfo = query(&mut vm, selector::MEMORY);
    assert_eq!((info.asids, info.jobs), (0, 0));
    assert!(!vm.has_used(COMPUTE), "a chain of the old guest was completed");
    // Rings of all queues but the control queue are as the new guest made them.
    let after = vm.read(0, 0x10_0000);
    assert_eq!(before[0x8000..], after[0x8000..]);
    assert_eq!(negotiate(&mut vm, 43), Status::Ok);
}

#[test]
fn a_new_session_id_resets() {
    let (_daemon, mut vm, _space) = ready();
    assert_eq!(negotiate(&mut vm, 42), Status::Ok);
    assert_eq!(query::<MemoryInfo>(&mut vm, selector::MEMORY).asids, 1);
    assert_eq!(negotiate(&mut vm, 99), Status::Ok);
    assert_eq!(query::<MemoryInfo>(&mut vm, selector::MEMORY).asids, 0);
}

#[test]
fn a_reset_device_message_resets() {
    let (_daemon, mut vm, _space) = ready();
    vm.frontend.reset_device().unwrap();
    vm.forget_rings();
    // A reset device has no features; the VMM negotiates them anew.
    let features = vhost::VhostBackend::get_features(&vm.frontend).unwrap();
    vhost::VhostBackend::set_features(&vm.frontend, features).unwrap();
    vm.start_queues(Order::Qemu);
    assert_eq!(query::<MemoryInfo>(&mut vm, selector::MEMORY).asids, 0);
}

#[test]
fn memory_can_be_announced_again_while_jobs_wait() {
    let (_daemon, mut vm, space) = ready();
    let waiting = endless(&mut vm, &space);
    submit(&mut vm, &waiting);
    until_a_job_waits(&mut vm);
    vhost::VhostBackend::set_mem_table(&vm.frontend, &[vm.region]).unwrap();
    assert_eq!(query::<MemoryInfo>(&mut vm, selector::MEMORY).jobs, 1);
    assert_eq!(destroy(&mut vm, &space), Status::Ok);
    vm.used(COMPUTE);
}
