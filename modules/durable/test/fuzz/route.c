/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes from elsewhere and is read in C: lists of servers, error replies,
 * the table of a cluster, records. The first byte says which. Whatever is read
 * is within its limits.
 */
#include <stdlib.h>
#include <string.h>

#include "modules/durable/durable.h"
#include "modules/durable/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(bool holds)
{
	if (!holds)
		abort();
}

static void
check_address(const struct route_address *address)
{
	check(memchr(address->host, 0, sizeof(address->host)) != NULL);
	check(address->host[0] != 0);
}

static void
fuzz_servers(const char *text)
{
	static struct route_servers servers;
	uint32_t i;

	if (route_read_servers(&servers, text) != 0)
		return;
	check(servers.count >= 1 && servers.count <= ROUTE_SERVERS_MAX);
	for (i = 0; i < servers.count; i++)
		check_address(&servers.address[i]);
	check((servers.kind == ROUTE_SENTINEL) == (servers.name[0] != 0));
}

static void
fuzz_verdict(const char *text, size_t length)
{
	static const struct route_address from = {"from", 7};
	struct route_verdict verdict;

	route_judge(&verdict, text, length, &from);
	check(verdict.error < 0);
	if (verdict.action == ROUTE_MOVED || verdict.action == ROUTE_ASK) {
		check(verdict.slot < ROUTE_SLOTS);
		check(verdict.address.port != 0);
		check_address(&verdict.address);
	}
}

static void
fuzz_table(const char *text, size_t length)
{
	static const struct route_address from = {"from", 7};
	static struct route_table table;
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	uint32_t i;

	memset(&table, 0, sizeof(table));
	(void)redisReaderFeed(reader, text, length);
	(void)redisReaderGetReply(reader, &reply);
	if (reply != NULL) {
		(void)route_table_read(&table, reply, &from);
		freeReplyObject(reply);
	}
	redisReaderFree(reader);
	check(table.count <= ROUTE_NODES_MAX);
	for (i = 0; i < ROUTE_SLOTS; i++)
		check(table.node_of[i] <= table.count);
	for (i = 0; i < table.count; i++)
		check(memchr(table.node[i].host, 0,
			  sizeof(table.node[i].host)) != NULL);
}

static void
fuzz_record(const char *text, size_t length)
{
	struct hwt_durable_info info;
	const char *payload;

	record_read(&info, text, length, &payload);
	check(payload >= text && payload <= text + length);
	check(info.payload_length <= (size_t)(text + length - payload));
	check(memchr(info.queue, 0, sizeof(info.queue)) != NULL);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size == 0)
		return 0;
	text = malloc(size);
	check(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = 0;
	switch (data[0] % 4) {
	case 0:
		fuzz_servers(text);
		break;
	case 1:
		fuzz_verdict(text, size - 1);
		break;
	case 2:
		fuzz_table(text, size - 1);
		break;
	default:
		fuzz_record(text, size - 1);
		break;
	}
	free(text);
	return 0;
}
