//! What a guest can ask of the host: lines on its third serial port (`host <action>`, answered by `done` or `failed: why`).

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a socket of QEMU may take to appear.
const APPEAR: Duration = Duration::from_secs(20);

/// What actions work on.
pub struct Side {
    /// QEMU's monitor.
    pub monitor: PathBuf,
    /// The daemon.
    pub daemon: u32,
    boots: u32,
}

impl Side {
    /// For a guest that has just been started.
    pub fn new(monitor: PathBuf, daemon: u32) -> Self {
        Self { monitor, daemon, boots: 1 }
    }

    /// Serves a guest until its line is closed.
    pub fn serve(mut self, line: &Path) {
        let Some(stream) = connect(line) else { return };
        let Ok(mut writer) = stream.try_clone() else { return };
        for request in BufReader::new(stream).lines().map_while(Result::ok) {
            let Some(action) = request.trim().strip_prefix("host ") else { continue };
            let answer = match self.act(action) {
                Ok(value) if value.is_empty() => "done".to_owned(),
                Ok(value) => format!("done {value}"),
                Err(why) => format!("failed: {why}"),
            };
            if writeln!(writer, "{answer}").is_err() {
                return;
            }
        }
    }

    fn act(&mut self, action: &str) -> Result<String, String> {
        match action {
            "stop-cont" => {
                let mut monitor = Monitor::open(&self.monitor)?;
                monitor.run("stop")?;
                monitor.run("cont")?;
            }
            "system-reset" => {
                self.boots += 1;
                Monitor::open(&self.monitor)?.run("system_reset")?;
            }
            "boot-count" => return Ok(self.boots.to_string()),
            "daemon-term" => signal(self.daemon, rustix::process::Signal::TERM)?,
            "daemon-kill" => signal(self.daemon, rustix::process::Signal::KILL)?,
            _ => return Err(format!("no such action: {action}")),
        }
        Ok(String::new())
    }
}

fn signal(pid: u32, signal: rustix::process::Signal) -> Result<(), String> {
    let pid = rustix::process::Pid::from_raw(pid as i32).ok_or("no daemon")?;
    rustix::process::kill_process(pid, signal).map_err(|error| error.to_string())
}

/// Connects to a socket that QEMU is about to make.
fn connect(path: &Path) -> Option<UnixStream> {
    let begin = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Some(stream),
            Err(_) if begin.elapsed() < APPEAR => std::thread::park_timeout(Duration::from_millis(10)),
            Err(_) => return None,
        }
    }
}

/// QEMU's monitor protocol.
struct Monitor {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Monitor {
    fn open(path: &Path) -> Result<Self, String> {
        let stream = connect(path).ok_or("no monitor")?;
        stream.set_read_timeout(Some(APPEAR)).map_err(|error| error.to_string())?;
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
