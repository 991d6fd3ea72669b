//! Every structure round-trips, every malformed buffer gets the status that SPEC.md §3.1 names, and no bytes panic.

use proptest::prelude::*;
use uma_protocol::config::*;
use uma_protocol::fault::{parse_fault_response, FaultResponse};
use uma_protocol::kernel::{parse_job, Elem, JobRequest, Kernel, KernelArgs};
use uma_protocol::queues::QueueRoles;
use uma_protocol::request::*;
use uma_protocol::{pte, Status, VaRange};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const ASID: AsidHandle = AsidHandle { index: 1, generation: 1 };
const USER_END: u64 = pte::user_end(4);

fn header(opcode: Opcode) -> RequestHeader {
    let asid = if opcode.names_asid() { ASID } else { AsidHandle::NONE };
    RequestHeader { opcode: opcode as u16, flags: 0, length: opcode.fixed_size() as u32, asid, id: 9 }
}

/// The status of a parser's refusal, OK if there is none.
fn status<T>(parsed: Result<T, Refused>) -> Status {
    parsed.map_or_else(|refused| refused.status, |_| Status::Ok)
}

fn good(opcode: Opcode) -> Vec<u8> {
    let header = header(opcode);
    match opcode {
        Opcode::Negotiate => {
            Negotiate { header, session_id: 1, version_major: VERSION_MAJOR, ..Default::default() }.as_bytes().to_vec()
        }
        Opcode::CreateAsid => CreateAsid {
            header,
            mode: asid_mode::MIRRORED,
            format: table_format::X86_64,
            levels: 4,
            granule_shift: 12,
            ring_entries: 64,
            ..Default::default()
        }
        .as_bytes()
        .to_vec(),
        Opcode::Query => Query { header, selector: query::MEMORY, reserved: 0 }.as_bytes().to_vec(),
        Opcode::Invalidate => Invalidate { header, range: VaRange::ALL }.as_bytes().to_vec(),
        Opcode::FaultResponse => {
            FaultResponse { header, range: VaRange::ALL, ..Default::default() }.as_bytes().to_vec()
        }
        Opcode::Migrate => {
            let mut head = MigrateHeader { header, count: 1, reserved: 0 };
            head.header.length += 24;
            let mut bytes = head.as_bytes().to_vec();
            bytes.extend([0; 24]);
            bytes
        }
        _ => {
            let mut bytes = header.as_bytes().to_vec();
            bytes.resize(opcode.fixed_size(), 0);
            bytes
        }
    }
}

fn parse(queue: RequestQueue, bytes: &[u8]) -> Status {
    match queue {
        RequestQueue::Control => status(parse_control(bytes)),
        RequestQueue::Invalidate => status(parse_invalidate(bytes)),
        // The parser wants the alignment that a copied request has.
        RequestQueue::Migrate => status(parse_migrate(bytes, 512)),
        RequestQueue::FaultResponse => status(parse_fault_response(bytes)),
        RequestQueue::Compute => status(parse_job(bytes)),
    }
}

const QUEUES: [RequestQueue; 5] = [
    RequestQueue::Control,
    RequestQueue::Invalidate,
    RequestQueue::Migrate,
    RequestQueue::FaultResponse,
    RequestQueue::Compute,
];

fn opcode() -> impl Strategy<Value = Opcode> {
    prop::sample::select(Opcode::ALL)
}

fn round_trips<T: FromBytes + IntoBytes + Immutable>(bytes: &[u8]) -> bool {
    let size = size_of::<T>();
    let given = &bytes[..size];
    T::read_from_bytes(given).is_ok_and(|value| value.as_bytes() == given)
}

proptest! {
    #[test]
    fn structures_round_trip(bytes in prop::collection::vec(any::<u8>(), 256)) {
        prop_assert!(round_trips::<DeviceConfig>(&bytes) && round_trips::<Negotiate>(&bytes));
        prop_assert!(round_trips::<CreateAsid>(&bytes) && round_trips::<RegisterSync>(&bytes));
        prop_assert!(round_trips::<Cancel>(&bytes) && round_trips::<Query>(&bytes));
        prop_assert!(round_trips::<MemoryInfo>(&bytes) && round_trips::<DeviceCounters>(&bytes));
        prop_assert!(round_trips::<MigrateHeader>(&bytes) && round_trips::<MigrateEntry>(&bytes));
        prop_assert!(round_trips::<uma_protocol::fault::FaultRecord>(&bytes) && round_trips::<FaultResponse>(&bytes));
        prop_assert!(round_trips::<JobRequest>(&bytes) && round_trips::<uma_protocol::kernel::JobReply>(&bytes));
        prop_assert!(round_trips::<uma_protocol::sync::EuLine>(&bytes));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for queue in QUEUES {
            parse(queue, &bytes);
        }
        if let Ok((job, _)) = JobRequest::read_from_prefix(&bytes) {
            let _ = job.validate(USER_END);
        }
        if let Ok((entry, _)) = MigrateEntry::read_from_prefix(&bytes) {
            let _ = entry.validate(1 << 30);
        }
        if let Ok((config, _)) = DeviceConfig::read_from_prefix(&bytes) {
            let _ = config.validate();
        }
    }

    #[test]
    fn a_well_formed_request_is_taken_by_its_queue_only(opcode in opcode()) {
        for queue in QUEUES {
            let expected = if queue == opcode.queue() { Status::Ok } else { Status::UnknownOpcode };
            prop_assert_eq!(parse(queue, &good(opcode)), expected);
        }
    }

    #[test]
    fn truncated_and_extended_requests(opcode in opcode(), cut in 1usize..300, more in 1usize..40) {
        let bytes = good(opcode);
        let shorter = &bytes[..bytes.len().saturating_sub(cut)];
        prop_assert_eq!(parse(opcode.queue(), shorter), Status::BadLength);
        let mut longer = bytes;
        longer.resize(longer.len() + more, 0);
        prop_assert_eq!(parse(opcode.queue(), &longer), Status::BadLength);
    }

    #[test]
    fn headers_are_checked_in_order(opcode in opcode(), wrong in 1u16.., length in any::<u32>()) {
        let with = |change: &dyn Fn(&mut RequestHeader)| {
            let mut bytes = good(opcode);
            let mut header = RequestHeader::read_from_prefix(&bytes).unwrap().0;
            change(&mut header);
            bytes[..24].copy_from_slice(header.as_bytes());
            parse(opcode.queue(), &bytes)
        };
        let known = Opcode::from_code(wrong).is_some_and(|other| other.queue() == opcode.queue());
        if !known {
            prop_assert_eq!(with(&|h| { h.opcode = wrong; h.length = length; h.flags = wrong }), Status::UnknownOpcode);
        }
        if length as usize != good(opcode).len() {
            prop_assert_eq!(with(&|h| { h.length = length; h.flags = wrong }), Status::BadLength);
        }
        prop_assert_eq!(with(&|h| { h.flags = wrong; h.asid = AsidHandle::NONE }), Status::ReservedNotZero);
        let (asid, expected) = if opcode.names_asid() {
            (AsidHandle { index: 0, generation: 5 }, Status::UnknownAsid)
        } else {
            (ASID, Status::ReservedNotZero)
        };
        prop_assert_eq!(with(&|h| h.asid = asid), expected);
    }

    #[test]
    fn ranges(start in any::<u64>(), end in any::<u64>()) {
        let expected = if start >= end {
            Err(Status::BadRange)
        } else if start % 4096 != 0 || (end % 4096 != 0 && end != u64::MAX) {
            Err(Status::Misaligned)
        } else {
            Ok(())
        };
        prop_assert_eq!(VaRange { start, end }.validate(), expected);
        let (start, end) = (start & !4095, end & !4095);
        prop_assert_eq!(VaRange { start, end }.validate().is_ok(), start < end);
    }

    #[test]
    fn migrate_entries(addr in any::<u64>(), dpa in any::<u64>(), op in 0u16..8, order in 0u16..16, reserved in 0u32..2) {
        const SIZE: u64 = 1 << 24;
        let entry = MigrateEntry { addr: addr & !4095, dpa: dpa & (2 * SIZE - 1) & !4095, op, order, reserved };
        let bytes = 4096u64 << order.min(9);
        let expected = match MigrateOp::from_code(op) {
            None => Err(Status::Unsupported),
            Some(_) if reserved != 0 => Err(Status::ReservedNotZero),
            Some(MigrateOp::Zero | MigrateOp::Discard) if entry.addr != 0 => Err(Status::ReservedNotZero),
            Some(_) if order > 9 => Err(Status::BadRange),
            Some(_) if !entry.addr.is_multiple_of(bytes) || !entry.dpa.is_multiple_of(bytes) => Err(Status::Misaligned),
            Some(_) if entry.dpa + bytes > SIZE => Err(Status::BadDpa),
            Some(MigrateOp::DeviceToDevice) if entry.addr >= SIZE || entry.addr + bytes > SIZE => Err(Status::BadDpa),
            Some(op) => Ok(op),
        };
        prop_assert_eq!(entry.validate(SIZE), expected);
    }

    #[test]
    fn migrate_counts(count in 0u32..700, entries in 0usize..20) {
        let mut head = MigrateHeader { header: header(Opcode::Migrate), count, reserved: 0 };
        head.header.length += entries as u32 * 24;
        let mut bytes = head.as_bytes().to_vec();
        bytes.resize(bytes.len() + entries * 24, 0);
        let expected = match count {
            513.. => Status::Limit,
            _ if count == 0 || count as usize != entries => Status::BadLength,
            _ => Status::Ok,
        };
        prop_assert_eq!(status(parse_migrate(&bytes, 512)), expected);
    }

    #[test]
    fn fill_jobs_against_a_simple_model(
        va in any::<u64>(), n in any::<u64>(), scalar in any::<u64>(), elem in 0u16..8, priority in 0u16..6,
        small in any::<bool>(),
    ) {
        let (va, n) = if small { (va % (1 << 48), n % (1 << 40)) } else { (va, n) };
        let args = KernelArgs { va: [va, 0, 0, 0], n: [n, 0, 0, 0], scalar: [scalar, 0] };
        let job = JobRequest { kernel: Kernel::Fill as u16, elem, priority, args, ..Default::default() };
        let expected = match Elem::from_code(elem) {
            None => Err(Status::BadKernel),
            Some(_) if priority >= 4 => Err(Status::BadArgument),
            Some(elem) => {
                let size = elem.size();
                let end = u128::from(va) + u128::from(n) * u128::from(size);
                if size < 8 && scalar >= 1 << (8 * size) {
                    Err(Status::BadArgument)
                } else if va % size != 0 {
                    Err(Status::Misaligned)
                } else if end > u128::from(USER_END) {
                    Err(Status::BadRange)
                } else {
                    Ok(())
                }
            }
        };
        prop_assert_eq!(job.validate(USER_END), expected);
    }

    #[test]
    fn overlap_against_a_simple_model(dst in 0u64..40, src in 0u64..40, n in 1u64..20) {
        let job = |kernel| JobRequest {
            kernel: kernel as u16,
            elem: Elem::U64 as u16,
            args: KernelArgs { va: [dst * 8, src * 8, 0, 0], n: [n, 0, 0, 0], scalar: [0, 0] },
            ..Default::default()
        };
        let shared = dst < src + n && src < dst + n;
        let refused = |kernel| job(kernel).validate(USER_END) == Err(Status::BadArgument);
        prop_assert_eq!(refused(Kernel::Copy), shared && dst > src);
        prop_assert_eq!(refused(Kernel::Scale), shared && dst != src);
        prop_assert_eq!(refused(Kernel::Axpy), shared && dst != src);
        prop_assert_eq!(refused(Kernel::Reduce), dst >= src && dst < src + n);
    }

    #[test]
    fn unused_arguments_must_be_zero(kernel in prop::sample::select(Kernel::ALL), at in 0usize..10, value in 1u64..) {
        let elem = [0, 2, 3, 4].into_iter().find(|elem| {
            JobRequest { kernel: kernel as u16, elem: *elem, ..Default::default() }.kernel().is_ok()
        });
        let mut args = KernelArgs::default();
        let (vas, ns, scalars) = kernel.uses();
        let unused = match at {
            0..4 => { args.va[at] = value; at >= vas }
            4..8 => { args.n[at - 4] = value; at - 4 >= ns }
            _ => { args.scalar[at - 8] = value; at - 8 >= scalars }
        };
        let job = JobRequest { kernel: kernel as u16, elem: elem.unwrap(), args, ..Default::default() };
        if unused {
            prop_assert_eq!(job.validate(USER_END), Err(Status::BadArgument));
        }
    }
}

fn config() -> DeviceConfig {
    let limits = Limits {
        max_asids: 4,
        num_eus: 2,
        max_jobs: 8,
        max_pending_faults: 8,
        max_migrate_entries: 512,
        max_fault_records: 85,
        max_ring_entries: 64,
        max_streams: 4,
        max_fences: 4,
        max_jobs_per_asid: 8,
        reserved: [0; 2],
    };
    DeviceConfig {
        magic: MAGIC,
        version_major: VERSION_MAJOR,
        version_minor: 7,
        capabilities: u64::MAX,
        page_sizes: 1 << 12 | 1 << 21,
        va_bits: 48,
        table_levels: 1 << 4,
        num_queues: 8,
        reserved0: 0,
        limits,
        dpa_size: 1 << 30,
        window_size: 0,
        window_id: NO_WINDOW,
        reserved1: [0; 7],
        reserved2: [0; 2],
        session_id: 5,
        accepted_capabilities: 6,
        queues: QueueRoles::standard(2),
        reserved3: [0; 11],
    }
}

type Corrupt = fn(&mut DeviceConfig);

#[test]
fn each_corruption_of_the_configuration_space_is_named() {
    assert_eq!(config().validate(), Ok(()));
    let faults: [(Corrupt, ConfigFault); 22] = [
        (|c| c.magic ^= 1, ConfigFault::Magic),
        (|c| c.version_major += 1, ConfigFault::Version),
        (|c| c.page_sizes = 1 << 21, ConfigFault::PageSizes),
        (|c| c.page_sizes |= 1 << 13, ConfigFault::PageSizes),
        (|c| c.table_levels = 1 << 5, ConfigFault::Levels),
        (|c| c.table_levels |= 1, ConfigFault::Levels),
        (|c| c.va_bits = 57, ConfigFault::Levels),
        (|c| c.limits.max_asids = 0, ConfigFault::Limits),
        (|c| c.limits.max_asids = 1 << 16, ConfigFault::Limits),
        (|c| c.limits.num_eus = 63, ConfigFault::Limits),
        (|c| c.limits.max_migrate_entries = 513, ConfigFault::Limits),
        (|c| c.limits.max_fault_records = 86, ConfigFault::Limits),
        (|c| c.limits.max_ring_entries = 48, ConfigFault::Limits),
        (|c| c.limits.max_jobs_per_asid = 9, ConfigFault::Limits),
        (|c| c.num_queues = 9, ConfigFault::Queues),
        (|c| c.queues.fault.first = 3, ConfigFault::Queues),
        (|c| c.queues.control.count = 0, ConfigFault::Queues),
        (|c| c.dpa_size = 0, ConfigFault::DpaSize),
        (|c| c.dpa_size += 4096, ConfigFault::DpaSize),
        (|c| c.window_id = 0, ConfigFault::Window),
        (|c| c.reserved2[1] = 1, ConfigFault::Reserved),
        (|c| c.reserved3[10] = 1, ConfigFault::Reserved),
    ];
    for (at, (corrupt, fault)) in faults.into_iter().enumerate() {
        let mut config = config();
        corrupt(&mut config);
        assert_eq!(config.validate(), Err(fault), "case {at}");
    }
}

#[test]
fn fields_of_control_requests() {
    let create = |change: fn(&mut CreateAsid)| {
        let mut request = CreateAsid::read_from_bytes(&good(Opcode::CreateAsid)).unwrap();
        change(&mut request);
        status(parse_control(request.as_bytes()))
    };
    assert_eq!(create(|r| r.mode = asid_mode::SHARED), Status::Unsupported);
    assert_eq!(create(|r| r.format = table_format::ARM64), Status::Unsupported);
    assert_eq!(create(|r| r.levels = 6), Status::Unsupported);
    assert_eq!(create(|r| r.granule_shift = 14), Status::Unsupported);
    assert_eq!(create(|r| r.root = 1), Status::Misaligned);
    assert_eq!(create(|r| r.sync_addr = 1), Status::Misaligned);
    assert_eq!(create(|r| r.ring_entries = 128), Status::Limit);
    assert_eq!(create(|r| r.reserved1 = 1), Status::ReservedNotZero);
    let negotiate = |change: fn(&mut Negotiate)| {
        let mut request = Negotiate::read_from_bytes(&good(Opcode::Negotiate)).unwrap();
        change(&mut request);
        status(parse_control(request.as_bytes()))
    };
    assert_eq!(negotiate(|r| r.session_id = 0), Status::BadState);
    assert_eq!(negotiate(|r| r.version_major = 2), Status::Unsupported);
    assert_eq!(negotiate(|r| r.reserved = 1), Status::ReservedNotZero);
    let query = Query { header: header(Opcode::Query), selector: 77, reserved: 0 };
    assert_eq!(status(parse_control(query.as_bytes())), Status::Unsupported);
    let response =
        FaultResponse { header: header(Opcode::FaultResponse), range: VaRange::ALL, result: 6, ..Default::default() };
    assert_eq!(status(parse_fault_response(response.as_bytes())), Status::BadArgument);
}
