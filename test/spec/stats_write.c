/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_stats_write: the same numbers as hwt_read_stats, in two formats. That
 * others can read them is shown in test/check/observed.
 */
#include "test/spec/support_promises.h"
#include "test/spec/text.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SUITE(stats_write);

/* What is written about a timer; the caller frees it. */
static char *
text_of(const struct hwt *timer, enum hwt_format format)
{
	return TEXT_OF(hwt_stats_write(timer, file, format));
}

/* Serial numbers begin at 1, and each test has a process of its own. */
static void
assert_has_line(
    const char *text, const char *metric, const char *label, const char *value)
{
	char line[256];

	snprintf(line, sizeof(line),
	    "\n%s{timer=\"hwt-worker\",serial=\"1\"%s} %s\n", metric, label,
	    value);
	cr_assert(
	    strstr(text, line) != NULL, "not there:%s in\n%s", line, text);
}

static void
assert_has_count(const char *text, const char *metric, uint64_t count)
{
	char value[32];

	snprintf(value, sizeof(value), "%" PRIu64, count);
	assert_has_line(text, metric, "", value);
}

ManualTest(stats_write, null_and_unknown_formats_are_refused)
{
	assert_rc(hwt_stats_write(NULL, stderr, HWT_JSON), -EINVAL);
	assert_rc(hwt_stats_write(manual.timer, NULL, HWT_JSON), -EINVAL);
	assert_rc(hwt_stats_write(manual.timer, stderr,
		      (enum hwt_format)(HWT_PROMETHEUS_SAMPLES + 1)),
	    -EINVAL);
	assert_rc(hwt_stats_write(manual.timer, stderr, (enum hwt_format) - 1),
	    -EINVAL);
}

/* A different number for each counter that can be moved by hand. */
static void
count_up(struct recording_executor *executor)
{
	struct probe probe = {0};
	hwt_timeout timeout[9];

	executor_init(executor, EXECUTOR_REFUSES);
	for (size_t i = 0; i < 9; i++)
		timeout[i] =
		    schedule_task(manual.timer, forbidden_task, HWT_SEC(1));
	for (size_t i = 0; i < 5; i++)
		assert_rc(hwt_new_timeout(manual.timer, NULL, forbidden_task,
			      NULL, HWT_SEC(1)),
		    i == 0 ? 0 : -ENOBUFS);
	for (size_t i = 0; i < 6; i++)
		assert_ok(hwt_reschedule(manual.timer, timeout[0], HWT_SEC(2)));
	for (size_t i = 0; i < 3; i++)
		assert_ok(hwt_cancel(manual.timer, timeout[i]));
	assert_ok(hwt_new_timeout_on(manual.timer, &executor->hook, NULL,
	    probe_task, &probe, HWT_MS(1)));
	probe_schedule(&probe, HWT_MS(2));
	manual_tick(5);
}

ManualTestWith(stats_write, prometheus_has_each_counter_of_read_stats,
    .max_pending = 10, .tick_ns = HWT_MS(1))
{
	struct recording_executor executor;
	struct hwt_stats stats;
	char *text;

	count_up(&executor);

	stats = manual_stats();
	text = text_of(manual.timer, HWT_PROMETHEUS);

	assert_u64(stats.scheduled, 12);
	assert_has_count(text, "hwt_timeouts_scheduled_total", 12);
	assert_has_count(text, "hwt_tasks_started_total", 2);
	assert_has_count(text, "hwt_timeouts_cancelled_total", 3);
	assert_has_count(text, "hwt_timeouts_rescheduled_total", 6);
	assert_has_count(text, "hwt_timeouts_rejected_total", 4);
	assert_has_count(text, "hwt_executor_refusals_total", 1);
	assert_has_count(text, "hwt_timeouts_pending", 7);
	assert_has_count(text, "hwt_ticks_total", stats.ticks);
	assert_has_count(text, "hwt_late_ticks_total", stats.late_ticks);
	assert_has_count(text, "hwt_wakeups_total", 0);
	assert_has_count(text, "hwt_slow_tasks_total", 0);
	assert_has_count(text, "hwt_memory_bytes", stats.memory_bytes);
	assert_u64(stats.ticks, 2);
	free(text);
}

/* A run that is so late, on a boundary's deadline. */
static uint64_t
late_by(uint64_t ns)
{
	struct probe probe = {0};
	uint64_t ticks = (manual.now_ns - manual.start_ns) / manual.tick_ns;

	manual_tick(ticks + 1);
	probe_schedule(&probe, manual.tick_ns);
	assert_u64(manual_step(manual.tick_ns + ns), 1);
	return ns;
}

ManualTestWith(
    stats_write, lateness_is_a_histogram_in_seconds, .tick_ns = HWT_MS(1))
{
	uint64_t sum_ns = 0;
	char *text;

	sum_ns += late_by(0);
	sum_ns += late_by(1023);
	sum_ns += late_by(1024);
	sum_ns += late_by(2047);
	sum_ns += late_by(2048);
	sum_ns += late_by((UINT64_C(1) << 36) - 1);
	sum_ns += late_by(UINT64_C(1) << 36);
	assert_u64(sum_ns, (UINT64_C(1) << 37) - 1 + 6142);

	text = text_of(manual.timer, HWT_PROMETHEUS);

	assert_has_line(
	    text, "hwt_lateness_seconds_bucket", ",le=\"0.000001023\"", "2");
	assert_has_line(
	    text, "hwt_lateness_seconds_bucket", ",le=\"0.000002047\"", "4");
	assert_has_line(
	    text, "hwt_lateness_seconds_bucket", ",le=\"0.000004095\"", "5");
	assert_has_line(
	    text, "hwt_lateness_seconds_bucket", ",le=\"34.359738367\"", "5");
	assert_has_line(
	    text, "hwt_lateness_seconds_bucket", ",le=\"68.719476735\"", "6");
	assert_has_line(
	    text, "hwt_lateness_seconds_bucket", ",le=\"+Inf\"", "7");
	assert_u64(count_of(text, "hwt_lateness_seconds_bucket{"), 28);
	assert_has_count(text, "hwt_lateness_seconds_count", 7);
	assert_has_line(text, "hwt_lateness_seconds_sum", "", "137.438959613");
	assert_has_line(text, "hwt_lateness_max_seconds", "", "68.719476736");
	free(text);
}

ManualTest(stats_write, json_has_the_names_of_struct_hwt_stats)
{
	char expected[1024];
	size_t length;
	char *text;

	late_by(2048);
	late_by(5);

	text = text_of(manual.timer, HWT_JSON);

	length = (size_t)snprintf(expected, sizeof(expected),
	    "{\"timer\":\"hwt-worker\",\"serial\":1,\"scheduled\":2,"
	    "\"started\":2,\"cancelled\":0,\"rescheduled\":0,\"rejected\":0,"
	    "\"executor_refused\":0,\"pending\":0,\"ticks\":2,\"wakeups\":0,"
	    "\"late_ticks\":0,\"slow_tasks\":0,\"memory_bytes\":%" PRIu64
	    ",\"lateness_ns_sum\":2053,\"lateness_ns_max\":2048,"
	    "\"lateness_ns_histogram\":[",
	    manual_stats().memory_bytes);
	for (int k = 0; k < 64; k++)
		length += (size_t)snprintf(expected + length,
		    sizeof(expected) - length, "%s%d", k == 0 ? "" : ",",
		    k == 2 || k == 11);
	snprintf(expected + length, sizeof(expected) - length, "]}\n");
	cr_assert_str_eq(text, expected);
	free(text);
}

ManualTest(stats_write, comments_stand_once_in_a_page_of_several_timers)
{
	struct fixture second = {0};
	char *first_text, *second_text;

	fixture_open(&second, NULL);

	first_text = text_of(manual.timer, HWT_PROMETHEUS);
	second_text = text_of(second.timer, HWT_PROMETHEUS_SAMPLES);

	assert_u64(count_of(first_text, "# HELP hwt_"), 14);
	assert_u64(count_of(first_text, "# TYPE hwt_"), 14);
	assert_u64(count_of(first_text, "serial=\"1\""), 43);
	assert_u64(count_of(second_text, "#"), 0);
	assert_u64(count_of(second_text, "serial=\"2\""), 43);
	assert_u64(count_of(second_text, "\n"), 43);
	free(first_text);
	free(second_text);
	fixture_close(&second);
}

/* Names. */

static void
assert_quoted(const char *name, const char *quoted)
{
	static const enum hwt_format formats[] = {HWT_PROMETHEUS, HWT_JSON};
	char label[128], member[128];

	manual_open(&(struct hwt_options){.thread_name = name});
	snprintf(label, sizeof(label), "{timer=\"%s\",", quoted);
	snprintf(member, sizeof(member), "{\"timer\":\"%s\",", quoted);
	for (size_t i = 0; i < 2; i++) {
		char *text = text_of(manual.timer, formats[i]);

		cr_assert(strstr(text, i == 0 ? label : member) != NULL,
		    "%s is not in\n%s", quoted, text);
		free(text);
	}
	manual_close();
}

Test(stats_write, quotes_backslashes_and_newlines_are_escaped)
{
	assert_quoted("a\"b", "a\\\"b");
	assert_quoted("a\\b", "a\\\\b");
	assert_quoted("a\nb", "a\\nb");
	assert_quoted("", "");
	assert_quoted("\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"",
	    "\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"");
}

#define REPLACED "\xef\xbf\xbd"

Test(stats_write, other_control_characters_are_replaced)
{
	assert_quoted("a\tb", "a" REPLACED "b");
	assert_quoted("\x1f ~", REPLACED " ~");
	assert_quoted("\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1",
	    REPLACED REPLACED REPLACED REPLACED REPLACED REPLACED REPLACED
		REPLACED REPLACED REPLACED REPLACED REPLACED REPLACED REPLACED
		    REPLACED);
}

Test(stats_write, what_is_no_utf8_is_replaced)
{
	/* The first and the last of each length. */
	assert_quoted("\xc2\x80 \xdf\xbf", "\xc2\x80 \xdf\xbf");
	assert_quoted("\xe0\xa0\x80 \xef\xbf\xbf", "\xe0\xa0\x80 \xef\xbf\xbf");
	assert_quoted("\xed\x9f\xbf \xee\x80\x80", "\xed\x9f\xbf \xee\x80\x80");
	assert_quoted("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf",
	    "\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf");
	/* No first byte; a byte alone; one too few. */
	assert_quoted("\xff \x80", REPLACED " " REPLACED);
	assert_quoted("\xc3z", REPLACED "z");
	assert_quoted("\xe2\x82", REPLACED REPLACED);
	/* Longer than needed, half of a pair, beyond the last one. */
	assert_quoted("\xc0\xaf", REPLACED REPLACED);
	assert_quoted("\xe0\x9f\xbf", REPLACED REPLACED REPLACED);
	assert_quoted("\xed\xa0\x80", REPLACED REPLACED REPLACED);
	assert_quoted("\xf0\x8f\xbf\xbf", REPLACED REPLACED REPLACED REPLACED);
	assert_quoted("\xf4\x90\x80\x80", REPLACED REPLACED REPLACED REPLACED);
	assert_quoted("\xf5\x80\x80\x80", REPLACED REPLACED REPLACED REPLACED);
	/* A later byte has the usual range. */
	assert_quoted("\xe0\xa0\xc0", REPLACED REPLACED REPLACED);
	assert_quoted("\xf4\x8f\x90\xbf", "\xf4\x8f\x90\xbf");
}

/* Errors of the file. */

ManualTest(stats_write, a_file_that_is_full_is_ENOSPC)
{
	FILE *file = fopen("/dev/full", "we");

	cr_assert(file != NULL);

	assert_rc(hwt_stats_write(manual.timer, file, HWT_PROMETHEUS), -ENOSPC);
	assert_rc(hwt_stats_write(manual.timer, file, HWT_JSON), -ENOSPC);

	fclose(file);
}

ManualTest(stats_write, a_descriptor_that_is_closed_or_not_for_writing_is_EBADF)
{
	FILE *closed = fopen("/dev/null", "we");
	FILE *readable = fopen("/dev/null", "re");

	cr_assert(closed != NULL && readable != NULL);
	cr_assert(close(fileno(closed)) == 0);

	assert_rc(hwt_stats_write(manual.timer, closed, HWT_JSON), -EBADF);
	assert_rc(hwt_stats_write(manual.timer, readable, HWT_JSON), -EBADF);

	fclose(readable);
	fclose(closed);
}

ManualTest(stats_write, a_pipe_that_nobody_reads_is_EPIPE)
{
	int ends[2];
	FILE *file;

	(void)signal(SIGPIPE, SIG_IGN);
	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	file = fdopen(ends[1], "w");
	close(ends[0]);

	assert_rc(hwt_stats_write(manual.timer, file, HWT_JSON), -EPIPE);

	fclose(file);
}

ManualTest(stats_write, a_failure_without_errno_is_EIO_wherever_it_comes)
{
	for (unsigned lines = 0; lines <= 71; lines++) {
		FILE *file = file_that_takes(lines);

		setvbuf(file, NULL, _IOLBF, BUFSIZ);
		assert_rc(hwt_stats_write(manual.timer, file, HWT_PROMETHEUS),
		    lines < 71 ? -EIO : 0);
		fclose(file);
	}
}

ManualTest(stats_write, the_text_is_flushed)
{
	char buffer[4096] = "";
	int ends[2];
	FILE *file;

	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	file = fdopen(ends[1], "w");

	assert_ok(hwt_stats_write(manual.timer, file, HWT_JSON));

	cr_assert(readable(ends[0]));
	cr_assert(read(ends[0], buffer, sizeof(buffer) - 1) > 2);
	cr_assert(strstr(buffer, "]}\n") != NULL);
	fclose(file);
	close(ends[0]);
}

static void
child_is_refused(void *arg)
{
	const struct hwt *timer = arg;

	child_rc(hwt_stats_write(timer, stderr, HWT_JSON), -EOWNERDEAD);
	child_rc(hwt_stats_write(timer, NULL, HWT_JSON), -EOWNERDEAD);
}

ManualTest(stats_write, a_child_is_refused)
{
	in_child(child_is_refused, manual.timer);
}

static void
then_write(struct probe *probe)
{
	probe->rc = hwt_stats_write(manual.timer, probe->data, HWT_PROMETHEUS);
}

ManualTest(stats_write, a_task_may_write_and_a_stopped_timer_has_its_counters)
{
	FILE *file = fopen("/dev/null", "we");
	struct probe probe = {.then = then_write, .data = file};
	char *text;

	probe_schedule(&probe, 0);
	probe.rc = 1;
	manual_tick(1);
	assert_ok(probe.rc);
	assert_ok(hwt_stop(manual.timer, NULL));

	text = text_of(manual.timer, HWT_PROMETHEUS);

	assert_has_count(text, "hwt_tasks_started_total", 1);
	free(text);
	fclose(file);
}
