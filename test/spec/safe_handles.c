/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safe-handles: every call accepts any handle and refuses all that do not name
 * a live timeout.
 */
#include "test/spec/support_promises.h"

#include <string.h>

SUITE(safe_handles);

static struct recording_executor executor;

/* Every call that takes a handle refuses this one. */
static void
assert_refused_by_all(struct hwt *timer, uint64_t id)
{
	hwt_timeout timeout = {id};
	int64_t remaining_ns = 77;

	assert_rc(hwt_cancel(timer, timeout), -ENOENT);
	assert_rc(hwt_cancel_wait(timer, timeout), -ENOENT);
	assert_rc(hwt_reschedule(timer, timeout, HWT_MS(1)), -ENOENT);
	assert_rc(hwt_remaining(timer, timeout, &remaining_ns), -ENOENT);
	assert_i64(remaining_ns, 77);
	assert_rc(hwt_run(timer, timeout), -ENOENT);
}

ManualTest(safe_handles, garbage_is_refused_by_an_empty_timer_and_by_a_full_one)
{
	static const uint64_t garbage[] = {0, 1, 2, 63, 64, 4095, 4096, 65536,
	    UINT32_MAX, UINT64_C(1) << 28, (UINT64_C(1) << 28) - 1,
	    UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - 1,
	    INT64_MAX, UINT64_C(0xdeadbeefdeadbeef)};

	for (unsigned round = 0; round < 2; round++) {
		for (size_t index = 0;
		     index < sizeof(garbage) / sizeof(garbage[0]); index++)
			assert_refused_by_all(manual.timer, garbage[index]);
		for (size_t index = 0; index < 10000; index++) {
			assert_ok(hwt_new_timeout(manual.timer, NULL,
			    forbidden_task, NULL, HWT_SEC(1)));
		}
	}

	assert_u64(hwt_pending_timeouts(manual.timer), 20000);
}

static void
assert_flips_are_refused(uint64_t id)
{
	for (unsigned bit = 0; bit < 64; bit++)
		assert_refused_by_all(manual.timer, id ^ UINT64_C(1) << bit);
}

ExecutorTest(safe_handles, each_bit_of_a_live_handle_counts, EXECUTOR_HOLDS)
{
	hwt_timeout queued;
	hwt_timeout placed;
	struct probe held = {0};

	for (unsigned count = 0; count < 5000; count++) {
		placed =
		    schedule_task(manual.timer, forbidden_task, HWT_SEC(1));
	}
	probe_schedule(&held, 0);
	manual_tick(1);
	assert_u64(executor.count, 1);
	queued = schedule_task(manual.timer, forbidden_task, HWT_SEC(1));

	assert_flips_are_refused(queued.id);
	assert_flips_are_refused(placed.id);
	assert_flips_are_refused(held.handle.id);

	assert_u64(hwt_pending_timeouts(manual.timer), 5002);
	assert_ok(hwt_cancel(manual.timer, queued));
	assert_ok(hwt_cancel(manual.timer, placed));
	assert_ok(executor_run(&executor, 0));
	assert_u64(held.runs, 1);
}

ManualTest(safe_handles, a_stale_handle_is_refused_however_it_ended)
{
	struct probe started = {0}, cancelled = {0};
	struct probe unplaced = {0}, revoked = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	probe_schedule(&started, 0);
	probe_schedule(&unplaced, HWT_MS(9));
	assert_ok(hwt_new_timeout_on(manual.timer, &executor.hook,
	    &revoked.handle, probe_task, &revoked, 0));
	assert_u64(manual_tick(1), 1);
	probe_schedule(&cancelled, HWT_MS(9));
	assert_ok(hwt_cancel(manual.timer, cancelled.handle));
	assert_ok(hwt_cancel(manual.timer, unplaced.handle));
	assert_ok(hwt_cancel(manual.timer, revoked.handle));
	assert_rc(executor_run(&executor, 0), -ENOENT);
	manual_tick(2);

	assert_refused_by_all(manual.timer, started.handle.id);
	assert_refused_by_all(manual.timer, cancelled.handle.id);
	assert_refused_by_all(manual.timer, unplaced.handle.id);
	assert_refused_by_all(manual.timer, revoked.handle.id);
}

ManualTest(
    safe_handles, a_stale_handle_is_refused_after_the_record_serves_others)
{
	static hwt_timeout stale[3000];
	hwt_timeout heir;

	for (size_t index = 0; index < 3000; index++) {
		stale[index] =
		    schedule_task(manual.timer, forbidden_task, HWT_SEC(1));
		if (index % 5 == 0)
			manual_step(HWT_MS(1));
		assert_ok(hwt_cancel(manual.timer, stale[index]));
	}
	manual_step(HWT_MS(1));
	cr_assert(manual_stats().memory_bytes < 1 << 20,
	    "the records were not used again");
	heir = schedule_task(manual.timer, forbidden_task, HWT_SEC(1));

	for (size_t index = 0; index < 3000; index++) {
		assert_refused_by_all(manual.timer, stale[index].id);
		cr_assert(stale[index].id != heir.id);
		for (size_t other = 0; other < index; other++)
			cr_assert(stale[index].id != stale[other].id);
	}

	assert_ok(hwt_cancel(manual.timer, heir));
}

ManualTest(safe_handles, the_handle_of_another_timer_is_refused)
{
	static struct fixture other;
	hwt_timeout ours[100];
	hwt_timeout theirs[100];

	fixture_open(&other, NULL);
	for (size_t index = 0; index < 100; index++) {
		ours[index] =
		    schedule_task(manual.timer, forbidden_task, HWT_SEC(1));
		theirs[index] =
		    schedule_task(other.timer, forbidden_task, HWT_SEC(1));
	}

	for (size_t index = 0; index < 100; index++) {
		assert_refused_by_all(manual.timer, theirs[index].id);
		assert_refused_by_all(other.timer, ours[index].id);
	}

	assert_u64(hwt_pending_timeouts(manual.timer), 100);
	assert_u64(hwt_pending_timeouts(other.timer), 100);
	fixture_close(&other);
}

Test(safe_handles, the_handle_of_a_destroyed_timer_is_refused_by_its_heir)
{
	hwt_timeout timeouts[100];

	manual_open(NULL);
	for (size_t index = 0; index < 100; index++) {
		timeouts[index] =
		    schedule_task(manual.timer, forbidden_task, HWT_SEC(1));
	}
	manual_close();
	manual_open(NULL);
	for (size_t index = 0; index < 100; index++) {
		assert_ok(hwt_new_timeout(
		    manual.timer, NULL, forbidden_task, NULL, HWT_SEC(1)));
	}

	for (size_t index = 0; index < 100; index++)
		assert_refused_by_all(manual.timer, timeouts[index].id);

	manual_close();
}

static struct gate neighbours_gate;

static void *
schedule_and_wait(void *timer)
{
	assert_ok(
	    hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_NEVER));
	gate_pass(&neighbours_gate);
	return NULL;
}

/* Another thread's records come next in memory after those that this one
 * keeps: what it kept too many would be over there, and gone with that thread.
 * How many it has kept before is its own affair: all numbers are tried. */
Test(safe_handles, what_a_thread_keeps_for_itself_no_other_touches)
{
	static struct fixture fixture;
	hwt_timeout timeouts[200];
	pthread_t thread;

	gate_init(&neighbours_gate);
	for (int ended = 0; ended < 200; ended++) {
		memset(&fixture, 0, sizeof(fixture));
		fixture_open(&fixture, NULL);
		for (int i = 0; i < 200; i++)
			timeouts[i] = schedule_task(
			    fixture.timer, forbidden_task, HWT_NEVER);
		cr_assert(pthread_create(&thread, NULL, schedule_and_wait,
			      fixture.timer) == 0);
		gate_await(&neighbours_gate);
		for (int i = 0; i < ended; i++)
			assert_ok(hwt_cancel(fixture.timer, timeouts[i]));
		gate_open(&neighbours_gate);
		cr_assert(pthread_join(thread, NULL) == 0);
		for (int i = 0; i < ended; i++)
			timeouts[i] = schedule_task(
			    fixture.timer, forbidden_task, HWT_NEVER);
		for (int i = 0; i < 200; i++)
			assert_ok(hwt_cancel(fixture.timer, timeouts[i]));
		fixture_close(&fixture);
	}
}
