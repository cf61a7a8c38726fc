/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a checkout, and what its source files share.
 *
 *   dump.c       who has what and who waits, as text
 *   stats.c      counters, also as text
 *   store.c      objects by key, on top of these: see store.h
 *   mailbox.c    the executor for an event loop
 *   checkout.c   making, shutting down, freeing
 *   set.c        what a request names, checked and in order
 *   retire.c     objects and groups: making and retiring them
 *   acquire.c    a request's calls: try, acquire, release, cancel
 *   pause.c      a pause of all: its calls
 *   request.c    the life of a request: trying, waiting, ending
 *   gate.c       what a pause closes, and whether anything is out
 *   object.c     the word of an object and who waits for it; groups
 *   wait.c       the moves of a request's word, its rings, the thread's queue
 *
 * Each calls those below it, and none above.
 *
 * LOCKS. A shard's lock protects the waiters of the objects and the list of the
 * requests whose addresses fall on it. No thread holds two locks, and none
 * while it calls user code or the timer.
 */
#ifndef HWT_CHECKOUT_INSIDE_H
#define HWT_CHECKOUT_INSIDE_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sys/atomic.h"
#include "sys/valid.h"
#include "hwt_checkout.h"

/* An object's word: its holder's address, and these. Addresses of requests are
 * multiples of 8 and below 2^61. */
#define IN_USE UINT64_C(1) /* of a group: no member is free */
#define WAITERS UINT64_C(2) /* the list is not empty; both under the lock */
#define RETIRED UINT64_C(4)
#define GROUP (UINT64_C(1) << 63) /* it stands for any of its members */
#define MEMBER (UINT64_C(1) << 62) /* of a group */
/* IN_USE by readers; how many is in the place of the holder's address. */
#define SHARED (UINT64_C(1) << 61)
#define READER_ONE UINT64_C(8)
#define HOLDER_MASK (~(UINT64_C(7) | GROUP | MEMBER | SHARED))

/* A request's word. */
#define STATE_MASK UINT64_C(7)
enum state {
	STATE_READY = 1,
	STATE_TRYING, /* a thread tries it, or releases it */
	STATE_WAITING, /* at an object, in its list */
	STATE_WOKEN, /* in a thread's queue, to be tried */
	STATE_GRANTED,
	STATE_ENDED, /* a thread carries the outcome out */
	STATE_HANDED /* an executor has it */
};
#define OUTCOME_ONE UINT64_C(8) /* an enum hwt_grant; see request.c */
#define OUTCOME_MASK (7 * OUTCOME_ONE)
#define ARMED UINT64_C(0x40) /* the timeout's task may use the request */
#define LATE UINT64_C(0x80) /* and is to carry the outcome out */
#define BLOCKING UINT64_C(0x100) /* a thread waits; granted is not called */
#define MAGIC UINT64_C(0x6877745200000000)
#define MAGIC_MASK UINT64_C(0xffffffff00000000)

/* HANDED, and in a mailbox, which alone runs it. */
#define QUEUED UINT64_C(0x200)
#define KEEPS UINT64_C(0x800) /* while it is WAITING: it holds some objects */
#define BATON UINT64_C(0x400) /* woken for the object at, and not used it yet */

#define RANKS 20

/* Of a request. */
#define HAS_ITEMS 1 /* its items are used, not its objects */
#define HAS_READS 2 /* some are for reading */
#define PAUSES 4 /* it is served in order at once, before all that wait */
#define PAUSES_ALL 8 /* it has no objects, and waits until nothing is out */

/* The user's memory is declared with other types. */
#define ALIASES __attribute__((may_alias))

struct request;

struct object {
	a64_t word;
	union {
		uint64_t order;
		struct object *next_free; /* of a member, under the lock */
	};
	struct hwt_checkout *checkout;
	union {
		struct request *first; /* of the waiters: a ring */
		struct object_group *group; /* of a member */
	};
} ALIASES;

struct object_group {
	struct object any;
	/* Under the lock of any's shard. */
	struct object *free; /* last in, first out */
	uint64_t members;
	struct group_slots *slots; /* written by hwt_group_init; or NULL */
	uint64_t unused;
} ALIASES;

/* Free members that are taken without a lock: see object.c. */
#ifndef SLOTS
#define SLOTS 8u
#endif
#define SLOT_RELEASING UINT64_C(1) /* beside the address of a request */
struct group_slot {
	_Alignas(CACHE_LINE) a64_t word; /* 0, a member, or releasing */
};
struct group_slots {
	struct group_slots *next, *next_unused; /* under pause_lock */
	struct group_slot slot[SLOTS];
};

struct request_item {
	struct object *wanted, *granted;
	enum hwt_use use;
} ALIASES;

/* A thread in hwt_checkout_acquire_wait. */
struct blocked {
	pthread_mutex_t lock;
	pthread_cond_t told;
	bool woken; /* it is to try its request */
	enum hwt_grant grant; /* 0: it waits */
	uint64_t since_ns; /* of its request */
};

struct request {
	a64_t word;
	/* Written by hwt_request_init; count also by a retirement. */
	union {
		struct object *const *objects;
		struct request_item *items; /* with HAS_ITEMS */
	};
	uint32_t count;
	/* For the thread that owns the request: see request.c. */
	uint32_t held; /* the first so many are taken */
	hwt_granted *granted;
	void *arg;
	struct hwt_checkout *checkout;
	hwt_timeout timeout; /* while ARMED */
	aptr_t at; /* the object where it waits, or waited last */
	/* The waiters of at, if linked; next: else, a thread's queue; or link,
	 * while HANDED, of a mailbox. */
	union {
		struct request *next;
		a64_t link;
	};
	struct request *previous;
	/* A ring of its shard: of the list, while it waits and is tried; of the
	 * granted. list_next is NULL when whoever ended it has taken it out. */
	struct request *list_next, *list_previous;
	union {
		struct blocked *blocked; /* with BLOCKING */
		/* When it began to wait, or was granted and listed. */
		uint64_t since_ns;
	};
	uint8_t linked; /* under the lock of at's shard: see object.c */
	uint8_t refusals; /* at most 255 */
	uint8_t flags; /* HAS_ITEMS and so on; written by hwt_request_init */
	/* The objects in ascending order, as indices; not used if there are
	 * more. */
	uint8_t rank_count;
	uint8_t rank[RANKS];
} ALIASES;

/* Waits that have ended. Element k: of 2^k ns up to 2^(k+1). */
#define WAIT_ELEMENTS 64
struct waits {
	uint64_t sum_ns, max_ns;
	uint64_t histogram[WAIT_ELEMENTS];
};

struct checkout_shard {
	_Alignas(CACHE_LINE) a64_t in_flight, released_high; /* see below */
	_Alignas(CACHE_LINE) pthread_mutex_t lock;
	/* Under the lock. */
	struct request *list; /* that wait: a ring */
	struct request *granted; /* the same, with lists_grants */
	uint64_t waiting; /* requests whose end is not through yet, too */
	uint64_t waited, woken;
	uint64_t ended[HWT_GRANT_SHUT_DOWN - HWT_GRANTED + 1];
	struct waits waits;
	a64_t holding; /* see below */
};

/* in_flight: requests that are tried or granted, or that wait and hold some of
 * their objects, which are in holding, too; they take 128 bytes each, and
 * above that, how many grants were released; of these the upper half is in
 * released_high. */
#define IN_FLIGHT_BITS 32
#define IN_FLIGHT_MASK ((UINT64_C(1) << IN_FLIGHT_BITS) - 1)
#define RELEASED_ONE (UINT64_C(1) << IN_FLIGHT_BITS)

struct hwt_checkout {
	_Alignas(CACHE_LINE) struct hwt *timer;
	struct checkout_shard *shards;
	uint32_t shard_count;
	uint32_t hold_after; /* UINT32_MAX: never */
	bool lists_grants;
	struct hwt_request_executor executor; /* execute NULL: none */
	/* An object that a pause holds: IN_USE; shutdown sets RETIRED. */
	struct object gate;
	pthread_mutex_t pause_lock;
	pthread_cond_t came_back;
	/* Under pause_lock. */
	bool pause_begun, paused;
	bool pause_is_told; /* a request has the pause, and ends it */
	struct group_slots *slots, *unused; /* of groups: all; those of none */
	struct request *pauser; /* that request, while it is WAITING */
	/* Requests that are listed, or whose end is not through yet. */
	_Alignas(CACHE_LINE) a64_t busy;
	a64_t handed; /* of them, those that an executor has */
	a64_t pauses;
	char name[NAME_BYTES]; /* in statistics */
	uint64_t serial; /* among the checkouts of the process */
};

/* Of whole cache lines, all 0; NULL: no memory. */
static inline void *
alloc_lines(size_t bytes)
{
	void *lines = aligned_alloc(CACHE_LINE, bytes);

	return lines != NULL ? memset(lines, 0, bytes) : NULL;
}

/* What a thread has to do before its outermost call returns. */
struct queue {
	struct request *first, *last;
};

/* The outermost call's; NULL: the thread is in none. */
extern _Thread_local struct queue *queue_of_thread;

static inline enum state
word_state(uint64_t word)
{
	return (enum state)(word & STATE_MASK);
}

static inline enum hwt_grant
word_grant(uint64_t word)
{
	return (enum hwt_grant)((word & OUTCOME_MASK) / OUTCOME_ONE);
}

static inline bool
object_precedes(const struct object *a, const struct object *b)
{
	if (a->order != b->order)
		return a->order < b->order;
	return (uintptr_t)a < (uintptr_t)b;
}

static inline struct checkout_shard *
checkout_shard_of(const struct hwt_checkout *checkout, const void *at)
{
	uint64_t hash = (uint64_t)(uintptr_t)at * UINT64_C(0x9e3779b97f4a7c15);

	return &checkout->shards[hash >> 40 & (checkout->shard_count - 1)];
}

/* Where it is counted. */
static inline struct checkout_shard *
request_shard(const struct request *request)
{
	return checkout_shard_of(request->checkout, request);
}

/* Of a dump, in a ring: see dump.c. */
static inline bool
is_bookmark(const struct request *request)
{
	return a64_load_relaxed(&request->word) == 0;
}

/* When it began to wait; in blocked, if its thread waits. */
static inline uint64_t *
request_since(struct request *request)
{
	return a64_load_relaxed(&request->word) & BLOCKING
	    ? &request->blocked->since_ns
	    : &request->since_ns;
}

/* It was refused so often that it is served in order: it keeps what it has,
 * and what it waits for is handed over to it. */
static inline bool
request_is_in_order(const struct request *request)
{
	return request->refusals >= request->checkout->hold_after ||
	    request->flags & PAUSES;
}

/* 0, -EINVAL of NULL, or -EOWNERDEAD. */
static inline int
checkout_enter(const struct hwt_checkout *checkout)
{
	if (checkout == NULL)
		return -EINVAL;
	return timer_is_foreign(checkout->timer) ? -EOWNERDEAD : 0;
}

/* By the timer's clock. */
static inline uint64_t
checkout_now(const struct hwt_checkout *checkout)
{
	uint64_t now_ns = 0;

	(void)hwt_now(checkout->timer, &now_ns);
	return now_ns;
}

static inline void
checkout_shard_lock(struct checkout_shard *shard)
{
	(void)pthread_mutex_lock(&shard->lock);
}

static inline void
checkout_shard_unlock(struct checkout_shard *shard)
{
	(void)pthread_mutex_unlock(&shard->lock);
}

/* By its owner, who gives it up. */
static inline void
request_store(struct request *request, enum state state)
{
	/* E:request release */
	a64_store_release(&request->word, MAGIC | state);
}

/* object.c */

/* The request's object i, which may be a group. */
struct object *object_at(const struct request *request, uint32_t i);
bool reads_at(const struct request *request, uint32_t i);
bool object_take(struct request *request, uint32_t i);
/* Whether a request that was refused by the object might have it now. */
bool object_may_be_had(struct object *object, const struct request *request);
/* By its holder: gives its object i to whoever is next, who goes to the
 * queue. */
void object_give(struct request *request, uint32_t i);
/* An object that no request names yet, or that is free and cannot be taken
 * meanwhile, becomes in use without a holder. */
void object_hold(struct object *object);
/* One that is in use, not a member, to whoever is next. */
void object_free(struct object *object);
/* Which one that is, if the request has items. */
struct object **object_granted(const struct request *request, uint32_t i);
/* A member that nobody has, to whoever is next. */
void group_give(struct object_group *group, struct object *member);
/* Another waiter goes to the queue, if the object is free. */
void object_hand_on(struct object *object);
/* Whether it waits: false if the object can be had, or if its word has an
 * outcome. */
bool object_wait(struct object *object, struct request *request);
/* Takes one that has ended out of the list. */
void object_unlink(struct request *request);
/* Ends a pause: all waiters go to the queue. */
void gate_open(struct hwt_checkout *checkout);
/* It is retired. Who waits for it is in no ring any more. */
void object_close(struct object *object);
/* The same; -EBUSY: it has members; -EIDRM: it was closed before. */
int group_close(struct object_group *group);
/* Whether a slot has a member that a request may take. */
bool group_has_slotted(const struct object_group *group);

/* request.c */

/* Does what the queue holds, in the outermost call. */
void queue_end(struct queue *queue);

/* By its owner, while it is TRYING, and holds nothing or what it held before:
 * NULL: it has all; otherwise the object that refused, or the gate. */
struct object *request_try(struct request *request);
/* The same, for a thread that was refused and would sleep. */
struct object *request_try_long(
    struct request *request, struct object *refused);
/* By its owner: tries until it waits or ends, from that refusal on. */
void request_settle(struct request *request, struct object *refused);
/* By the thread that waits with it, when it has been woken. */
void request_resume(struct request *request);
/* Something is out that no request has, counted where at falls; false: a pause
 * has begun. */
bool flight_begin(struct hwt_checkout *checkout, const void *at);
void flight_end(struct hwt_checkout *checkout, const void *at);
/* Calls granted of one that is HANDED, with queued being QUEUED or 0; -ENOENT:
 * it is not. */
int request_run(struct request *request, uint64_t queued);
/* Releases what one that is refused or ends has kept. */
void request_drop(struct request *request);
/* Releases all; grants is 1 if it was granted. */
void request_give(struct request *request, uint64_t grants);
/* When a pause has begun: what waits and keeps objects releases them, and waits
 * for the end of the pause. */
void requests_let_go(struct hwt_checkout *checkout);
/* Ends its wait, or leaves the outcome as a mark: see request.c. */
int request_stop(struct request *request, enum hwt_grant grant);
/* From now on deadlines, shutdown and retirements find it. */
hwt_task request_expire;
int request_enlist(struct request *request, uint64_t delay_ns);
/* It is GRANTED, and the caller's. */
void request_store_granted(struct request *request);
/* It is to be released. */
void request_unlist_granted(struct request *request);
/* Ends what waits in the lists and has this object (NULL: all), but for what
 * is tried at this moment, which gets a mark. Whether there was such a one. */
bool requests_stop(struct hwt_checkout *checkout, const struct object *object,
    enum hwt_grant grant);

/* acquire.c */

int grant_error(enum hwt_grant grant);

/* pause.c */

/* By the owner of a request that pauses all: closes the gate. 0: nothing is
 * out; -EAGAIN: it is to wait; or -EALREADY or -ESHUTDOWN. */
int pause_all_try(struct request *request);

/* gate.c */

static inline bool
is_shut_down(const struct hwt_checkout *checkout)
{
	return a64_load_acquire(&checkout->gate.word) & RETIRED;
}

/* Requests that are tried or granted. */
uint64_t count_in_flight(const struct hwt_checkout *checkout);
/* With pause_lock. Whether nothing is out: then the checkout is paused. */
bool pause_declare(struct hwt_checkout *checkout);
/* Something was released: wakes a pause. */
void pause_notify(struct hwt_checkout *checkout);
/* The pause is over, or was given up. */
void pause_open(struct hwt_checkout *checkout);
/* By the owner of a request that pauses all. 0: it waits, and is not the
 * owner's any more; otherwise how it is to end. */
enum hwt_grant pause_all_settle(struct request *request);
/* By whoever has ended its wait. */
void pause_all_unlink(struct request *request);
/* It was not granted, or is released. */
void pause_all_end(struct hwt_checkout *checkout);

/* wait.c */

/* In one call of the library, which ends with queue_end. */
void queue_begin(struct queue *queue);
/* This is a call from granted: no other user code runs in a call. */
bool queue_in_granted(void);
void queue_add(struct request *request);
/* The next one in the queue of the outermost call. NULL: the queue is that of a
 * call in another one; or there is none, and the outermost call is over. */
struct request *queue_take(struct queue *queue);
void request_change(struct request *request, uint64_t clear, uint64_t set);
/* TRYING becomes WAITING, unless an outcome was set meanwhile. */
bool request_enter_wait(struct request *request);
/* WAITING becomes WOKEN, with BATON or 0; false: it does not wait. With the
 * lock of the shard, which counts it. */
bool request_wake(
    struct checkout_shard *shard, struct request *request, uint64_t baton);
/* One that is WAITING is granted; false: its wait has ended otherwise. Whoever
 * called it calls request_finish then. */
bool request_grant(struct request *request);
/* By its owner, when it holds what it is granted, or nothing: its end is told
 * by this call, or by its timeout's task. */
void request_finish(struct request *request, enum hwt_grant grant);
/* In a ring of its shard, under the lock. */
void ring_add(struct request **ring, struct request *request);
void ring_remove(struct request **ring, struct request *request);
/* It is listed and counted; false: the checkout is shut down. */
bool wait_begin(struct request *request);
/* It is not any more; grant 0: its wait did not begin. */
void wait_end(
    struct request *request, enum hwt_grant grant, uint64_t waited_ns);

/* Why the object refuses for good; 0: it may be had later. */
static inline enum hwt_grant
refusal_of(struct object *object)
{
	if (!(a64_load_acquire(&object->word) & RETIRED))
		return (enum hwt_grant)0;
	return object == &object->checkout->gate ? HWT_GRANT_SHUT_DOWN
						 : HWT_GRANT_RETIRED;
}

#endif
