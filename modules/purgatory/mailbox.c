/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_operation_mailbox: done on an event loop's own thread. inbox.h says how
 * an operation gets there. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "executor/box.h"
#include "operation.h"

struct hwt_operation_mailbox {
	struct hwt_operation_executor executor;
	struct box box;
};

static int
mailbox_execute(
    void *ctx, struct hwt_purgatory *purgatory, hwt_operation operation)
{
	struct hwt_operation_mailbox *mailbox = ctx;
	struct operation *held = operation_at(purgatory, operation.id);

	/* Somebody else has called hwt_operation_run. */
	if (held == NULL || !operation_queue(held, operation.id))
		return -ENOENT;
	inbox_push(&mailbox->box.inbox, &held->link);
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
	    .executor = {mailbox_execute, made},
	};
	error = box_open(&made->box);
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
	return mailbox != NULL ? box_fd(&mailbox->box) : -EINVAL;
}

const struct hwt_operation_executor *
hwt_operation_mailbox_executor(struct hwt_operation_mailbox *mailbox)
{
	if (mailbox == NULL || box_is_foreign(&mailbox->box))
		return NULL;
	return &mailbox->executor;
}

static void
run_link(a64_t *link)
{
	struct operation *operation =
	    (void *)((uintptr_t)link - offsetof(struct operation, link));

	(void)purgatory_run(
	    operation->home->purgatory, operation_handle(operation), QUEUED);
}

int
hwt_operation_mailbox_run(
    struct hwt_operation_mailbox *mailbox, size_t max, size_t *done_count)
{
	return mailbox != NULL
	    ? box_run(&mailbox->box, max, done_count, run_link)
	    : -EINVAL;
}

int
hwt_operation_mailbox_destroy(struct hwt_operation_mailbox *mailbox)
{
	if (mailbox == NULL)
		return 0;
	if (box_close(&mailbox->box) != 0)
		return -EBUSY;
	free(mailbox);
	return 0;
}
