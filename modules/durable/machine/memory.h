/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator of the host: malloc, or the one of Redis. */
#ifndef HWT_DURABLE_MEMORY_H
#define HWT_DURABLE_MEMORY_H

#include <stddef.h>

struct memory {
	void *(*allocate)(size_t bytes);
	void *(*zeroed)(size_t count, size_t bytes);
	void *(*resize)(void *block, size_t bytes);
	void (*release)(void *block);
};

/* malloc and its siblings, unless the host sets others before its first
 * machine. */
extern struct memory memory;

#endif
