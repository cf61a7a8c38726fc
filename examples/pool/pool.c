/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool. Its slots are the members of a group; a slot has a connection or
 * none. As slots that were released a moment ago are taken first,
 * the connections in use are few and warm, and the others become idle.
 *
 * The holder of a slot takes its connection out, or makes one. Tasks, which
 * cannot hold a slot, work on it with its lock, and leave it alone while it has
 * a holder: they close what is idle or old, and connect. So a slot never has
 * two connections. Who gets a slot while a task connects waits for that, and so
 * does a pause, which finds each connection in its slot and closes it; until it
 * ends no task connects. Tasks that may wait for a server run on a thread of
 * their own, beside the timer's worker, which ends the waits of takers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../must.h"
#include "pool.h"

enum {
	LINE_SIZE = 160,
	MOST_MAX = 10000
};

struct link {
	redisContext *redis;
	uint64_t old_ns; /* when its age ends */
	uint64_t idle_ns; /* since when */
};

struct pool_slot {
	struct hwt_object object; /* the first: a member of the group */
	struct pool *pool;
	struct link *own; /* the holder's */
	hwt_timeout idle, leak; /* the holder touches and cancels them */
	pthread_mutex_t lock; /* of what follows */
	struct link *link; /* NULL: none, or its holder has it */
	const char *who; /* the holder; NULL: none */
	uint64_t since_ns;
};

enum count {
	OPEN,
	FAILED,
	MADE,
	CLOSED_IDLE,
	CLOSED_OLD,
	CLOSED_BROKEN,
	CLOSED_PAUSE,
	LEAKS,
	COUNTS
};

struct pool {
	struct pool_options options;
	struct hwt *timer;
	struct hwt_pool *thread;
	const struct hwt_executor *executor;
	struct hwt_checkout *checkout;
	struct hwt_group group;
	hwt_timeout upkeep;
	_Atomic uint64_t count[COUNTS], random;
	_Atomic bool paused;
	struct pool_slot *slot; /* options.most */
};

static uint64_t
now_ns(void)
{
	struct timespec now;

	must(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

static uint64_t
later(uint64_t now, uint64_t delay_ns)
{
	return delay_ns >= HWT_NEVER - now ? HWT_NEVER : now + delay_ns;
}

/* Connections. */

/* 0 to below limit; of a sequence that all threads share. */
static uint64_t
draw(struct pool *pool, uint64_t limit)
{
	uint64_t x = atomic_fetch_add(&pool->random, 0x9e3779b97f4a7c15u);

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return limit == 0 ? 0 : (x ^ (x >> 31)) % limit;
}

static int
error_of(const redisContext *redis)
{
	int error = errno; /* hiredis leaves it as the call did */

	if (redis == NULL || redis->err == REDIS_ERR_OOM)
		return -ENOMEM;
	if (redis->err != REDIS_ERR_IO)
		return -ECONNREFUSED;
	return error == EAGAIN || error <= 0 ? -ETIMEDOUT : -error;
}

/* NULL: why it failed is in *error. */
static struct link *
link_make(struct pool *pool, int *error)
{
	const struct pool_options *options = &pool->options;
	const struct timeval limit = {
	    .tv_sec = (time_t)(options->connect_ns / HWT_SEC(1)),
	    .tv_usec = (suseconds_t)(options->connect_ns % HWT_SEC(1) / 1000)};
	uint64_t age_ns = options->age_ns;
	struct link *link = calloc(1, sizeof(*link));

	*error = -ENOMEM;
	if (link == NULL)
		return NULL;
	link->redis =
	    redisConnectWithTimeout(options->host, options->port, limit);
	if (link->redis == NULL || link->redis->err != 0 ||
	    redisSetTimeout(link->redis, limit) != REDIS_OK) {
		*error = error_of(link->redis);
		if (link->redis != NULL)
			redisFree(link->redis);
		free(link);
		return NULL;
	}
	if (age_ns != HWT_NEVER)
		age_ns -= draw(pool, age_ns / 10 + 1);
	link->idle_ns = now_ns();
	link->old_ns = later(link->idle_ns, age_ns);
	atomic_fetch_add(&pool->count[OPEN], 1);
	atomic_fetch_add(&pool->count[MADE], 1);
	return link;
}

static void
link_close(struct pool *pool, struct link *link, enum count why)
{
	atomic_fetch_sub(&pool->count[OPEN], 1);
	atomic_fetch_add(&pool->count[why], 1);
	redisFree(link->redis);
	free(link);
}

static bool
link_answers(struct link *link)
{
	redisReply *reply = redisCommand(link->redis, "PING");
	bool answers = reply != NULL && reply->type != REDIS_REPLY_ERROR;

	freeReplyObject(reply);
	return answers;
}

/* False: it is of no use, and closed. */
static bool
link_check(struct pool *pool, struct link *link)
{
	uint64_t now = now_ns();

	if (now >= link->old_ns)
		link_close(pool, link, CLOSED_OLD);
	else if (now - link->idle_ns >= pool->options.check_ns &&
	    !link_answers(link))
		link_close(pool, link, CLOSED_BROKEN);
	else
		return true;
	return false;
}

/* Slots. */

static void
lock(struct pool_slot *slot)
{
	must(pthread_mutex_lock(&slot->lock) == 0);
}

static void
unlock(struct pool_slot *slot)
{
	must(pthread_mutex_unlock(&slot->lock) == 0);
}

/* For its new holder: the connection; NULL: there is none. */
static struct link *
slot_begin(struct pool_slot *slot, const char *who)
{
	struct link *link;

	lock(slot);
	link = slot->link;
	slot->link = NULL;
	slot->who = who;
	slot->since_ns = now_ns();
	unlock(slot);
	return link;
}

/* link may be NULL. */
static void
slot_end(struct pool_slot *slot, struct link *link)
{
	if (link != NULL)
		link->idle_ns = now_ns();
	lock(slot);
	slot->link = link;
	slot->who = NULL;
	unlock(slot);
}

/* With the lock held. */
static void
slot_empty(struct pool_slot *slot, enum count why)
{
	if (slot->link != NULL)
		link_close(slot->pool, slot->link, why);
	slot->link = NULL;
}

/* Tasks, on the pool's thread. */

/* In the moment of a release, what is idle is new again: that touches. */
static void
idle_over(hwt_timeout timeout, void *arg)
{
	struct pool_slot *slot = arg;
	struct pool *pool = slot->pool;

	(void)timeout;
	lock(slot);
	if (slot->link != NULL &&
	    now_ns() - slot->link->idle_ns >= pool->options.idle_ns &&
	    atomic_load(&pool->count[OPEN]) > pool->options.least)
		slot_empty(slot, CLOSED_IDLE);
	unlock(slot);
}

static void
warn(struct pool *pool, const char *line)
{
	if (pool->options.warn != NULL)
		pool->options.warn(line);
	else
		(void)fprintf(stderr, "%s\n", line);
}

static void
leak_found(hwt_timeout timeout, void *arg)
{
	struct pool_slot *slot = arg;
	struct pool *pool = slot->pool;
	const char *who;
	uint64_t held_ns;
	char line[LINE_SIZE];

	(void)timeout;
	lock(slot);
	who = slot->who;
	held_ns = now_ns() - slot->since_ns;
	unlock(slot);
	/* It has been released in this moment, and perhaps taken again. */
	if (who == NULL || held_ns < pool->options.leak_ns)
		return;
	atomic_fetch_add(&pool->count[LEAKS], 1);
	(void)snprintf(line, sizeof(line),
	    "pool: connection %d has been held for %.3f s by %s",
	    (int)(slot - pool->slot), (double)held_ns / 1e9, who);
	warn(pool, line);
}

static void
slot_age(struct pool_slot *slot)
{
	lock(slot);
	if (slot->link != NULL && now_ns() >= slot->link->old_ns)
		slot_empty(slot, CLOSED_OLD);
	unlock(slot);
}

static int
slot_fill(struct pool_slot *slot)
{
	int error = 0;

	lock(slot);
	if (slot->link == NULL && slot->who == NULL &&
	    !atomic_load(&slot->pool->paused))
		slot->link = link_make(slot->pool, &error);
	error = slot->link != NULL ? 0 : error;
	unlock(slot);
	return error;
}

static int
fill(struct pool *pool)
{
	unsigned i;
	int error = 0;

	for (i = 0; i < pool->options.most && error == 0 &&
	     atomic_load(&pool->count[OPEN]) < pool->options.least;
	     i++)
		error = slot_fill(&pool->slot[i]);
	return error;
}

/* Each second: what is old goes, and what is missing comes. A server that is
 * away is asked again. */
static void
upkeep(hwt_timeout timeout, void *arg)
{
	struct pool *pool = arg;
	unsigned i;

	(void)timeout;
	for (i = 0; i < pool->options.most; i++)
		slot_age(&pool->slot[i]);
	(void)fill(pool);
}

/* Takers. */

int
pool_take(struct pool *pool, struct pool_hold *hold, const char *who)
{
	struct pool_slot *slot;
	int error;

	hold->item = (struct hwt_item){.wanted = &pool->group.any};
	error =
	    hwt_request_init_items(&hold->request, &hold->item, 1, NULL, NULL);
	if (error == 0)
		error = hwt_checkout_acquire_wait(
		    pool->checkout, &hold->request, pool->options.wait_ns);
	if (error != 0)
		return error;
	slot = (struct pool_slot *)hold->item.granted;
	slot->own = slot_begin(slot, who != NULL ? who : "somebody");
	if (slot->own == NULL || !link_check(pool, slot->own))
		slot->own = link_make(pool, &error);
	if (slot->own == NULL) {
		atomic_fetch_add(&pool->count[FAILED], 1);
		slot_end(slot, NULL);
		must(hwt_checkout_release(pool->checkout, &hold->request) == 0);
		return error;
	}
	hold->slot = slot;
	hold->redis = slot->own->redis;
	/* Without memory there is no warning. */
	if (pool->options.leak_ns != HWT_NEVER)
		(void)!hwt_new_timeout_on(pool->timer, pool->executor,
		    &slot->leak, leak_found, slot, pool->options.leak_ns);
	return 0;
}

void
pool_release(struct pool *pool, struct pool_hold *hold)
{
	struct pool_slot *slot = hold->slot;
	struct link *link = slot->own;

	if (pool->options.leak_ns != HWT_NEVER)
		(void)!hwt_cancel(pool->timer, slot->leak);
	if (link->redis->err != 0) {
		link_close(pool, link, CLOSED_BROKEN);
		link = NULL;
	} else if (now_ns() >= link->old_ns) {
		link_close(pool, link, CLOSED_OLD);
		link = NULL;
	}
	slot_end(slot, link);
	if (link != NULL && pool->options.idle_ns != HWT_NEVER)
		(void)!hwt_touch(pool->timer, pool->executor, &slot->idle,
		    idle_over, slot, pool->options.idle_ns);
	hold->redis = NULL;
	must(hwt_checkout_release(pool->checkout, &hold->request) == 0);
}

int
pool_pause(struct pool *pool, uint64_t within_ns)
{
	unsigned i;
	int error = hwt_checkout_pause(pool->checkout, within_ns);

	if (error != 0)
		return error;
	atomic_store(&pool->paused, true);
	for (i = 0; i < pool->options.most; i++) {
		lock(&pool->slot[i]);
		slot_empty(&pool->slot[i], CLOSED_PAUSE);
		unlock(&pool->slot[i]);
	}
	return 0;
}

int
pool_resume(struct pool *pool)
{
	atomic_store(&pool->paused, false);
	return hwt_checkout_resume(pool->checkout);
}

/* Statistics. */

void
pool_read_stats(struct pool *pool, struct pool_stats *stats)
{
	struct hwt_checkout_stats checkout;

	must(hwt_checkout_read_stats(pool->checkout, &checkout) == 0);
	*stats = (struct pool_stats){
	    .open = atomic_load(&pool->count[OPEN]),
	    .out = checkout.out,
	    .waiting = checkout.waiting,
	    .taken = checkout.granted - atomic_load(&pool->count[FAILED]),
	    .waited = checkout.waited,
	    .expired = checkout.expired,
	    .failed = atomic_load(&pool->count[FAILED]),
	    .made = atomic_load(&pool->count[MADE]),
	    .closed_idle = atomic_load(&pool->count[CLOSED_IDLE]),
	    .closed_old = atomic_load(&pool->count[CLOSED_OLD]),
	    .closed_broken = atomic_load(&pool->count[CLOSED_BROKEN]),
	    .closed_pause = atomic_load(&pool->count[CLOSED_PAUSE]),
	    .leaks = atomic_load(&pool->count[LEAKS]),
	    .pauses = checkout.pauses,
	};
}

/* Of what is counted here, in the order of enum count. */
static void
write_counts(struct pool *pool, FILE *file, enum hwt_format format)
{
	static const char *const name[COUNTS] = {"open", "failed", "made",
	    "closed_idle", "closed_old", "closed_broken", "closed_pause",
	    "leaks"};
	unsigned i;

	for (i = 0; i < COUNTS; i++) {
		unsigned long long value = atomic_load(&pool->count[i]);

		if (format == HWT_JSON) {
			(void)fprintf(file, "%c\"%s\":%llu", i == 0 ? '{' : ',',
			    name[i], value);
			continue;
		}
		if (format == HWT_PROMETHEUS)
			(void)fprintf(file, "# TYPE pool_%s%s %s\n", name[i],
			    i == OPEN ? "" : "_total",
			    i == OPEN ? "gauge" : "counter");
		(void)fprintf(file, "pool_%s%s{checkout=\"%s\"} %llu\n",
		    name[i], i == OPEN ? "" : "_total", pool->options.name,
		    value);
	}
}

int
pool_stats_write(struct pool *pool, FILE *file, enum hwt_format format)
{
	int error;

	write_counts(pool, file, format);
	if (format == HWT_JSON)
		(void)fputs(",\"checkout\":", file);
	error = hwt_checkout_stats_write(pool->checkout, file, format);
	if (error == 0 && format == HWT_JSON && fputs("}\n", file) == EOF)
		error = -EIO;
	return error;
}

int
pool_dump(struct pool *pool, FILE *file)
{
	const char *who;
	uint64_t since_ns;
	unsigned i;

	for (i = 0; i < pool->options.most; i++) {
		lock(&pool->slot[i]);
		who = pool->slot[i].who;
		since_ns = pool->slot[i].since_ns;
		unlock(&pool->slot[i]);
		if (who != NULL)
			(void)fprintf(file, "connection %u for %.3f s by %s\n",
			    i, (double)(now_ns() - since_ns) / 1e9, who);
	}
	return hwt_checkout_dump(pool->checkout, file);
}

/* Beginning and end. */

static uint64_t
or_default(uint64_t given, uint64_t usual)
{
	return given != 0 ? given : usual;
}

static bool
is_time(uint64_t ns)
{
	return ns < UINT64_C(1) << 63 || ns == HWT_NEVER;
}

static bool
read_options(struct pool_options *to, const struct pool_options *options)
{
	*to = *options;
	to->host = to->host != NULL ? to->host : "127.0.0.1";
	to->port = to->port != 0 ? to->port : 6379;
	to->most = to->most != 0 ? to->most : 10;
	to->wait_ns = or_default(to->wait_ns, HWT_SEC(30));
	to->connect_ns = or_default(to->connect_ns, HWT_SEC(5));
	to->idle_ns = or_default(to->idle_ns, HWT_MIN(10));
	to->age_ns = or_default(to->age_ns, HWT_MIN(30));
	to->check_ns = or_default(to->check_ns, HWT_MS(500));
	to->leak_ns = or_default(to->leak_ns, HWT_NEVER);
	to->name = to->name != NULL ? to->name : "pool";
	return to->most <= MOST_MAX && to->least <= to->most &&
	    to->connect_ns < HWT_SEC(1000000) && is_time(to->wait_ns) &&
	    is_time(to->idle_ns) && is_time(to->age_ns) &&
	    is_time(to->check_ns) && is_time(to->leak_ns);
}

static int
open_timer(struct pool *pool)
{
	const struct hwt_options ticks = {.tick_ns = HWT_MS(1)};
	const struct hwt_checkout_options options = {
	    .hold_after = pool->options.in_order, .name = pool->options.name};
	int error = hwt_pool_create(&pool->thread, 1, 0);

	if (error == 0)
		error = hwt_create(&pool->timer, &ticks);
	if (error == 0)
		error =
		    hwt_checkout_create(&pool->checkout, pool->timer, &options);
	pool->executor = hwt_pool_executor(pool->thread);
	return error;
}

static int
open_slots(struct pool *pool)
{
	unsigned i;
	int error = hwt_group_init(pool->checkout, &pool->group, 0);

	if (error != 0)
		return error;
	pool->slot = calloc(pool->options.most, sizeof(*pool->slot));
	if (pool->slot == NULL)
		return -ENOMEM;
	for (i = 0; i < pool->options.most; i++) {
		pool->slot[i].pool = pool;
		must(pthread_mutex_init(&pool->slot[i].lock, NULL) == 0);
	}
	error = fill(pool);
	/* Those that are connected last, as they are taken first. */
	for (i = pool->options.most; i-- > 0 && error == 0;)
		error = hwt_group_add(
		    pool->checkout, &pool->group, &pool->slot[i].object);
	return error;
}

int
pool_open(struct pool **pool, const struct pool_options *options)
{
	struct pool *made = calloc(1, sizeof(*made));
	int error = -EINVAL;

	if (made == NULL)
		return -ENOMEM;
	atomic_store(&made->random, now_ns());
	if (read_options(&made->options, options))
		error = open_timer(made);
	if (error == 0)
		error = open_slots(made);
	if (error == 0)
		error = hwt_new_periodic(made->timer, made->executor,
		    &made->upkeep, upkeep, made, HWT_SEC(1), HWT_SEC(1));
	if (error != 0)
		must(pool_close(made) == 0);
	else
		*pool = made;
	return error;
}

int
pool_close(struct pool *pool)
{
	unsigned i;

	if (pool->checkout != NULL) {
		must(hwt_checkout_shutdown(pool->checkout) == 0);
		if (hwt_checkout_destroy(pool->checkout) != 0)
			return -EBUSY;
	}
	/* The tasks that run, or are to. */
	if (pool->timer != NULL)
		must(hwt_stop(pool->timer, NULL) == 0);
	must(hwt_pool_destroy(pool->thread) == 0);
	must(hwt_destroy(pool->timer) == 0);
	for (i = 0; pool->slot != NULL && i < pool->options.most; i++) {
		slot_empty(&pool->slot[i], CLOSED_IDLE);
		must(pthread_mutex_destroy(&pool->slot[i].lock) == 0);
	}
	free(pool->slot);
	free(pool);
	return 0;
}
