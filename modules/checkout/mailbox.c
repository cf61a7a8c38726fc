/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_request_mailbox: granted on an event loop's own thread. inbox.h says how
 * a request gets there. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "checkout.h"
#include "executor/box.h"

struct hwt_request_mailbox {
	struct hwt_request_executor executor;
	struct box box;
};

static int
mailbox_execute(
    void *ctx, struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct hwt_request_mailbox *mailbox = ctx;
	struct request *handed = (struct request *)request;

	(void)checkout;
	request_change(handed, 0, QUEUED);
	inbox_push(&mailbox->box.inbox, &handed->link);
	return 0;
}

int
hwt_request_mailbox_create(struct hwt_request_mailbox **mailbox)
{
	struct hwt_request_mailbox *made;
	int error;

	if (mailbox == NULL)
		return -EINVAL;
	made = aligned_alloc(CACHE_LINE, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	*made = (struct hwt_request_mailbox){
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
hwt_request_mailbox_fd(const struct hwt_request_mailbox *mailbox)
{
	return mailbox != NULL ? box_fd(&mailbox->box) : -EINVAL;
}

const struct hwt_request_executor *
hwt_request_mailbox_executor(struct hwt_request_mailbox *mailbox)
{
	if (mailbox == NULL || box_is_foreign(&mailbox->box))
		return NULL;
	return &mailbox->executor;
}

static void
run_link(a64_t *link)
{
	(void)request_run(
	    (void *)((uintptr_t)link - offsetof(struct request, link)), QUEUED);
}

int
hwt_request_mailbox_run(
    struct hwt_request_mailbox *mailbox, size_t max, size_t *count)
{
	return mailbox != NULL ? box_run(&mailbox->box, max, count, run_link)
			       : -EINVAL;
}

int
hwt_request_mailbox_destroy(struct hwt_request_mailbox *mailbox)
{
	if (mailbox == NULL)
		return 0;
	if (box_close(&mailbox->box) != 0)
		return -EBUSY;
	free(mailbox);
	return 0;
}
