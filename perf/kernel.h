/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers that the kernel keeps. Blocks with a timer each are kept for reuse
 * under a mutex: a pair is two calls of the system, where a timer that is made
 * and given back for each timeout would make four or five. Calls that arm and
 * disarm are made without the mutex.
 *
 * A subject says what its timer is (KERNEL_TIMER), what else it needs
 * (KERNEL_FIELDS), includes this, and defines the functions that are declared
 * here.
 */
#ifndef PERF_KERNEL_H
#define PERF_KERNEL_H

#include "perf/peer.h"

#define SUBJECT_TELLS 1

#define KERNEL_ENDED UINT64_MAX

struct kernel_timeout {
	struct peer_block block;
	KERNEL_TIMER timer;
	/* Under the mutex; KERNEL_ENDED: not pending. */
	uint64_t due_ns;
};

typedef struct kernel_timeout *subject_handle;

struct subject {
	_Alignas(64) pthread_mutex_t mutex;
	struct peer_blocks blocks;
	_Alignas(64) pthread_t worker;
	KERNEL_FIELDS
};

/* Starts the worker, or skips when capacity is beyond the limits; ends it. */
static void kernel_open(struct subject *subject, uint64_t capacity);
static void kernel_close(struct subject *subject);
static void kernel_make(
    struct subject *subject, struct kernel_timeout *timeout);
static void kernel_unmake(const struct kernel_timeout *timeout);
/* A deadline as the timer takes it. */
static uint64_t kernel_due_ns(uint64_t delay_ns);
/* Arms it; 0 disarms. */
static void kernel_set(const struct kernel_timeout *timeout, uint64_t due_ns);

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = aligned_alloc(64, sizeof(*subject));

	(void)tick_ns;
	perf_must(subject, "aligned_alloc");
	subject->blocks.idle = subject->blocks.made = NULL;
	pthread_mutex_init(&subject->mutex, NULL);
	kernel_open(subject, capacity);
	return subject;
}

static inline void
subject_destroy(struct subject *subject)
{
	struct kernel_timeout *timeout;

	kernel_close(subject);
	while ((timeout = peer_unmake(&subject->blocks))) {
		kernel_unmake(timeout);
		free(timeout);
	}
	pthread_mutex_destroy(&subject->mutex);
	free(subject);
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	uint64_t due_ns = kernel_due_ns(delay_ns);
	struct kernel_timeout *timeout;

	pthread_mutex_lock(&subject->mutex);
	timeout = peer_take(&subject->blocks);
	if (!timeout) {
		timeout = peer_make(&subject->blocks, sizeof(*timeout));
		kernel_make(subject, timeout);
	}
	timeout->due_ns = due_ns;
	peer_set(&timeout->block, task, arg, handle);
	pthread_mutex_unlock(&subject->mutex);
	if (handle)
		*handle = timeout;
	kernel_set(timeout, due_ns);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	kernel_set(timeout, 0);
	pthread_mutex_lock(&subject->mutex);
	if (timeout->due_ns != KERNEL_ENDED) {
		timeout->due_ns = KERNEL_ENDED;
		peer_give(&subject->blocks, &timeout->block);
	} else {
		subject_refused++;
		peer_drop(&subject->blocks, &timeout->block);
	}
	pthread_mutex_unlock(&subject->mutex);
}

static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	uint64_t due_ns = kernel_due_ns(delay_ns);
	struct kernel_timeout *timeout = *handle;

	pthread_mutex_lock(&subject->mutex);
	perf_must(timeout->due_ns != KERNEL_ENDED, "rescheduling");
	timeout->due_ns = due_ns;
	pthread_mutex_unlock(&subject->mutex);
	kernel_set(timeout, due_ns);
}

#endif
