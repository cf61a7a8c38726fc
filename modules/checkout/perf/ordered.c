/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mutex per object, each on a cache line of its own, taken in ascending
 * order: what one writes who may block, and needs no deadline.
 *
 * Who would call it unfair: who needs what hwt_checkout has beside that. It has
 * no deadline, no cancel and no pause, it holds the first objects of a set
 * while it waits for the others, and each wait takes a thread. A mutex that
 * spins first (PTHREAD_MUTEX_ADAPTIVE_NP) was no faster here, with any of the
 * holds.
 */
#include <pthread.h>

#include "modules/checkout/perf/design.h"
#include "perf/perf.h"

static struct {
	_Alignas(64) pthread_mutex_t lock;
} object[OBJECTS_MAX];

static void
create(unsigned objects)
{
	unsigned i;

	for (i = 0; i < objects; i++)
		(void)pthread_mutex_init(&object[i].lock, NULL);
}

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
    .create = create,
    .acquire = acquire,
    .release = release};
