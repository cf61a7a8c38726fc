/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop against everything that starts things, thousands of times on fresh
 * timers: scheduling, batches, hwt_start, other stops, stops with a time
 * limit. (Netty hangs in 10 of 4000 such races and loses timeouts in 51 of
 * 400.)
 *
 * In each race 1 to 15 racers and the main thread leave a barrier together,
 * each after a random moment, and act on one timer, which the main thread
 * stops. All racers do the same, or each something else.
 * Then each accepted timeout must have ended exactly once, a batch as a whole
 * or not at all, exactly one stop must have got the list, and no task may have
 * started after a stop returned.
 */
#include "stress.h"

enum {
	RACES = 9000,
	RACERS_MAX = 15,
	BATCH_MAX = 64,
	/* Each racer has its own, and so has the main thread. */
	PREFILLED = RACERS_MAX * BATCH_MAX,
	ITEMS = PREFILLED + BATCH_MAX,
	SPIN_MAX = 4000
};

enum mode {
	SCHEDULE,
	BATCH,
	START,
	STOP,
	STOP_WITHIN,
	MIXED,
	MODES
};

struct item {
	bool accepted;
	atomic_uint ends;
};

struct racer {
	unsigned index;
	uint64_t random;
	pthread_t thread;
	/* What this racer's hwt_stop gave. */
	uint64_t listed;
};

static struct {
	struct hwt *timer;
	enum mode mode;
	atomic_bool stopped, blocked, release;
	struct item items[ITEMS];
} race;

static pthread_barrier_t gate;
static struct racer racers[RACERS_MAX];
static unsigned racers_count;
static bool quit;
static atomic_uint_fast64_t accepted_total, started_total;
static uint64_t races_total;

static void
task(hwt_timeout timeout, void *arg)
{
	struct item *item = arg;

	(void)timeout;
	stress_check(!atomic_load(&race.stopped), "a task started after stop");
	atomic_fetch_add(&item->ends, 1);
	atomic_fetch_add(&started_total, 1);
}

/* Holds the worker, so that stops with a time limit run into it. */
static void
blocking_task(hwt_timeout timeout, void *arg)
{
	task(timeout, arg);
	atomic_store(&race.blocked, true);
	while (!atomic_load(&race.release))
		sched_yield();
	stress_check(
	    !atomic_load(&race.stopped), "stop returned while a task ran");
}

static uint64_t
some_delay(uint64_t *random)
{
	switch (random_below(random, 3)) {
	case 0:
		return 0;
	case 1:
		return random_below(random, HWT_US(300));
	default:
		return HWT_SEC(3600);
	}
}

static void
schedule_some(struct racer *racer)
{
	struct item *item = &race.items[racer->index * BATCH_MAX];
	unsigned count = 1 + (unsigned)random_below(&racer->random, 4);
	bool late;
	int error;

	while (count--) {
		late = atomic_load(&race.stopped);
		error = hwt_new_timeout(
		    race.timer, NULL, task, item, some_delay(&racer->random));
		stress_check(error == -ESHUTDOWN || (!error && !late),
		    "hwt_new_timeout: %d, after stop: %d", error, late);
		item->accepted = !error;
		item++;
	}
}

static void
schedule_batch(struct racer *racer)
{
	struct item *items = &race.items[racer->index * BATCH_MAX];
	unsigned count = 1 + (unsigned)random_below(&racer->random, BATCH_MAX);
	struct hwt_spec specs[BATCH_MAX] = {{0}};
	bool late = atomic_load(&race.stopped);
	unsigned i;
	int error;

	for (i = 0; i < count; i++) {
		specs[i].task = task;
		specs[i].arg = &items[i];
		specs[i].delay_ns = some_delay(&racer->random);
	}
	error = hwt_new_timeouts(race.timer, count, specs, NULL);
	stress_check(error == -ESHUTDOWN || (!error && !late),
	    "hwt_new_timeouts: %d, after stop: %d", error, late);
	for (i = 0; i < count; i++)
		items[i].accepted = !error;
}

static void
start(struct racer *racer)
{
	bool late = atomic_load(&race.stopped);
	int error = hwt_start(race.timer);

	stress_check(error == -ESHUTDOWN || (!error && !late),
	    "hwt_start: %d, after stop: %d", error, late);
	if (racer->index)
		schedule_some(racer);
}

static uint64_t
list_walk(struct hwt_unprocessed *unprocessed)
{
	struct hwt_timeout_info info;
	struct item *item;
	uint64_t walked = 0;

	while (hwt_unprocessed_next(unprocessed, &info)) {
		item = info.arg;
		atomic_fetch_add(&item->ends, 1);
		walked++;
	}
	stress_check(walked == unprocessed->count,
	    "%" PRIu64 " unprocessed, count %" PRIu64, walked,
	    unprocessed->count);
	return walked;
}

static uint64_t
stop(void)
{
	struct hwt_unprocessed unprocessed;
	int error = hwt_stop(race.timer, &unprocessed);

	stress_must(!error, "hwt_stop: %d", error);
	atomic_store(&race.stopped, true);
	return list_walk(&unprocessed);
}

/* Tries once while the task may block, then lets it go and tries on. */
static uint64_t
stop_within(uint64_t *random)
{
	struct hwt_unprocessed unprocessed;
	int error = hwt_stop_within(
	    race.timer, random_below(random, HWT_US(50)), &unprocessed);

	if (error == -ETIMEDOUT) {
		stress_check(
		    !unprocessed.count && !unprocessed.private_words[0],
		    "*unprocessed is not zero after -ETIMEDOUT");
		atomic_store(&race.release, true);
	}
	while (error == -ETIMEDOUT)
		error = hwt_stop_within(
		    race.timer, random_below(random, HWT_US(50)), &unprocessed);
	stress_must(!error, "hwt_stop_within: %d", error);
	atomic_store(&race.stopped, true);
	return list_walk(&unprocessed);
}

static void
act(struct racer *racer)
{
	enum mode mode = race.mode;

	racer->listed = 0;
	if (mode == MIXED)
		mode = (enum mode)random_below(&racer->random, MIXED);
	stress_spin(random_below(&racer->random, SPIN_MAX));
	switch (mode) {
	case SCHEDULE:
		schedule_some(racer);
		break;
	case BATCH:
		schedule_batch(racer);
		break;
	case START:
		start(racer);
		break;
	case STOP:
		racer->listed = stop();
		break;
	default:
		racer->listed = stop_within(&racer->random);
	}
}

static void *
racer_thread(void *arg)
{
	struct racer *racer = arg;

	for (;;) {
		pthread_barrier_wait(&gate);
		if (quit)
			return NULL;
		act(racer);
		pthread_barrier_wait(&gate);
	}
}

static void
race_prefill(uint64_t *random)
{
	unsigned count = 1 + (unsigned)random_below(random, BATCH_MAX);
	struct item *items = &race.items[PREFILLED];
	unsigned i = 0;
	int error;

	if (race.mode == STOP_WITHIN) {
		error = hwt_new_timeout(
		    race.timer, NULL, blocking_task, &items[0], 0);
		stress_must(!error, "hwt_new_timeout: %d", error);
		items[i++].accepted = true;
		while (!atomic_load(&race.blocked))
			sched_yield();
	}
	for (; i < count; i++) {
		error = hwt_new_timeout(
		    race.timer, NULL, task, &items[i], some_delay(random));
		stress_must(!error, "hwt_new_timeout: %d", error);
		items[i].accepted = true;
	}
}

static void
race_verify(uint64_t listed)
{
	unsigned ends, lists = listed > 0;
	unsigned i;

	for (i = 0; i < ITEMS; i++) {
		ends = atomic_load(&race.items[i].ends);
		stress_check(ends == race.items[i].accepted,
		    "mode %d: a timeout that was %s ended %u times",
		    (int)race.mode,
		    race.items[i].accepted ? "accepted" : "refused", ends);
		accepted_total += race.items[i].accepted;
	}
	for (i = 0; i < racers_count; i++)
		lists += racers[i].listed > 0;
	stress_check(
	    lists <= 1, "mode %d: %u stops got a list", (int)race.mode, lists);
	stress_check(!hwt_pending_timeouts(race.timer), "pending after stop");
	stress_check(hwt_new_timeout(race.timer, NULL, task, &race.items[0],
			 0) == -ESHUTDOWN,
	    "a stopped timer accepts");
}

static void
race_run(uint64_t *random, uint64_t number)
{
	uint64_t listed;
	int error;

	memset(&race, 0, sizeof(race));
	race.mode = (enum mode)(number % MODES);
	race.timer =
	    timer_create_ns(HWT_US(random_below(random, 2) ? 50 : 1000), 64,
		random_below(random, 4) ? 0 : HWT_RELAXED);
	if (random_below(random, 2))
		hwt_start(race.timer);
	if (race.mode >= STOP)
		race_prefill(random);
	stress_phase("the racers run", number);
	pthread_barrier_wait(&gate);
	if (random_below(random, 4))
		stress_spin(random_below(random, SPIN_MAX));
	else
		stress_sleep_ns(random_below(random, HWT_US(400)));
	if (race.mode == STOP_WITHIN)
		listed = stop_within(random);
	else
		listed = stop();
	pthread_barrier_wait(&gate);
	stress_phase("the race is over", number);
	race_verify(listed);
	error = hwt_destroy(race.timer);
	stress_check(!error, "hwt_destroy: %d", error);
}

/* A share of the races with that many racers. */
static void
run_racers(uint64_t *random, unsigned count)
{
	uint64_t races = 1 + stress_scaled(RACES) / RACERS_MAX, number;
	unsigned i;

	quit = false;
	racers_count = count;
	pthread_barrier_init(&gate, NULL, count + 1);
	for (i = 0; i < count; i++) {
		racers[i].index = i;
		racers[i].random = random_next(random);
		racers[i].thread = stress_thread(racer_thread, &racers[i]);
	}
	for (number = 0; number < races; number++)
		race_run(random, number);
	races_total += races;
	quit = true;
	pthread_barrier_wait(&gate);
	for (i = 0; i < count; i++)
		stress_join(racers[i].thread);
	pthread_barrier_destroy(&gate);
}

int
main(int argc, char **argv)
{
	uint64_t random;
	unsigned count;

	stress_begin("stop_race", argc, argv);
	random = random_seed(0);
	for (count = 1; count <= RACERS_MAX; count++)
		run_racers(&random, count);
	return stress_end("%" PRIu64 " races of 2 to %d threads, accepted "
			  "%" PRIu64 ", of which %" PRIu64 " ran",
	    races_total, RACERS_MAX + 1, (uint64_t)accepted_total,
	    (uint64_t)started_total);
}
