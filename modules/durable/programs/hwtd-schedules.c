/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "hwtd-api.h"
#include "schedules.h"
#include "task-json.h"
#include "text.h"

#define LIST_MAX 1000 /* that are told of; each has up to 700 bytes */
#define EVERY_MAX (HWT_DURABLE_DELAY_MAX / HWT_SEC(1))

struct list {
	FILE *body;
	size_t count;
};

/* Without the payload. */
static int
list_write(void *ctx, const struct hwt_durable_schedule *schedule,
    const struct hwt_durable_schedule_info *info)
{
	struct list *list = ctx;

	if (list->count == LIST_MAX)
		return 1;
	if (list->count++ > 0)
		(void)fputc(',', list->body);
	schedule_write(list->body, schedule, info, false);
	return 0;
}

void
api_schedules(struct api *api)
{
	struct list list = {api_json(api, 200), 0};
	int result;

	(void)fputs("{\"schedules\":[", list.body);
	result =
	    hwt_durable_schedule_list(api->durable, NULL, list_write, &list);
	if (result < 0) {
		rewind(list.body);
		api_fail(api, result);
		return;
	}
	(void)fprintf(list.body, "],\"all_schedules\":%s}\n",
	    result == 0 ? "true" : "false");
}

static int
show_write(void *ctx, const struct hwt_durable_schedule *schedule,
    const struct hwt_durable_schedule_info *info)
{
	FILE *body = ctx;

	schedule_write(body, schedule, info, true);
	(void)fputc('\n', body);
	return 0;
}

void
api_schedule_show(struct api *api)
{
	char name[HWT_DURABLE_QUEUE_MAX + 1];
	int error;

	api_name(api, name);
	error = hwt_durable_schedule_list(
	    api->durable, name, show_write, api_json(api, 200));
	if (error != 0)
		api_fail(api, error);
}

/* Without a zero byte. */
static bool
is_text(const json_t *value)
{
	return json_is_string(value) &&
	    strlen(json_string_value(value)) == json_string_length(value);
}

/* When it occurs, and what it has missed. NULL, or what is wrong. */
static const char *
read_when(const json_t *object, struct hwt_durable_schedule *schedule)
{
	const json_t *every = json_object_get(object, "every");
	const json_t *cron = json_object_get(object, "cron");
	const json_t *zone = json_object_get(object, "zone");
	const json_t *missed = json_object_get(object, "missed");
	json_int_t seconds = json_integer_value(every);

	if ((every == NULL) == (cron == NULL))
		return "there is not just one of \"every\" and \"cron\"";
	if (every != NULL &&
	    (!json_is_integer(every) || seconds < 1 ||
		(uint64_t)seconds > EVERY_MAX))
		return "\"every\" is whole seconds, 1 to 315360000";
	if (cron != NULL && !is_text(cron))
		return "\"cron\" is a text";
	if (zone != NULL && (cron == NULL || !is_text(zone)))
		return "\"zone\" is a text, and goes with \"cron\"";
	if (missed != NULL &&
	    (!is_text(missed) ||
		!missed_read(json_string_value(missed), &schedule->missed)))
		return "\"missed\" is last, all or none";
	schedule->every_ns = HWT_SEC((uint64_t)seconds);
	schedule->cron = json_string_value(cron);
	schedule->zone = json_string_value(zone);
	return NULL;
}

/* The schedule points into value, which this changes. NULL, or what is wrong.
 */
static const char *
schedule_read(json_t *value, struct hwt_durable_schedule *schedule)
{
	static const char *const own[] = {"every", "cron", "zone", "missed"};
	const char *wrong;
	json_t *task;
	size_t i;

	*schedule = (struct hwt_durable_schedule){0};
	if (!json_is_object(value))
		return "want an object: {\"queue\":...}";
	wrong = read_when(value, schedule);
	if (wrong != NULL)
		return wrong;
	task = json_copy(value); /* its members are those of value */
	if (task == NULL)
		return "no memory";
	for (i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		(void)json_object_del(task, own[i]);
	wrong = task_json_read(task, TASK_SCHEDULED, &schedule->task);
	json_decref(task);
	if (wrong == NULL &&
	    (schedule->task.flags & HWT_DURABLE_EXPIRES_AT) != 0)
		return "\"expires_at\": of a schedule it is \"expires_in\"";
	return wrong;
}

static uint64_t
now_unix_ns(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return HWT_SEC((uint64_t)now.tv_sec) + (uint64_t)now.tv_nsec;
}

static void
put(struct api *api, const struct hwt_durable_schedule *schedule)
{
	char why[HWT_DURABLE_WHY_MAX];
	uint64_t next = 0;
	int error =
	    hwt_durable_schedule_next(schedule, now_unix_ns(), &next, why);

	if (error == -EINVAL || error == -ENOENT) {
		api_invalid(api, why);
		return;
	}
	if (error == 0)
		error = hwt_durable_schedule_put(api->durable, schedule);
	if (error != 0)
		api_fail(api, error);
	else
		(void)fprintf(api_json(api, 200),
		    "{\"name\":\"%s\",\"next_ms\":%" PRIu64 "}\n",
		    schedule->name, next / NS_PER_MS);
}

void
api_schedule_put(struct api *api)
{
	char name[HWT_DURABLE_QUEUE_MAX + 1];
	struct hwt_durable_schedule schedule;
	json_t *value = api_body(api);
	const char *wrong;

	if (value == NULL)
		return;
	api_name(api, name);
	wrong = schedule_read(value, &schedule);
	schedule.name = name;
	if (wrong != NULL)
		api_invalid(api, wrong);
	else
		put(api, &schedule);
	json_decref(value);
}

void
api_schedule_drop(struct api *api)
{
	char name[HWT_DURABLE_QUEUE_MAX + 1];
	int error;

	api_name(api, name);
	error = hwt_durable_schedule_drop(api->durable, name);
	if (error != 0)
		api_fail(api, error);
	else
		(void)fprintf(api_json(api, 200), "{\"name\":\"%s\"}\n", name);
}
