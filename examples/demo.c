/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo - starts httpd on a free port, sends it load and attacks at the same
 * time, stops it while polite clients hold connections, and checks what it and
 * its timer did.
 *
 *   demo SECONDS
 *   demo PORT HEADER_MS IDLE_MS READ_MS REQUEST_MS
 *
 * The second form is the clients alone, for a minute, against a server that
 * runs. The exit status is 0 if every check passed.
 *
 *   load     asks for the small page as fast as it gets answers
 *   polite   asks again and again, one in eight for the large document, and
 *            reads what comes, if not fast: no server may cut it
 *   header   sends a legal header byte by byte, for ever
 *   idle     falls silent after a complete request
 *   read     asks for the large document and does not read it
 *   request  sends its header at once and the body byte by byte
 *
 * A client that was cut begins anew while there is time for another attack. The
 * clients use no timer of hwt, to be independent witnesses: their clock starts
 * before the first byte of an attack is sent, so that a limit that the server
 * keeps cannot look too short from here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdarg.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

#define ATTACKERS 60 /* of each kind */
#define POLITE 60
#define LOAD 64
#define CLIENTS (LIMITS * ATTACKERS + POLITE + LOAD)
#define SECONDS_MIN 5
#define TICK_US 10000 /* of hwt_shared */
#define SWEEP_NS (50 * NS_PER_MS)
#define EVENTS_PER_TURN 64
#define STAGGER_NS NS_PER_SEC
#define POLITE_PAUSE_NS (NS_PER_SEC / 2)
#define POLITE_READ_BYTES (256 << 10)
/* A client that is not cut so long after its limit gives up. */
#define PATIENCE_NS (5 * NS_PER_SEC)

enum {
	KIND_POLITE = LIMITS,
	KIND_LOAD,
	KINDS
};

struct client {
	unsigned kind; /* a limit, or one of these */
	int fd; /* -1: not connected */
	uint64_t next_ns, begun_ns;
	size_t sent, received;
	bool asks_for_large, has_asked, has_head;
	char head[512];
	size_t head_length;
	uint64_t body_left;
};

static struct client clients[CLIENTS];
static struct {
	uint64_t begun, cut, uncut, early, answers;
} counts[KINDS];
static uint64_t limits_ns[LIMITS] = {
    1500 * NS_PER_MS, 2000 * NS_PER_MS, 1000 * NS_PER_MS, 3000 * NS_PER_MS};
static int epoll_fd;
static uint16_t port;
static uint64_t end_ns, lag_ns_max;
static unsigned attacks; /* under way */

/* What httpd printed at its end. */
static struct {
	char name[40];
	int64_t value;
} figures[64];
static unsigned figure_count, check_count, failure_count;

static void
fail(const char *text)
{
	fprintf(stderr, "demo: %s: %s\n", text, strerror(errno));
	exit(1);
}

static const char *
client_request(const struct client *client)
{
	if (client->kind == LIMIT_HEADER)
		return "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
	if (client->kind == LIMIT_REQUEST)
		return "POST /sink HTTP/1.1\r\nHost: localhost\r\n"
		       "Content-Length: 1000000\r\n\r\n";
	return client->asks_for_large
	    ? "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
	    : "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

/* A failure to send is reported by epoll too. */
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
	const struct sockaddr_in server = {.sin_family = AF_INET,
	    .sin_port = htons(port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	bool reads_at_once =
	    client->kind != LIMIT_READ && client->kind != KIND_POLITE;
	struct epoll_event event = {
	    .events = EPOLLRDHUP | (reads_at_once ? EPOLLIN : 0u),
	    .data.ptr = client};
	int small = 4096;

	client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client->kind == LIMIT_READ)
		setsockopt(
		    client->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	if (connect(client->fd, (const struct sockaddr *)&server,
		sizeof(server)) != 0 ||
	    fcntl(client->fd, F_SETFL, O_NONBLOCK) != 0 ||
	    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, client->fd, &event) != 0)
		fail("connecting");
	client->sent = client->received = 0;
	client->begun_ns = clock_now_ns();
	counts[client->kind].begun++;
	attacks += client->kind < LIMITS;
	client_ask(client);
}

/* The server cut the connection, or our patience did. */
static void
client_end(struct client *client, bool is_cut)
{
	uint64_t now_ns = clock_now_ns();

	close(client->fd);
	client->fd = -1;
	client->next_ns = client->kind < LIMITS ? now_ns : UINT64_MAX;
	counts[client->kind].cut += is_cut;
	counts[client->kind].uncut += !is_cut;
	if (client->kind >= LIMITS)
		return;
	attacks--;
	/* Silence is an attack only after an answer. */
	if (now_ns - client->begun_ns < limits_ns[client->kind] ||
	    (client->kind == LIMIT_IDLE && client->received == 0))
		counts[client->kind].early++;
}

/* Takes some text of an answer; true when that has come whole. */
static bool
answer_take(struct client *client, const char *text, size_t length)
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

/* Returns false when the server has hung up. */
static bool
client_read(struct client *client, size_t limit)
{
	static char text[POLITE_READ_BYTES];
	ssize_t received = recv(client->fd, text, limit, 0);

	if (received <= 0)
		return received < 0 && errno == EAGAIN;
	client->received += (size_t)received;
	if (client->kind >= LIMITS &&
	    answer_take(client, text, (size_t)received)) {
		counts[client->kind].answers++;
		client->has_asked = false;
		client->next_ns = clock_now_ns() + POLITE_PAUSE_NS;
		if (client->kind == KIND_LOAD && clock_now_ns() < end_ns)
			client_ask(client);
	}
	return true;
}

static void
client_event(struct client *client, uint32_t events)
{
	if ((events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0 ||
	    !client_read(client, 16384))
		client_end(client, true);
}

/* What clients do from time to time. */
static void
client_sweep(struct client *client, uint64_t now_ns)
{
	const char *request = client_request(client);
	uint64_t limit_ns = client->kind < LIMITS ? limits_ns[client->kind] : 0;

	if (client->fd < 0) {
		if (now_ns >= client->next_ns &&
		    now_ns + limit_ns + NS_PER_SEC / 2 < end_ns)
			client_begin(client);
	} else if (client->kind == KIND_POLITE) {
		if (client->has_asked)
			client_read(client, POLITE_READ_BYTES);
		else if (now_ns >= client->next_ns)
			client_ask(client);
	} else if (client->kind < LIMITS &&
	    now_ns - client->begun_ns > limit_ns + PATIENCE_NS) {
		client_end(client, false);
	} else if (client->kind == LIMIT_HEADER ||
	    client->kind == LIMIT_REQUEST) {
		/* The next byte of what never comes to its end. */
		client_send(client,
		    client->sent < strlen(request) ? request + client->sent
						   : "x",
		    1);
	}
}

static void
clients_turn(void)
{
	static uint64_t sweep_ns;
	struct epoll_event events[EVENTS_PER_TURN];
	uint64_t now_ns = clock_now_ns();
	int count, i;

	if (now_ns >= sweep_ns) {
		sweep_ns = now_ns + SWEEP_NS;
		for (i = 0; i < CLIENTS; i++)
			client_sweep(&clients[i], now_ns);
	}
	count = epoll_wait(epoll_fd, events, EVENTS_PER_TURN, 10);
	for (i = 0; i < count; i++)
		client_event(events[i].data.ptr, events[i].events);
}

static void
clients_create(uint64_t seconds)
{
	uint64_t now_ns = clock_now_ns();
	unsigned i;

	end_ns = now_ns + seconds * NS_PER_SEC;
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	for (i = 0; i < CLIENTS; i++) {
		struct client *client = &clients[i];

		client->kind = i % LIMITS;
		if (i >= LIMITS * ATTACKERS)
			client->kind = KIND_POLITE;
		if (i >= LIMITS * ATTACKERS + POLITE)
			client->kind = KIND_LOAD;
		client->fd = -1;
		client->next_ns = now_ns + STAGGER_NS * i / CLIENTS;
		client->asks_for_large = client->kind == LIMIT_READ ||
		    (client->kind == KIND_POLITE && i % 8 == 0);
	}
}

/* Sleeps from one tick to the next, as the timer's worker may have to: how late
 * this machine wakes a thread. */
static void *
control_thread(void *arg)
{
	uint64_t next_ns = clock_now_ns(), lag_ns;
	struct timespec until;

	while (clock_now_ns() < end_ns) {
		next_ns += TICK_US * NS_PER_US;
		until.tv_sec = (time_t)(next_ns / NS_PER_SEC);
		until.tv_nsec = (long)(next_ns % NS_PER_SEC);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		lag_ns = clock_now_ns() - next_ns;
		if (lag_ns > lag_ns_max)
			lag_ns_max = lag_ns;
	}
	return arg;
}

static int64_t
figure(const char *format, const char *limit)
{
	char name[40];
	unsigned i;

	snprintf(name, sizeof(name), "%s%s", format, limit);
	for (i = 0; i < figure_count; i++)
		if (strcmp(figures[i].name, name) == 0)
			return figures[i].value;
	check_count++;
	failure_count++;
	printf("  FAILED  no figure %s\n", name);
	return -1;
}

/* One line that says what was compared. */
static void __attribute__((format(printf, 2, 3)))
check(bool passed, const char *format, ...)
{
	va_list values;

	check_count++;
	failure_count += !passed;
	printf("  %-7s ", passed ? "ok" : "FAILED");
	va_start(values, format);
	vprintf(format, values);
	va_end(values);
	printf("\n");
}

static void
print_timer(uint64_t seconds)
{
	int64_t open = figure("stop.open", "");

	printf("\n  %" PRIu64
	       " requests a second over %d connections, beside %d"
	       " attackers and %d polite clients\n",
	    counts[KIND_LOAD].answers / seconds, LOAD, LIMITS * ATTACKERS,
	    POLITE);
	printf("  timeouts: scheduled %" PRId64 ", pushed out %" PRId64
	       ", cancelled %" PRId64 ", started %" PRId64 "\n",
	    figure("timer.scheduled", ""), figure("timer.rescheduled", ""),
	    figure("timer.cancelled", ""), figure("timer.started", ""));
	printf("  the worker woke up %" PRId64 " times; the timer took %" PRId64
	       " KiB\n",
	    figure("timer.wakeups", ""),
	    figure("timer.memory_bytes", "") / 1024);
	printf("  cut late by p50 %.1f ms, p99 %.1f ms, at most %.1f ms; the"
	       " machine woke a thread up to %.1f ms late\n",
	    (double)figure("late_p50_us", "") / 1e3,
	    (double)figure("late_p99_us", "") / 1e3,
	    (double)figure("late_max_us", "") / 1e3, (double)lag_ns_max / 1e6);
	printf("  at shutdown: %" PRId64 " connections open, %" PRId64
	       " timeouts came back from hwt_stop\n\n",
	    open, figure("stop.unprocessed", ""));
}

static void
check_clients(void)
{
	int64_t bound_us = 2 * TICK_US + (int64_t)(lag_ns_max / NS_PER_US);
	uint64_t early = 0;
	enum limit limit;

	for (limit = 0; limit < LIMITS; limit++) {
		early += counts[limit].early;
		check(counts[limit].cut == counts[limit].begun &&
			counts[limit].begun >= ATTACKERS &&
			figure("cut.", limit_name(limit)) ==
			    (int64_t)counts[limit].begun,
		    "attacks on the limit \"%s\": %" PRIu64
		    ", cut by it: %" PRId64,
		    limit_name(limit), counts[limit].begun,
		    figure("cut.", limit_name(limit)));
	}
	check(figure("early", "") == 0 && early == 0,
	    "cut early: %" PRId64 " by the server's clock, %" PRIu64
	    " by the clients'",
	    figure("early", ""), early);
	check(figure("late_p99_us", "") <= bound_us,
	    "p99 lateness %.1f ms, two ticks and the machine's lag %.1f ms",
	    (double)figure("late_p99_us", "") / 1e3, (double)bound_us / 1e3);
	check(counts[KIND_POLITE].begun == POLITE &&
		counts[KIND_POLITE].answers > POLITE &&
		counts[KIND_POLITE].uncut == 0,
	    "polite clients %" PRIu64 ", answers %" PRIu64,
	    counts[KIND_POLITE].begun, counts[KIND_POLITE].answers);
	check(counts[KIND_LOAD].answers > LOAD && counts[KIND_LOAD].cut == 0,
	    "load: %" PRIu64 " answers, connections cut %" PRIu64,
	    counts[KIND_LOAD].answers, counts[KIND_LOAD].cut);
}

static void
check_timer(int status)
{
	int64_t unprocessed = figure("stop.unprocessed", "");
	int64_t ended = figure("timer.started", "") +
	    figure("timer.cancelled", "") + unprocessed;
	int64_t back = 0;
	enum limit limit;

	for (limit = 0; limit < LIMITS; limit++)
		back += figure("stop.", limit_name(limit));
	check(figure("timer.scheduled", "") == ended,
	    "accepted %" PRId64 " = started + cancelled + given back %" PRId64,
	    figure("timer.scheduled", ""), ended);
	check(figure("tasks", "") == figure("timer.started", ""),
	    "tasks that ran: by the server's count %" PRId64
	    ", by the timer's %" PRId64,
	    figure("tasks", ""), figure("timer.started", ""));
	check(figure("timer.pending", "") == 0 && back == unprocessed,
	    "pending after all: %" PRId64
	    "; given back, of known limits %" PRId64 " of %" PRId64,
	    figure("timer.pending", ""), back, unprocessed);
	check(figure("stop.open", "") == POLITE + LOAD,
	    "open at shutdown: %" PRId64 ", clients that were not cut: %d",
	    figure("stop.open", ""), POLITE + LOAD);
	check(figure("stop.idle", "") + figure("stop.held", "") >=
		figure("stop.open", ""),
	    "each open connection had a timeout for idle: %" PRId64
	    ", and in mailboxes %" PRId64,
	    figure("stop.idle", ""), figure("stop.held", ""));
	check(status == 0, "exit status of httpd: %d", status);
}

static void
on_alarm(int signal)
{
	static const char message[] = "\ndemo: FAILED: a program hangs\n";

	(void)signal;
	(void)!write(STDERR_FILENO, message, sizeof(message) - 1);
	_exit(1);
}

static FILE *
server_start(pid_t *pid)
{
	char path[4096] = "", limit[LIMITS][24];
	int ends[2], i;

	for (i = 0; i < LIMITS; i++)
		snprintf(limit[i], sizeof(limit[i]), "%" PRIu64,
		    limits_ns[i] / NS_PER_MS);
	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0 ||
	    chdir(dirname(path)) != 0 || pipe2(ends, O_CLOEXEC) != 0)
		fail("starting httpd");
	*pid = fork();
	if (*pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], STDOUT_FILENO);
		execl("./httpd", "httpd", "0", limit[0], limit[1], limit[2],
		    limit[3], (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	return fdopen(ends[0], "r");
}

static bool
figure_read(FILE *server)
{
	if (figure_count == sizeof(figures) / sizeof(figures[0]) ||
	    fscanf(server, "%39s %" SCNd64, figures[figure_count].name,
		&figures[figure_count].value) != 2)
		return false;
	figure_count++;
	return true;
}

/* The clients in this thread, until all attacks have ended. */
static void
clients_run(uint64_t seconds)
{
	uint64_t shown_ns = clock_now_ns(), answers = 0;

	clients_create(seconds);
	while (attacks > 0 || clock_now_ns() < end_ns) {
		clients_turn();
		if (clock_now_ns() - shown_ns < NS_PER_SEC)
			continue;
		printf("  %7" PRIu64 " requests/s, attacks under way %4u, cut:"
		       " header %" PRIu64 " idle %" PRIu64 " read %" PRIu64
		       " request %" PRIu64 "\n",
		    counts[KIND_LOAD].answers - answers, attacks, counts[0].cut,
		    counts[1].cut, counts[2].cut, counts[3].cut);
		fflush(stdout);
		answers = counts[KIND_LOAD].answers;
		shown_ns += NS_PER_SEC;
	}
}

static int
run(uint64_t seconds)
{
	pthread_t control;
	FILE *server;
	int status;
	pid_t pid;

	signal(SIGALRM, on_alarm);
	alarm((unsigned)seconds + 30);
	server = server_start(&pid);
	if (server == NULL || !figure_read(server))
		fail("no port");
	port = (uint16_t)figures[0].value;
	printf("a browser shows the timer live: http://127.0.0.1:%u/_timer\n",
	    port);
	end_ns = clock_now_ns() + seconds * NS_PER_SEC;
	if (pthread_create(&control, NULL, control_thread, NULL) != 0)
		fail("a thread");
	/* The load never rests, and stands for clients on other machines: at
	 * the same priority it would keep the server from its processors. The
	 * control thread has the server's priority. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
	clients_run(seconds);
	pthread_join(control, NULL);
	kill(pid, SIGTERM);
	while (figure_read(server))
		continue;
	waitpid(pid, &status, 0);
	print_timer(seconds);
	check_clients();
	check_timer(status);
	printf("\n%u checks, %u failed\n", check_count, failure_count);
	return failure_count != 0;
}

int
main(int argc, char **argv)
{
	static const char usage[] =
	    "demo SECONDS\n       demo PORT HEADER_MS IDLE_MS READ_MS"
	    " REQUEST_MS";
	uint64_t seconds;
	int i;

	if (argc != 2 + LIMITS)
		arguments_are(usage, argc, argv, 2);
	if (argc == 2) {
		seconds = argument_number(argv[1], 3600);
		if (seconds >= SECONDS_MIN)
			return run(seconds);
		fprintf(stderr, "demo: it takes %d seconds at least\n",
		    SECONDS_MIN);
		return 2;
	}
	for (i = 0; i < LIMITS; i++)
		limits_ns[i] =
		    NS_PER_MS * argument_number(argv[2 + i], 86400000);
	port = (uint16_t)argument_number(argv[1], UINT16_MAX);
	clients_run(60);
	return 0;
}
