/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_new_timeout, hwt_new_timeout_on, hwt_new_timeouts: what is accepted and
 * what refused, the ends of the range of delays, all or none, and what a
 * failure leaves behind. Periodic timeouts have a suite of their own.
 */
#include "test/spec/support.h"

#include <stdlib.h>

SUITE(schedule);

#define TWO_TO_63 (UINT64_C(1) << 63)

static struct recording_executor executor;

/* The three ways to schedule one timeout. */
enum way {
	NEW_TIMEOUT,
	NEW_TIMEOUT_ON,
	NEW_TIMEOUTS,
	WAYS
};

static int
schedule_by(enum way way, struct hwt *timer, hwt_timeout *timeout,
    hwt_task *task, void *arg, uint64_t delay_ns)
{
	struct hwt_spec spec = {.task = task, .arg = arg, .delay_ns = delay_ns};

	switch (way) {
	case NEW_TIMEOUT:
		return hwt_new_timeout(timer, timeout, task, arg, delay_ns);
	case NEW_TIMEOUT_ON:
		return hwt_new_timeout_on(
		    timer, NULL, timeout, task, arg, delay_ns);
	default:
		return hwt_new_timeouts(timer, 1, &spec, timeout);
	}
}

static void
assert_refused(enum way way, struct hwt *timer, hwt_task *task,
    uint64_t delay_ns, int expected)
{
	hwt_timeout timeout = {UINT64_MAX};

	assert_rc(
	    schedule_by(way, timer, &timeout, task, NULL, delay_ns), expected);
	assert_u64(timeout.id, 0);
	assert_rc(
	    schedule_by(way, timer, NULL, task, NULL, delay_ns), expected);
}

ManualTest(schedule, the_task_gets_its_handle_and_its_arg_once)
{
	enum way way;

	for (way = 0; way < WAYS; way++) {
		struct probe probe = {0};
		hwt_timeout timeout = {0};

		assert_ok(schedule_by(way, manual.timer, &timeout, probe_task,
		    &probe, HWT_US(1)));
		cr_assert(timeout.id != 0);
		assert_u64(manual_step(HWT_MS(2)), 1);
		assert_u64(manual_step(HWT_MS(20)), 0);

		assert_u64(probe.runs, 1);
		assert_u64(probe.timeout.id, timeout.id);
	}
}

ManualTest(schedule, a_null_timer_and_a_null_task_are_refused)
{
	enum way way;

	for (way = 0; way < WAYS; way++) {
		assert_refused(way, NULL, forbidden_task, 0, -EINVAL);
		assert_refused(way, manual.timer, NULL, 0, -EINVAL);
	}

	assert_u64(manual_stats().scheduled, 0);
}

ManualTest(schedule, a_negative_difference_as_a_delay_is_refused)
{
	enum way way;

	for (way = 0; way < WAYS; way++) {
		assert_refused(
		    way, manual.timer, forbidden_task, TWO_TO_63, -EINVAL);
		assert_refused(
		    way, manual.timer, forbidden_task, TWO_TO_63 + 1, -EINVAL);
		assert_refused(
		    way, manual.timer, forbidden_task, HWT_NEVER - 1, -EINVAL);
	}

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_u64(manual_wait(), HWT_NEVER);
}

ManualTest(schedule, never_and_the_longest_delays_stay_pending)
{
	const uint64_t delays[] = {HWT_NEVER, TWO_TO_63 - 1, TWO_TO_63 - 2};
	hwt_timeout timeout;
	enum way way;

	for (way = 0; way < WAYS; way++) {
		for (size_t index = 0; index < 3; index++) {
			assert_ok(schedule_by(way, manual.timer, &timeout,
			    forbidden_task, NULL, delays[index]));
			assert_i64(manual_remaining(timeout), INT64_MAX);
		}
	}

	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(manual_step(HWT_MIN(60)), 0);
	assert_u64(hwt_pending_timeouts(manual.timer), 9);
}

Test(schedule, the_last_deadline_that_fires_is_2_to_the_63_less_2)
{
	struct probe last = {0};
	hwt_timeout never;

	manual.start_ns = TWO_TO_63 - 1 - HWT_MS(10);
	manual_open(NULL);
	never = schedule_task(manual.timer, forbidden_task, HWT_MS(10));
	probe_schedule(&last, HWT_MS(10) - 1);
	assert_i64(manual_remaining(never), INT64_MAX);
	assert_i64(manual_remaining(last.handle), (int64_t)HWT_MS(10) - 1);
	assert_u64(manual_wait(), HWT_MS(10));

	assert_u64(manual_step(HWT_MS(10) - 1), 0);
	assert_u64(manual_step(1), 1);

	assert_u64(last.started_ns, TWO_TO_63 - 1);
	assert_u64(manual_wait(), HWT_NEVER);
	assert_i64(manual_remaining(never), INT64_MAX);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	manual_close();
}

ExecutorTest(
    schedule, without_an_executor_named_the_timers_gets_it, EXECUTOR_RUNS)
{
	enum way way;

	for (way = 0; way < WAYS; way++) {
		assert_ok(
		    schedule_by(way, manual.timer, NULL, idle_task, NULL, 0));
	}
	manual_tick(1);

	assert_u64(executor.count, 3);
}

ExecutorTest(schedule, the_executor_that_is_named_gets_it_and_not_the_timers,
    EXECUTOR_HOLDS)
{
	static struct recording_executor named;
	struct probe probes[2] = {{0}};
	struct hwt_spec spec = {
	    .task = probe_task, .arg = &probes[1], .executor = &named.hook};
	hwt_timeout timeouts[2];

	executor_init(&named, EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeout_on(manual.timer, &named.hook, &timeouts[0],
	    probe_task, &probes[0], 0));
	assert_ok(hwt_new_timeouts(manual.timer, 1, &spec, &timeouts[1]));

	assert_u64(manual_tick(1), 0);

	assert_u64(executor.count, 0);
	assert_u64(named.count, 2);
	cr_assert(named.calls[0].timer == manual.timer);
	cr_assert((named.calls[0].timeout.id == timeouts[0].id &&
		      named.calls[1].timeout.id == timeouts[1].id) ||
	    (named.calls[0].timeout.id == timeouts[1].id &&
		named.calls[1].timeout.id == timeouts[0].id));
	assert_ok(executor_run(&named, 0));
	assert_ok(executor_run(&named, 1));
	assert_u64(probes[0].runs, 1);
	assert_u64(probes[1].runs, 1);
}

/* Batches. */

ManualTest(schedule, a_batch_of_none_succeeds_and_schedules_none)
{
	const struct hwt_spec spec = {.task = forbidden_task};
	hwt_timeout timeout = {77};

	assert_ok(hwt_new_timeouts(manual.timer, 0, &spec, &timeout));

	assert_u64(timeout.id, 77);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_u64(manual_stats().scheduled, 0);
}

ManualTest(schedule, a_batch_without_specs_is_refused)
{
	hwt_timeout timeouts[2] = {{1}, {1}};

	assert_rc(hwt_new_timeouts(manual.timer, 2, NULL, timeouts), -EINVAL);
	assert_rc(hwt_new_timeouts(manual.timer, 2, NULL, NULL), -EINVAL);

	assert_u64(timeouts[0].id, 0);
	assert_u64(timeouts[1].id, 0);
}

ManualTest(schedule, a_batch_runs_each_with_its_own_delay_and_arg)
{
	static struct probe probes[100];
	static struct hwt_spec specs[100];
	static hwt_timeout timeouts[100];

	for (uint64_t index = 0; index < 100; index++) {
		specs[index].task = probe_task;
		specs[index].arg = &probes[index];
		specs[index].delay_ns = HWT_MS(1 + index);
	}

	assert_ok(hwt_new_timeouts(manual.timer, 100, specs, timeouts));
	assert_u64(hwt_pending_timeouts(manual.timer), 100);

	for (uint64_t index = 0; index < 100; index++) {
		assert_u64(manual_tick(1 + index), 1);
		assert_u64(probes[index].runs, 1);
		assert_u64(probes[index].timeout.id, timeouts[index].id);
	}
}

/* Each way in which one spec can be wrong. */
static void
spoil(struct hwt_spec *spec, unsigned how)
{
	static const struct hwt_executor nothing;

	switch (how) {
	case 0:
		spec->task = NULL;
		break;
	case 1:
		spec->delay_ns = TWO_TO_63;
		break;
	case 2:
		spec->delay_ns = HWT_NEVER - 1;
		break;
	case 3:
		spec->period_ns = TWO_TO_63;
		break;
	case 4:
		spec->period_ns = HWT_NEVER;
		break;
	case 5:
		spec->executor = &nothing;
		break;
	default:
		spec->reserved[how - 6] = 1;
	}
}

ManualTest(schedule, one_wrong_spec_refuses_the_whole_batch)
{
	for (unsigned how = 0; how < 9; how++) {
		for (size_t place = 0; place < 3; place++) {
			struct hwt_spec specs[3] = {{.task = forbidden_task},
			    {.task = forbidden_task}, {.task = forbidden_task}};
			hwt_timeout timeouts[3] = {{1}, {1}, {1}};

			spoil(&specs[place], how);
			assert_rc(
			    hwt_new_timeouts(manual.timer, 3, specs, timeouts),
			    -EINVAL);
			assert_u64(timeouts[0].id, 0);
			assert_u64(timeouts[1].id, 0);
			assert_u64(timeouts[2].id, 0);
		}
	}

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_u64(manual_stats().scheduled, 0);
	assert_u64(manual_step(HWT_MS(50)), 0);
}

/* Where a deadline lands. */

static void
then_schedule_forbidden(struct probe *probe)
{
	probe->rc = hwt_new_timeout(
	    manual.timer, &probe->handle, forbidden_task, NULL, 0);
}

ManualTestWith(schedule, a_task_may_schedule_into_the_bucket_being_expired,
    .tick_ns = HWT_MS(1), .ticks_per_wheel = 1)
{
	struct probe probe = {.then = then_schedule_forbidden};
	hwt_timeout inner;

	assert_ok(hwt_new_timeout(manual.timer, NULL, probe_task, &probe, 0));

	assert_u64(manual_tick(1), 1);

	assert_ok(probe.rc);
	inner = probe.handle;
	assert_i64(manual_remaining(inner), 1);
	assert_ok(hwt_cancel(manual.timer, inner));
	assert_u64(manual_tick(2), 0);
}

/* Failures. */

ManualTest(schedule, after_stop_every_way_is_refused)
{
	enum way way;

	assert_ok(hwt_stop(manual.timer, NULL));

	for (way = 0; way < WAYS; way++) {
		assert_refused(
		    way, manual.timer, forbidden_task, 0, -ESHUTDOWN);
	}

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

ManualTestWith(schedule, above_the_limit_every_way_is_refused, .max_pending = 1)
{
	enum way way;

	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_MIN(1)));

	for (way = 0; way < WAYS; way++)
		assert_refused(way, manual.timer, forbidden_task, 0, -ENOBUFS);

	assert_u64(hwt_pending_timeouts(manual.timer), 1);
}

#define MANY 20000

/* The slab, or the room in the wheel for its records. */
Test(schedule, whichever_allocation_fails_the_first_is_refused_and_then_goes)
{
	uint64_t calls;

	for (uint64_t nth = 1;; nth++) {
		hwt_timeout timeout = {1};
		int rc;

		manual_open(NULL);
		fault_arm(FAULT_MEMORY, nth);
		rc =
		    hwt_new_timeout(manual.timer, &timeout, idle_task, NULL, 0);
		calls = fault_disarm();
		assert_rc(rc, calls < nth ? 0 : -ENOMEM);
		cr_assert((rc == 0) == (timeout.id != 0));
		if (rc != 0)
			(void)schedule_task(manual.timer, idle_task, 0);
		assert_u64(manual_tick(1), 1);
		manual_close();
		if (rc == 0)
			break;
	}

	cr_assert(calls >= 2);
}

ManualTest(schedule, what_was_accepted_is_on_its_tick_without_any_memory)
{
	struct probe *probes = calloc(MANY, sizeof(*probes));

	for (uint64_t index = 0; index < MANY; index++) {
		probe_schedule(&probes[index], HWT_MS(1 + index % 20));
	}

	fault_arm(FAULT_MEMORY | FAULT_KEY, FAULT_ALWAYS);
	for (uint64_t index = 1; index <= 20; index++)
		assert_u64(manual_tick(index), MANY / 20);
	fault_disarm();

	for (uint64_t index = 0; index < MANY; index++)
		assert_u64(probes[index].runs, 1);
	free(probes);
}

/* The handle and the start of the task. */

struct handle_race {
	struct hwt *timer;
	hwt_timeout timeout;
	_Atomic uint64_t equal;
	_Atomic uint64_t started;
};

static void
compare_handle(hwt_timeout timeout, void *arg)
{
	struct handle_race *race = arg;

	race->equal += race->timeout.id == timeout.id;
	race->started++;
}

Test(schedule, the_handle_is_written_before_the_task_can_start)
{
	struct handle_race race = {.timer = worker_timer_open(10000)};

	for (uint64_t round = 1; round <= 500; round++) {
		race.timeout.id = 0;
		assert_ok(hwt_new_timeout(
		    race.timer, &race.timeout, compare_handle, &race, 0));
		while (race.started < round)
			sched_yield();
	}

	assert_u64(race.equal, 500);
	worker_timer_close(race.timer);
}
