//! One run of a guest with the device.

use super::initramfs::{self, Contents};
use super::qemu::Qemu;
use super::side::Side;
use crate::command::{die_with_us, tail};
use crate::error::Error;
use crate::tree::{Kernel, Tree};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Everything that a guest needs, built.
pub struct Kit {
    /// The tree.
    pub tree: Tree,
    /// The kernel that boots.
    pub kernel: Kernel,
    /// QEMU.
    pub qemu: Qemu,
    /// virtio_uma.ko for that kernel.
    pub module: PathBuf,
    /// Programs for the guest.
    pub programs: Vec<PathBuf>,
    /// The daemon.
    pub daemon: PathBuf,
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Device memory.
    pub device_memory: String,
    /// Guest memory.
    pub memory: String,
    /// When to give up.
    pub deadline: Duration,
    /// Let a reset boot again instead of ending QEMU.
    pub reboot: bool,
}

impl Default for Options {
    fn default() -> Self {
        let deadline = Duration::from_secs(600);
        Self { device_memory: "256M".into(), memory: "1G".into(), deadline, reboot: false }
    }
}

/// What came of a command.
pub struct Outcome {
    /// Exit status of the command, if the guest lived to tell it.
    pub status: Option<i32>,
    /// What the kernel printed.
    pub console: String,
    /// The folder with everything; removed when this is dropped, unless kept.
    folder: PathBuf,
    keep: bool,
}

impl Outcome {
    /// Keeps the artefacts and says why.
    pub fn failure(mut self, what: impl Into<String>) -> Error {
        self.keep = true;
        Error::Guest { what: what.into(), artefacts: self.folder.clone() }
    }

    /// Kernel messages that mean a bug.
    pub fn splat(&self) -> Option<&str> {
        const SIGNS: &[&str] = &["BUG:", "WARNING:", "Oops", "Kernel panic", "general protection", "blocked for more"];
        self.console.lines().find(|line| SIGNS.iter().any(|sign| line.contains(sign)))
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// A child that is ended when it goes out of scope.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Kit {
    /// Runs a shell command in a guest; `line` gets each line of its output as it comes.
    ///
    /// # Errors
    /// If the guest can't be started; not if the command fails.
    pub fn run(&self, command: &str, options: &Options, mut line: impl FnMut(&str)) -> Result<Outcome, Error> {
        let folder = self.folder()?;
        let initrd = folder.join("initramfs");
        self.write_initramfs(&initrd, Some(command))?;
        let mut daemon = self.start_daemon(&folder, options)?;
        let mut qemu = self.qemu_command(&folder, &initrd, options);
        qemu.args(["-serial", &format!("file:{}", folder.join("console.log").display())]);
        qemu.args(["-chardev", "stdio,id=results,signal=off", "-serial", "chardev:results"]);
        let (host, monitor) = (folder.join("host.sock"), folder.join("monitor.sock"));
        qemu.args(["-chardev", &format!("socket,id=host,path={},server=on,wait=off", host.display())]);
        qemu.args(["-serial", "chardev:host", "-qmp", &format!("unix:{},server=on,wait=off", monitor.display())]);
        let _ = std::fs::write(folder.join("qemu.command"), format!("{qemu:?}\n"));
        let mut qemu = Ended(start(qemu.stdin(Stdio::null()).stdout(Stdio::piped()), &folder.join("qemu.log"))?);
        let side = Side::new(monitor, daemon.0.id());
        std::thread::spawn(move || side.serve(&host));
        let status = follow(&mut qemu.0, options.deadline, &mut line);
        drop(qemu);
        stop(&mut daemon.0);
        let read = |name: &str| {
            std::fs::read(folder.join(name))
                .map_or_else(|_| String::new(), |b| String::from_utf8_lossy(&b).into_owned())
        };
        Ok(Outcome { status, console: read("console.log"), folder, keep: false })
    }

    /// Boots a guest with a shell on this terminal.
    ///
    /// # Errors
    /// If the guest can't be started.
    pub fn boot(&self, options: &Options) -> Result<(), Error> {
        let folder = self.folder()?;
        let initrd = folder.join("initramfs");
        self.write_initramfs(&initrd, None)?;
        let mut daemon = self.start_daemon(&folder, options)?;
        let mut qemu = self.qemu_command(&folder, &initrd, options);
        qemu.args(["-serial", "mon:stdio"]);
        let ended = die_with_us(&mut qemu).status();
        stop(&mut daemon.0);
        let _ = std::fs::remove_dir_all(&folder);
        ended.map(|_| ()).map_err(|source| Error::Start { program: "QEMU".into(), source })
    }

    fn folder(&self) -> Result<PathBuf, Error> {
        let folder = std::env::temp_dir().join(format!("uma-vm-{}-{}", std::process::id(), unique()));
        std::fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
        Ok(folder)
    }

    fn write_initramfs(&self, path: &Path, command: Option<&str>) -> Result<(), Error> {
        let busybox = self.tree.busybox();
        initramfs::write(path, &Contents { busybox: &busybox, module: &self.module, programs: &self.programs, command })
    }

    /// Starts the daemon and waits until its socket takes connections.
    fn start_daemon(&self, folder: &Path, options: &Options) -> Result<Ended, Error> {
        let socket = folder.join("uma.sock");
        let mut command = Command::new(&self.daemon);
        command.arg("--socket-path").arg(&socket).args(["--memory", &options.device_memory, "--log-level", "info"]);
        let log = folder.join("daemon.log");
        let mut daemon = Ended(start(command.stdin(Stdio::null()).stdout(Stdio::piped()), &log)?);
        // It prints how to attach to it when it listens.
        let printed = daemon.0.stdout.take().and_then(|out| BufReader::new(out).lines().next());
        if printed.is_none() {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(Error::Failed { program: "vhost-device-uma".into(), status: "no socket".into(), output: text });
        }
        Ok(daemon)
    }

    fn qemu_command(&self, folder: &Path, initrd: &Path, options: &Options) -> Command {
        let memory = &options.memory;
        let mut command = self.qemu.command(&self.tree);
        command.args(Qemu::accel());
        command.args([
            "-machine",
            "q35,memory-backend=mem",
            "-m",
            memory,
            "-smp",
            "2",
            "-nodefaults",
            "-display",
            "none",
        ]);
        command.args(["-object", &format!("memory-backend-memfd,id=mem,size={memory},share=on")]);
        command.args(["-chardev", &format!("socket,id=uma,path={}", folder.join("uma.sock").display())]);
        let device = "vhost-user-test-device-pci,chardev=uma,virtio-id=38,num_vqs=8,vq_size=256,config_size=256";
        command.args(["-device", device]).arg("-kernel").arg(self.tree.image(&self.kernel)).arg("-initrd").arg(initrd);
        command.args(["-append", "console=ttyS0 quiet loglevel=6 panic=-1 oops=panic"]);
        if !options.reboot {
            command.arg("-no-reboot");
        }
        command
    }
}

fn start(command: &mut Command, log: &Path) -> Result<Child, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let file = std::fs::File::create(log).map_err(Error::io("write", log))?;
    die_with_us(command.stderr(file)).spawn().map_err(|source| Error::Start { program, source })
}

/// Ends the daemon as an operator would.
fn stop(daemon: &mut Child) {
    if let Some(pid) = rustix::process::Pid::from_raw(daemon.id() as i32) {
        if daemon.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(5) && daemon.try_wait().is_ok_and(|status| status.is_none()) {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
    }
}

/// Reads the guest's results until QEMU ends or the time is over; the exit status that the guest told.
fn follow(qemu: &mut Child, deadline: Duration, line: &mut impl FnMut(&str)) -> Option<i32> {
    let results = qemu.stdout.take()?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for text in BufReader::new(results).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&text).trim_end_matches('\r').to_owned();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    let begin = Instant::now();
    loop {
        match receiver.recv_timeout(deadline.saturating_sub(begin.elapsed())) {
            Ok(text) => match text.strip_prefix("UMA-EXIT ") {
                Some(status) => {
                    // Let it power off by itself, so that the console is whole.
                    while receiver.recv_timeout(Duration::from_secs(20)).is_ok() {}
                    return status.trim().parse().ok();
                }
                None => line(&text),
            },
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                line(&format!("# the guest did not end within {} s", deadline.as_secs()));
                return None;
            }
        }
    }
}

fn unique() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The end of a console, for messages.
pub fn console_tail(console: &str) -> String {
    tail(console, 25)
}
