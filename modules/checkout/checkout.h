/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a checkout, and what its source files share; DESIGN lists them.
 * LOCKS. A shard's lock protects the waiters of the objects whose addresses
 * fall on it, the members of such groups, and the list of such requests that
 * wait. A thread holds at most one lock, except a sleeping thread's inside of a
 * shard's, and a shard's inside of a pause's; none while it calls user code or
 * the timer.
 */
#ifndef HWT_CHECKOUT_INSIDE_H
#define HWT_CHECKOUT_INSIDE_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sys/atomic.h"
#include "sys/valid.h"
#include "hwt_checkout.h"

/* An object's word: its holder's address, or the number of readers in its
 * place, and these. Addresses of requests are multiples of 8 and below 2^58. */
#define IN_USE UINT64_C(1) /* of a group: no member is free */
#define WAITERS UINT64_C(2) /* the list is not empty; both under the lock */
#define WOKEN UINT64_C(4) /* a thread was woken for it, and has a baton */
#define RETIRED (UINT64_C(1) << 63) /* of the gate: shut down */
#define GROUP (UINT64_C(1) << 62) /* it stands for any of its members */
#define MEMBER (UINT64_C(1) << 61) /* of a group */
#define SHARED (UINT64_C(1) << 60) /* IN_USE by readers */
#define ASKED (UINT64_C(1) << 59) /* under the lock: its holder stays */
#define READER_ONE UINT64_C(8)
#define HOLDER_MASK (~(UINT64_C(7) | UINT64_C(0xfc) << 56))

/* A request's word. */
#define STATE_MASK UINT64_C(7)
enum state {
	STATE_READY = 1, /* the user's */
	STATE_TRYING, /* a thread's, which may use its objects */
	STATE_WAITING, /* at an object, in its list */
	STATE_WOKEN, /* a thread's, which has not begun to try it */
	STATE_GRANTED /* the user's */
};
#define OUTCOME_ONE UINT64_C(8) /* an enum hwt_grant; see request.c */
#define OUTCOME_MASK (7 * OUTCOME_ONE)
#define ARMED UINT64_C(0x40) /* the timeout's task may use the request */
#define LATE UINT64_C(0x80) /* and is to carry the outcome out */
#define GONE UINT64_C(0x100) /* WOKEN, and its at is retired */
#define WAIT_ONE UINT64_C(0x200) /* how many waits it has had, wraps */
#define WAITS_MASK (UINT32_MAX & ~(WAIT_ONE - 1))
#define MAGIC UINT64_C(0x6877745200000000)
#define MAGIC_MASK UINT64_C(0xffffffff00000000)

/* The user's memory is declared with other types. */
#define ALIASES __attribute__((may_alias))
typedef struct object *object_name ALIASES;

struct request;

struct object {
	a64_t word;
	union {
		uint64_t order;
		struct object *next_free; /* of a member, under the lock */
	};
	struct hwt_checkout *checkout;
	union {
		struct request *first; /* of the waiters: a ring, by ticket */
		struct group *group; /* of a member */
	};
} ALIASES;

struct group {
	struct object any;
	/* Under the lock of any's shard. */
	struct object *free; /* last in, first out */
	uint64_t members;
} ALIASES;

struct request_item {
	struct object *wanted, *granted;
	enum hwt_use use;
} ALIASES;

/* Of the rings that a request may be in. */
enum ring {
	AT,
	ALL
};

#define TOLD_TO_TRY (-1)
/* A thread in hwt_checkout_acquire_wait. */
struct blocked {
	pthread_mutex_t lock;
	pthread_cond_t wakes;
	int told; /* an enum hwt_grant; TOLD_TO_TRY; 0: nothing yet */
};

/* What no comment says otherwise is its owner's: of the thread that made it
 * TRYING or WOKEN, or the user's. */
struct request {
	a64_t word;
	const void *names; /* items, or pointers to objects */
	hwt_granted *granted;
	void *arg;
	struct hwt_checkout *checkout;
	hwt_timeout timeout; /* while ARMED */
	aptr_t at; /* the object where it waits, or waited last */
	/* AT: of the waiters of at, if linked; else next, of a thread's queue.
	 * ALL: under the lock of the request's shard, of those whose waits have
	 * begun and not ended. */
	struct {
		struct request *next, *previous;
	} link[2];
	struct blocked *blocked; /* the thread that waits; NULL: granted */
	uint64_t since_ns; /* when the wait began */
	uint64_t ticket; /* in which order waits began */
	uint32_t count; /* of what it names, less what was retired */
	uint32_t held; /* the first so many are taken */
	uint32_t at_index; /* of at */
	uint8_t stride; /* of names */
	uint8_t refusals; /* at most 255 */
	bool is_pool; /* a group is all that it names */
	bool linked; /* under the lock of at's shard */
	bool baton; /* it was woken for at, and has not taken it yet */
	/* Places of names in ascending order; those behind have their own. */
	uint8_t rank[HWT_SORTED_MAX];
} ALIASES;

struct shard {
	_Alignas(CACHE_LINE) a64_t granted, released; /* requests, not pools' */
	_Alignas(CACHE_LINE) pthread_mutex_t lock;
	/* Under the lock. */
	uint64_t pool_out, pool_released; /* of pools, in the lock's line */
	struct request *list; /* that wait: a ring */
	uint64_t ended[HWT_GRANT_SHUT_DOWN + 1];
	struct hwt_checkout_stats stats; /* the rest of its part */
};

struct hwt_checkout {
	_Alignas(CACHE_LINE) struct hwt *timer;
	uint32_t shard_count;
	uint32_t hold_after; /* UINT32_MAX: never */
	/* An object that a pause holds: IN_USE; shutdown sets RETIRED. */
	struct object gate;
	pthread_mutex_t pause_lock;
	pthread_cond_t came_back; /* or the pause ends otherwise */
	bool paused; /* declared, and not over; under pause_lock */
	a64_t pauses; /* counted under pause_lock */
	a64_t unloads; /* that stores have begun: a pause waits for them */
	_Alignas(CACHE_LINE) a64_t busy; /* until granted has returned */
	a64_t tickets;
	struct shard shards[];
};

/* What a call has to do before it returns; of a nested one, the outermost
 * call's. */
struct queue {
	struct request *first, *last;
	bool runs;
	bool calls; /* granted or an unload, which must not wait */
};

/* The thread's. */
extern _Thread_local struct queue checkout_queue
    __attribute__((tls_model("initial-exec")));

static inline void *
alloc_lines(size_t bytes)
{
	void *lines = aligned_alloc(CACHE_LINE, bytes);

	return lines != NULL ? memset(lines, 0, bytes) : NULL;
}

static inline struct shard *
shard_of(struct hwt_checkout *checkout, const void *at)
{
	uint64_t hash = (uint64_t)(uintptr_t)at * UINT64_C(0x9e3779b97f4a7c15);

	return &checkout->shards[hash >> 40 & (checkout->shard_count - 1)];
}

static inline struct shard *
shard_lock(struct shard *shard)
{
	(void)pthread_mutex_lock(&shard->lock);
	return shard;
}

static inline void
shard_unlock(struct shard *shard)
{
	(void)pthread_mutex_unlock(&shard->lock);
}

static inline enum state
word_state(uint64_t word)
{
	return (enum state)(word & STATE_MASK);
}

static inline enum hwt_grant
word_outcome(uint64_t word)
{
	return (enum hwt_grant)((word & OUTCOME_MASK) / OUTCOME_ONE);
}

/* By its owner, when nothing else is in its word that counts. */
static inline void
request_store(struct request *request, uint64_t state)
{
	/* E:request release */
	a64_store_release(&request->word, MAGIC | state);
}

/* What it names as number i in ascending order: an item, or a pointer to an
 * object. */
static inline const void *
request_name(const struct request *request, uint32_t i)
{
	size_t place = i < HWT_SORTED_MAX ? request->rank[i] : i;

	return (const char *)request->names + place * request->stride;
}

static inline struct object *
request_object(const struct request *request, uint32_t i)
{
	return *(const object_name *)request_name(request, i);
}

/* NULL: it names pointers. */
static inline struct request_item *
request_item(const struct request *request, uint32_t i)
{
	if (request->stride != sizeof(struct request_item))
		return NULL;
	return (struct request_item *)(uintptr_t)request_name(request, i);
}

static inline bool
request_reads(const struct request *request, uint32_t i)
{
	const struct request_item *item = request_item(request, i);

	return item != NULL && item->use == HWT_READ;
}

static inline void
item_granted(const struct request *request, uint32_t i, struct object *object)
{
	struct request_item *item = request_item(request, i);

	if (item != NULL)
		item->granted = object;
}

static inline uint64_t
word_taken(uint64_t word, const struct request *request, bool reads)
{
	if (reads)
		return (word | IN_USE | SHARED) + READER_ONE;
	return word | IN_USE | (uint64_t)(uintptr_t)request;
}

/* Before that one, as the last if it is the first; NULL: alone. */
static inline void
ring_add(struct request *before, struct request *request, enum ring of)
{
	if (before == NULL)
		before = request->link[of].previous = request;
	request->link[of].next = before;
	request->link[of].previous = before->link[of].previous;
	before->link[of].previous->link[of].next = request;
	before->link[of].previous = request;
}

/* The first of those that are left, where that one was the first. */
static inline struct request *
ring_remove(struct request *first, struct request *request, enum ring of)
{
	struct request *next = request->link[of].next;

	next->link[of].previous = request->link[of].previous;
	request->link[of].previous->link[of].next = next;
	if (request != first)
		return first;
	return next != request ? next : NULL;
}

/* Behind that one, or the first; NULL: it was the last. */
static inline struct request *
ring_next(struct request *first, const struct request *request, enum ring of)
{
	if (request == NULL)
		return first;
	return request->link[of].next != first ? request->link[of].next : NULL;
}

static inline bool
object_precedes(const struct object *a, const struct object *b)
{
	return a->order != b->order ? a->order < b->order
				    : (uintptr_t)a < (uintptr_t)b;
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

static inline bool
is_shut_down(const struct hwt_checkout *checkout)
{
	return a64_load_seq(&checkout->gate.word) & RETIRED;
}

/* What a try answers: the index of the object that refused, or these. */
#define TRIED_ALL (-1) /* it has all, and is counted as out */
#define TRIED_GATE (-2)

/* object.c */

/* Takes object i for its request, which is its owner's; false: it refuses. */
bool object_take_slowly(struct request *request, uint32_t i);
static inline bool
object_take(struct request *request, uint32_t i)
{
	struct request_item *item = request_item(request, i);
	struct object *object = request_object(request, i);
	bool reads = item != NULL && item->use == HWT_READ;

	/* Free, and nobody waits. E:object acquire */
	if (!a64_cas_seq(&object->word, 0, word_taken(0, request, reads)))
		return object_take_slowly(request, i);
	if (item != NULL)
		item->granted = object;
	return true;
}

/* Gives it back, and serves who waits for it. */
void object_give_slowly(struct request *request, uint32_t i);
static inline void
object_give(struct request *request, uint32_t i)
{
	struct request_item *item = request_item(request, i);
	struct object *object = request_object(request, i);
	uint64_t word = word_taken(0, request, false);

	/* Written, and nobody waits. Not a group, which may be retired if its
	 * member was. E:object release; E:wait fence */
	if ((item != NULL && item->granted != object) ||
	    !a64_cas_seq(&object->word, word, 0))
		object_give_slowly(request, i);
	else if (item != NULL)
		item->granted = NULL;
}

/* Takes a member of group i: TRIED_ALL, or i. One that names nothing else asks
 * the gate, too, and counts itself as out. */
int64_t group_take(struct request *request, uint32_t i);
/* Gives it back, unless it was retired; then the group may be, too. is_out: it
 * is counted. */
void group_give(struct request *request, uint32_t i, bool is_out);
/* The same of an object that no request names. */
void object_free(struct object *object, bool reads);
/* The request, TRYING, waits at its object i, or at the gate. False: it may be
 * tried again, or a mark was left. */
bool object_wait(struct request *request, int64_t i);
/* Takes it out of the list of at, hands its baton on, and serves the list. */
void object_leave(struct request *request);
/* What waits at the gate is woken, in order; under pause_lock. */
void gate_open(struct hwt_checkout *checkout);
/* A member is free; with the lock of any's shard. */
void group_put(struct group *group, struct object *member);

/* Nobody is granted it any more: ends all waits for sets with it, of which
 * there are at most so many. */
void object_retire(
    struct hwt_checkout *checkout, struct object *object, uint64_t waits);

/* request.c */

int grant_error(enum hwt_grant grant);
void queue_add(struct request *request);
/* At the end of a call, and before it sleeps. */
void queue_drain(void);
static inline void
queue_run(void)
{
	if (checkout_queue.first != NULL && !checkout_queue.runs)
		queue_drain();
}

void blocked_tell(struct blocked *blocked, int told);
/* Ends the wait of one that is WAITING, and is its owner then; leaves a mark in
 * one that others own. gone: the object that is retired. Answers the word that
 * it had. */
uint64_t request_interrupt(struct request *request, enum hwt_grant grant,
    uint64_t clear, const struct object *gone);
/* By its owner, when it is in no list of waiters. */
void request_finish(struct request *request, enum hwt_grant grant);
/* Ends all waits for sets with that object (NULL: all) that have begun. */
void requests_stop(struct hwt_checkout *checkout, const struct object *object,
    enum hwt_grant grant);

/* It is handed what it waits for. */
static inline bool
request_is_in_order(const struct request *request)
{
	return request->refusals >= request->checkout->hold_after;
}

/* pause.c */

/* Something was released, or the checkout is shut down: wakes a pause. */
void pause_notify(struct hwt_checkout *checkout);

/* Something is not out any more. */
static inline void
out_end(struct hwt_checkout *checkout, a64_t *count, uint64_t by)
{
	/* E:pause release */
	(void)a64_add_seq(count, by);
	if (a64_load_seq(&checkout->gate.word) & IN_USE)
		pause_notify(checkout);
}

/* Something is to be out; false: the gate is closed. */
static inline bool
out_begin(struct hwt_checkout *checkout, a64_t *count)
{
	(void)a64_add_seq(count, 1);
	/* E:pause fence: (A1), (A2) */
	if (!(a64_load_seq(&checkout->gate.word) & IN_USE))
		return true;
	out_end(checkout, count, UINT64_MAX);
	return false;
}

uint64_t count_out(struct hwt_checkout *checkout);

#endif
