/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_durable - delayed tasks that outlive a machine, on Redis.
 *
 * PROMISES
 *
 *   at-least-once  A task that was acknowledged at its durability level, and is
 *                  not cancelled, is executed until it succeeds, fails, or has
 *                  had max_attempts attempts in its generation. It is executed
 *                  more than once only after a worker crash, a visibility
 *                  time-out, the loss of an acknowledged finish, or a requested
 *                  retry.
 *   never-early    No attempt begins before the task is due, by the engine's
 *                  clock.
 *   fenced         The outcome of an attempt counts only if the engine has not
 *                  given the attempt up meanwhile: each has a fence, a number
 *                  that grows and is never used twice.
 *   cancelled      No attempt begins after a cancel that returned 0.
 *   repeatable     A call whose answer was lost can be repeated with the same
 *                  id: an add then finds what the first one has stored.
 *   whole          An add with an invalid element stores nothing.
 *
 * The engine is Redis 7 or later. A space is a set of tasks on one engine; it
 * is divided into shards, each a hashed wheel of its own. Any process may be a
 * producer (add, cancel, reschedule, get), a scheduler (moves what is due from
 * the wheel to the queues) or a worker (takes from a queue and calls back). A
 * space without a scheduler executes nothing; hwtd is one.
 *
 * All functions return 0 or a negative errno value, but where they say
 * otherwise. They may be called from any thread; hwt_durable_close, and the
 * start and stop of a scheduler or worker, not at the same time as another call
 * with the same argument. A call blocks for as long as the engine takes, at
 * most timeout_ns; but if it needs a new connection, and the server was given
 * by name, the look-up of that name takes as long as the system's resolver
 * does. Addresses need no look-up. Times are in nanoseconds and are rounded up
 * to whole milliseconds.
 *
 * In a child process, every function returns -EOWNERDEAD for what its parent
 * has opened or started, and nothing frees that there. Only
 * hwt_durable_schedule_next, and hwt_durable_set_error in a child that was
 * forked in a callback, do what they always do. That child's copy of the
 * callback may go on and must end in _exit or exec.
 *
 * Errors that several functions share:
 *
 * -EINVAL      an argument is outside its range, a reserved word is set
 * -ETIMEDOUT   no answer in time, or too few replicas have it: the call may
 *              have taken effect or not. Repeat it with the same id
 * -ECONNREFUSED  the engine was not reached; nothing has happened
 * -ETIME       the clocks of this machine and the engine are further apart than
 *              skew_ns (ESKEW); nothing has happened
 * -EAGAIN      the shard is paused, or the engine is loading or failing over,
 *              and this lasted longer than timeout_ns; nothing has happened
 * -ENOSPC      the engine is out of memory, then only adds are refused; or it
 *              cannot write its snapshots. Nothing has happened. (A full disk
 *              ends Redis with appendfsync always: -ETIMEDOUT for the call that
 *              it was about, then -ECONNREFUSED, until it runs again.)
 * -ESTALE      the space, or the shard that is needed, is gone: it was deleted,
 *              or the engine lost its data. Nothing has happened. If a new
 *              space is made under the name, this handle never works on it:
 *              another open does
 * -EPROTO      the engine answered what this library does not understand
 * -EACCES      the user has no right to do that, or no longer; nothing has
 *              happened
 * -EOPNOTSUPP  as for hwt_durable_open, after a new connection, or when the
 *              engine, which is asked again each second, has been changed by
 *              CONFIG SET. Nothing has happened
 * -ENOMEM, -ESHUTDOWN   no memory; the timer was stopped
 */
#ifndef HWT_DURABLE_H
#define HWT_DURABLE_H

#include <hwt.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct hwt_durable;
struct hwt_durable_scheduler;
struct hwt_durable_worker;

/* What an acknowledged add survives. */
#define HWT_DURABLE_MEMORY 1 /* the crash of a client */
/* kill -9 of the engine, and its machine's loss of power: appendonly yes,
 * appendfsync always, no-appendfsync-on-rewrite no, and aof-load-truncated no,
 * which would cut what it cannot read. */
#define HWT_DURABLE_FSYNCED 2
/* The same, and the loss of the master, if a replica takes its place that was
 * waited for: see the option replicas, and man hwt_durable (7). */
#define HWT_DURABLE_REPLICATED 3

/* The limits. */
#define HWT_DURABLE_ID_MAX 64 /* bytes of an id, any; at least 1 */
#define HWT_DURABLE_QUEUE_MAX 64 /* of [A-Za-z0-9._-]; at least 1 */
#define HWT_DURABLE_QUEUES_MAX 16 /* of a worker */
#define HWT_DURABLE_SPACE_MAX 32 /* of [A-Za-z0-9._-]; at least 1 */
#define HWT_DURABLE_PAYLOAD_MAX 65536 /* bytes, any */
#define HWT_DURABLE_ATTEMPTS_MAX 1000
#define HWT_DURABLE_ERROR_MAX 1024 /* bytes of what a callback says */
#define HWT_DURABLE_BATCH_MAX 512 /* tasks of an add */
#define HWT_DURABLE_SCHEDULE_MAX 43 /* of [A-Za-z0-9._-]; at least 1 */
#define HWT_DURABLE_WHY_MAX 160 /* bytes of a sentence, with its 0 */
#define HWT_DURABLE_DELAY_MAX HWT_SEC(315360000) /* 10 years */

/* Flags of an open. */
#define HWT_DURABLE_CREATE 1u /* makes the space if there is none */
/* Makes shards whose data is gone anew, and empty. What else is there stays. */
#define HWT_DURABLE_REPAIR 2u

/* All zero: the defaults. */
struct hwt_durable_options {
	/* "HOST:PORT" or "unix:PATH"; "sentinel:HOST:PORT,...,NAME"; or
	 * "cluster:HOST:PORT,...". NULL: 127.0.0.1:6379. */
	const char *servers;
	const char *space; /* NULL: "hwt" */
	const char *user; /* of Redis' ACL; NULL: the default user */
	/* The password is the first line of this file, up to 512 bytes; NULL:
	 * none. */
	const char *password_file;
	/* The shape of a space is fixed when it is made, by hwtctl init or an
	 * open with HWT_DURABLE_CREATE. 0: as it is; for a new one 1 shard, in
	 * a cluster 16; slots so that all shards have 65536, each at least
	 * 4096; a tick of 10 ms times shards, 100 ms at most. */
	uint32_t shards; /* 1 to 1024 */
	uint32_t slots; /* 8 to 2^20, a power of two */
	uint64_t tick_ns; /* 1 ms to 1 hour, whole milliseconds */
	/* One of HWT_DURABLE_*; 0: as the space is, for a new one FSYNCED. The
	 * engine must keep at least this. */
	uint32_t level;
	/* For REPLICATED: so many replicas have what is acknowledged, 1 to 10;
	 * 0: all that are connected, at least 1. */
	uint32_t replicas;
	uint64_t skew_ns; /* 0: 5 s; HWT_NEVER: clocks are not compared */
	uint64_t timeout_ns; /* 1 ms to 1 hour; 0: 5 s */
	/* How long the record of an ended task stays: so long an add of the
	 * same id is recognised as a repetition. Fixed as the shape is. 0: 1
	 * hour. Failed tasks stay until hwtctl dead drops them. */
	uint64_t retention_ns;
	/* For every wait. It must outlive the handle. What is due is late by
	 * its tick. NULL: one of the handle's own, with a tick of 1 ms, whose
	 * thread begins with the first scheduler or worker. */
	struct hwt *timer;
	uint32_t flags; /* HWT_DURABLE_CREATE, _REPAIR */
	/* Gets a sentence about each error that is not merely returned, and
	 * about an open that fails; from any thread, several at a time. NULL:
	 * stderr. It must outlive the handle. */
	const struct hwt_log *log;
	uint64_t reserved[8]; /* 0 */
};

/* due_unix_ns counts from now if this is not set: delay_ns. */
#define HWT_DURABLE_AT 1u
/* hwt_durable_add: takes the place of a task that has ended with the same id,
 * as its next generation; a dead letter is dropped. Of one that has not ended
 * nothing changes. A repetition is recognised until the new one has ended. */
#define HWT_DURABLE_REPLACE 2u
/* expires_unix_ns counts from now if this is not set: expires_ns. */
#define HWT_DURABLE_EXPIRES_AT 4u
/* The priority of a task; neither: normal. Of what is due in a queue and a
 * shard, no attempt of a task begins while one of higher priority waits in the
 * queue there. Retries and replays keep it. */
#define HWT_DURABLE_HIGH 8u
#define HWT_DURABLE_LOW 16u

struct hwt_durable_task {
	/* Made by the caller before it sends, so that it can be repeated. */
	const char *id;
	size_t id_length;
	const char *queue; /* ends with 0 */
	union {
		uint64_t delay_ns; /* 0 to HWT_DURABLE_DELAY_MAX */
		/* With HWT_DURABLE_AT: up to HWT_DURABLE_DELAY_MAX from now, by
		 * this machine's clock and by the engine's. What has passed is
		 * due at once. */
		uint64_t due_unix_ns;
	};
	/* 1 to 1000; 0: 20. An attempt counts when a worker takes the task: if
	 * it is killed before it calls back, the attempt is lost. So with 1, a
	 * task may fail without having been executed. */
	uint32_t max_attempts;
	/* HWT_DURABLE_AT, HWT_DURABLE_REPLACE, HWT_DURABLE_EXPIRES_AT, and one
	 * of HWT_DURABLE_HIGH and HWT_DURABLE_LOW; or 0 */
	uint32_t flags;
	const void *payload; /* NULL if payload_length is 0 */
	size_t payload_length;
	/* No attempt begins later than this, rounded up to whole milliseconds,
	 * by the engine's clock: the task becomes a dead letter instead, with
	 * the error "expired", when a worker would get it. Not before the due
	 * time, if both are delays or both are times; limits as of the due
	 * time. 0: it does not expire. */
	union {
		uint64_t expires_ns;
		uint64_t expires_unix_ns; /* with HWT_DURABLE_EXPIRES_AT */
	};
	/* How long a retry waits, if its callback does not say that, or never
	 * came to its end: a random time up to retry_first_ns, then
	 * retry_factor times as long with each attempt, to retry_most_ns. 1 ms
	 * to HWT_DURABLE_DELAY_MAX; 0: 1 s. */
	uint64_t retry_first_ns;
	/* Not less than retry_first_ns. 0: 10 min, or retry_first_ns if that is
	 * more. */
	uint64_t retry_most_ns;
	double retry_factor; /* 1 to 1000, rounded to 0.001; 0: 2 */
	uint64_t reserved[3]; /* 0 */
};

enum hwt_durable_state {
	HWT_DURABLE_PENDING = 1, /* in the wheel, also for a retry */
	HWT_DURABLE_DELIVERED, /* due, in its queue */
	HWT_DURABLE_RUNNING, /* a worker has it */
	HWT_DURABLE_SUCCEEDED,
	HWT_DURABLE_FAILED, /* a dead letter */
	HWT_DURABLE_CANCELLED,
	HWT_DURABLE_QUARANTINED /* a record that cannot be read */
};

struct hwt_durable_info {
	enum hwt_durable_state state;
	uint32_t attempts; /* begun in this generation */
	uint32_t max_attempts;
	uint32_t generation; /* from 1; each reschedule and replay adds one */
	uint64_t due_unix_ns;
	size_t payload_length;
	char queue[HWT_DURABLE_QUEUE_MAX + 1];
	uint64_t changed_unix_ns; /* its last change; or when it ended */
	uint64_t expires_unix_ns; /* 0: it does not expire */
	/* 0: 1 s, 10 min, 2 */
	uint64_t retry_first_ns, retry_most_ns;
	double retry_factor;
	uint64_t flags; /* HWT_DURABLE_HIGH, HWT_DURABLE_LOW, or 0 */
	uint64_t reserved[3];
};

/* Sums over all shards. */
struct hwt_durable_stats {
	uint64_t added; /* since the space was made, as the four below */
	uint64_t succeeded, failed, cancelled, dropped;
	uint64_t begun, retried, expired_leases;
	uint64_t pending, delivered, running, quarantined; /* now */
	uint64_t dead; /* now */
	uint64_t missed; /* due tasks that a scan has found: 0 */
	uint64_t lag_ns; /* of the shard that is furthest behind */
	/* Of begun, those that were released: their callbacks were not called,
	 * and the attempt does not count. */
	uint64_t given_back;
	/* At level REPLICATED, of the master that has most: how many replicas
	 * are connected to it, and how many of them a call waits for. Is the
	 * former greater, a fail-over may lose what was acknowledged. */
	uint64_t replicas, replicas_awaited;
	/* Nothing is executed while one of them is not 0. For how long time
	 * stands still, in the shard where that is longest, because the
	 * engine's clock was set back; and by how much it has leapt ahead,
	 * which is believed after 10 s. */
	uint64_t clock_ahead_ns, clock_leap_ns;
	uint64_t reserved[11];
};

/*
 * Connects, verifies the engine, and finds the space. One handle serves a whole
 * process.
 *
 * -ENOENT      there is no such space, and flags lack HWT_DURABLE_CREATE; or
 *              the password file cannot be read, or is empty; the log says
 *              which
 * -ESTALE      a part of the space is gone; the log names a shard
 * -EOPNOTSUPP  the engine is older than Redis 7, built for 32 bits, a replica,
 *              evicts (maxmemory-policy is not noeviction), or keeps less than
 *              level; the log says which
 * -EEXIST      the space has another shape
 * -EACCES      wrong user or password, or the user lacks a right that man
 *              hwt_durable (7) names; the log says which
 * -EINVAL      also: the first line of the password file is too long, or has a
 *              zero byte
 * -ENOMEM
 */
int hwt_durable_open(
    struct hwt_durable **durable, const struct hwt_durable_options *options);

/* -EBUSY  a scheduler or worker of it has not been stopped */
int hwt_durable_close(struct hwt_durable *durable);

/*
 * Adds count tasks, 0 to 512. results[i]: 0 stored; or an error; or an enum
 * hwt_durable_state: the id was there already, in this state, and nothing has
 * changed. In the states from PENDING to SUCCEEDED that is as good; one that is
 * FAILED or CANCELLED is not executed for this: see HWT_DURABLE_REPLACE. If an
 * element is invalid, nothing is stored: its result is -EINVAL, all others are
 * -ECANCELED. Returns 0 if no result is an error, otherwise the first one that
 * is not -ECANCELED. results may be NULL.
 */
int hwt_durable_add(struct hwt_durable *durable, size_t count,
    const struct hwt_durable_task *tasks, int *results);

/*
 * 0: it has not begun in this generation's current attempt and never will, also
 * if it had been cancelled before.
 * -ENOENT       there is none, or its retention is over
 * -EINPROGRESS  it is running
 * -EALREADY     it has succeeded or failed
 */
int hwt_durable_cancel(
    struct hwt_durable *durable, const char *id, size_t id_length);

/*
 * Gives it a new due time and a new generation, whose attempts count from 1.
 * flags: HWT_DURABLE_AT or 0. Errors as hwt_durable_cancel; -EALREADY also if
 * it was cancelled; -EINVAL also if it expires before that time: a delay counts
 * anew when it is repeated after -ETIMEDOUT, and then that may have happened
 * all the same.
 */
int hwt_durable_reschedule(struct hwt_durable *durable, const char *id,
    size_t id_length, uint64_t delay_or_due_ns, uint32_t flags);

/*
 * The first payload_size bytes of the payload are copied to payload, which may
 * be NULL. The payload of an ended task that did not fail is gone.
 * -ENOENT  there is none, or its retention is over
 */
int hwt_durable_get(struct hwt_durable *durable, const char *id,
    size_t id_length, struct hwt_durable_info *info, void *payload,
    size_t payload_size);

/*
 * From then on no attempt begins of a queue's tasks, whoever takes them, until
 * the resume; also after a restart of the engine or a fail-over, at level. What
 * workers have taken before ends as usual, what is added or due waits in the
 * queue, which need not have tasks for this. It may be repeated. After an
 * error, it may be paused in some shards and not in others: repeat the call.
 * -EINVAL  queue is NULL or no name of a queue
 */
int hwt_durable_pause(struct hwt_durable *durable, const char *queue);

/*
 * The end of a pause; workers that wait begin at once. Repeat it as the pause.
 * -EINVAL  queue is NULL or no name of a queue
 */
int hwt_durable_resume(struct hwt_durable *durable, const char *queue);

struct hwt_durable_limits {
	/* Tasks that workers have at a time, also those that they have taken
	 * and not called back for yet; 0: any number. Each shard has an equal
	 * part, so it is at least the number of shards. An attempt that was
	 * given up (run_limit_ns, a lost lease) does not count, though its
	 * callback may not have returned. */
	uint64_t at_once;
	/* Attempts that begin in a second: 0.001 to 1000000, rounded to 0.001;
	 * 0: any number. A bucket of tokens, which holds what a second brings,
	 * and in each shard at least one: so in any t seconds at most rate * t
	 * begin, and what it holds. Each shard has an equal part. */
	double rate;
	uint64_t reserved[4]; /* 0 */
};

/*
 * The limits of a queue, for all its workers together, in the place of those
 * before. What runs already counts. What a worker that is gone has is free
 * when its leases end. They are kept in the engine, as a pause is; after an
 * error, some shards may have them and others not: repeat it.
 * -EINVAL  queue is NULL or no name of a queue; a limit is outside its range
 */
int hwt_durable_limit(struct hwt_durable *durable, const char *queue,
    const struct hwt_durable_limits *limits);

/* What becomes of occurrences that no scheduler has added in time. */
enum hwt_durable_missed {
	HWT_DURABLE_MISSED_LAST = 0, /* of several, the last one is added */
	HWT_DURABLE_MISSED_ALL = 1, /* each is */
	/* None that is late by more than a minute: the last one is added if it
	 * is not. */
	HWT_DURABLE_MISSED_NONE = 2
};

/*
 * Adds a task again and again: every so many seconds, counted from 1970, or by
 * a line of cron. Schedulers add the task when its time has come, once, however
 * many of them run. Its id is NAME@TIME with the time in UTC, as
 * "backup@2027-01-31T02:30:00Z"; it is due at that time.
 */
struct hwt_durable_schedule {
	const char *name; /* ends with 0 */
	uint64_t every_ns; /* whole seconds, up to 10 years; 0: cron */
	/* Minute, hour, day, month, weekday, as crontab (5) has them; up to 256
	 * bytes. NULL: every_ns. */
	const char *cron;
	/* Of cron: "Europe/Paris"; NULL: UTC. man hwt_durable_schedule_put (3)
	 * says what happens when clocks change. */
	const char *zone;
	uint32_t missed; /* enum hwt_durable_missed */
	uint32_t flags; /* 0 */
	/* What is added; its id and time are NULL and 0, and its flags have at
	 * most a priority. expires_ns counts from when an occurrence is due,
	 * also if it is added late. */
	struct hwt_durable_task task;
	uint64_t reserved[4]; /* 0 */
};

/* What a schedule has come to; 0: nothing yet. */
struct hwt_durable_schedule_info {
	uint64_t last_unix_ns; /* the last occurrence that was added */
	uint64_t next_unix_ns; /* the next one, as this machine finds it */
	uint64_t reserved[4];
};

/*
 * Makes a schedule, or changes the one of that name. One that is there just so
 * is left alone: so this may be repeated, and may stand in what each start of a
 * program does. If it occurs by something else now, it begins anew: what was
 * missed before is not added. An occurrence whose time came before the change
 * may still be added as it was, within 10 s.
 * -EINVAL  also: the line makes no sense, or names no day that ever is; the log
 *          says which field
 * -ENOENT  this machine has no such time zone; the log says which
 */
int hwt_durable_schedule_put(
    struct hwt_durable *durable, const struct hwt_durable_schedule *schedule);

/*
 * No occurrence of a later time is added. One whose time came before may be,
 * within 10 s. What was added stays: hwt_durable_cancel.
 * -EINVAL  name is NULL or no name of a schedule
 * -ENOENT  there is none
 */
int hwt_durable_schedule_drop(struct hwt_durable *durable, const char *name);

/* The texts are valid until it returns. Any other value than 0 ends the list.
 */
typedef int hwt_durable_schedule_callback(void *ctx,
    const struct hwt_durable_schedule *schedule,
    const struct hwt_durable_schedule_info *info);

/*
 * Calls it for the schedule of a name; or NULL: for each, in any order. Returns
 * what the callback has returned. One that cannot be read is left out, and the
 * log has its name; if it is the one that was asked for: -EPROTO.
 * -EINVAL  callback is NULL, or name is no name of a schedule
 * -ENOENT  there is none of that name
 */
int hwt_durable_schedule_list(struct hwt_durable *durable, const char *name,
    hwt_durable_schedule_callback *callback, void *ctx);

/*
 * When a schedule occurs next after a time, or *next_unix_ns is 0: never. Asks
 * no engine. Its name and task are not looked at. why may be NULL; or it gets a
 * sentence about an error.
 * -EINVAL, -ENOENT  as hwt_durable_schedule_put
 */
int hwt_durable_schedule_next(const struct hwt_durable_schedule *schedule,
    uint64_t after_unix_ns, uint64_t *next_unix_ns,
    char why[HWT_DURABLE_WHY_MAX]);

int hwt_durable_read_stats(
    struct hwt_durable *durable, struct hwt_durable_stats *stats);

/* Names an attempt, in the process that has it: a value, which may be copied,
 * and kept for as long as the handle is open. */
struct hwt_durable_token {
	struct hwt_durable *durable;
	uint64_t number;
};

/* What a worker's callback gets; valid until it returns. */
struct hwt_durable_delivery {
	const char *id, *queue; /* end with 0 */
	size_t id_length;
	const void *payload;
	size_t payload_length;
	uint32_t attempt; /* from 1, in this generation */
	uint32_t max_attempts;
	uint32_t generation;
	uint64_t due_unix_ns;
	/* For HWT_DURABLE_RETRY: the delay. It is HWT_NEVER at first, which
	 * stands for an exponential back-off with full jitter: up to 1 s, 2 s,
	 * 4 s and so on to 10 min, unless the task says otherwise. */
	uint64_t *retry_delay_ns;
	/* A fencing token: greater than that of each attempt before, also of a
	 * task with the same id whose record has gone. A store that remembers
	 * the greatest one it has seen of an id, and refuses what comes with a
	 * lesser one, is safe from an execution that comes late. */
	uint64_t fence;
	struct hwt_durable_token token; /* for hwt_durable_finish */
	uint64_t reserved[1];
};

#define HWT_DURABLE_RETRY 1 /* execute again, if attempts are left */
#define HWT_DURABLE_FAIL 2 /* a dead letter, at once */
#define HWT_DURABLE_LATER 3 /* hwt_durable_finish will say it */
/* For hwt_durable_finish alone: the task goes back to its queue at once, as if
 * it had not been taken. The attempt does not count. */
#define HWT_DURABLE_RELEASE 4

/* 0: done. Any other value than the first three fails it. */
typedef int hwt_durable_callback(
    void *ctx, const struct hwt_durable_delivery *delivery);

/*
 * In the callback, and on its thread: says why it will return another value
 * than 0, in up to HWT_DURABLE_ERROR_MAX bytes of any kind. If the task becomes
 * a dead letter by that, this is kept with it, with the worker's name; hwtctl
 * shows it. The last call counts.
 *
 * -EINVAL  an argument is NULL, or the text is too long
 */
int hwt_durable_set_error(const struct hwt_durable_delivery *delivery,
    const char *text, size_t length);

/*
 * Ends the attempt of a callback that returns HWT_DURABLE_LATER, from any
 * thread, also before the callback returns: then what it returns has no effect.
 * Until this is called the lease is extended, as while a callback runs. It does
 * not block for the engine. outcome: 0, HWT_DURABLE_RETRY, HWT_DURABLE_FAIL or
 * HWT_DURABLE_RELEASE. delay_ns is read for a retry: 0 to
 * HWT_DURABLE_DELAY_MAX, or HWT_NEVER for the back-off of retry_delay_ns.
 *
 * 0: the worker reports the outcome, after the callback has returned, as if
 * that had returned it. Whichever call is the first for a token counts.
 * -ESTALE  the attempt has an outcome: it was finished before, the callback has
 *          returned another value than HWT_DURABLE_LATER, run_limit_ns is over,
 *          the lease was lost, or the worker has stopped. Nothing is done
 * -EINVAL  outcome or delay_ns is outside its range, token.durable is NULL
 */
int hwt_durable_finish(
    struct hwt_durable_token token, int outcome, uint64_t delay_ns);

/*
 * hwt_durable_finish that says why, as hwt_durable_set_error does in the
 * callback, in whose place this text counts. length: up to
 * HWT_DURABLE_ERROR_MAX. After 0 and HWT_DURABLE_RELEASE nothing is kept.
 *
 * -ESTALE  as hwt_durable_finish; the text is not kept either
 * -EINVAL  as hwt_durable_finish; or text is NULL, or too long
 */
int hwt_durable_finish_error(struct hwt_durable_token token, int outcome,
    uint64_t delay_ns, const char *text, size_t length);

struct hwt_durable_worker_options {
	/* One, or up to 16 with commas between, "mail,sms". They take turns: a
	 * backlog of one does not delay the others. */
	const char *queue;
	hwt_durable_callback *callback;
	void *ctx;
	uint32_t threads; /* that call it: 1 to 1024; 0: 1 */
	uint32_t flags; /* 0 */
	/* If the worker is not heard of for so long, others execute its tasks.
	 * It is heard of each third of it while a callback runs. 1 s to 1 day;
	 * 0: 30 s. */
	uint64_t visibility_ns;
	/* An attempt that takes longer, from its callback to its end, is given
	 * up: its task is executed again, and what the callback returns, or
	 * hwt_durable_finish is given, has no effect. 0: no limit. */
	uint64_t run_limit_ns;
	/* While the worker has so many tasks without an outcome, it takes none:
	 * those that wait for a thread, are in a callback, or are to be
	 * finished later. threads to 65536; 0: 4096. */
	uint64_t outstanding_max;
	uint64_t reserved[7]; /* 0 */
};

/*
 * Starts threads that execute the tasks of a queue, until the stop. They block
 * all signals.
 * -EAGAIN  a thread cannot be created
 * -EMFILE  no file descriptor left
 */
int hwt_durable_worker_start(struct hwt_durable_worker **worker,
    struct hwt_durable *durable,
    const struct hwt_durable_worker_options *options);

/*
 * Takes no further task, releases those whose callback was not called (their
 * attempt does not count), waits for callbacks that run and for attempts that
 * are to be finished later, and frees the worker. Attempts that are not
 * finished after within_ns are reported as HWT_DURABLE_RETRY, with a back-off.
 * What has ended is reported to the engine before that; if the engine does not
 * answer for timeout_ns, it is executed again after visibility_ns.
 * -EBUSY    callbacks still run after within_ns: call it again
 * -EDEADLK  called in a callback of this worker
 */
int hwt_durable_worker_stop(
    struct hwt_durable_worker *worker, uint64_t within_ns);

/*
 * Writes to file, and flushes it, what the worker has counted since its start:
 * outcomes; attempts that run; and how late attempts began, by this machine's
 * clock, and how long they took until their outcome was known, as histograms.
 * format as for hwt_stats_write. Labels are queue, space and serial, a number
 * that no other worker of the process has. It does not ask the engine. Returns
 * 0, what has made a write to file fail, or
 * -EINVAL  an argument is NULL, or there is no such format
 */
int hwt_durable_worker_stats_write(
    struct hwt_durable_worker *worker, FILE *file, enum hwt_format format);

struct hwt_durable_scheduler_options {
	/* The shards that it looks after; both 0: all. Any number of schedulers
	 * may look after a shard: one of them does its work, and each looks
	 * once a second whether that is done. */
	uint32_t first_shard, last_shard;
	uint32_t flags; /* 0 */
	/* Unique among schedulers; NULL: from host name, process and a random
	 * number. 1 to 48 of [A-Za-z0-9._-]. */
	const char *name;
	uint64_t reserved[8]; /* 0 */
};

/*
 * Starts a thread that moves what is due into the queues, takes back what
 * crashed workers held, and removes what has ended, until the stop. options
 * NULL: all zero.
 * -EAGAIN  the thread cannot be created
 * -EMFILE  no file descriptor left
 */
int hwt_durable_scheduler_start(struct hwt_durable_scheduler **scheduler,
    struct hwt_durable *durable,
    const struct hwt_durable_scheduler_options *options);

/* Ends it within timeout_ns of the open, and frees it. */
int hwt_durable_scheduler_stop(struct hwt_durable_scheduler *scheduler);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
