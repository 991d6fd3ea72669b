// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* The device scales an array from malloc, through the pointer that the CPU uses. */
#include <stdio.h>
#include <stdlib.h>
#include <uma/libuma.h>

int main(void)
{
	size_t n = 1 << 20;
	float *a = malloc(n * sizeof(*a));
	int uma = uma_open("/dev/uma0");

	if (uma < 0 || !a)
		return perror("/dev/uma0"), 1;
	for (size_t i = 0; i < n; i++)
		a[i] = (float)i;

	struct uma_submit job = uma_scale_f32(a, a, n, 2.0f);
	if (uma_run(uma, &job, NULL))
		return perror("scale"), 1;
	printf("a[1000] = %g\n", a[1000]); /* 2000; reading it brings the page back */
	return a[1000] != 2000.0f;
}
