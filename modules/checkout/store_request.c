/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a store: each is a request of its checkout, for objects that are
 * found by their keys, or made. */
#include <errno.h>
#include <string.h>

#include "store.h"

/* A request's word. */
#define STORE_MAGIC UINT64_C(0x73746f7200000000)
enum store_state {
	STORE_READY = 1,
	STORE_FINDING, /* in acquire */
	STORE_BEGUN /* the checkout has it, or has granted it */
};

_Static_assert(sizeof(struct store_request) == sizeof(struct hwt_store_request),
    "a request is the user's memory");
_Static_assert(sizeof(struct store_item) == sizeof(struct hwt_store_item),
    "an item is what the user writes");
_Static_assert(
    STORE_ITEMS_MAX == HWT_STORE_ITEMS_MAX && STORE_ITEMS_MAX <= RANKS,
    "a request of the checkout has them in any order");

static void
request_set(struct store_request *request, enum store_state state)
{
	a64_store_release(&request->word, STORE_MAGIC | state);
}

/* With the lock held: one that was not there; NULL: no memory. */
static struct store_entry *
want_new(struct hwt_store *store, struct store_shard *shard,
    const struct store_item *item, uint64_t hash, struct work *work)
{
	struct store_entry *entry =
	    entry_create(store, shard, item->key, item->size, hash);

	if (entry == NULL)
		return NULL;
	shard->stats.misses++;
	if (store->options.load != NULL) {
		shard->stats.jobs++;
		entry->wants = 2;
		work_add(work, entry);
		return entry;
	}
	entry->weight = 1;
	entry->state = ENTRY_LOADED;
	entry_link(store, shard, entry);
	object_free(&entry->object);
	return entry;
}

/* SipHash, as in sys/secret.h. With the other byte order it is another. */
static uint64_t
key_hash(const struct secret *secret, const void *bytes, size_t size)
{
	const unsigned char *from = bytes;
	uint64_t v[4], block;
	size_t left;

	secret_begin(secret, v);
	for (left = size; left >= 8; left -= 8, from += 8) {
		memcpy(&block, from, 8);
		secret_absorb(v, block);
	}
	block = 0;
	memcpy(&block, from, left);
	return secret_end(v, (uint64_t)size << 56 | block);
}

static void
want_found(struct store_shard *shard, struct store_entry *entry)
{
	entry->wants++;
	if (entry->state != ENTRY_LOADED) {
		shard->stats.joined++;
		return;
	}
	entry->used = true;
	shard->stats.hits++;
}

static int
want(struct store_request *request, uint32_t i, struct work *work)
{
	struct hwt_store *store = request->store;
	const struct store_item *item = &request->items[i];
	uint64_t hash = key_hash(&store->secret, item->key, item->size);
	struct store_shard *shard = store_shard_at(store, hash);
	struct store_entry *entry;
	int error = 0;

	store_lock(shard);
	entry = entry_find(shard, item->key, item->size, hash);
	if (entry == NULL) {
		entry = want_new(store, shard, item, hash, work);
		error = entry == NULL ? -ENOMEM : 0;
	} else if (entry->state == ENTRY_FAILED) {
		shard->stats.backed_off++;
		error = entry->error;
	} else {
		want_found(shard, entry);
	}
	store_unlock(shard);
	request->inner_item[i].wanted = (struct hwt_object *)(uintptr_t)entry;
	request->inner_item[i].use = item->use;
	return error;
}

static int
put_all(struct store_request *request, uint32_t count)
{
	int error = 0;

	while (count > 0)
		entry_put(entry_at(request, --count), &error);
	return error;
}

/* It has ended without a grant: with what. */
static int
store_request_end(struct store_request *request, int result)
{
	int error = put_all(request, request->count);

	request_set(request, STORE_READY);
	return result == -EIDRM && error != 0 ? error : result;
}

static void
note_values(struct store_request *request)
{
	uint32_t i;

	for (i = 0; i < request->count; i++)
		request->items[i].value = entry_at(request, i)->value;
}

static void
store_told(struct hwt_request *inner, void *arg, enum hwt_grant grant)
{
	struct store_request *request = arg;
	hwt_store_granted *granted = request->granted;
	void *granted_arg = request->arg;
	int result = grant_error(grant);

	(void)inner;
	if (result == 0)
		note_values(request);
	else
		result = store_request_end(request, result);
	granted((struct hwt_store_request *)request, granted_arg, result);
}

/* Finds or makes what it wants. */
static int
store_request_begin(struct store_request *request, struct work *work)
{
	struct hwt_store *store = request->store;
	uint32_t i;
	int error = 0;

	if (!a64_cas_seq(&request->word, STORE_MAGIC | STORE_READY,
		STORE_MAGIC | STORE_FINDING))
		return -EBUSY;
	if (a64_load_acquire(&store->checkout->gate.word) & RETIRED)
		error = -ESHUTDOWN;
	for (i = 0; i < request->count && error == 0; i++)
		error = want(request, i, work);
	if (error != 0) {
		if (i > 0)
			(void)put_all(request, i - 1);
		request_set(request, STORE_READY);
		return error;
	}
	(void)hwt_request_init_items(&request->inner, request->inner_item,
	    request->count, store_told, request);
	request_set(request, STORE_BEGUN);
	return 0;
}

/* Decided on the spot. */
static int
store_request_answer(struct store_request *request, int result)
{
	if (result != 0)
		return store_request_end(request, result);
	note_values(request);
	return 0;
}

static int
enter_store_request(
    const struct hwt_store *store, const struct store_request *request)
{
	int error = store_enter(store);

	if (error != 0)
		return error;
	if (request == NULL ||
	    (a64_load_acquire(&request->word) & MAGIC_MASK) != STORE_MAGIC ||
	    request->store != store)
		return -EINVAL;
	return 0;
}

static bool
is_begun(const struct store_request *request)
{
	return a64_load_acquire(&request->word) == (STORE_MAGIC | STORE_BEGUN);
}

int
hwt_store_acquire(struct hwt_store *store, struct hwt_store_request *request,
    uint64_t delay_ns)
{
	struct store_request *acquired = (struct store_request *)request;
	struct work work = {NULL, NULL};
	int result = enter_store_request(store, acquired);

	if (result != 0)
		return result;
	if (acquired->granted == NULL || !delay_is_valid(delay_ns))
		return -EINVAL;
	result = store_request_begin(acquired, &work);
	if (result == 0) {
		result = hwt_checkout_acquire(
		    store->checkout, &acquired->inner, delay_ns);
		if (result != 1)
			result = store_request_answer(acquired, result);
	}
	work_do(store, &work);
	return result;
}

int
hwt_store_acquire_wait(struct hwt_store *store,
    struct hwt_store_request *request, uint64_t delay_ns)
{
	struct store_request *acquired = (struct store_request *)request;
	struct work work = {NULL, NULL};
	uint64_t began_ns, passed_ns;
	int result = enter_store_request(store, acquired);

	if (result != 0)
		return result;
	if (!delay_is_valid(delay_ns))
		return -EINVAL;
	if (queue_in_granted())
		return -EDEADLK;
	result = store_request_begin(acquired, &work);
	if (work.first != NULL) {
		began_ns = checkout_now(store->checkout);
		work_do(store, &work);
		passed_ns = checkout_now(store->checkout) - began_ns;
		if (delay_ns != HWT_NEVER)
			delay_ns -= passed_ns < delay_ns ? passed_ns : delay_ns;
	}
	if (result != 0)
		return result;
	return store_request_answer(acquired,
	    hwt_checkout_acquire_wait(
		store->checkout, &acquired->inner, delay_ns));
}

int
hwt_store_release(struct hwt_store *store, struct hwt_store_request *request)
{
	struct store_request *released = (struct store_request *)request;
	struct work work = {NULL, NULL};
	int error = enter_store_request(store, released);
	uint32_t i;

	if (error != 0)
		return error;
	if (!is_begun(released))
		return -ENOENT;
	error = hwt_checkout_release(store->checkout, &released->inner);
	if (error != 0)
		return error;
	for (i = 0; i < released->count; i++)
		released->items[i].value = NULL;
	(void)store_request_end(released, 0);
	work_do(store, &work);
	return 0;
}

int
hwt_store_cancel(struct hwt_store *store, struct hwt_store_request *request)
{
	struct store_request *cancelled = (struct store_request *)request;
	int error = enter_store_request(store, cancelled);

	if (error != 0)
		return error;
	if (!is_begun(cancelled))
		return -ENOENT;
	return hwt_checkout_cancel(store->checkout, &cancelled->inner);
}

static bool
is_granted(struct store_request *request)
{
	struct request *inner = (struct request *)&request->inner;

	return is_begun(request) &&
	    word_state(a64_load_acquire(&inner->word)) == STATE_GRANTED;
}

int
hwt_store_pin(struct hwt_store *store, struct hwt_store_request *request,
    size_t i, bool pinned)
{
	struct store_request *holder = (struct store_request *)request;
	struct store_shard *shard;
	struct store_entry *entry;
	int error = enter_store_request(store, holder);

	if (error != 0)
		return error;
	if (i >= holder->count)
		return -EINVAL;
	if (!is_granted(holder))
		return -EPERM;
	entry = entry_at(holder, (uint32_t)i);
	shard = entry_shard(entry);
	store_lock(shard);
	entry->pinned = pinned;
	store_unlock(shard);
	return 0;
}

static bool
items_are_valid(const struct store_item *items, size_t count)
{
	size_t i, k;

	for (i = 0; i < count; i++) {
		if (items[i].key == NULL || items[i].size == 0 ||
		    items[i].size > HWT_STORE_KEY_MAX ||
		    (items[i].use != HWT_WRITE && items[i].use != HWT_READ))
			return false;
		for (k = 0; k < i; k++) {
			if (items[k].size == items[i].size &&
			    memcmp(items[k].key, items[i].key, items[i].size) ==
				0)
				return false;
		}
	}
	return count > 0;
}

int
hwt_store_request_init(struct hwt_store *store,
    struct hwt_store_request *request, struct hwt_store_item *items,
    size_t count, hwt_store_granted *granted, void *arg)
{
	struct store_request *made = (struct store_request *)request;
	int error = store_enter(store);
	size_t i;

	if (error != 0)
		return error;
	if (request == NULL || items == NULL)
		return -EINVAL;
	if (count > STORE_ITEMS_MAX)
		return -E2BIG;
	if (!items_are_valid((const struct store_item *)items, count))
		return -EINVAL;
	memset(request, 0, sizeof(*request));
	made->store = store;
	made->items = (struct store_item *)items;
	made->granted = granted;
	made->arg = arg;
	made->count = (uint32_t)count;
	for (i = 0; i < count; i++)
		made->items[i].value = NULL;
	request_set(made, STORE_READY);
	return 0;
}
