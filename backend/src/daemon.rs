//! The control loop: signals, listening sockets, connections.

use crate::config::{Config, Listen};
use crate::error::Error;
use crate::socket::Socket;
use event_manager::{EventManager, EventOps, Events, MutEventSubscriber, SubscriberOps};
use rustix::event::{eventfd, EventfdFlags};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use vhost::vhost_user::Listener;
use vhost_device_uma::device::Device;
use vhost_device_uma::pool::Pool;
use vhost_device_uma::vhost_user::Backend;
use vhost_user_backend::{ShutdownHandle, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

/// Serves until a signal, or with `once` until every socket has had its connection.
///
/// # Errors
/// If a socket, a device or the loop can't be made.
pub fn serve(config: &Config) -> Result<(), Error> {
    let signals = block_signals()?;
    vhost_device_uma::memory::sigbus::install();
    let sockets = match &config.listen {
        Listen::Fd(fd) => vec![Socket::from_fd(*fd)?],
        Listen::Paths(paths) => paths
            .iter()
            .map(|path| Socket::bind(path, config.socket_mode, config.socket_group))
            .collect::<Result<_, _>>()?,
    };
    // The budget covers every device whole; a smaller one is a later setting.
    let pool = Pool::new(config.device.memory.saturating_mul(sockets.len() as u64));
    let endpoints =
        sockets.into_iter().map(|socket| Endpoint::new(socket, config, &pool)).collect::<Result<Vec<_>, _>>()?;
    for endpoint in &endpoints {
        print_attach(endpoint, config);
    }
    let done = Arc::new(Mutex::new(Done::default()));
    let mut manager = EventManager::new().map_err(|source| Error::Events { source })?;
    manager.add_subscriber(Loop { signals, endpoints, once: config.once, done: done.clone() });
    loop {
        manager.run().map_err(|source| Error::Events { source })?;
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = done.error.take() {
            return Err(error);
        }
        if done.end {
            return Ok(());
        }
    }
}

#[derive(Default)]
struct Done {
    end: bool,
    error: Option<Error>,
}

/// A socket and its device.
struct Endpoint {
    socket: Socket,
    device: Arc<Device>,
    connection: Option<Connection>,
    /// Readable when the connection has ended.
    ended: Arc<OwnedFd>,
    served: bool,
}

/// A connection that is served.
struct Connection {
    shutdown: Option<ShutdownHandle>,
    thread: JoinHandle<()>,
}

impl Endpoint {
    fn new(socket: Socket, config: &Config, pool: &Arc<Pool>) -> Result<Self, Error> {
        let device = Device::new(&config.device, pool).map_err(|source| Error::Device { source })?;
        let ended = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::Loop { doing: "making an eventfd", source: error.into() })?;
        Ok(Self { socket, device, connection: None, ended: Arc::new(ended), served: false })
    }

    /// Takes the connection that waits.
    fn connect(&mut self) -> std::io::Result<()> {
        let backend = Backend::new(self.device.clone());
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let mut daemon = VhostUserDaemon::new("uma-frontend".into(), backend.clone(), memory)
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        let mut listener = Listener::from(self.socket.listener.try_clone()?);
        daemon.start(&mut listener).map_err(|error| std::io::Error::other(error.to_string()))?;
        let shutdown = daemon.shutdown_handle();
        let ended = self.ended.clone();
        let thread = std::thread::Builder::new().name("uma-connection".into()).spawn(move || {
            match daemon.wait() {
                Ok(()) => tracing::info!("the frontend disconnected"),
                // Also how a VMM that exits in order looks.
                Err(error) => tracing::info!(%error, "the connection ended"),
            }
            drop(daemon);
            backend.disconnected();
            // The counter can't be full: the loop reads it once per connection.
            let _ = rustix::io::write(&*ended, &1u64.to_ne_bytes());
        })?;
        tracing::info!(socket = ?self.socket.path, "a frontend connected");
        self.connection = Some(Connection { shutdown, thread });
        Ok(())
    }

    fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            if let Some(shutdown) = &connection.shutdown {
                shutdown.shutdown();
            }
            let _ = connection.thread.join();
        }
    }
}

/// The one subscriber. Event data: 0 = signals, 2i + 1 = listener i, 2i + 2 = end of connection i.
struct Loop {
    signals: OwnedFd,
    endpoints: Vec<Endpoint>,
    once: bool,
    done: Arc<Mutex<Done>>,
}

impl Loop {
    fn done(&self, error: Option<Error>) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.end = true;
        done.error = error;
    }

    fn listen(&self, index: usize) -> Events {
        Events::with_data(&self.endpoints[index].socket.listener, 2 * index as u32 + 1, EventSet::IN)
    }

    fn connected(&mut self, index: usize, ops: &mut EventOps) {
        match self.endpoints[index].connect() {
            // Level-triggered: whoever waits meanwhile must not wake the loop again and again.
            Ok(()) => drop(ops.remove(self.listen(index))),
            Err(error) => tracing::error!(%error, "a connection could not be served"),
        }
    }

    fn ended(&mut self, index: usize, ops: &mut EventOps) {
        let endpoint = &mut self.endpoints[index];
        let mut count = [0; 8];
        let _ = rustix::io::read(&*endpoint.ended, &mut count);
        endpoint.close();
        endpoint.served = true;
        if self.once && self.endpoints.iter().all(|endpoint| endpoint.served) {
            return self.done(None);
        }
        if !self.once {
            if let Err(source) = ops.add(self.listen(index)) {
                self.done(Some(Error::Events { source }));
            }
        }
    }
}

impl MutEventSubscriber for Loop {
    fn init(&mut self, ops: &mut EventOps) {
        let mut wanted = vec![Events::with_data(&self.signals, 0, EventSet::IN)];
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            wanted.push(self.listen(index));
            wanted.push(Events::with_data(&*endpoint.ended, 2 * index as u32 + 2, EventSet::IN));
        }
        for events in wanted {
            if let Err(source) = ops.add(events) {
                self.done(Some(Error::Events { source }));
            }
        }
    }

    fn process(&mut self, events: Events, ops: &mut EventOps) {
        match events.data() {
            0 => {
                tracing::info!("a signal asks to end");
                self.endpoints.iter_mut().for_each(Endpoint::close);
                self.done(None);
            }
            data if data % 2 == 1 => self.connected((data as usize - 1) / 2, ops),
            data => self.ended((data as usize - 2) / 2, ops),
        }
    }
}

/// Blocks SIGTERM and SIGINT for this thread and those that it makes, and gives a descriptor that tells of them.
fn block_signals() -> Result<OwnedFd, Error> {
    let failed = || Error::Loop { doing: "taking over signals", source: std::io::Error::last_os_error() };
    // SAFETY: the set is initialised by sigemptyset before anything reads it, and all calls get valid pointers to it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(failed());
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(failed());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The command lines that attach a hypervisor.
fn print_attach(endpoint: &Endpoint, config: &Config) {
    let socket = match &endpoint.socket.path {
        Some(path) => path.display().to_string(),
        None => format!("SOCKET-OF-FD-{}", endpoint.socket.listener.as_raw_fd()),
    };
    let queues = endpoint.device.queue_roles().total();
    let id = config.virtio_id;
    let sizes = vec!["256"; queues as usize].join(",");
    // Nobody may be reading; that is no reason to end.
    let _ = writeln!(
        std::io::stdout(),
        "Attach QEMU (11.1 or later) with:
  -machine q35,memory-backend=mem -m 2G -object memory-backend-memfd,id=mem,size=2G,share=on \\
  -chardev socket,id=uma,path={socket} \\
  -device vhost-user-test-device-pci,chardev=uma,virtio-id={id},num_vqs={queues},vq_size=256,config_size=256
or Cloud Hypervisor (52 or later) with:
  --memory size=2G,shared=on --generic-vhost-user socket={socket},virtio_id={id},queue_sizes=[{sizes}]"
    );
}
