/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_cancel_wait against running tasks, one-shot and periodic, inline, in a
 * pool and in a mailbox, from several threads and from a task.
 *
 * Each job has an arg on the heap, which its task reads all the time. All
 * waiters cancel all jobs. Who gets 0 owns arg: it poisons and frees it at
 * once, so that a task that runs on is seen by its own check, by
 * AddressSanitizer and by ThreadSanitizer. There must be at most one owner for
 * each job, and exactly one for a periodic job, unless a plain hwt_cancel took
 * part. Whatever the answer was, the task is not running then, never starts
 * again, and all that it wrote is seen.
 */
#include "stress.h"

enum {
	ROUNDS = 800,
	JOBS = 48,
	WAITERS_MAX = 15,
	/* The threads, and a task that does the same. */
	PARTIES_MAX = WAITERS_MAX + 1
};

#define ALIVE UINT64_C(0xa11fea11fea11fe0)
#define POISON UINT64_C(0xdeaddeaddeaddead)

struct arg {
	volatile uint64_t alive;
	struct job *job;
	uint64_t spin;
};

struct job {
	struct arg *arg;
	hwt_timeout timeout;
	bool periodic;
	/* Waiters try hwt_cancel on it before. */
	bool cancel_first;
	/* Relaxed wherever a task and a waiter meet, so that they give no order
	 * to what the library must order. */
	atomic_bool running;
	atomic_uint runs, owners;
	/* A waiter is through with it. */
	atomic_bool gone;
	/* As runs, but plain: for the order of memory. */
	unsigned plain_runs;
};

static struct {
	struct hwt *timer;
	struct job jobs[JOBS];
	atomic_uint waiting;
} round_;

static struct hwt_pool *pool;
static struct loop loop;
static atomic_uint_fast64_t owners_total, runs_total, waits_total;

/* A call for its own timeout must not wait for itself. When another call has
 * ended a periodic one, it may be refused as ended. */
static void
cancel_itself(struct job *job, hwt_timeout timeout)
{
	int error = hwt_cancel_wait(round_.timer, timeout);

	stress_check(error == -EDEADLK || (job->periodic && error == -ENOENT),
	    "hwt_cancel_wait from its own task: %d", error);
}

static void
task(hwt_timeout timeout, void *ptr)
{
	struct arg *arg = ptr;
	struct job *job = arg->job;
	uint64_t spin = arg->spin;

	stress_check(!atomic_load_explicit(&job->gone, memory_order_relaxed),
	    "a task started after the wait");
	atomic_fetch_add_explicit(&job->runs, 1, memory_order_relaxed);
	atomic_store_explicit(&job->running, true, memory_order_relaxed);
	if (timeout.id % 4 == 0)
		cancel_itself(job, timeout);
	while (spin--)
		stress_must(arg->alive == ALIVE, "arg is gone, its task runs");
	job->plain_runs++;
	atomic_store_explicit(&job->running, false, memory_order_relaxed);
}

/* After a call that says that the task does not run. */
static void
job_check_ended(struct job *job, int error)
{
	unsigned runs = atomic_load_explicit(&job->runs, memory_order_relaxed);

	stress_check(!atomic_load_explicit(&job->running, memory_order_relaxed),
	    "its task runs after error %d", error);
	stress_check(job->plain_runs == runs,
	    "%u runs begun and %u seen after error %d", runs, job->plain_runs,
	    error);
	atomic_store_explicit(&job->gone, true, memory_order_relaxed);
}

static void
job_own(struct job *job)
{
	struct arg *arg = job->arg;

	atomic_fetch_add(&job->owners, 1);
	arg->alive = POISON;
	free(arg);
}

static void
job_end(struct job *job)
{
	int error;

	if (job->cancel_first) {
		error = hwt_cancel(round_.timer, job->timeout);
		if (!error)
			job_own(job);
		stress_check(
		    !error || error == -ENOENT || error == -EINPROGRESS,
		    "hwt_cancel: %d", error);
		if (error == -ENOENT)
			job_check_ended(job, error);
	}
	if (atomic_load_explicit(&job->running, memory_order_relaxed))
		atomic_fetch_add(&waits_total, 1);
	error = hwt_cancel_wait(round_.timer, job->timeout);
	stress_check(!error || error == -ENOENT, "hwt_cancel_wait: %d", error);
	job_check_ended(job, error);
	if (!error)
		job_own(job);
}

static void *
waiter_thread(void *arg)
{
	uint64_t random = random_seed((uintptr_t)arg);
	unsigned i;

	for (i = 0; i < JOBS; i++) {
		if (!random_below(&random, 2))
			stress_sleep_ns(random_below(&random, 200000));
		job_end(&round_.jobs[i]);
	}
	atomic_fetch_sub(&round_.waiting, 1);
	return NULL;
}

/* Runs in the worker: what it waits for is in the pool or in the mailbox. */
static void
waiter_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	waiter_thread(arg);
}

static void
job_schedule(struct job *job, uint64_t *random)
{
	const struct hwt_executor *executors[] = {
	    NULL, hwt_pool_executor(pool), hwt_mailbox_executor(loop.mailbox)};
	struct hwt_spec spec = {.task = task};
	int error;

	job->arg = malloc(sizeof(*job->arg));
	stress_must(job->arg, "malloc");
	job->arg->alive = ALIVE;
	job->arg->job = job;
	job->arg->spin = random_below(random, 400000);
	job->periodic = random_below(random, 2);
	job->cancel_first = !random_below(random, 4);
	spec.arg = job->arg;
	spec.delay_ns = random_below(random, HWT_MS(1));
	spec.period_ns = job->periodic ? HWT_US(50) : 0;
	spec.executor = executors[random_below(random, 3)];
	error = hwt_new_timeouts(round_.timer, 1, &spec, &job->timeout);
	stress_must(!error, "hwt_new_timeouts: %d", error);
}

static void
job_verify(struct job *job)
{
	unsigned owners = atomic_load(&job->owners);

	stress_check(owners <= 1, "%u own the arg of one job", owners);
	if (job->periodic && !job->cancel_first)
		stress_check(owners == 1, "a periodic job has no owner");
	if (!job->periodic)
		stress_check(owners + job->runs == 1,
		    "a one-shot job has %u owners and ran %u times", owners,
		    job->runs);
	if (!owners)
		free(job->arg);
	owners_total += owners;
	runs_total += job->runs;
}

/* Three, and in every eighth round more, up to all. */
static unsigned
some_waiters(uint64_t number)
{
	return number % 8 ? 3 : 1 + (unsigned)(number / 8 % WAITERS_MAX);
}

static void
round_run(uint64_t *random, uint64_t number)
{
	struct hwt *timer = round_.timer;
	pthread_t threads[WAITERS_MAX];
	unsigned waiters = some_waiters(number);
	uintptr_t salt = number * PARTIES_MAX;
	unsigned i;
	int error;

	memset(&round_, 0, sizeof(round_));
	round_.timer = timer;
	round_.waiting = waiters + 1;
	for (i = 0; i < JOBS; i++)
		job_schedule(&round_.jobs[i], random);
	for (i = 0; i < waiters; i++)
		threads[i] = stress_thread(waiter_thread, (void *)(salt + i));
	error = hwt_new_timeout(timer, NULL, waiter_task,
	    (void *)(salt + waiters), random_below(random, HWT_MS(1)));
	stress_must(!error, "hwt_new_timeout: %d", error);
	stress_phase("waiters run", number);
	for (i = 0; i < waiters; i++)
		stress_join(threads[i]);
	while (atomic_load(&round_.waiting))
		stress_sleep_ns(50000);
	for (i = 0; i < JOBS; i++)
		job_verify(&round_.jobs[i]);
}

int
main(int argc, char **argv)
{
	struct hwt_unprocessed unprocessed;
	uint64_t random, rounds, i;

	stress_begin("cancel_wait", argc, argv);
	random = random_seed(0);
	rounds = stress_scaled(ROUNDS);
	round_.timer = timer_create_ns(HWT_US(100), 64, 0);
	stress_must(!hwt_pool_create(&pool, 2, 0), "hwt_pool_create");
	loop_start(&loop, 0);
	for (i = 0; i < rounds; i++)
		round_run(&random, i);
	stress_check(!hwt_stop(round_.timer, &unprocessed), "hwt_stop");
	stress_check(!unprocessed.count, "%" PRIu64 " left unprocessed",
	    unprocessed.count);
	stress_check(!hwt_pool_destroy(pool), "hwt_pool_destroy");
	loop_stop(&loop);
	stress_check(!hwt_destroy(round_.timer), "hwt_destroy");
	stress_check(waits_total, "nobody had to wait");
	return stress_end("%" PRIu64 " jobs, %" PRIu64 " runs, %" PRIu64
			  " waits for a running task, %" PRIu64
			  " calls got the arg",
	    rounds * JOBS, (uint64_t)runs_total, (uint64_t)waits_total,
	    (uint64_t)owners_total);
}
