/* SPDX-License-Identifier: Apache-2.0 */
/* How each timeout begins and ends, and what must be in the end: see storm.h.
 */
#include "storm.h"

#define PAYLOAD_SCHEDULED(index) (UINT64_C(0x5c4ed00000000000) + (index))
#define PAYLOAD_ENDED(index) (UINT64_C(0xe4ded00000000000) + (index))

struct item *
item_take(unsigned timer, uint64_t delay_ns, enum kind kind)
{
	unsigned index =
	    atomic_fetch_add_explicit(&round_.taken, 1, memory_order_relaxed);
	struct item *item;

	if (index >= ITEMS)
		return NULL;
	item = &round_.items[index];
	item->timer = timer;
	item->kind = kind;
	item->executor = round_.executors[kind];
	item->payload = PAYLOAD_SCHEDULED(index);
	item->due_ns = stress_now_ns() + delay_ns;
	if (delay_ns >= INT64_MAX)
		item->due_ns = UINT64_MAX;
	return item;
}

void
item_publish(struct item *item, int error)
{
	stress_check(!error || error == -ESHUTDOWN || error == -ENOBUFS,
	    "scheduling: %d", error);
	item->accepted = !error;
	if (error == -ENOBUFS)
		atomic_fetch_add_explicit(
		    &round_.rejected, 1, memory_order_relaxed);
	else if (!error)
		atomic_store_explicit(
		    &item->published, true, memory_order_release);
}

struct item *
item_any(uint64_t *random)
{
	unsigned taken =
	    atomic_load_explicit(&round_.taken, memory_order_relaxed);
	unsigned back = (unsigned)random_below(random, WINDOW);
	struct item *item;

	if (taken > ITEMS)
		taken = ITEMS;
	if (back >= taken)
		return NULL;
	item = &round_.items[taken - 1 - back];
	if (!atomic_load_explicit(&item->published, memory_order_acquire))
		return NULL;
	return item;
}

static void
take_back(struct item *item)
{
	uint64_t index = item_index(item);

	stress_check(item->payload == PAYLOAD_SCHEDULED(index),
	    "item %" PRIu64 ": arg is not as it was lent", index);
	item->payload = PAYLOAD_ENDED(index);
}

static void
count_end(struct item *item, unsigned how)
{
	atomic_fetch_add_explicit(&item->ends, how, memory_order_relaxed);
}

void
item_end(struct item *item, unsigned how)
{
	count_end(item, how);
	take_back(item);
}

/* If a task has run, all that it wrote must be seen. */
void
item_seen_ended(struct item *item)
{
	if (item->period_ns ||
	    atomic_load_explicit(&item->ends, memory_order_relaxed) != STARTED)
		return;
	stress_check(item->payload == PAYLOAD_ENDED(item_index(item)),
	    "item %zu: -ENOENT before its task had ended", item_index(item));
}

/* The payload stays until the end; but each run writes it, so that overlapping
 * runs would be told. */
static void
begin_periodic_run(struct item *item)
{
	size_t index = item_index(item);
	bool moved = atomic_load_explicit(&item->moved, memory_order_relaxed);

	stress_check(!item->last, "item %zu: a run after the last", index);
	stress_check(item->payload == PAYLOAD_SCHEDULED(index),
	    "item %zu: arg is not as it was lent", index);
	item->payload = PAYLOAD_SCHEDULED(index);
	stress_check(moved || item->started_ns >= item->due_ns,
	    "item %zu: a run %" PRIu64 " ns early", index,
	    item->due_ns - item->started_ns);
}

void
item_begin_run(struct item *item, hwt_timeout timeout)
{
	size_t index = item_index(item);

	stress_check(!atomic_exchange_explicit(
			 &item->running, true, memory_order_relaxed),
	    "item %zu: runs overlap", index);
	item->started_ns = stress_now_ns();
	count_end(item, STARTED);
	stress_check(timeout.id == round_.handles[index].id,
	    "item %zu: its task got the handle of another", index);
	if (item->kind == INLINE)
		stress_check(!atomic_load_explicit(&round_.stopped[item->timer],
				 memory_order_relaxed),
		    "item %zu: started in the worker after stop", index);
	if (item->period_ns)
		begin_periodic_run(item);
	else
		take_back(item);
}

void
item_end_run(struct item *item)
{
	atomic_store_explicit(&item->running, false, memory_order_relaxed);
}

/* In the end. */

/* A one-shot timeout ends by its run; a periodic one also after runs. */
static void
verify_item(struct item *item)
{
	size_t index = item_index(item);
	unsigned ends = atomic_load(&item->ends);
	unsigned runs = ends % CANCELLED, how = ends - runs;

	if (!item->accepted) {
		stress_check(!ends && !round_.handles[index].id,
		    "item %zu: refused, ended %#x, handle %#" PRIx64, index,
		    ends, round_.handles[index].id);
		return;
	}
	if (!ends && atomic_load(&item->replaced))
		how = CANCELLED;
	round_.counts[0]++;
	round_.runs += runs;
	round_.counts[1] += !how;
	round_.counts[2] += how == CANCELLED;
	round_.counts[3] += how == UNPROCESSED;
	stress_check(how ? how == CANCELLED || how == UNPROCESSED : runs > 0,
	    "item %zu: ended %#x (kind %d)", index, ends, (int)item->kind);
	stress_check(item->period_ns || runs + !!how == 1,
	    "item %zu: ended %#x, once each", index, ends);
	stress_check(how != UNPROCESSED || !item->last,
	    "item %zu: returned after its last run", index);
	stress_check(
	    !runs || item->period_ns || item->started_ns >= item->due_ns,
	    "item %zu: started %" PRIu64 " ns early", index,
	    item->due_ns - item->started_ns);
}

static void
verify_sum(const char *name, uint64_t counted, uint64_t expected)
{
	stress_check(counted == expected,
	    "the timers count %s %" PRIu64 ", it was %" PRIu64, name, counted,
	    expected);
}

static void
verify_stats(void)
{
	struct hwt_stats sum = {0}, stats;
	unsigned i;

	for (i = 0; i < round_.timers_count; i++) {
		stress_must(!hwt_read_stats(round_.timers[i], &stats),
		    "hwt_read_stats");
		sum.scheduled += stats.scheduled;
		sum.started += stats.started;
		sum.cancelled += stats.cancelled;
		sum.rescheduled += stats.rescheduled;
		sum.rejected += stats.rejected;
		sum.executor_refused += stats.executor_refused;
		sum.pending += stats.pending;
	}
	verify_sum("scheduled", sum.scheduled, round_.counts[0]);
	verify_sum("started", sum.started, round_.runs);
	verify_sum("cancelled", sum.cancelled, round_.counts[2]);
	verify_sum("rescheduled", sum.rescheduled, round_.rescheduled);
	verify_sum("rejected", sum.rejected, round_.rejected);
	verify_sum("pending", sum.pending, 0);
	stress_check(sum.executor_refused >= round_.refused,
	    "executor_refused %" PRIu64 ", it was %u", sum.executor_refused,
	    round_.refused);
}

/* exact: the executors are gone, and the timers are still there. */
void
ledger_verify(bool exact)
{
	size_t index;

	for (index = 0; index < ITEMS; index++)
		verify_item(&round_.items[index]);
	verify_sum("accepted", round_.counts[0],
	    round_.counts[1] + round_.counts[2] + round_.counts[3]);
	if (exact)
		verify_stats();
}
