/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole of a manual timer against a model that is too simple to be wrong:
 * an array of timeouts, each with its state, deadline and tick. Random
 * operations go to both; every answer, every start, the pending count, the
 * waits, the wake-up calls and the counters must agree.
 *
 * How to read it: struct entry is what the model knows of one timeout. The
 * functions named op_ do one operation on both sides and compare. model_task
 * and model_execute are where the timer calls back; they ask the model whether
 * this timeout may start now, and change it. Tasks themselves do operations.
 *
 * HWT_SEED in the environment chooses another run; a failure tells it.
 */
#include "test/support_promises.h"

#include <stdlib.h>
#include <string.h>

SUITE(model);

#define ENTRIES 256
#define STALE 64
#define OPERATIONS 20000
#define BATCH_MAX 6

#define TICK_NONE UINT64_MAX
#define DEADLINE_NONE ((uint64_t)INT64_MAX)

/* A wheel may keep its rounds in 32 bits and look in between at what is
 * further away. */
#define ROUNDS_APART ((UINT64_C(1) << 31) - 2)

enum state {
	/* No such timeout. */
	ENDED,
	PENDING,
	/* An executor has it, live or cancelled. */
	HELD,
	REVOKED,
	RUNNING,
};

enum way {
	INLINE,
	HOLDS,
	REFUSES,
	RUNS,
	WAYS
};

struct entry {
	enum state state;
	enum way way;
	hwt_timeout handle;
	/* On the clock; DEADLINE_NONE: never due. */
	uint64_t deadline_ns;
	uint64_t tick;
	/* The earliest tick from which it was pushed out, if that has not come
	 * yet: there it may cost one wait in vain. */
	uint64_t superseded;
	uint64_t period_ns;
	/* Taken over by the worker since it was scheduled. */
	bool placed;
	/* Periodic and running: its last run; it has moved itself. */
	bool ending;
	bool moved;
};

struct model {
	struct hwt *timer;
	struct hwt_executor executors[WAYS];
	struct rng rng;
	uint64_t seed;
	uint64_t operation;

	uint64_t tick_ns;
	uint64_t wheel;
	uint64_t start_ns;
	uint64_t now_ns;
	uint64_t max_pending;
	struct entry entries[ENTRIES];
	hwt_timeout stale[STALE];
	uint64_t stale_count;

	bool advancing;
	bool stopped;
	unsigned depth;
	/* The tick whose timeouts are being handed over. */
	uint64_t tick_now;
	uint64_t advance_started;

	/* What hwt_next_wakeup said, as a tick, while it holds. */
	bool armed;
	uint64_t announced;
	uint64_t wakes;
	uint64_t wakes_expected;

	struct hwt_stats expected;
};

static struct model model;

/* Names the run that failed. */
#define model_check(condition)                                         \
	cr_assert((condition),                                         \
	    "%s: HWT_SEED=%" PRIu64 " wheel %" PRIu64 " tick %" PRIu64 \
	    " start %" PRIu64 " operation %" PRIu64,                   \
	    #condition, model.seed, model.wheel, model.tick_ns,        \
	    model.start_ns, model.operation)

#define model_rc(call, rc)                                                    \
	do {                                                                  \
		int rc_is = (call);                                           \
		int rc_wanted = (rc);                                         \
		cr_assert(rc_is == rc_wanted,                                 \
		    "%s is %s, not %s: HWT_SEED=%" PRIu64 " wheel %" PRIu64   \
		    " tick %" PRIu64 " start %" PRIu64 " operation %" PRIu64, \
		    #call, rc_name(rc_is), rc_name(rc_wanted), model.seed,    \
		    model.wheel, model.tick_ns, model.start_ns,               \
		    model.operation);                                         \
	} while (0)

/* The rules of the grid. */

static uint64_t
last_tick(void)
{
	return (model.now_ns - model.start_ns) / model.tick_ns;
}

static uint64_t
deadline_after(uint64_t delay_ns)
{
	if (delay_ns >= DEADLINE_NONE - model.now_ns)
		return DEADLINE_NONE;
	return model.now_ns + delay_ns;
}

static void
entry_set_deadline(struct entry *entry, uint64_t deadline_ns)
{
	uint64_t offset_ns = deadline_ns - model.start_ns;

	entry->deadline_ns = deadline_ns;
	entry->tick = TICK_NONE;
	if (deadline_ns == DEADLINE_NONE)
		return;
	entry->tick =
	    offset_ns / model.tick_ns + (offset_ns % model.tick_ns != 0);
	/* Asked for on a boundary, at once is the next one. */
	if (deadline_ns == model.now_ns && entry->tick == last_tick())
		entry->tick++;
}

/* The first grid point after now. */
static void
entry_set_next_period(struct entry *entry)
{
	uint64_t periods = 1;

	if (model.now_ns >= entry->deadline_ns)
		periods +=
		    (model.now_ns - entry->deadline_ns) / entry->period_ns;
	if (entry->deadline_ns == DEADLINE_NONE ||
	    periods >
		(DEADLINE_NONE - 1 - entry->deadline_ns) / entry->period_ns)
		entry_set_deadline(entry, DEADLINE_NONE);
	else
		entry_set_deadline(
		    entry, entry->deadline_ns + periods * entry->period_ns);
}

static uint64_t
pending_count(void)
{
	uint64_t count = 0;
	unsigned index;

	for (index = 0; index < ENTRIES; index++) {
		const struct entry *entry = &model.entries[index];

		count += entry->state == PENDING || entry->state == HELD ||
		    (entry->state == RUNNING && entry->period_ns != 0);
	}
	return count;
}

static void
entry_end(struct entry *entry)
{
	entry->state = ENDED;
	model.stale[model.stale_count++ % STALE] = entry->handle;
}

/* A deadline that comes before the announced wait wakes. */
static void
expect_wake_for(uint64_t tick)
{
	if (!model.armed || tick >= model.announced)
		return;
	model.armed = false;
	model.wakes_expected++;
}

/* A cancel wakes when the record waits in a bucket. One that is never due may
 * wait elsewhere. */
static void
expect_wake_for_cancel(const struct entry *entry)
{
	if (!model.armed || !entry->placed)
		return;
	if (entry->tick == TICK_NONE && model.wakes == model.wakes_expected)
		return;
	model.armed = false;
	model.wakes_expected++;
}

/* Random things. */

static uint64_t
any_delay(void)
{
	uint64_t delay_ns = rng_next(&model.rng);

	switch (rng_below(&model.rng, 8)) {
	case 0:
		return 0;
	case 1:
		return HWT_NEVER;
	case 2:
		return rng_below(&model.rng, 20) * model.tick_ns;
	case 3:
		return rng_below(&model.rng, 5) * model.wheel * model.tick_ns +
		    rng_below(&model.rng, 3) * (model.tick_ns - 1);
	case 4: /* onto a boundary */
		return (1 + rng_below(&model.rng, 40)) * model.tick_ns -
		    (model.now_ns - model.start_ns) % model.tick_ns;
	default:
		return delay_ns >> (1 + rng_below(&model.rng, 62));
	}
}

static uint64_t
bad_delay(void)
{
	return UINT64_MAX - 1 - (rng_next(&model.rng) >> 1) / 2;
}

static uint64_t
any_period(void)
{
	if (rng_below(&model.rng, 4) != 0)
		return 0;
	return 1 + (rng_next(&model.rng) >> (1 + rng_below(&model.rng, 62)));
}

/* An entry in use, or NULL. */
static struct entry *
any_entry(void)
{
	unsigned turn;

	for (turn = 0; turn < 32; turn++) {
		struct entry *entry =
		    &model.entries[rng_below(&model.rng, ENTRIES)];

		if (entry->state != ENDED)
			return entry;
	}
	return NULL;
}

static struct entry *
free_entry(void)
{
	unsigned index;

	for (index = 0; index < ENTRIES; index++)
		if (model.entries[index].state == ENDED)
			return &model.entries[index];
	return NULL;
}

static hwt_timeout
dead_handle(void)
{
	uint64_t known = model.stale_count < STALE ? model.stale_count : STALE;

	if (known == 0 || rng_below(&model.rng, 8) == 0)
		return (hwt_timeout){rng_next(&model.rng)};
	return model.stale[rng_below(&model.rng, known)];
}

/* Callbacks. */

static void op_in_task(struct entry *running);

static uint64_t
model_clock(void *ctx)
{
	(void)ctx;
	return model.now_ns;
}

static void
model_wake(void *ctx)
{
	(void)ctx;
	model.wakes++;
}

static void
model_log(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	(void)message;
}

/* The timer says that entry is due. */
static void
check_due(const struct entry *entry)
{
	model_check(model.advancing);
	model_check(entry->state == PENDING);
	model_check(entry->tick <= last_tick());
	model_check(entry->tick >= model.tick_now);
	model.tick_now = entry->tick;
}

static int
model_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	enum way way = (enum way)((struct hwt_executor *)ctx - model.executors);
	struct entry *entry = NULL;
	unsigned index;

	for (index = 0; index < ENTRIES; index++)
		if (model.entries[index].state == PENDING &&
		    model.entries[index].handle.id == timeout.id)
			entry = &model.entries[index];
	model_check(timer == model.timer);
	model_check(entry != NULL && entry->way == way);
	check_due(entry);
	entry->state = HELD;
	if (way == RUNS)
		model_rc(hwt_run(timer, timeout), 0);
	if (way != REFUSES)
		return 0;
	model.expected.executor_refused++;
	return -EAGAIN;
}

static void
run_ended(struct entry *entry)
{
	if (entry->period_ns == 0 || entry->ending || model.stopped) {
		entry_end(entry);
		return;
	}
	if (!entry->moved)
		entry_set_next_period(entry);
	entry->state = PENDING;
	entry->placed = false;
	entry->superseded = TICK_NONE;
	if (!model.advancing)
		expect_wake_for(entry->tick);
}

static void
model_task(hwt_timeout timeout, void *arg)
{
	struct entry *entry = arg;

	model_check(timeout.id == entry->handle.id);
	if (entry->way == INLINE)
		check_due(entry);
	else
		model_check(entry->state == HELD);
	if (entry->way == INLINE || entry->way == REFUSES)
		model.advance_started++;
	entry->state = RUNNING;
	entry->ending = false;
	entry->moved = false;
	model.expected.started++;
	model_check(hwt_pending_timeouts(model.timer) == pending_count());
	model.depth++;
	if (model.depth == 1 && !model.stopped)
		op_in_task(entry);
	model.depth--;
	run_ended(entry);
}

/* Operations. */

static bool
there_is_room(uint64_t count)
{
	return model.max_pending == 0 ||
	    pending_count() + count <= model.max_pending;
}

static void
entry_begin(struct entry *entry, hwt_timeout handle, uint64_t delay_ns)
{
	model_check(handle.id != 0);
	entry->state = PENDING;
	entry->handle = handle;
	entry->placed = false;
	entry->superseded = TICK_NONE;
	entry_set_deadline(entry, deadline_after(delay_ns));
	model.expected.scheduled++;
	expect_wake_for(entry->tick);
}

static const struct hwt_executor *
executor_of(enum way way)
{
	return way == INLINE ? NULL : &model.executors[way];
}

static void
op_schedule(void)
{
	struct entry *entry = free_entry();
	uint64_t delay_ns = any_delay();
	hwt_timeout handle = {1};

	if (entry == NULL)
		return;
	entry->way = (enum way)rng_below(&model.rng, WAYS);
	entry->period_ns = 0;
	if (rng_below(&model.rng, 32) == 0) {
		model_rc(hwt_new_timeout(model.timer, &handle, model_task,
			     entry, bad_delay()),
		    -EINVAL);
		model_check(handle.id == 0);
	} else if (!there_is_room(1)) {
		model_rc(hwt_new_timeout(
			     model.timer, &handle, model_task, entry, delay_ns),
		    -ENOBUFS);
		model_check(handle.id == 0);
		model.expected.rejected++;
	} else {
		model_rc(
		    hwt_new_timeout_on(model.timer, executor_of(entry->way),
			&handle, model_task, entry, delay_ns),
		    0);
		entry_begin(entry, handle, delay_ns);
	}
}

/* The library writes each handle before it knows that the whole was accepted;
 * entries that are free do not mind. */
static void
op_schedule_batch(void)
{
	struct hwt_spec specs[BATCH_MAX] = {0};
	struct entry *entries[BATCH_MAX];
	hwt_timeout handles[BATCH_MAX];
	uint64_t count = rng_below(&model.rng, BATCH_MAX + 1);
	bool bad = count > 0 && rng_below(&model.rng, 8) == 0;
	int rc = bad ? -EINVAL : there_is_room(count) ? 0 : -ENOBUFS;
	uint64_t index;

	for (index = 0; index < count; index++) {
		entries[index] = free_entry();
		if (entries[index] == NULL)
			break;
		entries[index]->state = RUNNING;
		entries[index]->way = (enum way)rng_below(&model.rng, WAYS);
		entries[index]->period_ns = any_period();
		specs[index].task = model_task;
		specs[index].arg = entries[index];
		specs[index].delay_ns = any_delay();
		specs[index].period_ns = entries[index]->period_ns;
		specs[index].executor = executor_of(entries[index]->way);
	}
	count = index;
	for (index = 0; index < count; index++)
		entries[index]->state = ENDED;
	if (bad && count > 0)
		specs[rng_below(&model.rng, count)].delay_ns = bad_delay();
	else
		rc = there_is_room(count) ? 0 : -ENOBUFS;
	if (rc == -ENOBUFS)
		model.expected.rejected += count;
	model_rc(hwt_new_timeouts(model.timer, count, specs, handles), rc);
	for (index = 0; index < count; index++) {
		if (rc == 0)
			entry_begin(entries[index], handles[index],
			    specs[index].delay_ns);
		else
			model_check(handles[index].id == 0);
	}
}

static void
op_cancel(bool wait)
{
	struct entry *entry = any_entry();
	int rc = -ENOENT;

	if (entry == NULL)
		return;
	if (entry->state == PENDING || entry->state == HELD)
		rc = 0;
	else if (entry->state == RUNNING)
		rc = wait ? -EDEADLK : -EINPROGRESS;
	if (wait)
		model_rc(hwt_cancel_wait(model.timer, entry->handle), rc);
	else
		model_rc(hwt_cancel(model.timer, entry->handle), rc);
	if (rc == -EINPROGRESS)
		entry->ending = true;
	if (rc != 0)
		return;
	model.expected.cancelled++;
	if (entry->state == HELD) {
		entry->state = REVOKED;
		return;
	}
	expect_wake_for_cancel(entry);
	entry_end(entry);
}

static int
reschedule_answer(const struct entry *entry)
{
	switch (entry->state) {
	case PENDING:
		return 0;
	case HELD:
		return -EINPROGRESS;
	case RUNNING:
		if (entry->period_ns == 0)
			return -EINPROGRESS;
		return entry->ending ? -ENOENT : 0;
	default:
		return -ENOENT;
	}
}

static void
op_reschedule(struct entry *entry)
{
	uint64_t delay_ns = any_delay();
	int rc;

	if (entry == NULL)
		return;
	if (rng_below(&model.rng, 32) == 0) {
		model_rc(
		    hwt_reschedule(model.timer, entry->handle, bad_delay()),
		    -EINVAL);
		return;
	}
	rc = reschedule_answer(entry);
	model_rc(hwt_reschedule(model.timer, entry->handle, delay_ns), rc);
	if (rc != 0)
		return;
	model.expected.rescheduled++;
	if (entry->state == PENDING && entry->tick < entry->superseded)
		entry->superseded = entry->tick;
	entry_set_deadline(entry, deadline_after(delay_ns));
	if (entry->state == RUNNING)
		entry->moved = true;
	else
		expect_wake_for(entry->tick);
}

static void
op_remaining(void)
{
	const struct entry *entry = any_entry();
	int64_t remaining_ns = 1;
	int rc = 0;

	if (entry == NULL)
		return;
	if (entry->state == RUNNING)
		rc = -EINPROGRESS;
	else if (entry->state == REVOKED)
		rc = -ENOENT;
	model_rc(hwt_remaining(model.timer, entry->handle, &remaining_ns), rc);
	if (rc != 0)
		model_check(remaining_ns == 1);
	else if (entry->deadline_ns == DEADLINE_NONE)
		model_check(remaining_ns == INT64_MAX);
	else
		model_check(remaining_ns ==
		    (int64_t)(entry->deadline_ns - model.now_ns));
}

static void
op_dead_handle(void)
{
	hwt_timeout dead = dead_handle();
	int64_t remaining_ns;

	model_rc(hwt_cancel(model.timer, dead), -ENOENT);
	model_rc(hwt_cancel_wait(model.timer, dead), -ENOENT);
	model_rc(hwt_reschedule(model.timer, dead, any_delay()), -ENOENT);
	model_rc(hwt_remaining(model.timer, dead, &remaining_ns), -ENOENT);
	model_rc(hwt_run(model.timer, dead), -ENOENT);
}

/* What an executor does in its own time. */
static void
op_run(struct entry *entry)
{
	int rc = -ENOENT;

	if (entry == NULL)
		return;
	if (entry->state == HELD)
		rc = 0;
	if (entry->state == REVOKED)
		entry_end(entry);
	model_rc(hwt_run(model.timer, entry->handle), rc);
}

static void
op_advance(uint64_t step_ns)
{
	uint64_t tasks_started = UINT64_MAX;
	unsigned index;

	model.now_ns += step_ns;
	model.armed = false;
	model.advancing = true;
	model.tick_now = 0;
	model.advance_started = 0;
	model_rc(hwt_advance(model.timer, &tasks_started), 0);
	model.advancing = false;
	model_check(tasks_started == model.advance_started);
	for (index = 0; index < ENTRIES; index++) {
		struct entry *entry = &model.entries[index];

		if (entry->state != PENDING)
			continue;
		model_check(entry->tick > last_tick());
		entry->placed = true;
		if (entry->superseded <= last_tick())
			entry->superseded = TICK_NONE;
	}
}

/* The earliest tick at which anything can be due, and the earliest at which
 * the worker may look in vain. */
static void
earliest_ticks(uint64_t *due, uint64_t *look)
{
	unsigned index;

	*due = TICK_NONE;
	*look = TICK_NONE;
	for (index = 0; index < ENTRIES; index++) {
		struct entry *entry = &model.entries[index];

		if (entry->state != PENDING)
			continue;
		entry->placed = true;
		if (entry->tick < *due)
			*due = entry->tick;
		if (entry->superseded < *look)
			*look = entry->superseded;
	}
	if (*due < *look)
		*look = *due;
	if (*look != TICK_NONE &&
	    *look > last_tick() + ROUNDS_APART * model.wheel)
		*look = last_tick() + ROUNDS_APART * model.wheel;
}

static uint64_t
wait_until(uint64_t tick)
{
	uint64_t boundary_ns = model.start_ns + tick * model.tick_ns;

	if (tick == TICK_NONE)
		return HWT_NEVER;
	return boundary_ns > model.now_ns ? boundary_ns - model.now_ns : 0;
}

static uint64_t
op_next_wakeup(void)
{
	uint64_t wait_ns = 1;
	uint64_t due;
	uint64_t look;

	model_rc(hwt_next_wakeup(model.timer, &wait_ns), 0);
	earliest_ticks(&due, &look);
	model_check(wait_ns <= wait_until(due));
	model_check(wait_ns >= wait_until(look));
	model.armed = true;
	model.announced = TICK_NONE;
	if (wait_ns == HWT_NEVER)
		return wait_ns;
	model.announced =
	    (model.now_ns + wait_ns - model.start_ns) / model.tick_ns;
	model_check(wait_ns == 0 || wait_until(model.announced) == wait_ns);
	return wait_ns;
}

/* In a task: only what needs no thought about which others are running. */
static void
op_in_task(struct entry *running)
{
	unsigned turn = (unsigned)rng_below(&model.rng, 3);

	model_rc(hwt_run(model.timer, running->handle), -ENOENT);
	while (turn-- > 0) {
		switch (rng_below(&model.rng, 8)) {
		case 0:
			op_schedule();
			break;
		case 1:
			op_schedule_batch();
			break;
		case 2:
			op_cancel(false);
			break;
		case 3:
			op_cancel(true);
			break;
		case 4:
			op_reschedule(running);
			break;
		case 5:
			op_reschedule(any_entry());
			break;
		case 6:
			op_remaining();
			break;
		default:
			model_rc(hwt_stop(model.timer, NULL), -EDEADLK);
		}
	}
	/* The last word, since places are given back when it has ended. */
	if (rng_below(&model.rng, 8) == 0) {
		model_rc(
		    hwt_cancel(model.timer, running->handle), -EINPROGRESS);
		running->ending = true;
	}
}

static uint64_t
any_step(void)
{
	uint64_t offset_ns = (model.now_ns - model.start_ns) % model.tick_ns;
	uint64_t wait_ns;

	switch (rng_below(&model.rng, 8)) {
	case 0:
		return 0;
	case 1:
		return rng_below(&model.rng, model.tick_ns);
	case 2:
		return model.tick_ns - offset_ns;
	case 3:
		return model.tick_ns - offset_ns - 1;
	case 4:
		return rng_below(&model.rng, 4 * model.wheel) * model.tick_ns;
	case 5:
		return rng_next(&model.rng) >> (14 + rng_below(&model.rng, 50));
	default:
		wait_ns = op_next_wakeup();
		return wait_ns >> 55 == 0 ? wait_ns : model.tick_ns;
	}
}

static void
op_any(void)
{
	switch (rng_below(&model.rng, 16)) {
	case 0:
	case 1:
	case 2:
		op_schedule();
		break;
	case 3:
		op_schedule_batch();
		break;
	case 4:
		op_cancel(false);
		break;
	case 5:
		op_cancel(true);
		break;
	case 6:
	case 7:
	case 8:
		op_reschedule(any_entry());
		break;
	case 9:
		op_remaining();
		break;
	case 10:
		op_dead_handle();
		break;
	case 11:
	case 12:
		op_run(any_entry());
		break;
	case 13:
		op_next_wakeup();
		break;
	default:
		/* The clock ends somewhere. */
		if (model.now_ns - model.start_ns < UINT64_C(1) << 60)
			op_advance(any_step());
	}
}

static void
compare_counters(void)
{
	struct hwt_stats stats;

	model_rc(hwt_read_stats(model.timer, &stats), 0);
	model_check(stats.scheduled == model.expected.scheduled);
	model_check(stats.started == model.expected.started);
	model_check(stats.cancelled == model.expected.cancelled);
	model_check(stats.rescheduled == model.expected.rescheduled);
	model_check(stats.rejected == model.expected.rejected);
	model_check(stats.executor_refused == model.expected.executor_refused);
	model_check(stats.pending == pending_count());
}

static void
model_open(uint64_t wheel, uint64_t tick_ns, uint64_t start_ns)
{
	struct hwt_clock clock = {.now_ns = model_clock};
	struct hwt_wake wake = {.wake = model_wake};
	struct hwt_log log = {.write = model_log};
	struct hwt_options options = {.tick_ns = tick_ns,
	    .ticks_per_wheel = (uint32_t)wheel,
	    .flags = HWT_MANUAL,
	    .clock = &clock,
	    .wake = &wake,
	    .log = &log};
	struct rng rng = model.rng;
	uint64_t seed = model.seed;
	unsigned way;

	memset(&model, 0, sizeof(model));
	model.rng = rng;
	model.seed = seed;
	model.wheel = wheel;
	model.tick_ns = tick_ns;
	model.start_ns = start_ns;
	model.now_ns = start_ns;
	if (rng_below(&model.rng, 2) == 0)
		model.max_pending = 1 + rng_below(&model.rng, ENTRIES / 2);
	options.max_pending = model.max_pending;
	for (way = 0; way < WAYS; way++)
		model.executors[way] = (struct hwt_executor){
		    .execute = model_execute, .ctx = &model.executors[way]};
	model_rc(hwt_create(&model.timer, &options), 0);
}

/* All that is pending is given back, each once and as it was. */
static void
check_unprocessed(struct hwt_unprocessed *unprocessed)
{
	struct hwt_timeout_info info;
	uint64_t count = 0;

	while (hwt_unprocessed_next(unprocessed, &info)) {
		struct entry *entry = info.arg;

		count++;
		model_check(entry->state == PENDING);
		model_check(info.timeout.id == entry->handle.id);
		model_check(info.task == model_task);
		model_check(info.period_ns == entry->period_ns);
		model_check(info.executor == executor_of(entry->way));
		model_check(info.remaining_ns ==
		    (entry->deadline_ns == DEADLINE_NONE
			    ? INT64_MAX
			    : (int64_t)(entry->deadline_ns - model.now_ns)));
		entry_end(entry);
	}
	model_check(unprocessed->count == count);
}

static void
model_close(void)
{
	struct hwt_unprocessed unprocessed;
	bool held = false;
	unsigned index;

	model_rc(hwt_stop(model.timer, &unprocessed), 0);
	model.stopped = true;
	check_unprocessed(&unprocessed);
	for (index = 0; index < ENTRIES; index++) {
		model_check(model.entries[index].state != PENDING);
		held = held || model.entries[index].state != ENDED;
	}
	compare_counters();
	if (held)
		model_rc(hwt_destroy(model.timer), -EBUSY);
	for (index = 0; index < ENTRIES; index++)
		if (model.entries[index].state != ENDED)
			op_run(&model.entries[index]);
	compare_counters();
	model_check(pending_count() == 0);
	model_rc(hwt_destroy(model.timer), 0);
}

static void
compare_seed(uint64_t seed, uint64_t wheel)
{
	static const uint64_t ticks[] = {HWT_US(10), HWT_MS(1), HWT_MS(100)};
	static const uint64_t starts[] = {0, 12345, UINT64_C(1) << 62};
	unsigned run;

	model.seed = seed;
	model.rng.state = seed;
	for (run = 0; run < 9; run++) {
		model_open(wheel, ticks[run % 3], starts[run / 3]);
		while (model.operation++ < OPERATIONS) {
			op_any();
			model_check(model.wakes == model.wakes_expected);
			model_check(hwt_pending_timeouts(model.timer) ==
			    pending_count());
			if (model.operation % 64 == 0)
				compare_counters();
		}
		model_close();
	}
}

static void
compare(uint64_t wheel)
{
	/* All but the first have found something. */
	static const uint64_t seeds[] = {1, 103, 104, 107};
	const char *seed = getenv("HWT_SEED");
	unsigned index;

	if (seed != NULL) {
		compare_seed(strtoull(seed, NULL, 0), wheel);
		return;
	}
	for (index = 0; index < sizeof(seeds) / sizeof(seeds[0]); index++)
		compare_seed(seeds[index], wheel);
}

Test(model, a_wheel_of_1_does_as_the_model)
{
	compare(1);
}

Test(model, a_wheel_of_2_does_as_the_model)
{
	compare(2);
}

Test(model, a_wheel_of_8_does_as_the_model)
{
	compare(8);
}

Test(model, a_wheel_of_512_does_as_the_model)
{
	compare(512);
}
