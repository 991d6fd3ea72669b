//! Sizes and offsets as literals: a change of the wire has to be written down here (SPEC.md, appendix A).

use std::mem::offset_of;
use uma_protocol::config::{DeviceConfig, Limits, CONFIG_SIZE, WRITABLE_END, WRITABLE_START};
use uma_protocol::fault::{FaultBatch, FaultRecord, FaultResponse};
use uma_protocol::kernel::{JobReply, JobRequest, KernelArgs};
use uma_protocol::queues::{QueueRoles, QueueRun};
use uma_protocol::reply::ReplyHeader;
use uma_protocol::request::*;
use uma_protocol::sync::{AsidSyncHeader, EuLine, RingSlot, MAX_EUS, MAX_RING_ENTRIES};
use uma_protocol::VaRange;

#[test]
fn sizes() {
    let sizes = [
        (size_of::<DeviceConfig>(), 256),
        (size_of::<Limits>(), 48),
        (size_of::<QueueRoles>(), 32),
        (size_of::<AsidHandle>(), 8),
        (size_of::<VaRange>(), 16),
        (size_of::<RequestHeader>(), 24),
        (size_of::<ReplyHeader>(), 24),
        (size_of::<Negotiate>(), 56),
        (size_of::<RegisterSync>(), 40),
        (size_of::<CreateAsid>(), 64),
        (size_of::<Cancel>(), 32),
        (size_of::<Query>(), 32),
        (size_of::<MemoryInfo>(), 64),
        (size_of::<DeviceCounters>(), 256),
        (size_of::<Invalidate>(), 40),
        (size_of::<MigrateHeader>(), 32),
        (size_of::<MigrateEntry>(), 24),
        (size_of::<FaultBatch>(), 16),
        (size_of::<FaultRecord>(), 48),
        (size_of::<FaultResponse>(), 56),
        (size_of::<KernelArgs>(), 80),
        (size_of::<JobRequest>(), 152),
        (size_of::<JobReply>(), 88),
        (size_of::<AsidSyncHeader>(), 128),
        (size_of::<RingSlot>(), 32),
        (size_of::<EuLine>(), 64),
    ];
    for (at, (size, expected)) in sizes.into_iter().enumerate() {
        assert_eq!(size, expected, "entry {at}");
        assert_eq!(size % 8, 0, "entry {at}");
    }
    assert_eq!(size_of::<QueueRun>(), 4);
}

#[test]
fn the_drivers_words_of_config_space() {
    assert_eq!(size_of::<DeviceConfig>(), CONFIG_SIZE);
    assert_eq!(offset_of!(DeviceConfig, session_id), WRITABLE_START);
    assert_eq!(offset_of!(DeviceConfig, accepted_capabilities) + 8, WRITABLE_END);
}

#[test]
fn offsets_that_others_rely_on() {
    assert_eq!(offset_of!(DeviceConfig, limits), 32);
    assert_eq!(offset_of!(DeviceConfig, dpa_size), 80);
    assert_eq!(offset_of!(DeviceConfig, queues), 136);
    assert_eq!(offset_of!(RequestHeader, id), 16);
    assert_eq!(offset_of!(ReplyHeader, detail), 16);
    assert_eq!(offset_of!(JobRequest, args), 72);
    assert_eq!(offset_of!(JobReply, result), 72);
    assert_eq!(offset_of!(FaultRecord, sequence), 16);
    assert_eq!(offset_of!(AsidSyncHeader, state), 64);
    assert_eq!(offset_of!(EuLine, owner), 8);
}

#[test]
fn sync_pages_are_one_page() {
    assert!(size_of::<AsidSyncHeader>() + MAX_RING_ENTRIES as usize * size_of::<RingSlot>() <= 4096);
    assert!(128 + MAX_EUS as usize * size_of::<EuLine>() <= 4096);
}
