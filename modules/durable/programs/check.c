/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwtctl check. Each record is looked at by the script audit, in one
 * transaction. What a script cannot find are members of buckets and of other
 * sets whose record is elsewhere: these we read ourselves, and since a task may
 * move meanwhile, what looks wrong is read again, the record between two looks
 * at the member. No call does more than some hundred small steps, however large
 * the space is: Redis does nothing else meanwhile.
 */
#define _GNU_SOURCE
#include "walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum {
	BATCH = 64, /* a millisecond of the engine, for records */
	LOOKS = 3, /* until what looks wrong is wrong */
	SLICE = 256, /* buckets whose sizes are asked for at once */
	COUNTS = 32 /* of a shard's buckets, until one is not disturbed */
};

/* The sets that a task may be in. */
enum place {
	PLACE_BUCKET,
	PLACE_INFLIGHT,
	PLACE_DEAD,
	PLACE_BAD
};

struct batch {
	size_t count;
	struct {
		size_t length;
		char text[HWT_DURABLE_ID_MAX];
	} id[BATCH];
};

struct member;

struct check {
	struct hwt_durable *durable;
	struct batch *batch; /* one for each shard */
	struct member *some; /* to be looked at: up to BATCH */
	size_t count; /* of them */
	struct set *set; /* the same of keys */
	size_t sets;
	uint64_t records, members, broken;
};

static void
report(struct check *check, uint32_t shard, const char *id, size_t id_length,
    const char *what)
{
	check->broken++;
	(void)printf("shard %" PRIu32 ": ", shard);
	if (id_length > 0) {
		text_write(stdout, id, id_length);
		(void)fputs(": ", stdout);
	}
	text_write(stdout, what, strlen(what));
	(void)putchar('\n');
}

/* Records. */

/* The answer of audit for one id: what is broken. */
static int
tell_audited(struct check *check, uint32_t shard, const char *id,
    size_t id_length, const struct redisReply *found)
{
	size_t i;

	if (!is_array(found, 0))
		return -EPROTO;
	for (i = 0; i < found->elements; i++) {
		if (!is_string(found->element[i]))
			return -EPROTO;
		/* It was removed since we saw its key, and is nowhere else. */
		if (found->elements == 1 &&
		    strcmp(found->element[i]->str, "5 no record") == 0)
			return 0;
		report(check, shard, id, id_length, found->element[i]->str);
	}
	return 0;
}

static int
audit(struct check *check, uint32_t shard)
{
	struct batch *batch = &check->batch[shard];
	struct engine_argument arg[BATCH];
	struct engine_call call;
	size_t i, count = batch->count;
	int error;

	if (count == 0)
		return 0;
	batch->count = 0;
	for (i = 0; i < count; i++)
		arg[i] = (struct engine_argument){
		    batch->id[i].text, batch->id[i].length};
	error =
	    walk_script(check->durable, SCRIPT_AUDIT, shard, count, arg, &call);
	if (error != 0)
		return error;
	if (!is_array(call.reply, count))
		error = -EPROTO;
	for (i = 0; error == 0 && i < count; i++)
		error = tell_audited(check, shard, arg[i].data, arg[i].length,
		    call.reply->element[i]);
	engine_call_free(&call, 1);
	return error;
}

/* "" stands for the shard's own counters, but for that of pending tasks. */
static int
audit_id(struct check *check, uint32_t shard, const char *id, size_t length)
{
	struct batch *batch = &check->batch[shard];

	memcpy(batch->id[batch->count].text, id, length);
	batch->id[batch->count].length = length;
	return ++batch->count == BATCH ? audit(check, shard) : 0;
}

/* Members. */

/* The slot that a readable record names. */
static uint32_t
record_slot(const char *record)
{
	const unsigned char *byte = (const unsigned char *)record + 12;

	return byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 |
	    (uint32_t)byte[3] << 24;
}

/* A member that is looked at, and the set that has it. */
struct member {
	uint32_t shard, slot; /* of a bucket */
	const char *key;
	enum place place;
	struct engine_argument text, id;
	/* Of a bucket's member. */
	size_t lane_length;
	uint64_t due_ms;
};

/* Of a bucket: lane, 0, six bytes of the due time, id; DESIGN has more. */
static bool
bucket_member_read(struct member *member)
{
	const unsigned char *text = member->text.data;
	const unsigned char *zero = memchr(text, 0, member->text.length);
	size_t head, i;

	if (zero == NULL)
		return false;
	member->lane_length = (size_t)(zero - text);
	head = member->lane_length + 7;
	if (member->lane_length == 0 || member->text.length < head)
		return false;
	member->due_ms = 0;
	for (i = 1; i < 7; i++)
		member->due_ms = member->due_ms << 8 | zero[i];
	member->id =
	    (struct engine_argument){text + head, member->text.length - head};
	return true;
}

/* The name of a queue, and the mark of a priority that is not the normal one.
 */
static bool
is_lane_of(const struct member *member, const struct hwt_durable_info *info)
{
	char lane[HWT_DURABLE_QUEUE_MAX + 2];
	int length = snprintf(lane, sizeof(lane), "%s%s", info->queue,
	    info->flags & HWT_DURABLE_HIGH      ? "+"
		: info->flags & HWT_DURABLE_LOW ? ","
						: "");

	return (size_t)length == member->lane_length &&
	    memcmp(lane, member->text.data, member->lane_length) == 0;
}

static const char *
bucket_wrong(const struct member *member, const char *record,
    const struct hwt_durable_info *info)
{
	if (info->state != HWT_DURABLE_PENDING)
		return "5 in a bucket, and not pending";
	if (record_slot(record) != member->slot)
		return "5 in a bucket that is not its record's";
	if (info->due_unix_ns / NS_PER_MS != member->due_ms)
		return "5 in its bucket by a time that is not its due time";
	return is_lane_of(member, info)
	    ? NULL
	    : "5 in its bucket by a queue or a priority that is not its own";
}

/* Whether a task in this state may be in a set that is no bucket. */
static bool
place_fits(enum place place, enum hwt_durable_state state)
{
	switch (place) {
	case PLACE_INFLIGHT:
		return state == HWT_DURABLE_RUNNING;
	case PLACE_DEAD:
		return state == HWT_DURABLE_FAILED;
	case PLACE_BUCKET:
	case PLACE_BAD:
	default:
		return false;
	}
}

/* What is wrong with a member, or NULL. record NULL: a key of another type. */
static const char *
member_wrong(const struct member *member, const struct redisReply *record)
{
	struct hwt_durable_info info = {.state = HWT_DURABLE_QUARANTINED};
	const char *payload;

	if (record != NULL && record->len == 0)
		return "5 a member without a record";
	if (record != NULL)
		record_read(&info, record->str, record->len, &payload);
	if (info.state == HWT_DURABLE_QUARANTINED)
		return member->place == PLACE_BAD
		    ? NULL
		    : "5 a member whose record cannot be read";
	if (member->place == PLACE_BUCKET)
		return bucket_wrong(member, record->str, &info);
	return place_fits(member->place, info.state)
	    ? NULL
	    : "5 in a set that is not for its state";
}

/* Asks for the score of a member, its record, and the score again. */
static int
member_ask(struct check *check, const struct member *member,
    struct engine_argument record, struct engine_call call[3])
{
	struct engine_argument score[] = {
	    argument_text("ZSCORE"), argument_text(member->key), member->text};
	struct engine_argument get[] = {argument_text("GETRANGE"), record,
	    argument_text("0"), argument_text("148")};
	int error;

	call[0] = (struct engine_call){.script = COMMAND,
	    .shard = member->shard,
	    .count = 3,
	    .arg = score};
	call[1] = (struct engine_call){
	    .script = COMMAND, .shard = member->shard, .count = 4, .arg = get};
	call[2] = call[0];
	error = engine_call(durable_engine(check->durable), call, 3, NULL);
	if (call[0].error == 0 && call[1].error == -EPROTO &&
	    call[2].error == 0)
		return 0;
	return error;
}

/* Sets *wrong to what is wrong, or NULL if nothing is, or if it moved. */
static int
member_look(
    struct check *check, const struct member *member, const char **wrong)
{
	char record[ENGINE_KEY_MAX];
	struct engine_call call[3];
	size_t prefix;
	int error;

	engine_key(durable_engine(check->durable), record, member->shard, "r:");
	prefix = strlen(record);
	memcpy(record + prefix, member->id.data, member->id.length);
	error = member_ask(check, member,
	    (struct engine_argument){record, prefix + member->id.length}, call);
	if (error != 0)
		return error;
	*wrong = NULL;
	if (is_string(call[0].reply) && is_string(call[2].reply) &&
	    strcmp(call[0].reply->str, call[2].reply->str) == 0)
		*wrong = member_wrong(member, call[1].reply);
	engine_call_free(call, 3);
	return 0;
}

/* A member whose record did not seem to fit. */
static int
check_member(struct check *check, const struct member *member)
{
	const char *wrong;
	int look, error;

	for (look = 0; look < LOOKS; look++) {
		error = member_look(check, member, &wrong);
		if (error != 0 || wrong == NULL)
			return error;
	}
	report(check, member->shard, member->id.data, member->id.length, wrong);
	return 0;
}

static bool
member_read(struct check *check, struct member *member)
{
	member->id = member->text;
	if ((member->place != PLACE_BUCKET || bucket_member_read(member)) &&
	    member->id.length >= 1 && member->id.length <= HWT_DURABLE_ID_MAX)
		return true;
	report(check, member->shard, member->id.data, member->id.length,
	    "5 a member that is no id");
	return false;
}

/* Reads the records of members at once. */
static int
check_some(struct check *check)
{
	const struct member *member = check->some;
	char key[BATCH][ENGINE_KEY_MAX];
	struct engine_argument arg[BATCH][4];
	struct engine_call call[BATCH];
	size_t i, prefix, count = check->count;
	int error = 0;

	check->count = 0;
	for (i = 0; i < count; i++) {
		engine_key(durable_engine(check->durable), key[i],
		    member[i].shard, "r:");
		prefix = strlen(key[i]);
		memcpy(key[i] + prefix, member[i].id.data, member[i].id.length);
		arg[i][0] = argument_text("GETRANGE");
		arg[i][1] = (struct engine_argument){
		    key[i], prefix + member[i].id.length};
		arg[i][2] = argument_text("0");
		arg[i][3] = argument_text("148");
		call[i] = (struct engine_call){.script = COMMAND,
		    .shard = member[i].shard,
		    .count = 4,
		    .arg = arg[i]};
	}
	/* Its errors are told for the member that has one. */
	if (count > 0)
		(void)engine_call(
		    durable_engine(check->durable), call, count, NULL);
	for (i = 0; i < count && error == 0; i++) {
		if (call[i].error != 0 || !is_string(call[i].reply) ||
		    member_wrong(&member[i], call[i].reply) != NULL)
			error = check_member(check, &member[i]);
	}
	engine_call_free(call, count);
	return error;
}

/* The answer of ZSCAN: a cursor, and members with their scores, which are
 * looked at by the next check_some at the latest. */
static int
check_page(struct check *check, struct member *member,
    const struct redisReply *reply, char cursor[32])
{
	const struct redisReply *page;
	size_t i;
	int error = 0;

	if (!is_array(reply, 2) || !is_string(reply->element[0]) ||
	    !is_array(reply->element[1], 0) || reply->element[0]->len >= 32)
		return -EPROTO;
	memcpy(cursor, reply->element[0]->str, reply->element[0]->len + 1);
	page = reply->element[1];
	for (i = 0; error == 0 && i + 1 < page->elements; i += 2) {
		if (!is_string(page->element[i]))
			return -EPROTO;
		member->text = (struct engine_argument){
		    page->element[i]->str, page->element[i]->len};
		check->members++;
		if (member_read(check, member))
			check->some[check->count++] = *member;
		if (check->count == BATCH)
			error = check_some(check);
	}
	return error;
}

/* The pages behind the first one. */
static int
check_rest(struct check *check, struct member *member, char cursor[32])
{
	struct engine_argument words[] = {argument_text("ZSCAN"),
	    argument_text(member->key), {NULL, 0}, argument_text("COUNT"),
	    argument_text("128")};
	struct engine_call call;
	int error = 0;

	while (error == 0 && strcmp(cursor, "0") != 0) {
		words[2] = argument_text(cursor);
		error = walk_command(
		    check->durable, member->shard, 5, words, &call);
		if (error != 0)
			return error;
		error = check_page(check, member, call.reply, cursor);
		if (error == 0)
			error = check_some(check);
		engine_call_free(&call, 1);
	}
	return error;
}

/* Keys. */

/* What keys there are, what type they have, and what they hold. */
static const struct kind {
	const char *name; /* ends with a colon if more follows */
	const char *type;
	bool members;
	enum place place;
} kinds[] = {
    {"meta", "hash", false, 0},
    {"b:", "zset", true, PLACE_BUCKET},
    {"q:", "list", false, 0},
    {"t:", "string", false, 0},
    {"e:", "string", false, 0},
    {"aside:", NULL, false, 0},
    {"s:", "hash", false, 0},
    {"o:", "string", false, 0},
    {"schedules", "zset", false, 0},
    {"queues", "zset", false, 0},
    {"paused", "zset", false, 0},
    {"limits", "zset", false, 0},
    {"l:", "hash", false, 0},
    {"f:", "zset", true, PLACE_INFLIGHT},
    {"fly", "zset", true, PLACE_INFLIGHT},
    {"dead", "zset", true, PLACE_DEAD},
    {"bad", "zset", true, PLACE_BAD},
};

static const struct kind *
kind_find(const char *name)
{
	size_t i, length;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		length = strlen(kinds[i].name);
		if (kinds[i].name[length - 1] == ':'
			? strncmp(name, kinds[i].name, length) == 0
			: strcmp(name, kinds[i].name) == 0)
			return &kinds[i];
	}
	return NULL;
}

/* A key whose type, and whose members, are to be looked at. */
struct set {
	uint32_t shard, slot;
	const struct kind *kind;
	char key[ENGINE_KEY_MAX], name[ENGINE_KEY_MAX / 2];
};

/* What TYPE, and ZSCAN unless it is another type, have answered. */
static int
check_set(struct check *check, const struct set *set,
    const struct engine_call call[2])
{
	struct member member = {.shard = set->shard,
	    .slot = set->slot,
	    .key = set->key,
	    .place = set->kind->place};
	char cursor[32] = "0";
	int error;

	if (!is_string(call[0].reply))
		return call[0].error != 0 ? call[0].error : -EPROTO;
	/* It has gone meanwhile. */
	if (strcmp(call[0].reply->str, "none") == 0)
		return 0;
	if (strcmp(call[0].reply->str, set->kind->type) != 0) {
		report(check, set->shard, set->name, strlen(set->name),
		    "5 a key of another type");
		return 0;
	}
	if (!set->kind->members)
		return 0;
	if (call[1].error != 0)
		return call[1].error;
	error = check_page(check, &member, call[1].reply, cursor);
	return error == 0 ? check_rest(check, &member, cursor) : error;
}

/* Asks for all keys that have come together at once. */
static int
check_sets(struct check *check)
{
	struct engine_argument type[BATCH][2], scan[BATCH][5];
	struct engine_call call[BATCH][2];
	size_t i, count = check->sets;
	int error = 0;

	check->sets = 0;
	for (i = 0; i < count; i++) {
		const struct set *set = &check->set[i];

		type[i][0] = argument_text("TYPE");
		type[i][1] = scan[i][1] = argument_text(set->key);
		scan[i][0] = argument_text("ZSCAN");
		scan[i][2] = argument_text("0");
		scan[i][3] = argument_text("COUNT");
		scan[i][4] = argument_text("128");
		call[i][0] = (struct engine_call){.script = COMMAND,
		    .shard = set->shard,
		    .count = 2,
		    .arg = type[i]};
		call[i][1] = call[i][0];
		if (!set->kind->members)
			continue;
		call[i][1].count = 5;
		call[i][1].arg = scan[i];
	}
	if (count > 0)
		(void)engine_call(
		    durable_engine(check->durable), call[0], 2 * count, NULL);
	for (i = 0; i < count && error == 0; i++) {
		error = check_set(check, &check->set[i], call[i]);
		if (error != 0)
			complain("shard %" PRIu32 ": %s", check->set[i].shard,
			    explain(error));
	}
	if (error == 0)
		error = check_some(check);
	engine_call_free(call[0], 2 * count);
	return error;
}

static int
check_kind(struct check *check, uint32_t shard, const char *name)
{
	const struct kind *kind = kind_find(name);
	struct set *set = &check->set[check->sets];
	uint64_t slot = 0;

	if (kind == NULL ||
	    (kind->members && kind->place == PLACE_BUCKET &&
		!text_number(name + 2, 0, 1u << 20, &slot))) {
		report(check, shard, name, strlen(name),
		    "5 a key that has no place");
		return 0;
	}
	/* What was found in the place of another key was put there. */
	if (kind->type == NULL)
		return 0;
	*set =
	    (struct set){.shard = shard, .slot = (uint32_t)slot, .kind = kind};
	(void)snprintf(set->name, sizeof(set->name), "%s", name);
	engine_key(durable_engine(check->durable), set->key, shard, set->name);
	return ++check->sets == BATCH ? check_sets(check) : 0;
}

static int
check_key(void *ctx, uint32_t shard, const char *name, size_t length)
{
	struct check *check = ctx;
	char text[ENGINE_KEY_MAX / 2];

	if (shard >= durable_shards(check->durable)) {
		report(check, shard, NULL, 0, "5 keys of a shard that is none");
		return 0;
	}
	if (length > 2 && memcmp(name, "r:", 2) == 0 &&
	    length - 2 <= HWT_DURABLE_ID_MAX) {
		check->records++;
		return audit_id(check, shard, name + 2, length - 2);
	}
	/* No name that we make is longer, or has a 0 in it. */
	if (length >= sizeof(text) || memchr(name, '\0', length) != NULL) {
		report(check, shard, name, length, "5 a key that has no place");
		return 0;
	}
	memcpy(text, name, length);
	text[length] = '\0';
	return check_kind(check, shard, text);
}

/* Counters. Pending tasks are in buckets: as many as all buckets together have.
 * That is compared if nothing was written in the shard from the first look at
 * meta to the last one. */

struct meta {
	uint64_t slots, pending, clock, version;
};

static int
meta_read(struct check *check, uint32_t shard, struct meta *meta)
{
	char key[ENGINE_KEY_MAX];
	struct engine_argument words[] = {argument_text("HMGET"), {NULL, 0},
	    argument_text("slots"), argument_text("pending"),
	    argument_text("clock"), argument_text("version")};
	uint64_t *const numbers[] = {
	    &meta->slots, &meta->pending, &meta->clock, &meta->version};
	struct engine_call call;
	size_t i;
	int error;

	engine_key(durable_engine(check->durable), key, shard, "meta");
	words[1] = argument_text(key);
	error = walk_command(check->durable, shard,
	    sizeof(words) / sizeof(words[0]), words, &call);
	if (error != 0)
		return error;
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (!is_array(call.reply, i + 1) ||
		    !reply_number(call.reply->element[i], numbers[i]))
			error = -EPROTO;
	}
	engine_call_free(&call, 1);
	return error;
}

/* Adds to *sum how many members the buckets from first on have: up to SLICE.
 * Keys of another type have none; that is told elsewhere. */
static int
slice_count(struct check *check, uint32_t shard, uint64_t first, uint64_t slots,
    uint64_t *sum)
{
	struct engine_argument words[SLICE][2];
	struct engine_call call[SLICE];
	char key[SLICE][ENGINE_KEY_MAX], name[16];
	size_t i, count = slots - first < SLICE ? slots - first : SLICE;
	int error = 0;

	for (i = 0; i < count; i++) {
		(void)snprintf(name, sizeof(name), "b:%" PRIu64, first + i);
		engine_key(durable_engine(check->durable), key[i], shard, name);
		words[i][0] = argument_text("ZCARD");
		words[i][1] = argument_text(key[i]);
		call[i] = (struct engine_call){.script = COMMAND,
		    .shard = shard,
		    .count = 2,
		    .arg = words[i]};
	}
	(void)engine_call(durable_engine(check->durable), call, count, NULL);
	for (i = 0; i < count; i++) {
		if (call[i].error == 0 &&
		    call[i].reply->type == REDIS_REPLY_INTEGER)
			*sum += (uint64_t)call[i].reply->integer;
		else if (error == 0 && call[i].error != -EPROTO)
			error = call[i].error;
	}
	engine_call_free(call, count);
	return error;
}

/* One look at all buckets of a shard: 1 if nothing was written meanwhile. */
static int
buckets_count(
    struct check *check, uint32_t shard, struct meta *meta, uint64_t *sum)
{
	struct meta after = {0};
	uint64_t slot;
	int error = meta_read(check, shard, meta);

	*sum = 0;
	for (slot = 0; error == 0 && slot < meta->slots; slot += SLICE)
		error = slice_count(check, shard, slot, meta->slots, sum);
	if (error == 0)
		error = meta_read(check, shard, &after);
	if (error != 0)
		return error;
	return memcmp(meta, &after, sizeof(after)) == 0;
}

/* Two scripts in the same millisecond may leave meta as it was: so what is
 * wrong must be wrong, by just as much, LOOKS times. */
static int
check_pending(struct check *check, uint32_t shard)
{
	struct meta meta = {0};
	uint64_t sum, wrong_by = 0;
	char text[96];
	int count, looks = 0, quiet;

	for (count = 0; count < COUNTS && looks < LOOKS; count++) {
		quiet = buckets_count(check, shard, &meta, &sum);
		if (quiet < 0) {
			complain(
			    "shard %" PRIu32 ": %s", shard, explain(quiet));
			return quiet;
		}
		if (sum == meta.pending)
			return 0;
		if (quiet == 0)
			continue;
		looks = sum - meta.pending == wrong_by ? looks + 1 : 1;
		wrong_by = sum - meta.pending;
	}
	if (looks < LOOKS) {
		complain("shard %" PRIu32 ": pending tasks were not counted, "
			 "for it is written to all the time; they are while it "
			 "is paused",
		    shard);
		return 0;
	}
	(void)snprintf(text, sizeof(text),
	    "8 pending is %" PRIu64 ", counted %" PRIu64, meta.pending, sum);
	report(check, shard, NULL, 0, text);
	return 0;
}

int
walk_check(struct hwt_durable *durable, uint64_t *broken)
{
	struct check check = {.durable = durable};
	uint32_t shards = durable_shards(durable);
	uint32_t shard;
	int error;

	check.batch = calloc(shards, sizeof(*check.batch));
	check.some = calloc(BATCH, sizeof(*check.some));
	check.set = calloc(BATCH, sizeof(*check.set));
	if (check.batch == NULL || check.some == NULL || check.set == NULL) {
		error = -ENOMEM;
		goto done;
	}
	error = walk_keys(durable, check_key, &check);
	if (error == 0)
		error = check_sets(&check);
	for (shard = 0; error == 0 && shard < shards; shard++) {
		error = audit_id(&check, shard, "", 0);
		if (error == 0)
			error = audit(&check, shard);
		if (error == 0)
			error = check_pending(&check, shard);
	}
done:
	free(check.set);
	free(check.some);
	free(check.batch);
	(void)printf("%" PRIu64 " records, %" PRIu64
		     " members of sets, %" PRIu64 " broken\n",
	    check.records, check.members, check.broken);
	*broken = check.broken;
	return error;
}
