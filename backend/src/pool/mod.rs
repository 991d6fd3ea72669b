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

    /// Whether `len` bytes at `dpa` of a logical device may be populated. Exact but for copies that run at the same moment
    /// (two lanes per device, 2 MiB each), and for a piece that is populated in part, which counts as if it were not.
    pub fn allows(&self, backing: &Backing, dpa: u64, len: u64) -> bool {
        self.populated().saturating_add(len) <= self.budget || backing.is_populated(dpa, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_over_all_devices_and_what_is_populated_may_be_written_again() {
        let pool = Pool::new(0x3000);
        let (one, two) = (pool.add(0x20_0000).unwrap(), pool.add(0x20_0000).unwrap());
        let touch = |backing: &Backing, dpa| {
            assert!(pool.allows(backing, dpa, 0x1000));
            crate::memory::bulk::zero(backing.span(dpa, 0x1000).unwrap());
        };
        touch(&one, 0);
        touch(&two, 0);
        touch(&two, 0x5000);
        assert!(!pool.allows(&one, 0x1000, 0x1000));
        assert!(pool.allows(&two, 0x5000, 0x1000));
        two.discard(0x5000, 0x1000).unwrap();
        assert!(pool.allows(&one, 0x1000, 0x1000));
    }
}
