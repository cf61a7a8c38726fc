/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 3, of trees: a binary heap by deadline. A record knows its place, so
 * that STOP finds it; deadlines are in the heap itself, so that comparing
 * touches no record. */
#include "perf/schemes/record.h"

struct node {
	uint64_t due;
	struct record *record;
};

/* The first is heap.node[1]. */
static struct {
	struct node *node;
	uint32_t count;
} heap;

static void
heap_create(uint64_t capacity, uint64_t range)
{
	(void)range;
	pool_create(capacity);
	heap.node = calloc(capacity + 1, sizeof(*heap.node));
	perf_must(heap.node, "calloc");
	heap.count = 0;
}

static void
heap_destroy(void)
{
	free(heap.node);
	pool_destroy();
}

static void
heap_put(uint32_t place, struct node node)
{
	heap.node[place] = node;
	node.record->place = place;
}

static void
heap_rise(uint32_t place, struct node node)
{
	while (place > 1 && heap.node[place / 2].due > node.due) {
		heap_put(place, heap.node[place / 2]);
		place /= 2;
	}
	heap_put(place, node);
}

static void
heap_sink(uint32_t place, struct node node)
{
	uint32_t child;

	while ((child = 2 * place) <= heap.count) {
		if (child < heap.count &&
		    heap.node[child + 1].due < heap.node[child].due)
			child++;
		if (heap.node[child].due >= node.due)
			break;
		heap_put(place, heap.node[child]);
		place = child;
	}
	heap_put(place, node);
}

/* The last node takes the place, and goes from there to where it belongs. */
static void
heap_remove(uint32_t place)
{
	struct node last = heap.node[heap.count--];

	if (place > heap.count)
		return;
	if (place > 1 && heap.node[place / 2].due > last.due)
		heap_rise(place, last);
	else
		heap_sink(place, last);
}

static uint64_t
heap_start(uint64_t interval, uint32_t who)
{
	struct record *record = pool_take(interval, who);

	heap_rise(++heap.count, (struct node){record->due, record});
	return record_handle(record);
}

static void
heap_stop(uint64_t handle)
{
	struct record *record = record_of(handle);

	heap_remove(record->place);
	pool_give(record);
}

static void
heap_tick(void)
{
	struct record *record;
	uint32_t who;

	pool.now++;
	while (heap.count > 0 && heap.node[1].due == pool.now) {
		record = heap.node[1].record;
		who = record->who;
		heap_remove(1);
		pool_give(record);
		expire(who);
	}
}

const struct scheme scheme = {.what = "scheme 3, a binary heap",
    .start_cost = "O(log(n))",
    .stop_cost = "O(log(n))",
    .tick_cost = "O(log(n))",
    .create = heap_create,
    .destroy = heap_destroy,
    .start = heap_start,
    .stop = heap_stop,
    .tick = heap_tick};
