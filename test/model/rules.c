/* SPDX-License-Identifier: Apache-2.0 */
/* A timer's options and the rules that they make. See model.h. */
#include "test/model/model.h"

#include <inttypes.h>
#include <stdio.h>

/* Answers of a call when one of the system fails: as hwt.h lists it. */
static const struct {
	const char *call;
	int rc[3];
} failing[] = {
    {"hwt_create", {-EAGAIN, -ENOMEM, -EINVAL}},
    {"hwt_start", {-EAGAIN, -ENOMEM}},
    {"hwt_stop", {-EDEADLK}},
    {"hwt_stop_within", {-EDEADLK, -ETIMEDOUT}},
    {"hwt_new_timeout", {-EAGAIN, -ENOMEM}},
    {"hwt_new_timeout_on", {-EAGAIN, -ENOMEM}},
    {"hwt_new_timeout_at", {-EAGAIN, -ENOMEM}},
    {"hwt_new_periodic", {-EAGAIN, -ENOMEM}},
    {"hwt_touch", {-EAGAIN, -ENOMEM}},
    {"hwt_shared", {-EAGAIN, -ENOMEM}},
    {"hwt_shared_shutdown", {-EDEADLK}},
    {"hwt_mailbox_create", {-EMFILE, -ENFILE, -ENOMEM}},
    {"hwt_pool_create", {-EAGAIN, -ENOMEM}},
    {"hwt_stats_write", {-EIO, -ENOSPC}},
    {"hwt_dump", {-EIO, -ENOMEM, -ENOSPC}},
};

struct model models[MODELS];
struct model *model = &models[0];
unsigned depth;
struct model_options model_now;
void (*model_failed)(const char *text);

void
model_object(const char *text)
{
	char line[1024];

	(void)snprintf(line, sizeof(line),
	    "timer %td, wheel %" PRIu64 ", tick %" PRIu64 ", start %" PRIu64
	    ", clock %" PRIu64 ", operation %" PRIu64 ": %s",
	    model - models, model->wheel, model->options.tick_ns,
	    model->start_ns, model->now_ns, model->operation, text);
	model_failed(line);
	abort();
}

bool
may_fail(const char *call, int rc)
{
	unsigned i, k;

	for (i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
		for (k = 0; k < 3; k++) {
			if (rc < 0 && failing[i].rc[k] == rc &&
			    strcmp(failing[i].call, call) == 0)
				return true;
		}
	}
	return false;
}

uint64_t calls_compared;
static uint64_t failures_before;

void
model_asks(void)
{
	failures_before = plan_failures();
}

int
model_answered(const char *call, int rc, int expected)
{
	char text[128];

	calls_compared++;
	model->expected.rejected += rc == -ENOBUFS;
	if (rc == expected ||
	    (plan_failures() > failures_before && rc == -plan_answer() &&
		may_fail(call, rc)))
		return rc;
	(void)snprintf(
	    text, sizeof(text), "%s answered %d, not %d", call, rc, expected);
	model_object(text);
	return rc;
}

/* Options. */

static uint64_t
any_wheel(void)
{
	static const uint32_t lengths[] = {
	    1, 1, 2, 3, 8, 8, 60, 64, 512, 512, 5000, 65536};

	if (any_below(16) == 15)
		return 1 + any_below(4096);
	return ANY_OF(lengths);
}

static void
choose_times(void)
{
	static const uint64_t ticks[] = {
	    HWT_US(10), HWT_US(10), 12347, HWT_MS(1), HWT_MS(100), HWT_MIN(60)};
	static const uint64_t starts[] = {0, 12345, UINT64_C(1) << 62,
	    (UINT64_C(1) << 63) - (UINT64_C(1) << 45)};

	model->options.tick_ns = ANY_OF(ticks);
	model->start_ns = ANY_OF(starts);
	if (any_below(16) == 15)
		model->options.tick_ns = HWT_US(10) + any_word_of(40);
	if (any_below(16) == 15)
		model->start_ns = any_word_of(63);
	model->now_ns = model->start_ns;
}

static void
choose_size(uint64_t wheel)
{
	model->limit = any_below(4) == 0 ? 16 : 256;
	model->left = 300 + any_below(3000);
	if (wheel > 512)
		model->left /= 8;
	if (wheel <= 512 && any_below(20) == 0) {
		model->limit = ENTRIES;
		model->left = 700;
	}
	if (any_below(2) == 0)
		model->options.max_pending = 1 + any_below(model->limit);
	if (any_below(16) == 15)
		model->options.max_pending = any_word();
}

/* Inputs of the rules below. */
void
choose_options(void)
{
	uint64_t wheel = any_wheel();

	choose_times();
	choose_size(wheel);
	model->options.ticks_per_wheel = (uint32_t)wheel;
	for (model->wheel = 1; model->wheel < wheel;)
		model->wheel *= 2;
	if (any_below(2) == 0)
		model->options.slow_task_ns =
		    1 + any_below(2 * model->options.tick_ns);
}

/* The grid. */

uint64_t
last_tick(void)
{
	return (model->now_ns - model->start_ns) / model->options.tick_ns;
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
	return model->start_ns + tick * model->options.tick_ns;
}

static uint64_t
tick_of(uint64_t deadline_ns)
{
	uint64_t offset_ns, tick;

	if (deadline_ns <= model->start_ns)
		return open_tick();
	offset_ns = deadline_ns - model->start_ns;
	tick = offset_ns / model->options.tick_ns +
	    (offset_ns % model->options.tick_ns != 0);
	return tick > open_tick() ? tick : open_tick();
}

void
entry_set_deadline(struct model_entry *entry, uint64_t deadline_ns)
{
	entry->deadline_ns = deadline_ns;
	entry->tick = TICK_NONE;
	entry->begun_tick = TICK_NONE;
	entry->in_turn = model->advancing;
	if (deadline_ns == DEADLINE_NONE)
		return;
	entry->tick = tick_of(deadline_ns);
	if (model->advancing && entry->tick == model->tick_now + 1 &&
	    deadline_ns <= boundary_of(model->tick_now))
		entry->begun_tick = model->tick_now;
}

/* The first grid point after now. */
static void
entry_set_next_period(struct model_entry *entry)
{
	uint64_t periods = 1;

	if (model->now_ns >= entry->deadline_ns)
		periods +=
		    (model->now_ns - entry->deadline_ns) / entry->period_ns;
	if (entry->deadline_ns == DEADLINE_NONE ||
	    periods >
		(DEADLINE_NONE - 1 - entry->deadline_ns) / entry->period_ns)
		entry_set_deadline(entry, DEADLINE_NONE);
	else
		entry_set_deadline(
		    entry, entry->deadline_ns + periods * entry->period_ns);
}

/* Counters. */

uint64_t
pending_count(void)
{
	const struct model_entry *entry;
	uint64_t count = 0;

	for (EACH(entry))
		count += entry->state == PENDING || entry->state == HELD ||
		    (entry->state == RUNNING && entry->period_ns != 0);
	return count;
}

uint64_t
held_count(void)
{
	const struct model_entry *entry;
	uint64_t count = 0;

	for (EACH(entry))
		count += entry->state == HELD || entry->state == REVOKED ||
		    (entry->state == RUNNING && entry->way != INLINE);
	return count;
}

int
new_answer(void)
{
	uint64_t max = model->options.max_pending;

	if (model->stopped)
		return -ESHUTDOWN;
	return max == 0 || pending_count() < max ? 0 : -ENOBUFS;
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

/* No handle of a timer is given twice, until 2^36 of one record were. */
static bool
is_new_handle(hwt_timeout handle)
{
	uint64_t *last = &model->handles[handle.id & INDEX_MASK];
	uint64_t ahead = (handle.id - *last) >> INDEX_BITS;
	bool first = *last == 0;

	*last = handle.id;
	return first || (ahead != 0 && ahead < GENERATION_MASK / 2);
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

void
entry_begin(struct model_entry *entry, hwt_timeout handle, uint64_t deadline_ns)
{
	entry->state = PENDING;
	entry->handle.id = 0;
	if (handle.id != 0)
		entry_named(entry, handle);
	model->expected.scheduled++;
	entry_set_deadline(entry, deadline_ns);
	expect_wake_for(entry->tick);
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
	if (model->options.slow_task_ns != 0 &&
	    model->now_ns - model->expiry_ns > model->options.slow_task_ns)
		model->expected.slow_tasks++;
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
	if (entry->state == HELD && any_below(2) == 0)
		op_cancel(entry);
}

static int
execute_entry(struct model_entry *entry)
{
	const struct hwt_executor *mailbox;
	bool revoked = entry->state == REVOKED;
	uint64_t failures;

	if (entry->way == MAILS) {
		mailbox = hwt_mailbox_executor(model->mailbox);
		model->mail[model->mail_end++ % ENTRIES] = entry;
		failures = plan_failures();
		model_check(mailbox->execute(mailbox->ctx, model->timer,
				entry->handle) == 0);
		model->mail_silent = plan_failures() > failures;
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
		entry_end(entry);
		return;
	}
	if (!entry->moved)
		entry_set_next_period(entry);
	/* Its task may have turned the wheel since. */
	if (entry->tick < open_tick())
		entry->tick = open_tick();
	entry->state = PENDING;
	if (!model->advancing)
		expect_wake_for(entry->tick);
}

void
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
	if (entry->way == INLINE)
		check_due(entry);
	else
		model_check(entry->state == HELD);
	if (entry->way == MAILS) {
		pop_mail(entry);
		model->mail_started++;
		model->mail_begun++;
	}
	if (entry->way == INLINE || entry->way == REFUSES)
		model->advance_started++;
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
