/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a purgatory, watching operations, events, shutting down.
 *
 * WATCH, in this order: the record gets LIVE and RUN, so that this call owns
 * it; it is linked under all keys; its timeout is armed; then the owner's rule
 * looks. An event, the deadline, a cancel of a key or a shutdown that comes
 * meanwhile leaves its mark in the word. If a step fails, the links are undone;
 * if an outcome was set before that, the operation ends with it instead, since
 * another call has already counted it.
 *
 *        watch                                event
 *        -----                                -----
 *   (A1) link, under the shard's lock    (B1) change the state
 *   (A2) unlock: a full fence            (B2) a full fence
 *   (A3) call the predicate              (B3) read the group: is it there?
 *                                        (B4) find the link, under the lock
 *
 *   Forbidden: A3 does not see B1, and B3 or B4 does not find A1. B3, which
 *   takes no lock: of two fences one is first; if it is A2, B3 sees A1, and if
 *   it is B2, A3 sees B1 (E:found). B4: the lock orders A1 and B4; if B4 is
 *   second it finds the link, otherwise A3 sees B1. The group is also read
 *   before B2: if the key is there, B4 follows without B2 and B3.
 *
 * SHUTDOWN closes each shard under its lock, and then ends what is live. A
 * watch makes its word LIVE under the lock of the operation's home, and finds
 * that closed or is found.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/pause.h"
#include "operation.h"
#include "probe.h"

#define SHARDS_DEFAULT 64u
#define SHARDS_MAX (1u << 16)

static bool
options_are_valid(const struct hwt_purgatory_options *options)
{
	return RESERVED_IS_ZERO(options) && options->flags == 0 &&
	    options->shards <= SHARDS_MAX &&
	    (options->shards & (options->shards - 1)) == 0 &&
	    name_is_short(options->name) &&
	    (options->executor == NULL || options->executor->execute != NULL);
}

static void
purgatory_name(struct hwt_purgatory *purgatory, const char *name)
{
	static a64_t last_serial;

	name_copy(purgatory->name, name, "purgatory");
	purgatory->serial = a64_add_seq(&last_serial, 1) + 1;
}

int
hwt_purgatory_create(struct hwt_purgatory **purgatory, struct hwt *timer,
    const struct hwt_purgatory_options *options)
{
	static const struct hwt_purgatory_options defaults;
	struct hwt_purgatory *made;

	if (options == NULL)
		options = &defaults;
	if (purgatory == NULL || timer == NULL || !options_are_valid(options))
		return -EINVAL;
	if (timer_is_foreign(timer))
		return -EOWNERDEAD;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	made->timer = timer;
	made->max_pending = options->max_pending;
	if (options->executor != NULL)
		made->executor = *options->executor;
	purgatory_name(made, options->name);
	made->deferred.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	made->arming = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	secret_make(&made->of_keys);
	secret_make(&made->of_generations);
	if (shards_create(made,
		options->shards != 0 ? options->shards : SHARDS_DEFAULT) != 0) {
		free(made);
		return -ENOMEM;
	}
	*purgatory = made;
	return 0;
}

/* Watching. */

static bool
spec_is_valid(const struct hwt_operation_spec *spec)
{
	if (spec->done == NULL || spec->keys == NULL || spec->key_count == 0 ||
	    spec->key_count > UINT32_MAX || !RESERVED_IS_ZERO(spec))
		return false;
	if (spec->at_least != 0 ? spec->try_complete != NULL ||
		    (spec->quorum == 0 && spec->key_count != 1)
				: spec->quorum != 0)
		return false;
	return delay_is_valid(spec->delay_ns) &&
	    (spec->executor == NULL || spec->executor->execute != NULL);
}

static bool
permit_take(struct hwt_purgatory *purgatory)
{
	uint64_t taken;

	if (purgatory->max_pending == 0)
		return true;
	do {
		taken = a64_load_relaxed(&purgatory->permits);
		if (taken >= purgatory->max_pending)
			return false;
	} while (!a64_cas_seq(&purgatory->permits, taken, taken + 1));
	return true;
}

static int
compare_keys(const void *a, const void *b)
{
	const struct hwt_key *x = a;
	const struct hwt_key *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Copies the keys without duplicates, and returns how many. Few are compared
 * one by one, many are sorted. */
static size_t
keys_copy(struct hwt_key *to, const struct hwt_operation_spec *spec)
{
	bool sorted = spec->key_count > LINKS_INSIDE;
	const struct hwt_key *from = spec->keys;
	size_t count = 0;
	size_t i, k;

	if (sorted) {
		memcpy(to, from, spec->key_count * sizeof(*to));
		qsort(to, spec->key_count, sizeof(*to), compare_keys);
		from = to;
	}
	for (i = 0; i < spec->key_count; i++) {
		k = sorted && count > 0 ? count - 1 : 0;
		while (k < count && compare_keys(&to[k], &from[i]) != 0)
			k++;
		if (k == count)
			to[count++] = from[i];
	}
	return count;
}

/* A call of hwt_purgatory_watch. */
struct watch {
	struct hwt_purgatory *purgatory;
	const struct hwt_operation_spec *spec;
	hwt_operation *handle;
	struct hwt_key
	    *keys; /* a copy: LINKS_INSIDE of the caller's, or more */
	size_t count;
	struct link *links; /* NULL: those in the record do */
	struct quorum *quorum; /* the same memory; NULL: has links */
	struct operation *operation;
	bool linked; /* so that others can find it */
	bool completed; /* by this call: the key's value has reached at_least */
};

/* With the home's lock held: fills in a record, which is not linked yet. */
static void
watch_fill(struct watch *watch, struct shard *home)
{
	const struct hwt_operation_spec *spec = watch->spec;
	struct hwt_purgatory *purgatory = watch->purgatory;
	struct operation *operation = watch->operation;
	uint64_t word;
	size_t i;

	operation->home = home;
	operation->try_complete = spec->try_complete;
	operation->done = spec->done;
	operation->arg = spec->arg;
	operation->executor = spec->executor;
	/* An earlier operation's, whose task may not have returned. */
	a64_store_release(&operation->timeout, 0);
	if (spec->executor == NULL && purgatory->executor.execute != NULL)
		operation->executor = &purgatory->executor;
	operation->link_count =
	    watch->quorum != NULL ? 0 : (uint32_t)watch->count;
	operation->links =
	    watch->links != NULL ? watch->links : operation->inside;
	for (i = 0; i < operation->link_count; i++)
		a64_store_relaxed(&operation->links[i].where, 0);
	if (watch->quorum != NULL)
		home->memory_bytes += quorum_bytes(watch->count);
	else if (watch->links != NULL)
		home->memory_bytes += watch->count * sizeof(struct link);
	home->pending++;
	if (spec->try_complete != NULL) {
		home->tried++;
		call_of(purgatory)->tried--; /* see struct call */
	}
	word = a64_load_relaxed(&operation->word) | LIVE | RUN;
	if (spec->delay_ns != HWT_NEVER)
		word |= ARMED;
	a64_store_release(&operation->word, word);
}

/* With the lock of the key's shard held. */
static int
watch_link(struct watch *watch, struct shard *shard, size_t i, uint64_t hash)
{
	struct operation *operation = watch->operation;
	struct quorum *quorum = watch->quorum;
	struct link *link = quorum != NULL ? &quorum->part[i].threshold.link
					   : &operation->links[i];
	int result;

	if (quorum != NULL)
		quorum->part[i].shard = shard;
	result = key_link(shard, operation, link, watch->keys[i], hash,
	    watch->spec->at_least);
	if (result == 0)
		watch->linked = true;
	if (result <= 0)
		return result;
	if (quorum == NULL || quorum_count(quorum))
		watch->completed = operation_set(operation, HWT_COMPLETED);
	return 0;
}

/* Takes a free record in the shard of the first key, and links it under that
 * key. */
static int
watch_first(struct watch *watch)
{
	uint64_t hash = key_hash(watch->purgatory, watch->keys[0]);
	struct shard *home = shard_of(watch->purgatory, hash);
	int error = -ESHUTDOWN;

	shard_lock(home);
	if (!home->closed) {
		watch->operation = shard_alloc(home);
		error = watch->operation == NULL ? -ENOMEM : 0;
	}
	if (error == 0) {
		watch_fill(watch, home);
		*watch->handle = operation_handle(watch->operation);
		OPERATION_PROBE(watch, watch->purgatory, watch->handle->id,
		    watch->spec->delay_ns, watch->spec->arg);
		error = watch_link(watch, home, 0, hash);
	}
	shard_unlock(home);
	return error;
}

static int
watch_link_all(struct watch *watch)
{
	struct shard *shard;
	int error = watch_first(watch);
	uint64_t hash;
	size_t i;

	for (i = 1; i < watch->count && error == 0; i++) {
		hash = key_hash(watch->purgatory, watch->keys[i]);
		shard = shard_of(watch->purgatory, hash);
		shard_lock(shard);
		error = watch_link(watch, shard, i, hash);
		shard_unlock(shard);
	}
	/* Each shard_unlock was a full fence: see WATCH. */
	return error;
}

static int
watch_arm(struct watch *watch)
{
	struct operation *operation = watch->operation;
	hwt_timeout timeout;
	int error;

	if (watch->spec->delay_ns == HWT_NEVER ||
	    word_outcome(a64_load_acquire(&operation->word)) != 0)
		return 0;
	error = hwt_new_timeout(watch->purgatory->timer, &timeout,
	    operation_expire, operation, watch->spec->delay_ns);
	/* E:timeout release */
	if (error == 0)
		a64_store_release(&operation->timeout, timeout.id);
	return error;
}

/* Undoes what was done, unless another call has decided an outcome: then 0. */
static int
watch_undo(struct watch *watch, int error)
{
	struct operation *operation = watch->operation;

	if (operation == NULL) {
		free(watch->links);
		permit_release(watch->purgatory);
		*watch->handle = (hwt_operation){0};
		return error;
	}
	if (!operation_set(operation, OUTCOME_REFUSED) && watch->linked) {
		(void)operation_own(operation, true);
		return 0;
	}
	operation_unlink(operation, OUTCOME_REFUSED);
	operation_disarm(operation);
	permit_release(watch->purgatory);
	*watch->handle = (hwt_operation){0};
	operation_free(operation, a64_load_acquire(&operation->word));
	return error;
}

static int
watch_with_memory(struct watch *watch)
{
	int error;

	if (!permit_take(watch->purgatory)) {
		free(watch->links);
		return -ENOBUFS;
	}
	error = watch_link_all(watch);
	if (error == 0)
		error = watch_arm(watch);
	if (error != 0)
		return watch_undo(watch, error);
	return operation_own(watch->operation, true) || watch->completed;
}

/* False: no memory. */
static bool
watch_alloc_links(struct watch *watch)
{
	const struct hwt_operation_spec *spec = watch->spec;

	if (spec->at_least != 0 && watch->count > 1) {
		watch->quorum = quorum_create(watch->count, spec->quorum);
		watch->links = (struct link *)(void *)watch->quorum;
	} else if (watch->count > LINKS_INSIDE) {
		watch->links = calloc(watch->count, sizeof(*watch->links));
	} else {
		return true;
	}
	return watch->links != NULL;
}

static int
watch(struct watch *watch)
{
	const struct hwt_operation_spec *spec = watch->spec;
	bool many = spec->key_count > LINKS_INSIDE;
	int result = -ENOMEM;

	if (many)
		watch->keys = calloc(spec->key_count, sizeof(*watch->keys));
	if (watch->keys == NULL)
		return -ENOMEM;
	watch->count = keys_copy(watch->keys, spec);
	if (spec->quorum > watch->count)
		result = -EINVAL;
	else if (watch_alloc_links(watch))
		result = watch_with_memory(watch);
	if (many)
		free(watch->keys);
	return result;
}

int
hwt_purgatory_watch(struct hwt_purgatory *purgatory, hwt_operation *operation,
    const struct hwt_operation_spec *spec)
{
	hwt_operation ignored = {0};
	struct hwt_key few[LINKS_INSIDE];
	struct watch made = {
	    .purgatory = purgatory,
	    .spec = spec,
	    .keys = few,
	    .handle = operation != NULL ? operation : &ignored,
	};
	struct call call;
	int result = purgatory_enter(purgatory);

	*made.handle = (hwt_operation){0};
	if (result != 0)
		return result;
	if (spec == NULL || !spec_is_valid(spec))
		return -EINVAL;
	call_begin(&call, purgatory);
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the operation has them */
	result = watch(&made);
	call_end(&call);
	return result;
}

/* Events. */

/* False: nothing is linked under the key; what is linked from now on sees what
 * the caller has done before. */
static bool
key_may_be_there(const struct hwt_purgatory *purgatory, uint64_t hash)
{
	const struct table *table = &shard_of(purgatory, hash)->table;
	a64_t fence = 0;

	/* Without the fence: the shard's lock is taken next. */
	if (table_may_have(table, hash))
		return true;
	/* E:found: what the caller has changed, before its group is read */
	(void)a64_swap_full(&fence, 0);
	return table_may_have(table, hash);
}

static size_t
walk_or_put_off(
    struct hwt_purgatory *purgatory, const struct walk_request *request)
{
	struct call call;
	size_t count;

	if (call_put_off(call_of(purgatory), request))
		return 0;
	call_begin(&call, purgatory);
	count = purgatory_walk(purgatory, request);
	call_end(&call);
	return count;
}

static int
event(struct hwt_purgatory *purgatory, struct walk_request *request,
    size_t *decided)
{
	int error = purgatory_enter(purgatory);
	size_t count = 0;

	if (error == 0) {
		request->hash = key_hash(purgatory, request->name);
		if (key_may_be_there(purgatory, request->hash))
			count = walk_or_put_off(purgatory, request);
	}
	if (decided != NULL)
		*decided = count;
	return error;
}

int
hwt_purgatory_check(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *completed)
{
	struct walk_request request = {.name = key};

	return event(purgatory, &request, completed);
}

int
hwt_purgatory_raise(struct hwt_purgatory *purgatory, struct hwt_key key,
    uint64_t value, size_t *completed)
{
	struct walk_request request = {
	    .name = key, .value = value, .outcome = HWT_COMPLETED};

	return event(purgatory, &request, completed);
}

int
hwt_purgatory_cancel_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *cancelled)
{
	struct walk_request request = {.name = key, .outcome = HWT_CANCELLED};

	return event(purgatory, &request, cancelled);
}

/* One operation. */

static int
decide(struct hwt_purgatory *purgatory, uint64_t id, uint64_t outcome)
{
	struct operation *operation;
	int error = purgatory_enter(purgatory);
	struct call call;
	bool decided;

	if (error != 0)
		return error;
	operation = operation_at(purgatory, id);
	if (operation == NULL)
		return -ENOENT;
	call_begin(&call, purgatory);
	decided = operation_decide(operation, id, outcome);
	call_end(&call);
	return decided ? 0 : -ENOENT;
}

int
hwt_operation_complete(struct hwt_purgatory *purgatory, hwt_operation operation)
{
	return decide(purgatory, operation.id, HWT_COMPLETED);
}

int
hwt_operation_cancel(struct hwt_purgatory *purgatory, hwt_operation operation)
{
	return decide(purgatory, operation.id, HWT_CANCELLED);
}

int
purgatory_run(
    struct hwt_purgatory *purgatory, hwt_operation operation, uint64_t queued)
{
	struct operation *held;
	int error = purgatory_enter(purgatory);
	struct call call;
	bool ran;

	if (error != 0)
		return error;
	held = operation_at(purgatory, operation.id);
	if (held == NULL)
		return -ENOENT;
	call_begin(&call, purgatory);
	ran = operation_run(held, operation.id, queued);
	call_end(&call);
	return ran ? 0 : -ENOENT;
}

int
hwt_operation_run(struct hwt_purgatory *purgatory, hwt_operation operation)
{
	return purgatory_run(purgatory, operation, 0);
}

int
hwt_purgatory_read_stats(
    const struct hwt_purgatory *purgatory, struct hwt_purgatory_stats *stats)
{
	int error = purgatory_enter(purgatory);
	uint32_t i;

	if (error != 0)
		return error;
	if (stats == NULL)
		return -EINVAL;
	memset(stats, 0, sizeof(*stats));
	(void)pool_end(purgatory, &stats->memory_bytes);
	if (call_of(purgatory) != NULL)
		stats->tried = call_of(purgatory)->tried;
	for (i = 0; i < purgatory->shard_count; i++) {
		struct shard *shard = &purgatory->shard[i];

		shard_lock(shard);
		stats->pending += shard->pending;
		stats->links += shard->links;
		stats->keys += shard->keys;
		stats->completed += shard->ended[HWT_COMPLETED];
		stats->expired += shard->ended[HWT_EXPIRED];
		stats->cancelled += shard->ended[HWT_CANCELLED];
		stats->shut_down += shard->ended[HWT_SHUT_DOWN];
		stats->tried += shard->tried;
		stats->memory_bytes += shard->memory_bytes;
		shard_unlock(shard);
	}
	return 0;
}

/* Shutting down. */

static void
close_shards(struct hwt_purgatory *purgatory)
{
	struct shard *shard;
	uint32_t i;

	for (i = 0; i < purgatory->shard_count; i++) {
		shard = &purgatory->shard[i];
		shard_lock(shard);
		shard->closed = true;
		shard_unlock(shard);
	}
}

static void
end_operation(struct hwt_purgatory *purgatory, struct operation *operation)
{
	uint64_t word = a64_load_acquire(&operation->word);
	struct call call;

	call_begin(&call, purgatory);
	(void)operation_decide(
	    operation, word_id(word, operation->index), HWT_SHUT_DOWN);
	call_end(&call);
}

/* Until nobody owns an operation, and no timeout's task may use one. */
static void
await_operations(const struct hwt_purgatory *purgatory, uint32_t end)
{
	const struct operation *operation;
	uint32_t index = 1;

	while ((operation = pool_next(purgatory, &index, end)) != NULL) {
		/* E:execute acquire */
		while (a64_load_acquire(&operation->word) & (RUN | ARMED))
			pause_shortly();
	}
}

static void
await_executors(const struct hwt_purgatory *purgatory)
{
	uint32_t i;

	for (i = 0; i < purgatory->shard_count; i++) {
		while (a64_load_acquire(&purgatory->shard[i].executing) != 0)
			pause_shortly();
	}
}

/* All operations have ended. See LAST ACCESS in operation.c. */
static void
await_callbacks(struct hwt_purgatory *purgatory)
{
	uint32_t end = pool_end(purgatory, NULL);

	while (!deferred_await(purgatory))
		pause_shortly();
	await_operations(purgatory, end);
	await_executors(purgatory);
	/* Those that an executor has refused. */
	await_operations(purgatory, end);
	/* What a timeout's task does under that lock is over: see
	 * operation_free_locked. */
	(void)pool_end(purgatory, NULL);
}

int
hwt_purgatory_shutdown(struct hwt_purgatory *purgatory)
{
	int error = purgatory_enter(purgatory);
	struct operation *operation;
	uint32_t index = 1;
	uint32_t end;

	if (error != 0)
		return error;
	if (call_of(purgatory) != NULL)
		return -EDEADLK;
	close_shards(purgatory);
	deferred_close(purgatory);
	end = pool_end(purgatory, NULL);
	while ((operation = pool_next(purgatory, &index, end)) != NULL)
		end_operation(purgatory, operation);
	await_callbacks(purgatory);
	return 0;
}

static bool
has_pending(const struct hwt_purgatory *purgatory)
{
	struct shard *shard;
	uint64_t pending = 0;
	uint32_t i;

	for (i = 0; i < purgatory->shard_count; i++) {
		shard = &purgatory->shard[i];
		shard_lock(shard);
		pending += shard->pending;
		shard_unlock(shard);
	}
	return pending != 0;
}

static bool
executors_hold(const struct hwt_purgatory *purgatory)
{
	uint64_t held = 0;
	uint32_t i;

	for (i = 0; i < purgatory->shard_count; i++)
		held += a64_load_acquire(&purgatory->shard[i].held);
	return held != 0;
}

/* Nobody watches meanwhile, but an expiry may be in its last steps. */
int
hwt_purgatory_destroy(struct hwt_purgatory *purgatory)
{
	bool inherited;

	if (purgatory == NULL)
		return 0;
	if (call_of(purgatory) != NULL)
		return -EDEADLK;
	inherited = timer_is_foreign(purgatory->timer);
	if (!inherited) {
		if (has_pending(purgatory))
			return -EBUSY;
		await_callbacks(purgatory);
		if (executors_hold(purgatory))
			return -EBUSY;
	} else {
		deferred_free(purgatory);
	}
	shards_destroy(purgatory, inherited);
	free(purgatory);
	return 0;
}
