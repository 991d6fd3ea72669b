// SPDX-License-Identifier: GPL-2.0
/*
 * uma_args.c - what a job may ask for (SPEC.md 8)
 *
 * The device checks all of it again. Here it becomes an errno of the call that made the
 * mistake, instead of a status of a job that ended.
 */
#include <linux/overflow.h>

#include "uma_drv.h"

struct uma_use {
	u8 va, n, scalar;	/* how many of each the kernel uses */
};

static const struct uma_use uma_uses[] = {
	[VIRTIO_UMA_KERNEL_NOP]		= { 0, 0, 0 },
	[VIRTIO_UMA_KERNEL_FILL]	= { 1, 1, 1 },
	[VIRTIO_UMA_KERNEL_COPY]	= { 2, 1, 0 },
	[VIRTIO_UMA_KERNEL_SCALE]	= { 2, 1, 1 },
	[VIRTIO_UMA_KERNEL_AXPY]	= { 2, 1, 1 },
	[VIRTIO_UMA_KERNEL_REDUCE]	= { 2, 1, 0 },
	[VIRTIO_UMA_KERNEL_DOT]		= { 3, 1, 0 },
	[VIRTIO_UMA_KERNEL_GATHER]	= { 3, 2, 0 },
	[VIRTIO_UMA_KERNEL_SCATTER]	= { 3, 2, 0 },
	[VIRTIO_UMA_KERNEL_GEMM]	= { 3, 3, 2 },
	[VIRTIO_UMA_KERNEL_ATOMIC_ADD]	= { 1, 2, 2 },
	[VIRTIO_UMA_KERNEL_ATOMIC_CAS]	= { 1, 1, 2 },
	[VIRTIO_UMA_KERNEL_CHASE]	= { 2, 1, 0 },
};

static const u8 uma_sizes[] = {
	[VIRTIO_UMA_ELEM_U8] = 1, [VIRTIO_UMA_ELEM_U32] = 4, [VIRTIO_UMA_ELEM_U64] = 8,
	[VIRTIO_UMA_ELEM_F32] = 4, [VIRTIO_UMA_ELEM_F64] = 8,
};

struct uma_span {
	u64 start, end;
};

static bool uma_elem_fits(u32 kernel, u32 elem)
{
	switch (kernel) {
	case VIRTIO_UMA_KERNEL_NOP:
		return !elem;
	case VIRTIO_UMA_KERNEL_GEMM:
		return elem == VIRTIO_UMA_ELEM_F32;
	case VIRTIO_UMA_KERNEL_CHASE:
		return elem == VIRTIO_UMA_ELEM_U64;
	case VIRTIO_UMA_KERNEL_ATOMIC_ADD:
	case VIRTIO_UMA_KERNEL_ATOMIC_CAS:
		return elem == VIRTIO_UMA_ELEM_U32 || elem == VIRTIO_UMA_ELEM_U64;
	case VIRTIO_UMA_KERNEL_SCALE:
	case VIRTIO_UMA_KERNEL_AXPY:
	case VIRTIO_UMA_KERNEL_REDUCE:
	case VIRTIO_UMA_KERNEL_DOT:
		return elem > VIRTIO_UMA_ELEM_U8;
	}
	return elem;
}

static bool uma_is_zero(const u64 *words, u32 from, u32 to)
{
	while (from < to)
		if (words[from++])
			return false;
	return true;
}

static int uma_span_make(u64 va, u64 count, u32 size, struct uma_span *span)
{
	u64 bytes;

	if (va % size)
		return -EINVAL;
	if (check_mul_overflow(count, (u64)size, &bytes) || check_add_overflow(va, bytes, &span->end) ||
	    span->end > 1ULL << 47)
		return -ERANGE;
	span->start = va;
	return 0;
}

static bool uma_overlap(const struct uma_span *a, const struct uma_span *b)
{
	return a->start < b->end && b->start < a->end;
}

/* Elements of each operand. */
static int uma_counts(u32 kernel, const u64 *n, u64 *counts)
{
	u64 product[3];

	counts[0] = counts[1] = counts[2] = n[0];
	switch (kernel) {
	case VIRTIO_UMA_KERNEL_REDUCE:
	case VIRTIO_UMA_KERNEL_DOT:
		counts[0] = 1;
		break;
	case VIRTIO_UMA_KERNEL_GATHER:
		counts[1] = n[1];
		break;
	case VIRTIO_UMA_KERNEL_SCATTER:
		counts[0] = n[1];
		break;
	case VIRTIO_UMA_KERNEL_CHASE:
		counts[0] = counts[1] = 1;
		break;
	case VIRTIO_UMA_KERNEL_GEMM:
		if (check_mul_overflow(n[0], n[1], &product[0]) || check_mul_overflow(n[0], n[2], &product[1]) ||
		    check_mul_overflow(n[2], n[1], &product[2]))
			return -ERANGE;
		memcpy(counts, product, sizeof(product));
		break;
	}
	return 0;
}

static int uma_check_overlap(u32 kernel, const struct uma_span *s)
{
	bool bad = false;

	switch (kernel) {
	case VIRTIO_UMA_KERNEL_COPY:
		bad = s[0].start > s[1].start && uma_overlap(&s[0], &s[1]);
		break;
	case VIRTIO_UMA_KERNEL_SCALE:
	case VIRTIO_UMA_KERNEL_AXPY:
		bad = s[0].start != s[1].start && uma_overlap(&s[0], &s[1]);
		break;
	case VIRTIO_UMA_KERNEL_REDUCE:
		bad = uma_overlap(&s[0], &s[1]);
		break;
	case VIRTIO_UMA_KERNEL_GATHER:
	case VIRTIO_UMA_KERNEL_SCATTER:
	case VIRTIO_UMA_KERNEL_GEMM:
	case VIRTIO_UMA_KERNEL_DOT:
		bad = uma_overlap(&s[0], &s[1]) || uma_overlap(&s[0], &s[2]);
		break;
	}
	return bad ? -EINVAL : 0;
}

/**
 * uma_check_args - check a submission
 * @args:	from user space
 *
 * Return: 0; -EINVAL for a kernel, type, alignment, scalar or overlap that the device would
 * refuse; -ERANGE for an operand that leaves the address space.
 */
int uma_check_args(const struct uma_submit *args)
{
	struct uma_span spans[3] = {};
	const struct uma_use *use;
	u64 counts[3];
	u32 size, i;
	int ret;

	if (args->kernel >= ARRAY_SIZE(uma_uses) || args->elem >= ARRAY_SIZE(uma_sizes) ||
	    !uma_elem_fits(args->kernel, args->elem))
		return -EINVAL;
	if ((!args->wait_fence && args->wait_value) || (!args->signal_fence && args->signal_value))
		return -EINVAL;
	use = &uma_uses[args->kernel];
	size = args->elem ? uma_sizes[args->elem] : 1;
	if (!uma_is_zero(args->va, use->va, 4) || !uma_is_zero(args->n, use->n, 4) ||
	    !uma_is_zero(args->scalar, use->scalar, 2))
		return -EINVAL;
	if (size < 8 && (args->scalar[0] >> (8 * size) ||
			 (args->kernel != VIRTIO_UMA_KERNEL_ATOMIC_ADD && args->scalar[1] >> (8 * size))))
		return -EINVAL;
	if (args->kernel == VIRTIO_UMA_KERNEL_ATOMIC_ADD && !args->n[0] && args->n[1])
		return -EINVAL;
	ret = uma_counts(args->kernel, args->n, counts);
	for (i = 0; !ret && i < use->va; i++) {
		bool index = i == 2 && (args->kernel == VIRTIO_UMA_KERNEL_GATHER ||
					args->kernel == VIRTIO_UMA_KERNEL_SCATTER);

		ret = uma_span_make(args->va[i], counts[i], index ? 8 : size, &spans[i]);
	}
	return ret ?: uma_check_overlap(args->kernel, spans);
}
