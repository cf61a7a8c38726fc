/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes rare meetings of threads frequent in the programs of the suite, as the
 * explorer does in small ones. The compiler's -include brings it into every
 * source, before all else: each atomic operation in it may then come late.
 *
 * A run chooses, by the number in the environment's NOISE, one in NOISE_PER of
 * these places (12, unless told otherwise). A thread that comes to one of them
 * is held there, three times in four, for up to NOISE_US microseconds (10000),
 * until NOISE_LIMIT times (10) at that place of the process. It does not sleep,
 * since tests look at whether threads do. Without NOISE, nothing is late.
 */
#ifndef HWT_TEST_NOISE_H
#define HWT_TEST_NOISE_H

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"

struct noise_place {
	/* 0: not asked yet; then one more than how often it may hold. */
	uint64_t left;
};

static inline uint64_t
noise_mix(uint64_t value)
{
	value = (value ^ value >> 32) * UINT64_C(0x9e3779b97f4a7c15);
	value = (value ^ value >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return value ^ value >> 32;
}

static inline uint64_t
noise_setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static inline uint64_t
noise_clock(void)
{
	struct timespec now;

	/* The function may be made to fail by a test. */
	(void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t
noise_choose(const char *file, uint64_t line)
{
	uint64_t number = noise_setting("NOISE", 0);
	uint64_t value = noise_mix(number + line);

	for (; *file != '\0'; file++)
		value = noise_mix(value + (unsigned char)*file);
	if (number == 0 || value % noise_setting("NOISE_PER", 12) != 0)
		return 1;
	return 1 + noise_setting("NOISE_LIMIT", 10);
}

static inline void
noise_hold(void)
{
	uint64_t began_ns = noise_clock();
	uint64_t chance = noise_mix(began_ns);
	uint64_t most_ns = noise_setting("NOISE_US", 10000) * 1000;

	if (chance % 4 == 0)
		return;
	while (noise_clock() - began_ns < chance / 4 % most_ns)
		(void)sched_yield();
}

static inline void
noise_at(struct noise_place *place, const char *file, uint64_t line)
{
	uint64_t left = __atomic_load_n(&place->left, __ATOMIC_RELAXED);
	int error = errno;

	if (left == 0) {
		left = noise_choose(file, line);
		__atomic_store_n(&place->left, left, __ATOMIC_RELAXED);
	}
	if (left > 1) {
		__atomic_store_n(&place->left, left - 1, __ATOMIC_RELAXED);
		noise_hold();
	}
	errno = error;
}

#define NOISE(call) NOISE_AT(__COUNTER__, call)
#define NOISE_AT(number, call) NOISE_AS(number, call)
#define NOISE_AS(number, call) NOISE_IN(noise_place_##number, call)
#define NOISE_IN(place, call)                         \
	__extension__({                               \
		static struct noise_place place;      \
		noise_at(&place, __FILE__, __LINE__); \
		call;                                 \
	})

#ifdef HWT_ATOMIC_C11
#error "this needs ConcurrencyKit: on C11, these names are macros already"
#endif
/* A macro is not replaced inside of itself. */
#define a64_add_seq(...) NOISE(a64_add_seq(__VA_ARGS__))
#define a64_and_seq(...) NOISE(a64_and_seq(__VA_ARGS__))
#define a64_cas_seq(...) NOISE(a64_cas_seq(__VA_ARGS__))
#define a64_count(...) NOISE(a64_count(__VA_ARGS__))
#define a64_load_acquire(...) NOISE(a64_load_acquire(__VA_ARGS__))
#define a64_load_relaxed(...) NOISE(a64_load_relaxed(__VA_ARGS__))
#define a64_load_seq(...) NOISE(a64_load_seq(__VA_ARGS__))
#define a64_or_seq(...) NOISE(a64_or_seq(__VA_ARGS__))
#define a64_store_relaxed(...) NOISE(a64_store_relaxed(__VA_ARGS__))
#define a64_store_release(...) NOISE(a64_store_release(__VA_ARGS__))
#define a64_store_seq(...) NOISE(a64_store_seq(__VA_ARGS__))
#define a64_swap_seq(...) NOISE(a64_swap_seq(__VA_ARGS__))
#define aptr_cas_seq(...) NOISE(aptr_cas_seq(__VA_ARGS__))
#define aptr_load_acquire(...) NOISE(aptr_load_acquire(__VA_ARGS__))
#define aptr_store_release(...) NOISE(aptr_store_release(__VA_ARGS__))
#define aptr_swap_seq(...) NOISE(aptr_swap_seq(__VA_ARGS__))
#define pair_cas(...) NOISE(pair_cas(__VA_ARGS__))
#define pair_cas_word(...) NOISE(pair_cas_word(__VA_ARGS__))
#define pair_load(...) NOISE(pair_load(__VA_ARGS__))
#define pair_load_seq(...) NOISE(pair_load_seq(__VA_ARGS__))
#define pair_publish(...) NOISE(pair_publish(__VA_ARGS__))
#define pair_word(...) NOISE(pair_word(__VA_ARGS__))

#endif
