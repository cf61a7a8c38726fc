/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: random calls, each held against arrays that one goes through from end
 * to end: what it returns, what has ended by it and how, and the counts.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <string.h>

SUITE(model);

#define OPERATIONS 200
#define KEYS 6
#define STEPS 60000

static struct yard yard;

static struct expected {
	struct operation real;
	bool live;
	bool timed; /* has a timeout while it is live */
	unsigned keys; /* bits */
	uint64_t at_least, needs, due_ns;
	uint64_t missing; /* keys, with at_least; keys has those not reached */
	enum hwt_outcome outcome;
} operation[OPERATIONS];

static uint64_t version; /* a predicate holds when it has reached needs */
static uint64_t value[KEYS];
static uint64_t ended;

static bool
version_try(hwt_operation handle, void *arg)
{
	(void)handle;
	return version >= ((struct expected *)arg)->needs;
}

static unsigned
links_of(unsigned key)
{
	unsigned i, links = 0;

	for (i = 0; i < OPERATIONS; i++)
		links += operation[i].live && (operation[i].keys >> key & 1);
	return links;
}

static void
forget_values(void)
{
	unsigned key;

	for (key = 0; key < KEYS; key++) {
		if (links_of(key) == 0)
			value[key] = 0;
	}
}

/* By the model, it ends now. */
static void
ends(struct expected *e, enum hwt_outcome outcome)
{
	e->live = false;
	e->outcome = outcome;
	ended++;
}

static bool
visit(hwt_operation handle, void *arg, void *ctx)
{
	const struct expected *e = arg;
	unsigned key = *(unsigned *)ctx;

	assert_u64(handle.id, e->real.handle.id);
	cr_assert(e->live && (e->keys >> key & 1));
	return true;
}

static void
compare_key(unsigned key)
{
	size_t count, visited;

	assert_rc(hwt_purgatory_count_key(yard.purgatory, KEY(key), &count), 0);
	assert_u64(count, links_of(key));
	assert_rc(hwt_purgatory_list_key(
		      yard.purgatory, KEY(key), visit, &key, &visited),
	    0);
	assert_u64(visited, count);
}

static void
compare(void)
{
	struct hwt_purgatory_stats stats = yard_stats(&yard);
	uint64_t pending = 0, links = 0, keys = 0, timeouts = 0;
	unsigned i;

	for (i = 0; i < OPERATIONS; i++) {
		struct expected *e = &operation[i];

		pending += e->live;
		timeouts += e->live && e->timed;
		if (e->live)
			assert_u64(e->real.dones, 0);
		else if (e->outcome != 0)
			assert_ended(&e->real, e->outcome);
	}
	for (i = 0; i < KEYS; i++) {
		links += links_of(i);
		keys += links_of(i) > 0;
		compare_key(i);
	}
	assert_u64(stats.pending, pending);
	assert_u64(stats.links, links);
	assert_u64(stats.keys, keys);
	assert_u64(stats.completed + stats.expired + stats.cancelled, ended);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), timeouts);
}

/* The key has reached its value; whether it was the last one. */
static bool
reach(struct expected *e, unsigned key)
{
	e->keys &= ~(1u << key);
	return --e->missing == 0;
}

static void
step_watch(struct expected *e, struct rng *rng)
{
	struct hwt_key keys[KEYS];
	struct hwt_operation_spec spec = {
	    .done = operation_done, .keys = keys, .delay_ns = HWT_NEVER};
	bool holds;
	unsigned key;

	*e = (struct expected){.real = {.yard = &yard}, .due_ns = HWT_NEVER};
	spec.arg = &e->real;
	e->keys = 1 + (unsigned)rng_below(rng, (1u << KEYS) - 1);
	if (rng_below(rng, 3) == 0) {
		e->at_least = 1 + rng_below(rng, 20);
		e->missing =
		    1 + rng_below(rng, (unsigned)__builtin_popcount(e->keys));
		spec.quorum = e->missing;
	} else {
		e->needs = version + rng_below(rng, 4);
		spec.try_complete = version_try;
	}
	if (rng_below(rng, 2) == 0) {
		spec.delay_ns = (1 + rng_below(rng, 40)) * FIXTURE_TICK;
		e->due_ns = yard.fixture.now_ns + spec.delay_ns;
		e->timed = true;
	}
	for (key = 0; key < KEYS; key++) {
		if (e->keys >> key & 1)
			keys[spec.key_count++] = KEY(key);
	}
	holds = e->at_least == 0 && version >= e->needs;
	for (key = 0; key < KEYS && e->at_least != 0; key++) {
		if ((e->keys >> key & 1) && value[key] >= e->at_least)
			holds |= reach(e, key);
	}
	spec.at_least = e->at_least;
	e->live = true;
	assert_rc(
	    hwt_purgatory_watch(yard.purgatory, &e->real.handle, &spec), holds);
	if (holds)
		ends(e, HWT_COMPLETED);
}

static bool
concerns(const struct expected *e, unsigned key)
{
	return e->live && (e->keys >> key & 1);
}

static void
step_check(unsigned key)
{
	size_t count = 0;
	unsigned i;

	for (i = 0; i < OPERATIONS; i++) {
		if (concerns(&operation[i], key) &&
		    operation[i].at_least == 0 &&
		    version >= operation[i].needs) {
			ends(&operation[i], HWT_COMPLETED);
			count++;
		}
	}
	assert_u64(check(&yard, KEY(key)), count);
}

static void
step_raise(unsigned key, uint64_t to)
{
	size_t count = 0;
	unsigned i;

	if (links_of(key) > 0 && to > value[key])
		value[key] = to;
	for (i = 0; i < OPERATIONS; i++) {
		if (concerns(&operation[i], key) &&
		    operation[i].at_least != 0 && operation[i].at_least <= to &&
		    reach(&operation[i], key)) {
			ends(&operation[i], HWT_COMPLETED);
			count++;
		}
	}
	assert_u64(raise_to(&yard, KEY(key), to), count);
}

static void
step_cancel_key(unsigned key)
{
	size_t count = 0;
	unsigned i;

	for (i = 0; i < OPERATIONS; i++) {
		if (concerns(&operation[i], key)) {
			ends(&operation[i], HWT_CANCELLED);
			count++;
		}
	}
	assert_u64(cancel_key(&yard, KEY(key)), count);
}

static void
step_time(uint64_t ticks)
{
	uint64_t now_ns = yard.fixture.now_ns + ticks * FIXTURE_TICK;
	uint64_t count = 0;
	unsigned i;

	for (i = 0; i < OPERATIONS; i++) {
		if (operation[i].live && operation[i].due_ns <= now_ns) {
			ends(&operation[i], HWT_EXPIRED);
			count++;
		}
	}
	assert_u64(fixture_step(&yard.fixture, ticks * FIXTURE_TICK), count);
}

static void
step_decide(struct expected *e, bool complete)
{
	int expected = e->live ? 0 : -ENOENT;

	assert_rc(complete
		? hwt_operation_complete(yard.purgatory, e->real.handle)
		: hwt_operation_cancel(yard.purgatory, e->real.handle),
	    expected);
	if (expected == 0)
		ends(e, complete ? HWT_COMPLETED : HWT_CANCELLED);
}

static void
step_reschedule(struct expected *e, struct rng *rng)
{
	uint64_t delay_ns = rng_below(rng, 4) == 0
	    ? HWT_NEVER
	    : (1 + rng_below(rng, 40)) * FIXTURE_TICK;

	assert_rc(
	    hwt_operation_reschedule(yard.purgatory, e->real.handle, delay_ns),
	    e->live ? 0 : -ENOENT);
	/* One that has no deadline any more keeps its timeout. */
	e->timed |= delay_ns != HWT_NEVER;
	e->due_ns =
	    delay_ns == HWT_NEVER ? HWT_NEVER : yard.fixture.now_ns + delay_ns;
}

static void
step(struct rng *rng)
{
	struct expected *e = &operation[rng_below(rng, OPERATIONS)];
	unsigned key = (unsigned)rng_below(rng, KEYS);
	unsigned what = (unsigned)rng_below(rng, 100);

	if (what < 60 && !e->live)
		step_watch(e, rng);
	else if (what < 75)
		step_check(key);
	else if (what < 80)
		version++;
	else if (what < 86)
		step_raise(key, rng_below(rng, 22));
	else if (what < 87)
		step_cancel_key(key);
	else if (what < 90)
		step_decide(e, what % 2 == 0);
	else if (what < 93)
		step_reschedule(e, rng);
	else
		step_time(rng_below(rng, 4));
	forget_values();
}

YardTestWith(model, random_calls, .shards = 4)
{
	struct rng rng = {.state = 1};
	unsigned i;

	for (i = 0; i < STEPS; i++) {
		step(&rng);
		compare();
	}
	cr_assert(ended > STEPS / 10);
}
