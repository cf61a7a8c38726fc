/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites use of Criterion, by its names, where there is no Criterion:
 * Debian's needs glibc. See runner.c.
 */
#ifndef HWT_TEST_RUNNER_H
#define HWT_TEST_RUNNER_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct runner_test {
	const char *suite, *name;
	void (*body)(void);
};

struct runner_suite {
	const char *name;
	void (*init)(void), (*fini)(void);
	unsigned timeout; /* seconds */
};

/* Counts an assertion, in any thread; one that does not hold aborts. */
void runner_assert(bool holds, const char *file, int line, const char *text,
    const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Ends the test, which does not count. */
_Noreturn void runner_skip(const char *why);

/* The linker collects pointers to all tests, and to all suites. */
#define RUNNER_IN(list) __attribute__((section(list), used))

#define CR_TEST_BASE(suite, name, ...)                                        \
	static void suite##_##name##_test(void);                              \
	static const struct runner_test suite##_##name##_entry = {            \
	    #suite, #name, suite##_##name##_test};                            \
	static const struct runner_test *const suite##_##name##_at RUNNER_IN( \
	    "runner_tests") = &suite##_##name##_entry;                        \
	static void suite##_##name##_test(void)

#define Test(suite, name) CR_TEST_BASE(suite, name)

#define TestSuite(title, ...)                                               \
	static const struct runner_suite title##_suite_entry = {            \
	    #title, __VA_ARGS__};                                           \
	static const struct runner_suite *const title##_suite_at RUNNER_IN( \
	    "runner_suites") = &title##_suite_entry

/* The space: an empty format is warned of. */
#define cr_assert(condition, ...) \
	runner_assert(            \
	    (condition), __FILE__, __LINE__, #condition, " " __VA_ARGS__)

#define cr_assert_fail(...) cr_assert(false, __VA_ARGS__)
#define cr_assert_not_null(pointer) cr_assert((pointer) != NULL)

#define cr_assert_str_eq(actual, expected)                             \
	do {                                                           \
		const char *text_is = (actual);                        \
		const char *text_wanted = (expected);                  \
		cr_assert(strcmp(text_is, text_wanted) == 0,           \
		    "it is \"%s\", not \"%s\"", text_is, text_wanted); \
	} while (0)

#define cr_skip_test(why) runner_skip(why)
#define cr_log_info(...) ((void)fprintf(stderr, __VA_ARGS__))

#endif
