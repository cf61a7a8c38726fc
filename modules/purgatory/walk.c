/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking through the operations of a key; walks that are put off, and the end
 * of a call, which begins them.
 *
 * WALK. A walk collects the handles of up to 32 operations under the lock, and
 * looks at them without it. A handle of one that has ended meanwhile is stale,
 * and refused. If the key has more links than a batch, the walk leaves its
 * position in the list, and a second one at the end: what is linked behind that
 * comes after this event.
 *
 * RAISE decides at once, under the lock of the key's shard, what it unlinks (of
 * an operation with a quorum, with the last key that was missing: quorum.c).
 * What is linked can be found by all others, and what is not has its outcome:
 * an operation that another raise reaches never waits, undecided, behind a done
 * of the first one's thread, and does not expire there. That thread holds RUN
 * of those that it must end, so that their records stay. The owner of one that
 * it leaves ends it after that lock, which operation_unlink takes.
 */
#include <stdlib.h>

#include "operation.h"

void
batch_add(struct batch *batch, struct operation *operation)
{
	batch->visit[batch->count++] = (struct visit){
	    operation, operation_handle(operation), operation->arg};
}

/* Each operation is looked at, or ended, and its done called, before the
 * next. */
static size_t
batch_visit(struct hwt_purgatory *purgatory, const struct batch *batch,
    uint64_t outcome)
{
	struct call *call = call_of(purgatory);
	size_t decided = 0;
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		const struct visit *visit = &batch->visit[i];

		decided += outcome == 0
		    ? operation_event(visit->operation, visit->handle.id)
		    : operation_decide(
			  visit->operation, visit->handle.id, outcome);
		call_flush(call);
	}
	return decided;
}

/* With the lock held: the link's operation, if the walk concerns it. */
static void
batch_add_link(struct batch *batch, const struct link *link, bool all)
{
	struct operation *operation = link->operation;

	if (operation != NULL && (all || operation->try_complete != NULL))
		batch_add(batch, operation);
}

/* With the lock held: all of a key with few links. */
static void
collect_few(struct key *key, bool all, struct batch *batch)
{
	struct threshold *threshold = key_lowest(key);
	const struct link *link;

	for (link = key->first; link != NULL; link = link->next)
		batch_add_link(batch, link, all);
	while (all && threshold != NULL) {
		batch_add(batch, threshold->link.operation);
		threshold = key_after(key, threshold);
	}
}

void
walk_begin(struct walk *walk, struct shard *shard, struct key *key)
{
	*walk = (struct walk){.limit = shard->arrivals};
	key_place(key, &walk->at, false);
	key_place(key, &walk->end, true);
}

bool
walk_collect(struct walk *walk, struct key *key, bool all, struct batch *batch)
{
	struct link *next = walk->at.next;
	struct threshold *threshold;
	uint32_t looks;

	batch->count = 0;
	for (looks = WALK_BATCH; looks > 0 && next != &walk->end; looks--) {
		batch_add_link(batch, next, all);
		next = next->next;
	}
	key_move(&walk->at, next);
	if (!all)
		return looks == 0;
	for (; looks > 0; looks--) {
		threshold = key_after(key, &walk->after);
		if (threshold == NULL)
			return false;
		walk->after.at_least = threshold->at_least;
		walk->after.arrival = threshold->arrival;
		if (threshold->arrival < walk->limit)
			batch_add(batch, threshold->link.operation);
	}
	return true;
}

void
walk_end(struct walk *walk, struct shard *shard)
{
	key_displace(shard, &walk->at);
	key_displace(shard, &walk->end);
}

/* With the lock held, and when it returns. */
static size_t
walk_many(struct hwt_purgatory *purgatory, struct shard *shard, struct key *key,
    uint64_t outcome)
{
	struct walk walk;
	struct batch batch;
	size_t decided = 0;
	bool more;

	walk_begin(&walk, shard, key);
	do {
		more = walk_collect(&walk, key, outcome != 0, &batch);
		shard_unlock(shard);
		decided += batch_visit(purgatory, &batch, outcome);
		shard_lock(shard);
		shard->tried += call_take_tried(purgatory);
	} while (more);
	walk_end(&walk, shard);
	return decided;
}

static size_t
walk_key(struct hwt_purgatory *purgatory, const struct walk_request *request)
{
	struct shard *shard = shard_of(purgatory, request->hash);
	const uint64_t outcome = request->outcome;
	size_t decided = 0;
	struct batch batch;
	struct key *key;
	entry_t entry;

	batch.count = 0;
	shard_lock(shard);
	key = entry = table_find(&shard->table, request->name, request->hash);
	if (entry_is_link(entry))
		batch_add_link(&batch, entry_link(entry), outcome != 0);
	else if (key != NULL && key->links + key->positions <= WALK_BATCH)
		collect_few(key, outcome != 0, &batch);
	else if (key != NULL)
		decided = walk_many(purgatory, shard, key, outcome);
	shard_unlock(shard);
	return decided + batch_visit(purgatory, &batch, outcome);
}

/* What a raise has decided: how many, and those that it owns and must end. */
struct reached {
	size_t decided;
	struct operation *owned[WALK_BATCH];
	uint32_t owned_count;
};

/* With the lock held, by which the operation stays what it is. */
static void
reached_add(struct reached *reached, struct operation *operation)
{
	struct quorum *quorum = quorum_of(operation);
	enum taken taken;

	if (quorum != NULL && !quorum_count(quorum))
		return;
	taken = operation_take(
	    operation, operation_handle(operation).id, HWT_COMPLETED);
	reached->decided += taken != TAKEN_NOT;
	if (taken == TAKEN_OWN)
		reached->owned[reached->owned_count++] = operation;
}

/* With the lock held: unlinks a batch of those that value reaches, the lowest
 * first, and decides them. False: these were the last. */
static bool
collect_reached(struct shard *shard, struct key *key, uint64_t value,
    uint64_t limit, struct reached *reached)
{
	struct threshold *lowest;
	uint32_t looks;

	reached->owned_count = 0;
	for (looks = WALK_BATCH; looks > 0; looks--) {
		lowest = key != NULL ? key_lowest(key) : NULL;
		if (lowest == NULL || lowest->at_least > value ||
		    lowest->arrival >= limit)
			return false;
		if (!key_unlink(shard, &lowest->link))
			key = NULL;
		reached_add(reached, lowest->link.operation);
	}
	return true;
}

static void
end_reached(struct hwt_purgatory *purgatory, const struct reached *reached)
{
	uint32_t i;

	for (i = 0; i < reached->owned_count; i++) {
		operation_end(reached->owned[i], false);
		call_flush(call_of(purgatory));
	}
}

/* With the lock held. NULL: there is none, or no memory for that of a link that
 * is alone, which waits for no value: then this one is not kept. */
static struct key *
find_to_raise(struct shard *shard, const struct walk_request *request)
{
	entry_t entry = table_find(&shard->table, request->name, request->hash);

	return entry_is_link(entry) ? key_for_alone(shard, entry_link(entry))
				    : entry;
}

static size_t
raise_key(struct hwt_purgatory *purgatory, const struct walk_request *request)
{
	struct shard *shard = shard_of(purgatory, request->hash);
	struct reached reached;
	struct key *key;
	uint64_t limit;

	shard_lock(shard);
	limit = shard->arrivals;
	reached.decided = 0;
	key = find_to_raise(shard, request);
	if (key != NULL)
		key_raise(key, request->value);
	while (collect_reached(shard, key, request->value, limit, &reached)) {
		shard_unlock(shard);
		end_reached(purgatory, &reached);
		shard_lock(shard);
		key = find_to_raise(shard, request);
	}
	shard_unlock(shard);
	end_reached(purgatory, &reached);
	return reached.decided;
}

size_t
purgatory_walk(
    struct hwt_purgatory *purgatory, const struct walk_request *request)
{
	return request->outcome == HWT_COMPLETED ? raise_key(purgatory, request)
						 : walk_key(purgatory, request);
}

/* Walks that are put off: see CALLBACKS in operation.c. */

bool
call_put_off(struct call *call, const struct walk_request *request)
{
	struct walk_request *copy;

	if (call == NULL || call->predicates == 0)
		return false;
	copy = malloc(sizeof(*copy));
	if (copy == NULL)
		return false;
	*copy = *request;
	if (call->first_request == NULL)
		call->first_request = copy;
	else
		call->last_request->next = copy;
	call->last_request = copy;
	return true;
}

static void
call_walk(struct call *call)
{
	struct walk_request request = *call->first_request;

	free(call->first_request);
	call->first_request = request.next;
	(void)purgatory_walk(call->purgatory, &request);
}

/* What no shard has counted by the end of the outermost call. */
static void
call_count_tried(struct call *call)
{
	struct shard *shard = &call->purgatory->shard[0];

	shard_lock(shard);
	shard->tried += call_take_tried(call->purgatory);
	shard_unlock(shard);
}

/* A walk that is begun here may put off another one, but not begin it. */
void
call_end(struct call *call)
{
	if (calls != call)
		return;
	call_flush(call);
	while (call->first_request != NULL) {
		call_walk(call);
		call_flush(call);
	}
	if (call->tried != 0)
		call_count_tried(call);
	calls = call->outer;
}
