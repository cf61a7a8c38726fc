/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http DELAY_MS: a server on the loopback that answers each request 200 after
 * so long, on one thread. Its first line is its port. For each line on standard
 * input it prints, as JSON, what came since the line before: requests, how many
 * were answered at most at the same time, and how late they were, in ms from
 * what their Hwt-Due says to their arrival. It ends with its input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	CONNECTIONS = 32768, /* the greatest descriptor, and more */
	REQUEST_MAX = 2048, /* bytes, with the body */
	LATE_MAX = 60000, /* ms that are told apart */
	EVENTS = 256
};

/* One request at a time. */
static struct connection {
	char request[REQUEST_MAX];
	size_t length;
	uint32_t opened; /* counts those that had this descriptor */
} * connection;

/* Answers in the order of their requests, which is that of their times. */
static struct answer {
	uint64_t at_ms;
	uint32_t opened;
	int fd;
} * answer;
static uint32_t answer_first, answer_end;

static uint64_t delay_ms;
static int epoll;
static uint32_t requests, most, late[LATE_MAX + 1];

static uint64_t
time_ms(clockid_t clock)
{
	struct timespec now = {0};

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static _Noreturn void
die(const char *what)
{
	perror(what);
	exit(1);
}

static void
connection_end(int fd)
{
	connection[fd].opened++;
	connection[fd].length = 0;
	(void)close(fd);
}

static void
request_count(const char *head)
{
	const char *due = strcasestr(head, "\r\nhwt-due:");
	uint64_t now = time_ms(CLOCK_REALTIME), then;

	requests++;
	if (due == NULL)
		return;
	then = strtoull(due + strlen("\r\nhwt-due:"), NULL, 10);
	/* One that was early would be a great number, too. */
	late[now - then < LATE_MAX ? now - then : LATE_MAX]++;
}

/* If the request is whole. */
static void
request_take(int fd)
{
	struct connection *from = &connection[fd];
	const char *end, *length;
	size_t body = 0;

	from->request[from->length] = '\0';
	end = strstr(from->request, "\r\n\r\n");
	if (end == NULL)
		return;
	length = strcasestr(from->request, "\r\ncontent-length:");
	if (length != NULL && length < end)
		body =
		    strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
	if (from->length < (size_t)(end + 4 - from->request) + body)
		return;
	request_count(from->request);
	from->length = 0;
	answer[answer_end++ % CONNECTIONS] = (struct answer){
	    time_ms(CLOCK_MONOTONIC) + delay_ms, from->opened, fd};
	if (answer_end - answer_first > most)
		most = answer_end - answer_first;
}

static void
connection_read(int fd)
{
	struct connection *from = &connection[fd];
	ssize_t count = read(
	    fd, from->request + from->length, REQUEST_MAX - 1 - from->length);

	if (count < 0 && errno == EAGAIN)
		return;
	if (count <= 0) {
		connection_end(fd);
		return;
	}
	from->length += (size_t)count;
	request_take(fd);
}

static void
connections_accept(int listener)
{
	struct epoll_event event = {.events = EPOLLIN};
	const int on = 1;
	int fd;

	while ((fd = accept4(
		    listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		if (fd >= CONNECTIONS)
			die("too many connections");
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		event.data.fd = fd;
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
			die("epoll_ctl");
	}
}

static void
answers_send(void)
{
	static const char text[] =
	    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
	uint64_t now = time_ms(CLOCK_MONOTONIC);
	const struct answer *next;

	for (; answer_first != answer_end; answer_first++) {
		next = &answer[answer_first % CONNECTIONS];
		if (next->at_ms > now)
			break;
		if (connection[next->fd].opened == next->opened)
			(void)!write(next->fd, text, sizeof(text) - 1);
	}
}

static int
wait_ms(void)
{
	uint64_t now = time_ms(CLOCK_MONOTONIC), at;

	if (answer_first == answer_end)
		return -1;
	at = answer[answer_first % CONNECTIONS].at_ms;
	return at > now ? (int)(at - now) : 0;
}

/* The lateness that so many per cent had at most. */
static uint32_t
late_of(uint32_t percent)
{
	uint64_t count = 0, seen = 0;
	uint32_t ms;

	for (ms = 0; ms <= LATE_MAX; ms++)
		count += late[ms];
	for (ms = 0; ms < LATE_MAX; ms++) {
		seen += late[ms];
		if (seen * 100 >= count * percent)
			break;
	}
	return ms;
}

/* False: the input has ended. */
static bool
report(void)
{
	char line[256];

	if (read(STDIN_FILENO, line, sizeof(line)) <= 0)
		return false;
	(void)printf("{\"requests\": %u, \"most\": %u, \"p50\": %u, "
		     "\"p99\": %u, \"max\": %u}\n",
	    requests, most, late_of(50), late_of(99), late_of(100));
	(void)fflush(stdout);
	requests = 0;
	most = answer_end - answer_first;
	memset(late, 0, sizeof(late));
	return true;
}

static int
listener_open(void)
{
	struct sockaddr_in at = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    listen(fd, 4096) != 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &length) != 0)
		die("listen");
	(void)printf("%u\n", ntohs(at.sin_port));
	(void)fflush(stdout);
	return fd;
}

int
main(int argc, char **argv)
{
	const struct rlimit limit = {CONNECTIONS, CONNECTIONS};
	struct epoll_event event[EVENTS] = {{.events = EPOLLIN}};
	int listener = listener_open(), count, i;
	bool more = true;

	if (argc != 2)
		return 2;
	delay_ms = strtoull(argv[1], NULL, 10);
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	connection = calloc(CONNECTIONS, sizeof(*connection));
	answer = calloc(CONNECTIONS, sizeof(*answer));
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (connection == NULL || answer == NULL || epoll < 0)
		die("begin");
	event[0].data.fd = listener;
	(void)epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event[0]);
	event[0].data.fd = STDIN_FILENO;
	(void)epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event[0]);
	while (more) {
		count = epoll_wait(epoll, event, EVENTS, wait_ms());
		for (i = 0; i < count; i++) {
			if (event[i].data.fd == STDIN_FILENO)
				more = report();
			else if (event[i].data.fd == listener)
				connections_accept(listener);
			else
				connection_read(event[i].data.fd);
		}
		answers_send();
	}
	free(connection);
	free(answer);
	return 0;
}
