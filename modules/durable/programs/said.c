/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread passes on what comes through all pipes, until their ends. A pipe
 * is freed by whoever is the later: that thread, at the pipe's end, or
 * said_end.
 */
#define _GNU_SOURCE
#include "said.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	PART = 4096,
	PARTS = 16 /* as many as a pipe holds */
};

struct said {
	int fd;
	pthread_mutex_t lock; /* over the rest */
	bool closed; /* by the thread, at the pipe's end */
	bool ended; /* by said_end */
	size_t length;
	char text[SAID_MAX];
};

static int events = -1; /* of epoll */

static void
pass_on(const char *text, size_t length)
{
	ssize_t count;

	while (length > 0) {
		count = write(STDERR_FILENO, text, length);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return;
		text += count;
		length -= (size_t)count;
	}
}

static void
keep(struct said *said, const char *text, size_t length)
{
	size_t room;

	if (length > SAID_MAX) {
		text += length - SAID_MAX;
		length = SAID_MAX;
	}
	room = SAID_MAX - said->length;
	if (length > room) {
		memmove(said->text, said->text + (length - room),
		    said->length - (length - room));
		said->length -= length - room;
	}
	memcpy(said->text + said->length, text, length);
	said->length += length;
}

/* With the lock: what there is. True: the pipe's end. */
static bool
said_read(struct said *said)
{
	char part[PART];
	ssize_t count;
	int i;

	for (i = 0; i < PARTS; i++) {
		count = read(said->fd, part, sizeof(part));
		if (count <= 0)
			return count == 0 ||
			    (errno != EAGAIN && errno != EINTR);
		pass_on(part, (size_t)count);
		keep(said, part, (size_t)count);
	}
	return false;
}

static void
said_free(struct said *said)
{
	(void)pthread_mutex_destroy(&said->lock);
	free(said);
}

static void
said_hear(struct said *said)
{
	bool ended;

	(void)pthread_mutex_lock(&said->lock);
	said->closed = said_read(said);
	if (said->closed) {
		/* A child that is just being made may have the descriptor until
		 * it is its command: then close alone leaves the events. */
		(void)epoll_ctl(events, EPOLL_CTL_DEL, said->fd, NULL);
		(void)close(said->fd);
	}
	ended = said->closed && said->ended;
	(void)pthread_mutex_unlock(&said->lock);
	if (ended)
		said_free(said);
}

static void *
said_run(void *arg)
{
	struct epoll_event ready[16];
	int i, count;

	(void)arg;
	while (events >= 0) {
		count = epoll_wait(events, ready, 16, -1);
		for (i = 0; i < count; i++)
			said_hear(ready[i].data.ptr);
	}
	return NULL;
}

bool
said_start(void)
{
	sigset_t all, before;
	pthread_t thread;
	bool started;

	events = epoll_create1(EPOLL_CLOEXEC);
	if (events < 0)
		return false;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	started = pthread_create(&thread, NULL, said_run, NULL) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (started)
		(void)pthread_detach(thread);
	return started;
}

struct said *
said_open(int *end)
{
	struct said *said = calloc(1, sizeof(*said));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = said};
	int ends[2];

	if (said == NULL)
		return NULL;
	if (pipe2(ends, O_CLOEXEC) != 0) {
		free(said);
		return NULL;
	}
	said->fd = ends[0];
	(void)pthread_mutex_init(&said->lock, NULL);
	if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 ||
	    epoll_ctl(events, EPOLL_CTL_ADD, ends[0], &event) != 0) {
		(void)close(ends[0]);
		(void)close(ends[1]);
		said_free(said);
		return NULL;
	}
	*end = ends[1];
	return said;
}

size_t
said_end(struct said *said, char text[SAID_MAX])
{
	size_t length;
	bool closed;

	(void)pthread_mutex_lock(&said->lock);
	/* The thread closes it. */
	if (!said->closed)
		(void)said_read(said);
	length = said->length;
	memcpy(text, said->text, length);
	said->ended = true;
	closed = said->closed;
	(void)pthread_mutex_unlock(&said->lock);
	if (closed)
		said_free(said);
	return length;
}
