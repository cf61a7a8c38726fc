/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of hwtctl that are about queues, their lists and schedules. */
#include "modules/durable/programs/hwtctl.h"

#include <stdlib.h>
#include <string.h>

#define PAGE "100" /* tasks of one answer, about */

typedef void listed(const redisReply *task, void *ctx);

/* Calls visit for the tasks in a state, up to most. Tasks that move meanwhile
 * may be missed, or come twice. */
static void
walk(const struct request *request, const char *queue, const char *state,
    uint64_t most, listed *visit, void *ctx)
{
	char cursor[24] = "0";
	uint64_t count = 0;

	do {
		struct words words = {.count = 0};
		redisReply *reply;
		size_t i;

		words_add(&words, "HWT.LIST");
		words_add(&words, state);
		words_add(&words, cursor);
		words_add(&words, PAGE);
		reply = request_call(request, queue, &words);
		for (i = 0; i < reply->element[1]->elements && count < most;
		     i++, count++)
			visit(reply->element[1]->element[i], ctx);
		(void)snprintf(
		    cursor, sizeof(cursor), "%s", reply->element[0]->str);
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0 && count < most);
}

static uint64_t
parse_limit(const struct request *request)
{
	return request->limit == NULL
	    ? UINT64_MAX
	    : parse_number(request->program, request->limit, 1, UINT32_MAX);
}

/* id, time, attempt; of dead letters reason and payload. */
static void
print_task(const redisReply *task, void *ctx)
{
	(void)ctx;
	print_bytes(stdout, task->element[0]->str, task->element[0]->len);
	if (task->element[1]->integer > 0)
		print_time("\t", task->element[1]->integer);
	else
		printf("\t-");
	printf("\t%lld", task->element[2]->integer);
	if (task->elements > 3) {
		(void)putchar('\t');
		print_bytes(
		    stdout, task->element[3]->str, task->element[3]->len);
	}
	(void)putchar('\n');
}

int
run_list(struct request *request)
{
	walk(request, request->argv[0], request->argv[1], parse_limit(request),
	    print_task, NULL);
	return 0;
}

/* Ids of dead letters, so that they are listed before they change. */
struct ids {
	char **id;
	size_t *length;
	size_t count, size;
	const struct request *request;
};

static void
keep_id(const redisReply *task, void *ctx)
{
	struct ids *ids = ctx;
	const redisReply *id = task->element[0];

	if (ids->count == ids->size) {
		ids->size = 2 * ids->size + 64;
		ids->id = realloc(ids->id, ids->size * sizeof(*ids->id));
		ids->length =
		    realloc(ids->length, ids->size * sizeof(*ids->length));
	}
	if (ids->id == NULL || ids->length == NULL ||
	    (ids->id[ids->count] = malloc(id->len)) == NULL)
		program_fail(ids->request->program, STATUS_USAGE, "no memory");
	memcpy(ids->id[ids->count], id->str, id->len);
	ids->length[ids->count++] = id->len;
}

static int
dead_all(struct request *request, const char *verb)
{
	struct ids ids = {.request = request};
	long long done = 0;
	size_t i = 0, j;

	walk(request, request->argv[0], "dead", UINT64_MAX, keep_id, &ids);
	while (i < ids.count) {
		struct words words = {.count = 0};
		redisReply *reply;

		words_add(&words, "HWT.DEAD");
		words_add(&words, verb);
		for (; i < ids.count && words.count < HWT_DURABLE_BATCH_MAX;
		     i++)
			words_add_bytes(&words, ids.id[i], ids.length[i]);
		reply = request_call(request, request->argv[0], &words);
		for (j = 0; j < reply->elements; j++)
			done += reply->element[j]->integer;
		freeReplyObject(reply);
	}
	for (i = 0; i < ids.count; i++)
		free(ids.id[i]);
	free(ids.id);
	free(ids.length);
	printf("%lld\n", done);
	return 0;
}

int
run_dead(struct request *request)
{
	const char *verb = request->argc > 1 ? request->argv[1] : "list";
	struct words words = {.count = 0};

	if (strcmp(verb, "list") == 0) {
		if (request->argc > 2 || request->all)
			program_usage(request->program);
		walk(request, request->argv[0], "dead", parse_limit(request),
		    print_task, NULL);
		return 0;
	}
	if ((strcmp(verb, "replay") != 0 && strcmp(verb, "drop") != 0) ||
	    request->limit != NULL || request->all != (request->argc == 2))
		program_usage(request->program);
	if (request->all)
		return dead_all(request, verb);
	words_add(&words, "HWT.DEAD");
	words_add(&words, verb);
	return request_each_id(request, request->argv[0], &words,
	    request->argv + 2, request->argc - 2,
	    "there is no such dead letter");
}

static void
print_pairs(const redisReply *reply)
{
	size_t i;

	for (i = 0; i + 1 < reply->elements; i += 2) {
		const redisReply *value = reply->element[i + 1];

		printf("%-20s ", reply->element[i]->str);
		if (value->type == REDIS_REPLY_INTEGER)
			printf("%lld\n", value->integer);
		else
			printf("%s\n", value->str);
	}
}

static void
add_limit(const struct request *request, struct words *words, const char *name,
    const char *value)
{
	if (value == NULL)
		return;
	(void)parse_number(request->program, value, 0, 1000000000);
	words_add(words, name);
	words_add(words, value);
}

int
run_queue(struct request *request)
{
	struct words words = {.count = 0};
	redisReply *reply;

	if (request->pause && request->resume)
		program_usage(request->program);
	words_add(&words, "HWT.QUEUE");
	if (request->pause || request->resume)
		words_add(&words, request->pause ? "PAUSE" : "RESUME");
	add_limit(request, &words, "RUNNING", request->running);
	add_limit(request, &words, "RATE", request->rate);
	add_limit(request, &words, "MAX", request->max);
	if (request->level != NULL) {
		words_add(&words, "LEVEL");
		words_add(&words, request->level);
	}
	reply = request_call(request, request->argv[0], &words);
	print_pairs(reply);
	freeReplyObject(reply);
	return 0;
}

static redisReply *
read_stat(const struct request *request, const char *queue)
{
	struct words words = {.count = 0};

	words_add(&words, "HWT.STAT");
	return request_call(request, queue, &words);
}

/* The queue that a key is for, {SPACE:QUEUE}; NULL: another space's. */
static const char *
queue_of_key(const struct request *request, const redisReply *key, char *queue)
{
	const char *space = durable_space(request->durable);
	size_t before = strlen(space) + 2;

	if (key->len < before + 2 || key->str[0] != '{' ||
	    memcmp(key->str + 1, space, before - 2) != 0 ||
	    key->str[before - 1] != ':' || key->str[key->len - 1] != '}' ||
	    key->len - before - 1 > HWT_DURABLE_QUEUE_MAX)
		return NULL;
	memcpy(queue, key->str + before, key->len - before - 1);
	queue[key->len - before - 1] = '\0';
	return queue;
}

struct queues {
	const struct request *request;
	char cursor[24];
};

static int
print_queues(void *ctx, const redisReply *reply)
{
	struct queues *queues = ctx;
	char queue[HWT_DURABLE_QUEUE_MAX + 1];
	size_t i, j;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		program_fail(queues->request->program, STATUS_SERVER, "%s",
		    reply->type == REDIS_REPLY_ERROR ? reply->str
						     : "a strange answer");
	(void)snprintf(queues->cursor, sizeof(queues->cursor), "%s",
	    reply->element[0]->str);
	for (i = 0; i < reply->element[1]->elements; i++) {
		redisReply *stat;

		if (queue_of_key(queues->request, reply->element[1]->element[i],
			queue) == NULL)
			continue;
		stat = read_stat(queues->request, queue);
		printf("%-24s", queue);
		for (j = 1; j < 12 && j < stat->elements; j += 2)
			printf(" %10lld", stat->element[j]->integer);
		(void)putchar('\n');
		freeReplyObject(stat);
	}
	return 0;
}

int
run_stat(struct request *request)
{
	struct queues queues = {.request = request, .cursor = "0"};
	redisReply *reply;
	int error;

	if (request->argc > 0) {
		reply = read_stat(request, request->argv[0]);
		print_pairs(reply);
		freeReplyObject(reply);
		return 0;
	}
	printf("%-24s %10s %10s %10s %10s %10s %10s\n", "queue", "waiting",
	    "due", "running", "done", "dead", "cancelled");
	do {
		const struct durable_word words[] = {{"HWT.QUEUES", 10},
		    {queues.cursor, strlen(queues.cursor)}, {"500", 3}};

		error = durable_call_each(
		    request->durable, words, 3, print_queues, &queues);
		if (error != 0)
			program_fail(request->program, STATUS_SERVER, "%s",
			    error_text(error));
	} while (strcmp(queues.cursor, "0") != 0);
	return 0;
}

/* The payload of a schedule: see server/schedule.h. */
static char *
schedule_payload(const struct request *request, size_t *length)
{
	const struct program *program = request->program;
	size_t body_length;
	char *bytes,
	    *body = request_payload(request, request->argv[3], &body_length);
	uint64_t first_ns, most_ns;
	FILE *out = open_memstream(&bytes, length);

	if (out == NULL)
		program_fail(program, STATUS_USAGE, "no memory");
	(void)fprintf(out, "queue %s\n", request->argv[2]);
	if (request->every != NULL)
		(void)fprintf(out, "every %llu\n",
		    (unsigned long long)(parse_time(program, request->every) /
			HWT_SEC(1)));
	else
		(void)fprintf(out, "cron %s\n", request->cron);
	if (request->zone != NULL)
		(void)fprintf(out, "zone %s\n", request->zone);
	if (request->late != NULL)
		(void)fprintf(out, "late %llu\n",
		    (unsigned long long)(parse_time(program, request->late) /
			HWT_SEC(1)));
	if (request->attempts != NULL)
		(void)fprintf(out, "attempts %s\n", request->attempts);
	if (request->retry != NULL) {
		parse_retry(program, request->retry, &first_ns, &most_ns);
		(void)fprintf(out, "retry %llu %llu\n",
		    (unsigned long long)(first_ns / HWT_MS(1)),
		    (unsigned long long)(most_ns / HWT_MS(1)));
	}
	if (request->expires != NULL)
		(void)fprintf(out, "expires %llu\n",
		    (unsigned long long)(parse_time(program, request->expires) /
			HWT_MS(1)));
	(void)fputc('\n', out);
	(void)fwrite(body, 1, body_length, out);
	free(body);
	if (fclose(out) != 0)
		program_fail(program, STATUS_USAGE, "no memory");
	return bytes;
}

static int
schedule_add(struct request *request)
{
	struct words words = {.count = 0};
	redisReply *reply;
	size_t length;
	char *payload;
	bool stored;

	if (request->argc < 3 || request->argc > 4 ||
	    (request->every != NULL) == (request->cron != NULL) ||
	    (request->cron == NULL && request->zone != NULL))
		program_usage(request->program);
	payload = schedule_payload(request, &length);
	words_add(&words, "HWT.ADD");
	words_add(&words, "ATTEMPTS");
	words_add(&words, "1000");
	words_add(&words, "RESULT");
	words_add(&words, "0");
	words_add(&words, "IN");
	words_add(&words, "0");
	words_add(&words, "TASKS");
	words_add(&words, request->argv[1]);
	words_add_bytes(&words, payload, length);
	reply = request_call(request, SCHEDULES, &words);
	stored = reply->element[0]->integer == 0;
	freeReplyObject(reply);
	free(payload);
	if (!stored)
		(void)fprintf(stderr, "hwtctl: %s: there is one already\n",
		    request->argv[1]);
	return stored ? 0 : STATUS_NO;
}

int
run_schedule(struct request *request)
{
	const char *verb = request->argv[0];
	struct words words = {.count = 0};

	if (strcmp(verb, "add") == 0)
		return schedule_add(request);
	if (strcmp(verb, "list") == 0 && request->argc == 1) {
		walk(request, SCHEDULES, "waiting", UINT64_MAX, print_task,
		    NULL);
		walk(request, SCHEDULES, "dead", UINT64_MAX, print_task, NULL);
		return 0;
	}
	if (strcmp(verb, "remove") != 0)
		program_usage(request->program);
	words_add(&words, "HWT.CANCEL");
	return request_each_id(request, SCHEDULES, &words, request->argv + 1,
	    request->argc - 1, "there is no such schedule");
}
