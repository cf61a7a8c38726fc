/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_stats_write: the counters as text for monitoring.
 */
#include <errno.h>

#include "core/timer.h"
#include "observe/figures.h"

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
write_prometheus(struct timer_report *of)
{
	static const char max[] = "hwt_lateness_max_seconds";
	struct report *report = &of->report;

	print_figures(report);
	print_histogram(report, "hwt_lateness_seconds",
	    "How late timeouts were started or handed over.",
	    of->stats.lateness_ns_histogram, of->lateness_ns_sum);
	print_head(report, max, "gauge",
	    "The greatest lateness since the timer was made.");
	print_seconds(report, max, "", of->stats.lateness_ns_max);
}

static void
write_json(struct timer_report *of)
{
	struct page *page = &of->report.page;

	print_figures_json(&of->report);
	page_print(page,
	    ",\"lateness_ns_sum\":%" PRIu64 ",\"lateness_ns_max\":%" PRIu64
	    ",\"lateness_ns_histogram\":",
	    of->lateness_ns_sum, of->stats.lateness_ns_max);
	print_histogram_json(&of->report, of->stats.lateness_ns_histogram);
	page_print(page, "}\n");
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
	char name[LABEL_BYTES];
	int error = hwt_read_stats(timer, &of.stats);

	if (error != 0)
		return error;
	if (file == NULL || format < HWT_PROMETHEUS ||
	    format > HWT_PROMETHEUS_SAMPLES)
		return -EINVAL;
	quote_name(name, timer->life.thread_name);
	of.report.name = name;
	of.report.serial = timer->serial;
	of.lateness_ns_sum = a64_load_relaxed(&timer->worker.lateness_sum);
	if (format == HWT_JSON)
		write_json(&of);
	else
		write_prometheus(&of);
	return page_end(&of.report.page);
}
