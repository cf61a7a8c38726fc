/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one writes by hand: one mutex round everything, a list of operations for
 * each key, a binary heap of deadlines, and a thread that sleeps until the
 * first one. What ends leaves its lists and the heap at once, and a key goes
 * with its last operation.
 *
 * Who would call it unfair: who needs what hwt_purgatory promises, since
 * predicates and callbacks run under the one mutex here: they may neither call
 * back nor take long, and all others wait meanwhile, also the deadlines. There
 * are no handles, so nothing can be cancelled but by key. That is the price of
 * this simplicity, and whoever can pay it should see what it saves. Who would
 * call it unfair to the mutex: it is uncontended with one thread, as good as
 * can be; the heap's entries have their deadline beside them, and an operation
 * is one block of memory.
 */
#include <pthread.h>

#include "modules/purgatory/perf/design.h"

struct link {
	struct link *next, *previous;
	struct list *list;
	struct operation *operation;
};

struct operation {
	struct request *request;
	size_t at; /* in the heap */
	struct link link[]; /* for each key */
};

struct list {
	struct entry entry;
	struct link *first, *last;
};

struct waiting {
	uint64_t due_ns;
	struct operation *operation;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_t reaper;
static bool stopping;
static struct table keys;
static struct waiting *heap;
static size_t heap_count, heap_space;
static struct list *spares;

static void
heap_place(size_t at, struct waiting waiting)
{
	heap[at] = waiting;
	waiting.operation->at = at;
}

static void
heap_up(size_t at, struct waiting waiting)
{
	for (; at > 0 && waiting.due_ns < heap[(at - 1) / 2].due_ns;
	     at = (at - 1) / 2)
		heap_place(at, heap[(at - 1) / 2]);
	heap_place(at, waiting);
}

static void
heap_down(size_t at, struct waiting waiting)
{
	size_t child;

	while ((child = 2 * at + 1) < heap_count) {
		if (child + 1 < heap_count &&
		    heap[child + 1].due_ns < heap[child].due_ns)
			child++;
		if (heap[child].due_ns >= waiting.due_ns)
			break;
		heap_place(at, heap[child]);
		at = child;
	}
	heap_place(at, waiting);
}

static void
heap_add(struct operation *operation)
{
	if (heap_count == heap_space) {
		heap_space = heap_space > 0 ? 2 * heap_space : 1024;
		heap = realloc(heap, heap_space * sizeof(*heap));
		perf_must(heap != NULL, "realloc");
	}
	heap_up(heap_count++,
	    (struct waiting){operation->request->due_ns, operation});
	if (operation->at == 0)
		pthread_cond_signal(&changed);
}

static void
heap_remove(size_t at)
{
	struct waiting last = heap[--heap_count];

	if (at == heap_count)
		return;
	if (at > 0 && last.due_ns < heap[(at - 1) / 2].due_ns)
		heap_up(at, last);
	else
		heap_down(at, last);
}

static void
link_add(struct link *link, uint32_t name)
{
	uint32_t hash = request_hash(name);
	struct entry **at = table_find(&keys, name, hash);
	struct list *list = at != NULL ? (struct list *)*at : spares;

	if (at == NULL) {
		if (list != NULL)
			spares = (struct list *)list->entry.chain;
		else
			list = malloc(sizeof(*list));
		perf_must(list != NULL, "malloc");
		table_add(&keys, &list->entry, name, hash);
		list->first = list->last = NULL;
	}
	link->list = list;
	link->next = NULL;
	link->previous = list->last;
	*(list->last != NULL ? &list->last->next : &list->first) = link;
	list->last = link;
}

static void
link_remove(struct link *link)
{
	struct list *list = link->list;
	struct link *next = link->next, *previous = link->previous;
	struct entry **at;

	*(previous != NULL ? &previous->next : &list->first) = next;
	*(next != NULL ? &next->previous : &list->last) = previous;
	if (list->first != NULL)
		return;
	at = table_bucket(&keys, list->entry.hash);
	while (*at != &list->entry)
		at = &(*at)->chain;
	table_remove(&keys, at);
	list->entry.chain = (struct entry *)spares;
	spares = list;
}

static void
complete(struct operation *operation)
{
	uint32_t i;

	for (i = 0; i < operation->request->key_count; i++)
		link_remove(&operation->link[i]);
	heap_remove(operation->at);
	request_ended(operation->request);
	free(operation->request);
	free(operation);
}

static void *
reap(void *unused)
{
	struct timespec until;
	uint64_t due_ns;

	(void)unused;
	pthread_mutex_lock(&lock);
	while (!stopping) {
		if (heap_count == 0) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		due_ns = heap[0].due_ns;
		if (due_ns <= perf_now_ns()) {
			complete(heap[0].operation);
			continue;
		}
		until.tv_sec = (time_t)(due_ns / HWT_SEC(1));
		until.tv_nsec = (long)(due_ns % HWT_SEC(1));
		(void)pthread_cond_timedwait(&changed, &lock, &until);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void
create(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attr);
	perf_must(
	    pthread_create(&reaper, NULL, reap, NULL) == 0, "pthread_create");
}

static void
destroy(void)
{
	pthread_mutex_lock(&lock);
	stopping = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(reaper, NULL);
}

static void
watch(struct request *request, uint64_t delay_ns)
{
	const uint32_t count = request->key_count;
	struct operation *operation =
	    malloc(sizeof(*operation) + count * sizeof(operation->link[0]));
	uint32_t i;

	(void)delay_ns;
	perf_must(operation != NULL, "malloc");
	operation->request = request;
	pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++) {
		operation->link[i].operation = operation;
		link_add(&operation->link[i], request->key[i]);
	}
	heap_add(operation);
	if (request_holds(request))
		complete(operation);
	pthread_mutex_unlock(&lock);
}

/* Completes those under the key whose predicate is true, or all. */
static void
walk(uint32_t name, bool all)
{
	struct operation *operation;
	struct link *link;
	struct entry **at;

	pthread_mutex_lock(&lock);
	at = table_find(&keys, name, request_hash(name));
	link = at != NULL ? ((struct list *)*at)->first : NULL;
	while (link != NULL) {
		operation = link->operation;
		/* If it has the key twice, its links follow each other. */
		while (link != NULL && link->operation == operation)
			link = link->next;
		if (all || request_holds(operation->request))
			complete(operation);
	}
	pthread_mutex_unlock(&lock);
}

static void
check(uint32_t key)
{
	walk(key, false);
}

static void
finish(uint32_t key)
{
	walk(key, true);
}

const struct design design = {"one mutex, heap of deadlines", create, destroy,
    watch, check, finish, NULL, NULL};
