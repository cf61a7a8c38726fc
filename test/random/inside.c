/* SPDX-License-Identifier: Apache-2.0 */
/* What a run has covered of the inside, which no answer tells. See random.h. */
#include "test/random/random.h"

static const struct record *
record_of(hwt_timeout handle)
{
	return record_find(&model->timer->store, handle.id);
}

bool
is_new_handle(hwt_timeout handle)
{
	uint64_t *last = &model->handles[handle.id & INDEX_MASK];
	uint64_t ahead = (handle.id - *last) >> INDEX_BITS;
	bool first = *last == 0;

	*last = handle.id;
	return first || (ahead != 0 && ahead < GENERATION_MASK / 2);
}

/* It was just scheduled, or rescheduled. */
static void
note_queued(const struct record *record)
{
	uint32_t index = record_index(record);
	const struct queued *queued =
	    &record_slab(record)->queued[index / PAGE_RECORDS % SLAB_PAGES];
	struct pair_value seen = pair_load(&record->pair);
	uint64_t due_ns = seen.word & FLAG_RELATIVE ? 0 : seen.deadline_ns;

	if (!(a64_load_acquire(&queued->bits) >> index % PAGE_RECORDS & 1))
		return;
	if (a64_load_acquire(&queued->urgency) > mpsc_urgency(due_ns))
		cover_event(EVENT_QUEUED_LATER);
	else
		cover_event(EVENT_QUEUED_FIRST);
}

void
note_reuse(hwt_timeout handle)
{
	const struct record *record = record_of(handle);

	if (record == NULL)
		return;
	if ((pair_word(&record->pair) & FLAG_HAS_ENTRY) &&
	    record->entry_at != 0)
		cover_event(EVENT_REUSED);
	note_queued(record);
}

void
note_move(struct model_entry *entry)
{
	const struct record *record = record_of(entry->handle);

	entry->entry_tick = record->entry_at != 0 ? record->entry_tick : 0;
	if (entry->tick < entry->entry_tick)
		cover_event(EVENT_PULLED_IN_ENTRY);
	note_queued(record);
}

/* The worker has seen it since. */
void
note_turned(struct model_entry *entry)
{
	const struct record *record = record_of(entry->handle);

	if (entry->entry_tick != 0 && record->entry_at != 0 &&
	    record->entry_tick > entry->entry_tick)
		cover_event(EVENT_PUSHED_OUT_ENTRY);
	entry->entry_tick = 0;
}

void
note_advanced(void)
{
	const struct hwt *timer = model->timer;

	if (timer->trim.active || timer->queue.any.slabs != 0)
		cover_event(EVENT_HOUSEKEEPING_LEFT);
}

void
begin_trim(void)
{
	struct trim *trim = &model->timer->trim;

	if (trim->active)
		return;
	trim->active = true;
	a64_store_relaxed(&model->timer->store.trim_refused, 0);
	trim->slab = store_limit(&model->timer->store);
}

static void
note_change(uint64_t *seen, uint64_t now, enum event more, enum event less)
{
	if (now > *seen)
		cover_event(more);
	else if (now < *seen)
		cover_event(less);
	*seen = now;
}

/* Decommitted pages of chunks, of the first arena. */
static uint64_t
decommitted_pages(const struct wheel *wheel)
{
	return (uint64_t)__builtin_popcountll(wheel->decommitted[0]);
}

void
note_memory(void)
{
	const struct record_store *store = &model->timer->store;
	uint32_t limit = store_limit(store);
	uint64_t idle = (uint64_t)__builtin_popcountll(store->idle[0]);
	uint64_t chunks = decommitted_pages(&model->timer->wheel);
	uint64_t pages = 0;
	uint32_t i;

	for (i = 0; i < limit; i++)
		pages += (uint64_t)__builtin_popcountll(
		    a64_load_acquire(&slab_at(store, i)->committed));
	note_change(&model->pages_seen, pages, EVENT_PAGE_COMMITTED,
	    EVENT_PAGE_RELEASED);
	note_change(
	    &model->idle_seen, idle, EVENT_SLAB_RETIRED, EVENT_SLAB_OPENED);
	note_change(&model->chunks_seen, chunks, EVENT_CHUNK_RELEASED,
	    EVENT_CHUNK_USED);
}

void
note_growth(void)
{
	const struct record_store *store = &model->timer->store;

	if (store_limit(store) > 1)
		cover_event(EVENT_GROWN);
	if (a64_load_acquire(&store->shared_cache.accepted) > 0)
		cover_event(EVENT_SHARED_CACHE);
}
