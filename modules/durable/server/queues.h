/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queues of a server: machines in memory, and their rows in the store.
 *
 * Commands run at once, in memory. queues_commit stores all that they have
 * changed since the one before, in one transaction. Until then nobody may be
 * told; if it fails, the queues are what they were.
 */
#ifndef HWT_DURABLE_QUEUES_H
#define HWT_DURABLE_QUEUES_H

#include "modules/durable/clock.h"
#include "modules/durable/machine/command.h"
#include "modules/durable/server/store.h"

#define QUEUE_NAME_MAX 130 /* of a space and a queue, and what joins them */

struct queue {
	struct node node; /* by name */
	struct link link; /* of all */
	struct queue *dirty_next;
	struct machine *machine;
	struct queue_clock clock;
	uint64_t newest; /* its last row; 0: it has none */
	bool dirty;
	bool epoch_is_safe; /* in a row that a loss of power leaves */
	uint64_t changed_ms; /* when it became dirty last, on its clock */
	bool gone; /* it is to be forgotten */
	uint64_t serial; /* the last that is stored */
	size_t memory; /* its part of that of all */
	bool changed; /* since its waiting takes were tried */
	/* The server's: connections whose takes wait, first to last; and those
	 * queues for which any do. */
	struct link waiting, awaited;
	bool held; /* by the server, while it serves them */
	size_t name_length;
	char name[];
};

struct queues {
	struct store *store;
	struct table names;
	struct link all;
	struct queue *dirty;
	uint64_t fence; /* no queue that was removed has given a greater one */
	uint64_t seed;
	size_t memory; /* bytes of all records */
	size_t stored; /* bytes of all rows */
	unsigned char *row; /* that is being made, and how long it is */
	size_t row_length;
	bool disk_full; /* adds are refused */
};

/* 0, or -errno as store_open, and why; the queues of a new epoch. */
int queues_open(struct queues *queues, const char *folder, char why[200]);
void queues_close(struct queues *queues);

/* The one after this one, or the first one after NULL; NULL: no more. */
static inline struct queue *
queues_next(const struct queues *queues, const struct queue *after)
{
	struct link *next = after != NULL ? after->link.next : queues->all.next;

	return next != &queues->all ? container_of(next, struct queue, link)
				    : NULL;
}

/* The queue of that name, and makes one in memory; NULL: no memory. */
struct queue *queues_get(
    struct queues *queues, const char *name, size_t length);
/* Frees it, if it has no rows and nobody waits or holds it. */
void queues_drop_unused(struct queues *queues, struct queue *queue);

/* Runs a command. Its reply counts only after the next commit. */
void queues_run(struct queues *queues, struct queue *queue,
    const struct command *command, struct call *call);

/* Removes what has ended, in queues that nobody has asked for a while; and
 * queues that have been empty for an hour. */
void queues_tidy(struct queues *queues);

/* STORE_FULL: everything since the last commit was undone. STORE_BROKEN: the
 * process must end. */
enum store_error queues_commit(struct queues *queues);

#endif
