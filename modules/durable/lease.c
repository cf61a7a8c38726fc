/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: each third of the visibility, those of all jobs that have not ended
 * are extended, or a second after that has failed.
 */
#define _GNU_SOURCE
#include <syslog.h>

#include "worker_internal.h"

#define EXTEND_AGAIN_NS HWT_SEC(1) /* the engine waits for 10 s after a pause */

static void
lease_lost(struct job *job)
{
	engine_log(job->worker->loop.engine, LOG_WARNING,
	    "%.64s: attempt %u is over before it was finished",
	    job->delivery.id, job->delivery.attempt);
	job_free(job);
}

/* False: some shard has not answered. What is later, and whose lease is lost,
 * ends here: nobody else would notice. */
static bool
leases_read(struct hwt_durable_worker *worker, const struct job_report *report,
    uint64_t asked_ns)
{
	struct job *lost[REPORT_MAX];
	uint32_t lost_count = 0;
	bool answered = true;
	uint32_t i, at;
	int result;

	lock(worker);
	for (i = 0; i < report->calls; i++) {
		answered = answered && report->call[i].error == 0;
		for (at = report->job_of[i]; at < report->job_of[i + 1]; at++) {
			result = report_result(
			    &report->call[i], at - report->job_of[i]);
			if (result == 0)
				report->job[at]->lease_ns =
				    asked_ns + worker->visibility_ns;
			else if (result == RESULT_STALE &&
			    later_give_up(worker, report->job[at]))
				lost[lost_count++] = report->job[at];
		}
	}
	unlock(worker);
	for (i = 0; i < lost_count; i++)
		lease_lost(lost[i]);
	return answered;
}

static bool
leases_send(struct hwt_durable_worker *worker, struct job_report *report)
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

void
leases_extend_after(struct hwt_durable_worker *worker, uint64_t delay_ns)
{
	worker->extend_ns = boot_now_ns() + delay_ns;
	(void)loop_wake_after(&worker->loop, &worker->extend, delay_ns);
}

/* Of all that have not ended. One whose lease was over on its way to a thread
 * is extended once too often, which is refused or ends. */
void
leases_extend(struct hwt_durable_worker *worker)
{
	struct job_report report;
	uint64_t delay_ns = worker->visibility_ns / 3;
	bool answered = true;
	struct job *job, *next;

	report.count = 0;
	report.calls = 0;
	for (job = TAILQ_FIRST(&worker->held); job != NULL; job = next) {
		next = TAILQ_NEXT(job, held);
		if (job->returned || job->left)
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
