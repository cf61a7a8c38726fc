/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wheel - shows a wheel turning in the terminal: a manual timer under a load
 * that is made up: connections whose idle timeouts are pushed out, headers that
 * nearly always come, calls that time out now and then.
 *
 *   wheel TICKS_PER_SECOND
 *
 * Ctrl-C ends it. Without a terminal it prints tick 400 alone.
 *
 * By the grid of hwt.h a deadline belongs to the first tick boundary at or
 * after it; the bucket is that tick modulo the wheel's length. In each frame
 * the program's own counts must be those of hwt_read_stats, and each task must
 * start at its tick; or else the exit status is 1.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <unistd.h>

#include "common.h"
#include "hwt.h"

#define TICK_NS HWT_MS(10)
#define BUCKETS 64
#define ROUNDS 4 /* 0, 1, 2, and 3 or more */
#define ROWS 16
#define LIVE_MAX 4096
/* Between two calls, so that the calls of a tick do not fill it. */
#define STEP_NS (TICK_NS / (2 * LIVE_MAX + 1))

/* Timeouts of one kind. At a random tick, at most within_ticks after it was
 * scheduled or pushed out, so many percent are pushed out by another delay of
 * the range, and so many are cancelled. The others become due. */
static const struct kind {
	unsigned per_100_ticks, delay_min_ticks, delay_max_ticks;
	unsigned within_ticks, moved, cancelled;
} kinds[] = {
    {100, 120, 280, 70, 66, 28}, /* keep-alive, pushed out by requests */
    {300, 20, 40, 9, 0, 95}, /* the header of a request */
    {400, 8, 60, 24, 0, 92}, /* the answer to a call */
    {60, 4, 140, 100, 0, 10}, /* a retry after a pause */
};

static struct item {
	hwt_timeout timeout;
	const struct kind *kind; /* NULL: not used */
	uint64_t due_tick, act_tick;
} items[LIVE_MAX];

static struct hwt *timer;
static uint64_t now_ns, tick = 1, random_state = 1;
static struct hwt_stats own;
static unsigned moved_now, cancelled_now, started_now;
static bool is_equal = true;

static void
must(int error)
{
	if (error == 0)
		return;
	fprintf(stderr, "wheel: %s\n", hwt_strerror(error));
	exit(1);
}

/* Below n, which is below 2^32. */
static uint64_t
random_below(uint64_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1;
	return (random_state >> 32) * n >> 32;
}

static uint64_t
clock_by_hand(void *unused)
{
	(void)unused;
	return now_ns;
}

static void
task(hwt_timeout timeout, void *arg)
{
	struct item *item = arg;

	is_equal &= item->kind != NULL && item->due_tick == tick &&
	    item->timeout.id == timeout.id;
	item->kind = NULL;
	own.started++;
	started_now++;
}

/* Schedules, or pushes out. */
static void
item_set(struct item *item, bool is_new)
{
	const struct kind *kind = item->kind;
	uint64_t range_ticks = kind->delay_max_ticks - kind->delay_min_ticks;
	uint64_t delay_ns = kind->delay_min_ticks * TICK_NS +
	    random_below(range_ticks * TICK_NS);

	now_ns += STEP_NS;
	if (is_new)
		must(hwt_new_timeout(
		    timer, &item->timeout, task, item, delay_ns));
	else
		must(hwt_reschedule(timer, item->timeout, delay_ns));
	item->due_tick = (now_ns + delay_ns + TICK_NS - 1) / TICK_NS;
	item->act_tick = tick + 1 + random_below(kind->within_ticks);
}

static void
item_act(struct item *item)
{
	uint64_t chance = random_below(100);

	if (chance < item->kind->moved) {
		item_set(item, false);
		own.rescheduled++;
		moved_now++;
	} else if (chance < item->kind->moved + item->kind->cancelled) {
		must(hwt_cancel(timer, item->timeout));
		item->kind = NULL;
		own.cancelled++;
		cancelled_now++;
	}
}

/* The time until the next tick, in which the load calls the timer. */
static void
load_run(void)
{
	struct item *item = items;
	unsigned i;

	for (i = 0; i < LIVE_MAX; i++)
		if (items[i].kind != NULL && items[i].act_tick == tick)
			item_act(&items[i]);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		uint64_t count =
		    (kinds[i].per_100_ticks + random_below(100)) / 100;

		for (; count > 0; count--) {
			while (item < items + LIVE_MAX && item->kind != NULL)
				item++;
			if (item == items + LIVE_MAX)
				return;
			item->kind = &kinds[i];
			item_set(item, true);
			own.scheduled++;
		}
	}
}

static void
turn(void)
{
	struct hwt_stats library;

	moved_now = cancelled_now = started_now = 0;
	now_ns = tick * TICK_NS;
	must(hwt_advance(timer, NULL));
	tick++;
	load_run();
	own.pending = own.scheduled - own.cancelled - own.started;
	must(hwt_read_stats(timer, &library));
	is_equal &= library.scheduled == own.scheduled &&
	    library.cancelled == own.cancelled &&
	    library.rescheduled == own.rescheduled &&
	    library.started == own.started && library.pending == own.pending;
}

/* A column for each bucket, a cell for some of its timeouts. Cells are of the
 * round of their timeout; the bucket of the next tick is marked. */
static void
draw(bool is_terminal)
{
	unsigned bars[BUCKETS][ROUNDS] = {0}, most = 1, cell, bucket, i, row;

	for (i = 0; i < LIVE_MAX; i++) {
		uint64_t round = (items[i].due_tick - tick) / BUCKETS;

		if (items[i].kind != NULL)
			bars[items[i].due_tick % BUCKETS]
			    [round < ROUNDS ? round : ROUNDS - 1]++;
	}
	for (bucket = 0; bucket < BUCKETS; bucket++) {
		for (i = 1; i < ROUNDS; i++)
			bars[bucket][i] += bars[bucket][i - 1];
		if (bars[bucket][ROUNDS - 1] > most)
			most = bars[bucket][ROUNDS - 1];
	}
	cell = (most + ROWS - 1) / ROWS;
	printf(
	    "%shwt, a wheel of %d buckets; # due in this round, x in the next"
	    ", o and . later; a mark is %u\n",
	    is_terminal ? "\033[H" : "", BUCKETS, cell);
	for (row = ROWS; row-- > 0;) {
		for (bucket = 0; bucket < BUCKETS; bucket++) {
			for (i = 0; i < ROUNDS; i++)
				if (bars[bucket][i] > row * cell)
					break;
			putchar(" .ox#"[ROUNDS - i]);
		}
		puts(is_terminal ? "\033[K" : "");
	}
	for (bucket = 0; bucket < BUCKETS; bucket++)
		putchar(bucket == tick % BUCKETS ? '^' : '-');
	printf("\ntick %" PRIu64 "  pending %" PRIu64 "  scheduled %" PRIu64
	       "  now: started %u, cancelled %u, pushed out %u   \n",
	    tick, own.pending, own.scheduled, started_now, cancelled_now,
	    moved_now);
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	const struct hwt_clock clock = {.now_ns = clock_by_hand};
	const struct hwt_options options = {.tick_ns = TICK_NS,
	    .ticks_per_wheel = BUCKETS,
	    .flags = HWT_MANUAL,
	    .clock = &clock};
	bool is_terminal = isatty(STDOUT_FILENO);
	uint64_t speed;

	speed = argument_number(argc, argv, 1, 4096);
	must(hwt_create(&timer, &options));
	if (is_terminal)
		printf("\033[2J");
	while (is_equal && (is_terminal || tick <= 400)) {
		turn();
		if (!is_terminal)
			continue;
		draw(true);
		usleep((useconds_t)(1000000 / (speed ? speed : 1)));
	}
	if (!is_terminal)
		draw(false);
	must(hwt_stop(timer, NULL));
	must(hwt_destroy(timer));
	if (!is_equal)
		fputs("wheel: the library counts otherwise\n", stderr);
	return is_equal ? 0 : 1;
}
