/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "hwtd-api.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "observe/utf8.h"
#include "options.h"
#include "task-json.h"
#include "text.h"
#include "walk.h"

/* Errors. */

/* An object with "error" and "message", and maybe "id". */
static void
fail_with(struct api *api, unsigned status, const char *name,
    const char *message, const char *id, size_t id_length)
{
	FILE *body = api->answer->body;

	api->answer->status = status;
	api->answer->type = "application/json";
	(void)fputc('{', body);
	json_write(body, "error", name, strlen(name));
	(void)fputc(',', body);
	json_write(body, "message", message, strlen(message));
	if (id != NULL) {
		(void)fputc(',', body);
		json_write(body, "id", id, id_length);
	}
	(void)fputs("}\n", body);
	if (status == 503)
		http_answer_header(api->answer, "Retry-After", "1");
}

static void
fail(struct api *api, unsigned status, const char *name, const char *message)
{
	fail_with(api, status, name, message, NULL, 0);
}

void
api_invalid(struct api *api, const char *message)
{
	fail(api, 400, "EINVAL", message);
}

/* The status for an error of the library. */
static unsigned
error_to_status(int error)
{
	switch (error) {
	case -EINVAL:
		return 400;
	case -ENOENT:
		return 404;
	case -EINPROGRESS:
	case -EALREADY:
		return 409;
	case -EACCES:
	case -EPROTO:
	case -EOPNOTSUPP:
		return 502;
	case -ETIMEDOUT:
		return 504;
	case -ENOSPC:
		return 507;
	default: /* nothing has happened, and may later */
		return 503;
	}
}

static const char *
error_name(int error)
{
	const char *name = strerrorname_np(-error);

	return name != NULL ? name : "EIO";
}

static void
fail_error(struct api *api, int error, const char *id, size_t id_length)
{
	fail_with(api, error_to_status(error), error_name(error),
	    explain(error), id, id_length);
}

void
api_refuse(struct api *api)
{
	switch (api->answer->status) {
	case 401:
		http_answer_header(api->answer, "WWW-Authenticate", "Bearer");
		fail(api, 401, "unauthorized",
		    "want the token of --token-file: Authorization: Bearer "
		    "TOKEN");
		return;
	case 403:
		fail(api, 403, "forbidden",
		    "without a token, only programs of this machine may ask, "
		    "and no page of another origin; Host must be localhost "
		    "or the address that is listened on");
		return;
	case 404:
		fail(api, 404, "not_found", "there is no such path");
		return;
	case 405:
		fail(api, 405, "method_not_allowed",
		    "the path has other methods: see Allow");
		return;
	case 413:
		fail(api, 413, "too_large", "a body has at most 1 MiB");
		return;
	default:
		fail(api, 503, "busy",
		    "too many requests wait, or answers that nobody reads; "
		    "nothing has happened");
		return;
	}
}

void
api_fail(struct api *api, int error)
{
	fail_error(api, error, NULL, 0);
}

/* What a request says. */

FILE *
api_json(struct api *api, unsigned status)
{
	api->answer->status = status;
	api->answer->type = "application/json";
	return api->answer->body;
}

/* Values that a body may have: those of 512 tasks with all their members, and
 * some more. */
#define VALUES_MAX (HWT_DURABLE_BATCH_MAX * 16)

/* Parsed, a value of one byte has some 100. Each but the first of its list has
 * a comma before it. */
static bool
has_too_many(const char *text, size_t length)
{
	const char *end = text + length;
	bool in_string = false;
	size_t values = 0;

	for (; text < end; text++) {
		if (*text == '\\' && in_string)
			text++;
		else if (*text == '"')
			in_string = !in_string;
		else if (!in_string && *text != '\0' &&
		    strchr(",[{", *text) != NULL)
			values++;
	}
	return values > VALUES_MAX;
}

/* The parser quotes what it has read, maybe to within a character. */
static void
mend_utf8(char *text)
{
	size_t length;

	for (; *text != '\0'; text += length) {
		length = utf8_length(text, 4);
		if (length > 0)
			continue;
		*text = '?';
		length = 1;
	}
}

json_t *
api_body(struct api *api)
{
	static const char json[] = "application/json";
	const char *type = http_header(api->request, "Content-Type");
	json_error_t error;
	json_t *value;

	if (api->request->length == 0) {
		api_invalid(api, "want a body of JSON");
		return NULL;
	}
	if (type == NULL || strncasecmp(type, json, strlen(json)) != 0 ||
	    strchr("; ", type[strlen(json)]) == NULL) {
		fail(api, 415, "unsupported_media_type",
		    "want Content-Type: application/json");
		return NULL;
	}
	if (has_too_many(api->request->body, api->request->length)) {
		api_invalid(api, "more values than 512 tasks can have");
		return NULL;
	}
	value =
	    task_json_load(api->request->body, api->request->length, &error);
	if (value == NULL) {
		mend_utf8(error.text);
		api_invalid(api, error.text);
	}
	return value;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool
api_id(struct api *api, char id[HWT_DURABLE_ID_MAX], size_t *id_length)
{
	const char *from = api->escaped, *end = from + api->escaped_length;
	size_t length = 0;
	int high, low;

	for (; from < end && length < HWT_DURABLE_ID_MAX; from++) {
		id[length++] = *from;
		if (*from != '%')
			continue;
		high = end - from > 2 ? hex_digit(from[1]) : -1;
		low = high >= 0 ? hex_digit(from[2]) : -1;
		if (low < 0) {
			api_invalid(api, "an id in a path: want %XX");
			return false;
		}
		id[length - 1] = (char)(high << 4 | low);
		from += 2;
	}
	*id_length = length;
	if (from == end && length > 0)
		return true;
	api_invalid(api, "\"id\" has 1 to 64 bytes");
	return false;
}

void
api_name(const struct api *api, char name[HWT_DURABLE_QUEUE_MAX + 1])
{
	size_t length = api->escaped_length;

	if (length > HWT_DURABLE_QUEUE_MAX)
		length = 0;
	memcpy(name, api->escaped, length);
	name[length] = '\0';
}

/* Adding. */

/* An array of tasks, or one. */
struct batch {
	size_t count;
	struct hwt_durable_task task[HWT_DURABLE_BATCH_MAX];
	int result[HWT_DURABLE_BATCH_MAX];
	char made[HWT_DURABLE_BATCH_MAX][TASK_ID_MADE];
};

static unsigned
result_status(int result)
{
	if (result == -ECANCELED) /* another one of the array is invalid */
		return 400;
	if (result < 0)
		return error_to_status(result);
	return result == 0 ? 201 : result <= HWT_DURABLE_SUCCEEDED ? 200 : 409;
}

/* What has become of a task: the members of an object. */
static void
result_write(FILE *body, const struct hwt_durable_task *task, int result)
{
	const char *message;

	json_write(body, "id", task->id, task->id_length);
	if (result == 0)
		(void)fputs(",\"result\":\"stored\"", body);
	if (result > HWT_DURABLE_SUCCEEDED)
		(void)fputs(
		    ",\"error\":\"EEXIST\",\"message\":\"it exists, and "
		    "is not executed; nothing is added, but with "
		    "replace\"",
		    body);
	else if (result > 0)
		(void)fputs(",\"result\":\"exists\"", body);
	if (result > 0)
		(void)fprintf(body, ",\"state\":\"%s\"",
		    state_name((enum hwt_durable_state)result));
	if (result >= 0)
		return;
	(void)fprintf(body, ",\"error\":\"%s\",", error_name(result));
	message = result == -ECANCELED ? "another task of the array is invalid"
				       : explain(result);
	json_write(body, "message", message, strlen(message));
}

/* Reads one; NULL, or what is wrong with it. */
static const char *
batch_read(struct batch *batch, json_t *value, unsigned members)
{
	struct hwt_durable_task *task = &batch->task[batch->count];
	const char *wrong = task_json_read(value, members, task);

	if (wrong != NULL)
		return wrong;
	if (task->id == NULL) {
		if (!task_id_make(batch->made[batch->count]))
			return "the system has no random numbers for an id";
		task->id = batch->made[batch->count];
		task->id_length = TASK_ID_MADE - 1;
	}
	batch->count++;
	return NULL;
}

static void
retry_later(struct api *api)
{
	if (api->answer->status == 503)
		http_answer_header(api->answer, "Retry-After", "1");
}

static void
add_answer(struct api *api, const struct hwt_durable_task *task, int result)
{
	FILE *body = api_json(api, result_status(result));

	(void)fputc('{', body);
	result_write(body, task, result);
	(void)fputs("}\n", body);
	retry_later(api);
}

/* error: the first one of the results, or 0. A status that says "send it again"
 * is for an array of which nothing was stored: the server has made ids for
 * tasks without, which would be stored twice. */
static unsigned
batch_status(const struct batch *batch, int error)
{
	unsigned status = error == 0 ? 200 : error_to_status(error);
	size_t i;

	for (i = 0; i < batch->count; i++) {
		if (batch->result[i] == -ETIMEDOUT)
			return 504;
		if (batch->result[i] >= 0)
			status = 200;
		else if (batch->result[i] == -EPROTO && status != 200)
			status = 502;
	}
	return status;
}

static void
batch_add_all(struct batch *batch, struct api *api)
{
	int error = hwt_durable_add(
	    api->durable, batch->count, batch->task, batch->result);
	FILE *body = api_json(api, batch_status(batch, error));
	size_t i;

	(void)fputs("{\"results\":[", body);
	for (i = 0; i < batch->count; i++) {
		(void)fprintf(body, "%s{\"status\":%u,", i > 0 ? "," : "",
		    result_status(batch->result[i]));
		result_write(body, &batch->task[i], batch->result[i]);
		(void)fputc('}', body);
	}
	(void)fputs("]}\n", body);
	retry_later(api);
}

static void
add_array(struct batch *batch, struct api *api, json_t *array)
{
	const char *wrong = NULL;
	char message[160];
	size_t i;

	if (json_array_size(array) > HWT_DURABLE_BATCH_MAX) {
		api_invalid(api, "an array has at most 512 tasks");
		return;
	}
	for (i = 0; i < json_array_size(array) && wrong == NULL; i++)
		wrong = batch_read(batch, json_array_get(array, i), TASK_ALL);
	if (wrong == NULL) {
		batch_add_all(batch, api);
		return;
	}
	(void)snprintf(
	    message, sizeof(message), "task %zu, from 0: %s", i - 1, wrong);
	api_invalid(api, message);
}

static void
add_object(struct batch *batch, struct api *api, json_t *object)
{
	const char *wrong = batch_read(batch, object, TASK_ALL);

	if (wrong != NULL) {
		api_invalid(api, wrong);
		return;
	}
	(void)hwt_durable_add(api->durable, 1, batch->task, batch->result);
	add_answer(api, batch->task, batch->result[0]);
}

void
api_add(struct api *api)
{
	json_t *value = api_body(api);
	struct batch *batch;

	if (value == NULL)
		return;
	batch = calloc(1, sizeof(*batch));
	if (batch == NULL)
		fail_error(api, -ENOMEM, NULL, 0);
	else if (json_is_array(value))
		add_array(batch, api, value);
	else
		add_object(batch, api, value);
	free(batch);
	json_decref(value);
}

void
api_put(struct api *api)
{
	char id[HWT_DURABLE_ID_MAX];
	struct hwt_durable_task task;
	json_t *value;
	const char *wrong;
	size_t id_length;
	int result;

	if (!api_id(api, id, &id_length))
		return;
	value = api_body(api);
	if (value == NULL)
		return;
	wrong = task_json_read(value, TASK_ALL & ~TASK_ID, &task);
	task.id = id;
	task.id_length = id_length;
	if (wrong == NULL) {
		(void)hwt_durable_add(api->durable, 1, &task, &result);
		add_answer(api, &task, result);
	} else
		api_invalid(api, wrong);
	json_decref(value);
}

/* One task. */

void
api_done(struct api *api, int error, const char *id, size_t id_length,
    const char *state)
{
	FILE *body;

	if (error != 0) {
		fail_error(api, error, id, id_length);
		return;
	}
	body = api_json(api, 200);
	(void)fputc('{', body);
	json_write(body, "id", id, id_length);
	(void)fprintf(body, ",\"state\":\"%s\"}\n", state);
}

void
api_cancel(struct api *api)
{
	char id[HWT_DURABLE_ID_MAX];
	size_t id_length;

	if (api_id(api, id, &id_length))
		api_done(api, hwt_durable_cancel(api->durable, id, id_length),
		    id, id_length, "cancelled");
}

void
api_reschedule(struct api *api)
{
	char id[HWT_DURABLE_ID_MAX];
	struct hwt_durable_task task;
	json_t *value;
	const char *wrong;
	size_t id_length;

	if (!api_id(api, id, &id_length))
		return;
	value = api_body(api);
	if (value == NULL)
		return;
	wrong = task_json_read(value, TASK_TIME, &task);
	if (wrong == NULL)
		api_done(api,
		    hwt_durable_reschedule(
			api->durable, id, id_length, task.delay_ns, task.flags),
		    id, id_length, "pending");
	else
		api_invalid(api, wrong);
	json_decref(value);
}

void
api_show(struct api *api)
{
	char id[HWT_DURABLE_ID_MAX], *payload;
	struct hwt_durable_info info;
	size_t id_length;
	FILE *body;
	int error;

	if (!api_id(api, id, &id_length))
		return;
	payload = malloc(HWT_DURABLE_PAYLOAD_MAX);
	error = payload == NULL ? -ENOMEM
				: hwt_durable_get(api->durable, id, id_length,
				      &info, payload, HWT_DURABLE_PAYLOAD_MAX);
	if (error == 0 && info.payload_length > HWT_DURABLE_PAYLOAD_MAX)
		error = -EPROTO;
	if (error == 0) {
		body = api_json(api, 200);
		(void)fputc('{', body);
		record_write(body, id, id_length, &info);
		(void)fputc(',', body);
		json_write(body, "payload", payload, info.payload_length);
		if (info.state == HWT_DURABLE_FAILED)
			error = failure_write(
			    body, api->durable, id, id_length, &info);
		(void)fputs("}\n", body);
	}
	free(payload);
	if (error != 0) {
		rewind(api->answer->body);
		fail_error(api, error, id, id_length);
	}
}
