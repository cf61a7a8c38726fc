/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes: more engines than one: a master with a replica, a Sentinel, a cluster
 * of three on the loopback.
 */
#include "modules/durable/test/spec/durable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SUITE(nodes);

#define NODES 3
#define TASKS 100

static struct node {
	struct server server;
	char port[8], bus[8];
} node[NODES];

static char servers[128];

static void
node_start(struct node *started, const char *cluster)
{
	const char *settings[] = {"--port", started->port, "--cluster-enabled",
	    cluster, "--cluster-port", started->bus, "--cluster-node-timeout",
	    "2000", "--repl-diskless-sync-delay", "0", FSYNCED_SETTINGS,
	    "--cluster-require-full-coverage", "no", NULL};

	server_free_port(started->port);
	server_free_port(started->bus);
	server_start(&started->server, settings);
}

static struct hwt_durable_options
options_of(void)
{
	log_recorder_init(&place.log);
	place.hook = log_recorder_hook(&place.log);
	return (struct hwt_durable_options){.servers = servers,
	    .flags = HWT_DURABLE_CREATE,
	    .shards = 8,
	    .timeout_ns = HWT_SEC(30),
	    .log = &place.hook};
}

static void
await_said(struct server *server, const char *command, const char *text)
{
	uint64_t until = monotonic_ns() + HWT_SEC(60);
	char said[SAID_MAX];

	do {
		cr_assert(monotonic_ns() < until, "%s: %s", command, text);
		sleep_ns(HWT_MS(20));
		(void)server_ask(server, said, command);
	} while (strstr(said, text) == NULL);
}

/* A master and its replica. */

static void
pair_start(void)
{
	node_start(&node[0], "no");
	node_start(&node[1], "no");
	(void)server_ask(
	    &node[1].server, NULL, "REPLICAOF 127.0.0.1 %s", node[0].port);
	await_said(
	    &node[1].server, "INFO replication", "master_link_status:up");
	(void)snprintf(servers, sizeof(servers), "127.0.0.1:%s", node[0].port);
}

static void
nodes_stop(int count)
{
	int i;

	for (i = 0; i < count; i++)
		server_stop(&node[i].server);
}

Test(nodes, what_is_acknowledged_as_replicated_is_on_the_replica)
{
	struct hwt_durable_options options;
	char id[8], said[SAID_MAX];
	uint32_t shard;
	int i;

	pair_start();
	options = options_of();
	options.level = HWT_DURABLE_REPLICATED;
	assert_ok(hwt_durable_open(&place.durable, &options));
	add_many("t", 20, NULL);
	server_kill(&node[0].server);
	for (i = 0; i < 20; i++) {
		(void)snprintf(id, sizeof(id), "t%d", i);
		shard = durable_shard_of(place.durable, id, strlen(id));
		assert_i64(server_ask(&node[1].server, said,
			       "EXISTS {hwt:%u}:r:%s", shard, id),
		    1);
	}
	assert_ok(hwt_durable_close(place.durable));
	nodes_stop(2);
}

Test(nodes, a_replica_that_is_named_is_EOPNOTSUPP)
{
	struct hwt_durable_options options;

	pair_start();
	options = options_of();
	(void)snprintf(servers, sizeof(servers), "127.0.0.1:%s", node[1].port);
	assert_rc(hwt_durable_open(&place.durable, &options), -EOPNOTSUPP);
	nodes_stop(2);
}

/* A quorum of one. */
static void
sentinel_start(struct node *sentinel)
{
	static char text[512];
	const char *settings[] = {"sentinel", text, NULL};

	server_free_port(sentinel->port);
	(void)snprintf(text, sizeof(text),
	    "port %s\n"
	    "sentinel monitor main 127.0.0.1 %s 1\n"
	    "sentinel down-after-milliseconds main 500\n"
	    "sentinel failover-timeout main 3000\n",
	    sentinel->port, node[0].port);
	server_start(&sentinel->server, settings);
	await_said(&sentinel->server, "INFO sentinel", "slaves=1");
}

/* The replica becomes the master; the first address is nobody's. */
Test(nodes, a_new_master_is_found_through_a_Sentinel)
{
	struct hwt_durable_options options;

	pair_start();
	sentinel_start(&node[2]);
	(void)snprintf(servers, sizeof(servers),
	    "sentinel:127.0.0.1:1,127.0.0.1:%s,main", node[2].port);
	options = options_of();
	options.level = HWT_DURABLE_REPLICATED;
	assert_ok(hwt_durable_open(&place.durable, &options));
	assert_ok(add_one("a"));
	assert_ok(hwt_durable_close(place.durable));
	options.level = HWT_DURABLE_FSYNCED;
	assert_ok(hwt_durable_open(&place.durable, &options));
	server_kill(&node[0].server);
	assert_ok(add_one("b"));
	cr_assert(state_of("a") == HWT_DURABLE_PENDING);
	await_said(&node[1].server, "INFO replication", "role:master");
	assert_ok(hwt_durable_close(place.durable));
	nodes_stop(3);
}

/* A cluster. */

static void
cluster_start(void)
{
	int i;

	for (i = 0; i < NODES; i++)
		node_start(&node[i], "yes");
	for (i = 0; i < NODES; i++) {
		(void)server_ask(&node[i].server, NULL,
		    "CLUSTER ADDSLOTSRANGE %d %d", i * 5462,
		    i == NODES - 1 ? 16383 : i * 5462 + 5461);
		/* Nodes of one epoch would change theirs later. */
		(void)server_ask(&node[i].server, NULL,
		    "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
		if (i > 0)
			(void)server_ask(&node[0].server, NULL,
			    "CLUSTER MEET 127.0.0.1 %s %s", node[i].port,
			    node[i].bus);
	}
	for (i = 0; i < NODES; i++) {
		await_said(
		    &node[i].server, "CLUSTER INFO", "cluster_slots_ok:16384");
		await_said(&node[i].server, "CLUSTER INFO", "cluster_state:ok");
	}
	(void)snprintf(servers, sizeof(servers),
	    "cluster:127.0.0.1:1,127.0.0.1:%s", node[0].port);
}

static _Atomic uint64_t executed;

static int
count(void *ctx, const struct hwt_durable_delivery *delivery)
{
	(void)ctx;
	(void)delivery;
	(void)atomic_fetch_add(&executed, 1);
	return 0;
}

static int
node_of_slot(uint32_t slot)
{
	return (int)(slot / 5462);
}

/* All keys of a slot, in one MIGRATE each. */
static void
slot_move_keys(uint32_t slot, struct node *from, const struct node *to)
{
	redisReply *keys = redisCommand(
	    from->server.context, "CLUSTER GETKEYSINSLOT %u 1000", slot);
	char said[SAID_MAX];
	size_t i;

	cr_assert(keys != NULL && keys->type == REDIS_REPLY_ARRAY);
	for (i = 0; i < keys->elements; i++) {
		(void)server_ask(&from->server, said,
		    "MIGRATE 127.0.0.1 %s %b 0 5000", to->port,
		    keys->element[i]->str, keys->element[i]->len);
		cr_assert_str_eq(said, "OK");
	}
	freeReplyObject(keys);
}

static void
slot_move(uint32_t slot, struct node *from, struct node *to)
{
	char source[SAID_MAX], target[SAID_MAX];
	int i;

	(void)server_ask(&from->server, source, "CLUSTER MYID");
	(void)server_ask(&to->server, target, "CLUSTER MYID");
	(void)server_ask(
	    &to->server, NULL, "CLUSTER SETSLOT %u IMPORTING %s", slot, source);
	(void)server_ask(&from->server, NULL, "CLUSTER SETSLOT %u MIGRATING %s",
	    slot, target);
	slot_move_keys(slot, from, to);
	for (i = 0; i < NODES; i++)
		(void)server_ask(&node[i].server, NULL,
		    "CLUSTER SETSLOT %u NODE %s", slot, target);
}

Test(nodes, a_cluster_has_shards_on_each_node_and_one_can_be_moved)
{
	struct hwt_durable_worker_options work = {
	    .queue = "q", .callback = count};
	struct hwt_durable_options options;
	uint32_t slot = route_slot("hwt:3", 5);
	int from = node_of_slot(slot);

	cluster_start();
	options = options_of();
	assert_ok(hwt_durable_open(&place.durable, &options));
	add_many("a", TASKS, NULL);
	place_schedule();
	place_work(&work);
	await_succeeded(TASKS);
	place_call(SCRIPT_PAUSE, 3);
	slot_move(slot, &node[from], &node[(from + 1) % NODES]);
	place_call(SCRIPT_RESUME, 3);
	add_many("b", TASKS, NULL);
	await_succeeded(2 * TASKS);
	assert_u64(executed, 2 * TASKS);
	assert_u64(stats_now().succeeded, 2 * TASKS);
	place_unwork();
	place_unschedule();
	assert_ok(hwt_durable_close(place.durable));
	nodes_stop(NODES);
}

static void *
node_again(void *arg)
{
	struct node *back = arg;

	sleep_ns(HWT_MS(500));
	server_again(&back->server);
	return NULL;
}

Test(nodes, a_node_of_a_cluster_that_is_killed_is_waited_for)
{
	struct hwt_durable_options options;
	pthread_t thread;

	cluster_start();
	options = options_of();
	assert_ok(hwt_durable_open(&place.durable, &options));
	add_many("a", TASKS, NULL);
	server_kill(&node[1].server);
	cr_assert(pthread_create(&thread, NULL, node_again, &node[1]) == 0);
	add_many("b", TASKS, NULL);
	(void)pthread_join(thread, NULL);
	assert_u64(stats_now().pending, 2 * TASKS);
	assert_ok(hwt_durable_close(place.durable));
	nodes_stop(NODES);
}
