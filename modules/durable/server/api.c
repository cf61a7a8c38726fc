/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of HTTP that commands answer: see http.h. */
#define _GNU_SOURCE
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "modules/durable/server/http.h"
#include "modules/durable/server/json.h"

#define COUNT_MAX 500

/* By the code that an error of the engine begins with. */
static unsigned
status_of(const char *error)
{
	static const struct {
		const char *code;
		unsigned status;
	} codes[] = {
	    {"ARG", MHD_HTTP_BAD_REQUEST},
	    {"PAUSED", MHD_HTTP_CONFLICT},
	    {"WRONGTYPE", MHD_HTTP_CONFLICT},
	    {"FULL", MHD_HTTP_INSUFFICIENT_STORAGE},
	    {"OOM", MHD_HTTP_INSUFFICIENT_STORAGE},
	    {"DURABILITY", MHD_HTTP_SERVICE_UNAVAILABLE},
	    {"LOADING", MHD_HTTP_SERVICE_UNAVAILABLE},
	    {"READONLY", MHD_HTTP_SERVICE_UNAVAILABLE},
	};
	size_t i, length = strcspn(error, " ");

	for (i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		if (strncmp(codes[i].code, error, length) == 0 &&
		    codes[i].code[length] == '\0')
			return codes[i].status;
	}
	return MHD_HTTP_BAD_GATEWAY;
}

/* A reply that is none or an error becomes the answer, and NULL. The caller
 * frees the other ones. */
static redisReply *
checked(struct request *request, redisContext *context, redisReply *reply)
{
	char why[ENGINE_WHY];

	if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
		request_fail(request, status_of(reply->str), reply->str);
	} else if (reply == NULL) {
		engine_say(why, context, NULL);
		request_fail(request, MHD_HTTP_SERVICE_UNAVAILABLE, why);
	} else {
		return reply;
	}
	freeReplyObject(reply);
	return NULL;
}

void
api_health(struct request *request, redisContext *context)
{
	redisReply *reply =
	    checked(request, context, redisCommand(context, "PING"));

	if (reply != NULL)
		(void)fputs("{\"status\":\"ok\"}\n", request->out);
	freeReplyObject(reply);
}

static int
read_count(struct request *request)
{
	const char *text = request_parameter(request, "count");
	int count = text != NULL ? atoi(text) : 100;

	if (count >= 1 && count <= COUNT_MAX)
		return count;
	request_fail(
	    request, MHD_HTTP_BAD_REQUEST, "ARG the count is 1 to 500");
	return -1;
}

void
api_queues(struct request *request, redisContext *context)
{
	const char *after = request_parameter(request, "after");
	int i, count = read_count(request);
	char why[ENGINE_WHY];
	struct queue_list list;

	if (count < 0)
		return;
	if (!engine_read_queues(request->engine, context,
		after != NULL ? after : "", count, &list, why)) {
		request_fail(request, MHD_HTTP_SERVICE_UNAVAILABLE, why);
		return;
	}
	(void)fprintf(request->out,
	    "{\"space\":\"%s\",\"more\":%s,\"queues\":[", request->space,
	    list.more ? "true" : "false");
	for (i = 0; i < list.count; i++) {
		(void)fprintf(request->out, "%s{\"name\":\"%s\"",
		    i > 0 ? "," : "", list.row[i].name);
		if (list.row[i].stat->type == REDIS_REPLY_ARRAY) {
			(void)fputc(',', request->out);
			json_members(request->out, list.row[i].stat);
		}
		(void)fputc('}', request->out);
	}
	(void)fputs("]}\n", request->out);
	engine_free_queues(&list);
}

/* [cursor, [[id, time, attempt, reason, payload], ...]]; the last two of dead
 * letters. A payload is shown by GET of the task. */
static void
write_list(struct request *request, const redisReply *reply)
{
	const redisReply *tasks = reply->element[1];
	size_t i;

	(void)fprintf(request->out, "{\"cursor\":\"%s\",\"tasks\":[",
	    reply->element[0]->str);
	for (i = 0; i < tasks->elements; i++) {
		redisReply **part = tasks->element[i]->element;

		(void)fprintf(request->out, "%s{\"id\":", i > 0 ? "," : "");
		json_id(request->out, part[0]->str, part[0]->len);
		(void)fprintf(request->out, ",\"time\":%lld,\"attempt\":%lld",
		    part[1]->integer, part[2]->integer);
		if (tasks->element[i]->elements > 3) {
			(void)fputs(",\"reason\":", request->out);
			json_text(request->out, part[3]->str, part[3]->len);
		}
		(void)fputc('}', request->out);
	}
	(void)fputs("]}\n", request->out);
}

static void
run_list(struct request *request, redisContext *context, const char *command,
    const char *state)
{
	const char *cursor = request_parameter(request, "cursor");
	int count = read_count(request);
	redisReply *reply;

	if (count < 0)
		return;
	reply = redisCommand(context, "%s {%s:%s} %s %s %d", command,
	    request->space, request->queue, state,
	    cursor != NULL ? cursor : "0", count);
	reply = checked(request, context, reply);
	if (reply != NULL)
		write_list(request, reply);
	freeReplyObject(reply);
}

void
api_tasks(struct request *request, redisContext *context)
{
	const char *state = request_parameter(request, "state");

	run_list(
	    request, context, "HWT.LIST", state != NULL ? state : "waiting");
}

void
api_dead(struct request *request, redisContext *context)
{
	run_list(request, context, "HWT.DEAD", "LIST");
}

void
api_get(struct request *request, redisContext *context)
{
	redisReply *reply;

	reply = redisCommand(context, "HWT.GET {%s:%s} %b", request->space,
	    request->queue, request->id, request->id_length);
	reply = checked(request, context, reply);
	if (reply != NULL && reply->type == REDIS_REPLY_ARRAY) {
		(void)fputs("{\"id\":", request->out);
		json_id(request->out, request->id, request->id_length);
		(void)fputc(',', request->out);
		json_members(request->out, reply);
		(void)fputs("}\n", request->out);
	} else if (reply != NULL) {
		request_fail(
		    request, MHD_HTTP_NOT_FOUND, "there is no such task");
	}
	freeReplyObject(reply);
}

/* The words of an ADD, up to its tasks. */
#define ADD_PARAMETERS 6
#define ADD_WORDS_MAX (2 + 3 * ADD_PARAMETERS + 3) /* key; TASKS id payload */
struct add_words {
	const char *word[ADD_WORDS_MAX];
	size_t length[ADD_WORDS_MAX];
	int count;
};

static void
add_word(struct add_words *words, const char *bytes, size_t length)
{
	words->word[words->count] = bytes;
	words->length[words->count++] = length;
}

/* What parameters say. RETRY has two numbers, with a comma between. */
static void
add_parameters(const struct request *request, struct add_words *words)
{
	static const char *const names[ADD_PARAMETERS] = {
	    "attempts", "expires", "result", "in", "due", "retry"};
	const char *value;
	size_t i, length;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		value = request_parameter(request, names[i]);
		if (value == NULL)
			continue;
		add_word(words, names[i], strlen(names[i]));
		length = strcspn(value, ",");
		add_word(words, value, length);
		if (value[length] == ',')
			add_word(words, value + length + 1,
			    strlen(value + length + 1));
	}
	add_word(words, "TASKS", 5);
	add_word(words, request->id, request->id_length);
	add_word(words, request->body != NULL ? request->body : "",
	    request->body_length);
}

/* 201: stored; 200: there is a task of this id already, in this state. */
void
api_add(struct request *request, redisContext *context)
{
	static const char *const states[] = {
	    "", "waiting", "due", "running", "done", "dead", "cancelled"};
	struct add_words words = {.count = 0};
	char key[ENGINE_SPACE_MAX + ENGINE_NAME_MAX + 4];
	redisReply *reply;
	size_t state;

	add_word(&words, "HWT.ADD", 7);
	add_word(&words, key,
	    (size_t)snprintf(
		key, sizeof(key), "{%s:%s}", request->space, request->queue));
	add_parameters(request, &words);
	reply =
	    redisCommandArgv(context, words.count, words.word, words.length);
	reply = checked(request, context, reply);
	if (reply == NULL)
		return;
	state = (size_t)reply->element[0]->integer;
	if (state == 0)
		request->status = MHD_HTTP_CREATED;
	(void)fprintf(request->out, "{\"stored\":%s,\"state\":\"%s\"}\n",
	    state == 0 ? "true" : "false", states[state < 7 ? state : 0]);
	freeReplyObject(reply);
}

/* A command that answers 1 or 0 for the id. */
static void
run_on_id(struct request *request, redisContext *context, const char *format,
    const char *otherwise)
{
	redisReply *reply;

	reply = redisCommand(context, format, request->space, request->queue,
	    request->id, request->id_length);
	reply = checked(request, context, reply);
	if (reply == NULL)
		return;
	if (reply->element[0]->integer == 1)
		(void)fputs("{\"done\":true}\n", request->out);
	else
		request_fail(request, MHD_HTTP_NOT_FOUND, otherwise);
	freeReplyObject(reply);
}

void
api_cancel(struct request *request, redisContext *context)
{
	run_on_id(request, context, "HWT.CANCEL {%s:%s} %b",
	    "there is no such task, or it has ended");
}

void
api_replay(struct request *request, redisContext *context)
{
	run_on_id(request, context, "HWT.DEAD {%s:%s} REPLAY %b",
	    "there is no such dead letter");
}

void
api_drop(struct request *request, redisContext *context)
{
	run_on_id(request, context, "HWT.DEAD {%s:%s} DROP %b",
	    "there is no such dead letter");
}
