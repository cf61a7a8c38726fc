/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the grid, and where the timer calls back. See random.h. */
#include "test/random/random.h"

#include <inttypes.h>
#include <stdio.h>

struct model models[MODELS];
struct model *model = &models[0];
unsigned depth;
struct checker checker;
void (*random_failed)(const char *text);

void
model_object(const char *text)
{
	char line[1024];

	(void)snprintf(line, sizeof(line),
	    "timer %td, wheel %" PRIu64 ", tick %" PRIu64 ", start %" PRIu64
	    ", clock %" PRIu64 ", operation %" PRIu64 ": %s",
	    model - models, model->wheel, model->tick_ns, model->start_ns,
	    model->now_ns, model->operation, text);
	random_failed(line);
	abort();
}

void
model_answered(enum call which, const char *name, int rc, int expected)
{
	char text[128];

	cover_call(which, rc);
	if (rc == expected)
		return;
	(void)snprintf(text, sizeof(text), "%s answered %s, not %s", name,
	    cover_rc_name(rc), cover_rc_name(expected));
	model_object(text);
}

/* The grid. */

uint64_t
last_tick(void)
{
	return (model->now_ns - model->start_ns) / model->tick_ns;
}

uint64_t
deadline_after(uint64_t delay_ns)
{
	if (delay_ns == 0)
		delay_ns = 1;
	if (delay_ns >= DEADLINE_NONE - model->now_ns)
		return DEADLINE_NONE;
	return model->now_ns + delay_ns;
}

/* The first tick that has not been begun. */
static uint64_t
open_tick(void)
{
	uint64_t begun = model->turned_tick;

	if (model->advancing && model->tick_now > begun)
		begun = model->tick_now;
	return begun + 1;
}

uint64_t
deadline_at(uint64_t deadline_ns)
{
	if (deadline_ns > DEADLINE_NONE)
		return DEADLINE_NONE;
	return deadline_ns != 0 ? deadline_ns : 1;
}

static uint64_t
boundary_of(uint64_t tick)
{
	return model->start_ns + tick * model->tick_ns;
}

static uint64_t
tick_of(uint64_t deadline_ns)
{
	uint64_t offset_ns, tick;

	if (deadline_ns <= model->start_ns)
		return open_tick();
	offset_ns = deadline_ns - model->start_ns;
	tick = offset_ns / model->tick_ns + (offset_ns % model->tick_ns != 0);
	return tick > open_tick() ? tick : open_tick();
}

void
entry_set_deadline(struct model_entry *entry, uint64_t deadline_ns)
{
	entry->deadline_ns = deadline_ns;
	entry->tick = TICK_NONE;
	entry->begun_tick = TICK_NONE;
	entry->relative = false;
	entry->far = false;
	entry->in_turn = model->advancing;
	if (deadline_ns == DEADLINE_NONE)
		return;
	entry->tick = tick_of(deadline_ns);
	if (model->advancing && entry->tick == model->tick_now + 1 &&
	    deadline_ns <= boundary_of(model->tick_now))
		entry->begun_tick = model->tick_now;
	if (entry->tick > last_tick() &&
	    (entry->tick - last_tick()) / model->wheel >= ROUNDS_APART) {
		entry->far = true;
		cover_event(EVENT_DELAY_FAR);
	}
}

/* The first grid point after now. */
static void
entry_set_next_period(struct model_entry *entry)
{
	uint64_t periods = 1;

	if (model->now_ns >= entry->deadline_ns)
		periods +=
		    (model->now_ns - entry->deadline_ns) / entry->period_ns;
	cover_event(periods == 1 ? EVENT_PERIOD_NEXT : EVENT_PERIOD_COALESCED);
	if (entry->deadline_ns == DEADLINE_NONE ||
	    periods >
		(DEADLINE_NONE - 1 - entry->deadline_ns) / entry->period_ns)
		entry_set_deadline(entry, DEADLINE_NONE);
	else
		entry_set_deadline(
		    entry, entry->deadline_ns + periods * entry->period_ns);
}

void
entries_taken(void)
{
	unsigned index;

	for (index = 0; index < model->limit; index++) {
		struct model_entry *entry = &model->entries[index];

		if (entry->state != PENDING)
			continue;
		entry->placed = true;
		if (entry->relative)
			entry_set_deadline(
			    entry, deadline_after(entry->delay_ns));
	}
}

/* What counts. */

uint64_t
pending_count(void)
{
	uint64_t count = 0;
	unsigned index;

	for (index = 0; index < model->limit; index++) {
		const struct model_entry *entry = &model->entries[index];

		count += entry->state == PENDING || entry->state == HELD ||
		    (entry->state == RUNNING && entry->period_ns != 0);
	}
	return count;
}

uint64_t
held_count(void)
{
	uint64_t count = 0;
	unsigned index;

	for (index = 0; index < model->limit; index++) {
		const struct model_entry *entry = &model->entries[index];

		count += entry->state == HELD || entry->state == REVOKED ||
		    (entry->state == RUNNING && entry->way != INLINE);
	}
	return count;
}

bool
there_is_room(uint64_t count)
{
	return model->max_pending == 0 ||
	    pending_count() + count <= model->max_pending;
}

/* A deadline that comes before the announced wait wakes. */
void
expect_wake_for(uint64_t tick)
{
	if (!model->armed || tick >= model->announced)
		return;
	model->armed = false;
	model->wakes_expected++;
}

void
entry_named(struct model_entry *entry, hwt_timeout handle)
{
	if (entry->handle.id == 0) {
		model_check(is_new_handle(handle));
		entry->handle = handle;
	}
	model_check(entry->handle.id == handle.id);
}

static void
entry_accept(struct model_entry *entry, hwt_timeout handle)
{
	entry->state = PENDING;
	entry->handle.id = 0;
	if (handle.id != 0)
		entry_named(entry, handle);
	entry->placed = false;
	entry->entry_tick = 0;
	model->expected.scheduled++;
}

void
entry_begin_at(
    struct model_entry *entry, hwt_timeout handle, uint64_t deadline_ns)
{
	entry_accept(entry, handle);
	entry_set_deadline(entry, deadline_at(deadline_ns));
	expect_wake_for(entry->tick);
	note_reuse(handle);
	if (entry->deadline_ns < model->now_ns)
		cover_event(EVENT_DEADLINE_PASSED);
	if (model->advancing && entry->tick <= last_tick())
		cover_event(EVENT_DEADLINE_IN_TURN);
}

/* A relaxed timeout's delay is to run as soon as may be. */
void
entry_begin(struct model_entry *entry, hwt_timeout handle, uint64_t delay_ns)
{
	entry_accept(entry, handle);
	entry_set_deadline(entry, deadline_after(delay_ns));
	entry->delay_ns = delay_ns != 0 ? delay_ns : 1;
	entry->relative = model->relaxed && delay_ns != HWT_NEVER;
	expect_wake_for(entry->relative ? 0 : entry->tick);
	if (entry->relative)
		cover_event(EVENT_RELATIVE);
	else
		note_reuse(handle);
	if (delay_ns == 0)
		cover_event(EVENT_DELAY_NONE);
	else if (delay_ns == HWT_NEVER)
		cover_event(EVENT_DELAY_NEVER);
	else if (entry->deadline_ns == DEADLINE_NONE)
		cover_event(EVENT_DELAY_BEYOND);
}

void
entry_end(struct model_entry *entry)
{
	entry->state = ENDED;
	model->stale[model->stale_count++ % STALE] = entry->handle;
}

/* Callbacks. */

const struct hwt_executor *
executor_of(enum way way)
{
	return way == INLINE ? NULL : &model->executors[way].hook;
}

uint64_t
model_clock(void *ctx)
{
	const struct model *of = ctx;

	return of->now_ns;
}

void
model_wake(void *ctx)
{
	struct model *of = ctx;

	of->wakes++;
	cover_event(EVENT_WOKEN);
}

void
model_log(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	(void)message;
}

/* The timer says that entry is due. */
static void
check_due(const struct model_entry *entry)
{
	uint64_t tick = model->timer->wheel.next_tick - 1;

	model_check(model->advancing);
	model_check(entry->state == PENDING);
	model_check(!entry->relative);
	model_check(tick == entry->tick || tick == entry->begun_tick ||
	    (entry->in_turn && tick > entry->tick));
	model_check(tick <= last_tick());
	model_check(tick >= model->tick_now);
	model->tick_now = tick;
	model->expiry_ns = model->now_ns;
	model->expired++;
}

/* And has done with it. */
static void
expiry_ended(void)
{
	if (model->slow_ns == 0 ||
	    model->now_ns - model->expiry_ns <= model->slow_ns)
		return;
	model->expected.slow_tasks++;
	cover_event(EVENT_TASK_SLOW);
}

/* Before execute answers, it may do what a task may, also to this timeout. */
static void
op_in_execute(struct model_entry *entry)
{
	if (any_below(8) != 0)
		return;
	if (depth < DEPTH_MAX && any_below(2) == 0) {
		depth++;
		op_any();
		depth--;
	}
	if (entry->state == HELD && any_below(2) == 0) {
		model_rc(hwt_cancel, (model->timer, entry->handle), 0);
		model->expected.cancelled++;
		entry->state = REVOKED;
		cover_event(EVENT_REVOKED_IN_EXECUTE);
	}
}

static int
execute_entry(struct model_entry *entry)
{
	const struct hwt_executor *mailbox;
	bool revoked = entry->state == REVOKED;

	if (entry->way == MAILS) {
		mailbox = hwt_mailbox_executor(model->mailbox);
		model->mail[model->mail_end++ % ENTRIES] = entry;
		model_check(mailbox->execute(mailbox->ctx, model->timer,
				entry->handle) == 0);
	}
	if (entry->way == HOLDS || entry->way == MAILS)
		return 0;
	if (revoked)
		entry_end(entry);
	if (entry->way == RUNS) {
		model_rc(hwt_run, (model->timer, entry->handle),
		    revoked ? -ENOENT : 0);
		return 0;
	}
	model->expected.executor_refused++;
	return -1 - (int)any_below(256);
}

int
model_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	const struct way_executor *executor = ctx;
	struct model *outer = model;
	struct model_entry *entry;
	void *arg = NULL;
	int refused;

	model = executor->model;
	model_check(timer == model->timer);
	model_rc(hwt_state, (timer, timeout, &arg), HWT_STATE_HANDED_OVER);
	entry = arg;
	entry_named(entry, timeout);
	model_check(entry->way == executor->way);
	check_due(entry);
	entry->state = HELD;
	op_in_execute(entry);
	refused = execute_entry(entry);
	if (refused == 0 || entry->state != HELD)
		expiry_ended();
	model = outer;
	return refused;
}

static void
run_ended(struct model_entry *entry)
{
	if (entry->period_ns == 0 || entry->ending || model->stopped) {
		if (entry->period_ns != 0)
			cover_event(EVENT_PERIOD_ENDED);
		entry_end(entry);
		return;
	}
	if (entry->moved)
		cover_event(EVENT_PERIOD_MOVED);
	else
		entry_set_next_period(entry);
	/* Its task may have turned the wheel since. */
	if (entry->tick < open_tick())
		entry->tick = open_tick();
	entry->state = PENDING;
	entry->placed = false;
	entry->entry_tick = 0;
	if (!model->advancing)
		expect_wake_for(entry->tick);
}

/* What lies before it in the mailbox was cancelled, and is released now. */
static void
pop_mail(const struct model_entry *entry)
{
	struct model_entry *oldest;

	model_check(model->mail_running > 0);
	for (;;) {
		model_check(model->mail_first < model->mail_end);
		oldest = model->mail[model->mail_first++ % ENTRIES];
		if (oldest == entry)
			return;
		model_check(oldest->state == REVOKED);
		entry_end(oldest);
	}
}

static void
run_begins(struct model_entry *entry)
{
	static const enum event events[] = {EVENT_TASK_IN_WORKER,
	    EVENT_TASK_LATE, EVENT_TASK_REFUSED, EVENT_TASK_IN_EXECUTE,
	    EVENT_TASK_FROM_MAILBOX};

	if (entry->way == INLINE)
		check_due(entry);
	else
		model_check(entry->state == HELD);
	if (entry->way == MAILS) {
		pop_mail(entry);
		model->mail_started++;
	}
	if (entry->way == INLINE || entry->way == REFUSES)
		model->advance_started++;
	cover_event(events[entry->way]);
	if (depth > 0)
		cover_event(EVENT_TASK_NESTED);
	if (model->stopped)
		cover_event(EVENT_TASK_AFTER_STOP);
	if (entry->far)
		cover_event(EVENT_TASK_FAR);
	entry->far = false;
}

void
model_task(hwt_timeout timeout, void *arg)
{
	struct model_entry *entry = arg;
	struct model *outer = model;

	model = entry->model;
	entry_named(entry, timeout);
	run_begins(entry);
	entry->state = RUNNING;
	entry->ending = false;
	entry->moved = false;
	model->expected.started++;
	model_check(hwt_pending_timeouts(model->timer) == pending_count());
	model->frames++;
	if (depth++ < DEPTH_MAX)
		op_in_task(entry);
	depth--;
	model->frames--;
	if (entry->way == INLINE || entry->way == REFUSES)
		expiry_ended();
	run_ended(entry);
	model = outer;
}
