/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock for deadlines: never behind CLOCK_MONOTONIC. Its source is part of
 * this file, so that the counter and the clock can be made to disagree, and so
 * are those of messages and of waiting; what is in the library is another copy.
 */
#define _GNU_SOURCE
#include "test/spec/support_promises.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "../../core/clock.c"
#include "../../core/log.c"
#include "../../core/system.c"
#include "../../core/system_linux.c"

SUITE(clock);

#define MS UINT64_C(1000000)

static struct clock_sample sample;

Test(clock, it_is_never_behind)
{
	uint64_t before_ns, ahead_ns;
	uint64_t last_ns = 0;

	clock_prepare();
	for (unsigned turn = 0; turn < 2000000; turn++) {
		before_ns = clock_monotonic_ns();
		ahead_ns = clock_ahead_ns(&sample);
		cr_assert(ahead_ns >= before_ns && ahead_ns >= last_ns);
		last_ns = ahead_ns;
	}
}

Test(clock, without_it_nothing_is_made)
{
	struct hwt *made = NULL;

	fault_arm(FAULT_CLOCK, FAULT_ALWAYS);
	assert_rc(hwt_create(&made, NULL), -EAGAIN);
	assert_rc(hwt_shared(&made), -EAGAIN);
	cr_assert(made == NULL);
	fault_disarm();

	assert_ok(hwt_shared(&made));
	assert_ok(hwt_shared_shutdown(NULL));
}

/* In a child, whose stderr is the pipe. What it makes, it leaves. */

static void
child_calls(struct hwt *timer)
{
	hwt_timeout timeout;

	(void)!hwt_new_timeout(timer, &timeout, idle_task, NULL, HWT_SEC(9));
}

static void
child_turns(struct hwt *timer)
{
	(void)hwt_advance(timer, NULL);
}

static void
child_waits_for_the_worker(struct hwt *timer)
{
	assert_ok(hwt_start(timer));
	sleep_ns(HWT_SEC(60));
}

struct failing {
	int fd;
	unsigned flags;
	void (*use)(struct hwt *timer);
};

static void
child_loses_the_clock(void *arg)
{
	const struct failing *failing = arg;
	struct hwt_options options = {.flags = failing->flags};
	struct hwt *timer;

	child_check(dup2(failing->fd, STDERR_FILENO) == STDERR_FILENO);
	child_ok(hwt_create(&timer, &options));
	fault_arm(FAULT_CLOCK, FAULT_ALWAYS);
	failing->use(timer);
}

/* There is no answer that keeps what was promised to those who wait. */
Test(clock, when_a_timer_loses_it_the_process_ends_and_says_why)
{
	static const struct failing ways[] = {
	    {.use = child_waits_for_the_worker},
	    {.use = child_calls, .flags = HWT_MANUAL},
	    {.use = child_turns, .flags = HWT_MANUAL},
	};

	for (unsigned index = 0; index < 3; index++) {
		struct failing failing = ways[index];
		char said[256] = "";
		int fds[2];

		cr_assert(pipe(fds) == 0);
		failing.fd = fds[1];
		assert_u64((uint64_t)child_reap(
			       child_fork(child_loses_the_clock, &failing)),
		    256 + SIGABRT);
		(void)close(fds[1]);
		cr_assert(read(fds[0], said, sizeof(said) - 1) > 0);
		cr_assert(strncmp(said, "hwt: ", 5) == 0);
		cr_assert(strstr(said, "CLOCK_MONOTONIC") != NULL);
		(void)close(fds[0]);
	}
}

/* For so long that the counter is known, where there is one. */
Test(clock, a_manual_timer_goes_by_its_own_whatever_else_a_thread_reads)
{
	struct hwt *other = worker_timer_open(HWT_MS(1));
	uint64_t end_ns = clock_monotonic_ns() + HWT_MS(100);
	hwt_timeout far;

	manual_open(NULL);
	do {
		far = schedule_task(other, forbidden_task, HWT_SEC(9));
		assert_ok(hwt_cancel(other, far));
		for (int turn = 0; turn < 3; turn++) {
			far = schedule_task(
			    manual.timer, forbidden_task, HWT_SEC(9));
			cr_assert(manual_remaining(far) == (int64_t)HWT_SEC(9));
			assert_ok(hwt_cancel(manual.timer, far));
		}
	} while (clock_monotonic_ns() < end_ns);

	manual_close();
	worker_timer_close(other);
}

Test(clock, a_time_is_given_to_the_system_to_the_nanosecond)
{
	struct timespec time = system_timespec(UINT64_C(7999999999999999999));

	assert_u64((uint64_t)time.tv_sec, 7999999999);
	assert_u64((uint64_t)time.tv_nsec, 999999999);
}

/* If it were rounded down to a millisecond, or on another clock, the worker
 * would look again and again until the boundary has come. */
Test(clock, a_wait_does_not_end_before_its_time)
{
	uint64_t until_ns, word = 0;

	for (unsigned turn = 0; turn < 10; turn++) {
		until_ns = clock_monotonic_ns() + HWT_US(1700);
		futex_wait(&word, 0, until_ns);
		cr_assert(clock_monotonic_ns() >= until_ns);
	}
}

#if defined(__x86_64__)

/* Both clocks at a step of a measurement. */
static void
measure(uint64_t ms, uint64_t ticks)
{
	counter_calibrate(&sample, ticks, ms * MS);
}

static void
measure_begins(void)
{
	a64_store_relaxed(&counter_state, USED);
	a64_store_relaxed(&clock_rate.scale, 0);
	measure(1000, 5000000);
}

Test(clock, a_scale_counts_when_measured_twice)
{
	measure_begins();

	measure(1002, 5000000 + 2 * 2000000);
	assert_u64(a64_load_relaxed(&clock_rate.scale), 0);
	measure(1004, 5000000 + 4 * 2000000);

	/* 2 GHz, a quarter too fast. */
	assert_u64(
	    a64_load_relaxed(&clock_rate.scale), (UINT64_C(1) << 31) / 4 * 5);
	assert_u64(a64_load_relaxed(&clock_rate.window),
	    (WINDOW_NS << 32) / ((UINT64_C(1) << 31) / 4 * 5));
}

/* What differs by less does: of 2 GHz, and of a 64th less. */
Test(clock, scales_that_differ_by_a_64th_do_not_agree)
{
	static const uint64_t parts_ns[] = {64, 65};
	uint64_t part = 1 << 14;
	uint64_t ticks = 5000000;
	uint64_t ns = 1000 * MS;

	measure_begins();
	for (unsigned turn = 0; turn < 4; turn++) {
		ticks += 128 * part;
		ns += parts_ns[turn % 2] * part;
		counter_calibrate(&sample, ticks, ns);
		assert_u64(a64_load_relaxed(&clock_rate.scale), 0);
	}

	ns += 65 * part - part / 8;
	counter_calibrate(&sample, ticks + 128 * part, ns);
	cr_assert(a64_load_relaxed(&clock_rate.scale) != 0);
}

/* Three readings after measure_begins: when, and by how many 100,000 ticks the
 * counter has gone on. */
static const struct {
	const char *what;
	uint64_t ms[3], ticks[3];
} in_vain[] = {
    {"a suspend in between", {2, 4, 6}, {40, 120, 72000000}},
    {"too fast for a processor", {2, 4, 6}, {400, 800, 1200}},
    {"too slow for a counter", {2, 4, 6}, {2, 4, 6}},
    {"too far apart: it begins anew", {11, 22, 24}, {220, 440, 480}},
};

Test(clock, what_is_no_scale_does_not_count)
{
	for (size_t i = 0; i < sizeof(in_vain) / sizeof(in_vain[0]); i++) {
		sample = (struct clock_sample){0};
		measure_begins();
		for (size_t k = 0; k < 3; k++)
			measure(1000 + in_vain[i].ms[k],
			    5000000 + 100000 * in_vain[i].ticks[k]);
		cr_assert(a64_load_relaxed(&clock_rate.scale) == 0, "%s",
		    in_vain[i].what);
	}
}

Test(clock, readings_too_close_together_are_passed_over)
{
	measure_begins();

	counter_calibrate(&sample, 5000000 + 2000, 1000 * MS + 1000);
	counter_calibrate(&sample, 5000000 + 4000, 1000 * MS + 2000);
	counter_calibrate(&sample, 5000000 + 6000, 1000 * MS + 3000);

	assert_u64(sample.first_ticks, 5000000);
	assert_u64(a64_load_relaxed(&clock_rate.scale), 0);
}

/* A thread that loses its processor in between compares nothing: again then. */
Test(clock, a_counter_that_is_behind_is_given_up)
{
	a64_store_relaxed(&counter_state, USED);
	a64_store_relaxed(&clock_rate.scale, UINT64_C(1) << 20);
	a64_store_relaxed(&clock_rate.window, 1);

	for (int tries = 0; tries < 1000 && counter_state == USED; tries++) {
		sample.ticks = __rdtsc();
		sample.ns = clock_monotonic_ns() - MS;
		(void)clock_ahead_ns(&sample);
	}

	assert_u64(a64_load_relaxed(&counter_state), UNUSED);
	assert_u64(a64_load_relaxed(&clock_rate.scale), 0);
	cr_assert(clock_ahead_ns(&sample) <= clock_monotonic_ns());
}

Test(clock, a_counter_that_goes_back_is_measured_anew)
{
	measure_begins();

	measure(1002, 5000000 + 4 * 2000000);
	measure(1004, 5000000 + 2 * 2000000);

	assert_u64(sample.first_ticks, 5000000 + 2 * 2000000);
	assert_u64(a64_load_relaxed(&clock_rate.scale), 0);
}

Test(clock, what_was_told_in_another_time_does_not_hold_it_up)
{
	a64_store_relaxed(&counter_state, USED);
	sample.last_returned_ns = clock_monotonic_ns() + HWT_SEC(3600);

	cr_assert(clock_ahead_ns(&sample) < clock_monotonic_ns() + HWT_SEC(60));
}

Test(clock, it_does_not_go_back_from_one_sample_to_the_next)
{
	uint64_t told_ns, now_ns;

	a64_store_relaxed(&counter_state, USED);
	a64_store_relaxed(&clock_rate.scale, 0);
	do {
		told_ns = clock_monotonic_ns() + BACK_MAX_NS / 2;
		sample.last_returned_ns = told_ns;
		cr_assert(clock_ahead_ns(&sample) >= told_ns);
		now_ns = clock_monotonic_ns();
	} while (now_ns >= told_ns);
}

static bool
is_clock(const char *name)
{
	int file = memfd_create("clock source", MFD_CLOEXEC);
	int fd = fcntl(file, F_DUPFD_CLOEXEC, 10);
	char path[64];
	bool answer;

	cr_assert(fd >= 10);
	(void)close(file);
	cr_assert(write(fd, name, strlen(name)) == (ssize_t)strlen(name));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	answer = counter_is_clock(path);
	(void)close(fd);
	return answer;
}

/* Also by a process without standard input, whose next descriptor is 0. */
Test(clock, the_counter_is_used_where_the_kernel_uses_it)
{
	(void)close(STDIN_FILENO);
	cr_assert(is_clock("tsc\n"));
	cr_assert(!is_clock("hpet\n"));
	cr_assert(!is_clock("jit\n"));
	cr_assert(!is_clock("tsc"));
	cr_assert(!is_clock("tsc-early\n"));
	cr_assert(!counter_is_clock("/nonexistent"));
	cr_assert(fcntl(STDIN_FILENO, F_GETFD) == -1);
}

/* A thread that loses its processor in between has no sample: again then. */
Test(clock, the_first_sample_begins_a_measurement)
{
	a64_store_relaxed(&counter_state, USED);
	a64_store_relaxed(&clock_rate.scale, 0);

	for (int tries = 0; tries < 1000 && sample.ticks == 0; tries++)
		(void)clock_take_sample(&sample);

	cr_assert(sample.ticks != 0);
	assert_u64(sample.first_ticks, sample.ticks);
	assert_u64(sample.first_ns, sample.ns);
}

/* At 1 GHz. */
static bool
holds(uint64_t since_ticks, uint64_t ns)
{
	a64_store_relaxed(&clock_rate.scale, UINT64_C(1) << 32);
	sample.ticks = 7000;
	sample.ns = 1000 * MS;
	return sample_holds(&sample, 7000 + since_ticks, 1000 * MS + ns);
}

Test(clock, a_sample_holds_if_it_leads_to_the_clock_or_beyond)
{
	cr_assert(holds(500, 500 + CLOCK_MARGIN_NS));
	cr_assert(holds(500, 0));
	cr_assert(!holds(500, 500 + CLOCK_MARGIN_NS + 1));
}

Test(clock, a_sample_that_is_too_old_is_not_compared)
{
	cr_assert(!holds(CHECK_TICKS, HWT_SEC(3600)));
	cr_assert(holds(CHECK_TICKS + 1, HWT_SEC(3600)));
}

/* A sample says that it is an hour later. */
Test(clock, a_fresh_sample_is_not_taken_anew)
{
	uint64_t told_ns = clock_monotonic_ns() + HWT_SEC(3600);

	a64_store_relaxed(&counter_state, USED);
	a64_store_relaxed(&clock_rate.scale, UINT64_C(1) << 20);
	a64_store_relaxed(&clock_rate.window, UINT64_MAX);
	sample.ticks = __rdtsc();
	sample.ns = told_ns;

	cr_assert(clock_ahead_ns(&sample) >= told_ns);
}

Test(clock, another_clock_source_is_not_stood_in_for)
{
	a64_store_relaxed(&counter_state, UNUSED);
	a64_store_relaxed(&clock_rate.scale, 0);

	/* The first ones may be too slow for a sample in any case. */
	for (int readings = 0; readings < 100; readings++)
		cr_assert(clock_ahead_ns(&sample) <= clock_monotonic_ns());
	measure(1000, 5000000);
	measure(1002, 5000000 + 2 * 2000000);
	assert_u64(sample.ticks, 0);
}

#endif
