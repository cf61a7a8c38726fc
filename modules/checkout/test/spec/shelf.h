/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of the store share: a store on a manual timer whose keys are
 * letters, loads and unloads that count and do what the test says, and requests
 * that write down what happens to them.
 */
#ifndef HWT_TEST_SHELF_H
#define HWT_TEST_SHELF_H

#include "test/spec/support.h"

#include "modules/checkout/hwt_checkout.h"

#define LETTERS 128
#define CLAIMED 4

/* What a load makes of a letter. */
struct thing {
	uint64_t loads, unloads;
	bool there; /* loaded, and not unloaded */
	bool out; /* not atomic */
	struct hwt_store_job *job; /* that has answered later */
};

struct shelf {
	struct fixture fixture;
	struct hwt *timer;
	struct hwt_checkout *checkout;
	struct hwt_store *store;
	struct thing thing[LETTERS];
	/* What jobs that begin now answer: later, or with that result, loads
	 * and unloads alike. */
	bool later, again;
	int result;
	uint32_t weight; /* 0: as the library has it */
	char unloaded[LETTERS]; /* the letters, in order */
};

/* options may be NULL; load, unload and ctx are the shelf's. */
void shelf_open(struct shelf *shelf, const struct hwt_store_options *options);
/* These are the options, as they are. */
void shelf_open_with(
    struct shelf *shelf, const struct hwt_store_options *options);
/* All that was loaded has been unloaded when it is closed. */
void shelf_close(struct shelf *shelf);
/* On that timer. */
void shelf_open_on(struct shelf *shelf, struct hwt *timer,
    const struct hwt_store_options *options);
/* With a worker. */
void shelf_open_real(
    struct shelf *shelf, const struct hwt_store_options *options);
void shelf_close_real(struct shelf *shelf);
struct hwt_store_stats shelf_stats(struct shelf *shelf);
/* Of the letter's job that has answered later. */
int shelf_complete(struct shelf *shelf, char letter, int result);

/* A test that finds the suite's `shelf` open, which is closed after the
 * body; and with options. */
#define ShelfTest(suite, name) \
	TestBetween(shelf_open(&shelf, NULL), shelf_close(&shelf), suite, name)
#define ShelfTestWith(suite, name, ...)                                   \
	TestBetween(                                                      \
	    shelf_open(&shelf, &(struct hwt_store_options){__VA_ARGS__}), \
	    shelf_close(&shelf), suite, name)

struct claim {
	struct hwt_store_request request;
	struct shelf *shelf;
	struct hwt_store_item item[CLAIMED];
	char keys[CLAIMED + 1];
	/* Set by the test. */
	void (*in_granted)(struct claim *claim);
	void *data;
	bool releases; /* in granted */
	/* Written by granted. */
	int result;
	_Atomic uint64_t calls;
	int rc; /* for the test */
};

void claim_init(struct claim *claim, struct shelf *shelf, const char *letters);
int claim_acquire(struct claim *claim, uint64_t delay_ns);
int claim_wait(struct claim *claim, uint64_t delay_ns);
void claim_release(struct claim *claim);
/* It is loaded, and released. */
void claim_once(struct shelf *shelf, const char *letters);

#define assert_claim(claim, with)                 \
	do {                                      \
		assert_u64((claim)->calls, 1);    \
		assert_rc((claim)->result, with); \
	} while (0)

#endif
