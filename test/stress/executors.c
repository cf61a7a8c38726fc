/* SPDX-License-Identifier: Apache-2.0 */
/* The executors of a round: a pool, two mailboxes with their loops, and one
 * that does this and that: see storm.h. */
#include "storm.h"

#include <poll.h>
#include <sys/eventfd.h>

static void *
loop_thread(void *arg)
{
	struct loop *loop = arg;
	struct pollfd fds[2] = {
	    {.fd = hwt_mailbox_fd(loop->mailbox), .events = POLLIN},
	    {.fd = loop->quit_fd, .events = POLLIN},
	};
	uint64_t ignored;
	int error;

	while (!fds[1].revents) {
		if (poll(fds, 2, -1) < 0 || !fds[0].revents)
			continue;
		error = hwt_mailbox_run(loop->mailbox, loop->max_per_run, NULL);
		stress_check(!error, "hwt_mailbox_run: %d", error);
	}
	stress_must(read(loop->quit_fd, &ignored, 8) == 8, "read");
	while ((error = hwt_mailbox_destroy(loop->mailbox)) == -EBUSY)
		hwt_mailbox_run(loop->mailbox, 0, NULL);
	stress_check(!error, "hwt_mailbox_destroy: %d", error);
	return NULL;
}

void
loop_start(struct loop *loop, size_t max_per_run)
{
	stress_must(!hwt_mailbox_create(&loop->mailbox), "hwt_mailbox_create");
	loop->max_per_run = max_per_run;
	/* By write and read: sanitizers do not know the order that
	 * eventfd_write and poll give. */
	loop->quit_fd = eventfd(0, EFD_CLOEXEC);
	stress_must(loop->quit_fd >= 0, "eventfd: %s", strerror(errno));
	loop->thread = stress_thread(loop_thread, loop);
}

/* Runs what the mailbox holds. Nothing is handed over to it any more. */
void
loop_stop(struct loop *loop)
{
	uint64_t one = 1;

	stress_must(write(loop->quit_fd, &one, 8) == 8, "write");
	stress_join(loop->thread);
	close(loop->quit_fd);
}

static bool
held_push(struct held *held, struct hwt *timer, hwt_timeout timeout)
{
	bool pushed;

	pthread_mutex_lock(&held->mutex);
	pushed = held->count < HELD_MAX;
	if (pushed) {
		held->timers[held->count] = timer;
		held->timeouts[held->count++] = timeout;
	}
	pthread_cond_signal(&held->filled);
	pthread_mutex_unlock(&held->mutex);
	return pushed;
}

/* Runs some on the spot, refuses some, gives others to another thread. */
static int
be_moody(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	switch (timeout.id % 3) {
	case 0:
		(void)hwt_run(timer, timeout);
		return 0;
	case 1:
		if (held_push(ctx, timer, timeout))
			return 0;
	}
	atomic_fetch_add_explicit(&round_.refused, 1, memory_order_relaxed);
	return -EBUSY;
}

/* Some timeouts are run long after, when the timer was stopped: nothing but the
 * library then orders the end of hwt_run before hwt_destroy. */
static void *
held_thread(void *arg)
{
	struct held *held = arg;
	hwt_timeout timeout;
	struct hwt *timer;
	int error;

	pthread_mutex_lock(&held->mutex);
	while (held->count || !held->quit) {
		if (!held->count) {
			pthread_cond_wait(&held->filled, &held->mutex);
			continue;
		}
		timeout = held->timeouts[--held->count];
		timer = held->timers[held->count];
		pthread_mutex_unlock(&held->mutex);
		if (timeout.id % 7 == 0)
			stress_sleep_ns(HWT_US(300));
		error = hwt_run(timer, timeout);
		stress_check(
		    !error || error == -ENOENT, "first hwt_run: %d", error);
		pthread_mutex_lock(&held->mutex);
	}
	pthread_mutex_unlock(&held->mutex);
	return NULL;
}

void
executors_start(uint64_t *random)
{
	static struct hwt_executor moody = {be_moody, &round_.held};
	unsigned threads = 1 + (unsigned)random_below(random, 3);
	unsigned i;

	stress_must(!hwt_pool_create(
			&round_.pool, threads, random_below(random, 2) ? 8 : 0),
	    "hwt_pool_create");
	for (i = 0; i < LOOPS; i++)
		loop_start(&round_.loops[i], random_below(random, 2) ? 0 : 4);
	pthread_mutex_init(&round_.held.mutex, NULL);
	pthread_cond_init(&round_.held.filled, NULL);
	round_.held.thread = stress_thread(held_thread, &round_.held);
	round_.executors[POOL] = hwt_pool_executor(round_.pool);
	for (i = 0; i < LOOPS; i++)
		round_.executors[MAILBOX + i] =
		    hwt_mailbox_executor(round_.loops[i].mailbox);
	round_.executors[MOODY] = &moody;
}

void
executors_stop(void)
{
	struct held *held = &round_.held;
	unsigned i;

	pthread_mutex_lock(&held->mutex);
	held->quit = true;
	pthread_cond_signal(&held->filled);
	pthread_mutex_unlock(&held->mutex);
	stress_join(held->thread);
	pthread_cond_destroy(&held->filled);
	pthread_mutex_destroy(&held->mutex);
	stress_check(!hwt_pool_destroy(round_.pool), "hwt_pool_destroy");
	for (i = 0; i < LOOPS; i++)
		loop_stop(&round_.loops[i]);
}
