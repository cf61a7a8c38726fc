/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The promises of hwt_durable.h and its errors, each by an example, with the
 * queues in this process.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "modules/durable/hwt_durable.h"
#include "test/spec/support.h"

#define QUEUE "mail"

/* What callbacks have seen, and what the next one is to answer. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned count;
	char id[64][HWT_DURABLE_ID_MAX + 1];
	uint64_t fence[64], due_ns[64], begun_ns[64];
	uint32_t attempt[64];
	struct hwt_durable_token token;
	int answer; /* of the first attempt of each; then 0 */
	struct hwt_durable_worker *stops; /* it is stopped in the callback */
	int stopped, closed, added;
} seen = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static char folder[64];
static struct hwt_durable *durable;
static struct hwt_durable_worker *worker;

static void
log_nothing(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	(void)message;
}

static void
do_nothing(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

static const struct hwt_log quiet = {log_nothing, NULL};

static uint64_t
unix_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int
open_with(struct hwt *timer)
{
	char servers[80];
	const struct hwt_durable_options options = {
	    .servers = servers, .timer = timer, .log = &quiet};

	(void)snprintf(servers, sizeof(servers), "file:%s/queues", folder);
	return hwt_durable_open(&durable, &options);
}

static void
begin(void)
{
	(void)snprintf(folder, sizeof(folder), "/tmp/hwt-durable-XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	assert_ok(open_with(NULL));
}

static void
end(void)
{
	char command[96];

	assert_ok(hwt_durable_close(durable));
	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	(void)!system(command);
}

#define DurableTest(suite, name) TestBetween(begin(), end(), suite, name)

SUITE(at_least_once);
SUITE(never_early);
SUITE(fenced);
SUITE(cancelled);
SUITE(repeatable);
SUITE(whole);
SUITE(errors);

static int
add(const char *id, uint64_t delay_ns)
{
	const struct hwt_durable_task task = {
	    .id = id,
	    .id_length = strlen(id),
	    .queue = QUEUE,
	    .delay_ns = delay_ns,
	    .max_attempts = 3,
	    .retry_first_ns = 1,
	    .retry_most_ns = HWT_MS(2),
	};
	int result = 0;
	int error = hwt_durable_add(durable, 1, &task, &result);

	return error != 0 ? error : result;
}

static int
execute(void *ctx, const struct hwt_durable_delivery *task)
{
	unsigned at;
	int answer;

	(void)ctx;
	(void)pthread_mutex_lock(&seen.lock);
	at = seen.count++;
	(void)snprintf(seen.id[at], sizeof(seen.id[at]), "%s", task->id);
	seen.fence[at] = task->fence;
	seen.due_ns[at] = task->due_unix_ns;
	seen.begun_ns[at] = unix_ns();
	seen.attempt[at] = task->attempt;
	seen.token = task->token;
	answer = task->attempt == 1 ? seen.answer : 0;
	if (seen.stops != NULL) {
		seen.stopped = hwt_durable_worker_stop(seen.stops, 0);
		seen.closed = hwt_durable_close(durable);
		seen.added = add("next", HWT_SEC(60));
	}
	(void)pthread_cond_broadcast(&seen.changed);
	(void)pthread_mutex_unlock(&seen.lock);
	return answer;
}

static void
start(void)
{
	const struct hwt_durable_worker_options options = {
	    .queue = QUEUE, .callback = execute};

	assert_ok(hwt_durable_worker_start(&worker, durable, &options));
}

static void
stop(void)
{
	assert_ok(hwt_durable_worker_stop(worker, HWT_SEC(30)));
}

static void
wait_for_callbacks(unsigned count)
{
	(void)pthread_mutex_lock(&seen.lock);
	while (seen.count < count)
		(void)pthread_cond_wait(&seen.changed, &seen.lock);
	(void)pthread_mutex_unlock(&seen.lock);
}

static enum hwt_durable_state
state(const char *id)
{
	struct hwt_durable_info info;

	assert_ok(
	    hwt_durable_get(durable, QUEUE, id, strlen(id), &info, NULL, 0));
	return info.state;
}

/* Until the server has its outcome. */
static void
wait_until(const char *id, enum hwt_durable_state wanted)
{
	while (state(id) != wanted)
		(void)usleep(1000);
}

DurableTest(at_least_once, a_task_is_executed_and_then_done)
{
	assert_rc(add("a", 0), 0);
	start();
	wait_for_callbacks(1);
	stop();
	cr_assert_str_eq(seen.id[0], "a");
	assert_u64(state("a"), HWT_DURABLE_DONE);
}

DurableTest(at_least_once, a_failed_attempt_is_repeated_until_one_succeeds)
{
	seen.answer = HWT_DURABLE_RETRY;
	assert_rc(add("a", 0), 0);
	start();
	wait_for_callbacks(2);
	stop();
	assert_u64(seen.attempt[0], 1);
	assert_u64(seen.attempt[1], 2);
	assert_u64(state("a"), HWT_DURABLE_DONE);
}

DurableTest(at_least_once, a_task_outlives_the_handle_that_added_it)
{
	assert_rc(add("a", 0), 0);
	assert_ok(hwt_durable_close(durable));
	assert_ok(open_with(NULL));
	start();
	wait_for_callbacks(1);
	stop();
	assert_u64(state("a"), HWT_DURABLE_DONE);
}

static void *
stop_in_a_thread(void *arg)
{
	(void)arg;
	stop();
	return NULL;
}

DurableTest(at_least_once, a_stop_waits_for_attempts_that_are_left_open)
{
	pthread_t thread;

	seen.answer = HWT_DURABLE_LATER;
	assert_rc(add("a", 0), 0);
	start();
	wait_for_callbacks(1);
	assert_rc(hwt_durable_worker_stop(worker, HWT_MS(5)), -EBUSY);
	assert_rc(pthread_create(&thread, NULL, stop_in_a_thread, NULL), 0);
	(void)usleep(5000);
	assert_ok(hwt_durable_finish(seen.token, 0, 0, NULL));
	assert_rc(pthread_join(thread, NULL), 0);
	assert_u64(state("a"), HWT_DURABLE_DONE);
}

DurableTest(never_early, no_attempt_begins_before_the_due_time)
{
	uint64_t added_ns = unix_ns();

	start();
	assert_rc(add("a", HWT_MS(500)), 0);
	assert_rc(add("b", HWT_MS(10)), 0);
	wait_for_callbacks(2);
	stop();
	cr_assert_str_eq(seen.id[0], "b");
	cr_assert(seen.begun_ns[0] >= added_ns + HWT_MS(10));
	cr_assert(seen.begun_ns[1] >= added_ns + HWT_MS(500));
	cr_assert(seen.begun_ns[1] >= seen.due_ns[1]);
}

DurableTest(fenced, only_the_newest_attempt_can_end_the_task)
{
	struct hwt_durable_token first;

	seen.answer = HWT_DURABLE_LATER;
	assert_rc(add("a", 0), 0);
	start();
	wait_for_callbacks(1);
	first = seen.token;
	assert_ok(
	    hwt_durable_reschedule(durable, QUEUE, "a", 1, HWT_SEC(60), 0));
	/* The worker has not heard of it, and the server does not take it. */
	assert_ok(hwt_durable_finish(first, 0, 0, NULL));
	assert_rc(hwt_durable_finish(first, 0, 0, NULL), -ESTALE);
	stop();
	assert_u64(state("a"), HWT_DURABLE_WAITING);
}

DurableTest(fenced, fences_grow_with_each_attempt)
{
	seen.answer = HWT_DURABLE_RETRY;
	assert_rc(add("a", 0), 0);
	start();
	wait_for_callbacks(2);
	stop();
	cr_assert(seen.fence[1] > seen.fence[0]);
}

DurableTest(cancelled, a_cancelled_task_is_not_executed)
{
	assert_rc(add("a", HWT_MS(5)), 0);
	assert_rc(add("b", HWT_MS(20)), 0);
	assert_ok(hwt_durable_cancel(durable, QUEUE, "a", 1));
	start();
	wait_for_callbacks(1);
	stop();
	assert_u64(seen.count, 1);
	cr_assert_str_eq(seen.id[0], "b");
	assert_u64(state("a"), HWT_DURABLE_CANCELLED);
}

DurableTest(repeatable, an_add_finds_what_the_first_one_has_stored)
{
	assert_rc(add("a", HWT_SEC(60)), 0);
	assert_rc(add("a", 0), HWT_DURABLE_WAITING);
	assert_ok(hwt_durable_reschedule(durable, QUEUE, "a", 1, 0, 0));
	start();
	wait_until("a", HWT_DURABLE_DONE);
	assert_rc(add("a", 0), HWT_DURABLE_DONE);
	stop();
	assert_u64(seen.count, 1);
}

DurableTest(whole, an_add_with_an_invalid_element_stores_nothing)
{
	const struct hwt_durable_task tasks[] = {
	    {.id = "a", .id_length = 1, .queue = QUEUE},
	    {.id = "b", .id_length = 0, .queue = QUEUE},
	    {.id = "c", .id_length = 1, .queue = "other"},
	};
	struct hwt_durable_stats stats;
	int results[3];

	assert_rc(hwt_durable_add(durable, 3, tasks, results), -EINVAL);
	assert_rc(results[0], -ECANCELED);
	assert_rc(results[1], -EINVAL);
	assert_rc(results[2], -ECANCELED);
	assert_ok(hwt_durable_read_stats(durable, QUEUE, &stats));
	assert_u64(stats.added_total, 0);
}

DurableTest(errors, a_callback_adds_tasks_but_does_not_stop_its_worker)
{
	start();
	(void)pthread_mutex_lock(&seen.lock);
	seen.stops = worker;
	(void)pthread_mutex_unlock(&seen.lock);
	assert_rc(add("a", 0), 0);
	wait_for_callbacks(1);
	stop();
	assert_rc(seen.stopped, -EDEADLK);
	assert_rc(seen.closed, -EBUSY);
	assert_rc(seen.added, 0);
	assert_u64(state("next"), HWT_DURABLE_WAITING);
}

DurableTest(errors, a_damaged_store_is_not_opened)
{
	char command[256];

	assert_rc(add("a", HWT_SEC(60)), 0);
	assert_ok(hwt_durable_close(durable));
	(void)snprintf(command, sizeof(command),
	    "for f in %s/queues/*; do dd if=/dev/urandom of=$f bs=64 seek=18 "
	    "count=999 conv=notrunc status=none; done",
	    folder);
	assert_rc(system(command), 0);
	assert_rc(open_with(NULL), -EILSEQ);
	(void)snprintf(command, sizeof(command), "rm -r %s/queues", folder);
	assert_rc(system(command), 0);
	assert_ok(open_with(NULL));
}

DurableTest(errors, a_process_without_descriptors)
{
	struct rlimit limit, none;

	assert_ok(hwt_durable_close(durable));
	assert_rc(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	assert_rc(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_rc(open_with(NULL), -EMFILE);
	assert_rc(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_ok(open_with(NULL));
}

DurableTest(errors, a_timer_that_is_full_or_was_stopped)
{
	const struct hwt_options options = {
	    .tick_ns = HWT_MS(1), .max_pending = 1};
	struct hwt *timer;
	hwt_timeout all;

	assert_ok(hwt_durable_close(durable));
	assert_ok(hwt_create(&timer, &options));
	assert_ok(open_with(timer));
	assert_ok(hwt_new_timeout(timer, &all, do_nothing, NULL, HWT_SEC(60)));
	assert_rc(add("a", 0), -ENOBUFS);
	assert_ok(hwt_cancel(timer, all));
	assert_rc(add("a", 0), 0);
	assert_ok(hwt_stop(timer, NULL));
	assert_rc(add("b", 0), -ESHUTDOWN);
	assert_ok(hwt_durable_close(durable));
	assert_ok(hwt_destroy(timer));
	assert_ok(open_with(NULL));
}

/* Its ticks are hours away: what has failed is not done only then. */
DurableTest(errors, a_worker_goes_on_when_its_timer_has_room_again)
{
	const struct hwt_options options = {
	    .tick_ns = HWT_MS(1), .max_pending = 3};
	const struct hwt_durable_worker_options given = {.queue = QUEUE,
	    .callback = execute,
	    .visibility_ns = HWT_SEC(86400)};
	struct hwt *timer;
	hwt_timeout filling[2];

	assert_ok(hwt_durable_close(durable));
	assert_ok(hwt_create(&timer, &options));
	assert_ok(open_with(timer));
	assert_rc(add("a", 0), 0);
	assert_ok(
	    hwt_new_timeout(timer, &filling[0], do_nothing, NULL, HWT_SEC(60)));
	assert_ok(
	    hwt_new_timeout(timer, &filling[1], do_nothing, NULL, HWT_SEC(60)));
	assert_ok(hwt_durable_worker_start(&worker, durable, &given));
	(void)usleep(5000);
	assert_ok(hwt_cancel(timer, filling[0]));
	assert_ok(hwt_cancel(timer, filling[1]));
	wait_for_callbacks(1);
	stop();
	assert_ok(hwt_durable_close(durable));
	assert_ok(hwt_stop(timer, NULL));
	assert_ok(hwt_destroy(timer));
	assert_ok(open_with(NULL));
}

/* Each allocation fails once; in the end there was enough. */
DurableTest(errors, an_add_without_memory_stores_nothing_or_is_uncertain)
{
	struct hwt_durable_info info;
	char id[24];
	uint64_t nth;
	int rc = -ENOMEM;

	for (nth = 1; rc != 0 && nth < 1000; nth++) {
		(void)snprintf(id, sizeof(id), "%llu", (unsigned long long)nth);
		fault_arm(FAULT_HEAP, nth);
		rc = add(id, HWT_SEC(60));
		(void)fault_disarm();
		if (rc == -ENOMEM || rc == -ENOSPC || rc == -ECONNREFUSED)
			assert_rc(hwt_durable_get(durable, QUEUE, id,
				      strlen(id), &info, NULL, 0),
			    -ENOENT);
		else
			cr_assert(rc == 0 || rc == -ETIMEDOUT);
		/* The server refuses adds for a while. */
		while (rc != 0 && add("other", HWT_SEC(60)) < 0)
			(void)usleep(1000);
	}
	assert_ok(rc);
	cr_assert(nth > 4);
}

DurableTest(errors, an_open_without_memory)
{
	uint64_t nth;
	int rc = -ENOMEM;

	assert_ok(hwt_durable_close(durable));
	for (nth = 1; rc != 0 && nth < 1000; nth++) {
		fault_arm(FAULT_HEAP, nth);
		rc = open_with(NULL);
		(void)fault_disarm();
	}
	assert_ok(rc);
	cr_assert(nth > 10);
}
