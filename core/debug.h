/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of HWT_DEBUG: see observe/debug.c. The functions are NULL unless
 * it does; they are set once, as the library is loaded. */
#ifndef HWT_DEBUG_H
#define HWT_DEBUG_H

#include <stddef.h>
#include <stdint.h>

#include "hwt.h"

struct debug {
	/* what: "timer", "pool" or "mailbox"; place: in the code that has made
	 * the object. */
	void (*made)(const char *what, const void *object, uint64_t epoch,
	    const void *place);
	void (*destroyed)(const void *object);
};

extern struct debug debug;

#define DEBUG_MADE(what, object, epoch)                        \
	do {                                                   \
		if (debug.made != NULL)                        \
			debug.made((what), (object), (epoch),  \
			    __builtin_extract_return_addr(     \
				__builtin_return_address(0))); \
	} while (0)

static inline void
debug_destroyed(const void *object)
{
	if (debug.destroyed != NULL)
		debug.destroyed(object);
}

#endif
