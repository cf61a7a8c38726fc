/* SPDX-License-Identifier: Apache-2.0 */
/* Repeatable random numbers: SplitMix64. */
#ifndef HWT_TEST_RNG_H
#define HWT_TEST_RNG_H

#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint64_t
rng_next(struct rng *rng)
{
	uint64_t word = rng->state += UINT64_C(0x9e3779b97f4a7c15);

	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
	return word ^ word >> 31;
}

/* 0 .. bound-1. */
static inline uint64_t
rng_below(struct rng *rng, uint64_t bound)
{
	return rng_next(rng) % bound;
}

#endif
