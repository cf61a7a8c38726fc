/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection: idle_begin when its worker thread has got it,
 * idle_touch at each command, idle_end when it is closed. All of them, and the
 * task, run on that worker's thread: after hwt_cancel has returned 0 there, a
 * timeout that waits in the mailbox does not run either. So no lock is needed,
 * and the task never sees a connection that was closed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "memcached.h"

static struct hwt *timer;

static void
must(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hwt_strerror(result));
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
	struct idle_thread *idle = &thread->idle;

	if (settings.idle_timeout == 0)
		return;
	if (timer == NULL)
		must(hwt_create(&timer, &options), "idle timer");
	must(hwt_mailbox_create(&idle->mailbox), "idle mailbox");
	event_set(&idle->event, hwt_mailbox_fd(idle->mailbox),
	    EV_READ | EV_PERSIST, run_mailbox, idle->mailbox);
	event_base_set(thread->base, &idle->event);
	must(event_add(&idle->event, NULL), "idle event");
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

static uint64_t
idle_ns(void)
{
	return HWT_SEC(settings.idle_timeout);
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
	int result;

	if (timer == NULL || !IS_TCP(c->transport))
		return;
	result = hwt_new_timeout_on(timer,
	    hwt_mailbox_executor(c->thread->idle.mailbox), &c->idle, idle_task,
	    c, idle_ns());
	if (result != 0 && result != -ESHUTDOWN)
		fprintf(stderr, "fd %d has no idle timeout: %s\n", c->sfd,
		    hwt_strerror(result));
}

void
idle_touch(conn *c)
{
	if (c->idle.id == 0 || hwt_reschedule(timer, c->idle, idle_ns()) == 0)
		return;
	/* It is in the mailbox, where a deadline cannot be moved. */
	idle_end(c);
	idle_begin(c);
}

/* In idle_task, too: then there is nothing to cancel. */
void
idle_end(conn *c)
{
	int result = 0;

	if (c->idle.id != 0)
		result = hwt_cancel(timer, c->idle);
	(void)result;
	c->idle = (hwt_timeout){0};
}
