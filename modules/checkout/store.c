/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects by key. An object that is not there is put into the table as one that
 * is in use, by its loader, and the end of the load gives it back. So a request
 * of a store is a request over the objects that the table had, or made.
 *
 *     made -> LOADING -> THERE -> UNLOADING -> freed, if nobody wants it
 *                |         ^        |   |
 *                v         +--------+   +-> LOADING, if somebody does
 *             FAILED       unload refused
 *
 * Under the lock of its shard, an entry has
 *   users  requests that name it, from before they look at the object until
 *          they have ended, and whoever ends a failed load. It is unloaded, or
 *          its memory used again, when it has none.
 *   round  of its jobs. Who makes the entry loads it, once; whoever counts
 *          round up has the answer of the load or unload. A job names entry and
 *          round, and memory of entries is used for nothing else: so a job that
 *          has ended is known as such.
 *
 * A failed load takes the entry out of the table, so that the next request
 * loads again, and then retires the object: waits for it end, and find the
 * error in the entry. No lock is held while an object is given back.
 */
#include <errno.h>

#include "checkout.h"
#include "sys/pause.h"
#include "sys/secret.h"

#define SHARDS_DEFAULT 256u
#define SHARDS_MAX (1u << 16)
#define BUCKETS_FIRST 8u
/* Of a search for something to unload, in each shard. */
#define BUCKETS_SEEN 64u
#define BUCKETS_ALL UINT32_MAX
/* Entries are parts of chunks, at multiples of GRAIN: those of a large store
 * are freed at once. */
#define CHUNK 4096u
#define GRAIN 16u
#define GRAINS_MAX ((sizeof(struct entry) + HWT_STORE_KEY_MAX) / GRAIN + 2)
#define ROUNDS 1024u
#define ENTRY(object) ((struct entry *)(void *)(object))

enum phase {
	PHASE_LOADING,
	PHASE_THERE,
	PHASE_UNLOADING,
	PHASE_FAILED
};

struct entry {
	struct object object;
	struct store_shard *shard; /* always that of its memory: read anytime */
	struct entry *chain;
	void *value; /* the holder's of the object */
	uint64_t hash;
	uint64_t idle_ns; /* since when, in a store that unloads by time */
	uint32_t users;
	int error; /* of a failed load; written before the object is retired */
	uint16_t round;
	uint8_t phase, size;
	bool touched; /* since the hand was there */
	unsigned char key[];
};

struct chunk {
	_Alignas(GRAIN) struct chunk *next;
};

struct store_shard {
	_Alignas(CACHE_LINE) pthread_mutex_t lock;
	struct entry **bucket;
	uint32_t bucket_count, entries;
	struct chunk *chunks; /* the first one has room for so many bytes */
	uint32_t room;
	uint32_t hand; /* the bucket where the next search begins */
	struct entry *free[GRAINS_MAX]; /* by size */
	uint64_t users; /* of all entries */
	struct hwt_store_stats stats;
};

struct hwt_store {
	struct hwt_checkout *checkout;
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
	a64_t unloading; /* bool: a sweep or hwt_store_destroy is under way */
	struct store_shard shards[];
};

struct store_request {
	struct request inner;
	struct hwt_store *store;
	struct hwt_store_item *items;
	hwt_store_granted *granted;
	void *arg;
	struct request_item wanted[HWT_STORE_ITEMS_MAX];
} ALIASES;

_Static_assert(sizeof(struct store_request) <= sizeof(struct hwt_store_request),
    "a request of a store fits into the user's memory");

static uint64_t
store_now(const struct hwt_store *store)
{
	return store->idle_ns != 0 ? checkout_now(store->checkout) : 0;
}

/* The table. */

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

static void
link_entry(struct store_shard *shard, struct entry *entry)
{
	struct entry **at = bucket_of(shard, entry->hash);

	entry->chain = *at;
	*at = entry;
}

static struct entry *
find(
    struct store_shard *shard, const struct hwt_store_item *item, uint64_t hash)
{
	struct entry *entry =
	    shard->bucket_count > 0 ? *bucket_of(shard, hash) : NULL;

	while (entry != NULL &&
	    (entry->hash != hash || entry->size != item->size ||
		memcmp(entry->key, item->key, item->size) != 0))
		entry = entry->chain;
	return entry;
}

/* Without memory, the chains grow, if there are any. */
static void
grow(struct store_shard *shard)
{
	uint32_t i, old = shard->bucket_count;
	uint32_t count = old > 0 ? 2 * old : BUCKETS_FIRST;
	struct entry **was = shard->bucket, *entry;
	struct entry **made = calloc(count, sizeof(struct entry *));

	if (made == NULL)
		return;
	shard->bucket = made;
	shard->bucket_count = count;
	for (i = 0; i < old; i++) {
		while ((entry = was[i]) != NULL) {
			was[i] = entry->chain;
			link_entry(shard, entry);
		}
	}
	free(was);
}

static uint32_t
entry_grains(size_t key_size)
{
	size_t bytes = offsetof(struct entry, key) + key_size;

	return (uint32_t)((bytes + GRAIN - 1) / GRAIN);
}

static struct entry *
alloc_entry(struct store_shard *shard, size_t key_size)
{
	uint32_t grains = entry_grains(key_size);
	struct entry *entry = shard->free[grains];
	struct chunk *chunk;

	if (entry != NULL) {
		shard->free[grains] = entry->chain;
		return entry;
	}
	if (shard->room < grains * GRAIN) {
		chunk = malloc(CHUNK);
		if (chunk == NULL)
			return NULL;
		chunk->next = shard->chunks;
		shard->chunks = chunk;
		shard->room = CHUNK - sizeof(*chunk);
	}
	shard->room -= grains * GRAIN;
	entry = (void *)((char *)(shard->chunks + 1) + shard->room);
	entry->shard = shard;
	entry->round = 0;
	return entry;
}

static void
free_entry(struct entry *entry)
{
	struct entry **first = &entry->shard->free[entry_grains(entry->size)];

	entry->chain = *first;
	*first = entry;
}

static struct entry *
make_entry(struct hwt_store *store, struct store_shard *shard,
    const struct hwt_store_item *item, uint64_t hash)
{
	struct entry *made;

	if (shard->entries >= shard->bucket_count &&
	    shard->bucket_count < UINT32_MAX / 2)
		grow(shard);
	made = shard->bucket_count > 0 ? alloc_entry(shard, item->size) : NULL;
	if (made == NULL)
		return NULL;
	made->object = (struct object){.checkout = store->checkout};
	made->value = NULL;
	made->hash = hash;
	made->users = 0;
	made->phase = PHASE_LOADING;
	made->size = (uint8_t)item->size;
	a64_store_relaxed(&made->object.word, IN_USE);
	memcpy(made->key, item->key, item->size);
	link_entry(shard, made);
	shard->entries++;
	shard->stats.jobs++;
	return made;
}

static void
remove_entry(struct entry *entry)
{
	struct entry **at = bucket_of(entry->shard, entry->hash);

	while (*at != entry)
		at = &(*at)->chain;
	*at = entry->chain;
	entry->shard->entries--;
}

/* The entry of a key, with one more user; NULL: no memory. */
static struct entry *
want(struct hwt_store *store, const struct hwt_store_item *item, bool *made)
{
	uint64_t hash = key_hash(store, item->key, item->size);
	struct store_shard *shard =
	    &store->shards[hash >> 32 & (store->shard_count - 1)];
	struct entry *entry;

	(void)pthread_mutex_lock(&shard->lock);
	entry = find(shard, item, hash);
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
	(void)pthread_mutex_unlock(&shard->lock);
	return entry;
}

static void
unwant(struct hwt_store *store, struct entry *entry)
{
	struct store_shard *shard = entry->shard;
	uint64_t now_ns = store_now(store);

	(void)pthread_mutex_lock(&shard->lock);
	entry->idle_ns = now_ns;
	shard->users--;
	if (--entry->users == 0 && entry->phase == PHASE_FAILED)
		free_entry(entry);
	(void)pthread_mutex_unlock(&shard->lock);
}

/* Jobs. Addresses of entries are below 2^58. */

static struct hwt_store_job *
job_of(const struct entry *entry)
{
	uintptr_t number = (uintptr_t)entry / GRAIN;

	return (struct hwt_store_job *)(number * ROUNDS + entry->round);
}

static struct entry *
job_entry(const struct hwt_store_job *job)
{
	return (struct entry *)((uintptr_t)job / ROUNDS * GRAIN);
}

static void run_load(struct hwt_store *store, struct entry *entry);

/* loaded: of a load; NULL: no value. What is wanted after an unload is loaded
 * again, by this thread. */
static int
end_job(struct hwt_store *store, const struct hwt_store_job *job, int result,
    const struct hwt_loaded *loaded)
{
	struct entry *entry = job_entry(job);
	struct store_shard *shard = entry->shard;
	uint64_t now_ns = store_now(store);
	bool unloads, is_there, again, fails;
	uint64_t waits;

	(void)pthread_mutex_lock(&shard->lock);
	unloads = entry->phase == PHASE_UNLOADING;
	if (job_of(entry) != job ||
	    (!unloads && entry->phase != PHASE_LOADING)) {
		(void)pthread_mutex_unlock(&shard->lock);
		return -ENOENT;
	}
	is_there = unloads == (result != 0);
	again = unloads && !is_there && entry->users > 0;
	fails = !unloads && !is_there;
	entry->round = (entry->round + 1) % ROUNDS;
	entry->idle_ns = now_ns;
	entry->touched = true;
	entry->phase = is_there ? PHASE_THERE
	    : again             ? PHASE_LOADING
				: PHASE_FAILED;
	if (!unloads && loaded != NULL)
		entry->value = loaded->value;
	shard->stats.jobs -= !again;
	shard->stats.misses += again;
	shard->stats.loads += !unloads;
	shard->stats.failures += fails;
	shard->stats.unloads += unloads && !is_there;
	shard->stats.refusals += unloads && is_there;
	if (is_there)
		(void)a64_add_seq(&store->loaded, 1);
	else if (!again)
		remove_entry(entry);
	if (fails)
		entry->error = result;
	waits = entry->users;
	entry->users += fails;
	shard->users += fails;
	if (unloads && !is_there && !again)
		free_entry(entry);
	(void)pthread_mutex_unlock(&shard->lock);
	if (is_there)
		object_free(&entry->object, false);
	queue_run();
	if (fails) {
		object_retire(store->checkout, &entry->object, waits);
		unwant(store, entry);
	}
	if (unloads)
		(void)out_end(
		    store->checkout, &store->checkout->unloads, UINT64_MAX);
	if (again)
		run_load(store, entry);
	return 0;
}

/* Its job has begun. */
static void
run_load(struct hwt_store *store, struct entry *entry)
{
	struct hwt_store_job *job = job_of(entry);
	struct hwt_loaded loaded = {NULL};
	int result = 0;

	if (store->load != NULL)
		result = store->load(
		    store->ctx, job, entry->key, entry->size, &loaded);
	if (result != HWT_STORE_LATER)
		(void)end_job(
		    store, job, result > 0 ? -EINVAL : result, &loaded);
}

/* Unloads. */

/* Which objects of a shard; what is touched is spared once. */
struct search {
	uint64_t since_ns; /* idle at least since then */
	uint32_t buckets; /* that are left */
	bool spares;
};

/* An entry to unload, with its job begun and its object taken; NULL: none. */
static struct entry *
choose(struct store_shard *shard, struct search *search)
{
	struct entry *entry;

	if (search->buckets == BUCKETS_ALL || shard->bucket_count == 0)
		search->buckets = shard->bucket_count;
	for (; search->buckets > 0; search->buckets--, shard->hand++) {
		shard->hand &= shard->bucket_count - 1;
		entry = shard->bucket[shard->hand];
		for (; entry != NULL; entry = entry->chain) {
			if (entry->users > 0 || entry->phase != PHASE_THERE ||
			    entry->idle_ns > search->since_ns)
				continue;
			if (search->spares && entry->touched)
				entry->touched = false;
			else if (a64_cas_seq(&entry->object.word, 0, IN_USE))
				return entry;
			/* Its load has not given it back yet. */
		}
	}
	return NULL;
}

/* 0, HWT_STORE_LATER, or -EBUSY, as unload has answered; -ENOENT: there is
 * none; -EAGAIN: a pause is on. */
static int
unload_next(
    struct hwt_store *store, struct store_shard *shard, struct search *search)
{
	struct hwt_checkout *checkout = store->checkout;
	bool calls = checkout_queue.calls;
	struct hwt_store_job *job = NULL;
	struct entry *entry;
	int result = 0;

	if (!out_begin(checkout, &checkout->unloads))
		return -EAGAIN;
	(void)pthread_mutex_lock(&shard->lock);
	entry = choose(shard, search);
	if (entry != NULL) {
		entry->phase = PHASE_UNLOADING;
		shard->stats.jobs++;
		job = job_of(entry);
		(void)a64_add_seq(&store->loaded, UINT64_MAX);
	}
	(void)pthread_mutex_unlock(&shard->lock);
	if (entry == NULL) {
		(void)out_end(checkout, &checkout->unloads, UINT64_MAX);
		return -ENOENT;
	}
	checkout_queue.calls = true;
	if (store->unload != NULL)
		result = store->unload(
		    store->ctx, job, entry->key, entry->size, entry->value);
	checkout_queue.calls = calls;
	if (result != HWT_STORE_LATER)
		(void)end_job(store, job, result, NULL);
	return result == 0 || result == HWT_STORE_LATER ? result : -EBUSY;
}

/* While there are too many: a search of each shard, and another one for what
 * the first has found touched. */
static void
keep_limit(struct hwt_store *store)
{
	uint64_t searches = 2 * (uint64_t)store->shard_count, i;
	struct search search;

	while (store->limit > 0 && searches-- > 0 &&
	    a64_load_relaxed(&store->loaded) > store->limit) {
		i = a64_add_seq(&store->hand, 1) & (store->shard_count - 1);
		search = (struct search){UINT64_MAX, BUCKETS_SEEN, true};
		(void)unload_next(store, &store->shards[i], &search);
	}
}

/* A task of the timer: one shard after another, each once in idle_ns. */
static void
sweep(hwt_timeout timeout, void *arg)
{
	struct hwt_store *store = arg;
	struct store_shard *shard = &store->shards[store->swept];
	uint64_t now_ns = store_now(store);
	struct search search = {now_ns - store->idle_ns, BUCKETS_ALL, false};
	int result = now_ns < store->idle_ns ? -ENOENT : 0;

	(void)timeout;
	store->swept = (store->swept + 1) & (store->shard_count - 1);
	if (!a64_cas_seq(&store->unloading, 0, 1))
		return;
	while (result != -ENOENT && result != -EAGAIN)
		result = unload_next(store, shard, &search);
	a64_store_seq(&store->unloading, 0);
}

/* Making and destroying. */

static void
free_store(struct hwt_store *store)
{
	struct store_shard *shard = store->shards;
	struct chunk *chunk;

	for (; shard < store->shards + store->shard_count; shard++) {
		while ((chunk = shard->chunks) != NULL) {
			shard->chunks = chunk->next;
			free(chunk);
		}
		free(shard->bucket);
	}
	free(store);
}

int
hwt_store_create(struct hwt_store **store, struct hwt_checkout *checkout,
    const struct hwt_store_options *options)
{
	static const struct hwt_store_options defaults;
	uint32_t shards = SHARDS_DEFAULT, i;
	int error = checkout_enter(checkout);
	struct hwt_store *made;
	uint64_t period_ns;

	if (options == NULL)
		options = &defaults;
	if (error != 0)
		return error;
	if (store == NULL || options->shards > SHARDS_MAX ||
	    (options->shards & (options->shards - 1)) != 0 ||
	    options->idle_ns >= DELAY_LIMIT || options->reserved_32 != 0 ||
	    !RESERVED_IS_ZERO(options))
		return -EINVAL;
	if (options->shards != 0)
		shards = options->shards;
	made = alloc_lines(sizeof(*made) + shards * sizeof(*made->shards));
	if (made == NULL)
		return -ENOMEM;
	for (i = 0; i < shards; i++)
		made->shards[i].lock =
		    (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	made->checkout = checkout;
	made->shard_count = shards;
	made->load = options->load;
	made->unload = options->unload;
	made->ctx = options->ctx;
	made->limit = options->limit;
	made->idle_ns = options->idle_ns;
	secret_make(&made->secret);
	period_ns = options->idle_ns / shards + 1;
	if (options->idle_ns != 0)
		error = hwt_new_periodic(checkout->timer, NULL, &made->timeout,
		    sweep, made, period_ns, period_ns);
	if (error != 0)
		free_store(made);
	else
		*store = made;
	return error;
}

static bool
store_is_used(struct hwt_store *store)
{
	struct store_shard *shard;
	uint64_t used = 0;
	uint32_t i;

	for (i = 0; i < store->shard_count; i++) {
		shard = &store->shards[i];
		(void)pthread_mutex_lock(&shard->lock);
		used += shard->users + shard->stats.jobs;
		(void)pthread_mutex_unlock(&shard->lock);
	}
	return used != 0;
}

/* False: something is used, or an unload has refused or is not over. */
static bool
unload_all(struct hwt_store *store)
{
	struct search search;
	uint32_t i;
	int result;

	if (store_is_used(store))
		return false;
	for (i = 0; i < store->shard_count && store->unload != NULL; i++) {
		search = (struct search){UINT64_MAX, BUCKETS_ALL, false};
		do
			result = unload_next(store, &store->shards[i], &search);
		while (result == 0);
		if (result != -ENOENT)
			return false;
	}
	return true;
}

int
hwt_store_destroy(struct hwt_store *store)
{
	struct hwt_checkout *checkout;
	uint32_t tries = 0;

	if (store == NULL)
		return 0;
	checkout = store->checkout;
	if (checkout_enter(checkout) == -EOWNERDEAD) {
		free_store(store);
		return 0;
	}
	if (checkout_queue.calls)
		return -EDEADLK;
	if (a64_load_seq(&checkout->gate.word) & IN_USE)
		return -EBUSY;
	while (!a64_cas_seq(&store->unloading, 0, 1)) {
		if (store_is_used(store))
			return -EBUSY;
		yield_or_pause(&tries);
	}
	if (!unload_all(store)) {
		a64_store_seq(&store->unloading, 0);
		return -EBUSY;
	}
	if (store->timeout.id != 0)
		(void)!hwt_cancel_wait(checkout->timer, store->timeout);
	free_store(store);
	return 0;
}

/* Requests. */

static int
store_enter(const struct hwt_store *store)
{
	return store == NULL ? -EINVAL : checkout_enter(store->checkout);
}

static int
store_enter_with(
    const struct hwt_store *store, const struct store_request *request)
{
	int error = store_enter(store);

	if (error == 0 && (request == NULL || request->store != store))
		error = -EINVAL;
	return error;
}

/* Item i, and that no item before has its key. */
static bool
item_is_valid(const struct hwt_store_item *items, size_t i)
{
	const struct hwt_store_item *item = &items[i];
	size_t k;

	if (item->key == NULL || item->size == 0 ||
	    item->size > HWT_STORE_KEY_MAX ||
	    (item->use != HWT_WRITE && item->use != HWT_READ))
		return false;
	for (k = 0; k < i; k++) {
		if (items[k].size == item->size &&
		    memcmp(items[k].key, item->key, item->size) == 0)
			return false;
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
	for (i = 0; i < count; i++) {
		if (!item_is_valid(items, i))
			return -EINVAL;
	}
	memset(request, 0, sizeof(*request));
	request->store = store;
	request->items = items;
	request->granted = granted;
	request->arg = arg;
	request->inner.checkout = store->checkout;
	request->inner.count = (uint32_t)count;
	for (i = 0; i < count; i++)
		items[i].value = NULL;
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
		unwant(request->store, ENTRY(request->wanted[i].wanted));
	}
	keep_limit(request->store);
}

/* Of a failed load of one of its objects; 0: there is none. */
static int
load_error(const struct store_request *request)
{
	const struct entry *entry;
	int error = 0;
	size_t i;

	for (i = 0; i < request->inner.count && error == 0; i++) {
		entry = ENTRY(request->wanted[i].wanted);
		if (a64_load_acquire(&entry->object.word) & RETIRED)
			error = entry->error;
	}
	return error;
}

static int
store_ended(struct store_request *request, int error)
{
	size_t i;

	if (error == -EIDRM)
		error = load_error(request);
	if (error != 0)
		unwant_all(request, request->inner.count);
	for (i = 0; i < request->inner.count && error == 0; i++)
		request->items[i].value =
		    ENTRY(request->wanted[i].wanted)->value;
	return error;
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

/* Finds what it wants, or makes and loads it. */
static int
want_all(struct store_request *request)
{
	struct hwt_store *store = request->store;
	struct entry *entry;
	size_t i;
	bool made;

	for (i = 0; i < request->inner.count; i++) {
		entry = want(store, &request->items[i], &made);
		if (entry == NULL) {
			unwant_all(request, i);
			return -ENOMEM;
		}
		request->wanted[i].wanted = &entry->object;
		request->wanted[i].use = request->items[i].use;
		if (made)
			run_load(store, entry);
	}
	return 0;
}

/* waits: in this thread. */
static int
store_acquire(struct hwt_store *store, struct hwt_store_request *user,
    uint64_t delay_ns, bool waits)
{
	struct store_request *request = (struct store_request *)user;
	struct hwt_request *inner = (struct hwt_request *)user;
	int result = store_enter_with(store, request);

	if (result != 0)
		return result;
	if ((!waits && request->granted == NULL) || !delay_is_valid(delay_ns))
		return -EINVAL;
	if (waits && checkout_queue.calls)
		return -EDEADLK;
	if (word_state(a64_load_acquire(&request->inner.word)) != STATE_READY)
		return -EBUSY;
	if (is_shut_down(store->checkout))
		return -ESHUTDOWN;
	result = want_all(request);
	if (result != 0)
		return result;
	(void)hwt_request_init_items(inner, (struct hwt_item *)request->wanted,
	    request->inner.count, store_granted, request);
	result = waits
	    ? hwt_checkout_acquire_wait(store->checkout, inner, delay_ns)
	    : hwt_checkout_acquire(store->checkout, inner, delay_ns);
	return result == 1 ? 1 : store_ended(request, result);
}

int
hwt_store_acquire(struct hwt_store *store, struct hwt_store_request *request,
    uint64_t delay_ns)
{
	return store_acquire(store, request, delay_ns, false);
}

int
hwt_store_acquire_wait(struct hwt_store *store,
    struct hwt_store_request *request, uint64_t delay_ns)
{
	return store_acquire(store, request, delay_ns, true);
}

/* Its values are the next holder's when its objects are given back. */
int
hwt_store_release(struct hwt_store *store, struct hwt_store_request *user)
{
	struct store_request *request = (struct store_request *)user;
	int error = store_enter_with(store, request);

	if (error == 0)
		error = hwt_checkout_release(
		    store->checkout, (struct hwt_request *)user);
	if (error == 0)
		unwant_all(request, request->inner.count);
	return error;
}

int
hwt_store_cancel(struct hwt_store *store, struct hwt_store_request *user)
{
	int error = store_enter_with(store, (struct store_request *)user);

	if (error != 0)
		return error;
	return hwt_checkout_cancel(store->checkout, (struct hwt_request *)user);
}

int
hwt_store_complete(struct hwt_store *store, struct hwt_store_job *job,
    int result, const struct hwt_loaded *loaded)
{
	int error = store_enter(store);

	if (error != 0)
		return error;
	if (job == NULL || result > 0)
		return -EINVAL;
	error = end_job(store, job, result, loaded);
	if (error == 0)
		keep_limit(store);
	return error;
}

int
hwt_store_read_stats(
    const struct hwt_store *store, struct hwt_store_stats *stats)
{
	int error = store_enter(store);
	struct store_shard *shard;
	const uint64_t *of;
	uint32_t i, k;

	if (error != 0 || stats == NULL)
		return error != 0 ? error : -EINVAL;
	memset(stats, 0, sizeof(*stats));
	/* A lock is no part of what is const. */
	shard = (struct store_shard *)(uintptr_t)store->shards;
	for (i = 0; i < store->shard_count; i++, shard++) {
		of = (const uint64_t *)&shard->stats;
		(void)pthread_mutex_lock(&shard->lock);
		for (k = 0; k < sizeof(*stats) / sizeof(*of); k++)
			((uint64_t *)stats)[k] += of[k];
		(void)pthread_mutex_unlock(&shard->lock);
	}
	stats->loaded = a64_load_relaxed(&store->loaded);
	return 0;
}
