/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_request_mailbox: granted on an event loop's own thread. inbox.h says how
 * a request gets there. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "checkout.h"
#include "executor/inbox.h"

struct hwt_request_mailbox {
	pid_t owner;
	struct hwt_request_executor executor;
	struct inbox inbox;
};

/* In a forked child, whose descriptor is the parent's, too. */
static bool
is_foreign(const struct hwt_request_mailbox *mailbox)
{
	return mailbox->owner != getpid();
}

static int
mailbox_execute(
    void *ctx, struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct hwt_request_mailbox *mailbox = ctx;
	struct request *handed = (struct request *)request;

	(void)checkout;
	request_change(handed, 0, BOXED);
	inbox_push(&mailbox->inbox, &handed->link);
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
hwt_request_mailbox_fd(const struct hwt_request_mailbox *mailbox)
{
	if (mailbox == NULL)
		return -EINVAL;
	return is_foreign(mailbox) ? -EOWNERDEAD : mailbox->inbox.fd;
}

const struct hwt_request_executor *
hwt_request_mailbox_executor(struct hwt_request_mailbox *mailbox)
{
	if (mailbox == NULL || is_foreign(mailbox))
		return NULL;
	return &mailbox->executor;
}

int
hwt_request_mailbox_run(
    struct hwt_request_mailbox *mailbox, size_t max, size_t *count)
{
	struct request *request;
	struct inbox_run run;
	size_t called = 0;
	a64_t *link;

	if (mailbox == NULL)
		return -EINVAL;
	if (is_foreign(mailbox))
		return -EOWNERDEAD;
	run = inbox_begin(&mailbox->inbox);
	while ((max == 0 || called < max) &&
	    (link = inbox_pop(&mailbox->inbox, &run)) != NULL) {
		request =
		    (void *)((uintptr_t)link - offsetof(struct request, link));
		(void)request_run(request, BOXED);
		called++;
	}
	inbox_end(&mailbox->inbox, &run);
	if (count != NULL)
		*count = called;
	return 0;
}

int
hwt_request_mailbox_destroy(struct hwt_request_mailbox *mailbox)
{
	if (mailbox == NULL)
		return 0;
	if (!is_foreign(mailbox) && !inbox_is_idle(&mailbox->inbox))
		return -EBUSY;
	inbox_close(&mailbox->inbox);
	free(mailbox);
	return 0;
}
