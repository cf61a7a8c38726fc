/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that ThreadSanitizer watches, with a library that it does not.
 * What its threads share is ordered by hwt.h's promises alone: no lock, no
 * semaphore. With an argument, it has a race of its own.
 */
#include "hwt.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ROUNDS 120
#define THREADS 2

#define CHECK(condition)                                                    \
	do {                                                                \
		if (!(condition)) {                                         \
			fprintf(                                            \
			    stderr, "line %d: %s\n", __LINE__, #condition); \
			_exit(1);                                           \
		}                                                           \
	} while (0)

/* An arg: plain words, which whoever owns it reads, writes and frees. */
struct work {
	int written;
	int runs;
};

static const struct hwt_options fast = {.tick_ns = HWT_US(100)};
static struct hwt *timer;
static const struct hwt_executor *executor;

static struct work *
work_new(void)
{
	struct work *work = calloc(1, sizeof(*work));

	CHECK(work != NULL);
	work->written = 1;
	return work;
}

/* Its last access; the memory is another's then. */
static int
work_end(struct work *work)
{
	int runs = work->runs;

	work->written = 0;
	free(work);
	return runs;
}

static void
run(hwt_timeout timeout, void *arg)
{
	struct work *work = arg;

	(void)timeout;
	CHECK(work->written == 1);
	work->runs++;
}

static hwt_timeout
schedule(struct work *work, uint64_t delay_ns)
{
	hwt_timeout timeout;

	CHECK(hwt_new_timeout_on(
		  timer, executor, &timeout, run, work, delay_ns) == 0);
	return timeout;
}

/* Ends it before, while, or after it runs, and frees. */
static void
cancelled(int round)
{
	struct work *work = work_new();
	hwt_timeout timeout = schedule(work, HWT_US(50) * (round % 8));
	int result;

	if (round % 3 == 0)
		usleep(100);
	result = hwt_cancel_wait(timer, timeout);
	CHECK(result == 0 || result == -ENOENT);
	CHECK(work_end(work) == (result == 0 ? 0 : 1));
}

static void
run_slowly(hwt_timeout timeout, void *arg)
{
	usleep(2000);
	run(timeout, arg);
}

/* Who has waited for a task sees what it wrote. */
static void
waited_for(void)
{
	struct work *work = work_new();
	hwt_timeout timeout;
	int state;

	CHECK(hwt_new_timeout_on(
		  timer, executor, &timeout, run_slowly, work, 0) == 0);
	do {
		usleep(100);
		state = hwt_state(timer, timeout, NULL);
	} while (state == HWT_STATE_PENDING || state == HWT_STATE_HANDED_OVER);
	CHECK(hwt_cancel_wait(timer, timeout) == -ENOENT);
	CHECK(work_end(work) == 1);
}

/* Each call that says that it has ended hands over what the task wrote. */
static void
seen_to_end(int round)
{
	struct work *work = work_new();
	hwt_timeout timeout = schedule(work, 0);
	int64_t remaining_ns;
	int result;

	do {
		sched_yield();
		if (round % 3 == 0)
			result = hwt_remaining(timer, timeout, &remaining_ns);
		else if (round % 3 == 1)
			result = hwt_state(timer, timeout, NULL);
		else
			result = hwt_reschedule(timer, timeout, 0);
	} while (result != -ENOENT);
	CHECK(work_end(work) == 1);
}

/* A task sees what was written before a reschedule. */
static void
moved(int round)
{
	struct work *work = work_new();
	hwt_timeout timeout;

	work->written = 0;
	timeout = schedule(work, HWT_NEVER);
	work->written = 1;
	if (round % 2 == 0)
		CHECK(hwt_reschedule(timer, timeout, 0) == 0);
	else
		CHECK(hwt_touch(timer, executor, &timeout, run, work, 0) == 0);
	while (hwt_cancel(timer, timeout) == -EINPROGRESS)
		sched_yield();
	(void)work_end(work);
}

/* Runs of a periodic timeout follow each other, on whatever threads, and its
 * end follows the last. */
static void
repeated(int round)
{
	struct work *work = work_new();
	hwt_timeout timeout;
	int result;

	CHECK(hwt_new_periodic(
		  timer, executor, &timeout, run, work, 0, HWT_US(100)) == 0);
	usleep(500);
	result = round % 16 == 0 ? hwt_cancel_wait(timer, timeout)
				 : hwt_cancel(timer, timeout);
	if (result == -EINPROGRESS) {
		/* -ENOENT: the run has ended between the two. */
		result = hwt_cancel_wait(timer, timeout);
		if (result == -ENOENT)
			result = 0;
	}
	CHECK(result == 0);
	(void)work_end(work);
}

static void *
work_at_it(void *argument)
{
	int round;

	(void)argument;
	for (round = 0; round < ROUNDS; round++) {
		cancelled(round);
		seen_to_end(round);
		moved(round);
		if (round % 8 == 0)
			repeated(round);
		if (round % 64 == 0)
			waited_for();
	}
	return NULL;
}

static void
threads(void *(*function)(void *), void *argument)
{
	pthread_t thread[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		CHECK(
		    pthread_create(&thread[i], NULL, function, argument) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
}

static void
in_the_worker_and_a_pool(void)
{
	struct hwt_pool *pool;

	CHECK(hwt_create(&timer, &fast) == 0);
	threads(work_at_it, NULL);
	CHECK(hwt_pool_create(&pool, 2, 0) == 0);
	executor = hwt_pool_executor(pool);
	threads(work_at_it, NULL);
	CHECK(hwt_stop(timer, NULL) == 0 && hwt_pool_destroy(pool) == 0);
	CHECK(hwt_destroy(timer) == 0);
	executor = NULL;
}

static int ended; /* the loop's */

static void
run_and_end(hwt_timeout timeout, void *arg)
{
	run(timeout, arg);
	ended += work_end(arg);
}

/* What the loop's thread runs was scheduled by others. */
static void *
schedule_batch(void *argument)
{
	struct hwt_spec specs[8] = {{0}};
	int round, i;

	(void)argument;
	for (round = 0; round < ROUNDS / 8; round++) {
		for (i = 0; i < 8; i++) {
			specs[i].task = run_and_end;
			specs[i].arg = work_new();
			specs[i].executor = executor;
		}
		CHECK(hwt_new_timeouts(timer, 8, specs, NULL) == 0);
	}
	return NULL;
}

static void
in_a_loop(void)
{
	struct hwt_mailbox *mailbox;
	pthread_t thread[THREADS];
	int i;

	CHECK(hwt_create(&timer, &fast) == 0);
	CHECK(hwt_mailbox_create(&mailbox) == 0);
	executor = hwt_mailbox_executor(mailbox);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, schedule_batch, NULL) ==
		    0);
	while (ended < THREADS * ROUNDS / 8 * 8)
		CHECK(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	CHECK(hwt_stop(timer, NULL) == 0);
	CHECK(hwt_mailbox_destroy(mailbox) == 0 && hwt_destroy(timer) == 0);
	executor = NULL;
}

/* Stop returns what a thread has scheduled that goes on meanwhile. */
static int list_is_read;

static void *
schedule_and_stay(void *argument)
{
	int i;

	(void)argument;
	for (i = 0; i < ROUNDS; i++)
		(void)schedule(work_new(), HWT_MIN(1) + HWT_US(i));
	while (!__atomic_load_n(&list_is_read, __ATOMIC_RELAXED))
		sched_yield();
	return NULL;
}

static void
given_back(void)
{
	struct hwt_unprocessed list;
	struct hwt_timeout_info info;
	pthread_t thread;

	CHECK(hwt_create(&timer, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, schedule_and_stay, NULL) == 0);
	while (hwt_pending_timeouts(timer) < ROUNDS)
		sched_yield();
	CHECK(hwt_stop(timer, &list) == 0);
	while (hwt_unprocessed_next(&list, &info))
		CHECK(work_end(info.arg) == 0);
	CHECK(list.count == ROUNDS);
	__atomic_store_n(&list_is_read, 1, __ATOMIC_RELAXED);
	CHECK(pthread_join(thread, NULL) == 0 && hwt_destroy(timer) == 0);
}

/* An executor of the program's own, whose thread is never joined: hwt_destroy
 * returns 0 when it is done with the timer's tasks. */
static hwt_timeout handed[ROUNDS];
static unsigned handed_count, taken_count;

static int
hand_over(void *ctx, struct hwt *of, hwt_timeout timeout)
{
	(void)of;
	CHECK(ctx == handed);
	handed[handed_count] = timeout;
	__atomic_store_n(&handed_count, handed_count + 1, __ATOMIC_RELEASE);
	return 0;
}

static void *
run_handed(void *argument)
{
	struct hwt *of = argument;

	while (taken_count < ROUNDS) {
		if (taken_count <
		    __atomic_load_n(&handed_count, __ATOMIC_ACQUIRE))
			CHECK(hwt_run(of, handed[taken_count++]) == 0);
		else
			sched_yield();
	}
	for (;;)
		pause();
	return NULL;
}

static void
destroyed_after_an_executor(void)
{
	static struct work works[ROUNDS];
	struct hwt_executor own = {.execute = hand_over, .ctx = handed};
	pthread_t thread;
	int i;

	CHECK(hwt_create(&timer, &fast) == 0);
	CHECK(pthread_create(&thread, NULL, run_handed, timer) == 0);
	executor = &own;
	for (i = 0; i < ROUNDS; i++) {
		works[i].written = 1;
		(void)schedule(&works[i], 0);
	}
	while (hwt_pending_timeouts(timer) > 0)
		sched_yield();
	CHECK(hwt_stop(timer, NULL) == 0);
	while (hwt_destroy(timer) == -EBUSY)
		sched_yield();
	for (i = 0; i < ROUNDS; i++)
		CHECK(works[i].runs == 1);
	executor = NULL;
}

/* A deadline that is put off is one swap, and the thread that turns the wheel
 * is not told. The time and the count of turns order nothing. */
static uint64_t now, turns;

static uint64_t
read_now(void *ctx)
{
	(void)ctx;
	return __atomic_load_n(&now, __ATOMIC_RELAXED);
}

static void *
turn(void *argument)
{
	(void)argument;
	while (read_now(NULL) < HWT_SEC(1)) {
		CHECK(hwt_advance(timer, NULL) == 0);
		__atomic_fetch_add(&turns, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void
put_off(void)
{
	struct hwt_clock clock = {.now_ns = read_now};
	struct hwt_options options = {.flags = HWT_MANUAL, .clock = &clock};
	struct work *work = work_new();
	hwt_timeout timeout;
	pthread_t thread;
	uint64_t seen;

	CHECK(hwt_create(&timer, &options) == 0);
	CHECK(pthread_create(&thread, NULL, turn, NULL) == 0);
	work->written = 0;
	timeout = schedule(work, HWT_MS(100));
	seen = __atomic_load_n(&turns, __ATOMIC_RELAXED);
	while (__atomic_load_n(&turns, __ATOMIC_RELAXED) < seen + 2)
		sched_yield();
	work->written = 1;
	CHECK(hwt_reschedule_at(timer, timeout, HWT_MS(200)) == 0);
	__atomic_store_n(&now, HWT_MS(200), __ATOMIC_RELAXED);
	while (hwt_state(timer, timeout, NULL) != -ENOENT)
		sched_yield();
	CHECK(work_end(work) == 1);
	__atomic_store_n(&now, HWT_SEC(1), __ATOMIC_RELAXED);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(hwt_stop(timer, NULL) == 0 && hwt_destroy(timer) == 0);
}

/* Nobody waits for the task before reading what it wrote. */
static int
race(void)
{
	struct work *work = work_new();
	int i;

	CHECK(hwt_create(&timer, &fast) == 0);
	for (i = 0; i < ROUNDS; i++) {
		(void)schedule(work, 0);
		work->runs--;
		usleep(200);
	}
	return work->runs;
}

int
main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		return race() == 0 ? 0 : 1;
	in_the_worker_and_a_pool();
	in_a_loop();
	given_back();
	destroyed_after_an_executor();
	put_off();
	return 0;
}
