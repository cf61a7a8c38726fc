/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a call waits for a few instructions of another thread, it lets others
 * run, and after a while it sleeps. Under SCHED_FIFO, the other thread may be
 * of a lower priority, and would never run while this one looks again and
 * again. Here the other one goes on when this one sleeps, and not before.
 */
#include "test/spec/support.h"

#include <errno.h>
#include <time.h>

SUITE(waits);

static struct gate gate;
static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static _Thread_local bool waits;

int __real_nanosleep(const struct timespec *pause, struct timespec *left);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);

int
__wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
	if (waits) {
		waits = false;
		gate_open(&gate);
	}
	return __real_nanosleep(pause, left);
}

static void
hold_caller(void *ctx)
{
	(void)ctx;
	gate_pass(&gate);
}

static void
stop_during_a_batch(unsigned index, void *arg)
{
	const struct hwt_spec spec = {
	    .task = forbidden_task, .delay_ns = HWT_MIN(1)};

	(void)arg;
	if (index == 0) {
		assert_rc(hwt_new_timeouts(timer, 1, &spec, NULL), 0);
		return;
	}
	gate_await(&gate);
	waits = true;
	assert_rc(hwt_stop(timer, NULL), 0);
	cr_assert(!waits);
}

Test(waits, a_stop_that_waits_for_a_batch_sleeps)
{
	const struct hwt_wake wake = {.wake = hold_caller};
	const struct hwt_options options = {.flags = HWT_MANUAL, .wake = &wake};
	uint64_t wait_ns;

	gate_init(&gate);
	assert_rc(hwt_create(&timer, &options), 0);
	assert_rc(hwt_next_wakeup(timer, &wait_ns), 0);

	in_parallel(2, stop_during_a_batch, NULL);

	assert_rc(hwt_destroy(timer), 0);
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
	waits = true;
	assert_rc(hwt_mailbox_destroy(mailbox), 0);
	cr_assert(!waits);
}

/* What is waited for is a hand-over to an executor of the mailbox's ctx; what
 * it refuses, the timer runs. */
Test(waits, a_destroy_that_waits_for_a_hand_over_sleeps)
{
	struct hwt_executor executor = {.execute = hold_hand_over};
	const struct hwt_options options = {.executor = &executor};
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};

	gate_init(&gate);
	assert_rc(hwt_mailbox_create(&mailbox), 0);
	executor.ctx = hwt_mailbox_executor(mailbox)->ctx;
	fixture_open(&fixture, &options);
	probe_schedule(&probe, FIXTURE_TICK);

	in_parallel(2, destroy_during_a_hand_over, &fixture);

	fixture_close(&fixture);
}
