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

struct program {
	const char *name;
	void (*begin)(void);
	void (*thread[4])(void);
};

extern const struct program store_programs[];
extern const size_t store_program_count;
void store_program_end(void);

extern struct hwt_checkout *checkout;
extern uint32_t shards;

/* Forgets all memory and timeouts of the execution before. */
void checkout_make(uint32_t hold_after);
/* Time passes: what is pending comes due. */
void fire(void);
/* So does the one that was made last. */
void fire_last(void);
/* Whether any is to come. */
bool timeouts_pend(void);

#endif
