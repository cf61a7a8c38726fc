/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_dump: what is written about each timeout, and who may ask for it. The
 * texts are compared without the names of tasks, which depend on how the
 * program is linked.
 */
#include "test/spec/support_promises.h"
#include "test/spec/text.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SUITE(dump);

/* Of the fixture: the clock, and boundaries, as it prints them. */
#define START FIXTURE_START
#define BOUNDARY(tick) (START + (tick)*FIXTURE_TICK)

static struct recording_executor executor;

/* The caller frees it. */
static char *
dump_of(const struct hwt *timer)
{
	return TEXT_OF(hwt_dump(timer, file));
}

/* Takes the names of tasks out. */
static void
without_tasks(char *text)
{
	char *task, *arg;

	while ((task = strstr(text, " task ")) != NULL) {
		arg = strstr(task, " arg ");
		cr_assert(arg != NULL);
		memmove(task, arg, strlen(arg) + 1);
		text = task;
	}
}

/* What follows the line about the clock. */
static char *
after_now(char *text)
{
	return strchr(strstr(text, "\nnow ") + 1, '\n') + 1;
}

__attribute__((format(printf, 2, 3))) static void
assert_timeouts(const struct hwt *timer, const char *format, ...)
{
	char *text = dump_of(timer);
	char *rest = after_now(text);
	char expected[4096];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(expected, sizeof(expected), format, arguments);
	va_end(arguments);
	without_tasks(rest);
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

ManualTest(dump, null_is_refused)
{
	assert_rc(hwt_dump(NULL, stderr), -EINVAL);
	assert_rc(hwt_dump(manual.timer, NULL), -EINVAL);
}

ManualTest(dump, an_empty_timer_is_its_options_and_its_clock)
{
	char expected[512];
	char *text, *now;

	manual_tick(3);

	text = dump_of(manual.timer);

	now = strstr(text, "\nnow ") + 1;
	snprintf(expected, sizeof(expected),
	    "now %" PRIu64 " ns, next tick 4 at %" PRIu64 " ns, 0 timeouts\n",
	    BOUNDARY(3), BOUNDARY(4));
	cr_assert_str_eq(now, expected);
	*now = '\0';
	snprintf(expected, sizeof(expected),
	    "hwt timer %p: manual\ntick_ns 1000000, ticks_per_wheel 8, flags "
	    "1\n"
	    "max_pending 0, slow_task_ns 0\n"
	    "thread_name \"hwt-worker\", thread_attr %p\nclock ",
	    (void *)manual.timer, (void *)NULL);
	cr_assert(strstr(text, expected) == text, "%s", text);
	free(text);
}

static void
assert_callback(const char *text, const char *option, const void *ctx)
{
	char expected[64];
	const char *line = strstr(text, option);

	snprintf(expected, sizeof(expected), " ctx %p\n", ctx);
	cr_assert(line != NULL, "%s", text);
	line = strstr(line, " ctx ");
	cr_assert(strncmp(line, expected, strlen(expected)) == 0, "%s", text);
}

Test(dump, each_option_is_shown)
{
	const pthread_attr_t attributes = {0};
	char expected[128];
	char *text;

	executor_init(&executor, EXECUTOR_HOLDS);
	manual_open(&(struct hwt_options){.tick_ns = HWT_US(123),
	    .ticks_per_wheel = 33,
	    .flags = HWT_RELAXED,
	    .max_pending = 4567,
	    .slow_task_ns = 89,
	    .executor = &executor.hook,
	    .thread_name = "a name",
	    .thread_attr = &attributes});

	text = dump_of(manual.timer);

	snprintf(expected, sizeof(expected),
	    "\ntick_ns 123000, ticks_per_wheel 64, flags 3\n"
	    "max_pending 4567, slow_task_ns 89\n"
	    "thread_name \"a name\", thread_attr %p\n",
	    (const void *)&attributes);
	cr_assert(strstr(text, expected) != NULL, "%s", text);
	assert_callback(text, "\nexecutor ", executor.hook.ctx);
	assert_callback(text, "\nclock ", &manual);
	assert_callback(text, "\nwake ", &manual);
	assert_callback(text, "\nlog ", &manual.log);
	free(text);
	manual_close();
}

ManualTest(dump, timeouts_are_in_the_order_of_ticks_with_bucket_and_round)
{
	hwt_timeout far, near, same;

	far = schedule(HWT_MS(17), 0xa);
	near = schedule(HWT_MS(3) - 1, 0xb);
	same = schedule(HWT_MS(17) - 5, 0xc);
	(void)manual_wait();

	assert_timeouts(manual.timer,
	    "bucket 3, round 0: tick 3 at %" PRIu64 " ns:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 2999999 ns arg 0xb\n"
	    "bucket 1, round 2: tick 17 at %" PRIu64 " ns:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 16999995 ns arg 0xc\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 17000000 ns arg 0xa\n",
	    BOUNDARY(3), near.id, BOUNDARY(3) - 1, BOUNDARY(17), same.id,
	    BOUNDARY(17) - 5, far.id, BOUNDARY(17));
}

ManualTest(dump, what_the_worker_has_not_seen_is_in_the_queue)
{
	hwt_timeout first, second;

	second = schedule(HWT_MS(2), 2);
	first = schedule(HWT_MS(1), 1);

	assert_timeouts(manual.timer,
	    "in the queue:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 1000000 ns arg 0x1\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 2000000 ns arg 0x2\n",
	    first.id, BOUNDARY(1), second.id, BOUNDARY(2));
}

ManualTest(
    dump, what_was_put_off_stays_at_its_tick_and_what_was_pulled_in_does_not)
{
	hwt_timeout off, in, other;

	off = schedule(HWT_MS(2), 1);
	in = schedule(HWT_MS(9), 2);
	other = schedule(HWT_MS(3), 3);
	(void)manual_wait();
	assert_ok(hwt_reschedule(manual.timer, off, HWT_MS(7)));
	assert_ok(hwt_reschedule(manual.timer, in, HWT_MS(1)));

	assert_timeouts(manual.timer,
	    "bucket 2, round 0: tick 2 at %" PRIu64 " ns:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 7000000 ns arg 0x1\n"
	    "bucket 3, round 0: tick 3 at %" PRIu64 " ns:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 3000000 ns arg 0x3\n"
	    "in the queue:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 1000000 ns arg 0x2\n",
	    BOUNDARY(2), off.id, BOUNDARY(7), BOUNDARY(3), other.id,
	    BOUNDARY(3), in.id, BOUNDARY(1));
	(void)manual_wait();
	assert_timeouts(manual.timer,
	    "bucket 1, round 0: tick 1 at %" PRIu64 " ns:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 1000000 ns arg 0x2\n"
	    "bucket 2, round 0: tick 2 at %" PRIu64 " ns:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 7000000 ns arg 0x1\n"
	    "bucket 3, round 0: tick 3 at %" PRIu64 " ns:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 3000000 ns arg 0x3\n",
	    BOUNDARY(1), in.id, BOUNDARY(1), BOUNDARY(2), off.id, BOUNDARY(7),
	    BOUNDARY(3), other.id, BOUNDARY(3));
}

ManualTestWith(dump, a_relaxed_timeout_has_a_delay_until_the_worker_has_seen_it,
    .flags = HWT_RELAXED)
{
	hwt_timeout timeout;

	timeout = schedule(HWT_MS(250), 1);

	assert_timeouts(manual.timer,
	    "in the queue:\n  %#" PRIx64 " delay 250000000 ns arg 0x1\n",
	    timeout.id);
}

ManualTest(dump, what_is_never_due_is_apart)
{
	hwt_timeout timeout;

	timeout = schedule(HWT_NEVER, 1);
	(void)manual_wait();

	assert_timeouts(manual.timer,
	    "never due:\n  %#" PRIx64 " never due arg 0x1\n", timeout.id);
}

ManualTest(dump, periods_and_executors_are_named)
{
	struct hwt_spec spec = {.task = forbidden_task,
	    .arg = (void *)7,
	    .delay_ns = HWT_MS(1),
	    .period_ns = 333,
	    .executor = &executor.hook};
	hwt_timeout timeout;

	executor_init(&executor, EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeouts(manual.timer, 1, &spec, &timeout));

	assert_timeouts(manual.timer,
	    "in the queue:\n  %#" PRIx64 " deadline %" PRIu64
	    " ns in 1000000 ns period 333 ns arg 0x7 executor %p\n",
	    timeout.id, BOUNDARY(1), (void *)&executor.hook);
}

static void
then_dump(struct probe *probe)
{
	assert_timeouts(manual.timer,
	    "in executors:\n"
	    "  %#" PRIx64 " deadline %" PRIu64
	    " ns in 0 ns arg 0x5 the timer's executor cancelled\n"
	    "running:\n"
	    "  %#" PRIx64 " deadline %" PRIu64
	    " ns in 0 ns arg %p the timer's executor\n",
	    probe->handle.id, BOUNDARY(1), probe->timeout.id, BOUNDARY(1),
	    (void *)probe);
	probe->rc = 1;
}

ExecutorTest(dump, what_executors_hold_and_run_is_there, EXECUTOR_HOLDS)
{
	struct probe probe = {.then = then_dump};
	hwt_timeout timeout, held;
	uint64_t place;

	timeout = probe_schedule(&probe, HWT_MS(1));
	held = schedule(HWT_MS(1), 5);
	manual_tick(1);
	assert_u64(executor.count, 2);
	probe.handle = held;
	assert_ok(hwt_cancel(manual.timer, held));
	place = executor.calls[0].timeout.id == timeout.id ? 0 : 1;

	assert_ok(executor_run(&executor, place));

	assert_rc(probe.rc, 1);
	assert_rc(executor_run(&executor, 1 - place), -ENOENT);
}

ManualTest(dump, a_task_has_its_name_if_the_dynamic_linker_knows_it)
{
	hwt_task *task;
	char *text;

	*(void **)&task = dlsym(RTLD_DEFAULT, "abort");
	assert_ok(hwt_new_timeout(manual.timer, NULL, task, NULL, 0));

	text = dump_of(manual.timer);

	cr_assert(strstr(text, " task abort (/") != NULL, "%s", text);
	free(text);
}

ManualTest(dump, a_stopped_timer_shows_what_was_given_back)
{
	struct hwt_unprocessed list;
	struct hwt_timeout_info info;
	char *text;

	(void)schedule(HWT_MS(2), 1);
	(void)manual_wait();
	assert_ok(hwt_stop(manual.timer, &list));
	cr_assert(hwt_unprocessed_next(&list, &info));

	text = dump_of(manual.timer);

	cr_assert(strstr(text, ": stopped\n") != NULL);
	cr_assert(strstr(text, ", 1 timeouts\n") != NULL);
	free(text);
	assert_timeouts(manual.timer,
	    "bucket 2, round 0: tick 2 at %" PRIu64 " ns:\n"
	    "  %#" PRIx64 " deadline %" PRIu64 " ns in 2000000 ns arg 0x1\n",
	    BOUNDARY(2), info.timeout.id, BOUNDARY(2));
}

/* Who may ask. */

Test(dump, a_timer_with_a_worker_is_EBUSY_until_it_is_stopped)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));
	struct hwt *shared;

	assert_rc(hwt_dump(timer, stderr), -EBUSY);
	assert_ok(hwt_start(timer));
	assert_rc(hwt_dump(timer, stderr), -EBUSY);
	assert_ok(hwt_shared(&shared));
	assert_rc(hwt_dump(shared, stderr), -EBUSY);

	assert_ok(hwt_stop(timer, NULL));

	assert_timeouts(timer, "%s", "");
	assert_ok(hwt_destroy(timer));
	assert_ok(hwt_shared_shutdown(NULL));
	assert_timeouts(shared, "%s", "");
}

static void
then_dump_nested(struct probe *probe)
{
	probe->rc = hwt_dump(manual.timer, stderr);
}

ManualTest(dump, a_task_that_advance_runs_is_EBUSY)
{
	struct probe probe = {.then = then_dump_nested};

	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_rc(probe.rc, -EBUSY);
}

static ssize_t
write_while_stopping(void *cookie, const char *text, size_t size)
{
	int *results = cookie;

	(void)text;
	if (size == 0) /* musl's, to flush */
		return 0;
	results[0] = hwt_advance(manual.timer, NULL);
	results[1] = hwt_stop(manual.timer, NULL);
	return (ssize_t)size;
}

ManualTest(dump, a_file_that_takes_its_time_holds_up_neither_advance_nor_stop)
{
	const cookie_io_functions_t functions = {.write = write_while_stopping};
	int results[2] = {-1, -1};
	FILE *file = fopencookie(results, "w", functions);

	cr_assert(file != NULL);

	assert_ok(hwt_dump(manual.timer, file));

	assert_ok(results[0]);
	assert_ok(results[1]);
	fclose(file);
}

/* Errors, after which the timer goes on. */

ManualTest(dump, without_memory_it_is_ENOMEM)
{
	FILE *file = fopen("/dev/null", "we");

	cr_assert(file != NULL);
	fault_arm(FAULT_HEAP, 1);

	assert_rc(hwt_dump(manual.timer, file), -ENOMEM);

	assert_u64(fault_disarm(), 1);
	assert_ok(hwt_advance(manual.timer, NULL));
	assert_ok(hwt_dump(manual.timer, file));
	fclose(file);
}

ManualTest(dump, errors_of_the_file_are_told)
{
	FILE *full = fopen("/dev/full", "we");
	FILE *closed = fopen("/dev/null", "we");
	FILE *unwilling = file_that_takes(0);

	cr_assert(full != NULL && closed != NULL);
	cr_assert(close(fileno(closed)) == 0);

	errno = EXDEV;
	assert_rc(hwt_dump(manual.timer, full), -ENOSPC);
	assert_rc(errno, EXDEV);
	assert_rc(hwt_dump(manual.timer, closed), -EBADF);
	assert_rc(hwt_dump(manual.timer, unwilling), -EIO);

	assert_ok(hwt_advance(manual.timer, NULL));
	fclose(full);
	fclose(closed);
	fclose(unwilling);
}

static void
child_is_refused(void *arg)
{
	child_rc(hwt_dump(arg, stderr), -EOWNERDEAD);
	child_rc(hwt_dump(arg, NULL), -EOWNERDEAD);
}

ManualTest(dump, a_child_is_refused)
{
	in_child(child_is_refused, manual.timer);
}
