/* SPDX-License-Identifier: Apache-2.0 */
/* The executors of a round: a pool, two mailboxes with their loops, and one
 * that runs or refuses: see storm.h. */
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

/* Runs some on the spot, and refuses the others. */
static int
be_moody(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	if (timeout.id % 2 == 0) {
		(void)hwt_run(timer, timeout);
		return 0;
	}
	atomic_fetch_add_explicit(&round_.refused, 1, memory_order_relaxed);
	return -EBUSY;
}

void
executors_start(uint64_t *random)
{
	static struct hwt_executor moody = {.execute = be_moody};
	unsigned threads = 1 + (unsigned)random_below(random, 3);
	unsigned i;

	stress_must(!hwt_pool_create(
			&round_.pool, threads, random_below(random, 2) ? 8 : 0),
	    "hwt_pool_create");
	for (i = 0; i < LOOPS; i++)
		loop_start(&round_.loops[i], random_below(random, 2) ? 0 : 4);
	round_.executors[POOL] = hwt_pool_executor(round_.pool);
	for (i = 0; i < LOOPS; i++)
		round_.executors[MAILBOX + i] =
		    hwt_mailbox_executor(round_.loops[i].mailbox);
	round_.executors[MOODY] = &moody;
}

void
executors_stop(void)
{
	unsigned i;

	stress_check(!hwt_pool_destroy(round_.pool), "hwt_pool_destroy");
	for (i = 0; i < LOOPS; i++)
		loop_stop(&round_.loops[i]);
}
