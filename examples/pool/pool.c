/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool. Its slots are the members of a group; a slot has a connection or
 * none. The slot that was released last is taken first, so that the connections
 * in use are few and warm, and the others become idle.
 *
 * A taker gets a slot by hwt_checkout_acquire; then, on the loop, slot_begin
 * connects, or sends a PING, or neither. What follows a reply is posted to the
 * loop's mailbox: hiredis may be about to free the connection when it calls.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../must.h"
#include "pool.h"

struct pool_slot {
	struct hwt_object object; /* the first: a member of the group */
	struct pool *pool;
	redisAsyncContext *redis; /* NULL: none */
	struct pool_hold *hold; /* from slot_begin to pool_release */
	bool fresh; /* the PING is the first one after a connect */
	enum pool_count why; /* it is closed */
	/* Of the PING; without a hold, of its idleness. */
	hwt_timeout limit;
	uint64_t used_ns; /* when it was released */
};

/* hiredis calls these three. It reads whenever there is something. */

static void
slot_watch(struct pool_slot *slot, int how, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = slot};

	must(epoll_ctl(slot->pool->epoll, how, slot->redis->c.fd, &event) == 0);
}

static void
begin_write(void *slot)
{
	slot_watch(slot, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
}

static void
end_write(void *slot)
{
	slot_watch(slot, EPOLL_CTL_MOD, EPOLLIN);
}

/* Once for each connection, before it is closed. */
static void
cleanup(void *arg)
{
	struct pool_slot *slot = arg;

	slot->redis = NULL;
	if (slot->hold != NULL)
		slot->hold->redis = NULL;
	slot->pool->count[slot->why]++;
}

static void
slot_connect(struct pool_slot *slot)
{
	redisAsyncContext *redis =
	    redisAsyncConnect("127.0.0.1", slot->pool->options.port);

	if (redis->err != 0) {
		redisAsyncFree(redis);
		return;
	}
	redis->ev.data = slot;
	redis->ev.addWrite = begin_write;
	redis->ev.delWrite = end_write;
	redis->ev.cleanup = cleanup;
	slot->redis = redis;
	slot->why = BROKEN;
	slot_watch(slot, EPOLL_CTL_ADD, EPOLLIN);
	slot->pool->count[MADE]++;
}

static void
slot_close(struct pool_slot *slot, enum pool_count why)
{
	slot->why = why;
	if (slot->redis != NULL)
		redisAsyncFree(slot->redis);
}

static void
limit_over(hwt_timeout timeout, void *arg)
{
	struct pool_slot *slot = arg;

	(void)timeout;
	slot_close(slot, slot->hold != NULL ? BROKEN : IDLE);
}

static void
slot_limit(struct pool_slot *slot, uint64_t delay_ns)
{
	must(hwt_touch(slot->pool->timer,
		 hwt_mailbox_executor(slot->pool->mailbox), &slot->limit,
		 limit_over, slot, delay_ns) == 0);
}

/* It is connected and has answered, or not. */
static void
slot_ready(struct hwt_post *post)
{
	struct pool_hold *hold = (struct pool_hold *)post;
	struct pool_slot *slot = (struct pool_slot *)hold->item.granted;

	/* On the loop's thread: limit_over does not run after this. */
	(void)!hwt_cancel(hold->pool->timer, slot->limit);
	hold->redis = slot->redis;
	if (hold->redis == NULL) {
		hold->error = -ECONNREFUSED;
		pool_release(hold);
	}
	hold->taken(hold, hold->error);
}

static void slot_begin(struct hwt_post *post);

static void
ponged(redisAsyncContext *redis, void *reply, void *arg)
{
	struct pool_slot *slot = arg;
	bool again = reply == NULL && !slot->fresh;

	(void)redis;
	(void)hwt_mailbox_post(slot->pool->mailbox, &slot->hold->post,
	    again ? slot_begin : slot_ready);
}

/* hiredis sees when a server closes an idle connection, but not when a server
 * or the network has vanished. */
static void
slot_begin(struct hwt_post *post)
{
	struct pool_hold *hold = (struct pool_hold *)post;
	struct pool_slot *slot = (struct pool_slot *)hold->item.granted;
	uint64_t now;

	if (hold->error != 0) {
		hold->taken(hold, hold->error);
		return;
	}
	must(hwt_now(hold->pool->timer, &now) == 0);
	slot->hold = hold;
	slot->fresh = slot->redis == NULL;
	if (slot->fresh)
		slot_connect(slot);
	if (slot->redis == NULL ||
	    (!slot->fresh &&
		now - slot->used_ns < hold->pool->options.check_ns)) {
		slot_ready(post);
		return;
	}
	slot_limit(slot, hold->pool->options.answer_ns);
	(void)redisAsyncCommand(slot->redis, ponged, slot, "PING");
}

/* On any thread. */
static void
granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct pool_hold *hold = arg;

	(void)request;
	if (grant != HWT_GRANTED)
		hold->error =
		    grant == HWT_GRANT_EXPIRED ? -ETIMEDOUT : -ESHUTDOWN;
	(void)hwt_mailbox_post(hold->pool->mailbox, &hold->post, slot_begin);
}

void
pool_take(struct pool *pool, struct pool_hold *hold,
    void (*taken)(struct pool_hold *hold, int error))
{
	int result;

	hold->pool = pool;
	hold->taken = taken;
	hold->error = 0;
	hold->item = (struct hwt_item){.wanted = &pool->group.any};
	must(hwt_request_init_items(
		 &hold->request, &hold->item, 1, granted, hold) == 0);
	result = hwt_checkout_acquire(
	    pool->checkout, &hold->request, pool->options.wait_ns);
	if (result != 1) {
		hold->error = result;
		(void)hwt_mailbox_post(pool->mailbox, &hold->post, slot_begin);
	}
}

void
pool_release(struct pool_hold *hold)
{
	struct pool_slot *slot = (struct pool_slot *)hold->item.granted;

	slot->hold = NULL;
	must(hwt_now(hold->pool->timer, &slot->used_ns) == 0);
	if (slot->redis != NULL)
		slot_limit(slot, hold->pool->options.idle_ns);
	must(hwt_checkout_release(hold->pool->checkout, &hold->request) == 0);
}

static void
close_slots(struct hwt_post *post)
{
	struct pool *pool = (struct pool *)post;
	unsigned i;

	for (i = 0; i < pool->options.most; i++)
		slot_close(&pool->slot[i], PAUSED);
	pool->over = pool->ending;
	must(sem_post(&pool->closed) == 0);
}

int
pool_pause(struct pool *pool, uint64_t within_ns)
{
	int error = hwt_checkout_pause(pool->checkout, within_ns);

	if (error != 0)
		return error;
	(void)hwt_mailbox_post(pool->mailbox, &pool->post, close_slots);
	while (sem_wait(&pool->closed) != 0)
		must(errno == EINTR);
	return 0;
}

static void *
run(void *arg)
{
	struct pool *pool = arg;
	struct epoll_event event;
	struct pool_slot *slot;

	while (!pool->over) {
		if (epoll_wait(pool->epoll, &event, 1, -1) != 1)
			continue;
		slot = event.data.ptr;
		if (slot->redis != NULL && event.events != EPOLLOUT)
			redisAsyncHandleRead(slot->redis);
		if (slot->redis != NULL && (event.events & EPOLLOUT) != 0)
			redisAsyncHandleWrite(slot->redis);
		(void)hwt_mailbox_run(pool->mailbox, 0, NULL);
	}
	return NULL;
}

void
pool_open(struct pool *pool, const struct pool_options *options)
{
	const struct hwt_options ticks = {.tick_ns = HWT_MS(1)};
	const struct hwt_checkout_options in_order = {.hold_after = 1};
	static struct pool_slot none; /* for the mailbox */
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &none};
	unsigned i;

	*pool = (struct pool){.options = *options};
	must(sem_init(&pool->closed, 0, 0) == 0);
	must(hwt_create(&pool->timer, &ticks) == 0);
	must(hwt_mailbox_create(&pool->mailbox) == 0);
	pool->epoll = epoll_create1(EPOLL_CLOEXEC);
	must(epoll_ctl(pool->epoll, EPOLL_CTL_ADD,
		 hwt_mailbox_fd(pool->mailbox), &event) == 0);
	must(hwt_checkout_create(&pool->checkout, pool->timer, &in_order) == 0);
	must(hwt_group_init(pool->checkout, &pool->group, 0) == 0);
	pool->slot = calloc(options->most, sizeof(*pool->slot));
	must(pool->slot != NULL);
	for (i = 0; i < options->most; i++) {
		pool->slot[i].pool = pool;
		must(hwt_group_add(pool->checkout, &pool->group,
			 &pool->slot[i].object) == 0);
	}
	must(pthread_create(&pool->loop, NULL, run, pool) == 0);
}

void
pool_close(struct pool *pool)
{
	pool->ending = true;
	must(pool_pause(pool, 0) == 0);
	must(pthread_join(pool->loop, NULL) == 0);
	must(hwt_checkout_shutdown(pool->checkout) == 0);
	must(hwt_checkout_destroy(pool->checkout) == 0);
	must(hwt_stop(pool->timer, NULL) == 0);
	while (hwt_mailbox_destroy(pool->mailbox) == -EBUSY)
		(void)hwt_mailbox_run(pool->mailbox, 0, NULL);
	must(hwt_destroy(pool->timer) == 0);
	must(close(pool->epoll) == 0);
	free(pool->slot);
}
