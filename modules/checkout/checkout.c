/* SPDX-License-Identifier: Apache-2.0 */
/* Making, shutting down and freeing a checkout, and its counters. */
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

int
hwt_checkout_create(struct hwt_checkout **checkout, struct hwt *timer,
    const struct hwt_checkout_options *options)
{
	static const struct hwt_checkout_options defaults;
	uint32_t shards = SHARDS_DEFAULT, i;
	struct hwt_checkout *made;

	if (options == NULL)
		options = &defaults;
	if (checkout == NULL || timer == NULL || options->shards > SHARDS_MAX ||
	    (options->shards & (options->shards - 1)) != 0 ||
	    (options->hold_after > UINT8_MAX &&
		options->hold_after != HWT_CHECKOUT_NEVER) ||
	    !RESERVED_IS_ZERO(options))
		return -EINVAL;
	if (timer_is_foreign(timer))
		return -EOWNERDEAD;
	if (options->shards != 0)
		shards = options->shards;
	made = alloc_lines(sizeof(*made) + shards * sizeof(*made->shards));
	if (made == NULL)
		return -ENOMEM;
	for (i = 0; i < shards; i++)
		made->shards[i].lock =
		    (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	made->shard_count = shards;
	made->gate.checkout = made;
	made->pause_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	made->came_back = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
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
	return 0;
}

/* When every granted has returned: nothing is out, nothing waits. A granted may
 * acquire, so what was read while something was busy is no proof of rest. */
static bool
is_unused(struct hwt_checkout *checkout)
{
	struct hwt_checkout_stats stats;
	uint32_t tries = 0;
	bool quiet;

	for (;;) {
		quiet = a64_load_seq(&checkout->busy) == 0;
		(void)hwt_checkout_read_stats(checkout, &stats);
		if (stats.waiting != 0 || count_out(checkout) != 0)
			return false;
		if (quiet)
			return true;
		yield_or_pause(&tries);
	}
}

int
hwt_checkout_destroy(struct hwt_checkout *checkout)
{
	uint32_t i;

	if (checkout == NULL)
		return 0;
	if (!timer_is_foreign(checkout->timer)) {
		if (checkout_queue.calls)
			return -EDEADLK;
		if (!is_unused(checkout))
			return -EBUSY;
		for (i = 0; i < checkout->shard_count; i++)
			(void)pthread_mutex_destroy(&checkout->shards[i].lock);
		(void)pthread_mutex_destroy(&checkout->pause_lock);
		(void)pthread_cond_destroy(&checkout->came_back);
	}
	free(checkout);
	return 0;
}

/* Counters. */

/* With the lock held. */
static void
add_shard(struct hwt_checkout_stats *stats, const struct shard *shard)
{
	const uint64_t *of = (const uint64_t *)&shard->stats;
	uint64_t released = a64_load_seq(&shard->released);
	uint64_t max_ns = stats->wait_ns_max;
	unsigned k;

	for (k = 0; k < sizeof(*stats) / sizeof(*of); k++)
		((uint64_t *)stats)[k] += of[k];
	stats->wait_ns_max = max_ns > shard->stats.wait_ns_max
	    ? max_ns
	    : shard->stats.wait_ns_max;
	stats->out +=
	    a64_load_seq(&shard->granted) - released + shard->pool_out;
	stats->released += released + shard->pool_released;
	stats->expired += shard->ended[HWT_GRANT_EXPIRED];
	stats->cancelled += shard->ended[HWT_GRANT_CANCELLED];
	stats->retired += shard->ended[HWT_GRANT_RETIRED];
	stats->shut_down += shard->ended[HWT_GRANT_SHUT_DOWN];
}

int
hwt_checkout_read_stats(
    const struct hwt_checkout *checkout, struct hwt_checkout_stats *stats)
{
	uint64_t since_ns = UINT64_MAX, now_ns;
	int error = checkout_enter(checkout);
	struct shard *shard;
	uint32_t i;

	if (error != 0 || stats == NULL)
		return error != 0 ? error : -EINVAL;
	memset(stats, 0, sizeof(*stats));
	/* A lock is no part of what is const. */
	shard = (struct shard *)(uintptr_t)checkout->shards;
	for (i = 0; i < checkout->shard_count; i++, shard++) {
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
