// SPDX-License-Identifier: GPL-2.0
/*
 * uma_fault.c - device faults, advice, prefetch, residency
 *
 * DOC: Service
 *
 * Each record of a batch is served by a work item of its own, so faults of one address
 * space in different 2 MiB blocks run in parallel. A service moves the block to the device
 * if advice and mapping allow it, then maps what is there. What cannot move is mapped where
 * it is; what cannot be mapped is answered with a result that names why.
 */
#include <linux/mmu_context.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "uma_drv.h"
#include "uma_trace.h"

#define UMA_FAULT_TRIES	64
#define UMA_RESIDENCY_MAX	(1ULL << 30)

struct uma_service {
	struct work_struct work;
	struct uma_ctx *ctx;
	struct virtio_uma_fault_record record;
};

/* ------------------------------------------------------------------- advice */

/**
 * uma_advice_at - what was advised for an address
 *
 * Return: UMA_ADVISE_*.
 */
u32 uma_advice_at(struct uma_ctx *ctx, unsigned long va)
{
	void *entry = mtree_load(&ctx->advice, va);

	return entry ? xa_to_value(entry) : UMA_ADVISE_PREFER_DEVICE;
}

/* Where the advice that holds at va ends, at most end. */
static unsigned long uma_advice_end(struct uma_ctx *ctx, unsigned long va, unsigned long end)
{
	MA_STATE(mas, &ctx->advice, va, va);

	mas_lock(&mas);
	mas_walk(&mas);
	if (mas.last != ULONG_MAX)
		end = min(end, mas.last + 1);
	mas_unlock(&mas);
	return end;
}

/* How many ranges a store adds at most. */
static u32 uma_advice_growth(struct uma_ctx *ctx, unsigned long start, unsigned long last, bool forget)
{
	MA_STATE(mas, &ctx->advice, start, start);
	bool splits;

	mas_lock(&mas);
	splits = mas_walk(&mas) && mas.index < start && mas.last > last;
	mas_unlock(&mas);
	return splits + !forget;
}

/**
 * uma_advise - remember advice
 *
 * Return: 0, -EINVAL, -ENOSPC with too many different ranges, -ENOMEM.
 */
int uma_advise(struct uma_ctx *ctx, const struct uma_advise *args)
{
	unsigned long end = args->start + args->length - 1, index = 0;
	u32 count = 0;
	void *entry;
	int ret;

	if (args->flags || args->advice > UMA_ADVISE_READ_MOSTLY)
		return -EINVAL;
	mutex_lock(&ctx->lock);
	mt_for_each(&ctx->advice, entry, index, ULONG_MAX)
		count++;
	count += uma_advice_growth(ctx, args->start, end, args->advice == UMA_ADVISE_NONE);
	if (count > UMA_MAX_ADVICE)
		ret = -ENOSPC;
	else
		ret = mtree_store_range(&ctx->advice, args->start, end,
					args->advice == UMA_ADVISE_NONE ? NULL : xa_mk_value(args->advice),
					GFP_KERNEL);
	mutex_unlock(&ctx->lock);
	return ret;
}

/* ------------------------------------------------------------------ service */

/* Why an access can't be served by any mapping; RETRY if it can. */
static u32 uma_check_vma(struct uma_ctx *ctx, unsigned long va, bool write, unsigned long *start,
			 unsigned long *end)
{
	unsigned long block = ALIGN_DOWN(va, UMA_BLOCK_SIZE);
	u32 result = VIRTIO_UMA_RESULT_RETRY;
	struct vm_area_struct *vma;

	if (mmap_read_lock_killable(ctx->mm))
		return VIRTIO_UMA_RESULT_ASID_GONE;
	vma = vma_lookup(ctx->mm, va);
	if (!vma || !(vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC)))
		result = VIRTIO_UMA_RESULT_NO_MAPPING;
	else if (vma->vm_flags & (VM_IO | VM_PFNMAP | VM_SHADOW_STACK))
		result = VIRTIO_UMA_RESULT_NO_PERMISSION;
	else if (!(vma->vm_flags & (write ? VM_WRITE : VM_READ)))
		result = VIRTIO_UMA_RESULT_NO_PERMISSION;
	if (vma) {
		*start = max(block, vma->vm_start);
		*end = min(block + UMA_BLOCK_SIZE, vma->vm_end);
	}
	mmap_read_unlock(ctx->mm);
	return result;
}

static bool uma_wants_device(struct uma_ctx *ctx, unsigned long va, bool write)
{
	u32 advice = uma_advice_at(ctx, va);

	if (!ctx->ud->mem.enabled)
		return false;
	return advice == UMA_ADVISE_PREFER_DEVICE || (advice == UMA_ADVISE_READ_MOSTLY && write);
}

/*
 * The device writes to a page on it that a fork left shared. Only the CPU's own fault can
 * give the process a copy of its own, so the page comes back as if the CPU had written.
 */
static void uma_unshare(struct uma_ctx *ctx, unsigned long va)
{
	bool unlocked = false;

	if (mmap_read_lock_killable(ctx->mm))
		return;
	fixup_user_fault(ctx->mm, va, FAULT_FLAG_WRITE, &unlocked);
	mmap_read_unlock(ctx->mm);
}

/*
 * Moves what is advised to move of a block. The rest of it is mapped where it is together
 * with the page that faulted, so it will not fault again.
 */
static void uma_move_block(struct uma_ctx *ctx, unsigned long start, unsigned long end, bool write)
{
	struct uma_moved moved = {};
	unsigned long next;

	for (; start < end; start = next) {
		next = uma_advice_end(ctx, start, end);
		if (uma_wants_device(ctx, start, write))
			uma_migrate_to_device(ctx, start, next, UMA_CAUSE_FAULT, &moved);
	}
}

/* Return: VIRTIO_UMA_RESULT_*. */
static u32 uma_serve(struct uma_ctx *ctx, unsigned long va, bool write, u32 *tries)
{
	unsigned long start = 0, end = 0;
	bool moving = true;
	u32 result;
	int ret;

	for (*tries = 1; *tries <= UMA_FAULT_TRIES; ++*tries) {
		if (READ_ONCE(ctx->dead) || uma_is_down(ctx->ud))
			return VIRTIO_UMA_RESULT_ASID_GONE;
		result = uma_check_vma(ctx, va, write, &start, &end);
		if (result != VIRTIO_UMA_RESULT_RETRY)
			return result;
		/* moved once; if something takes it back at once it is mapped where it is then */
		if (moving && uma_wants_device(ctx, va, write))
			uma_move_block(ctx, start, end, write);
		moving = false;
		ret = uma_mirror_map(ctx, start, end, va, write);
		switch (ret) {
		case 0:
			return VIRTIO_UMA_RESULT_RETRY;
		case -EREMOTE:
			uma_unshare(ctx, va);
			continue;
		case -EAGAIN:
		case -EBUSY:
			cond_resched();
			continue;
		case -ENOMEM:
		case -ENOSPC:
			return VIRTIO_UMA_RESULT_NO_MEMORY;
		case -EINTR:
			return VIRTIO_UMA_RESULT_ASID_GONE;
		default:
			/* the mapping may have changed since it was checked */
			result = uma_check_vma(ctx, va, write, &start, &end);
			return result == VIRTIO_UMA_RESULT_RETRY ? VIRTIO_UMA_RESULT_BUS : result;
		}
	}
	/* no error of the access: the device asks again and gets its turn */
	return VIRTIO_UMA_RESULT_RETRY;
}

/* Whether another record's service has brought what this one asks for. */
static bool uma_is_served(struct uma_ctx *ctx, unsigned long va, bool write)
{
	u64 need = VIRTIO_UMA_PTE_PRESENT | (write ? VIRTIO_UMA_PTE_WRITABLE : 0);

	return (uma_mirror_entry(ctx, va) & need) == need;
}

static void uma_answer(struct uma_device *ud, const struct virtio_uma_fault_record *record, u32 result)
{
	struct virtio_uma_fault_response *response;
	struct uma_req *req = uma_req_get(ud, &ud->responses);

	if (!req)
		return;
	response = uma_req_header(ud, req, VIRTIO_UMA_OP_FAULT_RESPONSE, sizeof(*response), &record->asid);
	response->range.start = record->va;
	response->range.end = record->va + PAGE_SIZE;
	response->sequence = record->sequence;
	response->result = result;
	req->reply_size = sizeof(struct virtio_uma_reply_header);
	uma_call(uma_queue_of(ud, ud->config.queues.fault_response, 0), req);
	uma_req_put(req);
}

static void uma_service_work(struct work_struct *work)
{
	struct uma_service *service = container_of(work, struct uma_service, work);
	struct virtio_uma_fault_record *record = &service->record;
	bool write = record->access & VIRTIO_UMA_ACCESS_WRITE;
	u32 result = VIRTIO_UMA_RESULT_ASID_GONE, tries = 0;
	struct uma_ctx *ctx = service->ctx;
	struct uma_device *ud = ctx->ud;

	if (uma_is_served(ctx, record->va, write)) {
		atomic64_inc(&ctx->counters->faults_stale);
		result = VIRTIO_UMA_RESULT_RETRY;
	} else if (mmget_not_zero(ctx->mm)) {
		result = uma_serve(ctx, record->va, write, &tries);
		mmput_async(ctx->mm);
	}
	if (result != VIRTIO_UMA_RESULT_RETRY)
		atomic64_inc(&ctx->counters->faults_failed);
	trace_uma_fault_answered(record->asid.index, record->va, result, tries);
	uma_answer(ud, record, result);
	kfree(service);
	if (atomic_dec_and_test(&ctx->services))
		wake_up_all(&ctx->idle);
	uma_ctx_put(ctx);
	up(&ud->services);
}

static void uma_fault_record(struct uma_device *ud, const struct virtio_uma_fault_record *record)
{
	struct uma_service *service;
	struct uma_ctx *ctx;

	trace_uma_fault(record->asid.index, record->va, record->access, record->sequence);
	ctx = uma_ctx_find(ud, &record->asid);
	if (!ctx)
		return;	/* destroyed meanwhile; the device forgets the record with it */
	atomic64_inc(&ctx->counters->faults);
	atomic64_inc(&ud->totals->faults);
	/* more than the device may have pending means that it does not keep its word: let it wait */
	if (down_timeout(&ud->services, UMA_DEVICE_TIMEOUT)) {
		uma_lose(ud, "more faults than it announced");
		uma_ctx_put(ctx);
		return;
	}
	service = kzalloc(sizeof(*service), GFP_KERNEL | __GFP_NOFAIL);
	INIT_WORK(&service->work, uma_service_work);
	service->ctx = ctx;
	service->record = *record;
	service->record.va &= PAGE_MASK;
	atomic_inc(&ctx->services);
	queue_work(ud->wq, &service->work);
}

/**
 * uma_fault_batch - take the records of a used fault buffer
 * @ud:		the device
 * @buffer:	one page
 * @used:	bytes that the device wrote
 */
void uma_fault_batch(struct uma_device *ud, void *buffer, u32 used)
{
	struct virtio_uma_fault_record *records = buffer + sizeof(struct virtio_uma_fault_batch);
	u32 count = ((struct virtio_uma_fault_batch *)buffer)->count, i;

	if (used < sizeof(struct virtio_uma_fault_batch) ||
	    count > (used - sizeof(struct virtio_uma_fault_batch)) / sizeof(*records)) {
		atomic64_inc(&ud->protocol_errors);
		uma_lose(ud, "a fault buffer with more records than bytes");
		return;
	}
	for (i = 0; i < count; i++)
		uma_fault_record(ud, &records[i]);
}

/* ------------------------------------------------------- prefetch, residency */

static bool uma_range_ok(u64 start, u64 length)
{
	return length && PAGE_ALIGNED(start | length) && start + length > start &&
	       start + length <= TASK_SIZE_MAX;
}

static void uma_count_pages(struct uma_ctx *ctx, const unsigned long *pfns, u32 n, u64 *device, u64 *system)
{
	u32 i;

	for (i = 0; i < n; i++) {
		if (!(pfns[i] & HMM_PFN_VALID))
			continue;
		++*(uma_is_ours(ctx->ud, hmm_pfn_to_page(pfns[i])) ? device : system);
	}
}

/* One block of a prefetch. Return: 0, -EFAULT for a hole between mappings, -ENOMEM, -EINTR. */
static int uma_prefetch_block(struct uma_ctx *ctx, unsigned long start, unsigned long end, bool to_device,
			      unsigned long *pfns, struct uma_moved *moved)
{
	unsigned long at = start, vma_end;
	int ret = 0, moving = 0;

	while (at < end && !moving) {
		struct vm_area_struct *vma;
		u64 device = 0, system = 0;

		if (mmap_read_lock_killable(ctx->mm))
			return -EINTR;
		vma = find_vma(ctx->mm, at);
		if (!vma || vma->vm_start > at) {
			vma_end = vma ? min(end, vma->vm_start) : end;
			mmap_read_unlock(ctx->mm);
			ret = -EFAULT;
			at = vma_end;
			continue;
		}
		vma_end = min(end, vma->vm_end);
		mmap_read_unlock(ctx->mm);
		if (!uma_mirror_snapshot(ctx, at, vma_end, pfns))
			uma_count_pages(ctx, pfns, (vma_end - at) >> PAGE_SHIFT, &device, &system);
		moved->resident += to_device ? device : system;
		moving = to_device ? uma_migrate_to_device(ctx, at, vma_end, UMA_CAUSE_PREFETCH, moved) :
				     uma_migrate_to_system(ctx, at, vma_end, moved);
		at = vma_end;
	}
	/* device memory full of pages in use: they stay where they are, which is no error */
	if (moving == -ENOMEM && to_device)
		moving = 0;
	return moving ?: ret;
}

static int uma_prefetch_now(struct uma_ctx *ctx, struct uma_prefetch *args)
{
	unsigned long at = args->start, end = args->start + args->length;
	struct uma_moved moved = {};
	unsigned long *pfns;
	int ret = 0, block;

	pfns = kvcalloc(UMA_BLOCK_PAGES, sizeof(*pfns), GFP_KERNEL);
	if (!pfns)
		return -ENOMEM;
	while (at < end) {
		unsigned long next = min(end, ALIGN_DOWN(at, UMA_BLOCK_SIZE) + UMA_BLOCK_SIZE);

		block = uma_prefetch_block(ctx, at, next, args->target == UMA_TARGET_DEVICE, pfns, &moved);
		if (block && !ret)
			ret = block;
		if (block && block != -EFAULT)
			break;
		if (uma_is_down(ctx->ud) || fatal_signal_pending(current)) {
			ret = uma_is_down(ctx->ud) ? -ENODEV : -EINTR;
			break;
		}
		at = next;
		cond_resched();
	}
	args->moved = moved.moved;
	args->resident = moved.resident;
	kvfree(pfns);
	return ret;
}

struct uma_prefetch_work {
	struct work_struct work;
	struct uma_ctx *ctx;
	struct uma_prefetch args;
};

static void uma_prefetch_worker(struct work_struct *work)
{
	struct uma_prefetch_work *prefetch = container_of(work, struct uma_prefetch_work, work);
	struct uma_ctx *ctx = prefetch->ctx;

	if (mmget_not_zero(ctx->mm)) {
		uma_prefetch_now(ctx, &prefetch->args);
		mmput_async(ctx->mm);
	}
	kfree(prefetch);
	if (atomic_dec_and_test(&ctx->services))
		wake_up_all(&ctx->idle);
	uma_ctx_put(ctx);
}

/**
 * uma_prefetch - UMA_IOC_PREFETCH
 *
 * Return: as documented in uma.h.
 */
int uma_prefetch(struct uma_ctx *ctx, struct uma_prefetch *args)
{
	struct uma_prefetch_work *prefetch;

	args->moved = 0;
	args->resident = 0;
	if (!uma_range_ok(args->start, args->length) || args->target > UMA_TARGET_DEVICE ||
	    (args->flags & ~UMA_PREFETCH_ASYNC))
		return -EINVAL;
	if (args->target == UMA_TARGET_DEVICE && !ctx->ud->mem.enabled)
		return -EOPNOTSUPP;
	if (!(args->flags & UMA_PREFETCH_ASYNC))
		return uma_prefetch_now(ctx, args);
	prefetch = kzalloc(sizeof(*prefetch), GFP_KERNEL_ACCOUNT);
	if (!prefetch)
		return -ENOMEM;
	INIT_WORK(&prefetch->work, uma_prefetch_worker);
	kref_get(&ctx->ref);
	prefetch->ctx = ctx;
	prefetch->args = *args;
	atomic_inc(&ctx->services);
	queue_work(ctx->ud->wq, &prefetch->work);
	return 0;
}

static u8 uma_where(struct uma_ctx *ctx, struct uma_residency *args, unsigned long va, unsigned long pfn)
{
	u8 where = UMA_PAGE_NONE;

	if (!(pfn & HMM_PFN_VALID)) {
		args->none++;
		return where;
	}
	if (uma_is_ours(ctx->ud, hmm_pfn_to_page(pfn))) {
		where = UMA_PAGE_DEVICE;
		args->device++;
	} else {
		where = UMA_PAGE_SYSTEM;
		args->system++;
	}
	if (hmm_pfn_to_map_order(pfn) >= VIRTIO_UMA_HUGE_SHIFT - PAGE_SHIFT)
		where |= UMA_PAGE_HUGE;
	if (uma_mirror_entry(ctx, va) & VIRTIO_UMA_PTE_PRESENT) {
		where |= UMA_PAGE_MAPPED;
		args->mapped++;
	}
	return where;
}

/**
 * uma_residency - UMA_IOC_RESIDENCY
 *
 * Return: as documented in uma.h.
 */
int uma_residency(struct uma_ctx *ctx, struct uma_residency *args)
{
	unsigned long at = args->start, end = args->start + args->length, *pfns;
	u8 *vec;
	int ret = 0;

	args->system = args->device = args->none = args->mapped = 0;
	if (!uma_range_ok(args->start, args->length) || args->length > UMA_RESIDENCY_MAX)
		return -EINVAL;
	pfns = kvcalloc(UMA_BLOCK_PAGES, sizeof(*pfns) + 1, GFP_KERNEL);
	if (!pfns)
		return -ENOMEM;
	vec = (u8 *)(pfns + UMA_BLOCK_PAGES);
	while (at < end && !ret) {
		unsigned long next = min(end, ALIGN_DOWN(at, UMA_BLOCK_SIZE) + UMA_BLOCK_SIZE);
		u32 n = (next - at) >> PAGE_SHIFT, i;

		ret = uma_mirror_snapshot(ctx, at, next, pfns);
		for (i = 0; !ret && i < n; i++)
			vec[i] = uma_where(ctx, args, at + ((unsigned long)i << PAGE_SHIFT), pfns[i]);
		if (!ret && args->vec &&
		    copy_to_user(u64_to_user_ptr(args->vec + ((at - args->start) >> PAGE_SHIFT)), vec, n))
			ret = -EFAULT;
		if (fatal_signal_pending(current))
			ret = -EINTR;
		at = next;
		cond_resched();
	}
	kvfree(pfns);
	return ret;
}
