/* SPDX-License-Identifier: Apache-2.0 */
/* The calls. See fuzz.h. */
#include "test/fuzz/fuzz.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "test/random/checker.h"

/* How many timeouts a batch may have, and how long an input may go on. */
#define BATCH_LIMIT 80u
#define CALLS_MAX 600u
#define WHEEL_LIMIT 4096u
#define CHECK_EVERY 8u

struct fuzz fuzz;

static struct checker checker;

static void any_calls(unsigned count);

/* Callbacks. */

static uint64_t
fuzz_clock(void *ctx)
{
	const struct fuzz_timer *timer = ctx;

	return timer->now_ns;
}

static void
fuzz_wake(void *ctx)
{
	struct fuzz_timer *timer = ctx;

	timer->wakes++;
}

static void
fuzz_log(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	require(message != NULL);
}

static void
fuzz_task(hwt_timeout timeout, void *arg)
{
	struct slot *slot = arg;
	struct fuzz_timer *timer = &fuzz.timers[slot->timer];

	slot_runs(slot, timeout);
	timer->frames++;
	if (fuzz.depth++ < DEPTH_MAX)
		any_calls(input_byte() % 4);
	fuzz.depth--;
	timer->frames--;
	slot_ran(slot);
}

static unsigned
timer_number(const struct hwt *timer)
{
	unsigned i = 0;

	while (i < TIMERS && fuzz.timers[i].timer != timer)
		i++;
	require(i < TIMERS);
	return i;
}

/* An executor of our own: the next byte tells what it does. */
static int
fuzz_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	unsigned number = timer_number(timer);
	struct slot *slot = slot_of(number, timeout);
	uint8_t what = input_byte();

	(void)ctx;
	require(fuzz.timers[number].advancing);
	if (slot != NULL) {
		require(!slot->ended && !slot->held && !slot->running);
		slot->held = true;
	}
	if (fuzz.depth < DEPTH_MAX && what % 16 == 15) {
		fuzz.depth++;
		any_calls(1);
		fuzz.depth--;
	}
	/* Without a slot there is nobody who would run it later. */
	if (what % 4 == 1 || slot == NULL)
		return -1 - what;
	if (what % 4 == 2)
		(void)hwt_run(timer, timeout);
	return 0;
}

/* Mail goes through here, so that it is known. */
static int
mail_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	const struct hwt_executor *mailbox = hwt_mailbox_executor(fuzz.mailbox);
	struct slot *slot = slot_of(timer_number(timer), timeout);

	(void)ctx;
	if (slot != NULL) {
		require(!slot->ended && !slot->held && !slot->running);
		slot->held = true;
		slot->in_mailbox = true;
	}
	return mailbox->execute(mailbox->ctx, timer, timeout);
}

static const struct hwt_executor executors[] = {
    {.execute = fuzz_execute}, {.execute = mail_execute}, {.execute = NULL}};

static const struct hwt_executor *
input_executor(void)
{
	uint8_t which = input_byte();

	if (which % 4 == 0)
		return NULL;
	/* One without a function, seldom. */
	return &executors[which == UINT8_MAX ? 2 : which % 2];
}

/* Calls. */

static void
call_new(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	const struct hwt_executor *executor = input_executor();
	uint64_t delay_ns = input_delay(timer);
	bool wanted = !input_chance(8);
	struct slot *slot = slot_new(number, false);
	hwt_timeout handle = {1};
	int rc;

	if (slot == NULL)
		return;
	rc = hwt_new_timeout_on(timer->timer, executor, wanted ? &handle : NULL,
	    fuzz_task, slot, delay_ns);
	if (rc == 0) {
		require(!timer->stopped);
		slot_accepted(slot, wanted ? handle : (hwt_timeout){0});
		return;
	}
	require(!wanted || handle.id == 0);
	require(rc == -EINVAL || rc == -ENOBUFS ||
	    (rc == -ESHUTDOWN && timer->stopped));
}

/* Deadlines have no range. */
static void
call_new_at(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	const struct hwt_executor *executor = input_executor();
	uint64_t deadline_ns = input_word();
	struct slot *slot = slot_new(number, false);
	hwt_timeout handle = {1};
	int rc;

	if (slot == NULL)
		return;
	if (input_chance(2))
		deadline_ns = timer->now_ns + input_delay(timer);
	rc = hwt_new_timeout_at(
	    timer->timer, executor, &handle, fuzz_task, slot, deadline_ns);
	if (rc == 0) {
		require(!timer->stopped);
		slot_accepted(slot, handle);
		return;
	}
	require(handle.id == 0);
	require(rc == -ENOBUFS ||
	    (rc == -EINVAL && executor == &executors[2]) ||
	    (rc == -ESHUTDOWN && timer->stopped));
}

static void
input_spec(unsigned number, struct hwt_spec *spec)
{
	*spec = (struct hwt_spec){.task = fuzz_task,
	    .delay_ns = input_delay(&fuzz.timers[number]),
	    .period_ns = input_chance(2) ? input_word() : 0,
	    .executor = input_executor()};
	if (input_chance(64))
		spec->task = NULL;
	if (input_chance(64))
		spec->reserved[input_byte() % 3] = input_word();
	spec->arg = slot_new(number, spec->period_ns != 0);
}

static void
call_new_batch(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	struct hwt_spec specs[BATCH_LIMIT];
	hwt_timeout handles[BATCH_LIMIT];
	unsigned count = input_byte() % 8;
	bool wanted = !input_chance(16);
	unsigned i;
	int rc;

	if (input_chance(16))
		count = input_byte() % BATCH_LIMIT;
	for (i = 0; i < count; i++) {
		input_spec(number, &specs[i]);
		if (specs[i].arg == NULL)
			return;
	}
	rc = hwt_new_timeouts(
	    timer->timer, count, specs, wanted ? handles : NULL);
	require(rc == 0 || rc == -EINVAL || rc == -ENOBUFS ||
	    (rc == -ESHUTDOWN && timer->stopped));
	for (i = 0; i < count; i++) {
		require(rc == 0 || !wanted || handles[i].id == 0);
		if (rc == 0)
			slot_accepted(specs[i].arg,
			    wanted ? handles[i] : (hwt_timeout){0});
	}
}

static void
call_cancel(unsigned number)
{
	hwt_timeout handle = input_handle(number);

	note_cancel(number, handle,
	    hwt_cancel(fuzz.timers[number].timer, handle), false);
}

/* It never waits here: what runs runs on this thread. */
static void
call_cancel_wait(unsigned number)
{
	hwt_timeout handle = input_handle(number);

	note_cancel(number, handle,
	    hwt_cancel_wait(fuzz.timers[number].timer, handle), true);
}

static void
call_reschedule(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	hwt_timeout handle = input_handle(number);
	uint64_t delay_ns = input_delay(timer);
	int rc = hwt_reschedule(timer->timer, handle, delay_ns);

	if (rc == -EINVAL)
		require(delay_ns >> 63 != 0 && delay_ns != HWT_NEVER);
	else
		note_reschedule(number, handle, rc);
}

static void
call_reschedule_at(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	hwt_timeout handle = input_handle(number);
	uint64_t deadline_ns = timer->now_ns + input_delay(timer);

	if (input_chance(4))
		deadline_ns = input_word();
	note_reschedule(number, handle,
	    hwt_reschedule_at(timer->timer, handle, deadline_ns));
}

/* A variable that does not change names what was rescheduled, or nothing has
 * changed. Otherwise what an executor holds was cancelled. */
static void
call_touch(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	const struct hwt_executor *executor = input_executor();
	hwt_timeout handle = input_handle(number);
	uint64_t delay_ns = input_delay(timer);
	struct slot *slot = slot_new(number, false);
	hwt_timeout variable = handle;
	int before = hwt_state(timer->timer, handle, NULL);
	int rc;

	if (slot == NULL)
		return;
	rc = hwt_touch(
	    timer->timer, executor, &variable, fuzz_task, slot, delay_ns);
	if (variable.id != handle.id) {
		require(rc == 0 && !timer->stopped);
		slot_accepted(slot, variable);
		if (before == HWT_STATE_HANDED_OVER)
			note_cancel(number, handle, 0, false);
		return;
	}
	if (rc == 0 || rc == -EINPROGRESS)
		note_reschedule(number, handle, rc);
	else
		require(rc == -EINVAL || rc == -ENOBUFS ||
		    (rc == -ESHUTDOWN && timer->stopped));
}

static void
check_state(unsigned number, hwt_timeout handle)
{
	const struct slot *slot = slot_of(number, handle);
	void *arg = NULL;
	int rc = hwt_state(fuzz.timers[number].timer, handle, &arg);

	if (slot == NULL)
		return;
	if (slot->ended)
		require(rc == -ENOENT && arg == NULL);
	else
		require(rc > 0 && arg == slot);
}

static void
call_remaining(unsigned number)
{
	hwt_timeout handle = input_handle(number);
	int64_t remaining_ns = 0;

	check_state(number, handle);
	note_remaining(number, handle,
	    hwt_remaining(fuzz.timers[number].timer, handle, &remaining_ns));
}

/* What a mailbox holds, only that may run. */
static void
call_run(unsigned number)
{
	hwt_timeout handle = input_handle(number);
	const struct slot *slot = slot_of(number, handle);
	bool held = slot != NULL && slot->held && !slot->ended;
	int rc;

	if (slot != NULL && slot->in_mailbox)
		return;
	rc = hwt_run(fuzz.timers[number].timer, handle);
	require(rc == (held ? 0 : -ENOENT));
}

static void
move_clock(struct fuzz_timer *timer)
{
	uint64_t room_ns = (UINT64_C(1) << 63) - 2 - timer->now_ns;
	uint64_t step_ns = input_word();

	if (step_ns % 4 != 3)
		step_ns = HWT_US(10) * (step_ns / 4 % 65536) + step_ns % 4;
	timer->now_ns += step_ns < room_ns ? step_ns : room_ns;
}

static void
call_advance(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	uint64_t started = UINT64_MAX;
	bool nested = timer->advancing;
	int rc;

	move_clock(timer);
	timer->advancing = true;
	timer->frames++;
	rc = hwt_advance(timer->timer, &started);
	timer->frames--;
	timer->advancing = nested;
	require(rc == (timer->stopped ? -ESHUTDOWN : nested ? -EDEADLK : 0));
	require((rc == 0) == (started != UINT64_MAX));
}

static void
call_next_wakeup(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	uint64_t wait_ns = 1;

	require(hwt_next_wakeup(timer->timer, &wait_ns) == 0);
	require(!timer->stopped || wait_ns == HWT_NEVER);
	if (input_chance(2) && wait_ns < UINT64_C(1) << 60 &&
	    timer->now_ns < UINT64_C(1) << 62)
		timer->now_ns += wait_ns;
}

static void
call_mailbox(unsigned number)
{
	size_t max = input_byte() % 4;
	size_t started = SIZE_MAX;

	(void)number;
	require(hwt_mailbox_fd(fuzz.mailbox) >= 0);
	require(hwt_mailbox_run(fuzz.mailbox, max, &started) == 0);
	require(started <= SLOTS * CALLS_MAX);
}

static void
call_read(unsigned number)
{
	const struct fuzz_timer *timer = &fuzz.timers[number];
	struct hwt_stats stats;

	require(hwt_read_stats(timer->timer, &stats) == 0);
	require(stats.pending == hwt_pending_timeouts(timer->timer));
	require(stats.scheduled == timer->accepted);
	if (!timer->stopped)
		require(hwt_destroy(timer->timer) == -EBUSY);
}

static void
call_stop(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	struct hwt_unprocessed unprocessed = {0};
	bool drop = input_chance(4);
	uint64_t wait_ns = input_word();
	int rc;

	if (wait_ns % 2 == 0)
		rc = hwt_stop(timer->timer, drop ? NULL : &unprocessed);
	else
		rc = hwt_stop_within(
		    timer->timer, wait_ns, drop ? NULL : &unprocessed);
	if (timer->frames > 0) {
		require(rc == -EDEADLK);
		return;
	}
	require(rc == 0);
	if (timer->stopped)
		require(unprocessed.count == 0);
	else if (drop)
		note_dropped(number);
	else
		note_unprocessed(number, &unprocessed);
	timer->stopped = true;
}

/* Nothing of this is accepted, and all is survived. */
static void
call_badly(unsigned number)
{
	struct hwt *timer = fuzz.timers[number].timer;
	hwt_timeout handle = input_handle(number);
	struct hwt_unprocessed unprocessed = {0};

	require(hwt_new_timeout(NULL, &handle, fuzz_task, NULL, 0) == -EINVAL);
	require(hwt_new_timeout(timer, NULL, NULL, NULL, 0) == -EINVAL);
	require(hwt_new_timeouts(timer, 1, NULL, &handle) == -EINVAL);
	require(hwt_new_timeouts(NULL, 0, NULL, NULL) == -EINVAL);
	require(hwt_cancel(NULL, handle) == -EINVAL);
	require(hwt_cancel_wait(NULL, handle) == -EINVAL);
	require(hwt_reschedule(NULL, handle, 0) == -EINVAL);
	require(hwt_reschedule_at(NULL, handle, 0) == -EINVAL);
	require(hwt_touch(timer, NULL, NULL, fuzz_task, NULL, 0) == -EINVAL);
	require(
	    hwt_new_timeout_at(timer, NULL, NULL, NULL, NULL, 0) == -EINVAL);
	require(hwt_new_periodic(timer, NULL, NULL, fuzz_task, NULL, 0, 0) ==
	    -EINVAL);
	require(hwt_state(NULL, handle, NULL) == -EINVAL);
	require(hwt_now(timer, NULL) == -EINVAL);
	require(hwt_strerror((int)handle.id) != NULL);
	require(hwt_remaining(timer, handle, NULL) == -EINVAL);
	require(hwt_run(NULL, handle) == -EINVAL);
	require(hwt_advance(NULL, NULL) == -EINVAL);
	require(hwt_next_wakeup(timer, NULL) == -EINVAL);
	require(hwt_read_stats(timer, NULL) == -EINVAL);
	require(hwt_start(timer) == -EINVAL);
	require(hwt_stop(NULL, &unprocessed) == -EINVAL);
	require(!hwt_unprocessed_next(&unprocessed, NULL));
	require(hwt_destroy(NULL) == 0);
	require(hwt_mailbox_run(NULL, 0, NULL) == -EINVAL);
	require(hwt_mailbox_destroy(NULL) == 0);
	require(hwt_pool_create(NULL, 0, 0) == -EINVAL);
	require(hwt_pool_destroy(NULL) == 0);
}

/* Options as they come; a wheel takes 8 bytes for each bucket. */
static void
input_options(struct hwt_options *options)
{
	uint32_t length = (uint32_t)input_word();

	options->tick_ns = input_word();
	if (length > WHEEL_LIMIT && length <= 1u << 30)
		length %= WHEEL_LIMIT;
	options->ticks_per_wheel = length;
	options->flags = input_byte() % 8;
	options->max_pending = input_word();
	options->slow_task_ns = input_word();
	options->executor = input_executor();
	if (input_chance(16))
		options->reserved[input_byte() % 8] = input_word();
	if (input_chance(16))
		options->thread_name = "a name that is too long";
}

/* A timer of any kind, which is stopped before it was used. */
static void
call_create(unsigned number)
{
	struct hwt_options options = {0};
	struct hwt *timer = NULL;
	int rc;

	(void)number;
	input_options(&options);
	rc = hwt_create(&timer, &options);
	require(rc == 0 || rc == -EINVAL);
	require((rc == 0) == (timer != NULL));
	if (rc != 0)
		return;
	require(hwt_destroy(timer) == -EBUSY);
	require(hwt_stop(timer, NULL) == 0);
	require(hwt_destroy(timer) == 0);
}

static void
check_inside(unsigned number)
{
	if (fuzz.depth > 0 ||
	    checker_check(&checker, fuzz.timers[number].timer))
		return;
	fuzz_object("checker_check", checker.text);
}

static void
any_calls(unsigned count)
{
	static void (*const calls[])(unsigned number) = {call_new, call_new_at,
	    call_new_batch, call_cancel, call_cancel_wait, call_reschedule,
	    call_reschedule_at, call_remaining, call_run, call_advance,
	    call_advance, call_next_wakeup, call_mailbox, call_read, call_touch,
	    call_badly, call_create, call_stop};
	uint8_t which;
	unsigned number;

	while (count-- > 0 && fuzz.at < fuzz.end && fuzz.calls++ < CALLS_MAX) {
		which = input_byte();
		number = which % TIMERS;
		if (fuzz.timers[number].timer == NULL)
			number = 0;
		calls[which / TIMERS % (sizeof(calls) / sizeof(calls[0]))](
		    number);
		if (fuzz.calls % CHECK_EVERY == 0)
			check_inside(number);
	}
}

/* The beginning and the end. */

static void
open_timer(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	struct hwt_clock clock = {.now_ns = fuzz_clock, .ctx = timer};
	struct hwt_wake wake = {.wake = fuzz_wake, .ctx = timer};
	struct hwt_log log = {.write = fuzz_log};
	struct hwt_options options = {0};

	timer->now_ns = input_word() >> 1;
	input_options(&options);
	options.flags |= HWT_MANUAL;
	options.clock = &clock;
	options.wake = &wake;
	options.log = &log;
	if (hwt_create(&timer->timer, &options) == 0)
		return;
	/* As it may be, then. */
	options = (struct hwt_options){.tick_ns = HWT_US(10),
	    .ticks_per_wheel = 8,
	    .flags = HWT_MANUAL,
	    .clock = &clock,
	    .wake = &wake,
	    .log = &log};
	require(hwt_create(&timer->timer, &options) == 0);
}

static void
stop_timer(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];
	struct hwt_unprocessed unprocessed;

	if (timer->timer == NULL)
		return;
	check_inside(number);
	require(hwt_stop(timer->timer, &unprocessed) == 0);
	note_unprocessed(number, &unprocessed);
	timer->stopped = true;
	check_inside(number);
}

/* Each that an executor of ours holds is run, cancelled or not. */
static void
run_held(void)
{
	unsigned i;

	for (i = 0; i < fuzz.slot_count; i++) {
		const struct slot *slot = &fuzz.slots[i];

		if (slot->held && !slot->in_mailbox)
			(void)hwt_run(
			    fuzz.timers[slot->timer].timer, slot->handle);
	}
}

static void
close_timer(unsigned number)
{
	struct fuzz_timer *timer = &fuzz.timers[number];

	if (timer->timer == NULL)
		return;
	check_inside(number);
	note_all_ended(number);
	require(hwt_destroy(timer->timer) == 0);
}

static void *
one_input(void *unused)
{
	unsigned i;

	require(hwt_mailbox_create(&fuzz.mailbox) == 0);
	open_timer(0);
	if (input_chance(2))
		open_timer(1);
	any_calls(CALLS_MAX);
	/* What runs from here on finds no bytes. */
	fuzz.at = fuzz.end;
	for (i = 0; i < TIMERS; i++)
		stop_timer(i);
	run_held();
	require(hwt_mailbox_run(fuzz.mailbox, 0, NULL) == 0);
	for (i = 0; i < TIMERS; i++)
		close_timer(i);
	require(hwt_mailbox_destroy(fuzz.mailbox) == 0);
	return unused;
}

static uint64_t calls_made;

static void
say_calls(void)
{
	fprintf(stderr, "calls: %" PRIu64 "\n", calls_made);
}

/* A thread keeps something for the timers that it has used: with one of its
 * own, an input does the same each time. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pthread_t thread;

	memset(&fuzz, 0, sizeof(fuzz));
	fuzz.at = data;
	fuzz.end = data + size;
	if (pthread_create(&thread, NULL, one_input, NULL) != 0)
		return 0;
	(void)pthread_join(thread, NULL);
	if (calls_made == 0)
		(void)atexit(say_calls);
	calls_made += fuzz.calls + 1;
	return 0;
}
