/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_cancel_wait waits for its own timeout alone, however late it goes to
 * sleep: its first call of futex is held here, until other timeouts have used
 * the record.
 */
#include "test/spec/support.h"

#include <stdarg.h>
#include <sys/syscall.h>

#include "core/timer.h"

SUITE(waited);

/* Before this thread next sleeps or wakes others. */
static _Thread_local void (*before_futex)(void);

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long
__wrap_syscall(long number, ...)
{
	void (*before)(void) = before_futex;
	long argument[6] = {0};
	va_list arguments;

	va_start(arguments, number);
	/* No other of the library has more than four. */
	for (int i = 0; i < (number == SYS_futex ? 6 : 4); i++)
		argument[i] = va_arg(arguments, long);
	va_end(arguments);
	before_futex = NULL;
	if (before != NULL)
		before();
	return __real_syscall(number, argument[0], argument[1], argument[2],
	    argument[3], argument[4], argument[5]);
}

static struct gate gate;

static void
stop_at_gate(void)
{
	gate_pass(&gate);
}

static struct waiter {
	struct hwt *timer;
	hwt_timeout timeout;
	void (*before_futex)(void);
	pthread_t thread;
	_Atomic uint64_t ended;
} first, second;

static void *
waiter_main(void *arg)
{
	struct waiter *waiter = arg;

	before_futex = waiter->before_futex;
	assert_rc(hwt_cancel_wait(waiter->timer, waiter->timeout), -ENOENT);
	waiter->ended = 1;
	return NULL;
}

static void
waiter_start(struct waiter *waiter, struct probe *probe, void (*before)(void))
{
	waiter->timer = probe->fixture->timer;
	waiter->timeout = probe->timeout;
	waiter->before_futex = before;
	cr_assert(
	    pthread_create(&waiter->thread, NULL, waiter_main, waiter) == 0);
}

static void
then_hold_first(struct probe *probe)
{
	waiter_start(&first, probe, stop_at_gate);
	gate_await(&gate);
}

/* The first waiter goes to sleep while this later timeout of the same record
 * runs and is waited for, too. */
static void
then_let_first_on(struct probe *probe)
{
	const struct record *record =
	    record_find(&probe->fixture->timer->store, probe->timeout.id);

	waiter_start(&second, probe, NULL);
	while (!(wide_word(&record->wide) & FLAG_WAITED))
		sleep_ns(HWT_MS(1));
	gate_open(&gate);
	wait_for(&first.ended, 1);
}

ManualTest(waited, a_waiter_does_not_sleep_for_a_later_timeout_of_the_record)
{
	struct probe former = {.then = then_hold_first};
	struct probe later = {.then = then_let_first_on};
	hwt_timeout timeout;

	gate_init(&gate);
	probe_schedule(&former, 0);
	manual_tick(1);
	/* Others use the record, until one more would make the low half of its
	 * word the same again. */
	do {
		timeout =
		    schedule_task(manual.timer, forbidden_task, HWT_MS(5));
		assert_u64(
		    timeout.id & INDEX_MASK, former.timeout.id & INDEX_MASK);
		assert_ok(hwt_cancel(manual.timer, timeout));
	} while ((uint32_t)(timeout.id + GENERATION_ONE) !=
	    (uint32_t)former.timeout.id);
	probe_schedule(&later, 0);
	manual_tick(2);

	assert_u64(later.runs, 1);
	pthread_join(first.thread, NULL);
	pthread_join(second.thread, NULL);
}
