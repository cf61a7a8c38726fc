/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nng, a sleep that an asynchronous handle performs: nng_sleep_aio and
 * nng_aio_cancel. There is no reschedule: it is a cancel and a schedule.
 *
 * Blocks with an nng_aio each, kept for reuse under a mutex: a cancel only
 * begins the end, which comes by way of nng's task threads. Delays are
 * milliseconds, by a clock of milliseconds: one may be early by up to one.
 *
 * Who would call it unfair: its author, since an aio is there for messages, and
 * its timeout comes along with it. It is here as what users of nng have.
 */
#define SUBJECT_TELLS 1
/* Its clock counts milliseconds. */
#define SUBJECT_MAY_BE_EARLY 1
#define SUBJECT_CONCURRENT 1

#include <nng/nng.h>

#include "perf/peer.h"

struct nng_timeout {
	struct peer_block block;
	nng_aio *aio;
	struct subject *subject;
	/* Under the mutex, whichever comes first. */
	bool started, cancelled;
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
	perf_must(subject, "aligned_alloc");
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
		timeout->block.task(timeout->block.arg);
		pthread_mutex_lock(&subject->mutex);
	}
	peer_drop(&subject->blocks, &timeout->block);
	pthread_mutex_unlock(&subject->mutex);
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct nng_timeout *timeout;

	pthread_mutex_lock(&subject->mutex);
	timeout = peer_take(&subject->blocks);
	if (!timeout) {
		timeout = peer_make(&subject->blocks, sizeof(*timeout));
		timeout->subject = subject;
		perf_must(!nng_aio_alloc(&timeout->aio, nng_ended, timeout),
		    "nng_aio_alloc");
	}
	pthread_mutex_unlock(&subject->mutex);
	timeout->started = timeout->cancelled = false;
	peer_set(&timeout->block, task, arg, handle);
	if (handle)
		*handle = timeout;
	nng_sleep_aio((nng_duration)peer_ms(delay_ns), timeout->aio);
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

/* It gets another handle. */
static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	struct nng_timeout *timeout = *handle;

	perf_must(nng_end(subject, timeout), "rescheduling");
	subject_schedule(
	    subject, handle, timeout->block.task, timeout->block.arg, delay_ns);
}
