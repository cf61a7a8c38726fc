/* SPDX-License-Identifier: Apache-2.0 */
/* What program.h describes. */
#include "program.h"

#include <errno.h>

#define SEGMENTS_MAX (ARENAS_MAX << ARENA_BITS)

#include <string.h>

struct hwt *timer;
uint32_t timer_stopped;
struct subject subject[SUBJECTS];
uint32_t flag[4];

static struct cache *prepared[EXPLORE_THREADS_MAX];

void
program_reset(void)
{
	model_reset();
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
	explore_name(&timer->stopping, 4, "stopping");
	explore_name(&timer->gate, 8, "gate");
	explore_name(&timer->batches, 8, "batches");
	explore_name(&timer->overflow, 8, "overflow");
	explore_name(&timer->places, 8, "places");
	explore_name(&timer->handed, 8, "handed");
	explore_name(&timer->handing, 8, "handing");
	explore_name(&timer->life.lock, 4, "lifecycle lock");
	explore_name(&timer->life.changed, 4, "lifecycle changed");
	explore_name(&timer->queues[0].tail, 8, "tail");
	explore_name(&timer->store.free, 8, "free batches");
	explore_name(&timer->store.carved, 4, "carved");
	explore_name(&timer->store.limit, 4, "limit");
	explore_name(&timer->pool.free, 8, "free segments");
	explore_name(&timer->pool.carved, 4, "carved segments");
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
	int error;

	explore_check(cache != NULL && records <= CACHE_SLOTS);
	for (i = 0; i < records; i++)
		index[i] = record_alloc(timer, cache, &error);
	cache_flush(timer, cache);
	while (i-- > 0)
		record_free(timer, cache, index[i]);
	prepared[thread] = cache;
}

void
take_segments(void)
{
	timer->pool.carved = timer->pool.limit;
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
	explore_check(model_now_ns >= e->not_before_ns);
	explore_check(
	    model_settings.clock_moves || model_now_ns <= e->not_after_ns);
	explore_check(e->running == 0);
	explore_check(e->cancelled == 0);
	e->running++;
	e->started++;
	explore_modify(&e->started, 4);
	if (e->moves)
		task_moves_itself(e);
	if (e->schedules > 0)
		explore_check(schedule(e->schedules, TICK_NS) == 0);
	if (e->waits > 0)
		flag_await(e->waits);
	if (timer->executor.execute == NULL && !e->handed_over)
		explore_check(explore_load(&timer_stopped, 4) == 0);
	if (e->periodic && explore_load(&timer->stopping, 4) != 0)
		e->last = true;
	e->running--;
	e->ended++;
}

/* The tick of a deadline ends its time; the clock of never has none. */
static void
subject_expect(struct subject *e, uint64_t delay_ns)
{
	uint64_t due_ns = model_now_ns + delay_ns;
	uint64_t since_ns = due_ns - timer->origin_ns;

	e->not_before_ns = due_ns;
	e->not_after_ns = due_ns + TICK_NS;
	if (since_ns % TICK_NS != 0)
		e->not_after_ns -= since_ns % TICK_NS;
	else if (delay_ns != 0)
		e->not_after_ns = due_ns;
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

/* Until the call returns, either deadline may be the one. */
int
reschedule(unsigned i, uint64_t delay_ns)
{
	struct subject *e = &subject[i];
	struct subject before = *e;
	struct subject after = *e;
	int result;

	subject_expect(&after, delay_ns);
	if (after.not_before_ns < e->not_before_ns)
		e->not_before_ns = after.not_before_ns;
	if (after.not_after_ns > e->not_after_ns)
		e->not_after_ns = after.not_after_ns;
	result = hwt_reschedule(timer, e->handle, delay_ns);
	explore_check(
	    result == 0 || result == -EINPROGRESS || result == -ENOENT);
	if (e->contested)
		return result;
	if (result != 0)
		after = before;
	e->not_before_ns = after.not_before_ns;
	e->not_after_ns = after.not_after_ns;
	return result;
}

uint64_t
advance(unsigned ticks)
{
	uint64_t started = 0;
	int error;

	if (ticks > 0)
		model_clock_add(ticks * TICK_NS);
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
	struct hwt_unprocessed list;
	int error = hwt_stop(timer, &list);

	explore_check(error == 0);
	note_stopped();
	take_list(&list);
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

static void
count_batches(const struct record_store *store, unsigned *found, unsigned max)
{
	uint32_t head = (uint32_t)store->free;
	uint32_t index[BATCH + NODE_RECORDS];
	uint32_t node, count, i;
	unsigned steps = 0;

	for (; head != 0; head = (uint32_t)record_at(store, head)->next) {
		count = 0;
		for (node = head; node != 0;) {
			explore_check(
			    record_at(store, node)->node_count <= NODE_RECORDS);
			node = record_node_read(store, node, index, &count);
			explore_check(count <= BATCH);
		}
		for (i = 0; i < count; i++) {
			explore_check(index[i] < max);
			found[index[i]]++;
		}
		if (++steps > max) {
			explore_fail("the batches have a circle");
			return;
		}
	}
}

/* Records of blank pages read as 0. */
static void
count_blank(const struct record_store *store, unsigned *found)
{
	uint32_t index;

	for (index = 0; index < store->carved; index++) {
		if (!(store->blank[index >> SLAB_BITS] >>
			    index % SLAB_RECORDS / BATCH &
			1))
			continue;
		if (index % SLAB_RECORDS == 0)
			continue;
		explore_check(pair_word(&record_at(store, index)->pair) == 0);
		found[index]++;
	}
}

void
verify_records(void)
{
	const struct record_store *store = &timer->store;
	unsigned found[1u << INDEX_BITS] = {0};
	uint32_t index;
	uint32_t i;

	explore_check(store->carved <= store->limit);
	count_cache(&store->spare, found);
	for (i = 0; i < store->caches_used; i++)
		count_cache(&store->caches[i], found);
	count_batches(store, found, store->carved);
	count_blank(store, found);
	explore_check(found[0] == 0);
	for (index = 1; index < store->carved; index++) {
		uint64_t word;

		if (index % SLAB_RECORDS == 0)
			continue;
		word = pair_word(&record_at(store, index)->pair);
		if (found[index] != (word_state(word) == STATE_FREE)) {
			explore_fail("record %u, word %llx, is in %u places",
			    index, (unsigned long long)word, found[index]);
			return;
		}
	}
}

static const struct mpsc_segment *
segment_of(const struct mpsc_pool *pool, uint32_t segment)
{
	const struct mpsc_segment *arena = pool->arenas[segment >> ARENA_BITS];

	return arena + (segment & ((1u << ARENA_BITS) - 1));
}

static void
find_pooled(const struct mpsc_pool *pool, const a64_t *stack, bool *pooled)
{
	uint32_t segment = (uint32_t)*stack;

	for (; segment != 0; segment = pool->links[segment]) {
		explore_check(segment < pool->carved);
		if (pooled[segment]) {
			explore_fail(
			    "segment %u is in the pool twice", segment);
			return;
		}
		pooled[segment] = true;
	}
}

void
verify_segments(const struct mpsc_pool *pool, const struct mpsc_queue *queue)
{
	bool pooled[SEGMENTS_MAX] = {false};
	uint32_t tail = (uint32_t)(queue->tail >> 32) & INT32_MAX;

	explore_check(queue->hole_count <= MPSC_HOLES);
	find_pooled(pool, &pool->free, pooled);
	find_pooled(pool, &pool->blank, pooled);
	explore_check(!pooled[tail] && !pooled[queue->head_segment]);
}

/* All that is in the queues and in the overflow list. */
static void
count_entries(unsigned *found)
{
	const struct mpsc_pool *pool = &timer->pool;
	bool pooled[SEGMENTS_MAX] = {false};
	uint32_t index = (uint32_t)timer->overflow;
	uint32_t segment, slot;

	for (; index != 0;
	     index = record_at(&timer->store, index)->overflow_link)
		found[index]++;
	find_pooled(pool, &pool->free, pooled);
	find_pooled(pool, &pool->blank, pooled);
	for (segment = 1; segment < pool->carved; segment++) {
		if (pooled[segment])
			continue;
		for (slot = 0; slot < MPSC_SLOTS; slot++)
			found[segment_of(pool, segment)->slot[slot]]++;
	}
}

/* A record that is ENQUEUED has one entry, any other one has none. */
void
verify_entries(void)
{
	unsigned found[1u << INDEX_BITS] = {0};
	uint32_t index;
	uint64_t word;

	count_entries(found);
	for (index = 1; index < timer->store.carved; index++) {
		if (index % SLAB_RECORDS == 0)
			continue;
		word = pair_word(&record_at(&timer->store, index)->pair);
		if (found[index] != ((word & FLAG_ENQUEUED) != 0)) {
			explore_fail("record %u, word %llx, has %u entries",
			    index, (unsigned long long)word, found[index]);
			return;
		}
	}
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
			     "cancelled %u, given back %u",
		    (unsigned)(e - subject), e->accepted, e->started,
		    e->cancelled, e->returned);
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
	explore_check(timer->max_pending == 0 || timer->places == pending);
}

static void
finish_timer(void)
{
	verify_pending();
	verify_records();
	verify_segments(&timer->pool, &timer->queues[0]);
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
	explore_check(model_memory_held() == 0);
}
