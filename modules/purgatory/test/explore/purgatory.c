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

/* The core's records have other names for the same. */
#undef INDEX_MASK
#undef GENERATION_ONE
#include "modules/purgatory/hwt_purgatory.h"

#define OPERATIONS 10
#define A ((struct hwt_key){1, 1})
#define B ((struct hwt_key){1, 2})

struct operation_ledger {
	hwt_operation handle;
	unsigned accepted, refused, dones, busy, tries;
	enum hwt_outcome outcome;
	uint64_t needs; /* bits of the state */
	uint64_t not_before_ns;
	unsigned again; /* done watches again, so often */
	bool by_value;
};

extern _Thread_local struct call *calls;

unsigned purgatory_again_max;

static struct hwt_purgatory *purgatory;
static struct hwt_operation_mailbox *mailbox;
static struct operation_ledger ledger[OPERATIONS];
static uint64_t state;
static uint32_t over; /* shutdown has returned */
static unsigned decided;
static bool moved; /* a deadline, by its last reschedule */
static hwt_operation kept; /* what an executor got */
static uint32_t in_run; /* of the mailbox */
static unsigned seen[OPERATIONS]; /* by a listing */
static const struct hwt_operation_executor *executor;
static uint32_t slabs_released;

/* See operation.h. */
size_t memory_round(size_t bytes);
void *memory_map(size_t bytes);
void memory_unmap(void *memory, size_t bytes);
bool memory_release(void *memory, size_t bytes);

/* In the place of memory.c. */

size_t
memory_round(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

void *
memory_map(size_t bytes)
{
	return system_map(bytes);
}

void
memory_unmap(void *memory, size_t bytes)
{
	system_unmap(memory, bytes);
}

bool
memory_release(void *memory, size_t bytes)
{
	slabs_released++;
	sim_wipe(memory, bytes);
	return true;
}

void
purgatory_programs_init(void)
{
	explore_add_local(&calls, sizeof(calls));
}

static bool
look(hwt_operation handle, void *arg)
{
	struct operation_ledger *o = arg;
	bool holds;

	explore_check(handle.id == o->handle.id);
	explore_check(o->busy == 0 && o->dones == 0 && !over);
	o->busy = 1;
	o->tries++;
	holds = (explore_load(&state, 8) & o->needs) == o->needs;
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
	explore_check(o->busy == 0 && o->dones == 0);
	explore_check(!over || executor != NULL);
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
	explore_modify(&o->dones, 4);
}

static int
watch_spec(unsigned i, const struct hwt_operation_spec *spec)
{
	struct operation_ledger *o = &ledger[i];
	int rc;

	o->not_before_ns = sim_now_ns + spec->delay_ns;
	rc = hwt_purgatory_watch(purgatory, &o->handle, spec);
	if (rc >= 0)
		o->accepted++;
	else
		o->refused++;
	if (rc == 1)
		decided++;
	return rc;
}

/* Under so many keys of A and B, from that one on. */
static int
watch(unsigned i, size_t first, size_t count, uint64_t delay_ns)
{
	static const struct hwt_key keys[] = {A, B};
	const struct hwt_operation_spec spec = {.try_complete = look,
	    .done = end_of_operation,
	    .arg = &ledger[i],
	    .keys = &keys[first],
	    .key_count = count,
	    .delay_ns = delay_ns,
	    .executor = executor};

	return watch_spec(i, &spec);
}

static void
watch_value_for(unsigned i, uint64_t at_least, uint64_t delay_ns)
{
	const struct hwt_key key = A;
	const struct hwt_operation_spec spec = {.done = end_of_operation,
	    .arg = &ledger[i],
	    .keys = &key,
	    .key_count = 1,
	    .at_least = at_least,
	    .delay_ns = delay_ns};

	ledger[i].by_value = true;
	(void)watch_spec(i, &spec);
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
event_stored(struct hwt_key key)
{
	size_t completed;

	explore_store(&state, 8, 1, EXPLORE_RELAXED);
	explore_check(hwt_purgatory_check(purgatory, key, &completed) == 0);
	decided += (unsigned)completed;
}

static void
event_a_stored(void)
{
	event_stored(A);
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
	unsigned i;

	memset(ledger, 0, sizeof(ledger));
	for (i = 0; i < OPERATIONS; i++)
		ledger[i].needs = 1;
	state = 0;
	over = 0;
	decided = 0;
	executor = NULL;
	mailbox = NULL;
	calls = NULL;
	slabs_released = 0;
	purgatory_again_max = 16;
	moved = false;
	kept.id = 0;
	in_run = 0;
	memset(seen, 0, sizeof(seen));
	explore_check(hwt_purgatory_create(&purgatory, timer, options) == 0);
	explore_name(&state, 8, "state");
}

static void
verify_counts(const struct hwt_purgatory_stats *stats)
{
	unsigned i, accepted = 0;

	for (i = 0; i < OPERATIONS; i++) {
		const struct operation_ledger *o = &ledger[i];

		explore_check(o->dones == (o->accepted > 0));
		explore_check(o->accepted <= 1);
		accepted += o->accepted;
	}
	explore_check(stats->pending == 0 && stats->links == 0);
	explore_check(stats->keys == 0);
	/* What is left may be completed by no call. */
	explore_check(stats->completed + stats->cancelled == decided ||
	    (purgatory_again_max == 0 &&
		stats->completed + stats->cancelled > decided));
	explore_check(stats->completed + stats->cancelled + stats->expired +
		stats->shut_down >=
	    accepted);
}

/* What holds has completed before this. */
static void
end_all(void)
{
	struct hwt_purgatory_stats stats;
	unsigned i;

	for (i = 0; i < OPERATIONS; i++) {
		if (ledger[i].accepted > 0 && ledger[i].dones == 0 &&
		    mailbox == NULL)
			explore_check(ledger[i].by_value ||
			    (state & ledger[i].needs) != ledger[i].needs);
	}
	if (purgatory == NULL)
		return;
	explore_check(hwt_purgatory_shutdown(purgatory) == 0);
	if (mailbox != NULL)
		explore_check(hwt_operation_mailbox_run(mailbox, 0, NULL) == 0);
	explore_check(hwt_purgatory_read_stats(purgatory, &stats) == 0);
	verify_counts(&stats);
	explore_check(hwt_pending_timeouts(timer) == subject[0].accepted);
	explore_check(hwt_purgatory_destroy(purgatory) == 0);
	explore_check(hwt_operation_mailbox_destroy(mailbox) == 0);
}

/* Verbs. */

static void
make(unsigned shards)
{
	unsigned i;

	timer_make(HWT_MANUAL, NULL);
	for (i = 0; i < 3 && shards == 1; i++)
		thread_prepare(i, 2);
	make_with(&(struct hwt_purgatory_options){.shards = shards});
}

static void
make_limited(void)
{
	timer_make(HWT_MANUAL, NULL);
	make_with(
	    &(struct hwt_purgatory_options){.shards = 1, .max_pending = 1});
}

/* The last step of a watch with a deadline fails. */
static void
make_full(void)
{
	timer_make_with(
	    &(struct hwt_options){.flags = HWT_MANUAL, .max_pending = 1});
	make_with(&(struct hwt_purgatory_options){.shards = 1});
	explore_check(schedule(0, 3 * TICK_NS) == 0);
}

static void
leave(void)
{
	purgatory_again_max = 0;
}

static void
needs(unsigned i, unsigned bits)
{
	ledger[i].needs = bits;
}

static void
again(unsigned i)
{
	ledger[i].again = 1;
}

#define WATCH(name, first, keys, delay_ns)             \
	static void name(unsigned i)                   \
	{                                              \
		(void)watch(i, first, keys, delay_ns); \
	}
WATCH(watch_a, 0, 1, HWT_NEVER)
WATCH(watch_b, 1, 1, HWT_NEVER)
WATCH(watch_ab, 0, 2, HWT_NEVER)
WATCH(watch_due, 0, 1, TICK_NS)
WATCH(watch_far, 0, 1, 50 * TICK_NS)

/* A slab has 7 records. */
static void
fill_a(unsigned from)
{
	for (; from < 7; from++)
		watch_a(from);
}

static void
fill_b(unsigned from)
{
	for (; from < 7; from++)
		watch_b(from);
}

static void
watch_within_limit(unsigned i)
{
	int rc = watch(i, i % 2, 1, HWT_NEVER);

	explore_check(rc == 0 || rc == -ENOBUFS);
}

static void
watch_refused(unsigned i)
{
	int rc = watch(i, 0, 2, TICK_NS);

	explore_check(rc == -ENOBUFS || (rc == 0 && ledger[i].dones == 1));
}

#define VALUE(name, delay_ns)                           \
	static void name(unsigned i, unsigned at_least) \
	{                                               \
		watch_value_for(i, at_least, delay_ns); \
	}
VALUE(watch_value, HWT_NEVER)
VALUE(watch_value_due, TICK_NS)
VALUE(watch_value_far, 50 * TICK_NS)

static void
watch_quorum(unsigned i, unsigned quorum)
{
	const struct hwt_key keys[] = {A, B};
	const struct hwt_operation_spec spec = {.done = end_of_operation,
	    .arg = &ledger[i],
	    .keys = keys,
	    .key_count = 2,
	    .at_least = 5,
	    .quorum = quorum,
	    .delay_ns = HWT_NEVER};

	ledger[i].by_value = true;
	(void)watch_spec(i, &spec);
}

/* The first of these keys belongs into another group when there are four, or
 * two. */
static struct hwt_key
moving_key(unsigned i)
{
	return (struct hwt_key){1, 6 + i};
}

static void
watch_moving(unsigned i)
{
	const struct hwt_key key = moving_key(i);
	const struct hwt_operation_spec spec = {.try_complete = look,
	    .done = end_of_operation,
	    .arg = &ledger[i],
	    .keys = &key,
	    .key_count = 1,
	    .delay_ns = HWT_NEVER};

	ledger[i].needs = i == 0 ? 1 : 8;
	(void)watch_spec(i, &spec);
}

static void
cancel_moving(unsigned i)
{
	cancel_all(moving_key(i));
}

/* Events. */

static void
event_a(unsigned bits)
{
	event(bits, A);
}

static void
event_b(unsigned bits)
{
	event(bits, B);
}

static void
event_moving(void)
{
	event(1, moving_key(0));
}

static void
event_moving_stored(void)
{
	event_stored(moving_key(0));
}

static void
raise_a(unsigned value)
{
	raise_key(A, value);
}

static void
raise_b(unsigned value)
{
	raise_key(B, value);
}

/* The state says so by a plain store, which may become visible late. */
static void
raise_stored(unsigned value)
{
	explore_store(&state, 8, value, EXPLORE_RELAXED);
	raise_a(value);
}

static void
raise_as_stored(void)
{
	raise_key(A, explore_load(&state, 8));
}

static void
set_state(unsigned bits)
{
	explore_modify(&state, 8);
	state |= bits;
}

/* Whatever the state says was raised before. */
static void
raise_both(void)
{
	uint64_t raised = explore_load(&state, 8);

	if (raised & 1)
		raise_a(5);
	if (raised & 2)
		raise_b(5);
}

/* Decisions about one operation. */

static void
cancel_operation(unsigned i)
{
	int rc = hwt_operation_cancel(purgatory, ledger[i].handle);

	explore_check(rc == 0 || rc == -ENOENT);
	decided += rc == 0;
}

static void
cancel_pending(unsigned i)
{
	explore_check(hwt_operation_cancel(purgatory, ledger[i].handle) == 0);
	decided++;
}

static void
complete(unsigned i)
{
	int rc = hwt_operation_complete(purgatory, ledger[i].handle);

	explore_check(rc == 0 || rc == -ENOENT);
	decided += rc == 0;
}

static void
cancel_a(void)
{
	cancel_all(A);
}

static void
cancel_b(void)
{
	cancel_all(B);
}

/* Deadlines. */

static void
tick(unsigned ticks)
{
	(void)advance(ticks);
}

static void
pass(unsigned ticks)
{
	sim_clock_add(ticks * TICK_NS);
}

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
	explore_check(o->dones == 0);
	moved = true;
	o->not_before_ns = not_before_ns;
}

static bool
move_it(hwt_operation operation, void *arg, void *ctx)
{
	int rc = hwt_operation_reschedule(purgatory, operation, 10 * TICK_NS);

	(void)arg, (void)ctx;
	explore_check(rc == 0 || rc == -ENOENT);
	moved = rc == 0;
	return true;
}

/* What watch has not armed yet, too. */
static void
move_listed(void)
{
	moved = false;
	explore_check(
	    hwt_purgatory_list_key(purgatory, A, move_it, NULL, NULL) == 0);
}

/* Shutdown. */

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

/* Listing. */

static bool
see(hwt_operation handle, void *arg, void *ctx)
{
	const struct operation_ledger *o = arg;

	explore_check(ctx == seen && handle.id == o->handle.id);
	seen[o - ledger]++;
	return true;
}

/* What waits throughout is seen once; the second and the last end meanwhile. */
static void
list_a(void)
{
	size_t visited;
	unsigned i;

	explore_check(
	    hwt_purgatory_list_key(purgatory, A, see, seen, &visited) == 0);
	for (i = 0; i < OPERATIONS; i++) {
		visited -= seen[i];
		explore_check(seen[i] <= 1);
	}
	explore_check(visited == 0 && seen[0] == 1 && seen[2] == 1);
	explore_check(seen[5] == 1);
}

/* Executors. */

static void
make_mailbox(void)
{
	make(1);
	explore_check(hwt_operation_mailbox_create(&mailbox) == 0);
	executor = hwt_operation_mailbox_executor(mailbox);
}

static void
run_mailbox(void)
{
	explore_check(hwt_operation_mailbox_run(mailbox, 0, NULL) == 0);
	explore_check(hwt_operation_mailbox_run(mailbox, 1, NULL) == 0);
}

static void
run_told(void)
{
	explore_modify(&in_run, 4);
	in_run = 1;
	explore_check(hwt_operation_mailbox_run(mailbox, 0, NULL) == 0);
	explore_modify(&in_run, 4);
	in_run = 0;
}

/* However long another thread is stopped that handed over before: the loop has
 * been told, or is in a run, or that has called done. */
static void
check_told(void)
{
	bool told;

	told = sim_eventfd_count(hwt_operation_mailbox_fd(mailbox)) != 0;
	told |= explore_load(&in_run, 4) != 0;
	explore_check(told || explore_load(&ledger[1].dones, 4) == 1);
}

/* In the order that the header names; execute may be in its last steps. */
static void
destroy_mailbox(void)
{
	explore_check(hwt_operation_mailbox_run(mailbox, 0, NULL) == 0);
	explore_check(ledger[0].dones == 1);
	explore_check(hwt_operation_mailbox_destroy(mailbox) == 0);
	mailbox = NULL;
}

static int
run_and_refuse(void *ctx, struct hwt_purgatory *of, hwt_operation operation)
{
	(void)ctx;
	explore_check(hwt_operation_run(of, operation) == 0);
	return 1;
}

/* An executor that keeps the one it got, for others to run, and refuses it or
 * not. */
static int
keep(void *ctx, struct hwt_purgatory *of, hwt_operation operation)
{
	(void)of;
	explore_modify(&kept, sizeof(kept));
	kept = operation;
	return ctx != NULL;
}

static void
execute(unsigned i)
{
	static const struct hwt_operation_executor executors[] = {
	    {keep, NULL}, {keep, &kept}, {run_and_refuse, NULL}};

	executor = i < 3 ? &executors[i] : NULL;
}

static void
run_kept(void)
{
	hwt_operation operation = {explore_load(&kept, sizeof(kept))};
	int rc = hwt_operation_run(purgatory, operation);

	explore_check(rc == 0 || rc == -ENOENT);
}

static void
run_left(void)
{
	if (ledger[0].dones == 0)
		run_kept();
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
check_done(unsigned i)
{
	explore_check(ledger[i].dones == 1);
}

static void
check_pending(unsigned i)
{
	explore_check(ledger[i].dones == 0);
}

static void
check_accepted(unsigned sum)
{
	unsigned i, accepted = 0;

	for (i = 0; i < OPERATIONS; i++)
		accepted += ledger[i].accepted;
	explore_check(accepted == sum);
}

static void
check_timeouts(unsigned count)
{
	explore_check(hwt_pending_timeouts(timer) == count);
}

/* Operation 0 has ended, unless it has moved. */
static void
check_moved_or_done(void)
{
	explore_check(moved || ledger[0].dones == 1);
}

static void
check_moved_or_done_alone(void)
{
	explore_check(moved == (ledger[0].dones == 0));
}

/* What the loop was not told of is not there. */
static void
check_mailbox(void)
{
	size_t count = 0;

	if (sim_eventfd_count(hwt_operation_mailbox_fd(mailbox)) == 0) {
		explore_check(
		    hwt_operation_mailbox_run(mailbox, 0, &count) == 0);
		explore_check(count == 0);
	}
	explore_check(hwt_operation_mailbox_run(mailbox, 0, NULL) == 0);
}

static bool
in_slab_0(unsigned i)
{
	return (ledger[i].handle.id & 0xfff) < 8;
}

/* A free record of slab 0 was found, and taken before others. */
static void
check_full_slab(void)
{
	explore_check(in_slab_0(7) != in_slab_0(8));
}

/* What was released is used again, and old handles say nothing. */
static void
check_released(void)
{
	unsigned i;

	explore_check(slabs_released > 0 || in_slab_0(7));
	watch_b(8);
	for (i = 0; i < 7; i++) {
		explore_check(hwt_operation_cancel(
				  purgatory, ledger[i].handle) == -ENOENT);
		explore_check(ledger[i].handle.id != ledger[8].handle.id);
	}
}

static const struct verb verbs[] = {
    {"make", .of = make}, /* with so many shards */
    {"make-limited", .alone = make_limited}, /* one may be pending */
    {"make-full", .alone = make_full}, /* no timeout is left */
    {"make-mailbox", .alone = make_mailbox},
    {"executor", .of = execute}, /* keeps, keeps and refuses, runs; none */
    {"leave", .alone = leave}, /* what an event sets AGAIN for */
    {"needs", .two = needs}, /* bits of the state, to complete */
    {"again", .of = again}, /* done watches again, once */
    {"watch-a", .of = watch_a}, /* without a deadline */
    {"watch-b", .of = watch_b},
    {"watch-ab", .of = watch_ab},
    {"watch-due", .of = watch_due}, /* in a tick */
    {"watch-far", .of = watch_far},
    {"watch-limited", .of = watch_within_limit}, /* or refused */
    {"watch-refused", .of = watch_refused}, /* or completed */
    {"watch-moving", .of = watch_moving},
    {"fill-a", .of = fill_a}, /* from that operation to the slab's end */
    {"fill-b", .of = fill_b},
    {"value", .two = watch_value}, /* at least */
    {"value-due", .two = watch_value_due},
    {"value-far", .two = watch_value_far},
    {"quorum", .two = watch_quorum},
    {"event-a", .of = event_a}, /* with these bits */
    {"event-b", .of = event_b},
    {"event-stored", .alone = event_a_stored},
    {"event-moving", .alone = event_moving},
    {"event-moving-stored", .alone = event_moving_stored},
    {"state", .of = set_state},
    {"raise-a", .of = raise_a},
    {"raise-b", .of = raise_b},
    {"raise-stored", .of = raise_stored},
    {"raise-as-stored", .alone = raise_as_stored},
    {"raise-both", .alone = raise_both},
    {"cancel", .of = cancel_operation}, /* one; what may have ended */
    {"cancel-pending", .of = cancel_pending},
    {"complete", .of = complete},
    {"cancel-a", .alone = cancel_a}, /* a key */
    {"cancel-b", .alone = cancel_b},
    {"cancel-moving", .of = cancel_moving},
    {"advance", .of = tick},
    {"pass", .of = pass}, /* time alone */
    {"move", .of = move}, /* the deadline of operation 0 */
    {"move-listed", .alone = move_listed},
    {"list-a", .alone = list_a},
    {"run-mailbox", .alone = run_mailbox},
    {"run-told", .alone = run_told},
    {"check-told", .alone = check_told},
    {"run-kept", .alone = run_kept}, /* what the executor keeps */
    {"run-left", .alone = run_left},
    {"shutdown", .alone = shut_down},
    {"destroy", .alone = destroy},
    {"destroy-or-not", .alone = destroy_or_not},
    {"destroy-mailbox", .alone = destroy_mailbox},
    {"check-completed", .alone = check_completed}, /* all */
    {"check-done", .of = check_done},
    {"check-pending", .of = check_pending},
    {"check-accepted", .of = check_accepted},
    {"check-timeouts", .of = check_timeouts},
    {"check-moved-or-done", .alone = check_moved_or_done},
    {"check-moved-xor-done", .alone = check_moved_or_done_alone},
    {"check-mailbox", .alone = check_mailbox},
    {"check-full-slab", .alone = check_full_slab},
    {"check-released", .alone = check_released},
    {0},
};

#define PROGRAM(name_, first_, run_, ...)                                    \
	{                                                                    \
		.name = "purgatory/" name_, .verbs = verbs, .first = first_, \
		.run = run_, .end = end_all, .last = __VA_ARGS__             \
	}

const struct program purgatory_programs[] = {
    PROGRAM("full-slab", "make 1, fill-a 0", "cancel 0 | watch-b 7",
	"watch-b 8, check-full-slab"),
    PROGRAM("slab-released", "make 1, fill-a 0", "cancel-a | watch-b 7",
	"check-released"),
    PROGRAM("slab-released-stale", "make 1, fill-a 0",
	"cancel-a | cancel 0 | watch-b 7", "check-released"),
    PROGRAM(
	"watch-check", "make 1", "watch-a 0 | event-a 1", "check-completed"),
    PROGRAM("watch-check-stored", "make 1", "watch-a 0 | event-stored",
	"check-completed"),
    PROGRAM("alone-watch-cancel", "make 2, needs 0 3, watch-ab 0",
	"watch-b 1, cancel-pending 1 | cancel 0", ""),
    PROGRAM("table-grows-check", "make 1, watch-moving 0, watch-moving 1",
	"watch-moving 2, watch-moving 3 | event-moving", ""),
    PROGRAM("table-grows-watch-check", "make 1, watch-moving 1, watch-moving 2",
	"event-moving-stored | watch-moving 0 | watch-moving 3", ""),
    PROGRAM("table-shrinks-check",
	"make 1, watch-moving 0, watch-moving 1, watch-moving 2, watch-moving "
	"3",
	"cancel-moving 2, cancel-moving 3 | event-moving", ""),
    PROGRAM("watch-two-keys-check-check", "make 2",
	"needs 0 3, watch-ab 0 | event-a 1 | event-b 2", "check-completed"),
    PROGRAM("check-check", "make 1, needs 0 7, watch-ab 0",
	"event-a 1 | event-b 2 | event-a 4", "check-completed"),
    PROGRAM("deferred", "make 1, needs 0 7, watch-ab 0, leave",
	"event-a 1, event-a 4 | event-b 2", "advance 1, check-completed"),
    PROGRAM("deferred-check", "make 1, needs 0 7, watch-ab 0, leave",
	"event-a 1 | event-b 2 | event-a 4", "advance 1, check-completed"),
    PROGRAM("deferred-two-turn",
	"make 1, needs 0 7, watch-ab 0, leave, needs 1 5, watch-a 1",
	"event-a 1, event-a 4 | event-b 2 | advance 1, advance 1",
	"advance 1, check-completed"),
    PROGRAM("deferred-cancel", "make 1, needs 0 7, watch-ab 0, leave",
	"event-a 1 | event-b 2 | cancel 0, executor 3, watch-a 1", "advance 1"),
    PROGRAM("deferred-shutdown", "make 1, needs 0 7, watch-ab 0, leave",
	"event-a 1, event-a 4 | event-b 2, shutdown | advance 1, advance 1",
	""),
    PROGRAM("check-cancel-complete", "make 1, watch-a 0",
	"event-a 1 | cancel 0 | complete 0", ""),
    PROGRAM("check-deadline", "make 1, watch-due 0, advance 0, pass 2",
	"event-a 1 | advance 0", ""),
    PROGRAM("check-deadline-cancel", "make 1, watch-due 0, advance 0, pass 2",
	"event-a 1 | advance 0 | cancel 0", ""),
    PROGRAM(
	"watch-deadline", "make 1", "watch-due 0 | advance 2, advance 2", ""),
    PROGRAM("watch-deadline-check", "make 1",
	"watch-due 0 | advance 2, advance 2 | event-a 1", ""),
    PROGRAM("watch-cancel-key", "make 2",
	"needs 0 3, watch-ab 0 | cancel-a | cancel-b", ""),
    PROGRAM("reuse-deadline",
	"make 1, fill-b 1, watch-due 0, advance 0, pass 2",
	"complete 0, watch-far 7 | advance 0", ""),
    PROGRAM("reuse-reached",
	"make 1, value 1 9, raise-a 5, fill-b 2, watch-due 0, advance 0, pass "
	"2",
	"value-far 7 5 | advance 0", ""),
    PROGRAM("move-deadline", "make 1, watch-due 0, advance 0, pass 2",
	"move 10 | advance 0",
	"check-moved-or-done, pass 11, advance 0, check-done 0, check-timeouts "
	"0"),
    PROGRAM("move-deadline-complete", "make 1, watch-due 0, advance 0, pass 2",
	"move 10 | advance 0 | complete 0",
	"check-moved-or-done, pass 11, advance 0, check-done 0, check-timeouts "
	"0"),
    PROGRAM("move-first-complete", "make 1, watch-a 0", "move 10 | complete 0",
	"check-moved-or-done, pass 11, advance 0, check-done 0, check-timeouts "
	"0"),
    PROGRAM("move-first-first-check", "make 1, watch-a 0",
	"move 10 | move 10 | event-a 1",
	"check-moved-or-done, pass 11, advance 0, check-done 0, check-timeouts "
	"0"),
    PROGRAM("move-watch", "make 1", "watch-due 0 | move-listed",
	"pass 2, advance 0, check-moved-xor-done, pass 11, advance 0, "
	"check-done 0, check-timeouts 0"),
    PROGRAM("move-reuse", "make 1, fill-b 1, watch-due 0, advance 0, pass 2",
	"complete 0, watch-far 7 | move 1",
	"pass 20, advance 0, check-done 0, check-pending 7, check-timeouts 1"),
    PROGRAM("move-shutdown", "make 1, watch-a 0", "move 10 | shutdown", ""),
    PROGRAM("watch-shutdown", "make 1", "watch-due 0 | shutdown", ""),
    PROGRAM("check-shutdown", "make 1, watch-a 0", "event-a 1 | shutdown", ""),
    PROGRAM("deadline-shutdown-destroy",
	"make 1, watch-due 0, advance 0, pass 2",
	"advance 0 | shutdown, destroy", ""),
    PROGRAM("deadline-destroy", "make 1, watch-due 0, advance 0, pass 2",
	"advance 0 | destroy-or-not", "", .preemptions = 3),
    PROGRAM("limit", "make-limited", "watch-limited 0 | watch-limited 1",
	"check-accepted 1, cancel-a, cancel-b, watch-limited 2, check-accepted "
	"2"),
    PROGRAM("refused-check-cancel-key", "make-full",
	"watch-refused 0 | event-a 1 | cancel-b", ""),
    PROGRAM("watch-again", "make 1, again 0, watch-a 0",
	"cancel 0 | event-a 1 | cancel-a", ""),
    PROGRAM("watch-value-raise", "make 1",
	"value 0 5, raise-as-stored | raise-stored 5", "check-completed"),
    PROGRAM("raise-raise-cancel", "make 1, value 0 3, value 1 1, value 2 5",
	"raise-a 3 | raise-a 3 | cancel 0", "check-done 0, check-done 1"),
    PROGRAM("walk-walk-watch", "make 1, watch-a 0, watch-ab 1, watch-a 2",
	"event-a 1 | event-b 2 | watch-a 3", "check-completed"),
    PROGRAM("raise-deadline-shutdown",
	"make 1, value-due 0 3, value-due 1 1, value 2 5, advance 0, pass 2",
	"raise-a 3 | advance 0 | shutdown", ""),
    PROGRAM("raise-cancel-key-watch", "make 1, value 0 3, value 1 1, value 2 5",
	"raise-a 3 | cancel-a | value 3 2", ""),
    PROGRAM("walk-empties-watch", "make 1, watch-a 0, watch-ab 1, watch-a 2",
	"cancel-a | watch-a 3, value 4 4 | event-a 1", ""),
    PROGRAM("walk-cancel-key", "make 1, watch-a 0, watch-ab 1, watch-a 2",
	"event-a 1 | cancel-b", ""),
    PROGRAM("quorum-raise-raise", "make 2, quorum 0 2",
	"state 1, raise-a 5 | state 2, raise-b 5", "check-completed"),
    PROGRAM("quorum-raise-raise-cancel", "make 2, quorum 0 2",
	"state 1, raise-a 5 | state 2, raise-b 5 | cancel 0", ""),
    PROGRAM("quorum-one-raise-raise", "make 2, quorum 0 1, quorum 1 2",
	"state 1, raise-a 5 | state 2, raise-b 5", "check-completed"),
    PROGRAM("quorum-watch-raise-raise", "make 2",
	"quorum 0 2, raise-both | state 1, raise-a 5 | state 2, raise-b 5",
	"check-completed"),
    PROGRAM("quorum-reuse", "make 2, fill-b 1, quorum 0 2",
	"complete 0, quorum 7 2 | raise-b 5",
	"check-done 0, check-pending 7, raise-b 5, raise-a 5, check-done 7"),
    PROGRAM("list-cancel-raise",
	"make 1, watch-a 0, watch-ab 1, watch-a 2, value 4 1, value 5 7",
	"list-a | cancel-b | raise-a 1", ""),
    PROGRAM("list-watch-check",
	"make 1, watch-a 0, watch-ab 1, watch-a 2, value 4 1, value 5 7",
	"list-a | watch-a 3 | event-b 2", ""),
    PROGRAM("mailbox", "make-mailbox, watch-a 0",
	"event-a 1 | run-mailbox | cancel 0", "check-mailbox, check-done 0"),
    PROGRAM("mailbox-push-push", "make-mailbox, watch-a 0, watch-b 1",
	"cancel-a | cancel-b | run-mailbox",
	"check-mailbox, check-done 0, check-done 1"),
    PROGRAM("mailbox-push-told", "make-mailbox, watch-a 0, watch-b 1",
	"cancel-a | cancel-b, check-told | run-told, run-told",
	"check-mailbox, check-done 0, check-done 1"),
    PROGRAM("mailbox-deadline", "make-mailbox, watch-due 0, advance 0, pass 2",
	"advance 0 | run-mailbox", "check-mailbox, check-done 0"),
    PROGRAM("mailbox-shutdown-destroy", "make-mailbox, watch-a 0",
	"event-a 1 | shutdown, destroy-mailbox", ""),
    PROGRAM("mailbox-deadline-shutdown-destroy",
	"make-mailbox, watch-due 0, advance 0, pass 2",
	"advance 0 | shutdown, destroy-mailbox, destroy", ""),
    PROGRAM("run-and-refuse-deadline-destroy",
	"make 1, executor 2, watch-due 0, advance 0, pass 2",
	"advance 0 | destroy-or-not", ""),
    PROGRAM("run-run-reuse", "make 1, executor 0, watch-a 0",
	"cancel 0, executor 3, watch-a 1 | run-kept | run-kept", "run-left"),
    PROGRAM("refuse-run-shutdown", "make 1, executor 1, watch-a 0",
	"event-a 1 | run-kept | shutdown", ""),
    PROGRAM("run-and-refuse", "make 1, executor 2, watch-a 0",
	"event-a 1 | cancel 0", ""),
    {0},
};
