// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Pages move to the device before it needs them, and one comes back when the CPU looks at it. */
#include <stdio.h>
#include <stdlib.h>
#include <uma/libuma.h>

int main(void)
{
	size_t bytes = 8 << 20;
	unsigned char *a = aligned_alloc(2 << 20, bytes);
	int uma = uma_open("/dev/uma0");
	struct uma_residency where;
	uint64_t moved, resident;

	if (uma < 0 || !a)
		return perror("/dev/uma0"), 1;
	memset(a, 7, bytes);
	if (uma_prefetch(uma, a, bytes, UMA_TARGET_DEVICE, &moved, &resident))
		return perror("prefetch"), 1;
	printf("prefetch: %llu pages moved, %llu were there\n", (unsigned long long)moved, (unsigned long long)resident);
	int seven = a[12345];
	if (uma_residency(uma, a, bytes, NULL, &where))
		return perror("residency"), 1;
	printf("now %llu in system memory, %llu on the device\n", (unsigned long long)where.system,
	       (unsigned long long)where.device);
	return seven != 7;
}
