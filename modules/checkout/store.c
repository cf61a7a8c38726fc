/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects by key. An object that is not there is put into the table as one that
 * is in use, by its loader; what wants it waits for it as for any other, and
 * the end of the load gives it back. So a request of a store is a request over
 * the objects that the table had, or made, for its keys.
 *
 * An entry's phase, users and job are under the lock of its shard:
 *
 *     made -> LOADING -> THERE -> UNLOADING -> freed, if nobody wants it
 *                |         ^        |   |
 *                v         +--------+   +-> LOADING, if somebody does
 *             FAILED       unload refused
 *
 *   users  are requests that name it, from before they look at the object until
 *          they have ended, and whoever ends a load in vain. An entry is chosen
 *          for an unload, or freed, when it has none. So its memory stays as
 *          long as a wait may use it, and no retirement has to look for waits
 *          before it is freed.
 *   job    while the loader, or whoever unloads it, has the object. Who puts
 *          the entry into the table loads it: once. Whoever clears job has the
 *          answer of the load or unload, and goes on.
 *
 * A load in vain takes the entry out of the table, so that the next request
 * loads again, and then retires the object: waits that have begun end with
 * HWT_GRANT_RETIRED, those that begin see it. Each finds the error in the
 * entry. Waits leave an object that is LOADING as any other; whoever loads it
 * does not notice. An unload counts as out, so that a pause waits for it, and
 * none begins in a pause.
 *
 * The lock is never held while an object is given back, or user code is called.
 */
#include <errno.h>

#include "checkout.h"
#include "sys/secret.h"

#define SHARDS_DEFAULT 256u
#define SHARDS_MAX (1u << 16)
#define BUCKETS_FIRST 8u
/* Of a search for something to unload, in each shard. */
#define BUCKETS_SEEN 64u
/* Entries are parts of chunks, so that those of a large store are freed at
 * once; a shard's first chunk is small. */
#define CHUNK_FIRST 1024u
#define CHUNK_MAX 65536u
#define GRAIN 16u
#define GRAINS_MAX ((sizeof(struct entry) + HWT_STORE_KEY_MAX) / GRAIN + 2)

enum phase {
	PHASE_LOADING,
	PHASE_THERE,
	PHASE_UNLOADING,
	PHASE_FAILED
};

struct entry {
	struct object object;
	struct entry *chain;
	void *value; /* the holder's of the object */
	uint64_t hash;
	uint64_t idle_ns; /* since when, in a store that unloads by time */
	uint32_t users;
	int error; /* of a load in vain; written before the object is retired */
	uint8_t phase, size;
	bool job;
	bool touched; /* since the hand was there */
	unsigned char key[];
};

struct chunk {
	struct chunk *next;
	uint64_t unused; /* an entry is at a multiple of GRAIN */
};

struct store_shard {
	_Alignas(CACHE_LINE) pthread_mutex_t lock;
	struct entry **bucket;
	uint32_t bucket_count, entries;
	struct chunk *chunks; /* the first one has room for so many bytes */
	uint32_t chunk_bytes, room;
	struct entry *free[GRAINS_MAX]; /* by size */
	uint32_t hand; /* the bucket where the next search begins */
	uint64_t users; /* of all entries */
	struct hwt_store_stats stats;
};

struct hwt_store {
	struct hwt_checkout *checkout;
	struct store_shard *shards;
	uint32_t shard_count;
	uint32_t swept; /* the task's: the shard that is next */
	hwt_store_load *load;
	hwt_store_unload *unload;
	void *ctx;
	uint64_t limit, idle_ns;
	hwt_timeout timeout; /* {0}: no sweeps */
	struct secret secret;
	_Alignas(CACHE_LINE) a64_t loaded; /* THERE */
	a64_t hand; /* the shard where the next search begins */
};

struct store_request {
	struct request inner;
	struct hwt_store *store;
	struct hwt_store_item *items;
	hwt_store_granted *granted;
	void *arg;
	size_t count;
	struct request_item wanted[HWT_STORE_ITEMS_MAX];
} ALIASES;

_Static_assert(sizeof(struct store_request) <= sizeof(struct hwt_store_request),
    "a request of a store fits into the user's memory");

/* Where it counts. */
static uint64_t
store_now(const struct hwt_store *store)
{
	return store->idle_ns != 0 ? checkout_now(store->checkout) : 0;
}

/* The table. */

static void
store_lock(struct store_shard *shard)
{
	(void)pthread_mutex_lock(&shard->lock);
}

static void
store_unlock(struct store_shard *shard)
{
	(void)pthread_mutex_unlock(&shard->lock);
}

static struct store_shard *
store_shard(const struct hwt_store *store, uint64_t hash)
{
	return &store->shards[hash >> 32 & (store->shard_count - 1)];
}

static uint64_t
key_hash(const struct hwt_store *store, const void *key, size_t size)
{
	const unsigned char *bytes = key;
	uint64_t v[4], block, last = 0;
	size_t left = size;

	secret_begin(&store->secret, v);
	for (; left >= 8; left -= 8, bytes += 8) {
		memcpy(&block, bytes, 8);
		secret_absorb(v, block);
	}
	memcpy(&last, bytes, left);
	return secret_end(v, last | (uint64_t)size << 56);
}

static struct entry **
bucket_of(struct store_shard *shard, uint64_t hash)
{
	return &shard->bucket[(uint32_t)hash & (shard->bucket_count - 1)];
}

/* Where the entry is linked, or would be. */
static struct entry **
find(struct store_shard *shard, const void *key, size_t size, uint64_t hash)
{
	struct entry **at = bucket_of(shard, hash);

	while (*at != NULL &&
	    ((*at)->hash != hash || (*at)->size != size ||
		memcmp((*at)->key, key, size) != 0))
		at = &(*at)->chain;
	return at;
}

/* Without memory, the chains grow. */
static void
grow(struct store_shard *shard)
{
	uint32_t i, old = shard->bucket_count;
	struct entry **was = shard->bucket, *entry, **at;
	struct entry **made = calloc(2 * (size_t)old, sizeof(struct entry *));

	if (made == NULL)
		return;
	shard->bucket = made;
	shard->bucket_count = 2 * old;
	for (i = 0; i < old; i++) {
		while ((entry = was[i]) != NULL) {
			was[i] = entry->chain;
			at = bucket_of(shard, entry->hash);
			entry->chain = *at;
			*at = entry;
		}
	}
	free(was);
}

static uint32_t
entry_grains(size_t key_size)
{
	return (
	    uint32_t)((sizeof(struct entry) + key_size + GRAIN - 1) / GRAIN);
}

static struct entry *
alloc_entry(struct store_shard *shard, size_t key_size)
{
	uint32_t grains = entry_grains(key_size), bytes = grains * GRAIN;
	struct entry *entry = shard->free[grains];
	struct chunk *chunk;

	if (entry != NULL) {
		shard->free[grains] = entry->chain;
		return entry;
	}
	if (shard->room < bytes) {
		if (shard->chunk_bytes < CHUNK_MAX)
			shard->chunk_bytes *= 2;
		chunk = malloc(shard->chunk_bytes);
		if (chunk == NULL)
			return NULL;
		chunk->next = shard->chunks;
		shard->chunks = chunk;
		shard->room = shard->chunk_bytes - sizeof(*chunk);
	}
	shard->room -= bytes;
	return (
	    struct entry *)(void *)((char *)(shard->chunks + 1) + shard->room);
}

/* With the lock. */
static void
free_entry(struct store_shard *shard, struct entry *entry)
{
	struct entry **free_list = &shard->free[entry_grains(entry->size)];

	entry->chain = *free_list;
	*free_list = entry;
}

static struct entry *
make_entry(struct hwt_store *store, struct store_shard *shard,
    const struct hwt_store_item *item, uint64_t hash)
{
	struct entry *made = alloc_entry(shard, item->size), **at;

	if (made == NULL)
		return NULL;
	memset(made, 0, sizeof(*made));
	made->object.checkout = store->checkout;
	a64_store_relaxed(&made->object.word, IN_USE);
	made->hash = hash;
	made->size = (uint8_t)item->size;
	made->job = true;
	memcpy(made->key, item->key, item->size);
	if (shard->entries >= shard->bucket_count &&
	    shard->bucket_count < UINT32_MAX / 2)
		grow(shard);
	at = bucket_of(shard, hash);
	made->chain = *at;
	*at = made;
	shard->entries++;
	shard->stats.jobs++;
	return made;
}

static void
remove_entry(struct store_shard *shard, struct entry *entry)
{
	struct entry **at = bucket_of(shard, entry->hash);

	while (*at != entry)
		at = &(*at)->chain;
	*at = entry->chain;
	shard->entries--;
}

/* The entry of a key, with one more user; NULL: no memory. */
static struct entry *
want(struct hwt_store *store, const struct hwt_store_item *item, bool *made)
{
	uint64_t hash = key_hash(store, item->key, item->size);
	struct store_shard *shard = store_shard(store, hash);
	struct entry *entry;

	store_lock(shard);
	entry = *find(shard, item->key, item->size, hash);
	*made = entry == NULL;
	if (*made)
		entry = make_entry(store, shard, item, hash);
	if (entry != NULL) {
		entry->users++;
		shard->users++;
		entry->touched = true;
		shard->stats.misses += *made;
		shard->stats.hits += entry->phase == PHASE_THERE;
		shard->stats.joined += !*made && entry->phase != PHASE_THERE;
	}
	store_unlock(shard);
	return entry;
}

static void
unwant(struct hwt_store *store, struct entry *entry)
{
	struct store_shard *shard = store_shard(store, entry->hash);
	uint64_t now_ns = store_now(store);

	store_lock(shard);
	entry->idle_ns = now_ns;
	shard->users--;
	if (--entry->users == 0 && entry->phase == PHASE_FAILED)
		free_entry(shard, entry);
	store_unlock(shard);
}

/* Loads. */

static struct entry *
object_entry(struct object *object)
{
	return (struct entry *)(void *)object;
}

/* With the lock, which it unlocks. The caller's is one of its users. */
static void
load_failed(struct hwt_store *store, struct store_shard *shard,
    struct entry *entry, int error)
{
	shard->stats.failures++;
	entry->error = error;
	entry->phase = PHASE_FAILED;
	remove_entry(shard, entry);
	entry->users++;
	shard->users++;
	store_unlock(shard);
	object_retire(store->checkout, &entry->object);
	unwant(store, entry);
}

static int
end_load(struct hwt_store *store, struct entry *entry, int result,
    const struct hwt_loaded *loaded)
{
	struct store_shard *shard = store_shard(store, entry->hash);
	uint64_t now_ns = store_now(store);

	store_lock(shard);
	if (!entry->job || entry->phase != PHASE_LOADING) {
		store_unlock(shard);
		return -ENOENT;
	}
	entry->job = false;
	shard->stats.jobs--;
	shard->stats.loads++;
	if (result != 0) {
		load_failed(store, shard, entry, result);
		return 0;
	}
	entry->value = loaded != NULL ? loaded->value : NULL;
	entry->phase = PHASE_THERE;
	entry->idle_ns = now_ns;
	(void)a64_add_seq(&store->loaded, 1);
	store_unlock(shard);
	object_give_alone(&entry->object);
	return 0;
}

/* Its job has begun. */
static void
run_load(struct hwt_store *store, struct entry *entry)
{
	struct hwt_loaded loaded = {NULL};
	int result = 0;

	if (store->load != NULL)
		result = store->load(store->ctx, (struct hwt_store_job *)entry,
		    entry->key, entry->size, &loaded);
	if (result == HWT_STORE_LATER)
		return;
	if (result > 0)
		result = -EINVAL;
	(void)end_load(store, entry, result, &loaded);
}

/* Unloads. */

/* Who wants it meanwhile has it loaded again, by this thread. */
static int
end_unload(struct hwt_store *store, struct entry *entry, int result)
{
	struct store_shard *shard = store_shard(store, entry->hash);
	uint64_t now_ns = store_now(store);
	bool again;

	store_lock(shard);
	if (!entry->job || entry->phase != PHASE_UNLOADING) {
		store_unlock(shard);
		return -ENOENT;
	}
	shard->stats.unloads += result == 0;
	shard->stats.refusals += result != 0;
	again = result == 0 && entry->users > 0;
	entry->job = again;
	shard->stats.jobs -= !again;
	entry->phase = again ? PHASE_LOADING : PHASE_THERE;
	entry->idle_ns = now_ns;
	entry->touched = true;
	shard->stats.misses += again;
	if (result == 0 && !again) {
		remove_entry(shard, entry);
		free_entry(shard, entry);
	}
	if (result != 0)
		(void)a64_add_seq(&store->loaded, 1);
	store_unlock(shard);
	if (result != 0)
		object_give_alone(&entry->object);
	out_end(store->checkout, shard, 0);
	if (again)
		run_load(store, entry);
	return 0;
}

enum choice {
	CHOOSE_ANY,
	CHOOSE_IDLE,
	CHOOSE_UNTOUCHED
};

/* It is taken then. */
static bool
is_chosen(struct entry *entry, enum choice choice, uint64_t since_ns)
{
	if (entry->users > 0 || entry->phase != PHASE_THERE ||
	    (choice == CHOOSE_IDLE && entry->idle_ns > since_ns))
		return false;
	if (choice == CHOOSE_UNTOUCHED && entry->touched) {
		entry->touched = false;
		return false;
	}
	/* Its load may not have given it back yet. */
	return object_take_alone(&entry->object);
}

/* An entry to unload, from that bucket on, with its job begun; NULL: none. */
static struct entry *
choose(struct store_shard *shard, enum choice choice, uint64_t since_ns,
    uint32_t *at)
{
	bool wraps = choice == CHOOSE_UNTOUCHED;
	uint32_t left = wraps ? BUCKETS_SEEN : shard->bucket_count;
	struct entry *entry = NULL;

	for (; entry == NULL && left > 0; left--) {
		if (*at >= shard->bucket_count && !wraps)
			return NULL;
		*at &= shard->bucket_count - 1;
		entry = shard->bucket[*at];
		while (entry != NULL && !is_chosen(entry, choice, since_ns))
			entry = entry->chain;
		*at += entry == NULL;
	}
	if (entry != NULL) {
		entry->phase = PHASE_UNLOADING;
		entry->job = true;
		shard->stats.jobs++;
	}
	return entry;
}

/* Unloads one of these; false: there is none, or a pause is on. result, not
 * NULL: what unload has answered. */
static bool
unload_one(struct hwt_store *store, struct store_shard *shard,
    enum choice choice, uint32_t *at, int *result)
{
	uint64_t now_ns = store_now(store);
	uint64_t since_ns = now_ns - store->idle_ns;
	struct entry *entry = NULL;

	*result = 0;
	if (choice == CHOOSE_IDLE && now_ns < store->idle_ns)
		return false;
	if (out_begin(store->checkout, shard)) {
		store_lock(shard);
		entry = choose(shard, choice, since_ns, at);
		if (entry != NULL)
			(void)a64_add_seq(&store->loaded, UINT64_MAX);
		store_unlock(shard);
		if (entry == NULL)
			out_end(store->checkout, shard, 0);
	}
	if (entry == NULL)
		return false;
	if (store->unload != NULL)
		*result =
		    store->unload(store->ctx, (struct hwt_store_job *)entry,
			entry->key, entry->size, entry->value);
	if (*result != HWT_STORE_LATER)
		(void)end_unload(store, entry, *result);
	return true;
}

/* While there are too many: a search of each shard, and another one for what
 * the first has found touched. */
static void
keep_limit(struct hwt_store *store)
{
	uint64_t searches = 2 * (uint64_t)store->shard_count, i;
	struct store_shard *shard;
	int result;

	while (store->limit > 0 && searches-- > 0 &&
	    a64_load_relaxed(&store->loaded) > store->limit) {
		i = a64_add_seq(&store->hand, 1) & (store->shard_count - 1);
		shard = &store->shards[i];
		(void)unload_one(
		    store, shard, CHOOSE_UNTOUCHED, &shard->hand, &result);
	}
}

/* A task of the timer: one shard after another, each once in idle_ns. */
static void
sweep(hwt_timeout timeout, void *arg)
{
	struct hwt_store *store = arg;
	struct store_shard *shard = &store->shards[store->swept];
	uint32_t at = 0;
	int result;

	(void)timeout;
	store->swept = (store->swept + 1) & (store->shard_count - 1);
	while (unload_one(store, shard, CHOOSE_IDLE, &at, &result))
		;
}

/* Making and destroying. */

static bool
options_are_valid(const struct hwt_store_options *options)
{
	return options->shards <= SHARDS_MAX &&
	    (options->shards & (options->shards - 1)) == 0 &&
	    options->idle_ns < DELAY_LIMIT && options->reserved_32 == 0 &&
	    RESERVED_IS_ZERO(options);
}

static void
free_entries(struct store_shard *shard)
{
	struct chunk *chunk;

	while ((chunk = shard->chunks) != NULL) {
		shard->chunks = chunk->next;
		free(chunk);
	}
	free(shard->bucket);
}

static void
free_store(struct hwt_store *store)
{
	uint32_t i;

	for (i = 0; i < store->shard_count; i++)
		free_entries(&store->shards[i]);
	free(store->shards);
	free(store);
}

static struct hwt_store *
new_store(uint32_t shards)
{
	struct hwt_store *made = alloc_lines(sizeof(*made));
	struct store_shard *shard;
	uint32_t i;

	if (made == NULL)
		return NULL;
	made->shards = alloc_lines(shards * sizeof(*made->shards));
	for (i = 0; made->shards != NULL && i < shards; i++) {
		shard = &made->shards[i];
		shard->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		shard->bucket = calloc(BUCKETS_FIRST, sizeof(struct entry *));
		if (shard->bucket == NULL)
			break;
		shard->bucket_count = BUCKETS_FIRST;
		shard->chunk_bytes = CHUNK_FIRST / 2;
	}
	made->shard_count = i;
	if (i == shards)
		return made;
	free_store(made);
	return NULL;
}

int
hwt_store_create(struct hwt_store **store, struct hwt_checkout *checkout,
    const struct hwt_store_options *options)
{
	static const struct hwt_store_options defaults;
	int error = checkout_enter(checkout);
	struct hwt_store *made;
	uint64_t period_ns;

	if (options == NULL)
		options = &defaults;
	if (error != 0)
		return error;
	if (store == NULL || !options_are_valid(options))
		return -EINVAL;
	made =
	    new_store(options->shards != 0 ? options->shards : SHARDS_DEFAULT);
	if (made == NULL)
		return -ENOMEM;
	made->checkout = checkout;
	made->load = options->load;
	made->unload = options->unload;
	made->ctx = options->ctx;
	made->limit = options->limit;
	made->idle_ns = options->idle_ns;
	period_ns = options->idle_ns / made->shard_count + 1;
	secret_make(&made->secret);
	if (options->idle_ns != 0)
		error = hwt_new_periodic(checkout->timer, NULL, &made->timeout,
		    sweep, made, period_ns, period_ns);
	if (error != 0)
		free_store(made);
	else
		*store = made;
	return error;
}

/* Whether nobody wants anything, and no job is under way. */
static bool
shard_is_unused(struct store_shard *shard)
{
	bool unused;

	store_lock(shard);
	unused = shard->users == 0 && shard->stats.jobs == 0;
	store_unlock(shard);
	return unused;
}

/* False: it refused, or answers later. */
static bool
unload_all(struct hwt_store *store, struct store_shard *shard)
{
	uint32_t at = 0;
	int result = 0;
	bool all;

	while (
	    result == 0 && unload_one(store, shard, CHOOSE_ANY, &at, &result))
		;
	store_lock(shard);
	all = shard->entries == 0;
	store_unlock(shard);
	return all;
}

int
hwt_store_destroy(struct hwt_store *store)
{
	bool unused = true;
	uint32_t i;

	if (store == NULL)
		return 0;
	if (checkout_enter(store->checkout) == -EOWNERDEAD) {
		free_store(store);
		return 0;
	}
	if (checkout_queue.in_granted)
		return -EDEADLK;
	if (!out_begin(store->checkout, store))
		return -EBUSY;
	out_end(store->checkout, store, 0);
	for (i = 0; i < store->shard_count; i++)
		unused = unused && shard_is_unused(&store->shards[i]);
	for (i = 0; i < store->shard_count && unused && store->unload; i++)
		unused = unload_all(store, &store->shards[i]);
	if (!unused)
		return -EBUSY;
	if (store->timeout.id != 0)
		(void)!hwt_cancel_wait(store->checkout->timer, store->timeout);
	free_store(store);
	return 0;
}

/* Requests. */

static int
store_enter(const struct hwt_store *store)
{
	return store == NULL ? -EINVAL : checkout_enter(store->checkout);
}

static bool
items_are_valid(const struct hwt_store_item *items, size_t count)
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
	return true;
}

int
hwt_store_request_init(struct hwt_store *store, struct hwt_store_request *user,
    struct hwt_store_item *items, size_t count, hwt_store_granted *granted,
    void *arg)
{
	struct store_request *request = (struct store_request *)user;
	int error = store_enter(store);
	size_t i;

	if (error != 0)
		return error;
	if (request == NULL || items == NULL || count == 0)
		return -EINVAL;
	if (count > HWT_STORE_ITEMS_MAX)
		return -E2BIG;
	if (!items_are_valid(items, count))
		return -EINVAL;
	memset(request, 0, sizeof(*request));
	request->store = store;
	request->items = items;
	request->granted = granted;
	request->arg = arg;
	request->count = count;
	for (i = 0; i < count; i++)
		items[i].value = NULL;
	request->inner.checkout = store->checkout;
	request_store(&request->inner, STATE_READY);
	return 0;
}

/* It has ended, or was released: nothing uses the entries of its first items
 * any more. */
static void
unwant_all(struct store_request *request, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		request->items[i].value = NULL;
		unwant(request->store, object_entry(request->wanted[i].wanted));
	}
	keep_limit(request->store);
}

/* What the load answered, when one of its objects is retired. */
static int
load_error(const struct store_request *request, int error)
{
	struct entry *entry;
	size_t i;

	for (i = 0; i < request->count && error == -EIDRM; i++) {
		entry = object_entry(request->wanted[i].wanted);
		if (a64_load_acquire(&entry->object.word) & RETIRED)
			error = entry->error;
	}
	return error;
}

static int
store_ended(struct store_request *request, int error)
{
	size_t i;

	if (error != 0) {
		error = load_error(request, error);
		unwant_all(request, request->count);
		return error;
	}
	for (i = 0; i < request->count; i++)
		request->items[i].value =
		    object_entry(request->wanted[i].wanted)->value;
	return 0;
}

static void
store_granted(struct hwt_request *inner, void *arg, enum hwt_grant grant)
{
	struct store_request *request = arg;
	int error = store_ended(request, grant_error(grant));

	(void)inner;
	request->granted(
	    (struct hwt_store_request *)request, request->arg, error);
}

/* Finds or makes what it wants, and loads what it has made. */
static int
want_all(struct store_request *request)
{
	struct hwt_store *store = request->store;
	bool made[HWT_STORE_ITEMS_MAX];
	struct entry *entry = NULL;
	size_t i, count;

	for (count = 0; count < request->count; count++) {
		entry = want(store, &request->items[count], &made[count]);
		if (entry == NULL)
			break;
		request->wanted[count].wanted = &entry->object;
		request->wanted[count].use = request->items[count].use;
	}
	for (i = 0; i < count; i++) {
		if (made[i] && entry != NULL)
			run_load(
			    store, object_entry(request->wanted[i].wanted));
		else if (made[i])
			(void)end_load(store,
			    object_entry(request->wanted[i].wanted), -ENOMEM,
			    NULL);
	}
	if (entry == NULL)
		unwant_all(request, count);
	return entry != NULL ? 0 : -ENOMEM;
}

/* waits: in this thread. */
static int
store_acquire(struct hwt_store *store, struct store_request *request,
    uint64_t delay_ns, bool waits)
{
	struct hwt_request *inner = (struct hwt_request *)request;
	int result = store_enter(store);

	if (result != 0)
		return result;
	if (request == NULL || request->store != store ||
	    (!waits && request->granted == NULL) || !delay_is_valid(delay_ns))
		return -EINVAL;
	if (waits && checkout_queue.in_granted)
		return -EDEADLK;
	if (word_state(a64_load_acquire(&request->inner.word)) != STATE_READY)
		return -EBUSY;
	if (is_shut_down(store->checkout))
		return -ESHUTDOWN;
	result = want_all(request);
	if (result == 0 && load_error(request, -EIDRM) != -EIDRM) {
		/* Also in a pause, where nothing is tried. */
		result = store_ended(request, -EIDRM);
	} else if (result == 0) {
		(void)hwt_request_init_items(inner,
		    (struct hwt_item *)request->wanted, request->count,
		    store_granted, request);
		result = waits
		    ? hwt_checkout_acquire_wait(
			  store->checkout, inner, delay_ns)
		    : hwt_checkout_acquire(store->checkout, inner, delay_ns);
		if (result != 1)
			result = store_ended(request, result);
	}
	return result;
}

int
hwt_store_acquire(struct hwt_store *store, struct hwt_store_request *request,
    uint64_t delay_ns)
{
	return store_acquire(
	    store, (struct store_request *)request, delay_ns, false);
}

int
hwt_store_acquire_wait(struct hwt_store *store,
    struct hwt_store_request *request, uint64_t delay_ns)
{
	return store_acquire(
	    store, (struct store_request *)request, delay_ns, true);
}

/* Its values are the next holder's when its objects are given back. */
int
hwt_store_release(struct hwt_store *store, struct hwt_store_request *user)
{
	struct store_request *request = (struct store_request *)user;
	int error = store_enter(store);

	if (error != 0)
		return error;
	if (request == NULL || request->store != store)
		return -EINVAL;
	error =
	    hwt_checkout_release(store->checkout, (struct hwt_request *)user);
	if (error == 0)
		unwant_all(request, request->count);
	return error;
}

int
hwt_store_cancel(struct hwt_store *store, struct hwt_store_request *user)
{
	struct store_request *request = (struct store_request *)user;
	int error = store_enter(store);

	if (error != 0)
		return error;
	if (request == NULL || request->store != store)
		return -EINVAL;
	return hwt_checkout_cancel(store->checkout, (struct hwt_request *)user);
}

int
hwt_store_complete(struct hwt_store *store, struct hwt_store_job *job,
    int result, const struct hwt_loaded *loaded)
{
	struct entry *entry = (struct entry *)job;
	int error = store_enter(store);

	if (error != 0)
		return error;
	if (entry == NULL || result > 0)
		return -EINVAL;
	error = end_load(store, entry, result, loaded);
	if (error == -ENOENT)
		error = end_unload(store, entry, result);
	if (error == 0)
		keep_limit(store);
	return error;
}

int
hwt_store_read_stats(
    const struct hwt_store *store, struct hwt_store_stats *stats)
{
	int error = store_enter(store);
	const uint64_t *of;
	uint32_t i, k;

	if (error != 0 || stats == NULL)
		return error != 0 ? error : -EINVAL;
	memset(stats, 0, sizeof(*stats));
	for (i = 0; i < store->shard_count; i++) {
		of = (const uint64_t *)&store->shards[i].stats;
		store_lock(&store->shards[i]);
		for (k = 0; k < sizeof(*stats) / sizeof(*of); k++)
			((uint64_t *)stats)[k] += of[k];
		store_unlock(&store->shards[i]);
	}
	stats->loaded = a64_load_relaxed(&store->loaded);
	return 0;
}
