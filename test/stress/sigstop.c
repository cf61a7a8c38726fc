/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that is stopped for seconds, several times: what comes due
 * meanwhile runs when it goes on.
 *
 * The program runs itself as another process, which schedules timeouts all
 * over the coming seconds, some of them periodic, and moves a few. It is
 * stopped (SIGSTOP) at random moments, once for long and a few times briefly,
 * and continued. In the end it judges itself:
 *
 *   each started once, and none early;
 *   tick order: what was due a tick or more before another started before it,
 *   on the same executor; also of those that came due in one stop;
 *   coalescing: between the end of a periodic one's run and the start of its
 *   next lies a point of its grid, so that missed runs are not made up for;
 *   arithmetic: the ticks that were begun are not more than there were
 *   deadlines, and wake-ups not more than ticks, calls and signals;
 *   rest: with nothing due, the worker sleeps, and uses no processor.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "stress.h"

enum {
	ONCE = 600,
	PERIODIC = 6,
	RUNS_MAX = 20000,
	MOVED_ONE_IN = 8,
	SPREAD_MS = 2600,
	/* The long stop, and the brief ones. */
	LONG_MS = 1500,
	BRIEF_MS = 100,
	BRIEF = 4,
	REST_MS = 300
};

static const uint64_t tick_ns = HWT_US(500);
/* How far a deadline may lie behind the clock at the call's end. */
static const uint64_t ahead_ns = HWT_US(5);

enum kind {
	INLINE,
	POOL,
	MAILBOX,
	KINDS
};

/* A deadline lies between the two. */
struct once {
	enum kind kind;
	uint64_t due_min_ns, due_max_ns;
	uint64_t started_ns;
	/* Among those of its executor, which starts one at a time. */
	uint64_t order;
	atomic_uint runs;
	hwt_timeout timeout;
};

struct run {
	uint64_t started_ns, ended_ns;
};

/* The grid's first point lies between the two. */
struct periodic {
	uint64_t period_ns;
	uint64_t first_min_ns, first_max_ns;
	hwt_timeout timeout;
	atomic_uint count;
	struct run runs[RUNS_MAX];
};

static struct hwt *timer;
static struct once once[ONCE];
static struct periodic periodic[PERIODIC];
static atomic_uint_fast64_t orders[KINDS];
static atomic_uint started;
static uint64_t calls;

static void
once_task(hwt_timeout timeout, void *arg)
{
	struct once *self = arg;

	(void)timeout;
	self->started_ns = stress_now_ns();
	self->order = atomic_fetch_add(&orders[self->kind], 1);
	atomic_fetch_add(&self->runs, 1);
	atomic_fetch_add(&started, 1);
}

static void
periodic_task(hwt_timeout timeout, void *arg)
{
	struct periodic *self = arg;
	uint64_t now_ns = stress_now_ns();
	unsigned number = atomic_load(&self->count);

	(void)timeout;
	stress_must(number < RUNS_MAX, "a periodic one runs all the time");
	self->runs[number].started_ns = now_ns;
	self->runs[number].ended_ns = stress_now_ns();
	atomic_store(&self->count, number + 1);
}

static void
schedule_once(const struct hwt_executor *const executors[], uint64_t *random)
{
	uint64_t delay_ns;
	unsigned i;

	for (i = 0; i < ONCE; i++) {
		delay_ns = random_below(random, HWT_MS(SPREAD_MS));
		once[i].kind = (enum kind)random_below(random, KINDS);
		once[i].due_min_ns = stress_now_ns() + delay_ns;
		stress_must(
		    !hwt_new_timeout_on(timer, executors[once[i].kind],
			&once[i].timeout, once_task, &once[i], delay_ns),
		    "hwt_new_timeout_on");
		once[i].due_max_ns = stress_now_ns() + delay_ns + ahead_ns;
		calls++;
	}
}

/* Those that are far enough away that they cannot start meanwhile, unless the
 * machine stands still: then they are left out. */
static void
move_some(uint64_t *random)
{
	uint64_t delay_ns, min_ns;
	unsigned i;

	for (i = 0; i < ONCE; i += MOVED_ONE_IN) {
		delay_ns =
		    HWT_MS(1000) + random_below(random, HWT_MS(SPREAD_MS));
		min_ns = stress_now_ns() + delay_ns;
		calls++;
		if (once[i].due_min_ns < stress_now_ns() + HWT_MS(500) ||
		    hwt_reschedule(timer, once[i].timeout, delay_ns))
			continue;
		once[i].due_min_ns = min_ns;
		once[i].due_max_ns = stress_now_ns() + delay_ns + ahead_ns;
	}
}

static void
schedule_periodic(
    const struct hwt_executor *const executors[], uint64_t *random)
{
	struct hwt_spec spec = {.task = periodic_task};
	unsigned i;

	for (i = 0; i < PERIODIC; i++) {
		spec.arg = &periodic[i];
		spec.delay_ns = random_below(random, HWT_MS(100));
		spec.period_ns = HWT_MS(2) + random_below(random, HWT_MS(50));
		spec.executor = executors[i % KINDS];
		periodic[i].period_ns = spec.period_ns;
		periodic[i].first_min_ns = stress_now_ns() + spec.delay_ns;
		stress_must(
		    !hwt_new_timeouts(timer, 1, &spec, &periodic[i].timeout),
		    "hwt_new_timeouts");
		periodic[i].first_max_ns =
		    stress_now_ns() + spec.delay_ns + ahead_ns;
		calls++;
	}
}

static void
once_verify(const struct once *self)
{
	stress_check(self->runs == 1, "a timeout ran %u times", self->runs);
	stress_check(self->started_ns >= self->due_min_ns,
	    "started %" PRIu64 " ns early",
	    self->due_min_ns - self->started_ns);
}

static void
order_verify(const struct once *earlier, const struct once *later)
{
	if (earlier->kind != later->kind ||
	    earlier->due_max_ns + tick_ns >= later->due_min_ns)
		return;
	stress_check(earlier->order < later->order,
	    "due %" PRIu64 " us before another, started after it (kind %d)",
	    (later->due_min_ns - earlier->due_max_ns) / 1000,
	    (int)earlier->kind);
}

/* Points of the grid up to a time, counted from a first one. */
static int64_t
grid_points(const struct periodic *self, uint64_t until_ns, uint64_t first_ns)
{
	if (until_ns < first_ns)
		return 0;
	return (int64_t)((until_ns - first_ns) / self->period_ns) + 1;
}

static void
periodic_verify(const struct periodic *self)
{
	unsigned count = atomic_load(&self->count), i;

	stress_check(count, "a periodic one never ran");
	if (count)
		stress_check(
		    self->runs[0].started_ns >= self->first_min_ns, "early");
	for (i = 1; i < count; i++)
		stress_check(grid_points(self, self->runs[i].started_ns,
				 self->first_min_ns) >
			grid_points(self, self->runs[i - 1].ended_ns,
			    self->first_max_ns),
		    "a second run within %" PRIu64
		    " us, of a period of %" PRIu64 " us",
		    (self->runs[i].started_ns - self->runs[i - 1].ended_ns) /
			1000,
		    self->period_ns / 1000);
}

static unsigned
periodic_runs(void)
{
	unsigned total = 0, i;

	for (i = 0; i < PERIODIC; i++)
		total += atomic_load(&periodic[i].count);
	return total;
}

static uint64_t
cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nothing is pending but a timeout of an hour. The first wake-up or two may
 * still put buckets right. */
static void
verify_rest(void)
{
	struct hwt_stats before, after;
	uint64_t cpu_before_ns;
	unsigned i;

	for (i = 0; i < PERIODIC; i++)
		stress_check(!hwt_cancel_wait(timer, periodic[i].timeout),
		    "hwt_cancel_wait");
	calls += PERIODIC + 1;
	stress_must(
	    !hwt_new_timeout(timer, NULL, once_task, &once[0], HWT_SEC(3600)),
	    "hwt_new_timeout");
	stress_sleep_ns(HWT_MS(50));
	before = timer_stats(timer);
	cpu_before_ns = cpu_ns();
	stress_sleep_ns(HWT_MS(REST_MS));
	after = timer_stats(timer);
	stress_check(after.wakeups <= before.wakeups + 2,
	    "%" PRIu64 " wake-ups with nothing due",
	    after.wakeups - before.wakeups);
	stress_check(cpu_ns() - cpu_before_ns < HWT_MS(REST_MS) / 2,
	    "the process is busy with nothing due");
}

/* Each call may wake the worker once, and be the end of a long sleep that makes
 * one more brief; so may each run of a periodic one. */
static void
verify_counts(unsigned stops)
{
	struct hwt_stats stats = timer_stats(timer);
	uint64_t runs = periodic_runs();

	stress_check(stats.started == ONCE + runs,
	    "stats.started %" PRIu64 " for %" PRIu64 " runs", stats.started,
	    ONCE + runs);
	stress_check(stats.ticks <= calls + runs,
	    "%" PRIu64 " ticks for %" PRIu64 " deadlines", stats.ticks,
	    calls + runs);
	stress_check(stats.wakeups <= 2 * (calls + runs) + stats.ticks + stops,
	    "%" PRIu64 " wake-ups for %" PRIu64 " calls and %" PRIu64 " ticks",
	    stats.wakeups, calls + runs, stats.ticks);
}

static void
verify(unsigned stops)
{
	unsigned i, k;

	for (i = 0; i < ONCE; i++) {
		once_verify(&once[i]);
		for (k = 0; k < ONCE; k++)
			order_verify(&once[i], &once[k]);
	}
	for (i = 0; i < PERIODIC; i++)
		periodic_verify(&periodic[i]);
	verify_counts(stops);
}

/* The process that is stopped. Tells on descriptor 1 that it may be, and reads
 * from 0 that it will not be any more, and how often it was. */
static int
victim(uint64_t *random)
{
	const struct hwt_executor *executors[KINDS] = {NULL};
	struct hwt_pool *pool;
	struct loop loop;
	unsigned char stops = 0;

	timer = timer_create_ns(tick_ns, 64, 0);
	stress_must(!hwt_pool_create(&pool, 1, 0), "hwt_pool_create");
	loop_start(&loop, 0);
	executors[POOL] = hwt_pool_executor(pool);
	executors[MAILBOX] = hwt_mailbox_executor(loop.mailbox);
	schedule_once(executors, random);
	schedule_periodic(executors, random);
	move_some(random);
	stress_phase("the victim is stopped now and then", 0);
	stress_must(write(1, "", 1) == 1, "write");
	stress_must(read(0, &stops, 1) == 1, "the stopping process is gone");
	while (atomic_load(&started) < ONCE)
		stress_sleep_ns(HWT_MS(1));
	verify_rest();
	stress_check(!hwt_stop(timer, NULL), "hwt_stop");
	stress_check(!hwt_pool_destroy(pool), "hwt_pool_destroy");
	loop_stop(&loop);
	verify(stops);
	stress_check(!hwt_destroy(timer), "hwt_destroy");
	fprintf(stderr, "sigstop: %u runs of periodic ones\n", periodic_runs());
	return atomic_load(&stress.failures) ? 1 : 0;
}

/* A process of this program, with pipes to its standard input and output. */
static pid_t
victim_start(char *program, int *to, int *from)
{
	char seed[32], scale[] = "100", word[] = "victim";
	char *arguments[] = {program, scale, seed, word, NULL};
	int in[2], out[2];
	pid_t child;

	snprintf(seed, sizeof(seed), "%" PRIu64, stress.seed);
	stress_must(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC), "pipe2");
	child = fork();
	stress_must(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		execv(program, arguments);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	*to = in[1];
	*from = out[0];
	return child;
}

/* Returns when it stands still for that long, and goes on. */
static void
stop_for(pid_t child, uint64_t ns)
{
	int status;

	stress_must(!kill(child, SIGSTOP), "kill: %s", strerror(errno));
	stress_must(
	    waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status),
	    "the victim did not stop, but ended");
	stress_sleep_ns(ns);
	stress_must(!kill(child, SIGCONT), "kill: %s", strerror(errno));
}

static unsigned
stop_at_random(pid_t child, uint64_t *random)
{
	unsigned stops = 0, i;

	for (i = 0; i < BRIEF; i++) {
		stress_sleep_ns(random_below(random, HWT_MS(150)));
		if (i == BRIEF / 2) {
			stop_for(child, HWT_MS(LONG_MS));
			stops++;
		}
		stop_for(child, random_below(random, HWT_MS(BRIEF_MS)));
		stops++;
	}
	return stops;
}

int
main(int argc, char **argv)
{
	bool is_victim = argc > 3 && !strcmp(argv[3], "victim");
	unsigned char stops;
	int to, from, status;
	uint64_t random;
	pid_t child;
	char byte;

	stress_begin("sigstop", argc, argv);
	random = random_seed(is_victim);
	if (is_victim)
		return victim(&random);
	child = victim_start(argv[0], &to, &from);
	stress_must(read(from, &byte, 1) == 1, "the victim did not begin");
	stops = (unsigned char)stop_at_random(child, &random);
	stress_must(write(to, &stops, 1) == 1, "write");
	stress_must(waitpid(child, &status, 0) == child, "waitpid");
	stress_check(
	    !status, "the victim ended with wait status %#x", (unsigned)status);
	return stress_end("stopped %u times, once for %d ms", stops, LONG_MS);
}
