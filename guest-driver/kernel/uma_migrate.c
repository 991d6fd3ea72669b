// SPDX-License-Identifier: GPL-2.0
/*
 * uma_migrate.c - pages to the device, and back on request
 *
 * DOC: Reserve first
 *
 * Nothing is evicted and no memory is reclaimed while a migration holds collected pages:
 * the device block (or the system pages) and the buffers are in hand before
 * migrate_vma_setup(). Migration is best effort: a page that somebody holds stays where it
 * is and is mapped there.
 *
 * DOC: Units
 *
 * At most one 2 MiB block at a time. It moves as one 2 MiB folio where the source is one
 * or the whole block is empty, and page by page in one request otherwise. Holes and zero
 * pages are not copied but zeroed on the device.
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "uma_drv.h"
#include "uma_trace.h"

/**
 * uma_migrate_requests - have the device move pages, and wait
 * @ud:		the device
 * @urgent:	on the urgent queue
 * @entries:	what to move
 * @status:	out: VIRTIO_UMA_S_* per entry
 * @count:	entries
 *
 * Return: 0 if the device answered, whatever the statuses; otherwise as uma_call(). After
 * -ETIMEDOUT the device may still write to what the entries name.
 */
int uma_migrate_requests(struct uma_device *ud, bool urgent, struct virtio_uma_migrate_entry *entries,
			 u16 *status, u32 count)
{
	struct virtio_uma_migrate_header *head;
	struct virtio_uma_reply_header *reply;
	u32 reply_size = sizeof(*reply) + ALIGN(count * 2, 8);
	struct uma_req *req;
	int ret;

	req = uma_req_get(ud, urgent ? &ud->urgent : &ud->bulk);
	if (!req)
		return -ENODEV;
	head = uma_req_header(ud, req, VIRTIO_UMA_OP_MIGRATE, sizeof(*head) + count * sizeof(*entries), NULL);
	head->count = count;
	memcpy(head + 1, entries, count * sizeof(*entries));
	req->reply_size = reply_size;
	reply = req->reply;
	ret = uma_call(uma_queue_of(ud, urgent ? ud->config.queues.migrate_urgent :
				    ud->config.queues.migrate_bulk, 0), req);
	if (!ret && reply->status != VIRTIO_UMA_S_OK && reply->status != VIRTIO_UMA_S_PARTIAL)
		ret = uma_status_errno(reply->status);
	else if (!ret && req->used != reply_size)
		ret = -EPROTO;
	if (!ret)
		memcpy(status, reply + 1, count * sizeof(*status));
	uma_req_put(req);
	return ret;
}

#if UMA_HAVE_PRIVATE

/* Everything that one block's migration needs; 22 KiB. */
struct uma_batch {
	unsigned long src[UMA_BLOCK_PAGES];
	unsigned long dst[UMA_BLOCK_PAGES];
	struct virtio_uma_migrate_entry entries[UMA_BLOCK_PAGES];
	u16 status[UMA_BLOCK_PAGES];
	u16 index[UMA_BLOCK_PAGES];	/* entry to page */
	u32 count;
};

static void uma_batch_add(struct uma_batch *batch, u32 page, u16 op, u64 addr, u64 dpa, u32 order)
{
	struct virtio_uma_migrate_entry *entry = &batch->entries[batch->count];

	entry->addr = addr;
	entry->dpa = dpa;
	entry->op = op;
	entry->order = order;
	batch->index[batch->count++] = page;
}

/* Takes a destination back that will not be used. */
static void uma_drop_dst(unsigned long *dst)
{
	struct page *page = migrate_pfn_to_page(*dst);

	*dst = 0;
	if (page) {
		unlock_page(page);
		put_page(page);
	}
}

/* Runs the requests of a batch; destinations of entries that failed are taken back. */
static void uma_batch_run(struct uma_device *ud, struct uma_batch *batch, bool urgent)
{
	int ret = -ENODEV;
	u32 i;

	if (!batch->count)
		return;
	if (!READ_ONCE(ud->lost))
		ret = uma_migrate_requests(ud, urgent, batch->entries, batch->status, batch->count);
	for (i = 0; i < batch->count; i++) {
		if (!ret && batch->status[i] == VIRTIO_UMA_S_OK)
			continue;
		if (ret == -ETIMEDOUT) {
			/* still the device's: this reference is never given up */
			get_page(migrate_pfn_to_page(batch->dst[batch->index[i]]));
			atomic64_add(1 << batch->entries[i].order, &ud->mem.quarantined);
		}
		uma_drop_dst(&batch->dst[batch->index[i]]);
	}
}

/* ------------------------------------------------------------- to the device */

static void uma_push_pages(struct uma_ctx *ctx, struct migrate_vma *args, struct uma_batch *batch,
			   struct uma_block *block)
{
	u32 base = (args->start & (UMA_BLOCK_SIZE - 1)) >> PAGE_SHIFT, i, order;
	struct uma_device *ud = ctx->ud;

	for (i = 0; i < args->npages; i += 1U << order) {
		struct page *spage = migrate_pfn_to_page(batch->src[i]), *dpage;

		order = 0;
		if (!(batch->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		if (batch->src[i] & MIGRATE_PFN_COMPOUND)
			order = VIRTIO_UMA_HUGE_SHIFT - PAGE_SHIFT;
		dpage = uma_block_page(ud, block, base + i, order, ctx->counters);
		batch->dst[i] = migrate_pfn(page_to_pfn(dpage)) |
			(order ? MIGRATE_PFN_COMPOUND : 0) |
			(batch->src[i] & MIGRATE_PFN_WRITE ? MIGRATE_PFN_WRITE : 0);
		uma_batch_add(batch, i, spage ? VIRTIO_UMA_MIG_TO_DEVICE : VIRTIO_UMA_MIG_ZERO,
			      spage ? page_to_phys(spage) : 0, uma_page_dpa(dpage), order);
	}
}

static u64 uma_count_pushed(struct uma_ctx *ctx, struct migrate_vma *args, struct uma_batch *batch,
			    enum uma_cause cause)
{
	u64 pages = 0, zeroed = 0, huge = 0;
	u32 i;

	for (i = 0; i < batch->count; i++) {
		u32 at = batch->index[i], nr = 1U << batch->entries[i].order;

		if (!batch->dst[at] || !(batch->src[at] & MIGRATE_PFN_MIGRATE))
			continue;
		pages += nr;
		huge += nr > 1;
		if (batch->entries[i].op == VIRTIO_UMA_MIG_ZERO)
			zeroed += nr;
	}
	atomic64_add(pages, &ctx->counters->to_device[cause]);
	atomic64_add(pages, &ctx->ud->totals->to_device[cause]);
	atomic64_add(zeroed, &ctx->counters->zero_filled);
	atomic64_add(zeroed, &ctx->ud->totals->zero_filled);
	atomic64_add(huge, &ctx->counters->huge_to_device);
	atomic64_add(huge, &ctx->ud->totals->huge_to_device);
	trace_uma_migrate(true, cause, args->start, pages, huge);
	return pages;
}

static bool uma_can_move(struct vm_area_struct *vma)
{
	return vma_is_anonymous(vma) && !(vma->vm_flags & (VM_SPECIAL | VM_HUGETLB | VM_SHADOW_STACK));
}

static int uma_push(struct uma_ctx *ctx, unsigned long start, unsigned long end, enum uma_cause cause,
		    struct uma_batch *batch, struct uma_block *block, u64 *moved)
{
	struct migrate_vma args = { .src = batch->src, .dst = batch->dst, .pgmap_owner = ctx->ud,
				    .flags = MIGRATE_VMA_SELECT_SYSTEM };
	int ret = 0;

	mmap_read_lock(ctx->mm);
	args.vma = vma_lookup(ctx->mm, start);
	if (!args.vma || !uma_can_move(args.vma))
		goto out;
	args.start = start;
	args.end = min(end, args.vma->vm_end);
	if (ctx->ud->mem.large && args.end - args.start == UMA_BLOCK_SIZE &&
	    IS_ALIGNED(args.start, UMA_BLOCK_SIZE) && !(args.vma->vm_flags & VM_NOHUGEPAGE))
		args.flags |= MIGRATE_VMA_SELECT_COMPOUND;
	ret = migrate_vma_setup(&args);
	if (ret)
		goto out;
	if (args.cpages) {
		uma_push_pages(ctx, &args, batch, block);
		uma_batch_run(ctx->ud, batch, false);
		migrate_vma_pages(&args);
		*moved += uma_count_pushed(ctx, &args, batch, cause);
	}
	migrate_vma_finalize(&args);
out:
	mmap_read_unlock(ctx->mm);
	return ret;
}

/**
 * uma_migrate_to_device - move what can be moved of a range
 * @ctx:	the context; the caller holds a reference to its mm, but not mmap_lock
 * @start:	first address
 * @end:	address behind the last, in the same 2 MiB block and VMA
 * @cause:	UMA_CAUSE_FAULT or UMA_CAUSE_PREFETCH
 * @moved:	pages that moved are added
 *
 * Return: 0 if it was tried; -ENOMEM without memory, also of the device; -EOPNOTSUPP.
 */
int uma_migrate_to_device(struct uma_ctx *ctx, unsigned long start, unsigned long end,
			  enum uma_cause cause, struct uma_moved *moved)
{
	struct uma_block *block;
	struct uma_batch *batch;
	int ret;

	if (!ctx->ud->mem.enabled)
		return -EOPNOTSUPP;
	batch = kvzalloc(sizeof(*batch), GFP_KERNEL);
	if (!batch)
		return -ENOMEM;
	block = uma_block_take(ctx->ud);
	if (!block) {
		kvfree(batch);
		return -ENOMEM;
	}
	ret = uma_push(ctx, start, end, cause, batch, block, &moved->moved);
	uma_block_return(ctx->ud, block);
	kvfree(batch);
	return ret;
}

/* ----------------------------------------------------------------- to system */

/* System memory in hand: a large folio or single pages. */
struct uma_reserve {
	struct folio *large;
	struct list_head pages;
};

enum uma_want {
	UMA_WANT_SINGLE,
	UMA_WANT_LARGE,		/* single ones only if there is no large one */
	UMA_WANT_BOTH,		/* it is not known yet what the source is */
};

static void uma_reserve_fill(struct uma_reserve *reserve, struct vm_area_struct *vma, unsigned long addr,
			     u32 pages, enum uma_want want)
{
	INIT_LIST_HEAD(&reserve->pages);
	reserve->large = NULL;
	if (want != UMA_WANT_SINGLE) {
		reserve->large = vma ? vma_alloc_folio(GFP_TRANSHUGE_LIGHT, VIRTIO_UMA_HUGE_SHIFT - PAGE_SHIFT,
						       vma, addr) :
				       folio_alloc(GFP_TRANSHUGE, VIRTIO_UMA_HUGE_SHIFT - PAGE_SHIFT);
		if (reserve->large && want == UMA_WANT_LARGE)
			return;
	}
	while (pages--) {
		struct page *page = alloc_page(GFP_HIGHUSER_MOVABLE | __GFP_NORETRY | __GFP_NOWARN);

		if (!page)
			page = list_empty(&reserve->pages) ? alloc_page(GFP_HIGHUSER_MOVABLE) : NULL;
		if (!page)
			return;
		list_add(&page->lru, &reserve->pages);
	}
}

static struct page *uma_reserve_page(struct uma_reserve *reserve)
{
	struct page *page = list_first_entry_or_null(&reserve->pages, struct page, lru);

	if (page)
		list_del(&page->lru);
	return page;
}

static void uma_reserve_free(struct uma_reserve *reserve)
{
	struct page *page;

	if (reserve->large)
		folio_put(reserve->large);
	while ((page = uma_reserve_page(reserve)))
		__free_page(page);
}

/* Chooses destinations for collected device pages. */
static void uma_pull_pages(struct uma_batch *batch, u32 npages, struct uma_reserve *reserve)
{
	u32 i, j, order;

	for (i = 0; i < npages; i += 1U << order) {
		struct page *spage = migrate_pfn_to_page(batch->src[i]), *dpage;
		unsigned long write = batch->src[i] & MIGRATE_PFN_WRITE;

		order = 0;
		if (!spage || !(batch->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		if (batch->src[i] & MIGRATE_PFN_COMPOUND)
			order = folio_order(page_folio(spage));
		if (order == VIRTIO_UMA_HUGE_SHIFT - PAGE_SHIFT && reserve->large) {
			dpage = folio_page(reserve->large, 0);
			reserve->large = NULL;
			lock_page(dpage);
			batch->dst[i] = migrate_pfn(page_to_pfn(dpage)) | MIGRATE_PFN_COMPOUND | write;
			uma_batch_add(batch, i, VIRTIO_UMA_MIG_TO_SYSTEM, page_to_phys(dpage),
				      uma_page_dpa(spage), order);
			continue;
		}
		for (j = 0; j < 1U << order; j++) {
			dpage = uma_reserve_page(reserve);
			if (!dpage)
				break;
			lock_page(dpage);
			batch->dst[i + j] = migrate_pfn(page_to_pfn(dpage)) | write;
			uma_batch_add(batch, i + j, VIRTIO_UMA_MIG_TO_SYSTEM, page_to_phys(dpage),
				      uma_page_dpa(spage) + ((u64)j << PAGE_SHIFT), 0);
		}
		if (j < 1U << order) {
			/* a folio moves as a whole or not at all */
			while (j--) {
				batch->count--;
				uma_drop_dst(&batch->dst[i + j]);
			}
		}
	}
}

static u64 uma_count_pulled(struct uma_device *ud, struct uma_batch *batch, struct uma_counters **owners,
			    enum uma_cause cause, u64 start)
{
	u64 pages = 0, huge = 0;
	u32 i;

	for (i = 0; i < batch->count; i++) {
		u32 at = batch->index[i], nr = 1U << batch->entries[i].order;

		if (!batch->dst[at] || !(batch->src[at] & MIGRATE_PFN_MIGRATE))
			continue;
		pages += nr;
		huge += nr > 1;
		if (owners[at]) {
			atomic64_add(nr, &owners[at]->to_system[cause]);
			atomic64_add(nr > 1, &owners[at]->huge_to_system);
		}
	}
	atomic64_add(pages, &ud->totals->to_system[cause]);
	atomic64_add(huge, &ud->totals->huge_to_system);
	trace_uma_migrate(false, cause, start, pages, huge);
	return pages;
}

/* The counters of each source page, with a reference: the page may be gone when it is counted. */
static void uma_note_owners(struct uma_batch *batch, u32 npages, struct uma_counters **owners)
{
	u32 i, j;

	for (i = 0; i < npages; i++) {
		struct page *page = migrate_pfn_to_page(batch->src[i]);
		struct uma_counters *owner;
		u32 nr = 1;

		if (!page || !(batch->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		owner = uma_page_counters(page);
		if (batch->src[i] & MIGRATE_PFN_COMPOUND)
			nr = min_t(u32, folio_nr_pages(page_folio(page)), npages - i);
		for (j = 0; j < nr; j++) {
			if (owner)
				refcount_inc(&owner->ref);
			owners[i + j] = owner;
		}
		i += nr - 1;
	}
}

static void uma_put_owners(struct uma_counters **owners, u32 npages)
{
	u32 i;

	for (i = 0; i < npages; i++)
		if (owners[i])
			uma_counters_put(owners[i]);
}

/**
 * uma_pull - bring pages of a range back; mmap_lock or the VMA's lock is held
 */
static int uma_pull(struct uma_device *ud, struct migrate_vma *args, enum uma_cause cause, bool urgent,
		    enum uma_want want, u64 *moved)
{
	u32 npages = (args->end - args->start) >> PAGE_SHIFT;
	struct uma_counters **owners;
	struct uma_reserve reserve;
	struct uma_batch *batch;
	int ret = -ENOMEM;

	batch = kvzalloc(sizeof(*batch), GFP_KERNEL);
	owners = kvcalloc(UMA_BLOCK_PAGES, sizeof(*owners), GFP_KERNEL);
	if (!batch || !owners)
		goto free;
	args->src = batch->src;
	args->dst = batch->dst;
	args->pgmap_owner = ud;
	args->flags = MIGRATE_VMA_SELECT_DEVICE_PRIVATE;
	if (npages == UMA_BLOCK_PAGES && ud->mem.large)
		args->flags |= MIGRATE_VMA_SELECT_COMPOUND;
	if (npages != UMA_BLOCK_PAGES || !ud->mem.large)
		want = UMA_WANT_SINGLE;
	uma_reserve_fill(&reserve, args->vma, args->start, npages, want);
	ret = migrate_vma_setup(args);
	if (ret)
		goto reserve;
	if (args->cpages) {
		uma_note_owners(batch, npages, owners);
		uma_pull_pages(batch, npages, &reserve);
		uma_batch_run(ud, batch, urgent);
		migrate_vma_pages(args);
		*moved += uma_count_pulled(ud, batch, owners, cause, args->start);
	}
	migrate_vma_finalize(args);
	uma_put_owners(owners, npages);
reserve:
	uma_reserve_free(&reserve);
free:
	kvfree(owners);
	kvfree(batch);
	return ret;
}

/**
 * uma_migrate_to_system - bring a range back
 * @ctx:	the context; the caller holds a reference to its mm, but not mmap_lock
 * @start:	first address
 * @end:	address behind the last, in the same 2 MiB block and VMA
 * @moved:	pages that moved are added
 *
 * Return: 0 if it was tried, or -ENOMEM.
 */
int uma_migrate_to_system(struct uma_ctx *ctx, unsigned long start, unsigned long end,
			  struct uma_moved *moved)
{
	struct migrate_vma args = { .start = start };
	int ret = 0;

	mmap_read_lock(ctx->mm);
	args.vma = vma_lookup(ctx->mm, start);
	if (args.vma && uma_can_move(args.vma)) {
		args.end = min(end, args.vma->vm_end);
		ret = uma_pull(ctx->ud, &args, UMA_CAUSE_PREFETCH, false, UMA_WANT_BOTH, &moved->moved);
	}
	mmap_read_unlock(ctx->mm);
	return ret;
}

/**
 * uma_migrate_to_ram - the CPU touched a device page
 * @vmf:	the fault; the page is locked
 *
 * Brings the whole 2 MiB block back as far as it is in the same VMA: who touches one page
 * of it usually touches the next, and each fault costs a request.
 *
 * Return: 0; VM_FAULT_SIGBUS if the device is lost, VM_FAULT_OOM without memory.
 */
vm_fault_t uma_migrate_to_ram(struct vm_fault *vmf)
{
	struct uma_device *ud = page_pgmap(vmf->page)->owner;
	struct uma_counters *owner = uma_page_counters(vmf->page);
	unsigned long block = ALIGN_DOWN(vmf->address, UMA_BLOCK_SIZE);
	struct migrate_vma args = { .vma = vmf->vma, .fault_page = vmf->page };
	u64 moved = 0;
	int ret;

	if (READ_ONCE(ud->lost))
		return VM_FAULT_SIGBUS;
	if (owner)
		atomic64_inc(&owner->cpu_faults);
	atomic64_inc(&ud->totals->cpu_faults);
	args.start = max(block, vmf->vma->vm_start);
	args.end = min(block + UMA_BLOCK_SIZE, vmf->vma->vm_end);
	/* a fault at the level of the PMD is on a large folio */
	ret = uma_pull(ud, &args, UMA_CAUSE_CPU, true, vmf->pte ? UMA_WANT_SINGLE : UMA_WANT_LARGE, &moved);
	if (READ_ONCE(ud->lost))
		return VM_FAULT_SIGBUS;
	return ret == -ENOMEM ? VM_FAULT_OOM : ret ? VM_FAULT_SIGBUS : 0;
}

/* -------------------------------------------------------------------- evict */

/**
 * uma_evict_block - bring back everything that is in a block
 * @ud:		the device
 * @block:	in hand
 * @cause:	UMA_CAUSE_EVICT or UMA_CAUSE_RELEASE
 *
 * Return: 0 if it was tried, or -ENOMEM.
 */
int uma_evict_block(struct uma_device *ud, struct uma_block *block, enum uma_cause cause)
{
	struct uma_counters **owners;
	struct uma_reserve reserve;
	struct uma_batch *batch;
	int ret = -ENOMEM;
	bool large;

	batch = kvzalloc(sizeof(*batch), GFP_KERNEL);
	owners = kvcalloc(UMA_BLOCK_PAGES, sizeof(*owners), GFP_KERNEL);
	if (!batch || !owners)
		goto free;
	large = block->used == UMA_BLOCK_PAGES && folio_test_large(page_folio(pfn_to_page(block->first_pfn)));
	uma_reserve_fill(&reserve, NULL, 0, block->used, large ? UMA_WANT_LARGE : UMA_WANT_SINGLE);
	ret = migrate_device_range(batch->src, block->first_pfn, UMA_BLOCK_PAGES);
	if (!ret) {
		uma_note_owners(batch, UMA_BLOCK_PAGES, owners);
		uma_pull_pages(batch, UMA_BLOCK_PAGES, &reserve);
		uma_batch_run(ud, batch, true);
		migrate_device_pages(batch->src, batch->dst, UMA_BLOCK_PAGES);
		uma_count_pulled(ud, batch, owners, cause, block->dpa);
		migrate_device_finalize(batch->src, batch->dst, UMA_BLOCK_PAGES);
		uma_put_owners(owners, UMA_BLOCK_PAGES);
	}
	uma_reserve_free(&reserve);
free:
	kvfree(owners);
	kvfree(batch);
	return ret;
}

#else

int uma_migrate_to_device(struct uma_ctx *ctx, unsigned long start, unsigned long end,
			  enum uma_cause cause, struct uma_moved *moved)
{
	return -EOPNOTSUPP;
}

int uma_migrate_to_system(struct uma_ctx *ctx, unsigned long start, unsigned long end,
			  struct uma_moved *moved)
{
	return 0;
}

#endif
