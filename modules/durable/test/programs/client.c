/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: does with the library what the lines on its standard input say, and
 * answers each with a line of its first word and the result. actor.py speaks
 * to it.
 *
 *   open SERVERS SPACE LEVEL SHARDS SLOTS TICK-MS TIMEOUT-MS SKEW-MS
 *   add QUEUE DELAY-MS ATTEMPTS PAYLOAD ID...   and the result of each
 *   cancel ID       reschedule ID DELAY-MS
 *   get ID          and state, attempts, generation, due in ms
 *   stats           and succeeded, failed, cancelled, begun, pending,
 *                   delivered, running, dead
 *   schedule        unschedule
 *   work QUEUE THREADS VISIBILITY-MS RUN-LIMIT-MS      unwork WITHIN-MS
 *   close
 *
 * SKEW-MS 0 is the default, -1 stands for HWT_NEVER. What a worker does is told
 * in between:
 *
 *   begin MS ID GENERATION ATTEMPT DUE-MS
 *   end MS ID GENERATION ATTEMPT done|retry|fail
 *
 * The payload says what a callback does: OUTCOME[,FIRST-MS[,MS]]. Its outcome
 * is done, fail, or retry, which is a retry after 20 ms and then done; it takes
 * FIRST-MS at the first attempt and MS at the others.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "modules/durable/hwt_durable.h"

enum {
	WORDS = 600,
	LINE = 65536
};

struct client {
	struct hwt_durable *durable;
	struct hwt_durable_scheduler *scheduler;
	struct hwt_durable_worker *worker;
	char *word[WORDS];
	size_t count;
};

static uint64_t
number(const struct client *client, size_t at)
{
	return strtoull(client->word[at], NULL, 10);
}

/* A line is one write, so that those of two threads do not mix. */
static void
say(const char *line)
{
	size_t length = strlen(line);

	if (write(STDOUT_FILENO, line, length) != (ssize_t)length)
		_exit(1);
}

static void
tell(
    const char *what, const struct hwt_durable_delivery *task, const char *more)
{
	struct timespec now;
	char line[256];

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)snprintf(line, sizeof(line),
	    "%s %" PRIu64 " %s %" PRIu32 " %" PRIu32 " %s\n", what,
	    (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000,
	    task->id, task->generation, task->attempt, more);
	say(line);
}

static int
execute(void *ctx, const struct hwt_durable_delivery *task)
{
	const char *first = strchr(task->payload, ',');
	const char *others = first != NULL ? strchr(first + 1, ',') : NULL;
	const char *takes = task->attempt == 1 ? first : others;
	uint64_t ms = takes != NULL ? strtoull(takes + 1, NULL, 10) : 0;
	const struct timespec pause = {
	    .tv_sec = (time_t)(ms / 1000), .tv_nsec = ms % 1000 * 1000000};
	const char *payload = task->payload;
	char due[24];

	(void)ctx;
	(void)snprintf(
	    due, sizeof(due), "%" PRIu64, task->due_unix_ns / HWT_MS(1));
	tell("begin", task, due);
	(void)nanosleep(&pause, NULL);
	if (payload[0] == 'f') {
		tell("end", task, "fail");
		return HWT_DURABLE_FAIL;
	}
	if (payload[0] == 'r' && task->attempt == 1) {
		tell("end", task, "retry");
		*task->retry_delay_ns = HWT_MS(20);
		return HWT_DURABLE_RETRY;
	}
	tell("end", task, "done");
	return 0;
}

static int
client_open(struct client *client)
{
	const struct hwt_durable_options options = {.servers = client->word[1],
	    .flags = HWT_DURABLE_CREATE,
	    .space = client->word[2],
	    .level = (uint32_t)number(client, 3),
	    .shards = (uint32_t)number(client, 4),
	    .slots = (uint32_t)number(client, 5),
	    .tick_ns = HWT_MS(number(client, 6)),
	    .timeout_ns = HWT_MS(number(client, 7)),
	    .skew_ns = client->word[8][0] == '-' ? HWT_NEVER
						 : HWT_MS(number(client, 8)),
	    .replicas = client->count > 9 ? (uint32_t)number(client, 9) : 0};

	return hwt_durable_open(&client->durable, &options);
}

static int
client_add(struct client *client, char *more, size_t size)
{
	struct hwt_durable_task task[HWT_DURABLE_BATCH_MAX] = {0};
	int result[HWT_DURABLE_BATCH_MAX];
	size_t count = client->count - 5;
	size_t length = 0;
	size_t i;
	int error;

	for (i = 0; i < count; i++)
		task[i] = (struct hwt_durable_task){.id = client->word[5 + i],
		    .id_length = strlen(client->word[5 + i]),
		    .queue = client->word[1],
		    .delay_ns = HWT_MS(number(client, 2)),
		    .max_attempts = (uint32_t)number(client, 3),
		    .payload = client->word[4],
		    .payload_length = strlen(client->word[4])};
	error = hwt_durable_add(client->durable, count, task, result);
	for (i = 0; i < count; i++)
		length += (size_t)snprintf(
		    more + length, size - length, " %d", result[i]);
	return error;
}

static int
client_get(struct client *client, char *more, size_t size)
{
	struct hwt_durable_info info = {0};
	const char *id = client->word[1];
	int error =
	    hwt_durable_get(client->durable, id, strlen(id), &info, NULL, 0);

	(void)snprintf(more, size, " %d %" PRIu32 " %" PRIu32 " %" PRIu64,
	    (int)info.state, info.attempts, info.generation,
	    info.due_unix_ns / HWT_MS(1));
	return error;
}

static int
client_stats(struct client *client, char *more, size_t size)
{
	struct hwt_durable_stats stats = {0};
	int error = hwt_durable_read_stats(client->durable, &stats);

	(void)snprintf(more, size,
	    " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
	    " %" PRIu64 " %" PRIu64 " %" PRIu64,
	    stats.succeeded, stats.failed, stats.cancelled, stats.begun,
	    stats.pending, stats.delivered, stats.running, stats.dead);
	return error;
}

static int
client_work(struct client *client)
{
	const struct hwt_durable_worker_options options = {
	    .queue = client->word[1],
	    .callback = execute,
	    .threads = (uint32_t)number(client, 2),
	    .visibility_ns = HWT_MS(number(client, 3)),
	    .run_limit_ns = HWT_MS(number(client, 4))};

	return hwt_durable_worker_start(
	    &client->worker, client->durable, &options);
}

/* What is one call of the library. */
static int
client_call(struct client *client, const char *what)
{
	const char *id = client->count > 1 ? client->word[1] : "";

	if (strcmp(what, "open") == 0)
		return client_open(client);
	if (strcmp(what, "cancel") == 0)
		return hwt_durable_cancel(client->durable, id, strlen(id));
	if (strcmp(what, "reschedule") == 0)
		return hwt_durable_reschedule(client->durable, id, strlen(id),
		    HWT_MS(number(client, 2)), 0);
	if (strcmp(what, "schedule") == 0)
		return hwt_durable_scheduler_start(
		    &client->scheduler, client->durable, NULL);
	if (strcmp(what, "unschedule") == 0)
		return hwt_durable_scheduler_stop(client->scheduler);
	if (strcmp(what, "work") == 0)
		return client_work(client);
	if (strcmp(what, "unwork") == 0)
		return hwt_durable_worker_stop(
		    client->worker, HWT_MS(number(client, 1)));
	if (strcmp(what, "close") == 0)
		return hwt_durable_close(client->durable);
	_exit(2);
}

static void
client_obey(struct client *client)
{
	static char answer[8192];
	static char more[8000];
	const char *what = client->word[0];
	int error;

	more[0] = 0;
	if (strcmp(what, "add") == 0)
		error = client_add(client, more, sizeof(more));
	else if (strcmp(what, "get") == 0)
		error = client_get(client, more, sizeof(more));
	else if (strcmp(what, "stats") == 0)
		error = client_stats(client, more, sizeof(more));
	else
		error = client_call(client, what);
	(void)snprintf(answer, sizeof(answer), "%s %d%s\n", what, error, more);
	say(answer);
}

int
main(void)
{
	static char line[LINE];
	struct client client = {0};
	char *rest, *word;

	while (fgets(line, sizeof(line), stdin) != NULL) {
		client.count = 0;
		for (word = strtok_r(line, " \n", &rest);
		     word != NULL && client.count < WORDS;
		     word = strtok_r(NULL, " \n", &rest))
			client.word[client.count++] = word;
		if (client.count > 0)
			client_obey(&client);
	}
	return 0;
}
