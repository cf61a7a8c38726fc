/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo - starts httpd on a free port, sends it load and attacks at the same
 * time, stops it while polite clients hold connections, and checks what it and
 * its timer did.
 *
 *   demo SECONDS
 *
 * The exit status is 0 if every check passed.
 *
 *   load     asks for the small page as fast as it gets answers
 *   polite   asks again and again, one in eight for the large document, and
 *            reads what comes, if not fast: no server may cut it
 *   header   sends a legal header byte by byte, for ever
 *   idle     falls silent after a complete request
 *   read     asks for the large document and does not read it
 *
 * A client that was cut begins anew while there is time for another attack. Its
 * clock starts before the first byte of an attack is sent: a limit that the
 * server keeps cannot look too short.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
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
	bool asks_for_large, has_asked;
	uint64_t left; /* of the answer; 0: its head has not come */
};

static struct client clients[CLIENTS];
static struct {
	uint64_t begun, cut, early, answers;
} counts[KINDS];
static int epoll_fd;
static uint16_t port;
static uint64_t end_ns, lag_ns_max;
static unsigned attacks; /* under way */

/* The last output of httpd. */
static struct {
	char name[40];
	int64_t value;
} figures[64];
static unsigned figure_count, check_count, failure_count;

static const char *
client_request(const struct client *client)
{
	if (client->kind == LIMIT_HEADER)
		return "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
	return client->asks_for_large
	    ? "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
	    : "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

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
	client->left = 0;
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
		fail("connecting", errno);
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
	if (client->kind >= LIMITS)
		return;
	attacks--;
	/* Silence is an attack only after an answer. */
	if (now_ns - client->begun_ns < limits[client->kind].ns ||
	    (client->kind == LIMIT_IDLE && client->received == 0))
		counts[client->kind].early++;
}

/* Takes some text of an answer; true when that has come whole. The server sends
 * a head in one piece. */
static bool
answer_take(struct client *client, const char *text, size_t length)
{
	static const char name[] = "Content-Length: ";
	const char *value, *body;

	if (client->left == 0) {
		value = memmem(text, length, name, strlen(name));
		body = memmem(text, length, "\r\n\r\n", 4);
		if (value == NULL || body == NULL)
			fail("an answer without a head", errno);
		client->left = strtoull(value + strlen(name), NULL, 10);
		length -= (size_t)(body + 4 - text);
	}
	client->left -= length;
	return client->left == 0;
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

/* Done by clients from time to time. */
static void
client_sweep(struct client *client, uint64_t now_ns)
{
	const char *request = client_request(client);
	uint64_t limit_ns = client->kind < LIMITS ? limits[client->kind].ns : 0;

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
	} else if (client->kind == LIMIT_HEADER) {
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

		client->kind = i < LIMITS * ATTACKERS ? i % LIMITS
		    : i < LIMITS * ATTACKERS + POLITE ? KIND_POLITE
						      : KIND_LOAD;
		client->fd = -1;
		client->next_ns = now_ns + STAGGER_NS * i / CLIENTS;
		client->asks_for_large = client->kind == LIMIT_READ ||
		    (client->kind == KIND_POLITE && i % 8 == 0);
	}
}

/* How late this machine wakes a thread that sleeps from tick to tick. */
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
figure(const char *name)
{
	unsigned i;

	for (i = 0; i < figure_count; i++)
		if (strcmp(figures[i].name, name) == 0)
			return figures[i].value;
	failure_count++;
	printf("  FAILED  no figure %s\n", name);
	return -1;
}

/* One line that says what was compared. */
static void
check(bool passed, const char *text, int64_t left, const char *relation,
    int64_t right)
{
	check_count++;
	failure_count += !passed;
	printf("  %-7s %s: %" PRId64 " %s %" PRId64 "\n",
	    passed ? "ok" : "FAILED", text, left, relation, right);
}

static void
equal(const char *text, int64_t left, int64_t right)
{
	check(left == right, text, left, "=", right);
}

static void
at_least(const char *text, int64_t left, int64_t right)
{
	check(left >= right, text, left, ">=", right);
}

static void
print_timer(uint64_t seconds)
{
	static const char *const shown[] = {"timer.scheduled",
	    "timer.rescheduled", "timer.cancelled", "timer.started",
	    "timer.wakeups", "timer.memory_bytes", "late_p50_us", "late_p99_us",
	    "late_max_us"};
	size_t i;

	printf("\n  %" PRIu64
	       " requests a second over %d connections, beside %d "
	       "attackers and %d polite clients\n",
	    counts[KIND_LOAD].answers / seconds, LOAD, LIMITS * ATTACKERS,
	    POLITE);
	for (i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		printf("  %-18s %10" PRId64 "\n", shown[i], figure(shown[i]));
	printf("  the machine's lag  %10" PRIu64 " us at most\n\n",
	    lag_ns_max / NS_PER_US);
}

static void
check_clients(void)
{
	int64_t bound_us = 2 * TICK_US + (int64_t)(lag_ns_max / NS_PER_US);
	enum limit limit;
	int64_t begun;
	char name[40];

	for (limit = 0; limit < LIMITS; limit++) {
		begun = (int64_t)counts[limit].begun;
		printf("  attacks on the limit \"%s\"\n", limits[limit].name);
		at_least("begun", begun, ATTACKERS);
		snprintf(name, sizeof(name), "cut.%s", limits[limit].name);
		equal("cut by the limit", figure(name), begun);
		equal("cut, as the clients saw", counts[limit].cut, begun);
		equal("too early by their clock", counts[limit].early, 0);
	}
	printf("  clients and lateness\n");
	equal("early by the server's clock", figure("early"), 0);
	at_least("two ticks and the machine's lag, and p99 lateness, us",
	    bound_us, figure("late_p99_us"));
	equal("polite clients that began", counts[KIND_POLITE].begun, POLITE);
	at_least("their answers", counts[KIND_POLITE].answers, POLITE + 1);
	at_least("answers to the load", counts[KIND_LOAD].answers, LOAD + 1);
	equal(
	    "connections of the load that were cut", counts[KIND_LOAD].cut, 0);
}

static void
check_timer(int status)
{
	int64_t unprocessed = figure("stop.unprocessed");

	printf("  the timer at its end\n");
	equal("started + cancelled + returned by stop, and accepted",
	    figure("timer.started") + figure("timer.cancelled") + unprocessed,
	    figure("timer.scheduled"));
	equal("tasks that ran, and that were started", figure("tasks"),
	    figure("timer.started"));
	equal("pending after all", figure("timer.pending"), 0);
	equal("connections open", figure("stop.open"), POLITE + LOAD);
	at_least("timeouts of these", unprocessed + figure("stop.held"),
	    POLITE + LOAD);
	equal("exit status of httpd", status, 0);
}

static FILE *
server_start(pid_t *pid)
{
	char path[4096] = "";
	int ends[2];

	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0 ||
	    chdir(dirname(path)) != 0 || pipe2(ends, O_CLOEXEC) != 0)
		fail("starting httpd", errno);
	*pid = fork();
	if (*pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], STDOUT_FILENO);
		execl("./httpd", "httpd", "0", (char *)NULL);
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
		       "\n",
		    counts[KIND_LOAD].answers - answers, attacks, counts[0].cut,
		    counts[1].cut, counts[2].cut);
		fflush(stdout);
		answers = counts[KIND_LOAD].answers;
		shown_ns += NS_PER_SEC;
	}
}

int
main(int argc, char **argv)
{
	uint64_t seconds = argument_number(argc, argv, SECONDS_MIN, 3600);
	pthread_t control;
	FILE *server;
	int status;
	pid_t pid;

	/* Against a program that hangs. */
	alarm((unsigned)seconds + 30);
	server = server_start(&pid);
	if (server == NULL || !figure_read(server))
		fail("no port", errno);
	port = (uint16_t)figures[0].value;
	printf("a browser shows the timer live: http://127.0.0.1:%u/_timer\n",
	    port);
	fflush(stdout);
	end_ns = clock_now_ns() + seconds * NS_PER_SEC;
	if (pthread_create(&control, NULL, control_thread, NULL) != 0)
		fail("a thread", errno);
	/* The load stands for clients on other machines. The control thread has
	 * the server's priority. */
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
