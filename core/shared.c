/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process-wide timer.
 *
 * There is no lock that a fork could find taken: a thread creates a timer and
 * puts it in place by compare-and-swap; if that fails, it destroys its own,
 * which never had a thread. After hwt_shared_shutdown the stopped timer stays
 * in place; if there was none, the word becomes REFUSED.
 *
 * FORK. A child must not dereference the parent's timer: another thread of the
 * child may free it at any moment. So process_renew clears the word. A thread
 * calls process_epoch before it reads or writes the word, and so has either
 * cleared it or acquired it from the thread that did (E:epoch). After that the
 * word holds a timer of this process, which is never freed.
 *
 * EDGES
 *   E:shared   the timer's contents, release by the compare-and-swap that puts
 *              it in place, in shared_offer, acquired in shared_look.
 */
#include <errno.h>
#include <string.h>

#include "core/timer.h"

/* 0; or the timer's address, which is even; or REFUSED. */
#define REFUSED 1

static const struct hwt_options shared_options = {.tick_ns = HWT_MS(10)};

/* 0: *timer is this process's; -ESHUTDOWN: there will be none; -ENOENT: none
 * yet. */
static int
shared_look(struct hwt **timer)
{
	uint64_t word;

	(void)process_epoch();
	/* E:shared acquire */
	word = a64_load_acquire(&process_shared);
	if (word == REFUSED)
		return -ESHUTDOWN;
	if (word == 0)
		return -ENOENT;
	*timer = (struct hwt *)(uintptr_t)word;
	return 0;
}

/* Creates a timer and puts it in place if there is none. */
static int
shared_offer(void)
{
	struct hwt *made;
	int error = hwt_create(&made, &shared_options);

	if (error != 0)
		return error;
	made->shared = true;
	/* E:shared release */
	if (a64_cas_seq(&process_shared, 0, (uint64_t)(uintptr_t)made))
		return 0;
	made->shared = false;
	(void)timer_stop(made, HWT_NEVER, NULL);
	return hwt_destroy(made);
}

int
hwt_shared(struct hwt **timer)
{
	struct hwt *found;
	int error;

	if (timer == NULL)
		return -EINVAL;
	while ((error = shared_look(&found)) == -ENOENT) {
		error = shared_offer();
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
	struct hwt *timer;
	int error;

	if (unprocessed != NULL)
		memset(unprocessed, 0, sizeof(*unprocessed));
	while ((error = shared_look(&timer)) == -ENOENT) {
		if (a64_cas_seq(&process_shared, 0, REFUSED))
			return 0;
	}
	if (error == -ESHUTDOWN)
		return 0;
	return timer_stop(timer, HWT_NEVER, unprocessed);
}
