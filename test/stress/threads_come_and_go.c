/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What threads and timers leave behind when they end.
 *
 *   threads  thousands of short-lived threads schedule on one timer, cancel
 *            some, leave some to run and some for later threads to cancel;
 *            some schedule and cancel again from a destructor of their
 *            thread-specific data, when their records were released already
 *   timers   timers come and go under threads that live on: one that used
 *            every timer before, and one that ends only after the timer of
 *            which it may hold records is gone; in every second turn it ends
 *            while the timer is being stopped and destroyed
 *
 * Nothing may be lost, and neither memory nor the number of threads and file
 * descriptors may grow. Memory after a tenth of the work and at the end may
 * differ by 1 MiB: a cache of 64 records left behind by each thread would be
 * fifty times that, a kibibyte left by each timer three times.
 */
#include "stress.h"

enum {
	LIVES = 14000,
	PER_LIFE = 16,
	SPAWNERS = 2,
	TIMERS = 4000,
	PER_TIMER = 20,
	HEIRLOOMS = 512,
	GROWTH_MAX = 1 << 20
};

static atomic_uint_fast64_t accepted, started, cancelled;
/* Handles that a thread leaves to later ones. */
static _Atomic uint64_t heirlooms[HEIRLOOMS];

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	atomic_fetch_add(&started, 1);
}

static hwt_timeout
schedule(struct hwt *timer, uint64_t delay_ns)
{
	hwt_timeout timeout;
	int error = hwt_new_timeout(timer, &timeout, task, NULL, delay_ns);

	stress_must(!error, "hwt_new_timeout: %d", error);
	atomic_fetch_add(&accepted, 1);
	return timeout;
}

static void
cancel(struct hwt *timer, hwt_timeout timeout)
{
	int error = hwt_cancel(timer, timeout);

	stress_check(!error || error == -ENOENT || error == -EINPROGRESS,
	    "hwt_cancel: %d", error);
	if (!error)
		atomic_fetch_add(&cancelled, 1);
}

struct life {
	struct hwt *timer;
	uint64_t random;
};

/* Its destructor runs in each round after the library's, which was made first;
 * it has two rounds of the four that there are, and leaves the next one to the
 * library. */
static pthread_key_t last_words;
static atomic_uint_fast64_t last_words_said;

static void
say_last_words(void *arg)
{
	static _Thread_local bool said;
	struct hwt *timer = arg;
	unsigned i;

	for (i = 0; i < PER_LIFE; i++)
		cancel(timer, schedule(timer, HWT_MS(1)));
	schedule(timer, 0);
	atomic_fetch_add(&last_words_said, 1);
	if (said)
		return;
	said = true;
	stress_must(!pthread_setspecific(last_words, timer), "setspecific");
}

static void *
life_thread(void *arg)
{
	struct life *life = arg;
	hwt_timeout timeout;
	unsigned i;

	for (i = 0; i < PER_LIFE; i++) {
		timeout = schedule(
		    life->timer, random_below(&life->random, HWT_MS(5)));
		switch (random_below(&life->random, 3)) {
		case 0:
			cancel(life->timer, timeout);
			break;
		case 1:
			timeout.id = atomic_exchange(
			    &heirlooms[random_below(&life->random, HEIRLOOMS)],
			    timeout.id);
			cancel(life->timer, timeout);
		}
	}
	if (random_below(&life->random, 8) == 0)
		stress_must(!pthread_setspecific(last_words, life->timer),
		    "pthread_setspecific");
	return NULL;
}

struct spawner {
	struct hwt *timer;
	uint64_t lives;
	uint64_t salt;
	struct memory early;
	pthread_t thread;
};

static void *
spawner_thread(void *arg)
{
	struct spawner *spawner = arg;
	struct life life = {
	    .timer = spawner->timer, .random = random_seed(spawner->salt)};
	uint64_t i;

	for (i = 0; i < spawner->lives; i++) {
		stress_join(stress_thread(life_thread, &life));
		/* A slow worker must not let them heap up. */
		if (i % 64 == 0)
			probe_wait(spawner->timer);
		if (i == spawner->lives / 10)
			spawner->early = memory_now(spawner->timer);
	}
	return NULL;
}

static struct memory
run_threads(void)
{
	struct hwt *timer = timer_create_ns(HWT_MS(1), 64, 0);
	struct spawner spawners[SPAWNERS] = {{0}};
	struct memory late;
	unsigned i;

	stress_phase("threads", 0);
	for (i = 0; i < SPAWNERS; i++) {
		spawners[i].timer = timer;
		spawners[i].lives = stress_scaled(LIVES) / SPAWNERS + 1;
		spawners[i].salt = i;
		spawners[i].thread =
		    stress_thread(spawner_thread, &spawners[i]);
	}
	for (i = 0; i < SPAWNERS; i++)
		stress_join(spawners[i].thread);
	late = memory_now(timer);
	memory_check("threads", spawners[0].early, late, GROWTH_MAX);
	stress_phase("the last timeouts of the threads run", 0);
	while (atomic_load(&started) + atomic_load(&cancelled) <
	    atomic_load(&accepted))
		stress_sleep_ns(HWT_MS(1));
	stress_check(!hwt_pending_timeouts(timer), "threads: pending");
	stress_check(last_words_said, "no destructor used the timer");
	stress_check(!hwt_stop(timer, NULL), "hwt_stop");
	stress_check(!hwt_destroy(timer), "hwt_destroy");
	return late;
}

/* Where the threads of one timer's life meet: when it is there, when they have
 * used it, when it is gone. */
static pthread_barrier_t born, used, gone;
static struct hwt *current;
static bool quit;

static void
use(struct hwt *timer, uint64_t *random)
{
	hwt_timeout timeout;
	unsigned i;

	for (i = 0; i < PER_TIMER; i++) {
		timeout = schedule(timer, random_below(random, HWT_US(300)));
		if (random_below(random, 2))
			cancel(timer, timeout);
	}
}

/* Lives through all timers. */
static void *
survivor_thread(void *arg)
{
	uint64_t random = random_seed(1000);

	(void)arg;
	for (;;) {
		pthread_barrier_wait(&born);
		if (quit)
			return NULL;
		use(current, &random);
		pthread_barrier_wait(&used);
	}
}

/* Ends after its only timer, or at the same time. */
static void *
widow_thread(void *arg)
{
	uint64_t number = (uintptr_t)arg;
	uint64_t random = random_seed(2000 + number);

	use(current, &random);
	pthread_barrier_wait(&used);
	if (number % 2)
		stress_sleep_ns(random_below(&random, HWT_US(400)));
	else
		pthread_barrier_wait(&gone);
	return NULL;
}

static void
run_timer(uint64_t number, uint64_t *random)
{
	struct hwt_unprocessed unprocessed;
	pthread_t widow;
	uint64_t ended;

	stress_phase("timers", number);
	current = timer_create_ns(HWT_US(100), 64, 0);
	widow = stress_thread(widow_thread, (void *)(uintptr_t)number);
	pthread_barrier_wait(&born);
	use(current, random);
	pthread_barrier_wait(&used);
	stress_sleep_ns(random_below(random, HWT_US(300)));
	stress_check(!hwt_stop(current, &unprocessed), "hwt_stop");
	ended =
	    atomic_load(&started) + atomic_load(&cancelled) + unprocessed.count;
	stress_check(ended == atomic_load(&accepted),
	    "timer %" PRIu64 ": %" PRIu64 " ended of %" PRIu64, number, ended,
	    (uint64_t)atomic_load(&accepted));
	atomic_fetch_sub(&accepted, unprocessed.count);
	stress_check(!hwt_destroy(current), "hwt_destroy");
	if (number % 2 == 0)
		pthread_barrier_wait(&gone);
	stress_join(widow);
}

static void
run_timers(uint64_t timers)
{
	struct memory early = {0, 0}, late;
	uint64_t random = random_seed(3000), i;
	pthread_t survivor = stress_thread(survivor_thread, NULL);

	for (i = 0; i < timers; i++) {
		run_timer(i, &random);
		if (i == timers / 10)
			early.rss_bytes = rss_bytes();
	}
	late = (struct memory){.rss_bytes = rss_bytes()};
	memory_check("timers", early, late, GROWTH_MAX);
	quit = true;
	pthread_barrier_wait(&born);
	stress_join(survivor);
}

int
main(int argc, char **argv)
{
	uint64_t timers;
	struct memory threads_memory;
	unsigned threads, files;

	stress_begin("threads_come_and_go", argc, argv);
	timers = stress_scaled(TIMERS);
	stress_must(!pthread_key_create(&last_words, say_last_words),
	    "pthread_key_create");
	pthread_barrier_init(&born, NULL, 2);
	pthread_barrier_init(&used, NULL, 3);
	pthread_barrier_init(&gone, NULL, 2);
	threads = threads_now();
	files = folder_entries("/proc/self/fd");
	threads_memory = run_threads();
	run_timers(timers);
	stress_check(threads_now() == threads,
	    "%u threads at the beginning, %u at the end", threads,
	    threads_now());
	stress_check(folder_entries("/proc/self/fd") == files,
	    "%u descriptors at the beginning, %u at the end", files,
	    folder_entries("/proc/self/fd"));
	return stress_end("%" PRIu64 " threads, memory_bytes %" PRIu64
			  "; %" PRIu64 " timers",
	    stress_scaled(LIVES), threads_memory.timer_bytes, timers);
}
