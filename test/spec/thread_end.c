/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a thread that used a timer: nothing is left behind. */
#include "test/spec/support.h"

SUITE(thread_end);

static pthread_key_t key;
static _Atomic uint64_t calls;

static void
use_timer(void)
{
	hwt_timeout timeout =
	    schedule_task(manual.timer, forbidden_task, HWT_SEC(1));

	assert_ok(hwt_cancel(manual.timer, timeout));
}

/* Called in each round in which the C library calls destructors. */
static void
use_timer_and_again(void *value)
{
	calls++;
	use_timer();
	pthread_setspecific(key, value);
}

static void
thread_body(unsigned index, void *arg)
{
	(void)index;
	(void)arg;
	use_timer();
	pthread_setspecific(key, &key);
}

ManualTest(thread_end, destructors_that_use_a_timer_to_the_end_keep_no_cache)
{
	uint64_t memory;

	cr_assert(pthread_key_create(&key, use_timer_and_again) == 0);
	in_parallel(1, thread_body, NULL);
	memory = manual_stats().memory_bytes;

	for (unsigned i = 0; i < 4; i++)
		in_parallel(1, thread_body, NULL);

	assert_u64(manual_stats().memory_bytes, memory);
	cr_assert(calls >= 5 * 2, "%" PRIu64 " calls", calls);
	pthread_key_delete(key);
}
