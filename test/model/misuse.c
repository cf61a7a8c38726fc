/* SPDX-License-Identifier: Apache-2.0 */
/* Handles that name nothing, options of any value, and the shared timer. See
 * model.h. */
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
