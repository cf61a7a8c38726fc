/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loaded-once: while an object is there, or its load has begun, no other load
 * of its key begins.
 * load-failure: goes to all that wait, and within the back-off.
 * load-leaves: what ends a wait does not end the load; a pause does not wait
 * for it.
 */
#include "modules/checkout/test/spec/shelf.h"

SUITE(loaded_once);
SUITE(load_failure);
SUITE(load_leaves);

static struct shelf shelf;

ShelfTest(loaded_once, the_first_request_loads_and_the_next_ones_find_it)
{
	struct claim claim = {0};

	claim_init(&claim, &shelf, "a");
	/* Its own load ends in the call, and its granted is called there. */
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	assert_claim(&claim, 0);
	cr_assert(claim.item[0].value == &shelf.thing['a']);
	claim_release(&claim);
	cr_assert(claim.item[0].value == NULL);
	assert_rc(claim_acquire(&claim, HWT_NEVER), 0);
	cr_assert(claim.item[0].value == &shelf.thing['a']);
	claim_release(&claim);
	assert_u64(shelf.thing['a'].loads, 1);
	assert_u64(shelf_stats(&shelf).hits, 1);
	assert_u64(shelf_stats(&shelf).misses, 1);
}

ShelfTest(loaded_once, acquire_wait_loads_before_it_waits)
{
	struct claim claim = {0};

	claim_init(&claim, &shelf, "abc");
	assert_rc(claim_wait(&claim, HWT_MS(1)), 0);
	cr_assert(claim.item[2].value == &shelf.thing['c']);
	claim_release(&claim);
	assert_u64(shelf_stats(&shelf).loads, 3);
}

ShelfTest(loaded_once, however_many_want_it_one_load_runs)
{
	static struct claim claim[4];
	unsigned i;

	shelf.later = true;
	for (i = 0; i < 4; i++) {
		claim_init(&claim[i], &shelf, i % 2 == 0 ? "a" : "ab");
		claim[i].releases = true;
		assert_rc(claim_acquire(&claim[i], HWT_NEVER), 1);
	}
	assert_u64(shelf.thing['a'].loads, 1);
	assert_u64(shelf.thing['b'].loads, 1);
	assert_u64(shelf_stats(&shelf).jobs, 2);
	assert_u64(shelf_stats(&shelf).joined, 4);
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_claim(&claim[0], 0);
	assert_claim(&claim[2], 0);
	assert_u64(claim[1].calls, 0);
	assert_rc(shelf_complete(&shelf, 'b', 0), 0);
	assert_claim(&claim[1], 0);
	assert_claim(&claim[3], 0);
}

/* Of one byte to the most, all of them 0; and one with another last byte. */
static void
name_by_bytes(struct hwt_store_item *item, const char *zeros, const char *one)
{
	static const size_t size[] = {1, 7, 8, 9, 16, 17, HWT_STORE_KEY_MAX};
	unsigned i;

	for (i = 0; i < 7; i++)
		item[i] =
		    (struct hwt_store_item){zeros, size[i], NULL, HWT_WRITE};
	item[7] = (struct hwt_store_item){one, 16, NULL, HWT_WRITE};
}

Test(loaded_once, a_key_is_its_bytes_and_how_many_they_are)
{
	static const char bytes[2][HWT_STORE_KEY_MAX];
	static const char one[2][16] = {{[15] = 1}, {[15] = 1}};
	const struct hwt_store_options names = {.limit = 100};
	struct hwt_store_request request;
	struct hwt_store_item item[8];
	unsigned i;

	shelf_open_with(&shelf, &names);
	for (i = 0; i < 2; i++) {
		name_by_bytes(item, bytes[i], one[i]);
		assert_rc(hwt_store_request_init(
			      shelf.store, &request, item, 8, NULL, NULL),
		    0);
		assert_rc(
		    hwt_store_acquire_wait(shelf.store, &request, HWT_NEVER),
		    0);
		assert_rc(hwt_store_release(shelf.store, &request), 0);
		assert_u64(shelf_stats(&shelf).misses, 8);
		assert_u64(shelf_stats(&shelf).hits, 8 * i);
		assert_u64(shelf_stats(&shelf).loaded, 8);
	}
	shelf_close(&shelf);
}

Test(loaded_once, without_a_load_an_object_is_there_when_it_is_named)
{
	const struct hwt_store_options names = {.limit = 1};
	struct claim claim = {0};

	shelf_open_with(&shelf, &names);
	claim_init(&claim, &shelf, "ab");
	assert_rc(claim_acquire(&claim, 0), 0);
	cr_assert(claim.item[0].value == NULL);
	assert_u64(shelf_stats(&shelf).loaded, 2);
	claim_release(&claim);
	assert_u64(shelf_stats(&shelf).loaded, 1);
	shelf_close(&shelf);
}

static struct hwt_store_job *handed;
static int refusal;

static int
hand(void *ctx, struct hwt_store *store, struct hwt_store_job *job)
{
	(void)ctx;
	(void)store;
	if (refusal == 0)
		handed = job;
	return refusal;
}

static const struct hwt_store_executor handing = {hand, NULL};

ShelfTestWith(
    loaded_once, an_executor_runs_what_it_has_accepted, .executor = &handing)
{
	struct claim claim = {0};

	claim_init(&claim, &shelf, "a");
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	assert_u64(shelf.thing['a'].loads, 0);
	assert_rc(hwt_store_complete(shelf.store, handed, 0, NULL), -ENOENT);
	/* It has another job when it has completed this one. */
	shelf.again = true;
	assert_rc(hwt_store_run(shelf.store, handed), 0);
	assert_claim(&claim, 0);
	assert_u64(shelf.thing['a'].loads, 1);
	claim_release(&claim);

	refusal = -EAGAIN;
	claim_init(&claim, &shelf, "b");
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	assert_claim(&claim, 0);
	claim_release(&claim);
}

ShelfTest(load_failure, goes_to_all_that_wait_at_any_object_of_the_set)
{
	struct claim holder = {0};
	static struct claim claim[3];
	unsigned i;

	claim_init(&holder, &shelf, "ad");
	assert_rc(claim_wait(&holder, HWT_NEVER), 0);
	shelf.later = true;
	for (i = 0; i < 3; i++) {
		/* Two wait where another one is out. */
		claim_init(&claim[i], &shelf, i == 0 ? "b" : "abd");
		assert_rc(claim_acquire(&claim[i], HWT_SEC(1)), 1);
	}
	assert_rc(shelf_complete(&shelf, 'b', -ENOENT), 0);
	for (i = 0; i < 3; i++)
		assert_claim(&claim[i], -ENOENT);
	assert_u64(shelf_stats(&shelf).failures, 1);
	claim_release(&holder);
}

ShelfTest(load_failure, the_next_request_loads_again)
{
	struct claim claim = {0};

	claim_init(&claim, &shelf, "a");
	shelf.result = -EIO;
	assert_rc(claim_wait(&claim, HWT_NEVER), -EIO);
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	assert_claim(&claim, -EIO);
	shelf.result = 7; /* no error */
	assert_rc(claim_wait(&claim, HWT_NEVER), -EINVAL);
	shelf.result = 0;
	assert_rc(claim_wait(&claim, HWT_NEVER), 0);
	assert_u64(shelf.thing['a'].loads, 4);
	claim_release(&claim);
}

ShelfTestWith(load_failure, is_answered_at_once_until_the_back_off_is_over,
    .backoff_ns = HWT_MS(10))
{
	struct claim claim = {0};

	claim_init(&claim, &shelf, "a");
	shelf.result = -EIO;
	assert_rc(claim_wait(&claim, HWT_NEVER), -EIO);
	shelf.result = 0;
	(void)fixture_step(&shelf.fixture, HWT_MS(9));
	assert_rc(claim_wait(&claim, HWT_NEVER), -EIO);
	assert_rc(claim_acquire(&claim, HWT_NEVER), -EIO);
	assert_u64(shelf.thing['a'].loads, 1);
	assert_u64(shelf_stats(&shelf).backed_off, 2);
	(void)fixture_step(&shelf.fixture, HWT_MS(3));
	assert_rc(claim_wait(&claim, HWT_NEVER), 0);
	claim_release(&claim);
}

/* Its timeout was set when it was idle before. */
ShelfTestWith(load_failure, of_what_was_there_before_has_its_whole_back_off,
    .backoff_ns = HWT_MS(20), .idle_ns = HWT_MS(10))
{
	struct claim claim = {0};
	struct claim second = {0};

	claim_init(&claim, &shelf, "a");
	claim_init(&second, &shelf, "a");
	assert_rc(claim_wait(&claim, HWT_NEVER), 0);
	claim_release(&claim);
	(void)fixture_step(&shelf.fixture, HWT_MS(8));
	/* It is unloaded, and wanted meanwhile, and the load fails. */
	shelf.later = true;
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	shelf.later = false;
	shelf.result = -EIO;
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_claim(&claim, -EIO);
	shelf.result = 0;
	(void)fixture_step(&shelf.fixture, HWT_MS(18));
	assert_rc(claim_wait(&second, HWT_NEVER), -EIO);
	(void)fixture_step(&shelf.fixture, HWT_MS(4));
	assert_rc(claim_wait(&second, HWT_NEVER), 0);
	claim_release(&second);
}

/* And no more. */
ShelfTestWith(load_failure, of_what_was_there_before_has_no_longer_back_off,
    .backoff_ns = HWT_MS(10), .idle_ns = HWT_MS(60))
{
	struct claim claim = {0};

	claim_init(&claim, &shelf, "a");
	claim_once(&shelf, "a");
	shelf.later = true;
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	shelf.later = false;
	shelf.result = -EIO;
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_claim(&claim, -EIO);
	shelf.result = 0;
	(void)fixture_step(&shelf.fixture, HWT_MS(12));
	assert_rc(claim_wait(&claim, HWT_NEVER), 0);
	claim_release(&claim);
}

static hwt_timeout due;

static int
keep_due(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	(void)timer;
	due = timeout;
	return 0;
}

/* The timer's executor has the timeout since before the failure. */
Test(load_failure, is_not_forgotten_by_a_task_that_comes_early)
{
	const struct hwt_executor executor = {keep_due, NULL};
	const struct hwt_options late = {.tick_ns = FIXTURE_TICK,
	    .ticks_per_wheel = FIXTURE_WHEEL,
	    .executor = &executor};
	const struct hwt_store_options options = {
	    .backoff_ns = HWT_MS(30), .idle_ns = HWT_MS(10)};
	struct claim claim = {0};

	fixture_open(&shelf.fixture, &late);
	shelf_open_on(&shelf, shelf.fixture.timer, &options);
	claim_init(&claim, &shelf, "a");
	claim_once(&shelf, "a");
	shelf.later = true;
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	(void)fixture_step(&shelf.fixture, HWT_MS(15));
	shelf.later = false;
	shelf.result = -EIO;
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_claim(&claim, -EIO);
	shelf.result = 0;
	assert_rc(hwt_run(shelf.timer, due), 0);
	assert_rc(claim_wait(&claim, HWT_NEVER), -EIO);
	(void)fixture_step(&shelf.fixture, HWT_MS(35));
	assert_rc(hwt_run(shelf.timer, due), 0);
	assert_rc(claim_wait(&claim, HWT_NEVER), 0);
	claim_release(&claim);
	shelf_close(&shelf);
}

/* The entry of the first load is still there, as somebody is told. */
static void
claim_again(struct claim *claim)
{
	claim->rc = claim_acquire(claim->data, HWT_NEVER);
}

ShelfTest(load_failure, a_request_in_granted_loads_again)
{
	struct claim second = {0};
	struct claim first = {.in_granted = claim_again, .data = &second};

	claim_init(&first, &shelf, "a");
	claim_init(&second, &shelf, "a");
	shelf.later = true;
	assert_rc(claim_acquire(&first, HWT_NEVER), 1);
	assert_rc(shelf_complete(&shelf, 'a', -EIO), 0);
	assert_claim(&first, -EIO);
	assert_rc(first.rc, 1);
	assert_u64(shelf.thing['a'].loads, 2);
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_claim(&second, 0);
	claim_release(&second);
}

ShelfTest(load_leaves, a_deadline_and_a_cancel_end_the_wait_not_the_load)
{
	struct claim expires = {0};
	struct claim cancelled = {0};
	struct claim claim = {0};

	claim_init(&expires, &shelf, "a");
	claim_init(&cancelled, &shelf, "a");
	claim_init(&claim, &shelf, "a");
	shelf.later = true;
	assert_rc(claim_acquire(&expires, HWT_MS(2)), 1);
	assert_rc(claim_acquire(&cancelled, HWT_MS(2)), 1);
	assert_rc(hwt_store_cancel(shelf.store, &cancelled.request), 0);
	assert_claim(&cancelled, -ECANCELED);
	(void)fixture_step(&shelf.fixture, HWT_MS(4));
	assert_claim(&expires, -ETIMEDOUT);
	assert_rc(hwt_store_destroy(shelf.store), -EBUSY);
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_rc(claim_acquire(&claim, HWT_NEVER), 0);
	assert_u64(shelf.thing['a'].loads, 1);
	claim_release(&claim);
}

ShelfTest(load_leaves, a_pause_does_not_wait_for_it_and_nothing_is_granted)
{
	struct claim claim = {0};

	claim_init(&claim, &shelf, "a");
	shelf.later = true;
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	assert_rc(hwt_checkout_pause(shelf.checkout, 0), 0);
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	assert_u64(claim.calls, 0);
	assert_rc(hwt_checkout_resume(shelf.checkout), 0);
	assert_claim(&claim, 0);
	claim_release(&claim);
}

ShelfTest(
    load_leaves, a_shutdown_ends_the_wait_and_what_comes_later_loads_nothing)
{
	struct claim claim = {0};
	struct claim late = {0};

	claim_init(&claim, &shelf, "a");
	claim_init(&late, &shelf, "b");
	shelf.later = true;
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	assert_rc(hwt_checkout_shutdown(shelf.checkout), 0);
	assert_claim(&claim, -ESHUTDOWN);
	assert_rc(claim_acquire(&late, HWT_NEVER), -ESHUTDOWN);
	assert_rc(claim_wait(&late, HWT_NEVER), -ESHUTDOWN);
	assert_u64(shelf.thing['b'].loads, 0);
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
}

static _Atomic uint64_t begun;

static int
complete_or_wait(unsigned index, struct claim *claim)
{
	if (index == 0) {
		begun = 1;
		return claim_wait(claim, HWT_MS(20));
	}
	wait_for(&begun, 1);
	while (shelf_stats(&shelf).jobs == 0)
		sleep_ns(HWT_US(100));
	/* The thread waits, and leaves. */
	while (shelf.thing['a'].loads == 0)
		sleep_ns(HWT_US(100));
	return 0;
}

static void
wait_beside(unsigned index, void *arg)
{
	struct claim *claim = arg;

	claim[index].rc = complete_or_wait(index, &claim[index]);
}

/* In real time, by a timer with a worker. */
Test(load_leaves, a_thread_leaves_while_the_load_goes_on)
{
	static struct claim claim[2];

	shelf_open_real(&shelf, NULL);
	claim_init(&claim[0], &shelf, "a");
	shelf.later = true;
	in_parallel(2, wait_beside, claim);
	assert_rc(claim[0].rc, -ETIMEDOUT);
	assert_rc(shelf_complete(&shelf, 'a', 0), 0);
	shelf_close_real(&shelf);
}
