/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that waits for timeouts of the timer, for messages of a channel,
 * and for who wakes it. It blocks nowhere else than in calls to the
 * engine.
 *
 * All of a loop belongs to its thread, but loop_wake and loop_hurry, which any
 * thread may call: two eventfds that never change. Its timeouts run on it, by
 * a mailbox: what they touch needs no lock.
 */
#ifndef HWT_DURABLE_LOOP_H
#define HWT_DURABLE_LOOP_H

#include "durable.h"

/* As a shard: all of them, since messages may have been missed. */
#define EVERY_SHARD HINT_EVERY_SHARD
#define EVERY_QUEUE UINT32_MAX

struct loop {
	struct engine *engine;
	struct hwt *timer;
	struct hwt_mailbox *mailbox;
	const char *channel;
	struct engine_subscription *subscription; /* NULL: lost */
	hwt_timeout reconnect;
	uint64_t back_off_ns;
	bool may_connect;
	/* The timer has refused a timeout: it looks at everything once a
	 * second. */
	bool must_poll;
	/* A timeout is to come in less than a second; if it does not, the timer
	 * was stopped, and it looks at everything, too. */
	bool expects;
	int wake_fd; /* readable: somebody has something for the thread */
	int hurry_fd; /* readable for good: calls are to end */
	/* A shard; and of which queue, for hints. */
	void (*notify)(void *ctx, uint32_t queue, uint32_t shard);
	void *ctx;
};

/* engine, timer, channel, notify and ctx are set. Errors as hwt_mailbox_create.
 */
int loop_create(struct loop *loop);

/* With all its timeouts cancelled, in its thread or after that was joined. */
void loop_destroy(struct loop *loop);

void loop_wake(const struct loop *loop);
void loop_hurry(const struct loop *loop);

/* For calls to the engine: each is tried once, and ends when it is hurried. */
struct engine_wait loop_no_retry(const struct loop *loop);

/* Waits, if wait says so, until something is there; runs what is due; calls
 * notify. */
void loop_turn(struct loop *loop, bool wait);

/* That the next hint is for this loop: see engine_subscription_wait. */
void loop_await_hint(struct loop *loop);

/* Task runs on the loop, after delay. One that is pending is moved. */
int loop_after(struct loop *loop, hwt_timeout *timeout, hwt_task *task,
    void *arg, uint64_t delay_ns);

/* The same with a task that does nothing: it has woken the loop. */
int loop_wake_after(struct loop *loop, hwt_timeout *timeout, uint64_t delay_ns);

void loop_cancel(struct loop *loop, hwt_timeout *timeout);

/* 10 ms, doubled up to 500 ms; *back_off_ns is 0 at first. */
uint64_t back_off_next(uint64_t *back_off_ns);

/* A thread that gets no signals. -EAGAIN: there can be none. */
int thread_begin(
    pthread_t *thread, void *(*run)(void *arg), void *arg, const char *name);

#endif
