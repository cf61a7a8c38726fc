/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suites where there is no Criterion. Runs one test a call, so that each
 * has a process of its own, as Criterion gives it:
 *
 *   --list      prints SUITE/NAME of each test
 *   SUITE/NAME  runs that one, and prints "passed SUITE/NAME ASSERTIONS" or
 *               "skipped SUITE/NAME" at its end
 *
 * A test that fails aborts. One that leaves by exit has printed nothing: its
 * status does not count without a word. test/check/checks calls us.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "criterion/criterion.h"

/* The linker's. */
extern const struct runner_test *const __start_runner_tests[];
extern const struct runner_test *const __stop_runner_tests[];
extern const struct runner_suite *const __start_runner_suites[]
    __attribute__((weak));
extern const struct runner_suite *const __stop_runner_suites[]
    __attribute__((weak));

static const struct runner_test *running;
static struct runner_suite suite;
static _Atomic unsigned assertions;

void
runner_assert(bool holds, const char *file, int line, const char *text,
    const char *format, ...)
{
	char message[1024];
	va_list arguments;

	assertions++;
	if (holds)
		return;
	va_start(arguments, format);
	(void)vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	fprintf(
	    stderr, "%s:%d: %s does not hold:%s\n", file, line, text, message);
	abort();
}

/* A line of its own, whatever the test has printed. */
static _Noreturn void
end(const char *word)
{
	if (suite.fini != NULL)
		suite.fini();
	printf(
	    "\n%s %s/%s %u\n", word, running->suite, running->name, assertions);
	exit(fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

_Noreturn void
runner_skip(const char *why)
{
	fprintf(
	    stderr, "skipped %s/%s: %s\n", running->suite, running->name, why);
	end("skipped");
}

static _Noreturn void
run(const struct runner_test *test)
{
	const struct runner_suite *const *at = __start_runner_suites;

	running = test;
	for (; at != __stop_runner_suites; at++) {
		if (strcmp((*at)->name, test->suite) == 0)
			suite = **at;
	}
	(void)alarm(suite.timeout);
	if (suite.init != NULL)
		suite.init();
	test->body();
	end("passed");
}

int
main(int argc, char **argv)
{
	const struct runner_test *const *at = __start_runner_tests;
	const char *wanted = argc == 2 ? argv[1] : "";
	char name[256];

	for (; at != __stop_runner_tests; at++) {
		(void)snprintf(
		    name, sizeof(name), "%s/%s", (*at)->suite, (*at)->name);
		if (strcmp(wanted, "--list") == 0)
			puts(name);
		else if (strcmp(wanted, name) == 0)
			run(*at);
	}
	return strcmp(wanted, "--list") == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
