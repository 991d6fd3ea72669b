/* SPDX-License-Identifier: GPL-2.0 */
/* What differs between the kernels that the driver is built for: 6.12 and 7.3. */
#ifndef UMA_COMPAT_H
#define UMA_COMPAT_H

#include <linux/version.h>
#include <linux/hmm.h>
#include <linux/memremap.h>
#include <linux/migrate.h>
#include <linux/mm.h>

/*
 * Private device memory needs DEVICE_PRIVATE and the folio interfaces of 6.19 and
 * later. Without them pages are mapped where they are and none of uma_devmem.c's
 * machinery is reachable.
 */
#if IS_ENABLED(CONFIG_DEVICE_PRIVATE) && LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
#define UMA_HAVE_PRIVATE 1
#else
#define UMA_HAVE_PRIVATE 0
#endif

/* virtio_driver.shutdown, and a default that resets where there is none */
#define UMA_HAVE_SHUTDOWN (LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0))

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
static inline int uma_range_fault(struct hmm_range *range, unsigned long timeout)
{
	struct mm_struct *mm = range->notifier->mm;
	unsigned long deadline = jiffies + timeout;
	int ret;

	do {
		range->notifier_seq = mmu_interval_read_begin(range->notifier);
		ret = mmap_read_lock_killable(mm);
		if (ret)
			return ret;
		ret = hmm_range_fault(range);
		mmap_read_unlock(mm);
	} while (ret == -EBUSY && time_before(jiffies, deadline));
	return ret;
}
#else
#define uma_range_fault(range, timeout) hmm_range_fault_unlocked_timeout(range, timeout)
#endif

#endif /* UMA_COMPAT_H */
