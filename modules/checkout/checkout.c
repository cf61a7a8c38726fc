/* SPDX-License-Identifier: Apache-2.0 */
/* Making, shutting down and freeing a checkout, and its counters. */
#define _GNU_SOURCE
#include <errno.h>

#include "checkout.h"
#include "sys/pause.h"

#define SHARDS_DEFAULT 64u
#define SHARDS_MAX (1u << 16)
#define HOLD_AFTER_DEFAULT 16u

_Static_assert(sizeof(struct request) <= sizeof(struct hwt_request),
    "a request fits into the user's memory");
_Static_assert(sizeof(struct object) == sizeof(struct hwt_object),
    "an object fits into the user's memory");
_Static_assert(sizeof(struct group) == sizeof(struct hwt_group),
    "a group fits into the user's memory");
_Static_assert(sizeof(struct request_item) == sizeof(struct hwt_item),
    "an item is what the user writes");

static bool
options_are_valid(const struct hwt_checkout_options *options)
{
	return options->shards <= SHARDS_MAX &&
	    (options->shards & (options->shards - 1)) == 0 &&
	    (options->hold_after <= UINT8_MAX ||
		options->hold_after == HWT_CHECKOUT_NEVER) &&
	    RESERVED_IS_ZERO(options);
}

static void
free_checkout(struct hwt_checkout *checkout)
{
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
	made->shards = alloc_lines(shards * sizeof(struct shard));
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
	made->hold_after =
	    options->hold_after != 0 ? options->hold_after : HOLD_AFTER_DEFAULT;
	*checkout = made;
	return 0;
}

int
hwt_checkout_shutdown(struct hwt_checkout *checkout)
{
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	a64_or_seq(&checkout->gate.word, RETIRED);
	pause_notify(checkout);
	requests_stop(checkout, NULL, HWT_GRANT_SHUT_DOWN);
	queue_run();
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
count_waiting(const struct hwt_checkout *checkout)
{
	struct shard *shard = checkout->shards;
	uint64_t waiting = 0;

	for (; shard < checkout->shards + checkout->shard_count; shard++) {
		shard_lock(shard);
		waiting += shard->waiting;
		shard_unlock(shard);
	}
	return waiting;
}

/* When every granted has returned: nothing is out, nothing waits. A granted may
 * acquire, and what waits is counted as out before it is not waiting any more,
 * both before it is not busy: so they are read in the other order, and what was
 * read while something was busy is no proof of rest. */
static bool
is_unused(const struct hwt_checkout *checkout)
{
	uint32_t tries = 0;
	bool quiet;

	do {
		quiet = a64_load_seq(&checkout->busy) == 0;
		if (count_waiting(checkout) != 0 || count_out(checkout) != 0)
			return false;
		if (!quiet)
			yield_or_pause(&tries);
	} while (!quiet);
	return true;
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
	if (checkout_queue.in_granted)
		return -EDEADLK;
	if (!is_unused(checkout))
		return -EBUSY;
	destroy_locks(checkout);
	free_checkout(checkout);
	return 0;
}

/* Counters. */

static void
add_waits(struct hwt_checkout_stats *stats, const struct waits *waits)
{
	unsigned k;

	stats->wait_ns_sum += waits->sum_ns;
	if (waits->max_ns > stats->wait_ns_max)
		stats->wait_ns_max = waits->max_ns;
	for (k = 0; k < WAIT_ELEMENTS; k++)
		stats->wait_ns_histogram[k] += waits->histogram[k];
}

/* With the lock held. */
static void
add_shard(struct hwt_checkout_stats *stats, const struct shard *shard)
{
	uint64_t word = a64_load_seq(&shard->out);

	stats->out += word & OUT_MASK;
	stats->released += (word >> OUT_BITS) +
	    (a64_load_relaxed(&shard->released_high) << OUT_BITS);
	stats->waiting += shard->waiting;
	stats->waited += shard->waited;
	stats->woken += shard->woken;
	stats->expired += shard->ended[HWT_GRANT_EXPIRED];
	stats->cancelled += shard->ended[HWT_GRANT_CANCELLED];
	stats->retired += shard->ended[HWT_GRANT_RETIRED];
	stats->shut_down += shard->ended[HWT_GRANT_SHUT_DOWN];
	add_waits(stats, &shard->waits);
}

int
hwt_checkout_read_stats(
    const struct hwt_checkout *checkout, struct hwt_checkout_stats *stats)
{
	uint64_t since_ns = UINT64_MAX, now_ns;
	int error = checkout_enter(checkout);
	struct shard *shard;

	if (error != 0 || stats == NULL)
		return error != 0 ? error : -EINVAL;
	memset(stats, 0, sizeof(*stats));
	for (shard = checkout->shards;
	     shard < checkout->shards + checkout->shard_count; shard++) {
		shard_lock(shard);
		add_shard(stats, shard);
		if (shard->list != NULL && shard->list->since_ns < since_ns)
			since_ns = shard->list->since_ns;
		shard_unlock(shard);
	}
	now_ns = checkout_now(checkout);
	if (since_ns < now_ns)
		stats->longest_wait_ns = now_ns - since_ns;
	stats->granted = stats->out + stats->released;
	stats->pauses = a64_load_relaxed(&checkout->pauses);
	return 0;
}
