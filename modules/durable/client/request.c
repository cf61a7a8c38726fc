/* SPDX-License-Identifier: Apache-2.0 */
/* Commands: how they are built, and what becomes of them. */
#include "modules/durable/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Building.
 */

static void
buffer_add(struct buffer *buffer, const void *bytes, size_t length)
{
	size_t size = buffer->size == 0 ? 256 : buffer->size;
	char *grown = buffer->bytes;

	if (buffer->failed)
		return;
	while (size - buffer->length < length)
		size *= 2;
	if (size != buffer->size)
		grown = realloc(grown, size);
	buffer->failed = grown == NULL;
	if (buffer->failed)
		return;
	buffer->bytes = grown;
	buffer->size = size;
	if (length > 0)
		memcpy(buffer->bytes + buffer->length, bytes, length);
	buffer->length += length;
}

void
request_word(struct request *request, const void *bytes, size_t length)
{
	char head[24];
	int size = snprintf(head, sizeof(head), "$%zu\r\n", length);

	buffer_add(&request->buffer, head, (size_t)size);
	buffer_add(&request->buffer, bytes, length);
	buffer_add(&request->buffer, "\r\n", 2);
	request->buffer.words++;
}

void
request_text(struct request *request, const char *text)
{
	request_word(request, text, strlen(text));
}

void
request_number(struct request *request, int64_t number)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%lld", (long long)number);
	request_text(request, text);
}

/* Redis Cluster's slot of what stands in braces: CRC-16 of XMODEM. */
static unsigned
slot_of(const char *name, size_t length)
{
	unsigned crc = 0;
	int bit;

	for (; length > 0; name++, length--) {
		crc ^= (unsigned)(unsigned char)*name << 8;
		for (bit = 0; bit < 8; bit++)
			crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
	}
	return crc % SLOTS;
}

void
request_begin(struct request *request, const struct hwt_durable *durable,
    const char *command, const char *queue)
{
	char key[HWT_DURABLE_SPACE_MAX + HWT_DURABLE_QUEUE_MAX + 4] = "{";
	size_t length;

	*request = (struct request){.writes = strcmp(command, "HWT.ADD") == 0 ||
		strcmp(command, "HWT.CANCEL") == 0 ||
		strcmp(command, "HWT.RESCHEDULE") == 0};
	(void)strcat(strcat(strcat(key, durable->space), ":"), queue);
	length = strlen(key);
	request->slot = slot_of(key + 1, length - 1);
	key[length] = '}';
	request_text(request, command);
	request_word(request, key, length + 1);
}

void
request_free(struct request *request)
{
	free(request->buffer.bytes);
	request->buffer = (struct buffer){NULL};
	freeReplyObject(request->reply);
	request->reply = NULL;
}

/*
 * On the loop.
 */

void
request_end(struct request *request, int error, redisReply *reply)
{
	(void)!hwt_cancel(request->durable->timer, request->timeout);
	request->error = error;
	request->reply = reply;
	request->next = request->durable->ended;
	request->durable->ended = request;
	request->durable->flush = true;
}

/* What was sent may have been executed. What was not is told by what has kept
 * it from that. */
static void
request_late(hwt_timeout timeout, void *arg)
{
	struct request *request = arg;
	int error = request->error != 0 ? request->error : -ECONNREFUSED;

	(void)timeout;
	if (connection_forget(request->connection, request))
		error = -ETIMEDOUT;
	request_end(request, error, NULL);
}

void
request_start(struct hwt_durable *durable, struct request *request)
{
	int error;

	request->durable = durable;
	request->timeout = (hwt_timeout){0};
	request->connection = NULL;
	request->error = 0;
	request->reply = NULL;
	error = hwt_new_timeout_on(durable->timer,
	    hwt_mailbox_executor(durable->mailbox), &request->timeout,
	    request_late, request,
	    request->timeout_ns != 0 ? request->timeout_ns
				     : durable->timeout_ns);
	if (error != 0)
		request_end(request, error, NULL);
	else
		connection_queue(node_route(request), request);
}

void
request_answer(struct request *request, redisReply *reply)
{
	struct connection *connection = request->connection;
	const struct meaning *meaning = reply_judge(reply);
	int action = meaning->action, error = meaning->error;

	if ((action == ACTION_MOVED || action == ACTION_ASK) &&
	    !node_redirect(request, reply->str, action == ACTION_ASK)) {
		action = ACTION_NONE;
		error = -EPROTO;
	}
	if (action == ACTION_NONE) {
		if (error == 0 && request->finds && !nodes_take(request, reply))
			error = -EPROTO;
		request_end(request, error, reply);
		return;
	}
	freeReplyObject(reply);
	request->error = error;
	connection->stale |= action == ACTION_AGAIN;
	connection_queue(node_route(request), request);
}
