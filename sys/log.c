/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on stderr. The C library's dprintf would link a FILE on the caller's
 * stack into a list that exit walks: in a child that is forked meanwhile, the
 * stack is used again.
 *
 * A worker must not wait for whoever reads stderr, so poll is asked first. A
 * terminal may then take only half a line, and another writer may fill a pipe:
 * these are opened again, with O_NONBLOCK. If that fails, a pipe that poll
 * calls writable takes PIPE_BUF bytes at once. A message that cannot be written
 * is dropped and counted.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sys/atomic.h"
#include "sys/log.h"

#define LINE_BYTES (PIPE_BUF < 1024 ? PIPE_BUF : 1024)
/* For the message; the rest is for the number of those dropped. */
#define MESSAGE_BYTES (LINE_BYTES - 64)

/* Messages that could not be written since one could. */
static a64_t dropped;

/* -1: it is not writable. A file is not opened again: its offset is shared. */
static int
stderr_open(void)
{
	struct pollfd polled = {.fd = STDERR_FILENO, .events = POLLOUT};
	int fd = -1;

	/* With POLLERR or POLLHUP nobody reads it any more: a write would raise
	 * SIGPIPE. */
	if (poll(&polled, 1, 0) != 1 || polled.revents != POLLOUT)
		return -1;
	if (lseek(STDERR_FILENO, 0, SEEK_CUR) < 0)
		fd = open("/proc/self/fd/2",
		    O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd >= 0 ? fd : STDERR_FILENO;
}

void
log_stderr(const char *format, ...)
{
	char line[LINE_BYTES] = "hwt: ";
	uint64_t missing;
	size_t length;
	va_list values;
	int fd = stderr_open();

	if (fd < 0) {
		(void)a64_add_seq(&dropped, 1);
		return;
	}
	va_start(values, format);
	(void)vsnprintf(line + strlen(line), MESSAGE_BYTES, format, values);
	va_end(values);
	missing = a64_swap_seq(&dropped, 0);
	length = strlen(line);
	if (missing != 0)
		(void)snprintf(line + length, LINE_BYTES - 1 - length,
		    " (%" PRIu64 " before it were dropped)", missing);
	length = strlen(line);
	line[length++] = '\n';
	if (write(fd, line, length) < 0)
		(void)a64_add_seq(&dropped, missing + 1);
	if (fd != STDERR_FILENO)
		(void)close(fd);
}
