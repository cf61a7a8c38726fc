/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch goes in rounds. A round finds the node of each call that has no
 * answer yet, sends each node its part, and then reads the answers: first of
 * the nodes that a connection is there to, then of the others. What is left
 * goes into the next round: at once if a node said where to go, or lacked a
 * script; otherwise after a back-off.
 *
 * A NODE THAT HANGS accepts connections, and answers nothing. In a cluster it
 * must not take the time of the others: where somebody else waits, a node gets
 * half of the time that is left. One that has not answered by then is refused
 * for a second, and then is given a tenth of the whole time to show that it is
 * back.
 */
#include "engine_internal.h"

#define BACK_OFF_FIRST_MS 10u
#define BACK_OFF_LAST_MS 500u

static void
group_add(struct engine_batch *batch, uint32_t node)
{
	uint32_t i;

	for (i = 0; i < batch->group_count; i++) {
		if (batch->group[i].node == node)
			return;
	}
	batch->group[batch->group_count++] =
	    (struct engine_group){.node = node};
}

/* Finds the nodes of all calls that are left. */
static void
round_route(struct engine_batch *batch)
{
	struct engine_call *call;

	batch->group_count = 0;
	for (call = batch->call; call < batch->call + batch->count; call++) {
		call->marks &= ~FRESH;
		if (call->marks & DONE)
			continue;
		if ((call->marks & ASKING) == 0)
			call->node = table_node(batch->engine, call->shard);
		if (call->node == UNROUTED) {
			call_again(batch, call, -EAGAIN);
			table_set_stale(batch->engine);
		} else
			group_add(batch, call->node);
	}
}

/* All that have a connection in the pool, or all others. */
static void
groups_talk(struct engine_batch *batch, bool from_pool)
{
	struct engine_group *group;

	for (group = batch->group; group < batch->group + batch->group_count;
	     group++) {
		if (!group->tried && group_open(batch, group, from_pool))
			group_send(batch, group);
	}
	for (group = batch->group; group < batch->group + batch->group_count;
	     group++) {
		if (group->connection != NULL)
			group_receive(batch, group);
	}
}

static void
batch_round(struct engine_batch *batch)
{
	int error = table_ensure(batch->engine, &batch->limit);
	struct engine_call *call;

	batch->wait = false;
	batch->rounds++;
	if (error != 0) {
		for (call = batch->call; call < batch->call + batch->count;
		     call++) {
			if ((call->marks & DONE) == 0)
				call_unreached(batch, call, error);
		}
		return;
	}
	round_route(batch);
	groups_talk(batch, true);
	groups_talk(batch, false);
}

static bool
batch_is_done(const struct engine_batch *batch)
{
	const struct engine_call *call;

	for (call = batch->call; call < batch->call + batch->count; call++) {
		if ((call->marks & DONE) == 0)
			return false;
	}
	return true;
}

static uint32_t
back_off_ms(struct engine_batch *batch)
{
	uint32_t most = batch->back_off_ms;
	uint64_t noise = limit_now_ns() * UINT64_C(0x9e3779b97f4a7c15) >> 33;

	batch->back_off_ms =
	    most * 2 > BACK_OFF_LAST_MS ? BACK_OFF_LAST_MS : most * 2;
	return most / 2 + (uint32_t)(noise % (most / 2 + 1));
}

/* False: there is no next round. One that begins shortly before the deadline
 * would likely get no answer in time, and so make uncertain what is certain. */
static bool
batch_pause(struct engine_batch *batch)
{
	struct limit pause = batch->limit;
	uint64_t now = limit_now_ns();
	struct engine_call *call;
	bool last;

	if (now >= batch->limit.deadline_ns)
		return false;
	if (!batch->wait)
		return true;
	if (batch->no_retry)
		return false;
	now += HWT_MS(back_off_ms(batch));
	last = now + batch->least_ns >= pause.deadline_ns;
	if (!last)
		pause.deadline_ns = now;
	if (limit_wait(&pause, -1, 0) != -ECANCELED)
		return !last;
	for (call = batch->call; call < batch->call + batch->count; call++) {
		if ((call->marks & DONE) == 0)
			call_fail(call, -ECANCELED);
	}
	return false;
}

int
engine_call(struct engine *engine, struct engine_call *call, size_t count,
    const struct engine_wait *wait)
{
	static const struct engine_wait defaults = {.stop_fd = -1};
	struct engine_batch batch = {.engine = engine,
	    .call = call,
	    .count = count,
	    .back_off_ms = BACK_OFF_FIRST_MS};
	size_t i;

	if (wait == NULL)
		wait = &defaults;
	batch.limit = engine_limit(engine, wait);
	batch.least_ns = least_of(batch.limit.deadline_ns - limit_now_ns());
	batch.replicated = wait->replicated;
	batch.no_retry = wait->no_retry;
	for (i = 0; i < count; i++) {
		call[i].marks = 0;
		call[i].index = 0;
		call[i].node = UNROUTED;
		call[i].error = -ECONNREFUSED;
		call[i].reply = NULL;
	}
	do
		batch_round(&batch);
	while (!batch_is_done(&batch) && batch_pause(&batch));
	for (i = 0; i < count; i++) {
		if (call[i].error != 0)
			return call[i].error;
	}
	return 0;
}

void
engine_call_free(struct engine_call *call, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		if (call[i].reply != NULL)
			freeReplyObject(call[i].reply);
		call[i].reply = NULL;
	}
}
