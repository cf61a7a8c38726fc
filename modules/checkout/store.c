/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects by key: making and freeing stores. job.c loads and unloads, unload.c
 * chooses what is unloaded and when, store_request.c has who wants it.
 *
 * A store's object is an object of the checkout in an entry of a table. While a
 * job loads or unloads it, the object is in use, and the job is its holder; so
 * who wants it waits for it as for any other object, with a deadline, a cancel,
 * a pause and a shutdown, of which nothing is done here.
 *
 *     (no entry)
 *         | acquire                            load answers 0
 *         +---------> LOADING --------------------------------> LOADED
 *         |            |   ^                                    ^   |
 *         |            |   | unload has answered 0,      unload |   | chosen
 *     the next one     |   | and it is wanted          refuses  |   |
 *         ^     fails  |   |                                    |   v
 *         |            v   +--------------------------------- UNLOADING
 *     (no entry) <-- FAILED                                     |
 *         ^   back-off is over                                  |
 *         +-----------------------------------------------------+
 *                     unload has answered 0, nobody wants it
 *
 * WHO OWNS WHAT. A job begins in LOADING or UNLOADING, and ends with it. It
 * owns the object as its holder, the value, and the next move of state. All
 * else of an entry is under its shard's lock. wants counts the requests that
 * name the entry, from acquire to the end of the wait or of the hold, and its
 * job. So
 *
 *   (1) one load runs: whoever finds no entry makes one, LOADING, under the
 *       lock, with a job;
 *   (2) an entry is chosen to be unloaded under the lock, if it is LOADED and
 *       wants is 0: then no request names the object, and its word is 0, since
 *       a request is told, and ends, when it has left the object. Who wants it
 *       later finds it in use;
 *   (3) the entry is DEAD, and its memory freed, when it is in no table and
 *       wants is 0.
 *
 * A job that ends well makes the entry LOADED and frees the object, which wakes
 * who waits; it has its part in wants until then, so that nobody chooses the
 * entry in between.
 *
 * LAST ACCESS. An entry that is DEAD is counted no more, under the lock that
 * made it so: so hwt_store_destroy answers 0 where nothing is out, nobody waits
 * and no job runs. Who makes it DEAD touches the store no more: he may be the
 * task of a request's timeout. A task or job that outlives its entry is counted
 * in busy, which it touches last. hwt_store_destroy waits for it, which waits
 * for nobody but a user's granted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sys/pause.h"
#include "store.h"

#define STORE_SHARDS_DEFAULT 256u
#define STORE_SHARDS_MAX (1u << 16)

static bool
store_options_are_valid(const struct hwt_store_options *options)
{
	if (options->executor != NULL && options->executor->execute == NULL)
		return false;
	return options->shards <= STORE_SHARDS_MAX &&
	    (options->shards & (options->shards - 1)) == 0 &&
	    options->idle_ns <= INT64_MAX && options->backoff_ns <= INT64_MAX &&
	    name_is_short(options->name) && RESERVED_IS_ZERO(options);
}

/* All shards, also such as were not opened. */
static void
store_free(struct hwt_store *store)
{
	uint32_t i;

	for (i = 0; i < store->shard_count; i++)
		free(store->shards[i].bucket);
	free(store->shards);
	free(store);
}

static struct hwt_store *
store_alloc(uint32_t shards)
{
	struct hwt_store *made = alloc_lines(sizeof(*made));
	uint32_t i;

	if (made == NULL)
		return NULL;
	made->shards = alloc_lines(shards * sizeof(struct store_shard));
	if (made->shards == NULL) {
		store_free(made);
		return NULL;
	}
	made->shard_count = shards;
	for (i = 0; i < shards; i++) {
		if (!shard_open(&made->shards[i])) {
			store_free(made);
			return NULL;
		}
	}
	secret_make(&made->secret);
	return made;
}

static a64_t last_serial;

int
hwt_store_create(struct hwt_store **store, struct hwt_checkout *checkout,
    const struct hwt_store_options *options)
{
	static const struct hwt_store_options defaults;
	struct hwt_store *made;

	if (options == NULL)
		options = &defaults;
	if (store == NULL || checkout == NULL ||
	    !store_options_are_valid(options))
		return -EINVAL;
	if (timer_is_foreign(checkout->timer))
		return -EOWNERDEAD;
	made = store_alloc(
	    options->shards != 0 ? options->shards : STORE_SHARDS_DEFAULT);
	if (made == NULL)
		return -ENOMEM;
	made->checkout = checkout;
	made->options = *options;
	name_copy(made->name, options->name, "store");
	made->serial = a64_add_seq(&last_serial, 1) + 1;
	if (options->executor != NULL)
		made->executor = *options->executor;
	*store = made;
	return 0;
}

/* Those that have failed, which nobody wants. */
static void
forget_failed(struct store_shard *shard)
{
	struct store_entry *entry, *next, *failed = NULL;
	uint32_t i;

	store_lock(shard);
	for (i = 0; i < shard->buckets; i++) {
		for (entry = shard->bucket[i]; entry != NULL; entry = next) {
			next = entry->chain;
			if (entry->state != ENTRY_FAILED || entry->wants > 0)
				continue;
			entry->newer = failed;
			failed = entry;
		}
	}
	for (entry = failed; entry != NULL; entry = next) {
		next = entry->newer;
		entry_leave_table(shard, entry);
		free(entry_die(entry));
	}
	store_unlock(shard);
}

static bool
store_is_empty(struct hwt_store *store)
{
	uint32_t i, entries = 0;

	for (i = 0; i < store->shard_count; i++) {
		store_lock(&store->shards[i]);
		entries += store->shards[i].entries;
		store_unlock(&store->shards[i]);
	}
	return entries == 0;
}

/* In a child process, where nothing else runs. What another thread was about to
 * change at the fork is left as it is. */
static void
store_abandon(struct hwt_store *store)
{
	struct store_entry *entry, *next;
	uint32_t i, k;

	for (i = 0; i < store->shard_count; i++) {
		if (pthread_mutex_trylock(&store->shards[i].lock) != 0)
			continue;
		for (k = 0; k < store->shards[i].buckets; k++) {
			entry = store->shards[i].bucket[k];
			for (; entry != NULL; entry = next) {
				next = entry->chain;
				free(entry);
			}
		}
		store_unlock(&store->shards[i]);
	}
	store_free(store);
}

static void
store_end_locks(struct hwt_store *store)
{
	uint32_t i;

	for (i = 0; i < store->shard_count; i++)
		(void)pthread_mutex_destroy(&store->shards[i].lock);
}

int
hwt_store_destroy(struct hwt_store *store)
{
	uint32_t tries = 0;
	uint32_t i;

	if (store == NULL)
		return 0;
	if (store_enter(store) == -EOWNERDEAD) {
		store_abandon(store);
		return 0;
	}
	if (queue_in_granted())
		return -EDEADLK;
	store_trim(store, 0, CHOOSE_ALL);
	for (i = 0; i < store->shard_count; i++)
		forget_failed(&store->shards[i]);
	if (!store_is_empty(store))
		return -EBUSY;
	/* No task and no job begins without an entry; those that have ended
	 * the last ones were counted before. */
	while (a64_load_seq(&store->busy) != 0)
		yield_or_pause(&tries);
	store_end_locks(store);
	store_free(store);
	return 0;
}
