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

#include "modules/durable/machine/clock.h"
#include "modules/durable/machine/command.h"
#include "modules/durable/server/store.h"

struct connection;

struct queue {
	struct node node; /* by name */
	struct queue *next, *prev; /* all */
	struct queue *dirty_next;
	struct machine *machine;
	struct queue_clock clock;
	uint64_t number; /* of its rows; 0: it has none yet */
	bool dirty;
	bool looked_at; /* its waiting takes are to be tried */
	bool served; /* they are being tried: it is not dropped */
	struct connection *waiting; /* first to wait; the server's */
	struct queue *waited_next, *waited_prev; /* while there is one */
	size_t name_length;
	char name[];
};

struct queues {
	struct store *store;
	struct table names;
	struct queue *first, *dirty;
	uint64_t last_number;
	uint64_t seed;
	bool disk_full; /* adds are refused */
};

/* 0, or -errno as store_open and store_scan; the queues of a new epoch. */
int queues_open(struct queues *queues, const char *folder);
void queues_close(struct queues *queues);

/* The queue of that name, and makes one in memory; NULL: no memory. */
struct queue *queues_get(
    struct queues *queues, const char *name, size_t length);
/* Frees it, if it has no rows and nobody waits. */
void queues_drop_unused(struct queues *queues, struct queue *queue);

/* Runs a command. Its reply counts only after the next commit. */
void queues_run(struct queues *queues, struct queue *queue,
    const struct command *command, struct call *call);

/* Removes what has ended, in queues that nobody has asked for a while. */
void queues_tidy(struct queues *queues);

/* STORE_FULL: everything since the last commit was undone. STORE_BROKEN: the
 * process must end. */
enum store_error queues_commit(struct queues *queues);

#endif
