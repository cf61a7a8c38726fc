/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_purgatory - operations that wait for a condition, with a deadline.
 *
 * An operation is watched under one or more keys. Whoever changes what it waits
 * for calls hwt_purgatory_check with the key that the change concerns; then the
 * operation's predicate is called, and when it answers true the operation has
 * completed. If that does not happen before its deadline, it has expired. The
 * design is that of Kafka's DelayedOperationPurgatory.
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
 *                  then calls it once more. No call waits for a predicate. A
 *                  call does so at most 16 times: what is then still to be
 *                  called for, the next check of the operation calls, or a task
 *                  of the timer at the next tick.
 *   no-lock-held   The library holds no lock while it calls try_complete, done
 *                  or execute. They may call every function here but shutdown
 *                  and destroy. A done or execute that such a call causes is
 *                  called as soon as the thread's outermost callback of that
 *                  purgatory has returned (but see hwt_purgatory_watch), so
 *                  that a chain of completions takes no stack. A check, raise
 *                  or cancel_key in a predicate begins at the end of the
 *                  outermost call; its count is 0 then. A predicate that always
 *                  checks a key of its own operation never comes to an end.
 *   eager          When done is called, the operation is under none of its keys
 *                  any more, and its timeout is cancelled. A key exists while
 *                  something is linked under it. pending, links and keys are
 *                  exact when no call is under way.
 *   threshold      hwt_purgatory_raise touches only operations that complete,
 *                  those of one call in order of at_least, then of arrival; and
 *                  those for whose quorum this key was missing.
 *   never-early    An operation never expires before its delay has passed, by
 *                  the timer's clock.
 *   bounded        An expiry never waits for a predicate that another thread
 *                  runs, and for no more than a batch of a walk through others:
 *                  a walk holds a lock for some 32 operations at a time. A call
 *                  calls predicates for events of others at most 16 times. What
 *                  it leaves to a task of the timer, that task calls once a
 *                  tick. (Only if memory is short or the timer refuses a
 *                  timeout, it goes on.)
 *
 * All functions may be called from any thread, and except
 * hwt_purgatory_shutdown and hwt_purgatory_destroy also from try_complete, done
 * and the timer's tasks. int functions return 0, or what they say, or a
 * negative errno value; then nothing has changed. Times are in nanoseconds.
 *
 * In a child process, a purgatory or mailbox of its parent answers -EOWNERDEAD,
 * before any other error but that of a purgatory which is NULL; and the destroy
 * functions free it: the purgatory before its timer. Where the child was forked
 * in a callback, hwt_purgatory_destroy answers -EDEADLK; the child's copy of
 * that callback may go on, and must end in _exit or exec.
 */
#ifndef HWT_PURGATORY_H
#define HWT_PURGATORY_H

#include <hwt.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct hwt_purgatory;

/* A handle, by value. {0} is never one; stale ones are refused. It is no
 * capability: who has seen one knows the later ones of the same record. */
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

/* Whether the condition holds. A predicate: it decides nothing itself. */
typedef bool hwt_try(hwt_operation operation, void *arg);
/* The operation has ended. */
typedef void hwt_done(
    hwt_operation operation, void *arg, enum hwt_outcome outcome);

/* Where done is called. execute takes an operation that has ended: 0, or
 * anything else to refuse; then done is called by the thread that decided. For
 * each operation that it took, hwt_operation_run must be called once, on any
 * thread, also in execute. If execute has called it, a refusal says nothing. */
struct hwt_operation_executor {
	int (*execute)(void *ctx, struct hwt_purgatory *purgatory,
	    hwt_operation operation);
	void *ctx;
};

/* All zero: the defaults. */
struct hwt_purgatory_options {
	uint32_t shards; /* a power of two up to 2^16; 0: 64 */
	uint32_t flags; /* 0 */
	/* A strict limit of pending operations; 0: none. */
	uint64_t max_pending;
	/* Copied; its ctx must outlive the operations. NULL: done is called by
	 * the thread that decides. */
	const struct hwt_operation_executor *executor;
	/* In hwt_purgatory_stats_write. At most 15 bytes; NULL: "purgatory".
	 * Copied. */
	const char *name;
	uint64_t reserved[7]; /* 0 */
};

struct hwt_operation_spec {
	/* NULL: only the other calls complete it. */
	hwt_try *try_complete;
	hwt_done *done;
	void *arg;
	/* At least one, copied. Duplicates count once. */
	const struct hwt_key *keys;
	size_t key_count;
	/* 0: it is tried, and expires at the next tick. HWT_NEVER: no
	 * deadline. */
	uint64_t delay_ns;
	/* Not 0: there is no try_complete, and the operation completes when the
	 * key's value reaches this; of several keys, when quorum of them have
	 * reached it, at the same time or one after the other. */
	uint64_t at_least;
	/* NULL: the purgatory's. Must outlive the operation. */
	const struct hwt_operation_executor *executor;
	/* With at_least: how many keys are enough, at most as many as there
	 * are; 0: there is one. */
	uint64_t quorum;
	uint64_t reserved[3]; /* 0 */
};

struct hwt_purgatory_stats {
	uint64_t pending; /* accepted, and no outcome is carried out yet */
	uint64_t links; /* of pending operations under keys */
	uint64_t keys; /* with a link */
	uint64_t completed, expired, cancelled, shut_down;
	/* Calls of predicates. Those made in a call of the library are all
	 * counted when that call returns; while it is under way in another
	 * thread, some may be missing. */
	uint64_t tried;
	/* 168 bytes (with 64-bit pointers) for each operation that is in use
	 * (until its done has returned), in slabs of 512, of which up to 56 may
	 * be free and not be used before others are: where 512 have ended,
	 * their memory is released to the system, one slab with each call at
	 * most. What stays: 4 such slabs; those in which an operation is in
	 * use, or is one of at most 7 that each shard has taken for the next
	 * ones; all, where the system takes none, as with mlockall; and 80
	 * bytes for each slab of the most that there were. Beside that: up to
	 * 64 for each key in the table that finds it, of which 4 KiB of each
	 * shard stay; 80 for each key that has had a second operation, one that
	 * waits for a value, or a raise, or for which the table had no place,
	 * as for up to one of seven among many, in pieces of up to 64 KiB,
	 * which are released when all their keys have gone (but the first one
	 * of each shard, of 8 keys, and another one while the shard has such
	 * keys); and for each link of a pending one 32 if it has more than
	 * three, and 88 if it has a quorum: from malloc, which may keep what is
	 * freed. */
	uint64_t memory_bytes;
	uint64_t reserved[8];
};

/* Makes a purgatory whose deadlines are timeouts of this timer, which must
 * outlive it.
 * -EINVAL     NULL; shards, flags, name or reserved words out of range
 * -ENOMEM
 * -EOWNERDEAD the timer was made before a fork */
HWT_MUST_CHECK
int hwt_purgatory_create(struct hwt_purgatory **purgatory, struct hwt *timer,
    const struct hwt_purgatory_options *options);

/* Watches an operation. operation may be NULL; otherwise it is written before a
 * callback can be called, and {0} after an error. The predicate is called at
 * least once after the operation is linked, so that no change before or
 * meanwhile is missed, and again if others check the operation meanwhile: see
 * no-lost-event. An operation with at_least completes at once if the key's
 * value has reached it; but a key has a value only while something is linked
 * under it: after watch, raise the key to the value that you read after watch.
 * With a quorum, do so for each key; a key that was reached counts from then
 * on, and the operation is not under it any more.
 * 0           watched; it may have ended since
 * 1           this call completed it: done has been called, or handed to the
 *             executor (in callbacks that are nested 8 deep and more, it is
 *             called when these have returned)
 * Otherwise done will not be called:
 * -EINVAL     NULL, no done, no keys, at_least with try_complete, or with
 *             several keys and no quorum, a quorum without at_least or of more
 *             keys than there are (duplicates count once), delay_ns in
 *             [2^63, HWT_NEVER), executor without execute, reserved words
 * -ENOBUFS    max_pending, here or of the timer
 * -ENOMEM
 * -EAGAIN     the timer cannot start its thread
 * -ESHUTDOWN  shutdown was called, or the timer is stopped and delay_ns is not
 *             HWT_NEVER
 * -EOWNERDEAD */
HWT_MUST_CHECK
int hwt_purgatory_watch(struct hwt_purgatory *purgatory,
    hwt_operation *operation, const struct hwt_operation_spec *spec);

/* The state that operations under this key wait for has changed: calls their
 * predicates, in order of arrival. One that is running already is called again
 * by the thread that runs it. *completed (may be NULL): how many operations
 * this call has completed.
 * -EINVAL -EOWNERDEAD */
int hwt_purgatory_check(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *completed);

/* The key's value is now at least value: completes the operations whose
 * at_least it reaches. A value that is not greater than before completes
 * nothing. It is kept while something is linked under the key; but not where
 * there is no memory for it, and nothing there waits for a value.
 * -EINVAL -EOWNERDEAD */
int hwt_purgatory_raise(struct hwt_purgatory *purgatory, struct hwt_key key,
    uint64_t value, size_t *completed);

/* Cancels all operations under this key, also where they have other keys.
 * -EINVAL -EOWNERDEAD */
int hwt_purgatory_cancel_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *cancelled);

/* *count: how many operations wait under this key. O(1).
 * -EINVAL     NULL
 * -EOWNERDEAD */
int hwt_purgatory_count_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *count);

/* An operation that waits under a key, and its arg. It may be ended by another
 * thread at any moment, so that arg is that of somebody else then: compare it,
 * but do not use what it points to unless you keep that alive. False: no more
 * are wanted. */
typedef bool hwt_visit(hwt_operation operation, void *arg, void *ctx);

/* Calls visit for the operations under this key: each that waits from the
 * beginning to the end of the call exactly once; one that ends meanwhile, once
 * or not at all; one that is watched meanwhile, never. Those without at_least
 * come in order of arrival, then those with it, by value and arrival. No lock
 * is held during visit, which may call what done may; a done that it causes is
 * called when it has returned. hwt_purgatory_shutdown does not wait for visit.
 * *visited (may be NULL): how often it was called.
 * -EINVAL     NULL
 * -EOWNERDEAD */
int hwt_purgatory_list_key(struct hwt_purgatory *purgatory, struct hwt_key key,
    hwt_visit *visit, void *ctx, size_t *visited);

/* -EINVAL -EOWNERDEAD */
int hwt_purgatory_read_stats(
    const struct hwt_purgatory *purgatory, struct hwt_purgatory_stats *stats);

/* Writes these counters to file, and flushes it, as hwt_stats_write does: that
 * has the formats. Labels, and members in JSON, are purgatory, which is its
 * name, and serial, a number that no other purgatory of the process has. After
 * an error, a part may have been written.
 * -EINVAL     NULL, or no such format
 * -EIO        the file could not be written; or the errno of hwt_stats_write
 *             that says why
 * -EOWNERDEAD */
int hwt_purgatory_stats_write(
    const struct hwt_purgatory *purgatory, FILE *file, enum hwt_format format);

/* Ends all operations with HWT_SHUT_DOWN. When it returns, no thread is in a
 * callback of this purgatory, in execute of one of its executors, or in the
 * task of one of its timeouts. An operation that an executor holds stays there
 * until it is run.
 * -EDEADLK    from a callback of this purgatory, or in another call of it from
 *             a hook of its timer
 * -EINVAL -EOWNERDEAD */
HWT_MUST_CHECK
int hwt_purgatory_shutdown(struct hwt_purgatory *purgatory);

/* Frees the purgatory, shut down or not; an expiry that is being carried out is
 * waited for. No other call may be under way. NULL: 0.
 * -EBUSY      operations are pending, or an executor holds some
 * -EDEADLK    from a callback of this purgatory, or in another call of it from
 *             a hook of its timer */
HWT_MUST_CHECK
int hwt_purgatory_destroy(struct hwt_purgatory *purgatory);

/* Ends an operation as HWT_COMPLETED or HWT_CANCELLED. 0: this call has decided
 * the outcome. If its predicate is running, that finishes first, and done
 * follows on its thread, with this outcome also if it answers true.
 * -ENOENT     it had ended, or never was
 * -EINVAL -EOWNERDEAD */
int hwt_operation_complete(
    struct hwt_purgatory *purgatory, hwt_operation operation);
/* Errors as hwt_operation_complete. */
int hwt_operation_cancel(
    struct hwt_purgatory *purgatory, hwt_operation operation);

/* Moves the deadline. 0: the operation expires no earlier than delay_ns from
 * this call, and then does so unless it ends or is moved before. HWT_NEVER: no
 * deadline. Of several calls for one operation, the last one counts. It may
 * come while the predicate runs, also from the predicate.
 * -ENOENT     it had ended, or never was; or its deadline had come: then it
 *             expires unless another call decides before that
 * -EINVAL     NULL, delay_ns in [2^63, HWT_NEVER)
 * -ESHUTDOWN  the timer is stopped
 * The first deadline of an operation without one takes a timeout of the timer:
 * -ENOBUFS    max_pending of the timer
 * -ENOMEM
 * -EAGAIN     the timer cannot start its thread
 * -EOWNERDEAD */
HWT_MUST_CHECK
int hwt_operation_reschedule(struct hwt_purgatory *purgatory,
    hwt_operation operation, uint64_t delay_ns);

/* For executors: calls done of an operation that execute took; in a callback of
 * the purgatory, as soon as the outermost one has returned.
 * -ENOENT     no executor holds it, or it is in a mailbox, which runs it
 * -EINVAL -EOWNERDEAD */
int hwt_operation_run(struct hwt_purgatory *purgatory, hwt_operation operation);

/* An executor for an event loop: its descriptor, an eventfd, is readable while
 * operations wait, and hwt_operation_mailbox_run calls done of at most max of
 * them (0: of all that are there now), in the order in which they ended. It
 * never refuses. One thread runs a mailbox at a time; it may do so in done,
 * too. */
struct hwt_operation_mailbox;

/* -EINVAL -ENOMEM -EMFILE -ENFILE */
HWT_MUST_CHECK
int hwt_operation_mailbox_create(struct hwt_operation_mailbox **mailbox);
/* -EINVAL -EOWNERDEAD */
int hwt_operation_mailbox_fd(const struct hwt_operation_mailbox *mailbox);
/* NULL: NULL; in a child, too. */
const struct hwt_operation_executor *hwt_operation_mailbox_executor(
    struct hwt_operation_mailbox *mailbox);
/* *done_count (may be NULL): how many done were called; in a callback of their
 * purgatory these are called when it has returned.
 * -EINVAL -EOWNERDEAD */
int hwt_operation_mailbox_run(
    struct hwt_operation_mailbox *mailbox, size_t max, size_t *done_count);
/* The order is: purgatory shut down, mailbox run until it is empty, both
 * destroyed. NULL: 0.
 * -EBUSY      operations wait in it, or a done that it runs has not returned */
HWT_MUST_CHECK
int hwt_operation_mailbox_destroy(struct hwt_operation_mailbox *mailbox);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
