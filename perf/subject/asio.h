/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boost.Asio, steady_timer in an io_context that a thread runs: expires_after
 * and async_wait, the destructor to cancel, expires_after and async_wait once
 * more to reschedule. The C++ is in asio.cc.
 *
 * Who would call it unfair: who has the timer in a session, which saves new and
 * delete, some 5 ns of a pair; what it takes is the heap, its mutex, and the
 * cancelled handler, which runs in the io_context's thread.
 *
 * needs: boost/asio.hpp, perf/subject/asio.cc (libboost-dev)
 */
#define SUBJECT_NAME "asio"
#define SUBJECT_SINGLE 0
#define SUBJECT_STALE_SAFE 1
#define SUBJECT_TELLS 1

/* 0: one timeout is rescheduled by one thread at a time. */
#define SUBJECT_KEEPS_HANDLE 0

#include <stdbool.h>
#include <stdint.h>

#include "perf/peer.h"
#include "perf/subject/asio_calls.h"

/* Cancels of a thread that found nothing to cancel. */
static _Thread_local uint64_t subject_refused;

typedef struct asio_timeout *subject_handle;

struct subject {
	struct asio_loop *loop;
};

static inline const char *
subject_version(void)
{
	return peer_version("Boost.Asio of Boost", asio_version());
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = malloc(sizeof(*subject));

	(void)tick_ns;
	(void)capacity;
	if (subject)
		subject->loop = asio_create();
	if (!subject || subject->loop)
		return subject;
	free(subject);
	return NULL;
}

static inline void
subject_destroy(struct subject *subject)
{
	asio_destroy(subject->loop);
	free(subject);
}

static inline bool
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	return asio_schedule(subject->loop, handle, task, arg, delay_ns);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	(void)subject;
	if (!asio_cancel(timeout))
		subject_refused++;
}

static inline bool
subject_reschedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	(void)subject;
	if (asio_reschedule(*handle, task, arg, delay_ns))
		return true;
	*handle = NULL;
	return false;
}

static inline uint64_t
subject_wakeups(struct subject *subject)
{
	peer_thread thread = asio_thread(subject->loop);

	return peer_thread_switches(&thread);
}
