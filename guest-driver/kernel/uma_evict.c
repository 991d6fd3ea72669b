// SPDX-License-Identifier: GPL-2.0
/*
 * uma_evict.c - making room in device memory, and emptying it
 *
 * DOC: Choice
 *
 * The block that was served longest ago goes. What is being serviced is in nobody's list
 * (its block is in hand) or the last in line, so eviction does not pick it; a service that
 * loses its pages all the same maps them where they are then and does not move them again.
 */
#include <linux/delay.h>
#include <linux/sched/signal.h>

#include "uma_drv.h"

#if UMA_HAVE_PRIVATE

static struct uma_block *uma_victim(struct uma_device *ud)
{
	struct uma_block *block, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&ud->mem.lock, flags);
	list_for_each_entry(block, &ud->mem.partial, node) {
		if (block->used) {
			found = block;
			list_del_init(&block->node);
			break;
		}
	}
	spin_unlock_irqrestore(&ud->mem.lock, flags);
	return found;
}

/**
 * uma_evict_one - empty the block that was served longest ago
 * @ud:		the device
 * @cause:	for the counters
 *
 * Return: 0 if pages went; -EBUSY if all of its pages are held by others (it is the last to
 * be tried again), -ENOENT if there is none, -ENOMEM.
 */
int uma_evict_one(struct uma_device *ud, enum uma_cause cause)
{
	struct uma_block *block = uma_victim(ud);
	u32 before;
	int ret;

	if (!block)
		return -ENOENT;
	before = block->used;
	ret = uma_evict_block(ud, block, cause);
	if (!ret && block->used >= before)
		ret = -EBUSY;
	uma_block_return(ud, block);
	return ret;
}

/**
 * uma_evict_all - bring everything back to RAM before the device goes
 * @ud:		the device
 *
 * Pages that others hold for a moment are tried again, for UMA_DEVICE_TIMEOUT at most.
 */
void uma_evict_all(struct uma_device *ud)
{
	unsigned long deadline = jiffies + UMA_DEVICE_TIMEOUT;

	WRITE_ONCE(ud->mem.closing, true);
	while (atomic64_read(&ud->mem.used_pages) && !READ_ONCE(ud->lost) && time_before(jiffies, deadline)) {
		int ret = uma_evict_one(ud, UMA_CAUSE_RELEASE);

		if (ret == -EBUSY || ret == -ENOENT)
			fsleep(1000);
		else if (ret)
			break;
	}
}

#else

int uma_evict_one(struct uma_device *ud, enum uma_cause cause) { return -ENOENT; }
void uma_evict_all(struct uma_device *ud) { }

#endif
