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
 * handle, nor the C library's. --lines tells which lines moved most; of the
 * subjects, those whose name has the text are counted.
 *
 * Status 1: a control does not have its number, or a bound is not kept: 0 for a
 * pair and a touch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/timer.h"
#include "simulator.h"
#include "subjects.h"

#define WARM 16u
/* Of each core, fewer where there are many. */
#define TURNS (4 + 128 / cores)
#define TICK HWT_MS(100)
#define FAR HWT_SEC(60)

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static uint64_t clock_ns = HWT_SEC(1);
static unsigned cores;
/* A core's handle is written by the library: in a line of its own. */
static struct {
	_Alignas(64) hwt_timeout timeout;
} mine[CORES_MAX];
static hwt_timeout slot[CORES_MAX];
static unsigned scheduled, started;

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
	hwt_timeout *handle = &slot[core / 2];

	while ((handle->id == 0) != (core % 2 == 0))
		core_pass();
	if (core % 2 == 0) {
		must(hwt_new_timeout(
			 timer, &mine[core].timeout, task, NULL, FAR) == 0,
		    "schedule");
		*handle = mine[core].timeout;
	} else {
		must(hwt_cancel(timer, *handle) == 0, "cancel");
		handle->id = 0;
	}
}

/* The last core turns the wheel when all others have scheduled. */
static void
expire(unsigned core)
{
	unsigned round = started / (cores - 1);

	if (core < cores - 1) {
		must(hwt_new_timeout(timer, NULL, task, NULL, 1) == 0, "new");
		scheduled++;
		while (started / (cores - 1) == round)
			core_pass();
		return;
	}
	while (scheduled < cores - 1)
		core_pass();
	scheduled = 0;
	clock_ns += TICK;
	must(hwt_advance(timer, NULL) == 0, "advance");
	if (mailbox != NULL)
		return;
	must(started / (cores - 1) == round + 1, "expired");
}

/* The same; core 0 runs the mailbox. */
static void
expire_in_mailbox(unsigned core)
{
	unsigned round = started / (cores - 2);

	if (core > 0 && core < cores - 1) {
		must(hwt_new_timeout(timer, NULL, task, NULL, 1) == 0, "new");
		scheduled++;
	} else if (core == cores - 1) {
		while (scheduled < cores - 2)
			core_pass();
		scheduled = 0;
		clock_ns += TICK;
		must(hwt_advance(timer, NULL) == 0, "advance");
	} else {
		while (started / (cores - 2) == round) {
			must(hwt_mailbox_run(mailbox, 0, NULL) == 0, "run");
			core_pass();
		}
	}
	while (started / (cores - 2) == round)
		core_pass();
}

/* Cases. */

struct subject {
	const char *name;
	void (*operation)(unsigned core);
	unsigned per; /* cores that make one operation together */
	unsigned idle; /* cores that make none of their own */
	int least,
	    most; /* transfers an operation that must come out; -1: any */
};

static const struct subject subjects[] = {
    {"a counter for each core", own_counter, 1, 0, 0, 0},
    {"one counter", shared_counter, 1, 0, 1, 1},
    {"a Treiber stack: push and pop", stack_pair, 1, 0, 2, -1},
    {"mutex_wheel: a pair", mutex_wheel_pair, 1, 0, 2, -1},
    {"hwt: a pair", pair, 1, 0, 0, 0},
    {"hwt: touch", touch, 1, 0, 0, 0},
    {"hwt: schedule, cancel elsewhere", cancel_elsewhere, 2, 0, -1, -1},
    {"hwt: expiry", expire, 1, 1, -1, -1},
    {"hwt: expiry in a mailbox", expire_in_mailbox, 1, 2, -1, -1},
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
open_timer(bool with_mailbox)
{
	const struct hwt_clock clock = {.now_ns = read_clock};
	struct hwt_options options = {
	    .flags = HWT_MANUAL, .clock = &clock, .tick_ns = TICK};

	mailbox = NULL;
	if (with_mailbox) {
		must(hwt_mailbox_create(&mailbox) == 0, "mailbox");
		options.executor = hwt_mailbox_executor(mailbox);
	}
	must(hwt_create(&timer, &options) == 0, "create");
	memset(mine, 0, sizeof(mine));
	memset(slot, 0, sizeof(slot));
	scheduled = 0;
	started = 0;
}

static void
close_timer(void)
{
	must(hwt_stop(timer, NULL) == 0 && hwt_destroy(timer) == 0, "destroy");
	must(hwt_mailbox_destroy(mailbox) == 0, "destroy a mailbox");
}

/* Where an address of the timer's lies. */
static void
print_place(uintptr_t address)
{
	uintptr_t begin = (uintptr_t)timer;
	uint32_t i;

	if (address - begin < sizeof(*timer)) {
		printf("struct hwt + %zu", (size_t)(address - begin));
		return;
	}
	for (i = 0; i < store_limit(&timer->store); i++) {
		begin = (uintptr_t)slab_at(&timer->store, i);
		if (begin == 0 || address - begin >= SLAB_BYTES)
			continue;
		if (address - begin < sizeof(struct slab))
			printf("slab %u + %zu", i, (size_t)(address - begin));
		else
			printf("record %zu + %zu",
			    (size_t)(address - begin) / 64,
			    (size_t)(address - begin) % 64);
		return;
	}
	begin = (uintptr_t)timer->store.caches;
	if (address - begin < CACHES_MAX * sizeof(struct cache))
		printf("cache %zu + %zu",
		    (size_t)(address - begin) / sizeof(struct cache),
		    (size_t)(address - begin) % sizeof(struct cache));
	else
		printf("elsewhere, %#zx", (size_t)address);
}

static void
print_lines(void)
{
	struct moved moved[6];
	unsigned count = transfers_most(moved, 6);
	unsigned i;

	for (i = 0; i < count; i++) {
		printf("      %8llu  ", (unsigned long long)moved[i].transfers);
		print_place(moved[i].address);
		printf("\n");
	}
}

/* Transfers an operation. */
static double
count_with(unsigned count)
{
	cores = count;
	open_timer(subject->operation == expire_in_mailbox);
	cores_run(cores, body);
	return (double)transfers_counted() /
	    ((cores - subject->idle) / subject->per * TURNS);
}

int
main(int argc, char **argv)
{
	bool lines = argc > 1 && strcmp(argv[1], "--lines") == 0;
	const char *name = argc > 1 && !lines ? argv[1] : "";
	bool kept = true;
	unsigned count;
	double each;

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
			each = count_with(count);
			printf("%7.2f", each);
			fflush(stdout);
			kept = kept &&
			    (subject->least < 0 || each >= subject->least) &&
			    (subject->most < 0 || each <= subject->most);
			if (lines && each > 0 && count == 8) {
				printf("\n");
				print_lines();
			}
			close_timer();
		}
		printf("\n");
	}
	return kept ? 0 : 1;
}
