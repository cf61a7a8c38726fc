/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_checkout - sets of objects, granted whole, with a deadline and a pause.
 *
 * An object has one holder at a time that writes it, or any number that read
 * it. A request names a set of objects; it gets all of them, or it holds none
 * and waits, without a thread, until it gets all of them, its deadline comes,
 * or it is cancelled. A pause waits until all is released, and grants nothing
 * until it is over.
 *
 * PROMISES
 *
 *   whole          A granted request holds all its objects. A waiting one holds
 *                  none until options.hold_after lets it.
 *   in-order       A request that was refused options.hold_after times gets
 *                  each object before all that began to wait for it later. So
 *                  each request that waits without a deadline is granted if
 *                  all that is granted is released, and each group has a
 *                  member. HWT_CHECKOUT_NEVER: no such promise.
 *   one-holder     No object is in two granted requests, unless both only read
 *                  it. What its holder wrote before release, the next holder
 *                  reads.
 *   readers        Who reads an object shares it with others that read it. Who
 *                  comes to read it while somebody waits for it waits behind
 *                  that one, so that a writer waits for those alone that have
 *                  it. Readers that wait together are granted together, up to
 *                  the first writer among them.
 *   once           When hwt_checkout_acquire has answered 1, granted is called
 *                  once. The request is the caller's again when granted is
 *                  called with another outcome than HWT_GRANTED, or when
 *                  hwt_checkout_release has returned.
 *   no-lost-wake   No request waits while all its objects are free, but for the
 *                  moment until the thread that was woken tries it.
 *   deadline       It ends a wait, never a grant, and never before its delay
 *                  has passed, by the timer's clock.
 *   pause          When hwt_checkout_pause has answered 0, or a request that
 *                  pauses all is granted, nothing is out, and nothing is
 *                  granted before hwt_checkout_resume, or its release. Then
 *                  nothing waits for the pause any more.
 *   no-lock-held   The library holds no lock while it calls granted, which may
 *                  call every function here that is not said to wait. A granted
 *                  that such a call causes is called after the first one has
 *                  returned, so that a chain of grants takes no stack. So
 *                  granted returns soon, and waits for no other request.
 *   few-wakes      A release wakes one request that waits for the object, or
 *                  the readers that are first in line, and one more only when
 *                  these cannot use it. A grant without a wait takes no lock,
 *                  no memory and no timeout.
 *
 * WHERE granted RUNS. In any call of try, acquire, acquire_wait, release,
 * cancel, pause, resume, retire and shutdown, on the caller's thread, also that
 * of another request, as whoever releases an object tries those that wait for
 * it; and in tasks of the timer. So a mutex that any granted locks must not be
 * locked where these are called: release would deadlock. Instead
 *
 *   - call release after unlocking: what is to be released is noted first;
 *   - or let granted only note what was granted, under a mutex that is locked
 *     for nothing else, or by a write to an eventfd, for a thread of yours;
 *   - to wait for what was found under a mutex, use
 *     hwt_checkout_acquire_wait_unlock, which unlocks it before;
 *   - or give the checkout an executor: options.executor, a mailbox. Then
 *     granted runs where the executor calls hwt_request_run, and nowhere else
 *     unless it refuses.
 *
 * Not promised: any other order of requests. One that has just come may
 * overtake those that wait.
 *
 * All functions may be called from any thread, also from tasks of the timer,
 * where none should wait. int functions return 0, or what they say, or a
 * negative errno value; then nothing has changed. Times are in nanoseconds.
 *
 * In a child process, a checkout, store or mailbox of its parent answers
 * -EOWNERDEAD, and the destroy functions free it: a store before its checkout,
 * and that before its timer. hwt_request_init and hwt_request_init_items, which
 * write the request alone, do what they always do. Where the child was forked
 * in granted, its copy of that may go on, and must end in _exit or exec.
 */
#ifndef HWT_CHECKOUT_H
#define HWT_CHECKOUT_H

#include <hwt.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct hwt_checkout;
struct hwt_request_mailbox;

/* Part of the user's structure. It stays where it is until it is retired, or
 * the checkout destroyed. */
struct hwt_object {
	uint64_t private_words[4];
};

/* The caller's memory, which stays where it is while the request waits or is
 * granted. */
struct hwt_request {
	uint64_t private_words[16];
};

/* Equal objects, its members, of which a request takes any one: the connections
 * of a pool. */
struct hwt_group {
	struct hwt_object any; /* for requests: names any one of its members */
	uint64_t private_words[4];
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

/* Where granted runs: execute calls hwt_request_run, or has it called, once for
 * each request that it accepts, on any thread. It returns 0, or anything else
 * to refuse: then hwt_request_run is not called, and granted runs where it was
 * decided. */
struct hwt_request_executor {
	int (*execute)(void *ctx, struct hwt_checkout *checkout,
	    struct hwt_request *request);
	void *ctx;
};

#define HWT_CHECKOUT_NEVER UINT32_MAX

/* All zero: the defaults. */
struct hwt_checkout_options {
	uint32_t shards; /* a power of two up to 2^16; 0: 64 */
	/* A request that was refused so often is served in order: an object for
	 * which it is the first that waits is handed over to it before others
	 * can take it, and it keeps what it has got while it waits for the next
	 * object. So it is not overtaken for ever. Who holds objects and waits
	 * for others can deadlock with it, unless these come later in order.
	 * 1 to 255; 0: 16. 1 is first come, first served, for each object and
	 * each group, but for what a pause has delayed: fair, and slower where
	 * holds are short, as each object then waits for a thread to wake up.
	 * HWT_CHECKOUT_NEVER: waiting requests hold nothing. */
	uint32_t hold_after;
	/* Copied; its ctx outlives the checkout. NULL: granted runs on the
	 * thread that decides. */
	const struct hwt_request_executor *executor;
	/* At most 15 bytes, copied: for hwt_checkout_stats_write and
	 * hwt_checkout_dump. NULL: "checkout". */
	const char *name;
	/* 1: hwt_checkout_dump says what is granted, and since when. A grant
	 * without a wait, and each release, take a lock then. 0 or 1. */
	uint64_t list_grants;
	uint64_t reserved[5]; /* 0 */
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
	/* How long the one that waits longest has waited; 0: none waits. It may
	 * be the wait of another one that began while the call which began
	 * that one was still under way. */
	uint64_t longest_wait_ns;
	/* All waits that have ended, however they did, by the timer's clock.
	 * Element k counts waits of [2^k, 2^(k+1)) ns; 0 counts in element 0.
	 * Grants without a wait are not in it. */
	uint64_t wait_ns_sum, wait_ns_max, wait_ns_histogram[64];
	uint64_t reserved[8];
};

/* Makes a checkout whose deadlines are timeouts of this timer, which must
 * outlive it. A timer that is stopped takes the deadlines from waits and from a
 * pause that waits: call hwt_checkout_shutdown first.
 * -EINVAL     NULL, shards, hold_after or reserved words out of range
 * -ENOMEM
 * -EOWNERDEAD the timer was made before a fork */
HWT_MUST_CHECK
int hwt_checkout_create(struct hwt_checkout **checkout, struct hwt *timer,
    const struct hwt_checkout_options *options);

/* Ends all waits with HWT_GRANT_SHUT_DOWN, in time that grows with their count;
 * try, acquire, acquire_wait and pause answer -ESHUTDOWN from then on, also a
 * pause that still waits. What is out stays so until it is released, and what
 * is being tried at that moment may still be granted when this has returned.
 * -EINVAL -EOWNERDEAD */
int hwt_checkout_shutdown(struct hwt_checkout *checkout);

/* Frees the checkout, when every granted that was called has returned. No other
 * call may be under way. NULL: 0.
 * -EBUSY      something is out or waits, or an executor has it, or a request
 *             pauses all
 * -EDEADLK    from granted */
HWT_MUST_CHECK
int hwt_checkout_destroy(struct hwt_checkout *checkout);

/* Requests take their objects in ascending order, and those of equal order by
 * address. The memory must not be an object in use.
 * -EINVAL -EOWNERDEAD */
int hwt_object_init(
    struct hwt_checkout *checkout, struct hwt_object *object, uint64_t order);

/* Makes a group without members. Requests take it as an object of that order;
 * what waits for it goes on waiting while it has none. Its memory stays where
 * it is until it is retired, or the checkout destroyed. The library allocates
 * 576 bytes for it; if there is no memory, taking a free member needs a lock.
 * -EINVAL -EOWNERDEAD */
int hwt_group_init(
    struct hwt_checkout *checkout, struct hwt_group *group, uint64_t order);

/* Makes an object that is a member of the group, free or given to the first
 * request that waits. Requests name it by group->any alone. Which free member
 * a request gets is not promised: mostly the one that it released last. The
 * memory must not be an object in use, and no request names it.
 * -EIDRM      the group is retired, as long as its memory is used for nothing
 *             else
 * -EINVAL     NULL, or a group of another checkout
 * -EOWNERDEAD */
int hwt_group_add(struct hwt_checkout *checkout, struct hwt_group *group,
    struct hwt_object *object);

/* Ends all waits for sets with group->any with HWT_GRANT_RETIRED. Then its
 * memory is the user's. Who may use it meanwhile: see hwt_object_retire.
 * -EBUSY      it has members: their holders retire them
 * -EIDRM -EINVAL -EOWNERDEAD   as hwt_group_add */
HWT_MUST_CHECK
int hwt_group_retire(struct hwt_checkout *checkout, struct hwt_group *group);

/* For the holder of the object, who has it to write: takes it out of the
 * request that holds it, and ends all waits for sets with it with
 * HWT_GRANT_RETIRED. Then its memory is the user's; if the holder's request has
 * more than 20 objects, when that is released. Its item's granted is NULL then.
 * A member leaves its group: no wait ends, and the request can be used again.
 * It waits while a wait with the object is being tried. Its time grows with the
 * waits for all objects, in all sets.
 * Waits for the object may be under way meanwhile, calls that begin with it may
 * not: hwt_request_init, try, acquire, acquire_wait. So while an object can be
 * retired and freed, threads call these with a mutex locked, under which they
 * have found the object; whoever retires it locks that mutex before, and sees
 * to it that the object is not found any more. A wait has begun when acquire
 * has answered 1, or when hwt_checkout_acquire_wait_unlock has unlocked the
 * mutex. hwt_checkout_acquire_wait does not say when: it is for objects that no
 * other thread retires until it has returned.
 * -EPERM      it is not in a granted request, or for reading
 * -EINVAL     NULL, or an object of another checkout
 * -EOWNERDEAD */
HWT_MUST_CHECK
int hwt_object_retire(struct hwt_checkout *checkout, struct hwt_object *object);

/* Prepares a request for any number of uses. The array stays where it is as
 * long as the request is used; it is not changed. granted may be NULL for
 * hwt_checkout_try and hwt_checkout_acquire_wait. The memory must not be a
 * request that waits or is granted.
 * -EINVAL     NULL, count is 0, an object twice, objects of several checkouts
 *             or not initialised, a group's any, a member of a group
 * -E2BIG      more than 20 objects that are not in ascending order, as where
 *             one is there again behind others */
int hwt_request_init(struct hwt_request *request,
    struct hwt_object *const *objects, size_t count, hwt_granted *granted,
    void *arg);

/* The same, of objects and groups, to write or to read. The items stay where
 * they are as long as the request is used, and wanted and use are not changed;
 * the library writes granted, and whoever holds the request reads it.
 * There is no upgrade: who reads an object and would write it releases it
 * first, as two of them would wait for each other. Who holds an object does not
 * wait for it with another request: that may wait for a writer, which waits for
 * the holder.
 * -EINVAL     as above, but that a group's any may be there, once, to write; or
 *             use is neither
 * -ENOTSUP    an object to read and to write
 * -E2BIG      as above */
int hwt_request_init_items(struct hwt_request *request, struct hwt_item *items,
    size_t count, hwt_granted *granted, void *arg);

/* Prepares a request that pauses these objects, or, with objects NULL and
 * count 0, the whole checkout: a pause that is told, where hwt_checkout_pause
 * waits in its thread. It is used as any other request: acquire begins the
 * pause, granted is called, or acquire answers 0, when the objects, or all
 * objects, are out no more; release resumes; a deadline, a cancel or a
 * shutdown gives up, and all goes on as before.
 * Objects that it pauses are granted to it before all that wait for them, and
 * to nobody else from then on; each as soon as its holder releases it, while
 * others are still out. They are named as for hwt_request_init, groups not.
 * What wants others goes on.
 * The whole is paused as by hwt_checkout_pause: at most one pause of that kind
 * at a time. It counts among pauses, not among what is out or granted.
 * -EINVAL     as hwt_request_init; NULL, or objects of another checkout
 * -E2BIG      as hwt_request_init
 * -EOWNERDEAD */
int hwt_request_init_pause(struct hwt_checkout *checkout,
    struct hwt_request *request, struct hwt_object *const *objects,
    size_t count, hwt_granted *granted, void *arg);

/* 0           granted
 * -EAGAIN     refused, or a pause; it holds nothing. A group may refuse while
 *             another thread takes or releases a member, or begins to wait,
 *             although one is free: hwt_checkout_acquire gets that
 * -EBUSY      it waits or is granted already
 * -EALREADY   it pauses all, and another pause has begun
 * -ENOTSUP    it is granted already, and reads: there is no upgrade
 * -EIDRM      retirements have left no object; or one is retired, as long as
 *             its memory is used for nothing else: the user must know
 * -EINVAL     NULL, not initialised, or objects of another checkout
 * -ESHUTDOWN  hwt_checkout_shutdown was called
 * -EOWNERDEAD */
HWT_MUST_CHECK
int hwt_checkout_try(
    struct hwt_checkout *checkout, struct hwt_request *request);

/* 0           granted; granted is not called
 * 1           granted is called once, perhaps before this returns; at the
 *             latest when delay_ns has passed and the timer has called the
 *             timeout's task. HWT_NEVER: no deadline
 * -EINVAL     also no granted, delay_ns in [2^63, HWT_NEVER)
 * -ENOBUFS    the timer is full (max_pending)
 * -ESHUTDOWN  also when a timeout is needed and the timer is stopped
 * -EAGAIN     the timer cannot start its thread
 * -ENOMEM
 * -EALREADY -EBUSY -ENOTSUP -EIDRM -EOWNERDEAD as hwt_checkout_try */
HWT_MUST_CHECK
int hwt_checkout_acquire(struct hwt_checkout *checkout,
    struct hwt_request *request, uint64_t delay_ns);

/* Waits in this thread; granted is not called. No other thread may retire and
 * free one of the objects until it has returned: where that can happen, call
 * hwt_checkout_acquire_wait_unlock. 0: granted.
 * -ETIMEDOUT  its deadline has come
 * -ECANCELED  it was cancelled
 * -EDEADLK    from granted
 * Others as hwt_checkout_acquire, but that it needs no granted; -EIDRM and
 * -ESHUTDOWN also when these ended the wait. */
HWT_MUST_CHECK
int hwt_checkout_acquire_wait(struct hwt_checkout *checkout,
    struct hwt_request *request, uint64_t delay_ns);

/* The same, and unlocks the mutex, which the caller has locked: as soon as it
 * is decided or the wait has begun, so that a retirement finds it, and before
 * any granted is called. It is unlocked whatever the answer, but where mutex is
 * NULL (-EINVAL), and is not locked again. Who waits locks, finds the objects,
 * and calls hwt_request_init and this. Who retires an object locks, sees to it
 * that it is not found any more, and unlocks; then acquires it, calls
 * hwt_object_retire, and frees it. Errors as hwt_checkout_acquire_wait. */
HWT_MUST_CHECK
int hwt_checkout_acquire_wait_unlock(struct hwt_checkout *checkout,
    struct hwt_request *request, uint64_t delay_ns, pthread_mutex_t *mutex);

/* For executors: calls granted of a request that execute has accepted, in this
 * thread; nothing else of the request may be called before.
 * -ENOENT     it was not handed over, or this was called already
 * -EINVAL     as hwt_checkout_try
 * -EOWNERDEAD */
int hwt_request_run(struct hwt_checkout *checkout, struct hwt_request *request);

/* granted on an event loop's own thread: the descriptor is readable when
 * something waits. The mailbox outlives the checkouts that use its executor.
 * -EINVAL     NULL
 * -EMFILE -ENFILE -ENOMEM */
HWT_MUST_CHECK
int hwt_request_mailbox_create(struct hwt_request_mailbox **mailbox);
/* -EINVAL -EOWNERDEAD */
int hwt_request_mailbox_fd(const struct hwt_request_mailbox *mailbox);
/* NULL: in a child process, or of NULL. */
const struct hwt_request_executor *hwt_request_mailbox_executor(
    struct hwt_request_mailbox *mailbox);
/* By one thread at a time: calls granted of up to max requests, 0: of all that
 * were there when it began. count may be NULL.
 * -EINVAL -EOWNERDEAD */
int hwt_request_mailbox_run(
    struct hwt_request_mailbox *mailbox, size_t max, size_t *count);
/* NULL: 0.
 * -EBUSY      something waits in it, or it runs */
HWT_MUST_CHECK
int hwt_request_mailbox_destroy(struct hwt_request_mailbox *mailbox);

/* Releases all objects of a granted request. Not before granted was called
 * with HWT_GRANTED, or acquire or acquire_wait has returned 0. Calls granted of
 * requests that waited for them: see WHERE granted RUNS.
 * -ENOENT     it is not granted
 * -EINVAL     as hwt_checkout_try
 * -EOWNERDEAD */
int hwt_checkout_release(
    struct hwt_checkout *checkout, struct hwt_request *request);

/* The request's memory stays until this has returned, even if granted is called
 * before that.
 * 0           this call has ended the wait: granted is called with
 *             HWT_GRANT_CANCELLED, mostly before this returns
 * -EINPROGRESS it is being tried at this moment; if that fails, it ends as
 *             cancelled, but in hwt_checkout_try, which answers -EAGAIN then
 * -ENOENT     it does not wait
 * -EINVAL     as hwt_checkout_try
 * -EOWNERDEAD */
int hwt_checkout_cancel(
    struct hwt_checkout *checkout, struct hwt_request *request);

/* Waits until nothing is out; nothing is granted meanwhile, even if that fails
 * in the end. 0: nothing is out, until hwt_checkout_resume, also by another
 * thread. Delay 0 does not wait.
 * -ETIMEDOUT  something was still out, or being tried, after delay_ns; all goes
 *             on as before. What waits and keeps objects (hold_after) releases
 *             them when a pause begins
 * -EALREADY   another pause has begun
 * -EDEADLK    from granted
 * -EINVAL     NULL, delay_ns in [2^63, HWT_NEVER)
 * -ESHUTDOWN  hwt_checkout_shutdown was called, or the timer is stopped
 * -ENOBUFS -EAGAIN -ENOMEM   the timer's
 * -EOWNERDEAD */
HWT_MUST_CHECK
int hwt_checkout_pause(struct hwt_checkout *checkout, uint64_t delay_ns);

/* Ends the pause: what waits for that is tried, or its thread in
 * hwt_checkout_acquire_wait is woken, in the order in which it came.
 * -EALREADY   there is no pause
 * -EBUSY      a pause has begun, and something is still out; or a request has
 *             it, see hwt_request_init_pause, whose release ends it
 * -EINVAL -EOWNERDEAD */
int hwt_checkout_resume(struct hwt_checkout *checkout);

/* In time that grows with the shards.
 * -EINVAL -EOWNERDEAD */
int hwt_checkout_read_stats(
    const struct hwt_checkout *checkout, struct hwt_checkout_stats *stats);

/* Writes the counters to file, as hwt_stats_write does, and flushes it. The
 * labels are checkout, options.name, and serial, a number that no other
 * checkout of the process has. Prometheus has released in the place of granted,
 * which counts what is being tried, too, and so may fall. An error of the file
 * is returned; then a part may have been written.
 * -EINVAL     NULL, or no such format
 * -EIO        the C library does not say why the file could not be written
 * -EOWNERDEAD */
int hwt_checkout_stats_write(
    const struct hwt_checkout *checkout, FILE *file, enum hwt_format format);

/* Writes who waits to file, for people to read, and flushes it: each request
 * with its granted and arg, since when it waits and for which object, and what
 * it wants, with the request that has each object. With options.list_grants,
 * before these, what is granted, since when. A request has its address as its
 * name, an object its address and order; of a set, the first 8 are there. The
 * form may change.
 * Everything else may go on: a lock is held for a few requests at a time, and
 * none while the file is written. What begins or ends meanwhile may be missing.
 * Errors as hwt_checkout_stats_write.
 * -EINVAL -EIO -EOWNERDEAD */
int hwt_checkout_dump(const struct hwt_checkout *checkout, FILE *file);

/*
 * STORE: objects by key, each loaded once and unloaded when idle.
 *
 * A request of a store names keys. An object that is not there is loaded by a
 * callback of yours, once, however many requests want it; then it is as any
 * other object of the checkout: one request writes it, or several read it.
 * Objects that nobody wants are unloaded after a time, or when they weigh too
 * much.
 *
 *   loaded-once     While an object is there, or its load has begun, no other
 *                   load of its key begins. A load runs outside all locks, on
 *                   the thread that wants the object, or by an executor, or
 *                   answers HWT_STORE_LATER.
 *   load-failure    goes to all requests that wait for the object, and to those
 *                   that come within options.backoff_ns; the next one loads
 *                   again.
 *   load-leaves     A deadline, a cancel, a shutdown ends the wait for a load;
 *                   the load goes on, and the object stays. A pause does not
 *                   wait for loads, and what is loaded meanwhile is granted
 *                   when it ends.
 *   unload-alone    Nobody has the object, nor waits for it, when it is chosen;
 *                   until unload has answered, nobody gets it. Who wants it
 *                   meanwhile gets it loaded again, or as it is if unload
 *                   refuses. A pause waits for an unload as for a grant, and
 *                   none begins in a pause.
 *   unload-when     Not before nobody has wanted it for options.idle_ns; or
 *                   while all objects weigh more than options.limit: nearly
 *                   the longest unused first. Pinned ones stay.
 */

struct hwt_store;
struct hwt_store_job;

/* The caller's memory, as a hwt_request. */
struct hwt_store_request {
	uint64_t private_words[82];
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
	uint32_t weight; /* in the units of options.limit; before: 1 */
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

/* The wait is over. 0: granted; -ETIMEDOUT, -ECANCELED, -ESHUTDOWN as
 * hwt_checkout_acquire_wait answers; otherwise what the load answered. Where it
 * runs, and what it may do: as hwt_granted. */
typedef void hwt_store_granted(
    struct hwt_store_request *request, void *arg, int result);

/* Where loads and unloads run: execute has hwt_store_run called once for each
 * job that it accepts, by 0; when it refuses, the job runs where it began. */
struct hwt_store_executor {
	int (*execute)(
	    void *ctx, struct hwt_store *store, struct hwt_store_job *job);
	void *ctx;
};

/* All zero: names without values that stay until the store is destroyed. */
struct hwt_store_options {
	hwt_store_load *load; /* NULL: an object is there when it is named */
	hwt_store_unload *unload; /* NULL: there is nothing to do */
	void *ctx; /* of both */
	/* Weight of all loaded objects. It is exceeded by those that are out,
	 * wanted, pinned or kept, by loads that end at the same time, and
	 * during a pause. 0: none. */
	uint64_t limit;
	uint64_t idle_ns; /* below 2^63; 0: no unload by time */
	uint64_t backoff_ns; /* below 2^63; 0: none */
	uint32_t shards; /* a power of two up to 2^16; 0: 256 */
	/* Copied; its ctx outlives the store. NULL: the thread where a job
	 * begins: in acquire, acquire_wait, release, trim or destroy, in the
	 * task of a timeout, or where another job has ended. */
	const struct hwt_store_executor *executor;
	/* As that of hwt_checkout_options; NULL: "store". */
	const char *name;
	uint64_t reserved[7]; /* 0 */
};

/* Exact when no call is under way. */
struct hwt_store_stats {
	uint64_t loaded; /* objects that are there */
	uint64_t weight; /* of these */
	uint64_t jobs; /* loads and unloads that have begun and not ended */
	/* Items of requests so far: found; not there; with its load or unload
	 * under way; within a back-off. */
	uint64_t hits, misses, joined, backed_off;
	/* Loads that have ended, those in vain; unloads; those refused. */
	uint64_t loads, failures, unloads, refusals;
	uint64_t reserved[8];
};

/* Makes a store whose objects are the checkout's, which must outlive it; a
 * checkout may have several, and other objects.
 * -EINVAL     NULL, an option out of range
 * -ENOMEM -EOWNERDEAD */
HWT_MUST_CHECK
int hwt_store_create(struct hwt_store **store, struct hwt_checkout *checkout,
    const struct hwt_store_options *options);

/* Unloads all objects and frees the store. No other call may be under way. To
 * end what waits, call hwt_checkout_shutdown first. NULL: 0.
 * -EBUSY      something is out or waits, a job has not ended, an unload was
 *             refused, or a pause is on; what was unloaded is unloaded
 * -EDEADLK    from granted */
HWT_MUST_CHECK
int hwt_store_destroy(struct hwt_store *store);

/* Prepares a request for any number of uses. items stay where they are, and
 * their keys and uses as they are, as long as it is used. granted may be NULL
 * for hwt_store_acquire_wait. The memory must not be a request that waits or is
 * granted.
 * -EINVAL     NULL, count is 0, a size or a use out of range, a key twice
 * -E2BIG      more than HWT_STORE_ITEMS_MAX
 * -EOWNERDEAD */
int hwt_store_request_init(struct hwt_store *store,
    struct hwt_store_request *request, struct hwt_store_item *items,
    size_t count, hwt_store_granted *granted, void *arg);

/* 0           granted; granted is not called
 * 1           granted is called once, perhaps before this returns; with a
 *             deadline as in hwt_checkout_acquire. Without an executor, loads
 *             of this thread run before this returns; the request may end, and
 *             be used again, while they do
 * -EINVAL     NULL, no granted, delay_ns in [2^63, HWT_NEVER), another store
 * -EBUSY      it waits or is granted already
 * -ENOMEM     also for the entry of an object
 * -ENOBUFS -EAGAIN -ESHUTDOWN -EOWNERDEAD   as hwt_checkout_acquire
 * Any other, but also one of these: what the load of one of its objects has
 * answered, now or within options.backoff_ns. A load that this call has begun
 * goes on. */
HWT_MUST_CHECK
int hwt_store_acquire(struct hwt_store *store,
    struct hwt_store_request *request, uint64_t delay_ns);

/* Waits in this thread; granted is not called. Loads of this thread are not
 * ended by the deadline, nor by a cancel before it waits. 0: granted.
 * -ETIMEDOUT -ECANCELED -EDEADLK   as hwt_checkout_acquire_wait
 * -EBUSY -EINVAL -ENOMEM -ENOBUFS -EAGAIN -ESHUTDOWN -EOWNERDEAD
 *             as hwt_store_acquire, and so what a load has answered */
HWT_MUST_CHECK
int hwt_store_acquire_wait(struct hwt_store *store,
    struct hwt_store_request *request, uint64_t delay_ns);

/* Releases all objects of a granted request. May unload others.
 * -ENOENT     it is not granted
 * -EINVAL -EOWNERDEAD */
int hwt_store_release(
    struct hwt_store *store, struct hwt_store_request *request);

/* As hwt_checkout_cancel; the request is not used again, either, until this has
 * returned.
 * -EINPROGRESS -ENOENT   as hwt_checkout_cancel
 * -EINVAL -EOWNERDEAD */
int hwt_store_cancel(
    struct hwt_store *store, struct hwt_store_request *request);

/* The holder's: its object i is not unloaded before the store is destroyed, or
 * it is unpinned.
 * -EPERM      the request is not granted
 * -EINVAL -EOWNERDEAD */
int hwt_store_pin(struct hwt_store *store, struct hwt_store_request *request,
    size_t i, bool pinned);

/* Unloads what nobody wants, and is not pinned, until all weighs at most
 * weight.
 * -EINVAL -EOWNERDEAD */
int hwt_store_trim(struct hwt_store *store, uint64_t weight);

/* For executors: runs a job that execute has accepted, in this thread.
 * -ENOENT     it was not handed over, or this was called already
 * -EINVAL -EOWNERDEAD */
int hwt_store_run(struct hwt_store *store, struct hwt_store_job *job);

/* By any thread, once for each job that has answered HWT_STORE_LATER, or will:
 * result is what load or unload answers otherwise, 0 or negative. loaded is
 * copied; NULL: no value, a weight of 1. Not for a job that has ended: its
 * memory is gone.
 * -ENOENT     load or unload was not called, or this was called already
 * -EINVAL     NULL, result is positive
 * -EOWNERDEAD */
int hwt_store_complete(struct hwt_store *store, struct hwt_store_job *job,
    int result, const struct hwt_loaded *loaded);

/* -EINVAL -EOWNERDEAD */
int hwt_store_read_stats(
    const struct hwt_store *store, struct hwt_store_stats *stats);

/* As hwt_checkout_stats_write, with store as the label of the name.
 * -EINVAL -EIO -EOWNERDEAD */
int hwt_store_stats_write(
    const struct hwt_store *store, FILE *file, enum hwt_format format);

/* As hwt_checkout_dump: writes each object that somebody has or wants, that is
 * being loaded or unloaded, and since when, or whose load has failed: its
 * address, by which the checkout's dump names it, its key, how many requests
 * want it, and the one that has it. Of others it says how many there are. The
 * time grows with all objects.
 * -EINVAL -EIO -EOWNERDEAD */
int hwt_store_dump(const struct hwt_store *store, FILE *file);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
