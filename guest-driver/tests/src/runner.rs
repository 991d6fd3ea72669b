//! Runs tests, each in a process of its own, and reports them.

use crate::fixture::{until, Balance};
use crate::tap::{Outcome, Tap};
use crate::{Code, Fixture, Test};
use libuma::Device;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest time for one test.
const LIMIT: Duration = Duration::from_secs(90);
/// Time that a killed test has to end.
const GRACE: Duration = Duration::from_secs(10);
/// Exit status of a test that says by [`skip`] that it can't run here.
const SKIPPED: i32 = 77;
const SKIP_MARK: &str = "SKIP: ";

/// Ends the running test as skipped.
pub fn skip(reason: &str) -> ! {
    println!("{SKIP_MARK}{reason}");
    std::process::exit(SKIPPED);
}

/// Runs the code of one test in this process; panics if it fails.
pub fn run_here(test: &Test) {
    std::panic::set_hook(Box::new(|info| println!("{}", on_one_line(info))));
    match test.run {
        Code::Fixture(code) => {
            let fixture = Fixture::open();
            code(&fixture);
            fixture.close();
        }
        Code::Bare(code) => code(),
    }
}

/// A panic as a compiler would say it.
fn on_one_line(info: &std::panic::PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let place = info.location().map_or_else(String::new, |place| format!("{}:{}: ", place.file(), place.line()));
    format!("{place}{}", text.unwrap_or("panic"))
}

/// Keeps khugepaged from joining pages while a test counts them; where there is none, there is nothing to do.
fn stop_khugepaged() {
    let _ = std::fs::write("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "4000000000");
}

/// Runs tests and writes a report; returns how many failed.
///
/// # Errors
/// Those of writing the report and of starting processes.
pub fn run(tests: &[&Test], out: impl io::Write) -> io::Result<usize> {
    stop_khugepaged();
    let mut tap = Tap::begin(out, tests.len())?;
    for test in tests {
        let outcome = run_apart(test)?; // an error bails out: after a hang nothing that follows says anything
        tap.report(test.name, &outcome)?;
    }
    Ok(tap.failed())
}

fn run_apart(test: &Test) -> io::Result<Outcome> {
    let balance = matches!(test.run, Code::Fixture(_)).then(device_balance).flatten();
    let (reader, writer) = crate::process::pipe()?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["--here", test.name]).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    drop(command); // and with it our copies of the writing end
    let output = std::thread::spawn(move || {
        let (mut reader, mut bytes) = (std::fs::File::from(reader), Vec::new());
        let _ = reader.read_to_end(&mut bytes); // what came until an error is shown
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let status = wait_until(&mut child, Instant::now() + LIMIT)?;
    let Some(status) = status else {
        let state = hang_report(child.id());
        child.kill()?;
        if wait_until(&mut child, Instant::now() + GRACE)?.is_none() {
            let after = hang_report(child.id());
            let why = format!("{} hangs, and SIGKILL does not end it\n{state}\nafter SIGKILL:\n{after}", test.name);
            return Err(io::Error::other(why));
        }
        return Ok(Outcome::Failed(format!("No end within {LIMIT:?}\n{state}\n{}", output.join().unwrap_or_default())));
    };
    let output = output.join().unwrap_or_default();
    let outcome = judge(status, &output);
    Ok(match (outcome, balance) {
        (Outcome::Ok, Some(before)) => check_balance(&before),
        (other, _) => other,
    })
}

fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2)); // only the pace of asking
    }
}

/// Where every thread is that is inside the driver or belongs to the test, and what the driver counts.
fn hang_report(pid: u32) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = Vec::new();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    for process in processes.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()) {
        let tasks = std::fs::read_dir(process.path().join("task")).into_iter().flatten().filter_map(Result::ok);
        for task in tasks {
            let path = task.path().display().to_string();
            let stack = read(&format!("{path}/stack"));
            if stack.contains("[virtio_uma]") || path.starts_with(&format!("/proc/{pid}/")) {
                lines.push(format!("{path} {}:", read(&format!("{path}/comm")).trim()));
                lines.extend(stack.lines().map(|line| format!("    {line}")));
            }
        }
    }
    lines.push(read("/sys/kernel/debug/uma0/counters").replace('\n', ", "));
    lines.join("\n")
}

fn judge(status: ExitStatus, output: &str) -> Outcome {
    match (status.code(), status.signal()) {
        (Some(0), _) => Outcome::Ok,
        (Some(SKIPPED), _) => {
            let reason = output.lines().find_map(|line| line.strip_prefix(SKIP_MARK)).unwrap_or("no reason given");
            Outcome::Skipped(reason.to_owned())
        }
        (Some(101), _) => Outcome::Failed(output.to_owned()),
        (code, signal) => Outcome::Failed(format!("exit status {code:?}, signal {signal:?}\n{output}")),
    }
}

fn device_balance() -> Option<Balance> {
    let device = Device::open(crate::DEVICE).ok()?;
    let mut balance = Balance::now(&device);
    balance.fds.clear();
    Some(balance)
}

/// The process is gone: so is everything that it had on the device.
fn check_balance(before: &Balance) -> Outcome {
    let check = std::panic::catch_unwind(|| {
        until("balance after the process", || (device_balance()? == *before).then_some(()));
    });
    match check {
        Ok(()) => Outcome::Ok,
        Err(_) => Outcome::Failed(format!("after the process: {:?}\nbefore: {before:?}", device_balance())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_judged() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!(judge(exited(0), ""), Outcome::Ok);
        assert_eq!(judge(exited(77), "x\nSKIP: no pool\n"), Outcome::Skipped("no pool".into()));
        assert_eq!(judge(exited(101), "why"), Outcome::Failed("why".into()));
        assert!(matches!(judge(ExitStatus::from_raw(11), ""), Outcome::Failed(text) if text.contains("Some(11)")));
    }
}
