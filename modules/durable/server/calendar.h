/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a schedule occurs: every so many seconds, or by a line of cron in a time
 * zone. Times are seconds of Unix time.
 *
 *   calendar.c  days, lines of cron, and the next occurrence
 *   zone.c      the zone files of the system
 *
 * WHEN CLOCKS CHANGE. A line whose minute or hour begins with * occurs in each
 * minute in which the local clock shows a time that it names: so not at a time
 * that is skipped, and twice at one that comes twice. Any other line names
 * times of the day, and occurs once for each: when the local clock first shows
 * that time, or, if it is skipped, at the change. That is what Debian's cron
 * does.
 *
 * No function here has a state: any thread may call them. tzset would be of the
 * whole process.
 */
#ifndef HWT_DURABLE_SERVER_CALENDAR_H
#define HWT_DURABLE_SERVER_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

#define WHY_MAX 160
#define ZONE_MAX 64 /* of the name of a zone */

struct zone;

struct calendar {
	int64_t every_s; /* 0: a line of cron */
	/* Bits: minutes and hours from 0, days and months from 1, weekdays
	 * from 0, which is Sunday. */
	uint64_t minutes;
	uint32_t hours, days, months, weekdays;
	bool both; /* day and weekday must both fit; else one of them */
	bool wild; /* minute or hour begins with a star */
	struct zone *zone; /* NULL: UTC */
};

/* every_s 0: cron, in zone (empty: UTC). False, with why. */
bool calendar_read(struct calendar *calendar, uint64_t every_s,
    const char *cron, const char *zone, char why[WHY_MAX]);
void calendar_free(struct calendar *calendar);

/* The first occurrence after a time; -1: there is none for 400 years. */
int64_t calendar_next(const struct calendar *calendar, int64_t after);

/* The number of a day, from 1970-01-01, and back. */
int64_t day_of(int64_t year, unsigned month, unsigned day);
void day_read(int64_t number, int64_t *year, unsigned *month, unsigned *day);
unsigned day_weekday(int64_t number);

/* A time from begin to before end, in which clocks are ahead of UTC by offset
 * seconds. */
struct zone_part {
	int64_t begin, end, offset;
};

/* zone.c: NULL, with why; free frees it. */
struct zone *zone_read(const char *name, char why[WHY_MAX]);

/* The part that a time is in. zone NULL: UTC, which has one. */
struct zone_part zone_find(const struct zone *zone, int64_t at);

#endif
