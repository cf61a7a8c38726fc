/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks as objects of JSON, in lines of hwtctl add --from and in bodies of
 * HTTP: "queue", and "in" or "at" (seconds, to the microsecond); and, if they
 * are given, "id", "attempts", "payload", "replace", "priority", "expires_in"
 * or "expires_at", "retry_first", "retry_factor" and "retry_most". In the place
 * of id and payload, "id_base64" and "payload_base64" take any bytes. No other
 * member, none twice.
 */
#ifndef HWT_DURABLE_TASK_JSON_H
#define HWT_DURABLE_TASK_JSON_H

#include <jansson.h>

#include "modules/durable/hwt_durable.h"

/* Members, as bits. */
enum {
	TASK_ID = 1,
	TASK_QUEUE = 2,
	TASK_IN = 4,
	TASK_AT = 8,
	TASK_ATTEMPTS = 16,
	TASK_PAYLOAD = 32,
	TASK_REPLACE = 64,
	TASK_EXPIRES = 128,
	TASK_RETRY_FIRST = 256,
	TASK_RETRY_FACTOR = 512,
	TASK_RETRY_MOST = 1024,
	TASK_PRIORITY = 2048,
	TASK_TIME = TASK_IN | TASK_AT,
	TASK_RETRIES = TASK_RETRY_FIRST | TASK_RETRY_FACTOR | TASK_RETRY_MOST,
	TASK_SCHEDULED = TASK_QUEUE | TASK_ATTEMPTS | TASK_PAYLOAD |
	    TASK_EXPIRES | TASK_RETRIES | TASK_PRIORITY,
	TASK_ALL = 4095
};

/* What the text has, which the caller frees with json_decref. NULL: error says
 * what is wrong. */
json_t *task_json_load(const char *text, size_t length, json_error_t *error);

/* Reads these members, of which queue and a time must be there; others are an
 * error. The task points into value, which this changes; without an id, id is
 * NULL. Returns NULL, or what is wrong. */
const char *task_json_read(
    json_t *value, unsigned members, struct hwt_durable_task *task);

/* "high", "normal" or "low": adds the flag. False: it is none of them. */
bool priority_read(const char *text, uint32_t *flags);

/* Room for an id that nobody else makes, in hexadecimal digits, and the 0. */
#define TASK_ID_MADE 33

/* False: the system has no random numbers. */
bool task_id_make(char text[TASK_ID_MADE]);

#endif
