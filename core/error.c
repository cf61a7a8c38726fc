/* SPDX-License-Identifier: Apache-2.0 */
/* What an errno value means when a function of hwt.h returns it. */
#include <errno.h>

#include "hwt.h"

const char *
hwt_strerror(int error)
{
	/* The negative value: every int but INT_MIN has the other one, too. */
	switch (error > 0 ? -error : error) {
	case 0:
		return "success";
	case -EINVAL:
		return "an argument is missing or out of range, or the call is "
		       "not for this kind of timer";
	case -ENOMEM:
		return "no memory";
	case -EAGAIN:
		return "not now: no thread can be created, the clock cannot be "
		       "read, or the file does not take the text";
	case -ESHUTDOWN:
		return "the timer is stopped or being stopped";
	case -ENOBUFS:
		return "the limit of pending timeouts is reached";
	case -ENOENT:
		return "the timeout has ended or never existed";
	case -EINPROGRESS:
		return "the task is running, or an executor holds the timeout";
	case -EDEADLK:
		return "the call would wait for the task that makes it";
	case -EPERM:
		return "the shared timer is stopped by hwt_shared_shutdown "
		       "alone";
	case -ETIMEDOUT:
		return "a task is still running, and stopping continues";
	case -EBUSY:
		return "it is still in use: the timer is not stopped, or an "
		       "executor holds timeouts";
	case -EOWNERDEAD:
		return "it was made before this process was forked";
	case -EMFILE:
	case -ENFILE:
		return "no file descriptor left";
	case -EIO:
	case -EBADF:
	case -ENOSPC:
	case -EPIPE:
	case -EFBIG:
	case -EDQUOT:
	case -EINTR:
		return "the file could not be written";
	default:
		return "an error that hwt does not return";
	}
}
