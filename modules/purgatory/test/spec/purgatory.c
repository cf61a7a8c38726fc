/* SPDX-License-Identifier: Apache-2.0 */
/* What purgatory.h describes. */
#include "modules/purgatory/test/spec/purgatory.h"

#include "test/spec/verbs.h"

struct hwt_purgatory *purgatory;
static _Atomic uint64_t dones_in_all;

void
purgatory_open(const struct hwt_purgatory_options *options)
{
	fixture_open(&manual, NULL);
	assert_rc(hwt_purgatory_create(&purgatory, manual.timer, options), 0);
}

void
purgatory_close(void)
{
	assert_rc(hwt_purgatory_shutdown(purgatory), 0);
	assert_stats(0, 0, 0);
	assert_rc(hwt_purgatory_destroy(purgatory), 0);
	fixture_close(&manual);
}

struct hwt_purgatory_stats
stats_now(void)
{
	struct hwt_purgatory_stats stats;

	assert_rc(hwt_purgatory_read_stats(purgatory, &stats), 0);
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
	operation->ended_ns = manual.now_ns;
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

	return hwt_purgatory_watch(purgatory, &operation->handle, &spec);
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
	return hwt_purgatory_watch(purgatory, &operation->handle, &spec);
}

size_t
check(struct hwt_key key)
{
	size_t completed = SIZE_MAX;

	assert_rc(hwt_purgatory_check(purgatory, key, &completed), 0);
	return completed;
}

size_t
raise_to(struct hwt_key key, uint64_t value)
{
	size_t completed = SIZE_MAX;

	assert_rc(hwt_purgatory_raise(purgatory, key, value, &completed), 0);
	return completed;
}

size_t
cancel_key(struct hwt_key key)
{
	size_t cancelled = SIZE_MAX;

	assert_rc(hwt_purgatory_cancel_key(purgatory, key, &cancelled), 0);
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
	((struct operation *)arg)->count = check(KEY(1));
	return NULL;
}

static struct gate predicate_gate;

pthread_t
hold_predicate(struct operation *operation, uint64_t delay_ns)
{
	pthread_t thread;

	purgatory_open(NULL);
	gate_init(&predicate_gate);
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

struct operation party[10];

#define COUNT(is, wanted) \
	cr_assert((is) == (wanted), "not %u, at: %s", (wanted), script_at)

OF(complete, hwt_operation_complete(purgatory, party[i].handle), 0)
OF(cancel, hwt_operation_cancel(purgatory, party[i].handle), 0)
OF(over, hwt_operation_cancel(purgatory, party[i].handle), -ENOENT)
ALONE(shut_down_all, hwt_purgatory_shutdown(purgatory), 0)
ALONE(cannot_destroy, hwt_purgatory_destroy(purgatory), -EBUSY)

/* A verb of one call with one, two or three numbers. */
#define OF2(name, first, second, ...)                     \
	static void name(unsigned first, unsigned second) \
	{                                                 \
		__VA_ARGS__;                              \
	}
#define OF3(name, first, second, third, ...)                              \
	static void name(unsigned first, unsigned second, unsigned third) \
	{                                                                 \
		__VA_ARGS__;                                              \
	}
OF2(watch, i, k, expect(watch_key(&party[i], KEY(k), HWT_NEVER), 0))
OF3(watch_ms, i, k, n, expect(watch_key(&party[i], KEY(k), HWT_MS(n)), 0))
OF2(met, i, k, expect(watch_key(&party[i], KEY(k), HWT_SEC(1)), 1))
OF3(value, i, k, v, expect(watch_value(&party[i], KEY(k), v), 0))
OF3(reached, i, k, v, expect(watch_value(&party[i], KEY(k), v), 1))
OF2(move_ms, i, n,
    expect(hwt_operation_reschedule(purgatory, party[i].handle, HWT_MS(n)), 0))
OF2(check_count, k, n, COUNT(check(KEY(k)), n))
OF3(raise_count, k, v, n, COUNT(raise_to(KEY(k), v), n))
OF2(cancel_count, k, n, COUNT(cancel_key(KEY(k)), n))
OF2(tries, i, n, COUNT(party[i].tries, n))
OF2(runs, m, n, COUNT(fixture_step(&manual, HWT_MS(m)), n))
OF3(stats, p, l, k, COUNT(stats_now().pending, p); COUNT(stats_now().links, l);
    COUNT(stats_now().keys, k))

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
pending(unsigned i)
{
	COUNT(party[i].dones, 0u);
}

static void
holds(unsigned i)
{
	party[i].holds = 1;
}

static void
timeouts(unsigned n)
{
	COUNT(hwt_pending_timeouts(manual.timer), n);
}

static void
pass(unsigned ms)
{
	(void)fixture_step(&manual, HWT_MS(ms));
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
	    {"over", .of = over},
	    {"move-ms", .two = move_ms},
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
