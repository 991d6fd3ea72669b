//! What a guest can ask of the host: lines on its third serial port (`host <action>`, answered by `done` or `failed: why`).

use crate::error::Error;
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// How long QEMU may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// What actions work on. QEMU connects to both sockets: they are there before it starts, so nobody has to wait for them to appear.
pub struct Side {
    line: UnixListener,
    monitor: UnixListener,
    daemon: u32,
    boots: u32,
    killed: Arc<AtomicBool>,
}

impl Side {
    /// For a guest that is about to be started: sockets for its line and for QEMU's monitor, and the daemon's process.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new(line: &Path, monitor: &Path, daemon: u32) -> Result<Self, Error> {
        let bind = |path: &Path| UnixListener::bind(path).map_err(Error::io("make", path));
        Ok(Self { line: bind(line)?, monitor: bind(monitor)?, daemon, boots: 1, killed: Arc::default() })
    }

    /// Whether the guest had the daemon killed.
    pub fn killed(&self) -> Arc<AtomicBool> {
        self.killed.clone()
    }

    /// Serves a guest until its line is closed. QEMU opens the line before the monitor.
    pub fn serve(mut self) {
        let Ok((line, _)) = self.line.accept() else { return };
        let Ok(mut writer) = line.try_clone() else { return };
        let mut monitor = None;
        for request in BufReader::new(line).lines().map_while(Result::ok) {
            let Some(action) = request.trim().strip_prefix("host ") else { continue };
            let answer = match self.act(action, &mut monitor) {
                Ok(value) if value.is_empty() => "done".to_owned(),
                Ok(value) => format!("done {value}"),
                Err(why) => format!("failed: {why}"),
            };
            if writeln!(writer, "{answer}").is_err() {
                return;
            }
        }
    }

    fn act(&mut self, action: &str, monitor: &mut Option<Monitor>) -> Result<String, String> {
        match action {
            "stop-cont" => {
                self.monitor(monitor)?.run("stop")?;
                self.monitor(monitor)?.run("cont")?;
            }
            "system-reset" => {
                self.boots += 1;
                self.monitor(monitor)?.run("system_reset")?;
            }
            "boot-count" => return Ok(self.boots.to_string()),
            "daemon-term" => signal(self.daemon, rustix::process::Signal::TERM)?,
            "daemon-kill" => {
                self.killed.store(true, Ordering::Relaxed);
                signal(self.daemon, rustix::process::Signal::KILL)?;
            }
            _ => return Err(format!("no such action: {action}")),
        }
        Ok(String::new())
    }

    /// The monitor, opened when it is needed first.
    fn monitor<'a>(&self, monitor: &'a mut Option<Monitor>) -> Result<&'a mut Monitor, String> {
        if monitor.is_none() {
            let (stream, _) = self.monitor.accept().map_err(|error| error.to_string())?;
            *monitor = Some(Monitor::open(stream)?);
        }
        monitor.as_mut().ok_or_else(|| "no monitor".into())
    }
}

fn signal(pid: u32, signal: rustix::process::Signal) -> Result<(), String> {
    let pid = rustix::process::Pid::from_raw(pid as i32).ok_or("no daemon")?;
    rustix::process::kill_process(pid, signal).map_err(|error| error.to_string())
}

/// QEMU's monitor protocol.
struct Monitor {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Monitor {
    fn open(stream: UnixStream) -> Result<Self, String> {
        stream.set_read_timeout(Some(ANSWER)).map_err(|error| error.to_string())?;
        let writer = stream.try_clone().map_err(|error| error.to_string())?;
        let mut monitor = Self { reader: BufReader::new(stream), writer };
        monitor.line()?;
        monitor.run("qmp_capabilities")?;
        Ok(monitor)
    }

    fn run(&mut self, command: &str) -> Result<(), String> {
        writeln!(self.writer, "{}", json!({ "execute": command })).map_err(|error| error.to_string())?;
        loop {
            let answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(error.to_string());
            }
            if answer.get("return").is_some() {
                return Ok(());
            }
        }
    }

    fn line(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Err("the monitor closed".into()),
            Ok(_) => serde_json::from_str(&line).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}
