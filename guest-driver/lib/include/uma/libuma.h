/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
/*
 * libuma.h - jobs of a virtio-uma device on the plain memory of this process
 *
 *	int uma = uma_open("/dev/uma0");
 *	float *a = malloc(n * sizeof(*a));
 *	...
 *	struct uma_submit job = uma_scale_f32(a, a, n, 2.0f);
 *	if (uma_run(uma, &job, NULL))
 *		perror("scale");
 *
 * The library is this header. A job is a struct uma_submit: one of the helpers fills it, the caller may then set
 * stream, priority, deadline_ns and the fences, and uma_submit() or uma_run() hands it to the device. Until a job has
 * ended, the memory it writes may be used by nothing else and the memory it reads may not be written, except through
 * atomics. Structures and errors: <linux/uma.h>. Kernels and statuses: <linux/virtio_uma.h>.
 *
 * Every function returns 0 (or a descriptor) on success and -1 with errno set on failure.
 */
#ifndef _UMA_LIBUMA_H
#define _UMA_LIBUMA_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/uma.h>
#include <linux/virtio_uma.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UMA_NO_LIMIT (~0ULL)

/* The device as it is: no context yet, good for uma_query() and uma_device_stats(). */
static inline int uma_open_device(const char *path)
{
	return open(path, O_RDWR | O_CLOEXEC);
}

/* A context: this process's address space on the device, until the descriptor is closed. */
static inline int uma_open(const char *path)
{
	struct uma_create create;
	int fd = uma_open_device(path), saved;

	if (fd < 0)
		return -1;
	memset(&create, 0, sizeof(create));
	create.mode = UMA_MODE_MIRRORED;
	if (ioctl(fd, UMA_IOC_CREATE, &create) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static inline int uma_query(int fd, struct uma_query *query)
{
	memset(query, 0, sizeof(*query));
	return ioctl(fd, UMA_IOC_QUERY, query);
}

static inline int uma_stats(int fd, struct uma_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	return ioctl(fd, UMA_IOC_STATS, stats);
}

static inline int uma_device_stats(int fd, struct uma_device_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	return ioctl(fd, UMA_IOC_DEVICE_STATS, stats);
}

/* Queues a job; job->job names it. */
static inline int uma_submit(int fd, struct uma_submit *job)
{
	return ioctl(fd, UMA_IOC_SUBMIT, job);
}

/*
 * Waits at most timeout_ns (UMA_NO_LIMIT: for good) for the end of a job. 0 means that it ended: end->status and
 * end->error say how. -1 with ETIME: it still runs.
 */
static inline int uma_wait(int fd, uint64_t job, uint64_t timeout_ns, struct uma_wait *end)
{
	int rc;

	do {
		memset(end, 0, sizeof(*end));
		end->job = job;
		end->timeout_ns = timeout_ns;
		rc = ioctl(fd, UMA_IOC_WAIT, end);
	} while (rc < 0 && errno == EINTR && timeout_ns == UMA_NO_LIMIT);
	return rc;
}

/* Submits and waits; -1 with the errno of the status if the job did not end well. end may be NULL. */
static inline int uma_run(int fd, struct uma_submit *job, struct uma_wait *end)
{
	struct uma_wait mine;

	if (!end)
		end = &mine;
	if (uma_submit(fd, job) || uma_wait(fd, job->job, UMA_NO_LIMIT, end))
		return -1;
	if (end->status == VIRTIO_UMA_S_OK)
		return 0;
	errno = end->error;
	return -1;
}

static inline int uma_cancel(int fd, uint64_t job)
{
	struct uma_cancel cancel = { .job = job };

	return ioctl(fd, UMA_IOC_CANCEL, &cancel);
}

/* start and length are multiples of the page size here and below. */
static inline int uma_advise(int fd, const void *start, size_t length, uint32_t advice)
{
	struct uma_advise advise = { .start = (uintptr_t)start, .length = length, .advice = advice };

	return ioctl(fd, UMA_IOC_ADVISE, &advise);
}

/* Moves pages to target (UMA_TARGET_*); moved and resident may be NULL. */
static inline int uma_prefetch(int fd, const void *start, size_t length, uint32_t target, uint64_t *moved,
			       uint64_t *resident)
{
	struct uma_prefetch prefetch = { .start = (uintptr_t)start, .length = length, .target = target };
	int rc = ioctl(fd, UMA_IOC_PREFETCH, &prefetch);

	if (moved)
		*moved = prefetch.moved;
	if (resident)
		*resident = prefetch.resident;
	return rc;
}

static inline int uma_prefetch_async(int fd, const void *start, size_t length, uint32_t target)
{
	struct uma_prefetch prefetch = {
		.start = (uintptr_t)start, .length = length, .target = target, .flags = UMA_PREFETCH_ASYNC,
	};

	return ioctl(fd, UMA_IOC_PREFETCH, &prefetch);
}

/* pages: one byte of UMA_PAGE_* per page, or NULL. */
static inline int uma_residency(int fd, const void *start, size_t length, uint8_t *pages, struct uma_residency *found)
{
	memset(found, 0, sizeof(*found));
	found->start = (uintptr_t)start;
	found->length = length;
	found->vec = (uintptr_t)pages;
	return ioctl(fd, UMA_IOC_RESIDENCY, found);
}

/* Any kernel; operands that it does not use are zero. The typed helpers below build on it. */
static inline struct uma_submit uma_job(uint16_t kernel, uint16_t elem, const void *va0, const void *va1,
					const void *va2, uint64_t n0, uint64_t n1)
{
	struct uma_submit job;

	memset(&job, 0, sizeof(job));
	job.kernel = kernel;
	job.elem = elem;
	job.va[0] = (uintptr_t)va0;
	job.va[1] = (uintptr_t)va1;
	job.va[2] = (uintptr_t)va2;
	job.n[0] = n0;
	job.n[1] = n1;
	job.fence_fd = -1;
	return job;
}

static inline struct uma_submit uma_nop(void)
{
	return uma_job(VIRTIO_UMA_KERNEL_NOP, 0, NULL, NULL, NULL, 0, 0);
}

/* to[i] = from[i]; any element type, in its size */
static inline struct uma_submit uma_copy(uint16_t elem, void *to, const void *from, uint64_t n)
{
	return uma_job(VIRTIO_UMA_KERNEL_COPY, elem, to, from, NULL, n, 0);
}

/* dst[i] = src[index[i]], every index below length */
static inline struct uma_submit uma_gather(uint16_t elem, void *dst, const void *src, const uint64_t *index, uint64_t n,
					   uint64_t length)
{
	return uma_job(VIRTIO_UMA_KERNEL_GATHER, elem, dst, src, index, n, length);
}

/* dst[index[i]] = src[i], every index below length */
static inline struct uma_submit uma_scatter(uint16_t elem, void *dst, const void *src, const uint64_t *index,
					    uint64_t n, uint64_t length)
{
	return uma_job(VIRTIO_UMA_KERNEL_SCATTER, elem, dst, src, index, n, length);
}

/* n times p = *p from start on; *last and the result are the last p */
static inline struct uma_submit uma_chase(uint64_t *last, const uint64_t *start, uint64_t n)
{
	return uma_job(VIRTIO_UMA_KERNEL_CHASE, VIRTIO_UMA_ELEM_U64, start, last, NULL, n, 0);
}

/*
 * Per element type T with name N:
 *	uma_fill_N(to, n, value)		to[i] = value
 *	uma_scale_N(to, from, n, factor)	to[i] = factor * from[i]; to may be from
 *	uma_axpy_N(y, x, n, factor)		y[i] = factor * x[i] + y[i]
 *	uma_reduce_N(sum, x, n)			*sum = sum of x[i]
 *	uma_dot_N(sum, x, y, n)			*sum = sum of x[i] * y[i]
 */
#define UMA_TYPED(N, ELEM, T)                                                                                          \
	static inline uint64_t uma_bits_##N(T value)                                                                   \
	{                                                                                                              \
		uint64_t bits = 0;                                                                                     \
		memcpy(&bits, &value, sizeof(value));                                                                  \
		return bits;                                                                                           \
	}                                                                                                              \
	static inline struct uma_submit uma_fill_##N(T *to, uint64_t n, T value)                                       \
	{                                                                                                              \
		struct uma_submit job = uma_job(VIRTIO_UMA_KERNEL_FILL, ELEM, to, NULL, NULL, n, 0);                   \
		job.scalar[0] = uma_bits_##N(value);                                                                   \
		return job;                                                                                            \
	}                                                                                                              \
	static inline struct uma_submit uma_scale_##N(T *to, const T *from, uint64_t n, T factor)                      \
	{                                                                                                              \
		struct uma_submit job = uma_job(VIRTIO_UMA_KERNEL_SCALE, ELEM, to, from, NULL, n, 0);                  \
		job.scalar[0] = uma_bits_##N(factor);                                                                  \
		return job;                                                                                            \
	}                                                                                                              \
	static inline struct uma_submit uma_axpy_##N(T *y, const T *x, uint64_t n, T factor)                           \
	{                                                                                                              \
		struct uma_submit job = uma_job(VIRTIO_UMA_KERNEL_AXPY, ELEM, y, x, NULL, n, 0);                       \
		job.scalar[0] = uma_bits_##N(factor);                                                                  \
		return job;                                                                                            \
	}                                                                                                              \
	static inline struct uma_submit uma_reduce_##N(T *sum, const T *x, uint64_t n)                                 \
	{                                                                                                              \
		return uma_job(VIRTIO_UMA_KERNEL_REDUCE, ELEM, sum, x, NULL, n, 0);                                    \
	}                                                                                                              \
	static inline struct uma_submit uma_dot_##N(T *sum, const T *x, const T *y, uint64_t n)                        \
	{                                                                                                              \
		return uma_job(VIRTIO_UMA_KERNEL_DOT, ELEM, sum, x, y, n, 0);                                          \
	}

UMA_TYPED(u32, VIRTIO_UMA_ELEM_U32, uint32_t)
UMA_TYPED(u64, VIRTIO_UMA_ELEM_U64, uint64_t)
UMA_TYPED(f32, VIRTIO_UMA_ELEM_F32, float)
UMA_TYPED(f64, VIRTIO_UMA_ELEM_F64, double)

#undef UMA_TYPED

/* C = alpha * A * B + beta * C, row-major and dense: C is m x n, A is m x k, B is k x n */
static inline struct uma_submit uma_gemm(float *c, const float *a, const float *b, uint64_t m, uint64_t n, uint64_t k,
					 float alpha, float beta)
{
	struct uma_submit job = uma_job(VIRTIO_UMA_KERNEL_GEMM, VIRTIO_UMA_ELEM_F32, c, a, b, m, n);

	job.n[2] = k;
	job.scalar[0] = uma_bits_f32(alpha);
	job.scalar[1] = uma_bits_f32(beta);
	return job;
}

/* ops times atomically slots[...] += addend, in turn (seed 0) or at random; CPU atomics may run meanwhile */
static inline struct uma_submit uma_atomic_add_u64(uint64_t *slots, uint64_t n, uint64_t ops, uint64_t addend,
						   uint64_t seed)
{
	struct uma_submit job = uma_job(VIRTIO_UMA_KERNEL_ATOMIC_ADD, VIRTIO_UMA_ELEM_U64, slots, NULL, NULL, n, ops);

	job.scalar[0] = addend;
	job.scalar[1] = seed;
	return job;
}

/* per slot atomically: if it is old, it becomes new_value; the result counts the exchanges */
static inline struct uma_submit uma_atomic_cas_u64(uint64_t *slots, uint64_t n, uint64_t old, uint64_t new_value)
{
	struct uma_submit job = uma_job(VIRTIO_UMA_KERNEL_ATOMIC_CAS, VIRTIO_UMA_ELEM_U64, slots, NULL, NULL, n, 0);

	job.scalar[0] = old;
	job.scalar[1] = new_value;
	return job;
}

#ifdef __cplusplus
}
#endif

#endif /* _UMA_LIBUMA_H */
