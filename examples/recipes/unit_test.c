/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit test of code that uses timeouts: the test gives it a manual timer with
 * a clock of its own, and moves the time. No sleep, no tolerance, no second
 * thread. The code under test gets its timer from outside and reads no other
 * clock: that is all that it must do.
 */
#include <hwt.h>

#include "../must.h"

/* The code under test: a session ends after half an hour without use. */
struct session {
	struct hwt *timer;
	hwt_timeout expiry;
	bool is_valid;
};

static void
session_expire(hwt_timeout timeout, void *arg)
{
	struct session *session = arg;

	(void)timeout;
	session->is_valid = false;
}

static int
session_use(struct session *session)
{
	session->is_valid = true;
	return hwt_touch(session->timer, NULL, &session->expiry, session_expire,
	    session, HWT_MIN(30));
}

/* The test: a clock that stands still until it is moved. */
static uint64_t now_ns;

static uint64_t
test_clock(void *ctx)
{
	(void)ctx;
	return now_ns;
}

static void
pass(struct hwt *timer, uint64_t time_ns)
{
	now_ns += time_ns;
	must(hwt_advance(timer, NULL) == 0);
}

int
main(void)
{
	struct hwt_clock clock = {.now_ns = test_clock};
	struct hwt_options options = {.flags = HWT_MANUAL, .clock = &clock};
	struct session session = {.is_valid = false};

	must(hwt_create(&session.timer, &options) == 0);
	must(session_use(&session) == 0);
	pass(session.timer, HWT_MIN(29));
	must(session.is_valid && session_use(&session) == 0);
	pass(session.timer, HWT_MIN(30) - 1);
	must(session.is_valid);
	pass(session.timer, 1);
	must(!session.is_valid);
	must(hwt_stop(session.timer, NULL) == 0);
	must(hwt_destroy(session.timer) == 0);
	printf("an hour passed\n");
	return 0;
}
