/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of requests in flight as one writes it by hand with a timer at hand:
 * a hash table behind a mutex for each of 64 parts, and a timeout of hwt for
 * each request. It cannot wait for anything.
 *
 * Who would call it unfair: who needs the same request to end once and no more
 * when answer and timeout meet, and its memory to be safe then. It does that:
 * whoever takes the entry out of the table ends it, and the timeout's task has
 * the key, not the entry. Who has one thread needs no parts: mutex_heap.c is
 * that, and its heap instead of a timer.
 */
#include <pthread.h>

#include "modules/purgatory/perf/design.h"

enum {
	PARTS = 64
};

struct flight {
	struct entry entry;
	struct request *request;
	hwt_timeout timeout;
};

static struct part {
	_Alignas(64) pthread_mutex_t lock;
	struct table keys;
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

/* Takes the request out of the table; NULL: it has ended. */
static struct request *
take(uint32_t name, hwt_timeout *timeout)
{
	uint32_t hash = request_hash(name);
	struct part *where = &part[hash % PARTS];
	struct request *request = NULL;
	struct flight *flight = NULL;
	struct entry **at;

	pthread_mutex_lock(&where->lock);
	at = table_find(&where->keys, name, hash / PARTS);
	if (at != NULL) {
		flight = (struct flight *)*at;
		request = flight->request;
		*timeout = flight->timeout;
		table_remove(&where->keys, at);
	}
	pthread_mutex_unlock(&where->lock);
	free(flight);
	return request;
}

static void
expire(hwt_timeout timeout, void *arg)
{
	struct request *request = take((uint32_t)(uintptr_t)arg, &timeout);

	if (request == NULL)
		return;
	request_ended(request);
	free(request);
}

static void
watch(struct request *request, uint64_t delay_ns)
{
	uint32_t name = request->key[0], hash = request_hash(name);
	struct part *where = &part[hash % PARTS];
	struct flight *flight = malloc(sizeof(*flight));

	perf_must(flight != NULL, "malloc");
	pthread_mutex_lock(&where->lock);
	table_add(&where->keys, &flight->entry, name, hash / PARTS);
	flight->request = request;
	perf_must(hwt_new_timeout(timer, &flight->timeout, expire,
		      (void *)(uintptr_t)name, delay_ns) == 0,
	    "hwt_new_timeout");
	pthread_mutex_unlock(&where->lock);
}

static void
finish(uint32_t key)
{
	hwt_timeout timeout;
	struct request *request = take(key, &timeout);

	if (request == NULL)
		return;
	(void)!hwt_cancel(timer, timeout);
	request_ended(request);
	free(request);
}

const struct design design = {"hash table and timeouts of hwt", create, destroy,
    watch, NULL, finish, NULL, NULL};
