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

	store_open(&elsewhere, NULL);
	party_make(&store, "ab");
	memset(&party[0].request, 0, sizeof(party[0].request));
	set[0] = &store.thing[1].object;
	set[1] = &store.thing[0].object;
	set[2] = &store.thing[1].object;
	assert_rc(hwt_request_init(NULL, set, 1, NULL, NULL), -EINVAL);
	assert_rc(
	    hwt_request_init(&party[0].request, NULL, 1, NULL, NULL), -EINVAL);
	assert_rc(
	    hwt_request_init(&party[0].request, set, 0, NULL, NULL), -EINVAL);
	assert_rc(hwt_request_init(&party[0].request, set,
		      (size_t)UINT32_MAX + 1, NULL, NULL),
	    -EINVAL);
	assert_rc(
	    hwt_request_init(&party[0].request, set, 3, NULL, NULL), -EINVAL);
	set[2] = set[1];
	assert_rc(
	    hwt_request_init(&party[0].request, set, 3, NULL, NULL), -EINVAL);
	set[2] = NULL;
	assert_rc(
	    hwt_request_init(&party[0].request, set, 3, NULL, NULL), -EINVAL);
	set[2] = &raw;
	assert_rc(
	    hwt_request_init(&party[0].request, set, 3, NULL, NULL), -EINVAL);
	set[2] = &elsewhere.thing[3].object;
	assert_rc(
	    hwt_request_init(&party[0].request, set, 3, NULL, NULL), -EINVAL);
	/* None of these made a request. */
	assert_rc(hwt_checkout_try(store.checkout, &party[0].request), -EINVAL);
	assert_rc(hwt_request_init(&party[0].request, set, 2, NULL, NULL), 0);
	assert_rc(
	    hwt_checkout_try(elsewhere.checkout, &party[0].request), -EINVAL);
	assert_rc(hwt_object_retire(elsewhere.checkout, &store.thing[0].object),
	    -EINVAL);
	/* It has no granted. */
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &party[0].request, HWT_NEVER),
	    -EINVAL);
	assert_rc(demand_wait(&party[0], HWT_NEVER), 0);
	play("release 0");
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
	party_make(&store, "a a");
	assert_rc(
	    hwt_checkout_release(store.checkout, &party[0].request), -ENOENT);
	play("too-late 0, take 0, wait 1");
	assert_rc(hwt_checkout_try(store.checkout, &party[0].request), -EBUSY);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &party[0].request, HWT_NEVER),
	    -EBUSY);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &party[1].request, HWT_NEVER),
	    -EBUSY);
	play("too-late 0");
	assert_rc(
	    hwt_checkout_release(store.checkout, &party[1].request), -ENOENT);
	play("cannot-destroy, cancel 1, cannot-destroy, release 0");
	assert_rc(
	    hwt_checkout_release(store.checkout, &party[0].request), -ENOENT);
}

StoreTest(answers, an_init_that_fails_changes_nothing)
{
	struct hwt_object *twice[2];

	party_make(&store, "ab");
	twice[0] = party[0].set[0];
	twice[1] = party[0].set[0];
	assert_rc(
	    hwt_request_init(&party[0].request, twice, 2, NULL, NULL), -EINVAL);
	play("try 0");
	assert_rc(
	    hwt_request_init(&party[0].request, twice, 2, NULL, NULL), -EINVAL);
	play("release 0");
}

/* The user's; locked only if a call has unlocked it. */
static pthread_mutex_t users = PTHREAD_MUTEX_INITIALIZER;

/* The timer is full: nothing is held, nobody waits. */
Test(answers, ENOBUFS_of_a_full_timer)
{
	const struct hwt_options options = {.tick_ns = FIXTURE_TICK,
	    .ticks_per_wheel = FIXTURE_WHEEL,
	    .max_pending = 1};

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
	party_make(&store, "b ab a");
	play("take-ms 0 1000");
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &party[1].request, HWT_SEC(1)),
	    -ENOBUFS);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &party[1].request, HWT_SEC(1)),
	    -ENOBUFS);
	cr_assert(pthread_mutex_lock(&users) == 0);
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &party[1].request, HWT_SEC(1), &users),
	    -ENOBUFS);
	assert_rc(hwt_checkout_pause(store.checkout, HWT_SEC(1)), -ENOBUFS);
	play("out 1 0, try 2, release 2, release 0, waits 1, "
	     "take-ms 1 1000, release 1");
	store_close(&store);
}

Test(answers, ESHUTDOWN_of_a_stopped_timer)
{
	store_open(&store, NULL);
	party_make(&store, "a a a");
	play("take-ms 0 1000, wait-ms 1 1000");
	assert_rc(hwt_stop(store.fixture.timer, NULL), 0);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &party[2].request, HWT_SEC(1)),
	    -ESHUTDOWN);
	assert_rc(hwt_checkout_pause(store.checkout, HWT_SEC(1)), -ESHUTDOWN);
	/* What waits has no deadline any more, and is granted. */
	play("release 0, granted 1, release 1");
	assert_rc(hwt_checkout_destroy(store.checkout), 0);
	assert_rc(hwt_destroy(store.fixture.timer), 0);
}

/* A timer with a worker, whose thread the first timeout starts. */
static struct hwt *timer;

static void
thread_open(void)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};

	assert_rc(hwt_create(&timer, &options), 0);
	assert_rc(hwt_checkout_create(&store.checkout, timer, NULL), 0);
	assert_rc(
	    hwt_object_init(store.checkout, &store.thing[0].object, 0), 0);
}

static void
thread_close(void)
{
	assert_rc(hwt_checkout_destroy(store.checkout), 0);
	assert_rc(hwt_stop(timer, NULL), 0);
	assert_rc(hwt_destroy(timer), 0);
}

#define ThreadTest(suite, name) \
	TestBetween(thread_open(), thread_close(), suite, name)

ThreadTest(answers, ENOMEM_and_EAGAIN_of_the_timer)
{
	party_make(&store, "a a");
	play("take-ms 0 1000");
	fault_arm_thread(EAGAIN);
	assert_rc(hwt_checkout_pause(store.checkout, HWT_SEC(1)), -EAGAIN);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &party[1].request, HWT_SEC(1)),
	    -EAGAIN);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &party[1].request, HWT_SEC(1)),
	    -EAGAIN);
	cr_assert(pthread_mutex_lock(&users) == 0);
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &party[1].request, HWT_SEC(1), &users),
	    -EAGAIN);
	(void)fault_disarm();
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_rc(hwt_checkout_pause(store.checkout, HWT_SEC(1)), -ENOMEM);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &party[1].request, HWT_SEC(1)),
	    -ENOMEM);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &party[1].request, HWT_SEC(1)),
	    -ENOMEM);
	cr_assert(pthread_mutex_lock(&users) == 0);
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &party[1].request, HWT_SEC(1), &users),
	    -ENOMEM);
	(void)fault_disarm();
	play("out 1 0, release 0");
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
ThreadTest(answers, hwt_checkout_cancel_EINPROGRESS_while_it_is_tried)
{
	gate_init(&gate);
	party_make(&store, "a a");
	play("take 0");
	fault_hold_thread(&gate, 0);
	in_parallel(2, acquire_and_cancel, &party[1]);
	(void)fault_disarm();
	play("cancelled 1, release 0");
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
ThreadTest(answers, a_pause_that_cannot_be_refuses_nothing)
{
	gate_init(&gate);
	party_make(&store, "a");
	fault_hold_thread(&gate, EAGAIN);
	in_parallel(2, pause_or_try, &party[0]);
	(void)fault_disarm();
	assert_rc(party[0].rc, 0);
	assert_rc(hwt_checkout_release(store.checkout, &party[0].request), 0);
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
	party_make(&store, "a a");
	play("take 0");
	in_parallel(2, wait_or_end, &party[1]);
	assert_rc(party[1].rc, -ECANCELED);
	party[1].data = &party[1];
	in_parallel(2, wait_or_end, &party[1]);
	assert_rc(party[1].rc, -ETIMEDOUT);
	play("waits 1, release 0");
}

/* Retirement. */

StoreTest(answers, retire_ends_all_waits_for_sets_with_it)
{
	party_make(&store, "ab c bcd bd cd");
	play("cannot-retire 1, take 1");
	/* Waits for c, and has b in its set. */
	play("wait 2, wait-ms 4 1000, take 0, wait-ms 3 1000, retire 1, "
	     "retired 2, retired 3, waits 4");
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &party[3].request, HWT_SEC(1)),
	    -EIDRM);
	assert_rc(hwt_checkout_try(store.checkout, &party[3].request), -EIDRM);
	/* Its memory is the user's. */
	memset(&store.thing[1], 0xff, sizeof(store.thing[1].object));
	assert_rc(hwt_checkout_release(store.checkout, &party[0].request), 0);
	play("forget 0, release 1, granted 4, release 4");
	assert_u64(store_stats(&store).retired, 2);
	/* What is left of its set. */
	party[0].count = 1;
	play("try 0, retire 0, release 0");
	assert_rc(hwt_checkout_try(store.checkout, &party[0].request), -EIDRM);
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
	party_make(&store, "ab a b ab");
	party[1].in_granted = retire_in_granted;
	play("take 0, wait 1, wait 2, wait 3, release 0, granted 1, "
	     "granted 2, retired 3, release 2");
}

/* Terracotta's: every entry after shutdown says so. */
StoreTest(answers, ESHUTDOWN_after_hwt_checkout_shutdown)
{
	party_make(&store, "a ab c");
	play("take-ms 0 1000, wait-ms 1 1000, shutdown, shut-down 1, "
	     "timeouts 0");
	assert_rc(
	    hwt_checkout_try(store.checkout, &party[2].request), -ESHUTDOWN);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &party[2].request, HWT_SEC(1)),
	    -ESHUTDOWN);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &party[2].request, HWT_SEC(1)),
	    -ESHUTDOWN);
	assert_rc(hwt_checkout_pause(store.checkout, 0), -ESHUTDOWN);
	play("shutdown, cannot-destroy, release 0");
	assert_u64(store_stats(&store).shut_down, 1);
}

/* During a pause, too. */
StoreTest(answers, shutdown_ends_what_waits_for_a_pause)
{
	party_make(&store, "ab");
	play("pause, wait-ms 0 1000, shutdown, shut-down 0, resume");
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
	party_make(&store, "a b");
	play("take 0");
	in_parallel(2, pause_or_shut_down, &party[1].request);
	assert_rc(hwt_checkout_resume(store.checkout), -EALREADY);
	play("release 0");
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
	party_make(&store, "a");
	play("take 0");
	in_child(use_in_child, &party[0]);
	play("release 0");
}
