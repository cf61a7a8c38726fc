/* SPDX-License-Identifier: Apache-2.0 */
/* FreeBSD, from 12 on: see system.h. Compiled, not tested: docs/PLATFORMS. */
#ifdef __FreeBSD__
#include <errno.h>
#include <pthread_np.h>
#include <sys/types.h>
#include <sys/mman.h>
#include <sys/umtx.h>
#include <unistd.h>

#include "hwt.h"
#include "sys/system.h"

bool
system_wipe_in_children(void *memory, size_t bytes)
{
	return minherit(memory, bytes, INHERIT_ZERO) == 0;
}

void
futex_wait(const void *word, uint32_t value, uint64_t until_ns)
{
	struct _umtx_time until = {
	    ._timeout = system_timespec(until_ns),
	    ._flags = UMTX_ABSTIME,
	    ._clockid = CLOCK_MONOTONIC,
	};
	bool never = until_ns == HWT_NEVER;

	if (_umtx_op(system_low_half(word), UMTX_OP_WAIT_UINT_PRIVATE, value,
		never ? NULL : (void *)sizeof(until),
		never ? NULL : &until) != 0 &&
	    errno != EINTR && errno != ETIMEDOUT)
		pause_shortly();
}

void
futex_wake(const void *word, int count)
{
	(void)_umtx_op(
	    system_low_half(word), UMTX_OP_WAKE_PRIVATE, count, NULL, NULL);
}

bool
system_try_join(pthread_t thread)
{
	const struct timespec past = {0};

	return pthread_timedjoin_np(thread, NULL, &past) == 0;
}

void
system_name_thread(const char *name)
{
	pthread_set_name_np(pthread_self(), name);
}

#endif
