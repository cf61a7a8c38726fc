/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker SERVERS SPACE QUEUE LOG VISIBILITY: executes tasks until SIGTERM, and
 * writes a line to LOG as each execution begins and ends:
 *
 *   begin MS ID GENERATION ATTEMPT DUE-MS PROCESS
 *   done|retry|fail MS ID GENERATION ATTEMPT
 *
 * A line is one write, so that a kill does not cut what was written. The
 * payload says how a task ends: "fail" fails, "retry" asks for another
 * execution once, all others are done.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hwt_durable.h>

static uint64_t
now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void
log_line(int file, const char *what, const struct hwt_durable_delivery *task,
    const char *more)
{
	char line[256];
	int length = snprintf(line, sizeof(line),
	    "%s %" PRIu64 " %s %" PRIu32 " %" PRIu32 "%s\n", what, now_ms(),
	    task->id, task->generation, task->attempt, more);

	if (write(file, line, (size_t)length) != length)
		abort();
}

static bool
payload_is(const struct hwt_durable_delivery *task, const char *text)
{
	return task->payload_length == strlen(text) &&
	    memcmp(task->payload, text, task->payload_length) == 0;
}

static int
execute(void *ctx, const struct hwt_durable_delivery *task)
{
	const struct timespec work = {0, 1000000};
	int file = *(const int *)ctx;
	char more[64];

	(void)snprintf(more, sizeof(more), " %" PRIu64 " %d",
	    task->due_unix_ns / HWT_MS(1), (int)getpid());
	log_line(file, "begin", task, more);
	(void)nanosleep(&work, NULL);
	if (payload_is(task, "fail")) {
		log_line(file, "fail", task, "");
		return HWT_DURABLE_FAIL;
	}
	if (payload_is(task, "retry") && task->attempt == 1) {
		log_line(file, "retry", task, "");
		*task->retry_delay_ns = HWT_MS(200);
		return HWT_DURABLE_RETRY;
	}
	log_line(file, "done", task, "");
	return 0;
}

int
main(int argc, char **argv)
{
	struct hwt_durable_options options = {0};
	struct hwt_durable_worker_options work = {
	    .callback = execute, .threads = 4};
	struct hwt_durable_worker *worker;
	struct hwt_durable *durable;
	sigset_t ending;
	int file, number, error;

	if (argc != 6)
		return 2;
	options.servers = argv[1];
	options.space = argv[2];
	work.queue = argv[3];
	file = open(argv[4], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	work.ctx = &file;
	work.visibility_ns = HWT_SEC(strtoull(argv[5], NULL, 10));
	(void)sigemptyset(&ending);
	(void)sigaddset(&ending, SIGTERM);
	(void)pthread_sigmask(SIG_BLOCK, &ending, NULL);
	/* It may be started while the engine is not there. */
	while ((error = hwt_durable_open(&durable, &options)) != 0) {
		if (error != -ECONNREFUSED && error != -ETIMEDOUT &&
		    error != -EAGAIN && error != -ETIME)
			return 1;
		(void)usleep(100000);
	}
	if (file < 0 || hwt_durable_worker_start(&worker, durable, &work) != 0)
		return 1;
	(void)sigwait(&ending, &number);
	error = hwt_durable_worker_stop(worker, HWT_SEC(30));
	return error != 0 || hwt_durable_close(durable) != 0;
}
