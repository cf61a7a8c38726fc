/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of the checkout and of its store share: see checkout.c. */
#ifndef CHECKOUT_EXPLORE_H
#define CHECKOUT_EXPLORE_H

#include "modules/checkout/hwt_checkout.h"

#define REQUESTS 5
#define OBJECTS 4
#define GROUP_NUMBER 3

struct request_ledger {
	struct hwt_request *request;
	struct hwt_item items[OBJECTS];
	unsigned wants, reads, count;
	bool waits, granted;
	bool releases, frees;
	unsigned then; /* that one, + 1; 0: none */
	uint64_t not_before_ns;
	enum hwt_grant grant; /* the last; 0: none */
	uint32_t decided;
};

struct checkout_ledger {
	struct hwt_checkout *checkout;
	struct hwt_object *object[GROUP_NUMBER];
	struct hwt_group group;
	struct hwt_object member[2];
	struct request_ledger request[REQUESTS];
	struct {
		_Alignas(8) uint32_t writers, readers;
	} holders[OBJECTS];
	unsigned members, out, released, pauses;
	uint32_t paused;
	bool shut_down;
	struct hwt_store *store;
	bool has_store;
};
extern struct checkout_ledger checkout_ledger;

/* Of all files of the explorer: main.c. */
extern struct verb library_verbs[];

void store_end(void);
/* Of both: what must hold in the end. */
void checkout_end(void);

#endif
