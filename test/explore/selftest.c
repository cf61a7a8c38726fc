/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the explorer itself: thousands of random programs are searched in every
 * order, with the reduction, and with it and a bound; what can come out must be
 * the same. Known litmus tests show that the memory models allow what they
 * should, and no more.
 *
 * build/explore/selftest [PROGRAMS [SEED]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/explore/explore.h"
#include "test/rng.h"

#define OPS_MAX 4
#define THREADS 3
#define OUTCOMES 2048u

enum kind {
	LOAD,
	STORE,
	ADD,
	AWAIT,
	YIELDS,
	RELEASE
};

struct op {
	enum kind kind;
	unsigned place;
	uint64_t value;
	enum explore_order order;
};

static struct {
	_Alignas(16) uint64_t pair[2];
	_Alignas(16) uint64_t other;
} memory;

static const struct place {
	void *at;
	unsigned bytes;
} places[] = {{&memory.pair[0], 8}, {&memory.pair[1], 8}, {&memory.other, 8},
    {&memory.pair[0], 4}, {(char *)&memory.pair[0] + 4, 4},
    {&memory.pair[0], 16}};

static struct op ops[THREADS][OPS_MAX];
static unsigned counts[THREADS];
static uint64_t hashes[THREADS]; /* of all that a thread saw */
static bool stuck, touched[2], too_late, releases;
static unsigned releaser; /* 0: none yet */
static struct rng rng;
static unsigned bound; /* preemptions */
static bool unreduced;

/* What came out of one search: hashes of final states. */
struct outcomes {
	uint64_t hash[OUTCOMES];
	unsigned count;
};
static struct outcomes *collected;

static unsigned
random_below(unsigned count)
{
	return (unsigned)rng_below(&rng, count);
}

static uint64_t
mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ (value + 1)) * UINT64_C(0x9fb21c651e98df25);
	return hash ^ (hash >> 29);
}

/* Whether it was there; it is now. */
static bool
outcome_add(struct outcomes *set, uint64_t hash)
{
	unsigned i;

	for (i = 0; i < set->count; i++) {
		if (set->hash[i] == hash)
			return true;
	}
	if (set->count == OUTCOMES)
		abort();
	set->hash[set->count++] = hash;
	return false;
}

static bool
ready(const void *at)
{
	return stuck || *(const uint32_t *)at != 0;
}

/* As sim.c: changes what was touched, and asks whether a store waits. What
 * comes out of such a program is whether a store of another is too late. */
static void
release(unsigned self)
{
	if (touched[0])
		explore_modify(&memory.pair, 16);
	if (touched[1])
		explore_modify(&memory.other, 8);
	too_late |= explore_is_buffered(&memory, sizeof(memory));
	releaser = self + 1;
}

static void
store(const struct op *op, unsigned self)
{
	const struct place *p = &places[op->place];

	touched[p->at == &memory.other] = true;
	too_late |= releaser > 0 && releaser != self + 1;
	explore_store(p->at, p->bytes, op->value, op->order);
	too_late |= releaser > 0 && releaser != self + 1;
}

static void
add(const struct op *op, unsigned self)
{
	const struct place *p = &places[op->place];

	if (op->order == EXPLORE_RELAXED)
		explore_modify_relaxed(p->at, p->bytes);
	else
		explore_modify(p->at, p->bytes);
	hashes[self] = mix(hashes[self], *(uint32_t *)p->at);
	*(uint32_t *)p->at += (uint32_t)op->value;
}

static void
run_op(const struct op *op, unsigned self)
{
	const struct place *p = &places[op->place];

	if (op->kind == LOAD)
		hashes[self] = mix(hashes[self], explore_load(p->at, p->bytes));
	else if (op->kind == STORE)
		store(op, self);
	else if (op->kind == ADD)
		add(op, self);
	else if (op->kind == AWAIT)
		explore_await(p->at, p->bytes, ready, p->at);
	else if (op->kind == RELEASE)
		release(self);
	else if (explore_load(p->at, p->bytes) == 0)
		explore_yield();
}

static void
thread(void)
{
	unsigned self = explore_self(), i;

	for (i = 0; i < counts[self] && !stuck; i++)
		run_op(&ops[self][i], self);
}

static void
begin(void)
{
	memset(&memory, 0, sizeof(memory));
	memset(hashes, 0, sizeof(hashes));
	memset(touched, 0, sizeof(touched));
	stuck = too_late = false;
	releaser = 0;
}

static void
end(void)
{
	uint64_t hash = mix(mix(stuck, memory.pair[0]), memory.pair[1]);
	unsigned i;

	for (i = 0; i < THREADS; i++)
		hash = mix(hash, hashes[i]);
	if (!releases)
		(void)outcome_add(collected, mix(hash, memory.other));
	else if (too_late)
		(void)outcome_add(collected, 1);
}

/* A deadlock is an outcome as well: all threads then end. */
static bool
idle(void)
{
	bool first = !stuck;

	stuck = true;
	return first;
}

static void
program_make(uint64_t seed)
{
	static const enum kind kinds[] = {LOAD, LOAD, LOAD, LOAD, STORE, STORE,
	    STORE, STORE, ADD, ADD, AWAIT, YIELDS};
	unsigned threads, i, k;

	rng.state = seed;
	threads = 2 + (random_below(3) == 0);
	memset(counts, 0, sizeof(counts));
	for (i = 0; i < threads; i++) {
		counts[i] = 2 + random_below(threads == 2 ? 3 : 2);
		for (k = 0; k < counts[i]; k++) {
			enum kind kind = kinds[random_below(12)];

			ops[i][k] = (struct op){kind,
			    random_below(kind == ADD ? 6 : 5), random_below(3),
			    (enum explore_order)random_below(3)};
		}
	}
	releases = seed % 5 == 0;
	if (releases)
		ops[0][counts[0] - 1].kind = RELEASE;
}

/* Whether that were all. */
static bool
search(
    enum explore_search kind, enum explore_memory model, struct outcomes *set)
{
	const struct explore_program program = {.begin = begin,
	    .thread = {thread, thread, counts[2] > 0 ? thread : NULL},
	    .end = end,
	    .idle = idle};
	const struct explore_limits limits = {.search = kind,
	    .memory = model,
	    .preemptions = bound,
	    .unreduced = unreduced,
	    .schedules_max = kind == EXPLORE_PLAIN ? 2000 : 0};
	struct explore_result result;

	set->count = 0;
	collected = set;
	explore_run(&program, &limits, &result);
	if (result.failed) {
		printf("selftest: %s: %s\n", result.message, result.schedule);
		exit(1);
	}
	return result.complete;
}

static void
compare(enum explore_search kind, enum explore_memory model, uint64_t seed,
    const struct outcomes *all)
{
	static struct outcomes found;
	bool same;
	unsigned i;

	(void)search(kind, model, &found);
	same = found.count == all->count;
	for (i = 0; i < all->count && same; i++)
		same = outcome_add(&found, all->hash[i]);
	if (same)
		return;
	printf("selftest: seed %ju, memory %d, search %d: %u outcomes of %u\n",
	    (uintmax_t)seed, model, kind, found.count, all->count);
	exit(1);
}

/* Within a bound, the reduction finds all with sequential consistency; with
 * store buffers nearly so. */
static void
compare_bounded(uint64_t seed)
{
	static struct outcomes all;

	bound = (unsigned)(seed % 3);
	unreduced = true;
	(void)search(EXPLORE_BOUNDED, EXPLORE_SC, &all);
	unreduced = false;
	compare(EXPLORE_BOUNDED, EXPLORE_SC, seed, &all);
	bound = 1000;
}

/* Store buffering and message passing: how many of the four results of the two
 * loads can come out, by memory. */
static void
litmus_all(void)
{
	static const struct op load_x = {LOAD, 0, 0, EXPLORE_RELAXED},
			       load_y = {LOAD, 1, 0, EXPLORE_RELAXED},
			       x = {STORE, 0, 1, EXPLORE_RELAXED},
			       y = {STORE, 1, 1, EXPLORE_RELAXED},
			       x_seq = {STORE, 0, 1, EXPLORE_SEQ},
			       y_seq = {STORE, 1, 1, EXPLORE_SEQ},
			       y_release = {STORE, 1, 1, EXPLORE_RELEASE};
	const struct {
		struct op first[2], second[2];
		unsigned outcomes[3];
	} tests[] = {{{x, load_y}, {y, load_x}, {3, 4, 4}},
	    {{x_seq, load_y}, {y_seq, load_x}, {3, 3, 3}},
	    {{x, y}, {load_y, load_x}, {3, 3, 4}},
	    {{x, y_release}, {load_y, load_x}, {3, 3, 3}}};
	static struct outcomes all;
	unsigned i, m;

	counts[0] = counts[1] = 2;
	for (i = 0; i < 12; i++) {
		m = i % 3;
		memcpy(ops[0], tests[i / 3].first, sizeof(tests[0].first));
		memcpy(ops[1], tests[i / 3].second, sizeof(tests[0].second));
		(void)search(EXPLORE_REDUCED, (enum explore_memory)m, &all);
		if (all.count == tests[i / 3].outcomes[m])
			continue;
		printf("selftest: litmus test %u, memory %u: %u outcomes\n",
		    i / 3, m, all.count);
		exit(1);
	}
}

int
main(int argc, char **argv)
{
	static struct outcomes all;
	unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 4000;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	unsigned compared = 0, i;

	bound = 1000;
	litmus_all();
	for (i = 0; i < 3 * count; i++) {
		enum explore_memory model = (enum explore_memory)(i % 3);

		program_make(seed + i / 3);
		if (!search(EXPLORE_PLAIN, model, &all))
			continue;
		compared++;
		compare(EXPLORE_REDUCED, model, seed + i / 3, &all);
		compare(EXPLORE_BOUNDED, model, seed + i / 3, &all);
		if (model == EXPLORE_SC)
			compare_bounded(seed + i / 3);
	}
	printf("selftest: ok: %u of %u searches compared with every order\n",
	    compared, 3 * count);
	return compared < 2 * count;
}
