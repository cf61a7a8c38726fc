/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libuv, a heap of timers in a loop, for the one thread that turns it:
 * uv_timer_start, uv_timer_stop, and uv_timer_start once more to reschedule. A
 * uv_timer_t must be closed by the loop before it is freed, so they are kept
 * for reuse. libuv counts milliseconds from the time of the turn. Deadlines are
 * rounded up here, so that no timeout is early; the clock is read for each
 * call, and with libuv_at by the caller, once per turn.
 *
 * Who would call it unfair: who would use uv_timer_again; for a timer that does
 * not repeat it is uv_timer_start.
 */
#define SUBJECT_SINGLE 1

#include <uv.h>

struct libuv_timeout {
	uv_timer_t timer;
	void (*task)(void *arg);
	void *arg;
	struct libuv_timeout *next_idle;
	/* The timer, and the owner of a handle. */
	unsigned holders;
};

typedef struct libuv_timeout *subject_handle;

struct subject {
	uv_loop_t loop;
	struct libuv_timeout *idle;
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
	subject->loop.data = subject;
	return subject;
}

static inline void
libuv_closed(uv_handle_t *timer)
{
	free(timer->data);
}

static inline void
libuv_close(uv_handle_t *timer, void *unused)
{
	(void)unused;
	uv_close(timer, libuv_closed);
}

static inline void
subject_destroy(struct subject *subject)
{
	uv_walk(&subject->loop, libuv_close, NULL);
	uv_run(&subject->loop, UV_RUN_DEFAULT);
	perf_must(!uv_loop_close(&subject->loop), "uv_loop_close");
	free(subject);
}

static inline struct libuv_timeout *
libuv_take(struct subject *subject)
{
	struct libuv_timeout *timeout = subject->idle;

	if (timeout) {
		subject->idle = timeout->next_idle;
		return timeout;
	}
	timeout = malloc(sizeof(*timeout));
	perf_must(timeout && !uv_timer_init(&subject->loop, &timeout->timer),
	    "uv_timer_init");
	timeout->timer.data = timeout;
	return timeout;
}

static inline void
libuv_release(struct subject *subject, struct libuv_timeout *timeout)
{
	if (--timeout->holders)
		return;
	timeout->next_idle = subject->idle;
	subject->idle = timeout;
}

static inline void
libuv_due(uv_timer_t *timer)
{
	struct libuv_timeout *timeout = timer->data;

	timeout->task(timeout->arg);
	libuv_release(timer->loop->data, timeout);
}

/* libuv adds the delay to the loop's time, which may be behind. */
static inline void
libuv_start(
    struct subject *subject, struct libuv_timeout *timeout, uint64_t delay_ns)
{
	uint64_t now_ns = SUBJECT_DEADLINES && subject_turn_ns ? subject_turn_ns
							       : perf_now_ns();
	uint64_t due_ms = (now_ns + delay_ns) / 1000000 + 1;

	uv_timer_start(
	    &timeout->timer, libuv_due, due_ms - uv_now(&subject->loop), 0);
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libuv_timeout *timeout = libuv_take(subject);

	timeout->task = task;
	timeout->arg = arg;
	timeout->holders = handle ? 2 : 1;
	if (handle)
		*handle = timeout;
	libuv_start(subject, timeout, delay_ns);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	if (uv_is_active((const uv_handle_t *)&timeout->timer)) {
		uv_timer_stop(&timeout->timer);
		timeout->holders--;
	} else {
		subject_refused++;
	}
	libuv_release(subject, timeout);
}

static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	perf_must(uv_is_active((const uv_handle_t *)&(*handle)->timer),
	    "rescheduling");
	libuv_start(subject, *handle, delay_ns);
}

#define SUBJECT_TURNS 1
static inline void
subject_turn(struct subject *subject)
{
	uv_run(&subject->loop, UV_RUN_NOWAIT);
}
