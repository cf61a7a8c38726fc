/* SPDX-License-Identifier: Apache-2.0 */
/* Data races and nothing else: only ThreadSanitizer objects. It may miss two
 * accesses at the very same moment, but not so many, of so many words. */
#include <pthread.h>
#include <stddef.h>

static volatile int shared[64];

static void *
count(void *arg)
{
	int i;

	for (i = 0; i < 100000; i++)
		shared[i % 64]++;
	return arg;
}

int
main(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, count, NULL))
		return 0;
	(void)count(NULL);
	(void)pthread_join(thread, NULL);
	return 0;
}
