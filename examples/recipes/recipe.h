/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the recipes: must(), the order of tearing down, and a timer whose
 * time stands still until pass() moves it (unit_test.c), so that a minute takes
 * no time. All that a recipe does with it works with any timer. */
#ifndef RECIPE_H
#define RECIPE_H

#include <errno.h>
#include <hwt.h>

#include "../must.h"

#define TICK_NS HWT_MS(10)

static uint64_t now_ns __attribute__((unused));

static inline uint64_t
by_hand_now(void *ctx)
{
	(void)ctx;
	return now_ns;
}

static inline struct hwt *
by_hand_create(void)
{
	struct hwt_clock clock = {.now_ns = by_hand_now};
	struct hwt_options options = {
	    .flags = HWT_MANUAL, .tick_ns = TICK_NS, .clock = &clock};
	struct hwt *made;

	must(hwt_create(&made, &options) == 0);
	return made;
}

/* Time passes, tick by tick. */
static inline void
pass(struct hwt *timer, uint64_t time_ns)
{
	uint64_t end_ns = now_ns + time_ns;

	must(time_ns % TICK_NS == 0);
	while (now_ns < end_ns) {
		now_ns += TICK_NS;
		must(hwt_advance(timer, NULL) == 0);
	}
}

/* First the timer stops; then its executors run or release what they hold; then
 * the timer is destroyed. Here nothing may be left. mailbox may be NULL. */
static inline void
teardown(struct hwt *timer, struct hwt_mailbox *mailbox)
{
	struct hwt_unprocessed unprocessed;

	must(hwt_stop(timer, &unprocessed) == 0);
	must(unprocessed.count == 0);
	while (hwt_mailbox_destroy(mailbox) == -EBUSY)
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(hwt_destroy(timer) == 0);
}

#endif
