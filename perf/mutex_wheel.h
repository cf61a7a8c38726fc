/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline: one mutex round an intrusive hashed wheel, malloc for each
 * timeout. It is what one would write in an afternoon, written well: doubly
 * linked lists, so that start and cancel are constant time; the clock, malloc
 * and free outside of the lock; the lock on a cache line of its own; expired
 * timeouts are unlinked under the lock and run without it. Deadlines are kept
 * as ticks, so passing over a later round is a comparison.
 *
 * A handle is the pointer. Who asked for one owns the timeout beside the wheel,
 * and cancels it once, whether it has ended or not: that frees it. Who did not
 * cannot cancel it, and the worker frees it after its task. This spares the
 * baseline the generations with which hwt refuses stale handles.
 */
#ifndef MUTEX_WHEEL_H
#define MUTEX_WHEEL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#ifndef MUTEX_WHEEL_TYPE
#define MUTEX_WHEEL_TYPE PTHREAD_MUTEX_DEFAULT
#endif

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
	/* In a bucket; under the wheel's mutex. */
	bool pending;
	/* Who must still let go of it: the wheel, and the owner of a handle. */
	atomic_uint holders;
};

struct mutex_wheel {
	_Alignas(64) pthread_mutex_t mutex;
	uint64_t next_tick;
	uint64_t pending;
	_Alignas(64) struct mutex_wheel_link *buckets;
	uint64_t bucket_mask;
	uint64_t origin_ns;
	uint64_t tick_ns;
	_Alignas(64) atomic_uint_fast64_t wakeups;
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

static inline void
mutex_wheel_release(struct mutex_wheel_timeout *timeout)
{
	if (atomic_fetch_sub(&timeout->holders, 1) == 1)
		free(timeout);
}

static inline uint64_t
mutex_wheel_tick(const struct mutex_wheel *wheel, uint64_t delay_ns)
{
	uint64_t due_ns = mutex_wheel_now_ns() - wheel->origin_ns + delay_ns;

	return (due_ns + wheel->tick_ns - 1) / wheel->tick_ns;
}

/* Under the mutex. */
static inline void
mutex_wheel_place(struct mutex_wheel *wheel,
    struct mutex_wheel_timeout *timeout, uint64_t tick)
{
	timeout->tick = tick < wheel->next_tick ? wheel->next_tick : tick;
	mutex_wheel_append(&wheel->buckets[timeout->tick & wheel->bucket_mask],
	    &timeout->link);
}

/* held: the caller will cancel it. NULL: no memory. */
static inline struct mutex_wheel_timeout *
mutex_wheel_schedule(struct mutex_wheel *wheel, void (*task)(void *arg),
    void *arg, uint64_t delay_ns, bool held)
{
	struct mutex_wheel_timeout *timeout = malloc(sizeof(*timeout));
	uint64_t tick = mutex_wheel_tick(wheel, delay_ns);

	if (!timeout)
		return NULL;
	timeout->task = task;
	timeout->arg = arg;
	timeout->pending = true;
	atomic_init(&timeout->holders, held ? 2 : 1);
	pthread_mutex_lock(&wheel->mutex);
	mutex_wheel_place(wheel, timeout, tick);
	wheel->pending++;
	pthread_mutex_unlock(&wheel->mutex);
	return timeout;
}

/* False: its task has begun, or is about to. */
static inline bool
mutex_wheel_cancel(
    struct mutex_wheel *wheel, struct mutex_wheel_timeout *timeout)
{
	bool pending;

	pthread_mutex_lock(&wheel->mutex);
	pending = timeout->pending;
	if (pending) {
		mutex_wheel_unlink(&timeout->link);
		wheel->pending--;
	}
	pthread_mutex_unlock(&wheel->mutex);
	if (pending)
		free(timeout);
	else
		mutex_wheel_release(timeout);
	return pending;
}

/* False as for cancel; then it is freed like there. */
static inline bool
mutex_wheel_reschedule(struct mutex_wheel *wheel,
    struct mutex_wheel_timeout *timeout, uint64_t delay_ns)
{
	uint64_t tick = mutex_wheel_tick(wheel, delay_ns);
	bool pending;

	pthread_mutex_lock(&wheel->mutex);
	pending = timeout->pending;
	if (pending) {
		mutex_wheel_unlink(&timeout->link);
		mutex_wheel_place(wheel, timeout, tick);
	}
	pthread_mutex_unlock(&wheel->mutex);
	if (!pending)
		mutex_wheel_release(timeout);
	return pending;
}

/* Moves what is due at the tick from its bucket to the list. */
static inline void
mutex_wheel_collect(
    struct mutex_wheel *wheel, uint64_t tick, struct mutex_wheel_link *due)
{
	struct mutex_wheel_link *head =
	    &wheel->buckets[tick & wheel->bucket_mask];
	struct mutex_wheel_link *link, *next;
	struct mutex_wheel_timeout *timeout;

	for (link = head->next; link != head; link = next) {
		next = link->next;
		timeout = (struct mutex_wheel_timeout *)link;
		if (timeout->tick > tick)
			continue;
		timeout->pending = false;
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
		mutex_wheel_release(timeout);
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
		atomic_fetch_add(&wheel->wakeups, 1);
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

static inline bool
mutex_wheel_start(struct mutex_wheel *wheel)
{
	pthread_condattr_t monotonic;
	pthread_mutexattr_t type;

	pthread_mutexattr_init(&type);
	pthread_mutexattr_settype(&type, MUTEX_WHEEL_TYPE);
	pthread_mutex_init(&wheel->mutex, &type);
	pthread_mutexattr_destroy(&type);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&wheel->stop, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return !pthread_create(&wheel->worker, NULL, mutex_wheel_worker, wheel);
}

/* buckets is a power of two. NULL: no memory or no thread. */
static inline struct mutex_wheel *
mutex_wheel_create(uint64_t tick_ns, uint64_t buckets)
{
	struct mutex_wheel *wheel = aligned_alloc(64, sizeof(*wheel));
	uint64_t i;

	if (!wheel)
		return NULL;
	wheel->buckets = calloc(buckets, sizeof(*wheel->buckets));
	wheel->bucket_mask = buckets - 1;
	for (i = 0; wheel->buckets && i < buckets; i++)
		wheel->buckets[i].next = wheel->buckets[i].previous =
		    &wheel->buckets[i];
	wheel->origin_ns = mutex_wheel_now_ns();
	wheel->tick_ns = tick_ns;
	wheel->next_tick = 1;
	wheel->pending = 0;
	atomic_init(&wheel->wakeups, 0);
	wheel->stopping = false;
	if (wheel->buckets && mutex_wheel_start(wheel))
		return wheel;
	free(wheel->buckets);
	free(wheel);
	return NULL;
}

/* What is pending is dropped. */
static inline void
mutex_wheel_destroy(struct mutex_wheel *wheel)
{
	struct mutex_wheel_link *head, *link, *next;

	pthread_mutex_lock(&wheel->mutex);
	wheel->stopping = true;
	pthread_cond_signal(&wheel->stop);
	pthread_mutex_unlock(&wheel->mutex);
	pthread_join(wheel->worker, NULL);
	for (head = wheel->buckets; head <= wheel->buckets + wheel->bucket_mask;
	     head++)
		for (link = head->next; link != head; link = next) {
			next = link->next;
			free(link);
		}
	pthread_cond_destroy(&wheel->stop);
	pthread_mutex_destroy(&wheel->mutex);
	free(wheel->buckets);
	free(wheel);
}

#endif
