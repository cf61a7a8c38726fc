/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_operation_mailbox: done on an event loop's own thread.
 *
 * Threads push operations onto a stack, linked in their records, so that a
 * mailbox has no limit; the loop takes the whole stack and turns it round.
 *
 * ANNOUNCING. What is on the stack makes the eventfd readable. One write is
 * enough until the next run, but a thread relies only on one that has
 * succeeded: another thread may be stopped before its own, or it may fail.
 *
 *      mailbox_execute                  hwt_operation_mailbox_run
 *      ---------------                  -------------------------
 *   (A1) push the operation          (B1) clear the eventfd
 *   (A2) read runs; announced is     (B2) add 1 to runs
 *        that: return                (B3) take the stack
 *   (A3) write to the eventfd,
 *        announced := what A2 has read
 *
 *   Where A2 finds announced equal to runs, somebody has written after B1 of
 *   that run. B1 of a later run may have cleared this. Then its B2 comes after
 *   A2, and so its B3 takes the operation (E:box).
 *
 * EDGES
 *   E:box   an operation's link and all that was done to it: release by the
 *           push in mailbox_execute, acquire by taking the stack in
 *           mailbox_collect; fence between A1 and A2, and between B2 and B3.
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
	a64_t runs; /* how many have begun, from 1 */
	a64_t announced; /* runs, before a write that succeeded */
	struct hwt_operation_executor executor;
};

/* In a forked child, whose descriptor is the parent's, too. */
static bool
is_foreign(const struct hwt_operation_mailbox *mailbox)
{
	return mailbox->owner != getpid();
}

/* runs was read before. Where the count is at its end (EAGAIN), the eventfd is
 * readable. After another failure the next hand-over writes again. */
static void
mailbox_announce(struct hwt_operation_mailbox *mailbox, uint64_t runs)
{
	int result;

	do
		result = eventfd_write(mailbox->fd, 1);
	while (result != 0 && errno == EINTR);
	if (result == 0 || errno == EAGAIN)
		a64_store_release(&mailbox->announced, runs);
}

static int
mailbox_execute(
    void *ctx, struct hwt_purgatory *purgatory, hwt_operation operation)
{
	struct hwt_operation_mailbox *mailbox = ctx;
	struct operation *held = operation_at(purgatory, operation.id);
	uint64_t runs;
	void *top;

	/* A stranger has called hwt_operation_run. */
	if (held == NULL || !operation_queue(held, operation.id))
		return -ENOENT;
	do {
		top = aptr_load_acquire(&mailbox->pushed);
		held->next = top;
		/* E:box release */
	} while (!aptr_cas_seq(&mailbox->pushed, top, held));
	/* E:box fence */
	runs = a64_load_seq(&mailbox->runs);
	if (a64_load_acquire(&mailbox->announced) != runs)
		mailbox_announce(mailbox, runs);
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
	a64_store_relaxed(&made->runs, 1);
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
	uint64_t runs, end;

	if (mailbox == NULL)
		return -EINVAL;
	if (is_foreign(mailbox))
		return -EOWNERDEAD;
	(void)eventfd_read(mailbox->fd, &ignored);
	/* E:box fence */
	runs = a64_add_seq(&mailbox->runs, 1) + 1;
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
		mailbox_announce(mailbox, runs);
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
