/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a worker that call back, and the limit of how long an attempt
 * may run.
 *
 * The states of a job, and who may touch which of its fields:
 * worker_internal.h.
 */
#include <syslog.h>

#include "worker_internal.h"

/* The limit. */

/* On the loop: if an attempt takes too long, its task is executed again, and
 * what its callback returns, or hwt_durable_finish is given, has no effect. */
static void
job_check(struct job *job)
{
	struct hwt_durable_worker *worker = job->worker;
	uint64_t now = boot_now_ns();
	bool late;

	lock(worker);
	late = job->open && now - job->called_ns >= worker->run_limit_ns;
	job->given_up |= late;
	if (late && !later_give_up(worker, job))
		(void)later_close(job);
	unlock(worker);
	if (!late)
		return;
	engine_log(worker->loop.engine, LOG_WARNING,
	    "an attempt of queue %s takes longer than run_limit_ns",
	    job->delivery.queue);
	job_end(job, RETRY);
}

static void
job_limit(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	job_check(arg);
}

/* For those whose timeout the timer has refused. */
void
jobs_check(struct hwt_durable_worker *worker)
{
	struct job *job, *next;

	if (worker->run_limit_ns == 0)
		return;
	for (job = TAILQ_FIRST(&worker->held); job != NULL; job = next) {
		next = TAILQ_NEXT(job, held);
		job_check(job);
	}
}

/* Threads that call back. */

/* The worker whose callback this thread is in. */
static _Thread_local const struct hwt_durable_worker *inside;

bool
job_is_inside(const struct hwt_durable_worker *worker)
{
	return inside == worker;
}

static enum outcome
outcome_of(int result)
{
	return result == 0 ? DONE : result == HWT_DURABLE_RETRY ? RETRY : FAIL;
}

/* A running average of some eight durations. */
static void
duration_add(struct hwt_durable_worker *worker, uint64_t duration_ns)
{
	if (!worker->measured)
		worker->mean_ns = duration_ns;
	worker->measured = true;
	worker->mean_ns = worker->mean_ns / 8 * 7 + duration_ns / 8;
}

/* By this machine's clock, which may be behind the engine's. */
static uint64_t
lateness_of(const struct job *job)
{
	uint64_t now = unix_now_ns(), due = job->delivery.due_unix_ns;

	return now > due ? now - due : 0;
}

/* With the lock held, and when it returns. False: it is later. */
static bool
job_run(struct hwt_durable_worker *worker, struct job *job)
{
	uint64_t late_ns = lateness_of(job);
	int result;

	job->called_ns = boot_now_ns();
	durations_add(&worker->late, late_ns);
	served_begins(job->served, late_ns);
	job->runs = true;
	later_open(worker, job);
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
	duration_add(worker, boot_now_ns() - job->called_ns);
	job->runs = false;
	worker->running--;
	job->later = result == HWT_DURABLE_LATER && job->open;
	worker->later += job->later;
	if (!job->later && later_close(job))
		job->outcome = outcome_of(result);
	return !job->later;
}

void *
job_thread(void *arg)
{
	struct hwt_durable_worker *worker = arg;
	struct job *job;

	lock(worker);
	while (!worker->loop_ended) {
		job = worker->stopping ? NULL : job_list_take(&worker->ready);
		if (job == NULL) {
			(void)pthread_cond_wait(
			    &worker->changed, &worker->lock);
			continue;
		}
		/* One whose lease is over is another worker's by now. */
		if (boot_now_ns() >= job->lease_ns)
			job->outcome = RELEASE;
		else if (!job_run(worker, job)) {
			/* There is room for another one, and nothing that has
			 * returned tells the loop. */
			if (worker->ready.count == 0)
				loop_wake(&worker->loop);
			continue;
		}
		job_return(worker, job);
	}
	unlock(worker);
	return NULL;
}
