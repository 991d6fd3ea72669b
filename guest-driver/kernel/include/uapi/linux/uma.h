/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uma.h - user interface of virtio_uma.ko, /dev/uma<N>
 *
 * DOC: Overview
 *
 * A file opened on /dev/uma<N> is one *context*: an address space of the calling
 * process as the device sees it. After UMA_IOC_CREATE the device reaches every
 * address of the process with the process's own rights; a pointer from malloc
 * can be handed to a job as it is. The device faults on what it has not seen,
 * the driver moves or maps it, and the CPU takes it back by touching it.
 *
 * A context belongs to the mm that opened the file and dies with the file. Calls
 * from another mm (after fork, or through a passed descriptor) fail with EXDEV.
 * Every structure is 64-bit clean, its size is a multiple of 8, and reserved
 * fields must be zero (EINVAL). ENODEV means that the device is lost or gone,
 * EINTR that a signal came before anything was handed to the device.
 */
#ifndef _UAPI_LINUX_UMA_H
#define _UAPI_LINUX_UMA_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define UMA_IOC_MAGIC 0xAE

/* uma_query.features: what this driver and kernel can do with the device */
#define UMA_FEATURE_MIRRORED	(1ULL << 0)	/* contexts with mirrored tables */
#define UMA_FEATURE_PRIVATE	(1ULL << 1)	/* pages move to device memory (needs CONFIG_DEVICE_PRIVATE) */
#define UMA_FEATURE_LARGE	(1ULL << 2)	/* 2 MiB folios move as a whole */
#define UMA_FEATURE_ATOMICS	(1ULL << 3)	/* kernels with atomics */

/**
 * struct uma_query - what the device and the driver offer
 * @features:		out: UMA_FEATURE_*
 * @device_bytes:	out: device memory
 * @device_free:	out: device memory not in use by any page now
 * @capabilities:	out: VIRTIO_UMA_CAP_* accepted by the driver
 * @session:		out: session id
 * @max_jobs:		out: jobs that one context can have unfinished or not waited for
 * @max_streams:	out: streams of a context
 * @max_fences:		out: timeline fences of a context
 * @num_eus:		out: execution units
 * @state:		out: UMA_STATE_*
 */
struct uma_query {
	__u64 features;
	__u64 device_bytes;
	__u64 device_free;
	__u64 capabilities;
	__u64 session;
	__u32 max_jobs;
	__u32 max_streams;
	__u32 max_fences;
	__u32 num_eus;
	__u32 state;
	__u32 reserved0;
	__u64 reserved[4];
};

#define UMA_STATE_OK	0
#define UMA_STATE_LOST	1

#define UMA_MODE_MIRRORED	1
#define UMA_MODE_SHARED		2	/* reserved: EOPNOTSUPP */

/**
 * struct uma_create - make the file a context of the calling process
 * @mode:	in: UMA_MODE_*
 * @flags:	in: zero
 * @asid:	out: ASID index on the device, for reading traces and debugfs
 *
 * Errors: EBUSY the file is a context already; EOPNOTSUPP the mode is not
 * offered; ENOSPC the device has no address space left; ENOMEM.
 */
struct uma_create {
	__u32 mode;
	__u32 flags;
	__u32 asid;
	__u32 reserved;
};

/* uma_submit.flags */
#define UMA_SUBMIT_FENCE_FD	(1U << 0)	/* return a pollable descriptor in fence_fd */

/**
 * struct uma_submit - queue one job
 * @kernel:		in: VIRTIO_UMA_KERNEL_*
 * @elem:		in: VIRTIO_UMA_ELEM_*
 * @priority:		in: 0..3, higher runs first
 * @reserved0:		in: zero
 * @flags:		in: UMA_SUBMIT_*
 * @stream:		in: jobs of one stream run in order
 * @deadline_ns:	in: nanoseconds from now after which the job ends with ETIME, 0 = never
 * @wait_fence:		in: timeline fence to wait for first, 0 = none
 * @signal_fence:	in: timeline fence that the job's end signals, 0 = none
 * @wait_value:		in: value that @wait_fence must have reached
 * @signal_value:	in: value that @signal_fence is raised to
 * @va:			in: operand addresses
 * @n:			in: counts
 * @scalar:		in: scalars, as bits of the element type
 * @job:		out: names the job in UMA_IOC_WAIT and UMA_IOC_CANCEL
 * @fence_fd:		out: descriptor that polls readable when the job has ended, or -1
 *
 * Meaning of @va, @n and @scalar per kernel: virtio_uma.h.
 * Errors: EAGAIN max_jobs jobs are unfinished or not waited for; EINVAL, ERANGE
 * an argument the device would refuse.
 */
struct uma_submit {
	__u16 kernel;
	__u16 elem;
	__u16 priority;
	__u16 reserved0;
	__u32 flags;
	__u32 stream;
	__u64 deadline_ns;
	__u32 wait_fence;
	__u32 signal_fence;
	__u64 wait_value;
	__u64 signal_value;
	__u64 va[4];
	__u64 n[4];
	__u64 scalar[2];
	__u64 job;
	__s32 fence_fd;
	__u32 reserved1;
};

/**
 * struct uma_wait - wait for the end of a job and take its result
 * @job:		in: as returned by UMA_IOC_SUBMIT
 * @timeout_ns:		in: nanoseconds to wait at most, 0 = do not wait, ~0 = no limit
 * @status:		out: VIRTIO_UMA_S_*
 * @error:		out: the errno that names @status, 0 for success
 * @fault_va:		out: with VIRTIO_UMA_S_FAULT: the page
 * @fault_access:	out: with VIRTIO_UMA_S_FAULT: VIRTIO_UMA_ACCESS_*
 * @fault_cause:	out: with VIRTIO_UMA_S_FAULT: VIRTIO_UMA_CAUSE_*
 * @fault_result:	out: with VIRTIO_UMA_S_FAULT: VIRTIO_UMA_RESULT_*
 * @eu:			out: execution unit that ran the last step
 * @steps:		out: steps done
 * @bytes:		out: bytes read and written by the kernel
 * @faults:		out: times the job was parked on a fault
 * @device_ns:		out: time that execution units spent on it
 * @result:		out: the kernel's result
 *
 * A job can be waited for once; its result is gone then. The call succeeds when
 * the job ended, however it ended.
 * Errors: ENOENT no such job; ETIME it is still running; EINTR.
 */
struct uma_wait {
	__u64 job;
	__u64 timeout_ns;
	__u32 status;
	__s32 error;
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
};

/**
 * struct uma_cancel - end a job early
 * @job:	in: the job; it still has to be waited for
 *
 * Errors: ENOENT no such job, or it has ended.
 */
struct uma_cancel {
	__u64 job;
};

/* uma_advise.advice */
#define UMA_ADVISE_NONE			0	/* forget all advice on the range */
#define UMA_ADVISE_PREFER_DEVICE	1	/* first touch by the device moves the page there (default) */
#define UMA_ADVISE_PREFER_SYSTEM	2	/* the device uses the page where it is; nothing moves on a fault */
#define UMA_ADVISE_READ_MOSTLY		3	/* device reads map the page in place, device writes move it */

/**
 * struct uma_advise - say how a range will be used
 * @start:	in: first address, page aligned
 * @length:	in: bytes, page aligned, not zero
 * @advice:	in: UMA_ADVISE_*
 * @flags:	in: zero
 *
 * Advice changes where pages go, never what is computed. It is remembered for
 * the addresses, not for the mapping. Errors: ENOSPC too many different ranges.
 */
struct uma_advise {
	__u64 start;
	__u64 length;
	__u32 advice;
	__u32 flags;
};

/* uma_prefetch.target */
#define UMA_TARGET_SYSTEM	0
#define UMA_TARGET_DEVICE	1

/* uma_prefetch.flags */
#define UMA_PREFETCH_ASYNC	(1U << 0)	/* return at once; a worker moves the pages */

/**
 * struct uma_prefetch - move a range before it is used
 * @start:	in: first address, page aligned
 * @length:	in: bytes, page aligned, not zero
 * @target:	in: UMA_TARGET_*
 * @flags:	in: UMA_PREFETCH_*
 * @moved:	out: 4 KiB pages that moved or were created on the target (0 with ASYNC)
 * @resident:	out: 4 KiB pages of the range that were there already
 *
 * Holes of a mapping are created on the device. Pages that can't move (file
 * pages, pinned pages, device memory full of pages in use) stay and count in
 * neither. Errors: EFAULT part of the range is not mapped (the rest has moved);
 * EOPNOTSUPP no UMA_FEATURE_PRIVATE and the target is the device.
 */
struct uma_prefetch {
	__u64 start;
	__u64 length;
	__u32 target;
	__u32 flags;
	__u64 moved;
	__u64 resident;
};

/* one byte per page in uma_residency.vec */
#define UMA_PAGE_NONE		0	/* nothing there */
#define UMA_PAGE_SYSTEM		1	/* in system memory */
#define UMA_PAGE_DEVICE		2	/* in device memory */
#define UMA_PAGE_WHERE_MASK	3
#define UMA_PAGE_HUGE		4	/* part of a 2 MiB page */
#define UMA_PAGE_MAPPED		8	/* the device has a translation for it now */

/**
 * struct uma_residency - where the pages of a range are
 * @start:	in: first address, page aligned
 * @length:	in: bytes, page aligned, not zero, at most 1 GiB
 * @vec:	in: address of one byte per page that receives UMA_PAGE_*, or 0
 * @system:	out: 4 KiB pages in system memory
 * @device:	out: 4 KiB pages in device memory
 * @none:	out: 4 KiB pages that are nowhere
 * @mapped:	out: 4 KiB pages that the device has a translation for
 *
 * A snapshot: nothing is faulted in, nothing moves.
 */
struct uma_residency {
	__u64 start;
	__u64 length;
	__u64 vec;
	__u64 system;
	__u64 device;
	__u64 none;
	__u64 mapped;
};

/**
 * struct uma_stats - counters of the context since it was created
 * @faults:		device fault records received
 * @faults_failed:	of those, answered with an error
 * @faults_stale:	of those, answered without work: already served
 * @to_device_fault:	4 KiB pages moved to the device for a device fault (zero-filled ones included)
 * @to_device_prefetch:	4 KiB pages moved to the device by prefetch
 * @zero_filled:	of the two above, pages that had no content and were zeroed on the device
 * @to_system_cpu:	4 KiB pages moved back because the CPU touched them
 * @to_system_prefetch:	4 KiB pages moved back by prefetch
 * @to_system_evict:	4 KiB pages moved back to make room
 * @to_system_release:	4 KiB pages moved back because device or driver went away
 * @huge_to_device:	2 MiB folios among the pages moved to the device
 * @huge_to_system:	2 MiB folios among the pages moved back
 * @mapped_in_place:	4 KiB pages mapped for the device where they were
 * @cpu_faults:		CPU faults on device pages
 * @invalidations:	invalidations published to the device
 * @jobs:		jobs submitted
 * @jobs_ended:		jobs ended
 * @device_pages:	4 KiB pages of device memory that faults and prefetches of this context
 *			brought and that are still in use by the process
 * @reserved:		zero
 */
struct uma_stats {
	__u64 faults;
	__u64 faults_failed;
	__u64 faults_stale;
	__u64 to_device_fault;
	__u64 to_device_prefetch;
	__u64 zero_filled;
	__u64 to_system_cpu;
	__u64 to_system_prefetch;
	__u64 to_system_evict;
	__u64 to_system_release;
	__u64 huge_to_device;
	__u64 huge_to_system;
	__u64 mapped_in_place;
	__u64 cpu_faults;
	__u64 invalidations;
	__u64 jobs;
	__u64 jobs_ended;
	__u64 device_pages;
	__u64 reserved[6];
};

/**
 * struct uma_device_stats - totals of the device, any context
 * @counters:	the device's own counters, the words of struct virtio_uma_device_counters (virtio_uma.h)
 * @memory:	the words of struct virtio_uma_memory_info (virtio_uma.h)
 * @asids:	address spaces that the driver has created on the device
 * @pages_used:	4 KiB device pages in use
 * @pages_quarantined: 4 KiB pages kept back until a device reset, since a request on them never ended
 */
struct uma_device_stats {
	__u64 counters[32];
	__u64 memory[8];
	__u64 asids;
	__u64 pages_used;
	__u64 pages_quarantined;
	__u64 reserved[5];
};

#define UMA_IOC_QUERY		_IOR(UMA_IOC_MAGIC, 0x00, struct uma_query)
#define UMA_IOC_CREATE		_IOWR(UMA_IOC_MAGIC, 0x01, struct uma_create)
#define UMA_IOC_SUBMIT		_IOWR(UMA_IOC_MAGIC, 0x02, struct uma_submit)
#define UMA_IOC_WAIT		_IOWR(UMA_IOC_MAGIC, 0x03, struct uma_wait)
#define UMA_IOC_CANCEL		_IOW(UMA_IOC_MAGIC, 0x04, struct uma_cancel)
#define UMA_IOC_ADVISE		_IOW(UMA_IOC_MAGIC, 0x05, struct uma_advise)
#define UMA_IOC_PREFETCH	_IOWR(UMA_IOC_MAGIC, 0x06, struct uma_prefetch)
#define UMA_IOC_RESIDENCY	_IOWR(UMA_IOC_MAGIC, 0x07, struct uma_residency)
#define UMA_IOC_STATS		_IOR(UMA_IOC_MAGIC, 0x08, struct uma_stats)
#define UMA_IOC_DEVICE_STATS	_IOR(UMA_IOC_MAGIC, 0x09, struct uma_device_stats)

#endif /* _UAPI_LINUX_UMA_H */
