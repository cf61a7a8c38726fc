/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_cancel, hwt_cancel_wait: who wins, and who owns arg then. */
#include "test/spec/support.h"

SUITE(cancel);

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

/* hwt_cancel_wait. */

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
