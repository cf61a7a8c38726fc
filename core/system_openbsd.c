/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBSD 7: see system.h. Compiled, not tested: docs/PLATFORMS. */
#ifdef __OpenBSD__
#include <errno.h>
#include <pthread_np.h>
#include <sys/types.h>
#include <sys/futex.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hwt.h"
#include "core/clock.h"
#include "core/system.h"

bool
system_wipe_in_children(void *memory, size_t bytes)
{
	return minherit(memory, bytes, MAP_INHERIT_ZERO) == 0;
}

/* A time that has passed is a wait of no time. */
void
futex_wait(const void *word, uint32_t value, uint64_t until_ns)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct timespec wait =
	    system_timespec(until_ns > now_ns ? until_ns - now_ns : 0);

	if (futex(system_low_half(word), FUTEX_WAIT_PRIVATE, (int)value,
		until_ns == HWT_NEVER ? NULL : &wait, NULL) != 0 &&
	    errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT &&
	    errno != ECANCELED)
		pause_shortly();
}

void
futex_wake(const void *word, int count)
{
	(void)futex(
	    system_low_half(word), FUTEX_WAKE_PRIVATE, count, NULL, NULL);
}

/* There is no call that does not wait: what destructors of the thread's data
 * take comes on top of the time that hwt_stop_within was given. */
bool
system_try_join(pthread_t thread)
{
	return pthread_join(thread, NULL) == 0;
}

void
system_name_thread(const char *name)
{
	pthread_set_name_np(pthread_self(), name);
}

#endif
