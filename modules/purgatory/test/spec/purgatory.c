/* SPDX-License-Identifier: Apache-2.0 */
/* What purgatory.h describes. */
#include "modules/purgatory/test/spec/purgatory.h"

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
	    .executor = operation->executor,
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
