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
} schedulers[] = {
    {NAME(hwt_new_timeout), call_new_timeout},
    {NAME(hwt_new_timeout_on), call_new_timeout_on},
    {NAME(hwt_new_timeout_at), call_new_timeout_at},
    {NAME(hwt_new_periodic), call_new_periodic},
    {NAME(hwt_touch), call_touch},
};

static const int refusals[] = {EINVAL, ESHUTDOWN, ENOBUFS, EAGAIN, ENOMEM};

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
			assert_refusal(which, refusals[i]);
}

static void
then_ask(struct probe *probe)
{
	hwt_timeout timeout = probe->timeout;
	int64_t remaining_ns;

	assert_rc(hwt_reschedule(manual.timer, timeout, 0), -EINPROGRESS);
	assert_rc(
	    hwt_reschedule_at(manual.timer, timeout, HWT_NEVER), -EINPROGRESS);
	assert_rc(
	    hwt_remaining(manual.timer, timeout, &remaining_ns), -EINPROGRESS);
	assert_rc(hwt_cancel(manual.timer, timeout), -EINPROGRESS);
	assert_rc(hwt_cancel_wait(manual.timer, timeout), -EDEADLK);
	assert_rc(hwt_run(manual.timer, timeout), -ENOENT);
}

ExecutorTest(errors, timeout_that_is_held_or_runs_is_not_moved, EXECUTOR_HOLDS)
{
	struct probe probe = {.then = then_ask};

	probe_schedule(&probe, 0);
	manual_tick(1);
	assert_rc(hwt_reschedule(manual.timer, probe.handle, 0), -EINPROGRESS);
	assert_rc(hwt_reschedule_at(manual.timer, probe.handle, HWT_NEVER),
	    -EINPROGRESS);

	assert_ok(executor_run(&recorder, 0));

	assert_u64(probe.runs, 1);
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
	assert_rc(hwt_cancel(NULL, pending), -EINVAL);
	assert_rc(hwt_cancel_wait(NULL, pending), -EINVAL);
	assert_rc(hwt_reschedule(NULL, pending, 1), -EINVAL);
	assert_rc(hwt_reschedule_at(NULL, pending, 1), -EINVAL);
	assert_rc(hwt_state(NULL, pending, NULL), -EINVAL);
	assert_rc(hwt_run(NULL, pending), -EINVAL);
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
	assert_rc(hwt_shared(&timer), -ENOMEM);
	assert_rc(hwt_pool_create(&pool, 2, 0), -ENOMEM);
	assert_rc(hwt_mailbox_create(&mailbox), -ENOMEM);
	fault_arm(FAULT_CLOCK, FAULT_ALWAYS);
	assert_rc(hwt_create(&timer, NULL), -EAGAIN);
	fault_arm(FAULT_THREAD, FAULT_ALWAYS);
	assert_rc(hwt_shared(&timer), -EAGAIN);
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
	assert_ok(hwt_shared(&timer));
	assert_ok(hwt_shared_shutdown(NULL));
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
