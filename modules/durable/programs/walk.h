/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at all tasks of a space: the commands list, dead and check of hwtctl.
 * Nothing is locked meanwhile: what changes during a walk may be seen or not.
 */
#ifndef HWT_DURABLE_WALK_H
#define HWT_DURABLE_WALK_H

#include "modules/durable/durable.h"
#include "options.h"

/* "pending" and so on; NULL: there is no such state. */
const char *state_name(enum hwt_durable_state state);

/* Writes the members "id" to "generation" of a JSON object. */
void record_write(FILE *file, const char *id, size_t id_length,
    const struct hwt_durable_info *info);

/* And of a dead letter "failed_ms", "worker" and "error", each after a comma.
 * An error has been told. */
int failure_write(FILE *file, struct hwt_durable *durable, const char *id,
    size_t id_length, const struct hwt_durable_info *info);

/* What a walk calls for the keys of a shard; name is the key after "{S:N}:". It
 * returns 0, or an error (below 0) that ends the walk. */
typedef int walk_key(
    void *ctx, uint32_t shard, const char *name, size_t length);

/* Whether shards are on several nodes: a cluster. */
bool nodes_are_many(void);

/* Calls it for all keys of the space's shards, for some maybe twice. */
int walk_keys(struct hwt_durable *durable, walk_key *call, void *ctx);

/* A command of Redis on the node of this shard; count words. Returns 0, or an
 * error, which it has told. */
int walk_command(struct hwt_durable *durable, uint32_t shard, size_t count,
    const struct engine_argument *words, struct engine_call *call);

/* A script with its arguments, in the same way; what is done to dead letters
 * waits for the replicas. */
int walk_script(struct hwt_durable *durable, enum script script, uint32_t shard,
    size_t count, const struct engine_argument *arg, struct engine_call *call);

bool is_string(const struct redisReply *reply);
/* Of at least count elements. */
bool is_array(const struct redisReply *reply, size_t count);

/* state 0: all of them. */
int walk_list(struct hwt_durable *durable, enum hwt_durable_state state);

/* "drop" or "replay" for each dead letter there is. */
int walk_dead(struct hwt_durable *durable, const char *verb);

/* Names each broken invariant; *broken counts them. */
int walk_check(struct hwt_durable *durable, uint64_t *broken);

#endif
