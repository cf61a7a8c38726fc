/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_mailbox: delivery to an event loop.
 *
 * Workers push records onto a stack, and the loop takes it (handover.h). A
 * worker that pushes onto the empty stack makes the eventfd readable. The links
 * are in the records, so that a mailbox has no limit and never refuses.
 *
 * A run clears the eventfd first and takes the stack afterwards: what comes in
 * between was pushed onto a stack that was not empty, or is announced again,
 * which costs one idle turn of the loop. When a run leaves some over, it makes
 * the eventfd readable itself.
 *
 * EDGES
 *   E:stack    drawn in handover.h.
 *   E:handing  drawn in ../worker.c: hwt_mailbox_destroy waits for workers
 *              that are about to call mailbox_execute, or in it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "handover.h"

#include "core/debug.h"

struct hwt_mailbox {
	uint64_t epoch;
	int fd;
	unsigned running; /* loop's: nested hwt_mailbox_run */
	struct record *first, *last; /* loop's: taken, oldest first */
	uint64_t taken, popped; /* loop's: ever */
	struct hwt_executor executor;
	_Alignas(CACHE_LINE) aptr_t pushed; /* newest first */
	/* The eventfd could not be made readable. Relaxed: who reads it late
	 * leaves that to the hand-over after. */
	a64_t silent;
};

/* Where the count is at its end (EAGAIN), it is readable. Another failure is
 * made good by the next hand-over. */
static void
mailbox_signal(struct hwt_mailbox *mailbox)
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
mailbox_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct hwt_mailbox *mailbox = ctx;

	if (!process_owns(mailbox->epoch))
		return EOWNERDEAD;
	if (handover_push(&mailbox->pushed, timer, timeout) ||
	    a64_load_relaxed(&mailbox->silent) != 0)
		mailbox_signal(mailbox);
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
	    .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
	    .executor = {.execute = mailbox_execute, .ctx = made},
	};
	if (made->fd < 0) {
		error = errno == EMFILE || errno == ENFILE ? -errno : -ENOMEM;
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
	return process_owns(mailbox->epoch) ? mailbox->fd : -EOWNERDEAD;
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
	struct record *oldest, *newest, *record;
	eventfd_t ignored;
	size_t started = 0;
	uint64_t end;

	if (mailbox == NULL)
		return -EINVAL;
	if (!process_owns(mailbox->epoch))
		return -EOWNERDEAD;
	(void)eventfd_read(mailbox->fd, &ignored);
	/* Add what was pushed to what is left. */
	oldest = handover_take(&mailbox->pushed, &newest, &mailbox->taken);
	if (mailbox->first == NULL)
		mailbox->first = oldest;
	else
		handover_link(mailbox->last, oldest);
	if (newest != NULL)
		mailbox->last = newest;
	end = mailbox->taken;
	mailbox->running++;
	/* A run inside a task may have popped some of them, and taken
	 * others. */
	while (mailbox->popped < end && (max == 0 || started < max)) {
		record = mailbox->first;
		mailbox->first = handover_next(record);
		mailbox->popped++;
		if (handover_run(record) == 0)
			started++;
		if (!process_owns(mailbox->epoch))
			return -EOWNERDEAD;
	}
	mailbox->running--;
	if (mailbox->first != NULL)
		mailbox_signal(mailbox);
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
		if (mailbox->running > 0 || mailbox->first != NULL ||
		    aptr_load_acquire(&mailbox->pushed) != NULL)
			return -EBUSY;
	}
	(void)close(mailbox->fd);
	debug_destroyed(mailbox);
	free(mailbox);
	return 0;
}
