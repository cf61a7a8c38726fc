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
#include <unistd.h>

SUITE(urgency);

static struct hwt_pool *pool;
static struct hwt *timer;

/* musl's sched_getscheduler refuses. */
static long
policy_of(pid_t thread)
{
	return syscall(SYS_sched_getscheduler, thread);
}

static int
nice_of(pid_t thread)
{
	return getpriority(PRIO_PROCESS, (id_t)thread);
}

static void *
make_in_background(void *with_attr)
{
	const struct sched_param priority = {0};
	struct hwt_options options = {.thread_attr = with_attr};

	cr_assert(
	    syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &priority) == 0);
	cr_assert(setpriority(PRIO_PROCESS, (id_t)gettid(), 7) == 0);
	assert_ok(hwt_create(&timer, &options));
	assert_ok(hwt_start(timer));
	assert_ok(hwt_pool_create(&pool, 1, 0));
	return NULL;
}

static void
make(pthread_attr_t *with_attr)
{
	pthread_t thread;

	if (setpriority(PRIO_PROCESS, (id_t)getpid(), 3) != 0 ||
	    setpriority(PRIO_PROCESS, (id_t)getpid(), 2) != 0)
		cr_skip("no right to be more urgent");
	cr_assert(
	    pthread_create(&thread, NULL, make_in_background, with_attr) == 0);
	pthread_join(thread, NULL);
}

static void
end(void)
{
	assert_ok(hwt_stop(timer, NULL));
	assert_ok(hwt_destroy(timer));
	assert_ok(hwt_pool_destroy(pool));
}

/* A thread takes its name first, and its priority right after that. */
static void
await_nice(pid_t thread, int nice)
{
	while (nice_of(thread) != nice)
		sleep_ns(HWT_MS(1));
}

Test(urgency, threads_are_as_urgent_as_the_main_thread)
{
	make(NULL);

	await_nice(thread_await("hwt-worker", 1), 2);
	await_nice(thread_await("hwt-pool", 1), 2);
	assert_i64(policy_of(thread_await("hwt-worker", 1)), SCHED_OTHER);
	assert_i64(policy_of(thread_await("hwt-pool", 1)), SCHED_OTHER);
	end();
}

Test(urgency, with_thread_attr_the_worker_is_as_that_says)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	make(&attr);

	assert_i64(policy_of(thread_await("hwt-worker", 1)), SCHED_BATCH);
	assert_i64(nice_of(thread_await("hwt-worker", 1)), 7);
	end();
	pthread_attr_destroy(&attr);
}
