/* SPDX-License-Identifier: Apache-2.0 */
#include "modules/durable/test/spec/durable.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct place place;

struct hwt_durable_options
place_options(void)
{
	return (struct hwt_durable_options){
	    .servers = place.server.servers,
	    .shards = 2,
	    .timeout_ns = HWT_SEC(20),
	    .flags = HWT_DURABLE_CREATE,
	    .log = &place.hook,
	};
}

struct hwt_durable_options
place_start(const char *const *settings)
{
	server_start(&place.server, settings);
	log_recorder_init(&place.log);
	place.hook = log_recorder_hook(&place.log);
	return place_options();
}

void
place_open(void (*change)(struct hwt_durable_options *options))
{
	struct hwt_durable_options options = place_start(NULL);

	if (change != NULL)
		change(&options);
	assert_ok(hwt_durable_open(&place.durable, &options));
}

void
place_open_other(const struct hwt_durable_options *options)
{
	assert_ok(hwt_durable_open(&place.other, options));
}

void
one_shard(struct hwt_durable_options *options)
{
	options->shards = 1;
}

void
place_schedule(void)
{
	assert_ok(
	    hwt_durable_scheduler_start(&place.scheduler, place.durable, NULL));
}

void
place_work(const struct hwt_durable_worker_options *options)
{
	assert_ok(hwt_durable_worker_start(&place.worker,
	    place.other != NULL ? place.other : place.durable, options));
}

void
place_call(enum script script, uint32_t shard)
{
	struct engine_call call = {.script = script, .shard = shard};

	assert_ok(engine_call(durable_engine(place.durable), &call, 1, NULL));
	engine_call_free(&call, 1);
}

void
place_unschedule(void)
{
	assert_ok(hwt_durable_scheduler_stop(place.scheduler));
	place.scheduler = NULL;
}

void
place_unwork(void)
{
	assert_ok(hwt_durable_worker_stop(place.worker, HWT_SEC(60)));
	place.worker = NULL;
}

void
place_close(void)
{
	place_unwork();
	place_unschedule();
	assert_ok(hwt_durable_close(place.other));
	assert_ok(hwt_durable_close(place.durable));
	if (place.proxy != NULL)
		proxy_stop(place.proxy);
	server_stop(&place.server);
}

uint64_t
log_lines(const char *text)
{
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < place.log.count && i < LOG_LINES; i++)
		count += strstr(place.log.lines[i].message, text) != NULL;
	return count;
}

struct hwt_durable_task
task_of(const char *id)
{
	return (struct hwt_durable_task){
	    .id = id, .id_length = strlen(id), .queue = "q"};
}

int
add_one(const char *id)
{
	struct hwt_durable_task task = task_of(id);
	int result = -1;
	int error = hwt_durable_add(place.durable, 1, &task, &result);

	return error != 0 ? error : result;
}

int
cancel_one(const char *id)
{
	return hwt_durable_cancel(place.durable, id, strlen(id));
}

int
reschedule_one(const char *id, uint64_t delay_ns)
{
	return hwt_durable_reschedule(
	    place.durable, id, strlen(id), delay_ns, 0);
}

void
add_task(const struct hwt_durable_task *task)
{
	assert_ok(hwt_durable_add(place.durable, 1, task, NULL));
}

void
add_many(const char *prefix, size_t count, const struct hwt_durable_task *as)
{
	static struct hwt_durable_task task[HWT_DURABLE_BATCH_MAX];
	static char id[HWT_DURABLE_BATCH_MAX][32];
	size_t batch = 0, i;

	for (i = 0; i < count; i++) {
		(void)snprintf(
		    id[batch], sizeof(id[batch]), "%.10s%zu", prefix, i);
		task[batch] = as != NULL ? *as : task_of("");
		task[batch].id = id[batch];
		task[batch].id_length = strlen(id[batch]);
		if (++batch == HWT_DURABLE_BATCH_MAX || i + 1 == count) {
			assert_ok(
			    hwt_durable_add(place.durable, batch, task, NULL));
			batch = 0;
		}
	}
}

struct hwt_durable_info
info_of(const char *id)
{
	struct hwt_durable_info info;

	assert_ok(
	    hwt_durable_get(place.durable, id, strlen(id), &info, NULL, 0));
	return info;
}

enum hwt_durable_state
state_of(const char *id)
{
	struct hwt_durable_info info;
	int error =
	    hwt_durable_get(place.durable, id, strlen(id), &info, NULL, 0);

	return error == 0 ? info.state : (enum hwt_durable_state)0;
}

void
await_state(const char *id, enum hwt_durable_state state)
{
	uint64_t until = monotonic_ns() + HWT_SEC(60);

	while (state_of(id) != state) {
		cr_assert(monotonic_ns() < until, "%s is in state %d", id,
		    (int)state_of(id));
		sleep_ns(HWT_MS(5));
	}
}

struct hwt_durable_stats
stats_now(void)
{
	struct hwt_durable_stats stats;

	assert_ok(hwt_durable_read_stats(place.durable, &stats));
	return stats;
}

void
await_succeeded(uint64_t count)
{
	AWAIT(stats_now().succeeded >= count);
}

uint64_t
calls_of(const char *command)
{
	redisReply *reply =
	    redisCommand(place.server.context, "INFO commandstats");
	char name[64];
	const char *found;
	uint64_t count = 0;

	cr_assert(reply != NULL && reply->type == REDIS_REPLY_STRING);
	(void)snprintf(name, sizeof(name), "cmdstat_%s:calls=", command);
	found = strstr(reply->str, name);
	if (found != NULL)
		count = strtoull(found + strlen(name), NULL, 10);
	freeReplyObject(reply);
	return count;
}

int
done(void *ctx, const struct hwt_durable_delivery *delivery)
{
	(void)ctx;
	(void)delivery;
	return 0;
}

/* The proxy. */

struct proxy_client {
	struct proxy *proxy;
	int socket;
};

static void
address_set(struct sockaddr_un *address, const char *path)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	(void)snprintf(
	    address->sun_path, sizeof(address->sun_path), "%s", path);
}

static uint64_t
proxy_count(struct proxy *proxy, const char *name)
{
	uint64_t count = 0;
	size_t i;

	(void)pthread_mutex_lock(&proxy->lock);
	for (i = 0; i < 32; i++) {
		if (proxy->seen[i].name[0] == 0)
			(void)snprintf(proxy->seen[i].name,
			    sizeof(proxy->seen[i].name), "%s", name);
		if (strcasecmp(proxy->seen[i].name, name) == 0) {
			count = proxy->seen[i].count++;
			break;
		}
	}
	(void)pthread_mutex_unlock(&proxy->lock);
	return count;
}

static bool
write_all(int fd, const char *bytes, size_t length)
{
	ssize_t count;

	while (length > 0) {
		count = send(fd, bytes, length, MSG_NOSIGNAL);
		if (count <= 0)
			return false;
		bytes += count;
		length -= (size_t)count;
	}
	return true;
}

/* What the server answers; 0: the client has gone, and it may never. */
static ssize_t
proxy_receive(int server, int client, char *bytes, size_t length)
{
	struct pollfd polled[] = {
	    {.fd = server, .events = POLLIN},
	    {.fd = client, .events = POLLRDHUP},
	};

	if (poll(polled, 2, -1) < 0 || polled[0].revents == 0)
		return 0;
	return recv(server, bytes, length, 0);
}

/* Sends a command on, and the bytes of its reply back, unless lose is set. */
static bool
proxy_pass(int server, int client, const redisReply *command, bool lose)
{
	redisReader *reader = redisReaderCreate();
	const char *argument[4096];
	size_t length[4096];
	char bytes[16384];
	char *request;
	void *reply = NULL;
	ssize_t count = 1;
	bool fine = false;
	size_t i;
	int size;

	for (i = 0; i < command->elements; i++) {
		argument[i] = command->element[i]->str;
		length[i] = command->element[i]->len;
	}
	size = redisFormatCommandArgv(
	    &request, (int)command->elements, argument, length);
	if (write_all(server, request, (size_t)size)) {
		while (reply == NULL && count > 0) {
			count =
			    proxy_receive(server, client, bytes, sizeof(bytes));
			if (count <= 0)
				break;
			(void)redisReaderFeed(reader, bytes, (size_t)count);
			(void)redisReaderGetReply(reader, &reply);
			fine = lose || write_all(client, bytes, (size_t)count);
		}
	}
	if (reply != NULL)
		freeReplyObject(reply);
	redisFreeCommand(request);
	redisReaderFree(reader);
	return fine && reply != NULL;
}

static bool
proxy_command(
    struct proxy *proxy, int server, int client, const redisReply *command)
{
	const char *name = command->element[0]->str;
	enum proxied judged = PROXY_PASS;

	if (strcasecmp(name, "FCALL") == 0)
		(void)atomic_fetch_add(&proxy->calls, 1);
	if (proxy->judge != NULL)
		judged = proxy->judge(
		    proxy, name, command, proxy_count(proxy, name));
	switch (judged) {
	case PROXY_SAY:
		return write_all(client, proxy->say, strlen(proxy->say));
	case PROXY_LOSE:
		(void)proxy_pass(server, client, command, true);
		return false;
	case PROXY_CUT:
		return false;
	case PROXY_KEEP:
		return true;
	default:
		return proxy_pass(server, client, command, false);
	}
}

static int
proxy_server(const struct proxy *proxy)
{
	struct sockaddr_un address;
	int fd = -1;

	if (proxy->path != NULL) {
		address_set(&address, proxy->path);
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		(void)connect(fd, (struct sockaddr *)&address, sizeof(address));
	}
	return fd;
}

static void *
proxy_serve(void *arg)
{
	struct proxy_client *served = arg;
	redisReader *reader = redisReaderCreate();
	int server = proxy_server(served->proxy);
	bool more = true;
	char bytes[16384];
	void *command;
	ssize_t count;

	while (more &&
	    (count = recv(served->socket, bytes, sizeof(bytes), 0)) > 0) {
		(void)redisReaderFeed(reader, bytes, (size_t)count);
		while (more &&
		    redisReaderGetReply(reader, &command) == REDIS_OK &&
		    command != NULL) {
			more = proxy_command(
			    served->proxy, server, served->socket, command);
			freeReplyObject(command);
		}
	}
	(void)shutdown(served->socket, SHUT_RDWR);
	if (server >= 0)
		(void)close(server);
	redisReaderFree(reader);
	free(served);
	return NULL;
}

static void *
proxy_accept(void *arg)
{
	struct proxy *proxy = arg;
	struct proxy_client *client;
	int fd;

	while (
	    (fd = accept4(proxy->listening, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		if (atomic_load(&proxy->stopping) != 0 ||
		    proxy->clients == 256) {
			(void)close(fd);
			continue;
		}
		(void)atomic_fetch_add(&proxy->connections, 1);
		client = malloc(sizeof(*client));
		*client = (struct proxy_client){proxy, fd};
		proxy->socket[proxy->clients] = fd;
		(void)pthread_create(&proxy->client[proxy->clients++], NULL,
		    proxy_serve, client);
	}
	return NULL;
}

void
proxy_start(struct proxy *proxy, struct server *server)
{
	struct sockaddr_un address;
	static int number;

	(void)snprintf(
	    proxy->own, sizeof(proxy->own), "%s/p%d", server->folder, number++);
	(void)snprintf(
	    proxy->servers, sizeof(proxy->servers), "unix:%s", proxy->own);
	(void)pthread_mutex_init(&proxy->lock, NULL);
	proxy->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	address_set(&address, proxy->own);
	cr_assert(bind(proxy->listening, (struct sockaddr *)&address,
		      sizeof(address)) == 0);
	cr_assert(listen(proxy->listening, 64) == 0);
	cr_assert(
	    pthread_create(&proxy->thread, NULL, proxy_accept, proxy) == 0);
}

void
proxy_stop(struct proxy *proxy)
{
	uint32_t i;

	atomic_store(&proxy->stopping, 1);
	(void)shutdown(proxy->listening, SHUT_RDWR);
	(void)pthread_join(proxy->thread, NULL);
	for (i = 0; i < proxy->clients; i++) {
		(void)shutdown(proxy->socket[i], SHUT_RDWR);
		(void)pthread_join(proxy->client[i], NULL);
		(void)close(proxy->socket[i]);
	}
	proxy->clients = 0;
	atomic_store(&proxy->stopping, 0);
	(void)close(proxy->listening);
	(void)pthread_mutex_destroy(&proxy->lock);
}

struct hwt_durable_options
place_behind(struct proxy *proxy)
{
	struct hwt_durable_options options = place_options();

	proxy->path = place.server.path;
	proxy_start(proxy, &place.server);
	place.proxy = proxy;
	options.servers = proxy->servers;
	return options;
}
