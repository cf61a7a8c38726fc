/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nng, a sleep that an asynchronous handle performs: nng_sleep_aio and
 * nng_aio_cancel. There is no reschedule: it is a cancel and a schedule. It is
 * safe for any thread by itself.
 *
 * needs: nng/nng.h, -lnng (libnng-dev)
 *
 * Blocks with an nng_aio each, kept for reuse under a mutex: a cancel only
 * begins the end, which comes by way of nng's task threads, and nng has its
 * users keep their handles. Delays are milliseconds, by a clock of
 * milliseconds: a timeout may be early by up to one.
 *
 * Who would call it unfair: its author, since an aio is there for messages, and
 * its timeout comes along with it. It is here as what users of nng have.
 */
#define SUBJECT_NAME "nng"
#define SUBJECT_SINGLE 0
#define SUBJECT_STALE_SAFE 1
#define SUBJECT_TELLS 1

/* 1: a task may start before its delay has passed. Its clock counts
 * milliseconds. */
#define SUBJECT_MAY_BE_EARLY 1

/* 0: one timeout is rescheduled by one thread at a time, and gets another
 * handle. */
#define SUBJECT_KEEPS_HANDLE 0

/* Tasks start in several threads at once. */
#define SUBJECT_CONCURRENT 1

#include <nng/nng.h>
#include <pthread.h>
#include <stdbool.h>

#include "perf/peer.h"

/* Cancels of a thread that found nothing to cancel. */
static _Thread_local uint64_t subject_refused;

struct nng_timeout {
	struct peer_block block;
	nng_aio *aio;
	struct subject *subject;
	/* Under the mutex, whichever comes first. */
	bool started, cancelled;
	void (*task)(void *arg);
	void *arg;
};

typedef struct nng_timeout *subject_handle;

struct subject {
	_Alignas(64) pthread_mutex_t mutex;
	struct peer_blocks blocks;
};

static inline const char *
subject_version(void)
{
	return peer_version("nng", nng_version());
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = aligned_alloc(64, sizeof(*subject));

	(void)tick_ns;
	(void)capacity;
	if (!subject)
		return NULL;
	pthread_mutex_init(&subject->mutex, NULL);
	subject->blocks.idle = subject->blocks.made = NULL;
	return subject;
}

/* nng_aio_free cancels, and waits for the callback. */
static inline void
subject_destroy(struct subject *subject)
{
	struct nng_timeout *timeout;

	while ((timeout = peer_unmake(&subject->blocks))) {
		nng_aio_free(timeout->aio);
		free(timeout);
	}
	pthread_mutex_destroy(&subject->mutex);
	free(subject);
}

/* Due or cancelled, by one of nng's threads. nng_aio_cancel does not tell when
 * it came too late for what is due already. */
static inline void
nng_ended(void *arg)
{
	struct nng_timeout *timeout = arg;
	struct subject *subject = timeout->subject;
	bool due = !nng_aio_result(timeout->aio);

	pthread_mutex_lock(&subject->mutex);
	if (due && !timeout->cancelled) {
		timeout->started = true;
		pthread_mutex_unlock(&subject->mutex);
		timeout->task(timeout->arg);
		pthread_mutex_lock(&subject->mutex);
	}
	peer_drop(&subject->blocks, &timeout->block);
	pthread_mutex_unlock(&subject->mutex);
}

static inline struct nng_timeout *
nng_make(struct subject *subject)
{
	struct nng_timeout *timeout = malloc(sizeof(*timeout));

	if (!timeout)
		return NULL;
	timeout->subject = subject;
	if (nng_aio_alloc(&timeout->aio, nng_ended, timeout)) {
		free(timeout);
		return NULL;
	}
	pthread_mutex_lock(&subject->mutex);
	peer_made(&subject->blocks, &timeout->block);
	pthread_mutex_unlock(&subject->mutex);
	return timeout;
}

static inline bool
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct nng_timeout *timeout;

	pthread_mutex_lock(&subject->mutex);
	timeout = peer_take(&subject->blocks);
	pthread_mutex_unlock(&subject->mutex);
	if (!timeout)
		timeout = nng_make(subject);
	if (!timeout)
		return false;
	timeout->task = task;
	timeout->arg = arg;
	timeout->started = timeout->cancelled = false;
	peer_hold(&timeout->block, handle);
	if (handle)
		*handle = timeout;
	nng_sleep_aio((nng_duration)peer_ms(delay_ns), timeout->aio);
	return true;
}

/* False: its task has begun. The abort comes before the handle is let go of: it
 * must not meet the next use of the block. */
static inline bool
nng_end(struct subject *subject, struct nng_timeout *timeout)
{
	bool started;

	nng_aio_cancel(timeout->aio);
	pthread_mutex_lock(&subject->mutex);
	started = timeout->started;
	timeout->cancelled = true;
	peer_drop(&subject->blocks, &timeout->block);
	pthread_mutex_unlock(&subject->mutex);
	return !started;
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	if (!nng_end(subject, timeout))
		subject_refused++;
}

static inline bool
subject_reschedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	if (nng_end(subject, *handle))
		return subject_schedule(subject, handle, task, arg, delay_ns);
	*handle = NULL;
	return false;
}

/* nng has several threads, which belong to no one. */
static inline uint64_t
subject_wakeups(struct subject *subject)
{
	(void)subject;
	return UINT64_MAX;
}
