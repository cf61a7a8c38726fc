/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A: Kafka before 2015. One mutex, a binary heap of deadlines in which the
 * completed stay until they are due or purged, and lazy lists.
 */
#include "modules/purgatory/perf/lazy.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static struct watchers *table[LAZY_BUCKETS];
static struct lazy **heap;
static size_t heap_count, heap_space;
static pthread_t reaper;
static bool stopping;

static void
place(size_t at, struct lazy *lazy)
{
	heap[at] = lazy;
}

static bool
is_before(const struct lazy *a, const struct lazy *b)
{
	return a->request->due_ns < b->request->due_ns;
}

static void
sift_up(size_t at)
{
	struct lazy *lazy = heap[at];

	while (at > 0 && is_before(lazy, heap[(at - 1) / 2])) {
		place(at, heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	place(at, lazy);
}

static void
sift_down(size_t at)
{
	struct lazy *lazy = heap[at];
	size_t child;

	while ((child = 2 * at + 1) < heap_count) {
		if (child + 1 < heap_count &&
		    is_before(heap[child + 1], heap[child]))
			child++;
		if (!is_before(heap[child], lazy))
			break;
		place(at, heap[child]);
		at = child;
	}
	place(at, lazy);
}

static void
heap_push(struct lazy *lazy)
{
	if (heap_count == heap_space) {
		heap_space = heap_space ? 2 * heap_space : 1024;
		heap = realloc(heap, heap_space * sizeof(*heap));
		perf_must(heap != NULL, "realloc");
	}
	heap[heap_count++] = lazy;
	sift_up(heap_count - 1);
	if (heap[0] == lazy)
		pthread_cond_signal(&changed);
}

static struct lazy *
heap_pop(void)
{
	struct lazy *first = heap[0];

	heap[0] = heap[--heap_count];
	if (heap_count > 0)
		sift_down(0);
	return first;
}

static void
complete(struct lazy *lazy, bool expired)
{
	if (atomic_exchange(&lazy->completed, true))
		return;
	atomic_fetch_add(&ended, 1);
	request_ended(lazy->request, expired);
}

static void
purge(void)
{
	size_t i, kept = 0;
	struct watchers *list;

	for (i = 0; i < LAZY_BUCKETS; i++) {
		for (list = table[i]; list != NULL; list = list->chain)
			watchers_purge(list);
	}
	for (i = 0; i < heap_count; i++) {
		if (atomic_load(&heap[i]->completed))
			lazy_release(heap[i]);
		else
			heap[kept++] = heap[i];
	}
	heap_count = kept;
	for (i = heap_count / 2; i-- > 0;)
		sift_down(i);
	atomic_store(&ended, 0);
}

static void *
reap(void *unused)
{
	struct timespec until;
	struct lazy *lazy;
	uint64_t due_ns;

	(void)unused;
	pthread_mutex_lock(&lock);
	while (!stopping) {
		due_ns = heap_count > 0 ? heap[0]->request->due_ns
					: perf_now_ns() + 100000000;
		if (heap_count > 0 && due_ns <= perf_now_ns()) {
			lazy = heap_pop();
			complete(lazy, true);
			lazy_release(lazy);
			continue;
		}
		until.tv_sec = (time_t)(due_ns / 1000000000u);
		until.tv_nsec = (long)(due_ns % 1000000000u);
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

static uint64_t
watch(struct request *request, uint64_t delay_ns)
{
	struct lazy *lazy = lazy_make(request);
	uint32_t i;

	(void)delay_ns;
	pthread_mutex_lock(&lock);
	for (i = 0; i < request->key_count; i++)
		watchers_add(watchers_of(table, request->key[i], true), lazy);
	if (request_holds(request)) {
		complete(lazy, false);
		lazy_release(lazy);
	} else {
		heap_push(lazy);
	}
	lazy_release(lazy);
	if (atomic_load(&ended) > PURGE_AT)
		purge();
	pthread_mutex_unlock(&lock);
	return 0;
}

static void
check(uint32_t key)
{
	struct watchers *list;
	struct watcher **at;

	pthread_mutex_lock(&lock);
	list = watchers_of(table, key, false);
	at = list != NULL ? &list->first : NULL;
	while (at != NULL && *at != NULL) {
		if (!atomic_load(&(*at)->lazy->completed) &&
		    request_holds((*at)->lazy->request))
			complete((*at)->lazy, false);
		if (atomic_load(&(*at)->lazy->completed))
			watchers_remove(list, at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&lock);
}

static uint64_t
retained(void)
{
	return (uint64_t)atomic_load(&ended);
}

const struct design design = {"one mutex, binary heap, lazy lists", create,
    destroy, watch, check, NULL, retained, NULL, NULL};
