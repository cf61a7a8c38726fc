/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_mailbox: delivery to an event loop. Any thread pushes an item
 * (handover.h) onto a stack, an eventfd becomes readable, and the loop runs
 * what was pushed, timeouts and posts, oldest first.
 *
 * ANNOUNCING. What is on the stack makes the eventfd readable. One write is
 * enough until the next run, but a thread relies only on one that has
 * succeeded: another thread may be stopped before its own, or it may fail.
 *
 *      mailbox_push (any thread)            run_begin (the loop)
 *      -------------------------            --------------------
 *   (A1) push                            (B1) clear the eventfd
 *   (A2) read runs; announced is that:   (B2) add 1 to runs
 *        return                          (B3) take the stack
 *   (A3) write to the eventfd,
 *        announced := what A2 has read
 *
 *   If A2 finds announced equal to runs, a write came after B1 of the run that
 *   has that number. If B1 of the next run has cleared it since, the B2 of that
 *   run comes after A2, and so its B3 takes A1's item (E:stack).
 *
 * A run that leaves some over makes the eventfd readable itself.
 *
 * EDGES
 *   E:handing  drawn in ../worker.c: hwt_mailbox_destroy waits for workers
 *              that are about to call mailbox_execute, or in it.
 *   E:stack    drawn in handover.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "handover.h"

#include "core/debug.h"
#include "event.h"

struct hwt_mailbox {
	uint64_t epoch;
	struct hwt_executor executor;
	/* The loop's: runs, one in the other; what was taken, oldest first; and
	 * how many were ever taken and popped. */
	unsigned running;
	a64_t *first, *last;
	uint64_t taken, popped;
	_Alignas(CACHE_LINE) aptr_t pushed; /* newest first */
	int fd, write_fd;
	a64_t runs; /* how many have begun, from 1 */
	a64_t announced; /* runs, before a write that succeeded */
};

/* runs was read before. After a failure the next push writes again. */
static void
mailbox_announce(struct hwt_mailbox *mailbox, uint64_t runs)
{
	if (event_set(mailbox->write_fd))
		a64_store_release(&mailbox->announced, runs);
}

static void
mailbox_push(struct hwt_mailbox *mailbox, a64_t *link)
{
	uint64_t runs;

	stack_push(&mailbox->pushed, link);
	/* E:stack fence */
	runs = a64_load_seq(&mailbox->runs);
	if (a64_load_acquire(&mailbox->announced) != runs)
		mailbox_announce(mailbox, runs);
}

static int
mailbox_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct hwt_mailbox *mailbox = ctx;

	if (!process_owns(mailbox->epoch))
		return EOWNERDEAD;
	mailbox_push(mailbox, timeout_link(timer, timeout));
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
	mailbox_push(mailbox, post_link(post, function));
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
	a64_store_relaxed(&made->runs, 1);
	error = event_open(&made->fd, &made->write_fd);
	if (error != 0) {
		free(made);
		return error == EMFILE || error == ENFILE ? -error : -ENOMEM;
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

/* Returns the number of this run; *end: it pops the items up to that one. */
static uint64_t
run_begin(struct hwt_mailbox *mailbox, uint64_t *end)
{
	a64_t *oldest, *newest;
	uint64_t run;

	event_clear(mailbox->fd);
	/* E:stack fence */
	run = a64_add_seq(&mailbox->runs, 1) + 1;
	/* Add what was pushed to what is left. */
	oldest = stack_take(&mailbox->pushed, &newest, &mailbox->taken);
	if (mailbox->first == NULL)
		mailbox->first = oldest;
	else
		link_set(mailbox->last, oldest);
	if (newest != NULL)
		mailbox->last = newest;
	*end = mailbox->taken;
	mailbox->running++;
	return run;
}

/* NULL: the run is over. A run inside this one may have popped some, and taken
 * others. */
static a64_t *
run_pop(struct hwt_mailbox *mailbox, uint64_t end)
{
	a64_t *link = mailbox->first;

	if (mailbox->popped >= end)
		return NULL;
	mailbox->first = link_next(link);
	mailbox->popped++;
	return link;
}

int
hwt_mailbox_run(struct hwt_mailbox *mailbox, size_t max, size_t *tasks_started)
{
	uint64_t run, last;
	size_t started = 0;
	size_t begun = 0;
	enum item_end end;
	a64_t *link;

	if (mailbox == NULL)
		return -EINVAL;
	if (!process_owns(mailbox->epoch))
		return -EOWNERDEAD;
	run = run_begin(mailbox, &last);
	while ((max == 0 || begun < max) &&
	    (link = run_pop(mailbox, last)) != NULL) {
		end = item_run(link);
		begun += end != ITEM_NONE;
		started += end == ITEM_TASK;
		if (!process_owns(mailbox->epoch))
			return -EOWNERDEAD;
	}
	mailbox->running--;
	if (mailbox->first != NULL)
		mailbox_announce(mailbox, run);
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
		if (mailbox->running != 0 || mailbox->first != NULL ||
		    aptr_load_acquire(&mailbox->pushed) != NULL)
			return -EBUSY;
	}
	event_close(mailbox->fd, mailbox->write_fd);
	debug_destroyed(mailbox);
	free(mailbox);
	return 0;
}
