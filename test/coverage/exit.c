/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into what make coverage runs: a process that leaves by _exit or abort,
 * as forked children do, writes its counts before.
 */
#include <gcov.h>
#include <unistd.h>

void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));
void __real_abort(void) __attribute__((noreturn));
void __wrap_abort(void) __attribute__((noreturn));

void
__wrap__exit(int status)
{
	__gcov_dump();
	__real__exit(status);
}

void
__wrap_abort(void)
{
	__gcov_dump();
	__real_abort();
}
