/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_mailbox: delivery to an event loop. inbox.h says how.
 *
 * Timeouts and posts are items of the same inbox (handover.h), so that they run
 * in the order in which they arrived.
 *
 * EDGES
 *   E:handing  drawn in ../worker.c: hwt_mailbox_destroy waits for workers
 *              that are about to call mailbox_execute, or in it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "handover.h"

#include "core/debug.h"

struct hwt_mailbox {
	uint64_t epoch;
	struct hwt_executor executor;
	struct inbox inbox;
};

static int
mailbox_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct hwt_mailbox *mailbox = ctx;

	if (!process_owns(mailbox->epoch))
		return EOWNERDEAD;
	inbox_push(&mailbox->inbox, timeout_link(timer, timeout));
	return 0;
}

int
hwt_mailbox_post(
    struct hwt_mailbox *mailbox, struct hwt_post *post, hwt_posted *function)
{
	if (mailbox == NULL)
		return -EINVAL;
	if (!process_owns(mailbox->epoch))
		return -EOWNERDEAD;
	if (post == NULL || function == NULL)
		return -EINVAL;
	inbox_push(&mailbox->inbox, post_link(post, function));
	return 0;
}

int
hwt_mailbox_create(struct hwt_mailbox **mailbox)
{
	struct hwt_mailbox *made;
	int error;

	if (mailbox == NULL)
		return -EINVAL;
	if (!process_sees_forks)
		return -ENOMEM;
	made = aligned_alloc(CACHE_LINE, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	*made = (struct hwt_mailbox){
	    .epoch = process_epoch(),
	    .executor = {.execute = mailbox_execute, .ctx = made},
	};
	error = inbox_open(&made->inbox);
	if (error != 0) {
		free(made);
		return error;
	}
	DEBUG_MADE("mailbox", made, made->epoch);
	*mailbox = made;
	return 0;
}

int
hwt_mailbox_fd(const struct hwt_mailbox *mailbox)
{
	if (mailbox == NULL)
		return -EINVAL;
	return process_owns(mailbox->epoch) ? mailbox->inbox.fd : -EOWNERDEAD;
}

const struct hwt_executor *
hwt_mailbox_executor(struct hwt_mailbox *mailbox)
{
	if (mailbox == NULL || !process_owns(mailbox->epoch))
		return NULL;
	return &mailbox->executor;
}

int
hwt_mailbox_run(struct hwt_mailbox *mailbox, size_t max, size_t *tasks_started)
{
	struct inbox_run run;
	size_t started = 0;
	size_t begun = 0;
	enum item_end end;
	a64_t *link;

	if (mailbox == NULL)
		return -EINVAL;
	if (!process_owns(mailbox->epoch))
		return -EOWNERDEAD;
	run = inbox_begin(&mailbox->inbox);
	while ((max == 0 || begun < max) &&
	    (link = inbox_pop(&mailbox->inbox, &run)) != NULL) {
		end = item_run(link);
		begun += end != ITEM_NONE;
		started += end == ITEM_TASK;
		if (!process_owns(mailbox->epoch))
			return -EOWNERDEAD;
	}
	inbox_end(&mailbox->inbox, &run);
	if (tasks_started != NULL)
		*tasks_started = started;
	return 0;
}

int
hwt_mailbox_destroy(struct hwt_mailbox *mailbox)
{
	if (mailbox == NULL)
		return 0;
	if (process_owns(mailbox->epoch)) {
		process_await_hand_overs(&mailbox->executor);
		if (!inbox_is_idle(&mailbox->inbox))
			return -EBUSY;
	}
	inbox_close(&mailbox->inbox);
	debug_destroyed(mailbox);
	free(mailbox);
	return 0;
}
