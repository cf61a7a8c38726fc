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
#define OPTION_WORDS_MAX 7 /* attempts, retry and expires, each once */
#define TIME_BYTES 21 /* of @2026-11-28T14:00:00Z */
#define ID_MAX 64

struct schedules {
	struct engine *engine;
	pthread_t thread;
	char said[ENGINE_WHY]; /* the last error */
};

/* What a payload says. */
struct schedule {
	char key[ENGINE_SPACE_MAX + ENGINE_NAME_MAX + 4]; /* of the queue */
	char result[24]; /* how long ids are kept */
	char cron[LINE_MAX_BYTES], zone[LINE_MAX_BYTES];
	uint64_t every_s, late_s;
	/* Words of HWT.ADD, each ending in a NUL. */
	char options[LINE_MAX_BYTES];
	size_t options_length, option_words;
	const char *payload;
	size_t payload_length;
	struct calendar calendar;
};

/* One that was taken. */
struct taken {
	const char *name;
	size_t name_length;
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
	schedule->option_words++;
	while ((at = strchr(at, ' ')) != NULL) {
		*at++ = '\0';
		schedule->option_words++;
	}
	return schedule->option_words <= OPTION_WORDS_MAX;
}

static bool
read_line(struct schedule *schedule, const char *space, char *line)
{
	char *value = strchr(line, ' ');

	if (value == NULL)
		return false;
	value++;
	if (strncmp(line, "queue ", 6) == 0) {
		if (!queue_name_is_valid(value))
			return false;
		(void)snprintf(schedule->key, sizeof(schedule->key), "{%s:%s}",
		    space, value);
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
read_schedule(struct schedule *schedule, const redisReply *payload,
    const char *space, char *why)
{
	const char *at = payload->str, *end = at + payload->len, *stop;
	char line[LINE_MAX_BYTES];

	schedule->late_s = LATE_DEFAULT_S;
	for (;; at = stop + 1) {
		stop = memchr(at, '\n', (size_t)(end - at));
		if (stop == NULL)
			stop = end;
		if (stop == at)
			break;
		(void)snprintf(
		    line, sizeof(line), "%.*s", (int)(stop - at), at);
		if (stop - at >= LINE_MAX_BYTES ||
		    !read_line(schedule, space, line)) {
			(void)snprintf(why, WHY_MAX,
			    "a schedule does not have the line: %.100s", line);
			return false;
		}
		if (stop == end)
			break;
	}
	schedule->payload = stop < end ? stop + 1 : end;
	schedule->payload_length = (size_t)(end - schedule->payload);
	if (schedule->key[0] == '\0' ||
	    (schedule->every_s == 0) == (schedule->cron[0] == '\0')) {
		(void)snprintf(why, WHY_MAX,
		    "a schedule has a queue, and one of every and cron");
		return false;
	}
	(void)snprintf(schedule->result, sizeof(schedule->result), "%llu",
	    (unsigned long long)(schedule->late_s + DAY_S) * 1000);
	return calendar_read(&schedule->calendar, schedule->every_s,
	    schedule->cron, schedule->zone, why);
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

static enum outcome
outcome_of(const redisContext *context, const redisReply *reply, char *why)
{
	if (reply != NULL && reply->type == REDIS_REPLY_ARRAY)
		return OUTCOME_ADDED;
	engine_say(why, context, reply);
	return reply != NULL && strncmp(reply->str, "ARG", 3) == 0
	    ? OUTCOME_WRONG
	    : OUTCOME_AGAIN;
}

/* HWT.ADD key RESULT ms, options, EACH TASKS, tasks. */
#define WORDS_MAX (4 + OPTION_WORDS_MAX + 2 + 3 * OCCURRENCES_MAX)
struct words {
	const char *word[WORDS_MAX];
	size_t length[WORDS_MAX];
	int count;
};

static void
add_word(struct words *words, const char *bytes, size_t length)
{
	words->word[words->count] = bytes;
	words->length[words->count++] = length;
}

/* HWT.ADD, up to the tasks. */
static void
begin_add(struct words *words, const struct schedule *schedule)
{
	const char *at = schedule->options;
	const char *end = at + schedule->options_length;

	words->count = 0;
	add_word(words, "HWT.ADD", 7);
	add_word(words, schedule->key, strlen(schedule->key));
	add_word(words, "RESULT", 6);
	add_word(words, schedule->result, strlen(schedule->result));
	for (; at < end; at += strlen(at) + 1)
		add_word(words, at, strlen(at));
	add_word(words, "EACH", 4);
	add_word(words, "TASKS", 5);
}

/* Adds the occurrences from a time on that have come, and sets it to the first
 * that was not added. */
static enum outcome
add_occurrences(
    const struct taken *taken, redisContext *context, int64_t *from, char *why)
{
	const struct schedule *schedule = &taken->schedule;
	char id[OCCURRENCES_MAX][ID_MAX + 1], due[OCCURRENCES_MAX][24];
	size_t i, bytes = 0;
	enum outcome outcome;
	struct words words;
	redisReply *reply;

	begin_add(&words, schedule);
	for (i = 0; i < OCCURRENCES_MAX && bytes < BYTES_MAX && *from >= 0 &&
	     *from <= taken->now_ms / 1000;
	     i++) {
		add_word(&words, id[i], write_id(id[i], taken, *from));
		add_word(&words, due[i],
		    (size_t)snprintf(
			due[i], sizeof(due[i]), "%lld000", (long long)*from));
		add_word(&words, schedule->payload, schedule->payload_length);
		bytes += schedule->payload_length;
		*from = calendar_next(&schedule->calendar, *from);
	}
	if (i == 0)
		return OUTCOME_ADDED;
	reply =
	    redisCommandArgv(context, words.count, words.word, words.length);
	outcome = outcome_of(context, reply, why);
	freeReplyObject(reply);
	return outcome;
}

/* What GET and STAT say of it. False: it is gone, or there was no answer. */
static bool
read_times(struct taken *taken, redisContext *context, const char *space)
{
	redisReply *reply;

	reply = redisCommand(context, "HWT.GET {%s:" QUEUE "} %b", space,
	    taken->name, taken->name_length);
	taken->due_ms = reply_number(reply, "due");
	freeReplyObject(reply);
	reply = redisCommand(context, "HWT.STAT {%s:" QUEUE "}", space);
	taken->now_ms = reply_number(reply, "now");
	freeReplyObject(reply);
	return taken->due_ms > 0 && taken->now_ms > 0;
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

static enum outcome
work_off(struct taken *taken, const redisReply *payload, redisContext *context,
    const char *space, char *why)
{
	enum outcome outcome;
	int64_t from;

	if (!read_schedule(&taken->schedule, payload, space, why))
		return OUTCOME_WRONG;
	from = first_occurrence(taken);
	outcome = add_occurrences(taken, context, &from, why);
	if (outcome == OUTCOME_ADDED && from < 0) {
		(void)snprintf(why, WHY_MAX, "it never occurs again");
		return OUTCOME_WRONG;
	}
	/* Another may have taken it since, and be further. */
	if (outcome != OUTCOME_WRONG &&
	    steady_ms() - taken->begin_ms < VISIBILITY_MS / 2)
		freeReplyObject(redisCommand(context,
		    "HWT.RESCHEDULE {%s:" QUEUE "} DUE %lld %b", space,
		    outcome == OUTCOME_ADDED ? (long long)from * 1000
					     : (long long)taken->due_ms,
		    taken->name, taken->name_length));
	return outcome;
}

/* Takes one. */
static enum outcome
turn(struct taken *taken, redisContext *context, const char *space, char *why)
{
	enum outcome outcome = OUTCOME_ADDED;
	redisReply **task, *reply;

	taken->begin_ms = steady_ms();
	reply = redisCommand(context,
	    "HWT.TAKE {%s:" QUEUE "} hwtd 1 %d BLOCK 1000", space,
	    VISIBILITY_MS);
	if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
		outcome = outcome_of(context, reply, why);
	} else if (reply->type == REDIS_REPLY_ARRAY) {
		task = reply->element[0]->element;
		taken->name = task[0]->str;
		taken->name_length = task[0]->len;
		why[0] = '\0';
		outcome = OUTCOME_AGAIN;
		if (taken->name_length > ID_MAX - TIME_BYTES) {
			(void)snprintf(
			    why, WHY_MAX, "a name has 1 to 43 bytes");
			outcome = OUTCOME_WRONG;
		} else if (read_times(taken, context, space)) {
			outcome = work_off(taken, task[5], context, space, why);
		}
		calendar_free(&taken->schedule.calendar);
		if (outcome == OUTCOME_WRONG)
			freeReplyObject(redisCommand(context,
			    "HWT.FINISH {%s:" QUEUE "} FAIL %s TASKS %b %lld",
			    space, why, taken->name, taken->name_length,
			    task[1]->integer));
	}
	freeReplyObject(reply);
	return outcome;
}

static void *
run(void *arg)
{
	struct schedules *schedules = arg;
	enum outcome outcome;
	redisContext *context;
	struct taken taken;
	char why[WHY_MAX];

	while (!engine_is_closed(schedules->engine)) {
		memset(&taken, 0, sizeof(taken));
		outcome = OUTCOME_AGAIN;
		context = engine_take(schedules->engine, why);
		if (context != NULL) {
			outcome = turn(&taken, context,
			    engine_space(schedules->engine), why);
			engine_put(schedules->engine, context);
		}
		say(schedules, outcome == OUTCOME_ADDED ? "" : why);
		if (outcome == OUTCOME_AGAIN)
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
