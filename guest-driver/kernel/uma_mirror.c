// SPDX-License-Identifier: GPL-2.0
/*
 * uma_mirror.c - mirrored page tables and the notifiers that keep them true
 *
 * DOC: Tables
 *
 * Four levels in the shape of x86-64, in pages of guest RAM that the device reads. A
 * fault service looks pages up with hmm_range_fault(), then stores entries under the
 * mirror lock if no invalidation came in between. Invalidation clears entries under the
 * same lock and then makes the device forget them.
 *
 * DOC: Dirty pages
 *
 * hmm_range_fault() is content with an entry that is writable but clean. The device
 * writes through its own entry, so nobody would ever learn that such a page is dirty:
 * an entry of a system page is writable only after a write fault, and the page is marked
 * dirty in the same critical section. Device pages need no mark.
 *
 * DOC: Watched ranges
 *
 * Interval notifiers of 512 MiB are made as faults come. A smaller range would only cost
 * memory; one over the whole process would make every munmap anywhere retry every fault.
 */
#include <linux/pagemap.h>
#include <linux/slab.h>

#include "uma_drv.h"

#define UMA_LEVELS	4
#define UMA_HMM_TIMEOUT	HZ

static u32 uma_shift(u32 level)
{
	return PAGE_SHIFT + VIRTIO_UMA_PTE_LEVEL_BITS * (level - 1);
}

static u64 *uma_slot(u64 *table, unsigned long va, u32 level)
{
	return &table[(va >> uma_shift(level)) & (VIRTIO_UMA_PTE_ENTRIES - 1)];
}

static u64 *uma_child(u64 entry)
{
	if (!(entry & VIRTIO_UMA_PTE_PRESENT) || (entry & VIRTIO_UMA_PTE_PAGE_SIZE_BIT))
		return NULL;
	return phys_to_virt(entry & VIRTIO_UMA_PTE_FRAME_MASK);
}

/* ------------------------------------------------------------ invalidation */

/* Moves a table that nothing points to any more to the list of those to be freed. */
static void uma_retire_table(struct uma_ctx *ctx, u64 *table)
{
	struct page *page = virt_to_page(table);

	spin_lock(&ctx->ring_lock);
	list_add(&page->lru, &ctx->dead_tables);
	spin_unlock(&ctx->ring_lock);
}

/*
 * Clears one table's entries in start..end; returns whether the device may have used one.
 * A 2 MiB entry that is partly covered goes as a whole: the rest faults again.
 */
static bool uma_clear(struct uma_ctx *ctx, u64 *table, u32 level, unsigned long start,
		      unsigned long end)
{
	unsigned long size = 1UL << uma_shift(level), at = start;
	bool any = false;

	while (at < end) {
		unsigned long next = min(end, (at | (size - 1)) + 1);
		u64 *slot = uma_slot(table, at, level);
		u64 *child = level > 1 ? uma_child(*slot) : NULL;

		if (child && level == 2 && next - at == size) {
			WRITE_ONCE(*slot, 0);
			uma_retire_table(ctx, child);
			any = true;
		} else if (child) {
			any |= uma_clear(ctx, child, level - 1, at, next);
		} else if (*slot) {
			WRITE_ONCE(*slot, 0);
			any = true;
		}
		if (!next)
			break;
		at = next;
	}
	return any;
}

static void uma_free_dead_tables(struct work_struct *work)
{
	struct uma_ctx *ctx = container_of(work, struct uma_ctx, free_tables);
	struct page *page, *next;
	LIST_HEAD(dead);

	/* what is on the list was unlinked before; the handshake makes the device forget it */
	mutex_lock(&ctx->mirror_lock);
	spin_lock(&ctx->ring_lock);
	list_splice_init(&ctx->dead_tables, &dead);
	spin_unlock(&ctx->ring_lock);
	mutex_unlock(&ctx->mirror_lock);
	if (list_empty(&dead))
		return;
	uma_publish(ctx, 0, ~0ULL, true);
	list_for_each_entry_safe(page, next, &dead, lru) {
		list_del(&page->lru);
		__free_page(page);
		atomic_dec(&ctx->nr_tables);
	}
}

static bool uma_invalidate(struct mmu_interval_notifier *notifier,
			   const struct mmu_notifier_range *range, unsigned long seq)
{
	struct uma_interval *interval = container_of(notifier, struct uma_interval, notifier);
	unsigned long start = max(range->start, notifier->interval_tree.start);
	unsigned long end = min(range->end, notifier->interval_tree.last + 1);
	bool may_wait = mmu_notifier_range_blockable(range);
	struct uma_ctx *ctx = interval->ctx;
	bool retired;

	if (may_wait)
		mutex_lock(&ctx->mirror_lock);
	else if (!mutex_trylock(&ctx->mirror_lock))
		return false;
	mmu_interval_set_seq(notifier, seq);
	if (ctx->root)
		uma_clear(ctx, ctx->root, UMA_LEVELS, start, end);
	retired = !list_empty(&ctx->dead_tables);
	mutex_unlock(&ctx->mirror_lock);

	if (range->event == MMU_NOTIFY_RELEASE)
		smp_store_release(&ctx->sync->state, VIRTIO_UMA_ASID_DEAD);
	/*
	 * Also if there was nothing to clear: somebody else may have cleared it and still be
	 * waiting for the EUs, and our caller frees pages when we return.
	 */
	if (!uma_publish(ctx, start, end, may_wait))
		return false;
	if (retired)
		queue_work(ctx->ud->wq, &ctx->free_tables);
	return true;
}

static const struct mmu_interval_notifier_ops uma_interval_ops = {
	.invalidate = uma_invalidate,
};

static struct uma_interval *uma_interval_get(struct uma_ctx *ctx, unsigned long va)
{
	unsigned long index = va >> UMA_INTERVAL_SHIFT;
	struct uma_interval *interval = xa_load(&ctx->intervals, index), *other;
	int ret;

	if (interval)
		return interval;
	if (READ_ONCE(ctx->nr_intervals) >= UMA_MAX_INTERVALS)
		return ERR_PTR(-ENOSPC);
	interval = kzalloc(sizeof(*interval), GFP_KERNEL);
	if (!interval)
		return ERR_PTR(-ENOMEM);
	interval->ctx = ctx;
	ret = mmu_interval_notifier_insert(&interval->notifier, ctx->mm, index << UMA_INTERVAL_SHIFT,
					   1UL << UMA_INTERVAL_SHIFT, &uma_interval_ops);
	if (ret) {
		kfree(interval);
		return ERR_PTR(ret);
	}
	other = xa_cmpxchg(&ctx->intervals, index, NULL, interval, GFP_KERNEL);
	if (!other) {
		mutex_lock(&ctx->lock);
		ctx->nr_intervals++;
		mutex_unlock(&ctx->lock);
		return interval;
	}
	mmu_interval_notifier_remove(&interval->notifier);
	kfree(interval);
	return xa_is_err(other) ? ERR_PTR(xa_err(other)) : other;
}

/* ----------------------------------------------------------------- mapping */

/* Tables for one call, allocated before the mirror lock. */
struct uma_spare {
	struct page *page[UMA_LEVELS - 1];
	u32 count;
};

static int uma_spare_fill(struct uma_ctx *ctx, struct uma_spare *spare)
{
	if (atomic_read(&ctx->nr_tables) > UMA_MAX_TABLES)
		return -ENOMEM;
	while (spare->count < ARRAY_SIZE(spare->page)) {
		struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);

		if (!page)
			return -ENOMEM;
		spare->page[spare->count++] = page;
	}
	return 0;
}

static void uma_spare_free(struct uma_spare *spare)
{
	while (spare->count)
		__free_page(spare->page[--spare->count]);
}

/* The slot for va in the table at level 1 or 2; NULL if a large page is in the way. */
static u64 *uma_slot_make(struct uma_ctx *ctx, unsigned long va, u32 level, struct uma_spare *spare)
{
	u64 *table = ctx->root, *slot;
	u32 at;

	for (at = UMA_LEVELS; at > level; at--) {
		slot = uma_slot(table, va, at);
		if (!*slot) {
			struct page *page = spare->page[--spare->count];

			atomic_inc(&ctx->nr_tables);
			smp_store_release(slot, page_to_phys(page) | VIRTIO_UMA_PTE_PRESENT |
					  VIRTIO_UMA_PTE_WRITABLE | VIRTIO_UMA_PTE_USER);
		}
		table = uma_child(*slot);
		if (!table)
			return NULL;
	}
	return uma_slot(table, va, level);
}

static u64 uma_entry(struct uma_ctx *ctx, unsigned long pfn, bool write)
{
	struct page *page = hmm_pfn_to_page(pfn);
	bool local = uma_is_ours(ctx->ud, page);
	bool writable = (pfn & HMM_PFN_WRITE) && (write || local);
	u64 entry = VIRTIO_UMA_PTE_PRESENT | VIRTIO_UMA_PTE_USER | VIRTIO_UMA_PTE_ACCESSED;

	if (writable)
		entry |= VIRTIO_UMA_PTE_WRITABLE | VIRTIO_UMA_PTE_DIRTY;
	if (local)
		return entry | uma_page_dpa(page) | VIRTIO_UMA_PTE_LOCAL;
	return entry | page_to_phys(page);
}

/* Whether all of a 2 MiB block can be one entry. */
static bool uma_is_large(struct uma_ctx *ctx, const unsigned long *pfns, unsigned long start,
			 unsigned long end, bool write)
{
	u64 first, i;

	if (end - start != UMA_BLOCK_SIZE || !IS_ALIGNED(start, UMA_BLOCK_SIZE))
		return false;
	if (!(pfns[0] & HMM_PFN_VALID))
		return false;
	first = uma_entry(ctx, pfns[0], write);
	if (!IS_ALIGNED(first & VIRTIO_UMA_PTE_FRAME_MASK, UMA_BLOCK_SIZE))
		return false;
	for (i = 1; i < UMA_BLOCK_PAGES; i++)
		if (!(pfns[i] & HMM_PFN_VALID) || uma_entry(ctx, pfns[i], write) != first + (i << PAGE_SHIFT))
			return false;
	return true;
}

static void uma_account(struct uma_ctx *ctx, struct page *page, u64 entry, u64 old)
{
	if (entry & VIRTIO_UMA_PTE_LOCAL)
		return;
	if (entry & VIRTIO_UMA_PTE_WRITABLE)
		folio_mark_dirty(page_folio(page));
	if (!(old & VIRTIO_UMA_PTE_PRESENT))
		atomic64_inc(&ctx->counters->mapped_in_place);
}

/* Stores what hmm found. Under the mirror lock, with the sequence checked. */
static void uma_store(struct uma_ctx *ctx, const unsigned long *pfns, unsigned long start,
		      unsigned long end, bool write, struct uma_spare *spare)
{
	unsigned long va;
	u64 *slot;

	if (uma_is_large(ctx, pfns, start, end, write)) {
		slot = uma_slot_make(ctx, start, 2, spare);
		if (slot && !uma_child(*slot)) {
			u64 entry = uma_entry(ctx, pfns[0], write) | VIRTIO_UMA_PTE_PAGE_SIZE_BIT;
			u32 i;

			for (i = 0; i < UMA_BLOCK_PAGES; i++)
				uma_account(ctx, hmm_pfn_to_page(pfns[i]), entry, *slot);
			smp_store_release(slot, entry);
			return;
		}
	}
	slot = uma_slot_make(ctx, start, 2, spare);
	if (slot && (*slot & VIRTIO_UMA_PTE_PAGE_SIZE_BIT)) {
		/* finer now: what the device has of the large page stays right until it is dropped */
		WRITE_ONCE(*slot, 0);
		uma_publish(ctx, start & ~(UMA_BLOCK_SIZE - 1), (start & ~(UMA_BLOCK_SIZE - 1)) + UMA_BLOCK_SIZE,
			    true);
	}
	for (va = start; va < end; va += PAGE_SIZE) {
		unsigned long pfn = pfns[(va - start) >> PAGE_SHIFT];
		u64 entry;

		if (!(pfn & HMM_PFN_VALID))
			continue;
		slot = uma_slot_make(ctx, va, 1, spare);
		if (!slot)
			return;
		entry = uma_entry(ctx, pfn, write);
		uma_account(ctx, hmm_pfn_to_page(pfn), entry, *slot);
		smp_store_release(slot, entry);
	}
}

/* The page that faulted was served: if it is on the device its block is the last to be evicted. */
static void uma_touch(struct uma_ctx *ctx, unsigned long pfn)
{
	struct page *page = hmm_pfn_to_page(pfn);

	if ((pfn & HMM_PFN_VALID) && uma_is_ours(ctx->ud, page))
		uma_block_touch(ctx->ud, uma_page_block(page));
}

static int uma_lookup(struct uma_ctx *ctx, struct hmm_range *range, unsigned long va, bool fault,
		      bool write)
{
	memset(range->hmm_pfns, 0, ((range->end - range->start) >> PAGE_SHIFT) * sizeof(long));
	range->pfn_flags_mask = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE;
	range->dev_private_owner = ctx->ud;
	if (fault)
		range->hmm_pfns[(va - range->start) >> PAGE_SHIFT] =
			HMM_PFN_REQ_FAULT | (write ? HMM_PFN_REQ_WRITE : 0);
	return uma_range_fault(range, UMA_HMM_TIMEOUT);
}

/**
 * uma_mirror_map - map what is there of a range, and one page for certain
 * @ctx:	the context; the caller holds a reference to its mm
 * @start:	first address
 * @end:	address behind the last, in the same 2 MiB block
 * @va:		page that is faulted in
 * @write:	whether it has to be writable
 *
 * Return: 0; -EAGAIN if an invalidation came in between; -EFAULT if @va can't be accessed
 * so; -EREMOTE if it is on the device and has to be written, but is shared with another
 * process since a fork; -ENOMEM, -EINTR, -EBUSY.
 */
int uma_mirror_map(struct uma_ctx *ctx, unsigned long start, unsigned long end, unsigned long va,
		   bool write)
{
	struct uma_interval *interval = uma_interval_get(ctx, va);
	struct hmm_range range = { .start = start, .end = end };
	struct uma_spare spare = {};
	int ret;

	if (IS_ERR(interval))
		return PTR_ERR(interval);
	range.notifier = &interval->notifier;
	range.hmm_pfns = kvcalloc(UMA_BLOCK_PAGES, sizeof(long), GFP_KERNEL);
	ret = range.hmm_pfns ? uma_spare_fill(ctx, &spare) : -ENOMEM;
	if (ret)
		goto out;
	ret = uma_lookup(ctx, &range, va, true, write);
	if (ret && end - start > PAGE_SIZE) {
		/* a neighbour may be what failed */
		range.start = va;
		range.end = va + PAGE_SIZE;
		ret = uma_lookup(ctx, &range, va, true, write);
	}
	if (ret)
		goto out;
	if (write && !(range.hmm_pfns[(va - range.start) >> PAGE_SHIFT] & HMM_PFN_WRITE)) {
		/* hmm reports pages of our own as they are, even where a write was asked for */
		ret = -EREMOTE;
		goto out;
	}
	mutex_lock(&ctx->mirror_lock);
	if (mmu_interval_read_retry(&interval->notifier, range.notifier_seq))
		ret = -EAGAIN;
	else if (ctx->root)
		uma_store(ctx, range.hmm_pfns, range.start, range.end, write, &spare);
	if (!ret)
		uma_touch(ctx, range.hmm_pfns[(va - range.start) >> PAGE_SHIFT]);
	mutex_unlock(&ctx->mirror_lock);
out:
	uma_spare_free(&spare);
	kvfree(range.hmm_pfns);
	return ret;
}

/**
 * uma_mirror_snapshot - look up pages without faulting
 * @ctx:	the context; the caller holds a reference to its mm
 * @start:	first address
 * @end:	address behind the last, in the same 2 MiB block
 * @pfns:	one word per page, HMM_PFN_*
 *
 * Return: 0 or an errno of hmm_range_fault().
 */
int uma_mirror_snapshot(struct uma_ctx *ctx, unsigned long start, unsigned long end,
			unsigned long *pfns)
{
	struct uma_interval *interval = uma_interval_get(ctx, start);
	struct hmm_range range = { .start = start, .end = end, .hmm_pfns = pfns };

	if (IS_ERR(interval))
		return PTR_ERR(interval);
	range.notifier = &interval->notifier;
	return uma_lookup(ctx, &range, start, false, false);
}

/**
 * uma_mirror_entry - the device's entry for a page
 * @ctx:	the context
 * @va:		the page
 *
 * Return: the entry, of whatever size; not present if there is none.
 */
u64 uma_mirror_entry(struct uma_ctx *ctx, unsigned long va)
{
	u64 *table, entry = 0;
	u32 level;

	mutex_lock(&ctx->mirror_lock);
	table = ctx->root;
	for (level = UMA_LEVELS; table && level; level--) {
		entry = *uma_slot(table, va, level);
		table = level > 1 ? uma_child(entry) : NULL;
	}
	mutex_unlock(&ctx->mirror_lock);
	return entry;
}

/* ------------------------------------------------------------ life and death */

/**
 * uma_mirror_init - make an empty table and a sync page
 * @ctx:	the context
 *
 * Return: 0 or -ENOMEM; uma_mirror_fini() is right in both cases.
 */
int uma_mirror_init(struct uma_ctx *ctx)
{
	BUILD_BUG_ON(sizeof(*ctx->sync) +
		     VIRTIO_UMA_MAX_RING_ENTRIES * sizeof(struct virtio_uma_ring_slot) > PAGE_SIZE);

	xa_init(&ctx->intervals);
	INIT_LIST_HEAD(&ctx->dead_tables);
	INIT_WORK(&ctx->free_tables, uma_free_dead_tables);
	ctx->root = (u64 *)get_zeroed_page(GFP_KERNEL);
	ctx->sync = (void *)get_zeroed_page(GFP_KERNEL);
	if (!ctx->root || !ctx->sync)
		return -ENOMEM;
	ctx->sync->state = VIRTIO_UMA_ASID_LIVE;
	return 0;
}

static void uma_free_tables(u64 *table, u32 level)
{
	u32 i;

	for (i = 0; level > 1 && i < VIRTIO_UMA_PTE_ENTRIES; i++) {
		u64 *child = uma_child(table[i]);

		if (child)
			uma_free_tables(child, level - 1);
	}
	free_page((unsigned long)table);
}

/**
 * uma_mirror_fini - free tables and notifiers
 * @ctx:	the context; the device does not use its address space any more
 */
void uma_mirror_fini(struct uma_ctx *ctx)
{
	struct page *page, *next;
	struct uma_interval *interval;
	unsigned long index;

	xa_for_each(&ctx->intervals, index, interval) {
		mmu_interval_notifier_remove(&interval->notifier);
		kfree(interval);
	}
	xa_destroy(&ctx->intervals);
	cancel_work_sync(&ctx->free_tables);
	list_for_each_entry_safe(page, next, &ctx->dead_tables, lru)
		__free_page(page);
	if (ctx->root)
		uma_free_tables(ctx->root, UMA_LEVELS);
	ctx->root = NULL;
	free_page((unsigned long)ctx->sync);
	ctx->sync = NULL;
}
