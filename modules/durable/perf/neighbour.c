/* SPDX-License-Identifier: Apache-2.0 */
/*
 * neighbour HOST:PORT COUNT SECONDS: COUNT tasks of the queue "noisy" are due
 * at the same time, so many seconds from now, by which they must have been
 * added. How late are those of "quiet", a hundred a second, from 5 s before
 * that time to 20 s after it? Each queue has a worker of one thread; both, and
 * the scheduler, are in this process. Prints JSON; exit status 1: a quiet task
 * was early, or was not executed.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "modules/durable/hwt_durable.h"
#include "modules/durable/perf/queue.h"

enum {
	BEFORE_MS = 5000,
	AFTER_MS = 20000,
	APART_MS = 10,
	QUIET = (BEFORE_MS + AFTER_MS) / APART_MS,
	LIMIT_MS = 120000
};

static struct hwt_durable *durable;
static uint64_t flood_ms; /* Unix time */
static uint64_t late_ms[QUIET]; /* of each quiet task, plus 1; 0: not yet */
static atomic_uint quiet_count;
static atomic_uint_fast64_t noisy_count;
static atomic_bool early;

static uint64_t
quiet_due_ms(unsigned number)
{
	return flood_ms - BEFORE_MS + number * APART_MS;
}

static int
quiet_execute(void *ctx, const struct hwt_durable_delivery *task)
{
	unsigned number = (unsigned)strtoul(task->id + 1, NULL, 10);
	uint64_t now = now_ms(), due = quiet_due_ms(number);

	(void)ctx;
	if (now < due)
		atomic_store(&early, true);
	else if (late_ms[number] == 0) {
		late_ms[number] = now - due + 1;
		(void)atomic_fetch_add(&quiet_count, 1);
	}
	return 0;
}

static int
noisy_execute(void *ctx, const struct hwt_durable_delivery *task)
{
	(void)ctx;
	(void)task;
	(void)atomic_fetch_add(&noisy_count, 1);
	return 0;
}

/* Of the noisy ones, all at the same time; of the quiet ones, each at its. */
static void
add(bool noisy, uint64_t count)
{
	struct hwt_durable_task tasks[BATCH_MAX];
	char id[BATCH_MAX][24];
	uint64_t first;
	size_t i, size;

	for (first = 0; first < count; first += size) {
		size = count - first < BATCH_MAX ? count - first : BATCH_MAX;
		for (i = 0; i < size; i++) {
			(void)snprintf(id[i], sizeof(id[i]), "%c%" PRIu64,
			    noisy ? 'n' : 'q', first + i);
			tasks[i] = (struct hwt_durable_task){.id = id[i],
			    .id_length = strlen(id[i]),
			    .queue = noisy ? "noisy" : "quiet",
			    .due_unix_ns = HWT_MS(noisy
				    ? flood_ms
				    : quiet_due_ms((unsigned)(first + i))),
			    .flags = HWT_DURABLE_AT};
		}
		if (hwt_durable_add(durable, size, tasks, NULL) != 0)
			FAIL("a batch was not added");
	}
}

static int
compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Of the quiet tasks from first on, which it sorts. */
static void
print(const char *name, unsigned first, unsigned count)
{
	uint64_t *late = &late_ms[first];

	qsort(late, count, sizeof(*late), compare);
	(void)printf("\"%s\": {\"p50\": %" PRIu64 ", \"p99\": %" PRIu64
		     ", \"max\": %" PRIu64 "}, ",
	    name, late[count / 2] - 1, late[count * 99 / 100] - 1,
	    late[count - 1] - 1);
}

static struct hwt_durable_worker *
work(const char *queue, hwt_durable_callback *callback)
{
	struct hwt_durable_worker *worker;
	const struct hwt_durable_worker_options options = {
	    .queue = queue, .callback = callback};

	if (hwt_durable_worker_start(&worker, durable, &options) != 0)
		FAIL("no worker");
	return worker;
}

int
main(int argc, char **argv)
{
	struct hwt_durable_options options = {
	    .space = "neighbour", .flags = HWT_DURABLE_CREATE};
	struct hwt_durable_worker *quiet, *noisy;
	struct hwt_durable_scheduler *scheduler;
	uint64_t count, executed;

	if (argc != 4)
		FAIL("usage: neighbour HOST:PORT COUNT SECONDS");
	options.servers = argv[1];
	count = strtoull(argv[2], NULL, 10);
	flood_ms = now_ms() + strtoull(argv[3], NULL, 10) * 1000;
	if (hwt_durable_open(&durable, &options) != 0)
		FAIL("open");
	add(true, count);
	add(false, QUIET);
	if (now_ms() > flood_ms - BEFORE_MS)
		FAIL("not added in time: give it more seconds");
	quiet = work("quiet", quiet_execute);
	noisy = work("noisy", noisy_execute);
	if (hwt_durable_scheduler_start(&scheduler, durable, NULL) != 0)
		FAIL("no scheduler");
	while (atomic_load(&quiet_count) < QUIET &&
	    now_ms() < flood_ms + AFTER_MS + LIMIT_MS)
		(void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	executed = atomic_load(&noisy_count);
	if (hwt_durable_worker_stop(quiet, HWT_SEC(30)) != 0 ||
	    hwt_durable_worker_stop(noisy, HWT_SEC(30)) != 0 ||
	    hwt_durable_scheduler_stop(scheduler) != 0 ||
	    hwt_durable_close(durable) != 0)
		FAIL("it does not stop");
	if (atomic_load(&quiet_count) < QUIET || atomic_load(&early))
		FAIL("a quiet task was early, or not executed");
	(void)putchar('{');
	print("before", 0, BEFORE_MS / APART_MS);
	print("after", BEFORE_MS / APART_MS, AFTER_MS / APART_MS);
	(void)printf("\"noisy\": %" PRIu64 "}\n", executed);
	return 0;
}
