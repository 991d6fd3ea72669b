//! What the frontend's messages do to the device.
//!
//! One worker serves all queues: no handler blocks (jobs run on EUs, copies on lanes), so no queue stalls another, and each
//! gets a share of chains per round. Everything is `&self`: a lock around the whole backend would let a slow request
//! stall `get_config`, and with it the whole VM.

use super::activation::{Position, Stopped, Vring};
use super::transport::Rings;
use crate::device::{limits::MAX_QUEUE_SIZE, Device, Start, Transport};
use crate::memory::GuestRegion;
use crate::queues::chain::{take, Piece, MAX_DESCRIPTORS};
use crate::queues::{hand_over, Handed};
use crate::trace::Limited;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uma_protocol::queues::QueueRoles;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackend, VringT};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{new_event_consumer_and_notifier, EventConsumer, EventFlag, EventNotifier};

/// Guest memory as vhost-user-backend holds it.
pub type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// Chains of one queue per round.
const SHARE: usize = 32;
/// Rounds before the worker looks after its exit event; it kicks itself to go on.
const ROUNDS: usize = 64;

/// The backend of one connection, around a device that outlives it.
pub struct Backend {
    device: Arc<Device>,
    roles: QueueRoles,
    link: Mutex<Link>,
    /// Held while chains are taken: who stops queues waits for it.
    serving: Mutex<()>,
    stopping: AtomicBool,
    /// Queues whose avail ring made no sense; bit per queue.
    broken: AtomicU64,
    malformed: Limited,
    starts: Limited,
    /// Exit events that the crate leaks, to be closed when its daemon is gone.
    exit_fds: Mutex<Vec<RawFd>>,
}

/// How the queues stand.
#[derive(Default)]
struct Link {
    stopped: Stopped,
    vrings: Vec<Vring>,
    /// There while the device runs.
    rings: Option<Arc<Rings>>,
    memory: Option<Memory>,
}

impl Backend {
    /// A backend for a new connection.
    pub fn new(device: Arc<Device>) -> Arc<Self> {
        Arc::new(Self {
            roles: device.queue_roles(),
            device,
            link: Mutex::default(),
            serving: Mutex::default(),
            stopping: AtomicBool::new(false),
            broken: AtomicU64::new(0),
            malformed: Limited::default(),
            starts: Limited::default(),
            exit_fds: Mutex::default(),
        })
    }

    /// The connection is gone, and so is its daemon: the device forgets the guest.
    pub fn disconnected(&self) {
        self.device.abandon();
        self.device.set_memory(Vec::new());
        *self.link() = Link::default();
        for fd in self.exit_fds.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: the crate took the number out of its owner and only put it into an epoll set, which is closed by now.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the device once the control queue runs. Addresses and bases of all queues precede the first enable in the
    /// orders of QEMU and Cloud Hypervisor. Returns the way back while the device runs.
    fn activate(&self, vrings: &[Vring]) -> Option<(Arc<Rings>, Memory)> {
        let mut link = self.link();
        let memory = link.memory.clone()?;
        if let Some(rings) = &link.rings {
            return Some((rings.clone(), memory));
        }
        if !vrings.get(usize::from(self.roles.control.first)).is_some_and(is_running) {
            return None;
        }
        let position = |vring: &Vring| is_ready(vring).then(|| Position::of(vring));
        let now: Vec<_> = vrings.iter().map(position).collect();
        let how = if self.device.has_session() { link.stopped.compare(&now) } else { Start::Fresh };
        if let Some(dropped) = self.starts.pass() {
            tracing::info!(?how, dropped, "queues start");
        }
        let rings = Arc::new(Rings::new(vrings, &self.device));
        link.stopped.clear();
        link.vrings = vrings.to_vec();
        link.rings = Some(rings.clone());
        self.broken.store(0, Ordering::Relaxed);
        self.device.start(rings.clone(), how);
        for vring in vrings {
            // A completion may have been put into the used ring just before the stop and not been signalled.
            let _ = vring.signal_used_queue();
        }
        Some((rings, memory))
    }

    fn serve(&self, vrings: &[Vring], rings: &Rings, memory: &Memory) {
        for _ in 0..ROUNDS {
            let mut more = false;
            for (queue, vring) in vrings.iter().enumerate() {
                more |= self.serve_queue(queue as u16, vring, rings, memory);
            }
            if !more || self.stopping.load(Ordering::Relaxed) {
                return;
            }
        }
        kick_again(vrings);
    }

    /// Takes a share of chains; whether there may be more.
    fn serve_queue(&self, queue: u16, vring: &Vring, rings: &Rings, memory: &Memory) -> bool {
        let Some(role) = self.roles.role(queue) else { return false };
        let _ = vring.disable_notification();
        for _ in 0..SHARE {
            let Some((head, pieces)) = self.pop(queue, vring, memory) else {
                // True if chains came between the last look and the re-arming.
                return self.is_served(queue, vring) && vring.enable_notification().unwrap_or(false);
            };
            let table = self.device.memory();
            let (ticket, taken) = take(queue, head, &pieces, &table);
            if let Handed::Refused(reply) = hand_over(&self.device, role, &table, &ticket, &taken) {
                self.malformed.warn("a malformed descriptor chain was refused");
                rings.complete(&ticket, &reply);
            }
        }
        true
    }

    fn is_served(&self, queue: u16, vring: &Vring) -> bool {
        let broken = self.broken.load(Ordering::Relaxed) & 1 << queue != 0;
        !broken && !self.stopping.load(Ordering::Relaxed) && is_running(vring)
    }

    /// The next chain: its head and descriptors.
    fn pop(&self, queue: u16, vring: &Vring, memory: &Memory) -> Option<(u16, Vec<Piece>)> {
        if !self.is_served(queue, vring) {
            return None;
        }
        let mut state = vring.get_mut();
        let next = state.get_queue_mut().iter(memory.memory()).map(|mut chains| chains.next());
        match next {
            Ok(chain) => {
                let chain = chain?;
                let head = chain.head_index();
                let piece = |desc: virtio_queue::desc::split::Descriptor| Piece {
                    gpa: desc.addr().0,
                    len: desc.len(),
                    writable: desc.is_write_only(),
                };
                Some((head, chain.take(MAX_DESCRIPTORS + 1).map(piece).collect()))
            }
            Err(error) => {
                self.broken.fetch_or(1 << queue, Ordering::Relaxed);
                if let Some(dropped) = self.malformed.pass() {
                    tracing::warn!(queue, %error, dropped, "an avail ring makes no sense: its queue is ignored until it starts again");
                }
                None
            }
        }
    }
}

fn is_ready(vring: &Vring) -> bool {
    vring.get_ref().get_queue().ready()
}

fn is_running(vring: &Vring) -> bool {
    let state = vring.get_ref();
    state.get_queue().ready() && state.is_enabled()
}

/// Writes to the first running queue's kick, so that the worker is called again.
fn kick_again(vrings: &[Vring]) {
    for vring in vrings.iter().filter(|vring| is_running(vring)) {
        if let Some(kick) = vring.get_ref().get_kick() {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the descriptor is the vring's kick, which the guard keeps open; eight bytes are what an eventfd takes. If
            // the guest has filled the counter the write fails, and the worker is called anyway.
            unsafe { libc::write(kick.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            return;
        }
    }
}

/// Turns the crate's memory into regions; each keeps the whole mapping.
///
/// # Errors
/// If a region's file is shorter than the region: touching the rest would be SIGBUS.
fn regions(memory: &Arc<GuestMemoryMmap>) -> io::Result<Vec<GuestRegion>> {
    memory
        .iter()
        .map(|region| {
            let (gpa, len) = (region.start_addr().0, region.len());
            if let Some(file) = region.file_offset() {
                let size = file.file().metadata()?.len();
                if file.start().checked_add(len).is_none_or(|end| end > size) {
                    let start = file.start();
                    return Err(io::Error::other(format!(
                        "Memory region at {gpa:#x} needs {len:#x} bytes from {start:#x} of a file of {size:#x}"
                    )));
                }
            }
            let host = NonNull::new(region.as_ptr()).ok_or_else(|| io::Error::other("Memory region is not mapped"))?;
            // SAFETY: the region is mapped shared for its length (and its file is that long); the Arc keeps the mapping.
            Ok(unsafe { GuestRegion::new(gpa, len, host, memory.clone()) })
        })
        .collect()
}

impl VhostUserBackend for Backend {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        self.roles.total() as usize
    }

    fn max_queue_size(&self) -> usize {
        usize::from(MAX_QUEUE_SIZE)
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        // What stock VMMs were seen to work with, and no more: SHMEM comes with the window, LOG_SHMFD with live migration.
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::BACKEND_SEND_FD
            | VhostUserProtocolFeatures::RESET_DEVICE
    }

    fn reset_device(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopping.store(false, Ordering::Relaxed);
        let mut link = self.link();
        self.device.park();
        self.device.reset();
        link.stopped.clear();
        link.rings = None;
        drop(serving);
    }

    fn set_event_idx(&self, _enabled: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut bytes = vec![0; size as usize];
        self.device.read_config(offset as usize, &mut bytes);
        bytes
    }

    fn set_config(&self, offset: u32, bytes: &[u8]) -> io::Result<()> {
        self.device.write_config(offset as usize, bytes);
        Ok(())
    }

    fn update_memory(&self, memory: Memory) -> io::Result<()> {
        let regions = regions(&memory.memory().into_inner()).inspect_err(|error| {
            tracing::error!(%error, "the frontend's memory table is refused");
        })?;
        tracing::debug!(regions = regions.len(), "guest memory changes");
        self.link().memory = Some(memory);
        self.device.set_memory(regions);
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        vec![(1 << self.roles.total()) - 1]
    }

    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        let (consumer, notifier) = new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()?;
        self.exit_fds.lock().unwrap_or_else(PoisonError::into_inner).push(consumer.as_raw_fd());
        Some((consumer, notifier))
    }

    fn stop_vring(&self, queue: u32) -> io::Result<()> {
        self.stopping.store(true, Ordering::Relaxed);
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopping.store(false, Ordering::Relaxed);
        let mut link = self.link();
        if link.rings.take().is_some() {
            self.device.park();
        }
        let position = link.vrings.get(queue as usize).map(Position::of);
        if let Some(position) = position {
            link.stopped.record(queue as usize, position);
        }
        drop(serving);
        Ok(())
    }

    fn handle_event(&self, _event: u16, _set: EventSet, vrings: &[Vring], _thread: usize) -> io::Result<()> {
        // An error or a panic here would end the worker silently and for good.
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((rings, memory)) = self.activate(vrings) {
                self.serve(vrings, &rings, &memory);
            }
        }));
        if served.is_err() {
            tracing::error!("a request made the daemon panic; please report it");
        }
        Ok(())
    }
}
