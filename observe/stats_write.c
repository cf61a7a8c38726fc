/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_stats_write: the counters as text for monitoring.
 *
 * One table has the names of both formats. Times are whole nanoseconds, and
 * seconds are printed from them digit by digit: no number is rounded.
 *
 * The histogram for Prometheus has fewer buckets than hwt_stats, each of them
 * whole: cumulative counts stay exact when buckets between are left out. An
 * element k counts lateness below 2^(k+1) ns, and so its bound, which is
 * inclusive, is one nanosecond less.
 */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "core/timer.h"
#include "observe/page.h"

/* Elements of the histogram whose upper bounds are buckets: from 1 us to more
 * than a minute. */
#define BUCKET_FIRST 9
#define BUCKET_LAST 35
#define ELEMENTS 64
#define SECOND_NS UINT64_C(1000000000)
/* Each byte of a name may become three. */
#define LABEL_BYTES (3 * 16)
#define REPLACEMENT "\xef\xbf\xbd"

struct figure {
	const char *key; /* in JSON */
	const char *metric;
	const char *type;
	const char *help;
	size_t offset; /* in struct hwt_stats */
};

#define FIGURE(key, metric, type, help)             \
	{                                           \
#key, "hwt_" metric, type, help,    \
		    offsetof(struct hwt_stats, key) \
	}

static const struct figure figures[] = {
    FIGURE(scheduled, "timeouts_scheduled_total", "counter",
	"Timeouts that were accepted."),
    FIGURE(started, "tasks_started_total", "counter", "Tasks that were begun."),
    FIGURE(
	cancelled, "timeouts_cancelled_total", "counter", "Cancels that won."),
    FIGURE(rescheduled, "timeouts_rescheduled_total", "counter",
	"Reschedules that succeeded."),
    FIGURE(rejected, "timeouts_rejected_total", "counter",
	"Timeouts that were refused because of max_pending."),
    FIGURE(executor_refused, "executor_refusals_total", "counter",
	"Timeouts that executors refused."),
    FIGURE(pending, "timeouts_pending", "gauge",
	"Timeouts that were accepted and have not begun or ended."),
    FIGURE(ticks, "ticks_total", "counter",
	"Tick boundaries that the worker has begun."),
    FIGURE(wakeups, "wakeups_total", "counter",
	"Returns of the worker from sleep."),
    FIGURE(late_ticks, "late_ticks_total", "counter",
	"Ticks that were begun more than a tick late."),
    FIGURE(slow_tasks, "slow_tasks_total", "counter",
	"Tasks that held the worker longer than slow_task_ns."),
    FIGURE(
	memory_bytes, "memory_bytes", "gauge", "Memory that the timer holds."),
};

#define FIGURES (sizeof(figures) / sizeof(figures[0]))

/* What is written about one timer. */
struct report {
	struct page page;
	char name[LABEL_BYTES]; /* of its thread, fit for a quoted string */
	uint64_t serial;
	uint64_t lateness_ns_sum;
	struct hwt_stats stats;
};

static uint64_t
figure_value(const struct hwt_stats *stats, const struct figure *figure)
{
	const char *at = (const char *)stats + figure->offset;

	return *(const uint64_t *)(const void *)at;
}

/* The length of the character that stands there in UTF-8; 0: none does. */
static size_t
utf8_length(const char *text)
{
	const unsigned char *byte = (const void *)text;
	unsigned char low = 0x80, high = 0xbf;
	size_t length, i;

	if (byte[0] < 0x80)
		return 1;
	if (byte[0] < 0xc2 || byte[0] > 0xf4)
		return 0;
	length = byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
	if (byte[0] == 0xe0)
		low = 0xa0; /* a longer form than needed */
	else if (byte[0] == 0xed)
		high = 0x9f; /* half of a pair of UTF-16 */
	else if (byte[0] == 0xf0)
		low = 0x90;
	else if (byte[0] == 0xf4)
		high = 0x8f; /* beyond the last character */
	for (i = 1; i < length; i++) {
		if (byte[i] < low || byte[i] > high)
			return 0;
		low = 0x80;
		high = 0xbf;
	}
	return length;
}

/* A name as both formats want it between quotes: valid UTF-8, with the quote,
 * the backslash and the newline escaped. JSON has no other control characters
 * in strings, and Prometheus no way to escape them: they are replaced. */
static void
quote_name(char *quoted, const char *name)
{
	size_t length;

	for (; *name != '\0'; name += length > 0 ? length : 1) {
		length = utf8_length(name);
		if (*name == '"' || *name == '\\' || *name == '\n') {
			*quoted++ = '\\';
			*quoted++ = (char)(*name == '\n' ? 'n' : *name);
		} else if (length == 0 || (unsigned char)*name < 0x20) {
			memcpy(quoted, REPLACEMENT, 3);
			quoted += 3;
		} else {
			memcpy(quoted, name, length);
			quoted += length;
		}
	}
	*quoted = '\0';
}

static void
print_head(struct page *page, bool heads, const char *metric, const char *type,
    const char *help)
{
	if (heads)
		page_print(page, "# HELP %s %s\n# TYPE %s %s\n", metric, help,
		    metric, type);
}

/* One line; extra: more labels. */
static void
print_sample(struct report *report, const char *metric, const char *suffix,
    const char *extra, uint64_t value)
{
	page_print(&report->page,
	    "%s%s{timer=\"%s\",serial=\"%" PRIu64 "\"%s} %" PRIu64 "\n", metric,
	    suffix, report->name, report->serial, extra, value);
}

static void
print_seconds(
    struct report *report, const char *metric, const char *suffix, uint64_t ns)
{
	page_print(&report->page,
	    "%s%s{timer=\"%s\",serial=\"%" PRIu64 "\"} %" PRIu64 ".%09" PRIu64
	    "\n",
	    metric, suffix, report->name, report->serial, ns / SECOND_NS,
	    ns % SECOND_NS);
}

/* The count is that of the last bucket, since both are added up from the same
 * readings. */
static void
print_histogram(struct report *report, bool heads)
{
	static const char metric[] = "hwt_lateness_seconds";
	uint64_t count = 0;
	uint64_t bound;
	char extra[48];
	int k;

	print_head(&report->page, heads, metric, "histogram",
	    "How late timeouts were started or handed over.");
	for (k = 0; k < ELEMENTS; k++) {
		count += report->stats.lateness_ns_histogram[k];
		if (k < BUCKET_FIRST || k > BUCKET_LAST)
			continue;
		bound = (UINT64_C(2) << k) - 1;
		(void)snprintf(extra, sizeof(extra),
		    ",le=\"%" PRIu64 ".%09" PRIu64 "\"", bound / SECOND_NS,
		    bound % SECOND_NS);
		print_sample(report, metric, "_bucket", extra, count);
	}
	print_sample(report, metric, "_bucket", ",le=\"+Inf\"", count);
	print_seconds(report, metric, "_sum", report->lateness_ns_sum);
	print_sample(report, metric, "_count", "", count);
}

static void
write_prometheus(struct report *report, bool heads)
{
	static const char max[] = "hwt_lateness_max_seconds";
	const struct figure *figure;

	for (figure = figures; figure < figures + FIGURES; figure++) {
		print_head(&report->page, heads, figure->metric, figure->type,
		    figure->help);
		print_sample(report, figure->metric, "", "",
		    figure_value(&report->stats, figure));
	}
	print_histogram(report, heads);
	print_head(&report->page, heads, max, "gauge",
	    "The greatest lateness since the timer was made.");
	print_seconds(report, max, "", report->stats.lateness_ns_max);
}

static void
write_json(struct report *report)
{
	struct page *page = &report->page;
	const struct figure *figure;
	int k;

	page_print(page, "{\"timer\":\"%s\",\"serial\":%" PRIu64, report->name,
	    report->serial);
	for (figure = figures; figure < figures + FIGURES; figure++)
		page_print(page, ",\"%s\":%" PRIu64, figure->key,
		    figure_value(&report->stats, figure));
	page_print(page,
	    ",\"lateness_ns_sum\":%" PRIu64 ",\"lateness_ns_max\":%" PRIu64
	    ",\"lateness_ns_histogram\":",
	    report->lateness_ns_sum, report->stats.lateness_ns_max);
	for (k = 0; k < ELEMENTS; k++)
		page_print(page, "%c%" PRIu64, k == 0 ? '[' : ',',
		    report->stats.lateness_ns_histogram[k]);
	page_print(page, "]}\n");
}

int
hwt_stats_write(const struct hwt *timer, FILE *file, enum hwt_format format)
{
	struct report report = {.page = {.file = file}};
	int error = hwt_read_stats(timer, &report.stats);

	if (error != 0)
		return error;
	if (file == NULL || format < HWT_PROMETHEUS ||
	    format > HWT_PROMETHEUS_SAMPLES)
		return -EINVAL;
	quote_name(report.name, timer->life.thread_name);
	report.serial = timer->serial;
	report.lateness_ns_sum = a64_load_relaxed(&timer->worker.lateness_sum);
	if (format == HWT_JSON)
		write_json(&report);
	else
		write_prometheus(&report, format == HWT_PROMETHEUS);
	return page_end(&report.page);
}
