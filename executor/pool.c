/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_pool: an executor with threads of its own.
 *
 * One lock, one condition, one list whose links are in the records: hand-overs
 * are rare beside schedules and cancels, so that nothing faster is called for.
 * A pool thread takes one timeout at a time, which keeps the order of ticks
 * and spreads slow tasks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "handover.h"

struct hwt_pool {
	uint64_t epoch;
	struct hwt_executor executor;
	size_t queue_limit; /* 0: none */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock. */
	struct record *first, *last;
	size_t queued;
	bool ending;
	unsigned thread_count;
	pthread_t thread[];
};

static int
pool_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct hwt_pool *pool = ctx;
	struct record *record = handover_record(timer, timeout);
	int refused;

	if (!process_owns(pool->epoch))
		return EOWNERDEAD;
	(void)pthread_mutex_lock(&pool->lock);
	refused = pool->ending ||
	    (pool->queue_limit != 0 && pool->queued == pool->queue_limit);
	if (!refused) {
		handover_link(record, NULL);
		if (pool->first == NULL)
			pool->first = record;
		else
			handover_link(pool->last, record);
		pool->last = record;
		pool->queued++;
		(void)pthread_cond_signal(&pool->changed);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return refused;
}

/* The oldest, or NULL when the pool ends and there is none. */
static struct record *
pool_take(struct hwt_pool *pool)
{
	struct record *record;

	(void)pthread_mutex_lock(&pool->lock);
	while (pool->first == NULL && !pool->ending)
		(void)pthread_cond_wait(&pool->changed, &pool->lock);
	record = pool->first;
	if (record != NULL) {
		pool->first = handover_next(record);
		pool->queued--;
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return record;
}

static void *
pool_main(void *argument)
{
	struct hwt_pool *pool = argument;
	struct record *record;

	thread_block_signals(NULL);
	(void)pthread_setname_np(pthread_self(), "hwt-pool");
	thread_state.executor = pool;
	thread_state.executor_epoch = pool->epoch;
	while ((record = pool_take(pool)) != NULL) {
		(void)handover_run(record);
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

	(void)pthread_mutex_lock(&pool->lock);
	pool->ending = true;
	(void)pthread_cond_broadcast(&pool->changed);
	(void)pthread_mutex_unlock(&pool->lock);
	/* It fails where that thread, in its turn, is joining this one. That is
	 * a deadlock, and no reason to free what it uses. */
	for (i = 0; i < pool->thread_count; i++) {
		while (pthread_join(pool->thread[i], NULL) != 0)
			system_pause();
	}
	(void)pthread_cond_destroy(&pool->changed);
	(void)pthread_mutex_destroy(&pool->lock);
	free(pool);
}

static int
pool_add_threads(struct hwt_pool *pool, unsigned threads)
{
	sigset_t signals;
	int error = 0;

	thread_block_signals(&signals);
	while (pool->thread_count < threads && error == 0) {
		error = pthread_create(
		    &pool->thread[pool->thread_count], NULL, pool_main, pool);
		if (error == 0)
			pool->thread_count++;
	}
	(void)pthread_sigmask(SIG_SETMASK, &signals, NULL);
	if (error == 0)
		return 0;
	return error == ENOMEM ? -ENOMEM : -EAGAIN;
}

int
hwt_pool_create(struct hwt_pool **pool, unsigned threads, size_t queue_limit)
{
	struct hwt_pool *made;
	int error;

	if (pool == NULL || threads == 0)
		return -EINVAL;
	if (!process_sees_forks())
		return -ENOMEM;
	made = calloc(1, sizeof(*made) + threads * sizeof(made->thread[0]));
	if (made == NULL)
		return -ENOMEM;
	made->epoch = process_epoch();
	made->executor.execute = pool_execute;
	made->executor.ctx = made;
	made->queue_limit = queue_limit;
	made->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	made->changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	error = pool_add_threads(made, threads);
	if (error != 0) {
		pool_end(made);
		return error;
	}
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
