/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_operation_mailbox: done on an event loop's own thread. inbox.h says how
 * an operation gets there. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "executor/inbox.h"
#include "operation.h"

struct hwt_operation_mailbox {
	pid_t owner;
	struct hwt_operation_executor executor;
	struct inbox inbox;
};

/* In a forked child, whose descriptor is the parent's, too. */
static bool
is_foreign(const struct hwt_operation_mailbox *mailbox)
{
	return mailbox->owner != getpid();
}

static int
mailbox_execute(
    void *ctx, struct hwt_purgatory *purgatory, hwt_operation operation)
{
	struct hwt_operation_mailbox *mailbox = ctx;
	struct operation *held = operation_at(purgatory, operation.id);

	/* A stranger has called hwt_operation_run. */
	if (held == NULL || !operation_queue(held, operation.id))
		return -ENOENT;
	inbox_push(&mailbox->inbox, &held->link);
	return 0;
}

int
hwt_operation_mailbox_create(struct hwt_operation_mailbox **mailbox)
{
	struct hwt_operation_mailbox *made;
	int error;

	if (mailbox == NULL)
		return -EINVAL;
	made = aligned_alloc(CACHE_LINE, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	*made = (struct hwt_operation_mailbox){
	    .owner = getpid(),
	    .executor = {mailbox_execute, made},
	};
	error = inbox_open(&made->inbox);
	if (error != 0) {
		free(made);
		return error;
	}
	*mailbox = made;
	return 0;
}

int
hwt_operation_mailbox_fd(const struct hwt_operation_mailbox *mailbox)
{
	if (mailbox == NULL)
		return -EINVAL;
	return is_foreign(mailbox) ? -EOWNERDEAD : mailbox->inbox.fd;
}

const struct hwt_operation_executor *
hwt_operation_mailbox_executor(struct hwt_operation_mailbox *mailbox)
{
	if (mailbox == NULL || is_foreign(mailbox))
		return NULL;
	return &mailbox->executor;
}

int
hwt_operation_mailbox_run(
    struct hwt_operation_mailbox *mailbox, size_t max, size_t *done_count)
{
	struct operation *operation;
	struct inbox_run run;
	size_t count = 0;
	a64_t *link;

	if (mailbox == NULL)
		return -EINVAL;
	if (is_foreign(mailbox))
		return -EOWNERDEAD;
	run = inbox_begin(&mailbox->inbox);
	while ((max == 0 || count < max) &&
	    (link = inbox_pop(&mailbox->inbox, &run)) != NULL) {
		operation = (void *)((uintptr_t)link -
		    offsetof(struct operation, link));
		(void)purgatory_run(operation->home->purgatory,
		    operation_handle(operation), QUEUED);
		count++;
	}
	inbox_end(&mailbox->inbox, &run);
	if (done_count != NULL)
		*done_count = count;
	return 0;
}

int
hwt_operation_mailbox_destroy(struct hwt_operation_mailbox *mailbox)
{
	if (mailbox == NULL)
		return 0;
	if (!is_foreign(mailbox) && !inbox_is_idle(&mailbox->inbox))
		return -EBUSY;
	inbox_close(&mailbox->inbox);
	free(mailbox);
	return 0;
}
