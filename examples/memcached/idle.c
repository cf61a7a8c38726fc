/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memcached's idle timeouts by hwt: one timeout per connection, one mailbox per
 * worker thread. A connection's thread calls idle_begin when it has got it,
 * idle_touch at each command, and idle_end when it is closed; its task runs
 * there, too. So no lock is needed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "memcached.h"

static struct hwt *timer;

static void
must(int result)
{
	if (result != 0)
		abort();
}

static void
run_mailbox(evutil_socket_t fd, short which, void *arg)
{
	(void)fd;
	(void)which;
	(void)hwt_mailbox_run(arg, 0, NULL);
}

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

static void
idle_restart(conn *c)
{
	if (hwt_touch(timer, hwt_mailbox_executor(c->thread->idle_mailbox),
		&c->idle, idle_task, c, HWT_SEC(settings.idle_timeout)) != 0)
		fprintf(stderr, "fd %d has no idle timeout\n", c->sfd);
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

void
idle_end(conn *c)
{
	if (c->idle.id != 0)
		(void)!hwt_cancel(timer, c->idle);
	c->idle = (hwt_timeout){0};
}
