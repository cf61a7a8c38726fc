/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

static const struct {
	const char *name, *help;
	size_t offset;
	bool counter;
} rows[] = {
#define ROW(field, counter, help)                                        \
	{                                                                \
#field, help, offsetof(struct hwt_durable_stats, field), \
		    counter                                              \
	}
    ROW(added, true, "Tasks accepted."),
    ROW(succeeded, true, "Tasks that are done."),
    ROW(failed, true, "Tasks that became dead letters."),
    ROW(cancelled, true, "Tasks cancelled before they ran."),
    ROW(dropped, true, "Dead letters dropped."),
    ROW(begun, true, "Executions begun."),
    ROW(retried, true, "Executions that asked for another."),
    ROW(given_back, true, "Attempts that were released: they do not count."),
    ROW(expired_leases, true, "Executions whose worker was not heard of."),
    ROW(missed, true, "Due tasks that a scan had to find; 0 is right."),
    ROW(pending, false, "Tasks that are not due."),
    ROW(delivered, false, "Tasks that are due and wait for a worker."),
    ROW(running, false, "Tasks that a worker has."),
    ROW(quarantined, false, "Records that cannot be read."),
    ROW(dead, false, "Dead letters."),
    ROW(replicas, false, "Replicas connected; 0 if none are waited for."),
    ROW(replicas_awaited, false, "Replicas that a call waits for."),
#undef ROW
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* Nanoseconds, of the shard where it is most. */
static const struct {
	const char *name, *help;
	size_t offset;
} times[] = {
    {"lag", "How far the last shard is behind.",
	offsetof(struct hwt_durable_stats, lag_ns)},
    {"clock_ahead", "How long time stands still, after a clock was set back.",
	offsetof(struct hwt_durable_stats, clock_ahead_ns)},
    {"clock_leap",
	"By how much the clock has leapt, while that is unconfirmed.",
	offsetof(struct hwt_durable_stats, clock_leap_ns)},
};

#define TIMES (sizeof(times) / sizeof(times[0]))

static uint64_t
value_at(const struct hwt_durable_stats *stats, size_t offset)
{
	uint64_t value;

	memcpy(&value, (const char *)stats + offset, sizeof(value));
	return value;
}

static uint64_t
row_value(const struct hwt_durable_stats *stats, size_t i)
{
	return value_at(stats, rows[i].offset);
}

/* The numbers do not depend on the locale: no program sets one. */
static void
print_seconds(FILE *file, uint64_t ns)
{
	(void)fprintf(
	    file, "%" PRIu64 ".%09" PRIu64, ns / HWT_SEC(1), ns % HWT_SEC(1));
}

/* In some shards alone: a pause or a resume was cut short. */
static void
pause_human(FILE *file, const struct queues *queues, const struct queue *queue)
{
	if (queue->paused == queues->shards)
		(void)fputs("  paused", file);
	else if (queue->paused > 0)
		(void)fprintf(file,
		    "  paused in %" PRIu64 " of %" PRIu32 " shards",
		    queue->paused, queues->shards);
}

static void
limits_human(FILE *file, const struct queue *queue)
{
	if (queue->at_once > 0)
		(void)fprintf(
		    file, "  at most %" PRIu64 " at once", queue->at_once);
	if (queue->rate > 0)
		(void)fprintf(
		    file, "  %.15g a second", (double)queue->rate / 1000);
}

/* The numbers of queues come after those of the space. */
static void
queues_human(FILE *file, const struct queues *queues)
{
	size_t i;

	if (queues->count > 0)
		(void)fprintf(
		    file, "\n%-31s %10s %12s\n", "queue", "waiting", "oldest");
	for (i = 0; i < queues->count; i++) {
		(void)fprintf(file,
		    "%-31s %10" PRIu64 " %7" PRIu64 ".%03" PRIu64 " s",
		    queues->queue[i].name, queues->queue[i].entries,
		    queues->queue[i].age_ns / HWT_SEC(1),
		    queues->queue[i].age_ns % HWT_SEC(1) / HWT_MS(1));
		pause_human(file, queues, &queues->queue[i]);
		limits_human(file, &queues->queue[i]);
		(void)fputc('\n', file);
	}
	if (!queues->all)
		(void)fputs("and others, whose oldest are younger\n", file);
}

static void
queues_json(FILE *file, const struct queues *queues)
{
	size_t i;

	(void)fputs(",\"queues\":[", file);
	for (i = 0; i < queues->count; i++)
		(void)fprintf(file,
		    "%s{\"queue\":\"%s\",\"waiting\":%" PRIu64
		    ",\"oldest_ns\":%" PRIu64 ",\"paused_shards\":%" PRIu64
		    ",\"at_once\":%" PRIu64 ",\"rate\":%.15g}",
		    i > 0 ? "," : "", queues->queue[i].name,
		    queues->queue[i].entries, queues->queue[i].age_ns,
		    queues->queue[i].paused, queues->queue[i].at_once,
		    (double)queues->queue[i].rate / 1000);
	(void)fprintf(file, "],\"all_queues\":%s,\"shards\":%" PRIu32,
	    queues->all ? "true" : "false", queues->shards);
}

void
metrics_human(FILE *file, const struct hwt_durable_stats *stats,
    const struct queues *queues)
{
	size_t i;

	for (i = 0; i < ROWS; i++)
		(void)fprintf(file, "%-15s %12" PRIu64 "  %s\n", rows[i].name,
		    row_value(stats, i), rows[i].help);
	for (i = 0; i < TIMES; i++)
		(void)fprintf(file, "%-15s %9" PRIu64 " ms  %s\n",
		    times[i].name, value_at(stats, times[i].offset) / HWT_MS(1),
		    times[i].help);
	queues_human(file, queues);
}

void
metrics_json(FILE *file, const char *space,
    const struct hwt_durable_stats *stats, const struct queues *queues)
{
	size_t i;

	(void)fprintf(file, "{\"space\":\"%s\"", space);
	for (i = 0; i < ROWS; i++)
		(void)fprintf(file, ",\"%s\":%" PRIu64, rows[i].name,
		    row_value(stats, i));
	for (i = 0; i < TIMES; i++)
		(void)fprintf(file, ",\"%s_ns\":%" PRIu64, times[i].name,
		    value_at(stats, times[i].offset));
	queues_json(file, queues);
	(void)fputs("}\n", file);
}

static void
print_head(FILE *file, const char *name, const char *suffix, const char *type,
    const char *help)
{
	(void)fprintf(file,
	    "# HELP hwt_durable_%s%s %s\n# TYPE hwt_durable_%s%s %s\n", name,
	    suffix, help, name, suffix, type);
}

/* Of queues; whole numbers. */
static const struct {
	const char *name, *help;
	size_t offset;
} queue_rows[] = {
    {"waiting",
	"Tasks that are due and wait for a worker, by queue; of at most 64 "
	"queues, those with the oldest ones.",
	offsetof(struct queue, entries)},
    {"in_flight",
	"Tasks that workers have; estimated, if a shard has more than 256.",
	offsetof(struct queue, running)},
    {"paused_shards",
	"In how many shards the queue is paused: all, or 0; between them a "
	"pause or a resume is to be repeated.",
	offsetof(struct queue, paused)},
    {"limit_at_once",
	"How many tasks workers may have at a time; 0: any number.",
	offsetof(struct queue, at_once)},
};

#define QUEUE_ROWS (sizeof(queue_rows) / sizeof(queue_rows[0]))

static void
print_queue(
    FILE *file, const char *name, const char *space, const struct queue *queue)
{
	(void)fprintf(file, "hwt_durable_queue_%s{space=\"%s\",queue=\"%s\"} ",
	    name, space, queue->name);
}

static void
queue_row_prometheus(
    FILE *file, const char *space, const struct queues *queues, size_t row)
{
	uint64_t value;
	char name[64];
	size_t i;

	(void)snprintf(name, sizeof(name), "queue_%s", queue_rows[row].name);
	print_head(file, name, "", "gauge", queue_rows[row].help);
	for (i = 0; i < queues->count; i++) {
		memcpy(&value,
		    (const char *)&queues->queue[i] + queue_rows[row].offset,
		    sizeof(value));
		print_queue(
		    file, queue_rows[row].name, space, &queues->queue[i]);
		(void)fprintf(file, "%" PRIu64 "\n", value);
	}
}

static void
queues_prometheus(FILE *file, const char *space, const struct queues *queues)
{
	size_t i;

	for (i = 0; i < QUEUE_ROWS; i++)
		queue_row_prometheus(file, space, queues, i);
	print_head(file, "queue_oldest_seconds", "", "gauge",
	    "For how long the oldest of those that wait has been due.");
	for (i = 0; i < queues->count; i++) {
		print_queue(file, "oldest_seconds", space, &queues->queue[i]);
		print_seconds(file, queues->queue[i].age_ns);
		(void)fputc('\n', file);
	}
	print_head(file, "queue_limit_rate", "", "gauge",
	    "How many attempts may begin in a second; 0: any number.");
	for (i = 0; i < queues->count; i++) {
		print_queue(file, "limit_rate", space, &queues->queue[i]);
		(void)fprintf(
		    file, "%.15g\n", (double)queues->queue[i].rate / 1000);
	}
	print_head(file, "shards", "", "gauge", "Of the space.");
	(void)fprintf(file, "hwt_durable_shards{space=\"%s\"} %" PRIu32 "\n",
	    space, queues->shards);
	print_head(file, "queues_left_out", "", "gauge",
	    "Whether there are other queues.");
	(void)fprintf(file, "hwt_durable_queues_left_out{space=\"%s\"} %d\n",
	    space, !queues->all);
}

void
metrics_prometheus(FILE *file, const char *space,
    const struct hwt_durable_stats *stats, const struct queues *queues)
{
	const char *suffix;
	size_t i;

	print_head(file, "up", "", "gauge", "Whether the engine answers.");
	(void)fprintf(
	    file, "hwt_durable_up{space=\"%s\"} %d\n", space, stats != NULL);
	if (stats == NULL)
		return;
	for (i = 0; i < ROWS; i++) {
		suffix = rows[i].counter ? "_total" : "";
		print_head(file, rows[i].name, suffix,
		    rows[i].counter ? "counter" : "gauge", rows[i].help);
		(void)fprintf(file,
		    "hwt_durable_%s%s{space=\"%s\"} %" PRIu64 "\n",
		    rows[i].name, suffix, space, row_value(stats, i));
	}
	for (i = 0; i < TIMES; i++) {
		print_head(
		    file, times[i].name, "_seconds", "gauge", times[i].help);
		(void)fprintf(file, "hwt_durable_%s_seconds{space=\"%s\"} ",
		    times[i].name, space);
		print_seconds(file, value_at(stats, times[i].offset));
		(void)fputc('\n', file);
	}
	queues_prometheus(file, space, queues);
}
