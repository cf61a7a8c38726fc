/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each error that hwt.h lists for a function, but for those that other suites
 * show: in tables of calls and of the states that a timer or a timeout can be
 * in. On failure nothing has changed, but that a handle argument is {0};
 * hwt_touch leaves it as it is. Children get -EOWNERDEAD: fork.c.
 */
#include "test/spec/support.h"

SUITE(errors);

#define OUT_OF_RANGE (UINT64_C(1) << 63)

static const struct hwt_executor hollow;

/* The calls that schedule, with an argument that spoils them. */

static int
call_new_timeout(struct hwt *timer, hwt_timeout *timeout, uint64_t delay_ns)
{
	return hwt_new_timeout(timer, timeout, forbidden_task, NULL, delay_ns);
}

static int
call_new_timeout_on(struct hwt *timer, hwt_timeout *timeout, uint64_t delay_ns)
{
	return hwt_new_timeout_on(timer, delay_ns != 0 ? &hollow : NULL,
	    timeout, forbidden_task, NULL, 0);
}

static int
call_new_timeout_at(struct hwt *timer, hwt_timeout *timeout, uint64_t delay_ns)
{
	return hwt_new_timeout_at(timer, NULL, timeout,
	    delay_ns != 0 ? NULL : forbidden_task, NULL, delay_ns);
}

static int
call_new_periodic(struct hwt *timer, hwt_timeout *timeout, uint64_t delay_ns)
{
	return hwt_new_periodic(timer, NULL, timeout, forbidden_task, NULL, 0,
	    delay_ns != 0 ? delay_ns : 1);
}

static int
call_touch(struct hwt *timer, hwt_timeout *timeout, uint64_t delay_ns)
{
	return hwt_touch(timer, NULL, timeout, forbidden_task, NULL, delay_ns);
}

#define NAME(call) #call

static const struct {
	const char *name;
	int (*call)(struct hwt *timer, hwt_timeout *timeout, uint64_t delay_ns);
	int errors[6];
} schedulers[] = {
    {NAME(hwt_new_timeout), call_new_timeout,
	{EINVAL, ESHUTDOWN, ENOBUFS, EAGAIN, ENOMEM}},
    {NAME(hwt_new_timeout_on), call_new_timeout_on,
	{EINVAL, ESHUTDOWN, ENOBUFS, EAGAIN, ENOMEM}},
    {NAME(hwt_new_timeout_at), call_new_timeout_at,
	{EINVAL, ESHUTDOWN, ENOBUFS, EAGAIN, ENOMEM}},
    {NAME(hwt_new_periodic), call_new_periodic,
	{EINVAL, ESHUTDOWN, ENOBUFS, EAGAIN, ENOMEM}},
    {NAME(hwt_touch), call_touch, {EINVAL, ESHUTDOWN, ENOBUFS, EAGAIN, ENOMEM}},
};

/* Brings a timer to where the error is due, calls, and looks what is left. */
static void
assert_refusal(unsigned which, int error)
{
	hwt_timeout timeout = {7};
	uint64_t pending = error == ENOBUFS;
	struct hwt *timer;
	int rc;

	assert_ok(hwt_create(&timer, &(struct hwt_options){.max_pending = 1}));
	if (pending != 0)
		schedule_task(timer, forbidden_task, HWT_NEVER);
	if (error == ESHUTDOWN)
		assert_ok(hwt_stop(timer, NULL));
	if (error == EAGAIN || error == ENOMEM)
		fault_arm(error == EAGAIN ? FAULT_THREAD : FAULT_MEMORY,
		    FAULT_ALWAYS);
	rc = schedulers[which].call(
	    timer, &timeout, error == EINVAL ? OUT_OF_RANGE : 0);
	fault_disarm();
	cr_assert(rc == -error, "%s: %s, not -%s", schedulers[which].name,
	    rc_name(rc), rc_name(-error));
	assert_u64(timeout.id, schedulers[which].call == call_touch ? 7 : 0);
	assert_u64(hwt_pending_timeouts(timer), pending);
	worker_timer_close(timer);
}

Test(errors, calls_that_schedule_refuse_and_change_nothing)
{
	for (unsigned which = 0; which < 5; which++)
		for (unsigned i = 0; i < 5; i++)
			assert_refusal(which, schedulers[which].errors[i]);
}

/* The calls that take a handle. */

static int
call_reschedule(struct hwt *timer, hwt_timeout timeout)
{
	return hwt_reschedule(timer, timeout, 1);
}

static int
call_reschedule_at(struct hwt *timer, hwt_timeout timeout)
{
	return hwt_reschedule_at(timer, timeout, HWT_NEVER);
}

static int
call_remaining(struct hwt *timer, hwt_timeout timeout)
{
	int64_t remaining_ns;

	return hwt_remaining(timer, timeout, &remaining_ns);
}

static int
call_state(struct hwt *timer, hwt_timeout timeout)
{
	return hwt_state(timer, timeout, NULL);
}

static const struct {
	const char *name;
	int (*call)(struct hwt *timer, hwt_timeout timeout);
	int held, running, ended, no_timer;
} handles[] = {
    {NAME(hwt_reschedule), call_reschedule, -EINPROGRESS, -EINPROGRESS, -ENOENT,
	-EINVAL},
    {NAME(hwt_reschedule_at), call_reschedule_at, -EINPROGRESS, -EINPROGRESS,
	-ENOENT, -EINVAL},
    {NAME(hwt_remaining), call_remaining, 0, -EINPROGRESS, -ENOENT, -EINVAL},
    {NAME(hwt_state), call_state, HWT_STATE_HANDED_OVER, HWT_STATE_RUNNING,
	-ENOENT, -EINVAL},
    {NAME(hwt_cancel), hwt_cancel, 0, -EINPROGRESS, -ENOENT, -EINVAL},
    {NAME(hwt_cancel_wait), hwt_cancel_wait, 0, -EDEADLK, -ENOENT, -EINVAL},
    {NAME(hwt_run), hwt_run, 0, -ENOENT, -ENOENT, -EINVAL},
};

static void
assert_answer(unsigned which, struct hwt *timer, hwt_timeout timeout, int rc)
{
	int is = handles[which].call(timer, timeout);

	cr_assert(is == rc, "%s: %s, not %s", handles[which].name, rc_name(is),
	    rc_name(rc));
}

static void
then_answer(struct probe *probe)
{
	unsigned which = *(unsigned *)probe->data;

	assert_answer(
	    which, manual.timer, probe->timeout, handles[which].running);
}

ExecutorTest(
    errors, calls_with_a_handle_answer_as_the_timeout_is, EXECUTOR_HOLDS)
{
	for (unsigned which = 0; which < 7; which++) {
		struct probe probe = {.then = then_answer, .data = &which};

		executor_init(&recorder, EXECUTOR_HOLDS);
		probe_schedule(&probe, 0);
		manual_step(FIXTURE_TICK);
		assert_answer(
		    which, manual.timer, probe.handle, handles[which].held);
		if (handles[which].call != hwt_run)
			(void)executor_run(&recorder, 0);
		assert_answer(
		    which, manual.timer, probe.handle, handles[which].ended);
		assert_answer(
		    which, NULL, probe.handle, handles[which].no_timer);
	}
}

static _Atomic uint64_t periodic_asked;

static void
ask_while_it_runs(unsigned index, void *arg)
{
	struct probe *probe = arg;
	hwt_timeout timeout = probe->timeout;

	(void)index;
	assert_rc(hwt_reschedule(manual.timer, timeout, 0), -EINPROGRESS);
	assert_rc(
	    hwt_touch(manual.timer, NULL, &timeout, forbidden_task, NULL, 0),
	    -EINPROGRESS);
	assert_u64(timeout.id, probe->timeout.id);
	periodic_asked++;
}

static void
then_be_asked(struct probe *probe)
{
	in_parallel(1, ask_while_it_runs, probe);
}

ManualTest(errors, periodic_task_that_runs_is_moved_by_no_other_thread)
{
	struct probe probe = {.then = then_be_asked};

	probe_periodic(&probe, 0, TICKS(5));

	assert_u64(manual_tick(1), 1);

	assert_u64(periodic_asked, 1);
}

/* The rest. */

ManualTest(errors, einval_for_missing_arguments)
{
	hwt_timeout pending = schedule_forbidden(TICKS(3)), timeout = pending;
	struct hwt *const worker = worker_timer_open(HWT_MS(1));
	struct hwt *const timers[] = {NULL, worker};
	uint64_t number = 77;
	struct hwt_pool *pool;

	for (unsigned i = 0; i < 2; i++) {
		assert_rc(hwt_advance(timers[i], &number), -EINVAL);
		assert_rc(hwt_next_wakeup(timers[i], &number), -EINVAL);
	}
	assert_rc(hwt_next_wakeup(manual.timer, NULL), -EINVAL);
	assert_rc(hwt_start(manual.timer), -EINVAL);
	assert_rc(hwt_start(NULL), -EINVAL);
	assert_rc(hwt_stop(NULL, NULL), -EINVAL);
	assert_rc(hwt_stop_within(NULL, 0, NULL), -EINVAL);
	assert_rc(hwt_now(NULL, &number), -EINVAL);
	assert_rc(hwt_now(manual.timer, NULL), -EINVAL);
	assert_rc(hwt_remaining(manual.timer, pending, NULL), -EINVAL);
	assert_rc(hwt_read_stats(manual.timer, NULL), -EINVAL);
	assert_rc(hwt_reschedule(manual.timer, pending, OUT_OF_RANGE), -EINVAL);
	assert_rc(
	    hwt_touch(manual.timer, NULL, &timeout, NULL, NULL, 0), -EINVAL);
	assert_rc(
	    hwt_touch(manual.timer, NULL, NULL, idle_task, NULL, 0), -EINVAL);
	assert_rc(
	    hwt_new_periodic(manual.timer, NULL, NULL, idle_task, NULL, 0, 0),
	    -EINVAL);
	assert_rc(hwt_new_timeout(manual.timer, NULL, NULL, NULL, 0), -EINVAL);
	assert_rc(hwt_new_timeout(NULL, NULL, idle_task, NULL, 0), -EINVAL);
	assert_rc(hwt_create(NULL, NULL), -EINVAL);
	assert_rc(hwt_shared(NULL), -EINVAL);
	assert_rc(hwt_pool_create(NULL, 1, 0), -EINVAL);
	assert_rc(hwt_pool_create(&pool, 0, 0), -EINVAL);
	assert_rc(hwt_mailbox_create(NULL), -EINVAL);
	assert_rc(hwt_mailbox_fd(NULL), -EINVAL);
	assert_rc(hwt_mailbox_run(NULL, 0, NULL), -EINVAL);
	assert_rc(hwt_mailbox_post(NULL, NULL, NULL), -EINVAL);
	assert_rc(hwt_pool_post(NULL, NULL, NULL), -EINVAL);
	cr_assert(hwt_pool_executor(NULL) == NULL);
	cr_assert(hwt_mailbox_executor(NULL) == NULL);
	assert_ok(hwt_pool_destroy(NULL));
	assert_ok(hwt_mailbox_destroy(NULL));
	assert_u64(hwt_pending_timeouts(NULL), 0);
	cr_assert(!hwt_unprocessed_next(NULL, NULL));

	cr_assert(number == 77 && timeout.id == pending.id);
	assert_i64(manual_remaining(pending), (int64_t)TICKS(3));
	worker_timer_close(worker);
}

Test(errors, create_calls_fail_without_threads_memory_descriptors_or_clock)
{
	struct hwt_mailbox *mailbox = NULL;
	struct hwt_pool *pool = NULL;
	struct hwt *timer = NULL;
	static const int descriptors[] = {EMFILE, ENFILE, ENOMEM};

	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_rc(hwt_create(&timer, NULL), -ENOMEM);
	assert_rc(hwt_pool_create(&pool, 2, 0), -ENOMEM);
	assert_rc(hwt_mailbox_create(&mailbox), -ENOMEM);
	fault_arm(FAULT_CLOCK, FAULT_ALWAYS);
	assert_rc(hwt_create(&timer, NULL), -EAGAIN);
	for (uint64_t nth = 1; nth <= 4; nth++) {
		fault_arm(FAULT_THREAD, nth);
		assert_rc(hwt_pool_create(&pool, 4, 0), -EAGAIN);
		thread_await("hwt-pool", 0);
	}
	for (unsigned i = 0; i < 3; i++) {
		fault_arm_eventfd(descriptors[i]);
		assert_rc(hwt_mailbox_create(&mailbox), -descriptors[i]);
		cr_assert(descriptors[0] == EMFILE && descriptors[1] == ENFILE);
	}
	fault_disarm();

	cr_assert(timer == NULL && pool == NULL && mailbox == NULL);
}

static void
then_advance(struct probe *probe)
{
	uint64_t number = 77;

	probe->rc = hwt_advance(manual.timer, &number);
	assert_u64(number, 77);
}

ManualTest(errors, edeadlk_of_a_nested_advance_and_eshutdown_after_stop)
{
	struct probe probe = {.then = then_advance};

	probe_schedule(&probe, 0);
	assert_u64(manual_tick(1), 1);
	assert_rc(probe.rc, -EDEADLK);

	assert_ok(hwt_stop(manual.timer, NULL));
	assert_rc(hwt_advance(manual.timer, NULL), -ESHUTDOWN);
}

/* The slab, or the room in the wheel for its records. */
Test(errors, first_timeout_is_refused_whichever_allocation_fails)
{
	uint64_t nth = 0, calls;
	int rc;

	do {
		manual_open(NULL);
		fault_arm(FAULT_MEMORY, ++nth);
		rc = hwt_new_timeout(manual.timer, NULL, idle_task, NULL, 0);
		calls = fault_disarm();
		assert_rc(rc, calls < nth ? 0 : -ENOMEM);
		if (rc != 0)
			schedule_task(manual.timer, idle_task, 0);
		assert_u64(manual_tick(1), 1);
		manual_close();
	} while (rc != 0);

	cr_assert(calls >= 2);
}
