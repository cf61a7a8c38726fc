/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of the program wheel, and what it knows of its own timeouts.
 *
 * It sees no more of the library than hwt.h. By the grid of hwt.h a deadline
 * belongs to the first tick boundary at or after it. The bucket is that tick
 * modulo the wheel's length, the round is how often the wheel must turn until
 * then. What was scheduled since the last hwt_advance counts as in the queue.
 *
 * So a picture has timeouts, and not the entries that the library keeps for
 * them: it may take back that of a cancelled timeout later, place a distant one
 * later, and put one that was moved into its new bucket when it comes to the
 * old.
 */
#include "wheel.h"

#include <stdlib.h>
#include <string.h>

#include "common.h"

#define LIVE_MAX 4096
/* Between two calls, so that the calls of a tick do not fill it. */
#define STEP_NS (TICK_NS / (2 * LIVE_MAX + 1))

enum {
	IDLE = 1,
	CONNECTIONS = 2,
	RPC = 4,
	MIXED = 8
};

/* Timeouts of one kind. At a random tick, at most within_ticks after it was
 * scheduled or moved, something may happen to one: so many percent are moved,
 * by another delay of the range, and so many are cancelled. The others come
 * due. */
static const struct kind {
	unsigned loads, per_100_ticks, delay_min_ticks, delay_max_ticks;
	unsigned within_ticks, moved, cancelled;
} kinds[] = {
    /* Keep-alive of connections that say nothing. */
    {IDLE, 40, 100, 280, 1, 0, 0},
    /* The same, moved out by each request. */
    {CONNECTIONS | MIXED, 100, 120, 280, 70, 66, 28},
    /* The header of a request, which nearly always comes. */
    {CONNECTIONS | MIXED, 300, 20, 40, 9, 0, 95},
    /* An answer to a call. */
    {RPC | MIXED, 400, 8, 60, 24, 0, 92},
    /* A retry after a pause, seldom called off. */
    {RPC | MIXED, 60, 4, 140, 100, 0, 10},
};

static const struct {
	const char *name;
	unsigned loads;
} load_names[] = {{"idle", IDLE}, {"connections", CONNECTIONS}, {"rpc", RPC},
    {"mixed", MIXED}};

static struct item {
	enum {
		FREE,
		QUEUED,
		PLACED,
		CANCELLED
	} state;
	hwt_timeout timeout;
	const struct kind *kind;
	/* When it is due, and when something happens to it. */
	uint64_t due_tick, act_tick;
} items[LIVE_MAX];

static struct hwt *timer;
static const char *load;
static unsigned loads;
static uint64_t rate, now_ns, random_state;
/* The next to be begun. */
static uint64_t tick = 1;
static struct hwt_stats own;
static unsigned moved_now, cancelled_now, started_now;
static bool is_equal = true;

static void
fail(const char *what, int error)
{
	fprintf(stderr, "wheel: %s: %s\n", what, strerror(-error));
	exit(1);
}

/* Splitmix64; below n. */
static uint64_t
random_below(uint64_t n)
{
	uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % n;
}

static uint64_t
clock_by_hand(void *ctx)
{
	(void)ctx;
	return now_ns;
}

static void
task(hwt_timeout timeout, void *arg)
{
	struct item *item = arg;

	is_equal &= item->state == PLACED && item->due_tick == tick &&
	    item->timeout.id == timeout.id;
	item->state = FREE;
	own.started++;
	started_now++;
}

/* Gives item a deadline, new or other than before. */
static void
item_set(struct item *item)
{
	const struct kind *kind = item->kind;
	uint64_t range_ticks = kind->delay_max_ticks - kind->delay_min_ticks;
	uint64_t delay_ns = kind->delay_min_ticks * TICK_NS +
	    random_below(range_ticks * TICK_NS);
	int error;

	now_ns += STEP_NS;
	if (item->state == FREE)
		error = hwt_new_timeout(
		    timer, &item->timeout, task, item, delay_ns);
	else
		error = hwt_reschedule(timer, item->timeout, delay_ns);
	if (error != 0)
		fail("a timeout", error);
	item->due_tick = (now_ns + delay_ns + TICK_NS - 1) / TICK_NS;
	item->act_tick = tick + 1 + random_below(kind->within_ticks);
}

static void
item_act(struct item *item)
{
	uint64_t chance = random_below(100);
	int error;

	if (chance < item->kind->moved) {
		item_set(item);
		own.rescheduled++;
		moved_now++;
	} else if (chance < item->kind->moved + item->kind->cancelled) {
		error = hwt_cancel(timer, item->timeout);
		if (error != 0)
			fail("a cancel", error);
		item->state = CANCELLED;
		own.cancelled++;
		cancelled_now++;
	}
}

/* The time until the next tick, in which the load calls the timer. */
static void
load_run(void)
{
	struct item *item = items;
	size_t i;

	for (i = 0; i < LIVE_MAX; i++)
		if ((items[i].state == PLACED || items[i].state == QUEUED) &&
		    items[i].act_tick == tick)
			item_act(&items[i]);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		uint64_t hundredths =
		    kinds[i].per_100_ticks * rate + random_below(10000);

		if ((kinds[i].loads & loads) == 0)
			continue;
		for (; hundredths >= 10000; hundredths -= 10000) {
			while (item < items + LIVE_MAX && item->state != FREE)
				item++;
			if (item == items + LIVE_MAX)
				return;
			item->kind = &kinds[i];
			item_set(item);
			item->state = QUEUED;
			own.scheduled++;
		}
	}
}

/* Begins the tick. */
static void
advance(void)
{
	uint64_t tasks_started;
	size_t i;
	int error;

	for (i = 0; i < LIVE_MAX; i++) {
		if (items[i].state == CANCELLED)
			items[i].state = FREE;
		else if (items[i].state == QUEUED)
			items[i].state = PLACED;
	}
	moved_now = cancelled_now = started_now = 0;
	now_ns = tick * TICK_NS;
	error = hwt_advance(timer, &tasks_started);
	if (error != 0)
		fail("hwt_advance", error);
	is_equal &= tasks_started == started_now;
	tick++;
}

/* Each timeout is shown where its deadline belongs. */
static void
picture_item(struct picture *picture, const struct item *item)
{
	uint64_t bucket = item->due_tick % BUCKETS;
	uint64_t round = (item->due_tick - tick) / BUCKETS;

	own.pending += item->state == QUEUED || item->state == PLACED;
	picture->queued += item->state == QUEUED;
	if (item->state != PLACED && item->state != CANCELLED)
		return;
	if (item->state == CANCELLED)
		picture->bars[bucket][CANCELLED_NOW]++;
	else
		picture->bars[bucket][round < ROUNDS ? round : ROUNDS - 1]++;
	picture->heights[bucket]++;
	if (picture->heights[bucket] > picture->height_max)
		picture->height_max = picture->heights[bucket];
}

static void
picture_take(struct picture *picture)
{
	struct hwt_stats library;
	int error = hwt_read_stats(timer, &library);
	size_t i;

	if (error != 0)
		fail("no statistics", error);
	*picture = (struct picture){.load = load, .rate = rate, .tick = tick};
	picture->moved = moved_now;
	picture->cancelled = cancelled_now;
	picture->started = started_now;
	own.pending = 0;
	for (i = 0; i < LIVE_MAX; i++)
		picture_item(picture, &items[i]);
	is_equal &= own.pending == library.pending &&
	    own.pending == hwt_pending_timeouts(timer) &&
	    own.scheduled == library.scheduled &&
	    own.rescheduled == library.rescheduled &&
	    own.cancelled == library.cancelled &&
	    own.started == library.started;
	picture->own = own;
	picture->library = library;
	picture->is_equal = is_equal;
}

bool
load_open(const char *name, uint64_t percent, uint64_t seed)
{
	const struct hwt_clock clock = {.now_ns = clock_by_hand};
	const struct hwt_options options = {
	    .tick_ns = TICK_NS,
	    .ticks_per_wheel = BUCKETS,
	    .flags = HWT_MANUAL,
	    .clock = &clock,
	};
	size_t i = 0;
	int error;

	while (strcmp(load_names[i].name, name) != 0)
		if (++i == sizeof(load_names) / sizeof(load_names[0]))
			return false;
	load = load_names[i].name;
	loads = load_names[i].loads;
	rate = percent;
	random_state = seed;
	error = hwt_create(&timer, &options);
	if (error != 0)
		fail("no timer", error);
	load_run();
	return true;
}

void
load_turn(uint64_t ticks, struct picture *picture)
{
	for (; ticks > 0; ticks--) {
		advance();
		load_run();
	}
	picture_take(picture);
}

void
load_close(void)
{
	int error = hwt_stop(timer, NULL);

	if (error == 0)
		error = hwt_destroy(timer);
	if (error != 0)
		fail("stop", error);
}
