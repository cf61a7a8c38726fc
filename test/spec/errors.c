/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls that schedule refuse, and arguments that are missing. On failure
 * nothing has changed, but that a handle argument is {0}; hwt_touch leaves it
 * as it is. Children get -EOWNERDEAD: fork.c. The model asks each call in every
 * state of a timeout, and with each call of the system failing.
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

static const struct {
	const char *name;
	int (*call)(struct hwt *timer, hwt_timeout *timeout, uint64_t delay_ns);
} schedulers[] = {
    {"hwt_new_timeout", call_new_timeout},
    {"hwt_new_timeout_on", call_new_timeout_on},
    {"hwt_new_timeout_at", call_new_timeout_at},
    {"hwt_new_periodic", call_new_periodic},
    {"hwt_touch", call_touch},
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

/* The rest. */

#define einval(call) assert_rc(call, -EINVAL)

ManualTest(errors, einval_for_missing_arguments)
{
	hwt_timeout pending = schedule_forbidden(TICKS(3)), timeout = pending;
	struct hwt *const worker = worker_timer_open(HWT_MS(1));
	struct hwt *const timers[] = {NULL, worker};
	struct hwt *const timer = manual.timer;
	uint64_t number = 77;
	struct hwt_pool *pool;

	for (unsigned i = 0; i < 2; i++) {
		einval(hwt_advance(timers[i], &number));
		einval(hwt_next_wakeup(timers[i], &number));
	}
	einval(hwt_next_wakeup(timer, NULL));
	einval(hwt_start(timer));
	einval(hwt_start(NULL));
	einval(hwt_stop(NULL, NULL));
	einval(hwt_stop_within(NULL, 0, NULL));
	einval(hwt_now(NULL, &number));
	einval(hwt_now(timer, NULL));
	einval(hwt_remaining(timer, pending, NULL));
	einval(hwt_read_stats(timer, NULL));
	einval(hwt_stats_write(NULL, stderr, HWT_JSON));
	einval(hwt_stats_write(timer, NULL, HWT_JSON));
	einval(hwt_stats_write(
	    timer, stderr, (enum hwt_format)(HWT_PROMETHEUS_SAMPLES + 1)));
	einval(hwt_dump(timer, NULL));
	einval(hwt_dump(NULL, stderr));
	einval(hwt_reschedule(timer, pending, OUT_OF_RANGE));
	einval(hwt_touch(timer, NULL, &timeout, NULL, NULL, 0));
	einval(hwt_touch(timer, NULL, NULL, idle_task, NULL, 0));
	einval(hwt_new_periodic(timer, NULL, NULL, idle_task, NULL, 0, 0));
	einval(hwt_new_timeout(timer, NULL, NULL, NULL, 0));
	einval(hwt_new_timeout(NULL, NULL, idle_task, NULL, 0));
	einval(hwt_cancel(NULL, pending));
	einval(hwt_cancel_wait(NULL, pending));
	einval(hwt_reschedule(NULL, pending, 1));
	einval(hwt_reschedule_at(NULL, pending, 1));
	einval(hwt_state(NULL, pending, NULL));
	einval(hwt_run(NULL, pending));
	einval(hwt_create(NULL, NULL));
	einval(hwt_shared(NULL));
	einval(hwt_pool_create(NULL, 1, 0));
	einval(hwt_pool_create(&pool, 0, 0));
	einval(hwt_mailbox_create(NULL));
	einval(hwt_mailbox_fd(NULL));
	einval(hwt_mailbox_run(NULL, 0, NULL));
	einval(hwt_mailbox_post(NULL, NULL, NULL));
	einval(hwt_pool_post(NULL, NULL, NULL));
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
