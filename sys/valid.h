/* SPDX-License-Identifier: Apache-2.0 */
/* Which arguments are valid, for the library and its modules. */
#ifndef HWT_VALID_H
#define HWT_VALID_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hwt.h"

#define DELAY_LIMIT (UINT64_C(1) << 63)

static inline bool
delay_is_valid(uint64_t delay_ns)
{
	return delay_ns < DELAY_LIMIT || delay_ns == HWT_NEVER;
}

static inline bool
words_are_zero(const uint64_t *words, size_t bytes)
{
	while (bytes > 0 && words[bytes / sizeof(*words) - 1] == 0)
		bytes -= sizeof(*words);
	return bytes == 0;
}

#define RESERVED_IS_ZERO(of) \
	words_are_zero((of)->reserved, sizeof((of)->reserved))

/* Size of a name, with its NUL. */
#define NAME_BYTES 16

/* NULL: it has none. */
static inline bool
name_is_short(const char *name)
{
	return name == NULL || strnlen(name, NAME_BYTES) < NAME_BYTES;
}

/* Into zeroed memory; usual, if it is NULL. */
static inline void
name_copy(char to[NAME_BYTES], const char *name, const char *usual)
{
	if (name == NULL)
		name = usual;
	memcpy(to, name, strnlen(name, NAME_BYTES - 1));
}

/* In a child process of the one that made it. Used by modules alone. */
__attribute__((unused)) static inline bool
timer_is_foreign(struct hwt *timer)
{
	return hwt_state(timer, (hwt_timeout){0}, NULL) == -EOWNERDEAD;
}

#endif
