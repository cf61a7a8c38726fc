/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_durable - delayed tasks that outlive a machine.
 *
 * A task is a payload that some worker gets when its time has come. It is kept
 * by a server until it has ended: by hwtd, or by a Redis or Valkey that has
 * loaded hwt.so. Any process may add tasks, on any machine; any process with a
 * worker executes them.
 *
 *   hwt_durable_open            connects; one handle serves a whole process
 *   hwt_durable_add             stores tasks, to be executed at their times
 *   hwt_durable_cancel          ends a task
 *   hwt_durable_reschedule      gives it another time
 *   hwt_durable_get             tells about it
 *   hwt_durable_read_stats      tells about a queue
 *   hwt_durable_worker_start    calls back for each task that is due
 *   hwt_durable_worker_stop     ends that
 *   hwt_durable_finish          ends an attempt that its callback left open
 *   hwt_durable_close           disconnects
 *
 * PROMISES
 *
 *   at-least-once  A task that was acknowledged, and is not cancelled, is
 *                  executed until it succeeds, fails, or has had max_attempts
 *                  attempts. It is executed more than once only after a worker
 *                  crash, a lease that ran out, the loss of an acknowledged
 *                  finish, or a requested retry. LEVELS says which
 *                  failures an acknowledged task survives.
 *   never-early    No attempt begins before the task is due, by the server's
 *                  clock.
 *   fenced         The outcome of an attempt counts only while it is the
 *                  newest one of its task. Each has a fence, a number that
 *                  grows, also across restarts and fail-overs.
 *   cancelled      After a cancel that returned 0, no worker gets the task, and
 *                  an attempt that was begun before cannot end it.
 *   repeatable     A call whose answer was lost can be repeated with the same
 *                  id: an add then finds what the first one has stored.
 *   whole          An add with an invalid element stores nothing.
 *
 * Not promised: an order of tasks that are due in one queue, though it is
 * roughly the order of their due times.
 *
 * LEVELS. A queue keeps what it has acknowledged through kill -9 of the server
 * and a loss of power, unless hwtctl queue --level memory says that it need
 * not. hwtd always does; of a Redis it needs appendonly yes, appendfsync always
 * and no-appendfsync-on-rewrite no, and its adds are refused with -EOPNOTSUPP
 * otherwise. With options.replicas, an add, a cancel or a reschedule also waits
 * until so many replicas have it in memory. They must be all that are
 * connected, since any of these may become the next master: while there are
 * more, or never were so many, calls are refused with -EOPNOTSUPP; while there
 * are fewer than before, and for 10 s after that, they are uncertain.
 *
 * All functions return 0 or a negative errno value. They may be called from any
 * thread, but hwt_durable_close, and the stop of a worker, not at the same time
 * as another call with the same handle or worker. A call blocks until the
 * server has answered, for about timeout_ns at most, and while the system's
 * resolver looks up the server's name. Concurrent calls of several threads
 * share a message, and their adds a command. Durations are in nanoseconds and
 * are rounded up to whole milliseconds.
 *
 * In a child process, every function returns -EOWNERDEAD for what its parent
 * has opened or started, and frees nothing. The child's copy of a callback may
 * continue and must end in _exit or exec.
 *
 * Errors that several functions share:
 *
 * -EINVAL      an argument is outside its range, a reserved word is set
 * -ETIMEDOUT   the answer did not come in time, or the connection was lost
 *              before it, or too few replicas have it: the call may have taken
 *              effect or not. Repeat it with the same id
 * -ECONNREFUSED  the server was not reached; nothing has happened
 * -EAGAIN      the server is loading, failing over or moving the queue, and
 *              this lasted longer than timeout_ns; nothing has happened
 * -ENOSPC      the server's disk or memory is full, or the queue has its most
 *              pending tasks; only adds are refused. Nothing has happened
 * -EOPNOTSUPP  it is no server of hwt, or the queue's durability is not kept:
 *              see LEVELS. Nothing has happened
 * -EPROTO      the key holds something else: nothing has happened; or the
 *              server answered what this library does not understand: the call
 *              may have taken effect
 * -EACCES      wrong user or password, or the user has no right to do that;
 *              nothing has happened
 * -EIO         the store of "file:DIR" has failed, for good; what was not
 *              acknowledged may be stored or not
 * -ENOMEM, -ESHUTDOWN, -ENOBUFS   no memory; the timer was stopped; it has its
 *              most pending timeouts
 */
#ifndef HWT_DURABLE_H
#define HWT_DURABLE_H

#include <hwt.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct hwt_durable;
struct hwt_durable_worker;

/* The limits. */
#define HWT_DURABLE_ID_MAX 64 /* bytes of an id, any; at least 1 */
#define HWT_DURABLE_QUEUE_MAX 64 /* of [A-Za-z0-9._-]; at least 1 */
#define HWT_DURABLE_QUEUES_MAX 16 /* of a worker */
#define HWT_DURABLE_SPACE_MAX 32 /* of [A-Za-z0-9._-]; at least 1 */
#define HWT_DURABLE_PAYLOAD_MAX 1048576 /* bytes; most servers take 65536 */
#define HWT_DURABLE_ATTEMPTS_MAX 1000
#define HWT_DURABLE_REASON_MAX 1024 /* bytes */
#define HWT_DURABLE_BATCH_MAX 1024 /* tasks of an add */
#define HWT_DURABLE_DELAY_MAX HWT_SEC(315360000) /* 10 years */

/* All zero: the defaults. Texts are copied. */
struct hwt_durable_options {
	/* One of these; NULL: "127.0.0.1:7379", where hwtd listens.
	 *   "HOST:PORT", "[ADDRESS]:PORT", "unix:PATH"
	 *   "sentinel:HOST:PORT,HOST:PORT,NAME": the master of that name
	 *   "cluster:HOST:PORT,HOST:PORT": some of its nodes
	 *   "file:DIR": no server; the queues are in this process, and stored
	 *   in DIR, which no other process may have open */
	const char *servers;
	/* A prefix of all queues: two spaces share none. Of queue Q the
	 * key is {SPACE:Q}. NULL: "hwt". */
	const char *space;
	const char *user; /* of Redis' ACL; NULL: the default user */
	/* The password is the first line of this file, up to 512 bytes; NULL:
	 * none. */
	const char *password_file;
	uint64_t timeout_ns; /* 1 ms to 1 hour; 0: 5 s */
	uint32_t replicas; /* 0 to 10; see LEVELS */
	uint32_t flags; /* 0 */
	/* For every wait. It must outlive the handle, and none of its tasks may
	 * call a function of it. NULL: one of the handle's own, with a tick of
	 * 1 ms. */
	struct hwt *timer;
	/* Gets a sentence about each error that is not merely returned, and
	 * about an open that fails; from any thread, several at a time. NULL:
	 * stderr. It must outlive the handle, and call no function of it. */
	const struct hwt_log *log;
	uint64_t reserved[8]; /* 0 */
};

/*
 * Connects, and asks the server whether it is one of hwt.
 *
 * -ENOENT   the password file cannot be read, or is empty
 * -EBUSY    another process has the DIR of "file:DIR" open
 * -EILSEQ   what is stored in DIR is damaged
 * -EMFILE, -EAGAIN   no file descriptor, no thread
 * and the shared errors; the log says more
 */
int hwt_durable_open(
    struct hwt_durable **durable, const struct hwt_durable_options *options);

/* Disconnects, and frees it. NULL: 0.
 * -EBUSY  a worker of it has not been stopped */
int hwt_durable_close(struct hwt_durable *durable);

/* due_unix_ns counts from now if this is not set: delay_ns. */
#define HWT_DURABLE_AT 1u

struct hwt_durable_task {
	/* Unique in its queue, and made by the caller before it sends, so that
	 * the add can be repeated. */
	const char *id;
	size_t id_length;
	const char *queue; /* ends with 0 */
	union {
		uint64_t delay_ns; /* 0 to HWT_DURABLE_DELAY_MAX */
		/* With HWT_DURABLE_AT: since 1970, up to HWT_DURABLE_DELAY_MAX
		 * from now by this machine's clock and by the server's. What
		 * has passed is due at once. */
		uint64_t due_unix_ns;
	};
	/* 1 to 1000; 0: 20. An attempt counts when a worker takes the task: if
	 * it is killed before it calls back, the attempt is lost. */
	uint32_t max_attempts;
	uint32_t flags; /* HWT_DURABLE_AT, or 0 */
	const void *payload; /* NULL if payload_length is 0 */
	size_t payload_length;
	/* No attempt begins later than so long after the due time: the task
	 * becomes a dead letter instead. Up to HWT_DURABLE_DELAY_MAX; 0: it
	 * does not expire. */
	uint64_t expires_ns;
	/* How long a retry waits if its callback does not say that:
	 * retry_first_ns, twice as long with each attempt, at most
	 * retry_most_ns, which is not less. Up to HWT_DURABLE_DELAY_MAX; both
	 * 0: 1 s and 10 min. */
	uint64_t retry_first_ns;
	uint64_t retry_most_ns;
	/* How long the id of a task that is done or cancelled is kept, so that
	 * an add of it is recognised as a repetition. Dead letters stay until
	 * they are dropped. Up to HWT_DURABLE_DELAY_MAX; 0: 10 min. */
	uint64_t result_ns;
	uint64_t reserved[3]; /* 0 */
};

enum hwt_durable_state {
	HWT_DURABLE_WAITING = 1, /* until its due time, also for a retry */
	HWT_DURABLE_DUE,
	HWT_DURABLE_RUNNING, /* a worker has it */
	HWT_DURABLE_DONE,
	HWT_DURABLE_DEAD, /* a dead letter: hwtctl dead */
	HWT_DURABLE_CANCELLED
};

/*
 * Adds count tasks, 0 to HWT_DURABLE_BATCH_MAX, of any queues. results[i]: 0
 * stored; or an error; or an enum hwt_durable_state: the id was there already,
 * in this state, and nothing has changed. One that is DEAD or CANCELLED is not
 * executed for this. If an element is invalid, nothing is stored: its result is
 * -EINVAL, all others are -ECANCELED. Tasks of one queue, due time and policy
 * are stored together or not at all; others may differ. Returns 0 if no result
 * is an error, otherwise the first one that is not -ECANCELED. results may be
 * NULL.
 * -EINVAL  also: count is too great, or the payloads have more than 64 MiB
 *          together; then results are not written
 */
int hwt_durable_add(struct hwt_durable *durable, size_t count,
    const struct hwt_durable_task *tasks, int *results);

/*
 * 0: no worker gets the task any more, also if it was cancelled before; if one
 * has it now, the outcome of that attempt will not count.
 * -ENOENT  there is no such task, or it is done or dead
 */
int hwt_durable_cancel(struct hwt_durable *durable, const char *queue,
    const char *id, size_t id_length);

/*
 * Gives a task that has not ended another due time; its attempts count from 1
 * again. If a worker has it now, the outcome of that attempt will not count.
 * flags: HWT_DURABLE_AT or 0. Limits as of the due time in an add. A delay
 * counts anew when it is repeated after -ETIMEDOUT.
 * -ENOENT  there is no such task, or it has ended
 */
int hwt_durable_reschedule(struct hwt_durable *durable, const char *queue,
    const char *id, size_t id_length, uint64_t delay_or_due_ns, uint32_t flags);

struct hwt_durable_info {
	enum hwt_durable_state state;
	uint32_t attempt; /* begun since it was added or rescheduled */
	uint32_t max_attempts;
	uint32_t reason_length;
	/* As it was added or rescheduled for. */
	uint64_t due_unix_ns;
	/* WAITING, DUE: when the next attempt is due. RUNNING: 0. DEAD: when
	 * it died. DONE, CANCELLED: when the id is forgotten. */
	uint64_t time_unix_ns;
	uint64_t fence; /* of the newest attempt; 0: none yet */
	uint64_t expires_ns, retry_first_ns, retry_most_ns, result_ns;
	size_t payload_length;
	char reason[HWT_DURABLE_REASON_MAX]; /* of a dead letter */
	uint64_t reserved[4];
};

/*
 * The first payload_size bytes of the payload are copied to payload, which may
 * be NULL.
 * -ENOENT  there is none, or it is forgotten
 */
int hwt_durable_get(struct hwt_durable *durable, const char *queue,
    const char *id, size_t id_length, struct hwt_durable_info *info,
    void *payload, size_t payload_size);

/* Of a queue; of one that is not there, all are 0. */
struct hwt_durable_stats {
	/* How many there are now. */
	uint64_t waiting, due, running, done, dead, cancelled;
	/* Since the queue was made: tasks added; attempts begun, and those that
	 * were not the last; ends; leases that ran out; tasks that expired,
	 * were forgotten after their result_ns, and were dropped. added_total
	 * is the sum of those that there are, removed_total and
	 * dropped_total. */
	uint64_t added_total, begun_total, retried_total;
	uint64_t done_total, dead_total, cancelled_total;
	uint64_t leases_ended_total, expired_total;
	uint64_t removed_total, dropped_total;
	/* Set by hwtctl queue; limits are 0 where there is none. */
	uint64_t paused; /* 0 or 1 */
	uint64_t limit_running; /* tasks that workers have at a time */
	uint64_t limit_rate; /* attempts that begin in a second */
	uint64_t limit_pending; /* tasks that have not ended */
	uint64_t memory_bytes;
	uint64_t now_unix_ns; /* the queue's time */
	/* By so much it is ahead of the server's clock, which was set back. */
	uint64_t ahead_ns;
	uint64_t reserved[8];
};

int hwt_durable_read_stats(struct hwt_durable *durable, const char *queue,
    struct hwt_durable_stats *stats);

/* Names an attempt, in the process that has it: a value, which may be copied,
 * and kept until the stop of the worker has returned 0. */
struct hwt_durable_token {
	struct hwt_durable_worker *worker;
	uint64_t number;
};

/* What a worker's callback gets; valid until it returns. */
struct hwt_durable_delivery {
	const char *id, *queue; /* end with 0 */
	size_t id_length;
	const void *payload;
	size_t payload_length;
	uint32_t attempt; /* from 1 */
	uint32_t max_attempts;
	uint64_t due_unix_ns; /* of this attempt */
	/* Greater than any earlier attempt's, also of a forgotten task with the
	 * same id. A store that remembers the greatest one
	 * it has seen of an id, and refuses what comes with a lesser one, is
	 * safe from an execution that comes late. */
	uint64_t fence;
	/* For HWT_DURABLE_RETRY: the delay, up to HWT_DURABLE_DELAY_MAX. It is
	 * HWT_NEVER at first, which stands for the task's retry_first_ns and
	 * retry_most_ns. */
	uint64_t *retry_delay_ns;
	/* For HWT_DURABLE_FAIL: why, up to HWT_DURABLE_REASON_MAX bytes and a
	 * 0, for which there is room. It is "" at first. */
	char *reason;
	struct hwt_durable_token token; /* for hwt_durable_finish */
	uint64_t reserved[2];
};

#define HWT_DURABLE_RETRY 1 /* execute again, if attempts are left */
#define HWT_DURABLE_FAIL 2 /* a dead letter, at once */
#define HWT_DURABLE_LATER 3 /* hwt_durable_finish will say it */

/* 0: done; or one of the above. Any other value fails it. It may call any
 * function, but not stop its own worker. */
typedef int hwt_durable_callback(
    void *ctx, const struct hwt_durable_delivery *delivery);

struct hwt_durable_worker_options {
	/* One, or up to 16 with commas between, "mail,sms". While one has tasks
	 * that are due, none is taken of those behind it; but what a worker
	 * that was idle has asked for, one task of each, may still come. */
	const char *queue;
	hwt_durable_callback *callback;
	void *ctx;
	uint32_t threads; /* that call it: 1 to 1024; 0: 1 */
	uint32_t flags; /* 0 */
	/* If the worker is not heard of for so long, others execute its tasks.
	 * It is heard of each fifth of it. 1 s to 1 day; 0: 30 s. */
	uint64_t visibility_ns;
	/* It has so many tasks without an outcome, and of several queues one of
	 * each more: those that wait for a thread, are in a callback, or are to
	 * be finished later. threads to 65536; 0: twice threads. More make
	 * short tasks faster, since they share messages; but others cannot have
	 * what waits here for a thread. */
	uint64_t outstanding_max;
	uint64_t reserved[8]; /* 0 */
};

/*
 * Starts threads that execute the tasks of queues, until the stop. They block
 * signals as hwt's do. While the server is away, it is tried again.
 * -EAGAIN  a thread cannot be created
 */
int hwt_durable_worker_start(struct hwt_durable_worker **worker,
    struct hwt_durable *durable,
    const struct hwt_durable_worker_options *options);

/*
 * Takes no further task, waits until those that it has are executed and
 * finished, and their outcomes are acknowledged or their leases over, and frees
 * the worker. Those of HWT_DURABLE_LATER keep their leases until
 * hwt_durable_finish is called, which may be done while this waits. When it has
 * returned 0, no token of the worker may be used.
 * -EBUSY    that is not so after within_ns: call it again, or end the process
 * -EDEADLK  called in a callback of this worker
 */
int hwt_durable_worker_stop(
    struct hwt_durable_worker *worker, uint64_t within_ns);

/*
 * Ends the attempt of a callback that returns HWT_DURABLE_LATER, from any
 * thread, also before the callback returns: then what it returns has no effect.
 * Until this is called the lease is extended, as while a callback runs. It does
 * not wait for the server. outcome: 0, HWT_DURABLE_RETRY or HWT_DURABLE_FAIL.
 * delay_ns is read for a retry, and reason, which may be NULL, for a failure:
 * both as in struct hwt_durable_delivery.
 *
 * 0: the worker reports the outcome. Whichever call is the first counts.
 * -ESTALE  the attempt has an outcome, its lease was lost, or the task was
 *          cancelled or rescheduled. Nothing is done
 */
int hwt_durable_finish(struct hwt_durable_token token, int outcome,
    uint64_t delay_ns, const char *reason);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
