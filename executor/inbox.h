/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delivery to an event loop: any thread pushes, an eventfd becomes readable,
 * and the loop runs what was pushed, oldest first. The mailboxes of the library
 * and of the modules are this and a few lines.
 *
 * Threads push onto a stack, and the loop takes the whole stack and turns it
 * round. The links are in what is pushed, so that an inbox has no limit and
 * never refuses.
 *
 * ANNOUNCING. What is on the stack makes the eventfd readable. One write is
 * enough until the next run, but a thread relies only on one that has
 * succeeded: another thread may be stopped before its own, or it may fail.
 *
 *      inbox_push (any thread)              inbox_begin (the loop)
 *      -----------------------              ----------------------
 *   (A1) push                            (B1) clear the eventfd
 *   (A2) read runs; announced is that:   (B2) add 1 to runs
 *        return                          (B3) take the stack
 *   (A3) write to the eventfd,
 *        announced := what A2 has read
 *
 *   Where A2 finds announced equal to runs, somebody has written after B1 of
 *   that run. B1 of a later run may have cleared this. Then its B2 comes after
 *   A2, and so its B3 takes what A1 has pushed (E:stack).
 *
 * A run that leaves some over makes the eventfd readable itself. One that finds
 * nothing costs an idle iteration of the loop.
 *
 * ck_stack would be the same few lines (push_upmc, batch_pop_upmc), but with an
 * order that ThreadSanitizer cannot see.
 *
 * EDGES
 *   E:stack    a link and all that was done to what has it: release in
 *              stack_push, acquire in stack_take; fence between A1 and A2, and
 *              between B2 and B3.
 */
#ifndef HWT_INBOX_H
#define HWT_INBOX_H

#include "sys/atomic.h"
#include "executor/event.h"

/* A stack's top, and the link of each item, is the address of a link. */

static inline a64_t *
link_next(const a64_t *link)
{
	return (a64_t *)(uintptr_t)a64_load_relaxed(link);
}

static inline void
link_set(a64_t *link, const a64_t *next)
{
	a64_store_relaxed(link, (uint64_t)(uintptr_t)next);
}

static inline void
stack_push(aptr_t *stack, a64_t *link)
{
	void *top;

	take_line(stack);
	do {
		top = aptr_load_acquire(stack);
		link_set(link, top);
		/* E:stack release */
	} while (!aptr_cas_seq(stack, top, link));
}

/* Takes the whole stack, and adds to *count how many there are. Returns the
 * oldest, linked to newer ones; *newest is the last of them. */
static inline a64_t *
stack_take(aptr_t *stack, a64_t **newest, uint64_t *count)
{
	/* E:stack acquire */
	a64_t *link = aptr_swap_seq(stack, NULL);
	a64_t *newer = NULL;
	a64_t *older;

	*newest = link;
	for (; link != NULL; link = older) {
		take_line(link);
		older = link_next(link);
		link_set(link, newer);
		newer = link;
		++*count;
	}
	return newer;
}

struct inbox {
	unsigned running; /* loop's: runs, one in the other */
	a64_t *first, *last; /* loop's: taken, oldest first */
	uint64_t taken, popped; /* loop's: ever */
	_Alignas(CACHE_LINE) aptr_t pushed; /* newest first */
	int fd, write_fd;
	a64_t runs; /* how many have begun, from 1 */
	a64_t announced; /* runs, before a write that succeeded */
};

/* 0, -EMFILE, -ENFILE or -ENOMEM. The rest of the inbox is zero. */
static inline int
inbox_open(struct inbox *inbox)
{
	int error = event_open(&inbox->fd, &inbox->write_fd);

	if (error != 0)
		return error == EMFILE || error == ENFILE ? -error : -ENOMEM;
	a64_store_relaxed(&inbox->runs, 1);
	return 0;
}

static inline void
inbox_close(struct inbox *inbox)
{
	event_close(inbox->fd, inbox->write_fd);
}

/* For the loop: nothing is in it, and this is no run. */
static inline bool
inbox_is_idle(const struct inbox *inbox)
{
	return inbox->running == 0 && inbox->first == NULL &&
	    aptr_load_acquire(&inbox->pushed) == NULL;
}

/* runs was read before. After a failure the next push writes again. */
static inline void
inbox_announce(struct inbox *inbox, uint64_t runs)
{
	if (event_set(inbox->write_fd))
		a64_store_release(&inbox->announced, runs);
}

static inline void
inbox_push(struct inbox *inbox, a64_t *link)
{
	uint64_t runs;

	stack_push(&inbox->pushed, link);
	/* E:stack fence */
	runs = a64_load_seq(&inbox->runs);
	if (a64_load_acquire(&inbox->announced) != runs)
		inbox_announce(inbox, runs);
}

/* One run: it pops what was pushed before it began. */
struct inbox_run {
	uint64_t number, end;
};

static inline struct inbox_run
inbox_begin(struct inbox *inbox)
{
	struct inbox_run run;
	a64_t *oldest, *newest;

	event_clear(inbox->fd);
	/* E:stack fence */
	run.number = a64_add_seq(&inbox->runs, 1) + 1;
	/* Add what was pushed to what is left. */
	oldest = stack_take(&inbox->pushed, &newest, &inbox->taken);
	if (inbox->first == NULL)
		inbox->first = oldest;
	else
		link_set(inbox->last, oldest);
	if (newest != NULL)
		inbox->last = newest;
	run.end = inbox->taken;
	inbox->running++;
	return run;
}

/* NULL: the run is over. A run inside this one may have popped some, and taken
 * others. */
static inline a64_t *
inbox_pop(struct inbox *inbox, const struct inbox_run *run)
{
	a64_t *link = inbox->first;

	if (inbox->popped >= run->end)
		return NULL;
	inbox->first = link_next(link);
	inbox->popped++;
	return link;
}

static inline void
inbox_end(struct inbox *inbox, const struct inbox_run *run)
{
	inbox->running--;
	if (inbox->first != NULL)
		inbox_announce(inbox, run->number);
}

#endif
