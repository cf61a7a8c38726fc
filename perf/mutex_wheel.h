/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline: a hashed wheel behind a mutex, as one would write it in an
 * afternoon, written well. Doubly linked lists, so that start and cancel take
 * constant time; clock, malloc and free outside the lock; each lock on a cache
 * line of its own; no counters. What is due is unlinked under the lock, a few
 * at a time, and run without it while it is in the cache. Deadlines are kept as
 * ticks, so that passing over a later round is a comparison.
 *
 * A handle is the pointer. The owner of a handle cancels it once, whether the
 * timeout has ended or not, and so frees it; without a handle, the worker frees
 * it after its task. So the baseline needs none of the generations with which
 * hwt refuses stale handles.
 *
 * Who would call it unfair, and the variant that they would write:
 *
 *   "A spinlock is faster."                   MUTEX_WHEEL_SPIN
 *   "Each thread has a wheel of its own, and a timeout is embedded in its
 *    connection: no malloc."                  MUTEX_WHEEL_SHARDS
 *   "One notes the activity, and checks it when the timeout is due."
 *                                             MUTEX_WHEEL_LAZY
 *   "The loop has read the clock already."    SUBJECT_DEADLINES
 *   "CLOCK_MONOTONIC_COARSE is cheaper."      It lags under load by more than
 *                                             its resolution: timeouts would be
 *                                             early. With deadlines none is
 *                                             read.
 *   "A loop's own timers need no lock."       subject/libuv.h
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

/* 1: the lock only spins; its users have a processor each. */
#ifndef MUTEX_WHEEL_SPIN
#define MUTEX_WHEEL_SPIN 0
#endif

/* 1: what is pushed out stays in its bucket. Its deadline is stored without the
 * lock, and checked when the bucket is due: the third way in libev's manual. */
#ifndef MUTEX_WHEEL_LAZY
#define MUTEX_WHEEL_LAZY 0
#endif

/* Above 1: each thread's timeouts are in a wheel with a lock of its own, and
 * what a thread cancels serves its next timeout. */
#ifndef MUTEX_WHEEL_SHARDS
#define MUTEX_WHEEL_SHARDS 1
#endif
#define MUTEX_WHEEL_EMBEDDED (MUTEX_WHEEL_SHARDS > 1)

enum {
	MUTEX_WHEEL_BUCKETS = 512,
	/* Timeouts looked at while the lock is held. */
	MUTEX_WHEEL_CHUNK = 64
};

#define MUTEX_WHEEL_ENDED UINT64_MAX

/* The links come first: a bucket's head is the links alone. */
struct mutex_wheel_links {
	struct mutex_wheel_links *next, *previous;
};

struct mutex_wheel_timeout {
	struct mutex_wheel_links link;
	uint64_t tick;
	void (*task)(void *arg);
	void *arg;
#if MUTEX_WHEEL_SHARDS > 1
	struct mutex_wheel_shard *shard;
#endif
	/* The deadline, not before tick; MUTEX_WHEEL_ENDED: not in a bucket.
	 * Under the shard's lock, except where a lazy one is pushed out. */
	atomic_uint_fast64_t due;
	/* Who must still release it: the wheel, and the owner of a handle. */
	atomic_uint holders;
};

struct mutex_wheel_shard {
#if MUTEX_WHEEL_SPIN
	_Alignas(64) pthread_spinlock_t lock;
#else
	_Alignas(64) pthread_mutex_t lock;
#endif
	uint64_t next_tick;
	struct mutex_wheel_links *buckets;
};

struct mutex_wheel {
	struct mutex_wheel_shard shard[MUTEX_WHEEL_SHARDS];
	_Alignas(64) uint64_t bucket_mask;
	uint64_t origin_ns, tick_ns;
	_Alignas(64) pthread_mutex_t stop_lock;
	pthread_cond_t stop;
	bool stopping;
	pthread_t worker;
};

static inline void
mutex_wheel_lock(struct mutex_wheel_shard *shard)
{
#if MUTEX_WHEEL_SPIN
	pthread_spin_lock(&shard->lock);
#else
	pthread_mutex_lock(&shard->lock);
#endif
}

static inline void
mutex_wheel_unlock(struct mutex_wheel_shard *shard)
{
#if MUTEX_WHEEL_SPIN
	pthread_spin_unlock(&shard->lock);
#else
	pthread_mutex_unlock(&shard->lock);
#endif
}

static inline void
mutex_wheel_lock_init(struct mutex_wheel_shard *shard)
{
#if MUTEX_WHEEL_SPIN
	pthread_spin_init(&shard->lock, PTHREAD_PROCESS_PRIVATE);
#else
	pthread_mutex_init(&shard->lock, NULL);
#endif
}

/* Where the calling thread's timeouts go. */
static inline struct mutex_wheel_shard *
mutex_wheel_own(struct mutex_wheel *wheel)
{
#if MUTEX_WHEEL_SHARDS > 1
	static atomic_uint threads;
	static _Thread_local unsigned number;

	if (!number)
		number = atomic_fetch_add(&threads, 1) + 1;
	return &wheel->shard[number % MUTEX_WHEEL_SHARDS];
#else
	return &wheel->shard[0];
#endif
}

static inline struct mutex_wheel_shard *
mutex_wheel_of(struct mutex_wheel *wheel, struct mutex_wheel_timeout *timeout)
{
#if MUTEX_WHEEL_SHARDS > 1
	(void)wheel;
	return timeout->shard;
#else
	(void)timeout;
	return &wheel->shard[0];
#endif
}

static _Thread_local struct mutex_wheel_timeout *mutex_wheel_spare;

static inline struct mutex_wheel_timeout *
mutex_wheel_make(void)
{
	struct mutex_wheel_timeout *spare = mutex_wheel_spare;

	if (!MUTEX_WHEEL_EMBEDDED || !spare)
		return malloc(sizeof(*spare));
	mutex_wheel_spare = NULL;
	return spare;
}

static inline void
mutex_wheel_free(struct mutex_wheel_timeout *timeout)
{
	if (!MUTEX_WHEEL_EMBEDDED || mutex_wheel_spare)
		free(timeout);
	else
		mutex_wheel_spare = timeout;
}

static inline void
mutex_wheel_release(struct mutex_wheel_timeout *timeout)
{
	if (atomic_fetch_sub(&timeout->holders, 1) == 1)
		mutex_wheel_free(timeout);
}

static inline uint64_t
mutex_wheel_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void
mutex_wheel_unlink(struct mutex_wheel_links *link)
{
	link->previous->next = link->next;
	link->next->previous = link->previous;
}

/* Before head, which makes it the list's last. */
static inline void
mutex_wheel_append(
    struct mutex_wheel_links *head, struct mutex_wheel_links *link)
{
	link->next = head;
	link->previous = head->previous;
	head->previous->next = link;
	head->previous = link;
}

static inline uint64_t
mutex_wheel_tick(const struct mutex_wheel *wheel, uint64_t due_ns)
{
	uint64_t since_ns = due_ns - wheel->origin_ns;

	return (since_ns + wheel->tick_ns - 1) / wheel->tick_ns;
}

/* Under the lock. */
static inline void
mutex_wheel_link(const struct mutex_wheel *wheel,
    struct mutex_wheel_shard *shard, struct mutex_wheel_timeout *timeout,
    uint64_t tick)
{
	timeout->tick = tick;
	mutex_wheel_append(
	    &shard->buckets[tick & wheel->bucket_mask], &timeout->link);
}

/* Under the lock. */
static inline void
mutex_wheel_place(const struct mutex_wheel *wheel,
    struct mutex_wheel_shard *shard, struct mutex_wheel_timeout *timeout,
    uint64_t tick)
{
	if (tick < shard->next_tick)
		tick = shard->next_tick;
	atomic_store_explicit(&timeout->due, tick, memory_order_relaxed);
	mutex_wheel_link(wheel, shard, timeout, tick);
}

/* Under the lock. */
static inline bool
mutex_wheel_pending(struct mutex_wheel_timeout *timeout)
{
	return atomic_load_explicit(&timeout->due, memory_order_relaxed) !=
	    MUTEX_WHEEL_ENDED;
}

/* held: the caller will cancel it. NULL: no memory. */
static inline struct mutex_wheel_timeout *
mutex_wheel_schedule_at(struct mutex_wheel *wheel, void (*task)(void *arg),
    void *arg, uint64_t due_ns, bool held)
{
	struct mutex_wheel_shard *shard = mutex_wheel_own(wheel);
	struct mutex_wheel_timeout *timeout = mutex_wheel_make();
	uint64_t tick = mutex_wheel_tick(wheel, due_ns);

	if (!timeout)
		return NULL;
	timeout->task = task;
	timeout->arg = arg;
#if MUTEX_WHEEL_SHARDS > 1
	timeout->shard = shard;
#endif
	atomic_init(&timeout->holders, held ? 2 : 1);
	mutex_wheel_lock(shard);
	mutex_wheel_place(wheel, shard, timeout, tick);
	mutex_wheel_unlock(shard);
	return timeout;
}

/* False: its task has begun, or is about to. */
static inline bool
mutex_wheel_cancel(
    struct mutex_wheel *wheel, struct mutex_wheel_timeout *timeout)
{
	struct mutex_wheel_shard *shard = mutex_wheel_of(wheel, timeout);
	bool pending;

	mutex_wheel_lock(shard);
	pending = mutex_wheel_pending(timeout);
	if (pending)
		mutex_wheel_unlink(&timeout->link);
	mutex_wheel_unlock(shard);
	if (pending)
		mutex_wheel_free(timeout);
	else
		mutex_wheel_release(timeout);
	return pending;
}

/* Without the lock; false: it has ended, or is pulled in. */
static inline bool
mutex_wheel_put_off(struct mutex_wheel_timeout *timeout, uint64_t tick)
{
	uint64_t due =
	    atomic_load_explicit(&timeout->due, memory_order_relaxed);

	while (due <= tick)
		if (atomic_compare_exchange_weak(&timeout->due, &due, tick))
			return true;
	return false;
}

/* False as for cancel; then it is freed like there. */
static inline bool
mutex_wheel_reschedule_at(struct mutex_wheel *wheel,
    struct mutex_wheel_timeout *timeout, uint64_t due_ns)
{
	struct mutex_wheel_shard *shard = mutex_wheel_of(wheel, timeout);
	uint64_t tick = mutex_wheel_tick(wheel, due_ns);
	bool pending;

	if (MUTEX_WHEEL_LAZY && mutex_wheel_put_off(timeout, tick))
		return true;
	mutex_wheel_lock(shard);
	pending = mutex_wheel_pending(timeout);
	if (pending) {
		mutex_wheel_unlink(&timeout->link);
		mutex_wheel_place(wheel, shard, timeout, tick);
	}
	mutex_wheel_unlock(shard);
	if (!pending)
		mutex_wheel_release(timeout);
	return pending;
}

/* Unlinks it if it is due. */
static inline bool
mutex_wheel_end(const struct mutex_wheel *wheel,
    struct mutex_wheel_shard *shard, struct mutex_wheel_timeout *timeout,
    uint64_t tick)
{
	uint64_t due = timeout->tick;

	if (due > tick)
		return false;
	mutex_wheel_unlink(&timeout->link);
	if (!MUTEX_WHEEL_LAZY) {
		atomic_store_explicit(
		    &timeout->due, MUTEX_WHEEL_ENDED, memory_order_relaxed);
		return true;
	}
	while (due <= tick)
		if (atomic_compare_exchange_weak(
			&timeout->due, &due, MUTEX_WHEEL_ENDED))
			return true;
	mutex_wheel_link(wheel, shard, timeout, due);
	return false;
}

/* Unlinks what is due at the tick, from the place that cursor has in the bucket
 * on, and moves the cursor behind it. Returns how many are in due. */
static inline unsigned
mutex_wheel_collect(const struct mutex_wheel *wheel,
    struct mutex_wheel_shard *shard, struct mutex_wheel_links *cursor,
    uint64_t tick, struct mutex_wheel_timeout **due)
{
	const struct mutex_wheel_links *head =
	    &shard->buckets[tick & wheel->bucket_mask];
	struct mutex_wheel_links *link = cursor->next;
	struct mutex_wheel_timeout *timeout;
	unsigned count = 0, seen;

	mutex_wheel_unlink(cursor);
	for (seen = 0; link != head && seen < MUTEX_WHEEL_CHUNK; seen++) {
		timeout = (struct mutex_wheel_timeout *)link;
		link = link->next;
		if (mutex_wheel_end(wheel, shard, timeout, tick))
			due[count++] = timeout;
	}
	mutex_wheel_append(link, cursor);
	return count;
}

/* Other threads unlink, and append at the end: the cursor stays where it is. */
static inline void
mutex_wheel_turn_shard(
    struct mutex_wheel *wheel, struct mutex_wheel_shard *shard, uint64_t tick)
{
	struct mutex_wheel_links *head =
	    &shard->buckets[tick & wheel->bucket_mask];
	struct mutex_wheel_timeout *due[MUTEX_WHEEL_CHUNK];
	struct mutex_wheel_links cursor;
	unsigned count, i;

	mutex_wheel_lock(shard);
	shard->next_tick = tick + 1;
	mutex_wheel_append(head->next, &cursor);
	while (cursor.next != head) {
		count = mutex_wheel_collect(wheel, shard, &cursor, tick, due);
		mutex_wheel_unlock(shard);
		for (i = 0; i < count; i++) {
			due[i]->task(due[i]->arg);
			mutex_wheel_release(due[i]);
		}
		mutex_wheel_lock(shard);
	}
	mutex_wheel_unlink(&cursor);
	mutex_wheel_unlock(shard);
}

static inline void
mutex_wheel_turn(struct mutex_wheel *wheel, uint64_t tick)
{
	unsigned i;

	for (i = 0; i < MUTEX_WHEEL_SHARDS; i++)
		mutex_wheel_turn_shard(wheel, &wheel->shard[i], tick);
}

static inline void *
mutex_wheel_worker(void *arg)
{
	struct mutex_wheel *wheel = arg;
	uint64_t tick = 1, until_ns;
	struct timespec until;

	pthread_mutex_lock(&wheel->stop_lock);
	while (!wheel->stopping) {
		until_ns = wheel->origin_ns + tick * wheel->tick_ns;
		until.tv_sec = (time_t)(until_ns / 1000000000u);
		until.tv_nsec = (long)(until_ns % 1000000000u);
		if (pthread_cond_timedwait(
			&wheel->stop, &wheel->stop_lock, &until) != ETIMEDOUT)
			continue;
		pthread_mutex_unlock(&wheel->stop_lock);
		mutex_wheel_turn(wheel, tick++);
		pthread_mutex_lock(&wheel->stop_lock);
	}
	pthread_mutex_unlock(&wheel->stop_lock);
	return NULL;
}

static inline bool
mutex_wheel_start(struct mutex_wheel *wheel)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&wheel->stop_lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&wheel->stop, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return !pthread_create(&wheel->worker, NULL, mutex_wheel_worker, wheel);
}

/* buckets, of each shard, is a power of two. NULL: no memory or no thread. */
static inline struct mutex_wheel *
mutex_wheel_create(uint64_t tick_ns, uint64_t buckets)
{
	struct mutex_wheel *wheel = aligned_alloc(64, sizeof(*wheel));
	struct mutex_wheel_links *all;
	uint64_t i;

	if (!wheel)
		return NULL;
	all = calloc(MUTEX_WHEEL_SHARDS * buckets, sizeof(*all));
	for (i = 0; all && i < MUTEX_WHEEL_SHARDS * buckets; i++)
		all[i].next = all[i].previous = &all[i];
	for (i = 0; i < MUTEX_WHEEL_SHARDS; i++) {
		mutex_wheel_lock_init(&wheel->shard[i]);
		wheel->shard[i].next_tick = 1;
		wheel->shard[i].buckets = all + i * buckets;
	}
	wheel->bucket_mask = buckets - 1;
	wheel->tick_ns = tick_ns;
	wheel->origin_ns = mutex_wheel_now_ns();
	wheel->stopping = false;
	if (all && mutex_wheel_start(wheel))
		return wheel;
	free(all);
	free(wheel);
	return NULL;
}

/* What is pending is dropped. */
static inline void
mutex_wheel_destroy(struct mutex_wheel *wheel)
{
	struct mutex_wheel_links *head, *link, *next, *all, *end;

	pthread_mutex_lock(&wheel->stop_lock);
	wheel->stopping = true;
	pthread_cond_signal(&wheel->stop);
	pthread_mutex_unlock(&wheel->stop_lock);
	pthread_join(wheel->worker, NULL);
	all = wheel->shard[0].buckets;
	end = all + MUTEX_WHEEL_SHARDS * (wheel->bucket_mask + 1);
	for (head = all; head < end; head++)
		for (link = head->next; link != head; link = next) {
			next = link->next;
			free(link);
		}
	pthread_cond_destroy(&wheel->stop);
	pthread_mutex_destroy(&wheel->stop_lock);
	free(all);
	free(wheel);
}

#endif
