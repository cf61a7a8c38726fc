/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_purgatory - operations that wait for a condition, with a deadline.
 *
 * An operation is watched under one or more keys. Whoever changes what it waits
 * for calls hwt_purgatory_check with the key that the change concerns; then the
 * operation's predicate is called, and when it answers true the operation has
 * completed. If that does not happen before its deadline, it has expired. It
 * follows Kafka's DelayedOperationPurgatory.
 *
 *   hwt_purgatory_create(&purgatory, timer, NULL)
 *   hwt_purgatory_watch(purgatory, &operation, &spec)   waits under spec.keys
 *   hwt_purgatory_check(purgatory, key, NULL)           something has changed
 *   hwt_purgatory_raise(purgatory, key, value, NULL)    for spec.at_least
 *   hwt_operation_complete, hwt_operation_cancel        without a predicate
 *   hwt_purgatory_shutdown, hwt_purgatory_destroy
 *
 * PROMISES
 *
 *   once           done is called exactly once, with one outcome, for every
 *                  operation that hwt_purgatory_watch accepted.
 *   no-overlap     try_complete of one operation is never called twice at the
 *                  same time, nor while its done runs, nor after that. arg is
 *                  the user's again when done has returned.
 *   no-lost-event  A thread that changes the state and then calls
 *                  hwt_purgatory_check completes what holds by then, also an
 *                  operation that is being watched at that moment, and one
 *                  whose predicate is running on another thread: that thread
 *                  then calls it once more. No call waits for a predicate.
 *   no-lock-held   No lock is held in try_complete and done. They may call
 *                  every function here but shutdown and destroy. A done that
 *                  such a call causes is called when the thread's outermost
 *                  call for that purgatory is about to return (but see
 *                  hwt_purgatory_watch), so that a chain takes no stack. A
 *                  check, raise or cancel_key in a predicate begins then, too;
 *                  its count is 0. A predicate that always checks a key of its
 *                  own operation never comes to an end.
 *   eager          When done is called, the operation is under none of its keys
 *                  any more, and its timeout is cancelled. A key exists while
 *                  something is linked under it. The counts are exact when no
 *                  call is under way.
 *   threshold      hwt_purgatory_raise touches only operations that complete,
 *                  in order of at_least, then of arrival.
 *   never-early    An operation never expires before its delay has passed, by
 *                  the timer's clock, nor if its condition holds in its watch.
 *                  The timer's thread decides, and waits for no predicate:
 *                  whoever runs that calls done then.
 *   bounded        A walk through a key holds a lock for 32 operations at most,
 *                  and while a predicate runs, calls for any other
 *                  operation are carried out at once. One watched meanwhile
 *                  is not visited.
 *
 * All functions may be called from any thread, and except
 * hwt_purgatory_shutdown and hwt_purgatory_destroy also from try_complete, done
 * and the timer's tasks. int functions return 0, or what they say, or a
 * negative errno value; then nothing has changed. Times are in nanoseconds.
 * done is called by the thread that decides; hwt_mailbox_post takes it to an
 * event loop. Each operation is a timeout of the timer. When that is stopped,
 * only hwt_purgatory_shutdown ends what is pending; other calls find it ended.
 */
#ifndef HWT_PURGATORY_H
#define HWT_PURGATORY_H

#include <hwt.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct hwt_purgatory;

/* A handle, by value. {0} is never one; stale ones are refused. */
typedef struct hwt_operation {
	uint64_t id;
} hwt_operation;

/* Compared as 16 bytes. */
struct hwt_key {
	uint64_t kind, id;
};

enum hwt_outcome {
	HWT_COMPLETED = 1,
	HWT_EXPIRED,
	HWT_CANCELLED,
	HWT_SHUT_DOWN
};

/* Whether the condition holds. A predicate: it decides nothing itself. Hold no
 * lock that it needs while you call hwt_purgatory_check. */
typedef bool hwt_try(hwt_operation operation, void *arg);
/* The operation has ended. */
typedef void hwt_done(
    hwt_operation operation, void *arg, enum hwt_outcome outcome);

/* All zero: the defaults. */
struct hwt_purgatory_options {
	uint32_t shards; /* a power of two up to 2^16; 0: 64 */
	uint32_t flags; /* 0 */
	uint64_t max_pending; /* a strict limit; 0: none */
	uint64_t reserved[8]; /* 0 */
};

struct hwt_operation_spec {
	hwt_try *try_complete; /* NULL: only the other calls complete it */
	hwt_done *done;
	void *arg;
	const struct hwt_key *keys; /* copied; duplicates count once */
	size_t key_count; /* at least 1 */
	uint64_t delay_ns; /* 0: tried, expires at the next tick; HWT_NEVER */
	/* Not 0: there is no try_complete and one key, and the operation
	 * completes when the key's value reaches this. */
	uint64_t at_least;
	uint64_t reserved[4]; /* 0 */
};

struct hwt_purgatory_stats {
	uint64_t pending; /* accepted, and not decided yet */
	uint64_t links; /* of pending operations under keys */
	uint64_t keys; /* with a link */
	uint64_t completed, expired, cancelled, shut_down;
	uint64_t tried; /* calls of predicates */
	/* 64 bytes for each operation, 48 for each of its keys, 40 with
	 * at_least, 56 for each key with a value, and a hash table that grows
	 * by doubling and is kept. The timer has 64 for each operation. */
	uint64_t memory_bytes;
	uint64_t reserved[8];
};

/* Makes a purgatory whose deadlines are timeouts of this timer, which must
 * outlive it.
 * -EINVAL     NULL; shards, flags or reserved words out of range
 * -ENOMEM
 * -EOWNERDEAD the timer was made before a fork */
HWT_MUST_CHECK
int hwt_purgatory_create(struct hwt_purgatory **purgatory, struct hwt *timer,
    const struct hwt_purgatory_options *options);

/* Watches an operation. operation may be NULL; otherwise it is written before a
 * callback can be called, and {0} after an error. The predicate is called at
 * least once after the operation is linked, so that no change is missed. With
 * at_least it completes at once if the key's value has reached it; but a key
 * has a value only while something is linked under it: after watch, raise the
 * key to the value that you read after watch.
 * 0           watched; it may have ended since
 * 1           this call completed it: done has returned. (In callbacks nested 8
 *             deep it is 0, and done is called when they have returned.)
 * Otherwise done will not be called:
 * -EINVAL     NULL, no done, no keys, at_least with try_complete or not with
 *             one key, delay_ns in [2^63, HWT_NEVER), reserved words
 * -ENOBUFS    max_pending, here or of the timer
 * -ENOMEM
 * -EAGAIN     the timer cannot start its thread
 * -ESHUTDOWN  shutdown was called, or the timer is stopped
 * -EOWNERDEAD */
HWT_MUST_CHECK
int hwt_purgatory_watch(struct hwt_purgatory *purgatory,
    hwt_operation *operation, const struct hwt_operation_spec *spec);

/* The state that operations under this key wait for has changed: calls their
 * predicates, in order of arrival. *completed (may be NULL): how many
 * operations this call has completed.
 * -EINVAL -EOWNERDEAD */
int hwt_purgatory_check(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *completed);

/* The key's value is now at least value: completes the operations whose
 * at_least it reaches. A value that is not greater than before completes
 * nothing. It is kept while something is linked under the key.
 * -EINVAL -EOWNERDEAD
 * -ENOMEM     there was no value, and no memory for it */
int hwt_purgatory_raise(struct hwt_purgatory *purgatory, struct hwt_key key,
    uint64_t value, size_t *completed);

/* Cancels all operations under this key, also where they have other keys.
 * -EINVAL -EOWNERDEAD */
int hwt_purgatory_cancel_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *cancelled);

/* *count: how many operations wait under this key. O(1).
 * -EINVAL -EOWNERDEAD */
int hwt_purgatory_count_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *count);

/* -EINVAL -EOWNERDEAD */
int hwt_purgatory_read_stats(
    const struct hwt_purgatory *purgatory, struct hwt_purgatory_stats *stats);

/* Ends an operation as HWT_COMPLETED or HWT_CANCELLED. 0: this call has decided
 * the outcome. If its predicate is running, that finishes first, and done
 * follows on its thread, with this outcome also if it answers true.
 * -ENOENT     it had ended, or never was
 * -EINVAL -EOWNERDEAD */
int hwt_operation_complete(
    struct hwt_purgatory *purgatory, hwt_operation operation);
int hwt_operation_cancel(
    struct hwt_purgatory *purgatory, hwt_operation operation);

/* Moves the deadline. 0: the operation expires no earlier than delay_ns from
 * this call, and then does so unless it ends or is moved before. HWT_NEVER: no
 * deadline. Of several calls for one operation, the last one counts. It may
 * come while the predicate runs, also from the predicate.
 * -ENOENT     it had ended, or never was; or its deadline had come
 * -EINVAL     NULL, delay_ns in [2^63, HWT_NEVER)
 * -EOWNERDEAD */
int hwt_operation_reschedule(struct hwt_purgatory *purgatory,
    hwt_operation operation, uint64_t delay_ns);

/* Ends all operations with HWT_SHUT_DOWN. When it returns, no thread is in a
 * callback of this purgatory.
 * -EDEADLK    from a callback of this purgatory
 * -EINVAL -EOWNERDEAD */
HWT_MUST_CHECK
int hwt_purgatory_shutdown(struct hwt_purgatory *purgatory);

/* Frees the purgatory, shut down or not. No other call may be under way. NULL:
 * 0. In a child process, a parent's is freed, before its timer, but not what is
 * pending there.
 * -EBUSY      operations are pending
 * -EDEADLK    from a callback of this purgatory */
HWT_MUST_CHECK
int hwt_purgatory_destroy(struct hwt_purgatory *purgatory);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
