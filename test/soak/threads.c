/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hours of everything: does it stay correct, on time and small?
 *
 *   actors    threads that schedule (alone, in batches, periodic), cancel,
 *             cancel and wait, reschedule and look, on two long-lived timers
 *             and six kinds of executor; each also meddles with the others'
 *   passers   short-lived threads: each makes and destroys a timer, a pool and
 *             a mailbox, and leaves timeouts behind on the long-lived timer
 *   children  are forked now and then, and live with timers of their own
 *   control   a thread that does nothing but sleep from millisecond to
 *             millisecond: its lag is what the machine itself took away
 *
 * Each timeout has an item that counts its ends, so that at the end all that
 * was accepted has started, was cancelled or was returned, once each. None
 * may start early. Lateness is told beside the control thread's lag, and not
 * judged: the machine has other things to do. Memory is: RSS at a tenth of the
 * time and at the end may differ by RSS_BOUND, and the numbers of mappings and
 * descriptors by MAPS_SLACK, where one for each passer would be thousands.
 *
 *   threads [--seconds N] [--seed S]
 *
 * With SOAK_DIR in the environment, its threads.csv gets a line of figures
 * every few seconds. The last lines of output are the figures of the run.
 */
#include "../stress/fork.h"

enum {
	ACTORS = 8,
	ITEMS = 512,
	PERIODIC_ONE_IN = 8,
	PASSERS = 2,
	PASSER_TIMEOUTS = 64,
	LOOPS = 2,
	TIMERS = 2,
	BATCH_MAX = 16,
	BURST = 64,
	POOL_THREADS = 3,
	POOL_LIMIT = 64,
	FORK_EVERY_S = 5,
	/* A hundredth of a tick each; the last one takes what is beyond. */
	LATENESS_BUCKETS = 20000,
	MAPS_SLACK = 64,
	/* Until all is at its usual size, in a run of seconds. */
	SHORT_RUN_S = 60,
	SHORT_SLACK = 1 << 19
};

#define RSS_BOUND 1.2

static const uint64_t tick_ns = HWT_MS(10);

enum kind {
	INLINE,
	POOL,
	MAILBOX,
	OTHER_MAILBOX,
	REFUSING,
	AT_ONCE,
	KINDS
};

/* Owned by one actor. Whoever ends its timeout counts that in ends, and then
 * sets done: from there on the owner may use it again. */
struct item {
	/* Fixed. */
	struct hwt *timer;
	bool periodic;
	/* Of the pending timeout; 0 while there is none to meddle with. */
	atomic_uint_fast64_t id;
	atomic_uint ends;
	atomic_bool done, running;
	/* No start before this, by CLOCK_MONOTONIC. */
	atomic_uint_fast64_t due_ns;
	atomic_bool moved;
	atomic_uint_fast64_t runs;
	/* Owner's. */
	bool busy;
};

struct actor {
	uint64_t random;
	pthread_t thread;
	struct item items[ITEMS];
};

/* A distribution, in hundredths of a tick. */
struct lateness {
	atomic_uint_fast64_t bucket[LATENESS_BUCKETS];
	atomic_uint_fast64_t max_ns;
};

struct sample {
	double second;
	uint64_t rss_bytes, memory_bytes;
	unsigned maps, files, threads;
};

static struct hwt *timers[TIMERS];
static struct hwt_pool *pool;
static struct loop loops[LOOPS];
static const struct hwt_executor *executors[KINDS];
static struct actor actors[ACTORS];
static struct lateness late, lag;
static atomic_bool quit;
static atomic_uint_fast64_t operations, accepted, started, cancelled;
static atomic_uint_fast64_t given_back, last_runs, periodic_runs, rescheduled;
static atomic_uint_fast64_t early, lost, passed, children;

static void
count(atomic_uint_fast64_t *counter, uint64_t by)
{
	atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static void
lateness_add(struct lateness *lateness, uint64_t ns)
{
	uint64_t bucket = ns / (tick_ns / 100);

	if (bucket >= LATENESS_BUCKETS)
		bucket = LATENESS_BUCKETS - 1;
	count(&lateness->bucket[bucket], 1);
	if (ns > atomic_load_explicit(&lateness->max_ns, memory_order_relaxed))
		atomic_store_explicit(
		    &lateness->max_ns, ns, memory_order_relaxed);
}

/* In ticks: the end of the bucket in which the rank is. */
static double
lateness_rank(const struct lateness *lateness, double rank)
{
	uint64_t total = 0, below = 0;
	unsigned i;

	for (i = 0; i < LATENESS_BUCKETS; i++)
		total += lateness->bucket[i];
	for (i = 0; i < LATENESS_BUCKETS - 1; i++) {
		below += lateness->bucket[i];
		if ((double)below >= rank * (double)total)
			break;
	}
	return (i + 1) / 100.0;
}

static void
item_end(struct item *item, atomic_uint_fast64_t *how)
{
	unsigned before = atomic_fetch_add(&item->ends, 1);

	stress_check(!before, "a timeout ended %u times", before + 1);
	count(how, 1);
}

static void
check_not_early(struct item *item, uint64_t now_ns)
{
	uint64_t due_ns = atomic_load(&item->due_ns);

	if (now_ns >= due_ns)
		return;
	count(&early, 1);
	stress_fail("started %" PRIu64 " ns early", due_ns - now_ns);
}

static void
check_handle(struct item *item, hwt_timeout timeout)
{
	uint64_t id = atomic_load(&item->id);

	stress_check(!id || id == timeout.id, "a task got another's handle");
}

static void
once_task(hwt_timeout timeout, void *arg)
{
	uint64_t now_ns = stress_now_ns();
	struct item *item = arg;

	check_handle(item, timeout);
	check_not_early(item, now_ns);
	if (item->timer == timers[0] && !atomic_load(&item->moved))
		lateness_add(&late, now_ns - atomic_load(&item->due_ns));
	item_end(item, &started);
	atomic_store(&item->done, true);
}

/* The grid moves on by whole periods, at least by one. */
static void
periodic_task(hwt_timeout timeout, void *arg)
{
	uint64_t now_ns = stress_now_ns();
	struct item *item = arg;

	stress_check(!atomic_exchange(&item->running, true), "runs overlap");
	stress_check(!atomic_load(&item->ends), "a run after the end");
	check_handle(item, timeout);
	check_not_early(item, now_ns);
	count(&item->runs, 1);
	count(&periodic_runs, 1);
	atomic_store(&item->running, false);
}

static int
refuse(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	(void)timer;
	(void)timeout;
	return 1;
}

static int
run_at_once(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	hwt_run(timer, timeout);
	return 0;
}

static uint64_t
some_delay(uint64_t *random)
{
	switch (random_below(random, 16)) {
	case 0:
		return 0;
	case 1:
		return HWT_NEVER;
	case 2:
		return HWT_SEC(3600) + random_below(random, HWT_SEC(3600));
	case 3:
		return random_below(random, HWT_SEC(20));
	default:
		return random_below(random, HWT_MS(300));
	}
}

static struct hwt_spec
item_prepare(struct item *item, uint64_t *random)
{
	struct hwt_spec spec = {
	    .task = item->periodic ? periodic_task : once_task,
	    .arg = item,
	    .delay_ns = some_delay(random),
	    .executor = executors[random_below(random, KINDS)]};

	if (item->periodic)
		spec.period_ns = 1 + random_below(random, HWT_MS(200));
	atomic_store(&item->id, 0);
	atomic_store(&item->ends, 0);
	atomic_store(&item->done, false);
	atomic_store(&item->moved, false);
	atomic_store(&item->runs, 0);
	atomic_store(&item->due_ns,
	    spec.delay_ns >= INT64_MAX ? INT64_MAX
				       : stress_now_ns() + spec.delay_ns);
	return spec;
}

static void
item_accepted(struct item *item, hwt_timeout timeout)
{
	item->busy = true;
	atomic_store(&item->id, timeout.id);
}

static void
schedule_one(struct item *item, uint64_t *random)
{
	struct hwt_spec spec = item_prepare(item, random);
	hwt_timeout timeout;
	int error;

	count(&operations, 1);
	if (item->periodic)
		error = hwt_new_timeouts(item->timer, 1, &spec, &timeout);
	else
		error = hwt_new_timeout_on(item->timer, spec.executor, &timeout,
		    spec.task, item, spec.delay_ns);
	stress_must(!error, "schedule: %d", error);
	count(&accepted, 1);
	item_accepted(item, timeout);
}

/* The idle ones from this item on, all of one timer. */
static void
schedule_batch(struct actor *actor, unsigned first)
{
	struct hwt_spec specs[BATCH_MAX];
	hwt_timeout timeouts[BATCH_MAX];
	struct item *batch[BATCH_MAX];
	unsigned size = 0, i;
	int error;

	for (i = first; i < ITEMS && size < BATCH_MAX; i += TIMERS) {
		if (actor->items[i].busy)
			continue;
		batch[size] = &actor->items[i];
		specs[size] = item_prepare(batch[size], &actor->random);
		size++;
	}
	count(&operations, 1);
	error = hwt_new_timeouts(timers[first % TIMERS], size, specs, timeouts);
	stress_must(!error, "hwt_new_timeouts: %d", error);
	count(&accepted, size);
	for (i = 0; i < size; i++)
		item_accepted(batch[i], timeouts[i]);
}

/* Pulled in, the earlier time counts from before the call, since the task may
 * start before it returns; pushed out, the later one from after it. */
static void
reschedule(struct item *item, uint64_t *random)
{
	uint64_t delay_ns = some_delay(random);
	uint64_t old_ns = atomic_load(&item->due_ns), new_ns = INT64_MAX;
	hwt_timeout timeout = {atomic_load(&item->id)};
	int error;

	if (delay_ns < INT64_MAX)
		new_ns = stress_now_ns() + delay_ns;
	atomic_store(&item->moved, true);
	if (new_ns < old_ns)
		atomic_store(&item->due_ns, new_ns);
	count(&operations, 1);
	error = hwt_reschedule(item->timer, timeout, delay_ns);
	stress_check(!error || error == -ENOENT || error == -EINPROGRESS,
	    "hwt_reschedule: %d", error);
	if (error)
		return;
	count(&rescheduled, 1);
	if (!item->periodic && new_ns > old_ns)
		atomic_store(&item->due_ns, new_ns);
}

static void
look(struct item *item)
{
	int64_t remaining_ns;
	int error = hwt_remaining(
	    item->timer, (hwt_timeout){atomic_load(&item->id)}, &remaining_ns);

	count(&operations, 1);
	stress_check(!error || error == -ENOENT || error == -EINPROGRESS,
	    "hwt_remaining: %d", error);
}

static void
cancel(struct item *item, bool wait)
{
	hwt_timeout timeout = {atomic_load(&item->id)};
	int error;

	if (!timeout.id)
		return;
	count(&operations, 1);
	error = wait ? hwt_cancel_wait(item->timer, timeout)
		     : hwt_cancel(item->timer, timeout);
	stress_check(
	    !error || error == -ENOENT || (!wait && error == -EINPROGRESS),
	    "cancel: %d", error);
	if (error)
		return;
	item_end(item, &cancelled);
	atomic_store(&item->done, true);
}

/* Nobody else ends a periodic one, so its owner must win. */
static void
periodic_step(struct item *item, uint64_t *random)
{
	if (random_below(random, 16)) {
		if (random_below(random, 2))
			reschedule(item, random);
		else
			look(item);
		return;
	}
	cancel(item, true);
	stress_check(atomic_load(&item->ends) && !atomic_load(&item->running),
	    "hwt_cancel_wait did not end a periodic timeout");
}

static void
once_step(struct item *item, uint64_t *random)
{
	switch (random_below(random, 8)) {
	case 0:
		cancel(item, true);
		break;
	case 1:
	case 2:
		reschedule(item, random);
		break;
	case 3:
		look(item);
		break;
	default:
		cancel(item, false);
	}
}

static void
actor_step(struct actor *actor)
{
	unsigned index = (unsigned)random_below(&actor->random, ITEMS);
	struct item *item = &actor->items[index];

	if (item->busy && atomic_load(&item->done))
		item->busy = false;
	if (!item->busy && random_below(&actor->random, 32))
		schedule_one(item, &actor->random);
	else if (!item->busy)
		schedule_batch(actor, index);
	else if (item->periodic)
		periodic_step(item, &actor->random);
	else
		once_step(item, &actor->random);
}

/* With a timeout of another actor, which may be over at any moment. */
static void
meddle(uint64_t *random)
{
	struct actor *actor = &actors[random_below(random, ACTORS)];
	struct item *item = &actor->items[random_below(random, ITEMS)];

	if (item->periodic || random_below(random, 4) == 0)
		look(item);
	else
		cancel(item, !random_below(random, 8));
}

static void *
actor_thread(void *arg)
{
	struct actor *actor = arg;
	unsigned i;

	while (!atomic_load(&quit)) {
		for (i = 0; i < BURST; i++)
			actor_step(actor);
		meddle(&actor->random);
		stress_sleep_ns(random_below(&actor->random, HWT_MS(4)));
	}
	return NULL;
}

/* On a long-lived timer, of nobody's items. */
static void
passing_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	count(&started, 1);
}

static void
pass_by(uint64_t *random)
{
	struct hwt *timer = timers[random_below(random, TIMERS)];
	hwt_timeout timeout;
	unsigned i;
	int error;

	for (i = 0; i < PASSER_TIMEOUTS; i++) {
		error = hwt_new_timeout(timer, &timeout, passing_task, NULL,
		    random_below(random, HWT_MS(100)));
		stress_must(!error, "hwt_new_timeout: %d", error);
		count(&accepted, 1);
		if (random_below(random, 2) && !hwt_cancel(timer, timeout))
			count(&cancelled, 1);
	}
	count(&operations, PASSER_TIMEOUTS);
}

static void
counting_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	atomic_fetch_add((atomic_uint *)arg, 1);
}

/* A timer, a pool and a mailbox, from their making to their end. */
static void
made_and_destroyed(uint64_t *random)
{
	const struct hwt_executor *own[3] = {NULL};
	struct hwt_unprocessed unprocessed;
	struct hwt_pool *own_pool;
	struct loop loop;
	atomic_uint ended = 0;
	hwt_timeout timeout;
	struct hwt *timer =
	    timer_create_ns(HWT_US(10) << random_below(random, 10),
		1u << random_below(random, 10),
		random_below(random, 2) ? HWT_RELAXED : 0);
	unsigned i;

	stress_must(!hwt_pool_create(&own_pool, 1, 0), "hwt_pool_create");
	loop_start(&loop, random_below(random, 2));
	own[1] = hwt_pool_executor(own_pool);
	own[2] = hwt_mailbox_executor(loop.mailbox);
	for (i = 0; i < PASSER_TIMEOUTS; i++) {
		stress_must(
		    !hwt_new_timeout_on(timer, own[i % 3], &timeout,
			counting_task, &ended, random_below(random, HWT_MS(2))),
		    "hwt_new_timeout_on");
		if (random_below(random, 2) && !hwt_cancel(timer, timeout))
			atomic_fetch_add(&ended, 1);
	}
	stress_sleep_ns(random_below(random, HWT_MS(3)));
	while (hwt_stop_within(
	    timer, random_below(random, HWT_US(50)), &unprocessed))
		continue;
	stress_check(!hwt_pool_destroy(own_pool), "hwt_pool_destroy");
	loop_stop(&loop);
	stress_check(ended + unprocessed.count == PASSER_TIMEOUTS,
	    "%u ended and %" PRIu64 " returned, of %d", ended,
	    unprocessed.count, PASSER_TIMEOUTS);
	stress_check(!hwt_destroy(timer), "hwt_destroy");
}

static void *
passer_thread(void *arg)
{
	uint64_t *random = arg;

	pass_by(random);
	made_and_destroyed(random);
	count(&passed, 1);
	return NULL;
}

static void *
passers_thread(void *arg)
{
	uint64_t random = random_seed(100 + (uintptr_t)arg);

	while (!atomic_load(&quit)) {
		stress_join(stress_thread(passer_thread, &random));
		stress_sleep_ns(random_below(&random, HWT_MS(20)));
	}
	return NULL;
}

static void *
control_thread(void *arg)
{
	uint64_t begun_ns;

	while (!atomic_load(&quit)) {
		begun_ns = stress_now_ns();
		stress_sleep_ns(HWT_MS(1));
		lateness_add(&lag, stress_now_ns() - begun_ns - HWT_MS(1));
	}
	return arg;
}

/* Sanitizers do not follow threads into a child of many threads. */
static void
fork_now_and_then(void)
{
	static uint64_t next_ns;
	struct family family = {.timer = timers[0]};
	pid_t child;

	if (STRESS_TSAN || STRESS_ASAN || stress_now_ns() < next_ns)
		return;
	next_ns = stress_now_ns() + HWT_SEC(FORK_EVERY_S);
	child = fork();
	stress_must(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		atomic_store(&stress.failures, 0);
		check_dead(hwt_start(timers[0]));
		child_live(&family, true, true);
		stress_check(!hwt_destroy(timers[0]), "in a child: destroy");
		_exit(atomic_load(&stress.failures) ? 1 : 0);
	}
	child_reap(child);
	count(&children, 1);
}

static struct sample
sample_now(uint64_t begun_ns)
{
	return (struct sample){
	    .second = (double)(stress_now_ns() - begun_ns) / 1e9,
	    .rss_bytes = rss_bytes(),
	    .memory_bytes = timer_stats(timers[0]).memory_bytes +
		timer_stats(timers[1]).memory_bytes,
	    .maps = maps_entries(),
	    .files = folder_entries("/proc/self/fd"),
	    .threads = threads_now()};
}

static FILE *
csv_open(void)
{
	const char *folder = getenv("SOAK_DIR");
	char path[4096];
	FILE *csv;

	if (!folder)
		return NULL;
	snprintf(path, sizeof(path), "%s/threads.csv", folder);
	csv = fopen(path, "w");
	stress_must(csv, "%s: %s", path, strerror(errno));
	setvbuf(csv, NULL, _IOLBF, 0);
	fprintf(csv,
	    "second,operations,accepted,started,cancelled,rescheduled,"
	    "periodic_runs,early,rss_bytes,memory_bytes,maps,files,threads,"
	    "late_p50,late_p99,late_max,lag_p50,lag_p99,lag_max\n");
	return csv;
}

static double
ticks(uint64_t ns)
{
	return (double)ns / (double)tick_ns;
}

static void
csv_write(FILE *csv, const struct sample *sample)
{
	if (!csv)
		return;
	fprintf(csv,
	    "%.1f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
	    ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%u,%u,%u,"
	    "%.2f,%.2f,%.2f,%.2f,%.2f,%.2f\n",
	    sample->second, (uint64_t)operations, (uint64_t)accepted,
	    (uint64_t)started, (uint64_t)cancelled, (uint64_t)rescheduled,
	    (uint64_t)periodic_runs, (uint64_t)early, sample->rss_bytes,
	    sample->memory_bytes, sample->maps, sample->files, sample->threads,
	    lateness_rank(&late, 0.5), lateness_rank(&late, 0.99),
	    ticks(late.max_ns), lateness_rank(&lag, 0.5),
	    lateness_rank(&lag, 0.99), ticks(lag.max_ns));
}

/* Returns when the time is over. samples: at a tenth of it and at the end. */
static void
watch(uint64_t seconds, struct sample samples[2])
{
	uint64_t begun_ns = stress_now_ns();
	uint64_t end_ns = begun_ns + HWT_SEC(seconds);
	uint64_t every_ns = HWT_MS(100) * (1 + seconds / 5);
	uint64_t tenth_ns = begun_ns + HWT_SEC(seconds) / 10;
	FILE *csv = csv_open();
	bool early_taken = false;

	if (every_ns > HWT_SEC(5))
		every_ns = HWT_SEC(5);
	while (stress_now_ns() < end_ns) {
		stress_phase("soak", (stress_now_ns() - begun_ns) / 1000000000);
		stress_sleep_ns(every_ns);
		fork_now_and_then();
		samples[1] = sample_now(begun_ns);
		csv_write(csv, &samples[1]);
		if (!early_taken && stress_now_ns() >= tenth_ns) {
			samples[0] = samples[1];
			early_taken = true;
		}
	}
	if (csv)
		fclose(csv);
}

static void
items_make(void)
{
	unsigned i, k;

	for (i = 0; i < ACTORS; i++) {
		for (k = 0; k < ITEMS; k++) {
			struct item *item = &actors[i].items[k];

			item->timer = timers[k % TIMERS];
			item->periodic = k / TIMERS % PERIODIC_ONE_IN == 0;
		}
	}
}

static void
executors_make(void)
{
	static const struct hwt_executor refusing = {refuse, NULL};
	static const struct hwt_executor at_once = {run_at_once, NULL};
	unsigned i;

	stress_must(!hwt_pool_create(&pool, POOL_THREADS, POOL_LIMIT),
	    "hwt_pool_create");
	for (i = 0; i < LOOPS; i++)
		loop_start(&loops[i], i ? 0 : 8);
	executors[POOL] = hwt_pool_executor(pool);
	executors[MAILBOX] = hwt_mailbox_executor(loops[0].mailbox);
	executors[OTHER_MAILBOX] = hwt_mailbox_executor(loops[1].mailbox);
	executors[REFUSING] = &refusing;
	executors[AT_ONCE] = &at_once;
}

static void
stop_and_walk(struct hwt *timer)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;

	stress_must(!hwt_stop(timer, &unprocessed), "hwt_stop");
	while (hwt_unprocessed_next(&unprocessed, &info)) {
		struct item *item = info.arg;

		if (item)
			item_end(item, &given_back);
		else
			count(&given_back, 1);
	}
}

/* Nothing runs any more. Stop makes a run that is under way the last one. */
static void
item_verify(struct item *item)
{
	if (!item->busy || atomic_load(&item->ends) == 1)
		return;
	if (item->periodic && !atomic_load(&item->ends) &&
	    atomic_load(&item->runs)) {
		count(&last_runs, 1);
		return;
	}
	count(&lost, 1);
	stress_fail("a timeout is lost: ended %u times", item->ends);
}

static void
verify(void)
{
	uint64_t ended = started + cancelled + given_back;
	uint64_t stats_accepted = 0, stats_started = 0, stats_cancelled = 0;
	struct hwt_stats stats;
	unsigned i, k;

	for (i = 0; i < ACTORS; i++)
		for (k = 0; k < ITEMS; k++)
			item_verify(&actors[i].items[k]);
	stress_check(accepted == ended + last_runs,
	    "accepted %" PRIu64 ", ended %" PRIu64, (uint64_t)accepted,
	    ended + last_runs);
	for (i = 0; i < TIMERS; i++) {
		stats = timer_stats(timers[i]);
		stats_accepted += stats.scheduled;
		stats_started += stats.started;
		stats_cancelled += stats.cancelled;
		stress_check(!stats.pending, "pending at the end");
	}
	stress_check(stats_accepted == accepted &&
		stats_started == started + periodic_runs &&
		stats_cancelled == cancelled,
	    "the timers count %" PRIu64 " accepted, %" PRIu64
	    " started, %" PRIu64 " cancelled",
	    stats_accepted, stats_started, stats_cancelled);
}

static void
run(uint64_t seconds, struct sample samples[2])
{
	pthread_t passers[PASSERS], control;
	unsigned i;

	timers[0] = timer_create_ns(tick_ns, 512, 0);
	timers[1] = timer_create_ns(HWT_MS(1), 64, HWT_RELAXED);
	executors_make();
	items_make();
	control = stress_thread(control_thread, NULL);
	for (i = 0; i < ACTORS; i++) {
		actors[i].random = random_seed(i);
		actors[i].thread = stress_thread(actor_thread, &actors[i]);
	}
	for (i = 0; i < PASSERS; i++)
		passers[i] =
		    stress_thread(passers_thread, (void *)(uintptr_t)i);
	watch(seconds, samples);
	atomic_store(&quit, true);
	stress_phase("threads end", 0);
	for (i = 0; i < ACTORS; i++)
		stress_join(actors[i].thread);
	for (i = 0; i < PASSERS; i++)
		stress_join(passers[i]);
	stress_join(control);
	stress_phase("stop", 0);
	for (i = 0; i < TIMERS; i++)
		stop_and_walk(timers[i]);
	stress_check(!hwt_pool_destroy(pool), "hwt_pool_destroy");
	for (i = 0; i < LOOPS; i++)
		loop_stop(&loops[i]);
	verify();
	for (i = 0; i < TIMERS; i++)
		stress_check(!hwt_destroy(timers[i]), "hwt_destroy");
}

static double
judge_memory(uint64_t seconds, const struct sample samples[2])
{
	double slack = seconds < SHORT_RUN_S ? SHORT_SLACK : 0;
	double ratio =
	    (double)samples[1].rss_bytes / (double)samples[0].rss_bytes;

	stress_check(!memory_is_ours() ||
		(double)samples[1].rss_bytes <=
		    RSS_BOUND * (double)samples[0].rss_bytes + slack,
	    "RSS grew from %" PRIu64 " to %" PRIu64, samples[0].rss_bytes,
	    samples[1].rss_bytes);
	stress_check(!memory_is_ours() ||
		samples[1].maps <= samples[0].maps + MAPS_SLACK,
	    "mappings grew from %u to %u", samples[0].maps, samples[1].maps);
	stress_check(samples[1].files <= samples[0].files + MAPS_SLACK,
	    "descriptors grew from %u to %u", samples[0].files,
	    samples[1].files);
	return ratio;
}

static void
print_lateness(const char *what, const struct lateness *lateness)
{
	printf("%s p50 %.2f, p99 %.2f, max %.2f\n", what,
	    lateness_rank(lateness, 0.5), lateness_rank(lateness, 0.99),
	    ticks(lateness->max_ns));
}

static void
report(const struct sample samples[2])
{
	unsigned i;

	printf("%" PRIu64 " timers, pools and mailboxes made and destroyed by "
	       "as many threads; %" PRIu64 " children\n",
	    (uint64_t)passed, (uint64_t)children);
	for (i = 0; i < 2; i++)
		printf("at %.0f s: RSS %.1f MiB, memory_bytes %" PRIu64
		       ", %u mappings, %u descriptors, %u threads\n",
		    samples[i].second, (double)samples[i].rss_bytes / 1048576,
		    samples[i].memory_bytes, samples[i].maps, samples[i].files,
		    samples[i].threads);
	printf("accepted %" PRIu64 " = started %" PRIu64 " + cancelled %" PRIu64
	       " + returned %" PRIu64 " + %" PRIu64
	       " ended by their last run;\n%" PRIu64
	       " runs of periodic ones, %" PRIu64 " rescheduled\n",
	    (uint64_t)accepted, (uint64_t)started, (uint64_t)cancelled,
	    (uint64_t)given_back, (uint64_t)last_runs, (uint64_t)periodic_runs,
	    (uint64_t)rescheduled);
	print_lateness("lateness in ticks of 10 ms:", &late);
	print_lateness("lag of a thread that only sleeps:", &lag);
}

int
main(int argc, char **argv)
{
	char scale[32], *arguments[] = {argv[0], scale, NULL, NULL};
	struct sample samples[2] = {{0}};
	unsigned threads, files;
	uint64_t seconds = 10;
	double ratio;
	int i;

	for (i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seconds"))
			seconds = strtoull(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--seed"))
			arguments[2] = argv[i + 1];
	}
	/* For the watchdog alone: two minutes more than this will take. */
	snprintf(scale, sizeof(scale), "%" PRIu64, 200 * (1 + seconds / 120));
	stress_begin("threads", arguments[2] ? 3 : 2, arguments);
	threads = threads_now();
	files = folder_entries("/proc/self/fd");
	run(seconds, samples);
	stress_check(threads_now() == threads, "%u threads are left",
	    threads_now() - threads);
	stress_check(folder_entries("/proc/self/fd") == files,
	    "%u descriptors are left", folder_entries("/proc/self/fd") - files);
	ratio = judge_memory(seconds, samples);
	report(samples);
	return stress_end("%" PRIu64 " s, %" PRIu64
			  " operations, early %" PRIu64 ", lost %" PRIu64
			  ", RSS at the end %.3f times that at a tenth",
	    seconds, (uint64_t)operations, (uint64_t)early, (uint64_t)lost,
	    ratio);
}
