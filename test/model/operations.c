/* SPDX-License-Identifier: Apache-2.0 */
/* One operation each, on the timer and in the model. See model.h. */
#include "test/model/model.h"

#include <poll.h>

/* The clock ends somewhere. */
#define CLOCK_END ((UINT64_C(1) << 63) - (UINT64_C(1) << 20))

/* Random things. */

static bool
delay_is_bad(uint64_t delay_ns)
{
	return delay_ns >> 63 != 0 && delay_ns != HWT_NEVER;
}

static uint64_t
any_delay(void)
{
	uint64_t round_ns = model->wheel * model->options.tick_ns;
	uint64_t delay_ns;

	if (any_below(64) == 0)
		return UINT64_MAX - 1 - (any_word() >> 1) / 2;
	switch (any_below(10)) {
	case 0:
		return 0;
	case 1:
		return HWT_NEVER;
	case 2:
		return any_below(20) * model->options.tick_ns;
	case 3:
		return any_below(5) * round_ns +
		    any_below(3) * (model->options.tick_ns - 1);
	case 4: /* onto a boundary */
		return (1 + any_below(40)) * model->options.tick_ns -
		    (model->now_ns - model->start_ns) % model->options.tick_ns;
	case 5: /* about as many rounds as can be distinguished */
		if (round_ns >> 30 != 0)
			return round_ns;
		return ((UINT64_C(1) << 30) + any_below(9) - 4) * round_ns;
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
		    (last_tick() + any_below(8) / 2) * model->options.tick_ns -
		    any_below(2);
	default:
		return deadline_after(any_delay());
	}
}

/* One that is free; or one in use, whose handle is known. NULL: none. */
static struct model_entry *
find_entry(struct model *of, bool used)
{
	unsigned first = of->limit == 0 ? 0 : (unsigned)any_below(of->limit);
	unsigned i;

	for (i = 0; i < of->limit; i++) {
		struct model_entry *entry =
		    &of->entries[(first + i) % of->limit];

		if ((entry->state != ENDED) == used &&
		    (!used || entry->handle.id != 0))
			return entry;
	}
	return NULL;
}

/* Calls, and what each answers for a timeout that has ended, is pending, held,
 * revoked, or running. */

struct asked {
	struct model_entry *entry;
	hwt_timeout handle;
	/* Where the handle is written: as above, or nowhere. */
	hwt_timeout *told;
	uint64_t time_ns;
	int64_t remaining_ns;
	void *arg;
};

enum call {
	CANCEL,
	CANCEL_WAIT,
	RESCHEDULE,
	RESCHEDULE_AT,
	REMAINING,
	STATE,
	RUN,
	CALLS_OF_A_TIMEOUT,
	NEW_TIMEOUT = CALLS_OF_A_TIMEOUT,
	NEW_TIMEOUT_ON,
	NEW_TIMEOUT_AT,
	NEW_PERIODIC,
	TOUCH,
	CALLS,
};

#define CALL(function, ...)                                 \
	static int call_##function(struct asked *asked)     \
	{                                                   \
		return function(model->timer, __VA_ARGS__); \
	}
CALL(hwt_cancel, asked->handle)
CALL(hwt_cancel_wait, asked->handle)
CALL(hwt_reschedule, asked->handle, asked->time_ns)
CALL(hwt_reschedule_at, asked->handle, asked->time_ns)
CALL(hwt_remaining, asked->handle, &asked->remaining_ns)
CALL(hwt_state, asked->handle, &asked->arg)
CALL(hwt_run, asked->handle)
CALL(hwt_new_timeout, asked->told, model_task, asked->entry, asked->time_ns)
#define ON_ITS_EXECUTOR(told) \
	asked->entry->executor, told, model_task, asked->entry, asked->time_ns
CALL(hwt_new_timeout_on, ON_ITS_EXECUTOR(asked->told))
CALL(hwt_new_timeout_at, ON_ITS_EXECUTOR(asked->told))
CALL(hwt_new_periodic, ON_ITS_EXECUTOR(asked->told), asked->entry->period_ns)
CALL(hwt_touch, ON_ITS_EXECUTOR(&asked->handle))

#define NAMED(function) #function, call_##function
static const struct {
	const char *name;
	int (*call)(struct asked *asked);
	int rc[RUNNING + 1];
} calls[CALLS] = {
    [CANCEL] = {NAMED(hwt_cancel), {-ENOENT, 0, 0, -ENOENT, -EINPROGRESS}},
    [CANCEL_WAIT] = {NAMED(hwt_cancel_wait),
	{-ENOENT, 0, 0, -ENOENT, -EDEADLK}},
    [RESCHEDULE] = {NAMED(hwt_reschedule),
	{-ENOENT, 0, -EINPROGRESS, -ENOENT, -EINPROGRESS}},
    [RESCHEDULE_AT] = {NAMED(hwt_reschedule_at),
	{-ENOENT, 0, -EINPROGRESS, -ENOENT, -EINPROGRESS}},
    [REMAINING] = {NAMED(hwt_remaining),
	{-ENOENT, 0, 0, -ENOENT, -EINPROGRESS}},
    [STATE] = {NAMED(hwt_state),
	{-ENOENT, HWT_STATE_PENDING, HWT_STATE_HANDED_OVER, -ENOENT,
	    HWT_STATE_RUNNING}},
    [RUN] = {NAMED(hwt_run), {-ENOENT, -ENOENT, 0, -ENOENT, -ENOENT}},
    [NEW_TIMEOUT] = {NAMED(hwt_new_timeout), {0}},
    [NEW_TIMEOUT_ON] = {NAMED(hwt_new_timeout_on), {0}},
    [NEW_TIMEOUT_AT] = {NAMED(hwt_new_timeout_at), {0}},
    [NEW_PERIODIC] = {NAMED(hwt_new_periodic), {0}},
    [TOUCH] = {NAMED(hwt_touch), {0}},
};

/* A delay comes first, whatever it is for. */
static int
ask(enum call call, struct asked *asked, int rc)
{
	bool at = call == RESCHEDULE_AT || call == NEW_TIMEOUT_AT;

	if (!at && delay_is_bad(asked->time_ns))
		rc = -EINVAL;
	model_asks();
	return model_answered(calls[call].name, calls[call].call(asked), rc);
}

/* The task of a periodic timeout may move it. */
static int
answer_of(enum call call, const struct model_entry *entry)
{
	bool moves = call == RESCHEDULE || call == RESCHEDULE_AT;

	if (moves && entry->state == RUNNING && entry->period_ns != 0)
		return entry->ending || model->stopped ? -ENOENT : 0;
	return calls[call].rc[entry->state];
}

static int64_t
remaining_of(const struct model_entry *entry)
{
	if (entry->deadline_ns == DEADLINE_NONE)
		return INT64_MAX;
	return (int64_t)(entry->deadline_ns - model->now_ns);
}

static int
ask_of(enum call call, struct model_entry *entry, uint64_t time_ns)
{
	struct asked asked = {entry, entry->handle, NULL, time_ns, 1, NULL};
	int64_t remaining_ns = remaining_of(entry);
	int rc = ask(call, &asked, answer_of(call, entry));

	if (call != REMAINING || rc != 0)
		remaining_ns = 1;
	model_check(asked.remaining_ns == remaining_ns);
	model_check(asked.arg == (call == STATE && rc > 0 ? entry : NULL));
	return rc;
}

/* Operations. */

static void
entry_choose(struct model_entry *entry, bool with_executor)
{
	enum way way = with_executor ? (enum way)any_below(WAYS) : INLINE;

	entry->executor = executor_of(way);
	entry->way = way == INLINE ? model->default_way : way;
	entry->period_ns = 0;
}

static void
op_schedule(void)
{
	static const enum call all[] = {NEW_TIMEOUT, NEW_TIMEOUT_ON,
	    NEW_TIMEOUT_ON, NEW_TIMEOUT_AT, NEW_TIMEOUT_AT, NEW_PERIODIC};
	enum call call = ANY_OF(all);
	bool at = call == NEW_TIMEOUT_AT;
	struct asked asked = {find_entry(model, false), {1}, NULL,
	    at ? any_deadline() : any_delay(), 1, NULL};

	if (asked.entry == NULL)
		return;
	entry_choose(asked.entry, call != NEW_TIMEOUT);
	if (call == NEW_PERIODIC && any_below(4) != 0)
		asked.entry->period_ns = 1 + any_word_of(62);
	if (any_below(16) != 0)
		asked.told = &asked.handle;
	else
		asked.handle.id = 0;
	if (ask(call, &asked,
		call == NEW_PERIODIC && asked.entry->period_ns == 0
		    ? -EINVAL
		    : new_answer()) == 0)
		entry_begin(asked.entry, asked.handle,
		    at ? deadline_at(asked.time_ns)
		       : deadline_after(asked.time_ns));
	else
		model_check(asked.handle.id == 0);
}

void
op_cancel(struct model_entry *entry)
{
	int rc = ask_of(any_below(2) == 0 ? CANCEL : CANCEL_WAIT, entry, 0);

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
	uint64_t time_ns = any_delay();

	if (ask_of(RESCHEDULE, entry, time_ns) == 0)
		entry_move(entry, deadline_after(time_ns));
}

static void
op_reschedule_at(struct model_entry *entry)
{
	uint64_t time_ns = any_deadline();

	if (ask_of(RESCHEDULE_AT, entry, time_ns) == 0)
		entry_move(entry, deadline_at(time_ns));
}

/* Whether a touch of it makes a new one. NULL: there is none yet. */
static bool
touch_replaces(const struct model_entry *entry)
{
	int rc = entry == NULL ? -ENOENT : answer_of(RESCHEDULE, entry);

	return rc == -ENOENT || (rc == -EINPROGRESS && entry->period_ns == 0);
}

/* What an executor holds is cancelled if a new one is made. NULL: there is no
 * timeout yet. */
static void
op_touch(struct model_entry *entry)
{
	hwt_timeout before = {entry != NULL ? entry->handle.id : 0};
	struct asked asked = {
	    find_entry(model, false), before, NULL, any_delay(), 1, NULL};
	bool replaces = touch_replaces(entry);
	int rc;

	if (asked.entry == NULL)
		return;
	entry_choose(asked.entry, true);
	rc = ask(TOUCH, &asked,
	    replaces ? new_answer() : answer_of(RESCHEDULE, entry));
	if (rc == 0 && replaces) {
		if (entry != NULL && entry->state == HELD) {
			entry->state = REVOKED;
			model->expected.cancelled++;
		}
		entry_begin(
		    asked.entry, asked.handle, deadline_after(asked.time_ns));
		return;
	}
	model_check(asked.handle.id == before.id);
	if (rc == 0)
		entry_move(entry, deadline_after(asked.time_ns));
}

static void
op_touch_none(void)
{
	op_touch(NULL);
}

static void
op_state(struct model_entry *entry)
{
	(void)ask_of(any_below(2) == 0 ? STATE : REMAINING, entry, 0);
}

/* Calls of an executor in its own time; and forbidden ones. */
void
op_run(struct model_entry *entry)
{
	bool revoked = entry->state == REVOKED;

	if (entry->way != HOLDS && (entry->state == HELD || revoked))
		return;
	(void)ask_of(RUN, entry, 0);
	if (revoked)
		entry_end(entry);
}

/* The mailbox. */

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
op_run_mailbox(void)
{
	uint64_t end = model->mail_end;
	size_t max = any_below(4);
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
		op_run_mailbox();
	else
		op_schedule();
	model = outer;
}

static void
op_post(void)
{
	struct model_entry *entry = find_entry(model, false);

	if (entry != NULL)
		post(entry);
}

/* The wheel is turned. */

/* last: the tick that had come when it was called. What was set meanwhile to a
 * deadline that had passed is due at the next boundary, unless an entry of its
 * record stood at one of the ticks that have been begun. */
static void
advance_ended(uint64_t last)
{
	struct model_entry *entry;

	for (EACH(entry)) {
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
advance(uint64_t step_ns)
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

/* The earliest tick at which anything can be due. */
static uint64_t
earliest_tick(void)
{
	const struct model_entry *entry;
	uint64_t due = TICK_NONE;

	for (EACH(entry))
		if (entry->state == PENDING && entry->tick < due)
			due = entry->tick;
	return due;
}

static uint64_t
wait_until(uint64_t tick)
{
	uint64_t boundary_ns = model->start_ns + tick * model->options.tick_ns;

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
		    (before_ns - 1 - model->start_ns) / model->options.tick_ns +
		    1;
}

static uint64_t
next_wakeup(void)
{
	uint64_t apart = model->turned_tick + ROUNDS_APART * model->wheel;
	uint64_t wait_ns = 1, due;

	model_rc(hwt_next_wakeup, (model->timer, &wait_ns), 0);
	if (model->stopped)
		model_check(wait_ns == HWT_NEVER);
	else if (model->advancing)
		model_check(wait_ns <= model->options.tick_ns);
	if (model->stopped || model->advancing)
		return wait_ns;
	due = earliest_tick();
	model_check(wait_ns <= wait_until(due));
	/* The worker may look in between at what is far away. */
	if (due != TICK_NONE && due > apart)
		due = apart;
	model_check(wait_ns >= wait_until(due) ||
	    (wait_ns == 0 && wait_until(model->turned_tick + 1) == 0));
	note_announced();
	model_check(model->armed || wait_ns == 0);
	model_check(!model->armed || wait_until(model->announced) == wait_ns);
	return wait_ns;
}

static void
op_next_wakeup(void)
{
	(void)next_wakeup();
}

static uint64_t
any_step(void)
{
	uint64_t offset_ns =
	    (model->now_ns - model->start_ns) % model->options.tick_ns;
	uint64_t wait_ns;

	switch (any_below(8)) {
	case 0:
		return 0;
	case 1:
		return any_below(model->options.tick_ns);
	case 2:
		return model->options.tick_ns - offset_ns;
	case 3:
		return model->options.tick_ns - offset_ns - 1;
	case 4:
		return any_below(4 * model->wheel) * model->options.tick_ns;
	case 5:
		return any_word_of(50);
	default:
		wait_ns = next_wakeup();
		return wait_ns >> 55 == 0 ? wait_ns : model->options.tick_ns;
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

static void
op_advance(void)
{
	advance(model->advancing ? 0 : any_bounded_step());
}

/* The clock moves on, and nobody turns the wheel. */
static void
op_clock(void)
{
	uint64_t now_ns;

	model->now_ns += any_bounded_step();
	model_rc(hwt_now, (model->timer, &now_ns), 0);
	model_check(now_ns == model->now_ns);
}

/* The rest. */

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

#define SAME(member, ...) model_check(stats.member == expected->member);

void
compare_counters(void)
{
	struct hwt_stats *expected = &model->expected;
	struct hwt_stats stats;
	uint64_t late = 0;
	unsigned index;

	model_rc(hwt_read_stats, (model->timer, &stats), 0);
	model_check(stats.pending == pending_count());
	model_check(stats.ticks >= expected->ticks);
	model_check(stats.late_ticks <= stats.ticks);
	expected->ticks = stats.ticks;
	expected->late_ticks = stats.late_ticks;
	CACHE_COUNTERS(SAME)
	if (!model->advancing) {
		WORKER_COUNTERS(SAME)
	}
	for (index = 0; index < 64; index++)
		late += stats.lateness_ns_histogram[index];
	model_check(late == model->expired);
}

static struct model *
other_model(void)
{
	return model == &models[0] ? &models[1] : &models[0];
}

/* It names nothing here. */
static hwt_timeout
dead_handle(void)
{
	uint64_t known =
	    model->stale_count < STALE ? model->stale_count : STALE;
	uint64_t which = any_below(4);
	const struct model_entry *live =
	    find_entry(which == 0 ? other_model() : model, true);

	if (any_below(8) == 0)
		return HWT_CLOSED;
	if (which == 0 && live != NULL)
		return live->handle;
	if (which == 1 && live != NULL)
		return (hwt_timeout){
		    live->handle.id ^ UINT64_C(1) << any_below(64)};
	if (which == 2 || known == 0)
		return (hwt_timeout){any_word_of(64)};
	return model->stale[any_below(known)];
}

static void
op_dead_handle(void)
{
	struct model_entry dead = {.state = ENDED, .handle = dead_handle()};
	struct asked closed = {&dead, HWT_CLOSED, NULL, 0, 1, NULL};
	enum call call;

	for (call = 0; call < CALLS_OF_A_TIMEOUT; call++)
		(void)ask_of(call, &dead, any_word() >> 1);
	(void)ask(TOUCH, &closed, -ECANCELED);
	model_check(closed.handle.id == UINT64_MAX);
}

/* The other timer, from here. */
static void
op_other(void)
{
	struct model *outer = model;

	model = other_model();
	if (model->timer != NULL)
		op_any();
	model = outer;
}

/* As many as there can be, in the wheel. */
void
op_fill(void)
{
	const struct model_entry *entry;

	for (EACH(entry))
		op_schedule();
	advance(0);
}

static void
cancel_all(void)
{
	struct model_entry *entry;

	for (EACH(entry))
		if (entry->state == PENDING && entry->handle.id != 0)
			op_cancel(entry);
}

/* As if so much had been free for a while: pages, slabs and chunks are
 * released. Complete pages are few as long as timeouts live. */
static void
op_trim(void)
{
	struct trim *trim = &model->timer->trim;

	if (model->advancing || model->stopped)
		return;
	if (any_below(8) == 0)
		op_fill();
	if (any_below(2) == 0)
		cancel_all();
	if (trim->active)
		return;
	trim->active = true;
	a64_store_relaxed(&model->timer->store.trim_refused, 0);
	trim->slab = store_limit(&model->timer->store);
}

/* Each as often as its weight says; of: of a timeout. */
struct operation {
	unsigned weight;
	void (*alone)(void);
	void (*of)(struct model_entry *entry);
};

static void
operate(const struct operation *operation, struct model_entry *entry)
{
	uint64_t total = 0, at;
	unsigned i;

	for (i = 0; operation[i].weight != 0; i++)
		total += operation[i].weight;
	for (at = any_below(total); at >= operation->weight; operation++)
		at -= operation->weight;
	if (operation->alone != NULL)
		operation->alone();
	else if (entry != NULL)
		operation->of(entry);
}

void
op_any(void)
{
	static const struct operation operations[] = {{40, op_schedule, NULL},
	    {8, op_post, NULL}, {8, op_dead_handle, NULL}, {8, op_clock, NULL},
	    {32, NULL, op_cancel}, {16, NULL, op_reschedule},
	    {16, NULL, op_reschedule_at}, {6, NULL, op_touch},
	    {2, op_touch_none, NULL}, {16, NULL, op_state}, {24, NULL, op_run},
	    {16, op_run_mailbox, NULL}, {16, op_next_wakeup, NULL},
	    {40, op_advance, NULL}, {2, op_stop, NULL}, {1, op_destroy, NULL},
	    {4, op_trim, NULL}, {4, compare_counters, NULL}, {0, NULL, NULL}};

	model->operation++;
	operate(operations, find_entry(model, true));
}

/* A task does something to itself, and anything to others. */
void
op_in_task(struct model_entry *running)
{
	static const struct operation operations[] = {{1, NULL, op_reschedule},
	    {1, NULL, op_reschedule_at}, {1, NULL, op_touch},
	    {2, NULL, op_state}, {2, NULL, op_cancel}, {1, NULL, op_run},
	    {1, op_stop, NULL}, {1, op_other, NULL}, {4, op_any, NULL},
	    {0, NULL, NULL}};
	uint64_t turns = any_below(3);

	while (turns-- > 0)
		operate(operations, running);
}
