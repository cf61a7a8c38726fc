/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote call with one deadline, retries, and full-jitter back-off: the wait
 * before attempt n is random between 0 and BASE * 2^n, so that clients that
 * failed together do not come back together. The deadline is absolute: attempts
 * and waits end with it. One timeout at a time serves the call.
 */
#include "recipe.h"

#define CALLS 100
#define ATTEMPT_NS HWT_MS(200)
#define BASE_NS HWT_MS(100)

struct call {
	hwt_timeout next;
	uint64_t deadline_ns;
	unsigned attempts;
	unsigned short seed[3];
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
	uint64_t limit_ns = BASE_NS
	    << (call->attempts < 4 ? call->attempts : 4);
	uint64_t again_ns =
	    now_ns + (uint64_t)(erand48(call->seed) * (double)limit_ns);

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
run_calls(unsigned from, int result)
{
	struct call call[CALLS];
	unsigned i;

	answers_from = from;
	for (i = 0; i < CALLS; i++) {
		call[i] = (struct call){.deadline_ns = now_ns + HWT_SEC(10),
		    .seed = {(unsigned short)i},
		    .result = 1};
		attempt((hwt_timeout){0}, &call[i]);
	}
	pass(timer, HWT_SEC(11));
	for (i = 0; i < CALLS; i++)
		must(call[i].result == result && call[i].attempts > 2);
}

int
main(void)
{
	timer = by_hand_create();
	run_calls(3, 0);
	run_calls(1000, -ETIMEDOUT);
	teardown(timer, NULL);
	printf("%d calls answered, %d given up in time\n", CALLS, CALLS);
	return 0;
}
