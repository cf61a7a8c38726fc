/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of which only the first is good. Criterion takes all of them but the
 * last two for passed; can_fail asks that test/check/run does not.
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdlib.h>

static void *volatile kept;

Test(swallowed, is_good)
{
	cr_assert(kept == NULL);
}

Test(swallowed, leaves_by_exit)
{
	cr_assert(kept == NULL);
	exit(0);
}

Test(swallowed, asserts_nothing)
{
	kept = NULL;
}

Test(swallowed, leaks)
{
	kept = malloc(1);
	kept = NULL;
	cr_assert(kept == NULL);
}

Test(swallowed, overflows)
{
	volatile int top = INT_MAX;

	top++;
	cr_assert(kept == NULL);
}

Test(swallowed, fails)
{
	cr_assert(kept != NULL);
}
