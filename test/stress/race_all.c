/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything at once: producers, cancellers and reschedulers against the
 * worker, executors of five kinds, two of them mailboxes, and stops at a random
 * moment. Tasks cancel as well, those of a mailbox on their loop's thread.
 *
 * A round makes a timer, lets 2 to 16 threads at it, a number after the other,
 * and stops it from up to three threads at the same time. Each timeout has an
 * item that counts how it ended: started, cancelled, unprocessed. When the
 * executors have drained, each accepted item must have ended exactly once and
 * each refused one never; one stop must have got the list; the sums must be
 * those of hwt_read_stats; no task may have started before its time by
 * CLOCK_MONOTONIC; nothing may be pending.
 *
 * Some items of batches are periodic. Such a one ends when it is cancelled or
 * returned; or its last run ends it, because a cancel or the stop came while
 * it was in an executor or running. Its k-th run is not before its first
 * deadline and k periods. Runs do not overlap and are ordered, so that what
 * they keep is plain memory. Now and then its task moves it, or makes that run
 * the last.
 *
 * The payload of an item is a plain word on purpose. It belongs to the
 * producer, then to whoever ends the timeout; ThreadSanitizer thus checks the
 * ownership of arg and the order of memory, and a value that nobody could have
 * left there is told in a plain run too. Whoever has waited for a task finds it
 * ended, and a task never waits for itself.
 */
#include "stress.h"

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

enum {
	ITEMS = 60000,
	ROUNDS = 150,
	BATCH_MAX = 16,
	/* Cancellers choose among that many of the newest timeouts. */
	WINDOW = 2048,
	HELD_MAX = 256,
	THREADS_MIN = 2,
	THREADS_MAX = 16,
	STOPPERS_MAX = 3,
	LOOPS = 2
};

enum {
	STARTED = 1,
	CANCELLED = 1 << 24,
	UNPROCESSED = 1 << 28
};

/* What a thread of a round does. */
enum role {
	PRODUCE,
	CANCEL,
	RESCHEDULE,
	ROLES
};

enum kind {
	INLINE,
	POOL,
	MAILBOX,
	OTHER_MAILBOX,
	REFUSING,
	MOODY,
	KINDS
};

#define PAYLOAD_SCHEDULED(index) (UINT64_C(0x5c4ed00000000000) + (index))
#define PAYLOAD_ENDED(index) (UINT64_C(0xe4ded00000000000) + (index))

struct item {
	enum kind kind;
	bool accepted;
	/* Counts of each end, in bits of their own. */
	atomic_uint ends;
	/* Set when the handle may be read by others. */
	atomic_bool published;
	/* Held by the one thread that reschedules this item. */
	atomic_bool rescheduling;
	uint64_t payload;
	/* started_ns: of the last run. */
	uint64_t due_ns, started_ns, period_ns;
	/* Relaxed, so that it gives no order to what the library must order. */
	atomic_bool running;
	/* Of a periodic one. moved: another thread has moved its grid. last:
	 * its task was told that there is no run after this one. runs_max: not
	 * 0 when a cancel was told -EINPROGRESS. */
	atomic_bool moved;
	bool last;
	atomic_uint runs_max;
};

/* Timeouts that the moody executor has accepted for its own thread. */
struct held {
	pthread_mutex_t mutex;
	pthread_cond_t filled;
	hwt_timeout timeouts[HELD_MAX];
	unsigned count;
	bool quit;
	pthread_t thread;
};

static struct {
	struct hwt *timer;
	struct hwt_pool *pool;
	struct loop loops[LOOPS];
	struct held held;
	const struct hwt_executor *executors[KINDS];
	uint64_t tick_ns;
	atomic_uint taken;
	atomic_bool stopped, quit;
	/* By max_pending; by executors. */
	atomic_uint_fast64_t rejected, refused;
	atomic_uint_fast64_t rescheduled;
	/* Accepted, ended by a task, cancelled, unprocessed. */
	uint64_t counts[4];
	/* As hwt_read_stats counts them: each run. */
	uint64_t runs;
	/* Stops that got a list that was not empty. */
	atomic_uint lists;
	struct item items[ITEMS];
	hwt_timeout handles[ITEMS];
} round_;

static uint64_t total_accepted, total_started, total_cancelled;
static uint64_t total_unprocessed, total_rescheduled, total_periodic_runs;

/* To be called by whoever has just ended the timeout, or by its task. */
static void
item_take_back(struct item *item)
{
	uint64_t index = (uint64_t)(item - round_.items);

	stress_check(item->payload == PAYLOAD_SCHEDULED(index),
	    "item %" PRIu64 ": arg is not as it was lent", index);
	item->payload = PAYLOAD_ENDED(index);
}

static void
item_end(struct item *item, unsigned how)
{
	atomic_fetch_add_explicit(&item->ends, how, memory_order_relaxed);
}

/* A call was told that the timeout has ended. If a task has run then all that
 * it wrote must be seen. */
static void
item_seen_ended(struct item *item)
{
	uint64_t index = (uint64_t)(item - round_.items);

	if (item->period_ns ||
	    atomic_load_explicit(&item->ends, memory_order_relaxed) != STARTED)
		return;
	stress_check(item->payload == PAYLOAD_ENDED(index),
	    "item %" PRIu64 ": -ENOENT before its task had ended", index);
}

/* As only its own task can. -ENOENT: a cancel or the stop has made this run the
 * last. */
static void
periodic_move(struct item *item, hwt_timeout timeout, uint64_t delay_ns)
{
	int error = hwt_reschedule(round_.timer, timeout, delay_ns);

	stress_check(error == -ENOENT || (!error && !item->last),
	    "reschedule from its own task: %d, last %d", error, item->last);
	if (error) {
		item->last = true;
		return;
	}
	atomic_fetch_add(&round_.rescheduled, 1);
	item->due_ns = item->started_ns + delay_ns;
}

static void
periodic_act(struct item *item, hwt_timeout timeout)
{
	uint64_t random = item->started_ns;
	int error;

	if (!random_below(&random, 16)) {
		error = hwt_cancel(round_.timer, timeout);
		stress_check(error == -EINPROGRESS,
		    "cancel from its own task: %d", error);
		item->last = true;
	}
	if (!random_below(&random, 4))
		periodic_move(
		    item, timeout, random_below(&random, 5 * round_.tick_ns));
}

/* The payload stays, until the end; but each run writes it, so that runs that
 * overlapped would be told. */
static void
periodic_run(struct item *item, hwt_timeout timeout)
{
	uint64_t index = (uint64_t)(item - round_.items);

	stress_check(
	    !item->last, "item %" PRIu64 ": a run after the last", index);
	stress_check(item->payload == PAYLOAD_SCHEDULED(index),
	    "item %" PRIu64 ": arg is not as it was lent", index);
	item->payload = PAYLOAD_SCHEDULED(index);
	if (!atomic_load(&item->moved))
		stress_check(item->started_ns >= item->due_ns,
		    "item %" PRIu64 ": a run %" PRIu64 " ns early", index,
		    item->due_ns - item->started_ns);
	item->due_ns += item->period_ns;
	periodic_act(item, timeout);
}

static struct item *
some_item(uint64_t *random)
{
	unsigned taken = atomic_load(&round_.taken);
	unsigned back = (unsigned)random_below(random, WINDOW);
	struct item *item;

	if (taken > ITEMS)
		taken = ITEMS;
	if (back >= taken)
		return NULL;
	item = &round_.items[taken - 1 - back];
	if (!atomic_load_explicit(&item->published, memory_order_acquire))
		return NULL;
	return item;
}

/* The run that is under way may not be counted yet. */
static void
item_seen_running(struct item *item)
{
	unsigned runs = atomic_load(&item->ends) % CANCELLED;
	unsigned none = 0;

	atomic_compare_exchange_strong(&item->runs_max, &none, runs + 1);
}

static void
cancel_one(struct item *item, bool waits)
{
	hwt_timeout timeout = round_.handles[item - round_.items];
	int error;

	if (waits)
		error = hwt_cancel_wait(round_.timer, timeout);
	else
		error = hwt_cancel(round_.timer, timeout);
	stress_check(!waits ||
		!atomic_load_explicit(&item->running, memory_order_relaxed),
	    "its task runs after hwt_cancel_wait: %d", error);
	if (!error) {
		item_end(item, CANCELLED);
		item_take_back(item);
	} else if (error == -ENOENT) {
		item_seen_ended(item);
	} else {
		stress_check(
		    error == -EINPROGRESS && !waits, "cancel: %d", error);
		item_seen_running(item);
	}
}

/* Of somebody's, maybe of its own. It does not wait: two tasks that wait for
 * each other would do so for ever. */
static void
task_cancels(hwt_timeout timeout)
{
	uint64_t random = timeout.id;
	struct item *item = some_item(&random);

	if (item && !random_below(&random, 4))
		cancel_one(item, false);
}

/* On the thread of its loop, which may run the mailbox again from inside. */
static void
task_in_loop(struct loop *loop, hwt_timeout timeout)
{
	static _Thread_local bool nested;

	stress_check(pthread_equal(pthread_self(), loop->thread),
	    "a task on another thread than its loop's");
	if (nested || timeout.id % 16 != 3)
		return;
	nested = true;
	stress_check(!hwt_mailbox_run(loop->mailbox, 2, NULL), "a nested run");
	nested = false;
}

static void
task(hwt_timeout timeout, void *arg)
{
	struct item *item = arg;
	size_t index = (size_t)(item - round_.items);

	stress_check(!atomic_exchange_explicit(
			 &item->running, true, memory_order_relaxed),
	    "item %zu: runs overlap", index);
	item->started_ns = stress_now_ns();
	item_end(item, STARTED);
	stress_check(timeout.id == round_.handles[index].id,
	    "item %zu: its task got the handle of another", index);
	if (item->kind == INLINE || item->kind == REFUSING)
		stress_check(!atomic_load(&round_.stopped),
		    "item %zu: started in the worker after stop", index);
	if (item->period_ns)
		periodic_run(item, timeout);
	else
		item_take_back(item);
	if (timeout.id % 8 == 0)
		stress_check(hwt_cancel_wait(round_.timer, timeout) == -EDEADLK,
		    "item %zu: may wait for itself", index);
	task_cancels(timeout);
	if (item->kind == MAILBOX || item->kind == OTHER_MAILBOX)
		task_in_loop(&round_.loops[item->kind - MAILBOX], timeout);
	atomic_store_explicit(&item->running, false, memory_order_relaxed);
}

static int
refuse(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	(void)timer;
	(void)timeout;
	atomic_fetch_add(&round_.refused, 1);
	return -EBUSY;
}

static bool
held_push(struct held *held, hwt_timeout timeout)
{
	bool pushed;

	pthread_mutex_lock(&held->mutex);
	pushed = held->count < HELD_MAX;
	if (pushed)
		held->timeouts[held->count++] = timeout;
	pthread_cond_signal(&held->filled);
	pthread_mutex_unlock(&held->mutex);
	return pushed;
}

/* Runs some on the spot, refuses some, gives others to another thread. */
static int
be_moody(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct held *held = ctx;

	switch (timeout.id % 3) {
	case 0:
		hwt_run(timer, timeout);
		return 0;
	case 1:
		if (held_push(held, timeout))
			return 0;
	}
	atomic_fetch_add(&round_.refused, 1);
	return 1;
}

static void *
held_thread(void *arg)
{
	struct held *held = arg;
	hwt_timeout timeout;
	int error;

	pthread_mutex_lock(&held->mutex);
	while (held->count || !held->quit) {
		if (!held->count) {
			pthread_cond_wait(&held->filled, &held->mutex);
			continue;
		}
		timeout = held->timeouts[--held->count];
		pthread_mutex_unlock(&held->mutex);
		error = hwt_run(round_.timer, timeout);
		stress_check(
		    !error || error == -ENOENT, "first hwt_run: %d", error);
		pthread_mutex_lock(&held->mutex);
	}
	pthread_mutex_unlock(&held->mutex);
	return NULL;
}

static void
held_start(struct held *held)
{
	pthread_mutex_init(&held->mutex, NULL);
	pthread_cond_init(&held->filled, NULL);
	held->count = 0;
	held->quit = false;
	held->thread = stress_thread(held_thread, held);
}

static void
held_stop(struct held *held)
{
	pthread_mutex_lock(&held->mutex);
	held->quit = true;
	pthread_cond_signal(&held->filled);
	pthread_mutex_unlock(&held->mutex);
	stress_join(held->thread);
	pthread_cond_destroy(&held->filled);
	pthread_mutex_destroy(&held->mutex);
}

static uint64_t
some_delay(uint64_t *random)
{
	uint64_t tick_ns = round_.tick_ns;

	switch (random_below(random, 8)) {
	case 0:
		return 0;
	case 1:
		return HWT_SEC(3600);
	case 2:
		return random_below(random, 2) ? HWT_NEVER : INT64_MAX;
	case 3:
		return random_below(random, 100 * tick_ns);
	default:
		return random_below(random, 5 * tick_ns);
	}
}

static void
item_prepare(struct item *item, uint64_t delay_ns, uint64_t *random)
{
	size_t index = (size_t)(item - round_.items);

	item->kind = (enum kind)random_below(random, KINDS);
	item->payload = PAYLOAD_SCHEDULED(index);
	item->due_ns = stress_now_ns() + delay_ns;
	if (delay_ns >= INT64_MAX)
		item->due_ns = UINT64_MAX;
}

static void
item_publish(struct item *item, int error)
{
	item->accepted = !error;
	if (error == -ENOBUFS)
		atomic_fetch_add(&round_.rejected, 1);
	else if (!error)
		atomic_store_explicit(
		    &item->published, true, memory_order_release);
}

/* False when the timer has been stopped or the items are used up. */
static bool
produce_one(uint64_t *random)
{
	unsigned index = atomic_fetch_add(&round_.taken, 1);
	uint64_t delay_ns = some_delay(random);
	struct item *item;
	int error;

	if (index >= ITEMS)
		return false;
	item = &round_.items[index];
	item_prepare(item, delay_ns, random);
	if (item->kind == INLINE)
		error = hwt_new_timeout(
		    round_.timer, &round_.handles[index], task, item, delay_ns);
	else
		error = hwt_new_timeout_on(round_.timer,
		    round_.executors[item->kind], &round_.handles[index], task,
		    item, delay_ns);
	stress_check(!error || error == -ESHUTDOWN || error == -ENOBUFS,
	    "hwt_new_timeout: %d", error);
	item_publish(item, error);
	return error != -ESHUTDOWN;
}

static bool
produce_batch(uint64_t *random)
{
	struct hwt_spec specs[BATCH_MAX] = {{0}};
	unsigned count = 1 + (unsigned)random_below(random, BATCH_MAX);
	unsigned first = atomic_fetch_add(&round_.taken, count);
	struct item *item;
	unsigned i;
	int error;

	if (first + count > ITEMS)
		return false;
	for (i = 0; i < count; i++) {
		item = &round_.items[first + i];
		specs[i].delay_ns = some_delay(random);
		item_prepare(item, specs[i].delay_ns, random);
		if (!random_below(random, 8))
			item->period_ns =
			    1 + random_below(random, 20 * round_.tick_ns);
		specs[i].period_ns = item->period_ns;
		specs[i].task = task;
		specs[i].arg = item;
		specs[i].executor = round_.executors[item->kind];
	}
	error = hwt_new_timeouts(
	    round_.timer, count, specs, &round_.handles[first]);
	stress_check(!error || error == -ESHUTDOWN || error == -ENOBUFS,
	    "hwt_new_timeouts: %d", error);
	for (i = 0; i < count; i++)
		item_publish(&round_.items[first + i], error);
	return error != -ESHUTDOWN;
}

static void *
producer_thread(void *arg)
{
	uint64_t random = random_seed((uintptr_t)arg);
	bool more = true;

	while (more) {
		if (random_below(&random, 8))
			more = produce_one(&random);
		else
			more = produce_batch(&random);
		if (!random_below(&random, 64))
			stress_sleep_ns(random_below(&random, 200000));
	}
	return NULL;
}

static void *
canceller_thread(void *arg)
{
	uint64_t random = random_seed(16 + (uintptr_t)arg);
	struct item *item;
	int64_t remaining_ns;

	while (!atomic_load(&round_.quit)) {
		item = some_item(&random);
		if (item && random_below(&random, 4))
			cancel_one(item, !random_below(&random, 4));
		else if (item)
			hwt_remaining(round_.timer,
			    round_.handles[item - round_.items], &remaining_ns);
		if (!item || !random_below(&random, 16))
			stress_sleep_ns(random_below(&random, 100000));
	}
	return NULL;
}

static void
reschedule_one(struct item *item, uint64_t *random)
{
	uint64_t delay_ns = some_delay(random);
	uint64_t asked_ns = stress_now_ns();
	int error;

	if (item->period_ns)
		atomic_store(&item->moved, true);
	if (delay_ns < INT64_MAX && random_below(random, 2))
		error = hwt_reschedule_at(round_.timer,
		    round_.handles[item - round_.items], asked_ns + delay_ns);
	else
		error = hwt_reschedule(round_.timer,
		    round_.handles[item - round_.items], delay_ns);
	if (!error) {
		atomic_fetch_add(&round_.rescheduled, 1);
		if (item->period_ns)
			return;
		item->due_ns =
		    delay_ns >= INT64_MAX ? UINT64_MAX : asked_ns + delay_ns;
	} else if (error == -ENOENT) {
		item_seen_ended(item);
	} else {
		stress_check(error == -EINPROGRESS, "reschedule: %d", error);
	}
}

/* The bit makes sure that due_ns is that of the last reschedule that won. */
static void *
rescheduler_thread(void *arg)
{
	uint64_t random = random_seed(32 + (uintptr_t)arg);
	struct item *item;

	while (!atomic_load(&round_.quit)) {
		item = some_item(&random);
		if (item && !atomic_exchange(&item->rescheduling, true)) {
			reschedule_one(item, &random);
			atomic_store(&item->rescheduling, false);
		}
		stress_check(hwt_pending_timeouts(round_.timer) <= ITEMS,
		    "more pending than were ever scheduled");
		if (!random_below(&random, 16))
			stress_sleep_ns(random_below(&random, 100000));
	}
	return NULL;
}

static void
round_executors_start(uint64_t *random)
{
	static struct hwt_executor refusing = {refuse, NULL};
	static struct hwt_executor moody = {be_moody, &round_.held};
	unsigned threads = 1 + (unsigned)random_below(random, 3);
	size_t queue_limit = random_below(random, 2) ? 8 : 0;
	int error = hwt_pool_create(&round_.pool, threads, queue_limit);
	unsigned i;

	stress_must(!error, "hwt_pool_create: %d", error);
	for (i = 0; i < LOOPS; i++)
		loop_start(&round_.loops[i], random_below(random, 2) ? 0 : 4);
	held_start(&round_.held);
	round_.executors[INLINE] = NULL;
	round_.executors[POOL] = hwt_pool_executor(round_.pool);
	for (i = 0; i < LOOPS; i++)
		round_.executors[MAILBOX + i] =
		    hwt_mailbox_executor(round_.loops[i].mailbox);
	round_.executors[REFUSING] = &refusing;
	round_.executors[MOODY] = &moody;
}

static void
round_executors_stop(void)
{
	unsigned i;
	int error;

	held_stop(&round_.held);
	error = hwt_pool_destroy(round_.pool);
	stress_check(!error, "hwt_pool_destroy: %d", error);
	for (i = 0; i < LOOPS; i++)
		loop_stop(&round_.loops[i]);
}

static void
round_begin(uint64_t *random)
{
	static const uint64_t ticks[] = {100000, 1000000, 2000000};
	static const uint32_t wheels[] = {1, 2, 64, 512};
	struct hwt_options options = {.log = &quiet_log};
	int error;

	memset(&round_, 0, sizeof(round_));
	round_.tick_ns = ticks[random_below(random, 3)];
	options.tick_ns = round_.tick_ns;
	options.ticks_per_wheel = wheels[random_below(random, 4)];
	options.flags = random_below(random, 3) ? 0 : HWT_RELAXED;
	options.max_pending = random_below(random, 3) ? 0 : 1000;
	error = hwt_create(&round_.timer, &options);
	stress_must(!error, "hwt_create: %d", error);
	round_executors_start(random);
}

static void
stop_once(uint64_t *random)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	uint64_t walked = 0;
	int error;

	if (random_below(random, 2))
		error = hwt_stop(round_.timer, &unprocessed);
	else
		while ((error = hwt_stop_within(round_.timer,
			    random_below(random, 100000), &unprocessed)) ==
		    -ETIMEDOUT)
			continue;
	stress_must(!error, "hwt_stop: %d", error);
	atomic_store(&round_.stopped, true);
	while (hwt_unprocessed_next(&unprocessed, &info)) {
		struct item *item = info.arg;
		size_t index = (size_t)(item - round_.items);

		walked++;
		stress_must(index < ITEMS, "a foreign arg is unprocessed");
		item_end(item, UNPROCESSED);
		item_take_back(item);
		stress_check(info.task == task &&
			info.period_ns == item->period_ns &&
			info.executor == round_.executors[item->kind],
		    "item %zu: not as it was scheduled", index);
	}
	stress_check(walked == unprocessed.count,
	    "%" PRIu64 " unprocessed, count %" PRIu64, walked,
	    unprocessed.count);
	if (walked)
		atomic_fetch_add(&round_.lists, 1);
}

static void *
stopper_thread(void *arg)
{
	uint64_t random = random_seed((uintptr_t)arg);

	stress_spin(random_below(&random, 20000));
	stop_once(&random);
	return NULL;
}

/* From several threads at a time. */
static void
round_stop(uint64_t *random, uintptr_t salt)
{
	unsigned others = (unsigned)random_below(random, STOPPERS_MAX);
	pthread_t threads[STOPPERS_MAX];
	unsigned i;

	for (i = 0; i < others; i++)
		threads[i] =
		    stress_thread(stopper_thread, (void *)(salt + 48 + i));
	stop_once(random);
	for (i = 0; i < others; i++)
		stress_join(threads[i]);
	stress_check(atomic_load(&round_.lists) <= 1, "%u stops got the list",
	    atomic_load(&round_.lists));
}

static void
periodic_verify(size_t index, unsigned ends, uint64_t counts[4])
{
	struct item *item = &round_.items[index];
	unsigned runs_max = atomic_load(&item->runs_max);
	unsigned runs = ends % CANCELLED;

	ends -= runs;
	round_.runs += runs;
	total_periodic_runs += runs;
	counts[1] += !ends;
	counts[2] += ends == CANCELLED;
	counts[3] += ends == UNPROCESSED;
	stress_check(!ends || ends == CANCELLED || ends == UNPROCESSED,
	    "item %zu: periodic, ended %#x", index, ends);
	stress_check(ends || runs,
	    "item %zu: periodic, ended without a run, a cancel or a stop",
	    index);
	stress_check(!runs_max || runs <= runs_max,
	    "item %zu: %u runs, of which at most %u", index, runs, runs_max);
	stress_check(ends != UNPROCESSED || (!runs_max && !item->last),
	    "item %zu: returned after its last run", index);
}

static void
item_verify(size_t index, uint64_t counts[4])
{
	struct item *item = &round_.items[index];
	unsigned ends = atomic_load(&item->ends);

	if (!item->accepted) {
		stress_check(
		    !ends, "item %zu: refused, ended %#x", index, ends);
		stress_check(!round_.handles[index].id,
		    "item %zu: refused, yet it has a handle", index);
		return;
	}
	counts[0]++;
	if (item->period_ns) {
		periodic_verify(index, ends, counts);
		return;
	}
	round_.runs += ends == STARTED;
	counts[1] += ends == STARTED;
	counts[2] += ends == CANCELLED;
	counts[3] += ends == UNPROCESSED;
	stress_check(
	    ends == STARTED || ends == CANCELLED || ends == UNPROCESSED,
	    "item %zu: ended %#x (kind %d)", index, ends, (int)item->kind);
	if (ends == STARTED)
		stress_check(item->started_ns >= item->due_ns,
		    "item %zu: started %" PRIu64 " ns early", index,
		    item->due_ns - item->started_ns);
}

static void
round_verify_items(void)
{
	uint64_t *counts = round_.counts;
	size_t index;

	for (index = 0; index < ITEMS; index++)
		item_verify(index, counts);
	stress_check(counts[0] == counts[1] + counts[2] + counts[3],
	    "accepted %" PRIu64 ", started %" PRIu64 ", cancelled %" PRIu64
	    ", unprocessed %" PRIu64,
	    counts[0], counts[1], counts[2], counts[3]);
	total_accepted += counts[0];
	total_started += counts[1];
	total_cancelled += counts[2];
	total_unprocessed += counts[3];
	total_rescheduled += atomic_load(&round_.rescheduled);
}

static void
round_verify_stats(void)
{
	struct hwt_stats stats = timer_stats(round_.timer);

	stress_check(stats.scheduled == round_.counts[0],
	    "stats.scheduled %" PRIu64 ", accepted %" PRIu64, stats.scheduled,
	    round_.counts[0]);
	stress_check(stats.started == round_.runs,
	    "stats.started %" PRIu64 ", started %" PRIu64, stats.started,
	    round_.runs);
	stress_check(stats.cancelled == round_.counts[2],
	    "stats.cancelled %" PRIu64 ", cancelled %" PRIu64, stats.cancelled,
	    round_.counts[2]);
	stress_check(stats.rescheduled == atomic_load(&round_.rescheduled),
	    "stats.rescheduled %" PRIu64, stats.rescheduled);
	stress_check(stats.rejected == atomic_load(&round_.rejected),
	    "stats.rejected %" PRIu64 ", rejected %" PRIu64, stats.rejected,
	    (uint64_t)atomic_load(&round_.rejected));
	stress_check(stats.executor_refused >= atomic_load(&round_.refused),
	    "stats.executor_refused %" PRIu64 ", refused %" PRIu64,
	    stats.executor_refused, (uint64_t)atomic_load(&round_.refused));
	stress_check(!stats.pending && !hwt_pending_timeouts(round_.timer),
	    "%" PRIu64 " pending at the end", stats.pending);
}

/* When the executors are gone, nothing holds timeouts: the counters are exact
 * and the timer must let itself be destroyed at once. */
static void
round_end_executors_first(void)
{
	int error;

	round_executors_stop();
	round_verify_items();
	round_verify_stats();
	error = hwt_destroy(round_.timer);
	stress_check(!error, "hwt_destroy: %d", error);
}

/* The executors go on while hwt_destroy is tried until it says yes. */
static void
round_end_timer_first(void)
{
	int error;

	while (hwt_pending_timeouts(round_.timer))
		stress_sleep_ns(10000);
	while ((error = hwt_destroy(round_.timer)) == -EBUSY)
		stress_sleep_ns(10000);
	stress_check(!error, "hwt_destroy: %d", error);
	round_executors_stop();
	round_verify_items();
}

/* One of each role, if there are threads enough; the others at random. */
static pthread_t
round_thread(uint64_t *random, unsigned number, unsigned count, uintptr_t salt)
{
	static void *(*const run[ROLES])(void *arg) = {
	    producer_thread, canceller_thread, rescheduler_thread};
	unsigned role = number;

	if (number && (number >= ROLES || count < ROLES))
		role = (unsigned)random_below(random, ROLES);
	return stress_thread(run[role], (void *)(salt + number));
}

static void
round_run(uint64_t *random, uint64_t number)
{
	pthread_t threads[THREADS_MAX];
	unsigned count = THREADS_MIN +
	    (unsigned)((number + ROLES) % (THREADS_MAX - THREADS_MIN + 1));
	uintptr_t salt = number * 64;
	unsigned i;

	stress_phase("start", number);
	round_begin(random);
	for (i = 0; i < count; i++)
		threads[i] = round_thread(random, i, count, salt);
	stress_sleep_ns(random_below(random, 100000000));
	stress_phase("stop", number);
	round_stop(random, salt);
	stress_sleep_ns(random_below(random, 1000000));
	stress_phase("threads end", number);
	atomic_store(&round_.quit, true);
	for (i = 0; i < count; i++)
		stress_join(threads[i]);
	stress_phase("executors drain", number);
	if (random_below(random, 4))
		round_end_executors_first();
	else
		round_end_timer_first();
}

static bool
saw_every_end(void)
{
	return total_started && total_cancelled && total_unprocessed &&
	    total_rescheduled;
}

int
main(int argc, char **argv)
{
	uint64_t rounds;

	stress_begin("race_all", argc, argv);
	rounds = stress_rounds(ROUNDS, round_run, saw_every_end);
	return stress_end("%" PRIu64 " rounds of %d to %d threads, accepted "
			  "%" PRIu64 " = started %" PRIu64
			  " + cancelled %" PRIu64 " + unprocessed %" PRIu64
			  ", rescheduled %" PRIu64 ", %" PRIu64
			  " runs of periodic ones",
	    rounds, THREADS_MIN, THREADS_MAX, total_accepted, total_started,
	    total_cancelled, total_unprocessed, total_rescheduled,
	    total_periodic_runs);
}
