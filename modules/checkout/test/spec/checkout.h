/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of the checkout share beyond test/spec/support.h: a checkout
 * on a manual timer with objects that know their holders, and clients whose
 * requests write down what happens to them. A test whose object gets two
 * holders fails.
 *
 * Tests are scripts where they can be: see play.
 */
#ifndef HWT_TEST_CHECKOUT_H
#define HWT_TEST_CHECKOUT_H

#include "test/spec/support.h"

#include "modules/checkout/hwt_checkout.h"

#define OBJECTS 32
#define CLIENTS 20

/* Written by holders, without atomics. */
struct thing {
	struct hwt_object object;
	struct client *writer;
	unsigned readers;
};

/* Each test has a process of its own. */
extern struct hwt_checkout *checkout;
extern struct thing thing[OBJECTS]; /* of the orders 0, 1, ... */
extern struct hwt_group group; /* behind them in order; without members */

/* options may be NULL. */
void checkout_open(const struct hwt_checkout_options *options);
/* The same on the timer that `manual` has. */
void checkout_open_on(const struct hwt_checkout_options *options);
/* Nothing is out, nobody waits; destroys all. */
void checkout_close(void);
struct hwt_checkout_stats checkout_stats(void);

#define CheckoutTest(suite, name) \
	TestBetween(checkout_open(NULL), checkout_close(), suite, name)
#define CheckoutTestWith(suite, name, ...)                              \
	TestBetween(                                                    \
	    checkout_open(&(struct hwt_checkout_options){__VA_ARGS__}), \
	    checkout_close(), suite, name)

/* A request, and what became of it. */
struct client {
	struct hwt_request request;
	struct hwt_item item[OBJECTS];
	unsigned count;
	/* What granted does besides; both may be NULL. */
	const char *script;
	void (*then)(struct client *client);
	/* Written by granted, calls last. */
	enum hwt_grant grant;
	uint64_t turn; /* among the calls of granted in this process */
	_Atomic uint64_t calls;
	int rc; /* for the test */
};

extern struct client client[CLIENTS];

/* set: "ace" are the objects 0, 2 and 4 to write; "aB" is 0 to write and 1 to
 * read; "a*" is 0 and any one of the group. */
void client_init(struct client *client, const char *set);
/* One for each word. */
void clients(const char *sets);
/* These answer what the library does, and note who holds what. */
int client_try(struct client *client);
int client_acquire(struct client *client, uint64_t delay_ns);
int client_wait(struct client *client, uint64_t delay_ns);
int client_release(struct client *client);
int client_cancel(struct client *client);
/* What it holds in the place of its item i. */
struct thing *client_holds(const struct client *client, unsigned i);
/* A `then`: releases what was granted. */
void release_in_granted(struct client *client);

/*
 * Runs a script (test/script.h). Clients are numbers, objects are letters.
 *
 *   take 0, wait 0       acquire without a deadline: granted at once; waits
 *   take-ms 0 n, wait-ms 0 n    with one
 *   try 0, refused 0     try: 0; -EAGAIN
 *   release 0, cancel 0
 *   too-late 0           cancel: -ENOENT
 *   waits 0              granted was not called
 *   granted 0, expired 0, cancelled 0, retired 0, shut-down 0
 *                        granted was called once, with that
 *   before 0 1           and for 0 before it was called for 1
 *   releases 0           from now on it releases in granted
 *   out n m              n requests are granted, m wait
 *   timeouts n           are pending
 *   pass n               n ms pass
 *   member a             an object becomes one of the group
 *   holds 0 a, holds-none 0     in the place of its first item
 *   retire a, cannot-retire a
 *   pause, pause-late, resume   0; -ETIMEDOUT at once; 0
 *   shutdown, cannot-destroy
 */
void play(const char *script);

#endif
