/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_pool: an executor with threads of its own. Timers are manual, so that the
 * test decides when the pool gets something, and tasks stop at gates.
 */
#include "test/spec/support.h"

SUITE(pool);

static struct hwt_pool *pool;

static void
pool_open(unsigned threads, size_t queue_limit)
{
	manual_open(NULL);
	assert_ok(hwt_pool_create(&pool, threads, queue_limit));
}

static void
pool_close(void)
{
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_ok(hwt_pool_destroy(pool));
	assert_ok(hwt_destroy(manual.timer));
}

#define PoolTest(name, threads, queue_limit) \
	TestBetween(pool_open(threads, queue_limit), pool_close(), pool, name)

static void
pool_schedule(struct probe *probe)
{
	assert_ok(hwt_new_timeout_on(manual.timer, hwt_pool_executor(pool),
	    &probe->handle, probe_task, probe, 0));
}

/* Keeps the only thread of a pool in a task until running.gate is opened. */
static void
occupy(void)
{
	running_init();
	pool_schedule(&running.probe);
	manual_step(FIXTURE_TICK);
	gate_await(&running.gate);
	manual.runs = 0;
}

PoolTest(pool_runs_tasks_side_by_side_on_threads_of_its_name, 3, 0)
{
	static struct probe probes[3];

	running_init();
	for (unsigned i = 0; i < 3; i++) {
		probes[i] = running.probe;
		pool_schedule(&probes[i]);
	}
	assert_u64(manual_tick(1), 0);

	for (unsigned i = 0; i < 3; i++)
		gate_await(&running.gate);
	thread_await("hwt-pool", 3);
	for (unsigned i = 0; i < 3; i++)
		gate_open(&running.gate);
	for (unsigned i = 0; i < 3; i++)
		wait_for(&probes[i].runs, 1);
	cr_assert(!pthread_equal(probes[0].thread, pthread_self()));
}

PoolTest(full_queue_refuses_and_the_worker_runs_the_task, 1, 3)
{
	static struct probe probes[5];
	unsigned in_worker = 0;

	occupy();
	for (unsigned i = 0; i < 5; i++)
		pool_schedule(&probes[i]);

	assert_u64(manual_step(FIXTURE_TICK), 2);

	assert_u64(manual_stats().executor_refused, 2);
	gate_open(&running.gate);
	for (unsigned i = 0; i < 5; i++) {
		wait_for(&probes[i].runs, 1);
		in_worker += pthread_equal(probes[i].thread, pthread_self());
	}
	assert_u64(in_worker, 2);
}

static _Atomic uint64_t destroyed;

static void
destroy_or_open(unsigned index, void *arg)
{
	if (index == 0) {
		assert_ok(hwt_pool_destroy(pool));
		destroyed = 1;
		return;
	}
	sleep_ns(HWT_MS(50));
	*(uint64_t *)arg = destroyed;
	gate_open(&running.gate);
}

Test(pool, destroy_runs_what_the_pool_holds)
{
	struct probe probes[10] = {{0}};
	uint64_t too_early = 1;

	pool_open(1, 0);
	occupy();
	for (unsigned i = 0; i < 10; i++)
		pool_schedule(&probes[i]);
	manual_step(FIXTURE_TICK);
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_rc(hwt_destroy(manual.timer), -EBUSY);

	in_parallel(2, destroy_or_open, &too_early);

	assert_u64(too_early, 0);
	for (unsigned i = 0; i < 10; i++)
		assert_u64(probes[i].runs, 1);
	thread_await("hwt-pool", 0);
	assert_ok(hwt_destroy(manual.timer));
}

/* Posts: functions that run on a thread of the pool. */

struct errand {
	struct hwt_post post;
	int rc; /* of hwt_pool_destroy */
	uint64_t order;
	_Atomic uint64_t done;
};

static uint64_t errands_done;

static void
run_errand(struct hwt_post *post)
{
	struct errand *errand = (struct errand *)post;

	errand->rc = hwt_pool_destroy(pool);
	errand->order = ++errands_done;
	errand->done = 1;
}

PoolTest(posts_and_tasks_share_the_queue_and_begin_in_order, 1, 3)
{
	static struct errand errands[3];
	static struct probe probe;

	occupy();
	assert_ok(hwt_pool_post(pool, &errands[0].post, run_errand));
	pool_schedule(&probe);
	manual_step(FIXTURE_TICK);
	assert_ok(hwt_pool_post(pool, &errands[1].post, run_errand));
	assert_rc(hwt_pool_post(pool, &errands[2].post, run_errand), -EAGAIN);
	assert_rc(hwt_pool_post(pool, &errands[2].post, NULL), -EINVAL);
	assert_rc(hwt_pool_post(pool, NULL, run_errand), -EINVAL);
	gate_open(&running.gate);
	wait_for(&errands[1].done, 1);

	assert_u64(errands[0].order, 1);
	assert_u64(errands[1].order, 2);
	assert_u64(probe.runs, 1);
	assert_rc(errands[0].rc, -EDEADLK);
}
