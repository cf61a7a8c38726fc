/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that wait until a number of their keys have reached a value.
 *
 * Such an operation has a threshold under each key, and counts how many keys
 * are missing. A raise unlinks each threshold that it reaches and counts one
 * down; whoever counts the last one decides. A key that was reached stays so,
 * although it may go and come again with a lower value: the operation is not
 * linked under it any more. watch counts those that it finds reached.
 *
 * The record and its quorum are the owner's, but for a raise that has the lock
 * of a key's shard and has found a threshold there: it unlinks that, counts,
 * and decides before it gives the lock up. The owner of one that has ended
 * takes the lock of each shard, linked there or not, and then frees them.
 *
 *        raises                               ends it, and is the owner
 *        ------                               -------------------------
 *   (A1) lock; find the threshold        (B1) set the outcome
 *   (A2) unlink it, count, decide        (B2) lock; unlink it, if it is linked;
 *   (A3) unlock                               unlock; so for each key
 *                                        (B3) free the quorum and the record
 *
 *   Forbidden: A2 after B3. A1 finds what B2 has not unlinked, and B2 waits for
 *   A3.
 */
#include <stdlib.h>

#include "operation.h"

size_t
quorum_bytes(size_t count)
{
	return sizeof(struct quorum) + count * sizeof(struct part);
}

struct quorum *
quorum_create(size_t count, uint64_t missing)
{
	struct quorum *quorum = calloc(1, quorum_bytes(count));

	if (quorum != NULL) {
		quorum->count = count;
		a64_store_relaxed(&quorum->missing, missing);
	}
	return quorum;
}

bool
quorum_count(struct quorum *quorum)
{
	return a64_add_seq(&quorum->missing, UINT64_MAX) == 1;
}

void
quorum_unlink(struct quorum *quorum)
{
	size_t i;

	for (i = quorum->count; i-- > 0;) {
		struct part *part = &quorum->part[i];

		if (part->shard == NULL)
			continue;
		shard_lock(part->shard);
		if (link_is_linked(&part->threshold.link))
			(void)key_unlink(part->shard, &part->threshold.link);
		shard_unlock(part->shard);
	}
}
