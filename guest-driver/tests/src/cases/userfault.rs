//! A range whose pages another thread of the process provides on demand (F11).

use crate::fixture::Fixture;
use crate::memory::Mapping;
use crate::reference::{assert_same, samples, Number};
use crate::runner::skip;
use crate::Test;
use libuma::sys::ioctl;
use libuma::{Status, Task, PAGE_SIZE};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const TESTS: &[Test] = &[Test::shared("userfaultfd", userfaultfd)];

// <linux/userfaultfd.h>
const API: u32 = 0xC018_AA3F;
const REGISTER: u32 = 0xC020_AA00;
const COPY: u32 = 0xC028_AA03;
const MODE_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;

fn registered(memory: &Mapping) -> File {
    // SAFETY: no memory is involved; the descriptor is new and ours.
    let file = unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) as i32;
        if fd < 0 {
            skip("this kernel has no userfaultfd");
        }
        File::from_raw_fd(fd)
    };
    // SAFETY: struct uffdio_api: api, features, ioctls.
    unsafe { ioctl(file.as_fd(), API, &mut [0xAA_u64, 0, 0]) }.expect("UFFDIO_API");
    let mut register = [memory.addr() as u64, memory.len() as u64, MODE_MISSING, 0];
    // SAFETY: struct uffdio_register: start, len, mode, ioctls; faults in the range wait for `serve` from now on.
    unsafe { ioctl(file.as_fd(), REGISTER, &mut register) }.expect("UFFDIO_REGISTER");
    file
}

/// Gives each page that is asked for the samples of its place, until told to stop.
fn serve(mut uffd: File, memory: &Mapping, stop: &AtomicBool) -> usize {
    let mut served = 0;
    while !stop.load(Ordering::Acquire) {
        let mut poll = libc::pollfd { fd: uffd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, of an open descriptor, that lives for the call.
        unsafe { libc::poll(&mut poll, 1, 20) };
        let mut message = [0u8; 32];
        match uffd.read(&mut message) {
            Ok(32) => assert_eq!(message[0], EVENT_PAGEFAULT),
            Ok(n) => panic!("{n} bytes from userfaultfd"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => panic!("userfaultfd: {error}"),
        }
        let address = u64::from_ne_bytes(message[16..24].try_into().expect("8 bytes")) & !(PAGE_SIZE as u64 - 1);
        let first = (address - memory.addr() as u64) as usize / 8;
        let page: Vec<u64> = samples(first, PAGE_SIZE / 8);
        let mut copy = [address, page.as_ptr() as u64, PAGE_SIZE as u64, 0, 0];
        // SAFETY: struct uffdio_copy: dst, src, len, mode, copy; the kernel fills a page of the range from `page`.
        let copied = unsafe { ioctl(uffd.as_fd(), COPY, &mut copy) };
        if let Err(error) = copied {
            assert_eq!(error.raw_os_error(), Some(libc::EEXIST), "UFFDIO_COPY: {error}");
        }
        served += 1;
    }
    served
}

/// The job waits for the thread that provides the pages, or ends with a clean error; it never hangs.
fn userfaultfd(fixture: &Fixture) {
    let mut memory = Mapping::small(16 * PAGE_SIZE);
    let (uffd, stop, served_by) = (registered(&memory), AtomicBool::new(false), &memory);
    let job = libuma::Job::scale(memory.addr().cast::<u64>(), memory.addr().cast(), memory.len() / 8, 3);
    let (status, served) = std::thread::scope(|threads| {
        let server = threads.spawn(|| serve(uffd, served_by, &stop));
        let status = fixture.run_raw(&job).status;
        stop.store(true, Ordering::Release);
        (status, server.join().expect("server"))
    });
    match status {
        Status::Ok => {
            assert_eq!(served, 16, "pages asked for");
            let tripled: Vec<u64> =
                samples::<u64>(0, memory.len() / 8).into_iter().map(|value| value.times(3)).collect();
            assert_same("memory", memory.slice::<u64>(), &tripled);
        }
        other => assert_eq!(other, Status::Fault),
    }
    fixture.run(Task::fill(&mut memory.slice_mut::<u64>()[..1], 1));
}
