/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes rare meetings of threads frequent: the compiler's -include brings it
 * into every source, and each atomic operation in it may then come late. At one
 * in 16 places, which are others in each process, a thread is now and then held
 * for up to 200 us. It spins, since it must not change whether threads sleep.
 */
#ifndef HWT_TEST_STRESS_LATE_H
#define HWT_TEST_STRESS_LATE_H

#include "sys/atomic.h"

#include <unistd.h>

static inline void
late_hold(uint64_t place)
{
	static _Thread_local uint64_t random;
	uint64_t spins;

	if ((place * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid()) % 16 != 0)
		return;
	random = random * 6364136223846793005u + (uintptr_t)&random;
	if (random >> 58 != 0)
		return;
	for (spins = random >> 32 & 0x1ffff; spins > 0; spins--)
		__asm__ volatile("" ::: "memory");
}

#define LATE(call) (late_hold(__LINE__ + sizeof(__FILE__) * 4096), call)
/* A macro is not replaced inside of itself. */
#define a64_add_seq(...) LATE(a64_add_seq(__VA_ARGS__))
#define a64_and_seq(...) LATE(a64_and_seq(__VA_ARGS__))
#define a64_cas_seq(...) LATE(a64_cas_seq(__VA_ARGS__))
#define a64_load_acquire(...) LATE(a64_load_acquire(__VA_ARGS__))
#define a64_load_seq(...) LATE(a64_load_seq(__VA_ARGS__))
#define a64_or_seq(...) LATE(a64_or_seq(__VA_ARGS__))
#define a64_store_release(...) LATE(a64_store_release(__VA_ARGS__))
#define a64_store_seq(...) LATE(a64_store_seq(__VA_ARGS__))
#define a64_swap_seq(...) LATE(a64_swap_seq(__VA_ARGS__))
#define aptr_cas_seq(...) LATE(aptr_cas_seq(__VA_ARGS__))
#define aptr_store_release(...) LATE(aptr_store_release(__VA_ARGS__))
#define aptr_swap_seq(...) LATE(aptr_swap_seq(__VA_ARGS__))
#define wide_cas(...) LATE(wide_cas(__VA_ARGS__))
#define wide_cas_word(...) LATE(wide_cas_word(__VA_ARGS__))
#define wide_load(...) LATE(wide_load(__VA_ARGS__))
#define wide_publish(...) LATE(wide_publish(__VA_ARGS__))
#define wide_word(...) LATE(wide_word(__VA_ARGS__))

#endif
