/* SPDX-License-Identifier: Apache-2.0 */
#include "wheel.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common.h"

/* What is not bars. */
#define OTHER_ROWS 14
#define ROWS_MIN 18
#define COLUMNS_MIN 80
#define QUEUE_SHOWN 36

const char *const level_names[LEVELS] = {
    "this round", "the next", "2 rounds", "3 and more", "cancelled now"};

static const char *const marks[LEVELS] = {"█", "▓", "▒", "░", "×"};

static const char *const colours[LEVELS] = {"\033[38;5;45m", "\033[38;5;39m",
    "\033[38;5;33m", "\033[38;5;27m", "\033[38;5;203m"};

/* What ends a line: on a terminal, it clears what the last frame left there. */
static const char *line_end;
static bool has_colours;

static void
put(FILE *file, const char *colour, const char *mark)
{
	if (has_colours)
		fprintf(file, "%s%s\033[m", colour, mark);
	else
		fputs(mark, file);
}

unsigned
picture_level(const struct picture *picture, unsigned bucket, unsigned n)
{
	const unsigned *bar = picture->bars[bucket];
	unsigned level = 0, sum = bar[0];

	while (level < LEVELS - 1 && n >= sum)
		sum += bar[++level];
	return level;
}

/* One cell, or several beside each other, with a gap to the next bar. */
static void
draw_cell(FILE *file, unsigned width, const char *colour, const char *mark)
{
	unsigned i;

	for (i = 0; i < width; i++) {
		if (mark == NULL || (i > 1 && i == width - 1))
			fputs(" ", file);
		else
			put(file, colour, mark);
	}
}

/* How many timeouts the height stands for. It grows at once, and shrinks when
 * more than a quarter of the height is unused, so that it seldom changes. */
static unsigned
scale_top(unsigned height_max)
{
	static unsigned top = 1;

	if (height_max > top || height_max * 4 < top * 3)
		top = height_max > 0 ? height_max : 1;
	return top;
}

/* The row that the n-th timeout, from 1, reaches up to. */
static unsigned
scale_row(unsigned n, unsigned rows, unsigned top)
{
	return (n * rows + top - 1) / top - 1;
}

/* The number at a row of the axis, or 0 for none: the top, and below it those
 * of 1, 2, 5, 10, 20 ... that leave a row between them. */
static unsigned
scale_label(unsigned row, unsigned rows, unsigned top)
{
	static const unsigned steps[] = {
	    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000};
	unsigned i = 0, n;

	if (row == rows - 1)
		return top;
	while (i < sizeof(steps) / sizeof(steps[0]) - 1 &&
	    steps[i] * rows < 2 * top)
		i++;
	n = (row + 1) * top / rows / steps[i] * steps[i];
	if (n == 0 || scale_row(n, rows, top) != row || row + 3 > rows)
		return 0;
	return n;
}

static void
draw_bars(
    FILE *file, const struct picture *picture, unsigned rows, unsigned width)
{
	unsigned top = scale_top(picture->height_max), row, bucket;

	fprintf(file, "timeouts per bucket%s", line_end);
	for (row = rows; row-- > 0;) {
		unsigned label = scale_label(row, rows, top);
		unsigned n = row * top / rows;

		if (label > 0)
			fprintf(file, "%4u ", label);
		else
			fputs("     ", file);
		for (bucket = 0; bucket < BUCKETS; bucket++) {
			unsigned level = picture_level(picture, bucket, n);
			bool is_empty = n >= picture->heights[bucket];

			draw_cell(file, width, colours[level],
			    is_empty ? NULL : marks[level]);
		}
		fputs(line_end, file);
	}
}

/* The next bucket, and the numbers of all. */
static void
draw_scale(FILE *file, const struct picture *picture, unsigned width)
{
	unsigned bucket;

	fprintf(file, "%*s", 5 + (int)(picture->tick % BUCKETS * width), "");
	put(file, "\033[1;38;5;220m", "▲");
	fprintf(file, " next%s     ", line_end);
	for (bucket = 0; bucket < BUCKETS; bucket += 8)
		fprintf(file, "%-*u", 8 * (int)width, bucket);
	fputs(line_end, file);
}

static void
draw_legend(FILE *file)
{
	unsigned level;

	fputs("due in", file);
	for (level = 0; level < LEVELS; level++) {
		fputs("  ", file);
		put(file, colours[level], marks[level]);
		fprintf(file, " %s", level_names[level]);
	}
	fputs(line_end, file);
}

static void
draw_calls(FILE *file, const struct picture *picture)
{
	unsigned i;

	fprintf(file, "queue  %3u ", picture->queued);
	for (i = 0; i < picture->queued && i < QUEUE_SHOWN; i++)
		put(file, "\033[38;5;84m", "▪");
	fprintf(file, " since the last tick%s", line_end);
	fprintf(file,
	    "cancelled %u and moved %u since then; that tick started %u%s",
	    picture->cancelled, picture->moved, picture->started, line_end);
}

static void
draw_counts(FILE *file, const char *who, const struct hwt_stats *counts)
{
	fprintf(file,
	    "%-12s %9" PRIu64 " %11" PRIu64 " %12" PRIu64 " %11" PRIu64
	    " %9" PRIu64 "%s",
	    who, counts->pending, counts->scheduled, counts->rescheduled,
	    counts->cancelled, counts->started, line_end);
}

void
draw_text(FILE *file, const struct picture *picture, unsigned rows,
    unsigned columns, bool is_terminal)
{
	unsigned width = columns / BUCKETS;
	double seconds = (double)(picture->tick * TICK_NS) / 1e9;

	line_end = is_terminal ? "\033[K\n" : "\n";
	has_colours = is_terminal && getenv("NO_COLOR") == NULL;
	if (rows < ROWS_MIN || columns < COLUMNS_MIN) {
		fprintf(file, "The wheel needs %d columns and %d rows.%s",
		    COLUMNS_MIN, ROWS_MIN, line_end);
		return;
	}
	if (BUCKETS * width + 5 > columns)
		width--;
	fprintf(file, "%d buckets, tick 10 ms, load %s, %" PRIu64 " %%%s",
	    BUCKETS, picture->load, picture->rate, line_end);
	fprintf(file,
	    "tick %" PRIu64 ", bucket %" PRIu64 ", turn %" PRIu64 ", %.2f s%s",
	    picture->tick, picture->tick % BUCKETS, picture->tick / BUCKETS,
	    seconds, line_end);
	draw_bars(file, picture, rows - OTHER_ROWS, width);
	draw_scale(file, picture, width);
	draw_legend(file);
	draw_calls(file, picture);
	fprintf(file, "%s%-12s %9s %11s %12s %11s %9s%s", line_end, "",
	    "pending", "scheduled", "rescheduled", "cancelled", "started",
	    line_end);
	draw_counts(file, "this program", &picture->own);
	draw_counts(file, "the library", &picture->library);
	fprintf(
	    file, "%s%s", picture->is_equal ? "equal" : "DIFFERENT", line_end);
}
