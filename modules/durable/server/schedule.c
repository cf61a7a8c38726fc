/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "modules/durable/server/schedule.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "modules/durable/machine/command.h"
#include "modules/durable/programs/program.h"
#include "modules/durable/server/calendar.h"

#define QUEUE "hwt.schedules"
#define VISIBILITY HWT_SEC(10)
#define STOP_WITHIN HWT_SEC(6) /* longer than a call */
#define OCCURRENCES_MAX 64 /* that are added at a time; 64 MiB */
#define LATE_DEFAULT_S 3600
#define DAY_S 86400
#define NS UINT64_C(1000000000)
#define LINE_BYTES 300
#define TIME_BYTES 21 /* of @2026-11-28T14:00:00Z */
#define ID_BYTES (HWT_DURABLE_ID_MAX + 1)
#define RESCHEDULE_MOST_S (3600 * DAY_S) /* less than ten years */

static struct hwt_durable *durable;
static struct hwt_durable_worker *worker;

/* What a payload says. */
struct schedule {
	char queue[LINE_BYTES], cron[LINE_BYTES], zone[LINE_BYTES];
	uint64_t every_s, late_s, attempts, expires_ms, first_ms, most_ms;
	const char *payload;
	size_t payload_length;
	struct calendar calendar;
};

/* Whether a line is a word and a number in a range. */
static bool
is_number(const char *line, const char *word, uint64_t *number, uint64_t least,
    uint64_t most)
{
	size_t length = strlen(word);
	struct argument value;

	if (strncmp(line, word, length) != 0)
		return false;
	value = (struct argument){line + length, strlen(line + length)};
	return argument_number(&value, least, most, number);
}

static bool
read_line(struct schedule *schedule, const char *line)
{
	int end = 0;

	if (sscanf(line, "queue %299s%n", schedule->queue, &end) == 1)
		return line[end] == '\0' && queue_is_valid(schedule->queue);
	if (sscanf(line, "zone %299s%n", schedule->zone, &end) == 1)
		return line[end] == '\0';
	if (sscanf(line, "retry %" SCNu64 " %" SCNu64 "%n", &schedule->first_ms,
		&schedule->most_ms, &end) == 2)
		return line[end] == '\0' &&
		    schedule->most_ms <= MACHINE_DELAY_MAX_MS;
	return sscanf(line, "cron %299[^\n]", schedule->cron) == 1 ||
	    is_number(line, "every ", &schedule->every_s, 1, 366 * DAY_S) ||
	    is_number(line, "late ", &schedule->late_s, 0, DAY_S) ||
	    is_number(line, "attempts ", &schedule->attempts, 1,
		MACHINE_ATTEMPTS_MAX) ||
	    is_number(line, "expires ", &schedule->expires_ms, 1,
		MACHINE_DELAY_MAX_MS);
}

/* Lines, an empty one, and the payload of the tasks. False: reason says what is
 * wrong. */
static bool
read_schedule(struct schedule *schedule,
    const struct hwt_durable_delivery *delivery, char *reason)
{
	const char *at = delivery->payload, *end, *stop;
	char line[LINE_BYTES];

	for (end = at + delivery->payload_length; at < end && *at != '\n';
	     at = stop < end ? stop + 1 : end) {
		stop = memchr(at, '\n', (size_t)(end - at));
		if (stop == NULL)
			stop = end;
		(void)snprintf(
		    line, sizeof(line), "%.*s", (int)(stop - at), at);
		if (stop - at < LINE_BYTES && read_line(schedule, line))
			continue;
		(void)sprintf(
		    reason, "a schedule does not have the line: %.100s", line);
		return false;
	}
	schedule->payload = at < end ? at + 1 : end;
	schedule->payload_length = (size_t)(end - schedule->payload);
	if (schedule->queue[0] != '\0' &&
	    (schedule->every_s == 0) != (schedule->cron[0] == '\0'))
		return calendar_read(&schedule->calendar, schedule->every_s,
		    schedule->cron, schedule->zone, reason,
		    HWT_DURABLE_REASON_MAX);
	(void)strcpy(
	    reason, "a schedule has a queue, and one of every and cron");
	return false;
}

/* NAME@TIME. */
static void
write_id(
    char id[ID_BYTES], const struct hwt_durable_delivery *delivery, int64_t at)
{
	const time_t time = (time_t)at;
	struct tm tm;

	memcpy(id, delivery->id, delivery->id_length);
	(void)gmtime_r(&time, &tm);
	(void)strftime(id + delivery->id_length, ID_BYTES - delivery->id_length,
	    "@%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* Adds the occurrences from a time on that have come, and sets it to the first
 * that was not added. */
static int
add_occurrences(const struct schedule *schedule,
    const struct hwt_durable_delivery *delivery, int64_t *from, int64_t now)
{
	struct hwt_durable_task tasks[OCCURRENCES_MAX];
	char id[OCCURRENCES_MAX][ID_BYTES];
	size_t count;

	for (count = 0; count < OCCURRENCES_MAX && *from >= 0 && *from <= now;
	     count++) {
		write_id(id[count], delivery, *from);
		tasks[count] = (struct hwt_durable_task){
		    .id = id[count],
		    .id_length = delivery->id_length + TIME_BYTES,
		    .queue = schedule->queue,
		    .due_unix_ns = (uint64_t)*from * NS,
		    .flags = HWT_DURABLE_AT,
		    .max_attempts = (uint32_t)schedule->attempts,
		    .payload = schedule->payload,
		    .payload_length = schedule->payload_length,
		    .expires_ns = HWT_MS(schedule->expires_ms),
		    .retry_first_ns = HWT_MS(schedule->first_ms),
		    .retry_most_ns = HWT_MS(schedule->most_ms),
		    .result_ns = (schedule->late_s + DAY_S) * NS,
		};
		*from = calendar_next(&schedule->calendar, *from);
	}
	return hwt_durable_add(durable, count, tasks, NULL);
}

/* Adds what there is to add. *next: when the schedule is due again; -1:
 * never. */
static int
work_off(const struct schedule *schedule,
    const struct hwt_durable_delivery *delivery, int64_t *next)
{
	struct hwt_durable_stats stats;
	struct hwt_durable_info info;
	int64_t due, now, least;
	int error;

	/* The due time of this attempt is later, if one before was lost. */
	error = hwt_durable_get(
	    durable, QUEUE, delivery->id, delivery->id_length, &info, NULL, 0);
	if (error == 0)
		error = hwt_durable_read_stats(durable, QUEUE, &stats);
	if (error != 0)
		return error;
	due = *next = (int64_t)((info.due_unix_ns + NS - 1) / NS);
	now = (int64_t)(stats.now_unix_ns / NS);
	least = now - (int64_t)schedule->late_s;
	*next =
	    calendar_next(&schedule->calendar, (due > least ? due : least) - 1);
	error = add_occurrences(schedule, delivery, next, now);
	if (error != 0)
		*next = due;
	else if (*next > now + RESCHEDULE_MOST_S)
		*next = now + RESCHEDULE_MOST_S;
	return error;
}

static int
execute(void *ctx, const struct hwt_durable_delivery *delivery)
{
	struct schedule schedule = {.late_s = LATE_DEFAULT_S};
	static int said; /* the last error */
	int64_t next = 0;
	int error;

	(void)ctx;
	if (delivery->id_length > HWT_DURABLE_ID_MAX - TIME_BYTES) {
		(void)strcpy(delivery->reason, "a name has 1 to 43 bytes");
		return HWT_DURABLE_FAIL;
	}
	if (!read_schedule(&schedule, delivery, delivery->reason))
		return HWT_DURABLE_FAIL;
	error = work_off(&schedule, delivery, &next);
	if (error == -EINVAL || (error == 0 && next < 0)) {
		(void)strcpy(delivery->reason,
		    error == 0 ? "it never occurs again" : error_text(error));
		return HWT_DURABLE_FAIL;
	}
	if (error != 0 && error != said)
		(void)fprintf(
		    stderr, "hwtd: schedules: %s\n", error_text(error));
	said = error;
	if (error != 0)
		(void)usleep(500000);
	/* That ends this attempt, and counts attempts from 1 again. If it
	 * fails, the schedule is tried again. */
	if (next > 0 || error == 0)
		(void)hwt_durable_reschedule(durable, QUEUE, delivery->id,
		    delivery->id_length, (uint64_t)next * NS, HWT_DURABLE_AT);
	return HWT_DURABLE_RETRY;
}

int
schedules_start(struct hwt_durable *with)
{
	const struct hwt_durable_worker_options options = {
	    .queue = QUEUE,
	    .callback = execute,
	    .visibility_ns = VISIBILITY,
	};

	durable = with;
	return hwt_durable_worker_start(&worker, durable, &options);
}

int
schedules_stop(void)
{
	return hwt_durable_worker_stop(worker, STOP_WITHIN);
}
