/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start, stop, stop_within, destroy: their order, who waits for whom, who gets
 * the list of unprocessed timeouts, and what each answers in every state.
 */
#include "test/spec/support_promises.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

SUITE(lifecycle);

static struct recording_executor executor;

static const struct hwt_unprocessed no_list;

static struct hwt_unprocessed
garbage_list(void)
{
	struct hwt_unprocessed list;

	memset(&list, 0xa5, sizeof(list));
	return list;
}

static void
assert_no_list(const struct hwt_unprocessed *list)
{
	cr_assert(memcmp(list, &no_list, sizeof(no_list)) == 0,
	    "the list is not all zero");
}

static void
schedule_forbidden(struct hwt *timer, unsigned count)
{
	while (count-- > 0) {
		assert_ok(hwt_new_timeout(
		    timer, NULL, forbidden_task, NULL, HWT_MIN(1)));
	}
}

/* Start. */

Test(lifecycle, create_makes_no_thread_and_start_makes_one)
{
	struct hwt *timer;

	fault_arm(FAULT_THREAD, FAULT_COUNT);
	timer = worker_timer_open(HWT_MS(1));
	assert_u64(fault_disarm(), 0);

	fault_arm(FAULT_THREAD, FAULT_COUNT);
	assert_ok(hwt_start(timer));
	assert_u64(fault_disarm(), 1);

	worker_timer_close(timer);
}

ManualTest(lifecycle, start_of_a_manual_timer_or_of_null_is_refused)
{
	assert_rc(hwt_start(manual.timer), -EINVAL);
	assert_rc(hwt_start(NULL), -EINVAL);
}

WorkerTest(lifecycle, a_timer_stopped_before_its_first_start_never_starts)
{
	fault_arm(FAULT_THREAD, FAULT_COUNT);
	assert_ok(hwt_stop(live.timer, NULL));
	assert_rc(hwt_start(live.timer), -ESHUTDOWN);
	assert_rc(hwt_new_timeout(live.timer, NULL, forbidden_task, NULL, 0),
	    -ESHUTDOWN);

	assert_u64(fault_disarm(), 0);
}

WorkerTest(lifecycle, without_a_thread_the_first_timeout_is_refused)
{
	struct hwt_spec specs[2] = {
	    {.task = forbidden_task}, {.task = forbidden_task, .period_ns = 1}};
	hwt_timeout timeouts[3] = {{1}, {1}, {1}};

	fault_arm_thread(EPERM); /* whatever keeps one from being made */
	assert_rc(hwt_start(live.timer), -EAGAIN);
	assert_rc(hwt_new_timeout(live.timer, &timeouts[0], forbidden_task,
		      NULL, HWT_MS(1)),
	    -EAGAIN);
	assert_rc(
	    hwt_new_timeouts(live.timer, 2, specs, &timeouts[1]), -EAGAIN);
	assert_rc(
	    hwt_new_timeout_on(live.timer, NULL, NULL, forbidden_task, NULL, 0),
	    -EAGAIN);
	fault_disarm();

	assert_u64(timeouts[0].id, 0);
	assert_u64(timeouts[1].id, 0);
	assert_u64(timeouts[2].id, 0);
	assert_u64(hwt_pending_timeouts(live.timer), 0);
}

WorkerTest(
    lifecycle, without_memory_for_a_thread_start_fails_and_may_be_repeated)
{
	hwt_timeout timeout = {1};
	static struct probe probe = {0};

	fault_arm_thread(ENOMEM);
	assert_rc(hwt_start(live.timer), -ENOMEM);
	assert_rc(
	    hwt_new_timeout(live.timer, &timeout, forbidden_task, NULL, 0),
	    -ENOMEM);
	assert_rc(
	    hwt_new_timeout_on(live.timer, NULL, NULL, forbidden_task, NULL, 0),
	    -ENOMEM);
	fault_disarm();
	assert_u64(timeout.id, 0);
	assert_u64(hwt_pending_timeouts(live.timer), 0);

	assert_ok(hwt_start(live.timer));
	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);
}

static void
then_use_another(struct probe *probe)
{
	struct hwt_unprocessed list;
	struct hwt *timer = worker_timer_open(HWT_MS(1));

	schedule_forbidden(timer, 2);
	assert_ok(hwt_stop(timer, &list));
	assert_u64(list.count, 2);
	probe->rc = hwt_destroy(timer);
}

ManualTest(lifecycle, a_task_may_make_use_stop_and_destroy_another_timer)
{
	struct probe probe = {.then = then_use_another, .rc = 77};

	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_ok(probe.rc);
}

/* One who starts, and others who come while pthread_create is under way. */
struct late_comers {
	struct hwt *timer;
	struct gate *gate;
	int rc[4];
	_Atomic uint64_t returned;
	uint64_t returned_early;
};

static void
come_for_the_start(unsigned index, void *arg)
{
	struct late_comers *late = arg;

	if (index == 4) {
		sleep_ns(HWT_MS(30));
		late->returned_early = late->returned;
		for (index = 0; index < 4; index++)
			gate_open(late->gate);
		return;
	}
	if (index == 0)
		late->rc[index] = hwt_start(late->timer);
	else
		late->rc[index] = hwt_new_timeout(
		    late->timer, NULL, forbidden_task, NULL, HWT_MIN(1));
	late->returned++;
}

static void
come_while_one_starts(struct late_comers *late, int error)
{
	static struct gate gate;

	gate_init(&gate);
	*late = (struct late_comers){
	    .timer = worker_timer_open(HWT_MS(1)), .gate = &gate};
	fault_hold_thread(&gate, error);
	in_parallel(5, come_for_the_start, late);
}

Test(lifecycle, who_comes_while_one_starts_waits_for_that_thread)
{
	struct late_comers late;

	come_while_one_starts(&late, 0);

	assert_u64(fault_disarm(), 1);
	assert_u64(late.returned_early, 0);
	for (unsigned index = 0; index < 4; index++)
		assert_ok(late.rc[index]);
	assert_u64(hwt_pending_timeouts(late.timer), 3);
	worker_timer_close(late.timer);
}

Test(lifecycle, who_comes_while_a_start_fails_waits_and_gets_the_failure)
{
	struct late_comers late;

	come_while_one_starts(&late, EAGAIN);

	fault_disarm();
	assert_u64(late.returned_early, 0);
	for (unsigned index = 0; index < 4; index++)
		assert_rc(late.rc[index], -EAGAIN);
	assert_u64(hwt_pending_timeouts(late.timer), 0);
	assert_ok(hwt_start(late.timer));
	worker_timer_close(late.timer);
}

/* Stop. */

Test(lifecycle, stop_of_null_is_refused_and_zeroes_the_list)
{
	struct hwt_unprocessed list = garbage_list();

	assert_rc(hwt_stop(NULL, &list), -EINVAL);
	assert_no_list(&list);

	list = garbage_list();
	assert_rc(hwt_stop_within(NULL, 0, &list), -EINVAL);
	assert_no_list(&list);
}

ManualTest(lifecycle, only_the_first_stop_gets_the_list)
{
	struct hwt_unprocessed first = garbage_list();
	struct hwt_unprocessed second = garbage_list();
	struct hwt_timeout_info info;

	schedule_forbidden(manual.timer, 3);

	assert_ok(hwt_stop(manual.timer, &first));
	assert_ok(hwt_stop(manual.timer, &second));

	assert_u64(first.count, 3);
	assert_u64(second.count, 0);
	cr_assert(!hwt_unprocessed_next(&second, &info));
	cr_assert(hwt_unprocessed_next(&first, &info));
	assert_ok(hwt_stop_within(manual.timer, 0, &second));
	assert_u64(second.count, 0);
}

ManualTest(lifecycle, a_first_stop_that_wants_no_list_drops_it)
{
	struct hwt_unprocessed list = garbage_list();

	schedule_forbidden(manual.timer, 3);

	assert_ok(hwt_stop(manual.timer, NULL));
	assert_ok(hwt_stop(manual.timer, &list));

	assert_u64(list.count, 0);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

ManualTest(lifecycle, stop_within_0_of_an_idle_timer_succeeds)
{
	struct hwt_unprocessed list = garbage_list();

	schedule_forbidden(manual.timer, 2);

	assert_ok(hwt_stop_within(manual.timer, 0, &list));

	assert_u64(list.count, 2);
}

ManualTest(lifecycle, after_stop_every_call_knows_that_it_is_over)
{
	struct probe probe = {0};
	hwt_timeout timeout = {1};
	uint64_t tasks_started = 77;
	int64_t remaining_ns;
	hwt_timeout was;

	was = probe_schedule(&probe, HWT_MS(1));
	assert_ok(hwt_stop(manual.timer, NULL));

	assert_rc(
	    hwt_new_timeout(manual.timer, &timeout, forbidden_task, NULL, 0),
	    -ESHUTDOWN);
	assert_u64(timeout.id, 0);
	assert_rc(hwt_cancel(manual.timer, was), -ENOENT);
	assert_rc(hwt_cancel_wait(manual.timer, was), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, was, 0), -ENOENT);
	assert_rc(hwt_remaining(manual.timer, was, &remaining_ns), -ENOENT);
	assert_rc(hwt_run(manual.timer, was), -ENOENT);
	assert_rc(hwt_advance(manual.timer, &tasks_started), -ESHUTDOWN);
	assert_u64(tasks_started, 77);
	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_u64(manual_stats().scheduled, 1);
	assert_u64(manual_stats().cancelled, 0);
	assert_u64(probe.runs, 0);
}

ManualTest(lifecycle, what_is_due_but_not_begun_is_given_back_not_run)
{
	struct hwt_unprocessed list;

	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_MS(1)));
	manual.now_ns += HWT_MS(5);

	assert_ok(hwt_stop(manual.timer, &list));

	assert_u64(list.count, 1);
}

/* A stop that meets a task which does not return. */

struct stopper {
	struct hwt *timer;
	struct probe *probe;
	struct hwt_unprocessed list;
	uint64_t runs_at_return;
	int rc;
	_Atomic uint64_t returned;
};

static void *
stopper_main(void *arg)
{
	struct stopper *stopper = arg;

	stopper->rc = hwt_stop(stopper->timer, &stopper->list);
	stopper->runs_at_return = stopper->probe->runs;
	stopper->returned = 1;
	return NULL;
}

RunningTest(lifecycle, all_who_stop_wait_for_the_same_end_and_one_gets_the_list)
{
	struct stopper stoppers[3];
	pthread_t threads[3];
	uint64_t lists = 0;

	schedule_forbidden(live.timer, 2);
	for (size_t index = 0; index < 3; index++) {
		stoppers[index] = (struct stopper){
		    .timer = live.timer, .probe = &running.probe};
		pthread_create(
		    &threads[index], NULL, stopper_main, &stoppers[index]);
	}
	while (hwt_start(live.timer) == 0)
		sleep_ns(HWT_MS(1));
	assert_rc(hwt_stop_within(live.timer, HWT_MS(5), NULL), -ETIMEDOUT);
	gate_open(&running.gate);

	for (size_t index = 0; index < 3; index++) {
		pthread_join(threads[index], NULL);
		assert_ok(stoppers[index].rc);
		assert_u64(stoppers[index].runs_at_return, 1);
		lists += stoppers[index].list.count == 2;
		cr_assert(stoppers[index].list.count % 2 == 0);
	}
	assert_u64(lists, 1);
}

RunningTest(lifecycle, stop_within_gives_up_and_the_list_is_still_to_be_had)
{
	struct hwt_unprocessed list = garbage_list();
	hwt_timeout timeout = {1};

	schedule_forbidden(live.timer, 3);
	assert_rc(hwt_stop_within(live.timer, 0, &list), -ETIMEDOUT);
	assert_no_list(&list);
	assert_rc(hwt_stop_within(live.timer, HWT_MS(20), &list), -ETIMEDOUT);
	assert_rc(hwt_start(live.timer), -ESHUTDOWN);
	assert_rc(
	    hwt_new_timeout(live.timer, &timeout, forbidden_task, NULL, 0),
	    -ESHUTDOWN);
	assert_u64(timeout.id, 0);
	assert_rc(hwt_destroy(live.timer), -EBUSY);
	gate_open(&running.gate);

	assert_ok(hwt_stop_within(live.timer, HWT_MIN(1), &list));
	assert_u64(list.count, 3);
	assert_u64(running.probe.runs, 1);
}

WorkerTest(lifecycle, a_stop_in_the_middle_of_a_tick_gives_the_rest_of_it_back)
{
	static struct gate gate;
	static struct probe probe = {.then = probe_then_gate, .data = &gate};
	struct hwt_spec specs[5];
	struct hwt_unprocessed list;

	gate_init(&gate);
	for (size_t index = 0; index < 5; index++)
		specs[index] =
		    (struct hwt_spec){.task = probe_task, .arg = &probe};
	assert_ok(hwt_new_timeouts(live.timer, 5, specs, NULL));
	gate_await(&gate);
	assert_rc(hwt_stop_within(live.timer, 0, NULL), -ETIMEDOUT);
	gate_open(&gate);

	assert_ok(hwt_stop(live.timer, &list));

	assert_u64(list.count, 4);
	assert_u64(probe.runs, 1);
}

/* Long enough for one who does not wait to be back. */
static void *
open_when_it_stops(void *gate)
{
	sleep_ns(HWT_MS(100));
	gate_open(gate);
	return NULL;
}

RunningTest(lifecycle, stop_within_never_waits_as_stop_does)
{
	struct hwt_unprocessed list;
	pthread_t thread;

	schedule_forbidden(live.timer, 1);
	pthread_create(&thread, NULL, open_when_it_stops, &running.gate);

	assert_ok(hwt_stop_within(live.timer, HWT_NEVER, &list));

	pthread_join(thread, NULL);
	assert_u64(list.count, 1);
}

RunningTest(lifecycle, stop_within_does_not_give_up_early)
{
	uint64_t before_ns;

	before_ns = monotonic_ns();

	assert_rc(hwt_stop_within(live.timer, HWT_MS(50), NULL), -ETIMEDOUT);

	cr_assert(monotonic_ns() - before_ns >= HWT_MS(50));
	gate_open(&running.gate);
}

/* While a task is at the gate, the timer is being stopped. */
static void *
advancing_main(void *arg)
{
	struct fixture *fixture = arg;

	hwt_advance(fixture->timer, NULL);
	return NULL;
}

ManualTest(
    lifecycle, stop_of_a_manual_timer_waits_for_the_advance_that_is_under_way)
{
	struct gate gate;
	struct probe probe = {.then = probe_then_gate, .data = &gate};
	struct hwt_unprocessed list;
	pthread_t thread;

	gate_init(&gate);
	probe_schedule(&probe, HWT_MS(1));
	schedule_forbidden(manual.timer, 4);
	manual.now_ns += HWT_MS(1);
	pthread_create(&thread, NULL, advancing_main, &manual);
	gate_await(&gate);

	assert_rc(hwt_stop_within(manual.timer, 0, &list), -ETIMEDOUT);
	gate_open(&gate);
	assert_ok(hwt_stop(manual.timer, &list));

	assert_u64(probe.runs, 1);
	assert_u64(list.count, 4);
	pthread_join(thread, NULL);
}

/* Stop from a task. */

static void
then_stop(struct probe *probe)
{
	struct hwt_unprocessed list = garbage_list();

	probe->rc = hwt_stop(probe->data, &list);
	if (probe->rc != 0)
		assert_no_list(&list);
	list = garbage_list();
	assert_rc(hwt_stop_within(probe->data, HWT_SEC(1), &list), probe->rc);
	if (probe->rc != 0)
		assert_no_list(&list);
}

ManualTest(lifecycle, stop_from_an_inline_task_of_a_manual_timer_is_a_deadlock)
{
	struct probe probe = {.then = then_stop};
	struct probe later = {0};

	probe.data = manual.timer;
	probe_schedule(&probe, HWT_MS(1));
	probe_schedule(&later, HWT_MS(2));

	assert_u64(manual_tick(1), 1);
	assert_rc(probe.rc, -EDEADLK);

	assert_u64(manual_tick(2), 1);
	assert_u64(later.runs, 1);
}

WorkerTest(lifecycle, stop_from_a_task_in_the_worker_is_a_deadlock)
{
	static struct probe probe = {.then = then_stop};

	probe.data = live.timer;
	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);

	assert_rc(probe.rc, -EDEADLK);
}

/* What then gets in a task that an executor held at a stop. */
static int
rc_after_stop(void (*then)(struct probe *))
{
	struct probe probe = {.then = then, .data = manual.timer};

	probe_schedule(&probe, 0);
	manual_tick(1);
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_ok(executor_run(&executor, 0));
	return probe.rc;
}

ExecutorTest(lifecycle, stop_from_a_held_task_is_a_deadlock_after_a_stop_too,
    EXECUTOR_HOLDS)
{
	assert_rc(rc_after_stop(then_stop), -EDEADLK);
}

static void
then_advance_other(struct probe *probe)
{
	struct fixture *other = probe->data;

	assert_u64(fixture_tick(other, 1), 1);
}

ManualTest(lifecycle, a_task_of_another_timer_inside_the_task_does_not_hide_it)
{
	static struct fixture other;
	struct probe outer = {.then = then_advance_other, .data = &other};
	struct probe inner = {.fixture = &other, .then = then_stop};

	fixture_open(&other, NULL);
	inner.data = manual.timer;
	probe_schedule(&outer, 0);
	probe_schedule(&inner, 0);

	assert_u64(manual_tick(1), 1);

	assert_u64(inner.runs, 1);
	assert_rc(inner.rc, -EDEADLK);
	fixture_close(&other);
}

static int
execute_stop(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	int *rc = ctx;

	(void)timeout;
	*rc = hwt_stop(timer, NULL);
	return -EAGAIN;
}

/* After a task in the same tick, and again in the next: it was no stop. */
WorkerTest(lifecycle, stop_inside_execute_is_a_deadlock_and_stops_nothing)
{
	static struct probe probes[3] = {{0}};
	int rc = 0;
	struct hwt_executor stopping = {.execute = execute_stop, .ctx = &rc};
	const struct hwt_spec specs[3] = {
	    {.task = probe_task, .arg = &probes[0]},
	    {.task = probe_task, .arg = &probes[1], .executor = &stopping},
	    {.task = probe_task, .arg = &probes[2]},
	};

	assert_ok(hwt_new_timeouts(live.timer, 3, specs, NULL));
	for (int i = 0; i < 3; i++)
		wait_for(&probes[i].runs, 1);
	assert_rc(rc, -EDEADLK);
	rc = 0;
	assert_ok(hwt_new_timeouts(live.timer, 3, specs, NULL));
	for (int i = 0; i < 3; i++)
		wait_for(&probes[i].runs, 2);
	assert_rc(rc, -EDEADLK);
}

Test(lifecycle, a_task_of_another_timer_may_stop_this_one)
{
	static struct fixture other;
	struct probe probe = {.fixture = &other, .then = then_stop};

	manual_open(NULL);
	fixture_open(&other, NULL);
	probe.data = manual.timer;
	probe_schedule(&probe, 0);

	assert_u64(fixture_tick(&other, 1), 1);

	assert_ok(probe.rc);
	assert_ok(hwt_destroy(manual.timer));
	fixture_close(&other);
}

/* Destroy. */

static void
then_destroy(struct probe *probe)
{
	probe->rc = hwt_destroy(probe->data);
}

Test(lifecycle, destroy_of_null_is_0)
{
	assert_ok(hwt_destroy(NULL));
}

ManualTest(lifecycle, destroy_before_stop_is_busy)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));

	assert_rc(hwt_destroy(manual.timer), -EBUSY);
	assert_rc(hwt_destroy(timer), -EBUSY);
	assert_ok(hwt_start(timer));
	assert_rc(hwt_destroy(timer), -EBUSY);

	worker_timer_close(timer);
}

ExecutorTest(lifecycle, destroy_from_its_own_held_task_is_busy, EXECUTOR_HOLDS)
{
	assert_rc(rc_after_stop(then_destroy), -EBUSY);
}

ExecutorTest(lifecycle,
    a_periodic_timeout_that_is_handed_over_at_stop_runs_once_more,
    EXECUTOR_HOLDS)
{
	struct probe probe = {0};
	struct hwt_unprocessed list;

	probe_schedule_periodic(&probe, 0, HWT_MS(1));
	manual_tick(1);
	assert_ok(hwt_stop(manual.timer, &list));
	assert_u64(list.count, 0);

	assert_ok(executor_run(&executor, 0));

	assert_u64(probe.runs, 1);
	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_rc(hwt_cancel(manual.timer, probe.handle), -ENOENT);
}

RunningPeriodicTest(
    lifecycle, a_periodic_timeout_that_is_running_at_stop_runs_its_last)
{
	struct hwt_unprocessed list;

	assert_rc(hwt_stop_within(live.timer, 0, NULL), -ETIMEDOUT);
	gate_open(&running.gate);
	assert_ok(hwt_stop(live.timer, &list));

	assert_u64(list.count, 0);
	assert_u64(running.probe.runs, 1);
	assert_u64(hwt_pending_timeouts(live.timer), 0);
}

/* The worker's thread and its thread-specific data. */

struct departure {
	struct hwt *timer;
	pthread_key_t key;
	struct gate gate;
	int rc;
};

static void
then_leave_departure(struct probe *probe)
{
	struct departure *departure = probe->data;

	pthread_setspecific(departure->key, departure);
}

static unsigned joins_tried;

int __real_pthread_tryjoin_np(pthread_t thread, void **result);
int __wrap_pthread_tryjoin_np(pthread_t thread, void **result);

int
__wrap_pthread_tryjoin_np(pthread_t thread, void **result)
{
	joins_tried++;
	return __real_pthread_tryjoin_np(thread, result);
}

static void
departure_at_gate(void *arg)
{
	struct departure *departure = arg;

	gate_pass(&departure->gate);
}

static void
departure_stops(void *arg)
{
	struct departure *departure = arg;

	departure->rc = hwt_stop_within(departure->timer, HWT_MS(1), NULL);
	if (departure->rc == -EDEADLK)
		departure->rc = hwt_stop(departure->timer, NULL);
}

/* A timer whose worker will call destroy when it ends. */
static void
departure_open(struct departure *departure, void (*destroy)(void *))
{
	struct probe probe = {.then = then_leave_departure, .data = departure};

	departure->timer = worker_timer_open(HWT_MS(1));
	departure->rc = 1;
	gate_init(&departure->gate);
	cr_assert(pthread_key_create(&departure->key, destroy) == 0);
	schedule_forbidden(departure->timer, 2);
	assert_ok(
	    hwt_new_timeout(departure->timer, NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);
}

/* And not in a loop that takes the processor from others: it pauses for a tenth
 * of a millisecond each time. */
Test(lifecycle, who_waits_for_the_end_of_the_workers_thread_sleeps)
{
	static struct departure departure;

	departure_open(&departure, departure_at_gate);
	assert_rc(hwt_stop_within(departure.timer, 0, NULL), -ETIMEDOUT);
	gate_await(&departure.gate);
	joins_tried = 0;

	assert_rc(
	    hwt_stop_within(departure.timer, HWT_MS(500), NULL), -ETIMEDOUT);

	cr_assert(joins_tried > 0 && joins_tried <= 5000 + 2);
	gate_open(&departure.gate);
	assert_ok(hwt_stop(departure.timer, NULL));
	assert_ok(hwt_destroy(departure.timer));
}

Test(lifecycle, nor_does_a_destructor_of_the_workers_thread_wait_for_itself)
{
	static struct departure departure;
	struct hwt_unprocessed list;

	departure_open(&departure, departure_stops);

	assert_ok(hwt_stop(departure.timer, &list));

	assert_rc(departure.rc, -EDEADLK);
	assert_u64(list.count, 2);
	assert_ok(hwt_destroy(departure.timer));
}

/* Between the end of the worker's thread and the moment when the stop knows of
 * it, another thread may get the same pthread_t. */

static struct successor {
	struct hwt *timer;
	pthread_t joined;
	bool same;
	int rc;
} successor;

int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

static void *
successor_main(void *arg)
{
	(void)arg;
	successor.same = pthread_equal(pthread_self(), successor.joined) != 0;
	successor.rc = hwt_stop_within(successor.timer, HWT_MS(1), NULL);
	return NULL;
}

int
__wrap_pthread_join(pthread_t thread, void **result)
{
	int error = __real_pthread_join(thread, result);
	pthread_t next;

	if (successor.timer == NULL)
		return error;
	successor.joined = thread;
	cr_assert(pthread_create(&next, NULL, successor_main, NULL) == 0);
	cr_assert(__real_pthread_join(next, NULL) == 0);
	successor.timer = NULL;
	return error;
}

WorkerTest(
    lifecycle, a_thread_with_the_pthread_t_of_an_ended_worker_is_not_that_one)
{
	assert_ok(hwt_start(live.timer));
	successor.timer = live.timer;

	assert_ok(hwt_stop(live.timer, NULL));

	if (!successor.same)
		cr_log_info("the C library did not use that pthread_t again");
	assert_rc(successor.rc, -ETIMEDOUT);
}

#if !WITH_ASAN

/* arg: where stderr goes. */
static void
destroy_twice(void *arg)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));

	child_ok(hwt_stop(timer, NULL));
	child_ok(hwt_destroy(timer));
	(void)dup2(*(int *)arg, STDERR_FILENO);
	(void)!hwt_destroy(timer);
}

Test(lifecycle, a_second_destroy_says_so_and_aborts)
{
	char text[256] = "";
	int ends[2];

	cr_assert(pipe(ends) == 0);

	assert_u64((uint64_t)child_reap(child_fork(destroy_twice, &ends[1])),
	    256 + SIGABRT);

	close(ends[1]);
	cr_assert(read(ends[0], text, sizeof(text) - 1) > 0);
	cr_assert(strstr(text, "hwt_destroy") != NULL, "%s", text);
	close(ends[0]);
}

#endif
