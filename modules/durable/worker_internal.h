/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a worker, and what its source files share.
 *
 *   worker.c    start, stop, the loop
 *   outcome.c   how attempts have ended
 *   take.c      which shards are asked, and for how many tasks
 *   lease.c     leases are extended
 *   callback.c  the threads that call back; the limit of a callback
 *   later.c     attempts that callbacks have answered HWT_DURABLE_LATER
 *   report.c    a batch of outcomes, or of leases
 *   job.c       a task that was taken
 *   stats.c     how late and how long attempts are, written for monitoring
 *
 * Of these, each calls only those that stand below it here.
 *
 * A task is a job:
 *
 *   ready     the loop has taken it; a thread will (ready)
 *   running   a thread calls back
 *   later     the callback has answered LATER: hwt_durable_finish will (none)
 *   returned  the thread, or hwt_durable_finish, is done with it (returned)
 *   ended     the loop is to report its outcome (ended)
 *
 * A job that runs for longer than the limit is ended while it runs, and freed
 * when it has returned as well. One that is later is returned by that.
 *
 * A job is open from its callback on until its outcome is decided: by what the
 * callback returns, by hwt_durable_finish, by the limit, by a lost lease, or by
 * the stop. Whoever closes it decides, and no other.
 *
 * LOCK. It protects ready, returned, running, later, the buckets of open,
 * mean_ns, measured, late, execution, stopping, expired, abandoned, loop_ended,
 * and of a job
 * called_ns, outcome, runs, open, later, finish_delay_ns, finish_error,
 * given_up and lease_ns. The loop alone writes lease_ns, and reads it without
 * the lock. No callback is called with the lock, and no call to the engine
 * made. What is written before later_close is the loop's when the job has
 * returned. All else that changes belongs to the loop: held and ended, the
 * job's place in them, its marks, the sources and the times of the last polls.
 * A job's delivery is written before it gets into ready; its token, before the
 * callback.
 */
#ifndef HWT_DURABLE_WORKER_INTERNAL_H
#define HWT_DURABLE_WORKER_INTERNAL_H

/* musl has none, and libbsd has. */
#if __has_include(<sys/queue.h>)
#include <sys/queue.h>
#else
#include <bsd/sys/queue.h>
#endif
#include <time.h>

#include "connection.h"
#include "loop.h"

#define REPORT_MAX 256u
#define QUEUE_LIST_MAX (HWT_DURABLE_QUEUES_MAX * (HWT_DURABLE_QUEUE_MAX + 1))
#define ENDED_MAX (4 * REPORT_MAX) /* with more unreported, nothing is taken */

/* What is reported to the engine. */
enum outcome {
	DONE,
	RETRY,
	FAIL,
	RELEASE
};
extern const char *const outcome_name[];
#define OUTCOMES 4
#define OUTCOME_LENGTH 5 /* the longest one with a text */
#define LIMITED "the callback ran for longer than run_limit_ns"

struct job {
	struct hwt_durable_worker *worker;
	struct served *served; /* of it */
	struct job *next; /* in ready or returned */
	TAILQ_ENTRY(job) held; /* in held, or in ended */
	LIST_ENTRY(job) bucket; /* while it is open */
	struct hwt_durable_delivery delivery;
	struct number fence, delay;
	/* The text of hwt_durable_set_error, after room for the outcome, a
	 * space, the worker's name and a space; or NULL. The thread's until
	 * returned. */
	char *error;
	size_t error_length;
	char *finish_error; /* the same, of hwt_durable_finish_error */
	size_t finish_error_length;
	uint64_t retry_delay_ns; /* the callback's, then the loop's */
	uint64_t finish_delay_ns; /* of hwt_durable_finish */
	uint64_t lease_ns; /* over then: CLOCK_BOOTTIME, as all of these */
	uint64_t taken_ns, called_ns;
	uint32_t shard;
	enum outcome outcome, sent; /* of the callback; as it is sent */
	hwt_timeout limit;
	bool uncertain; /* the loop's: its outcome may have arrived */
	bool runs, open, later, finished, given_up;
	bool ended, returned, left; /* the loop's; left: to its lease's end */
	char bytes[]; /* id, payload */
};

TAILQ_HEAD(jobs, job);
LIST_HEAD(job_bucket, job);

/* Element k of the histogram counts those of [2^k, 2^(k+1)) ns, element 0 also
 * those of 0. */
struct durations {
	uint64_t histogram[64], sum_ns, max_ns;
};

struct job_list {
	struct job *first, **last;
	uint32_t count;
};

/* A queue that the worker serves. Each has a name for its takes, as the engine
 * remembers the last take of a name in each shard. */
struct served {
	char queue[HWT_DURABLE_QUEUE_MAX + 1];
	char taker[NAME_MAX_LENGTH + 4];
	/* Since they were published last: how late attempts began, as
	 * durations has it, under the lock; and the loop's. */
	uint64_t late[64];
	uint64_t outcomes[OUTCOMES];
};

/* What a shard has of a queue: number queue * shards + shard. What is said of
 * outcomes is that of a shard, and counts in the sources of the first queue. */
struct source {
	uint64_t token; /* of the last take; each has its own */
	uint64_t received; /* of the last one that was answered */
	uint32_t ended; /* jobs of it */
	bool notified; /* there may be something */
	bool failed; /* the last take: it is tried again a second later */
	uint64_t again_ns; /* a limit: it is asked again then; or 0 */
	bool waits; /* its outcomes, for the end of a back-off */
};

struct hwt_durable_worker {
	/* Constant. */
	struct hwt_durable *durable;
	hwt_durable_callback *callback;
	void *ctx;
	uint64_t visibility_ns, run_limit_ns;
	uint32_t threads, outstanding_max;
	uint64_t bucket_mask;
	uint64_t serial; /* no other worker of the process has it */
	struct hwt_durable_worker *next; /* under the handle's lock */
	char name[NAME_MAX_LENGTH + 1];
	uint32_t queues;
	struct served served[HWT_DURABLE_QUEUES_MAX];
	char channel[QUEUE_LIST_MAX + 6]; /* work:, and the list of queues */
	/* Outcomes of callbacks that set no error, with the worker's name. */
	char no_error[2][OUTCOME_LENGTH + NAME_MAX_LENGTH + 2];
	char limited[OUTCOME_LENGTH + NAME_MAX_LENGTH + sizeof(LIMITED) + 2];

	pthread_mutex_t lock;
	pthread_cond_t changed; /* ready, stopping, decided or loop_ended */
	struct job_list ready, returned;
	uint32_t running;
	uint32_t later; /* jobs that are */
	struct job_bucket *open; /* by their tokens */
	uint64_t mean_ns; /* how long a callback takes */
	bool measured;
	struct durations late; /* attempts, when they begin */
	struct durations
	    execution; /* attempts, when their outcome is decided */
	bool stopping; /* no callback is called any more */
	bool expired; /* jobs that are later are waited for no more */
	bool abandoned; /* what is not reported yet is left to its lease */
	bool decided; /* stopping, and each job has its outcome */
	bool loop_ended;

	/* The loop's. */
	struct loop loop;
	struct jobs held; /* jobs whose outcome is not to be reported */
	struct jobs ending; /* the others */
	uint32_t ended; /* of these */
	a64_t outcomes[OUTCOMES]; /* so far; others read them */
	uint32_t waiting; /* of these: their source waits */
	struct source *source;
	uint32_t notified_count, next_source;
	uint64_t looked_ns; /* when it last looked everywhere */
	bool muted; /* the user has no right to publish */
	uint64_t extend_ns; /* when it will extend leases */
	bool flush_due;
	uint64_t send_back_off_ns;
	hwt_timeout look, extend, flush, send_again, ask_again;

	uint32_t threads_begun;
	pthread_t loop_thread;
	pthread_t thread[];
};

/* A report: what is reported or extended in one batch, by shard. */
struct job_report {
	uint32_t count;
	struct job *job[REPORT_MAX];
	struct number visibility;
	struct engine_argument argument[REPORT_MAX * 4];
	struct engine_call call[REPORT_MAX];
	uint32_t calls;
	uint32_t job_of[REPORT_MAX + 1]; /* the first of each call */
};

static inline void
lock(struct hwt_durable_worker *worker)
{
	(void)pthread_mutex_lock(&worker->lock);
}

static inline void
unlock(struct hwt_durable_worker *worker)
{
	(void)pthread_mutex_unlock(&worker->lock);
}

/* stats.c: the lock is held. */
void durations_add(struct durations *durations, uint64_t ns);
void served_begins(struct served *served, uint64_t late_ns);

/* On the loop: publishes what is new, for hwtd. */
void stats_publish(struct hwt_durable_worker *worker);

/* job.c */
void job_list_init(struct job_list *list);
void job_list_add(struct job_list *list, struct job *job);
struct job *job_list_take(struct job_list *list); /* NULL: it is empty */

/* NULL: what was taken cannot be held; its lease will end. */
struct job *job_make(struct hwt_durable_worker *worker, struct served *served,
    uint32_t shard, const struct redisReply *reply, uint64_t asked_ns);

/* Its outcome is reported, or will not be. */
void job_reported(struct job *job);

/* Ends those that have returned. */
void jobs_collect(struct hwt_durable_worker *worker);

/* Writes what is sent of an error's text, of up to ERROR_HEAD_MAX + length
 * bytes; returns its length. */
#define ERROR_HEAD_MAX (OUTCOME_LENGTH + NAME_MAX_LENGTH + 2)
size_t job_error_write(
    const struct job *job, char *error, const char *text, size_t length);

/* The lock is held. It has returned: the loop is woken for it. */
void job_return(struct hwt_durable_worker *worker, struct job *job);

/* On the loop, of a job that was later, and is closed: there is nothing to
 * report; or an outcome is. */
void job_free(struct job *job);
void job_end(struct job *job, enum outcome outcome);

/* Releases all that wait for a thread, or those that have for too long. */
void jobs_release(struct hwt_durable_worker *worker, bool all);

/* callback.c: a thread that calls back; arg is the worker. */
void *job_thread(void *arg);

/* Whether this thread is in a callback of the worker. */
bool job_is_inside(const struct hwt_durable_worker *worker);

/* Ends those that run for too long, for those whose timeout the timer has
 * refused. */
void jobs_check(struct hwt_durable_worker *worker);

/* later.c: -ENOMEM. */
int later_create(struct hwt_durable_worker *worker);

/* The lock is held for these. Opens a job, which gets its token. */
void later_open(struct hwt_durable_worker *worker, struct job *job);

/* False: it was closed before, so its outcome is decided. */
bool later_close(struct job *job);

/* The same of a job that is later: it is not any more. False: it was none. */
bool later_give_up(struct hwt_durable_worker *worker, struct job *job);

/* On the loop: those that are later are executed again. */
void later_expire(struct hwt_durable_worker *worker);

/* report.c. For a call of the loop, which waits for its answer: a quarter of
 * the visibility at most. Leases are extended before it if a third has passed
 * since the answer to the last time, which took a quarter: together less than
 * the whole. */
struct engine_wait worker_wait(const struct hwt_durable_worker *worker);

/* visibility_ns 0: outcomes; otherwise leases are extended. */
void report_send(struct hwt_durable_worker *worker, struct job_report *report,
    uint64_t visibility_ns);

/* What a script says of a job whose attempt is over. */
#define RESULT_STALE 1

/* Of job i of a call: 0, RESULT_STALE, or an error. */
int report_result(const struct engine_call *call, uint32_t i);

/* outcome.c: those that are not waiting for the end of a back-off. */
uint32_t outcomes_due(const struct hwt_durable_worker *worker);

/* Reports them at once if there is nothing else to do; or else with others. */
void outcomes_flush(struct hwt_durable_worker *worker);

/* What is not reported by now is left to its lease. */
void outcomes_drop(struct hwt_durable_worker *worker);

/* lease.c */
void leases_extend_after(struct hwt_durable_worker *worker, uint64_t delay_ns);
void leases_extend(struct hwt_durable_worker *worker);

/* take.c: ctx is the worker; the shard may have something of the queue. */
void sources_notify(void *ctx, uint32_t queue, uint32_t shard);

/* What finish says behind the results: which queues have room. */
void take_note_room(
    struct hwt_durable_worker *worker, const struct engine_call *call);

/* How many tasks the threads have use for. */
uint32_t take_needed(struct hwt_durable_worker *worker);

/* Once a second: polls, releases, checks. */
void take_poll(struct hwt_durable_worker *worker);

/* Whether a hint may tell it what it does not know. */
bool take_awaits_hint(const struct hwt_durable_worker *worker);

/* Another worker is notified of the shards that may have something. */
void take_pass_on(struct hwt_durable_worker *worker);

void take_some(struct hwt_durable_worker *worker, uint32_t need);

#endif
