/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker has measured, written for monitoring: see observe/figures.h.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "observe/figures.h"
#include "worker_inside.h"

/* Elements of a histogram whose upper bounds are buckets: from a quarter of a
 * millisecond to more than two hours. */
#define FIRST 17
#define LAST 42

void
durations_add(struct durations *durations, uint64_t ns)
{
	durations->histogram[63 - __builtin_clzll(ns | 1)]++;
	/* Of tasks that are due since 1970, ten would wrap it. */
	if (__builtin_add_overflow(durations->sum_ns, ns, &durations->sum_ns))
		durations->sum_ns = UINT64_MAX;
	if (ns > durations->max_ns)
		durations->max_ns = ns;
}

/* What is read at one time. */
struct readings {
	uint64_t done, retried, failed, released;
	uint64_t running;
	struct durations late, execution;
};

#define R(key, metric, type, help) \
	FIGURE(readings, key, "hwt_durable_worker_" metric, type, help)

static const struct figure figures[] = {
    R(done, "done_total", "counter", "Attempts that are done."),
    R(retried, "retried_total", "counter",
	"Attempts that are to be made again."),
    R(failed, "failed_total", "counter", "Attempts that have failed for good."),
    R(released, "released_total", "counter",
	"Tasks that were taken and given back."),
    R(running, "running", "gauge", "Attempts that have begun, and not ended."),
};

static void
worker_read(struct hwt_durable_worker *worker, struct readings *read)
{
	read->done = a64_load_relaxed(&worker->outcomes[DONE]);
	read->retried = a64_load_relaxed(&worker->outcomes[RETRY]);
	read->failed = a64_load_relaxed(&worker->outcomes[FAIL]);
	read->released = a64_load_relaxed(&worker->outcomes[BACK]);
	lock(worker);
	read->running = worker->running + worker->later;
	read->late = worker->late;
	read->execution = worker->execution;
	unlock(worker);
}

static void
write_prometheus(struct report *report, const struct readings *read)
{
	print_figures(report);
	print_buckets(report, "hwt_durable_worker_lateness_seconds",
	    "From when a task was due to the begin of its attempt.",
	    read->late.histogram, read->late.sum_ns, FIRST, LAST);
	print_buckets(report, "hwt_durable_worker_execution_seconds",
	    "From the begin of an attempt until its outcome is known.",
	    read->execution.histogram, read->execution.sum_ns, FIRST, LAST);
}

static void
durations_json(
    struct report *report, const char *name, const struct durations *durations)
{
	page_print(&report->page,
	    ",\"%s_ns_sum\":%" PRIu64 ",\"%s_ns_max\":%" PRIu64
	    ",\"%s_ns_histogram\":",
	    name, durations->sum_ns, name, durations->max_ns, name);
	print_histogram_json(report, durations->histogram);
}

static void
write_json(
    struct report *report, const char *space, const struct readings *read)
{
	print_figures_json(report);
	page_print(&report->page, ",\"space\":\"%s\"", space);
	durations_json(report, "lateness", &read->late);
	durations_json(report, "execution", &read->execution);
	page_print(&report->page, "}\n");
}

int
hwt_durable_worker_stats_write(
    struct hwt_durable_worker *worker, FILE *file, enum hwt_format format)
{
	struct readings read;
	struct report report = {.page = {.file = file},
	    .figure = figures,
	    .figures = sizeof(figures) / sizeof(figures[0]),
	    .stats = &read,
	    .kind = "queue",
	    .heads = format == HWT_PROMETHEUS};
	const char *space;
	int error;

	if (worker == NULL || file == NULL || format < HWT_PROMETHEUS ||
	    format > HWT_PROMETHEUS_SAMPLES)
		return -EINVAL;
	error = durable_enter(worker->durable);
	if (error != 0)
		return error;
	worker_read(worker, &read);
	space = engine_space(worker->loop.engine);
	report.name = worker->channel + 5; /* the queues, as they were given */
	(void)snprintf(
	    report.more, sizeof(report.more), ",space=\"%s\"", space);
	report.serial = worker->serial;
	if (format == HWT_JSON)
		write_json(&report, space, &read);
	else
		write_prometheus(&report, &read);
	return page_end(&report.page);
}
