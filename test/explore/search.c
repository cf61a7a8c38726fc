/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search: stateless and depth first. An execution is a path of nodes; at
 * each, one of the processes that were enabled took a step. The next execution
 * begins anew, follows the path up to the last node that has something left to
 * try, tries that, and then goes on by itself: with the thread that ran last,
 * if that can.
 *
 * REDUCTION, after Flanagan and Godefroid (POPL 2005). Two steps are dependent
 * if their bytes overlap and one of them writes; a yield is dependent with all
 * that another thread writes. A step happens before another if a chain of
 * dependent steps, or of a process's own, leads from it there; vector clocks
 * tell. What a process is about to do is compared with the last step that is
 * dependent with it and does not happen before it: there, the process is to be
 * tried as well. If it could not go on there, then whoever must go before it;
 * else everybody. It is compared twice: when it is announced, with the steps
 * before; and then with each step of others.
 *
 * Steps at the same 16 bytes form a list, as do yields.
 */
#include "search.h"

#include "test/rng.h"

#define STEPS_MAX 20000u
#define OBJECTS 8192u
#define CHANGE_POINTS 3u

/* Node i chose step i; both from 1. A node outlives its execution. */
struct node {
	uint64_t enabled;
	uint64_t backtrack; /* to be tried */
	uint64_t done; /* tried */
	uint8_t chosen;
	uint8_t running;
	bool free; /* leaving running is no preemption */
	uint16_t preempted; /* so often before this node */
};

struct step {
	uintptr_t at;
	uint8_t bytes;
	uint8_t kind;
	uint8_t process;
	bool writes;
	uint16_t previous; /* of its list; 0: none */
	struct clock clock;
};

/* 16 bytes of memory, as a multiple of that. */
struct object {
	uintptr_t granule;
	uint32_t execution; /* in which it was touched */
	uint16_t last; /* step */
};

struct process processes[PROCESSES];
uint64_t pending;
unsigned running;
uint32_t step_count;
unsigned clock_width;
bool reducing;

static struct explore_limits limits;
static const char *replay; /* the rest of it */
static struct node nodes[STEPS_MAX + 2];
static struct step steps[STEPS_MAX + 1];
static uint32_t prefix; /* nodes of this execution that are given */
static uint16_t last_yield; /* step */
static struct object objects[OBJECTS];
static unsigned object_count;
static uint32_t execution;

/* PCT (Burckhardt and others, ASPLOS 2010). */
static struct rng rng;
static uint32_t priorities[PROCESSES];
static uint32_t change_points[CHANGE_POINTS];
static uint32_t steps_expected;
static uint64_t random_count; /* executions before this */

void
search_begin(const struct explore_limits *wanted)
{
	static const unsigned widths[] = {THREADS, 2 * THREADS, PROCESSES};

	limits = *wanted;
	clock_width = widths[limits.memory];
	reducing = limits.search != EXPLORE_RANDOM;
	replay = limits.replay;
	prefix = 0;
	steps_expected = 0;
	random_count = 0;
}

static void
random_begin(void)
{
	rng.state = limits.seed + random_count * UINT64_C(0xd1342543de82ef95);
	rng_next(&rng);
	for (unsigned p = 0; p < PROCESSES; p++)
		priorities[p] = (uint32_t)rng_next(&rng) | UINT32_C(1) << 31;
	for (unsigned i = 0; i < CHANGE_POINTS && steps_expected > 0; i++)
		change_points[i] = 1 +
		    (uint32_t)(rng_next(&rng) %
			(steps_expected << (rng.state >> 63)));
}

void
search_execution(void)
{
	memset(processes, 0, clock_width * sizeof(processes[0]));
	pending = 0;
	running = NOBODY;
	step_count = 0;
	last_yield = 0;
	object_count = 0;
	execution++;
	memset(change_points, 0, sizeof(change_points));
	if (limits.search == EXPLORE_RANDOM)
		random_begin();
}

/* The choice of a node. */

static bool
is_preemption(const struct node *n, unsigned process)
{
	return !n->free && process < THREADS && process != n->running;
}

static bool
affordable(const struct node *n, unsigned process)
{
	return limits.search != EXPLORE_BOUNDED || !is_preemption(n, process) ||
	    n->preempted < limits.preemptions;
}

bool
search_next(void)
{
	if (limits.search == EXPLORE_RANDOM) {
		if (random_count++ == 0)
			steps_expected = step_count > 0 ? step_count : 1;
		return true;
	}
	for (; step_count > 0; step_count--) {
		struct node *n = &nodes[step_count];
		uint64_t left;

		n->done |= BIT(n->chosen);
		left = n->backtrack & ~n->done;
		for (; left != 0; left &= left - 1) {
			unsigned p = (unsigned)__builtin_ctzll(left);

			if (!affordable(n, p))
				continue;
			n->chosen = (uint8_t)p;
			prefix = step_count;
			return true;
		}
	}
	return false;
}

/* The highest priority of those that can go on; a change point takes it away
 * from whoever has it. */
static unsigned
random_choice(uint64_t enabled)
{
	for (;;) {
		unsigned best = PROCESSES;
		unsigned i;

		for (uint64_t left = enabled; left != 0; left &= left - 1) {
			unsigned p = (unsigned)__builtin_ctzll(left);

			if (best == PROCESSES ||
			    priorities[p] > priorities[best])
				best = p;
		}
		for (i = 0; i < CHANGE_POINTS; i++)
			if (change_points[i] == step_count)
				break;
		if (i == CHANGE_POINTS)
			return best;
		change_points[i] = 0;
		priorities[best] = CHANGE_POINTS - i;
	}
}

static unsigned
choose(uint64_t enabled, unsigned usual)
{
	unsigned chosen = usual;

	if (replay != NULL && *replay != '\0') {
		chosen = (unsigned)(*replay++ - '0');
		if (chosen >= PROCESSES || !(enabled & BIT(chosen)))
			explore_fail("the schedule is not of this program");
	} else if (limits.search == EXPLORE_RANDOM) {
		chosen = random_choice(enabled);
	}
	return chosen;
}

/* A character for each node. */
const char *
search_schedule(void)
{
	static char text[STEPS_MAX + 1];

	for (uint32_t i = 0; i < step_count; i++)
		text[i] = (char)('0' + nodes[i + 1].chosen);
	text[step_count] = '\0';
	return text;
}

/* The reduction. */

/* Whether a step happens before what has this clock. */
static inline bool
clock_has(const struct clock *clock, uint32_t step)
{
	return step <= clock->known[steps[step].process];
}

static struct object *
object_of(uintptr_t at)
{
	uintptr_t granule = at >> 4;
	unsigned i = (unsigned)((granule * UINT64_C(0x9e3779b97f4a7c15)) >> 51);

	for (;; i++) {
		struct object *object = &objects[i % OBJECTS];

		if (object->execution != execution) {
			if (++object_count > OBJECTS / 2)
				explore_fail("more than %u words", OBJECTS / 2);
			*object = (struct object){granule, execution, 0};
			return object;
		}
		if (object->granule == granule)
			return object;
	}
}

static inline bool
dependent(const struct step *s, unsigned process, const struct operation *op)
{
	if (s->kind == YIELD || op->kind == YIELD)
		return (s->kind == YIELD ? op->writes : s->writes) &&
		    owner_of(process) != owner_of(s->process);
	return (s->writes || op->writes) && s->bytes != 0 && op->bytes != 0 &&
	    overlap(s->at, s->bytes, op->at, op->bytes);
}

/* Whether all that is dependent with op and came before this step happens
 * before it. */
static bool
covers(const struct step *s, const struct operation *op)
{
	return s->writes && op->bytes != 0 && s->at <= op->at &&
	    s->at + s->bytes >= op->at + op->bytes;
}

/* A process that cannot go on at a node: whoever must go before it, that is,
 * the first step since whose clock the process will have. */
static uint64_t
instead_of(const struct node *n, uint32_t step, const struct clock *clock)
{
	for (uint32_t i = step + 1; i <= step_count; i++)
		if (clock_has(clock, i))
			return n->enabled & BIT(steps[i].process)
			    ? BIT(steps[i].process)
			    : n->enabled;
	return n->enabled;
}

/* The process is to be tried before the step, which need not happen before it.
 * With a bound, that may cost a preemption that is not left: it is tried where
 * threads took over before as well, which may have been free. A flush may then
 * be put off until its thread has left: whatever else can go on is tried. */
static void
backtrack_add(uint32_t step, unsigned process, const struct clock *clock)
{
	struct node *n = &nodes[step];
	uint64_t bit = BIT(process);

	if (limits.search != EXPLORE_BOUNDED) {
		n->backtrack |=
		    n->enabled & bit ? bit : instead_of(n, step, clock);
		return;
	}
	n->backtrack |= n->enabled & bit && steps[step].process < THREADS
	    ? bit
	    : n->enabled;
	for (; n > nodes; n--)
		if (n->free || is_preemption(n, n->chosen))
			n->backtrack |= n->enabled & bit ? bit : n->enabled;
}

/* The clock that a process will have before its step, of the bytes that it is
 * about apart. */
static const struct clock *
clock_next(const struct process *p)
{
	static struct clock joined;

	if (p->more == NULL)
		return &p->clock;
	clock_copy(&joined, &p->clock);
	clock_join(&joined, p->more);
	return &joined;
}

/* Goes back from a step through its list; of a yield, through all. Compares
 * what a process is about to do with the last one that is dependent or, with a
 * bound, with the last one of each process. */
static void
compare(unsigned process, const struct clock *clock, uint32_t step)
{
	const struct operation *op = &processes[process].next;
	uint64_t found = 0;

	while (step != 0) {
		const struct step *s = &steps[step];

		if (dependent(s, process, op) && !clock_has(clock, step)) {
			if (!(found & BIT(s->process)))
				backtrack_add(step, process, clock);
			if (limits.search != EXPLORE_BOUNDED)
				return;
			found |= BIT(s->process);
		} else if (covers(s, op)) {
			return;
		}
		step = op->kind == YIELD ? step - 1 : s->previous;
	}
}

/* Goes back likewise, and joins the clocks of all that is dependent. */
static void
join(unsigned process, const struct operation *op, uint32_t step)
{
	while (step != 0) {
		const struct step *s = &steps[step];

		if (dependent(s, process, op))
			clock_join(&processes[process].clock, &s->clock);
		if (covers(s, op))
			return;
		step = op->kind == YIELD ? step - 1 : s->previous;
	}
}

void
search_announce(unsigned process)
{
	const struct operation *op = &processes[process].next;
	const struct clock *clock;

	pending |= BIT(process);
	if (!reducing || step_count < prefix)
		return;
	clock = clock_next(&processes[process]);
	if (op->kind == YIELD)
		compare(process, clock, step_count);
	else if (op->bytes != 0)
		compare(process, clock, object_of(op->at)->last);
	if (op->writes)
		compare(process, clock, last_yield);
}

/* Compares the last step with what the others are about to do. */
static void
compare_pending(const struct step *s)
{
	for (uint64_t left = pending; left != 0; left &= left - 1) {
		unsigned p = (unsigned)__builtin_ctzll(left);
		const struct clock *clock;

		if (!dependent(s, p, &processes[p].next))
			continue;
		clock = clock_next(&processes[p]);
		if (!clock_has(clock, step_count))
			backtrack_add(step_count, p, clock);
	}
}

/* The step's clock, and its place in a list. */
static void
step_link(struct step *s, struct process *p)
{
	const struct operation *op = &p->next;
	uint16_t *last = NULL;

	p->clock.known[s->process] = (uint16_t)step_count;
	if (p->more != NULL)
		clock_join(&p->clock, p->more);
	if (op->kind == YIELD) {
		join(s->process, op, step_count - 1);
		last = &last_yield;
	} else if (op->bytes != 0) {
		last = &object_of(op->at)->last;
		join(s->process, op, *last);
	}
	if (op->writes)
		join(s->process, op, last_yield);
	clock_copy(&s->clock, &p->clock);
	if (last == NULL)
		return;
	s->previous = *last;
	*last = (uint16_t)step_count;
}

static void
step_take(unsigned process)
{
	struct step *s = &steps[step_count];
	const struct operation *op = &processes[process].next;

	pending &= ~BIT(process);
	s->at = op->at;
	s->bytes = op->bytes;
	s->kind = op->kind;
	s->writes = op->writes;
	s->process = (uint8_t)process;
	if (!reducing)
		return;
	if (step_count >= prefix)
		compare_pending(s);
	step_link(s, &processes[process]);
}

unsigned
search_step(uint64_t enabled, unsigned usual, bool free)
{
	struct node *n;

	if (step_count == STEPS_MAX)
		explore_fail("livelock: no end after %u steps", step_count);
	n = &nodes[++step_count];
	if (step_count > prefix) {
		n->enabled = enabled;
		n->done = 0;
		n->running = (uint8_t)running;
		n->free = free;
		n->chosen = (uint8_t)choose(enabled, usual);
		n->backtrack = BIT(n->chosen);
	} else if (n->enabled != enabled) {
		explore_fail("the program is not deterministic");
	}
	n[1].preempted = n->preempted + is_preemption(n, n->chosen);
	step_take(n->chosen);
	return n->chosen;
}
