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
	model_wipe(memory, bytes);
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

static int watch(
    unsigned i, const struct hwt_key *keys, size_t count, uint64_t delay_ns);

static void
end_of_operation(hwt_operation handle, void *arg, enum hwt_outcome outcome)
{
	struct operation_ledger *o = arg;
	struct hwt_key key = A;

	explore_check(handle.id == o->handle.id);
	explore_check(o->busy == 0 && o->dones == 0);
	explore_check(!over || executor != NULL);
	explore_check(
	    outcome != HWT_EXPIRED || model_now_ns >= o->not_before_ns);
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
		(void)watch((unsigned)(o - ledger), &key, 1, HWT_NEVER);
	}
	explore_modify(&o->dones, 4);
}

static int
watch_spec(unsigned i, const struct hwt_operation_spec *spec)
{
	struct operation_ledger *o = &ledger[i];
	int rc;

	o->not_before_ns = model_now_ns + spec->delay_ns;
	rc = hwt_purgatory_watch(purgatory, &o->handle, spec);
	if (rc >= 0)
		o->accepted++;
	else
		o->refused++;
	if (rc == 1)
		decided++;
	return rc;
}

static int
watch(unsigned i, const struct hwt_key *keys, size_t count, uint64_t delay_ns)
{
	const struct hwt_operation_spec spec = {.try_complete = look,
	    .done = end_of_operation,
	    .arg = &ledger[i],
	    .keys = keys,
	    .key_count = count,
	    .delay_ns = delay_ns,
	    .executor = executor};

	return watch_spec(i, &spec);
}

static int
watch_value(unsigned i, uint64_t at_least, uint64_t delay_ns)
{
	const struct hwt_key key = A;
	const struct hwt_operation_spec spec = {.done = end_of_operation,
	    .arg = &ledger[i],
	    .keys = &key,
	    .key_count = 1,
	    .at_least = at_least,
	    .delay_ns = delay_ns};

	ledger[i].by_value = true;
	return watch_spec(i, &spec);
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
event_a_stored(void)
{
	size_t completed;

	explore_store(&state, 8, 1, EXPLORE_RELAXED);
	explore_check(hwt_purgatory_check(purgatory, A, &completed) == 0);
	decided += (unsigned)completed;
}

/* A key that belongs into another group when there are four, or two. */
#define MOVES ((struct hwt_key){1, 6})

static void
event_moves(void)
{
	event(1, MOVES);
}

static void
raise_to(uint64_t value)
{
	size_t completed;

	explore_check(
	    hwt_purgatory_raise(purgatory, A, value, &completed) == 0);
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
	explore_check(hwt_purgatory_create(&purgatory, timer, options) == 0);
	explore_name(&state, 8, "state");
}

static void
make(void)
{
	unsigned i;

	timer_make(HWT_MANUAL, NULL);
	for (i = 0; i < 3; i++)
		thread_prepare(i, 2);
	make_with(&(struct hwt_purgatory_options){.shards = 1});
}

/* Two shards, so that a thread takes two locks one after the other. */
static void
make_two_shards(void)
{
	timer_make(HWT_MANUAL, NULL);
	make_with(&(struct hwt_purgatory_options){.shards = 2});
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

/* And something was to complete by then. */
static void
end_completed(void)
{
	unsigned i;

	for (i = 0; i < OPERATIONS; i++) {
		if (ledger[i].accepted > 0)
			explore_check(ledger[i].dones == 1 &&
			    ledger[i].outcome == HWT_COMPLETED);
	}
	end_all();
}

/* Events and watchers. */

static void
watch_a(void)
{
	const struct hwt_key keys[] = {A};

	(void)watch(0, keys, 1, HWT_NEVER);
}

static void
watch_a_and_b(void)
{
	const struct hwt_key keys[] = {A, B};

	ledger[0].needs = 3;
	(void)watch(0, keys, 2, HWT_NEVER);
}

static void
event_a(void)
{
	event(1, A);
}

static void
event_b(void)
{
	event(2, B);
}

static void
event_a_four(void)
{
	event(4, A);
}

static void
begin_watched(void)
{
	make();
	watch_a();
}

/* Completes with the third event alone. */
static void
begin_needs_all(void)
{
	const struct hwt_key keys[] = {A, B};

	make();
	ledger[0].needs = 7;
	(void)watch(0, keys, 2, HWT_NEVER);
}

/* What an event sets AGAIN for is left at once. */
static void
begin_left(void)
{
	begin_needs_all();
	purgatory_again_max = 0;
}

static void
begin_left_two(void)
{
	const struct hwt_key keys[] = {A};

	begin_left();
	ledger[1].needs = 5;
	(void)watch(1, keys, 1, HWT_NEVER);
}

/* The next tick does it. */
static void
end_left(void)
{
	(void)advance(1);
	end_completed();
}

static void
end_left_any(void)
{
	(void)advance(1);
	end_all();
}

static void
two_ticks(void)
{
	(void)advance(1);
	(void)advance(1);
}

static void
event_a_twice(void)
{
	event(1, A);
	event(4, A);
}

/* A table that gets two groups more, or less; all but the first wait for what
 * does not come. */

static void
watch_four_keys(unsigned from, unsigned end)
{
	struct hwt_key key = MOVES;
	unsigned i;

	for (i = from; i < end; i++) {
		key.id = MOVES.id + i;
		ledger[i].needs = i == 0 ? 1 : 8;
		(void)watch(i, &key, 1, HWT_NEVER);
	}
}

static void
begin_two_keys(void)
{
	make();
	watch_four_keys(0, 2);
}

static void
begin_four_keys(void)
{
	make();
	watch_four_keys(0, 4);
}

static void
watch_two_keys(void)
{
	watch_four_keys(2, 4);
}

static void
cancel_two_keys(void)
{
	cancel_all((struct hwt_key){MOVES.kind, MOVES.id + 2});
	cancel_all((struct hwt_key){MOVES.kind, MOVES.id + 3});
}

/* Decisions about one operation. */

static void
cancel_first(void)
{
	int rc = hwt_operation_cancel(purgatory, ledger[0].handle);

	explore_check(rc == 0 || rc == -ENOENT);
	decided += rc == 0;
}

static void
complete_first(void)
{
	int rc = hwt_operation_complete(purgatory, ledger[0].handle);

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

/* Alone under two keys of two shards, of which one is shared for a while. */

static void
begin_alone_twice(void)
{
	make_two_shards();
	watch_a_and_b();
}

static void
watch_b_and_cancel(void)
{
	const struct hwt_key keys[] = {B};

	(void)watch(1, keys, 1, HWT_NEVER);
	explore_check(hwt_operation_cancel(purgatory, ledger[1].handle) == 0);
	decided++;
}

/* Deadlines. */

static void
watch_due(void)
{
	const struct hwt_key keys[] = {A};

	(void)watch(0, keys, 1, TICK_NS);
}

/* Its next turn runs the task. */
static void
watch_until_due(void)
{
	watch_due();
	(void)advance(0);
	model_clock_add(2 * TICK_NS);
}

static void
begin_due(void)
{
	make();
	watch_until_due();
}

static void
turn_on_twice(void)
{
	(void)advance(2);
	(void)advance(2);
}

/* The record of one that has ended is used again, while the task of its
 * timeout may be about to run: it is the last one of its slab. */
static void
begin_due_last(void)
{
	const struct hwt_key keys[] = {B};
	unsigned i;

	make();
	for (i = 1; i < 7; i++)
		(void)watch(i, keys, 1, HWT_NEVER);
	watch_until_due();
}

static void
complete_and_watch_another(void)
{
	const struct hwt_key keys[] = {A};

	complete_first();
	(void)watch(7, keys, 1, 50 * TICK_NS);
}

/* So is this one, by an operation that completes before it gets a timeout,
 * while that task may not have returned. */
static void
begin_due_last_reached(void)
{
	const struct hwt_key keys[] = {B};
	unsigned i;

	make();
	(void)watch_value(1, 9, HWT_NEVER);
	raise_to(5);
	for (i = 2; i < 7; i++)
		(void)watch(i, keys, 1, HWT_NEVER);
	watch_until_due();
}

static void
watch_reached(void)
{
	(void)watch_value(7, 5, 50 * TICK_NS);
}

/* Deadlines that move. */

static bool moved;

/* What the ledger has changes with the call's last step. */
static void
move_first(uint64_t delay_ns)
{
	struct operation_ledger *o = &ledger[0];
	uint64_t not_before_ns = model_now_ns + delay_ns;
	int rc;

	if (not_before_ns < o->not_before_ns)
		o->not_before_ns = not_before_ns;
	rc = hwt_operation_reschedule(purgatory, o->handle, delay_ns);
	explore_check(rc == 0 || rc == -ENOENT);
	if (rc != 0)
		return;
	explore_check(o->dones == 0);
	moved = true;
	o->not_before_ns = not_before_ns;
}

static void
move_later(void)
{
	move_first(10 * TICK_NS);
}

static void
move_sooner(void)
{
	move_first(TICK_NS);
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

static void
begin_moves(void)
{
	moved = false;
	begin_watched();
}

static void
begin_due_moves(void)
{
	moved = false;
	begin_due();
}

static void
begin_last_moves(void)
{
	moved = false;
	begin_due_last();
}

/* What has a deadline now expires at it. */
static void
end_moved(void)
{
	const struct operation_ledger *o = &ledger[0];

	explore_check(moved || o->dones == 1);
	model_clock_add(11 * TICK_NS);
	(void)advance(0);
	explore_check(o->dones == 1);
	explore_check(hwt_pending_timeouts(timer) == 0);
	end_all();
}

/* It is not due at the deadline that it was watched with, if it has moved. */
static void
end_moved_listed(void)
{
	model_clock_add(2 * TICK_NS);
	(void)advance(0);
	explore_check(ledger[0].dones == !moved);
	moved = true;
	end_moved();
}

/* Another one has its record now, and its own deadline. */
static void
end_moved_reused(void)
{
	model_clock_add(20 * TICK_NS);
	(void)advance(0);
	explore_check(ledger[0].dones == 1 && ledger[7].dones == 0);
	explore_check(hwt_pending_timeouts(timer) == 1);
	end_all();
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
event_b_and_shut_down(void)
{
	event_b();
	shut_down();
}

static void
shut_down_and_destroy(void)
{
	shut_down();
	explore_check(ledger[0].dones == 1);
	explore_check(hwt_purgatory_destroy(purgatory) == 0);
	purgatory = NULL;
}

/* Destroying alone: what has no outcome yet is pending, and it is refused. */
static void
destroy(void)
{
	int rc = hwt_purgatory_destroy(purgatory);

	explore_check(rc == 0 || rc == -EBUSY);
	if (rc == -EBUSY)
		return;
	explore_check(ledger[0].dones == 1);
	purgatory = NULL;
}

/* One may be pending at a time. */
static void
begin_limit(void)
{
	timer_make(HWT_MANUAL, NULL);
	make_with(
	    &(struct hwt_purgatory_options){.shards = 1, .max_pending = 1});
}

static void
watch_within_limit(unsigned i, struct hwt_key key)
{
	int rc = watch(i, &key, 1, HWT_NEVER);

	explore_check(rc == 0 || rc == -ENOBUFS);
}

static void
watch_first_within(void)
{
	watch_within_limit(0, A);
}

static void
watch_second_within(void)
{
	watch_within_limit(1, B);
}

/* One was let in, and then there is a place again. */
static void
end_limit(void)
{
	explore_check(ledger[0].accepted + ledger[1].accepted == 1);
	cancel_all(A);
	cancel_all(B);
	watch_within_limit(2, A);
	explore_check(ledger[2].accepted == 1);
	end_all();
}

/* A timer that is full: the last step of watch fails. */

static void
begin_full(void)
{
	timer_make_with(
	    &(struct hwt_options){.flags = HWT_MANUAL, .max_pending = 1});
	make_with(&(struct hwt_purgatory_options){.shards = 1});
	explore_check(schedule(0, 3 * TICK_NS) == 0);
}

static void
watch_refused(void)
{
	const struct hwt_key keys[] = {A, B};
	int rc = watch(0, keys, 2, TICK_NS);

	explore_check(rc == -ENOBUFS || (rc == 0 && ledger[0].dones == 1));
}

/* Done that watches again. */

static void
begin_again(void)
{
	make();
	state = 0;
	ledger[0].again = 1;
	watch_a();
}

/* Values. */

static void
watch_five(void)
{
	(void)watch_value(0, 5, HWT_NEVER);
	raise_to(explore_load(&state, 8));
}

static void
raise_to_five(void)
{
	explore_store(&state, 8, 5, EXPLORE_RELAXED);
	raise_to(5);
}

static void
make_values(uint64_t delay_ns)
{
	make();
	(void)watch_value(0, 3, delay_ns);
	(void)watch_value(1, 1, delay_ns);
	(void)watch_value(2, 5, HWT_NEVER);
}

static void
begin_values(void)
{
	make_values(HWT_NEVER);
}

static void
raise_to_three(void)
{
	raise_to(3);
}

static void
end_two_values(void)
{
	explore_check(ledger[0].dones == 1 && ledger[1].dones == 1);
	end_all();
}

/* More than a batch. */

static void
begin_many(void)
{
	const struct hwt_key keys[] = {A, B};
	unsigned i;

	make();
	for (i = 0; i < 3; i++)
		(void)watch(i, keys, 1 + i % 2, HWT_NEVER);
}

static void
watch_another(void)
{
	const struct hwt_key keys[] = {A};

	(void)watch(3, keys, 1, HWT_NEVER);
}

/* Values of several keys. */

static void
raise_key_to(struct hwt_key key, uint64_t value)
{
	size_t completed;

	explore_check(
	    hwt_purgatory_raise(purgatory, key, value, &completed) == 0);
	decided += (unsigned)completed;
}

static void
watch_quorum(unsigned i, uint64_t quorum)
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

static void
begin_quorum(void)
{
	make_two_shards();
	watch_quorum(0, 2);
}

static void
begin_quorum_of_one(void)
{
	make_two_shards();
	watch_quorum(0, 1);
	watch_quorum(1, 2);
}

static void
raise_b_alone(void)
{
	raise_key_to(B, 5);
}

static void
raise_a_to_five(void)
{
	explore_modify(&state, 8);
	state |= 1;
	raise_key_to(A, 5);
}

static void
raise_b_to_five(void)
{
	explore_modify(&state, 8);
	state |= 2;
	raise_key_to(B, 5);
}

/* Whatever was raised before it was linked. */
static void
watch_and_raise_quorum(void)
{
	uint64_t raised;

	watch_quorum(0, 2);
	raised = explore_load(&state, 8);
	if (raised & 1)
		raise_key_to(A, 5);
	if (raised & 2)
		raise_key_to(B, 5);
}

/* The next one has the record of the first, and misses both keys. */
static void
complete_and_watch_quorum(void)
{
	complete_first();
	watch_quorum(7, 2);
}

static void
begin_quorum_last(void)
{
	const struct hwt_key keys[] = {B};
	unsigned i;

	make_two_shards();
	for (i = 1; i < 7; i++)
		(void)watch(i, keys, 1, HWT_NEVER);
	watch_quorum(0, 2);
}

static void
end_quorum_reused(void)
{
	explore_check(ledger[0].dones == 1 && ledger[7].dones == 0);
	raise_b_alone();
	raise_key_to(A, 5);
	explore_check(ledger[7].dones == 1);
	end_all();
}

/* Listing. */

static unsigned seen[OPERATIONS];

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

static void
begin_list(void)
{
	memset(seen, 0, sizeof(seen));
	begin_many();
	(void)watch_value(4, 1, HWT_NEVER);
	(void)watch_value(5, 7, HWT_NEVER);
}

static void
raise_to_one(void)
{
	raise_to(1);
}

/* Executors. */

static void
make_mailbox(void)
{
	make();
	explore_check(hwt_operation_mailbox_create(&mailbox) == 0);
	executor = hwt_operation_mailbox_executor(mailbox);
}

static void
begin_mailbox(void)
{
	make_mailbox();
	watch_a();
}

static void
run_mailbox(void)
{
	explore_check(hwt_operation_mailbox_run(mailbox, 0, NULL) == 0);
	explore_check(hwt_operation_mailbox_run(mailbox, 1, NULL) == 0);
}

/* What the loop was not told of is not there. */
static void
end_mailbox(void)
{
	size_t count = 0;

	if (model_eventfd_count(hwt_operation_mailbox_fd(mailbox)) == 0) {
		explore_check(
		    hwt_operation_mailbox_run(mailbox, 0, &count) == 0);
		explore_check(count == 0);
	}
	explore_check(hwt_operation_mailbox_run(mailbox, 0, NULL) == 0);
	explore_check(ledger[0].dones == 1);
	end_all();
}

static void
begin_mailbox_two(void)
{
	const struct hwt_key keys[] = {B};

	begin_mailbox();
	(void)watch(1, keys, 1, HWT_NEVER);
}

static uint32_t in_run;

static void
run_mailbox_twice(void)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		explore_modify(&in_run, 4);
		in_run = 1;
		explore_check(hwt_operation_mailbox_run(mailbox, 0, NULL) == 0);
		explore_modify(&in_run, 4);
		in_run = 0;
	}
}

/* However long another thread is stopped that handed over before: the loop has
 * been told, or is in a run, or that has called done. */
static void
cancel_b_and_look(void)
{
	bool told;

	cancel_b();
	told = model_eventfd_count(hwt_operation_mailbox_fd(mailbox)) != 0;
	told |= explore_load(&in_run, 4) != 0;
	explore_check(told || explore_load(&ledger[1].dones, 4) == 1);
}

static void
end_mailbox_two(void)
{
	end_mailbox();
	explore_check(ledger[1].dones == 1);
}

static void
begin_mailbox_due(void)
{
	make_mailbox();
	watch_until_due();
}

/* In the order that the header names; execute may be in its last steps. */
static void
shut_down_and_destroy_mailbox(void)
{
	shut_down();
	explore_check(hwt_operation_mailbox_run(mailbox, 0, NULL) == 0);
	explore_check(ledger[0].dones == 1);
	explore_check(hwt_operation_mailbox_destroy(mailbox) == 0);
	mailbox = NULL;
}

static void
shut_down_and_destroy_both(void)
{
	shut_down_and_destroy_mailbox();
	explore_check(hwt_purgatory_destroy(purgatory) == 0);
	purgatory = NULL;
}

static int
run_and_refuse(void *ctx, struct hwt_purgatory *of, hwt_operation operation)
{
	(void)ctx;
	explore_check(hwt_operation_run(of, operation) == 0);
	return 1;
}

static void
make_run_and_refuse(void)
{
	static const struct hwt_operation_executor refuses = {
	    run_and_refuse, NULL};

	make();
	executor = &refuses;
}

static void
begin_run_and_refuse(void)
{
	make_run_and_refuse();
	watch_a();
}

static void
begin_run_and_refuse_due(void)
{
	make_run_and_refuse();
	watch_until_due();
}

/* An executor that keeps the one it got, for others to run, and refuses it or
 * not. */
static hwt_operation kept;

static int
keep(void *ctx, struct hwt_purgatory *of, hwt_operation operation)
{
	(void)of;
	explore_modify(&kept, sizeof(kept));
	kept = operation;
	return ctx != NULL;
}

static void
begin_keep(bool refuse)
{
	static const struct hwt_operation_executor keeps[] = {
	    {keep, NULL}, {keep, &kept}};

	make();
	kept.id = 0;
	executor = &keeps[refuse];
	watch_a();
}

static void
begin_kept(void)
{
	begin_keep(false);
}

static void
begin_kept_and_refused(void)
{
	begin_keep(true);
}

static void
run_kept(void)
{
	hwt_operation operation = {explore_load(&kept, sizeof(kept))};
	int rc = hwt_operation_run(purgatory, operation);

	explore_check(rc == 0 || rc == -ENOENT);
}

/* Another one may get the record of the one that was run. */
static void
cancel_and_watch_another(void)
{
	const struct hwt_key keys[] = {A};

	cancel_first();
	executor = NULL;
	(void)watch(1, keys, 1, HWT_NEVER);
}

static void
end_kept(void)
{
	if (ledger[0].dones == 0)
		run_kept();
	end_all();
}

/* Two of the values are due. */
static void
begin_values_due(void)
{
	make_values(TICK_NS);
	(void)advance(0);
	model_clock_add(2 * TICK_NS);
}

static void
watch_between(void)
{
	(void)watch_value(3, 2, HWT_NEVER);
}

/* Under a key that a walk has its position in, and that may be empty. */
static void
watch_another_and_value(void)
{
	watch_another();
	(void)watch_value(4, 4, HWT_NEVER);
}

/* Slab 0 is full: it has 7 records. */
static void
begin_full_slab(void)
{
	const struct hwt_key key = A;
	unsigned i;

	make();
	for (i = 0; i < 7; i++)
		(void)watch(i, &key, 1, HWT_NEVER);
}

static void
watch_eighth(void)
{
	const struct hwt_key key = B;

	(void)watch(7, &key, 1, HWT_NEVER);
}

static void
cancel_all_of_a(void)
{
	cancel_all(A);
}

static bool
in_slab_0(unsigned i)
{
	return (ledger[i].handle.id & 0xfff) < 8;
}

/* A free record of slab 0 is found, and taken before others. */
static void
end_full_slab(void)
{
	const struct hwt_key key = B;

	(void)watch(8, &key, 1, HWT_NEVER);
	explore_check(in_slab_0(7) != in_slab_0(8));
	end_all();
}

/* What was released is used again, and old handles say nothing. */
static void
end_released(void)
{
	const struct hwt_key key = B;
	unsigned i;

	explore_check(slabs_released > 0 || in_slab_0(7));
	(void)watch(8, &key, 1, HWT_NEVER);
	for (i = 0; i < 7; i++) {
		explore_check(hwt_operation_cancel(
				  purgatory, ledger[i].handle) == -ENOENT);
		explore_check(ledger[i].handle.id != ledger[8].handle.id);
	}
	end_all();
}

const struct program purgatory_programs[] = {
    {
	.name = "purgatory/full-slab",
	.begin = begin_full_slab,
	.thread = {cancel_first, watch_eighth},
	.end = end_full_slab,
    },
    {
	.name = "purgatory/slab-released",
	.begin = begin_full_slab,
	.thread = {cancel_all_of_a, watch_eighth},
	.end = end_released,
    },
    {
	.name = "purgatory/slab-released-stale",
	.begin = begin_full_slab,
	.thread = {cancel_all_of_a, cancel_first, watch_eighth},
	.end = end_released,
    },
    {
	.name = "purgatory/watch-check",
	.begin = make,
	.thread = {watch_a, event_a},
	.end = end_completed,
    },
    {
	.name = "purgatory/watch-check-stored",
	.begin = make,
	.thread = {watch_a, event_a_stored},
	.end = end_completed,
    },
    {
	.name = "purgatory/alone-watch-cancel",
	.begin = begin_alone_twice,
	.thread = {watch_b_and_cancel, cancel_first},
	.end = end_all,
    },
    {
	.name = "purgatory/table-grows-check",
	.begin = begin_two_keys,
	.thread = {watch_two_keys, event_moves},
	.end = end_all,
    },
    {
	.name = "purgatory/table-shrinks-check",
	.begin = begin_four_keys,
	.thread = {cancel_two_keys, event_moves},
	.end = end_all,
    },
    {
	.name = "purgatory/watch-two-keys-check-check",
	.begin = make_two_shards,
	.thread = {watch_a_and_b, event_a, event_b},
	.end = end_completed,
    },
    {
	.name = "purgatory/check-check",
	.begin = begin_needs_all,
	.thread = {event_a, event_b, event_a_four},
	.end = end_completed,
    },
    {
	.name = "purgatory/left",
	.begin = begin_left,
	.thread = {event_a_twice, event_b},
	.end = end_left,
    },
    {
	.name = "purgatory/left-check",
	.begin = begin_left,
	.thread = {event_a, event_b, event_a_four},
	.end = end_left,
    },
    {
	.name = "purgatory/left-two-turn",
	.begin = begin_left_two,
	.thread = {event_a_twice, event_b, two_ticks},
	.end = end_left,
    },
    {
	.name = "purgatory/left-cancel",
	.begin = begin_left,
	.thread = {event_a, event_b, cancel_and_watch_another},
	.end = end_left_any,
    },
    {
	.name = "purgatory/left-shutdown",
	.begin = begin_left,
	.thread = {event_a_twice, event_b_and_shut_down, two_ticks},
	.end = end_all,
    },
    {
	.name = "purgatory/check-cancel-complete",
	.begin = begin_watched,
	.thread = {event_a, cancel_first, complete_first},
	.end = end_all,
    },
    {
	.name = "purgatory/check-deadline",
	.begin = begin_due,
	.thread = {event_a, turn},
	.end = end_all,
    },
    {
	.name = "purgatory/check-deadline-cancel",
	.begin = begin_due,
	.thread = {event_a, turn, cancel_first},
	.end = end_all,
    },
    {
	.name = "purgatory/watch-deadline",
	.begin = make,
	.thread = {watch_due, turn_on_twice},
	.end = end_all,
    },
    {
	.name = "purgatory/watch-deadline-check",
	.begin = make,
	.thread = {watch_due, turn_on_twice, event_a},
	.end = end_all,
    },
    {
	.name = "purgatory/watch-cancel-key",
	.begin = make_two_shards,
	.thread = {watch_a_and_b, cancel_a, cancel_b},
	.end = end_all,
    },
    {
	.name = "purgatory/reuse-deadline",
	.begin = begin_due_last,
	.thread = {complete_and_watch_another, turn},
	.end = end_all,
    },
    {
	.name = "purgatory/reuse-reached",
	.begin = begin_due_last_reached,
	.thread = {watch_reached, turn},
	.end = end_all,
    },
    {
	.name = "purgatory/move-deadline",
	.begin = begin_due_moves,
	.thread = {move_later, turn},
	.end = end_moved,
    },
    {
	.name = "purgatory/move-deadline-complete",
	.begin = begin_due_moves,
	.thread = {move_later, turn, complete_first},
	.end = end_moved,
    },
    {
	.name = "purgatory/move-first-complete",
	.begin = begin_moves,
	.thread = {move_later, complete_first},
	.end = end_moved,
    },
    {
	.name = "purgatory/move-first-first-check",
	.begin = begin_moves,
	.thread = {move_later, move_later, event_a},
	.end = end_moved,
    },
    {
	.name = "purgatory/move-watch",
	.begin = make,
	.thread = {watch_due, move_listed},
	.end = end_moved_listed,
    },
    {
	.name = "purgatory/move-reuse",
	.begin = begin_last_moves,
	.thread = {complete_and_watch_another, move_sooner},
	.end = end_moved_reused,
    },
    {
	.name = "purgatory/move-shutdown",
	.begin = begin_moves,
	.thread = {move_later, shut_down},
	.end = end_all,
    },
    {
	.name = "purgatory/watch-shutdown",
	.begin = make,
	.thread = {watch_due, shut_down},
	.end = end_all,
    },
    {
	.name = "purgatory/check-shutdown",
	.begin = begin_watched,
	.thread = {event_a, shut_down},
	.end = end_all,
    },
    {
	.name = "purgatory/deadline-shutdown-destroy",
	.begin = begin_due,
	.thread = {turn, shut_down_and_destroy},
	.end = end_all,
    },
    {
	.name = "purgatory/deadline-destroy",
	.begin = begin_due,
	.thread = {turn, destroy},
	.end = end_all,
	.preemptions = 3,
    },
    {
	.name = "purgatory/limit",
	.begin = begin_limit,
	.thread = {watch_first_within, watch_second_within},
	.end = end_limit,
    },
    {
	.name = "purgatory/refused-check-cancel-key",
	.begin = begin_full,
	.thread = {watch_refused, event_a, cancel_b},
	.end = end_all,
    },
    {
	.name = "purgatory/watch-again",
	.begin = begin_again,
	.thread = {cancel_first, event_a, cancel_a},
	.end = end_all,
    },
    {
	.name = "purgatory/watch-value-raise",
	.begin = make,
	.thread = {watch_five, raise_to_five},
	.end = end_completed,
    },
    {
	.name = "purgatory/raise-raise-cancel",
	.begin = begin_values,
	.thread = {raise_to_three, raise_to_three, cancel_first},
	.end = end_two_values,
    },
    {
	.name = "purgatory/walk-walk-watch",
	.begin = begin_many,
	.thread = {event_a, event_b, watch_another},
	.end = end_completed,
    },
    {
	.name = "purgatory/raise-deadline-shutdown",
	.begin = begin_values_due,
	.thread = {raise_to_three, turn, shut_down},
	.end = end_all,
    },
    {
	.name = "purgatory/raise-cancel-key-watch",
	.begin = begin_values,
	.thread = {raise_to_three, cancel_a, watch_between},
	.end = end_all,
    },
    {
	.name = "purgatory/walk-empties-watch",
	.begin = begin_many,
	.thread = {cancel_a, watch_another_and_value, event_a},
	.end = end_all,
    },
    {
	.name = "purgatory/walk-cancel-key",
	.begin = begin_many,
	.thread = {event_a, cancel_b},
	.end = end_all,
    },
    {
	.name = "purgatory/quorum-raise-raise",
	.begin = begin_quorum,
	.thread = {raise_a_to_five, raise_b_to_five},
	.end = end_completed,
    },
    {
	.name = "purgatory/quorum-raise-raise-cancel",
	.begin = begin_quorum,
	.thread = {raise_a_to_five, raise_b_to_five, cancel_first},
	.end = end_all,
    },
    {
	.name = "purgatory/quorum-one-raise-raise",
	.begin = begin_quorum_of_one,
	.thread = {raise_a_to_five, raise_b_to_five},
	.end = end_completed,
    },
    {
	.name = "purgatory/quorum-watch-raise-raise",
	.begin = make_two_shards,
	.thread = {watch_and_raise_quorum, raise_a_to_five, raise_b_to_five},
	.end = end_completed,
    },
    {
	.name = "purgatory/quorum-reuse",
	.begin = begin_quorum_last,
	.thread = {complete_and_watch_quorum, raise_b_alone},
	.end = end_quorum_reused,
    },
    {
	.name = "purgatory/list-cancel-raise",
	.begin = begin_list,
	.thread = {list_a, cancel_b, raise_to_one},
	.end = end_all,
    },
    {
	.name = "purgatory/list-watch-check",
	.begin = begin_list,
	.thread = {list_a, watch_another, event_b},
	.end = end_all,
    },
    {
	.name = "purgatory/mailbox",
	.begin = begin_mailbox,
	.thread = {event_a, run_mailbox, cancel_first},
	.end = end_mailbox,
    },
    {
	.name = "purgatory/mailbox-push-push",
	.begin = begin_mailbox_two,
	.thread = {cancel_a, cancel_b, run_mailbox},
	.end = end_mailbox_two,
    },
    {
	.name = "purgatory/mailbox-push-told",
	.begin = begin_mailbox_two,
	.thread = {cancel_a, cancel_b_and_look, run_mailbox_twice},
	.end = end_mailbox_two,
    },
    {
	.name = "purgatory/mailbox-deadline",
	.begin = begin_mailbox_due,
	.thread = {turn, run_mailbox},
	.end = end_mailbox,
    },
    {
	.name = "purgatory/mailbox-shutdown-destroy",
	.begin = begin_mailbox,
	.thread = {event_a, shut_down_and_destroy_mailbox},
	.end = end_all,
    },
    {
	.name = "purgatory/mailbox-deadline-shutdown-destroy",
	.begin = begin_mailbox_due,
	.thread = {turn, shut_down_and_destroy_both},
	.end = end_all,
    },
    {
	.name = "purgatory/run-and-refuse-deadline-destroy",
	.begin = begin_run_and_refuse_due,
	.thread = {turn, destroy},
	.end = end_all,
    },
    {
	.name = "purgatory/run-run-reuse",
	.begin = begin_kept,
	.thread = {cancel_and_watch_another, run_kept, run_kept},
	.end = end_kept,
    },
    {
	.name = "purgatory/refuse-run-shutdown",
	.begin = begin_kept_and_refused,
	.thread = {event_a, run_kept, shut_down},
	.end = end_all,
    },
    {
	.name = "purgatory/run-and-refuse",
	.begin = begin_run_and_refuse,
	.thread = {event_a, cancel_first},
	.end = end_all,
    },
    {0},
};
