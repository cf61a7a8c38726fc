/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker.
 *
 * THREADS
 *
 *   a taker of each queue   waits at the server for tasks: on a connection of
 *                           its own, since the server answers it late
 *   callback threads        call back
 *   the finisher            reports outcomes, and takes more with the same
 *                           command; extends leases
 *   the timer's worker      says when leases are to be extended
 *
 * So a busy worker is the finisher and callback threads alone: what it reports
 * makes room, and what it gets fills that again.
 *
 * AN ATTEMPT is in these states; the moves are made with the worker's lock:
 *
 *   WAITING --callback thread--> CALLED --it returns--> ENDED
 *                                  |                      ^
 *                                  +-- LATER --> OPEN ----+
 *                            hwt_durable_finish, or its lease is lost
 *   ENDED --finisher, when the server has answered--> freed
 *
 * A WAITING one whose lease is lost or over is ENDED, and not called. Only the
 * finisher frees an attempt; so its id, fence and payload, which never change,
 * may be read without the lock by whoever has it, and by the finisher.
 *
 * ROOM. held + reserved is never more than outstanding_max, where reserved is
 * what takes that are under way may bring; but of several queues, a take that
 * blocks is for one task and reserves nothing, so there may be one of each
 * more.
 *
 * ORDER OF QUEUES. A take of a queue begins only if all before it are idle:
 * when they were asked last, they had less than was asked for.
 *
 * LOST ANSWERS. A take has a number. Until one is answered, the next take of
 * the queue has the same, and so gets what that one has taken. A finish is
 * repeated until it is answered; during a stop, until the lease is over.
 */
#ifndef HWT_DURABLE_WORKER_H
#define HWT_DURABLE_WORKER_H

#include "modules/durable/client/client.h"

#define TAKE_MAX 240 /* so that an answer is below REPLY_BYTES_MAX */

enum attempt_state {
	ATTEMPT_WAITING,
	ATTEMPT_CALLED,
	ATTEMPT_OPEN,
	ATTEMPT_ENDED
};

/* For an outcome: nothing is reported. */
#define OUTCOME_NONE (-1)

struct attempt {
	/* Fixed. */
	struct taker *queue;
	uint64_t number; /* serial << 20 | slot */
	redisReply *record; /* what TAKE has answered for it */

	struct attempt *next; /* in the list of its state */
	enum attempt_state state;
	uint64_t
	    lease_end_ns; /* CLOCK_BOOTTIME, as the server has it or before */
	bool lost; /* the server has said so */
	bool decided; /* what follows is known */
	int outcome;
	uint64_t delay_ns;
	char *reason; /* NULL: "" */
};

struct attempts {
	struct attempt *first, **last;
};

struct taker {
	struct hwt_durable_worker *worker;
	char name[HWT_DURABLE_QUEUE_MAX + 1];
	unsigned index;
	/* The taker's thread: */
	struct connection *connection;
	const struct node *node; /* where it leads to */
	/* With the lock: */
	struct attempts waiting;
	bool taking; /* a take is under way */
	bool idle;
	/* Of the take that was not answered; 0: none. It may have brought so
	 * many, for which there must be room when it is repeated. */
	uint64_t request;
	size_t limit;
};

struct hwt_durable_worker {
	/* Fixed. */
	struct hwt_durable *durable;
	hwt_durable_callback *callback;
	void *ctx;
	uint64_t visibility_ns;
	char name[65];
	size_t outstanding_max, slots;
	hwt_timeout extend;
	pthread_t *thread;
	unsigned threads; /* that were created */
	unsigned queues;
	struct round *round; /* the finisher's */

	pthread_mutex_t
	    lock; /* for what follows, in takers and attempts, too */
	pthread_cond_t work; /* attempts wait, or it is over */
	pthread_cond_t room; /* for takes, or it stops */
	pthread_cond_t outcomes; /* or leases to extend, or it is over */
	pthread_cond_t gone; /* the last one of what a stop waits for */
	struct taker queue[HWT_DURABLE_QUEUES_MAX];
	struct attempt **slot; /* NULL: free */
	uint32_t *free_slot;
	size_t free_slots;
	uint64_t serial, last_request;
	size_t held, reserved;
	struct attempts ended;
	unsigned takers; /* threads */
	bool extend_due, stopping, over;
};

uint64_t boot_now_ns(void);

void attempts_add(struct attempts *list, struct attempt *attempt);
struct attempt *attempts_take(struct attempts *list);

/* All with the lock. */

/* How many more may be taken. */
size_t worker_room(const struct hwt_durable_worker *worker);
/* How many tasks a take of the queue may ask for now, if there is so much room;
 * 0: it may not begin. */
size_t take_limit(const struct taker *queue, size_t room);
/* It begins. Returns its number. */
uint64_t take_begin(struct taker *queue, size_t limit);
/* It has ended. reply: its answer to a take of limit tasks that was sent at
 * that time, or NULL: there is none. False: it makes no sense. */
bool take_end(
    struct taker *queue, redisReply *reply, size_t limit, uint64_t sent_ns);
/* The outcome is known. reason: copied. */
void attempt_decide(struct attempt *attempt, int outcome, uint64_t delay_ns,
    const char *reason);
/* To the finisher. */
void attempt_end(struct attempt *attempt);
struct attempt *attempt_find(
    struct hwt_durable_worker *worker, uint64_t number);
void attempt_free(struct attempt *attempt);

/* The words of a take from its name on: TAKE, or HWT.TAKE's after the key. */
void take_words(struct call *call, const struct hwt_durable_worker *worker,
    size_t limit, uint64_t request);

/* finish.c */
struct round *round_create(void);
void round_destroy(struct round *round);
void *finish_thread(void *arg);

#endif
