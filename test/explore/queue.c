/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue alone: callers push, one consumer pops. It is the queue of a timer
 * that has no timeouts; a record's state is a number that counts its changes.
 *
 * What must hold in the end: the last change of each record was seen by the
 * consumer after a pop, or the consumer finds its bit; in the near half, when
 * the record is due before mpsc_complete. Nothing is popped more often than it
 * was pushed.
 */
#include "program.h"

#define INDEXES (1u << INDEX_BITS)
/* The first records of the first two pages and of the second slab. */
#define FIRST (HEADER_PAGES * PAGE_RECORDS)
#define NEXT_PAGE (FIRST + PAGE_RECORDS)
#define NEXT_SLAB (SLAB_RECORDS + FIRST)
#define NEAR TICK_NS
#define LATER HWT_SEC(100)
/* The first horizon, and how far ahead a pass sets the next one. */
#define HORIZON HWT_SEC(1)

static uint64_t state[INDEXES], seen[INDEXES], due_ns[INDEXES];
static unsigned pushed[INDEXES], popped[INDEXES];

static void
begin(void)
{
	unsigned i;

	memset(state, 0, sizeof(state));
	memset(seen, 0, sizeof(seen));
	memset(due_ns, 0, sizeof(due_ns));
	memset(pushed, 0, sizeof(pushed));
	memset(popped, 0, sizeof(popped));
	timer_make(HWT_MANUAL, NULL);
	for (i = 0; i < 3; i++)
		thread_prepare(i, 2);
	explore_check(timer->store.limit == 2);
}

/* As callers do: the change first, by a locked instruction. Returns it. */
static uint64_t
push(uint32_t index, uint64_t delay_ns)
{
	uint64_t deadline_ns = timer->origin_ns + delay_ns;
	uint64_t change;

	explore_modify(&state[index], 8);
	change = ++state[index];
	pushed[index]++;
	due_ns[index] = deadline_ns;
	if (!mpsc_is_pushed(&timer->queue, index, deadline_ns))
		(void)mpsc_push(&timer->queue, index, deadline_ns);
	return change;
}

/* A push for the later half that finds the horizon moved on goes to both. */
static void
look(uint32_t first, uint64_t bits)
{
	uint32_t index;

	for (; bits != 0; bits &= bits - 1) {
		index = first + (uint32_t)__builtin_ctzll(bits);
		popped[index]++;
		explore_check(popped[index] <= 2 * pushed[index]);
		seen[index] = explore_load(&state[index], 8);
	}
}

static void
pop_near(void)
{
	uint64_t bits;
	uint32_t first;

	while ((bits = mpsc_pop_near(&timer->queue, &first)) != 0)
		look(first, bits);
}

static void
pop_later(void)
{
	uint64_t bits;
	uint32_t first;

	while (
	    (bits = mpsc_pop_later(&timer->queue, model_now_ns, &first)) != 0)
		look(first, bits);
}

static void
verify_index(uint32_t index)
{
	bool near, later;

	if (state[index] == seen[index])
		return;
	near = set_has(SET_NEAR, index);
	later = set_has(SET_LATER, index);
	if (!near && !later)
		explore_fail("%u was pushed and is lost", index);
	if (!near && due_ns[index] < mpsc_complete(&timer->queue))
		explore_fail("%u is not in the near half", index);
	explore_check(!mpsc_is_empty(&timer->queue));
}

static void
verify_all(void)
{
	uint32_t last = timer->store.limit * SLAB_RECORDS;
	uint32_t index;

	for (index = 0; index < last; index++)
		verify_index(index);
}

static void
end(void)
{
	uint32_t last = timer->store.limit * SLAB_RECORDS;
	uint32_t index;

	verify_all();
	pop_near();
	pop_later();
	explore_check(mpsc_is_empty(&timer->queue));
	for (index = 0; index < last; index++)
		explore_check(state[index] == seen[index]);
}

static void
push_first(void)
{
	(void)push(FIRST, NEAR);
}

static void
push_first_twice(void)
{
	(void)push(FIRST, NEAR);
	(void)push(FIRST, NEAR);
}

static void
push_neighbour(void)
{
	(void)push(FIRST + 1, NEAR);
}

static void
push_next_page(void)
{
	(void)push(NEXT_PAGE, NEAR);
}

static void
push_next_slab(void)
{
	(void)push(NEXT_SLAB, NEAR);
}

static void
pop_twice(void)
{
	pop_near();
	pop_near();
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
	pop_near();
	a64_store_seq(&announced, 1);
	if (!mpsc_is_empty(&timer->queue))
		pop_near();
}

static void
push_and_ask(uint32_t index)
{
	uint64_t change = push(index, NEAR);

	if (a64_load_seq(&announced) == 0 && relied_on[index] < change)
		relied_on[index] = change;
}

static void
push_first_and_ask(void)
{
	push_and_ask(FIRST);
}

static void
push_neighbour_and_ask(void)
{
	push_and_ask(FIRST + 1);
}

static void
push_next_slab_and_ask(void)
{
	push_and_ask(NEXT_SLAB);
}

static void
end_announced(void)
{
	uint32_t index;

	for (index = 0; index < INDEXES; index++)
		explore_check(seen[index] >= relied_on[index]);
	end();
}

/* One has set the bit of the record and stays stopped before it sets those
 * above, which a neighbour has set. Another one pushes the same record: it is
 * found without the first. */
static void
begin_neighbour_pushed(void)
{
	begin();
	(void)push(FIRST + 1, NEAR);
	thread_stop_at(0, summary_of(FIRST, SET_NEAR));
}

static void
push_and_be_stopped(void)
{
	explore_modify(&state[FIRST], 8);
	state[FIRST]++;
	pushed[FIRST]++;
	(void)mpsc_push(&timer->queue, FIRST, timer->origin_ns + NEAR);
}

static void
push_of_stopped(void)
{
	(void)push(FIRST, NEAR);
	flag_set(0);
}

static void
pop_without_stopped(void)
{
	pop_near();
	flag_await(0);
	pop_near();
	explore_check(seen[FIRST] > 0);
	go_on();
}

/* The later half; the horizon is to be moved on by the next pass. */
static void
begin_at_horizon(void)
{
	begin();
	model_now_ns = timer->origin_ns + HORIZON;
}

static void
begin_later_pushed(void)
{
	begin_at_horizon();
	(void)push(FIRST, 2 * HORIZON - 1);
	(void)push(NEXT_PAGE, LATER);
}

static void
push_before_new_horizon(void)
{
	(void)push(FIRST, 2 * HORIZON - 1);
}

static void
push_at_new_horizon(void)
{
	(void)push(NEXT_SLAB, 2 * HORIZON);
}

static void
push_before_old_horizon(void)
{
	(void)push(FIRST + 1, HORIZON - 1);
}

static void
push_at_old_horizon(void)
{
	(void)push(NEXT_PAGE, HORIZON);
}

static void
push_near_then_later(void)
{
	(void)push(FIRST, NEAR);
	(void)push(FIRST, LATER);
}

static void
push_later_then_near(void)
{
	(void)push(FIRST, LATER);
	(void)push(FIRST, NEAR);
}

static void
push_beyond_new_horizon(void)
{
	(void)push(FIRST, LATER);
}

/* Two pages, of which one is popped: the pass has not ended. */
static void
begin_two_pages_later(void)
{
	begin_at_horizon();
	(void)push(FIRST, 2 * HORIZON - 1);
	(void)push(NEXT_PAGE, 2 * HORIZON - 1);
}

static void
pass_one_page(void)
{
	uint64_t bits;
	uint32_t first;

	bits = mpsc_pop_later(&timer->queue, model_now_ns, &first);
	look(first, bits);
}

static void
end_in_pass(void)
{
	verify_all();
	pop_later();
	end();
}

static void
pass(void)
{
	pop_later();
	explore_check(
	    mpsc_complete(&timer->queue) == timer->origin_ns + 2 * HORIZON);
}

static void
pass_twice(void)
{
	pass();
	pass();
	pop_near();
}

/* A piece of a pass, the near half as before a tick, and the rest. */
static void
pass_in_pieces(void)
{
	uint64_t bits;
	uint32_t first;

	bits = mpsc_pop_later(&timer->queue, model_now_ns, &first);
	look(first, bits);
	pop_near();
	if (bits != 0)
		pop_later();
}

/* All records of as many slabs as one word of the table tells of are in use:
 * the next one is in a slab of the second word, which is made meanwhile. */
#define WORD_RECORDS (64 * (SLAB_PAGES - HEADER_PAGES) * PAGE_RECORDS)

static uint32_t in_use[WORD_RECORDS + 1];

static void
begin_word_full(void)
{
	struct cache *cache;
	unsigned i;
	int error;

	begin_announced();
	for (i = 0; i < 3; i++)
		cache_flush(timer, &timer->store.caches[i]);
	cache = cache_of(timer);
	for (i = 0; i < WORD_RECORDS; i++)
		in_use[i] = record_alloc(timer, cache, &error);
	explore_check(timer->store.limit == 64 && cache->count == 0);
}

static void
grow_and_push(void)
{
	int error;

	in_use[WORD_RECORDS] = record_alloc(timer, cache_of(timer), &error);
	push_and_ask(in_use[WORD_RECORDS]);
}

static void
end_word_full(void)
{
	unsigned i;

	end_announced();
	for (i = 0; i <= WORD_RECORDS; i++)
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
	.name = "queue/one-index-again",
	.begin = begin,
	.thread = {push_first_twice, push_first, pop_twice},
	.end = end,
    },
    {
	.name = "queue/one-page",
	.begin = begin,
	.thread = {push_first, push_neighbour, pop_twice},
	.end = end,
    },
    {
	.name = "queue/two-pages",
	.begin = begin,
	.thread = {push_first, push_next_page, pop_twice},
	.end = end,
    },
    {
	.name = "queue/two-slabs",
	.begin = begin,
	.thread = {push_first, push_next_slab, pop_twice},
	.end = end,
    },
    {
	.name = "queue/three-callers",
	.begin = begin,
	.thread = {push_first, push_first, push_neighbour, pop_near},
	.end = end,
    },
    {
	.name = "queue/stopped-at-summary",
	.begin = begin_neighbour_pushed,
	.thread = {push_and_be_stopped, push_of_stopped, pop_without_stopped},
	.end = end,
    },
    {
	.name = "queue/announce-one-index",
	.begin = begin_announced,
	.thread = {push_first_and_ask, push_first_and_ask, pop_and_announce},
	.end = end_announced,
    },
    {
	.name = "queue/announce-one-page",
	.begin = begin_announced,
	.thread = {push_first_and_ask, push_neighbour_and_ask,
	    pop_and_announce},
	.end = end_announced,
    },
    {
	.name = "queue/announce-two-slabs",
	.begin = begin_announced,
	.thread = {push_first_and_ask, push_next_slab_and_ask,
	    pop_and_announce},
	.end = end_announced,
    },
    {
	.name = "queue/horizon",
	.begin = begin_at_horizon,
	.thread = {push_before_new_horizon, push_at_new_horizon, pass},
	.end = end,
	.pso = true,
    },
    {
	.name = "queue/old-horizon",
	.begin = begin_at_horizon,
	.thread = {push_before_old_horizon, push_at_old_horizon, pass_twice},
	.end = end,
    },
    {
	.name = "queue/horizon-one-index",
	.begin = begin_later_pushed,
	.thread = {push_before_new_horizon, push_near_then_later,
	    pass_in_pieces},
	.end = end,
    },
    {
	.name = "queue/horizon-two-callers",
	.begin = begin_at_horizon,
	.thread = {push_beyond_new_horizon, push_before_new_horizon, pass},
	.end = end,
    },
    {
	.name = "queue/one-page-of-two",
	.begin = begin_two_pages_later,
	.thread = {push_at_new_horizon, pass_one_page},
	.end = end_in_pass,
    },
    {
	.name = "queue/both-halves",
	.begin = begin_later_pushed,
	.thread = {push_later_then_near, push_near_then_later, pass_twice},
	.end = end,
    },
    {
	.name = "queue/second-word",
	.begin = begin_word_full,
	.thread = {grow_and_push, pop_and_announce},
	.end = end_word_full,
	.schedules = 400,
    },
    {0},
};
