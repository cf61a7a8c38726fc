/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt-exec: executes a command for each task. See man hwt-exec (1).
 *
 * Each thread of the worker runs one command at a time and waits for it. The
 * payload is in a memory file, which is the command's standard input, so that
 * nobody has to write while the command runs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "modules/durable/programs/program.h"

#define JOBS_MAX 256
#define STATUSES 256
#define END_WITHIN HWT_SEC(5) /* to report what was killed */

static const char usage[] =
    "usage: hwt-exec --queue Q[,Q...] [OPTION...] -- COMMAND [ARGUMENT...]\n"
    "  --jobs N               commands at a time (1)\n"
    "  --limit TIME           a command that runs longer is killed\n"
    "  --fail-status N[,N...] exit statuses that end in a dead "
    "letter\n" WORKER_USAGE CLIENT_USAGE;

static struct {
	uint64_t jobs, limit_ns;
	bool fails[STATUSES];
	char **command;
	int stop; /* is readable when the grace is over */
} executor = {.jobs = 1};

static int
payload_file(const struct hwt_durable_delivery *delivery)
{
	size_t length = delivery->payload_length;
	int fd = memfd_create("payload", MFD_CLOEXEC);

	if (fd >= 0 &&
	    write(fd, delivery->payload, length) == (ssize_t)length &&
	    lseek(fd, 0, SEEK_SET) == 0)
		return fd;
	(void)fprintf(stderr, "hwt-exec: payload: %s\n", strerror(errno));
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

/* The environment with the three names; the array is the caller's to free. */
static char **
make_environment(const struct hwt_durable_delivery *delivery,
    char text[3][HWT_DURABLE_ID_MAX + 16])
{
	size_t i, count = 0;
	char **made;

	while (environ[count] != NULL)
		count++;
	made = calloc(count + 4, sizeof(*made));
	if (made == NULL)
		return NULL;
	(void)sprintf(text[0], "HWT_ID=%s", delivery->id);
	(void)sprintf(text[1], "HWT_ATTEMPT=%u", delivery->attempt);
	(void)sprintf(text[2], "HWT_DUE=%llu",
	    (unsigned long long)(delivery->due_unix_ns / HWT_MS(1)));
	memcpy(made, environ, count * sizeof(*made));
	for (i = 0; i < 3; i++)
		made[count + i] = text[i];
	return made;
}

/* In a process group of its own, so that all of it can be killed; with no
 * signal blocked. 0, or an errno. */
static int
spawn(int input, char **environment, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int error;

	(void)sigemptyset(&none);
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
	(void)posix_spawnattr_init(&attributes);
	(void)posix_spawnattr_setflags(
	    &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	(void)posix_spawnattr_setsigmask(&attributes, &none);
	error = posix_spawnp(pid, executor.command[0], &actions, &attributes,
	    executor.command, environment);
	(void)posix_spawnattr_destroy(&attributes);
	(void)posix_spawn_file_actions_destroy(&actions);
	return error;
}

/* Returns the status of waitpid; kills it when its time, or the grace of all,
 * is over. */
static int
wait_for(pid_t pid, bool *late)
{
	struct pollfd ends[] = {
	    {.fd = pidfd_open(pid, 0), .events = POLLIN},
	    {.fd = executor.stop, .events = POLLIN},
	};
	int status, limit_ms = (int)(executor.limit_ns / HWT_MS(1));

	/* Without a descriptor it has no limit. */
	*late =
	    ends[0].fd >= 0 && poll(ends, 2, limit_ms > 0 ? limit_ms : -1) == 0;
	if (*late || ends[1].revents != 0)
		(void)kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (ends[0].fd >= 0)
		(void)close(ends[0].fd);
	return status;
}

static int
run_command(const struct hwt_durable_delivery *delivery, int input)
{
	char text[3][HWT_DURABLE_ID_MAX + 16];
	char **environment = make_environment(delivery, text);
	int status, error = ENOMEM;
	bool exited, late;
	pid_t pid;

	if (environment != NULL)
		error = spawn(input, environment, &pid);
	free(environment);
	if (error != 0) {
		(void)snprintf(delivery->reason, HWT_DURABLE_REASON_MAX,
		    "%s: %s", executor.command[0], strerror(error));
		return HWT_DURABLE_RETRY;
	}
	status = wait_for(pid, &late);
	exited = WIFEXITED(status);
	if (exited && WEXITSTATUS(status) == 0)
		return 0;
	(void)sprintf(delivery->reason, "%s %d%s",
	    exited ? "exit status" : "killed by signal",
	    exited ? WEXITSTATUS(status) : WTERMSIG(status),
	    late ? ", since it ran too long" : "");
	return exited && executor.fails[WEXITSTATUS(status)]
	    ? HWT_DURABLE_FAIL
	    : HWT_DURABLE_RETRY;
}

static int
execute(void *ctx, const struct hwt_durable_delivery *delivery)
{
	int outcome, input;

	(void)ctx;
	/* An environment cannot hold it. */
	if (strlen(delivery->id) != delivery->id_length) {
		(void)strcpy(delivery->reason, "the id has a NUL");
		return HWT_DURABLE_FAIL;
	}
	input = payload_file(delivery);
	if (input < 0)
		return HWT_DURABLE_RETRY;
	outcome = run_command(delivery, input);
	(void)close(input);
	return outcome == 0
	    ? 0
	    : program_failed(delivery->id, delivery->attempt,
		  delivery->max_attempts, outcome, delivery->reason);
}

static void
parse_statuses(const char *list)
{
	unsigned long status;
	char *end;

	do {
		status = strtoul(list, &end, 10);
		if (end == list || status < 1 || status >= STATUSES)
			program_usage();
		executor.fails[status] = true;
		list = end + 1;
	} while (*end == ',');
	if (*end != '\0')
		program_usage();
}

static const struct program_option options[] = {
    {"jobs", .number = &executor.jobs, .least = 1, .most = JOBS_MAX},
    {"limit", .time = &executor.limit_ns},
    {"fail-status", .read = parse_statuses},
    {.name = NULL},
};

struct program program = {
    .name = "hwt-exec",
    .usage = usage,
    .options = {options, worker_options, client_options},
    .work.callback = execute,
    .grace_ns = HWT_SEC(30),
};

int
main(int argc, char **argv)
{
	struct signalfd_siginfo ignored;
	int error, signals, first = program_parse(argc, argv);

	if (program.work.queue == NULL || first == argc)
		program_usage();
	if (executor.limit_ns / HWT_MS(1) > INT_MAX)
		program_fail(STATUS_USAGE, "--limit is at most 24 days");
	executor.command = argv + first;
	/* So that the own ones are the only ones. */
	(void)unsetenv("HWT_ID");
	(void)unsetenv("HWT_ATTEMPT");
	(void)unsetenv("HWT_DUE");
	program.work.threads = (uint32_t)executor.jobs;
	program.work.outstanding_max = executor.jobs;
	executor.stop = eventfd(0, EFD_CLOEXEC);
	signals = program_start();
	while (read(signals, &ignored, sizeof(ignored)) < 0)
		;
	error = hwt_durable_worker_stop(program.worker, program.grace_ns);
	if (error != 0)
		(void)eventfd_write(executor.stop, 1);
	if (error != 0 &&
	    hwt_durable_worker_stop(program.worker, END_WITHIN) != 0)
		return STATUS_SERVER;
	return hwt_durable_close(program.durable) == 0 ? 0 : STATUS_SERVER;
}
