// SPDX-License-Identifier: GPL-2.0
/*
 * uma_ctx.c - contexts: an address space of a process, from creation to close
 *
 * DOC: End of a context
 *
 * Closing the file destroys the address space on the device, which ends its jobs; then
 * services that are under way finish, notifiers go, tables are freed. If the process
 * ends first, its notifier fences the device off, and the rest follows when the file
 * is closed.
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "uma_drv.h"

struct uma_counters *uma_counters_new(void)
{
	struct uma_counters *counters = kzalloc(sizeof(*counters), GFP_KERNEL);

	if (counters)
		refcount_set(&counters->ref, 1);
	return counters;
}

void uma_counters_put(struct uma_counters *counters)
{
	if (counters && refcount_dec_and_test(&counters->ref))
		kfree(counters);
}

static void uma_release(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	struct uma_ctx *ctx = container_of(notifier, struct uma_ctx, release);

	WRITE_ONCE(ctx->dead, true);
	uma_kill_asid(ctx);
}

static const struct mmu_notifier_ops uma_release_ops = {
	.release = uma_release,
};

static void uma_ctx_free(struct kref *ref)
{
	struct uma_ctx *ctx = container_of(ref, struct uma_ctx, ref);

	uma_counters_put(ctx->counters);
	if (ctx->mm)
		mmdrop(ctx->mm);
	mtree_destroy(&ctx->advice);
	xa_destroy(&ctx->jobs);
	uma_device_put(ctx->ud);
	/* uma_lose() may be waking its waiters, in interrupt context */
	kfree_rcu(ctx, rcu);
}

void uma_ctx_put(struct uma_ctx *ctx)
{
	kref_put(&ctx->ref, uma_ctx_free);
}

/**
 * uma_ctx_find - the context of an address space
 *
 * Return: the context with a reference, or NULL.
 */
struct uma_ctx *uma_ctx_find(struct uma_device *ud, const struct virtio_uma_asid_handle *asid)
{
	struct uma_ctx *ctx;

	xa_lock(&ud->contexts);
	ctx = xa_load(&ud->contexts, asid->index);
	if (ctx && (ctx->asid.generation != asid->generation || !kref_get_unless_zero(&ctx->ref)))
		ctx = NULL;
	xa_unlock(&ud->contexts);
	return ctx;
}

static int uma_create_asid(struct uma_ctx *ctx)
{
	struct uma_device *ud = ctx->ud;
	struct virtio_uma_create_asid *create;
	struct virtio_uma_reply_header *reply;
	struct uma_req *req = uma_req_get(ud, &ud->control);
	int ret;

	if (!req)
		return -ENODEV;
	create = uma_req_header(ud, req, VIRTIO_UMA_OP_CREATE_ASID, sizeof(*create), NULL);
	create->mode = VIRTIO_UMA_MODE_MIRRORED;
	create->format = VIRTIO_UMA_FORMAT_X86_64;
	create->levels = 4;
	create->granule_shift = PAGE_SHIFT;
	create->root = virt_to_phys(ctx->root);
	create->sync_addr = virt_to_phys(ctx->sync);
	create->ring_entries = VIRTIO_UMA_MAX_RING_ENTRIES;
	req->reply_size = sizeof(*reply);
	reply = req->reply;
	ret = uma_call(uma_queue_of(ud, ud->config.queues.control, 0), req);
	ret = ret ?: uma_status_errno(reply->status);
	if (!ret) {
		ctx->asid.index = (u32)reply->detail;
		ctx->asid.generation = reply->detail >> 32;
		if (!ctx->asid.index || ctx->asid.index > ud->config.limits.max_asids) {
			uma_lose(ud, "an ASID that it does not have");
			ret = -EPROTO;
		}
	}
	uma_req_put(req);
	return ret;
}

static void uma_destroy_asid(struct uma_ctx *ctx)
{
	struct virtio_uma_reply_header *reply;
	struct uma_device *ud = ctx->ud;
	struct uma_req *req;

	if (!ctx->asid.index || READ_ONCE(ud->lost))
		return;
	req = uma_req_get(ud, &ud->control);
	if (!req)
		return;
	uma_req_header(ud, req, VIRTIO_UMA_OP_DESTROY_ASID, sizeof(struct virtio_uma_request_header), &ctx->asid);
	req->reply_size = sizeof(*reply);
	reply = req->reply;
	/* from here on the index is the next one's: notifiers that still come have nobody to wait for */
	if (!uma_call(uma_queue_of(ud, ud->config.queues.control, 0), req) && reply->status == VIRTIO_UMA_S_OK)
		WRITE_ONCE(ctx->asid.index, 0);
	uma_req_put(req);
}

/**
 * uma_ctx_create - make a context of the calling process
 * @ud:		the device
 *
 * Return: the context or an ERR_PTR: -ENOMEM, -ENOSPC, -ENODEV, -EINTR.
 */
struct uma_ctx *uma_ctx_create(struct uma_device *ud)
{
	struct uma_ctx *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!ctx)
		return ERR_PTR(-ENOMEM);
	kref_init(&ctx->ref);
	kref_get(&ud->ref);
	ctx->ud = ud;
	mutex_init(&ctx->lock);
	mutex_init(&ctx->mirror_lock);
	spin_lock_init(&ctx->ring_lock);
	spin_lock_init(&ctx->job_lock);
	mt_init(&ctx->advice);
	xa_init_flags(&ctx->jobs, XA_FLAGS_LOCK_IRQ);
	init_waitqueue_head(&ctx->job_wait);
	init_waitqueue_head(&ctx->idle);
	ctx->counters = uma_counters_new();
	ret = ctx->counters ? uma_mirror_init(ctx) : -ENOMEM;
	if (ret)
		goto fini;
	ctx->mm = current->mm;
	mmgrab(ctx->mm);
	ctx->release.ops = &uma_release_ops;
	ret = mmu_notifier_register(&ctx->release, ctx->mm);
	if (ret)
		goto fini;
	ret = uma_create_asid(ctx);
	if (ret)
		goto unregister;
	ret = xa_err(xa_store(&ud->contexts, ctx->asid.index, ctx, GFP_KERNEL));
	if (ret)
		goto destroy;
	atomic_inc(&ud->nr_contexts);
	return ctx;
destroy:
	uma_destroy_asid(ctx);
unregister:
	mmu_notifier_unregister(&ctx->release, ctx->mm);
fini:
	if (ctx->counters)
		uma_mirror_fini(ctx);
	uma_ctx_put(ctx);
	return ERR_PTR(ret);
}

/**
 * uma_ctx_close - end a context
 * @ctx:	the context; its file is closed or its device goes
 *
 * The device does not use the address space any more when it returns, and no page of its
 * tables is left. If the device is lost, what it may still read stays until it was reset.
 */
void uma_ctx_close(struct uma_ctx *ctx)
{
	struct uma_device *ud = ctx->ud;

	WRITE_ONCE(ctx->dead, true);
	uma_kill_asid(ctx);
	/* before the device can give the index to the next one */
	xa_erase(&ud->contexts, ctx->asid.index);
	uma_destroy_asid(ctx);
	atomic_dec(&ud->nr_contexts);
	wake_up_all(&ctx->job_wait);
	wait_event(ctx->idle, !atomic_read(&ctx->services));
	mmu_notifier_unregister(&ctx->release, ctx->mm);
	uma_mirror_fini(ctx);
	uma_jobs_forget(ctx);
	uma_ctx_put(ctx);
}
