/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of hwt_checkout.h.
 *
 * PAUSE. It closes the gate, and then nothing is out when the sum of in_flight
 * over all shards is 0: a request is counted before it reads the gate for the
 * last time, and until all that it held is released (E:pause in request.c).
 * Only the thread that pauses decides that; whoever counts down and finds the
 * gate closed tells it to look again. The gate is an object that the pause
 * holds: what meets it waits there.
 *
 * A PAUSE THAT IS TOLD is a request that pauses all. Whoever counts down then
 * looks for the sum himself, under pause_lock, and grants the request if it is
 * 0. The request becomes WAITING, and pauser, under that lock as well, when it
 * has found the sum not to be 0: so one of the two finds it. Whoever ends its
 * wait otherwise takes it from pauser under the lock before its memory can be
 * the caller's, and opens the gate.
 *
 * RETIRE. First nobody can take the object any more, and no ring has it. Then
 * the waits for sets with it end. What is being tried at that moment may still
 * look at the object: its mark keeps it from waiting again, and so the retiring
 * thread looks again until there is none. What is woken and waits for its turn
 * in a queue looks at its mark before it looks at an object.
 *
 * A wait that has just begun is tried before any list has it: until then only
 * the caller knows of it. acquire returns, and then it is listed; a thread that
 * blocks has acquire_wait_unlock, and a mutex of the user's in its place:
 *
 *        waits                                retires
 *        -----                                -------
 *   (A1) lock; find the object           (B1) lock; it is found no more; unlock
 *   (A2) try; if refused, list it        (B2) take the object; retire it
 *   (A3) unlock                          (B3) free it
 *
 *   Forbidden: A2 looks at what B3 has freed. If B1 is first, A1 does not find
 *   it. If A1 is first, A3 comes before B1: then the request is listed, and B2
 *   ends it; or it is granted, and B2 waits until it is released; or it has
 *   ended in vain. After A3, nothing but what is listed looks at the object.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "checkout.h"

#define SHARDS_DEFAULT 64u
#define SHARDS_MAX (1u << 16)
#define HOLD_AFTER_DEFAULT 16u

_Static_assert(sizeof(struct request) <= sizeof(struct hwt_request),
    "a request fits into the user's memory");
_Static_assert(sizeof(struct object) == sizeof(struct hwt_object),
    "an object fits into the user's memory");
_Static_assert(sizeof(struct object_group) == sizeof(struct hwt_group),
    "a group fits into the user's memory");
_Static_assert(sizeof(struct request_item) == sizeof(struct hwt_item),
    "an item is what the user writes");

/* In a child process of the one that made the timer. */
static bool
is_foreign(const struct hwt_checkout *checkout)
{
	return hwt_state(checkout->timer, (hwt_timeout){0}, NULL) ==
	    -EOWNERDEAD;
}

int
checkout_enter(const struct hwt_checkout *checkout)
{
	if (checkout == NULL)
		return -EINVAL;
	return is_foreign(checkout) ? -EOWNERDEAD : 0;
}

/* Making and freeing. */

static bool
options_are_valid(const struct hwt_checkout_options *options)
{
	static const char zero[sizeof(options->reserved)];

	if (options->executor != NULL && options->executor->execute == NULL)
		return false;
	return options->shards <= SHARDS_MAX &&
	    (options->shards & (options->shards - 1)) == 0 &&
	    stats_name_is_valid(options->name) && options->list_grants <= 1 &&
	    (options->hold_after <= UINT8_MAX ||
		options->hold_after == HWT_CHECKOUT_NEVER) &&
	    memcmp(options->reserved, zero, sizeof(zero)) == 0;
}

static void
free_checkout(struct hwt_checkout *checkout)
{
	struct group_slots *slots;

	while ((slots = checkout->slots) != NULL) {
		checkout->slots = slots->next;
		free(slots);
	}
	free(checkout->shards);
	free(checkout);
}

static struct hwt_checkout *
new_checkout(uint32_t shards)
{
	struct hwt_checkout *made = alloc_lines(sizeof(*made));
	uint32_t i;

	if (made == NULL)
		return NULL;
	made->shards = alloc_lines(shards * sizeof(struct checkout_shard));
	if (made->shards == NULL) {
		free_checkout(made);
		return NULL;
	}
	made->shard_count = shards;
	made->gate.checkout = made;
	made->pause_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	made->came_back = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	for (i = 0; i < shards; i++)
		made->shards[i].lock =
		    (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	return made;
}

static a64_t last_serial;

int
hwt_checkout_create(struct hwt_checkout **checkout, struct hwt *timer,
    const struct hwt_checkout_options *options)
{
	static const struct hwt_checkout_options defaults;
	struct hwt_checkout *made;

	if (options == NULL)
		options = &defaults;
	if (checkout == NULL || timer == NULL || !options_are_valid(options))
		return -EINVAL;
	if (hwt_state(timer, (hwt_timeout){0}, NULL) == -EOWNERDEAD)
		return -EOWNERDEAD;
	made = new_checkout(
	    options->shards != 0 ? options->shards : SHARDS_DEFAULT);
	if (made == NULL)
		return -ENOMEM;
	made->timer = timer;
	if (options->executor != NULL)
		made->executor = *options->executor;
	name_copy(
	    made->name, options->name != NULL ? options->name : "checkout");
	made->serial = a64_add_seq(&last_serial, 1) + 1;
	made->lists_grants = options->list_grants != 0;
	made->hold_after =
	    options->hold_after != 0 ? options->hold_after : HOLD_AFTER_DEFAULT;
	*checkout = made;
	return 0;
}

static bool
is_shut_down(const struct hwt_checkout *checkout)
{
	return a64_load_acquire(&checkout->gate.word) & RETIRED;
}

/* Requests that are tried or granted. */
static uint64_t
count_in_flight(const struct hwt_checkout *checkout)
{
	uint64_t count = 0;
	uint32_t i;

	for (i = 0; i < checkout->shard_count; i++)
		/* E:pause acquire */
		count += a64_load_seq(&checkout->shards[i].in_flight) &
		    IN_FLIGHT_MASK;
	return count;
}

int
hwt_checkout_shutdown(struct hwt_checkout *checkout)
{
	struct queue queue;
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	queue_begin(&queue);
	a64_or_seq(&checkout->gate.word, RETIRED);
	pause_notify(checkout);
	(void)requests_stop(checkout, NULL, HWT_GRANT_SHUT_DOWN);
	queue_end(&queue);
	return 0;
}

static void
destroy_locks(struct hwt_checkout *checkout)
{
	uint32_t i;

	for (i = 0; i < checkout->shard_count; i++)
		(void)pthread_mutex_destroy(&checkout->shards[i].lock);
	(void)pthread_mutex_destroy(&checkout->pause_lock);
	(void)pthread_cond_destroy(&checkout->came_back);
}

/* When every granted has returned: nothing is out, nothing waits. A granted may
 * acquire, and what waits is counted in flight before it is not waiting any
 * more, both before it is not busy: so they are read in the other order, and
 * what was read while something was busy is no proof of rest. */
static bool
is_unused(const struct hwt_checkout *checkout)
{
	bool quiet;

	do {
		quiet = a64_load_seq(&checkout->busy) == 0;
		if (waiting_now(checkout) != 0 ||
		    a64_load_seq(&checkout->handed) != 0 ||
		    count_in_flight(checkout) != 0)
			return false;
		if (!quiet)
			(void)sched_yield();
	} while (!quiet);
	return true;
}

/* A request has the pause. */
static bool
pause_is_out(struct hwt_checkout *checkout)
{
	bool out;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	out = checkout->paused && checkout->pause_is_told;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	return out;
}

int
hwt_checkout_destroy(struct hwt_checkout *checkout)
{
	if (checkout == NULL)
		return 0;
	if (is_foreign(checkout)) {
		free_checkout(checkout);
		return 0;
	}
	if (queue_in_granted())
		return -EDEADLK;
	if (!is_unused(checkout) || pause_is_out(checkout))
		return -EBUSY;
	destroy_locks(checkout);
	free_checkout(checkout);
	return 0;
}

/* Objects and requests. */

int
hwt_object_init(
    struct hwt_checkout *checkout, struct hwt_object *object, uint64_t order)
{
	struct object *made = (struct object *)object;
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (object == NULL)
		return -EINVAL;
	made->order = order;
	made->checkout = checkout;
	made->first = NULL;
	a64_store_release(&made->word, 0);
	return 0;
}

/* Takes the object out of the set of its holder's request; where there are no
 * ranks, it stays in it, and was not granted. With the lock of the request's
 * shard, as it may be listed. */
static void
request_forget(struct request *request, const struct object *object)
{
	uint32_t i;

	for (i = 0; i < request->count; i++) {
		if (object_at(request, i) != object)
			continue;
		if (request->flags & HAS_ITEMS)
			*object_granted(request, i) = NULL;
		if (request->rank_count == 0)
			return;
		request->count--;
		request->held--;
		memmove(&request->rank[i], &request->rank[i + 1],
		    request->count - i);
		return;
	}
}

/* No request names it, so none waits for it. */
static void
member_retire(struct object *member, struct request *holder)
{
	struct object_group *group = member->group;
	struct checkout_shard *shard =
	    checkout_shard_of(member->checkout, group);
	uint32_t i;

	checkout_shard_lock(request_shard(holder));
	for (i = 0; i < holder->count; i++) {
		if (*object_granted(holder, i) == member)
			*object_granted(holder, i) = NULL;
	}
	checkout_shard_unlock(request_shard(holder));
	checkout_shard_lock(shard);
	group->members--;
	(void)a64_swap_seq(&member->word, RETIRED);
	checkout_shard_unlock(shard);
}

/* Ends all waits for sets with it, which is in no ring any more. */
static void
stop_waits(struct hwt_checkout *checkout, const struct object *object)
{
	while (requests_stop(checkout, object, HWT_GRANT_RETIRED))
		(void)sched_yield();
}

int
hwt_object_retire(struct hwt_checkout *checkout, struct hwt_object *object)
{
	struct object *retired = (struct object *)object;
	struct request *holder;
	struct queue queue;
	uint64_t word;
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (retired == NULL || retired->checkout != checkout)
		return -EINVAL;
	word = a64_load_acquire(&retired->word);
	holder = (struct request *)(uintptr_t)(word & HOLDER_MASK);
	if (holder == NULL || word & SHARED ||
	    word_state(a64_load_acquire(&holder->word)) != STATE_GRANTED)
		return -EPERM;
	if (word & MEMBER) {
		member_retire(retired, holder);
		return 0;
	}
	queue_begin(&queue);
	checkout_shard_lock(request_shard(holder));
	request_forget(holder, retired);
	checkout_shard_unlock(request_shard(holder));
	object_close(retired);
	stop_waits(checkout, retired);
	queue_end(&queue);
	return 0;
}

/* Groups. */

/* Slots that no group has are kept: a request that began beside a retirement
 * may still look into them (see slots_take). NULL: no memory, and the group is
 * without. */
static struct group_slots *
slots_new(struct hwt_checkout *checkout)
{
	struct group_slots *made;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	made = checkout->unused;
	if (made != NULL)
		checkout->unused = made->next_unused;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (made != NULL || (made = alloc_lines(sizeof(*made))) == NULL)
		return made;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	made->next = checkout->slots;
	checkout->slots = made;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	return made;
}

/* They are empty. */
static void
slots_drop(struct hwt_checkout *checkout, struct group_slots *slots)
{
	if (slots == NULL)
		return;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	slots->next_unused = checkout->unused;
	checkout->unused = slots;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
}

int
hwt_group_init(
    struct hwt_checkout *checkout, struct hwt_group *group, uint64_t order)
{
	struct object_group *made = (struct object_group *)group;
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (group == NULL)
		return -EINVAL;
	memset(group, 0, sizeof(*group));
	made->any.order = order;
	made->any.checkout = checkout;
	made->slots = slots_new(checkout);
	a64_store_release(&made->any.word, GROUP | IN_USE);
	return 0;
}

/* A group of this checkout. */
static int
enter_group(struct hwt_checkout *checkout, const struct object_group *group)
{
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (group == NULL || group->any.checkout != checkout)
		return -EINVAL;
	return (a64_load_relaxed(&group->any.word) & GROUP) ? 0 : -EIDRM;
}

int
hwt_group_add(struct hwt_checkout *checkout, struct hwt_group *group,
    struct hwt_object *object)
{
	struct object_group *to = (struct object_group *)group;
	struct object *member = (struct object *)object;
	struct checkout_shard *shard;
	struct queue queue;
	int error = enter_group(checkout, to);

	if (error != 0)
		return error;
	if (object == NULL)
		return -EINVAL;
	shard = checkout_shard_of(checkout, to);
	checkout_shard_lock(shard);
	if (a64_load_relaxed(&to->any.word) & GROUP)
		to->members++;
	else
		error = -EIDRM;
	checkout_shard_unlock(shard);
	if (error != 0)
		return error;
	member->checkout = checkout;
	member->group = to;
	a64_store_release(&member->word, MEMBER | IN_USE);
	queue_begin(&queue);
	group_give(to, member);
	queue_end(&queue);
	return 0;
}

int
hwt_group_retire(struct hwt_checkout *checkout, struct hwt_group *group)
{
	struct object_group *retired = (struct object_group *)group;
	struct queue queue;
	int error = enter_group(checkout, retired);

	if (error != 0)
		return error;
	error = group_close(retired);
	if (error != 0)
		return error;
	queue_begin(&queue);
	stop_waits(checkout, &retired->any);
	slots_drop(checkout, retired->slots);
	queue_end(&queue);
	return 0;
}

static struct object *
named(const struct request *request, size_t i)
{
	return request->flags & HAS_ITEMS ? request->items[i].wanted
					  : request->objects[i];
}

static enum hwt_use
named_use(const struct request *request, size_t i)
{
	return request->flags & HAS_ITEMS ? request->items[i].use : HWT_WRITE;
}

/* Whether it may be in a set: with a group, the caller must learn which member
 * it has got, and writes. */
static bool
may_be_named(const struct request *request, size_t i)
{
	const struct object *object = named(request, i);
	enum hwt_use use = named_use(request, i);
	uint64_t word;

	if (object == NULL || object->checkout == NULL ||
	    (use != HWT_WRITE && use != HWT_READ))
		return false;
	word = a64_load_relaxed(&object->word);
	if (word & GROUP)
		return request->flags & HAS_ITEMS && use == HWT_WRITE;
	return !(word & MEMBER);
}

/* An object is named by both. */
static int
error_of_two(const struct request *request, size_t a, size_t b)
{
	return named_use(request, a) != named_use(request, b) ? -ENOTSUP
							      : -EINVAL;
}

static int
check_set(const struct request *request, size_t count, bool *ascending)
{
	const struct object *object, *previous = NULL;
	size_t i;

	*ascending = true;
	for (i = 0; i < count; i++) {
		object = named(request, i);
		if (!may_be_named(request, i) ||
		    object->checkout != named(request, 0)->checkout)
			return -EINVAL;
		if (object == previous)
			return error_of_two(request, i - 1, i);
		if (previous != NULL && !object_precedes(previous, object))
			*ascending = false;
		previous = object;
	}
	return 0;
}

/* By insertion. */
static int
rank_objects(struct request *request, size_t count)
{
	uint8_t *rank = request->rank;
	const struct object *object;
	size_t i, k;

	for (i = 0; i < count; i++) {
		object = named(request, i);
		for (k = i; k > 0 &&
		     object_precedes(object, named(request, rank[k - 1]));
		     k--)
			rank[k] = rank[k - 1];
		if (k > 0 && named(request, rank[k - 1]) == object)
			return error_of_two(request, rank[k - 1], i);
		rank[k] = (uint8_t)i;
	}
	request->rank_count = (uint8_t)count;
	return 0;
}

/* made has what the caller gave, and the rest 0. */
static int
request_make(struct hwt_request *request, struct request *made, size_t count)
{
	bool ascending;
	size_t i;
	int error;

	if (request == NULL || made->objects == NULL || count == 0 ||
	    count > UINT32_MAX)
		return -EINVAL;
	error = check_set(made, count, &ascending);
	if (error == 0 && count <= RANKS)
		error = rank_objects(made, count);
	else if (error == 0 && !ascending)
		error = -E2BIG;
	if (error != 0)
		return error;
	for (i = 0; i < count && made->flags & HAS_ITEMS; i++) {
		made->items[i].granted = NULL;
		if (made->items[i].use == HWT_READ)
			made->flags |= HAS_READS;
	}
	made->count = (uint32_t)count;
	if (made->checkout != NULL &&
	    made->checkout != named(made, 0)->checkout)
		return -EINVAL;
	made->checkout = named(made, 0)->checkout;
	memset(request, 0, sizeof(*request));
	*(struct request *)request = *made;
	request_store((struct request *)request, STATE_READY);
	return 0;
}

int
hwt_request_init(struct hwt_request *request, struct hwt_object *const *objects,
    size_t count, hwt_granted *granted, void *arg)
{
	struct request made = {.objects = (struct object *const *)objects,
	    .granted = granted,
	    .arg = arg};

	return request_make(request, &made, count);
}

int
hwt_request_init_items(struct hwt_request *request, struct hwt_item *items,
    size_t count, hwt_granted *granted, void *arg)
{
	struct request made = {.items = (struct request_item *)items,
	    .flags = HAS_ITEMS,
	    .granted = granted,
	    .arg = arg};

	return request_make(request, &made, count);
}

int
hwt_request_init_pause(struct hwt_checkout *checkout,
    struct hwt_request *request, struct hwt_object *const *objects,
    size_t count, hwt_granted *granted, void *arg)
{
	struct request made = {.objects = (struct object *const *)objects,
	    .flags = count > 0 ? PAUSES : PAUSES_ALL,
	    .granted = granted,
	    .checkout = checkout,
	    .arg = arg};
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (count > 0)
		return request_make(request, &made, count);
	if (request == NULL || objects != NULL)
		return -EINVAL;
	memset(request, 0, sizeof(*request));
	*(struct request *)request = made;
	request_store((struct request *)request, STATE_READY);
	return 0;
}

/* A request of this checkout. */
static int
enter_request(
    const struct hwt_checkout *checkout, const struct request *request)
{
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (request == NULL ||
	    (a64_load_acquire(&request->word) & MAGIC_MASK) != MAGIC ||
	    request->checkout != checkout)
		return -EINVAL;
	return 0;
}

static bool
request_move(struct request *request, enum state from, enum state to)
{
	return a64_cas_seq(&request->word, MAGIC | from, MAGIC | to);
}

/* It is in use: there is no upgrade of what it reads. */
static int
error_of_use(struct request *request)
{
	return request->flags & HAS_READS &&
		word_state(a64_load_acquire(&request->word)) == STATE_GRANTED
	    ? -ENOTSUP
	    : -EBUSY;
}

/* begin_try has answered that, and left it as it is. */
static bool
is_in_use(int error)
{
	return error == -EBUSY || error == -ENOTSUP;
}

int
grant_error(enum hwt_grant grant)
{
	switch (grant) {
	case HWT_GRANTED:
		return 0;
	case HWT_GRANT_EXPIRED:
		return -ETIMEDOUT;
	case HWT_GRANT_CANCELLED:
		return -ECANCELED;
	case HWT_GRANT_RETIRED:
		return -EIDRM;
	default:
		return -ESHUTDOWN;
	}
}

/* Tries a request that is READY. */
static int
begin_try(struct request *request, struct object **refused)
{
	enum hwt_grant grant;
	int error;

	if (!request_move(request, STATE_READY, STATE_TRYING))
		return error_of_use(request);
	request->held = 0;
	request->refusals = 0;
	*refused = &request->checkout->gate;
	if (request->flags & PAUSES_ALL) {
		error = pause_all_try(request);
		if (error == 0)
			request_store_granted(request);
		return error;
	}
	if (request->count == 0)
		return -EIDRM;
	*refused = request_try(request);
	if (*refused == NULL) {
		request_store_granted(request);
		return 0;
	}
	grant = refusal_of(*refused);
	return grant != 0 ? grant_error(grant) : -EAGAIN;
}

/* Refused, and it does not wait. */
static void
end_try(struct request *request)
{
	request_drop(request);
	if (request->refusals > 0 && request->flags & PAUSES_ALL)
		pause_all_end(request->checkout);
	request_store(request, STATE_READY);
}

int
hwt_checkout_try(struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct request *tried = (struct request *)request;
	struct object *refused;
	struct queue queue;
	int error = enter_request(checkout, tried);

	if (error != 0)
		return error;
	queue_begin(&queue);
	error = begin_try(tried, &refused);
	if (error != 0 && !is_in_use(error))
		end_try(tried);
	queue_end(&queue);
	return error;
}

/* Whoever retired an object before the request was listed did not find it:
 * then it is ended here, and does not wait for another one before. */
static struct object *
first_retired(const struct request *request, struct object *refused)
{
	uint32_t i;

	for (i = 0; i < request->count; i++) {
		if (a64_load_acquire(&object_at(request, i)->word) & RETIRED)
			return object_at(request, i);
	}
	return refused;
}

/* blocked: NULL, or this thread's; mutex: NULL, or the caller's. */
static int
acquire(struct request *request, uint64_t delay_ns, struct blocked *blocked,
    pthread_mutex_t *mutex)
{
	struct object *refused;
	struct queue queue;
	int error;

	queue_begin(&queue);
	error = begin_try(request, &refused);
	if (error == -EAGAIN && blocked != NULL && mutex == NULL) {
		refused = request_try_long(request, refused);
		if (refused == NULL) {
			request_store_granted(request);
			error = 0;
		}
	}
	if (error == -EAGAIN) {
		request->blocked = blocked;
		error = request_enlist(request, delay_ns);
		if (error == 0) {
			request_settle(
			    request, first_retired(request, refused));
			error = 1;
		}
	}
	if (error < 0 && !is_in_use(error))
		end_try(request);
	/* No object is looked at any more, but as one that waits does. */
	if (mutex != NULL)
		(void)pthread_mutex_unlock(mutex);
	queue_end(&queue);
	return error;
}

static bool
delay_is_valid(uint64_t delay_ns)
{
	return delay_ns <= INT64_MAX || delay_ns == HWT_NEVER;
}

int
hwt_checkout_acquire(struct hwt_checkout *checkout, struct hwt_request *request,
    uint64_t delay_ns)
{
	struct request *acquired = (struct request *)request;
	int error = enter_request(checkout, acquired);

	if (error != 0)
		return error;
	if (acquired->granted == NULL || !delay_is_valid(delay_ns))
		return -EINVAL;
	return acquire(acquired, delay_ns, NULL, NULL);
}

/* Woken, the thread tries its request itself. */
static enum hwt_grant
await_grant(struct request *request, struct blocked *blocked)
{
	enum hwt_grant grant;
	bool woken;

	do {
		(void)pthread_mutex_lock(&blocked->lock);
		while (!blocked->woken && blocked->grant == 0)
			(void)pthread_cond_wait(&blocked->told, &blocked->lock);
		grant = blocked->grant;
		woken = blocked->woken;
		blocked->woken = false;
		(void)pthread_mutex_unlock(&blocked->lock);
		if (woken)
			request_resume(request);
	} while (grant == 0);
	return grant;
}

static int
enter_blocking(const struct hwt_checkout *checkout,
    const struct request *request, uint64_t delay_ns)
{
	int error = enter_request(checkout, request);

	if (error != 0)
		return error;
	if (!delay_is_valid(delay_ns))
		return -EINVAL;
	return queue_in_granted() ? -EDEADLK : 0;
}

static int
acquire_wait(struct request *request, uint64_t delay_ns, pthread_mutex_t *mutex)
{
	struct blocked blocked = {.lock = PTHREAD_MUTEX_INITIALIZER,
	    .told = PTHREAD_COND_INITIALIZER};
	int result = acquire(request, delay_ns, &blocked, mutex);

	if (result != 1)
		return result;
	result = grant_error(await_grant(request, &blocked));
	(void)pthread_cond_destroy(&blocked.told);
	(void)pthread_mutex_destroy(&blocked.lock);
	return result;
}

int
hwt_checkout_acquire_wait(struct hwt_checkout *checkout,
    struct hwt_request *request, uint64_t delay_ns)
{
	struct request *acquired = (struct request *)request;
	int error = enter_blocking(checkout, acquired, delay_ns);

	return error != 0 ? error : acquire_wait(acquired, delay_ns, NULL);
}

int
hwt_checkout_acquire_wait_unlock(struct hwt_checkout *checkout,
    struct hwt_request *request, uint64_t delay_ns, pthread_mutex_t *mutex)
{
	struct request *acquired = (struct request *)request;
	int error;

	if (mutex == NULL)
		return -EINVAL;
	error = enter_blocking(checkout, acquired, delay_ns);
	if (error == 0)
		return acquire_wait(acquired, delay_ns, mutex);
	(void)pthread_mutex_unlock(mutex);
	return error;
}

int
hwt_request_run(struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct request *handed = (struct request *)request;
	int error = enter_request(checkout, handed);

	return error != 0 ? error : request_run(handed, 0);
}

int
hwt_checkout_release(struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct request *released = (struct request *)request;
	struct queue queue;
	int error = enter_request(checkout, released);

	if (error != 0)
		return error;
	if (!request_move(released, STATE_GRANTED, STATE_ENDED))
		return -ENOENT;
	request_unlist_granted(released);
	queue_begin(&queue);
	if (released->flags & PAUSES_ALL)
		pause_all_end(checkout);
	else
		request_give(released, 1);
	request_store(released, STATE_READY);
	queue_end(&queue);
	return 0;
}

int
hwt_checkout_cancel(struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct request *cancelled = (struct request *)request;
	struct queue queue;
	int error = enter_request(checkout, cancelled);

	if (error != 0)
		return error;
	queue_begin(&queue);
	error = request_stop(cancelled, HWT_GRANT_CANCELLED);
	queue_end(&queue);
	return error;
}

/* Pause. */

/* With pause_lock. */
static bool
pause_declare(struct hwt_checkout *checkout)
{
	if (count_in_flight(checkout) != 0)
		return false;
	checkout->paused = true;
	(void)a64_add_seq(&checkout->pauses, 1);
	return true;
}

void
pause_notify(struct hwt_checkout *checkout)
{
	struct request *granted = NULL;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	(void)pthread_cond_signal(&checkout->came_back);
	if (checkout->pauser != NULL && count_in_flight(checkout) == 0 &&
	    request_grant(checkout->pauser)) {
		granted = checkout->pauser;
		checkout->pauser = NULL;
		(void)pause_declare(checkout);
	}
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (granted != NULL)
		request_end(granted, HWT_GRANTED);
}

/* A call of hwt_checkout_pause; another may begin before its timeout has ended,
 * when another thread resumes. */
struct pauser {
	struct hwt_checkout *checkout;
	bool expired; /* under pause_lock */
};

static void
pause_expire(hwt_timeout timeout, void *arg)
{
	struct pauser *pauser = arg;
	struct hwt_checkout *checkout = pauser->checkout;

	(void)timeout;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	pauser->expired = true;
	(void)pthread_cond_signal(&checkout->came_back);
	(void)pthread_mutex_unlock(&checkout->pause_lock);
}

/* Closes the gate. */
static int
pause_begin(struct hwt_checkout *checkout, bool is_told)
{
	int error = 0;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	if (is_shut_down(checkout))
		error = -ESHUTDOWN;
	else if (checkout->pause_begun)
		error = -EALREADY;
	if (error == 0) {
		checkout->pause_begun = true;
		checkout->pause_is_told = is_told;
		/* E:pause fence: close the gate, then read in_flight. */
		a64_or_seq(&checkout->gate.word, IN_USE);
	}
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (error == 0)
		requests_let_go(checkout);
	return error;
}

/* Until nothing is out. */
static int
pause_await(const struct pauser *pauser)
{
	struct hwt_checkout *checkout = pauser->checkout;
	bool paused;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	paused = pause_declare(checkout);
	while (!paused && !pauser->expired && !is_shut_down(checkout)) {
		(void)pthread_cond_wait(
		    &checkout->came_back, &checkout->pause_lock);
		paused = pause_declare(checkout);
	}
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (!paused)
		return is_shut_down(checkout) ? -ESHUTDOWN : -ETIMEDOUT;
	return 0;
}

static void
pause_end(struct hwt_checkout *checkout)
{
	struct queue queue;

	queue_begin(&queue);
	gate_open(checkout);
	(void)pthread_mutex_lock(&checkout->pause_lock);
	checkout->pause_begun = false;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	queue_end(&queue);
}

int
pause_all_try(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	int error = pause_begin(checkout, true);
	bool paused;

	if (error != 0)
		return error;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	paused = pause_declare(checkout);
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	/* Now the pause is its own, to be ended. */
	request->refusals = 1;
	return paused ? 0 : -EAGAIN;
}

void
pause_all_settle(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	enum hwt_grant grant = HWT_GRANTED;
	bool waits = false;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	if (!pause_declare(checkout)) {
		waits = request_enter_wait(request);
		if (waits)
			checkout->pauser = request;
		else
			grant = word_grant(a64_load_acquire(&request->word));
	}
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (!waits)
		request_end(request, grant);
}

void
pause_all_unlink(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;

	/* It is pauser: there is one pause at a time. */
	(void)pthread_mutex_lock(&checkout->pause_lock);
	checkout->pauser = NULL;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
}

void
pause_all_end(struct hwt_checkout *checkout)
{
	(void)pthread_mutex_lock(&checkout->pause_lock);
	checkout->paused = false;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	pause_end(checkout);
}

static int
pause_within(struct pauser *pauser)
{
	int error = pause_begin(pauser->checkout, false);

	if (error != 0)
		return error;
	error = pause_await(pauser);
	if (error != 0)
		pause_end(pauser->checkout);
	return error;
}

int
hwt_checkout_pause(struct hwt_checkout *checkout, uint64_t delay_ns)
{
	struct pauser pauser = {checkout, delay_ns == 0};
	bool armed = delay_ns != 0 && delay_ns != HWT_NEVER;
	hwt_timeout timeout = {0};
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (!delay_is_valid(delay_ns))
		return -EINVAL;
	if (queue_in_granted())
		return -EDEADLK;
	/* First, so that a pause that cannot be closes no gate. */
	if (armed)
		error = hwt_new_timeout(
		    checkout->timer, &timeout, pause_expire, &pauser, delay_ns);
	if (error != 0)
		return error;
	error = pause_within(&pauser);
	if (armed)
		(void)!hwt_cancel_wait(checkout->timer, timeout);
	return error;
}

int
hwt_checkout_resume(struct hwt_checkout *checkout)
{
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	if (!checkout->pause_begun)
		error = -EALREADY;
	else if (!checkout->paused || checkout->pause_is_told)
		error = -EBUSY;
	else
		checkout->paused = false;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (error == 0)
		pause_end(checkout);
	return error;
}
