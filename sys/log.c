/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on stderr. The C library's dprintf would link a FILE on the caller's
 * stack into a list that exit walks: in a child that is forked meanwhile, the
 * stack is used again.
 *
 * A worker must not wait for whoever reads stderr. So poll is asked first: a
 * pipe that it calls writable takes PIPE_BUF bytes at once. (Several writers of
 * one pipe can be told so at the same time, and all but one then wait.) What
 * cannot be written is dropped and counted.
 */
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
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

static bool
stderr_is_writable(void)
{
	struct pollfd polled = {.fd = STDERR_FILENO, .events = POLLOUT};

	/* With POLLERR or POLLHUP nobody reads it any more: a write would raise
	 * SIGPIPE. */
	return poll(&polled, 1, 0) == 1 && polled.revents == POLLOUT;
}

void
log_stderr(const char *format, ...)
{
	char line[LINE_BYTES] = "hwt: ";
	uint64_t missing;
	size_t length;
	va_list values;

	if (!stderr_is_writable()) {
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
	if (write(STDERR_FILENO, line, length) < 0)
		(void)a64_add_seq(&dropped, missing + 1);
}
