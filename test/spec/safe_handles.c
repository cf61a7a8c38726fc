/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safe-handles: every call accepts any handle, and refuses all that do not name
 * a live timeout.
 */
#include "test/spec/support.h"

SUITE(safe_handles);

static void
assert_refused_by_all(struct hwt *timer, uint64_t id)
{
	hwt_timeout timeout = {id};
	int64_t remaining_ns = 77;
	void *arg = &manual;

	assert_rc(hwt_cancel(timer, timeout), -ENOENT);
	assert_rc(hwt_cancel_wait(timer, timeout), -ENOENT);
	assert_rc(hwt_reschedule(timer, timeout, HWT_MS(1)), -ENOENT);
	assert_rc(hwt_reschedule_at(timer, timeout, HWT_MS(1)), -ENOENT);
	assert_rc(hwt_remaining(timer, timeout, &remaining_ns), -ENOENT);
	assert_rc(hwt_state(timer, timeout, &arg), -ENOENT);
	assert_rc(hwt_run(timer, timeout), -ENOENT);
	cr_assert(remaining_ns == 77 && arg == &manual);
}

ManualTest(safe_handles, stale_handle_is_refused_when_its_record_serves_others)
{
	static hwt_timeout stale[1000];

	for (unsigned i = 0; i < 1000; i++) {
		stale[i] = schedule_forbidden(HWT_SEC(1));
		if (i % 5 == 0)
			manual_step(FIXTURE_TICK);
		assert_ok(hwt_cancel(manual.timer, stale[i]));
	}
	schedule_forbidden(HWT_SEC(1));

	for (unsigned i = 0; i < 1000; i++) {
		assert_refused_by_all(manual.timer, stale[i].id);
		for (unsigned k = 0; k < i; k++)
			cr_assert(stale[i].id != stale[k].id);
	}
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
}

/* The second timer lies where the first one lay. */
Test(safe_handles, handle_of_another_timer_is_refused)
{
	static struct fixture other;
	hwt_timeout former, handle, foreign;

	manual_open(NULL);
	former = schedule_forbidden(HWT_SEC(1));
	manual_close();
	manual_open(NULL);
	handle = schedule_forbidden(HWT_SEC(1));
	fixture_open(&other, NULL);
	foreign = schedule_task(other.timer, forbidden_task, HWT_SEC(1));

	assert_refused_by_all(manual.timer, former.id);
	assert_refused_by_all(manual.timer, foreign.id);
	assert_refused_by_all(other.timer, handle.id);

	fixture_close(&other);
	manual_close();
}
