/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What main.py measures, on one queue:
 *
 *   add SERVER COUNT SECONDS BATCH THREADS
 *           adds tasks of the next hours, at most COUNT, for SECONDS; no
 *           other phase has their ids
 *   life SERVER SECONDS
 *           adds what is due at once, while 4 threads execute it
 *   late SERVER RATE SECONDS
 *           adds RATE a second, due in 1 to 3 s, while 4 threads execute them
 *   catchup SERVER COUNT SECONDS
 *           adds, in at most SECONDS, COUNT tasks of which nobody takes care
 *           until all are due, and then executes them
 *   crash SERVER
 *           adds until standard input ends, while the server may be killed and
 *           started; what gets no answer is asked again. Then executes all
 *   feed SERVER RATE SECONDS
 *           adds as late does, and executes nothing
 *   work SERVER LOG
 *           executes until it is killed; each execution is a line in the file
 *           LOG, the number of the task, before it is told to the server
 *
 * It prints one object of JSON: what was acknowledged in how many seconds of
 * which clock, and what has become of it; work prints nothing.
 */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "modules/durable/perf/queue.h"

enum {
	TASKS_MAX = 1 << 22,
	LATE_MAX = 1 << 16, /* ms */
	WORKERS = 4,
	AHEAD_MAX = 2048, /* tasks of life that are not executed yet */
	QUIET_MS = 3000, /* without an execution: nothing is left */
	LIMIT_MS = 30000
};

static _Atomic(uint8_t) acked[TASKS_MAX], executions[TASKS_MAX];
static _Atomic(uint32_t) late_ms[LATE_MAX];
static int executions_log = -1;
static atomic_uint_fast64_t numbers, acked_count, executed_count,
    distinct_count, early_count, refused_count;

struct load {
	uint64_t count_max;
	atomic_uint_fast64_t until_ms;
	size_t batch;
	uint64_t first; /* number */
	/* Each task is due so many ms after it is added, and at most the spread
	 * later. */
	uint64_t delay_ms, spread_ms;
};

static double
clock_seconds(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void
task_executed(const char *payload)
{
	uint64_t number, due, now = now_ms(), late;

	if (sscanf(payload, "%" SCNu64 " %" SCNu64, &number, &due) != 2 ||
	    number >= TASKS_MAX)
		FAIL("not a payload of ours: %.64s", payload);
	/* One write, so that those of two threads do not mix. */
	if (executions_log >= 0 &&
	    dprintf(executions_log, "%" PRIu64 "\n", number) < 0)
		FAIL("the log cannot be written");
	if (now < due)
		atomic_fetch_add(&early_count, 1);
	late = now < due ? 0 : now - due;
	atomic_fetch_add(&late_ms[late < LATE_MAX ? late : LATE_MAX - 1], 1);
	if (atomic_fetch_add(&executions[number], 1) == 0)
		atomic_fetch_add(&distinct_count, 1);
	atomic_fetch_add(&executed_count, 1);
}

static void
task_fill(struct task *task, const struct load *load)
{
	uint64_t units = load->spread_ms / queue_unit_ms;
	int length;

	task->number = atomic_fetch_add(&numbers, 1);
	if (task->number >= TASKS_MAX)
		FAIL("too many tasks");
	/* Multiples of a large prime spread evenly, and alike in each run. */
	task->due_ms = now_ms() + load->delay_ms +
	    task->number * 2654435761u % (units + 1) * queue_unit_ms;
	task->number += load->first;
	length = snprintf(task->payload, sizeof(task->payload),
	    "%" PRIu64 " %" PRIu64 " ", task->number, task->due_ms);
	memset(task->payload + length, '.', (size_t)(PAYLOAD - length));
	task->payload[PAYLOAD] = 0;
}

static void
add(struct producer *producer, const struct load *load, size_t count)
{
	struct task tasks[BATCH_MAX];
	size_t i;

	assert(count > 0 && count <= BATCH_MAX);
	for (i = 0; i < count; i++)
		task_fill(&tasks[i], load);
	while (!producer_add(producer, count, tasks)) {
		atomic_fetch_add(&refused_count, 1);
		(void)usleep(5000);
	}
	for (i = 0; i < count; i++)
		atomic_store(&acked[tasks[i].number - load->first], 1);
	atomic_fetch_add(&acked_count, count);
}

static void *
produce(void *argument)
{
	const struct load *load = argument;
	struct producer *producer = producer_open();

	while (now_ms() < atomic_load(&load->until_ms) &&
	    atomic_load(&numbers) < load->count_max)
		add(producer, load, load->batch);
	producer_close(producer);
	return NULL;
}

static void
produce_with(struct load *load, unsigned threads)
{
	pthread_t thread[64];
	unsigned i;

	for (i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, produce, load) != 0)
			FAIL("no thread");
	for (i = 0; i < threads; i++)
		(void)pthread_join(thread[i], NULL);
}

/* Until all that was acknowledged is executed, if that is enough, or nothing
 * more comes. Returns when the last was, by the monotonic clock. */
static double
wait_executed(bool enough)
{
	uint64_t began = now_ms(), moved = began, before = 0, now_executed;
	double last = clock_seconds(CLOCK_MONOTONIC);

	while (now_ms() < began + LIMIT_MS && now_ms() < moved + QUIET_MS) {
		now_executed = atomic_load(&executed_count);
		if (now_executed != before) {
			before = now_executed;
			moved = now_ms();
			last = clock_seconds(CLOCK_MONOTONIC);
		}
		if (enough &&
		    atomic_load(&distinct_count) >= atomic_load(&acked_count))
			break;
		(void)usleep(500);
	}
	return last;
}

static void
life(uint64_t milliseconds)
{
	struct load load = {.until_ms = now_ms() + milliseconds};
	struct producer *producer = producer_open();

	work_start(WORKERS);
	while (now_ms() < load.until_ms)
		if (atomic_load(&numbers) - atomic_load(&executed_count) >
		    AHEAD_MAX)
			(void)usleep(200);
		else
			add(producer, &load, 64);
	producer_close(producer);
}

/* A batch every 10 ms, while it can keep up. */
static void
pace(uint64_t rate, uint64_t milliseconds)
{
	struct load load = {.delay_ms = 1000, .spread_ms = 2000};
	struct producer *producer = producer_open();
	uint64_t began = now_ms(), spent, wanted, sent = 0;

	while ((spent = now_ms() - began) < milliseconds) {
		wanted = rate * (spent / 10) / 100 - sent;
		if (wanted == 0) {
			(void)usleep(1000);
			continue;
		}
		wanted = wanted < BATCH_MAX ? wanted : BATCH_MAX;
		add(producer, &load, (size_t)wanted);
		sent += wanted;
	}
	producer_close(producer);
}

static unsigned
late_at(double share)
{
	uint64_t count = atomic_load(&executed_count), sum = 0;
	unsigned ms;

	for (ms = 0; ms < LATE_MAX - 1; ms++) {
		sum += atomic_load(&late_ms[ms]);
		if (sum > 0 && (double)sum >= share * (double)count)
			break;
	}
	return ms;
}

static void
print(double seconds, double cpu)
{
	uint64_t lost = 0, doubled = 0, unasked = 0, i;
	unsigned times;

	for (i = 0; i < atomic_load(&numbers); i++) {
		times = atomic_load(&executions[i]);
		lost += atomic_load(&acked[i]) != 0 && times == 0;
		doubled += times > 1;
		unasked += atomic_load(&acked[i]) == 0 && times > 0;
	}
	(void)printf("{\"acknowledged\": %" PRIuFAST64 ", \"seconds\": %.6f, "
		     "\"cpu\": %.6f, \"executed\": %" PRIuFAST64
		     ", \"distinct\": %" PRIuFAST64 ", \"lost\": %" PRIu64
		     ", \"doubled\": %" PRIu64 ", \"unasked\": %" PRIu64
		     ", \"early\": %" PRIuFAST64
		     ", \"unanswered\": %" PRIuFAST64 ", \"p50\": %u, "
		     "\"p99\": %u, \"max\": %u}\n",
	    atomic_load(&acked_count), seconds, cpu,
	    atomic_load(&executed_count), atomic_load(&distinct_count), lost,
	    doubled, unasked, atomic_load(&early_count),
	    atomic_load(&refused_count), late_at(.5), late_at(.99), late_at(1));
}

static void
catch_up(uint64_t count, uint64_t seconds)
{
	struct load load = {.count_max = count,
	    .until_ms = now_ms() + seconds * 1000,
	    .batch = BATCH_MAX,
	    .delay_ms = 1000};

	produce_with(&load, 1);
	(void)usleep(1100000);
}

static void
crash(void)
{
	struct load load = {.count_max = TASKS_MAX,
	    .until_ms = UINT64_MAX,
	    .batch = 16,
	    .delay_ms = 1000};
	pthread_t producing;

	if (pthread_create(&producing, NULL, produce, &load) != 0)
		FAIL("no thread");
	while (getchar() != EOF)
		;
	atomic_store(&load.until_ms, 0);
	(void)pthread_join(producing, NULL);
	(void)usleep(1100000);
}

static void
add_ahead(const uint64_t *given)
{
	struct load load = {.count_max = given[0],
	    .until_ms = now_ms() + given[1] * 1000,
	    .batch = (size_t)given[2],
	    .first = TASKS_MAX,
	    .delay_ms = 3600000,
	    .spread_ms = 3600000};

	produce_with(&load, (unsigned)given[3]);
}

/* The time that is the phase's own, in seconds. */
static double
phase(const char *name, const uint64_t *given)
{
	double began = clock_seconds(CLOCK_MONOTONIC), ended;

	if (strcmp(name, "add") == 0) {
		add_ahead(given);
		return clock_seconds(CLOCK_MONOTONIC) - began;
	}
	if (strcmp(name, "life") == 0) {
		life(given[0] * 1000);
	} else if (strcmp(name, "feed") == 0) {
		pace(given[0], given[1] * 1000);
		return (double)given[1];
	} else if (strcmp(name, "late") == 0) {
		work_start(WORKERS);
		pace(given[0], given[1] * 1000);
	} else {
		if (strcmp(name, "catchup") == 0)
			catch_up(given[0], given[1]);
		else
			crash();
		began = clock_seconds(CLOCK_MONOTONIC);
		work_start(WORKERS);
	}
	ended = wait_executed(strcmp(name, "crash") != 0);
	work_stop();
	return strcmp(name, "late") == 0 ? (double)given[1] : ended - began;
}

_Noreturn static void
work_on(const char *path)
{
	executions_log =
	    open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (executions_log < 0)
		FAIL("%s cannot be opened", path);
	work_start(WORKERS);
	for (;;)
		(void)pause();
}

int
main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int arguments;
	} phases[] = {{"add", 4}, {"life", 1}, {"late", 2}, {"catchup", 2},
	    {"crash", 0}, {"feed", 2}, {"work", 1}};
	uint64_t given[4] = {0};
	double seconds, cpu;
	size_t i;
	int j;

	for (i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
		if (argc == 3 + phases[i].arguments &&
		    strcmp(argv[1], phases[i].name) == 0)
			break;
	if (i == sizeof(phases) / sizeof(phases[0]))
		FAIL("usage: see the top of client.c");
	for (j = 3; j < argc; j++)
		given[j - 3] = strtoull(argv[j], NULL, 10);
	if (strcmp(argv[1], "add") == 0 &&
	    (given[2] < 1 || given[2] > BATCH_MAX || given[3] > 64))
		FAIL("batch: 1 to %d, threads: at most 64", BATCH_MAX);
	queue_open(argv[2]);
	if (strcmp(argv[1], "work") == 0)
		work_on(argv[3]);
	cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
	seconds = phase(argv[1], given);
	cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	queue_close();
	print(seconds, cpu);
	return 0;
}
