/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of HTTP that commands answer: see http.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "modules/durable/programs/program.h"
#include "modules/durable/server/http.h"

/*
 * JSON (RFC 8259).
 */

/* How many bytes a character has; 0: it is none of UTF-8, which the locale
 * has. */
static size_t
character_length(const char *at, size_t left)
{
	mbstate_t state = {0};
	size_t length = mbrlen(at, left, &state);

	return length == 0 ? 1 : length > left ? 0 : length;
}

/* A string; bytes that are not UTF-8 become U+FFFD. */
static void
write_text(FILE *out, const char *bytes, size_t length)
{
	size_t at, more;

	(void)fputc('"', out);
	for (at = 0; at < length; at += more) {
		more = character_length(bytes + at, length - at);
		if (more > 1)
			(void)fwrite(bytes + at, 1, more, out);
		else if (more == 0)
			(void)fputs("\xef\xbf\xbd", out);
		else if ((unsigned char)bytes[at] < 0x20 || bytes[at] == '"' ||
		    bytes[at] == '\\')
			(void)fprintf(out, "\\u%04x", bytes[at]);
		else
			(void)fputc(bytes[at], out);
		more += more == 0;
	}
	(void)fputc('"', out);
}

/* A string, encoded as in a path. */
static void
write_encoded(FILE *out, const char *bytes, size_t length)
{
	char text[ENCODED_SIZE(1)];
	size_t i;

	(void)fputc('"', out);
	for (i = 0; i < length; i++) {
		encode(text, bytes + i, 1);
		(void)fputs(text, out);
	}
	(void)fputc('"', out);
}

static bool
is_text(const redisReply *value)
{
	size_t at, more;

	for (at = 0; at < value->len; at += more) {
		more = character_length(value->str + at, value->len - at);
		if (more == 0)
			return false;
	}
	return true;
}

/* The members of a reply of names and values. A value that is not UTF-8 is
 * percent-encoded, and its name ends with -encoded. */
static void
write_members(FILE *out, const redisReply *pairs)
{
	const redisReply *name, *value;
	size_t i;

	for (i = 0; i + 1 < pairs->elements; i += 2) {
		name = pairs->element[i];
		value = pairs->element[i + 1];
		(void)fprintf(out, ",\"%s", name->str);
		if (value->type == REDIS_REPLY_INTEGER) {
			(void)fprintf(out, "\":%lld", value->integer);
		} else if (is_text(value)) {
			(void)fputs("\":", out);
			write_text(out, value->str, value->len);
		} else {
			(void)fputs("-encoded\":", out);
			write_encoded(out, value->str, value->len);
		}
	}
}

void
write_error(FILE *out, const char *text)
{
	(void)fputs("{\"error\":", out);
	write_text(out, text, strlen(text));
	(void)fputs("}\n", out);
}

/*
 * Commands.
 */

/* By the code that an error of a server begins with. */
static unsigned
status_of(const char *error)
{
	static const struct {
		const char *code;
		unsigned status;
	} codes[] = {
	    {"ARG ", MHD_HTTP_BAD_REQUEST},
	    {"PAUSED ", MHD_HTTP_CONFLICT},
	    {"WRONGTYPE ", MHD_HTTP_CONFLICT},
	    {"FULL ", MHD_HTTP_INSUFFICIENT_STORAGE},
	    {"OOM ", MHD_HTTP_INSUFFICIENT_STORAGE},
	    {"DURABILITY ", MHD_HTTP_SERVICE_UNAVAILABLE},
	};
	size_t i;

	for (i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		if (strncmp(codes[i].code, error, strlen(codes[i].code)) == 0)
			return codes[i].status;
	}
	return MHD_HTTP_BAD_GATEWAY;
}

static void
fail_call(struct http_request *request, int error)
{
	char text[160];

	(void)snprintf(text, sizeof(text), "the engine: %s", error_text(error));
	/* The words are the server's to judge; the queue's name is not. */
	request_fail(request,
	    error == -EINVAL ? MHD_HTTP_NOT_FOUND
			     : MHD_HTTP_SERVICE_UNAVAILABLE,
	    text);
}

/* NULL: it was answered with an error. The caller frees it. */
static redisReply *
run(struct http_request *request, const struct words *words)
{
	redisReply *reply;
	int error = durable_call(request->options->durable, request->queue,
	    words->word, words->count, &reply);

	if (error == 0)
		return reply;
	if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
		request_fail(request, status_of(reply->str), reply->str);
	else
		fail_call(request, error);
	freeReplyObject(reply);
	return NULL;
}

/* A command on the queue, with a word, if it is not NULL, and the id, if there
 * is one. */
static redisReply *
run_word(struct http_request *request, const char *command, const char *word)
{
	struct words words = {.count = 0};

	words_add(&words, command);
	if (word != NULL)
		words_add(&words, word);
	if (request->id_length > 0)
		words_add_bytes(&words, request->id, request->id_length);
	return run(request, &words);
}

void
answer_health(struct http_request *request)
{
	redisReply *reply;

	(void)strcpy(request->queue, "hwt.schedules");
	reply = run_word(request, "HWT.STAT", NULL);
	if (reply != NULL)
		(void)fputs("{\"status\":\"ok\"}\n", request->out);
	freeReplyObject(reply);
}

/* [cursor, [[id, time, attempt, reason, payload], ...]]; the last two of dead
 * letters. A payload is shown by GET of the task. */
void
answer_list(struct http_request *request)
{
	struct words words = {.count = 0};
	FILE *out = request->out;
	redisReply *reply;
	size_t i;

	words_add(&words, "HWT.LIST");
	words_add(&words,
	    request->route->word != NULL
		? request->route->word
		: request_parameter(request, "state", "waiting"));
	words_add(&words, request_parameter(request, "cursor", "0"));
	words_add(&words, request_parameter(request, "count", "100"));
	reply = run(request, &words);
	if (reply == NULL)
		return;
	(void)fprintf(
	    out, "{\"cursor\":\"%s\",\"tasks\":[", reply->element[0]->str);
	for (i = 0; i < reply->element[1]->elements; i++) {
		const redisReply *task = reply->element[1]->element[i];
		redisReply **part = task->element;

		(void)fputs(i > 0 ? ",{\"id\":" : "{\"id\":", out);
		write_encoded(out, part[0]->str, part[0]->len);
		(void)fprintf(out, ",\"time\":%lld,\"attempt\":%lld",
		    part[1]->integer, part[2]->integer);
		if (task->elements > 3) {
			(void)fputs(",\"reason\":", out);
			write_text(out, part[3]->str, part[3]->len);
		}
		(void)fputc('}', out);
	}
	(void)fputs("]}\n", out);
	freeReplyObject(reply);
}

void
answer_get(struct http_request *request)
{
	redisReply *reply = run_word(request, "HWT.GET", NULL);

	if (reply != NULL && reply->type == REDIS_REPLY_ARRAY) {
		(void)fputs("{\"id\":", request->out);
		write_encoded(request->out, request->id, request->id_length);
		write_members(request->out, reply);
		(void)fputs("}\n", request->out);
	} else if (reply != NULL) {
		request_fail(
		    request, MHD_HTTP_NOT_FOUND, "there is no such task");
	}
	freeReplyObject(reply);
}

/* 201: stored; 200: there is a task of this id already, in this state. */
void
answer_add(struct http_request *request)
{
	static const char *const names[] = {
	    "attempts", "expires", "result", "in", "due", "retry"};
	struct words words = {.count = 0};
	redisReply *reply;
	size_t i, length;

	words_add(&words, "HWT.ADD");
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *value = request_parameter(request, names[i], NULL);

		if (value == NULL)
			continue;
		words_add(&words, names[i]);
		/* RETRY has two numbers, with a comma between. */
		length = strcspn(value, ",");
		words_add_bytes(&words, value, length);
		if (value[length] == ',')
			words_add(&words, value + length + 1);
	}
	words_add(&words, "TASKS");
	words_add_bytes(&words, request->id, request->id_length);
	words_add_bytes(&words, request->body != NULL ? request->body : "",
	    request->body_length);
	reply = run(request, &words);
	if (reply == NULL)
		return;
	if (reply->element[0]->integer == 0)
		request->status = MHD_HTTP_CREATED;
	(void)fprintf(request->out, "{\"state\":\"%s\"}\n",
	    state_text(reply->element[0]->integer));
	freeReplyObject(reply);
}

void
answer_change(struct http_request *request)
{
	redisReply *reply =
	    run_word(request, request->route->command, request->route->word);

	if (reply == NULL)
		return;
	if (reply->element[0]->integer == 1)
		(void)fputs("{\"done\":true}\n", request->out);
	else
		request_fail(request, MHD_HTTP_NOT_FOUND,
		    request->route->word != NULL
			? "there is no such dead letter"
			: "there is no such task, or it has ended");
	freeReplyObject(reply);
}

/*
 * All queues.
 */

struct queue_list {
	queue_name *names;
	redisReply **stats; /* of each: HWT.STAT */
	size_t count;
	bool more; /* come after these */
};

static void
queues_free(struct queue_list *list)
{
	while (list->stats != NULL && list->count > 0)
		freeReplyObject(list->stats[--list->count]);
	free(list->stats);
	free(list->names);
}

/* Those whose names come after one, up to so many. False: it was answered. */
static bool
queues_read(struct http_request *request, const char *after, size_t most,
    struct queue_list *list)
{
	size_t i, count, first = 0;
	int error;

	*list = (struct queue_list){0};
	error = read_queues(request->options->durable, &list->names, &count);
	if (error != 0) {
		fail_call(request, error);
		queues_free(list);
		return false;
	}
	while (first < count && strcmp(list->names[first], after) <= 0)
		first++;
	count -= first;
	list->more = count > most;
	count = list->more ? most : count;
	list->stats = calloc(count + 1, sizeof(*list->stats));
	for (i = 0; i < count && list->stats != NULL; i++) {
		memmove(
		    list->names[i], list->names[first + i], sizeof(queue_name));
		(void)strcpy(request->queue, list->names[i]);
		/* QUEUE without a word lets come due what is due, also where
		 * nobody takes. */
		freeReplyObject(run_word(request, "HWT.QUEUE", NULL));
		list->stats[i] = run_word(request, "HWT.STAT", NULL);
		if (list->stats[i] == NULL)
			break;
		list->count++;
	}
	if (list->count == count)
		return true;
	queues_free(list);
	return false;
}

void
answer_queues(struct http_request *request)
{
	int count = atoi(request_parameter(request, "count", "100"));
	struct queue_list list;
	size_t i;

	if (count < 1 || count > 500) {
		request_fail(
		    request, MHD_HTTP_BAD_REQUEST, "ARG the count is 1 to 500");
		return;
	}
	if (!queues_read(request, request_parameter(request, "after", ""),
		(size_t)count, &list))
		return;
	(void)fprintf(request->out,
	    "{\"space\":\"%s\",\"more\":%s,\"queues\":[",
	    durable_space(request->options->durable),
	    list.more ? "true" : "false");
	for (i = 0; i < list.count; i++) {
		(void)fprintf(request->out, "%s{\"name\":\"%s\"",
		    i > 0 ? "," : "", list.names[i]);
		write_members(request->out, list.stats[i]);
		(void)fputc('}', request->out);
	}
	(void)fputs("]}\n", request->out);
	queues_free(&list);
}

/* A stat of all queues, in the text format of Prometheus: hwt_durable_ and its
 * name in HWT.STAT, where times are in ms. */
static void
write_family(FILE *out, const struct queue_list *list, size_t at)
{
	const char *name = list->stats[0]->element[at]->str;
	bool time = strcmp(name, "now") == 0 || strcmp(name, "late") == 0 ||
	    strcmp(name, "ahead") == 0;
	char text[80], *dash;
	size_t i;

	(void)snprintf(text, sizeof(text), "hwt_durable_%.40s%s", name,
	    time ? "_seconds" : "");
	while ((dash = strchr(text, '-')) != NULL)
		*dash = '_';
	(void)fprintf(out, "# HELP %s %s of HWT.STAT\n# TYPE %s %s\n", text,
	    name, text, strstr(name, "-total") != NULL ? "counter" : "gauge");
	for (i = 0; i < list->count; i++)
		(void)fprintf(out, "%s{queue=\"%s\"} %.15g\n", text,
		    list->names[i],
		    (double)list->stats[i]->element[at + 1]->integer /
			(time ? 1000 : 1));
}

void
answer_metrics(struct http_request *request)
{
	struct queue_list list;
	size_t i;

	if (!queues_read(request, "", SIZE_MAX, &list))
		return;
	request->type = "text/plain; version=0.0.4; charset=utf-8";
	for (i = 0; list.count > 0 && i < list.stats[0]->elements; i += 2)
		write_family(request->out, &list, i);
	queues_free(&list);
}
