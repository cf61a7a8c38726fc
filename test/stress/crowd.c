/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More threads alive at once than a timer has caches for, and more timers than
 * a thread has caches of: who has none shares the spare one, whose records and
 * counters are then used by many at a time.
 *
 *   threads   1100 on one timer, of which 1024 can have a cache; twice, so that
 *             the second ones take the caches of the first
 *   timers    12 timers, of which each of 8 threads can have 8 caches
 *
 * All threads schedule, cancel their own and each other's, and reschedule, at
 * the same time, and stay until all have done so. Each timeout must end once,
 * the counters must be exact, and memory must follow the timeouts that are
 * live. ThreadSanitizer takes half a minute for that many threads, and gets the
 * timers alone.
 */
#include "stress.h"

enum {
	THREADS_MAX = 1100,
	THREADS_FEW = 8,
	TIMERS_MAX = 12,
	PER_THREAD = 24,
	ROUNDS = 12,
	ROUNDS_FEW = 10000,
	/* 128 bytes for each live timeout, and caches of all threads. */
	MEMORY_MAX = 8 << 20
};

struct item {
	struct hwt *timer;
	uint64_t due_ns;
	atomic_uint_fast64_t id;
	atomic_uint ends;
};

struct member {
	pthread_t thread;
	uint64_t random;
	struct item items[PER_THREAD];
};

static struct hwt *timers[TIMERS_MAX];
static struct member members[THREADS_MAX];
static unsigned threads_count, timers_count;
static uint64_t rounds_count, memory_most;
/* All are there; all have done their work. */
static pthread_barrier_t there, done;
static atomic_uint_fast64_t accepted, started, cancelled, rescheduled;

static void
task(hwt_timeout timeout, void *arg)
{
	struct item *item = arg;
	uint64_t now_ns = stress_now_ns();

	(void)timeout;
	stress_check(now_ns >= item->due_ns, "started %" PRIu64 " ns early",
	    item->due_ns - now_ns);
	stress_check(
	    !atomic_fetch_add(&item->ends, 1), "a timeout ended twice");
	atomic_fetch_add(&started, 1);
}

static void
schedule(struct member *member, struct item *item)
{
	uint64_t delay_ns = random_below(&member->random, HWT_MS(20));
	hwt_timeout timeout;
	int error;

	atomic_store(&item->id, 0);
	atomic_store(&item->ends, 0);
	item->due_ns = stress_now_ns() + delay_ns;
	error = hwt_new_timeout(item->timer, &timeout, task, item, delay_ns);
	stress_must(!error, "hwt_new_timeout: %d", error);
	atomic_fetch_add(&accepted, 1);
	atomic_store(&item->id, timeout.id);
}

static void
cancel(struct item *item)
{
	int error =
	    hwt_cancel(item->timer, (hwt_timeout){atomic_load(&item->id)});

	stress_check(!error || error == -ENOENT || error == -EINPROGRESS,
	    "hwt_cancel: %d", error);
	if (error)
		return;
	stress_check(
	    !atomic_fetch_add(&item->ends, 1), "a timeout ended twice");
	atomic_fetch_add(&cancelled, 1);
}

/* Only outwards, so that it stays true that none starts before due_ns. */
static void
reschedule(struct item *item)
{
	int error = hwt_reschedule(
	    item->timer, (hwt_timeout){atomic_load(&item->id)}, HWT_MS(20));

	stress_check(!error || error == -ENOENT || error == -EINPROGRESS,
	    "hwt_reschedule: %d", error);
	if (!error)
		atomic_fetch_add(&rescheduled, 1);
}

static struct item *
some_item(uint64_t *random)
{
	return &members[random_below(random, threads_count)]
		    .items[random_below(random, PER_THREAD)];
}

static void
member_round(struct member *member)
{
	unsigned i;

	for (i = 0; i < PER_THREAD; i++)
		if (atomic_load(&member->items[i].ends))
			schedule(member, &member->items[i]);
	for (i = 0; i < PER_THREAD; i += 2)
		cancel(&member->items[i]);
	reschedule(&member->items[1]);
	cancel(some_item(&member->random));
}

static void *
member_thread(void *arg)
{
	struct member *member = arg;
	uint64_t rounds = rounds_count;

	schedule(member, &member->items[0]);
	pthread_barrier_wait(&there);
	while (rounds--)
		member_round(member);
	pthread_barrier_wait(&done);
	return NULL;
}

static pthread_t
thread_small(void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(
	    &attr, STRESS_TSAN || STRESS_ASAN ? 1 << 19 : 1 << 16);
	error = pthread_create(&thread, &attr, member_thread, arg);
	pthread_attr_destroy(&attr);
	if (error == EAGAIN) {
		printf("crowd: skipped: too few threads to be had here\n");
		fflush(stdout);
		_exit(77);
	}
	stress_must(!error, "pthread_create: %s", strerror(error));
	return thread;
}

static void
threads_run(void)
{
	unsigned i;

	pthread_barrier_init(&there, NULL, threads_count);
	pthread_barrier_init(&done, NULL, threads_count);
	for (i = 0; i < threads_count; i++)
		members[i].thread = thread_small(&members[i]);
	for (i = 0; i < threads_count; i++)
		stress_join(members[i].thread);
	pthread_barrier_destroy(&there);
	pthread_barrier_destroy(&done);
	while (started + cancelled < accepted)
		stress_sleep_ns(HWT_MS(1));
}

/* No timeout has an end yet: that counts as one that did. */
static void
members_make(void)
{
	unsigned i, k;

	for (i = 0; i < threads_count; i++) {
		members[i].random = random_seed(i);
		for (k = 0; k < PER_THREAD; k++) {
			members[i].items[k].timer = timers[k % timers_count];
			atomic_store(&members[i].items[k].ends, 1);
		}
	}
}

static void
verify(const struct hwt_stats *sum)
{
	stress_check(sum->scheduled == accepted && sum->started == started &&
		sum->cancelled == cancelled && sum->rescheduled == rescheduled,
	    "the timers count %" PRIu64 " scheduled, %" PRIu64
	    " started, %" PRIu64 " cancelled, %" PRIu64
	    " rescheduled; they were %" PRIu64 ", %" PRIu64 ", %" PRIu64
	    ", %" PRIu64,
	    sum->scheduled, sum->started, sum->cancelled, sum->rescheduled,
	    (uint64_t)accepted, (uint64_t)started, (uint64_t)cancelled,
	    (uint64_t)rescheduled);
	stress_check(!sum->pending, "%" PRIu64 " pending", sum->pending);
}

static void
timers_end(void)
{
	static struct hwt_stats sum;
	struct hwt_stats stats;
	unsigned i;

	for (i = 0; i < timers_count; i++) {
		stress_check(!hwt_stop(timers[i], NULL), "hwt_stop");
		stats = timer_stats(timers[i]);
		sum.scheduled += stats.scheduled;
		sum.started += stats.started;
		sum.cancelled += stats.cancelled;
		sum.rescheduled += stats.rescheduled;
		sum.pending += stats.pending;
		if (stats.memory_bytes > memory_most)
			memory_most = stats.memory_bytes;
		stress_check(!hwt_destroy(timers[i]), "hwt_destroy");
	}
	verify(&sum);
	stress_check(memory_most <= MEMORY_MAX,
	    "memory_bytes is %" PRIu64 ", for %d timeouts at most", memory_most,
	    THREADS_MAX * PER_THREAD);
}

static void
run(const char *what, unsigned threads, unsigned number, unsigned waves,
    uint64_t rounds)
{
	unsigned i;

	threads_count = threads;
	timers_count = number;
	rounds_count = stress_scaled(rounds);
	for (i = 0; i < timers_count; i++)
		timers[i] = timer_create_ns(HWT_MS(1), 64, 0);
	for (i = 0; i < waves; i++) {
		stress_phase(what, i);
		members_make();
		threads_run();
	}
	timers_end();
}

int
main(int argc, char **argv)
{
	stress_begin("crowd", argc, argv);
	if (!STRESS_TSAN)
		run("threads", THREADS_MAX, 1, 2, ROUNDS);
	run("timers", THREADS_FEW, TIMERS_MAX, 2, ROUNDS_FEW);
	return stress_end("%d threads on a timer, %d timers in a thread; "
			  "accepted %" PRIu64 " = started %" PRIu64
			  " + cancelled %" PRIu64 ", rescheduled %" PRIu64
			  ", memory_bytes %" PRIu64 " at most",
	    STRESS_TSAN ? THREADS_FEW : THREADS_MAX, TIMERS_MAX,
	    (uint64_t)accepted, (uint64_t)started, (uint64_t)cancelled,
	    (uint64_t)rescheduled, memory_most);
}
