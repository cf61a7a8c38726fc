/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of the store share with those of the checkout, in
 * explore_checkout.c: models of the system and the timer, and main.
 */
#ifndef CHECKOUT_EXPLORE_PROGRAMS_H
#define CHECKOUT_EXPLORE_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "modules/checkout/hwt_checkout.h"
#include "test/script.h"

/*
 * A program. Its requests by number: "ab a" are two, for a set of the objects a
 * and b, and for a; "g" is any of the group, "A" is a for reading, "!a" pauses
 * a, and "!" all. Of a store, a and b are keys.
 */
struct program {
	const char *name, *requests;
	/* Scripts: see the verbs. run has a part for each thread. */
	const char *begin, *run, *end;
	uint32_t hold_after;
	/* In granted of that request, what it does first. */
	const char *in_granted;
	unsigned granted;
	struct hwt_store_options store;
};

/* Programs with the same verbs. make comes before the script begin, and check
 * after the script end. */
struct family {
	const struct program *programs;
	size_t count;
	const struct verb *verbs;
	void (*make)(const struct program *program);
	void (*check)(void);
};

extern const struct family store_family;

extern struct hwt_checkout *checkout;

/* Forgets all memory and timeouts of the execution before. */
void checkout_make(uint32_t hold_after);
/* Time passes: what is pending comes due. */
void fire(void);
/* So does the one that was made last. */
void fire_last(void);
/* Whether any is to come. */
bool timeouts_pend(void);

#endif
