/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attempts that end later than their callbacks: HWT_DURABLE_LATER.
 *
 * A job is open from just before its callback is called until its outcome is
 * decided, for hwt_durable_finish may be called before the callback returns. It
 * is in the bucket of its token while it is open. All of this is under the
 * worker's lock; see DESIGN, LATER.
 *
 * The worker is found by the handle, whose lock protects the list of workers: a
 * worker is in it from before its first callback until its threads have ended,
 * and is freed after that.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "worker_inside.h"

int
later_create(struct hwt_durable_worker *worker)
{
	uint64_t count = 1;

	while (count < worker->outstanding_max)
		count *= 2;
	worker->bucket_mask = count - 1;
	worker->open = calloc(count, sizeof(*worker->open));
	return worker->open == NULL ? -ENOMEM : 0;
}

static struct job_bucket *
bucket_of(struct hwt_durable_worker *worker, uint64_t number)
{
	return &worker->open[number & worker->bucket_mask];
}

void
later_open(struct hwt_durable_worker *worker, struct job *job)
{
	struct hwt_durable *durable = worker->durable;
	uint64_t number = a64_add_seq(&durable->tokens, 1);

	job->delivery.token = (struct hwt_durable_token){durable, number};
	job->open = true;
	LIST_INSERT_HEAD(bucket_of(worker, number), job, bucket);
}

bool
later_close(struct job *job)
{
	if (!job->open)
		return false;
	job->open = false;
	LIST_REMOVE(job, bucket);
	return true;
}

bool
later_give_up(struct hwt_durable_worker *worker, struct job *job)
{
	if (!job->later)
		return false;
	(void)later_close(job);
	job->later = false;
	worker->later--;
	job->returned = true;
	return true;
}

void
later_expire(struct hwt_durable_worker *worker)
{
	struct job *job, *next;

	lock(worker);
	for (job = TAILQ_FIRST(&worker->held); job != NULL; job = next) {
		next = TAILQ_NEXT(job, held);
		if (later_give_up(worker, job))
			job_end(job, RETRY);
	}
	unlock(worker);
}

/* With the lock held. */
static struct job *
later_find(struct hwt_durable_worker *worker, uint64_t number)
{
	struct job *job;

	LIST_FOREACH(job, bucket_of(worker, number), bucket)
	{
		if (job->delivery.token.number == number)
			return job;
	}
	return NULL;
}

static bool
later_finish(struct hwt_durable_worker *worker, uint64_t number,
    enum outcome outcome, uint64_t delay_ns)
{
	struct job *job;

	lock(worker);
	job = later_find(worker, number);
	if (job != NULL) {
		(void)later_close(job);
		job->finished = true;
		job->outcome = outcome;
		job->finish_delay_ns = delay_ns;
		if (job->later) {
			job->later = false;
			worker->later--;
			job_return(worker, job);
		}
	}
	unlock(worker);
	return job != NULL;
}

int
hwt_durable_finish(
    struct hwt_durable_token token, int outcome, uint64_t delay_ns)
{
	static const enum outcome outcomes[] = {DONE, RETRY, FAIL};
	struct hwt_durable *durable = token.durable;
	int error = durable_enter(durable);
	struct hwt_durable_worker *worker;
	bool found = false;

	if (error != 0)
		return error;
	if (outcome < 0 || outcome > HWT_DURABLE_FAIL ||
	    (outcome == HWT_DURABLE_RETRY && delay_ns != HWT_NEVER &&
		delay_ns > HWT_DURABLE_DELAY_MAX))
		return -EINVAL;
	(void)pthread_mutex_lock(&durable->workers_lock);
	for (worker = durable->workers; worker != NULL && !found;
	     worker = worker->next)
		found = later_finish(
		    worker, token.number, outcomes[outcome], delay_ns);
	(void)pthread_mutex_unlock(&durable->workers_lock);
	return found ? 0 : -ESTALE;
}
