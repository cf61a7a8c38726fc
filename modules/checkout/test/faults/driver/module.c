/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>

#include "modules/checkout/test/faults/driver/module.h"

struct hwt *timer;
static _Atomic uint64_t hand_moved_ns;

static uint64_t
hand_moved(void *ctx)
{
	(void)ctx;
	return hand_moved_ns;
}

void
timer_open(void)
{
	const struct hwt_clock clock = {.now_ns = hand_moved};
	const struct hwt_options options = {
	    .tick_ns = TICK, .flags = HWT_MANUAL, .clock = &clock};

	CHECK(hwt_create(&timer, &options) == 0);
}

void
timer_close(void)
{
	CHECK(hwt_stop(timer, NULL) == 0);
	CHECK(hwt_destroy(timer) == 0);
}

void
timer_advance(uint64_t ns)
{
	hand_moved_ns += ns;
	CHECK(hwt_advance(timer, NULL) == 0);
}

bool
fd_is_readable(int fd)
{
	struct pollfd polled = {.fd = fd, .events = POLLIN};

	return poll(&polled, 1, 0) == 1;
}

static bool
signal_fails(int error)
{
	const struct fault *fault = fault_here();

	return fault->call == CALL_EVENTFD_WRITE && fault->error == error;
}

void
signal_in_thread(void *(*signals)(void *unused))
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, signals, NULL) == 0);
	if (fault_here()->permanent && signal_fails(EINTR)) {
		pause_ns(5 * TICK);
		fault_off();
	}
	CHECK(pthread_join(thread, NULL) == 0);
}

void
signal_failed(void)
{
	if (!signal_fails(EIO))
		fail("a mailbox stays silent");
	if (fault_here()->permanent)
		fault_off();
}

static struct {
	unsigned char before[STATE_MAX];
	uint64_t timeouts, injected;
	unsigned failures;
} attempt;

void
attempt_begin(void)
{
	(void)module_state(attempt.before);
	attempt.timeouts = hwt_pending_timeouts(timer);
	attempt.injected = fault_injected();
}

bool
attempt_failed(const char *function, int result)
{
	unsigned char after[STATE_MAX];
	size_t length = module_state(after);
	char name[16];

	if (result >= 0) {
		attempt.failures = 0;
		return false;
	}
	error_name(-result, name);
	if (fault_injected() == attempt.injected)
		fail("%s answers -%s without cause", function, name);
	if (!module_lists(function, -result))
		fail("%s answers -%s, which its header does not list", function,
		    name);
	if (-result != module_error(fault_here()))
		fail("%s answers -%s for another cause", function, name);
	if (memcmp(after, attempt.before, length) != 0 ||
	    hwt_pending_timeouts(timer) != attempt.timeouts)
		fail("%s failed and has changed something", function);
	if (++attempt.failures >= 2)
		fault_off();
	CHECK(attempt.failures <= 3);
	return true;
}
