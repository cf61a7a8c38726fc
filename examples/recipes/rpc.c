/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote call with one absolute deadline, retries, and full-jitter back-off:
 * the wait before attempt n is random between 0 and BASE * 2^n.
 */
#include "recipe.h"

#define ATTEMPT_NS HWT_MS(200)
#define BASE_NS HWT_MS(100)

struct call {
	hwt_timeout next;
	uint64_t deadline_ns;
	unsigned attempts;
	int result; /* 1: under way */
};

static hwt_task attempt;
static struct hwt *timer;
static unsigned answers_from; /* so many attempts */

static void
call_wait(struct call *call, hwt_task *task, uint64_t until_ns)
{
	if (until_ns > call->deadline_ns)
		until_ns = call->deadline_ns;
	must(hwt_new_timeout_at(
		 timer, NULL, &call->next, task, call, until_ns) == 0);
}

static void
no_answer(hwt_timeout timeout, void *arg)
{
	struct call *call = arg;
	unsigned shift = call->attempts < 4 ? call->attempts : 4;
	double limit_ns = (double)(BASE_NS << shift);
	uint64_t again_ns = now_ns + (uint64_t)(drand48() * limit_ns);

	(void)timeout;
	if (again_ns >= call->deadline_ns)
		call->result = -ETIMEDOUT;
	else
		call_wait(call, attempt, again_ns);
}

static void
attempt(hwt_timeout timeout, void *arg)
{
	struct call *call = arg;

	(void)timeout;
	call_wait(call, no_answer, now_ns + ATTEMPT_NS);
	if (++call->attempts < answers_from)
		return;
	/* The answer comes on the thread of the tasks: the cancel wins. */
	must(hwt_cancel(timer, call->next) == 0);
	call->result = 0;
}

static void
run_call(unsigned from, int result)
{
	struct call call = {.deadline_ns = now_ns + HWT_SEC(10), .result = 1};

	answers_from = from;
	attempt((hwt_timeout){0}, &call);
	pass(timer, HWT_SEC(11));
	must(call.result == result && call.attempts > 2);
}

int
main(void)
{
	timer = by_hand_create();
	run_call(3, 0);
	run_call(1000, -ETIMEDOUT);
	teardown(timer, NULL);
	return puts("a call answered, a call given up in time") == EOF;
}
