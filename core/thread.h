/* SPDX-License-Identifier: Apache-2.0 */
/* State of a thread that uses timers. See thread.c. */
#ifndef HWT_THREAD_H
#define HWT_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "sys/clock.h"

struct hwt;
struct cache;

/* A task that this thread is running, or a wheel that it is turning, innermost
 * first. The timer is named by its serial: in a forked child, a task's copy
 * outlives its timer. */
struct run_frame {
	uint64_t serial;
	uint64_t id; /* 0: turning the wheel */
	bool rescheduled; /* a periodic task has moved its own deadline */
	struct run_frame *outer;
};

/* The cache that this thread uses for a timer, which may be destroyed. */
struct thread_slot {
	uint64_t serial;
	struct cache *cache;
};

#define THREAD_SLOTS 8
/* Calls after which a thread that got no cache tries again. */
#define ATTACH_SKIP 63u

struct thread_state {
	struct thread_slot slot[THREAD_SLOTS];
	struct run_frame *frames;
	/* The executor whose thread this is, and the epoch of its making. */
	const void *executor;
	uint64_t executor_epoch;
	/* A worker's outermost frame; also while its destructors of
	 * thread-specific data run. */
	struct run_frame worker_frame;
	struct clock_sample sample;
	unsigned attach_skip;
	/* Whether thread_exits will be called; whether it was. */
	bool watched, exited;
};

/* initial-exec: one instruction instead of a call. glibc keeps room for it in
 * libraries that are loaded late; musl would load none. */
#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
/* gcc 12 tests flags that the linker's relaxation of that model leaves unset,
 * and then reports null pointers where there are none. */
#define THREAD_STATE_MODEL
#else
#define THREAD_STATE_MODEL __attribute__((tls_model("initial-exec")))
#endif
extern _Thread_local struct thread_state thread_state THREAD_STATE_MODEL;

/* The slow half of cache_of in timer.h. may_allocate: may take memory, for the
 * C library, in a thread's first call. */
struct cache *thread_attach_cache(struct hwt *timer, bool may_allocate);

/* The frame of the task with that id, if this thread runs it; or NULL. id 0:
 * the innermost of timer, also where this thread turns its wheel. */
struct run_frame *thread_frame_of(const struct hwt *timer, uint64_t id);

/* pthread_create, with the signals blocked from the thread's first instruction
 * on: 0, -ENOMEM or -EAGAIN. */
int thread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*begin)(void *argument), void *argument);

/* The first steps of a thread of this library. attr: it was created with. */
void thread_begin(const char *name, const pthread_attr_t *attr);

#endif
