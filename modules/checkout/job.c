/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: a load or an unload of an entry, by the thread that has caused it, by
 * an executor's, or by whoever ends it later.
 *
 * FAILURE. The object is retired: all waits for sets with it end with
 * HWT_GRANT_RETIRED, and what is tried at that moment finds it retired. So no
 * grant has an object that is not loaded, and who is told RETIRED finds the
 * error in the entry. A failed entry is used for nothing else: it stays in the
 * table for the back-off and refuses; the next request makes another one.
 */
#include <errno.h>

#include "store.h"

static struct hwt_store_job *
job_of(struct store_entry *entry)
{
	return (struct hwt_store_job *)(uintptr_t)entry;
}

/* It is loaded; wakes who waits, and ends the job. */
static void
job_open(struct store_entry *entry)
{
	struct queue queue;

	queue_begin(&queue);
	object_free(&entry->object);
	queue_end(&queue);
	entry_put(entry, NULL);
}

static void
job_fail(struct store_entry *entry)
{
	struct hwt_checkout *checkout = entry->object.checkout;
	struct queue queue;

	queue_begin(&queue);
	object_close(&entry->object);
	(void)requests_stop(checkout, &entry->object, HWT_GRANT_RETIRED);
	queue_end(&queue);
	entry_put(entry, NULL);
}

static void
load_end(struct store_entry *entry, int result, const struct hwt_loaded *loaded)
{
	struct hwt_store *store = entry_store(entry);
	struct store_shard *shard = entry_shard(entry);

	store_lock(shard);
	shard->stats.loads++;
	entry->pending = false;
	if (result == 0) {
		entry->value = loaded->value;
		entry->weight = loaded->weight;
		entry->state = ENTRY_LOADED;
		entry_link(store, shard, entry);
		store_unlock(shard);
		job_open(entry);
		return;
	}
	shard->stats.failures++;
	entry->error = result < 0 ? result : -EINVAL;
	entry->state = ENTRY_FAILED;
	if (!entry_back_off(entry))
		entry_leave_table(shard, entry);
	store_unlock(shard);
	job_fail(entry);
}

/* It is not out any more, which may be what a pause waits for. */
static void
unload_land(const struct store_entry *entry)
{
	struct queue queue;

	queue_begin(&queue);
	flight_end(entry->object.checkout, entry);
	queue_end(&queue);
}

static void
unload_refused(struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);
	struct store_shard *shard = entry_shard(entry);

	store_lock(shard);
	shard->stats.refusals++;
	entry->pending = false;
	entry->state = ENTRY_LOADED;
	entry_link(store, shard, entry);
	store_unlock(shard);
	unload_land(entry);
	job_open(entry);
}

static void
unload_end(struct work *work, struct store_entry *entry)
{
	struct store_shard *shard = entry_shard(entry);
	bool wanted;

	store_lock(shard);
	shard->stats.unloads++;
	entry->pending = false;
	entry->value = NULL;
	wanted = entry->wants > 1;
	if (wanted) {
		/* It is in use: its job goes on with a load. */
		entry->state = ENTRY_LOADING;
		entry->since_ns = checkout_now(entry->object.checkout);
		work_add(work, entry);
	} else {
		entry_leave_table(shard, entry);
	}
	store_unlock(shard);
	unload_land(entry);
	if (!wanted)
		entry_put(entry, NULL);
}

void
job_ended(struct work *work, struct store_entry *entry, int result,
    const struct hwt_loaded *loaded)
{
	if (entry->state == ENTRY_LOADING)
		load_end(entry, result, loaded);
	else if (result == 0)
		unload_end(work, entry);
	else
		unload_refused(entry);
}

/* Its callback may end it before it answers. */
void
job_call(struct work *work, struct store_entry *entry)
{
	const struct hwt_store_options *options = &entry_store(entry)->options;
	struct hwt_loaded loaded = {NULL, 1};
	int result = 0;

	if (entry->state == ENTRY_LOADING)
		result = options->load(options->ctx, job_of(entry), entry->key,
		    entry->size, &loaded);
	else if (options->unload != NULL)
		result = options->unload(options->ctx, job_of(entry),
		    entry->key, entry->size, entry->value);
	if (result != HWT_STORE_LATER)
		job_ended(work, entry, result, &loaded);
}

/* Who may call it now: the executor, or this thread. */
static void
job_hand(struct store_entry *entry, bool handed)
{
	struct store_shard *shard = entry_shard(entry);

	store_lock(shard);
	entry->handed = handed;
	entry->pending = !handed;
	store_unlock(shard);
}

void
job_begin(struct work *work, struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);

	if (store->executor.execute != NULL) {
		job_hand(entry, true);
		if (store->executor.execute(
			store->executor.ctx, store, job_of(entry)) == 0)
			return;
	}
	job_hand(entry, false);
	job_call(work, entry);
}
