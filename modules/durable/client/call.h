/* SPDX-License-Identifier: Apache-2.0 */
/* Any command, for the programs. */
#ifndef HWT_DURABLE_CALL_H
#define HWT_DURABLE_CALL_H

#include <hiredis/hiredis.h>
#include <stddef.h>

#include "modules/durable/hwt_durable.h"

struct durable_word {
	const void *bytes;
	size_t length;
};

/* Sends words[0], as "HWT.LIST" with a 0 at its end, the key of the queue, and
 * the other words. On an error *reply is NULL, or an error reply by which the
 * result was chosen. The caller frees it. */
int durable_call(struct hwt_durable *durable, const char *queue,
    const struct durable_word *words, size_t count, redisReply **reply);
/* Sends a command without a key to each server that has queues, one after the
 * other. visit returns 0; 1: the same server is asked again, with the words as
 * they are now; or an error, which ends it. */
int durable_call_each(struct hwt_durable *durable,
    const struct durable_word *words, size_t count,
    int (*visit)(void *ctx, const redisReply *reply), void *ctx);
const char *durable_space(const struct hwt_durable *durable);

#endif
