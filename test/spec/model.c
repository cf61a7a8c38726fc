/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole of a manual timer against a model: the long runs of
 * test/random/model, with wheels of chosen lengths and without a look inside.
 *
 * HWT_SEED in the environment chooses another run; a failure tells it.
 */
#include "test/spec/support.h"

#include "test/random/random.h"

SUITE(model);

/* Some six times slower under AddressSanitizer. */
#ifdef __SANITIZE_ADDRESS__
#define STEPS 60000
#else
#define STEPS 180000
#endif

static uint64_t seed_now;

static void
failed(const char *text)
{
	cr_assert_fail("HWT_SEED=%" PRIu64 " %s", seed_now, text);
}

static void
compare_seed(uint64_t seed, uint64_t wheel)
{
	const struct random_options run = {
	    .seed = seed, .steps = STEPS, .wheel = wheel};

	seed_now = seed;
	random_failed = failed;
	random_run(&run);
	cr_assert(cover_calls() > STEPS);
}

static void
compare(uint64_t wheel)
{
	static const uint64_t seeds[] = {1, 103, 104, 107};
	const char *seed = getenv("HWT_SEED");

	if (seed != NULL) {
		compare_seed(strtoull(seed, NULL, 0), wheel);
		return;
	}
	for (unsigned index = 0; index < sizeof(seeds) / sizeof(seeds[0]);
	     index++)
		compare_seed(seeds[index], wheel);
}

Test(model, a_wheel_of_1_does_as_the_model)
{
	compare(1);
}

Test(model, a_wheel_of_2_does_as_the_model)
{
	compare(2);
}

Test(model, a_wheel_of_8_does_as_the_model)
{
	compare(8);
}

Test(model, a_wheel_of_512_does_as_the_model)
{
	compare(512);
}
