/* SPDX-License-Identifier: GPL-2.0 */
/*
 * uma_drv.h - shared declarations of virtio_uma.ko
 *
 * DOC: Locking
 *
 * mmap_lock, then uma_ctx.lock, then folio locks, then uma_ctx.mirror_lock, then
 * uma_ctx.ring_lock. The mirror lock is what notifiers take: nothing that may
 * reclaim, fault, migrate or wait for a queue happens under it. uma_queue.lock,
 * uma_devmem.lock and uma_ctx.job_lock are leaves and are taken with interrupts off.
 *
 * DOC: Ownership
 *
 * Memory that a posted descriptor names belongs to the device until the descriptor
 * is used. A wait for it ends at the device deadline; then the device is lost and
 * the memory is quarantined until the device was reset.
 *
 * DOC: Not supported
 *
 * Shared tables (SVA), the CPU-mappable window, ACCESS_PLATFORM, suspend, hotplug
 * of the memory that sync pages lie in.
 */
#ifndef UMA_DRV_H
#define UMA_DRV_H

#include <linux/atomic.h>
#include <linux/cdev.h>
#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/maple_tree.h>
#include <linux/miscdevice.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/semaphore.h>
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <linux/uma.h>
#include <linux/virtio_uma.h>

#include "uma_compat.h"

#define UMA_BLOCK_SIZE		((u64)VIRTIO_UMA_HUGE_SIZE)
#define UMA_BLOCK_PAGES		512
#define UMA_FAULT_BUFFERS	32
#define UMA_DEVICE_TIMEOUT	(20 * HZ)

struct uma_device;
struct uma_ctx;
struct uma_req;

/* ------------------------------------------------------------------ queues */

/**
 * struct uma_queue - one virtqueue
 * @lock:	guards @vq
 * @space:	waited on when the ring was full
 */
struct uma_queue {
	struct uma_device *ud;
	struct virtqueue *vq;
	spinlock_t lock;
	wait_queue_head_t space;
};

/**
 * struct uma_req - a request with its reply
 * @q:		where it is posted
 * @pool:	where it goes back to, NULL if its owner frees it
 * @done:	called when the device has used the descriptor, in interrupt context,
 *		or NULL: @finished is completed
 * @request:	header first
 * @reply:	header first
 * @used:	bytes that the device wrote
 * @error:	0, or why the reply can't be trusted
 */
struct uma_req {
	struct list_head node;
	struct uma_queue *q;
	struct uma_slots *pool;
	void (*done)(struct uma_req *req);
	struct completion finished;
	void *request;
	void *reply;
	u32 request_size;
	u32 reply_size;
	u32 used;
	int error;
	u64 id;
	bool posted;
};

/**
 * struct uma_slots - preallocated requests
 * @free:	those that nobody has
 * @count:	how many that are
 */
struct uma_slots {
	spinlock_t lock;
	struct list_head free;
	struct semaphore count;
	u32 total;
	struct uma_req *reqs;
};

/* ----------------------------------------------------------- device memory */

/* why pages moved; indexes uma_stats and the debugfs counters */
enum uma_cause {
	UMA_CAUSE_FAULT,
	UMA_CAUSE_PREFETCH,
	UMA_CAUSE_CPU,
	UMA_CAUSE_EVICT,
	UMA_CAUSE_RELEASE,
};

/**
 * struct uma_counters - counters of a context; outlive it while it has pages
 */
struct uma_counters {
	refcount_t ref;
	atomic64_t faults, faults_failed, faults_stale;
	atomic64_t to_device[2];		/* FAULT, PREFETCH */
	atomic64_t to_system[5];		/* by enum uma_cause */
	atomic64_t zero_filled, huge_to_device, huge_to_system;
	atomic64_t mapped_in_place, cpu_faults, invalidations;
	atomic64_t jobs, jobs_ended;
	atomic64_t device_pages;
};

/**
 * struct uma_block - 2 MiB of device memory
 * @node:	in one of the lists of struct uma_devmem, or in none while held
 * @first_pfn:	of its pages
 * @dpa:	of its first byte
 * @used:	pages in use
 * @map:	bit per page: in use
 */
struct uma_block {
	struct list_head node;
	unsigned long first_pfn;
	u64 dpa;
	u32 used;
	DECLARE_BITMAP(map, UMA_BLOCK_PAGES);
};

#define UMA_CHUNK_SIZE		(256UL << 20)
#define UMA_CHUNK_BLOCKS	(UMA_CHUNK_SIZE / VIRTIO_UMA_HUGE_SIZE)

/**
 * struct uma_chunk - 256 MiB of device memory with its struct pages
 */
struct uma_chunk {
	struct dev_pagemap pagemap;
	struct uma_device *ud;
	struct list_head node;
	u32 nblocks;
	struct uma_block *blocks;
};

/**
 * struct uma_devmem - the device's memory
 * @lock:	guards the lists and every block's @used and @map
 * @clean:	empty blocks whose backing was given back
 * @dirty:	empty blocks whose backing waits to be given back
 * @partial:	blocks in use, least recently served first
 * @next_dpa:	DPAs from here on have no chunk yet
 * @grow:	one chunk is made at a time
 */
struct uma_devmem {
	spinlock_t lock;
	struct list_head clean, dirty, partial, chunks;
	struct mutex grow;
	u64 next_dpa;
	u64 size;
	atomic64_t used_pages, quarantined;
	struct delayed_work discard;
	bool enabled, large, closing;
};

/* ---------------------------------------------------------------- contexts */

/**
 * struct uma_interval - 512 MiB of a process that is watched
 */
struct uma_interval {
	struct mmu_interval_notifier notifier;
	struct uma_ctx *ctx;
};

#define UMA_INTERVAL_SHIFT	29
#define UMA_MAX_INTERVALS	65536
#define UMA_MAX_TABLES		(1 << 18)	/* 1 GiB of tables map 512 GiB of 4 KiB pages */
#define UMA_MAX_ADVICE		4096

/**
 * struct uma_ctx - one context: an open file and its address space
 * @lock:	serialises creation of intervals, tables and advice
 * @mirror_lock: guards the mirrored tables
 * @ring_lock:	guards the invalidation ring
 * @job_lock:	guards @jobs
 * @dead:	no fault is served any more
 */
struct uma_ctx {
	struct kref ref;
	struct rcu_head rcu;
	struct uma_device *ud;
	struct mm_struct *mm;
	struct mmu_notifier release;
	struct virtio_uma_asid_handle asid;
	struct mutex lock;
	struct mutex mirror_lock;
	struct xarray intervals;
	u32 nr_intervals;
	u64 *root;
	atomic_t nr_tables;
	struct list_head dead_tables;
	struct work_struct free_tables;
	struct virtio_uma_asid_sync_header *sync;
	spinlock_t ring_lock;
	u64 tail;
	bool dead;
	struct maple_tree advice;
	struct uma_counters *counters;
	spinlock_t job_lock;
	struct xarray jobs;
	u32 nr_jobs;
	wait_queue_head_t job_wait;
	atomic_t services;
	wait_queue_head_t idle;
};

/**
 * struct uma_job - one job, from submit to wait
 */
struct uma_job {
	struct kref ref;
	struct uma_ctx *ctx;
	struct uma_req req;
	struct virtio_uma_job_request request;
	struct virtio_uma_job_reply reply;
	bool ended, counted;
};

/**
 * struct uma_device - one device
 * @gate:	held for read by whoever uses the device, for write to take it away
 * @gone:	remove() has begun
 * @lost:	the device can't be trusted any more, or died
 */
struct uma_device {
	struct kref ref;
	struct virtio_device *vdev;
	struct miscdevice misc;
	char name[16];
	int index;
	struct virtio_uma_device_config config;
	u64 session;
	u64 capabilities;
	struct rw_semaphore gate;
	bool gone, lost;
	struct uma_queue *queues;
	u32 nr_queues;
	struct virtqueue **vqs;
	struct uma_slots control, urgent, bulk, responses;
	atomic64_t next_id;
	struct uma_fault_buffer *fault_buffers;
	void *sync;
	struct workqueue_struct *wq;
	struct delayed_work health;
	struct xarray contexts;
	atomic_t nr_contexts;
	struct semaphore services;
	struct uma_devmem mem;
	struct uma_counters *totals;
	atomic64_t protocol_errors, timeouts, waits_slept;
	struct dentry *debugfs;
};

/* uma_vq.c */
int uma_queues_init(struct uma_device *ud);
void uma_queues_fini(struct uma_device *ud);
int uma_slots_init(struct uma_slots *slots, u32 count, u32 request, u32 reply);
void uma_slots_fini(struct uma_slots *slots);
struct uma_req *uma_req_get(struct uma_device *ud, struct uma_slots *slots);
void uma_req_put(struct uma_req *req);
int uma_post(struct uma_queue *q, struct uma_req *req);
int uma_call(struct uma_queue *q, struct uma_req *req);
void *uma_req_header(struct uma_device *ud, struct uma_req *req, u16 opcode, u32 size,
		     const struct virtio_uma_asid_handle *asid);
int uma_post_fault_buffers(struct uma_device *ud);
void uma_lose(struct uma_device *ud, const char *why);
int uma_status_errno(u32 status);
struct uma_queue *uma_queue_of(struct uma_device *ud, struct virtio_uma_queue_run run, u32 n);

/* uma_drv.c */
void uma_device_put(struct uma_device *ud);

/* uma_cdev.c */
int uma_cdev_register(struct uma_device *ud);
void uma_cdev_unregister(struct uma_device *ud);

/* uma_ctx.c */
struct uma_ctx *uma_ctx_create(struct uma_device *ud);
void uma_ctx_close(struct uma_ctx *ctx);
void uma_ctx_put(struct uma_ctx *ctx);
struct uma_ctx *uma_ctx_find(struct uma_device *ud, const struct virtio_uma_asid_handle *asid);
struct uma_counters *uma_counters_new(void);
void uma_counters_put(struct uma_counters *counters);

/* uma_job.c */
int uma_job_submit(struct uma_ctx *ctx, struct uma_submit *args);
int uma_job_wait(struct uma_ctx *ctx, struct uma_wait *args);
int uma_job_cancel(struct uma_ctx *ctx, u64 id);
void uma_jobs_forget(struct uma_ctx *ctx);

/* uma_args.c */
int uma_check_args(const struct uma_submit *args);

/* uma_mirror.c */
int uma_mirror_init(struct uma_ctx *ctx);
void uma_mirror_fini(struct uma_ctx *ctx);
int uma_mirror_map(struct uma_ctx *ctx, unsigned long start, unsigned long end, unsigned long va,
		   bool write);
int uma_mirror_snapshot(struct uma_ctx *ctx, unsigned long start, unsigned long end,
			unsigned long *pfns);
u64 uma_mirror_entry(struct uma_ctx *ctx, unsigned long va);

/* uma_sync.c */
bool uma_publish(struct uma_ctx *ctx, u64 start, u64 end, bool may_sleep);
void uma_kill_asid(struct uma_ctx *ctx);
void uma_health_check(struct work_struct *work);

/* uma_fault.c */
void uma_fault_batch(struct uma_device *ud, void *buffer, u32 used);
u32 uma_advice_at(struct uma_ctx *ctx, unsigned long va);
int uma_advise(struct uma_ctx *ctx, const struct uma_advise *args);
int uma_prefetch(struct uma_ctx *ctx, struct uma_prefetch *args);
int uma_residency(struct uma_ctx *ctx, struct uma_residency *args);

/* uma_migrate.c */
struct uma_moved {
	u64 moved;
	u64 resident;
};
int uma_migrate_requests(struct uma_device *ud, bool urgent, struct virtio_uma_migrate_entry *entries,
			 u16 *status, u32 count);
int uma_migrate_to_device(struct uma_ctx *ctx, unsigned long start, unsigned long end,
			  enum uma_cause cause, struct uma_moved *moved);
int uma_migrate_to_system(struct uma_ctx *ctx, unsigned long start, unsigned long end,
			  struct uma_moved *moved);

/* uma_devmem.c */
int uma_devmem_init(struct uma_device *ud);
void uma_devmem_fini(struct uma_device *ud);
struct uma_block *uma_block_take(struct uma_device *ud);
void uma_block_return(struct uma_device *ud, struct uma_block *block);
struct page *uma_block_page(struct uma_device *ud, struct uma_block *block, u32 index, u32 order,
			    struct uma_counters *owner);
u64 uma_page_dpa(struct page *page);
struct uma_block *uma_page_block(struct page *page);
void uma_block_touch(struct uma_device *ud, struct uma_block *block);
bool uma_is_ours(struct uma_device *ud, struct page *page);
struct uma_counters *uma_page_counters(struct page *page);

/* uma_evict.c */
int uma_evict_one(struct uma_device *ud, enum uma_cause cause);
void uma_evict_all(struct uma_device *ud);
vm_fault_t uma_migrate_to_ram(struct vm_fault *vmf);
int uma_evict_block(struct uma_device *ud, struct uma_block *block, enum uma_cause cause);

/* uma_debugfs.c */
void uma_debugfs_init(struct uma_device *ud);
void uma_debugfs_fini(struct uma_device *ud);
int uma_query_words(struct uma_device *ud, u32 selector, u64 *words, u32 count);

static inline bool uma_is_down(struct uma_device *ud)
{
	return READ_ONCE(ud->lost) || READ_ONCE(ud->gone);
}

#endif /* UMA_DRV_H */
