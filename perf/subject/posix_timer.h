/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel itself by way of POSIX, one timer_create per timeout, which tells
 * by a signal that a thread waits for: timer_settime to schedule, to cancel and
 * to reschedule.
 *
 * needs: time.h (libc6-dev)
 *
 * SIGEV_THREAD would start a thread for each timeout that is due, and
 * SIGEV_SIGNAL alone would need the signal blocked in every thread of the
 * program; with SIGEV_THREAD_ID, which Linux adds, it goes to the one thread
 * that waits in sigwaitinfo, and to no other.
 *
 * Blocks with a timer each, kept for reuse under a mutex: a pair is two calls
 * of the system instead of four. A signal may have been queued before its timer
 * was disarmed or armed once more: it is refused while the block's deadline is
 * to come.
 *
 * Who would call it unfair: nobody who has timers by the thousand; as
 * timerfd.h, it is here for its precision.
 *
 * Each timer has a queued signal set aside for it. Skipped when
 * RLIMIT_SIGPENDING does not allow as many.
 */
#define SUBJECT_NAME "posix_timer"
#define SUBJECT_SINGLE 0
#define SUBJECT_STALE_SAFE 1
#define SUBJECT_TELLS 1

/* 0: one timeout is rescheduled by one thread at a time. */
#define SUBJECT_KEEPS_HANDLE 0

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "perf/peer.h"

/* Cancels of a thread that found nothing to cancel. */
static _Thread_local uint64_t subject_refused;

#define POSIX_TIMER_DUE SIGRTMIN
#define POSIX_TIMER_STOP (SIGRTMIN + 1)

enum {
	/* Signals of others. */
	POSIX_TIMER_SPARE = 64
};

struct posix_timer_timeout {
	struct peer_block block;
	timer_t timer;
	/* Under the mutex; UINT64_MAX: not pending. */
	uint64_t deadline_ns;
	void (*task)(void *arg);
	void *arg;
};

typedef struct posix_timer_timeout *subject_handle;

struct subject {
	_Alignas(64) pthread_mutex_t mutex;
	struct peer_blocks blocks;
	_Alignas(64) peer_thread thread;
	sem_t started;
	pthread_t worker;
};

static inline const char *
subject_version(void)
{
	return "timer_create of the kernel";
}

/* False: the signal is of an earlier use. */
static inline bool
posix_timer_end(struct subject *subject, struct posix_timer_timeout *timeout)
{
	uint64_t now_ns = peer_now_ns();
	bool due;

	pthread_mutex_lock(&subject->mutex);
	due = timeout->deadline_ns <= now_ns;
	if (due)
		timeout->deadline_ns = UINT64_MAX;
	pthread_mutex_unlock(&subject->mutex);
	return due;
}

static inline void *
posix_timer_worker(void *arg)
{
	struct subject *subject = arg;
	struct posix_timer_timeout *timeout;
	siginfo_t info;
	sigset_t waited;

	peer_thread_here(&subject->thread);
	sem_post(&subject->started);
	sigemptyset(&waited);
	sigaddset(&waited, POSIX_TIMER_DUE);
	sigaddset(&waited, POSIX_TIMER_STOP);
	for (;;) {
		if (sigwaitinfo(&waited, &info) < 0)
			continue;
		if (info.si_signo == POSIX_TIMER_STOP)
			return NULL;
		timeout = info.si_value.sival_ptr;
		if (!posix_timer_end(subject, timeout))
			continue;
		timeout->task(timeout->arg);
		pthread_mutex_lock(&subject->mutex);
		peer_drop(&subject->blocks, &timeout->block);
		pthread_mutex_unlock(&subject->mutex);
	}
}

/* The thread gets its signals blocked from the start. */
static inline bool
posix_timer_start(struct subject *subject)
{
	sigset_t waited, before;
	int error;

	sigemptyset(&waited);
	sigaddset(&waited, POSIX_TIMER_DUE);
	sigaddset(&waited, POSIX_TIMER_STOP);
	pthread_sigmask(SIG_BLOCK, &waited, &before);
	error =
	    pthread_create(&subject->worker, NULL, posix_timer_worker, subject);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return false;
	while (sem_wait(&subject->started))
		continue;
	return true;
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = aligned_alloc(64, sizeof(*subject));

	(void)tick_ns;
	peer_limit(RLIMIT_SIGPENDING, capacity + POSIX_TIMER_SPARE,
	    "RLIMIT_SIGPENDING");
	if (!subject)
		return NULL;
	subject->blocks.idle = subject->blocks.made = NULL;
	pthread_mutex_init(&subject->mutex, NULL);
	sem_init(&subject->started, 0, 0);
	if (posix_timer_start(subject))
		return subject;
	sem_destroy(&subject->started);
	pthread_mutex_destroy(&subject->mutex);
	free(subject);
	return NULL;
}

/* With its thread, its signals are gone. */
static inline void
subject_destroy(struct subject *subject)
{
	struct posix_timer_timeout *timeout;

	pthread_kill(subject->worker, POSIX_TIMER_STOP);
	pthread_join(subject->worker, NULL);
	while ((timeout = peer_unmake(&subject->blocks))) {
		timer_delete(timeout->timer);
		free(timeout);
	}
	sem_destroy(&subject->started);
	pthread_mutex_destroy(&subject->mutex);
	free(subject);
}

static inline struct posix_timer_timeout *
posix_timer_make(struct subject *subject)
{
	struct posix_timer_timeout *timeout = malloc(sizeof(*timeout));
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID,
	    .sigev_signo = POSIX_TIMER_DUE,
	    .sigev_value.sival_ptr = timeout};

	if (!timeout)
		return NULL;
	/* glibc has no better name for it. */
	event._sigev_un._tid = atomic_load(&subject->thread);
	if (timer_create(CLOCK_MONOTONIC, &event, &timeout->timer)) {
		free(timeout);
		return NULL;
	}
	peer_made(&subject->blocks, &timeout->block);
	return timeout;
}

/* 0 disarms. */
static inline bool
posix_timer_set(const struct posix_timer_timeout *timeout, uint64_t deadline_ns)
{
	struct itimerspec deadline = {.it_value = peer_timespec(deadline_ns)};

	return !timer_settime(timeout->timer, TIMER_ABSTIME, &deadline, NULL);
}

static inline bool
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	uint64_t deadline_ns = peer_now_ns() + delay_ns;
	struct posix_timer_timeout *timeout;

	pthread_mutex_lock(&subject->mutex);
	timeout = peer_take(&subject->blocks);
	if (!timeout)
		timeout = posix_timer_make(subject);
	if (timeout) {
		timeout->task = task;
		timeout->arg = arg;
		timeout->deadline_ns = deadline_ns;
		peer_hold(&timeout->block, handle);
	}
	pthread_mutex_unlock(&subject->mutex);
	if (!timeout)
		return false;
	if (handle)
		*handle = timeout;
	return posix_timer_set(timeout, deadline_ns);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	posix_timer_set(timeout, 0);
	pthread_mutex_lock(&subject->mutex);
	if (timeout->deadline_ns != UINT64_MAX) {
		timeout->deadline_ns = UINT64_MAX;
		peer_give(&subject->blocks, &timeout->block);
	} else {
		subject_refused++;
		peer_drop(&subject->blocks, &timeout->block);
	}
	pthread_mutex_unlock(&subject->mutex);
}

static inline bool
subject_reschedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	uint64_t deadline_ns = peer_now_ns() + delay_ns;
	struct posix_timer_timeout *timeout = *handle;
	bool pending;

	(void)task;
	(void)arg;
	pthread_mutex_lock(&subject->mutex);
	pending = timeout->deadline_ns != UINT64_MAX;
	if (pending) {
		timeout->deadline_ns = deadline_ns;
	} else {
		peer_drop(&subject->blocks, &timeout->block);
		*handle = NULL;
	}
	pthread_mutex_unlock(&subject->mutex);
	return pending && posix_timer_set(timeout, deadline_ns);
}

static inline uint64_t
subject_wakeups(struct subject *subject)
{
	return peer_thread_switches(&subject->thread);
}
