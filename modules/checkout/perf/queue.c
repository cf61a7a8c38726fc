/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What pools of connections do, for sets of named objects: one mutex, and a
 * queue of those that wait, each with a condition variable of its own. A
 * release wakes those that can go on, in the order in which they came, and
 * nobody else. As in hwt_checkout, one who comes may overtake them, nothing is
 * out for a thread that sleeps, and whoever waits looks for some microseconds
 * before it sleeps: each of these made it faster.
 *
 * Who would call it unfair: who uses HikariCP or commons-pool2, since these are
 * in Java, and hand out any object, not a named one. This is their way to wait,
 * in C. A wait without a thread it cannot have.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "modules/checkout/perf/design.h"
#include "perf/perf.h"

enum {
	LOOKS = 100
};

struct waiter {
	struct waiter *next;
	const unsigned *set;
	unsigned count;
	atomic_bool woken;
	pthread_cond_t wake;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct waiter *first, **last = &first;
static bool in_use[OBJECTS_MAX];
/* Of any one object: the free ones, on a stack. */
static unsigned free_object[OBJECTS_MAX], free_count;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

static void
create(unsigned objects)
{
	for (; free_count < objects; free_count++)
		free_object[free_count] = free_count;
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

/* With the lock, which it gives up meanwhile. */
static void
wait_for(const unsigned *set, unsigned count)
{
	struct waiter waiter = {.set = set,
	    .count = count,
	    .wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER};
	struct timespec limit = wait_limit();
	unsigned i;

	*last = &waiter;
	last = &waiter.next;
	(void)pthread_mutex_unlock(&lock);
	for (i = 0; i < LOOKS && !atomic_load(&waiter.woken); i++) {
#ifdef __x86_64__
		__builtin_ia32_pause();
#endif
	}
	(void)pthread_mutex_lock(&lock);
	while (!atomic_load(&waiter.woken))
		perf_must(
		    pthread_cond_timedwait(&waiter.wake, &lock, &limit) == 0,
		    "a set in time");
}

static void
acquire(const unsigned *set, unsigned count)
{
	(void)pthread_mutex_lock(&lock);
	while (!is_free(set, count))
		wait_for(set, count);
	change(set, count, true);
	(void)pthread_mutex_unlock(&lock);
}

static void
release(const unsigned *set, unsigned count)
{
	struct waiter **at = &first, *waiter;

	(void)pthread_mutex_lock(&lock);
	change(set, count, false);
	while ((waiter = *at) != NULL) {
		if (!is_free(waiter->set, waiter->count)) {
			at = &waiter->next;
			continue;
		}
		if (last == &waiter->next)
			last = at;
		*at = waiter->next;
		atomic_store(&waiter->woken, true);
		(void)pthread_cond_signal(&waiter->wake);
	}
	(void)pthread_mutex_unlock(&lock);
}

/* Whoever comes first gets it; one that waits is woken, and may find none. */
static unsigned
acquire_any(void)
{
	struct timespec limit;
	unsigned object;

	(void)pthread_mutex_lock(&lock);
	if (free_count == 0)
		limit = wait_limit();
	while (free_count == 0)
		perf_must(pthread_cond_timedwait(&released, &lock, &limit) == 0,
		    "an object in time");
	object = free_object[--free_count];
	(void)pthread_mutex_unlock(&lock);
	return object;
}

static void
release_any(unsigned object)
{
	(void)pthread_mutex_lock(&lock);
	free_object[free_count++] = object;
	(void)pthread_mutex_unlock(&lock);
	(void)pthread_cond_signal(&released);
}

const struct design design = {"one mutex, a queue with a condition each",
    create, destroy, acquire, release, acquire_any, release_any};
