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

#include "worker_internal.h"

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
	durations_add(&job->worker->execution, boot_now_ns() - job->called_ns);
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

/* What hwt_durable_finish is given. */
struct ending {
	enum outcome outcome;
	uint64_t delay_ns;
	const char *text; /* NULL: none */
	size_t length;
	char *error; /* room for what is sent of it */
};

static bool
later_finish(struct hwt_durable_worker *worker, uint64_t number,
    const struct ending *ending)
{
	struct job *job;

	lock(worker);
	job = later_find(worker, number);
	if (job != NULL) {
		(void)later_close(job);
		job->finished = true;
		job->outcome = ending->outcome;
		job->finish_delay_ns = ending->delay_ns;
		job->finish_error = ending->error;
		if (ending->error != NULL)
			job->finish_error_length = job_error_write(
			    job, ending->error, ending->text, ending->length);
		if (job->later) {
			job->later = false;
			worker->later--;
			job_return(worker, job);
		}
	}
	unlock(worker);
	return job != NULL;
}

static bool
workers_finish(struct hwt_durable_token token, const struct ending *ending)
{
	struct hwt_durable *durable = token.durable;
	struct hwt_durable_worker *worker;
	bool found = false;

	(void)pthread_mutex_lock(&durable->workers_lock);
	for (worker = durable->workers; worker != NULL && !found;
	     worker = worker->next)
		found = later_finish(worker, token.number, ending);
	(void)pthread_mutex_unlock(&durable->workers_lock);
	return found;
}

static int
finish(struct hwt_durable_token token, int outcome, struct ending *ending)
{
	static const enum outcome outcomes[] = {[0] = DONE,
	    [HWT_DURABLE_RETRY] = RETRY,
	    [HWT_DURABLE_FAIL] = FAIL,
	    [HWT_DURABLE_RELEASE] = RELEASE};
	int error = durable_enter(token.durable);

	if (error != 0)
		return error;
	if (outcome < 0 || outcome > HWT_DURABLE_RELEASE ||
	    outcome == HWT_DURABLE_LATER ||
	    (outcome == HWT_DURABLE_RETRY && ending->delay_ns != HWT_NEVER &&
		ending->delay_ns > HWT_DURABLE_DELAY_MAX))
		return -EINVAL;
	ending->outcome = outcomes[outcome];
	if (ending->text != NULL) {
		ending->error = malloc(ERROR_HEAD_MAX + ending->length);
		if (ending->error == NULL)
			return -ENOMEM;
	}
	if (workers_finish(token, ending))
		return 0;
	free(ending->error);
	return -ESTALE;
}

int
hwt_durable_finish(
    struct hwt_durable_token token, int outcome, uint64_t delay_ns)
{
	struct ending ending = {.delay_ns = delay_ns};

	return finish(token, outcome, &ending);
}

int
hwt_durable_finish_error(struct hwt_durable_token token, int outcome,
    uint64_t delay_ns, const char *text, size_t length)
{
	struct ending ending = {
	    .delay_ns = delay_ns, .text = text, .length = length};

	if (text == NULL || length > HWT_DURABLE_ERROR_MAX)
		return -EINVAL;
	return finish(token, outcome, &ending);
}
