/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a call waits for a few instructions of another thread, it lets others
 * run, and after a while it sleeps. Under SCHED_FIFO, the other thread may be
 * of a lower priority, and would never run while this one looks again and
 * again. Here the other one goes on when this one sleeps for the third time,
 * and not before.
 */
#include "test/spec/support.h"

#include <errno.h>
#include <time.h>

SUITE(waits);

static struct gate gate;
static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static _Thread_local unsigned sleeps;

int __real_nanosleep(const struct timespec *pause, struct timespec *left);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);

int
__wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
	if (sleeps > 0 && --sleeps == 0)
		gate_open(&gate);
	return __real_nanosleep(pause, left);
}

static void
hold_caller(void *ctx)
{
	(void)ctx;
	gate_pass(&gate);
}

static void
schedule_batch(void)
{
	const struct hwt_spec spec = {
	    .task = forbidden_task, .delay_ns = HWT_MIN(1)};

	assert_ok(hwt_new_timeouts(timer, 1, &spec, NULL));
}

static void
schedule_or_stop(unsigned index, void *arg)
{
	(void)arg;
	if (index == 0) {
		schedule_batch();
		return;
	}
	gate_await(&gate);
	sleeps = 3;
	assert_ok(hwt_stop(timer, NULL));
	cr_assert(sleeps == 0);
}

static void
timer_in_parallel(unsigned threads, void (*body)(unsigned index, void *arg))
{
	const struct hwt_wake wake = {.wake = hold_caller};
	const struct hwt_options options = {.flags = HWT_MANUAL, .wake = &wake};
	uint64_t wait_ns;

	gate_init(&gate);
	assert_ok(hwt_create(&timer, &options));
	assert_ok(hwt_next_wakeup(timer, &wait_ns));

	in_parallel(threads, body, NULL);

	assert_ok(hwt_destroy(timer));
}

Test(waits, a_stop_that_waits_for_a_batch_sleeps)
{
	timer_in_parallel(2, schedule_or_stop);
}

/* The loop asks while a stop waits for a batch that waits for the loop, as
 * where the user's wake takes a lock of the loop. */
static void
ask_during_a_stop(unsigned index, void *arg)
{
	hwt_timeout timeout;
	uint64_t wait_ns = 0;
	int error;

	(void)arg;
	if (index == 0) {
		schedule_batch();
		return;
	}
	if (index == 1) {
		gate_await(&gate);
		assert_ok(hwt_stop(timer, NULL));
		return;
	}
	while ((error = hwt_new_timeout(
		    timer, &timeout, forbidden_task, NULL, HWT_NEVER)) == 0)
		assert_ok(hwt_cancel(timer, timeout));
	assert_rc(error, -ESHUTDOWN);
	assert_ok(hwt_next_wakeup(timer, &wait_ns));
	assert_u64(wait_ns, HWT_NEVER);
	assert_rc(hwt_advance(timer, NULL), -ESHUTDOWN);
	gate_open(&gate);
}

Test(waits, a_stop_that_waits_for_a_batch_holds_up_nobody)
{
	timer_in_parallel(3, ask_during_a_stop);
}

static int
hold_hand_over(void *ctx, struct hwt *from, hwt_timeout timeout)
{
	(void)ctx;
	(void)from;
	(void)timeout;
	gate_pass(&gate);
	return EAGAIN;
}

static void
destroy_during_a_hand_over(unsigned index, void *arg)
{
	struct fixture *fixture = arg;

	if (index == 0) {
		assert_u64(fixture_tick(fixture, 1), 1);
		return;
	}
	gate_await(&gate);
	sleeps = 3;
	assert_ok(hwt_mailbox_destroy(mailbox));
	cr_assert(sleeps == 0);
}

/* What is waited for is a hand-over to an executor of the mailbox's ctx; what
 * it refuses, the timer runs. */
Test(waits, a_destroy_that_waits_for_a_hand_over_sleeps)
{
	struct hwt_executor executor = {.execute = hold_hand_over};
	struct probe probe = {0};

	gate_init(&gate);
	assert_ok(hwt_mailbox_create(&mailbox));
	executor.ctx = hwt_mailbox_executor(mailbox)->ctx;
	manual_open(&(struct hwt_options){.executor = &executor});
	probe_schedule(&probe, FIXTURE_TICK);

	in_parallel(2, destroy_during_a_hand_over, &manual);

	manual_close();
}
