/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program: its modes and its rounds. See storm.h.
 *
 *   storm [SCALE [SEED [MODE...]]]
 *
 * SCALE is the work in percent. A seed repeats the choices, not the
 * interleaving. Without a MODE, all are run:
 *
 *   calm      rounds without a disturber
 *   stop      many brief rounds, stopped at once
 *   threads   rounds in which threads come and go
 *   forks     rounds in which threads and tasks fork
 *   signals   rounds under a flood of signals
 *   sleep     calls while worker and pool go to sleep
 *   sigstop   rounds in a process that is stopped now and then
 */
#include "storm.h"

#include <limits.h>

#if STRESS_TSAN
/* ThreadSanitizer knows that free is a last use, and not that munmap is one,
 * by which the library's memory is released. */
void __tsan_write_range(void *memory, long bytes);
int __interceptor_munmap(void *memory, size_t bytes);
int munmap(void *memory, size_t bytes);

int
munmap(void *memory, size_t bytes)
{
	__tsan_write_range(memory, (long)bytes);
	return __interceptor_munmap(memory, bytes);
}
#endif

struct round round_;
struct disturbers disturbers;

static uint64_t rounds_total, totals[4];
static pthread_barrier_t round_begins, round_ends;
static bool all_over;

/* Threads that live through all rounds, and so keep what they had of timers
 * that are gone. */
static void *
veteran_thread(void *salt)
{
	uint64_t random = random_seed((uintptr_t)salt);

	for (;;) {
		pthread_barrier_wait(&round_begins);
		if (all_over)
			return NULL;
		actor_run(&random);
		pthread_barrier_wait(&round_ends);
	}
}

static void
round_begin(uint64_t *random, bool crowded)
{
	static const uint64_t ticks[] = {20000, 100000, 1000000, 2000000};
	static const uint32_t wheels[] = {1, 2, 64, 512};
	struct hwt_options options = {.log = &quiet_log};
	unsigned i;

	memset(&round_, 0, sizeof(round_));
	round_.tick_ns = ticks[random_below(random, 4)];
	/* More than a thread has caches for. */
	round_.timers_count = crowded ? TIMERS_MAX : 1;
	for (i = 0; i < round_.timers_count; i++) {
		options.tick_ns = round_.tick_ns;
		options.ticks_per_wheel = wheels[random_below(random, 4)];
		options.max_pending = random_below(random, 3) ? 0 : 1000;
		stress_must(
		    !hwt_create(&round_.timers[i], &options), "hwt_create");
	}
	executors_start(random);
}

/* Stop. */

static void
stop_once(unsigned number, uint64_t *random)
{
	struct hwt *timer = round_.timers[number];
	struct hwt_unprocessed list;
	struct hwt_timeout_info info;
	uint64_t walked = 0;
	int error;

	do {
		if (random_below(random, 2))
			error = hwt_stop(timer, &list);
		else
			error = hwt_stop_within(
			    timer, random_below(random, 100000), &list);
	} while (error == -ETIMEDOUT);
	stress_must(!error, "hwt_stop: %d", error);
	atomic_store_explicit(
	    &round_.stopped[number], true, memory_order_relaxed);
	for (; hwt_unprocessed_next(&list, &info); walked++) {
		struct item *item = info.arg;

		stress_must(item_index(item) < ITEMS, "a foreign arg");
		item_end(item, UNPROCESSED);
		stress_check(info.task == storm_task &&
			info.period_ns == item->period_ns &&
			info.executor == item->executor,
		    "item %zu: not as it was scheduled", item_index(item));
	}
	stress_check(walked == list.count,
	    "%" PRIu64 " unprocessed, count %" PRIu64, walked, list.count);
	if (walked)
		atomic_fetch_add(&round_.lists[number], 1);
}

static void *
stopper_thread(void *salt)
{
	uint64_t random = random_seed((uintptr_t)salt);
	unsigned i;

	stress_spin(random_below(&random, 20000));
	for (i = 0; i < round_.timers_count; i++)
		stop_once(i, &random);
	return NULL;
}

/* From several threads at a time. */
static void
round_stop(uint64_t *random)
{
	unsigned count = 1 + (unsigned)random_below(random, STOPPERS_MAX);
	pthread_t threads[STOPPERS_MAX];
	unsigned i;

	for (i = 0; i < count; i++)
		threads[i] = stress_thread(
		    stopper_thread, (void *)(uintptr_t)random_next(random));
	for (i = 0; i < count; i++)
		stress_join(threads[i]);
	for (i = 0; i < round_.timers_count; i++)
		stress_check(round_.lists[i] <= 1, "%u stops got the list",
		    round_.lists[i]);
}

/* When the executors are gone, nothing holds timeouts: the counters are exact
 * and the timers can be destroyed at once. Otherwise the executors go on while
 * hwt_destroy is tried until it succeeds. */
static void
round_end(bool executors_first)
{
	unsigned i;
	int error;

	if (executors_first) {
		executors_stop();
		ledger_verify(true);
	}
	for (i = 0; i < round_.timers_count; i++) {
		while ((error = hwt_destroy(round_.timers[i])) == -EBUSY)
			stress_check(!executors_first, "hwt_destroy: -EBUSY");
		stress_check(!error, "hwt_destroy: %d", error);
	}
	if (!executors_first) {
		executors_stop();
		ledger_verify(false);
	}
	for (i = 0; i < 4; i++)
		totals[i] += round_.counts[i];
}

static void
round_run(uint64_t *random, uint64_t number, uint64_t length_ns)
{
	pthread_t actors[ACTORS_MAX], others[2];
	unsigned count =
	    ACTORS_MIN + (unsigned)(number % (ACTORS_MAX - ACTORS_MIN + 1));
	uintptr_t salt = number * 64;
	unsigned i, others_count = 0;

	stress_phase("round", number);
	round_begin(random, number % 4 == 3);
	pthread_barrier_wait(&round_begins);
	for (i = 0; i < count; i++)
		actors[i] = stress_thread(actor_thread, (void *)(salt + i));
	if (disturbers.threads)
		others[others_count++] =
		    stress_thread(disturber_threads, (void *)(salt + 32));
	if (disturbers.forks)
		others[others_count++] =
		    stress_thread(disturber_forks, (void *)(salt + 35));
	stress_sleep_ns(random_below(random, length_ns));
	stress_phase("stop", number);
	round_stop(random);
	atomic_store(&round_.quit, true);
	pthread_barrier_wait(&round_ends);
	for (i = 0; i < count; i++)
		stress_join(actors[i]);
	for (i = 0; i < others_count; i++)
		stress_join(others[i]);
	stress_phase("executors drain", number);
	/* Tasks cancel timeouts of other timers, too. */
	round_end(round_.timers_count > 1 || random_below(random, 3) != 0);
	rounds_total++;
}

/* What the process has. Under an emulator, what is resident is the emulator's
 * own memory: nothing is judged by it. */
static uint64_t
rss_bytes(void)
{
	unsigned long long size = 0, resident = 0;
#ifndef HWT_EMULATED
	FILE *statm = fopen("/proc/self/statm", "r");

	stress_must(statm && fscanf(statm, "%llu %llu", &size, &resident) == 2,
	    "/proc/self/statm cannot be read");
	fclose(statm);
#endif
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static unsigned
folder_entries(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	unsigned entries = 0;

	stress_must(folder, "%s: %s", path, strerror(errno));
	while ((entry = readdir(folder)))
		entries += entry->d_name[0] != '.';
	closedir(folder);
	return entries;
}

/* A join returns a moment before the kernel has taken the thread out of the
 * list. */
static unsigned
threads_now(void)
{
	unsigned before, now = UINT_MAX;

	do {
		before = now;
		stress_sleep_ns(HWT_MS(15));
		now = folder_entries("/proc/self/task");
	} while (now < before);
	return now;
}

/* The process must not have more, the longer it lives. */
static void
run_rounds(uint64_t count, uint64_t length_ns)
{
	uint64_t random = random_seed(count);
	uint64_t rounds = 2 + stress_scaled(count), early = 0, late, i;
	unsigned files = 0, threads = 0;

	for (i = 0; i < rounds; i++) {
		round_run(&random, i, length_ns);
		if (i != 1 + rounds / 10)
			continue;
		early = rss_bytes();
		files = folder_entries("/proc/self/fd");
		threads = threads_now();
	}
	children_reap();
	late = rss_bytes();
	stress_check(STRESS_TSAN || STRESS_ASAN || late <= early + GROWTH_MAX,
	    "RSS grew from %" PRIu64 " to %" PRIu64, early, late);
	stress_check(files == folder_entries("/proc/self/fd") &&
		threads == threads_now(),
	    "there were %u descriptors and %u threads", files, threads);
}

static const struct mode {
	const char *name;
	uint64_t rounds, length_ns;
	struct disturbers with;
} modes[] = {
    {"calm", 60, HWT_MS(100), {0}},
    {"stop", 400, HWT_MS(2), {0}},
    {"threads", 100, HWT_MS(100), {.threads = true}},
    {"forks", 30, HWT_MS(100), {.forks = true}},
    {"signals", 40, HWT_MS(50), {.signals = true}},
    {"sleep", 0, 0, {0}},
};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static void
run_mode(const struct mode *mode)
{
	disturbers = mode->with;
	if (disturbers.forks && (STRESS_TSAN || STRESS_ASAN))
		return;
	if (disturbers.signals)
		signals_start();
	if (mode->rounds != 0)
		run_rounds(mode->rounds, mode->length_ns);
	else
		run_sleep();
	if (disturbers.signals)
		signals_stop();
}

static bool
is_chosen(const char *name, int argc, char **argv)
{
	int i;

	for (i = 3; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return false;
}

int
main(int argc, char **argv)
{
	bool stopped = is_chosen("sigstop", argc, argv);
	pthread_t veterans[VETERANS];
	int known = 3 + stopped;
	unsigned i;

	for (i = 0; i < MODES; i++)
		known += is_chosen(modes[i].name, argc, argv);
	if (argc > 3 && known != argc) {
		(void)fprintf(stderr, "storm: a mode is not known\n");
		return 2;
	}
	/* Before there is a thread. */
	if (stopped)
		sigstop_begin();
	stress_begin("storm", argc, argv);
	pthread_barrier_init(&round_begins, NULL, VETERANS + 1);
	pthread_barrier_init(&round_ends, NULL, VETERANS + 1);
	for (i = 0; i < VETERANS; i++)
		veterans[i] =
		    stress_thread(veteran_thread, (void *)(uintptr_t)(i + 40));
	for (i = 0; i < MODES; i++)
		if (argc <= 3 || is_chosen(modes[i].name, argc, argv))
			run_mode(&modes[i]);
	all_over = true;
	pthread_barrier_wait(&round_begins);
	for (i = 0; i < VETERANS; i++)
		stress_join(veterans[i]);
	return stress_end("%" PRIu64 " rounds, accepted %" PRIu64
			  " = started %" PRIu64 " + cancelled %" PRIu64
			  " + returned %" PRIu64,
	    rounds_total, totals[0], totals[1], totals[2], totals[3]);
}
