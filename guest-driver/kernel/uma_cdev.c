// SPDX-License-Identifier: GPL-2.0
/*
 * uma_cdev.c - /dev/uma<N>: checks what user space hands in, then calls the rest
 */
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "uma_drv.h"

/* ud->gate guards @ctx */
struct uma_file {
	struct uma_device *ud;
	struct mm_struct *mm;
	struct uma_ctx *ctx;
	struct list_head node;
};

static LIST_HEAD(uma_files);
static DEFINE_MUTEX(uma_files_lock);

static int uma_open(struct inode *inode, struct file *file)
{
	struct uma_device *ud = container_of(file->private_data, struct uma_device, misc);
	struct uma_file *uf = kzalloc(sizeof(*uf), GFP_KERNEL_ACCOUNT);

	if (!uf)
		return -ENOMEM;
	kref_get(&ud->ref);
	uf->ud = ud;
	uf->mm = current->mm;
	if (uf->mm)
		mmgrab(uf->mm);
	mutex_lock(&uma_files_lock);
	list_add(&uf->node, &uma_files);
	mutex_unlock(&uma_files_lock);
	file->private_data = uf;
	return 0;
}

/* Takes a file's context away. */
static void uma_file_close(struct uma_file *uf)
{
	struct uma_ctx *ctx;

	down_write(&uf->ud->gate);
	ctx = uf->ctx;
	uf->ctx = NULL;
	up_write(&uf->ud->gate);
	if (ctx)
		uma_ctx_close(ctx);
}

static int uma_release(struct inode *inode, struct file *file)
{
	struct uma_file *uf = file->private_data;

	mutex_lock(&uma_files_lock);
	list_del(&uf->node);
	uma_file_close(uf);
	mutex_unlock(&uma_files_lock);
	if (uf->mm)
		mmdrop(uf->mm);
	uma_device_put(uf->ud);
	kfree(uf);
	return 0;
}

static int uma_ioc_create(struct uma_file *uf, struct uma_create *args)
{
	struct uma_ctx *ctx;
	int ret = 0;

	if (args->flags || args->reserved || (args->mode != UMA_MODE_MIRRORED && args->mode != UMA_MODE_SHARED))
		return -EINVAL;
	if (args->mode == UMA_MODE_SHARED)
		return -EOPNOTSUPP;
	if (uf->ctx)
		return -EBUSY;
	ctx = uma_ctx_create(uf->ud);
	if (IS_ERR(ctx))
		return PTR_ERR(ctx);
	args->asid = ctx->asid.index;
	/* two creates can race here; they hold the gate for read only */
	if (cmpxchg(&uf->ctx, NULL, ctx)) {
		uma_ctx_close(ctx);
		ret = -EBUSY;
	}
	return ret;
}

static void uma_ioc_query(struct uma_device *ud, struct uma_query *query)
{
	memset(query, 0, sizeof(*query));
	query->features = UMA_FEATURE_MIRRORED;
	if (ud->capabilities & VIRTIO_UMA_CAP_ATOMICS)
		query->features |= UMA_FEATURE_ATOMICS;
	if (ud->mem.enabled)
		query->features |= UMA_FEATURE_PRIVATE;
	if (ud->mem.large)
		query->features |= UMA_FEATURE_LARGE;
	query->device_bytes = ud->config.dpa_size;
	query->device_free = ud->config.dpa_size - ((u64)atomic64_read(&ud->mem.used_pages) << PAGE_SHIFT);
	query->capabilities = ud->capabilities;
	query->session = ud->session;
	query->max_jobs = ud->config.limits.max_jobs_per_asid;
	query->max_streams = ud->config.limits.max_streams;
	query->max_fences = ud->config.limits.max_fences;
	query->num_eus = ud->config.limits.num_eus;
	query->state = READ_ONCE(ud->lost) ? UMA_STATE_LOST : UMA_STATE_OK;
}

static void uma_ioc_stats(struct uma_ctx *ctx, struct uma_stats *stats)
{
	struct uma_counters *c = ctx->counters;

	memset(stats, 0, sizeof(*stats));
	stats->faults = atomic64_read(&c->faults);
	stats->faults_failed = atomic64_read(&c->faults_failed);
	stats->faults_stale = atomic64_read(&c->faults_stale);
	stats->to_device_fault = atomic64_read(&c->to_device[UMA_CAUSE_FAULT]);
	stats->to_device_prefetch = atomic64_read(&c->to_device[UMA_CAUSE_PREFETCH]);
	stats->zero_filled = atomic64_read(&c->zero_filled);
	stats->to_system_cpu = atomic64_read(&c->to_system[UMA_CAUSE_CPU]);
	stats->to_system_prefetch = atomic64_read(&c->to_system[UMA_CAUSE_PREFETCH]);
	stats->to_system_evict = atomic64_read(&c->to_system[UMA_CAUSE_EVICT]);
	stats->to_system_release = atomic64_read(&c->to_system[UMA_CAUSE_RELEASE]);
	stats->huge_to_device = atomic64_read(&c->huge_to_device);
	stats->huge_to_system = atomic64_read(&c->huge_to_system);
	stats->mapped_in_place = atomic64_read(&c->mapped_in_place);
	stats->cpu_faults = atomic64_read(&c->cpu_faults);
	stats->invalidations = atomic64_read(&c->invalidations);
	stats->jobs = atomic64_read(&c->jobs);
	stats->jobs_ended = atomic64_read(&c->jobs_ended);
	stats->device_pages = atomic64_read(&c->device_pages);
}

static int uma_ioc_device_stats(struct uma_device *ud, struct uma_device_stats *stats)
{
	int ret;

	BUILD_BUG_ON(sizeof(struct virtio_uma_device_counters) != sizeof(stats->counters));
	BUILD_BUG_ON(sizeof(struct virtio_uma_memory_info) != sizeof(stats->memory));
	memset(stats, 0, sizeof(*stats));
	ret = uma_query_words(ud, VIRTIO_UMA_QUERY_COUNTERS, stats->counters, ARRAY_SIZE(stats->counters));
	ret = ret ?: uma_query_words(ud, VIRTIO_UMA_QUERY_MEMORY, stats->memory, ARRAY_SIZE(stats->memory));
	stats->asids = atomic_read(&ud->nr_contexts);
	stats->pages_used = atomic64_read(&ud->mem.used_pages);
	stats->pages_quarantined = atomic64_read(&ud->mem.quarantined);
	return ret;
}

static bool uma_advice_range_ok(const struct uma_advise *args)
{
	return args->length && PAGE_ALIGNED(args->start | args->length) &&
	       args->start + args->length > args->start && args->start + args->length <= TASK_SIZE_MAX;
}

union uma_args {
	struct uma_query query;
	struct uma_create create;
	struct uma_submit submit;
	struct uma_wait wait;
	struct uma_cancel cancel;
	struct uma_advise advise;
	struct uma_prefetch prefetch;
	struct uma_residency residency;
	struct uma_stats stats;
	struct uma_device_stats device_stats;
};

static int uma_ctx_ioctl(struct uma_ctx *ctx, unsigned int cmd, union uma_args *args)
{
	switch (cmd) {
	case UMA_IOC_SUBMIT:
		return uma_job_submit(ctx, &args->submit);
	case UMA_IOC_CANCEL:
		return uma_job_cancel(ctx, args->cancel.job);
	case UMA_IOC_ADVISE:
		return uma_advice_range_ok(&args->advise) ? uma_advise(ctx, &args->advise) : -EINVAL;
	case UMA_IOC_PREFETCH:
		return uma_prefetch(ctx, &args->prefetch);
	case UMA_IOC_RESIDENCY:
		return uma_residency(ctx, &args->residency);
	case UMA_IOC_STATS:
		uma_ioc_stats(ctx, &args->stats);
		return 0;
	}
	return -ENOTTY;
}

static int uma_locked_ioctl(struct uma_file *uf, unsigned int cmd, union uma_args *args)
{
	struct uma_device *ud = uf->ud;

	switch (cmd) {
	case UMA_IOC_QUERY:
		uma_ioc_query(ud, &args->query);
		return 0;
	case UMA_IOC_DEVICE_STATS:
		return READ_ONCE(ud->lost) ? -ENODEV : uma_ioc_device_stats(ud, &args->device_stats);
	case UMA_IOC_CREATE:
		return READ_ONCE(ud->lost) ? -ENODEV : uma_ioc_create(uf, &args->create);
	}
	if (!uf->ctx)
		return -EINVAL;
	if (READ_ONCE(ud->lost) && cmd != UMA_IOC_STATS)
		return -ENODEV;
	return uma_ctx_ioctl(uf->ctx, cmd, args);
}

/* Waits without the gate, so that the device can be taken away meanwhile. */
static int uma_wait_ioctl(struct uma_file *uf, struct uma_wait *args)
{
	struct uma_ctx *ctx = NULL;
	int ret = -ENODEV;

	down_read(&uf->ud->gate);
	if (!uf->ud->gone) {
		ctx = uf->ctx;
		if (ctx)
			kref_get(&ctx->ref);
		else
			ret = -EINVAL;
	}
	up_read(&uf->ud->gate);
	if (!ctx)
		return ret;
	ret = uma_job_wait(ctx, args);
	uma_ctx_put(ctx);
	return ret;
}

static bool uma_is_known(unsigned int cmd)
{
	switch (cmd) {
	case UMA_IOC_QUERY:
	case UMA_IOC_CREATE:
	case UMA_IOC_SUBMIT:
	case UMA_IOC_WAIT:
	case UMA_IOC_CANCEL:
	case UMA_IOC_ADVISE:
	case UMA_IOC_PREFETCH:
	case UMA_IOC_RESIDENCY:
	case UMA_IOC_STATS:
	case UMA_IOC_DEVICE_STATS:
		return true;
	}
	return false;
}

static long uma_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct uma_file *uf = file->private_data;
	void __user *user = (void __user *)arg;
	union uma_args args = {};
	long ret;

	if (!uma_is_known(cmd))
		return -ENOTTY;
	if (current->mm != uf->mm)
		return -EXDEV;
	if ((_IOC_DIR(cmd) & _IOC_WRITE) && copy_from_user(&args, user, _IOC_SIZE(cmd)))
		return -EFAULT;
	if (cmd == UMA_IOC_WAIT) {
		ret = uma_wait_ioctl(uf, &args.wait);
	} else {
		down_read(&uf->ud->gate);
		ret = uf->ud->gone ? -ENODEV : uma_locked_ioctl(uf, cmd, &args);
		up_read(&uf->ud->gate);
	}
	/* a prefetch that met a hole still says what it moved */
	if ((!ret || cmd == UMA_IOC_PREFETCH) && (_IOC_DIR(cmd) & _IOC_READ) &&
	    copy_to_user(user, &args, _IOC_SIZE(cmd)))
		ret = -EFAULT;
	return ret;
}

static const struct file_operations uma_fops = {
	.owner		= THIS_MODULE,
	.open		= uma_open,
	.release	= uma_release,
	.unlocked_ioctl	= uma_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.llseek		= noop_llseek,
};

/**
 * uma_cdev_register - make /dev/uma<N>
 *
 * Return: 0 or an errno.
 */
int uma_cdev_register(struct uma_device *ud)
{
	ud->misc.minor = MISC_DYNAMIC_MINOR;
	ud->misc.name = ud->name;
	ud->misc.fops = &uma_fops;
	ud->misc.mode = 0666;
	return misc_register(&ud->misc);
}

/**
 * uma_cdev_unregister - take the node away and end every context
 */
void uma_cdev_unregister(struct uma_device *ud)
{
	struct uma_file *uf;

	misc_deregister(&ud->misc);
	mutex_lock(&uma_files_lock);
	list_for_each_entry(uf, &uma_files, node)
		if (uf->ud == ud)
			uma_file_close(uf);
	mutex_unlock(&uma_files_lock);
}
