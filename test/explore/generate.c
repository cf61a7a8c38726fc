/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs at random, and smaller ones that fail alike.
 *
 * A manual timer has two or three threads: callers, and one that turns the
 * wheel. A worker's has callers, of whom the first then waits for all that is
 * to start, and stops it. Before them come timeouts that are queued, placed,
 * due, or ended with an entry left in the wheel. Each call has its own timeout
 * to make, so that order.c can tell them apart, and names any to use.
 */
#include "program.h"
#include "test/rng.h"

#include <stdarg.h>
#include <stdio.h>

#define PARTS 5 /* first, and the threads */
#define VERBS 64

struct drawn {
	unsigned part;
	bool stays;
	char text[24];
};

static struct draft {
	uint64_t seed;
	struct drawn verb[VERBS];
	unsigned count, subjects;
	bool worker, box, mailbox, stops;
	bool stay; /* what is added now */
} draft;

static struct rng rng;

/* 0 .. count - 1 */
static unsigned
any(unsigned count)
{
	return (unsigned)rng_below(&rng, count);
}

__attribute__((format(printf, 2, 3))) static void
add(unsigned part, const char *format, ...)
{
	struct drawn *verb = &draft.verb[draft.count++];
	va_list arguments;

	verb->part = part;
	verb->stays = draft.stay;
	va_start(arguments, format);
	(void)vsnprintf(verb->text, sizeof(verb->text), format, arguments);
	va_end(arguments);
}

static unsigned
count_of(unsigned part)
{
	unsigned i, count = 0;

	for (i = 0; i < draft.count; i++)
		count += draft.verb[i].part == part;
	return count;
}

/* One that was made, or will be. */
static unsigned
used(void)
{
	return any(draft.subjects);
}

static void
add_new(unsigned part)
{
	unsigned i = draft.subjects;
	unsigned kind;

	if (i == SUBJECTS - 1)
		return;
	draft.subjects++;
	kind = any(8);
	if (kind == 0)
		add(part, "never %u", i);
	else if (kind < 3)
		add(part, "periodic %u %u %u", i, any(3), 1 + any(2));
	else
		add(part, "new %u %u", i, any(4));
}

static void
add_touch(unsigned part)
{
	unsigned old = used();

	if (draft.subjects == SUBJECTS - 1)
		return;
	add(part, "touch %u %u %u", old, draft.subjects++, any(4));
}

/* Verbs of any thread. */
static void
add_call(unsigned part)
{
	static const char *const alone[] = {
	    "state", "remaining", "cancel", "cancel", "cancel", "wait", "wait"};
	unsigned which = any(20);

	if (which < 5 || draft.subjects == 0) {
		add_new(part);
	} else if (which < 9) {
		add(part, "move %u %u", used(), any(4));
	} else if (which < 12) {
		add_touch(part);
	} else if (which == 12 && !draft.worker) {
		draft.stops = true;
		add(part, "stop");
	} else if (which == 13 && draft.box) {
		add(part, "box-run");
	} else if (which == 14) {
		add(part, "move-at %u %u", used(), any(3));
	} else {
		add(part, "%s %u", alone[any(7)], used());
	}
}

/* Who turns the wheel. */
static void
add_turn(unsigned part)
{
	unsigned which = any(12);

	if (which < 2)
		add(part, "advance 1");
	else if (which == 4)
		add_call(part);
	else if (which > 4)
		add(part, "turn");
	else if (!draft.stops)
		add(part, which == 2 ? "drop-stale" : "trim");
}

static void
make_timer(void)
{
	unsigned executor;

	draft.stay = true;
	if (any(5) == 0)
		add(0, "limit %u", 1 + any(3));
	draft.worker = any(3) == 0;
	executor = draft.worker ? 9 : any(10);
	draft.box = executor < 2;
	draft.mailbox = executor == 2 || executor == 3;
	if (executor < 5)
		add(0,
		    draft.box           ? "box"
			: draft.mailbox ? "mailbox"
					: "refuser");
	add(0, draft.worker ? "worker" : "manual");
	if (any(8) == 0)
		add(0, "caches-left %u", any(2));
	else
		add(0, "caches %u %u %u", any(3), any(3), any(2));
	draft.stay = false;
}

/* Timeouts in some state. */
static void
make_before(void)
{
	unsigned i, count = any(3);

	for (i = 0; i < count; i++)
		add_new(0);
	if (draft.worker) {
		if (any(2) == 0)
			add(0, "start");
		return;
	}
	if (count > 0 && any(4) == 0)
		add(0, "task-%s 0", any(2) == 0 ? "moves" : "tells");
	if (any(3) != 0)
		add(0, "turn");
	if (count > 0 && any(3) == 0)
		add(0, "cancel %u", any(count));
	if (any(3) == 0)
		add(0, "flush");
	if (any(2) == 0)
		add(0, "tick 1");
}

static void
make_threads(void)
{
	unsigned threads = 2 + any(2);
	unsigned i, calls;

	for (i = 1; i <= threads; i++) {
		bool turns = i == threads && !draft.worker;
		bool runs = i == 1 && draft.mailbox;

		for (calls = 1 + any(turns ? 3 : 4); calls > 0; calls--) {
			if (runs && any(2) == 0)
				add(i, "mailbox-run %u", any(2));
			else if (turns)
				add_turn(i);
			else
				add_call(i);
		}
		if (count_of(i) == 0)
			add(i, "pending 0 7");
	}
	if (!draft.worker)
		return;
	draft.stay = true;
	for (i = 2; i <= threads; i++)
		add(1, "await-thread %u", i - 1);
	add(1, "await-all");
	add(1, "stop");
}

static const struct program *
compose(void)
{
	static char text[2][VERBS * 26];
	static char name[32];
	static struct program program;
	unsigned part, i;

	text[0][0] = text[1][0] = '\0';
	for (part = 0; part < PARTS && (part == 0 || count_of(part) > 0);
	     part++) {
		char *to = text[part > 0];
		const char *gap = part > 1 ? " | " : "";

		for (i = 0; i < draft.count; i++) {
			if (draft.verb[i].part != part)
				continue;
			strcat(strcat(to, gap), draft.verb[i].text);
			gap = ", ";
		}
	}
	(void)sprintf(name, "generated/%llu", (unsigned long long)draft.seed);
	program = (struct program){.name = name,
	    .first = text[0],
	    .run = text[1],
	    .last = draft.worker ? "" : "drain"};
	return &program;
}

const struct program *
generate(uint64_t seed)
{
	memset(&draft, 0, sizeof(draft));
	draft.seed = rng.state = seed;
	make_timer();
	make_before();
	make_threads();
	return compose();
}

/* Without verb i: not the only one of a thread, unless that is the last thread
 * and no other waits for it. */
static bool
verb_remove(unsigned i)
{
	unsigned part = draft.verb[i].part;

	if (draft.verb[i].stays ||
	    (part > 0 && count_of(part) == 1 &&
		(draft.worker || part == 1 || count_of(part + 1) > 0)))
		return false;
	memmove(&draft.verb[i], &draft.verb[i + 1],
	    (--draft.count - i) * sizeof(draft.verb[0]));
	return true;
}

const struct program *
shrink(bool (*fails)(const struct program *program))
{
	struct draft before;
	unsigned i = draft.count;

	while (i-- > 0) {
		before = draft;
		if (verb_remove(i) && fails(compose()))
			i = draft.count;
		else
			draft = before;
	}
	return compose();
}

void
print_row(const struct program *program)
{
	printf("    ROW(\"%s\",\n\t\"%s\",\n\t\"%s\", \"%s\"),\n",
	    program->name, program->first, program->run, program->last);
}
