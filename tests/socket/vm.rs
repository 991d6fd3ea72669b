//! A frontend with guest memory and virtqueues, as a VMM and a guest together would make them.

use crate::daemon::{until, Daemon};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::path::Path;
use std::sync::atomic::{fence, AtomicU16, Ordering};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Guest RAM.
pub const RAM: u64 = 32 << 20;
/// Entries of every queue.
pub const SIZE: u16 = 64;
/// Queues: control, invalidate, urgent, bulk, fault, response, two for compute.
pub const QUEUES: usize = 8;
/// Where buffers begin; the rings are below.
const HEAP: u64 = 0x10_0000;

/// In which order a VMM sets a queue up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// num, base, addr, kick, call; all enables at the end.
    Qemu,
    /// num, addr, base, call, kick; all enables at the end.
    CloudHypervisor,
}

pub struct Vm {
    pub frontend: Frontend,
    pub memory: GuestMemoryMmap,
    pub region: VhostUserMemoryRegionInfo,
    queues: Vec<Queue>,
    heap: u64,
    next_id: u64,
}

struct Queue {
    base: u64,
    avail: u16,
    used: u16,
    kick: EventFd,
    call: EventFd,
}

/// A memfd of `size` bytes.
pub fn memfd(size: u64) -> File {
    // SAFETY: a plain system call with a static name; the descriptor is new and ours.
    let file = unsafe {
        let fd = libc::memfd_create(c"ram".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.set_len(size).unwrap();
    file
}

impl Vm {
    /// Connects, negotiates and starts the queues.
    pub fn start(daemon: &Daemon, order: Order) -> Self {
        let mut vm = Self::connect(daemon);
        vm.start_queues(order);
        vm
    }

    /// Connects and negotiates; the queues do not run yet.
    pub fn connect(daemon: &Daemon) -> Self {
        Self::connect_to(&daemon.socket)
    }

    pub fn connect_to(socket: &Path) -> Self {
        let mut frontend = Frontend::connect(socket, QUEUES as u64).unwrap();
        frontend.set_owner().unwrap();
        let features = frontend.get_features().unwrap();
        let offered = frontend.get_protocol_features().unwrap();
        frontend.set_protocol_features(offered & !VhostUserProtocolFeatures::BACKEND_REQ).unwrap();
        frontend.set_features(features).unwrap();
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let range = (GuestAddress(0), RAM as usize, Some(FileOffset::new(memfd(RAM), 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).unwrap();
        let region = VhostUserMemoryRegionInfo::from_guest_region(memory.iter().next().unwrap()).unwrap();
        let eventfd = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
        let queue = |index: usize| Queue {
            base: 0x4000 * (index as u64 + 1),
            avail: 0,
            used: 0,
            kick: eventfd(),
            call: eventfd(),
        };
        Self { frontend, memory, region, queues: (0..QUEUES).map(queue).collect(), heap: HEAP, next_id: 1 }
    }

    pub fn start_queues(&mut self, order: Order) {
        self.frontend.set_mem_table(&[self.region]).unwrap();
        for index in 0..QUEUES {
            let base = self.queues[index].avail;
            self.frontend.set_vring_num(index, SIZE).unwrap();
            if order == Order::Qemu {
                self.frontend.set_vring_base(index, base).unwrap();
                self.set_addr(index);
            } else {
                self.set_addr(index);
                self.frontend.set_vring_base(index, base).unwrap();
            }
            let queue = &self.queues[index];
            if order == Order::Qemu {
                self.frontend.set_vring_kick(index, &queue.kick).unwrap();
                self.frontend.set_vring_call(index, &queue.call).unwrap();
            } else {
                self.frontend.set_vring_call(index, &queue.call).unwrap();
                self.frontend.set_vring_kick(index, &queue.kick).unwrap();
            }
        }
        for index in 0..QUEUES {
            self.frontend.set_vring_enable(index, true).unwrap();
        }
    }

    fn set_addr(&self, index: usize) {
        let at = self.region.userspace_addr + self.queues[index].base;
        let data = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: at,
            avail_ring_addr: at + 0x1000,
            used_ring_addr: at + 0x2000,
            log_addr: None,
        };
        self.frontend.set_vring_addr(index, &data).unwrap();
    }

    /// Stops all queues as a pause does; the bases that came back.
    pub fn stop_queues(&mut self) -> Vec<u32> {
        (0..QUEUES)
            .map(|index| {
                self.frontend.set_vring_enable(index, false).unwrap();
                self.frontend.get_vring_base(index).unwrap()
            })
            .collect()
    }

    /// What a guest reset does to the rings.
    pub fn forget_rings(&mut self) {
        for queue in &mut self.queues {
            (queue.avail, queue.used) = (0, 0);
            self.memory.write_slice(&[0; 0x3000], GuestAddress(queue.base)).unwrap();
        }
    }

    pub fn config(&mut self, offset: u32, size: u32) -> Vec<u8> {
        let buffer = vec![0; size as usize];
        self.frontend.get_config(offset, size, VhostUserConfigFlags::WRITABLE, &buffer).unwrap().1
    }

    /// Guest memory that nobody has, zeroed.
    pub fn alloc(&mut self, bytes: u64, align: u64) -> u64 {
        let at = self.heap.next_multiple_of(align);
        self.heap = at + bytes;
        assert!(self.heap <= RAM, "out of guest memory");
        at
    }

    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    pub fn read(&self, at: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    pub fn read_u64(&self, at: u64) -> u64 {
        self.memory.load(GuestAddress(at), Ordering::Acquire).unwrap()
    }

    pub fn write_u64(&self, at: u64, value: u64) {
        self.memory.store(value, GuestAddress(at), Ordering::Release).unwrap();
    }

    /// Puts a chain of (address, bytes, writable) into a queue and kicks.
    pub fn post(&mut self, queue: usize, chain: &[(u64, u32, bool)]) -> u16 {
        let Queue { base, avail, .. } = self.queues[queue];
        // A slot of eight descriptors per entry of the ring in flight; tests never have more in flight than fit.
        let head = (avail % (SIZE / 8)) * 8;
        for (at, (gpa, len, writable)) in chain.iter().enumerate() {
            let index = head + at as u16;
            let more = at + 1 < chain.len();
            let flags = u16::from(more) | u16::from(*writable) << 1;
            let mut desc = gpa.to_le_bytes().to_vec();
            desc.extend(len.to_le_bytes());
            desc.extend(flags.to_le_bytes());
            desc.extend((index + 1).to_le_bytes());
            self.write(base + u64::from(index) * 16, &desc);
        }
        self.write(base + 0x1000 + 4 + 2 * u64::from(avail % SIZE), &head.to_le_bytes());
        self.queues[queue].avail = avail.wrapping_add(1);
        self.set_avail(queue, avail.wrapping_add(1));
        head
    }

    /// Stores an avail index as it is, and kicks.
    pub fn set_avail(&mut self, queue: usize, index: u16) {
        self.ring_word(queue, 0x1000 + 2).store(index, Ordering::Release);
        fence(Ordering::SeqCst);
        self.queues[queue].kick.write(1).unwrap();
    }

    /// The next used element, once it is there: head and bytes written.
    pub fn used(&mut self, queue: usize) -> (u16, u32) {
        until("a used element", || self.has_used(queue));
        let Queue { base, used, .. } = self.queues[queue];
        let at = base + 0x2000 + 4 + 8 * u64::from(used % SIZE);
        self.queues[queue].used = used.wrapping_add(1);
        let element = self.read(at, 8);
        let word = |at: usize| u32::from_le_bytes([element[at], element[at + 1], element[at + 2], element[at + 3]]);
        (word(0) as u16, word(4))
    }

    pub fn has_used(&self, queue: usize) -> bool {
        self.ring_word(queue, 0x2000 + 2).load(Ordering::Acquire) != self.queues[queue].used
    }

    /// Whether the device has signalled a queue since the last look.
    pub fn take_signal(&self, queue: usize) -> bool {
        self.queues[queue].call.read().is_ok()
    }

    fn ring_word(&self, queue: usize, offset: u64) -> &AtomicU16 {
        let region = self.memory.iter().next().unwrap();
        let at = self.queues[queue].base + offset;
        // SAFETY: inside the mapped region and even; only this atomic is used for the word on our side.
        unsafe { &*region.as_ptr().add(at as usize).cast::<AtomicU16>() }
    }

    /// Sends a request and waits for its reply.
    pub fn call(&mut self, queue: usize, request: &[u8], reply: usize) -> Vec<u8> {
        let at = self.alloc(request.len() as u64, 8);
        let to = self.alloc(reply as u64, 8);
        self.write(at, request);
        self.post(queue, &[(at, request.len() as u32, false), (to, reply as u32, true)]);
        let (_, written) = self.used(queue);
        self.read(to, written as usize)
    }
}
