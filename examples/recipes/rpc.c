/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote call with one deadline, retries, and full-jitter back-off: the wait
 * before attempt n is random between 0 and BASE * 2^n, at most CAP, so that
 * clients that failed together do not come back together.
 *
 * The deadline is absolute and is what the caller gave: attempts and waits are
 * cut to it, and a retry that could not begin before it is not waited for. One
 * timeout at a time serves the call, whatever it waits for.
 */
#include "by_hand.h"

#include <errno.h>
#include <stdlib.h>

#define ATTEMPT_NS HWT_MS(200)
#define BASE_NS HWT_MS(100)
#define CAP_NS HWT_SEC(2)

struct call {
	hwt_timeout next;
	uint64_t deadline_ns;
	unsigned attempts;
	unsigned short seed[3];
	int result; /* 1: under way */
	uint64_t ended_ns;
};

static struct hwt *timer;
/* The server: answers from this attempt on. */
static unsigned answers_from;

static hwt_task attempt;

static void
call_end(struct call *call, int result)
{
	call->result = result;
	call->ended_ns = now_ns;
}

static void
call_wait(struct call *call, hwt_task *task, uint64_t until_ns)
{
	if (until_ns > call->deadline_ns)
		until_ns = call->deadline_ns;
	if (hwt_new_timeout_at(
		timer, NULL, &call->next, task, call, until_ns) != 0)
		call_end(call, -EAGAIN);
}

static uint64_t
backoff_ns(struct call *call)
{
	uint64_t limit_ns = CAP_NS;

	if (call->attempts < 5 && BASE_NS << call->attempts < CAP_NS)
		limit_ns = BASE_NS << call->attempts;
	return (uint64_t)(erand48(call->seed) * (double)limit_ns);
}

static void
no_answer(hwt_timeout timeout, void *arg)
{
	struct call *call = arg;
	uint64_t again_ns = now_ns + backoff_ns(call);

	(void)timeout;
	if (again_ns >= call->deadline_ns)
		call_end(call, -ETIMEDOUT);
	else
		call_wait(call, attempt, again_ns);
}

/* The answer came: the timeout has not begun, since answers and tasks come on
 * one thread. */
static void
answer(struct call *call)
{
	must(hwt_cancel(timer, call->next) == 0);
	call_end(call, 0);
}

static void
attempt(hwt_timeout timeout, void *arg)
{
	struct call *call = arg;

	(void)timeout;
	call->attempts++;
	call_wait(call, no_answer, now_ns + ATTEMPT_NS);
	if (call->attempts >= answers_from)
		answer(call);
}

static void
call_begin(struct call *call, uint64_t deadline_ns)
{
	call->deadline_ns = deadline_ns;
	call->result = 1;
	attempt((hwt_timeout){0}, call);
}

int
main(void)
{
	struct call calls[100] = {0};
	uint64_t deadline_ns, ends = 0;
	int i;

	timer = by_hand_create();
	deadline_ns = HWT_SEC(10);
	answers_from = 3;
	for (i = 0; i < 100; i++) {
		calls[i].seed[0] = (unsigned short)i;
		call_begin(&calls[i], deadline_ns);
	}
	pass(timer, HWT_SEC(11));
	for (i = 0; i < 100; i++) {
		must(calls[i].result == 0 && calls[i].attempts == 3);
		ends |= UINT64_C(1) << calls[i].ended_ns / TICK_NS % 64;
	}
	/* They came back spread over time. */
	must(__builtin_popcountll(ends) > 16);

	answers_from = 1000;
	deadline_ns = now_ns + HWT_SEC(10);
	for (i = 0; i < 100; i++) {
		calls[i].attempts = 0;
		call_begin(&calls[i], deadline_ns);
	}
	pass(timer, HWT_SEC(11));
	for (i = 0; i < 100; i++) {
		must(calls[i].result == -ETIMEDOUT && calls[i].attempts > 4);
		must(calls[i].ended_ns <= deadline_ns);
	}
	by_hand_destroy(timer, NULL);
	printf("100 calls answered in time, 100 given up in time\n");
	return 0;
}
