/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit test of code that uses timeouts: the test gives it a manual timer with
 * a clock of its own, and moves the time. No sleep, no tolerance, no second
 * thread; half an hour passes in no time.
 *
 * The code under test gets its timer from outside and reads no other clock:
 * that is all that it must do to be tested like this.
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
session_begin(struct session *session, struct hwt *timer)
{
	session->timer = timer;
	session->is_valid = true;
	return hwt_new_timeout(
	    timer, &session->expiry, session_expire, session, HWT_MIN(30));
}

static void
session_use(struct session *session)
{
	hwt_reschedule(session->timer, session->expiry, HWT_MIN(30));
}

/* The test: a clock that stands still until it is moved. */
struct fixture {
	uint64_t now_ns;
	struct hwt *timer;
};

static uint64_t
fixture_now(void *ctx)
{
	struct fixture *fixture = ctx;

	return fixture->now_ns;
}

static void
fixture_create(struct fixture *fixture)
{
	struct hwt_clock clock = {.now_ns = fixture_now, .ctx = fixture};
	struct hwt_options options = {.flags = HWT_MANUAL, .clock = &clock};

	fixture->now_ns = 0;
	must(hwt_create(&fixture->timer, &options) == 0);
}

static void
fixture_pass(struct fixture *fixture, uint64_t time_ns)
{
	fixture->now_ns += time_ns;
	must(hwt_advance(fixture->timer, NULL) == 0);
}

static void
fixture_destroy(struct fixture *fixture)
{
	must(hwt_stop(fixture->timer, NULL) == 0);
	must(hwt_destroy(fixture->timer) == 0);
}

int
main(void)
{
	struct fixture fixture;
	struct session session;

	fixture_create(&fixture);
	must(session_begin(&session, fixture.timer) == 0);

	fixture_pass(&fixture, HWT_MIN(29));
	must(session.is_valid);
	session_use(&session);
	fixture_pass(&fixture, HWT_MIN(30) - 1);
	must(session.is_valid);
	fixture_pass(&fixture, 1);
	must(!session.is_valid);

	fixture_destroy(&fixture);
	printf("an hour passed\n");
	return 0;
}
