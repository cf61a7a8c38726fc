/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers: what comes of each answer of an engine, and of none; and repeatable:
 * a call whose answer was lost.
 */
#include "modules/durable/test/spec/durable.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SUITE(answers);
SUITE(repeatable);

static struct proxy proxy;

/* place.other goes through the proxy, place.durable does not. */
static void
street_open(uint64_t timeout_ns)
{
	struct hwt_durable_options options;

	place_open(NULL);
	options = place_behind(&proxy);
	options.timeout_ns = timeout_ns;
	place_open_other(&options);
}

/* A test in such a street. */
#define StreetTest(suite, name) \
	TestBetween(street_open(HWT_SEC(20)), place_close(), suite, name)

static int
add(const char *id)
{
	struct hwt_durable_task task = task_of(id);
	int result = -1;
	int error = hwt_durable_add(place.other, 1, &task, &result);

	return error != 0 ? error : result;
}

static bool
is_script(const char *name)
{
	return strcmp(name, "FCALL") == 0;
}

/* What happens to the first so many calls of scripts, and to those after them;
 * and what is said to those. */
static struct {
	uint64_t times;
	enum proxied first, then;
	const char *text;
} plan;
static _Atomic uint64_t said; /* calls so far */

static enum proxied
judge_plan(struct proxy *judged, const char *name, const redisReply *command,
    uint64_t count)
{
	(void)command;
	(void)count;
	if (!is_script(name))
		return PROXY_PASS;
	(void)snprintf(judged->say, sizeof(judged->say), "%s\r\n", plan.text);
	return atomic_fetch_add(&said, 1) < plan.times ? plan.first : plan.then;
}

static void
make_plan(
    uint64_t times, enum proxied first, enum proxied then, const char *text)
{
	plan.times = times;
	plan.first = first;
	plan.then = then;
	plan.text = text;
	atomic_store(&said, 0);
	proxy.judge = judge_plan;
}

static void
say_always(const char *text)
{
	make_plan(0, PROXY_SAY, PROXY_SAY, text);
}

StreetTest(answers, what_passes_is_waited_for)
{
	static const char *const texts[] = {"-LOADING Redis is loading",
	    "-BUSY a script is running", "-TRYAGAIN", "-CLUSTERDOWN",
	    "-MASTERDOWN", "-READONLY", "-EPAUSED the shard is paused",
	    "-NOREPLICAS", "-ERR max number of clients reached"};
	char id[8];
	size_t i;

	assert_ok(add("warm"));
	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		make_plan(3, PROXY_SAY, PROXY_PASS, texts[i]);
		(void)snprintf(id, sizeof(id), "t%zu", i);
		cr_expect(add(id) == 0, "%s", texts[i]);
		cr_expect(atomic_load(&said) == 4, "%s", texts[i]);
	}
}

Test(answers, what_does_not_pass_in_time_is_EAGAIN)
{
	street_open(HWT_SEC(2));
	say_always("-LOADING Redis is loading");
	assert_rc(add("a"), -EAGAIN);
	cr_assert(atomic_load(&proxy.calls) >= 4);
	proxy.judge = NULL;
	assert_ok(add("a"));
	place_close();
}

StreetTest(answers, what_is_not_understood_is_EPROTO)
{
	static const char *const texts[] = {"-ERR what is this",
	    "-WRONGTYPE of key", "+OK", ":7", "*1\r\n$1\r\nx", "$-1", "*0",
	    "!garbage", "*1\r\n:8", "*1000000000\r\n*1000000000",
	    "*1\r\n*1048577"};
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		say_always(texts[i]);
		cr_expect(add("a") == -EPROTO, "%s", texts[i]);
		if (texts[i][0] != '$')
			cr_expect(
			    hwt_durable_cancel(place.other, "a", 1) == -EPROTO,
			    "%s", texts[i]);
	}
	proxy.judge = NULL;
	assert_ok(add("a"));
}

StreetTest(answers, a_right_that_was_taken_away_is_EACCES)
{
	say_always("-NOPERM no right to run 'fcall'");
	assert_rc(add("a"), -EACCES);
	cr_assert(log_has("NOPERM"));
}

StreetTest(answers, what_does_not_change_is_said_once_a_minute)
{
	static const char one[] = "-NOPERM no right to run one";
	int i;

	for (i = 0; i < 200; i++) {
		say_always(i < 100 ? one : "-NOPERM no right to run another");
		assert_rc(add("a"), -EACCES);
	}
	assert_u64(log_lines("run one"), 1);
	assert_u64(log_lines("run another"), 1);
	say_always(one);
	suspend(HWT_SEC(60));
	assert_rc(add("a"), -EACCES);
	assert_u64(log_lines("run one (99 times since"), 1);
	assert_rc(add("a"), -EACCES);
	assert_u64(log_lines("run one"), 2);
}

StreetTest(answers, a_scheduler_without_rights_does_not_flood_the_log)
{
	struct hwt_durable_scheduler *scheduler;
	uint64_t calls;

	say_always("-NOPERM no right to run 'fcall'");
	calls = atomic_load(&proxy.calls);
	assert_ok(hwt_durable_scheduler_start(&scheduler, place.other, NULL));
	while (atomic_load(&proxy.calls) < calls + 30)
		sleep_ns(HWT_MS(10));
	assert_ok(hwt_durable_scheduler_stop(scheduler));
	cr_assert(log_lines("pump: the engine says: NOPERM") == 1);
	cr_assert(log_lines("cannot be pumped") <= 1);
	cr_assert(log_recorder_count(&place.log) < 10);
}

StreetTest(answers, errors_that_differ_do_not_flood_the_log)
{
	char text[64] = "";
	int i;

	say_always(text);
	for (i = 0; i < 500; i++) {
		(void)snprintf(
		    text, sizeof(text), "-NOPERM no right to run '%d'", i);
		assert_rc(add("a"), -EACCES);
	}
	cr_assert(log_recorder_count(&place.log) >= 16);
	cr_assert(log_recorder_count(&place.log) < 100);
}

/* And only once. */
StreetTest(answers, a_library_that_is_not_there_is_loaded)
{
	struct hwt_durable_task tasks[] = {task_of("b"), task_of("c")};

	assert_ok(add("a"));
	(void)ask("FUNCTION FLUSH");
	(void)ask("CONFIG RESETSTAT");
	cr_assert(durable_shard_of(place.other, "b", 1) !=
	    durable_shard_of(place.other, "c", 1));
	assert_ok(hwt_durable_add(place.other, 2, tasks, NULL));
	assert_ok(add("d"));
	assert_u64(calls_of("function|load"), 1);
}

StreetTest(answers, a_library_that_cannot_be_loaded_says_why)
{
	(void)ask("FUNCTION FLUSH");
	(void)ask("ACL SETUSER default -function|load");
	assert_rc(add("a"), -EACCES);
	cr_assert(log_has("NOPERM"));
	(void)ask("ACL SETUSER default +function|load");
	(void)ask("CONFIG SET maxmemory 1");
	assert_rc(add("a"), -ENOSPC);
	(void)ask("CONFIG SET maxmemory 0");
	assert_ok(add("a"));
}

static enum proxied
judge_load(struct proxy *judged, const char *name, const redisReply *command,
    uint64_t count)
{
	bool loads = strcmp(name, "FUNCTION") == 0;

	(void)command;
	(void)count;
	if (!loads && (!is_script(name) || atomic_fetch_add(&said, 1) > 0))
		return PROXY_PASS;
	(void)snprintf(judged->say, sizeof(judged->say), "-%s\r\n",
	    loads ? "NOPERM no right to load" : "ERR Function not found");
	return PROXY_SAY;
}

/* Another one has loaded it meanwhile. */
StreetTest(answers, what_a_function_says_counts_though_it_was_not_loaded)
{
	assert_ok(add("a"));
	(void)ask("FLUSHALL");
	proxy.judge = judge_load;
	atomic_store(&said, 0);
	assert_rc(add("b"), -ESTALE);
}

/* Whoever takes it away has done so again before the call is executed. */
StreetTest(
    answers, a_library_that_is_taken_away_again_and_again_is_loaded_again)
{
	assert_ok(add("a"));
	make_plan(7, PROXY_SAY, PROXY_PASS, "-ERR Function not found");
	assert_ok(add("b"));
	assert_u64(atomic_load(&said), 8);
}

Test(answers, a_paused_shard_is_EAGAIN_and_others_go_on)
{
	uint32_t shard;

	street_open(HWT_SEC(2));
	shard = durable_shard_of(place.other, "a", 1);
	place_call(SCRIPT_PAUSE, shard);
	assert_rc(add("a"), -EAGAIN);
	cr_assert(durable_shard_of(place.other, "b", 1) != shard);
	assert_ok(add("b"));
	place_call(SCRIPT_RESUME, shard);
	assert_ok(add("a"));
	place_close();
}

Test(answers, no_answer_is_ETIMEDOUT)
{
	street_open(HWT_SEC(2));
	(void)kill(place.server.pid, SIGSTOP);
	assert_rc(add("a"), -ETIMEDOUT);
	(void)kill(place.server.pid, SIGCONT);
	place_close();
}

Test(answers, an_engine_that_was_not_reached_is_ECONNREFUSED)
{
	street_open(HWT_SEC(2));
	proxy_stop(&proxy);
	server_kill(&place.server);
	assert_rc(add("a"), -ECONNREFUSED);
	server_again(&place.server);
	proxy_start(&proxy, &place.server);
	place_close();
}

StreetTest(answers, an_engine_that_comes_back_with_less_is_EOPNOTSUPP)
{
	(void)ask("CONFIG SET maxmemory-policy allkeys-lru");
	(void)ask("CLIENT KILL TYPE normal");
	/* It may have been sent before that, as far as the library knows. */
	assert_rc(add("a"), -ETIMEDOUT);
	assert_rc(add("b"), -EOPNOTSUPP);
}

static void *
bring_back(void *arg)
{
	sleep_ns(HWT_MS(500));
	server_again(arg);
	return NULL;
}

/* Gone while it is asked for nothing, and back while it is asked. */
PlaceTest(answers, an_engine_that_is_gone_for_a_while_is_waited_for)
{
	pthread_t thread;

	assert_ok(add_one("a"));
	server_kill(&place.server);
	cr_assert(
	    pthread_create(&thread, NULL, bring_back, &place.server) == 0);
	assert_ok(add_one("b"));
	(void)pthread_join(thread, NULL);
	cr_assert(state_of("a") == HWT_DURABLE_PENDING);
	cr_assert(state_of("b") == HWT_DURABLE_PENDING);
}

/* Lost answers. */

StreetTest(repeatable, an_add_whose_answer_was_lost_finds_what_it_stored)
{
	assert_ok(add("warm"));
	make_plan(1, PROXY_LOSE, PROXY_PASS, "");
	assert_rc(add("a"), 1);
	assert_u64(stats_now().added, 2);
}

StreetTest(repeatable, a_cancel_whose_answer_was_lost_is_0_again)
{
	assert_ok(add("a"));
	assert_rc(hwt_durable_cancel(place.other, "none", 4), -ENOENT);
	make_plan(1, PROXY_LOSE, PROXY_PASS, "");
	assert_ok(hwt_durable_cancel(place.other, "a", 1));
	assert_u64(stats_now().cancelled, 1);
}

/* The engine's refusal says that nothing has happened now; something has. */
Test(repeatable, a_refusal_after_a_lost_answer_is_ETIMEDOUT)
{
	static const char *const texts[] = {"-OOM command not allowed",
	    "-ESKEW apart", "-EPAUSED the shard is paused", "-ENOSPACE none"};
	char id[8];
	size_t i;

	street_open(HWT_SEC(2));
	assert_ok(add("warm"));
	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		make_plan(1, PROXY_LOSE, PROXY_SAY, texts[i]);
		(void)snprintf(id, sizeof(id), "t%zu", i);
		cr_expect(add(id) == -ETIMEDOUT, "%s", texts[i]);
		cr_expect(state_of(id) == HWT_DURABLE_PENDING);
		proxy.judge = NULL;
		cr_expect(add(id) == 1, "%s", texts[i]);
	}
	place_close();
}

StreetTest(repeatable, a_connection_that_breaks_is_replaced)
{
	assert_ok(add("warm"));
	make_plan(3, PROXY_CUT, PROXY_PASS, "");
	assert_ok(add("a"));
	cr_assert(atomic_load(&proxy.connections) >= 4);
}

/* Replicas. */

PlaceTest(answers, too_few_replicas_are_ETIMEDOUT_and_the_task_is_there)
{
	struct hwt_durable_options options;

	assert_ok(add_one("warm"));
	options = place_options();
	options.level = HWT_DURABLE_REPLICATED;
	options.timeout_ns = HWT_SEC(2);
	place_open_other(&options);
	assert_rc(add("a"), -ETIMEDOUT);
	cr_assert(state_of("a") == HWT_DURABLE_PENDING);
}

/* Redirections: two servers stand for two nodes. */

static struct server second;

static const char *
id_of_shard_0(void)
{
	return durable_shard_of(place.other, "a", 1) == 0 ? "a" : "b";
}

/* The second server has the shard, too. */
static void
shard_copy(void)
{
	char said_of_it[SAID_MAX];

	(void)server_ask(
	    &place.server, said_of_it, "HGET {hwt:0}:meta identity");
	(void)server_ask(
	    &second, NULL, "HSET {hwt:0}:meta identity %s", said_of_it);
}

static void
follow(const char *kind, uint64_t asked_again)
{
	static char text[64];
	char port[8];
	const char *settings[] = {"--port", port, FSYNCED_SETTINGS, NULL};
	struct hwt_durable_options options;
	struct hwt_durable_task task = task_of("warm");
	struct hwt_durable *there;
	uint64_t calls;

	server_free_port(port);
	server_start(&second, settings);
	street_open(HWT_SEC(20));
	options = place_options();
	options.servers = second.servers;
	assert_ok(hwt_durable_open(&there, &options));
	assert_ok(hwt_durable_add(there, 1, &task, NULL));
	shard_copy();
	(void)snprintf(text, sizeof(text), "-%s %u 127.0.0.1:%s", kind,
	    route_slot("hwt:0", 5), port);
	say_always(text);
	calls = atomic_load(&proxy.calls);
	assert_ok(add(id_of_shard_0()));
	assert_u64(atomic_load(&proxy.calls), calls + 1);
	assert_rc(add(id_of_shard_0()), 1);
	assert_u64(atomic_load(&proxy.calls), calls + 1 + asked_again);
	assert_ok(hwt_durable_close(there));
	place_close();
	server_stop(&second);
}

Test(answers, MOVED_is_followed_and_remembered)
{
	follow("MOVED", 0);
}

Test(answers, ASK_is_followed_each_time)
{
	follow("ASK", 1);
}

/* For more than the second in which another line may hold this one back. */
StreetTest(answers, who_sends_calls_to_and_fro_is_named)
{
	static char text[64];

	assert_ok(add("warm"));
	(void)snprintf(text, sizeof(text), "-MOVED %u 127.0.0.1:1",
	    route_slot("hwt:0", 5));
	make_plan(10, PROXY_SAY, PROXY_PASS, text);
	assert_ok(add(id_of_shard_0()));
	assert_u64(atomic_load(&said), 11);
	assert_u64(log_lines("is said to be at 127.0.0.1:1"), 1);
}

/* Each time to another port, where nobody is. */
static enum proxied
judge_astray(struct proxy *judged, const char *name, const redisReply *command,
    uint64_t count)
{
	(void)command;
	(void)count;
	if (!is_script(name))
		return PROXY_PASS;
	(void)snprintf(judged->say, sizeof(judged->say),
	    "-MOVED %u 127.0.0.1:%u\r\n", route_slot("hwt:0", 5),
	    (unsigned)atomic_fetch_add(&said, 1) + 1);
	return PROXY_SAY;
}

StreetTest(answers, any_number_of_addresses_may_come_and_go)
{
	const struct engine_wait once = {.stop_fd = -1, .no_retry = true};
	struct engine_call call = {.script = SCRIPT_STAT};
	int i;

	proxy.judge = judge_astray;
	for (i = 0; i < 2 * ROUTE_NODES_MAX; i++) {
		assert_rc(
		    engine_call(durable_engine(place.other), &call, 1, &once),
		    -ECONNREFUSED);
		engine_call_free(&call, 1);
	}
	assert_u64(atomic_load(&said), 2 * ROUTE_NODES_MAX);
	proxy.judge = NULL;
	assert_ok(add(id_of_shard_0()));
}
