/* SPDX-License-Identifier: Apache-2.0 */
/*
 * macOS, from 10.15 on: see system.h. Compiled, not tested: docs/PLATFORMS.
 *
 * Sleeping is __ulock_wait, which the system's C++ library uses, too, and no
 * header declares; os_sync_wait_on_address is of macOS 14.4. It counts no time
 * in which the machine sleeps, and CLOCK_MONOTONIC does: a wait may last longer
 * by what was left of it then.
 */
#ifdef __APPLE__
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hwt.h"
#include "sys/clock.h"
#include "sys/system.h"

#define UL_COMPARE_AND_WAIT 1u
#define ULF_WAKE_ALL 0x100u
/* Errors come as results below 0. */
#define ULF_NO_ERRNO 0x1000000u
/* A wait of 0 is one without an end. */
#define WAIT_MIN_US 1u
#define WAIT_MAX_US UINT32_MAX

int __ulock_wait(
    uint32_t operation, void *address, uint64_t value, uint32_t timeout_us);
int __ulock_wake(uint32_t operation, void *address, uint64_t ignored);

/* process.c registers an atfork handler. */
bool
system_wipe_in_children(void *memory, size_t bytes)
{
	(void)memory;
	(void)bytes;
	return false;
}

static uint32_t
wait_us(uint64_t until_ns)
{
	uint64_t now_ns = clock_monotonic_ns();
	uint64_t us = until_ns > now_ns ? (until_ns - now_ns + 999) / 1000 : 0;

	if (us < WAIT_MIN_US)
		return WAIT_MIN_US;
	return us < WAIT_MAX_US ? (uint32_t)us : WAIT_MAX_US;
}

void
futex_wait(const void *word, uint32_t value, uint64_t until_ns)
{
	int result = __ulock_wait(UL_COMPARE_AND_WAIT | ULF_NO_ERRNO,
	    system_low_half(word), value,
	    until_ns == HWT_NEVER ? 0 : wait_us(until_ns));

	if (result < 0 && result != -EINTR && result != -ETIMEDOUT)
		pause_shortly();
}

void
futex_wake(const void *word, int count)
{
	uint32_t all = count == 1 ? 0 : ULF_WAKE_ALL;

	(void)__ulock_wake(
	    UL_COMPARE_AND_WAIT | ULF_NO_ERRNO | all, system_low_half(word), 0);
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
	(void)pthread_setname_np(name);
}

#endif
