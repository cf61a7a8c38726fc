/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any command, for the programs: sent to the node that has its queue, again
 * where redirections and nodes that are not ready ask for it.
 */
#ifndef HWT_DURABLE_CALL_H
#define HWT_DURABLE_CALL_H

#include <hiredis/hiredis.h>
#include <stddef.h>

#include "modules/durable/hwt_durable.h"

struct durable_word {
	const void *bytes;
	size_t length;
};

/*
 * Sends words[0], as "HWT.LIST", the key of the queue, and the other words; and
 * waits. What the command names by ids must be such that it can be repeated, if
 * the caller repeats it after -ETIMEDOUT.
 *
 * 0: *reply is what the server has answered. On an error it is NULL, or an
 * error of the server (REDIS_REPLY_ERROR), by which the result was chosen. The
 * caller frees it: freeReplyObject.
 */
int durable_call(struct hwt_durable *durable, const char *queue,
    const struct durable_word *words, size_t count, struct redisReply **reply);

/*
 * Sends a command without a key, as HWT.QUEUES, to each server that has queues:
 * one, or each master of a cluster. visit gets what each has answered; the
 * first value that is not 0 ends it and is returned. visit does not free it.
 */
int durable_call_each(struct hwt_durable *durable,
    const struct durable_word *words, size_t count,
    int (*visit)(void *ctx, const struct redisReply *reply), void *ctx);

/* The space of the keys, {SPACE:QUEUE}. */
const char *durable_space(const struct hwt_durable *durable);

#endif
