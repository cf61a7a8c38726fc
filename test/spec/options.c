/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_create and struct hwt_options: every edge of every option, what is
 * copied, what a failure leaves behind, where warnings go.
 */
#include "test/spec/support.h"

#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

SUITE(options);

static struct recording_executor executor;

/* What hwt_create answers; a timer that it made is destroyed. */
static int
create_rc(const struct hwt_options *options)
{
	struct hwt *timer = NULL;
	int rc = hwt_create(&timer, options);

	if (rc == 0) {
		cr_assert(timer != NULL);
		worker_timer_close(timer);
	}
	return rc;
}

static int
create_rc_of_tick(uint64_t tick_ns, uint32_t ticks_per_wheel)
{
	return create_rc(&(struct hwt_options){
	    .tick_ns = tick_ns, .ticks_per_wheel = ticks_per_wheel});
}

struct thread_facts {
	char name[16];
	size_t stack_size;
	_Atomic uint64_t known;
};

static void
find_thread_facts(struct thread_facts *facts)
{
	pthread_attr_t attr;

	pthread_getname_np(pthread_self(), facts->name, sizeof(facts->name));
	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstacksize(&attr, &facts->stack_size);
	pthread_attr_destroy(&attr);
	facts->known = 1;
}

static void
thread_facts_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	find_thread_facts(arg);
}

static void *
thread_facts_main(void *arg)
{
	find_thread_facts(arg);
	return NULL;
}

/* Runs a task in timer's worker, which tells about its thread. */
static void
worker_facts(struct hwt *timer, struct thread_facts *facts)
{
	assert_ok(hwt_new_timeout(timer, NULL, thread_facts_task, facts, 0));
	wait_for(&facts->known, 1);
}

Test(options, a_null_timer_pointer_is_refused)
{
	assert_rc(hwt_create(NULL, NULL), -EINVAL);
}

Test(options, null_options_make_a_timer_with_a_worker)
{
	struct thread_facts facts = {0};
	struct hwt *timer = NULL;

	assert_ok(hwt_create(&timer, NULL));
	worker_facts(timer, &facts);

	cr_assert_str_eq(facts.name, "hwt-worker");
	assert_rc(hwt_advance(timer, NULL), -EINVAL);
	worker_timer_close(timer);
}

Test(options, a_failure_leaves_the_timer_pointer_untouched)
{
	struct hwt *const before = (struct hwt *)&manual;
	struct hwt *timer = before;

	assert_rc(
	    hwt_create(&timer, &(struct hwt_options){.tick_ns = 1}), -EINVAL);

	cr_assert(timer == before);
}

Test(options, a_tick_below_10_us_is_refused)
{
	assert_rc(create_rc_of_tick(1, 0), -EINVAL);
	assert_rc(create_rc_of_tick(9999, 0), -EINVAL);
}

Test(options, a_tick_of_10_us_and_more_is_accepted_to_the_nanosecond)
{
	const uint64_t ticks[] = {10000, 10001, 1234567};

	for (size_t index = 0; index < 3; index++) {
		memset(&manual, 0, sizeof(manual));
		manual_open(&(struct hwt_options){.tick_ns = ticks[index]});
		assert_ok(hwt_new_timeout(
		    manual.timer, NULL, forbidden_task, NULL, 1));
		assert_u64(manual_wait(), ticks[index]);
		manual_close();
	}
}

Test(options, tick_times_wheel_must_be_below_2_to_the_63)
{
	const struct {
		uint32_t ticks_per_wheel;
		uint64_t tick_ns_max;
	} edges[] = {
	    {1, (UINT64_C(1) << 63) - 1},
	    {2, (UINT64_C(1) << 62) - 1},
	    {256, (UINT64_C(1) << 55) - 1},
	    {0, (UINT64_C(1) << 54) - 1},
	    {512, (UINT64_C(1) << 54) - 1},
	    {1024, (UINT64_C(1) << 53) - 1},
	};

	for (size_t index = 0; index < sizeof(edges) / sizeof(edges[0]);
	     index++) {
		assert_ok(create_rc_of_tick(
		    edges[index].tick_ns_max, edges[index].ticks_per_wheel));
		assert_rc(create_rc_of_tick(edges[index].tick_ns_max + 1,
			      edges[index].ticks_per_wheel),
		    -EINVAL);
		assert_rc(
		    create_rc_of_tick(UINT64_MAX, edges[index].ticks_per_wheel),
		    -EINVAL);
	}
}

Test(options, the_length_counts_as_rounded_up_to_a_power_of_two)
{
	assert_ok(create_rc_of_tick((UINT64_C(1) << 61) - 1, 3));
	assert_rc(create_rc_of_tick(UINT64_C(1) << 61, 3), -EINVAL);
	assert_ok(create_rc_of_tick((UINT64_C(1) << 53) - 1, 513));
	assert_rc(create_rc_of_tick(UINT64_C(1) << 53, 513), -EINVAL);
}

static uint64_t
memory_of_wheel(uint32_t ticks_per_wheel)
{
	struct hwt_stats stats;

	memset(&manual, 0, sizeof(manual));
	manual_open(&(struct hwt_options){.ticks_per_wheel = ticks_per_wheel});
	stats = manual_stats();
	manual_close();
	return stats.memory_bytes;
}

Test(options, a_wheel_of_0_is_512_and_takes_as_much_memory)
{
	assert_u64(memory_of_wheel(0), memory_of_wheel(512));
	assert_u64(memory_of_wheel(65537), memory_of_wheel(131072));
	cr_assert(memory_of_wheel(131072) - memory_of_wheel(65536) >=
	    UINT64_C(8) * 65536);
}

Test(options, a_wheel_above_2_to_the_30_is_refused)
{
	const uint32_t limit = UINT32_C(1) << 30;

	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);

	assert_rc(create_rc_of_tick(10000, limit + 1), -EINVAL);
	assert_rc(create_rc_of_tick(10000, UINT32_MAX), -EINVAL);
	assert_rc(create_rc_of_tick(UINT64_C(1) << 33, limit), -EINVAL);
	assert_rc(create_rc_of_tick((UINT64_C(1) << 33) - 1, limit), -ENOMEM);
	assert_rc(create_rc_of_tick(10000, limit), -ENOMEM);

	fault_disarm();
}

Test(options, only_the_two_flags_are_known)
{
	for (unsigned bit = 2; bit < 32; bit++) {
		assert_rc(create_rc(&(struct hwt_options){
			      .flags = UINT32_C(1) << bit}),
		    -EINVAL);
	}
	assert_ok(create_rc(&(struct hwt_options){.flags = HWT_MANUAL}));
	assert_ok(create_rc(&(struct hwt_options){.flags = HWT_RELAXED}));
	assert_ok(create_rc(
	    &(struct hwt_options){.flags = HWT_MANUAL | HWT_RELAXED}));
}

Test(options, a_reserved_word_that_is_set_is_refused)
{
	struct hwt_options options = {0};

	for (size_t index = 0;
	     index < sizeof(options.reserved) / sizeof(options.reserved[0]);
	     index++) {
		options.reserved[index] = 1;
		assert_rc(create_rc(&options), -EINVAL);
		options.reserved[index] = UINT64_C(1) << 63;
		assert_rc(create_rc(&options), -EINVAL);
		options.reserved[index] = 0;
		assert_ok(create_rc(&options));
	}
}

Test(options, the_thread_gets_its_name_of_15_bytes)
{
	char name[] = "fifteen-bytes-x";
	struct hwt_options options = {.thread_name = name};
	struct thread_facts facts = {0};
	struct hwt *timer = NULL;

	assert_ok(hwt_create(&timer, &options));
	memset(name, '!', 15);
	worker_facts(timer, &facts);

	cr_assert_str_eq(facts.name, "fifteen-bytes-x");
	worker_timer_close(timer);
}

Test(options, a_thread_name_of_16_bytes_is_refused)
{
	assert_rc(
	    create_rc(&(struct hwt_options){.thread_name = "sixteen-bytes-xy"}),
	    -EINVAL);
	assert_ok(create_rc(&(struct hwt_options){.thread_name = ""}));
}

Test(options, the_thread_is_made_with_the_attributes)
{
	struct thread_facts expected = {0}, facts = {0};
	struct hwt *timer = NULL;
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 20);
	pthread_create(&thread, &attr, thread_facts_main, &expected);
	pthread_join(thread, NULL);

	assert_ok(
	    hwt_create(&timer, &(struct hwt_options){.thread_attr = &attr}));
	worker_facts(timer, &facts);

	assert_u64(facts.stack_size, expected.stack_size);
	worker_timer_close(timer);
	pthread_attr_destroy(&attr);
}

Test(options, a_detached_attribute_is_refused)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);

	assert_rc(
	    create_rc(&(struct hwt_options){.thread_attr = &attr}), -EINVAL);

	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_JOINABLE);
	assert_ok(create_rc(&(struct hwt_options){.thread_attr = &attr}));
	pthread_attr_destroy(&attr);
}

static uint64_t
some_clock(void *ctx)
{
	(void)ctx;
	return 1;
}

static void
some_wake(void *ctx)
{
	(void)ctx;
}

Test(options, a_clock_or_a_wake_needs_a_manual_timer)
{
	const struct hwt_clock clock = {.now_ns = some_clock};
	const struct hwt_wake wake = {.wake = some_wake};

	assert_rc(create_rc(&(struct hwt_options){.clock = &clock}), -EINVAL);
	assert_rc(create_rc(&(struct hwt_options){.wake = &wake}), -EINVAL);
	assert_rc(create_rc(&(struct hwt_options){
		      .flags = HWT_RELAXED, .clock = &clock}),
	    -EINVAL);
	assert_ok(create_rc(&(struct hwt_options){
	    .flags = HWT_MANUAL, .clock = &clock, .wake = &wake}));
}

Test(options, a_hook_without_a_function_is_refused)
{
	const struct hwt_executor hollow = {0};
	const struct hwt_clock clock = {0};
	const struct hwt_wake wake = {0};
	const struct hwt_log log = {0};

	assert_rc(
	    create_rc(&(struct hwt_options){.executor = &hollow}), -EINVAL);
	assert_rc(create_rc(&(struct hwt_options){
		      .flags = HWT_MANUAL, .clock = &clock}),
	    -EINVAL);
	assert_rc(create_rc(&(struct hwt_options){
		      .flags = HWT_MANUAL, .wake = &wake}),
	    -EINVAL);
	assert_rc(create_rc(&(struct hwt_options){.log = &log}), -EINVAL);
}

Test(options, the_hooks_are_copied)
{
	struct hwt_executor hook;
	struct hwt_log log;

	log_recorder_init(&manual.log);
	executor_init(&executor, EXECUTOR_REFUSES);
	hook = executor.hook;
	log = log_recorder_hook(&manual.log);
	manual_open(&(struct hwt_options){.executor = &hook, .log = &log});
	memset(&hook, 0, sizeof(hook));
	memset(&log, 0, sizeof(log));
	assert_ok(hwt_new_timeout(manual.timer, NULL, idle_task, NULL, 0));

	assert_u64(manual_tick(1), 1);

	assert_u64(executor.count, 1);
	assert_u64(log_recorder_count(&manual.log), 1);
	manual_close();
}

Test(options, a_manual_timer_without_a_clock_reads_the_monotonic_one)
{
	struct probe probe = {0};
	struct hwt *timer = NULL;
	uint64_t before_ns;

	assert_ok(hwt_create(&timer,
	    &(struct hwt_options){.flags = HWT_MANUAL, .tick_ns = HWT_MS(1)}));
	before_ns = monotonic_ns();
	assert_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, HWT_MS(5)));

	while (probe.runs == 0)
		assert_ok(hwt_advance(timer, NULL));

	cr_assert(monotonic_ns() - before_ns >= HWT_MS(5));
	worker_timer_close(timer);
}

Test(options, a_warning_without_a_log_is_one_line_on_stderr)
{
	struct hwt *timer = NULL;
	char text[512] = "";
	int pipe_ends[2];
	ssize_t length;
	int stderr_copy;

	executor_init(&executor, EXECUTOR_REFUSES);
	assert_ok(hwt_create(&timer,
	    &(struct hwt_options){.flags = HWT_MANUAL,
		.tick_ns = 10000,
		.executor = &executor.hook}));
	assert_ok(hwt_new_timeout(timer, NULL, idle_task, NULL, 0));
	cr_assert(pipe(pipe_ends) == 0);
	stderr_copy = dup(STDERR_FILENO);

	dup2(pipe_ends[1], STDERR_FILENO);
	while (executor.count == 0 && hwt_advance(timer, NULL) == 0)
		;
	dup2(stderr_copy, STDERR_FILENO);
	close(pipe_ends[1]);
	length = read(pipe_ends[0], text, sizeof(text) - 1);

	cr_assert(length > 1, "nothing was written");
	cr_assert(strchr(text, '\n') == text + length - 1, "not one line");
	assert_u64(executor.count, 1);
	worker_timer_close(timer);
}

Test(options, timers_can_be_destroyed_in_any_order)
{
	struct hwt *timer[4];

	for (int i = 0; i < 4; i++)
		assert_ok(hwt_create(&timer[i], NULL));

	for (int i = 0; i < 4; i++) {
		/* 1, 0, 3, 2 */
		assert_ok(hwt_stop(timer[i ^ 1], NULL));
		assert_ok(hwt_destroy(timer[i ^ 1]));
	}
	assert_ok(create_rc(NULL));
}

/* Starts the worker and returns when it has begun to turn. */
static void
start_and_see(struct hwt *timer)
{
	struct probe probe = {0};

	assert_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);
}

static void
make_many(struct hwt **timers, uint32_t flags)
{
	struct hwt_log log = log_recorder_hook(&manual.log);
	struct hwt_options options = {
	    .flags = flags, .tick_ns = HWT_MS(1), .log = &log};

	for (size_t index = 0; index < 66; index++)
		assert_ok(hwt_create(&timers[index], &options));
}

Test(options, the_65th_running_worker_is_warned_of_once_per_process)
{
	static struct hwt *timers[66];

	log_recorder_init(&manual.log);
	for (unsigned round = 0; round < 2; round++) {
		make_many(timers, 0);
		for (size_t index = 0; index < 66; index++) {
			start_and_see(timers[index]);
			assert_u64(log_recorder_count(&manual.log),
			    round > 0 || index >= 64);
		}
		for (size_t index = 0; index < 66; index++)
			worker_timer_close(timers[index]);
	}

	assert_i64(manual.log.lines[0].level, LOG_WARNING);
	cr_assert(strlen(manual.log.lines[0].message) > 0);
	cr_assert(strchr(manual.log.lines[0].message, '\n') == NULL);
}

Test(options, timers_without_a_running_worker_are_not_warned_of)
{
	static struct hwt *timers[3][66];

	log_recorder_init(&manual.log);
	make_many(timers[0], HWT_MANUAL);
	make_many(timers[1], 0);
	make_many(timers[2], 0);
	for (size_t index = 0; index < 66; index++) {
		start_and_see(timers[2][index]);
		assert_ok(hwt_stop(timers[2][index], NULL));
	}

	start_and_see(timers[1][0]);

	assert_u64(log_recorder_count(&manual.log), 0);
	for (size_t kind = 0; kind < 3; kind++) {
		for (size_t index = 0; index < 66; index++)
			worker_timer_close(timers[kind][index]);
	}
}

/* Memory is not touched where nothing is. */
Test(options, the_longest_wheel_turns)
{
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = 1u << 30};
	struct probe probe = {0};
	int error = manual_try_open(&options);

	/* Eight gigabytes of addresses are not to be had everywhere. */
	if (error == -ENOMEM)
		cr_skip_test("no room for its addresses");
	assert_ok(error);
	probe_schedule(&probe, UINT64_C(1000000000) * FIXTURE_TICK);
	probe_schedule(&probe, FIXTURE_TICK);

	assert_u64(manual_tick(999999999), 1);
	assert_u64(manual_tick(1000000000), 1);
	manual_close();
}
