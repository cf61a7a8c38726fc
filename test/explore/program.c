/* SPDX-License-Identifier: Apache-2.0 */
/* What program.h describes. */
#include "program.h"

#include <errno.h>
#include <string.h>

struct hwt *timer;
uint32_t timer_stopped;
struct subject subject[SUBJECTS];
uint32_t flag[4];

static struct cache *prepared[EXPLORE_THREADS_MAX];

void
program_reset(void)
{
	sim_reset();
	timer = NULL;
	timer_stopped = 0;
	memset(subject, 0, sizeof(subject));
	memset(flag, 0, sizeof(flag));
	memset(prepared, 0, sizeof(prepared));
}

void
program_thread(unsigned i)
{
	if (prepared[i] != NULL)
		thread_state.slot[0] =
		    (struct thread_slot){timer, timer->serial, prepared[i]};
}

void
timer_make_with(const struct hwt_options *options)
{
	struct hwt_options chosen = *options;

	chosen.tick_ns = TICK_NS;
	chosen.ticks_per_wheel = 8;
	explore_check(hwt_create(&timer, &chosen) == 0);
	explore_name(&timer->wake_before, 8, "wake_before");
	explore_name(&timer->wake_sequence, 4, "wake_sequence");
	explore_name(&timer->announced_sequence, 8, "announced_sequence");
	explore_name(&timer->phase, 8, "phase");
	explore_name(&timer->batches, 8, "batches");
	explore_name(&timer->permits, 8, "permits");
	explore_name(&timer->dispatched_count, 8, "dispatched_count");
	explore_name(&timer->dispatching_to, 8, "dispatching_to");
	explore_name(&timer->life.lock, 4, "lifecycle lock");
	explore_name(&timer->life.driver, 8, "driver");
	explore_name(&timer->store.limit, 8, "limit");
	explore_name(&timer->store.free_pages, 8, "free_pages");
	explore_name(timer->store.free_top, 8, "free_top");
	explore_name(timer->store.slab_urgency, 8, "slab_urgency[0]");
}

void
timer_make(uint32_t flags, const struct hwt_executor *executor)
{
	timer_make_with(
	    &(struct hwt_options){.flags = flags, .executor = executor});
}

void
thread_prepare(unsigned thread, unsigned records)
{
	struct cache *cache = cache_claim(timer);
	uint32_t index[CACHE_SLOTS];
	unsigned i;

	explore_check(cache != NULL && records <= CACHE_SLOTS);
	for (i = 0; i < records; i++)
		index[i] = record_alloc(timer, cache);
	cache_flush(timer, cache);
	while (i-- > 0)
		record_free(timer, cache, index[i]);
	prepared[thread] = cache;
}

void
threads_prepare(unsigned first, unsigned second, unsigned third)
{
	thread_prepare(0, first);
	thread_prepare(1, second);
	thread_prepare(2, third);
}

void
thread_stop_at(unsigned thread, const void *word)
{
	sim_settings.stop.thread = thread;
	sim_settings.stop.at = word;
}

void
thread_stop_before_change(unsigned thread, const void *word)
{
	thread_stop_at(thread, word);
	sim_settings.stop.changes = true;
}

static bool
is_stopped(const void *context)
{
	(void)context;
	return sim_settings.stop.stopped != 0;
}

void
await_stopped(void)
{
	explore_await(&sim_settings.stop.stopped, 4, is_stopped, NULL);
}

void
go_on(void)
{
	explore_modify(&sim_settings.stop.go_on, 4);
	sim_settings.stop.go_on = 1;
}

uint32_t
index_of(unsigned i)
{
	return (uint32_t)(subject[i].handle.id & INDEX_MASK);
}

struct slab *
slab_of(uint32_t index)
{
	return (void *)(uintptr_t)timer->store.slabs[index >> SLAB_BITS];
}

static uint32_t
page_of(uint32_t index)
{
	return index / PAGE_RECORDS % SLAB_PAGES;
}

a64_t *
free_bits_of(uint32_t index)
{
	return &slab_of(index)->free_bits[page_of(index)];
}

struct queued *
queued_of(uint32_t index)
{
	return &slab_of(index)->queued[page_of(index)];
}

a64_t *
slab_urgency_of(uint32_t index)
{
	return &timer->store.slab_urgency[index >> SLAB_BITS];
}

void
trim_all(void)
{
	timer->trim.active = true;
	a64_store_relaxed(&timer->store.trim_refused, 0);
	timer->trim.slab = store_limit(&timer->store);
	while (record_trim(timer, true))
		continue;
}

/* Subjects. */

static void
task_moves_itself(struct subject *e)
{
	int result = hwt_reschedule(timer, e->handle, 3 * TICK_NS);

	explore_check(result == 0 || result == -ENOENT);
}

void
subject_task(hwt_timeout timeout, void *arg)
{
	struct subject *e = arg;

	explore_check(timeout.id == e->handle.id);
	explore_check(sim_now_ns >= e->not_before_ns);
	explore_check(
	    sim_settings.clock_moves || sim_now_ns <= e->not_after_ns);
	explore_check(e->running == 0);
	explore_check(e->cancelled == 0);
	e->running++;
	e->started++;
	explore_modify(&e->started, 4);
	if (e->awake)
		explore_check(explore_load(&timer->wake_before, 8) == 0);
	if (e->moves)
		task_moves_itself(e);
	if (e->schedules > 0)
		explore_check(schedule(e->schedules, TICK_NS) == 0);
	if (e->waits > 0)
		flag_await(e->waits);
	if (e->releases)
		go_on();
	if (timer->executor.execute == NULL && !e->handed_over)
		explore_check(explore_load(&timer_stopped, 4) == 0);
	if (e->periodic && explore_load(&timer->phase, 4) >= PHASE_STOPPING)
		e->last = true;
	if (e->tells)
		explore_store(&e->told, 8, e->started, EXPLORE_RELAXED);
	e->running--;
	e->ended++;
}

/* The tick of a deadline ends its time; the clock of never has none. A delay of
 * 0 counts as 1 ns. */
static void
subject_expect(struct subject *e, uint64_t delay_ns)
{
	uint64_t due_ns = sim_now_ns + delay_ns + (delay_ns == 0);
	uint64_t since_ns = due_ns - timer->origin_ns;

	e->not_before_ns = due_ns;
	e->not_after_ns = due_ns;
	if (since_ns % TICK_NS != 0)
		e->not_after_ns += TICK_NS - since_ns % TICK_NS;
	if (timer->flags & HWT_RELAXED)
		e->not_after_ns += TICK_NS;
	if (delay_ns == HWT_NEVER || e->periodic ||
	    timer->flags == (HWT_MANUAL | HWT_RELAXED))
		e->not_after_ns = UINT64_MAX;
}

int
schedule_on(unsigned i, const struct hwt_executor *executor, uint64_t delay_ns)
{
	struct subject *e = &subject[i];
	int error;

	subject_expect(e, delay_ns);
	e->handed_over = executor != NULL;
	error = hwt_new_timeout_on(
	    timer, executor, &e->handle, subject_task, e, delay_ns);
	if (error == 0)
		e->accepted++;
	return error;
}

int
schedule(unsigned i, uint64_t delay_ns)
{
	return schedule_on(i, NULL, delay_ns);
}

int
schedule_periodic(unsigned i, uint64_t delay_ns, uint64_t period_ns)
{
	struct subject *e = &subject[i];
	const struct hwt_spec spec = {
	    .task = subject_task,
	    .arg = e,
	    .delay_ns = delay_ns,
	    .period_ns = period_ns,
	};
	int error;

	e->periodic = true;
	subject_expect(e, delay_ns);
	error = hwt_new_timeouts(timer, 1, &spec, &e->handle);
	if (error == 0)
		e->accepted++;
	return error;
}

int
cancel(unsigned i)
{
	struct subject *e = &subject[i];
	int result = hwt_cancel(timer, e->handle);

	explore_check(
	    result == 0 || result == -EINPROGRESS || result == -ENOENT);
	if (result == 0)
		e->cancelled++;
	if (result == -EINPROGRESS)
		e->ending = true;
	return result;
}

int
cancel_wait(unsigned i)
{
	struct subject *e = &subject[i];
	int result = hwt_cancel_wait(timer, e->handle);

	explore_check(result == 0 || result == -ENOENT);
	explore_check(e->running == 0);
	if (result == 0)
		e->cancelled++;
	return result;
}

void
see_told(unsigned i)
{
	explore_check(explore_load(&subject[i].told, 8) == subject[i].ended);
}

/* Until a call that moves it returns, either deadline may be the one. */
static void
may_move(struct subject *e, const struct subject *after)
{
	if (after->not_before_ns < e->not_before_ns)
		e->not_before_ns = after->not_before_ns;
	if (after->not_after_ns > e->not_after_ns)
		e->not_after_ns = after->not_after_ns;
}

static void
has_moved(struct subject *e, const struct subject *to)
{
	if (e->contested)
		return;
	e->not_before_ns = to->not_before_ns;
	e->not_after_ns = to->not_after_ns;
}

int
reschedule(unsigned i, uint64_t delay_ns)
{
	struct subject *e = &subject[i];
	struct subject before = *e;
	struct subject after = *e;
	int result;

	subject_expect(&after, delay_ns);
	may_move(e, &after);
	result = hwt_reschedule(timer, e->handle, delay_ns);
	explore_check(
	    result == 0 || result == -EINPROGRESS || result == -ENOENT);
	has_moved(e, result == 0 ? &after : &before);
	return result;
}

/* What has passed is due at the next boundary at the latest. */
static void
subject_expect_at(struct subject *e, uint64_t deadline_ns)
{
	uint64_t since_ns = sim_now_ns - timer->origin_ns;

	explore_check(deadline_ns <= sim_now_ns);
	e->not_before_ns = deadline_ns;
	e->not_after_ns = sim_now_ns + TICK_NS - since_ns % TICK_NS;
}

int
schedule_at(unsigned i, uint64_t deadline_ns)
{
	struct subject *e = &subject[i];
	int error;

	subject_expect_at(e, deadline_ns);
	error = hwt_new_timeout_at(
	    timer, NULL, &e->handle, subject_task, e, deadline_ns);
	if (error == 0)
		e->accepted++;
	return error;
}

int
reschedule_at(unsigned i, uint64_t deadline_ns)
{
	struct subject *e = &subject[i];
	struct subject after = *e;
	int result;

	subject_expect_at(&after, deadline_ns);
	may_move(e, &after);
	result = hwt_reschedule_at(timer, e->handle, deadline_ns);
	if (result == 0)
		has_moved(e, &after);
	return result;
}

bool
is_touched(unsigned i, unsigned fresh)
{
	return subject[fresh].handle.id != subject[i].handle.id;
}

/* It has begun, or never will. */
static void
has_been_replaced(struct subject *old)
{
	int state = hwt_state(timer, old->handle, NULL);

	explore_check(state == -ENOENT || state == HWT_STATE_RUNNING);
	old->replaced = true;
}

int
touch(unsigned i, unsigned fresh, uint64_t delay_ns)
{
	struct subject *old = &subject[i], *new = &subject[fresh];
	struct subject before = *old;
	struct subject after = *old;
	bool moved;
	int result;

	subject_expect(&after, delay_ns);
	subject_expect(new, delay_ns);
	may_move(old, &after);
	new->handle = old->handle;
	result =
	    hwt_touch(timer, NULL, &new->handle, subject_task, new, delay_ns);
	moved = result == 0 && !is_touched(i, fresh);
	has_moved(old, moved ? &after : &before);
	if (result == 0 && !moved) {
		new->accepted++;
		has_been_replaced(old);
	}
	return result;
}

uint64_t
advance(unsigned ticks)
{
	uint64_t started = 0;
	int error;

	if (ticks > 0)
		sim_clock_add(ticks * TICK_NS);
	error = hwt_advance(timer, &started);
	explore_check(error == 0 || error == -ESHUTDOWN);
	return started;
}

void
take_list(struct hwt_unprocessed *list)
{
	uint64_t count = list->count;
	struct hwt_timeout_info info;
	struct subject *e;

	while (hwt_unprocessed_next(list, &info)) {
		e = info.arg;
		explore_check(e >= subject && e < subject + SUBJECTS);
		explore_check(info.timeout.id == e->handle.id);
		e->returned++;
		count--;
	}
	explore_check(count == 0);
}

void
note_stopped(void)
{
	explore_modify(&timer_stopped, 4);
	timer_stopped = 1;
}

void
stop(void)
{
	bool stopped_before = explore_load(&timer_stopped, 4) != 0;
	struct hwt_unprocessed list;
	int error = hwt_stop(timer, &list);

	explore_check(error == 0);
	explore_check(!stopped_before || list.count == 0);
	note_stopped();
	take_list(&list);
}

void
turn(void)
{
	(void)advance(0);
}

void
turn_twice(void)
{
	turn();
	turn();
}

void
cancel_it(void)
{
	(void)cancel(0);
}

void
make_due(void)
{
	turn();
	sim_clock_add(TICK_NS);
}

static bool
thread_ended(const void *context)
{
	return explore_ended(*(const unsigned *)context);
}

void
await_thread(unsigned i)
{
	explore_await(explore_end_word(i), 4, thread_ended, &i);
}

static bool
is_set(const void *context)
{
	return *(const uint32_t *)context != 0;
}

void
await_started(unsigned i)
{
	explore_await(&subject[i].started, 4, is_set, &subject[i].started);
}

static bool
worker_sleeps(const void *word)
{
	return timer->wake_before != 0 && sim_sleeps_on(word);
}

void
await_worker_sleeps(void)
{
	explore_await(
	    &timer->wake_sequence, 4, worker_sleeps, &timer->wake_sequence);
}

void
flag_set(unsigned i)
{
	explore_modify(&flag[i], 4);
	flag[i] = 1;
}

void
flag_await(unsigned i)
{
	explore_await(&flag[i], 4, is_set, &flag[i]);
}

/* The end of an execution. */

/* Counts how often each free record is there. */
static void
count_cache(const struct cache *cache, unsigned *found)
{
	uint32_t i;

	for (i = 0; i < cache->count; i++)
		found[cache->slot[i]]++;
}

bool
queue_has(uint32_t index, uint64_t deadline_ns)
{
	const struct queued *queued = queued_of(index);
	uint64_t urgency = mpsc_urgency(deadline_ns);

	return (queued->bits >> index % PAGE_RECORDS & 1) &&
	    queued->urgency >= urgency && *slab_urgency_of(index) >= urgency;
}

static bool
free_can_be_found(uint32_t index)
{
	uint32_t number = index >> SLAB_BITS;

	return (slab_of(index)->free_summary >> page_of(index) & 1) &&
	    (timer->store.free_top[number / 64] >> number % 64 & 1);
}

static bool
index_exists(uint32_t index)
{
	return index >> SLAB_BITS < timer->store.limit &&
	    index % SLAB_RECORDS >= HEADER_PAGES * PAGE_RECORDS;
}

static bool
is_committed(uint32_t index)
{
	return slab_of(index)->committed >> page_of(index) & 1;
}

static bool
slab_is_idle(uint32_t index)
{
	uint32_t number = index >> SLAB_BITS;

	return timer->store.idle[number / 64] >> number % 64 & 1;
}

static void
verify_uncommitted(uint32_t index)
{
	static const struct record zero;

	if (memcmp(record_at(&timer->store, index), &zero, sizeof(zero)) != 0)
		explore_fail("record %u is not committed, and not 0", index);
}

/* Found: in how many caches. */
static void
verify_record(uint32_t index, unsigned found)
{
	uint64_t word = pair_word(&record_at(&timer->store, index)->pair);
	bool in_set = *free_bits_of(index) >> index % PAGE_RECORDS & 1;
	bool free = word_state(word) == STATE_FREE && !slab_is_idle(index);

	if (!is_committed(index))
		verify_uncommitted(index);
	if (found + in_set != free)
		explore_fail("record %u, word %llx, is in %u places", index,
		    (unsigned long long)word, found + in_set);
	if (in_set && !free_can_be_found(index))
		explore_fail("record %u is free and cannot be found", index);
}

static void
verify_free_pages(void)
{
	uint32_t end = store_limit(&timer->store) << SLAB_BITS;
	uint64_t pages = 0;
	uint32_t index;

	for (index = 0; index < end; index += PAGE_RECORDS) {
		if (index_exists(index) && is_committed(index) &&
		    *free_bits_of(index) == PAGE_ALL)
			pages++;
	}
	if (pages != timer->store.free_pages)
		explore_fail("%u pages are free, and %u are counted",
		    (unsigned)pages, (unsigned)timer->store.free_pages);
}

/* Fewer chunks than a page has are in use: none is decommitted. */
static void
verify_memory(void)
{
	const struct record_store *store = &timer->store;
	const struct wheel *wheel = &timer->wheel;
	uint32_t end = store_limit(store) << SLAB_BITS;
	uint64_t bytes = sizeof(*timer) +
	    (wheel->carved - 1) * sizeof(struct chunk) +
	    store->caches_used * sizeof(struct cache) +
	    ((uintptr_t)wheel->arenas - (uintptr_t)wheel->buckets);
	uint32_t index;

	for (index = 0; index < end; index += PAGE_RECORDS) {
		if (index_exists(index) ? is_committed(index)
					: !slab_is_idle(index))
			bytes += PAGE_BYTES;
	}
	if (bytes != store->memory_bytes)
		explore_fail("%llu bytes are in use, and %llu are counted",
		    (unsigned long long)bytes,
		    (unsigned long long)store->memory_bytes);
}

void
verify_records(void)
{
	const struct record_store *store = &timer->store;
	unsigned found[1u << INDEX_BITS] = {0};
	uint32_t end = store_limit(store) << SLAB_BITS;
	uint32_t index, i;

	explore_check(store->shared_cache.count == 0);
	for (i = 0; i < store->caches_used; i++)
		count_cache(&store->caches[i], found);
	for (index = 0; index < end; index++) {
		if (index_exists(index))
			verify_record(index, found[index]);
		else
			explore_check(found[index] == 0);
	}
	verify_free_pages();
	verify_memory();
}

/* The wheel's entries, by the records that own them. */
#define ENTRY_SLOT_BITS 4u

static const struct chunk *
chunk_of(uint32_t chunk)
{
	const struct chunk *first =
	    (void *)(uintptr_t)timer->wheel.arenas[chunk >> ARENA_BITS];

	return &first[chunk & ((1u << ARENA_BITS) - 1)];
}

static unsigned
count_wheel(void)
{
	unsigned entries = 0;
	uint32_t i, at;

	for (i = 0; i < 2 * (timer->wheel.mask + 1); i++) {
		at = timer->wheel.buckets[i / 2].list[i % 2].last;
		for (; at != 0; at = chunk_of(at)->previous)
			entries += chunk_of(at)->count;
	}
	return entries;
}

static void
verify_entry(uint32_t index)
{
	uint32_t at = record_at(&timer->store, index)->entry_at;
	uint32_t slot = at & ((1u << ENTRY_SLOT_BITS) - 1);
	const struct chunk *chunk = chunk_of(at >> ENTRY_SLOT_BITS);

	explore_check(slot < chunk->count);
	explore_check(chunk->entry[slot].index == index);
}

static void
verify_has_entry(uint32_t index)
{
	const struct record *record = record_at(&timer->store, index);
	uint64_t due = timer_tick_of(timer, record->pair.half[1]);

	if (due == TICK_NEVER)
		return;
	if (record->entry_at == 0 ||
	    record->entry_tick > wheel_reach(&timer->wheel, due))
		explore_fail("record %u has HAS_ENTRY and no entry", index);
}

/* What is PENDING without HAS_ENTRY: the worker will look at it in time. */
static void
verify_queued(uint32_t index)
{
	const uint64_t *pair = record_at(&timer->store, index)->pair.half;

	if (!queue_has(index, pair[0] & FLAG_RELATIVE ? 0 : pair[1]))
		explore_fail("record %u is not in the queue in time", index);
}

void
verify_entries(void)
{
	uint32_t end = store_limit(&timer->store) << SLAB_BITS;
	unsigned entries = 0;
	uint32_t index;
	uint64_t word;

	for (index = 0; index < end; index++) {
		if (!index_exists(index) || !is_committed(index))
			continue;
		word = pair_word(&record_at(&timer->store, index)->pair);
		if (record_at(&timer->store, index)->entry_at != 0) {
			verify_entry(index);
			entries++;
		}
		if (word & FLAG_HAS_ENTRY)
			verify_has_entry(index);
		else if (word_state(word) == STATE_PENDING)
			verify_queued(index);
	}
	explore_check(entries == count_wheel());
}

static void
verify_subject(const struct subject *e)
{
	unsigned ends = e->cancelled + e->returned;

	explore_check(e->running == 0 && e->started == e->ended);
	if (e->periodic) {
		explore_check(ends <= e->accepted);
		explore_check(!e->last || e->returned == 0);
		explore_check(e->accepted > 0 || e->started == 0);
		return;
	}
	if (e->accepted != ends + e->started || e->accepted > 1)
		explore_fail("timeout %u: accepted %u, started %u, "
			     "cancelled %u, returned %u",
		    (unsigned)(e - subject), e->accepted, e->started,
		    e->cancelled, e->returned);
}

/* What was replaced and has not begun, the touch has cancelled. */
static void
count_replaced(void)
{
	struct subject *e;

	for (e = subject; e < subject + SUBJECTS; e++) {
		if (e->replaced && !e->periodic &&
		    e->started + e->cancelled + e->returned == 0)
			e->cancelled = e->accepted;
	}
}

/* Periodic ones end in ways that are not all counted. */
static void
verify_pending(void)
{
	uint64_t pending = 0;
	unsigned i;

	for (i = 0; i < SUBJECTS; i++) {
		if (subject[i].periodic)
			return;
		pending += subject[i].accepted - subject[i].started -
		    subject[i].cancelled - subject[i].returned;
	}
	if (hwt_pending_timeouts(timer) != pending)
		explore_fail("%llu are pending and %llu are said to be",
		    (unsigned long long)pending,
		    (unsigned long long)hwt_pending_timeouts(timer));
	explore_check(timer->max_pending == 0 || timer->permits == pending);
}

static void
finish_timer(void)
{
	count_replaced();
	verify_pending();
	verify_records();
	if (!timer_stopped) {
		verify_entries();
		stop();
	}
	verify_records();
	explore_check(hwt_pending_timeouts(timer) == 0);
	explore_check(hwt_destroy(timer) == 0);
}

void
program_finish(void)
{
	unsigned i;

	if (timer != NULL)
		finish_timer();
	for (i = 0; i < SUBJECTS; i++)
		verify_subject(&subject[i]);
	explore_check(sim_memory_held() == 0);
}
