/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs of rows.c that drive the inside of a timer: threads that halt at a
 * word, records, and the queue. A slab has 2 pages of 2 records, a cache has
 * room for 4, and there are 4 caches.
 */
#include "program.h"

#include <errno.h>

#define FIRST (HEADER_PAGES * PAGE_RECORDS)
#define INDEXES (1u << INDEX_BITS)
#define PAGES (INDEXES / PAGE_RECORDS)
#define THREADS (EXPLORE_THREADS_MAX + 1)
/* It is that late: what is DUE is due, and what is LATER is not. */
#define DUE_NS TICK_NS
#define LATER_NS HWT_SEC(100)

/* Numbers with names. */
enum {
	BITS,
	URGENCY,
	SLAB_URGENCY,
	TOP,
	LIMIT,
	NEXT_SLAB,
	SUMMARY,
	FREE_PAGES,
	WAKE_BEFORE,
	WAKE_SEQUENCE,
	DUE,
	LATER,
	RECORD_FIRST,
	RECORD_NEIGHBOUR,
	RECORD_NEXT_PAGE,
	RECORD_NEXT_SLAB
};
const char *const verb_names[] = {"bits", "urgency", "slab-urgency", "top",
    "limit", "next-slab", "summary", "free-pages", "wake-before",
    "wake-sequence", "due", "later", "first", "neighbour", "next-page",
    "in-next-slab", NULL};

/* Records in hand. */

static uint32_t held[THREADS][8];
static unsigned held_count[THREADS];
static bool in_hand[INDEXES];

static void
hold(unsigned thread, uint32_t index)
{
	const struct record *record = record_at(&timer->store, index);

	explore_check(index != 0 && !in_hand[index]);
	explore_check(index >> SLAB_BITS < timer->store.limit);
	explore_check(record_index(record) == index);
	explore_check(record_slab(record)->timer == timer);
	in_hand[index] = true;
	held[thread][held_count[thread]++] = index;
}

static void
take(unsigned count)
{
	while (count-- > 0)
		hold(explore_self(),
		    record_alloc(timer, thread_attach_cache(timer, true)));
}

/* Without a cache: what is left of a page goes back at once. */
ALONE(take_uncached,
    hold(explore_self(), record_alloc(timer, &timer->store.shared_cache)))

static void
give_of(unsigned thread)
{
	uint32_t index = held[thread][--held_count[thread]];

	in_hand[index] = false;
	record_free(timer, cache_of(timer), index);
}

static void
give(unsigned count)
{
	while (count-- > 0)
		give_of(explore_self());
	cache_flush(timer, cache_of(timer));
}

ALONE(give_all, give(held_count[explore_self()]))

/* What threads hold goes back: what two of them hold is there twice. */
static void
give_held(void)
{
	unsigned i;

	for (i = 0; i < THREADS; i++) {
		while (held_count[i] > 0)
			give_of(i);
	}
}

/* In first: one of what was taken there is that thread's. */
static void
hand(unsigned from, unsigned to)
{
	uint32_t *own = held[EXPLORE_THREADS_MAX];
	uint32_t *last = &own[--held_count[EXPLORE_THREADS_MAX]];

	held[to][held_count[to]++] = own[from];
	own[from] = *last;
}

TWO(slabs, least, most,
    explore_check(timer->store.limit >= least && timer->store.limit <= most))

/* A search has found nothing. */
ALONE(forget_free, a64_store_relaxed(timer->store.free_top, 0))

/* As hwt_stop does: each slab below the limit is there. */
static void
sweep(void)
{
	uint32_t index = 0;

	while ((index = record_next_used(&timer->store, index)) != 0)
		continue;
}

/* A handle in the next slab. */
static void
guess(void)
{
	hwt_timeout never = {.id = GENERATION_ONE | (SLAB_RECORDS + FIRST)};

	explore_check(hwt_cancel(timer, never) == -ENOENT);
}

/* The worker releases all that it can. */
static void
trim(void)
{
	timer->trim.active = true;
	a64_store_relaxed(&timer->store.trim_refused, 0);
	timer->trim.slab = store_limit(&timer->store);
	while (record_trim(timer, true))
		continue;
}

ALONE(trim_nothing, explore_check(!record_may_trim(timer)))

static bool
is_zero(const void *context)
{
	return *(const uint64_t *)context == 0;
}

static void
await_trim(void)
{
	const uint64_t *committed = &slab_of(FIRST)->committed;

	explore_await(committed, 8, is_zero, committed);
}

ALONE(is_idle, explore_check(timer->store.idle[0] == 1))

/* As a worker does that is about to sleep: the first entry is live then. */
static void
drop_stale(void)
{
	uint64_t tick;

	while (worker_drop_stale(timer, &tick))
		continue;
	(void)advance(0);
}

/* Caches that a thread owns. */
static void
owned(unsigned count)
{
	unsigned i;

	for (i = 0; i < CACHES_MAX; i++)
		count -= timer->store.caches[i].owned;
	explore_check(count == 0);
}

ALONE(unshared, explore_check(timer->store.shared_cache.accepted == 0))

/* Nobody ends the same sleep twice, however slowly the worker wakes. */
static uint64_t first_sleep;

ALONE(count_wakes, first_sleep = timer->announced_sequence)
ALONE(woken_per_sleep,
    explore_check(sim_wakes() <= timer->announced_sequence - first_sleep + 1))

/* Two records of different pages. */
ALONE(two_pages,
    explore_check(index_of(0) / PAGE_RECORDS != index_of(1) / PAGE_RECORDS))

/* It is no later than that tick. */
OF(by, ticks, explore_check(sim_now_ns <= timer->origin_ns + ticks * TICK_NS))

/* Who pulled it in as its tick was begun has pushed it only now. */
OF(push_late, i, (void)mpsc_push(&timer->queue, index_of(i), 0))

/* No handle is told twice. */
static hwt_timeout told[160];
static unsigned told_count;

static void
use(unsigned count, unsigned forwards)
{
	hwt_timeout own[8];
	unsigned i, j;

	for (i = 0; i < count; i++) {
		explore_check(hwt_new_timeout(timer, &own[i], subject_task,
				  NULL, 3 * TICK_NS) == 0);
		for (j = 0; j < told_count; j++)
			explore_check(told[j].id != own[i].id);
		told[told_count++] = own[i];
	}
	for (i = 0; i < count; i++)
		explore_check(
		    hwt_cancel(timer, own[forwards ? i : count - 1 - i]) == 0);
}

static void
use_down(unsigned count, unsigned forwards)
{
	for (; count > 0; count--)
		use(count, forwards);
}

/* Threads that halt. */

/* The record of timeout 0, or the next one of the first thread, or one that it
 * holds. */
static uint32_t
halt_index(void)
{
	const struct cache *cache = &timer->store.caches[0];

	if (subject[0].handle.id != 0)
		return index_of(0);
	if (cache->count > 0)
		return cache->slot[cache->count - 1];
	return held_count[0] > 0 ? held[0][0] : FIRST;
}

static const void *
word_of(unsigned name)
{
	uint32_t index = halt_index();

	switch (name) {
	case BITS:
		return &queued_of(index)->bits;
	case URGENCY:
		return &queued_of(index)->urgency;
	case SLAB_URGENCY:
		return slab_urgency_of(index);
	case TOP:
		return timer->store.free_top;
	case LIMIT:
		return &timer->store.limit;
	case NEXT_SLAB:
		return &timer->store.slabs[1];
	case SUMMARY:
		return &slab_of(index)->free_summary;
	case FREE_PAGES:
		return &timer->store.free_pages;
	case WAKE_BEFORE:
		return &timer->wake_before;
	default:
		return &timer->wake_sequence;
	}
}

static void
halt(unsigned thread, unsigned name)
{
	handles_early = true;
	thread_stop_at(thread, word_of(name), false);
}

TWO(halt_before_change, thread, name,
    thread_stop_at(thread, word_of(name), true))

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

static struct {
	uint64_t state[INDEXES], seen[INDEXES];
	/* The earliest deadline that was pushed and not seen. */
	uint64_t due_ns[INDEXES];
	unsigned pushed[INDEXES], popped[INDEXES];
	/* The last change that is due and whose push has returned; and of those
	 * who found no announcement. */
	uint64_t owed[INDEXES], relied_on[INDEXES];
	unsigned due_pushes[PAGES], due_pops[PAGES];
	uint64_t announced;
} queue;

static void
queue_begin(void)
{
	memset(&queue, 0, sizeof(queue));
	memset(queue.due_ns, 0xff, sizeof(queue.due_ns));
	sim_now_ns = timer->origin_ns + DUE_NS;
}

static uint32_t
record_named(unsigned name)
{
	static const uint32_t indexes[] = {
	    FIRST, FIRST + 1, FIRST + PAGE_RECORDS, SLAB_RECORDS + FIRST};

	return indexes[name - RECORD_FIRST];
}

/* What callers do first: they change the record by a locked instruction.
 * Returns the change. */
static uint64_t
change_state(uint32_t index, uint64_t delay_ns)
{
	uint64_t deadline_ns = timer->origin_ns + delay_ns;

	explore_modify(&queue.state[index], 8);
	queue.pushed[index]++;
	queue.due_pushes[index / PAGE_RECORDS] += delay_ns <= DUE_NS;
	if (deadline_ns < queue.due_ns[index])
		queue.due_ns[index] = deadline_ns;
	return ++queue.state[index];
}

static uint64_t
push_index(uint32_t index, uint64_t delay_ns)
{
	uint64_t deadline_ns = timer->origin_ns + delay_ns;
	uint64_t change = change_state(index, delay_ns);

	if (!mpsc_is_pushed(&timer->queue, index, deadline_ns))
		(void)mpsc_push(&timer->queue, index, deadline_ns);
	if (delay_ns <= DUE_NS && queue.owed[index] < change)
		queue.owed[index] = change;
	return change;
}

static uint64_t
delay_named(unsigned name)
{
	return name == DUE ? DUE_NS : LATER_NS;
}

TWO(push, record, when,
    (void)push_index(record_named(record), delay_named(when)))

/* Without a look whether it is there. */
static void
push_anyway(unsigned record, unsigned when)
{
	uint64_t delay_ns = delay_named(when);

	(void)change_state(record_named(record), delay_ns);
	(void)mpsc_push(
	    &timer->queue, record_named(record), timer->origin_ns + delay_ns);
}

static void
push_index_and_ask(uint32_t index)
{
	uint64_t change = push_index(index, DUE_NS);

	if (a64_load_seq(&queue.announced) == 0 &&
	    queue.relied_on[index] < change)
		queue.relied_on[index] = change;
}

/* Whether the consumer has announced that it is about to sleep. */
OF(push_and_ask, record, push_index_and_ask(record_named(record)))

/* A record in a slab that is made now. */
static void
grow_push_and_ask(void)
{
	take(1);
	push_index_and_ask(held[explore_self()][0]);
}

static void
look(uint32_t first, uint64_t bits)
{
	uint32_t index;

	for (; bits != 0; bits &= bits - 1) {
		index = first + (uint32_t)__builtin_ctzll(bits);
		queue.popped[index]++;
		explore_check(queue.popped[index] <= queue.pushed[index]);
		queue.seen[index] = explore_load(&queue.state[index], 8);
		queue.due_ns[index] = UINT64_MAX;
	}
}

static void
pop_due(void)
{
	uint64_t owed_before[INDEXES];
	uint64_t bits;
	uint32_t first, index;

	memcpy(owed_before, queue.owed, sizeof(owed_before));
	while ((bits = mpsc_pop_due(&timer->queue, sim_now_ns, &first)) != 0) {
		queue.due_pops[first / PAGE_RECORDS]++;
		explore_check(queue.due_pops[first / PAGE_RECORDS] <=
		    queue.due_pushes[first / PAGE_RECORDS]);
		look(first, bits);
	}
	for (index = 0; index < INDEXES; index++) {
		if (queue.seen[index] < owed_before[index])
			explore_fail("%u is due and was not popped", index);
	}
}

static bool
pop_page(void)
{
	uint64_t bits;
	uint32_t first;

	bits = mpsc_pop_any(&timer->queue, &first);
	look(first, bits);
	return bits != 0;
}

ALONE(pop_one_page, (void)pop_page())

static void
pop_any(void)
{
	while (pop_page())
		continue;
}

/* The consumer is about to sleep: it pops, announces it, and looks whether
 * there is more. */
static void
pop_and_announce(void)
{
	pop_due();
	pop_any();
	a64_store_seq(&queue.announced, 1);
	if (mpsc_is_empty(&timer->queue))
		return;
	pop_due();
	pop_any();
}

OF(popped, record, explore_check(queue.seen[record_named(record)] > 0))

static void
queue_verify(void)
{
	uint32_t last = timer->store.limit * SLAB_RECORDS;
	uint32_t index;

	for (index = 0; index < last; index++) {
		explore_check(queue.seen[index] >= queue.relied_on[index]);
		if (queue.state[index] == queue.seen[index])
			continue;
		if (!queue_has(index, queue.due_ns[index]))
			explore_fail("%u was pushed and is lost", index);
		explore_check(!mpsc_is_empty(&timer->queue));
	}
}

/* When no push is under way, one pass pops all, and its levels are settled. */
static void
queue_end(void)
{
	uint32_t last = timer->store.limit * SLAB_RECORDS;
	uint32_t index;

	queue_verify();
	pop_due();
	pop_any();
	explore_check(mpsc_is_empty(&timer->queue));
	for (index = 0; index < last; index++)
		explore_check(queue.state[index] == queue.seen[index]);
}

void
verbs_inside_reset(void)
{
	memset(held_count, 0, sizeof(held_count));
	memset(in_hand, 0, sizeof(in_hand));
	told_count = 0;
}

const struct verb verbs_inside[] = {
    {"take", .of = take}, /* so many records */
    {"take-uncached", .alone = take_uncached},
    {"give", .of = give}, /* so many */
    {"give-all", .alone = give_all},
    {"give-held", .alone = give_held}, /* last: what all threads hold */
    {"hand", .two = hand}, /* which one, to which thread */
    {"slabs", .two = slabs}, /* at least, at most */
    {"forget-free", .alone = forget_free},
    {"sweep", .alone = sweep},
    {"guess", .alone = guess},
    {"trim", .alone = trim},
    {"trim-nothing", .alone = trim_nothing},
    {"await-trim", .alone = await_trim},
    {"idle", .alone = is_idle}, /* the first slab is */
    {"drop-stale", .alone = drop_stale},
    {"owned", .of = owned},
    {"unshared", .alone = unshared},
    {"count-wakes", .alone = count_wakes},
    {"woken-per-sleep", .alone = woken_per_sleep}, /* once */
    {"two-pages", .alone = two_pages},
    {"by", .of = by}, /* a tick: it is no later */
    {"push-late", .of = push_late},
    {"use", .two = use}, /* so many timeouts, ended forwards */
    {"use-down", .two = use_down}, /* so many, one less, ... */
    {"halt", .two = halt}, /* a thread, at which word */
    {"halt-before-change", .two = halt_before_change},
    {"await-halted", .alone = await_stopped},
    {"go-on", .alone = go_on},
    {"queue", .alone = queue_begin},
    {"push", .two = push}, /* a record, due or later */
    {"push-anyway", .two = push_anyway},
    {"push-ask", .of = push_and_ask},
    {"grow-push-ask", .alone = grow_push_and_ask},
    {"pop-due", .alone = pop_due},
    {"pop-page", .alone = pop_one_page},
    {"pop-any", .alone = pop_any},
    {"pop-announce", .alone = pop_and_announce},
    {"popped", .of = popped},
    {"queue-verify", .alone = queue_verify},
    {"queue-end", .alone = queue_end},
    {0},
};
