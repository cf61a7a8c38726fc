/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool [CLIENTS [SECONDS]]: a backend, the proxy before it, clients that ask
 * over and over, each with a wait limit of its own and every tenth time for two
 * connections, and three pauses while they do. Each request is answered with
 * what it asked, on each connection, or with "busy" not before its limit; and
 * what the proxy counts is what the clients have seen. The status is 0 if all
 * adds up. Without enough file descriptors there are fewer clients.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../must.h"
#include "pool.h"

#define MS UINT64_C(1000000)

enum {
	CLIENTS = 500,
	SECONDS = 6,
	SERVICE_MS = 3, /* of a request, by the backend */
	STALL_EVERY_MS = 1600,
	STALL_MS = 300,
	THINK_MS = 300, /* of a client, at most */
	LIMIT_MIN_MS = 50,
	LIMIT_MAX_MS = 500,
	PAUSES = 3,
	PAUSED_MS = 150,
	EVENTS = 64
};

struct client {
	int fd;
	bool waiting, pair;
	unsigned number, limit_ms;
	uint64_t asked_ns, next_ns;
	size_t used;
	char text[LINE_SIZE * 3], expected[LINE_SIZE];
};

static struct {
	uint64_t begun_ns, until_ns, random;
	struct client *client;
	unsigned clients;
	int epoll;
	uint64_t asked, answered, pairs, busy, wrong;
} play;

static unsigned
draw(unsigned limit)
{
	play.random = play.random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)((play.random >> 33) % limit);
}

static void
sleep_until(uint64_t at_ns)
{
	struct timespec at = {
	    (time_t)(at_ns / (1000 * MS)), (long)(at_ns % (1000 * MS))};

	while (
	    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		continue;
}

/* The backend: a thread for each connection. Who asks while it has not answered
 * yet shares a connection with somebody. */

static void *
backend_serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char line[LINE_SIZE];
	uint64_t since_ns;
	ssize_t count;

	while ((count = recv(fd, line, sizeof(line), 0)) > 0) {
		must(memchr(line, '\n', (size_t)count) == line + count - 1);
		sleep_until(now_ns() + SERVICE_MS * MS);
		since_ns = (now_ns() - play.begun_ns) % (STALL_EVERY_MS * MS);
		if (since_ns > (STALL_EVERY_MS - STALL_MS) * MS)
			sleep_until(now_ns() + STALL_EVERY_MS * MS - since_ns);
		must(recv(fd, line + count - 1, 1, MSG_DONTWAIT) <= 0);
		must(send(fd, line, (size_t)count, MSG_NOSIGNAL) == count);
	}
	must(close(fd) == 0);
	return NULL;
}

static void *
backend_run(void *arg)
{
	int listener = (int)(intptr_t)arg;
	pthread_t thread[LINKS];
	unsigned i;
	int fd;

	for (i = 0; i < LINKS; i++) {
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		must(fd >= 0);
		must(pthread_create(&thread[i], NULL, backend_serve,
			 (void *)(intptr_t)fd) == 0);
	}
	for (i = 0; i < LINKS; i++)
		must(pthread_join(thread[i], NULL) == 0);
	must(close(listener) == 0);
	return NULL;
}

/* The clients. */

static void
client_connect(struct client *client, unsigned number, uint16_t port)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

	client->number = number;
	client->limit_ms =
	    LIMIT_MIN_MS + number % 10 * (LIMIT_MAX_MS - LIMIT_MIN_MS) / 9;
	client->fd = connect_to(port);
	client->next_ns = now_ns() + draw(THINK_MS) * MS;
	must(epoll_ctl(play.epoll, EPOLL_CTL_ADD, client->fd, &event) == 0);
}

static void
client_ask(struct client *client)
{
	unsigned long long number = ++play.asked;
	char text[LINE_SIZE];
	int length;

	client->pair = number % 10 == 0;
	length = snprintf(text, sizeof(text), "%s %u %u:%llu\n",
	    client->pair ? "pair" : "get", client->limit_ms, client->number,
	    number);
	(void)snprintf(
	    client->expected, LINE_SIZE, "%u:%llu\n", client->number, number);
	client->asked_ns = now_ns();
	client->waiting = true;
	must(send(client->fd, text, (size_t)length, MSG_NOSIGNAL) == length);
}

/* True: it is whole. A pair is answered twice. */
static bool
judge(struct client *client)
{
	size_t length = strlen(client->expected);

	if (strcmp(client->text, "busy\n") == 0) {
		play.busy++;
		if (now_ns() < client->asked_ns + client->limit_ms * MS)
			play.wrong++;
		return true;
	}
	if (client->used < length * (client->pair ? 2 : 1))
		return false;
	play.answered++;
	play.pairs += client->pair;
	if (strncmp(client->text, client->expected, length) != 0 ||
	    strcmp(client->text + length,
		client->pair ? client->expected : "") != 0)
		play.wrong++;
	return true;
}

static void
client_ready(struct client *client)
{
	ssize_t count = recv(client->fd, client->text + client->used,
	    sizeof(client->text) - client->used - 1, MSG_DONTWAIT);

	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	must(count > 0 && client->waiting);
	client->used += (size_t)count;
	client->text[client->used] = '\0';
	if (!judge(client))
		return;
	client->used = 0;
	client->waiting = false;
	client->next_ns = now_ns() + draw(THINK_MS) * MS;
}

/* True: some wait for answers. */
static bool
ask_all(bool ending)
{
	uint64_t now = now_ns();
	bool waiting = false;
	unsigned i;

	for (i = 0; i < play.clients; i++) {
		struct client *client = &play.client[i];

		if (!client->waiting && !ending && client->next_ns <= now)
			client_ask(client);
		waiting = waiting || client->waiting;
	}
	return waiting;
}

static void
play_clients(void)
{
	struct epoll_event event[EVENTS];
	bool ending = false;
	int count;

	while (ask_all(ending) || !ending) {
		count = epoll_wait(play.epoll, event, EVENTS, 1);
		while (count-- > 0)
			client_ready(event[count].data.ptr);
		ending = now_ns() >= play.until_ns;
	}
}

/* The pauses. */

static struct {
	uint16_t port;
	unsigned done;
	uint64_t longest_ns;
	unsigned long long granted; /* during them */
} pauses;

/* Waits for the answer. */
static void
talk(int fd, const char *line, char *answer)
{
	ssize_t count;

	must(send(fd, line, strlen(line), MSG_NOSIGNAL) > 0);
	count = recv(fd, answer, LINE_SIZE - 1, 0);
	must(count > 0);
	answer[count] = '\0';
}

static unsigned long long
granted_while_paused(int fd)
{
	unsigned long long granted, out;
	char answer[LINE_SIZE];

	talk(fd, "STATS\n", answer);
	must(sscanf(answer, "%llu %llu", &granted, &out) == 2);
	must(out == 0);
	return granted;
}

static void
pause_once(int fd)
{
	char answer[LINE_SIZE];
	uint64_t begun_ns = now_ns();
	uint64_t took_ns;
	unsigned long long granted;

	talk(fd, "PAUSE 60000\n", answer);
	must(strcmp(answer, "OK\n") == 0);
	took_ns = now_ns() - begun_ns;
	if (took_ns > pauses.longest_ns)
		pauses.longest_ns = took_ns;
	granted = granted_while_paused(fd);
	sleep_until(now_ns() + PAUSED_MS * MS);
	pauses.granted += granted_while_paused(fd) - granted;
	talk(fd, "RESUME\n", answer);
	must(strcmp(answer, "OK\n") == 0);
	pauses.done++;
}

static void *
play_pauses(void *unused)
{
	uint64_t length_ns = play.until_ns - play.begun_ns;
	int fd = connect_to(pauses.port);
	unsigned i;

	for (i = 1; i <= PAUSES; i++) {
		sleep_until(play.begun_ns + i * length_ns / (PAUSES + 1));
		pause_once(fd);
	}
	must(close(fd) == 0);
	return unused;
}

/* The account. */

static bool
conclude(const struct pool_counts *pool)
{
	bool good = pool->granted == play.answered &&
	    pool->expired == play.busy &&
	    play.asked == play.answered + play.busy && play.wrong == 0 &&
	    play.pairs > 0 && pool->waited > 0 && pool->expired > 0 &&
	    pauses.done == PAUSES && pauses.granted == 0 && pool->out == 0 &&
	    pool->waiting == 0;

	printf("%-28s %llu, of %u clients; %llu for two connections\n",
	    "grants", (unsigned long long)pool->granted, play.clients,
	    (unsigned long long)play.pairs);
	printf("%-28s %llu\n", "waits", (unsigned long long)pool->waited);
	printf("%-28s %llu\n", "  that ended by deadline",
	    (unsigned long long)pool->expired);
	printf("%-28s p50 %.2f ms, p99 %.2f ms\n", "  that were granted",
	    pool->wait_p50_ms, pool->wait_p99_ms);
	printf("%-28s %u, longest until nothing was out: %.2f ms\n", "pauses",
	    pauses.done, (double)pauses.longest_ns / 1e6);
	printf("%-28s %llu\n", "  granted during them", pauses.granted);
	printf("%-28s %llu out, %llu waiting\n", "at the end",
	    (unsigned long long)pool->out, (unsigned long long)pool->waiting);
	printf("%s\n", good ? "all adds up" : "FAILED: it does not add up");
	return good;
}

/* Each has two ends here. */
static unsigned
clients_possible(unsigned wanted)
{
	struct rlimit limit;
	rlim_t possible;

	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	must(limit.rlim_cur > 200);
	possible = (limit.rlim_cur - 100) / 2;
	return wanted < possible ? wanted : (unsigned)possible;
}

int
main(int argc, char **argv)
{
	unsigned wanted =
	    argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : CLIENTS;
	unsigned seconds =
	    argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : SECONDS;
	pthread_t backend, pauser;
	struct pool_counts counts;
	struct pool *pool;
	uint16_t port;
	unsigned i;
	int listener;

	must(wanted > 0 && seconds > 0);
	play.clients = clients_possible(wanted);
	play.client = calloc(play.clients, sizeof(*play.client));
	play.epoll = epoll_create1(EPOLL_CLOEXEC);
	must(play.client != NULL && play.epoll >= 0);
	play.begun_ns = now_ns();
	listener = listen_on(&port);
	must(pthread_create(
		 &backend, NULL, backend_run, (void *)(intptr_t)listener) == 0);
	pool = pool_open(port);
	pauses.port = pool_control_port(pool);
	for (i = 0; i < play.clients; i++)
		client_connect(&play.client[i], i, pool_port(pool));
	play.until_ns = now_ns() + seconds * (1000 * MS);
	must(pthread_create(&pauser, NULL, play_pauses, NULL) == 0);
	play_clients();
	must(pthread_join(pauser, NULL) == 0);
	for (i = 0; i < play.clients; i++)
		must(close(play.client[i].fd) == 0);
	pool_close(pool, &counts);
	must(pthread_join(backend, NULL) == 0);
	must(close(play.epoll) == 0);
	free(play.client);
	return conclude(&counts) ? 0 : 1;
}
