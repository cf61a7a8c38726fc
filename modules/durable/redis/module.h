/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of hwt.so have in common. module.c says how it works. */
#ifndef HWT_DURABLE_REDIS_MODULE_H
#define HWT_DURABLE_REDIS_MODULE_H

#include "modules/durable/clock.h"
#include "modules/durable/machine/command.h"
#include "modules/durable/redis/api.h"

/* A value: a machine, and its clock in this process. */
struct queue {
	struct machine *machine;
	/* Which of this server's times as a master the clock and the epoch
	 * belong to; 0: none yet. */
	uint64_t mastership;
	struct queue_clock clock;
};

extern value_type *queue_type;
/* Grows at each start and promotion; 0: a replica. */
extern uint64_t mastership;

/* module.c: the queue under a name, or NULL; also if it is of another type. */
struct queue *queue_find(context *ctx, string *name);
/* True: each take of a client would find something now. */
bool queue_has_task(struct queue *queue);
/* A command that does no more than to advance the queue, if there is one. */
void queue_advance(context *ctx, string *name);

/* type.c */
struct queue *queue_create(void);
void queue_destroy(void *queue);
int type_create(context *ctx);
/* HWT.X with one of the words that only a rewrite of the file writes. False:
 * it is none of them, or damaged. */
bool type_restore(struct queue *queue, string **argv, int argc);

/* blocked.c */
/* Blocks the client until a take of it finds something. */
void blocked_add(
    context *ctx, string *name, uint64_t block_ms, command_function *again);
/* If somebody waits for it: lets the server run the takes, if there is a task
 * for them, or arms a timer. */
void blocked_look(context *ctx, string *name, struct queue *queue);
void blocked_cron(context *ctx);

/* level.c */
/* NULL: the server keeps what it acknowledges; or the error for an add. */
const char *level_error(void);
void level_cron(context *ctx);
int level_start(context *ctx);

#endif
