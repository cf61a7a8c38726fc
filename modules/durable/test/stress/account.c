/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account SECONDS: in one process, four producers add, cancel and reschedule,
 * two schedulers pump, two workers of different answers execute, one of which
 * is stopped and started again each second. In the end everything is accounted
 * for:
 *
 *   added = succeeded + failed + cancelled, nothing is left, nothing was missed
 *   no task is executed after a cancel that returned 0
 *   each success is one execution that the callback answered with 0
 *   what has begun has an outcome, or was released
 *
 * Some attempts end later: each token is finished by two threads at once, also
 * while its callback returns and while its worker stops. One of them may, or
 * none, and then the task was executed again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "modules/durable/hwt_durable.h"
#include "modules/durable/test/spec/server.h"

#define PRODUCERS 4
#define BATCH 20
#define IDS_MAX 200000
#define LATER_MAX 60000
#define LATER_LEFT 16 /* not finished yet, so that stops find some */

static struct server server;
static struct hwt_durable *durable;
static _Atomic bool enough;
static _Atomic uint64_t added, cancelled, done, failed, retried;
/* Of each id, by producer and number. */
static _Atomic unsigned char gone[PRODUCERS][IDS_MAX];
static _Atomic unsigned char ran[PRODUCERS][IDS_MAX];

/* Attempts that end later: appended by callbacks. */
static struct later {
	struct hwt_durable_token token;
	unsigned producer, number;
	_Atomic bool there;
	_Atomic unsigned finished;
} later[LATER_MAX];
static _Atomic unsigned later_count;
static _Atomic bool later_over;

static void
succeed(unsigned producer, unsigned number)
{
	need(atomic_fetch_add(&ran[producer][number], 1) == 0,
	    "a success was executed twice");
	(void)atomic_fetch_add(&done, 1);
}

/* False: there is no room for more. */
static bool
end_later(const struct hwt_durable_delivery *delivery, unsigned producer,
    unsigned number)
{
	unsigned at = atomic_fetch_add(&later_count, 1);

	if (at >= LATER_MAX)
		return false;
	later[at].token = delivery->token;
	later[at].producer = producer;
	later[at].number = number;
	atomic_store(&later[at].there, true);
	return true;
}

/* One of two threads. */
static void *
finish_all(void *arg)
{
	unsigned at = 0;
	int result;

	(void)arg;
	while (at < LATER_MAX) {
		if (!atomic_load(&later[at].there) ||
		    (atomic_load(&later_count) < at + LATER_LEFT &&
			!atomic_load(&enough))) {
			if (atomic_load(&later_over))
				break;
			pause_ms(1);
			continue;
		}
		result = hwt_durable_finish(later[at].token, 0, 0);
		need(result == 0 || result == -ESTALE, "a finish");
		if (result == 0) {
			need(atomic_fetch_add(&later[at].finished, 1) == 0,
			    "an attempt was finished twice");
			succeed(later[at].producer, later[at].number);
		}
		at++;
	}
	return NULL;
}

/* Some of all: the number decides. */
static int
execute(void *ctx, const struct hwt_durable_delivery *delivery)
{
	unsigned producer, number;

	(void)ctx;
	need(sscanf(delivery->id, "%u.%u", &producer, &number) == 2, "an id");
	need(atomic_load(&gone[producer][number]) == 0,
	    "executed after a cancel");
	if (number % 17 == 3 && delivery->attempt == 1) {
		*delivery->retry_delay_ns = HWT_MS(number % 40);
		(void)atomic_fetch_add(&retried, 1);
		return HWT_DURABLE_RETRY;
	}
	if (number % 101 == 7) {
		(void)atomic_fetch_add(&failed, 1);
		return HWT_DURABLE_FAIL;
	}
	if (number % 3 == 1 && delivery->attempt == 1 &&
	    end_later(delivery, producer, number))
		return HWT_DURABLE_LATER;
	succeed(producer, number);
	return 0;
}

static void
change(unsigned producer, unsigned number, const char *id)
{
	int error = 0;

	if (number % 7 == 1) {
		error = hwt_durable_cancel(durable, id, strlen(id));
		if (error == 0) {
			atomic_store(&gone[producer][number], 1);
			(void)atomic_fetch_add(&cancelled, 1);
		}
	} else if (number % 7 == 2)
		error = hwt_durable_reschedule(
		    durable, id, strlen(id), HWT_MS(number % 50), 0);
	need(error == 0 || error == -EALREADY || error == -EINPROGRESS,
	    "a change");
}

static void
produce_batch(unsigned producer, unsigned first)
{
	struct hwt_durable_task task[BATCH] = {0};
	char id[BATCH][24];
	int result[BATCH];
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		(void)snprintf(
		    id[i], sizeof(id[i]), "%u.%u", producer, first + i);
		task[i].id = id[i];
		task[i].id_length = strlen(id[i]);
		task[i].queue = i % 2 ? "odd" : "even";
		task[i].delay_ns = HWT_MS((first + i) % 60);
	}
	need(hwt_durable_add(durable, BATCH, task, result) == 0, "an add");
	for (i = 0; i < BATCH; i++) {
		need(result[i] == 0, "an id was there");
		(void)atomic_fetch_add(&added, 1);
	}
	for (i = 0; i < BATCH; i++)
		change(producer, first + i, id[i]);
}

static void *
produce(void *arg)
{
	unsigned producer = *(unsigned *)arg;
	unsigned first;

	for (first = 0; first + BATCH < IDS_MAX && !atomic_load(&enough);
	     first += BATCH)
		produce_batch(producer, first);
	return NULL;
}

static struct hwt_durable_stats
stats(void)
{
	struct hwt_durable_stats read;

	need(hwt_durable_read_stats(durable, &read) == 0, "stats");
	return read;
}

static void
await_end(void)
{
	struct hwt_durable_stats read;
	int waited;

	for (waited = 0; waited < 6000; waited++) {
		read = stats();
		if (read.pending + read.delivered + read.running == 0)
			return;
		pause_ms(10);
	}
	(void)fprintf(stderr, "%llu pending, %llu delivered, %llu running\n",
	    (unsigned long long)read.pending,
	    (unsigned long long)read.delivered,
	    (unsigned long long)read.running);
	need(false, "something is left");
}

static void
settle(void)
{
	struct hwt_durable_stats read = stats();
	unsigned count = atomic_load(&later_count);
	unsigned expired = 0;
	unsigned i;

	if (count > LATER_MAX)
		count = LATER_MAX;
	for (i = 0; i < count; i++)
		expired += atomic_load(&later[i].finished) == 0;
	(void)atomic_fetch_add(&retried, expired);
	need(read.added == atomic_load(&added), "added");
	need(read.cancelled == atomic_load(&cancelled), "cancelled");
	need(read.succeeded == atomic_load(&done), "succeeded");
	need(read.failed == atomic_load(&failed), "failed");
	need(read.added == read.succeeded + read.failed + read.cancelled,
	    "the sum");
	need(read.retried == atomic_load(&retried), "retried");
	/* What waits for a thread for too long is released. */
	need(read.begun ==
		read.succeeded + read.failed + read.retried + read.given_back,
	    "begun");
	need(read.missed == 0 && read.quarantined == 0, "missed");
	need(read.expired_leases == 0, "a lease is over");
	printf("account: %llu added, %llu succeeded, %llu failed, "
	       "%llu cancelled, %llu retried, %llu released; "
	       "%u later, %u of them expired\n",
	    (unsigned long long)read.added, (unsigned long long)read.succeeded,
	    (unsigned long long)read.failed, (unsigned long long)read.cancelled,
	    (unsigned long long)read.retried,
	    (unsigned long long)read.given_back, count, expired);
}

/* What it has called no callback for goes back, and what is to end later is
 * executed again. */
static void
start_again(struct hwt_durable_worker **worker,
    const struct hwt_durable_worker_options *options)
{
	int result;

	while ((result = hwt_durable_worker_stop(*worker, 0)) == -EBUSY)
		pause_ms(1);
	need(result == 0, "stop");
	need(hwt_durable_worker_start(worker, durable, options) == 0, "worker");
}

static void
run(long seconds)
{
	struct hwt_durable_worker_options options = {.callback = execute,
	    .queue = "odd",
	    .threads = 3,
	    .visibility_ns = HWT_SEC(120)};
	static unsigned number[PRODUCERS];
	struct hwt_durable_scheduler *scheduler[2];
	struct hwt_durable_worker *worker[2];
	pthread_t producer[PRODUCERS], finisher[2];
	unsigned i;

	need(hwt_durable_worker_start(&worker[0], durable, &options) == 0,
	    "worker");
	options.queue = "even";
	options.threads = 1;
	need(hwt_durable_worker_start(&worker[1], durable, &options) == 0,
	    "worker");
	for (i = 0; i < 2; i++)
		need(hwt_durable_scheduler_start(
			 &scheduler[i], durable, NULL) == 0,
		    "scheduler");
	for (i = 0; i < 2; i++)
		need(pthread_create(&finisher[i], NULL, finish_all, NULL) == 0,
		    "thread");
	for (i = 0; i < PRODUCERS; i++) {
		number[i] = i;
		need(pthread_create(&producer[i], NULL, produce, &number[i]) ==
			0,
		    "thread");
	}
	for (i = 1; i <= 10 * (unsigned)seconds; i++) {
		pause_ms(100);
		if (i % 10 == 5)
			start_again(&worker[1], &options);
	}
	atomic_store(&enough, true);
	for (i = 0; i < PRODUCERS; i++)
		(void)pthread_join(producer[i], NULL);
	await_end();
	for (i = 0; i < 2; i++) {
		need(hwt_durable_worker_stop(worker[i], HWT_SEC(60)) == 0,
		    "stop");
		need(hwt_durable_scheduler_stop(scheduler[i]) == 0, "stop");
	}
	atomic_store(&later_over, true);
	for (i = 0; i < 2; i++)
		(void)pthread_join(finisher[i], NULL);
}

int
main(int argc, char **argv)
{
	long seconds = argc > 1 ? strtol(argv[1], NULL, 10) : 2;
	const struct hwt_durable_options options = {
	    .servers = server.servers,
	    .flags = HWT_DURABLE_CREATE,
	    .shards = 4,
	    .timeout_ns = HWT_SEC(60),
	    .skew_ns = HWT_NEVER,
	};

	server_start(&server, NULL);
	need(hwt_durable_open(&durable, &options) == 0, "open");
	run(seconds);
	settle();
	need(hwt_durable_close(durable) == 0, "close");
	server_stop(&server);
	return 0;
}
