/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a key is, and what an error reply means: all that reads text or replies
 * from elsewhere. It does no input or output.
 */
#ifndef HWT_DURABLE_ROUTE_H
#define HWT_DURABLE_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "modules/durable/client/connection.h"

#define ROUTE_NAME_MAX 64
#define ROUTE_SERVERS_MAX 16
#define ROUTE_NODES_MAX 256
#define ROUTE_SLOTS 16384u

enum route_kind {
	ROUTE_SINGLE,
	ROUTE_FILE, /* the server is in this process */
	ROUTE_SENTINEL, /* address: Sentinels; name: the master's */
	ROUTE_CLUSTER /* address: some of the nodes */
};

struct route_servers {
	enum route_kind kind;
	unsigned count;
	struct address address[ROUTE_SERVERS_MAX];
	char name[ROUTE_NAME_MAX + 1];
	const char *folder; /* of ROUTE_FILE; a part of the text */
};

/* What hwt_durable_options.servers says. -EINVAL: nothing that it could be. */
int route_read_servers(struct route_servers *servers, const char *text);

/* {host, port}, as SENTINEL GET-MASTER-ADDR-BY-NAME answers. False: not so. */
bool route_read_address(struct address *address, const redisReply *reply);

bool route_is_same(const struct address *a, const struct address *b);

/* Redis Cluster's slot of a name that stands in braces. */
unsigned route_slot(const char *name, size_t length);

enum route_action {
	ROUTE_DONE, /* error says why it was refused */
	ROUTE_AGAIN, /* transient; error is for when it lasts */
	ROUTE_ELSEWHERE, /* the same, and another node may be the master now */
	ROUTE_MOVED, /* slot is at address from now on */
	ROUTE_ASK /* this once, ask address */
};

struct route_verdict {
	enum route_action action;
	int error; /* -errno */
	unsigned slot;
	struct address address;
};

/* What to do about an error reply. from: the node that said so, since an empty
 * host stands for its own. */
void route_judge(struct route_verdict *verdict, const redisReply *reply,
    const struct address *from);

/* One line of the answer to CLUSTER SLOTS, which from gave. False: not so. */
struct route_range {
	unsigned first, last;
	struct address address;
};
bool route_read_range(struct route_range *range, const redisReply *reply,
    const struct address *from);

/* How many replicas an answer to ROLE names; -1: it is not a master's. */
int route_replicas(const redisReply *role);

#endif
