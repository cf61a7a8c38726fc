/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_operation_mailbox: done on an event loop's own thread.
 *
 * Threads push operations onto a stack, linked in their records, so that a
 * mailbox has no limit; the loop takes the whole stack and turns it round.
 * Whoever pushes onto an empty stack makes the eventfd readable, and so does
 * the next one where that failed. A run clears the eventfd before it takes the
 * stack: what is pushed in between makes it readable again.
 *
 * EDGES
 *   E:box   an operation's link and all that was done to it: release by the
 *           push in mailbox_execute, acquire by taking the stack in
 *           mailbox_collect.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "operation.h"

struct hwt_operation_mailbox {
	int fd;
	pid_t owner;
	unsigned running; /* the loop's: runs, one in the other */
	struct operation *first, *last; /* the loop's: taken, oldest first */
	uint64_t collected, popped; /* the loop's: ever */
	aptr_t pushed; /* newest first */
	/* The eventfd could not be made readable. Relaxed: who reads it late
	 * leaves that to the hand-over after. */
	a64_t silent;
	struct hwt_operation_executor executor;
};

/* In a forked child, whose descriptor is the parent's, too. */
static bool
is_foreign(const struct hwt_operation_mailbox *mailbox)
{
	return mailbox->owner != getpid();
}

/* Where the count is full (EAGAIN), it is readable. Another failure is made
 * good by the next hand-over. */
static void
mailbox_signal(struct hwt_operation_mailbox *mailbox)
{
	int result;

	/* Before the write: what is stored after one that succeeded could undo
	 * what another thread's failure, later than that, has stored. */
	a64_store_relaxed(&mailbox->silent, 0);
	do
		result = eventfd_write(mailbox->fd, 1);
	while (result != 0 && errno == EINTR);
	if (result != 0 && errno != EAGAIN)
		a64_store_relaxed(&mailbox->silent, 1);
}

static int
mailbox_execute(
    void *ctx, struct hwt_purgatory *purgatory, hwt_operation operation)
{
	struct hwt_operation_mailbox *mailbox = ctx;
	struct operation *held = operation_at(purgatory, operation.id);
	void *top;

	/* A stranger has called hwt_operation_run. */
	if (held == NULL || !operation_queue(held, operation.id))
		return -ENOENT;
	do {
		top = aptr_load_acquire(&mailbox->pushed);
		held->next = top;
		/* E:box release */
	} while (!aptr_cas_seq(&mailbox->pushed, top, held));
	if (top == NULL || a64_load_relaxed(&mailbox->silent) != 0)
		mailbox_signal(mailbox);
	return 0;
}

int
hwt_operation_mailbox_create(struct hwt_operation_mailbox **mailbox)
{
	struct hwt_operation_mailbox *made;
	int error;

	if (mailbox == NULL)
		return -EINVAL;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	made->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (made->fd < 0) {
		error = errno == EMFILE || errno == ENFILE ? -errno : -ENOMEM;
		free(made);
		return error;
	}
	made->owner = getpid();
	made->executor = (struct hwt_operation_executor){mailbox_execute, made};
	*mailbox = made;
	return 0;
}

int
hwt_operation_mailbox_fd(const struct hwt_operation_mailbox *mailbox)
{
	if (mailbox == NULL)
		return -EINVAL;
	return is_foreign(mailbox) ? -EOWNERDEAD : mailbox->fd;
}

const struct hwt_operation_executor *
hwt_operation_mailbox_executor(struct hwt_operation_mailbox *mailbox)
{
	if (mailbox == NULL || is_foreign(mailbox))
		return NULL;
	return &mailbox->executor;
}

/* Appends what was pushed, oldest first. */
static void
mailbox_collect(struct hwt_operation_mailbox *mailbox)
{
	/* E:box acquire */
	struct operation *newest = aptr_swap_seq(&mailbox->pushed, NULL);
	struct operation *oldest = NULL;
	struct operation *next, *operation;

	for (operation = newest; operation != NULL; operation = next) {
		next = operation->next;
		operation->next = oldest;
		oldest = operation;
		mailbox->collected++;
	}
	if (oldest == NULL)
		return;
	if (mailbox->first == NULL)
		mailbox->first = oldest;
	else
		mailbox->last->next = oldest;
	mailbox->last = newest;
}

int
hwt_operation_mailbox_run(
    struct hwt_operation_mailbox *mailbox, size_t max, size_t *done_count)
{
	struct operation *operation;
	eventfd_t ignored;
	size_t count = 0;
	uint64_t end;

	if (mailbox == NULL)
		return -EINVAL;
	if (is_foreign(mailbox))
		return -EOWNERDEAD;
	(void)eventfd_read(mailbox->fd, &ignored);
	mailbox_collect(mailbox);
	end = mailbox->collected;
	mailbox->running++;
	/* A run in done may have taken some of them, and collected others. */
	while ((operation = mailbox->first) != NULL && mailbox->popped < end &&
	    (max == 0 || count < max)) {
		mailbox->first = operation->next;
		mailbox->popped++;
		(void)purgatory_run(operation->home->purgatory,
		    operation_handle(operation), QUEUED);
		count++;
	}
	mailbox->running--;
	if (mailbox->first != NULL)
		mailbox_signal(mailbox);
	if (done_count != NULL)
		*done_count = count;
	return 0;
}

int
hwt_operation_mailbox_destroy(struct hwt_operation_mailbox *mailbox)
{
	if (mailbox == NULL)
		return 0;
	if (!is_foreign(mailbox) &&
	    (mailbox->running > 0 || mailbox->first != NULL ||
		aptr_load_acquire(&mailbox->pushed) != NULL))
		return -EBUSY;
	(void)close(mailbox->fd);
	free(mailbox);
	return 0;
}
