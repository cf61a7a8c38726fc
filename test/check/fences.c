/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each operation of atomic.h, and each pair that a store-then-load edge is made
 * of, as a function of its own: test/check/fences looks at the instructions
 * that become of them. It is compiled like the library, and never linked.
 */
#include "core/atomic.h"

/* The word that the other side of the edge has written. */
static uint64_t
then(uint64_t done, const a64_t *other)
{
	return done + a64_load_seq(other);
}

#define OP(name, type, ...)     \
	type name(__VA_ARGS__); \
	type name(__VA_ARGS__)

OP(op_a64_load_acquire, uint64_t, const a64_t *p)
{
	return a64_load_acquire(p);
}

OP(op_a64_load_seq, uint64_t, const a64_t *p)
{
	return a64_load_seq(p);
}

OP(op_a64_store_release, void, a64_t *p)
{
	a64_store_release(p, 1);
}

OP(op_a64_store_seq, void, a64_t *p)
{
	a64_store_seq(p, 1);
}

OP(op_a64_add_seq, uint64_t, a64_t *p)
{
	return a64_add_seq(p, 1);
}

OP(op_a64_swap_seq, uint64_t, a64_t *p)
{
	return a64_swap_seq(p, 1);
}

OP(op_a64_swap_full, uint64_t, a64_t *p)
{
	return a64_swap_full(p, 1);
}

OP(op_a64_or_seq, void, a64_t *p)
{
	a64_or_seq(p, 1);
}

OP(op_a64_and_seq, void, a64_t *p)
{
	a64_and_seq(p, 1);
}

OP(op_a64_cas_seq, bool, a64_t *p)
{
	return a64_cas_seq(p, 1, 2);
}

OP(op_aptr_load_acquire, void *, const aptr_t *p)
{
	return aptr_load_acquire(p);
}

OP(op_aptr_store_release, void, aptr_t *p, const void *value)
{
	aptr_store_release(p, value);
}

OP(op_aptr_cas_seq, bool, aptr_t *p, void *old, void *value)
{
	return aptr_cas_seq(p, old, value);
}

OP(op_aptr_swap_seq, void *, aptr_t *p, void *value)
{
	return aptr_swap_seq(p, value);
}

OP(op_pair_word, uint64_t, const pair_t *p)
{
	return pair_word(p);
}

OP(op_pair_load, uint64_t, const pair_t *p)
{
	struct pair_value v = pair_load(p);

	return v.word + v.deadline_ns;
}

OP(op_pair_load_seq, uint64_t, const pair_t *p)
{
	struct pair_value v = pair_load_seq(p);

	return v.word + v.deadline_ns;
}

OP(op_pair_cas, bool, pair_t *p)
{
	return pair_cas(
	    p, (struct pair_value){1, 2}, (struct pair_value){3, 4});
}

OP(op_pair_cas_word, bool, pair_t *p)
{
	return pair_cas_word(p, 1, 2);
}

OP(op_pair_publish, bool, pair_t *p)
{
	return pair_publish(p, 1, (struct pair_value){3, 4});
}

/* Edges. E:asleep, of a freed record; E:closed, a batch's half. */
OP(edge_add_load, uint64_t, a64_t *p, const a64_t *other)
{
	return then(a64_add_seq(p, 1), other);
}

/* E:set, of bits: a push reads or changes the level above. */
OP(edge_or_load, uint64_t, a64_t *p, const a64_t *other)
{
	a64_or_seq(p, 1);
	return then(0, other);
}

/* E:set, who has cleared a bit reads what is below. */
OP(edge_and_load, uint64_t, a64_t *p, const a64_t *other)
{
	a64_and_seq(p, 1);
	return then(0, other);
}

OP(edge_swap_load, uint64_t, a64_t *p, const a64_t *other)
{
	return then(a64_swap_seq(p, 0), other);
}

/* E:queue, the worker's half: bits are cleared, then the word is read. */
OP(edge_swap_pair, uint64_t, a64_t *p, const pair_t *other)
{
	return a64_swap_seq(p, 0) + pair_load_seq(other).word;
}

/* E:asleep, the worker's half; E:closed, the stop's. */
OP(edge_store_load, uint64_t, a64_t *p, const a64_t *other)
{
	a64_store_seq(p, 1);
	return then(0, other);
}

/* E:closed, the stop's half. */
OP(edge_store_pair, uint64_t, a64_t *p, const pair_t *other)
{
	a64_store_seq(p, 1);
	return pair_load_seq(other).word;
}

/* E:closed and E:queue, a caller's half. */
OP(edge_publish_load, uint64_t, pair_t *p, const a64_t *other)
{
	return then(pair_publish(p, 1, (struct pair_value){3, 4}), other);
}

OP(edge_pair_cas_load, uint64_t, pair_t *p, const a64_t *other)
{
	return then(
	    pair_cas(p, (struct pair_value){1, 2}, (struct pair_value){3, 4}),
	    other);
}

OP(edge_cas_word_load, uint64_t, pair_t *p, const a64_t *other)
{
	return then(pair_cas_word(p, 1, 2), other);
}
