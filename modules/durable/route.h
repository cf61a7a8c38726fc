/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a key is, and what an error reply means: all that reads text or replies
 * from elsewhere, and does no input or output. test/fuzz_route.c feeds it.
 */
#ifndef HWT_DURABLE_ROUTE_H
#define HWT_DURABLE_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROUTE_HOST_MAX 255
#define ROUTE_NAME_MAX 64
#define ROUTE_SERVERS_MAX 16
#define ROUTE_NODES_MAX 256
#define ROUTE_SLOTS 16384u

/* port 0: host is the path of a socket. */
struct route_address {
	char host[ROUTE_HOST_MAX + 1];
	uint16_t port;
};

enum route_kind {
	ROUTE_SINGLE,
	ROUTE_SENTINEL, /* address: Sentinels; name: the master's */
	ROUTE_CLUSTER /* address: some of the nodes */
};

struct route_servers {
	enum route_kind kind;
	uint32_t count;
	struct route_address address[ROUTE_SERVERS_MAX];
	char name[ROUTE_NAME_MAX + 1];
};

/* What hwt_durable_options.servers says. -EINVAL: nothing that it could be. */
int route_read_servers(struct route_servers *servers, const char *text);

/* From two strings, as SENTINEL get-master-addr-by-name answers. -EPROTO. */
int route_read_address(struct route_address *address, const char *host,
    size_t host_length, const char *port, size_t port_length);

bool route_is_same(
    const struct route_address *a, const struct route_address *b);

/* Redis Cluster's slot of a key. */
uint32_t route_slot(const char *key, size_t length);

/* What to do about an error reply. */
#define ROUTE_NO_FUNCTION "ERR Function not found"

enum route_action {
	ROUTE_FAIL, /* error says why */
	ROUTE_AGAIN, /* transient; error is for when it lasts */
	ROUTE_ELSEWHERE, /* the same, and another node may be the master now */
	ROUTE_LOAD, /* the library of functions is not there */
	ROUTE_MOVED, /* slot is at address from now on */
	ROUTE_ASK /* this once, ask address */
};

struct route_verdict {
	enum route_action action;
	int error; /* -errno */
	uint32_t index; /* of EARG; 0: none */
	uint32_t slot;
	struct route_address address;
};

/* from: the node that said so, since an empty host stands for its own. */
void route_judge(struct route_verdict *verdict, const char *text, size_t length,
    const struct route_address *from);

/* Which node has a slot. */
struct route_table {
	uint32_t count;
	struct route_address node[ROUTE_NODES_MAX];
	uint16_t node_of[ROUTE_SLOTS]; /* index plus 1; 0: unknown */
};

/* Its index, made if needed; in a full table, that of a node which no slot
 * names is another node's from then on. -ENOBUFS: slots name all. */
int route_table_add(
    struct route_table *table, const struct route_address *address);

/* Which nodes have a slot. */
void route_table_named(
    const struct route_table *table, bool named[ROUTE_NODES_MAX]);

struct redisReply;
struct redisReader;
struct redisReplyObjectFunctions;

/* A reader that refuses an array which is longer than any that is expected, and
 * sets *excess then; it ends like one of redisReaderCreate. functions and
 * excess outlive it. NULL: no memory. */
struct redisReader *route_reader(
    struct redisReplyObjectFunctions *functions, bool *excess);

/* Takes over the answer of CLUSTER SLOTS, which from gave: a slot that it does
 * not name is unknown. -EPROTO: it is none, or -ENOBUFS, and then some slots
 * are unknown. */
int route_table_read(struct route_table *table, const struct redisReply *slots,
    const struct route_address *from);

#endif
