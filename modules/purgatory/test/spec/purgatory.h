/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of the purgatory share beyond the library's own
 * (test/spec/support.h): a purgatory on a manual timer, and operations that
 * write down what happens to them, and fail a test that overlaps them.
 */
#ifndef HWT_TEST_PURGATORY_H
#define HWT_TEST_PURGATORY_H

#include "test/spec/support.h"

#include "modules/purgatory/hwt_purgatory.h"

struct yard {
	struct fixture fixture;
	struct hwt_purgatory *purgatory;
};

/* options may be NULL. */
void yard_open(struct yard *yard, const struct hwt_purgatory_options *options);
/* Shuts down and destroys all; each must answer 0. */
void yard_close(struct yard *yard);
/* Destroys after a shutdown. */
void yard_destroy(struct yard *yard);
struct hwt_purgatory_stats yard_stats(struct yard *yard);

/* A test that finds the suite's `yard` open, which is closed after the body:
 * what still waits then is done by yard_close, and so must be static. */
#define YardTest(suite, name) \
	TestBetween(yard_open(&yard, NULL), yard_close(&yard), suite, name)
/* The same with options. */
#define YardTestWith(suite, name, ...)                                      \
	TestBetween(                                                        \
	    yard_open(&yard, &(struct hwt_purgatory_options){__VA_ARGS__}), \
	    yard_close(&yard), suite, name)

#define KEY(number) ((struct hwt_key){7, (number)})

/* All zero but for what the test sets is a fresh one. */
struct operation {
	/* Set by the test. */
	struct yard *yard;
	_Atomic uint64_t holds; /* what the predicate answers */
	bool counts; /* the predicate holds when holds tries were made */
	void (*in_try)(struct operation *operation); /* may be NULL */
	void (*in_done)(struct operation *operation);
	void *data;
	/* Written by the operation. */
	hwt_operation handle;
	_Atomic uint64_t tries, dones;
	_Atomic uint64_t busy; /* is in the predicate, or in done */
	enum hwt_outcome outcome;
	pthread_t thread; /* of done */
	uint64_t ended_ns; /* by the yard's clock */
	uint64_t order; /* of its done among all; 1 is the first */
	int rc; /* what in_try or in_done leave for the test */
	size_t count;
};

extern _Atomic uint64_t dones_in_all;

hwt_try operation_try;
hwt_done operation_done;

/* A specification with these keys; NEVER has no deadline. */
struct hwt_operation_spec operation_spec(struct operation *operation,
    const struct hwt_key *keys, size_t key_count, uint64_t delay_ns);
/* Watches; returns what hwt_purgatory_watch does. */
int watch_keys(struct operation *operation, const struct hwt_key *keys,
    size_t key_count, uint64_t delay_ns);
int watch_key(
    struct operation *operation, struct hwt_key key, uint64_t delay_ns);
/* Without a predicate. */
int watch_value(
    struct operation *operation, struct hwt_key key, uint64_t at_least);
/* The calls, which must answer 0, return how many they decided. */
size_t check(struct yard *yard, struct hwt_key key);
size_t raise_to(struct yard *yard, struct hwt_key key, uint64_t value);
size_t cancel_key(struct yard *yard, struct hwt_key key);

/* For in_try and in_done: passes the gate that data points to, once. */
void pass_gate_once(struct operation *operation);
/* Opens the yard, and watches KEY(1) with the operation. The thread returned
 * checks that key, into count, and is in the predicate until let_go. */
pthread_t hold_predicate(
    struct yard *yard, struct operation *operation, uint64_t delay_ns);
void let_go(pthread_t thread);

/* A test in words: see test/script.h. */
#define PARTY 10
extern struct operation party[PARTY];
/* Fresh ones, of that yard. */
void party_make(struct yard *yard);
/*
 * The verbs, of the operation i of the party and KEY(k):
 *
 *   watch i k, watch-ms i k n   with a predicate; it waits
 *   met i k              the same; it completes at once
 *   value i k v, reached i k v   without one, and at least v
 *   holds i              its predicate holds from now on
 *   check k n, raise k v n, cancel-key k n   which decide n
 *   complete i, cancel i
 *   pending i; completed i, cancelled i, expired i, shut-down i
 *                        how it has ended, once; or not yet
 *   tries i n            calls of its predicate so far
 *   stats p l k          operations, links and keys that there are
 *   timeouts n           are pending
 *   pass n               milliseconds
 *   runs m n             m milliseconds pass, in which n tasks run
 *   shutdown, cannot-destroy
 */
void play(const char *script);

/* It has ended once, with this outcome. */
#define assert_ended(operation, with)                               \
	do {                                                        \
		assert_u64((operation)->dones, 1);                  \
		assert_u64((operation)->outcome, (uint64_t)(with)); \
	} while (0)
#define assert_pending(operation) assert_u64((operation)->dones, 0)
#define assert_stats(yard, pending_is, links_is, keys_is)            \
	do {                                                         \
		struct hwt_purgatory_stats now = yard_stats((yard)); \
		assert_u64(now.pending, (pending_is));               \
		assert_u64(now.links, (links_is));                   \
		assert_u64(now.keys, (keys_is));                     \
	} while (0)

#endif
