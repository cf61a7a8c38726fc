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
#include <stdlib.h>
#include <string.h>

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
		if (strcmp(durable->node[i]->address.text, address->text) == 0)
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

void
node_redirect(struct request *request, const struct verdict *verdict)
{
	struct hwt_durable *durable = request->durable;
	uint16_t index = node_at(durable, &verdict->address);

	if (index == 0)
		return;
	request->asked = durable->node[index - 1];
	request->asking = verdict->action == ACTION_ASK;
	if (!request->asking && durable->servers.kind == SERVER_CLUSTER)
		durable->node_of[verdict->slot] = index;
}

/*
 * The finder.
 */

/* {first, last, {host, port, ...}, ...} of each range. */
static bool
take_slots(struct hwt_durable *durable, const redisReply *reply,
    const struct address *from)
{
	struct address address = {""};
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
	if (connection->node->address.text[0] != '\0' ||
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
		connection->node->address.text[0] = '\0';
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
	request->once = request->finds = true;
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
	if (count == 0 && node_at(durable, &(struct address){""}) == 0)
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
nodes_destroy(struct hwt_durable *durable)
{
	struct finder *finder = &durable->finder;

	if (finder->busy)
		(void)!hwt_cancel(durable->timer, finder->request.timeout);
	request_free(&finder->request);
	while (durable->nodes > 0)
		node_destroy(durable->node[--durable->nodes]);
	node_destroy(finder->sentinel);
	finder->sentinel = NULL;
}
