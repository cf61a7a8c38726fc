/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proxy. Each connection to the backend is an object, and each client has a
 * request, which is for the connections with the shortest lines. Clients and
 * connections belong to the loop's thread. granted may be called by any thread:
 * by the loop's that releases, by the timer's at a deadline, by control's after
 * a pause. So it puts the client into a list, and the loop is told.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <hwt_checkout.h>

#include "../must.h"
#include "pool.h"

enum {
	EVENTS = 64,
	SAMPLES_MAX = 1 << 20
};

/* What epoll watches. */
struct source {
	void (*ready)(struct source *source);
	int fd;
	struct pool *pool;
};

struct link {
	struct source source;
	struct hwt_object object;
	struct client *client; /* that it serves */
	unsigned line; /* clients that have it or wait for it */
};

struct client {
	struct source source;
	struct hwt_request request;
	struct hwt_object *set[2];
	struct link *link[2];
	unsigned links, answers;
	bool busy; /* the request waits or is granted */
	uint64_t asked_ns, told_ns;
	enum hwt_grant grant;
	struct client *next; /* in the pool's list */
	size_t used;
	char text[LINE_SIZE * 2]; /* what was read */
	char line[LINE_SIZE]; /* what the backend is asked */
};

struct pool {
	struct hwt *timer;
	struct hwt_checkout *checkout;
	struct link link[LINKS];
	struct source listener, told, end;
	int epoll, control;
	uint16_t port, control_port;
	pthread_t loop_thread, control_thread;
	unsigned clients;
	bool over;
	/* Under the lock: who has been told by granted. */
	pthread_mutex_t lock;
	struct client *first, **last;
	uint32_t *wait_us;
	unsigned waits;
};

/* Sockets. */

uint64_t
now_ns(void)
{
	struct timespec now;

	must(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

static int
new_socket(struct sockaddr_in *address, uint16_t port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;

	must(fd >= 0);
	must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
	memset(address, 0, sizeof(*address));
	address->sin_family = AF_INET;
	address->sin_port = htons(port);
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return fd;
}

int
listen_on(uint16_t *port)
{
	struct sockaddr_in address;
	socklen_t size = sizeof(address);
	int fd = new_socket(&address, 0);

	must(bind(fd, (struct sockaddr *)&address, size) == 0);
	must(listen(fd, SOMAXCONN) == 0);
	must(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
	*port = ntohs(address.sin_port);
	return fd;
}

int
connect_to(uint16_t port)
{
	struct sockaddr_in address;
	int fd = new_socket(&address, port);

	must(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

static void
watch(struct pool *pool, struct source *source, void (*ready)(struct source *),
    int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	source->pool = pool;
	source->ready = ready;
	source->fd = fd;
	must(epoll_ctl(pool->epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* Lines are short: they fit into the socket's buffer, unless the other end has
 * gone, which its next event says. */
static void
send_text(const struct source *to, const char *text)
{
	if (to->fd >= 0)
		(void)send(to->fd, text, strlen(text), MSG_NOSIGNAL);
}

/* Clients. */

static void client_next(struct client *client);

static void
client_free(struct client *client)
{
	client->source.pool->clients--;
	free(client);
}

/* Its connections are not its own any more. Whether it is still there. */
static bool
client_done(struct client *client)
{
	unsigned i;

	for (i = 0; i < client->links; i++)
		client->link[i]->line--;
	client->busy = false;
	if (client->source.fd >= 0)
		return true;
	client_free(client);
	return false;
}

static void
client_granted(struct client *client)
{
	unsigned i;

	client->answers = 0;
	for (i = 0; i < client->links; i++) {
		must(client->link[i]->client == NULL);
		client->link[i]->client = client;
		send_text(&client->link[i]->source, client->line);
	}
}

static void
granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct client *client = arg;
	struct pool *pool = client->source.pool;

	(void)request;
	client->grant = grant;
	client->told_ns = now_ns();
	client->next = NULL;
	must(pthread_mutex_lock(&pool->lock) == 0);
	*pool->last = client;
	pool->last = &client->next;
	must(eventfd_write(pool->told.fd, 1) == 0);
	must(pthread_mutex_unlock(&pool->lock) == 0);
}

static void
client_told(struct client *client)
{
	struct pool *pool = client->source.pool;
	bool gone = client->source.fd < 0;

	if (client->grant == HWT_GRANTED && pool->waits < SAMPLES_MAX)
		pool->wait_us[pool->waits++] =
		    (uint32_t)((client->told_ns - client->asked_ns) / 1000);
	if (client->grant == HWT_GRANTED && !gone) {
		client_granted(client);
		return;
	}
	if (client->grant == HWT_GRANTED)
		must(hwt_checkout_release(pool->checkout, &client->request) ==
		    0);
	send_text(&client->source, "busy\n");
	if (client_done(client))
		client_next(client);
}

static void
told_ready(struct source *source)
{
	struct pool *pool = source->pool;
	struct client *client, *next;
	eventfd_t count;

	must(eventfd_read(source->fd, &count) == 0);
	must(pthread_mutex_lock(&pool->lock) == 0);
	client = pool->first;
	pool->first = NULL;
	pool->last = &pool->first;
	must(pthread_mutex_unlock(&pool->lock) == 0);
	for (; client != NULL; client = next) {
		next = client->next;
		client_told(client);
	}
}

/* The one with the shortest line, or two that stand side by side. */
static void
choose_links(struct client *client)
{
	struct link *link = client->source.pool->link;
	unsigned count = client->links;
	unsigned i, best = 0;
	unsigned line, shortest = ~0u;

	for (i = 0; i + count <= LINKS; i++) {
		line = link[i].line + link[i + count - 1].line;
		if (line < shortest) {
			shortest = line;
			best = i;
		}
	}
	for (i = 0; i < count; i++) {
		client->link[i] = &link[best + i];
		client->link[i]->line++;
		client->set[i] = &client->link[i]->object;
	}
	must(hwt_request_init(
		 &client->request, client->set, count, granted, client) == 0);
}

static void
client_ask(struct client *client, unsigned wait_ms)
{
	int result;

	choose_links(client);
	client->busy = true;
	client->asked_ns = now_ns();
	result = hwt_checkout_acquire(
	    client->source.pool->checkout, &client->request, HWT_MS(wait_ms));
	must(result == 0 || result == 1);
	if (result == 0)
		client_granted(client);
}

/* One line. */
static void
client_line(struct client *client, const char *line)
{
	char text[61];
	unsigned wait_ms;

	if (sscanf(line, "get %u %60s", &wait_ms, text) == 2)
		client->links = 1;
	else if (sscanf(line, "pair %u %60s", &wait_ms, text) == 2)
		client->links = 2;
	else
		client->links = 0;
	if (client->links == 0) {
		send_text(&client->source, "what?\n");
		return;
	}
	(void)snprintf(client->line, LINE_SIZE, "%s\n", text);
	client_ask(client, wait_ms);
}

/* The lines that were read, up to a request. */
static void
client_next(struct client *client)
{
	char line[sizeof(client->text)];
	size_t length;
	char *end;

	while (!client->busy &&
	    (end = memchr(client->text, '\n', client->used)) != NULL) {
		length = (size_t)(end + 1 - client->text);
		memcpy(line, client->text, length);
		line[length - 1] = '\0';
		client->used -= length;
		memmove(client->text, end + 1, client->used);
		client_line(client, line);
	}
}

/* Where it waits, granted comes in any case; where it was granted, the backend
 * will answer. */
static void
client_gone(struct client *client)
{
	must(close(client->source.fd) == 0);
	client->source.fd = -1;
	if (!client->busy)
		client_free(client);
	else
		(void)hwt_checkout_cancel(
		    client->source.pool->checkout, &client->request);
}

static void
client_ready(struct source *source)
{
	struct client *client = (struct client *)source;
	ssize_t count = recv(source->fd, client->text + client->used,
	    sizeof(client->text) - client->used, MSG_DONTWAIT);

	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* End, error, or a line that is too long. */
	if (count <= 0) {
		client_gone(client);
		return;
	}
	client->used += (size_t)count;
	client_next(client);
}

static void
listener_ready(struct source *source)
{
	struct client *client = calloc(1, sizeof(*client));
	int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC);
	int on = 1;

	must(client != NULL && fd >= 0);
	must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
	source->pool->clients++;
	watch(source->pool, &client->source, client_ready, fd);
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): epoll hands it back */
}

/* The backend answers in one piece, since it was asked so. */
static void
link_ready(struct source *source)
{
	struct link *link = (struct link *)source;
	struct client *client = link->client;
	char text[LINE_SIZE + 1];
	ssize_t count = recv(source->fd, text, LINE_SIZE, MSG_DONTWAIT);

	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	must(count > 0 && client != NULL && text[count - 1] == '\n');
	text[count] = '\0';
	link->client = NULL;
	send_text(&client->source, text);
	if (++client->answers < client->links)
		return;
	must(hwt_checkout_release(source->pool->checkout, &client->request) ==
	    0);
	if (client_done(client))
		client_next(client);
}

/* Control. */

static void
control_answer(struct pool *pool, const char *line, char *answer, size_t size)
{
	struct hwt_checkout_stats stats;
	unsigned wait_ms;
	int result = -EINVAL;

	if (sscanf(line, "PAUSE %u", &wait_ms) == 1)
		result = hwt_checkout_pause(pool->checkout, HWT_MS(wait_ms));
	else if (strncmp(line, "RESUME", 6) == 0)
		result = hwt_checkout_resume(pool->checkout);
	if (strncmp(line, "STATS", 5) == 0) {
		must(hwt_checkout_read_stats(pool->checkout, &stats) == 0);
		(void)snprintf(answer, size, "%llu %llu\n",
		    (unsigned long long)stats.granted,
		    (unsigned long long)stats.out);
	} else if (result == 0) {
		(void)snprintf(answer, size, "OK\n");
	} else if (result == -ETIMEDOUT) {
		(void)snprintf(answer, size, "TIMEOUT\n");
	} else {
		(void)snprintf(answer, size, "%s\n", strerror(-result));
	}
}

static void *
control_loop(void *arg)
{
	struct pool *pool = arg;
	char line[LINE_SIZE], answer[LINE_SIZE];
	ssize_t count;
	int fd;

	while ((fd = accept4(pool->control, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		while ((count = recv(fd, line, sizeof(line) - 1, 0)) > 0) {
			line[count] = '\0';
			control_answer(pool, line, answer, sizeof(answer));
			(void)send(fd, answer, strlen(answer), MSG_NOSIGNAL);
		}
		must(close(fd) == 0);
	}
	return NULL;
}

/* The loop. */

static void
end_ready(struct source *source)
{
	eventfd_t count;

	must(eventfd_read(source->fd, &count) == 0);
	source->pool->over = true;
}

static void *
event_loop(void *arg)
{
	struct pool *pool = arg;
	struct epoll_event event[EVENTS];
	struct source *source;
	int i, count;

	while (!pool->over || pool->clients > 0) {
		count = epoll_wait(pool->epoll, event, EVENTS, -1);
		for (i = 0; i < count; i++) {
			source = event[i].data.ptr;
			source->ready(source);
		}
	}
	return NULL;
}

struct pool *
pool_open(uint16_t backend)
{
	const struct hwt_options ticks = {.tick_ns = HWT_MS(1)};
	struct pool *pool = calloc(1, sizeof(*pool));
	unsigned i;

	must(pool != NULL);
	pool->wait_us = calloc(SAMPLES_MAX, sizeof(uint32_t));
	pool->last = &pool->first;
	pool->epoll = epoll_create1(EPOLL_CLOEXEC);
	must(pool->wait_us != NULL && pool->epoll >= 0);
	must(pthread_mutex_init(&pool->lock, NULL) == 0);
	must(hwt_create(&pool->timer, &ticks) == 0);
	must(hwt_checkout_create(&pool->checkout, pool->timer, NULL) == 0);
	for (i = 0; i < LINKS; i++) {
		must(hwt_object_init(
			 pool->checkout, &pool->link[i].object, i) == 0);
		watch(pool, &pool->link[i].source, link_ready,
		    connect_to(backend));
	}
	watch(pool, &pool->listener, listener_ready, listen_on(&pool->port));
	watch(pool, &pool->told, told_ready, eventfd(0, EFD_CLOEXEC));
	watch(pool, &pool->end, end_ready, eventfd(0, EFD_CLOEXEC));
	pool->control = listen_on(&pool->control_port);
	must(pthread_create(&pool->loop_thread, NULL, event_loop, pool) == 0);
	must(pthread_create(&pool->control_thread, NULL, control_loop, pool) ==
	    0);
	return pool;
}

uint16_t
pool_port(const struct pool *pool)
{
	return pool->port;
}

uint16_t
pool_control_port(const struct pool *pool)
{
	return pool->control_port;
}

static int
compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void
pool_count(struct pool *pool, struct pool_counts *counts)
{
	struct hwt_checkout_stats stats;
	unsigned half, most;

	must(hwt_checkout_read_stats(pool->checkout, &stats) == 0);
	*counts = (struct pool_counts){.granted = stats.granted,
	    .waited = stats.waited,
	    .expired = stats.expired,
	    .out = stats.out,
	    .waiting = stats.waiting};
	qsort(pool->wait_us, pool->waits, sizeof(uint32_t), compare);
	if (pool->waits > 0) {
		half = pool->waits / 2;
		most = (unsigned)(pool->waits * 99ull / 100);
		counts->wait_p50_ms = pool->wait_us[half] / 1e3;
		counts->wait_p99_ms = pool->wait_us[most] / 1e3;
	}
}

void
pool_close(struct pool *pool, struct pool_counts *counts)
{
	unsigned i;

	must(eventfd_write(pool->end.fd, 1) == 0);
	must(pthread_join(pool->loop_thread, NULL) == 0);
	must(shutdown(pool->control, SHUT_RDWR) == 0);
	must(pthread_join(pool->control_thread, NULL) == 0);
	pool_count(pool, counts);
	/* It says -EBUSY where something is out. */
	must(hwt_checkout_destroy(pool->checkout) == 0);
	must(hwt_stop(pool->timer, NULL) == 0);
	must(hwt_destroy(pool->timer) == 0);
	for (i = 0; i < LINKS; i++)
		must(close(pool->link[i].source.fd) == 0);
	must(close(pool->listener.fd) == 0 && close(pool->told.fd) == 0);
	must(close(pool->end.fd) == 0 && close(pool->control) == 0);
	must(close(pool->epoll) == 0);
	free(pool->wait_us);
	free(pool);
}
