/* SPDX-License-Identifier: Apache-2.0 */
/* open: what is refused before a handle is there, and what a handle is. */
#include "modules/durable/test/spec/durable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SUITE(open);

static int
open_with(const struct hwt_durable_options *options)
{
	struct hwt_durable *made = NULL;
	int error = hwt_durable_open(&made, options);

	if (error == 0)
		assert_ok(hwt_durable_close(made));
	else
		cr_assert(made == NULL);
	return error;
}

Test(open, options_outside_their_range_are_EINVAL)
{
	const struct hwt_log nothing = {NULL, NULL};
	const struct hwt_durable_options bad[] = {
	    {.shards = 1025},
	    {.slots = 4},
	    {.slots = 1000},
	    {.slots = 1u << 21},
	    {.tick_ns = 1},
	    {.tick_ns = HWT_MS(1) + 1},
	    {.tick_ns = HWT_SEC(3601)},
	    {.level = 4},
	    {.replicas = 11},
	    {.timeout_ns = 1},
	    {.timeout_ns = HWT_SEC(3601)},
	    {.retention_ns = HWT_NEVER},
	    {.flags = 4},
	    {.space = ""},
	    {.space = "a b"},
	    {.space = "{x}"},
	    {.space = "123456789012345678901234567890123"},
	    {.log = &nothing},
	    {.reserved = {0, 0, 0, 0, 0, 0, 0, 1}},
	    {.servers = ""},
	    {.servers = "localhost"},
	    {.servers = "localhost:0"},
	    {.servers = "localhost:65536"},
	    {.servers = "unix:"},
	    {.servers = "sentinel:a:1"},
	    {.servers = "cluster:"},
	};
	size_t i;

	assert_rc(hwt_durable_open(NULL, NULL), -EINVAL);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect(open_with(&bad[i]) == -EINVAL, "options %zu", i);
}

/* The next hwt_durable_open with another one: -EEXIST. */
PlaceTest(open, a_space_keeps_the_shape_that_it_was_made_with)
{
	struct hwt_durable_options options = place_options();

	options.shards = 0;
	assert_ok(open_with(&options));
	options.shards = 3;
	assert_rc(open_with(&options), -EEXIST);
	cr_assert(log_has("another shape"));
	options.shards = 2;
	options.slots = 8;
	assert_rc(open_with(&options), -EEXIST);
	options.slots = 32768;
	options.tick_ns = HWT_MS(20);
	options.retention_ns = HWT_SEC(3600);
	assert_ok(open_with(&options));
	options.tick_ns = HWT_MS(1);
	assert_rc(open_with(&options), -EEXIST);
}

/* As hwt_durable_open says it: -ENOENT, -ESTALE. */
PlaceTest(open, a_space_is_made_by_who_says_so_and_its_parts_are_not_made_again)
{
	struct hwt_durable_options options = place_options();

	options.space = "other";
	options.flags = 0;
	assert_rc(open_with(&options), -ENOENT);
	cr_assert(log_has("no space other"));
	options.flags = HWT_DURABLE_REPAIR;
	assert_rc(open_with(&options), -ENOENT);
	options.flags = HWT_DURABLE_CREATE;
	assert_ok(open_with(&options));
	options.flags = 0;
	assert_ok(open_with(&options));
	(void)ask("DEL {other:1}:meta");
	assert_rc(open_with(&options), -ESTALE);
	cr_assert(log_has("the data of shard 1 is gone"));
	options.flags = HWT_DURABLE_CREATE;
	assert_rc(open_with(&options), -ESTALE);
	options.flags = HWT_DURABLE_REPAIR;
	assert_ok(open_with(&options));
	options.flags = 0;
	assert_ok(open_with(&options));
}

PlaceTest(open, two_spaces_on_one_engine_do_not_know_of_each_other)
{
	struct hwt_durable_options options = place_options();
	struct hwt_durable_info info;

	options.space = "other";
	options.shards = 5;
	place_open_other(&options);
	assert_ok(add_one("a"));
	assert_rc(
	    hwt_durable_get(place.other, "a", 1, &info, NULL, 0), -ENOENT);
	assert_rc(hwt_durable_cancel(place.other, "a", 1), -ENOENT);
	cr_assert(state_of("a") == HWT_DURABLE_PENDING);
}

Test(open, nobody_there_is_ECONNREFUSED)
{
	struct hwt_durable_options options = place_start(NULL);

	server_kill(&place.server);
	options.timeout_ns = HWT_MS(50);
	assert_rc(open_with(&options), -ECONNREFUSED);
	options.servers = "unix:/nowhere/at/all";
	assert_rc(open_with(&options), -ECONNREFUSED);
	options.servers = "no-such-host.invalid:1";
	assert_rc(open_with(&options), -ECONNREFUSED);
	cr_assert(log_recorder_count(&place.log) > 0);
	server_stop(&place.server);
}

/* What an engine must be. */

static int
open_on(const char *const *settings, uint32_t level, const char *said)
{
	struct hwt_durable_options options;
	int error;

	options = place_start(settings);
	options.level = level;
	error = open_with(&options);
	if (said != NULL)
		cr_assert(log_has(said));
	if (error != 0)
		assert_i64(ask("DBSIZE"), 0);
	server_stop(&place.server);
	return error;
}

/* As hwt_durable_open says it: -EOPNOTSUPP. */
Test(open, an_engine_that_evicts_is_EOPNOTSUPP)
{
	const char *const settings[] = {"--maxmemory", "100mb",
	    "--maxmemory-policy", "allkeys-lru", FSYNCED_SETTINGS, NULL};

	assert_rc(open_on(settings, 0, "maxmemory-policy is allkeys-lru"),
	    -EOPNOTSUPP);
}

Test(open, an_engine_that_keeps_less_than_the_level_is_EOPNOTSUPP)
{
	const char *const none[] = {"--appendonly", "no", NULL};
	const char *const truncated[] = {"--appendonly", "yes", "--appendfsync",
	    "always", "--aof-load-truncated", "yes", NULL};
	const char *const rewrite[] = {
	    FSYNCED_SETTINGS, "--no-appendfsync-on-rewrite", "yes", NULL};
	const char *const everysec[] = {
	    "--appendonly", "yes", "--appendfsync", "everysec", NULL};

	assert_rc(open_on(none, 0, "aof-load-truncated no"), -EOPNOTSUPP);
	assert_rc(open_on(none, HWT_DURABLE_FSYNCED, NULL), -EOPNOTSUPP);
	assert_rc(open_on(rewrite, 0, "on-rewrite no"), -EOPNOTSUPP);
	assert_rc(open_on(everysec, HWT_DURABLE_FSYNCED, NULL), -EOPNOTSUPP);
	assert_rc(open_on(everysec, HWT_DURABLE_REPLICATED, NULL), -EOPNOTSUPP);
	assert_rc(open_on(truncated, HWT_DURABLE_FSYNCED, NULL), -EOPNOTSUPP);
	assert_ok(open_on(none, HWT_DURABLE_MEMORY, NULL));
}

Test(open, a_handle_without_level_asks_for_what_the_space_has)
{
	const char *const none[] = {"--appendonly", "no", NULL};
	struct hwt_durable_options options;

	options = place_start(none);
	options.level = HWT_DURABLE_MEMORY;
	assert_ok(open_with(&options));
	options.level = 0;
	assert_ok(open_with(&options));
	options.level = HWT_DURABLE_FSYNCED;
	assert_rc(open_with(&options), -EOPNOTSUPP);
	server_stop(&place.server);
}

Test(open, a_replica_is_EOPNOTSUPP)
{
	const char *const settings[] = {
	    "--replicaof", "127.0.0.1 1", FSYNCED_SETTINGS, NULL};

	assert_rc(open_on(settings, 0, "is a replica"), -EOPNOTSUPP);
}

/* data is what INFO answers. */
static enum proxied
judge_info(struct proxy *proxy, const char *name, const redisReply *command,
    uint64_t count)
{
	const char *text = proxy->data;

	(void)command;
	(void)count;
	(void)snprintf(proxy->say, sizeof(proxy->say), "$%zu\r\n%s\r\n",
	    strlen(text), text);
	return strcmp(name, "INFO") == 0 ? PROXY_SAY : PROXY_PASS;
}

static int
open_on_info(const char *info)
{
	static struct proxy proxy = {.judge = judge_info};
	struct hwt_durable_options options;
	int error;

	place_open(NULL);
	proxy.data = (void *)(uintptr_t)info;
	options = place_behind(&proxy);
	error = open_with(&options);
	place_close();
	return error;
}

Test(open, an_engine_older_than_7_is_EOPNOTSUPP)
{
	assert_rc(open_on_info("# Server\r\nredis_version:6.2.14\r\n"
			       "arch_bits:64\r\n"),
	    -EOPNOTSUPP);
	cr_assert(log_has("version 6 of Redis"));
}

Test(open, an_engine_of_32_bits_is_EOPNOTSUPP)
{
	assert_rc(open_on_info("# Server\r\nredis_version:7.0.15\r\n"
			       "arch_bits:32\r\n"),
	    -EOPNOTSUPP);
	cr_assert(log_has("for 32 bits"));
}

/* What the scripts are told of it, in milliseconds. */
static char skew[32];

static enum proxied
judge_skew(struct proxy *proxy, const char *name, const redisReply *command,
    uint64_t count)
{
	(void)proxy;
	(void)count;
	if (strcmp(name, "FCALL") == 0 && command->elements > 5)
		(void)snprintf(
		    skew, sizeof(skew), "%s", command->element[5]->str);
	return PROXY_PASS;
}

PlaceTest(open, the_longest_skew_does_not_wrap)
{
	static struct proxy proxy = {.judge = judge_skew};
	struct hwt_durable_options options = place_behind(&proxy);

	options.skew_ns = HWT_NEVER - 1;
	assert_ok(open_with(&options));
	cr_assert_str_eq(skew, "18446744073710");
	options.skew_ns = HWT_NEVER;
	assert_ok(open_with(&options));
	cr_assert_str_eq(skew, "");
}

/* It says so, and closes the connection. */
Test(open, an_engine_with_too_many_clients_is_EAGAIN)
{
	const char *const settings[] = {
	    "--maxclients", "1", FSYNCED_SETTINGS, NULL};
	struct hwt_durable_options options;

	options = place_start(settings);
	options.timeout_ns = HWT_SEC(2);
	assert_rc(open_with(&options), -EAGAIN);
	cr_assert(log_has("max number of clients"));
	server_stop(&place.server);
}

/* Passwords. */

static const char *
file_of(const char *text, size_t length)
{
	static char name[SERVER_FOLDER + 16];
	FILE *file;

	(void)snprintf(name, sizeof(name), "%s/password", place.server.folder);
	file = fopen(name, "w");
	cr_assert(file != NULL);
	cr_assert(fwrite(text, 1, length, file) == length);
	cr_assert(fclose(file) == 0);
	return name;
}

static const char *
file_with(const char *text)
{
	return file_of(text, strlen(text));
}

/* What hwt_durable_open says is -EACCES and -ENOENT. */
Test(open, a_wrong_password_is_EACCES_and_stands_in_no_log)
{
	const char *const settings[] = {
	    "--requirepass", "open sesame", FSYNCED_SETTINGS, NULL};
	struct hwt_durable_options options;

	/* The fixture itself has none: it waits for any answer. */
	options = place_start(settings);
	assert_rc(open_with(&options), -EACCES);
	options.password_file = file_with("open barley\n");
	assert_rc(open_with(&options), -EACCES);
	options.password_file = file_with("open sesame\nmore\n");
	assert_ok(open_with(&options));
	options.user = "default";
	assert_ok(open_with(&options));
	options.user = "nobody";
	assert_rc(open_with(&options), -EACCES);
	options.password_file = "/nowhere/at/all";
	assert_rc(open_with(&options), -ENOENT);
	cr_assert(log_recorder_count(&place.log) > 0);
	cr_assert(!log_has("sesame"));
	cr_assert(!log_has("barley"));
	server_stop(&place.server);
}

PlaceTest(open, a_password_for_an_engine_without_one_is_EACCES)
{
	struct hwt_durable_options options = place_options();

	options.password_file = file_with("open sesame\n");
	assert_rc(open_with(&options), -EACCES);
	options.password_file = file_with("");
	assert_rc(open_with(&options), -ENOENT);
}

/* What is left of a line that was cut would be another password. */
PlaceTest(open, a_password_is_taken_whole_or_is_EINVAL)
{
	static const char *const ends[] = {"", "\n", "\r\n", "\nmore"};
	struct hwt_durable_options options = place_options();
	char text[600];
	size_t i;

	memset(text, 'x', 513);
	(void)ask("ACL SETUSER longer on ~* &* +@all >%b", text, (size_t)512);
	options.user = "longer";
	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		(void)strcpy(text + 512, ends[i]);
		options.password_file = file_with(text);
		cr_expect(open_with(&options) == 0, "%zu", i);
		text[512] = 'x';
		(void)strcpy(text + 513, ends[i]);
		options.password_file = file_with(text);
		cr_expect(open_with(&options) == -EINVAL, "%zu", i);
	}
	cr_assert(log_has("more than 512 bytes"));
	options.password_file = file_of("one\0two\n", 8);
	assert_rc(open_with(&options), -EINVAL);
}

PlaceTest(open, no_right_to_a_command_is_EACCES)
{
	struct hwt_durable_options options;

	(void)ask(
	    "ACL SETUSER reader on >secret ~* +@read +role +info +config");
	options = place_options();
	options.user = "reader";
	options.password_file = file_with("secret\n");
	assert_rc(open_with(&options), -EACCES);
}

/* Memory, children, closing. */

/* In hwt_durable_open, whatever allocation fails: -ENOMEM; or 0, if a reply
 * could not be read and the call was repeated. */
PlaceTest(open, without_memory_it_is_ENOMEM_and_nothing_leaks)
{
	struct hwt_durable_options options = place_options();
	uint64_t i, count, failed = 0;
	int error;

	fault_arm(FAULT_HEAP, FAULT_COUNT);
	assert_ok(open_with(&options));
	count = fault_disarm();
	for (i = 1; i <= count; i++) {
		fault_arm(FAULT_HEAP, i);
		error = open_with(&options);
		(void)fault_disarm();
		cr_expect(error == -ENOMEM || error == 0, "call %d: %s", (int)i,
		    rc_name(error));
		failed += error == -ENOMEM;
	}
	cr_assert(failed > 10);
}

PlaceTest(open, what_is_in_use_cannot_be_closed)
{
	place_schedule();
	assert_rc(hwt_durable_close(place.durable), -EBUSY);
	assert_ok(hwt_durable_close(NULL));
}

Test(open, it_works_over_TCP)
{
	struct hwt_durable_options options;
	char port[8], servers[32];
	const char *settings[] = {"--port", port, FSYNCED_SETTINGS, NULL};

	server_free_port(port);
	(void)snprintf(servers, sizeof(servers), "127.0.0.1:%s", port);
	options = place_start(settings);
	options.servers = servers;
	assert_ok(open_with(&options));
	server_stop(&place.server);
}
