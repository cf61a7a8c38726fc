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
	struct demand one = {0};
	struct demand other = {0};
	struct demand crossed = {0};

	demand_init(&one, &store, "Ab");
	demand_init(&other, &store, "Ac");
	demand_init(&crossed, &store, "aB");
	assert_rc(demand_acquire(&one, HWT_NEVER), 0);
	cr_assert(demand_got(&one, 0) == &store.thing[0], "not what it reads");
	assert_rc(demand_acquire(&other, HWT_NEVER), 0);
	assert_rc(demand_acquire(&crossed, HWT_NEVER), 1);
	demand_release(&one);
	assert_waits(&crossed);
	demand_release(&other);
	assert_told(&crossed, HWT_GRANTED);
	assert_rc(demand_try(&other), -EAGAIN);
	demand_release(&crossed);
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
	struct demand reader[2] = {0};
	struct demand member = {0};
	struct demand writer = {0};
	unsigned turns = 0;

	store_open(&store, options);
	store_group(&store, 1, 1);
	demand_init(&reader[0], &store, "A");
	demand_init(&reader[1], &store, "A");
	demand_init(&member, &store, "*");
	demand_init(&writer, &store, "a*");
	assert_rc(demand_try(&reader[0]), 0);
	assert_rc(demand_acquire(&writer, HWT_NEVER), 1);
	while (writer.calls == 0 && turns < 1000) {
		turns++;
		if (demand_try(&member) == 0) {
			demand_release(&reader[0]);
			if (demand_try(&reader[1]) == 0) {
				demand_release(&member);
				demand_release(&reader[1]);
			} else {
				demand_release(&member);
			}
		} else {
			demand_release(&reader[0]);
		}
		if (writer.calls == 0)
			assert_rc(demand_try(&reader[0]), 0);
	}
	assert_told(&writer, HWT_GRANTED);
	demand_release(&writer);
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
	struct demand first = {0};
	struct demand writer = {0};
	struct demand second = {0};
	struct demand third = {0};

	store_open(&store, options);
	demand_init(&first, &store, "A");
	demand_init(&writer, &store, "a");
	demand_init(&second, &store, "A");
	demand_init(&third, &store, "A");
	assert_rc(demand_acquire(&first, HWT_NEVER), 0);
	assert_rc(demand_acquire(&writer, HWT_MS(5)), 1);
	assert_rc(demand_acquire(&second, HWT_NEVER), 1);
	assert_rc(demand_acquire(&third, HWT_NEVER), 1);
	if (cancelled)
		assert_rc(demand_cancel(&writer), 0);
	else
		(void)fixture_step(&store.fixture, HWT_MS(50));
	assert_told(
	    &writer, cancelled ? HWT_GRANT_CANCELLED : HWT_GRANT_EXPIRED);
	assert_told(&second, HWT_GRANTED);
	assert_told(&third, HWT_GRANTED);
	demand_release(&first);
	demand_release(&second);
	demand_release(&third);
	store_close(&store);
}

Test(readers, join_when_the_writer_before_them_gives_up)
{
	writer_gives_up(NULL, true);
	writer_gives_up(NULL, false);
	writer_gives_up(&first_come, true);
}

/* It keeps a for reading, and waits for b. */
Test(readers, what_is_kept_for_reading_is_shared)
{
	struct demand holder = {0};
	struct demand both = {0};
	struct demand reader = {0};
	struct demand writer = {0};

	store_open(&store, &first_come);
	demand_init(&holder, &store, "b");
	demand_init(&both, &store, "Ab");
	demand_init(&reader, &store, "A");
	demand_init(&writer, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	assert_rc(demand_acquire(&both, HWT_NEVER), 1);
	assert_rc(demand_try(&reader), 0);
	demand_release(&reader);
	assert_rc(demand_try(&writer), -EAGAIN);
	assert_rc(demand_cancel(&both), 0);
	assert_rc(demand_try(&writer), 0);
	demand_release(&writer);
	demand_release(&holder);
	store_close(&store);
}

StoreTest(readers, an_object_is_retired_by_who_writes_it)
{
	struct demand reader = {0};
	struct demand writer = {0};
	struct demand waiter = {0};

	demand_init(&reader, &store, "A");
	demand_init(&writer, &store, "a");
	demand_init(&waiter, &store, "AB");
	assert_rc(demand_try(&reader), 0);
	assert_rc(
	    hwt_object_retire(store.checkout, &store.thing[0].object), -EPERM);
	demand_release(&reader);
	assert_rc(demand_try(&writer), 0);
	assert_rc(demand_acquire(&waiter, HWT_NEVER), 1);
	assert_rc(hwt_object_retire(store.checkout, &store.thing[0].object), 0);
	assert_told(&waiter, HWT_GRANT_RETIRED);
	assert_rc(hwt_checkout_release(store.checkout, &writer.request), 0);
	assert_rc(demand_try(&reader), -EIDRM);
}

StoreTest(readers, ENOTSUP_of_an_upgrade)
{
	struct demand reader = {0};
	struct demand writer = {0};
	struct hwt_request request;
	struct hwt_item items[21] = {0};
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	unsigned i;

	demand_init(&reader, &store, "Ab");
	demand_init(&writer, &store, "a");
	assert_rc(demand_try(&reader), 0);
	assert_rc(hwt_checkout_try(store.checkout, &reader.request), -ENOTSUP);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &reader.request, HWT_NEVER),
	    -ENOTSUP);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &reader.request, HWT_NEVER),
	    -ENOTSUP);
	assert_rc(pthread_mutex_lock(&mutex), 0);
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &reader.request, HWT_NEVER, &mutex),
	    -ENOTSUP);
	assert_rc(pthread_mutex_lock(&mutex), 0);
	assert_rc(pthread_mutex_unlock(&mutex), 0);
	/* It has what it had. */
	assert_rc(demand_try(&writer), -EAGAIN);
	demand_release(&reader);
	assert_rc(demand_try(&writer), 0);
	assert_rc(hwt_checkout_try(store.checkout, &writer.request), -EBUSY);
	assert_rc(demand_acquire(&reader, HWT_NEVER), 1);
	assert_rc(hwt_checkout_try(store.checkout, &reader.request), -EBUSY);
	demand_release(&writer);
	demand_release(&reader);
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
