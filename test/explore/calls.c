/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timer of a program, its timeouts, and the verbs that call them. Times are
 * in ticks; timeouts have numbers from 0 to 7, and each is made once.
 */
#include "program.h"
#include "test/model/checker.h"

#include <errno.h>

struct hwt *timer;
uint64_t timer_limit;
bool timer_external;
uint32_t timer_stopped;
bool handles_early;
struct subject subject[SUBJECTS];

static unsigned touches;
static uint64_t turned_ns; /* the clock when the wheel was last turned */
static uint32_t flag[4]; /* between threads; 0 is no task's */
static struct cache *prepared[EXPLORE_THREADS_MAX];

void
program_reset(void)
{
	sim_reset();
	notes_reset();
}

void
program_thread(unsigned i)
{
	if (prepared[i] != NULL)
		thread_state.slot[0] =
		    (struct thread_slot){timer->serial, prepared[i]};
}

#define NAME(member) \
	explore_name(&timer->member, sizeof(timer->member), #member)

void
timer_make(const struct hwt_options *options)
{
	struct hwt_options chosen = *options;

	chosen.tick_ns = TICK_NS;
	chosen.ticks_per_wheel = 8;
	explore_check(hwt_create(&timer, &chosen) == 0);
	timer_stopped = 0;
	turned_ns = sim_now_ns;
	timer_limit = options->max_pending;
	timer_external = options->executor != NULL;
	NAME(wake_before);
	NAME(wake_sequence);
	NAME(announced_sequence);
	NAME(phase);
	NAME(permits);
	NAME(dispatched_count);
	NAME(dispatching_to);
	NAME(life.lock);
	NAME(life.driver);
	NAME(store.limit);
	NAME(store.free_pages);
	NAME(store.free_top);
	NAME(store.slab_urgency);
}

void
thread_prepare(unsigned thread, unsigned records)
{
	struct cache *cache = cache_claim(timer);
	uint32_t index[CACHE_SLOTS];
	unsigned i;

	explore_check(cache != NULL && records <= CACHE_SLOTS);
	for (i = 0; i < records; i++)
		index[i] = record_alloc(timer, cache);
	cache_flush(timer, cache);
	while (i-- > 0)
		record_free(timer, cache, index[i]);
	prepared[thread] = cache;
}

TWO("cache", i, records, thread_prepare(i, records))

uint32_t
index_of(unsigned i)
{
	return (uint32_t)(subject[i].handle.id & INDEX_MASK);
}

/* Threads wait for each other. */

static bool
is_set(const void *word)
{
	return *(const uint32_t *)word != 0;
}

void
word_await(const uint32_t *word)
{
	explore_await(word, 4, is_set, word);
}

static void
word_set(uint32_t *word)
{
	explore_modify(word, 4);
	*word = 1;
}

OF("set", i, word_set(&flag[i]))
OF("await", i, word_await(&flag[i]))
OF("await-thread", i, explore_await_end(i))
OF("await-started", i, word_await(&subject[i].started))
ALONE("await-halted", word_await(&sim_settings.stop.stopped))

VERB0("go-on", go_on)
{
	word_set(&sim_settings.stop.go_on);
}

/* Handles. */

static hwt_timeout
handle_of(unsigned i)
{
	return handles_early && subject[i].known.id == 0 ? subject[i].handle
							 : subject[i].known;
}

/* Whose handle that is: a touch has a copy of the old one's until it makes a
 * new one. */
static unsigned
named(unsigned i)
{
	unsigned best = i;
	unsigned j;

	for (j = 0; j < SUBJECTS; j++) {
		if (handle_of(j).id == handle_of(i).id &&
		    subject[j].touch < subject[best].touch)
			best = j;
	}
	return best;
}

/* Scheduling. */

/* A delay of 0 counts as 1 ns. The clock is read during the call. */
static void
note_delay(struct note *note, uint64_t delay_ns)
{
	note->early_ns = delay_ns == HWT_NEVER
	    ? UINT64_MAX
	    : sim_now_ns + delay_ns + (delay_ns == 0);
	note->late_ns = 0; /* as late as the call ends */
}

/* Of a tick; 0 is long past. What has passed is due at the next boundary at the
 * latest. */
static uint64_t
note_deadline(struct note *note, unsigned tick)
{
	uint64_t deadline_ns =
	    tick == 0 ? 1 : timer->origin_ns + tick * TICK_NS;

	note->early_ns = deadline_ns;
	note->late_ns = deadline_ns > sim_now_ns ? deadline_ns : sim_now_ns + 1;
	return deadline_ns;
}

static int
scheduled(struct note *note, int error)
{
	struct subject *e = &subject[note->subject];

	explore_check((error == 0) == (e->handle.id != 0));
	if (error == 0) {
		e->accepted++;
		e->known = e->handle;
	}
	note_end(note, error);
	return error;
}

int
schedule_on(unsigned i, const struct hwt_executor *executor, uint64_t delay_ns)
{
	struct subject *e = &subject[i];
	struct note *note = note_begin(NOTED_NEW, i);

	note_delay(note, delay_ns);
	e->never = delay_ns == HWT_NEVER;
	e->handed_over = executor != NULL;
	return scheduled(note,
	    hwt_new_timeout_on(
		timer, executor, &e->handle, subject_task, e, delay_ns));
}

int
schedule(unsigned i, uint64_t delay_ns)
{
	return schedule_on(i, NULL, delay_ns);
}

TWO("new", i, ticks, (void)schedule(i, ticks *TICK_NS))
OF("never", i, (void)schedule(i, HWT_NEVER))

VERB3("periodic", periodic, i, ticks, period)
{
	struct subject *e = &subject[i];
	struct note *note = note_begin(NOTED_NEW, i);

	note_delay(note, ticks * TICK_NS);
	note->period_ns = period * TICK_NS;
	e->periodic = true;
	(void)scheduled(note,
	    hwt_new_periodic(timer, NULL, &e->handle, subject_task, e,
		ticks * TICK_NS, period * TICK_NS));
}

VERB2("new-at", new_at, i, tick)
{
	struct subject *e = &subject[i];
	struct note *note = note_begin(NOTED_NEW, i);
	uint64_t deadline_ns = note_deadline(note, tick);

	(void)scheduled(note,
	    hwt_new_timeout_at(
		timer, NULL, &e->handle, subject_task, e, deadline_ns));
}

VERB2("move", move, i, ticks)
{
	struct note *note = note_begin(NOTED_MOVE, named(i));

	note_delay(note, ticks * TICK_NS);
	note_end(note, hwt_reschedule(timer, handle_of(i), ticks * TICK_NS));
}

VERB2("move-at", move_at, i, tick)
{
	struct note *note = note_begin(NOTED_MOVE, named(i));
	uint64_t deadline_ns = note_deadline(note, tick);

	note_end(note, hwt_reschedule_at(timer, handle_of(i), deadline_ns));
}

/* The new one, if there is one, is subject fresh, whose handle is the variable.
 * Either it has moved the one, or it has made the other, and then replaced the
 * one. */
VERB3("touch", touch, touched, fresh, ticks)
{
	unsigned i = named(touched);
	struct subject *old = &subject[i], *new = &subject[fresh];
	struct note *replace = note_begin(NOTED_REPLACE, i);
	struct note *note = note_begin(NOTED_NEW, fresh);
	hwt_timeout before = handle_of(i);
	int result;

	replace->other = fresh + 1;
	note->other = before.id != 0 ? i + 1 : 0;
	note_delay(note, ticks * TICK_NS);
	new->handle = before;
	new->touch = ++touches;
	result = hwt_touch(
	    timer, NULL, &new->handle, subject_task, new, ticks * TICK_NS);
	if (new->handle.id == before.id && before.id != 0) {
		explore_check(result <= 0);
		new->known = before;
		note->noted = NOTED_MOVE;
		note->subject = i;
		note_end(note, result);
		note_end(replace, -ECANCELED);
		return;
	}
	note_end(replace, before.id != 0 ? 0 : -ECANCELED);
	old->replaced |= before.id != 0;
	(void)scheduled(note, result);
}

/* A touch that has moved it. */
TWO("touched", i, fresh,
    explore_check(subject[fresh].known.id != subject[i].known.id ||
	subject[i].started == 0))

/* Cancelling and asking. */

int
cancel(unsigned i)
{
	struct note *note = note_begin(NOTED_CANCEL, named(i));
	int result = hwt_cancel(timer, handle_of(i));

	if (result == 0)
		subject[note->subject].cancelled++;
	note_end(note, result);
	return result;
}

OF("cancel", i, (void)cancel(i))

/* Each of its runs has told: seen by who knows of their end. */
VERB1("see-told", see_told, i)
{
	explore_check(explore_load(&subject[i].told, 8) == subject[i].ended);
}

/* Who has cancelled it between two runs sees what those have told. */
VERB1("cancel-told", cancel_told, i)
{
	if (cancel(i) == 0)
		see_told(i);
}

VERB1("wait", cancel_wait, i)
{
	struct subject *e = &subject[named(i)];
	struct note *mark = note_begin(NOTED_MARK, (unsigned)(e - subject));
	struct note *note = note_begin(NOTED_WAIT, (unsigned)(e - subject));
	int result = hwt_cancel_wait(timer, handle_of(i));

	explore_check(e->running == 0);
	if (result == 0)
		e->cancelled++;
	note_end(note, result);
	note_end(mark, 0);
}

VERB1("state", ask_state, i)
{
	struct note *note = note_begin(NOTED_STATE, named(i));
	void *arg = NULL;
	int result = hwt_state(timer, handle_of(i), &arg);

	explore_check(arg == (result > 0 ? &subject[note->subject] : NULL));
	note_end(note, result);
}

VERB1("remaining", ask_remaining, i)
{
	struct note *note = note_begin(NOTED_REMAINING, named(i));
	int64_t left_ns = 0;
	int result = hwt_remaining(timer, handle_of(i), &left_ns);

	note->early_ns = (uint64_t)left_ns;
	note_end(note, result);
}

VERB2("pending", pending, min, max)
{
	uint64_t count = hwt_pending_timeouts(timer);

	explore_check(count >= min && count <= max);
}

/* Time. */

/* Beside others, or past a boundary without a turn: then some are late. */
VERB1("tick", tick, ticks)
{
	if (explore_self() != EXPLORE_THREADS_MAX || ticks > 1)
		note_jump();
	sim_clock_add(ticks * TICK_NS);
}

void
advance(unsigned ticks)
{
	int error;

	if (ticks > 0)
		tick(ticks);
	note_call();
	turned_ns = sim_now_ns;
	error = hwt_advance(timer, NULL);
	explore_check(error == 0 || error == -ESHUTDOWN);
}

ALONE("turn", advance(0))
OF("advance", ticks, advance(ticks))

bool
wheel_is_behind(void)
{
	return turned_ns != sim_now_ns;
}

/* Tasks: what they do as well. */

OF("task-moves", i, subject[i].moves = true)
TWO("task-news", i, next, subject[i].schedules = next)
TWO("task-waits", i, of, subject[i].waits = of)
OF("task-goes-on", i, subject[i].releases = true)
OF("task-tells", i, subject[i].tells = true)
OF("task-awake", i, subject[i].awake = true)

static void
task_calls(struct subject *e)
{
	if (e->awake)
		explore_check(explore_load(&timer->wake_before, 8) == 0);
	if (e->moves)
		move((unsigned)(e - subject), 3);
	if (e->schedules > 0)
		explore_check(schedule(e->schedules, TICK_NS) == 0);
	if (e->waits > 0)
		word_await(&flag[e->waits]);
	if (e->releases)
		go_on();
}

void
subject_task(hwt_timeout timeout, void *arg)
{
	struct subject *e = arg;

	explore_check(timeout.id == e->handle.id);
	explore_check(e->running == 0);
	explore_check(e->cancelled == 0);
	note_start((unsigned)(e - subject));
	e->known = timeout;
	e->running++;
	e->started++;
	explore_modify(&e->started, 4);
	task_calls(e);
	if (timer->executor.execute == NULL && !e->handed_over)
		explore_check(explore_load(&timer_stopped, 4) == 0);
	if (e->periodic && explore_load(&timer->phase, 4) >= PHASE_STOPPING)
		e->last = true;
	if (e->tells)
		explore_store(&e->told, 8, e->started, EXPLORE_RELAXED);
	e->running--;
	e->ended++;
	note_stop_of((unsigned)(e - subject));
}

/* The end of a timer. */

static void
take_list(struct hwt_unprocessed *list, uint32_t begin)
{
	uint64_t count = list->count;
	struct hwt_timeout_info info;
	struct subject *e;
	struct note *note;

	while (hwt_unprocessed_next(list, &info)) {
		e = info.arg;
		explore_check(e >= subject && e < subject + SUBJECTS);
		explore_check(info.timeout.id == e->handle.id);
		e->returned++;
		note = note_begin(NOTED_RETURN, (unsigned)(e - subject));
		note->begin = begin;
		note_end(note, 0);
		count--;
	}
	explore_check(count == 0);
}

VERB0("stop", stop)
{
	bool stopped_before = explore_load(&timer_stopped, 4) != 0;
	struct note *note = note_begin(NOTED_STOP, 0);
	struct hwt_unprocessed list;
	int error = hwt_stop(timer, &list);

	explore_check(error == 0);
	explore_check(!stopped_before || list.count == 0);
	word_set(&timer_stopped);
	take_list(&list, note->begin);
	note_end(note, 0);
}

VERB0("destroy", destroy)
{
	int error;

	while ((error = hwt_destroy(timer)) == -EBUSY)
		explore_yield();
	explore_check(error == 0);
	timer = NULL;
	verify_order();
	notes_reset();
}

void
verify_inside(void)
{
	const char *wrong = checker_check(timer, true);

	if (wrong != NULL)
		explore_fail("%s", wrong);
}

ALONE("entries", verify_inside())

static void
verify_subject(const struct subject *e)
{
	unsigned ends = e->cancelled + e->returned;

	explore_check(e->running == 0 && e->started == e->ended);
	if (e->periodic) {
		explore_check(ends <= e->accepted);
		explore_check(!e->last || e->returned == 0);
		explore_check(e->accepted > 0 || e->started == 0);
		return;
	}
	if (e->accepted != ends + e->started || e->accepted > 1)
		explore_fail("timeout %u: accepted %u, started %u, "
			     "cancelled %u, returned %u",
		    (unsigned)(e - subject), e->accepted, e->started,
		    e->cancelled, e->returned);
}

static void
finish_timer(void)
{
	struct subject *e;

	/* What was replaced and has not begun, the touch has cancelled. */
	for (e = subject; e < subject + SUBJECTS; e++) {
		if (e->replaced && !e->periodic &&
		    e->started + e->cancelled + e->returned == 0)
			e->cancelled = e->accepted;
	}
	verbs_give_back();
	verify_inside();
	if (!timer_stopped)
		stop();
	verify_inside();
	explore_check(hwt_pending_timeouts(timer) == 0);
	verbs_finish();
	explore_check(hwt_destroy(timer) == 0);
}

void
program_finish(void)
{
	unsigned i;

	if (timer != NULL)
		finish_timer();
	for (i = 0; i < SUBJECTS; i++)
		verify_subject(&subject[i]);
	verify_order();
	explore_check(sim_held == 0);
}
