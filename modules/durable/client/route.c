/* SPDX-License-Identifier: Apache-2.0 */
/* Texts and replies of the router: see route.h. */
#include "modules/durable/client/route.h"

#include <errno.h>
#include <string.h>

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

static bool
text_begins(struct text text, const char *string)
{
	return text.length >= strlen(string) &&
	    memcmp(text.at, string, strlen(string)) == 0;
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

/* True: all of it is a number of at most most. */
static bool
text_number(struct text text, unsigned most, unsigned *number)
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
	*number = (unsigned)value;
	return value <= most;
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

static bool
address_set(struct address *address, struct text host, struct text port)
{
	unsigned number;

	if (host.length > 1 && host.at[0] == '[' &&
	    host.at[host.length - 1] == ']') {
		host.at++;
		host.length -= 2;
	}
	if (!text_number(port, UINT16_MAX, &number) || number == 0 ||
	    host.length == 0 || text_is(host, "?") ||
	    !text_copy(address->host, sizeof(address->host), host))
		return false;
	address->port = (uint16_t)number;
	return true;
}

/* HOST:PORT; the host of an address in IPv6 has colons itself. */
static bool
address_read(struct address *address, struct text text)
{
	size_t at = text.length;

	while (at > 0 && text.at[at - 1] != ':')
		at--;
	return at > 0 &&
	    address_set(address, (struct text){text.at, at - 1},
		(struct text){text.at + at, text.length - at});
}

bool
route_is_same(const struct address *a, const struct address *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/*
 * Lists of servers.
 */

static bool
servers_add(struct route_servers *servers, struct text text)
{
	return servers->count < ROUTE_SERVERS_MAX &&
	    address_read(&servers->address[servers->count++], text);
}

/* Between commas; the last one is the name of a Sentinel's master. */
static bool
servers_list(struct route_servers *servers, struct text list)
{
	struct text item;
	bool last;

	do {
		last = list.length == 0 ||
		    memchr(list.at, ',', list.length) == NULL;
		item = text_take(&list, ',');
		if (last && servers->kind == ROUTE_SENTINEL)
			return servers->count > 0 && item.length > 0 &&
			    text_copy(
				servers->name, sizeof(servers->name), item);
		if (!servers_add(servers, item))
			return false;
	} while (!last);
	return true;
}

/* 107: sun_path. */
static bool
servers_socket(struct route_servers *servers, struct text path)
{
	servers->count = 1;
	return path.length > 0 && path.length <= 107 &&
	    text_copy(servers->address[0].host,
		sizeof(servers->address[0].host), path);
}

static bool
servers_read(struct route_servers *servers, struct text text)
{
	struct text rest = text;
	struct text kind = text_take(&rest, ':');

	if (text_is(kind, "unix"))
		return servers_socket(servers, rest);
	if (text_is(kind, "file")) {
		servers->kind = ROUTE_FILE;
		servers->folder = rest.at;
		return rest.length > 0;
	}
	if (text_is(kind, "sentinel"))
		servers->kind = ROUTE_SENTINEL;
	else if (text_is(kind, "cluster"))
		servers->kind = ROUTE_CLUSTER;
	else
		return servers_add(servers, text);
	return servers_list(servers, rest);
}

int
route_read_servers(struct route_servers *servers, const char *text)
{
	memset(servers, 0, sizeof(*servers));
	return servers_read(servers, text_of(text)) ? 0 : -EINVAL;
}

/* CRC-16 of XMODEM: polynomial 0x1021, from 0. */
unsigned
route_slot(const char *name, size_t length)
{
	unsigned crc = 0;
	size_t i;
	int bit;

	for (i = 0; i < length; i++) {
		crc ^= (unsigned)(unsigned char)name[i] << 8;
		for (bit = 0; bit < 8; bit++)
			crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
	}
	return (crc & 0xffff) % ROUTE_SLOTS;
}

/*
 * Error replies.
 */

static const struct meaning {
	const char *word; /* which the reply begins with */
	enum route_action action;
	int error;
} meanings[] = {
    {"ARG ", ROUTE_DONE, -EINVAL},
    {"DURABILITY ", ROUTE_DONE, -EOPNOTSUPP},
    {"PAUSED ", ROUTE_DONE, -EAGAIN},
    {"FULL ", ROUTE_DONE, -ENOSPC},
    {"OOM ", ROUTE_DONE, -ENOSPC},
    {"MISCONF ", ROUTE_DONE, -ENOSPC},
    {"LOADING ", ROUTE_AGAIN, -EAGAIN},
    {"BUSY ", ROUTE_AGAIN, -EAGAIN},
    {"TRYAGAIN ", ROUTE_AGAIN, -EAGAIN},
    {"NOREPLICAS ", ROUTE_AGAIN, -EAGAIN},
    {"ERR max number of clients", ROUTE_AGAIN, -EAGAIN},
    {"UNBLOCKED ", ROUTE_ELSEWHERE, -EAGAIN},
    {"CLUSTERDOWN ", ROUTE_ELSEWHERE, -EAGAIN},
    {"MASTERDOWN ", ROUTE_ELSEWHERE, -EAGAIN},
    {"READONLY ", ROUTE_ELSEWHERE, -EAGAIN},
    {"NOAUTH ", ROUTE_DONE, -EACCES},
    {"WRONGPASS ", ROUTE_DONE, -EACCES},
    {"NOPERM ", ROUTE_DONE, -EACCES},
    {"DENIED ", ROUTE_DONE, -EACCES},
    {"ERR unknown command", ROUTE_DONE, -EOPNOTSUPP},
    {"ERR AUTH ", ROUTE_DONE, -EACCES}, /* no password is set */
    {"ERR Client sent AUTH", ROUTE_DONE, -EACCES},
    {"ERR no password is set", ROUTE_DONE, -EACCES},
};

/* MOVED 3999 127.0.0.1:6381 */
static void
judge_redirect(struct route_verdict *verdict, struct text rest,
    enum route_action action, const struct address *from)
{
	struct text slot = text_take(&rest, ' ');
	bool own = rest.length > 1 && rest.at[0] == ':' &&
	    memchr(rest.at + 1, ':', rest.length - 1) == NULL;

	if (!text_number(slot, ROUTE_SLOTS - 1, &verdict->slot))
		return;
	if (own ? !address_set(&verdict->address, text_of(from->host),
		      (struct text){rest.at + 1, rest.length - 1})
		: !address_read(&verdict->address, rest))
		return;
	verdict->action = action;
	verdict->error = -EAGAIN;
}

void
route_judge(struct route_verdict *verdict, const redisReply *reply,
    const struct address *from)
{
	struct text rest = {reply->str, (size_t)reply->len};
	size_t i;

	memset(verdict, 0, sizeof(*verdict));
	verdict->action = ROUTE_DONE;
	verdict->error = -EPROTO;
	for (i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		if (!text_begins(rest, meanings[i].word))
			continue;
		verdict->action = meanings[i].action;
		verdict->error = meanings[i].error;
		return;
	}
	if (text_begins(rest, "MOVED ")) {
		(void)text_take(&rest, ' ');
		judge_redirect(verdict, rest, ROUTE_MOVED, from);
	} else if (text_begins(rest, "ASK ")) {
		(void)text_take(&rest, ' ');
		judge_redirect(verdict, rest, ROUTE_ASK, from);
	}
}

/*
 * Other replies.
 */

static bool
reply_is(const redisReply *reply, int type)
{
	return reply != NULL && reply->type == type;
}

/* An array of at least so many elements. */
static bool
reply_has(const redisReply *reply, size_t least)
{
	return reply_is(reply, REDIS_REPLY_ARRAY) && reply->elements >= least;
}

static struct text
text_of_reply(const redisReply *reply)
{
	if (!reply_is(reply, REDIS_REPLY_STRING))
		return (struct text){"", 0};
	return (struct text){reply->str, (size_t)reply->len};
}

bool
route_read_address(struct address *address, const redisReply *reply)
{
	return reply_has(reply, 2) &&
	    address_set(address, text_of_reply(reply->element[0]),
		text_of_reply(reply->element[1]));
}

/* {host, port, ...}; without a host, it is who was asked. */
static bool
read_node(
    struct address *address, const redisReply *node, const struct address *from)
{
	struct text host;
	long long port;

	if (!reply_has(node, 2) ||
	    !reply_is(node->element[1], REDIS_REPLY_INTEGER))
		return false;
	port = node->element[1]->integer;
	host = text_of_reply(node->element[0]);
	if (port < 1 || port > UINT16_MAX)
		return false;
	if (host.length == 0 || text_is(host, "?"))
		host = text_of(from->host);
	address->port = (uint16_t)port;
	return text_copy(address->host, sizeof(address->host), host);
}

/* {first, last, master, replica...} */
bool
route_read_range(struct route_range *range, const redisReply *reply,
    const struct address *from)
{
	long long first, last;

	if (!reply_has(reply, 3) ||
	    !reply_is(reply->element[0], REDIS_REPLY_INTEGER) ||
	    !reply_is(reply->element[1], REDIS_REPLY_INTEGER))
		return false;
	first = reply->element[0]->integer;
	last = reply->element[1]->integer;
	if (first < 0 || last < first || last >= (long long)ROUTE_SLOTS)
		return false;
	range->first = (unsigned)first;
	range->last = (unsigned)last;
	return read_node(&range->address, reply->element[2], from);
}

/* {"master", offset, {replica, ...}} */
int
route_replicas(const redisReply *role)
{
	if (!reply_has(role, 3) ||
	    !text_is(text_of_reply(role->element[0]), "master") ||
	    !reply_is(role->element[2], REDIS_REPLY_ARRAY))
		return -1;
	return (int)role->element[2]->elements;
}
