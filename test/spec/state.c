/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_state: where a timeout is, and its arg. That it answers -EOWNERDEAD in a
 * child is in fork.c.
 */
#include "test/spec/support_promises.h"

SUITE(state);

static struct recording_executor executor;

/* What hwt_state answers, when it gives expected as arg. */
static int
state_of(hwt_timeout timeout, const void *expected)
{
	void *arg = &manual;
	int state = hwt_state(manual.timer, timeout, &arg);

	cr_assert(arg == (state > 0 ? expected : &manual));
	assert_rc(hwt_state(manual.timer, timeout, NULL), state);
	return state;
}

Test(state, the_states_are_positive_and_apart)
{
	cr_assert(HWT_STATE_PENDING > 0);
	cr_assert(HWT_STATE_HANDED_OVER > 0);
	cr_assert(HWT_STATE_RUNNING > 0);
	cr_assert(HWT_STATE_PENDING != HWT_STATE_HANDED_OVER);
	cr_assert(HWT_STATE_PENDING != HWT_STATE_RUNNING);
	cr_assert(HWT_STATE_HANDED_OVER != HWT_STATE_RUNNING);
}

static void
then_ask(struct probe *probe)
{
	probe->rc = state_of(probe->timeout, probe);
}

ManualTest(state, it_is_pending_until_it_runs_and_then_gone)
{
	struct probe probe = {.then = then_ask};

	probe_schedule(&probe, HWT_MS(2));
	assert_rc(state_of(probe.handle, &probe), HWT_STATE_PENDING);
	manual_tick(1);
	assert_rc(state_of(probe.handle, &probe), HWT_STATE_PENDING);
	manual.now_ns += HWT_MS(9);
	assert_rc(state_of(probe.handle, &probe), HWT_STATE_PENDING);

	manual_step(0);

	assert_rc(probe.rc, HWT_STATE_RUNNING);
	assert_rc(state_of(probe.handle, &probe), -ENOENT);
}

ExecutorTest(
    state, it_is_handed_over_while_an_executor_holds_it, EXECUTOR_HOLDS)
{
	struct probe probe = {.then = then_ask};

	probe_schedule(&probe, 0);
	manual_tick(1);
	assert_rc(state_of(probe.handle, &probe), HWT_STATE_HANDED_OVER);

	assert_ok(executor_run(&executor, 0));

	assert_rc(probe.rc, HWT_STATE_RUNNING);
	assert_rc(state_of(probe.handle, &probe), -ENOENT);
}

ExecutorTest(
    state, what_was_cancelled_is_gone_in_an_executor_too, EXECUTOR_HOLDS)
{
	struct probe pending = {0}, held = pending;

	probe_schedule(&pending, HWT_MS(9));
	probe_schedule(&held, 0);
	manual_tick(1);

	assert_ok(hwt_cancel(manual.timer, pending.handle));
	assert_ok(hwt_cancel(manual.timer, held.handle));

	assert_rc(state_of(pending.handle, NULL), -ENOENT);
	assert_rc(state_of(held.handle, NULL), -ENOENT);
	assert_rc(executor_run(&executor, 0), -ENOENT);
}

ManualTest(state, a_periodic_one_is_pending_between_its_runs)
{
	struct probe probe = {.then = then_ask};

	probe_schedule_periodic(&probe, 0, HWT_MS(1));
	for (uint64_t index = 1; index <= 3; index++) {
		assert_u64(manual_tick(index), 1);
		assert_rc(probe.rc, HWT_STATE_RUNNING);
		assert_rc(state_of(probe.handle, &probe), HWT_STATE_PENDING);
	}
}

RunningTest(state, seen_from_elsewhere_a_task_is_running)
{
	void *arg = NULL;

	assert_rc(hwt_state(live.timer, running.probe.handle, &arg),
	    HWT_STATE_RUNNING);

	cr_assert(arg == &running.probe);
	gate_open(&running.gate);
}

ManualTest(state, what_never_was_is_not_there)
{
	struct probe old = {0}, new = old;

	probe_schedule(&old, HWT_MS(1));
	assert_ok(hwt_cancel(manual.timer, old.handle));
	/* In the same record. */
	probe_schedule(&new, HWT_MS(1));
	assert_u64(new.handle.id & 0xfffffff, old.handle.id & 0xfffffff);

	assert_rc(state_of(old.handle, NULL), -ENOENT);
	assert_rc(hwt_state(manual.timer, (hwt_timeout){0}, NULL), -ENOENT);
	assert_rc(state_of((hwt_timeout){UINT64_MAX}, NULL), -ENOENT);
	assert_rc(state_of(new.handle, &new), HWT_STATE_PENDING);
}

Test(state, a_timer_is_needed)
{
	void *arg = &manual;

	assert_rc(hwt_state(NULL, (hwt_timeout){1}, &arg), -EINVAL);
	cr_assert(arg == &manual);
}

/* One thread uses a record for ever others; another asks for those it knows. */
struct reuse {
	struct hwt *timer;
	_Atomic uint64_t id, done;
};

static void *
arg_of(uint64_t number)
{
	return (void *)(uintptr_t)(number * 16);
}

static void
reuse_or_ask(unsigned index, void *ctx)
{
	static _Atomic uint64_t numbers[4096];
	struct reuse *reuse = ctx;
	hwt_timeout timeout;
	void *arg;
	uint64_t number;

	for (number = 1; index == 0 && number <= 200000; number++) {
		assert_ok(hwt_new_timeout(reuse->timer, &timeout,
		    forbidden_task, arg_of(number), HWT_MIN(60)));
		numbers[(timeout.id >> 28) % 4096] = number;
		reuse->id = timeout.id;
		assert_ok(hwt_cancel(reuse->timer, timeout));
	}
	reuse->done = index == 0;
	while (!reuse->done) {
		timeout.id = reuse->id;
		number = numbers[(timeout.id >> 28) % 4096];
		if (hwt_state(reuse->timer, timeout, &arg) > 0)
			cr_assert(arg == arg_of(number));
	}
}

Test(state, it_never_tells_the_arg_of_a_later_one)
{
	static struct reuse reuse;

	reuse.timer = worker_timer_open(HWT_MS(1));

	in_parallel(2, reuse_or_ask, &reuse);

	worker_timer_close(reuse.timer);
}
