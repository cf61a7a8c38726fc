/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_version, which tells what is linked, against what was compiled.
 */
#include "test/spec/support.h"

#include <stdio.h>

SUITE(version);

Test(version, the_library_is_of_the_version_of_its_header)
{
	char expected[32];

	snprintf(expected, sizeof(expected), "%d.%d.%d", HWT_VERSION_MAJOR,
	    HWT_VERSION_MINOR, HWT_VERSION_PATCH);

	cr_assert_str_eq(hwt_version(), expected);
	cr_assert_str_eq(hwt_version(), "0.2.0");
}

Test(version, the_units_are_nanoseconds)
{
	assert_u64(HWT_NS(1), 1);
	assert_u64(HWT_US(1), 1000 * HWT_NS(1));
	assert_u64(HWT_MS(1), 1000 * HWT_US(1));
	assert_u64(HWT_SEC(1), 1000 * HWT_MS(1));
	assert_u64(HWT_MIN(1), 60 * HWT_SEC(1));
	assert_u64(HWT_SEC(-1 + 2), 1000000000);
	assert_u64(HWT_NEVER, UINT64_MAX);
}
