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
#define VERBS_MAX 14

static struct draft {
	uint64_t seed;
	char verb[PARTS][VERBS_MAX][24];
	unsigned count[PARTS];
	unsigned kept[PARTS]; /* of first: so many must stay; or of the end */
	unsigned parts, subjects;
	bool worker, box, mailbox, stops;
} draft;

static struct rng rng;

/* 0 .. count - 1 */
static unsigned
any(unsigned count)
{
	return (unsigned)rng_below(&rng, count);
}

static void add(unsigned part, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void
add(unsigned part, const char *format, ...)
{
	char *verb = draft.verb[part][draft.count[part]++];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(verb, sizeof(draft.verb[0][0]), format, arguments);
	va_end(arguments);
}

/* One that was made, or will be. */
static unsigned
used(void)
{
	return any(draft.subjects);
}

static bool
add_new(unsigned part)
{
	unsigned i = draft.subjects;

	if (i == SUBJECTS - 1)
		return false;
	draft.subjects++;
	switch (any(8)) {
	case 0:
		add(part, "never %u", i);
		break;
	case 1:
	case 2:
		add(part, "periodic %u %u %u", i, any(3), 1 + any(2));
		break;
	default:
		add(part, "new %u %u", i, any(4));
		break;
	}
	return true;
}

static void
add_touch(unsigned part)
{
	unsigned old = used();

	if (draft.subjects == SUBJECTS - 1)
		return;
	add(part, "touch %u %u %u", old, draft.subjects++, any(4));
}

/* What any thread may call. */
static void
add_call(unsigned part)
{
	static const char *const alone[] = {
	    "state", "remaining", "cancel", "cancel", "cancel", "wait", "wait"};
	unsigned which = any(20);

	if (which < 5 || draft.subjects == 0) {
		(void)add_new(part);
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
	switch (any(12)) {
	case 0:
	case 1:
		add(part, "advance 1");
		break;
	case 2:
		if (!draft.stops)
			add(part, "drop-stale");
		break;
	case 3:
		if (!draft.stops)
			add(part, "trim");
		break;
	case 4:
		add_call(part);
		break;
	default:
		add(part, "turn");
		break;
	}
}

static void
make_timer(void)
{
	if (any(5) == 0)
		add(0, "limit %u", 1 + any(3));
	draft.worker = any(3) == 0;
	switch (draft.worker ? 9 : any(10)) {
	case 0:
	case 1:
		draft.box = true;
		add(0, "box");
		break;
	case 2:
	case 3:
		draft.mailbox = true;
		add(0, "mailbox");
		break;
	case 4:
		add(0, "refuser");
		break;
	default:
		break;
	}
	add(0, draft.worker ? "worker" : "manual");
	if (any(8) == 0)
		add(0, "caches-left %u", any(2));
	else
		add(0, "caches %u %u %u", any(3), any(3), any(2));
	draft.kept[0] = draft.count[0];
}

/* Timeouts in some state. */
static void
make_before(void)
{
	unsigned i, count = any(3);

	for (i = 0; i < count; i++)
		(void)add_new(0);
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

	draft.parts = 1 + threads;
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
		if (draft.count[i] == 0)
			add(i, "pending 0 7");
	}
	if (!draft.worker)
		return;
	for (i = 2; i <= threads; i++)
		add(1, "await-thread %u", i - 1);
	add(1, "await-all");
	add(1, "stop");
	draft.kept[1] = threads + 1;
}

static const struct program *
compose(void)
{
	static char text[2][PARTS * VERBS_MAX * 26];
	static char name[32];
	static struct program program;
	size_t at[2] = {0, 0};
	unsigned part, i;

	text[0][0] = text[1][0] = '\0';
	for (part = 0; part < draft.parts; part++) {
		char *to = text[part > 0];
		size_t *end = &at[part > 0];

		if (part > 1)
			*end += (size_t)sprintf(to + *end, " | ");
		for (i = 0; i < draft.count[part]; i++)
			*end += (size_t)sprintf(to + *end, "%s%s",
			    i > 0 ? ", " : "", draft.verb[part][i]);
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

/* Without verb i of that part; of a thread, the last one stays. */
static bool
verb_remove(unsigned part, unsigned i)
{
	unsigned *count = &draft.count[part];

	if (part == 0 ? i < draft.kept[0]
		      : i + draft.kept[part] >= *count || *count == 1)
		return false;
	memmove(draft.verb[part][i], draft.verb[part][i + 1],
	    (*count - i - 1) * sizeof(draft.verb[0][0]));
	--*count;
	return true;
}

/* Without the last thread, unless the others name it. */
static bool
thread_remove(void)
{
	if (draft.parts <= 2 || draft.worker)
		return false;
	draft.parts--;
	return true;
}

static bool
shrink_once(bool (*fails)(const struct program *program))
{
	struct draft before = draft;
	unsigned part, i;

	if (thread_remove() && fails(compose()))
		return true;
	draft = before;
	for (part = draft.parts; part-- > 0;) {
		for (i = draft.count[part]; i-- > 0;) {
			if (verb_remove(part, i) && fails(compose()))
				return true;
			draft = before;
		}
	}
	return false;
}

const struct program *
shrink(bool (*fails)(const struct program *program))
{
	while (shrink_once(fails))
		continue;
	return compose();
}

void
print_row(const struct program *program)
{
	printf("    ROW(\"%s\",\n\t\"%s\",\n\t\"%s\", \"%s\"),\n",
	    program->name, program->first, program->run, program->last);
}
