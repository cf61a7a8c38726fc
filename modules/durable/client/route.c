/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which server a request goes to. On the loop, but for the start.
 *
 * All servers are in one table of nodes. Of one server, and of "file:DIR",
 * there is one. With Sentinels the first one is the master, and the others are
 * they; the finder asks one of them where it is, when its address is needed
 * after a connection was lost. Of a cluster they are those that it has named,
 * and the finder asks one of them which has which slot, when a connection was
 * lost or a node says that it cannot serve. If that fails, it is the next one's
 * turn as soon as the request that waits is tried again.
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

/* HOST:PORT. Without a host, that of from, if it is not NULL. One of IPv6 may
 * stand in brackets. */
static bool
read_address(
    struct address *address, const char *text, const struct address *from)
{
	const char *colon = strrchr(text, ':'), *host = text;
	size_t length = colon != NULL ? (size_t)(colon - text) : 0;
	unsigned long port;
	char *end;

	if (colon == NULL || colon[1] < '0' || colon[1] > '9')
		return false;
	if (length == 0 && from != NULL) {
		host = from->host;
		length = strlen(host);
	}
	if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
		host++;
		length -= 2;
	}
	port = strtoul(colon + 1, &end, 10);
	if (length == 0 || length >= sizeof(address->host) || *end != '\0' ||
	    port < 1 || port > UINT16_MAX)
		return false;
	memcpy(address->host, host, length);
	address->host[length] = '\0';
	address->port = (int)port;
	return true;
}

/* Changes text, and keeps parts of it. */
bool
servers_read(struct servers *servers, char *text)
{
	char *rest = strchr(text, ':'), *item;

	rest = rest != NULL ? rest + 1 : text;
	servers->name = rest;
	if (begins(text, "unix:")) {
		servers->count = 1;
		(void)strncpy(servers->address[0].host, rest, 108);
		/* As sun_path. */
		return rest[0] != '\0' && strlen(rest) < 108;
	}
	if (begins(text, "file:")) {
		servers->kind = SERVER_FILE;
		return rest[0] != '\0';
	}
	if (begins(text, "sentinel:"))
		servers->kind = SERVER_SENTINEL;
	else if (begins(text, "cluster:"))
		servers->kind = SERVER_CLUSTER;
	else
		rest = text;
	while ((item = strsep(&rest, ",")) != NULL) {
		servers->name = item;
		if (rest == NULL && servers->kind == SERVER_SENTINEL)
			return servers->count > 0 && item[0] != '\0';
		if (servers->count == SERVERS_MAX ||
		    !read_address(
			&servers->address[servers->count++], item, NULL))
			return false;
	}
	return servers->count == 1 || servers->kind == SERVER_CLUSTER;
}

/* {host, port}; a port is a text or a number. */
static bool
reply_address(struct address *address, const redisReply *reply,
    const struct address *from)
{
	char text[sizeof(address->host) + 24];
	const redisReply *host, *port;
	bool named;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
		return false;
	host = reply->element[0];
	port = reply->element[1];
	named = host->type == REDIS_REPLY_STRING && host->len > 0 &&
	    host->len < sizeof(address->host) && host->str[0] != '?';
	(void)snprintf(text, sizeof(text), "%s:%lld",
	    named ? host->str : from->host,
	    port->type == REDIS_REPLY_STRING ? atoll(port->str)
					     : port->integer);
	return read_address(address, text, NULL);
}

/*
 * Nodes.
 */

static struct node *
node_create(struct hwt_durable *durable, const struct address *address)
{
	struct node *node =
	    durable->nodes < NODES_MAX ? calloc(1, sizeof(*node)) : NULL;

	if (node == NULL)
		return NULL;
	node->address = *address;
	node->replicas = -1;
	connection_create(&node->connection, durable, node);
	durable->node[durable->nodes++] = node;
	return node;
}

/* The index of the node at an address, plus one. 0: no memory, or too many. */
static uint16_t
node_at(struct hwt_durable *durable, const struct address *address)
{
	const struct node *node;
	unsigned i;

	for (i = 0; i < durable->nodes; i++) {
		node = durable->node[i];
		if (node->address.port == address->port &&
		    strcmp(node->address.host, address->host) == 0)
			return (uint16_t)(i + 1);
	}
	return node_create(durable, address) != NULL ? (uint16_t)(i + 1) : 0;
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

/* MOVED 3999 127.0.0.1:6381; without a host, that of who says so. False: it
 * names no node. */
static bool
node_redirect(struct request *request, const char *text)
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
	request->asking = text[0] == 'A';
	if (!request->asking && durable->servers.kind == SERVER_CLUSTER)
		durable->node_of[slot] = index;
	return true;
}

/*
 * Error replies.
 */

static const struct {
	const char *word; /* which it begins with */
	int error;
} meanings[] = {
    {"ARG ", -EINVAL},
    {"DURABILITY ", -EOPNOTSUPP},
    {"PAUSED ", -EAGAIN},
    {"FULL ", -ENOSPC},
    {"OOM ", -ENOSPC},
    {"MISCONF ", -ENOSPC},
    {"LOADING ", -EAGAIN},
    {"BUSY ", -EAGAIN},
    {"TRYAGAIN ", -EAGAIN},
    {"NOREPLICAS ", -EAGAIN},
    {"ERR max number of clients", -EAGAIN},
    {"UNBLOCKED ", -EAGAIN},
    {"CLUSTERDOWN ", -EAGAIN},
    {"MASTERDOWN ", -EAGAIN},
    {"READONLY ", -EAGAIN},
    {"MOVED ", -EAGAIN},
    {"ASK ", -EAGAIN},
    {"NOAUTH ", -EACCES},
    {"WRONGPASS ", -EACCES},
    {"NOPERM ", -EACCES},
    {"DENIED ", -EACCES},
    {"ERR unknown command", -EOPNOTSUPP},
    {"", -EPROTO},
};

int
reply_error(const redisReply *reply)
{
	size_t i = 0;

	if (reply->type != REDIS_REPLY_ERROR)
		return 0;
	while (!begins(reply->str, meanings[i].word))
		i++;
	return meanings[i].error;
}

bool
reply_asks_again(struct request *request, const redisReply *reply)
{
	request->error = reply_error(reply);
	if (request->error != -EAGAIN || begins(reply->str, "PAUSED "))
		return false;
	if (!begins(reply->str, "MOVED ") && !begins(reply->str, "ASK "))
		request->connection->stale = true;
	else if (!node_redirect(request, reply->str))
		request->error = -EPROTO;
	return request->error == -EAGAIN;
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

	if (reply->type != REDIS_REPLY_ARRAY)
		return false;
	for (i = 0; i < reply->elements; i++) {
		field = reply->element[i]->element;
		if (reply->element[i]->type != REDIS_REPLY_ARRAY ||
		    reply->element[i]->elements < 3 ||
		    field[0]->type != REDIS_REPLY_INTEGER ||
		    field[1]->type != REDIS_REPLY_INTEGER ||
		    field[0]->integer < 0 || field[1]->integer >= SLOTS ||
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
	const struct address *from = &request->connection->node->address;

	return durable->node[0]->is_master
	    ? reply_address(&durable->node[0]->address, reply, from)
	    : take_slots(durable, reply, from);
}

static void
finder_done(struct request *request)
{
	struct finder *finder = &request->durable->finder;

	freeReplyObject(request->reply);
	request->reply = NULL;
	finder->busy = false;
	finder->next += request->error != 0;
}

static void
finder_start(struct hwt_durable *durable)
{
	struct finder *finder = &durable->finder;
	unsigned masters = durable->node[0]->is_master;

	if (finder->busy)
		return;
	finder->busy = true;
	finder->request.node =
	    durable->node[masters + finder->next % (durable->nodes - masters)];
	request_start(durable, &finder->request);
}

bool
node_is_known(const struct node *node)
{
	if (!node->is_master || node->address.host[0] != '\0')
		return true;
	finder_start(node->connection.durable);
	return false;
}

void
node_lost(struct node *node)
{
	struct hwt_durable *durable = node->connection.durable;

	if (node->is_master)
		node->address.host[0] = '\0';
	else if (durable->servers.kind == SERVER_CLUSTER)
		finder_start(durable);
}

/*
 * Start and end.
 */

int
nodes_create(struct hwt_durable *durable)
{
	const struct servers *servers = &durable->servers;
	struct request *request = &durable->finder.request;
	bool sentinels = servers->kind == SERVER_SENTINEL;
	struct node *node;
	unsigned i;

	request->done = finder_done;
	request->finds = true;
	request->timeout_ns = durable->timeout_ns / 4;
	request_text(request, sentinels ? "SENTINEL" : "CLUSTER");
	request_text(request, sentinels ? "GET-MASTER-ADDR-BY-NAME" : "SLOTS");
	if (sentinels)
		request_text(request, servers->name);
	if (sentinels || servers->count == 0) {
		node = node_create(durable, &(struct address){.port = 0});
		if (node == NULL)
			return -ENOMEM;
		node->is_master = sentinels;
	}
	for (i = 0; i < servers->count; i++) {
		node = node_create(durable, &servers->address[i]);
		if (node == NULL)
			return -ENOMEM;
		node->is_sentinel = sentinels;
	}
	return request->buffer.failed ? -ENOMEM : 0;
}

void
nodes_destroy(void *arg)
{
	struct hwt_durable *durable = arg;
	struct node *node;

	if (durable->finder.busy)
		(void)!hwt_cancel(
		    durable->timer, durable->finder.request.timeout);
	request_free(&durable->finder.request);
	while (durable->nodes > 0) {
		node = durable->node[--durable->nodes];
		connection_destroy(&node->connection);
		free(node);
	}
	durable->over = true;
}
