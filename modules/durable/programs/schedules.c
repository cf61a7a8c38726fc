/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules.h"

#include <inttypes.h>
#include <string.h>

#include "modules/durable/durable.h"
#include "text.h"

static const char *const missed_names[] = {"last", "all", "none"};

bool
missed_read(const char *text, uint32_t *missed)
{
	for (*missed = 0; *missed < 3; ++*missed) {
		if (strcmp(text, missed_names[*missed]) == 0)
			return true;
	}
	return false;
}

void
schedule_write(FILE *file, const struct hwt_durable_schedule *schedule,
    const struct hwt_durable_schedule_info *info, bool whole)
{
	(void)fputc('{', file);
	json_write(file, "name", schedule->name, strlen(schedule->name));
	if (schedule->cron == NULL)
		(void)fprintf(file, ",\"every\":%" PRIu64,
		    schedule->every_ns / SECOND_NS);
	else {
		(void)fputc(',', file);
		json_write(
		    file, "cron", schedule->cron, strlen(schedule->cron));
	}
	if (schedule->zone != NULL) {
		(void)fputc(',', file);
		json_write(
		    file, "zone", schedule->zone, strlen(schedule->zone));
	}
	(void)fprintf(
	    file, ",\"missed\":\"%s\",", missed_names[schedule->missed]);
	json_write(
	    file, "queue", schedule->task.queue, strlen(schedule->task.queue));
	(void)fprintf(
	    file, ",\"attempts\":%" PRIu32, schedule->task.max_attempts);
	priority_write(file, schedule->task.flags);
	if (schedule->task.expires_ns != 0)
		(void)fprintf(file, ",\"expires_in_ms\":%" PRIu64,
		    schedule->task.expires_ns / NS_PER_MS);
	if (schedule->task.retry_first_ns != 0)
		(void)fprintf(file,
		    ",\"retry_first_ms\":%" PRIu64 ",\"retry_factor\":%.15g"
		    ",\"retry_most_ms\":%" PRIu64,
		    schedule->task.retry_first_ns / NS_PER_MS,
		    schedule->task.retry_factor,
		    schedule->task.retry_most_ns / NS_PER_MS);
	if (whole) {
		(void)fputc(',', file);
		json_write(file, "payload", schedule->task.payload,
		    schedule->task.payload_length);
	}
	(void)fprintf(file, ",\"last_ms\":%" PRIu64 ",\"next_ms\":%" PRIu64 "}",
	    info->last_unix_ns / NS_PER_MS, info->next_unix_ns / NS_PER_MS);
}
