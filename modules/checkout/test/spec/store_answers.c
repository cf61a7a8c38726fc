/* SPDX-License-Identifier: Apache-2.0 */
/* What the functions of a store answer where they cannot do what they are asked
 * for. */
#include "modules/checkout/test/spec/shelf.h"

SUITE(store_answers);

static struct shelf shelf;

static void
nothing_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

ShelfTest(store_answers, EINVAL_and_ENOMEM_of_create)
{
	const struct hwt_store_executor none = {NULL, NULL};
	const struct hwt_store_options wrong[] = {
	    {.shards = 3},
	    {.shards = 1u << 17},
	    {.idle_ns = UINT64_C(1) << 63},
	    {.backoff_ns = UINT64_C(1) << 63},
	    {.executor = &none},
	    {.reserved = {0, 1}},
	};
	const struct hwt_store_options two = {.shards = 2};
	struct hwt_store *made = NULL;
	unsigned i, nth;
	int rc;

	assert_rc(hwt_store_create(NULL, shelf.checkout, NULL), -EINVAL);
	assert_rc(hwt_store_create(&made, NULL, NULL), -EINVAL);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_rc(hwt_store_create(&made, shelf.checkout, &wrong[i]),
		    -EINVAL);
	for (nth = 1; made == NULL; nth++) {
		fault_arm(FAULT_MEMORY, nth);
		rc = hwt_store_create(&made, shelf.checkout, &two);
		(void)fault_disarm();
		assert_rc(rc, made == NULL ? -ENOMEM : 0);
	}
	assert_u64(nth, 6);
	assert_rc(hwt_store_destroy(made), 0);
	assert_rc(hwt_store_destroy(NULL), 0);
}

ShelfTest(store_answers, EINVAL_and_E2BIG_of_request_init)
{
	struct hwt_store_request request;
	struct hwt_store_item item[HWT_STORE_ITEMS_MAX + 1];
	char keys[HWT_STORE_KEY_MAX + 2] = {0};
	struct hwt_store *store;
	unsigned i;

	store = shelf.store;
	for (i = 0; i <= HWT_STORE_ITEMS_MAX; i++) {
		keys[i] = (char)i;
		item[i] = (struct hwt_store_item){
		    .key = &keys[i], .size = 1, .use = HWT_WRITE};
	}
#define INIT(count) \
	hwt_store_request_init(store, &request, item, count, NULL, NULL)
	assert_rc(INIT(HWT_STORE_ITEMS_MAX), 0);
	assert_rc(hwt_store_request_init(store, &request, item,
		      HWT_STORE_ITEMS_MAX + 1, NULL, NULL),
	    -E2BIG);
	assert_rc(INIT(0), -EINVAL);
	assert_rc(hwt_store_request_init(NULL, &request, item, 1, NULL, NULL),
	    -EINVAL);
	assert_rc(
	    hwt_store_request_init(store, NULL, item, 1, NULL, NULL), -EINVAL);
	assert_rc(hwt_store_request_init(store, &request, NULL, 1, NULL, NULL),
	    -EINVAL);
	item[0].size = HWT_STORE_KEY_MAX;
	assert_rc(INIT(1), 0);
	item[0].size++;
	assert_rc(INIT(1), -EINVAL);
	item[0].size = 0;
	assert_rc(INIT(1), -EINVAL);
	item[0].size = 1;
	item[0].key = NULL;
	assert_rc(INIT(1), -EINVAL);
	item[0].key = item[1].key;
	assert_rc(INIT(2), -EINVAL);
	item[0].use = (enum hwt_use)7;
	assert_rc(INIT(1), -EINVAL);
}

ShelfTest(store_answers, EINVAL_of_nothing_and_of_another_store)
{
	struct hwt_store_request nothing = {{0}};
	struct hwt_store_stats stats;
	struct hwt_store *other;
	struct claim claim = {0};
	struct claim waiter = {0};
	struct hwt_store_job *job;

	assert_rc(hwt_store_create(&other, shelf.checkout, NULL), 0);
	claim_init(&claim, &shelf, "a");
	assert_rc(hwt_store_acquire(NULL, &claim.request, 0), -EINVAL);
	assert_rc(hwt_store_acquire(shelf.store, NULL, 0), -EINVAL);
	assert_rc(hwt_store_acquire(shelf.store, &nothing, 0), -EINVAL);
	assert_rc(hwt_store_acquire(other, &claim.request, 0), -EINVAL);
	assert_rc(
	    hwt_store_acquire(shelf.store, &claim.request, UINT64_MAX - 1),
	    -EINVAL);
	assert_rc(hwt_store_acquire_wait(other, &claim.request, 0), -EINVAL);
	assert_rc(
	    hwt_store_acquire_wait(shelf.store, &claim.request, UINT64_MAX - 1),
	    -EINVAL);
	assert_rc(hwt_store_release(other, &claim.request), -EINVAL);
	assert_rc(hwt_store_cancel(other, &claim.request), -EINVAL);
	assert_rc(hwt_store_pin(other, &claim.request, 0, true), -EINVAL);
	assert_rc(hwt_store_trim(NULL, 0), -EINVAL);
	assert_rc(hwt_store_run(shelf.store, NULL), -EINVAL);
	assert_rc(hwt_store_complete(shelf.store, NULL, 0, NULL), -EINVAL);
	assert_rc(hwt_store_read_stats(NULL, &stats), -EINVAL);
	assert_rc(hwt_store_read_stats(shelf.store, NULL), -EINVAL);

	shelf.later = true;
	claim_init(&waiter, &shelf, "b");
	assert_rc(claim_acquire(&waiter, HWT_NEVER), 1);
	job = shelf.thing['b'].job;
	assert_rc(hwt_store_run(other, job), -EINVAL);
	assert_rc(hwt_store_complete(other, job, 0, NULL), -EINVAL);
	assert_rc(hwt_store_complete(shelf.store, job, 1, NULL), -EINVAL);
	assert_rc(shelf_complete(&shelf, 'b', 0), 0);
	claim_release(&waiter);
	assert_rc(hwt_store_destroy(other), 0);

	/* No granted. */
	assert_rc(hwt_store_request_init(
		      shelf.store, &claim.request, claim.item, 1, NULL, NULL),
	    0);
	assert_rc(hwt_store_acquire(shelf.store, &claim.request, 0), -EINVAL);
	assert_u64(shelf.thing['a'].loads, 0);
}

static void
wait_in_granted(struct claim *claim)
{
	struct claim *other = claim->data;

	claim->rc =
	    hwt_store_acquire_wait(shelf.store, &other->request, HWT_NEVER);
	assert_rc(claim->rc, -EDEADLK);
	assert_rc(hwt_store_destroy(shelf.store), -EDEADLK);
}

ShelfTest(store_answers, EBUSY_ENOENT_and_EDEADLK)
{
	struct claim other = {0};
	struct claim claim = {.in_granted = wait_in_granted, .data = &other};

	claim_init(&claim, &shelf, "a");
	claim_init(&other, &shelf, "b");
	assert_rc(hwt_store_release(shelf.store, &claim.request), -ENOENT);
	assert_rc(hwt_store_cancel(shelf.store, &claim.request), -ENOENT);
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	assert_claim(&claim, 0);
	assert_rc(hwt_store_acquire(shelf.store, &claim.request, 0), -EBUSY);
	assert_rc(
	    hwt_store_acquire_wait(shelf.store, &claim.request, 0), -EBUSY);
	assert_rc(hwt_store_cancel(shelf.store, &claim.request), -ENOENT);
	assert_rc(hwt_store_destroy(shelf.store), -EBUSY);
	claim_release(&claim);
	assert_rc(hwt_store_release(shelf.store, &claim.request), -ENOENT);
}

static void
wait_or_cancel(unsigned number, void *arg)
{
	struct claim *claim = arg;
	int rc;

	if (number == 0) {
		claim->rc = claim_wait(claim, HWT_NEVER);
		return;
	}
	do {
		rc = hwt_store_cancel(shelf.store, &claim->request);
		/* -EINPROGRESS: it is tried at this moment. */
	} while (rc == -ENOENT);
}

Test(store_answers, ECANCELED_and_ETIMEDOUT_of_a_thread)
{
	static struct claim claim;
	struct claim holder = {0};

	shelf_open_real(&shelf, NULL);
	claim_init(&claim, &shelf, "a");
	claim_init(&holder, &shelf, "a");
	assert_rc(claim_wait(&holder, HWT_NEVER), 0);
	/* hwt_store_acquire_wait: -ECANCELED. */
	in_parallel(2, wait_or_cancel, &claim);
	assert_rc(claim.rc, -ECANCELED);
	assert_rc(
	    hwt_store_acquire_wait(shelf.store, &claim.request, HWT_MS(2)),
	    -ETIMEDOUT);
	claim_release(&holder);
	shelf_close_real(&shelf);
}

/* What it has found is let go. */
Test(store_answers, of_a_wait_that_cannot_begin)
{
	const struct hwt_options full = {.tick_ns = FIXTURE_TICK,
	    .ticks_per_wheel = FIXTURE_WHEEL,
	    .max_pending = 1};
	struct claim holder = {0};
	struct claim claim = {0};
	hwt_timeout one;

	fixture_open(&shelf.fixture, &full);
	shelf_open_on(&shelf, shelf.fixture.timer, NULL);
	claim_init(&holder, &shelf, "a");
	claim_init(&claim, &shelf, "ab");
	assert_rc(claim_wait(&holder, HWT_NEVER), 0);
	assert_rc(hwt_new_timeout(shelf.timer, &one, nothing_task, NULL, 1), 0);
	assert_rc(hwt_store_acquire(shelf.store, &claim.request, HWT_SEC(1)),
	    -ENOBUFS);
	assert_rc(
	    hwt_store_acquire_wait(shelf.store, &claim.request, HWT_SEC(1)),
	    -ENOBUFS);
	assert_rc(hwt_cancel(shelf.timer, one), 0);
	claim_release(&holder);
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	assert_u64(shelf_stats(&shelf).loaded, 0);
	shelf_close(&shelf);
}

Test(store_answers, EAGAIN_and_ENOMEM_of_the_timer)
{
	struct claim holder = {0};
	struct claim claim = {0};
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt *timer;

	assert_rc(hwt_create(&timer, &options), 0);
	shelf_open_on(&shelf, timer, NULL);
	claim_init(&holder, &shelf, "a");
	claim_init(&claim, &shelf, "a");
	assert_rc(claim_wait(&holder, HWT_NEVER), 0);
	fault_arm_thread(EAGAIN);
	assert_rc(hwt_store_acquire(shelf.store, &claim.request, HWT_SEC(1)),
	    -EAGAIN);
	assert_rc(
	    hwt_store_acquire_wait(shelf.store, &claim.request, HWT_SEC(1)),
	    -EAGAIN);
	(void)fault_disarm();
	claim_init(&claim, &shelf, "b");
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_rc(hwt_store_acquire(shelf.store, &claim.request, HWT_SEC(1)),
	    -ENOMEM);
	assert_rc(
	    hwt_store_acquire_wait(shelf.store, &claim.request, HWT_SEC(1)),
	    -ENOMEM);
	(void)fault_disarm();
	claim_release(&holder);
	assert_rc(hwt_checkout_shutdown(shelf.checkout), 0);
	assert_rc(hwt_store_acquire(shelf.store, &claim.request, HWT_SEC(1)),
	    -ESHUTDOWN);
	assert_rc(
	    hwt_store_acquire_wait(shelf.store, &claim.request, HWT_SEC(1)),
	    -ESHUTDOWN);
	shelf_close_real(&shelf);
}

static struct claim forked;

static void
use_in_child(void *arg)
{
	struct hwt_store *store = shelf.store;
	struct hwt_store_stats stats;
	struct hwt_store *made;

	(void)arg;
	child_rc(hwt_store_create(&made, shelf.checkout, NULL), -EOWNERDEAD);
	child_rc(hwt_store_request_init(
		     store, &forked.request, forked.item, 1, NULL, NULL),
	    -EOWNERDEAD);
	child_rc(hwt_store_acquire(store, &forked.request, 0), -EOWNERDEAD);
	child_rc(
	    hwt_store_acquire_wait(store, &forked.request, 0), -EOWNERDEAD);
	child_rc(hwt_store_release(store, &forked.request), -EOWNERDEAD);
	child_rc(hwt_store_cancel(store, &forked.request), -EOWNERDEAD);
	child_rc(hwt_store_pin(store, &forked.request, 0, true), -EOWNERDEAD);
	child_rc(hwt_store_trim(store, 0), -EOWNERDEAD);
	child_rc(hwt_store_stats_write(store, stderr, HWT_JSON), -EOWNERDEAD);
	child_rc(hwt_store_dump(store, stderr), -EOWNERDEAD);
	child_rc(hwt_store_run(store, NULL), -EOWNERDEAD);
	child_rc(hwt_store_complete(store, NULL, 0, NULL), -EOWNERDEAD);
	child_rc(hwt_store_read_stats(store, &stats), -EOWNERDEAD);
	child_rc(hwt_store_destroy(store), 0);
	child_rc(hwt_checkout_destroy(shelf.checkout), 0);
}

ShelfTest(store_answers, EOWNERDEAD_in_a_child)
{
	claim_init(&forked, &shelf, "a");
	assert_rc(claim_wait(&forked, HWT_NEVER), 0);
	in_child(use_in_child, NULL);
	claim_release(&forked);
}
