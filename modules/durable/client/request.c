/* SPDX-License-Identifier: Apache-2.0 */
/* Commands: how they are built. */
#include "modules/durable/client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	char key[HWT_DURABLE_SPACE_MAX + HWT_DURABLE_QUEUE_MAX + 4];
	size_t length = (size_t)snprintf(
	    key, sizeof(key), "{%s:%s}", durable->space, queue);

	*request = (struct request){.slot = slot_of(key + 1, length - 2),
	    .writes = strcmp(command, "HWT.ADD") == 0 ||
		strcmp(command, "HWT.CANCEL") == 0 ||
		strcmp(command, "HWT.RESCHEDULE") == 0};
	request_text(request, command);
	request_word(request, key, length);
}

void
request_free(struct request *request)
{
	free(request->buffer.bytes);
	freeReplyObject(request->reply);
}
