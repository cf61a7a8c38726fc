/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which server a request goes to. On the loop, but for the start.
 *
 * Of one server, and of "file:DIR", there is one node. With Sentinels there is
 * one, too, and the finder asks them where it is, as soon as its address is
 * needed after a connection was lost. Of a cluster, the nodes are those that it
 * has named, and the finder asks one after the other which has which slot, when
 * a connection was lost or a node says that it cannot serve.
 */
#include "modules/durable/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Texts.
 */

static bool
begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* A host, of which so many bytes count, and a port. One of IPv6 may stand in
 * brackets. */
static bool
set_address(
    struct address *address, const char *host, size_t length, const char *port)
{
	char *end;
	unsigned long number = strtoul(port, &end, 10);

	if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
		host++;
		length -= 2;
	}
	if (length == 0 || length >= sizeof(address->host) || port[0] < '0' ||
	    port[0] > '9' || *end != '\0' || number < 1 || number > UINT16_MAX)
		return false;
	memcpy(address->host, host, length);
	address->host[length] = '\0';
	address->port = (int)number;
	return true;
}

/* HOST:PORT. Without a host, that of from, if it is not NULL. */
static bool
read_address(
    struct address *address, const char *text, const struct address *from)
{
	const char *colon = strrchr(text, ':');

	if (colon == NULL)
		return false;
	return colon == text && from != NULL
	    ? set_address(address, from->host, strlen(from->host), colon + 1)
	    : set_address(address, text, (size_t)(colon - text), colon + 1);
}

/* Between commas; the last one is the name of a Sentinel's master. */
static bool
read_list(struct servers *servers, const char *text)
{
	char item[sizeof(servers->address[0].host) + 8];
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
		if (!read_address(
			&servers->address[servers->count++], item, NULL))
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
		(void)strncpy(servers->address[0].host, rest, 108);
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
static bool
reply_address(struct address *address, const redisReply *reply,
    const struct address *from)
{
	const redisReply *host, *port;
	const char *name = from->host;
	char number[24];

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
		return false;
	host = reply->element[0];
	port = reply->element[1];
	(void)snprintf(number, sizeof(number), "%lld", port->integer);
	if (host->type == REDIS_REPLY_STRING && host->len > 0 &&
	    host->str[0] != '?')
		name = host->str;
	return set_address(address, name, strlen(name),
	    port->type == REDIS_REPLY_STRING ? port->str : number);
}

static const struct meaning meanings[] = {
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
    {"UNBLOCKED ", ACTION_AGAIN, -EAGAIN},
    {"CLUSTERDOWN ", ACTION_AGAIN, -EAGAIN},
    {"MASTERDOWN ", ACTION_AGAIN, -EAGAIN},
    {"READONLY ", ACTION_AGAIN, -EAGAIN},
    {"MOVED ", ACTION_MOVED, -EAGAIN},
    {"ASK ", ACTION_ASK, -EAGAIN},
    {"NOAUTH ", ACTION_NONE, -EACCES},
    {"WRONGPASS ", ACTION_NONE, -EACCES},
    {"NOPERM ", ACTION_NONE, -EACCES},
    {"DENIED ", ACTION_NONE, -EACCES},
    {"ERR unknown command", ACTION_NONE, -EOPNOTSUPP},
    {"", ACTION_NONE, -EPROTO},
};

const struct meaning *
reply_judge(const redisReply *reply)
{
	static const struct meaning no_error = {"", ACTION_NONE, 0};
	const struct meaning *meaning = meanings;

	if (reply->type != REDIS_REPLY_ERROR)
		return &no_error;
	while (!begins(reply->str, meaning->word))
		meaning++;
	return meaning;
}

/*
 * Nodes.
 */

static struct node *
node_create(struct hwt_durable *durable, const struct address *address)
{
	struct node *node = calloc(1, sizeof(*node));

	if (node == NULL)
		return NULL;
	if (address != NULL)
		node->address = *address;
	node->replicas = -1;
	connection_create(&node->connection, durable, node);
	return node;
}

/* The index of the node at an address, plus one. 0: no memory, or too many. */
static uint16_t
node_at(struct hwt_durable *durable, const struct address *address)
{
	struct node *node;
	unsigned i;

	for (i = 0; i < durable->nodes; i++) {
		if (durable->node[i]->address.port == address->port &&
		    strcmp(durable->node[i]->address.host, address->host) == 0)
			return (uint16_t)(i + 1);
	}
	node = i < NODES_MAX ? node_create(durable, address) : NULL;
	if (node == NULL)
		return 0;
	durable->node[durable->nodes++] = node;
	return (uint16_t)durable->nodes;
}

struct connection *
node_route(struct request *request)
{
	struct hwt_durable *durable = request->durable;
	struct connection *own = request->own;
	struct node *node = request->asked;
	unsigned index = durable->node_of[request->slot];

	request->asked = NULL;
	if (request->node != NULL)
		node = request->node;
	else if (node == NULL)
		node = durable->node[index > 0 ? index - 1 : 0];
	if (own == NULL)
		return &node->connection;
	if (own->node != node)
		connection_close(own);
	own->node = node;
	return own;
}

/* MOVED 3999 127.0.0.1:6381; without a host, that of who says so. */
bool
node_redirect(struct request *request, const char *text, bool asking)
{
	struct hwt_durable *durable = request->durable;
	struct address address;
	char *rest;
	unsigned long slot = strtoul(strchr(text, ' ') + 1, &rest, 10);
	uint16_t index;

	if (slot >= SLOTS || rest[0] != ' ' ||
	    !read_address(
		&address, rest + 1, &request->connection->node->address))
		return false;
	index = node_at(durable, &address);
	if (index == 0)
		return true;
	request->asked = durable->node[index - 1];
	request->asking = asking;
	if (!asking && durable->servers.kind == SERVER_CLUSTER)
		durable->node_of[slot] = index;
	return true;
}

/*
 * The finder.
 */

/* {first, last, {host, port, ...}, ...} of each range. */
static bool
take_slots(struct hwt_durable *durable, const redisReply *reply,
    const struct address *from)
{
	struct address address;
	redisReply *const *field;
	uint16_t index;
	long long slot;
	size_t i;

	for (i = 0; i < reply->elements; i++) {
		field = reply->element[i]->element;
		if (reply->element[i]->type != REDIS_REPLY_ARRAY ||
		    reply->element[i]->elements < 3 || field[0]->integer < 0 ||
		    field[1]->integer >= SLOTS ||
		    !reply_address(&address, field[2], from))
			return false;
		index = node_at(durable, &address);
		for (slot = field[0]->integer;
		     slot <= field[1]->integer && index > 0; slot++)
			durable->node_of[slot] = index;
	}
	return i > 0;
}

bool
nodes_take(struct request *request, const redisReply *reply)
{
	struct hwt_durable *durable = request->durable;
	const struct address *from = &request->node->address;

	return durable->servers.kind == SERVER_SENTINEL
	    ? reply_address(&durable->node[0]->address, reply, from)
	    : reply->type == REDIS_REPLY_ARRAY &&
		take_slots(durable, reply, from);
}

static void
finder_ask(struct hwt_durable *durable)
{
	struct finder *finder = &durable->finder;
	bool sentinel = finder->sentinel != NULL;
	unsigned count = sentinel ? durable->servers.count : durable->nodes;
	unsigned index = finder->next % count;

	finder->busy = finder->tried++ < count;
	if (!finder->busy)
		return;
	finder->request.node = durable->node[index];
	if (sentinel) {
		connection_close(&finder->sentinel->connection);
		finder->sentinel->address = durable->servers.address[index];
		finder->request.node = finder->sentinel;
	}
	request_start(durable, &finder->request);
}

static void
finder_done(struct request *request)
{
	struct finder *finder = &request->durable->finder;

	freeReplyObject(request->reply);
	request->reply = NULL;
	finder->busy = false;
	if (request->error == 0)
		return;
	finder->next++;
	finder_ask(request->durable);
}

static void
finder_start(struct hwt_durable *durable)
{
	if (durable->finder.busy)
		return;
	durable->finder.tried = 0;
	finder_ask(durable);
}

bool
node_is_known(struct connection *connection)
{
	if (connection->node->address.host[0] != '\0' ||
	    connection->durable->servers.kind != SERVER_SENTINEL)
		return true;
	finder_start(connection->durable);
	return false;
}

void
node_lost(struct connection *connection)
{
	const struct servers *servers = &connection->durable->servers;

	if (servers->kind == SERVER_SENTINEL)
		connection->node->address.host[0] = '\0';
	else if (servers->kind == SERVER_CLUSTER)
		finder_start(connection->durable);
}

/*
 * Start and end.
 */

int
nodes_create(struct hwt_durable *durable)
{
	struct servers *servers = &durable->servers;
	struct finder *finder = &durable->finder;
	struct request *request = &finder->request;
	unsigned i, count = servers->count;

	request->done = finder_done;
	request->finds = true;
	request->timeout_ns = durable->timeout_ns / 4;
	if (servers->kind == SERVER_SENTINEL) {
		count = 0;
		finder->sentinel = node_create(durable, NULL);
		if (finder->sentinel == NULL)
			return -ENOMEM;
		request_text(request, "SENTINEL");
		request_text(request, "GET-MASTER-ADDR-BY-NAME");
		request_text(request, servers->name);
	} else {
		request_text(request, "CLUSTER");
		request_text(request, "SLOTS");
	}
	for (i = 0; i < count; i++) {
		if (node_at(durable, &servers->address[i]) == 0)
			return -ENOMEM;
	}
	if (count == 0 && node_at(durable, &(struct address){.port = 0}) == 0)
		return -ENOMEM;
	if (count > 0)
		servers->count = durable->nodes; /* some may be there twice */
	return request->buffer.failed ? -ENOMEM : 0;
}

static void
node_destroy(struct node *node)
{
	if (node != NULL)
		connection_destroy(&node->connection);
	free(node);
}

void
nodes_destroy(void *arg)
{
	struct hwt_durable *durable = arg;
	struct finder *finder = &durable->finder;

	if (finder->busy)
		(void)!hwt_cancel(durable->timer, finder->request.timeout);
	request_free(&finder->request);
	while (durable->nodes > 0)
		node_destroy(durable->node[--durable->nodes]);
	node_destroy(finder->sentinel);
	durable->over = true;
}
