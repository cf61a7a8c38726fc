/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server on epoll. In each turn the sockets come first and the mailbox
 * last: a task may free a connection, whose event could otherwise stand further
 * down in the same batch.
 */
#include <sys/epoll.h>

#include "server.h"

struct watch {
	int fd;
	void (*ready)(void *arg);
	void *arg;
};

static int epoll_fd;
static bool is_over;

static void *
loop_watch(int fd, void (*ready)(void *arg), void *arg)
{
	struct watch *watch = malloc(sizeof(*watch));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

	must(watch != NULL);
	*watch = (struct watch){fd, ready, arg};
	must(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
	return watch;
}

static void
loop_unwatch(void *watch)
{
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, ((struct watch *)watch)->fd, NULL);
	free(watch);
}

static void
loop_end(void)
{
	is_over = true;
}

static void
loop_run(void)
{
	struct epoll_event events[16];
	struct watch *watch;
	int count, i;

	while (!is_over) {
		count = epoll_wait(epoll_fd, events, 16, -1);
		for (i = 0; i < count; i++) {
			watch = events[i].data.ptr;
			if (watch->ready != mailbox_ready)
				watch->ready(watch->arg);
		}
		mailbox_ready(NULL);
	}
}

int
main(void)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	must(epoll_fd >= 0);
	return serve();
}
