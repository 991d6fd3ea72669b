// SPDX-License-Identifier: GPL-2.0
/*
 * uma_job.c - jobs: submit, wait, cancel, fence descriptors
 *
 * DOC: Life
 *
 * A job has one reference of its context's table, one of the device while its descriptor is
 * posted, and one per fence descriptor and waiter. So its memory stays as long as anybody,
 * the device included, may write to it.
 */
#include <linux/anon_inodes.h>
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "uma_drv.h"
#include "uma_trace.h"

static void uma_job_free(struct kref *ref)
{
	struct uma_job *job = container_of(ref, struct uma_job, ref);

	uma_ctx_put(job->ctx);
	kfree(job);
}

static void uma_job_put(struct uma_job *job)
{
	kref_put(&job->ref, uma_job_free);
}

/* Counts a job's end once, be it by the device or because the device is lost. */
static void uma_job_count_end(struct uma_job *job)
{
	if (xchg(&job->counted, true))
		return;
	atomic64_inc(&job->ctx->counters->jobs_ended);
	atomic64_inc(&job->ctx->ud->totals->jobs_ended);
}

/* In interrupt context, or when the device was reset with the job on it. */
static void uma_job_done(struct uma_req *req)
{
	struct uma_job *job = container_of(req, struct uma_job, req);
	struct uma_ctx *ctx = job->ctx;

	if (!req->error && req->used < sizeof(job->reply)) {
		atomic64_inc(&ctx->ud->protocol_errors);
		req->error = -EPROTO;
		uma_lose(ctx->ud, "a job's reply is too short");
	}
	trace_uma_job(ctx->asid.index, req->id, job->request.kernel, true, job->reply.header.status);
	uma_job_count_end(job);
	smp_store_release(&job->ended, true);
	wake_up_all(&ctx->job_wait);
	uma_job_put(job);
}

static bool uma_job_is_over(struct uma_job *job)
{
	return smp_load_acquire(&job->ended) || uma_is_down(job->ctx->ud);
}

/* ------------------------------------------------------- fence descriptors */

static __poll_t uma_fence_poll(struct file *file, poll_table *table)
{
	struct uma_job *job = file->private_data;

	poll_wait(file, &job->ctx->job_wait, table);
	return uma_job_is_over(job) ? EPOLLIN | EPOLLRDNORM : 0;
}

static int uma_fence_release(struct inode *inode, struct file *file)
{
	uma_job_put(file->private_data);
	return 0;
}

static const struct file_operations uma_fence_fops = {
	.owner		= THIS_MODULE,
	.poll		= uma_fence_poll,
	.release	= uma_fence_release,
	.llseek		= noop_llseek,
};

/* Return: a descriptor that is reserved but not installed, with its file; or an errno. */
static int uma_fence_prepare(struct uma_job *job, struct file **file)
{
	int fd = get_unused_fd_flags(O_CLOEXEC);

	if (fd < 0)
		return fd;
	*file = anon_inode_getfile("[uma-fence]", &uma_fence_fops, job, O_RDONLY);
	if (IS_ERR(*file)) {
		put_unused_fd(fd);
		return PTR_ERR(*file);
	}
	kref_get(&job->ref);
	return fd;
}

/* ------------------------------------------------------------------- submit */

static void uma_job_fill(struct uma_job *job, const struct uma_submit *args)
{
	struct virtio_uma_job_request *request = &job->request;

	request->kernel = args->kernel;
	request->elem = args->elem;
	request->priority = args->priority;
	request->stream = args->stream;
	request->deadline_ns = args->deadline_ns;
	request->wait_fence = args->wait_fence;
	request->signal_fence = args->signal_fence;
	request->wait_value = args->wait_value;
	request->signal_value = args->signal_value;
	memcpy(request->args.va, args->va, sizeof(args->va));
	memcpy(request->args.n, args->n, sizeof(args->n));
	memcpy(request->args.scalar, args->scalar, sizeof(args->scalar));
}

static struct uma_job *uma_job_new(struct uma_ctx *ctx, const struct uma_submit *args)
{
	struct uma_job *job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);

	if (!job)
		return NULL;
	kref_init(&job->ref);
	kref_get(&ctx->ref);
	job->ctx = ctx;
	init_completion(&job->req.finished);
	job->req.done = uma_job_done;
	job->req.request = &job->request;
	job->req.reply = &job->reply;
	uma_req_header(ctx->ud, &job->req, VIRTIO_UMA_OP_SUBMIT, sizeof(job->request), &ctx->asid);
	job->req.reply_size = sizeof(job->reply);
	uma_job_fill(job, args);
	return job;
}

/* Counts the job in and puts it where UMA_IOC_WAIT finds it. */
static int uma_job_insert(struct uma_ctx *ctx, struct uma_job *job)
{
	int ret = 0;

	mutex_lock(&ctx->lock);
	if (ctx->nr_jobs >= ctx->ud->config.limits.max_jobs_per_asid)
		ret = -EAGAIN;
	else
		ctx->nr_jobs++;
	mutex_unlock(&ctx->lock);
	if (ret)
		return ret;
	kref_get(&job->ref);
	ret = xa_err(xa_store_irq(&ctx->jobs, job->req.id, job, GFP_KERNEL_ACCOUNT));
	if (ret)
		uma_job_put(job);
	return ret;
}

/* Takes a job out of the table. Return: whether the caller was the one who did. */
static bool uma_job_remove(struct uma_ctx *ctx, struct uma_job *job)
{
	if (!xa_erase_irq(&ctx->jobs, job->req.id))
		return false;
	uma_job_count_end(job);
	mutex_lock(&ctx->lock);
	ctx->nr_jobs--;
	mutex_unlock(&ctx->lock);
	uma_job_put(job);
	return true;
}

/**
 * uma_job_submit - UMA_IOC_SUBMIT
 *
 * Return: as documented in uma.h.
 */
int uma_job_submit(struct uma_ctx *ctx, struct uma_submit *args)
{
	struct uma_device *ud = ctx->ud;
	struct file *file = NULL;
	struct uma_job *job;
	int ret, fd = -1;

	if (args->reserved0 || args->reserved1 || (args->flags & ~UMA_SUBMIT_FENCE_FD) ||
	    args->priority >= VIRTIO_UMA_MAX_PRIORITY || args->stream >= ud->config.limits.max_streams ||
	    max(args->wait_fence, args->signal_fence) > ud->config.limits.max_fences)
		return -EINVAL;
	ret = uma_check_args(args);
	if (ret)
		return ret;
	job = uma_job_new(ctx, args);
	if (!job)
		return -ENOMEM;
	if (args->flags & UMA_SUBMIT_FENCE_FD) {
		fd = uma_fence_prepare(job, &file);
		if (fd < 0) {
			uma_job_put(job);
			return fd;
		}
	}
	ret = uma_job_insert(ctx, job);
	if (ret)
		goto put;
	trace_uma_job(ctx->asid.index, job->req.id, args->kernel, false, 0);
	atomic64_inc(&ctx->counters->jobs);
	atomic64_inc(&ud->totals->jobs);
	kref_get(&job->ref);	/* the device's */
	ret = uma_post(uma_queue_of(ud, ud->config.queues.compute, args->stream), &job->req);
	if (ret) {
		uma_job_put(job);
		uma_job_remove(ctx, job);
		goto put;
	}
	args->job = job->req.id;
	args->fence_fd = fd;
	if (file)
		fd_install(fd, file);
	uma_job_put(job);
	return 0;
put:
	if (file) {
		put_unused_fd(fd);
		fput(file);
	}
	uma_job_put(job);
	return ret;
}

static struct uma_job *uma_job_find(struct uma_ctx *ctx, u64 id)
{
	struct uma_job *job;
	unsigned long flags;

	xa_lock_irqsave(&ctx->jobs, flags);
	job = xa_load(&ctx->jobs, id);
	if (job)
		kref_get(&job->ref);
	xa_unlock_irqrestore(&ctx->jobs, flags);
	return job;
}

/* --------------------------------------------------------------------- wait */

static int uma_job_result(struct uma_job *job, struct uma_wait *args)
{
	const struct virtio_uma_job_reply *reply = &job->reply;

	if (!smp_load_acquire(&job->ended) || job->req.error)
		return -ENODEV;
	args->status = reply->header.status;
	args->error = -uma_status_errno(reply->header.status);
	args->fault_va = reply->fault_va;
	args->fault_access = reply->fault_access;
	args->fault_cause = reply->fault_cause;
	args->fault_result = reply->fault_result;
	args->eu = reply->eu;
	args->steps = reply->steps;
	args->bytes = reply->bytes;
	args->faults = reply->faults;
	args->device_ns = reply->device_ns;
	args->result = reply->result;
	return 0;
}

/**
 * uma_job_wait - UMA_IOC_WAIT
 *
 * Return: as documented in uma.h.
 */
int uma_job_wait(struct uma_ctx *ctx, struct uma_wait *args)
{
	struct uma_job *job = uma_job_find(ctx, args->job);
	long left = MAX_SCHEDULE_TIMEOUT;
	int ret = 0;

	if (!job)
		return -ENOENT;
	if (args->timeout_ns != ~0ULL)
		left = nsecs_to_jiffies64(min_t(u64, args->timeout_ns, (u64)S64_MAX / 2));
	if (args->timeout_ns && args->timeout_ns != ~0ULL && left < 1)
		left = 1;
	if (!uma_job_is_over(job)) {
		left = left ? wait_event_interruptible_timeout(ctx->job_wait, uma_job_is_over(job), left) : 0;
		if (left < 0)
			ret = -EINTR;
		else if (!left)
			ret = -ETIME;
	}
	if (!ret)
		ret = uma_job_remove(ctx, job) ? uma_job_result(job, args) : -ENOENT;
	uma_job_put(job);
	return ret;
}

/* Return: 0, -ENOENT if the device does not know the job, or as uma_call(). */
static int uma_cancel_once(struct uma_ctx *ctx, u64 id)
{
	struct uma_device *ud = ctx->ud;
	struct virtio_uma_reply_header *reply;
	struct virtio_uma_cancel *cancel;
	struct uma_req *req = uma_req_get(ud, &ud->control);
	int ret;

	if (!req)
		return -ENODEV;
	cancel = uma_req_header(ud, req, VIRTIO_UMA_OP_CANCEL, sizeof(*cancel), &ctx->asid);
	cancel->job_id = id;
	req->reply_size = sizeof(*reply);
	reply = req->reply;
	ret = uma_call(uma_queue_of(ud, ud->config.queues.control, 0), req);
	ret = ret ?: uma_status_errno(reply->status);
	uma_req_put(req);
	return ret;
}

/**
 * uma_job_cancel - UMA_IOC_CANCEL
 *
 * The control queue can overtake the compute queue: a device that does not know a job that
 * has not ended has not seen it yet, and is asked again.
 *
 * Return: as documented in uma.h.
 */
int uma_job_cancel(struct uma_ctx *ctx, u64 id)
{
	struct uma_job *job = uma_job_find(ctx, id);
	unsigned long deadline = jiffies + UMA_DEVICE_TIMEOUT;
	int ret = -ENOENT;

	if (!job)
		return -ENOENT;
	while (!smp_load_acquire(&job->ended)) {
		ret = uma_cancel_once(ctx, id);
		if (ret != -ENOENT || time_after(jiffies, deadline) || fatal_signal_pending(current))
			break;
		usleep_range(50, 200);
		ret = -ENOENT;
	}
	uma_job_put(job);
	return ret;
}

/**
 * uma_jobs_forget - drop what was never waited for
 */
void uma_jobs_forget(struct uma_ctx *ctx)
{
	struct uma_job *job;
	unsigned long index;

	xa_for_each(&ctx->jobs, index, job)
		uma_job_remove(ctx, job);
}
