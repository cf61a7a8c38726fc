/* SPDX-License-Identifier: Apache-2.0 */
/* One mutex for all objects; each release wakes all that wait. */
#include <pthread.h>

#include "modules/checkout/perf/design.h"
#include "perf/perf.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static bool in_use[OBJECTS_MAX];

static void
create(unsigned objects)
{
	(void)objects;
}

static void
destroy(void)
{
}

static bool
is_free(const unsigned *set, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++) {
		if (in_use[set[i]])
			return false;
	}
	return true;
}

static void
change(const unsigned *set, unsigned count, bool used)
{
	unsigned i;

	for (i = 0; i < count; i++)
		in_use[set[i]] = used;
}

static void
acquire(const unsigned *set, unsigned count)
{
	(void)pthread_mutex_lock(&lock);
	while (!is_free(set, count))
		(void)pthread_cond_wait(&released, &lock);
	change(set, count, true);
	(void)pthread_mutex_unlock(&lock);
}

static void
release(const unsigned *set, unsigned count)
{
	(void)pthread_mutex_lock(&lock);
	change(set, count, false);
	(void)pthread_cond_broadcast(&released);
	(void)pthread_mutex_unlock(&lock);
}

const struct design design = {"one mutex with a broadcast", create, destroy,
    acquire, release, NULL, NULL};
