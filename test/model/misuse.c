/* SPDX-License-Identifier: Apache-2.0 */
/* What every call must refuse: handles that name nothing, arguments and options
 * outside their range. See model.h. */
#include "test/model/model.h"

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

	if (which == 0) {
		COVER("another timer's live handle");
		return live_handle(
		    model == &models[0] ? &models[1] : &models[0]);
	}
	if (any_below(8) == 0)
		return HWT_CLOSED;
	if (which == 1) {
		hwt_timeout live = live_handle(model);

		COVER("a live handle with a bit flipped");
		live.id ^= UINT64_C(1) << any_below(64);
		return live;
	}
	if (which == 2 || known == 0) {
		COVER("a random handle");
		return (hwt_timeout){any_word_of(64)};
	}
	COVER("a stale handle");
	return model->stale[any_below(known)];
}

void
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

/* Nothing has changed afterwards, as the comparisons of later steps show. */
void
op_bad_argument(void)
{
	static const struct hwt_executor hollow;
	hwt_timeout handle = {1};
	hwt_timeout none = {0};

	model_rc(
	    hwt_new_timeout, (NULL, &handle, model_task, NULL, 0), -EINVAL);
	model_check(handle.id == 0);
	model_rc(hwt_new_timeout, (model->timer, NULL, NULL, NULL, 0), -EINVAL);
	model_rc(hwt_new_timeout_on,
	    (model->timer, &hollow, NULL, model_task, NULL, 0), -EINVAL);
	model_rc(hwt_new_timeout_at,
	    (model->timer, &hollow, NULL, model_task, NULL, 0), -EINVAL);
	model_rc(hwt_new_periodic,
	    (model->timer, NULL, NULL, model_task, NULL, 0,
		UINT64_MAX - (any_word() >> 1)),
	    -EINVAL);
	model_rc(hwt_touch, (model->timer, NULL, NULL, model_task, NULL, 0),
	    -EINVAL);
	model_rc(hwt_cancel, (NULL, none), -EINVAL);
	model_rc(hwt_cancel_wait, (NULL, none), -EINVAL);
	model_rc(hwt_reschedule, (NULL, none, 0), -EINVAL);
	model_rc(hwt_reschedule_at, (NULL, none, 0), -EINVAL);
	model_rc(hwt_state, (NULL, none, NULL), -EINVAL);
	model_rc(hwt_now, (model->timer, NULL), -EINVAL);
	model_rc(hwt_remaining, (model->timer, none, NULL), -EINVAL);
	model_rc(hwt_run, (NULL, none), -EINVAL);
	model_rc(hwt_advance, (NULL, NULL), -EINVAL);
	model_rc(hwt_next_wakeup, (model->timer, NULL), -EINVAL);
	model_rc(hwt_read_stats, (model->timer, NULL), -EINVAL);
	model_rc(hwt_start, (model->timer), -EINVAL);
	model_rc(hwt_stop, (NULL, NULL), -EINVAL);
	model_rc(hwt_stop_within, (NULL, 1, NULL), -EINVAL);
	model_rc(hwt_destroy, (NULL), 0);
	model_rc(hwt_mailbox_create, (NULL), -EINVAL);
	model_rc(hwt_mailbox_run, (NULL, 0, NULL), -EINVAL);
	model_rc(hwt_mailbox_post, (NULL, NULL, NULL), -EINVAL);
	model_rc(hwt_pool_create, (NULL, 1, 0), -EINVAL);
	model_rc(hwt_pool_post, (NULL, NULL, NULL), -EINVAL);
	model_rc(hwt_pool_destroy, (NULL), 0);
	model_check(hwt_pending_timeouts(NULL) == 0);
	model_check(hwt_pool_executor(NULL) == NULL);
	model_check(hwt_mailbox_executor(NULL) == NULL);
	model_check(hwt_mailbox_fd(NULL) == -EINVAL);
	model_check(!hwt_unprocessed_next(NULL, NULL));
}

static void
bad_options(void)
{
	static const struct hwt_clock no_clock;
	static const struct hwt_wake no_wake;
	static const struct hwt_log no_log;
	static const struct hwt_executor no_executor;
	struct hwt_options bad[] = {
	    {.tick_ns = 1 + any_below(HWT_US(10) - 1)},
	    {.ticks_per_wheel = (1u << 30) + 1 + (uint32_t)any_below(9)},
	    {.tick_ns = UINT64_MAX >> any_below(2)},
	    {.tick_ns = UINT64_C(1) << 62, .ticks_per_wheel = 2},
	    {.flags = 4u << any_below(30)},
	    {.thread_name = "sixteen or more."},
	    {.flags = HWT_MANUAL, .clock = &no_clock},
	    {.flags = HWT_MANUAL, .wake = &no_wake},
	    {.log = &no_log},
	    {.executor = &no_executor},
	    {.reserved = {[3] = 1 + any_below(9)}},
	};
	size_t which = any_below(sizeof(bad) / sizeof(bad[0]));
	struct hwt *timer = NULL;

	model_rc(hwt_create, (&timer, &bad[which]), -EINVAL);
	model_check(timer == NULL);
	model_rc(hwt_create, (NULL, NULL), -EINVAL);
}

/* Good ones make a timer, whatever they are; bad ones make none. */
void
op_options(void)
{
	struct hwt_options options = {.tick_ns = any_word_of(64),
	    .ticks_per_wheel = (uint32_t)any_below(4097),
	    .flags = (uint32_t)any_below(2),
	    .max_pending = any_word(),
	    .slow_task_ns = any_word()};
	uint64_t length = power_of_two(options.ticks_per_wheel);
	struct hwt *timer;

	bad_options();
	if (options.ticks_per_wheel == 0)
		length = 512;
	if (options.tick_ns != 0 &&
	    (options.tick_ns < HWT_US(10) ||
		options.tick_ns > (uint64_t)INT64_MAX / length)) {
		model_rc(hwt_create, (&timer, &options), -EINVAL);
		return;
	}
	if (model_rc(hwt_create, (&timer, &options), 0) != 0)
		return;
	model_rc(hwt_destroy, (timer), -EBUSY);
	model_rc(hwt_stop, (timer, NULL), 0);
	model_rc(hwt_destroy, (timer), 0);
}

/* The process-wide timer is nobody's to end or to turn. */
void
op_shared(void)
{
	static const struct hwt *first;
	struct hwt *shared = NULL;
	hwt_timeout live, none;

	model_rc(hwt_shared, (NULL), -EINVAL);
	if (!model_now.threads)
		return;
	if (model_rc(hwt_shared, (&shared), 0) != 0)
		return;
	model_check(first == NULL || first == shared);
	first = shared;
	model_rc(hwt_stop, (shared, NULL), -EPERM);
	model_rc(hwt_stop_within, (shared, 0, NULL), -EPERM);
	model_rc(hwt_destroy, (shared), -EPERM);
	model_rc(hwt_advance, (shared, NULL), -EINVAL);
	if (model_rc(hwt_new_timeout,
		(shared, &live, model_task, NULL, HWT_NEVER), 0) != 0)
		return;
	none = live_handle(model);
	model_rc(hwt_cancel, (shared, none), -ENOENT);
	model_rc(hwt_cancel, (model->timer, live), -ENOENT);
	model_rc(hwt_cancel, (shared, live), 0);
}
