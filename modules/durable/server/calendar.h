/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a schedule occurs: every so many seconds, or by a line of cron in a time
 * zone. Times are seconds of Unix time.
 *
 * WHEN CLOCKS CHANGE. A line whose minute or hour begins with * occurs in each
 * minute in which the local clock shows a time that it names: so not at a time
 * that is skipped, and twice at one that comes twice. Any other line names
 * times of the day, and occurs once for each: when the local clock first shows
 * that time, or, if it is skipped, at the change. That is what Debian's cron
 * does.
 *
 * THE ZONE is the C library's, TZ, which the whole process shares: the
 * last calendar_read has set it. Therefore one thread alone calls these
 * functions, and no other thread of the process asks for local time. The
 * variable is put into the environment once, and only its value changes: a
 * getenv of another name does not read that.
 */
#ifndef HWT_DURABLE_SERVER_CALENDAR_H
#define HWT_DURABLE_SERVER_CALENDAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct calendar {
	int64_t every_s; /* 0: a line of cron */
	/* Bits: minutes and hours from 0, days and months from 1, weekdays
	 * from 0, which is Sunday. */
	uint64_t minutes, hours, days, months, weekdays;
	bool both; /* day and weekday must both fit; else one of them */
	bool wild; /* minute or hour begins with a star */
};

/* Before the process has other threads. */
void calendar_begin(void);

/* every_s 0: cron, in zone (empty: UTC). False, with why. */
bool calendar_read(struct calendar *calendar, uint64_t every_s,
    const char *cron, const char *zone, char *why, size_t size);

/* The first occurrence after a time; -1: there is none for 50 years. */
int64_t calendar_next(const struct calendar *calendar, int64_t after);

#endif
