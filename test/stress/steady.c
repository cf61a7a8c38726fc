/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mode flat: memory follows the number of live timeouts, not the rate of
 * calls. One thread schedules and another cancels, and a third pulls deadlines
 * in, millions of times. And what rounds compare: memory, descriptors, threads.
 */
#include "storm.h"

enum {
	PAIRS = 3000000,
	RING = 1024,
	PULLED = 1000,
	GROWTH_MAX = 2 << 20
};

static struct {
	struct hwt *timer;
	atomic_uint_fast64_t pushed, popped;
	hwt_timeout ring[RING];
	uint64_t pairs;
} flat;

static void
never_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	stress_fail("a timeout of an hour has started");
}

static void *
schedule_thread(void *unused)
{
	uint64_t i;

	for (i = 0; i < flat.pairs; i++) {
		while (i - atomic_load(&flat.popped) == RING)
			sched_yield();
		stress_must(!hwt_new_timeout(flat.timer, &flat.ring[i % RING],
				never_task, NULL, HWT_SEC(3600)),
		    "hwt_new_timeout");
		atomic_store(&flat.pushed, i + 1);
	}
	return unused;
}

static void *
pull_thread(void *unused)
{
	hwt_timeout pulled[PULLED];
	uint64_t i;

	for (i = 0; i < PULLED; i++)
		stress_must(!hwt_new_timeout(flat.timer, &pulled[i], never_task,
				NULL, HWT_SEC(7200)),
		    "hwt_new_timeout");
	for (i = 0; atomic_load(&flat.popped) < flat.pairs; i++)
		stress_must(!hwt_reschedule(flat.timer, pulled[i % PULLED],
				HWT_SEC(7200) - i * HWT_US(10)),
		    "hwt_reschedule");
	return unused;
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

unsigned
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
 * list: what still falls is looked at again. */
unsigned
threads_now(void)
{
	unsigned now = folder_entries("/proc/self/task");
	unsigned before, turn;

	for (turn = 0; turn < 3; turn++) {
		before = now;
		stress_sleep_ns(HWT_MS(5));
		now = folder_entries("/proc/self/task");
		if (now < before)
			turn = 0;
	}
	return now;
}

/* Of the timer and of the process, after a tenth of the work and at the end. */
void
flat_check(const char *what, bool last)
{
	static uint64_t early;
	uint64_t now = rss_bytes();

	if (!last)
		early = now;
	else
		stress_check(STRESS_TSAN || STRESS_ASAN || STRESS_EMULATED ||
			now <= early + GROWTH_MAX,
		    "%s: RSS grew from %" PRIu64 " to %" PRIu64, what, early,
		    now);
}

void
run_flat(void)
{
	uint64_t early = 0, i;
	struct hwt_stats stats;
	pthread_t threads[2];

	flat.timer = timer_create_ns(HWT_MS(10), 64, 0);
	flat.pairs = stress_scaled(PAIRS);
	stress_phase("flat", 0);
	threads[0] = stress_thread(schedule_thread, NULL);
	threads[1] = stress_thread(pull_thread, NULL);
	for (i = 0; i < flat.pairs; i++) {
		while (atomic_load(&flat.pushed) == i)
			sched_yield();
		stress_must(
		    !hwt_cancel(flat.timer, flat.ring[i % RING]), "hwt_cancel");
		atomic_store(&flat.popped, i + 1);
		if (i == flat.pairs / 10) {
			flat_check("flat", false);
			(void)hwt_read_stats(flat.timer, &stats);
			early = stats.memory_bytes;
		}
	}
	stress_join(threads[0]);
	stress_join(threads[1]);
	flat_check("flat", true);
	(void)hwt_read_stats(flat.timer, &stats);
	stress_check(stats.memory_bytes <= early + GROWTH_MAX,
	    "flat: memory_bytes grew from %" PRIu64 " to %" PRIu64, early,
	    stats.memory_bytes);
	stress_check(stats.pending == PULLED, "flat: pending");
	stress_check(!hwt_stop(flat.timer, NULL), "hwt_stop");
	stress_check(!hwt_destroy(flat.timer), "hwt_destroy");
}
