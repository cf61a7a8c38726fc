/* SPDX-License-Identifier: Apache-2.0 */
/*
 * httpd - an HTTP/1.1 server whose clients cannot hold it up: two epoll loops,
 * a mailbox for each, all on the shared timer of the process. make demo runs it
 * under load and attack: examples/demo.c.
 *
 *   httpd PORT
 *
 * PORT 0 is a free one of 127.0.0.1, which is printed. The server runs until
 * SIGINT or SIGTERM and then prints its figures. /_timer is a page that shows
 * what the timer does, from /_timer.json; /metrics is for Prometheus.
 *
 * Three timeouts guard a connection. Almost none of them ever becomes due:
 *
 *            first byte           whole header
 *   IDLE ------------------> HEADER ----------> RESPONSE
 *     ^     header               cancel header    read |
 *     +------------------------------------------------+
 *                cancel read, push idle out
 *
 * idle lives as long as the connection, and is pushed out at the end of each
 * request: one atomic update. read is pushed out by each byte that the client
 * takes. Tasks run on the loop's own thread, by its mailbox. There hwt_cancel
 * always wins against a task that has not begun, so that connection_close may
 * free the connection at once: no reference count, no lock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"
#include "hwt.h"

#define LOOPS 2
#define EVENTS_PER_TURN 64
#define INPUT_BYTES 4096
/* Most bytes that one connection writes before the others have their turn. */
#define WRITE_BYTES_PER_TURN ((size_t)512 << 10)
/* Small, so that a client's progress through the large document shows. */
#define SEND_BUFFER_BYTES (128 << 10)
#define LARGE_BYTES (8 << 20)
/* Lateness in steps of 100 us; the last one takes what is beyond. */
#define LATE_STEP_NS (100 * NS_PER_US)
#define LATE_STEPS 10000

struct connection;

struct deadline {
	struct connection *connection;
	hwt_timeout timeout; /* {0}: not armed */
	uint64_t due_ns;
};

/* own: the body, if it is of malloc. */
struct answer {
	char head[256];
	const char *body;
	char *own;
	size_t head_length, length;
};

struct connection {
	struct loop *loop;
	int fd;
	enum {
		IDLE,
		HEADER,
		RESPONSE,
		DRAIN /* the answer was the last: until the client hangs up */
	} phase;
	uint32_t events;
	bool keep_alive;
	char input[INPUT_BYTES];
	size_t input_length;
	size_t sent;
	struct answer answer;
	struct deadline deadlines[LIMITS];
	struct connection *next, **link;
};

/* Counters of a loop; at CUT, one for each limit. */
enum {
	TASKS,
	EARLY,
	CUT,
	COUNTERS = CUT + LIMITS
};

/* One thread, one epoll, one mailbox. */
struct loop {
	pthread_t thread;
	struct hwt_mailbox *mailbox;
	int epoll_fd;
	struct connection *connections;
	uint64_t count[COUNTERS], late_ns_max, late[LATE_STEPS];
};

static struct loop loops[LOOPS];
static struct hwt *timer;
static int listen_fd, stop_fd;
static char large[LARGE_BYTES];

/* The file examples/timer.html as it is. */
__asm__(".pushsection .rodata\n"
	".globl page, page_length\n"
	".hidden page, page_length\n"
	".balign 8\n"
	"page_length: .8byte page_end - page\n"
	"page: .incbin \"examples/timer.html\"\n"
	"page_end: .popsection");
extern const char page[];
extern const uint64_t page_length;

static hwt_task deadline_due;

/* Arms a deadline, or pushes it out. One that is due and lies in the mailbox is
 * replaced, and does not run. False: no memory. */
static bool
deadline_restart(struct connection *connection, enum limit limit)
{
	struct deadline *deadline = &connection->deadlines[limit];

	deadline->connection = connection;
	deadline->due_ns = clock_now_ns() + limits[limit].ns;
	return hwt_touch(timer, hwt_mailbox_executor(connection->loop->mailbox),
		   &deadline->timeout, deadline_due, deadline,
		   limits[limit].ns) == 0;
}

static void
deadline_cancel(struct connection *connection, enum limit limit)
{
	struct deadline *deadline = &connection->deadlines[limit];

	if (deadline->timeout.id != 0)
		(void)!hwt_cancel(timer, deadline->timeout);
	deadline->timeout = (hwt_timeout){0};
}

static void
connection_close(struct connection *connection)
{
	enum limit limit;

	for (limit = 0; limit < LIMITS; limit++)
		deadline_cancel(connection, limit);
	*connection->link = connection->next;
	if (connection->next != NULL)
		connection->next->link = connection->link;
	free(connection->answer.own);
	close(connection->fd);
	free(connection);
}

static void
note_lateness(struct loop *loop, int64_t late_ns)
{
	uint64_t step = late_ns < 0 ? 0 : (uint64_t)late_ns / LATE_STEP_NS;

	loop->count[EARLY] += late_ns < 0;
	loop->late[step < LATE_STEPS ? step : LATE_STEPS - 1]++;
	if (late_ns > 0 && (uint64_t)late_ns > loop->late_ns_max)
		loop->late_ns_max = (uint64_t)late_ns;
}

/* The task of all timeouts. A client that waits for an answer is told why it is
 * cut; one that does not read gets a reset, since otherwise the kernel would
 * keep for it what it has not read. */
static void
deadline_due(hwt_timeout timeout, void *arg)
{
	static const char text[] = "HTTP/1.1 408 Request Timeout\r\n"
				   "Connection: close\r\n\r\n";
	static const struct linger reset = {.l_onoff = 1};
	struct deadline *deadline = arg;
	struct connection *connection = deadline->connection;
	struct loop *loop = connection->loop;
	enum limit limit = (enum limit)(deadline - connection->deadlines);

	(void)timeout;
	deadline->timeout = (hwt_timeout){0};
	loop->count[TASKS]++;
	if (limit == LIMIT_IDLE && connection->phase != IDLE &&
	    connection->phase != DRAIN) {
		if (!deadline_restart(connection, LIMIT_IDLE))
			connection_close(connection);
		return;
	}
	note_lateness(loop, (int64_t)(clock_now_ns() - deadline->due_ns));
	loop->count[CUT + limit]++;
	if (connection->phase == RESPONSE)
		setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &reset,
		    sizeof(reset));
	else if (limit != LIMIT_IDLE)
		send(connection->fd, text, sizeof(text) - 1, MSG_NOSIGNAL);
	connection_close(connection);
}

static void
answer_set(struct connection *connection, const char *status, const char *type,
    const char *body, size_t length)
{
	struct answer *answer = &connection->answer;

	answer->body = body;
	answer->length = length;
	answer->head_length =
	    (size_t)snprintf(answer->head, sizeof(answer->head),
		"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
		"Connection: %s\r\n\r\n",
		status, type, length,
		connection->keep_alive ? "keep-alive" : "close");
}

/* The connection ends after the answer, and is not judged. */
static void
answer_statistics(struct connection *connection, enum hwt_format format)
{
	char *text = NULL;
	size_t length = 0;
	FILE *file = open_memstream(&text, &length);

	if (file == NULL || hwt_stats_write(timer, file, format) != 0)
		fail("no statistics", ENOMEM);
	fclose(file);
	connection->keep_alive = false;
	connection->answer.own = text;
	answer_set(connection, "200 OK",
	    format == HWT_JSON ? "application/json"
			       : "text/plain; version=0.0.4",
	    text, length);
}

static void
answer_request(struct connection *connection, const char *path)
{
	static const char small[] =
	    "<!DOCTYPE html>\n<title>hwt</title>\n<p>Served by two epoll loops "
	    "on one shared timer.\n<p>Try <a href=\"/large\">a large document"
	    "</a>, and watch\n<a href=\"/_timer\">what the timer does</a>.\n";

	if (strcmp(path, "/") == 0)
		answer_set(connection, "200 OK", "text/html", small,
		    sizeof(small) - 1);
	else if (strcmp(path, "/large") == 0)
		answer_set(
		    connection, "200 OK", "text/plain", large, LARGE_BYTES);
	else if (strcmp(path, "/_timer.json") == 0)
		answer_statistics(connection, HWT_JSON);
	else if (strcmp(path, "/metrics") == 0)
		answer_statistics(connection, HWT_PROMETHEUS);
	else if (strcmp(path, "/_timer") == 0) {
		connection->keep_alive = false;
		answer_set(
		    connection, "200 OK", "text/html", page, page_length);
	} else
		answer_set(connection, "404 Not Found", "text/plain", "", 0);
}

/* False: it is none that this server understands, or has a body. Then the
 * connection ends, since nobody knows where the next request begins. */
static bool
header_parse(struct connection *connection, char *header)
{
	char *rest, *line = strtok_r(header, "\r\n", &rest);
	char path[256];
	int minor;

	if (line == NULL ||
	    sscanf(line, "GET %255s HTTP/1.%d", path, &minor) != 2)
		return false;
	path[strcspn(path, "?")] = '\0';
	connection->keep_alive = minor > 0;
	while ((line = strtok_r(NULL, "\r\n", &rest)) != NULL) {
		if (strncasecmp(line, "Transfer-Encoding:", 18) == 0 ||
		    strncasecmp(line, "Content-Length:", 15) == 0)
			return false;
		if (strncasecmp(line, "Connection: close", 17) == 0)
			connection->keep_alive = false;
	}
	answer_request(connection, path);
	return true;
}

/* The steps of a connection. NEXT: the next one may go on at once. */
enum step {
	NEXT,
	WAIT,
	CLOSE
};

static enum step
step_header(struct connection *connection)
{
	char *end =
	    memmem(connection->input, connection->input_length, "\r\n\r\n", 4);

	if (end == NULL && connection->input_length < INPUT_BYTES)
		return WAIT;
	if (end != NULL)
		*end = '\0';
	if (end == NULL || !header_parse(connection, connection->input)) {
		connection->keep_alive = false;
		connection->input_length = 0;
		answer_set(connection, "400 Bad Request", "text/plain", "", 0);
	} else {
		end += 4;
		connection->input_length -= (size_t)(end - connection->input);
		memmove(connection->input, end, connection->input_length);
	}
	deadline_cancel(connection, LIMIT_HEADER);
	connection->sent = 0;
	connection->phase = RESPONSE;
	return NEXT;
}

static enum step
request_end(struct connection *connection)
{
	deadline_cancel(connection, LIMIT_READ);
	if (!deadline_restart(connection, LIMIT_IDLE))
		return CLOSE;
	free(connection->answer.own);
	connection->answer.own = NULL;
	connection->phase = IDLE;
	if (!connection->keep_alive) {
		/* To close could reset it before the client has read. */
		shutdown(connection->fd, SHUT_WR);
		connection->phase = DRAIN;
	}
	return NEXT;
}

/* The rest of the head, or some of the body. */
static ssize_t
answer_send(const struct connection *connection)
{
	const struct answer *answer = &connection->answer;
	size_t offset = connection->sent, left;

	if (offset < answer->head_length)
		return send(connection->fd, answer->head + offset,
		    answer->head_length - offset,
		    MSG_NOSIGNAL | (answer->length > 0 ? MSG_MORE : 0));
	offset -= answer->head_length;
	left = answer->length - offset;
	return send(connection->fd, answer->body + offset,
	    left < WRITE_BYTES_PER_TURN ? left : WRITE_BYTES_PER_TURN,
	    MSG_NOSIGNAL);
}

static enum step
step_response(struct connection *connection)
{
	size_t length =
	    connection->answer.head_length + connection->answer.length;
	size_t begin = connection->sent;
	bool is_new = connection->deadlines[LIMIT_READ].timeout.id == 0;
	ssize_t sent;

	while (connection->sent < length &&
	    connection->sent < begin + WRITE_BYTES_PER_TURN) {
		sent = answer_send(connection);
		if (sent < 0 && errno == EAGAIN)
			break;
		if (sent < 0)
			return CLOSE;
		connection->sent += (size_t)sent;
	}
	if (connection->sent == length)
		return request_end(connection);
	if ((is_new || connection->sent > begin) &&
	    !deadline_restart(connection, LIMIT_READ))
		return CLOSE;
	return WAIT;
}

static enum step
connection_step(struct connection *connection)
{
	switch (connection->phase) {
	case IDLE:
		if (connection->input_length == 0)
			return WAIT;
		connection->phase = HEADER;
		return deadline_restart(connection, LIMIT_HEADER) ? NEXT
								  : CLOSE;
	case HEADER:
		return step_header(connection);
	case RESPONSE:
		return step_response(connection);
	case DRAIN:
		connection->input_length = 0;
		return WAIT;
	}
	return CLOSE;
}

/* While an answer is written nothing is read. */
static enum step
connection_watch(struct connection *connection)
{
	struct epoll_event event = {
	    .events = connection->phase == RESPONSE ? EPOLLOUT : EPOLLIN,
	    .data.ptr = connection};
	int operation = connection->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

	if (event.events == connection->events)
		return WAIT;
	connection->events = event.events;
	return epoll_ctl(connection->loop->epoll_fd, operation, connection->fd,
		   &event) == 0
	    ? WAIT
	    : CLOSE;
}

static void
connection_ready(struct connection *connection)
{
	enum step step = NEXT;
	ssize_t received;

	if (connection->phase != RESPONSE) {
		received = recv(connection->fd,
		    connection->input + connection->input_length,
		    INPUT_BYTES - connection->input_length, 0);
		if (received > 0)
			connection->input_length += (size_t)received;
		else if (received == 0 || errno != EAGAIN)
			step = CLOSE;
	}
	while (step == NEXT)
		step = connection_step(connection);
	if (step == WAIT)
		step = connection_watch(connection);
	if (step == CLOSE)
		connection_close(connection);
}

static void
connection_open(struct loop *loop)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct connection *connection;

	if (fd < 0)
		return;
	connection = calloc(1, sizeof(*connection));
	if (connection == NULL) {
		close(fd);
		return;
	}
	connection->loop = loop;
	connection->fd = fd;
	connection->next = loop->connections;
	connection->link = &loop->connections;
	if (connection->next != NULL)
		connection->next->link = &connection->next;
	loop->connections = connection;
	if (!deadline_restart(connection, LIMIT_IDLE) ||
	    connection_watch(connection) == CLOSE)
		connection_close(connection);
}

/* In each turn the sockets come first and the mailbox last: a task may close a
 * connection, whose event could otherwise stand further down in the batch. */
static void *
loop_main(void *arg)
{
	struct loop *loop = arg;
	struct epoll_event events[EVENTS_PER_TURN];
	int count, i;

	while (true) {
		count = epoll_wait(loop->epoll_fd, events, EVENTS_PER_TURN, -1);
		for (i = 0; i < count; i++) {
			if (events[i].data.ptr == &stop_fd)
				return NULL;
			if (events[i].data.ptr == &listen_fd)
				connection_open(loop);
			else if (events[i].data.ptr != loop)
				connection_ready(events[i].data.ptr);
		}
		(void)hwt_mailbox_run(loop->mailbox, 0, NULL);
	}
}

static void
loop_watch(struct loop *loop, int fd, uint32_t more, void *source)
{
	struct epoll_event event = {
	    .events = EPOLLIN | more, .data.ptr = source};

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		fail("epoll_ctl", errno);
}

static void
loop_start(struct loop *loop)
{
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (hwt_mailbox_create(&loop->mailbox) != 0 || loop->epoll_fd < 0)
		fail("cannot make a loop", EMFILE);
	loop_watch(loop, hwt_mailbox_fd(loop->mailbox), 0, loop);
	/* Exclusive: a new client wakes one loop. */
	loop_watch(loop, listen_fd, EPOLLEXCLUSIVE, &listen_fd);
	loop_watch(loop, stop_fd, 0, &stop_fd);
	if (pthread_create(&loop->thread, NULL, loop_main, loop) != 0)
		fail("no thread", EAGAIN);
}

static void
server_listen(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	    .sin_port = htons(port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int buffer = SEND_BUFFER_BYTES, on = 1;

	listen_fd =
	    socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(listen_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(listen_fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	if (bind(listen_fd, (struct sockaddr *)&address, length) != 0 ||
	    listen(listen_fd, SOMAXCONN) != 0 ||
	    getsockname(listen_fd, (struct sockaddr *)&address, &length) != 0)
		fail("cannot listen", errno);
	printf("port %u\n", ntohs(address.sin_port));
	fflush(stdout);
}

/* How late a part of the cuts was, at most. */
static uint64_t
late_part_ns(uint64_t cuts, uint64_t percent)
{
	uint64_t wanted = (cuts * percent + 99) / 100, seen = 0, step, i;

	for (step = 0; step < LATE_STEPS && seen < wanted; step++)
		for (i = 0; i < LOOPS; i++)
			seen += loops[i].late[step];
	return step * LATE_STEP_NS;
}

static void
print_counters(void)
{
	static const char *const names[COUNTERS] = {
	    "tasks", "early", "cut.header", "cut.idle", "cut.read"};
	uint64_t sum, cuts = 0, max_ns = 0, i, k;

	for (k = 0; k < COUNTERS; k++) {
		sum = 0;
		for (i = 0; i < LOOPS; i++)
			sum += loops[i].count[k];
		cuts += k >= CUT ? sum : 0;
		print_figure(names[k], sum);
	}
	for (i = 0; i < LOOPS; i++)
		if (loops[i].late_ns_max > max_ns)
			max_ns = loops[i].late_ns_max;
	print_figure("late_p50_us", late_part_ns(cuts, 50) / NS_PER_US);
	print_figure("late_p99_us", late_part_ns(cuts, 99) / NS_PER_US);
	print_figure("late_max_us", max_ns / NS_PER_US);
}

/* held: timeouts that the connections still have, as they were in a mailbox. */
static void
loop_end(struct loop *loop, uint64_t *open, uint64_t *held)
{
	struct connection *connection;
	enum limit limit;

	while ((connection = loop->connections) != NULL) {
		for (limit = 0; limit < LIMITS; limit++)
			*held += connection->deadlines[limit].timeout.id != 0;
		++*open;
		connection_close(connection);
	}
	while (hwt_mailbox_destroy(loop->mailbox) == -EBUSY)
		(void)hwt_mailbox_run(loop->mailbox, 0, NULL);
	close(loop->epoll_fd);
}

static void
print_remains(void)
{
	uint64_t open = 0, held = 0;
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	struct hwt_stats stats;
	int i;

	if (hwt_shared_shutdown(&unprocessed) != 0)
		fail("cannot stop the timer", EDEADLK);
	while (hwt_unprocessed_next(&unprocessed, &info))
		((struct deadline *)info.arg)->timeout = (hwt_timeout){0};
	for (i = 0; i < LOOPS; i++)
		loop_end(&loops[i], &open, &held);
	print_figure("stop.open", open);
	print_figure("stop.unprocessed", unprocessed.count);
	print_figure("stop.held", held);
	if (hwt_read_stats(timer, &stats) != 0)
		fail("no statistics", EINVAL);
	print_figure("timer.scheduled", stats.scheduled);
	print_figure("timer.rescheduled", stats.rescheduled);
	print_figure("timer.cancelled", stats.cancelled);
	print_figure("timer.started", stats.started);
	print_figure("timer.pending", stats.pending);
	print_figure("timer.wakeups", stats.wakeups);
	print_figure("timer.memory_bytes", stats.memory_bytes);
}

int
main(int argc, char **argv)
{
	static const char pattern[] = "approximately on time, every time.\n";
	sigset_t signals;
	uint64_t one = 1;
	int received;
	size_t i;

	for (i = 0; i < LARGE_BYTES; i++)
		large[i] = pattern[i % (sizeof(pattern) - 1)];
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (hwt_shared(&timer) != 0)
		fail("no timer", EAGAIN);
	stop_fd = eventfd(0, EFD_CLOEXEC);
	server_listen((uint16_t)argument_number(argc, argv, 0, UINT16_MAX));
	for (i = 0; i < LOOPS; i++)
		loop_start(&loops[i]);
	sigwait(&signals, &received);
	if (write(stop_fd, &one, sizeof(one)) != sizeof(one))
		fail("cannot stop", errno);
	for (i = 0; i < LOOPS; i++)
		pthread_join(loops[i].thread, NULL);
	print_counters();
	print_remains();
	return 0;
}
