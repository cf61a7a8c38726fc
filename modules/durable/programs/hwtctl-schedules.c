/* SPDX-License-Identifier: Apache-2.0 */
/* hwtctl schedule: adds, lists and drops schedules. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hwtctl.h"
#include "schedules.h"

/* What a line or a zone lacks is told before anything is asked for. */
static void
schedule_check(const struct hwt_durable_schedule *schedule)
{
	char why[HWT_DURABLE_WHY_MAX];
	uint64_t next;

	if (hwt_durable_schedule_next(schedule, 0, &next, why) != 0)
		usage_error("%s", why);
}

static enum status
schedule_add(const char *name)
{
	struct hwt_durable_schedule schedule = {
	    .name = name, .cron = given.cron, .zone = given.zone};
	int error;

	if (given.queue == NULL ||
	    (given.every == NULL) == (given.cron == NULL))
		usage_error("schedule add needs --queue and either --every or "
			    "--cron");
	if (given.cron == NULL && given.zone != NULL)
		usage_error("--zone: there is no --cron");
	option_queue("--queue", given.queue);
	schedule.task.queue = given.queue;
	schedule.every_ns =
	    HWT_SEC(option_number("every", given.every, 0, 1, 315360000));
	if (given.missed != NULL &&
	    !missed_read(given.missed, &schedule.missed))
		usage_error("--missed: want last, all or none");
	schedule.task.max_attempts = (uint32_t)option_number(
	    "attempts", given.attempts, 0, 1, HWT_DURABLE_ATTEMPTS_MAX);
	expires_read(&schedule.task);
	retries_read(&schedule.task);
	priority_option_read(&schedule.task);
	payload_find(&schedule.task);
	schedule_check(&schedule);
	error = hwt_durable_schedule_put(handle_open(), &schedule);
	if (error != 0)
		complain("schedule %s: %s", name, explain(error));
	return error_status(error);
}

static int
schedule_print(void *ctx, const struct hwt_durable_schedule *schedule,
    const struct hwt_durable_schedule_info *info)
{
	(void)ctx;
	schedule_write(stdout, schedule, info, true);
	(void)putchar('\n');
	return 0;
}

static enum status
schedule_one(struct hwt_durable *durable, const char *verb, const char *name)
{
	int error = strcmp(verb, "drop") == 0
	    ? hwt_durable_schedule_drop(durable, name)
	    : hwt_durable_schedule_list(durable, name, schedule_print, NULL);

	if (error != 0)
		complain("schedule %s: %s", name,
		    error == -ENOENT ? "there is none" : explain(error));
	return error_status(error);
}

enum status
run_schedule(int argc, char **argv)
{
	enum status status = STATUS_YES, one;
	struct hwt_durable *durable;
	bool adds = strcmp(argv[0], "add") == 0;
	bool lists = strcmp(argv[0], "list") == 0;
	int i, error;

	for (i = 1; i < argc; i++) {
		if (!name_is_valid(argv[i], HWT_DURABLE_SCHEDULE_MAX))
			usage_error("a schedule's NAME has 1 to %d of A-Z a-z "
				    "0-9 . _ -",
			    HWT_DURABLE_SCHEDULE_MAX);
	}
	if (adds && argc == 2)
		return schedule_add(argv[1]);
	if (adds || (!lists && (argc == 1 || strcmp(argv[0], "drop") != 0)))
		usage_error("want schedule add NAME OPTION..., schedule list "
			    "[NAME...] or schedule drop NAME...");
	options_fit(lists ? "schedule list" : "schedule drop", " ");
	durable = handle_open();
	for (i = 1; i < argc; i++) {
		one = schedule_one(durable, argv[0], argv[i]);
		status = one > status ? one : status;
	}
	if (argc > 1)
		return status;
	error = hwt_durable_schedule_list(durable, NULL, schedule_print, NULL);
	if (error != 0)
		complain("%s", explain(error));
	return error_status(error);
}
