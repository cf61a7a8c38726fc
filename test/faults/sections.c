/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that together cover the interface. Each is short, so that a fault in
 * each of its calls can be tried, and ends with nothing left.
 */
#include "test/faults/attempt.h"

#include <poll.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

/* Its allocator may be locked at a fork by a thread that the child has not. */
#ifdef __SANITIZE_ADDRESS__
#define WITH_ASAN true
#else
#define WITH_ASAN false
#endif

#define TICK HWT_MS(1)
#define FAR HWT_SEC(100)

static const struct hwt_options with_worker = {.tick_ns = TICK};

static void
start(struct hwt *timer)
{
	RETRY(hwt_start, hwt_start(timer), timer)
	continue;
}

static struct hwt_stats
stats_of(struct hwt *timer)
{
	struct hwt_stats stats;

	CHECK(hwt_read_stats(timer, &stats) == 0);
	return stats;
}

/* Everything that a caller can do to a timer with a worker. */
static void
use_worker(struct hwt *timer)
{
	struct timeout *soon[3], *far[5], *often;
	unsigned i;

	for (i = 0; i < 5; i++)
		far[i] = schedule(timer, FAR);
	for (i = 0; i < 3; i++)
		soon[i] = schedule(timer, i * TICK);
	often = schedule_batch(timer, 1, NULL, TICK, TICK);
	reschedule(far[0], 2 * TICK);
	reschedule(far[1], 2 * FAR);
	look_at(far[1]);
	cancel(far[2]);
	await_runs(often, 3);
	for (i = 0; i < 3; i++)
		await_runs(soon[i], 1);
	await_runs(far[0], 1);
	cancel(far[3]);
	reschedule(far[1], FAR);
	cancel_and_wait(often);
}

static void
section_worker(void)
{
	struct hwt *timer = timer_make(&with_worker);

	start(timer);
	use_worker(timer);
	timer_end(timer, 2);
}

/* The first timeout starts the thread; attributes are looked at. */
static void
section_first(void)
{
	struct hwt_options options = with_worker;
	struct hwt *timer;
	pthread_attr_t attr;

	CHECK(pthread_attr_init(&attr) == 0);
	options.thread_attr = &attr;
	timer = timer_make(&options);
	await_runs(schedule(timer, TICK), 1);
	(void)schedule(timer, FAR);
	timer_end(timer, 1);
	timer = timer_make(NULL);
	(void)schedule_batch(timer, 3, NULL, FAR, 0);
	timer_end(timer, 3);
	CHECK(pthread_attr_destroy(&attr) == 0);
}

/* Each starts the thread. */
static void
section_deadline(void)
{
	struct hwt *timer = timer_make(&with_worker);
	struct timeout *often;

	await_runs(schedule_at(timer, TICK), 1);
	(void)schedule_at(timer, FAR);
	timer_end(timer, 1);
	timer = timer_make(&with_worker);
	await_runs(schedule_touched(timer, TICK), 1);
	(void)schedule_touched(timer, FAR);
	timer_end(timer, 1);
	timer = timer_make(&with_worker);
	often = schedule_periodic(timer, TICK, TICK);
	await_runs(often, 2);
	/* Not stopped in a run, which would be its last. */
	cancel_and_wait(often);
	timer_end(timer, 0);
}

static void
section_relaxed(void)
{
	struct hwt_options options = {.tick_ns = TICK, .flags = HWT_RELAXED};
	struct hwt *timer = timer_make(&options);

	use_worker(timer);
	timer_end(timer, 2);
}

static uint64_t hand_moved_ns;
static unsigned wakes;

static uint64_t
hand_moved(void *ctx)
{
	(void)ctx;
	return hand_moved_ns;
}

static void
wake(void *ctx)
{
	(void)ctx;
	wakes++;
}

static void
advance(struct hwt *timer)
{
	RETRY(hwt_advance, hwt_advance(timer, NULL), NULL)
	continue;
}

static uint64_t
next_wakeup(struct hwt *timer)
{
	uint64_t wait_ns = 0;

	RETRY(hwt_next_wakeup, hwt_next_wakeup(timer, &wait_ns), timer)
	continue;
	return wait_ns;
}

static void
never_runs(hwt_timeout timeout, void *arg)
{
	(void)arg;
	fail("%" PRIx64 " was refused and runs", timeout.id);
}

#define GROUPS 18u
#define GROUP 500u

/* Grows over several slabs and segments, within a limit that holds. */
static void
section_manual(void)
{
	struct hwt_clock clock = {.now_ns = hand_moved};
	struct hwt_wake hook = {.wake = wake};
	struct hwt_options options = {.tick_ns = TICK,
	    .ticks_per_wheel = 64,
	    .flags = HWT_MANUAL,
	    .max_pending = GROUPS * GROUP + 2,
	    .clock = &clock,
	    .wake = &hook};
	struct hwt *timer = timer_make(&options);
	struct timeout *first, *pulled, *group = NULL;
	hwt_timeout refused;
	unsigned i;

	timeouts_by_another_clock(true);
	first = schedule(timer, 2 * TICK);
	for (i = 0; i < GROUPS; i++) {
		group =
		    schedule_batch(timer, GROUP, NULL, (1 + i) * 50 * TICK, 0);
		if (i % 4 == 3)
			advance(timer);
	}
	pulled = schedule(timer, FAR);
	CHECK(hwt_new_timeout(timer, &refused, never_runs, NULL, TICK) ==
	    -ENOBUFS);
	CHECK(next_wakeup(timer) == 2 * TICK);
	wakes = 0;
	reschedule(pulled, TICK);
	CHECK(wakes == 1);
	hand_moved_ns += TICK;
	advance(timer);
	CHECK(pulled->runs == 1 && first->runs == 0);
	for (i = 0; i < GROUP; i++, group = group->next)
		cancel(group);
	hand_moved_ns += 500 * TICK;
	advance(timer);
	CHECK(first->runs == 1);
	CHECK(stats_of(timer).started == 10 * GROUP + 2);
	timer_end(timer, (GROUPS - 11) * GROUP);
	timeouts_by_another_clock(false);
}

static void
fill_and_empty(struct hwt *timer)
{
	struct timeout *group[2 * GROUPS];
	unsigned i, k;

	for (i = 0; i < 2 * GROUPS; i++)
		group[i] = schedule_batch(timer, GROUP, NULL, FAR, 0);
	for (i = 0; i < 2 * GROUPS; i++) {
		for (k = 0; k < GROUP; k++, group[i] = group[i]->next)
			cancel(group[i]);
	}
}

/* pthread_atfork is only called when madvise fails. */
static bool
release_may_fail(void)
{
	enum call call = fault_here()->call;

	return call == CALL_MADVISE || call == CALL_SYSCONF ||
	    call == CALL_PTHREAD_ATFORK;
}

/* More memory is free than is kept, and goes back to the system. */
static void
section_trim(void)
{
	struct hwt_clock clock = {.now_ns = hand_moved};
	struct hwt_options options = {
	    .tick_ns = TICK, .flags = HWT_MANUAL, .clock = &clock};
	struct hwt *timer = timer_make(&options);
	uint64_t most;
	unsigned i;

	timeouts_by_another_clock(true);
	for (i = 0; i < 2; i++) {
		fill_and_empty(timer);
		most = stats_of(timer).memory_bytes;
		CHECK(next_wakeup(timer) == HWT_NEVER);
		if (!release_may_fail())
			CHECK(stats_of(timer).memory_bytes < most / 2);
	}
	(void)schedule_batch(timer, GROUP, NULL, FAR, 0);
	timer_end(timer, GROUP);
	timeouts_by_another_clock(false);
}

/* Turns the wheel by the system's clock until the task has run. */
static void
turn_until(struct hwt *timer, struct timeout *timeout)
{
	uint64_t begun_ns = now_ns();
	uint64_t wait_ns;

	while (timeout->runs == 0) {
		wait_ns = next_wakeup(timer);
		CHECK(wait_ns <= HWT_SEC(200));
		pause_ns(wait_ns < TICK ? wait_ns : TICK);
		advance(timer);
		CHECK(now_ns() - begun_ns < HWT_SEC(10));
	}
}

static void
turn_by_system_clock(uint32_t flags)
{
	struct hwt_options options = {
	    .tick_ns = TICK, .flags = HWT_MANUAL | flags};
	struct hwt *timer = timer_make(&options);
	struct timeout *far = schedule(timer, FAR);
	struct timeout *moved = schedule(timer, FAR);

	turn_until(timer, schedule(timer, 2 * TICK));
	reschedule(moved, TICK);
	turn_until(timer, moved);
	look_at(far);
	cancel(schedule(timer, FAR));
	timer_end(timer, 1);
}

static void
section_turned(void)
{
	turn_by_system_clock(0);
	turn_by_system_clock(HWT_RELAXED);
}

/* Deadlines that come while the worker sleeps long. */
static void
section_sleep(void)
{
	struct hwt *timer = timer_make(&with_worker);
	struct timeout *far;
	unsigned i;

	start(timer);
	for (i = 0; i < 3; i++) {
		pause_ns(2 * TICK);
		await_runs(schedule(timer, TICK), 1);
		far = schedule(timer, FAR);
		pause_ns(2 * TICK);
		cancel(far);
		far = schedule(timer, FAR);
		pause_ns(2 * TICK);
		reschedule(far, TICK);
		await_runs(far, 1);
	}
	timer_end(timer, 0);
}

static sem_t left;
static _Atomic unsigned entered;

static void
hold(struct timeout *timeout)
{
	(void)timeout;
	entered++;
	while (sem_wait(&left) != 0)
		continue;
}

/* cancel_wait, stop_within and stop while a task runs. */
static void *
lets_go(void *arg)
{
	(void)arg;
	pause_ns(2 * TICK);
	sem_post(&left);
	return NULL;
}

static void
let_go_soon(pthread_t *thread)
{
	CHECK(pthread_create(thread, NULL, lets_go, NULL) == 0);
}

static struct hwt_unprocessed
stop_within(struct hwt *timer, uint64_t wait_ns)
{
	struct hwt_unprocessed list;

	RETRY(hwt_stop_within, hwt_stop_within(timer, wait_ns, &list), NULL)
	{
		CHECK(list.count == 0 && list.private_words[0] == 0);
		pause_ns(TICK);
	}
	return list;
}

static void
section_wait(void)
{
	struct hwt *timer = timer_make(&with_worker);
	struct hwt_unprocessed list;
	struct timeout *held;
	pthread_t thread;

	sem_init(&left, 0, 0);
	held = schedule_on(timer, NULL, TICK, hold);
	await_count(&entered, 1);
	let_go_soon(&thread);
	CHECK(hwt_cancel_wait(timer, held->handle) == -ENOENT);
	CHECK(held->ended == 1);
	CHECK(pthread_join(thread, NULL) == 0);
	timer_end(timer, 0);
	timer = timer_make(&with_worker);
	(void)schedule(timer, FAR);
	(void)schedule_on(timer, NULL, TICK, hold);
	await_count(&entered, 2);
	CHECK(hwt_stop_within(timer, TICK, NULL) == -ETIMEDOUT);
	let_go_soon(&thread);
	list = stop_within(timer, HWT_SEC(5));
	list_take(&list, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	timer_destroy_all(timer);
}

static void *
stops(void *arg)
{
	struct hwt_unprocessed list;

	RETRY(hwt_stop, hwt_stop(arg, &list), NULL)
	continue;
	list_take(&list, ANY);
	return NULL;
}

static void *
schedules(void *arg)
{
	(void)schedule(arg, TICK);
	(void)schedule(arg, FAR);
	return NULL;
}

/* Threads that race for the start, and for the stop. */
static void
section_races(void)
{
	struct hwt *timer = timer_make(&with_worker);
	pthread_t thread[3];
	unsigned i;

	attempts_race(true);
	for (i = 0; i < 3; i++)
		CHECK(pthread_create(&thread[i], NULL, schedules, timer) == 0);
	for (i = 0; i < 3; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	for (i = 0; i < 3; i++)
		CHECK(pthread_create(&thread[i], NULL, stops, timer) == 0);
	for (i = 0; i < 3; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	attempts_race(false);
	timer_destroy_all(timer);
}

static void
section_pool(void)
{
	struct hwt_pool *const none = (struct hwt_pool *)(uintptr_t)&left;
	struct hwt_pool *pool = none;
	const struct hwt_executor *executor;
	struct timeout *run[6], *often;
	struct hwt *timer;
	unsigned i;

	RETRY(hwt_pool_create, hwt_pool_create(&pool, 3, 2), NULL)
	CHECK(pool == none);
	CHECK(pool != none);
	executor = hwt_pool_executor(pool);
	timer = timer_make(&with_worker);
	for (i = 0; i < 6; i++)
		run[i] = schedule_on(timer, executor, 2 * TICK, NULL);
	often = schedule_batch(timer, 1, executor, TICK, TICK);
	await_runs(often, 3);
	for (i = 0; i < 6; i++)
		await_runs(run[i], 1);
	cancel_and_wait(often);
	(void)schedule_on(timer, executor, FAR, NULL);
	timer_stop_all(timer, 1);
	RETRY(hwt_pool_destroy, hwt_pool_destroy(pool), NULL)
	continue;
	timer_destroy_all(timer);
}

/* Whether the failure of a write may have been the last word. */
static bool
mailbox_may_be_silent(void)
{
	return fault_here()->call == CALL_EVENTFD_WRITE &&
	    fault_here()->error == EIO;
}

static bool
is_readable(struct hwt_mailbox *mailbox, int patience_ms)
{
	struct pollfd fd = {.fd = hwt_mailbox_fd(mailbox), .events = POLLIN};

	return poll(&fd, 1, patience_ms) == 1;
}

/* When the eventfd could not be made readable, the next hand-over makes it so.
 */
static void
await_readable(struct hwt_mailbox *mailbox, struct hwt *timer)
{
	if (is_readable(mailbox, mailbox_may_be_silent() ? 100 : 10000))
		return;
	(void)schedule_on(timer, hwt_mailbox_executor(mailbox), 0, NULL);
	if (!mailbox_may_be_silent() || !is_readable(mailbox, 10000))
		fail("a mailbox stays silent");
}

static void
mailbox_turn(struct hwt_mailbox *mailbox, struct hwt *timer, size_t max)
{
	const struct hwt_executor *executor = hwt_mailbox_executor(mailbox);
	struct timeout *due[3];
	uint64_t begun_ns = now_ns();
	size_t started;

	due[0] = schedule_on(timer, executor, TICK, NULL);
	/* While it fails for good, the loop hears nothing. */
	if (fault_here()->permanent &&
	    fault_here()->call == CALL_EVENTFD_WRITE) {
		pause_ns(5 * TICK);
		fault_off();
	}
	await_readable(mailbox, timer);
	due[1] = schedule_on(timer, executor, TICK, NULL);
	due[2] = schedule_on(timer, executor, 2 * TICK, NULL);
	while (due[0]->runs + due[1]->runs + due[2]->runs < 3) {
		await_readable(mailbox, timer);
		RETRY(hwt_mailbox_run, hwt_mailbox_run(mailbox, max, &started),
		    NULL)
		continue;
		CHECK(now_ns() - begun_ns < HWT_SEC(20));
	}
}

static void
section_mailbox(void)
{
	struct hwt_mailbox *const none = (struct hwt_mailbox *)(uintptr_t)&left;
	struct hwt_mailbox *mailbox = none;
	struct hwt *timer;
	size_t started;

	RETRY(hwt_mailbox_create, hwt_mailbox_create(&mailbox), NULL)
	CHECK(mailbox == none);
	CHECK(mailbox != none);
	timer = timer_make(&with_worker);
	mailbox_turn(mailbox, timer, 0);
	mailbox_turn(mailbox, timer, 2);
	timer_stop_all(timer, ANY);
	CHECK(hwt_mailbox_run(mailbox, 0, &started) == 0);
	RETRY(hwt_mailbox_destroy, hwt_mailbox_destroy(mailbox), NULL)
	continue;
	timer_destroy_all(timer);
}

static void
section_shared(void)
{
	struct hwt *const none = (struct hwt *)(uintptr_t)&left;
	struct hwt *timer = none;
	struct hwt *again = NULL;
	struct hwt_unprocessed list;

	RETRY(hwt_shared, hwt_shared(&timer), NULL)
	CHECK(timer == none);
	RETRY(hwt_shared, hwt_shared(&again), NULL)
	CHECK(again == NULL);
	CHECK(timer == again);
	await_runs(schedule(timer, TICK), 1);
	(void)schedule(timer, FAR);
	RETRY(hwt_shared_shutdown, hwt_shared_shutdown(&list), NULL)
	CHECK(list.count == 0 && list.private_words[0] == 0);
	list_take(&list, 1);
}

#define MANY 10u

static void *
uses_many(void *arg)
{
	struct hwt **timer = arg;
	unsigned i, turn;

	for (turn = 0; turn < 2; turn++) {
		for (i = 0; i < MANY; i++) {
			(void)schedule(timer[i], FAR);
			cancel(schedule(timer[i], FAR));
		}
	}
	return NULL;
}

/* More timers than a thread keeps caches for; threads that come and go. */
static void
section_threads(void)
{
	struct hwt_clock clock = {.now_ns = hand_moved};
	struct hwt_options options = {
	    .tick_ns = TICK, .flags = HWT_MANUAL, .clock = &clock};
	struct hwt *timer[MANY];
	pthread_t thread;
	unsigned i;

	timeouts_by_another_clock(true);
	for (i = 0; i < MANY; i++)
		timer[i] = timer_make(&options);
	for (i = 0; i < 2; i++) {
		CHECK(pthread_create(&thread, NULL, uses_many, timer) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		(void)uses_many(timer);
	}
	for (i = 0; i < MANY; i++)
		timer_end(timer[i], 8);
	timeouts_by_another_clock(false);
}

static int
refuses(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	(void)timer;
	(void)timeout;
	return EAGAIN;
}

static void
is_slow(struct timeout *timeout)
{
	(void)timeout;
	pause_ns(TICK / 4);
}

/* Warnings: a refusal, a slow task. */
static void
section_warnings(void)
{
	struct hwt_executor executor = {.execute = refuses};
	struct hwt_options options = {
	    .tick_ns = TICK, .slow_task_ns = 1000, .executor = &executor};
	struct hwt *timer = timer_make(&options);

	await_runs(schedule_on(timer, NULL, TICK, is_slow), 1);
	timer_stop_all(timer, 0);
	CHECK(stats_of(timer).executor_refused == 1);
	CHECK(stats_of(timer).slow_tasks == 1);
	CHECK(stats_of(timer).lateness_ns_max < HWT_SEC(20));
	timer_destroy_all(timer);
	CHECK(fault_calls(CALL_WRITE) == 2 || fault_here()->nth > 0);
}

/* Text about a timer, which goes on after each failure. */
static void
section_text(void)
{
	struct hwt_options options = {.tick_ns = TICK, .flags = HWT_MANUAL};
	FILE *file = fopen("/dev/null", "we");
	struct hwt *timer = timer_make(&options);

	CHECK(file != NULL);
	(void)schedule(timer, FAR);
	RETRY(hwt_stats_write, hwt_stats_write(timer, file, HWT_JSON), timer)
	CHECK(hwt_advance(timer, NULL) == 0);
	RETRY(hwt_dump, hwt_dump(timer, file), timer)
	CHECK(hwt_advance(timer, NULL) == 0);
	CHECK(hwt_advance(timer, NULL) == 0);
	timer_end(timer, 1);
	(void)fclose(file);
}

/* Both go on as they should: the child with timers of its own. */
static void
in_child(struct hwt *inherited, struct timeout *timeout)
{
	struct hwt *timer;

	CHECK(hwt_pending_timeouts(inherited) == 0);
	CHECK(hwt_cancel(inherited, timeout->handle) == -EOWNERDEAD);
	CHECK(hwt_start(inherited) == -EOWNERDEAD);
	CHECK(hwt_stop(inherited, NULL) == -EOWNERDEAD);
	timer_destroy_all(inherited);
	timer = timer_make(&with_worker);
	await_runs(schedule(timer, TICK), 1);
	(void)schedule(timer, FAR);
	timer_end(timer, 1);
}

static void
section_fork(void)
{
	struct timeout *far, *soon;
	struct hwt *timer;
	int status = -1;
	pid_t child;

	if (WITH_ASAN)
		return;
	timer = timer_make(&with_worker);
	far = schedule(timer, FAR);
	soon = schedule(timer, 2 * TICK);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(15);
		in_child(timer, far);
		_exit(0);
	}
	await_runs(soon, 1);
	CHECK(waitpid(child, &status, 0) == child);
	if (status != 0)
		fail("that was the child: status %x", (unsigned)status);
	cancel(far);
	timer_end(timer, 0);
}

const struct section sections[] = {
    {"worker", section_worker},
    {"first", section_first},
    {"deadline", section_deadline},
    {"relaxed", section_relaxed},
    {"manual", section_manual},
    {"trim", section_trim},
    {"turned", section_turned},
    {"sleep", section_sleep},
    {"wait", section_wait},
    {"races", section_races},
    {"pool", section_pool},
    {"mailbox", section_mailbox},
    {"shared", section_shared},
    {"threads", section_threads},
    {"warnings", section_warnings},
    {"text", section_text},
    {"fork", section_fork},
    {NULL, NULL},
};
