// SPDX-License-Identifier: GPL-2.0
/*
 * uma_sync.c - the driver's side of the epoch handshake (SPEC.md 10)
 *
 * DOC: Handshake
 *
 * After a change of the mirrored tables the range goes into the ring of the address
 * space's sync page, the epoch advances, and every EU that is inside a section of this
 * address space with an older epoch is waited for. The wait may not be given up while
 * an EU may still use the old translation: there is no deadline that would be safe.
 * An EU whose thread died is known by FUTEX_OWNER_DIED in its line.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/sched.h>

#include "uma_drv.h"
#include "uma_trace.h"

static unsigned int inval_timeout_ms;
module_param(inval_timeout_ms, uint, 0644);
MODULE_PARM_DESC(inval_timeout_ms,
		 "Debugging: give up waiting for an execution unit after this time and taint (0 = wait)");

#define UMA_SPIN_NS	NSEC_PER_MSEC	/* of a caller that may not wait long */

static struct virtio_uma_eu_line *uma_eu_line(struct uma_device *ud, u32 eu)
{
	return ud->sync + VIRTIO_UMA_EU_LINES_OFFSET + eu * sizeof(struct virtio_uma_eu_line);
}

static bool uma_eu_is_behind(struct uma_ctx *ctx, struct virtio_uma_eu_line *line, u64 epoch)
{
	u64 active = smp_load_acquire(&line->active);
	u32 index = READ_ONCE(ctx->asid.index);

	/* destroyed meanwhile: the index may be somebody else's, whose epochs say nothing here */
	if (!index || active >> VIRTIO_UMA_EPOCH_BITS != index)
		return false;
	return (active & VIRTIO_UMA_EPOCH_MASK) < (epoch & VIRTIO_UMA_EPOCH_MASK);
}

/* Waits for one EU. Return: false if a caller that may not wait has to try again. */
static bool uma_wait_eu(struct uma_ctx *ctx, u32 eu, u64 epoch, bool may_wait)
{
	struct virtio_uma_eu_line *line = uma_eu_line(ctx->ud, eu);
	u64 begin = 0, spent;
	u64 warned = 0;

	while (uma_eu_is_behind(ctx, line, epoch)) {
		if (READ_ONCE(line->owner) & VIRTIO_UMA_OWNER_DIED) {
			uma_lose(ctx->ud, "an execution unit died");
			return true;
		}
		cpu_relax();
		if (!begin)
			begin = ktime_get_ns();
		spent = ktime_get_ns() - begin;
		if (!may_wait && spent > UMA_SPIN_NS)
			return false;
		if (inval_timeout_ms && spent > (u64)inval_timeout_ms * NSEC_PER_MSEC) {
			WARN_ONCE(1, "virtio_uma: gave up waiting for EU %u; memory may be corrupted\n", eu);
			uma_lose(ctx->ud, "an execution unit does not leave its section");
			return true;
		}
		if (spent > warned + 10ULL * NSEC_PER_SEC) {
			warned = spent;
			dev_warn_ratelimited(&ctx->ud->vdev->dev, "waiting for EU %u for %llu s\n", eu,
					     div_u64(spent, NSEC_PER_SEC));
		}
		if (may_wait)
			cond_resched();
	}
	return true;
}

#define UMA_HEALTH_PERIOD	(HZ / 4)

/* Return: why the device can't be alive, or NULL. */
static const char *uma_is_dead(struct uma_device *ud)
{
	u32 eu;

	if (READ_ONCE(*(u64 *)(ud->sync + VIRTIO_UMA_DEVICE_STATE_OFFSET)) == VIRTIO_UMA_DEVICE_LOST)
		return "it gave up";
	for (eu = 0; eu < ud->config.limits.num_eus; eu++)
		if (READ_ONCE(uma_eu_line(ud, eu)->owner) & VIRTIO_UMA_OWNER_DIED)
			return "an execution unit died";
	return NULL;
}

/**
 * uma_health_check - look whether the device is still there, four times a second
 * @work:	uma_device.health
 *
 * Nothing else tells of a device process that ended: the hypervisor does not, and a job
 * that waits for it would wait for ever.
 */
void uma_health_check(struct work_struct *work)
{
	struct uma_device *ud = container_of(to_delayed_work(work), struct uma_device, health);
	const char *why = uma_is_dead(ud);

	if (why)
		uma_lose(ud, why);
	else
		queue_delayed_work(ud->wq, &ud->health, UMA_HEALTH_PERIOD);
}

/**
 * uma_publish - make every EU drop a range, and wait until it has
 * @ctx:	the context; its tables have been changed
 * @start:	first address
 * @end:	address behind the last; ~0 = to the end
 * @may_wait:	false for callers that may only spin a little
 *
 * Return: false if the EUs did not follow within that little; the range is published all
 * the same.
 */
bool uma_publish(struct uma_ctx *ctx, u64 start, u64 end, bool may_wait)
{
	struct virtio_uma_ring_slot *ring = (void *)(ctx->sync + 1), *slot;
	bool done = true;
	u64 epoch;
	u32 eu;

	spin_lock(&ctx->ring_lock);
	epoch = ctx->tail + 1;
	slot = &ring[epoch % VIRTIO_UMA_MAX_RING_ENTRIES];
	WRITE_ONCE(slot->seq, 0);
	smp_wmb();
	WRITE_ONCE(slot->start, start);
	WRITE_ONCE(slot->end, end);
	WRITE_ONCE(slot->flags, 0);
	smp_store_release(&slot->seq, epoch);
	smp_store_release(&ctx->sync->epoch, epoch);
	ctx->tail = epoch;
	spin_unlock(&ctx->ring_lock);
	atomic64_inc(&ctx->counters->invalidations);
	trace_uma_invalidate(ctx->asid.index, start, end, epoch);

	/* the table change and the epoch before the look at the lines */
	smp_mb();
	for (eu = 0; eu < ctx->ud->config.limits.num_eus; eu++)
		done &= uma_wait_eu(ctx, eu, epoch, may_wait);
	return done;
}

/**
 * uma_kill_asid - fence the device off an address space for good
 * @ctx:	the context
 *
 * When it returns no EU uses any translation of it and none will.
 */
void uma_kill_asid(struct uma_ctx *ctx)
{
	smp_store_release(&ctx->sync->state, VIRTIO_UMA_ASID_DEAD);
	uma_publish(ctx, 0, ~0ULL, true);
}
