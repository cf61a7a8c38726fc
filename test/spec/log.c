/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warnings on a stderr that nobody reads: they are dropped, the worker
 * continues, and neither the process nor a child that is forked meanwhile hangs
 * or dies at its exit. The runner must not exit, so the program is executed
 * anew.
 */
#include "test/spec/support.h"

#include <fcntl.h>

SUITE(log);

/* A pipe in the place of stderr; its end for reading. */
static int
pipe_for_stderr(void)
{
	int ends[2];

	child_check(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
	child_ok(close(ends[1]));
	return ends[0];
}

static void
fill_stderr(void)
{
	static const char bytes[4096];

	child_ok(fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK));
	while (write(STDERR_FILENO, bytes, sizeof(bytes)) > 0)
		;
	child_ok(fcntl(STDERR_FILENO, F_SETFL, 0));
}

static struct probe probe;

static struct hwt *
periodic_timer(void)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));

	child_ok(hwt_new_periodic(
	    timer, NULL, NULL, probe_task, &probe, HWT_MS(1), HWT_MS(1)));
	return timer;
}

/* Forked while the worker has a warning to write. */
static void
exit_in_child(void)
{
	pid_t child = child_split();

	if (child == 0) {
		(void)periodic_timer();
		wait_for(&probe.runs, probe.runs + 3);
		exit(LEFT_BY_EXIT);
	}
	child_check(child_wait(child) == LEFT_BY_EXIT);
}

static void
warn_unread(void)
{
	struct hwt_stats stats = {0};
	struct hwt *timer;

	executor_init(&recorder, EXECUTOR_REFUSES);
	(void)pipe_for_stderr();
	fill_stderr();
	timer = periodic_timer();
	child_ok(hwt_new_timeout_on(
	    timer, &recorder.hook, NULL, idle_task, NULL, 0));
	while (stats.executor_refused == 0)
		child_ok(hwt_read_stats(timer, &stats));
	for (int i = 0; i < 20; i++)
		exit_in_child();
	wait_for(&probe.runs, probe.runs + 3);
	child_ok(hwt_stop(timer, NULL));
}

static const struct role roles[] = {{"warn unread", warn_unread}};

ROLES(roles)

Test(log, a_stderr_that_nobody_reads_stops_no_worker_and_no_exit)
{
	assert_i64(role_run("warn unread", NULL, NULL), LEFT_BY_EXIT);
}

/* Manual timers that warn once each. */
static void
warn(void)
{
	struct hwt_options options = {.flags = HWT_MANUAL,
	    .tick_ns = HWT_US(10),
	    .executor = &recorder.hook};
	uint64_t started = 0;
	struct hwt *timer;

	executor_init(&recorder, EXECUTOR_REFUSES);
	child_ok(hwt_create(&timer, &options));
	child_ok(hwt_new_timeout(timer, NULL, idle_task, NULL, 0));
	while (started == 0)
		child_ok(hwt_advance(timer, &started));
	worker_timer_close(timer);
}

static void
warn_and_read(void *arg)
{
	const char *said = "hwt: an executor refused a timeout; its task runs "
			   "in the worker (2 before it were dropped)\n";
	int fd = pipe_for_stderr();
	char text[4096] = "";

	(void)arg;
	fill_stderr();
	warn();
	warn();
	child_ok(fcntl(fd, F_SETFL, O_NONBLOCK));
	while (read(fd, text, sizeof(text)) > 0)
		;
	warn();
	memset(text, 0, sizeof(text));
	child_check(read(fd, text, sizeof(text) - 1) > 0);
	child_check(strcmp(text, said) == 0);
	/* Nobody can read it any more: no SIGPIPE. */
	child_ok(close(fd));
	warn();
}

Test(log, the_next_warning_says_how_many_were_dropped)
{
	in_child(warn_and_read, NULL);
}

static void
warn_on_a_terminal(void *arg)
{
	int fd = posix_openpt(O_RDWR | O_NOCTTY);

	(void)arg;
	child_check(grantpt(fd) == 0 && unlockpt(fd) == 0 &&
	    dup2(open(ptsname(fd), O_RDWR | O_NOCTTY), STDERR_FILENO) >= 0);
	for (int i = 0; i < 1000; i++)
		warn();
}

Test(log, a_terminal_that_takes_half_a_line_is_not_waited_for)
{
	in_child(warn_on_a_terminal, NULL);
}
