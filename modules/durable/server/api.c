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

/* Runs the command. NULL: there is no answer but an error, and that was
 * given. The caller frees the reply. */
static redisReply *
run(struct request *request, redisContext *context, struct command_words *words)
{
	redisReply *reply = words_run(words, context);

	if (reply == NULL) {
		request_fail(request, MHD_HTTP_SERVICE_UNAVAILABLE,
		    "the engine: the connection was lost; what was asked may "
		    "have been done");
	} else if (reply->type == REDIS_REPLY_ERROR) {
		request_fail(request, status_of(reply->str), reply->str);
		freeReplyObject(reply);
		reply = NULL;
	}
	return reply;
}

void
api_health(struct request *request, redisContext *context)
{
	struct command_words words;
	redisReply *reply;

	words_begin(&words, request->engine, "PING", NULL);
	reply = run(request, context, &words);
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
	int i, count = read_count(request);
	char why[ENGINE_WHY];
	struct queue_list list;

	if (count < 0 || !request_has_only(request, "after count"))
		return;
	if (engine_read_queues(request->engine, context,
		request_parameter(request, "after"), count, &list, why) != 0) {
		request_fail(request, MHD_HTTP_SERVICE_UNAVAILABLE, why);
		return;
	}
	(void)fprintf(request->out,
	    "{\"space\":\"%s\",\"total\":%d,\"more\":%s,\"queues\":[",
	    engine_space(request->engine), list.total,
	    list.end < list.total ? "true" : "false");
	for (i = list.first; i < list.end; i++) {
		(void)fprintf(request->out, "%s{\"name\":\"%s\"",
		    i > list.first ? "," : "", list.name[i]);
		if (list.stat[i]->type == REDIS_REPLY_ARRAY) {
			(void)fputc(',', request->out);
			json_members(request->out, list.stat[i]);
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
	struct command_words words;
	int count = read_count(request);
	char text[16];
	redisReply *reply;

	if (count < 0)
		return;
	(void)snprintf(text, sizeof(text), "%d", count);
	words_begin(&words, request->engine, command, request->queue);
	words_add(&words, state);
	words_add(&words, cursor != NULL ? cursor : "0");
	words_add(&words, text);
	reply = run(request, context, &words);
	if (reply != NULL)
		write_list(request, reply);
	freeReplyObject(reply);
}

void
api_tasks(struct request *request, redisContext *context)
{
	const char *state = request_parameter(request, "state");

	if (request_has_only(request, "state cursor count"))
		run_list(request, context, "HWT.LIST",
		    state != NULL ? state : "waiting");
}

void
api_dead(struct request *request, redisContext *context)
{
	if (request_has_only(request, "cursor count"))
		run_list(request, context, "HWT.DEAD", "LIST");
}

void
api_get(struct request *request, redisContext *context)
{
	struct command_words words;
	redisReply *reply;

	if (!request_has_only(request, ""))
		return;
	words_begin(&words, request->engine, "HWT.GET", request->queue);
	words_add_bytes(&words, request->id, request->id_length);
	reply = run(request, context, &words);
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

/* RETRY has two numbers. */
static bool
add_retry(struct command_words *words, const char *text, char first[24])
{
	const char *comma = strchr(text, ',');

	if (comma == NULL || comma - text >= 24)
		return false;
	memcpy(first, text, (size_t)(comma - text));
	first[comma - text] = '\0';
	words_add(words, "RETRY");
	words_add(words, first);
	words_add(words, comma + 1);
	return true;
}

static bool
add_parameters(
    const struct request *request, struct command_words *words, char first[24])
{
	static const char *const names[][2] = {
	    {"attempts", "ATTEMPTS"},
	    {"expires", "EXPIRES"},
	    {"result", "RESULT"},
	    {"in", "IN"},
	    {"due", "DUE"},
	};
	const char *value = request_parameter(request, "retry");
	size_t i;

	if (value != NULL && !add_retry(words, value, first))
		return false;
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		value = request_parameter(request, names[i][0]);
		if (value == NULL)
			continue;
		words_add(words, names[i][1]);
		words_add(words, value);
	}
	return true;
}

/* 201: stored; 200: there is a task of this id already, in this state. */
void
api_add(struct request *request, redisContext *context)
{
	static const char *const states[] = {
	    "", "waiting", "due", "running", "done", "dead", "cancelled"};
	struct command_words words;
	redisReply *reply;
	char first[24];
	size_t state;

	if (!request_has_only(request, "in due attempts retry expires result"))
		return;
	words_begin(&words, request->engine, "HWT.ADD", request->queue);
	if (!add_parameters(request, &words, first)) {
		request_fail(request, MHD_HTTP_BAD_REQUEST,
		    "ARG retry is two numbers of ms: FIRST,MOST");
		return;
	}
	words_add(&words, "TASKS");
	words_add_bytes(&words, request->id, request->id_length);
	words_add_bytes(&words, request->body != NULL ? request->body : "",
	    request->body_length);
	reply = run(request, context, &words);
	if (reply == NULL)
		return;
	state = (size_t)reply->element[0]->integer;
	if (state == 0) {
		request->status = MHD_HTTP_CREATED;
		(void)fputs("{\"stored\":true}\n", request->out);
	} else {
		(void)fprintf(request->out,
		    "{\"stored\":false,\"state\":\"%s\"}\n",
		    state < 7 ? states[state] : "");
	}
	freeReplyObject(reply);
}

/* A command that answers 1 or 0 for the id. */
static void
run_on_id(struct request *request, redisContext *context, const char *command,
    const char *word, const char *otherwise)
{
	struct command_words words;
	redisReply *reply;

	if (!request_has_only(request, ""))
		return;
	words_begin(&words, request->engine, command, request->queue);
	if (word != NULL)
		words_add(&words, word);
	words_add_bytes(&words, request->id, request->id_length);
	reply = run(request, context, &words);
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
	run_on_id(request, context, "HWT.CANCEL", NULL,
	    "there is no such task, or it has ended");
}

void
api_replay(struct request *request, redisContext *context)
{
	run_on_id(request, context, "HWT.DEAD", "REPLAY",
	    "there is no such dead letter");
}

void
api_drop(struct request *request, redisContext *context)
{
	run_on_id(request, context, "HWT.DEAD", "DROP",
	    "there is no such dead letter");
}
