/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Free records, from inside: which threads have a cache of which timers, what
 * goes from there to the set that all share and back, and how pages and slabs
 * are released and opened again. Nothing but speed and memory depends on it,
 * so no promise is about it.
 */
#include "test/spec/support.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/timer.h"

SUITE(caches);

#define TIMERS (THREAD_SLOTS + 2)
#define TIMEOUTS (4 * (ATTACH_SKIP + 1))

/* Timers and what a thread that has just begun did to them. */
struct crowd {
	struct hwt *timer[TIMERS];
	hwt_timeout timeout[TIMERS][TIMEOUTS];
	uint32_t before[TIMERS];
	unsigned cancelled[TIMERS];
};

static struct crowd crowd;
/* How often pthread_mutex_trylock is to find the lock taken. */
static unsigned taken;

int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);

int
__wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	if (taken == 0)
		return __real_pthread_mutex_trylock(mutex);
	taken--;
	return EBUSY;
}

/* How many caches of a timer are some thread's. */
static uint32_t
owned(const struct hwt *timer)
{
	const struct record_store *store = &timer->store;
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < a64_load_acquire(&store->caches_used); i++)
		count += a64_load_acquire(&store->caches[i].owned) != 0;
	return count;
}

static void
crowd_open(void)
{
	const struct hwt_options options = {.flags = HWT_MANUAL};

	for (unsigned i = 0; i < TIMERS; i++) {
		assert_ok(hwt_create(&crowd.timer[i], &options));
		for (unsigned k = 0; k < TIMEOUTS; k++)
			crowd.timeout[i][k] = schedule_task(
			    crowd.timer[i], forbidden_task, HWT_MIN(1));
	}
	for (unsigned i = 0; i < TIMERS; i++)
		crowd.before[i] = owned(crowd.timer[i]);
}

static void
crowd_end(unsigned i)
{
	assert_ok(hwt_stop(crowd.timer[i], NULL));
	assert_ok(hwt_destroy(crowd.timer[i]));
	crowd.timer[i] = NULL;
}

static void
crowd_close(void)
{
	for (unsigned i = 0; i < TIMERS; i++) {
		if (crowd.timer[i] != NULL)
			crowd_end(i);
	}
}

static void
cancel_next(unsigned i)
{
	assert_ok(
	    hwt_cancel(crowd.timer[i], crowd.timeout[i][crowd.cancelled[i]++]));
}

/* How many caches of the timer this thread has. */
static uint32_t
gained(unsigned i)
{
	return owned(crowd.timer[i]) - crowd.before[i];
}

static void
cancel_in_as_many_as_there_are_slots(void)
{
	for (unsigned i = 0; i < THREAD_SLOTS; i++) {
		cancel_next(i);
		assert_u64(gained(i), 1);
	}
}

static void
see_them_end(void)
{
	cancel_in_as_many_as_there_are_slots();
	for (unsigned i = 0; i < THREAD_SLOTS; i++)
		crowd_end(i);
}

/* A test whose body runs in a thread of its own, which has just begun. */
#define CrowdTest(suite, name)                                          \
	static void suite##_##name##_thread(unsigned index, void *arg); \
	Test(suite, name)                                               \
	{                                                               \
		crowd_open();                                           \
		in_parallel(1, suite##_##name##_thread, NULL);          \
		crowd_close();                                          \
	}                                                               \
	static void suite##_##name##_thread(                            \
	    __attribute__((unused)) unsigned index,                     \
	    __attribute__((unused)) void *arg)

CrowdTest(caches, a_thread_that_only_cancels_forgets_timers_that_are_gone)
{
	see_them_end();

	cancel_next(THREAD_SLOTS);
	assert_u64(gained(THREAD_SLOTS), 1);
	cancel_next(THREAD_SLOTS + 1);
	assert_u64(gained(THREAD_SLOTS + 1), 1);
}

CrowdTest(caches, it_waits_for_no_lock_but_tries_again_later)
{
	const unsigned i = THREAD_SLOTS;

	see_them_end();
	taken = 1;

	cancel_next(i);
	assert_u64(taken, 0);
	assert_u64(gained(i), 0);
	while (gained(i) == 0)
		cancel_next(i);
	cr_assert(crowd.cancelled[i] > 2);
	cr_assert(crowd.cancelled[i] <= ATTACH_SKIP + 2);
}

CrowdTest(caches, it_keeps_those_of_timers_that_live)
{
	cancel_in_as_many_as_there_are_slots();

	while (crowd.cancelled[THREAD_SLOTS] < TIMEOUTS)
		cancel_next(THREAD_SLOTS);
	assert_u64(gained(THREAD_SLOTS), 0);
	for (unsigned i = 0; i < THREAD_SLOTS; i++)
		assert_u64(gained(i), 1);
}

/* Returns how many caches of a new timer this thread has in the end. */
static int
schedule_in_a_new_timer(void)
{
	struct hwt *timer;

	if (hwt_create(&timer, &(struct hwt_options){.flags = HWT_MANUAL}) != 0)
		return -1;
	for (unsigned i = 0; i < TIMEOUTS && owned(timer) == 0; i++)
		(void)!hwt_new_timeout(
		    timer, NULL, forbidden_task, NULL, HWT_MIN(1));
	return (int)owned(timer);
}

CrowdTest(caches, in_a_child_the_slots_are_free_again)
{
	int status = -1;
	pid_t child;

	cancel_in_as_many_as_there_are_slots();

	child = fork();
	if (child == 0)
		_exit(schedule_in_a_new_timer());
	cr_assert(waitpid(child, &status, 0) == child);
	cr_assert(WIFEXITED(status));
	assert_u64((uint64_t)WEXITSTATUS(status), 1);
}

/* Nobody's caches become those of a thread that there is not, and back. */
static void
change_owners(struct hwt *timer, uint32_t from, uint32_t to)
{
	uint32_t i;

	for (i = 0; i < CACHES_MAX; i++) {
		a64_t *word = &timer->store.caches[i].owned;

		if (a64_load_relaxed(word) == from)
			a64_store_relaxed(word, to);
	}
}

CrowdTest(caches, where_none_is_left_a_thread_looks_again_now_and_then)
{
	struct hwt *timer = crowd.timer[0];

	change_owners(timer, 0, 2);
	assert_ok(
	    hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_MIN(1)));
	change_owners(timer, 2, 0);
	assert_u64(gained(0), 0);

	while (gained(0) == 0)
		cancel_next(0);
	cr_assert(crowd.cancelled[0] > ATTACH_SKIP / 4);
	cr_assert(crowd.cancelled[0] <= ATTACH_SKIP + 1);
}

/* One timer, and the cache of the test's own thread. */

#define IN_A_SLAB ((SLAB_PAGES - HEADER_PAGES) * PAGE_RECORDS)
#define SLABS 5
#define MANY_SLABS 65
#define PEAK (SLABS * IN_A_SLAB)

static hwt_timeout peak[PEAK];

static const struct record_store *
store_of(void)
{
	return &manual.timer->store;
}

static void
schedule_some(uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		peak[i] =
		    schedule_task(manual.timer, forbidden_task, HWT_SEC(3600));
}

static void
cancel_some(uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		assert_ok(hwt_cancel(manual.timer, peak[i]));
}

/* Complete pages of the free set that are committed, or not. */
static uint32_t
complete_pages(bool committed)
{
	const struct record_store *store = store_of();
	uint32_t count = 0;
	uint32_t number, page;

	for (number = 0; number < store_limit(store); number++) {
		const struct slab *slab = slab_at(store, number);
		uint64_t pages = a64_load_relaxed(&slab->committed);

		for (page = HEADER_PAGES; page < SLAB_PAGES; page++)
			count += a64_load_relaxed(&slab->free_bits[page]) ==
				PAGE_ALL &&
			    (pages >> page & 1) == committed;
	}
	return count;
}

static uint32_t
idle_slabs(void)
{
	const struct record_store *store = store_of();
	uint32_t count = 0;
	uint32_t word;

	for (word = 0; word < TOP_WORDS; word++)
		count += (uint32_t)__builtin_popcountll(store->idle[word]);
	return count;
}

static uint32_t
cached(void)
{
	return store_of()->caches[0].count;
}

ManualTest(caches, an_empty_one_takes_a_page)
{
	uint64_t bytes;

	schedule_some(1);
	assert_u64(cached(), PAGE_RECORDS - 1);
	bytes = manual_stats().memory_bytes;

	schedule_some(PAGE_RECORDS - 1);
	assert_u64(cached(), 0);
	assert_u64(manual_stats().memory_bytes, bytes);
	schedule_some(1);
	assert_u64(cached(), PAGE_RECORDS - 1);
	assert_u64(manual_stats().memory_bytes, bytes + PAGE_BYTES);
}

ManualTest(caches, a_full_one_returns_half_of_what_it_has)
{
	schedule_some(3 * PAGE_RECORDS);
	assert_u64(cached(), 0);

	cancel_some(CACHE_SLOTS);
	assert_u64(cached(), CACHE_SLOTS);
	assert_u64(complete_pages(true), 0);
	assert_ok(hwt_cancel(manual.timer, peak[CACHE_SLOTS]));

	/* The older half: the first page. */
	assert_u64(cached(), CACHE_SLOTS / 2 + 1);
	assert_u64(complete_pages(true), CACHE_SLOTS / 2 / PAGE_RECORDS);
	assert_u64(
	    a64_load_relaxed(&store_of()->free_pages), complete_pages(true));
}

/* What is a quarter used is taken before a page that never was. */
ManualTest(caches, pages_that_have_few_are_taken_together)
{
	uint32_t i;

	schedule_some(4 * PAGE_RECORDS);
	for (i = 0; i < 4 * PAGE_RECORDS; i += 8)
		assert_ok(hwt_cancel(manual.timer, peak[i]));
	manual_step(0);
	assert_u64(cached(), 0);

	schedule_some(1);

	assert_u64(cached(), 4 * PAGE_RECORDS / 8 - 1);
}

/* One and two more than a word has bits. */
ManualTest(caches, each_of_many_idle_slabs_is_opened_again)
{
	static hwt_timeout live[(MANY_SLABS + 1) * IN_A_SLAB];
	uint32_t turn, slabs, i;

	for (turn = 0; turn < 4; turn++) {
		slabs = MANY_SLABS + turn / 2;
		for (i = 0; i < slabs * IN_A_SLAB; i++)
			live[i] = schedule_task(
			    manual.timer, forbidden_task, HWT_SEC(3600));
		assert_u64(store_limit(store_of()), slabs);
		assert_u64(idle_slabs(), 0);
		for (i = 0; i < slabs * IN_A_SLAB; i++)
			assert_ok(hwt_cancel(manual.timer, live[i]));

		assert_u64(manual_wait(), HWT_NEVER);

		assert_u64(idle_slabs(), slabs);
	}
}

static void
schedule_one(unsigned index, void *arg)
{
	(void)index;
	(void)schedule_task(arg, forbidden_task, HWT_SEC(3600));
}

/* Each finds no record at first. */
Test(caches, threads_that_begin_together_share_a_slab)
{
	for (unsigned turn = 0; turn < 200; turn++) {
		manual_open(NULL);
		in_parallel(4, schedule_one, manual.timer);
		assert_u64(store_limit(store_of()), 1);
		manual_close();
	}
}

/* One thread is held in mmap, for a slab or for the entries of its records. The
 * task of another timeout needs a slab, too: it waits for nobody. */
static struct gate mmap_gate;

static void
grow_in_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	schedule_one(0, arg);
}

static void
be_held_or_turn(unsigned index, void *arg)
{
	if (index == 0) {
		schedule_one(0, arg);
		return;
	}
	gate_await(&mmap_gate);
	assert_u64(manual_step(FIXTURE_TICK), 1);
	assert_u64(hwt_pending_timeouts(manual.timer), IN_A_SLAB);
	gate_open(&mmap_gate);
}

ManualTest(caches, a_thread_that_is_held_in_mmap_holds_no_other)
{
	uint32_t i;

	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, grow_in_task, manual.timer, FIXTURE_TICK));
	for (i = 1; i < IN_A_SLAB; i++)
		(void)schedule_task(
		    manual.timer, forbidden_task, HWT_SEC(3600));
	gate_init(&mmap_gate);
	fault_hold_mmap(&mmap_gate);

	in_parallel(2, be_held_or_turn, manual.timer);

	assert_u64(hwt_pending_timeouts(manual.timer), IN_A_SLAB + 1);
	assert_u64(store_limit(store_of()), 2);
}

/* They are fewer than a cache takes at once. */
ManualTest(caches, a_few_that_are_free_serve_before_there_is_another_slab)
{
	uint32_t few, i;

	schedule_some(IN_A_SLAB);
	for (few = 1; few <= 3; few++) {
		for (i = 0; i < few; i++)
			assert_ok(hwt_cancel(manual.timer, peak[i * 1000]));
		manual_step(0);

		fault_arm(FAULT_MMAP, FAULT_ALWAYS);
		for (i = 0; i < few; i++)
			peak[i * 1000] = schedule_task(
			    manual.timer, forbidden_task, HWT_SEC(3600));
		assert_u64(fault_disarm(), 0);
	}
}

/* Whichever of them could not be had. */
Test(caches, a_batch_without_memory_returns_what_it_took)
{
	static struct hwt_spec specs[IN_A_SLAB + 2];
	uint32_t more, i;

	for (i = 0; i < IN_A_SLAB + 2; i++)
		specs[i] = (struct hwt_spec){
		    .task = forbidden_task, .delay_ns = HWT_SEC(3600)};
	manual_open(NULL);
	for (more = 1; more <= 2; more++) {
		schedule_some(1);
		cancel_some(1);
		fault_arm(FAULT_MMAP, FAULT_ALWAYS);
		assert_rc(hwt_new_timeouts(
			      manual.timer, IN_A_SLAB + more, specs, NULL),
		    -ENOMEM);

		schedule_some(IN_A_SLAB);

		(void)fault_disarm();
		assert_u64(store_limit(store_of()), 1);
		cancel_some(IN_A_SLAB);
	}
	manual_close();
}

/* One page of each slab is in use, and what comes after it is passed over. */
ManualTest(caches, a_stop_finds_what_lies_behind_pages_that_were_given_back)
{
	struct hwt_unprocessed list;
	uint64_t kept = 0;
	uint32_t i, in_slab;

	schedule_some(PEAK);
	for (i = 0; i < PEAK; i++) {
		in_slab = (peak[i].id & INDEX_MASK) % SLAB_RECORDS;
		if (in_slab / PAGE_RECORDS == HEADER_PAGES)
			kept++;
		else
			assert_ok(hwt_cancel(manual.timer, peak[i]));
	}
	assert_u64(kept, SLABS * PAGE_RECORDS);
	assert_u64(manual_wait(), HWT_SEC(3600));
	assert_u64(complete_pages(true), 0);

	assert_ok(hwt_stop(manual.timer, &list));

	assert_u64(list.count, kept);
}

/* How often the most used record of a slab was used, others begin with, when
 * their page is committed again. */
ManualTest(caches, no_generation_comes_again_with_a_page)
{
	static uint64_t before[SLABS * SLAB_RECORDS];
	uint32_t turn, i;

	schedule_some(PEAK);
	for (turn = 0; turn < 7; turn++) {
		assert_ok(hwt_cancel(manual.timer, peak[PEAK - 1]));
		peak[PEAK - 1] =
		    schedule_task(manual.timer, forbidden_task, HWT_SEC(3600));
	}
	for (i = 0; i < PEAK; i++)
		before[peak[i].id & INDEX_MASK] = peak[i].id >> INDEX_BITS;
	cancel_some(PEAK);
	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(idle_slabs(), SLABS);

	schedule_some(PEAK);
	for (i = 0; i < PEAK; i++) {
		uint64_t was = before[peak[i].id & INDEX_MASK];
		uint64_t is = peak[i].id >> INDEX_BITS;
		bool last = (peak[i].id & INDEX_MASK) >> SLAB_BITS == SLABS - 1;
		uint64_t since = (is - was) & GENERATION_MASK;

		cr_assert(since >= 1 && since <= (last ? 8 : 1));
	}
}

static bool
is_same(const struct secret *a, const struct secret *b)
{
	return a->word[0] == b->word[0] || a->word[1] == b->word[1];
}

static void
assert_that_secrets_differ(void)
{
	const struct hwt_options options = {.flags = HWT_MANUAL};
	struct hwt *timer[64];

	for (unsigned i = 0; i < 64; i++)
		cr_assert(hwt_create(&timer[i], &options) == 0);
	for (unsigned i = 0; i < 64; i++) {
		for (unsigned j = 0; j < i; j++)
			cr_assert(!is_same(
			    &timer[i]->store.secret, &timer[j]->store.secret));
	}
	for (unsigned i = 0; i < 64; i++) {
		cr_assert(hwt_stop(timer[i], NULL) == 0);
		cr_assert(hwt_destroy(timer[i]) == 0);
	}
}

Test(caches, no_two_timers_begin_with_the_same_generations)
{
	assert_that_secrets_differ();
	fault_arm(FAULT_RANDOM, FAULT_ALWAYS);
	assert_that_secrets_differ();
	cr_assert(fault_disarm() >= 64);
}

/* Without getrandom they come from the time and the address, which may differ
 * by the same bits. */
Test(caches, secrets_differ_that_are_made_one_after_the_other)
{
	static struct secret secret[64];

	for (unsigned round = 0; round < 1000; round++) {
		for (unsigned i = 0; i < 64; i++)
			secret_derive(&secret[i]);
		for (unsigned i = 0; i < 64; i++) {
			for (unsigned j = 0; j < i; j++)
				cr_assert(!is_same(&secret[i], &secret[j]));
		}
	}
}

/* Random bytes, and the handle of a record that was not used before. */
static hwt_timeout
first_handle(const unsigned char *random)
{
	hwt_timeout first;

	random_give(random, sizeof(struct secret));
	manual_open(NULL);
	first = schedule_task(manual.timer, forbidden_task, HWT_SEC(1));
	manual_close();
	return first;
}

/* Which are not a time or an address, that others could guess. */
Test(caches, generations_begin_with_what_getrandom_gives)
{
	unsigned char random[sizeof(struct secret)] = {0};
	hwt_timeout first = first_handle(random);

	assert_u64(first_handle(random).id, first.id);
	for (unsigned bit = 0; bit < 8 * sizeof(random); bit++) {
		random[bit / 8] ^= 1u << bit % 8;
		cr_assert(first_handle(random).id != first.id);
		random[bit / 8] ^= 1u << bit % 8;
	}
}

/* Those that CPython 3.11 computes, which uses the same hash. */
Test(caches, the_hash_of_secrets_is_siphash_1_3)
{
	const struct secret zero = {{0, 0}};

	assert_u64(secret_hash(&zero, 0, 0), UINT64_C(0x76be999e3e25b2a0));
	assert_u64(secret_hash(&zero, UINT64_C(0x0706050403020100),
		       UINT64_C(0x0f0e0d0c0b0a0908)),
	    UINT64_C(0x8972188433a5c5b7));
	assert_u64(secret_hash(&zero, UINT64_MAX, UINT64_MAX),
	    UINT64_C(0x35029a3b6274a39b));
}

/* So a live handle with another index is a live one by chance alone. 0: no
 * record has this index. */
ManualTest(caches, a_bit_of_an_index_changes_half_of_the_bits_of_a_generation)
{
	static uint64_t first[SLABS * SLAB_RECORDS];
	uint32_t pairs, flips, bit, of, i;

	schedule_some(PEAK);
	for (i = 0; i < PEAK; i++)
		first[peak[i].id & INDEX_MASK] = peak[i].id >> INDEX_BITS;

	for (bit = 0; bit < SLAB_BITS; bit++) {
		for (of = 0; of < 64 - INDEX_BITS; of++) {
			pairs = 0;
			flips = 0;
			for (i = 0; i < SLABS * SLAB_RECORDS; i++) {
				uint64_t other = first[i ^ 1u << bit];

				if (first[i] == 0 || other == 0)
					continue;
				pairs++;
				flips += (first[i] ^ other) >> of & 1;
			}
			cr_assert(pairs > PEAK / 2);
			cr_assert(flips > pairs * 0.4 && flips < pairs * 0.6);
		}
	}
}
