/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_start, hwt_stop, hwt_stop_within, hwt_unprocessed_next, hwt_destroy:
 * their order, who waits for whom, who gets the list and what it says.
 */
#include "test/spec/support.h"

SUITE(lifecycle);

/* Start. */

Test(lifecycle, create_makes_no_thread_and_start_makes_one)
{
	struct hwt *timer;

	fault_arm(FAULT_THREAD, FAULT_COUNT);
	timer = worker_timer_open(HWT_MS(1));
	assert_u64(fault_disarm(), 0);

	fault_arm(FAULT_THREAD, FAULT_COUNT);
	assert_ok(hwt_start(timer));
	assert_ok(hwt_start(timer));
	assert_u64(fault_disarm(), 1);
	worker_timer_close(timer);
}

/* One who starts, and others who come while pthread_create is under way. */
struct comers {
	struct hwt *timer;
	struct gate gate;
	int rc[4];
	_Atomic uint64_t returned;
	uint64_t returned_early;
};

static void
come(unsigned index, void *arg)
{
	struct comers *comers = arg;

	if (index == 4) {
		sleep_ns(HWT_MS(30));
		comers->returned_early = comers->returned;
		for (index = 0; index < 4; index++)
			gate_open(&comers->gate);
		return;
	}
	comers->rc[index] = index == 0 ? hwt_start(comers->timer)
				       : hwt_new_timeout(comers->timer, NULL,
					     forbidden_task, NULL, HWT_MIN(1));
	comers->returned++;
}

Test(lifecycle, callers_that_race_for_the_start_wait_for_its_outcome)
{
	for (int error = 0; error <= EAGAIN; error += EAGAIN) {
		static struct comers comers;

		comers.timer = worker_timer_open(HWT_MS(1));
		comers.returned = 0;
		gate_init(&comers.gate);
		fault_hold_thread(&comers.gate, error);
		in_parallel(5, come, &comers);

		assert_u64(fault_disarm(), error == 0 ? 1 : 4);
		assert_u64(comers.returned_early, 0);
		for (unsigned i = 0; i < 4; i++)
			assert_rc(comers.rc[i], -error);
		assert_u64(
		    hwt_pending_timeouts(comers.timer), error == 0 ? 3 : 0);
		worker_timer_close(comers.timer);
	}
}

/* Stop. */

static void
assert_empty(const struct hwt_unprocessed *list)
{
	static const struct hwt_unprocessed empty;

	cr_assert(memcmp(list, &empty, sizeof(empty)) == 0);
}

ManualTest(lifecycle, first_stop_gets_the_list_and_later_ones_get_none)
{
	struct hwt_unprocessed first, second;
	struct hwt_timeout_info info;

	for (unsigned i = 0; i < 3; i++)
		schedule_forbidden(HWT_MIN(1));

	assert_ok(hwt_stop(manual.timer, &first));
	memset(&second, 0xa5, sizeof(second));
	assert_ok(hwt_stop(manual.timer, &second));

	assert_u64(first.count, 3);
	assert_empty(&second);
	cr_assert(!hwt_unprocessed_next(&second, &info));
	assert_ok(hwt_stop_within(manual.timer, 0, &second));
	assert_empty(&second);
}

struct stopper {
	struct hwt_unprocessed list;
	uint64_t runs_at_return;
	int rc;
};

static void
stop_running(unsigned index, void *arg)
{
	struct stopper *stopper = (struct stopper *)arg + index;

	if (index == 3) {
		while (hwt_start(live.timer) == 0)
			sleep_ns(HWT_MS(1));
		sleep_ns(HWT_MS(20));
		gate_open(&running.gate);
		return;
	}
	stopper->rc = index == 2
	    ? hwt_stop_within(live.timer, HWT_NEVER, &stopper->list)
	    : hwt_stop(live.timer, &stopper->list);
	stopper->runs_at_return = running.probe.runs;
}

RunningTest(lifecycle, stops_wait_for_the_running_task_and_one_gets_the_list)
{
	static struct stopper stoppers[4];
	uint64_t count = 0;

	schedule_task(live.timer, forbidden_task, HWT_MIN(1));

	in_parallel(4, stop_running, stoppers);

	for (unsigned i = 0; i < 3; i++) {
		assert_ok(stoppers[i].rc);
		assert_u64(stoppers[i].runs_at_return, 1);
		count += stoppers[i].list.count;
	}
	assert_u64(count, 1);
}

RunningTest(lifecycle, stop_within_times_out_and_the_list_is_still_to_be_had)
{
	uint64_t before_ns = monotonic_ns();
	struct hwt_unprocessed list;

	schedule_task(live.timer, forbidden_task, HWT_MIN(1));
	memset(&list, 0xa5, sizeof(list));
	assert_rc(hwt_stop_within(live.timer, 0, &list), -ETIMEDOUT);
	assert_empty(&list);
	assert_rc(hwt_stop_within(live.timer, HWT_MS(20), &list), -ETIMEDOUT);
	cr_assert(monotonic_ns() - before_ns >= HWT_MS(20));
	assert_rc(hwt_start(live.timer), -ESHUTDOWN);
	assert_rc(hwt_destroy(live.timer), -EBUSY);
	gate_open(&running.gate);

	assert_ok(hwt_stop_within(live.timer, HWT_MIN(1), &list));
	assert_u64(list.count, 1);
	assert_u64(running.probe.runs, 1);
}

/* The list. */

static struct hwt_timeout_info
stop_with_one_left(void)
{
	struct hwt_timeout_info info, another;
	struct hwt_unprocessed list;

	memset(&info, 0xa5, sizeof(info));
	assert_ok(hwt_stop(manual.timer, &list));
	assert_u64(list.count, 1);
	cr_assert(!hwt_unprocessed_next(&list, NULL));
	cr_assert(hwt_unprocessed_next(&list, &info));
	cr_assert(!hwt_unprocessed_next(&list, &another));
	assert_u64(list.count, 1);
	return info;
}

ManualTest(lifecycle, list_tells_all_about_a_timeout)
{
	struct hwt_timeout_info info;
	hwt_timeout timeout;
	int arg;

	executor_init(&recorder, EXECUTOR_HOLDS);
	assert_ok(hwt_new_periodic(manual.timer, &recorder.hook, &timeout,
	    forbidden_task, &arg, HWT_MS(3), HWT_SEC(7)));
	manual.now_ns += HWT_US(700);

	info = stop_with_one_left();

	assert_u64(info.timeout.id, timeout.id);
	cr_assert(info.task == forbidden_task && info.arg == &arg);
	assert_i64(info.remaining_ns, (int64_t)HWT_US(2300));
	assert_u64(info.period_ns, HWT_SEC(7));
	cr_assert(info.executor == &recorder.hook);
	cr_assert(info.reserved[0] == 0 && info.reserved[1] == 0);
	cr_assert(!hwt_unprocessed_next(NULL, &info));
}
