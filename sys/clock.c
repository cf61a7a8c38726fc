/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock that is cheap and never behind CLOCK_MONOTONIC.
 *
 * Reading CLOCK_MONOTONIC is half of what it costs to schedule and cancel a
 * timeout. CLOCK_MONOTONIC_COARSE lags, which would make tasks early. On x86-64
 * the time stamp counter can be read in less than half the time, and if it is
 * the kernel's clock source ("tsc"), it is the same clock in other units. So
 * each thread takes a sample of both and extrapolates by the counter for 4 us.
 *
 * NEVER BEHIND. From the sample on, the counter is converted a quarter too
 * fast. The kernel lets the clock be slewed by a tenth at most, so that its
 * rate differs by less than that from the one at which the scale was measured,
 * and the measurement's own error is a hundredth at most: it goes over 1 to 10
 * ms between readings that took less than 2 us each, and counts when a second
 * one agrees and it is what a processor's counter can be. (A suspend, in which
 * the clock stands and the counter may not, spoils one of two.) A sample is not
 * behind either: its counter is read before its clock. CLOCK_MARGIN_NS allows
 * for a processor that reads the counter some instructions early. So a deadline
 * may be up to 3 us later than it would be, and never earlier.
 *
 * If a new sample shows that the last one led to a time that is behind, the
 * counter is unreliable, and is not used again in this process.
 *
 * The scale is the same for all threads; any may publish it. It orders nothing:
 * relaxed accesses suffice. A thread that reads an old 0 reads the clock.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "sys/clock.h"
#include "sys/log.h"

void
clock_failed(void)
{
	log_stderr("CLOCK_MONOTONIC cannot be read any more");
	abort();
}

#ifdef CLOCK_COUNTER

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_NS UINT64_C(4000)
#define CALIBRATE_MIN_NS UINT64_C(1000000)
#define CALIBRATE_MAX_NS UINT64_C(10000000)
/* 5 GHz and 1 GHz. */
#define SCALE_MIN ((UINT64_C(1) << 32) / 5)
#define SCALE_MAX (UINT64_C(1) << 32)
/* A reading does not become a sample if it took more counter ticks than this: 2
 * us at 1 GHz, 0.4 us at 5 GHz. */
#define BRACKET_TICKS UINT64_C(2000)
/* A sample is compared with the one before if that is no older than this, 0.9 s
 * at 5 GHz, so that the product fits into 64 bits. */
#define CHECK_TICKS (UINT64_C(1) << 32)
/* If the clock is that far behind the last time returned, it is another clock:
 * then returned times start again from it. */
#define BACK_MAX_NS UINT64_C(100000)

#define SOURCE \
	"/sys/devices/system/clocksource/clocksource0/current_clocksource"

enum {
	UNKNOWN,
	USED,
	UNUSED
};

struct clock_rate clock_rate;
static a64_t counter_state;

/* Whether the kernel's clock is the counter. */
static bool
counter_is_clock(const char *source)
{
	char name[4] = "";
	int fd = open(source, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return false;
	length = read(fd, name, sizeof(name));
	(void)close(fd);
	return length == 4 && memcmp(name, "tsc\n", 4) == 0;
}

void
clock_prepare(void)
{
	if (a64_load_relaxed(&counter_state) == UNKNOWN)
		(void)a64_cas_seq(&counter_state, UNKNOWN,
		    counter_is_clock(SOURCE) ? USED : UNUSED);
}

static bool
scales_agree(uint64_t a, uint64_t b)
{
	return a > b ? a - b < b / 64 : b - a < a / 64;
}

/* Publishes the scale when this thread has measured it twice. */
static void
counter_calibrate(struct clock_sample *sample, uint64_t ticks, uint64_t ns)
{
	uint64_t ns_since = ns - sample->first_ns;
	uint64_t before = sample->scale;
	uint64_t scale = 0;

	if (sample->first_ticks != 0 && ticks > sample->first_ticks &&
	    ns_since <= CALIBRATE_MAX_NS) {
		if (ns_since < CALIBRATE_MIN_NS)
			return;
		scale = (ns_since << 32) / (ticks - sample->first_ticks);
		sample->scale = scale;
	}
	sample->first_ticks = ticks;
	sample->first_ns = ns;
	if (scale < SCALE_MIN || scale > SCALE_MAX ||
	    !scales_agree(scale, before))
		return;
	scale += scale / 4;
	a64_store_relaxed(&clock_rate.window, (WINDOW_NS << 32) / scale);
	a64_store_relaxed(&clock_rate.scale, scale);
}

/* Whether the last sample would have led to a time that is not behind. */
static bool
sample_holds(const struct clock_sample *sample, uint64_t ticks, uint64_t ns)
{
	uint64_t scale = a64_load_relaxed(&clock_rate.scale);
	uint64_t since = ticks - sample->ticks;

	return scale == 0 || sample->ticks == 0 || since > CHECK_TICKS ||
	    sample->ns + (since * (scale >> 16) >> 16) + CLOCK_MARGIN_NS >= ns;
}

uint64_t
clock_take_sample(struct clock_sample *sample)
{
	uint64_t before, after, ns;

	if (a64_load_relaxed(&counter_state) != USED) {
		sample->ticks = 0;
		return clock_monotonic_ns();
	}
	before = __rdtsc();
	ns = clock_monotonic_ns();
	after = __rdtsc();
	/* A child may live in another time namespace. */
	if (sample->last_returned_ns > ns + BACK_MAX_NS)
		sample->last_returned_ns = 0;
	if (after - before > BRACKET_TICKS) {
		sample->ticks = 0;
		return ns;
	}
	if (!sample_holds(sample, after, ns)) {
		a64_store_relaxed(&counter_state, UNUSED);
		a64_store_relaxed(&clock_rate.scale, 0);
		return ns;
	}
	sample->ticks = before;
	sample->ns = ns;
	if (a64_load_relaxed(&clock_rate.scale) == 0)
		counter_calibrate(sample, before, ns);
	return ns;
}

#else

void
clock_prepare(void)
{
}

#endif
