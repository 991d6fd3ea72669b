/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * virtio_uma.h - wire format of the virtio-uma device
 *
 * The C mirror of protocol/ in the project's tree, where SPEC.md is the normative
 * text. A test compiles this file and compares every size, offset and constant.
 * All fields are little-endian; the only architecture with a driver is x86-64.
 */
#ifndef _UAPI_LINUX_VIRTIO_UMA_H
#define _UAPI_LINUX_VIRTIO_UMA_H

#include <linux/types.h>

#define VIRTIO_UMA_DEFAULT_ID		38

#define VIRTIO_UMA_PAGE_SIZE		4096
#define VIRTIO_UMA_PAGE_SHIFT		12
#define VIRTIO_UMA_HUGE_SIZE		(1 << 21)
#define VIRTIO_UMA_HUGE_SHIFT		21
#define VIRTIO_UMA_GIGANTIC_SHIFT	30

/* SPEC.md 4: configuration space */
#define VIRTIO_UMA_MAGIC		0x01414d55
#define VIRTIO_UMA_VERSION_MAJOR	1
#define VIRTIO_UMA_VERSION_MINOR	0
#define VIRTIO_UMA_CONFIG_SIZE		256
#define VIRTIO_UMA_WRITABLE_START	120
#define VIRTIO_UMA_WRITABLE_END		136
#define VIRTIO_UMA_NO_WINDOW		0xff

#define VIRTIO_UMA_CAP_MIRRORED		(1ULL << 0)
#define VIRTIO_UMA_CAP_SHARED		(1ULL << 1)
#define VIRTIO_UMA_CAP_MIGRATE		(1ULL << 2)
#define VIRTIO_UMA_CAP_MIGRATE_LARGE	(1ULL << 3)
#define VIRTIO_UMA_CAP_INVALIDATE_QUEUE	(1ULL << 4)
#define VIRTIO_UMA_CAP_WINDOW		(1ULL << 5)
#define VIRTIO_UMA_CAP_ATOMICS		(1ULL << 6)
#define VIRTIO_UMA_CAP_ROBUST_OWNER	(1ULL << 7)

struct virtio_uma_queue_run {
	__u16 first;
	__u16 count;
};

struct virtio_uma_queue_roles {
	struct virtio_uma_queue_run control;
	struct virtio_uma_queue_run invalidate;
	struct virtio_uma_queue_run migrate_urgent;
	struct virtio_uma_queue_run migrate_bulk;
	struct virtio_uma_queue_run fault;
	struct virtio_uma_queue_run fault_response;
	struct virtio_uma_queue_run compute;
	struct virtio_uma_queue_run reserved;
};

struct virtio_uma_limits {
	__u32 max_asids;
	__u32 num_eus;
	__u32 max_jobs;
	__u32 max_pending_faults;
	__u32 max_migrate_entries;
	__u32 max_fault_records;
	__u32 max_ring_entries;
	__u32 max_streams;
	__u32 max_fences;
	__u32 max_jobs_per_asid;
	__u32 reserved[2];
};

struct virtio_uma_device_config {
	__u32 magic;
	__u16 version_major;
	__u16 version_minor;
	__u64 capabilities;
	__u64 page_sizes;
	__u8 va_bits;
	__u8 table_levels;
	__u16 num_queues;
	__u32 reserved0;
	struct virtio_uma_limits limits;
	__u64 dpa_size;
	__u64 window_size;
	__u8 window_id;
	__u8 reserved1[7];
	__u64 reserved2[2];
	__u64 session_id;
	__u64 accepted_capabilities;
	struct virtio_uma_queue_roles queues;
	__u64 reserved3[11];
};

/* SPEC.md 3: requests and replies */
struct virtio_uma_asid_handle {
	__u32 index;
	__u32 generation;
};

struct virtio_uma_va_range {
	__u64 start;
	__u64 end;
};

struct virtio_uma_request_header {
	__u16 opcode;
	__u16 flags;
	__u32 length;
	struct virtio_uma_asid_handle asid;
	__u64 id;
};

struct virtio_uma_reply_header {
	__u32 status;
	__u32 reserved;
	__u64 id;
	__u64 detail;
};

#define VIRTIO_UMA_OP_NEGOTIATE		0x0001
#define VIRTIO_UMA_OP_REGISTER_SYNC	0x0002
#define VIRTIO_UMA_OP_CREATE_ASID	0x0003
#define VIRTIO_UMA_OP_DESTROY_ASID	0x0004
#define VIRTIO_UMA_OP_DRAIN		0x0005
#define VIRTIO_UMA_OP_CANCEL		0x0006
#define VIRTIO_UMA_OP_QUERY		0x0007
#define VIRTIO_UMA_OP_WINDOW_MAP	0x0008
#define VIRTIO_UMA_OP_INVALIDATE	0x0101
#define VIRTIO_UMA_OP_MIGRATE		0x0201
#define VIRTIO_UMA_OP_FAULT_RESPONSE	0x0301
#define VIRTIO_UMA_OP_SUBMIT		0x0401

#define VIRTIO_UMA_S_OK			0
#define VIRTIO_UMA_S_UNKNOWN_OPCODE	1
#define VIRTIO_UMA_S_RESERVED_NOT_ZERO	2
#define VIRTIO_UMA_S_BAD_LENGTH		3
#define VIRTIO_UMA_S_UNKNOWN_ASID	4
#define VIRTIO_UMA_S_STALE_ASID		5
#define VIRTIO_UMA_S_MISALIGNED		6
#define VIRTIO_UMA_S_BAD_RANGE		7
#define VIRTIO_UMA_S_NOT_NEGOTIATED	8
#define VIRTIO_UMA_S_UNSUPPORTED	9
#define VIRTIO_UMA_S_LIMIT		10
#define VIRTIO_UMA_S_BAD_ADDRESS	11
#define VIRTIO_UMA_S_BAD_DPA		12
#define VIRTIO_UMA_S_ASID_GONE		13
#define VIRTIO_UMA_S_FAULT		14
#define VIRTIO_UMA_S_CANCELED		15
#define VIRTIO_UMA_S_DEADLINE		16
#define VIRTIO_UMA_S_BAD_KERNEL		17
#define VIRTIO_UMA_S_BAD_ARGUMENT	18
#define VIRTIO_UMA_S_DEVICE_LOST	19
#define VIRTIO_UMA_S_NO_MEMORY		20
#define VIRTIO_UMA_S_PARTIAL		21
#define VIRTIO_UMA_S_BAD_STATE		22
#define VIRTIO_UMA_S_MEMORY_ERROR	23
#define VIRTIO_UMA_S_UNKNOWN_JOB	24
#define VIRTIO_UMA_S_STALE		25

/* SPEC.md 5: control */
struct virtio_uma_negotiate {
	struct virtio_uma_request_header header;
	__u64 session_id;
	__u64 capabilities;
	__u16 version_major;
	__u16 version_minor;
	__u32 reserved;
	__u64 reserved1;
};

struct virtio_uma_register_sync {
	struct virtio_uma_request_header header;
	__u64 addr;
	__u64 reserved;
};

#define VIRTIO_UMA_MODE_MIRRORED	1
#define VIRTIO_UMA_MODE_SHARED		2
#define VIRTIO_UMA_FORMAT_X86_64	1
#define VIRTIO_UMA_FORMAT_ARM64		2

struct virtio_uma_create_asid {
	struct virtio_uma_request_header header;
	__u16 mode;
	__u16 format;
	__u8 levels;
	__u8 granule_shift;
	__u16 reserved;
	__u64 root;
	__u64 sync_addr;
	__u32 ring_entries;
	__u32 reserved1;
	__u64 reserved2;
};

struct virtio_uma_cancel {
	struct virtio_uma_request_header header;
	__u64 job_id;
};

#define VIRTIO_UMA_QUERY_MEMORY		1
#define VIRTIO_UMA_QUERY_COUNTERS	2

struct virtio_uma_query {
	struct virtio_uma_request_header header;
	__u32 selector;
	__u32 reserved;
};

struct virtio_uma_memory_info {
	__u64 dpa_size;
	__u64 budget;
	__u64 populated;
	__u64 asids;
	__u64 jobs;
	__u64 pending_faults;
	__u64 reserved[2];
};

struct virtio_uma_device_counters {
	__u64 faults;
	__u64 faults_coalesced;
	__u64 faults_overflowed;
	__u64 fault_batches;
	__u64 fault_responses;
	__u64 fault_responses_stale;
	__u64 jobs_submitted;
	__u64 jobs_ok;
	__u64 jobs_failed;
	__u64 steps;
	__u64 bytes_system;
	__u64 bytes_local;
	__u64 pages_to_device;
	__u64 pages_to_system;
	__u64 pages_device_to_device;
	__u64 pages_zeroed;
	__u64 pages_discarded;
	__u64 huge_entries;
	__u64 migrate_errors;
	__u64 tlb_hits;
	__u64 tlb_misses;
	__u64 invalidations;
	__u64 ring_overruns;
	__u64 queue_invalidations;
	__u64 requests_refused;
	__u64 parks;
	__u64 resumes;
	__u64 reserved[5];
};

struct virtio_uma_invalidate {
	struct virtio_uma_request_header header;
	struct virtio_uma_va_range range;
};

/* Migrate */
#define VIRTIO_UMA_MAX_MIGRATE_ENTRIES	512

struct virtio_uma_migrate_header {
	struct virtio_uma_request_header header;
	__u32 count;
	__u32 reserved;
};

#define VIRTIO_UMA_MIG_TO_DEVICE	1
#define VIRTIO_UMA_MIG_TO_SYSTEM	2
#define VIRTIO_UMA_MIG_DEVICE_TO_DEVICE	3
#define VIRTIO_UMA_MIG_ZERO		4
#define VIRTIO_UMA_MIG_DISCARD		5

struct virtio_uma_migrate_entry {
	__u64 addr;
	__u64 dpa;
	__u16 op;
	__u16 order;
	__u32 reserved;
};

/* SPEC.md 6: page tables */
#define VIRTIO_UMA_PTE_PRESENT		(1ULL << 0)
#define VIRTIO_UMA_PTE_WRITABLE		(1ULL << 1)
#define VIRTIO_UMA_PTE_USER		(1ULL << 2)
#define VIRTIO_UMA_PTE_ACCESSED		(1ULL << 5)
#define VIRTIO_UMA_PTE_DIRTY		(1ULL << 6)
#define VIRTIO_UMA_PTE_PAGE_SIZE_BIT	(1ULL << 7)
#define VIRTIO_UMA_PTE_LOCAL		(1ULL << 9)
#define VIRTIO_UMA_PTE_NOATOMIC		(1ULL << 10)
#define VIRTIO_UMA_PTE_FRAME_MASK	0x000ffffffffff000ULL
#define VIRTIO_UMA_PTE_MIRRORED_RESERVED \
	(~(VIRTIO_UMA_PTE_FRAME_MASK | 0xffULL | VIRTIO_UMA_PTE_LOCAL | VIRTIO_UMA_PTE_NOATOMIC))
#define VIRTIO_UMA_PTE_ENTRIES		512
#define VIRTIO_UMA_PTE_LEVEL_BITS	9

/* SPEC.md 7: faults */
#define VIRTIO_UMA_MAX_FAULT_RECORDS	85

#define VIRTIO_UMA_ACCESS_READ		(1 << 0)
#define VIRTIO_UMA_ACCESS_WRITE		(1 << 1)
#define VIRTIO_UMA_ACCESS_ATOMIC	(1 << 2)

#define VIRTIO_UMA_CAUSE_NOT_PRESENT	1
#define VIRTIO_UMA_CAUSE_NOT_PERMITTED	2
#define VIRTIO_UMA_CAUSE_BAD_ADDRESS	3
#define VIRTIO_UMA_CAUSE_BAD_ENTRY	4
#define VIRTIO_UMA_CAUSE_BAD_FRAME	5
#define VIRTIO_UMA_CAUSE_ATOMIC_DENIED	6
#define VIRTIO_UMA_CAUSE_MEMORY_ERROR	7

#define VIRTIO_UMA_BATCH_OVERFLOW	(1U << 0)
#define VIRTIO_UMA_BATCH_MORE		(1U << 1)

struct virtio_uma_fault_batch {
	__u32 count;
	__u32 flags;
	__u64 reserved;
};

struct virtio_uma_fault_record {
	struct virtio_uma_asid_handle asid;
	__u64 va;
	__u64 sequence;
	__u64 job;
	__u16 access;
	__u16 cause;
	__u16 eu;
	__u16 reserved;
	__u32 pages_wanted;
	__u32 reserved1;
};

#define VIRTIO_UMA_RESULT_RETRY		0
#define VIRTIO_UMA_RESULT_NO_MAPPING	1
#define VIRTIO_UMA_RESULT_NO_PERMISSION	2
#define VIRTIO_UMA_RESULT_BUS		3
#define VIRTIO_UMA_RESULT_NO_MEMORY	4
#define VIRTIO_UMA_RESULT_ASID_GONE	5

struct virtio_uma_fault_response {
	struct virtio_uma_request_header header;
	struct virtio_uma_va_range range;
	__u64 sequence;
	__u32 result;
	__u32 reserved;
};

/* SPEC.md 8: jobs and kernels; the meaning of va, n and scalar per kernel */
#define VIRTIO_UMA_KERNEL_NOP		0	/* nothing */
#define VIRTIO_UMA_KERNEL_FILL		1	/* va0[i] = scalar0, i < n0 */
#define VIRTIO_UMA_KERNEL_COPY		2	/* va0[i] = va1[i] */
#define VIRTIO_UMA_KERNEL_SCALE		3	/* va0[i] = scalar0 * va1[i] */
#define VIRTIO_UMA_KERNEL_AXPY		4	/* va0[i] = scalar0 * va1[i] + va0[i] */
#define VIRTIO_UMA_KERNEL_REDUCE	5	/* *va0 = sum of va1[i], 16 lanes */
#define VIRTIO_UMA_KERNEL_DOT		6	/* *va0 = sum of va1[i] * va2[i], 16 lanes */
#define VIRTIO_UMA_KERNEL_GATHER	7	/* va0[i] = va1[va2[i]], indices below n1 */
#define VIRTIO_UMA_KERNEL_SCATTER	8	/* va0[va2[i]] = va1[i], indices below n1 */
#define VIRTIO_UMA_KERNEL_GEMM		9	/* va0 = scalar0 * va1 * va2 + scalar1 * va0 */
#define VIRTIO_UMA_KERNEL_ATOMIC_ADD	10	/* n1 times va0[slot] += scalar0, seed scalar1 */
#define VIRTIO_UMA_KERNEL_ATOMIC_CAS	11	/* va0[i]: scalar0 -> scalar1 */
#define VIRTIO_UMA_KERNEL_CHASE		12	/* n0 times p = *p from va0; *va1 = p */

#define VIRTIO_UMA_ELEM_U8		1
#define VIRTIO_UMA_ELEM_U32		2
#define VIRTIO_UMA_ELEM_U64		3
#define VIRTIO_UMA_ELEM_F32		4
#define VIRTIO_UMA_ELEM_F64		5

#define VIRTIO_UMA_SUM_LANES		16
#define VIRTIO_UMA_MAX_PRIORITY		4

struct virtio_uma_kernel_args {
	__u64 va[4];
	__u64 n[4];
	__u64 scalar[2];
};

struct virtio_uma_job_request {
	struct virtio_uma_request_header header;
	__u16 kernel;
	__u16 elem;
	__u16 priority;
	__u16 reserved;
	__u32 stream;
	__u32 flags;
	__u64 deadline_ns;
	__u32 wait_fence;
	__u32 signal_fence;
	__u64 wait_value;
	__u64 signal_value;
	struct virtio_uma_kernel_args args;
};

struct virtio_uma_job_reply {
	struct virtio_uma_reply_header header;
	__u64 fault_va;
	__u16 fault_access;
	__u16 fault_cause;
	__u16 fault_result;
	__u16 eu;
	__u64 steps;
	__u64 bytes;
	__u64 faults;
	__u64 device_ns;
	__u64 result;
	__u64 reserved;
};

/* SPEC.md 10: sync pages */
#define VIRTIO_UMA_LINE			64
#define VIRTIO_UMA_MIN_RING_ENTRIES	8
#define VIRTIO_UMA_MAX_RING_ENTRIES	64
#define VIRTIO_UMA_MAX_EUS		62
#define VIRTIO_UMA_DRIVER_STATE_OFFSET	0
#define VIRTIO_UMA_DEVICE_STATE_OFFSET	64
#define VIRTIO_UMA_EU_LINES_OFFSET	128

#define VIRTIO_UMA_ASID_LIVE		1
#define VIRTIO_UMA_ASID_DEAD		2
#define VIRTIO_UMA_DRIVER_RUNNING	1
#define VIRTIO_UMA_DRIVER_STOPPING	2
#define VIRTIO_UMA_DEVICE_RUNNING	1
#define VIRTIO_UMA_DEVICE_PARKED	2
#define VIRTIO_UMA_DEVICE_LOST		3

#define VIRTIO_UMA_IDLE			0
#define VIRTIO_UMA_OWNER_DIED		0x40000000
#define VIRTIO_UMA_EPOCH_BITS		48
#define VIRTIO_UMA_EPOCH_MASK		((1ULL << VIRTIO_UMA_EPOCH_BITS) - 1)

struct virtio_uma_asid_sync_header {
	__u64 epoch;
	__u64 reserved0[7];
	__u64 state;
	__u64 reserved1[7];
};

struct virtio_uma_ring_slot {
	__u64 seq;
	__u64 start;
	__u64 end;
	__u64 flags;
};

struct virtio_uma_eu_line {
	__u64 active;
	__u32 owner;
	__u32 reserved0;
	__u64 reserved1[6];
};

#endif /* _UAPI_LINUX_VIRTIO_UMA_H */
