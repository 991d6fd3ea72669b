//! The driver comes and goes, the guest reboots, the VM pauses, the daemon dies.

use super::jobs::Endless;
use crate::fixture::{until, until_equal, Balance, Fixture, LIMIT};
use crate::host::Host;
use crate::kmod;
use crate::memory::{write_samples, Mapping};
use crate::process::{fork, End};
use crate::reference::{assert_same, samples, Number};
use crate::{Code, Test};
use libuma::{Device, Job, Status, Task, HUGE_SIZE, PAGE_SIZE};
use std::path::Path;

const fn test(name: &'static str, group: &'static str, needs: &'static str, run: fn()) -> Test {
    Test::in_group(name, group, needs, Code::Bare(run))
}

pub(super) const TESTS: &[Test] = &[
    test("rmmod_with_pages_resident", "module", "-", rmmod_with_pages_resident),
    test("rmmod_refused_while_open", "module", "-", rmmod_refused_while_open),
    test("rmmod_and_insmod_again_and_again", "module", "-", rmmod_and_insmod_again_and_again),
    test("unbind_with_pages_resident", "module", "-", unbind_with_pages_resident),
    test("unbind_mid_job", "module", "-", unbind_mid_job),
    test("stop_and_continue_mid_job", "pause", "host", stop_and_continue_mid_job),
    test("reset_mid_job", "reboot", "host", reset_mid_job),
    test("daemon_terminated_mid_job", "daemon-term", "host", daemon_terminated_mid_job),
];

/// A device that works, with nothing on it, and a job to prove it.
fn assert_works() {
    let node = Path::new(crate::DEVICE);
    until("device node", || node.exists().then_some(()));
    let fixture = Fixture::open();
    scaled(&fixture);
    fixture.close();
    let device = Device::open(crate::DEVICE).expect("device");
    let balance = Balance::now(&device);
    assert_eq!((balance.asids, balance.pages_used, balance.pages_quarantined, balance.pending_faults), (0, 0, 0, 0));
}

/// Memory that a job has just scaled, and what must be in it.
fn scaled(fixture: &Fixture) -> (Mapping, Vec<u64>) {
    let mut memory = Mapping::huge(2 * HUGE_SIZE);
    write_samples(memory.slice_mut::<u64>());
    fixture.run(Task::scale(memory.slice_mut(), 3u64));
    let expected = samples(0, memory.len() / 8).into_iter().map(|value: u64| value.times(3)).collect();
    (memory, expected)
}

/// The driver goes while pages of a living process are on the device: they come back first.
fn rmmod_with_pages_resident() {
    let fixture = Fixture::open();
    let (memory, expected) = scaled(&fixture);
    drop(fixture);
    kmod::unload().expect("rmmod");
    assert_same("memory", memory.slice::<u64>(), &expected);
    assert!(!Path::new(crate::DEVICE).exists(), "the node is gone with the driver");
    kmod::load().expect("insmod");
    assert_works();
}

fn rmmod_refused_while_open() {
    let device = Device::open(crate::DEVICE).expect("device");
    assert_eq!(kmod::unload().unwrap_err().raw_os_error(), Some(libc::EAGAIN), "EWOULDBLOCK while a file is open");
    device.query().expect("query");
    drop(device);
    assert_works();
}

fn rmmod_and_insmod_again_and_again() {
    for _ in 0..5 {
        kmod::unload().expect("rmmod");
        kmod::load().expect("insmod");
        assert_works();
    }
}

fn rebind(device: &str) {
    kmod::bind(device).expect("bind");
    assert_works();
}

fn the_device() -> String {
    let bound = kmod::bound().expect("sysfs");
    assert_eq!(bound.len(), 1, "devices of the driver: {bound:?}");
    bound[0].clone()
}

/// The device is taken away under an open context: memory comes back, calls say ENODEV, and a later bind works.
fn unbind_with_pages_resident() {
    let (name, fixture) = (the_device(), Fixture::open());
    let (memory, expected) = scaled(&fixture);
    kmod::unbind(&name).expect("unbind");
    assert_same("memory", memory.slice::<u64>(), &expected);
    // SAFETY: refused, and the job would touch no memory.
    let refused = unsafe { fixture.context.submit(&Job::nop()) }.unwrap_err();
    assert_eq!(refused.errno(), Some(libc::ENODEV));
    assert!(fixture.device.query().map_or(true, |info| info.lost), "lost or gone");
    drop(fixture);
    rebind(&name);
}

fn unbind_mid_job() {
    let (name, fixture, endless) = (the_device(), Fixture::open(), Endless::new());
    let (memory, expected) = scaled(&fixture);
    let job = fixture.submit(&endless.job());
    kmod::unbind(&name).expect("unbind");
    match fixture.context.wait_timeout(job, LIMIT) {
        Ok(end) => assert_ne!(end.status, Status::Ok),
        Err(error) => assert_eq!(error.errno(), Some(libc::ENODEV)),
    }
    assert_same("memory", memory.slice::<u64>(), &expected);
    drop(fixture);
    rebind(&name);
}

/// A pause of the VM is not a reset: jobs go on where they were, and every atomic addition is done once.
fn stop_and_continue_mid_job() {
    let (fixture, mut host) = (Fixture::open(), Host::open().expect("host line"));
    let memory = Mapping::small(64 * PAGE_SIZE);
    let slots = memory.atomics();
    let ops = 40_000_000;
    for _ in 0..3 {
        fixture.context.scope(|scope| {
            let before: u64 = slots.iter().map(|slot| slot.load(std::sync::atomic::Ordering::Relaxed)).sum();
            let job = scope.submit(Task::atomic_add(slots, ops, 1, 0)).expect("submit");
            host.ask("stop-cont");
            job.wait().expect("job");
            let after: u64 = slots.iter().map(|slot| slot.load(std::sync::atomic::Ordering::Relaxed)).sum();
            assert_eq!(after - before, ops);
        });
    }
    drop((memory, host));
    fixture.close();
    assert_works();
}

/// First boot: a reset of the machine in the middle of a job. Second boot, same test: the device works, and is empty.
fn reset_mid_job() {
    let mut host = Host::open().expect("host line");
    let boots: u32 = host.ask("boot-count").parse().expect("a number");
    if boots < 3 {
        let (fixture, endless) = (Fixture::open(), Endless::new());
        let _scaled = scaled(&fixture);
        fixture.submit(&endless.job());
        host.ask("system-reset");
        until("the reset", || None::<()>); // the machine goes down under this
    }
    assert_works();
}

/// The daemon ends in the middle of a job. A lost device is a state: the job ends with an error, memory that was not
/// on the device is as it was, and what was only there is a SIGBUS for its owner. Nothing hangs.
fn daemon_terminated_mid_job() {
    let (fixture, endless) = (Fixture::open(), Endless::new());
    let (lost, _) = scaled(&fixture);
    let mut kept = Mapping::small(PAGE_SIZE);
    write_samples(kept.slice_mut::<u64>());
    let job = fixture.submit(&endless.job());
    Host::open().expect("host line").ask("daemon-term");
    match fixture.context.wait_timeout(job, LIMIT) {
        Ok(end) => assert_eq!(end.status, Status::DeviceLost),
        Err(error) => assert_eq!(error.errno(), Some(libc::ENODEV)),
    }
    assert!(fixture.device.query().expect("query").lost);
    assert_same("memory of the CPU", kept.slice::<u64>(), &samples(0, PAGE_SIZE / 8));
    // SAFETY: refused, and the job would touch no memory.
    let refused = unsafe { fixture.context.submit(&Job::nop()) }.unwrap_err();
    assert_eq!(refused.errno(), Some(libc::ENODEV));
    if fixture.private() {
        let child = fork(|| {
            std::hint::black_box(lost.slice::<u64>()[0]);
        });
        assert_eq!(child.wait(), End::Signal(libc::SIGBUS));
    }
    let leftover = || fixture.stats().jobs - fixture.stats().jobs_ended;
    until_equal("jobs that have not ended", &0, leftover);
}
