/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork and the list of live timers.
 *
 * FORK. The epoch is in a page that the kernel wipes in every child
 * (system_wipe_in_children); a page of the library's own data, so that it is
 * unmapped with the library, and not before. Each timer has the epoch in which
 * it was created. A child reads 0, and so owns none of them, also after a bare
 * clone, and a fork at any moment. If the kernel cannot do so, an atfork
 * handler clears the word; if that cannot be registered, hwt_create and the
 * like answer -ENOMEM. The first call in a child that needs an epoch takes a
 * new one, with an empty registry and a new lock: the thread that held the old
 * lock at the fork does not exist in the child.
 *
 * REGISTRY. The live timers, in lists by their serials, so that one is found in
 * constant time. hwt_destroy removes the timer under the lock before it frees
 * anything: so a thread that holds the lock may use those in the lists. No
 * thread waits while it holds it.
 *
 * EDGES
 *   E:epoch     renewing the registry and the shared timer's word, release
 *               by the store of the epoch in process_renew, acquired by whoever
 *               finds it set in process_epoch. All else here is under the
 *               registry's lock, or a count that is only compared.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>

#include "core/debug.h"
#include "core/timer.h"

#define EPOCH_NONE 0
#define EPOCH_RENEWING 1
#define MANY_WORKERS 64u
#define LISTS 1024u

struct debug debug;

struct epoch_place process_epoch_at;

static struct {
	pthread_mutex_t lock;
	struct hwt *list[LISTS];
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

a64_t process_shared;
/* Running workers; whether the warning about their number was written. */
static a64_t workers, warned;

/* These survive a fork, so that a child's values differ from its parent's. */
static uint64_t last_epoch = EPOCH_RENEWING;
static uint64_t last_serial;

/* Otherwise a child would take its parent's timers for its own. */
bool process_sees_forks = true;

static void
process_forked(void)
{
	a64_store_relaxed(&process_epoch_at.word, EPOCH_NONE);
}

/* Runs before constructors without a priority, which may create timers. Where
 * pages can be wiped, the atfork handler would invalidate what one of the user,
 * registered earlier, has created in the child. */
__attribute__((constructor(101))) static void
process_init(void)
{
	if (!system_wipe_in_children(
		&process_epoch_at, sizeof(process_epoch_at)))
		process_sees_forks =
		    pthread_atfork(NULL, NULL, process_forked) == 0;
}

static void
process_renew(void)
{
	uint32_t tries = 0;

	if (!a64_cas_seq(&process_epoch_at.word, EPOCH_NONE, EPOCH_RENEWING)) {
		/* E:epoch acquire */
		while (
		    a64_load_acquire(&process_epoch_at.word) == EPOCH_RENEWING)
			yield_or_pause(&tries);
		return;
	}
	registry.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	/* The timers of the parent do not exist here. */
	memset(registry.list, 0, sizeof(registry.list));
	a64_store_relaxed(&workers, 0);
	a64_store_relaxed(&warned, 0);
	a64_store_relaxed(&process_shared, 0);
	/* E:epoch release */
	a64_store_release(&process_epoch_at.word, ++last_epoch);
}

uint64_t
process_epoch(void)
{
	uint64_t epoch;

	/* E:epoch acquire */
	while ((epoch = a64_load_acquire(&process_epoch_at.word)) <=
	    EPOCH_RENEWING)
		process_renew();
	return epoch;
}

void
process_lock(void)
{
	(void)process_epoch();
	(void)pthread_mutex_lock(&registry.lock);
}

bool
process_trylock(void)
{
	/* Otherwise lock and list could be those of a child's parent. */
	(void)process_epoch();
	return pthread_mutex_trylock(&registry.lock) == 0;
}

void
process_unlock(void)
{
	(void)pthread_mutex_unlock(&registry.lock);
}

void
process_add_timer(struct hwt *timer)
{
	struct hwt **list;

	process_lock();
	timer->serial = ++last_serial;
	list = &registry.list[timer->serial % LISTS];
	timer->registry_next = *list;
	*list = timer;
	process_unlock();
}

void
process_remove_timer(struct hwt *timer)
{
	struct hwt **link;

	process_lock();
	link = &registry.list[timer->serial % LISTS];
	while (*link != timer)
		link = &(*link)->registry_next;
	*link = timer->registry_next;
	process_unlock();
}

struct hwt *
process_find_timer(uint64_t serial)
{
	struct hwt *timer = registry.list[serial % LISTS];

	while (timer != NULL && timer->serial != serial)
		timer = timer->registry_next;
	return timer;
}

const struct hwt *
process_next_timer(const struct hwt *timer)
{
	const struct hwt *next = timer != NULL ? timer->registry_next : NULL;
	size_t i = timer != NULL ? timer->serial % LISTS + 1 : 0;

	while (next == NULL && i < LISTS)
		next = registry.list[i++];
	return next;
}

bool
process_add_worker(void)
{
	return a64_add_seq(&workers, 1) >= MANY_WORKERS &&
	    a64_cas_seq(&warned, 0, 1);
}

void
process_remove_worker(void)
{
	(void)a64_add_seq(&workers, UINT64_MAX);
}

static bool
is_handing_to(const struct hwt *timer, const struct hwt_executor *executor)
{
	/* E:handing acquire */
	const struct hwt_executor *handing =
	    aptr_load_acquire(&timer->dispatching_to);

	return handing == executor ||
	    (handing == &timer->executor && handing->ctx == executor->ctx);
}

static bool
is_handed_to(const struct hwt_executor *executor)
{
	const struct hwt *timer = NULL;
	bool found = false;

	process_lock();
	while ((timer = process_next_timer(timer)) != NULL)
		found |= is_handing_to(timer, executor);
	process_unlock();
	return found;
}

void
process_await_hand_overs(const struct hwt_executor *executor)
{
	uint32_t tries = 0;

	while (is_handed_to(executor))
		yield_or_pause(&tries);
}
