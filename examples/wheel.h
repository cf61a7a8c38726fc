/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the program wheel share: the picture of a wheel at one
 * moment, which wheel_load.c makes, and wheel_text.c and wheel_svg.c draw.
 */
#ifndef EXAMPLES_WHEEL_H
#define EXAMPLES_WHEEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "hwt.h"

#define TICK_NS HWT_MS(10)
#define BUCKETS 64

/* Levels of a bar: timeouts of rounds 0, 1, 2, 3 and later, and those that were
 * cancelled since the last tick, which are shown for a last time. */
enum {
	ROUNDS = 4,
	CANCELLED_NOW = ROUNDS,
	LEVELS
};

/* The wheel when the next tick, which is tick, is about to be begun. */
struct picture {
	const char *load;
	uint64_t rate, tick;
	/* Timeouts by bucket and level; the sum of each bucket; the most. */
	unsigned bars[BUCKETS][LEVELS], heights[BUCKETS], height_max;
	/* Since the last tick, and what that tick itself has started. */
	unsigned queued, moved, cancelled, started;
	/* Counts of the program, and those of hwt_read_stats. */
	struct hwt_stats own, library;
	/* False once anything was other than this program expected. */
	bool is_equal;
};

/* Makes the timer. False when there is no load of that name. */
bool load_open(const char *name, uint64_t percent, uint64_t seed);

/* Begins so many ticks, and runs the load after each until the next is about to
 * be begun; then takes a picture. */
void load_turn(uint64_t ticks, struct picture *picture);
void load_close(void);

/* The level of the n-th timeout of a bucket's bar. */
unsigned picture_level(
    const struct picture *picture, unsigned bucket, unsigned n);

/* The words for the levels. */
extern const char *const level_names[LEVELS];

/* Draws with characters; on a terminal with colours. */
void draw_text(FILE *file, const struct picture *picture, unsigned rows,
    unsigned columns, bool is_terminal);

void draw_svg(FILE *file, const struct picture *picture);

#endif
