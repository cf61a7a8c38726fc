/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_dump: what is written about each timeout, and who may ask for it. Texts
 * are compared without the names of tasks, which depend on how the program is
 * linked.
 */
#include "test/spec/support.h"

#include <stdarg.h>

#include "test/spec/text.h"

SUITE(dump);

#define BOUNDARY(tick) (FIXTURE_START + TICKS(tick))
#define ENTRY " deadline %" PRIu64 " ns in %" PRIu64 " ns"

static char *
dump_of(const struct hwt *timer)
{
	return TEXT_OF(hwt_dump(timer, file));
}

/* What follows the line about the clock, without the names of tasks. */
__attribute__((format(printf, 1, 2))) static void
assert_dump(const char *format, ...)
{
	char *text = dump_of(manual.timer), *rest, *task, *arg;
	char expected[4096];
	va_list arguments;

	rest = strchr(strstr(text, "\nnow ") + 1, '\n') + 1;
	while ((task = strstr(rest, " task ")) != NULL) {
		arg = strstr(task, " arg ");
		memmove(task, arg, strlen(arg) + 1);
	}
	va_start(arguments, format);
	vsnprintf(expected, sizeof(expected), format, arguments);
	va_end(arguments);
	cr_assert_str_eq(rest, expected);
	free(text);
}

static hwt_timeout
schedule(uint64_t delay_ns, uintptr_t arg)
{
	hwt_timeout timeout;

	assert_ok(hwt_new_timeout(
	    manual.timer, &timeout, forbidden_task, (void *)arg, delay_ns));
	return timeout;
}

ManualTest(dump, begins_with_the_timer_and_its_clock)
{
	char *text = dump_of(manual.timer), expected[512];

	snprintf(expected, sizeof(expected),
	    "hwt timer %p: manual\n"
	    "tick_ns 1000000, ticks_per_wheel 8, flags 1\n"
	    "thread_name \"hwt-worker\"\n"
	    "now %" PRIu64 " ns, next tick 1 at %" PRIu64 " ns, 0 timeouts\n",
	    (void *)manual.timer, FIXTURE_START, BOUNDARY(1));
	cr_assert_str_eq(text, expected);
	free(text);
}

ManualTest(dump, each_timeout_says_where_it_is)
{
	hwt_timeout never = schedule(HWT_NEVER, 1);
	hwt_timeout far = schedule(TICKS(17), 0xa), queued;

	(void)manual_wait();
	executor_init(&recorder, EXECUTOR_HOLDS);
	assert_ok(hwt_new_periodic(manual.timer, &recorder.hook, &queued,
	    forbidden_task, (void *)7, TICKS(1), 333));

	assert_dump("%#" PRIx64 " never due arg 0x1\n%#" PRIx64
		    " at tick 17 (bucket 1, round 2)" ENTRY
		    " arg 0xa\n%#" PRIx64 " in the queue" ENTRY
		    " period 333 ns arg 0x7 executor %p\n",
	    never.id, far.id, BOUNDARY(17), TICKS(17), queued.id, BOUNDARY(1),
	    TICKS(1), (void *)&recorder.hook);

	manual_tick(1);
	assert_dump("%#" PRIx64 " never due arg 0x1\n%#" PRIx64
		    " at tick 17 (bucket 1, round 2)" ENTRY
		    " arg 0xa\n%#" PRIx64 " in an executor deadline %" PRIu64
		    " ns in 0 ns period 333 ns arg 0x7 executor %p\n",
	    never.id, far.id, BOUNDARY(17), TICKS(16), queued.id, BOUNDARY(1),
	    (void *)&recorder.hook);
	assert_ok(hwt_cancel(manual.timer, queued));
	(void)executor_run(&recorder, 0);
}

/* Who may ask. */

WorkerTest(dump, timer_with_a_worker_is_busy_until_it_is_stopped)
{
	assert_rc(hwt_dump(live.timer, stderr), -EBUSY);
	assert_ok(hwt_start(live.timer));
	assert_rc(hwt_dump(live.timer, stderr), -EBUSY);
	assert_ok(hwt_stop(live.timer, NULL));

	free(dump_of(live.timer));
}
