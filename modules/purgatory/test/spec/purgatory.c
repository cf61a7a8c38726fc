/* SPDX-License-Identifier: Apache-2.0 */
/* What purgatory.h describes. */
#include "modules/purgatory/test/spec/purgatory.h"

#include "test/spec/verbs.h"

_Atomic uint64_t dones_in_all;

void
yard_open(struct yard *yard, const struct hwt_purgatory_options *options)
{
	fixture_open(&yard->fixture, NULL);
	assert_rc(hwt_purgatory_create(
		      &yard->purgatory, yard->fixture.timer, options),
	    0);
}

void
yard_destroy(struct yard *yard)
{
	assert_rc(hwt_purgatory_destroy(yard->purgatory), 0);
	fixture_close(&yard->fixture);
}

void
yard_close(struct yard *yard)
{
	assert_rc(hwt_purgatory_shutdown(yard->purgatory), 0);
	assert_stats(yard, 0, 0, 0);
	yard_destroy(yard);
}

struct hwt_purgatory_stats
yard_stats(struct yard *yard)
{
	struct hwt_purgatory_stats stats;

	assert_rc(hwt_purgatory_read_stats(yard->purgatory, &stats), 0);
	return stats;
}

static void
operation_enter(struct operation *operation, hwt_operation handle)
{
	cr_assert(handle.id == operation->handle.id, "a foreign handle");
	cr_assert(operation->busy++ == 0, "callbacks overlap");
	cr_assert(operation->dones == 0, "a callback after done");
}

bool
operation_try(hwt_operation handle, void *arg)
{
	struct operation *operation = arg;
	uint64_t tries = operation->tries + 1;
	bool holds;

	operation_enter(operation, handle);
	holds = operation->counts ? tries >= operation->holds
				  : operation->holds != 0;
	if (operation->in_try != NULL)
		operation->in_try(operation);
	operation->busy--;
	operation->tries = tries;
	return holds;
}

void
operation_done(hwt_operation handle, void *arg, enum hwt_outcome outcome)
{
	struct operation *operation = arg;

	operation_enter(operation, handle);
	operation->outcome = outcome;
	operation->thread = pthread_self();
	operation->ended_ns = operation->yard->fixture.now_ns;
	operation->order = ++dones_in_all;
	operation->busy--;
	operation->dones++;
	if (operation->in_done != NULL)
		operation->in_done(operation);
}

struct hwt_operation_spec
operation_spec(struct operation *operation, const struct hwt_key *keys,
    size_t key_count, uint64_t delay_ns)
{
	return (struct hwt_operation_spec){
	    .try_complete = operation_try,
	    .done = operation_done,
	    .arg = operation,
	    .keys = keys,
	    .key_count = key_count,
	    .delay_ns = delay_ns,
	};
}

int
watch_keys(struct operation *operation, const struct hwt_key *keys,
    size_t key_count, uint64_t delay_ns)
{
	struct hwt_operation_spec spec =
	    operation_spec(operation, keys, key_count, delay_ns);

	return hwt_purgatory_watch(
	    operation->yard->purgatory, &operation->handle, &spec);
}

int
watch_key(struct operation *operation, struct hwt_key key, uint64_t delay_ns)
{
	return watch_keys(operation, &key, 1, delay_ns);
}

int
watch_value(struct operation *operation, struct hwt_key key, uint64_t at_least)
{
	struct hwt_operation_spec spec =
	    operation_spec(operation, &key, 1, HWT_NEVER);

	spec.try_complete = NULL;
	spec.at_least = at_least;
	return hwt_purgatory_watch(
	    operation->yard->purgatory, &operation->handle, &spec);
}

size_t
check(struct yard *yard, struct hwt_key key)
{
	size_t completed = SIZE_MAX;

	assert_rc(hwt_purgatory_check(yard->purgatory, key, &completed), 0);
	return completed;
}

size_t
raise_to(struct yard *yard, struct hwt_key key, uint64_t value)
{
	size_t completed = SIZE_MAX;

	assert_rc(
	    hwt_purgatory_raise(yard->purgatory, key, value, &completed), 0);
	return completed;
}

size_t
cancel_key(struct yard *yard, struct hwt_key key)
{
	size_t cancelled = SIZE_MAX;

	assert_rc(
	    hwt_purgatory_cancel_key(yard->purgatory, key, &cancelled), 0);
	return cancelled;
}

void
pass_gate_once(struct operation *operation)
{
	struct gate *gate = operation->data;

	operation->data = NULL;
	if (gate != NULL)
		gate_pass(gate);
}

static void *
check_first(void *arg)
{
	struct operation *operation = arg;

	operation->count = check(operation->yard, KEY(1));
	return NULL;
}

static struct gate predicate_gate;

pthread_t
hold_predicate(
    struct yard *yard, struct operation *operation, uint64_t delay_ns)
{
	pthread_t thread;

	yard_open(yard, NULL);
	gate_init(&predicate_gate);
	operation->yard = yard;
	operation->in_try = pass_gate_once;
	assert_rc(watch_key(operation, KEY(1), delay_ns), 0);
	operation->data = &predicate_gate;
	assert_rc(pthread_create(&thread, NULL, check_first, operation), 0);
	gate_await(&predicate_gate);
	return thread;
}

void
let_go(pthread_t thread)
{
	gate_open(&predicate_gate);
	assert_rc(pthread_join(thread, NULL), 0);
}

/* In words. */

struct operation party[PARTY];
static struct yard *place;

void
party_make(struct yard *yard)
{
	unsigned i;

	place = yard;
	memset(party, 0, sizeof(party));
	for (i = 0; i < PARTY; i++)
		party[i].yard = yard;
}

OF(complete, hwt_operation_complete(place->purgatory, party[i].handle), 0)
OF(cancel, hwt_operation_cancel(place->purgatory, party[i].handle), 0)
ALONE(shut_down_all, hwt_purgatory_shutdown(place->purgatory), 0)
ALONE(cannot_destroy, hwt_purgatory_destroy(place->purgatory), -EBUSY)

static void
count(uint64_t is, uint64_t wanted)
{
	cr_assert(is == wanted, "%" PRIu64 ", not %" PRIu64 ", at: %s", is,
	    wanted, script_at);
}

static void
watch(unsigned i, unsigned key)
{
	expect(watch_key(&party[i], KEY(key), HWT_NEVER), 0);
}

static void
watch_ms(unsigned i, unsigned key, unsigned delay_ms)
{
	expect(watch_key(&party[i], KEY(key), HWT_MS(delay_ms)), 0);
}

static void
met(unsigned i, unsigned key)
{
	expect(watch_key(&party[i], KEY(key), HWT_SEC(1)), 1);
}

static void
value(unsigned i, unsigned key, unsigned at_least)
{
	expect(watch_value(&party[i], KEY(key), at_least), 0);
}

static void
reached(unsigned i, unsigned key, unsigned at_least)
{
	expect(watch_value(&party[i], KEY(key), at_least), 1);
}

static void
holds(unsigned i)
{
	party[i].holds = 1;
}

static void
check_count(unsigned key, unsigned decided)
{
	count(check(place, KEY(key)), decided);
}

static void
raise_count(unsigned key, unsigned to, unsigned decided)
{
	count(raise_to(place, KEY(key), to), decided);
}

static void
cancel_count(unsigned key, unsigned decided)
{
	count(cancel_key(place, KEY(key)), decided);
}

static void
pending(unsigned i)
{
	count(party[i].dones, 0);
}

#define ENDED(name, with)                                                    \
	static void name(unsigned i)                                         \
	{                                                                    \
		cr_assert(party[i].dones == 1 && party[i].outcome == (with), \
		    "ended %" PRIu64 " times, last by %d, at: %s",           \
		    party[i].dones, (int)party[i].outcome, script_at);       \
	}
ENDED(completed, HWT_COMPLETED)
ENDED(cancelled, HWT_CANCELLED)
ENDED(expired, HWT_EXPIRED)
ENDED(shut_down, HWT_SHUT_DOWN)

static void
tries(unsigned i, unsigned calls)
{
	count(party[i].tries, calls);
}

static void
stats(unsigned operations, unsigned links, unsigned keys)
{
	struct hwt_purgatory_stats now = yard_stats(place);

	count(now.pending, operations);
	count(now.links, links);
	count(now.keys, keys);
}

static void
timeouts(unsigned are)
{
	count(hwt_pending_timeouts(place->fixture.timer), are);
}

static void
pass(unsigned ms)
{
	(void)fixture_step(&place->fixture, HWT_MS(ms));
}

static void
runs(unsigned ms, unsigned tasks)
{
	count(fixture_step(&place->fixture, HWT_MS(ms)), tasks);
}

void
play(const char *script)
{
	static const struct verb verbs[] = {
	    {"watch", .two = watch},
	    {"watch-ms", .three = watch_ms},
	    {"met", .two = met},
	    {"value", .three = value},
	    {"reached", .three = reached},
	    {"holds", .of = holds},
	    {"check", .two = check_count},
	    {"raise", .three = raise_count},
	    {"cancel-key", .two = cancel_count},
	    {"complete", .of = complete},
	    {"cancel", .of = cancel},
	    {"pending", .of = pending},
	    {"completed", .of = completed},
	    {"cancelled", .of = cancelled},
	    {"expired", .of = expired},
	    {"shut-down", .of = shut_down},
	    {"tries", .two = tries},
	    {"stats", .three = stats},
	    {"timeouts", .of = timeouts},
	    {"pass", .of = pass},
	    {"runs", .two = runs},
	    {"shutdown", .alone = shut_down_all},
	    {"cannot-destroy", .alone = cannot_destroy},
	    {0},
	};

	script_run(script, verbs);
}
