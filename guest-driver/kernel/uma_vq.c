// SPDX-License-Identifier: GPL-2.0
/*
 * uma_vq.c - virtqueues: requests in preallocated slots, replies that are checked
 *
 * DOC: Requests
 *
 * A request and its reply are one descriptor chain. Requests of the control, migrate
 * and response queues come from slots that exist since probe, so that nothing is
 * allocated where memory is being freed; jobs bring their own. The device is not
 * trusted: a reply with a foreign id, a short one or one with an unknown status makes
 * the device lost, since no later word of it could be believed.
 *
 * DOC: Waiting
 *
 * An interrupt is slow on a shared line, so a waiter polls the used ring for up to 50 us
 * before it sleeps. A descriptor that was posted belongs to the device: a wait for it is
 * not interruptible and ends at UMA_DEVICE_TIMEOUT with the device lost; the slot is
 * not used again before the device was reset.
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/slab.h>
#include <linux/virtio_ring.h>

#include "uma_drv.h"

#define UMA_POLL_NS	(50 * NSEC_PER_USEC)

/* a fault buffer: a page that the device fills, and the work that reads it */
struct uma_fault_buffer {
	struct uma_req req;
	struct uma_device *ud;
	struct work_struct work;
};

/**
 * uma_lose - give the device up
 * @ud:		the device
 * @why:	for the log
 *
 * Whoever waits is woken and gets ENODEV. May be called in any context.
 */
void uma_lose(struct uma_device *ud, const char *why)
{
	struct uma_ctx *ctx;
	unsigned long index;
	u32 i;

	if (cmpxchg(&ud->lost, false, true))
		return;
	dev_err(&ud->vdev->dev, "device is lost: %s\n", why);
	for (i = 0; i < ud->nr_queues; i++)
		wake_up_all(&ud->queues[i].space);
	rcu_read_lock();
	xa_for_each(&ud->contexts, index, ctx)
		wake_up_all(&ctx->job_wait);
	rcu_read_unlock();
}

/**
 * uma_status_errno - errno of a status
 * @status:	VIRTIO_UMA_S_*
 *
 * Return: 0 or a negative errno; -EPROTO for a status that does not exist.
 */
int uma_status_errno(u32 status)
{
	static const int errnos[] = {
		[VIRTIO_UMA_S_OK] = 0,
		[VIRTIO_UMA_S_UNKNOWN_OPCODE] = -EOPNOTSUPP,
		[VIRTIO_UMA_S_RESERVED_NOT_ZERO] = -EINVAL,
		[VIRTIO_UMA_S_BAD_LENGTH] = -EINVAL,
		[VIRTIO_UMA_S_UNKNOWN_ASID] = -ENOENT,
		[VIRTIO_UMA_S_STALE_ASID] = -ESTALE,
		[VIRTIO_UMA_S_MISALIGNED] = -EINVAL,
		[VIRTIO_UMA_S_BAD_RANGE] = -ERANGE,
		[VIRTIO_UMA_S_NOT_NEGOTIATED] = -EPROTO,
		[VIRTIO_UMA_S_UNSUPPORTED] = -EOPNOTSUPP,
		[VIRTIO_UMA_S_LIMIT] = -ENOSPC,
		[VIRTIO_UMA_S_BAD_ADDRESS] = -EFAULT,
		[VIRTIO_UMA_S_BAD_DPA] = -EFAULT,
		[VIRTIO_UMA_S_ASID_GONE] = -ESRCH,
		[VIRTIO_UMA_S_FAULT] = -EFAULT,
		[VIRTIO_UMA_S_CANCELED] = -ECANCELED,
		[VIRTIO_UMA_S_DEADLINE] = -ETIME,
		[VIRTIO_UMA_S_BAD_KERNEL] = -EINVAL,
		[VIRTIO_UMA_S_BAD_ARGUMENT] = -EINVAL,
		[VIRTIO_UMA_S_DEVICE_LOST] = -ENODEV,
		[VIRTIO_UMA_S_NO_MEMORY] = -ENOMEM,
		[VIRTIO_UMA_S_PARTIAL] = -EIO,
		[VIRTIO_UMA_S_BAD_STATE] = -EBUSY,
		[VIRTIO_UMA_S_MEMORY_ERROR] = -EIO,
		[VIRTIO_UMA_S_UNKNOWN_JOB] = -ENOENT,
		[VIRTIO_UMA_S_STALE] = -ESTALE,
	};

	return status < ARRAY_SIZE(errnos) ? errnos[status] : -EPROTO;
}

/* Checks a used request, then hands it to whoever waits. */
static void uma_req_finish(struct uma_req *req, u32 used)
{
	struct uma_device *ud = req->q->ud;

	req->used = min(used, req->reply_size);
	req->error = 0;
	if (req->request_size) {
		struct virtio_uma_reply_header *reply = req->reply;

		if (used > req->reply_size || used < sizeof(*reply) || reply->id != req->id ||
		    uma_status_errno(reply->status) == -EPROTO) {
			atomic64_inc(&ud->protocol_errors);
			req->error = -EPROTO;
			uma_lose(ud, "a reply with a wrong length, id or status");
		}
	}
	req->posted = false;
	if (req->done)
		req->done(req);
	else
		complete(&req->finished);
}

/* Takes what the device has used off the ring. */
static void uma_queue_drain(struct uma_queue *q)
{
	struct uma_req *req, *next;
	LIST_HEAD(finished);
	unsigned long flags;
	unsigned int used;

	spin_lock_irqsave(&q->lock, flags);
	do {
		virtqueue_disable_cb(q->vq);
		while ((req = virtqueue_get_buf(q->vq, &used))) {
			req->used = used;
			list_add_tail(&req->node, &finished);
		}
		if (unlikely(virtqueue_is_broken(q->vq)))
			break;
	} while (!virtqueue_enable_cb(q->vq));
	spin_unlock_irqrestore(&q->lock, flags);

	if (list_empty(&finished))
		return;
	list_for_each_entry_safe(req, next, &finished, node) {
		list_del_init(&req->node);
		uma_req_finish(req, req->used);
	}
	wake_up_all(&q->space);
}

static void uma_queue_callback(struct virtqueue *vq)
{
	struct uma_device *ud = vq->vdev->priv;

	uma_queue_drain(&ud->queues[vq->index]);
}

static int uma_try_post(struct uma_queue *q, struct uma_req *req)
{
	struct scatterlist out, in, *sgs[2];
	unsigned int n_out = 0;
	unsigned long flags;
	bool notify;
	int ret;

	if (req->request_size) {
		sg_init_one(&out, req->request, req->request_size);
		sgs[n_out++] = &out;
	}
	sg_init_one(&in, req->reply, req->reply_size);
	sgs[n_out] = &in;

	spin_lock_irqsave(&q->lock, flags);
	req->q = q;
	req->posted = true;
	ret = virtqueue_add_sgs(q->vq, sgs, n_out, 1, req, GFP_ATOMIC);
	if (ret)
		req->posted = false;
	notify = !ret && virtqueue_kick_prepare(q->vq);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
	return ret;
}

/**
 * uma_post - hand a request to the device
 * @q:		the queue
 * @req:	the request; once posted it is the device's until it is finished
 *
 * Waits for room in the ring, killable.
 *
 * Return: 0; -ENODEV if the device is down; -EINTR if the caller was killed before
 * anything was posted; -EIO if the queue does not move.
 */
int uma_post(struct uma_queue *q, struct uma_req *req)
{
	struct uma_device *ud = q->ud;
	long left = UMA_DEVICE_TIMEOUT;
	int ret = -ENOSPC;

	reinit_completion(&req->finished);
	while (left > 0) {
		if (READ_ONCE(ud->lost))
			return -ENODEV;
		ret = uma_try_post(q, req);
		if (ret != -ENOSPC)
			break;
		uma_queue_drain(q);
		left = wait_event_killable_timeout(q->space,
			READ_ONCE(ud->lost) || q->vq->num_free >= 4, left);
		if (left < 0)
			return -EINTR;
	}
	if (ret == -ENOSPC) {
		atomic64_inc(&ud->timeouts);
		uma_lose(ud, "a queue stays full");
		return -EIO;
	}
	if (ret)
		uma_lose(ud, "a queue is broken");
	return ret ? -ENODEV : 0;
}

/**
 * uma_call - hand a request to the device and wait for the answer
 * @q:		the queue
 * @req:	the request
 *
 * Return: 0 if there is an answer, whatever its status; otherwise as uma_post(), -EPROTO
 * for an answer that can't be trusted, -ETIMEDOUT if there was none: the device is lost
 * then and what the request names is still the device's.
 */
int uma_call(struct uma_queue *q, struct uma_req *req)
{
	u64 until;
	int ret;

	req->done = NULL;
	ret = uma_post(q, req);
	if (ret)
		return ret;
	until = ktime_get_ns() + UMA_POLL_NS;
	do {
		uma_queue_drain(q);
		if (try_wait_for_completion(&req->finished))
			return req->error;
		cpu_relax();
	} while (ktime_get_ns() < until);
	atomic64_inc(&q->ud->waits_slept);
	if (wait_for_completion_timeout(&req->finished, UMA_DEVICE_TIMEOUT))
		return req->error;
	uma_queue_drain(q);
	if (try_wait_for_completion(&req->finished))
		return req->error;
	atomic64_inc(&q->ud->timeouts);
	uma_lose(q->ud, "no answer in time");
	return -ETIMEDOUT;
}

/* ---------------------------------------------------------------- slots */

/**
 * uma_slots_init - allocate requests
 * @slots:	to be filled
 * @count:	how many
 * @request:	bytes of each request
 * @reply:	bytes of each reply
 *
 * Return: 0 or -ENOMEM; uma_slots_fini() is right in both cases.
 */
int uma_slots_init(struct uma_slots *slots, u32 count, u32 request, u32 reply)
{
	u32 i;

	spin_lock_init(&slots->lock);
	INIT_LIST_HEAD(&slots->free);
	sema_init(&slots->count, count);
	slots->reqs = kcalloc(count, sizeof(*slots->reqs), GFP_KERNEL);
	if (!slots->reqs)
		return -ENOMEM;
	slots->total = count;
	for (i = 0; i < count; i++) {
		struct uma_req *req = &slots->reqs[i];

		init_completion(&req->finished);
		req->pool = slots;
		req->request = kzalloc(request, GFP_KERNEL);
		req->reply = kzalloc(reply, GFP_KERNEL);
		if (!req->request || !req->reply)
			return -ENOMEM;
		req->request_size = request;
		req->reply_size = reply;
		list_add_tail(&req->node, &slots->free);
	}
	return 0;
}

/**
 * uma_slots_fini - free requests
 * @slots:	none of them may be posted any more
 */
void uma_slots_fini(struct uma_slots *slots)
{
	u32 i;

	for (i = 0; slots->reqs && i < slots->total; i++) {
		kfree(slots->reqs[i].request);
		kfree(slots->reqs[i].reply);
	}
	kfree(slots->reqs);
	slots->reqs = NULL;
}

/**
 * uma_req_get - take a request out of its slots
 * @ud:		the device
 * @slots:	where from
 *
 * Waits while all are in use; their users wait for nothing but the device.
 *
 * Return: the request, or NULL if the device is down or does not move.
 */
struct uma_req *uma_req_get(struct uma_device *ud, struct uma_slots *slots)
{
	struct uma_req *req;
	unsigned long flags;

	if (down_timeout(&slots->count, UMA_DEVICE_TIMEOUT))
		return NULL;
	if (READ_ONCE(ud->lost)) {
		up(&slots->count);
		return NULL;
	}
	spin_lock_irqsave(&slots->lock, flags);
	req = list_first_entry(&slots->free, struct uma_req, node);
	list_del_init(&req->node);
	spin_unlock_irqrestore(&slots->lock, flags);
	req->error = 0;
	return req;
}

/**
 * uma_req_put - give a request back
 * @req:	from uma_req_get(); one that the device still has stays with the device
 */
void uma_req_put(struct uma_req *req)
{
	struct uma_slots *slots = req->pool;
	unsigned long flags;

	if (READ_ONCE(req->posted))
		return;
	spin_lock_irqsave(&slots->lock, flags);
	list_add(&req->node, &slots->free);
	spin_unlock_irqrestore(&slots->lock, flags);
	up(&slots->count);
}

/**
 * uma_req_header - begin a request
 * @ud:		the device
 * @req:	the request
 * @opcode:	VIRTIO_UMA_OP_*
 * @size:	bytes of the request
 * @asid:	address space, or NULL
 *
 * Return: the zeroed request with its header filled in.
 */
void *uma_req_header(struct uma_device *ud, struct uma_req *req, u16 opcode, u32 size,
		     const struct virtio_uma_asid_handle *asid)
{
	struct virtio_uma_request_header *header = req->request;

	memset(header, 0, size);
	req->id = atomic64_inc_return(&ud->next_id);
	req->request_size = size;
	header->opcode = opcode;
	header->length = size;
	header->id = req->id;
	if (asid)
		header->asid = *asid;
	return header;
}

/* ---------------------------------------------------------- fault buffers */

static void uma_fault_work(struct work_struct *work)
{
	struct uma_fault_buffer *buffer = container_of(work, struct uma_fault_buffer, work);
	struct uma_device *ud = buffer->ud;

	uma_fault_batch(ud, buffer->req.reply, buffer->req.used);
	if (!uma_is_down(ud))
		uma_post(uma_queue_of(ud, ud->config.queues.fault, 0), &buffer->req);
}

static void uma_fault_done(struct uma_req *req)
{
	struct uma_fault_buffer *buffer = container_of(req, struct uma_fault_buffer, req);

	if (!uma_is_down(buffer->ud))
		queue_work(buffer->ud->wq, &buffer->work);
}

/**
 * uma_post_fault_buffers - give the device buffers for fault records
 * @ud:		the device
 *
 * Return: 0, -ENOMEM, or as uma_post().
 */
int uma_post_fault_buffers(struct uma_device *ud)
{
	struct uma_queue *q = uma_queue_of(ud, ud->config.queues.fault, 0);
	u32 i, n = min_t(u32, UMA_FAULT_BUFFERS, virtqueue_get_vring_size(q->vq));
	int ret;

	ud->fault_buffers = kcalloc(UMA_FAULT_BUFFERS, sizeof(*ud->fault_buffers), GFP_KERNEL);
	if (!ud->fault_buffers)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		struct uma_fault_buffer *buffer = &ud->fault_buffers[i];

		buffer->ud = ud;
		INIT_WORK(&buffer->work, uma_fault_work);
		init_completion(&buffer->req.finished);
		buffer->req.done = uma_fault_done;
		buffer->req.reply = (void *)get_zeroed_page(GFP_KERNEL);
		buffer->req.reply_size = PAGE_SIZE;
		if (!buffer->req.reply)
			return -ENOMEM;
		ret = uma_post(q, &buffer->req);
		if (ret)
			return ret;
	}
	return 0;
}

/* ----------------------------------------------------------------- set-up */

/**
 * uma_queue_of - a queue by its role
 * @ud:		the device
 * @run:	role, from the configuration space
 * @n:		which of the run; taken modulo its length
 *
 * Return: the queue.
 */
struct uma_queue *uma_queue_of(struct uma_device *ud, struct virtio_uma_queue_run run, u32 n)
{
	return &ud->queues[run.first + n % run.count];
}

/**
 * uma_queues_init - find the virtqueues and allocate the slots
 * @ud:		the device; its configuration has been validated
 *
 * Return: 0 or an errno; uma_queues_fini() is right in both cases.
 */
int uma_queues_init(struct uma_device *ud)
{
	const u32 migrate = sizeof(struct virtio_uma_migrate_header) +
		VIRTIO_UMA_MAX_MIGRATE_ENTRIES * sizeof(struct virtio_uma_migrate_entry);
	const u32 migrated = sizeof(struct virtio_uma_reply_header) + VIRTIO_UMA_MAX_MIGRATE_ENTRIES * 2;
	u32 i, n = ud->config.num_queues;
	struct virtqueue_info *info;
	int ret;

	ud->queues = kcalloc(n, sizeof(*ud->queues), GFP_KERNEL);
	ud->vqs = kcalloc(n, sizeof(*ud->vqs), GFP_KERNEL);
	info = kcalloc(n, sizeof(*info), GFP_KERNEL);
	if (!ud->queues || !ud->vqs || !info) {
		kfree(info);
		return -ENOMEM;
	}
	for (i = 0; i < n; i++) {
		info[i].name = "uma";
		info[i].callback = uma_queue_callback;
		ud->queues[i].ud = ud;
		spin_lock_init(&ud->queues[i].lock);
		init_waitqueue_head(&ud->queues[i].space);
	}
	ret = virtio_find_vqs(ud->vdev, n, ud->vqs, info, NULL);
	kfree(info);
	if (ret)
		return ret;
	for (i = 0; i < n; i++)
		ud->queues[i].vq = ud->vqs[i];
	ud->nr_queues = n;
	ret = uma_slots_init(&ud->control, 16, 128, 512);
	ret = ret ?: uma_slots_init(&ud->urgent, 8, migrate, migrated);
	ret = ret ?: uma_slots_init(&ud->bulk, 8, migrate, migrated);
	return ret ?: uma_slots_init(&ud->responses, 64, sizeof(struct virtio_uma_fault_response), 64);
}

/**
 * uma_queues_fini - take the queues away
 * @ud:		the device
 *
 * Resets the device first: only then nothing that was posted is its any more.
 */
void uma_queues_fini(struct uma_device *ud)
{
	struct uma_req *req;
	u32 i;

	virtio_reset_device(ud->vdev);
	for (i = 0; i < ud->nr_queues; i++) {
		while ((req = virtqueue_detach_unused_buf(ud->queues[i].vq))) {
			req->posted = false;
			req->error = -ENODEV;
			if (req->done)
				req->done(req);
			else
				complete(&req->finished);
		}
	}
	if (ud->nr_queues)
		ud->vdev->config->del_vqs(ud->vdev);
	ud->nr_queues = 0;
	for (i = 0; ud->fault_buffers && i < UMA_FAULT_BUFFERS; i++) {
		if (ud->fault_buffers[i].ud)
			cancel_work_sync(&ud->fault_buffers[i].work);
		free_page((unsigned long)ud->fault_buffers[i].req.reply);
	}
	kfree(ud->fault_buffers);
	ud->fault_buffers = NULL;
	uma_slots_fini(&ud->control);
	uma_slots_fini(&ud->urgent);
	uma_slots_fini(&ud->bulk);
	uma_slots_fini(&ud->responses);
	kfree(ud->queues);
	kfree(ud->vqs);
	ud->queues = NULL;
	ud->vqs = NULL;
}
