//! Configuration space (SPEC.md §4): constant but for the two words that the driver writes.

use super::limits::limits;
use super::Settings;
use std::sync::atomic::{AtomicU8, Ordering};
use uma_protocol::config::{
    DeviceConfig, CONFIG_SIZE, MAGIC, NO_WINDOW, VERSION_MAJOR, VERSION_MINOR, WRITABLE_END, WRITABLE_START,
};
use uma_protocol::queues::QueueRoles;
use uma_protocol::{Capabilities, GIGANTIC_SHIFT, HUGE_SHIFT, PAGE_SHIFT};
use zerocopy::IntoBytes;

/// What this device can do.
pub const CAPABILITIES: Capabilities = Capabilities::MIRRORED
    .union(Capabilities::MIGRATE)
    .union(Capabilities::MIGRATE_LARGE)
    .union(Capabilities::INVALIDATE_QUEUE)
    .union(Capabilities::ATOMICS)
    .union(Capabilities::ROBUST_OWNER);

/// The 256 bytes. Reads and writes take no lock, so they always answer, at once.
pub struct ConfigSpace {
    fixed: [u8; CONFIG_SIZE],
    writable: [AtomicU8; WRITABLE_END - WRITABLE_START],
}

impl ConfigSpace {
    /// The space of a device with these settings.
    pub fn new(settings: &Settings) -> Self {
        let queues = QueueRoles::standard(settings.compute_queues);
        let config = DeviceConfig {
            magic: MAGIC,
            version_major: VERSION_MAJOR,
            version_minor: VERSION_MINOR,
            capabilities: CAPABILITIES.bits(),
            page_sizes: 1 << PAGE_SHIFT | 1 << HUGE_SHIFT | 1 << GIGANTIC_SHIFT,
            va_bits: 57,
            table_levels: 1 << 4 | 1 << 5,
            num_queues: queues.total() as u16,
            reserved0: 0,
            limits: limits(settings),
            dpa_size: settings.memory,
            window_size: 0,
            window_id: NO_WINDOW,
            reserved1: [0; 7],
            reserved2: [0; 2],
            session_id: 0,
            accepted_capabilities: 0,
            queues,
            reserved3: [0; 11],
        };
        let mut fixed = [0; CONFIG_SIZE];
        fixed.copy_from_slice(config.as_bytes());
        Self { fixed, writable: Default::default() }
    }

    /// Reads; bytes beyond the end are zero.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        for (at, byte) in (offset..).zip(out) {
            *byte = match at {
                WRITABLE_START..WRITABLE_END => self.writable[at - WRITABLE_START].load(Ordering::Relaxed),
                _ => self.fixed.get(at).copied().unwrap_or(0),
            };
        }
    }

    /// Writes the driver's words; everything else in `bytes` is ignored.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            if (WRITABLE_START..WRITABLE_END).contains(&at) {
                self.writable[at - WRITABLE_START].store(*byte, Ordering::Relaxed);
            }
        }
    }

    /// Clears the driver's words.
    pub fn clear(&self) {
        self.write(WRITABLE_START, &[0; WRITABLE_END - WRITABLE_START]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn space() -> ConfigSpace {
        ConfigSpace::new(&Settings { memory: 1 << 30, eus: 2, compute_queues: 2 })
    }

    #[test]
    fn a_driver_accepts_it() {
        let mut bytes = [0; CONFIG_SIZE];
        space().read(0, &mut bytes);
        let config = DeviceConfig::read_from_bytes(&bytes).unwrap();
        config.validate().unwrap();
        assert_eq!(config.num_queues, 8);
    }

    #[test]
    fn only_the_drivers_words_can_be_written() {
        let space = space();
        let mut before = [0; CONFIG_SIZE];
        space.read(0, &mut before);
        space.write(0, &[0xff; 2 * CONFIG_SIZE]);
        let mut after = [0; CONFIG_SIZE];
        space.read(0, &mut after);
        before[WRITABLE_START..WRITABLE_END].fill(0xff);
        assert_eq!(after, before);
    }

    #[test]
    fn reads_beyond_the_end_are_zero() {
        let mut bytes = [1; 8];
        space().read(CONFIG_SIZE - 4, &mut bytes);
        assert_eq!(bytes[4..], [0; 4]);
        space().read(usize::MAX - 3, &mut bytes[..2]);
        assert_eq!(bytes[..2], [0; 2]);
    }
}
