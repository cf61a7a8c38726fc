/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a handle, and what its source files share.
 *
 *   durable.c    open, close, and what a producer calls
 *   space.c      which shards there are, and that none is missing
 *   scheduler.c  a thread that pumps shards
 *   worker.c     threads that execute tasks: see worker_internal.h
 *   queue.c      pause, resume and limits of a queue
 *   schedule.c   schedules, as users see them
 *   occur.c      adds the occurrences that are due
 *   calendar.c   when a schedule occurs
 *   task.c       checks, records, numbers; no input or output
 *   engine.h     the client of Redis; its files: engine_internal.h
 */
#ifndef HWT_DURABLE_INTERNAL_H
#define HWT_DURABLE_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "sys/atomic.h"
#include "engine.h"

#define NS_PER_MS UINT64_C(1000000)
#define NAME_MAX_LENGTH 64
#define SHARDS_MAX 1024u

struct hwt_durable {
	struct engine *engine;
	uint32_t shards;
	pid_t owner;
	struct hwt *timer; /* of the options, or own_timer */
	struct hwt *own_timer;
	a64_t users; /* schedulers and workers */
	a64_t tokens; /* that attempts were given */
	/* For hwt_durable_finish: the workers, under their lock, which is taken
	 * before that of a worker. */
	pthread_mutex_t workers_lock;
	struct hwt_durable_worker *workers;
};

/* 0, -EINVAL for NULL, -EOWNERDEAD in a child. */
int durable_enter(const struct hwt_durable *durable);

/* For a scheduler or worker: the timer, and that it is in use. */
struct hwt *durable_begin_use(struct hwt_durable *durable);
void durable_end_use(struct hwt_durable *durable);

/* As hwt_durable_add, for as long as wait says. read_ms: of occurrences, when
 * their schedules were read; or 0. */
int durable_add(struct hwt_durable *durable, size_t count,
    const struct hwt_durable_task *tasks, int *results,
    const struct engine_wait *wait, uint64_t read_ms);

/* A schedule as the engine has it; what it points to is the reply's. */
struct stored_schedule {
	struct hwt_durable_schedule schedule;
	uint64_t version, last_ms, occurred_ms;
};

/* schedule.c: {name, look, field, value...}. False: it cannot be read, or it
 * is gone. */
bool stored_read(
    struct stored_schedule *stored, const struct redisReply *reply);

struct calendar;

/* -EINVAL, -ENOENT, -ENOMEM, with why. The caller frees it. */
int schedule_calendar(struct calendar *calendar,
    const struct hwt_durable_schedule *schedule, char *why);

/* occur.c: adds what occurs of the schedules of a shard, as far as it is due
 * by the engine's clock. True: there may be more, or another time for the next
 * look at the shard. */
bool schedules_occur(struct hwt_durable *durable, uint32_t shard,
    const struct engine_wait *wait);

/* As hwt_durable_read_stats, for as long as wait says; NULL: the defaults. */
int durable_read_stats(struct hwt_durable *durable,
    struct hwt_durable_stats *stats, const struct engine_wait *wait);

/* space.c: finds the space, or makes it as the options' flags have it. Errors
 * as hwt_durable_open. */
int space_open(struct engine *engine, const struct hwt_durable_options *options,
    uint32_t *shards);

/* task.c */

/* In milliseconds, rounded up. */
uint64_t whole_ms(uint64_t ns);

/* [A-Za-z0-9._-], 1 to max of them. */
bool name_is_valid(const char *name, size_t max);

bool words_are_zero(const uint64_t *word, size_t count);
#define RESERVED_IS_ZERO(of) \
	words_are_zero((of)->reserved, sizeof((of)->reserved) / 8)

bool task_is_valid(const struct hwt_durable_task *task, uint64_t now_ns);

/* As records and schedules have it: 0 normal, 1 high, 2 low. */
#define PRIORITY_FLAGS (HWT_DURABLE_HIGH | HWT_DURABLE_LOW)
#define PRIORITY_MAX 2u
uint32_t priority_flags(uint64_t priority);
uint64_t priority_of(uint32_t flags);

/* How a task is retried, with the defaults in the place of zeros. */
struct task_retries {
	uint64_t first_ms, most_ms, thousandths;
};
void task_retries(
    const struct hwt_durable_task *task, struct task_retries *retries);

/* Whether it says so itself. */
bool task_has_retries(const struct hwt_durable_task *task);

/* Of a delay, or of a time if flags say so. */
bool time_is_valid(uint64_t time_ns, uint32_t flags, uint64_t now_ns);

/* FNV-1a. */
uint64_t id_hash(const char *id, size_t id_length);

/* A record as DESIGN has it. What cannot be read is QUARANTINED. */
void record_read(struct hwt_durable_info *info, const char *record,
    size_t length, const char **payload);

/* A number in an argument. */
struct number {
	char text[24];
};
struct engine_argument argument_number(struct number *to, uint64_t number);
struct engine_argument argument_text(const char *text);

/* True: a reply that is a number, also as text. */
bool reply_number(const struct redisReply *reply, uint64_t *number);

/* Unique for practical purposes: host name, process, random. */
void name_make(char name[NAME_MAX_LENGTH + 1]);

uint64_t random_number(void);

/* What an error means; constant. NULL: it is none of this library's. */
const char *error_text(int error);

/* The same, for the log: there is always a text. */
const char *error_says(int error);

/* A second, for what runs once a second. */
#define SECOND_NS HWT_SEC(1)

#endif
