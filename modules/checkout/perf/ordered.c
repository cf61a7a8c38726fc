/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mutex per object, each on a cache line of its own, taken in ascending
 * order: what one writes who may block, and needs no deadline.
 *
 * Who would call it unfair: who needs what hwt_checkout has beside that. It has
 * no deadline, no cancel and no pause, and each wait takes a thread.
 */
#include <pthread.h>

#include "modules/checkout/perf/design.h"
#include "perf/perf.h"

static struct {
	_Alignas(64) pthread_mutex_t lock;
} object[] = {[0 ... OBJECTS_MAX - 1] = {PTHREAD_MUTEX_INITIALIZER}};

static void
acquire(const unsigned *set, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++)
		(void)pthread_mutex_lock(&object[set[i]].lock);
}

static void
release(const unsigned *set, unsigned count)
{
	while (count-- > 0)
		(void)pthread_mutex_unlock(&object[set[count]].lock);
}

const struct design design = {.what = "one mutex per object, in order",
    .acquire = acquire,
    .release = release};
