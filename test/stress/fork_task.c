/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks from tasks: in the worker, in a pool and in a mailbox, while others
 * schedule and cancel.
 *
 * The child is a copy of the task, so all that it does (see fork.h) happens
 * inside of it, the destruction of the very timer that runs it included. It
 * also looks at its own handle. The parent's copy goes on and forks again in
 * one of the next ticks.
 *
 * Not for sanitizers: ThreadSanitizer does not support threads in a child of
 * many threads, and AddressSanitizer's allocator may be locked at the fork by a
 * thread that the child does not have.
 */
#include "fork.h"

enum {
	FORKS = 2000,
	STREAMS = 3,
	/* Children at a time. */
	CHILDREN_MAX = 4
};

static struct family family;
static const struct hwt_executor *executors[STREAMS];
static atomic_int forks_left, children, streams;
static int pids[2];

static void
child_from_task(hwt_timeout timeout, unsigned number)
{
	check_dead(hwt_cancel(family.timer, timeout));
	check_dead(hwt_cancel_wait(family.timer, timeout));
	check_dead(hwt_reschedule(family.timer, timeout, 0));
	child_main(&family, number);
}

static void
fork_once(hwt_timeout timeout, int number)
{
	pid_t child = fork();

	stress_must(child >= 0, "fork: %s", strerror(errno));
	if (!child)
		child_from_task(timeout, (unsigned)number);
	atomic_fetch_add(&children, 1);
	stress_must(write(pids[1], &child, sizeof(child)) == sizeof(child),
	    "write: %s", strerror(errno));
}

static void
fork_task(hwt_timeout timeout, void *arg)
{
	const struct hwt_executor *const *executor = arg;
	int left, error;

	if (atomic_load(&children) < CHILDREN_MAX) {
		left = atomic_fetch_sub(&forks_left, 1);
		if (left <= 0) {
			atomic_fetch_sub(&streams, 1);
			return;
		}
		fork_once(timeout, left);
	}
	error = hwt_new_timeout_on(
	    family.timer, *executor, NULL, fork_task, arg, 0);
	stress_must(!error, "hwt_new_timeout_on: %d", error);
}

int
main(int argc, char **argv)
{
	struct noise noise;
	uint64_t forks, i;
	pid_t child;

	stress_begin("fork_task", argc, argv);
	forks = stress_scaled(FORKS);
	atomic_store(&forks_left, (int)forks);
	stress_must(!pipe(pids), "pipe: %s", strerror(errno));
	family_make(&family);
	noise_start(&noise, &family, 1);
	executors[1] = family.pool_executor;
	executors[2] = family.mailbox_executor;
	atomic_store(&streams, STREAMS);
	for (i = 0; i < STREAMS; i++)
		stress_must(!hwt_new_timeout_on(family.timer, executors[i],
				NULL, fork_task, (void *)&executors[i], 0),
		    "hwt_new_timeout_on");
	for (i = 0; i < forks; i++) {
		stress_phase("fork from a task", i);
		stress_must(
		    read(pids[0], &child, sizeof(child)) == sizeof(child),
		    "read: %s", strerror(errno));
		child_reap(child);
		atomic_fetch_sub(&children, 1);
	}
	stress_phase("the end", 0);
	while (atomic_load(&streams))
		stress_sleep_ns(HWT_MS(1));
	noise_end(&noise, 1);
	family_end(&family);
	return stress_end("%" PRIu64 " children of tasks, %" PRIu64
			  " timeouts beside them",
	    forks, noise.accepted);
}
