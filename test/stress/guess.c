/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What handles give away. A handle shows 36 bits of its record's generation. If
 * these were those of a mixed 64-bit number that counts the records, 2^28
 * attempts would find the number from three handles, and it all others.
 *
 *   counted    attempts
 *   judged by  no number fits the handles; and one is found where it is there
 */
#include "stress.h"

#define INDEX_MASK ((UINT64_C(1) << 28) - 1)
#define HANDLES 3

/* SplitMix64's finalizer, and its inverse. */

static uint64_t
mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t
unmix(uint64_t x)
{
	x = (x ^ x >> 31 ^ x >> 62) * UINT64_C(0x319642b2d24d8ec3);
	x = (x ^ x >> 27 ^ x >> 54) * UINT64_C(0x96de1b173f119089);
	return x ^ x >> 30 ^ x >> 60;
}

static bool
fits(uint64_t seed, uint64_t id)
{
	return (mix(seed + (id & INDEX_MASK)) ^ id) <= INDEX_MASK;
}

/* Whether generations of these handles come from one number. */
static bool
find(const uint64_t *id, uint64_t *seed)
{
	uint64_t low;

	for (low = 0; low <= INDEX_MASK; low++) {
		*seed =
		    unmix((id[0] & ~INDEX_MASK) | low) - (id[0] & INDEX_MASK);
		if (fits(*seed, id[1]) && fits(*seed, id[2]))
			return true;
	}
	return false;
}

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

static void
take_handles(uint64_t *id)
{
	const struct hwt_options options = {.flags = HWT_MANUAL};
	hwt_timeout timeout;
	struct hwt *timer;
	unsigned i;

	stress_must(!hwt_create(&timer, &options), "hwt_create");
	for (i = 0; i < HANDLES; i++) {
		stress_must(
		    !hwt_new_timeout(timer, &timeout, task, NULL, HWT_NEVER),
		    "hwt_new_timeout");
		id[i] = timeout.id;
	}
	stress_must(!hwt_stop(timer, NULL) && !hwt_destroy(timer), "hwt_stop");
}

int
main(int argc, char **argv)
{
	uint64_t id[HANDLES], known[HANDLES], seed, i;

	stress_begin("guess", argc, argv);
	for (i = 0; i < HANDLES; i++)
		known[i] = (mix(77 + i) & ~INDEX_MASK) | i;
	stress_check(find(known, &seed) && seed == 77, "nothing is ever found");
	take_handles(id);
	stress_check(!find(id, &seed), "three handles give away all others");
	return stress_end("%" PRIu64 " attempts", INDEX_MASK + 1);
}
