/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork: in a child, every timer, pool and mailbox made before the fork is
 * inert: int functions answer -EOWNERDEAD, others 0, NULL or false; destroys
 * free without joining; hwt_shared makes a new one. No fork deadlocks or
 * corrupts, whatever the worker was doing, also from a task.
 *
 * A child says by its exit status whether all was as it should be, and is
 * killed after a minute, so that a deadlock fails the test. It never returns
 * to the runner.
 */
#include "test/spec/support_promises.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

SUITE(fork);

#define HOUR HWT_SEC(3600)

/* One of everything, made by the parent, all in use. */
struct family {
	struct hwt *timer;
	struct hwt *manual;
	struct hwt *stopped;
	struct hwt_unprocessed unprocessed;
	struct hwt_pool *pool;
	struct hwt_mailbox *mailbox;
	int mailbox_fd;
	hwt_timeout timeout;
	hwt_timeout manual_timeout;
	struct probe probe;
};

static void
family_open(struct family *family)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};

	assert_ok(hwt_create(&family->timer, &options));
	family->timeout = schedule_task(family->timer, forbidden_task, HOUR);
	options.flags = HWT_MANUAL;
	assert_ok(hwt_create(&family->manual, &options));
	family->manual_timeout =
	    schedule_task(family->manual, forbidden_task, HOUR);
	assert_ok(hwt_create(&family->stopped, &options));
	assert_ok(
	    hwt_new_timeout(family->stopped, NULL, forbidden_task, NULL, HOUR));
	assert_ok(hwt_stop(family->stopped, &family->unprocessed));
	assert_ok(hwt_pool_create(&family->pool, 2, 0));
	assert_ok(hwt_mailbox_create(&family->mailbox));
	family->mailbox_fd = hwt_mailbox_fd(family->mailbox);
}

/* That the parent's own are as alive as ever, and then their end. */
static void
family_close(struct family *family)
{
	struct probe inline_probe = {0}, pool_probe = {0}, mailbox_probe = {0};
	struct hwt_timeout_info info;

	assert_ok(
	    hwt_new_timeout(family->timer, NULL, probe_task, &inline_probe, 0));
	assert_ok(hwt_new_timeout_on(family->timer,
	    hwt_pool_executor(family->pool), NULL, probe_task, &pool_probe, 0));
	assert_ok(hwt_new_timeout_on(family->timer,
	    hwt_mailbox_executor(family->mailbox), NULL, probe_task,
	    &mailbox_probe, 0));
	wait_for(&inline_probe.runs, 1);
	wait_for(&pool_probe.runs, 1);
	while (mailbox_probe.runs == 0) {
		assert_ok(hwt_mailbox_run(family->mailbox, 0, NULL));
		sleep_ns(HWT_MS(1));
	}
	assert_ok(hwt_cancel(family->timer, family->timeout));
	assert_ok(hwt_cancel(family->manual, family->manual_timeout));
	assert_ok(hwt_stop(family->timer, NULL));
	assert_ok(hwt_stop(family->manual, NULL));
	assert_u64(family->unprocessed.count, 1);
	cr_assert(hwt_unprocessed_next(&family->unprocessed, &info));
	assert_ok(hwt_pool_destroy(family->pool));
	assert_ok(hwt_destroy(family->timer));
	assert_ok(hwt_destroy(family->manual));
	assert_ok(hwt_destroy(family->stopped));
	assert_ok(hwt_mailbox_destroy(family->mailbox));
}

/* A test with one, `the_family`. */
static struct family the_family;

#define FamilyTest(suite, name) \
	TestBetween(            \
	    family_open(&the_family), family_close(&the_family), suite, name)

/* What only a child asks. */

static void
check_inert_timer(struct hwt *timer, hwt_timeout timeout)
{
	const struct hwt_executor executor = {0};
	struct hwt_spec spec = {.task = forbidden_task};
	struct hwt_stats stats;
	hwt_timeout made = {7};
	void *arg = (void *)(uintptr_t)&executor;
	uint64_t now_ns = 7;
	int64_t remaining_ns;

	child_rc(hwt_start(timer), -EOWNERDEAD);
	child_rc(hwt_new_timeout(timer, &made, forbidden_task, NULL, 0),
	    -EOWNERDEAD);
	child_check(made.id == 0);
	made.id = 7;
	child_rc(hwt_new_timeout_on(
		     timer, &executor, &made, forbidden_task, NULL, 0),
	    -EOWNERDEAD);
	child_check(made.id == 0);
	made.id = 7;
	child_rc(hwt_new_timeouts(timer, 1, &spec, &made), -EOWNERDEAD);
	child_check(made.id == 0);
	made.id = 7;
	child_rc(hwt_new_timeout_at(
		     timer, &executor, &made, forbidden_task, NULL, 0),
	    -EOWNERDEAD);
	child_check(made.id == 0);
	made.id = 7;
	child_rc(
	    hwt_new_periodic(timer, NULL, &made, forbidden_task, NULL, 0, 1),
	    -EOWNERDEAD);
	child_check(made.id == 0);
	made = timeout;
	child_rc(hwt_touch(timer, NULL, &made, forbidden_task, NULL, HOUR),
	    -EOWNERDEAD);
	child_check(made.id == timeout.id);
	child_rc(hwt_now(timer, &now_ns), -EOWNERDEAD);
	child_rc(hwt_state(timer, timeout, &arg), -EOWNERDEAD);
	child_check(now_ns == 7 && arg == &executor);
	child_rc(hwt_cancel(timer, timeout), -EOWNERDEAD);
	child_rc(hwt_cancel_wait(timer, timeout), -EOWNERDEAD);
	child_rc(hwt_reschedule(timer, timeout, HOUR), -EOWNERDEAD);
	child_rc(hwt_reschedule_at(timer, timeout, HOUR), -EOWNERDEAD);
	child_rc(hwt_remaining(timer, timeout, &remaining_ns), -EOWNERDEAD);
	child_rc(hwt_read_stats(timer, &stats), -EOWNERDEAD);
	child_rc(hwt_run(timer, timeout), -EOWNERDEAD);
	child_check(hwt_pending_timeouts(timer) == 0);
}

static void
check_inert_turns(struct hwt *timer)
{
	struct hwt_unprocessed unprocessed;
	uint64_t tasks_started = 5;
	uint64_t wait_ns = 5;

	child_rc(hwt_advance(timer, &tasks_started), -EOWNERDEAD);
	child_rc(hwt_next_wakeup(timer, &wait_ns), -EOWNERDEAD);
	child_check(tasks_started == 5 && wait_ns == 5);
	memset(&unprocessed, 0xff, sizeof(unprocessed));
	child_rc(hwt_stop(timer, &unprocessed), -EOWNERDEAD);
	child_check(unprocessed.count == 0);
	memset(&unprocessed, 0xff, sizeof(unprocessed));
	child_rc(hwt_stop_within(timer, 0, &unprocessed), -EOWNERDEAD);
	child_check(unprocessed.count == 0);
}

static void
check_inert_executors(struct family *family)
{
	size_t tasks_started = 5;

	child_check(hwt_pool_executor(family->pool) == NULL);
	child_rc(hwt_pool_post(family->pool, NULL, NULL), -EOWNERDEAD);
	child_rc(hwt_mailbox_post(family->mailbox, NULL, NULL), -EOWNERDEAD);
	child_check(hwt_mailbox_executor(family->mailbox) == NULL);
	child_rc(hwt_mailbox_fd(family->mailbox), -EOWNERDEAD);
	child_rc(
	    hwt_mailbox_run(family->mailbox, 0, &tasks_started), -EOWNERDEAD);
	child_check(tasks_started == 5);
}

static void
check_destroys(struct family *family)
{
	child_ok(hwt_destroy(family->timer));
	child_ok(hwt_destroy(family->manual));
	child_ok(hwt_destroy(family->stopped));
	child_ok(hwt_pool_destroy(family->pool));
	child_ok(hwt_mailbox_destroy(family->mailbox));
}

static void
child_await(const _Atomic uint64_t *word)
{
	while (*word == 0)
		sleep_ns(HWT_MS(1));
}

/* A life of its own, from the first timer to the last. */
static void
check_own_life(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct probe probes[3] = {0};
	struct hwt *timer;
	struct hwt_pool *pool;
	struct hwt_mailbox *mailbox;

	child_ok(hwt_create(&timer, &options));
	child_ok(hwt_pool_create(&pool, 1, 0));
	child_ok(hwt_mailbox_create(&mailbox));
	child_ok(hwt_new_timeout(timer, NULL, probe_task, &probes[0], 0));
	child_ok(hwt_new_timeout_on(
	    timer, hwt_pool_executor(pool), NULL, probe_task, &probes[1], 0));
	child_ok(hwt_new_timeout_on(timer, hwt_mailbox_executor(mailbox), NULL,
	    probe_task, &probes[2], 0));
	child_await(&probes[0].runs);
	child_await(&probes[1].runs);
	while (probes[2].runs == 0)
		child_ok(hwt_mailbox_run(mailbox, 0, NULL));
	child_ok(hwt_stop(timer, NULL));
	child_ok(hwt_pool_destroy(pool));
	child_ok(hwt_destroy(timer));
	child_ok(hwt_mailbox_destroy(mailbox));
}

/* Inert. */

static void
inert_child(void *arg)
{
	struct family *family = arg;
	struct hwt_timeout_info info;

	check_inert_timer(family->timer, family->timeout);
	check_inert_timer(family->manual, family->manual_timeout);
	check_inert_timer(family->stopped, family->timeout);
	check_inert_turns(family->timer);
	check_inert_turns(family->manual);
	check_inert_turns(family->stopped);
	check_inert_executors(family);
	child_check(!hwt_unprocessed_next(&family->unprocessed, &info));
}

FamilyTest(fork, in_a_child_all_that_it_inherits_is_inert)
{
	in_child(inert_child, &the_family);
}

static void
bad_arguments_child(void *arg)
{
	struct family *family = arg;
	struct hwt *timer = family->timer;
	hwt_timeout none = {0};
	hwt_timeout garbage = {UINT64_MAX};

	child_rc(hwt_new_timeout(timer, NULL, NULL, NULL, 0), -EOWNERDEAD);
	child_rc(
	    hwt_new_timeout(timer, NULL, forbidden_task, NULL, UINT64_MAX - 1),
	    -EOWNERDEAD);
	child_rc(hwt_new_timeouts(timer, 3, NULL, NULL), -EOWNERDEAD);
	child_rc(hwt_new_timeouts(timer, 0, NULL, NULL), -EOWNERDEAD);
	child_rc(hwt_cancel(timer, none), -EOWNERDEAD);
	child_rc(hwt_cancel_wait(timer, garbage), -EOWNERDEAD);
	child_rc(hwt_reschedule(timer, none, UINT64_MAX - 1), -EOWNERDEAD);
	child_rc(
	    hwt_new_timeout_at(timer, NULL, NULL, NULL, NULL, 0), -EOWNERDEAD);
	child_rc(
	    hwt_new_periodic(timer, NULL, NULL, NULL, NULL, 0, 0), -EOWNERDEAD);
	child_rc(hwt_touch(timer, NULL, NULL, NULL, NULL, UINT64_MAX - 1),
	    -EOWNERDEAD);
	child_rc(hwt_now(timer, NULL), -EOWNERDEAD);
	child_rc(hwt_state(timer, none, NULL), -EOWNERDEAD);
	child_rc(hwt_remaining(timer, garbage, NULL), -EOWNERDEAD);
	child_rc(hwt_read_stats(timer, NULL), -EOWNERDEAD);
	child_rc(hwt_run(timer, garbage), -EOWNERDEAD);
	child_rc(hwt_start(family->manual), -EOWNERDEAD);
	child_rc(hwt_advance(timer, NULL), -EOWNERDEAD);
	child_rc(hwt_next_wakeup(family->manual, NULL), -EOWNERDEAD);
}

FamilyTest(fork, eownerdead_comes_before_every_other_answer)
{
	in_child(bad_arguments_child, &the_family);
}

/* Destroying. */

static void
destroys_child(void *arg)
{
	struct family *family = arg;

	check_destroys(family);
	/* The descriptor was the child's copy, and is closed. */
	child_check(fcntl(family->mailbox_fd, F_GETFD) < 0);
}

FamilyTest(fork, in_a_child_destroys_do_not_join_and_leave_the_parents_alone)
{
	in_child(destroys_child, &the_family);
	in_child(destroys_child, &the_family);
}

static uint64_t
mapped_bytes(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	child_check(file != NULL && fscanf(file, "%lu", &pages) == 1);
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

#define BIG_WHEEL (UINT32_C(1) << 22)

static void
frees_child(void *arg)
{
	uint64_t before = mapped_bytes();

	child_ok(hwt_destroy(arg));
	/* A bucket has 8 bytes. */
	child_check(before - mapped_bytes() >= 8 * (uint64_t)BIG_WHEEL);
}

Test(fork, in_a_child_destroy_frees)
{
	struct hwt_options options = {.ticks_per_wheel = BIG_WHEEL};
	struct hwt *timer;

	assert_ok(hwt_create(&timer, &options));
	assert_ok(hwt_start(timer));

	in_child(frees_child, timer);

	assert_ok(hwt_stop(timer, NULL));
	assert_ok(hwt_destroy(timer));
}

/* The child's own. */

static void
own_life_child(void *arg)
{
	check_own_life();
	check_destroys(arg);
	/* Again in the memory that became free. */
	for (unsigned turn = 0; turn < 20; turn++)
		check_own_life();
}

FamilyTest(fork, a_child_can_make_its_own)
{
	in_child(own_life_child, &the_family);
}

static void
one_life_child(void *arg)
{
	(void)arg;
	check_own_life();
}

/* How often this thread has forked before it released a lock. */
static _Thread_local unsigned forks_with_lock;
static _Thread_local bool forks_at_unlock;

int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int
__wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	if (forks_at_unlock) {
		forks_at_unlock = false;
		in_child(one_life_child, NULL);
		forks_with_lock++;
		forks_at_unlock = true;
	}
	return __real_pthread_mutex_unlock(mutex);
}

/* Each lock of the library is held at the fork, as by a thread that the child
 * does not have. */
Test(fork, so_it_can_when_locks_are_held_at_the_fork)
{
	struct hwt_mailbox *mailbox;
	struct hwt_pool *pool;
	struct hwt *timer;

	forks_at_unlock = true;
	assert_ok(hwt_create(&timer, NULL));
	assert_ok(hwt_pool_create(&pool, 1, 0));
	assert_ok(hwt_mailbox_create(&mailbox));
	assert_ok(
	    hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_NEVER));
	assert_ok(hwt_stop(timer, NULL));
	assert_ok(hwt_pool_destroy(pool));
	assert_ok(hwt_mailbox_destroy(mailbox));
	assert_ok(hwt_destroy(timer));
	forks_at_unlock = false;

	cr_assert(forks_with_lock >= 5);
}

/* The shared timer. */

static void
shared_child(void *arg)
{
	struct hwt *inherited = arg;
	struct hwt *timer = NULL;
	struct hwt *again = NULL;
	struct hwt_unprocessed unprocessed;
	struct probe probe = {0};

	child_ok(hwt_shared(&timer));
	child_check(timer != inherited);
	child_ok(hwt_shared(&again));
	child_check(again == timer);
	child_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, 0));
	child_await(&probe.runs);
	child_ok(hwt_new_timeout(timer, NULL, forbidden_task, NULL, HOUR));
	child_ok(hwt_shared_shutdown(&unprocessed));
	child_check(unprocessed.count == 1);
	child_rc(hwt_shared(&again), -ESHUTDOWN);
}

Test(fork, in_a_child_hwt_shared_makes_a_new_one)
{
	struct hwt *timer;
	struct hwt *again;

	assert_ok(hwt_shared(&timer));

	in_child(shared_child, timer);

	assert_ok(hwt_shared(&again));
	cr_assert(again == timer);
	assert_u64(hwt_pending_timeouts(timer), 0);
	assert_ok(hwt_shared_shutdown(NULL));
}

Test(fork, so_it_does_when_the_parents_was_shut_down)
{
	struct hwt *timer;

	assert_ok(hwt_shared(&timer));
	assert_ok(hwt_shared_shutdown(NULL));

	in_child(shared_child, timer);

	assert_rc(hwt_shared(&timer), -ESHUTDOWN);
}

static void
shared_shutdown_child(void *arg)
{
	struct hwt *inherited = arg;
	struct hwt_unprocessed unprocessed;
	struct hwt *timer = NULL;

	check_inert_timer(inherited, (hwt_timeout){1});
	check_inert_turns(inherited);
	memset(&unprocessed, 0xff, sizeof(unprocessed));
	child_ok(hwt_shared_shutdown(&unprocessed));
	child_check(unprocessed.count == 0);
	child_rc(hwt_shared(&timer), -ESHUTDOWN);
	child_check(timer == NULL);
}

Test(fork, a_child_can_shut_down_what_it_never_made)
{
	struct hwt *timer;

	assert_ok(hwt_shared(&timer));
	assert_ok(hwt_new_timeout(timer, NULL, forbidden_task, NULL, HOUR));

	in_child(shared_shutdown_child, timer);

	assert_u64(hwt_pending_timeouts(timer), 1);
	assert_ok(hwt_shared_shutdown(NULL));
}

/* Inherited executors. */

struct heirloom {
	struct family *family;
	const struct hwt_executor *executors[2];
};

static void
heirloom_child(void *arg)
{
	struct heirloom *heirloom = arg;
	struct log_recorder log;
	struct hwt_log hook;

	log_recorder_init(&log);
	hook = log_recorder_hook(&log);
	for (unsigned index = 0; index < 2; index++) {
		struct hwt_options options = {.tick_ns = HWT_MS(1),
		    .log = &hook,
		    .executor = heirloom->executors[index]};
		struct probe probe = {0};
		struct hwt_stats stats;
		struct hwt *timer;

		child_ok(hwt_create(&timer, &options));
		child_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, 0));
		child_ok(hwt_new_timeout_on(timer, heirloom->executors[index],
		    NULL, probe_task, &probe, HWT_MS(2)));
		while (probe.runs < 2)
			sleep_ns(HWT_MS(1));
		child_ok(hwt_stop(timer, NULL));
		child_ok(hwt_read_stats(timer, &stats));
		child_check(stats.executor_refused == 2);
		child_check(stats.started == 2);
		child_ok(hwt_destroy(timer));
	}
	child_check(log_recorder_count(&log) == 2);
}

Test(fork, an_inherited_executor_refuses_what_a_child_gives_it)
{
	struct family family = {0};
	struct heirloom heirloom = {.family = &family};

	family_open(&family);
	heirloom.executors[0] = hwt_pool_executor(family.pool);
	heirloom.executors[1] = hwt_mailbox_executor(family.mailbox);

	in_child(heirloom_child, &heirloom);

	/* The eventfd is one for both. */
	cr_assert(!readable(family.mailbox_fd));
	family_close(&family);
}

/* From a task. */

struct forker {
	struct family *family;
	void (*body)(void *arg);
	_Atomic uint64_t child;
};

static void
then_forks(struct probe *probe)
{
	struct forker *forker = probe->data;

	forker->child = (uint64_t)child_fork(forker->body, forker);
}

/* The fork that the test has made in another thread, or in itself. */
static void
forker_judge(struct forker *forker)
{
	wait_for(&forker->child, 1);
	cr_assert(child_wait((pid_t)forker->child) == 0, "the child failed");
}

static void
task_child(void *arg)
{
	struct forker *forker = arg;
	struct family *family = forker->family;

	/* The copy of the task goes on: what it knew is inert, also the
	 * timeout that it is the task of. */
	check_inert_timer(family->timer, family->timeout);
	check_inert_timer(family->timer, family->probe.handle);
	check_inert_turns(family->timer);
	check_inert_turns(family->manual);
	check_inert_executors(family);
	check_own_life();
	check_destroys(family);
	check_own_life();
}

/* The first timer after the destroys may well lie where the old one lay. */
static void
reusing_task_child(void *arg)
{
	struct forker *forker = arg;

	check_destroys(forker->family);
	for (unsigned turn = 0; turn < 50; turn++)
		check_own_life();
}

static void (*const task_bodies[])(void *arg) = {
    task_child, reusing_task_child};

static void
fork_from_task(const struct hwt_executor *executor, struct family *family,
    void (*body)(void *arg))
{
	struct forker forker = {.family = family, .body = body};

	family->probe = (struct probe){.then = then_forks, .data = &forker};
	assert_ok(hwt_new_timeout_on(family->timer, executor,
	    &family->probe.handle, probe_task, &family->probe, 0));
	while (executor != NULL && forker.child == 0)
		assert_ok(hwt_mailbox_run(family->mailbox, 0, NULL));
	forker_judge(&forker);
	wait_for(&family->probe.runs, 1);
}

/* In the worker, in the pool, and in the mailbox. */
Test(fork, a_task_can_fork_wherever_it_runs)
{
	for (unsigned index = 0; index < 6; index++) {
		struct family family = {0};
		const struct hwt_executor *executors[3] = {NULL};

		family_open(&family);
		executors[1] = hwt_pool_executor(family.pool);
		executors[2] = hwt_mailbox_executor(family.mailbox);
		fork_from_task(
		    executors[index / 2], &family, task_bodies[index % 2]);
		family_close(&family);
	}
}

static int
forking_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct forker *forker = ctx;

	(void)timer;
	(void)timeout;
	forker->child = (uint64_t)child_fork(forker->body, forker);
	return -EAGAIN;
}

Test(fork, an_executor_can_fork_in_execute)
{
	struct family family = {0};
	struct forker forker = {.family = &family, .body = task_child};
	struct hwt_executor executor = {
	    .execute = forking_execute, .ctx = &forker};

	family_open(&family);
	assert_ok(hwt_new_timeout_on(family.timer, &executor,
	    &family.probe.handle, probe_task, &family.probe, 0));

	forker_judge(&forker);

	wait_for(&family.probe.runs, 1);
	family_close(&family);
}

/* A task whose copy in the child returns: what has called it must leave all
 * alone, and come back to where the child's own code begins. For a thread of
 * the library, that is its end, which a destructor sees. */

#define CHILD_LEFT 12

struct returner {
	_Atomic uint64_t child;
	pthread_key_t thread_end;
	bool in_child;
};

static void
forbidden_line(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	child_require(false, __FILE__, __LINE__, message);
}

/* No thread of the parent counts among the child's workers, not even the one
 * whose copy ends. */
static void
check_only_worker(void)
{
	struct hwt_log log = {.write = forbidden_line};
	struct hwt_options options = {.tick_ns = HWT_MS(1), .log = &log};
	struct probe probe = {0};
	struct hwt *timer;

	child_ok(hwt_create(&timer, &options));
	child_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, 0));
	while (probe.runs == 0)
		sleep_ns(HWT_MS(1));
	child_ok(hwt_stop(timer, NULL));
	child_ok(hwt_destroy(timer));
}

static void
leave_child(void *returner)
{
	(void)returner;
	check_only_worker();
	_exit(CHILD_LEFT);
}

static void
returner_fork(struct returner *returner)
{
	pid_t child = child_split();

	returner->in_child = child == 0;
	if (child != 0) {
		returner->child = (uint64_t)child;
		return;
	}
	check_only_worker();
	(void)pthread_setspecific(returner->thread_end, returner);
}

static void
then_returns(struct probe *probe)
{
	returner_fork(probe->data);
}

static void
then_is_no_child(struct probe *probe)
{
	const struct returner *returner = probe->data;

	if (returner->in_child)
		_exit(1);
}

static int
returning_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)timer;
	(void)timeout;
	returner_fork(ctx);
	return -EAGAIN;
}

static void
returning_write(void *ctx, int level, const char *message)
{
	(void)level;
	(void)message;
	returner_fork(ctx);
}

static void
returner_judge(struct returner *returner)
{
	wait_for(&returner->child, 1);
	assert_u64((uint64_t)child_wait((pid_t)returner->child), CHILD_LEFT);
}

static void
returner_open(struct returner *returner)
{
	*returner = (struct returner){0};
	cr_assert(pthread_key_create(&returner->thread_end, leave_child) == 0);
}

static struct hwt *
slow_timer_open(void)
{
	struct hwt_options options = {
	    .tick_ns = HWT_MS(1), .slow_task_ns = HWT_SEC(60)};
	struct hwt *timer;

	assert_ok(hwt_create(&timer, &options));
	return timer;
}

/* With a slow_task_ns, the worker looks at the clock after the task. An
 * executor may still be about to tell the timer that the task has ended. */
static struct hwt *
return_from_worker(const struct hwt_executor *executor, struct probe *probe,
    struct returner *returner)
{
	struct hwt *timer = slow_timer_open();

	assert_ok(
	    hwt_new_timeout_on(timer, executor, NULL, probe_task, probe, 0));
	returner_judge(returner);
	wait_for(&probe->runs, 1);
	assert_ok(hwt_stop(timer, NULL));
	return timer;
}

Test(fork, a_task_that_returns_in_the_child_ends_the_copy_of_the_worker)
{
	struct returner returner;
	struct probe probe = {.then = then_returns, .data = &returner};

	returner_open(&returner);

	assert_ok(hwt_destroy(return_from_worker(NULL, &probe, &returner)));
}

Test(fork, an_execute_that_returns_in_the_child_ends_the_copy_of_the_worker)
{
	struct returner returner;
	struct hwt_executor executor = {
	    .execute = returning_execute, .ctx = &returner};
	struct probe probe = {.then = then_is_no_child, .data = &returner};

	returner_open(&returner);

	assert_ok(
	    hwt_destroy(return_from_worker(&executor, &probe, &returner)));
}

Test(fork, a_write_that_returns_in_the_child_ends_the_copy_of_the_worker)
{
	struct returner returner;
	struct hwt_log log = {.write = returning_write, .ctx = &returner};
	struct recording_executor executor;
	struct hwt_options options = {
	    .tick_ns = HWT_MS(1), .log = &log, .executor = &executor.hook};
	struct probe probe = {.then = then_is_no_child, .data = &returner};
	struct hwt *timer;

	returner_open(&returner);
	executor_init(&executor, EXECUTOR_REFUSES);
	assert_ok(hwt_create(&timer, &options));
	assert_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, 0));

	returner_judge(&returner);

	wait_for(&probe.runs, 1);
	worker_timer_close(timer);
}

Test(fork, a_task_that_returns_in_the_child_ends_the_copy_of_a_pool_thread)
{
	struct returner returner;
	struct probe probe = {.then = then_returns, .data = &returner};
	struct hwt_pool *pool;
	struct hwt *timer;

	returner_open(&returner);
	assert_ok(hwt_pool_create(&pool, 1, 0));

	timer = return_from_worker(hwt_pool_executor(pool), &probe, &returner);

	assert_ok(hwt_pool_destroy(pool));
	assert_ok(hwt_destroy(timer));
}

Test(fork, a_task_that_returns_in_the_child_gets_back_to_the_loop_of_a_mailbox)
{
	struct returner returner;
	struct probe probe = {.then = then_returns, .data = &returner};
	struct hwt *timer = slow_timer_open();
	struct hwt_mailbox *mailbox;
	int rc = 0;

	returner_open(&returner);
	assert_ok(hwt_mailbox_create(&mailbox));
	assert_ok(hwt_new_timeout_on(
	    timer, hwt_mailbox_executor(mailbox), NULL, probe_task, &probe, 0));

	while (probe.runs == 0)
		rc = hwt_mailbox_run(mailbox, 0, NULL);

	if (returner.in_child)
		_exit(rc == -EOWNERDEAD ? CHILD_LEFT : 1);
	assert_ok(rc);
	returner_judge(&returner);
	worker_timer_close(timer);
	assert_ok(hwt_mailbox_destroy(mailbox));
}

ManualTest(fork, a_task_that_returns_in_the_child_gets_back_to_hwt_advance)
{
	struct returner returner;
	struct probe probe = {.then = then_returns, .data = &returner};
	uint64_t tasks_started = 5;
	int rc;

	returner_open(&returner);
	probe_schedule(&probe, 0);
	manual.now_ns += FIXTURE_TICK;

	rc = hwt_advance(manual.timer, &tasks_started);

	if (returner.in_child)
		_exit(rc == -EOWNERDEAD && tasks_started == 5 ? CHILD_LEFT : 1);
	assert_ok(rc);
	assert_u64(tasks_started, 1);
	returner_judge(&returner);
}

/* While others are at work. */

static void
mailed_child(void *arg)
{
	struct family *family = arg;

	/* Its parent's timeouts are none of its business. */
	check_inert_executors(family);
	child_ok(hwt_mailbox_destroy(family->mailbox));
	child_ok(hwt_destroy(family->timer));
}

FamilyTest(fork, a_mailbox_with_timeouts_in_it_is_inert_and_can_be_destroyed)
{
	static struct probe probe = {0};

	assert_ok(hwt_new_timeout_on(the_family.timer,
	    hwt_mailbox_executor(the_family.mailbox), NULL, probe_task, &probe,
	    0));
	while (!readable(the_family.mailbox_fd))
		sleep_ns(HWT_MS(1));

	in_child(mailed_child, &the_family);

	assert_u64(probe.runs, 0);
	assert_ok(hwt_mailbox_run(the_family.mailbox, 0, NULL));
	assert_u64(probe.runs, 1);
}
