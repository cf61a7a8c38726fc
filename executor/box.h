/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the modules' mailboxes have in common: an inbox of one process.
 *
 * The core knows a fork by its epoch (core/process.h), which it shows to no
 * other library. Here it is known by the process's number. So a child that has
 * the same number, which needs another namespace or a number that was used
 * before, is not found out.
 */
#ifndef HWT_BOX_H
#define HWT_BOX_H

#include "executor/inbox.h"

struct box {
	pid_t owner;
	struct inbox inbox;
};

/* In a forked child, whose descriptor is the parent's, too. */
static inline bool
box_is_foreign(const struct box *box)
{
	return box->owner != getpid();
}

/* As inbox_open. */
static inline int
box_open(struct box *box)
{
	box->owner = getpid();
	return inbox_open(&box->inbox);
}

static inline int
box_fd(const struct box *box)
{
	return box_is_foreign(box) ? -EOWNERDEAD : box->inbox.fd;
}

/* Calls run for at most max links (0: for all that are there now), and counts
 * them, if count is not NULL. hwt_mailbox_run is this loop again: it counts
 * only the tasks that it has started, and asks after each whether that has
 * forked. As parameters of one loop, these two take more lines than they save.
 */
static inline int
box_run(struct box *box, size_t max, size_t *count, void (*run)(a64_t *link))
{
	struct inbox_run begun;
	size_t called = 0;
	a64_t *link;

	if (box_is_foreign(box))
		return -EOWNERDEAD;
	begun = inbox_begin(&box->inbox);
	while ((max == 0 || called < max) &&
	    (link = inbox_pop(&box->inbox, &begun)) != NULL) {
		run(link);
		called++;
	}
	inbox_end(&box->inbox, &begun);
	if (count != NULL)
		*count = called;
	return 0;
}

/* -EBUSY: something is in it, or a run. */
static inline int
box_close(struct box *box)
{
	if (!box_is_foreign(box) && !inbox_is_idle(&box->inbox))
		return -EBUSY;
	inbox_close(&box->inbox);
	return 0;
}

#endif
