/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_pool: an executor with threads of its own. Timers are manual, so that
 * the test decides when the pool gets something, and tasks stop at gates, so
 * that it decides when a thread is busy.
 */
#include "test/spec/support_promises.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

SUITE(pool);

struct pooled {
	struct hwt_pool *pool;
};

static struct pooled pooled;

static void
pooled_open(unsigned threads, size_t queue_limit)
{
	manual_open(NULL);
	assert_ok(hwt_pool_create(&pooled.pool, threads, queue_limit));
}

static void
pooled_close(void)
{
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_ok(hwt_pool_destroy(pooled.pool));
	assert_ok(hwt_destroy(manual.timer));
}

/* A test with a pool of so many threads and places, and a timer for it. */
#define PoolTest(suite, name, threads, queue_limit) \
	TestBetween(                                \
	    pooled_open(threads, queue_limit), pooled_close(), suite, name)

/* Schedules probe for the next tick; it reports to no fixture, since pool
 * threads run side by side. */
static void
pooled_schedule(struct probe *probe)
{
	assert_ok(
	    hwt_new_timeout_on(manual.timer, hwt_pool_executor(pooled.pool),
		&probe->handle, probe_task, probe, 0));
}

static uint64_t
pooled_step(void)
{
	return manual_step(FIXTURE_TICK);
}

PoolTest(pool, its_tasks_run_on_its_own_threads, 1, 0)
{
	static struct probe probe = {0};

	pooled_schedule(&probe);

	assert_u64(pooled_step(), 0);
	wait_for(&probe.runs, 1);

	cr_assert(!pthread_equal(probe.thread, pthread_self()));
	assert_u64(manual_stats().executor_refused, 0);
}

Test(pool, it_has_that_many_threads_named_hwt_pool)
{
	struct hwt_pool *pool;

	assert_ok(hwt_pool_create(&pool, 3, 0));

	thread_await_count("hwt-pool", 3);
	assert_ok(hwt_pool_destroy(pool));
	thread_await_count("hwt-pool", 0);
}

#define SIDE_BY_SIDE 4

PoolTest(pool, as_many_tasks_as_threads_run_side_by_side, SIDE_BY_SIDE, 0)
{
	static struct gate gate;
	static struct probe probes[SIDE_BY_SIDE];

	gate_init(&gate);
	for (unsigned index = 0; index < SIDE_BY_SIDE; index++) {
		probes[index] =
		    (struct probe){.then = probe_then_gate, .data = &gate};
		pooled_schedule(&probes[index]);
	}
	pooled_step();

	/* All have entered before one may leave. */
	for (unsigned index = 0; index < SIDE_BY_SIDE; index++)
		gate_await(&gate);
	for (unsigned index = 0; index < SIDE_BY_SIDE; index++)
		gate_open(&gate);

	for (unsigned index = 0; index < SIDE_BY_SIDE; index++)
		wait_for(&probes[index].runs, 1);
}

/* Keeps the only thread of a pool busy until running.gate is opened. */
static void
occupy(void)
{
	running_init();
	pooled_schedule(&running.probe);
	pooled_step();
	gate_await(&running.gate);
	manual.runs = 0;
}

PoolTest(pool, a_full_queue_refuses_and_the_worker_runs_the_task, 1, 3)
{
	static struct probe probes[5] = {0};
	unsigned in_worker = 0;

	occupy();
	for (unsigned index = 0; index < 5; index++)
		pooled_schedule(&probes[index]);

	/* Three wait, two are refused: nothing is lost. */
	assert_u64(pooled_step(), 2);
	assert_u64(manual_stats().executor_refused, 2);
	gate_open(&running.gate);

	for (unsigned index = 0; index < 5; index++) {
		wait_for(&probes[index].runs, 1);
		if (pthread_equal(probes[index].thread, pthread_self()))
			in_worker++;
	}
	assert_u64(in_worker, 2);
	assert_u64(log_recorder_count(&manual.log), 1);
}

#define CROWD 20000

Test(pool, without_a_limit_nothing_is_refused)
{
	struct probe *probes = calloc(CROWD, sizeof(*probes));

	pooled_open(1, 0);
	occupy();
	for (unsigned index = 0; index < CROWD; index++)
		pooled_schedule(&probes[index]);

	assert_u64(pooled_step(), 0);
	assert_u64(hwt_pending_timeouts(manual.timer), CROWD);
	gate_open(&running.gate);

	for (unsigned index = 0; index < CROWD; index++)
		wait_for(&probes[index].runs, 1);
	assert_u64(manual_stats().executor_refused, 0);
	pooled_close();
	free(probes);
}

PoolTest(pool, tasks_of_an_earlier_tick_are_taken_before_those_of_a_later, 1, 0)
{
	static struct probe probes[100];

	occupy();
	for (unsigned index = 0; index < 100; index++) {
		probes[index] = (struct probe){0};
		pooled_schedule(&probes[index]);
		pooled_step();
	}
	gate_open(&running.gate);
	wait_for(&manual.runs, 100);

	for (unsigned index = 0; index < 100; index++)
		assert_u64(probes[index].order, index + 1);
}

Test(pool, what_waits_in_it_can_be_cancelled)
{
	struct probe probes[4] = {0};

	pooled_open(1, 0);
	occupy();
	for (unsigned index = 0; index < 4; index++)
		pooled_schedule(&probes[index]);
	pooled_step();

	assert_ok(hwt_cancel(manual.timer, probes[0].handle));
	assert_ok(hwt_cancel_wait(manual.timer, probes[2].handle));
	assert_u64(hwt_pending_timeouts(manual.timer), 2);

	gate_open(&running.gate);
	wait_for(&probes[1].runs, 1);
	wait_for(&probes[3].runs, 1);
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_ok(hwt_pool_destroy(pooled.pool));
	assert_u64(probes[0].runs, 0);
	assert_u64(probes[2].runs, 0);
	assert_ok(hwt_destroy(manual.timer));
}

struct destroyer {
	struct hwt_pool *pool;
	_Atomic uint64_t destroyed;
	_Atomic uint64_t too_early;
};

static void
destroy_while_busy(unsigned index, void *arg)
{
	struct destroyer *destroyer = arg;

	if (index == 0) {
		if (hwt_pool_destroy(destroyer->pool) != 0)
			abort();
		destroyer->destroyed = 1;
		return;
	}
	/* Time enough for a destroy that does not wait to return. */
	sleep_ns(HWT_MS(50));
	destroyer->too_early = destroyer->destroyed;
	gate_open(&running.gate);
}

Test(pool, destroy_runs_what_the_pool_holds)
{
	struct probe probes[10] = {0};
	struct destroyer destroyer = {0};

	pooled_open(1, 0);
	occupy();
	for (unsigned index = 0; index < 10; index++)
		pooled_schedule(&probes[index]);
	pooled_step();
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_rc(hwt_destroy(manual.timer), -EBUSY);

	destroyer.pool = pooled.pool;
	in_parallel(2, destroy_while_busy, &destroyer);

	assert_u64(destroyer.too_early, 0);
	assert_u64(running.probe.runs, 1);
	for (unsigned index = 0; index < 10; index++)
		assert_u64(probes[index].runs, 1);
	thread_await_count("hwt-pool", 0);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_ok(hwt_destroy(manual.timer));
}

static void
then_destroys_the_pool(struct probe *probe)
{
	assert_rc(probe->rc = hwt_pool_destroy(pooled.pool), -EDEADLK);
}

PoolTest(pool, destroy_from_its_own_task_is_refused, 2, 0)
{
	static struct probe probe = {.then = then_destroys_the_pool};

	pooled_schedule(&probe);
	pooled_step();
	wait_for(&probe.runs, 1);

	assert_rc(probe.rc, -EDEADLK);
}

static void
then_destroys_another_pool(struct probe *probe)
{
	probe->rc = hwt_pool_destroy(probe->data);
}

PoolTest(pool, destroy_from_a_task_of_another_pool_is_not, 1, 0)
{
	static struct probe probe = {.then = then_destroys_another_pool};
	struct hwt_pool *other;

	assert_ok(hwt_pool_create(&other, 1, 0));
	probe.data = other;
	pooled_schedule(&probe);
	pooled_step();
	wait_for(&probe.runs, 1);

	assert_ok(probe.rc);
}

/* Posts: functions that run on a thread of the pool. */

struct errand {
	struct hwt_post post;
	pthread_t thread;
	int rc; /* of hwt_pool_destroy in it */
	uint64_t number; /* how many had run before it */
	_Atomic uint64_t done;
};

static uint64_t errands_done;

static void
errand_run(struct hwt_post *post)
{
	struct errand *errand = (struct errand *)post;

	errand->thread = pthread_self();
	errand->rc = hwt_pool_destroy(pooled.pool);
	errand->number = errands_done++;
	errand->done = 1;
}

static int
errand_post(struct errand *errand)
{
	return hwt_pool_post(pooled.pool, &errand->post, errand_run);
}

PoolTest(pool, a_post_runs_on_its_thread_and_cannot_destroy_it, 1, 0)
{
	static struct errand errand;

	assert_rc(hwt_pool_post(NULL, &errand.post, errand_run), -EINVAL);
	assert_rc(hwt_pool_post(pooled.pool, NULL, errand_run), -EINVAL);
	assert_rc(hwt_pool_post(pooled.pool, &errand.post, NULL), -EINVAL);

	assert_ok(errand_post(&errand));
	wait_for(&errand.done, 1);

	cr_assert(!pthread_equal(errand.thread, pthread_self()));
	assert_rc(errand.rc, -EDEADLK);
}

Test(pool, posts_and_tasks_share_its_places_and_are_begun_in_order)
{
	static struct errand errands[3];
	static struct probe probe;

	pooled_open(1, 3);
	occupy();
	assert_ok(errand_post(&errands[0]));
	pooled_schedule(&probe);
	pooled_step();
	assert_ok(errand_post(&errands[1]));

	assert_rc(
	    hwt_pool_post(pooled.pool, &errands[2].post, errand_run), -EAGAIN);

	gate_open(&running.gate);
	wait_for(&errands[1].done, 1);
	assert_u64(errands[0].number, 0);
	assert_u64(probe.runs, 1);
	assert_u64(errands[1].number, 1);
	pooled_close();
}

Test(pool, destroy_runs_the_posts_that_it_holds)
{
	static struct errand errands[3];
	struct destroyer destroyer = {0};

	pooled_open(1, 0);
	occupy();
	for (unsigned index = 0; index < 3; index++)
		assert_ok(errand_post(&errands[index]));
	assert_ok(hwt_stop(manual.timer, NULL));

	destroyer.pool = pooled.pool;
	in_parallel(2, destroy_while_busy, &destroyer);

	for (unsigned index = 0; index < 3; index++)
		assert_u64(errands[index].done, 1);
	assert_ok(hwt_destroy(manual.timer));
}

/* What is refused. */

Test(pool, no_threads_are_refused)
{
	struct hwt_pool *pool = NULL;

	assert_rc(hwt_pool_create(&pool, 0, 0), -EINVAL);
	assert_rc(hwt_pool_create(NULL, 1, 0), -EINVAL);

	cr_assert(pool == NULL);
	cr_assert(hwt_pool_executor(NULL) == NULL);
	assert_ok(hwt_pool_destroy(NULL));
}

Test(pool, when_not_all_threads_can_be_had_none_is_left_behind)
{
	struct hwt_pool *pool = NULL;

	for (uint64_t nth = 1; nth <= 4; nth++) {
		fault_arm(FAULT_THREAD, nth);
		assert_rc(hwt_pool_create(&pool, 4, 0), -EAGAIN);
		assert_u64(fault_disarm(), nth);
		cr_assert(pool == NULL);
		thread_await_count("hwt-pool", 0);
	}
	fault_arm_thread(ENOMEM);
	assert_rc(hwt_pool_create(&pool, 2, 0), -ENOMEM);
	fault_disarm();
	cr_assert(pool == NULL);

	assert_ok(hwt_pool_create(&pool, 4, 0));
	assert_ok(hwt_pool_destroy(pool));
}

static void *
destroy_pool(void *pool)
{
	(void)!hwt_pool_destroy(pool);
	return NULL;
}

Test(pool, while_it_ends_it_refuses_and_the_worker_runs_the_task)
{
	struct probe probe = {0};
	pthread_t thread;

	pooled_open(1, 0);
	occupy();
	cr_assert(
	    pthread_create(&thread, NULL, destroy_pool, pooled.pool) == 0);
	/* Until the pool has seen that it is to end, it takes them. */
	while (manual_stats().executor_refused == 0) {
		pooled_schedule(&probe);
		pooled_step();
	}

	gate_open(&running.gate);
	cr_assert(pthread_join(thread, NULL) == 0);

	assert_u64(probe.runs, manual_stats().started - 1);
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_ok(hwt_destroy(manual.timer));
}

/* A thread of the pool that is stopped where it has just taken a lock. */
static struct {
	_Atomic uint64_t armed;
	/* Somebody else wants that lock. */
	_Atomic uint64_t waited;
	_Atomic(pthread_mutex_t *) lock;
	pthread_t main;
	struct gate gate;
} stopped;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

int
__wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	int error;

	if (stopped.lock == mutex) {
		stopped.waited = 1;
		gate_open(&stopped.gate);
	}
	error = __real_pthread_mutex_lock(mutex);
	if (stopped.armed && !pthread_equal(pthread_self(), stopped.main)) {
		stopped.armed = 0;
		stopped.lock = mutex;
		gate_pass(&stopped.gate);
		stopped.lock = NULL;
	}
	return error;
}

PoolTest(pool, handing_over_does_not_wait_for_its_threads, 1, 0)
{
	static struct probe first = {0}, second = {0};

	gate_init(&stopped.gate);
	stopped.main = pthread_self();
	occupy();
	pooled_schedule(&first);
	pooled_step();
	stopped.armed = 1;
	gate_open(&running.gate);
	gate_await(&stopped.gate);

	pooled_schedule(&second);
	assert_u64(pooled_step(), 0);

	assert_u64(stopped.waited, 0);
	gate_open(&stopped.gate);
	wait_for(&first.runs, 1);
	wait_for(&second.runs, 1);
}

/* An executor round a pool's, that makes a timer while the pool is destroyed.
 * The timeout is cancelled, as hwt_pool_destroy asks for. */
static struct {
	struct hwt_pool *pool;
	const struct hwt_executor *inner;
	pthread_t thread;
} round_it;

static int
execute_round_it(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct hwt *made;

	if (hwt_cancel(timer, timeout) != 0 ||
	    pthread_create(
		&round_it.thread, NULL, destroy_pool, round_it.pool) != 0)
		abort();
	/* Time enough for it to wait for this call. */
	sleep_ns(HWT_MS(50));
	if (hwt_create(&made, NULL) != 0 || hwt_stop(made, NULL) != 0 ||
	    hwt_destroy(made) != 0)
		abort();
	return round_it.inner->execute(ctx, timer, timeout);
}

Test(pool, destroy_waits_for_a_hand_over_without_holding_up_others)
{
	struct hwt_executor outer = {.execute = execute_round_it};

	assert_ok(hwt_pool_create(&round_it.pool, 1, 0));
	round_it.inner = hwt_pool_executor(round_it.pool);
	outer.ctx = round_it.inner->ctx;
	manual_open(
	    &(struct hwt_options){.tick_ns = FIXTURE_TICK, .executor = &outer});
	assert_ok(hwt_new_timeout(manual.timer, NULL, forbidden_task, NULL, 0));

	assert_u64(manual_step(FIXTURE_TICK), 0);

	cr_assert(pthread_join(round_it.thread, NULL) == 0);
	thread_await_count("hwt-pool", 0);
	manual_close();
}

#define LIMIT 5
#define PUSHERS 3

struct limited {
	struct fixture fixture[PUSHERS];
	struct probe probe[PUSHERS][LIMIT];
};

static void
push_into_limited(unsigned index, void *arg)
{
	struct limited *limited = arg;

	(void)fixture_step(&limited->fixture[index], FIXTURE_TICK);
}

Test(pool, the_limit_is_strict_when_several_workers_hand_over_at_once)
{
	static struct limited limited;
	uint64_t refused = 0;

	pooled_open(1, LIMIT);
	occupy();
	for (unsigned i = 0; i < PUSHERS; i++) {
		fixture_open(&limited.fixture[i], NULL);
		for (unsigned k = 0; k < LIMIT; k++)
			assert_ok(hwt_new_timeout_on(limited.fixture[i].timer,
			    hwt_pool_executor(pooled.pool), NULL, probe_task,
			    &limited.probe[i][k], 0));
	}

	in_parallel(PUSHERS, push_into_limited, &limited);

	for (unsigned i = 0; i < PUSHERS; i++)
		refused += fixture_stats(&limited.fixture[i]).executor_refused;
	assert_u64(refused, (PUSHERS - 1) * LIMIT);
	gate_open(&running.gate);
	for (unsigned i = 0; i < PUSHERS; i++) {
		for (unsigned k = 0; k < LIMIT; k++)
			wait_for(&limited.probe[i][k].runs, 1);
		assert_ok(hwt_stop(limited.fixture[i].timer, NULL));
	}
	pooled_close();
	for (unsigned i = 0; i < PUSHERS; i++)
		assert_ok(hwt_destroy(limited.fixture[i].timer));
}

#define FUTEX_WAIT_BITSET_PRIVATE (9 | 128)

/* Before this thread next wakes others; in waited.c: or sleeps. */
extern _Thread_local void (*before_futex)(void);
_Thread_local void (*before_futex)(void);
/* How often a thread was about to sleep. */
static _Atomic uint64_t sleeps;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long
__wrap_syscall(long number, ...)
{
	void (*overtake)(void) = before_futex;
	long argument[6];
	va_list arguments;

	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		argument[i] = va_arg(arguments, long);
	va_end(arguments);
	if (number == SYS_futex && argument[1] == FUTEX_WAIT_BITSET_PRIVATE)
		sleeps++;
	before_futex = NULL;
	if (overtake != NULL)
		overtake();
	return __real_syscall(number, argument[0], argument[1], argument[2],
	    argument[3], argument[4], argument[5]);
}

static struct fixture overtaker;
static struct probe overtaking;

/* Another timer's worker hands over to the same pool, and its task is run while
 * the one before it keeps a thread. */
static void
overtake(void)
{
	assert_ok(hwt_new_timeout_on(overtaker.timer,
	    hwt_pool_executor(pooled.pool), NULL, probe_task, &overtaking, 0));
	fixture_step(&overtaker, FIXTURE_TICK);
	wait_for(&overtaking.runs, 1);
}

Test(pool, a_hand_over_does_not_rely_on_one_that_is_stopped)
{

	pooled_open(2, 0);
	fixture_open(&overtaker, NULL);
	wait_for(&sleeps, 2);
	before_futex = overtake;

	occupy();

	cr_assert(before_futex == NULL);
	gate_open(&running.gate);
	assert_ok(hwt_stop(overtaker.timer, NULL));
	pooled_close();
	assert_ok(hwt_destroy(overtaker.timer));
}
