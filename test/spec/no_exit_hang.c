/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no-exit-hang: a live timer does not keep a process from ending by exit or
 * return from main, which is the same; dlclose does not unmap running code.
 *
 * The runner's own process must not exit, so each test executes this binary
 * anew, with a role to play in the environment. A constructor plays it, long
 * before the runner's main, and leaves by exit with a status of its own. Who
 * hangs is killed after a minute.
 */
#include "test/spec/support_promises.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SUITE(no_exit_hang);

#define ROLE "HWT_TEST_ROLE"
#define HOUR HWT_SEC(3600)

/* The status that only exit at the right place gives. */
#define LEFT_BY_EXIT 17

static struct hwt *
role_timer(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt *timer;

	child_ok(hwt_create(&timer, &options));
	return timer;
}

static void
role_pending(void)
{
	struct hwt *timer = role_timer();

	child_ok(hwt_new_timeout(timer, NULL, forbidden_task, NULL, HOUR));
	child_ok(hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_NEVER));
	exit(LEFT_BY_EXIT);
}

static _Atomic uint64_t entered;

static void
endless_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	entered++;
	for (;;)
		pause();
}

static void
role_await(const _Atomic uint64_t *word, uint64_t value)
{
	while (*word < value)
		sleep_ns(HWT_MS(1));
}

static void
role_running(void)
{
	child_ok(hwt_new_timeout(role_timer(), NULL, endless_task, NULL, 0));
	role_await(&entered, 1);
	exit(LEFT_BY_EXIT);
}

static void
exit_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	exit(LEFT_BY_EXIT);
}

static void
role_exit_in_task(void)
{
	child_ok(hwt_new_timeout(role_timer(), NULL, exit_task, NULL, 0));
	for (;;)
		pause();
}

static void
role_executors(void)
{
	struct hwt *timer = role_timer();
	struct hwt_pool *pool;
	struct hwt_mailbox *mailbox;

	/* One thread of the pool is in a task, the other sleeps; the mailbox
	 * holds what nobody runs. */
	child_ok(hwt_pool_create(&pool, 2, 0));
	child_ok(hwt_mailbox_create(&mailbox));
	child_ok(hwt_new_timeout_on(
	    timer, hwt_pool_executor(pool), NULL, endless_task, NULL, 0));
	for (unsigned index = 0; index < 3; index++)
		child_ok(
		    hwt_new_timeout_on(timer, hwt_mailbox_executor(mailbox),
			NULL, forbidden_task, NULL, 0));
	role_await(&entered, 1);
	exit(LEFT_BY_EXIT);
}

static void
role_shared(void)
{
	struct hwt *timer;

	child_ok(hwt_shared(&timer));
	child_ok(hwt_new_timeout(timer, NULL, forbidden_task, NULL, HOUR));
	exit(LEFT_BY_EXIT);
}

static _Atomic uint64_t churned;

static void *
churn_main(void *arg)
{
	struct hwt *timer = arg;
	hwt_timeout timeout;

	for (;;) {
		child_ok(hwt_new_timeout(timer, &timeout, idle_task, NULL, 0));
		(void)!hwt_cancel(timer, timeout);
		churned++;
	}
	return NULL;
}

static void
role_churning(void)
{
	struct hwt *timer = role_timer();
	pthread_t thread;

	child_ok(pthread_create(&thread, NULL, churn_main, timer));
	role_await(&churned, 10000);
	exit(LEFT_BY_EXIT);
}

static void *
stop_main(void *arg)
{
	(void)!hwt_stop(arg, NULL);
	child_check(!"the stop waits for a task without end");
	return NULL;
}

static void
role_stopping(void)
{
	struct hwt *timer = role_timer();
	pthread_t thread;

	child_ok(hwt_new_timeout(timer, NULL, endless_task, NULL, 0));
	role_await(&entered, 1);
	child_ok(pthread_create(&thread, NULL, stop_main, timer));
	while (hwt_new_timeout(timer, NULL, idle_task, NULL, 0) != -ESHUTDOWN)
		sleep_ns(HWT_MS(1));
	exit(LEFT_BY_EXIT);
}

static struct hwt *last_timer;

static void
last_act(void)
{
	struct probe probe = {0};
	hwt_timeout timeout;

	child_ok(hwt_new_timeout(last_timer, NULL, probe_task, &probe, 0));
	role_await(&probe.runs, 1);
	child_ok(
	    hwt_new_timeout(last_timer, &timeout, forbidden_task, NULL, HOUR));
	child_ok(hwt_cancel(last_timer, timeout));
}

static void
role_atexit(void)
{
	last_timer = role_timer();
	child_ok(hwt_start(last_timer));
	child_ok(atexit(last_act));
	exit(LEFT_BY_EXIT);
}

/* The list of live timers that it inherits has one that was freed. It is
 * stopped, since who walks the list ends at one that is not. */
static void
role_destroys_in_a_child(void)
{
	struct hwt *timer = role_timer();
	pid_t child;

	child_ok(hwt_stop(timer, NULL));
	child = fork();
	child_check(child >= 0);
	if (child == 0) {
		child_ok(hwt_destroy(timer));
		exit(LEFT_BY_EXIT);
	}
	exit(child_reap(child));
}

/* The library as a plug-in: opened, used, closed, and still running. */
static void
role_dlclosed(void)
{
	int (*create)(struct hwt **, const struct hwt_options *);
	int (*schedule)(
	    struct hwt *, size_t, const struct hwt_spec *, hwt_timeout *);
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct probe probe = {0};
	struct hwt_spec spec = {
	    .task = probe_task, .arg = &probe, .period_ns = HWT_MS(1)};
	void *library = library_open();
	struct hwt *timer;

	*(void **)&create = dlsym(library, "hwt_create");
	*(void **)&schedule = dlsym(library, "hwt_new_timeouts");
	child_check(create != NULL && schedule != NULL);
	child_ok(create(&timer, &options));
	child_ok(schedule(timer, 1, &spec, NULL));
	child_ok(dlclose(library));
	role_await(&probe.runs, probe.runs + 20);
	exit(LEFT_BY_EXIT);
}

static const struct {
	const char *name;
	void (*play)(void);
} roles[] = {
    {"pending", role_pending},
    {"running", role_running},
    {"exit_in_task", role_exit_in_task},
    {"executors", role_executors},
    {"shared", role_shared},
    {"churning", role_churning},
    {"stopping", role_stopping},
    {"atexit", role_atexit},
    {"destroys_in_a_child", role_destroys_in_a_child},
    {"dlclosed", role_dlclosed},
};

__attribute__((constructor)) static void
play_role(void)
{
	const char *name = getenv(ROLE);

	if (name == NULL)
		return;
	for (size_t index = 0; index < sizeof(roles) / sizeof(roles[0]);
	     index++)
		if (strcmp(roles[index].name, name) == 0)
			roles[index].play();
	child_check(!"there is no such role");
}

static void
become(void *arg)
{
	char name[] = "hwt-test";
	char *const argv[] = {name, NULL};

	child_ok(setenv(ROLE, arg, 1));
	(void)execv("/proc/self/exe", argv);
	child_check(!"the binary cannot be executed again");
}

static void
assert_exits(const char *name)
{
	char role[32];

	snprintf(role, sizeof(role), "%s", name);
	cr_assert(child_wait(child_fork(become, role)) == LEFT_BY_EXIT);
}

Test(no_exit_hang, a_live_timer_with_pending_timeouts_lets_it_exit)
{
	assert_exits("pending");
}

Test(no_exit_hang, a_task_that_never_returns_lets_it_exit)
{
	assert_exits("running");
}

Test(no_exit_hang, a_task_can_exit)
{
	assert_exits("exit_in_task");
}

Test(no_exit_hang, live_pools_and_mailboxes_let_it_exit)
{
	assert_exits("executors");
}

Test(no_exit_hang, the_shared_timer_lets_it_exit)
{
	assert_exits("shared");
}

Test(no_exit_hang, other_threads_may_schedule_until_the_end)
{
	assert_exits("churning");
}

Test(no_exit_hang, a_stop_that_waits_lets_it_exit)
{
	assert_exits("stopping");
}

Test(no_exit_hang, a_timer_serves_the_handlers_of_atexit)
{
	assert_exits("atexit");
}

Test(no_exit_hang, a_child_that_has_destroyed_its_parents_timer_exits)
{
	assert_exits("destroys_in_a_child");
}

Test(no_exit_hang, a_library_that_was_closed_goes_on_running)
{
	assert_exits("dlclosed");
}
