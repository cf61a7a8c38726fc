/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the object manager that this module comes from, Terracotta's of
 * 2010, each by the name that its authors gave it. README has them in a table.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(rules);

static struct store store;

/* "If not we have to roll back, i.e. unmark the objects we just marked so far,
 * and add the request to a blocked request queue." */
StoreTest(rules, try_to_mark_objects_for_use_and_rollback_on_failure)
{
	party_make(&store, "c abc ab");
	play("take 0, wait 1");
	/* Requests for a and b can be served meanwhile. */
	play("try 2, release 0, waits 1, release 2, granted 1, release 1");
}

/* "If two requests for objects (A, B and C) and (C, D and A) are processed
 * concurrently": each keeps what it has while it waits for the next. */
StoreTestWith(rules, maintain_lock_order, .hold_after = 1)
{
	party_make(&store, "bcd abc cda");
	play("take 0, wait 2, wait 1, release 0, granted 2, waits 1, "
	     "release 2, granted 1, release 1");
}

#define TURNS 3000

static void
come_and_go(unsigned index, void *arg)
{
	struct demand *mine = (struct demand *)arg + index;
	unsigned turn;
	int rc;

	for (turn = 0; turn < TURNS; turn++) {
		mine->calls = 0;
		rc = hwt_checkout_acquire(
		    store.checkout, &mine->request, HWT_NEVER);
		cr_assert(rc == 0 || rc == 1, "acquire: %d", rc);
		if (rc == 0)
			assert_rc(hwt_checkout_release(
				      store.checkout, &mine->request),
			    0);
		while (rc == 1 && mine->calls == 0)
			sched_yield();
	}
}

static void
note_and_release(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct demand *demand = arg;

	assert_u64(grant, HWT_GRANTED);
	assert_rc(hwt_checkout_release(store.checkout, request), 0);
	demand->calls++;
}

/* "The object C could be checked back in and become available for use, as
 * things are running in parallel. This will lead to a request ending up in the
 * blocked queue when all requested objects are available": it would wait for
 * ever here. explore_checkout.c tries each interleaving of smaller programs. */
StoreTest(rules, check_change_and_recheck_state)
{
	static struct demand demand[3];
	unsigned i;

	for (i = 0; i < 3; i++) {
		demand_init(&demand[i], &store, i == 0 ? "ac" : "bc");
		assert_rc(hwt_request_init(&demand[i].request, demand[i].set, 2,
			      note_and_release, &demand[i]),
		    0);
	}
	in_parallel(3, come_and_go, demand);
	assert_u64(store_stats(&store).granted, 3 * TURNS);
}

static struct hwt_store *disk;
static struct hwt_store_job *fault;
static _Atomic unsigned faults, served;

static int
fault_from_disk(void *ctx, struct hwt_store_job *job, const void *key,
    size_t size, struct hwt_loaded *loaded)
{
	(void)ctx;
	(void)key;
	(void)size;
	(void)loaded;
	fault = job;
	faults++;
	return HWT_STORE_LATER;
}

static void
serve_and_release(struct hwt_store_request *request, void *arg, int result)
{
	(void)arg;
	assert_rc(result, 0);
	served++;
	assert_rc(hwt_store_release(disk, request), 0);
}

static void
want_object(unsigned index, void *arg)
{
	struct hwt_store_request *request = arg;

	assert_rc(hwt_store_acquire(disk, &request[index], HWT_NEVER), 1);
}

#define REQUESTS 8

/* "For the time it takes to fault from disk, this object is in-use for all
 * other requests and thus they go to blocked request queue automatically". */
StoreTest(rules, initiate_faulting_from_disk_once_and_only_once)
{
	const struct hwt_store_options options = {.load = fault_from_disk};
	static struct hwt_store_request request[REQUESTS];
	struct hwt_store_item item[REQUESTS];
	unsigned i;

	assert_rc(hwt_store_create(&disk, store.checkout, &options), 0);
	for (i = 0; i < REQUESTS; i++) {
		item[i] = (struct hwt_store_item){.key = "a", .size = 1};
		assert_rc(hwt_store_request_init(disk, &request[i], &item[i], 1,
			      serve_and_release, NULL),
		    0);
	}
	in_parallel(REQUESTS, want_object, request);
	assert_u64(faults, 1);
	assert_u64(served, 0);
	assert_rc(hwt_store_complete(disk, fault, 0, NULL), 0);
	assert_u64(faults, 1);
	assert_u64(served, REQUESTS);
	assert_rc(hwt_store_destroy(disk), 0);
}

/* "Any currently processing requests should complete, but new requests should
 * be queued up and DGC should be notified." */
StoreTest(rules, pause_and_unpause_the_object_manager_when_needed)
{
	party_make(&store, "a b z");
	party[2].count = 0;
	assert_rc(hwt_request_init_pause(store.checkout, &party[2].request,
		      NULL, 0, demand_granted, &party[2]),
	    0);
	play("take 0, wait 2, wait 1, waits 2, release 0, granted 2, "
	     "out 0 1, release 2, granted 1, release 1");
}
