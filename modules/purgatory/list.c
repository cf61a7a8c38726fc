/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits under a key, and how many.
 *
 * A listing walks as a check does (WALK in purgatory.c): it has a position in
 * the key's list and one at the end, takes a batch of operations under the
 * lock, and calls visit without it. Links keep their order and new ones come
 * behind the end, so that what is linked throughout is passed once. Of
 * operations that wait for a value it remembers the last one, by value and
 * arrival, and passes over those that came after it had begun.
 */
#include <errno.h>

#include "operation.h"

struct listing {
	struct hwt_purgatory *purgatory;
	hwt_visit *visit;
	void *ctx;
	size_t visited;
	struct link at, end;
	struct threshold after; /* the last one that was taken */
	uint64_t limit; /* arrivals from then on are not taken */
	struct taken_one {
		struct operation *operation;
		hwt_operation handle;
		void *arg;
	} batch[WALK_BATCH];
	uint32_t count;
};

static void
listing_take(struct listing *listing, struct operation *operation)
{
	listing->batch[listing->count++] = (struct taken_one){
	    operation, operation_handle(operation), operation->arg};
}

/* With the lock held: the next ones. False: these were the last. */
static bool
listing_collect(struct listing *listing, struct key *key)
{
	struct link *next = listing->at.next;
	struct threshold *threshold;
	uint32_t looks;

	listing->count = 0;
	for (looks = WALK_BATCH; looks > 0 && next != &listing->end; looks--) {
		if (next->operation != NULL)
			listing_take(listing, next->operation);
		next = next->next;
	}
	key_move(&listing->at, next);
	for (; looks > 0; looks--) {
		threshold = key_after(key, &listing->after);
		if (threshold == NULL)
			return false;
		listing->after.at_least = threshold->at_least;
		listing->after.arrival = threshold->arrival;
		if (threshold->arrival < listing->limit)
			listing_take(listing, threshold->link.operation);
	}
	return true;
}

/* False: no more are wanted. A done that visit causes is called before the next
 * visit. */
static bool
listing_visit(struct listing *listing)
{
	struct call *call = call_of(listing->purgatory);
	bool more = true;
	uint32_t i;

	for (i = 0; i < listing->count && more; i++) {
		const struct taken_one *one = &listing->batch[i];

		if (!word_is_open(a64_load_acquire(&one->operation->word),
			one->handle.id))
			continue;
		call->callbacks++;
		more = listing->visit(one->handle, one->arg, listing->ctx);
		call->callbacks--;
		listing->visited++;
		call_flush(call);
	}
	return more;
}

static void
list_key(struct listing *listing, struct hwt_key name)
{
	uint64_t hash = key_hash(listing->purgatory, name);
	struct shard *shard = shard_of(listing->purgatory, hash);
	struct key *key;
	entry_t entry;
	bool more;

	shard_lock(shard);
	entry = table_find(&shard->table, name, hash);
	if (entry == NULL || entry_is_link(entry)) {
		listing->count = 0;
		if (entry != NULL)
			listing_take(listing, entry_link(entry)->operation);
		shard_unlock(shard);
		(void)listing_visit(listing);
		return;
	}
	key = entry;
	listing->limit = shard->arrivals;
	key_place(key, &listing->at, false);
	key_place(key, &listing->end, true);
	do {
		more = listing_collect(listing, key);
		shard_unlock(shard);
		more = listing_visit(listing) && more;
		shard_lock(shard);
	} while (more);
	key_displace(shard, &listing->at);
	key_displace(shard, &listing->end);
	shard_unlock(shard);
}

int
hwt_purgatory_list_key(struct hwt_purgatory *purgatory, struct hwt_key key,
    hwt_visit *visit, void *ctx, size_t *visited)
{
	struct listing listing;
	struct call call;
	int error = purgatory_enter(purgatory);

	listing.visited = 0;
	if (error == 0 && visit == NULL)
		error = -EINVAL;
	if (error == 0) {
		listing.purgatory = purgatory;
		listing.visit = visit;
		listing.ctx = ctx;
		listing.after.at_least = 0;
		listing.after.arrival = 0;
		call_begin(&call, purgatory);
		list_key(&listing, key);
		call_end(&call);
	}
	if (visited != NULL)
		*visited = listing.visited;
	return error;
}

int
hwt_purgatory_count_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *count)
{
	int error = purgatory_enter(purgatory);
	const struct key *found;
	struct shard *shard;
	entry_t entry;
	uint64_t hash;

	if (error != 0)
		return error;
	if (count == NULL)
		return -EINVAL;
	hash = key_hash(purgatory, key);
	shard = shard_of(purgatory, hash);
	shard_lock(shard);
	entry = table_find(&shard->table, key, hash);
	found = entry;
	if (entry == NULL || entry_is_link(entry))
		*count = entry != NULL;
	else
		*count = found->links;
	shard_unlock(shard);
	return 0;
}
