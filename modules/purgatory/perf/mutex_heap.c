/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A, what one writes by hand: one mutex round everything, a list of operations
 * for each key, a binary heap of deadlines, and a thread that sleeps until the
 * first one. What ends leaves its lists and the heap at once.
 *
 * Who would call it unfair: who needs what hwt_purgatory promises. There are no
 * handles and no counts here; predicates and callbacks run under the mutex, and
 * may neither call back nor take long. Its users can pay that price.
 */
#define _GNU_SOURCE
#include "modules/purgatory/perf/design.h"

#define HEAP_MAX (1u << 20) /* more than main.c has outstanding */

struct operation {
	struct request request;
	size_t at; /* in the heap */
	struct link link[KEYS_MAX];
};

struct waiting {
	uint64_t due_ns;
	struct operation *operation;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t reaper;
static struct waiting heap[HEAP_MAX];
static size_t heap_count;

static void
heap_place(size_t at, struct waiting waiting)
{
	heap[at] = waiting;
	waiting.operation->at = at;
}

/* From that free place up or down to where it belongs. */
static void
heap_sift(size_t at, struct waiting waiting)
{
	size_t child;

	for (; at > 0 && waiting.due_ns < heap[(at - 1) / 2].due_ns;
	     at = (at - 1) / 2)
		heap_place(at, heap[(at - 1) / 2]);
	for (; (child = 2 * at + 1) < heap_count; at = child) {
		if (child + 1 < heap_count &&
		    heap[child + 1].due_ns < heap[child].due_ns)
			child++;
		if (heap[child].due_ns >= waiting.due_ns)
			break;
		heap_place(at, heap[child]);
	}
	heap_place(at, waiting);
}

static void
complete(struct operation *operation)
{
	struct link *link = operation->link;
	size_t at = operation->at;

	for (; link < &operation->link[operation->request.key_count]; link++)
		TAILQ_REMOVE(table_bucket(link->key), link, place);
	if (at != --heap_count)
		heap_sift(at, heap[heap_count]);
	request_ended(&operation->request);
	free(operation);
}

static void *
reap(void *unused)
{
	struct timespec until;
	uint64_t due_ns;

	pthread_mutex_lock(&lock);
	for (;;) {
		due_ns = heap_count > 0 ? heap[0].due_ns : HWT_NEVER;
		until.tv_sec = (time_t)(due_ns / HWT_SEC(1));
		until.tv_nsec = (long)(due_ns % HWT_SEC(1));
		if (due_ns <= perf_now_ns())
			complete(heap[0].operation);
		else
			(void)pthread_cond_clockwait(
			    &changed, &lock, CLOCK_MONOTONIC, &until);
	}
	return unused;
}

static void
create(uint32_t links)
{
	table_make(links);
	perf_start(&reaper, reap, NULL);
}

static void
watch(struct request *request, uint64_t delay_ns)
{
	struct operation *operation = (struct operation *)request;
	uint32_t i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < request->key_count; i++)
		link_add(&operation->link[i], operation, request->key[i]);
	heap_sift(heap_count++,
	    (struct waiting){perf_now_ns() + delay_ns, operation});
	if (operation->at == 0)
		pthread_cond_signal(&changed);
	if (load == LOAD_CLOSED && request_holds(request))
		complete(operation);
	pthread_mutex_unlock(&lock);
}

/* Completes those under the key whose predicate holds, or that have none. */
static void
event(uint32_t key, uint64_t value)
{
	struct link *link, *next;

	(void)value;
	pthread_mutex_lock(&lock);
	link = link_of(TAILQ_FIRST(table_bucket(key)), key);
	for (; link != NULL; link = next) {
		next = link_of(TAILQ_NEXT(link, place), key);
		if (load == LOAD_INFLIGHT ||
		    request_holds(&link->operation->request))
			complete(link->operation);
	}
	pthread_mutex_unlock(&lock);
}

const struct design design = {"one mutex, heap of deadlines",
    sizeof(struct operation), false, create, watch, event};
