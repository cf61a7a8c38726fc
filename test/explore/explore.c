/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The explorer of interleavings.
 *
 * CONTEXTS. Each thread of a program is a context with a stack of its own that
 * is kept from one execution to the next. A thread that comes to a point says
 * what it is about to do (its next operation) and picks, in schedule, whose
 * step comes now; if that is another's, it switches there. What a thread does
 * before its first point belongs to its start, which happens as soon as it can.
 *
 * PROCESSES are what a step can be of: the threads, and the flushers that make
 * buffered stores visible. A flusher keeps the order of its stores. With TSO
 * each thread has one; with PSO, one for each address that it stores to.
 *
 * SEARCH. Stateless and depth first. An execution is a path of nodes: at each,
 * one of the processes that were enabled took a step, or one value was chosen.
 * The next execution begins anew, follows the path up to the last node that
 * has something left to try, tries that, and then goes on by itself: with the
 * thread that ran last, if that can.
 *
 * REDUCTION, after Flanagan and Godefroid (POPL 2005). Two steps are dependent
 * if their bytes overlap and one of them writes. A step happens before another
 * if a chain of dependent steps, or of a thread's own, leads from it there;
 * vector clocks tell. What a process is about to do is compared with the last
 * step that is dependent with it and does not happen before it: there, the
 * process is to be tried as well. If it could not go on there, then whoever
 * must go before it; else everybody. A clock holds for each process the number
 * of its last step that is known.
 *
 * STORE BUFFERS. A buffered store is a step that no other one depends on; its
 * flush is a step that writes. A load takes its value from the youngest store
 * of its thread's buffer that has all of its bytes. If that has but a part of
 * them, the load waits until it is flushed, as x86-64 does. What acts as a
 * fence waits until the buffer is empty: stepwise, since others can see it half
 * empty. So does every store after SLOTS stores without a fence.
 *
 * ENDS. A thread has ended when its function has returned and its buffer is
 * empty. That is no step of its own: it only enables awaits, so that no order
 * is lost when it happens at once.
 */
#define _GNU_SOURCE
#undef NDEBUG /* for the declaration of what an assertion calls */
#include <assert.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "test/explore/explore.h"
#include "test/rng.h"

#define THREADS EXPLORE_THREADS_MAX
/* The context of explore_run: begin, end, idle. */
#define NOBODY THREADS
/* Stores that a thread may have in its buffer. */
#define SLOTS 7u
#define PROCESSES 64u
#define STACK_BYTES (256u << 10)
#define STEPS_MAX 60000u
#define STEPS_USUAL 20000u
#define OBJECTS 8192u
#define NAMES 256u
#define CHANGE_POINTS_MAX 16u
#define BIT(n) (UINT64_C(1) << (n))
/* Those of thread 0. */
#define FLUSHERS UINT64_C(0x0101010101010100)

_Static_assert(THREADS *(1 + SLOTS) == PROCESSES, "a word has one bit each");

enum kind {
	NOTHING,
	LOAD,
	STORE, /* into the buffer */
	STORE_NOW,
	MODIFY,
	AWAIT,
	YIELD,
	SPAWN,
	FLUSH
};

static const char *const kind_names[] = {"nothing", "load", "store",
    "store now", "modify", "await", "yield", "spawn", "flush"};

struct clock {
	uint16_t known[PROCESSES];
};

struct operation {
	uintptr_t at; /* of bytes 0: none that others could see */
	uint8_t bytes;
	uint8_t kind;
	bool writes;
	bool fence; /* waits for an empty buffer */
	bool (*ready)(const void *context);
	const void *context;
};

/* A store in a buffer. */
struct entry {
	uintptr_t at;
	uint64_t value;
	uint8_t bytes;
	bool release;
	unsigned flusher; /* the process */
	struct clock clock; /* what happens before its flush */
};

enum state {
	UNUSED,
	NEW,
	RUNNING,
	RETURNED,
	ENDED
};

struct thread {
	enum state state;
	void (*function)(void *argument);
	void (*plain)(void);
	void *argument;
	struct operation next;
	unsigned char before[16]; /* the bytes at next, before its step */
	/* Yields: changes in memory by others, as of the last. */
	uint64_t changes_seen;
	uint64_t changes; /* by this thread */
	/* The buffer, oldest first. */
	struct entry buffer[SLOTS];
	unsigned buffered;
	unsigned stores; /* since the buffer was last found empty */
	uintptr_t stored[SLOTS]; /* whose address has which flusher (PSO) */
	unsigned flushers;
	struct clock flushed; /* joined: all flushes of this thread */
	struct clock writes, yields; /* joined: all of this thread */
	uint32_t end_word;
};

struct context {
	jmp_buf resume;
	jmp_buf home; /* the top of thread_main */
	bool entered;
	void *stack;
	unsigned char *local;
};

struct step {
	uintptr_t at;
	uint8_t bytes;
	uint8_t kind;
	uint8_t process;
	uint8_t owner;
	bool writes;
	uint16_t previous; /* see step_link */
	uint32_t node;
};

struct node {
	uint64_t enabled; /* for a choice: the values */
	uint64_t backtrack;
	uint64_t done;
	uint32_t steps; /* taken before */
	uint8_t chosen;
	uint8_t running; /* the thread that ran last, or NOBODY */
	bool choice;
	bool free; /* leaving running is no preemption */
	uint16_t preempted;
};

/* 16 bytes of memory, as a multiple of that; clocks are kept for every 4. */
struct object {
	uintptr_t granule;
	uint32_t execution; /* in which it was touched */
	uint16_t last; /* step */
	struct clock reads[4];
	struct clock writes[4];
};

static struct context contexts[THREADS + 1];
static struct thread threads[THREADS];
static unsigned thread_count;
static unsigned current = NOBODY;
static bool exploring;

static const struct explore_program *program;
static struct explore_limits limits;
static unsigned steps_max;
static unsigned clock_width;
static bool reducing;

static struct node nodes[STEPS_MAX * 2 + 1];
static uint32_t depth; /* nodes of this execution so far */
static uint32_t prefix; /* nodes of this execution that are given */
static struct step steps[STEPS_MAX + 1]; /* from 1 */
static uint32_t step_count;
static uint16_t last_yield; /* step; 0: none */
static struct clock clocks[PROCESSES];
static struct object objects[OBJECTS];
static unsigned object_count;
static uint32_t execution;
static uint64_t changes; /* of memory, by all */
static unsigned running; /* the thread that ran last */
static uint32_t spawn_word;

static jmp_buf abandon;
static char message[1024];
static char *schedule_text;
static struct {
	const char *at; /* the rest of the schedule; NULL: there is none */
	unsigned last, again; /* what was read last, and how often it comes */
} replay;

#define LOCALS_MAX 4
static struct {
	unsigned char *at;
	size_t bytes;
} locals[LOCALS_MAX];
static unsigned local_count;
static size_t local_bytes; /* of all */

static struct {
	uintptr_t at;
	size_t bytes;
	const char *name;
} names[NAMES];
static unsigned name_count;

/* PCT. */
static struct rng rng;
static uint32_t priorities[PROCESSES];
static uint32_t change_points[CHANGE_POINTS_MAX];
static uint32_t steps_expected;
static uint64_t execution_number;

static void schedule(void);

/* Clocks. */

static inline void
clock_join(struct clock *into, const struct clock *from)
{
	for (unsigned first = 0; first < clock_width; first += 8)
		for (unsigned i = first; i < first + 8; i++)
			if (into->known[i] < from->known[i])
				into->known[i] = from->known[i];
}

static inline void
clock_copy(struct clock *into, const struct clock *from)
{
	memcpy(into->known, from->known, clock_width * sizeof(from->known[0]));
}

static inline void
clock_clear(struct clock *clock)
{
	memset(clock->known, 0, clock_width * sizeof(clock->known[0]));
}

/* Whether a step happens before what has this clock. */
static inline bool
clock_has(const struct clock *clock, uint32_t step)
{
	return step <= clock->known[steps[step].process];
}

/* A flusher's owner; a thread is its own. */
static inline unsigned
owner_of(unsigned process)
{
	return process % THREADS;
}

/* Names, traces, failures. */

void
explore_name(const void *at, size_t bytes, const char *name)
{
	if (name_count == NAMES)
		return;
	names[name_count].at = (uintptr_t)at;
	names[name_count].bytes = bytes;
	names[name_count].name = name;
	name_count++;
}

static const char *
name_of(uintptr_t at)
{
	static char text[80];

	for (unsigned i = name_count; i-- > 0;) {
		if (at - names[i].at >= names[i].bytes)
			continue;
		snprintf(text, sizeof(text),
		    at == names[i].at ? "%s" : "%s+%zu", names[i].name,
		    (size_t)(at - names[i].at));
		return text;
	}
	if (at == (uintptr_t)&spawn_word)
		return "(spawn)";
	for (unsigned i = 0; i < THREADS; i++) {
		if (at != (uintptr_t)&threads[i].end_word)
			continue;
		snprintf(text, sizeof(text), "(end of %c)", 'a' + (int)i);
		return text;
	}
	snprintf(text, sizeof(text), "%#jx", (uintmax_t)at);
	return text;
}

static void
trace(unsigned process, const struct operation *op, const char *format, ...)
{
	va_list arguments;

	printf("%6u  %c %-9s", step_count,
	    (int)owner_of(process) + (process < THREADS ? 'a' : 'A'),
	    kind_names[op->kind]);
	if (op->at != 0)
		printf(" %s", name_of(op->at));
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

static void
local_switch(unsigned from, unsigned to)
{
	size_t at = 0;
	unsigned i;

	if (local_bytes == 0 || from == to)
		return;
	for (i = 0; i < local_count; i++) {
		memcpy(
		    contexts[from].local + at, locals[i].at, locals[i].bytes);
		memcpy(locals[i].at, contexts[to].local + at, locals[i].bytes);
		at += locals[i].bytes;
	}
}

static void __attribute__((noreturn)) give_up(void)
{
	local_switch(current, NOBODY);
	current = NOBODY;
	_longjmp(abandon, 1);
}

void
explore_fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	if (!exploring) {
		fprintf(stderr, "explore: %s\n", message);
		abort();
	}
	give_up();
}

/* An assertion of the code under test. */
void
__assert_fail(const char *assertion, const char *file, unsigned line,
    const char *function)
{
	explore_fail(
	    "%s:%u: %s: assertion: %s", file, line, function, assertion);
	abort();
}

static void
signal_caught(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (!exploring) {
		signal(number, SIG_DFL);
		raise(number);
		return;
	}
	explore_fail("signal %d (%s) at %s", number, strsignal(number),
	    number == SIGABRT ? "abort" : name_of((uintptr_t)info->si_addr));
}

static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

/* On a stack of their own: a thread's may be what is full. They are left by a
 * jump, so nothing is blocked in them. */
static void
signals_take(struct sigaction before[SIGNALS])
{
	static unsigned char stack[64 << 10];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction action;

	sigaltstack(&alternate, NULL);
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = signal_caught;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
	sigemptyset(&action.sa_mask);
	for (unsigned i = 0; i < SIGNALS; i++)
		sigaction(signals[i], &action, &before[i]);
}

static void
signals_give_back(const struct sigaction before[SIGNALS])
{
	for (unsigned i = 0; i < SIGNALS; i++)
		sigaction(signals[i], &before[i], NULL);
}

/* Contexts. */

static void thread_end(void);

static void
thread_main(void)
{
	struct thread *t;

	/* Later executions come back here from wherever this one stops. */
	(void)_setjmp(contexts[current].home);
	t = &threads[current];
	t->state = RUNNING;
	if (t->plain != NULL)
		t->plain();
	else
		t->function(t->argument);
	thread_end();
}

static void
context_make(struct context *c)
{
	long page = sysconf(_SC_PAGESIZE);
	char *stack =
	    mmap(NULL, STACK_BYTES + (size_t)page, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (stack == MAP_FAILED ||
	    mprotect(stack, (size_t)page, PROT_NONE) != 0) {
		perror("explore: stack");
		exit(2);
	}
	c->stack = stack + page;
}

static void
context_enter(struct context *c)
{
	ucontext_t fresh;

	if (c->entered)
		_longjmp(c->home, 1);
	if (c->stack == NULL)
		context_make(c);
	c->entered = true;
	getcontext(&fresh);
	fresh.uc_stack.ss_sp = c->stack;
	fresh.uc_stack.ss_size = STACK_BYTES;
	fresh.uc_link = NULL;
	makecontext(&fresh, thread_main, 0);
	setcontext(&fresh);
}

/* Returns when somebody switches back. */
static void
switch_to(unsigned to)
{
	unsigned from = current;

	if (to == from)
		return;
	local_switch(from, to);
	current = to;
	if (_setjmp(contexts[from].resume) != 0)
		return;
	if (to != NOBODY && threads[to].state == NEW)
		context_enter(&contexts[to]);
	_longjmp(contexts[to].resume, 1);
}

void
explore_no_locals(void)
{
	local_count = 0;
	local_bytes = 0;
}

void
explore_add_local(void *local, size_t bytes)
{
	if (local_count == LOCALS_MAX)
		abort();
	locals[local_count].at = local;
	locals[local_count++].bytes = bytes;
	local_bytes += bytes;
	for (unsigned i = 0; i <= THREADS; i++) {
		free(contexts[i].local);
		contexts[i].local = calloc(1, local_bytes);
		if (contexts[i].local == NULL)
			abort();
	}
}

/* Memory. */

static inline bool
overlap(uintptr_t a, unsigned a_bytes, uintptr_t b, unsigned b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static uint64_t
memory_read(uintptr_t at, unsigned bytes)
{
	uint64_t value = 0;

	memcpy(&value, (const void *)at, bytes < 8 ? bytes : 8);
	return value;
}

static void
memory_write(unsigned owner, uintptr_t at, unsigned bytes, uint64_t value)
{
	if (memory_read(at, bytes) != value) {
		threads[owner].changes++;
		changes++;
	}
	memcpy((void *)at, &value, bytes);
}

/* What a thread did itself after its point. */
static void
operation_finish(struct thread *t)
{
	const struct operation *op = &t->next;

	if (op->kind != MODIFY && op->kind != AWAIT)
		return;
	if (memcmp(t->before, (const void *)op->at, op->bytes) != 0) {
		t->changes++;
		changes++;
	}
	if (limits.trace)
		trace(current, op, ": %#jx -> %#jx",
		    (uintmax_t)memory_read((uintptr_t)t->before, op->bytes),
		    (uintmax_t)memory_read(op->at, op->bytes));
	t->next.kind = NOTHING;
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
			object->execution = execution;
			object->granule = granule;
			object->last = 0;
			for (unsigned u = 0; u < 4; u++) {
				clock_clear(&object->reads[u]);
				clock_clear(&object->writes[u]);
			}
			return object;
		}
		if (object->granule == granule)
			return object;
	}
}

/* A load of bytes of which a store in the buffer has but a part. */
static bool
load_waits(const struct thread *t)
{
	const struct operation *op = &t->next;

	for (unsigned i = t->buffered; i-- > 0;) {
		const struct entry *e = &t->buffer[i];

		if (!overlap(e->at, e->bytes, op->at, op->bytes))
			continue;
		return op->bytes > 8 || op->at < e->at ||
		    op->at + op->bytes > e->at + e->bytes;
	}
	return false;
}

static bool
is_buffered(const struct thread *t, uintptr_t at, size_t bytes)
{
	for (unsigned i = 0; i < t->buffered; i++)
		if (t->buffer[i].at < at + bytes &&
		    at < t->buffer[i].at + t->buffer[i].bytes)
			return true;
	return false;
}

/* Whether a thread cannot go on before its buffer is flushed. A read-modify-
 * write without a fence comes after the stores to its own bytes. */
static bool
buffer_awaited(const struct thread *t)
{
	const struct operation *op = &t->next;

	if (t->state != RUNNING || t->buffered == 0)
		return false;
	return op->fence || (op->kind == LOAD && load_waits(t)) ||
	    (op->kind == MODIFY && is_buffered(t, op->at, op->bytes));
}

/* The search: nodes. */

/* A number for each node: the process, or the value; with * and how often, if
 * it comes again. */
static void
print_schedule(void)
{
	static const size_t size = 1u << 20;
	size_t length = 0;
	uint32_t i, count;

	if (schedule_text == NULL)
		schedule_text = calloc(1, size);
	if (schedule_text == NULL)
		abort();
	for (i = 0; i < depth && length < size - 32; i += count) {
		for (count = 1; i + count < depth &&
		     nodes[i + count].chosen == nodes[i].chosen;)
			count++;
		length += (size_t)sprintf(schedule_text + length,
		    count > 1 ? "%u*%u," : "%u,", nodes[i].chosen, count);
	}
	schedule_text[length] = '\0';
}

/* The next node of the schedule that is replayed; false: no more of it. */
static bool
replay_next(unsigned *chosen)
{
	char *end;

	if (replay.again == 0) {
		if (*replay.at == '\0')
			return false;
		replay.last = (unsigned)strtoul(replay.at, &end, 10);
		replay.again = 1;
		if (*end == '*')
			replay.again = (unsigned)strtoul(end + 1, &end, 10);
		replay.at = end + (*end == ',');
	}
	replay.again--;
	*chosen = replay.last;
	return true;
}

/* Whether it is no preemption when another thread takes over. A thread that
 * waits for its own buffer is as good as enabled: its flushers can go on. */
static bool
running_may_leave(uint64_t enabled)
{
	if (running == NOBODY)
		return true;
	if (enabled & BIT(running))
		return threads[running].next.kind == YIELD;
	return !buffer_awaited(&threads[running]);
}

static struct node *
node_new(uint64_t enabled, bool choice)
{
	struct node *n = &nodes[depth];

	if (depth >= STEPS_MAX * 2)
		explore_fail("no end after %u choices", depth);
	n->enabled = enabled;
	n->done = 0;
	n->choice = choice;
	n->steps = step_count;
	n->running = (uint8_t)running;
	n->free = !choice && running_may_leave(enabled);
	return n;
}

/* Whether a preemption is left for this step. */
static bool
affordable(const struct node *n, unsigned process)
{
	return limits.search != EXPLORE_BOUNDED || n->choice || n->free ||
	    process >= THREADS || process == n->running ||
	    n->preempted < limits.preemptions;
}

static void
preempted_pass_on(const struct node *n)
{
	struct node *next = &nodes[depth];

	next->preempted = n->preempted;
	if (!n->choice && !n->free && n->chosen < THREADS &&
	    n->chosen != n->running)
		next->preempted++;
}

/* The highest priority of those that can go on; a change point takes it away
 * from whoever has it. */
static unsigned
pct_decide(uint64_t enabled)
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
		for (i = 0; i < limits.depth; i++)
			if (change_points[i] == step_count + 1)
				break;
		if (i == limits.depth)
			return best;
		change_points[i] = 0;
		priorities[best] = limits.depth - i;
	}
}

static void
pct_begin(void)
{
	rng.state =
	    limits.seed + execution_number * UINT64_C(0xd1342543de82ef95);
	rng_next(&rng);
	for (unsigned p = 0; p < PROCESSES; p++)
		priorities[p] = (uint32_t)rng_next(&rng) | UINT32_C(1) << 31;
	for (unsigned i = 0; i < limits.depth; i++)
		change_points[i] = steps_expected == 0
		    ? 0
		    : (uint32_t)(rng_next(&rng) %
			  (steps_expected << (rng.state >> 63))) +
			1;
}

/* The thread that ran last, or its flusher if it waits for that; else the first
 * enabled one, flushers being last. */
static unsigned
usual(uint64_t enabled)
{
	if (running != NOBODY && (enabled & BIT(running)))
		return running;
	if (running != NOBODY && buffer_awaited(&threads[running]))
		enabled &= FLUSHERS << running;
	return (unsigned)__builtin_ctzll(enabled);
}

/* Picks one of a set of processes, or of values. */
static unsigned
decide(uint64_t enabled, bool choice)
{
	struct node *n = &nodes[depth];
	unsigned chosen;

	if (depth < prefix) {
		if (n->enabled != enabled || n->choice != choice)
			explore_fail("the program is not deterministic");
	} else {
		n = node_new(enabled, choice);
		if (replay.at != NULL && replay_next(&chosen)) {
			if (chosen >= 64 || !(enabled & BIT(chosen)))
				explore_fail(
				    "the schedule is not of this program");
		} else if (limits.search == EXPLORE_RANDOM) {
			chosen = choice
			    ? (unsigned)(rng_next(&rng) %
				  (unsigned)__builtin_popcountll(enabled))
			    : pct_decide(enabled);
		} else {
			chosen = choice ? 0 : usual(enabled);
		}
		n->chosen = (uint8_t)chosen;
		n->backtrack = choice || !reducing ? enabled : BIT(chosen);
	}
	depth++;
	preempted_pass_on(n);
	return n->chosen;
}

/* Whether there is another execution: the path to it is given then. */
static bool
search_next(void)
{
	while (depth > 0) {
		struct node *n = &nodes[depth - 1];
		uint64_t left;

		n->done |= BIT(n->chosen);
		left = n->backtrack & ~n->done;
		for (; left != 0; left &= left - 1) {
			unsigned p = (unsigned)__builtin_ctzll(left);

			if (!affordable(n, p))
				continue;
			n->chosen = (uint8_t)p;
			prefix = depth;
			return true;
		}
		depth--;
	}
	return false;
}

/* The reduction. */

static inline bool
dependent(const struct step *s, unsigned owner, const struct operation *op)
{
	if (s->kind == YIELD)
		return op->writes && owner != s->owner;
	if (op->kind == YIELD)
		return s->writes && owner != s->owner;
	return (s->writes || op->writes) && s->bytes != 0 && op->bytes != 0 &&
	    overlap(s->at, s->bytes, op->at, op->bytes);
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

static void
backtrack_bounded(struct node *n, unsigned process)
{

	n->backtrack |= n->enabled & BIT(process) ? BIT(process) : n->enabled;
}

/* The process is to be tried before the step, which need not happen before it.
 * With a bound, that may cost a preemption that is not left: it is tried where
 * threads took over before as well, which may have been free. A flush may then
 * be put off until its thread has left: whatever else can go on is tried. */
static void
backtrack_add(uint32_t step, unsigned process, const struct clock *clock)
{
	uint32_t node = steps[step].node;
	struct node *n = &nodes[node];

	if (limits.search != EXPLORE_BOUNDED) {
		n->backtrack |= n->enabled & BIT(process)
		    ? BIT(process)
		    : instead_of(n, step, clock);
		return;
	}
	backtrack_bounded(n, process);
	if (steps[step].process >= THREADS)
		n->backtrack |= n->enabled;
	for (; n >= nodes; n--)
		if (!n->choice &&
		    (n->free ||
			(n->chosen < THREADS && n->chosen != n->running)))
			backtrack_bounded(n, process);
}

/* The clock that a process will have before its step, of the bytes that it is
 * about apart. */
static const struct clock *
clock_next(
    unsigned process, const struct operation *op, const struct clock *more)
{
	static struct clock joined;

	if (more == NULL && !op->fence)
		return &clocks[process];
	clock_copy(&joined, &clocks[process]);
	if (more != NULL)
		clock_join(&joined, more);
	if (op->fence)
		clock_join(&joined, &threads[owner_of(process)].flushed);
	return &joined;
}

/* The last step that may be dependent, and then those before it: those at the
 * same 16 bytes; for a yield, all. */
static uint32_t
step_before(uint32_t step, const struct operation *op)
{
	if (op->kind == YIELD)
		return step == 0 ? step_count : step - 1;
	return step == 0 ? object_of(op->at)->last : steps[step].previous;
}

/* Whether all that is dependent with op and came before this step happens
 * before it. */
static bool
covers(const struct step *s, const struct operation *op)
{
	return s->writes && op->bytes != 0 && s->at <= op->at &&
	    s->at + s->bytes >= op->at + op->bytes;
}

/* Compares what a process is about to do with the steps before, which are
 * followed backwards: with the last that is dependent, or, with a bound, with
 * the last one of each process. */
static void
races_follow(unsigned process, const struct operation *op,
    const struct clock *clock, uint32_t step)
{
	uint64_t found = 0;

	for (; step != 0; step = step_before(step, op)) {
		const struct step *s = &steps[step];

		if (dependent(s, owner_of(process), op) &&
		    !clock_has(clock, step)) {
			if (!(found & BIT(s->process)))
				backtrack_add(step, process, clock);
			if (limits.search != EXPLORE_BOUNDED)
				return;
			found |= BIT(s->process);
		} else if (covers(s, op)) {
			return;
		}
	}
}

static void
races_before(
    unsigned process, const struct operation *op, const struct clock *more)
{
	const struct clock *clock;

	if (!reducing || depth < prefix ||
	    (op->bytes == 0 && op->kind != YIELD))
		return;
	clock = clock_next(process, op, more);
	races_follow(process, op, clock, step_before(0, op));
	if (op->writes)
		races_follow(process, op, clock, last_yield);
}

static struct operation
flush_operation(const struct entry *e)
{
	return (struct operation){
	    .at = e->at, .bytes = e->bytes, .kind = FLUSH, .writes = true};
}

/* Whether this is the first of the stores that its flusher has. */
static bool
entry_first(const struct thread *t, unsigned index)
{
	for (unsigned i = 0; i < index; i++)
		if (t->buffer[i].flusher == t->buffer[index].flusher)
			return false;
	return true;
}

/* Compares the last step with what the others are about to do. */
static void
races_after(void)
{
	const struct step *s = &steps[step_count];

	if (!reducing || depth < prefix)
		return;
	for (unsigned i = 0; i < thread_count; i++) {
		struct thread *t = &threads[i];
		const struct clock *clock;

		for (unsigned e = 0; e < t->buffered; e++) {
			struct operation op = flush_operation(&t->buffer[e]);
			unsigned p = t->buffer[e].flusher;

			if (p == s->process || !entry_first(t, e) ||
			    !dependent(s, i, &op))
				continue;
			clock = clock_next(p, &op, &t->buffer[e].clock);
			if (!clock_has(clock, step_count))
				backtrack_add(step_count, p, clock);
		}
		if (i == s->process || t->state != RUNNING ||
		    !dependent(s, i, &t->next))
			continue;
		clock = clock_next(i, &t->next, NULL);
		if (!clock_has(clock, step_count))
			backtrack_add(step_count, i, clock);
	}
}

/* The clocks of a step that reads or writes memory. */
static void
clocks_access(struct clock *clock, const struct operation *op)
{
	struct object *object = object_of(op->at);
	unsigned first = (op->at & 15) / 4;
	unsigned end = first + op->bytes / 4;

	for (unsigned u = first; u < end; u++) {
		clock_join(clock, &object->writes[u]);
		if (op->writes)
			clock_join(clock, &object->reads[u]);
	}
	for (unsigned u = first; u < end; u++) {
		if (op->writes)
			clock_copy(&object->writes[u], clock);
		else
			clock_join(&object->reads[u], clock);
	}
}

static void
clocks_step(unsigned process, const struct operation *op)
{
	struct clock *clock = &clocks[process];
	unsigned owner = owner_of(process);
	struct thread *t = &threads[owner];

	clock->known[process] = (uint16_t)step_count;
	if (op->fence)
		clock_join(clock, &t->flushed);
	for (unsigned i = 0; i < thread_count; i++) {
		if (i == owner)
			continue;
		if (op->writes)
			clock_join(clock, &threads[i].yields);
		if (op->kind == YIELD)
			clock_join(clock, &threads[i].writes);
	}
	if (op->bytes != 0)
		clocks_access(clock, op);
	if (op->kind == YIELD)
		clock_join(&t->yields, clock);
	if (op->writes)
		clock_join(&t->writes, clock);
}

/* Steps at the same 16 bytes form a list, as do yields. */
static void
step_link(const struct operation *op)
{
	if (op->kind == YIELD) {
		steps[step_count].previous = last_yield;
		last_yield = (uint16_t)step_count;
	} else if (op->bytes != 0) {
		struct object *object = object_of(op->at);

		steps[step_count].previous = object->last;
		object->last = (uint16_t)step_count;
	}
}

/* Accounts for a step. */
static void
step_take(unsigned process, const struct operation *op)
{
	struct step *s;

	if (step_count >= steps_max)
		explore_fail("livelock: no end after %u steps", step_count);
	s = &steps[++step_count];
	s->at = op->at;
	s->bytes = op->bytes;
	s->kind = op->kind;
	s->writes = op->writes;
	s->process = (uint8_t)process;
	s->owner = (uint8_t)owner_of(process);
	s->node = depth - 1;
	if (!reducing)
		return;
	races_after();
	clocks_step(process, op);
	step_link(op);
}

/* Flushes. */

static void
thread_ended(unsigned thread)
{
	struct thread *t = &threads[thread];
	struct object *object;

	t->state = ENDED;
	t->end_word = 1;
	if (!reducing)
		return;
	object = object_of((uintptr_t)&t->end_word);
	clock_join(&t->flushed, &clocks[thread]);
	clock_join(
	    &object->writes[((uintptr_t)&t->end_word & 15) / 4], &t->flushed);
}

static struct entry *
entry_of(unsigned flusher)
{
	struct thread *t = &threads[owner_of(flusher)];

	for (unsigned i = 0; i < t->buffered; i++)
		if (t->buffer[i].flusher == flusher)
			return &t->buffer[i];
	return NULL;
}

/* What follows a flush: release stores that waited for it, and the next store
 * of the same flusher. */
static void
flush_follow(struct thread *t, unsigned index, unsigned flusher)
{
	const struct clock *clock = &clocks[flusher];
	struct entry *e;
	struct operation op;

	clock_join(&t->flushed, clock);

	for (unsigned i = index; i < t->buffered; i++)
		if (t->buffer[i].release)
			clock_join(&t->buffer[i].clock, clock);
	e = entry_of(flusher);
	if (e == NULL)
		return;
	op = flush_operation(e);
	races_before(flusher, &op, &e->clock);
}

static void
flush_step(unsigned flusher)
{
	unsigned owner = owner_of(flusher);
	struct thread *t = &threads[owner];
	struct entry *e = entry_of(flusher);
	struct operation op = flush_operation(e);
	unsigned index = (unsigned)(e - t->buffer);

	if (reducing)
		clock_join(&clocks[flusher], &e->clock);
	step_take(flusher, &op);
	memory_write(owner, e->at, e->bytes, e->value);
	if (limits.trace)
		trace(flusher, &op, ": %#jx", (uintmax_t)e->value);
	t->buffered--;
	memmove(e, e + 1, (t->buffered - index) * sizeof(*e));
	if (reducing)
		flush_follow(t, index, flusher);
	if (t->buffered == 0 && t->state == RETURNED)
		thread_ended(owner);
}

/* Whether a store may become visible before those that are older. */
static bool
entry_may_flush(const struct thread *t, unsigned index)
{
	const struct entry *e = &t->buffer[index];

	for (unsigned i = 0; i < index; i++)
		if (e->release || t->buffer[i].flusher == e->flusher ||
		    overlap(
			t->buffer[i].at, t->buffer[i].bytes, e->at, e->bytes))
			return false;
	return true;
}

/* The flusher of a store that comes now. */
static unsigned
flusher_for(struct thread *t, uintptr_t at)
{
	unsigned i;

	if (limits.memory == EXPLORE_TSO)
		return current + THREADS;
	for (i = 0; i < t->flushers; i++)
		if (t->stored[i] == at)
			break;
	if (i == t->flushers)
		t->stored[t->flushers++] = at;
	return current + THREADS * (1 + i);
}

static void
buffer_store(struct thread *t, uintptr_t at, unsigned bytes, uint64_t value,
    bool release)
{
	struct entry *e = &t->buffer[t->buffered];
	struct operation op;

	e->at = at;
	e->bytes = (uint8_t)bytes;
	e->value = value;
	e->release = release;
	e->flusher = flusher_for(t, at);
	t->stores++;
	t->buffered++;
	if (!reducing)
		return;
	clock_copy(&e->clock, &clocks[current]);
	if (release)
		clock_join(&e->clock, &t->flushed);
	if (!entry_first(t, t->buffered - 1))
		return;
	op = flush_operation(e);
	races_before(e->flusher, &op, &e->clock);
}

/* The scheduler. */

static bool
thread_enabled(const struct thread *t)
{
	const struct operation *op = &t->next;

	if (t->state != RUNNING || buffer_awaited(t))
		return false;
	switch (op->kind) {
	case AWAIT:
		return op->ready(op->context);
	case YIELD:
		return changes - t->changes != t->changes_seen;
	default:
		return true;
	}
}

static uint64_t
enabled_now(void)
{
	uint64_t enabled = 0;

	for (unsigned i = 0; i < thread_count; i++) {
		const struct thread *t = &threads[i];

		if (thread_enabled(t))
			enabled |= BIT(i);
		for (unsigned e = 0; e < t->buffered; e++)
			if (entry_may_flush(t, e))
				enabled |= BIT(t->buffer[e].flusher);
	}
	return enabled;
}

static void
deadlock(void)
{
	char text[512] = "";
	size_t length = 0;

	for (unsigned i = 0; i < thread_count; i++) {
		const struct thread *t = &threads[i];

		if (t->state != RUNNING)
			continue;
		length += (size_t)snprintf(text + length, sizeof(text) - length,
		    "%s %c at %s %s", length > 0 ? "," : "", 'a' + (int)i,
		    kind_names[t->next.kind],
		    t->next.at != 0 ? name_of(t->next.at) : "");
	}
	explore_fail("deadlock:%s", text);
}

/* Happens when everything has happened that can, and before all the rest. */
static void
idle(void)
{
	unsigned self = current;
	bool more;

	local_switch(self, NOBODY);
	current = NOBODY;
	more = program->idle != NULL && program->idle();
	current = self;
	local_switch(NOBODY, self);
	if (!more)
		deadlock();
	if (limits.trace)
		printf("        idle\n");
	changes++;
	if (!reducing)
		return;
	for (unsigned p = 1; p < PROCESSES; p++)
		clock_join(&clocks[0], &clocks[p]);
	for (unsigned p = 1; p < PROCESSES; p++)
		clock_copy(&clocks[p], &clocks[0]);
}

static bool
all_ended(void)
{
	for (unsigned i = 0; i < thread_count; i++)
		if (threads[i].state != ENDED)
			return false;
	return true;
}

/* The thread whose turn it is, or NOBODY after the end of all. */
static unsigned
pick(void)
{
	unsigned idles = 0;

	for (unsigned i = 0; i < thread_count; i++)
		if (threads[i].state == NEW)
			return i;
	for (;;) {
		uint64_t enabled = enabled_now();
		unsigned process;

		if (enabled == 0) {
			if (all_ended())
				return NOBODY;
			if (++idles > steps_max)
				explore_fail("livelock: idle without end");
			idle();
			continue;
		}
		process = decide(enabled, false);
		if (process < THREADS) {
			step_take(process, &threads[process].next);
			running = process;
			return process;
		}
		flush_step(process);
	}
}

static void
schedule(void)
{
	switch_to(pick());
}

/* Points. */

static bool
inside(void)
{
	return exploring && current != NOBODY;
}

static struct operation
operation(enum kind kind, const void *at, unsigned bytes)
{
	uintptr_t address = (uintptr_t)at;

	if ((bytes != 4 && bytes != 8 && bytes != 16) ||
	    (address & (bytes - 1)) != 0)
		explore_fail(
		    "%s of %u bytes at %p", kind_names[kind], bytes, at);
	return (struct operation){
	    .at = address, .bytes = (uint8_t)bytes, .kind = (uint8_t)kind};
}

/* Returns when it is this thread's turn, that is, within its step. */
static void
point(const struct operation *op)
{
	struct thread *t = &threads[current];

	operation_finish(t);
	t->next = *op;
	races_before(current, &t->next, NULL);
	schedule();
	if (t->next.fence) {
		t->stores = 0;
		t->flushers = 0;
	}
}

/* What the caller changes in its step is compared when that ends. */
static void
point_modify(const struct operation *op)
{
	point(op);
	memcpy(threads[current].before, (const void *)op->at, op->bytes);
}

static void
thread_end(void)
{
	struct thread *t = &threads[current];

	operation_finish(t);
	t->state = RETURNED;
	if (t->buffered == 0)
		thread_ended(current);
	schedule();
	abort();
}

/* A value that is forwarded is in one store: else the load has waited. */
static uint64_t
load_value(const struct thread *t, uintptr_t at, unsigned bytes)
{
	for (unsigned i = t->buffered; i-- > 0;) {
		const struct entry *e = &t->buffer[i];

		if (!overlap(e->at, e->bytes, at, bytes))
			continue;
		return memory_read((uintptr_t)&e->value + (at - e->at), bytes);
	}
	return memory_read(at, bytes);
}

uint64_t
explore_load(const void *at, unsigned bytes)
{
	struct operation op = operation(LOAD, at, bytes);
	uint64_t value;

	if (!inside())
		return memory_read(op.at, bytes);
	point(&op);
	value = load_value(&threads[current], op.at, bytes);
	if (limits.trace)
		trace(current, &op, " = %#jx", (uintmax_t)value);
	return value;
}

void
explore_store(
    void *at, unsigned bytes, uint64_t value, enum explore_order order)
{
	struct operation op = operation(STORE_NOW, at, bytes);
	struct thread *t = &threads[current];
	bool now = limits.memory == EXPLORE_SC || order == EXPLORE_SEQ;

	if (bytes > 8)
		explore_fail("a store of 16 bytes");
	if (!inside()) {
		memcpy(at, &value, bytes);
		return;
	}
	if (now) {
		op.writes = true;
		op.fence = true;
	} else {
		op.kind = STORE;
		op.bytes = 0;
		op.fence = t->stores == SLOTS;
	}
	point(&op);
	if (limits.trace)
		trace(current, &op, " := %#jx", (uintmax_t)value);
	if (now)
		memory_write(current, op.at, bytes, value);
	else
		buffer_store(t, op.at, bytes, value, order == EXPLORE_RELEASE);
}

static void
modify(const void *at, unsigned bytes, bool fence)
{
	struct operation op = operation(MODIFY, at, bytes);

	if (!inside())
		return;
	op.writes = true;
	op.fence = fence;
	point_modify(&op);
}

void
explore_modify(const void *at, unsigned bytes)
{
	modify(at, bytes, true);
}

void
explore_modify_relaxed(const void *at, unsigned bytes)
{
	modify(at, bytes, false);
}

bool
explore_is_buffered(const void *at, size_t bytes)
{
	for (unsigned i = 0; i < thread_count; i++)
		if (is_buffered(&threads[i], (uintptr_t)at, bytes))
			return true;
	return false;
}

void
explore_await(const void *at, unsigned bytes,
    bool (*ready)(const void *context), const void *context)
{
	struct operation op = operation(AWAIT, at, bytes);

	if (!inside()) {
		if (!ready(context))
			explore_fail("deadlock: await outside of threads");
		return;
	}
	op.writes = true;
	op.fence = true;
	op.ready = ready;
	op.context = context;
	point_modify(&op);
}

void
explore_yield(void)
{
	struct operation op = {.kind = YIELD};
	struct thread *t = &threads[current];

	if (!inside())
		return;
	point(&op);
	t->changes_seen = changes - t->changes;
	if (limits.trace)
		trace(current, &op, "");
}

unsigned
explore_choose(unsigned count)
{
	unsigned chosen;

	if (!exploring || count <= 1)
		return 0;
	if (count > 64)
		explore_fail("a choice of %u", count);
	if (inside())
		operation_finish(&threads[current]);
	chosen = decide(~UINT64_C(0) >> (64 - count), true);
	if (limits.trace)
		printf("        %c chooses %u of %u\n",
		    inside() ? 'a' + (int)current : '-', chosen, count);
	return chosen;
}

/* A thread that has not started yet. */
static unsigned
thread_add(void (*plain)(void), void (*function)(void *), void *argument)
{
	struct thread *t = &threads[thread_count];

	if (thread_count == THREADS)
		explore_fail("more than %u threads", THREADS);
	t->state = NEW;
	t->plain = plain;
	t->function = function;
	t->argument = argument;
	return thread_count++;
}

unsigned
explore_spawn(void (*function)(void *argument), void *argument)
{
	struct operation op = operation(SPAWN, &spawn_word, 4);
	unsigned spawned;

	if (!inside())
		return thread_add(NULL, function, argument);
	op.writes = true;
	op.fence = true;
	point(&op);
	memory_write(current, op.at, 4, spawn_word + 1);
	spawned = thread_add(NULL, function, argument);
	if (reducing)
		clock_copy(&clocks[spawned], &clocks[current]);
	if (limits.trace)
		trace(current, &op, ": %c", 'a' + (int)spawned);
	return spawned;
}

unsigned
explore_self(void)
{
	return current;
}

bool
explore_ended(unsigned thread)
{
	return threads[thread].state == ENDED;
}

const void *
explore_end_word(unsigned thread)
{
	return &threads[thread].end_word;
}

/* Executions. */

static void
execution_begin(void)
{
	depth = 0;
	step_count = 0;
	last_yield = 0;
	thread_count = 0;
	changes = 0;
	running = NOBODY;
	spawn_word = 0;
	name_count = 0;
	object_count = 0;
	execution++;
	nodes[0].preempted = 0;
	for (unsigned i = 0; i < THREADS; i++) {
		struct thread *t = &threads[i];

		t->state = UNUSED;
		t->next = (struct operation){.kind = NOTHING};
		t->changes_seen = 0;
		t->changes = 0;
		t->buffered = 0;
		t->stores = 0;
		t->flushers = 0;
		t->end_word = 0;
		if (local_bytes != 0)
			memset(contexts[i].local, 0, local_bytes);
		if (!reducing)
			continue;
		clock_clear(&t->flushed);
		clock_clear(&t->writes);
		clock_clear(&t->yields);
	}
	for (unsigned p = 0; reducing && p < PROCESSES; p++)
		clock_clear(&clocks[p]);
	if (limits.search == EXPLORE_RANDOM)
		pct_begin();
}

/* False: it failed, and has been abandoned where that was. */
static bool
execution_run(void)
{
	execution_begin();
	if (_setjmp(abandon) != 0)
		return false;
	for (unsigned i = 0; i < THREADS && program->thread[i] != NULL; i++)
		thread_add(program->thread[i], NULL, NULL);
	if (program->begin != NULL)
		program->begin();
	schedule();
	if (program->end != NULL)
		program->end();
	return true;
}

static void
run_prepare(void)
{
	static const unsigned widths[] = {THREADS, 2 * THREADS, PROCESSES};

	steps_max = limits.steps_max != 0 ? limits.steps_max : STEPS_USUAL;
	if (steps_max > STEPS_MAX)
		steps_max = STEPS_MAX;
	if (limits.depth > CHANGE_POINTS_MAX)
		limits.depth = CHANGE_POINTS_MAX;
	clock_width = widths[limits.memory];
	reducing = limits.search == EXPLORE_REDUCED ||
	    limits.search == EXPLORE_BOUNDED;
	replay.at = limits.replay;
	replay.again = 0;
	prefix = 0;
	steps_expected = 0;
	execution_number = 0;
}

/* Whether another execution is to be run; sets complete at the end of all. */
static bool
run_continue(struct explore_result *result)
{
	if (limits.replay != NULL)
		return false;
	if (limits.search == EXPLORE_RANDOM) {
		if (execution_number++ == 0)
			steps_expected = step_count > 0 ? step_count : 1;
		if (limits.schedules_max == 0)
			return false;
	} else if (!search_next()) {
		result->complete = true;
		return false;
	}
	return limits.schedules_max == 0 ||
	    result->schedules < limits.schedules_max;
}

void
explore_run(const struct explore_program *explored,
    const struct explore_limits *wanted, struct explore_result *result)
{
	struct sigaction before[SIGNALS];
	bool more;

	program = explored;
	limits = *wanted;
	memset(result, 0, sizeof(*result));
	run_prepare();
	signals_take(before);
	exploring = true;
	do {
		result->failed = !execution_run();
		result->schedules++;
		result->points += step_count;
		more = !result->failed && run_continue(result);
	} while (more);
	exploring = false;
	signals_give_back(before);
	if (result->failed) {
		print_schedule();
		result->message = message;
		result->schedule = schedule_text;
	}
}
