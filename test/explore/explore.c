/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of the explorer, and what a step of theirs does.
 *
 * CONTEXTS. Each thread of a program is a context with a stack of its own that
 * is kept from one execution to the next. A thread that comes to a point says
 * what it is about to do (its next operation) and picks whose step comes now;
 * if that is another's, it switches there. What a thread does before its first
 * point belongs to its start, which happens as soon as it can.
 *
 * STORE BUFFERS. A buffered store is a step that no other one depends on; its
 * flush is a step that writes. A flusher keeps the order of its stores: with
 * TSO each thread has one; with PSO, one for each address that it stores to. A
 * load takes its value from the youngest store of its thread's buffer that has
 * all of its bytes. If that has but a part of them, the load waits until it is
 * flushed, as x86-64 does. What acts as a fence waits until the buffer is
 * empty: stepwise, since others can see it half empty. So does every store
 * after SLOTS stores without a fence.
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
#include <sys/mman.h>
#include <ucontext.h>

#include "search.h"

#define STACK_BYTES (256u << 10)
#define GUARD_BYTES (64u << 10)
#define NAMES 64u
#define LOCALS 4u
#define LOCAL_BYTES 512u /* of all, in a context */
/* Those of thread 0. */
#define FLUSHERS UINT64_C(0x0101010101010100)

static const char *const kind_names[] = {"nothing", "load", "store",
    "store now", "modify", "await", "yield", "flush"};

/* A store in a buffer; of 0 bytes: it was flushed. */
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
	RETURNED
};

struct thread {
	enum state state;
	void (*function)(void *argument); /* NULL: the program's */
	void *argument;
	/* Yields: changes in memory by others, as of the last. */
	uint64_t changes_seen;
	uint64_t changes; /* by this thread */
	uint32_t end_word;
	unsigned buffered; /* of its stores, not flushed */
	unsigned stores; /* since the buffer was last found empty */
	struct clock flushed; /* joined: all flushes of this thread */
	/* To here, each execution begins with 0. */
	struct entry buffer[SLOTS]; /* oldest first */
	unsigned char before[16]; /* a modify's bytes, before its step */
};

struct context {
	jmp_buf resume;
	jmp_buf home; /* the top of thread_main */
	char *stack; /* NULL: not entered yet */
	unsigned char local[LOCAL_BYTES];
};

static struct context contexts[THREADS + 1];
static struct thread threads[THREADS];
static unsigned thread_count, ended_count;
static unsigned current = NOBODY;
static bool exploring;
static const struct explore_program *program;
static struct explore_limits limits;
static uint64_t changes; /* of memory, by all, and by idle */
static uint64_t changes_idle; /* after the last idle */
static uint32_t spawn_word;
static jmp_buf abandon;
static char message[1024];

static struct {
	unsigned char *at;
	size_t bytes;
} locals[LOCALS];
static unsigned local_count;

static struct {
	uintptr_t at;
	size_t bytes;
	const char *name;
} names[NAMES];
static unsigned name_count;

/* Names, traces, failures. */

void
explore_name(const void *at, size_t bytes, const char *name)
{
	if (name_count == NAMES)
		return;
	names[name_count].at = (uintptr_t)at;
	names[name_count].bytes = bytes;
	names[name_count++].name = name;
}

static const char *
name_of(uintptr_t at)
{
	static char text[80];

	snprintf(text, sizeof(text), at != 0 ? "%#jx" : "", (uintmax_t)at);
	for (unsigned i = 0; i < name_count; i++)
		if (at - names[i].at < names[i].bytes)
			snprintf(text, sizeof(text),
			    at == names[i].at ? "%s" : "%s+%zu", names[i].name,
			    (size_t)(at - names[i].at));
	return text;
}

static void
trace(unsigned process, const struct operation *op, const char *format, ...)
{
	va_list arguments;

	if (!limits.trace)
		return;
	printf("%6u  %c %-9s %s", step_count,
	    (int)owner_of(process) + (process < THREADS ? 'a' : 'A'),
	    kind_names[op->kind], name_of(op->at));
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

	for (unsigned i = 0; i < local_count && from != to; i++) {
		memcpy(
		    contexts[from].local + at, locals[i].at, locals[i].bytes);
		memcpy(locals[i].at, contexts[to].local + at, locals[i].bytes);
		at += locals[i].bytes;
	}
	current = to;
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
	local_switch(current, NOBODY);
	_longjmp(abandon, 1);
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

/* On a stack of their own: a thread's may be what is full. They are left by a
 * jump, so nothing is blocked in them. */
static void
catch_signals(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	static unsigned char stack[64 << 10];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction action = {.sa_sigaction = signal_caught,
	    .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

	sigaltstack(&alternate, NULL);
	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
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
	if (t->function != NULL)
		t->function(t->argument);
	else
		program->thread(current);
	thread_end();
}

static void
context_enter(struct context *c)
{
	ucontext_t fresh;

	if (c->stack != NULL)
		_longjmp(c->home, 1);
	c->stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (c->stack == MAP_FAILED ||
	    mprotect(c->stack, GUARD_BYTES, PROT_NONE) != 0) {
		perror("explore: stack");
		exit(2);
	}
	getcontext(&fresh);
	fresh.uc_stack.ss_sp = c->stack + GUARD_BYTES;
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
	if (_setjmp(contexts[from].resume) != 0)
		return;
	if (to != NOBODY && threads[to].state == NEW)
		context_enter(&contexts[to]);
	_longjmp(contexts[to].resume, 1);
}

void
explore_add_local(void *local, size_t bytes)
{
	static size_t all;

	all += bytes;
	if (local_count == LOCALS || all > LOCAL_BYTES)
		abort();
	locals[local_count].at = local;
	locals[local_count++].bytes = bytes;
}

/* Memory. */

static uint64_t
memory_read(uintptr_t at, unsigned bytes)
{
	uint64_t value = 0;

	memcpy(&value, (const void *)at, bytes < 8 ? bytes : 8);
	return value;
}

static void
note_change(struct thread *t, bool changed)
{
	t->changes += changed;
	changes += changed;
}

static void
memory_write(struct thread *t, uintptr_t at, unsigned bytes, uint64_t value)
{
	note_change(t, memory_read(at, bytes) != value);
	memcpy((void *)at, &value, bytes);
}

/* Actions of a thread itself after its point. */
static void
operation_finish(void)
{
	struct thread *t = &threads[current];
	struct operation *op = &processes[current].next;

	if (op->kind != MODIFY && op->kind != AWAIT)
		return;
	note_change(t, memcmp(t->before, (void *)op->at, op->bytes) != 0);
	trace(current, op, ": %#jx -> %#jx",
	    (uintmax_t)memory_read((uintptr_t)t->before, op->bytes),
	    (uintmax_t)memory_read(op->at, op->bytes));
	op->kind = NOTHING;
}

/* Store buffers. */

/* The youngest store to some of these bytes; NULL: none. */
static const struct entry *
youngest(const struct thread *t, uintptr_t at, size_t bytes)
{
	for (const struct entry *e = t->buffer + t->stores; e-- > t->buffer;)
		if (e->bytes != 0 && overlap(e->at, e->bytes, at, bytes))
			return e;
	return NULL;
}

bool
explore_is_buffered(const void *at, size_t bytes)
{
	for (unsigned i = 0; i < thread_count; i++)
		if (youngest(&threads[i], (uintptr_t)at, bytes) != NULL)
			return true;
	return false;
}

/* A load of bytes of which a store in the buffer has but a part. */
static bool
load_waits(const struct thread *t, const struct operation *op)
{
	const struct entry *e = youngest(t, op->at, op->bytes);

	return e != NULL &&
	    (op->bytes > 8 || op->at < e->at ||
		op->at + op->bytes > e->at + e->bytes);
}

/* Whether a thread cannot go on before its buffer is flushed. A read-modify-
 * write without a fence comes after the stores to its own bytes. */
static bool
buffer_awaited(unsigned thread)
{
	const struct operation *op = &processes[thread].next;
	const struct thread *t = &threads[thread];

	if (!(pending & BIT(thread)) || t->buffered == 0)
		return false;
	return op->fence || (op->kind == LOAD && load_waits(t, op)) ||
	    (op->kind == MODIFY && youngest(t, op->at, op->bytes) != NULL);
}

static void
thread_ended(unsigned thread)
{
	struct thread *t = &threads[thread];

	t->end_word = 1;
	ended_count++;
	if (reducing)
		clock_join(&t->flushed, &processes[thread].clock);
}

static struct entry *
entry_of(unsigned flusher)
{
	struct thread *t = &threads[owner_of(flusher)];

	for (unsigned i = 0; i < t->stores; i++)
		if (t->buffer[i].bytes != 0 && t->buffer[i].flusher == flusher)
			return &t->buffer[i];
	return NULL;
}

/* The flusher's next step, if it has one. */
static void
flush_announce(unsigned flusher)
{
	struct entry *e = entry_of(flusher);

	if (e == NULL)
		return;
	processes[flusher].next = (struct operation){
	    .at = e->at, .bytes = e->bytes, .kind = FLUSH, .writes = true};
	processes[flusher].more = &e->clock;
	search_announce(flusher);
}

/* Release stores that have waited for it follow, and the next store of the same
 * flusher. */
static void
flush(unsigned flusher)
{
	unsigned owner = owner_of(flusher);
	const struct clock *clock = &processes[flusher].clock;
	struct thread *t = &threads[owner];
	struct entry *e = entry_of(flusher);

	memory_write(t, e->at, e->bytes, e->value);
	trace(flusher, &processes[flusher].next, ": %#jx", (uintmax_t)e->value);
	e->bytes = 0;
	t->buffered--;
	if (reducing)
		clock_join(&t->flushed, clock);
	while (++e < t->buffer + t->stores)
		if (reducing && e->release)
			clock_join(&e->clock, clock);
	flush_announce(flusher);
	if (t->buffered == 0 && t->state == RETURNED)
		thread_ended(owner);
}

/* Whether a store may become visible before those that are older. */
static bool
may_flush(const struct thread *t, const struct entry *e)
{
	for (const struct entry *older = t->buffer; older < e; older++)
		if (older->bytes != 0 &&
		    (e->release || older->flusher == e->flusher ||
			overlap(older->at, older->bytes, e->at, e->bytes)))
			return false;
	return true;
}

static void
buffer_store(uintptr_t at, unsigned bytes, uint64_t value, bool release)
{
	struct thread *t = &threads[current];
	struct entry *e = &t->buffer[t->stores];
	unsigned i = 0;
	bool first;

	while (limits.memory == EXPLORE_PSO && i < t->stores &&
	    t->buffer[i].at != at)
		i++;
	e->at = at;
	e->bytes = (uint8_t)bytes;
	e->value = value;
	e->release = release;
	e->flusher = current + THREADS * (1 + i);
	first = entry_of(e->flusher) == NULL;
	t->stores++;
	t->buffered++;
	if (reducing)
		clock_copy(&e->clock, &processes[current].clock);
	if (reducing && release)
		clock_join(&e->clock, &t->flushed);
	if (first)
		flush_announce(e->flusher);
}

/* The scheduler. */

static bool
thread_enabled(unsigned thread)
{
	const struct operation *op = &processes[thread].next;
	const struct thread *t = &threads[thread];

	if (!(pending & BIT(thread)) || buffer_awaited(thread))
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
		const struct entry *e = t->buffer;

		if (thread_enabled(i))
			enabled |= BIT(i);
		for (; t->buffered > 0 && e < t->buffer + t->stores; e++)
			if (e->bytes != 0 && may_flush(t, e))
				enabled |= BIT(e->flusher);
	}
	return enabled;
}

static void
deadlock(void)
{
	char text[512] = "";
	size_t length = 0;

	for (unsigned i = 0; i < thread_count; i++)
		if (threads[i].state == RUNNING)
			length += (size_t)snprintf(text + length,
			    sizeof(text) - length, " %c: %s %s;", 'a' + (int)i,
			    kind_names[processes[i].next.kind],
			    name_of(processes[i].next.at));
	explore_fail("deadlock:%s", text);
}

/* Happens when everything has happened that can, and before all the rest. A
 * thread at a yield may need no others but another turn: it has that, unless
 * nothing has changed since the last time. */
static void
idle(void)
{
	unsigned self = current;
	struct clock *all = &processes[0].clock;
	bool more;

	local_switch(self, NOBODY);
	more = program->idle();
	local_switch(NOBODY, self);
	if (!more && changes == changes_idle)
		deadlock();
	if (limits.trace)
		printf("        idle\n");
	changes_idle = ++changes;
	for (unsigned p = 1; reducing && p < clock_width; p++)
		clock_join(all, &processes[p].clock);
	for (unsigned p = 1; reducing && p < clock_width; p++)
		clock_copy(&processes[p].clock, all);
}

/* Whether it is no preemption when another thread takes over. A thread that
 * waits for its own buffer is as good as enabled: its flushers can go on. */
static bool
may_leave(uint64_t enabled)
{
	if (running == NOBODY)
		return true;
	if (enabled & BIT(running))
		return processes[running].next.kind == YIELD;
	return !buffer_awaited(running);
}

/* The thread that ran last, or its flusher if it waits for that; else the first
 * enabled one, flushers being last. */
static unsigned
usual(uint64_t enabled)
{
	if (running != NOBODY && (enabled & BIT(running)))
		return running;
	if (running != NOBODY && buffer_awaited(running))
		enabled &= FLUSHERS << running;
	return (unsigned)__builtin_ctzll(enabled);
}

/* The thread whose turn it is, or NOBODY after the end of all. */
static unsigned
pick(void)
{
	unsigned process;

	for (unsigned i = 0; i < thread_count; i++)
		if (threads[i].state == NEW)
			return i;
	for (unsigned idles = 0;;) {
		uint64_t enabled = enabled_now();

		if (enabled == 0) {
			if (ended_count == thread_count)
				return NOBODY;
			if (++idles > 20000)
				explore_fail("livelock: idle without end");
			idle();
			continue;
		}
		process =
		    search_step(enabled, usual(enabled), may_leave(enabled));
		if (process < THREADS)
			break;
		flush(process);
	}
	running = process;
	return process;
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

	operation_finish();
	processes[current].next = *op;
	processes[current].more = op->fence ? &t->flushed : NULL;
	search_announce(current);
	switch_to(pick());
	if (op->fence)
		t->stores = 0;
}

/* Changes by the caller are compared when its step ends. */
static void
point_modify(struct operation op, bool fence)
{
	op.writes = true;
	op.fence = fence;
	point(&op);
	memcpy(threads[current].before, (const void *)op.at, op.bytes);
}

static void
thread_end(void)
{
	struct thread *t = &threads[current];

	operation_finish();
	t->state = RETURNED;
	if (t->buffered == 0)
		thread_ended(current);
	switch_to(pick());
	abort();
}

/* A value that is forwarded is in one store: else the load has waited. */
uint64_t
explore_load(const void *at, unsigned bytes)
{
	struct operation op = operation(LOAD, at, bytes);
	const struct entry *e;
	uint64_t value;

	if (!inside())
		return memory_read(op.at, bytes);
	point(&op);
	e = youngest(&threads[current], op.at, bytes);
	value = memory_read(
	    e != NULL ? (uintptr_t)&e->value + (op.at - e->at) : op.at, bytes);
	trace(current, &op, " = %#jx", (uintmax_t)value);
	return value;
}

void
explore_store(
    void *at, unsigned bytes, uint64_t value, enum explore_order order)
{
	struct operation op = operation(STORE_NOW, at, bytes);
	bool now = limits.memory == EXPLORE_SC || order == EXPLORE_SEQ;

	if (!inside()) {
		memcpy(at, &value, bytes);
		return;
	}
	op.writes = op.fence = now;
	if (!now) {
		op.kind = STORE;
		op.bytes = 0;
		op.fence = threads[current].stores == SLOTS;
	}
	point(&op);
	trace(current, &op, " := %#jx", (uintmax_t)value);
	if (now)
		memory_write(&threads[current], op.at, bytes, value);
	else
		buffer_store(op.at, bytes, value, order == EXPLORE_RELEASE);
}

void
explore_modify_in(const void *at, unsigned bytes, enum explore_order order)
{
	struct operation op = operation(MODIFY, at, bytes);

	if (inside())
		point_modify(op, order != EXPLORE_RELAXED);
}

void
explore_modify(const void *at, unsigned bytes)
{
	explore_modify_in(at, bytes, EXPLORE_SEQ);
}

void
explore_await(const void *at, unsigned bytes,
    bool (*ready)(const void *context), const void *context)
{
	struct operation op = operation(AWAIT, at, bytes);

	op.ready = ready;
	op.context = context;
	if (inside())
		point_modify(op, true);
	else if (!ready(context))
		explore_fail("deadlock: await outside of threads");
}

static bool
is_set(const void *word)
{
	return *(const uint32_t *)word != 0;
}

void
explore_await_end(unsigned thread)
{
	struct thread *t = &threads[thread];

	explore_await(&t->end_word, 4, is_set, &t->end_word);
	if (inside() && reducing)
		clock_join(&processes[current].clock, &t->flushed);
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
	trace(current, &op, "");
}

/* It has not started yet. */
static unsigned
thread_add(void (*function)(void *), void *argument)
{
	struct thread *t = &threads[thread_count];

	if (thread_count == THREADS)
		explore_fail("more than %u threads", THREADS);
	t->state = NEW;
	t->function = function;
	t->argument = argument;
	return thread_count++;
}

unsigned
explore_spawn(void (*function)(void *argument), void *argument)
{
	unsigned spawned;

	explore_modify(&spawn_word, 4);
	spawn_word++;
	spawned = thread_add(function, argument);
	if (inside() && reducing)
		clock_copy(
		    &processes[spawned].clock, &processes[current].clock);
	return spawned;
}

unsigned
explore_self(void)
{
	return current;
}

/* Executions. */

/* NULL, or what failed: it has been abandoned where that was. */
static const char *
execution_run(void)
{
	thread_count = ended_count = 0;
	changes = changes_idle = 0;
	spawn_word = 0;
	name_count = 0;
	for (unsigned i = 0; i < THREADS; i++) {
		memset(&threads[i], 0, offsetof(struct thread, buffer));
		memset(contexts[i].local, 0, LOCAL_BYTES);
	}
	search_execution();
	if (_setjmp(abandon) != 0)
		return message;
	for (unsigned i = 0; i < program->threads; i++)
		thread_add(NULL, NULL);
	program->begin();
	switch_to(pick());
	program->end();
	return NULL;
}

void
explore_run(const struct explore_program *explored,
    const struct explore_limits *wanted, struct explore_result *result)
{
	uint64_t max = wanted->schedules_max;

	program = explored;
	limits = *wanted;
	memset(result, 0, sizeof(*result));
	if (limits.replay != NULL || (limits.search == EXPLORE_RANDOM && !max))
		max = 1;
	catch_signals();
	search_begin(wanted);
	exploring = true;
	do {
		result->message = execution_run();
		result->schedules++;
		result->points += step_count;
		if (result->message == NULL && !search_next())
			result->complete = true;
	} while (result->message == NULL && !result->complete &&
	    (max == 0 || result->schedules < max));
	exploring = false;
	if (result->message != NULL)
		result->schedule = search_schedule();
}
