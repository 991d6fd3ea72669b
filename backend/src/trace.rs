//! Logging.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tracing::level_filters::LevelFilter;

/// Sends tracing, and what the rust-vmm crates log, to stderr.
pub fn init(level: LevelFilter) {
    // A second call (tests in one process) keeps the first subscriber.
    let _ = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).try_init();
}

/// Lines that a guest can cause: one per second, with the number of those that were not written.
#[derive(Default)]
pub struct Limited {
    next_ms: AtomicU64,
    dropped: AtomicU64,
}

impl Limited {
    /// Writes a warning, or counts it.
    pub fn warn(&self, what: &'static str) {
        const GAP: Duration = Duration::from_secs(1);
        static START: OnceLock<Instant> = OnceLock::new();
        let now = START.get_or_init(Instant::now).elapsed().as_millis() as u64;
        let next = self.next_ms.load(Ordering::Relaxed);
        let mine = now >= next
            && self
                .next_ms
                .compare_exchange(next, now + GAP.as_millis() as u64, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            tracing::warn!(dropped, "{what}");
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
