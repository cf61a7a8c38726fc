/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clients: many that wait for a topic, each over and over, one that posts,
 * and some that vanish in the middle. They keep account: each request was
 * answered with a message that is newer than what it asked for, or with 204 not
 * before its time; and what the server counts is what they have seen.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "longpoll.h"

#define EVENTS 256
#define WAIT_MIN_MS 200u
#define WAIT_MAX_MS 2000u
#define POSTS_PER_S 200u
#define VANISH_PER_S 100u

struct client {
	int fd;
	bool waiting;
	unsigned topic;
	uint64_t after, sent_ns, wait_ns;
};

static struct {
	uint16_t port;
	unsigned topics, waiters;
	int epoll, poster;
	struct client *client;
	uint64_t asked, messages, timeouts, vanished, wrong, posts;
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
	int on = 1;

	if (fd < 0 ||
	    connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		perror("longpoll: connect");
		exit(1);
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void
client_connect(struct client *client)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

	client->fd = connect_server();
	client->topic = draw(play.topics);
	client->after = 0;
	(void)epoll_ctl(play.epoll, EPOLL_CTL_ADD, client->fd, &event);
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
	client->waiting = true;
	play.asked++;
	if (send(client->fd, text, (size_t)length, MSG_NOSIGNAL) != length)
		play.wrong++;
}

static uint64_t
longer(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* A message is the moment at which it was posted. */
static void
client_answered(struct client *client, const char *text)
{
	uint64_t now = now_ns();
	unsigned long long number, posted_ns;
	const char *body = strstr(text, "\r\n\r\n");

	client->waiting = false;
	if (strncmp(text, "HTTP/1.1 204", 12) == 0) {
		play.timeouts++;
		if (now < client->sent_ns + client->wait_ns)
			play.wrong++;
		else
			play.late_ns = longer(play.late_ns,
			    now - client->sent_ns - client->wait_ns);
	} else if (body != NULL && strncmp(text, "HTTP/1.1 200", 12) == 0 &&
	    sscanf(body, "%llu %llu", &number, &posted_ns) == 2 &&
	    number > client->after) {
		play.messages++;
		client->after = number;
		if (posted_ns > client->sent_ns)
			play.answer_ns =
			    longer(play.answer_ns, now - posted_ns);
	} else {
		play.wrong++;
	}
	if (!play.ending)
		client_ask(client);
}

static void
client_readable(struct client *client)
{
	char text[1024];
	ssize_t count = recv(client->fd, text, sizeof(text) - 1, MSG_DONTWAIT);

	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (count <= 0) {
		play.wrong++;
		(void)epoll_ctl(play.epoll, EPOLL_CTL_DEL, client->fd, NULL);
		return;
	}
	text[count] = '\0';
	client_answered(client, text);
}

static void
client_vanish(struct client *client)
{
	if (!client->waiting)
		return;
	(void)close(client->fd);
	client->waiting = false;
	play.vanished++;
	client_connect(client);
	client_ask(client);
}

/* The poster waits for its answer. */
static ssize_t
talk(const char *text, char *answer, size_t size)
{
	ssize_t count;

	if (send(play.poster, text, strlen(text), MSG_NOSIGNAL) < 0)
		return -1;
	count = recv(play.poster, answer, size - 1, 0);
	answer[count > 0 ? count : 0] = '\0';
	return count;
}

static void
post(void)
{
	char body[32], text[160], answer[512];

	(void)snprintf(
	    body, sizeof(body), "%llu", (unsigned long long)now_ns());
	(void)snprintf(text, sizeof(text),
	    "POST /topic%u HTTP/1.1\r\nContent-Length: %zu\r\n\r\n%s",
	    draw(play.topics), strlen(body), body);
	if (talk(text, answer, sizeof(answer)) <= 0)
		play.wrong++;
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

static bool
all_answered(void)
{
	unsigned i;

	for (i = 0; i < play.waiters; i++) {
		if (play.client[i].waiting)
			return false;
	}
	return true;
}

/* What the server says; a client's end may be on its way to it. */
static bool
compare_with_server(void)
{
	unsigned long long waits, pending, links, keys, completed, expired,
	    cancelled, rss;
	char text[1024];
	const char *body;
	unsigned tries;

	for (tries = 0; tries < 100; tries++) {
		if (talk("GET /_stats HTTP/1.1\r\n\r\n", text, sizeof(text)) <=
		    0)
			return false;
		body = strstr(text, "waits");
		if (body == NULL ||
		    sscanf(body,
			"waits %llu pending %llu links %llu keys %llu "
			"completed %llu expired %llu cancelled %llu rss %llu",
			&waits, &pending, &links, &keys, &completed, &expired,
			&cancelled, &rss) != 8)
			return false;
		if (pending == 0)
			break;
		(void)usleep(50000);
	}
	printf("server: operations    %llu: %llu completed, %llu expired, %llu "
	       "cancelled\n",
	    waits, completed, expired, cancelled);
	printf("server: left over     %llu pending, completed but retained "
	       "%llu\n",
	    pending, links + keys);
	printf("server: RSS           %.1f MB\n", (double)rss / 1e6);
	return pending == 0 && links == 0 && keys == 0 &&
	    completed + expired + cancelled == waits &&
	    play.timeouts <= expired &&
	    expired - play.timeouts <= play.vanished &&
	    cancelled <= play.vanished;
}

static bool
conclude(unsigned seconds)
{
	bool good;

	printf("%-22s %u on %u topics, for %u s\n", "waiters", play.waiters,
	    play.topics, seconds);
	printf("%-22s %llu, by %llu posts\n", "wake-ups",
	    (unsigned long long)play.messages, (unsigned long long)play.posts);
	printf("%-22s %llu\n", "time-outs", (unsigned long long)play.timeouts);
	printf("%-22s %llu\n", "vanished", (unsigned long long)play.vanished);
	printf("%-22s %.2f ms at most\n", "post to answer",
	    (double)play.answer_ns / 1e6);
	printf("%-22s %.2f ms at most\n", "lateness of time-outs",
	    (double)play.late_ns / 1e6);
	good = compare_with_server();
	good = good && play.wrong == 0 && play.messages > 0 &&
	    play.timeouts > 0 && play.vanished > 0 &&
	    play.asked == play.messages + play.timeouts + play.vanished;
	printf("%s\n", good ? "all adds up" : "FAILED: it does not add up");
	return good;
}

bool
clients_run(uint16_t port, unsigned waiters, unsigned topics, unsigned seconds)
{
	uint64_t begun_ns, elapsed_ns, posts, vanishes = 0, i;

	play.port = port;
	play.topics = topics;
	play.waiters = waiters;
	play.random = 42;
	play.epoll = epoll_create1(EPOLL_CLOEXEC);
	play.poster = connect_server();
	play.client = calloc(waiters, sizeof(*play.client));
	if (play.client == NULL)
		return false;
	for (i = 0; i < waiters; i++) {
		client_connect(&play.client[i]);
		client_ask(&play.client[i]);
		handle_events(0);
	}
	begun_ns = now_ns();
	for (posts = 0; posts < seconds * POSTS_PER_S;) {
		handle_events(1);
		elapsed_ns = now_ns() - begun_ns;
		for (; posts < elapsed_ns * POSTS_PER_S / 1000000000u; posts++)
			post();
		for (; vanishes < elapsed_ns * VANISH_PER_S / 1000000000u;
		     vanishes++)
			client_vanish(&play.client[draw(waiters)]);
	}
	play.ending = true;
	while (!all_answered() &&
	    now_ns() - begun_ns < (seconds + 60) * UINT64_C(1000000000))
		handle_events(10);
	return conclude(seconds);
}
