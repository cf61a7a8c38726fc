/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_pool: an executor with threads of its own.
 *
 * Workers, and threads that post, push items (handover.h) onto a stack and add
 * a ticket for each; a pool thread takes a ticket first and then an item, under
 * a lock that only pool threads take. So nobody who pushes waits here. A thread
 * takes the oldest item of a list; when that is empty, it takes the whole
 * stack: what was handed over first is taken first.
 *
 * TICKETS. The word tickets holds in its low half, which a futex compares, the
 * number of items that were pushed and that no thread has taken a ticket for,
 * and ENDING; in its high half the number of threads that sleep, or are about
 * to. All changes are read-modify-writes of this one word:
 *
 *      pool_push (any thread)               pool_wait (a pool thread)
 *      ----------------------               -------------------------
 *   (A1) push the item                   (B1) low half not 0: take a ticket
 *   (A2) add a ticket                    (B2) otherwise: add a sleeper
 *   (A3) a sleeper was there: wake one   (B3) sleep while the low half is 0
 *
 *   No lost wake-up: one of A2 and B2 comes first. If it is B2, then A3 wakes
 *   one. If it is A2, then B3 finds the low half changed, or another thread has
 *   taken the ticket. Each A2 that finds a thread asleep wakes one, and a
 *   thread that was woken takes tickets until there are none: so none sleeps
 *   while a ticket is left that no thread is awake for.
 *
 *   Nor does an item wait for a thread that is stopped between its A2 and A3:
 *   a thread that takes a ticket and leaves others wakes one more (B1).
 *
 *   A ticket has its item: tickets are added after the push, and a thread
 *   takes one item per ticket. When it holds the lock, at least as many
 *   items were pushed as tickets taken by it and by those who held the lock
 *   before it. It sees those pushes: each of these threads has acquired, with
 *   its ticket, all pushes before the additions that it counts on (E:pool),
 *   and the lock hands this on.
 *
 *   End: ENDING is set when nothing can be pushed any more, but by what the
 *   pool still runs; that thread takes a ticket after it. A thread leaves when
 *   it finds ENDING and no ticket: then all items are taken.
 *
 * LIMIT. waiting counts the items from before the push until one is taken. It
 * is raised by compare-and-swap, so that it never exceeds the limit.
 *
 * EDGES
 *   E:pool   the pushes before it: release in pool_push, by adding a
 *            ticket, acquire in pool_wait, by taking one.
 *   E:stack  drawn in handover.h.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "handover.h"

#include "core/debug.h"

#define ENDING (UINT64_C(1) << 31)
#define TICKETS_MASK (ENDING - 1)
#define SLEEPER (UINT64_C(1) << 32)

struct hwt_pool {
	uint64_t epoch;
	struct hwt_executor executor;
	uint64_t waiting_max;
	/* Pool threads': the taken stack, oldest first. */
	pthread_mutex_t lock;
	a64_t *first;
	aptr_t pushed; /* newest first */
	a64_t waiting;
	a64_t tickets;
	unsigned thread_count;
	pthread_t thread[];
};

/* False: the limit is reached. */
static bool
pool_reserve(struct hwt_pool *pool)
{
	uint64_t waiting;

	do {
		waiting = a64_load_relaxed(&pool->waiting);
		if (waiting >= pool->waiting_max)
			return false;
	} while (!a64_cas_seq(&pool->waiting, waiting, waiting + 1));
	return true;
}

/* For a thread that has reserved a place. */
static void
pool_push(struct hwt_pool *pool, a64_t *link)
{
	stack_push(&pool->pushed, link);
	/* E:pool release */
	if (a64_add_seq(&pool->tickets, 1) >= SLEEPER)
		futex_wake(&pool->tickets, 1);
}

static int
pool_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct hwt_pool *pool = ctx;

	if (!process_owns(pool->epoch))
		return EOWNERDEAD;
	if (!pool_reserve(pool))
		return EAGAIN;
	pool_push(pool, timeout_link(timer, timeout));
	return 0;
}

int
hwt_pool_post(
    struct hwt_pool *pool, struct hwt_post *post, hwt_posted *function)
{
	if (pool == NULL)
		return -EINVAL;
	if (!process_owns(pool->epoch))
		return -EOWNERDEAD;
	if (post == NULL || function == NULL)
		return -EINVAL;
	if (!pool_reserve(pool))
		return -EAGAIN;
	pool_push(pool, post_link(post, function));
	return 0;
}

/* Takes a ticket; false: the pool ends and there is none. */
static bool
pool_wait(struct hwt_pool *pool)
{
	uint64_t seen;

	for (;;) {
		seen = a64_load_relaxed(&pool->tickets);
		if ((seen & TICKETS_MASK) != 0) {
			/* E:pool acquire */
			if (!a64_cas_seq(&pool->tickets, seen, seen - 1))
				continue;
			if (((seen - 1) & TICKETS_MASK) != 0 && seen >= SLEEPER)
				futex_wake(&pool->tickets, 1);
			return true;
		}
		if (seen & ENDING)
			return false;
		(void)a64_add_seq(&pool->tickets, SLEEPER);
		futex_wait(&pool->tickets, 0, HWT_NEVER);
		(void)a64_add_seq(&pool->tickets, -SLEEPER);
	}
}

/* The oldest item's link, for a ticket; NULL: the pool ends and there is
 * none. */
static a64_t *
pool_take(struct hwt_pool *pool)
{
	a64_t *link, *newest;
	uint64_t count = 0;

	if (!pool_wait(pool))
		return NULL;
	(void)pthread_mutex_lock(&pool->lock);
	if (pool->first == NULL)
		pool->first = stack_take(&pool->pushed, &newest, &count);
	link = pool->first;
	assert(link != NULL);
	pool->first = link_next(link);
	(void)pthread_mutex_unlock(&pool->lock);
	(void)a64_add_seq(&pool->waiting, UINT64_MAX);
	return link;
}

static void *
pool_main(void *argument)
{
	struct hwt_pool *pool = argument;
	a64_t *link;

	thread_begin("hwt-pool", NULL);
	thread_state.executor = pool;
	thread_state.executor_epoch = pool->epoch;
	while ((link = pool_take(pool)) != NULL) {
		(void)item_run(link);
		/* The child's copy of a task that forked and returned. */
		if (!process_owns(pool->epoch))
			break;
	}
	return NULL;
}

/* Runs what is there, joins the threads and frees the pool. */
static void
pool_end(struct hwt_pool *pool)
{
	unsigned i;

	/* From now on the limit is reached: it refuses. */
	(void)a64_add_seq(&pool->waiting, TICKETS_MASK);
	(void)a64_add_seq(&pool->tickets, ENDING);
	futex_wake(&pool->tickets, FUTEX_ALL);
	/* It fails where that thread, in its turn, is joining this one. That is
	 * a deadlock, and no reason to free what it uses. */
	for (i = 0; i < pool->thread_count; i++) {
		while (pthread_join(pool->thread[i], NULL) != 0)
			pause_shortly();
	}
	assert(a64_load_relaxed(&pool->tickets) == ENDING);
	(void)pthread_mutex_destroy(&pool->lock);
	debug_destroyed(pool);
	free(pool);
}

static int
pool_add_threads(struct hwt_pool *pool, unsigned threads)
{
	int error = 0;

	while (pool->thread_count < threads && error == 0) {
		error = thread_create(
		    &pool->thread[pool->thread_count], NULL, pool_main, pool);
		if (error == 0)
			pool->thread_count++;
	}
	return error;
}

int
hwt_pool_create(struct hwt_pool **pool, unsigned threads, size_t queue_limit)
{
	struct hwt_pool *made;
	int error;

	if (pool == NULL || threads == 0)
		return -EINVAL;
	if (!process_sees_forks)
		return -ENOMEM;
	made = calloc(1, sizeof(*made) + threads * sizeof(made->thread[0]));
	if (made == NULL)
		return -ENOMEM;
	made->epoch = process_epoch();
	made->executor.execute = pool_execute;
	made->executor.ctx = made;
	/* 0 wraps round. */
	made->waiting_max =
	    queue_limit - 1 < TICKETS_MASK ? queue_limit : TICKETS_MASK;
	made->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	error = pool_add_threads(made, threads);
	if (error != 0) {
		pool_end(made);
		return error;
	}
	DEBUG_MADE("pool", made, made->epoch);
	*pool = made;
	return 0;
}

const struct hwt_executor *
hwt_pool_executor(struct hwt_pool *pool)
{
	if (pool == NULL || !process_owns(pool->epoch))
		return NULL;
	return &pool->executor;
}

int
hwt_pool_destroy(struct hwt_pool *pool)
{
	if (pool == NULL)
		return 0;
	if (!process_owns(pool->epoch)) {
		/* A child: the lock and the threads are its parent's. */
		debug_destroyed(pool);
		free(pool);
		return 0;
	}
	if (thread_state.executor == pool &&
	    thread_state.executor_epoch == pool->epoch)
		return -EDEADLK;
	process_await_hand_overs(&pool->executor);
	pool_end(pool);
	return 0;
}
