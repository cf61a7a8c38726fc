/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unload-alone: nobody has what is unloaded, nor waits for it when it is
 * chosen.
 * unload-when: it was idle for long enough, or all weighs too much.
 */
#include "modules/checkout/test/spec/shelf.h"

SUITE(unload_alone);
SUITE(unload_when);

static struct shelf shelf;

ShelfTestWith(
    unload_alone, what_is_wanted_meanwhile_is_loaded_again, .limit = 1)
{
	struct claim claim = {0};

	claim_once(&shelf, "a");
	shelf.later = true;
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	claim_init(&claim, &shelf, "a");
	assert_rc(claim_acquire(&claim, HWT_SEC(1)), 1);
	assert_u64(shelf.thing['a'].loads, 1);
	assert_u64(claim.calls, 0);
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_u64(shelf.thing['a'].loads, 2);
	assert_u64(claim.calls, 0);
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_claim(&claim, 0);
	claim_release(&claim);
	assert_u64(shelf_stats(&shelf).unloads, 1);
	assert_u64(shelf_stats(&shelf).jobs, 0);
}

ShelfTest(unload_alone, who_refuses_keeps_the_object)
{
	struct claim claim = {0};

	claim_once(&shelf, "a");
	shelf.result = -EBUSY;
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	assert_rc(hwt_store_destroy(shelf.store), -EBUSY);
	assert_u64(shelf_stats(&shelf).refusals, 2);
	assert_u64(shelf_stats(&shelf).weight, 1);
	/* Also one that is wanted meanwhile. */
	shelf.later = true;
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	claim_init(&claim, &shelf, "a");
	assert_rc(claim_acquire(&claim, HWT_SEC(1)), 1);
	assert_rc(shelf_complete(&shelf, 'a', -EBUSY), 0);
	assert_claim(&claim, 0);
	cr_assert(claim.item[0].value == &shelf.thing['a']);
	claim_release(&claim);
	assert_u64(shelf.thing['a'].loads, 1);
}

ShelfTest(unload_alone, a_pause_waits_for_it)
{
	claim_once(&shelf, "a");
	shelf.later = true;
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	assert_rc(hwt_checkout_pause(shelf.checkout, 0), -ETIMEDOUT);
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_rc(hwt_checkout_pause(shelf.checkout, 0), 0);
	assert_rc(hwt_checkout_resume(shelf.checkout), 0);
}

ShelfTestWith(unload_alone, none_begins_in_a_pause, .idle_ns = HWT_MS(10))
{
	claim_once(&shelf, "a");
	assert_rc(hwt_checkout_pause(shelf.checkout, 0), 0);
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	(void)fixture_step(&shelf.fixture, HWT_MS(15));
	assert_rc(hwt_store_destroy(shelf.store), -EBUSY);
	assert_u64(shelf.thing['a'].unloads, 0);
	assert_rc(hwt_checkout_resume(shelf.checkout), 0);
	/* Its time is tried again. */
	(void)fixture_step(&shelf.fixture, HWT_MS(15));
	assert_u64(shelf.thing['a'].unloads, 1);
}

ShelfTestWith(
    unload_when, idle_for_so_long_since_the_last_release, .idle_ns = HWT_MS(10))
{
	struct claim claim = {0};

	claim_once(&shelf, "ab");
	(void)fixture_step(&shelf.fixture, HWT_MS(8));
	claim_once(&shelf, "a");
	(void)fixture_step(&shelf.fixture, HWT_MS(8));
	cr_assert_str_eq(shelf.unloaded, "b");
	/* Not while it is out. */
	claim_init(&claim, &shelf, "a");
	assert_rc(claim_acquire(&claim, HWT_NEVER), 0);
	(void)fixture_step(&shelf.fixture, HWT_MS(50));
	claim_release(&claim);
	(void)fixture_step(&shelf.fixture, HWT_MS(9));
	assert_u64(shelf.thing['a'].unloads, 0);
	(void)fixture_step(&shelf.fixture, HWT_MS(3));
	assert_u64(shelf.thing['a'].unloads, 1);
	assert_u64(shelf_stats(&shelf).loaded, 0);
}

ShelfTestWith(unload_when, all_weighs_too_much_the_unused_first, .limit = 3)
{
	claim_once(&shelf, "a");
	claim_once(&shelf, "b");
	claim_once(&shelf, "c");
	claim_once(&shelf, "a");
	claim_once(&shelf, "d");
	claim_once(&shelf, "e");
	/* a was used again. */
	cr_assert_str_eq(shelf.unloaded, "bc");
	claim_once(&shelf, "f");
	cr_assert_str_eq(shelf.unloaded, "bcd");
	assert_u64(shelf_stats(&shelf).weight, 3);
}

ShelfTestWith(unload_when, weights_are_what_loads_say, .limit = 100)
{
	shelf.weight = 50;
	claim_once(&shelf, "ab");
	assert_u64(shelf_stats(&shelf).weight, 100);
	shelf.weight = UINT32_MAX;
	claim_once(&shelf, "c");
	/* Nothing else was enough. */
	cr_assert_str_eq(shelf.unloaded, "abc");
	assert_u64(shelf_stats(&shelf).weight, 0);
}

Test(unload_when, what_is_pinned_stays)
{
	const struct hwt_store_options options = {
	    .limit = 1, .idle_ns = HWT_MS(10)};
	struct claim claim = {0};

	shelf_open(&shelf, &options);
	claim_init(&claim, &shelf, "a");
	assert_rc(hwt_store_pin(shelf.store, &claim.request, 0, true), -EPERM);
	assert_rc(claim_wait(&claim, HWT_NEVER), 0);
	assert_rc(hwt_store_pin(shelf.store, &claim.request, 1, true), -EINVAL);
	assert_rc(hwt_store_pin(shelf.store, &claim.request, 0, true), 0);
	claim_release(&claim);
	claim_once(&shelf, "b");
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	(void)fixture_step(&shelf.fixture, HWT_MS(50));
	cr_assert_str_eq(shelf.unloaded, "b");
	assert_rc(claim_acquire(&claim, HWT_NEVER), 0);
	assert_rc(hwt_store_pin(shelf.store, &claim.request, 0, false), 0);
	claim_release(&claim);
	(void)fixture_step(&shelf.fixture, HWT_MS(12));
	cr_assert_str_eq(shelf.unloaded, "ba");
	/* Pinned, to the end: destroy unloads it. */
	assert_rc(claim_wait(&claim, HWT_NEVER), 0);
	assert_rc(hwt_store_pin(shelf.store, &claim.request, 0, true), 0);
	claim_release(&claim);
	shelf_close(&shelf);
	cr_assert_str_eq(shelf.unloaded, "baa");
}

ShelfTest(unload_when, the_table_grows_and_shrinks_with_it)
{
	char letters[2] = {0, 0};
	unsigned i;

	for (i = 1; i < LETTERS; i++) {
		letters[0] = (char)i;
		claim_once(&shelf, letters);
	}
	assert_u64(shelf_stats(&shelf).loaded, LETTERS - 1);
	assert_rc(hwt_store_trim(shelf.store, 3), 0);
	assert_u64(shelf_stats(&shelf).loaded, 3);
	for (i = LETTERS - 3; i < LETTERS; i++) {
		letters[0] = (char)i;
		claim_once(&shelf, letters);
	}
	assert_u64(shelf_stats(&shelf).hits, 3);
}

ShelfTest(unload_when, ENOMEM_loads_nothing_and_the_next_one_works)
{
	struct claim claim = {0};

	claim_init(&claim, &shelf, "ab");
	fault_arm(FAULT_HEAP, 2);
	assert_rc(claim_wait(&claim, HWT_NEVER), -ENOMEM);
	fault_disarm();
	/* What it had begun is there. */
	assert_u64(shelf_stats(&shelf).loaded, 1);
	assert_rc(claim_wait(&claim, HWT_NEVER), 0);
	claim_release(&claim);
}
