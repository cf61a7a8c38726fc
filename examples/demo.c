/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo - starts httpd on a free port of 127.0.0.1, lets wrk and our hostile
 * clients at it at the same time, shows how that goes, stops it while polite
 * clients still hold connections, and judges the figures.
 *
 *   demo [seconds]
 *
 * It finds httpd and hostile beside itself, and wrk on the path. The exit
 * status is 0 if every check passed; each says what it compared (figures.c).
 *
 * One thread: poll waits for lines of the children. "name value" goes into the
 * table of figures, "live ..." is the server's state.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"
#include "figures.h"

#define SECONDS 14
/* Each attack has time to be made once. */
#define SECONDS_MIN 5
#define WRK_CONNECTIONS 400
#define CLIENTS_PER_KIND 60
#define POLITE 60
/* The server's limits, as options of httpd and of hostile. Each attack meets
 * its own first. */
#define LIMIT_OPTIONS "-H 1500 -I 2000 -R 1000 -D 3000"
/* How often the server tells its state. */
#define LIVE_MS 200
/* How long the server may take to see that wrk has gone. */
#define SETTLE_NS (2 * NS_PER_SEC)
/* What takes so much longer than it should has hung. */
#define PATIENCE_SECONDS 30

struct live {
	int64_t ms, requests, open, pending, cut[LIMITS];
};

struct child {
	const char *name;
	pid_t pid;
	/* Its stdout; -1 once that has ended. */
	int fd;
	/* The line that has begun. */
	char line[512];
	size_t length;
};

enum {
	SERVER,
	CLIENTS,
	WRK,
	CHILDREN
};

static struct child children[CHILDREN] = {{.name = "httpd", .fd = -1},
    {.name = "hostile", .fd = -1}, {.name = "wrk", .fd = -1}};

/* As told last, and as shown last. */
static struct live live, shown;

static void
fail(const char *what)
{
	fprintf(stderr, "demo: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The shell splits the command; a child never outlives the demo. */
static void __attribute__((format(printf, 2, 3)))
child_start(struct child *child, const char *format, ...)
{
	char command[512];
	va_list values;
	int ends[2];

	va_start(values, format);
	vsnprintf(command, sizeof(command), format, values);
	va_end(values);
	if (pipe2(ends, O_CLOEXEC) != 0)
		fail("pipe2");
	fflush(stdout);
	child->pid = fork();
	if (child->pid < 0)
		fail("fork");
	if (child->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	child->fd = ends[0];
}

static void
live_show(void)
{
	bool is_terminal = isatty(STDOUT_FILENO);
	int64_t step_ms = live.ms - shown.ms;
	int64_t rate;

	if (step_ms <= 0 || (!is_terminal && step_ms < 1000))
		return;
	rate = (live.requests - shown.requests) * 1000 / step_ms;
	printf("%s%5.1f s  %7" PRId64 " requests/s  open %4" PRId64
	       "  pending %5" PRId64 "  cut:",
	    is_terminal ? "\r\033[K" : "", (double)live.ms / 1000, rate,
	    live.open, live.pending);
	for (enum limit limit = 0; limit < LIMITS; limit++)
		printf(" %s %" PRId64, limit_name(limit), live.cut[limit]);
	printf("%s", is_terminal ? "" : "\n");
	fflush(stdout);
	shown = live;
}

static bool
line_is_live(const char *line)
{
	struct live told;
	int count = sscanf(line,
	    "live %" SCNd64 " requests %" SCNd64 " open %" SCNd64
	    " pending %" SCNd64 " cut %" SCNd64 " %" SCNd64 " %" SCNd64
	    " %" SCNd64,
	    &told.ms, &told.requests, &told.open, &told.pending, &told.cut[0],
	    &told.cut[1], &told.cut[2], &told.cut[3]);

	if (count != 4 + LIMITS)
		return false;
	live = told;
	live_show();
	return true;
}

/* wrk mentions errors only if there were some. */
static void
line_of_wrk(const char *line)
{
	int64_t count[4];
	double rate;
	int end = 0;

	if (sscanf(line, " %" SCNd64 " requests in %n", &count[0], &end) == 1 &&
	    end > 0)
		figure_set("wrk.requests", count[0]);
	if (sscanf(line, " Requests/sec: %lf", &rate) == 1)
		figure_set("wrk.per_second", (int64_t)rate);
	if (sscanf(line, " Non-2xx or 3xx responses: %" SCNd64, &count[0]) == 1)
		figure_set("wrk.refused", count[0]);
	if (sscanf(line,
		" Socket errors: connect %" SCNd64 ", read %" SCNd64
		", write %" SCNd64 ", timeout %" SCNd64,
		&count[0], &count[1], &count[2], &count[3]) == 4)
		figure_set(
		    "wrk.errors", count[0] + count[1] + count[2] + count[3]);
}

static void
child_line(const struct child *child)
{
	char name[40];
	int64_t value;

	if (child == &children[WRK])
		line_of_wrk(child->line);
	else if (!line_is_live(child->line) &&
	    sscanf(child->line, "%39s %" SCNd64, name, &value) == 2)
		figure_set(name, value);
}

static void
child_end(struct child *child)
{
	char name[40];
	int status;

	close(child->fd);
	child->fd = -1;
	if (waitpid(child->pid, &status, 0) < 0)
		fail("waitpid");
	snprintf(name, sizeof(name), "exit.%s", child->name);
	figure_set(name,
	    WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void
child_read(struct child *child)
{
	char text[4096];
	ssize_t count = read(child->fd, text, sizeof(text)), i;

	if (count <= 0) {
		child_end(child);
		return;
	}
	for (i = 0; i < count; i++) {
		if (text[i] == '\n') {
			child->line[child->length] = '\0';
			child_line(child);
			child->length = 0;
		} else if (child->length < sizeof(child->line) - 1) {
			child->line[child->length++] = text[i];
		}
	}
}

static bool
child_runs(unsigned which)
{
	return children[which].fd >= 0;
}

/* Waits for news from the children, but not for long. */
static void
turn(void)
{
	struct pollfd polls[CHILDREN];
	unsigned i;

	for (i = 0; i < CHILDREN; i++)
		polls[i] = (struct pollfd){children[i].fd, POLLIN, 0};
	if (poll(polls, CHILDREN, LIVE_MS) < 0 && errno != EINTR)
		fail("poll");
	for (i = 0; i < CHILDREN; i++)
		if (polls[i].revents != 0)
			child_read(&children[i]);
}

static void
on_alarm(int signal)
{
	static const char message[] = "\ndemo: FAILED: a program hangs\n";

	(void)signal;
	(void)!write(STDERR_FILENO, message, sizeof(message) - 1);
	_exit(1);
}

static void
run(unsigned seconds)
{
	uint64_t until_ns;

	child_start(&children[SERVER], "exec ./httpd -p 0 -c -l %d %s", LIVE_MS,
	    LIMIT_OPTIONS);
	while (child_runs(SERVER) && !figure_is_set("port"))
		turn();
	if (!child_runs(SERVER))
		return;
	printf("a browser shows the timer live: http://127.0.0.1:%" PRId64
	       "/_timer\n",
	    figure("port"));
	child_start(&children[CLIENTS],
	    "exec ./hostile -p %" PRId64 " -n %d -k %d -d %u %s",
	    figure("port"), CLIENTS_PER_KIND, POLITE, seconds * 1000,
	    LIMIT_OPTIONS);
	/* wrk never rests, and stands for clients on other machines: at the
	 * same priority it would keep the server from its processors. */
	child_start(&children[WRK],
	    "exec nice -n 10 wrk -t 1 -c %d -d %us http://127.0.0.1:%" PRId64
	    "/",
	    WRK_CONNECTIONS, seconds, figure("port"));
	while (child_runs(WRK) ||
	    (child_runs(CLIENTS) && !figure_is_set("client.end")))
		turn();
	/* Only what the polite clients hold is to be left. */
	until_ns = clock_now_ns() + SETTLE_NS;
	while (child_runs(SERVER) && live.open != POLITE &&
	    clock_now_ns() < until_ns)
		turn();
	if (child_runs(SERVER))
		kill(children[SERVER].pid, SIGTERM);
	while (child_runs(SERVER) || child_runs(CLIENTS))
		turn();
}

int
main(int argc, char **argv)
{
	const struct setup setup = {
	    .connections = WRK_CONNECTIONS,
	    .hostile = LIMITS * CLIENTS_PER_KIND,
	    .polite = POLITE,
	};
	unsigned seconds = SECONDS;
	char path[4096] = "";

	usage_if_asked("demo [seconds]", argc, argv);
	if (argc > 1)
		seconds = (unsigned)argument_number(argv[1], 3600);
	if (seconds < SECONDS_MIN) {
		fprintf(stderr, "demo: it takes %d seconds at least\n",
		    SECONDS_MIN);
		return 2;
	}
	/* The siblings are where we are. */
	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0 ||
	    chdir(dirname(path)) != 0)
		fail(path);
	signal(SIGALRM, on_alarm);
	alarm(seconds + PATIENCE_SECONDS);
	printf("%u s: wrk with %d connections at a lower priority, %d hostile"
	       " clients, %d polite ones\n",
	    seconds, WRK_CONNECTIONS, LIMITS * CLIENTS_PER_KIND, POLITE);
	run(seconds);
	if (figure_is_set("wrk.requests")) {
		figure_set("wrk.errors", 0);
		figure_set("wrk.refused", 0);
	}
	return figures_judge(&setup) ? 0 : 1;
}
