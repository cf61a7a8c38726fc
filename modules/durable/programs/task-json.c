/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "task-json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "modules/durable/durable.h"
#include "text.h"

#define SECONDS_MAX 9000000000 /* so that nanoseconds have 63 bits */

json_t *
task_json_load(const char *text, size_t length, json_error_t *error)
{
	return json_loadb(
	    text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, error);
}

static bool
read_seconds(const json_t *value, uint64_t *ns)
{
	double seconds;

	if (json_is_integer(value)) {
		if (json_integer_value(value) < 0 ||
		    json_integer_value(value) > SECONDS_MAX)
			return false;
		*ns = HWT_SEC((uint64_t)json_integer_value(value));
		return true;
	}
	seconds = json_real_value(value);
	if (!json_is_real(value) || !(seconds >= 0 && seconds <= SECONDS_MAX))
		return false;
	*ns = HWT_US((uint64_t)(seconds * 1e6 + 0.5));
	return true;
}

/* Puts the bytes in the place of the text. */
static bool
decode(json_t *value)
{
	size_t length = json_string_length(value);
	char *text = malloc(length + 1);
	bool valid = text != NULL;

	if (valid) {
		memcpy(text, json_string_value(value), length);
		valid = base64_decode(text, &length) &&
		    json_string_setn_nocheck(value, text, length) == 0;
	}
	free(text);
	return valid;
}

static const char *
read_id(struct hwt_durable_task *task, json_t *value)
{
	task->id = json_string_value(value);
	task->id_length = json_string_length(value);
	if (task->id_length < 1 || task->id_length > HWT_DURABLE_ID_MAX)
		return "\"id\" has 1 to 64 bytes";
	return NULL;
}

static const char *
read_queue(struct hwt_durable_task *task, json_t *value)
{
	task->queue = json_string_value(value);
	if (strlen(task->queue) != json_string_length(value) ||
	    !name_is_valid(task->queue, HWT_DURABLE_QUEUE_MAX))
		return "\"queue\" has 1 to 64 of A-Z a-z 0-9 . _ -";
	return NULL;
}

static const char *
read_in(struct hwt_durable_task *task, json_t *value)
{
	if (!read_seconds(value, &task->delay_ns) ||
	    task->delay_ns > HWT_DURABLE_DELAY_MAX)
		return "\"in\" is seconds, up to 10 years";
	return NULL;
}

static const char *
read_at(struct hwt_durable_task *task, json_t *value)
{
	task->flags |= HWT_DURABLE_AT;
	return read_seconds(value, &task->due_unix_ns)
	    ? NULL
	    : "\"at\" is a Unix time in seconds";
}

static const char *
read_expires(struct hwt_durable_task *task, json_t *value)
{
	if (!read_seconds(value, &task->expires_ns) || task->expires_ns == 0)
		return "\"expires_in\" and \"expires_at\" are seconds, "
		       "more than 0";
	return NULL;
}

static const char *
read_expires_at(struct hwt_durable_task *task, json_t *value)
{
	task->flags |= HWT_DURABLE_EXPIRES_AT;
	return read_expires(task, value);
}

static const char *
read_retry_time(uint64_t *ns, json_t *value)
{
	return read_seconds(value, ns) && *ns > 0 &&
		*ns <= HWT_DURABLE_DELAY_MAX
	    ? NULL
	    : "\"retry_first\" and \"retry_most\" are seconds, more than 0, "
	      "up to 10 years";
}

static const char *
read_retry_first(struct hwt_durable_task *task, json_t *value)
{
	return read_retry_time(&task->retry_first_ns, value);
}

static const char *
read_retry_most(struct hwt_durable_task *task, json_t *value)
{
	return read_retry_time(&task->retry_most_ns, value);
}

static const char *
read_retry_factor(struct hwt_durable_task *task, json_t *value)
{
	task->retry_factor = json_number_value(value);
	return task->retry_factor >= 1 && task->retry_factor <= 1000
	    ? NULL
	    : "\"retry_factor\" is 1 to 1000";
}

static const char *
read_attempts(struct hwt_durable_task *task, json_t *value)
{
	json_int_t attempts = json_integer_value(value);

	if (!json_is_integer(value) || attempts < 1 ||
	    attempts > HWT_DURABLE_ATTEMPTS_MAX)
		return "\"attempts\" is 1 to 1000";
	task->max_attempts = (uint32_t)attempts;
	return NULL;
}

static const char *
read_payload(struct hwt_durable_task *task, json_t *value)
{
	task->payload_length = json_string_length(value);
	if (task->payload_length > HWT_DURABLE_PAYLOAD_MAX)
		return "\"payload\" has at most 65536 bytes";
	if (task->payload_length > 0)
		task->payload = json_string_value(value);
	return NULL;
}

static const char *
read_replace(struct hwt_durable_task *task, json_t *value)
{
	if (!json_is_boolean(value))
		return "\"replace\" is true or false";
	if (json_is_true(value))
		task->flags |= HWT_DURABLE_REPLACE;
	return NULL;
}

bool
priority_read(const char *text, uint32_t *flags)
{
	if (strcmp(text, "high") == 0)
		*flags |= HWT_DURABLE_HIGH;
	else if (strcmp(text, "low") == 0)
		*flags |= HWT_DURABLE_LOW;
	else
		return strcmp(text, "normal") == 0;
	return true;
}

static const char *
read_priority(struct hwt_durable_task *task, json_t *value)
{
	const char *text = json_string_value(value);

	return strlen(text) == json_string_length(value) &&
		priority_read(text, &task->flags)
	    ? NULL
	    : "\"priority\" is high, normal or low";
}

static const struct member {
	const char *name;
	unsigned bit;
	bool text, base64;
	const char *(*read)(struct hwt_durable_task *task, json_t *value);
} table[] = {
    {"id", TASK_ID, true, false, read_id},
    {"id_base64", TASK_ID, true, true, read_id},
    {"queue", TASK_QUEUE, true, false, read_queue},
    {"in", TASK_IN, false, false, read_in},
    {"at", TASK_AT, false, false, read_at},
    {"expires_in", TASK_EXPIRES, false, false, read_expires},
    {"expires_at", TASK_EXPIRES, false, false, read_expires_at},
    {"retry_first", TASK_RETRY_FIRST, false, false, read_retry_first},
    {"retry_factor", TASK_RETRY_FACTOR, false, false, read_retry_factor},
    {"retry_most", TASK_RETRY_MOST, false, false, read_retry_most},
    {"attempts", TASK_ATTEMPTS, false, false, read_attempts},
    {"payload", TASK_PAYLOAD, true, false, read_payload},
    {"payload_base64", TASK_PAYLOAD, true, true, read_payload},
    {"replace", TASK_REPLACE, false, false, read_replace},
    {"priority", TASK_PRIORITY, true, false, read_priority},
};

static const char *
read_member(const char *name, json_t *value, unsigned members, unsigned *seen,
    struct hwt_durable_task *task)
{
	const struct member *member = table;
	const struct member *end = table + sizeof(table) / sizeof(table[0]);

	while (member < end &&
	    ((member->bit & members) == 0 || strcmp(member->name, name) != 0))
		member++;
	if (member == end)
		return "a member that is not known here";
	if ((*seen & member->bit) != 0)
		return "a member is given twice";
	*seen |= member->bit;
	if (member->text && !json_is_string(value))
		return "a text is wanted";
	if (member->base64 && !decode(value))
		return "what should be base64 is none";
	return member->read(task, value);
}

const char *
task_json_read(json_t *value, unsigned members, struct hwt_durable_task *task)
{
	unsigned seen = 0;
	const char *name, *wrong;
	json_t *each;

	*task = (struct hwt_durable_task){0};
	if (!json_is_object(value))
		return "want an object: {\"queue\":...}";
	json_object_foreach(value, name, each)
	{
		wrong = read_member(name, each, members, &seen, task);
		if (wrong != NULL)
			return wrong;
	}
	if ((members & ~seen & TASK_QUEUE) != 0)
		return "there is no \"queue\"";
	if ((members & TASK_TIME) != 0 &&
	    ((seen & TASK_TIME) == 0 || (seen & TASK_TIME) == TASK_TIME))
		return "there is not just one of \"in\" and \"at\"";
	return NULL;
}

bool
task_id_make(char text[TASK_ID_MADE])
{
	unsigned char bytes[(TASK_ID_MADE - 1) / 2];
	size_t i;

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return false;
	for (i = 0; i < sizeof(bytes); i++)
		(void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return true;
}
