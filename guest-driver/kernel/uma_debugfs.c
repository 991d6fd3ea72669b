// SPDX-License-Identifier: GPL-2.0
/*
 * uma_debugfs.c - /sys/kernel/debug/uma<N>: who moved what, and why
 */
#include <linux/debugfs.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>

#include "uma_drv.h"

/**
 * uma_query_words - ask the device for counters
 * @ud:		the device
 * @selector:	VIRTIO_UMA_QUERY_*
 * @words:	out
 * @count:	words
 *
 * Return: 0 or as uma_call().
 */
int uma_query_words(struct uma_device *ud, u32 selector, u64 *words, u32 count)
{
	u32 size = sizeof(struct virtio_uma_reply_header) + count * sizeof(*words);
	struct uma_req *req = uma_req_get(ud, &ud->control);
	struct virtio_uma_reply_header *reply;
	struct virtio_uma_query *query;
	int ret;

	if (!req)
		return -ENODEV;
	query = uma_req_header(ud, req, VIRTIO_UMA_OP_QUERY, sizeof(*query), NULL);
	query->selector = selector;
	req->reply_size = size;
	reply = req->reply;
	ret = uma_call(uma_queue_of(ud, ud->config.queues.control, 0), req);
	ret = ret ?: uma_status_errno(reply->status);
	if (!ret && req->used != size)
		ret = -EPROTO;
	if (!ret)
		memcpy(words, reply + 1, count * sizeof(*words));
	uma_req_put(req);
	return ret;
}

static void uma_show(struct seq_file *m, struct uma_counters *c)
{
	static const char * const back[] = { NULL, "prefetch", "cpu", "evict", "release" };
	u32 i;

	seq_printf(m, "faults %lld\nfaults_failed %lld\n", atomic64_read(&c->faults),
		   atomic64_read(&c->faults_failed));
	seq_printf(m, "to_device_fault %lld\nto_device_prefetch %lld\nzero_filled %lld\nhuge_to_device %lld\n",
		   atomic64_read(&c->to_device[UMA_CAUSE_FAULT]),
		   atomic64_read(&c->to_device[UMA_CAUSE_PREFETCH]), atomic64_read(&c->zero_filled),
		   atomic64_read(&c->huge_to_device));
	for (i = UMA_CAUSE_PREFETCH; i <= UMA_CAUSE_RELEASE; i++)
		seq_printf(m, "to_system_%s %lld\n", back[i], atomic64_read(&c->to_system[i]));
	seq_printf(m, "huge_to_system %lld\nmapped_in_place %lld\ncpu_faults %lld\ninvalidations %lld\n",
		   atomic64_read(&c->huge_to_system), atomic64_read(&c->mapped_in_place),
		   atomic64_read(&c->cpu_faults), atomic64_read(&c->invalidations));
	seq_printf(m, "jobs %lld\njobs_ended %lld\n", atomic64_read(&c->jobs), atomic64_read(&c->jobs_ended));
}

static int uma_counters_show(struct seq_file *m, void *unused)
{
	struct uma_device *ud = m->private;

	uma_show(m, ud->totals);
	seq_printf(m, "lost %d\nprotocol_errors %lld\ntimeouts %lld\nwaits_slept %lld\n", READ_ONCE(ud->lost),
		   atomic64_read(&ud->protocol_errors), atomic64_read(&ud->timeouts),
		   atomic64_read(&ud->waits_slept));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(uma_counters);

static int uma_contexts_show(struct seq_file *m, void *unused)
{
	struct uma_device *ud = m->private;
	struct uma_ctx *ctx;
	unsigned long index;

	xa_lock(&ud->contexts);
	xa_for_each(&ud->contexts, index, ctx) {
		seq_printf(m, "[asid %u generation %u%s]\njobs_held %u\nservices %d\ntables %d\nintervals %u\ndevice_pages %lld\n",
			   ctx->asid.index, ctx->asid.generation, READ_ONCE(ctx->dead) ? " dead" : "",
			   ctx->nr_jobs, atomic_read(&ctx->services), atomic_read(&ctx->nr_tables),
			   ctx->nr_intervals, atomic64_read(&ctx->counters->device_pages));
		uma_show(m, ctx->counters);
	}
	xa_unlock(&ud->contexts);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(uma_contexts);

static u32 uma_list_length(struct list_head *list)
{
	struct list_head *at;
	u32 n = 0;

	list_for_each(at, list)
		n++;
	return n;
}

static int uma_devmem_show(struct seq_file *m, void *unused)
{
	struct uma_device *ud = m->private;
	struct uma_devmem *mem = &ud->mem;
	unsigned long flags;
	u32 clean = 0, dirty = 0, partial;

	spin_lock_irqsave(&mem->lock, flags);
	if (mem->enabled) {
		clean = uma_list_length(&mem->clean);
		dirty = uma_list_length(&mem->dirty);
	}
	partial = uma_list_length(&mem->partial);
	spin_unlock_irqrestore(&mem->lock, flags);
	seq_printf(m, "enabled %d\nlarge %d\nbytes %llu\nbytes_with_pages %llu\npages_used %lld\npages_quarantined %lld\n",
		   mem->enabled, mem->large, ud->config.dpa_size, mem->next_dpa,
		   atomic64_read(&mem->used_pages), atomic64_read(&mem->quarantined));
	seq_printf(m, "blocks_clean %u\nblocks_dirty %u\nblocks_used %u\n", clean, dirty, partial);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(uma_devmem);

static int uma_queues_show(struct seq_file *m, void *unused)
{
	struct uma_device *ud = m->private;
	u32 i;

	for (i = 0; i < ud->nr_queues; i++)
		seq_printf(m, "queue %u size %u free %u\n", i, virtqueue_get_vring_size(ud->queues[i].vq),
			   ud->queues[i].vq->num_free);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(uma_queues);

/**
 * uma_debugfs_init - make the folder; without debugfs there is none
 */
void uma_debugfs_init(struct uma_device *ud)
{
	ud->debugfs = debugfs_create_dir(ud->name, NULL);
	debugfs_create_file("counters", 0444, ud->debugfs, ud, &uma_counters_fops);
	debugfs_create_file("contexts", 0444, ud->debugfs, ud, &uma_contexts_fops);
	debugfs_create_file("devmem", 0444, ud->debugfs, ud, &uma_devmem_fops);
	debugfs_create_file("queues", 0444, ud->debugfs, ud, &uma_queues_fops);
}

void uma_debugfs_fini(struct uma_device *ud)
{
	debugfs_remove_recursive(ud->debugfs);
	ud->debugfs = NULL;
}
