/* SPDX-License-Identifier: Apache-2.0 */
/*
 * longpoll PORT serves until its standard input ends. longpoll demo [WAITERS]
 * serves 10,000 clients of another process: many that wait for a topic, each
 * over and over, one that posts, and some that vanish while they wait. They
 * keep account: each request was answered with a message that is newer than its
 * after, or with 204 not before its time. The status is 0 if all adds up and
 * the server has nothing left. Without enough file descriptors there are fewer
 * clients.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../must.h"
#include "longpoll.h"

enum {
	WAITERS = 10000,
	TOPICS = 100,
	SECONDS = 6,
	EVENTS = 256,
	WAIT_MIN_MS = 200,
	WAIT_MAX_MS = 2000,
	POSTS_PER_S = 200
};

struct client {
	int fd;
	unsigned topic;
	uint64_t after, sent_ns, wait_ns;
};

static struct {
	uint16_t port;
	int epoll, poster;
	struct client *client;
	unsigned long long asked, messages, timeouts, vanished, wrong, posts;
	uint64_t random;
	bool ending;
	uint64_t answer_ns, late_ns; /* the longest */
} play;

static uint64_t
now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static unsigned
draw(unsigned limit)
{
	play.random = play.random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)((play.random >> 33) % limit);
}

static int
connect_server(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	    .sin_port = htons(play.port),
	    .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	must(fd >= 0);
	must(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

static void
client_ask(struct client *client)
{
	unsigned wait_ms = WAIT_MIN_MS + draw(WAIT_MAX_MS - WAIT_MIN_MS);
	char text[128];
	int length = snprintf(text, sizeof(text),
	    "GET /topic%u?after=%llu&wait_ms=%u HTTP/1.1\r\n\r\n",
	    client->topic, (unsigned long long)client->after, wait_ms);

	client->wait_ns = wait_ms * UINT64_C(1000000);
	client->sent_ns = now_ns();

	play.asked++;
	must(send(client->fd, text, (size_t)length, MSG_NOSIGNAL) == length);
}

static void
client_start(struct client *client)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

	client->fd = connect_server();
	client->topic = draw(TOPICS);
	client->after = 0;
	must(epoll_ctl(play.epoll, EPOLL_CTL_ADD, client->fd, &event) == 0);
	client_ask(client);
}

/* A message is the moment at which it was posted. */
static void
client_readable(struct client *client)
{
	uint64_t now, until = client->sent_ns + client->wait_ns;
	unsigned long long number, posted_ns;
	char text[1024];
	ssize_t count = recv(client->fd, text, sizeof(text) - 1, 0);
	const char *body;

	must(count > 0);
	text[count] = '\0';
	now = now_ns();
	body = strstr(text, "\r\n\r\n");
	if (strncmp(text, "HTTP/1.1 204", 12) == 0 && now >= until) {
		play.timeouts++;
		if (play.late_ns < now - until)
			play.late_ns = now - until;
	} else if (body != NULL && strncmp(text, "HTTP/1.1 200", 12) == 0 &&
	    sscanf(body, "%llu %llu", &number, &posted_ns) == 2 &&
	    number > client->after) {
		play.messages++;
		client->after = number;
		if (posted_ns > client->sent_ns &&
		    play.answer_ns < now - posted_ns)
			play.answer_ns = now - posted_ns;
	} else {
		play.wrong++;
	}
	if (!play.ending)
		client_ask(client);
}

static void
client_vanish(struct client *client)
{
	(void)close(client->fd);
	play.vanished++;
	client_start(client);
}

/* The poster waits for its answer. */
static void
talk(const char *text, char *answer, size_t size)
{
	ssize_t count;

	must(send(play.poster, text, strlen(text), MSG_NOSIGNAL) > 0);
	count = recv(play.poster, answer, size - 1, 0);
	must(count > 0);
	answer[count] = '\0';
}

static void
post(void)
{
	char body[32], text[160], answer[512];

	(void)snprintf(
	    body, sizeof(body), "%llu", (unsigned long long)now_ns());
	(void)snprintf(text, sizeof(text),
	    "POST /topic%u HTTP/1.1\r\nContent-Length: %zu\r\n\r\n%s",
	    draw(TOPICS), strlen(body), body);
	talk(text, answer, sizeof(answer));
	play.posts++;
}

static void
handle_events(int wait_ms)
{
	struct epoll_event event[EVENTS];
	int count = epoll_wait(play.epoll, event, EVENTS, wait_ms);

	while (count-- > 0)
		client_readable(event[count].data.ptr);
}

/* The server may not have seen yet that a client has vanished. */
static bool
server_is_idle(void)
{
	char text[1024];
	unsigned tries = 0;

	do {
		(void)usleep(50000);
		talk("GET /_stats HTTP/1.1\r\n\r\n", text, sizeof(text));
		if (strstr(text, " pending 0 links 0 keys 0 ") != NULL)
			return true;
	} while (tries++ < 100);
	return false;
}

static bool
conclude(void)
{
	bool good = server_is_idle() && play.wrong == 0 && play.messages > 0 &&
	    play.timeouts > 0 && play.vanished > 0;

	printf("wake-ups   %llu, by %llu posts; at most %.2f ms later\n",
	    play.messages, play.posts, (double)play.answer_ns / 1e6);
	printf("time-outs  %llu, at most %.2f ms late\n", play.timeouts,
	    (double)play.late_ns / 1e6);
	printf("vanished   %llu\n%s\n", play.vanished,
	    good ? "all adds up" : "FAILED: it does not add up");
	return good;
}

static bool
clients_run(uint16_t port, unsigned waiters)
{
	uint64_t begun_ns, elapsed_ns;
	unsigned i;

	printf("%u waiters on %u topics, for %u s\n", waiters, TOPICS, SECONDS);
	play.port = port;
	play.random = 42;
	play.epoll = epoll_create1(EPOLL_CLOEXEC);
	play.poster = connect_server();
	play.client = calloc(waiters, sizeof(*play.client));
	must(play.client != NULL);
	for (i = 0; i < waiters; i++) {
		client_start(&play.client[i]);
		handle_events(0);
	}
	begun_ns = now_ns();
	while (play.posts < SECONDS * POSTS_PER_S) {
		handle_events(1);
		elapsed_ns = now_ns() - begun_ns;
		while (play.posts < elapsed_ns * POSTS_PER_S / 1000000000u) {
			post();
			if (play.posts % 2 == 0)
				client_vanish(&play.client[draw(waiters)]);
		}
	}
	play.ending = true;
	while (play.asked !=
	    play.messages + play.timeouts + play.vanished + play.wrong)
		handle_events(10);
	return conclude();
}

static bool
demo(uint16_t port, unsigned waiters)
{
	int ends[2], status = 1;
	pid_t child;

	must(pipe(ends) == 0);
	child = fork();
	if (child == 0) {
		(void)close(ends[0]);
		exit(clients_run(port, waiters) ? 0 : 1);
	}
	(void)close(ends[1]);
	server_run(ends[0]);
	(void)waitpid(child, &status, 0);
	return status == 0;
}

int
main(int argc, char **argv)
{
	bool shows = argc >= 2 && strcmp(argv[1], "demo") == 0, good = true;
	unsigned number = argc >= 2 + shows
	    ? (unsigned)strtoul(argv[1 + shows], NULL, 10)
	    : WAITERS;
	struct rlimit limit;
	uint16_t port;

	must(argc >= 2); /* longpoll PORT, or longpoll demo [WAITERS] */
	(void)getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	port = server_open(shows ? 0 : (uint16_t)number);
	if (shows) {
		if (limit.rlim_cur < number + 100)
			number = (unsigned)limit.rlim_cur / 2;
		good = demo(port, number);
	} else {
		printf("port %u\n", port);
		(void)fflush(stdout);
		server_run(STDIN_FILENO);
	}
	return server_close() && good ? 0 : 1;
}
