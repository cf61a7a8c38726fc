/* SPDX-License-Identifier: Apache-2.0 */
/* The server on libevent: a persistent event for each descriptor. */
#include <event2/event.h>

#include "server.h"

struct watch {
	struct event *event;
	void (*ready)(void *arg);
	void *arg;
};

static struct event_base *base;

static void
on_readable(evutil_socket_t fd, short events, void *arg)
{
	struct watch *watch = arg;

	(void)fd;
	(void)events;
	watch->ready(watch->arg);
}

static void *
loop_watch(int fd, void (*ready)(void *arg), void *arg)
{
	struct watch *watch = malloc(sizeof(*watch));

	must(watch != NULL);
	watch->ready = ready;
	watch->arg = arg;
	watch->event =
	    event_new(base, fd, EV_READ | EV_PERSIST, on_readable, watch);
	must(watch->event != NULL && event_add(watch->event, NULL) == 0);
	return watch;
}

static void
loop_unwatch(void *watch)
{
	event_free(((struct watch *)watch)->event);
	free(watch);
}

static void
loop_end(void)
{
	event_base_loopbreak(base);
}

static void
loop_run(void)
{
	must(event_base_dispatch(base) == 0);
}

int
main(void)
{
	int status;

	base = event_base_new();
	must(base != NULL);
	status = serve();
	event_base_free(base);
	return status;
}
