/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the options say, where commands of several files have them: see
 * hwtctl.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hwtctl.h"
#include "task-json.h"
#include "text.h"

struct given given;

/* Of all commands; which of them a command has stands in its row. */
const struct option_row hwtctl_rows[] = {
    {"shards", &given.shards, false},
    {"slots", &given.slots, false},
    {"tick", &given.tick, false},
    {"retention", &given.retention, false},
    {"level", &given.level, false},
    {"repair", &given.repair, true},
    {"queue", &given.queue, false},
    {"in", &given.in, false},
    {"at", &given.at, false},
    {"id", &given.id, false},
    {"attempts", &given.attempts, false},
    {"payload", &given.payload, false},
    {"from", &given.from, false},
    {"state", &given.state, false},
    {"json", &given.json, true},
    {"prometheus", &given.prometheus, true},
    {"all", &given.all, true},
    {"base64", &given.base64, true},
    {"replace", &given.replace, true},
    {"priority", &given.priority, false},
    {"at-once", &given.at_once, false},
    {"rate", &given.rate, false},
    {"expires-in", &given.expires_in, false},
    {"expires-at", &given.expires_at, false},
    {"retry-first", &given.retry_first, false},
    {"retry-factor", &given.retry_factor, false},
    {"retry-most", &given.retry_most, false},
    {"reset", &given.reset, true},
    {"every", &given.every, false},
    {"cron", &given.cron, false},
    {"zone", &given.zone, false},
    {"missed", &given.missed, false},
    {NULL, NULL, false},
};

void
options_fit(const char *command, const char *options)
{
	const struct option_row *row;
	char word[32];

	for (row = hwtctl_rows; row->name != NULL; row++) {
		(void)snprintf(word, sizeof(word), " %s ", row->name);
		if (*row->value != NULL && strstr(options, word) == NULL)
			usage_error(
			    "--%s: no option of %s", row->name, command);
	}
}

/* An id of the command line, which it may change. */
struct engine_argument
id_read(char *text)
{
	size_t length = strlen(text);

	if (given.base64 != NULL && !base64_decode(text, &length))
		usage_error("an ID that is no base64");
	if (length < 1 || length > HWT_DURABLE_ID_MAX)
		usage_error("an ID has 1 to %d bytes", HWT_DURABLE_ID_MAX);
	return (struct engine_argument){text, length};
}

/* --expires-in or --expires-at, if there is one. */
void
expires_read(struct hwt_durable_task *task)
{
	if (given.expires_in != NULL && given.expires_at != NULL)
		usage_error("--expires-in and --expires-at exclude each other");
	if (given.expires_in != NULL)
		task->expires_ns = option_seconds(
		    "expires-in", given.expires_in, 0, 0, UINT64_MAX);
	else if (given.expires_at != NULL) {
		task->expires_unix_ns = option_seconds(
		    "expires-at", given.expires_at, 0, 0, UINT64_MAX);
		task->flags |= HWT_DURABLE_EXPIRES_AT;
	} else
		return;
	if (task->expires_ns == 0)
		usage_error("--expires-in, --expires-at: more than 0");
}

static uint64_t
retry_time(const char *name, const char *value)
{
	uint64_t ns = option_seconds(name, value, 0, 0, HWT_DURABLE_DELAY_MAX);

	if (value != NULL && ns == 0)
		usage_error("--%s: more than 0", name);
	return ns;
}

void
retries_read(struct hwt_durable_task *task)
{
	uint64_t billionths = 0;

	task->retry_first_ns = retry_time("retry-first", given.retry_first);
	task->retry_most_ns = retry_time("retry-most", given.retry_most);
	if (given.retry_factor == NULL)
		return;
	if (!text_seconds(
		given.retry_factor, strlen(given.retry_factor), &billionths) ||
	    billionths < HWT_SEC(1) || billionths > HWT_SEC(1000))
		usage_error("--retry-factor: want 1 to 1000");
	task->retry_factor = (double)billionths / 1e9;
}

void
priority_option_read(struct hwt_durable_task *task)
{
	if (given.priority != NULL &&
	    !priority_read(given.priority, &task->flags))
		usage_error("--priority: want high, normal or low");
}

/* Reads the payload from standard input, of at most size bytes. */
static size_t
payload_read(char *to, size_t size)
{
	size_t length = fread(to, 1, size, stdin);

	if (ferror(stdin)) {
		complain("standard input: %s", system_text(errno));
		exit(STATUS_NO);
	}
	if (getchar() != EOF)
		usage_error(
		    "--payload: more than %d bytes", HWT_DURABLE_PAYLOAD_MAX);
	return length;
}

void
payload_find(struct hwt_durable_task *task)
{
	static char text[HWT_DURABLE_PAYLOAD_MAX];

	if (given.payload == NULL)
		return;
	task->payload = given.payload;
	task->payload_length = strlen(given.payload);
	if (strcmp(given.payload, "-") == 0) {
		task->payload = text;
		task->payload_length = payload_read(text, sizeof(text));
	}
	if (task->payload_length > HWT_DURABLE_PAYLOAD_MAX)
		usage_error(
		    "--payload: more than %d bytes", HWT_DURABLE_PAYLOAD_MAX);
	if (task->payload_length == 0)
		task->payload = NULL;
}
