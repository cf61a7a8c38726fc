/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile - clients that hold a server up, in four ways, and some polite ones
 * among them that no server may cut.
 *
 *   hostile -p port [-n clients] [-k polite] [-d ms]
 *           [-H ms] [-I ms] [-R ms] [-D ms]
 *
 *   -n  clients for each of the four attacks (60)
 *   -k  polite clients (60)
 *   -d  how long (14000)
 *   -H, -I, -R, -D  the server's limits, as in httpd
 *
 *   header   sends a legal header byte by byte, for ever
 *   idle     falls silent after a complete request
 *   read     asks for the large document and does not read it
 *   request  sends its header at once and the body byte by byte
 *   polite   asks again and again, for the small page or the large document,
 *            and reads what comes, if not fast
 *
 * A client that was cut begins anew, as long as there is time for another
 * attack. When all attacks have ended, the figures are told; the polite ones
 * go on until the server closes their connections.
 *
 * One thread: epoll tells what is cut, a sweep each SWEEP_MS does what clients
 * do from time to time. It uses no timer of hwt, to be an independent witness.
 * Its clock starts before the first byte of an attack is sent, so that a limit
 * which the server keeps cannot look too short from here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

#define SWEEP_MS 50
#define EVENTS_PER_TURN 64
/* A client that is not cut so long after its limit gives up. */
#define PATIENCE_NS (5 * NS_PER_SEC)
/* An attack is begun only if it can end so long before the end. */
#define MARGIN_NS (NS_PER_SEC / 2)
/* The clients of a kind begin over this time, not all in one tick. */
#define STAGGER_NS NS_PER_SEC
#define POLITE_PAUSE_NS (NS_PER_SEC / 2)
#define POLITE_READ_BYTES (256 << 10)

/* The attacks are named like the limits that end them. */
enum {
	KIND_POLITE = LIMITS,
	KINDS
};

struct client {
	/* A limit, or KIND_POLITE. */
	unsigned kind;
	/* -1: not connected. */
	int fd;
	/* When to connect, or to ask again, next. */
	uint64_t next_ns;
	/* By our clock, before the first byte of the request. */
	uint64_t begun_ns;
	size_t sent;
	uint64_t received;
	bool asks_for_large;
	/* Polite: what has come of the present answer's head, and what is
	 * still to come of its body. */
	bool has_asked, has_head;
	char head[512];
	size_t head_length;
	uint64_t body_left;
};

struct counts {
	uint64_t begun, cut, uncut, early;
	/* From the limit to the moment at which the client knew, at most. */
	uint64_t late_ns_max;
};

static struct {
	uint16_t port;
	unsigned clients_per_kind, polite;
	uint64_t limits_ns[LIMITS], duration_ns;
	int epoll_fd;
	uint64_t end_ns;
	struct client *clients;
	unsigned client_count;
	struct counts counts[KINDS];
	/* Attacks that are under way, and polite connections that are open. */
	unsigned attacks, polite_open;
	uint64_t polite_answers;
	bool is_told;
} all = {
    .clients_per_kind = 60,
    .polite = 60,
    .limits_ns = {10 * NS_PER_SEC, 60 * NS_PER_SEC, 10 * NS_PER_SEC,
	60 * NS_PER_SEC},
    .duration_ns = 14 * NS_PER_SEC,
};

static void
fail(const char *what)
{
	fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
	exit(1);
}

static const char usage[] = "hostile -p port [-n clients] [-k polite] [-d ms]"
			    " [-H ms] [-I ms] [-R ms] [-D ms]";

static void
options(int argc, char **argv)
{
	static const char letters[] = "HIRD";
	const uint64_t day_ms = 86400000;
	int option;

	usage_if_asked(usage, argc, argv);
	while ((option = getopt(argc, argv, "p:n:k:d:H:I:R:D:")) != -1) {
		const char *letter = strchr(letters, option);

		if (option == '?')
			usage_tell(usage, 2);
		if (letter != NULL)
			all.limits_ns[letter - letters] =
			    NS_PER_MS * argument_number(optarg, day_ms);
		else if (option == 'p')
			all.port =
			    (uint16_t)argument_number(optarg, UINT16_MAX);
		else if (option == 'n')
			all.clients_per_kind =
			    (unsigned)argument_number(optarg, 4096);
		else if (option == 'k')
			all.polite = (unsigned)argument_number(optarg, 4096);
		else
			all.duration_ns =
			    NS_PER_MS * argument_number(optarg, day_ms);
	}
	if (all.port == 0 || optind != argc)
		usage_tell(usage, 2);
}

/* Connects, and returns a socket that does not block. */
static int
client_socket(const struct client *client)
{
	const struct sockaddr_in server = {
	    .sin_family = AF_INET,
	    .sin_port = htons(all.port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int small = 4096;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		fail("socket");
	/* The sooner the kernel stops reading for us, the better. */
	if (client->kind == LIMIT_READ)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	if (connect(fd, (const struct sockaddr *)&server, sizeof(server)) != 0)
		fail("connect");
	if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
		fail("fcntl");
	return fd;
}

static const char *
client_request(const struct client *client)
{
	switch (client->kind) {
	case LIMIT_HEADER:
		/* The rest of this header never comes to its end. */
		return "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
	case LIMIT_REQUEST:
		return "POST /sink HTTP/1.1\r\nHost: localhost\r\n"
		       "Content-Length: 1000000\r\n\r\n";
	default:
		return client->asks_for_large
		    ? "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
		    : "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	}
}

/* A failure to send is one that epoll tells too: there is one place for it. */
static void
client_send(struct client *client, const char *text, size_t length)
{
	ssize_t sent = send(client->fd, text, length, MSG_NOSIGNAL);

	if (sent > 0)
		client->sent += (size_t)sent;
}

static void
client_ask(struct client *client)
{
	const char *request = client_request(client);

	client->has_asked = true;
	client->has_head = false;
	client->head_length = 0;
	client_send(client, request,
	    client->kind == LIMIT_HEADER ? 1 : strlen(request));
}

static void
client_begin(struct client *client)
{
	/* Who does not read is told only of the end. */
	bool reads_at_once =
	    client->kind != LIMIT_READ && client->kind != KIND_POLITE;
	struct epoll_event event = {
	    .events = EPOLLRDHUP | (reads_at_once ? EPOLLIN : 0u),
	    .data.ptr = client,
	};

	client->fd = client_socket(client);
	client->sent = 0;
	client->received = 0;
	if (epoll_ctl(all.epoll_fd, EPOLL_CTL_ADD, client->fd, &event) != 0)
		fail("epoll_ctl");
	client->begun_ns = clock_now_ns();
	client_ask(client);
	all.counts[client->kind].begun++;
	if (client->kind == KIND_POLITE)
		all.polite_open++;
	else
		all.attacks++;
}

/* The connection has ended: the server cut it, or our patience did. */
static void
client_end(struct client *client, bool is_cut)
{
	struct counts *counts = &all.counts[client->kind];
	uint64_t now_ns = clock_now_ns();
	uint64_t limit_ns = 0, late_ns;

	close(client->fd);
	client->fd = -1;
	client->next_ns = now_ns;
	counts->cut += is_cut;
	counts->uncut += !is_cut;
	if (client->kind == KIND_POLITE) {
		all.polite_open--;
		client->next_ns = UINT64_MAX;
		return;
	}
	all.attacks--;
	limit_ns = all.limits_ns[client->kind];
	/* Silence is an attack only after an answer. */
	if (now_ns - client->begun_ns < limit_ns ||
	    (client->kind == LIMIT_IDLE && client->received == 0)) {
		counts->early++;
		return;
	}
	late_ns = now_ns - client->begun_ns - limit_ns;
	if (is_cut && late_ns > counts->late_ns_max)
		counts->late_ns_max = late_ns;
}

/* Reads and forgets what the server says; false when it has hung up. */
static bool
client_read(struct client *client)
{
	char text[4096];
	ssize_t received;

	while ((received = recv(client->fd, text, sizeof(text), 0)) > 0)
		client->received += (uint64_t)received;
	return received < 0 && errno == EAGAIN;
}

static void
client_event(struct client *client, uint32_t events)
{
	if ((events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0 ||
	    !client_read(client))
		client_end(client, true);
}

/* The next byte of what never comes to its end. */
static void
client_trickle(struct client *client)
{
	const char *request = client_request(client);
	bool is_in_request = client->sent < strlen(request);

	client_send(client, is_in_request ? request + client->sent : "x", 1);
}

/* Takes some text of an answer; returns true when that has come whole. */
static bool
polite_take(struct client *client, const char *text, size_t length)
{
	static const char name[] = "Content-Length: ";
	size_t room = sizeof(client->head) - 1 - client->head_length;
	size_t taken = length < room ? length : room;
	const char *end, *value;

	if (!client->has_head) {
		memcpy(client->head + client->head_length, text, taken);
		client->head_length += taken;
		client->head[client->head_length] = '\0';
		end = strstr(client->head, "\r\n\r\n");
		if (end == NULL)
			return false;
		value = strstr(client->head, name);
		client->has_head = true;
		client->body_left = value == NULL
		    ? 0
		    : strtoull(value + strlen(name), NULL, 10);
		/* What has come of the body is behind the head. */
		length -= (size_t)(end + 4 - client->head) -
		    (client->head_length - taken);
	}
	client->body_left -= length;
	return client->body_left == 0;
}

/* Reads at most so much, to be a slow reader, but one that reads on. */
static void
polite_sweep(struct client *client, uint64_t now_ns)
{
	static char text[POLITE_READ_BYTES];
	ssize_t received;

	if (!client->has_asked) {
		if (now_ns >= client->next_ns)
			client_ask(client);
		return;
	}
	received = recv(client->fd, text, sizeof(text), 0);
	if (received <= 0)
		return;
	if (polite_take(client, text, (size_t)received)) {
		client->has_asked = false;
		client->next_ns = now_ns + POLITE_PAUSE_NS;
		all.polite_answers++;
	}
}

static bool
client_has_time(const struct client *client, uint64_t now_ns)
{
	uint64_t limit_ns =
	    client->kind == KIND_POLITE ? 0 : all.limits_ns[client->kind];

	return now_ns + limit_ns + MARGIN_NS < all.end_ns;
}

static void
client_sweep(struct client *client, uint64_t now_ns)
{
	if (client->fd < 0) {
		if (now_ns >= client->next_ns &&
		    client_has_time(client, now_ns))
			client_begin(client);
	} else if (client->kind == KIND_POLITE) {
		polite_sweep(client, now_ns);
	} else if (now_ns - client->begun_ns >
	    all.limits_ns[client->kind] + PATIENCE_NS) {
		client_end(client, false);
	} else if (client->kind == LIMIT_HEADER ||
	    client->kind == LIMIT_REQUEST) {
		client_trickle(client);
	}
}

static void
clients_create(uint64_t now_ns)
{
	unsigned i;

	all.client_count = LIMITS * all.clients_per_kind + all.polite;
	all.clients = calloc(all.client_count, sizeof(*all.clients));
	if (all.clients == NULL)
		fail("calloc");
	for (i = 0; i < all.client_count; i++) {
		struct client *client = &all.clients[i];
		bool is_polite = i >= LIMITS * all.clients_per_kind;

		client->fd = -1;
		client->kind = is_polite ? (unsigned)KIND_POLITE : i % LIMITS;
		client->next_ns = now_ns + STAGGER_NS * i / all.client_count;
		/* One polite client in eight reads the large document. */
		client->asks_for_large =
		    client->kind == LIMIT_READ || (is_polite && i % 8 == 0);
	}
}

static void
counts_tell(void)
{
	unsigned kind;

	for (kind = 0; kind < KINDS; kind++) {
		const struct counts *counts = &all.counts[kind];
		char group[32];

		snprintf(group, sizeof(group), "client.%s",
		    kind < LIMITS ? limit_name(kind) : "polite");
		report(group, "begun", (int64_t)counts->begun);
		report(group, "cut", (int64_t)counts->cut);
		report(group, "uncut", (int64_t)counts->uncut);
		report(group, "early", (int64_t)counts->early);
		report(group, "late_max_us",
		    (int64_t)(counts->late_ns_max / NS_PER_US));
	}
	report("client", "answers", (int64_t)all.polite_answers);
	report("client", "end", 1);
}

/* True while there is something to do. */
static bool
clients_turn(void)
{
	struct epoll_event events[EVENTS_PER_TURN];
	static uint64_t sweep_ns;
	uint64_t now_ns = clock_now_ns();
	unsigned client;
	int count, i;

	if (now_ns >= sweep_ns) {
		sweep_ns = now_ns + SWEEP_MS * NS_PER_MS;
		for (client = 0; client < all.client_count; client++)
			client_sweep(&all.clients[client], now_ns);
	}
	now_ns = clock_now_ns();
	count = epoll_wait(all.epoll_fd, events, EVENTS_PER_TURN,
	    now_ns >= sweep_ns ? 0
			       : (int)((sweep_ns - now_ns) / NS_PER_MS) + 1);
	for (i = 0; i < count; i++)
		client_event(events[i].data.ptr, events[i].events);
	if (!all.is_told && all.attacks == 0 && clock_now_ns() >= all.end_ns) {
		all.is_told = true;
		counts_tell();
	}
	return !all.is_told || all.polite_open > 0;
}

int
main(int argc, char **argv)
{
	uint64_t now_ns = clock_now_ns();

	setvbuf(stdout, NULL, _IOLBF, 0);
	options(argc, argv);
	all.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (all.epoll_fd < 0)
		fail("epoll_create1");
	all.end_ns = now_ns + all.duration_ns;
	clients_create(now_ns);
	while (clients_turn())
		continue;
	free(all.clients);
	return 0;
}
