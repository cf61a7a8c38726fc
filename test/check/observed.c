/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What test/check/observed looks at from outside.
 *
 *   observed pages   two timers as a page for Prometheus
 *   observed json    a timer as JSON
 *   observed alive   leaves things alive, and has a slow task
 *   observed debug   says on stdout what gdb is to find, and calls look
 */
#define _GNU_SOURCE
#include <hwt.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START UINT64_C(5000000)
#define TICK HWT_MS(1)

void look(struct hwt *manual, struct hwt *asleep);
void make_timer(struct hwt **timer, const char *name);
void on_timeout(hwt_timeout timeout, void *arg);
void another_task(hwt_timeout timeout, void *arg);

static uint64_t now_ns = START;
static _Atomic pid_t thread; /* that has run on_timeout */

static void
must(int result)
{
	if (result != 0) {
		fprintf(stderr, "observed: %d\n", result);
		exit(1);
	}
}

static uint64_t
read_clock(void *ctx)
{
	(void)ctx;
	return now_ns;
}

void
on_timeout(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	now_ns += 2500;
	thread = gettid();
}

void
another_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

void
make_timer(struct hwt **timer, const char *name)
{
	const struct hwt_clock clock = {.now_ns = read_clock};
	const struct hwt_options options = {.tick_ns = TICK,
	    .ticks_per_wheel = 8,
	    .flags = HWT_MANUAL,
	    .slow_task_ns = 2000,
	    .clock = &clock,
	    .thread_name = name};

	must(hwt_create(timer, &options));
}

/* Runs a task that is late and slow. Its deadline is a boundary. */
static void
run_one(struct hwt *timer)
{
	now_ns = START + ((now_ns - START) / TICK + 1) * TICK;
	must(hwt_new_timeout(timer, NULL, on_timeout, NULL, TICK));
	now_ns += TICK + 3000;
	must(hwt_advance(timer, NULL));
}

static void
write_pages(bool json)
{
	struct hwt *timer, *second;

	make_timer(&timer, "a \"b\"\\\n\xc3\xa9\xff\t");
	make_timer(&second, NULL);
	run_one(timer);
	run_one(timer);
	run_one(second);
	if (json) {
		must(hwt_stats_write(timer, stdout, HWT_JSON));
		return;
	}
	must(hwt_stats_write(timer, stdout, HWT_PROMETHEUS));
	must(hwt_stats_write(second, stdout, HWT_PROMETHEUS_SAMPLES));
}

static void
leave_alive(void)
{
	struct hwt_mailbox *mailbox;
	struct hwt_pool *pool;
	struct hwt *timer;

	make_timer(&timer, NULL);
	run_one(timer);
	must(hwt_pool_create(&pool, 1, 0));
	must(hwt_mailbox_create(&mailbox));
}

/* gdb stops here. */
__attribute__((noinline)) void
look(struct hwt *manual, struct hwt *asleep)
{
	__asm__ volatile("" : : "r"(manual), "r"(asleep) : "memory");
}

static void
say_manual(struct hwt *timer)
{
	struct hwt_spec spec = {.task = another_task,
	    .arg = (void *)0x22,
	    .delay_ns = 20 * TICK,
	    .period_ns = 777};
	hwt_timeout near, far, never, queued, gone;
	uint64_t wait_ns;

	run_one(timer);
	must(hwt_new_timeouts(timer, 1, &spec, &far));
	must(hwt_new_timeout(timer, &near, on_timeout, (void *)0x11, 3 * TICK));
	must(hwt_new_timeout(timer, &never, on_timeout, NULL, HWT_NEVER));
	must(hwt_new_timeout(timer, &gone, on_timeout, NULL, TICK));
	must(hwt_cancel(timer, gone));
	must(hwt_next_wakeup(timer, &wait_ns));
	must(hwt_new_timeout(timer, &queued, on_timeout, NULL, 15 * TICK));

	/* The clock stands at tick 2 and 5,500 ns. */
	printf("timer \"manual one\": manual, tick 1000000 ns, 8 buckets\n"
	       "next tick: 3 at %" PRIu64 " ns\n"
	       "clock when last read: %" PRIu64 " ns\n"
	       "pending: 4\nin executors: 0\n"
	       "earliest: %#" PRIx64 ", deadline %" PRIu64 " ns\n"
	       "asleep: until %" PRIu64 " ns\n",
	    START + 3 * TICK, now_ns, near.id, now_ns + 3 * TICK,
	    START + 6 * TICK);
	printf("%#" PRIx64 " pending, deadline %" PRIu64
	       " ns, bucket 6, round 0, tick 6, task on_timeout, arg 0x11\n",
	    near.id, now_ns + 3 * TICK);
	printf("%#" PRIx64 " pending, deadline %" PRIu64
	       " ns, in the queue, task on_timeout, arg 0x0\n",
	    queued.id, now_ns + 15 * TICK);
	printf("%#" PRIx64 " pending, deadline %" PRIu64
	       " ns, period 777 ns, bucket 7, round 2, tick 23, "
	       "task another_task, arg 0x22\n",
	    far.id, now_ns + 20 * TICK);
	printf("%#" PRIx64 " pending, never due, task on_timeout, arg 0x0\n",
	    never.id);
}

/* Whether the worker that has run on_timeout has gone to sleep. */
static bool
worker_sleeps(void)
{
	char path[64], state = '?';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	if (fscanf(file, "%*d (sleeping one) %c", &state) != 1)
		state = '?';
	(void)fclose(file);
	return state == 'S';
}

/* The worker has nothing to do after its task. */
static struct hwt *
say_asleep(void)
{
	struct hwt *timer;

	must(hwt_create(&timer,
	    &(struct hwt_options){
		.tick_ns = TICK, .thread_name = "sleeping one"}));
	must(hwt_new_timeout(timer, NULL, on_timeout, NULL, TICK));
	while (!worker_sleeps())
		usleep(1000);
	printf("timer \"sleeping one\": running, tick 1000000 ns, "
	       "512 buckets\n"
	       "pending: 0\nin executors: 0\nearliest: none\n"
	       "asleep: until it is woken\n");
	return timer;
}

int
main(int argc, char **argv)
{
	struct hwt *timer, *asleep;

	if (argc != 2)
		return 2;
	if (strcmp(argv[1], "pages") == 0 || strcmp(argv[1], "json") == 0) {
		write_pages(strcmp(argv[1], "json") == 0);
	} else if (strcmp(argv[1], "alive") == 0) {
		leave_alive();
	} else {
		make_timer(&timer, "manual one");
		say_manual(timer);
		asleep = say_asleep();
		(void)fflush(stdout);
		look(timer, asleep);
	}
	return 0;
}
