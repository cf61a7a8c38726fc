/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock for deadlines: never behind CLOCK_MONOTONIC. Copies of its source,
 * of messages and of waiting are part of this file, so that the counter and the
 * clock can be made to disagree.
 */
#include "test/spec/support.h"

#include "../../sys/clock.c"
#include "../../sys/log.c"
#include "../../sys/system.c"
#include "../../sys/system_linux.c"

#include <signal.h>

SUITE(clock);

static struct clock_sample sample;

Test(clock, wait_does_not_end_before_its_time)
{
	uint64_t word = 0;

	for (unsigned turn = 0; turn < 10; turn++) {
		uint64_t until_ns = clock_monotonic_ns() + HWT_US(1700);

		futex_wait(&word, 0, until_ns);
		cr_assert(clock_monotonic_ns() >= until_ns);
	}
}

static void
lose_clock(void *unused)
{
	struct hwt *timer, *another;

	(void)unused;
	child_ok(hwt_create(&timer, NULL));
	fault_arm(FAULT_CLOCK, FAULT_ALWAYS);
	child_rc(hwt_create(&another, NULL), -EAGAIN);
	(void)!hwt_new_timeout(timer, NULL, idle_task, NULL, 0);
}

Test(clock, process_that_loses_it_makes_no_timer_and_is_aborted_by_others)
{
	assert_u64(child_wait(child_fork(lose_clock, NULL)), 256 + SIGABRT);
}

#if defined(__x86_64__)

/* A thread that loses its processor in between compares nothing: again then. */
Test(clock, counter_that_is_behind_the_clock_is_given_up)
{
	a64_store_relaxed(&counter_state, USED);
	a64_store_relaxed(&clock_rate.scale, UINT64_C(1) << 20);
	a64_store_relaxed(&clock_rate.window, 1);

	for (int tries = 0; tries < 1000 && counter_state == USED; tries++) {
		sample.ticks = __rdtsc();
		sample.ns = clock_monotonic_ns() - HWT_MS(1);
		(void)clock_ahead_ns(&sample);
	}

	assert_u64(a64_load_relaxed(&counter_state), UNUSED);
	cr_assert(clock_ahead_ns(&sample) <= clock_monotonic_ns());
}

Test(clock, clock_does_not_go_back_from_one_sample_to_the_next)
{
	uint64_t told_ns;

	a64_store_relaxed(&counter_state, USED);
	a64_store_relaxed(&clock_rate.scale, 0);
	do {
		told_ns = clock_monotonic_ns() + BACK_MAX_NS / 2;
		sample.last_returned_ns = told_ns;
		cr_assert(clock_ahead_ns(&sample) >= told_ns);
	} while (clock_monotonic_ns() >= told_ns);
}

#endif
