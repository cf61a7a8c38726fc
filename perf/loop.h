/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event loop's timers. Blocks with the loop's timer inside are kept for
 * reuse.
 *
 * LOOP_MT 0: for one thread, which turns the loop, and runs what is due in it.
 *
 * LOOP_MT 1: for any thread, with a mutex that the loop's thread holds except
 * while it polls and while it runs tasks. What is due is collected under the
 * mutex and run without it. The loop is woken when a new timeout is due before
 * the thread would look again.
 *
 * A subject says what its timer is (LOOP_TIMER), what else it needs
 * (LOOP_FIELDS), includes this, and defines the functions that are declared
 * here. They are called with the mutex held, unless told otherwise.
 */
#ifndef PERF_LOOP_H
#define PERF_LOOP_H

#include "perf/peer.h"

#define SUBJECT_SINGLE (!LOOP_MT)
#define SUBJECT_TELLS 1
#define SUBJECT_KEEPS_HANDLE LOOP_MT

struct loop_timeout {
	struct peer_block block;
	LOOP_TIMER timer;
};

typedef struct loop_timeout *subject_handle;

struct subject {
	pthread_mutex_t mutex;
	LOOP_FIELDS
	bool stopping;
	struct peer_blocks blocks;
	struct peer_queue due;
	pthread_t worker;
};

/* Before the thread is made, and after it has ended. */
static void loop_open(struct subject *subject);
static void loop_close(struct subject *subject);
#if LOOP_MT
/* The thread, until stopping is set and the loop woken. */
static void loop_run(struct subject *subject);
/* Without the mutex. */
static void loop_wake(struct subject *subject);
#else
/* One turn that does not wait. */
static void loop_run_once(struct subject *subject);
#endif
/* A block that was just made. */
static void loop_make(struct subject *subject, struct loop_timeout *timeout);
/* A timer that is not active, and one that is. True: wake the loop. */
static bool loop_start(
    struct subject *subject, struct loop_timeout *timeout, uint64_t delay_ns);
static bool loop_again(
    struct subject *subject, struct loop_timeout *timeout, uint64_t delay_ns);
static void loop_stop(struct subject *subject, struct loop_timeout *timeout);
static bool loop_active(const struct loop_timeout *timeout);

static inline void
loop_lock(struct subject *subject)
{
	if (LOOP_MT)
		pthread_mutex_lock(&subject->mutex);
}

static inline void
loop_unlock(struct subject *subject)
{
	if (LOOP_MT)
		pthread_mutex_unlock(&subject->mutex);
}

/* One that is not active any more. */
static inline void
loop_due(struct subject *subject, struct loop_timeout *timeout)
{
	if (LOOP_MT) {
		peer_queue_append(&subject->due, &timeout->block);
		return;
	}
	timeout->block.task(timeout->block.arg);
	peer_drop(&subject->blocks, &timeout->block);
}

#if LOOP_MT
/* Runs what the loop has collected, without the mutex meanwhile. */
static inline void
loop_run_due(struct subject *subject)
{
	pthread_mutex_unlock(&subject->mutex);
	peer_run_queue(&subject->due);
	pthread_mutex_lock(&subject->mutex);
	peer_drop_queue(&subject->blocks, &subject->due);
}

static inline void *
loop_worker(void *arg)
{
	struct subject *subject = arg;

	pthread_mutex_lock(&subject->mutex);
	loop_run(subject);
	pthread_mutex_unlock(&subject->mutex);
	return NULL;
}

static inline void
loop_end(struct subject *subject)
{
	loop_lock(subject);
	subject->stopping = true;
	loop_unlock(subject);
	loop_wake(subject);
	pthread_join(subject->worker, NULL);
}
#else
static inline void
loop_end(struct subject *subject)
{
	(void)subject;
}

static inline void
loop_wake(struct subject *subject)
{
	(void)subject;
}
#endif

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = calloc(1, sizeof(*subject));

	(void)tick_ns;
	(void)capacity;
	perf_must(subject, "calloc");
	pthread_mutex_init(&subject->mutex, NULL);
	loop_open(subject);
#if LOOP_MT
	perf_start(&subject->worker, loop_worker, subject);
#endif
	return subject;
}

static inline void
subject_destroy(struct subject *subject)
{
	void *block;

	loop_end(subject);
	loop_close(subject);
	while ((block = peer_unmake(&subject->blocks)))
		free(block);
	pthread_mutex_destroy(&subject->mutex);
	free(subject);
}

static inline struct loop_timeout *
loop_take(struct subject *subject)
{
	struct loop_timeout *timeout = peer_take(&subject->blocks);

	if (timeout)
		return timeout;
	timeout = peer_make(&subject->blocks, sizeof(*timeout));
	loop_make(subject, timeout);
	timeout->timer.data = timeout;
	return timeout;
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct loop_timeout *timeout;
	bool wake;

	loop_lock(subject);
	timeout = loop_take(subject);
	peer_set(&timeout->block, task, arg, handle);
	if (handle)
		*handle = timeout;
	wake = loop_start(subject, timeout, delay_ns);
	loop_unlock(subject);
	if (wake)
		loop_wake(subject);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	loop_lock(subject);
	if (loop_active(timeout)) {
		loop_stop(subject, timeout);
		peer_give(&subject->blocks, &timeout->block);
	} else {
		subject_refused++;
		peer_drop(&subject->blocks, &timeout->block);
	}
	loop_unlock(subject);
}

static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	bool wake;

	loop_lock(subject);
	perf_must(loop_active(*handle), "rescheduling");
	wake = loop_again(subject, *handle, delay_ns);
	loop_unlock(subject);
	if (wake)
		loop_wake(subject);
}

#define SUBJECT_TURNS 1
static inline void
subject_turn(struct subject *subject)
{
#if LOOP_MT
	(void)subject;
#else
	loop_run_once(subject);
#endif
}

#endif
