/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report: what a worker sends to the engine about many jobs in one batch,
 * their outcomes or that their leases are to be extended; a call per shard.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_internal.h"

const char *const outcome_name[] = {"done", "retry", "fail", "release"};

static int
compare_jobs(const void *a, const void *b)
{
	const struct job *const *x = a;
	const struct job *const *y = b;

	return (*x)->shard < (*y)->shard ? -1 : (*x)->shard > (*y)->shard;
}

/* Of a retry that does not say it: "", what the task says. */
static struct engine_argument
write_delay(struct job *job)
{
	uint64_t delay_ns = job->sent == RETRY ? job->retry_delay_ns : 0;

	if (job->sent == RETRY && (job->given_up || delay_ns == HWT_NEVER))
		return argument_text("");
	if (delay_ns > HWT_DURABLE_DELAY_MAX)
		delay_ns = HWT_DURABLE_DELAY_MAX;
	return argument_number(&job->delay, whole_ms(delay_ns));
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

/* done or release; retry or fail, with the worker's name and the error's text.
 */
static struct engine_argument
write_outcome(struct job *job)
{
	const struct hwt_durable_worker *worker = job->worker;
	const char *outcome = outcome_name[job->sent];
	size_t length = strlen(outcome);
	char *from;

	if (job->sent != RETRY && job->sent != FAIL)
		return argument_text(outcome);
	if (job->given_up)
		return argument_text(worker->limited);
	if (job->error == NULL)
		return argument_text(worker->no_error[job->sent == FAIL]);
	from = job->error + OUTCOME_LENGTH - length;
	/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): no string */
	memcpy(from, outcome, length);
	return (struct engine_argument){
	    from, job->error_length - OUTCOME_LENGTH + length};
}

/* A call for each shard. visibility_ns 0: outcomes. */
static void
report_write(struct job_report *report, uint64_t visibility_ns)
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
			*argument++ = write_delay(job);
		}
		call->count = (uint32_t)(argument - call->arg);
	}
	report->job_of[report->calls] = report->count;
}

struct engine_wait
worker_wait(const struct hwt_durable_worker *worker)
{
	struct engine_wait wait = loop_no_retry(&worker->loop);

	wait.timeout_ns = engine_timeout_ns(worker->loop.engine);
	if (wait.timeout_ns > worker->visibility_ns / 4)
		wait.timeout_ns = worker->visibility_ns / 4;
	return wait;
}

void
report_send(struct hwt_durable_worker *worker, struct job_report *report,
    uint64_t visibility_ns)
{
	struct engine_wait wait = worker_wait(worker);

	wait.replicated = visibility_ns == 0;
	report_write(report, visibility_ns);
	(void)engine_call(
	    worker->loop.engine, report->call, report->calls, &wait);
}

int
report_result(const struct engine_call *call, uint32_t i)
{
	uint64_t number;

	if (call->error != 0)
		return call->error;
	if (call->reply->type != REDIS_REPLY_ARRAY ||
	    i >= call->reply->elements ||
	    !reply_number(call->reply->element[i], &number) ||
	    number > RESULT_STALE)
		return -EPROTO;
	return (int)number;
}
