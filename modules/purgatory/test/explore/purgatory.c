/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The purgatory's programs for the explorer of interleavings, on the timer's
 * own code. What must hold in each execution:
 *
 *   once        done of what watch accepted was called once by the end, of what
 *               it refused never; and as many calls said that they decided as
 *               operations were completed and cancelled
 *   overlap     no predicate beside another one or beside done of the same
 *               operation, none after done, and none after shutdown
 *   lost        what the state says by then has completed
 *   early       nothing expires before its deadline
 *   nothing     is pending, linked or held in the end, and no timeout; memory
 *               is not used after it was released
 *
 * A walk here takes two operations at a time.
 */
#include "test/explore/program.h"

#include <errno.h>

#include "modules/purgatory/purgatory.h"

#define OPERATIONS 10
/* Where there are two shards, A is in the first and B in the second. */
#define A ((struct hwt_key){1, 1})
#define B ((struct hwt_key){1, 3})

struct operation_ledger {
	hwt_operation handle;
	unsigned accepted, dones, busy, tries;
	enum hwt_outcome outcome;
	uint64_t needs; /* bits of the state */
	uint64_t not_before_ns;
	unsigned again; /* done watches again, so often */
	bool by_value;
	uint32_t waits_for; /* its predicate waits until that has ended, + 1 */
	bool calls; /* its predicate checks B, its done A */
};

extern _Thread_local struct call *purgatory_calls;

static struct hwt_purgatory *purgatory;
static struct operation_ledger ledger[OPERATIONS];
static uint64_t state;
static uint32_t over; /* shutdown has returned */
static unsigned decided;
static bool moved; /* a deadline, by its last reschedule */

void
purgatory_programs_init(void)
{
	explore_add_local(&purgatory_calls, sizeof(purgatory_calls));
}

static bool
has_ended(const void *context)
{
	return ((const struct operation_ledger *)context)->dones > 0;
}

static bool
look(hwt_operation handle, void *arg)
{
	struct operation_ledger *o = arg, *other;
	bool holds;

	explore_check(handle.id == o->handle.id);
	/* Both callbacks change it, so that either order is explored. */
	explore_modify(&o->busy, 4);
	explore_check(o->busy == 0 && o->dones == 0 && !over);
	o->busy = 1;
	o->tries++;
	holds = (explore_load(&state, 8) & o->needs) == o->needs;
	if (o->waits_for > 0 && o->tries > 1) {
		other = &ledger[o->waits_for - 1];
		explore_await(&other->dones, 4, has_ended, other);
	}
	if (o->calls && o->tries == 2)
		explore_check(hwt_purgatory_check(purgatory, B, NULL) == 0);
	explore_check(o->busy == 1);
	o->busy = 0;
	return holds;
}

static int watch(unsigned i, size_t first, size_t count, uint64_t delay_ns);

static void
end_of_operation(hwt_operation handle, void *arg, enum hwt_outcome outcome)
{
	struct operation_ledger *o = arg;

	explore_check(handle.id == o->handle.id);
	explore_modify(&o->busy, 4);
	explore_check(o->busy == 0 && o->dones == 0 && !over);
	explore_check(outcome != HWT_EXPIRED || sim_now_ns >= o->not_before_ns);
	o->busy = 1;
	(void)explore_load(&state, 8);
	explore_check(o->busy == 1);
	o->busy = 0;
	o->outcome = outcome;
	o->dones++;
	if (o->again > 0 && outcome != HWT_SHUT_DOWN) {
		o->again--;
		o->dones = 0;
		o->accepted--;
		(void)watch((unsigned)(o - ledger), 0, 1, HWT_NEVER);
	}
	if (o->calls)
		explore_check(hwt_purgatory_check(purgatory, A, NULL) == 0);
	explore_modify(&o->dones, 4);
}

/* Under so many keys of A, B, A, from that one on; or for a value of A. */
static int
watch_for(unsigned i, size_t first, size_t count, uint64_t delay_ns,
    uint64_t at_least)
{
	static const struct hwt_key keys[] = {A, B, A};
	const struct hwt_operation_spec spec = {
	    .try_complete = at_least == 0 ? look : NULL,
	    .done = end_of_operation,
	    .arg = &ledger[i],
	    .keys = &keys[first],
	    .key_count = count,
	    .delay_ns = delay_ns,
	    .at_least = at_least};
	struct operation_ledger *o = &ledger[i];
	int rc;

	o->by_value = at_least != 0;
	o->not_before_ns =
	    delay_ns == HWT_NEVER ? HWT_NEVER : sim_now_ns + delay_ns;
	rc = hwt_purgatory_watch(purgatory, &o->handle, &spec);
	o->accepted += rc >= 0;
	decided += rc == 1;
	return rc;
}

static int
watch(unsigned i, size_t first, size_t count, uint64_t delay_ns)
{
	return watch_for(i, first, count, delay_ns, 0);
}

static void
event(uint64_t bits, struct hwt_key key)
{
	size_t completed;

	explore_modify(&state, 8);
	state |= bits;
	explore_check(hwt_purgatory_check(purgatory, key, &completed) == 0);
	decided += (unsigned)completed;
}

/* By a plain store, which may become visible late. */
static void
event_stored(void)
{
	size_t completed;

	explore_store(&state, 8, 1, EXPLORE_RELAXED);
	explore_check(hwt_purgatory_check(purgatory, A, &completed) == 0);
	decided += (unsigned)completed;
}

static void
raise_key(struct hwt_key key, uint64_t value)
{
	size_t completed;

	explore_check(
	    hwt_purgatory_raise(purgatory, key, value, &completed) == 0);
	decided += (unsigned)completed;
}

static void
cancel_all(struct hwt_key key)
{
	size_t cancelled;

	explore_check(
	    hwt_purgatory_cancel_key(purgatory, key, &cancelled) == 0);
	decided += (unsigned)cancelled;
}

static void
make_with(const struct hwt_purgatory_options *options)
{
	const struct hwt_key a = A, b = B;
	unsigned i;

	memset(ledger, 0, sizeof(ledger));
	for (i = 0; i < OPERATIONS; i++)
		ledger[i].needs = 1;
	state = 0;
	over = 0;
	decided = 0;
	purgatory_calls = NULL;
	moved = false;
	explore_check(hwt_purgatory_create(&purgatory, timer, options) == 0);
	explore_check((key_hash(&purgatory->secret, &a) & 1) == 0 &&
	    (key_hash(&purgatory->secret, &b) & 1) == 1);
	explore_name(&state, 8, "state");
}

static void
verify_counts(const struct hwt_purgatory_stats *stats)
{
	unsigned i, accepted = 0;

	for (i = 0; i < OPERATIONS; i++) {
		explore_check(ledger[i].dones == (ledger[i].accepted > 0));
		explore_check(ledger[i].accepted <= 1);
		accepted += ledger[i].accepted;
	}
	explore_check(stats->pending == 0 && stats->links == 0);
	explore_check(stats->keys == 0);
	explore_check(stats->completed + stats->cancelled == decided);
	explore_check(decided + stats->expired + stats->shut_down >= accepted);
}

/* What holds has completed before this. */
static void
end_all(void)
{
	struct hwt_purgatory_stats stats;
	unsigned i;

	for (i = 0; i < OPERATIONS; i++) {
		if (ledger[i].accepted > 0 && ledger[i].dones == 0)
			explore_check(ledger[i].by_value ||
			    (state & ledger[i].needs) != ledger[i].needs);
	}
	if (purgatory == NULL)
		return;
	explore_check(hwt_purgatory_shutdown(purgatory) == 0);
	explore_check(hwt_purgatory_read_stats(purgatory, &stats) == 0);
	verify_counts(&stats);
	explore_check(hwt_pending_timeouts(timer) == subject[0].accepted);
	explore_check(hwt_purgatory_destroy(purgatory) == 0);
}

/* Verbs. */

static void
make(unsigned shards)
{
	unsigned i;

	timer_make(&(struct hwt_options){.flags = HWT_MANUAL});
	for (i = 0; i < 3 && shards == 1; i++)
		thread_prepare(i, 2);
	make_with(&(struct hwt_purgatory_options){.shards = shards});
}

static void
make_limited(void)
{
	timer_make(&(struct hwt_options){.flags = HWT_MANUAL});
	make_with(
	    &(struct hwt_purgatory_options){.shards = 1, .max_pending = 1});
}

#define DO(name, ...)          \
	static void name(void) \
	{                      \
		__VA_ARGS__;   \
	}
#define DO1(name, number, ...)            \
	static void name(unsigned number) \
	{                                 \
		__VA_ARGS__;              \
	}
#define DO2(name, first, second, ...)                     \
	static void name(unsigned first, unsigned second) \
	{                                                 \
		__VA_ARGS__;                              \
	}
DO2(needs, i, bits, ledger[i].needs = bits)
DO1(again, i, ledger[i].again = 1)
DO1(calls, i, ledger[i].calls = true)
DO2(waits, i, other, ledger[i].waits_for = other + 1)
DO1(watch_a, i, (void)watch(i, 0, 1, HWT_NEVER))
DO1(watch_b, i, (void)watch(i, 1, 1, HWT_NEVER))
DO1(watch_ab, i, (void)watch(i, 0, 2, HWT_NEVER))
DO1(watch_due, i, (void)watch(i, 0, 1, TICK_NS))
DO1(watch_ab_due, i, (void)watch(i, 0, 2, TICK_NS))
DO1(watch_far, i, (void)watch(i, 0, 1, 50 * TICK_NS))
DO2(watch_value, i, value, (void)watch_for(i, 0, 1, HWT_NEVER, value))
DO2(watch_value_due, i, value, (void)watch_for(i, 0, 1, TICK_NS, value))
DO1(watch_within_limit, i, int rc = watch(i, i % 2, 1, HWT_NEVER);
    explore_check(rc == 0 || rc == -ENOBUFS))
DO1(event_a, bits, event(bits, A))
DO1(event_b, bits, event(bits, B))
DO1(raise_a, value, raise_key(A, value))
/* The value is the state, too; whoever watches raises the key to it. */
DO1(raise_stored, value, explore_store(&state, 8, value, EXPLORE_RELAXED);
    raise_key(A, value))
DO(raise_as_stored, raise_key(A, explore_load(&state, 8)))
DO(cancel_a, cancel_all(A))
DO(cancel_b, cancel_all(B))
DO1(tick, ticks, advance(ticks))
DO1(pass, ticks, sim_clock_add(ticks *TICK_NS))
DO(stop_timer, explore_check(hwt_stop(timer, NULL) == 0))
DO1(check_done, i, explore_check(ledger[i].dones == 1))
DO1(check_pending, i, explore_check(ledger[i].dones == 0))
DO1(check_timeouts, count, explore_check(hwt_pending_timeouts(timer) == count))
/* Operation 0 has ended, unless it has moved. */
DO(check_moved_or_done, explore_check(moved || ledger[0].dones == 1))

/* Of one that is pending or has ended. */
static void
decide(int rc)
{
	explore_check(rc == 0 || rc == -ENOENT);
	decided += rc == 0;
}
DO1(cancel_operation, i,
    decide(hwt_operation_cancel(purgatory, ledger[i].handle)))
DO1(complete, i, decide(hwt_operation_complete(purgatory, ledger[i].handle)))

/* Of operation 0. What the ledger has changes with the call's last step. */
static void
move(unsigned ticks)
{
	struct operation_ledger *o = &ledger[0];
	uint64_t not_before_ns = sim_now_ns + ticks * TICK_NS;
	int rc;

	if (not_before_ns < o->not_before_ns)
		o->not_before_ns = not_before_ns;
	rc = hwt_operation_reschedule(purgatory, o->handle, ticks * TICK_NS);
	explore_check(rc == 0 || rc == -ENOENT);
	if (rc != 0)
		return;
	moved = true;
	o->not_before_ns = not_before_ns;
}

static void
shut_down(void)
{
	explore_check(hwt_purgatory_shutdown(purgatory) == 0);
	explore_modify(&over, 4);
	over = 1;
}

static void
destroy(void)
{
	explore_check(ledger[0].dones == 1);
	explore_check(hwt_purgatory_destroy(purgatory) == 0);
	purgatory = NULL;
}

/* Destroying alone: what has no outcome yet is pending, and it is refused. */
static void
destroy_or_not(void)
{
	int rc = hwt_purgatory_destroy(purgatory);

	explore_check(rc == 0 || rc == -EBUSY);
	if (rc == -EBUSY)
		return;
	explore_check(ledger[0].dones == 1);
	purgatory = NULL;
}

/* Ends. */

/* Something was to complete by then. */
static void
check_completed(void)
{
	unsigned i;

	for (i = 0; i < OPERATIONS; i++) {
		if (ledger[i].accepted > 0)
			explore_check(ledger[i].dones == 1 &&
			    ledger[i].outcome == HWT_COMPLETED);
	}
}

static void
check_accepted(unsigned sum)
{
	unsigned i, accepted = 0;

	for (i = 0; i < OPERATIONS; i++)
		accepted += ledger[i].accepted;
	explore_check(accepted == sum);
}

static const struct verb verbs[] = {
    {"make", .of = make}, /* with so many shards */
    {"make-limited", .alone = make_limited}, /* one may be pending */
    {"needs", .two = needs}, /* bits of the state, to complete */
    {"again", .of = again}, /* done watches again, once */
    {"calls", .of = calls}, /* its second predicate checks B, done A */
    {"waits", .two = waits}, /* its second predicate, for the other's end */
    {"watch-a", .of = watch_a}, /* without a deadline */
    {"watch-b", .of = watch_b},
    {"watch-ab", .of = watch_ab},
    {"watch-due", .of = watch_due}, /* in a tick */
    {"watch-ab-due", .of = watch_ab_due},
    {"watch-far", .of = watch_far},
    {"watch-limited", .of = watch_within_limit}, /* or refused */
    {"value", .two = watch_value}, /* at least */
    {"value-due", .two = watch_value_due},
    {"event-a", .of = event_a}, /* with these bits */
    {"event-b", .of = event_b},
    {"event-stored", .alone = event_stored},
    {"raise-a", .of = raise_a},
    {"raise-stored", .of = raise_stored},
    {"raise-as-stored", .alone = raise_as_stored},
    {"cancel", .of = cancel_operation}, /* one; what may have ended */
    {"complete", .of = complete},
    {"cancel-a", .alone = cancel_a}, /* a key */
    {"cancel-b", .alone = cancel_b},
    {"advance", .of = tick},
    {"pass", .of = pass}, /* time alone */
    {"move", .of = move}, /* the deadline of operation 0 */
    {"stop-timer", .alone = stop_timer}, /* its timeouts are gone */
    {"shutdown", .alone = shut_down},
    {"destroy", .alone = destroy},
    {"destroy-or-not", .alone = destroy_or_not},
    {"check-completed", .alone = check_completed}, /* all */
    {"check-done", .of = check_done},
    {"check-pending", .of = check_pending},
    {"check-accepted", .of = check_accepted},
    {"check-timeouts", .of = check_timeouts},
    {"check-moved-or-done", .alone = check_moved_or_done},
    {0},
};

#define PROGRAM(name_, first_, run_, ...)                                    \
	{                                                                    \
		.name = "purgatory/" name_, .verbs = verbs, .first = first_, \
		.run = run_, .end = end_all, .last = __VA_ARGS__             \
	}

const struct program purgatory_programs[] = {
    PROGRAM("watch-check-stored", "make 1", "watch-a 0 | event-stored",
	"check-completed"),
    PROGRAM("watch-two-keys-check-check", "make 2",
	"needs 0 3, watch-ab 0 | event-a 1 | event-b 2", "check-completed"),
    PROGRAM("check-check", "make 2, needs 0 7, watch-ab 0",
	"event-a 1 | event-b 2 | event-a 4", "check-completed"),
    PROGRAM("check-check-one-shard", "make 1, needs 0 7, watch-ab 0",
	"event-a 1 | event-b 2 | event-a 4", "check-completed"),
    PROGRAM("check-cancel-complete", "make 1, watch-a 0",
	"event-a 1 | cancel 0 | complete 0", ""),
    PROGRAM("check-deadline-cancel", "make 1, watch-due 0, advance 0, pass 2",
	"event-a 1 | advance 0 | cancel 0", ""),
    PROGRAM("cancel-key-deadline", "make 2, watch-ab-due 0, advance 0, pass 2",
	"cancel-a | advance 0 | cancel-b", ""),
    PROGRAM("watch-cancel-key", "make 2",
	"needs 0 3, watch-ab 0 | cancel-a | cancel-b", ""),
    PROGRAM("reuse-two-keys-deadline",
	"make 2, watch-ab-due 0, advance 0, pass 2",
	"complete 0, watch-ab 7, watch-b 6 | advance 0 | cancel 0", ""),
    PROGRAM("reuse-stale-handle", "make 2, watch-ab 0",
	"cancel 0, watch-b 7 | complete 0 | event-b 2", "check-pending 7"),
    PROGRAM("move-deadline-complete", "make 1, watch-due 0, advance 0, pass 2",
	"move 10 | advance 0 | complete 0",
	"check-moved-or-done, pass 11, advance 0, check-done 0, check-timeouts "
	"0"),
    PROGRAM("move-first-first-check", "make 1, watch-a 0",
	"move 10 | move 10 | event-a 1",
	"check-moved-or-done, pass 11, advance 0, check-done 0, check-timeouts "
	"0"),
    PROGRAM("move-shutdown", "make 1, watch-a 0", "move 10 | shutdown", ""),
    PROGRAM("watch-two-keys-shutdown", "make 2",
	"watch-ab-due 0 | shutdown | event-b 1", ""),
    PROGRAM("deadline-shutdown-destroy",
	"make 1, watch-due 0, advance 0, pass 2",
	"advance 0 | shutdown, destroy", ""),
    PROGRAM("deadline-complete-shutdown-destroy",
	"make 2, watch-ab-due 0, advance 0, pass 2",
	"advance 0 | complete 0, shutdown, destroy", ""),
    PROGRAM("deadline-destroy", "make 1, watch-due 0, advance 0, pass 2",
	"advance 0 | destroy-or-not", "", .preemptions = 3),
    PROGRAM("limit", "make-limited", "watch-limited 0 | watch-limited 1",
	"check-accepted 1, cancel-a, cancel-b, watch-limited 2, check-accepted "
	"2"),
    PROGRAM("watch-again", "make 1, again 0, watch-a 0",
	"cancel 0 | event-a 1 | cancel-a", ""),
    PROGRAM("watch-value-raise", "make 1",
	"value 0 5, raise-as-stored | raise-stored 5", "check-completed"),
    PROGRAM("watch-value-deadline-raise", "make 1",
	"value-due 0 5 | advance 2, advance 2 | raise-a 5", ""),
    PROGRAM("watch-that-holds-deadline", "make 2, event-a 1",
	"watch-ab-due 0 | advance 2, advance 2", "check-completed"),
    PROGRAM("watch-reached-value-deadline", "make 1, value 1 9, raise-a 5",
	"value-due 0 5 | advance 2, advance 2", "raise-a 9, check-completed"),
    PROGRAM("raise-raise-cancel", "make 1, value 0 3, value 1 1, value 2 5",
	"raise-a 3 | raise-a 3 | cancel 0", "check-done 0, check-done 1"),
    PROGRAM("raise-deadline-shutdown",
	"make 1, value-due 0 3, value-due 1 1, value 2 5, advance 0, pass 2",
	"raise-a 3 | advance 0 | shutdown", ""),
    PROGRAM("raise-cancel-key-watch", "make 1, value 0 3, value 1 1, value 2 5",
	"raise-a 3 | cancel-a | value 3 2", ""),
    PROGRAM("walk-walk-watch", "make 1, watch-a 0, watch-ab 1, watch-a 2",
	"event-a 1 | event-b 2 | watch-a 3", "check-completed"),
    PROGRAM("walk-elsewhere-walk",
	"make 2, watch-b 0, watch-ab 1, watch-b 2, watch-ab 3",
	"event-b 2 | event-a 1 | cancel-b", ""),
    PROGRAM("walk-elsewhere-cancel", "make 2, watch-ab 0, watch-ab 1",
	"event-b 1 | cancel 0 | event-a 1", "check-done 0, check-done 1"),
    PROGRAM("walk-empties-watch", "make 1, watch-a 0, watch-ab 1, watch-a 2",
	"cancel-a | watch-a 3, value 4 4 | event-a 1", ""),
    PROGRAM("walk-waits-for-cancel",
	"make 1, waits 1 2, watch-a 0, watch-a 1, watch-a 2",
	"event-a 2 | cancel 2 | event-a 1", ""),
    PROGRAM("walk-waits-for-deadline",
	"make 1, waits 1 2, watch-a 0, watch-a 1, watch-due 2, advance 0, pass "
	"2",
	"event-a 2 | advance 0", "check-done 2"),
    PROGRAM("walk-waits-for-check",
	"make 1, needs 2 2, waits 1 2, watch-a 0, watch-a 1, watch-ab 2",
	"event-a 4 | event-b 2", "check-done 2"),
    PROGRAM("orphan-complete", "make 1, watch-a 0",
	"stop-timer | complete 0 | shutdown", "check-done 0"),
    PROGRAM("orphan-check-two-keys", "make 2, watch-ab 0",
	"stop-timer, shutdown | cancel 0 | event-b 1", "check-done 0"),
    PROGRAM("request-shutdown-destroy",
	"make 2, calls 0, calls 1, needs 1 7, watch-due 0, watch-ab 1, advance "
	"0, pass 2",
	"advance 0 | shutdown, destroy", ""),
    {0},
};
