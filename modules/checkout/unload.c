/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is unloaded, and when: what was idle for a time, what is too much, and
 * what hwt_store_trim asks for.
 *
 * PAUSE. An unload is counted as out before it reads the gate for the last time
 * (E:pause in request.c). A load is not: it holds an object that no grant has
 * had, and its end wakes who waits, who then meets the gate.
 *
 * THE TIMEOUT of an entry comes once for a time in which it is idle, and not
 * for each release: a release notes the time, and the task sets another timeout
 * for what is left. The task's part is over when armed is false, under the
 * lock. Whoever makes an entry DEAD that is armed cancels the timeout; if its
 * task has begun, that finds the entry DEAD, and frees it.
 *
 * WORK. What a job's end causes, loads of what was wanted meanwhile and unloads
 * for the limit, is done in a loop by the call where it happened, outside all
 * locks.
 */
#include "store.h"

/* Looks for objects to unload in one call, so that none takes long; the next
 * one goes on. */
#define STORE_STEPS 1024u

/* The job that unloads it, which nobody wants, begins; false: a pause is on. */
static bool
unload_begin(struct store_shard *shard, struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);

	if (!flight_begin(store->checkout, entry))
		return false;
	entry_unlink(store, shard, entry);
	entry->state = ENTRY_UNLOADING;
	if (store->options.unload != NULL)
		entry->since_ns = checkout_now(store->checkout);
	entry->wants = 1;
	shard->stats.jobs++;
	object_hold(&entry->object);
	return true;
}

static struct store_entry *
choose_in(struct store_shard *shard, enum choice choice, uint64_t *steps)
{
	struct store_entry *entry;
	struct queue queue;

	queue_begin(&queue);
	store_lock(shard);
	entry = entry_choose(shard, choice, steps);
	if (entry != NULL && !unload_begin(shard, entry)) {
		*steps = 0;
		entry = NULL;
	}
	store_unlock(shard);
	queue_end(&queue);
	return entry;
}

/* For the limit: from one shard after the other. */
static struct store_entry *
choose_next(struct hwt_store *store, uint64_t *steps)
{
	struct store_entry *entry = NULL;
	uint64_t turn;

	while (entry == NULL && *steps > 0 && store->options.limit != 0 &&
	    a64_load_relaxed(&store->weight) > store->options.limit) {
		turn = a64_add_seq(&store->turn, 1);
		entry =
		    choose_in(&store->shards[turn & (store->shard_count - 1)],
			CHOOSE_UNUSED, steps);
	}
	return entry;
}

void
work_do(struct hwt_store *store, struct work *work)
{
	uint64_t steps = STORE_STEPS;
	struct store_entry *entry;

	for (;;) {
		entry = work->first;
		if (entry != NULL)
			work->first = entry->newer;
		else
			entry = choose_next(store, &steps);
		if (entry == NULL)
			return;
		job_begin(work, entry);
	}
}

void
store_trim(struct hwt_store *store, uint64_t weight, enum choice choice)
{
	struct work work = {NULL, NULL};
	struct store_entry *entry;
	uint64_t steps;
	uint32_t i;

	for (i = 0; i < store->shard_count; i++) {
		store_lock(&store->shards[i]);
		steps = store->shards[i].stats.loaded;
		store_unlock(&store->shards[i]);
		while (steps > 0 &&
		    (choice == CHOOSE_ALL ||
			a64_load_relaxed(&store->weight) > weight)) {
			entry = choose_in(&store->shards[i], choice, &steps);
			if (entry != NULL)
				job_begin(&work, entry);
		}
	}
	work_do(store, &work);
}

/* What is left of a time that has begun; 0: it has passed. */
static uint64_t
rest_left(const struct store_entry *entry, uint64_t time_ns)
{
	uint64_t passed_ns =
	    checkout_now(entry_store(entry)->checkout) - entry->since_ns;

	return passed_ns < time_ns ? time_ns - passed_ns : 0;
}

/* With the lock held. True: its unload has begun. */
static bool
entry_rested(struct store_shard *shard, struct store_entry *entry)
{
	uint64_t idle_ns = entry_store(entry)->options.idle_ns;
	uint64_t left_ns;

	if (entry->wants > 0 || entry->pinned)
		return false;
	left_ns = rest_left(entry, idle_ns);
	if (left_ns == 0 && unload_begin(shard, entry))
		return true;
	(void)entry_arm(entry, left_ns != 0 ? left_ns : idle_ns);
	return false;
}

/* The same; the entry, if it is DEAD now. */
static struct store_entry *
entry_backed_off(struct store_shard *shard, struct store_entry *entry)
{
	uint64_t left_ns =
	    rest_left(entry, entry_store(entry)->options.backoff_ns);

	if (!entry->in_table || (left_ns != 0 && entry_arm(entry, left_ns)))
		return NULL;
	entry_leave_table(shard, entry);
	return entry_die(entry);
}

void
entry_expire(hwt_timeout timeout, void *arg)
{
	struct store_entry *entry = arg, *dead = NULL;
	struct hwt_store *store = entry_store(entry);
	struct store_shard *shard = entry_shard(entry);
	struct work work = {NULL, NULL};
	bool unloads = false;
	struct queue queue;

	(void)timeout;
	(void)a64_add_seq(&store->busy, 1);
	queue_begin(&queue);
	store_lock(shard);
	entry->armed = false;
	if (entry->state == ENTRY_FAILED) {
		dead = entry_backed_off(shard, entry);
	} else if (entry->state == ENTRY_LOADED) {
		unloads = entry_rested(shard, entry);
	} else if (entry->state == ENTRY_DEAD) {
		dead = entry;
		/* entry_die has counted, too. */
		(void)a64_add_seq(&store->busy, UINT64_MAX);
	}
	store_unlock(shard);
	queue_end(&queue);
	free(dead);
	if (unloads)
		job_begin(&work, entry);
	work_do(store, &work);
	(void)a64_add_seq(&store->busy, UINT64_MAX);
}

int
hwt_store_trim(struct hwt_store *store, uint64_t weight)
{
	int error = store_enter(store);

	if (error == 0)
		store_trim(store, weight, CHOOSE_IDLE);
	return error;
}
