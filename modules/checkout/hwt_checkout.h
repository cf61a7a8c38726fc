/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_checkout - sets of objects, granted whole, with a deadline and a pause.
 *
 * A request names a set of objects; it gets all of them, or it holds none and
 * waits, without a thread, until it gets all of them, its deadline comes, or it
 * is cancelled. A pause waits until nothing is out, and grants nothing until it
 * is over. A store (below) has objects by key, each loaded once.
 *
 * PROMISES
 *
 *   whole          A granted request holds all its objects. A waiting one holds
 *                  none, unless it is served in order.
 *   in-order       Requests wait for an object in the order in which their
 *                  waits began. One that was refused options.hold_after times
 *                  is handed each object for which it is the first, before
 *                  others can take it, and keeps what it has got. So each is
 *                  granted if all that is granted is released, and each group
 *                  has a member. HWT_CHECKOUT_NEVER: no such promise.
 *   one-holder     No object is in two granted requests, unless both only read
 *                  it. The next holder reads what its holder wrote.
 *   readers        Who comes to read an object waits behind those that wait for
 *                  it. Readers that wait one after another get it together.
 *   once           When hwt_checkout_acquire has answered 1, granted is called
 *                  once. The request is the caller's again when that is with
 *                  another outcome than HWT_GRANTED, or has been released.
 *   no-lost-wake   No request waits while all its objects are free, but for the
 *                  moment until the thread that was woken tries it.
 *   deadline       It ends a wait, never a grant, and never before its delay
 *                  has passed, by the timer's clock.
 *   pause          When hwt_checkout_pause has answered 0, nothing is out, and
 *                  nothing is granted before hwt_checkout_resume.
 *   no-lock-held   The library holds no lock while it calls granted, which may
 *                  call every function here that does not wait. A granted that
 *                  such a call causes is called after the first one has
 *                  returned, so that a chain of grants takes no stack.
 *   few-wakes      A release wakes one request that waits for the object, or
 *                  the readers that are first. A grant without a wait takes no
 *                  memory and no timeout, and no lock unless of a group.
 *
 * WHERE granted RUNS. In any call of acquire, acquire_wait, try, release,
 * cancel, resume, retire and shutdown, also for another request; and in
 * tasks of the timer. A mutex that any granted locks must not be locked where
 * these are called: release would deadlock. Let granted post to the thread that
 * is to continue: hwt_mailbox_post.
 *
 * All functions may be called from any thread. int functions return 0, or what
 * they say, or a negative errno value; then nothing has changed. Times are in
 * nanoseconds. All answer -EINVAL for NULL, and -EOWNERDEAD in a child process
 * of the one that made the checkout, where the destroy functions free it alone:
 * a store before its checkout, and that before its timer.
 */
#ifndef HWT_CHECKOUT_H
#define HWT_CHECKOUT_H

#include <hwt.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct hwt_checkout;

/* The user's memory; stays until it is retired, or the checkout destroyed. */
struct hwt_object {
	uint64_t private_words[4];
};

/* The same; stays while the request waits or is granted. */
struct hwt_request {
	uint64_t private_words[20];
};

/* Objects of which a request takes any one: the connections of a pool. */
struct hwt_group {
	struct hwt_object any; /* for requests: names any one of its members */
	uint64_t private_words[2];
};

enum hwt_use {
	HWT_WRITE, /* alone */
	HWT_READ /* beside others that read it */
};

/* What a request wants, and what it has got. */
struct hwt_item {
	struct hwt_object *wanted; /* an object, or any of a group */
	/* Written by the library: while the request is granted, the same
	 * object, or the member of the group; otherwise NULL. */
	struct hwt_object *granted;
	enum hwt_use use; /* of an object; any of a group: HWT_WRITE */
};

enum hwt_grant {
	HWT_GRANTED = 1,
	HWT_GRANT_EXPIRED,
	HWT_GRANT_CANCELLED,
	HWT_GRANT_RETIRED,
	HWT_GRANT_SHUT_DOWN
};

/* The wait is over. */
typedef void hwt_granted(
    struct hwt_request *request, void *arg, enum hwt_grant grant);

#define HWT_CHECKOUT_NEVER UINT32_MAX

/* All zero: the defaults. */
struct hwt_checkout_options {
	uint32_t shards; /* a power of two up to 2^16; 0: 64 */
	/* 1 to 255, 0: 16, or HWT_CHECKOUT_NEVER. 1 is first come, first
	 * served: slower, as each object waits for a thread to wake up. */
	uint32_t hold_after;
	uint64_t reserved[7]; /* 0 */
};

/* Exact when no call is under way. */
struct hwt_checkout_stats {
	uint64_t out; /* granted, not released */
	uint64_t waiting;
	uint64_t granted; /* all so far, with and without a wait */
	uint64_t waited; /* waits begun */
	uint64_t expired, cancelled, retired, shut_down;
	uint64_t woken; /* requests that were woken to try again */
	uint64_t pauses; /* that were declared */
	uint64_t released; /* of those granted */
	/* How long the one that waits longest has waited; 0: none waits. */
	uint64_t longest_wait_ns;
	/* All waits that have ended. Element k counts waits of [2^k, 2^(k+1))
	 * ns; 0 counts in element 0. */
	uint64_t wait_ns_sum, wait_ns_max, wait_ns_histogram[64];
	uint64_t reserved[8];
};

/* Makes a checkout whose deadlines are timeouts of this timer, which must
 * outlive it. Call hwt_checkout_shutdown before hwt_stop, which takes the
 * deadlines from waits.
 * -EINVAL     also shards, hold_after or reserved words out of range
 * -ENOMEM
 * -EOWNERDEAD the timer was made before a fork */
HWT_MUST_CHECK
int hwt_checkout_create(struct hwt_checkout **checkout, struct hwt *timer,
    const struct hwt_checkout_options *options);

/* Ends all waits with HWT_GRANT_SHUT_DOWN; try, acquire, acquire_wait and pause
 * answer -ESHUTDOWN from then on, also a pause that still waits. Granted
 * requests stay so until they are released, and one that is being tried at that
 * moment may still be granted when this has returned. */
int hwt_checkout_shutdown(struct hwt_checkout *checkout);

/* Frees the checkout, when every granted that was called has returned. No other
 * call may be under way. NULL: 0.
 * -EBUSY      something is out or waits
 * -EDEADLK    from granted or an unload */
HWT_MUST_CHECK
int hwt_checkout_destroy(struct hwt_checkout *checkout);

/* Requests take their objects in ascending order, objects of equal order by
 * address. The memory must not be an object in use. */
int hwt_object_init(
    struct hwt_checkout *checkout, struct hwt_object *object, uint64_t order);

/* By its holder, who has it to write: takes the object out of the request (its
 * item's granted becomes NULL), and ends all waits for sets with it that have
 * begun, with HWT_GRANT_RETIRED. Then its memory is the user's. A member leaves
 * its group: no wait ends. Time grows with all waits.
 * A call that is under way may use the objects of its request, until it answers
 * 1. So who finds an object under a mutex acquires with the mutex locked, and
 * who retires it has taken it out of there under that mutex.
 * -EPERM      it is not in a granted request, or for reading
 * -E2BIG      the request has more than HWT_SORTED_MAX items */
HWT_MUST_CHECK
int hwt_object_retire(struct hwt_checkout *checkout, struct hwt_object *object);

/* Makes a group without members, which requests take as one of that order. */
int hwt_group_init(
    struct hwt_checkout *checkout, struct hwt_group *group, uint64_t order);

/* Makes an object that is a member of the group. Requests name group->any, and
 * get the free member that was released last.
 * -EIDRM      the group is retired, and its memory is not used otherwise
 * -EINVAL     also a group of another checkout */
int hwt_group_add(struct hwt_checkout *checkout, struct hwt_group *group,
    struct hwt_object *object);

/* Ends the waits for sets with group->any: see hwt_object_retire.
 * -EBUSY      it has members: their holders retire them
 * -EIDRM      as hwt_group_add */
HWT_MUST_CHECK
int hwt_group_retire(struct hwt_checkout *checkout, struct hwt_group *group);

#define HWT_SORTED_MAX 20

/* Prepares a request, which does not wait and is not granted, for any number of
 * uses. The items stay as they are meanwhile, but for granted. The function may
 * be NULL where only threads wait. There is no upgrade: who reads an object and
 * would write it releases it first. Who holds an object does not wait for it
 * with another request.
 * -EINVAL     also count is 0, an object twice, objects of several checkouts or
 *             not initialised, a member of a group, a group to read
 * -E2BIG      more than HWT_SORTED_MAX, not in ascending order */
int hwt_request_init_items(struct hwt_request *request, struct hwt_item *items,
    size_t count, hwt_granted *granted, void *arg);

/* The same, of objects to write, no group's any, in an array that stays. */
int hwt_request_init(struct hwt_request *request,
    struct hwt_object *const *objects, size_t count, hwt_granted *granted,
    void *arg);

/* 0           granted
 * -EAGAIN     refused, or a pause; it holds nothing
 * -EBUSY      it waits or is granted already
 * -EIDRM      an object is retired, and its memory is not used otherwise; or
 *             retirements have left none
 * -EINVAL     also not initialised, or objects of another checkout
 * -ESHUTDOWN  hwt_checkout_shutdown was called */
HWT_MUST_CHECK
int hwt_checkout_try(
    struct hwt_checkout *checkout, struct hwt_request *request);

/* 0           granted; granted is not called
 * 1           granted is called once, perhaps before this returns; at the
 *             latest when delay_ns has passed and the timer has called the
 *             timeout's task. HWT_NEVER: no deadline
 * -EINVAL     also no granted, or delay_ns in [2^63, HWT_NEVER)
 * -ENOBUFS    the timer is full (max_pending)
 * -ESHUTDOWN  also when a timeout is needed and the timer is stopped
 * -EAGAIN     the timer cannot start its thread
 * -ENOMEM
 * -EBUSY -EIDRM as hwt_checkout_try */
HWT_MUST_CHECK
int hwt_checkout_acquire(struct hwt_checkout *checkout,
    struct hwt_request *request, uint64_t delay_ns);

/* Waits in this thread; granted is not called. 0: granted. The memory of its
 * objects stays until it has returned, also if they are retired. In a task of
 * the timer, as a pause, it lasts beyond its deadline: no other task runs.
 * -ETIMEDOUT  its deadline has come
 * -ECANCELED  it was cancelled
 * -EDEADLK    from granted, or from an unload, which a pause waits for
 * Others as hwt_checkout_acquire; -EIDRM and -ESHUTDOWN also when these ended
 * the wait. */
HWT_MUST_CHECK
int hwt_checkout_acquire_wait(struct hwt_checkout *checkout,
    struct hwt_request *request, uint64_t delay_ns);

/* Releases all objects of a granted request: see WHERE granted RUNS.
 * -ENOENT     it is not granted */
int hwt_checkout_release(
    struct hwt_checkout *checkout, struct hwt_request *request);

/* The request's memory stays until this has returned.
 * 0           this call has ended the wait: granted is called with
 *             HWT_GRANT_CANCELLED, mostly before this returns
 * -EINPROGRESS it is being tried at this moment; if that fails, it ends as
 *             cancelled
 * -ENOENT     it does not wait */
int hwt_checkout_cancel(
    struct hwt_checkout *checkout, struct hwt_request *request);

/* Waits until nothing is out; nothing is granted meanwhile. 0: nothing is out,
 * until hwt_checkout_resume by any thread. Delay 0 does not wait.
 * Who holds one request and waits for another, in granted or in a thread, waits
 * for the end of the pause, and the pause for him. Name all objects in one
 * request, or end one of the waits by a deadline: either is enough.
 * -ETIMEDOUT  something was still out, or being tried, after delay_ns; all goes
 *             on as before
 * -EALREADY   another pause has begun
 * -EDEADLK    from granted, or from an unload, which a pause waits for
 * -EINVAL     also delay_ns in [2^63, HWT_NEVER)
 * -ESHUTDOWN  hwt_checkout_shutdown was called, or the timer is stopped
 * -ENOBUFS -EAGAIN -ENOMEM   the timer's */
HWT_MUST_CHECK
int hwt_checkout_pause(struct hwt_checkout *checkout, uint64_t delay_ns);

/* Ends the pause: what waits for that is tried, in the order in which it came.
 * -EALREADY   there is no pause
 * -EBUSY      a pause has begun, and something is still out */
int hwt_checkout_resume(struct hwt_checkout *checkout);

int hwt_checkout_read_stats(
    const struct hwt_checkout *checkout, struct hwt_checkout_stats *stats);

/*
 * STORE: objects by key, each loaded once and unloaded when idle.
 *
 *   loaded-once     While an object is there, or its load has begun, no other
 *                   load of its key begins. A load runs outside all locks, on
 *                   the thread that wants the object.
 *   load-failure    goes to all requests that want the object; the next one
 *                   loads again.
 *   load-leaves     A deadline, a cancel, a shutdown ends the wait for a load;
 *                   the load continues, and the object stays. A pause does not
 *                   wait for loads.
 *   unload-alone    Nobody has the object, nor wants it, when it is chosen;
 *                   until unload has answered, nobody gets it. Who wants it
 *                   meanwhile gets it loaded again, or as it is if unload
 *                   refuses. A pause waits for an unload as for a grant, and
 *                   none begins in a pause.
 *   unload-when     Not before nobody has wanted it for options.idle_ns; or
 *                   while there are more than options.limit, by second chance.
 */

struct hwt_store;
struct hwt_store_job;

struct hwt_store_request {
	uint64_t private_words[88];
};

#define HWT_STORE_ITEMS_MAX 20
#define HWT_STORE_KEY_MAX 255

/* A key, and what its load has made of it. */
struct hwt_store_item {
	const void *key; /* stays while the request is used */
	size_t size; /* bytes: 1 to HWT_STORE_KEY_MAX */
	void *value; /* written by the library: while granted, else NULL */
	enum hwt_use use;
};

/* What a load makes. */
struct hwt_loaded {
	void *value;
};

/* An answer of load and unload: hwt_store_complete is called, or was. */
#define HWT_STORE_LATER 1

/* Makes the object of a key. It may call the library, but must not wait for
 * what waits for its object. key stays until the job has ended. 0, with loaded
 * filled; HWT_STORE_LATER; or a negative errno value, which the waiting
 * requests get, -EINVAL for any other number. */
typedef int hwt_store_load(void *ctx, struct hwt_store_job *job,
    const void *key, size_t size, struct hwt_loaded *loaded);

/* Ends an object, writing it out if need be; nobody else has it. 0: value is
 * gone; HWT_STORE_LATER; anything else: the object stays. */
typedef int hwt_store_unload(void *ctx, struct hwt_store_job *job,
    const void *key, size_t size, void *value);

/* The wait is over: what hwt_store_acquire_wait would answer. */
typedef void hwt_store_granted(
    struct hwt_store_request *request, void *arg, int result);

/* All zero: names without values that stay until the store is destroyed. */
struct hwt_store_options {
	hwt_store_load *load; /* NULL: an object is there when it is named */
	hwt_store_unload *unload; /* NULL: there is nothing to do */
	void *ctx; /* of both */
	/* Of objects. Those that are out or wanted, loads that end at the same
	 * time, and a pause exceed it. 0: none. */
	uint64_t limit;
	/* Below 2^63; 0: none. A task of the timer unloads an object after one
	 * to two times of it. */
	uint64_t idle_ns;
	uint32_t shards; /* a power of two up to 2^16; 0: 256 */
	uint32_t reserved_32; /* 0 */
	uint64_t reserved[7]; /* 0 */
};

/* Exact when no call is under way. */
struct hwt_store_stats {
	uint64_t loaded; /* objects that are there */
	uint64_t jobs; /* loads and unloads that have begun and not ended */
	/* Items of requests so far: found; not there; with its load or unload
	 * under way. */
	uint64_t hits, misses, joined;
	/* Loads that have ended, and that failed; unloads, and refused ones. */
	uint64_t loads, failures, unloads, refusals;
	uint64_t reserved[8];
};

/* Makes a store whose objects are the checkout's, which must outlive it.
 * -EINVAL     also an option out of range
 * -ESHUTDOWN  the timer is stopped, with idle_ns
 * -ENOMEM -ENOBUFS -EAGAIN */
HWT_MUST_CHECK
int hwt_store_create(struct hwt_store **store, struct hwt_checkout *checkout,
    const struct hwt_store_options *options);

/* Unloads all objects and frees the store. No other call may be under way. To
 * end what waits, call hwt_checkout_shutdown first. NULL: 0.
 * -EBUSY      something is out or waits, a job has not ended, an unload was
 *             refused (others are done), or a pause is on
 * -EDEADLK    from granted or an unload */
HWT_MUST_CHECK
int hwt_store_destroy(struct hwt_store *store);

/* As hwt_request_init_items.
 * -EINVAL     also count is 0, a size or a use out of range, a key twice
 * -E2BIG      more than HWT_STORE_ITEMS_MAX */
int hwt_store_request_init(struct hwt_store *store,
    struct hwt_store_request *request, struct hwt_store_item *items,
    size_t count, hwt_store_granted *granted, void *arg);

/* 0           granted; granted is not called
 * 1           granted is called once, perhaps before this returns; with a
 *             deadline as in hwt_checkout_acquire, which begins when the loads
 *             of this thread have answered
 * -EINVAL     also no granted, delay_ns in [2^63, HWT_NEVER), another store
 * -EBUSY      it waits or is granted already
 * -ENOMEM     also for the entry of an object
 * -ENOBUFS -EAGAIN -ESHUTDOWN   as hwt_checkout_acquire
 * Any other, but also one of these: what the load of one of its objects has
 * answered. */
HWT_MUST_CHECK
int hwt_store_acquire(struct hwt_store *store,
    struct hwt_store_request *request, uint64_t delay_ns);

/* Waits in this thread; granted is not called. 0: granted.
 * -ETIMEDOUT -ECANCELED -EDEADLK   as hwt_checkout_acquire_wait
 * Others as hwt_store_acquire. */
HWT_MUST_CHECK
int hwt_store_acquire_wait(struct hwt_store *store,
    struct hwt_store_request *request, uint64_t delay_ns);

/* Releases all objects of a granted request. May unload others.
 * -ENOENT     it is not granted */
int hwt_store_release(
    struct hwt_store *store, struct hwt_store_request *request);

/* As hwt_checkout_cancel; it is not acquired again before this has returned. */
int hwt_store_cancel(
    struct hwt_store *store, struct hwt_store_request *request);

/* By any thread, once for each job that has answered HWT_STORE_LATER, or will:
 * result is what load or unload answers otherwise, 0 or negative. loaded is
 * copied; NULL: no value.
 * -ENOENT     the job has ended (of which the store knows the last 1,024 for
 *             the memory of an object)
 * -EINVAL     also result is positive */
int hwt_store_complete(struct hwt_store *store, struct hwt_store_job *job,
    int result, const struct hwt_loaded *loaded);

int hwt_store_read_stats(
    const struct hwt_store *store, struct hwt_store_stats *stats);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
