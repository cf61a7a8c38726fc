/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lost wake-ups: timeouts are scheduled at the moments at which the worker
 * falls asleep. Whatever is missed then sleeps for ever, or for an hour, and
 * is told after PATIENCE_S.
 *
 * The worker goes into its long sleep when a turn finds nothing new. So a lone
 * thread waits for its timeout to start, spinning, and schedules the next one
 * within the microsecond in which the worker falls asleep; there must not be a
 * second thread, whose call would wake the worker for both. Several threads on
 * a longer tick, which meet sleeps of all kinds, are a run of their own.
 *
 * It is done with nothing else pending (the worker sleeps without an end), with
 * a timeout an hour away (its sleep has one), with a relaxed timer, and with a
 * manual one, whose controlling thread sleeps as hwt_next_wakeup and wake tell
 * it.
 */
#define _GNU_SOURCE
#include "stress.h"

enum {
	THREADS_MAX = 3,
	STEPS_ALONE = 8000,
	STEPS_TOGETHER = 300,
	PATIENCE_S = 20
};

/* One of the six ways in which it is done. */
struct way {
	const char *name;
	uint32_t flags;
	bool far;
};

struct sleeper {
	struct hwt *timer;
	const char *way;
	uint64_t tick_ns, steps;
	bool alone;
	uint64_t random;
	atomic_bool started;
	pthread_t thread;
};

/* The controlling thread of a manual timer. */
static struct {
	struct hwt *timer;
	int wake_fd;
	atomic_bool quit;
	atomic_uint_fast64_t wakes;
	uint64_t waits;
	pthread_t thread;
} control;

static uint64_t steps_total;

static void
started(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	atomic_store((atomic_bool *)arg, true);
}

static void
wait_for_start(struct sleeper *sleeper, uint64_t step, uint64_t delay_ns)
{
	uint64_t until_ns = stress_now_ns() + HWT_SEC(PATIENCE_S);
	unsigned spins = 0;

	while (!atomic_load(&sleeper->started)) {
		if (!sleeper->alone || ++spins > 1000000)
			stress_sleep_ns(HWT_US(50));
		if (sleeper->alone && spins % 1024)
			continue;
		stress_must(stress_now_ns() < until_ns,
		    "%s: step %" PRIu64 ", a delay of %" PRIu64
		    " ns has not ended after %d s",
		    sleeper->way, step, delay_ns, PATIENCE_S);
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
	else if (random_below(&sleeper->random, 2))
		stress_spin(pause_ns);
	else
		stress_sleep_ns(pause_ns);
}

static void *
sleeper_thread(void *arg)
{
	struct sleeper *sleeper = arg;
	uint64_t step, delay_ns, begun_ns;
	int error;

	for (step = 0; step < sleeper->steps; step++) {
		delay_ns = 0;
		if (random_below(&sleeper->random, 2))
			delay_ns = random_below(
			    &sleeper->random, 2 * sleeper->tick_ns);
		begun_ns = stress_now_ns();
		error = hwt_new_timeout(
		    sleeper->timer, NULL, started, &sleeper->started, delay_ns);
		stress_must(!error, "hwt_new_timeout: %d", error);
		wait_for_start(sleeper, step, delay_ns);
		stress_check(stress_now_ns() >= begun_ns + delay_ns,
		    "%s: early", sleeper->way);
		pause_at_random(sleeper);
	}
	return NULL;
}

static void
run_sleepers(struct hwt *timer, const struct way *way, uint64_t tick_ns,
    unsigned threads)
{
	static struct sleeper sleepers[THREADS_MAX];
	bool alone = threads == 1;
	unsigned i;

	stress_phase(way->name, threads);
	for (i = 0; i < threads; i++) {
		sleepers[i].timer = timer;
		sleepers[i].way = way->name;
		sleepers[i].tick_ns = tick_ns;
		sleepers[i].steps =
		    stress_scaled(alone ? STEPS_ALONE : STEPS_TOGETHER);
		sleepers[i].alone = alone;
		sleepers[i].random = random_seed(i);
		steps_total += sleepers[i].steps;
		sleepers[i].thread =
		    stress_thread(sleeper_thread, &sleepers[i]);
	}
	for (i = 0; i < threads; i++)
		stress_join(sleepers[i].thread);
}

static void
run_worker(const struct way *way, uint64_t tick_ns, unsigned threads)
{
	struct hwt *timer = timer_create_ns(tick_ns, 64, way->flags);
	struct hwt_unprocessed unprocessed;

	if (way->far)
		stress_must(!hwt_new_timeout(
				timer, NULL, never_task, NULL, HWT_SEC(3600)),
		    "hwt_new_timeout");
	run_sleepers(timer, way, tick_ns, threads);
	stress_check(!hwt_stop(timer, &unprocessed), "hwt_stop");
	stress_check(unprocessed.count == way->far,
	    "%s: %" PRIu64 " unprocessed", way->name, unprocessed.count);
	stress_check(!hwt_destroy(timer), "hwt_destroy");
}

static void
wake(void *ctx)
{
	(void)ctx;
	atomic_fetch_add(&control.wakes, 1);
	eventfd_write(control.wake_fd, 1);
}

static void *
control_thread(void *arg)
{
	struct pollfd fd = {.fd = control.wake_fd, .events = POLLIN};
	struct timespec timeout;
	uint64_t wait_ns;
	eventfd_t ignored;
	int error;

	(void)arg;
	while (!atomic_load(&control.quit)) {
		error = hwt_next_wakeup(control.timer, &wait_ns);
		stress_must(!error, "hwt_next_wakeup: %d", error);
		control.waits++;
		timeout.tv_sec = (time_t)(wait_ns / HWT_SEC(1));
		timeout.tv_nsec = (long)(wait_ns % HWT_SEC(1));
		if (ppoll(&fd, 1, wait_ns == HWT_NEVER ? NULL : &timeout,
			NULL) > 0)
			eventfd_read(control.wake_fd, &ignored);
		error = hwt_advance(control.timer, NULL);
		stress_must(!error, "hwt_advance: %d", error);
	}
	return NULL;
}

/* A wake may come late, when another wait has been announced already; in sum
 * there is at most one for each. */
static void
run_manual(const struct way *way, uint64_t tick_ns, unsigned threads)
{
	struct hwt_wake waker = {wake, NULL};
	struct hwt_options options = {
	    .tick_ns = tick_ns, .flags = way->flags, .wake = &waker};

	memset(&control, 0, sizeof(control));
	control.wake_fd = eventfd(0, EFD_CLOEXEC);
	stress_must(control.wake_fd >= 0, "eventfd: %s", strerror(errno));
	stress_must(!hwt_create(&control.timer, &options), "hwt_create");
	if (way->far)
		stress_must(!hwt_new_timeout(control.timer, NULL, never_task,
				NULL, HWT_SEC(3600)),
		    "hwt_new_timeout");
	control.thread = stress_thread(control_thread, NULL);
	run_sleepers(control.timer, way, tick_ns, threads);
	atomic_store(&control.quit, true);
	eventfd_write(control.wake_fd, 1);
	stress_join(control.thread);
	stress_check(control.wakes <= control.waits,
	    "%s: %" PRIu64 " wakes for %" PRIu64 " waits", way->name,
	    (uint64_t)control.wakes, control.waits);
	stress_check(!hwt_stop(control.timer, NULL), "hwt_stop");
	stress_check(!hwt_destroy(control.timer), "hwt_destroy");
	close(control.wake_fd);
}

int
main(int argc, char **argv)
{
	static const struct way ways[] = {
	    {"nothing else pending", 0, false},
	    {"one an hour away", 0, true},
	    {"relaxed", HWT_RELAXED, true},
	    {"manual", HWT_MANUAL, false},
	    {"manual, one an hour away", HWT_MANUAL, true},
	    {"manual, relaxed", HWT_MANUAL | HWT_RELAXED, true},
	};
	void (*run)(const struct way *, uint64_t, unsigned);
	unsigned i;

	stress_begin("wake", argc, argv);
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		run = ways[i].flags & HWT_MANUAL ? run_manual : run_worker;
		run(&ways[i], HWT_US(10), 1);
		run(&ways[i], HWT_MS(1), THREADS_MAX);
	}
	return stress_end("%" PRIu64 " timeouts, all started", steps_total);
}
