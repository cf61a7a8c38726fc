/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue alone: callers push, one consumer pops. It is the queue of a timer
 * that has no timeouts; a record's state is a number that counts its changes.
 *
 * What must hold in the end: the last change of each record was seen by the
 * consumer after a pop, or the consumer finds it in time for the earliest
 * deadline that was pushed since. A due pass sees all that is due and was
 * pushed before it began, and pops no page more often than something due was
 * pushed there. Nothing is popped more often than it was pushed.
 */
#include "program.h"

#define INDEXES (1u << INDEX_BITS)
#define PAGES (INDEXES / PAGE_RECORDS)
/* The first records of the first two pages and of the second slab. */
#define FIRST (HEADER_PAGES * PAGE_RECORDS)
#define NEXT_PAGE (FIRST + PAGE_RECORDS)
#define NEXT_SLAB (SLAB_RECORDS + FIRST)
/* It is that late: what is DUE is due, and what is LATER is not. */
#define DUE TICK_NS
#define LATER HWT_SEC(100)

static uint64_t state[INDEXES], seen[INDEXES];
/* The earliest deadline that was pushed and not seen. */
static uint64_t due_ns[INDEXES];
static unsigned pushed[INDEXES], popped[INDEXES];
/* The last change that is due and whose push has returned. */
static uint64_t owed[INDEXES];
static unsigned due_pushes[PAGES], due_pops[PAGES];

static void
begin(void)
{
	memset(state, 0, sizeof(state));
	memset(seen, 0, sizeof(seen));
	memset(due_ns, 0xff, sizeof(due_ns));
	memset(pushed, 0, sizeof(pushed));
	memset(popped, 0, sizeof(popped));
	memset(owed, 0, sizeof(owed));
	memset(due_pushes, 0, sizeof(due_pushes));
	memset(due_pops, 0, sizeof(due_pops));
	timer_make(HWT_MANUAL, NULL);
	threads_prepare(2, 2, 2);
	explore_check(timer->store.limit == 2);
	sim_now_ns = timer->origin_ns + DUE;
}

/* What callers do first: they change the record by a locked instruction.
 * Returns the change. */
static uint64_t
change_state(uint32_t index, uint64_t delay_ns)
{
	uint64_t deadline_ns = timer->origin_ns + delay_ns;

	explore_modify(&state[index], 8);
	pushed[index]++;
	due_pushes[index / PAGE_RECORDS] += delay_ns <= DUE;
	if (deadline_ns < due_ns[index])
		due_ns[index] = deadline_ns;
	return ++state[index];
}

static uint64_t
push(uint32_t index, uint64_t delay_ns)
{
	uint64_t deadline_ns = timer->origin_ns + delay_ns;
	uint64_t change = change_state(index, delay_ns);

	if (!mpsc_is_pushed(&timer->queue, index, deadline_ns))
		(void)mpsc_push(&timer->queue, index, deadline_ns);
	if (delay_ns <= DUE && owed[index] < change)
		owed[index] = change;
	return change;
}

static void
look(uint32_t first, uint64_t bits)
{
	uint32_t index;

	for (; bits != 0; bits &= bits - 1) {
		index = first + (uint32_t)__builtin_ctzll(bits);
		popped[index]++;
		explore_check(popped[index] <= pushed[index]);
		seen[index] = explore_load(&state[index], 8);
		due_ns[index] = UINT64_MAX;
	}
}

static void
pop_due(void)
{
	uint64_t owed_before[INDEXES];
	uint64_t bits;
	uint32_t first, index;

	memcpy(owed_before, owed, sizeof(owed));
	while ((bits = mpsc_pop_due(&timer->queue, sim_now_ns, &first)) != 0) {
		due_pops[first / PAGE_RECORDS]++;
		explore_check(due_pops[first / PAGE_RECORDS] <=
		    due_pushes[first / PAGE_RECORDS]);
		look(first, bits);
	}
	for (index = 0; index < INDEXES; index++) {
		if (seen[index] < owed_before[index])
			explore_fail("%u is due and was not popped", index);
	}
}

static bool
pop_one_page(void)
{
	uint64_t bits;
	uint32_t first;

	bits = mpsc_pop_any(&timer->queue, &first);
	look(first, bits);
	return bits != 0;
}

static void
pop_any(void)
{
	while (pop_one_page())
		continue;
}

static void
verify_all(void)
{
	uint32_t last = timer->store.limit * SLAB_RECORDS;
	uint32_t index;

	for (index = 0; index < last; index++) {
		if (state[index] == seen[index])
			continue;
		if (!queue_has(index, due_ns[index]))
			explore_fail("%u was pushed and is lost", index);
		explore_check(!mpsc_is_empty(&timer->queue));
	}
}

/* When no push is under way, one pass pops all, and its levels are settled. */
static void
end(void)
{
	uint32_t last = timer->store.limit * SLAB_RECORDS;
	uint32_t index;

	verify_all();
	pop_due();
	pop_any();
	explore_check(mpsc_is_empty(&timer->queue));
	for (index = 0; index < last; index++)
		explore_check(state[index] == seen[index]);
}

static void
push_first(void)
{
	(void)push(FIRST, DUE);
}

static void
push_later_then_due(void)
{
	(void)push(FIRST, LATER);
	(void)push(FIRST, DUE);
}

static void
push_due_then_later(void)
{
	(void)push(FIRST, DUE);
	(void)push(FIRST, LATER);
}

static void
push_neighbour(void)
{
	(void)push(FIRST + 1, DUE);
}

static void
push_neighbour_later(void)
{
	(void)push(FIRST + 1, LATER);
}

static void
push_next_page(void)
{
	(void)push(NEXT_PAGE, DUE);
}

static void
push_next_slab(void)
{
	(void)push(NEXT_SLAB, DUE);
}

static void
pop_twice(void)
{
	pop_due();
	pop_due();
}

/* As a worker does: before a turn, and then a piece of the rest. */
static void
pop_due_and_any(void)
{
	pop_due();
	pop_any();
}

/* The consumer is about to sleep: it pops, announces it, and looks whether
 * there is more. Who does not find the announcement relies on that. */
static uint64_t announced;
static uint64_t relied_on[INDEXES];

static void
begin_announced(void)
{
	begin();
	announced = 0;
	memset(relied_on, 0, sizeof(relied_on));
}

static void
pop_and_announce(void)
{
	pop_due_and_any();
	a64_store_seq(&announced, 1);
	if (!mpsc_is_empty(&timer->queue))
		pop_due_and_any();
}

static void
push_and_ask(uint32_t index, uint64_t delay_ns)
{
	uint64_t change = push(index, delay_ns);

	if (a64_load_seq(&announced) == 0 && relied_on[index] < change)
		relied_on[index] = change;
}

static void
push_first_and_ask(void)
{
	push_and_ask(FIRST, DUE);
}

static void
end_announced(void)
{
	uint32_t index;

	for (index = 0; index < INDEXES; index++)
		explore_check(seen[index] >= relied_on[index]);
	end();
}

/* One stays stopped in its push, between two levels; a neighbour has been
 * pushed before. Another one pushes the same record: it is found without the
 * first. */
static void
begin_neighbour_pushed(void)
{
	begin();
	(void)push(FIRST + 1, DUE);
}

static void
begin_stopped_at_slab(void)
{
	begin_neighbour_pushed();
	thread_stop_at(0, slab_urgency_of(FIRST));
}

static void
push_and_be_stopped(void)
{
	(void)change_state(FIRST, DUE);
	(void)mpsc_push(&timer->queue, FIRST, timer->origin_ns + DUE);
}

static void
push_of_stopped(void)
{
	(void)push(FIRST, DUE);
	flag_set(0);
}

static void
pop_without_stopped(void)
{
	pop_due();
	flag_await(0);
	pop_due();
	explore_check(seen[FIRST] > 0);
	go_on();
}

/* What is popped leaves something that is due later on another page, in
 * another slab: the levels above go down to that, while others push. */
static void
begin_to_settle(void)
{
	begin();
	(void)push(NEXT_PAGE, LATER);
	(void)push(NEXT_SLAB, LATER);
	(void)push(FIRST, DUE);
}

static void
pop_and_settle(void)
{
	pop_due();
	explore_check(seen[FIRST] > 0);
}

/* A pass stops half way, and what is due is popped before it goes on. */
static void
begin_two_pages_later(void)
{
	begin();
	(void)push(FIRST, LATER);
	(void)push(NEXT_PAGE, LATER);
}

static void
pop_half(void)
{
	(void)pop_one_page();
	pop_due();
}

static void
end_half_done(void)
{
	verify_all();
	pop_any();
	end();
}

/* All records are in use: the next one is in a slab that is made meanwhile. */
#define TWO_SLABS (2 * (SLAB_PAGES - HEADER_PAGES) * PAGE_RECORDS)

static uint32_t in_use[TWO_SLABS + 1];

static void
begin_slabs_full(void)
{
	struct cache *cache;
	unsigned i;

	begin_announced();
	for (i = 0; i < 3; i++)
		cache_flush(timer, &timer->store.caches[i]);
	cache = cache_of(timer);
	for (i = 0; i < TWO_SLABS; i++)
		in_use[i] = record_alloc(timer, cache);
	explore_check(timer->store.limit == 2 && cache->count == 0);
}

static void
grow_and_push(void)
{
	in_use[TWO_SLABS] = record_alloc(timer, cache_of(timer));
	push_and_ask(in_use[TWO_SLABS], DUE);
}

static void
end_slabs_full(void)
{
	unsigned i;

	end_announced();
	for (i = 0; i <= TWO_SLABS; i++)
		record_free(timer, cache_of(timer), in_use[i]);
}

const struct program queue_programs[] = {
    {
	.name = "queue/one-index",
	.begin = begin,
	.thread = {push_first, push_first, pop_twice},
	.end = end,
    },
    {
	.name = "queue/one-page",
	.begin = begin,
	.thread = {push_first, push_neighbour, pop_twice},
	.end = end,
    },
    {
	.name = "queue/two-slabs",
	.begin = begin,
	.thread = {push_first, push_next_slab, pop_twice},
	.end = end,
    },
    {
	.name = "queue/due-and-later-on-one-page",
	.begin = begin,
	.thread = {push_first, push_neighbour_later, pop_due_and_any},
	.end = end,
    },
    {
	.name = "queue/pulled-in-and-put-off",
	.begin = begin,
	.thread = {push_later_then_due, push_due_then_later, pop_twice},
	.end = end,
    },
    {
	.name = "queue/stopped-at-slab",
	.begin = begin_stopped_at_slab,
	.thread = {push_and_be_stopped, push_of_stopped, pop_without_stopped},
	.end = end,
    },
    {
	.name = "queue/settle-one-slab",
	.begin = begin_to_settle,
	.thread = {push_first, push_next_page, pop_and_settle},
	.end = end,
    },
    {
	.name = "queue/settle-two-slabs",
	.begin = begin_to_settle,
	.thread = {push_next_page, push_next_slab, pop_and_settle},
	.end = end,
    },
    {
	.name = "queue/half-done",
	.begin = begin_two_pages_later,
	.thread = {push_first, push_next_slab, pop_half},
	.end = end_half_done,
    },
    {
	.name = "queue/announce-one-index",
	.begin = begin_announced,
	.thread = {push_first_and_ask, push_first_and_ask, pop_and_announce},
	.end = end_announced,
    },
    {
	.name = "queue/new-slab",
	.begin = begin_slabs_full,
	.thread = {grow_and_push, pop_and_announce},
	.end = end_slabs_full,
    },
    {0},
};
