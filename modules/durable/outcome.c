/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outcomes: how the attempts of a worker have ended, reported in batches until
 * the engine has answered. What is repeated, and for how long: worker.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <syslog.h>

#include "worker_internal.h"

#define FLUSH_NS HWT_MS(1)
#define FLUSH_COUNT 64u

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
is_transient(int error)
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
	if (result == RESULT_STALE && job->sent == RELEASE)
		return true;
	if (result == RESULT_STALE) {
		engine_log(engine, LOG_WARNING,
		    "%.64s: attempt %u is over; its outcome %s", id,
		    job->delivery.attempt,
		    job->uncertain ? "came before, or has no effect"
				   : "has no effect");
		return true;
	}
	job->uncertain |= result == -ETIMEDOUT;
	if (is_transient(result) || boot_now_ns() < job->lease_ns)
		return false;
	engine_log(engine, LOG_WARNING,
	    "%.64s: the outcome of attempt %u cannot be reported: %s", id,
	    job->delivery.attempt, error_says(result));
	return true;
}

uint32_t
outcomes_due(const struct hwt_durable_worker *worker)
{
	return worker->ended - worker->waiting;
}

/* A shard that does not answer does not delay the outcomes of others. */
static void
report_settle(
    struct hwt_durable_worker *worker, const struct job_report *report)
{
	const struct engine_call *call;
	bool fails = false;
	uint32_t i, at;

	for (i = 0; i < report->calls; i++) {
		call = &report->call[i];
		for (at = report->job_of[i]; at < report->job_of[i + 1]; at++) {
			if (outcome_is_settled(report->job[at],
				report_result(call, at - report->job_of[i]))) {
				job_reported(report->job[at]);
				continue;
			}
			source_wait(worker, &worker->source[call->shard]);
			fails = true;
		}
		take_note_room(worker, call);
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
	struct job_report report;
	struct job *job;

	report.count = 0;
	report.calls = 0;
	TAILQ_FOREACH(job, &worker->ending, held)
	{
		if (!worker->source[job->shard].waits &&
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
void
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

/* What is not reported by now is left to its lease. */
void
outcomes_drop(struct hwt_durable_worker *worker)
{
	struct job *job;

	while ((job = TAILQ_FIRST(&worker->ending)) != NULL)
		job_reported(job);
}
