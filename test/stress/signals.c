/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flood of signals, at the process and at each of its threads, whose handlers
 * do not restart what they interrupt.
 *
 *   interval timers   SIGALRM to the process (timer_create) and SIGPROF, by
 *                     the time that is used (setitimer)
 *   a sender          tgkill: SIGUSR1, SIGUSR2 and SIGPROF at each thread that
 *                     there is, the worker, the pool and the loops among them
 *
 * Under it, threads schedule, cancel, cancel and wait for running tasks, start
 * and stop timers with and without a time limit. The worker and the pool's
 * threads block all of these but SIGPROF: no handler of another one may run
 * there, that of SIGPROF must. Nothing may fail, be early, end twice or be
 * lost; and in the end, the flood over, the worker must sleep.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "stress.h"

enum {
	ACTORS = 4,
	ROUNDS = 150,
	TIMEOUTS = 32,
	/* Enough for all threads of this program. */
	TARGETS_MAX = 64,
	REST_MS = 200
};

enum kind {
	INLINE,
	POOL,
	MAILBOX,
	KINDS
};

struct item {
	uint64_t due_ns;
	atomic_uint ends;
	atomic_bool running;
	bool slow;
};

struct actor {
	uint64_t random;
	pthread_t thread;
	struct item items[TIMEOUTS];
};

static struct hwt *timer;
static struct hwt_pool *pool;
static struct loop loop;
static const struct hwt_executor *executors[KINDS];
static atomic_bool quit;
static atomic_uint_fast64_t sent, handled, handled_prof;
static atomic_uint_fast64_t started_total, cancelled_total, listed_total;
/* This thread is the library's: a task said so. */
static _Thread_local atomic_bool is_library;
static atomic_uint strays, prof_in_library;

static void
handle(int signal)
{
	int saved = errno;

	atomic_fetch_add(&handled, 1);
	if (signal == SIGPROF)
		atomic_fetch_add(&handled_prof, 1);
	if (atomic_load(&is_library) && signal == SIGPROF)
		atomic_fetch_add(&prof_in_library, 1);
	if (atomic_load(&is_library) && signal != SIGPROF)
		atomic_fetch_add(&strays, 1);
	errno = saved;
}

static void
handlers_install(void)
{
	static const int signals[] = {SIGALRM, SIGUSR1, SIGUSR2, SIGPROF};
	struct sigaction action = {.sa_handler = handle};
	unsigned i;

	for (i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		stress_must(!sigaction(signals[i], &action, NULL), "sigaction");
}

static timer_t
interval_timers_start(void)
{
	struct sigevent event = {
	    .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	struct itimerspec every = {
	    .it_value.tv_nsec = 1, .it_interval.tv_nsec = 200000};
	struct itimerval prof = {
	    .it_value.tv_usec = 500, .it_interval.tv_usec = 500};
	timer_t alarm;

	stress_must(!timer_create(CLOCK_MONOTONIC, &event, &alarm) &&
		!timer_settime(alarm, 0, &every, NULL) &&
		!setitimer(ITIMER_PROF, &prof, NULL),
	    "interval timers: %s", strerror(errno));
	return alarm;
}

static void
interval_timers_stop(timer_t alarm)
{
	struct itimerval none = {{0}, {0}};

	stress_must(
	    !timer_delete(alarm) && !setitimer(ITIMER_PROF, &none, NULL),
	    "interval timers: %s", strerror(errno));
}

/* The threads of this process, all but this one. */
static unsigned
targets_find(pid_t targets[TARGETS_MAX])
{
	DIR *folder = opendir("/proc/self/task");
	pid_t self = (pid_t)syscall(SYS_gettid);
	struct dirent *entry;
	unsigned count = 0;
	pid_t thread;

	stress_must(folder, "/proc/self/task: %s", strerror(errno));
	while ((entry = readdir(folder)) && count < TARGETS_MAX) {
		thread = (pid_t)strtol(entry->d_name, NULL, 10);
		if (thread > 0 && thread != self)
			targets[count++] = thread;
	}
	closedir(folder);
	return count;
}

/* A thread may be gone since it was found. */
static void *
sender_thread(void *arg)
{
	static const int signals[] = {SIGUSR1, SIGUSR2, SIGPROF};
	pid_t targets[TARGETS_MAX];
	uint64_t random = random_seed(1000);
	unsigned count, i;
	int signal;

	while (!atomic_load(&quit)) {
		count = targets_find(targets);
		for (i = 0; i < 4 * count; i++) {
			signal = signals[random_below(&random, 3)];
			atomic_fetch_add(&sent,
			    !syscall(SYS_tgkill, getpid(), targets[i % count],
				signal));
			stress_spin(random_below(&random, 20000));
		}
	}
	return arg;
}

static void
task(hwt_timeout timeout, void *arg)
{
	struct item *item = arg;
	uint64_t now_ns = stress_now_ns();

	(void)timeout;
	stress_check(now_ns >= item->due_ns, "started %" PRIu64 " ns early",
	    item->due_ns - now_ns);
	stress_check(
	    !atomic_fetch_add(&item->ends, 1), "a timeout ended twice");
	atomic_store(&item->running, true);
	if (item->slow)
		stress_spin(100000);
	atomic_store(&item->running, false);
	atomic_fetch_add(&started_total, 1);
}

static void
library_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	atomic_store(&is_library, true);
}

static void
schedule(struct hwt *on, struct actor *actor, hwt_timeout timeouts[TIMEOUTS])
{
	struct item *item;
	uint64_t delay_ns;
	unsigned i;
	int error;

	for (i = 0; i < TIMEOUTS; i++) {
		item = &actor->items[i];
		delay_ns = random_below(&actor->random, HWT_MS(4));
		atomic_store(&item->ends, 0);
		item->slow = !random_below(&actor->random, 4);
		item->due_ns = stress_now_ns() + delay_ns;
		error = hwt_new_timeout_on(on,
		    on == timer ? executors[i % KINDS] : NULL, &timeouts[i],
		    task, item, delay_ns);
		stress_must(!error, "hwt_new_timeout_on: %d", error);
	}
}

static void
told(struct item *item, int error, bool waited)
{
	if (!error) {
		stress_check(!atomic_fetch_add(&item->ends, 1),
		    "a cancelled timeout has ended before");
		atomic_fetch_add(&cancelled_total, 1);
	} else {
		stress_check(
		    error == -ENOENT || (!waited && error == -EINPROGRESS),
		    "cancel: %d", error);
	}
	if (waited)
		stress_check(atomic_load(&item->ends) == 1 &&
			!atomic_load(&item->running),
		    "hwt_cancel_wait returned, ends %u, running %d", item->ends,
		    item->running);
}

/* On the long-lived timer, all of whose timeouts are waited for. */
static void
use_common(struct actor *actor)
{
	hwt_timeout timeouts[TIMEOUTS];
	unsigned i;

	schedule(timer, actor, timeouts);
	for (i = 0; i < TIMEOUTS; i += 4)
		told(&actor->items[i], hwt_cancel(timer, timeouts[i]), false);
	if (random_below(&actor->random, 2))
		stress_sleep_ns(random_below(&actor->random, HWT_MS(4)));
	for (i = 0; i < TIMEOUTS; i++)
		told(&actor->items[i], hwt_cancel_wait(timer, timeouts[i]),
		    true);
}

/* On one that is started and stopped meanwhile. */
static void
use_own(struct actor *actor)
{
	struct hwt *own = timer_create_ns(HWT_US(200), 64, 0);
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	hwt_timeout timeouts[TIMEOUTS];
	unsigned i;
	int error;

	stress_must(!hwt_start(own), "hwt_start");
	schedule(own, actor, timeouts);
	stress_sleep_ns(random_below(&actor->random, HWT_MS(4)));
	do
		error = hwt_stop_within(own,
		    random_below(&actor->random, HWT_US(100)), &unprocessed);
	while (error == -ETIMEDOUT);
	stress_must(!error, "hwt_stop_within: %d", error);
	while (hwt_unprocessed_next(&unprocessed, &info)) {
		struct item *item = info.arg;

		atomic_fetch_add(&item->ends, 1);
		atomic_fetch_add(&listed_total, 1);
	}
	for (i = 0; i < TIMEOUTS; i++)
		stress_check(atomic_load(&actor->items[i].ends) == 1,
		    "a timeout of a stopped timer ended %u times",
		    actor->items[i].ends);
	stress_check(!hwt_destroy(own), "hwt_destroy");
}

static void *
actor_thread(void *arg)
{
	struct actor *actor = arg;
	uint64_t rounds = stress_scaled(ROUNDS), i;

	for (i = 0; i < rounds; i++) {
		use_common(actor);
		use_own(actor);
	}
	return NULL;
}

/* A task in each thread of the library, so that handlers know it. */
static void
library_mark(void)
{
	stress_must(!hwt_new_timeout(timer, NULL, library_task, NULL, 0) &&
		!hwt_new_timeout_on(
		    timer, executors[POOL], NULL, library_task, NULL, 0),
	    "hwt_new_timeout");
	probe_wait(timer);
}

static void
verify_rest(void)
{
	uint64_t before;

	stress_sleep_ns(HWT_MS(20));
	before = timer_stats(timer).wakeups;
	stress_sleep_ns(HWT_MS(REST_MS));
	stress_check(timer_stats(timer).wakeups <= before + 2,
	    "%" PRIu64 " wake-ups with nothing pending",
	    timer_stats(timer).wakeups - before);
}

static void
run_flood(void)
{
	static struct actor actors[ACTORS];
	timer_t alarm = interval_timers_start();
	pthread_t sender = stress_thread(sender_thread, NULL);
	unsigned i;

	for (i = 0; i < ACTORS; i++) {
		actors[i].random = random_seed(i);
		actors[i].thread = stress_thread(actor_thread, &actors[i]);
	}
	for (i = 0; i < ACTORS; i++)
		stress_join(actors[i].thread);
	atomic_store(&quit, true);
	stress_join(sender);
	interval_timers_stop(alarm);
}

int
main(int argc, char **argv)
{
	stress_begin("signals", argc, argv);
	handlers_install();
	timer = timer_create_ns(HWT_MS(1), 64, 0);
	stress_must(!hwt_pool_create(&pool, 1, 0), "hwt_pool_create");
	loop_start(&loop, 0);
	executors[POOL] = hwt_pool_executor(pool);
	executors[MAILBOX] = hwt_mailbox_executor(loop.mailbox);
	library_mark();
	stress_phase("the flood", 0);
	run_flood();
	stress_phase("rest", 0);
	verify_rest();
	stress_check(!hwt_stop(timer, NULL), "hwt_stop");
	stress_check(!hwt_pool_destroy(pool), "hwt_pool_destroy");
	loop_stop(&loop);
	stress_check(!hwt_destroy(timer), "hwt_destroy");
	stress_check(!strays,
	    "%u signals were handled in the library's threads", strays);
	stress_check(handled && prof_in_library,
	    "SIGPROF never came to the library's threads");
	return stress_end("%" PRIu64 " signals sent, %" PRIu64
			  " handled, %u SIGPROF in the library's threads; "
			  "started %" PRIu64 ", cancelled %" PRIu64
			  ", returned %" PRIu64,
	    (uint64_t)sent, (uint64_t)handled, prof_in_library,
	    (uint64_t)started_total, (uint64_t)cancelled_total,
	    (uint64_t)listed_total);
}
