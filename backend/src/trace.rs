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
        if let Some(dropped) = self.pass() {
            tracing::warn!(dropped, "{what}");
        }
    }

    /// Whether a line may be written now: then the number of those that were not written before it.
    pub fn pass(&self) -> Option<u64> {
        const GAP: Duration = Duration::from_secs(1);
        static START: OnceLock<Instant> = OnceLock::new();
        let now = START.get_or_init(Instant::now).elapsed().as_millis() as u64;
        let next = self.next_ms.load(Ordering::Relaxed);
        let after = now + GAP.as_millis() as u64;
        let mine =
            now >= next && self.next_ms.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !mine {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.dropped.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_second() {
        let limited = Limited::default();
        assert_eq!(limited.pass(), Some(0));
        assert_eq!(limited.pass(), None);
        assert_eq!(limited.pass(), None);
        limited.next_ms.store(0, Ordering::Relaxed);
        assert_eq!(limited.pass(), Some(2));
    }
}
