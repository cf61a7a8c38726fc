/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits under a key, and how many.
 *
 * A listing walks as a check does (WALK in walk.c): it takes a batch of
 * operations under the lock, and calls visit without it. Links keep their order
 * and new ones come behind the walk's end, so that what is linked throughout is
 * passed once. Of operations that wait for a value the walk remembers the last
 * one, by value and arrival, and passes over those that came after it had
 * begun.
 */
#include <errno.h>

#include "operation.h"

struct listing {
	struct hwt_purgatory *purgatory;
	hwt_visit *visit;
	void *ctx;
	size_t visited;
};

/* False: no more are wanted. A done that visit causes is called before the next
 * visit. */
static bool
listing_visit(struct listing *listing, const struct batch *batch)
{
	struct call *call = call_of(listing->purgatory);
	bool more = true;
	uint32_t i;

	for (i = 0; i < batch->count && more; i++) {
		const struct visit *one = &batch->visit[i];

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
	struct batch batch;
	struct walk walk;
	entry_t entry;
	bool more;

	shard_lock(shard);
	entry = table_find(&shard->table, name, hash);
	if (entry == NULL || entry_is_link(entry)) {
		batch.count = 0;
		if (entry != NULL)
			batch_add(&batch, entry_link(entry)->operation);
		shard_unlock(shard);
		(void)listing_visit(listing, &batch);
		return;
	}
	walk_begin(&walk, shard, entry);
	do {
		more = walk_collect(&walk, entry, true, &batch);
		shard_unlock(shard);
		more = listing_visit(listing, &batch) && more;
		shard_lock(shard);
	} while (more);
	walk_end(&walk, shard);
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
