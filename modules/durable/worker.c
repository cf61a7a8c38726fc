/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that execute the tasks of a queue.
 *
 * One thread, the loop, talks to the engine: it takes tasks, extends their
 * leases, and tells how they ended. The others call back. A task is a job:
 *
 *   ready     the loop has taken it; a thread will (ready)
 *   running   a thread calls back
 *   returned  the thread is done with it (returned)
 *   ended     the loop is to tell its outcome (ended)
 *
 * One turn of the loop: wait; mark what has returned as ended; once a second,
 * poll every shard if no other worker of the queue does, and give back what has
 * waited for a thread for too long;
 * extend leases, if a third of the visibility is over, or a second since that
 * failed; send a batch of what has ended; take, if there are threads for it. A
 * job that runs for longer than the limit is ended while it runs, and freed
 * when it has returned as well.
 *
 * HOW MUCH IS TAKEN. As many as threads are idle, and ahead of that what the
 * threads will call within AHEAD_NS, as their callbacks took lately: none if
 * they take long. None while too many outcomes cannot be reported. What waits
 * for longer than WAITING_NS all the same is released, for another worker.
 *
 * WHAT IS REPEATED. Taking, until there is an answer: each one says which was
 * the last that was answered, so what came of those between is known not to be
 * here, is handed over again, and does not count if it has ended meanwhile. An
 * outcome, until there is an answer, or the worker stops; if the engine refuses
 * it for good, until the lease is over.
 *
 * LOCK. It protects ready, returned, running, stopping, abandoned, loop_ended,
 * and of a job called_ns, ended_ns, outcome, runs, given_up and lease_ns. The
 * loop alone writes lease_ns, and reads it without the lock. No callback is
 * called with the lock, and no call to the engine made. All else that changes
 * belongs to the loop: from its begin to its end the job's list, its marks, the
 * sources and the times of the last looks. A job's delivery is written before
 * it gets into ready.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <syslog.h>
#include <time.h>

#include "connection.h"
#include "loop.h"

#define THREADS_MAX 1024u
#define VISIBILITY_DEFAULT HWT_SEC(30)
#define VISIBILITY_MAX HWT_SEC(86400)
#define AHEAD_NS HWT_MS(10)
#define AHEAD_MAX 256u
#define WAITING_NS HWT_MS(500)
#define EXTEND_AGAIN_NS HWT_SEC(1) /* the engine waits for 10 s after a pause */
#define FLUSH_NS HWT_MS(1)
#define FLUSH_COUNT 64u
#define TAKE_SHARDS 8u /* that a round of takes asks */
#define PASSED_MAX 64u /* shards of a hint; more are all */
#define POLL_MS "900" /* until another worker may poll */
#define TAKE_BYTES (1u << 19) /* half of what a script takes at most */
#define REPORT_MAX 256u
#define ENDED_MAX (4 * REPORT_MAX) /* with more untold, nothing is taken */
#define RETRY_FIRST_NS HWT_SEC(1)
#define RETRY_LAST_NS HWT_SEC(600)

/* What the engine is told. */
enum outcome {
	DONE,
	RETRY,
	FAIL,
	BACK
};
static const char *const outcomes[] = {"done", "retry", "fail", "back"};
#define OUTCOME_LENGTH 5 /* the longest one */
#define LIMITED "the callback ran for longer than run_limit_ns"

struct job {
	struct hwt_durable_worker *worker;
	struct job *next; /* in ready or returned */
	TAILQ_ENTRY(job) held;
	struct hwt_durable_delivery delivery;
	struct number fence, delay;
	/* What the callback has said, where the outcome has room before it: a
	 * space, the worker's name, a space, the text. The thread's until
	 * returned. */
	char *said;
	size_t said_length;
	uint64_t retry_delay_ns; /* the callback's, then the loop's */
	uint64_t lease_ns; /* over then: CLOCK_BOOTTIME, as all of these */
	uint64_t taken_ns, called_ns, ended_ns;
	uint32_t shard;
	enum outcome outcome, told; /* as the callback said; as it is sent */
	hwt_timeout limit;
	bool doubtful; /* the loop's: its outcome may have arrived */
	bool runs, given_up;
	bool ended, returned, left; /* the loop's; left: to its lease's end */
	char bytes[]; /* id, payload */
};

TAILQ_HEAD(jobs, job);

struct job_list {
	struct job *first, **last;
	uint32_t count;
};

/* A shard's queue. */
struct source {
	uint64_t token; /* of the last take; each has its own */
	uint64_t received; /* of the last one that was answered */
	uint32_t ended; /* jobs of it */
	bool rings; /* there may be something */
	bool failed; /* the last take: it is tried again a second later */
	bool waits; /* its outcomes, for the end of a back-off */
};

struct hwt_durable_worker {
	/* Constant. */
	struct hwt_durable *durable;
	hwt_durable_callback *callback;
	void *ctx;
	uint64_t visibility_ns, run_limit_ns;
	uint32_t threads;
	char name[NAME_MAX_LENGTH + 1], queue[HWT_DURABLE_QUEUE_MAX + 1];
	char channel[HWT_DURABLE_QUEUE_MAX + 8];
	/* Outcomes of callbacks that said nothing, with the worker's name. */
	char unsaid[2][OUTCOME_LENGTH + NAME_MAX_LENGTH + 2];
	char limited[OUTCOME_LENGTH + NAME_MAX_LENGTH + sizeof(LIMITED) + 2];

	pthread_mutex_t lock;
	pthread_cond_t changed; /* ready, stopping or loop_ended */
	struct job_list ready, returned;
	uint32_t running;
	bool stopping; /* no callback is called any more */
	bool abandoned; /* what is not told yet is left to its lease */
	bool loop_ended;

	/* The loop's. */
	struct loop loop;
	struct jobs held; /* all jobs, the oldest first */
	uint32_t ended; /* of them */
	uint32_t waiting; /* of those: their source waits */
	struct source *source;
	uint32_t ringing, next_source;
	uint64_t looked_ns; /* when it last looked everywhere */
	uint64_t extend_ns; /* when it will extend leases */
	uint64_t mean_ns; /* how long a callback takes */
	bool measured;
	bool flush_due;
	uint64_t send_back_off_ns;
	hwt_timeout look, extend, flush, send_again;

	uint32_t threads_begun;
	pthread_t loop_thread;
	pthread_t thread[];
};

/* The worker whose callback this thread is in. */
static _Thread_local const struct hwt_durable_worker *inside;

static void
list_init(struct job_list *list)
{
	*list = (struct job_list){.last = &list->first};
}

static void
list_add(struct job_list *list, struct job *job)
{
	job->next = NULL;
	*list->last = job;
	list->last = &job->next;
	list->count++;
}

static struct job *
list_take(struct job_list *list)
{
	struct job *job = list->first;

	if (job == NULL)
		return NULL;
	list->first = job->next;
	if (list->first == NULL)
		list->last = &list->first;
	list->count--;
	return job;
}

static void
lock(struct hwt_durable_worker *worker)
{
	(void)pthread_mutex_lock(&worker->lock);
}

static void
unlock(struct hwt_durable_worker *worker)
{
	(void)pthread_mutex_unlock(&worker->lock);
}

/* Threads that call back. */

static void job_limit(hwt_timeout timeout, void *arg);

/* With the lock held, and when it returns. */
static void
job_run(struct hwt_durable_worker *worker, struct job *job)
{
	int result;

	job->called_ns = boot_now_ns();
	job->runs = true;
	worker->running++;
	if (worker->run_limit_ns != 0)
		(void)!hwt_new_timeout_on(worker->loop.timer,
		    hwt_mailbox_executor(worker->loop.mailbox), &job->limit,
		    job_limit, job, worker->run_limit_ns);
	unlock(worker);
	inside = worker;
	result = worker->callback(worker->ctx, &job->delivery);
	inside = NULL;
	lock(worker);
	job->ended_ns = boot_now_ns();
	job->outcome = result == 0        ? DONE
	    : result == HWT_DURABLE_RETRY ? RETRY
					  : FAIL;
	job->runs = false;
	worker->running--;
}

static void *
thread_run(void *arg)
{
	struct hwt_durable_worker *worker = arg;
	struct job *job;

	lock(worker);
	while (!worker->loop_ended) {
		job = worker->stopping ? NULL : list_take(&worker->ready);
		if (job == NULL) {
			(void)pthread_cond_wait(
			    &worker->changed, &worker->lock);
			continue;
		}
		/* One whose lease is over is another worker's by now. */
		if (boot_now_ns() < job->lease_ns)
			job_run(worker, job);
		else
			job->outcome = BACK;
		list_add(&worker->returned, job);
		if (worker->returned.count == 1)
			loop_wake(&worker->loop);
	}
	unlock(worker);
	return NULL;
}

/* Jobs, in the loop. */

static void
job_free(struct job *job)
{
	loop_cancel(&job->worker->loop, &job->limit);
	TAILQ_REMOVE(&job->worker->held, job, held);
	free(job->said);
	free(job);
}

static void
job_end(struct job *job, enum outcome outcome)
{
	struct source *source = &job->worker->source[job->shard];

	job->told = outcome;
	job->ended = true;
	job->worker->ended++;
	job->worker->waiting += source->waits;
	source->ended++;
}

/* It is told, or will not be. */
static void
job_told(struct job *job)
{
	struct source *source = &job->worker->source[job->shard];

	job->ended = false;
	job->left = true;
	job->worker->ended--;
	job->worker->waiting -= source->waits;
	source->ended--;
	if (job->returned)
		job_free(job);
}

/* {id, generation, attempt, due, max_attempts, payload, fence} */
static bool
is_delivery(const struct redisReply *reply)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements == 7 &&
	    reply->element[0]->type == REDIS_REPLY_STRING &&
	    reply->element[5]->type == REDIS_REPLY_STRING;
}

static bool
job_read(struct job *job, const struct redisReply *reply)
{
	struct hwt_durable_delivery *delivery = &job->delivery;
	uint64_t generation, attempt, due, most, fence;
	char *payload;

	if (!reply_number(reply->element[1], &generation) ||
	    !reply_number(reply->element[2], &attempt) ||
	    !reply_number(reply->element[3], &due) ||
	    !reply_number(reply->element[4], &most) ||
	    !reply_number(reply->element[6], &fence))
		return false;
	delivery->generation = (uint32_t)generation;
	delivery->attempt = (uint32_t)attempt;
	delivery->max_attempts = (uint32_t)most;
	delivery->fence = fence;
	delivery->due_unix_ns = HWT_MS(due);
	delivery->id_length = reply->element[0]->len;
	delivery->payload_length = reply->element[5]->len;
	memcpy(job->bytes, reply->element[0]->str, delivery->id_length + 1);
	payload = job->bytes + delivery->id_length + 1;
	memcpy(payload, reply->element[5]->str, delivery->payload_length + 1);
	delivery->id = job->bytes;
	delivery->payload = payload;
	return true;
}

/* NULL: what was taken cannot be held; its lease will end. */
static struct job *
job_make(struct hwt_durable_worker *worker, uint32_t shard,
    const struct redisReply *reply, uint64_t asked_ns)
{
	struct job *job = NULL;

	if (is_delivery(reply))
		job = calloc(1,
		    sizeof(*job) + reply->element[0]->len +
			reply->element[5]->len + 2);
	if (job == NULL || !job_read(job, reply)) {
		free(job);
		return NULL;
	}
	job->worker = worker;
	job->shard = shard;
	job->taken_ns = boot_now_ns();
	job->lease_ns = asked_ns + worker->visibility_ns;
	job->retry_delay_ns = HWT_NEVER;
	job->delivery.retry_delay_ns = &job->retry_delay_ns;
	job->delivery.queue = worker->queue;
	TAILQ_INSERT_TAIL(&worker->held, job, held);
	return job;
}

/* On the loop: if a callback takes too long, its task is executed again, and
 * what it returns has no effect. */
static void
job_check(struct job *job)
{
	struct hwt_durable_worker *worker = job->worker;
	uint64_t now = boot_now_ns();
	bool late;

	lock(worker);
	late = job->runs && !job->given_up &&
	    now - job->called_ns >= worker->run_limit_ns;
	job->given_up |= late;
	unlock(worker);
	if (!late)
		return;
	engine_log(worker->loop.engine, LOG_WARNING,
	    "a callback of queue %s runs for too long", worker->queue);
	job_end(job, RETRY);
}

static void
job_limit(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	job_check(arg);
}

/* For those whose timeout the timer has refused. */
static void
jobs_check(struct hwt_durable_worker *worker)
{
	struct job *job;

	if (worker->run_limit_ns == 0)
		return;
	TAILQ_FOREACH(job, &worker->held, held)
	{
		job_check(job);
	}
}

/* A running average of some eight durations. */
static void
duration_add(struct hwt_durable_worker *worker, const struct job *job)
{
	uint64_t duration_ns = job->ended_ns - job->called_ns;

	if (!worker->measured)
		worker->mean_ns = duration_ns;
	worker->measured = true;
	worker->mean_ns = worker->mean_ns / 8 * 7 + duration_ns / 8;
}

static void
job_collect(struct hwt_durable_worker *worker, struct job *job)
{
	job->returned = true;
	loop_cancel(&worker->loop, &job->limit);
	if (job->called_ns != 0)
		duration_add(worker, job);
	if (!job->given_up)
		job_end(job, job->outcome);
	else if (!job->ended)
		job_free(job);
}

/* Only the loop sets given_up of a job that runs, so it may read it after. */
static void
jobs_collect(struct hwt_durable_worker *worker)
{
	struct job_list returned;
	struct job *job;

	list_init(&returned);
	lock(worker);
	while ((job = list_take(&worker->returned)) != NULL)
		list_add(&returned, job);
	unlock(worker);
	while ((job = list_take(&returned)) != NULL)
		job_collect(worker, job);
}

/* All that wait for a thread, or those that have waited for too long. */
static void
jobs_give_back(struct hwt_durable_worker *worker, bool all)
{
	uint64_t now = boot_now_ns();
	struct job_list kept;
	struct job *job;

	list_init(&kept);
	lock(worker);
	while ((job = list_take(&worker->ready)) != NULL) {
		if (all || now - job->taken_ns >= WAITING_NS) {
			job->returned = true;
			job_end(job, BACK);
		} else
			list_add(&kept, job);
	}
	while ((job = list_take(&kept)) != NULL)
		list_add(&worker->ready, job);
	unlock(worker);
}

/* A report: what is told or extended in one batch, by shard. */

struct report {
	uint32_t count;
	struct job *job[REPORT_MAX];
	struct number visibility;
	struct engine_argument argument[REPORT_MAX * 4];
	struct engine_call call[REPORT_MAX];
	uint32_t calls;
	uint32_t job_of[REPORT_MAX + 1]; /* the first of each call */
};

static int
compare_jobs(const void *a, const void *b)
{
	const struct job *const *x = a;
	const struct job *const *y = b;

	return (*x)->shard < (*y)->shard ? -1 : (*x)->shard > (*y)->shard;
}

/* Full jitter: up to 1 s, 2 s, 4 s and so on to 10 min. */
static uint64_t
back_off_ns(uint32_t attempt)
{
	uint64_t most = RETRY_LAST_NS;

	if (attempt <= 10 && RETRY_FIRST_NS << (attempt - 1) < most)
		most = RETRY_FIRST_NS << (attempt - 1);
	return random_number() % (most + 1);
}

/* It stays the same in each repetition. */
static uint64_t
job_delay_ns(struct job *job)
{
	if (job->told != RETRY)
		return 0;
	if (job->given_up)
		return back_off_ns(job->delivery.attempt);
	if (job->retry_delay_ns == HWT_NEVER)
		job->retry_delay_ns = back_off_ns(job->delivery.attempt);
	return job->retry_delay_ns < HWT_DURABLE_DELAY_MAX
	    ? job->retry_delay_ns
	    : HWT_DURABLE_DELAY_MAX;
}

/* id fence */
static struct engine_argument *
write_job(struct engine_argument *argument, struct job *job)
{
	*argument++ =
	    (struct engine_argument){job->delivery.id, job->delivery.id_length};
	*argument++ = argument_number(&job->fence, job->delivery.fence);
	return argument;
}

/* done or back; retry or fail, with the worker's name and what was said. */
static struct engine_argument
write_outcome(struct job *job)
{
	const struct hwt_durable_worker *worker = job->worker;
	const char *outcome = outcomes[job->told];
	size_t length = strlen(outcome);
	char *from;

	if (job->told != RETRY && job->told != FAIL)
		return argument_text(outcome);
	if (!job->returned)
		return argument_text(worker->limited);
	if (job->said == NULL)
		return argument_text(worker->unsaid[job->told == FAIL]);
	from = job->said + OUTCOME_LENGTH - length;
	/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): no string */
	memcpy(from, outcome, length);
	return (struct engine_argument){
	    from, job->said_length - OUTCOME_LENGTH + length};
}

/* A call for each shard. visibility_ns 0: outcomes. */
static void
report_write(struct report *report, uint64_t visibility_ns)
{
	struct engine_argument *argument = report->argument;
	struct engine_call *call = NULL;
	struct job *job;
	uint32_t i;

	/* NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers */
	qsort(report->job, report->count, sizeof(report->job[0]), compare_jobs);
	for (i = 0; i < report->count; i++) {
		job = report->job[i];
		if (call == NULL || call->shard != job->shard) {
			report->job_of[report->calls] = i;
			call = &report->call[report->calls++];
			*call = (struct engine_call){
			    .script = visibility_ns == 0 ? SCRIPT_FINISH
							 : SCRIPT_EXTEND,
			    .shard = job->shard,
			    .arg = argument};
			if (visibility_ns != 0)
				*argument++ =
				    argument_number(&report->visibility,
					whole_ms(visibility_ns));
		}
		argument = write_job(argument, job);
		if (visibility_ns == 0) {
			*argument++ = write_outcome(job);
			*argument++ = argument_number(
			    &job->delay, whole_ms(job_delay_ns(job)));
		}
		call->count = (uint32_t)(argument - call->arg);
	}
	report->job_of[report->calls] = report->count;
}

static void
report_send(struct hwt_durable_worker *worker, struct report *report,
    uint64_t visibility_ns)
{
	struct engine_wait wait = loop_no_retry(&worker->loop);

	wait.replicated = visibility_ns == 0;
	report_write(report, visibility_ns);
	(void)engine_call(
	    worker->loop.engine, report->call, report->calls, &wait);
}

/* Of job i of a call: 0 OK, 1 STALE, or an error. */
static int
report_result(const struct engine_call *call, uint32_t i)
{
	uint64_t number;

	if (call->error != 0)
		return call->error;
	if (call->reply->type != REDIS_REPLY_ARRAY ||
	    i >= call->reply->elements ||
	    !reply_number(call->reply->element[i], &number) || number > 1)
		return -EPROTO;
	return (int)number;
}

/* Outcomes. */

static void
woken(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

static void
flush_is_due(hwt_timeout timeout, void *arg)
{
	struct hwt_durable_worker *worker = arg;

	(void)timeout;
	worker->flush_due = true;
}

static void
source_wait(struct hwt_durable_worker *worker, struct source *source)
{
	if (source->waits)
		return;
	source->waits = true;
	worker->waiting += source->ended;
}

static void
sources_go_on(struct hwt_durable_worker *worker)
{
	uint32_t i;

	for (i = 0; i < worker->durable->shards; i++)
		worker->source[i].waits = false;
	worker->waiting = 0;
}

static void
send_is_due(hwt_timeout timeout, void *arg)
{
	struct hwt_durable_worker *worker = arg;

	(void)timeout;
	sources_go_on(worker);
	worker->flush_due = true;
}

/* The engine may not have ended the lease either, though its time is over: it
 * cannot while it is paused, full or gone, or keeps less than the level, nor
 * right after a pause. If it has, it says so. */
static bool
passes(int error)
{
	return error == -EAGAIN || error == -ECONNREFUSED ||
	    error == -ETIMEDOUT || error == -ENOSPC || error == -EOPNOTSUPP;
}

/* False: it is to be sent again. The fence makes that safe, for good. */
static bool
outcome_is_settled(struct job *job, int result)
{
	struct engine *engine = job->worker->loop.engine;
	const char *id = job->delivery.id;

	if (result == 0)
		return true;
	if (result == 1 && job->told == BACK)
		return true;
	if (result == 1) {
		engine_log(engine, LOG_WARNING,
		    "%.64s: attempt %u is over; its outcome %s", id,
		    job->delivery.attempt,
		    job->doubtful ? "came before, or has no effect"
				  : "has no effect");
		return true;
	}
	job->doubtful |= result == -ETIMEDOUT;
	if (passes(result) || boot_now_ns() < job->lease_ns)
		return false;
	engine_log(engine, LOG_WARNING,
	    "%.64s: the outcome of attempt %u cannot be reported: %s", id,
	    job->delivery.attempt, error_says(result));
	return true;
}

static uint32_t
outcomes_due(const struct hwt_durable_worker *worker)
{
	return worker->ended - worker->waiting;
}

/* A shard that does not answer holds up the outcomes of no other. */
static void
report_settle(struct hwt_durable_worker *worker, const struct report *report)
{
	const struct engine_call *call;
	bool fails = false;
	uint32_t i, at;

	for (i = 0; i < report->calls; i++) {
		call = &report->call[i];
		for (at = report->job_of[i]; at < report->job_of[i + 1]; at++) {
			if (outcome_is_settled(report->job[at],
				report_result(call, at - report->job_of[i]))) {
				job_told(report->job[at]);
				continue;
			}
			source_wait(worker, &worker->source[call->shard]);
			fails = true;
		}
	}
	if (fails &&
	    loop_after(&worker->loop, &worker->send_again, send_is_due, worker,
		back_off_next(&worker->send_back_off_ns)) != 0)
		sources_go_on(worker);
	else if (worker->waiting == 0)
		worker->send_back_off_ns = 0;
}

static void
outcomes_send(struct hwt_durable_worker *worker)
{
	struct report report;
	struct job *job;

	report.count = 0;
	report.calls = 0;
	TAILQ_FOREACH(job, &worker->held, held)
	{
		if (job->ended && !worker->source[job->shard].waits &&
		    report.count < REPORT_MAX)
			report.job[report.count++] = job;
	}
	worker->flush_due = outcomes_due(worker) > report.count;
	report_send(worker, &report, 0);
	report_settle(worker, &report);
	engine_call_free(report.call, report.calls);
}

static bool
is_idle(struct hwt_durable_worker *worker)
{
	bool idle;

	lock(worker);
	idle = worker->stopping ||
	    (worker->running == 0 && worker->ready.count == 0);
	unlock(worker);
	return idle;
}

/* At once if there is nothing else to do; or else with others. */
static void
outcomes_flush(struct hwt_durable_worker *worker)
{
	if (outcomes_due(worker) == 0)
		return;
	if (worker->flush_due || outcomes_due(worker) >= FLUSH_COUNT ||
	    is_idle(worker)) {
		outcomes_send(worker);
		return;
	}
	if (loop_after(&worker->loop, &worker->flush, flush_is_due, worker,
		FLUSH_NS) != 0)
		outcomes_send(worker);
}

/* What is not told by now is left to its lease. */
static void
outcomes_drop(struct hwt_durable_worker *worker)
{
	struct job *job, *next;

	for (job = TAILQ_FIRST(&worker->held); job != NULL; job = next) {
		next = TAILQ_NEXT(job, held);
		if (job->ended)
			job_told(job);
	}
}

/* Leases. */

/* False: some shard has not answered. */
static bool
leases_read(struct hwt_durable_worker *worker, const struct report *report,
    uint64_t asked_ns)
{
	bool answered = true;
	uint32_t i, at;

	lock(worker);
	for (i = 0; i < report->calls; i++) {
		answered = answered && report->call[i].error == 0;
		for (at = report->job_of[i]; at < report->job_of[i + 1]; at++) {
			if (report_result(
				&report->call[i], at - report->job_of[i]) == 0)
				report->job[at]->lease_ns =
				    asked_ns + worker->visibility_ns;
		}
	}
	unlock(worker);
	return answered;
}

static bool
leases_send(struct hwt_durable_worker *worker, struct report *report)
{
	uint64_t asked_ns = boot_now_ns();
	bool answered;

	report_send(worker, report, worker->visibility_ns);
	answered = leases_read(worker, report, asked_ns);
	engine_call_free(report->call, report->calls);
	report->count = 0;
	report->calls = 0;
	return answered;
}

static void
leases_extend_after(struct hwt_durable_worker *worker, uint64_t delay_ns)
{
	worker->extend_ns = boot_now_ns() + delay_ns;
	(void)loop_after(
	    &worker->loop, &worker->extend, woken, worker, delay_ns);
}

/* Of all that have not ended. One whose lease was over on its way to a thread
 * is extended once too often, which is refused or ends. */
static void
leases_extend(struct hwt_durable_worker *worker)
{
	struct report report;
	uint64_t delay_ns = worker->visibility_ns / 3;
	bool answered = true;
	struct job *job;

	report.count = 0;
	report.calls = 0;
	TAILQ_FOREACH(job, &worker->held, held)
	{
		if (job->ended || job->returned || job->left)
			continue;
		report.job[report.count++] = job;
		if (report.count == REPORT_MAX)
			answered = leases_send(worker, &report) && answered;
	}
	if (report.count > 0)
		answered = leases_send(worker, &report) && answered;
	if (!answered && delay_ns > EXTEND_AGAIN_NS)
		delay_ns = EXTEND_AGAIN_NS;
	leases_extend_after(worker, delay_ns);
}

/* Taking. */

static void
ring(void *ctx, uint32_t shard)
{
	struct hwt_durable_worker *worker = ctx;
	uint32_t shards = worker->durable->shards;
	uint32_t i;

	for (i = 0; i < shards; i++) {
		if ((shard == EVERY_SHARD || shard == i) &&
		    !worker->source[i].rings) {
			worker->source[i].rings = true;
			worker->ringing++;
		}
	}
}

static uint32_t
ahead(const struct hwt_durable_worker *worker)
{
	uint64_t count;

	if (!worker->measured)
		return 0;
	count = AHEAD_NS * worker->threads / (worker->mean_ns + 1);
	return count > AHEAD_MAX ? AHEAD_MAX : (uint32_t)count;
}

static uint32_t
needed(struct hwt_durable_worker *worker)
{
	uint32_t wanted, there;

	if (worker->ended > ENDED_MAX)
		return 0;
	lock(worker);
	wanted = worker->stopping ? 0 : worker->threads + ahead(worker);
	there = worker->running + worker->ready.count;
	unlock(worker);
	wanted = wanted > there ? wanted - there : 0;
	return wanted > REPORT_MAX ? REPORT_MAX : wanted;
}

/* Whether it is this worker that polls for all of its queue in this second: a
 * key that expires says that somebody does. */
static bool
may_poll(struct hwt_durable_worker *worker)
{
	const struct engine_wait wait = loop_no_retry(&worker->loop);
	char key[ENGINE_KEY_MAX], name[HWT_DURABLE_QUEUE_MAX + 8];
	struct engine_argument argument[] = {
	    argument_text("SET"),
	    {NULL, 0},
	    argument_text(worker->name),
	    argument_text("PX"),
	    argument_text(POLL_MS),
	    argument_text("NX"),
	};
	struct engine_call call = {.script = COMMAND,
	    .shard = SHARD_SPACE,
	    .count = 6,
	    .arg = argument};
	bool may;

	(void)snprintf(name, sizeof(name), "p:%s", worker->queue);
	engine_key(worker->loop.engine, key, SHARD_SPACE, name);
	argument[1] = argument_text(key);
	/* If the node of that key does not answer, others may. */
	may = engine_call(worker->loop.engine, &call, 1, &wait) != 0 ||
	    call.reply->type != REDIS_REPLY_NIL;
	engine_call_free(&call, 1);
	return may;
}

/* Without hints, each worker polls; otherwise one of those that have nothing to
 * do. What has failed is tried again by who has tried. */
static void
poll_shards(struct hwt_durable_worker *worker)
{
	uint32_t i;

	if (worker->loop.subscription == NULL ||
	    (needed(worker) > 0 && may_poll(worker))) {
		ring(worker, EVERY_SHARD);
		return;
	}
	for (i = 0; i < worker->durable->shards; i++) {
		if (worker->source[i].failed)
			ring(worker, i);
	}
}

static void
look_everywhere(struct hwt_durable_worker *worker)
{
	poll_shards(worker);
	jobs_give_back(worker, false);
	jobs_check(worker);
	worker->looked_ns = boot_now_ns();
	(void)loop_after(
	    &worker->loop, &worker->look, woken, worker, SECOND_NS);
}

struct take {
	uint32_t count;
	struct number token[TAKE_SHARDS], received[TAKE_SHARDS];
	struct number limit_text, visibility;
	struct engine_argument argument[TAKE_SHARDS][6];
	struct engine_call call[TAKE_SHARDS];
	uint32_t limit; /* tasks of each */
};

/* The shards that ring, in turn. */
static void
take_write(struct hwt_durable_worker *worker, struct take *take, uint32_t need)
{
	uint32_t shards = worker->durable->shards;
	uint32_t most = need < TAKE_SHARDS ? need : TAKE_SHARDS;
	struct engine_argument *argument;
	uint32_t looked, shard;

	if (most > worker->ringing)
		most = worker->ringing;
	take->limit = need / most;
	take->count = 0;
	for (looked = 0; looked < shards && take->count < most; looked++) {
		shard = worker->next_source++ % shards;
		if (!worker->source[shard].rings)
			continue;
		argument = take->argument[take->count];
		argument[0] = argument_text(worker->queue);
		argument[1] = argument_text(worker->name);
		argument[2] = argument_number(
		    &take->token[take->count], ++worker->source[shard].token);
		argument[3] = argument_number(&take->received[take->count],
		    worker->source[shard].received);
		argument[4] = argument_number(&take->limit_text, take->limit);
		argument[5] = argument_number(
		    &take->visibility, whole_ms(worker->visibility_ns));
		take->call[take->count++] =
		    (struct engine_call){.script = SCRIPT_TAKE,
			.shard = shard,
			.count = 6,
			.arg = argument};
	}
}

static void
source_quiet(struct hwt_durable_worker *worker, uint32_t shard)
{
	worker->source[shard].rings = false;
	worker->ringing--;
}

/* Who has no thread for what rings tells another. */
static void
pass_on(struct hwt_durable_worker *worker)
{
	const struct engine_wait wait = loop_no_retry(&worker->loop);
	char shards[PASSED_MAX * 8] = "";
	struct engine_argument argument[] = {
	    argument_text(worker->queue), argument_text("*")};
	struct engine_call call = {.script = SCRIPT_TELL,
	    .shard = SHARD_SPACE,
	    .count = 2,
	    .arg = argument};
	uint32_t all = worker->ringing;
	uint32_t i;
	int length = 0;

	for (i = 0; i < worker->durable->shards; i++) {
		if (!worker->source[i].rings)
			continue;
		if (all <= PASSED_MAX)
			length += snprintf(shards + length,
			    sizeof(shards) - (size_t)length, "%s%u",
			    length > 0 ? " " : "", i);
		source_quiet(worker, i);
	}
	if (all <= PASSED_MAX)
		argument[1] = argument_text(shards);
	(void)engine_call(worker->loop.engine, &call, 1, &wait);
	engine_call_free(&call, 1);
}

/* The engine stops before the limit if payloads are long: then there may be
 * more. */
static bool
take_is_cut(const struct redisReply *reply)
{
	size_t bytes = 0;
	size_t i;

	for (i = 0; i < reply->elements; i++) {
		if (is_delivery(reply->element[i]))
			bytes += reply->element[i]->element[5]->len;
	}
	return bytes >= TAKE_BYTES;
}

static void
take_hold(struct hwt_durable_worker *worker, const struct engine_call *call,
    uint64_t asked_ns)
{
	const struct redisReply *reply = call->reply;
	struct job *job;
	size_t i;

	lock(worker);
	for (i = 0; i < reply->elements; i++) {
		job =
		    job_make(worker, call->shard, reply->element[i], asked_ns);
		if (job != NULL)
			list_add(&worker->ready, job);
	}
	if (reply->elements > 0)
		(void)pthread_cond_broadcast(&worker->changed);
	unlock(worker);
}

/* After an error it is asked again a second later, or when hints are back. */
static void
take_read(struct hwt_durable_worker *worker, const struct engine_call *call,
    uint32_t limit, uint64_t asked_ns)
{
	worker->source[call->shard].failed =
	    call->error != 0 || call->reply->type != REDIS_REPLY_ARRAY;
	if (worker->source[call->shard].failed) {
		source_quiet(worker, call->shard);
		return;
	}
	worker->source[call->shard].received =
	    worker->source[call->shard].token;
	if (call->reply->elements < limit && !take_is_cut(call->reply))
		source_quiet(worker, call->shard);
	take_hold(worker, call, asked_ns);
}

static void
take_some(struct hwt_durable_worker *worker, uint32_t need)
{
	struct engine_wait wait = loop_no_retry(&worker->loop);
	uint64_t asked_ns = boot_now_ns();
	struct take take;
	uint32_t i;

	wait.replicated = true;
	/* What has no answer is asked for again before its lease ends. */
	wait.timeout_ns = engine_timeout_ns(worker->loop.engine);
	if (wait.timeout_ns > worker->visibility_ns / 2)
		wait.timeout_ns = worker->visibility_ns / 2;
	take_write(worker, &take, need);
	(void)engine_call(worker->loop.engine, take.call, take.count, &wait);
	for (i = 0; i < take.count; i++)
		take_read(worker, &take.call[i], take.limit, asked_ns);
	engine_call_free(take.call, take.count);
}

/* The loop. */

/* What no callback was called for is released; what cannot be reported is
 * dropped. */
static bool
loop_is_stopping(struct hwt_durable_worker *worker)
{
	bool stopping, abandoned;

	lock(worker);
	stopping = worker->stopping;
	abandoned = worker->abandoned;
	unlock(worker);
	if (stopping)
		jobs_give_back(worker, true);
	if (abandoned)
		outcomes_drop(worker);
	return stopping;
}

/* False: it may wait. */
static bool
loop_work(struct hwt_durable_worker *worker)
{
	uint64_t now = boot_now_ns();
	uint32_t need;

	if (worker->looked_ns == 0 || now - worker->looked_ns >= SECOND_NS)
		look_everywhere(worker);
	if (now >= worker->extend_ns)
		leases_extend(worker);
	outcomes_flush(worker);
	need = needed(worker);
	if (need > 0 && worker->ringing > 0)
		take_some(worker, need);
	if (worker->flush_due && outcomes_due(worker) > 0)
		return true;
	need = needed(worker);
	if (worker->ringing > 0 && need == 0 &&
	    worker->loop.subscription != NULL)
		pass_on(worker);
	if (worker->ringing == 0 && need > 0)
		loop_await_hint(&worker->loop);
	return worker->ringing > 0 && need > 0;
}

static void *
loop_run(void *arg)
{
	struct hwt_durable_worker *worker = arg;
	bool more = true;
	bool stopping;

	leases_extend_after(worker, worker->visibility_ns / 3);
	do {
		loop_turn(&worker->loop, !more);
		jobs_collect(worker);
		stopping = loop_is_stopping(worker);
		more = loop_work(worker);
	} while (!stopping || !TAILQ_EMPTY(&worker->held));
	lock(worker);
	worker->loop_ended = true;
	(void)pthread_cond_broadcast(&worker->changed);
	unlock(worker);
	return NULL;
}

/* Starting and stopping. */

static bool
options_are_valid(const struct hwt_durable_worker_options *options)
{
	return options->queue != NULL &&
	    name_is_valid(options->queue, HWT_DURABLE_QUEUE_MAX) &&
	    options->callback != NULL && options->threads <= THREADS_MAX &&
	    options->flags == 0 &&
	    (options->visibility_ns == 0 ||
		(options->visibility_ns >= SECOND_NS &&
		    options->visibility_ns <= VISIBILITY_MAX)) &&
	    (options->run_limit_ns <= INT64_MAX) && RESERVED_IS_ZERO(options);
}

static void
worker_set(struct hwt_durable_worker *worker,
    const struct hwt_durable_worker_options *options)
{
	pthread_condattr_t monotonic;

	worker->callback = options->callback;
	worker->ctx = options->ctx;
	worker->visibility_ns = options->visibility_ns != 0
	    ? options->visibility_ns
	    : VISIBILITY_DEFAULT;
	worker->run_limit_ns = options->run_limit_ns;
	name_make(worker->name);
	(void)snprintf(worker->unsaid[0], sizeof(worker->unsaid[0]), "%s %s",
	    outcomes[RETRY], worker->name);
	(void)snprintf(worker->unsaid[1], sizeof(worker->unsaid[1]), "%s %s",
	    outcomes[FAIL], worker->name);
	(void)snprintf(worker->limited, sizeof(worker->limited), "%s %s %s",
	    outcomes[RETRY], worker->name, LIMITED);
	(void)snprintf(
	    worker->queue, sizeof(worker->queue), "%s", options->queue);
	(void)snprintf(worker->channel, sizeof(worker->channel), "work:%s",
	    options->queue);
	list_init(&worker->ready);
	list_init(&worker->returned);
	TAILQ_INIT(&worker->held);
	(void)pthread_mutex_init(&worker->lock, NULL);
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&worker->changed, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
}

static void
threads_join(struct hwt_durable_worker *worker)
{
	uint32_t i;

	lock(worker);
	worker->loop_ended = true;
	(void)pthread_cond_broadcast(&worker->changed);
	unlock(worker);
	for (i = 0; i < worker->threads_begun; i++)
		(void)pthread_join(worker->thread[i], NULL);
}

static void
worker_free(struct hwt_durable_worker *worker)
{
	struct loop *loop = &worker->loop;

	if (loop->mailbox != NULL) {
		loop_cancel(loop, &worker->look);
		loop_cancel(loop, &worker->extend);
		loop_cancel(loop, &worker->flush);
		loop_cancel(loop, &worker->send_again);
		loop_destroy(loop);
	}
	(void)pthread_cond_destroy(&worker->changed);
	(void)pthread_mutex_destroy(&worker->lock);
	free(worker->source);
	free(worker);
}

static int
threads_begin(struct hwt_durable_worker *worker)
{
	int error = 0;

	while (error == 0 && worker->threads_begun < worker->threads) {
		error = thread_begin(&worker->thread[worker->threads_begun],
		    thread_run, worker, "hwt-task");
		worker->threads_begun += error == 0;
	}
	if (error == 0)
		error = thread_begin(
		    &worker->loop_thread, loop_run, worker, "hwt-work");
	if (error != 0)
		threads_join(worker);
	return error;
}

/* The first timeout tells whether there is a timer that runs. */
static int
worker_begin(struct hwt_durable_worker *worker)
{
	int error;

	worker->source =
	    calloc(worker->durable->shards, sizeof(*worker->source));
	if (worker->source == NULL)
		return -ENOMEM;
	worker->loop.engine = worker->durable->engine;
	worker->loop.channel = worker->channel;
	worker->loop.ring = ring;
	worker->loop.ctx = worker;
	error = loop_create(&worker->loop);
	if (error == 0)
		error = loop_after(
		    &worker->loop, &worker->look, woken, worker, SECOND_NS);
	return error == 0 ? threads_begin(worker) : error;
}

int
hwt_durable_worker_start(struct hwt_durable_worker **worker,
    struct hwt_durable *durable,
    const struct hwt_durable_worker_options *options)
{
	struct hwt_durable_worker *made;
	uint32_t threads;
	int error = durable_enter(durable);

	if (error != 0)
		return error;
	if (worker == NULL || options == NULL || !options_are_valid(options))
		return -EINVAL;
	threads = options->threads != 0 ? options->threads : 1;
	made = calloc(1, sizeof(*made) + threads * sizeof(made->thread[0]));
	if (made == NULL)
		return -ENOMEM;
	made->durable = durable;
	made->threads = threads;
	worker_set(made, options);
	error = durable_begin_use(durable, &made->loop.timer);
	if (error == 0) {
		error = worker_begin(made);
		if (error != 0)
			durable_end_use(durable);
	}
	if (error != 0) {
		worker_free(made);
		return error;
	}
	*worker = made;
	return 0;
}

/* With the lock held: until the loop has ended, or the time has come. */
static void
await_end(struct hwt_durable_worker *worker, uint64_t until_ns)
{
	const struct timespec until = {
	    .tv_sec = (time_t)(until_ns / HWT_SEC(1)),
	    .tv_nsec = (long)(until_ns % HWT_SEC(1))};
	int error = 0;

	while (!worker->loop_ended && error != ETIMEDOUT)
		error = until_ns == HWT_NEVER
		    ? pthread_cond_wait(&worker->changed, &worker->lock)
		    : pthread_cond_timedwait(
			  &worker->changed, &worker->lock, &until);
}

static uint64_t
later(uint64_t within_ns)
{
	uint64_t now = limit_now_ns();

	return within_ns > INT64_MAX - now ? HWT_NEVER : now + within_ns;
}

/* Whether the loop ends: it does not while callbacks run. What it cannot tell
 * the engine is dropped after a while. */
static bool
worker_ends(struct hwt_durable_worker *worker, uint64_t within_ns)
{
	const struct engine_wait wait = {.stop_fd = -1};
	bool busy;

	lock(worker);
	worker->stopping = true;
	(void)pthread_cond_broadcast(&worker->changed);
	loop_wake(&worker->loop);
	await_end(worker, later(within_ns));
	busy = worker->running > 0;
	if (!busy && !worker->loop_ended)
		await_end(worker,
		    engine_limit(worker->loop.engine, &wait).deadline_ns);
	if (!busy && !worker->loop_ended) {
		worker->abandoned = true;
		loop_hurry(&worker->loop);
		loop_wake(&worker->loop);
		await_end(worker, HWT_NEVER);
	}
	unlock(worker);
	return !busy;
}

int
hwt_durable_worker_stop(struct hwt_durable_worker *worker, uint64_t within_ns)
{
	struct hwt_durable *durable;
	int error;

	if (worker == NULL)
		return 0;
	durable = worker->durable;
	error = durable_enter(durable);
	if (error != 0)
		return error;
	if (inside == worker)
		return -EDEADLK;
	if (!worker_ends(worker, within_ns))
		return -EBUSY;
	(void)pthread_join(worker->loop_thread, NULL);
	threads_join(worker);
	worker_free(worker);
	durable_end_use(durable);
	return 0;
}

int
hwt_durable_set_error(const struct hwt_durable_delivery *delivery,
    const char *text, size_t length)
{
	/* Deliveries are made by us alone, each in its job. */
	struct job *job = delivery == NULL
	    ? NULL
	    : (struct job *)((uintptr_t)delivery -
		  offsetof(struct job, delivery));
	const char *name;
	char *said;
	size_t head;

	if (job == NULL || text == NULL || length > HWT_DURABLE_ERROR_MAX)
		return -EINVAL;
	name = job->worker->name;
	head = OUTCOME_LENGTH + strlen(name) + 2;
	said = malloc(head + length);
	if (said == NULL)
		return -ENOMEM;
	said[OUTCOME_LENGTH] = ' ';
	/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): no string */
	memcpy(said + OUTCOME_LENGTH + 1, name, strlen(name));
	said[head - 1] = ' ';
	memcpy(said + head, text, length);
	free(job->said);
	job->said = said;
	job->said_length = head + length;
	return 0;
}
