/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_touch: moves the timeout that a variable names, or makes a new one, and
 * never loses a live one. How it races is in test/explore/touch.c; that it
 * answers -EOWNERDEAD in a child is in fork.c.
 */
#include "test/spec/support_promises.h"

SUITE(touch);

static struct recording_executor executor;

/* probe->handle is the variable. */
static void
touch(struct probe *probe, uint64_t delay_ns)
{
	assert_ok(hwt_touch(
	    manual.timer, NULL, &probe->handle, probe_task, probe, delay_ns));
	cr_assert(probe->handle.id != 0);
}

/* The call is refused, and the variable is as before. */
static void
assert_refused(
    struct hwt *timer, hwt_timeout *timeout, uint64_t delay_ns, int error)
{
	const hwt_timeout before = *timeout;

	assert_rc(
	    hwt_touch(timer, NULL, timeout, forbidden_task, NULL, delay_ns),
	    error);
	assert_u64(timeout->id, before.id);
}

/* The first, and what is pending. */

ManualTest(touch, what_is_pending_moves_and_keeps_handle_task_and_arg)
{
	struct probe probe = {0};
	hwt_timeout first;

	touch(&probe, HWT_MS(3));
	first = probe.handle;
	manual_tick(2);

	assert_ok(hwt_touch(manual.timer, NULL, &probe.handle, forbidden_task,
	    NULL, HWT_MS(3)));

	assert_u64(probe.handle.id, first.id);
	assert_u64(manual_tick(4), 0);
	assert_u64(manual_tick(5), 1);
	assert_u64(manual_stats().scheduled, 1);
	assert_u64(manual_stats().rescheduled, 1);
}

ManualTest(touch, what_is_pending_moves_in_too_and_to_never)
{
	struct probe in = {0}, never = in;

	touch(&in, HWT_MIN(1));
	touch(&never, HWT_MS(1));

	touch(&in, 0);
	touch(&never, HWT_NEVER);

	assert_u64(manual_tick(1), 1);
	assert_u64(manual_tick(100), 0);
	assert_i64(manual_remaining(never.handle), INT64_MAX);
}

/* What has ended. */

ManualTest(touch, what_has_run_gets_a_successor)
{
	struct probe first = {0}, second = first;
	hwt_timeout ended;

	touch(&first, 0);
	assert_u64(manual_tick(1), 1);
	ended = second.handle = first.handle;

	touch(&second, HWT_MS(2));

	cr_assert(second.handle.id != ended.id);
	assert_u64(manual_tick(3), 1);
	assert_u64(second.runs, 1);
	assert_u64(first.runs, 1);
}

Test(touch, a_handle_of_another_timer_or_garbage_gets_a_new_one)
{
	static struct fixture other;
	struct probe foreign = {.fixture = &other}, garbage = foreign;

	manual_open(NULL);
	fixture_open(&other, NULL);
	probe_schedule(&foreign, HWT_MS(1));
	garbage.handle.id = UINT64_MAX - 1;

	touch(&foreign, HWT_MS(1));
	touch(&garbage, HWT_MS(1));

	assert_u64(manual_tick(1), 2);
	assert_u64(hwt_pending_timeouts(other.timer), 1);
	manual_close();
	fixture_close(&other);
}

/* What an executor holds. */

ExecutorTest(touch, what_an_executor_holds_gets_a_successor_and_does_not_run,
    EXECUTOR_HOLDS)
{
	struct probe old = {0}, new = old;

	touch(&old, 0);
	manual_tick(1);
	assert_u64(executor.count, 1);
	new.handle = old.handle;

	touch(&new, HWT_MS(5));

	cr_assert(new.handle.id != old.handle.id);
	assert_rc(hwt_state(manual.timer, old.handle, NULL), -ENOENT);
	assert_u64(manual_stats().cancelled, 1);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_u64(old.runs, 0);
	assert_u64(new.runs, 0);
	manual_tick(6);
	assert_ok(executor_run(&executor, 1));
	assert_u64(new.runs, 1);
}

ExecutorTest(touch, a_new_one_goes_to_the_executor_of_the_call, EXECUTOR_RUNS)
{
	static struct recording_executor second;
	struct probe probe = {0};

	executor_init(&second, EXECUTOR_RUNS);
	assert_ok(hwt_touch(
	    manual.timer, &second.hook, &probe.handle, probe_task, &probe, 0));
	manual_tick(1);
	assert_u64(second.count, 1);

	touch(&probe, 0);
	manual_tick(2);

	assert_u64(executor.count, 1);
	assert_u64(probe.runs, 2);
}

/* What runs. */

static void
then_touch_itself(struct probe *probe)
{
	probe->then = NULL;
	touch(probe, HWT_MS(4));
}

ManualTest(touch, a_one_shot_task_schedules_its_successor)
{
	struct probe probe = {.then = then_touch_itself};
	hwt_timeout first;

	touch(&probe, HWT_MS(1));
	first = probe.handle;
	assert_u64(manual_tick(1), 1);

	cr_assert(probe.handle.id != first.id);
	assert_u64(manual_tick(4), 0);
	assert_u64(manual_tick(5), 1);
	assert_u64(probe.timeout.id, probe.handle.id);
}

RunningTest(touch, a_task_that_runs_elsewhere_runs_on_and_the_new_one_after_it)
{
	hwt_timeout old = running.probe.handle;
	static struct probe new;

	new.handle = old;
	assert_ok(
	    hwt_touch(live.timer, NULL, &new.handle, probe_task, &new, 0));
	cr_assert(new.handle.id != old.id);
	assert_ok(hwt_touch(
	    live.timer, NULL, &new.handle, forbidden_task, NULL, HWT_MS(1)));
	gate_open(&running.gate);

	wait_for(&new.runs, 1);
	assert_u64(new.timeout.id, new.handle.id);
	assert_u64(running.probe.runs, 1);
}

/* The variable, as wake finds it inside the call. */
static hwt_timeout *seen_variable;
static hwt_timeout seen;

static void
wake_looks(void *ctx)
{
	(void)ctx;
	seen = *seen_variable;
}

Test(touch, the_variable_is_written_before_the_new_task_can_start)
{
	struct hwt_wake wake = {.wake = wake_looks};
	struct probe probe = {0};
	hwt_timeout first;

	manual_open(&(struct hwt_options){.tick_ns = HWT_MS(1), .wake = &wake});
	seen_variable = &probe.handle;
	touch(&probe, 0);
	manual_tick(1);
	first = probe.handle;
	assert_u64(manual_wait(), HWT_NEVER);

	touch(&probe, HWT_MS(1));

	cr_assert(probe.handle.id != first.id);
	assert_u64(seen.id, probe.handle.id);
	manual_close();
}

/* Periodic ones. */

ManualTest(touch, a_periodic_task_moves_itself)
{
	struct probe probe = {.then = then_touch_itself};
	hwt_timeout first;

	first = probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(10));
	assert_u64(manual_tick(1), 1);

	assert_u64(probe.handle.id, first.id);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_u64(manual_tick(5), 1);
	assert_u64(manual_tick(15), 1);
}

ExecutorTest(
    touch, a_periodic_one_that_is_handed_over_is_not_replaced, EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(10));
	manual_tick(1);

	assert_rc(hwt_touch(manual.timer, NULL, &probe.handle, forbidden_task,
		      NULL, HWT_MS(1)),
	    -EINPROGRESS);

	assert_u64(probe.handle.id, executor.calls[0].timeout.id);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_ok(executor_run(&executor, 0));
	manual_tick(11);
	assert_u64(executor.count, 2);
	assert_ok(executor_run(&executor, 1));
	assert_u64(probe.runs, 2);
}

RunningPeriodicTest(touch, a_periodic_one_that_runs_elsewhere_is_not_replaced)
{
	assert_refused(live.timer, &running.probe.handle, 0, -EINPROGRESS);

	assert_u64(hwt_pending_timeouts(live.timer), 1);
	running.probe.then = NULL;
	gate_open(&running.gate);
}

/* A periodic one whose first run is its last, since the task, or a thread
 * beside it, cancels and touches it. */
static void
is_replaced(void (*then)(struct probe *))
{
	struct probe probe = {.then = then};
	hwt_timeout first;

	first = probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(1));
	assert_u64(manual_tick(1), 1);

	cr_assert(probe.handle.id != first.id);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_u64(manual_tick(4), 0);
	assert_u64(manual_tick(20), 1);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

static void
cancel_and_touch(unsigned index, void *arg)
{
	struct probe *probe = arg;

	(void)index;
	probe->then = NULL;
	assert_rc(hwt_cancel(manual.timer, probe->timeout), -EINPROGRESS);
	touch(probe, HWT_MS(4));
}

static void
then_cancel_and_touch_itself(struct probe *probe)
{
	cancel_and_touch(0, probe);
}

ManualTest(touch, a_periodic_one_in_its_last_run_is_replaced)
{
	is_replaced(then_cancel_and_touch_itself);
}

static void
then_be_cancelled_and_touched(struct probe *probe)
{
	in_parallel(1, cancel_and_touch, probe);
}

ManualTest(touch, a_periodic_one_in_its_last_run_is_replaced_from_elsewhere_too)
{
	is_replaced(then_be_cancelled_and_touched);
}

/* Errors. No live timeout is lost. */

/* A connection that was closed: a touch that comes late revives nothing. */
ManualTest(touch, a_closed_one_stays_closed)
{
	struct probe probe = {0};
	hwt_timeout closed = HWT_CLOSED;
	int64_t remaining_ns;

	touch(&probe, HWT_MS(1));
	assert_ok(hwt_cancel(manual.timer, probe.handle));

	assert_rc(hwt_touch(manual.timer, NULL, &closed, forbidden_task, NULL,
		      HWT_MS(1)),
	    -ECANCELED);
	assert_u64(closed.id, UINT64_MAX);

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_u64(manual_stats().scheduled, 1);
	assert_rc(hwt_cancel(manual.timer, closed), -ENOENT);
	assert_rc(hwt_cancel_wait(manual.timer, closed), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, closed, 0), -ENOENT);
	assert_rc(hwt_reschedule_at(manual.timer, closed, 0), -ENOENT);
	assert_rc(hwt_remaining(manual.timer, closed, &remaining_ns), -ENOENT);
	assert_rc(hwt_state(manual.timer, closed, NULL), -ENOENT);
	assert_rc(hwt_run(manual.timer, closed), -ENOENT);
}

ManualTest(touch, what_is_missing_or_out_of_range_is_refused)
{
	static const struct hwt_executor hollow;
	struct probe probe = {0};
	hwt_timeout handle;

	handle = probe_schedule(&probe, HWT_MS(3));
	assert_rc(
	    hwt_touch(NULL, NULL, &handle, forbidden_task, NULL, 0), -EINVAL);
	assert_rc(hwt_touch(manual.timer, NULL, NULL, forbidden_task, NULL, 0),
	    -EINVAL);
	assert_rc(
	    hwt_touch(manual.timer, NULL, &handle, NULL, NULL, 0), -EINVAL);
	assert_rc(
	    hwt_touch(manual.timer, &hollow, &handle, forbidden_task, NULL, 0),
	    -EINVAL);
	assert_refused(manual.timer, &handle, UINT64_C(1) << 63, -EINVAL);
	assert_refused(manual.timer, &handle, HWT_NEVER - 1, -EINVAL);

	assert_u64(handle.id, probe.handle.id);
	assert_i64(manual_remaining(handle), (int64_t)HWT_MS(3));
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_u64(manual_stats().rescheduled, 0);
}

ManualTest(touch, a_bad_delay_is_refused_whatever_the_variable_names)
{
	hwt_timeout none = {0}, garbage = {UINT64_MAX};

	assert_refused(manual.timer, &none, UINT64_C(1) << 63, -EINVAL);
	assert_refused(manual.timer, &garbage, UINT64_C(1) << 63, -EINVAL);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

Test(touch, over_the_limit_what_an_executor_holds_stays_in_the_variable)
{
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	manual_open(&(struct hwt_options){.tick_ns = HWT_MS(1),
	    .executor = &executor.hook,
	    .max_pending = 1});
	touch(&probe, 0);
	touch(&probe, 0); /* what is pending needs no other place */
	manual_tick(1);

	assert_rc(hwt_touch(manual.timer, NULL, &probe.handle, forbidden_task,
		      NULL, 0),
	    -ENOBUFS);

	assert_u64(manual_stats().rejected, 1);
	assert_ok(hwt_cancel(manual.timer, probe.handle));
	assert_rc(executor_run(&executor, 0), -ENOENT);
	touch(&probe, 0);
	manual_close();
}

ManualTest(touch, a_stopped_timer_makes_no_new_one)
{
	struct probe probe = {0};
	struct hwt_timeout_info info;
	struct hwt_unprocessed list;
	hwt_timeout none = {0};

	touch(&probe, HWT_MS(3));
	assert_ok(hwt_stop(manual.timer, &list));

	assert_refused(manual.timer, &probe.handle, HWT_MS(3), -ESHUTDOWN);
	assert_rc(hwt_touch(manual.timer, NULL, &none, forbidden_task, NULL, 0),
	    -ESHUTDOWN);
	assert_u64(none.id, 0);

	cr_assert(hwt_unprocessed_next(&list, &info));
	assert_u64(info.timeout.id, probe.handle.id);
	cr_assert(!hwt_unprocessed_next(&list, &info));
}

WorkerTest(touch, without_a_thread_the_first_is_refused)
{
	static struct probe probe = {0};

	fault_arm(FAULT_THREAD, FAULT_ALWAYS);
	assert_refused(live.timer, &probe.handle, 0, -EAGAIN);
	fault_disarm();

	assert_ok(
	    hwt_touch(live.timer, NULL, &probe.handle, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);
}

ManualTest(touch, without_memory_no_new_one_is_made_and_what_is_pending_moves)
{
	struct probe probe = {0};
	hwt_timeout timeout;
	uint64_t accepted = 1;

	touch(&probe, HWT_MIN(1));
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	do
		timeout.id = 0;
	while (hwt_touch(manual.timer, NULL, &timeout, forbidden_task, NULL,
		   HWT_NEVER) == 0 &&
	    ++accepted);
	assert_refused(manual.timer, &timeout, HWT_NEVER, -ENOMEM);
	touch(&probe, HWT_MS(1));
	fault_disarm();

	assert_u64(hwt_pending_timeouts(manual.timer), accepted);
	assert_u64(manual_tick(1), 1);
}
