/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes an event loop: a descriptor that is readable from event_set until
 * event_clear. An eventfd, or a pipe where there is none.
 */
#ifndef HWT_EVENT_H
#define HWT_EVENT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#if __has_include(<sys/eventfd.h>)

#include <sys/eventfd.h>

/* 0 or an errno. *write_fd is the same descriptor. */
static inline int
event_open(int *fd, int *write_fd)
{
	*fd = *write_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return *fd < 0 ? errno : 0;
}

static inline void
event_close(int fd, int write_fd)
{
	(void)write_fd;
	(void)close(fd);
}

/* False: it is not readable by this. Where the count is at its end (EAGAIN),
 * it is. */
static inline bool
event_set(int write_fd)
{
	int result;

	do
		result = eventfd_write(write_fd, 1);
	while (result != 0 && errno == EINTR);
	return result == 0 || errno == EAGAIN;
}

static inline void
event_clear(int fd)
{
	eventfd_t ignored;

	(void)eventfd_read(fd, &ignored);
}

#else

#include <fcntl.h>

static inline void
event_close(int fd, int write_fd)
{
	(void)close(fd);
	(void)close(write_fd);
}

static inline int
event_open(int *fd, int *write_fd)
{
	int ends[2], i, error;

	if (pipe(ends) != 0)
		return errno;
	for (i = 0; i < 2; i++) {
		if (fcntl(ends[i], F_SETFL, O_NONBLOCK) != 0 ||
		    fcntl(ends[i], F_SETFD, FD_CLOEXEC) != 0) {
			error = errno;
			event_close(ends[0], ends[1]);
			return error;
		}
	}
	*fd = ends[0];
	*write_fd = ends[1];
	return 0;
}

/* A full pipe is readable. */
static inline bool
event_set(int write_fd)
{
	ssize_t result;

	do
		result = write(write_fd, "", 1);
	while (result < 0 && errno == EINTR);
	return result == 1 || errno == EAGAIN;
}

static inline void
event_clear(int fd)
{
	char ignored[64];

	while (read(fd, ignored, sizeof(ignored)) == sizeof(ignored))
		;
}

#endif
#endif
