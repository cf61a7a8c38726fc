/* SPDX-License-Identifier: Apache-2.0 */
/* See calendar.h. A local time is what a clock in UTC would show then. */
#define _GNU_SOURCE
#include "modules/durable/server/calendar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define DAY_S 86400
/* A 29th of February on a weekday comes after 40 years at most. */
#define NEVER_S (INT64_C(50) * 366 * DAY_S)
#define SET_BACK_S 10800 /* clocks are never set back further */
#define ZONES "/usr/share/zoneinfo/"
#define ZONE_MAX 64

/* The zone. */

static char setting[3 + ZONE_MAX + 1] = "TZ=UTC";

void
calendar_begin(void)
{
	(void)putenv(setting);
	tzset();
}

static bool
zone_is_there(const char *name)
{
	static const char fine[] = "abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-/";
	char path[sizeof(ZONES) + ZONE_MAX], mark[4] = "";
	FILE *file;

	if (strspn(name, fine) != strlen(name) || strlen(name) > ZONE_MAX)
		return false;
	(void)snprintf(path, sizeof(path), ZONES "%.*s", ZONE_MAX, name);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	(void)!fread(mark, sizeof(mark), 1, file);
	(void)fclose(file);
	return memcmp(mark, "TZif", sizeof(mark)) == 0;
}

/* By how much clocks are ahead of UTC. */
static int64_t
offset_at(int64_t at)
{
	const time_t time = (time_t)at;
	struct tm tm;

	return localtime_r(&time, &tm) != NULL ? tm.tm_gmtoff : 0;
}

/* When clocks change between two times, which have different offsets. */
static int64_t
find_change(int64_t low, int64_t high)
{
	int64_t offset = offset_at(low), middle;

	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (offset_at(middle) == offset)
			low = middle;
		else
			high = middle;
	}
	return high;
}

/* Reading a line. */

static const struct field {
	const char *name;
	long low, high;
	const char *words; /* of three letters each, from low on */
} fields[5] = {
    {"minute", 0, 59, ""},
    {"hour", 0, 23, ""},
    {"day", 1, 31, ""},
    {"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
    {"weekday", 0, 7, "sunmontuewedthufrisat"},
};

/* Moves on behind it. -1: there is none. */
static long
read_value(const char **at, const char *words, long first)
{
	const char *begin = *at, *word = words;
	char *end;
	long value;

	for (; *word != '\0'; word += 3) {
		if (strncasecmp(word, begin, 3) == 0) {
			*at += 3;
			return first + (word - words) / 3;
		}
	}
	if (*begin < '0' || *begin > '9')
		return -1;
	value = strtol(begin, &end, 10);
	*at = end;
	return value;
}

/* *, A or A-B, each but A with /STEP if wanted. */
static bool
read_item(const char **at, const struct field *field, uint64_t *bits)
{
	long from = field->low, to = field->high, step = 1;
	bool range = **at == '*';

	if (range)
		++*at;
	else
		from = to = read_value(at, field->words, field->low);
	if (!range && **at == '-') {
		++*at;
		to = read_value(at, field->words, field->low);
		range = true;
	}
	if (range && **at == '/') {
		++*at;
		step = read_value(at, "", 0);
	}
	if (from < field->low || to > field->high || from > to || step < 1 ||
	    step > field->high)
		return false;
	for (; from <= to; from += step)
		*bits |= UINT64_C(1) << from;
	return true;
}

/* Items with commas between; moves on to the next field. */
static bool
read_field(const char **at, const struct field *field, uint64_t *bits)
{
	while (read_item(at, field, bits)) {
		if (**at == ' ' || **at == '\0') {
			*at += strspn(*at, " ");
			return true;
		}
		if (*(*at)++ != ',')
			return false;
	}
	return false;
}

static bool
read_line(struct calendar *calendar, const char *line, char *why, size_t size)
{
	const char *at = line + strspn(line, " ");
	uint64_t bits[5] = {0};
	bool star[5];
	size_t i;

	for (i = 0; i < 5; i++) {
		star[i] = *at == '*';
		if (read_field(&at, &fields[i], &bits[i]))
			continue;
		(void)snprintf(why, size,
		    "%s: want * or %ld to %ld, as 1,5-9/2, and have: %.60s",
		    fields[i].name, fields[i].low, fields[i].high, at);
		return false;
	}
	(void)snprintf(why, size, "cron has five fields");
	calendar->minutes = bits[0];
	calendar->hours = bits[1];
	calendar->days = bits[2];
	calendar->months = bits[3];
	calendar->weekdays = bits[4] | bits[4] >> 7; /* 7 is Sunday, too */
	calendar->both = star[2] || star[4];
	calendar->wild = star[0] || star[1];
	return *at == '\0';
}

bool
calendar_read(struct calendar *calendar, uint64_t every_s, const char *cron,
    const char *zone, char *why, size_t size)
{
	*calendar = (struct calendar){.every_s = (int64_t)every_s};
	if (every_s != 0)
		return true;
	if (!read_line(calendar, cron, why, size))
		return false;
	if (zone[0] == '\0')
		zone = "UTC";
	(void)snprintf(why, size,
	    "zone: there is no %.64s; want a name as Europe/Paris, and tzdata",
	    zone);
	if (strcmp(zone, "UTC") != 0 && !zone_is_there(zone))
		return false;
	(void)snprintf(setting, sizeof(setting), "TZ=%.*s", ZONE_MAX, zone);
	tzset();
	return true;
}

/* The next occurrence. */

static bool
day_fits(const struct calendar *calendar, const struct tm *tm)
{
	bool day = calendar->days >> tm->tm_mday & 1;
	bool weekday = calendar->weekdays >> tm->tm_wday & 1;

	return calendar->months >> (tm->tm_mon + 1) & 1 &&
	    (calendar->both ? day && weekday : day || weekday);
}

/* The first local time from one on, and before another, that the line names; or
 * that. */
static int64_t
local_next(const struct calendar *calendar, int64_t local, int64_t before)
{
	struct tm tm;

	for (local = (local + 59) / 60 * 60; local < before;) {
		const time_t time = (time_t)local;

		(void)gmtime_r(&time, &tm);
		if (!day_fits(calendar, &tm))
			local += DAY_S - local % DAY_S;
		else if (!(calendar->hours >> tm.tm_hour & 1))
			local += 3600 - local % 3600;
		else if (!(calendar->minutes >> tm.tm_min & 1))
			local += 60;
		else
			return local;
	}
	return before;
}

/* The first occurrence from a time on, and before another, between which clocks
 * do not change; or that. */
static int64_t
part_next(const struct calendar *calendar, int64_t at, int64_t end)
{
	int64_t offset = offset_at(at), local = at + offset;
	int64_t before = end + offset, earlier = at - SET_BACK_S, change, shown;

	if (!calendar->wild && offset_at(earlier) != offset) {
		/* Clocks have shown all local times before this one. */
		change = find_change(earlier, at);
		shown = change + offset_at(earlier);
		if (change == at && shown < local &&
		    local_next(calendar, shown, local) < local)
			return at;
		if (shown > local)
			local = shown;
	}
	return local < before ? local_next(calendar, local, before) - offset
			      : end;
}

int64_t
calendar_next(const struct calendar *calendar, int64_t after)
{
	int64_t at = (after / 60 + 1) * 60, until = after + NEVER_S, end, next;

	if (calendar->every_s != 0)
		return (after / calendar->every_s + 1) * calendar->every_s;
	for (; at < until; at = end) {
		end = at + DAY_S;
		if (offset_at(end) != offset_at(at))
			end = find_change(at, end);
		next = part_next(calendar, at, end);
		if (next < end)
			return next;
	}
	return -1;
}
