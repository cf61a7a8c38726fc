/* SPDX-License-Identifier: Apache-2.0 */
/* Making, shutting down and freeing a checkout. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "checkout.h"
#include "sys/pause.h"

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

static bool
options_are_valid(const struct hwt_checkout_options *options)
{
	if (options->executor != NULL && options->executor->execute == NULL)
		return false;
	return options->shards <= SHARDS_MAX &&
	    (options->shards & (options->shards - 1)) == 0 &&
	    name_is_short(options->name) && options->list_grants <= 1 &&
	    (options->hold_after <= UINT8_MAX ||
		options->hold_after == HWT_CHECKOUT_NEVER) &&
	    RESERVED_IS_ZERO(options);
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
	if (timer_is_foreign(timer))
		return -EOWNERDEAD;
	made = new_checkout(
	    options->shards != 0 ? options->shards : SHARDS_DEFAULT);
	if (made == NULL)
		return -ENOMEM;
	made->timer = timer;
	if (options->executor != NULL)
		made->executor = *options->executor;
	name_copy(made->name, options->name, "checkout");
	made->serial = a64_add_seq(&last_serial, 1) + 1;
	made->lists_grants = options->list_grants != 0;
	made->hold_after =
	    options->hold_after != 0 ? options->hold_after : HOLD_AFTER_DEFAULT;
	*checkout = made;
	return 0;
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

static uint64_t
waiting_now(const struct hwt_checkout *checkout)
{
	struct checkout_shard *shard = checkout->shards;
	uint64_t waiting = 0;

	for (; shard < checkout->shards + checkout->shard_count; shard++) {
		checkout_shard_lock(shard);
		waiting += shard->waiting;
		checkout_shard_unlock(shard);
	}
	return waiting;
}

/* When every granted has returned: nothing is out, nothing waits. A granted may
 * acquire, and what waits is counted in flight before it is not waiting any
 * more, both before it is not busy: so they are read in the other order, and
 * what was read while something was busy is no proof of rest. */
static bool
is_unused(const struct hwt_checkout *checkout)
{
	uint32_t tries = 0;
	bool quiet;

	do {
		quiet = a64_load_seq(&checkout->busy) == 0;
		if (waiting_now(checkout) != 0 ||
		    a64_load_seq(&checkout->handed) != 0 ||
		    count_in_flight(checkout) != 0)
			return false;
		if (!quiet)
			yield_or_pause(&tries);
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
	if (timer_is_foreign(checkout->timer)) {
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
