/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers, pools and mailboxes that are made and destroyed in a loop, by several
 * threads at a time: nothing may grow.
 *
 *   kinds      timers that never started, that worked, manual ones, with pool
 *              and mailbox, with many records, with long wheels; calls of
 *              hwt_create that are refused; the shared timer, by its side
 *   shared     whoever finds the shared timer finds it complete; judged by
 *              ThreadSanitizer
 *   measured   RSS, mappings, descriptors and threads, after a tenth of the
 *              work and at the end, when all threads wait for each other
 *   registry   a process that has more than 64 workers is warned once: after
 *              thousands came and went, 64 must not be too many, and one more
 *              must
 */
#include "stress.h"

enum {
	THREADS = 4,
	/* ThreadSanitizer is slow with new threads and mappings. */
	LIVES = STRESS_TSAN ? 400 : 1500,
	TIMEOUTS = 40,
	/* More than fit into a slab of records. */
	MANY = 5000,
	WORKERS = 64,
	GROWTH_MAX = 1 << 20,
	/* One lost in a hundred lives would be 54. Mappings of the C library's
	 * arenas come and go. */
	MAPS_GROWTH_MAX = 20
};

enum kind {
	UNUSED,
	WORKED,
	MANUAL,
	EXECUTORS,
	LARGE,
	LONG_WHEEL,
	REFUSED,
	KINDS
};

struct sizes {
	uint64_t rss_bytes;
	unsigned maps, files, threads;
};

static pthread_barrier_t measured;
static struct sizes early, late;
static atomic_uint_fast64_t accepted, started, cancelled, listed;
static atomic_uint warnings;

static struct sizes
sizes_now(void)
{
	return (struct sizes){.rss_bytes = rss_bytes(),
	    .maps = maps_entries(),
	    .files = folder_entries("/proc/self/fd"),
	    .threads = threads_now()};
}

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	atomic_fetch_add(&started, 1);
}

/* On two executors by turns; cancels every third. */
static void
use(struct hwt *timer, const struct hwt_executor *const executors[2],
    unsigned count, uint64_t *random)
{
	hwt_timeout timeout;
	unsigned i;
	int error;

	for (i = 0; i < count; i++) {
		error = hwt_new_timeout_on(timer, executors[i % 2], &timeout,
		    task, NULL, random_below(random, HWT_US(400)));
		stress_must(!error, "hwt_new_timeout_on: %d", error);
		atomic_fetch_add(&accepted, 1);
		if (i % 3 == 0 && !hwt_cancel(timer, timeout))
			atomic_fetch_add(&cancelled, 1);
	}
}

static void
end(struct hwt *timer)
{
	struct hwt_unprocessed unprocessed;

	stress_check(!hwt_stop(timer, &unprocessed), "hwt_stop");
	atomic_fetch_add(&listed, unprocessed.count);
}

static void
live_with_executors(uint64_t *random)
{
	struct hwt *timer = timer_create_ns(HWT_US(100), 64, 0);
	const struct hwt_executor *executors[2];
	struct hwt_pool *pool;
	struct loop loop;

	stress_must(!hwt_pool_create(&pool, 2, 0), "hwt_pool_create");
	loop_start(&loop, 0);
	executors[0] = hwt_pool_executor(pool);
	executors[1] = hwt_mailbox_executor(loop.mailbox);
	use(timer, executors, TIMEOUTS, random);
	end(timer);
	stress_check(!hwt_pool_destroy(pool), "hwt_pool_destroy");
	loop_stop(&loop);
	stress_check(!hwt_destroy(timer), "hwt_destroy");
}

static void
be_refused(void)
{
	struct hwt_options options = {.tick_ns = 1};
	struct hwt_mailbox *mailbox;
	struct hwt_pool *pool;
	struct hwt *timer;

	stress_check(
	    hwt_create(&timer, &options) == -EINVAL, "hwt_create is not");
	stress_check(
	    hwt_pool_create(&pool, 0, 0) == -EINVAL, "hwt_pool_create is not");
	stress_check(
	    !hwt_mailbox_create(&mailbox) && !hwt_mailbox_destroy(mailbox),
	    "hwt_mailbox_create");
}

static void
live(enum kind kind, uint64_t *random)
{
	static const struct hwt_executor *const none[2];
	uint32_t length = kind == LONG_WHEEL ? 1u << 20 : 64;
	struct hwt *timer;

	if (kind == REFUSED) {
		be_refused();
		return;
	}
	if (kind == EXECUTORS) {
		live_with_executors(random);
		return;
	}
	timer = timer_create_ns(
	    HWT_US(100), length, kind == MANUAL ? HWT_MANUAL : 0);
	if (kind != UNUSED)
		use(timer, none, kind == LARGE ? MANY : TIMEOUTS, random);
	if (kind == MANUAL)
		stress_check(!hwt_advance(timer, NULL), "hwt_advance");
	else if (random_below(random, 4))
		stress_sleep_ns(random_below(random, HWT_US(300)));
	end(timer);
	stress_check(!hwt_destroy(timer), "hwt_destroy");
}

/* All wait while one of them measures. */
static void
measure(struct sizes *sizes)
{
	if (pthread_barrier_wait(&measured) == PTHREAD_BARRIER_SERIAL_THREAD)
		*sizes = sizes_now();
	pthread_barrier_wait(&measured);
}

static void *
lives_thread(void *arg)
{
	static const struct hwt_executor *const none[2];
	uint64_t random = random_seed((uintptr_t)arg);
	uint64_t lives = 20 + stress_scaled(LIVES), i;
	struct hwt *shared;

	for (i = 0; i < lives; i++) {
		live((enum kind)(i % KINDS), &random);
		stress_must(!hwt_shared(&shared), "hwt_shared");
		use(shared, none, 1, &random);
		if (i == lives / 10)
			measure(&early);
	}
	measure(&late);
	return NULL;
}

static void
sizes_check(void)
{
	struct memory before = {.rss_bytes = early.rss_bytes};
	struct memory after = {.rss_bytes = late.rss_bytes};

	memory_check("lives", before, after, GROWTH_MAX);
	stress_check(
	    !memory_is_ours() || late.maps <= early.maps + MAPS_GROWTH_MAX,
	    "mappings grew from %u to %u", early.maps, late.maps);
	stress_check(late.files == early.files, "descriptors: %u, then %u",
	    early.files, late.files);
	stress_check(late.threads == early.threads, "threads: %u, then %u",
	    early.threads, late.threads);
}

static void
log_count(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	stress_check(
	    strstr(message, "64 timers") != NULL, "a warning: %s", message);
	atomic_fetch_add(&warnings, 1);
}

/* The shared timer is one of them. */
static void
registry_check(void)
{
	static const struct hwt_log log = {log_count, NULL};
	struct hwt_options options = {.log = &log};
	struct hwt *timers[WORKERS];
	unsigned i;

	for (i = 0; i < WORKERS; i++) {
		stress_check(!warnings, "warned of %u workers", i);
		stress_must(!hwt_create(&timers[i], &options), "hwt_create");
		stress_must(!hwt_start(timers[i]), "hwt_start");
	}
	/* The last one counts itself as it begins. */
	while (!warnings)
		sched_yield();
	for (i = 0; i < WORKERS; i++) {
		stress_check(!hwt_stop(timers[i], NULL), "hwt_stop");
		stress_check(!hwt_destroy(timers[i]), "hwt_destroy");
	}
	stress_check(warnings == 1, "%u warnings of 65 workers", warnings);
}

/* Nothing else passes from the thread that has made it to the one that finds
 * it. */
static atomic_bool shared_made;

static void *
find_thread(void *arg)
{
	struct hwt *shared;

	(void)arg;
	while (!atomic_load_explicit(&shared_made, memory_order_relaxed))
		stress_sleep_ns(HWT_US(50));
	stress_must(!hwt_shared(&shared), "hwt_shared");
	return NULL;
}

static void
shared_check(void)
{
	pthread_t thread = stress_thread(find_thread, NULL);
	struct hwt *shared;

	stress_must(!hwt_shared(&shared), "hwt_shared");
	atomic_store_explicit(&shared_made, true, memory_order_relaxed);
	stress_join(thread);
}

int
main(int argc, char **argv)
{
	struct hwt_unprocessed unprocessed;
	pthread_t threads[THREADS];
	unsigned i;

	stress_begin("made_and_gone", argc, argv);
	pthread_barrier_init(&measured, NULL, THREADS);
	stress_phase("shared", 0);
	shared_check();
	stress_phase("lives", 0);
	for (i = 0; i < THREADS; i++)
		threads[i] = stress_thread(lives_thread, (void *)(uintptr_t)i);
	for (i = 0; i < THREADS; i++)
		stress_join(threads[i]);
	stress_phase("the end", 0);
	sizes_check();
	registry_check();
	stress_check(!hwt_shared_shutdown(&unprocessed), "hwt_shared_shutdown");
	stress_check(
	    accepted == started + cancelled + listed + unprocessed.count,
	    "accepted %" PRIu64 ", ended %" PRIu64, (uint64_t)accepted,
	    started + cancelled + listed + unprocessed.count);
	return stress_end("%" PRIu64 " lives of timers; %u mappings, %u "
			  "descriptors, %u threads, RSS %" PRIu64
			  "; then %u, %u, %u, %" PRIu64,
	    THREADS * stress_scaled(LIVES), early.maps, early.files,
	    early.threads, early.rss_bytes, late.maps, late.files, late.threads,
	    late.rss_bytes);
}
