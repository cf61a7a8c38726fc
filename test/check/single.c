/* SPDX-License-Identifier: Apache-2.0 */
/* A program that has the library as two files, and uses each part of it once.
 * Status 0: all did as they should; otherwise it names the line. */
#include "hwt.h"
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Names that the library has for its own, too. */
int worker_main, record_free, process_lock, thread_state, clock_rate;

#define CHECK(condition)                                                    \
	do {                                                                \
		if (!(condition)) {                                         \
			fprintf(                                            \
			    stderr, "line %d: %s\n", __LINE__, #condition); \
			_exit(1);                                           \
		}                                                           \
	} while (0)

static sem_t ran;

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	++*(int *)arg;
	sem_post(&ran);
}

static void
wait_for_task(void)
{
	while (sem_wait(&ran) != 0)
		CHECK(errno == EINTR);
}

static void
in_the_worker(struct hwt *timer)
{
	hwt_timeout timeout;
	int runs = 0;

	CHECK(hwt_new_timeout(timer, NULL, task, &runs, HWT_MS(1)) == 0);
	wait_for_task();
	CHECK(hwt_new_timeout(timer, &timeout, task, &runs, HWT_SEC(9)) == 0);
	CHECK(hwt_reschedule(timer, timeout, HWT_SEC(99)) == 0);
	CHECK(hwt_cancel(timer, timeout) == 0);
	CHECK(hwt_cancel_wait(timer, timeout) == -ENOENT && runs == 1);
}

static void
in_a_pool(struct hwt *timer)
{
	struct hwt_pool *pool;
	int runs = 0;

	CHECK(hwt_pool_create(&pool, 2, 0) == 0);
	CHECK(hwt_new_timeout_on(timer, hwt_pool_executor(pool), NULL, task,
		  &runs, HWT_MS(1)) == 0);
	wait_for_task();
	CHECK(hwt_pool_destroy(pool) == 0 && runs == 1);
}

static void
in_a_loop(struct hwt *timer)
{
	struct hwt_mailbox *mailbox;
	struct pollfd ready = {.events = POLLIN};
	size_t started;
	int runs = 0;

	CHECK(hwt_mailbox_create(&mailbox) == 0);
	ready.fd = hwt_mailbox_fd(mailbox);
	CHECK(hwt_new_timeout_on(timer, hwt_mailbox_executor(mailbox), NULL,
		  task, &runs, HWT_MS(1)) == 0);
	while (poll(&ready, 1, -1) != 1)
		CHECK(errno == EINTR);
	CHECK(hwt_mailbox_run(mailbox, 0, &started) == 0);
	CHECK(started == 1 && runs == 1);
	wait_for_task();
	CHECK(hwt_mailbox_destroy(mailbox) == 0);
}

/* The child's copy is inert; what it makes for itself works. */
static void
in_a_child(struct hwt *timer)
{
	struct hwt *own;
	int runs = 0, status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child > 0) {
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		return;
	}
	CHECK(hwt_new_timeout(timer, NULL, task, &runs, 0) == -EOWNERDEAD);
	CHECK(hwt_destroy(timer) == 0);
	CHECK(hwt_shared(&own) == 0);
	CHECK(hwt_new_timeout(own, NULL, task, &runs, HWT_MS(1)) == 0);
	wait_for_task();
	_exit(runs != 1);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt_unprocessed left;
	struct hwt_timeout_info info;
	struct hwt *timer;
	int runs = 0;

	CHECK(sem_init(&ran, 0, 0) == 0);
	CHECK(hwt_create(&timer, &options) == 0);
	in_the_worker(timer);
	in_a_pool(timer);
	in_a_loop(timer);
	in_a_child(timer);
	CHECK(hwt_new_timeout(timer, NULL, task, &runs, HWT_NEVER) == 0);
	CHECK(hwt_stop(timer, &left) == 0 && left.count == 1);
	CHECK(hwt_unprocessed_next(&left, &info) && info.arg == &runs);
	CHECK(!hwt_unprocessed_next(&left, &info));
	CHECK(hwt_destroy(timer) == 0 && runs == 0);
	puts(hwt_version());
	return 0;
}
