/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that execute the tasks of a queue: start, stop, and the loop. A
 * worker's other files, and who may touch which field: worker_internal.h.
 *
 * One thread, the loop, talks to the engine: it takes tasks, extends their
 * leases, and reports how they ended. The others call back.
 *
 * One turn of the loop: wait; mark what has returned as ended; once a second,
 * poll every shard if no other worker of the queue does, and release what has
 * waited for a thread for too long; extend leases, if a third of the
 * visibility is over, or a second since that failed; send a batch of what has
 * ended; take, if there are threads for it.
 *
 * WHAT IS REPEATED. Taking, until there is an answer: each one says which was
 * the last that was answered, so what came of those between is known not to be
 * here, is handed over again, and does not count if it has ended meanwhile. An
 * outcome, until there is an answer, or the worker stops; if the engine refuses
 * it for good, until the lease is over.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker_internal.h"

#define THREADS_MAX 1024u
#define VISIBILITY_DEFAULT HWT_SEC(30)
#define VISIBILITY_MAX HWT_SEC(86400)
#define OUTSTANDING_DEFAULT 4096u
#define OUTSTANDING_MAX 65536u

static a64_t last_serial;

/* The loop. */

/* What no callback was called for is released; what cannot be reported is
 * dropped. */
static bool
loop_is_stopping(struct hwt_durable_worker *worker)
{
	bool stopping, expired, abandoned;

	lock(worker);
	stopping = worker->stopping;
	expired = worker->expired;
	abandoned = worker->abandoned;
	unlock(worker);
	if (stopping)
		jobs_release(worker, true);
	if (expired)
		later_expire(worker);
	if (abandoned)
		outcomes_drop(worker);
	return stopping;
}

/* Before each call that may wait. */
static void
leases_keep(struct hwt_durable_worker *worker)
{
	if (boot_now_ns() >= worker->extend_ns)
		leases_extend(worker);
}

/* False: it may wait. */
static bool
loop_work(struct hwt_durable_worker *worker)
{
	uint32_t need;

	leases_keep(worker);
	if (worker->looked_ns == 0 ||
	    boot_now_ns() - worker->looked_ns >= SECOND_NS)
		take_poll(worker);
	leases_keep(worker);
	outcomes_flush(worker);
	need = take_needed(worker);
	if (need > 0 && worker->notified_count > 0) {
		leases_keep(worker);
		if (take_awaits_hint(worker))
			loop_await_hint(&worker->loop);
		take_some(worker, need);
	}
	if (worker->flush_due && outcomes_due(worker) > 0)
		return true;
	need = take_needed(worker);
	if (worker->notified_count > 0 && need == 0 &&
	    worker->loop.subscription != NULL)
		take_pass_on(worker);
	if (worker->notified_count == 0 && need > 0)
		loop_await_hint(&worker->loop);
	return worker->notified_count > 0 && need > 0;
}

/* The loop alone takes jobs from held. */
static void
tell_decided(struct hwt_durable_worker *worker)
{
	lock(worker);
	worker->decided = true;
	(void)pthread_cond_broadcast(&worker->changed);
	unlock(worker);
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
		if (stopping && TAILQ_EMPTY(&worker->held))
			tell_decided(worker);
		more = loop_work(worker);
	} while (!stopping || !TAILQ_EMPTY(&worker->held) ||
	    !TAILQ_EMPTY(&worker->ending));
	stats_publish(worker);
	lock(worker);
	worker->loop_ended = true;
	(void)pthread_cond_broadcast(&worker->changed);
	unlock(worker);
	return NULL;
}

/* Starting and stopping. */

/* Reads a list of names with commas between, none twice. False: it is none. */
static bool
queues_read(const char *list, struct served *served, uint32_t *count)
{
	uint32_t i;
	size_t length;

	for (*count = 0;; list += length + 1, ++*count) {
		length = strcspn(list, ",");
		if (*count == HWT_DURABLE_QUEUES_MAX ||
		    length > HWT_DURABLE_QUEUE_MAX)
			return false;
		memcpy(served[*count].queue, list, length);
		served[*count].queue[length] = '\0';
		if (!name_is_valid(served[*count].queue, HWT_DURABLE_QUEUE_MAX))
			return false;
		for (i = 0; i < *count; i++) {
			if (strcmp(served[i].queue, served[*count].queue) == 0)
				return false;
		}
		if (list[length] == '\0')
			return ++*count > 0;
	}
}

static bool
options_are_valid(const struct hwt_durable_worker_options *options)
{
	struct served served[HWT_DURABLE_QUEUES_MAX];
	uint32_t queues;

	return options->queue != NULL &&
	    queues_read(options->queue, served, &queues) &&
	    options->callback != NULL && options->threads <= THREADS_MAX &&
	    options->flags == 0 &&
	    (options->visibility_ns == 0 ||
		(options->visibility_ns >= SECOND_NS &&
		    options->visibility_ns <= VISIBILITY_MAX)) &&
	    options->run_limit_ns <= INT64_MAX &&
	    (options->outstanding_max == 0 ||
		(options->outstanding_max >= options->threads &&
		    options->outstanding_max <= OUTSTANDING_MAX)) &&
	    RESERVED_IS_ZERO(options);
}

static void
worker_set(struct hwt_durable_worker *worker,
    const struct hwt_durable_worker_options *options)
{
	pthread_condattr_t monotonic;
	uint32_t i;

	worker->callback = options->callback;
	worker->ctx = options->ctx;
	worker->visibility_ns = options->visibility_ns != 0
	    ? options->visibility_ns
	    : VISIBILITY_DEFAULT;
	worker->run_limit_ns = options->run_limit_ns;
	worker->outstanding_max = options->outstanding_max != 0
	    ? (uint32_t)options->outstanding_max
	    : OUTSTANDING_DEFAULT;
	worker->serial = a64_add_seq(&last_serial, 1) + 1;
	name_make(worker->name);
	(void)snprintf(worker->no_error[0], sizeof(worker->no_error[0]),
	    "%s %s", outcome_name[RETRY], worker->name);
	(void)snprintf(worker->no_error[1], sizeof(worker->no_error[1]),
	    "%s %s", outcome_name[FAIL], worker->name);
	(void)snprintf(worker->limited, sizeof(worker->limited), "%s %s %s",
	    outcome_name[RETRY], worker->name, LIMITED);
	(void)queues_read(options->queue, worker->served, &worker->queues);
	for (i = 0; i < worker->queues; i++)
		(void)snprintf(worker->served[i].taker,
		    sizeof(worker->served[i].taker), i > 0 ? "%.60s.%u" : "%s",
		    worker->name, i);
	(void)snprintf(worker->channel, sizeof(worker->channel), "work:%s",
	    options->queue);
	job_list_init(&worker->ready);
	job_list_init(&worker->returned);
	TAILQ_INIT(&worker->held);
	TAILQ_INIT(&worker->ending);
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
		loop_cancel(loop, &worker->ask_again);
		loop_destroy(loop);
	}
	(void)pthread_cond_destroy(&worker->changed);
	(void)pthread_mutex_destroy(&worker->lock);
	free(worker->open);
	free(worker->source);
	free(worker);
}

static void
workers_add(struct hwt_durable_worker *worker)
{
	struct hwt_durable *durable = worker->durable;

	(void)pthread_mutex_lock(&durable->workers_lock);
	worker->next = durable->workers;
	durable->workers = worker;
	(void)pthread_mutex_unlock(&durable->workers_lock);
}

/* From then on no hwt_durable_finish has it. */
static void
workers_remove(struct hwt_durable_worker *worker)
{
	struct hwt_durable *durable = worker->durable;
	struct hwt_durable_worker **at = &durable->workers;

	(void)pthread_mutex_lock(&durable->workers_lock);
	while (*at != worker)
		at = &(*at)->next;
	*at = worker->next;
	(void)pthread_mutex_unlock(&durable->workers_lock);
}

static int
threads_begin(struct hwt_durable_worker *worker)
{
	int error = 0;

	while (error == 0 && worker->threads_begun < worker->threads) {
		error = thread_begin(&worker->thread[worker->threads_begun],
		    job_thread, worker, "hwt-task");
		worker->threads_begun += error == 0;
	}
	if (error == 0)
		error = thread_begin(
		    &worker->loop_thread, loop_run, worker, "hwt-work");
	if (error != 0)
		threads_join(worker);
	return error;
}

/* The first timeout shows whether there is a timer that runs. */
static int
worker_begin(struct hwt_durable_worker *worker)
{
	int error;

	worker->source =
	    calloc((size_t)worker->queues * worker->durable->shards,
		sizeof(*worker->source));
	if (worker->source == NULL)
		return -ENOMEM;
	error = later_create(worker);
	if (error != 0)
		return error;
	worker->loop.engine = worker->durable->engine;
	worker->loop.channel = worker->channel;
	worker->loop.notify = sources_notify;
	worker->loop.ctx = worker;
	error = loop_create(&worker->loop);
	if (error == 0)
		error =
		    loop_wake_after(&worker->loop, &worker->look, SECOND_NS);
	if (error != 0)
		return error;
	workers_add(worker);
	error = threads_begin(worker);
	if (error != 0)
		workers_remove(worker);
	return error;
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
	made->loop.timer = durable_begin_use(durable);
	error = worker_begin(made);
	if (error != 0) {
		durable_end_use(durable);
		worker_free(made);
		return error;
	}
	*worker = made;
	return 0;
}

/* With the lock held: until *done is true, or the time has come. */
static void
await(struct hwt_durable_worker *worker, const bool *done, uint64_t until_ns)
{
	const struct timespec until = {
	    .tv_sec = (time_t)(until_ns / HWT_SEC(1)),
	    .tv_nsec = (long)(until_ns % HWT_SEC(1))};
	int error = 0;

	while (!*done && error != ETIMEDOUT)
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

/* Whether the loop ends: it does not while callbacks run. What it cannot
 * report to the engine is dropped after a while. */
static bool
worker_ends(struct hwt_durable_worker *worker, uint64_t within_ns)
{
	const struct engine_wait wait = {.stop_fd = -1};
	const uint64_t until_ns = later(within_ns);
	bool busy;

	lock(worker);
	worker->stopping = true;
	(void)pthread_cond_broadcast(&worker->changed);
	loop_wake(&worker->loop);
	/* For ever is for callbacks: the engine has its time after that. */
	await(worker,
	    until_ns == HWT_NEVER ? &worker->decided : &worker->loop_ended,
	    until_ns);
	busy = worker->running > 0;
	worker->expired = !busy;
	if (!busy && !worker->loop_ended)
		loop_wake(&worker->loop);
	if (!busy && !worker->loop_ended)
		await(worker, &worker->loop_ended,
		    engine_limit(worker->loop.engine, &wait).deadline_ns);
	if (!busy && !worker->loop_ended) {
		worker->abandoned = true;
		loop_hurry(&worker->loop);
		loop_wake(&worker->loop);
		await(worker, &worker->loop_ended, HWT_NEVER);
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
	if (job_is_inside(worker))
		return -EDEADLK;
	if (!worker_ends(worker, within_ns))
		return -EBUSY;
	(void)pthread_join(worker->loop_thread, NULL);
	threads_join(worker);
	workers_remove(worker);
	worker_free(worker);
	durable_end_use(durable);
	return 0;
}
