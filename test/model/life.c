/* SPDX-License-Identifier: Apache-2.0 */
/* Timers of ever other options: made, used for a while, stopped, destroyed. See
 * model.h. */
#include "test/model/model.h"

#include <pthread.h>

/* Making. */

static void
choose_executors(void)
{
	unsigned i;

	for (i = 0; i < WAYS; i++)
		model->executors[i] =
		    (struct way_executor){.hook = {.execute = model_execute,
					      .ctx = &model->executors[i]},
			.model = model,
			.way = (enum way)i};
	for (i = 0; i < ENTRIES; i++)
		model->entries[i].model = model;
	if (any_below(4) == 0)
		model->default_way = (enum way)any_below(WAYS);
}

/* Calls of manual timers that may fail: the library copes or reports. */
static void
plan_any(void)
{
	static const enum plan_call calls[] = {PLAN_MMAP, PLAN_MMAP,
	    PLAN_MUNMAP, PLAN_MADVISE, PLAN_MADVISE, PLAN_SYSCONF, PLAN_CALLOC,
	    PLAN_ALIGNED_ALLOC, PLAN_GETRANDOM, PLAN_CLOCK_REALTIME,
	    PLAN_EVENTFD, PLAN_EVENTFD_READ, PLAN_EVENTFD_WRITE,
	    PLAN_EVENTFD_WRITE, PLAN_CLOSE, PLAN_PTHREAD_SETSPECIFIC};
	struct plan plan = {.call = ANY_OF(calls), .nth = 1 + any_below(3)};
	unsigned errors = 0;

	while (errors < PLAN_ERRORS_MAX &&
	    plan_kinds[plan.call].errors[errors].error != 0)
		errors++;
	plan.error = plan_kinds[plan.call].errors[any_below(errors)].error;
	/* What is interrupted is repeated without end. */
	plan.lasting = plan.error != EINTR && any_below(2) == 0;
	plan_begin(&plan);
}

/* Records of the first slabs begin shortly before their generations wrap. */
static void
wrap_generations(void)
{
	unsigned i;

	for (i = 0; i < 4; i++)
		a64_store_relaxed(&model->timer->store.generation_base[i],
		    GENERATION_MASK - any_below(64));
}

static void
life_begin(void)
{
	struct hwt_clock clock = {.now_ns = model_clock, .ctx = model};
	struct hwt_wake wake = {.wake = model_wake, .ctx = model};
	struct hwt_log log = {.write = model_log};
	struct hwt_options given;

	memset(model, 0, sizeof(*model));
	choose_options();
	choose_executors();
	given = model->options;
	given.flags = HWT_MANUAL;
	given.executor = executor_of(model->default_way);
	given.clock = &clock;
	given.wake = &wake;
	given.log = &log;
	if (model_now.failures && any_below(2) == 0)
		plan_any();
	if (model_rc(hwt_mailbox_create, (&model->mailbox), 0) != 0)
		return;
	if (model_rc(hwt_create, (&model->timer, &given), 0) != 0)
		model_rc(hwt_mailbox_destroy, (model->mailbox), 0);
	else if (any_below(2) == 0)
		wrap_generations();
	if (model->timer != NULL && model->limit == ENTRIES)
		op_fill();
}

/* Ending. */

/* All that is pending is returned, each once and as it was. */
static void
check_unprocessed(struct hwt_unprocessed *unprocessed)
{
	struct hwt_timeout_info info;
	uint64_t count = 0;

	while (hwt_unprocessed_next(unprocessed, &info)) {
		struct model_entry *entry = info.arg;
		int64_t remaining_ns =
		    (int64_t)(entry->deadline_ns - model->now_ns);

		count++;
		if (entry->deadline_ns == DEADLINE_NONE)
			remaining_ns = INT64_MAX;
		model_check(entry->model == model);
		model_check(entry->state == PENDING);
		entry_named(entry, info.timeout);
		model_check(info.task == model_task);
		model_check(info.period_ns == entry->period_ns);
		model_check(info.executor == entry->executor);
		model_check(info.remaining_ns == remaining_ns);
		entry_end(entry);
	}
	model_check(unprocessed->count == count);
}

void
life_stop(void)
{
	struct hwt_unprocessed unprocessed;
	bool drop = any_below(4) == 0;
	struct hwt_unprocessed *list = drop ? NULL : &unprocessed;
	struct model_entry *entry;

	if (any_below(2) == 0)
		model_rc(hwt_stop, (model->timer, list), 0);
	else
		model_rc(
		    hwt_stop_within, (model->timer, any_below(3), list), 0);
	model->stopped = true;
	if (!drop)
		check_unprocessed(&unprocessed);
	for (EACH(entry)) {
		if (drop && entry->state == PENDING)
			entry_end(entry);
		model_check(entry->state != PENDING);
	}
	model->left = 20;
}

static void
life_end(void)
{
	struct model_entry *entry;

	model->ending = true;
	do {
		if (model->mail_first < model->mail_end)
			op_run_mailbox();
		for (EACH(entry))
			if (entry->state == HELD || entry->state == REVOKED)
				op_run(entry);
	} while (model->mail_first < model->mail_end);
	compare_counters();
	model_check(pending_count() == 0 && held_count() == 0);
	model_rc(hwt_destroy, (model->timer), 0);
	model_rc(hwt_mailbox_destroy, (model->mailbox), 0);
	model->timer = NULL;
}

/* Steps. */

static void
life_step(void)
{
	if (model->timer == NULL) {
		life_begin();
	} else if (model->left > 0) {
		model->left--;
		op_any();
	} else if (!model->stopped) {
		life_stop();
	} else {
		life_end();
	}
}

static void *
step_thread(void *unused)
{
	life_step();
	return unused;
}

/* Records then come from another cache, which is left behind. */
static void
step_elsewhere(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, step_thread, NULL) != 0)
		model_object("no thread for a step");
	(void)pthread_join(thread, NULL);
}

static void
look_inside(void)
{
	const char *wrong = NULL;

	if (model->timer != NULL)
		wrong = checker_check(model->timer, false);
	if (wrong != NULL)
		model_object(wrong);
}

static void
look_at(struct model *at)
{
	model = at;
	if (model->timer == NULL)
		return;
	model_check(model->wakes == model->wakes_expected);
	model_check(hwt_pending_timeouts(model->timer) == pending_count());
	if (model->operation % 64 == 0)
		compare_counters();
	if (model->operation % model_now.inside == 0)
		look_inside();
}

static void
model_step(void)
{
	model = &models[any_below(MODELS)];
	if (model_now.failures && any_below(64) == 0)
		plan_any();
	else if (model_now.failures && any_below(64) == 0)
		plan_end();
	if (model_now.threads && any_below(64) == 0)
		step_elsewhere();
	else
		life_step();
	look_at(&models[0]);
	look_at(&models[1]);
}

void
model_run(const struct model_options *given)
{
	uint64_t step;
	unsigned i;

	model_now = *given;
	choices_from(&model_now);
	for (step = 0; step < model_now.steps && !choices_are_over(); step++)
		model_step();
	plan_end();
	for (i = 0; i < MODELS; i++) {
		model = &models[i];
		model->left = 0;
		while (model->timer != NULL) {
			life_step();
			look_inside();
			model->left = 0;
		}
	}
}
