/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_create and struct hwt_options: ranges, defaults, what is copied. */
#include "test/spec/support.h"

#include <syslog.h>

SUITE(options);

static uint64_t
some_clock(void *ctx)
{
	(void)ctx;
	return 1;
}

static const struct hwt_clock clock_hook = {.now_ns = some_clock};
static const struct hwt_executor no_executor;
static const struct hwt_clock no_clock;
static const struct hwt_wake no_wake;
static const struct hwt_log no_log;

static const struct {
	const char *what;
	struct hwt_options options;
	bool accepted;
} rows[] = {
    {"tick of 10 us", {.tick_ns = 10000}, true},
    {"tick below 10 us", {.tick_ns = 9999}, false},
    {"tick * 512 at 2^63", {.tick_ns = UINT64_C(1) << 54}, false},
    {"tick * 512 below 2^63", {.tick_ns = (UINT64_C(1) << 54) - 1}, true},
    {"tick * 1 at 2^63", {.tick_ns = UINT64_C(1) << 63, .ticks_per_wheel = 1},
	false},
    {"tick * 1 below 2^63",
	{.tick_ns = (UINT64_C(1) << 63) - 1, .ticks_per_wheel = 1}, true},
    {"3 ticks count as 4", {.tick_ns = UINT64_C(1) << 61, .ticks_per_wheel = 3},
	false},
    {"3 ticks count as no more than 4",
	{.tick_ns = (UINT64_C(1) << 61) - 1, .ticks_per_wheel = 3}, true},
    {"wheel above 2^30", {.ticks_per_wheel = (1u << 30) + 1}, false},
    {"name of 15 bytes", {.thread_name = "fifteen-bytes-x"}, true},
    {"name of 16 bytes", {.thread_name = "sixteen-bytes-xy"}, false},
    {"empty name", {.thread_name = ""}, true},
    {"clock of a manual timer", {.flags = HWT_MANUAL, .clock = &clock_hook},
	true},
    {"clock without HWT_MANUAL", {.clock = &clock_hook}, false},
    {"wake without HWT_MANUAL", {.wake = &no_wake}, false},
    {"executor without execute", {.executor = &no_executor}, false},
    {"clock without now_ns", {.flags = HWT_MANUAL, .clock = &no_clock}, false},
    {"wake without wake", {.flags = HWT_MANUAL, .wake = &no_wake}, false},
    {"log without write", {.log = &no_log}, false},
};

/* On failure the pointer is as before. */
static void
assert_accepted(
    const char *what, const struct hwt_options *options, bool accepted)
{
	struct hwt *const before = (struct hwt *)&manual;
	struct hwt *timer = before;
	int rc = hwt_create(&timer, options);

	cr_assert(rc == (accepted ? 0 : -EINVAL), "%s: %s", what, rc_name(rc));
	cr_assert((timer != before) == accepted);
	if (accepted)
		worker_timer_close(timer);
}

Test(options, values_outside_their_range_are_refused_and_none_is_clamped)
{
	struct hwt_options options = {0};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_accepted(
		    rows[i].what, &rows[i].options, rows[i].accepted);
	for (unsigned bit = 2; bit < 32; bit++) {
		options.flags = UINT32_C(1) << bit;
		assert_accepted("an unknown flag", &options, false);
	}
	options.flags = 0;
	for (size_t i = 0; i < sizeof(options.reserved) / 8; i++) {
		options.reserved[i] = UINT64_C(1) << 63;
		assert_accepted("a reserved word", &options, false);
		options.reserved[i] = 0;
	}
}

static void
assert_worker_name(const char *option, const char *name)
{
	live_open(&(struct hwt_options){.thread_name = option});
	assert_ok(hwt_start(live.timer));
	thread_await(name, 1);
	live_close();
}

Test(options, worker_thread_has_the_name_of_the_option)
{
	assert_worker_name(NULL, "hwt-worker");
	assert_worker_name("fifteen-bytes-x", "fifteen-bytes-x");
}

static void
then_measure_stack(struct probe *probe)
{
	pthread_attr_t attr;

	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstacksize(&attr, probe->data);
	pthread_attr_destroy(&attr);
}

Test(options, worker_thread_has_the_attributes_of_the_option)
{
	size_t stack_size = 0;
	struct probe probe = {.then = then_measure_stack, .data = &stack_size};
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 20);
	live_open(&(struct hwt_options){.thread_attr = &attr});
	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);

	cr_assert(stack_size >= 1 << 20 && stack_size < 1 << 21);
	live_close();
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	assert_accepted("detached attributes",
	    &(struct hwt_options){.thread_attr = &attr}, false);
	pthread_attr_destroy(&attr);
}

ManualTestWith(options, default_tick_is_100_ms, 0)
{
	schedule_forbidden(1);

	assert_u64(manual_wait(), HWT_MS(100));
}

/* Timers that have no running worker do not count. */
Test(options, running_worker_beyond_64_is_warned_of_once_per_process)
{
	const struct hwt_log log = log_recorder_hook(&manual.log);
	struct hwt_options options = {.tick_ns = HWT_MS(1), .log = &log};
	struct hwt *timers[66];

	memset(&manual.log, 0, sizeof(manual.log));
	for (unsigned i = 0; i < 66; i++)
		assert_ok(hwt_create(&timers[i], &options));
	for (unsigned i = 0; i < 66; i++) {
		struct probe probe = {0};

		assert_u64(manual.log.count, i > 64);
		assert_ok(
		    hwt_new_timeout(timers[i], NULL, probe_task, &probe, 0));
		wait_for(&probe.runs, 1);
	}

	assert_u64(manual.log.count, 1);
	assert_i64(manual.log.lines[0].level, LOG_WARNING);
	for (unsigned i = 0; i < 66; i++)
		worker_timer_close(timers[i]);
}
