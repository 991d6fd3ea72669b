//! Every bound of the device, with its arithmetic.

use super::Settings;
use uma_protocol::config::Limits;
use uma_protocol::{fault, request, sync};

/// Address spaces. Each costs under 1 KiB in the daemon and 24 bytes per EU, so 256 are noise; a guest that wants more
/// gets LIMIT.
const MAX_ASIDS: u32 = 256;
/// Jobs of one address space.
const MAX_JOBS_PER_ASID: u32 = 1024;
/// Jobs of the device: four address spaces can be full at once. A job is under 600 bytes: 2.4 MiB.
const MAX_JOBS: u32 = 4096;
/// Fault records. A record is under 200 bytes without its waiters, and the waiters are jobs: 200 KiB.
const MAX_PENDING_FAULTS: u32 = 1024;
/// Streams and fences of one address space. Those in use cost 16 bytes each.
const MAX_STREAMS: u32 = 1024;
const MAX_FENCES: u32 = 1024;

/// Entries of a virtqueue at most; also what QEMU allows.
pub const MAX_QUEUE_SIZE: u16 = 1024;

/// The limits that the device announces. Replies that wait while parked are bounded by the chains in flight: queues ·
/// queue size · 88 bytes for jobs, and 56 KiB per fault buffer's page at most.
pub fn limits(settings: &Settings) -> Limits {
    Limits {
        max_asids: MAX_ASIDS,
        num_eus: settings.eus.clamp(1, sync::MAX_EUS),
        max_jobs: MAX_JOBS,
        max_pending_faults: MAX_PENDING_FAULTS,
        max_migrate_entries: request::MAX_MIGRATE_ENTRIES,
        max_fault_records: fault::MAX_FAULT_RECORDS,
        max_ring_entries: sync::MAX_RING_ENTRIES,
        max_streams: MAX_STREAMS,
        max_fences: MAX_FENCES,
        max_jobs_per_asid: MAX_JOBS_PER_ASID,
        reserved: [0; 2],
    }
}
