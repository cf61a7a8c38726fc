/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadline: what does a client of Redis lose when each of its commands has a
 * deadline? One timeout is scheduled when a command is sent, and cancelled when
 * its reply comes.
 *
 * The client is hiredis in loops of epoll, one per thread, with the connections
 * divided among them; the server is a redis-server of its own. Slices of time
 * with deadlines and without take turns on the same connections. CPU is the
 * client's. No deadline is to expire, unless the machine stands still for long.
 *
 *   threads=1  seconds=8  tick_ms=10
 *
 * Who would call it unfair: a client whose replies come in order, as those of
 * Redis do, can do with one timeout per connection, for its oldest command.
 * Clients that let each caller choose a deadline, or whose replies come in any
 * order, cannot. libuv is a loop in each thread, turned once per turn of epoll.
 */
#ifndef PERF_DEADLINE_H
#define PERF_DEADLINE_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "perf/driver.h"

enum {
	CONNECTIONS = 50,
	DEPTH = 16, /* commands under way on each connection */
	SLICES_MAX = 4096,
	EVENTS = 64,
	DEADLINE_MS = 1000,
	SLICE_MS = 100,
	/* The first ticks of a slice do not count. */
	SETTLE_TICKS = 3
};

/* A command under way. armed: it has a deadline. */
struct operation {
	subject_handle handle;
	bool armed;
};

/* Replies come in order: the oldest command is operation[oldest]. */
struct connection {
	redisContext *redis;
	struct operation operation[DEPTH];
	uint64_t oldest;
};

struct client {
	_Alignas(64) atomic_uint_fast64_t replies;
	struct subject *subject;
	unsigned first; /* of its connections: each threads-th is its own */
	int epoll;
	pthread_t thread;
};

static struct {
	uint64_t threads, tick_ns;
	struct subject *shared;
	pid_t server;
	int port;
	struct client clients[CONNECTIONS];
	struct connection connections[CONNECTIONS];
} redis_load;

static atomic_bool with_deadlines, stopping;
static atomic_uint_fast64_t expired;

SUBJECT_TASK(deadline_task, arg)
{
	(void)arg;
	atomic_fetch_add(&expired, 1);
}

static int
free_port(void)
{
	struct sockaddr_in any = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(any);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	perf_must(fd >= 0 && !bind(fd, (struct sockaddr *)&any, length) &&
		!getsockname(fd, (struct sockaddr *)&any, &length),
	    "finding a free port");
	close(fd);
	return ntohs(any.sin_port);
}

/* It ends with this process, however that does. */
static void
server_start(void)
{
	pid_t parent = getpid();
	char port[16];

	redis_load.port = free_port();
	snprintf(port, sizeof(port), "%d", redis_load.port);
	redis_load.server = fork();
	perf_must(redis_load.server >= 0, "fork");
	if (redis_load.server)
		return;
	if (!prctl(PR_SET_PDEATHSIG, SIGKILL) && getppid() == parent)
		execlp("redis-server", "redis-server", "--bind", "127.0.0.1",
		    "--port", port, "--save", "", "--appendonly", "no", "--dir",
		    "/", "--logfile", "/dev/null", (char *)NULL);
	_exit(127);
}

static redisContext *
server_connect(void)
{
	uint64_t until_ns = perf_now_ns() + HWT_SEC(PATIENCE_S);
	redisContext *redis;
	int status;

	while (true) {
		if (waitpid(redis_load.server, &status, WNOHANG) ==
		    redis_load.server)
			perf_skip("redis-server does not run here");
		redis = redisConnect("127.0.0.1", redis_load.port);
		if (redis && !redis->err)
			return redis;
		if (redis)
			redisFree(redis);
		perf_must(perf_now_ns() < until_ns, "connecting to Redis");
		perf_sleep_until_ns(perf_now_ns() + HWT_MS(10));
	}
}

static void
server_fill(void)
{
	redisContext *redis = server_connect();
	redisReply *reply = redisCommand(redis, "SET key %032d", 1);

	perf_must(reply && reply->type == REDIS_REPLY_STATUS, "SET");
	freeReplyObject(reply);
	redisFree(redis);
}

static void
client_send(struct client *client, struct connection *connection,
    struct operation *operation)
{
	operation->armed =
	    atomic_load_explicit(&with_deadlines, memory_order_relaxed);
	if (operation->armed)
		subject_schedule(client->subject, &operation->handle,
		    deadline_task, operation, HWT_MS(DEADLINE_MS));
	perf_must(!redisAppendCommand(connection->redis, "GET key"),
	    "appending a command");
}

static void
client_flush(struct connection *connection)
{
	struct pollfd writable = {connection->redis->fd, POLLOUT, 0};
	int done = 0;

	while (true) {
		perf_must(!redisBufferWrite(connection->redis, &done),
		    "writing to Redis");
		if (done)
			return;
		poll(&writable, 1, -1);
	}
}

/* Each reply ends a command and sends the next. */
static void
client_read(struct client *client, struct connection *connection)
{
	struct operation *operation;
	uint64_t replies = 0;
	void *got;

	perf_must(!redisBufferRead(connection->redis), "reading from Redis");
	while (true) {
		perf_must(!redisGetReplyFromReader(connection->redis, &got),
		    "a reply of Redis");
		if (!got)
			break;
		perf_must(
		    ((redisReply *)got)->type == REDIS_REPLY_STRING, "GET");
		freeReplyObject(got);
		operation = &connection->operation[connection->oldest];
		if (++connection->oldest == DEPTH)
			connection->oldest = 0;
		if (operation->armed)
			subject_cancel(client->subject, operation->handle);
		client_send(client, connection, operation);
		replies++;
	}
	atomic_store_explicit(&client->replies,
	    atomic_load_explicit(&client->replies, memory_order_relaxed) +
		replies,
	    memory_order_relaxed);
	if (replies)
		client_flush(connection);
}

static void *
client_run(void *arg)
{
	struct client *client = arg;
	struct epoll_event events[EVENTS];
	struct connection *connection;
	uint64_t i, j;
	int count, k;

	if (SUBJECT_SINGLE)
		client->subject =
		    subject_create(redis_load.tick_ns, CONNECTIONS * DEPTH);
	subject_turn_begins(perf_now_ns());
	for (i = client->first; i < CONNECTIONS; i += redis_load.threads) {
		connection = &redis_load.connections[i];
		for (j = 0; j < DEPTH; j++)
			client_send(
			    client, connection, &connection->operation[j]);
		client_flush(connection);
	}
	while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
		count = epoll_wait(
		    client->epoll, events, EVENTS, SUBJECT_SINGLE ? 1 : 10);
		if (SUBJECT_DEADLINES)
			subject_turn_begins(perf_now_ns());
		for (k = 0; k < count; k++)
			client_read(client, events[k].data.ptr);
		if (SUBJECT_SINGLE)
			subject_turn(client->subject);
	}
	if (SUBJECT_SINGLE)
		subject_destroy(client->subject);
	return NULL;
}

static void
client_connect(const struct client *client, struct connection *connection)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
	redisContext *redis = server_connect();

	perf_must(
	    !fcntl(redis->fd, F_SETFL, fcntl(redis->fd, F_GETFL) | O_NONBLOCK),
	    "a socket that does not block");
	redis->flags &= ~REDIS_BLOCK;
	connection->redis = redis;
	perf_must(!epoll_ctl(client->epoll, EPOLL_CTL_ADD, redis->fd, &event),
	    "watching a connection");
}

static void
clients_start(void)
{
	struct client *client;
	unsigned i;
	uint64_t k;

	for (i = 0; i < redis_load.threads; i++) {
		client = &redis_load.clients[i];
		client->subject = redis_load.shared;
		client->first = i;
		client->epoll = epoll_create1(EPOLL_CLOEXEC);
		perf_must(client->epoll >= 0, "epoll_create1");
		for (k = i; k < CONNECTIONS; k += redis_load.threads)
			client_connect(client, &redis_load.connections[k]);
		perf_start(&client->thread, client_run, client);
	}
}

static void
clients_stop(void)
{
	uint64_t i;

	atomic_store(&stopping, true);
	for (i = 0; i < redis_load.threads; i++) {
		pthread_join(redis_load.clients[i].thread, NULL);
		close(redis_load.clients[i].epoll);
	}
	for (i = 0; i < CONNECTIONS; i++)
		redisFree(redis_load.connections[i].redis);
}

static uint64_t
replies_of_all(void)
{
	uint64_t i, sum = 0;

	for (i = 0; i < redis_load.threads; i++)
		sum += atomic_load_explicit(
		    &redis_load.clients[i].replies, memory_order_relaxed);
	return sum;
}

/* Per second, and CPU of each reply. */
struct slice {
	double rate, cpu_ns;
};

static struct slice
measure_slice(bool deadlines)
{
	uint64_t from_ns, replies, cpu_ns;

	atomic_store(&with_deadlines, deadlines);
	perf_sleep_until_ns(perf_now_ns() + SETTLE_TICKS * redis_load.tick_ns);
	from_ns = perf_now_ns();
	replies = replies_of_all();
	cpu_ns = perf_cpu_ns();
	perf_sleep_until_ns(from_ns + HWT_MS(SLICE_MS));
	replies = replies_of_all() - replies;
	cpu_ns = perf_cpu_ns() - cpu_ns;
	return (struct slice){
	    (double)replies * 1e9 / (double)(perf_now_ns() - from_ns),
	    replies ? (double)cpu_ns / (double)replies : 0};
}

static int
compare_figures(const void *left, const void *right)
{
	const double *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

static double
median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare_figures);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* Slices with deadlines and slices without take turns (ABBA); medians over the
 * pairs. */
static void
measure_slices(double seconds)
{
	static double loss[SLICES_MAX], cpu[SLICES_MAX], without[SLICES_MAX];
	uint64_t end_ns = perf_now_ns() + (uint64_t)(seconds * 1e9);
	struct slice slice[2];
	unsigned pairs = 0, i;

	while (!pairs || (pairs < SLICES_MAX && perf_now_ns() < end_ns)) {
		for (i = 0; i < 2; i++)
			slice[(pairs + i) % 2] = measure_slice((pairs + i) % 2);
		/* The machine stood still. */
		if (slice[0].rate <= 0 || slice[1].rate <= 0) {
			perf_must(perf_now_ns() < end_ns + HWT_SEC(PATIENCE_S),
			    "getting a reply");
			continue;
		}
		loss[pairs] = 100 - 100 * slice[1].rate / slice[0].rate;
		cpu[pairs] = 100 * slice[1].cpu_ns / slice[0].cpu_ns;
		without[pairs++] = slice[0].cpu_ns;
	}
	perf_metric("loss_percent", "%", median(loss, pairs));
	perf_metric("cpu_percent", "%", median(cpu, pairs));
	perf_metric("without_cpu_ns", "ns", median(without, pairs));
}

static void
deadline(uint64_t seed)
{
	double seconds = perf_fraction("seconds", 8);

	(void)seed;
	redis_load.threads = perf_option("threads", 1);
	redis_load.tick_ns = HWT_MS(perf_option("tick_ms", 10));
	perf_options_end();
	perf_must(redis_load.threads && redis_load.threads <= CONNECTIONS &&
		redis_load.tick_ns,
	    "reading the options");
	server_start();
	server_fill();
	if (!SUBJECT_SINGLE)
		redis_load.shared =
		    subject_create(redis_load.tick_ns, CONNECTIONS * DEPTH);
	clients_start();
	measure_slices(seconds);
	clients_stop();
	perf_metric("expired", "1", (double)atomic_load(&expired));
	if (!SUBJECT_SINGLE)
		subject_destroy(redis_load.shared);
	kill(redis_load.server, SIGKILL);
	waitpid(redis_load.server, NULL, 0);
}

#endif
