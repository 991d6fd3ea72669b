//! Capability bits of the device (SPEC.md §4.2).

use bitflags::bitflags;

bitflags! {
    /// What a device can do. A bit is offered only if the feature works on this device; a driver ignores bits that
    /// it does not know.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Capabilities: u64 {
        /// Address spaces whose tables the driver writes (mirrored).
        const MIRRORED = 1 << 0;
        /// Address spaces that use the process's own page tables (shared). Reserved: no device offers it yet.
        const SHARED = 1 << 1;
        /// The migrate queues move pages of 4 KiB between guest RAM and device memory.
        const MIGRATE = 1 << 2;
        /// The migrate queues take orders up to 2 MiB.
        const MIGRATE_LARGE = 1 << 3;
        /// The invalidate queue is served.
        const INVALIDATE_QUEUE = 1 << 4;
        /// Device memory can be mapped as guest-physical memory. Reserved: no device offers it yet.
        const WINDOW = 1 << 5;
        /// Kernels that do atomic operations on memory are offered.
        const ATOMICS = 1 << 6;
        /// The owner word of an EU line is registered as a robust futex, so the death of an EU is seen by the driver.
        const ROBUST_OWNER = 1 << 7;
    }
}
