/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker has measured: written for monitoring, see observe/figures.h;
 * and published once a second, for hwtd, as texts of the channel S:stats:
 *
 *   QUEUE DONE RETRIED FAILED K:N K:N...
 *
 * They count since the last text; N attempts began late by [2^K, 2^(K+1)) ns.
 * A text that nobody hears is lost.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "observe/figures.h"
#include "worker_internal.h"

/* Elements of a histogram whose upper bounds are buckets: from a quarter of a
 * millisecond to more than two hours. */
#define FIRST 17
#define LAST 42

static unsigned
element_of(uint64_t ns)
{
	return 63 - (unsigned)__builtin_clzll(ns | 1);
}

void
durations_add(struct durations *durations, uint64_t ns)
{
	durations->histogram[element_of(ns)]++;
	/* Of tasks that are due since 1970, ten would wrap it. */
	if (__builtin_add_overflow(durations->sum_ns, ns, &durations->sum_ns))
		durations->sum_ns = UINT64_MAX;
	if (ns > durations->max_ns)
		durations->max_ns = ns;
}

/* Publishing. */

#define TEXT_MAX 2048

void
served_begins(struct served *served, uint64_t late_ns)
{
	served->late[element_of(late_ns)]++;
}

/* Takes what is new into a text. False: nothing is. */
static bool
served_write(struct hwt_durable_worker *worker, struct served *served,
    char text[TEXT_MAX])
{
	uint64_t late[64], news = 0;
	int length, k;

	lock(worker);
	memcpy(late, served->late, sizeof(late));
	memset(served->late, 0, sizeof(served->late));
	unlock(worker);
	length = snprintf(text, TEXT_MAX, "%s %" PRIu64 " %" PRIu64 " %" PRIu64,
	    served->queue, served->outcomes[DONE], served->outcomes[RETRY],
	    served->outcomes[FAIL]);
	for (k = 0; k < OUTCOMES; k++)
		news |= served->outcomes[k];
	memset(served->outcomes, 0, sizeof(served->outcomes));
	for (k = 0; k < 64; k++) {
		news |= late[k];
		if (late[k] > 0)
			length +=
			    snprintf(text + length, TEXT_MAX - (size_t)length,
				" %d:%" PRIu64, k, late[k]);
	}
	return news != 0;
}

void
stats_publish(struct hwt_durable_worker *worker)
{
	struct engine_wait wait = loop_no_retry(&worker->loop);
	struct engine *engine = worker->loop.engine;
	char channel[HWT_DURABLE_SPACE_MAX + 8], text[TEXT_MAX];
	struct engine_argument words[3] = {argument_text("PUBLISH")};
	struct engine_call call = {
	    .script = COMMAND, .shard = SHARD_SPACE, .count = 3, .arg = words};
	uint32_t i;
	int error = 0;

	/* An engine that hangs must not keep us from extending leases. */
	wait.timeout_ns = worker->visibility_ns / 8 < SECOND_NS
	    ? worker->visibility_ns / 8
	    : SECOND_NS;
	(void)snprintf(
	    channel, sizeof(channel), "%s:stats", engine_space(engine));
	words[1] = argument_text(channel);
	for (i = 0; i < worker->queues && !worker->muted && error == 0; i++) {
		if (!served_write(worker, &worker->served[i], text))
			continue;
		words[2] = argument_text(text);
		error = engine_call(engine, &call, 1, &wait);
		worker->muted = error == -EACCES;
		engine_call_free(&call, 1);
	}
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
	"Tasks that were taken and released."),
    R(running, "running", "gauge", "Attempts that have begun, and not ended."),
};

static void
worker_read(struct hwt_durable_worker *worker, struct readings *read)
{
	read->done = a64_load_relaxed(&worker->outcomes[DONE]);
	read->retried = a64_load_relaxed(&worker->outcomes[RETRY]);
	read->failed = a64_load_relaxed(&worker->outcomes[FAIL]);
	read->released = a64_load_relaxed(&worker->outcomes[RELEASE]);
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
