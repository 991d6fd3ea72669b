//! One run of a guest with the device.

use super::folder::Folder;
use super::initramfs::{self, Contents};
use super::options::Options;
use super::qemu::Qemu;
use super::side::Side;
use crate::command::{die_with_us, readable, tail, wait_within};
use crate::error::Error;
use crate::tree::{Kernel, Tree};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long the daemon may take until it listens.
const APPEAR: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP: Duration = Duration::from_secs(10);

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

/// What came of a command.
pub struct Outcome {
    /// Exit status of the command, if the guest lived to tell it.
    pub status: Option<i32>,
    /// What the kernel printed.
    pub console: String,
    /// What is wrong with how the daemon ended.
    pub daemon: Option<String>,
    folder: Folder,
}

impl Outcome {
    /// Keeps the artefacts and says why.
    pub fn failure(self, what: impl Into<String>) -> Error {
        Error::Guest { what: what.into(), artefacts: self.folder.keep() }
    }

    /// Keeps the artefacts; gives where they are.
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }

    /// What is wrong although the command may have been content: kernel messages that mean a bug, a daemon that did not end well.
    pub fn complaint(&self) -> Option<String> {
        const SIGNS: &[&str] = &["BUG:", "WARNING:", "Oops", "Kernel panic", "general protection", "blocked for more"];
        let splat = self.console.lines().find(|line| SIGNS.iter().any(|sign| line.contains(sign)));
        splat.map(|line| format!("the kernel complained: {line}")).or_else(|| self.daemon.clone())
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
        let folder = Folder::new()?;
        let initrd = folder.join("initramfs");
        self.write_initramfs(&initrd, Some(command))?;
        let mut daemon = self.start_daemon(&folder, options)?;
        let mut qemu = self.qemu_command(&folder, &initrd, options);
        qemu.args(["-serial", &format!("file:{}", folder.join("console.log").display())]);
        qemu.args(["-chardev", "stdio,id=results,signal=off", "-serial", "chardev:results"]);
        let (host, monitor) = (folder.join("host.sock"), folder.join("monitor.sock"));
        qemu.args(["-chardev", &format!("socket,id=host,path={}", host.display()), "-serial", "chardev:host"]);
        qemu.args(["-chardev", &format!("socket,id=monitor,path={}", monitor.display())]);
        qemu.args(["-mon", "chardev=monitor,mode=control"]);
        qemu.args(&options.qemu_arg);
        let _ = std::fs::write(folder.join("qemu.command"), format!("{qemu:?}\n"));
        let side = Side::new(&host, &monitor, daemon.0.id())?;
        let killed = side.killed();
        let mut qemu = Ended(start(qemu.stdin(Stdio::null()).stdout(Stdio::piped()), &folder.join("qemu.log"))?);
        std::thread::spawn(move || side.serve());
        let status = follow(&mut qemu.0, options.deadline, &mut line);
        drop(qemu);
        let ended = stop(&mut daemon.0);
        let daemon = daemon_complaint(ended, killed.load(Ordering::Relaxed), &folder.read("daemon.log"));
        if status.is_none() {
            tail(&folder.read("qemu.log"), 10).lines().for_each(|said| line(&format!("# QEMU: {said}")));
        }
        Ok(Outcome { status, console: folder.read("console.log"), daemon, folder })
    }

    /// Boots a guest with a shell on this terminal.
    ///
    /// # Errors
    /// If the guest can't be started.
    pub fn boot(&self, options: &Options) -> Result<(), Error> {
        let folder = Folder::new()?;
        let initrd = folder.join("initramfs");
        self.write_initramfs(&initrd, None)?;
        let mut daemon = self.start_daemon(&folder, options)?;
        let mut qemu = self.qemu_command(&folder, &initrd, options);
        qemu.args(["-serial", "mon:stdio"]).args(&options.qemu_arg);
        let ended = die_with_us(&mut qemu).status();
        let daemon = daemon_complaint(stop(&mut daemon.0), false, &folder.read("daemon.log"));
        if options.keep || daemon.is_some() {
            println!("\n{}logs are in {:?}", daemon.map(|why| why + "; ").unwrap_or_default(), folder.keep());
        }
        ended.map(|_| ()).map_err(|source| Error::Start { program: "QEMU".into(), source })
    }

    fn write_initramfs(&self, path: &Path, command: Option<&str>) -> Result<(), Error> {
        let busybox = self.tree.busybox();
        initramfs::write(path, &Contents { busybox: &busybox, module: &self.module, programs: &self.programs, command })
    }

    /// Starts the daemon and waits until its socket takes connections.
    fn start_daemon(&self, folder: &Folder, options: &Options) -> Result<Ended, Error> {
        let socket = folder.join("uma.sock");
        let mut command = Command::new(&self.daemon);
        command.arg("--socket-path").arg(&socket).args(["--memory", &options.device_memory]);
        command.args(["--log-level", &options.log_level]);
        command.args(options.eus.map(|count| format!("--eus={count}")));
        let _ = std::fs::write(folder.join("daemon.command"), format!("{command:?}\n"));
        let log = folder.join("daemon.log");
        let mut daemon = Ended(start(command.stdin(Stdio::null()).stdout(Stdio::piped()), &log)?);
        // It prints how to attach to it when it listens.
        let out = daemon.0.stdout.take().filter(|out| readable(out.as_fd(), APPEAR));
        let printed = out.and_then(|out| BufReader::new(out).lines().next());
        if printed.is_none() {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(Error::Failed { program: "vhost-device-uma".into(), status: "no socket".into(), output: text });
        }
        Ok(daemon)
    }

    fn qemu_command(&self, folder: &Folder, initrd: &Path, options: &Options) -> Command {
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
        command.args(["-append", &format!("console=ttyS0 quiet loglevel=6 panic=-1 oops=panic {}", options.append)]);
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

/// Ends the daemon as an operator would; how it ended, or nothing if it did not.
fn stop(daemon: &mut Child) -> Option<ExitStatus> {
    if let (Ok(None), Some(pid)) = (daemon.try_wait(), rustix::process::Pid::from_raw(daemon.id() as i32)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    wait_within(daemon, STOP)
}

/// What is wrong with how the daemon ended; a guest may have had it killed.
fn daemon_complaint(ended: Option<ExitStatus>, killed: bool, log: &str) -> Option<String> {
    if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
        return Some(format!("the daemon failed: {line}"));
    }
    match ended {
        None => Some("the daemon does not end on SIGTERM".into()),
        Some(status) if !status.success() && !killed => Some(format!("the daemon ended with {status}")),
        Some(_) => None,
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

/// The end of a console, for messages.
pub fn console_tail(console: &str) -> String {
    tail(console, 25)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn daemons_must_end_well() {
        let (good, killed) = (ExitStatus::from_raw(0), ExitStatus::from_raw(9));
        assert_eq!(daemon_complaint(Some(good), false, "all is well"), None);
        assert_eq!(daemon_complaint(Some(killed), true, ""), None);
        assert!(daemon_complaint(Some(killed), false, "").unwrap().contains("signal: 9"));
        assert!(daemon_complaint(None, false, "").is_some());
        assert!(daemon_complaint(Some(good), false, "thread 'eu0' panicked at x.rs:1:2:").is_some());
    }
}
