/* SPDX-License-Identifier: Apache-2.0 */
/* See calendar.h. A local time is what a clock in UTC would show then. */
#define _GNU_SOURCE
#include "modules/durable/server/calendar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
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
	char path[sizeof(ZONES) + ZONE_MAX];
	struct stat file;

	(void)snprintf(path, sizeof(path), ZONES "%.*s", ZONE_MAX, name);
	return strspn(name, fine) == strlen(name) && strlen(name) <= ZONE_MAX &&
	    stat(path, &file) == 0 && S_ISREG(file.st_mode);
}

/* By how much clocks are ahead of UTC. */
static int64_t
offset_at(int64_t at)
{
	const time_t time = (time_t)at;
	struct tm tm;

	return localtime_r(&time, &tm) != NULL ? tm.tm_gmtoff : 0;
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
day_fits(const struct calendar *calendar, int64_t local)
{
	const time_t time = (time_t)local;
	bool day, weekday;
	struct tm tm;

	(void)gmtime_r(&time, &tm);
	day = calendar->days >> tm.tm_mday & 1;
	weekday = calendar->weekdays >> tm.tm_wday & 1;
	return calendar->months >> (tm.tm_mon + 1) & 1 &&
	    (calendar->both ? day && weekday : day || weekday);
}

static bool
is_named(const struct calendar *calendar, int64_t local)
{
	return day_fits(calendar, local) &&
	    calendar->hours >> local / 3600 % 24 & 1 &&
	    calendar->minutes >> local / 60 % 60 & 1;
}

/* Looks at each minute; first at those of some hours before, for what clocks
 * have shown. A day that the line does not name is left out, unless clocks
 * change within 24 hours. */
int64_t
calendar_next(const struct calendar *calendar, int64_t after)
{
	int64_t at = (after / 60 + 1) * 60 - SET_BACK_S, shown = 0;
	int64_t local, from, rest;

	if (calendar->every_s != 0)
		return (after / calendar->every_s + 1) * calendar->every_s;
	for (; at < after + NEVER_S; at += 60) {
		local = at + offset_at(at);
		from = calendar->wild || shown == 0 ? local : shown + 60;
		for (; from <= local; from += 60) {
			if (at > after && is_named(calendar, from))
				return at;
		}
		rest = DAY_S - 60 - local % DAY_S;
		if (!day_fits(calendar, local) &&
		    offset_at(at + DAY_S) == offset_at(at)) {
			at += rest;
			local += rest;
		}
		shown = local > shown ? local : shown;
	}
	return -1;
}
