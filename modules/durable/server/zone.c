/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zone files of the system (RFC 8536): the changes that a file lists, and
 * after those the rule at its end. Each is read when it is needed, so what the
 * system's tzdata says now counts; that takes some 30 us.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "modules/durable/server/calendar.h"

#define FOLDER "/usr/share/zoneinfo"
#define FILE_MAX (1u << 17) /* bytes; the largest of 2024 has 4,000 */
#define HEADER 44
#define DAY_S 86400
#define FOREVER (INT64_MAX / 4) /* so that an offset may be added */

/* Of a change that comes each year: on a weekday of a week of a month. */
struct change {
	int month, week, day;
	int64_t time; /* of the local clock before it, seconds of the day */
};

struct zone {
	uint32_t count;
	bool has_rule; /* after the last change */
	bool changes; /* and that has two changes a year */
	int64_t standard, summer; /* offsets of the rule */
	struct change to_summer, to_standard;
	int64_t first; /* the offset before the first change */
	struct {
		int64_t at, offset;
	} list[];
};

/* The rule at the end of a file, as in TZ of POSIX. */

static bool
name_skip(const char **at)
{
	const char *begin = *at;

	if (**at == '<') {
		*at = strchr(*at, '>');
		return *at != NULL && (*at)++ != begin + 1;
	}
	while (isalpha((unsigned char)**at))
		(*at)++;
	return *at - begin >= 3;
}

static bool
number_read(const char **at, int max, int *number)
{
	int value = 0;

	if (!isdigit((unsigned char)**at))
		return false;
	while (isdigit((unsigned char)**at) && value <= max)
		value = value * 10 + (*(*at)++ - '0');
	*number = value;
	return value <= max;
}

/* [+-]hours[:minutes[:seconds]] */
static bool
time_read(const char **at, int64_t *seconds)
{
	int part[3] = {0, 0, 0};
	int i, sign = **at == '-' ? -1 : 1;

	if (**at == '-' || **at == '+')
		(*at)++;
	for (i = 0; i < 3; i++) {
		if (i > 0 && **at != ':')
			break;
		*at += i > 0;
		if (!number_read(at, i == 0 ? 167 : 59, &part[i]))
			return false;
	}
	*seconds = sign * (part[0] * 3600L + part[1] * 60L + part[2]);
	return true;
}

static bool
change_read(const char **at, struct change *change)
{
	*change = (struct change){.time = 7200};
	if (strncmp(*at, ",M", 2) != 0)
		return false;
	*at += 2;
	if (!number_read(at, 12, &change->month) || change->month < 1 ||
	    *(*at)++ != '.' || !number_read(at, 5, &change->week) ||
	    change->week < 1 || *(*at)++ != '.' ||
	    !number_read(at, 6, &change->day))
		return false;
	if (**at != '/')
		return true;
	(*at)++;
	return time_read(at, &change->time);
}

/* What is west of Greenwich is positive in it. */
static bool
rule_read(struct zone *zone, const char *at)
{
	int64_t west;

	zone->has_rule = *at != '\0';
	if (!zone->has_rule)
		return true;
	if (!name_skip(&at) || !time_read(&at, &west))
		return false;
	zone->standard = -west;
	zone->changes = *at != '\0';
	if (!zone->changes)
		return true;
	if (!name_skip(&at))
		return false;
	zone->summer = zone->standard + 3600;
	if (*at != ',') {
		if (!time_read(&at, &west))
			return false;
		zone->summer = -west;
	}
	return change_read(&at, &zone->to_summer) &&
	    change_read(&at, &zone->to_standard) && *at == '\0';
}

/* When it is in a year, in UTC, if clocks are ahead by offset before it. */
static int64_t
change_time(const struct change *change, int64_t year, int64_t offset)
{
	int64_t day = day_of(year, (unsigned)change->month, 1);
	int64_t next = change->month == 12
	    ? day_of(year + 1, 1, 1)
	    : day_of(year, (unsigned)change->month + 1, 1);

	day += (change->day - (int)day_weekday(day) + 7) % 7;
	day += 7L * (change->week - 1);
	if (day >= next)
		day -= 7;
	return day * DAY_S + change->time - offset;
}

/* A change at a time, to an offset, bounds the part that at is in. */
static void
part_bound(struct zone_part *part, int64_t when, int64_t offset, int64_t at)
{
	if (when <= at && when >= part->begin) {
		part->begin = when;
		part->offset = offset;
	} else if (when > at && when < part->end) {
		part->end = when;
	}
}

/* The part of the rule that a time is in. */
static struct zone_part
rule_find(const struct zone *zone, int64_t at)
{
	struct zone_part part = {-FOREVER, FOREVER, zone->standard};
	int64_t year;
	unsigned month, day;
	int i;

	day_read(at / DAY_S, &year, &month, &day);
	for (i = -1; i <= 1 && zone->changes; i++) {
		part_bound(&part,
		    change_time(&zone->to_summer, year + i, zone->standard),
		    zone->summer, at);
		part_bound(&part,
		    change_time(&zone->to_standard, year + i, zone->summer),
		    zone->standard, at);
	}
	return part;
}

struct zone_part
zone_find(const struct zone *zone, int64_t at)
{
	struct zone_part part = {-FOREVER, FOREVER, 0};
	uint32_t low = 0, high, middle;

	if (zone == NULL)
		return part;
	/* The first change after it. */
	for (high = zone->count; low < high;) {
		middle = (low + high) / 2;
		if (zone->list[middle].at <= at)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == zone->count && zone->has_rule)
		part = rule_find(zone, at);
	else
		part.offset =
		    low > 0 ? zone->list[low - 1].offset : zone->first;
	if (low > 0 && part.begin < zone->list[low - 1].at)
		part.begin = zone->list[low - 1].at;
	if (low < zone->count)
		part.end = zone->list[low].at;
	return part;
}

/* The file: a header and data of version 1, then both again with times of 8
 * bytes, then the rule between two ends of line. */

struct file {
	const unsigned char *at;
	size_t left;
	uint32_t size[6]; /* what stands in the header, as below */
};
enum {
	UTC_MARKS,
	STANDARD_MARKS,
	LEAPS,
	TIMES,
	TYPES,
	CHARS
};

static uint64_t
big_endian(const unsigned char *at, size_t bytes)
{
	uint64_t value = 0;

	while (bytes-- > 0)
		value = value << 8 | *at++;
	return value;
}

static bool
header_read(struct file *file)
{
	size_t i;

	if (file->left < HEADER || memcmp(file->at, "TZif", 4) != 0 ||
	    file->at[4] < '2')
		return false;
	for (i = 0; i < 6; i++) {
		file->size[i] = (uint32_t)big_endian(file->at + 20 + 4 * i, 4);
		if (file->size[i] > FILE_MAX)
			return false;
	}
	file->at += HEADER;
	file->left -= HEADER;
	return true;
}

static size_t
data_size(const struct file *file, size_t of_time)
{
	return file->size[TIMES] * (of_time + 1) +
	    file->size[TYPES] * (size_t)6 + file->size[CHARS] +
	    file->size[LEAPS] * (of_time + 4) + file->size[STANDARD_MARKS] +
	    file->size[UTC_MARKS];
}

static bool
data_skip(struct file *file, size_t of_time)
{
	size_t size = data_size(file, of_time);

	if (file->left < size)
		return false;
	file->at += size;
	file->left -= size;
	return true;
}

/* Times that count leap seconds are no Unix time. */
static bool
list_read(struct zone *zone, const struct file *file)
{
	const unsigned char *type = file->at + (size_t)zone->count * 8;
	const unsigned char *offset = type + zone->count;
	uint32_t i;

	if (file->size[LEAPS] != 0 || file->size[TYPES] == 0)
		return false;
	for (i = 0; i < zone->count; i++) {
		if (type[i] >= file->size[TYPES])
			return false;
		zone->list[i].at =
		    (int64_t)big_endian(file->at + (size_t)i * 8, 8);
		if (zone->list[i].at < -FOREVER || zone->list[i].at > FOREVER ||
		    (i > 0 && zone->list[i].at <= zone->list[i - 1].at))
			return false;
		zone->list[i].offset =
		    (int32_t)big_endian(offset + (size_t)type[i] * 6, 4);
	}
	zone->first = (int32_t)big_endian(offset, 4);
	return true;
}

/* NULL: it is no zone file, or there is no memory. */
static struct zone *
file_read(char *text, size_t length)
{
	struct file file = {(const unsigned char *)text, length, {0}};
	struct zone *zone;
	struct file data;
	const char *end;

	if (!header_read(&file) || !data_skip(&file, 4) || !header_read(&file))
		return NULL;
	data = file;
	if (!data_skip(&file, 8) || file.left < 2 || file.at[0] != '\n')
		return NULL;
	end = memchr(file.at + 1, '\n', file.left - 1);
	zone =
	    calloc(1, sizeof(*zone) + data.size[TIMES] * sizeof(zone->list[0]));
	if (end == NULL || zone == NULL) {
		free(zone);
		return NULL;
	}
	text[end - text] = '\0';
	zone->count = data.size[TIMES];
	if (list_read(zone, &data) &&
	    rule_read(zone, (const char *)file.at + 1))
		return zone;
	free(zone);
	return NULL;
}

/* Neither a path out of the folder nor a hidden file. */
static bool
name_is_sound(const char *name)
{
	static const char fine[] = "abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-/";
	size_t length = strlen(name);

	return length >= 1 && length <= ZONE_MAX && name[0] != '/' &&
	    name[length - 1] != '/' && strspn(name, fine) == length;
}

struct zone *
zone_read(const char *name, char why[WHY_MAX])
{
	struct zone *zone = NULL;
	char path[sizeof(FOLDER) + ZONE_MAX + 1];
	char *text = malloc(FILE_MAX);
	ssize_t length = 0;
	int fd = -1;

	(void)snprintf(path, sizeof(path), FOLDER "/%.*s", ZONE_MAX, name);
	if (name_is_sound(name))
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd >= 0 && text != NULL)
		length = read(fd, text, FILE_MAX);
	if (length > 0)
		zone = file_read(text, (size_t)length);
	if (zone == NULL)
		(void)snprintf(why, WHY_MAX,
		    fd >= 0 ? "zone: %.64s is no zone file"
			    : "zone: there is no %.64s; want a name as "
			      "Europe/Paris, and tzdata",
		    name);
	if (fd >= 0)
		(void)close(fd);
	free(text);
	return zone;
}
