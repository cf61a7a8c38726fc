/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals: workers, and threads of pools, block all signals but SIGSEGV,
 * SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS and SIGPROF.
 */
#include "test/spec/support.h"

#include <signal.h>

SUITE(signals);

static const int unblocked[] = {
    SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF};

#define UNBLOCKED (sizeof(unblocked) / sizeof(unblocked[0]))

static uint64_t
bit(int number)
{
	return UINT64_C(1) << (number - 1);
}

/* But for the two that cannot be blocked, and three that belong to C
 * libraries. */
static void
assert_mask(pid_t thread)
{
	const uint64_t beyond =
	    bit(SIGKILL) | bit(SIGSTOP) | bit(32) | bit(33) | bit(34);
	uint64_t expected = UINT64_MAX;

	for (size_t i = 0; i < UNBLOCKED; i++)
		expected &= ~bit(unblocked[i]);
	assert_u64(
	    thread_number(thread, "SigBlk", 16) & ~beyond, expected & ~beyond);
}

WorkerTest(signals, pool_threads_block_all_but_seven_and_the_callers_mask_stays)
{
	struct hwt_pool *pool;
	uint64_t before;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGSEGV);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	before = thread_number(getpid(), "SigBlk", 16);

	assert_ok(hwt_pool_create(&pool, 1, 0));
	assert_ok(hwt_start(live.timer));

	assert_mask(thread_await("hwt-pool", 1));
	assert_u64(thread_number(getpid(), "SigBlk", 16), before);
	live_pass_tick();
	assert_mask(thread_await("hwt-worker", 1));
	assert_ok(hwt_pool_destroy(pool));
}
