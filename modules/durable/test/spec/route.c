/* SPDX-License-Identifier: Apache-2.0 */
/* route: texts of addresses and errors, slots, tables; records and times. */
#include "modules/durable/test/spec/durable.h"

#include <stdlib.h>
#include <string.h>

#include "modules/durable/durable.h"

SUITE(route);

Test(route, lists_of_servers)
{
	struct route_servers servers;

	assert_ok(route_read_servers(&servers, "host.name:6379"));
	cr_assert(servers.kind == ROUTE_SINGLE && servers.count == 1);
	cr_assert_str_eq(servers.address[0].host, "host.name");
	assert_u64(servers.address[0].port, 6379);
	assert_ok(route_read_servers(&servers, "[::1]:1"));
	cr_assert_str_eq(servers.address[0].host, "::1");
	assert_ok(route_read_servers(&servers, "unix:/a/b"));
	cr_assert_str_eq(servers.address[0].host, "/a/b");
	assert_u64(servers.address[0].port, 0);
	assert_ok(route_read_servers(&servers, "sentinel:a:1,b:2,main"));
	cr_assert(servers.kind == ROUTE_SENTINEL && servers.count == 2);
	cr_assert_str_eq(servers.name, "main");
	assert_ok(route_read_servers(&servers, "cluster:a:1,b:2,c:65535"));
	cr_assert(servers.kind == ROUTE_CLUSTER && servers.count == 3);
	assert_u64(servers.address[2].port, 65535);
}

Test(route, lists_that_are_none)
{
	/* 17 of them. */
	static const char many[] = "cluster:a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,"
				   "i:1,j:1,k:1,l:1,m:1,n:1,o:1,p:1,q:1";
	static const char *const bad[] = {many, "", ":", "a", "a:", ":1", "a:b",
	    "a:-1", "a:1x", "a:99999999999",
	    "unix:", "sentinel:", "sentinel:main", "sentinel:a:1",
	    "sentinel:a:1,", "sentinel:a:1,b:2,", "sentinel:a,main",
	    "cluster:", "cluster:a", "cluster:a:1,b", "cluster:a:1,"};
	struct route_servers servers;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect(route_read_servers(&servers, bad[i]) == -EINVAL, "%s",
		    bad[i]);
}

/* CLUSTER KEYSLOT of a real one says the same. */
Test(route, slots_are_those_of_redis)
{
	static const char *const keys[] = {"", "a", "foo", "123456789",
	    "{hwt:3}:meta", "{hwt:3}:b:17", "{}x", "{", "x{", "x{a}y{b}", "}{"};
	static struct server server;
	size_t i;

	server_start(&server,
	    (const char *const[]){
		"--cluster-enabled", "yes", "--port", "0", NULL});
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		cr_expect(
		    server_ask(&server, NULL, "CLUSTER KEYSLOT %s", keys[i]) ==
			(long long)route_slot(keys[i], strlen(keys[i])),
		    "%s", keys[i]);
	server_stop(&server);
}

static struct route_verdict
judged(const char *text)
{
	static const struct route_address from = {"1.2.3.4", 7000};
	struct route_verdict verdict;

	route_judge(&verdict, text, strlen(text), &from);
	return verdict;
}

Test(route, redirections)
{
	struct route_verdict verdict = judged("MOVED 3999 127.0.0.1:6381");

	cr_assert(verdict.action == ROUTE_MOVED);
	assert_u64(verdict.slot, 3999);
	cr_assert_str_eq(verdict.address.host, "127.0.0.1");
	assert_u64(verdict.address.port, 6381);
	verdict = judged("ASK 16383 ::1:1");
	cr_assert(verdict.action == ROUTE_ASK);
	cr_assert_str_eq(verdict.address.host, "::1");
	/* A node that does not know its own name. */
	verdict = judged("MOVED 1 :6381");
	cr_assert(verdict.action == ROUTE_MOVED);
	cr_assert_str_eq(verdict.address.host, "1.2.3.4");
	assert_u64(verdict.address.port, 6381);
}

Test(route, redirections_that_are_none)
{
	static const char *const bad[] = {"MOVED", "MOVED ", "MOVED 1",
	    "MOVED 1 ", "MOVED 16384 a:1", "MOVED -1 a:1", "MOVED 1 a:0",
	    "MOVED 1 a:65536", "MOVED 1 a", "MOVED 1 ?:1",
	    "MOVED 1 :", "ASK 1 a:b", "MOVEDx 1 a:1", "MOVED  1 a:1"};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect(judged(bad[i]).action == ROUTE_FAIL &&
			judged(bad[i]).error == -EPROTO,
		    "%s", bad[i]);
}

Test(route, errors_of_the_scripts)
{
	assert_rc(judged("ESKEW the clocks").error, -ETIME);
	assert_rc(judged("ENOSPACE").error, -ESTALE);
	assert_rc(judged("ESHAPE other").error, -EEXIST);
	assert_rc(judged("EARG 17 queue").error, -EINVAL);
	assert_u64(judged("EARG 17 queue").index, 17);
	assert_u64(judged("EARG x queue").index, 0);
	cr_assert(judged("ERR Function not found").action == ROUTE_LOAD);
	assert_rc(judged("NOPERM the user has no right to SET").error, -EACCES);
	assert_rc(judged("ERR The user executing the script can't run this "
			 "command or subcommand script: 0a, on @user_script:9.")
		      .error,
	    -EACCES);
	assert_rc(judged("ERR The user executing the script").error, -EPROTO);
	assert_rc(judged("").error, -EPROTO);
	assert_rc(judged("ERR unknown command").error, -EPROTO);
}

static redisReply *
reply_of(const char *text)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;

	(void)redisReaderFeed(reader, text, strlen(text));
	(void)redisReaderGetReply(reader, &reply);
	redisReaderFree(reader);
	cr_assert(reply != NULL);
	return reply;
}

static int
table_read(struct route_table *table, const char *text)
{
	static const struct route_address from = {"1.2.3.4", 7000};
	redisReply *reply = reply_of(text);
	int error = route_table_read(table, reply, &from);

	freeReplyObject(reply);
	return error;
}

Test(route, tables)
{
	static struct route_table table;

	assert_ok(table_read(&table,
	    "*2\r\n"
	    "*3\r\n:0\r\n:99\r\n*2\r\n$1\r\na\r\n:1\r\n"
	    "*4\r\n:100\r\n:16383\r\n*2\r\n$-1\r\n:2\r\n"
	    "*2\r\n$1\r\nr\r\n:3\r\n"));
	assert_u64(table.count, 2);
	assert_u64(table.node_of[0], 1);
	assert_u64(table.node_of[99], 1);
	assert_u64(table.node_of[100], 2);
	assert_u64(table.node_of[16383], 2);
	cr_assert_str_eq(table.node[1].host, "1.2.3.4");
	assert_u64(table.node[1].port, 2);
}

Test(route, tables_that_are_none)
{
	static const char *const bad[] = {"+OK\r\n", "*1\r\n:1\r\n",
	    "*1\r\n*2\r\n:0\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:1\r\n:2\r\n",
	    "*1\r\n*3\r\n:5\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
	    "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
	    "*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
	    "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:0\r\n",
	    "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:1\r\n:1\r\n",
	    "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n"};
	static struct route_table table;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect(table_read(&table, bad[i]) == -EPROTO, "%s", bad[i]);
}

Test(route, a_table_has_room_for_so_many_nodes_with_slots)
{
	static struct route_table table;
	struct route_address address = {"a", 1};

	for (; address.port <= ROUTE_NODES_MAX; address.port++) {
		assert_rc(route_table_add(&table, &address), address.port - 1);
		table.node_of[address.port] = address.port;
	}
	assert_rc(route_table_add(&table, &address), -ENOBUFS);
	address.port = 7;
	assert_rc(route_table_add(&table, &address), 6);
}

/* A slot goes from node to node, and another one stays where it is. */
Test(route, a_node_without_slots_makes_room)
{
	static struct route_table table;
	struct route_address address = {"stays", 1};
	int node;

	assert_ok(route_table_add(&table, &address));
	table.node_of[1] = 1;
	(void)strcpy(address.host, "goes");
	for (; address.port < 1000; address.port++) {
		node = route_table_add(&table, &address);
		cr_assert(node > 0 && node < ROUTE_NODES_MAX);
		cr_assert(route_is_same(&table.node[node], &address));
		table.node_of[2] = (uint16_t)(node + 1);
	}
	cr_assert_str_eq(table.node[0].host, "stays");
	assert_ok(route_table_add(&table, &table.node[0]));
}

Test(route, a_slot_that_a_table_does_not_name_is_unknown)
{
	static struct route_table table;

	assert_ok(table_read(
	    &table, "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$1\r\na\r\n:1\r\n"));
	assert_ok(table_read(
	    &table, "*1\r\n*3\r\n:5\r\n:9\r\n*2\r\n$1\r\nb\r\n:1\r\n"));
	assert_u64(table.node_of[4], 0);
	assert_u64(table.node_of[5], 2);
}

Test(route, a_record_that_cannot_be_read_is_quarantined)
{
	struct hwt_durable_info info;
	char record[60] = {2, HWT_DURABLE_PENDING};
	const char *payload;
	size_t length;

	for (length = 0; length < 56; length++) {
		record_read(&info, record, length, &payload);
		cr_assert(info.state == HWT_DURABLE_QUARANTINED);
	}
	record_read(&info, record, 60, &payload);
	cr_assert(info.state == HWT_DURABLE_PENDING);
	assert_u64(info.payload_length, 4);
	cr_assert(payload == record + 56);
	record[6] = 5; /* a queue longer than what is there */
	record_read(&info, record, 60, &payload);
	cr_assert(info.state == HWT_DURABLE_QUARANTINED);
	record[6] = 0;
	record[1] = 8;
	record_read(&info, record, 60, &payload);
	cr_assert(info.state == HWT_DURABLE_QUARANTINED);
	record[1] = 1;
	record[0] = 1;
	record_read(&info, record, 60, &payload);
	cr_assert(info.state == HWT_DURABLE_QUARANTINED);
	record[0] = 3; /* and no options */
	record_read(&info, record, 60, &payload);
	cr_assert(info.state == HWT_DURABLE_QUARANTINED);
}

Test(route, times_are_rounded_up)
{
	assert_u64(whole_ms(0), 0);
	assert_u64(whole_ms(1), 1);
	assert_u64(whole_ms(HWT_MS(5)), 5);
	assert_u64(whole_ms(HWT_MS(5) + 1), 6);
	assert_u64(whole_ms(UINT64_MAX), 18446744073710);
}

Test(route, the_hash_of_an_id_is_FNV_1a)
{
	assert_u64(id_hash("", 0), UINT64_C(0xcbf29ce484222325));
	assert_u64(id_hash("a", 1), UINT64_C(0xaf63dc4c8601ec8c));
	assert_u64(id_hash("foobar", 6), UINT64_C(0x85944171f73967e8));
}
