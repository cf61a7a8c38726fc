/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes: how they are connected to, and which has a slot.
 *
 * Of one server, and of "file:DIR", there is one node. With Sentinels there is
 * one, too, and each connection asks them where it is. Of a cluster, the nodes
 * are those that it has named.
 */
#include "modules/durable/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REFRESH_NS (50 * MS_NS)

/* A command of a few words. */
static int
ask(struct connection *connection, uint64_t deadline_ns, redisReply **reply,
    size_t count, const char *const *words)
{
	struct buffer command = {0};
	size_t i;
	int error;

	buffer_command(&command, count);
	for (i = 0; i < count; i++)
		buffer_text(&command, words[i]);
	error = connection_ask(connection, &command, deadline_ns, reply);
	buffer_free(&command);
	return error;
}

/* What an error reply says; others are freed by the caller. */
static int
judge(const redisReply *reply, const struct address *from)
{
	struct route_verdict verdict;

	if (reply->type != REDIS_REPLY_ERROR)
		return 0;
	route_judge(&verdict, reply, from);
	return verdict.error;
}

static int
log_in(struct hwt_durable *durable, struct connection *connection,
    uint64_t deadline_ns)
{
	const char *words[3] = {"AUTH"};
	redisReply *reply;
	size_t count = 1;
	int error;

	if (durable->password == NULL && durable->user == NULL)
		return 0;
	if (durable->user != NULL)
		words[count++] = durable->user;
	words[count++] = durable->password != NULL ? durable->password : "";
	error = ask(connection, deadline_ns, &reply, count, words);
	if (error != 0)
		return error;
	error = judge(reply, &connection->address);
	freeReplyObject(reply);
	return error == -EAGAIN || error == 0 ? error : -EACCES;
}

/* One that a Sentinel still calls the master may be none any more. */
static int
see_master(struct connection *connection, uint64_t deadline_ns)
{
	static const char *const words[] = {"ROLE"};
	redisReply *reply;
	int error = ask(connection, deadline_ns, &reply, 1, words);

	if (error != 0)
		return error;
	error = judge(reply, &connection->address);
	if (error == 0 && route_replicas(reply) < 0)
		error = -EAGAIN;
	freeReplyObject(reply);
	return error;
}

/* Connects, and logs in. */
static int
connect_to(struct hwt_durable *durable, const struct address *address,
    struct connection **connection, uint64_t deadline_ns)
{
	int error =
	    connection_open(connection, durable->timer, address, deadline_ns);

	if (error != 0)
		return error;
	error = log_in(durable, *connection, deadline_ns);
	if (error == -ETIMEDOUT)
		error = -ECONNREFUSED;
	if (error != 0)
		connection_close(*connection);
	return error;
}

/* Where one Sentinel says that the master is. */
static int
ask_sentinel(struct hwt_durable *durable, const struct address *sentinel,
    struct address *master, uint64_t deadline_ns)
{
	const char *words[] = {
	    "SENTINEL", "GET-MASTER-ADDR-BY-NAME", durable->servers.name};
	struct connection *connection;
	redisReply *reply;
	int error;

	error =
	    connection_open(&connection, durable->timer, sentinel, deadline_ns);
	if (error != 0)
		return error;
	error = ask(connection, deadline_ns, &reply, 3, words);
	connection_close(connection);
	if (error != 0)
		return error;
	if (!route_read_address(master, reply))
		error = -EAGAIN;
	freeReplyObject(reply);
	return error;
}

/* The first Sentinel that knows a master; each gets a part of the time that is
 * left, so that one that hangs leaves some for the others. */
static int
connect_by_sentinel(struct hwt_durable *durable, struct connection **connection,
    uint64_t deadline_ns)
{
	const struct route_servers *servers = &durable->servers;
	struct address master;
	uint64_t now_ns, part_ns;
	unsigned i;
	int error = -ECONNREFUSED;

	for (i = 0; i < servers->count; i++) {
		now_ns = durable_now_ns(durable);
		if (now_ns >= deadline_ns)
			break;
		part_ns = (deadline_ns - now_ns) / (servers->count - i + 1);
		if (ask_sentinel(durable, &servers->address[i], &master,
			now_ns + part_ns) != 0)
			continue;
		error = connect_to(durable, &master, connection,
		    durable_now_ns(durable) + part_ns);
		if (error != 0)
			continue;
		error = see_master(*connection, deadline_ns);
		if (error == 0)
			return 0;
		connection_close(*connection);
		error = -EAGAIN;
	}
	return error;
}

int
node_connect(struct hwt_durable *durable, const struct node *node,
    struct connection **connection, uint64_t deadline_ns)
{
	int fd, error;

	if (durable->servers.kind == ROUTE_SENTINEL)
		return connect_by_sentinel(durable, connection, deadline_ns);
	if (durable->servers.kind != ROUTE_FILE)
		return connect_to(
		    durable, &node->address, connection, deadline_ns);
	error = embedded_connect(durable, &fd);
	return error != 0 ? error
			  : connection_adopt(connection, durable->timer, fd);
}

/* With the lock. */
static struct node *
node_find_or_make(struct hwt_durable *durable, const struct address *address)
{
	struct node *node;
	unsigned i;

	for (i = 0; i < durable->nodes; i++) {
		if (route_is_same(&durable->node[i]->address, address))
			return durable->node[i];
	}
	if (durable->nodes == ROUTE_NODES_MAX)
		return NULL;
	node = calloc(1, sizeof(*node));
	if (node == NULL)
		return NULL;
	node->address = *address;
	node->last = &node->first;
	durable->node[durable->nodes++] = node;
	return node;
}

struct node *
node_at(struct hwt_durable *durable, const struct address *address)
{
	struct node *node;

	(void)pthread_mutex_lock(&durable->lock);
	node = node_find_or_make(durable, address);
	(void)pthread_mutex_unlock(&durable->lock);
	return node;
}

/* With the lock. */
static void
set_slots(struct hwt_durable *durable, const struct node *node, unsigned first,
    unsigned last)
{
	unsigned i, slot;

	for (i = 0; i < durable->nodes && durable->node[i] != node; i++)
		continue;
	for (slot = first; slot <= last && i < durable->nodes; slot++)
		durable->node_of[slot] = (uint16_t)(i + 1);
}

void
node_set_slot(
    struct hwt_durable *durable, unsigned slot, const struct node *node)
{
	(void)pthread_mutex_lock(&durable->lock);
	set_slots(durable, node, slot, slot);
	(void)pthread_mutex_unlock(&durable->lock);
}

struct node *
node_of_slot(struct hwt_durable *durable, unsigned slot)
{
	unsigned index;

	(void)pthread_mutex_lock(&durable->lock);
	index =
	    durable->servers.kind == ROUTE_CLUSTER ? durable->node_of[slot] : 1;
	(void)pthread_mutex_unlock(&durable->lock);
	return durable->node[index > 0 ? index - 1 : 0];
}

/* False: it is no answer to CLUSTER SLOTS. */
static bool
take_slots(struct hwt_durable *durable, const redisReply *reply,
    const struct address *from)
{
	struct route_range range;
	const struct node *node;
	size_t i;

	if (reply->type != REDIS_REPLY_ARRAY)
		return false;
	(void)pthread_mutex_lock(&durable->lock);
	for (i = 0; i < reply->elements; i++) {
		if (!route_read_range(&range, reply->element[i], from))
			break;
		node = node_find_or_make(durable, &range.address);
		set_slots(durable, node, range.first, range.last);
	}
	(void)pthread_mutex_unlock(&durable->lock);
	return i == reply->elements && i > 0;
}

static int
refresh_from(struct hwt_durable *durable, const struct address *address,
    uint64_t deadline_ns)
{
	static const char *const words[] = {"CLUSTER", "SLOTS"};
	struct connection *connection;
	redisReply *reply;
	int error;

	error = connect_to(durable, address, &connection, deadline_ns);
	if (error != 0)
		return error;
	error = ask(connection, deadline_ns, &reply, 2, words);
	connection_close(connection);
	if (error != 0)
		return error;
	error = judge(reply, address);
	if (error == 0 && !take_slots(durable, reply, address))
		error = -EPROTO;
	freeReplyObject(reply);
	return error;
}

/* Whom to ask next: each node once, the servers of the options among them.
 * False: there is no other. */
static bool
refresh_next(
    struct hwt_durable *durable, unsigned index, struct address *address)
{
	bool there;

	(void)pthread_mutex_lock(&durable->lock);
	there = index < durable->nodes;
	if (there)
		*address = durable->node[index]->address;
	(void)pthread_mutex_unlock(&durable->lock);
	return there;
}

int
node_refresh(struct hwt_durable *durable, uint64_t deadline_ns)
{
	uint64_t now_ns = durable_now_ns(durable);
	struct address address;
	int error = -ECONNREFUSED;
	unsigned i;
	bool fresh;

	if (durable->servers.kind != ROUTE_CLUSTER)
		return 0;
	(void)pthread_mutex_lock(&durable->lock);
	fresh = durable->refreshed_ns != 0 &&
	    now_ns - durable->refreshed_ns < REFRESH_NS;
	durable->refreshed_ns = now_ns;
	(void)pthread_mutex_unlock(&durable->lock);
	for (i = 0; !fresh && refresh_next(durable, i, &address); i++) {
		now_ns = durable_now_ns(durable);
		if (now_ns >= deadline_ns)
			return error;
		error = refresh_from(
		    durable, &address, now_ns + (deadline_ns - now_ns) / 3);
		if (error == 0)
			return 0;
	}
	return fresh ? 0 : error;
}

void
node_destroy(struct node *node)
{
	connection_close(node->connection);
	free(node);
}
