/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions behind which each design stands that hands out sets of objects,
 * for main.c. A program has one design.
 */
#ifndef DESIGN_H
#define DESIGN_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
	OBJECTS_MAX = 4096,
	SET_MAX = 8,
	/* No wait is that long, but to keep a limit costs something. */
	WAIT_LIMIT_S = 600
};

/* For pthread_cond_timedwait. */
static inline struct timespec
wait_limit(void)
{
	struct timespec limit;

	(void)clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += WAIT_LIMIT_S;
	return limit;
}

/* NULL: it has no such request. */
struct design {
	const char *what;
	void (*create)(unsigned objects);
	void (*destroy)(void); /* nothing is out */
	/* Waits in this thread; the set is in ascending order. */
	void (*acquire)(const unsigned *set, unsigned count);
	void (*release)(const unsigned *set, unsigned count);
	/* Any one of all objects. */
	unsigned (*acquire_any)(void);
	void (*release_any)(unsigned object);
	/* Names so many objects by keys of 8 bytes, and frees them all. */
	void (*fill_store)(uint64_t objects);
	void (*destroy_store)(void);
};

extern const struct design design;

#endif
