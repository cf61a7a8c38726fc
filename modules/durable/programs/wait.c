/* SPDX-License-Identifier: Apache-2.0 */
#include "wait.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <time.h>

int64_t
wait_now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool
wait_for(int fd, short events, int64_t until_ms)
{
	struct pollfd wait = {.fd = fd, .events = events};
	int64_t left;
	int count;

	do {
		left = until_ms - wait_now_ms();
		if (left <= 0)
			return false;
		count = poll(&wait, 1, left < INT_MAX ? (int)left : INT_MAX);
	} while (count == 0 || (count < 0 && errno == EINTR));
	return count == 1;
}
