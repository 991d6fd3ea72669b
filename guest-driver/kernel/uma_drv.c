// SPDX-License-Identifier: GPL-2.0
/*
 * uma_drv.c - virtio_uma.ko: a device that computes on the memory of processes
 *
 * DOC: Overview
 *
 * The device walks page tables that this driver mirrors for it, faults, and has memory of
 * its own that appears here as DEVICE_PRIVATE pages. uma_cdev.c is what programs see,
 * uma_ctx.c an address space, uma_mirror.c its tables, uma_sync.c how the device forgets
 * translations, uma_fault.c how it gets them, uma_migrate.c and uma_evict.c how pages move,
 * uma_devmem.c the device's memory, uma_vq.c the queues.
 *
 * DOC: Trust
 *
 * The device is a process on the host, maybe a hostile one. The configuration space is
 * validated whole and copied once; replies are checked in uma_vq.c. A device that breaks
 * the protocol, or does not answer in time, is lost: every call fails with ENODEV, waiters
 * are woken, and only unbinding (which resets it) makes it usable again.
 */
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "uma_drv.h"
#define CREATE_TRACE_POINTS
#include "uma_trace.h"

static DEFINE_IDA(uma_ida);

static void uma_device_free(struct kref *ref)
{
	struct uma_device *ud = container_of(ref, struct uma_device, ref);

	uma_counters_put(ud->totals);
	xa_destroy(&ud->contexts);
	ida_free(&uma_ida, ud->index);
	kfree(ud);
}

void uma_device_put(struct uma_device *ud)
{
	kref_put(&ud->ref, uma_device_free);
}

/* ---------------------------------------------------- configuration space */

static bool uma_within(u32 value, u32 max)
{
	return value >= 1 && value <= max;
}

static bool uma_limits_ok(const struct virtio_uma_limits *l)
{
	return uma_within(l->max_asids, 0xffff) && uma_within(l->num_eus, VIRTIO_UMA_MAX_EUS) &&
	       uma_within(l->max_jobs, 1 << 16) && uma_within(l->max_pending_faults, 1 << 16) &&
	       uma_within(l->max_migrate_entries, VIRTIO_UMA_MAX_MIGRATE_ENTRIES) &&
	       uma_within(l->max_fault_records, VIRTIO_UMA_MAX_FAULT_RECORDS) &&
	       uma_within(l->max_ring_entries, VIRTIO_UMA_MAX_RING_ENTRIES) &&
	       l->max_ring_entries >= VIRTIO_UMA_MIN_RING_ENTRIES && is_power_of_2(l->max_ring_entries) &&
	       uma_within(l->max_streams, 1 << 16) && uma_within(l->max_fences, 1 << 16) &&
	       uma_within(l->max_jobs_per_asid, l->max_jobs);
}

static bool uma_queues_ok(const struct virtio_uma_device_config *config)
{
	const struct virtio_uma_queue_run *runs = &config->queues.control;
	u32 i, j, total = 0;

	BUILD_BUG_ON(sizeof(config->queues) != 8 * sizeof(*runs));
	for (i = 0; i < 7; i++) {
		u32 end = (u32)runs[i].first + runs[i].count;

		/* only the invalidate queue may be absent */
		if (!runs[i].count && i != 1)
			return false;
		total = max(total, end);
		for (j = i + 1; j < 7; j++)
			if (runs[i].count && runs[j].count && runs[i].first < (u32)runs[j].first + runs[j].count &&
			    runs[j].first < end)
				return false;
	}
	return total == config->num_queues && !runs[7].first && !runs[7].count;
}

/* Return: NULL, or what is wrong (SPEC.md 4.3). */
static const char *uma_config_fault(const struct virtio_uma_device_config *c)
{
	const u64 sizes = 1ULL << VIRTIO_UMA_PAGE_SHIFT | 1ULL << VIRTIO_UMA_HUGE_SHIFT |
			  1ULL << VIRTIO_UMA_GIGANTIC_SHIFT;
	u32 i;

	if (c->version_major != VIRTIO_UMA_VERSION_MAJOR)
		return "version";
	if (!(c->page_sizes & 1ULL << VIRTIO_UMA_PAGE_SHIFT) || (c->page_sizes & ~sizes))
		return "page sizes";
	if (!(c->table_levels & 1 << 4) || (c->table_levels & ~(1 << 4 | 1 << 5)) ||
	    c->va_bits != (c->table_levels & 1 << 5 ? 57 : 48))
		return "table levels";
	if (!uma_limits_ok(&c->limits))
		return "limits";
	if (!uma_queues_ok(c))
		return "queue roles";
	if (!c->dpa_size || c->dpa_size % VIRTIO_UMA_HUGE_SIZE || c->dpa_size >> 52)
		return "size of device memory";
	if ((c->window_id == VIRTIO_UMA_NO_WINDOW) != !c->window_size || c->window_size > c->dpa_size)
		return "window";
	if (c->reserved0 || c->reserved2[0] || c->reserved2[1] || memchr_inv(c->reserved1, 0, sizeof(c->reserved1)) ||
	    memchr_inv(c->reserved3, 0, sizeof(c->reserved3)) || c->limits.reserved[0] || c->limits.reserved[1])
		return "reserved fields";
	for (i = 0; i < sizeof(c->queues) / 4; i++)
		if ((&c->queues.control)[i].count > 64)
			return "queue roles";
	return NULL;
}

static int uma_read_config(struct uma_device *ud)
{
	const char *fault;

	BUILD_BUG_ON(sizeof(ud->config) != VIRTIO_UMA_CONFIG_SIZE);
	/* every access is a round trip through the hypervisor: as few as possible */
	__virtio_cread_many(ud->vdev, 0, &ud->config, VIRTIO_UMA_CONFIG_SIZE / 8, 8);
	if (ud->config.magic != VIRTIO_UMA_MAGIC) {
		dev_info(&ud->vdev->dev, "not a virtio-uma device (magic %#x)\n", ud->config.magic);
		return -ENODEV;
	}
	fault = uma_config_fault(&ud->config);
	if (fault) {
		dev_err(&ud->vdev->dev, "configuration refused: %s\n", fault);
		return -EINVAL;
	}
	ud->capabilities = ud->config.capabilities &
		(VIRTIO_UMA_CAP_MIRRORED | VIRTIO_UMA_CAP_MIGRATE | VIRTIO_UMA_CAP_MIGRATE_LARGE |
		 VIRTIO_UMA_CAP_ATOMICS | VIRTIO_UMA_CAP_ROBUST_OWNER);
	if (!UMA_HAVE_PRIVATE)
		ud->capabilities &= ~(VIRTIO_UMA_CAP_MIGRATE | VIRTIO_UMA_CAP_MIGRATE_LARGE);
	if (!(ud->capabilities & VIRTIO_UMA_CAP_MIRRORED)) {
		dev_err(&ud->vdev->dev, "configuration refused: no mirrored tables\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

/* ------------------------------------------------------------------ session */

static int uma_negotiate(struct uma_device *ud)
{
	struct virtio_uma_negotiate *negotiate;
	struct virtio_uma_reply_header *reply;
	struct uma_req *req = uma_req_get(ud, &ud->control);
	int ret;

	if (!req)
		return -ENODEV;
	do {
		get_random_bytes(&ud->session, sizeof(ud->session));
	} while (!ud->session);
	negotiate = uma_req_header(ud, req, VIRTIO_UMA_OP_NEGOTIATE, sizeof(*negotiate), NULL);
	negotiate->session_id = ud->session;
	negotiate->capabilities = ud->capabilities;
	negotiate->version_major = VIRTIO_UMA_VERSION_MAJOR;
	negotiate->version_minor = VIRTIO_UMA_VERSION_MINOR;
	req->reply_size = sizeof(*reply);
	reply = req->reply;
	ret = uma_call(uma_queue_of(ud, ud->config.queues.control, 0), req);
	ret = ret ?: uma_status_errno(reply->status);
	uma_req_put(req);
	return ret;
}

static int uma_register_sync(struct uma_device *ud)
{
	struct virtio_uma_register_sync *sync;
	struct virtio_uma_reply_header *reply;
	struct uma_req *req = uma_req_get(ud, &ud->control);
	int ret;

	if (!req)
		return -ENODEV;
	sync = uma_req_header(ud, req, VIRTIO_UMA_OP_REGISTER_SYNC, sizeof(*sync), NULL);
	sync->addr = virt_to_phys(ud->sync);
	req->reply_size = sizeof(*reply);
	reply = req->reply;
	ret = uma_call(uma_queue_of(ud, ud->config.queues.control, 0), req);
	ret = ret ?: uma_status_errno(reply->status);
	uma_req_put(req);
	return ret;
}

static int uma_begin_session(struct uma_device *ud)
{
	u64 *state;
	int ret;

	ud->sync = (void *)get_zeroed_page(GFP_KERNEL);
	if (!ud->sync)
		return -ENOMEM;
	state = ud->sync + VIRTIO_UMA_DRIVER_STATE_OFFSET;
	WRITE_ONCE(*state, VIRTIO_UMA_DRIVER_RUNNING);
	ret = uma_negotiate(ud);
	if (ret) {
		dev_err(&ud->vdev->dev, "NEGOTIATE failed: %d\n", ret);
		return ret;
	}
	ret = uma_register_sync(ud);
	if (ret) {
		dev_err(&ud->vdev->dev, "REGISTER_SYNC failed: %d\n", ret);
		return ret;
	}
	/* for whoever looks at the device from outside */
	ud->vdev->config->set(ud->vdev, offsetof(struct virtio_uma_device_config, session_id), &ud->session, 8);
	ud->vdev->config->set(ud->vdev, offsetof(struct virtio_uma_device_config, accepted_capabilities),
			      &ud->capabilities, 8);
	trace_uma_session(ud->session, true);
	return uma_post_fault_buffers(ud);
}

/* ------------------------------------------------------------ probe, remove */

static struct uma_device *uma_device_new(struct virtio_device *vdev)
{
	struct uma_device *ud = kzalloc(sizeof(*ud), GFP_KERNEL);

	if (!ud)
		return NULL;
	ud->index = ida_alloc(&uma_ida, GFP_KERNEL);
	ud->totals = uma_counters_new();
	if (ud->index < 0 || !ud->totals) {
		if (ud->index >= 0)
			ida_free(&uma_ida, ud->index);
		uma_counters_put(ud->totals);
		kfree(ud);
		return NULL;
	}
	snprintf(ud->name, sizeof(ud->name), "uma%d", ud->index);
	kref_init(&ud->ref);
	init_rwsem(&ud->gate);
	INIT_DELAYED_WORK(&ud->health, uma_health_check);
	xa_init(&ud->contexts);
	ud->vdev = vdev;
	vdev->priv = ud;
	return ud;
}

/* Takes down whatever of the device is up; right at every point of probe. */
static void uma_teardown(struct uma_device *ud)
{
	WRITE_ONCE(ud->gone, true);
	cancel_delayed_work_sync(&ud->health);
	if (ud->sync)
		WRITE_ONCE(*(u64 *)(ud->sync + VIRTIO_UMA_DRIVER_STATE_OFFSET), VIRTIO_UMA_DRIVER_STOPPING);
	if (ud->queues)
		uma_queues_fini(ud);
	if (ud->wq)
		destroy_workqueue(ud->wq);
	ud->wq = NULL;
	free_page((unsigned long)ud->sync);
	ud->sync = NULL;
	trace_uma_session(ud->session, false);
	uma_device_put(ud);
}

static int uma_probe(struct virtio_device *vdev)
{
	struct uma_device *ud;
	int ret;

	if (!virtio_has_feature(vdev, VIRTIO_F_VERSION_1)) {
		dev_err(&vdev->dev, "only virtio 1 is spoken\n");
		return -ENODEV;
	}
	ud = uma_device_new(vdev);
	if (!ud)
		return -ENOMEM;
	ret = uma_read_config(ud);
	if (ret)
		goto fail;
	sema_init(&ud->services, ud->config.limits.max_pending_faults);
	ud->wq = alloc_workqueue("uma%d", WQ_UNBOUND, 0, ud->index);
	ret = ud->wq ? uma_queues_init(ud) : -ENOMEM;
	if (ret)
		goto fail;
	virtio_device_ready(vdev);
	ret = uma_begin_session(ud);
	ret = ret ?: uma_devmem_init(ud);
	ret = ret ?: uma_cdev_register(ud);
	if (ret)
		goto fail;
	uma_debugfs_init(ud);
	queue_delayed_work(ud->wq, &ud->health, 0);
	dev_info(&vdev->dev, "/dev/%s: %u execution units, %llu MiB of device memory, pages %s\n", ud->name,
		 ud->config.limits.num_eus, ud->config.dpa_size >> 20,
		 ud->mem.enabled ? "move" : "stay in system memory");
	return 0;
fail:
	uma_teardown(ud);
	return ret;
}

static void uma_remove(struct virtio_device *vdev)
{
	struct uma_device *ud = vdev->priv;

	/* no call begins any more; then contexts, so that no service brings pages; then all comes back to RAM */
	WRITE_ONCE(ud->gone, true);
	down_write(&ud->gate);
	up_write(&ud->gate);
	uma_cdev_unregister(ud);
	uma_evict_all(ud);
	uma_debugfs_fini(ud);
	uma_devmem_fini(ud);
	uma_teardown(ud);
}

#if UMA_HAVE_SHUTDOWN
static void uma_shutdown(struct virtio_device *vdev)
{
	/* no reset: processes may still touch pages that live on the device */
}
#endif

static const struct virtio_device_id uma_ids[] = {
	{ VIRTIO_UMA_DEFAULT_ID, VIRTIO_DEV_ANY_ID },
	{ 39, VIRTIO_DEV_ANY_ID },
	{ 21, VIRTIO_DEV_ANY_ID },
	{ 0 },
};
MODULE_DEVICE_TABLE(virtio, uma_ids);

static int uma_validate(struct virtio_device *vdev)
{
	/* device addresses are physical ones here */
	__virtio_clear_bit(vdev, VIRTIO_F_ACCESS_PLATFORM);
	return 0;
}

static struct virtio_driver uma_driver = {
	.driver.name		= KBUILD_MODNAME,
	.id_table		= uma_ids,
	.validate		= uma_validate,
	.probe			= uma_probe,
	.remove			= uma_remove,
#if UMA_HAVE_SHUTDOWN
	.shutdown		= uma_shutdown,
#endif
};
module_virtio_driver(uma_driver);

MODULE_DESCRIPTION("virtio-uma: virtual unified-memory accelerator");
MODULE_LICENSE("GPL");
