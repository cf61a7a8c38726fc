/* SPDX-License-Identifier: Apache-2.0 */
/* All that reads text from elsewhere: addresses, and error replies. */
#include "modules/durable/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* A host, of which so many bytes count, and a port. The host of an address in
 * IPv6 has colons itself. */
static bool
set_address(
    struct address *address, const char *host, size_t length, const char *port)
{
	char *end;
	unsigned long number = strtoul(port, &end, 10);

	if (length == 0 || length > 255 || port[0] < '0' || port[0] > '9' ||
	    *end != '\0' || number < 1 || number > UINT16_MAX)
		return false;
	(void)snprintf(address->text, sizeof(address->text), "%.*s:%lu",
	    (int)length, host, number);
	return true;
}

static size_t
host_length(const char *text)
{
	const char *colon = strrchr(text, ':');

	return colon != NULL ? (size_t)(colon - text) : 0;
}

static bool
read_address(struct address *address, const char *text)
{
	size_t length = host_length(text);

	return set_address(
	    address, text, length, length > 0 ? text + length + 1 : "");
}

/* Between commas; the last one is the name of a Sentinel's master. */
static bool
read_list(struct servers *servers, const char *text)
{
	char item[sizeof(struct address)];
	size_t length;

	for (;; text += length + 1) {
		length = strcspn(text, ",");
		if (text[length] == '\0' && servers->kind == SERVER_SENTINEL) {
			servers->name = text;
			return servers->count > 0 && length > 0;
		}
		if (length >= sizeof(item) || servers->count == SERVERS_MAX)
			return false;
		memcpy(item, text, length);
		item[length] = '\0';
		if (!read_address(&servers->address[servers->count++], item))
			return false;
		if (text[length] == '\0')
			return servers->count == 1 ||
			    servers->kind != SERVER_SINGLE;
	}
}

bool
servers_read(struct servers *servers, const char *text)
{
	const char *rest = strchr(text, ':');

	rest = rest != NULL ? rest + 1 : "";
	if (begins(text, "unix:")) {
		servers->count = 1;
		(void)snprintf(servers->address[0].text,
		    sizeof(servers->address[0].text), "%s", text);
		/* As sun_path. */
		return rest[0] != '\0' && strlen(rest) < 108;
	}
	if (begins(text, "file:")) {
		servers->kind = SERVER_FILE;
		servers->folder = rest;
		return rest[0] != '\0';
	}
	if (begins(text, "sentinel:"))
		servers->kind = SERVER_SENTINEL;
	else if (begins(text, "cluster:"))
		servers->kind = SERVER_CLUSTER;
	else
		rest = text;
	return read_list(servers, rest);
}

/* {host, port}; a port is a text or a number. */
bool
reply_address(struct address *address, const redisReply *reply,
    const struct address *from)
{
	const redisReply *host, *port;
	char number[24];

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
		return false;
	host = reply->element[0];
	port = reply->element[1];
	(void)snprintf(number, sizeof(number), "%lld", port->integer);
	return host->type == REDIS_REPLY_STRING && host->len > 0 &&
		host->str[0] != '?'
	    ? set_address(address, host->str, strlen(host->str),
		  port->type == REDIS_REPLY_STRING ? port->str : number)
	    : set_address(address, from->text, host_length(from->text), number);
}

int
reply_replicas(const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
	    reply->element[0]->type != REDIS_REPLY_STRING ||
	    strcmp(reply->element[0]->str, "master") != 0 ||
	    reply->element[2]->type != REDIS_REPLY_ARRAY)
		return -1;
	return (int)reply->element[2]->elements;
}

static const struct meaning {
	const char *word; /* which the reply begins with */
	int action, error;
} meanings[] = {
    {"ARG ", ACTION_NONE, -EINVAL},
    {"DURABILITY ", ACTION_NONE, -EOPNOTSUPP},
    {"PAUSED ", ACTION_NONE, -EAGAIN},
    {"FULL ", ACTION_NONE, -ENOSPC},
    {"OOM ", ACTION_NONE, -ENOSPC},
    {"MISCONF ", ACTION_NONE, -ENOSPC},
    {"LOADING ", ACTION_AGAIN, -EAGAIN},
    {"BUSY ", ACTION_AGAIN, -EAGAIN},
    {"TRYAGAIN ", ACTION_AGAIN, -EAGAIN},
    {"NOREPLICAS ", ACTION_AGAIN, -EAGAIN},
    {"ERR max number of clients", ACTION_AGAIN, -EAGAIN},
    {"UNBLOCKED ", ACTION_ELSEWHERE, -EAGAIN},
    {"CLUSTERDOWN ", ACTION_ELSEWHERE, -EAGAIN},
    {"MASTERDOWN ", ACTION_ELSEWHERE, -EAGAIN},
    {"READONLY ", ACTION_ELSEWHERE, -EAGAIN},
    {"MOVED ", ACTION_MOVED, -EAGAIN},
    {"ASK ", ACTION_ASK, -EAGAIN},
    {"NOAUTH ", ACTION_NONE, -EACCES},
    {"WRONGPASS ", ACTION_NONE, -EACCES},
    {"NOPERM ", ACTION_NONE, -EACCES},
    {"DENIED ", ACTION_NONE, -EACCES},
    {"ERR unknown command", ACTION_NONE, -EOPNOTSUPP},
    {"", ACTION_NONE, -EPROTO},
};

/* MOVED 3999 127.0.0.1:6381; without a host, that of from. */
static bool
read_redirect(
    struct verdict *verdict, const char *text, const struct address *from)
{
	char *rest;
	unsigned long slot = strtoul(text, &rest, 10);

	verdict->slot = (unsigned)slot;
	if (rest == text || slot >= SLOTS || rest[0] != ' ')
		return false;
	return rest[1] == ':' ? set_address(&verdict->address, from->text,
				    host_length(from->text), rest + 2)
			      : read_address(&verdict->address, rest + 1);
}

struct verdict
reply_judge(const redisReply *reply, const struct address *from)
{
	struct verdict verdict = {.action = ACTION_NONE};
	const struct meaning *meaning = meanings;

	if (reply->type != REDIS_REPLY_ERROR)
		return verdict;
	while (!begins(reply->str, meaning->word))
		meaning++;
	verdict.action = meaning->action;
	verdict.error = meaning->error;
	if ((verdict.action == ACTION_MOVED || verdict.action == ACTION_ASK) &&
	    !read_redirect(&verdict, strchr(reply->str, ' ') + 1, from)) {
		verdict.action = ACTION_NONE;
		verdict.error = -EPROTO;
	}
	return verdict;
}
