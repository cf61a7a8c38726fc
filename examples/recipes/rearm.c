/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task that goes on: how to end it from another thread.
 *
 * A task that schedules a new timeout for itself gets a new handle each time.
 * Who ends the old one meanwhile is told that it has ended, frees arg, and the
 * new one comes: this is shown first, with an arg that nobody frees.
 *
 * A periodic timeout keeps its handle while it runs. When it was cancelled, its
 * own hwt_reschedule is refused, and nothing follows. It need not be regular:
 * its task may move the next run, as here.
 */
#include <errno.h>
#include <hwt.h>
#include <semaphore.h>

#include "../must.h"

struct poller {
	hwt_timeout timeout;
	sem_t is_running, may_go_on;
	int error;
};

static struct hwt *timer;

/* Wrong, where another thread ends it. */
static void
poll_once(hwt_timeout timeout, void *arg)
{
	struct poller *poller = arg;

	(void)timeout;
	sem_post(&poller->is_running);
	sem_wait(&poller->may_go_on);
	poller->error = hwt_new_timeout(
	    timer, &poller->timeout, poll_once, poller, HWT_MIN(1));
}

/* Right. */
static void
poll_again(hwt_timeout timeout, void *arg)
{
	struct poller *poller = arg;

	sem_post(&poller->is_running);
	sem_wait(&poller->may_go_on);
	poller->error = hwt_reschedule(timer, timeout, HWT_MIN(1));
}

/* Ends the poller while its task is running, as a caller sees it who has read
 * the handle a moment before. */
static void
end_while_it_runs(struct poller *poller)
{
	hwt_timeout timeout;
	int error;

	sem_wait(&poller->is_running);
	timeout = poller->timeout;
	must(hwt_cancel(timer, timeout) == -EINPROGRESS);
	sem_post(&poller->may_go_on);
	error = hwt_cancel_wait(timer, timeout);
	must(error == 0 || error == -ENOENT);
}

static void
poller_init(struct poller *poller)
{
	sem_init(&poller->is_running, 0, 0);
	sem_init(&poller->may_go_on, 0, 0);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct poller once, again;

	must(hwt_create(&timer, &options) == 0);
	poller_init(&once);
	poller_init(&again);

	must(hwt_new_timeout(timer, &once.timeout, poll_once, &once, 0) == 0);
	end_while_it_runs(&once);
	/* The caller believes that it has ended, and it has not. */
	must(once.error == 0 && hwt_pending_timeouts(timer) == 1);
	must(hwt_cancel_wait(timer, once.timeout) == 0);

	must(hwt_new_periodic(timer, NULL, &again.timeout, poll_again, &again,
		 0, HWT_MS(1)) == 0);
	end_while_it_runs(&again);
	must(again.error == -ENOENT && hwt_pending_timeouts(timer) == 0);

	must(hwt_stop(timer, NULL) == 0 && hwt_destroy(timer) == 0);
	printf("after a periodic timeout was ended, nothing came\n");
	return 0;
}
