//! Start, arguments, configuration space, connections, end.

use crate::daemon::{program, refusal, until, Daemon};
use crate::driver::*;
use crate::vm::{memfd, Order, Vm, RAM};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use uma_protocol::config::DeviceConfig;
use uma_protocol::request::{query as selector, MemoryInfo};
use uma_protocol::{Capabilities, Status};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::VhostBackend;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use zerocopy::FromBytes;

#[test]
fn refusals_say_what_to_do() {
    for (args, word) in [
        (&[][..], "--socket-path"),
        (&["--socket-path", "/tmp/x", "--fd", "3"], "--fd"),
        (&["--socket-path", "/tmp/x", "--memory", "3"], "2 MiB"),
        (&["--socket-path", "/tmp/x", "--memory", "many"], "many"),
        (&["--socket-path", "/tmp/x", "--eus", "63"], "62"),
        (&["--socket-path", "/tmp/x", "--virtio-id", "1"], "38"),
        (&["--socket-path", "/tmp/x", "--socket-mode", "9"], "octal"),
        (&["--socket-path", "/tmp/x", "--config", "/none"], "/none"),
        (&["--socket-path", "/nowhere/x"], "/nowhere/x"),
        (&["--socket-path", "/dev/null"], "not a socket"),
        (&["--fd", "99"], "listening"),
    ] {
        let text = refusal(args);
        assert!(text.contains(word), "{args:?}: {text}");
    }
}

#[test]
fn a_live_socket_is_not_taken_and_a_dead_one_is() {
    let mut daemon = Daemon::start(&[]);
    let path = daemon.socket.to_str().unwrap().to_owned();
    assert!(refusal(&["--socket-path", &path]).contains("in use"));
    daemon.signal(libc::SIGKILL);
    daemon.wait();
    assert!(daemon.socket.exists());
    let daemon = daemon.restart(&[]);
    Vm::start(&daemon, Order::Qemu);
}

#[test]
fn sigterm_ends_in_order_and_removes_the_socket() {
    let mut daemon = Daemon::start(&[]);
    let _vm = Vm::start(&daemon, Order::Qemu);
    daemon.signal(libc::SIGTERM);
    assert!(daemon.wait().success());
    assert!(!daemon.socket.exists());
}

#[test]
fn socket_permissions() {
    let mode = |daemon: &Daemon| std::fs::metadata(&daemon.socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&Daemon::start(&[])), 0o600);
    assert_eq!(mode(&Daemon::start(&["--socket-mode", "660"])), 0o660);
}

#[test]
fn listens_again_or_ends_with_once() {
    let daemon = Daemon::start(&[]);
    for _ in 0..3 {
        let mut vm = Vm::start(&daemon, Order::Qemu);
        begin(&mut vm, 1);
    }
    let mut daemon = Daemon::start(&["--once"]);
    drop(Vm::start(&daemon, Order::Qemu));
    assert!(daemon.wait().success());
}

#[test]
fn a_listening_descriptor_can_be_handed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&listener);
    let mut command = program();
    command.args(["--fd", "77"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let hook = move || if unsafe_dup2(fd, 77) { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    // SAFETY: the hook makes one system call and touches no memory of ours, so it may run between fork and exec.
    let mut child = unsafe { command.pre_exec(hook) }.spawn().unwrap();
    let frontend = Frontend::connect(&path, 8).unwrap();
    assert_ne!(frontend.get_features().unwrap(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn unsafe_dup2(from: i32, to: i32) -> bool {
    // SAFETY: dup2 touches no memory.
    unsafe { libc::dup2(from, to) >= 0 }
}

#[test]
fn what_is_offered() {
    let daemon = Daemon::start(&[]);
    let mut frontend = Frontend::connect(&daemon.socket, 8).unwrap();
    // VERSION_1, EVENT_IDX, INDIRECT_DESC and vhost-user's own bit, nothing else.
    assert_eq!(frontend.get_features().unwrap(), 1 << 32 | 1 << 29 | 1 << 28 | 1 << 30);
    let offered = frontend.get_protocol_features().unwrap();
    let expected = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::BACKEND_REQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::BACKEND_SEND_FD
        | VhostUserProtocolFeatures::RESET_DEVICE;
    assert_eq!(offered, expected);
    frontend.set_protocol_features(offered & !VhostUserProtocolFeatures::BACKEND_REQ).unwrap();
    assert_eq!(frontend.get_queue_num().unwrap(), 8);
}

#[test]
fn configuration_space_always_answers() {
    let daemon = Daemon::start(&[]);
    let mut vm = Vm::connect(&daemon);
    let config = DeviceConfig::read_from_bytes(&vm.config(0, 256)).unwrap();
    config.validate().unwrap();
    assert_eq!((config.dpa_size, config.num_queues), (64 << 20, 8));
    assert!(config.known_capabilities().contains(Capabilities::MIRRORED | Capabilities::MIGRATE));
    let whole = vm.config(0, 256);
    for (offset, size) in [(0, 1), (3, 4), (100, 8), (248, 8), (255, 1)] {
        assert_eq!(vm.config(offset, size), whole[offset as usize..(offset + size) as usize]);
    }
    // QEMU writes the whole space back: only the driver's words change.
    vm.frontend.set_config(0, VhostUserConfigFlags::WRITABLE, &[0xff; 256]).unwrap();
    let mut expected = whole;
    expected[120..136].fill(0xff);
    assert_eq!(vm.config(0, 256), expected);
}

#[test]
fn both_message_orders() {
    let daemon = Daemon::start(&[]);
    for order in [Order::Qemu, Order::CloudHypervisor] {
        let mut vm = Vm::start(&daemon, order);
        begin(&mut vm, 7);
        let info: MemoryInfo = query(&mut vm, selector::MEMORY);
        assert_eq!((info.dpa_size, info.asids, info.jobs), (64 << 20, 0, 0));
    }
}

#[test]
fn many_connections_leave_no_descriptor() {
    let daemon = Daemon::start(&[]);
    drop(Vm::start(&daemon, Order::Qemu));
    drop(Vm::connect(&daemon));
    let idle = daemon.fds();
    for round in 0..2000 {
        drop(UnixStream::connect(&daemon.socket).unwrap());
        if round % 100 == 0 {
            drop(Vm::start(&daemon, Order::Qemu));
        }
    }
    drop(Vm::connect(&daemon));
    until("a flat count of descriptors", || daemon.fds() <= idle);
}

#[test]
fn a_file_shorter_than_its_region_is_refused() {
    let daemon = Daemon::start(&[]);
    let mut vm = Vm::connect(&daemon);
    let short = memfd(4096);
    vm.region.mmap_handle = std::os::fd::AsRawFd::as_raw_fd(&short);
    assert!(vm.frontend.set_mem_table(&[vm.region]).is_err());
    // The daemon goes on.
    begin(&mut Vm::start(&daemon, Order::Qemu), 1);
}

#[test]
fn a_file_cut_short_under_a_region_loses_that_guest_only() {
    let daemon = Daemon::start(&[]);
    let mut vm = Vm::start(&daemon, Order::Qemu);
    begin(&mut vm, 1);
    // The rings and this test's buffers lie in the half that stays.
    let ram = vm.memory.iter().next().unwrap().file_offset().unwrap().file().try_clone().unwrap();
    ram.set_len(RAM / 2).unwrap();
    let reply = vm.alloc(64, 8);
    vm.post(0, &[(RAM - 4096, 64, false), (reply, 64, true)]);
    // The chain comes back; nothing of the region resolves any more, so there is no reply.
    assert_eq!(vm.used(0).1, 0);
    drop(vm);
    begin(&mut Vm::start(&daemon, Order::Qemu), 2);
}

#[test]
fn two_sockets_are_two_devices() {
    let folder = tempfile::tempdir().unwrap();
    let second = folder.path().join("second.sock");
    let daemon = Daemon::start(&["--socket-path", second.to_str().unwrap()]);
    let mut one = Vm::start(&daemon, Order::Qemu);
    begin(&mut one, 1);
    create(&mut one);
    let mut two = Vm::connect_to(&second);
    two.start_queues(Order::Qemu);
    assert_eq!(negotiate(&mut two, 2), Status::Ok);
    assert_eq!(query::<MemoryInfo>(&mut two, selector::MEMORY).asids, 0);
    assert_eq!(query::<MemoryInfo>(&mut one, selector::MEMORY).asids, 1);
}
