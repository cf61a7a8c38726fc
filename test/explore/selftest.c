/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the explorer itself.
 *
 * Thousands of random programs are searched in every order and by the other
 * searches: what can come out must be the same. Known litmus tests show that
 * the memory models allow what they should, and no more. test/mutants/list/
 * explorer breaks a search in one thing at a time, which this must find.
 *
 * build/explore/selftest [PROGRAMS [SEED]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/explore/explore.h"

#define OPS_MAX 6
#define THREADS 3
#define OUTCOMES 16384u

/* What a random program consists of. */
enum op_kind {
	OP_LOAD,
	OP_STORE,
	OP_ADD,
	OP_CAS,
	OP_AWAIT,
	OP_YIELDS,
	OP_CHOOSE,
	OP_SPAWN,
	OP_JOIN,
	OP_RELEASE,
	OP_KINDS
};

static const char *const op_names[] = {"load", "store", "add", "cas", "await",
    "yields", "choose", "spawn", "join", "release"};

struct op {
	enum op_kind kind;
	unsigned place;
	uint64_t value;
	enum explore_order order;
};

struct random_program {
	uint64_t seed;
	unsigned threads;
	unsigned spawned; /* which thread is spawned by the first; 0: none */
	bool releases;
	unsigned count[THREADS];
	struct op ops[THREADS][OPS_MAX];
};

static struct {
	_Alignas(16) uint64_t pair[2];
	_Alignas(16) uint64_t other;
} memory;

static const struct place {
	void *at;
	unsigned bytes;
	const char *name;
} places[] = {
    {&memory.pair[0], 8, "x"},
    {&memory.pair[1], 8, "y"},
    {&memory.other, 8, "z"},
    {&memory.pair[0], 4, "x.low"},
    {(char *)&memory.pair[0] + 4, 4, "x.high"},
    {&memory.pair[0], 16, "xy"},
};

static struct random_program tested;
static uint64_t read_hash[THREADS]; /* of all that a thread saw */
static bool stuck;
static uint64_t stuck_hash;
static unsigned spawned_thread;

/* A program that releases all memory: as sim.c, it changes the parts that
 * were touched, and then asks whether a store waits. What comes out is whether
 * a store of another thread can be too late. */
static bool touched[2]; /* 16 bytes each */
static bool released;
static unsigned releaser;
static bool too_late;

/* What came out of executions of one search: hashes of final states. */
struct outcomes {
	uint64_t hash[OUTCOMES];
	unsigned count;
};
static struct outcomes *collected;

static uint64_t random_state;

static uint64_t
random_next(void)
{
	uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static unsigned
random_below(unsigned bound)
{
	return (unsigned)(random_next() % bound);
}

static uint64_t
mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * UINT64_C(0x9fb21c651e98df25);
	return hash ^ (hash >> 29);
}

static void
outcome_add(uint64_t hash)
{
	unsigned i = (unsigned)(hash >> 40) % OUTCOMES;

	hash |= 1;
	while (collected->hash[i] != 0 && collected->hash[i] != hash)
		i = (i + 1) % OUTCOMES;
	if (collected->hash[i] == hash)
		return;
	if (++collected->count > OUTCOMES / 2) {
		fprintf(stderr, "selftest: too many outcomes\n");
		exit(2);
	}
	collected->hash[i] = hash;
}

static bool
outcome_in(const struct outcomes *set, uint64_t hash)
{
	unsigned i = (unsigned)(hash >> 40) % OUTCOMES;

	while (set->hash[i] != 0 && set->hash[i] != hash)
		i = (i + 1) % OUTCOMES;
	return set->hash[i] == hash;
}

static bool
outcomes_within(const struct outcomes *part, const struct outcomes *whole)
{
	for (unsigned i = 0; i < OUTCOMES; i++)
		if (part->hash[i] != 0 && !outcome_in(whole, part->hash[i]))
			return false;
	return true;
}

/* Random programs. */

static void
saw(unsigned self, uint64_t value)
{
	read_hash[self] = mix(read_hash[self], value + 1);
}

static bool
ready_word(const void *place)
{
	const struct place *p = place;
	uint32_t low;

	memcpy(&low, p->at, sizeof(low));
	return stuck || low != 0;
}

static bool
ready_end(const void *thread)
{
	return stuck || explore_ended(*(const unsigned *)thread);
}

static void run_thread(unsigned self);

static void
run_spawned(void *self)
{
	run_thread((unsigned)(uintptr_t)self);
}

static uint64_t
load(const struct place *p)
{
	uint64_t value = explore_load(p->at, p->bytes);

	return p->bytes <= 8 ? value : memory.pair[0] + 1000 * memory.pair[1];
}

static void
run_add(const struct op *op, unsigned self)
{
	const struct place *p = &places[op->place];
	uint64_t value = 0;
	unsigned bytes = p->bytes < 8 ? p->bytes : 8;

	if (op->order == EXPLORE_RELAXED)
		explore_modify_relaxed(p->at, p->bytes);
	else
		explore_modify(p->at, p->bytes);
	if (stuck)
		return;
	memcpy(&value, p->at, bytes);
	saw(self, value);
	value += op->value;
	memcpy(p->at, &value, bytes);
	if (p->bytes == 16)
		memory.pair[1]++;
}

static void
run_cas(const struct op *op, unsigned self)
{
	const struct place *p = &places[op->place];
	uint64_t value = 0;
	unsigned bytes = p->bytes < 8 ? p->bytes : 8;

	explore_modify(p->at, p->bytes);
	if (stuck)
		return;
	memcpy(&value, p->at, bytes);
	saw(self, value == 0);
	if (value == 0)
		memcpy(p->at, &op->value, bytes);
}

static void
touch(const struct place *p, unsigned self)
{
	touched[p->at == &memory.other] = true;
	too_late |= released && self != releaser;
}

static void
run_store(const struct op *op, unsigned self)
{
	const struct place *p = &places[op->place];

	touch(p, self);
	explore_store(p->at, p->bytes, op->value, op->order);
	touch(p, self);
}

static void
run_release(unsigned self)
{
	static void *const parts[] = {&memory.pair, &memory.other};
	unsigned bytes[] = {16, 8};

	for (unsigned i = 0; i < 2; i++)
		if (touched[i])
			explore_modify(parts[i], bytes[i]);
	too_late |= explore_is_buffered(&memory, sizeof(memory));
	released = true;
	releaser = self;
}

static void
run_yields(const struct op *op, unsigned self)
{
	const struct place *p = &places[op->place];

	for (unsigned i = 0; i < 2 && !stuck; i++) {
		uint64_t value = load(p);

		if (stuck)
			return;
		saw(self, value);
		if (value != 0)
			break;
		explore_yield();
	}
}

static void
run_op(const struct op *op, unsigned self)
{
	const struct place *p = &places[op->place];

	switch (op->kind) {
	case OP_LOAD:
		saw(self, load(p));
		break;
	case OP_STORE:
		run_store(op, self);
		break;
	case OP_RELEASE:
		run_release(self);
		break;
	case OP_ADD:
		run_add(op, self);
		break;
	case OP_CAS:
		run_cas(op, self);
		break;
	case OP_AWAIT:
		explore_await(p->at, p->bytes, ready_word, p);
		if (!stuck)
			memcpy(p->at, &(uint32_t){(uint32_t)op->value & 1}, 4);
		break;
	case OP_YIELDS:
		run_yields(op, self);
		break;
	case OP_CHOOSE:
		saw(self, explore_choose(2));
		break;
	case OP_SPAWN:
		spawned_thread = explore_spawn(
		    run_spawned, (void *)(uintptr_t)tested.spawned);
		break;
	case OP_JOIN:
		explore_await(explore_end_word(spawned_thread), 4, ready_end,
		    &spawned_thread);
		break;
	default:
		abort();
	}
}

static void
run_thread(unsigned self)
{
	for (unsigned i = 0; i < tested.count[self] && !stuck; i++)
		run_op(&tested.ops[self][i], self);
}

static void
run_thread_0(void)
{
	run_thread(0);
}

static void
run_thread_1(void)
{
	run_thread(1);
}

static void
run_thread_2(void)
{
	run_thread(2);
}

static void
run_begin(void)
{
	memset(&memory, 0, sizeof(memory));
	memset(read_hash, 0, sizeof(read_hash));
	memset(touched, 0, sizeof(touched));
	stuck = false;
	stuck_hash = 0;
	released = false;
	too_late = false;
	for (unsigned i = 0; i < 3; i++)
		explore_name(places[i].at, 8, places[i].name);
}

static uint64_t
state_hash(void)
{
	uint64_t hash = 1;

	for (unsigned i = 0; i < THREADS; i++)
		hash = mix(hash, read_hash[i]);
	hash = mix(hash, memory.pair[0]);
	hash = mix(hash, memory.pair[1]);
	return mix(hash, memory.other);
}

static void
run_end(void)
{
	if (!tested.releases)
		outcome_add(stuck ? stuck_hash : state_hash());
	else if (too_late)
		outcome_add(1);
}

/* A deadlock is an outcome as well: all threads then end. */
static bool
run_idle(void)
{
	if (stuck)
		return false;
	stuck_hash = mix(state_hash(), 77);
	stuck = true;
	return true;
}

/* What a thread mostly does. */
enum manner {
	ANYTHING,
	STORES,
	LOADS,
	MANNERS
};

static struct op
random_op(unsigned thread, enum manner manner)
{
	static const unsigned weights[MANNERS][OP_SPAWN] = {
	    [ANYTHING] = {9, 9, 3, 2, 1, 1, 1},
	    [STORES] = {5, 18, 1, 1, 1, 0, 0},
	    [LOADS] = {18, 5, 1, 0, 0, 1, 1},
	};
	struct op op;
	unsigned pick = random_below(26);

	for (op.kind = 0; pick >= weights[manner][op.kind]; op.kind++)
		pick -= weights[manner][op.kind];
	op.place = random_below(8);
	if (op.place >= 6)
		op.place = 0;
	if (op.place >= 3 && random_below(2) == 0)
		op.place -= 3;
	if (op.place == 5 && (op.kind == OP_STORE || op.kind == OP_AWAIT))
		op.place = 1;
	op.value = random_below(3) == 0 ? random_below(2) : 1 + thread;
	op.order = random_below(2) == 0 ? EXPLORE_RELAXED
					: (enum explore_order)random_below(3);
	return op;
}

/* The first thread spawns the third, and may join it. */
static void
program_spawns(void)
{
	tested.spawned = 2;
	tested.ops[0][random_below(2)].kind = OP_SPAWN;
	if (random_below(2) == 0)
		tested.ops[0][tested.count[0]++].kind = OP_JOIN;
}

/* The last that a thread does, and all of memory. */
static void
program_releases(void)
{
	unsigned t = random_below(2);

	tested.releases = true;
	tested.ops[t][tested.count[t] - 1].kind = OP_RELEASE;
}

static void
program_make(uint64_t seed)
{
	random_state = seed;
	memset(&tested, 0, sizeof(tested));
	tested.seed = seed;
	tested.threads = 2 + (random_below(3) == 0);
	for (unsigned t = 0; t < tested.threads; t++) {
		unsigned more = random_below(tested.threads == 2 ? 3 : 2);
		enum manner manner = (enum manner)random_below(MANNERS);

		for (unsigned i = 0; i < 2 + more; i++)
			tested.ops[t][tested.count[t]++] = random_op(t, manner);
	}
	if (tested.threads == 3 && random_below(3) == 0)
		program_spawns();
	if (seed % 5 == 0)
		program_releases();
}

static void
program_print(void)
{
	printf("  the program of seed %ju\n", (uintmax_t)tested.seed);
	for (unsigned t = 0; t < tested.threads; t++) {
		printf("  %c:", 'a' + (int)t);
		for (unsigned i = 0; i < tested.count[t]; i++) {
			const struct op *op = &tested.ops[t][i];

			printf(" %s %s %ju,%d;", op_names[op->kind],
			    places[op->place].name, (uintmax_t)op->value,
			    op->order);
		}
		printf("\n");
	}
}

/* What is known of the searches so far. */
static struct {
	uint64_t executions;
	uint64_t compared, skipped;
	uint64_t plain, reduced; /* executions */
	uint64_t bounds, bounds_missed;
	uint64_t random_of, random_found; /* outcomes */
} counts;

static const char *const memory_names[] = {"SC", "TSO", "PSO"};

static void
run(const struct explore_program *p, const struct explore_limits *limits,
    struct outcomes *set, struct explore_result *result)
{
	memset(set, 0, sizeof(*set));
	collected = set;
	explore_run(p, limits, result);
	counts.executions += result->schedules;
}

static bool
run_tested(const struct explore_limits *limits, struct outcomes *set,
    struct explore_result *result)
{
	struct explore_program p = {
	    .name = "random",
	    .begin = run_begin,
	    .thread = {run_thread_0, run_thread_1,
		tested.threads == 3 && tested.spawned == 0 ? run_thread_2
							   : NULL},
	    .end = run_end,
	    .idle = run_idle,
	};

	run(&p, limits, set, result);
	if (result->failed) {
		printf("selftest: %s, schedule %s\n", result->message,
		    result->schedule);
		program_print();
	}
	return !result->failed;
}

static bool
same_outcomes(const struct outcomes *a, const struct outcomes *b,
    const char *search, enum explore_memory model)
{
	if (a->count == b->count && outcomes_within(a, b))
		return true;
	printf("selftest: %s: %s finds %u outcomes of %u\n",
	    memory_names[model], search, b->count, a->count);
	program_print();
	return false;
}

/* Within a bound, the reduction finds all with sequential consistency; with
 * store buffers nearly so. */
static bool
compare_bounded(enum explore_memory model, unsigned bound)
{
	static struct outcomes all, reduced;
	struct explore_result result;
	struct explore_limits l = {.search = EXPLORE_BOUNDED,
	    .memory = model,
	    .preemptions = bound,
	    .unreduced = true};

	if (!run_tested(&l, &all, &result))
		return false;
	l.unreduced = false;
	if (!run_tested(&l, &reduced, &result))
		return false;
	counts.bounds += all.count;
	if (model == EXPLORE_SC)
		return same_outcomes(&all, &reduced, "bounded search", model);
	counts.bounds_missed += all.count - reduced.count;
	return outcomes_within(&reduced, &all);
}

static bool
compare_random(enum explore_memory model, const struct outcomes *plain)
{
	static struct outcomes found;
	struct explore_result result;
	struct explore_limits l = {.search = EXPLORE_RANDOM,
	    .memory = model,
	    .depth = 3,
	    .seed = tested.seed,
	    .schedules_max = 300};

	if (!run_tested(&l, &found, &result))
		return false;
	counts.random_of += plain->count;
	counts.random_found += found.count;
	if (outcomes_within(&found, plain))
		return true;
	printf("selftest: %s: random search finds what cannot be\n",
	    memory_names[model]);
	program_print();
	return false;
}

/* All searches against every order. */
static bool
compare_all(enum explore_memory model, const struct outcomes *plain)
{
	static struct outcomes other;
	struct explore_result result;
	struct explore_limits l = {
	    .search = EXPLORE_REDUCED, .memory = model, .preemptions = 1000};

	if (!run_tested(&l, &other, &result))
		return false;
	counts.reduced += result.schedules;
	if (!same_outcomes(plain, &other, "reduced search", model))
		return false;
	if (tested.seed % 4 != 0)
		return true;
	l.search = EXPLORE_BOUNDED;
	return run_tested(&l, &other, &result) &&
	    same_outcomes(plain, &other, "bounded search", model) &&
	    compare_bounded(model, (unsigned)(tested.seed / 4 % 3)) &&
	    compare_random(model, plain);
}

/* Every order of the program, if these are not too many. */
static bool
plain_outcomes(enum explore_memory model, struct outcomes *plain, bool *all)
{
	struct explore_result result;
	struct explore_limits l = {
	    .search = EXPLORE_PLAIN, .memory = model, .schedules_max = 2000};

	if (!run_tested(&l, plain, &result))
		return false;
	*all = result.complete;
	if (result.complete)
		counts.plain += result.schedules;
	return true;
}

static bool
programs_compare(unsigned count, uint64_t seed)
{
	static struct outcomes plain;
	bool all;

	for (uint64_t end = seed + count; seed < end; seed++) {
		program_make(seed);
		for (int m = EXPLORE_SC; m <= EXPLORE_PSO; m++) {
			enum explore_memory model = (enum explore_memory)m;

			if (!plain_outcomes(model, &plain, &all))
				return false;
			if (!all) {
				counts.skipped++;
				continue;
			}
			counts.compared++;
			if (!compare_all(model, &plain))
				return false;
		}
	}
	return true;
}

/* Litmus tests: two to four threads, results of loads, and the set of what can
 * come out, as a mask of numbers that end makes of them. */
static uint64_t r[4];
static enum explore_order order; /* of stores that a test leaves open */
static unsigned outcome_mask;
#define X (&memory.pair[0])
#define Y (&memory.pair[1])

static void
litmus_begin(void)
{
	memset(&memory, 0, sizeof(memory));
	memset(r, 0, sizeof(r));
}

static void
buffering_0(void)
{
	explore_store(X, 8, 1, order);
	r[0] = explore_load(Y, 8);
}

static void
buffering_1(void)
{
	explore_store(Y, 8, 1, order);
	r[1] = explore_load(X, 8);
}

static void
fenced_0(void)
{
	explore_store(X, 8, 1, order);
	explore_modify(&memory.other, 8);
	r[0] = explore_load(Y, 8);
}

static void
fenced_1(void)
{
	explore_store(Y, 8, 1, order);
	explore_modify(&memory.other, 8);
	r[1] = explore_load(X, 8);
}

static void
message_send(void)
{
	explore_store(X, 8, 1, EXPLORE_RELAXED);
	explore_store(Y, 8, 1, order);
}

static void
message_send_by_modify(void)
{
	explore_store(X, 8, 1, order);
	explore_modify_relaxed(Y, 8);
	*Y = 1;
}

static void
message_receive(void)
{
	r[0] = explore_load(Y, 8);
	r[1] = explore_load(X, 8);
}

static void
writes_0(void)
{
	explore_store(X, 8, 1, EXPLORE_RELAXED);
	explore_store(Y, 8, 2, order);
}

static void
writes_1(void)
{
	explore_store(Y, 8, 1, EXPLORE_RELAXED);
	explore_store(X, 8, 2, order);
}

static void
write_x(void)
{
	explore_store(X, 8, 1, order);
}

static void
write_y(void)
{
	explore_store(Y, 8, 1, order);
}

static void
read_yx(void)
{
	r[2] = explore_load(Y, 8);
	r[3] = explore_load(X, 8);
}

static void
read_xy(void)
{
	r[0] = explore_load(X, 8);
	r[1] = explore_load(Y, 8);
}

static void
own_store(void)
{
	explore_store(X, 8, 1, order);
	r[0] = explore_load(X, 8);
	r[1] = explore_load((char *)X + 4, 4) == 0;
}

/* The load must see the high half that was there before. */
static void
part_of_store(void)
{
	explore_store((char *)X + 4, 4, 1, EXPLORE_SEQ);
	explore_store(X, 4, 1, order);
	r[0] = explore_load(X, 8) == UINT64_C(0x100000001);
	r[1] = 1;
}

/* Of all of them, and of a part. */
static void
own_add(void)
{
	explore_store(X, 8, 1, order);
	explore_modify_relaxed(X, 8);
	++*X;
}

static void
own_add_part(void)
{
	explore_store(X, 8, 1, order);
	explore_modify_relaxed(X, 4);
	++*X;
}

static void
overlapping(void)
{
	explore_store(X, 8, 2, order);
	explore_store((char *)X + 4, 4, 0, order);
	explore_store(X, 4, 1, order);
}

static void
end_r01(void)
{
	outcome_mask |= 1u << (r[0] * 2 + r[1]);
}

static void
end_r(void)
{
	outcome_mask |= 1u << (r[0] * 8 + r[1] * 4 + r[2] * 2 + r[3]);
}

static void
end_memory(void)
{
	outcome_mask |= 1u << ((*X == 2) * 2 + (*Y == 2));
}

static void
end_x(void)
{
	outcome_mask |= 1u << *X;
}

/* By order of the store: relaxed, release, seq. By memory: SC, TSO, PSO. */
static const struct litmus {
	const char *name;
	void (*thread[4])(void);
	void (*end)(void);
	unsigned outcomes[3][3];
} litmus_tests[] = {
    {"store buffering", {buffering_0, buffering_1}, end_r01,
	{{0xe, 0xf, 0xf}, {0xe, 0xf, 0xf}, {0xe, 0xe, 0xe}}},
    {"store buffering, fenced", {fenced_0, fenced_1}, end_r01,
	{{0xe, 0xe, 0xe}, {0xe, 0xe, 0xe}, {0xe, 0xe, 0xe}}},
    {"message passing", {message_send, message_receive}, end_r01,
	{{0xb, 0xb, 0xf}, {0xb, 0xb, 0xb}, {0xb, 0xb, 0xb}}},
    {"message passing, relaxed", {message_send_by_modify, message_receive},
	end_r01, {{0xb, 0xf, 0xf}, {0xb, 0xf, 0xf}, {0xb, 0xb, 0xb}}},
    {"2+2W", {writes_0, writes_1}, end_memory,
	{{0xe, 0xe, 0xf}, {0xe, 0xe, 0xe}, {0xe, 0xe, 0xe}}},
    {"IRIW", {write_x, write_y, read_xy, read_yx}, end_r,
	{{0xfbff, 0xfbff, 0xfbff}, {0xfbff, 0xfbff, 0xfbff},
	    {0xfbff, 0xfbff, 0xfbff}}},
    {"a thread's own store", {own_store}, end_r01,
	{{0x8, 0x8, 0x8}, {0x8, 0x8, 0x8}, {0x8, 0x8, 0x8}}},
    {"a part of a thread's own store", {part_of_store}, end_r01,
	{{0x8, 0x8, 0x8}, {0x8, 0x8, 0x8}, {0x8, 0x8, 0x8}}},
    {"a read-modify-write after a store of its own", {own_add}, end_x,
	{{0x4, 0x4, 0x4}, {0x4, 0x4, 0x4}, {0x4, 0x4, 0x4}}},
    {"the same of a part", {own_add_part}, end_x,
	{{0x4, 0x4, 0x4}, {0x4, 0x4, 0x4}, {0x4, 0x4, 0x4}}},
    {"overlapping stores", {overlapping}, end_x,
	{{0x2, 0x2, 0x2}, {0x2, 0x2, 0x2}, {0x2, 0x2, 0x2}}},
};
#define LITMUS_TESTS (sizeof(litmus_tests) / sizeof(litmus_tests[0]))

/* By every order and by the reduction. */
static bool
litmus_run(const struct litmus *test, enum explore_memory model)
{
	struct explore_program p = {
	    .name = test->name, .begin = litmus_begin, .end = test->end};
	struct explore_limits l = {.memory = model};
	struct explore_result result;

	memcpy(p.thread, test->thread, sizeof(test->thread));
	for (int s = EXPLORE_PLAIN; s <= EXPLORE_REDUCED; s++) {
		l.search = (enum explore_search)s;
		if (s == EXPLORE_PLAIN && test->thread[2] != NULL &&
		    model != EXPLORE_SC)
			continue; /* would take seconds */
		outcome_mask = 0;
		explore_run(&p, &l, &result);
		counts.executions += result.schedules;
		if (!result.failed && result.complete &&
		    outcome_mask == test->outcomes[order][model])
			continue;
		printf("selftest: %s, order %d, %s, search %d: "
		       "outcomes %#x, not %#x%s%s\n",
		    test->name, order, memory_names[model], s, outcome_mask,
		    test->outcomes[order][model], result.failed ? ": " : "",
		    result.failed ? result.message : "");
		return false;
	}
	return true;
}

static bool
litmus_all(void)
{
	for (unsigned i = 0; i < LITMUS_TESTS; i++)
		for (int o = EXPLORE_RELAXED; o <= EXPLORE_SEQ; o++)
			for (int m = EXPLORE_SC; m <= EXPLORE_PSO; m++) {
				order = (enum explore_order)o;
				if (!litmus_run(&litmus_tests[i],
					(enum explore_memory)m))
					return false;
			}
	return true;
}

/* Failures: each must be found with the message that it should have, its
 * schedule must repeat it, and the program after it must find all as it was. */
static bool
is_one(const void *at)
{
	return *(const uint64_t *)at == 1;
}

/* Dekker's: who sees no flag of the other goes in. */
static void
dekker(uint64_t *own, uint64_t *other)
{
	explore_store(own, 8, 1, order);
	if (explore_load(other, 8) != 0)
		return;
	explore_check(memory.other == 0);
	memory.other = 1;
	explore_modify(&r[0], 8);
	memory.other = 0;
}

static void
dekker_0(void)
{
	dekker(X, Y);
}

static void
dekker_1(void)
{
	dekker(Y, X);
}

/* The sleeper says that it sleeps and looks once more, or not. */
static void
sleeper(void)
{
	explore_store(X, 8, 1, order);
	if (explore_load(Y, 8) == 0)
		explore_await(&memory.other, 8, is_one, &memory.other);
}

static void
sleeper_early(void)
{
	if (explore_load(Y, 8) != 0)
		return;
	explore_store(X, 8, 1, order);
	explore_await(&memory.other, 8, is_one, &memory.other);
}

static void
waker(void)
{
	explore_store(Y, 8, 1, order);
	if (explore_load(X, 8) != 0)
		explore_store(&memory.other, 8, 1, EXPLORE_SEQ);
}

static void
crash(void)
{
	if (explore_load(Y, 8) != 0)
		*(volatile int *)(uintptr_t)r[0] = 1;
}

/* Each level looks at the one above: no compiler makes a loop of that. */
static unsigned
deep(unsigned levels, const volatile unsigned char *above)
{
	volatile unsigned char much[1024];

	much[0] = (unsigned char)(above[0] + explore_load(Y, 8));
	return levels == 0 ? 0 : deep(levels - 1, much) + much[0];
}

static void
overflow(void)
{
	saw(0, deep(10000, (const unsigned char *)X));
}

static void
aborts(void)
{
	if (explore_load(Y, 8) != 0)
		abort();
}

static void
spin(void)
{
	while (explore_load(&memory.other, 8) == 0)
		;
}

static void
yield_alone(void)
{
	while (explore_load(&memory.other, 8) == 0)
		explore_yield();
}

static const struct failing {
	const char *name;
	void (*thread[2])(void);
	enum explore_order order;
	enum explore_memory memory;
	const char *message; /* NULL: none */
} failing_programs[] = {
    {"dekker", {dekker_0, dekker_1}, EXPLORE_RELAXED, EXPLORE_SC, NULL},
    {"dekker", {dekker_0, dekker_1}, EXPLORE_RELEASE, EXPLORE_TSO,
	"memory.other == 0"},
    {"dekker", {dekker_0, dekker_1}, EXPLORE_SEQ, EXPLORE_PSO, NULL},
    {"lost wake-up", {sleeper_early, waker}, EXPLORE_SEQ, EXPLORE_SC,
	"deadlock: a at await"},
    {"sleep", {sleeper, waker}, EXPLORE_RELAXED, EXPLORE_SC, NULL},
    {"sleep", {sleeper, waker}, EXPLORE_RELEASE, EXPLORE_TSO,
	"deadlock: a at await"},
    {"sleep", {sleeper, waker}, EXPLORE_SEQ, EXPLORE_PSO, NULL},
    {"crash", {write_y, crash}, EXPLORE_SEQ, EXPLORE_SC, "signal 11"},
    {"overflow", {write_y, overflow}, EXPLORE_SEQ, EXPLORE_SC, "signal 11"},
    {"abort", {write_y, aborts}, EXPLORE_RELAXED, EXPLORE_PSO, "signal 6"},
    {"spin", {write_y, spin}, EXPLORE_SEQ, EXPLORE_SC, "livelock"},
    {"yield", {write_y, yield_alone}, EXPLORE_SEQ, EXPLORE_TSO,
	"deadlock: b at yield"},
};
#define FAILING_PROGRAMS \
	(sizeof(failing_programs) / sizeof(failing_programs[0]))

static bool
failing_run(const struct failing *f, enum explore_search search)
{
	struct explore_program p = {.name = f->name,
	    .begin = litmus_begin,
	    .thread = {f->thread[0], f->thread[1]}};
	struct explore_limits l = {.search = search,
	    .memory = f->memory,
	    .preemptions = 2,
	    .depth = 3,
	    .seed = 1,
	    .schedules_max = 5000,
	    .steps_max = 1000};
	struct explore_result result;
	static char schedule[100000];

	order = f->order;
	explore_run(&p, &l, &result);
	counts.executions += result.schedules;
	if (!result.failed)
		return f->message == NULL;
	if (f->message == NULL || strstr(result.message, f->message) == NULL)
		return false;
	snprintf(schedule, sizeof(schedule), "%s", result.schedule);
	l.replay = schedule;
	explore_run(&p, &l, &result);
	return result.failed && result.schedules == 1 &&
	    strstr(result.message, f->message) != NULL &&
	    strcmp(result.schedule, schedule) == 0;
}

static bool
failing_all(void)
{
	for (unsigned i = 0; i < FAILING_PROGRAMS; i++)
		for (int s = EXPLORE_PLAIN; s <= EXPLORE_RANDOM; s++)
			if (!failing_run(
				&failing_programs[i], (enum explore_search)s)) {
				printf("selftest: program %u, %s, search %d: "
				       "another end than it should have\n",
				    i, failing_programs[i].name, s);
				return false;
			}
	return true;
}

/* Each context has its own block, which is zero at first. */
static uint64_t local[3];

static void
local_user(void)
{
	for (unsigned i = 0; i < 3; i++) {
		explore_check(local[i] == (i == 0 ? 0 : local[0] + i));
		local[i] = local[0] + i;
		if (i == 0) {
			local[0] = 10 * (explore_self() + 1);
			local[1] = local[0] + 1;
			local[2] = local[0] + 2;
		}
		explore_modify(X, 8);
	}
	explore_check(local[0] == 10 * (explore_self() + 1));
}

static void
local_end(void)
{
	explore_check(local[0] == 5);
}

static bool
local_all(void)
{
	struct explore_program p = {.name = "local",
	    .begin = litmus_begin,
	    .thread = {local_user, local_user},
	    .end = local_end};
	struct explore_limits l = {.search = EXPLORE_PLAIN};
	struct explore_result result;

	explore_add_local(local, sizeof(local));
	local[0] = 5;
	explore_run(&p, &l, &result);
	counts.executions += result.schedules;
	explore_no_locals();
	if (result.failed)
		printf("selftest: %s\n", result.message);
	return !result.failed && result.complete;
}

static double
seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int
main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 4000;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	if (!litmus_all() || !failing_all() || !local_all() ||
	    !programs_compare(count, seed))
		return 1;
	if (counts.compared < 2 * (uintmax_t)count) {
		printf("selftest: hardly a program was small enough\n");
		return 1;
	}
	printf("random programs: %u, seeds %ju to %ju, each with SC, TSO, PSO: "
	       "%ju compared, %ju too large\n",
	    count, (uintmax_t)seed, (uintmax_t)(seed + count - 1),
	    (uintmax_t)counts.compared, (uintmax_t)counts.skipped);
	printf("every order: %ju executions; reduced: %ju\n",
	    (uintmax_t)counts.plain, (uintmax_t)counts.reduced);
	printf("bounds of 0 to 2: %ju of %ju outcomes missed\n",
	    (uintmax_t)counts.bounds_missed, (uintmax_t)counts.bounds);
	printf("random search, 300 executions each: %ju of %ju outcomes\n",
	    (uintmax_t)counts.random_found, (uintmax_t)counts.random_of);
	printf("selftest: ok: %ju searches equal plain search, %zu litmus "
	       "tests, %zu failing programs, %ju executions, %.0f a second\n",
	    (uintmax_t)counts.compared, LITMUS_TESTS, FAILING_PROGRAMS,
	    (uintmax_t)counts.executions,
	    (double)counts.executions / seconds_now());
	return 0;
}
