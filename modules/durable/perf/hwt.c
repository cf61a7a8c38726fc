/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SERVER is HOST:PORT,SHARDS,SLOTS,LEVEL,TICK,VISIBILITY,WORKERS: a space of so
 * many shards and slots, 0 are the defaults; a timer of a tick of so many ms,
 * for 0 the handle's own; the visibility of a worker in seconds; so many
 * workers of one thread each, for 0 one worker of all threads. The scheduler is
 * in the process of the workers.
 *
 * Who would call it unfair to the others: a worker here takes tasks in batches
 * by itself, and finishes them in batches. So do PostgreSQL's here and Graphile
 * Worker's; BullMQ, beanstalkd and Celery have no command for it: see the tops
 * of their files. It is in C, and BullMQ, Graphile Worker and Celery are in
 * JavaScript and Python, as their users' programs are: so the server's CPU is
 * told apart from the client's.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "modules/durable/hwt_durable.h"
#include "modules/durable/perf/queue.h"

const unsigned queue_unit_ms = 1;

enum {
	WORKERS_MAX = 64
};

static struct hwt *timer;
static struct hwt_durable *durable;
static struct hwt_durable_scheduler *scheduler;
static struct hwt_durable_worker *worker[WORKERS_MAX];
static unsigned workers; /* as in SERVER */
static uint64_t visibility_s;

void
queue_open(const char *server)
{
	char address[64];
	struct hwt_durable_options options = {
	    .servers = address, .space = "perf", .flags = HWT_DURABLE_CREATE};
	struct hwt_options timing = {0};
	uint64_t tick_ms;
	int error;

	if (sscanf(server,
		"%63[^,],%" SCNu32 ",%" SCNu32 ",%" SCNu32 ",%" SCNu64
		",%" SCNu64 ",%u",
		address, &options.shards, &options.slots, &options.level,
		&tick_ms, &visibility_s, &workers) != 7 ||
	    workers > WORKERS_MAX)
		FAIL("not a server: %s", server);
	timing.tick_ns = HWT_MS(tick_ms);
	if (tick_ms > 0 && hwt_create(&timer, &timing) != 0)
		FAIL("no timer");
	options.timer = timer;
	error = hwt_durable_open(&durable, &options);
	if (error != 0)
		FAIL("open: %s", strerror(-error));
}

void
queue_close(void)
{
	if (hwt_durable_close(durable) != 0)
		FAIL("close");
	if (timer != NULL &&
	    (hwt_stop(timer, NULL) != 0 || hwt_destroy(timer) != 0))
		FAIL("the timer does not stop");
}

struct producer *
producer_open(void)
{
	return NULL;
}

void
producer_close(struct producer *producer)
{
	(void)producer;
}

bool
producer_add(struct producer *producer, size_t count, const struct task *tasks)
{
	struct hwt_durable_task added[BATCH_MAX];
	char ids[BATCH_MAX][24];
	size_t i;
	int error;

	(void)producer;
	for (i = 0; i < count; i++) {
		(void)snprintf(
		    ids[i], sizeof(ids[i]), "t%" PRIu64, tasks[i].number);
		added[i] = (struct hwt_durable_task){.id = ids[i],
		    .id_length = strlen(ids[i]),
		    .queue = "perf",
		    .due_unix_ns = HWT_MS(tasks[i].due_ms),
		    .flags = HWT_DURABLE_AT,
		    .payload = tasks[i].payload,
		    .payload_length = PAYLOAD};
	}
	error = hwt_durable_add(durable, count, added, NULL);
	if (error != 0 && error != -ETIMEDOUT && error != -ECONNREFUSED &&
	    error != -EAGAIN)
		FAIL("add: %s", strerror(-error));
	return error == 0;
}

static int
execute(void *ctx, const struct hwt_durable_delivery *task)
{
	char text[PAYLOAD + 1];

	(void)ctx;
	(void)snprintf(text, sizeof(text), "%.*s", (int)task->payload_length,
	    (const char *)task->payload);
	task_executed(text);
	return 0;
}

void
work_start(unsigned threads)
{
	struct hwt_durable_worker_options work = {.queue = "perf",
	    .callback = execute,
	    .threads = workers > 0 ? 1 : threads,
	    .visibility_ns = HWT_SEC(visibility_s)};
	unsigned i = 0;

	do
		if (hwt_durable_worker_start(&worker[i], durable, &work) != 0)
			FAIL("no worker");
	while (++i < workers);
	if (hwt_durable_scheduler_start(&scheduler, durable, NULL) != 0)
		FAIL("no scheduler");
}

void
work_stop(void)
{
	unsigned i;

	for (i = 0; i < WORKERS_MAX && worker[i] != NULL; i++)
		if (hwt_durable_worker_stop(worker[i], HWT_SEC(30)) != 0)
			FAIL("a worker does not stop");
	if (hwt_durable_scheduler_stop(scheduler) != 0)
		FAIL("the scheduler does not stop");
}
