/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt itself, which is scheme 6: a manual timer, turned by one tick at a time
 * through the public interface. It does more than the schemes beside it: any
 * thread might call, without a lock, and stale handles are refused. It reads no
 * clock of the system here: its clock is the tick.
 */
#include "perf/perf.h"
#include "perf/schemes/scheme.h"

static struct {
	struct hwt *timer;
	uint64_t now_ns;
} own;

static const uint64_t own_tick_ns = HWT_MS(1);

static uint64_t
own_now_ns(void *unused)
{
	(void)unused;
	return own.now_ns;
}

static void
own_create(uint64_t capacity, uint64_t range)
{
	const struct hwt_clock clock = {.now_ns = own_now_ns};
	struct hwt_options options = {.tick_ns = own_tick_ns,
	    .ticks_per_wheel = HASHED_BUCKETS,
	    .flags = HWT_MANUAL,
	    .clock = &clock};

	(void)capacity;
	(void)range;
	own.now_ns = HWT_SEC(1);
	perf_must(!hwt_create(&own.timer, &options), "hwt_create");
}

static void
own_destroy(void)
{
	perf_must(!hwt_stop(own.timer, NULL) && !hwt_destroy(own.timer),
	    "hwt_destroy");
}

static void
own_task(hwt_timeout timeout, void *who)
{
	(void)timeout;
	expire((uint32_t)(uintptr_t)who);
}

static uint64_t
own_start(uint64_t interval, uint32_t who)
{
	hwt_timeout timeout;

	perf_must(!hwt_new_timeout(own.timer, &timeout, own_task,
		      (void *)(uintptr_t)who, interval * own_tick_ns),
	    "hwt_new_timeout");
	return timeout.id;
}

static void
own_stop(uint64_t handle)
{
	perf_must(!hwt_cancel(own.timer, (hwt_timeout){handle}), "hwt_cancel");
}

/* Takes over what was queued: no time has passed. */
static void
own_settle(void)
{
	perf_must(!hwt_advance(own.timer, NULL), "hwt_advance");
}

static void
own_tick(void)
{
	own.now_ns += own_tick_ns;
	own_settle();
}

const struct scheme scheme = {
    .what = "hwt, a manual timer that any thread may call",
    .start_cost = "O(1)",
    .stop_cost = "O(1)",
    .tick_cost = "O(1)avg|O(n)worst",
    .create = own_create,
    .destroy = own_destroy,
    .start = own_start,
    .stop = own_stop,
    .tick = own_tick,
    .settle = own_settle};
