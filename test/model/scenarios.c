/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios: short programs with workers, a pool and forks, which together with
 * the model call everything that calls the system. Each ends with nothing left.
 * A call that fails must return what comes of the planned failure, as hwt.h
 * lists it, and must have changed nothing; the next one must work.
 */
#include "test/model/scenario.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Its allocator may be locked at a fork by a thread that the child has not. */
#ifdef __SANITIZE_ADDRESS__
#define WITH_ASAN true
#else
#define WITH_ASAN false
#endif

#define TICK HWT_MS(1)
#define FAR HWT_SEC(100)
#define PATIENCE_NS HWT_SEC(10)
#define POISON ((void *)(uintptr_t)0x5a5a5a5a5a5a5a50)

static const struct hwt_options with_worker = {.tick_ns = TICK};

/*
 * TRY(hwt_function, (arguments), timer or NULL, holds): until the call returns
 * 0. After each failure its answer and the timer's counters are compared, and
 * holds must hold. The plan ends with the second failure.
 */
#define TRY(call, arguments, timer, holds) \
	TRY_AS(#call, call arguments, timer, holds)
#define TRY_AS(name, answer, timer, holds)                              \
	for (try_begin(name, timer); !try_is_over(name, answer, timer); \
	     try_begin(name, timer))                                    \
	CHECK(holds)

static struct {
	const char *call;
	unsigned failures;
	uint64_t injected;
	struct hwt_stats before;
} attempt;

static void
try_begin(const char *call, const struct hwt *timer)
{
	if (attempt.call == NULL || strcmp(attempt.call, call) != 0)
		attempt.failures = 0;
	attempt.call = call;
	attempt.injected = plan_failures();
	CHECK(timer == NULL || hwt_read_stats(timer, &attempt.before) == 0);
}

/* Timeouts that end meanwhile change started and pending together. */
static bool
has_changed(const struct hwt *timer)
{
	const struct hwt_stats *before = &attempt.before;
	struct hwt_stats after;

	CHECK(hwt_read_stats(timer, &after) == 0);
	return after.scheduled != before->scheduled ||
	    after.cancelled != before->cancelled ||
	    after.rescheduled != before->rescheduled ||
	    after.rejected != before->rejected ||
	    (after.started == before->started &&
		after.pending != before->pending);
}

static bool
try_is_over(const char *call, int rc, const struct hwt *timer)
{
	if (rc == 0) {
		attempt.call = NULL;
		return true;
	}
	/* The fork handler was refused before main began, for good. */
	if (plan_now()->call == PLAN_PTHREAD_ATFORK && rc == -ENOMEM)
		scenario_end();
	if (plan_failures() == attempt.injected || rc != -plan_answer() ||
	    !may_fail(call, rc))
		fail("%s answers %d without cause", call, rc);
	if (timer != NULL && has_changed(timer))
		fail("%s failed and changed a counter", call);
	if (++attempt.failures >= 2)
		plan_end();
	if (attempt.failures > 3)
		fail("%s fails for good", call);
	return false;
}

/* Timeouts, each of which is to end once. */

struct timeout {
	hwt_timeout handle;
	struct hwt *timer;
	uint64_t not_before_ns, period_ns;
	atomic_uint runs, ended;
	void (*task)(void);
	struct timeout *next;
};

static struct timeout *timeouts;

static void
run_timeout(hwt_timeout handle, void *arg)
{
	struct timeout *timeout = arg;

	CHECK(handle.id == timeout->handle.id);
	CHECK(now_ns() >= timeout->not_before_ns);
	if (timeout->task != NULL)
		timeout->task();
	timeout->runs++;
	if (timeout->period_ns == 0)
		timeout->ended++;
}

static int
schedule_once(
    struct timeout *t, const struct hwt_executor *executor, uint64_t delay_ns)
{
	t->handle.id = 1;
	t->not_before_ns = now_ns() + delay_ns;
	if (t->period_ns != 0)
		return hwt_new_periodic(t->timer, executor, &t->handle,
		    run_timeout, t, delay_ns, t->period_ns);
	return hwt_new_timeout_on(
	    t->timer, executor, &t->handle, run_timeout, t, delay_ns);
}

static struct timeout *
schedule_with(const struct timeout *given, const struct hwt_executor *executor,
    uint64_t delay_ns)
{
	struct timeout *t = malloc(sizeof(*t));

	CHECK(t != NULL);
	*t = *given;
	t->next = timeouts;
	timeouts = t;
	TRY_AS("hwt_new_timeout", schedule_once(t, executor, delay_ns),
	    t->timer, t->handle.id == 0);
	return t;
}

#define schedule_on(executor, delay_ns, ...) \
	schedule_with(&(struct timeout){__VA_ARGS__}, executor, delay_ns)
#define schedule(of, delay_ns) schedule_on(NULL, delay_ns, .timer = (of))

static void
cancel(struct timeout *timeout)
{
	CHECK(hwt_cancel_wait(timeout->timer, timeout->handle) == 0);
	timeout->ended++;
}

static void
reschedule(struct timeout *timeout, uint64_t delay_ns)
{
	uint64_t earliest_ns = now_ns() + delay_ns;

	/* Of two deadlines the earlier one, until one of them holds. */
	if (earliest_ns < timeout->not_before_ns)
		timeout->not_before_ns = earliest_ns;
	CHECK(hwt_reschedule(timeout->timer, timeout->handle, delay_ns) == 0);
	timeout->not_before_ns = earliest_ns;
}

static void
await(const atomic_uint *count, unsigned least)
{
	uint64_t begun_ns = now_ns();

	while (*count < least) {
		pause_ns(100000);
		CHECK(now_ns() - begun_ns < PATIENCE_NS);
	}
}

void
scenario_settle(void)
{
	struct timeout *timeout, *next;

	for (timeout = timeouts; timeout != NULL; timeout = next) {
		next = timeout->next;
		if (timeout->ended != 1)
			fail("a timeout ended %u times", timeout->ended);
		free(timeout);
	}
	timeouts = NULL;
}

/* Timers. */

static struct hwt *
make(const struct hwt_options *options)
{
	struct hwt *timer = POISON;

	TRY(hwt_create, (&timer, options), NULL, timer == POISON);
	return timer;
}

static void
take(struct hwt_unprocessed *list)
{
	struct hwt_timeout_info info;
	uint64_t seen = 0;

	for (; hwt_unprocessed_next(list, &info); seen++) {
		struct timeout *timeout = info.arg;

		CHECK(info.timeout.id == timeout->handle.id);
		timeout->ended++;
	}
	CHECK(seen == list->count);
}

static void
stop(struct hwt *timer)
{
	struct hwt_unprocessed list = {.count = 1, .private_words = {1}};

	TRY(hwt_stop, (timer, &list), NULL,
	    list.count == 0 && list.private_words[0] == 0);
	take(&list);
}

static void
destroy(struct hwt *timer)
{
	CHECK(hwt_pending_timeouts(timer) == 0);
	CHECK(hwt_destroy(timer) == 0);
}

static void
end(struct hwt *timer)
{
	stop(timer);
	destroy(timer);
}

/* Scenarios. */

static void
run_worker(void)
{
	struct hwt_options options = with_worker;
	struct timeout *soon[3], *far[4], *often;
	pthread_attr_t attr;
	struct hwt *timer;
	unsigned i;

	CHECK(pthread_attr_init(&attr) == 0);
	options.thread_attr = &attr;
	timer = make(&options);
	TRY(hwt_start, (timer), timer, true);
	for (i = 0; i < 4; i++)
		far[i] = schedule(timer, FAR);
	/* The worker is in a long sleep. */
	pause_ns(2 * TICK);
	for (i = 0; i < 3; i++)
		soon[i] = schedule(timer, i * TICK);
	often = schedule_on(NULL, TICK, .timer = timer, .period_ns = TICK);
	reschedule(far[0], 2 * TICK);
	reschedule(far[1], 2 * FAR);
	cancel(far[2]);
	await(&often->runs, 3);
	for (i = 0; i < 3; i++)
		await(&soon[i]->runs, 1);
	await(&far[0]->runs, 1);
	cancel(often);
	pause_ns(2 * TICK);
	reschedule(far[3], TICK);
	await(&far[3]->runs, 1);
	end(timer);
	CHECK(pthread_attr_destroy(&attr) == 0);
}

static sem_t release;
static atomic_uint entered;

static void
hold(void)
{
	entered++;
	while (sem_wait(&release) != 0)
		continue;
}

static void *
release_soon(void *unused)
{
	pause_ns(2 * TICK);
	sem_post(&release);
	return unused;
}

/* hwt_cancel_wait and hwt_stop_within while a task runs. */
static void
run_wait(void)
{
	struct hwt *timer = make(&with_worker);
	struct hwt_unprocessed list;
	struct timeout *held;
	pthread_t thread;

	sem_init(&release, 0, 0);
	held = schedule_on(NULL, TICK, .timer = timer, .task = hold);
	await(&entered, 1);
	CHECK(pthread_create(&thread, NULL, release_soon, NULL) == 0);
	CHECK(hwt_cancel_wait(timer, held->handle) == -ENOENT);
	CHECK(held->ended == 1 && pthread_join(thread, NULL) == 0);
	(void)schedule(timer, FAR);
	(void)schedule_on(NULL, TICK, .timer = timer, .task = hold);
	await(&entered, 2);
	CHECK(hwt_stop_within(timer, TICK, NULL) == -ETIMEDOUT);
	CHECK(pthread_create(&thread, NULL, release_soon, NULL) == 0);
	TRY(hwt_stop_within, (timer, HWT_SEC(5), &list), NULL, true);
	take(&list);
	CHECK(pthread_join(thread, NULL) == 0);
	destroy(timer);
}

static atomic_uint posts_run;

static void
count_post(struct hwt_post *post)
{
	(void)post;
	posts_run++;
}

static void
run_pool(void)
{
	const struct hwt_executor *executor;
	struct hwt_pool *pool = POISON;
	struct timeout *run[6], *often;
	struct hwt_post post;
	struct hwt *timer;
	unsigned i;

	TRY(hwt_pool_create, (&pool, 3, 2), NULL, pool == POISON);
	executor = hwt_pool_executor(pool);
	timer = make(&with_worker);
	for (i = 0; i < 6; i++)
		run[i] = schedule_on(executor, 2 * TICK, .timer = timer);
	often = schedule_on(executor, TICK, .timer = timer, .period_ns = TICK);
	while (hwt_pool_post(pool, &post, count_post) == -EAGAIN)
		pause_ns(TICK);
	await(&posts_run, 1);
	await(&often->runs, 3);
	for (i = 0; i < 6; i++)
		await(&run[i]->runs, 1);
	cancel(often);
	stop(timer);
	CHECK(hwt_pool_destroy(pool) == 0);
	destroy(timer);
}

static void
run_shared(void)
{
	struct hwt_unprocessed list;
	struct hwt *timer = POISON;

	TRY(hwt_shared, (&timer), NULL, timer == POISON);
	await(&schedule(timer, TICK)->runs, 1);
	(void)schedule(timer, FAR);
	TRY(hwt_shared_shutdown, (&list), NULL,
	    list.count == 0 && list.private_words[0] == 0);
	take(&list);
}

static int
refuse(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	(void)timer;
	(void)timeout;
	return EAGAIN;
}

static void
be_slow(void)
{
	pause_ns(TICK / 4);
}

/* Warnings; and text about a timer, which works after each failure. */
static void
run_text(void)
{
	struct hwt_executor executor = {.execute = refuse};
	struct hwt_options options = {
	    .tick_ns = TICK, .slow_task_ns = 1000, .executor = &executor};
	struct hwt *timer = make(&options);
	FILE *file = fopen("/dev/null", "we");
	struct hwt_stats stats;

	CHECK(file != NULL);
	await(
	    &schedule_on(NULL, TICK, .timer = timer, .task = be_slow)->runs, 1);
	(void)schedule(timer, FAR);
	TRY(hwt_stats_write, (timer, file, HWT_JSON), timer, true);
	stop(timer);
	TRY(hwt_dump, (timer, file), timer, true);
	CHECK(hwt_read_stats(timer, &stats) == 0);
	CHECK(stats.executor_refused == 1 && stats.slow_tasks == 1);
	destroy(timer);
	(void)fclose(file);
}

static _Noreturn void
run_child(struct hwt *inherited, struct timeout *timeout)
{
	struct hwt *timer;

	alarm(15);
	CHECK(hwt_pending_timeouts(inherited) == 0);
	CHECK(hwt_cancel(inherited, timeout->handle) == -EOWNERDEAD);
	CHECK(hwt_stop(inherited, NULL) == -EOWNERDEAD);
	destroy(inherited);
	timer = make(&with_worker);
	await(&schedule(timer, TICK)->runs, 1);
	end(timer);
	_exit(0);
}

static void
run_fork(void)
{
	struct timeout *far, *soon;
	struct hwt *timer;
	int status = -1;
	pid_t child;

	if (WITH_ASAN)
		return;
	timer = make(&with_worker);
	far = schedule(timer, FAR);
	soon = schedule(timer, 2 * TICK);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		run_child(timer, far);
	await(&soon->runs, 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	end(timer);
}

/* The model's own operations on manual timers. */
static void
run_model(void)
{
	static struct model_options options = {
	    .seed = 11, .steps = 1000, .inside = 16};

	/* Without the handler of forks, nothing can be made. */
	if (plan_now()->call == PLAN_PTHREAD_ATFORK)
		return;
	model_run(&options);
	checker_close();
}

const struct scenario scenarios[] = {
    {"worker", run_worker, false},
    {"wait", run_wait, false},
    {"pool", run_pool, false},
    {"shared", run_shared, false},
    {"text", run_text, false},
    {"fork", run_fork, false},
    {"model", run_model, true},
    {NULL, NULL, false},
};
