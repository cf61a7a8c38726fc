/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_strerror: what an error means in this library.
 */
#include "test/spec/support.h"

#include <limits.h>
#include <string.h>

SUITE(strerror);

/* All that hwt.h names: make tidy compares them. */
static const int known[] = {0, EINVAL, ENOMEM, EAGAIN, ESHUTDOWN, ENOBUFS,
    ENOENT, EINPROGRESS, EDEADLK, EPERM, ETIMEDOUT, EBUSY, EOWNERDEAD, EMFILE,
    ENFILE, EIO, EBADF, ENOSPC, EPIPE, EFBIG, ECANCELED};

/* Those that have the text of another. */
static bool
is_alike(int error)
{
	return error == ENFILE || error == EBADF || error == ENOSPC ||
	    error == EPIPE || error == EFBIG;
}

#define KNOWN (sizeof(known) / sizeof(known[0]))

Test(strerror, what_functions_return_has_a_text_of_its_own)
{
	for (size_t i = 0; i < KNOWN; i++) {
		const char *text = hwt_strerror(-known[i]);

		cr_assert(text != NULL && strlen(text) > 0);
		cr_assert(strcmp(text, hwt_strerror(INT_MIN)) != 0);
		for (size_t j = 0; j < i; j++)
			cr_assert(is_alike(known[i]) ||
				strcmp(text, hwt_strerror(-known[j])) != 0,
			    "%d and %d: %s", known[i], known[j], text);
	}
}

Test(strerror, it_says_what_it_means_here_and_not_what_the_system_says)
{
	cr_assert(strstr(hwt_strerror(-ESHUTDOWN), "the timer is stopped"));
	cr_assert(strstr(hwt_strerror(-ENOENT), "the timeout has ended"));
	cr_assert(strstr(hwt_strerror(-EOWNERDEAD), "fork"));
	for (size_t i = 1; i < KNOWN; i++)
		cr_assert(
		    strcmp(hwt_strerror(-known[i]), strerror(known[i])) != 0);
}

/* hwt_stats_write and hwt_dump hand on what the C library says. */
Test(strerror, errors_of_a_file_are_not_denied)
{
	const int of_files[] = {
	    EIO, EBADF, ENOSPC, EPIPE, EFBIG, EDQUOT, EINTR, EAGAIN};

	for (size_t i = 0; i < sizeof(of_files) / sizeof(of_files[0]); i++)
		cr_assert(strstr(hwt_strerror(-of_files[i]), "the file"));
}

Test(strerror, the_sign_does_not_matter)
{
	for (size_t i = 0; i < KNOWN; i++)
		cr_assert(hwt_strerror(known[i]) == hwt_strerror(-known[i]));
}

Test(strerror, what_is_unknown_has_a_text_too)
{
	const int unknown[] = {
	    INT_MIN, INT_MIN + 1, INT_MAX, 100000, -100000, EDOM, -EDOM};

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		cr_assert_str_eq(hwt_strerror(unknown[i]),
		    "an error that hwt does not return");
}

Test(strerror, texts_are_constant_and_of_one_line)
{
	for (int error = -200; error <= 200; error++) {
		const char *text = hwt_strerror(error);

		cr_assert(text == hwt_strerror(error));
		cr_assert(strchr(text, '\n') == NULL);
	}
}
