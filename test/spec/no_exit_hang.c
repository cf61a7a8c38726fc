/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no-exit-hang: a live timer does not keep a process from ending by exit or
 * return from main; dlclose does not unmap running code.
 *
 * Each role leaves by exit with a status of its own. One that hangs is killed
 * after a minute.
 */
#include "test/spec/support.h"

#include <dlfcn.h>

SUITE(no_exit_hang);

#define HOUR HWT_SEC(3600)

static _Atomic uint64_t entered;

static struct hwt *
role_timer(void)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt *timer;

	child_ok(hwt_create(&timer, &options));
	return timer;
}

static void
role_schedule(struct hwt *timer, const struct hwt_executor *executor,
    hwt_task *task, uint64_t delay_ns)
{
	child_ok(
	    hwt_new_timeout_on(timer, executor, NULL, task, NULL, delay_ns));
}

static void
role_await(const _Atomic uint64_t *word, uint64_t value)
{
	while (*word < value)
		sleep_ns(HWT_MS(1));
}

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
exit_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	exit(LEFT_BY_EXIT);
}

static void
role_pending(void)
{
	struct hwt *timer = role_timer();

	role_schedule(timer, NULL, forbidden_task, HOUR);
	role_schedule(timer, NULL, forbidden_task, HWT_NEVER);
}

static void
role_running(void)
{
	role_schedule(role_timer(), NULL, endless_task, 0);
	role_await(&entered, 1);
}

static void
role_exit_in_task(void)
{
	role_schedule(role_timer(), NULL, exit_task, 0);
	for (;;)
		pause();
}

/* A thread of the pool is in a task, another sleeps, the mailbox is full. */
static void
role_executors(void)
{
	struct hwt *timer = role_timer();
	static struct hwt_mailbox *mailbox;
	static struct hwt_pool *pool;

	child_ok(hwt_pool_create(&pool, 2, 0));
	child_ok(hwt_mailbox_create(&mailbox));
	role_schedule(timer, hwt_mailbox_executor(mailbox), forbidden_task, 0);
	role_schedule(timer, hwt_pool_executor(pool), endless_task, HWT_MS(2));
	role_await(&entered, 1);
}

static void
role_shared(void)
{
	struct hwt *timer;

	child_ok(hwt_shared(&timer));
	role_schedule(timer, NULL, forbidden_task, HOUR);
}

static struct hwt *last_timer;

static void
use_last_timer(void)
{
	struct probe probe = {0};

	child_ok(hwt_new_timeout(last_timer, NULL, probe_task, &probe, 0));
	role_await(&probe.runs, 1);
}

static void
role_atexit(void)
{
	last_timer = role_timer();
	child_ok(hwt_start(last_timer));
	child_ok(atexit(use_last_timer));
}

/* The library as a plug-in: opened, used, closed, and still running. */
static void
role_plugin(void)
{
	int (*create)(struct hwt **, const struct hwt_options *);
	int (*periodic)(struct hwt *, const struct hwt_executor *,
	    hwt_timeout *, hwt_task *, void *, uint64_t, uint64_t);
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};
	void *library = library_open();
	static struct probe probe;
	struct hwt *timer;

	*(void **)&create = dlsym(library, "hwt_create");
	*(void **)&periodic = dlsym(library, "hwt_new_periodic");
	child_check(create != NULL && periodic != NULL);
	child_ok(create(&timer, &options));
	child_ok(periodic(timer, NULL, NULL, probe_task, &probe, 0, HWT_MS(1)));
	child_ok(dlclose(library));
	role_await(&probe.runs, probe.runs + 20);
}

static const struct role roles[] = {
    {"pending timeouts", role_pending},
    {"a task that never returns", role_running},
    {"exit called by a task", role_exit_in_task},
    {"live pools and mailboxes", role_executors},
    {"the shared timer", role_shared},
    {"a handler of atexit that uses a timer", role_atexit},
    {"a library that was closed and still runs", role_plugin},
};

ROLES(roles)

Test(no_exit_hang, process_exits_whatever_its_timers_are_doing)
{
	for (unsigned i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		cr_assert(role_run(roles[i].name, NULL, NULL) == LEFT_BY_EXIT,
		    "with %s", roles[i].name);
}
