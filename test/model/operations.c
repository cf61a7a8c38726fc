/* SPDX-License-Identifier: Apache-2.0 */
/* One operation each, on the timer and in the model. See model.h. */
#include "test/model/model.h"

#include <poll.h>

/* The clock ends somewhere. */
#define CLOCK_END ((UINT64_C(1) << 63) - (UINT64_C(1) << 20))

/* Random things. */

static uint64_t
any_delay(void)
{
	uint64_t round_ns = model->wheel * model->tick_ns;
	uint64_t delay_ns;

	switch (any_below(10)) {
	case 0:
		return 0;
	case 1:
		return HWT_NEVER;
	case 2:
		return any_below(20) * model->tick_ns;
	case 3:
		return any_below(5) * round_ns +
		    any_below(3) * (model->tick_ns - 1);
	case 4: /* onto a boundary */
		return (1 + any_below(40)) * model->tick_ns -
		    (model->now_ns - model->start_ns) % model->tick_ns;
	case 5: /* about as many rounds as can be distinguished */
		if (round_ns >> 30 != 0)
			return round_ns;
		return (UINT64_C(1) << 30) * round_ns +
		    (any_below(9) - 4) * round_ns;
	case 6: /* round about the end of the clock */
		delay_ns = DEADLINE_NONE - model->now_ns + 2 - any_below(5);
		return delay_ns < DEADLINE_NONE ? delay_ns : DEADLINE_NONE;
	default:
		return any_word_of(63);
	}
}

/* On the clock: what has passed, now, to come, and what is no time. */
static uint64_t
any_deadline(void)
{
	switch (any_below(8)) {
	case 0:
		return any_below(2);
	case 1:
		return any_word() | DEADLINE_NONE;
	case 2:
		return any_word_of(64);
	case 3:
		return model->now_ns - any_below(model->now_ns + 1);
	case 4: /* round about the last boundaries and the next ones */
		return model->start_ns +
		    (last_tick() + any_below(8) / 2) * model->tick_ns -
		    any_below(2);
	default:
		return deadline_after(any_delay());
	}
}

static uint64_t
bad_delay(void)
{
	return UINT64_MAX - 1 - (any_word() >> 1) / 2;
}

static uint64_t
any_period(void)
{
	if (any_below(4) != 0)
		return 0;
	return 1 + any_word_of(62);
}

static enum way
any_way(void)
{
	return (enum way)any_below(WAYS);
}

/* An entry in use whose handle is known, or NULL. */
static struct model_entry *
any_entry(void)
{
	unsigned turn;

	for (turn = 0; turn < 32; turn++) {
		struct model_entry *entry =
		    &model->entries[any_below(model->limit)];

		if (entry->state != ENDED && entry->handle.id != 0)
			return entry;
	}
	return NULL;
}

static struct model_entry *
free_entry(void)
{
	unsigned first = (unsigned)any_below(model->limit);
	unsigned i;

	for (i = 0; i < model->limit; i++) {
		struct model_entry *entry =
		    &model->entries[(first + i) % model->limit];

		if (entry->state == ENDED)
			return entry;
	}
	return NULL;
}

/* Operations. */

static void
entry_choose(struct model_entry *entry, bool with_executor)
{
	enum way way = with_executor ? any_way() : INLINE;

	entry->executor = executor_of(way);
	entry->way = way == INLINE ? model->default_way : way;
	entry->period_ns = 0;
}

/* What a new timeout that is in order is answered. */
static int
new_answer(void)
{
	if (model->stopped)
		return -ESHUTDOWN;
	if (there_is_room())
		return 0;
	model->expected.rejected++;
	return -ENOBUFS;
}

/* The calls that schedule. handle is NULL now and then. */
enum how {
	SCHEDULE,
	ON,
	AT,
	PERIODIC
};

static int
schedule(struct model_entry *entry, enum how how, hwt_timeout *handle,
    uint64_t time_ns, int rc)
{
	switch (how) {
	case SCHEDULE:
		return model_rc(hwt_new_timeout,
		    (model->timer, handle, model_task, entry, time_ns), rc);
	case ON:
		return model_rc(hwt_new_timeout_on,
		    (model->timer, entry->executor, handle, model_task, entry,
			time_ns),
		    rc);
	case AT:
		return model_rc(hwt_new_timeout_at,
		    (model->timer, entry->executor, handle, model_task, entry,
			time_ns),
		    rc);
	default:
		return model_rc(hwt_new_periodic,
		    (model->timer, entry->executor, handle, model_task, entry,
			time_ns, entry->period_ns),
		    rc);
	}
}

static void
op_schedule(void)
{
	static const enum how all[] = {SCHEDULE, ON, ON, AT, AT, PERIODIC};
	struct model_entry *entry = free_entry();
	enum how how = ANY_OF(all);
	uint64_t time_ns = how == AT ? any_deadline() : any_delay();
	hwt_timeout handle = {1};
	bool unnamed = any_below(16) == 15;
	bool bad;

	if (entry == NULL)
		return;
	entry_choose(entry, how != SCHEDULE);
	if (how == PERIODIC)
		entry->period_ns = any_period();
	bad = how == PERIODIC ? entry->period_ns == 0
	    : how == AT       ? false
			      : any_below(32) == 0;
	if (bad && how != PERIODIC)
		time_ns = bad_delay();
	if (unnamed)
		handle.id = 0;
	if (schedule(entry, how, unnamed ? NULL : &handle, time_ns,
		bad ? -EINVAL : new_answer()) == 0)
		entry_begin(entry, handle,
		    how == AT ? deadline_at(time_ns) : deadline_after(time_ns));
	else
		model_check(handle.id == 0);
}

static int
cancel_answer(const struct model_entry *entry, bool wait)
{
	switch (entry->state) {
	case PENDING:
	case HELD:
		return 0;
	case RUNNING:
		return wait ? -EDEADLK : -EINPROGRESS;
	default:
		return -ENOENT;
	}
}

static void
op_cancel(struct model_entry *entry, bool wait)
{
	int rc;

	if (entry == NULL)
		return;
	rc = cancel_answer(entry, wait);
	if (wait)
		model_rc(hwt_cancel_wait, (model->timer, entry->handle), rc);
	else
		model_rc(hwt_cancel, (model->timer, entry->handle), rc);
	if (rc == -EINPROGRESS)
		entry->ending = true;
	if (rc != 0)
		return;
	model->expected.cancelled++;
	if (entry->state == HELD)
		entry->state = REVOKED;
	else
		entry_end(entry);
}

static int
reschedule_answer(const struct model_entry *entry)
{
	switch (entry->state) {
	case PENDING:
		return 0;
	case HELD:
		return -EINPROGRESS;
	case RUNNING:
		if (entry->period_ns == 0)
			return -EINPROGRESS;
		return entry->ending || model->stopped ? -ENOENT : 0;
	default:
		return -ENOENT;
	}
}

static void
entry_move(struct model_entry *entry, uint64_t deadline_ns)
{
	model->expected.rescheduled++;
	entry_set_deadline(entry, deadline_ns);
	if (entry->state == RUNNING)
		entry->moved = true;
	else
		expect_wake_for(entry->tick);
}

static void
op_reschedule(struct model_entry *entry)
{
	bool at = any_below(2) == 0;
	uint64_t time_ns = at ? any_deadline() : any_delay();
	int rc;

	if (entry == NULL)
		return;
	if (!at && any_below(32) == 0) {
		model_rc(hwt_reschedule,
		    (model->timer, entry->handle, bad_delay()), -EINVAL);
		return;
	}
	rc = reschedule_answer(entry);
	if (at)
		model_rc(hwt_reschedule_at,
		    (model->timer, entry->handle, time_ns), rc);
	else
		model_rc(
		    hwt_reschedule, (model->timer, entry->handle, time_ns), rc);
	if (rc == 0)
		entry_move(
		    entry, at ? deadline_at(time_ns) : deadline_after(time_ns));
}

/* Whether a touch of it makes a new one. NULL: there is none yet. */
static bool
touch_replaces(const struct model_entry *entry)
{
	if (entry == NULL)
		return true;
	switch (reschedule_answer(entry)) {
	case -ENOENT:
		return true;
	case -EINPROGRESS:
		return entry->period_ns == 0;
	default:
		return false;
	}
}

/* fresh is the one that the call may make; what an executor holds is cancelled
 * then. */
static void
touch(struct model_entry *entry, struct model_entry *fresh)
{
	uint64_t delay_ns = any_delay();
	bool bad = any_below(32) == 0;
	bool replaces = touch_replaces(entry);
	hwt_timeout handle = {0};
	hwt_timeout before;
	int rc = 0;

	if (entry != NULL)
		handle = entry->handle;
	before = handle;
	if (bad)
		rc = -EINVAL;
	else if (replaces)
		rc = new_answer();
	else
		rc = reschedule_answer(entry);
	rc = model_rc(hwt_touch,
	    (model->timer, fresh->executor, &handle, model_task, fresh,
		bad ? bad_delay() : delay_ns),
	    rc);
	if (rc == 0 && replaces) {
		if (entry != NULL && entry->state == HELD) {
			entry->state = REVOKED;
			model->expected.cancelled++;
		}
		entry_begin(fresh, handle, deadline_after(delay_ns));
		return;
	}
	model_check(handle.id == before.id);
	if (rc == 0)
		entry_move(entry, deadline_after(delay_ns));
}

static void
op_touch(struct model_entry *entry)
{
	struct model_entry *fresh = free_entry();

	if (fresh == NULL)
		return;
	entry_choose(fresh, true);
	touch(entry, fresh);
}

static void
op_state(struct model_entry *entry)
{
	static const int answers[] = {[PENDING] = HWT_STATE_PENDING,
	    [HELD] = HWT_STATE_HANDED_OVER,
	    [REVOKED] = -ENOENT,
	    [RUNNING] = HWT_STATE_RUNNING};
	void *arg = NULL;
	uint64_t now_ns;

	model_rc(hwt_now, (model->timer, &now_ns), 0);
	model_check(now_ns == model->now_ns);
	if (entry == NULL)
		return;
	model_rc(hwt_state, (model->timer, entry->handle, &arg),
	    answers[entry->state]);
	model_check(arg == (entry->state == REVOKED ? NULL : entry));
}

static int64_t
remaining_of(const struct model_entry *entry)
{
	if (entry->deadline_ns == DEADLINE_NONE)
		return INT64_MAX;
	return (int64_t)(entry->deadline_ns - model->now_ns);
}

static void
op_remaining(const struct model_entry *entry)
{
	int64_t remaining_ns = 1;
	int rc = 0;

	if (entry == NULL)
		return;
	if (entry->state == RUNNING)
		rc = -EINPROGRESS;
	else if (entry->state == REVOKED)
		rc = -ENOENT;
	model_rc(
	    hwt_remaining, (model->timer, entry->handle, &remaining_ns), rc);
	model_check(remaining_ns == (rc != 0 ? 1 : remaining_of(entry)));
}

/* What an executor does in its own time; and what it may not do. */
void
op_run(struct model_entry *entry)
{
	int rc = -ENOENT;

	if (entry == NULL)
		return;
	if (entry->way != HOLDS &&
	    (entry->state == HELD || entry->state == REVOKED))
		return;
	if (entry->state == HELD)
		rc = 0;
	if (entry->state == REVOKED)
		entry_end(entry);
	model_rc(hwt_run, (model->timer, entry->handle), rc);
}

/* Everything up to end is released, if only cancelled ones are left of it. */
static void
release_mail(uint64_t end)
{
	for (; model->mail_first < end; model->mail_first++) {
		struct model_entry *entry =
		    model->mail[model->mail_first % ENTRIES];

		model_check(entry->state == REVOKED);
		entry_end(entry);
	}
}

static bool
mailbox_is_readable(void)
{
	struct pollfd mailbox = {
	    .fd = hwt_mailbox_fd(model->mailbox), .events = POLLIN};

	return poll(&mailbox, 1, 0) == 1;
}

/* Also from a task that it runs. */
void
op_run_mailbox(size_t max)
{
	uint64_t end = model->mail_end;
	size_t outer_started = model->mail_started;
	size_t outer_begun = model->mail_begun;
	size_t started = SIZE_MAX;
	uint64_t failures = plan_failures();

	model_check(model->mail_running > 0 || model->mail_first == end ||
	    model->mail_silent || mailbox_is_readable());
	if (model->mail_first != end)
		model_rc(hwt_mailbox_destroy, (model->mailbox), -EBUSY);
	model->mail_running++;
	model->mail_started = 0;
	model->mail_begun = 0;
	model->frames++;
	model_rc(hwt_mailbox_run, (model->mailbox, max, &started), 0);
	model->frames--;
	model->mail_running--;
	model_check(started == model->mail_started);
	model_check(max == 0 || model->mail_begun <= max);
	if (max == 0 || model->mail_begun < max)
		release_mail(end);
	model->mail_started = outer_started;
	model->mail_begun = outer_begun;
	model->mail_silent = plan_failures() > failures;
}

static void posted(struct hwt_post *post);

/* Nobody knows it by a handle. */
static void
post(struct model_entry *entry)
{
	uint64_t failures = plan_failures();

	entry->handle.id = 0;
	entry->state = POSTED;
	model->mail[model->mail_end++ % ENTRIES] = entry;
	model_rc(hwt_mailbox_post, (model->mailbox, &entry->post, posted), 0);
	model->mail_silent = plan_failures() > failures;
}

/* It may post itself again, for the next run. */
static void
posted(struct hwt_post *begun)
{
	struct model_entry *entry = (void *)begun;
	struct model *outer = model;

	model = entry->model;
	model_check(entry->state == POSTED);
	pop_mail(entry);
	model->mail_begun++;
	entry->state = ENDED;
	memset(begun, 0xa5, sizeof(*begun));
	if (any_below(4) == 0 && !model->ending)
		post(entry);
	else if (depth < DEPTH_MAX && any_below(4) == 0)
		op_run_mailbox(any_below(4));
	else
		op_schedule();
	model = outer;
}

static void
op_post(void)
{
	struct model_entry *entry = free_entry();

	if (entry != NULL)
		post(entry);
}

/* last: the tick that had come when it was called. What was set meanwhile to a
 * deadline that had passed is due at the next boundary, unless an entry of its
 * record stood at one of the ticks that have been begun. */
static void
advance_ended(uint64_t last)
{
	unsigned index;

	for (index = 0; index < model->limit; index++) {
		struct model_entry *entry = &model->entries[index];

		if (entry->state != PENDING)
			continue;
		if (entry->in_turn && entry->tick <= last)
			entry->tick = last + 1;
		entry->in_turn = false;
		model_check(entry->tick > last);
	}
	model->turned_tick = last;
	/* All ticks up to there have been begun, and no others. */
	model_check(model->timer->wheel.next_tick == model->turned_tick + 1);
}

static void
op_advance(uint64_t step_ns)
{
	uint64_t tasks_started = UINT64_MAX;
	uint64_t last;
	int rc = model->stopped ? -ESHUTDOWN : model->advancing ? -EDEADLK : 0;

	if (rc != 0) {
		model_rc(hwt_advance, (model->timer, &tasks_started), rc);
		model_check(tasks_started == UINT64_MAX);
		return;
	}
	model->now_ns += step_ns;
	model->armed = false;
	model->advancing = true;
	model->frames++;
	model->tick_now = 0;
	model->advance_started = 0;
	last = last_tick();
	model_rc(hwt_advance, (model->timer, &tasks_started), 0);
	model->frames--;
	model->advancing = false;
	model_check(tasks_started == model->advance_started);
	advance_ended(last);
}

/* The earliest tick at which anything can be due, and the earliest at which
 * the worker may look at what is far away. */
static void
earliest_ticks(uint64_t *due, uint64_t *look)
{
	uint64_t apart = model->turned_tick + ROUNDS_APART * model->wheel;
	unsigned index;

	*due = TICK_NONE;
	for (index = 0; index < model->limit; index++) {
		const struct model_entry *entry = &model->entries[index];

		if (entry->state != PENDING)
			continue;
		if (entry->tick < *due)
			*due = entry->tick;
	}
	*look = *due;
	if (*look != TICK_NONE && *look > apart)
		*look = apart;
}

static uint64_t
wait_until(uint64_t tick)
{
	uint64_t boundary_ns = model->start_ns + tick * model->tick_ns;

	if (tick == TICK_NONE)
		return HWT_NEVER;
	return boundary_ns > model->now_ns ? boundary_ns - model->now_ns : 0;
}

/* The tick up to which the timer lets its user sleep: deadlines that belong to
 * an earlier one wake. 1: there is no earlier one that can be begun. */
static void
note_announced(void)
{
	uint64_t before_ns = a64_load_acquire(&model->timer->wake_before);

	model->armed = before_ns != 0;
	if (before_ns == 1)
		model->announced = model->turned_tick + 1;
	else if (before_ns == DEADLINE_NONE)
		model->announced = TICK_NONE;
	else
		model->announced =
		    (before_ns - 1 - model->start_ns) / model->tick_ns + 1;
}

static uint64_t
op_next_wakeup(void)
{
	uint64_t wait_ns = 1;
	uint64_t due;
	uint64_t look;

	model_rc(hwt_next_wakeup, (model->timer, &wait_ns), 0);
	if (model->stopped)
		model_check(wait_ns == HWT_NEVER);
	else if (model->advancing)
		model_check(wait_ns <= model->tick_ns);
	if (model->stopped || model->advancing)
		return wait_ns;
	earliest_ticks(&due, &look);
	model_check(wait_ns <= wait_until(due));
	model_check(wait_ns >= wait_until(look) ||
	    (wait_ns == 0 && wait_until(model->turned_tick + 1) == 0));
	note_announced();
	model_check(model->armed || wait_ns == 0);
	model_check(!model->armed || wait_until(model->announced) == wait_ns);
	return wait_ns;
}

/* The first stop is seldom: life_step does it. */
static void
op_stop(void)
{
	struct hwt_unprocessed unprocessed = {.count = 1};
	int rc = model->frames > 0 ? -EDEADLK : 0;

	if (rc == 0 && !model->stopped) {
		if (any_below(64) == 63)
			life_stop();
		return;
	}
	if (any_below(2) == 0)
		model_rc(hwt_stop, (model->timer, &unprocessed), rc);
	else
		model_rc(hwt_stop_within,
		    (model->timer, any_word(), &unprocessed), rc);
	model_check(unprocessed.count == 0);
}

static void
op_destroy(void)
{
	if (!model->stopped || held_count() > 0)
		model_rc(hwt_destroy, (model->timer), -EBUSY);
}

static uint64_t
any_step(void)
{
	uint64_t offset_ns = (model->now_ns - model->start_ns) % model->tick_ns;
	uint64_t wait_ns;

	switch (any_below(8)) {
	case 0:
		return 0;
	case 1:
		return any_below(model->tick_ns);
	case 2:
		return model->tick_ns - offset_ns;
	case 3:
		return model->tick_ns - offset_ns - 1;
	case 4:
		return any_below(4 * model->wheel) * model->tick_ns;
	case 5:
		return any_word_of(50);
	default:
		wait_ns = op_next_wakeup();
		return wait_ns >> 55 == 0 ? wait_ns : model->tick_ns;
	}
}

static uint64_t
any_bounded_step(void)
{
	uint64_t step_ns = any_step();
	bool fits =
	    model->now_ns < CLOCK_END && step_ns < CLOCK_END - model->now_ns;

	return fits ? step_ns : 0;
}

/* The clock moves on, and nobody turns the wheel. */
static void
op_clock(void)
{
	model->now_ns += any_bounded_step();
}

void
compare_counters(void)
{
	struct hwt_stats stats;
	uint64_t late = 0;
	unsigned index;

	model_rc(hwt_read_stats, (model->timer, &stats), 0);
	model_check(stats.scheduled == model->expected.scheduled);
	model_check(stats.started == model->expected.started);
	model_check(stats.cancelled == model->expected.cancelled);
	model_check(stats.rescheduled == model->expected.rescheduled);
	model_check(stats.rejected == model->expected.rejected);
	model_check(stats.executor_refused == model->expected.executor_refused);
	model_check(stats.pending == pending_count());
	model_check(stats.wakeups == 0);
	model_check(stats.ticks >= model->ticks_seen);
	model_check(stats.late_ticks <= stats.ticks);
	if (!model->advancing)
		model_check(stats.slow_tasks == model->expected.slow_tasks);
	for (index = 0; index < 64; index++)
		late += stats.lateness_ns_histogram[index];
	model_check(late == model->expired);
	model->ticks_seen = stats.ticks;
}

/* Handles that name nothing. */

static hwt_timeout
live_handle(const struct model *of)
{
	unsigned turn;

	for (turn = 0; turn < 32 && of->limit > 0; turn++) {
		const struct model_entry *entry =
		    &of->entries[any_below(of->limit)];

		if (entry->state != ENDED)
			return entry->handle;
	}
	return (hwt_timeout){any_word()};
}

static hwt_timeout
dead_handle(void)
{
	uint64_t known =
	    model->stale_count < STALE ? model->stale_count : STALE;
	uint64_t which = any_below(4);

	if (which == 0)
		return live_handle(
		    model == &models[0] ? &models[1] : &models[0]);
	if (any_below(8) == 0)
		return HWT_CLOSED;
	if (which == 1) {
		hwt_timeout live = live_handle(model);

		live.id ^= UINT64_C(1) << any_below(64);
		return live;
	}
	if (which == 2 || known == 0)
		return (hwt_timeout){any_word_of(64)};
	return model->stale[any_below(known)];
}

static void
op_dead_handle(void)
{
	hwt_timeout dead = dead_handle();
	hwt_timeout closed = HWT_CLOSED;
	int64_t remaining_ns = 1;
	void *arg = NULL;

	model_rc(hwt_cancel, (model->timer, dead), -ENOENT);
	model_rc(hwt_cancel_wait, (model->timer, dead), -ENOENT);
	model_rc(
	    hwt_reschedule, (model->timer, dead, any_word() >> 1), -ENOENT);
	model_rc(hwt_reschedule_at, (model->timer, dead, any_word()), -ENOENT);
	model_rc(hwt_remaining, (model->timer, dead, &remaining_ns), -ENOENT);
	model_rc(hwt_state, (model->timer, dead, &arg), -ENOENT);
	model_rc(hwt_run, (model->timer, dead), -ENOENT);
	model_check(remaining_ns == 1 && arg == NULL);
	model_rc(hwt_touch, (model->timer, NULL, &closed, model_task, NULL, 0),
	    -ECANCELED);
	model_check(closed.id == UINT64_MAX);
}

/* The other timer, from here. */
static void
op_other(void)
{
	struct model *outer = model;

	model = outer == &models[0] ? &models[1] : &models[0];
	if (model->timer != NULL)
		op_any();
	model = outer;
}

/* As if so much had been free for a while: pages, slabs and chunks are
 * released. */
static void
begin_trim(void)
{
	struct trim *trim = &model->timer->trim;

	if (trim->active)
		return;
	trim->active = true;
	a64_store_relaxed(&model->timer->store.trim_refused, 0);
	trim->slab = store_limit(&model->timer->store);
}

/* As many as there can be, in the wheel. */
void
op_fill(void)
{
	unsigned index;

	for (index = 0; index < model->limit; index++)
		op_schedule();
	op_advance(0);
}

static void
op_cancel_all(void)
{
	unsigned index;

	for (index = 0; index < model->limit; index++) {
		struct model_entry *entry = &model->entries[index];

		if (entry->state == PENDING && entry->handle.id != 0)
			op_cancel(entry, false);
	}
}

/* Complete pages are few as long as timeouts live. */
static void
op_trim(void)
{
	if (model->advancing || model->stopped)
		return;
	if (any_below(8) == 0)
		op_fill();
	if (any_below(2) == 0)
		op_cancel_all();
	begin_trim();
}

static void
op_seldom(void)
{
	switch (any_below(8)) {
	case 0:
	case 1:
		op_stop();
		break;
	case 2:
		op_destroy();
		break;
	case 3:
		op_trim();
		break;
	default:
		compare_counters();
	}
}

void
op_any(void)
{
	uint64_t which = any_below(32);

	model->operation++;
	if (which < 5)
		op_schedule();
	else if (which < 6)
		op_post();
	else if (which < 7)
		op_dead_handle();
	else if (which < 8)
		op_clock();
	else if (which < 10)
		op_cancel(any_entry(), false);
	else if (which < 12)
		op_cancel(any_entry(), true);
	else if (which < 16)
		op_reschedule(any_entry());
	else if (which < 17)
		op_touch(any_below(4) == 0 ? NULL : any_entry());
	else if (which < 18)
		op_state(any_entry());
	else if (which < 19)
		op_remaining(any_entry());
	else if (which < 22)
		op_run(any_entry());
	else if (which < 24)
		op_run_mailbox(any_below(4));
	else if (which < 26)
		(void)op_next_wakeup();
	else if (which < 27)
		op_seldom();
	else
		op_advance(model->advancing ? 0 : any_bounded_step());
}

/* A task does something to itself, and anything to others. */
void
op_in_task(struct model_entry *running)
{
	uint64_t turns = any_below(3);

	model_rc(hwt_run, (model->timer, running->handle), -ENOENT);
	while (turns-- > 0) {
		switch (any_below(11)) {
		case 0:
		case 5:
			op_reschedule(running);
			break;
		case 6:
			op_touch(running);
			break;
		case 7:
			op_state(running);
			break;
		case 1:
			op_cancel(running, true);
			break;
		case 2:
			op_remaining(running);
			break;
		case 3:
			op_stop();
			break;
		case 4:
			op_other();
			break;
		default:
			op_any();
		}
	}
	if (any_below(8) == 0)
		op_cancel(running, false);
}
