/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool as one writes it in an afternoon: one mutex, the free objects on a
 * stack, and a queue of threads that wait, each with a condition variable of
 * its own. An object is handed to the first that waits. Any one object only.
 *
 * Who would call it unfair: who does not need the order, since each object that
 * is handed over costs a switch of threads. It is the least that a fair pool of
 * threads can do.
 */
#include <pthread.h>

#include "modules/checkout/perf/design.h"
#include "perf/perf.h"

struct waiter {
	pthread_cond_t told;
	struct waiter *next;
	int object; /* -1: none yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned free_object[OBJECTS_MAX];
static unsigned free_count;
static struct waiter *first, **end = &first;
static _Thread_local struct waiter mine = {.told = PTHREAD_COND_INITIALIZER};

static void
create(unsigned objects)
{
	for (; free_count < objects; free_count++)
		free_object[free_count] = free_count;
}

static unsigned
acquire_any(void)
{
	struct timespec limit;
	unsigned object;

	(void)pthread_mutex_lock(&lock);
	if (free_count > 0) {
		object = free_object[--free_count];
	} else {
		mine.object = -1;
		mine.next = NULL;
		*end = &mine;
		end = &mine.next;
		limit = wait_limit();
		while (mine.object < 0)
			perf_must(pthread_cond_timedwait(
				      &mine.told, &lock, &limit) == 0,
			    "an object in time");
		object = (unsigned)mine.object;
	}
	(void)pthread_mutex_unlock(&lock);
	return object;
}

static void
release_any(unsigned object)
{
	struct waiter *waiter;

	(void)pthread_mutex_lock(&lock);
	waiter = first;
	if (waiter == NULL) {
		free_object[free_count++] = object;
	} else {
		first = waiter->next;
		if (first == NULL)
			end = &first;
		waiter->object = (int)object;
		(void)pthread_cond_signal(&waiter->told);
	}
	(void)pthread_mutex_unlock(&lock);
}

const struct design design = {.what = "a mutex and a queue of threads",
    .create = create,
    .acquire_any = acquire_any,
    .release_any = release_any};
