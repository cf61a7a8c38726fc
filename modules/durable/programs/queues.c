/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each shard names the queues of its oldest entries. If there are more than are
 * told, what a shard has of a queue may not be among them: so all are asked a
 * second time, for those that are told alone.
 */
#define _GNU_SOURCE
#include "queues.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What all shards have answered: of a queue as often as shards have it. */
struct heap {
	size_t count;
	bool all;
	struct queue *queue;
};

static int
compare_names(const void *a, const void *b)
{
	const struct queue *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int
compare_ages(const void *a, const void *b)
{
	const struct queue *x = a, *y = b;

	if (x->age_ns != y->age_ns)
		return x->age_ns > y->age_ns ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* {queue, entries, due, paused, running, places, rate, held} */
static bool
reply_read(struct queue *queue, const struct redisReply *reply, uint64_t now)
{
	const struct redisReply *name;
	uint64_t due, held;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 8)
		return false;
	name = reply->element[0];
	if (name->type != REDIS_REPLY_STRING ||
	    strlen(name->str) != name->len ||
	    !name_is_valid(name->str, HWT_DURABLE_QUEUE_MAX) ||
	    !reply_number(reply->element[1], &queue->entries) ||
	    !reply_number(reply->element[2], &due) ||
	    !reply_number(reply->element[3], &queue->paused_since_ms) ||
	    !reply_number(reply->element[4], &queue->running) ||
	    !reply_number(reply->element[5], &queue->at_once) ||
	    !reply_number(reply->element[6], &queue->rate) ||
	    !reply_number(reply->element[7], &held))
		return false;
	queue->paused = queue->paused_since_ms != 0;
	memcpy(queue->name, name->str, name->len + 1);
	queue->age_ns =
	    queue->entries > 0 && due < now ? (now - due) * NS_PER_MS : 0;
	queue->unheld_ns = held != 0 ? 0 : queue->age_ns;
	return true;
}

/* {now, all, queue...}; what is no queue is left out. */
static int
heap_read(struct heap *heap, const struct redisReply *reply)
{
	uint64_t now, all;
	size_t i;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
	    reply->elements > 2 + QUEUES_MAX ||
	    !reply_number(reply->element[0], &now) ||
	    !reply_number(reply->element[1], &all))
		return -EPROTO;
	heap->all = heap->all && all == 1;
	for (i = 2; i < reply->elements; i++) {
		struct queue *queue = &heap->queue[heap->count];

		if (reply_read(queue, reply->element[i], now) &&
		    (queue->entries > 0 || queue->paused > 0 ||
			queue->running > 0 || queue->at_once > 0 ||
			queue->rate > 0))
			heap->count++;
	}
	return 0;
}

/* What another shard has of it. */
static void
queue_add(struct queue *queue, const struct queue *other)
{
	queue->entries += other->entries;
	queue->running += other->running;
	queue->paused += other->paused;
	queue->at_once += other->at_once;
	if (other->rate > queue->rate)
		queue->rate = other->rate;
	if (other->age_ns > queue->age_ns)
		queue->age_ns = other->age_ns;
	if (other->unheld_ns > queue->unheld_ns)
		queue->unheld_ns = other->unheld_ns;
	if (queue->paused_since_ms == 0 ||
	    (other->paused_since_ms != 0 &&
		other->paused_since_ms < queue->paused_since_ms))
		queue->paused_since_ms = other->paused_since_ms;
}

/* One of each name, the oldest first. */
static void
heap_merge(struct heap *heap)
{
	struct queue *to = heap->queue;
	size_t i;

	if (heap->count == 0)
		return;
	qsort(heap->queue, heap->count, sizeof(*to), compare_names);
	for (i = 1; i < heap->count; i++) {
		if (strcmp(to->name, heap->queue[i].name) == 0)
			queue_add(to, &heap->queue[i]);
		else
			*++to = heap->queue[i];
	}
	heap->count = (size_t)(to - heap->queue) + 1;
	qsort(heap->queue, heap->count, sizeof(*to), compare_ages);
}

/* Asks all shards; count 0: for what they know. */
static int
heap_ask(struct hwt_durable *durable, struct heap *heap, size_t count,
    const struct engine_argument *names, const struct engine_wait *wait)
{
	uint32_t shards = durable_shards(durable), i;
	struct engine_call *call = calloc(shards, sizeof(*call));
	int error;

	if (call == NULL)
		return -ENOMEM;
	heap->count = 0;
	heap->all = true;
	for (i = 0; i < shards; i++)
		call[i] = (struct engine_call){.script = SCRIPT_QUEUES,
		    .shard = i,
		    .count = (uint32_t)count,
		    .arg = names,
		    .reads = true};
	error = engine_call(durable_engine(durable), call, shards, wait);
	for (i = 0; i < shards && error == 0; i++)
		error = heap_read(heap, call[i].reply);
	engine_call_free(call, shards);
	free(call);
	heap_merge(heap);
	return error;
}

/* Keeps those that are told, and asks for all that there is of them. */
static int
heap_ask_again(struct hwt_durable *durable, struct heap *heap,
    const struct engine_wait *wait)
{
	char name[QUEUES_MAX][HWT_DURABLE_QUEUE_MAX + 1];
	struct engine_argument argument[QUEUES_MAX];
	size_t i, count = heap->count < QUEUES_MAX ? heap->count : QUEUES_MAX;
	int error;

	/* Without names it would be the first question again, and the answer
	 * more than is told. */
	if (count == 0)
		return 0;
	for (i = 0; i < count; i++) {
		memcpy(name[i], heap->queue[i].name, sizeof(name[i]));
		argument[i] = argument_text(name[i]);
	}
	error = heap_ask(durable, heap, count, argument, wait);
	heap->all = false;
	return error;
}

int
queues_read(struct hwt_durable *durable, struct queues *queues,
    const struct engine_wait *wait)
{
	struct heap heap = {
	    .queue = calloc((size_t)durable_shards(durable) * QUEUES_MAX,
		sizeof(*heap.queue))};
	int error;

	if (heap.queue == NULL)
		return -ENOMEM;
	error = heap_ask(durable, &heap, 0, NULL, wait);
	if (error == 0 && (!heap.all || heap.count > QUEUES_MAX))
		error = heap_ask_again(durable, &heap, wait);
	if (error == 0) {
		queues->all = heap.all;
		queues->count = heap.count;
		queues->shards = durable_shards(durable);
		memcpy(queues->queue, heap.queue,
		    heap.count * sizeof(*heap.queue));
	}
	free(heap.queue);
	return error;
}

int
queue_read(struct hwt_durable *durable, struct queue *queue, const char *name)
{
	const struct engine_argument argument = argument_text(name);
	struct heap heap = {
	    .queue = calloc(durable_shards(durable), sizeof(*heap.queue))};
	int error;

	if (heap.queue == NULL)
		return -ENOMEM;
	error = heap_ask(durable, &heap, 1, &argument, NULL);
	*queue = (struct queue){0};
	if (error == 0 && heap.count > 0)
		*queue = heap.queue[0];
	(void)snprintf(queue->name, sizeof(queue->name), "%s", name);
	free(heap.queue);
	return error;
}
