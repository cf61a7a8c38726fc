/* SPDX-License-Identifier: Apache-2.0 */
/* Readers: in one request some objects for reading, some for writing. */
#include "modules/checkout/test/spec/checkout.h"

SUITE(readers);

static struct store store;
static const struct hwt_checkout_options first_come = {.hold_after = 1};
static const struct hwt_checkout_options never = {
    .hold_after = HWT_CHECKOUT_NEVER};

StoreTest(readers, many_read_at_a_time_and_one_writes_alone)
{
	struct demand reader[3] = {0};
	struct demand writer = {0};
	unsigned i;

	demand_init(&writer, &store, "a");
	for (i = 0; i < 3; i++) {
		demand_init(&reader[i], &store, "A");
		assert_rc(demand_try(&reader[i]), 0);
	}
	assert_stats(&store, 3, 0);
	for (i = 0; i < 3; i++) {
		assert_rc(demand_try(&writer), -EAGAIN);
		demand_release(&reader[i]);
	}
	assert_rc(demand_try(&writer), 0);
	assert_rc(demand_try(&reader[0]), -EAGAIN);
	demand_release(&writer);
}

StoreTest(readers, a_set_reads_one_object_and_writes_another)
{
	party_make(&store, "Ab Ac aB");
	play("take 0, got 0 0, take 1, wait 2, release 0, waits 2, "
	     "release 1, granted 2, refused 1, release 2");
}

/* One reader comes before the other has left, so that the object is never
 * free. */
static void
writer_among_readers(const struct hwt_checkout_options *options)
{
	struct demand reader[3] = {0};
	struct demand writer = {0};
	unsigned i;

	store_open(&store, options);
	demand_init(&writer, &store, "a");
	for (i = 0; i < 3; i++)
		demand_init(&reader[i], &store, "A");
	assert_rc(demand_acquire(&reader[0], HWT_NEVER), 0);
	assert_rc(demand_acquire(&reader[1], HWT_NEVER), 0);
	assert_rc(demand_acquire(&writer, HWT_NEVER), 1);
	/* Who comes now reads after it. */
	assert_rc(demand_try(&reader[2]), -EAGAIN);
	assert_rc(demand_acquire(&reader[2], HWT_NEVER), 1);
	demand_release(&reader[0]);
	assert_rc(demand_acquire(&reader[0], HWT_NEVER), 1);
	demand_release(&reader[1]);
	assert_told(&writer, HWT_GRANTED);
	assert_waits(&reader[2]);
	demand_release(&writer);
	assert_told(&reader[2], HWT_GRANTED);
	assert_told(&reader[0], HWT_GRANTED);
	demand_release(&reader[0]);
	demand_release(&reader[2]);
	store_close(&store);
}

Test(readers, a_writer_does_not_starve_by_readers)
{
	writer_among_readers(NULL);
	writer_among_readers(&first_come);
	writer_among_readers(&never);
}

/* It wants a and any one of the group. The readers of a come and go, so that a
 * is not free when the member is, and the other way round. How often it is
 * refused is counted. */
static unsigned
refusals_of_a_set(const struct hwt_checkout_options *options)
{
	unsigned turns = 0;

	store_open(&store, options);
	store_group(&store, 1, 1);
	party_make(&store, "A A * a*");
	play("try 0, wait 3");
	while (party[3].calls == 0 && turns < 1000) {
		turns++;
		if (demand_try(&party[2]) == 0) {
			demand_release(&party[0]);
			if (demand_try(&party[1]) == 0) {
				demand_release(&party[2]);
				demand_release(&party[1]);
			} else {
				demand_release(&party[2]);
			}
		} else {
			demand_release(&party[0]);
		}
		if (party[3].calls == 0)
			assert_rc(demand_try(&party[0]), 0);
	}
	play("granted 3, release 3");
	store_close(&store);
	return turns;
}

Test(readers, a_set_with_a_group_does_not_starve_by_readers)
{
	cr_assert(refusals_of_a_set(NULL) <= 16, "it is overtaken");
	cr_assert(refusals_of_a_set(&first_come) <= 1, "it is overtaken");
}

/* They wait for a writer; those before the next writer are granted at once. */
static void
readers_between_writers(const struct hwt_checkout_options *options)
{
	struct demand demand[6] = {0};
	static const char *const sets[] = {"a", "A", "A", "a", "A", "A"};
	unsigned i;

	store_open(&store, options);
	for (i = 0; i < 6; i++) {
		demand_init(&demand[i], &store, sets[i]);
		assert_rc(demand_acquire(&demand[i], HWT_NEVER), i > 0);
	}
	demand_release(&demand[0]);
	assert_told(&demand[1], HWT_GRANTED);
	assert_told(&demand[2], HWT_GRANTED);
	assert_waits(&demand[3]);
	assert_waits(&demand[4]);
	demand_release(&demand[2]);
	assert_waits(&demand[3]);
	demand_release(&demand[1]);
	assert_told(&demand[3], HWT_GRANTED);
	assert_waits(&demand[4]);
	demand_release(&demand[3]);
	assert_told(&demand[4], HWT_GRANTED);
	assert_told(&demand[5], HWT_GRANTED);
	demand_release(&demand[4]);
	demand_release(&demand[5]);
	store_close(&store);
}

Test(readers, all_that_wait_before_a_writer_are_granted_together)
{
	readers_between_writers(NULL);
	readers_between_writers(&first_come);
	readers_between_writers(&never);
}

/* The wait of the writer that was between them ends. */
static void
writer_gives_up(const struct hwt_checkout_options *options, bool cancelled)
{
	store_open(&store, options);
	party_make(&store, "A a A A");
	play("take 0, wait-ms 1 5, wait 2, wait 3");
	if (cancelled)
		assert_rc(demand_cancel(&party[1]), 0);
	else
		(void)fixture_step(&store.fixture, HWT_MS(50));
	assert_told(
	    &party[1], cancelled ? HWT_GRANT_CANCELLED : HWT_GRANT_EXPIRED);
	play("granted 2, granted 3, release 0, release 2, release 3");
	store_close(&store);
}

Test(readers, join_when_the_writer_before_them_gives_up)
{
	writer_gives_up(NULL, true);
	writer_gives_up(NULL, false);
	writer_gives_up(&first_come, true);
}

/* It keeps a for reading, and waits for b. */
StoreTestWith(readers, what_is_kept_for_reading_is_shared, .hold_after = 1)
{
	party_make(&store, "b Ab A a");
	play("take 0, wait 1, try 2, release 2, refused 3, cancel 1, "
	     "try 3, release 3, release 0");
}

StoreTest(readers, an_object_is_retired_by_who_writes_it)
{
	party_make(&store, "A a AB");
	play("try 0, cannot-retire 0, release 0, try 1, wait 2, retire 0, "
	     "retired 2");
	assert_rc(hwt_checkout_release(store.checkout, &party[1].request), 0);
	assert_rc(demand_try(&party[0]), -EIDRM);
}

StoreTest(readers, ENOTSUP_of_an_upgrade)
{
	struct hwt_request request;
	struct hwt_item items[21] = {0};
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	unsigned i;

	party_make(&store, "Ab a");
	play("try 0");
	assert_rc(
	    hwt_checkout_try(store.checkout, &party[0].request), -ENOTSUP);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &party[0].request, HWT_NEVER),
	    -ENOTSUP);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &party[0].request, HWT_NEVER),
	    -ENOTSUP);
	assert_rc(pthread_mutex_lock(&mutex), 0);
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &party[0].request, HWT_NEVER, &mutex),
	    -ENOTSUP);
	assert_rc(pthread_mutex_lock(&mutex), 0);
	assert_rc(pthread_mutex_unlock(&mutex), 0);
	/* It has what it had. */
	play("refused 1, release 0, try 1");
	assert_rc(hwt_checkout_try(store.checkout, &party[1].request), -EBUSY);
	play("wait 0");
	assert_rc(hwt_checkout_try(store.checkout, &party[0].request), -EBUSY);
	play("release 1, release 0");
	/* Both in one set. */
	for (i = 0; i < 21; i++)
		items[i].wanted = &store.thing[i].object;
	items[20] = items[0];
	items[20].use = HWT_READ;
	assert_rc(
	    hwt_request_init_items(&request, items + 1, 20, NULL, NULL), 0);
	items[1] = items[20];
	assert_rc(
	    hwt_request_init_items(&request, items, 2, NULL, NULL), -ENOTSUP);
	items[2] = items[0];
	assert_rc(
	    hwt_request_init_items(&request, items, 3, NULL, NULL), -ENOTSUP);
}

StoreTest(readers, hwt_request_init_items_EINVAL_of_what_cannot_be_read)
{
	struct hwt_request request;
	struct hwt_item item = {0};

	item.wanted = &store.group.any;
	item.use = HWT_READ;
	assert_rc(
	    hwt_request_init_items(&request, &item, 1, NULL, NULL), -EINVAL);
	item.wanted = &store.thing[0].object;
	assert_rc(hwt_request_init_items(&request, &item, 1, NULL, NULL), 0);
	memset(&item.use, 2, sizeof(item.use));
	assert_rc(
	    hwt_request_init_items(&request, &item, 1, NULL, NULL), -EINVAL);
}

static unsigned inside;

static void
read_and_write(unsigned index, void *arg)
{
	struct demand *mine = (struct demand *)arg + index;
	unsigned turn;

	for (turn = 0; turn < 2000; turn++) {
		assert_rc(hwt_checkout_acquire_wait(
			      store.checkout, &mine->request, HWT_NEVER),
		    0);
		/* Not atomic: threads that only read do not touch it. */
		if (index == 0)
			inside++;
		else
			cr_assert(inside <= 2000, "it has read nonsense");
		assert_rc(
		    hwt_checkout_release(store.checkout, &mine->request), 0);
	}
}

Test(readers, one_writer_and_three_readers_in_threads)
{
	static struct demand demand[4];
	unsigned i;

	inside = 0;
	store_open(&store, NULL);
	for (i = 0; i < 4; i++)
		demand_init(&demand[i], &store, i == 0 ? "a" : "A");
	in_parallel(4, read_and_write, demand);
	assert_u64(inside, 2000);
	assert_u64(store_stats(&store).granted, 8000);
	store_close(&store);
}
