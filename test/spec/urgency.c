/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker and a pool's threads are as urgent as the process's main thread, and
 * not as the thread that happens to make them. It takes rights to become more
 * urgent than that: without them, this is skipped.
 */
#include "test/spec/support.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

SUITE(urgency);

static bool
set_nice(pid_t thread, int nice)
{
	return setpriority(PRIO_PROCESS, (id_t)thread, nice) == 0;
}

static void *
make_in_background(void *pool)
{
	const struct sched_param priority = {0};
	struct hwt *timer = worker_timer_open(HWT_MS(1));

	/* musl's sched_setscheduler refuses. */
	cr_assert(
	    syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &priority) == 0);
	cr_assert(set_nice(gettid(), 7));
	assert_ok(hwt_pool_create(pool, 1, 0));
	assert_ok(hwt_start(timer));
	return timer;
}

/* A thread takes its name first, and its priority right after that. */
static void
assert_is_as_main(const char *name)
{
	pid_t thread = thread_await(name, 1);

	while (getpriority(PRIO_PROCESS, (id_t)thread) != 2)
		sleep_ns(HWT_MS(1));
	assert_i64(syscall(SYS_sched_getscheduler, thread), SCHED_OTHER);
}

Test(urgency, threads_are_as_urgent_as_the_main_thread)
{
	struct hwt_pool *pool;
	pthread_t thread;
	void *timer;

	if (!set_nice(getpid(), 3) || !set_nice(getpid(), 2))
		cr_skip("no right to be more urgent");
	pthread_create(&thread, NULL, make_in_background, &pool);
	pthread_join(thread, &timer);

	assert_is_as_main("hwt-pool");
	assert_is_as_main("hwt-worker");

	worker_timer_close(timer);
	assert_ok(hwt_pool_destroy(pool));
}
