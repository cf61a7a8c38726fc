/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process-wide timer.
 *
 * Without a lock, so that no fork can find it taken: whoever comes first makes
 * a timer and offers it by compare-and-swap; who comes second destroys its
 * own, which never had a thread. A timer of a parent process counts as none.
 * After hwt_shared_shutdown the stopped one stays in place; when there was
 * none, the word holds the epoch that refuses, and there will be none.
 *
 * EDGES
 *   E:shared   the timer's contents, release by the compare-and-swap that puts
 *              it in place, in shared_offer, acquired in shared_look.
 */
#include <errno.h>
#include <string.h>

#include "timer.h"

/* 0; or the timer's address, which is even; or refusal(). */
static a64_t shared;

static const struct hwt_options shared_options = {.tick_ns = HWT_MS(10)};

static uint64_t
refusal(void)
{
	return process_epoch() << 1 | 1;
}

static struct hwt *
timer_in(uint64_t word)
{
	return (struct hwt *)(uintptr_t)word;
}

/* 0: *word is this process's timer; -ESHUTDOWN: there will be none; -ENOENT:
 * none yet, and *word is what stands in its place. */
static int
shared_look(uint64_t *word)
{
	/* E:shared acquire */
	*word = a64_load_acquire(&shared);
	if (*word == refusal())
		return -ESHUTDOWN;
	if (*word == 0 || (*word & 1) || !process_owns(timer_in(*word)->epoch))
		return -ENOENT;
	return 0;
}

/* Makes one and offers it in the place of word. */
static int
shared_offer(uint64_t word)
{
	struct hwt *made;
	int error = hwt_create(&made, &shared_options);

	if (error != 0)
		return error;
	made->shared = true;
	/* E:shared release */
	if (a64_cas_acq_rel(&shared, word, (uint64_t)(uintptr_t)made))
		return 0;
	made->shared = false;
	(void)timer_stop(made, HWT_NEVER, NULL);
	return hwt_destroy(made);
}

void
shared_forget(const struct hwt *timer)
{
	(void)a64_cas_acq_rel(&shared, (uint64_t)(uintptr_t)timer, 0);
}

int
hwt_shared(struct hwt **timer)
{
	uint64_t word;
	int error;

	if (timer == NULL)
		return -EINVAL;
	while ((error = shared_look(&word)) == -ENOENT) {
		error = shared_offer(word);
		if (error != 0)
			return error;
	}
	if (error == 0)
		error = timer_start(timer_in(word));
	if (error == 0)
		*timer = timer_in(word);
	return error;
}

int
hwt_shared_shutdown(struct hwt_unprocessed *unprocessed)
{
	uint64_t word;
	int error;

	if (unprocessed != NULL)
		memset(unprocessed, 0, sizeof(*unprocessed));
	while ((error = shared_look(&word)) == -ENOENT) {
		if (a64_cas_acq_rel(&shared, word, refusal()))
			return 0;
	}
	if (error == -ESHUTDOWN)
		return 0;
	return timer_stop(timer_in(word), HWT_NEVER, unprocessed);
}
