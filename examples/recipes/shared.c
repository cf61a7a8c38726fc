/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One timer for many libraries. Two libraries that know nothing of each other
 * get the same timer and thread from hwt_shared. A library ends its own
 * timeouts, with hwt_cancel_wait; the timer itself belongs to the application,
 * whose last act may be to stop it. What takes long, or blocks, goes to an
 * executor of the library: the thread is everybody's.
 */
#include <errno.h>
#include <hwt.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "../must.h"

/* A library that refreshes something every now and then. */
static struct {
	struct hwt *timer;
	hwt_timeout refresh;
	atomic_uint refreshes;
	sem_t has_refreshed;
} cache;

static void
cache_refresh(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	atomic_fetch_add(&cache.refreshes, 1);
	sem_post(&cache.has_refreshed);
}

static int
cache_open(void)
{
	int error = hwt_shared(&cache.timer);

	if (error != 0)
		return error;
	sem_init(&cache.has_refreshed, 0, 0);
	return hwt_new_periodic(cache.timer, NULL, &cache.refresh,
	    cache_refresh, NULL, 0, HWT_MS(10));
}

/* When it returns, no code of this library runs in the timer: it could be
 * unloaded. */
static void
cache_close(void)
{
	must(hwt_cancel_wait(cache.timer, cache.refresh) == 0);
}

/* Another, with slow tasks: it has a pool. */
static struct {
	struct hwt *timer;
	struct hwt_pool *pool;
	hwt_timeout report;
	sem_t may_end;
} reporter;

static void
report_slowly(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	sem_wait(&reporter.may_end);
}

static int
reporter_open(void)
{
	int error = hwt_shared(&reporter.timer);

	if (error == 0)
		error = hwt_pool_create(&reporter.pool, 1, 0);
	if (error != 0)
		return error;
	sem_init(&reporter.may_end, 0, 0);
	return hwt_new_timeout_on(reporter.timer,
	    hwt_pool_executor(reporter.pool), &reporter.report, report_slowly,
	    NULL, 0);
}

static void
reporter_close(void)
{
	sem_post(&reporter.may_end);
	(void)!hwt_cancel_wait(reporter.timer, reporter.report);
	must(hwt_pool_destroy(reporter.pool) == 0);
}

int
main(void)
{
	int i;

	must(cache_open() == 0 && reporter_open() == 0);
	must(cache.timer == reporter.timer);

	/* The slow task delays nobody. */
	for (i = 0; i < 5; i++)
		sem_wait(&cache.has_refreshed);

	/* Nobody can stop it under the others. */
	must(hwt_stop(cache.timer, NULL) == -EPERM);
	cache_close();
	reporter_close();
	must(hwt_pending_timeouts(cache.timer) == 0);
	must(hwt_shared_shutdown(NULL) == 0);
	must(hwt_shared(&cache.timer) == -ESHUTDOWN);
	printf("two libraries, one timer\n");
	return 0;
}
