/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are judged, and timeouts that are counted: see attempt.h. */
#include "test/faults/attempt.h"

#define PATIENCE_NS HWT_SEC(10)
#define POISON UINT64_C(0x5a5a5a5a5a5a5a5a)

/* What hwt.h lists for each function, as far as the system has a part in it. */
static const struct {
	const char *function;
	int errors[4];
} listed[] = {
    {"hwt_create", {EAGAIN, ENOMEM, EINVAL}},
    {"hwt_start", {EAGAIN, ENOMEM}},
    {"hwt_new_timeout", {EAGAIN, ENOMEM}},
    {"hwt_new_timeout_at", {EAGAIN, ENOMEM}},
    {"hwt_new_periodic", {EAGAIN, ENOMEM}},
    {"hwt_touch", {EAGAIN, ENOMEM}},
    {"hwt_new_timeouts", {EAGAIN, ENOMEM}},
    {"hwt_stop", {EDEADLK}},
    {"hwt_stop_within", {EDEADLK, ETIMEDOUT}},
    {"hwt_shared", {EAGAIN, ENOMEM}},
    {"hwt_shared_shutdown", {EDEADLK}},
    {"hwt_pool_create", {EAGAIN, ENOMEM}},
    {"hwt_mailbox_create", {EMFILE, ENFILE, ENOMEM}},
    {"hwt_stats_write", {EIO, ENOSPC}},
    {"hwt_dump", {ENOMEM, EIO, ENOSPC}},
};

static bool racing;

static _Thread_local struct {
	const char *function;
	const struct hwt *timer;
	struct hwt_stats before;
	uint64_t injected;
	unsigned failures;
} attempt;

void
attempts_race(bool race)
{
	racing = race;
}

/* What a fault of this kind may make of a call; 0: nothing, it is to succeed.
 */
static int
error_of_call(const char *function)
{
	const struct fault *fault = fault_here();

	switch (fault->call) {
	case CALL_ALIGNED_ALLOC:
	case CALL_CALLOC:
	case CALL_MMAP:
	case CALL_PTHREAD_ATFORK:
		return ENOMEM;
	/* Later, it ends the process. */
	case CALL_CLOCK_GETTIME:
		return strcmp(function, "hwt_create") == 0 ||
			strcmp(function, "hwt_shared") == 0
		    ? EAGAIN
		    : 0;
	case CALL_EVENTFD:
		return fault->error == EMFILE || fault->error == ENFILE
		    ? fault->error
		    : ENOMEM;
	case CALL_FFLUSH:
	case CALL_VFPRINTF:
		return fault->error;
	case CALL_PTHREAD_ATTR_GETDETACHSTATE:
		return EINVAL;
	case CALL_PTHREAD_TRYJOIN_NP:
		return ETIMEDOUT;
	case CALL_PTHREAD_CREATE:
		return fault->error == ENOMEM ? ENOMEM : EAGAIN;
	case CALL_PTHREAD_JOIN:
		return EDEADLK;
	default:
		return 0;
	}
}

static bool
is_listed(const char *function, int error)
{
	size_t i, k;

	for (i = 0; i < sizeof(listed) / sizeof(listed[0]); i++) {
		for (k = 0; strcmp(listed[i].function, function) == 0 &&
		     k < 4 && listed[i].errors[k] != 0;
		     k++) {
			if (listed[i].errors[k] == error)
				return true;
		}
	}
	return false;
}

void
attempt_begin(const char *function, const struct hwt *timer)
{
	if (attempt.function != function)
		attempt.failures = 0;
	attempt.function = function;
	attempt.timer = timer;
	attempt.injected = fault_injected();
	if (timer != NULL)
		CHECK(hwt_read_stats(timer, &attempt.before) == 0);
}

/* Timeouts that end meanwhile change started and pending together. */
static void
check_unchanged(void)
{
	const struct hwt_stats *before = &attempt.before;
	struct hwt_stats after;

	if (attempt.timer == NULL || racing)
		return;
	CHECK(hwt_read_stats(attempt.timer, &after) == 0);
	if (after.scheduled != before->scheduled ||
	    after.cancelled != before->cancelled ||
	    after.rescheduled != before->rescheduled ||
	    after.rejected != before->rejected)
		fail("%s failed and counted", attempt.function);
	if (after.started == before->started &&
	    after.pending != before->pending)
		fail("%s failed and pending changed", attempt.function);
}

bool
attempt_over(int result)
{
	char name[16];
	const char *function = attempt.function;

	if (result == 0) {
		attempt.function = NULL;
		return true;
	}
	error_name(-result, name);
	/* It was refused before main began, and for good. */
	if (fault_here()->call == CALL_PTHREAD_ATFORK && result == -ENOMEM)
		section_end();
	if (fault_injected() == attempt.injected && !racing)
		fail("%s answers -%s without cause", function, name);
	if (!is_listed(function, -result))
		fail("%s answers -%s, which hwt.h does not list", function,
		    name);
	if (-result != error_of_call(function))
		fail("%s answers -%s for another cause", function, name);
	check_unchanged();
	if (++attempt.failures >= 2)
		fault_off();
	if (attempt.failures > 3)
		fail("%s answers -%s and goes on so", function, name);
	return false;
}

/* Timeouts. */

static bool another_clock;
static struct timeout *timeouts;
static pthread_mutex_t timeouts_lock = PTHREAD_MUTEX_INITIALIZER;

static struct timeout *
timeout_make(struct hwt *timer)
{
	struct timeout *timeout = calloc(1, sizeof(*timeout));

	CHECK(timeout != NULL);
	timeout->timer = timer;
	pthread_mutex_lock(&timeouts_lock);
	timeout->next = timeouts;
	timeouts = timeout;
	pthread_mutex_unlock(&timeouts_lock);
	return timeout;
}

static void
timeout_runs(hwt_timeout handle, void *arg)
{
	struct timeout *timeout = arg;

	/* That of a batch is told to us later. */
	CHECK(timeout->handle.id == 0 || handle.id == timeout->handle.id);
	if (now_ns() < timeout->not_before_ns)
		fail("a task started early");
	if (timeout->then != NULL)
		timeout->then(timeout);
	timeout->runs++;
	if (timeout->period_ns == 0)
		timeout->ended++;
}

void
timeouts_by_another_clock(bool another)
{
	another_clock = another;
}

static uint64_t
earliest(uint64_t delay_ns)
{
	return another_clock ? 0 : now_ns() + delay_ns;
}

/* Before each attempt: what a call that fails is to replace. */
static hwt_timeout *
timeout_arm(struct timeout *timeout, uint64_t delay_ns)
{
	timeout->handle.id = POISON;
	timeout->not_before_ns = earliest(delay_ns);
	return &timeout->handle;
}

struct timeout *
schedule_on(struct hwt *timer, const struct hwt_executor *executor,
    uint64_t delay_ns, void (*then)(struct timeout *))
{
	struct timeout *timeout = timeout_make(timer);

	timeout->then = then;
	RETRY(hwt_new_timeout,
	    hwt_new_timeout_on(timer, executor, timeout_arm(timeout, delay_ns),
		timeout_runs, timeout, delay_ns),
	    timer)
	CHECK(timeout->handle.id == 0);
	CHECK(timeout->handle.id != 0 && timeout->handle.id != POISON);
	return timeout;
}

struct timeout *
schedule(struct hwt *timer, uint64_t delay_ns)
{
	return schedule_on(timer, NULL, delay_ns, NULL);
}

static int
new_timeout_at(struct hwt *timer, struct timeout *timeout, uint64_t delay_ns)
{
	hwt_timeout *handle = timeout_arm(timeout, delay_ns);

	return hwt_new_timeout_at(
	    timer, NULL, handle, timeout_runs, timeout, timeout->not_before_ns);
}

struct timeout *
schedule_at(struct hwt *timer, uint64_t delay_ns)
{
	struct timeout *timeout = timeout_make(timer);

	RETRY(
	    hwt_new_timeout_at, new_timeout_at(timer, timeout, delay_ns), timer)
	CHECK(timeout->handle.id == 0);
	CHECK(timeout->handle.id != 0 && timeout->handle.id != POISON);
	return timeout;
}

struct timeout *
schedule_periodic(struct hwt *timer, uint64_t delay_ns, uint64_t period_ns)
{
	struct timeout *timeout = timeout_make(timer);

	timeout->period_ns = period_ns;
	RETRY(hwt_new_periodic,
	    hwt_new_periodic(timer, NULL, timeout_arm(timeout, delay_ns),
		timeout_runs, timeout, delay_ns, period_ns),
	    timer)
	CHECK(timeout->handle.id == 0);
	CHECK(timeout->handle.id != 0 && timeout->handle.id != POISON);
	return timeout;
}

/* A touch that fails leaves the variable. */
struct timeout *
schedule_touched(struct hwt *timer, uint64_t delay_ns)
{
	struct timeout *timeout = timeout_make(timer);

	RETRY(hwt_touch,
	    hwt_touch(timer, NULL, timeout_arm(timeout, delay_ns), timeout_runs,
		timeout, delay_ns),
	    timer)
	CHECK(timeout->handle.id == POISON);
	CHECK(timeout->handle.id != 0 && timeout->handle.id != POISON);
	return timeout;
}

struct timeout *
schedule_batch(struct hwt *timer, size_t count,
    const struct hwt_executor *executor, uint64_t delay_ns, uint64_t period_ns)
{
	struct hwt_spec *specs = calloc(count, sizeof(*specs));
	hwt_timeout *handles = calloc(count, sizeof(*handles));
	struct timeout *first = NULL;
	struct timeout *timeout;
	uint64_t earliest_ns = earliest(delay_ns);
	size_t i;

	CHECK(specs != NULL && handles != NULL);
	for (i = 0; i < count; i++) {
		timeout = timeout_make(timer);
		timeout->period_ns = period_ns;
		/* It may run before its handle is known here. */
		timeout->not_before_ns = earliest_ns;
		specs[i] = (struct hwt_spec){.task = timeout_runs,
		    .arg = timeout,
		    .delay_ns = delay_ns,
		    .period_ns = period_ns,
		    .executor = executor};
		first = timeout;
	}
	memset(handles, 0x5a, count * sizeof(*handles));
	RETRY(hwt_new_timeouts, hwt_new_timeouts(timer, count, specs, handles),
	    timer)
	{
		for (i = 0; i < count; i++)
			CHECK(handles[i].id == 0);
		memset(handles, 0x5a, count * sizeof(*handles));
	}
	for (i = 0; i < count; i++) {
		CHECK(handles[i].id != 0 && handles[i].id != POISON);
		((struct timeout *)specs[i].arg)->handle = handles[i];
	}
	free(specs);
	free(handles);
	return first;
}

void
cancel(struct timeout *timeout)
{
	RETRY(hwt_cancel, hwt_cancel(timeout->timer, timeout->handle),
	    timeout->timer)
	continue;
	timeout->ended++;
	CHECK(hwt_cancel(timeout->timer, timeout->handle) == -ENOENT);
}

void
cancel_and_wait(struct timeout *timeout)
{
	RETRY(hwt_cancel_wait, hwt_cancel_wait(timeout->timer, timeout->handle),
	    timeout->timer)
	continue;
	timeout->ended++;
}

void
reschedule(struct timeout *timeout, uint64_t delay_ns)
{
	uint64_t earliest_ns = earliest(delay_ns);

	/* Of two deadlines the earlier, until it is known which one stands. */
	if (earliest_ns < timeout->not_before_ns)
		timeout->not_before_ns = earliest_ns;
	RETRY(hwt_reschedule,
	    hwt_reschedule(timeout->timer, timeout->handle, delay_ns),
	    timeout->timer)
	continue;
	timeout->not_before_ns = earliest_ns;
}

void
look_at(struct timeout *timeout)
{
	int64_t left_ns = INT64_MIN;

	RETRY(hwt_remaining,
	    hwt_remaining(timeout->timer, timeout->handle, &left_ns),
	    timeout->timer)
	CHECK(left_ns == INT64_MIN);
	CHECK(
	    left_ns > (int64_t)HWT_SEC(50) && left_ns < (int64_t)HWT_SEC(1000));
}

void
await_count(const _Atomic unsigned *count, unsigned least)
{
	uint64_t begun_ns = now_ns();

	while (*count < least) {
		pause_ns(100000);
		if (now_ns() - begun_ns > PATIENCE_NS)
			fail("a task was awaited in vain");
	}
}

void
await_runs(struct timeout *timeout, unsigned runs)
{
	await_count(&timeout->runs, runs);
}

void
section_settle(void)
{
	struct timeout *timeout, *next;

	for (timeout = timeouts; timeout != NULL; timeout = next) {
		next = timeout->next;
		if (timeout->ended != 1)
			fail("a timeout ended %u times", timeout->ended);
		free(timeout);
	}
	timeouts = NULL;
}

/* Timers. */

struct hwt *
timer_make(const struct hwt_options *options)
{
	struct hwt *const poison = (struct hwt *)(uintptr_t)POISON;
	struct hwt *timer = poison;

	RETRY(hwt_create, hwt_create(&timer, options), NULL)
	CHECK(timer == poison);
	CHECK(timer != poison && hwt_pending_timeouts(timer) == 0);
	return timer;
}

void
list_take(struct hwt_unprocessed *list, uint64_t count)
{
	struct hwt_timeout_info info;
	struct timeout *timeout;
	uint64_t seen = 0;

	for (; hwt_unprocessed_next(list, &info); seen++) {
		timeout = info.arg;
		CHECK(info.timeout.id == timeout->handle.id);
		CHECK(info.remaining_ns > -(int64_t)HWT_SEC(1000));
		CHECK(info.remaining_ns < (int64_t)HWT_SEC(1000));
		timeout->ended++;
	}
	CHECK(seen == list->count);
	CHECK(count == ANY || seen == count);
}

static void
check_zero(const struct hwt_unprocessed *list)
{
	static const struct hwt_unprocessed zero;

	CHECK(memcmp(list, &zero, sizeof(zero)) == 0);
}

void
timer_stop_all(struct hwt *timer, uint64_t count)
{
	struct hwt_unprocessed list;

	memset(&list, 0x5a, sizeof(list));
	RETRY(hwt_stop, hwt_stop(timer, &list), NULL)
	{
		check_zero(&list);
		memset(&list, 0x5a, sizeof(list));
	}
	list_take(&list, count);
}

void
timer_destroy_all(struct hwt *timer)
{
	RETRY(hwt_destroy, hwt_destroy(timer), NULL)
	continue;
}

void
timer_end(struct hwt *timer, uint64_t count)
{
	timer_stop_all(timer, count);
	CHECK(hwt_pending_timeouts(timer) == 0);
	timer_destroy_all(timer);
}
