/* SPDX-License-Identifier: Apache-2.0 */
/* must(condition) ends the program when the condition is false. Unlike assert,
 * it is there in every build: the condition may be a call. */
#ifndef EXAMPLES_MUST_H
#define EXAMPLES_MUST_H

#include <stdio.h>
#include <stdlib.h>

#define must(condition) \
	((condition) ? (void)0 : must_fail(__FILE__, __LINE__, #condition))

_Noreturn static inline void
must_fail(const char *file, int line, const char *condition)
{
	fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
	abort();
}

#endif
