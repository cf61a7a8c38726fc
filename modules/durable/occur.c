/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scheduler does with schedules that are due: finds which of their
 * occurrences are to be added, adds them, and then tells the engine until when
 * they were, and when to look again. DESIGN, SCHEDULES, says why each is added
 * once, and none is lost.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "calendar.h"
#include "durable.h"

#define SCHEDULES_MAX 16u /* that one call tells of */
#define EACH_MAX 16u /* occurrences of a schedule in one turn */
#define BYTES_MAX (1u << 20) /* of their payloads: see DESIGN */
/* Later than that, an occurrence is missed: a line of cron names a minute. */
#define LATE_MAX_S 60
/* What a zone's rules were at a poll counts for no longer. */
#define POLL_MS UINT64_C(86400000)
#define MOVE_ARGUMENTS 5u

struct occurrence {
	char id[HWT_DURABLE_ID_MAX + 1];
	uint32_t of; /* the schedule */
};

/* What is to be said of a schedule when its occurrences were added. */
struct found {
	struct stored_schedule stored;
	bool settled; /* its calendar could be read, and all was added */
	uint64_t last_ms, next_ms, occurred_ms;
	struct number version, last, next, occurred;
};

struct turn {
	struct hwt_durable *durable;
	const struct engine_wait *wait;
	uint64_t now_ms; /* of the shard */
	uint64_t asked_ms; /* by this machine's clock */
	uint32_t shard;
	uint32_t count;
	struct found found[SCHEDULES_MAX];
	size_t tasks, bytes;
	struct occurrence occurrence[SCHEDULES_MAX * EACH_MAX];
	struct hwt_durable_task task[SCHEDULES_MAX * EACH_MAX];
	int result[SCHEDULES_MAX * EACH_MAX];
};

static uint64_t
clock_ms(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NS_PER_MS;
}

static void
occurrence_add(struct turn *turn, uint32_t of, int64_t at)
{
	const struct hwt_durable_schedule *schedule =
	    &turn->found[of].stored.schedule;
	struct occurrence *occurrence = &turn->occurrence[turn->tasks];
	struct hwt_durable_task *task = &turn->task[turn->tasks++];
	int64_t year;
	unsigned month, day;

	day_read(at / 86400, &year, &month, &day);
	occurrence->of = of;
	*task = schedule->task;
	task->id = occurrence->id;
	task->id_length = (size_t)snprintf(occurrence->id,
	    sizeof(occurrence->id), "%s@%04d-%02u-%02uT%02d:%02d:%02dZ",
	    schedule->name, (int)year, month, day, (int)(at % 86400 / 3600),
	    (int)(at % 3600 / 60), (int)(at % 60));
	task->due_unix_ns = (uint64_t)at * SECOND_NS;
	task->flags |= HWT_DURABLE_AT;
	if (task->expires_ns != 0) {
		task->expires_unix_ns = task->due_unix_ns + task->expires_ns;
		task->flags |= HWT_DURABLE_EXPIRES_AT;
	}
	turn->bytes += task->payload_length;
}

static bool
has_room(const struct turn *turn, const struct found *found)
{
	return turn->bytes + found->stored.schedule.task.payload_length <=
	    BYTES_MAX;
}

/* Those after last and until now, as the schedule says. Sets until when they
 * are added then. */
static void
occurrences_find(
    struct turn *turn, struct found *found, const struct calendar *calendar)
{
	uint32_t of = (uint32_t)(found - turn->found), count = 0;
	int64_t after = (int64_t)(found->stored.last_ms / 1000);
	int64_t until = (int64_t)(turn->now_ms / 1000), at;

	found->settled = true;
	found->occurred_ms = found->stored.occurred_ms;
	found->last_ms = turn->now_ms;
	if (found->stored.last_ms > turn->now_ms) {
		/* The clock was set back. */
		found->last_ms = found->stored.last_ms;
		return;
	}
	at = found->stored.schedule.missed == HWT_DURABLE_MISSED_ALL
	    ? calendar_next(calendar, after)
	    : calendar_last(calendar, after, until);
	if (found->stored.schedule.missed == HWT_DURABLE_MISSED_NONE &&
	    until - at > LATE_MAX_S)
		return;
	for (; at >= 0 && at <= until; at = calendar_next(calendar, at)) {
		if (count++ == EACH_MAX || !has_room(turn, found)) {
			found->last_ms = found->occurred_ms;
			found->next_ms = turn->now_ms;
			found->settled = count > 1;
			return;
		}
		occurrence_add(turn, of, at);
		found->occurred_ms = (uint64_t)at * 1000;
	}
}

static void
schedule_find(struct turn *turn, struct found *found)
{
	const struct hwt_durable_schedule *schedule = &found->stored.schedule;
	struct calendar calendar;
	char why[WHY_MAX] = "";
	int64_t next;

	if (schedule_calendar(&calendar, schedule, why) != 0) {
		engine_log(turn->durable->engine, LOG_ERR,
		    "schedule %s: %s; unless another scheduler can, it adds "
		    "nothing",
		    schedule->name, why);
		return;
	}
	occurrences_find(turn, found, &calendar);
	next = calendar_next(&calendar, (int64_t)(found->last_ms / 1000));
	calendar_free(&calendar);
	if (found->next_ms != 0)
		return;
	found->next_ms = turn->now_ms + POLL_MS;
	if (next >= 0 && (uint64_t)next * 1000 < found->next_ms)
		found->next_ms = (uint64_t)next * 1000;
}

/* {now, schedule...} */
static void
turn_read(struct turn *turn, const struct redisReply *reply)
{
	struct found *found;
	size_t i;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 1 ||
	    reply->elements > 1 + SCHEDULES_MAX ||
	    !reply_number(reply->element[0], &turn->now_ms))
		return;
	for (i = 1; i < reply->elements; i++) {
		found = &turn->found[turn->count];
		if (stored_read(&found->stored, reply->element[i])) {
			turn->count++;
			schedule_find(turn, found);
		} else
			engine_log(turn->durable->engine, LOG_ERR,
			    "shard %u has a schedule that cannot be read",
			    turn->shard);
	}
}

/* What cannot be added now is found again a second later. */
static void
turn_add(struct turn *turn)
{
	struct engine_wait wait = *turn->wait;
	size_t i;
	int error;

	if (turn->tasks == 0)
		return;
	wait.replicated = true;
	error = durable_add(turn->durable, turn->tasks, turn->task,
	    turn->result, &wait, turn->asked_ms);
	for (i = 0; i < turn->tasks; i++) {
		if (turn->result[i] < 0)
			turn->found[turn->occurrence[i].of].settled = false;
	}
	if (error == -EINVAL || error == -ENOSPC)
		engine_log(turn->durable->engine, LOG_WARNING,
		    "schedules of shard %u: an occurrence is not added: %s",
		    turn->shard, error_says(error));
}

static bool
turn_move(struct turn *turn)
{
	struct engine_argument argument[1 + SCHEDULES_MAX * MOVE_ARGUMENTS];
	struct engine_argument *at = argument;
	struct engine_call call = {
	    .script = SCRIPT_SCHEDULE, .shard = turn->shard, .arg = argument};
	struct found *found = turn->found;
	int error;

	*at++ = argument_text("move");
	for (; found < turn->found + turn->count; found++) {
		if (!found->settled)
			continue;
		*at++ = argument_text(found->stored.schedule.name);
		*at++ = argument_number(&found->version, found->stored.version);
		*at++ = argument_number(&found->last, found->last_ms);
		*at++ = argument_number(&found->next, found->next_ms);
		*at++ = argument_number(&found->occurred, found->occurred_ms);
	}
	call.count = (uint32_t)(at - argument);
	if (call.count == 1)
		return false;
	error = engine_call(turn->durable->engine, &call, 1, turn->wait);
	engine_call_free(&call, 1);
	return error == 0;
}

bool
schedules_occur(
    struct hwt_durable *durable, uint32_t shard, const struct engine_wait *wait)
{
	const struct engine_argument due = argument_text("due");
	struct engine_call call = {.script = SCRIPT_SCHEDULES,
	    .shard = shard,
	    .count = 1,
	    .arg = &due,
	    .reads = true};
	struct turn *turn = calloc(1, sizeof(*turn));
	bool moved = false;

	if (turn == NULL)
		return false;
	turn->durable = durable;
	turn->wait = wait;
	turn->shard = shard;
	turn->asked_ms = clock_ms();
	if (engine_call(durable->engine, &call, 1, wait) == 0) {
		turn_read(turn, call.reply);
		turn_add(turn);
		moved = turn_move(turn);
	}
	engine_call_free(&call, 1);
	free(turn);
	return moved;
}
