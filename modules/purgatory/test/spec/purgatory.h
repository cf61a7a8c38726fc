/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of the purgatory share beyond test/spec/support.h: a
 * purgatory on a manual timer, and operations that write down what happens to
 * them, and fail a test that overlaps them. Each test is a process of its own.
 */
#ifndef HWT_TEST_PURGATORY_H
#define HWT_TEST_PURGATORY_H

#include "test/spec/support.h"

#include "modules/purgatory/hwt_purgatory.h"

extern struct hwt_purgatory *purgatory;

/* options may be NULL. */
void purgatory_open(const struct hwt_purgatory_options *options);
/* Shuts down and destroys all; each must answer 0. */
void purgatory_close(void);
struct hwt_purgatory_stats stats_now(void);

/* What still waits after the body is done by purgatory_close, and so must be
 * static. */
#define PurgatoryTest(suite, name) \
	TestBetween(purgatory_open(NULL), purgatory_close(), suite, name)
#define PurgatoryTestWith(suite, name, ...)                               \
	TestBetween(                                                      \
	    purgatory_open(&(struct hwt_purgatory_options){__VA_ARGS__}), \
	    purgatory_close(), suite, name)

#define KEY(number) ((struct hwt_key){7, (number)})

/* All zero but for what the test sets is a fresh one. */
struct operation {
	/* Set by the test. */
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
	uint64_t ended_ns; /* by the fixture's clock */
	uint64_t order; /* of its done among all; 1 is the first */
	int rc; /* what in_try or in_done leave for the test */
	size_t count;
};

hwt_try operation_try;
hwt_done operation_done;

struct hwt_operation_spec operation_spec(struct operation *operation,
    const struct hwt_key *keys, size_t key_count, uint64_t delay_ns);
/* They return what hwt_purgatory_watch does. */
int watch_keys(struct operation *operation, const struct hwt_key *keys,
    size_t key_count, uint64_t delay_ns);
int watch_key(
    struct operation *operation, struct hwt_key key, uint64_t delay_ns);
int watch_value(/* without a predicate */
    struct operation *operation, struct hwt_key key, uint64_t at_least);
/* The calls, which must answer 0, return how many they decided. */
size_t check(struct hwt_key key);
size_t raise_to(struct hwt_key key, uint64_t value);
size_t cancel_key(struct hwt_key key);

/* For in_try and in_done: passes the gate that data points to, once. */
void pass_gate_once(struct operation *operation);
/* Opens, and watches KEY(1) with the operation. The thread returned checks that
 * key, into count, and is in the predicate until let_go. */
pthread_t hold_predicate(struct operation *operation, uint64_t delay_ns);
void let_go(pthread_t thread);

/*
 * A test in words, see test/script.h, of the operation i of the party and
 * KEY(k):
 *
 *   watch i k, watch-ms i k n   with a predicate; it waits
 *   met i k              the same; it completes at once
 *   value i k v, reached i k v   without one, and at least v
 *   holds i              its predicate holds from now on
 *   check k n, raise k v n, cancel-key k n   which decide n
 *   complete i, cancel i, over i   it can be ended; or no more
 *   move-ms i n          its deadline
 *   pending i; completed i, cancelled i, expired i, shut-down i
 *                        how it has ended, once; or not yet
 *   tries i n            calls of its predicate so far
 *   stats p l k          operations, links and keys that there are
 *   timeouts n           are pending
 *   pass n               milliseconds
 *   runs m n             m milliseconds pass, in which n tasks run
 *   shutdown, cannot-destroy
 */
extern struct operation party[10];
void play(const char *script);

/* It has ended once, with this outcome. */
#define assert_ended(operation, with)                               \
	do {                                                        \
		assert_u64((operation)->dones, 1);                  \
		assert_u64((operation)->outcome, (uint64_t)(with)); \
	} while (0)
#define assert_pending(operation) assert_u64((operation)->dones, 0)
#define assert_stats(pending_is, links_is, keys_is)           \
	do {                                                  \
		struct hwt_purgatory_stats now = stats_now(); \
		assert_u64(now.pending, (pending_is));        \
		assert_u64(now.links, (links_is));            \
		assert_u64(now.keys, (keys_is));              \
	} while (0)

#endif
