/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers: what hwt_checkout.h says of each function's errors; retirement and
 * shutdown.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(answers);

static struct store store;

StoreTest(answers, hwt_checkout_create_EINVAL_and_ENOMEM)
{
	struct hwt_checkout_options options = {.shards = 3};
	struct hwt_checkout *made = NULL;
	uint64_t nth;
	int rc;

	assert_rc(
	    hwt_checkout_create(NULL, store.fixture.timer, NULL), -EINVAL);
	assert_rc(hwt_checkout_create(&made, NULL, NULL), -EINVAL);
	assert_rc(
	    hwt_checkout_create(&made, store.fixture.timer, &options), -EINVAL);
	options.shards = 1u << 17;
	assert_rc(
	    hwt_checkout_create(&made, store.fixture.timer, &options), -EINVAL);
	options.shards = 1u << 16;
	options.hold_after = 256;
	assert_rc(
	    hwt_checkout_create(&made, store.fixture.timer, &options), -EINVAL);
	options.hold_after = 0;
	options.reserved[4] = 1;
	assert_rc(
	    hwt_checkout_create(&made, store.fixture.timer, &options), -EINVAL);
	for (nth = 1; made == NULL; nth++) {
		fault_arm(FAULT_MEMORY, nth);
		rc = hwt_checkout_create(&made, store.fixture.timer, NULL);
		(void)fault_disarm();
		assert_rc(rc, made == NULL ? -ENOMEM : 0);
	}
	assert_u64(nth, 4);
	assert_rc(hwt_checkout_destroy(made), 0);
	assert_rc(hwt_checkout_destroy(NULL), 0);
}

StoreTest(answers, EINVAL_of_nothing)
{
	struct hwt_checkout_stats stats;
	struct demand one = {0};
	struct demand raw = {0};

	demand_init(&one, &store, "a");
	assert_rc(hwt_checkout_shutdown(NULL), -EINVAL);
	assert_rc(hwt_object_init(NULL, &store.thing[0].object, 0), -EINVAL);
	assert_rc(hwt_object_init(store.checkout, NULL, 0), -EINVAL);
	assert_rc(hwt_object_retire(store.checkout, NULL), -EINVAL);
	assert_rc(hwt_object_retire(NULL, &store.thing[0].object), -EINVAL);
	assert_rc(hwt_checkout_try(NULL, &one.request), -EINVAL);
	assert_rc(hwt_checkout_try(store.checkout, NULL), -EINVAL);
	assert_rc(hwt_checkout_try(store.checkout, &raw.request), -EINVAL);
	assert_rc(hwt_checkout_acquire(NULL, &one.request, 1), -EINVAL);
	assert_rc(hwt_checkout_acquire(store.checkout, NULL, 1), -EINVAL);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &raw.request, 1), -EINVAL);
	assert_rc(hwt_checkout_acquire(
		      store.checkout, &one.request, UINT64_C(1) << 63),
	    -EINVAL);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &one.request, UINT64_C(1) << 63),
	    -EINVAL);
	assert_rc(hwt_checkout_acquire_wait(NULL, &one.request, 1), -EINVAL);
	assert_rc(hwt_checkout_release(NULL, &one.request), -EINVAL);
	assert_rc(hwt_checkout_release(store.checkout, NULL), -EINVAL);
	assert_rc(hwt_checkout_cancel(NULL, &one.request), -EINVAL);
	assert_rc(hwt_checkout_cancel(store.checkout, NULL), -EINVAL);
	assert_rc(hwt_checkout_pause(NULL, 0), -EINVAL);
	assert_rc(
	    hwt_checkout_pause(store.checkout, UINT64_C(1) << 63), -EINVAL);
	assert_rc(hwt_checkout_resume(NULL), -EINVAL);
	assert_rc(hwt_checkout_read_stats(NULL, &stats), -EINVAL);
	assert_rc(hwt_checkout_read_stats(store.checkout, NULL), -EINVAL);
}

StoreTest(answers, hwt_request_init_EINVAL_of_sets)
{
	static struct store elsewhere;
	struct hwt_object raw = {{0}};
	struct hwt_object *set[3];
	struct demand one = {0};

	store_open(&elsewhere, NULL);
	demand_init(&one, &store, "ab");
	memset(&one.request, 0, sizeof(one.request));
	set[0] = &store.thing[1].object;
	set[1] = &store.thing[0].object;
	set[2] = &store.thing[1].object;
	assert_rc(hwt_request_init(NULL, set, 1, NULL, NULL), -EINVAL);
	assert_rc(hwt_request_init(&one.request, NULL, 1, NULL, NULL), -EINVAL);
	assert_rc(hwt_request_init(&one.request, set, 0, NULL, NULL), -EINVAL);
	assert_rc(hwt_request_init(
		      &one.request, set, (size_t)UINT32_MAX + 1, NULL, NULL),
	    -EINVAL);
	assert_rc(hwt_request_init(&one.request, set, 3, NULL, NULL), -EINVAL);
	set[2] = set[1];
	assert_rc(hwt_request_init(&one.request, set, 3, NULL, NULL), -EINVAL);
	set[2] = NULL;
	assert_rc(hwt_request_init(&one.request, set, 3, NULL, NULL), -EINVAL);
	set[2] = &raw;
	assert_rc(hwt_request_init(&one.request, set, 3, NULL, NULL), -EINVAL);
	set[2] = &elsewhere.thing[3].object;
	assert_rc(hwt_request_init(&one.request, set, 3, NULL, NULL), -EINVAL);
	/* None of these made a request. */
	assert_rc(hwt_checkout_try(store.checkout, &one.request), -EINVAL);
	assert_rc(hwt_request_init(&one.request, set, 2, NULL, NULL), 0);
	assert_rc(hwt_checkout_try(elsewhere.checkout, &one.request), -EINVAL);
	assert_rc(hwt_object_retire(elsewhere.checkout, &store.thing[0].object),
	    -EINVAL);
	/* It has no granted. */
	assert_rc(hwt_checkout_acquire(store.checkout, &one.request, HWT_NEVER),
	    -EINVAL);
	assert_rc(demand_wait(&one, HWT_NEVER), 0);
	demand_release(&one);
	store_close(&elsewhere);
}

StoreTest(answers, hwt_request_init_E2BIG_unless_ascending)
{
	struct demand one = {0};
	struct hwt_object *first;
	unsigned i;

	for (i = 0; i < OBJECTS; i++)
		one.set[i] = &store.thing[i].object;
	one.store = &store;
	one.count = OBJECTS;
	assert_rc(
	    hwt_request_init(&one.request, one.set, OBJECTS, NULL, NULL), 0);
	assert_rc(demand_wait(&one, HWT_NEVER), 0);
	assert_rc(hwt_object_retire(store.checkout, one.set[30]), 0);
	demand_release(&one);
	assert_rc(
	    hwt_checkout_acquire_wait(store.checkout, &one.request, HWT_NEVER),
	    -EIDRM);
	first = one.set[0];
	one.set[0] = one.set[20];
	one.set[20] = first;
	assert_rc(
	    hwt_request_init(&one.request, one.set, 21, NULL, NULL), -E2BIG);
	one.count = 20;
	assert_rc(hwt_request_init(&one.request, one.set, 20, NULL, NULL), 0);
	assert_rc(demand_wait(&one, HWT_NEVER), 0);
	demand_release(&one);
}

StoreTest(answers, EBUSY_and_ENOENT_of_states)
{
	struct demand holder = {0};
	struct demand waiter = {0};

	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "a");
	assert_rc(
	    hwt_checkout_release(store.checkout, &holder.request), -ENOENT);
	assert_rc(
	    hwt_checkout_cancel(store.checkout, &holder.request), -ENOENT);
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	assert_rc(demand_acquire(&waiter, HWT_NEVER), 1);
	assert_rc(hwt_checkout_try(store.checkout, &holder.request), -EBUSY);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &holder.request, HWT_NEVER),
	    -EBUSY);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &waiter.request, HWT_NEVER),
	    -EBUSY);
	assert_rc(
	    hwt_checkout_cancel(store.checkout, &holder.request), -ENOENT);
	assert_rc(
	    hwt_checkout_release(store.checkout, &waiter.request), -ENOENT);
	assert_rc(hwt_checkout_destroy(store.checkout), -EBUSY);
	assert_rc(demand_cancel(&waiter), 0);
	assert_rc(hwt_checkout_destroy(store.checkout), -EBUSY);
	demand_release(&holder);
	assert_rc(
	    hwt_checkout_release(store.checkout, &holder.request), -ENOENT);
}

StoreTest(answers, an_init_that_fails_changes_nothing)
{
	struct demand one = {0};
	struct hwt_object *twice[2];

	demand_init(&one, &store, "ab");
	twice[0] = one.set[0];
	twice[1] = one.set[0];
	assert_rc(
	    hwt_request_init(&one.request, twice, 2, NULL, NULL), -EINVAL);
	assert_rc(demand_try(&one), 0);
	assert_rc(
	    hwt_request_init(&one.request, twice, 2, NULL, NULL), -EINVAL);
	demand_release(&one);
}

/* The user's; locked only if a call has unlocked it. */
static pthread_mutex_t users = PTHREAD_MUTEX_INITIALIZER;

/* The timer is full: nothing is held, nobody waits. */
Test(answers, ENOBUFS_of_a_full_timer)
{
	const struct hwt_options options = {.tick_ns = FIXTURE_TICK,
	    .ticks_per_wheel = FIXTURE_WHEEL,
	    .max_pending = 1};
	struct demand holder = {0};
	struct demand both = {0};
	struct demand first = {0};

	fixture_open(&store.fixture, &options);
	assert_rc(
	    hwt_checkout_create(&store.checkout, store.fixture.timer, NULL), 0);
	assert_rc(
	    hwt_object_init(store.checkout, &store.thing[0].object, 0), 0);
	assert_rc(
	    hwt_object_init(store.checkout, &store.thing[1].object, 1), 0);
	assert_rc(hwt_new_timeout(
		      store.fixture.timer, NULL, idle_task, NULL, HWT_SEC(9)),
	    0);
	demand_init(&holder, &store, "b");
	demand_init(&both, &store, "ab");
	demand_init(&first, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_SEC(1)), 0);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &both.request, HWT_SEC(1)),
	    -ENOBUFS);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &both.request, HWT_SEC(1)),
	    -ENOBUFS);
	cr_assert(pthread_mutex_lock(&users) == 0);
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &both.request, HWT_SEC(1), &users),
	    -ENOBUFS);
	assert_rc(hwt_checkout_pause(store.checkout, HWT_SEC(1)), -ENOBUFS);
	assert_stats(&store, 1, 0);
	assert_rc(demand_try(&first), 0);
	demand_release(&first);
	demand_release(&holder);
	assert_waits(&both);
	assert_rc(demand_acquire(&both, HWT_SEC(1)), 0);
	demand_release(&both);
	store_close(&store);
}

Test(answers, ESHUTDOWN_of_a_stopped_timer)
{
	struct demand holder = {0};
	struct demand waiter = {0};
	struct demand late = {0};

	store_open(&store, NULL);
	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "a");
	demand_init(&late, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_SEC(1)), 0);
	assert_rc(demand_acquire(&waiter, HWT_SEC(1)), 1);
	assert_rc(hwt_stop(store.fixture.timer, NULL), 0);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &late.request, HWT_SEC(1)),
	    -ESHUTDOWN);
	assert_rc(hwt_checkout_pause(store.checkout, HWT_SEC(1)), -ESHUTDOWN);
	/* What waits has no deadline any more, and is granted. */
	demand_release(&holder);
	assert_told(&waiter, HWT_GRANTED);
	demand_release(&waiter);
	assert_rc(hwt_checkout_destroy(store.checkout), 0);
	assert_rc(hwt_destroy(store.fixture.timer), 0);
}

Test(answers, ENOMEM_and_EAGAIN_of_the_timer)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct demand holder = {0};
	struct demand waiter = {0};
	struct hwt *timer;

	assert_rc(hwt_create(&timer, &options), 0);
	assert_rc(hwt_checkout_create(&store.checkout, timer, NULL), 0);
	assert_rc(
	    hwt_object_init(store.checkout, &store.thing[0].object, 0), 0);
	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_SEC(1)), 0);
	fault_arm_thread(EAGAIN);
	assert_rc(hwt_checkout_pause(store.checkout, HWT_SEC(1)), -EAGAIN);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &waiter.request, HWT_SEC(1)),
	    -EAGAIN);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &waiter.request, HWT_SEC(1)),
	    -EAGAIN);
	cr_assert(pthread_mutex_lock(&users) == 0);
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &waiter.request, HWT_SEC(1), &users),
	    -EAGAIN);
	(void)fault_disarm();
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_rc(hwt_checkout_pause(store.checkout, HWT_SEC(1)), -ENOMEM);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &waiter.request, HWT_SEC(1)),
	    -ENOMEM);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &waiter.request, HWT_SEC(1)),
	    -ENOMEM);
	cr_assert(pthread_mutex_lock(&users) == 0);
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &waiter.request, HWT_SEC(1), &users),
	    -ENOMEM);
	(void)fault_disarm();
	assert_stats(&store, 1, 0);
	demand_release(&holder);
	assert_rc(hwt_checkout_destroy(store.checkout), 0);
	assert_rc(hwt_stop(timer, NULL), 0);
	assert_rc(hwt_destroy(timer), 0);
}

static struct gate gate;

static void
acquire_and_cancel(unsigned index, void *arg)
{
	struct demand *demand = arg;

	if (index == 0) {
		assert_rc(demand_acquire(demand, HWT_SEC(1)), 1);
		return;
	}
	gate_await(&gate);
	assert_rc(hwt_checkout_cancel(store.checkout, &demand->request),
	    -EINPROGRESS);
	assert_rc(
	    hwt_checkout_cancel(store.checkout, &demand->request), -ENOENT);
	assert_waits(demand);
	gate_open(&gate);
}

/* Refused, it starts the timer's thread, which takes its time. */
Test(answers, hwt_checkout_cancel_EINPROGRESS_while_it_is_tried)
{
	static struct demand waiter;
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct demand holder = {0};
	struct hwt *timer;

	gate_init(&gate);
	assert_rc(hwt_create(&timer, &options), 0);
	assert_rc(hwt_checkout_create(&store.checkout, timer, NULL), 0);
	assert_rc(
	    hwt_object_init(store.checkout, &store.thing[0].object, 0), 0);
	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	fault_hold_thread(&gate, 0);
	in_parallel(2, acquire_and_cancel, &waiter);
	(void)fault_disarm();
	assert_told(&waiter, HWT_GRANT_CANCELLED);
	demand_release(&holder);
	assert_rc(hwt_checkout_destroy(store.checkout), 0);
	assert_rc(hwt_stop(timer, NULL), 0);
	assert_rc(hwt_destroy(timer), 0);
}

static void
pause_or_try(unsigned index, void *arg)
{
	struct demand *demand = arg;

	if (index == 0) {
		assert_rc(
		    hwt_checkout_pause(store.checkout, HWT_SEC(1)), -EAGAIN);
		return;
	}
	gate_await(&gate);
	demand->rc = hwt_checkout_try(store.checkout, &demand->request);
	gate_open(&gate);
}

/* The timer's thread takes its time to start, and cannot. */
Test(answers, a_pause_that_cannot_be_refuses_nothing)
{
	static struct demand one;
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt *timer;

	gate_init(&gate);
	assert_rc(hwt_create(&timer, &options), 0);
	assert_rc(hwt_checkout_create(&store.checkout, timer, NULL), 0);
	assert_rc(
	    hwt_object_init(store.checkout, &store.thing[0].object, 0), 0);
	demand_init(&one, &store, "a");
	fault_hold_thread(&gate, EAGAIN);
	in_parallel(2, pause_or_try, &one);
	(void)fault_disarm();
	assert_rc(one.rc, 0);
	assert_rc(hwt_checkout_release(store.checkout, &one.request), 0);
	assert_rc(hwt_checkout_destroy(store.checkout), 0);
	assert_rc(hwt_stop(timer, NULL), 0);
	assert_rc(hwt_destroy(timer), 0);
}

/* Waiting in a thread. */

static _Atomic uint64_t waits_ended;

/* Who is listed may not have begun to wait yet, and may have no timeout. */
static void
wait_or_end(unsigned index, void *arg)
{
	struct demand *demand = arg;
	uint64_t ended = waits_ended;

	if (index == 0) {
		demand->rc = demand_wait(demand, HWT_MS(5));
		waits_ended++;
		return;
	}
	while (store_stats(&store).waiting == 0)
		sleep_ns(HWT_US(100));
	if (demand->data == NULL)
		(void)demand_cancel(demand);
	while (demand->data != NULL && waits_ended == ended)
		(void)fixture_step(&store.fixture, HWT_MS(10));
}

/* hwt_checkout_acquire_wait: -ECANCELED and -ETIMEDOUT. */
StoreTest(answers, hwt_checkout_acquire_wait_ECANCELED_and_ETIMEDOUT)
{
	static struct demand waiter;
	struct demand holder = {0};

	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	in_parallel(2, wait_or_end, &waiter);
	assert_rc(waiter.rc, -ECANCELED);
	waiter.data = &waiter;
	in_parallel(2, wait_or_end, &waiter);
	assert_rc(waiter.rc, -ETIMEDOUT);
	assert_waits(&waiter);
	demand_release(&holder);
}

/* Retirement. */

StoreTest(answers, retire_ends_all_waits_for_sets_with_it)
{
	struct demand holder = {0};
	struct demand other = {0};
	struct demand behind = {0};
	struct demand at = {0};
	struct demand without = {0};

	demand_init(&holder, &store, "ab");
	demand_init(&other, &store, "c");
	demand_init(&behind, &store, "bcd");
	demand_init(&at, &store, "bd");
	demand_init(&without, &store, "cd");
	assert_rc(
	    hwt_object_retire(store.checkout, &store.thing[1].object), -EPERM);
	assert_rc(demand_acquire(&other, HWT_NEVER), 0);
	/* Waits for c, and has b in its set. */
	assert_rc(demand_acquire(&behind, HWT_NEVER), 1);
	assert_rc(demand_acquire(&without, HWT_SEC(1)), 1);
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	assert_rc(demand_acquire(&at, HWT_SEC(1)), 1);
	assert_rc(hwt_object_retire(store.checkout, &store.thing[1].object), 0);
	assert_told(&behind, HWT_GRANT_RETIRED);
	assert_told(&at, HWT_GRANT_RETIRED);
	assert_waits(&without);
	assert_rc(hwt_checkout_acquire(store.checkout, &at.request, HWT_SEC(1)),
	    -EIDRM);
	assert_rc(hwt_checkout_try(store.checkout, &at.request), -EIDRM);
	/* Its memory is the user's. */
	memset(&store.thing[1], 0xff, sizeof(store.thing[1].object));
	assert_rc(hwt_checkout_release(store.checkout, &holder.request), 0);
	store.thing[0].holder = NULL;
	demand_release(&other);
	assert_told(&without, HWT_GRANTED);
	demand_release(&without);
	assert_u64(store_stats(&store).retired, 2);
	/* What is left of its set. */
	holder.count = 1;
	assert_rc(demand_try(&holder), 0);
	assert_rc(hwt_object_retire(store.checkout, &store.thing[0].object), 0);
	demand_release(&holder);
	assert_rc(hwt_checkout_try(store.checkout, &holder.request), -EIDRM);
}

static void
retire_in_granted(struct demand *demand)
{
	if (demand->grant != HWT_GRANTED)
		return;
	assert_rc(hwt_object_retire(store.checkout, demand->set[0]), 0);
	demand_release(demand);
}

StoreTest(answers, retire_in_granted_ends_who_was_woken_beside)
{
	struct demand holder = {0};
	struct demand first = {.in_granted = retire_in_granted};
	struct demand second = {0};
	struct demand third = {0};

	demand_init(&holder, &store, "ab");
	demand_init(&first, &store, "a");
	demand_init(&second, &store, "b");
	demand_init(&third, &store, "ab");
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	assert_rc(demand_acquire(&first, HWT_NEVER), 1);
	assert_rc(demand_acquire(&second, HWT_NEVER), 1);
	assert_rc(demand_acquire(&third, HWT_NEVER), 1);
	demand_release(&holder);
	assert_told(&first, HWT_GRANTED);
	assert_told(&second, HWT_GRANTED);
	assert_told(&third, HWT_GRANT_RETIRED);
	demand_release(&second);
}

/* Terracotta's: every entry after shutdown says so. */
StoreTest(answers, ESHUTDOWN_after_hwt_checkout_shutdown)
{
	struct demand holder = {0};
	struct demand waiter = {0};
	struct demand late = {0};

	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "ab");
	demand_init(&late, &store, "c");
	assert_rc(demand_acquire(&holder, HWT_SEC(1)), 0);
	assert_rc(demand_acquire(&waiter, HWT_SEC(1)), 1);
	assert_rc(hwt_checkout_shutdown(store.checkout), 0);
	assert_told(&waiter, HWT_GRANT_SHUT_DOWN);
	assert_u64(hwt_pending_timeouts(store.fixture.timer), 0);
	assert_rc(hwt_checkout_try(store.checkout, &late.request), -ESHUTDOWN);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &late.request, HWT_SEC(1)),
	    -ESHUTDOWN);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &late.request, HWT_SEC(1)),
	    -ESHUTDOWN);
	assert_rc(hwt_checkout_pause(store.checkout, 0), -ESHUTDOWN);
	assert_rc(hwt_checkout_shutdown(store.checkout), 0);
	assert_rc(hwt_checkout_destroy(store.checkout), -EBUSY);
	demand_release(&holder);
	assert_u64(store_stats(&store).shut_down, 1);
}

/* During a pause, too. */
StoreTest(answers, shutdown_ends_what_waits_for_a_pause)
{
	struct demand waiter = {0};

	demand_init(&waiter, &store, "ab");
	assert_rc(hwt_checkout_pause(store.checkout, 0), 0);
	assert_rc(demand_acquire(&waiter, HWT_SEC(1)), 1);
	assert_rc(hwt_checkout_shutdown(store.checkout), 0);
	assert_told(&waiter, HWT_GRANT_SHUT_DOWN);
	assert_rc(hwt_checkout_resume(store.checkout), 0);
}

static void
pause_or_shut_down(unsigned index, void *arg)
{
	if (index == 0) {
		assert_rc(
		    hwt_checkout_pause(store.checkout, HWT_NEVER), -ESHUTDOWN);
		return;
	}
	/* The pause has begun. */
	while (hwt_checkout_try(store.checkout, arg) == 0) {
		assert_rc(hwt_checkout_release(store.checkout, arg), 0);
		sleep_ns(HWT_US(100));
	}
	assert_rc(hwt_checkout_shutdown(store.checkout), 0);
}

StoreTest(answers, shutdown_ends_a_pause_that_still_waits)
{
	struct demand holder = {0};
	static struct demand other;

	demand_init(&holder, &store, "a");
	demand_init(&other, &store, "b");
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	in_parallel(2, pause_or_shut_down, &other.request);
	assert_rc(hwt_checkout_resume(store.checkout), -EALREADY);
	demand_release(&holder);
}

static void
use_in_child(void *arg)
{
	struct demand *demand = arg;
	struct hwt_checkout *checkout = store.checkout;
	struct hwt_checkout *made;
	struct hwt_checkout_stats stats;
	struct hwt_object *object = &store.thing[1].object;
	struct hwt_item item = {.wanted = object};
	struct hwt_request made_here;
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

	child_rc(pthread_mutex_lock(&mutex), 0);
	child_rc(hwt_request_init(&made_here, &object, 1, NULL, NULL), 0);
	child_rc(hwt_checkout_try(checkout, &made_here), -EOWNERDEAD);
	child_rc(hwt_request_init_items(&made_here, &item, 1, NULL, NULL), 0);
	child_rc(hwt_checkout_try(checkout, &made_here), -EOWNERDEAD);
	child_rc(
	    hwt_checkout_create(&made, store.fixture.timer, NULL), -EOWNERDEAD);
	child_rc(hwt_checkout_try(checkout, &demand->request), -EOWNERDEAD);
	child_rc(
	    hwt_checkout_acquire(checkout, &demand->request, 1), -EOWNERDEAD);
	child_rc(hwt_checkout_acquire_wait(checkout, &demand->request, 1),
	    -EOWNERDEAD);
	child_rc(hwt_checkout_acquire_wait_unlock(
		     checkout, &demand->request, 1, &mutex),
	    -EOWNERDEAD);
	child_rc(pthread_mutex_trylock(&mutex), 0);
	child_rc(hwt_checkout_release(checkout, &demand->request), -EOWNERDEAD);
	child_rc(hwt_checkout_cancel(checkout, &demand->request), -EOWNERDEAD);
	child_rc(hwt_checkout_pause(checkout, 0), -EOWNERDEAD);
	child_rc(hwt_checkout_resume(checkout), -EOWNERDEAD);
	child_rc(hwt_checkout_shutdown(checkout), -EOWNERDEAD);
	child_rc(
	    hwt_object_init(checkout, &store.thing[0].object, 0), -EOWNERDEAD);
	child_rc(
	    hwt_object_retire(checkout, &store.thing[0].object), -EOWNERDEAD);
	child_rc(hwt_request_init_pause(
		     checkout, &demand->request, NULL, 0, NULL, NULL),
	    -EOWNERDEAD);
	child_rc(hwt_group_init(checkout, &store.group, 0), -EOWNERDEAD);
	child_rc(hwt_group_add(checkout, &store.group, &store.thing[1].object),
	    -EOWNERDEAD);
	child_rc(hwt_group_retire(checkout, &store.group), -EOWNERDEAD);
	child_rc(hwt_checkout_read_stats(checkout, &stats), -EOWNERDEAD);
	child_rc(
	    hwt_checkout_stats_write(checkout, stderr, HWT_JSON), -EOWNERDEAD);
	child_rc(hwt_checkout_dump(checkout, stderr), -EOWNERDEAD);
	child_rc(hwt_checkout_destroy(checkout), 0);
}

StoreTest(answers, EOWNERDEAD_in_a_child)
{
	static struct demand holder;

	demand_init(&holder, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	in_child(use_in_child, &holder);
	demand_release(&holder);
}
