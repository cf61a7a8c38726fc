/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many cache lines move between cores for one operation, on 2 to 64 cores?
 *
 *   make transfers [TRANSFERS='--lines' or a name]
 *
 * simulator.h says how that is counted. The timer is a manual one, whose clock
 * stands still but where something is to expire, so that the cores meet in its
 * queue and its records. The library runs with C11's atomics. Each core warms
 * up, then each access of all cores takes turns. Counted are the accesses of
 * the library alone: not those of this file, with which cores hand over a
 * handle, nor the C library's. Of what expires, either one timeout of each core
 * is due on a tick, which is the worst case since each then pays for what a
 * turn costs, or 32. --lines tells for 8 cores which fields' lines moved, and
 * how often for each operation; of the subjects, those whose name has the text
 * are counted.
 *
 * Status 1: a control does not have its number, or a bound is not kept: 0 for
 * a pair and a touch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/timer.h"
#include "simulator.h"
#include "subjects.h"

/* Calls of each core before it is measured: enough for records to come back to
 * the core that had them first. */
#define WARM (each != 0 ? 8 + 64 / each : 600)
/* Calls of each core that are measured, fewer where there are many; but so many
 * that each refills its cache of records, which fetches a page of them. */
#define TURNS                                        \
	(each > 1                   ? 2 + 16 / cores \
		: each == 1         ? 64             \
		: subject->per == 2 ? 128            \
				    : 4 + 128 / cores)
#define TICK HWT_MS(100)
#define FAR HWT_SEC(60)

static struct hwt *timer;
static struct hwt_mailbox *mailbox[CORES_MAX];
static uint64_t clock_ns = HWT_SEC(1);
static unsigned cores;
/* A core's handle is written by the library: in a line of its own. */
static struct {
	_Alignas(64) hwt_timeout timeout;
} mine[CORES_MAX];
/* Handles that a core has handed to another, and what that has cancelled. */
static unsigned made[CORES_MAX], taken[CORES_MAX];
static unsigned scheduled, started, turns;
/* Timeouts of each core that expire on one tick; 0: none do. */
static unsigned each;

static void
must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "transfers: %s\n", what);
	exit(2);
}

static uint64_t
read_clock(void *ctx)
{
	(void)ctx;
	return clock_ns;
}

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	started++;
}

/* Operations of hwt. */

static void
pair(unsigned core)
{
	must(
	    hwt_new_timeout(timer, &mine[core].timeout, task, NULL, FAR) == 0 &&
		hwt_cancel(timer, mine[core].timeout) == 0,
	    "pair");
}

static void
touch(unsigned core)
{
	must(hwt_touch(timer, NULL, &mine[core].timeout, task, NULL, FAR) == 0,
	    "touch");
}

/* Even cores schedule what the next odd one cancels. */
static void
cancel_elsewhere(unsigned core)
{
	unsigned pair = core / 2;

	if (core % 2 == 0) {
		core_await(&taken[pair], made[pair]);
		must(hwt_new_timeout(
			 timer, &mine[core].timeout, task, NULL, FAR) == 0,
		    "schedule");
		made[pair]++;
	} else {
		core_await(&made[pair], taken[pair] + 1);
		must(hwt_cancel(timer, mine[core - 1].timeout) == 0, "cancel");
		taken[pair]++;
	}
}

static void
schedule_each(const struct hwt_executor *executor)
{
	unsigned i;

	for (i = 0; i < each; i++)
		must(hwt_new_timeout_on(timer, executor, NULL, task, NULL, 1) ==
			0,
		    "new");
	scheduled++;
}

/* The last core turns the wheel when all others have scheduled. */
static void
turn(unsigned schedulers)
{
	core_await(&scheduled, (turns + 1) * schedulers);
	clock_ns += TICK;
	must(hwt_advance(timer, NULL) == 0, "advance");
	turns++;
}

/* What is started when all timeouts of this round are. */
static unsigned
all_of(unsigned schedulers)
{
	unsigned round = schedulers * each;

	return (started / round + 1) * round;
}

static void
expire(unsigned core)
{
	unsigned end = all_of(cores - 1);

	if (core == cores - 1)
		turn(cores - 1);
	else
		schedule_each(NULL);
	core_await(&started, end);
}

/* The same; core 0 runs the mailbox of all, when the wheel was turned: its
 * descriptor is readable then. */
static void
expire_in_mailbox(unsigned core)
{
	unsigned end = all_of(cores - 2);
	unsigned turned = turns;

	if (core == cores - 1) {
		turn(cores - 2);
	} else if (core > 0) {
		schedule_each(hwt_mailbox_executor(mailbox[0]));
	} else {
		core_await(&turns, turned + 1);
		must(hwt_mailbox_run(mailbox[0], 0, NULL) == 0, "run");
	}
	core_await(&started, end);
}

/* The same; each core but the last is a loop with a mailbox of its own. */
static void
expire_in_loops(unsigned core)
{
	unsigned end = all_of(cores - 1);
	unsigned turned = turns;

	if (core == cores - 1) {
		turn(cores - 1);
	} else {
		schedule_each(hwt_mailbox_executor(mailbox[core]));
		core_await(&turns, turned + 1);
		must(hwt_mailbox_run(mailbox[core], 0, NULL) == 0, "run");
	}
	core_await(&started, end);
}

/* Cases. */

struct subject {
	const char *name;
	void (*operation)(unsigned core);
	unsigned per; /* cores that make one operation together */
	unsigned idle; /* cores that make none of their own */
	double least,
	    most; /* transfers an operation that must come out; -1: any */
	unsigned each;
};

static const struct subject subjects[] = {
    {"a counter for each core", own_counter, 1, 0, 0, 0, 0},
    {"one counter", shared_counter, 1, 0, 0.98, 1, 0},
    {"a Treiber stack: push and pop", stack_pair, 1, 0, 2, -1, 0},
    {"mutex_wheel: a pair", mutex_wheel_pair, 1, 0, 2, -1, 0},
    {"hwt: a pair", pair, 1, 0, 0, 0, 0},
    {"hwt: touch", touch, 1, 0, 0, 0, 0},
    {"hwt: schedule, cancel elsewhere", cancel_elsewhere, 2, 0, -1, -1, 0},
    {"hwt: expiry", expire, 1, 1, -1, -1, 1},
    {"hwt: expiry, 32 a tick", expire, 1, 1, -1, -1, 32},
    {"hwt: one mailbox", expire_in_mailbox, 1, 2, -1, -1, 1},
    {"hwt: one mailbox, 32 a tick", expire_in_mailbox, 1, 2, -1, -1, 32},
    {"hwt: a mailbox each", expire_in_loops, 1, 1, -1, -1, 1},
    {"hwt: a mailbox each, 32 a tick", expire_in_loops, 1, 1, -1, -1, 32},
};

static const struct subject *subject;

static void
body(unsigned core)
{
	unsigned i;

	for (i = 0; i < WARM; i++) {
		subject->operation(core);
		core_pass();
	}
	cores_meet();
	core_measure(true);
	for (i = 0; i < TURNS; i++)
		subject->operation(core);
	core_measure(false);
	cores_meet();
}

static void
open_timer(void)
{
	const struct hwt_clock clock = {.now_ns = read_clock};
	const struct hwt_options options = {
	    .flags = HWT_MANUAL, .clock = &clock, .tick_ns = TICK};
	unsigned i;

	for (i = 0; i < cores; i++)
		must(hwt_mailbox_create(&mailbox[i]) == 0, "mailbox");
	must(hwt_create(&timer, &options) == 0, "create");
	memset(mine, 0, sizeof(mine));
	memset(made, 0, sizeof(made));
	memset(taken, 0, sizeof(taken));
	each = subject->each;
	scheduled = 0;
	started = 0;
	turns = 0;
}

static void
close_timer(void)
{
	unsigned i;

	must(hwt_stop(timer, NULL) == 0 && hwt_destroy(timer) == 0, "destroy");
	for (i = 0; i < cores; i++)
		must(hwt_mailbox_destroy(mailbox[i]) == 0, "mailbox");
}

/* Names of lines: of a word of a structure, by the last field that begins at or
 * before it; of arrays, one name for all elements. */
struct field {
	size_t offset;
	const char *name;
};

#define FIELD(type, field)                    \
	{                                     \
		offsetof(type, field), #field \
	}
static const struct field of_timer[] = {
    {0, "what hwt_create sets"},
    FIELD(struct hwt, wake_before),
    FIELD(struct hwt, wake_sequence),
    FIELD(struct hwt, permits),
    FIELD(struct hwt, dispatched_count),
    FIELD(struct hwt, dispatching_to),
    FIELD(struct hwt, batches),
    FIELD(struct hwt, queue),
    FIELD(struct hwt, store.slabs),
    FIELD(struct hwt, store.caches_used),
    FIELD(struct hwt, store.shared_cache),
    FIELD(struct hwt, store.free_pages),
    FIELD(struct hwt, store.trim_refused),
    FIELD(struct hwt, wheel),
    FIELD(struct hwt, worker),
    FIELD(struct hwt, trim),
    FIELD(struct hwt, life),
    {sizeof(struct hwt), NULL},
};
static const struct field of_slab[] = {
    FIELD(struct slab, timer),
    FIELD(struct slab, committed),
    FIELD(struct slab, free_summary),
    FIELD(struct slab, free_bits),
    FIELD(struct slab, waiting),
    FIELD(struct slab, queued),
    {sizeof(struct slab), NULL},
};
static const struct field of_record[] = {
    FIELD(struct record, pair),
    FIELD(struct record, executor),
    FIELD(struct record, task),
    FIELD(struct record, arg),
    FIELD(struct record, period_ns),
    FIELD(struct record, link),
    FIELD(struct record, entry_at),
    {sizeof(struct record), NULL},
};

static const char *
field_at(const struct field *field, size_t offset)
{
	while (field[1].name != NULL && field[1].offset <= offset)
		field++;
	return field->name;
}

static bool
is_in(uintptr_t address, const volatile void *begin, size_t bytes)
{
	return address - (uintptr_t)begin < bytes;
}

static void
name_of(uintptr_t address, char *name, size_t size)
{
	const struct record_store *store = &timer->store;
	const struct slab *slab;
	uint32_t i;

	snprintf(name, size, "elsewhere");
	if (is_in(address, timer, sizeof(*timer)))
		snprintf(name, size, "hwt.%s",
		    field_at(of_timer, address - (uintptr_t)timer));
	else if (is_in(
		     address, store->caches, CACHES_MAX * sizeof(struct cache)))
		snprintf(name, size, "cache");
	else if (is_in(address, store->slab_urgency, SLABS_MAX * sizeof(a64_t)))
		snprintf(name, size, "store.slab_urgency[]");
	else if (is_in(address, store->free_top, TOP_WORDS * sizeof(a64_t)))
		snprintf(name, size, "store.free_top[]");
	for (i = 0; i < cores; i++)
		if (is_in(address, mailbox[i], 192))
			snprintf(name, size, "mailbox + %zu",
			    (size_t)(address - (uintptr_t)mailbox[i]));
	for (i = 0; i < store_limit(store); i++) {
		slab = slab_at(store, i);
		address -= (uintptr_t)slab;
		if (address < HEADER_PAGES * PAGE_BYTES)
			snprintf(
			    name, size, "slab.%s", field_at(of_slab, address));
		else if (address < SLAB_BYTES)
			snprintf(name, size, "record.%s",
			    field_at(
				of_record, address % sizeof(struct record)));
		address += (uintptr_t)slab;
	}
}

static struct moved {
	char name[64];
	uint64_t transfers;
} moved[64];

static void
add_moved(uintptr_t address, uint64_t transfers)
{
	struct moved *entry = moved;
	char name[64];

	name_of(address, name, sizeof(name));
	while (entry->transfers != 0 && strcmp(entry->name, name) != 0)
		entry++;
	must(entry < moved + 63, "too many names");
	memcpy(entry->name, name, sizeof(name));
	entry->transfers += transfers;
}

static int
by_transfers(const void *a, const void *b)
{
	const struct moved *x = a, *y = b;

	return (x->transfers < y->transfers) - (x->transfers > y->transfers);
}

static unsigned
operations(void)
{
	return (cores - subject->idle) / subject->per * TURNS *
	    (each != 0 ? each : 1);
}

static void
print_lines(void)
{
	unsigned i;

	memset(moved, 0, sizeof(moved));
	transfers_each(add_moved);
	qsort(moved, 64, sizeof(moved[0]), by_transfers);
	for (i = 0; moved[i].transfers > 0; i++)
		printf("      %6.2f  %s\n",
		    (double)moved[i].transfers / operations(), moved[i].name);
}

/* Transfers an operation. */
static double
count_with(unsigned count)
{
	cores = count;
	open_timer();
	cores_run(cores, body);
	return (double)transfers_counted() / operations();
}

int
main(int argc, char **argv)
{
	bool lines = argc > 1 && strcmp(argv[1], "--lines") == 0;
	const char *name = argc > 1 && !lines ? argv[1] : "";
	bool kept = true;
	unsigned count;
	double result;

	mutex_wheel_open();
	printf("cache lines moved between cores for each operation\n%-34s",
	    "cores");
	for (count = 4; count <= CORES_MAX; count *= 2)
		printf("%7u", count);
	printf("\n");
	for (subject = subjects;
	     subject < subjects + sizeof(subjects) / sizeof(subjects[0]);
	     subject++) {
		if (strstr(subject->name, name) == NULL)
			continue;
		printf("%-34s", subject->name);
		for (count = 4; count <= CORES_MAX; count *= 2) {
			result = count_with(count);
			printf("%7.2f", result);
			fflush(stdout);
			kept = kept &&
			    (subject->least < 0 || result >= subject->least) &&
			    (subject->most < 0 || result <= subject->most);
			if (lines && result > 0 && count == 8) {
				printf("\n");
				print_lines();
			}
			close_timer();
		}
		printf("\n");
	}
	return kept ? 0 : 1;
}
