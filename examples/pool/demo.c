/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool [THREADS [SECONDS [unpaused]]]: a redis-server of its own, on a free
 * port of the loopback and in a scratch folder, a pool of 8 connections, and
 * threads that count in the server. On the way
 *
 *   the server is killed and started again behind a pause, longer than the
 *   wait limit: no thread sees an error, some see -ETIMEDOUT;
 *   the server closes all idle connections: the check before use finds out;
 *   a thread keeps a connection too long: the pool says who;
 *   nobody does anything: the pool closes all but the least;
 *   a server lets the pool wait for a connection: a pause closes that, too,
 *   and a taker gets it instead of a second one.
 *
 * At the end what the server has counted is what the threads have done, and
 * the pool's statistics agree. The status is 0 if all adds up. With the word
 * unpaused as third argument the server is killed without a pause, and it does
 * not.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../must.h"
#include "pool.h"

enum {
	THREADS = 32,
	SECONDS = 4,
	THREADS_MAX = 1000,
	LEAST = 2,
	MOST = 8
};

static struct {
	struct pool *pool;
	pid_t server;
	uint16_t port;
	char folder[32];
	_Atomic bool over, still; /* still: nobody takes anything */
	_Atomic uint64_t done, timed_out, wrong;
	_Atomic unsigned warnings;
	bool named; /* by a dump: who kept one too long */
	unsigned long long counted; /* by servers that have gone */
} demo;

static void
sleep_ms(unsigned ms)
{
	struct timespec left = {
	    (time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		continue;
}

/* The server. */

static uint16_t
free_port(void)
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	must(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0);
	must(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
	must(close(fd) == 0);
	return ntohs(address.sin_port);
}

/* Of its own, beside the pool. NULL: no answer. */
static redisReply *
ask(const char *words)
{
	redisContext *redis = redisConnect("127.0.0.1", demo.port);
	redisReply *reply = NULL;

	if (redis != NULL && redis->err == 0)
		reply = redisCommand(redis, words);
	if (redis != NULL)
		redisFree(redis);
	return reply;
}

static bool
server_answers(void)
{
	redisReply *reply = ask("PING");
	bool answers = reply != NULL && reply->type == REDIS_REPLY_STATUS;

	freeReplyObject(reply);
	return answers;
}

static void
server_start(void)
{
	char port[8];
	unsigned i;

	(void)snprintf(port, sizeof(port), "%u", demo.port);
	demo.server = fork();
	must(demo.server >= 0);
	if (demo.server == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)execlp("redis-server", "redis-server", "--port", port,
		    "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		    "--dir", demo.folder, "--logfile", "log", (char *)NULL);
		perror("redis-server");
		_exit(1);
	}
	for (i = 0; !server_answers(); i++) {
		must(i < 1000 && waitpid(demo.server, NULL, WNOHANG) == 0);
		sleep_ms(10);
	}
}

/* It keeps nothing: what it has counted is read before. */
static unsigned long long
server_count(void)
{
	redisReply *reply = ask("GET count");
	unsigned long long count = 0;

	must(reply != NULL);
	if (reply->type == REDIS_REPLY_STRING)
		count = strtoull(reply->str, NULL, 10);
	freeReplyObject(reply);
	return count;
}

static void
server_kill(void)
{
	demo.counted += server_count();
	must(kill(demo.server, SIGKILL) == 0);
	must(waitpid(demo.server, NULL, 0) == demo.server);
}

/* Load. */

static void
use_once(unsigned number)
{
	struct pool_hold hold;
	redisReply *reply;
	int error = pool_take(demo.pool, &hold, "a thread of the load");

	if (error == -ETIMEDOUT)
		demo.timed_out++;
	else if (error != 0)
		demo.wrong++;
	if (error != 0)
		return;
	reply = redisCommand(hold.redis, "INCR count");
	if (reply != NULL && reply->type == REDIS_REPLY_INTEGER)
		demo.done++;
	else
		demo.wrong++;
	freeReplyObject(reply);
	if (number % 8 == 0)
		sleep_ms(1);
	pool_release(demo.pool, &hold);
}

static void *
load(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;

	while (!demo.over) {
		if (demo.still)
			sleep_ms(5);
		else
			use_once(number++);
	}
	return NULL;
}

static void
note_warning(const char *line)
{
	printf("%s\n", line);
	if (strstr(line, "keep_too_long") != NULL)
		demo.warnings++;
}

/* What happens meanwhile. */

static void
fail_over(bool paused)
{
	int error = 0;

	if (paused)
		error = pool_pause(demo.pool, HWT_SEC(10));
	printf("pause: %s\n", !paused ? "none" : strerror(-error));
	must(error == 0);
	server_kill();
	printf("the server is killed\n");
	sleep_ms(600); /* longer than the wait limit */
	server_start();
	if (paused)
		must(pool_resume(demo.pool) == 0);
	printf("the server is back\n");
}

static char *
dump_text(void)
{
	static char *text;
	static size_t size;
	FILE *file = open_memstream(&text, &size);

	must(file != NULL && pool_dump(demo.pool, file) == 0);
	must(fclose(file) == 0);
	return text;
}

static void
keep_too_long(void)
{
	struct pool_hold hold;
	char *text;
	unsigned i;
	int error;

	while ((error = pool_take(demo.pool, &hold, "keep_too_long")) != 0) {
		must(error == -ETIMEDOUT);
		demo.timed_out++;
	}
	for (i = 0; i < 1000 && demo.warnings == 0; i++)
		sleep_ms(10);
	text = dump_text();
	demo.named = strstr(text, " s by keep_too_long\n") != NULL;
	/* Up to those that wait. */
	printf("%.*s", (int)(strstr(text, "waiting:\n") - text), text);
	free(text);
	pool_release(demo.pool, &hold);
}

/* Who waits for a reply is closed as well: so nobody does. */
static void
close_idle(void)
{
	struct pool_stats stats;

	demo.still = true;
	do {
		sleep_ms(5);
		pool_read_stats(demo.pool, &stats);
	} while (stats.out + stats.waiting != 0);
	freeReplyObject(ask("CLIENT KILL TYPE normal SKIPME yes"));
	printf("the server has closed %llu idle connections\n",
	    (unsigned long long)stats.open);
	sleep_ms(60); /* from when on there is a check */
	demo.still = false;
}

static bool
wait_until_idle(struct pool_stats *stats)
{
	unsigned i;

	for (i = 0; i < 1000; i++) {
		pool_read_stats(demo.pool, stats);
		if (stats->open == LEAST)
			return true;
		sleep_ms(10);
	}
	return false;
}

/* The account. */

static bool
holds(bool condition, const char *text)
{
	printf("%-4s %s\n", condition ? "yes" : "NO", text);
	return condition;
}

/* Of a pool that has made one connection. */
static bool
stats_are_written(struct pool *pool)
{
	static const char json[] = "{\"open\":1,\"failed\":0,\"made\":1,";
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);
	bool good;

	must(file != NULL && pool_stats_write(pool, file, HWT_JSON) == 0 &&
	    pool_stats_write(pool, file, HWT_PROMETHEUS) == 0 &&
	    fclose(file) == 0);
	good = strncmp(text, json, strlen(json)) == 0 &&
	    strstr(text, ",\"leaks\":0,\"checkout\":{\"checkout\":\"pool\",") &&
	    strstr(text, "]}\n}\n# TYPE pool_open gauge\n") &&
	    strstr(text, "\npool_made_total{checkout=\"pool\"} 1\n") &&
	    strstr(text, "\nhwt_checkout_wait_seconds_count{checkout=\"pool\"");
	free(text);
	return good;
}

/* In a pool of one connection, without limits of its age. */
static bool
errors_are_told(void)
{
	struct pool_options options = {.port = demo.port,
	    .least = 2,
	    .most = 1,
	    .wait_ns = HWT_MS(5),
	    .idle_ns = HWT_NEVER,
	    .age_ns = HWT_NEVER,
	    .check_ns = HWT_NEVER};
	struct pool_hold hold, none;
	struct pool *pool;
	bool good = pool_open(&pool, &options) == -EINVAL;

	options.least = 1;
	options.port = free_port();
	good &= pool_open(&pool, &options) == -ECONNREFUSED;
	options.port = demo.port;
	must(pool_open(&pool, &options) == 0);
	good &= pool_resume(pool) == -EALREADY;
	must(pool_take(pool, &hold, NULL) == 0);
	good &= pool_take(pool, &none, NULL) == -ETIMEDOUT;
	good &= pool_pause(pool, 0) == -ETIMEDOUT;
	good &= pool_close(pool) == -EBUSY;
	good &= pool_take(pool, &none, NULL) == -ESHUTDOWN;
	pool_release(pool, &hold);
	good &= stats_are_written(pool);
	good &= pool_close(pool) == 0;
	return holds(good, "errors are told, and nothing is lost");
}

/* A server that accepts nothing: the kernel completes one connection, and lets
 * others try again after 1 s and after 3 s. */
static int
narrow_listen(struct sockaddr_in *address)
{
	socklen_t size = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*address = (struct sockaddr_in){
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	must(fd >= 0 && bind(fd, (struct sockaddr *)address, size) == 0);
	must(getsockname(fd, (struct sockaddr *)address, &size) == 0);
	must(listen(fd, 0) == 0);
	return fd;
}

/* Soon lets the one that is there go, and the next one in. */
static void *
narrow_accept(void *arg)
{
	const int *fd = arg;
	unsigned i;

	sleep_ms(300);
	for (i = 0; i < 2; i++)
		must(close(accept(*fd, NULL, NULL)) == 0);
	return NULL;
}

/* The pool makes its least again when the only connection was broken. */
static bool
pause_closes_what_is_being_made(struct pool *pool, int *listener)
{
	struct pool_stats stats;
	struct pool_hold hold;
	pthread_t thread;
	unsigned i = 0;
	bool good;

	must(pool_take(pool, &hold, NULL) == 0);
	hold.redis->err = REDIS_ERR_EOF;
	pool_release(pool, &hold);
	sleep_ms(1500);
	must(pthread_create(&thread, NULL, narrow_accept, listener) == 0);
	good = pool_pause(pool, HWT_SEC(1)) == 0;
	do {
		sleep_ms(10);
		pool_read_stats(pool, &stats);
	} while (stats.made < 2 && i++ < 1000);
	must(pthread_join(thread, NULL) == 0);
	return good && stats.made == 2 && stats.open == 0;
}

static bool
taker_gets_what_is_being_made(
    struct pool *pool, int *listener, const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pool_stats stats;
	struct pool_hold hold;
	pthread_t thread;

	must(fd >= 0);
	must(connect(fd, (const struct sockaddr *)address, sizeof(*address)) ==
	    0);
	must(pool_resume(pool) == 0);
	sleep_ms(1500);
	must(pthread_create(&thread, NULL, narrow_accept, listener) == 0);
	must(pool_take(pool, &hold, NULL) == 0);
	sleep_ms(1500); /* for a second one */
	pool_read_stats(pool, &stats);
	pool_release(pool, &hold);
	must(pthread_join(thread, NULL) == 0);
	must(close(fd) == 0);
	return stats.open == 1 && stats.made == 3;
}

static bool
a_slot_has_one_connection(void)
{
	struct pool_options options = {.least = 1,
	    .most = 1,
	    .idle_ns = HWT_NEVER,
	    .age_ns = HWT_NEVER,
	    .check_ns = HWT_NEVER};
	struct sockaddr_in address;
	int listener = narrow_listen(&address);
	struct pool *pool;
	bool good;

	options.port = ntohs(address.sin_port);
	must(pool_open(&pool, &options) == 0);
	good = holds(pause_closes_what_is_being_made(pool, &listener),
	    "a pause closes what is being made");
	good &= holds(taker_gets_what_is_being_made(pool, &listener, &address),
	    "a taker waits for what is being made");
	must(pool_close(pool) == 0);
	must(close(listener) == 0);
	return good;
}

static bool
conclude(void)
{
	struct pool_stats stats;
	bool good = holds(wait_until_idle(&stats), "idle: the least are open");

	demo.counted += server_count();
	pool_read_stats(demo.pool, &stats);
	must(pool_stats_write(demo.pool, stdout, HWT_JSON) == 0);
	printf("done %llu, timed out %llu, wrong %llu; the servers counted "
	       "%llu\n",
	    (unsigned long long)demo.done, (unsigned long long)demo.timed_out,
	    (unsigned long long)demo.wrong, demo.counted);
	good &= holds(demo.wrong == 0, "no error was seen");
	good &= holds(demo.counted == demo.done, "the servers counted all");
	good &= holds(demo.timed_out == stats.expired && stats.expired > 0,
	    "wait limits ended waits");
	/* One is keep_too_long's. */
	good &= holds(stats.taken + stats.failed == demo.done + demo.wrong + 1,
	    "each that was taken was used");
	good &= holds(stats.out == 0 && stats.waiting == 0, "nothing is left");
	good &= holds(stats.made ==
		stats.open + stats.closed_idle + stats.closed_old +
		    stats.closed_broken + stats.closed_pause,
	    "each connection is open, or closed for a reason");
	good &= holds(stats.closed_pause > 0 && stats.closed_broken > 0 &&
		stats.closed_idle > 0 && stats.closed_old > 0,
	    "each reason was there");
	good &= errors_are_told();
	good &= a_slot_has_one_connection();
	good &= holds(stats.leaks >= 1 && demo.warnings == 1 && demo.named,
	    "who kept one too long was named, once, and in a dump");
	return good;
}

static void
play(unsigned threads, unsigned seconds, bool paused)
{
	pthread_t thread[THREADS_MAX];
	unsigned i;

	for (i = 0; i < threads; i++)
		must(pthread_create(
			 &thread[i], NULL, load, (void *)(uintptr_t)i) == 0);
	sleep_ms(seconds * 250);
	fail_over(paused);
	sleep_ms(seconds * 250);
	close_idle();
	keep_too_long();
	sleep_ms(seconds * 250);
	demo.over = true;
	for (i = 0; i < threads; i++)
		must(pthread_join(thread[i], NULL) == 0);
}

static unsigned
read_number(const char *text, unsigned usual, unsigned max)
{
	char none[] = "";
	char *end = none;
	unsigned long value = text != NULL ? strtoul(text, &end, 10) : usual;

	if (*end == '\0' && value > 0 && value <= max)
		return (unsigned)value;
	(void)fprintf(stderr, "usage: pool [THREADS [SECONDS [unpaused]]]\n");
	exit(2);
}

int
main(int argc, char **argv)
{
	unsigned threads =
	    read_number(argc > 1 ? argv[1] : NULL, THREADS, THREADS_MAX);
	unsigned seconds =
	    read_number(argc > 2 ? argv[2] : NULL, SECONDS, 3600);
	bool paused = argc < 4 || strcmp(argv[3], "unpaused") != 0;
	struct pool_options options = {.least = LEAST,
	    .most = MOST,
	    .in_order = true,
	    .wait_ns = HWT_MS(400),
	    .connect_ns = HWT_SEC(5),
	    .idle_ns = HWT_MS(300),
	    .age_ns = HWT_MS(900),
	    .check_ns = HWT_MS(50),
	    .leak_ns = HWT_SEC(1),
	    .warn = note_warning};
	bool good;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)snprintf(
	    demo.folder, sizeof(demo.folder), "/tmp/hwt-pool-XXXXXX");
	must(mkdtemp(demo.folder) != NULL);
	demo.port = free_port();
	server_start();
	options.port = demo.port;
	must(pool_open(&demo.pool, &options) == 0);
	play(threads, seconds, paused);
	good = conclude();
	must(pool_close(demo.pool) == 0);
	server_kill();
	must(chdir(demo.folder) == 0 && unlink("log") == 0);
	must(chdir("/") == 0 && rmdir(demo.folder) == 0);
	printf("%s\n", good ? "all adds up" : "FAILED: it does not add up");
	return good ? 0 : 1;
}
