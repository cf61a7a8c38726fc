/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of hwt.h for one call after the other, and a search for an order of
 * what was noted that explains all answers (Wing and Gong): one note may come
 * before another unless that ended before this began. A timeout is
 *
 *   NONE -> PENDING -> (HANDED) -> RUNNING -> ENDED, or a periodic one PENDING
 *           PENDING, HANDED -> CANCELLED
 *           PENDING -> RETURNED
 *
 * When an executor takes a timeout over is not noted: it may be HANDED as soon
 * as its deadline has come.
 */
#include "program.h"

#include <errno.h>
#include <stdio.h>

/* A rule does not need all that it is given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define NOTES_MAX 64u
#define STEPS_MAX 1000000u
#define THREADS (EXPLORE_THREADS_MAX + 1)
#define OPEN UINT32_MAX
#define BIT(i) (UINT64_C(1) << (i))

enum {
	NONE,
	PENDING,
	HANDED,
	RUNNING,
	ENDED,
	CANCELLED,
	RETURNED
};

struct timeout {
	uint64_t early_ns, late_ns, period_ns;
	uint8_t state;
	bool ending; /* periodic: a cancel came in its run */
	bool waited; /* an hwt_cancel_wait came in its run */
	bool owned; /* and had the answer 0 */
	bool moved; /* in its run, by its task */
	uint32_t armed; /* periodic: when its last run has ended for sure */
};

struct world {
	struct timeout timeout[SUBJECTS];
	uint32_t stopping; /* since when */
};

static struct note notes[NOTES_MAX];
static unsigned note_count;
static uint32_t turn;
static uint32_t last[THREADS]; /* turn: what that thread noted before */
static struct note *open_of[THREADS]; /* a task's end */
static unsigned running_in[THREADS]; /* subject + 1 */
static bool jumped; /* the clock, while threads ran */
static uint64_t began_ns;

static const struct note *order[NOTES_MAX];
static unsigned steps;

void
notes_reset(void)
{
	note_count = 0;
	turn = 0;
	memset(last, 0, sizeof(last));
	memset(open_of, 0, sizeof(open_of));
	memset(running_in, 0, sizeof(running_in));
	began_ns = sim_now_ns;
	jumped = false;
}

void
note_jump(void)
{
	jumped = true;
}

struct note *
note_begin(enum noted noted, unsigned i)
{
	struct note *note = &notes[note_count++];
	unsigned thread = explore_self();

	if (note_count > NOTES_MAX)
		explore_fail("more than %u calls and tasks", NOTES_MAX);
	if (open_of[thread] != NULL)
		open_of[thread]->end = ++turn;
	open_of[thread] = NULL;
	*note = (struct note){.noted = noted,
	    .subject = i,
	    .thread = thread,
	    .own = running_in[thread] == i + 1,
	    .now_ns = sim_now_ns,
	    .begin = ++turn,
	    .end = OPEN};
	return note;
}

void
note_end(struct note *note, int result)
{
	note->result = result;
	note->end = ++turn;
	note->until_ns = sim_now_ns;
	if (note->late_ns == 0)
		note->late_ns = note->early_ns == UINT64_MAX
		    ? UINT64_MAX
		    : note->early_ns + note->until_ns - note->now_ns;
	last[note->thread] = note->end;
}

void
note_call(void)
{
	last[explore_self()] = ++turn;
}

/* It was started at some time since this thread's last note. */
void
note_start(unsigned i)
{
	uint32_t since = last[explore_self()];
	struct note *note = note_begin(NOTED_START, i);

	note->begin = since;
	note_end(note, 0);
	running_in[note->thread] = i + 1;
}

/* It ends at some time before this thread's next note. */
void
note_stop_of(unsigned i)
{
	struct note *note = note_begin(NOTED_END, i);

	note->until_ns = sim_now_ns;
	last[note->thread] = note->begin;
	running_in[note->thread] = 0;
	open_of[note->thread] = note;
}

/* The rules. */

static bool
is_external(unsigned i)
{
	return subject[i].handed_over || timer_external;
}

static bool
is_pending(const struct timeout *t)
{
	return t->state == PENDING || t->state == HANDED;
}

/* A periodic one whose run is about to end when stop begins can be moved once
 * more, and then that run was its last all the same. */
static bool
is_over(const struct world *w, const struct timeout *t)
{
	return t->state == NONE || t->state >= ENDED ||
	    (t->state == PENDING && w->stopping > 0 && t->armed > w->stopping);
}

/* An executor may have it, if that explains the answer. */
static bool
take_over(struct timeout *t, const struct note *note)
{
	if (t->state == PENDING && is_external(note->subject) &&
	    t->early_ns <= (note->end == OPEN ? sim_now_ns : note->until_ns))
		t->state = HANDED;
	return t->state == HANDED;
}

static bool
is_limit_reached(const struct world *w)
{
	uint64_t count = 0;
	unsigned i;

	for (i = 0; i < SUBJECTS; i++) {
		const struct timeout *t = &w->timeout[i];

		count +=
		    is_pending(t) || (t->state == RUNNING && t->period_ns > 0);
	}
	return timer_limit > 0 && count >= timer_limit;
}

/* A place of max_pending is taken in a call, and free again when a cancel has
 * returned and before a task's first instruction. */
static bool
takes_or_frees_place(const struct note *note)
{
	switch (note->noted) {
	case NOTED_NEW:
		return note->result != -ENOBUFS;
	case NOTED_MOVE: /* a touch that was refused */
		return note->result == -ESHUTDOWN;
	case NOTED_CANCEL:
	case NOTED_WAIT:
	case NOTED_REPLACE:
		return note->result == 0;
	default:
		return note->noted >= NOTED_RETURN;
	}
}

static bool
others_take_or_free(const struct note *note)
{
	unsigned i;

	for (i = 0; i < note_count; i++) {
		if (&notes[i] != note && takes_or_frees_place(&notes[i]) &&
		    notes[i].begin < note->end && note->begin < notes[i].end)
			return true;
	}
	return false;
}

/* The errors of what schedules. */
static bool
may_refuse(const struct world *w, const struct note *note)
{
	switch (note->result) {
	case -ESHUTDOWN:
		return w->stopping;
	case -ENOBUFS:
		return is_limit_reached(w) ||
		    (timer_limit > 0 && others_take_or_free(note));
	case -EAGAIN:
		return sim_settings.thread_fails;
	default:
		return false;
	}
}

/* A touch makes a new one when the old one is not the timer's any more. */
static bool
may_replace(struct world *w, const struct note *note)
{
	struct timeout *old = &w->timeout[note->other - 1];
	struct note of_old = *note;

	of_old.subject = note->other - 1;
	if (old->state == RUNNING)
		return old->period_ns == 0 || old->ending;
	return is_over(w, old) || take_over(old, &of_old);
}

static void
deadline_take(struct timeout *t, const struct note *note)
{
	t->early_ns = note->early_ns;
	t->late_ns = note->late_ns;
}

static bool
rule_new(struct world *w, struct timeout *t, const struct note *note)
{
	if (note->result != 0)
		return may_refuse(w, note);
	if (t->state != NONE || w->stopping ||
	    (note->other != 0 && !may_replace(w, note)) || is_limit_reached(w))
		return false;
	t->state = PENDING;
	t->period_ns = note->period_ns;
	deadline_take(t, note);
	return true;
}

static bool
rule_cancel(struct world *w, struct timeout *t, const struct note *note)
{
	switch (note->result) {
	case 0:
		if (!is_pending(t))
			return false;
		t->state = CANCELLED;
		return true;
	case -EINPROGRESS:
		t->ending = true;
		return t->state == RUNNING;
	default:
		return note->result == -ENOENT && is_over(w, t);
	}
}

static bool
rule_wait(struct world *w, struct timeout *t, const struct note *note)
{
	if (note->result != 0)
		return note->result == -ENOENT && is_over(w, t);
	if (is_pending(t)) {
		t->state = CANCELLED;
		return true;
	}
	if (t->state != ENDED || !t->waited || t->owned)
		return false;
	t->owned = true;
	return true;
}

static bool
rule_move(struct world *w, struct timeout *t, const struct note *note)
{
	bool own = note->own && t->state == RUNNING && t->period_ns > 0;
	bool last_run = t->ending || w->stopping;

	switch (note->result) {
	case 0:
		if (t->state != PENDING && (!own || last_run))
			return false;
		t->moved = own;
		deadline_take(t, note);
		return true;
	case -EINPROGRESS:
		return (t->state == RUNNING && !own) || take_over(t, note);
	case -ENOENT:
		return is_over(w, t) || (own && last_run);
	default:
		return note->other != 0 && may_refuse(w, note);
	}
}

static bool
rule_replace(struct world *w, struct timeout *t, const struct note *note)
{
	if (note->result == 0 && w->timeout[note->other - 1].state == NONE)
		return false;
	if (note->result == 0 && t->state == HANDED)
		t->state = CANCELLED;
	return true;
}

static bool
rule_state(struct world *w, struct timeout *t, const struct note *note)
{
	switch (note->result) {
	case HWT_STATE_PENDING:
		return t->state == PENDING;
	case HWT_STATE_HANDED_OVER:
		return take_over(t, note);
	case HWT_STATE_RUNNING:
		return t->state == RUNNING;
	default:
		return note->result == -ENOENT && is_over(w, t);
	}
}

static bool
rule_remaining(struct world *w, struct timeout *t, const struct note *note)
{
	int64_t left_ns = (int64_t)note->early_ns;

	if (note->result == -EINPROGRESS)
		return t->state == RUNNING;
	if (note->result != 0)
		return note->result == -ENOENT && is_over(w, t);
	return is_pending(t) &&
	    (t->early_ns == UINT64_MAX ||
		left_ns >= (int64_t)(t->early_ns - note->until_ns)) &&
	    (t->late_ns == UINT64_MAX ||
		left_ns <= (int64_t)(t->late_ns - note->now_ns));
}

/* The boundary of the tick to which a deadline belongs. */
static uint64_t
boundary_ns(uint64_t deadline_ns)
{
	uint64_t over_ns = (deadline_ns - began_ns) % TICK_NS;

	return over_ns == 0 ? deadline_ns : deadline_ns + TICK_NS - over_ns;
}

static bool
rule_start(struct world *w, struct timeout *t, const struct note *note)
{
	if (!is_pending(t) || note->now_ns < t->early_ns)
		return false;
	if (!jumped && !is_external(note->subject) &&
	    t->late_ns != UINT64_MAX && note->now_ns > boundary_ns(t->late_ns))
		return false;
	t->state = RUNNING;
	t->moved = false;
	return true;
}

/* The next run is at the first of its points after this one. */
static bool
rule_end(struct world *w, struct timeout *t, const struct note *note)
{
	if (t->state != RUNNING)
		return false;
	t->state = ENDED;
	if (t->period_ns == 0 || t->ending || w->stopping)
		return true;
	t->state = PENDING;
	t->armed = note->end;
	if (t->moved)
		return true;
	/* If the clock moved in the call, these points are not known. */
	if (t->early_ns != t->late_ns) {
		t->early_ns = note->now_ns + 1;
		t->late_ns = UINT64_MAX;
		return true;
	}
	while (t->early_ns <= note->now_ns)
		t->early_ns += t->period_ns;
	t->late_ns = t->early_ns;
	return true;
}

static bool
rule_mark(struct world *w, struct timeout *t, const struct note *note)
{
	if (t->state == RUNNING && t->period_ns > 0)
		t->ending = t->waited = true;
	return true;
}

static bool
rule_stop(struct world *w, struct timeout *t, const struct note *note)
{
	if (w->stopping == 0)
		w->stopping = note->begin;
	return true;
}

static bool
rule_return(struct world *w, struct timeout *t, const struct note *note)
{
	if (t->state != PENDING)
		return false;
	t->state = RETURNED;
	return true;
}

/* Whether it may come now, and what comes of it. */
static const struct {
	const char *name;
	bool (*rule)(
	    struct world *w, struct timeout *t, const struct note *note);
} kinds[] = {
    [NOTED_NEW] = {"new", rule_new},
    [NOTED_CANCEL] = {"cancel", rule_cancel},
    [NOTED_MARK] = {"cancel_wait begins", rule_mark},
    [NOTED_WAIT] = {"cancel_wait", rule_wait},
    [NOTED_MOVE] = {"reschedule", rule_move},
    [NOTED_REPLACE] = {"touch replaces", rule_replace},
    [NOTED_STATE] = {"state", rule_state},
    [NOTED_REMAINING] = {"remaining", rule_remaining},
    [NOTED_STOP] = {"stop", rule_stop},
    [NOTED_RETURN] = {"stop returns", rule_return},
    [NOTED_START] = {"starts", rule_start},
    [NOTED_END] = {"ends", rule_end},
};

/* All have ended, and who waited has been answered. */
static bool
is_finished(const struct world *w)
{
	unsigned i;

	for (i = 0; i < SUBJECTS; i++) {
		const struct timeout *t = &w->timeout[i];

		if (!is_over(w, t) || (t->waited && !t->owned))
			return false;
	}
	return true;
}

/* The search. */

/* Whether the notes that are not done explain themselves from there. */
static bool
explain(uint64_t done, const struct world *before)
{
	uint32_t first_end = OPEN;
	struct world w;
	unsigned i;

	if (done == ~UINT64_C(0) >> (64 - note_count))
		return is_finished(before);
	if (++steps > STEPS_MAX)
		explore_fail("too many orders of %u calls", note_count);
	for (i = 0; i < note_count; i++) {
		if (done & BIT(i))
			continue;
		if (order[i]->begin > first_end)
			continue;
		if (order[i]->end < first_end)
			first_end = order[i]->end;
		w = *before;
		if (kinds[order[i]->noted].rule(
			&w, &w.timeout[order[i]->subject], order[i]) &&
		    explain(done | BIT(i), &w))
			return true;
	}
	return false;
}

static void
print_notes(char *text, size_t size)
{
	size_t length = 0;
	unsigned i;

	text[0] = 0;
	for (i = 0; i < note_count && length < size; i++) {
		const struct note *note = &notes[i];

		length += (size_t)snprintf(text + length, size - length,
		    "%s %c: %s %u = %d [%u, %d]", i > 0 ? ";" : "",
		    note->thread < EXPLORE_THREADS_MAX ? 'a' + (int)note->thread
						       : '-',
		    kinds[note->noted].name, note->subject, note->result,
		    note->begin, (int)note->end);
	}
}

void
verify_order(void)
{
	static const struct world nothing;
	char text[900];
	unsigned i, j;

	if (note_count == 0)
		return;
	steps = 0;
	/* What ended first comes first: that is the order, most of the time. */
	for (i = 0; i < note_count; i++) {
		for (j = i; j > 0 && order[j - 1]->end > notes[i].end; j--)
			order[j] = order[j - 1];
		order[j] = &notes[i];
	}
	if (explain(0, &nothing))
		return;
	print_notes(text, sizeof(text));
	explore_fail("no order explains the answers:%s", text);
}
