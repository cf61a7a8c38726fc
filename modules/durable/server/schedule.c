/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "modules/durable/server/schedule.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "modules/durable/server/calendar.h"

#define QUEUE "hwt.schedules"
#define VISIBILITY_MS 10000
#define OCCURRENCES_MAX 256 /* that are added at a time */
#define LATE_DEFAULT_S 3600
#define DAY_S 86400
#define BYTES_MAX ((size_t)16 << 20) /* of their payloads */
#define LINE_MAX_BYTES 300
#define TIME_BYTES 21 /* of @2026-11-28T14:00:00Z */
#define ID_MAX 64

struct schedules {
	struct engine *engine;
	pthread_t thread;
	char said[ENGINE_WHY]; /* the last error */
};

/* What a payload says. */
struct schedule {
	char queue[ENGINE_NAME_MAX + 1];
	char cron[LINE_MAX_BYTES], zone[LINE_MAX_BYTES];
	uint64_t every_s, late_s;
	/* Words of HWT.ADD, each ending in a NUL. */
	char options[LINE_MAX_BYTES];
	size_t options_length;
	const char *payload;
	size_t payload_length;
	struct calendar calendar;
};

/* One that was taken. */
struct taken {
	const char *name;
	size_t name_length;
	const char *fence;
	uint64_t begin_ms; /* of the lease, on the monotonic clock */
	int64_t due_ms, now_ms; /* on the queue's */
	struct schedule schedule;
};

static uint64_t
steady_ms(void)
{
	struct timespec at;

	(void)clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000 + (uint64_t)at.tv_nsec / 1000000;
}

static bool
read_number(const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
	char *end;

	*number = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0' &&
	    *number >= least && *number <= most;
}

/* attempts, retry and expires: HWT.ADD says whether they are right. */
static bool
read_option(struct schedule *schedule, char *line)
{
	size_t length = strlen(line) + 1;
	char *at;

	if (strncmp(line, "attempts ", 9) != 0 &&
	    strncmp(line, "retry ", 6) != 0 &&
	    strncmp(line, "expires ", 8) != 0)
		return false;
	if (schedule->options_length + length > sizeof(schedule->options))
		return false;
	at = schedule->options + schedule->options_length;
	memcpy(at, line, length);
	schedule->options_length += length;
	while ((at = strchr(at, ' ')) != NULL)
		*at++ = '\0';
	return true;
}

static bool
read_line(struct schedule *schedule, char *line)
{
	char *value = strchr(line, ' ');

	if (value == NULL)
		return false;
	value++;
	if (strncmp(line, "queue ", 6) == 0) {
		if (!queue_name_is_valid(value))
			return false;
		strcpy(schedule->queue, value);
	} else if (strncmp(line, "cron ", 5) == 0) {
		strcpy(schedule->cron, value);
	} else if (strncmp(line, "zone ", 5) == 0) {
		strcpy(schedule->zone, value);
	} else if (strncmp(line, "every ", 6) == 0) {
		return read_number(
		    value, 1, UINT64_C(366) * DAY_S, &schedule->every_s);
	} else if (strncmp(line, "late ", 5) == 0) {
		return read_number(value, 0, DAY_S, &schedule->late_s);
	} else {
		return read_option(schedule, line);
	}
	return true;
}

/* False: why says what is wrong. */
static bool
read_schedule(struct schedule *schedule, const redisReply *payload, char *why)
{
	const char *at = payload->str, *end = at + payload->len, *stop;
	char line[LINE_MAX_BYTES];

	memset(schedule, 0, sizeof(*schedule));
	schedule->late_s = LATE_DEFAULT_S;
	for (;; at = stop + 1) {
		stop = memchr(at, '\n', (size_t)(end - at));
		if (stop == NULL)
			stop = end;
		if (stop == at)
			break;
		(void)snprintf(
		    line, sizeof(line), "%.*s", (int)(stop - at), at);
		if (stop - at >= LINE_MAX_BYTES || !read_line(schedule, line)) {
			(void)snprintf(why, WHY_MAX,
			    "a schedule does not have the line: %.100s", line);
			return false;
		}
		if (stop == end)
			break;
	}
	schedule->payload = stop < end ? stop + 1 : end;
	schedule->payload_length = (size_t)(end - schedule->payload);
	if (schedule->queue[0] == '\0' ||
	    (schedule->every_s == 0) == (schedule->cron[0] == '\0')) {
		(void)snprintf(why, WHY_MAX,
		    "a schedule has a queue, and one of every and cron");
		return false;
	}
	return calendar_read(&schedule->calendar, schedule->every_s,
		   schedule->cron, schedule->zone, why) == 0;
}

/* NAME@TIME. */
static size_t
write_id(char id[ID_MAX + 1], const struct taken *taken, int64_t at)
{
	int64_t year;
	unsigned month, day;

	memcpy(id, taken->name, taken->name_length);
	day_read(at / DAY_S, &year, &month, &day);
	return taken->name_length +
	    (size_t)snprintf(id + taken->name_length,
		ID_MAX + 1 - taken->name_length,
		"@%04d-%02u-%02uT%02d:%02d:%02dZ", (int)year, month, day,
		(int)(at % DAY_S / 3600), (int)(at % 3600 / 60),
		(int)(at % 60));
}

enum outcome {
	OUTCOME_ADDED,
	OUTCOME_AGAIN, /* the engine cannot now; why says more */
	OUTCOME_WRONG /* the schedule; why says more */
};

/* Of an answer that is no array. */
static enum outcome
outcome_of(const redisReply *reply, char *why)
{
	(void)snprintf(why, WHY_MAX, "%.150s",
	    reply != NULL ? reply->str : "the connection was lost");
	return reply != NULL && strncmp(reply->str, "ARG", 3) == 0
	    ? OUTCOME_WRONG
	    : OUTCOME_AGAIN;
}

/* Adds the occurrences from a time on that have come, and sets it to the first
 * that was not added. */
static enum outcome
add_occurrences(struct schedules *schedules, const struct taken *taken,
    redisContext *context, int64_t *from, char *why)
{
	const struct schedule *schedule = &taken->schedule;
	char id[OCCURRENCES_MAX][ID_MAX + 1], due[OCCURRENCES_MAX][24];
	char result[24];
	const char *option = schedule->options;
	struct command_words words;
	size_t i, bytes = 0;
	enum outcome outcome = OUTCOME_ADDED;
	redisReply *reply;

	(void)snprintf(result, sizeof(result), "%llu",
	    (unsigned long long)(schedule->late_s + DAY_S) * 1000);
	words_begin(&words, schedules->engine, "HWT.ADD", schedule->queue);
	words_add(&words, "RESULT");
	words_add(&words, result);
	while (option < schedule->options + schedule->options_length) {
		words_add(&words, option);
		option += strlen(option) + 1;
	}
	words_add(&words, "EACH");
	words_add(&words, "TASKS");
	for (i = 0; i < OCCURRENCES_MAX && bytes < BYTES_MAX && *from >= 0 &&
	     *from <= taken->now_ms / 1000;
	     i++) {
		words_add_bytes(&words, id[i], write_id(id[i], taken, *from));
		(void)snprintf(
		    due[i], sizeof(due[i]), "%lld000", (long long)*from);
		words_add(&words, due[i]);
		words_add_bytes(
		    &words, schedule->payload, schedule->payload_length);
		bytes += schedule->payload_length;
		*from = calendar_next(&schedule->calendar, *from);
	}
	if (i == 0)
		return OUTCOME_ADDED;
	reply = words_run(&words, context);
	if (reply == NULL || reply->type != REDIS_REPLY_ARRAY)
		outcome = outcome_of(reply, why);
	freeReplyObject(reply);
	return outcome;
}

/* What GET and STAT say of it. False: it is gone, or there was no answer. */
static bool
read_times(
    struct schedules *schedules, struct taken *taken, redisContext *context)
{
	struct command_words words;
	redisReply *reply;

	words_begin(&words, schedules->engine, "HWT.GET", QUEUE);
	words_add_bytes(&words, taken->name, taken->name_length);
	reply = words_run(&words, context);
	taken->due_ms = reply_number(reply, "due");
	freeReplyObject(reply);
	words_begin(&words, schedules->engine, "HWT.STAT", QUEUE);
	reply = words_run(&words, context);
	taken->now_ms = reply_number(reply, "now");
	freeReplyObject(reply);
	return taken->due_ms > 0 && taken->now_ms > 0;
}

static void
fail(struct schedules *schedules, const struct taken *taken,
    redisContext *context, const char *why)
{
	struct command_words words;

	words_begin(&words, schedules->engine, "HWT.FINISH", QUEUE);
	words_add(&words, "FAIL");
	words_add(&words, why);
	words_add(&words, "TASKS");
	words_add_bytes(&words, taken->name, taken->name_length);
	words_add(&words, taken->fence);
	freeReplyObject(words_run(&words, context));
}

static void
reschedule(struct schedules *schedules, const struct taken *taken,
    redisContext *context, int64_t due_ms)
{
	struct command_words words;
	char text[24];

	/* Another may have taken it since, and be further. */
	if (steady_ms() - taken->begin_ms >= VISIBILITY_MS / 2)
		return;
	(void)snprintf(text, sizeof(text), "%lld", (long long)due_ms);
	words_begin(&words, schedules->engine, "HWT.RESCHEDULE", QUEUE);
	words_add(&words, "DUE");
	words_add(&words, text);
	words_add_bytes(&words, taken->name, taken->name_length);
	freeReplyObject(words_run(&words, context));
}

/* The first occurrence that is neither added yet nor too late. */
static int64_t
first_occurrence(const struct taken *taken)
{
	int64_t from = (taken->due_ms + 999) / 1000;
	int64_t least = taken->now_ms / 1000 - (int64_t)taken->schedule.late_s;

	return calendar_next(
	    &taken->schedule.calendar, (from > least ? from : least) - 1);
}

static void
say(struct schedules *schedules, const char *why)
{
	if (strcmp(schedules->said, why) == 0 ||
	    engine_is_closed(schedules->engine))
		return;
	(void)snprintf(schedules->said, sizeof(schedules->said), "%s", why);
	if (*why != '\0')
		(void)fprintf(stderr, "hwtd: schedules: %s\n", why);
}

/* False: wait before the next. */
static bool
work_off(struct schedules *schedules, struct taken *taken,
    const redisReply *payload, redisContext *context)
{
	enum outcome outcome = OUTCOME_WRONG;
	char why[WHY_MAX];
	int64_t from;

	if (taken->name_length > ID_MAX - TIME_BYTES)
		(void)snprintf(why, sizeof(why), "a name has 1 to 43 bytes");
	else if (!read_times(schedules, taken, context))
		return false;
	else if (read_schedule(&taken->schedule, payload, why)) {
		from = first_occurrence(taken);
		outcome =
		    add_occurrences(schedules, taken, context, &from, why);
		if (outcome == OUTCOME_ADDED && from < 0) {
			outcome = OUTCOME_WRONG;
			(void)snprintf(why, sizeof(why), "it never occurs");
		}
		if (outcome != OUTCOME_WRONG)
			reschedule(schedules, taken, context,
			    outcome == OUTCOME_ADDED ? 1000 * from
						     : taken->due_ms);
	}
	calendar_free(&taken->schedule.calendar);
	if (outcome == OUTCOME_WRONG)
		fail(schedules, taken, context, why);
	if (outcome == OUTCOME_AGAIN)
		say(schedules, why);
	return outcome != OUTCOME_AGAIN;
}

/* Takes one. False: wait before the next. */
static bool
turn(struct schedules *schedules, redisContext *context)
{
	static const char *const take[] = {
	    "hwtd", "1", "10000", "BLOCK", "1000"};
	struct taken taken = {.begin_ms = steady_ms()};
	struct command_words words;
	const redisReply *task;
	char fence[24], why[WHY_MAX];
	redisReply *reply;
	bool done = true;
	size_t i;

	words_begin(&words, schedules->engine, "HWT.TAKE", QUEUE);
	for (i = 0; i < sizeof(take) / sizeof(*take); i++)
		words_add(&words, take[i]);
	reply = words_run(&words, context);
	if (reply != NULL && reply->type == REDIS_REPLY_ARRAY) {
		task = reply->element[0];
		taken.name = task->element[0]->str;
		taken.name_length = task->element[0]->len;
		(void)snprintf(
		    fence, sizeof(fence), "%lld", task->element[1]->integer);
		taken.fence = fence;
		done = work_off(schedules, &taken, task->element[5], context);
	} else if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
		(void)outcome_of(reply, why);
		say(schedules, why);
		done = false;
	}
	if (done)
		say(schedules, "");
	freeReplyObject(reply);
	return done;
}

static void *
run(void *arg)
{
	struct schedules *schedules = arg;
	redisContext *context;
	char why[ENGINE_WHY];
	bool done;

	while (!engine_is_closed(schedules->engine)) {
		context = engine_take(schedules->engine, why);
		done = context != NULL && turn(schedules, context);
		if (context != NULL)
			engine_put(schedules->engine, context);
		else
			say(schedules, why);
		if (!done)
			(void)usleep(500000);
	}
	return NULL;
}

struct schedules *
schedules_start(struct engine *engine)
{
	struct schedules *schedules = calloc(1, sizeof(*schedules));

	if (schedules == NULL)
		return NULL;
	schedules->engine = engine;
	if (pthread_create(&schedules->thread, NULL, run, schedules) == 0)
		return schedules;
	free(schedules);
	return NULL;
}

void
schedules_stop(struct schedules *schedules)
{
	(void)pthread_join(schedules->thread, NULL);
	free(schedules);
}
