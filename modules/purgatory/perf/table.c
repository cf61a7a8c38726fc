/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of requests in flight as one writes it by hand: a hash table behind a
 * mutex for each of 64 parts, and a timeout of hwt for each request. It cannot
 * wait for anything.
 */
#include <pthread.h>
#include <stdlib.h>

#include "modules/purgatory/perf/design.h"
#include "perf/perf.h"

enum {
	PARTS = 64,
	BUCKETS = 4096
};

struct entry {
	struct entry *next;
	struct request *request;
	uint32_t key;
	hwt_timeout timeout;
};

static struct part {
	_Alignas(64) pthread_mutex_t lock;
	struct entry *bucket[BUCKETS];
} part[PARTS];

static struct hwt *timer;

static void
create(void)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};
	unsigned i;

	perf_must(hwt_create(&timer, &options) == 0, "hwt_create");
	for (i = 0; i < PARTS; i++)
		pthread_mutex_init(&part[i].lock, NULL);
}

static void
destroy(void)
{
	perf_must(hwt_stop(timer, NULL) == 0, "hwt_stop");
	perf_must(hwt_destroy(timer) == 0, "hwt_destroy");
}

/* Takes the entry out; NULL: it has ended. */
static struct entry *
take(uint32_t key, const struct entry *wanted)
{
	uint32_t hash = request_hash(key);
	struct part *where = &part[hash % PARTS];
	struct entry **at = &where->bucket[hash / PARTS % BUCKETS];
	struct entry *entry;

	pthread_mutex_lock(&where->lock);
	while ((entry = *at) != NULL && entry->key != key)
		at = &entry->next;
	if (entry != NULL && (wanted == NULL || wanted == entry))
		*at = entry->next;
	else
		entry = NULL;
	pthread_mutex_unlock(&where->lock);
	return entry;
}

static void
entry_end(struct entry *entry, bool expired)
{
	request_ended(entry->request, expired);
	free(entry->request);
	free(entry);
}

static void
expire(hwt_timeout timeout, void *arg)
{
	uint32_t key = (uint32_t)(uintptr_t)arg;
	struct entry *entry = take(key, NULL);

	(void)timeout;
	if (entry != NULL)
		entry_end(entry, true);
}

static uint64_t
watch(struct request *request, uint64_t delay_ns)
{
	uint32_t hash = request_hash(request->key[0]);
	struct part *where = &part[hash % PARTS];
	struct entry **at = &where->bucket[hash / PARTS % BUCKETS];
	struct entry *entry = malloc(sizeof(*entry));

	perf_must(entry != NULL, "malloc");
	entry->request = request;
	entry->key = request->key[0];
	pthread_mutex_lock(&where->lock);
	perf_must(hwt_new_timeout(timer, &entry->timeout, expire,
		      (void *)(uintptr_t)entry->key, delay_ns) == 0,
	    "hwt_new_timeout");
	entry->next = *at;
	*at = entry;
	pthread_mutex_unlock(&where->lock);
	return 0;
}

static void
finish(uint32_t key)
{
	struct entry *entry = take(key, NULL);

	if (entry == NULL)
		return;
	(void)hwt_cancel(timer, entry->timeout);
	entry_end(entry, false);
}

static uint64_t
retained(void)
{
	return 0;
}

const struct design design = {"hash table and timeouts of hwt", create, destroy,
    watch, NULL, finish, retained, NULL, NULL};
