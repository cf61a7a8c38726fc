/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which shards a space has, and that none of them is missing.
 *
 * A space gets an identity when it is made, a random number that is in each
 * shard. Shard 0 is made first, and so decides between two that make it at
 * once; then the others; then shard 0 is marked as complete. So:
 *
 *   shard 0 missing, no other there  there is no such space
 *   shard 0 missing, others there    its data is gone
 *   meta of shard 0 alone missing    its data is gone; so a space of one shard
 *                                    is not taken for none
 *   not complete, others missing     its making was interrupted: who may make
 *                                    a space goes on with it
 *   complete, others missing         their data is gone
 *   two identities                   a part is that of another making
 *
 * Nothing is made where data is gone, unless the caller asks for that: see
 * HWT_DURABLE_REPAIR.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "durable.h"

#define CLUSTER_SHARDS 16u /* of a new space, unless it is said */
/* Keys of the engine that are looked at for what is left of shard 0. */
#define SCAN_COUNT "1000"
#define SCANS_MAX 1000u
#define OTHERS_ASKED 15u /* whether any is there without the first */
#define SHAPE_FIELDS 5
enum shape {
	SHARDS,
	SLOTS,
	TICK,
	LEVEL,
	RETENTION
};

/* What init answers about a shard. */
struct made_shard {
	uint64_t shape[SHAPE_FIELDS];
	uint64_t identity, complete;
};

struct opening {
	struct engine *engine;
	uint32_t flags; /* of the options */
	struct made_shard first; /* what the others must be like */
};

/* {shards, slots, tick, level, retention, made, identity, complete} */
static int
shard_read(struct made_shard *shard, const struct redisReply *reply)
{
	bool sound = reply->type == REDIS_REPLY_ARRAY &&
	    reply->elements >= SHAPE_FIELDS + 3 &&
	    reply_number(reply->element[SHAPE_FIELDS + 1], &shard->identity) &&
	    reply_number(reply->element[SHAPE_FIELDS + 2], &shard->complete);
	uint32_t i;

	for (i = 0; i < SHAPE_FIELDS && sound; i++)
		sound = reply_number(reply->element[i], &shard->shape[i]);
	return sound && shard->identity != 0 && shard->shape[SHARDS] >= 1 &&
		shard->shape[SHARDS] <= SHARDS_MAX
	    ? 0
	    : -EPROTO;
}

/* Makes shards like *like, unless they are there; with identity 0 they must be
 * there. call has the answers. */
static void
shards_init(struct opening *opening, const struct made_shard *like,
    struct engine_call *call, uint32_t first, uint32_t count)
{
	struct engine_argument argument[SHAPE_FIELDS + 2];
	struct number number[SHAPE_FIELDS + 1];
	uint32_t i;

	for (i = 0; i < SHAPE_FIELDS; i++)
		argument[i] = argument_number(&number[i], like->shape[i]);
	argument[i] = like->identity != 0
	    ? argument_number(&number[i], like->identity)
	    : argument_text("");
	argument[i + 1] = argument_text(like->complete != 0  ? "1"
		: (opening->flags & HWT_DURABLE_REPAIR) != 0 ? "repair"
							     : "");
	for (i = 0; i < count; i++)
		call[i] = (struct engine_call){.script = SCRIPT_INIT,
		    .shard = first + i,
		    .count = SHAPE_FIELDS + 2,
		    .arg = argument,
		    .reads = like->identity == 0 && like->complete == 0};
	(void)engine_call(opening->engine, call, count, NULL);
}

/* One shard; it becomes what is there. */
static int
shard_init(struct opening *opening, struct made_shard *shard, uint32_t index)
{
	struct engine_call call;
	int error;

	shards_init(opening, shard, &call, index, 1);
	error = call.error != 0 ? call.error : shard_read(shard, call.reply);
	engine_call_free(&call, 1);
	return error;
}

static int
data_is_gone(struct opening *opening, uint32_t index)
{
	engine_log(opening->engine, LOG_ERR,
	    "space %s: the data of shard %u is gone; a backup brings it back, "
	    "hwtctl init --repair makes it anew, and empty",
	    engine_space(opening->engine), index);
	return -ESTALE;
}

/* Any shard but the first: its index, or -ENOENT. If more than these are gone,
 * others_judge finds two identities. */
static int
other_find(struct opening *opening)
{
	struct engine_call call[OTHERS_ASKED];
	int found = -ENOENT;
	uint32_t i;

	for (i = 0; i < OTHERS_ASKED; i++)
		call[i] = (struct engine_call){
		    .script = SCRIPT_STAT, .shard = i + 1, .reads = true};
	(void)engine_call(opening->engine, call, OTHERS_ASKED, NULL);
	for (i = 0; i < OTHERS_ASKED && found == -ENOENT; i++) {
		if (call[i].error != -ESTALE)
			found = call[i].error != 0 ? call[i].error : (int)i + 1;
	}
	engine_call_free(call, OTHERS_ASKED);
	return found;
}

/* What a SCAN finds of shard 0. 1: keys; 0: none; or -errno. The cursor of the
 * next one takes the place of this one's. */
static int
scan_remains(struct opening *opening, char cursor[24])
{
	char key[ENGINE_KEY_MAX];
	struct engine_argument words[] = {argument_text("SCAN"),
	    argument_text(cursor), argument_text("MATCH"), {key, 0},
	    argument_text("COUNT"), argument_text(SCAN_COUNT)};
	struct engine_call call = {.script = COMMAND,
	    .shard = 0,
	    .count = sizeof(words) / sizeof(words[0]),
	    .arg = words,
	    .reads = true};
	const struct redisReply *reply;
	int result;

	engine_key(opening->engine, key, 0, "*");
	words[3] = argument_text(key);
	result = engine_call(opening->engine, &call, 1, NULL);
	if (result != 0)
		return result;
	reply = call.reply;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    reply->element[0]->type != REDIS_REPLY_STRING ||
	    reply->element[0]->len >= 24 ||
	    reply->element[1]->type != REDIS_REPLY_ARRAY)
		result = -EPROTO;
	else {
		memcpy(
		    cursor, reply->element[0]->str, reply->element[0]->len + 1);
		result = reply->element[1]->elements > 0;
	}
	engine_call_free(&call, 1);
	return result;
}

/* Whether keys of shard 0 are there without its meta: 1, 0, or -errno. */
static int
find_remains(struct opening *opening)
{
	char cursor[24] = "0";
	uint32_t i = 0;
	int result;

	do
		result = scan_remains(opening, cursor);
	while (result == 0 && strcmp(cursor, "0") != 0 && ++i < SCANS_MAX);
	return result;
}

/* There is no shard 0. */
static int
first_make(struct opening *opening)
{
	struct made_shard *first = &opening->first;
	int other = other_find(opening);
	int error = 0, remains = other == -ENOENT ? find_remains(opening) : 0;

	if (remains < 0 || (other < 0 && other != -ENOENT))
		return remains < 0 ? remains : other;
	if (other > 0 || remains > 0) {
		/* It may have been made meanwhile, and then the other one. */
		error = shard_init(opening, first, 0);
		if (error != -ESTALE)
			return error;
		if ((opening->flags & HWT_DURABLE_REPAIR) == 0)
			return data_is_gone(opening, 0);
		error = 0;
	}
	if (other > 0)
		error = shard_init(opening, first, (uint32_t)other);
	else if (remains > 0 || (opening->flags & HWT_DURABLE_CREATE)) {
		first->identity = random_number() | 1;
		if (first->shape[SHARDS] == 0 &&
		    engine_is_cluster(opening->engine))
			first->shape[SHARDS] = CLUSTER_SHARDS;
	} else {
		engine_log(opening->engine, LOG_ERR,
		    "there is no space %s; hwtctl init makes one",
		    engine_space(opening->engine));
		return -ENOENT;
	}
	return error != 0 ? error : shard_init(opening, first, 0);
}

/* Of all others, what is wrong with the first that is not as it must be. */
static int
others_judge(
    struct opening *opening, const struct engine_call *call, uint32_t count)
{
	struct made_shard shard;
	uint32_t i;
	int error = 0;

	for (i = 0; i < count && error == 0; i++) {
		error = call[i].error;
		if (error == -ESTALE)
			return data_is_gone(opening, call[i].shard);
		if (error == 0)
			error = shard_read(&shard, call[i].reply);
		if (error != 0 || shard.identity == opening->first.identity)
			continue;
		engine_log(opening->engine, LOG_ERR,
		    "space %s: shard %u is of another making than shard 0; "
		    "DEL its key {%s:%u}:meta, or that of shard 0, and then "
		    "hwtctl init --repair",
		    engine_space(opening->engine), call[i].shard,
		    engine_space(opening->engine), call[i].shard);
		error = -ESTALE;
	}
	return error;
}

static int
others_init(struct opening *opening)
{
	uint32_t count = (uint32_t)opening->first.shape[SHARDS] - 1;
	struct engine_call *call = calloc(count, sizeof(*call));
	struct made_shard like = opening->first;
	int error;

	if (call == NULL)
		return -ENOMEM;
	if (like.complete != 0 && (opening->flags & HWT_DURABLE_REPAIR) == 0)
		like.identity = 0;
	like.complete = 0;
	shards_init(opening, &like, call, 1, count);
	error = others_judge(opening, call, count);
	engine_call_free(call, count);
	free(call);
	return error;
}

static int
space_make(struct opening *opening)
{
	struct made_shard *first = &opening->first;
	int error = shard_init(opening, first, 0);

	if (error == -ESTALE)
		error = first_make(opening);
	/* It has been made after engine_open did not find it. */
	if (error == 0 && engine_level(opening->engine) == 0)
		error = -ENOENT;
	if (error != 0)
		return error;
	if (first->complete == 0 &&
	    (opening->flags & HWT_DURABLE_CREATE) == 0) {
		engine_log(opening->engine, LOG_ERR,
		    "space %s was not made to its end; hwtctl init goes on "
		    "with it",
		    engine_space(opening->engine));
		return -ENOENT;
	}
	if (first->shape[SHARDS] > 1)
		error = others_init(opening);
	if (error != 0 || first->complete != 0)
		return error;
	first->complete = 1;
	return shard_init(opening, first, 0);
}

int
space_open(struct engine *engine, const struct hwt_durable_options *options,
    uint32_t *shards)
{
	struct opening opening = {.engine = engine,
	    .flags = options->flags,
	    .first = {.shape = {options->shards, options->slots,
			  options->tick_ns / NS_PER_MS, options->level,
			  whole_ms(options->retention_ns)}}};
	int error = space_make(&opening);

	if (error == -EEXIST)
		engine_log(engine, LOG_ERR,
		    "space %s has another shape than the options ask for",
		    engine_space(engine));
	if (error != 0)
		return error;
	*shards = (uint32_t)opening.first.shape[SHARDS];
	engine_set_identity(engine, opening.first.identity);
	return 0;
}
