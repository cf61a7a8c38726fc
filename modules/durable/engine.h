/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of the engine: connections, their verification, which node has
 * which shard, and repetition until an answer or the deadline. The engine is
 * Redis; struct engine is a client of it.
 *
 * Calls go out in batches: all that belong to one node in one write, and the
 * answers are read together. Any thread may call; each call has connections of
 * its own from a pool while it runs, and waits for nobody else's.
 *
 * REPETITION. A call whose connection broke, or that was answered by an error
 * that is transient (loading, moved, paused, failing over), is sent again after
 * a back-off of 10 ms, doubled up to 500 ms, with jitter, until the deadline.
 * Each script does the same if it is repeated: see DESIGN. If bytes were sent
 * and no answer came, an error that says "nothing has happened" is not known to
 * be true: it becomes -ETIMEDOUT.
 *
 * A node of a cluster that hangs costs the others of a batch at most half of
 * the time, once; after that it is refused for a second at a time.
 */
#ifndef HWT_DURABLE_ENGINE_H
#define HWT_DURABLE_ENGINE_H

#include <hiredis/hiredis.h>

#include "hwt_durable.h"

struct engine;

/* The scripts, each scripts/NAME.lua. */
enum script {
	SCRIPT_ADD,
	SCRIPT_AUDIT,
	SCRIPT_CANCEL,
	SCRIPT_CLOCK,
	SCRIPT_DEAD,
	SCRIPT_EXTEND,
	SCRIPT_FINISH,
	SCRIPT_GET,
	SCRIPT_HOSTS,
	SCRIPT_INIT,
	SCRIPT_JANITOR,
	SCRIPT_LIST,
	SCRIPT_NOTIFY,
	SCRIPT_PAUSE,
	SCRIPT_PUMP,
	SCRIPT_QUEUE,
	SCRIPT_QUEUES,
	SCRIPT_RESCHEDULE,
	SCRIPT_RESUME,
	SCRIPT_SCHEDULE,
	SCRIPT_SCHEDULES,
	SCRIPT_STAT,
	SCRIPT_TAKE,
	SCRIPT_COUNT,
	/* No script: arg is a whole command of Redis, from its name. It must do
	 * the same if it is repeated. */
	COMMAND = SCRIPT_COUNT
};

/* As a shard: the key of the space itself, for SCRIPT_HOSTS. */
#define SHARD_SPACE UINT32_MAX

/* An argument. length 0 with data NULL is an empty string. */
struct engine_argument {
	const void *data;
	size_t length;
};

struct engine_call {
	enum script script;
	uint32_t shard;
	uint32_t count;
	/* For a script: those that follow the clock and the skew, which
	 * engine_call puts before them. Lent until it returns. */
	const struct engine_argument *arg;
	/* For a script: the engine's clock must have come to this by now; 0:
	 * the caller does not know. */
	uint64_t trusted_time_ms;
	/* It writes nothing: what the last of several tries answers is true,
	 * whatever became of those before it. */
	bool reads;
	/* The results. error: 0 or -errno; the header's shared ones, -EINVAL
	 * for EARG with index being its I from 1, -EEXIST for ESHAPE, -ESTALE
	 * for ENOSPACE, -EACCES, -EOPNOTSUPP, -ECANCELED for stop_fd. reply: of
	 * the engine, never an error reply; the caller frees it with
	 * engine_call_free; NULL if error is not 0. */
	int error;
	uint32_t index;
	struct redisReply *reply;
	/* Private. */
	uint32_t marks, node;
};

/* How long a batch may take. */
struct engine_wait {
	uint64_t timeout_ns; /* 0: the options' */
	int stop_fd; /* readable: ends with -ECANCELED; -1: none */
	bool replicated; /* with level REPLICATED: waits for the replicas */
	/* No back-off: what would be repeated after one fails. Nothing is then
	 * sent twice, but to where a node has pointed. */
	bool no_retry;
};

/* Connects to the engine and verifies it. Options are as hwt_durable_open has
 * checked them (engine_open reads servers, space, user, password_file, level
 * and flags alone, and does not keep pointers into them). level 0: what the
 * space has; without a space FSYNCED, or 0 if none is to be made. Errors as
 * hwt_durable_open. */
int engine_open(
    struct engine **engine, const struct hwt_durable_options *options);

/* No call may be under way. */
void engine_close(struct engine *engine);

/* Returns the first error of the calls, or 0. wait NULL: the defaults, without
 * replicas. */
int engine_call(struct engine *engine, struct engine_call *call, size_t count,
    const struct engine_wait *wait);

void engine_call_free(struct engine_call *call, size_t count);

/* An answer to it was lost before the one that it has: what this one refuses
 * may have happened. */
bool engine_call_was_lost(const struct engine_call *call);

/* Of the space, not 0: every script that is called from now on refuses another
 * one. Before any other thread has the engine. */
void engine_set_identity(struct engine *engine, uint64_t identity);

/* For this long, each shard that was called has answered -ESTALE. The space may
 * come back, from a backup. */
bool engine_is_gone(const struct engine *engine, uint64_t for_ns);

/* How long a batch may take that does not say it: the options' timeout. */
uint64_t engine_timeout_ns(const struct engine *engine);

/* The space's name, and the level that the engine is verified for. */
const char *engine_space(const struct engine *engine);
uint32_t engine_level(const struct engine *engine);

/* Shards may be on different nodes. */
bool engine_is_cluster(const struct engine *engine);

/* With level REPLICATED: how many replicas are connected to the node that has
 * most of them, as it said when it was asked last, and how many of these a call
 * waits for. Both 0 with another level. */
void engine_replicas(
    struct engine *engine, uint32_t *connected, uint32_t *awaited);

/* The key of a shard: engine_key(engine, key, 3, "meta") is "{S:3}:meta". */
#define ENGINE_KEY_MAX 160
void engine_key(const struct engine *engine, char key[ENGINE_KEY_MAX],
    uint32_t shard, const char *name);

/* Writes a line to the log of the options. The same one is held back and
 * counted for a minute; and so is another one for a second, but with level
 * LOG_ERR and below only after 16 of them. */
void engine_log(struct engine *engine, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Numbers of shards, as they are published on the channel S:due; or of the
 * hints for a queue, each of which one of those gets that wait for it
 * (SCRIPT_NOTIFY). It belongs to one thread. */
struct engine_subscription;

#define HINT_EVERY_SHARD UINT32_MAX

/* channel is "due", or "work:QUEUE,QUEUE..." for hints. Connects: blocks up to
 * wait's timeout. */
int engine_subscription_open(struct engine_subscription **subscription,
    struct engine *engine, const char *channel, const struct engine_wait *wait);

/* Waits for the next hint, from now on, for any of the queues, the one behind
 * that of the last hint first; nothing if it does already, or on a channel.
 * Does not block for longer than wait's timeout. */
int engine_subscription_wait(struct engine_subscription *subscription,
    struct engine *engine, const struct engine_wait *wait);

/* Readable when there is something to read. */
int engine_subscription_fd(const struct engine_subscription *subscription);

/* Does not block. 1: *shard was notified, or HINT_EVERY_SHARD, of queue *queue
 * of the list. 0: nothing. Otherwise the connection is lost: close it. */
int engine_subscription_read(
    struct engine_subscription *subscription, uint32_t *queue, uint32_t *shard);

/* The same of a channel with texts: *text is the engine's, until the next call.
 */
int engine_subscription_text(
    struct engine_subscription *subscription, const char **text);

void engine_subscription_close(struct engine_subscription *subscription);

/* Of an open handle, for programs that look closer: hwtctl. */
struct engine *durable_engine(struct hwt_durable *durable);
uint32_t durable_shards(const struct hwt_durable *durable);
uint32_t durable_shard_of(
    const struct hwt_durable *durable, const char *id, size_t id_length);

#endif
