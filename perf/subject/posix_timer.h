/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel itself by way of POSIX, one timer_create per timeout, which tells
 * by a signal that a thread waits for: timer_settime to schedule, to cancel and
 * to reschedule. For its blocks see perf/kernel.h.
 *
 * SIGEV_THREAD would start a thread for each timeout that is due, and
 * SIGEV_SIGNAL alone would need the signal blocked in every thread of the
 * program; with SIGEV_THREAD_ID, which Linux adds, it goes to the one thread
 * that waits in sigwaitinfo, and to no other. A signal may have been queued
 * before its timer was disarmed or armed once more: it is refused while the
 * block's deadline is to come.
 *
 * Who would call it unfair: nobody who has timers by the thousand; as
 * timerfd.h, it is here for its precision. Skipped when RLIMIT_SIGPENDING does
 * not allow as many.
 */

#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>

#define KERNEL_TIMER timer_t
/* thread: as the kernel numbers it, when started is posted. */
#define KERNEL_FIELDS  \
	sem_t started; \
	pid_t thread;
#include "perf/kernel.h"

#define POSIX_TIMER_DUE SIGRTMIN
#define POSIX_TIMER_STOP (SIGRTMIN + 1)

enum {
	/* Signals of others. */
	POSIX_TIMER_SPARE = 64
};

static inline const char *
subject_version(void)
{
	return "timer_create of the kernel";
}

static inline sigset_t
posix_timer_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, POSIX_TIMER_DUE);
	sigaddset(&signals, POSIX_TIMER_STOP);
	return signals;
}

/* False: the signal is of an earlier use. */
static inline bool
posix_timer_end(struct subject *subject, struct kernel_timeout *timeout)
{
	uint64_t now_ns = perf_now_ns();
	bool due;

	pthread_mutex_lock(&subject->mutex);
	due = timeout->due_ns <= now_ns;
	if (due)
		timeout->due_ns = KERNEL_ENDED;
	pthread_mutex_unlock(&subject->mutex);
	return due;
}

static inline void *
posix_timer_worker(void *arg)
{
	struct subject *subject = arg;
	sigset_t waited = posix_timer_signals();
	struct kernel_timeout *timeout;
	siginfo_t info;

	subject->thread = (pid_t)syscall(SYS_gettid);
	sem_post(&subject->started);
	for (;;) {
		if (sigwaitinfo(&waited, &info) < 0)
			continue;
		if (info.si_signo == POSIX_TIMER_STOP)
			return NULL;
		timeout = info.si_value.sival_ptr;
		if (!posix_timer_end(subject, timeout))
			continue;
		timeout->block.task(timeout->block.arg);
		pthread_mutex_lock(&subject->mutex);
		peer_drop(&subject->blocks, &timeout->block);
		pthread_mutex_unlock(&subject->mutex);
	}
}

/* The thread gets its signals blocked from the start. */
static inline void
kernel_open(struct subject *subject, uint64_t capacity)
{
	sigset_t waited = posix_timer_signals(), before;

	peer_limit(RLIMIT_SIGPENDING, capacity + POSIX_TIMER_SPARE,
	    "RLIMIT_SIGPENDING");
	sem_init(&subject->started, 0, 0);
	pthread_sigmask(SIG_BLOCK, &waited, &before);
	perf_start(&subject->worker, posix_timer_worker, subject);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	while (sem_wait(&subject->started))
		continue;
}

/* With its thread, its signals are gone. */
static inline void
kernel_close(struct subject *subject)
{
	pthread_kill(subject->worker, POSIX_TIMER_STOP);
	pthread_join(subject->worker, NULL);
	sem_destroy(&subject->started);
}

static inline void
kernel_make(struct subject *subject, struct kernel_timeout *timeout)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID,
	    .sigev_signo = POSIX_TIMER_DUE,
	    .sigev_value.sival_ptr = timeout};

	/* glibc has no better name for it. */
	event._sigev_un._tid = subject->thread;
	perf_must(!timer_create(CLOCK_MONOTONIC, &event, &timeout->timer),
	    "timer_create");
}

static inline void
kernel_unmake(const struct kernel_timeout *timeout)
{
	timer_delete(timeout->timer);
}

static inline uint64_t
kernel_due_ns(uint64_t delay_ns)
{
	return perf_now_ns() + delay_ns;
}

static inline void
kernel_set(const struct kernel_timeout *timeout, uint64_t due_ns)
{
	struct itimerspec due = {.it_value = peer_timespec(due_ns)};

	perf_must(!timer_settime(timeout->timer, TIMER_ABSTIME, &due, NULL),
	    "timer_settime");
}
