/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of the checkout share beyond the library's own
 * (test/spec/support.h): a checkout on a manual timer with some objects, and
 * requests that write down what happens to them, and fail a test that finds an
 * object with two holders.
 */
#ifndef HWT_TEST_CHECKOUT_H
#define HWT_TEST_CHECKOUT_H

#include "test/spec/support.h"

#include "modules/checkout/hwt_checkout.h"

#define OBJECTS 32

/* An object, and who has it: not atomic. */
struct thing {
	struct hwt_object object;
	struct demand *holder; /* that writes */
	unsigned readers;
};

struct store {
	struct fixture fixture;
	struct hwt_checkout *checkout;
	struct thing thing[OBJECTS];
	struct hwt_group group; /* behind the objects in order */
};

/* options may be NULL. Object i has order i; the group has no members. */
void store_open(
    struct store *store, const struct hwt_checkout_options *options);
/* Nothing is out, nobody waits; destroys all. */
void store_close(struct store *store);
/* Objects from first on become members of the group. */
void store_group(struct store *store, unsigned first, unsigned count);
struct hwt_checkout_stats store_stats(struct store *store);

/* A test that finds the suite's `store` open, which is closed after the
 * body. */
#define StoreTest(suite, name) \
	TestBetween(store_open(&store, NULL), store_close(&store), suite, name)
/* The same with options. */
#define StoreTestWith(suite, name, ...)                                      \
	TestBetween(                                                         \
	    store_open(&store, &(struct hwt_checkout_options){__VA_ARGS__}), \
	    store_close(&store), suite, name)

/* A request, and what became of it. */
struct demand {
	struct hwt_request request;
	struct store *store;
	struct hwt_object *set[OBJECTS];
	/* In the place of set, with a group or for reading. */
	struct hwt_item item[OBJECTS];
	bool has_items;
	unsigned count;
	/* Set by the test: what granted does besides; may be NULL. */
	void (*in_granted)(struct demand *demand);
	const char *then; /* or a script that granted runs; may be NULL */
	void *data;
	/* Written by granted, calls last. */
	enum hwt_grant grant;
	uint64_t order; /* of its granted among all; 1 is the first */
	int rc; /* what in_granted leaves for the test */
	_Atomic uint64_t calls;
};

/* members: "ace" is a set of the objects 0, 2 and 4; "a*" is object 0 and any
 * of the group; "Ab" is object 0 for reading, and 1 for writing. */
void demand_init(
    struct demand *demand, struct store *store, const char *members);
/* Of requests that are prepared otherwise; arg is the demand. */
hwt_granted demand_granted;
/* What it has got for its number i. */
struct thing *demand_got(const struct demand *demand, unsigned i);
/* These return what the library does, and note who has the objects. */
int demand_try(struct demand *demand);
int demand_acquire(struct demand *demand, uint64_t delay_ns);
int demand_wait(struct demand *demand, uint64_t delay_ns);
/* Must answer 0. */
void demand_release(struct demand *demand);
int demand_cancel(struct demand *demand);
/* in_granted: releases what was granted. */
void release_in_granted(struct demand *demand);

/* A test in words: see test/script.h. */
#define PARTY 20
extern struct demand party[PARTY];
/* Makes one demand for each word of members, with what is said above; one that
 * begins with "!" is a pause. */
void party_make(struct store *store, const char *members);
/*
 * The verbs, of the demand i of the party:
 *
 *   take i, wait i       acquires: it is granted, or waits
 *   take-ms i n, wait-ms i n   with a delay
 *   try i, refused i     tries: 0, or -EAGAIN
 *   release i, cancel i, too-late i   -ENOENT of a cancel
 *   waits i; granted i, expired i, cancelled i, retired i, shut-down i
 *                        what it was told, once; or nothing yet
 *   releases i           from now on it does in granted
 *   out n m              so many are out, so many wait
 *   timeouts n           are pending
 *   pass ms              time passes
 *   members i n          so many things from i on are of the group
 *   got i k              the first that i has is thing k; got-nothing i
 *   retire k, cannot-retire k, forget k   a thing; and whoever has it
 *   pause, pause-late, resume, shutdown, cannot-destroy
 */
void play(const char *script);

#define assert_waits(demand) assert_u64((demand)->calls, 0)
#define assert_told(demand, with)                              \
	do {                                                   \
		assert_u64((demand)->calls, 1);                \
		assert_u64((demand)->grant, (uint64_t)(with)); \
	} while (0)
#define assert_stats(store, out_is, waiting_is)                       \
	do {                                                          \
		struct hwt_checkout_stats now = store_stats((store)); \
		assert_u64(now.out, (out_is));                        \
		assert_u64(now.waiting, (waiting_is));                \
	} while (0)

#endif
