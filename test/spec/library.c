/* SPDX-License-Identifier: Apache-2.0 */
/* The header's constants, hwt_version, hwt_strerror, and the
 * library in a program that uses it before main. */
#include "test/spec/support.h"

#include <limits.h>

SUITE(library);

Test(library, version_of_the_library_is_that_of_the_header)
{
	char expected[32];

	snprintf(expected, sizeof(expected), "%d.%d.%d", HWT_VERSION_MAJOR,
	    HWT_VERSION_MINOR, HWT_VERSION_PATCH);

	cr_assert_str_eq(hwt_version(), expected);
}

Test(library, durations_are_nanoseconds_of_whole_numbers_and_fractions)
{
	static const uint64_t constants[] = {HWT_SEC(2), HWT_MS(0.5)};
	int many = 2000000000, evaluated = 0;

	assert_u64(HWT_NS(1), 1);
	assert_u64(HWT_US(many), UINT64_C(2000000000000));
	assert_u64(HWT_SEC(many), UINT64_C(2000000000000000000));
	assert_u64(HWT_MIN(60 * 24 * 365), HWT_SEC(31536000));
	assert_u64(HWT_MS(1 + 1), 2000000);
	assert_u64(HWT_SEC(0.5F), HWT_MS(500));
	assert_u64(HWT_MIN(1.5), HWT_SEC(90));
	assert_u64(constants[0] + constants[1], 2000500000);
	assert_u64(HWT_US(evaluated++), 0);
	assert_i64(evaluated, 1);
	assert_u64(1000000 / HWT_US(2), 500);
	assert_u64(HWT_NEVER, UINT64_MAX);
}

/* All that hwt.h names: make tidy compares them. */
static const int known[] = {0, EINVAL, ENOMEM, EAGAIN, ESHUTDOWN, ENOBUFS,
    ENOENT, EINPROGRESS, EDEADLK, EPERM, ETIMEDOUT, EBUSY, EOWNERDEAD, EMFILE,
    ENFILE, EIO, EBADF, ENOSPC, EPIPE, EFBIG, ECANCELED};

#define KNOWN (sizeof(known) / sizeof(known[0]))

Test(library, strerror_says_what_an_error_means_here)
{
	static const char unknown[] = "an error that hwt does not return";

	for (size_t i = 0; i < KNOWN; i++) {
		const char *text = hwt_strerror(-known[i]);

		cr_assert(text == hwt_strerror(known[i]));
		cr_assert(strcmp(text, unknown) != 0, "%d", known[i]);
		cr_assert(i == 0 || strcmp(text, strerror(known[i])) != 0);
	}
	cr_assert(strstr(hwt_strerror(-ESHUTDOWN), "the timer is stopped"));
	cr_assert(strstr(hwt_strerror(-ENOENT), "the timeout has ended"));
	cr_assert(strstr(hwt_strerror(-EOWNERDEAD), "fork"));
	cr_assert(strstr(hwt_strerror(-EDQUOT), "the file"));
	cr_assert_str_eq(hwt_strerror(INT_MIN), unknown);
	cr_assert_str_eq(hwt_strerror(INT_MAX), unknown);
	cr_assert_str_eq(hwt_strerror(EDOM), unknown);
	for (int error = -200; error <= 200; error++)
		cr_assert(strchr(hwt_strerror(error), '\n') == NULL);
}

/* A timer from before main, and from before the library's own constructor. */

static struct hwt *early_timer;

static void
use_early_timer(void)
{
	child_ok(hwt_new_timeout(early_timer, NULL, idle_task, NULL, 0));
	child_check(hwt_pending_timeouts(early_timer) == 1);
	child_ok(hwt_stop(early_timer, NULL));
	child_ok(hwt_destroy(early_timer));
}

static const struct role roles[] = {{"early timer", use_early_timer}};

ROLES(roles)

__attribute__((constructor(101))) static void
make_early_timer(void)
{
	const struct hwt_options options = {.flags = HWT_MANUAL};

	if (role_is(roles[0].name))
		child_ok(hwt_create(&early_timer, &options));
}

Test(library, timer_made_in_the_first_constructor_is_alive_later)
{
	assert_i64(role_run(roles[0].name, NULL, NULL), LEFT_BY_EXIT);
}
