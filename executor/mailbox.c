/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_mailbox: delivery to an event loop.
 *
 * Workers push records onto a stack, and the loop takes it (handover.h). The
 * links are in the records, so that a mailbox has no limit and never refuses.
 *
 * ANNOUNCING. What is on the stack makes the eventfd readable. One write is
 * enough until the next run, but a worker relies only on one that has
 * succeeded: another worker may be stopped before its own, or it may fail.
 *
 *      mailbox_execute (a worker)           hwt_mailbox_run (the loop)
 *      --------------------------           --------------------------
 *   (A1) push the record                 (B1) clear the eventfd
 *   (A2) read runs; announced is that:   (B2) add 1 to runs
 *        return                          (B3) take the stack
 *   (A3) write to the eventfd,
 *        announced := what A2 has read
 *
 *   Where A2 finds announced equal to runs, somebody has written after B1 of
 *   that run. B1 of a later run may have cleared this. Then its B2 comes after
 *   A2, and so its B3 takes the record (E:stack).
 *
 * A run that leaves some over makes the eventfd readable itself. One that finds
 * nothing costs an idle iteration of the loop.
 *
 * EDGES
 *   E:stack    drawn in handover.h; fence between A1 and A2, and between B2
 *              and B3.
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
	a64_t runs; /* how many have begun, from 1 */
	a64_t announced; /* runs, before a write that succeeded */
};

/* runs was read before. Where the count is at its end (EAGAIN), the eventfd is
 * readable. After another failure the next hand-over writes again. */
static void
mailbox_announce(struct hwt_mailbox *mailbox, uint64_t runs)
{
	int result;

	do
		result = eventfd_write(mailbox->fd, 1);
	while (result != 0 && errno == EINTR);
	if (result == 0 || errno == EAGAIN)
		a64_store_release(&mailbox->announced, runs);
}

static int
mailbox_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct hwt_mailbox *mailbox = ctx;
	uint64_t runs;

	if (!process_owns(mailbox->epoch))
		return EOWNERDEAD;
	handover_push(&mailbox->pushed, timer, timeout);
	/* E:stack fence */
	runs = a64_load_seq(&mailbox->runs);
	if (a64_load_acquire(&mailbox->announced) != runs)
		mailbox_announce(mailbox, runs);
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
	    .runs = 1,
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
	uint64_t runs, end;

	if (mailbox == NULL)
		return -EINVAL;
	if (!process_owns(mailbox->epoch))
		return -EOWNERDEAD;
	(void)eventfd_read(mailbox->fd, &ignored);
	/* E:stack fence */
	runs = a64_add_seq(&mailbox->runs, 1) + 1;
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
		mailbox_announce(mailbox, runs);
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
