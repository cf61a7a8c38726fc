/* SPDX-License-Identifier: Apache-2.0 */
/* schedule: put, drop, list and next. What occurs when is in schedules.py. */
#include "modules/durable/test/spec/durable.h"

#include <string.h>

SUITE(schedule);

static const struct hwt_durable_schedule hourly = {
    .name = "hourly", .every_ns = HWT_SEC(3600), .task = {.queue = "q"}};

struct seen {
	uint32_t count;
	int answer;
	char cron[64];
	struct hwt_durable_task task; /* what it points to is gone */
	struct hwt_durable_schedule_info info;
};

static int
see(void *ctx, const struct hwt_durable_schedule *schedule,
    const struct hwt_durable_schedule_info *info)
{
	struct seen *seen = ctx;

	seen->count++;
	seen->info = *info;
	seen->task = schedule->task;
	if (schedule->cron != NULL)
		strcpy(seen->cron, schedule->cron);
	return seen->answer;
}

PlaceTest(schedule, what_is_put_is_listed_until_it_is_dropped)
{
	struct hwt_durable_schedule daily = hourly;
	struct seen seen = {0}, all = {0}, first = {.answer = 7};

	daily.name = "daily";
	daily.every_ns = 0;
	daily.cron = "30 2 * * *";
	assert_ok(hwt_durable_schedule_put(place.durable, &hourly));
	assert_ok(hwt_durable_schedule_put(place.durable, &daily));
	assert_ok(hwt_durable_schedule_put(place.durable, &daily));

	assert_ok(
	    hwt_durable_schedule_list(place.durable, "daily", see, &seen));
	cr_assert_str_eq(seen.cron, "30 2 * * *");
	assert_u64(seen.info.last_unix_ns, 0);
	assert_u64(seen.info.next_unix_ns % HWT_SEC(86400), HWT_SEC(9000));
	assert_ok(hwt_durable_schedule_list(place.durable, NULL, see, &all));
	assert_u64(all.count, 2);
	assert_rc(
	    hwt_durable_schedule_list(place.durable, NULL, see, &first), 7);
	assert_u64(first.count, 1);

	assert_ok(hwt_durable_schedule_drop(place.durable, "daily"));
	assert_rc(hwt_durable_schedule_drop(place.durable, "daily"), -ENOENT);
	assert_rc(hwt_durable_schedule_list(place.durable, "daily", see, &seen),
	    -ENOENT);
}

PlaceTest(schedule, its_tasks_may_expire_and_have_a_priority_and_retries)
{
	struct hwt_durable_schedule given = hourly;
	struct seen seen = {0};

	given.task.expires_ns = HWT_SEC(90) - 1;
	given.task.retry_first_ns = HWT_SEC(9);
	given.task.retry_factor = 1.5;
	given.task.flags = HWT_DURABLE_LOW;
	assert_ok(hwt_durable_schedule_put(place.durable, &given));

	assert_ok(hwt_durable_schedule_list(place.durable, NULL, see, &seen));
	assert_u64(seen.task.expires_ns, HWT_SEC(90));
	assert_u64(seen.task.retry_first_ns, HWT_SEC(9));
	assert_u64(seen.task.retry_most_ns, HWT_SEC(600));
	cr_assert_eq(seen.task.retry_factor, 1.5);
	assert_u64(seen.task.flags, HWT_DURABLE_LOW);
}

static void
put_bad(struct hwt_durable_schedule bad, int error)
{
	assert_rc(hwt_durable_schedule_put(place.durable, &bad), error);
}

#define BAD(member, value)                                \
	do {                                              \
		struct hwt_durable_schedule bad = hourly; \
		bad.member = value;                       \
		put_bad(bad, -EINVAL);                    \
	} while (0)

PlaceTest(schedule, bad_ones_are_refused)
{
	struct hwt_durable_schedule nowhere = hourly;
	struct seen seen = {0};

	BAD(name, NULL);
	BAD(name, "");
	BAD(name, "a b");
	BAD(name, "a2345678901234567890123456789012345678901234");
	BAD(every_ns, 0);
	BAD(every_ns, HWT_MS(1500));
	BAD(every_ns, HWT_DURABLE_DELAY_MAX + HWT_SEC(1));
	BAD(cron, "* * * * *");
	BAD(zone, "UTC");
	BAD(missed, 3);
	BAD(flags, 1);
	BAD(reserved[3], 1);
	BAD(task.id, "x");
	BAD(task.id_length, 1);
	BAD(task.delay_ns, 1);
	BAD(task.expires_ns, HWT_DURABLE_DELAY_MAX + 1);
	BAD(task.retry_first_ns, HWT_SEC(601) + HWT_DURABLE_DELAY_MAX);
	BAD(task.retry_factor, 0.5);
	BAD(task.flags, HWT_DURABLE_AT);
	BAD(task.flags, HWT_DURABLE_EXPIRES_AT);
	BAD(task.flags, HWT_DURABLE_REPLACE | HWT_DURABLE_LOW);
	BAD(task.flags, HWT_DURABLE_HIGH | HWT_DURABLE_LOW);
	BAD(task.queue, NULL);
	BAD(task.queue, "a b");
	BAD(task.max_attempts, 1001);
	BAD(task.payload_length, 1);
	BAD(task.reserved[0], 1);
	nowhere.every_ns = 0;
	nowhere.cron = "* * * *";
	put_bad(nowhere, -EINVAL);
	nowhere.cron = "* * * * *";
	nowhere.zone = "Nowhere/At_All";
	put_bad(nowhere, -ENOENT);
	assert_rc(hwt_durable_schedule_put(place.durable, NULL), -EINVAL);
	assert_rc(hwt_durable_schedule_put(NULL, &hourly), -EINVAL);
	assert_rc(hwt_durable_schedule_drop(place.durable, NULL), -EINVAL);
	assert_rc(hwt_durable_schedule_drop(place.durable, "a b"), -EINVAL);
	assert_rc(hwt_durable_schedule_list(place.durable, NULL, NULL, NULL),
	    -EINVAL);
	assert_rc(hwt_durable_schedule_list(place.durable, "a b", see, &seen),
	    -EINVAL);
	assert_ok(hwt_durable_schedule_list(place.durable, NULL, see, &seen));
	assert_u64(seen.count, 0);
}

Test(schedule, the_next_one_needs_no_engine)
{
	struct hwt_durable_schedule schedule = hourly;
	char why[HWT_DURABLE_WHY_MAX];
	uint64_t next;

	assert_ok(hwt_durable_schedule_next(&schedule, 1, &next, NULL));
	assert_u64(next, HWT_SEC(3600));
	assert_ok(hwt_durable_schedule_next(&schedule, next, &next, why));
	assert_u64(next, HWT_SEC(7200));
	cr_assert_str_eq(why, "");
	schedule.every_ns = 0;
	schedule.cron = "0 0 29 2 *";
	assert_ok(hwt_durable_schedule_next(&schedule, 1, &next, NULL));
	assert_u64(next, HWT_SEC(68169600));
	schedule.cron = "0 0 30 2 *";
	assert_rc(hwt_durable_schedule_next(&schedule, 1, &next, why), -EINVAL);
	cr_assert_str_eq(why, "day: no month of the line has such a day");
	schedule.cron = "* * * * *";
	schedule.zone = "Nowhere/At_All";
	assert_rc(
	    hwt_durable_schedule_next(&schedule, 1, &next, NULL), -ENOENT);
	assert_rc(hwt_durable_schedule_next(&schedule, 1, NULL, NULL), -EINVAL);
	assert_rc(hwt_durable_schedule_next(&schedule, UINT64_MAX, &next, NULL),
	    -EINVAL);
	assert_rc(hwt_durable_schedule_next(NULL, 1, &next, NULL), -EINVAL);
}

PlaceTest(schedule, a_scheduler_adds_what_occurs)
{
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = done};
	struct hwt_durable_schedule schedule = hourly;

	schedule.every_ns = HWT_SEC(1);
	place_schedule();
	place_work(&options);
	assert_ok(hwt_durable_schedule_put(place.durable, &schedule));
	await_succeeded(2);
}
