/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt-exec - a worker that runs a command for each task, without a shell.
 *
 * The payload is a file in memory, the command's standard input: however much
 * of it the command reads, nobody waits, and no signal comes of it. Whatever
 * else we have open is closed in the command.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"
#include "output.h"
#include "wait.h"
#include "worker-serve.h"

static const char usage[] =
    "usage: hwt-exec --queue Q [OPTION...] -- COMMAND [ARGUMENT...]\n"
    "\n"
    "  --queue Q               the queue to take tasks from; it may be given\n"
    "                          up to 16 times, for queues that take turns\n"
    "  --threads N             so many commands at a time; 1\n"
    "  --visibility SECONDS    after a crash of hwt-exec, others take its "
    "tasks\n"
    "                          over so late; 30\n"
    "  --limit SECONDS         ends a command that takes longer, and tries "
    "again;\n"
    "                          none\n"
    "  --fail-status LIST      exit statuses that are not tried again, as\n"
    "                          64-78,100; none\n"
    "  --metrics [ADDRESS:]PORT  serves GET /metrics there; nowhere\n"
    "\n"
    "COMMAND gets the payload on its standard input, and HWT_ID, HWT_ATTEMPT\n"
    "(from 1), HWT_GENERATION (from 1), HWT_FENCE, HWT_QUEUE and HWT_DUE "
    "(Unix\n"
    "time in ms) in its environment. Its exit status says: 0 done; one of\n"
    "--fail-status: a dead letter; any other, or a signal: to be tried again\n"
    "later, as long as attempts are left.\n";

#define STATUS_MAX 255 /* of a command */

/* From SIGTERM to SIGKILL. */
#define GRACE_MS 10000

static const char *queue, *threads, *visibility, *limit, *fail_status;

static const struct option_row rows[] = {
    {"queue", &queue, false},
    {"threads", &threads, false},
    {"visibility", &visibility, false},
    {"limit", &limit, false},
    {"fail-status", &fail_status, false},
    {"metrics", &worker_metrics_at, false},
    {NULL, NULL, false},
};

/* What is the same for each run. */
struct runs {
	char **command;
	int64_t limit_ms; /* 0: none */
	bool fails[STATUS_MAX + 1]; /* these statuses are not tried again */
	posix_spawnattr_t attributes;
};

#define OWN_VARIABLES 6

/* What is ours in an environment, as name and value. */
struct variables {
	char text[OWN_VARIABLES][96];
	char **all; /* ours, then the rest of what we were given; NULL */
};

static bool
is_own(const char *variable)
{
	static const char *const names[OWN_VARIABLES] = {
	    "HWT_ID=", "HWT_ATTEMPT=", "HWT_GENERATION=", "HWT_DUE=",
	    "HWT_FENCE=", "HWT_QUEUE="};
	size_t i;

	for (i = 0; i < OWN_VARIABLES; i++) {
		if (strncmp(variable, names[i], strlen(names[i])) == 0)
			return true;
	}
	return false;
}

static bool
variables_make(
    struct variables *variables, const struct hwt_durable_delivery *delivery)
{
	size_t i, count = 0;

	while (environ[count] != NULL)
		count++;
	variables->all =
	    calloc(OWN_VARIABLES + count + 1, sizeof(*variables->all));
	if (variables->all == NULL)
		return false;
	(void)snprintf(variables->text[0], sizeof(variables->text[0]),
	    "HWT_ID=%s", delivery->id);
	(void)snprintf(variables->text[1], sizeof(variables->text[1]),
	    "HWT_ATTEMPT=%" PRIu32, delivery->attempt);
	(void)snprintf(variables->text[2], sizeof(variables->text[2]),
	    "HWT_GENERATION=%" PRIu32, delivery->generation);
	(void)snprintf(variables->text[3], sizeof(variables->text[3]),
	    "HWT_DUE=%" PRIu64, delivery->due_unix_ns / HWT_MS(1));
	(void)snprintf(variables->text[4], sizeof(variables->text[4]),
	    "HWT_FENCE=%" PRIu64, delivery->fence);
	(void)snprintf(variables->text[5], sizeof(variables->text[5]),
	    "HWT_QUEUE=%s", delivery->queue);
	for (i = 0; i < OWN_VARIABLES; i++)
		variables->all[i] = variables->text[i];
	for (count = 0; environ[count] != NULL; count++) {
		if (!is_own(environ[count]))
			variables->all[i++] = environ[count];
	}
	return true;
}

/* A file that holds the payload, and stands at its beginning; -1: none. */
static int
payload_open(const struct hwt_durable_delivery *delivery)
{
	const char *text = delivery->payload;
	size_t length = delivery->payload_length;
	ssize_t count;
	int fd = memfd_create("payload", MFD_CLOEXEC);

	while (fd >= 0 && length > 0) {
		count = write(fd, text, length);
		if (count <= 0) {
			(void)close(fd);
			return -1;
		}
		text += count;
		length -= (size_t)count;
	}
	if (fd >= 0)
		(void)lseek(fd, 0, SEEK_SET);
	return fd;
}

/* 0, or an errno value. standard_error is what the command gets for that. */
static int
spawn(const struct runs *runs, const struct hwt_durable_delivery *delivery,
    int standard_error, pid_t *child)
{
	posix_spawn_file_actions_t actions;
	struct variables variables;
	int error, fd = payload_open(delivery);

	if (fd < 0)
		return errno != 0 ? errno : EIO;
	error = posix_spawn_file_actions_init(&actions);
	if (error != 0)
		goto close_payload;
	error = posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
	if (error == 0)
		error = posix_spawn_file_actions_adddup2(
		    &actions, standard_error, STDERR_FILENO);
	if (error != 0)
		goto destroy_actions;
	error = ENOMEM;
	if (variables_make(&variables, delivery)) {
		error = posix_spawnp(child, runs->command[0], &actions,
		    &runs->attributes, runs->command, variables.all);
		free(variables.all);
	}
destroy_actions:
	(void)posix_spawn_file_actions_destroy(&actions);
close_payload:
	(void)close(fd);
	return error;
}

/* Why an attempt has failed: on our standard error, and for the dead letter
 * that it may make of the task, with the end of what the command wrote. */
static void __attribute__((format(printf, 4, 5)))
tell_failure(const struct hwt_durable_delivery *delivery, const char *output,
    size_t length, const char *format, ...)
{
	char why[HWT_DURABLE_ERROR_MAX + 1];
	size_t at;
	va_list list;

	va_start(list, format);
	(void)vsnprintf(why, HWT_DURABLE_ERROR_MAX - OUTPUT_MAX, format, list);
	va_end(list);
	complain("%s: attempt %" PRIu32 ": %s", delivery->id, delivery->attempt,
	    why);
	while (length > 0 && strchr(" \n\r\t", output[length - 1]) != NULL)
		length--;
	at = strlen(why);
	if (length > 0) {
		memcpy(why + at, ": ", 2);
		memcpy(why + at + 2, output, length);
		at += 2 + length;
	}
	(void)hwt_durable_set_error(delivery, why, at);
}

/* What a status of waitpid means for the task. */
static int
outcome(const struct runs *runs, const struct hwt_durable_delivery *delivery,
    int status, const char *output, size_t length)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (!WIFEXITED(status)) {
		tell_failure(delivery, output, length, "ended by signal %d",
		    WTERMSIG(status));
		return HWT_DURABLE_RETRY;
	}
	tell_failure(
	    delivery, output, length, "exit status %d", WEXITSTATUS(status));
	return runs->fails[WEXITSTATUS(status)] ? HWT_DURABLE_FAIL
						: HWT_DURABLE_RETRY;
}

/* Waits until the command has ended, or ends it with its process group; returns
 * whether it did that. The command is not reaped here, so its number and that
 * of its group are still theirs whenever a signal is sent. */
static bool
limit_run(int64_t limit_ms, pid_t child)
{
	int64_t until_ms = wait_now_ms() + limit_ms;
	int fd = (int)syscall(SYS_pidfd_open, child, 0);
	siginfo_t ended;

	if (fd >= 0 && wait_for(fd, POLLIN, until_ms)) {
		(void)close(fd);
		return false;
	}
	(void)kill(-child, SIGTERM);
	if (fd >= 0) {
		(void)wait_for(fd, POLLIN, wait_now_ms() + GRACE_MS);
		(void)close(fd);
	}
	(void)kill(-child, SIGKILL);
	while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) != 0 &&
	    errno == EINTR)
		;
	return true;
}

/* Waits for the command; what it came to. */
static int
await(const struct runs *runs, const struct hwt_durable_delivery *delivery,
    pid_t child, struct output *pipe)
{
	char output[OUTPUT_MAX];
	bool limited = false;
	size_t length;
	int status = 0;
	pid_t ended;

	if (runs->limit_ms != 0)
		limited = limit_run(runs->limit_ms, child);
	do
		ended = waitpid(child, &status, 0);
	while (ended < 0 && errno == EINTR);
	length = output_end(pipe, output);
	if (ended < 0)
		return HWT_DURABLE_RETRY;
	if (!limited || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
		return outcome(runs, delivery, status, output, length);
	tell_failure(
	    delivery, output, length, "ended, for it took longer than --limit");
	return HWT_DURABLE_RETRY;
}

static int
run(void *ctx, const struct hwt_durable_delivery *delivery)
{
	const struct runs *runs = ctx;
	struct output *pipe;
	pid_t child = -1;
	int error, end = -1;

	if (strlen(delivery->id) != delivery->id_length) {
		tell_failure(delivery, "", 0,
		    "the id has a byte 0 in it, which no environment can "
		    "hold");
		return HWT_DURABLE_FAIL;
	}
	pipe = output_open(&end);
	if (pipe == NULL) {
		tell_failure(
		    delivery, "", 0, "no pipe: %s", system_text(errno));
		return HWT_DURABLE_RETRY;
	}
	error = spawn(runs, delivery, end, &child);
	(void)close(end);
	if (error == 0)
		return await(runs, delivery, child, pipe);
	(void)output_end(pipe, (char[OUTPUT_MAX]){0});
	tell_failure(
	    delivery, "", 0, "%.64s: %s", runs->command[0], system_text(error));
	return HWT_DURABLE_RETRY;
}

/* As posix_spawnp looks for it. */
static bool
command_exists(const char *command)
{
	const char *path = getenv("PATH");
	char *found;
	bool is = false;
	size_t length;

	if (strchr(command, '/') != NULL)
		return access(command, X_OK) == 0;
	if (path == NULL)
		path = "/bin:/usr/bin";
	while (!is) {
		length = strcspn(path, ":");
		if (asprintf(&found, "%.*s%s%s", (int)length, path,
			length > 0 ? "/" : "./", command) < 0)
			return false;
		is = access(found, X_OK) == 0;
		free(found);
		if (path[length] == '\0')
			break;
		path += length + 1;
	}
	return is;
}

/* A command gets the signals that end us as we got them, and a group of its
 * own, so that a terminal's ^C lets it finish. */
static void
attributes_make(struct runs *runs)
{
	sigset_t blocked, ignored;
	short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
	    POSIX_SPAWN_SETPGROUP;

	/* Who started this may have it ignored: then commands leave no
	 * status. */
	(void)signal(SIGCHLD, SIG_DFL);
	(void)pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	(void)sigemptyset(&ignored);
	(void)sigaddset(&ignored, SIGPIPE);
	if (posix_spawnattr_init(&runs->attributes) != 0) {
		complain("no memory");
		exit(STATUS_NO);
	}
	(void)posix_spawnattr_setsigmask(&runs->attributes, &blocked);
	(void)posix_spawnattr_setsigdefault(&runs->attributes, &ignored);
	(void)posix_spawnattr_setflags(&runs->attributes, flags);
}

/* Numbers and ranges of them, A-B, with commas between. */
static void
fail_status_read(struct runs *runs)
{
	char *copy, *word, *rest, *dash;
	uint64_t first, last;

	if (fail_status == NULL)
		return;
	rest = copy = strdup(fail_status);
	if (copy == NULL) {
		complain("no memory");
		exit(STATUS_NO);
	}
	while ((word = strsep(&rest, ",")) != NULL) {
		dash = strchr(word, '-');
		if (dash != NULL)
			*dash = '\0';
		first = option_number("fail-status", word, 0, 1, STATUS_MAX);
		last = option_number("fail-status",
		    dash != NULL ? dash + 1 : NULL, first, first, STATUS_MAX);
		for (; first <= last; first++)
			runs->fails[first] = true;
	}
	free(copy);
}

static void
options_check(struct hwt_durable_worker_options *options, struct runs *runs)
{
	const uint64_t day_ns = HWT_SEC(86400);

	if (queue == NULL)
		usage_error("want --queue");
	option_queues("--queue", queue);
	options->queue = queue;
	options->threads =
	    (uint32_t)option_number("threads", threads, 0, 1, 1024);
	options->visibility_ns =
	    option_seconds("visibility", visibility, 0, HWT_SEC(1), day_ns);
	runs->limit_ms =
	    (int64_t)(option_seconds("limit", limit, 0, HWT_MS(1), day_ns) /
		HWT_MS(1));
}

int
main(int argc, char **argv)
{
	static const struct program program = {.name = "hwt-exec",
	    .usage = usage,
	    .rows = {rows},
	    .many = "queue",
	    .command = true};
	struct hwt_durable_worker_options options = {0};
	struct hwt_durable *durable;
	struct runs runs = {0};
	enum status status;

	if (options_read(&program, argc, argv) == 0)
		usage_error("want a command");
	runs.command = argv;
	options_check(&options, &runs);
	fail_status_read(&runs);
	if (!command_exists(argv[0]))
		usage_error("%s: no such command", argv[0]);
	worker_metrics_open();
	options.callback = run;
	options.ctx = &runs;
	/* However long that takes, a signal ends us as it would any program. */
	durable = handle_open();
	attributes_make(&runs);
	if (!output_start()) {
		complain("%s", system_text(errno));
		finish(STATUS_NO);
	}
	status = worker_serve(durable, &options, NULL, HWT_MIN(1));
	(void)posix_spawnattr_destroy(&runs.attributes);
	finish(status);
}
