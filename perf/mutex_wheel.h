/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline: one mutex round an intrusive hashed wheel, malloc for each
 * timeout. It is what one would write in an afternoon, written well: doubly
 * linked lists, so that start and cancel are constant time; the clock, malloc
 * and free outside of the lock; the lock on a cache line of its own; expired
 * timeouts are unlinked under the lock and run without it. Deadlines are kept
 * as ticks, so passing over a later round is a comparison.
 *
 * A handle is the pointer, which the owner may use until the task starts. This
 * spares the baseline the generations with which hwt refuses stale handles.
 */
#ifndef MUTEX_WHEEL_H
#define MUTEX_WHEEL_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum {
	MUTEX_WHEEL_BUCKETS = 512
};

/* The links come first: a bucket's head is the links alone. */
struct mutex_wheel_link {
	struct mutex_wheel_link *next, *previous;
};

struct mutex_wheel_timeout {
	struct mutex_wheel_link link;
	uint64_t tick;
	void (*task)(void *arg);
	void *arg;
};

struct mutex_wheel {
	_Alignas(64) pthread_mutex_t mutex;
	uint64_t next_tick;
	uint64_t pending;
	struct mutex_wheel_link buckets[MUTEX_WHEEL_BUCKETS];
	_Alignas(64) uint64_t origin_ns;
	uint64_t tick_ns;
	bool stopping;
	pthread_cond_t stop;
	pthread_t worker;
};

static inline uint64_t
mutex_wheel_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void
mutex_wheel_unlink(struct mutex_wheel_link *link)
{
	link->previous->next = link->next;
	link->next->previous = link->previous;
}

static inline void
mutex_wheel_append(struct mutex_wheel_link *head, struct mutex_wheel_link *link)
{
	link->next = head;
	link->previous = head->previous;
	head->previous->next = link;
	head->previous = link;
}

/* NULL: no memory. */
static inline struct mutex_wheel_timeout *
mutex_wheel_schedule(struct mutex_wheel *wheel, void (*task)(void *arg),
    void *arg, uint64_t delay_ns)
{
	struct mutex_wheel_timeout *timeout = malloc(sizeof(*timeout));
	uint64_t due_ns = mutex_wheel_now_ns() - wheel->origin_ns + delay_ns;

	if (!timeout)
		return NULL;
	timeout->task = task;
	timeout->arg = arg;
	timeout->tick = (due_ns + wheel->tick_ns - 1) / wheel->tick_ns;
	pthread_mutex_lock(&wheel->mutex);
	if (timeout->tick < wheel->next_tick)
		timeout->tick = wheel->next_tick;
	mutex_wheel_append(&wheel->buckets[timeout->tick % MUTEX_WHEEL_BUCKETS],
	    &timeout->link);
	wheel->pending++;
	pthread_mutex_unlock(&wheel->mutex);
	return timeout;
}

static inline void
mutex_wheel_cancel(
    struct mutex_wheel *wheel, struct mutex_wheel_timeout *timeout)
{
	pthread_mutex_lock(&wheel->mutex);
	mutex_wheel_unlink(&timeout->link);
	wheel->pending--;
	pthread_mutex_unlock(&wheel->mutex);
	free(timeout);
}

/* Moves what is due at the tick from its bucket to the list. */
static inline void
mutex_wheel_collect(
    struct mutex_wheel *wheel, uint64_t tick, struct mutex_wheel_link *due)
{
	struct mutex_wheel_link *head =
	    &wheel->buckets[tick % MUTEX_WHEEL_BUCKETS];
	struct mutex_wheel_link *link, *next;

	for (link = head->next; link != head; link = next) {
		next = link->next;
		if (((struct mutex_wheel_timeout *)link)->tick > tick)
			continue;
		mutex_wheel_unlink(link);
		mutex_wheel_append(due, link);
		wheel->pending--;
	}
}

static inline void
mutex_wheel_run(struct mutex_wheel_link *due)
{
	struct mutex_wheel_link *link, *next;

	for (link = due->next; link != due; link = next) {
		struct mutex_wheel_timeout *timeout =
		    (struct mutex_wheel_timeout *)link;

		next = link->next;
		timeout->task(timeout->arg);
		free(timeout);
	}
}

static inline void *
mutex_wheel_worker(void *arg)
{
	struct mutex_wheel *wheel = arg;
	struct mutex_wheel_link due;
	struct timespec until;
	uint64_t until_ns;

	pthread_mutex_lock(&wheel->mutex);
	while (!wheel->stopping) {
		until_ns = wheel->origin_ns + wheel->next_tick * wheel->tick_ns;
		until.tv_sec = (time_t)(until_ns / 1000000000u);
		until.tv_nsec = (long)(until_ns % 1000000000u);
		if (pthread_cond_timedwait(
			&wheel->stop, &wheel->mutex, &until) != ETIMEDOUT)
			continue;
		due.next = due.previous = &due;
		mutex_wheel_collect(wheel, wheel->next_tick, &due);
		wheel->next_tick++;
		pthread_mutex_unlock(&wheel->mutex);
		mutex_wheel_run(&due);
		pthread_mutex_lock(&wheel->mutex);
	}
	pthread_mutex_unlock(&wheel->mutex);
	return NULL;
}

/* NULL: no memory or no thread. */
static inline struct mutex_wheel *
mutex_wheel_create(uint64_t tick_ns)
{
	struct mutex_wheel *wheel = aligned_alloc(64, sizeof(*wheel));
	pthread_condattr_t monotonic;
	unsigned i;

	if (!wheel)
		return NULL;
	pthread_mutex_init(&wheel->mutex, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&wheel->stop, &monotonic);
	pthread_condattr_destroy(&monotonic);
	for (i = 0; i < MUTEX_WHEEL_BUCKETS; i++)
		wheel->buckets[i].next = wheel->buckets[i].previous =
		    &wheel->buckets[i];
	wheel->origin_ns = mutex_wheel_now_ns();
	wheel->tick_ns = tick_ns;
	wheel->next_tick = 1;
	wheel->pending = 0;
	wheel->stopping = false;
	if (!pthread_create(&wheel->worker, NULL, mutex_wheel_worker, wheel))
		return wheel;
	free(wheel);
	return NULL;
}

/* All timeouts must have been cancelled or have run. */
static inline void
mutex_wheel_destroy(struct mutex_wheel *wheel)
{
	pthread_mutex_lock(&wheel->mutex);
	wheel->stopping = true;
	pthread_cond_signal(&wheel->stop);
	pthread_mutex_unlock(&wheel->mutex);
	pthread_join(wheel->worker, NULL);
	pthread_cond_destroy(&wheel->stop);
	pthread_mutex_destroy(&wheel->mutex);
	free(wheel);
}

#endif
