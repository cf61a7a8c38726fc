/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_new_timeouts: all or none. */
#include "test/spec/support.h"

SUITE(batch);

static int
schedule_two(struct hwt *timer)
{
	const struct hwt_spec specs[2] = {
	    {.task = forbidden_task}, {.task = forbidden_task}};
	hwt_timeout timeouts[2] = {{7}, {7}};
	int rc = hwt_new_timeouts(timer, 2, specs, timeouts);

	cr_assert(rc == 0 || (timeouts[0].id == 0 && timeouts[1].id == 0));
	return rc;
}

static void
child_is_refused(void *timer)
{
	child_rc(hwt_new_timeouts(timer, 0, NULL, NULL), -EOWNERDEAD);
}

Test(batch, batch_is_scheduled_or_refused_whole)
{
	struct hwt *timer;

	assert_ok(hwt_create(&timer, &(struct hwt_options){.max_pending = 3}));
	fault_arm(FAULT_THREAD, FAULT_ALWAYS);
	assert_rc(schedule_two(timer), -EAGAIN);
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_rc(schedule_two(timer), -ENOMEM);
	fault_disarm();
	assert_rc(hwt_new_timeouts(timer, 1, NULL, NULL), -EINVAL);
	assert_u64(hwt_pending_timeouts(timer), 0);
	schedule_task(timer, forbidden_task, HWT_NEVER);
	schedule_task(timer, forbidden_task, HWT_NEVER);
	assert_rc(schedule_two(timer), -ENOBUFS);
	in_child(child_is_refused, timer);
	assert_ok(hwt_stop(timer, NULL));
	assert_rc(schedule_two(timer), -ESHUTDOWN);
	assert_ok(hwt_destroy(timer));
}
