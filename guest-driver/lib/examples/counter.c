// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* CPU and device count on one word at the same time. */
#include <stdatomic.h>
#include <stdio.h>
#include <uma/libuma.h>

int main(void)
{
	static _Atomic uint64_t counter;
	struct uma_wait end;
	int uma = uma_open("/dev/uma0");

	if (uma < 0)
		return perror("/dev/uma0"), 1;
	struct uma_submit job = uma_atomic_add_u64((uint64_t *)&counter, 1, 100000, 1, 0);
	if (uma_submit(uma, &job))
		return perror("submit"), 1;
	for (int i = 0; i < 100000; i++)
		atomic_fetch_add(&counter, 1);
	if (uma_wait(uma, job.job, UMA_NO_LIMIT, &end))
		return perror("wait"), 1;
	printf("counter = %llu\n", (unsigned long long)counter); /* 200000 */
	return counter != 200000;
}
