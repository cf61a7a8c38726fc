/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pause: when hwt_checkout_pause has answered 0, nothing is out, and nothing is
 * granted before hwt_checkout_resume.
 * no-lock-held: granted may call what it likes, and a chain of grants takes no
 * stack.
 */
#include "modules/checkout/test/spec/checkout.h"

#include <unistd.h>

SUITE(pause);
SUITE(no_lock_held);

#define CHAIN 200000

static struct store store;

/* Terracotta's: with nothing out it is at once; what comes then waits. */
StoreTest(pause, with_nothing_out_it_is_at_once)
{
	party_make(&store, "a b");
	play("pause, refused 0, wait-ms 0 1000, wait-ms 1 1000, waits 0, "
	     "out 0 2, cannot-destroy, resume, granted 0, granted 1");
	cr_assert(party[0].order < party[1].order);
	play("release 0, release 1");
	assert_u64(store_stats(&store).pauses, 1);
}

static _Atomic uint64_t paused;

static void
pauser(unsigned index, void *arg)
{
	struct demand *demand = arg;

	if (index == 0) {
		assert_rc(hwt_checkout_pause(store.checkout, HWT_NEVER), 0);
		paused = 1;
		return;
	}
	while (hwt_checkout_resume(store.checkout) == -EALREADY)
		sleep_ns(HWT_US(100));
	/* One is out, and one waits. */
	assert_u64(paused, 0);
	assert_rc(hwt_checkout_resume(store.checkout), -EBUSY);
	assert_rc(hwt_checkout_pause(store.checkout, 0), -EALREADY);
	demand_release(&demand[0]);
	wait_for(&paused, 1);
	assert_waits(&demand[1]);
	assert_stats(&store, 0, 1);
	assert_rc(hwt_checkout_resume(store.checkout), 0);
	assert_told(&demand[1], HWT_GRANTED);
}

/* Terracotta's: with one out, it waits for its release; then what waited is
 * granted. */
StoreTest(pause, with_one_out_it_waits_for_its_release)
{
	static struct demand demand[2];

	demand_init(&demand[0], &store, "a");
	demand_init(&demand[1], &store, "ab");
	assert_rc(demand_acquire(&demand[0], HWT_NEVER), 0);
	assert_rc(demand_acquire(&demand[1], HWT_NEVER), 1);
	in_parallel(2, pauser, demand);
	demand_release(&demand[1]);
}

StoreTest(pause, its_deadline_undoes_it)
{
	party_make(&store, "a b");
	play("take 0, pause-late, take 1, release 1, release 0");
	assert_rc(hwt_checkout_resume(store.checkout), -EALREADY);
	assert_u64(store_stats(&store).pauses, 0);
}

/* In real time, by a timer with a worker. */
Test(pause, ETIMEDOUT_after_its_delay)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));
	struct hwt_checkout *checkout;
	struct hwt_object object;
	struct hwt_object *set = &object;
	struct hwt_request request;
	uint64_t began_ns;

	assert_rc(hwt_checkout_create(&checkout, timer, NULL), 0);
	assert_rc(hwt_object_init(checkout, &object, 0), 0);
	assert_rc(hwt_request_init(&request, &set, 1, NULL, NULL), 0);
	assert_rc(hwt_checkout_try(checkout, &request), 0);
	began_ns = monotonic_ns();
	assert_rc(hwt_checkout_pause(checkout, HWT_MS(5)), -ETIMEDOUT);
	cr_assert(monotonic_ns() - began_ns >= HWT_MS(5));
	assert_rc(hwt_checkout_release(checkout, &request), 0);
	assert_rc(hwt_checkout_pause(checkout, HWT_SEC(60)), 0);
	assert_rc(hwt_checkout_resume(checkout), 0);
	assert_rc(hwt_checkout_destroy(checkout), 0);
	worker_timer_close(timer);
}

StoreTest(pause, waits_end_by_deadline_and_cancel_during_it)
{
	party_make(&store, "a a");
	play("pause, wait-ms 0 2, wait-ms 1 2, cancel 1, pass 4, "
	     "expired 0, cancelled 1, resume");
}

/* A pause that is told. */

static void
demand_init_pause(struct demand *demand, const char *members)
{
	demand_init(demand, &store, *members != 0 ? members : "z");
	demand->count = (unsigned)strlen(members);
	assert_rc(hwt_request_init_pause(store.checkout, &demand->request,
		      demand->count > 0 ? demand->set : NULL, demand->count,
		      demand_granted, demand),
	    0);
}

StoreTest(pause, it_is_told_when_nothing_is_out_and_a_release_ends_it)
{
	party_make(&store, "a a b !");
	play("take 0, wait 1, wait-ms 3 1000, wait 2, waits 3, release 0, "
	     "granted 3, waits 1, timeouts 0");
	assert_u64(store_stats(&store).pauses, 1);
	/* It is ended by its release alone. */
	assert_rc(hwt_checkout_resume(store.checkout), -EBUSY);
	assert_rc(hwt_checkout_pause(store.checkout, 0), -EALREADY);
	play("release 3, granted 1, granted 2, release 1, release 2");
	/* With nothing out it is at once. */
	play("try 3, refused 2, cannot-destroy, release 3");
}

StoreTest(pause, one_that_is_told_gives_up_and_all_goes_on)
{
	int end;

	party_make(&store, "a b !");
	play("try 0");
	for (end = 0; end < 2; end++) {
		assert_rc(demand_acquire(&party[2], HWT_MS(5)), 1);
		assert_rc(demand_acquire(&party[1], HWT_NEVER), 1);
		if (end == 0)
			(void)fixture_step(&store.fixture, HWT_MS(50));
		else
			assert_rc(demand_cancel(&party[2]), 0);
		assert_told(&party[2],
		    end == 0 ? HWT_GRANT_EXPIRED : HWT_GRANT_CANCELLED);
		assert_told(&party[1], HWT_GRANTED);
		demand_release(&party[1]);
	}
	play("refused 2, try 1, release 1, wait 2, shutdown, shut-down 2");
	assert_rc(
	    hwt_checkout_try(store.checkout, &party[2].request), -ESHUTDOWN);
	play("release 0");
}

/* PgBouncer's issue 715: who waited when the pause came was never served
 * again. Who waits before it, who comes during it, with a thread or without,
 * and one more pause after it. */
StoreTest(pause, resume_leaves_nobody_waiting)
{
	struct demand holder = {0};
	struct demand pause = {0};
	struct demand waiter[6] = {0};
	static const char *const sets[] = {"a", "ab", "A", "*", "a*", "z"};
	unsigned turn, i;

	store_group(&store, 3, 1);
	demand_init(&holder, &store, "a*");
	demand_init_pause(&pause, "");
	for (i = 0; i < 6; i++) {
		demand_init(&waiter[i], &store, sets[i]);
		waiter[i].in_granted = release_in_granted;
	}
	for (turn = 0; turn < 4; turn++) {
		assert_rc(demand_try(&holder), 0);
		for (i = 0; i < 3; i++)
			assert_rc(demand_acquire(&waiter[i], HWT_NEVER), 1);
		assert_rc(demand_acquire(&pause, HWT_NEVER), 1);
		for (; i < 6; i++)
			assert_rc(demand_acquire(&waiter[i], HWT_NEVER), 1);
		if (turn % 2 == 0) {
			demand_release(&holder);
			assert_told(&pause, HWT_GRANTED);
			demand_release(&pause);
		} else {
			assert_rc(demand_cancel(&pause), 0);
			demand_release(&holder);
		}
		for (i = 0; i < 6; i++)
			assert_told(&waiter[i], HWT_GRANTED);
		assert_stats(&store, 0, 0);
	}
}

/* It is the next one that gets each object, and keeps it. */
static void
pause_of_a_set(const struct hwt_checkout_options *options, const char *first)
{
	struct demand one = {0};
	struct demand other = {0};
	struct demand waiter = {0};
	struct demand newcomer = {0};
	struct demand pause = {0};
	struct demand beside = {0};

	store_open(&store, options);
	demand_init(&one, &store, first);
	demand_init(&other, &store, "b");
	demand_init(&waiter, &store, "a");
	demand_init(&newcomer, &store, "A");
	demand_init(&beside, &store, "c");
	demand_init_pause(&pause, "ba");
	assert_rc(demand_try(&one), 0);
	assert_rc(demand_try(&other), 0);
	assert_rc(demand_acquire(&waiter, HWT_NEVER), 1);
	assert_rc(demand_acquire(&pause, HWT_SEC(1)), 1);
	demand_release(&one);
	assert_waits(&waiter);
	assert_rc(demand_try(&newcomer), -EAGAIN);
	assert_waits(&pause);
	demand_release(&other);
	assert_told(&pause, HWT_GRANTED);
	assert_rc(demand_acquire(&newcomer, HWT_NEVER), 1);
	assert_rc(demand_try(&beside), 0);
	demand_release(&beside);
	demand_release(&pause);
	assert_told(&waiter, HWT_GRANTED);
	demand_release(&waiter);
	assert_told(&newcomer, HWT_GRANTED);
	demand_release(&newcomer);
	store_close(&store);
}

Test(pause, of_an_object_or_a_set_while_others_go_on)
{
	const struct hwt_checkout_options never = {
	    .hold_after = HWT_CHECKOUT_NEVER};

	pause_of_a_set(NULL, "a");
	pause_of_a_set(NULL, "A");
	pause_of_a_set(&never, "a");
}

/* A waits for a group without members, and keeps a: no pause waits for it. */
StoreTestWith(pause, what_waits_and_keeps_objects_does_not_delay_it,
    .hold_after = 1, .shards = 1)
{
	/* One shard: more than are woken at a time. */
	struct demand keeper[20] = {0};
	struct demand pause = {0};
	struct demand other = {0};
	unsigned i;

	demand_init(&other, &store, "a");
	demand_init_pause(&pause, "");
	for (i = 0; i < 20; i++) {
		const char members[] = {(char)('a' + i), '*', 0};

		demand_init(&keeper[i], &store, members);
		keeper[i].in_granted = release_in_granted;
		assert_rc(demand_acquire(&keeper[i], HWT_NEVER), 1);
	}
	assert_rc(hwt_checkout_try(store.checkout, &other.request), -EAGAIN);
	assert_rc(hwt_checkout_pause(store.checkout, 0), 0);
	assert_stats(&store, 0, 20);
	assert_rc(hwt_checkout_resume(store.checkout), 0);
	assert_rc(hwt_checkout_try(store.checkout, &other.request), -EAGAIN);
	assert_rc(demand_acquire(&pause, HWT_NEVER), 0);
	demand_release(&pause);
	store_group(&store, 30, 1);
	for (i = 0; i < 20; i++)
		assert_told(&keeper[i], HWT_GRANTED);
}

StoreTest(pause, hwt_request_init_pause_EINVAL_and_E2BIG)
{
	struct hwt_object *set[21] = {NULL};
	struct hwt_request request;
	struct hwt_checkout *other;
	unsigned i;

	for (i = 0; i < 21; i++)
		set[i] = &store.thing[20 - i].object;
	assert_rc(hwt_request_init_pause(NULL, &request, NULL, 0, NULL, NULL),
	    -EINVAL);
	assert_rc(
	    hwt_request_init_pause(store.checkout, NULL, NULL, 0, NULL, NULL),
	    -EINVAL);
	assert_rc(hwt_request_init_pause(
		      store.checkout, &request, set, 0, NULL, NULL),
	    -EINVAL);
	assert_rc(hwt_request_init_pause(
		      store.checkout, &request, NULL, 1, NULL, NULL),
	    -EINVAL);
	assert_rc(hwt_request_init_pause(
		      store.checkout, &request, set, 21, NULL, NULL),
	    -E2BIG);
	set[0] = &store.group.any;
	assert_rc(hwt_request_init_pause(
		      store.checkout, &request, set, 1, NULL, NULL),
	    -EINVAL);
	assert_rc(hwt_checkout_create(&other, store.fixture.timer, NULL), 0);
	assert_rc(
	    hwt_request_init_pause(other, &request, &set[1], 1, NULL, NULL),
	    -EINVAL);
	assert_rc(hwt_checkout_destroy(other), 0);
	assert_rc(hwt_request_init_pause(
		      store.checkout, &request, NULL, 0, NULL, NULL),
	    0);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &request, HWT_NEVER), -EINVAL);
}

StoreTest(pause, EALREADY_of_two)
{
	struct demand one = {0};
	struct demand two = {0};
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

	demand_init_pause(&one, "");
	demand_init_pause(&two, "");
	assert_rc(demand_try(&one), 0);
	assert_rc(hwt_checkout_try(store.checkout, &one.request), -EBUSY);
	assert_rc(hwt_checkout_try(store.checkout, &two.request), -EALREADY);
	assert_rc(
	    hwt_checkout_acquire(store.checkout, &two.request, 1), -EALREADY);
	assert_rc(hwt_checkout_acquire_wait(store.checkout, &two.request, 1),
	    -EALREADY);
	assert_rc(pthread_mutex_lock(&mutex), 0);
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &two.request, HWT_NEVER, &mutex),
	    -EALREADY);
	demand_release(&one);
	assert_rc(demand_try(&two), 0);
	demand_release(&two);
}

static struct demand other;

static void
use_all(struct demand *demand)
{
	struct hwt_checkout *checkout = demand->store->checkout;

	if (demand->grant != HWT_GRANTED)
		return;
	assert_rc(hwt_checkout_pause(checkout, HWT_NEVER), -EDEADLK);
	assert_rc(hwt_checkout_acquire_wait(
		      store.checkout, &other.request, HWT_NEVER),
	    -EDEADLK);
	assert_rc(hwt_checkout_destroy(checkout), -EDEADLK);
	assert_rc(demand_acquire(&other, HWT_NEVER), 1);
	demand_release(demand);
	/* Not here: after this has returned. */
	assert_waits(&other);
}

StoreTest(no_lock_held, granted_may_call_the_library)
{
	struct demand holder = {0};
	struct demand waiter = {.in_granted = use_all};

	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "a");
	demand_init(&other, &store, "a");
	other.in_granted = release_in_granted;
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	assert_rc(demand_acquire(&waiter, HWT_NEVER), 1);
	demand_release(&holder);
	assert_told(&waiter, HWT_GRANTED);
	assert_told(&other, HWT_GRANTED);
}

static _Atomic uint64_t entered;
static _Atomic uint64_t left_granted;

static void
linger(struct demand *demand)
{
	(void)demand;
	entered = 1;
	sleep_ns(HWT_MS(20));
	left_granted = 1;
}

/* A mutex of the user's that tells who locks it twice, or unlocks it twice. */
static pthread_mutex_t users;

static void
users_open(void)
{
	pthread_mutexattr_t attr;

	cr_assert(pthread_mutexattr_init(&attr) == 0 &&
	    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK) == 0 &&
	    pthread_mutex_init(&users, &attr) == 0);
	(void)pthread_mutexattr_destroy(&attr);
}

/* Waits under the mutex, which is unlocked then. */
static int
wait_unlock(struct demand *demand, uint64_t delay_ns)
{
	int result;

	cr_assert(pthread_mutex_lock(&users) == 0);
	result = hwt_checkout_acquire_wait_unlock(
	    store.checkout, &demand->request, delay_ns, &users);
	cr_assert(pthread_mutex_unlock(&users) == EPERM);
	return result;
}

static void
lock_in_granted(struct demand *demand)
{
	demand->rc = pthread_mutex_lock(&users);
	if (demand->rc == 0)
		cr_assert(pthread_mutex_unlock(&users) == 0);
	if (demand->grant == HWT_GRANTED)
		demand_release(demand);
}

/* As hwt_checkout.h says: granted of another request is called on the thread of
 * whoever releases, with what that thread has locked. */
Test(no_lock_held, a_mutex_that_granted_locks_is_not_locked_in_release)
{
	users_open();
	store_open(&store, NULL);
	party_make(&store, "a a");
	party[1].in_granted = lock_in_granted;
	play("take 0, wait 1");
	cr_assert(pthread_mutex_lock(&users) == 0);
	play("release 0");
	assert_rc(party[1].rc, EDEADLK);
	cr_assert(pthread_mutex_unlock(&users) == 0);
	play("take 0, wait 1, release 0");
	assert_rc(party[1].rc, 0);
	store_close(&store);
}

static void
wait_unlock_in_granted(struct demand *demand)
{
	demand->rc = wait_unlock(demand->data, HWT_NEVER);
	demand_release(demand);
}

Test(no_lock_held, acquire_wait_unlock_unlocks_whatever_it_answers)
{
	users_open();
	store_open(&store, NULL);
	party_make(&store, "a a");
	assert_rc(hwt_checkout_acquire_wait_unlock(
		      store.checkout, &party[0].request, HWT_NEVER, NULL),
	    -EINVAL);
	assert_rc(wait_unlock(&party[0], UINT64_MAX - 1), -EINVAL);
	assert_rc(wait_unlock(&party[0], HWT_NEVER), 0);
	assert_rc(wait_unlock(&party[0], HWT_NEVER), -EBUSY);
	assert_rc(hwt_checkout_release(store.checkout, &party[0].request), 0);
	play("take 0");
	party[1].in_granted = wait_unlock_in_granted;
	party[1].data = &party[0];
	play("wait 1, release 0");
	assert_rc(party[1].rc, -EDEADLK);
	play("shutdown");
	assert_rc(wait_unlock(&party[0], HWT_NEVER), -ESHUTDOWN);
	store_close(&store);
}

static void
wait_or_cancel(unsigned number, void *demand)
{
	struct demand *waiter = demand;

	if (number == 0) {
		waiter->rc = wait_unlock(waiter, HWT_NEVER);
		return;
	}
	/* Locked before the wait, or when it has begun. */
	do {
		cr_assert(pthread_mutex_lock(&users) == 0);
		cr_assert(pthread_mutex_unlock(&users) == 0);
	} while (hwt_checkout_cancel(store.checkout, &waiter->request) != 0);
}

Test(no_lock_held, while_acquire_wait_unlock_waits_others_lock)
{
	users_open();
	store_open(&store, NULL);
	party_make(&store, "a ab");
	play("take 0");
	/* hwt_checkout_acquire_wait_unlock: -ECANCELED. */
	in_parallel(2, wait_or_cancel, &party[1]);
	assert_rc(party[1].rc, -ECANCELED);
	play("release 0");
	store_close(&store);
}

/* A thread of lower priority can end the wait: its turn comes while the one
 * that waits sleeps, and not while it yields. */
static _Atomic uint64_t destroyer;

static void
linger_until_it_sleeps(struct demand *demand)
{
	uint64_t limit_ns = monotonic_ns() + HWT_SEC(10);

	(void)demand;
	entered = 1;
	while (destroyer == 0 || thread_letter((pid_t)destroyer) != 'S') {
		cr_assert(monotonic_ns() < limit_ns, "destroy never sleeps");
		sleep_ns(HWT_US(100));
	}
	left_granted = 1;
}

static void
cancel_or_tell_and_destroy(unsigned index, void *arg)
{
	if (index == 0) {
		assert_rc(demand_cancel(arg), 0);
		return;
	}
	wait_for(&entered, 1);
	destroyer = (uint64_t)gettid();
	assert_rc(hwt_checkout_destroy(store.checkout), 0);
	assert_u64(left_granted, 1);
}

Test(no_lock_held, destroy_sleeps_while_it_waits_for_the_last_granted)
{
	store_open(&store, NULL);
	party_make(&store, "a");
	party[0].in_granted = linger_until_it_sleeps;
	play("pause, wait 0");
	in_parallel(2, cancel_or_tell_and_destroy, &party[0]);
	play("cancelled 0");
	fixture_close(&store.fixture);
}

static void
acquire_late(struct demand *demand)
{
	assert_rc(hwt_checkout_resume(store.checkout), 0);
	linger(demand);
	assert_rc(demand_acquire(demand->data, HWT_NEVER), 0);
}

static void
cancel_or_fail_to_destroy(unsigned index, void *arg)
{
	if (index == 0) {
		assert_rc(demand_cancel(arg), 0);
		return;
	}
	wait_for(&entered, 1);
	assert_rc(hwt_checkout_destroy(store.checkout), -EBUSY);
}

StoreTest(no_lock_held, destroy_sees_what_the_last_granted_acquired)
{
	party_make(&store, "a b");
	party[0].in_granted = acquire_late;
	party[0].data = &party[1];
	play("pause, wait 0");
	in_parallel(2, cancel_or_fail_to_destroy, &party[0]);
	play("release 1");
}

/* Each grant releases, and so causes the next one. */
static unsigned left = CHAIN;

static void
again(struct demand *demand)
{
	struct demand *next = demand->data;

	if (--left > 0)
		assert_rc(demand_acquire(next, HWT_NEVER), 1);
	demand_release(demand);
}

StoreTest(no_lock_held, a_chain_of_grants_takes_no_stack)
{
	party_make(&store, "a a a");
	party[1].in_granted = again;
	party[1].data = &party[2];
	party[2].in_granted = again;
	party[2].data = &party[1];
	play("take 0, wait 1, release 0");
	assert_u64(store_stats(&store).granted, CHAIN + 1);
}
