//! Compiles the C mirror of the wire and compares every size, offset and constant with the Rust truth. What the header
//! defines and this list does not name fails too, so nothing can be added on one side only.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use uma_protocol::fault::{batch_flags, Access, FaultBatch, FaultCause, FaultRecord, FaultResponse, FaultResult};
use uma_protocol::kernel::{Elem, JobReply, JobRequest, Kernel, KernelArgs};
use uma_protocol::queues::{QueueRoles, QueueRun};
use uma_protocol::reply::{ReplyHeader, Status};
use uma_protocol::request::*;
use uma_protocol::{caps::Capabilities, config, fault, kernel, pte, sync, VaRange};

type Layout = BTreeMap<String, u64>;

fn uapi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver/kernel/include/uapi")
}

macro_rules! structs {
    ($($type:ty as $name:literal { $($field:ident),* $(,)? })*) => {
        fn rust_structs() -> Vec<(&'static str, Vec<&'static str>, Layout)> {
            vec![$({
                let mut layout = Layout::new();
                layout.insert("size".into(), size_of::<$type>() as u64);
                $(layout.insert(stringify!($field).into(), offset_of!($type, $field) as u64);)*
                ($name, vec![$(stringify!($field)),*], layout)
            },)*]
        }
    };
}

structs! {
    QueueRun as "queue_run" { first, count }
    QueueRoles as "queue_roles" { control, invalidate, migrate_urgent, migrate_bulk, fault, fault_response, compute, reserved }
    config::Limits as "limits" {
        max_asids, num_eus, max_jobs, max_pending_faults, max_migrate_entries, max_fault_records, max_ring_entries,
        max_streams, max_fences, max_jobs_per_asid, reserved,
    }
    config::DeviceConfig as "device_config" {
        magic, version_major, version_minor, capabilities, page_sizes, va_bits, table_levels, num_queues, reserved0,
        limits, dpa_size, window_size, window_id, reserved1, reserved2, session_id, accepted_capabilities, queues, reserved3,
    }
    AsidHandle as "asid_handle" { index, generation }
    VaRange as "va_range" { start, end }
    RequestHeader as "request_header" { opcode, flags, length, asid, id }
    ReplyHeader as "reply_header" { status, reserved, id, detail }
    Negotiate as "negotiate" { header, session_id, capabilities, version_major, version_minor, reserved, reserved1 }
    RegisterSync as "register_sync" { header, addr, reserved }
    CreateAsid as "create_asid" {
        header, mode, format, levels, granule_shift, reserved, root, sync_addr, ring_entries, reserved1, reserved2,
    }
    Cancel as "cancel" { header, job_id }
    Query as "query" { header, selector, reserved }
    MemoryInfo as "memory_info" { dpa_size, budget, populated, asids, jobs, pending_faults, reserved }
    DeviceCounters as "device_counters" {
        faults, faults_coalesced, faults_overflowed, fault_batches, fault_responses, fault_responses_stale, jobs_submitted,
        jobs_ok, jobs_failed, steps, bytes_system, bytes_local, pages_to_device, pages_to_system, pages_device_to_device,
        pages_zeroed, pages_discarded, huge_entries, migrate_errors, tlb_hits, tlb_misses, invalidations, ring_overruns,
        queue_invalidations, requests_refused, parks, resumes, reserved,
    }
    Invalidate as "invalidate" { header, range }
    MigrateHeader as "migrate_header" { header, count, reserved }
    MigrateEntry as "migrate_entry" { addr, dpa, op, order, reserved }
    FaultBatch as "fault_batch" { count, flags, reserved }
    FaultRecord as "fault_record" { asid, va, sequence, job, access, cause, eu, reserved, pages_wanted, reserved1 }
    FaultResponse as "fault_response" { header, range, sequence, result, reserved }
    KernelArgs as "kernel_args" { va, n, scalar }
    JobRequest as "job_request" {
        header, kernel, elem, priority, reserved, stream, flags, deadline_ns, wait_fence, signal_fence, wait_value,
        signal_value, args,
    }
    JobReply as "job_reply" {
        header, fault_va, fault_access, fault_cause, fault_result, eu, steps, bytes, faults, device_ns, result, reserved,
    }
    sync::AsidSyncHeader as "asid_sync_header" { epoch, reserved0, state, reserved1 }
    sync::RingSlot as "ring_slot" { seq, start, end, flags }
    sync::EuLine as "eu_line" { active, owner, reserved0, reserved1 }
}

fn rust_constants() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: u64| {
        assert!(all.insert(format!("VIRTIO_UMA_{name}"), value).is_none(), "{name} twice");
    };
    for (name, value) in [
        ("DEFAULT_ID", u64::from(uma_protocol::DEFAULT_VIRTIO_ID)),
        ("PAGE_SIZE", uma_protocol::PAGE_SIZE),
        ("PAGE_SHIFT", u64::from(uma_protocol::PAGE_SHIFT)),
        ("HUGE_SIZE", uma_protocol::HUGE_SIZE),
        ("HUGE_SHIFT", u64::from(uma_protocol::HUGE_SHIFT)),
        ("GIGANTIC_SHIFT", u64::from(uma_protocol::GIGANTIC_SHIFT)),
        ("MAGIC", u64::from(config::MAGIC)),
        ("VERSION_MAJOR", u64::from(config::VERSION_MAJOR)),
        ("VERSION_MINOR", u64::from(config::VERSION_MINOR)),
        ("CONFIG_SIZE", config::CONFIG_SIZE as u64),
        ("WRITABLE_START", config::WRITABLE_START as u64),
        ("WRITABLE_END", config::WRITABLE_END as u64),
        ("NO_WINDOW", u64::from(config::NO_WINDOW)),
        ("MODE_MIRRORED", u64::from(asid_mode::MIRRORED)),
        ("MODE_SHARED", u64::from(asid_mode::SHARED)),
        ("FORMAT_X86_64", u64::from(table_format::X86_64)),
        ("FORMAT_ARM64", u64::from(table_format::ARM64)),
        ("QUERY_MEMORY", u64::from(query::MEMORY)),
        ("QUERY_COUNTERS", u64::from(query::COUNTERS)),
        ("MAX_MIGRATE_ENTRIES", u64::from(MAX_MIGRATE_ENTRIES)),
        ("MAX_FAULT_RECORDS", u64::from(fault::MAX_FAULT_RECORDS)),
        ("BATCH_OVERFLOW", u64::from(batch_flags::OVERFLOW)),
        ("BATCH_MORE", u64::from(batch_flags::MORE)),
        ("PTE_PRESENT", pte::PRESENT),
        ("PTE_WRITABLE", pte::WRITABLE),
        ("PTE_USER", pte::USER),
        ("PTE_ACCESSED", pte::ACCESSED),
        ("PTE_DIRTY", pte::DIRTY),
        ("PTE_PAGE_SIZE_BIT", pte::PAGE_SIZE_BIT),
        ("PTE_LOCAL", pte::LOCAL),
        ("PTE_NOATOMIC", pte::NOATOMIC),
        ("PTE_FRAME_MASK", pte::FRAME_MASK),
        ("PTE_MIRRORED_RESERVED", pte::MIRRORED_RESERVED),
        ("PTE_ENTRIES", pte::ENTRIES as u64),
        ("PTE_LEVEL_BITS", u64::from(pte::LEVEL_BITS)),
        ("SUM_LANES", kernel::SUM_LANES as u64),
        ("MAX_PRIORITY", u64::from(kernel::MAX_PRIORITY)),
        ("LINE", sync::LINE as u64),
        ("MIN_RING_ENTRIES", u64::from(sync::MIN_RING_ENTRIES)),
        ("MAX_RING_ENTRIES", u64::from(sync::MAX_RING_ENTRIES)),
        ("MAX_EUS", u64::from(sync::MAX_EUS)),
        ("DRIVER_STATE_OFFSET", sync::DRIVER_STATE_OFFSET as u64),
        ("DEVICE_STATE_OFFSET", sync::DEVICE_STATE_OFFSET as u64),
        ("EU_LINES_OFFSET", sync::EU_LINES_OFFSET as u64),
        ("ASID_LIVE", sync::asid_state::LIVE),
        ("ASID_DEAD", sync::asid_state::DEAD),
        ("DRIVER_RUNNING", sync::driver_state::RUNNING),
        ("DRIVER_STOPPING", sync::driver_state::STOPPING),
        ("DEVICE_RUNNING", sync::device_state::RUNNING),
        ("DEVICE_PARKED", sync::device_state::PARKED),
        ("DEVICE_LOST", sync::device_state::LOST),
        ("IDLE", sync::IDLE),
        ("OWNER_DIED", u64::from(sync::OWNER_DIED)),
        ("EPOCH_BITS", u64::from(sync::EPOCH_BITS)),
        ("EPOCH_MASK", sync::EPOCH_MASK),
    ] {
        put(name, value);
    }
    for (name, capability) in Capabilities::all().iter_names() {
        put(&format!("CAP_{name}"), capability.bits());
    }
    for (name, access) in Access::all().iter_names() {
        put(&format!("ACCESS_{name}"), u64::from(access.bits()));
    }
    Status::ALL.iter().for_each(|status| put(&format!("S_{}", status.name()), *status as u64));
    Opcode::ALL.iter().for_each(|opcode| put(&format!("OP_{}", opcode.name()), *opcode as u64));
    Kernel::ALL.iter().for_each(|kernel| put(&format!("KERNEL_{}", kernel.name()), *kernel as u64));
    Elem::ALL.iter().for_each(|elem| put(&format!("ELEM_{}", elem.name()), *elem as u64));
    let wire = |debug: String| {
        let mut name = String::new();
        for (at, letter) in debug.chars().enumerate() {
            if letter.is_uppercase() && at > 0 {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        name
    };
    (1..=16)
        .filter_map(FaultCause::from_code)
        .for_each(|cause| put(&format!("CAUSE_{}", wire(format!("{cause:?}"))), cause as u64));
    (0..=16)
        .filter_map(FaultResult::from_code)
        .for_each(|result| put(&format!("RESULT_{}", wire(format!("{result:?}"))), result as u64));
    (1..=16)
        .filter_map(MigrateOp::from_code)
        .for_each(|op| put(&format!("MIG_{}", wire(format!("{op:?}"))), op as u64));
    all
}

/// Compiles and runs a program of `body` over the header; gives what it printed, `name value` per line.
fn run_c(header: &str, body: &str) -> BTreeMap<String, u64> {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let text = format!("#include <stddef.h>\n#include <stdio.h>\n#include <linux/{header}>\nint main(void)\n{{\n{body}\treturn 0;\n}}\n");
    std::fs::write(&source, text).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(compiler)
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-isystem"])
        .arg(uapi())
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let printed = Command::new(&program).output().unwrap();
    String::from_utf8(printed.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn header_text(name: &str) -> String {
    std::fs::read_to_string(uapi().join("linux").join(name)).unwrap()
}

#[test]
fn every_struct_has_the_same_layout() {
    let mut body = String::new();
    for (name, fields, _) in rust_structs() {
        body += &format!("\tprintf(\"{name}.size %zu\\n\", sizeof(struct virtio_uma_{name}));\n");
        for field in fields {
            body += &format!("\tprintf(\"{name}.{field} %zu\\n\", offsetof(struct virtio_uma_{name}, {field}));\n");
        }
    }
    let c = run_c("virtio_uma.h", &body);
    let rust: BTreeMap<String, u64> = rust_structs()
        .into_iter()
        .flat_map(|(name, _, layout)| layout.into_iter().map(move |(field, value)| (format!("{name}.{field}"), value)))
        .collect();
    assert_eq!(c, rust);
}

#[test]
fn every_field_and_struct_of_the_header_is_compared() {
    let known: BTreeMap<&str, BTreeSet<&str>> =
        rust_structs().into_iter().map(|(name, fields, _)| (name, fields.into_iter().collect())).collect();
    let text = header_text("virtio_uma.h");
    let mut seen = BTreeSet::new();
    for part in text.split("\nstruct virtio_uma_").skip(1) {
        let (name, rest) = part.split_once(" {").unwrap();
        let body = rest.split_once("\n};").unwrap().0;
        let fields: BTreeSet<&str> = body
            .lines()
            .filter_map(|line| line.trim().strip_suffix(';'))
            .map(|field| field.rsplit(' ').next().unwrap().split('[').next().unwrap())
            .collect();
        assert_eq!(Some(&fields), known.get(name), "struct virtio_uma_{name}");
        seen.insert(name);
    }
    assert_eq!(seen, known.keys().copied().collect());
}

#[test]
fn every_constant_is_the_same_and_none_is_left_out() {
    let rust = rust_constants();
    let defined: BTreeSet<String> = header_text("virtio_uma.h")
        .lines()
        .filter_map(|line| line.strip_prefix("#define "))
        .filter_map(|rest| rest.split_whitespace().next())
        .filter(|name| name.starts_with("VIRTIO_UMA_"))
        .map(String::from)
        .collect();
    assert_eq!(defined, rust.keys().cloned().collect());
    let body: String =
        rust.keys().map(|name| format!("\tprintf(\"{name} %llu\\n\", (unsigned long long)({name}));\n")).collect();
    assert_eq!(run_c("virtio_uma.h", &body), rust);
}

#[test]
fn ioctl_structs_are_whole_words() {
    let names =
        ["query", "create", "submit", "wait", "cancel", "advise", "prefetch", "residency", "stats", "device_stats"];
    let body: String =
        names.iter().map(|name| format!("\tprintf(\"{name} %zu\\n\", sizeof(struct uma_{name}));\n")).collect();
    let sizes = run_c("uma.h", &body);
    assert!(sizes.values().all(|size| size % 8 == 0), "{sizes:?}");
    let words = (size_of::<DeviceCounters>() + size_of::<MemoryInfo>()) as u64;
    assert_eq!(sizes["device_stats"], words + 8 * 8);
}
