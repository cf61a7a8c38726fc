/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread forwards what comes through all pipes, until their ends. A pipe
 * is freed by whoever is the later: that thread, at the pipe's end, or
 * output_end.
 */
#define _GNU_SOURCE
#include "output.h"

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

struct output {
	int fd;
	pthread_mutex_t lock; /* over the rest */
	bool closed; /* by the thread, at the pipe's end */
	bool ended; /* by output_end */
	size_t length;
	char text[OUTPUT_MAX];
};

static int events = -1; /* of epoll */

static void
forward(const char *text, size_t length)
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
keep(struct output *output, const char *text, size_t length)
{
	size_t room;

	if (length > OUTPUT_MAX) {
		text += length - OUTPUT_MAX;
		length = OUTPUT_MAX;
	}
	room = OUTPUT_MAX - output->length;
	if (length > room) {
		memmove(output->text, output->text + (length - room),
		    output->length - (length - room));
		output->length -= length - room;
	}
	memcpy(output->text + output->length, text, length);
	output->length += length;
}

/* With the lock: what there is. True: the pipe's end. */
static bool
output_read(struct output *output)
{
	char part[PART];
	ssize_t count;
	int i;

	for (i = 0; i < PARTS; i++) {
		count = read(output->fd, part, sizeof(part));
		if (count <= 0)
			return count == 0 ||
			    (errno != EAGAIN && errno != EINTR);
		forward(part, (size_t)count);
		keep(output, part, (size_t)count);
	}
	return false;
}

static void
output_free(struct output *output)
{
	(void)pthread_mutex_destroy(&output->lock);
	free(output);
}

static void
output_hear(struct output *output)
{
	bool ended;

	(void)pthread_mutex_lock(&output->lock);
	output->closed = output_read(output);
	if (output->closed) {
		/* A child that is just being made may have the descriptor until
		 * it is its command: then close alone leaves the events. */
		(void)epoll_ctl(events, EPOLL_CTL_DEL, output->fd, NULL);
		(void)close(output->fd);
	}
	ended = output->closed && output->ended;
	(void)pthread_mutex_unlock(&output->lock);
	if (ended)
		output_free(output);
}

static void *
output_run(void *arg)
{
	struct epoll_event ready[16];
	int i, count;

	(void)arg;
	while (events >= 0) {
		count = epoll_wait(events, ready, 16, -1);
		for (i = 0; i < count; i++)
			output_hear(ready[i].data.ptr);
	}
	return NULL;
}

bool
output_start(void)
{
	sigset_t all, before;
	pthread_t thread;
	bool started;

	events = epoll_create1(EPOLL_CLOEXEC);
	if (events < 0)
		return false;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	started = pthread_create(&thread, NULL, output_run, NULL) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (started)
		(void)pthread_detach(thread);
	return started;
}

struct output *
output_open(int *end)
{
	struct output *output = calloc(1, sizeof(*output));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = output};
	int ends[2];

	if (output == NULL)
		return NULL;
	if (pipe2(ends, O_CLOEXEC) != 0) {
		free(output);
		return NULL;
	}
	output->fd = ends[0];
	(void)pthread_mutex_init(&output->lock, NULL);
	if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 ||
	    epoll_ctl(events, EPOLL_CTL_ADD, ends[0], &event) != 0) {
		(void)close(ends[0]);
		(void)close(ends[1]);
		output_free(output);
		return NULL;
	}
	*end = ends[1];
	return output;
}

size_t
output_end(struct output *output, char text[OUTPUT_MAX])
{
	size_t length;
	bool closed;

	(void)pthread_mutex_lock(&output->lock);
	/* The thread closes it. */
	if (!output->closed)
		(void)output_read(output);
	length = output->length;
	memcpy(text, output->text, length);
	output->ended = true;
	closed = output->closed;
	(void)pthread_mutex_unlock(&output->lock);
	if (closed)
		output_free(output);
	return length;
}
