/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many cache lines move between cores for one operation, on 2 to 64 cores?
 *
 *   make transfers [TRANSFERS="--lines 'cancel elsewhere'"]
 *
 * simulator.h says how that is counted. The timer is a manual one, whose clock
 * stands still but where something is to expire, so that the cores meet in its
 * queue and its records. A manual timer has no clock at hand: a delay takes the
 * slow path, a deadline that is given the fast one. The latter is counted with
 * records that have an entry in the wheel, as most have after a turn. The
 * library runs with C11's atomics. Each core warms
 * up, then each access of all cores takes turns. Counted are the accesses of
 * the library alone: not those of this file, with which cores hand over a
 * handle, nor the C library's. Of what expires, either one timeout of each core
 * is due on a tick, which is the worst case since each then pays for what a
 * turn costs, or 32. Pairs and touches are counted as well where that is not
 * the best case: with max_pending, more at once than a thread keeps records,
 * while the wheel is turned, beside threads that come and go, and where another
 * core still has the record's last handle. With a name, those subjects
 * are counted whose name has that text; --lines tells for 8 cores alone which
 * fields' lines moved, and how often for each operation. --seed=7 lets a random
 * core go on after each access, instead of the next one; --line-bytes=128 is
 * for processors whose lines are that long, or which fetch two at once.
 *
 * Then it is calculated what that would take where a transfer takes 60 to 120
 * ns: what an operation takes on one core, and its transfers, one after the
 * other. Together, all cores are not faster than the transfers which cannot
 * overlap: those of one line, of one core, or under the lock, where what it
 * takes on one core is added if the lock or the worker has all of it.
 *
 * Status 1: a control does not have its number, or a bound is not kept: 0 for
 * a pair and a touch, and some more than what was counted for the others. Of
 * those that are there for a figure alone, and with --seed and --line-bytes,
 * nothing is judged.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/timer.h"
#include "lines.h"
#include "simulator.h"
#include "subjects.h"

#define TICK HWT_MS(100)
#define FAR HWT_SEC(60)

static struct hwt *timer;
static struct hwt_mailbox *mailbox[CORES_MAX];
static uint64_t clock_ns = HWT_SEC(1);
static unsigned cores;
/* A core's handle is written by the library: in a line of its own, also of two
 * times the usual size. */
static struct {
	_Alignas(128) hwt_timeout timeout;
} mine[CORES_MAX];
/* Handles that a core has handed to another, and what that has cancelled. */
static unsigned made[CORES_MAX], taken[CORES_MAX];
static unsigned scheduled, started, turns;
/* Calls of a core, and what it has done in a row of cores. */
static unsigned called[CORES_MAX], done[CORES_MAX];
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

/* Of a timer with max_pending. */
static void
pair_limited(unsigned core)
{
	pair(core);
}

#define MANY 1024u
static struct {
	_Alignas(128) hwt_timeout timeout[MANY];
} many[CORES_MAX];

static void
pairs_at_once(unsigned core)
{
	hwt_timeout *timeout = many[core].timeout;
	unsigned i;

	for (i = 0; i < each; i++)
		must(hwt_new_timeout(timer, &timeout[i], task, NULL, FAR) == 0,
		    "schedule");
	for (i = 0; i < each; i++)
		must(hwt_cancel(timer, timeout[i]) == 0, "cancel");
}

/* Until a core's cache of records is full, so that a pair uses its last slot.
 * What is left stays pending. */
static void
fill_cache(unsigned core)
{
	const struct cache *cache = cache_at_hand(timer);
	hwt_timeout *timeout = many[core].timeout;
	unsigned i;

	for (i = 0; i < 2 * CACHE_SLOTS; i++)
		must(hwt_new_timeout(timer, &timeout[i], task, NULL, FAR) == 0,
		    "schedule");
	while (cache->count < CACHE_SLOTS)
		must(hwt_cancel(timer, timeout[--i]) == 0, "cancel");
}

/* The last core is one thread after the other, each with one pair. */
static void
pair_beside_new_threads(unsigned core)
{
	struct thread_slot *slot = &thread_state.slot[0];

	pair(core);
	must(slot->timer == timer, "the timer used last");
	if (core == cores - 1) {
		cache_release(timer, slot->cache);
		memset(slot, 0, sizeof(*slot));
	} else if (slot->cache->count < CACHE_SLOTS) {
		fill_cache(core);
	}
}

static void
touch(unsigned core)
{
	must(hwt_touch(timer, NULL, &mine[core].timeout, task, NULL, FAR) == 0,
	    "touch");
}

static void
schedule_at(unsigned core)
{
	must(hwt_new_timeout_at(timer, NULL, &mine[core].timeout, task, NULL,
		 clock_ns + FAR) == 0,
	    "schedule");
}

/* The first time, each core schedules, and core 0 places it in the wheel. */
static void
place_once(unsigned core)
{
	const struct record *record;
	uint64_t wait_ns;

	if (mine[core].timeout.id != 0)
		return;
	schedule_at(core);
	cores_meet();
	if (core == 0)
		must(hwt_next_wakeup(timer, &wait_ns) == 0, "next wake-up");
	cores_meet();
	record = record_find(&timer->store, mine[core].timeout.id);
	must((pair_word(&record->pair) & FLAG_HAS_ENTRY) != 0, "an entry");
	must(hwt_cancel(timer, mine[core].timeout) == 0, "cancel");
}

static void
pair_placed(unsigned core)
{
	place_once(core);
	schedule_at(core);
	must(hwt_cancel(timer, mine[core].timeout) == 0, "cancel");
}

static void
touch_placed(unsigned core)
{
	if (mine[core].timeout.id == 0) {
		place_once(core);
		schedule_at(core);
	}
	must(hwt_reschedule_at(
		 timer, mine[core].timeout, clock_ns + FAR + scheduled++) == 0,
	    "reschedule");
}

/* Nothing turns the wheel: delays of 1 to 600 s, shorter ones than before and
 * longer ones. */
static void
pair_any_delay(unsigned core)
{
	uint64_t delay_ns = HWT_SEC(1 + called[core]++ * 7919 % 600);

	must(hwt_new_timeout(
		 timer, &mine[core].timeout, task, NULL, delay_ns) == 0 &&
		hwt_cancel(timer, mine[core].timeout) == 0,
	    "pair");
}

/* Of a timer with a worker of its own, which sleeps. */
static void
pair_with_worker(unsigned core)
{
	pair(core);
}

/* The first call of each core, and the second one. */
static void
pair_first(unsigned core)
{
	pair(core);
}

static void
pair_second(unsigned core)
{
	pair(core);
}

/* Each core is one thread after the other. */
static void
pair_of_a_new_thread(unsigned core)
{
	struct thread_slot *slot = &thread_state.slot[0];

	pair(core);
	cache_release(timer, slot->cache);
	memset(slot, 0, sizeof(*slot));
}

/* All cores put off one timeout. */
static void
touch_one(unsigned core)
{
	if (made[0] == 0) {
		if (core == 0) {
			schedule_at(0);
			made[0] = 1;
		}
		core_await(&made[0], 1);
	}
	must(hwt_reschedule_at(
		 timer, mine[0].timeout, clock_ns + FAR + ++scheduled) >= 0,
	    "reschedule");
}

/* 60 and 30 s in turn: each other one is pulled in. */
static void
touch_pulled_in(unsigned core)
{
	must(hwt_touch(timer, NULL, &mine[core].timeout, task, NULL,
		 called[core]++ % 2 ? FAR / 2 : FAR) == 0,
	    "touch");
}

/* A core schedules, the next one puts off, and the one after that cancels. */
static void
passed_on(unsigned core)
{
	unsigned left = (core + cores - 1) % cores;
	unsigned before = (left + cores - 1) % cores;
	unsigned right = (core + 1) % cores;
	unsigned round = 3 * called[core]++;

	schedule_at(core);
	done[core]++;
	core_await(&done[left], round + 1);
	must(hwt_reschedule_at(
		 timer, mine[left].timeout, clock_ns + FAR + ++scheduled) == 0,
	    "reschedule");
	done[core]++;
	core_await(&done[left], round + 2);
	must(hwt_cancel(timer, mine[before].timeout) == 0, "cancel");
	done[core]++;
	core_await(&done[(right + 1) % cores], round + 3);
}

/* The last core reads the figures once for 64 pairs of each other core. */
static void
pairs_beside_stats(unsigned core)
{
	struct hwt_stats stats;
	unsigned i;

	if (core == cores - 1) {
		core_stand_by();
		core_await(&scheduled, (turns + 1) * each * (cores - 1));
		must(hwt_read_stats(timer, &stats) == 0, "stats");
		turns++;
		return;
	}
	for (i = 0; i < each; i++) {
		pair(core);
		scheduled++;
	}
}

/* Even cores schedule what the next odd one cancels. */
static void
elsewhere(unsigned core, void (*schedule)(unsigned core),
    void (*cancel)(unsigned core))
{
	unsigned pair = core / 2;

	if (core % 2 == 0) {
		core_await(&taken[pair], made[pair]);
		schedule(core);
		made[pair]++;
	} else {
		core_await(&made[pair], taken[pair] + 1);
		cancel(core - 1);
		taken[pair]++;
	}
}

static void
schedule_one(unsigned core)
{
	must(hwt_new_timeout(timer, &mine[core].timeout, task, NULL, FAR) == 0,
	    "schedule");
}

static void
cancel_one(unsigned core)
{
	must(hwt_cancel(timer, mine[core].timeout) == 0, "cancel");
}

static void
cancel_stale(unsigned core)
{
	must(hwt_cancel(timer, mine[core].timeout) == -ENOENT, "stale");
}

static void
touch_stale(unsigned core)
{
	hwt_timeout timeout = mine[core].timeout;

	must(hwt_touch(timer, NULL, &timeout, task, NULL, FAR) == 0 &&
		hwt_cancel(timer, timeout) == 0,
	    "stale");
}

static void
stale_cancel(unsigned core)
{
	elsewhere(core, pair, cancel_stale);
}

static void
stale_touch(unsigned core)
{
	elsewhere(core, pair, touch_stale);
}

static void
hwt_elsewhere(unsigned core)
{
	elsewhere(core, schedule_one, cancel_one);
}

static void
mutex_wheel_elsewhere(unsigned core)
{
	elsewhere(core, mutex_wheel_schedule_one, mutex_wheel_cancel_one);
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

/* Of each core in a tick, while the last one turns the wheel: the timeout made
 * 16 calls ago is cancelled, if it has not expired, and another one made, due
 * in 2 to 9 ticks. */
static void
pair_of_many(unsigned core)
{
	unsigned i = called[core]++ % 64;
	hwt_timeout *timeout = &many[core].timeout[i % 16];
	int error = hwt_cancel(timer, *timeout);

	must(error == 0 || error == -ENOENT || error == -EINPROGRESS, "cancel");
	must(hwt_new_timeout(
		 timer, timeout, task, NULL, (2 + i * 7 / 3 % 8) * TICK) == 0,
	    "schedule");
	scheduled++;
}

static void
pairs_meanwhile(unsigned core)
{
	unsigned i;

	if (core == cores - 1)
		turn(each * (cores - 1));
	else
		for (i = 0; i < each; i++)
			pair_of_many(core);
}

/* The same with 16 idle limits of each core, of 4 ticks. */
static void
touches_meanwhile(unsigned core)
{
	unsigned i;

	if (core == cores - 1) {
		turn(each * (cores - 1));
		return;
	}
	for (i = 0; i < each; i++) {
		must(hwt_touch(timer, NULL,
			 &many[core].timeout[called[core]++ % 16], task, NULL,
			 4 * TICK) == 0,
		    "touch");
		scheduled++;
	}
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

/* Each core has so many that expire on each tick, in its own loop. */
static void
expire_again(unsigned core)
{
	unsigned end = all_of(cores - 1);
	unsigned turned = turns;
	unsigned i;

	if (core == cores - 1) {
		turn(cores - 1);
	} else {
		for (i = 0; called[core] == 0 && i < each; i++)
			must(hwt_new_periodic(timer,
				 hwt_mailbox_executor(mailbox[core]), NULL,
				 task, NULL, TICK, TICK) == 0,
			    "periodic");
		called[core]++;
		scheduled++;
		core_await(&turns, turned + 1);
		must(hwt_mailbox_run(mailbox[core], 0, NULL) == 0, "run");
	}
	core_await(&started, end);
}

/* Core 0 schedules 32 timeouts for its loop on each tick, which the last core
 * turns. Counted are the others, with so many pairs in a tick. */
static void
pairs_beside_expiries(unsigned core)
{
	const struct hwt_executor *loop = hwt_mailbox_executor(mailbox[0]);
	unsigned i;

	if (core == cores - 1) {
		core_stand_by();
		turn(each * (cores - 2) + 1);
	} else if (core == 0) {
		core_stand_by();
		for (i = 0; i < 32; i++)
			must(hwt_new_timeout_on(
				 timer, loop, NULL, task, NULL, 1) == 0,
			    "new");
		scheduled++;
		core_await(&turns, ++called[0]);
		must(hwt_mailbox_run(mailbox[0], 0, NULL) == 0, "run");
	} else {
		for (i = 0; i < each; i++)
			pair_of_many(core);
		core_await(&turns, called[core] / each);
	}
}

/* Cases. */

struct subject {
	const char *name;
	void (*operation)(unsigned core);
	unsigned per; /* cores that make one operation together */
	unsigned idle; /* cores that make none of their own */
	unsigned each;
	/* Transfers an operation that must come out; -1: any. */
	double least, most;
	/* What it takes on one core, as make perf has measured it: pair, touch
	 * and burst in docs/PERFORMANCE. 0: nothing is calculated. */
	double own_ns;
};

static const struct subject subjects[] = {
    {"a counter for each core", own_counter, 1, 0, 0, 0, 0, 0},
    {"one counter", shared_counter, 1, 0, 0, 0.95, 1, 0},
    {"a Treiber stack: push and pop", stack_pair, 1, 0, 0, 2, -1, 0},
    {"mutex_wheel: a pair", mutex_wheel_pair, 1, 0, 0, 2, -1, 32.4},
    {"mutex_wheel: touch", mutex_wheel_touch, 1, 0, 0, 1, -1, 14.1},
    {"mutex_wheel: cancel elsewhere", mutex_wheel_elsewhere, 2, 0, 0, 2, -1,
	32.4},
    {"hwt: a pair", pair, 1, 0, 0, 0, 0, 16.9},
    {"hwt: a pair, deadline given", pair_placed, 1, 0, 0, 0, 0, 0},
    {"hwt: a pair, max_pending", pair_limited, 1, 0, 0, 2, -1, 0},
    {"hwt: a pair, any delay", pair_any_delay, 1, 0, 0, 0, 0, 0},
    {"hwt: a pair, worker asleep", pair_with_worker, 1, 0, 0, 0, 0, 0},
    {"hwt: a pair, a thread's first", pair_first, 1, 0, 0, 0, -1, 0},
    {"hwt: a pair, a thread's second", pair_second, 1, 0, 0, 0, -1, 0},
    {"hwt: a pair, a thread's only", pair_of_a_new_thread, 1, 0, 0, 0, -1, 0},
    {"hwt: pairs, 64 at once", pairs_at_once, 1, 0, 64, 0, 0, 0},
    {"hwt: pairs, 256 at once", pairs_at_once, 1, 0, 256, 0, 1, 0},
    {"hwt: pairs, 1024 at once", pairs_at_once, 1, 0, 1024, 0, 1, 0},
    {"hwt: pairs, 1 a tick", pairs_meanwhile, 1, 1, 1, 0, -1, 16.9},
    {"hwt: pairs, 1024 a tick", pairs_meanwhile, 1, 1, 1024, 0, 1, 0},
    {"hwt: pairs beside expiries", pairs_beside_expiries, 1, 2, 64, 0, -1, 0},
    {"hwt: pairs beside hwt_read_stats", pairs_beside_stats, 1, 1, 64, 0, -1,
	0},
    {"hwt: pairs, 64 a tick", pairs_meanwhile, 1, 1, 64, 0, 1.5, 16.9},
    {"hwt: a pair beside new threads", pair_beside_new_threads, 1, 1, 0, 0, 0.1,
	0},
    {"hwt: touch", touch, 1, 0, 0, 0, 0, 10.3},
    {"hwt: touch, deadline given", touch_placed, 1, 0, 0, 0, 0, 0},
    {"hwt: touch, pulled in", touch_pulled_in, 1, 0, 0, 0, 0, 0},
    {"hwt: touch of one, by all", touch_one, 1, 0, 0, 0, -1, 0},
    {"hwt: passed on and put off", passed_on, 1, 0, 0, 0, -1, 0},
    {"hwt: touch, 64 a tick", touches_meanwhile, 1, 1, 64, 0, 0.5, 10.3},
    {"hwt: stale cancel elsewhere", stale_cancel, 2, 0, 0, 0, 2.2, 0},
    {"hwt: stale touch elsewhere", stale_touch, 2, 0, 0, 0, 2.2, 0},
    {"hwt: cancel elsewhere", hwt_elsewhere, 2, 0, 0, 0, 2.5, 16.9},
    {"hwt: expiry", expire, 1, 1, 1, -1, -1, 32.1},
    {"hwt: expiry, 32 a tick", expire, 1, 1, 32, 0, 4.2, 32.1},
    {"hwt: one mailbox", expire_in_mailbox, 1, 2, 1, -1, -1, 32.1},
    {"hwt: one mailbox, 32 a tick", expire_in_mailbox, 1, 2, 32, 0, 5.2, 32.1},
    {"hwt: a mailbox each", expire_in_loops, 1, 1, 1, -1, -1, 32.1},
    {"hwt: a mailbox each, 32 a tick", expire_in_loops, 1, 1, 32, 0, 2.6, 32.1},
    {"hwt: periodic", expire_again, 1, 1, 1, 0, -1, 0},
    {"hwt: periodic, 32 a tick", expire_again, 1, 1, 32, 0, -1, 0},
};
static const struct subject *const subjects_end =
    subjects + sizeof(subjects) / sizeof(subjects[0]);

static const struct subject *subject;

/* Calls of each core before it is measured: enough for records to come back to
 * the core that had them first. */
static unsigned
warm(void)
{
	if (subject->operation == pair_first)
		return 0;
	if (subject->operation == pair_second)
		return 1;
	return each != 0 ? 8 + 64 / each : 600;
}

/* Calls of each core that are measured, fewer where there are many; but so many
 * that each refills its cache of records, which fetches a page of them. */
static unsigned
calls(void)
{
	if (subject->operation == pair_first ||
	    subject->operation == pair_second)
		return 1;
	if (each > 1)
		return 2 + 16 / cores;
	if (each == 1)
		return 64;
	return subject->per == 2 ? 128 : 4 + 128 / cores;
}

static void
body(unsigned core)
{
	unsigned i;

	for (i = 0; i < warm(); i++) {
		subject->operation(core);
		core_pass();
	}
	cores_meet();
	core_measure(true);
	for (i = 0; i < calls(); i++)
		subject->operation(core);
	core_measure(false);
	cores_meet();
}

static void
open_timer(void)
{
	const struct hwt_clock clock = {.now_ns = read_clock};
	bool works = subject->operation == pair_with_worker;
	const struct hwt_options options = {.flags = works ? 0 : HWT_MANUAL,
	    .clock = works ? NULL : &clock,
	    .tick_ns = works ? HWT_SEC(10) : TICK,
	    .max_pending = subject->operation == pair_limited ? 1000 : 0};
	unsigned i;

	for (i = 0; i < cores; i++)
		must(hwt_mailbox_create(&mailbox[i]) == 0, "mailbox");
	must(hwt_create(&timer, &options) == 0, "create");
	memset(mine, 0, sizeof(mine));
	memset(many, 0, sizeof(many));
	memset(made, 0, sizeof(made));
	memset(taken, 0, sizeof(taken));
	memset(called, 0, sizeof(called));
	memset(done, 0, sizeof(done));
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

static unsigned
operations(void)
{
	return (cores - subject->idle) / subject->per * calls() *
	    (each != 0 ? each : 1);
}

struct count {
	double transfers, row; /* of an operation */
};
static struct count counts[64][7]; /* by subject, and by cores: 2^i */

static void
count_with(unsigned power)
{
	struct count *count = &counts[subject - subjects][power];

	cores = 1u << power;
	open_timer();
	cores_run(cores, body);
	count->transfers = (double)transfers_counted() / operations();
	count->row = (double)transfers_in_a_row() / operations();
}

static bool
is_kept(double result)
{
	return (subject->least < 0 || result >= subject->least) &&
	    (subject->most < 0 || result <= subject->most);
}

/* From 2 cores on, or with 8 alone where lines are told; false: a bound is not
 * kept. */
static bool
count_subject(bool lines)
{
	unsigned least = subject->per + subject->idle;
	bool kept = true;
	unsigned power;
	double result;

	printf("%-34s", subject->name);
	for (power = lines ? 3 : 1; power <= (lines ? 3 : 6); power++) {
		if (1u << power < least) {
			printf("%7s", "-");
			continue;
		}
		count_with(power);
		result = counts[subject - subjects][power].transfers;
		kept = kept && is_kept(result);
		printf("%7.2f", result);
		fflush(stdout);
		if (lines && result > 0) {
			printf("\n");
			lines_print(timer, mailbox, cores, operations());
		}
		close_timer();
	}
	printf("\n");
	return kept;
}

/* What an operation takes with so many ns a transfer; and millions a second,
 * of all cores. */
static double
time_of(const struct subject *of, unsigned power, double transfer_ns)
{
	return of->own_ns +
	    counts[of - subjects][power].transfers * transfer_ns;
}

/* What takes time of its own under the lock, or on the worker. */
static bool
runs_in_a_row(const struct subject *of)
{
	return strncmp(of->name, "mutex_wheel", 11) == 0 ||
	    of->operation == expire || of->operation == expire_in_mailbox ||
	    of->operation == expire_in_loops;
}

static double
rate_of(const struct subject *of, unsigned power, double transfer_ns)
{
	double row_ns = counts[of - subjects][power].row * transfer_ns +
	    (runs_in_a_row(of) ? of->own_ns : 0);
	double each_ns = time_of(of, power, transfer_ns) /
	    (((1u << power) - of->idle) / of->per);

	return 1000 / (row_ns > each_ns ? row_ns : each_ns);
}

static void
print_calculated(const char *what, int digits,
    double (*value)(const struct subject *of, unsigned power, double ns))
{
	const struct subject *of;
	double quick, slow;
	char range[32];
	unsigned power;

	printf("\n%s\n%-30s", what, "cores");
	for (power = 0; power <= 6; power++)
		printf("%12u", 1u << power);
	printf("\n");
	for (of = subjects; of < subjects_end; of++) {
		if (of->own_ns <= 0)
			continue;
		printf("%-30s", of->name);
		for (power = 0; power <= 6; power++) {
			quick = value(of, power, 60);
			slow = value(of, power, 120);
			if (quick == slow)
				snprintf(range, sizeof(range), "%.0f", quick);
			else
				snprintf(range, sizeof(range), "%.*f-%.*f",
				    digits, quick < slow ? quick : slow, digits,
				    quick < slow ? slow : quick);
			printf("%12s",
			    1u << power < of->per + of->idle ? "-" : range);
		}
		printf("\n");
	}
}

int
main(int argc, char **argv)
{
	unsigned line_bytes = 64, seed = 0, count;
	bool lines = false, kept = true;
	const char *name;

	for (; argc > 1 && strncmp(argv[1], "--", 2) == 0; argv++, argc--)
		if (strcmp(argv[1], "--lines") == 0)
			lines = true;
		else
			must(sscanf(argv[1], "--line-bytes=%u", &line_bytes) ==
				    1 ||
				sscanf(argv[1], "--seed=%u", &seed) == 1,
			    argv[1]);
	must(line_bytes == 64 || line_bytes == 128, "lines of 64 or 128 bytes");
	cores_option(line_bytes, seed);
	name = argc > 1 ? argv[1] : "";
	mutex_wheel_open();
	printf("cache lines moved between cores for each operation\n%-34s",
	    "cores");
	for (count = lines ? 8 : 2; count <= (lines ? 8 : CORES_MAX);
	     count *= 2)
		printf("%7u", count);
	printf("\n");
	for (subject = subjects; subject < subjects_end; subject++)
		if (strstr(subject->name, name) != NULL)
			kept = (count_subject(lines) || seed != 0 ||
				   line_bytes != 64) &&
			    kept;
	if (lines || *name != '\0')
		return kept ? 0 : 1;
	print_calculated("calculated, not measured: ns an operation takes of "
			 "CPU, a transfer taking 60 to 120",
	    0, time_of);
	print_calculated("calculated, not measured: millions of operations a "
			 "second, of all cores",
	    1, rate_of);
	return kept ? 0 : 1;
}
