/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of threads and of tasks: see storm.h. */
#include "storm.h"

uint64_t
any_delay(uint64_t *random)
{
	uint64_t tick_ns = round_.tick_ns;

	switch (random_below(random, 8)) {
	case 0:
		return 0;
	case 1:
		return HWT_SEC(3600);
	case 2:
		return random_below(random, 2) ? HWT_NEVER : INT64_MAX;
	case 3:
		return random_below(random, 100 * tick_ns);
	default:
		return random_below(random, 5 * tick_ns);
	}
}

static struct item *
take_any(uint64_t *random, uint64_t delay_ns)
{
	return item_take((unsigned)random_below(random, round_.timers_count),
	    delay_ns, (enum kind)random_below(random, KINDS));
}

static int
produce(struct item *item, uint64_t delay_ns, uint64_t *random)
{
	struct hwt *timer = item_timer(item);
	hwt_timeout *handle = item_handle(item);

	switch (random_below(random, 8)) {
	case 0:
		item->period_ns = 1 + random_below(random, 20 * round_.tick_ns);
		return hwt_new_periodic(timer, item->executor, handle,
		    storm_task, item, delay_ns, item->period_ns);
	case 1:
		return hwt_touch(
		    timer, item->executor, handle, storm_task, item, delay_ns);
	case 2:
		return hwt_new_timeout_at(timer, item->executor, handle,
		    storm_task, item, item->due_ns);
	default:
		if (item->kind == INLINE)
			return hwt_new_timeout(
			    timer, handle, storm_task, item, delay_ns);
		return hwt_new_timeout_on(
		    timer, item->executor, handle, storm_task, item, delay_ns);
	}
}

bool
act_produce(uint64_t *random)
{
	uint64_t delay_ns = any_delay(random);
	struct item *item = take_any(random, delay_ns);
	int error;

	if (item == NULL)
		return false;
	error = produce(item, delay_ns, random);
	item_publish(item, error);
	return error != -ESHUTDOWN;
}

void
act_cancel(struct item *item, bool waits)
{
	struct hwt *timer = item_timer(item);
	int error;

	if (waits)
		error = hwt_cancel_wait(timer, *item_handle(item));
	else
		error = hwt_cancel(timer, *item_handle(item));
	stress_check(!waits ||
		!atomic_load_explicit(&item->running, memory_order_relaxed),
	    "its task runs after hwt_cancel_wait: %d", error);
	if (!error) {
		item_end(item, CANCELLED);
	} else if (error == -ENOENT) {
		item_seen_ended(item);
	} else {
		stress_check(
		    error == -EINPROGRESS && !waits, "cancel: %d", error);
	}
}

/* The caller has the item's bit, so that due_ns is that of the last one that
 * won. */
static void
moved(struct item *item, uint64_t asked_ns, uint64_t delay_ns)
{
	atomic_fetch_add_explicit(&round_.rescheduled, 1, memory_order_relaxed);
	if (!item->period_ns)
		item->due_ns =
		    delay_ns >= INT64_MAX ? UINT64_MAX : asked_ns + delay_ns;
}

static void
reschedule(struct item *item, uint64_t *random)
{
	uint64_t delay_ns = any_delay(random);
	uint64_t asked_ns = stress_now_ns();
	int error;

	if (delay_ns < INT64_MAX && random_below(random, 2))
		error = hwt_reschedule_at(
		    item_timer(item), *item_handle(item), asked_ns + delay_ns);
	else
		error = hwt_reschedule(
		    item_timer(item), *item_handle(item), delay_ns);
	stress_check(!error || error == -ENOENT || error == -EINPROGRESS,
	    "reschedule: %d", error);
	if (!error)
		moved(item, asked_ns, delay_ns);
	else if (error == -ENOENT)
		item_seen_ended(item);
}

/* fresh is the one that the touch may make. */
static void
touch(struct item *item, uint64_t *random)
{
	uint64_t delay_ns = any_delay(random);
	uint64_t asked_ns = stress_now_ns();
	struct item *fresh = item_take(
	    item->timer, delay_ns, (enum kind)random_below(random, KINDS));
	hwt_timeout *handle;
	int error;

	if (fresh == NULL)
		return;
	handle = item_handle(fresh);
	*handle = *item_handle(item);
	error = hwt_touch(item_timer(item), fresh->executor, handle, storm_task,
	    fresh, delay_ns);
	if (!error && handle->id != item_handle(item)->id) {
		atomic_store(&item->replaced, true);
		item_publish(fresh, 0);
		return;
	}
	handle->id = 0;
	if (!error)
		moved(item, asked_ns, delay_ns);
	else if (error == -ENOBUFS)
		item_publish(fresh, error);
	else
		stress_check(error == -EINPROGRESS || error == -ESHUTDOWN,
		    "hwt_touch: %d", error);
}

/* The bit makes the item's due_ns that of the last call that won. */
static void
act_move(struct item *item, uint64_t *random)
{
	if (atomic_exchange(&item->rescheduling, true))
		return;
	if (item->period_ns)
		atomic_store(&item->moved, true);
	if (random_below(random, 3))
		reschedule(item, random);
	else
		touch(item, random);
	atomic_store(&item->rescheduling, false);
}

static void
act_look(struct item *item)
{
	int64_t remaining_ns;
	void *arg;

	(void)hwt_remaining(
	    item_timer(item), *item_handle(item), &remaining_ns);
	if (hwt_state(item_timer(item), *item_handle(item), &arg) > 0)
		stress_check(arg == item, "hwt_state: another's arg");
	stress_check(hwt_pending_timeouts(item_timer(item)) <= ITEMS,
	    "more pending than were ever scheduled");
}

void
actor_run(uint64_t *random)
{
	/* The most frequent call of this one. */
	uint64_t role = random_below(random, 4);
	bool more = true;

	while (!atomic_load_explicit(&round_.quit, memory_order_relaxed)) {
		uint64_t act = random_below(random, 8);
		struct item *item = item_any(random);

		if (act > 3)
			act = role;
		if (act == 0 && more)
			more = act_produce(random);
		else if (item != NULL && act == 1)
			act_cancel(item, !random_below(random, 4));
		else if (item != NULL && act == 2)
			act_move(item, random);
		else if (item != NULL)
			act_look(item);
		if (!random_below(random, 64))
			stress_sleep_ns(random_below(random, 200000));
	}
}

void *
actor_thread(void *salt)
{
	uint64_t random = random_seed((uintptr_t)salt);

	actor_run(&random);
	return NULL;
}

/* Tasks. */

/* What only its own task can. -ENOENT: a cancel or the stop has made this run
 * the last. */
static void
act_periodic(struct item *item, hwt_timeout timeout)
{
	uint64_t random = item->started_ns;
	int error;

	if (!random_below(&random, 16)) {
		error = hwt_cancel(item_timer(item), timeout);
		stress_check(error == -EINPROGRESS,
		    "cancel from its own task: %d", error);
		item->last = true;
	}
	if (random_below(&random, 8))
		return;
	error = hwt_reschedule(item_timer(item), timeout,
	    random_below(&random, 5 * round_.tick_ns));
	stress_check(error == -ENOENT || (!error && !item->last),
	    "reschedule from its own task: %d, last %d", error, item->last);
	item->last |= error != 0;
	if (!error) {
		atomic_fetch_add_explicit(
		    &round_.rescheduled, 1, memory_order_relaxed);
		atomic_store_explicit(&item->moved, true, memory_order_relaxed);
	}
}

void
storm_task(hwt_timeout timeout, void *arg)
{
	struct item *item = arg, *other;
	uint64_t random = timeout.id;

	item_begin_run(item, timeout);
	if (item->period_ns)
		act_periodic(item, timeout);
	if (timeout.id % 8 == 0)
		stress_check(
		    hwt_cancel_wait(item_timer(item), timeout) == -EDEADLK,
		    "item %zu: may wait for itself", item_index(item));
	if (disturbers.forks)
		fork_in_task(timeout);
	/* Or its own. It does not wait: two tasks that wait for each other do
	 * so for ever. */
	other = item_any(&random);
	if (other && !random_below(&random, 4))
		act_cancel(other, false);
	if (item->kind == MAILBOX || item->kind == OTHER_MAILBOX)
		stress_check(pthread_equal(pthread_self(),
				 round_.loops[item->kind - MAILBOX].thread),
		    "a task on another thread than its loop's");
	item_end_run(item);
}
