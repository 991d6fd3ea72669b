//! What a test starts from, and the balance at its end.

use libuma::{Context, Device, DeviceStats, Error, Job, JobId, JobResult, Stats, Task};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Longest time for one job of a test, and for one condition to come true.
pub const LIMIT: Duration = Duration::from_secs(30);

/// An open device and a context on it.
#[derive(Debug)]
pub struct Fixture {
    /// The device.
    pub device: Device,
    /// A context of this process.
    pub context: Context,
    before: Balance,
}

/// What must be the same after a test as before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Descriptors of the process.
    pub fds: Vec<String>,
    /// Address spaces, as the driver counts.
    pub asids: u64,
    /// Address spaces, as the device counts.
    pub device_asids: u64,
    /// Device pages in use.
    pub pages_used: u64,
    /// Device pages that a lost request keeps.
    pub pages_quarantined: u64,
    /// Faults without an answer.
    pub pending_faults: u64,
    /// Jobs in flight.
    pub jobs: u64,
}

impl Balance {
    /// The balance now.
    pub fn now(device: &Device) -> Self {
        let DeviceStats { memory, asids, pages_used, pages_quarantined, .. } = device.stats().expect("device stats");
        Self {
            fds: open_fds(),
            asids,
            device_asids: memory.asids,
            pages_used,
            pages_quarantined,
            pending_faults: memory.pending_faults,
            jobs: memory.jobs,
        }
    }
}

/// Descriptors of this process with what they refer to.
pub fn open_fds() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("/proc/self/fd").filter_map(Result::ok);
    let described = entries.filter_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok()?; // the directory's own descriptor is gone by now, or goes soon
        let name = target.to_string_lossy().into_owned();
        (!name.starts_with("/proc/")).then(|| format!("{} {name}", entry.file_name().to_string_lossy()))
    });
    let mut fds: Vec<String> = described.collect();
    fds.sort();
    fds
}

/// Waits until `condition` gives something; panics with `what` when it takes too long.
#[track_caller]
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(2)); // only the pace of asking
    }
}

/// Waits until `value()` is `expected`; panics with both when it takes too long.
#[track_caller]
pub fn until_equal<T: PartialEq + Debug>(what: &str, expected: &T, mut value: impl FnMut() -> T) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let now = value();
        if now == *expected {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {now:?} after {LIMIT:?}, expected {expected:?}");
        std::thread::sleep(Duration::from_millis(2)); // only the pace of asking
    }
}

impl Fixture {
    /// Opens the device.
    pub fn open() -> Self {
        let device = Device::open(crate::DEVICE).unwrap_or_else(|error| panic!("{}", chain(&error)));
        let before = Balance::now(&device);
        let context = device.context().unwrap_or_else(|error| panic!("{}", chain(&error)));
        Self { device, context, before }
    }

    /// Asserts that nothing of the test is left: device pages, address spaces, faults, jobs, descriptors.
    pub fn close(self) {
        let Self { device, context, before } = self;
        until_equal("device pages of the context", &0, || context.stats().expect("stats").device_pages);
        let stats = context.stats().expect("stats");
        assert_eq!(stats.jobs, stats.jobs_ended, "every job ended");
        drop(context);
        until_equal("balance after the test", &before, || Balance::now(&device));
    }

    /// Runs `work` and asserts what the counters of the context say about it, all of them except `invalidations`.
    #[track_caller]
    pub fn expect<R>(&self, expected: Stats, work: impl FnOnce() -> R) {
        let delta = self.counted(work);
        assert_counters(&delta, &expected);
    }

    /// Runs `work` and returns how the counters changed; `device_pages` as a difference that may wrap.
    pub fn counted<R>(&self, work: impl FnOnce() -> R) -> Stats {
        let before = self.stats();
        work();
        difference(&self.stats(), &before)
    }

    /// The context's counters.
    pub fn stats(&self) -> Stats {
        self.context.stats().expect("stats")
    }

    /// Runs a task that must end well.
    #[track_caller]
    pub fn run(&self, task: Task<'_>) -> JobResult {
        match self.context.run(task) {
            Ok(result) => result,
            Err(error) => panic!("{}", chain(&error)),
        }
    }

    /// Submits a job on raw addresses.
    #[track_caller]
    pub fn submit(&self, job: &Job) -> JobId {
        // SAFETY: the tests that use raw jobs do so on memory behind raw pointers (mappings), which they read again only
        // after the job's end or through atomics.
        match unsafe { self.context.submit(job) } {
            Ok(submitted) => submitted.id,
            Err(error) => panic!("{}", chain(&error)),
        }
    }

    /// Waits for a job, however it ends.
    #[track_caller]
    pub fn wait(&self, job: JobId) -> JobResult {
        match self.context.wait_timeout(job, LIMIT) {
            Ok(result) => result,
            Err(error) => panic!("job {}: {}", job.0, chain(&error)),
        }
    }

    /// Runs a job on raw addresses, however it ends.
    #[track_caller]
    pub fn run_raw(&self, job: &Job) -> JobResult {
        self.wait(self.submit(job))
    }

    /// Whether 2 MiB pages move as a whole here.
    pub fn large(&self) -> bool {
        self.device.query().expect("query").features.large()
    }

    /// Whether pages can move to the device here.
    pub fn private(&self) -> bool {
        self.device.query().expect("query").features.private()
    }
}

/// An error and its causes on one line.
pub fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// `after - before`, counter by counter.
pub fn difference(after: &Stats, before: &Stats) -> Stats {
    let minus = |get: fn(&Stats) -> u64| get(after).wrapping_sub(get(before));
    Stats {
        faults: minus(|s| s.faults),
        faults_failed: minus(|s| s.faults_failed),
        faults_stale: minus(|s| s.faults_stale),
        to_device_fault: minus(|s| s.to_device_fault),
        to_device_prefetch: minus(|s| s.to_device_prefetch),
        zero_filled: minus(|s| s.zero_filled),
        to_system_cpu: minus(|s| s.to_system_cpu),
        to_system_prefetch: minus(|s| s.to_system_prefetch),
        to_system_evict: minus(|s| s.to_system_evict),
        to_system_release: minus(|s| s.to_system_release),
        huge_to_device: minus(|s| s.huge_to_device),
        huge_to_system: minus(|s| s.huge_to_system),
        mapped_in_place: minus(|s| s.mapped_in_place),
        cpu_faults: minus(|s| s.cpu_faults),
        invalidations: minus(|s| s.invalidations),
        jobs: minus(|s| s.jobs),
        jobs_ended: minus(|s| s.jobs_ended),
        device_pages: minus(|s| s.device_pages),
        reserved: [0; 6],
    }
}

/// Compares all counters except `invalidations`, whose number is the kernel's business, and names those that differ.
#[track_caller]
pub fn assert_counters(got: &Stats, expected: &Stats) {
    let pairs = got.fields().into_iter().zip(expected.fields());
    let wrong = pairs.filter(|((name, got), (_, expected))| *name != "invalidations" && got != expected);
    let lines: Vec<String> = wrong
        .map(|((name, got), (_, expected))| format!("{name}: {} instead of {}", got as i64, expected as i64))
        .collect();
    assert!(lines.is_empty(), "counters: {}", lines.join(", "));
}
