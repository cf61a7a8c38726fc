/* SPDX-License-Identifier: Apache-2.0 */
/* Texts and tables of the router: see route.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "route.h"

#define ELEMENTS_MAX (1 << 20) /* of an array in a reply */

/* How many elements an array has, as hiredis says it. */
#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/* A piece of text, not ended by 0. */
struct text {
	const char *at;
	size_t length;
};

static struct text
text_of(const char *string)
{
	return (struct text){string, strlen(string)};
}

static bool
text_is(struct text text, const char *string)
{
	return text.length == strlen(string) &&
	    memcmp(text.at, string, text.length) == 0;
}

/* Takes what stands before the first separator, and the separator. */
static struct text
text_take(struct text *text, char separator)
{
	const char *end =
	    text->length > 0 ? memchr(text->at, separator, text->length) : NULL;
	struct text taken = *text;

	if (end == NULL) {
		text->at += text->length;
		text->length = 0;
		return taken;
	}
	taken.length = (size_t)(end - text->at);
	text->at += taken.length + 1;
	text->length -= taken.length + 1;
	return taken;
}

/* True: all of it is a number of at most limit. */
static bool
text_number(struct text text, uint32_t limit, uint32_t *number)
{
	uint64_t value = 0;
	size_t i;

	if (text.length == 0 || text.length > 10)
		return false;
	for (i = 0; i < text.length; i++) {
		if (text.at[i] < '0' || text.at[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(text.at[i] - '0');
	}
	if (value > limit)
		return false;
	*number = (uint32_t)value;
	return true;
}

static bool
text_copy(char *to, size_t size, struct text text)
{
	if (text.length >= size || memchr(text.at, 0, text.length) != NULL)
		return false;
	memcpy(to, text.at, text.length);
	memset(to + text.length, 0, size - text.length);
	return true;
}

static int
address_set(struct route_address *address, struct text host, struct text port)
{
	uint32_t number;

	if (host.length > 1 && host.at[0] == '[' &&
	    host.at[host.length - 1] == ']') {
		host.at++;
		host.length -= 2;
	}
	if (!text_number(port, UINT16_MAX, &number) || number == 0 ||
	    host.length == 0 || text_is(host, "?") ||
	    !text_copy(address->host, sizeof(address->host), host))
		return -EPROTO;
	address->port = (uint16_t)number;
	return 0;
}

int
route_read_address(struct route_address *address, const char *host,
    size_t host_length, const char *port, size_t port_length)
{
	return address_set(address, (struct text){host, host_length},
	    (struct text){port, port_length});
}

/* HOST:PORT; the host of an address in IPv6 has colons itself. */
static int
address_read(struct route_address *address, struct text text)
{
	size_t at = text.length;

	while (at > 0 && text.at[at - 1] != ':')
		at--;
	if (at == 0)
		return -EPROTO;
	return address_set(address, (struct text){text.at, at - 1},
	    (struct text){text.at + at, text.length - at});
}

bool
route_is_same(const struct route_address *a, const struct route_address *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* Lists of servers. */

static bool
starts_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

static int
servers_add(struct route_servers *servers, struct text text)
{
	if (servers->count == ROUTE_SERVERS_MAX ||
	    address_read(&servers->address[servers->count], text) != 0)
		return -EINVAL;
	servers->count++;
	return 0;
}

/* Between commas; the last one is the name of a Sentinel's master. */
static int
servers_list(struct route_servers *servers, struct text list)
{
	struct text item;
	int error = 0;
	bool last;

	do {
		last = memchr(list.at, ',', list.length) == NULL;
		item = text_take(&list, ',');
		if (last && servers->kind == ROUTE_SENTINEL)
			return servers->count > 0 && item.length > 0 &&
				text_copy(
				    servers->name, sizeof(servers->name), item)
			    ? 0
			    : -EINVAL;
		error = servers_add(servers, item);
	} while (error == 0 && !last);
	return error;
}

static int
servers_socket(struct route_servers *servers, struct text path)
{
	/* sun_path */
	if (path.length == 0 || path.length > 107 ||
	    !text_copy(servers->address[0].host,
		sizeof(servers->address[0].host), path))
		return -EINVAL;
	servers->count = 1;
	return 0;
}

int
route_read_servers(struct route_servers *servers, const char *text)
{
	memset(servers, 0, sizeof(*servers));
	if (starts_with(text, "unix:"))
		return servers_socket(servers, text_of(text + 5));
	if (starts_with(text, "sentinel:")) {
		servers->kind = ROUTE_SENTINEL;
		return servers_list(servers, text_of(text + 9));
	}
	if (starts_with(text, "cluster:")) {
		servers->kind = ROUTE_CLUSTER;
		return servers_list(servers, text_of(text + 8));
	}
	return servers_add(servers, text_of(text));
}

/* Slots. */

/* CRC-16 of XMODEM: polynomial 0x1021, from 0. */
static uint32_t
crc16(const char *bytes, size_t length)
{
	uint32_t crc = 0;
	size_t i;
	int bit;

	for (i = 0; i < length; i++) {
		crc ^= (uint32_t)(unsigned char)bytes[i] << 8;
		for (bit = 0; bit < 8; bit++)
			crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
	}
	return crc & 0xffff;
}

uint32_t
route_slot(const char *key, size_t length)
{
	const char *open = length > 0 ? memchr(key, '{', length) : NULL;
	const char *close;
	size_t rest;

	if (open != NULL) {
		rest = length - (size_t)(open + 1 - key);
		close = rest > 0 ? memchr(open + 1, '}', rest) : NULL;
		if (close != NULL && close != open + 1)
			return crc16(open + 1, (size_t)(close - open - 1)) %
			    ROUTE_SLOTS;
	}
	return crc16(key, length) % ROUTE_SLOTS;
}

/* Error replies. */

struct meaning {
	const char *word;
	enum route_action action;
	int error;
};

static const struct meaning meanings[] = {
    /* of the scripts */
    {"ESKEW", ROUTE_FAIL, -ETIME},
    {"EPAUSED", ROUTE_AGAIN, -EAGAIN},
    {"ENOSPACE", ROUTE_FAIL, -ESTALE},
    {"ESHAPE", ROUTE_FAIL, -EEXIST},
    {"EARG", ROUTE_FAIL, -EINVAL},
    /* of Redis */
    {"LOADING", ROUTE_AGAIN, -EAGAIN},
    {"BUSY", ROUTE_AGAIN, -EAGAIN},
    {"TRYAGAIN", ROUTE_AGAIN, -EAGAIN},
    {"NOREPLICAS", ROUTE_AGAIN, -EAGAIN},
    {"CLUSTERDOWN", ROUTE_ELSEWHERE, -EAGAIN},
    {"MASTERDOWN", ROUTE_ELSEWHERE, -EAGAIN},
    {"READONLY", ROUTE_ELSEWHERE, -EAGAIN},
    {"OOM", ROUTE_FAIL, -ENOSPC},
    {"MISCONF", ROUTE_FAIL, -ENOSPC},
    {"NOAUTH", ROUTE_FAIL, -EACCES},
    {"WRONGPASS", ROUTE_FAIL, -EACCES},
    {"NOPERM", ROUTE_FAIL, -EACCES},
    {"DENIED", ROUTE_FAIL, -EACCES},
};

/* MOVED 3999 127.0.0.1:6381 */
static void
judge_redirect(struct route_verdict *verdict, struct text rest,
    enum route_action action, const struct route_address *from)
{
	struct text slot = text_take(&rest, ' ');

	if (!text_number(slot, ROUTE_SLOTS - 1, &verdict->slot))
		return;
	if (rest.length > 1 && rest.at[0] == ':' &&
	    memchr(rest.at + 1, ':', rest.length - 1) == NULL) {
		if (address_set(&verdict->address, text_of(from->host),
			(struct text){rest.at + 1, rest.length - 1}) != 0)
			return;
	} else if (address_read(&verdict->address, rest) != 0)
		return;
	verdict->action = action;
	verdict->error = -EAGAIN;
}

void
route_judge(struct route_verdict *verdict, const char *text, size_t length,
    const struct route_address *from)
{
	static const char no_right[] = "ERR The user executing the script ";
	struct text rest = {text, length};
	struct text word;
	size_t i;

	memset(verdict, 0, sizeof(*verdict));
	verdict->action = ROUTE_FAIL;
	verdict->error = -EPROTO;
	/* A right that a script lacks; only later versions say NOPERM. */
	if (length > strlen(no_right) &&
	    memcmp(text, no_right, strlen(no_right)) == 0) {
		verdict->error = -EACCES;
		return;
	}
	if (text_is(rest, "ERR max number of clients reached")) {
		verdict->action = ROUTE_AGAIN;
		verdict->error = -EAGAIN;
		return;
	}
	if (text_is(rest, ROUTE_NO_FUNCTION)) {
		verdict->action = ROUTE_LOAD;
		verdict->error = -EAGAIN;
		return;
	}
	word = text_take(&rest, ' ');
	if (text_is(word, "MOVED"))
		judge_redirect(verdict, rest, ROUTE_MOVED, from);
	else if (text_is(word, "ASK"))
		judge_redirect(verdict, rest, ROUTE_ASK, from);
	for (i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		if (!text_is(word, meanings[i].word))
			continue;
		verdict->action = meanings[i].action;
		verdict->error = meanings[i].error;
	}
	if (text_is(word, "EARG"))
		(void)text_number(
		    text_take(&rest, ' '), UINT32_MAX, &verdict->index);
}

/* The table. */

void
route_table_named(const struct route_table *table, bool named[ROUTE_NODES_MAX])
{
	uint32_t slot;

	memset(named, 0, ROUTE_NODES_MAX * sizeof(named[0]));
	for (slot = 0; slot < ROUTE_SLOTS; slot++) {
		if (table->node_of[slot] != 0)
			named[table->node_of[slot] - 1] = true;
	}
}

static int
table_reuse(struct route_table *table, const struct route_address *address)
{
	bool named[ROUTE_NODES_MAX];
	int i;

	route_table_named(table, named);
	for (i = 0; i < ROUTE_NODES_MAX; i++) {
		if (named[i])
			continue;
		table->node[i] = *address;
		return i;
	}
	return -ENOBUFS;
}

int
route_table_add(struct route_table *table, const struct route_address *address)
{
	uint32_t i;

	for (i = 0; i < table->count; i++) {
		if (route_is_same(&table->node[i], address))
			return (int)i;
	}
	if (table->count == ROUTE_NODES_MAX)
		return table_reuse(table, address);
	table->node[table->count] = *address;
	return (int)table->count++;
}

static bool
reply_is(const redisReply *reply, int type)
{
	return reply != NULL && reply->type == type;
}

/* The node of a range: {host, port, ...}; without host, it is who was asked. */
static int
range_node(struct route_table *table, const redisReply *node,
    const struct route_address *from)
{
	struct route_address address = *from;
	const redisReply *host;
	long long port;

	if (!reply_is(node, REDIS_REPLY_ARRAY) || node->elements < 2 ||
	    !reply_is(node->element[1], REDIS_REPLY_INTEGER))
		return -EPROTO;
	host = node->element[0];
	port = node->element[1]->integer;
	if (port < 1 || port > UINT16_MAX)
		return -EPROTO;
	if (reply_is(host, REDIS_REPLY_STRING) && host->len > 0) {
		if (!text_copy(address.host, sizeof(address.host),
			(struct text){host->str, host->len}))
			return -EPROTO;
	} else if (!reply_is(host, REDIS_REPLY_STRING) &&
	    !reply_is(host, REDIS_REPLY_NIL))
		return -EPROTO;
	address.port = (uint16_t)port;
	return route_table_add(table, &address);
}

/* {first, last, master, replica...} */
static int
range_read(struct route_table *table, const redisReply *range,
    const struct route_address *from)
{
	long long slot, last;
	int node;

	if (!reply_is(range, REDIS_REPLY_ARRAY) || range->elements < 3 ||
	    !reply_is(range->element[0], REDIS_REPLY_INTEGER) ||
	    !reply_is(range->element[1], REDIS_REPLY_INTEGER))
		return -EPROTO;
	slot = range->element[0]->integer;
	last = range->element[1]->integer;
	if (slot < 0 || last < slot || last >= (long long)ROUTE_SLOTS)
		return -EPROTO;
	node = range_node(table, range->element[2], from);
	if (node < 0)
		return node;
	for (; slot <= last; slot++)
		table->node_of[slot] = (uint16_t)(node + 1);
	return 0;
}

int
route_table_read(struct route_table *table, const redisReply *slots,
    const struct route_address *from)
{
	int error = 0;
	size_t i;

	if (!reply_is(slots, REDIS_REPLY_ARRAY))
		return -EPROTO;
	/* So that nodes which have no slot any more make room. */
	memset(table->node_of, 0, sizeof(table->node_of));
	for (i = 0; i < slots->elements && error == 0; i++)
		error = range_read(table, slots->element[i], from);
	return error;
}

/* Replies. */

/* hiredis' own would believe any length, and be busy with it for long. */
static void *
array_create(const redisReadTask *task, element_count elements)
{
	redisReply *parent = task->parent != NULL ? task->parent->obj : NULL;
	bool *excess = task->privdata;
	redisReply *reply;

	if (elements > ELEMENTS_MAX) {
		*excess = true;
		return NULL;
	}
	reply = calloc(1, sizeof(*reply));
	if (reply == NULL)
		return NULL;
	reply->type = REDIS_REPLY_ARRAY;
	if (elements > 0)
		reply->element =
		    /* NOLINTNEXTLINE(bugprone-sizeof-expression): pointers */
		    calloc((size_t)elements, sizeof(*reply->element));
	if (elements > 0 && reply->element == NULL) {
		free(reply);
		return NULL;
	}
	reply->elements = (size_t)elements;
	if (parent != NULL)
		parent->element[task->idx] = reply;
	return reply;
}

struct redisReader *
route_reader(struct redisReplyObjectFunctions *functions, bool *excess)
{
	redisReader *reader = redisReaderCreate();

	if (reader == NULL)
		return NULL;
	*functions = *reader->fn;
	functions->createArray = array_create;
	reader->fn = functions;
	reader->privdata = excess;
	return reader;
}
