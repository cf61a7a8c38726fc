/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of cron: see calendar.h. A local time is told as what a clock in UTC
 * would show then. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "modules/durable/server/calendar.h"

#define DAY_S 86400
#define YEARS_400 (INT64_C(146097) * DAY_S) /* then dates and weekdays repeat */

/* Days. Years begin in March here, so that a leap day is the last one. */

int64_t
day_of(int64_t year, unsigned month, unsigned day)
{
	int64_t era;
	unsigned of_era, of_year;

	year -= month <= 2;
	era = (year >= 0 ? year : year - 399) / 400;
	of_era = (unsigned)(year - era * 400);
	of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
	return era * 146097 +
	    (int64_t)(of_era * 365 + of_era / 4 - of_era / 100 + of_year) -
	    719468;
}

void
day_read(int64_t number, int64_t *year, unsigned *month, unsigned *day)
{
	int64_t era;
	unsigned of_era, years, of_year, since_march;

	number += 719468;
	era = (number >= 0 ? number : number - 146096) / 146097;
	of_era = (unsigned)(number - era * 146097);
	years =
	    (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	of_year = of_era - (365 * years + years / 4 - years / 100);
	since_march = (5 * of_year + 2) / 153;
	*day = of_year - (153 * since_march + 2) / 5 + 1;
	*month = since_march < 10 ? since_march + 3 : since_march - 9;
	*year = (int64_t)years + era * 400 + (*month <= 2);
}

unsigned
day_weekday(int64_t number)
{
	return (unsigned)(((number + 4) % 7 + 7) % 7);
}

/* Reading a line. */

struct field {
	const char *name;
	unsigned low, high;
	const char *words; /* of three letters each, from low on; or NULL */
};

static const struct field fields[5] = {
    {"minute", 0, 59, NULL},
    {"hour", 0, 23, NULL},
    {"day", 1, 31, NULL},
    {"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
    {"weekday", 0, 7, "sunmontuewedthufrisat"},
};
enum {
	MINUTE,
	HOUR,
	DAY,
	MONTH,
	WEEKDAY
};

/* A line that is read. */
struct reading {
	const struct field *field;
	char *why;
};

static bool __attribute__((format(printf, 2, 3)))
wrong(const struct reading *reading, const char *format, ...)
{
	va_list list;
	int length =
	    snprintf(reading->why, WHY_MAX, "%s: ", reading->field->name);

	va_start(list, format);
	(void)vsnprintf(
	    reading->why + length, WHY_MAX - (size_t)length, format, list);
	va_end(list);
	return false;
}

static bool
value_read(const struct reading *reading, const char *text, size_t length,
    unsigned *value)
{
	const struct field *field = reading->field;
	const char *word;
	size_t i;

	for (word = field->words; length == 3 && word != NULL && *word != '\0';
	     word += 3) {
		if (strncasecmp(word, text, 3) != 0)
			continue;
		*value = field->low + (unsigned)(word - field->words) / 3;
		return true;
	}
	*value = 0;
	for (i = 0; i < length && i < 3 && text[i] >= '0' && text[i] <= '9';
	     i++)
		*value = *value * 10 + (unsigned)(text[i] - '0');
	if (length == 0)
		return wrong(reading, "a number is missing");
	if (i < length || *value < field->low || *value > field->high)
		return wrong(reading, "%.*s is not %u to %u", (int)length, text,
		    field->low, field->high);
	return true;
}

/* *, A or A-B, each but A with /STEP if wanted. */
static bool
item_read(const struct reading *reading, const char *text, size_t length,
    uint64_t *bits)
{
	const struct field *field = reading->field;
	const struct field steps = {field->name, 1, field->high, NULL};
	const struct reading step_reading = {&steps, reading->why};
	const char *slash = memchr(text, '/', length);
	size_t range = slash != NULL ? (size_t)(slash - text) : length;
	const char *dash = memchr(text, '-', range);
	size_t first = dash != NULL ? (size_t)(dash - text) : range;
	unsigned from = field->low, to = field->high, step = 1;
	bool star = range == 1 && *text == '*';

	if (!star && !value_read(reading, text, first, &from))
		return false;
	if (!star)
		to = from;
	if (dash != NULL &&
	    !value_read(reading, dash + 1, range - first - 1, &to))
		return false;
	if (to < from)
		return wrong(
		    reading, "%.*s ends before it begins", (int)range, text);
	if (slash != NULL && !star && dash == NULL)
		return wrong(reading, "a step needs * or a range: %.*s",
		    (int)length, text);
	if (slash != NULL &&
	    !value_read(&step_reading, slash + 1, length - range - 1, &step))
		return false;
	for (; from <= to; from += step)
		*bits |= UINT64_C(1) << from;
	return true;
}

static bool
field_read(const struct reading *reading, const char *text, size_t length,
    uint64_t *bits)
{
	const char *comma;
	size_t item;

	for (;;) {
		comma = memchr(text, ',', length);
		item = comma != NULL ? (size_t)(comma - text) : length;
		if (!item_read(reading, text, item, bits))
			return false;
		if (comma == NULL)
			return true;
		text += item + 1;
		length -= item + 1;
	}
}

static bool
line_read(struct calendar *calendar, const char *line, char why[WHY_MAX])
{
	static const char blank[] = " \t";
	uint64_t bits[5] = {0};
	bool star[5];
	struct reading reading = {.why = why};
	size_t i, length, count = 0;
	const char *at;

	for (at = line + strspn(line, blank); *at != '\0';
	     at += strspn(at, blank), count++)
		at += strcspn(at, blank);
	if (count != 5) {
		(void)snprintf(why, WHY_MAX,
		    "cron: want five fields, minute hour day month weekday; "
		    "there are %zu",
		    count);
		return false;
	}
	at = line;
	for (i = 0; i < 5; i++) {
		at += strspn(at, blank);
		length = strcspn(at, blank);
		reading.field = &fields[i];
		star[i] = *at == '*';
		if (!field_read(&reading, at, length, &bits[i]))
			return false;
		at += length;
	}
	calendar->minutes = bits[MINUTE];
	calendar->hours = (uint32_t)bits[HOUR];
	calendar->days = (uint32_t)bits[DAY];
	calendar->months = (uint32_t)bits[MONTH];
	/* 7 is Sunday, too. */
	calendar->weekdays = (uint32_t)(bits[WEEKDAY] | bits[WEEKDAY] >> 7);
	calendar->both = star[DAY] || star[WEEKDAY];
	calendar->wild = star[MINUTE] || star[HOUR];
	return true;
}

/* The next occurrence. */

static bool
day_fits(const struct calendar *calendar, int64_t number, unsigned day)
{
	bool fits = (calendar->days >> day & 1) != 0;
	bool weekday_fits =
	    (calendar->weekdays >> day_weekday(number) & 1) != 0;

	return calendar->both ? fits && weekday_fits : fits || weekday_fits;
}

/* The first day from this one on that the line names, before another; or
 * that. */
static int64_t
day_next(const struct calendar *calendar, int64_t number, int64_t before)
{
	int64_t year;
	unsigned month, day;

	day_read(number, &year, &month, &day);
	while (number < before) {
		if ((calendar->months >> month & 1) == 0) {
			year += month == 12;
			month = month == 12 ? 1 : month + 1;
			number = day_of(year, month, 1);
			day = 1;
			continue;
		}
		if (day_fits(calendar, number, day))
			return number;
		day_read(++number, &year, &month, &day);
	}
	return before;
}

/* The first time of a day, from a minute on, that the line names; -1: none. */
static int
minute_next(const struct calendar *calendar, int minute)
{
	uint64_t minutes;
	int hour = minute / 60;

	minutes = calendar->minutes >> minute % 60 << minute % 60;
	for (; hour < 24; hour++, minutes = calendar->minutes) {
		if ((calendar->hours >> hour & 1) != 0 && minutes != 0)
			return hour * 60 + __builtin_ctzll(minutes);
	}
	return -1;
}

/* The first local time from this one on, and before another, that the line
 * names; or that. */
static int64_t
local_next(const struct calendar *calendar, int64_t from, int64_t before)
{
	int64_t day, last;
	int minute;

	from += (60 - from % 60) % 60;
	/* Before 1970 in the west, and yet not before it in UTC. */
	day = (from - (from % DAY_S + DAY_S) % DAY_S) / DAY_S;
	last = before / DAY_S + 1;
	minute = minute_next(calendar, (int)(from - day * DAY_S) / 60);
	if (minute < 0 || day_next(calendar, day, day + 1) != day) {
		day = day_next(calendar, day + 1, last);
		minute = minute_next(calendar, 0);
	}
	from = day * DAY_S + (int64_t)minute * 60;
	return day < last && from < before ? from : before;
}

/* The latest local time that clocks have shown before a part begins. */
static int64_t
shown_before(const struct zone *zone, const struct zone_part *part)
{
	struct zone_part before = *part;
	int64_t latest = part->begin + part->offset;
	bool is_first = true;

	while (before.begin > 0 && before.begin > part->begin - 3L * DAY_S) {
		before = zone_find(zone, before.begin - 1);
		if (is_first || before.end + before.offset > latest)
			latest = before.end + before.offset;
		is_first = false;
	}
	return latest;
}

/* The first occurrence in a part, not before a time; or its end. */
static int64_t
part_next(
    const struct calendar *calendar, const struct zone_part *part, int64_t from)
{
	int64_t begin = part->begin + part->offset, shown, local;
	int64_t before = part->end + part->offset;

	local = from + part->offset;
	if (!calendar->wild) {
		shown = shown_before(calendar->zone, part);
		if (from <= part->begin && shown < begin &&
		    local_next(calendar, shown, begin) < begin)
			return part->begin;
		local = shown > local ? shown : local;
	}
	if (before > local + YEARS_400)
		before = local + YEARS_400;
	return local < before
	    ? local_next(calendar, local, before) - part->offset
	    : part->end;
}

int64_t
calendar_next(const struct calendar *calendar, int64_t after)
{
	int64_t until = after + YEARS_400, next;
	struct zone_part part;

	if (calendar->every_s != 0)
		return (after / calendar->every_s + 1) * calendar->every_s;
	for (next = after + 1; next < until;) {
		part = zone_find(calendar->zone, next);
		next = part_next(calendar, &part, next);
		if (next < part.end)
			return next < until ? next : -1;
		next = part.end;
	}
	return -1;
}

/* A line that names no day that ever is. */
static bool
never_occurs(const struct calendar *calendar)
{
	int64_t end = YEARS_400 / DAY_S;

	return day_next(calendar, 0, end) == end;
}

bool
calendar_read(struct calendar *calendar, uint64_t every_s, const char *cron,
    const char *zone, char why[WHY_MAX])
{
	*calendar = (struct calendar){.every_s = (int64_t)every_s};
	if (every_s != 0)
		return true;
	if (!line_read(calendar, cron, why))
		return false;
	if (never_occurs(calendar)) {
		(void)snprintf(
		    why, WHY_MAX, "day: no month of the line has such a day");
		return false;
	}
	if (zone[0] == '\0' || strcmp(zone, "UTC") == 0)
		return true;
	calendar->zone = zone_read(zone, why);
	return calendar->zone != NULL;
}

void
calendar_free(struct calendar *calendar)
{
	free(calendar->zone);
	calendar->zone = NULL;
}
