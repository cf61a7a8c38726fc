/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libuv, a heap of timers in a loop: uv_timer_start, uv_timer_stop, and
 * uv_timer_start once more to reschedule. libuv counts milliseconds from the
 * time of the turn. Deadlines are rounded up here, so that no timeout is early,
 * and the clock is read for each call.
 *
 * Who would call it unfair: who would use uv_timer_again; for a timer that does
 * not repeat it is uv_timer_start.
 */
#include <uv.h>

typedef uv_timer_t native_timer;

#include "perf/single.h"

struct subject {
	struct single single;
	uv_loop_t loop;
};

static inline const char *
subject_version(void)
{
	static char version[64];

	snprintf(version, sizeof(version), "libuv %s", uv_version_string());
	return version;
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = calloc(1, sizeof(*subject));

	(void)tick_ns;
	(void)capacity;
	perf_must(subject && !uv_loop_init(&subject->loop), "uv_loop_init");
	return subject;
}

/* The timer is the first in its record. */
static void
native_closed(uv_handle_t *timer)
{
	free(timer);
}

static void
native_close(struct single_timeout *timeout)
{
	uv_close((uv_handle_t *)&timeout->timer, native_closed);
}

static inline void
subject_destroy(struct subject *subject)
{
	single_destroy(subject);
	uv_run(&subject->loop, UV_RUN_DEFAULT);
	perf_must(!uv_loop_close(&subject->loop), "uv_loop_close");
	free(subject);
}

static void
native_init(struct subject *subject, struct single_timeout *timeout)
{
	perf_must(
	    !uv_timer_init(&subject->loop, &timeout->timer), "uv_timer_init");
}

static inline void
native_due(uv_timer_t *timer)
{
	single_due((struct single_timeout *)timer);
}

/* libuv adds the delay to the loop's time, which may be behind. */
static void
native_arm(
    struct subject *subject, struct single_timeout *timeout, uint64_t delay_ns)
{
	uint64_t due_ms = (perf_now_ns() + delay_ns) / 1000000 + 1;

	uv_timer_start(
	    &timeout->timer, native_due, due_ms - uv_now(&subject->loop), 0);
}

static void
native_disarm(struct single_timeout *timeout)
{
	uv_timer_stop(&timeout->timer);
}

static inline void
subject_turn(struct subject *subject)
{
	uv_run(&subject->loop, UV_RUN_NOWAIT);
}
