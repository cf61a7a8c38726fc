/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork: in a child, every timer, pool and mailbox made before the fork is
 * inert: int functions return -EOWNERDEAD, others 0, NULL or false; destroys
 * free without joining; hwt_shared makes a new one. No fork deadlocks or
 * corrupts, whatever the worker was doing, also from a task. A child that hangs
 * is killed after a minute.
 */
#include "test/spec/support.h"

#include <fcntl.h>

SUITE(fork);

#define HOUR HWT_SEC(3600)

/* One of everything, made by the parent, all in use. */
struct family {
	struct hwt *timer, *manual, *stopped;
	struct hwt_unprocessed unprocessed;
	struct hwt_pool *pool;
	struct hwt_mailbox *mailbox;
	int fd;
	hwt_timeout timeout;
	struct probe probe;
};

static struct family family;

static void
family_open(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};

	assert_ok(hwt_create(&family.timer, &options));
	family.timeout = schedule_task(family.timer, forbidden_task, HOUR);
	options.flags = HWT_MANUAL;
	assert_ok(hwt_create(&family.manual, &options));
	assert_ok(hwt_create(&family.stopped, &options));
	schedule_task(family.stopped, forbidden_task, HOUR);
	assert_ok(hwt_stop(family.stopped, &family.unprocessed));
	assert_ok(hwt_pool_create(&family.pool, 2, 0));
	assert_ok(hwt_mailbox_create(&family.mailbox));
	family.fd = hwt_mailbox_fd(family.mailbox);
}

/* A life from the first timer to the last; in the parent, of the family. */
static void
live_through(
    struct hwt *timer, struct hwt_pool *pool, struct hwt_mailbox *mailbox)
{
	struct probe probes[3] = {{0}};

	child_ok(hwt_new_timeout(timer, NULL, probe_task, &probes[0], 0));
	child_ok(hwt_new_timeout_on(
	    timer, hwt_pool_executor(pool), NULL, probe_task, &probes[1], 0));
	child_ok(hwt_new_timeout_on(timer, hwt_mailbox_executor(mailbox), NULL,
	    probe_task, &probes[2], 0));
	while (probes[0].runs == 0 || probes[1].runs == 0)
		sleep_ns(HWT_MS(1));
	while (probes[2].runs == 0)
		child_ok(hwt_mailbox_run(mailbox, 0, NULL));
	child_ok(hwt_stop(timer, NULL));
	child_ok(hwt_pool_destroy(pool));
	child_ok(hwt_destroy(timer));
	child_ok(hwt_mailbox_destroy(mailbox));
}

static void
check_own_life(void)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt_mailbox *mailbox;
	struct hwt_pool *pool;
	struct hwt *timer;

	child_ok(hwt_create(&timer, &options));
	child_ok(hwt_pool_create(&pool, 1, 0));
	child_ok(hwt_mailbox_create(&mailbox));
	live_through(timer, pool, mailbox);
}

/* The parent's own are as alive as ever. */
static void
family_close(void)
{
	struct hwt_timeout_info info;

	assert_ok(hwt_cancel(family.timer, family.timeout));
	live_through(family.timer, family.pool, family.mailbox);
	assert_u64(family.unprocessed.count, 1);
	cr_assert(hwt_unprocessed_next(&family.unprocessed, &info));
	worker_timer_close(family.manual);
	assert_ok(hwt_destroy(family.stopped));
}

#define FamilyTest(suite, name) \
	TestBetween(family_open(), family_close(), suite, name)

#define child_makes_none(call)               \
	do {                                 \
		made.id = 7;                 \
		child_rc(call, -EOWNERDEAD); \
		child_check(made.id == 0);   \
	} while (0)

/* With arguments that another timer would refuse, too. */
static void
check_inert_calls(struct hwt *timer, hwt_timeout timeout)
{
	const struct hwt_executor hollow = {0};
	hwt_timeout made = timeout;
	uint64_t now_ns = 7;
	void *arg = &family;

	child_rc(hwt_start(timer), -EOWNERDEAD);
	child_rc(hwt_touch(timer, NULL, &made, forbidden_task, NULL, HOUR),
	    -EOWNERDEAD);
	child_check(made.id == timeout.id);
	child_makes_none(
	    hwt_new_timeout(timer, &made, forbidden_task, NULL, HOUR));
	child_makes_none(
	    hwt_new_timeout_on(timer, &hollow, &made, NULL, NULL, 0));
	child_makes_none(
	    hwt_new_timeout_at(timer, &hollow, &made, NULL, NULL, 0));
	child_makes_none(
	    hwt_new_periodic(timer, NULL, &made, NULL, NULL, 0, 0));
	child_rc(hwt_now(timer, &now_ns), -EOWNERDEAD);
	child_rc(hwt_state(timer, timeout, &arg), -EOWNERDEAD);
	child_check(now_ns == 7 && arg == &family);
	child_rc(hwt_cancel(timer, timeout), -EOWNERDEAD);
	child_rc(hwt_cancel_wait(timer, timeout), -EOWNERDEAD);
	child_rc(hwt_reschedule(timer, timeout, HWT_NEVER - 1), -EOWNERDEAD);
	child_rc(hwt_reschedule_at(timer, timeout, HOUR), -EOWNERDEAD);
	child_rc(hwt_remaining(timer, timeout, NULL), -EOWNERDEAD);
	child_rc(hwt_read_stats(timer, NULL), -EOWNERDEAD);
	child_rc(hwt_stats_write(timer, NULL, HWT_JSON), -EOWNERDEAD);
	child_rc(hwt_dump(timer, stderr), -EOWNERDEAD);
	child_rc(hwt_run(timer, timeout), -EOWNERDEAD);
	child_check(hwt_pending_timeouts(timer) == 0);
}

static void
check_inert_turns(struct hwt *timer)
{
	uint64_t tasks_started = 5, wait_ns = 5;
	struct hwt_unprocessed unprocessed;

	child_rc(hwt_advance(timer, &tasks_started), -EOWNERDEAD);
	child_rc(hwt_next_wakeup(timer, &wait_ns), -EOWNERDEAD);
	child_check(tasks_started == 5 && wait_ns == 5);
	unprocessed.count = 5;
	child_rc(hwt_stop(timer, &unprocessed), -EOWNERDEAD);
	child_check(unprocessed.count == 0);
	unprocessed.count = 5;
	child_rc(hwt_stop_within(timer, 0, &unprocessed), -EOWNERDEAD);
	child_check(unprocessed.count == 0);
}

static void
check_inert_executors(void)
{
	size_t tasks_started = 5;

	child_check(hwt_pool_executor(family.pool) == NULL);
	child_check(hwt_mailbox_executor(family.mailbox) == NULL);
	child_rc(hwt_pool_post(family.pool, NULL, NULL), -EOWNERDEAD);
	child_rc(hwt_mailbox_post(family.mailbox, NULL, NULL), -EOWNERDEAD);
	child_rc(hwt_mailbox_fd(family.mailbox), -EOWNERDEAD);
	child_rc(
	    hwt_mailbox_run(family.mailbox, 0, &tasks_started), -EOWNERDEAD);
	child_check(tasks_started == 5);
}

static void
check_destroys(void)
{
	child_ok(hwt_destroy(family.timer));
	child_ok(hwt_destroy(family.manual));
	child_ok(hwt_destroy(family.stopped));
	child_ok(hwt_pool_destroy(family.pool));
	child_ok(hwt_mailbox_destroy(family.mailbox));
}

static void
inert_child(void *arg)
{
	struct hwt *const timers[] = {
	    family.timer, family.manual, family.stopped};
	struct hwt_timeout_info info;

	(void)arg;
	for (unsigned i = 0; i < 3; i++) {
		check_inert_calls(timers[i], family.timeout);
		check_inert_turns(timers[i]);
	}
	check_inert_executors();
	child_check(!hwt_unprocessed_next(&family.unprocessed, &info));
}

FamilyTest(fork, all_that_a_child_inherits_is_inert)
{
	in_child(inert_child, NULL);
}

static void
destroying_child(void *arg)
{
	(void)arg;
	check_destroys();
	child_check(fcntl(family.fd, F_GETFD) < 0);
	for (unsigned turn = 0; turn < 20; turn++)
		check_own_life();
}

FamilyTest(fork, child_destroys_without_joining_and_makes_its_own)
{
	in_child(destroying_child, NULL);
	in_child(destroying_child, NULL);
}

/* Each lock of the library is held at a fork, as by a thread that the child
 * does not have. */

static _Thread_local bool forks_at_unlock;
static _Thread_local unsigned forks;

int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

static void
own_life_child(void *arg)
{
	(void)arg;
	check_own_life();
}

int
__wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	if (forks_at_unlock) {
		forks_at_unlock = false;
		in_child(own_life_child, NULL);
		forks++;
		forks_at_unlock = true;
	}
	return __real_pthread_mutex_unlock(mutex);
}

Test(fork, child_makes_its_own_whatever_lock_was_held_at_the_fork)
{
	struct hwt_mailbox *mailbox;
	struct hwt_pool *pool;
	struct hwt *timer;

	forks_at_unlock = true;
	assert_ok(hwt_create(&timer, NULL));
	assert_ok(hwt_pool_create(&pool, 1, 0));
	assert_ok(hwt_mailbox_create(&mailbox));
	schedule_task(timer, forbidden_task, HWT_NEVER);
	assert_ok(hwt_stop(timer, NULL));
	assert_ok(hwt_pool_destroy(pool));
	assert_ok(hwt_mailbox_destroy(mailbox));
	assert_ok(hwt_destroy(timer));
	forks_at_unlock = false;

	cr_assert(forks >= 5);
}

/* The shared timer. */

static void
shared_child(void *arg)
{
	struct hwt *timer = NULL, *again = NULL;
	struct hwt_unprocessed unprocessed;
	struct probe probe = {0};

	child_ok(hwt_shared(&timer));
	child_check(timer != arg);
	child_ok(hwt_shared(&again));
	child_check(again == timer);
	child_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, 0));
	while (probe.runs == 0)
		sleep_ns(HWT_MS(1));
	child_ok(hwt_new_timeout(timer, NULL, forbidden_task, NULL, HOUR));
	child_ok(hwt_shared_shutdown(&unprocessed));
	child_check(unprocessed.count == 1);
	child_rc(hwt_shared(&again), -ESHUTDOWN);
}

Test(fork, shared_timer_is_made_anew_in_a_child_even_after_shutdown)
{
	struct hwt *timer, *again;

	assert_ok(hwt_shared(&timer));
	in_child(shared_child, timer);
	assert_ok(hwt_shared(&again));
	cr_assert(again == timer);
	assert_ok(hwt_shared_shutdown(NULL));

	in_child(shared_child, timer);

	assert_rc(hwt_shared(&timer), -ESHUTDOWN);
}

/* From a task: its copy in the child may go on. */

static _Atomic uint64_t forked;

static void
task_child(void *arg)
{
	(void)arg;
	check_inert_calls(family.timer, family.probe.handle);
	check_inert_turns(family.timer);
	check_inert_executors();
	check_own_life();
	check_destroys();
	for (unsigned turn = 0; turn < 20; turn++)
		check_own_life();
}

static void
then_fork(struct probe *probe)
{
	(void)probe;
	forked = (uint64_t)child_fork(task_child, NULL);
}

static int
execute_fork(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	(void)timer;
	(void)timeout;
	forked = (uint64_t)child_fork(task_child, NULL);
	return -EAGAIN;
}

FamilyTest(fork, tasks_and_executors_may_fork_wherever_they_run)
{
	static const struct hwt_executor forking = {.execute = execute_fork};
	const struct hwt_executor *executors[] = {NULL,
	    hwt_pool_executor(family.pool),
	    hwt_mailbox_executor(family.mailbox), &forking};

	for (unsigned i = 0; i < 4; i++) {
		forked = 0;
		family.probe = (struct probe){.then = i < 3 ? then_fork : NULL};
		assert_ok(hwt_new_timeout_on(family.timer, executors[i],
		    &family.probe.handle, probe_task, &family.probe, 0));
		while (forked == 0 && i == 2)
			assert_ok(hwt_mailbox_run(family.mailbox, 0, NULL));
		wait_for(&forked, 1);
		assert_rc(child_wait((pid_t)forked), 0);
		wait_for(&family.probe.runs, 1);
	}
}
