// SPDX-License-Identifier: GPL-2.0
/*
 * uma_devmem.c - device memory as DEVICE_PRIVATE pages
 *
 * DOC: Blocks
 *
 * Device memory is handed out from blocks of 2 MiB. A service takes a whole block, uses
 * the pages it needs and returns the block; so a 2 MiB range of a process lies in one
 * block, in order, even when it moves page by page. struct page exists for chunks of
 * 256 MiB that are made when they are needed: 512 GiB at once would cost 8 GiB.
 *
 * DOC: Contents
 *
 * A page that is handed out is wholly overwritten by a copy or zeroed by the device, so
 * nobody sees what was there before. Empty blocks are given back to the host by a worker,
 * some time after they became empty.
 *
 * DOC: Counters
 *
 * zone_device_data of a page points to the counters of the context that brought it, which
 * hold one reference per page and outlive the context.
 */
#include <linux/slab.h>

#include "uma_drv.h"

#define UMA_DISCARD_DELAY	(HZ / 10)
#define UMA_DISCARD_BATCH	64
#define UMA_EVICT_TRIES		32

#if UMA_HAVE_PRIVATE

static struct uma_chunk *uma_page_chunk(struct page *page)
{
	return container_of(page_pgmap(page), struct uma_chunk, pagemap);
}

struct uma_block *uma_page_block(struct page *page)
{
	struct uma_chunk *chunk = uma_page_chunk(page);

	return &chunk->blocks[(page_to_pfn(page) - chunk->blocks[0].first_pfn) / UMA_BLOCK_PAGES];
}

u64 uma_page_dpa(struct page *page)
{
	struct uma_block *block = uma_page_block(page);

	return block->dpa + ((u64)(page_to_pfn(page) - block->first_pfn) << PAGE_SHIFT);
}

bool uma_is_ours(struct uma_device *ud, struct page *page)
{
	return is_device_private_page(page) && page_pgmap(page)->owner == ud;
}

struct uma_counters *uma_page_counters(struct page *page)
{
	return folio_zone_device_data(page_folio(page));
}

/*
 * Makes single pages of a freed large folio. The next user of the block may take them one by
 * one, and nobody may find the old head through a tail then.
 */
static void uma_forget_compound(struct page *page, struct dev_pagemap *pagemap, u32 nr)
{
	u32 i;

#ifdef NR_PAGES_IN_LARGE_FOLIO
	((struct folio *)page)->_nr_pages = 0;
#endif
	for (i = 0; i < nr; i++) {
		/* head and order live in the low byte; the page map takes the place of the link to the head */
		page[i].flags.f &= ~0xffUL;
		((struct folio *)&page[i])->mapping = NULL;
		((struct folio *)&page[i])->pgmap = pagemap;
	}
}

static void uma_folio_free(struct folio *folio)
{
	struct page *page = folio_page(folio, 0);
	struct uma_device *ud = uma_page_chunk(page)->ud;
	struct uma_block *block = uma_page_block(page);
	struct uma_counters *owner = folio_zone_device_data(folio);
	u32 nr = folio_nr_pages(folio);
	unsigned long flags;
	bool empty = false;

	folio_set_zone_device_data(folio, NULL);
	if (nr > 1)
		uma_forget_compound(page, folio->pgmap, nr);
	spin_lock_irqsave(&ud->mem.lock, flags);
	bitmap_clear(block->map, page_to_pfn(page) - block->first_pfn, nr);
	block->used -= nr;
	/* a block in no list is held; whoever holds it puts it where it belongs */
	if (!block->used && !list_empty(&block->node)) {
		list_move_tail(&block->node, &ud->mem.dirty);
		empty = true;
	}
	spin_unlock_irqrestore(&ud->mem.lock, flags);
	atomic64_sub(nr, &ud->mem.used_pages);
	if (owner) {
		atomic64_sub(nr, &owner->device_pages);
		if (refcount_sub_and_test(nr, &owner->ref))
			kfree(owner);
	}
	if (empty && !READ_ONCE(ud->mem.closing))
		queue_delayed_work(ud->wq, &ud->mem.discard, UMA_DISCARD_DELAY);
}

static void uma_folio_split(struct folio *head, struct folio *tail)
{
	if (!tail)
		return;
	tail->page.zone_device_data = head->page.zone_device_data;
	tail->page.mapping = head->page.mapping;
	tail->pgmap = head->pgmap;
}

static const struct dev_pagemap_ops uma_pagemap_ops = {
	.folio_free	= uma_folio_free,
	.folio_split	= uma_folio_split,
	.migrate_to_ram	= uma_migrate_to_ram,
};

/* ----------------------------------------------------------------- chunks */

static int uma_chunk_add(struct uma_device *ud, u64 size)
{
	struct uma_devmem *mem = &ud->mem;
	struct uma_chunk *chunk;
	struct resource *res;
	unsigned long flags;
	void *addr;
	u32 i;

	chunk = kzalloc(sizeof(*chunk), GFP_KERNEL);
	if (!chunk)
		return -ENOMEM;
	chunk->ud = ud;
	chunk->nblocks = size / UMA_BLOCK_SIZE;
	chunk->blocks = kvcalloc(chunk->nblocks, sizeof(*chunk->blocks), GFP_KERNEL);
	if (!chunk->blocks)
		goto free;
	res = request_free_mem_region(&iomem_resource, size, "virtio_uma");
	if (IS_ERR(res))
		goto free;
	chunk->pagemap.type = MEMORY_DEVICE_PRIVATE;
	chunk->pagemap.range.start = res->start;
	chunk->pagemap.range.end = res->start + size - 1;
	chunk->pagemap.nr_range = 1;
	chunk->pagemap.ops = &uma_pagemap_ops;
	chunk->pagemap.owner = ud;
	addr = memremap_pages(&chunk->pagemap, numa_node_id());
	if (IS_ERR(addr)) {
		release_mem_region(res->start, size);
		goto free;
	}
	for (i = 0; i < chunk->nblocks; i++) {
		struct uma_block *block = &chunk->blocks[i];

		block->first_pfn = (res->start >> PAGE_SHIFT) + (unsigned long)i * UMA_BLOCK_PAGES;
		block->dpa = mem->next_dpa + i * UMA_BLOCK_SIZE;
	}
	spin_lock_irqsave(&mem->lock, flags);
	list_add_tail(&chunk->node, &mem->chunks);
	for (i = 0; i < chunk->nblocks; i++)
		list_add_tail(&chunk->blocks[i].node, &mem->clean);
	mem->next_dpa += size;
	spin_unlock_irqrestore(&mem->lock, flags);
	return 0;
free:
	kvfree(chunk->blocks);
	kfree(chunk);
	return -ENOMEM;
}

/* Makes the next chunk. Return: whether there is one more. */
static bool uma_grow(struct uma_device *ud)
{
	struct uma_devmem *mem = &ud->mem;
	bool grown = false;
	u64 size;

	mutex_lock(&mem->grow);
	size = min_t(u64, UMA_CHUNK_SIZE, mem->size - mem->next_dpa);
	if (!list_empty(&mem->clean))
		grown = true;
	else if (size)
		grown = !uma_chunk_add(ud, size);
	mutex_unlock(&mem->grow);
	return grown;
}

/* ----------------------------------------------------------------- blocks */

static struct uma_block *uma_block_try(struct uma_device *ud)
{
	struct uma_devmem *mem = &ud->mem;
	struct uma_block *block = NULL;
	unsigned long flags;

	spin_lock_irqsave(&mem->lock, flags);
	if (!list_empty(&mem->clean))
		block = list_first_entry(&mem->clean, struct uma_block, node);
	else if (!list_empty(&mem->dirty))
		block = list_first_entry(&mem->dirty, struct uma_block, node);
	if (block)
		list_del_init(&block->node);
	spin_unlock_irqrestore(&mem->lock, flags);
	return block;
}

/**
 * uma_block_take - get an empty block in hand
 * @ud:		the device
 *
 * Grows, waits for a discard under way, and evicts the block that was served longest ago,
 * in this order. Sleeps; nothing may be held that a migration needs.
 *
 * Return: the block, which no one else touches until uma_block_return(), or NULL if
 * nothing can be evicted.
 */
struct uma_block *uma_block_take(struct uma_device *ud)
{
	struct uma_block *block;
	int tries, ret;

	for (tries = 0; tries < UMA_EVICT_TRIES; tries++) {
		block = uma_block_try(ud);
		if (block || uma_is_down(ud))
			return block;
		if (uma_grow(ud))
			continue;
		if (flush_delayed_work(&ud->mem.discard))
			continue;
		/* a block whose pages are all held went to the end of the line: the next one may do */
		ret = uma_evict_one(ud, UMA_CAUSE_EVICT);
		if (ret && ret != -EBUSY)
			break;
	}
	return uma_block_try(ud);
}

/**
 * uma_block_return - put a block back that was in hand
 * @ud:		the device
 * @block:	the block, whatever is used of it
 */
void uma_block_return(struct uma_device *ud, struct uma_block *block)
{
	unsigned long flags;
	bool empty;

	spin_lock_irqsave(&ud->mem.lock, flags);
	empty = !block->used;
	list_add_tail(&block->node, empty ? &ud->mem.dirty : &ud->mem.partial);
	spin_unlock_irqrestore(&ud->mem.lock, flags);
	if (empty && !READ_ONCE(ud->mem.closing))
		queue_delayed_work(ud->wq, &ud->mem.discard, UMA_DISCARD_DELAY);
}

/**
 * uma_block_touch - a fault was served in this block: it is not the next to be evicted
 */
void uma_block_touch(struct uma_device *ud, struct uma_block *block)
{
	unsigned long flags;

	spin_lock_irqsave(&ud->mem.lock, flags);
	if (block->used && !list_empty(&block->node))
		list_move_tail(&block->node, &ud->mem.partial);
	spin_unlock_irqrestore(&ud->mem.lock, flags);
}

/**
 * uma_block_page - take pages of a block in hand
 * @ud:		the device
 * @block:	the block
 * @index:	first page
 * @order:	0 or the order of the whole block
 * @owner:	counters that the pages count in
 *
 * Return: the first page, locked and with one reference, as migration wants it.
 */
struct page *uma_block_page(struct uma_device *ud, struct uma_block *block, u32 index, u32 order,
			    struct uma_counters *owner)
{
	struct page *page = pfn_to_page(block->first_pfn + index);
	u32 nr = 1U << order;
	unsigned long flags;

	spin_lock_irqsave(&ud->mem.lock, flags);
	bitmap_set(block->map, index, nr);
	block->used += nr;
	spin_unlock_irqrestore(&ud->mem.lock, flags);
	atomic64_add(nr, &ud->mem.used_pages);
	atomic64_add(nr, &owner->device_pages);
	refcount_add(nr, &owner->ref);
	zone_device_page_init(page, page_pgmap(page), order);
	if (order)
		folio_set_large_rmappable(page_folio(page));
	page->zone_device_data = owner;
	return page;
}

/* ---------------------------------------------------------------- discard */

static void uma_discard(struct work_struct *work)
{
	struct uma_device *ud = container_of(to_delayed_work(work), struct uma_device, mem.discard);
	struct virtio_uma_migrate_entry *entries;
	struct uma_devmem *mem = &ud->mem;
	struct uma_block *block, *next;
	unsigned long flags;
	LIST_HEAD(held);
	u16 *status;
	u32 n = 0;

	entries = kcalloc(UMA_DISCARD_BATCH, sizeof(*entries) + sizeof(*status), GFP_KERNEL);
	if (!entries || uma_is_down(ud))
		goto out;
	status = (void *)(entries + UMA_DISCARD_BATCH);
	spin_lock_irqsave(&mem->lock, flags);
	list_for_each_entry_safe(block, next, &mem->dirty, node) {
		if (n == UMA_DISCARD_BATCH)
			break;
		list_move_tail(&block->node, &held);
		entries[n].op = VIRTIO_UMA_MIG_DISCARD;
		entries[n].order = VIRTIO_UMA_HUGE_SHIFT - VIRTIO_UMA_PAGE_SHIFT;
		entries[n++].dpa = block->dpa;
	}
	spin_unlock_irqrestore(&mem->lock, flags);
	if (n && uma_migrate_requests(ud, false, entries, status, n))
		memset(status, 0xff, n * sizeof(*status));
	spin_lock_irqsave(&mem->lock, flags);
	n = 0;
	list_for_each_entry_safe(block, next, &held, node)
		list_move_tail(&block->node, status[n++] ? &mem->dirty : &mem->clean);
	spin_unlock_irqrestore(&mem->lock, flags);
	if (n == UMA_DISCARD_BATCH)
		queue_delayed_work(ud->wq, &mem->discard, 0);
out:
	kfree(entries);
}

/* ------------------------------------------------------------ life and death */

int uma_devmem_init(struct uma_device *ud)
{
	struct uma_devmem *mem = &ud->mem;

	spin_lock_init(&mem->lock);
	mutex_init(&mem->grow);
	INIT_LIST_HEAD(&mem->clean);
	INIT_LIST_HEAD(&mem->dirty);
	INIT_LIST_HEAD(&mem->partial);
	INIT_LIST_HEAD(&mem->chunks);
	INIT_DELAYED_WORK(&mem->discard, uma_discard);
	mem->size = ud->config.dpa_size;
	mem->enabled = ud->capabilities & VIRTIO_UMA_CAP_MIGRATE;
	mem->large = mem->enabled && (ud->capabilities & VIRTIO_UMA_CAP_MIGRATE_LARGE) &&
		     IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE);
	return 0;
}

/**
 * uma_devmem_fini - give the pages up
 * @ud:		the device
 *
 * Called when uma_evict_all() is done. Chunks that still have pages in use (a lost device
 * can't give their contents back) stay mapped, with the module pinned: whoever touches
 * them gets SIGBUS.
 */
void uma_devmem_fini(struct uma_device *ud)
{
	struct uma_chunk *chunk, *next;
	u32 i, used;

	WRITE_ONCE(ud->mem.closing, true);
	cancel_delayed_work_sync(&ud->mem.discard);
	list_for_each_entry_safe(chunk, next, &ud->mem.chunks, node) {
		for (i = 0, used = 0; i < chunk->nblocks; i++)
			used += chunk->blocks[i].used;
		if (used) {
			dev_err(&ud->vdev->dev, "%u pages are still in use: their memory stays until reboot\n",
				used);
			__module_get(THIS_MODULE);
			kref_get(&ud->ref);
			continue;
		}
		list_del(&chunk->node);
		memunmap_pages(&chunk->pagemap);
		release_mem_region(chunk->pagemap.range.start, range_len(&chunk->pagemap.range));
		kvfree(chunk->blocks);
		kfree(chunk);
	}
}

#else /* !UMA_HAVE_PRIVATE: pages never move, so none of these is reached but init and fini */

struct uma_block *uma_page_block(struct page *page) { return NULL; }
u64 uma_page_dpa(struct page *page) { return 0; }
bool uma_is_ours(struct uma_device *ud, struct page *page) { return false; }
struct uma_counters *uma_page_counters(struct page *page) { return NULL; }
struct uma_block *uma_block_take(struct uma_device *ud) { return NULL; }
void uma_block_return(struct uma_device *ud, struct uma_block *block) { }
void uma_block_touch(struct uma_device *ud, struct uma_block *block) { }
struct page *uma_block_page(struct uma_device *ud, struct uma_block *block, u32 index, u32 order,
			    struct uma_counters *owner) { return NULL; }

int uma_devmem_init(struct uma_device *ud)
{
	INIT_LIST_HEAD(&ud->mem.partial);
	spin_lock_init(&ud->mem.lock);
	return 0;
}

void uma_devmem_fini(struct uma_device *ud) { }

#endif
