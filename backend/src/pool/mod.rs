//! Device memory: the pool's budget over all logical devices, and each logical device's own sparse file.

mod backing;

pub use backing::Backing;

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The memory budget of all logical devices of a daemon.
///
/// It never cuts a file into pieces for several VMs: lending is raising what may be populated, taking back is punching.
pub struct Pool {
    budget: u64,
    devices: Mutex<Vec<Weak<Backing>>>,
}

impl Pool {
    /// A pool that may populate `budget` bytes.
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self { budget, devices: Mutex::default() })
    }

    /// Bytes that may be populated.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Makes a logical device's file and counts it from now on.
    ///
    /// # Errors
    /// As [`Backing::new`].
    pub fn add(&self, size: u64) -> std::io::Result<Arc<Backing>> {
        let backing = Arc::new(Backing::new(size)?);
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|device| device.strong_count() > 0);
        devices.push(Arc::downgrade(&backing));
        Ok(backing)
    }

    /// Bytes populated over all logical devices.
    pub fn populated(&self) -> u64 {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.iter().filter_map(Weak::upgrade).map(|device| device.populated()).sum()
    }

    /// Whether `bytes` more may be populated. Counts populated bytes anew, and the piece that is asked for as if none of it
    /// were populated: at the very end of the budget it can refuse a piece that would just have fitted, never the reverse
    /// but for copies that run at the same moment (two lanes per device, 2 MiB each).
    pub fn allows(&self, bytes: u64) -> bool {
        self.populated().saturating_add(bytes) <= self.budget
    }
}
