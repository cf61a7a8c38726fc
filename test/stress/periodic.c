/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Periodic timeouts, inline, in a pool and in a mailbox, against cancels,
 * reschedules from their own task and from elsewhere, and a stop.
 *
 * Runs of one timeout never overlap and are ordered, so all that its task
 * keeps is plain memory, which ThreadSanitizer watches. The k-th run of one
 * that nobody reschedules is not before its first deadline plus k periods. A
 * run after a reschedule from its own task is not before what was asked. After
 * a cancel that won there is no run; after -EINPROGRESS at most the one that
 * was under way. Each ends once: cancelled between runs, returned by stop,
 * or with a last run.
 */
#include "stress.h"

enum {
	ROUNDS = 70,
	BEATS = 30,
	/* With the worker and the loop, 3 to 16 threads. */
	MEDDLERS_MAX = 14
};

/* What other threads do to it. */
enum fate {
	LEFT_ALONE,
	CANCELLED_BY_OTHERS,
	CANCELLED_BY_ITSELF,
	RESCHEDULED_BY_ITSELF,
	RESCHEDULED_BY_OTHERS,
	FATES
};

struct beat {
	enum fate fate;
	hwt_timeout timeout;
	uint64_t delay_ns, period_ns, scheduled_ns;
	/* Of the task. */
	uint64_t random;
	uint64_t not_before_ns;
	uint64_t own_runs;
	bool own_last;

	/* Relaxed in the task, so that they give no order to its runs. */
	atomic_bool running;
	atomic_uint_fast64_t runs;
	/* Calls that were told 0; that were told -EINPROGRESS. */
	atomic_uint cancelled, interrupted, unprocessed;
	/* Runs at the return of the first call with -EINPROGRESS. */
	atomic_uint_fast64_t runs_at_interrupt;
};

static struct {
	struct hwt *timer;
	atomic_bool quit, stopped;
	struct beat beats[BEATS];
} round_;

static struct hwt_pool *pool;
static struct loop loop;
static uint64_t runs_total, cancelled_total, last_runs_total, listed_total;

static void
beat_told(struct beat *beat, int error)
{
	if (!error)
		atomic_fetch_add(&beat->cancelled, 1);
	else if (error == -EINPROGRESS &&
	    !atomic_fetch_add(&beat->interrupted, 1))
		atomic_store(
		    &beat->runs_at_interrupt, atomic_load(&beat->runs));
	else
		stress_check(error == -ENOENT || error == -EINPROGRESS,
		    "hwt_cancel: %d", error);
}

static void
beat_cancel_itself(struct beat *beat)
{
	int error = hwt_cancel(round_.timer, beat->timeout);

	stress_check(
	    error == -EINPROGRESS, "hwt_cancel from its own task: %d", error);
	beat_told(beat, error);
	error = hwt_reschedule(round_.timer, beat->timeout, 0);
	stress_check(error == -ENOENT,
	    "hwt_reschedule from its own task, cancelled: %d", error);
	beat->own_last = true;
}

/* -ENOENT: stop has made this run the last one. */
static void
beat_reschedule_itself(struct beat *beat)
{
	uint64_t delay_ns = random_below(&beat->random, HWT_MS(3));
	uint64_t asked_ns = stress_now_ns();
	int error = hwt_reschedule(round_.timer, beat->timeout, delay_ns);

	stress_check(!error || error == -ENOENT,
	    "hwt_reschedule from its own task: %d", error);
	if (!error)
		beat->not_before_ns = asked_ns + delay_ns;
	else
		beat->own_last = true;
}

static void
task(hwt_timeout timeout, void *arg)
{
	struct beat *beat = arg;
	uint64_t now_ns = stress_now_ns();

	stress_check(!atomic_exchange_explicit(
			 &beat->running, true, memory_order_relaxed),
	    "runs overlap");
	atomic_fetch_add_explicit(&beat->runs, 1, memory_order_relaxed);
	stress_check(timeout.id == beat->timeout.id, "another's handle");
	stress_check(
	    !atomic_load_explicit(&beat->cancelled, memory_order_relaxed),
	    "a run after a cancel");
	stress_check(!beat->own_last, "a run after the last one");
	stress_check(now_ns >= beat->not_before_ns,
	    "run %" PRIu64 " is %" PRIu64 " ns early", beat->own_runs,
	    beat->not_before_ns - now_ns);
	beat->own_runs++;
	if (!random_below(&beat->random, 8))
		stress_spin(random_below(&beat->random, 1000000));
	if (beat->fate < RESCHEDULED_BY_ITSELF)
		beat->not_before_ns += beat->period_ns;
	if (beat->fate == RESCHEDULED_BY_ITSELF &&
	    random_below(&beat->random, 2))
		beat_reschedule_itself(beat);
	if (beat->fate == CANCELLED_BY_ITSELF &&
	    !random_below(&beat->random, 20))
		beat_cancel_itself(beat);
	atomic_store_explicit(&beat->running, false, memory_order_relaxed);
}

static void
beat_schedule(struct beat *beat, uint64_t *random)
{
	const struct hwt_executor *executors[] = {
	    NULL, hwt_pool_executor(pool), hwt_mailbox_executor(loop.mailbox)};
	struct hwt_spec spec = {.task = task, .arg = beat};
	int error;

	beat->fate = (enum fate)random_below(random, FATES);
	beat->random = random_next(random);
	spec.delay_ns = random_below(random, HWT_MS(3));
	spec.period_ns = 1 + random_below(random, HWT_MS(2));
	spec.executor = executors[random_below(random, 3)];
	beat->period_ns = spec.period_ns;
	if (beat->fate != RESCHEDULED_BY_OTHERS)
		beat->not_before_ns = stress_now_ns() + spec.delay_ns;
	error = hwt_new_timeouts(round_.timer, 1, &spec, &beat->timeout);
	stress_must(!error, "hwt_new_timeouts: %d", error);
}

static void
meddle(struct beat *beat, uint64_t *random)
{
	int error;

	if (beat->fate == CANCELLED_BY_OTHERS && !random_below(random, 16)) {
		beat_told(beat, hwt_cancel(round_.timer, beat->timeout));
	} else if (beat->fate == RESCHEDULED_BY_OTHERS) {
		error = hwt_reschedule(round_.timer, beat->timeout,
		    random_below(random, HWT_MS(3)));
		stress_check(
		    !error || error == -EINPROGRESS || error == -ENOENT,
		    "hwt_reschedule: %d", error);
	}
}

static void *
meddler_thread(void *arg)
{
	uint64_t random = random_seed((uintptr_t)arg);

	while (!atomic_load(&round_.quit)) {
		meddle(&round_.beats[random_below(&random, BEATS)], &random);
		stress_sleep_ns(random_below(&random, 100000));
	}
	return NULL;
}

static uint64_t
round_stop(void)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	struct beat *beat;
	uint64_t listed = 0;
	int error = hwt_stop(round_.timer, &unprocessed);

	stress_must(!error, "hwt_stop: %d", error);
	while (hwt_unprocessed_next(&unprocessed, &info)) {
		beat = info.arg;
		listed++;
		atomic_fetch_add(&beat->unprocessed, 1);
		stress_check(info.period_ns == beat->period_ns,
		    "a period of %" PRIu64 " ns is returned as %" PRIu64,
		    beat->period_ns, info.period_ns);
	}
	stress_check(listed == unprocessed.count, "the list is not as long");
	return listed;
}

static void
beat_verify(struct beat *beat)
{
	unsigned cancelled = atomic_load(&beat->cancelled);
	unsigned interrupted = atomic_load(&beat->interrupted);
	unsigned unprocessed = atomic_load(&beat->unprocessed);

	stress_check(cancelled + unprocessed + !!interrupted <= 1,
	    "cancelled %u, returned %u, cancelled while running %u", cancelled,
	    unprocessed, interrupted);
	stress_check(cancelled + unprocessed || beat->own_runs,
	    "a timeout ended without a run, a cancel, or a stop");
	stress_check(!interrupted || beat->runs <= beat->runs_at_interrupt + 1,
	    "%" PRIu64 " runs after the last one",
	    (uint64_t)(beat->runs - beat->runs_at_interrupt));
	stress_check(beat->own_runs == beat->runs, "a run was not seen");
	runs_total += beat->own_runs;
	cancelled_total += cancelled;
	last_runs_total += !(cancelled + unprocessed);
}

static void
round_executors_start(uint64_t *random)
{
	int error =
	    hwt_pool_create(&pool, 1 + (unsigned)random_below(random, 3), 0);

	stress_must(!error, "hwt_pool_create: %d", error);
	loop_start(&loop, random_below(random, 2) ? 0 : 2);
}

static void
round_run(uint64_t *random, uint64_t number)
{
	pthread_t meddlers[MEDDLERS_MAX];
	unsigned meddling = 1 + (unsigned)(number % MEDDLERS_MAX);
	uint64_t runs_before = runs_total, cancelled_before = cancelled_total;
	struct hwt_stats stats;
	unsigned i;

	stress_phase("run", number);
	memset(&round_, 0, sizeof(round_));
	round_executors_start(random);
	round_.timer =
	    timer_create_ns(HWT_US(100 + random_below(random, 900)), 64, 0);
	for (i = 0; i < BEATS; i++)
		beat_schedule(&round_.beats[i], random);
	for (i = 0; i < meddling; i++)
		meddlers[i] = stress_thread(meddler_thread,
		    (void *)(uintptr_t)(number * MEDDLERS_MAX + i));
	stress_sleep_ns(random_below(random, HWT_MS(200)));
	stress_phase("stop", number);
	listed_total += round_stop();
	atomic_store(&round_.quit, true);
	for (i = 0; i < meddling; i++)
		stress_join(meddlers[i]);
	stress_phase("executors drain", number);
	stress_check(!hwt_pool_destroy(pool), "hwt_pool_destroy");
	loop_stop(&loop);
	for (i = 0; i < BEATS; i++)
		beat_verify(&round_.beats[i]);
	stats = timer_stats(round_.timer);
	stress_check(stats.started == runs_total - runs_before,
	    "stats.started %" PRIu64 " for %" PRIu64 " runs", stats.started,
	    runs_total - runs_before);
	stress_check(stats.cancelled == cancelled_total - cancelled_before,
	    "stats.cancelled %" PRIu64, stats.cancelled);
	stress_check(!stats.pending, "%" PRIu64 " pending", stats.pending);
	stress_check(!hwt_destroy(round_.timer), "hwt_destroy");
}

static bool
saw_every_end(void)
{
	return runs_total && cancelled_total && listed_total && last_runs_total;
}

int
main(int argc, char **argv)
{
	uint64_t rounds;

	stress_begin("periodic", argc, argv);
	rounds = stress_rounds(ROUNDS, round_run, saw_every_end);
	return stress_end("%" PRIu64 " timeouts, %" PRIu64
			  " runs; ended: %" PRIu64 " cancelled, %" PRIu64
			  " returned, %" PRIu64 " with a last run",
	    rounds * BEATS, runs_total, cancelled_total, listed_total,
	    last_runs_total);
}
