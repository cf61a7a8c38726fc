/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadline: what does a client of Redis lose when each of its commands has a
 * deadline? One timeout is scheduled when a command is sent, and cancelled when
 * its reply comes.
 *
 * The client is hiredis in loops of epoll, one per thread, with the connections
 * divided among them; the server is a redis-server of its own. Slices of time
 * with deadlines and without take turns on the same connections. CPU is the
 * client's. At the end the server is stopped with all commands under way: each
 * deadline must expire, none before its time.
 *
 *   connections=50  threads=1  depth=16 (commands under way on each)
 *   deadline_ms=1000  slice_ms=100  seconds=8  tick_ms=10
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
	CLIENTS_MAX = 64,
	SLICES_MAX = 4096,
	KEYS = 1000,
	VALUE_BYTES = 32,
	EVENTS = 64,
	/* The first ticks of a slice do not count. */
	SETTLE_TICKS = 3
};

static struct {
	uint64_t connections, threads, depth, deadline_ns, slice_ns, tick_ns;
	struct subject *shared;
} deadline_load;

/* A command under way. armed: it has a deadline. sent_ns: while timing. */
struct operation {
	subject_handle handle;
	uint64_t sent_ns;
	bool armed;
};

/* Replies come in order: the oldest command is operation[oldest]. */
struct connection {
	redisContext *redis;
	struct operation *operation;
	uint64_t oldest;
};

struct client {
	_Alignas(64) atomic_uint_fast64_t replies;
	struct subject *subject;
	struct connection *connections;
	uint64_t count, random, turn_ns;
	int epoll;
	pthread_t thread;
};

static struct {
	pid_t pid;
	int port;
} server;

static struct client clients[CLIENTS_MAX];
static atomic_bool with_deadlines, timing, server_stopped, stopping;
/* Before the server is stopped, no deadline is to expire, unless the machine
 * stands still for as long. */
static atomic_uint_fast64_t expired, expired_stopped, early;

SUBJECT_TASK(deadline_task, arg)
{
	const struct operation *operation = arg;

	if (!atomic_load(&server_stopped)) {
		atomic_fetch_add(&expired, 1);
		return;
	}
	if (perf_now_ns() < operation->sent_ns + deadline_load.deadline_ns)
		atomic_fetch_add(&early, 1);
	atomic_fetch_add(&expired_stopped, 1);
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

	server.port = free_port();
	snprintf(port, sizeof(port), "%d", server.port);
	server.pid = fork();
	perf_must(server.pid >= 0, "fork");
	if (server.pid)
		return;
	if (!prctl(PR_SET_PDEATHSIG, SIGKILL) && getppid() == parent)
		execlp("redis-server", "redis-server", "--bind", "127.0.0.1",
		    "--port", port, "--save", "", "--appendonly", "no", "--dir",
		    "/", "--logfile", "/dev/null", (char *)NULL);
	_exit(127);
}

static void
server_stop(void)
{
	kill(server.pid, SIGKILL);
	waitpid(server.pid, NULL, 0);
}

static redisContext *
server_connect(void)
{
	uint64_t until_ns = perf_now_ns() + HWT_SEC(PATIENCE_S);
	redisContext *redis;
	int status;

	while (true) {
		if (waitpid(server.pid, &status, WNOHANG) == server.pid)
			perf_skip("redis-server does not run here");
		redis = redisConnect("127.0.0.1", server.port);
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
	char value[VALUE_BYTES + 1];
	redisReply *reply;
	unsigned key;

	memset(value, 'x', VALUE_BYTES);
	value[VALUE_BYTES] = 0;
	for (key = 0; key < KEYS; key++) {
		reply = redisCommand(redis, "SET key:%u %s", key, value);
		perf_must(reply && reply->type == REDIS_REPLY_STATUS, "SET");
		freeReplyObject(reply);
	}
	redisFree(redis);
}

static void
client_send(struct client *client, struct connection *connection,
    struct operation *operation)
{
	unsigned key = (unsigned)perf_random_below(&client->random, KEYS);

	operation->armed =
	    atomic_load_explicit(&with_deadlines, memory_order_relaxed);
	if (atomic_load_explicit(&timing, memory_order_relaxed))
		operation->sent_ns =
		    SUBJECT_DEADLINES ? client->turn_ns : perf_now_ns();
	if (operation->armed)
		subject_schedule(client->subject, &operation->handle,
		    deadline_task, operation, deadline_load.deadline_ns);
	perf_must(!redisAppendCommand(connection->redis, "GET key:%u", key),
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
		if (++connection->oldest == deadline_load.depth)
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

static void
client_turn(struct client *client)
{
	if (!SUBJECT_DEADLINES)
		return;
	client->turn_ns = perf_now_ns();
	subject_turn_begins(client->turn_ns);
}

static void *
client_run(void *arg)
{
	struct client *client = arg;
	struct epoll_event events[EVENTS];
	uint64_t i, j;
	int count, k;

	if (SUBJECT_SINGLE)
		client->subject = subject_create(
		    deadline_load.tick_ns, client->count * deadline_load.depth);
	client_turn(client);
	for (i = 0; i < client->count; i++) {
		for (j = 0; j < deadline_load.depth; j++)
			client_send(client, &client->connections[i],
			    &client->connections[i].operation[j]);
		client_flush(&client->connections[i]);
	}
	while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
		count = epoll_wait(
		    client->epoll, events, EVENTS, SUBJECT_SINGLE ? 1 : 10);
		client_turn(client);
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
client_connect(struct client *client, struct connection *connection)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
	redisContext *redis = server_connect();

	perf_must(
	    !fcntl(redis->fd, F_SETFL, fcntl(redis->fd, F_GETFL) | O_NONBLOCK),
	    "a socket that does not block");
	redis->flags &= ~REDIS_BLOCK;
	connection->redis = redis;
	connection->operation =
	    calloc(deadline_load.depth, sizeof(*connection->operation));
	perf_must(connection->operation &&
		!epoll_ctl(client->epoll, EPOLL_CTL_ADD, redis->fd, &event),
	    "watching a connection");
}

static void
clients_start(uint64_t seed)
{
	struct client *client;
	uint64_t i, j, given = 0;

	for (i = 0; i < deadline_load.threads; i++) {
		client = &clients[i];
		client->subject = deadline_load.shared;
		client->random = seed * deadline_load.threads + i;
		client->count = deadline_load.connections * (i + 1) /
			deadline_load.threads -
		    given;
		given += client->count;
		client->epoll = epoll_create1(EPOLL_CLOEXEC);
		client->connections =
		    calloc(client->count, sizeof(*client->connections));
		perf_must(client->epoll >= 0 && client->connections,
		    "making a client");
		for (j = 0; j < client->count; j++)
			client_connect(client, &client->connections[j]);
		perf_start(&client->thread, client_run, client);
	}
}

/* How many commands had a deadline at the end. */
static uint64_t
clients_stop(void)
{
	struct connection *connection;
	uint64_t i, j, k, armed = 0;

	atomic_store(&stopping, true);
	for (i = 0; i < deadline_load.threads; i++)
		pthread_join(clients[i].thread, NULL);
	for (i = 0; i < deadline_load.threads; i++) {
		for (j = 0; j < clients[i].count; j++) {
			connection = &clients[i].connections[j];
			for (k = 0; k < deadline_load.depth; k++)
				armed += connection->operation[k].armed;
			redisFree(connection->redis);
			free(connection->operation);
		}
		close(clients[i].epoll);
		free(clients[i].connections);
	}
	return armed;
}

static uint64_t
replies_of_all(void)
{
	uint64_t i, sum = 0;

	for (i = 0; i < deadline_load.threads; i++)
		sum += atomic_load_explicit(
		    &clients[i].replies, memory_order_relaxed);
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
	perf_sleep_until_ns(
	    perf_now_ns() + SETTLE_TICKS * deadline_load.tick_ns);
	from_ns = perf_now_ns();
	replies = replies_of_all();
	cpu_ns = perf_cpu_ns();
	perf_sleep_until_ns(from_ns + deadline_load.slice_ns);
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

/* The server stops, with a deadline for each command under way. */
static void
expire_all(void)
{
	uint64_t all = deadline_load.connections * deadline_load.depth, until,
		 end_ns, armed;

	atomic_store(&with_deadlines, true);
	atomic_store(&timing, true);
	until = replies_of_all() + 10 * all;
	while (replies_of_all() < until)
		perf_sleep_until_ns(perf_now_ns() + HWT_MS(1));
	atomic_store(&server_stopped, true);
	kill(server.pid, SIGSTOP);
	end_ns =
	    perf_now_ns() + deadline_load.deadline_ns + HWT_SEC(PATIENCE_S);
	while (atomic_load(&expired_stopped) < all && perf_now_ns() < end_ns)
		perf_sleep_until_ns(perf_now_ns() + HWT_MS(1));
	armed = clients_stop();
	perf_metric("expired", "1", (double)atomic_load(&expired));
	perf_metric("early", "1", (double)atomic_load(&early));
	perf_metric(
	    "lost", "1", (double)armed - (double)atomic_load(&expired_stopped));
}

static void
deadline(uint64_t seed)
{
	double seconds = perf_fraction("seconds", 8);

	deadline_load.connections = perf_option("connections", 50);
	deadline_load.threads = perf_option("threads", 1);
	deadline_load.depth = perf_option("depth", 16);
	deadline_load.deadline_ns = HWT_MS(perf_option("deadline_ms", 1000));
	deadline_load.slice_ns = HWT_MS(perf_option("slice_ms", 100));
	deadline_load.tick_ns = HWT_MS(perf_option("tick_ms", 10));
	perf_options_end();
	perf_must(deadline_load.threads &&
		deadline_load.threads <= CLIENTS_MAX &&
		deadline_load.connections >= deadline_load.threads &&
		deadline_load.depth && deadline_load.deadline_ns &&
		deadline_load.slice_ns && deadline_load.tick_ns,
	    "reading the options");
	server_start();
	server_fill();
	if (!SUBJECT_SINGLE)
		deadline_load.shared = subject_create(deadline_load.tick_ns,
		    deadline_load.connections * deadline_load.depth);
	clients_start(seed);
	measure_slices(seconds);
	expire_all();
	if (!SUBJECT_SINGLE)
		subject_destroy(deadline_load.shared);
	server_stop();
}

#endif
