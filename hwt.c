/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls on timeouts: schedule, cancel, reschedule, look.
 *
 * SCHEDULING takes a free record from the thread's cache, fills it in,
 * publishes its word by a compare-and-swap, and pushes its index, unless the
 * record has an entry in time for that deadline. CANCELLING is a
 * compare-and-swap; it returns the record to the cache at once, and leaves its
 * bit in the queue and its entry in the wheel.
 *
 * Interleavings between callers:
 *
 *   cancel against cancel       one compare-and-swap wins; the other finds
 *                               FREE or REVOKED: -ENOENT.
 *   cancel against reschedule   both compare and swap the word: one is first. A
 *                               reschedule that comes second finds another
 *                               generation.
 *   touch against all           a reschedule; if that finds that the timeout
 *                               has ended, a new one; if it is an executor's or
 *                               running, a new one, and then a cancel of the
 *                               old one, which meanwhile can only go on to its
 *                               end.
 *   reschedule twice            the last swap determines the deadline. Each
 *                               call that leaves the record without HAS_ENTRY
 *                               pushes.
 *   stale handle against reuse  the compare-and-swap compares the generation:
 *                               it fails if the record was freed since its
 *                               word was read.
 *   schedule against stop       see core/lifecycle.c, STOPPING. A call that is
 *                               in stop's list returns 0; one that finds the
 *                               gate closed retracts what is still NEW. A
 *                               periodic one that has run may be PENDING again:
 *                               that is accepted.
 *
 * EDGES
 *   E:gate      the worker's thread and all before it, and what hwt_stop did
 *               before: release in attempt_start, by opening the gate, and in
 *               stop_begin and stop_finish, by closing it; acquire in
 *               timer_is_open and timer_is_stopping.
 *   E:closed    fence between publishing and reading the gate in timer_publish
 *               (and in requeue, when a periodic timeout is armed again); fence
 *               in stop_begin between closing the gate and the sweep. A
 *               publication that the sweep misses finds the gate closed.
 *   E:permits   what was done before a permit was released: release in
 *               pending_release, acquire in pending_reserve, by the thread that
 *               takes it next.
 *   E:counted   a thread's counters: release in cache_count, cancel_pending
 *               and reschedule_to, acquire in hwt_pending_timeouts, which adds
 *               up the ended timeouts before the accepted ones. A timeout may
 *               end before the call that scheduled it has counted it; until
 *               then the result is too small by one.
 *   E:reused    the record's next use, after the timeout has ended: release
 *               in record_fill, acquire in hwt_state, which then finds another
 *               generation in the word, and does not return another's arg; in
 *               copy_record and record_task for hwt_dump.
 *
 * E:asleep, E:called and E:word are drawn in worker.c; E:queue and E:set in
 * mpsc_queue.c.
 */
#include <errno.h>
#include <string.h>

#include "sys/probe.h"
#include "core/timer.h"

#ifndef ALWAYS_INLINE
#define ALWAYS_INLINE inline __attribute__((always_inline))
#endif

static inline bool
executor_is_valid(const struct hwt_executor *executor)
{
	return executor == NULL || executor->execute != NULL;
}

/* A deadline of 0 counts as 1: 0 is what wakes the worker at once. */
static inline uint64_t
deadline_capped(uint64_t deadline_ns)
{
	if (deadline_ns >= DEADLINE_NEVER)
		return DEADLINE_NEVER;
	return deadline_ns + (deadline_ns == 0);
}

/* Fast path of timer_now_ahead. */
static inline bool
now_is_at_hand(const struct hwt *timer, uint64_t *now_ns)
{
	return !(timer->options.flags & HWT_MANUAL) &&
	    clock_is_at_hand(&thread_state.sample, now_ns);
}

/* The deadline of a delay from now. False: use deadline_after. */
static inline bool
deadline_is_at_hand(
    const struct hwt *timer, uint64_t delay_ns, uint64_t *deadline_ns)
{
	uint64_t now_ns;

	if (!now_is_at_hand(timer, &now_ns))
		return false;
	*deadline_ns = deadline_from(now_ns, delay_ns);
	return true;
}

static uint64_t
deadline_after(const struct hwt *timer, uint64_t delay_ns)
{
	return deadline_from(timer_now_ahead(timer), delay_ns);
}

static bool
pending_reserve(struct hwt *timer)
{
	uint64_t taken;

	if (timer->options.max_pending == 0)
		return true;
	do {
		taken = a64_load_relaxed(&timer->permits);
		if (taken >= timer->options.max_pending)
			return false;
		/* E:permits acquire */
	} while (!a64_cas_seq(&timer->permits, taken, taken + 1));
	return true;
}

/* Fills in a record that the caller owns. */
static inline void
record_fill(struct record *record, hwt_task *task, void *arg,
    const struct hwt_executor *executor, uint64_t period_ns)
{
	/* E:reused release, each: one that is read alone shows it too */
	a64_store_release(&record->period_ns, period_ns);
	aptr_store_release(&record->task, (void *)(uintptr_t)task);
	aptr_store_release(&record->arg, arg);
	aptr_store_release(&record->executor, executor);
}

/* The gate is closed. 0: the timeout is in stop's list, or has begun to run. */
static NOINLINE int
publish_failed(struct hwt *timer, struct cache *cache, uint32_t index,
    uint64_t id, hwt_timeout *handle)
{
	if (timer_retract(record_at(&timer->store, index), id, FLAG_NEW)) {
		record_free(timer, cache_of(timer), index);
		pending_release(timer, 1);
		if (handle != NULL)
			handle->id = 0;
		return -ESHUTDOWN;
	}
	cache_count(cache, &cache->scheduled, 1);
	return 0;
}

/* Publishes a record that is filled in, which the caller does not own from then
 * on. 0, or -ESHUTDOWN and nothing has changed. wide_publish writes the
 * deadline before the word: the worker ignores the deadline of a FREE record.
 * The timeout is counted before the worker is woken: a wake callback may use
 * other timers, and this thread may lose its cache. */
static ALWAYS_INLINE int
timer_publish(struct hwt *timer, struct cache *cache, uint32_t index,
    uint64_t flags, uint64_t deadline_ns, hwt_timeout *handle)
{
	struct record *record = record_at(&timer->store, index);
	/* The record is the caller's: nobody else changes the deadline. */
	struct wide old = wide_load(&record->wide);
	struct wide next = {.deadline_ns = deadline_ns};
	uint64_t id = word_id(old.word, index);

	if (handle != NULL)
		handle->id = id;
	next.word = (old.word & ~INDEX_MASK) | STATE_PENDING | FLAG_NEW | flags;
	if ((old.word & FLAG_HAS_ENTRY) && deadline_ns >= old.deadline_ns)
		next.word |= FLAG_HAS_ENTRY;
	PROBE(schedule, timer, id, deadline_ns, record->arg);
	/* The worker may clear HAS_ENTRY meanwhile: E:word release */
	while (
	    __builtin_expect(!wide_publish(&record->wide, old.word, next), 0)) {
		old.word &= ~FLAG_HAS_ENTRY;
		next.word &= ~FLAG_HAS_ENTRY;
	}
	/* E:closed fence */
	if (__builtin_expect(a64_load_seq(&timer->phase) != PHASE_RUNNING, 0))
		return publish_failed(timer, cache, index, id, handle);
	cache_count(cache, &cache->scheduled, 1);
	if (!(next.word & FLAG_HAS_ENTRY))
		return timer_notify(timer, index, deadline_ns);
	return 0;
}

static int
refuse(hwt_timeout *timeout, int error)
{
	if (timeout != NULL)
		timeout->id = 0;
	return error;
}

static int
schedule(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t deadline_ns,
    uint64_t period_ns)
{
	struct record *record;
	struct cache *cache;
	uint32_t index;
	int error = timer_start(timer);

	if (error != 0)
		return refuse(timeout, error);
	cache = thread_attach_cache(timer, true);
	if (!pending_reserve(timer)) {
		cache_count(cache, &cache->rejected, 1);
		return refuse(timeout, -ENOBUFS);
	}
	index = record_alloc(timer, cache);
	if (index == 0) {
		pending_release(timer, 1);
		return refuse(timeout, -ENOMEM);
	}
	record = record_at(&timer->store, index);
	record_fill(record, task, arg, executor, period_ns);
	tsan_release(record);
	return timer_publish(timer, cache, index,
	    period_ns != 0 ? FLAG_PERIODIC : 0, deadline_ns, timeout);
}

static NOINLINE int
schedule_at(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t deadline_ns)
{
	return schedule(timer, executor, timeout, task, arg, deadline_ns, 0);
}

static NOINLINE int
schedule_after(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns)
{
	return schedule(timer, executor, timeout, task, arg,
	    deadline_after(timer, delay_ns), 0);
}

/* Nothing to wait for, allocate, count or annotate. */
static ALWAYS_INLINE bool
fast_path_is_open(const struct hwt *timer, const struct cache *cache)
{
	return timer_is_open(timer) && timer->options.max_pending == 0 &&
	    cache != NULL && cache->count != 0 && !tsan_is_here();
}

/* Fast path of schedule: on any miss, tail-calls it before anything has
 * changed. Tail calls save registers. */
static ALWAYS_INLINE int
new_timeout_at(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t deadline_ns)
{
	struct cache *cache = cache_at_hand(timer);
	uint32_t index;

	if (!fast_path_is_open(timer, cache))
		return schedule_at(
		    timer, executor, timeout, task, arg, deadline_ns);
	index = cache->slot[--cache->count];
	record_fill(record_at(&timer->store, index), task, arg, executor, 0);
	return timer_publish(timer, cache, index, 0, deadline_ns, timeout);
}

static ALWAYS_INLINE int
new_timeout(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns)
{
	uint64_t deadline_ns;
	int error = timer_check(timer,
	    task != NULL && delay_is_valid(delay_ns) &&
		executor_is_valid(executor));

	if (error != 0)
		return refuse(timeout, error);
	if (!deadline_is_at_hand(timer, delay_ns, &deadline_ns))
		return schedule_after(
		    timer, executor, timeout, task, arg, delay_ns);
	return new_timeout_at(timer, executor, timeout, task, arg, deadline_ns);
}

int
hwt_new_timeout_on(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns)
{
	return new_timeout(timer, executor, timeout, task, arg, delay_ns);
}

int
hwt_new_timeout(struct hwt *timer, hwt_timeout *timeout, hwt_task *task,
    void *arg, uint64_t delay_ns)
{
	return new_timeout(timer, NULL, timeout, task, arg, delay_ns);
}

int
hwt_new_timeout_at(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t deadline_ns)
{
	int error =
	    timer_check(timer, task != NULL && executor_is_valid(executor));

	if (error != 0)
		return refuse(timeout, error);
	return new_timeout_at(
	    timer, executor, timeout, task, arg, deadline_capped(deadline_ns));
}

int
hwt_new_periodic(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns,
    uint64_t period_ns)
{
	int error = timer_check(timer,
	    task != NULL && delay_is_valid(delay_ns) && period_ns != 0 &&
		period_ns < DELAY_LIMIT && executor_is_valid(executor));

	if (error != 0)
		return refuse(timeout, error);
	return schedule(timer, executor, timeout, task, arg,
	    deadline_after(timer, delay_ns), period_ns);
}

/* A cancel that won: counts it and releases its permit. */
static void
finish_cancelled(struct hwt *timer)
{
	struct cache *cache = cache_of(timer);

	cache_count(cache, &cache->cancelled, 1);
	cache_count(cache, &cache->ended, 1);
	pending_release(timer, 1);
}

/* The record's word; ~id, which never matches, if record is NULL. */
static inline uint64_t
record_word(const struct record *record, uint64_t id)
{
	/* E:word acquire */
	return record != NULL ? wide_word(&record->wide) : ~id;
}

/* The timeout has ended, or never was: record may be NULL. What its task wrote
 * is seen. */
static int
not_found(const struct record *record)
{
	tsan_acquire(record);
	return -ENOENT;
}

static NOINLINE void
cancelled_slowly(struct hwt *timer, uint32_t index)
{
	record_free(timer, cache_of(timer), index);
	finish_cancelled(timer);
}

/* The bit in the queue and the entry in the wheel stay. */
static ALWAYS_INLINE int
cancel_pending(
    struct hwt *timer, struct record *record, uint64_t word, uint64_t id)
{
	struct cache *cache = cache_at_hand(timer);
	uint32_t index = (uint32_t)(id & INDEX_MASK);

	if (!wide_cas_word(&record->wide, word, word_freed(word)))
		return -EAGAIN;
	PROBE(cancel, timer, id);
	if (cache == NULL || cache->count == CACHE_SLOTS ||
	    timer->options.max_pending != 0) {
		cancelled_slowly(timer, index);
		return 0;
	}
	/* E:counted release */
	a64_count(&cache->cancelled, 1);
	a64_count(&cache->ended, 1);
	cache->slot[cache->count++] = index;
	return 0;
}

static int
cancel_handed(
    struct hwt *timer, struct record *record, uint64_t word, uint64_t id)
{
	uint64_t next = (word & ~STATE_MASK) | STATE_REVOKED;

	if (!wide_cas_word(&record->wide, word, next))
		return -EAGAIN;
	PROBE(cancel, timer, id);
	finish_cancelled(timer);
	return 0;
}

/* -EINPROGRESS: the task is running, and the flags are set in the word. */
static int
cancel_running(struct record *record, uint64_t word, uint64_t flags)
{
	uint64_t next = word | flags;

	if (word & FLAG_PERIODIC)
		next |= FLAG_ENDING;
	if (next == word || wide_cas_word(&record->wide, word, next))
		return -EINPROGRESS;
	return -EAGAIN;
}

/* flags: what to set in the word of a running timeout. *before: the word before
 * this call. */
static int
timer_cancel(struct hwt *timer, uint64_t id, uint64_t flags, uint64_t *before)
{
	struct record *record = record_find(&timer->store, id);
	uint64_t state;
	int result;

	do {
		*before = record_word(record, id);
		if (!word_matches(*before, id))
			return not_found(record);
		state = word_state(*before);
		if (state == STATE_PENDING)
			result = cancel_pending(timer, record, *before, id);
		else if (state == STATE_HANDED)
			result = cancel_handed(timer, record, *before, id);
		else if (state == STATE_RUNNING)
			result = cancel_running(record, *before, flags);
		else
			return not_found(record);
	} while (result == -EAGAIN);
	if (result == 0)
		tsan_acquire(record);
	return result;
}

static NOINLINE int
cancel_any(struct hwt *timer, uint64_t id)
{
	uint64_t before;

	return timer_cancel(timer, id, 0, &before);
}

int
hwt_cancel(struct hwt *timer, hwt_timeout timeout)
{
	int error = timer_check(timer, true);
	struct record *record;
	uint64_t word;

	if (error != 0)
		return error;
	record = record_find(&timer->store, timeout.id);
	if (record != NULL)
		take_line(record);
	word = record_word(record, timeout.id);
	if (__builtin_expect(word_matches(word, timeout.id) &&
		    word_state(word) == STATE_PENDING && !tsan_is_here(),
		1) &&
	    cancel_pending(timer, record, word, timeout.id) == 0)
		return 0;
	return cancel_any(timer, timeout.id);
}

/*
 * Waits until the run has ended, which has WAITED set; no later one can begin,
 * since a periodic timeout is ENDING.
 *
 *        caller                          run_ended
 *        ------                          ---------
 *   (A1) set WAITED                 (B1) WAITED is set: change the high half
 *   (A2) sleep if the high half          of the word
 *        is that of the handle      (B2) wake
 *
 *   Forbidden: A2 sleeps after B2. The high half is of the generation alone.
 *   Before B1 the generation cannot change, and after it the high half is not
 *   that of the handle again before all 36 bits have wrapped, however many
 *   timeouts use the record until the caller comes to A2. (Released memory
 *   reads as 0, so a handle in 2^32 could wait for ever.) (The low half, with
 *   4 bits of the generation, would be the same after 16 of them.)
 */
static void
wait_while_running(struct hwt *timer, uint64_t id)
{
	struct record *record = record_find(&timer->store, id);

	while (word_matches(record_word(record, id), id))
		futex_wait(system_high_half(&record->wide),
		    (uint32_t)(id >> 32), HWT_NEVER);
	tsan_acquire(record);
}

int
hwt_cancel_wait(struct hwt *timer, hwt_timeout timeout)
{
	struct cache *cache;
	uint64_t before;
	int result = timer_check(timer, true);

	if (result != 0)
		return result;
	if (timeout.id != 0 && thread_frame_of(timer, timeout.id) != NULL)
		return -EDEADLK;
	result = timer_cancel(timer, timeout.id, FLAG_WAITED, &before);
	if (result != -EINPROGRESS)
		return result;
	wait_while_running(timer, timeout.id);
	if (!(before & FLAG_PERIODIC) || (before & FLAG_WAITED))
		return -ENOENT;
	PROBE(cancel, timer, timeout.id);
	cache = cache_of(timer);
	cache_count(cache, &cache->cancelled, 1);
	return 0;
}

/* The same timeout with another deadline. It keeps HAS_ENTRY if that is not
 * earlier. */
static inline struct wide
with_deadline(struct wide seen, uint64_t deadline_ns)
{
	uint64_t lost = deadline_ns < seen.deadline_ns ? FLAG_HAS_ENTRY : 0;

	return (struct wide){seen.word & ~lost, deadline_ns};
}

static int
reschedule_pending(struct hwt *timer, struct record *record, struct wide seen,
    uint64_t deadline_ns, uint32_t index)
{
	struct wide next = with_deadline(seen, deadline_ns);

	tsan_release(record);
	if (!wide_cas(&record->wide, seen, next))
		return -EAGAIN;
	if (!(next.word & FLAG_HAS_ENTRY))
		return timer_notify(timer, index, deadline_ns);
	return 0;
}

static int
reschedule_running(struct hwt *timer, struct record *record, struct wide seen,
    uint64_t deadline_ns, uint64_t id)
{
	struct run_frame *frame = thread_frame_of(timer, id);

	if (!(seen.word & FLAG_PERIODIC) || frame == NULL)
		return -EINPROGRESS;
	/* This run is the last. */
	if ((seen.word & FLAG_ENDING) || timer_is_stopping(timer))
		return -ENOENT;
	if (!wide_cas(&record->wide, seen, with_deadline(seen, deadline_ns)))
		return -EAGAIN;
	frame->rescheduled = true;
	return 0;
}

static NOINLINE int
timer_reschedule(struct hwt *timer, uint64_t id, uint64_t deadline_ns)
{
	struct record *record = record_find(&timer->store, id);
	struct wide seen;
	struct cache *cache;
	uint64_t state;
	int result;

	if (record == NULL)
		return -ENOENT;
	do {
		seen = wide_load(&record->wide);
		if (!word_matches(seen.word, id))
			return not_found(record);
		state = word_state(seen.word);
		if (state == STATE_PENDING)
			result = reschedule_pending(timer, record, seen,
			    deadline_ns, (uint32_t)(id & INDEX_MASK));
		else if (state == STATE_HANDED)
			return -EINPROGRESS;
		else if (state == STATE_RUNNING)
			result = reschedule_running(
			    timer, record, seen, deadline_ns, id);
		else
			return not_found(record);
	} while (result == -EAGAIN);
	if (result == 0) {
		PROBE(reschedule, timer, id, deadline_ns);
		cache = cache_of(timer);
		cache_count(cache, &cache->rescheduled, 1);
	}
	return result;
}

static NOINLINE int
reschedule_slowly(struct hwt *timer, uint64_t id, uint64_t delay_ns)
{
	if (!delay_is_valid(delay_ns))
		return -EINVAL;
	return timer_reschedule(timer, id, deadline_after(timer, delay_ns));
}

/* Fast path of timer_reschedule: the timeout is pending with HAS_ENTRY, and the
 * deadline is not earlier. On any miss, tail-calls that before anything has
 * changed. */
static ALWAYS_INLINE int
reschedule_to(struct hwt *timer, uint64_t id, uint64_t deadline_ns)
{
	struct cache *cache = cache_at_hand(timer);
	struct record *record = record_find(&timer->store, id);
	struct wide seen;

	if (record == NULL)
		return -ENOENT;
	seen = wide_load(&record->wide);
	if (cache == NULL || tsan_is_here() || !word_matches(seen.word, id) ||
	    (seen.word & (STATE_MASK | FLAG_HAS_ENTRY)) !=
		(STATE_PENDING | FLAG_HAS_ENTRY) ||
	    deadline_ns < seen.deadline_ns ||
	    !wide_cas(
		&record->wide, seen, (struct wide){seen.word, deadline_ns}))
		return timer_reschedule(timer, id, deadline_ns);
	PROBE(reschedule, timer, id, deadline_ns);
	/* E:counted release */
	a64_count(&cache->rescheduled, 1);
	return 0;
}

int
hwt_reschedule(struct hwt *timer, hwt_timeout timeout, uint64_t delay_ns)
{
	int error = timer_check(timer, true);
	uint64_t deadline_ns;

	if (error != 0)
		return error;
	if (!delay_is_valid(delay_ns) ||
	    !deadline_is_at_hand(timer, delay_ns, &deadline_ns))
		return reschedule_slowly(timer, timeout.id, delay_ns);
	return reschedule_to(timer, timeout.id, deadline_ns);
}

int
hwt_reschedule_at(struct hwt *timer, hwt_timeout timeout, uint64_t deadline_ns)
{
	int error = timer_check(timer, true);

	if (error != 0)
		return error;
	return reschedule_to(timer, timeout.id, deadline_capped(deadline_ns));
}

/* Whether the id names a live periodic timeout that will run again. */
static bool
will_run_again(const struct hwt *timer, uint64_t id)
{
	uint64_t word = record_word(record_find(&timer->store, id), id);

	return word_matches(word, id) &&
	    (word & (FLAG_PERIODIC | FLAG_ENDING)) == FLAG_PERIODIC;
}

int
hwt_touch(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns)
{
	hwt_timeout old;
	int before;
	int result = timer_check(timer,
	    timeout != NULL && task != NULL && executor_is_valid(executor));

	if (result != 0)
		return result;
	old = *timeout;
	before = hwt_reschedule(timer, old, delay_ns);
	if (before != -ENOENT &&
	    (before != -EINPROGRESS || will_run_again(timer, old.id)))
		return before;
	if (old.id == HWT_CLOSED.id)
		return -ECANCELED;
	/* Written before the new task can start, not after. */
	result =
	    hwt_new_timeout_on(timer, executor, timeout, task, arg, delay_ns);
	if (result != 0)
		*timeout = old;
	else if (before == -EINPROGRESS)
		/* Nobody has the handle of what an executor holds: it must not
		 * run when arg is freed. */
		(void)!hwt_cancel(timer, old);
	return result;
}

int
hwt_remaining(struct hwt *timer, hwt_timeout timeout, int64_t *remaining_ns)
{
	int error = timer_check(timer, remaining_ns != NULL);
	const struct record *record;
	struct wide seen;
	uint64_t state;

	if (error != 0)
		return error;
	record = record_find(&timer->store, timeout.id);
	if (record == NULL)
		return -ENOENT;
	/* Word and deadline of the same moment. */
	do {
		seen = wide_load(&record->wide);
		if (!word_matches(seen.word, timeout.id))
			return not_found(record);
	} while (wide_word(&record->wide) != seen.word);
	state = word_state(seen.word);
	if (state == STATE_RUNNING)
		return -EINPROGRESS;
	if (state != STATE_PENDING && state != STATE_HANDED)
		return not_found(record);
	*remaining_ns = remaining_at(seen, timer_now_ahead(timer));
	return 0;
}

int
hwt_state(struct hwt *timer, hwt_timeout timeout, void **arg)
{
	static const int states[STATE_MASK + 1] = {
	    [STATE_PENDING] = HWT_STATE_PENDING,
	    [STATE_HANDED] = HWT_STATE_HANDED_OVER,
	    [STATE_RUNNING] = HWT_STATE_RUNNING,
	};
	int error = timer_check(timer, true);
	const struct record *record;
	uint64_t word;
	void *value;

	if (error != 0)
		return error;
	record = record_find(&timer->store, timeout.id);
	word = record_word(record, timeout.id);
	if (!word_matches(word, timeout.id) || states[word_state(word)] == 0)
		return not_found(record);
	/* E:reused acquire */
	value = aptr_load_acquire(&record->arg);
	if (!word_matches(wide_word(&record->wide), timeout.id))
		return not_found(record);
	if (arg != NULL)
		*arg = value;
	return states[word_state(word)];
}

int
hwt_now(const struct hwt *timer, uint64_t *now_ns)
{
	int error = timer_check(timer, now_ns != NULL);

	if (error == 0)
		*now_ns = timer_now(timer);
	return error;
}

uint64_t
hwt_pending_timeouts(const struct hwt *timer)
{
	const struct record_store *store;
	const struct cache *cache;
	uint64_t ended = 0;
	uint64_t scheduled = 0;
	uint32_t i;

	if (timer == NULL || !process_owns(timer->epoch))
		return 0;
	store = &timer->store;
	for (i = 0; (cache = cache_counted(store, i)) != NULL; i++)
		/* E:counted acquire */
		ended += a64_load_acquire(&cache->ended);
	for (i = 0; (cache = cache_counted(store, i)) != NULL; i++)
		scheduled += a64_load_relaxed(&cache->scheduled);
	return scheduled > ended ? scheduled - ended : 0;
}

#define STRING(x) #x
#define VERSION(major, minor, patch) \
	STRING(major) "." STRING(minor) "." STRING(patch)

const char *
hwt_version(void)
{
	return VERSION(HWT_VERSION_MAJOR, HWT_VERSION_MINOR, HWT_VERSION_PATCH);
}

/* The meaning of an errno value that a function of hwt.h returns. */
#define NOT_WRITTEN "the file could not be written"

static const struct {
	int error;
	const char *text;
} errors[] = {
    {0, "success"},
    {EINVAL,
	"an argument is missing or out of range, or the call is not for this "
	"kind of timer"},
    {ENOMEM, "no memory"},
    {EAGAIN,
	"not now: no thread can be created, the clock cannot be read, the "
	"pool's queue is full, or the file does not take the text"},
    {ESHUTDOWN, "the timer is stopped or being stopped"},
    {ENOBUFS, "the limit of pending timeouts is reached"},
    {ENOENT, "the timeout has ended or never existed"},
    {EINPROGRESS, "the task is running, or an executor holds the timeout"},
    {EDEADLK, "the call would wait for the task that makes it"},
    {EPERM, "the shared timer is stopped by hwt_shared_shutdown alone"},
    {ETIMEDOUT, "a task is still running, and stopping continues"},
    {EBUSY,
	"it is still in use: the timer is not stopped, or an executor holds "
	"timeouts"},
    {ECANCELED, "the timeout was closed: its handle is HWT_CLOSED"},
    {EOWNERDEAD, "it was made before this process was forked"},
    {EMFILE, "no file descriptor left"},
    {ENFILE, "no file descriptor left"},
    {EIO, NOT_WRITTEN},
    {EBADF, NOT_WRITTEN},
    {ENOSPC, NOT_WRITTEN},
    {EPIPE, NOT_WRITTEN},
    {EFBIG, NOT_WRITTEN},
    {EDQUOT, NOT_WRITTEN},
    {EINTR, NOT_WRITTEN},
};

const char *
hwt_strerror(int error)
{
	size_t i;

	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (error == errors[i].error || error == -errors[i].error)
			return errors[i].text;
	}
	return "an error that hwt does not return";
}
