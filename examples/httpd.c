/* SPDX-License-Identifier: Apache-2.0 */
/*
 * httpd - an HTTP/1.1 server whose clients cannot hold it up: several epoll
 * loops, one hwt mailbox each, all on the one shared timer of the process.
 *
 *   httpd [-p port] [-t loops] [-H ms] [-I ms] [-R ms] [-D ms] [-c] [-l ms]
 *
 *   -p  port on 127.0.0.1 (8080); 0: a free one, which is told
 *   -t  loops, each a thread (2)
 *   -H  limit for the header of a request, from its first byte (10000)
 *   -I  limit for keep-alive without a request (60000)
 *   -R  limit for a response that is not read on (10000)
 *   -D  limit for a whole request, its response included (60000)
 *   -c  a control thread beside the server records how late this machine
 *       wakes a thread that sleeps until each tick
 *   -l  a line about the state every so many milliseconds
 *
 * It runs until SIGINT or SIGTERM, and then tells its figures. /_timer shows
 * what the timer does, and /metrics tells it to Prometheus (watch.c). loop.c is
 * the event loop, connection.c shows how timeouts are used: read that first.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"
#include "connection.h"
#include "http.h"
#include "hwt.h"
#include "loop.h"
#include "tally.h"

/* That of hwt_shared. */
#define TICK_NS HWT_MS(10)
#define LOOPS_MAX 64
/* Small enough that a client's progress through a large document shows long
 * before the limit for reading. */
#define SEND_BUFFER_BYTES (128 << 10)

/* Sleeps until each tick, as the timer's worker may have to; what it is late is
 * the machine's doing. */
struct control {
	bool is_wanted;
	pthread_t thread;
	struct hwt *timer;
	_Atomic bool is_over;
	uint64_t lag_ns_max, pending_max;
};

struct server {
	uint16_t port;
	unsigned loop_count;
	uint64_t limits_ns[LIMITS];
	uint64_t live_ms;
	struct hwt *timer;
	int listen_fd, stop_fd;
	struct loop *loops;
	struct control control;
	sigset_t stop_signals;
	uint64_t start_ns;
};

/* What is left when the loops have ended and the timer has stopped. */
struct remains {
	/* Connections that are open, and the timeouts that stop returned: in
	 * all, of each limit, of loops, and those that nobody knows. */
	uint64_t open, unprocessed, of_limit[LIMITS], of_loops, strange;
	/* Timeouts for idle that lay in a mailbox, which stop leaves there. */
	uint64_t idle_in_mailbox;
	/* Timeouts that were still held when all had ended. */
	uint64_t lost;
};

static void
fail(const char *what, int error)
{
	fprintf(stderr, "httpd: %s: %s\n", what, strerror(-error));
	exit(1);
}

static const char usage[] = "httpd [-p port] [-t loops] [-H ms] [-I ms]"
			    " [-R ms] [-D ms] [-c] [-l ms]";

static void
server_options(struct server *server, int argc, char **argv)
{
	static const char letters[] = "HIRD";
	const uint64_t day_ms = 86400000;
	int option;

	*server = (struct server){
	    .port = 8080,
	    .loop_count = 2,
	    .limits_ns = {HWT_SEC(10), HWT_SEC(60), HWT_SEC(10), HWT_SEC(60)},
	};
	usage_if_asked(usage, argc, argv);
	while ((option = getopt(argc, argv, "p:t:H:I:R:D:cl:")) != -1) {
		const char *letter = strchr(letters, option);

		if (option == '?')
			usage_tell(usage, 2);
		else if (letter != NULL)
			server->limits_ns[letter - letters] =
			    HWT_MS(argument_number(optarg, day_ms));
		else if (option == 'p')
			server->port =
			    (uint16_t)argument_number(optarg, UINT16_MAX);
		else if (option == 't')
			server->loop_count =
			    (unsigned)argument_number(optarg, LOOPS_MAX);
		else if (option == 'c')
			server->control.is_wanted = true;
		else
			server->live_ms = argument_number(optarg, day_ms);
	}
	if (optind != argc || server->loop_count == 0)
		usage_tell(usage, 2);
}

/* Connections inherit the options of the listening socket. */
static void
server_listen(struct server *server)
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET,
	    .sin_port = htons(server->port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t length = sizeof(address);
	int buffer = SEND_BUFFER_BYTES, on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)) !=
		0 ||
	    bind(fd, (struct sockaddr *)&address, length) != 0 ||
	    listen(fd, SOMAXCONN) != 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &length) != 0)
		fail("cannot listen", -errno);
	server->listen_fd = fd;
	server->port = ntohs(address.sin_port);
}

static void *
control_main(void *arg)
{
	struct control *control = arg;
	uint64_t next_ns = clock_now_ns();

	while (!atomic_load(&control->is_over)) {
		struct timespec until;
		uint64_t lag_ns, pending;

		next_ns += TICK_NS;
		until.tv_sec = (time_t)(next_ns / NS_PER_SEC);
		until.tv_nsec = (long)(next_ns % NS_PER_SEC);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		lag_ns = clock_now_ns() - next_ns;
		if (lag_ns > control->lag_ns_max)
			control->lag_ns_max = lag_ns;
		pending = hwt_pending_timeouts(control->timer);
		if (pending > control->pending_max)
			control->pending_max = pending;
	}
	return NULL;
}

static void
server_start(struct server *server)
{
	struct rlimit files;
	unsigned i;
	int error;

	/* As many connections as the system allows. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	/* In all threads: only server_wait takes them. */
	sigemptyset(&server->stop_signals);
	sigaddset(&server->stop_signals, SIGINT);
	sigaddset(&server->stop_signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &server->stop_signals, NULL);
	http_answer_prepare();
	server_listen(server);
	error = hwt_shared(&server->timer);
	if (error != 0)
		fail("no timer", error);
	server->stop_fd = eventfd(0, EFD_CLOEXEC);
	server->loops = calloc(server->loop_count, sizeof(*server->loops));
	if (server->stop_fd < 0 || server->loops == NULL)
		fail("cannot start", -errno);
	server->start_ns = clock_now_ns();
	for (i = 0; i < server->loop_count; i++) {
		struct loop *loop = &server->loops[i];

		loop->timer = server->timer;
		loop->limits_ns = server->limits_ns;
		loop->listen_fd = server->listen_fd;
		loop->stop_fd = server->stop_fd;
		error = loop_start(loop);
		if (error != 0)
			fail("cannot start a loop", error);
	}
	if (!server->control.is_wanted)
		return;
	server->control.timer = server->timer;
	error = -pthread_create(
	    &server->control.thread, NULL, control_main, &server->control);
	if (error != 0)
		fail("cannot start the control thread", error);
}

static void
server_tell_live(const struct server *server)
{
	uint64_t requests = 0, open = 0, cut[LIMITS] = {0};
	enum limit limit;
	unsigned i;

	for (i = 0; i < server->loop_count; i++) {
		const struct tally *tally = &server->loops[i].tally;

		requests += tally_read(&tally->requests);
		open += tally_read(&tally->open);
		for (limit = 0; limit < LIMITS; limit++)
			cut[limit] += tally_read(&tally->cut[limit]);
	}
	printf("live %" PRIu64 " requests %" PRIu64 " open %" PRIu64
	       " pending %" PRIu64 " cut",
	    (clock_now_ns() - server->start_ns) / NS_PER_MS, requests, open,
	    hwt_pending_timeouts(server->timer));
	for (limit = 0; limit < LIMITS; limit++)
		printf(" %" PRIu64, cut[limit]);
	printf("\n");
}

/* Returns when the server is to stop. */
static void
server_wait(const struct server *server)
{
	struct timespec live = {
	    .tv_sec = (time_t)(server->live_ms / 1000),
	    .tv_nsec = (long)(server->live_ms % 1000 * NS_PER_MS),
	};

	if (server->live_ms == 0) {
		while (sigwaitinfo(&server->stop_signals, NULL) < 0)
			assert(errno == EINTR);
		return;
	}
	while (sigtimedwait(&server->stop_signals, NULL, &live) < 0)
		if (errno == EAGAIN)
			server_tell_live(server);
}

/*
 * Asks the owners about everything that stop returned: each timeout must be
 * one that a connection or a loop holds. Afterwards they hold only what lies
 * in a mailbox.
 */
static void
remains_sort(struct server *server, struct hwt_unprocessed *unprocessed,
    struct remains *remains)
{
	const struct connection *connection;
	struct hwt_timeout_info info;
	enum limit limit;
	unsigned i;

	remains->unprocessed = unprocessed->count;
	while (hwt_unprocessed_next(unprocessed, &info)) {
		if (connection_unprocessed(&info, &limit))
			remains->of_limit[limit]++;
		else if (loop_unprocessed(&info))
			remains->of_loops++;
		else
			remains->strange++;
	}
	for (i = 0; i < server->loop_count; i++) {
		connection = server->loops[i].connections;
		for (; connection != NULL; connection = connection->next) {
			remains->open++;
			remains->idle_in_mailbox +=
			    connection->deadlines[LIMIT_IDLE].timeout.id != 0;
		}
	}
}

/*
 * The order of the end: the loops, so that nobody schedules any more; the
 * timer; what it had already handed over, which runs here, since this thread
 * stands for the loops now; and last the connections.
 */
static void
server_stop(struct server *server, struct remains *remains)
{
	struct hwt_unprocessed unprocessed;
	unsigned i;
	int error;

	*remains = (struct remains){0};
	eventfd_write(server->stop_fd, 1);
	for (i = 0; i < server->loop_count; i++)
		loop_join(&server->loops[i]);
	if (server->control.is_wanted) {
		atomic_store(&server->control.is_over, true);
		pthread_join(server->control.thread, NULL);
	}
	error = hwt_shared_shutdown(&unprocessed);
	if (error != 0)
		fail("cannot stop the timer", error);
	remains_sort(server, &unprocessed, remains);
	for (i = 0; i < server->loop_count; i++) {
		struct loop *loop = &server->loops[i];

		hwt_mailbox_run(loop->mailbox, 0, NULL);
		while (loop->connections != NULL)
			remains->lost += connection_destroy(loop->connections);
		remains->lost += loop->pause.id != 0;
		loop_destroy(loop);
	}
	close(server->listen_fd);
	close(server->stop_fd);
}

static void
report_cuts(const char *name, uint64_t cut, const struct lateness *lateness)
{
	report(name, "cut", (int64_t)cut);
	report(name, "early", (int64_t)lateness->early);
	report(name, "late_p50_us",
	    lateness_percentile_ns(lateness, 50) / (int64_t)NS_PER_US);
	report(name, "late_p99_us",
	    lateness_percentile_ns(lateness, 99) / (int64_t)NS_PER_US);
	report(name, "late_max_us", lateness->max_ns / (int64_t)NS_PER_US);
}

/* Of each limit, and of all together. */
static void
report_limits(const struct server *server)
{
	static struct lateness all, one;
	uint64_t cut_all = 0;
	enum limit limit;
	unsigned i;

	for (limit = 0; limit < LIMITS; limit++) {
		uint64_t cut = 0;

		one = (struct lateness){0};
		for (i = 0; i < server->loop_count; i++) {
			struct tally *tally = &server->loops[i].tally;

			cut += tally_read(&tally->cut[limit]);
			lateness_merge(&one, &tally->lateness[limit]);
		}
		report_cuts(limit_name(limit), cut, &one);
		lateness_merge(&all, &one);
		cut_all += cut;
	}
	report_cuts("all", cut_all, &all);
}

static void
report_loops(const struct server *server)
{
	uint64_t requests = 0, scheduled = 0, rescheduled = 0, cancelled = 0;
	uint64_t started = 0, spared = 0;
	unsigned i;

	for (i = 0; i < server->loop_count; i++) {
		const struct tally *tally = &server->loops[i].tally;

		requests += tally_read(&tally->requests);
		scheduled += tally_read(&tally->scheduled);
		rescheduled += tally_read(&tally->rescheduled);
		cancelled += tally_read(&tally->cancelled);
		started += tally_read(&tally->started);
		spared += tally_read(&tally->spared);
	}
	report("server", "ticks",
	    (int64_t)((clock_now_ns() - server->start_ns) / TICK_NS));
	report("server", "requests", (int64_t)requests);
	report("server", "scheduled", (int64_t)scheduled);
	report("server", "rescheduled", (int64_t)rescheduled);
	report("server", "cancelled", (int64_t)cancelled);
	report("server", "started", (int64_t)started);
	report("server", "spared", (int64_t)spared);
}

static void
report_timer(const struct server *server)
{
	struct hwt_stats stats;
	int error = hwt_read_stats(server->timer, &stats);

	if (error != 0)
		fail("no statistics", error);
	report("timer", "tick_us", TICK_NS / NS_PER_US);
	report("timer", "scheduled", (int64_t)stats.scheduled);
	report("timer", "rescheduled", (int64_t)stats.rescheduled);
	report("timer", "cancelled", (int64_t)stats.cancelled);
	report("timer", "started", (int64_t)stats.started);
	report("timer", "pending", (int64_t)stats.pending);
	report("timer", "ticks", (int64_t)stats.ticks);
	report("timer", "wakeups", (int64_t)stats.wakeups);
	report("timer", "late_ticks", (int64_t)stats.late_ticks);
	report("timer", "late_max_us",
	    (int64_t)(stats.lateness_ns_max / NS_PER_US));
	report("timer", "memory_bytes", (int64_t)stats.memory_bytes);
	if (!server->control.is_wanted)
		return;
	report("control", "lag_max_us",
	    (int64_t)(server->control.lag_ns_max / NS_PER_US));
	report("control", "pending_max", (int64_t)server->control.pending_max);
}

static void
report_remains(const struct remains *remains)
{
	enum limit limit;

	report("stop", "open", (int64_t)remains->open);
	report("stop", "unprocessed", (int64_t)remains->unprocessed);
	for (limit = 0; limit < LIMITS; limit++)
		report("stop", limit_name(limit),
		    (int64_t)remains->of_limit[limit]);
	report("stop", "loops", (int64_t)remains->of_loops);
	report("stop", "strange", (int64_t)remains->strange);
	report("stop", "idle_in_mailbox", (int64_t)remains->idle_in_mailbox);
	report("stop", "lost", (int64_t)remains->lost);
}

int
main(int argc, char **argv)
{
	struct server server;
	struct remains remains;

	setvbuf(stdout, NULL, _IOLBF, 0);
	server_options(&server, argc, argv);
	server_start(&server);
	report(NULL, "port", server.port);
	server_wait(&server);
	server_stop(&server, &remains);
	report_limits(&server);
	report_loops(&server);
	report_timer(&server);
	report_remains(&remains);
	free(server.loops);
	return remains.lost != 0 || remains.strange != 0;
}
