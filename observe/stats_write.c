/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_stats_write: the counters as text for monitoring.
 *
 * Times are whole nanoseconds, and seconds are printed from them digit by
 * digit: no number is rounded.
 *
 * The histogram for Prometheus has fewer buckets than hwt_stats, each of them
 * whole: cumulative counts stay exact when buckets between are left out. An
 * element k counts lateness below 2^(k+1) ns, and so its bound, which is
 * inclusive, is one nanosecond less.
 */
#include <errno.h>

#include "core/timer.h"
#include "observe/figures.h"

/* Elements of the histogram whose upper bounds are buckets: from 1 us to more
 * than a minute. */
#define BUCKET_FIRST 9
#define BUCKET_LAST 35
#define ELEMENTS 64
#define SECOND_NS UINT64_C(1000000000)

static const struct figure figures[] = {
    FIGURE(hwt_stats, scheduled, "hwt_timeouts_scheduled_total", "counter",
	"Timeouts that were accepted."),
    FIGURE(hwt_stats, started, "hwt_tasks_started_total", "counter",
	"Tasks that were begun."),
    FIGURE(hwt_stats, cancelled, "hwt_timeouts_cancelled_total", "counter",
	"Cancels that won."),
    FIGURE(hwt_stats, rescheduled, "hwt_timeouts_rescheduled_total", "counter",
	"Reschedules that succeeded."),
    FIGURE(hwt_stats, rejected, "hwt_timeouts_rejected_total", "counter",
	"Timeouts that were refused because of max_pending."),
    FIGURE(hwt_stats, executor_refused, "hwt_executor_refusals_total",
	"counter", "Timeouts that executors refused."),
    FIGURE(hwt_stats, pending, "hwt_timeouts_pending", "gauge",
	"Timeouts that were accepted and have not begun or ended."),
    FIGURE(hwt_stats, ticks, "hwt_ticks_total", "counter",
	"Tick boundaries that the worker has begun."),
    FIGURE(hwt_stats, wakeups, "hwt_wakeups_total", "counter",
	"Returns of the worker from sleep."),
    FIGURE(hwt_stats, late_ticks, "hwt_late_ticks_total", "counter",
	"Ticks that were begun more than a tick late."),
    FIGURE(hwt_stats, slow_tasks, "hwt_slow_tasks_total", "counter",
	"Tasks that held the worker longer than slow_task_ns."),
    FIGURE(hwt_stats, memory_bytes, "hwt_memory_bytes", "gauge",
	"Memory that the timer holds."),
};

#define FIGURES (sizeof(figures) / sizeof(figures[0]))

struct timer_report {
	struct report report;
	uint64_t lateness_ns_sum;
	struct hwt_stats stats;
};

static void
print_seconds(
    struct report *report, const char *metric, const char *suffix, uint64_t ns)
{
	print_labels(report, metric, suffix, "");
	page_print(&report->page, "%" PRIu64 ".%09" PRIu64 "\n", ns / SECOND_NS,
	    ns % SECOND_NS);
}

/* The count is that of the last bucket, since both are added up from the same
 * readings. */
static void
print_histogram(struct timer_report *of)
{
	static const char metric[] = "hwt_lateness_seconds";
	struct report *report = &of->report;
	uint64_t count = 0;
	uint64_t bound;
	char extra[48];
	int k;

	print_head(report, metric, "histogram",
	    "How late timeouts were started or handed over.");
	for (k = 0; k < ELEMENTS; k++) {
		count += of->stats.lateness_ns_histogram[k];
		if (k < BUCKET_FIRST || k > BUCKET_LAST)
			continue;
		bound = (UINT64_C(2) << k) - 1;
		(void)snprintf(extra, sizeof(extra),
		    ",le=\"%" PRIu64 ".%09" PRIu64 "\"", bound / SECOND_NS,
		    bound % SECOND_NS);
		print_sample(report, metric, "_bucket", extra, count);
	}
	print_sample(report, metric, "_bucket", ",le=\"+Inf\"", count);
	print_seconds(report, metric, "_sum", of->lateness_ns_sum);
	print_sample(report, metric, "_count", "", count);
}

static void
write_prometheus(struct timer_report *of)
{
	static const char max[] = "hwt_lateness_max_seconds";
	struct report *report = &of->report;

	print_figures(report);
	print_histogram(of);
	print_head(report, max, "gauge",
	    "The greatest lateness since the timer was made.");
	print_seconds(report, max, "", of->stats.lateness_ns_max);
}

static void
write_json(struct timer_report *of)
{
	struct page *page = &of->report.page;
	int k;

	print_figures_json(&of->report);
	page_print(page,
	    ",\"lateness_ns_sum\":%" PRIu64 ",\"lateness_ns_max\":%" PRIu64
	    ",\"lateness_ns_histogram\":",
	    of->lateness_ns_sum, of->stats.lateness_ns_max);
	for (k = 0; k < ELEMENTS; k++)
		page_print(page, "%c%" PRIu64, k == 0 ? '[' : ',',
		    of->stats.lateness_ns_histogram[k]);
	page_print(page, "]}\n");
}

int
hwt_stats_write(const struct hwt *timer, FILE *file, enum hwt_format format)
{
	struct timer_report of = {.report = {.page = {.file = file},
				      .figure = figures,
				      .figures = FIGURES,
				      .stats = &of.stats,
				      .kind = "timer",
				      .heads = format == HWT_PROMETHEUS}};
	int error = hwt_read_stats(timer, &of.stats);

	if (error != 0)
		return error;
	if (file == NULL || format < HWT_PROMETHEUS ||
	    format > HWT_PROMETHEUS_SAMPLES)
		return -EINVAL;
	quote_name(of.report.name, timer->life.thread_name);
	of.report.serial = timer->serial;
	of.lateness_ns_sum = a64_load_relaxed(&timer->worker.lateness_sum);
	if (format == HWT_JSON)
		write_json(&of);
	else
		write_prometheus(&of);
	return page_end(&of.report.page);
}
