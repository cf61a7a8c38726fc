/* SPDX-License-Identifier: Apache-2.0 */
/* What program.h describes: the timer, its timeouts, and the calls on them. */
#include "program.h"
#include "test/model/checker.h"

#include <errno.h>

struct hwt *timer;
uint64_t timer_limit;
bool timer_external;
bool handles_early;
struct subject subject[SUBJECTS];
uint32_t flag[4];

static unsigned touches;
static uint64_t turned_ns; /* the clock when the wheel was last turned */
static uint32_t timer_stopped; /* hwt_stop has returned 0 */
static struct cache *prepared[EXPLORE_THREADS_MAX];

void
program_reset(void)
{
	sim_reset();
	verbs_reset();
	notes_reset();
	timer = NULL;
	timer_stopped = 0;
	touches = 0;
	handles_early = false;
	memset(subject, 0, sizeof(subject));
	memset(flag, 0, sizeof(flag));
	memset(prepared, 0, sizeof(prepared));
}

void
program_thread(unsigned i)
{
	if (prepared[i] != NULL)
		thread_state.slot[0] =
		    (struct thread_slot){timer, timer->serial, prepared[i]};
}

void
timer_make_with(const struct hwt_options *options)
{
	struct hwt_options chosen = *options;

	chosen.tick_ns = TICK_NS;
	chosen.ticks_per_wheel = 8;
	explore_check(hwt_create(&timer, &chosen) == 0);
	timer_stopped = 0;
	turned_ns = sim_now_ns;
	timer_limit = options->max_pending;
	timer_external = options->executor != NULL;
	explore_name(&timer->wake_before, 8, "wake_before");
	explore_name(&timer->wake_sequence, 4, "wake_sequence");
	explore_name(&timer->announced_sequence, 8, "announced_sequence");
	explore_name(&timer->phase, 8, "phase");
	explore_name(&timer->permits, 8, "permits");
	explore_name(&timer->dispatched_count, 8, "dispatched_count");
	explore_name(&timer->dispatching_to, 8, "dispatching_to");
	explore_name(&timer->life.lock, 4, "lifecycle lock");
	explore_name(&timer->life.driver, 8, "driver");
	explore_name(&timer->store.limit, 8, "limit");
	explore_name(&timer->store.free_pages, 8, "free_pages");
	explore_name(timer->store.free_top, 8, "free_top");
	explore_name(timer->store.slab_urgency, 8, "slab_urgency[0]");
}

void
timer_make(uint32_t flags, const struct hwt_executor *executor)
{
	timer_make_with(
	    &(struct hwt_options){.flags = flags, .executor = executor});
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

void
thread_stop_at(unsigned thread, const void *word, bool changes)
{
	sim_settings.stop.thread = thread;
	sim_settings.stop.at = word;
	sim_settings.stop.changes = changes;
}

static bool
is_set(const void *context)
{
	return *(const uint32_t *)context != 0;
}

static void
word_set(uint32_t *word)
{
	explore_modify(word, 4);
	*word = 1;
}

static void
word_await(const uint32_t *word)
{
	explore_await(word, 4, is_set, word);
}

void
await_stopped(void)
{
	word_await(&sim_settings.stop.stopped);
}

void
go_on(void)
{
	word_set(&sim_settings.stop.go_on);
}

void
flag_set(unsigned i)
{
	word_set(&flag[i]);
}

void
flag_await(unsigned i)
{
	word_await(&flag[i]);
}

void
await_started(unsigned i)
{
	word_await(&subject[i].started);
}

void
await_thread(unsigned i)
{
	explore_await_end(i);
}

uint32_t
index_of(unsigned i)
{
	return (uint32_t)(subject[i].handle.id & INDEX_MASK);
}

/* Tasks. */

void
see_told(unsigned i)
{
	explore_check(explore_load(&subject[i].told, 8) == subject[i].ended);
}

static void
task_calls(struct subject *e)
{
	if (e->awake)
		explore_check(explore_load(&timer->wake_before, 8) == 0);
	if (e->moves)
		(void)reschedule((unsigned)(e - subject), 3 * TICK_NS);
	if (e->schedules > 0)
		explore_check(schedule(e->schedules, TICK_NS) == 0);
	if (e->waits > 0)
		flag_await(e->waits);
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

/* Calls. */

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

/* A delay of 0 counts as 1 ns. The clock is read during the call. */
static void
note_delay(struct note *note, uint64_t delay_ns)
{
	note->early_ns = delay_ns == HWT_NEVER
	    ? UINT64_MAX
	    : sim_now_ns + delay_ns + (delay_ns == 0);
	note->late_ns = 0; /* as late as the call ends */
}

/* What has passed is due at the next boundary at the latest. */
static void
note_deadline(struct note *note, uint64_t deadline_ns)
{
	note->early_ns = deadline_ns;
	note->late_ns = deadline_ns > sim_now_ns ? deadline_ns : sim_now_ns + 1;
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

int
schedule_periodic(unsigned i, const struct hwt_executor *executor,
    uint64_t delay_ns, uint64_t period_ns)
{
	struct subject *e = &subject[i];
	struct note *note = note_begin(NOTED_NEW, i);

	note_delay(note, delay_ns);
	note->period_ns = period_ns;
	e->periodic = true;
	e->handed_over = executor != NULL;
	return scheduled(note,
	    hwt_new_periodic(timer, executor, &e->handle, subject_task, e,
		delay_ns, period_ns));
}

int
schedule_at(unsigned i, uint64_t deadline_ns)
{
	struct subject *e = &subject[i];
	struct note *note = note_begin(NOTED_NEW, i);

	note_deadline(note, deadline_ns);
	return scheduled(note,
	    hwt_new_timeout_at(
		timer, NULL, &e->handle, subject_task, e, deadline_ns));
}

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

int
cancel_wait(unsigned i)
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
	return result;
}

int
reschedule(unsigned i, uint64_t delay_ns)
{
	struct note *note = note_begin(NOTED_MOVE, named(i));
	int result;

	note_delay(note, delay_ns);
	result = hwt_reschedule(timer, handle_of(i), delay_ns);
	note_end(note, result);
	return result;
}

int
reschedule_at(unsigned i, uint64_t deadline_ns)
{
	struct note *note = note_begin(NOTED_MOVE, named(i));
	int result;

	note_deadline(note, deadline_ns);
	result = hwt_reschedule_at(timer, handle_of(i), deadline_ns);
	note_end(note, result);
	return result;
}

bool
is_touched(unsigned i, unsigned fresh)
{
	return subject[fresh].known.id != subject[i].known.id;
}

/* Either it has moved the one, or it has made the other, and then replaced the
 * one. */
int
touch(unsigned touched, unsigned fresh, uint64_t delay_ns)
{
	unsigned i = named(touched);
	struct subject *old = &subject[i], *new = &subject[fresh];
	struct note *replace = note_begin(NOTED_REPLACE, i);
	struct note *note = note_begin(NOTED_NEW, fresh);
	hwt_timeout before = handle_of(i);
	int result;

	replace->other = fresh + 1;
	note->other = before.id != 0 ? i + 1 : 0;
	note_delay(note, delay_ns);
	new->handle = before;
	new->touch = ++touches;
	result =
	    hwt_touch(timer, NULL, &new->handle, subject_task, new, delay_ns);
	if (new->handle.id == before.id && before.id != 0) {
		explore_check(result <= 0);
		new->known = before;
		note->noted = NOTED_MOVE;
		note->subject = i;
		note_end(note, result);
		note_end(replace, -ECANCELED);
		return result;
	}
	note_end(replace, before.id != 0 ? 0 : -ECANCELED);
	old->replaced |= before.id != 0;
	return scheduled(note, result);
}

int
ask_state(unsigned i)
{
	struct note *note = note_begin(NOTED_STATE, named(i));
	void *arg = NULL;
	int result = hwt_state(timer, handle_of(i), &arg);

	explore_check(arg == (result > 0 ? &subject[note->subject] : NULL));
	note_end(note, result);
	return result;
}

int
ask_remaining(unsigned i)
{
	struct note *note = note_begin(NOTED_REMAINING, named(i));
	int64_t left_ns = 0;
	int result = hwt_remaining(timer, handle_of(i), &left_ns);

	note->early_ns = (uint64_t)left_ns;
	note_end(note, result);
	return result;
}

/* Beside others, or past a boundary without a turn: then some are late. */
void
clock_add(uint64_t ns)
{
	if (explore_self() != EXPLORE_THREADS_MAX || ns > TICK_NS)
		note_jump();
	sim_clock_add(ns);
}

uint64_t
advance(unsigned ticks)
{
	uint64_t started = 0;
	int error;

	if (ticks > 0)
		clock_add(ticks * TICK_NS);
	note_call();
	turned_ns = sim_now_ns;
	error = hwt_advance(timer, &started);
	explore_check(error == 0 || error == -ESHUTDOWN);
	return started;
}

bool
wheel_is_behind(void)
{
	return turned_ns != sim_now_ns;
}

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

void
stop(void)
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

bool
timer_is_stopped(void)
{
	return timer_stopped != 0;
}

/* The end of an execution. */

void
verify_inside(void)
{
	const char *wrong = checker_check(timer, true);

	if (wrong != NULL)
		explore_fail("%s", wrong);
}

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

/* What was replaced and has not begun, the touch has cancelled. */
static void
count_replaced(void)
{
	struct subject *e;

	for (e = subject; e < subject + SUBJECTS; e++) {
		if (e->replaced && !e->periodic &&
		    e->started + e->cancelled + e->returned == 0)
			e->cancelled = e->accepted;
	}
}

static void
finish_timer(void)
{
	count_replaced();
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
