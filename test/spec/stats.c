/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_read_stats and hwt_stats_write: each counter, and its two formats. */
#include "test/spec/support.h"

#include "test/spec/text.h"

SUITE(stats);

/* A different number for each counter that can be moved by hand. */
static void
count_up(void)
{
	struct probe probe = {0};
	hwt_timeout timeouts[9];

	executor_init(&recorder, EXECUTOR_REFUSES);
	for (unsigned i = 0; i < 9; i++)
		timeouts[i] = schedule_forbidden(HWT_SEC(1));
	for (unsigned i = 0; i < 5; i++)
		assert_rc(hwt_new_timeout(manual.timer, NULL, forbidden_task,
			      NULL, HWT_SEC(1)),
		    i == 0 ? 0 : -ENOBUFS);
	for (unsigned i = 0; i < 6; i++)
		assert_ok(
		    hwt_reschedule(manual.timer, timeouts[0], HWT_SEC(2)));
	assert_rc(
	    hwt_reschedule(manual.timer, timeouts[0], HWT_NEVER - 1), -EINVAL);
	assert_ok(hwt_cancel(manual.timer, timeouts[0]));
	assert_ok(hwt_cancel(manual.timer, timeouts[1]));
	assert_ok(hwt_cancel_wait(manual.timer, timeouts[2]));
	assert_rc(hwt_cancel(manual.timer, timeouts[0]), -ENOENT);
	assert_ok(hwt_new_timeout_on(
	    manual.timer, &recorder.hook, NULL, probe_task, &probe, HWT_MS(1)));
	probe_schedule(&probe, HWT_MS(2));
	manual_tick(5);
}

static void
assert_line(
    const char *text, const char *metric, const char *label, const char *value)
{
	char line[256];

	snprintf(line, sizeof(line),
	    "\n%s{timer=\"hwt-worker\",serial=\"1\"%s} %s\n", metric, label,
	    value);
	cr_assert(strstr(text, line) != NULL, "no%s in\n%s", line, text);
}

static void
assert_count(const char *text, const char *metric, uint64_t count)
{
	char value[32];

	snprintf(value, sizeof(value), "%" PRIu64, count);
	assert_line(text, metric, "", value);
}

static char *
text_of(const struct hwt *timer, enum hwt_format format)
{
	return TEXT_OF(hwt_stats_write(timer, file, format));
}

ManualTestWith(stats, each_counter_counts_and_is_written_for_prometheus,
    .max_pending = 10, .tick_ns = HWT_MS(1))
{
	struct hwt_stats stats = manual_stats();
	struct hwt_stats nothing = {.memory_bytes = stats.memory_bytes};
	char *text;

	cr_assert(memcmp(&stats, &nothing, sizeof(stats)) == 0);
	count_up();

	stats = manual_stats();
	text = text_of(manual.timer, HWT_PROMETHEUS);
#define COUNT(member, metric, value)     \
	assert_u64(stats.member, value); \
	assert_count(text, "hwt_" metric, value)
	COUNT(scheduled, "timeouts_scheduled_total", 12);
	COUNT(started, "tasks_started_total", 2);
	COUNT(cancelled, "timeouts_cancelled_total", 3);
	COUNT(rescheduled, "timeouts_rescheduled_total", 6);
	COUNT(rejected, "timeouts_rejected_total", 4);
	COUNT(executor_refused, "executor_refusals_total", 1);
	COUNT(pending, "timeouts_pending", 7);
	COUNT(ticks, "ticks_total", 2);
	COUNT(late_ticks, "late_ticks_total", 2);
	COUNT(wakeups, "wakeups_total", 0);
	COUNT(slow_tasks, "slow_tasks_total", 0);
	assert_count(text, "hwt_memory_bytes", stats.memory_bytes);
	free(text);
	text = text_of(manual.timer, HWT_PROMETHEUS_SAMPLES);
	assert_u64(count_of(text, "#"), 0);
	assert_count(text, "hwt_tasks_started_total", 2);
	free(text);
}

static void
then_take_data_ns(struct probe *probe)
{
	manual.now_ns += *(uint64_t *)probe->data;
}

Test(stats, slow_tasks_are_counted_and_logged_once_a_second)
{
	uint64_t taken_ns = HWT_US(100) + 1;
	struct probe probe = {.then = then_take_data_ns, .data = &taken_ns};

	manual_open(&(struct hwt_options){
	    .tick_ns = FIXTURE_TICK, .slow_task_ns = HWT_US(100)});
	for (unsigned i = 1; i <= 2; i++) {
		probe_schedule(&probe, 0);
		manual_step(TICKS(1));
		assert_u64(manual_stats().slow_tasks, i);
	}

	assert_u64(manual.log.count, 1);
	manual_close();
}

/* A deadline on a boundary, and an advance so much later. */
static void
run_late_by(uint64_t ns)
{
	manual_tick((manual.now_ns - FIXTURE_START) / manual.tick_ns + 1);
	schedule_task(manual.timer, idle_task, manual.tick_ns);
	assert_u64(manual_step(manual.tick_ns + ns), 1);
}

ManualTest(stats, lateness_is_a_histogram_in_powers_of_two_and_in_seconds)
{
	static const uint64_t late_ns[] = {0, 1023, 1024, 2047, 2048,
	    (UINT64_C(1) << 36) - 1, UINT64_C(1) << 36};
	static const unsigned bucket[] = {0, 9, 10, 10, 11, 35, 36};
	uint64_t expected[64] = {0};
	struct hwt_stats stats;
	char *text;

	for (unsigned i = 0; i < 7; i++) {
		run_late_by(late_ns[i]);
		expected[bucket[i]]++;
		assert_u64(manual_stats().lateness_ns_max, late_ns[i]);
	}

	stats = manual_stats();
	for (unsigned k = 0; k < 64; k++)
		assert_u64(stats.lateness_ns_histogram[k], expected[k]);
	text = text_of(manual.timer, HWT_PROMETHEUS);
#define BELOW(seconds, count) \
	assert_line(          \
	    text, "hwt_lateness_seconds_bucket", ",le=\"" seconds "\"", count)
	BELOW("0.000001023", "2");
	BELOW("0.000002047", "4");
	BELOW("0.000004095", "5");
	BELOW("34.359738367", "5");
	BELOW("68.719476735", "6");
	BELOW("+Inf", "7");
	assert_u64(count_of(text, "hwt_lateness_seconds_bucket{"), 28);
	assert_count(text, "hwt_lateness_seconds_count", 7);
	assert_line(text, "hwt_lateness_seconds_sum", "", "137.438959613");
	assert_line(text, "hwt_lateness_max_seconds", "", "68.719476736");
	free(text);
}

ManualTest(stats, json_has_the_names_of_struct_hwt_stats)
{
	char expected[1024], *text;
	size_t length;

	run_late_by(2048);
	run_late_by(5);

	text = text_of(manual.timer, HWT_JSON);

	length = (size_t)snprintf(expected, sizeof(expected),
	    "{\"timer\":\"hwt-worker\",\"serial\":1,\"pending\":0,"
	    "\"memory_bytes\":%" PRIu64 ",\"scheduled\":2,\"started\":2,"
	    "\"cancelled\":0,\"rescheduled\":0,\"rejected\":0,"
	    "\"executor_refused\":0,\"ticks\":2,\"wakeups\":0,"
	    "\"late_ticks\":0,\"slow_tasks\":0,\"lateness_ns_sum\":2053,"
	    "\"lateness_ns_max\":2048,"
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

/* Thread names, and how they are quoted; R is U+FFFD. */

#define R "\xef\xbf\xbd"

static const char *const names[][2] = {
    {"a\"b", "a\\\"b"},
    {"a\\b", "a\\\\b"},
    {"a\nb", "a\\nb"},
    {"", ""},
    {"a\tb", "a" R "b"},
    {"\x1f ~", R " ~"},
    /* the first and the last of each length */
    {"\xc2\x80 \xdf\xbf", "\xc2\x80 \xdf\xbf"},
    {"\xe0\xa0\x80 \xef\xbf\xbf", "\xe0\xa0\x80 \xef\xbf\xbf"},
    {"\xf0\x90\x80\x80", "\xf0\x90\x80\x80"},
    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
    /* no first byte, a byte alone, one too few */
    {"\xc3z", R "z"},
    {"\xe2\x82", R R},
    /* longer than needed, half of a pair, beyond the last one */
    {"\xc0\xaf", R R},
    {"\xe0\x9f\xbf", R R R},
    {"\xed\xa0\x80", R R R},
    {"\xf0\x8f\xbf\xbf", R R R R},
    {"\xf4\x90\x80\x80", R R R R},
    {"\xe0\xa0\xc0", R R R},
};

Test(stats, thread_names_are_escaped_and_what_is_no_utf8_replaced)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char label[128], member[128], *text;

		manual_open(&(struct hwt_options){.thread_name = names[i][0]});
		snprintf(label, sizeof(label), "{timer=\"%s\",", names[i][1]);
		snprintf(
		    member, sizeof(member), "{\"timer\":\"%s\",", names[i][1]);
		text = text_of(manual.timer, HWT_PROMETHEUS);
		cr_assert(strstr(text, label) != NULL, "%s", text);
		free(text);
		text = text_of(manual.timer, HWT_JSON);
		cr_assert(strstr(text, member) != NULL, "%s", text);
		free(text);
		manual_close();
	}
}

static void
assert_not_written(const char *path, const char *mode, int rc)
{
	FILE *file = fopen(path, mode);

	assert_rc(hwt_stats_write(manual.timer, file, HWT_JSON), rc);
	assert_rc(hwt_dump(manual.timer, file), rc);
	fclose(file);
}

ManualTest(stats, file_that_takes_no_text_gives_its_error)
{
	assert_not_written("/dev/null", "r", -EBADF);
	assert_not_written("/dev/full", "w", -ENOSPC);
}
