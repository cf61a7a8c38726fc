/* SPDX-License-Identifier: Apache-2.0 */
/* Results that are ignored: a compiler warns of each line with MUST, and of no
 * other; see the job header/ignored. Only compiled. */
#include "hwt.h"

#ifndef MUST
#define MUST(call) call
#endif

void ignore_timer(struct hwt *timer, hwt_timeout timeout);
void ignore_executors(struct hwt_pool *pool, struct hwt_mailbox *mailbox);

void
ignore_timer(struct hwt *timer, hwt_timeout timeout)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	struct hwt_stats stats;
	uint64_t time;
	int64_t remaining;

	MUST(hwt_create(&timer, NULL));
	MUST(hwt_stop(timer, &unprocessed));
	MUST(hwt_stop_within(timer, 0, NULL));
	MUST(hwt_destroy(timer));
	MUST(hwt_shared(&timer));
	MUST(hwt_shared_shutdown(NULL));
	MUST(hwt_new_timeout(timer, NULL, NULL, NULL, 0));
	MUST(hwt_new_timeout_on(timer, NULL, NULL, NULL, NULL, 0));
	MUST(hwt_new_timeout_at(timer, NULL, NULL, NULL, NULL, 0));
	MUST(hwt_new_periodic(timer, NULL, NULL, NULL, NULL, 0, 1));
	MUST(hwt_touch(timer, NULL, &timeout, NULL, NULL, 0));
	MUST(hwt_cancel(timer, timeout));
	MUST(hwt_cancel_wait(timer, timeout));
	/* These decide about nothing that anybody owns. */
	hwt_start(timer);
	hwt_unprocessed_next(&unprocessed, &info);
	hwt_reschedule(timer, timeout, 0);
	hwt_reschedule_at(timer, timeout, 0);
	hwt_run(timer, timeout);
	hwt_advance(timer, NULL);
	hwt_stats_write(timer, stderr, HWT_JSON);
	hwt_dump(timer, stderr);
	hwt_now(timer, &time);
	hwt_next_wakeup(timer, &time);
	hwt_remaining(timer, timeout, &remaining);
	hwt_state(timer, timeout, NULL);
	hwt_read_stats(timer, &stats);
}

void
ignore_executors(struct hwt_pool *pool, struct hwt_mailbox *mailbox)
{
	MUST(hwt_pool_create(&pool, 1, 0));
	MUST(hwt_pool_destroy(pool));
	MUST(hwt_mailbox_create(&mailbox));
	MUST(hwt_mailbox_destroy(mailbox));
	hwt_mailbox_run(mailbox, 0, NULL);
	hwt_mailbox_fd(mailbox);
}
