/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mutex for all objects, and one condition variable: a release wakes all
 * that wait, and each looks whether its set is free. It wakes nobody where
 * nobody waits, and only after the mutex is unlocked.
 *
 * Who would call it unfair: who has many threads that wait for different sets,
 * since they wake each other needlessly. It has no pause and no order.
 */
#include <pthread.h>

#include "modules/checkout/perf/design.h"
#include "perf/perf.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static unsigned waiting;
static bool in_use[OBJECTS_MAX];

static bool
set_is_free(const unsigned *set, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++) {
		if (in_use[set[i]])
			return false;
	}
	return true;
}

static void
acquire(const unsigned *set, unsigned count)
{
	struct timespec limit;
	unsigned i;

	(void)pthread_mutex_lock(&lock);
	if (!set_is_free(set, count))
		limit = wait_limit();
	while (!set_is_free(set, count)) {
		waiting++;
		perf_must(pthread_cond_timedwait(&released, &lock, &limit) == 0,
		    "a set in time");
		waiting--;
	}
	for (i = 0; i < count; i++)
		in_use[set[i]] = true;
	(void)pthread_mutex_unlock(&lock);
}

static void
release(const unsigned *set, unsigned count)
{
	bool wakes;
	unsigned i;

	(void)pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++)
		in_use[set[i]] = false;
	wakes = waiting > 0;
	(void)pthread_mutex_unlock(&lock);
	if (wakes)
		(void)pthread_cond_broadcast(&released);
}

const struct design design = {.what = "one mutex with a broadcast",
    .acquire = acquire,
    .release = release};
