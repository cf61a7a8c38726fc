/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modes in which threads do one thing for long.
 *
 * wake   Lost wake-ups. The worker goes into its long sleep when a turn finds
 *        nothing new. A lone thread waits for its timeout to start, spinning,
 *        and schedules the next one within the microsecond in which the worker
 *        falls asleep; a second thread's call would wake it for both, so that
 *        three threads are a run of their own. What is missed sleeps for ever,
 *        or for an hour. A manual timer's thread sleeps as hwt_next_wakeup and
 *        wake tell it.
 * flat   Memory follows the number of live timeouts, not the rate of calls: one
 *        thread schedules and another cancels, and a third pulls deadlines in,
 *        millions of times.
 */
#define _GNU_SOURCE
#include "storm.h"

#include <poll.h>
#include <sys/eventfd.h>

enum {
	SLEEPERS_MAX = 3,
	STEPS_ALONE = 8000,
	STEPS_TOGETHER = 300,
	PATIENCE_S = 20,
	PAIRS = 3000000,
	RING = 1024,
	PULLED = 1000,
	GROWTH_MAX = 2 << 20
};

struct sleeper {
	struct hwt *timer;
	uint64_t tick_ns, steps, random;
	bool alone;
	atomic_bool started;
	pthread_t thread;
};

static void
never_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	stress_fail("a timeout of an hour has started");
}

static void
start(hwt_timeout timeout, void *started)
{
	(void)timeout;
	atomic_store((atomic_bool *)started, true);
}

static void
await_start(struct sleeper *sleeper)
{
	uint64_t until_ns = stress_now_ns() + HWT_SEC(PATIENCE_S);
	unsigned spins = 0;

	while (!atomic_load(&sleeper->started)) {
		if (!sleeper->alone || ++spins > 1000000)
			stress_sleep_ns(HWT_US(50));
		if (sleeper->alone && spins % 1024)
			continue;
		stress_must(stress_now_ns() < until_ns,
		    "a timeout has not started after %d s", PATIENCE_S);
	}
	atomic_store(&sleeper->started, false);
}

/* Up to two ticks; mostly a few hundred nanoseconds when alone. */
static void
pause_at_random(struct sleeper *sleeper)
{
	uint64_t pause_ns =
	    random_below(&sleeper->random, 2 * sleeper->tick_ns);

	if (sleeper->alone && random_below(&sleeper->random, 8))
		stress_spin(random_below(&sleeper->random, 3000));
	else
		stress_sleep_ns(pause_ns);
}

static void *
sleeper_thread(void *arg)
{
	struct sleeper *sleeper = arg;
	uint64_t step, delay_ns, begun_ns;

	for (step = 0; step < sleeper->steps; step++) {
		delay_ns = 0;
		if (random_below(&sleeper->random, 2))
			delay_ns = random_below(
			    &sleeper->random, 2 * sleeper->tick_ns);
		begun_ns = stress_now_ns();
		stress_must(!hwt_new_timeout(sleeper->timer, NULL, start,
				&sleeper->started, delay_ns),
		    "hwt_new_timeout");
		await_start(sleeper);
		stress_check(
		    stress_now_ns() >= begun_ns + delay_ns, "wake: early");
		pause_at_random(sleeper);
	}
	return NULL;
}

static void
run_sleepers(struct hwt *timer, uint64_t tick_ns, unsigned threads)
{
	struct sleeper sleepers[SLEEPERS_MAX];
	unsigned i;

	memset(sleepers, 0, sizeof(sleepers));
	for (i = 0; i < threads; i++) {
		sleepers[i].timer = timer;
		sleepers[i].tick_ns = tick_ns;
		sleepers[i].alone = threads == 1;
		sleepers[i].steps =
		    stress_scaled(threads == 1 ? STEPS_ALONE : STEPS_TOGETHER);
		sleepers[i].random = random_seed(i);
		sleepers[i].thread =
		    stress_thread(sleeper_thread, &sleepers[i]);
	}
	for (i = 0; i < threads; i++)
		stress_join(sleepers[i].thread);
}

/* The controlling thread of a manual timer. */
static struct {
	struct hwt *timer;
	int wake_fd;
	atomic_bool quit;
} control;

static void
wake(void *ctx)
{
	(void)ctx;
	(void)eventfd_write(control.wake_fd, 1);
}

static void *
control_thread(void *unused)
{
	struct pollfd fd = {.fd = control.wake_fd, .events = POLLIN};
	struct timespec timeout;
	uint64_t wait_ns;
	eventfd_t ignored;

	while (!atomic_load(&control.quit)) {
		stress_must(!hwt_next_wakeup(control.timer, &wait_ns),
		    "hwt_next_wakeup");
		timeout.tv_sec = (time_t)(wait_ns / HWT_SEC(1));
		timeout.tv_nsec = (long)(wait_ns % HWT_SEC(1));
		if (ppoll(&fd, 1, wait_ns == HWT_NEVER ? NULL : &timeout,
			NULL) > 0)
			(void)eventfd_read(control.wake_fd, &ignored);
		stress_must(!hwt_advance(control.timer, NULL), "hwt_advance");
	}
	return unused;
}

static void
run_way(uint32_t flags, bool far, uint64_t tick_ns, unsigned threads)
{
	struct hwt_wake waker = {wake, NULL};
	struct hwt_options options = {.tick_ns = tick_ns,
	    .flags = flags,
	    .wake = flags & HWT_MANUAL ? &waker : NULL};
	pthread_t thread;

	stress_phase(flags & HWT_MANUAL ? "wake: manual" : "wake", threads);
	control.wake_fd = eventfd(0, EFD_CLOEXEC);
	atomic_store(&control.quit, false);
	stress_must(!hwt_create(&control.timer, &options), "hwt_create");
	if (far)
		stress_must(!hwt_new_timeout(control.timer, NULL, never_task,
				NULL, HWT_SEC(3600)),
		    "hwt_new_timeout");
	if (flags & HWT_MANUAL)
		thread = stress_thread(control_thread, NULL);
	run_sleepers(control.timer, tick_ns, threads);
	atomic_store(&control.quit, true);
	wake(NULL);
	if (flags & HWT_MANUAL)
		stress_join(thread);
	stress_check(!hwt_stop(control.timer, NULL), "hwt_stop");
	stress_check(!hwt_destroy(control.timer), "hwt_destroy");
	close(control.wake_fd);
}

void
run_wake(void)
{
	unsigned way;

	for (way = 0; way < 4; way++) {
		run_way(way / 2 ? HWT_MANUAL : 0, way % 2, HWT_US(10), 1);
		run_way(
		    way / 2 ? HWT_MANUAL : 0, way % 2, HWT_MS(1), SLEEPERS_MAX);
	}
}

/* Flat memory. */

static struct {
	struct hwt *timer;
	atomic_uint_fast64_t pushed, popped;
	hwt_timeout ring[RING];
	uint64_t pairs;
} flat;

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
