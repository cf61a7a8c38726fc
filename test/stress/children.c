/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks in the midst of a round, from a thread and from tasks in the worker, in
 * the pool and in the loops. A child finds dead what it inherited, has timers
 * of its own, destroys all and ends. One that hangs is killed and reported. Not
 * for sanitizers: ThreadSanitizer does not follow a fork, and the allocator of
 * AddressSanitizer may be locked by a thread that the child has not.
 */
#define _GNU_SOURCE
#include "storm.h"

#include <signal.h>
#include <sys/wait.h>

enum {
	CHILDREN_MAX = 4,
	PATIENCE_S = 30,
	OWN_TIMEOUTS = 10
};

struct child {
	pid_t pid;
	uint64_t until_ns;
};

static struct child children[CHILDREN_MAX];
static pthread_mutex_t children_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint forks;

#define check_dead(call)                                                      \
	do {                                                                  \
		int dead_error = (call);                                      \
		stress_check(dead_error == -EOWNERDEAD, "in a child: %s: %d", \
		    #call, dead_error);                                       \
	} while (0)

static void
check_dead_timer(struct hwt *timer, hwt_timeout timeout)
{
	check_dead(hwt_stop(timer, NULL));
	check_dead(hwt_touch(timer, NULL, &timeout, storm_task, NULL, 0));
	check_dead(hwt_cancel_wait(timer, timeout));
	stress_check(!hwt_pending_timeouts(timer), "in a child: pending");
}

static void
destroy_inherited(void)
{
	unsigned i;
	int bad = hwt_pool_destroy(round_.pool);

	for (i = 0; i < round_.timers_count; i++)
		bad |= hwt_destroy(round_.timers[i]);
	for (i = 0; i < LOOPS; i++)
		bad |= hwt_mailbox_destroy(round_.loops[i].mailbox);
	stress_check(!bad, "in a child: a destroy");
}

static void
child_task(hwt_timeout timeout, void *started)
{
	(void)timeout;
	atomic_fetch_add((atomic_uint *)started, 1);
}

/* An executor of its own, and one that it inherited: nobody is behind that, so
 * that it refuses and the worker runs the task. */
static void
live_own(bool destroyed)
{
	struct hwt *timer = timer_create_ns(HWT_MS(1), 64, 0);
	const struct hwt_executor *executors[2] = {
	    destroyed ? NULL : round_.executors[POOL]};
	atomic_uint started = 0;
	struct hwt_pool *pool;
	unsigned i;

	stress_must(!hwt_pool_create(&pool, 1, 0), "in a child: pool");
	executors[1] = hwt_pool_executor(pool);
	for (i = 0; i < OWN_TIMEOUTS; i++)
		stress_must(!hwt_new_timeout_on(timer, executors[i % 2], NULL,
				child_task, &started, 0),
		    "in a child: hwt_new_timeout_on");
	while (atomic_load(&started) < OWN_TIMEOUTS)
		stress_sleep_ns(HWT_US(200));
	stress_check(!hwt_stop(timer, NULL) && !hwt_pool_destroy(pool) &&
		!hwt_destroy(timer),
	    "in a child: the end of its own");
}

static _Noreturn void
child_main(hwt_timeout timeout, unsigned number)
{
	bool first = number % 2;
	unsigned i;

	atomic_store(&stress.failures, 0);
	for (i = 0; i < round_.timers_count; i++)
		check_dead_timer(round_.timers[i], timeout);
	stress_check(!hwt_pool_executor(round_.pool) &&
		!hwt_mailbox_executor(round_.loops[0].mailbox),
	    "in a child: an inherited executor");
	check_dead(hwt_mailbox_run(round_.loops[0].mailbox, 0, NULL));
	if (first)
		destroy_inherited();
	live_own(first);
	if (!first)
		destroy_inherited();
	_exit(atomic_load(&stress.failures) ? 1 : 0);
}

/* True: it has ended, or there is none. */
static bool
child_reap(struct child *child)
{
	int status = 0;
	pid_t reaped;

	if (!child->pid)
		return true;
	reaped = waitpid(child->pid, &status, WNOHANG);
	if (!reaped && stress_now_ns() > child->until_ns) {
		kill(child->pid, SIGKILL);
		stress_must(false, "a child hangs");
	}
	if (!reaped)
		return false;
	stress_check(reaped == child->pid && status == 0,
	    "a child ended with wait status %#x", (unsigned)status);
	child->pid = 0;
	return true;
}

static void
fork_once(hwt_timeout timeout)
{
	unsigned i = 0;

	if (pthread_mutex_trylock(&children_lock) != 0)
		return;
	while (i < CHILDREN_MAX && !child_reap(&children[i]))
		i++;
	if (i < CHILDREN_MAX) {
		unsigned number = atomic_fetch_add(&forks, 1);

		children[i].until_ns = stress_now_ns() + HWT_SEC(PATIENCE_S);
		children[i].pid = fork();
		stress_must(children[i].pid >= 0, "fork: %s", strerror(errno));
		if (!children[i].pid)
			child_main(timeout, number);
	}
	pthread_mutex_unlock(&children_lock);
}

void
fork_in_task(hwt_timeout timeout)
{
	if ((timeout.id >> 32) % 256 == 0)
		fork_once(timeout);
}

void *
disturber_forks(void *salt)
{
	uint64_t random = random_seed((uintptr_t)salt);

	while (!atomic_load_explicit(&round_.quit, memory_order_relaxed)) {
		fork_once((hwt_timeout){1});
		stress_sleep_ns(random_below(&random, HWT_MS(4)));
	}
	return NULL;
}

void
children_reap(void)
{
	unsigned i;

	for (i = 0; i < CHILDREN_MAX; i++)
		while (!child_reap(&children[i]))
			stress_sleep_ns(HWT_US(300));
}
