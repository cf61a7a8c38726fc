/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: a task that this worker has taken, until nothing of it is to be
 * reported.
 *
 * What a job is, its states, and who may touch which of its fields:
 * worker_internal.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_internal.h"

#define WAITING_NS HWT_MS(500)

void
job_list_init(struct job_list *list)
{
	*list = (struct job_list){.last = &list->first};
}

void
job_list_add(struct job_list *list, struct job *job)
{
	job->next = NULL;
	*list->last = job;
	list->last = &job->next;
	list->count++;
}

struct job *
job_list_take(struct job_list *list)
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

void
job_return(struct hwt_durable_worker *worker, struct job *job)
{
	job_list_add(&worker->returned, job);
	if (worker->returned.count == 1)
		loop_wake(&worker->loop);
}

/* Jobs, in the loop. */

void
job_free(struct job *job)
{
	loop_cancel(&job->worker->loop, &job->limit);
	TAILQ_REMOVE(&job->worker->held, job, held);
	free(job->finish_error);
	free(job->error);
	free(job);
}

void
job_end(struct job *job, enum outcome outcome)
{
	struct source *source = &job->worker->source[job->shard];

	TAILQ_REMOVE(&job->worker->held, job, held);
	TAILQ_INSERT_TAIL(&job->worker->ending, job, held);
	job->sent = outcome;
	job->ended = true;
	a64_store_relaxed(&job->worker->outcomes[outcome],
	    a64_load_relaxed(&job->worker->outcomes[outcome]) + 1);
	job->served->outcomes[outcome]++;
	job->worker->ended++;
	job->worker->waiting += source->waits;
	source->ended++;
}

/* It is reported, or will not be. */
void
job_reported(struct job *job)
{
	struct source *source = &job->worker->source[job->shard];

	TAILQ_REMOVE(&job->worker->ending, job, held);
	TAILQ_INSERT_TAIL(&job->worker->held, job, held);
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
job_is_delivery(const struct redisReply *reply)
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
struct job *
job_make(struct hwt_durable_worker *worker, struct served *served,
    uint32_t shard, const struct redisReply *reply, uint64_t asked_ns)
{
	struct job *job = NULL;

	if (job_is_delivery(reply))
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
	job->served = served;
	job->delivery.queue = served->queue;
	TAILQ_INSERT_TAIL(&worker->held, job, held);
	return job;
}

static void
job_collect(struct hwt_durable_worker *worker, struct job *job)
{
	job->returned = true;
	loop_cancel(&worker->loop, &job->limit);
	if (job->finished)
		job->retry_delay_ns = job->finish_delay_ns;
	if (job->finish_error != NULL) {
		free(job->error);
		job->error = job->finish_error;
		job->error_length = job->finish_error_length;
		job->finish_error = NULL;
	}
	if (!job->given_up)
		job_end(job, job->outcome);
	else if (!job->ended)
		job_free(job);
}

/* Only the loop sets given_up of a job that runs, so it may read it after. */
void
jobs_collect(struct hwt_durable_worker *worker)
{
	struct job_list returned;
	struct job *job;

	job_list_init(&returned);
	lock(worker);
	while ((job = job_list_take(&worker->returned)) != NULL)
		job_list_add(&returned, job);
	unlock(worker);
	while ((job = job_list_take(&returned)) != NULL)
		job_collect(worker, job);
}

/* All that wait for a thread, or those that have waited for too long. */
void
jobs_release(struct hwt_durable_worker *worker, bool all)
{
	uint64_t now = boot_now_ns();
	struct job_list kept;
	struct job *job;

	job_list_init(&kept);
	lock(worker);
	while ((job = job_list_take(&worker->ready)) != NULL) {
		if (all || now - job->taken_ns >= WAITING_NS) {
			job->returned = true;
			job_end(job, RELEASE);
		} else
			job_list_add(&kept, job);
	}
	while ((job = job_list_take(&kept)) != NULL)
		job_list_add(&worker->ready, job);
	unlock(worker);
}

size_t
job_error_write(
    const struct job *job, char *error, const char *text, size_t length)
{
	const char *name = job->worker->name;
	size_t head = OUTCOME_LENGTH + strlen(name) + 2;

	error[OUTCOME_LENGTH] = ' ';
	/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): no string */
	memcpy(error + OUTCOME_LENGTH + 1, name, strlen(name));
	error[head - 1] = ' ';
	memcpy(error + head, text, length);
	return head + length;
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
	char *error;

	if (job == NULL || text == NULL || length > HWT_DURABLE_ERROR_MAX)
		return -EINVAL;
	error = malloc(ERROR_HEAD_MAX + length);
	if (error == NULL)
		return -ENOMEM;
	free(job->error);
	job->error = error;
	job->error_length = job_error_write(job, error, text, length);
	return 0;
}
