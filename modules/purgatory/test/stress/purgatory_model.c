/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls on one thread, whose callbacks call as well: done checks,
 * raises, cancels and watches, and a predicate checks. Each call is written
 * down as an event of the step it belongs to, and by these events it is
 * judged
 *
 *   what may end    done has an outcome for which an event of this step gives
 *                   cause: one that came after the operation was watched, or
 *                   that a predicate asked for, which is put off
 *   what must end   after a step nothing is pending that an event concerned
 *   how many        pending, links, keys, what waits under each key, timeouts
 *                   and the calls of predicates are those of the model; all
 *                   calls together say that they have decided as many as have
 *                   ended
 */
#include "test/stress/stress.h"

#include "modules/purgatory/hwt_purgatory.h"

enum {
	SLOTS = 150,
	KEYS = 7,
	STEPS = 200000,
	ROUND = 5000, /* steps between two shutdowns */
	EVENTS_MAX = 64,
	CALLS_IN_CALLBACKS = 4, /* in one step */
	TICK_NS = 1000000
};

#define OUTCOME(outcome) (1u << (outcome))

static struct hwt *timer;
static struct hwt_purgatory *purgatory;
static uint64_t max_pending, now_ns, seed, moment, version, dones, tries;
static unsigned slots; /* of them are used: few, so that keys come and go */

static struct slot {
	hwt_operation handle;
	bool live; /* until done is called */
	bool watching; /* its watch has not returned */
	unsigned keys; /* bits: those that it is linked to */
	uint64_t at_least, needs, due_ns, watched_at;
} slot[SLOTS];

/* The highest that it may have been raised to since something is linked. */
static uint64_t value[KEYS];

enum kind {
	CHECK,
	RAISE,
	CANCEL_KEY,
	DECIDE,
	WATCH,
	TIME,
	SHUTDOWN
};

static struct event {
	enum kind kind;
	enum hwt_outcome outcome; /* DECIDE */
	unsigned key;
	const struct slot *slot; /* DECIDE, WATCH */
	uint64_t value, moment;
	bool put_off;
} event[EVENTS_MAX];

/* Of this step. */
static struct {
	unsigned events, calls, callbacks, predicates;
	uint64_t said; /* by calls: decided */
	uint64_t completed, cancelled, others;
	bool unsaid; /* a walk that was put off says nothing */
} step;

static uint64_t
below(uint64_t bound)
{
	return random_below(&seed, bound);
}

static void
event_add(struct event made)
{
	stress_must(step.events < EVENTS_MAX, "too many events");
	made.moment = ++moment;
	made.put_off = step.predicates > 0;
	step.unsaid |= made.put_off;
	event[step.events++] = made;
}

/* The outcomes that the event can give it, by its kind alone. */
static unsigned
outcome_by(const struct slot *s, const struct event *e)
{
	bool concerned = (s->keys >> e->key & 1) != 0;
	bool holds = s->at_least == 0 && version >= s->needs;

	switch (e->kind) {
	case CHECK:
		return concerned && holds ? OUTCOME(HWT_COMPLETED) : 0;
	case RAISE:
		return concerned && s->at_least != 0 && s->at_least <= e->value
		    ? OUTCOME(HWT_COMPLETED)
		    : 0;
	case CANCEL_KEY:
		return concerned ? OUTCOME(HWT_CANCELLED) : 0;
	case DECIDE:
		return e->slot == s ? OUTCOME(e->outcome) : 0;
	case WATCH:
		return e->slot == s && holds ? OUTCOME(HWT_COMPLETED) : 0;
	case TIME:
		return s->due_ns <= now_ns ? OUTCOME(HWT_EXPIRED) : 0;
	case SHUTDOWN:
		return OUTCOME(HWT_SHUT_DOWN);
	}
	return 0;
}

static unsigned
outcomes(const struct slot *s, bool that_must)
{
	unsigned i, set = 0;

	for (i = 0; i < step.events; i++) {
		const struct event *e = &event[i];

		if (e->moment >= s->watched_at || (e->put_off && !that_must))
			set |= outcome_by(s, e);
	}
	/* A value that was reached before. */
	if (!that_must && s->watching && s->at_least != 0 &&
	    value[__builtin_ctz(s->keys)] >= s->at_least)
		set |= OUTCOME(HWT_COMPLETED);
	return set;
}

static void
count_end(unsigned outcome_set)
{
	if (outcome_set == OUTCOME(HWT_COMPLETED))
		step.completed++;
	else if (outcome_set == OUTCOME(HWT_CANCELLED))
		step.cancelled++;
	else
		step.others++;
}

/* Calls. */

static void
call_check(unsigned key)
{
	size_t count = 0;

	event_add((struct event){.kind = CHECK, .key = key});
	stress_must(hwt_purgatory_check(
			purgatory, (struct hwt_key){1, key}, &count) == 0,
	    "check");
	step.said += count;
}

static void
call_raise(unsigned key, uint64_t to)
{
	size_t count = 0;

	event_add((struct event){.kind = RAISE, .key = key, .value = to});
	if (value[key] < to)
		value[key] = to;
	stress_must(hwt_purgatory_raise(
			purgatory, (struct hwt_key){1, key}, to, &count) == 0,
	    "raise");
	step.said += count;
}

static void
call_cancel_key(unsigned key)
{
	size_t count = 0;

	event_add((struct event){.kind = CANCEL_KEY, .key = key});
	stress_must(hwt_purgatory_cancel_key(
			purgatory, (struct hwt_key){1, key}, &count) == 0,
	    "cancel_key");
	step.said += count;
}

static void
call_decide(struct slot *s, enum hwt_outcome outcome)
{
	bool was_open = s->live;
	int rc;

	event_add(
	    (struct event){.kind = DECIDE, .slot = s, .outcome = outcome});
	rc = outcome == HWT_COMPLETED
	    ? hwt_operation_complete(purgatory, s->handle)
	    : hwt_operation_cancel(purgatory, s->handle);
	step.said += rc == 0;
	stress_must(
	    rc == 0 ? was_open : rc == -ENOENT, "decide answers %d", rc);
	stress_must(rc == 0 || !was_open || step.callbacks > 0,
	    "a pending one is not found");
}

static hwt_try slot_try;
static hwt_done slot_done;

static uint64_t
count_open(void)
{
	uint64_t count = 0;
	unsigned i;

	for (i = 0; i < SLOTS; i++)
		count += slot[i].live;
	return count;
}

/* A key may stand there twice. */
static size_t
draw_keys(struct slot *s, struct hwt_key *keys)
{
	size_t i, count = s->at_least != 0 ? 1 : 1 + below(KEYS);

	s->keys = 0;
	for (i = 0; i < count; i++) {
		keys[i] = (struct hwt_key){1, below(KEYS)};
		s->keys |= 1u << keys[i].id;
	}
	return count;
}

static void
draw_spec(struct slot *s, struct hwt_operation_spec *spec)
{
	if (below(3) == 0) {
		s->at_least = 1 + below(20);
	} else {
		s->needs = version + below(4);
		spec->try_complete = slot_try;
	}
	spec->delay_ns = below(2) == 0 ? HWT_NEVER : below(40) * TICK_NS;
	spec->at_least = s->at_least;
	/* delay 0: at the next tick. */
	s->due_ns = spec->delay_ns == HWT_NEVER ? HWT_NEVER
	    : spec->delay_ns == 0               ? now_ns + 1
						: now_ns + spec->delay_ns;
}

static void
call_watch(struct slot *s)
{
	struct hwt_key keys[KEYS];
	struct hwt_operation_spec spec = {
	    .done = slot_done, .arg = s, .keys = keys};
	uint64_t open_before = count_open();
	int rc;

	*s = (struct slot){.live = true, .watching = true};
	draw_spec(s, &spec);
	spec.key_count = draw_keys(s, keys);
	event_add((struct event){.kind = WATCH, .slot = s});
	s->watched_at = moment;
	rc = hwt_purgatory_watch(purgatory, &s->handle, &spec);
	s->watching = false;
	step.said += rc == 1;
	if (rc == -ENOBUFS) {
		stress_must(max_pending != 0 && open_before >= max_pending,
		    "refused below the limit");
		stress_must(s->handle.id == 0, "refused with a handle");
		*s = (struct slot){0};
		return;
	}
	stress_must(rc >= 0, "watch answers %d", rc);
	stress_must(
	    max_pending == 0 || open_before < max_pending || step.callbacks > 0,
	    "above the limit");
}

/* In a callback of a step, it may have an outcome already. */
static void
call_reschedule(struct slot *s)
{
	bool is_open = s->live;
	uint64_t delay_ns = below(4) == 0 ? HWT_NEVER : 1 + below(40) * TICK_NS;
	int rc = hwt_operation_reschedule(purgatory, s->handle, delay_ns);

	stress_must(
	    rc == 0 ? is_open : rc == -ENOENT, "reschedule answers %d", rc);
	stress_must(rc == 0 || !is_open || step.callbacks > 0,
	    "a pending one is not found");
	if (rc != 0)
		return;
	s->due_ns = delay_ns == HWT_NEVER ? HWT_NEVER : now_ns + delay_ns;
}

static void
call_any(bool in_predicate)
{
	unsigned key = (unsigned)below(KEYS);
	struct slot *s = &slot[below(slots)];
	uint64_t what = in_predicate ? below(2) * 4 : below(11);

	if (what < 4)
		call_check(key);
	else if (what < 5)
		call_reschedule(s);
	else if (what < 6)
		call_cancel_key(key);
	else if (what < 7)
		call_raise(key, below(22));
	else if (!s->live)
		call_watch(s);
	else
		call_decide(s, what < 9 ? HWT_COMPLETED : HWT_CANCELLED);
}

/* Sometimes, a callback calls. */
static void
call_in_callback(bool in_predicate)
{
	if (step.calls >= CALLS_IN_CALLBACKS || below(4) != 0 ||
	    (event[0].kind == SHUTDOWN && step.events > 0))
		return;
	step.calls++;
	call_any(in_predicate);
}

static bool
slot_try(hwt_operation operation, void *arg)
{
	struct slot *s = arg;

	tries++;
	stress_must(s->live, "tried, and has ended");
	stress_must(operation.id == s->handle.id, "another handle");
	step.callbacks++;
	step.predicates++;
	call_in_callback(true);
	step.predicates--;
	step.callbacks--;
	return version >= s->needs;
}

static void
slot_done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	struct slot *s = arg;
	unsigned may = outcomes(s, false);

	stress_must(s->live, "done twice");
	stress_must(operation.id == s->handle.id, "another handle");
	stress_must((may & OUTCOME(outcome)) != 0,
	    "ended with %u, without cause", (unsigned)outcome);
	count_end(OUTCOME(outcome));
	s->live = false;
	dones++;
	step.callbacks++;
	call_in_callback(false);
	step.callbacks--;
}

/* After each step. */

static void
settle(void)
{
	unsigned i, must;

	for (i = 0; i < SLOTS; i++) {
		struct slot *s = &slot[i];

		if (!s->live)
			continue;
		must = outcomes(s, true);
		stress_must(
		    must == 0, "pending, and has cause to end with %#x", must);
	}
	stress_must(step.unsaid || step.others > 0 ||
		step.said == step.completed + step.cancelled,
	    "decided: %" PRIu64 " say the calls, %" PRIu64 " have ended",
	    step.said, step.completed + step.cancelled);
}

static unsigned
links_of(unsigned key)
{
	unsigned i, links = 0;

	for (i = 0; i < SLOTS; i++)
		links += slot[i].live && (slot[i].keys >> key & 1) != 0;
	return links;
}

static void
compare(void)
{
	struct hwt_purgatory_stats stats;
	uint64_t links = 0, keys = 0;
	size_t count;
	unsigned i;

	for (i = 0; i < KEYS; i++) {
		links += links_of(i);
		keys += links_of(i) > 0;
		stress_must(hwt_purgatory_count_key(purgatory,
				(struct hwt_key){1, i}, &count) == 0 &&
			count == links_of(i),
		    "key %u: %zu wait, and not %u", i, count, links_of(i));
		if (links_of(i) == 0)
			value[i] = 0;
	}
	stress_must(hwt_purgatory_read_stats(purgatory, &stats) == 0, "stats");
	stress_must(stats.pending == count_open(), "pending");
	stress_must(stats.links == links && stats.keys == keys, "links, keys");
	stress_must(stats.tried == tries, "tried");
	stress_must(hwt_pending_timeouts(timer) == stats.pending, "timeouts");
}

/* Steps. */

static void
step_time(void)
{
	now_ns += below(4) * TICK_NS;
	event_add((struct event){.kind = TIME});
	stress_must(hwt_advance(timer, NULL) == 0, "advance");
}

static void
take_step(void)
{
	uint64_t what = below(100);

	memset(&step, 0, sizeof(step));
	if (what < 80)
		call_any(false);
	else if (what < 85)
		version++;
	else
		step_time();
	settle();
	compare();
}

static uint64_t
time_now(void *ctx)
{
	(void)ctx;
	return now_ns;
}

static void
begin(void)
{
	const struct hwt_clock clock = {.now_ns = time_now};
	const struct hwt_options options = {
	    .tick_ns = TICK_NS, .flags = HWT_MANUAL, .clock = &clock};
	struct hwt_purgatory_options purgatory_options = {
	    .shards = 1u << below(4)};

	slots = below(2) == 0 ? SLOTS : 1 + (unsigned)below(10);
	max_pending = below(2) == 0 ? 0 : 1 + below(slots);
	purgatory_options.max_pending = max_pending;
	tries = 0;
	stress_must(hwt_create(&timer, &options) == 0, "timer");
	stress_must(
	    hwt_purgatory_create(&purgatory, timer, &purgatory_options) == 0,
	    "purgatory");
}

static void
end(void)
{
	memset(&step, 0, sizeof(step));
	stress_must(
	    count_open() == 0 || hwt_purgatory_destroy(purgatory) == -EBUSY,
	    "destroyed with pending ones");
	event_add((struct event){.kind = SHUTDOWN});
	stress_must(hwt_purgatory_shutdown(purgatory) == 0, "shutdown");
	settle();
	compare();
	memset(slot, 0, sizeof(slot));
	stress_must(hwt_purgatory_destroy(purgatory) == 0, "destroy");
	stress_must(hwt_stop(timer, NULL) == 0, "stop");
	stress_must(hwt_destroy(timer) == 0, "destroy of the timer");
}

int
main(int argc, char **argv)
{
	uint64_t steps, i;

	stress_begin("purgatory_model", argc, argv);
	steps = stress_scaled(STEPS);
	/* Fewer rounds are a matter of luck: some have few slots. */
	if (steps < 8 * ROUND)
		steps = 8 * ROUND;
	seed = random_seed(1);
	for (i = 0; i < steps; i++) {
		stress_phase("steps", i);
		if (i % ROUND == 0)
			begin();
		take_step();
		if (i % ROUND == ROUND - 1 || i == steps - 1)
			end();
	}
	stress_must(dones > steps / 10, "few have ended: %" PRIu64, dones);
	return stress_end("%" PRIu64 " steps, %" PRIu64 " ended", steps, dones);
}
