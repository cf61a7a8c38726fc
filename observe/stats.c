/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_read_stats, and hwt_stats_write: the counters as text for monitoring. One
 * table has the names of both formats, Prometheus's and JSON. Seconds are
 * printed from nanoseconds digit by digit: no number is rounded.
 *
 * Element k of the histogram counts times of [2^k, 2^(k+1)) ns. For Prometheus
 * it has fewer buckets, each of them whole: cumulative counts stay exact when
 * buckets between are left out. A bucket's bound is inclusive, and so one
 * nanosecond less.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/timer.h"
#include "observe/page.h"

/* Each byte of a name may become three. */
#define LABEL_BYTES (3 * NAME_BYTES)
#define REPLACEMENT "\xef\xbf\xbd"

/* Elements whose upper bounds are buckets: from 1 us to more than a minute. */
#define BUCKET_FIRST 9
#define BUCKET_LAST 35
#define ELEMENTS 64
#define SECONDS "%" PRIu64 ".%09" PRIu64
#define SECONDS_OF(ns) (ns) / UINT64_C(1000000000), (ns) % UINT64_C(1000000000)

static const struct figure {
	const char *key; /* in JSON */
	size_t offset; /* of a uint64_t, in struct hwt_stats */
	const char *metric;
	const char *type;
	const char *help;
} figures[] = {
#define KEY(member) #member, offsetof(struct hwt_stats, member)
#define ROW(member, metric, help) \
	{KEY(member), "hwt_" metric "_total", "counter", help},
    {KEY(pending), "hwt_timeouts_pending", "gauge",
	"Timeouts that were accepted and have not begun or ended."},
    {KEY(memory_bytes), "hwt_memory_bytes", "gauge",
	"Memory that the timer holds."},
    CACHE_COUNTERS(ROW) WORKER_COUNTERS(ROW)};

#define FIGURES (sizeof(figures) / sizeof(figures[0]))

struct report {
	struct page page;
	struct hwt_stats stats;
	uint64_t lateness_ns_sum;
	uint64_t serial; /* no other timer has it */
	char name[LABEL_BYTES]; /* fit for a quoted string */
	bool heads; /* with # HELP and # TYPE */
};

/* How many bytes the character of UTF-8 has that stands there, after the table
 * of well-formed sequences in chapter 3 of Unicode; 0: none does. */
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

static uint64_t
figure_value(const struct report *report, const struct figure *figure)
{
	const char *at = (const char *)&report->stats + figure->offset;

	return *(const uint64_t *)(const void *)at;
}

static void
print_head(struct report *report, const char *metric, const char *type,
    const char *help)
{
	if (report->heads)
		page_print(&report->page, "# HELP %s %s\n# TYPE %s %s\n",
		    metric, help, metric, type);
}

/* The beginning of a line; extra: more labels. */
static void
print_labels(struct report *report, const char *metric, const char *extra)
{
	page_print(&report->page, "%s{timer=\"%s\",serial=\"%" PRIu64 "\"%s} ",
	    metric, report->name, report->serial, extra);
}

static void
print_sample(struct report *report, const char *metric, const char *extra,
    uint64_t value)
{
	print_labels(report, metric, extra);
	page_print(&report->page, "%" PRIu64 "\n", value);
}

static void
print_seconds(struct report *report, const char *metric, uint64_t ns)
{
	print_labels(report, metric, "");
	page_print(&report->page, SECONDS "\n", SECONDS_OF(ns));
}

/* The count is that of the last bucket, since both are added up from the same
 * readings. */
static void
print_lateness(struct report *report)
{
	uint64_t count = 0;
	char extra[48];
	int k;

	print_head(report, "hwt_lateness_seconds", "histogram",
	    "How late timeouts were started or handed over.");
	for (k = 0; k < ELEMENTS; k++) {
		count += report->stats.lateness_ns_histogram[k];
		if (k < BUCKET_FIRST || k > BUCKET_LAST)
			continue;
		(void)snprintf(extra, sizeof(extra), ",le=\"" SECONDS "\"",
		    SECONDS_OF((UINT64_C(2) << k) - 1));
		print_sample(
		    report, "hwt_lateness_seconds_bucket", extra, count);
	}
	print_sample(
	    report, "hwt_lateness_seconds_bucket", ",le=\"+Inf\"", count);
	print_seconds(
	    report, "hwt_lateness_seconds_sum", report->lateness_ns_sum);
	print_sample(report, "hwt_lateness_seconds_count", "", count);
}

static void
write_prometheus(struct report *report)
{
	static const char max[] = "hwt_lateness_max_seconds";
	const struct figure *figure;

	for (figure = figures; figure < figures + FIGURES; figure++) {
		print_head(report, figure->metric, figure->type, figure->help);
		print_sample(
		    report, figure->metric, "", figure_value(report, figure));
	}
	print_lateness(report);
	print_head(report, max, "gauge",
	    "The greatest lateness since the timer was made.");
	print_seconds(report, max, report->stats.lateness_ns_max);
}

static void
write_json(struct report *report)
{
	const uint64_t *histogram = report->stats.lateness_ns_histogram;
	struct page *page = &report->page;
	const struct figure *figure;
	int k;

	page_print(page, "{\"timer\":\"%s\",\"serial\":%" PRIu64, report->name,
	    report->serial);
	for (figure = figures; figure < figures + FIGURES; figure++)
		page_print(page, ",\"%s\":%" PRIu64, figure->key,
		    figure_value(report, figure));
	page_print(page,
	    ",\"lateness_ns_sum\":%" PRIu64 ",\"lateness_ns_max\":%" PRIu64
	    ",\"lateness_ns_histogram\":",
	    report->lateness_ns_sum, report->stats.lateness_ns_max);
	for (k = 0; k < ELEMENTS; k++)
		page_print(
		    page, "%c%" PRIu64, k == 0 ? '[' : ',', histogram[k]);
	page_print(page, "]}\n");
}

int
hwt_read_stats(const struct hwt *timer, struct hwt_stats *stats)
{
	int error = timer_check(timer, stats != NULL);
	const struct worker *worker;
	const struct cache *cache;
	uint32_t i;

	if (error != 0)
		return error;
	memset(stats, 0, sizeof(*stats));
#define ADD(member, ...) stats->member += a64_load_relaxed(&cache->member);
	for (i = 0; (cache = cache_counted(&timer->store, i)) != NULL; i++) {
		CACHE_COUNTERS(ADD)
	}
#define READ(member, ...) stats->member = a64_load_relaxed(&worker->member);
	worker = &timer->worker;
	WORKER_COUNTERS(READ)
	stats->lateness_ns_max = a64_load_relaxed(&worker->lateness_max);
	for (i = 0; i < ELEMENTS; i++)
		stats->lateness_ns_histogram[i] =
		    a64_load_relaxed(&worker->lateness[i]);
	stats->pending = hwt_pending_timeouts(timer);
	stats->memory_bytes = a64_load_relaxed(&timer->store.memory_bytes);
	return 0;
}

int
hwt_stats_write(const struct hwt *timer, FILE *file, enum hwt_format format)
{
	struct report report = {
	    .page = {.file = file}, .heads = format == HWT_PROMETHEUS};
	int error = timer_check(timer,
	    file != NULL && format >= HWT_PROMETHEUS &&
		format <= HWT_PROMETHEUS_SAMPLES);

	if (error != 0)
		return error;
	/* The sum is read before the histogram and counted after it, and so is
	 * of no timeout that the histogram misses. */
	report.lateness_ns_sum = a64_load_acquire(&timer->worker.lateness_sum);
	(void)hwt_read_stats(timer, &report.stats);
	quote_name(report.name, timer->life.thread_name);
	report.serial = timer->serial;
	if (format == HWT_JSON)
		write_json(&report);
	else
		write_prometheus(&report);
	return page_end(&report.page);
}
