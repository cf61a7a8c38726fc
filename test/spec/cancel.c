/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_cancel, hwt_cancel_wait: who wins, and who owns arg then. */
#include "test/spec/support.h"

SUITE(cancel);

/* A timeout of 3 ticks; the wheel is turned, and the clock goes on. */
static const struct {
	const char *what;
	uint64_t turned_ns, called_ns;
} moments[] = {
    {"in the queue", 0, 0},
    {"in the wheel", TICKS(2), TICKS(2)},
    {"due, but not begun", TICKS(1), TICKS(20)},
};

Test(cancel, cancel_wins_until_the_task_has_begun_and_arg_is_free_at_once)
{
	for (size_t i = 0; i < 6; i++) {
		struct probe *probe = calloc(1, sizeof(*probe));

		manual_open(NULL);
		probe_schedule(probe, TICKS(3));
		if (moments[i / 2].turned_ns > 0)
			manual_step(moments[i / 2].turned_ns);
		manual.now_ns = manual.start_ns + moments[i / 2].called_ns;

		cr_assert((i % 2 == 0 ? hwt_cancel : hwt_cancel_wait)(
			      manual.timer, probe->handle) == 0,
		    "%s", moments[i / 2].what);

		free(probe);
		assert_u64(hwt_pending_timeouts(manual.timer), 0);
		assert_u64(manual_step(TICKS(30)), 0);
		assert_u64(manual_stats().cancelled, 1);
		manual_close();
	}
}

ExecutorTest(
    cancel, cancel_wins_while_an_executor_holds_the_timeout, EXECUTOR_HOLDS)
{
	hwt_timeout timeout = schedule_forbidden(0);

	manual_tick(1);

	assert_ok(hwt_cancel(manual.timer, timeout));

	assert_rc(hwt_cancel(manual.timer, timeout), -ENOENT);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_rc(executor_run(&recorder, 0), -ENOENT);
	assert_u64(manual_stats().cancelled, 1);
	assert_u64(manual_stats().started, 0);
}

RunningPeriodicTest(cancel, cancelled_periodic_task_ends_with_its_current_run)
{
	hwt_timeout timeout = running.probe.handle;

	assert_rc(hwt_cancel(live.timer, timeout), -EINPROGRESS);
	assert_rc(hwt_cancel(live.timer, timeout), -EINPROGRESS);
	gate_open(&running.gate);
	for (unsigned tick = 0; tick < 5; tick++)
		live_pass_tick();

	assert_u64(running.probe.runs, 1);
	assert_rc(hwt_cancel(live.timer, timeout), -ENOENT);
	assert_u64(hwt_pending_timeouts(live.timer), 0);
}

static hwt_timeout others[100];

static void
then_cancel_others(struct probe *probe)
{
	(void)probe;
	for (unsigned i = 0; i < 100; i++)
		(void)!hwt_cancel(manual.timer, others[i]);
}

ManualTest(cancel, task_may_cancel_all_others_of_its_tick)
{
	struct probe probe = {.then = then_cancel_others};

	for (unsigned i = 0; i < 100; i++)
		others[i] = probe_schedule(&probe, TICKS(1));

	assert_u64(manual_tick(1), 1);

	assert_u64(manual_stats().cancelled, 99);
	assert_u64(manual_step(TICKS(50)), 0);
}

/* hwt_cancel_wait. */

static void
then_cancel_wait_itself(struct probe *probe)
{
	probe->rc = hwt_cancel_wait(probe->fixture->timer, probe->timeout);
}

ExecutorTest(
    cancel, cancel_wait_from_that_very_task_is_a_deadlock, EXECUTOR_HOLDS)
{
	struct probe probe = {.then = then_cancel_wait_itself};

	probe_schedule(&probe, 0);
	manual_tick(1);

	assert_ok(executor_run(&recorder, 0));

	assert_rc(probe.rc, -EDEADLK);
	assert_rc(hwt_cancel_wait(manual.timer, probe.handle), -ENOENT);
}

ManualTest(cancel, cancel_wait_from_a_periodic_task_changes_nothing)
{
	struct probe probe = {.then = then_cancel_wait_itself};

	probe_periodic(&probe, TICKS(1), TICKS(1));
	assert_u64(ticks_of_runs(&probe, 1, 2), ON(1) | ON(2));

	assert_rc(probe.rc, -EDEADLK);
	assert_ok(hwt_cancel_wait(manual.timer, probe.handle));
	assert_u64(manual_tick(3), 0);
}

struct waits {
	int rc[4];
	uint64_t runs_at_return[4];
	_Atomic uint64_t begun;
};

static void
cancel_wait_running(unsigned index, void *arg)
{
	struct waits *waits = arg;

	if (index == 3) {
		wait_for(&waits->begun, 3);
		sleep_ns(HWT_MS(20));
		gate_open(&running.gate);
		return;
	}
	waits->begun++;
	waits->rc[index] = hwt_cancel_wait(live.timer, running.probe.handle);
	waits->runs_at_return[index] = running.probe.runs;
}

static void
assert_one_owner(struct waits *waits, unsigned owners)
{
	unsigned owned = 0;

	for (unsigned i = 0; i < 3; i++) {
		owned += waits->rc[i] == 0;
		assert_rc(waits->rc[i], waits->rc[i] == 0 ? 0 : -ENOENT);
		assert_u64(waits->runs_at_return[i], 1);
	}
	assert_u64(owned, owners);
}

RunningTest(cancel, cancel_wait_returns_when_the_running_task_has_returned)
{
	struct waits waits = {0};

	in_parallel(4, cancel_wait_running, &waits);

	assert_one_owner(&waits, 0);
}

RunningPeriodicTest(
    cancel, first_cancel_wait_of_a_running_periodic_timeout_owns_arg)
{
	struct waits waits = {0};

	assert_rc(hwt_cancel(live.timer, running.probe.handle), -EINPROGRESS);

	in_parallel(4, cancel_wait_running, &waits);

	assert_one_owner(&waits, 1);
	live_pass_tick();
	assert_u64(running.probe.runs, 1);
}
