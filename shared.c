/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process-wide timer.
 *
 * Without a lock, so that no fork can find it taken: whoever comes first makes
 * a timer and offers it by compare-and-swap; who comes second destroys its
 * own, which never had a thread. A timer of a parent process counts as none.
 * After hwt_shared_shutdown the stopped one stays in place; when there was
 * none, REFUSED stands there, and there will be none.
 *
 * EDGES
 *   E:shared   the timer's contents, or the epoch that refuses, release by the
 *              compare-and-swap that puts it in place, in shared_offer and
 *              shared_refuse, acquired in shared_look.
 */
#include <errno.h>
#include <string.h>

#include "timer.h"

#define REFUSED ((void *)&refused_epoch)

static aptr_t shared;
/* Of the process that shut down before there was a timer. */
static a64_t refused_epoch;

static const struct hwt_options shared_options = {.tick_ns = HWT_MS(10)};

/* 0: *found is this process's; -ESHUTDOWN: there will be none; -ENOENT: none
 * yet, and *found is what stands in its place. */
static int
shared_look(struct hwt **found)
{
	/* E:shared acquire */
	void *there = aptr_load_acquire(&shared);

	if (there == REFUSED) {
		if (process_owns(a64_load_relaxed(&refused_epoch)))
			return -ESHUTDOWN;
		/* A parent's. */
		(void)aptr_cas_acq_rel(&shared, REFUSED, NULL);
		there = NULL;
	}
	*found = there;
	if (there == NULL || !process_owns((*found)->epoch))
		return -ENOENT;
	return 0;
}

/* Makes one and offers it in the place of found. */
static int
shared_offer(struct hwt *found)
{
	struct hwt *made;
	int error = hwt_create(&made, &shared_options);

	if (error != 0)
		return error;
	made->shared = true;
	/* E:shared release */
	if (aptr_cas_acq_rel(&shared, found, made))
		return 0;
	made->shared = false;
	(void)timer_stop(made, HWT_NEVER, NULL);
	return hwt_destroy(made);
}

/* What is in the place of found stays, when somebody was faster. */
static void
shared_refuse(struct hwt *found)
{
	a64_store_relaxed(&refused_epoch, process_epoch());
	/* E:shared release */
	(void)aptr_cas_acq_rel(&shared, found, REFUSED);
}

int
hwt_shared(struct hwt **timer)
{
	struct hwt *found;
	int error;

	if (timer == NULL)
		return -EINVAL;
	while ((error = shared_look(&found)) == -ENOENT) {
		error = shared_offer(found);
		if (error != 0)
			return error;
	}
	if (error == 0)
		error = timer_start(found);
	if (error == 0)
		*timer = found;
	return error;
}

int
hwt_shared_shutdown(struct hwt_unprocessed *unprocessed)
{
	struct hwt *found;
	int error;

	if (unprocessed != NULL)
		memset(unprocessed, 0, sizeof(*unprocessed));
	while ((error = shared_look(&found)) == -ENOENT)
		shared_refuse(found);
	if (error == -ESHUTDOWN)
		return 0;
	return timer_stop(found, HWT_NEVER, unprocessed);
}
