/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two fork programs share: a family of objects that a child
 * inherits, what the child checks of them, and the reaping of children.
 *
 * A child hangs where a lock or a lock-free structure was copied halfway, so
 * the parent gives each one CHILD_PATIENCE_S, then kills it, reports it and
 * ends, and the kernel kills what children are left. A child has no watchdog of
 * its own: the fork itself may be what hangs, and the signal mask is that of
 * the thread that forked.
 *
 * Some children fork in the midst of their own life, with a timer, a pool and a
 * mailbox at work; the grandchild finds dead what its parent made and what it
 * inherited, and lives as a child does.
 */
#ifndef STRESS_FORK_H
#define STRESS_FORK_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "stress.h"

enum {
	CHILD_PATIENCE_S = 20,
	CHILD_EXECUTORS = 5,
	CHILD_TIMEOUTS = 2 * CHILD_EXECUTORS,
	GRANDCHILD_ONE_IN = 8
};

/* One object of each kind, all of them in use. */
struct family {
	struct hwt *timer, *manual, *stopped, *shared;
	struct hwt_pool *pool;
	struct loop loop;
	const struct hwt_executor *pool_executor, *mailbox_executor;
	hwt_timeout pending, manual_pending;
	struct hwt_unprocessed list;
	/* Some other thread is starting, using or stopping it; NULL: none. */
	struct hwt *_Atomic stopping;
};

static inline hwt_timeout
family_schedule(struct hwt *timer)
{
	hwt_timeout timeout;
	int error =
	    hwt_new_timeout(timer, &timeout, never_task, NULL, HWT_SEC(3600));

	stress_must(!error, "hwt_new_timeout: %d", error);
	return timeout;
}

static inline void
family_make(struct family *family)
{
	memset(family, 0, sizeof(*family));
	family->timer = timer_create_ns(HWT_MS(1), 64, 0);
	family->manual = timer_create_ns(HWT_MS(1), 64, HWT_MANUAL);
	family->stopped = timer_create_ns(HWT_MS(1), 64, 0);
	family->pending = family_schedule(family->timer);
	family->manual_pending = family_schedule(family->manual);
	family_schedule(family->stopped);
	stress_must(!hwt_stop(family->stopped, &family->list), "hwt_stop");
	stress_must(!hwt_shared(&family->shared), "hwt_shared");
	stress_must(!hwt_pool_create(&family->pool, 2, 0), "hwt_pool_create");
	family->pool_executor = hwt_pool_executor(family->pool);
	loop_start(&family->loop, 0);
	family->mailbox_executor = hwt_mailbox_executor(family->loop.mailbox);
}

/* The timer was not stopped yet when the children were made; its pending
 * timeout must be there still. */
static inline void
family_end(struct family *family)
{
	struct hwt_timeout_info info;

	stress_check(!hwt_cancel(family->timer, family->pending),
	    "the parent's pending timeout is gone");
	stress_check(!hwt_cancel(family->manual, family->manual_pending),
	    "the parent's pending manual timeout is gone");
	stress_check(!hwt_stop(family->timer, NULL), "hwt_stop");
	stress_check(!hwt_stop(family->manual, NULL), "hwt_stop");
	stress_check(!hwt_shared_shutdown(NULL), "hwt_shared_shutdown");
	stress_check(!hwt_pool_destroy(family->pool), "hwt_pool_destroy");
	loop_stop(&family->loop);
	stress_check(hwt_unprocessed_next(&family->list, &info) &&
		!hwt_unprocessed_next(&family->list, &info),
	    "the parent's list has changed");
	stress_check(!hwt_destroy(family->timer), "hwt_destroy");
	stress_check(!hwt_destroy(family->manual), "hwt_destroy");
	stress_check(!hwt_destroy(family->stopped), "hwt_destroy");
}

#define check_dead(call)                                                      \
	do {                                                                  \
		int dead_error = (call);                                      \
		stress_check(dead_error == -EOWNERDEAD, "in a child: %s: %d", \
		    #call, dead_error);                                       \
	} while (0)

static inline void
child_check_dead_timer(struct hwt *timer, hwt_timeout timeout)
{
	struct hwt_spec spec = {.task = never_task};
	struct hwt_executor refuser = {NULL, NULL};
	struct hwt_unprocessed list;
	struct hwt_stats stats;
	uint64_t number;
	int64_t remaining_ns;

	check_dead(hwt_start(timer));
	check_dead(hwt_stop(timer, &list));
	check_dead(hwt_stop_within(timer, 0, &list));
	check_dead(hwt_new_timeout(timer, &timeout, never_task, NULL, 0));
	check_dead(hwt_new_timeout(timer, NULL, NULL, NULL, 0));
	check_dead(
	    hwt_new_timeout_on(timer, &refuser, NULL, never_task, NULL, 0));
	check_dead(hwt_new_timeouts(timer, 1, &spec, NULL));
	check_dead(hwt_cancel(timer, timeout));
	check_dead(hwt_cancel_wait(timer, timeout));
	check_dead(hwt_reschedule(timer, timeout, 0));
	check_dead(hwt_remaining(timer, timeout, &remaining_ns));
	check_dead(hwt_read_stats(timer, &stats));
	check_dead(hwt_run(timer, timeout));
	check_dead(hwt_advance(timer, NULL));
	check_dead(hwt_next_wakeup(timer, &number));
	stress_check(!hwt_pending_timeouts(timer), "in a child: pending");
}

static inline void
child_check_dead_family(struct family *family)
{
	struct hwt *stopping = atomic_load(&family->stopping);
	struct hwt_timeout_info info;

	if (stopping)
		child_check_dead_timer(stopping, family->pending);

	child_check_dead_timer(family->timer, family->pending);
	child_check_dead_timer(family->manual, family->manual_pending);
	child_check_dead_timer(family->stopped, family->pending);
	child_check_dead_timer(family->shared, family->pending);
	stress_check(!hwt_unprocessed_next(&family->list, &info),
	    "in a child: the list goes on");
	stress_check(
	    !hwt_pool_executor(family->pool), "in a child: hwt_pool_executor");
	stress_check(!hwt_mailbox_executor(family->loop.mailbox),
	    "in a child: hwt_mailbox_executor");
	check_dead(hwt_mailbox_fd(family->loop.mailbox));
	check_dead(hwt_mailbox_run(family->loop.mailbox, 0, NULL));
}

static inline void
child_destroy_family(struct family *family)
{
	stress_check(!hwt_destroy(family->timer), "in a child: hwt_destroy");
	stress_check(!hwt_destroy(family->manual), "in a child: hwt_destroy");
	stress_check(!hwt_destroy(family->stopped), "in a child: hwt_destroy");
	stress_check(
	    !hwt_pool_destroy(family->pool), "in a child: hwt_pool_destroy");
	stress_check(!hwt_mailbox_destroy(family->loop.mailbox),
	    "in a child: hwt_mailbox_destroy");
	stress_check(!hwt_destroy(atomic_load(&family->stopping)),
	    "in a child: hwt_destroy of one that was being stopped");
}

static inline void
child_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	atomic_fetch_add((atomic_uint *)arg, 1);
}

/* Returns when the child has ended, and counts it if it did not end well. */
static inline void
child_reap(pid_t child)
{
	uint64_t until_ns = stress_now_ns() + HWT_SEC(CHILD_PATIENCE_S);
	int status = 0;
	pid_t reaped;

	while (!(reaped = waitpid(child, &status, WNOHANG))) {
		if (stress_now_ns() > until_ns) {
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			stress_must(false, "a child hangs");
		}
		stress_sleep_ns(HWT_US(300));
	}
	stress_must(reaped == child, "waitpid: %s", strerror(errno));
	stress_check(status == 0, "a child ended with wait status %#x",
	    (unsigned)status);
}

/* What a child makes. */
struct own {
	struct hwt *timer, *shared;
	struct hwt_pool *pool;
	struct loop loop;
	atomic_uint started;
};

static inline void
own_make(struct own *own, struct hwt *inherited_shared)
{
	memset(own, 0, sizeof(*own));
	own->timer = timer_create_ns(HWT_MS(1), 64, 0);
	stress_must(!hwt_pool_create(&own->pool, 1, 0), "in a child: pool");
	loop_start(&own->loop, 0);
	stress_must(!hwt_shared(&own->shared), "in a child: hwt_shared");
	stress_check(own->shared != inherited_shared,
	    "in a child: hwt_shared gave the parent's");
}

/* Timeouts on all that it has. The executors that it inherited have nobody
 * behind them: while they exist they must refuse, so that the worker runs the
 * task. */
static inline void
own_schedule(struct own *own, struct family *inherited, bool destroyed)
{
	const struct hwt_executor *executors[CHILD_EXECUTORS] = {NULL};
	unsigned i;

	executors[1] = hwt_pool_executor(own->pool);
	executors[2] = hwt_mailbox_executor(own->loop.mailbox);
	if (!destroyed) {
		executors[3] = inherited->pool_executor;
		executors[4] = inherited->mailbox_executor;
	}
	for (i = 0; i < CHILD_TIMEOUTS; i++)
		stress_must(!hwt_new_timeout_on(own->timer,
				executors[i % CHILD_EXECUTORS], NULL,
				child_task, &own->started, HWT_US(100) * i),
		    "in a child: hwt_new_timeout_on");
	stress_must(
	    !hwt_new_timeout(own->shared, NULL, child_task, &own->started, 0),
	    "in a child: the shared timer");
}

static inline void
own_end(struct own *own)
{
	while (atomic_load(&own->started) < CHILD_TIMEOUTS + 1)
		stress_sleep_ns(HWT_US(200));
	stress_check(!hwt_stop(own->timer, NULL), "in a child: hwt_stop");
	stress_check(!hwt_pool_destroy(own->pool), "in a child: its pool");
	loop_stop(&own->loop);
	stress_check(!hwt_destroy(own->timer), "in a child: its timer");
}

/* In a grandchild: what its parent made is dead, also when it has something of
 * its own, and may be freed; then it lives, with the executors of its
 * grandparent, if these are still there. */
static inline _Noreturn void
grandchild_main(struct own *parents, struct family *inherited, bool destroyed)
{
	struct own own;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	atomic_store(&stress.failures, 0);
	child_check_dead_timer(parents->timer, (hwt_timeout){1});
	child_check_dead_timer(parents->shared, (hwt_timeout){1});
	own_make(&own, parents->shared);
	child_check_dead_timer(parents->timer, (hwt_timeout){1});
	stress_check(!hwt_pool_executor(parents->pool) &&
		!hwt_mailbox_executor(parents->loop.mailbox),
	    "in a grandchild: an executor of its parent");
	stress_check(!hwt_destroy(parents->timer) &&
		!hwt_pool_destroy(parents->pool) &&
		!hwt_mailbox_destroy(parents->loop.mailbox),
	    "in a grandchild: destroy");
	if (!destroyed)
		child_check_dead_family(inherited);
	own_schedule(&own, inherited, destroyed);
	own_end(&own);
	_exit(atomic_load(&stress.failures) ? 1 : 0);
}

/* A timer, the shared timer, a pool and a mailbox of the child's own, and
 * timeouts that run on them; a child of its own while they do. */
static inline void
child_live(struct family *inherited, bool destroyed, bool with_child)
{
	struct own own;
	pid_t child;

	own_make(&own, inherited->shared);
	own_schedule(&own, inherited, destroyed);
	if (with_child) {
		stress_spin(stress_now_ns() % 100000);
		child = fork();
		stress_must(child >= 0, "in a child: fork");
		if (!child)
			grandchild_main(&own, inherited, destroyed);
		child_reap(child);
	}
	own_end(&own);
}

/* All that a child does. What it inherited is destroyed before or after its
 * own life. */
static inline _Noreturn void
child_main(struct family *family, unsigned number)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	atomic_store(&stress.failures, 0);
	child_check_dead_family(family);
	if (number % 2)
		child_destroy_family(family);
	child_live(family, number % 2, number / 2 % GRANDCHILD_ONE_IN == 0);
	if (number % 2 == 0)
		child_destroy_family(family);
	_exit(atomic_load(&stress.failures) ? 1 : 0);
}

/* Schedules, cancels and starts all the time, so that a fork finds the library
 * at any point. */
struct noise {
	struct family *family;
	uint64_t random;
	uint64_t accepted, cancelled;
	pthread_t thread;
};

static atomic_bool noise_quit;
static atomic_uint_fast64_t noise_started;

static inline void
noise_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	atomic_fetch_add(&noise_started, 1);
}

static inline void
noise_make(struct noise *noise)
{
	struct family *family = noise->family;
	const struct hwt_executor *executors[] = {
	    NULL, family->pool_executor, family->mailbox_executor};
	struct hwt *timer =
	    random_below(&noise->random, 4) ? family->timer : family->shared;
	hwt_timeout timeout;
	int error = hwt_new_timeout_on(timer,
	    executors[random_below(&noise->random, 3)], &timeout, noise_task,
	    NULL, random_below(&noise->random, HWT_MS(4)));

	stress_must(!error, "hwt_new_timeout_on: %d", error);
	noise->accepted++;
	if (random_below(&noise->random, 8))
		noise->cancelled += !hwt_cancel(timer, timeout);
}

static inline void *
noise_thread(void *arg)
{
	struct noise *noise = arg;

	while (!atomic_load(&noise_quit)) {
		noise_make(noise);
		if (!random_below(&noise->random, 256))
			stress_sleep_ns(
			    random_below(&noise->random, HWT_US(300)));
	}
	return NULL;
}

static inline void
noise_start(struct noise *noise, struct family *family, uint64_t salt)
{
	noise->family = family;
	noise->random = random_seed(salt);
	noise->accepted = noise->cancelled = 0;
	noise->thread = stress_thread(noise_thread, noise);
}

/* Ends the threads and waits until what they accepted has ended too. */
static inline void
noise_end(struct noise *noises, unsigned count)
{
	uint64_t accepted = 0, cancelled = 0;
	unsigned i;

	atomic_store(&noise_quit, true);
	for (i = 0; i < count; i++) {
		stress_join(noises[i].thread);
		accepted += noises[i].accepted;
		cancelled += noises[i].cancelled;
	}
	while (noise_started + cancelled < accepted)
		stress_sleep_ns(HWT_MS(1));
	stress_check(noise_started + cancelled == accepted,
	    "accepted %" PRIu64 ", started %" PRIu64 ", cancelled %" PRIu64,
	    accepted, (uint64_t)noise_started, cancelled);
}

#endif
