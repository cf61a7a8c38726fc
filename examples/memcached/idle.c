/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memcached's idle timeouts by hwt: one timeout per connection, one mailbox per
 * worker thread. The script run puts the calls into memcached's source.
 *
 * The life of a connection: idle_begin when its worker thread has got it,
 * idle_touch at each command, idle_end when it is closed. All of them, and the
 * task, run on that worker's thread: after hwt_cancel has returned 0 there, a
 * timeout that waits in the mailbox does not run either. So no lock is needed,
 * and the task never sees a connection that was closed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "memcached.h"

static struct hwt *timer;

static void
must(int result)
{
	if (result == 0)
		return;
	fprintf(stderr, "idle timeouts: %s\n", hwt_strerror(result));
	exit(EXIT_FAILURE);
}

static void
run_mailbox(evutil_socket_t fd, short which, void *arg)
{
	(void)fd;
	(void)which;
	(void)hwt_mailbox_run(arg, 0, NULL);
}

/* For each worker, before its thread starts. */
void
idle_setup(LIBEVENT_THREAD *thread)
{
	struct hwt_options options = {.thread_name = "mc-idletimeout"};

	if (settings.idle_timeout == 0)
		return;
	if (timer == NULL)
		must(hwt_create(&timer, &options));
	must(hwt_mailbox_create(&thread->idle_mailbox));
	event_set(&thread->idle_event, hwt_mailbox_fd(thread->idle_mailbox),
	    EV_READ | EV_PERSIST, run_mailbox, thread->idle_mailbox);
	event_base_set(thread->base, &thread->idle_event);
	must(event_add(&thread->idle_event, NULL));
}

int
start_conn_timeout_thread(void)
{
	return hwt_start(timer) == 0 ? 0 : -1;
}

int
stop_conn_timeout_thread(void)
{
	return timer != NULL && hwt_stop(timer, NULL) == 0 ? 0 : -1;
}

static hwt_task idle_task;

/* Moves the deadline; one that is due and in the mailbox is replaced. */
static void
idle_restart(conn *c)
{
	int error =
	    hwt_touch(timer, hwt_mailbox_executor(c->thread->idle_mailbox),
		&c->idle, idle_task, c, HWT_SEC(settings.idle_timeout));

	if (error != 0 && error != -ESHUTDOWN)
		fprintf(stderr, "fd %d has no idle timeout: %s\n", c->sfd,
		    hwt_strerror(error));
}

static void
idle_task(hwt_timeout timeout, void *arg)
{
	conn *c = arg;

	(void)timeout;
	if (c->state != conn_new_cmd && c->state != conn_read) {
		idle_begin(c);
		return;
	}
	/* It looks at these whole seconds once more. After it, c is gone. */
	c->last_cmd_time = current_time - settings.idle_timeout - 1;
	conn_close_idle(c);
}

void
idle_begin(conn *c)
{
	c->idle = (hwt_timeout){0};
	if (timer != NULL && IS_TCP(c->transport))
		idle_restart(c);
}

void
idle_touch(conn *c)
{
	if (c->idle.id != 0)
		idle_restart(c);
}

/* In idle_task, too: then there is nothing to cancel. */
void
idle_end(conn *c)
{
	if (c->idle.id != 0)
		(void)!hwt_cancel(timer, c->idle);
	c->idle = (hwt_timeout){0};
}
