/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects by key: the functions of hwt_checkout.h whose names begin with
 * hwt_store.
 *
 * A store's object is an object of the checkout in an entry of a table. While a
 * job loads or unloads it, the object is in use, and the job is its holder; so
 * who wants it waits for it as for any other object, with a deadline, a cancel,
 * a pause and a shutdown, of which nothing is done here.
 *
 *     (no entry)
 *         | acquire                            load answers 0
 *         +---------> LOADING --------------------------------> LOADED
 *         |            |   ^                                    ^   |
 *         |            |   | unload has answered 0,      unload |   | chosen
 *     the next one     |   | and it is wanted          refuses  |   |
 *         ^     fails  |   |                                    |   v
 *         |            v   +--------------------------------- UNLOADING
 *     (no entry) <-- FAILED                                     |
 *         ^   back-off is over                                  |
 *         +-----------------------------------------------------+
 *                     unload has answered 0, nobody wants it
 *
 * WHO OWNS WHAT. A job begins in LOADING or UNLOADING, and ends with it. It
 * owns the object as its holder, the value, and the next move of state. All
 * else of an entry is under its shard's lock. wants counts the requests that
 * name the entry, from acquire to the end of the wait or of the hold, and its
 * job. So
 *
 *   (1) one load runs: whoever finds no entry makes one, LOADING, under the
 *       lock, with a job;
 *   (2) an entry is chosen to be unloaded under the lock, if it is LOADED and
 *       wants is 0: then no request names the object, and its word is 0, since
 *       a request is told, and ends, when it has left the object. Who wants it
 *       later finds it in use;
 *   (3) the memory is freed when the entry is in no table and wants is 0.
 *
 * A job that ends well makes the entry LOADED and frees the object, which wakes
 * who waits; it has its part in wants until then, so that nobody chooses the
 * entry in between.
 *
 * FAILURE. The object is retired: all waits for sets with it end with
 * HWT_GRANT_RETIRED, and what is tried at that moment finds it retired. So no
 * grant has an object that is not loaded, and who is told RETIRED finds the
 * error in the entry. A failed entry is used for nothing else: it stays in the
 * table for the back-off and refuses; the next request makes another one.
 *
 * PAUSE. An unload is counted as out before it reads the gate for the last time
 * (E:pause in request.c). A load is not: it holds an object that no grant has
 * had, and its end wakes who waits, who then meets the gate.
 *
 * THE TIMEOUT of an entry comes once for a time in which it is idle, and not
 * for each release: a release notes the time, and the task sets another timeout
 * for what is left. The task's part is over when armed is false, under the
 * lock; whoever frees an entry that is armed cancels the timeout, and waits for
 * the task, which finds it DEAD.
 *
 * WORK. What a job's end causes, loads of what was wanted meanwhile and unloads
 * for the limit, is done in a loop by the call where it happened, outside all
 * locks.
 *
 * LAST ACCESS. A task or job that outlives its entry is counted in busy, which
 * it touches last. hwt_store_destroy waits for it.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

#define STORE_SHARDS_DEFAULT 256u
#define STORE_SHARDS_MAX (1u << 16)
/* Looks for objects to unload in one call, so that none takes long; the next
 * one goes on. */
#define STORE_STEPS 1024u

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

/* Entries whose load is to begin, by newer. */
struct work {
	struct store_entry *first, *last;
};

static void
work_add(struct work *work, struct store_entry *entry)
{
	entry->newer = NULL;
	if (work->first == NULL)
		work->first = entry;
	else
		work->last->newer = entry;
	work->last = entry;
}

static struct store_entry *
entry_of_job(struct hwt_store_job *job)
{
	return (struct store_entry *)(uintptr_t)job;
}

static struct hwt_store_job *
job_of(struct store_entry *entry)
{
	return (struct hwt_store_job *)(uintptr_t)entry;
}

static struct hwt *
timer_of(const struct hwt_store *store)
{
	return store->checkout->timer;
}

/* Ends of entries. */

/* Not with the lock held, when the entry is DEAD. */
static void
entry_destroy(struct store_entry *entry)
{
	if (entry == NULL)
		return;
	if (entry->armed)
		(void)!hwt_cancel_wait(
		    timer_of(entry_store(entry)), entry->timeout);
	free(entry);
}

/* With the lock held, as all that follows; NULL: it lives on. */
static struct store_entry *
entry_die(struct store_shard *shard, struct store_entry *entry)
{
	if (entry->in_table || entry->wants > 0)
		return NULL;
	entry->state = ENTRY_DEAD;
	shard->entries--;
	return entry;
}

static hwt_task entry_expire;

static bool
entry_arm(struct store_entry *entry, uint64_t delay_ns)
{
	struct hwt *timer = timer_of(entry_store(entry));

	if (!entry->armed)
		entry->armed = hwt_new_timeout(timer, &entry->timeout,
				   entry_expire, entry, delay_ns) == 0;
	return entry->armed;
}

/* Nobody wants it. Where the timer has no room, it stays until somebody has
 * wanted it again. */
static void
entry_rest(struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);

	if (store->options.idle_ns == 0 || entry->pinned)
		return;
	entry->since_ns = checkout_now(store->checkout);
	(void)entry_arm(entry, store->options.idle_ns);
}

/* It stays FAILED in the table for a while; false: not. */
static bool
entry_back_off(struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);
	int error;

	if (store->options.backoff_ns == 0)
		return false;
	entry->since_ns = checkout_now(store->checkout);
	if (!entry->armed)
		return entry_arm(entry, store->options.backoff_ns);
	/* A task that has begun finds what is left. */
	error = hwt_reschedule(
	    timer_of(store), entry->timeout, store->options.backoff_ns);
	return error == 0 || error == -EINPROGRESS;
}

/* The job that unloads it, which nobody wants, begins; false: a pause is on. */
static bool
unload_begin(struct store_shard *shard, struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);

	if (!flight_begin(store->checkout, entry))
		return false;
	entry_unlink(store, shard, entry);
	entry->state = ENTRY_UNLOADING;
	if (store->options.unload != NULL)
		entry->since_ns = checkout_now(store->checkout);
	entry->wants = 1;
	shard->stats.jobs++;
	object_hold(&entry->object);
	return true;
}

/* One less wants it. error: what its load has answered, or as it was. */
static void
entry_put(struct store_entry *entry, int *error)
{
	struct store_shard *shard = entry_shard(entry);
	struct store_entry *dead = NULL;

	store_lock(shard);
	if (entry->state == ENTRY_FAILED)
		*error = entry->error;
	if (--entry->wants == 0) {
		if (entry->state == ENTRY_LOADED)
			entry_rest(entry);
		dead = entry_die(shard, entry);
	}
	store_unlock(shard);
	entry_destroy(dead);
}

/* Jobs. */

/* It is loaded; wakes who waits, and ends the job. */
static void
job_open(struct store_entry *entry)
{
	struct queue queue;
	int error;

	queue_begin(&queue);
	object_free(&entry->object);
	queue_end(&queue);
	entry_put(entry, &error);
}

static void
job_fail(struct store_entry *entry)
{
	struct hwt_checkout *checkout = entry->object.checkout;
	struct queue queue;
	int error;

	queue_begin(&queue);
	object_close(&entry->object);
	(void)requests_stop(checkout, &entry->object, HWT_GRANT_RETIRED);
	queue_end(&queue);
	entry_put(entry, &error);
}

static void
load_end(struct store_entry *entry, int result, const struct hwt_loaded *loaded)
{
	struct hwt_store *store = entry_store(entry);
	struct store_shard *shard = entry_shard(entry);

	store_lock(shard);
	shard->stats.jobs--;
	shard->stats.loads++;
	entry->pending = false;
	if (result == 0) {
		entry->value = loaded->value;
		entry->weight = loaded->weight;
		entry->state = ENTRY_LOADED;
		entry_link(store, shard, entry);
		store_unlock(shard);
		job_open(entry);
		return;
	}
	shard->stats.failures++;
	entry->error = result < 0 ? result : -EINVAL;
	entry->state = ENTRY_FAILED;
	if (!entry_back_off(entry))
		entry_leave_table(shard, entry);
	store_unlock(shard);
	job_fail(entry);
}

/* It is not out any more, which may be what a pause waits for. */
static void
unload_land(const struct store_entry *entry)
{
	struct queue queue;

	queue_begin(&queue);
	flight_end(entry->object.checkout, entry);
	queue_end(&queue);
}

static void
unload_refused(struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);
	struct store_shard *shard = entry_shard(entry);

	store_lock(shard);
	shard->stats.jobs--;
	shard->stats.refusals++;
	entry->pending = false;
	entry->state = ENTRY_LOADED;
	entry_link(store, shard, entry);
	store_unlock(shard);
	unload_land(entry);
	job_open(entry);
}

static void
unload_end(struct work *work, struct store_entry *entry)
{
	struct store_shard *shard = entry_shard(entry);
	struct store_entry *dead = NULL;

	store_lock(shard);
	shard->stats.unloads++;
	entry->pending = false;
	entry->value = NULL;
	if (entry->wants > 1) {
		/* It is in use: its job goes on with a load. */
		entry->state = ENTRY_LOADING;
		entry->since_ns = checkout_now(entry->object.checkout);
		work_add(work, entry);
	} else {
		shard->stats.jobs--;
		entry->wants = 0;
		entry_leave_table(shard, entry);
		dead = entry_die(shard, entry);
	}
	store_unlock(shard);
	unload_land(entry);
	entry_destroy(dead);
}

/* state: of the entry, while its job had it. */
static void
job_end(struct work *work, struct store_entry *entry, int result,
    const struct hwt_loaded *loaded)
{
	if (entry->state == ENTRY_LOADING)
		load_end(entry, result, loaded);
	else if (result == 0)
		unload_end(work, entry);
	else
		unload_refused(entry);
}

/* Its callback is called, and may end it before it answers. */
static void
job_call(struct work *work, struct store_entry *entry)
{
	const struct hwt_store_options *options = &entry_store(entry)->options;
	struct hwt_loaded loaded = {NULL, 1};
	int result = 0;

	if (entry->state == ENTRY_LOADING)
		result = options->load(options->ctx, job_of(entry), entry->key,
		    entry->size, &loaded);
	else if (options->unload != NULL)
		result = options->unload(options->ctx, job_of(entry),
		    entry->key, entry->size, entry->value);
	if (result != HWT_STORE_LATER)
		job_end(work, entry, result, &loaded);
}

/* Who may call it now: the executor, or this thread. */
static void
job_hand(struct store_entry *entry, bool handed)
{
	struct store_shard *shard = entry_shard(entry);

	store_lock(shard);
	entry->handed = handed;
	entry->pending = !handed;
	store_unlock(shard);
}

static void
job_begin(struct work *work, struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);

	if (store->executor.execute != NULL) {
		job_hand(entry, true);
		if (store->executor.execute(
			store->executor.ctx, store, job_of(entry)) == 0)
			return;
	}
	job_hand(entry, false);
	job_call(work, entry);
}

/* Work. */

static struct store_entry *
choose_in(struct store_shard *shard, enum choice choice, uint64_t *steps)
{
	struct store_entry *entry;
	struct queue queue;

	queue_begin(&queue);
	store_lock(shard);
	entry = entry_choose(shard, choice, steps);
	if (entry != NULL && !unload_begin(shard, entry)) {
		*steps = 0;
		entry = NULL;
	}
	store_unlock(shard);
	queue_end(&queue);
	return entry;
}

/* For the limit: from one shard after the other. */
static struct store_entry *
choose_next(struct hwt_store *store, uint64_t *steps)
{
	struct store_entry *entry = NULL;
	uint64_t turn;

	while (entry == NULL && *steps > 0 && store->options.limit != 0 &&
	    a64_load_relaxed(&store->weight) > store->options.limit) {
		turn = a64_add_seq(&store->turn, 1);
		entry =
		    choose_in(&store->shards[turn & (store->shard_count - 1)],
			CHOOSE_UNUSED, steps);
	}
	return entry;
}

static void
work_do(struct hwt_store *store, struct work *work)
{
	uint64_t steps = STORE_STEPS;
	struct store_entry *entry;

	for (;;) {
		entry = work->first;
		if (entry != NULL)
			work->first = entry->newer;
		else
			entry = choose_next(store, &steps);
		if (entry == NULL)
			return;
		job_begin(work, entry);
	}
}

static void
trim(struct hwt_store *store, uint64_t weight, enum choice choice)
{
	struct work work = {NULL, NULL};
	struct store_entry *entry;
	uint64_t steps;
	uint32_t i;

	for (i = 0; i < store->shard_count; i++) {
		store_lock(&store->shards[i]);
		steps = store->shards[i].stats.loaded;
		store_unlock(&store->shards[i]);
		while (steps > 0 &&
		    (choice == CHOOSE_ALL ||
			a64_load_relaxed(&store->weight) > weight)) {
			entry = choose_in(&store->shards[i], choice, &steps);
			if (entry != NULL)
				job_begin(&work, entry);
		}
	}
	work_do(store, &work);
}

/* What is left of a time that has begun; 0: it has passed. */
static uint64_t
rest_left(const struct store_entry *entry, uint64_t time_ns)
{
	uint64_t passed_ns =
	    checkout_now(entry_store(entry)->checkout) - entry->since_ns;

	return passed_ns < time_ns ? time_ns - passed_ns : 0;
}

/* With the lock held. True: its unload has begun. */
static bool
entry_rested(struct store_shard *shard, struct store_entry *entry)
{
	uint64_t idle_ns = entry_store(entry)->options.idle_ns;
	uint64_t left_ns;

	if (entry->wants > 0 || entry->pinned)
		return false;
	left_ns = rest_left(entry, idle_ns);
	if (left_ns == 0 && unload_begin(shard, entry))
		return true;
	(void)entry_arm(entry, left_ns != 0 ? left_ns : idle_ns);
	return false;
}

/* The same; the entry, if it is DEAD now. */
static struct store_entry *
entry_backed_off(struct store_shard *shard, struct store_entry *entry)
{
	uint64_t left_ns =
	    rest_left(entry, entry_store(entry)->options.backoff_ns);

	if (!entry->in_table || (left_ns != 0 && entry_arm(entry, left_ns)))
		return NULL;
	entry_leave_table(shard, entry);
	return entry_die(shard, entry);
}

static void
entry_expire(hwt_timeout timeout, void *arg)
{
	struct store_entry *entry = arg, *dead = NULL;
	struct hwt_store *store = entry_store(entry);
	struct store_shard *shard = entry_shard(entry);
	struct work work = {NULL, NULL};
	bool unloads = false;
	struct queue queue;

	(void)timeout;
	(void)a64_add_seq(&store->busy, 1);
	queue_begin(&queue);
	store_lock(shard);
	if (entry->state != ENTRY_DEAD)
		entry->armed = false;
	if (entry->state == ENTRY_FAILED)
		dead = entry_backed_off(shard, entry);
	else if (entry->state == ENTRY_LOADED)
		unloads = entry_rested(shard, entry);
	store_unlock(shard);
	queue_end(&queue);
	entry_destroy(dead);
	if (unloads)
		job_begin(&work, entry);
	work_do(store, &work);
	(void)a64_add_seq(&store->busy, UINT64_MAX);
}

/* Requests. */

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

/* SipHash, as in core/secret.h. With the other byte order it is another. */
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

int
store_enter(const struct hwt_store *store)
{
	if (store == NULL)
		return -EINVAL;
	return hwt_state(timer_of(store), (hwt_timeout){0}, NULL) == -EOWNERDEAD
	    ? -EOWNERDEAD
	    : 0;
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
is_delay(uint64_t delay_ns)
{
	return delay_ns <= INT64_MAX || delay_ns == HWT_NEVER;
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
	if (acquired->granted == NULL || !is_delay(delay_ns))
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
	if (!is_delay(delay_ns))
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

/* Jobs from outside. */

int
hwt_store_run(struct hwt_store *store, struct hwt_store_job *job)
{
	struct store_entry *entry = entry_of_job(job);
	struct work work = {NULL, NULL};
	struct store_shard *shard;
	bool handed;
	int error = store_enter(store);

	if (error != 0)
		return error;
	if (job == NULL || entry_store(entry) != store)
		return -EINVAL;
	(void)a64_add_seq(&store->busy, 1);
	shard = entry_shard(entry);
	store_lock(shard);
	handed = entry->handed;
	entry->handed = false;
	entry->pending = entry->pending || handed;
	store_unlock(shard);
	if (handed) {
		job_call(&work, entry);
		work_do(store, &work);
	}
	(void)a64_add_seq(&store->busy, UINT64_MAX);
	return handed ? 0 : -ENOENT;
}

int
hwt_store_complete(struct hwt_store *store, struct hwt_store_job *job,
    int result, const struct hwt_loaded *loaded)
{
	static const struct hwt_loaded nothing = {NULL, 1};
	struct store_entry *entry = entry_of_job(job);
	struct work work = {NULL, NULL};
	struct store_shard *shard;
	bool pending;
	int error = store_enter(store);

	if (error != 0)
		return error;
	if (job == NULL || entry_store(entry) != store || result > 0)
		return -EINVAL;
	(void)a64_add_seq(&store->busy, 1);
	shard = entry_shard(entry);
	store_lock(shard);
	pending = entry->pending;
	entry->pending = false;
	store_unlock(shard);
	if (pending) {
		job_end(
		    &work, entry, result, loaded != NULL ? loaded : &nothing);
		work_do(store, &work);
	}
	(void)a64_add_seq(&store->busy, UINT64_MAX);
	return pending ? 0 : -ENOENT;
}

int
hwt_store_trim(struct hwt_store *store, uint64_t weight)
{
	int error = store_enter(store);

	if (error == 0)
		trim(store, weight, CHOOSE_IDLE);
	return error;
}

/* Making and freeing. */

static bool
store_options_are_valid(const struct hwt_store_options *options)
{
	static const char zero[sizeof(options->reserved)];

	if (options->executor != NULL && options->executor->execute == NULL)
		return false;
	return options->shards <= STORE_SHARDS_MAX &&
	    (options->shards & (options->shards - 1)) == 0 &&
	    options->idle_ns <= INT64_MAX && options->backoff_ns <= INT64_MAX &&
	    stats_name_is_valid(options->name) &&
	    memcmp(options->reserved, zero, sizeof(zero)) == 0;
}

/* All shards, also such as were not opened. */
static void
store_free(struct hwt_store *store)
{
	uint32_t i;

	for (i = 0; i < store->shard_count; i++)
		free(store->shards[i].bucket);
	free(store->shards);
	free(store);
}

static struct hwt_store *
store_alloc(uint32_t shards)
{
	struct hwt_store *made = alloc_lines(sizeof(*made));
	uint32_t i;

	if (made == NULL)
		return NULL;
	made->shards = alloc_lines(shards * sizeof(struct store_shard));
	if (made->shards == NULL) {
		store_free(made);
		return NULL;
	}
	made->shard_count = shards;
	for (i = 0; i < shards; i++) {
		if (!shard_open(&made->shards[i])) {
			store_free(made);
			return NULL;
		}
	}
	secret_make(&made->secret);
	return made;
}

static a64_t last_serial;

int
hwt_store_create(struct hwt_store **store, struct hwt_checkout *checkout,
    const struct hwt_store_options *options)
{
	static const struct hwt_store_options defaults;
	struct hwt_store *made;

	if (options == NULL)
		options = &defaults;
	if (store == NULL || checkout == NULL ||
	    !store_options_are_valid(options))
		return -EINVAL;
	if (hwt_state(checkout->timer, (hwt_timeout){0}, NULL) == -EOWNERDEAD)
		return -EOWNERDEAD;
	made = store_alloc(
	    options->shards != 0 ? options->shards : STORE_SHARDS_DEFAULT);
	if (made == NULL)
		return -ENOMEM;
	made->checkout = checkout;
	made->options = *options;
	name_copy(made->name, options->name != NULL ? options->name : "store");
	made->serial = a64_add_seq(&last_serial, 1) + 1;
	if (options->executor != NULL)
		made->executor = *options->executor;
	*store = made;
	return 0;
}

/* Those that have failed, which nobody wants. */
static void
forget_failed(struct store_shard *shard)
{
	struct store_entry *entry, *next, *failed = NULL;
	uint32_t i;

	store_lock(shard);
	for (i = 0; i < shard->buckets; i++) {
		for (entry = shard->bucket[i]; entry != NULL; entry = next) {
			next = entry->chain;
			if (entry->state != ENTRY_FAILED || entry->wants > 0)
				continue;
			entry->newer = failed;
			failed = entry;
		}
	}
	for (entry = failed; entry != NULL; entry = entry->newer) {
		entry_leave_table(shard, entry);
		(void)entry_die(shard, entry);
	}
	store_unlock(shard);
	for (; failed != NULL; failed = next) {
		next = failed->newer;
		entry_destroy(failed);
	}
}

static bool
store_is_empty(struct hwt_store *store)
{
	uint32_t i, entries = 0;

	for (i = 0; i < store->shard_count; i++) {
		store_lock(&store->shards[i]);
		entries += store->shards[i].entries;
		store_unlock(&store->shards[i]);
	}
	return entries == 0;
}

/* In a child process, where nothing else runs. */
static void
store_abandon(struct hwt_store *store)
{
	struct store_entry *entry, *next;
	uint32_t i, k;

	for (i = 0; i < store->shard_count; i++) {
		for (k = 0; k < store->shards[i].buckets; k++) {
			entry = store->shards[i].bucket[k];
			for (; entry != NULL; entry = next) {
				next = entry->chain;
				free(entry);
			}
		}
	}
	store_free(store);
}

static void
store_end_locks(struct hwt_store *store)
{
	uint32_t i;

	for (i = 0; i < store->shard_count; i++)
		(void)pthread_mutex_destroy(&store->shards[i].lock);
}

int
hwt_store_destroy(struct hwt_store *store)
{
	uint32_t i;

	if (store == NULL)
		return 0;
	if (store_enter(store) == -EOWNERDEAD) {
		store_abandon(store);
		return 0;
	}
	if (queue_in_granted())
		return -EDEADLK;
	trim(store, 0, CHOOSE_ALL);
	for (i = 0; i < store->shard_count; i++)
		forget_failed(&store->shards[i]);
	if (!store_is_empty(store))
		return -EBUSY;
	/* No task and no job begins without an entry; those that have ended
	 * the last ones were counted before. */
	while (a64_load_seq(&store->busy) != 0)
		(void)sched_yield();
	store_end_locks(store);
	store_free(store);
	return 0;
}
