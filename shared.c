/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process-wide timer.
 *
 * Without a lock, so that no fork can find it taken: whoever comes first makes
 * a timer and offers it by compare-and-swap; who comes second destroys its
 * own, which never had a thread. A timer of a parent process counts as none.
 * After hwt_shared_shutdown the stopped one stays in place; when there was
 * none, one is made for that, and never started.
 *
 * EDGES
 *   E:shared   the timer's contents, release by the compare-and-swap in
 *              shared_offer, acquired in shared_timer.
 */
#include <errno.h>
#include <string.h>

#include "timer.h"

static aptr_t shared;

static const struct hwt_options shared_options = {.tick_ns = HWT_MS(10)};

/* The one of this process, or NULL. *found: what stands there. */
static struct hwt *
shared_timer(struct hwt **found)
{
	/* E:shared acquire */
	*found = aptr_load_acquire(&shared);
	if (*found != NULL && process_owns((*found)->epoch))
		return *found;
	return NULL;
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

static int
shared_find(struct hwt **mine)
{
	struct hwt *found;
	int error;

	while ((*mine = shared_timer(&found)) == NULL) {
		error = shared_offer(found);
		if (error != 0)
			return error;
	}
	return 0;
}

int
hwt_shared(struct hwt **timer)
{
	struct hwt *mine;
	int error;

	if (timer == NULL)
		return -EINVAL;
	error = shared_find(&mine);
	if (error == 0)
		error = timer_start(mine);
	if (error == 0)
		*timer = mine;
	return error;
}

int
hwt_shared_shutdown(struct hwt_unprocessed *unprocessed)
{
	struct hwt *mine;
	int error;

	if (unprocessed != NULL)
		memset(unprocessed, 0, sizeof(*unprocessed));
	error = shared_find(&mine);
	if (error != 0)
		return error;
	return timer_stop(mine, HWT_NEVER, unprocessed);
}
