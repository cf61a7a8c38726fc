/* SPDX-License-Identifier: Apache-2.0 */
/* What an errno value means when a function of hwt.h returns it. */
#include <errno.h>

#include "hwt.h"

#define NOT_WRITTEN "the file could not be written"

static const struct {
	int error;
	const char *text;
} errors[] = {
    {0, "success"},
    {EINVAL,
	"an argument is missing or out of range, or the call is not for this "
	"kind of timer"},
    {ENOMEM, "no memory"},
    {EAGAIN,
	"not now: no thread can be created, the clock cannot be read, the "
	"pool's queue is full, or the file does not take the text"},
    {ESHUTDOWN, "the timer is stopped or being stopped"},
    {ENOBUFS, "the limit of pending timeouts is reached"},
    {ENOENT, "the timeout has ended or never existed"},
    {EINPROGRESS, "the task is running, or an executor holds the timeout"},
    {EDEADLK, "the call would wait for the task that makes it"},
    {EPERM, "the shared timer is stopped by hwt_shared_shutdown alone"},
    {ETIMEDOUT, "a task is still running, and stopping continues"},
    {EBUSY,
	"it is still in use: the timer is not stopped, or an executor holds "
	"timeouts"},
    {ECANCELED, "the timeout was closed: its handle is HWT_CLOSED"},
    {EOWNERDEAD, "it was made before this process was forked"},
    {EMFILE, "no file descriptor left"},
    {ENFILE, "no file descriptor left"},
    {EIO, NOT_WRITTEN},
    {EBADF, NOT_WRITTEN},
    {ENOSPC, NOT_WRITTEN},
    {EPIPE, NOT_WRITTEN},
    {EFBIG, NOT_WRITTEN},
    {EDQUOT, NOT_WRITTEN},
    {EINTR, NOT_WRITTEN},
};

const char *
hwt_strerror(int error)
{
	size_t i;

	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (error == errors[i].error || error == -errors[i].error)
			return errors[i].text;
	}
	return "an error that hwt does not return";
}
