/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers: what hwt_checkout.h says of the errors of each function, and of what
 * shutting down does; that of the store is in store.c.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(answers);

CheckoutTest(answers, hwt_checkout_create_EINVAL_and_ENOMEM)
{
	static const struct hwt_checkout_options wrong[] = {{.shards = 3},
	    {.shards = 1u << 17}, {.hold_after = 256}, {.reserved[0] = 1},
	    {.reserved[6] = 1}};
	struct hwt_checkout *made = NULL;
	uint64_t nth;
	size_t i;
	int rc;

	assert_rc(hwt_checkout_create(NULL, manual.timer, NULL), -EINVAL);
	assert_rc(hwt_checkout_create(&made, NULL, NULL), -EINVAL);
	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_rc(hwt_checkout_create(&made, manual.timer, &wrong[i]),
		    -EINVAL);
	for (nth = 1; made == NULL; nth++) {
		fault_arm(FAULT_MEMORY, nth);
		rc = hwt_checkout_create(&made, manual.timer, NULL);
		(void)fault_disarm();
		assert_rc(rc, made == NULL ? -ENOMEM : 0);
	}
	cr_assert(nth > 1, "nothing was allocated");
	assert_ok(hwt_checkout_destroy(made));
	assert_ok(hwt_checkout_destroy(NULL));
}

/* What has a checkout as its first argument. */
#define EACH_CALL(of, expect, rc)                                   \
	do {                                                        \
		expect(hwt_checkout_shutdown(of), rc);              \
		expect(hwt_object_init(of, object, 0), rc);         \
		expect(hwt_object_retire(of, object), rc);          \
		expect(hwt_group_init(of, &group, 0), rc);          \
		expect(hwt_group_add(of, &group, object), rc);      \
		expect(hwt_group_retire(of, &group), rc);           \
		expect(hwt_checkout_try(of, mine), rc);             \
		expect(hwt_checkout_acquire(of, mine, 1), rc);      \
		expect(hwt_checkout_acquire_wait(of, mine, 1), rc); \
		expect(hwt_checkout_release(of, mine), rc);         \
		expect(hwt_checkout_cancel(of, mine), rc);          \
		expect(hwt_checkout_pause(of, 0), rc);              \
		expect(hwt_checkout_resume(of), rc);                \
		expect(hwt_checkout_read_stats(of, &stats), rc);    \
	} while (0)

CheckoutTest(answers, EINVAL_of_NULL_and_of_delays)
{
	const uint64_t long_delay = UINT64_C(1) << 63;
	struct hwt_checkout_stats stats;
	struct hwt_request raw = {{0}}, silent, *mine = &client[0].request;
	struct hwt_object *object = &thing[0].object;

	clients("a");
	assert_ok(hwt_request_init(&silent, &object, 1, NULL, NULL));
	EACH_CALL(NULL, assert_rc, -EINVAL);
#define INVALID(call) assert_rc(call, -EINVAL)
	INVALID(hwt_object_init(checkout, NULL, 0));
	INVALID(hwt_object_retire(checkout, NULL));
	INVALID(hwt_checkout_try(checkout, NULL));
	INVALID(hwt_checkout_try(checkout, &raw));
	INVALID(hwt_checkout_acquire(checkout, NULL, 1));
	INVALID(hwt_checkout_acquire(checkout, &raw, 1));
	INVALID(hwt_checkout_acquire(checkout, mine, long_delay));
	INVALID(hwt_checkout_acquire(checkout, &silent, 1));
	INVALID(hwt_checkout_acquire_wait(checkout, NULL, 1));
	INVALID(hwt_checkout_acquire_wait(checkout, mine, HWT_NEVER - 1));
	INVALID(hwt_checkout_release(checkout, NULL));
	INVALID(hwt_checkout_cancel(checkout, NULL));
	INVALID(hwt_checkout_pause(checkout, long_delay));
	INVALID(hwt_checkout_read_stats(checkout, NULL));
	INVALID(hwt_group_init(checkout, NULL, 0));
	INVALID(hwt_group_add(checkout, NULL, object));
	INVALID(hwt_group_add(checkout, &group, NULL));
	INVALID(hwt_group_retire(checkout, NULL));
}

static void
use_in_child(void *arg)
{
	struct hwt_request *mine = &client[0].request;
	struct hwt_object *object = &thing[0].object;
	struct hwt_checkout_stats stats;
	struct hwt_checkout *made;

	(void)arg;
	child_rc(hwt_checkout_create(&made, manual.timer, NULL), -EOWNERDEAD);
	EACH_CALL(checkout, child_rc, -EOWNERDEAD);
	/* Although something is out, and another waits. */
	child_ok(hwt_checkout_destroy(checkout));
	child_ok(hwt_destroy(manual.timer));
}

CheckoutTest(answers, EOWNERDEAD_of_each_call_in_a_child_and_destroy_frees)
{
	clients("a a");
	play("take 0, wait-ms 1 1000");
	in_child(use_in_child, NULL);
	play("waits 1, release 0, granted 1, release 1");
}

#define INIT(items, count) \
	hwt_request_init_items(&request, (items), (count), NULL, NULL)

CheckoutTest(answers, hwt_request_init_items_EINVAL_and_E2BIG)
{
	static struct hwt_request request;
	struct hwt_item item[HWT_SORTED_MAX + 1] = {{0}};
	struct hwt_item *at = item;
	unsigned i;

	assert_rc(hwt_request_init_items(NULL, item, 1, NULL, NULL), -EINVAL);
	assert_rc(INIT(NULL, 1), -EINVAL);
	assert_rc(INIT(item, 0), -EINVAL);
	assert_rc(INIT(item, 1), -EINVAL); /* of NULL */
	for (i = 0; i <= HWT_SORTED_MAX; i++)
		item[i].wanted = &thing[HWT_SORTED_MAX - i].object;
	assert_ok(INIT(item, HWT_SORTED_MAX));
	assert_rc(INIT(item, HWT_SORTED_MAX + 1), -E2BIG);
	/* In ascending order there may be more. */
	for (i = 0; i <= HWT_SORTED_MAX; i++)
		item[i].wanted = &thing[i].object;
	assert_ok(INIT(item, HWT_SORTED_MAX + 1));
	at[1].wanted = at[0].wanted;
	assert_rc(INIT(at, 2), -EINVAL);
	at[1].use = HWT_READ;
	assert_rc(INIT(at, 2), -EINVAL);
	at[0].use = (enum hwt_use)7;
	assert_rc(INIT(at, 1), -EINVAL);
	/* Groups, and their members. */
	at[0] = (struct hwt_item){.wanted = &group.any};
	assert_ok(INIT(at, 1));
	at[1] = at[0];
	assert_rc(INIT(at, 2), -EINVAL);
	at[0].use = HWT_READ;
	assert_rc(INIT(at, 1), -EINVAL);
	play("member d");
	at[0] = (struct hwt_item){.wanted = &thing[3].object};
	assert_rc(INIT(at, 1), -EINVAL);
}

CheckoutTest(answers, hwt_request_init_EINVAL)
{
	struct hwt_object *set[OBJECTS], *wrong[OBJECTS], raw = {{0}};
	struct hwt_checkout *other;
	struct hwt_request request;
	unsigned i;

	for (i = 0; i < OBJECTS; i++)
		set[i] = &thing[i].object;
	assert_ok(hwt_request_init(&request, set, OBJECTS, NULL, NULL));
	/* All of them are taken and released. */
	assert_ok(hwt_checkout_try(checkout, &request));
	assert_ok(hwt_checkout_release(checkout, &request));
	assert_ok(hwt_checkout_create(&other, manual.timer, NULL));
	assert_rc(hwt_checkout_try(other, &request), -EINVAL);
	assert_rc(hwt_checkout_release(other, &request), -EINVAL);
	assert_rc(hwt_object_retire(other, set[5]), -EINVAL);
	assert_rc(hwt_group_add(other, &group, set[5]), -EINVAL);
	assert_rc(hwt_group_retire(other, &group), -EINVAL);
	assert_ok(hwt_object_init(other, &raw, 0));
	memcpy(wrong, set, sizeof(set));
	wrong[1] = &raw;
	assert_rc(hwt_request_init(&request, wrong, 2, NULL, NULL), -EINVAL);
	memset(&raw, 0, sizeof(raw));
	assert_rc(hwt_request_init(&request, wrong, 2, NULL, NULL), -EINVAL);
	wrong[1] = &group.any;
	assert_rc(hwt_request_init(&request, wrong, 2, NULL, NULL), -EINVAL);
	/* None of these has changed it. */
	assert_ok(hwt_checkout_try(checkout, &request));
	assert_ok(hwt_checkout_release(checkout, &request));
	assert_ok(hwt_checkout_destroy(other));
}

CheckoutTest(answers, EBUSY_and_ENOENT_of_a_request_that_is_in_use)
{
	clients("a a");
	assert_rc(hwt_checkout_release(checkout, &client[0].request), -ENOENT);
	play("too-late 0, take 0, wait 1, too-late 0");
	assert_rc(hwt_checkout_try(checkout, &client[0].request), -EBUSY);
	assert_rc(
	    hwt_checkout_acquire_wait(checkout, &client[0].request, 0), -EBUSY);
	assert_rc(hwt_checkout_try(checkout, &client[1].request), -EBUSY);
	assert_rc(
	    hwt_checkout_acquire(checkout, &client[1].request, 0), -EBUSY);
	assert_rc(hwt_checkout_release(checkout, &client[1].request), -ENOENT);
	play("cannot-destroy, cancel 1, cannot-destroy, release 0");
	assert_rc(hwt_checkout_release(checkout, &client[0].request), -ENOENT);
	assert_rc(hwt_checkout_resume(checkout), -EALREADY);
}

CheckoutTest(answers, EIDRM_of_what_is_retired)
{
	clients("a ab a *");
	play("take 0, retire a, release 0");
	assert_rc(client_try(&client[0]), -EIDRM);
	assert_rc(client_try(&client[1]), -EIDRM);
	assert_rc(client_acquire(&client[1], HWT_SEC(1)), -EIDRM);
	assert_rc(client_wait(&client[1], HWT_SEC(1)), -EIDRM);
	assert_ok(hwt_group_retire(checkout, &group));
	assert_rc(client_try(&client[3]), -EIDRM);
	assert_rc(hwt_group_retire(checkout, &group), -EIDRM);
	assert_rc(hwt_group_add(checkout, &group, &thing[4].object), -EIDRM);
}

/* Of a timer that cannot make the timeout: nothing is held, nobody waits. */
static void
assert_no_wait(int rc)
{
	assert_rc(client_acquire(&client[1], HWT_SEC(1)), rc);
	assert_rc(client_wait(&client[1], HWT_SEC(1)), rc);
	assert_rc(hwt_checkout_pause(checkout, HWT_SEC(1)), rc);
	play("out 1 0, try 2, release 2");
}

Test(answers, ENOBUFS_of_a_full_timer)
{
	manual_open(&(struct hwt_options){.max_pending = 1});
	checkout_open_on(NULL);
	(void)schedule_task(manual.timer, idle_task, HWT_SEC(9));
	clients("b ab a");
	play("take-ms 0 1000");
	assert_no_wait(-ENOBUFS);
	play("release 0, take-ms 1 1000, release 1, out 0 0");
	(void)manual_step(HWT_SEC(10));
	checkout_close();
}

Test(answers, ESHUTDOWN_of_a_stopped_timer)
{
	checkout_open(NULL);
	clients("b ab a b");
	play("take-ms 0 1000, wait-ms 3 1000");
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_rc(client_acquire(&client[1], HWT_SEC(1)), -ESHUTDOWN);
	assert_rc(hwt_checkout_pause(checkout, HWT_SEC(1)), -ESHUTDOWN);
	/* What waits has no deadline any more, and is granted. */
	play("release 0, granted 3, release 3");
	assert_ok(hwt_checkout_destroy(checkout));
	assert_ok(hwt_destroy(manual.timer));
}

/* Of one with a worker, whose thread the first timeout starts. */
Test(answers, ENOMEM_and_EAGAIN_of_the_timer)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};

	assert_ok(hwt_create(&manual.timer, &options));
	checkout_open_on(NULL);
	clients("b ab a");
	play("take-ms 0 1000");
	fault_arm_thread(EAGAIN);
	assert_no_wait(-EAGAIN);
	(void)fault_disarm();
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_no_wait(-ENOMEM);
	(void)fault_disarm();
	play("out 1 0, release 0");
	assert_ok(hwt_checkout_destroy(checkout));
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_ok(hwt_destroy(manual.timer));
}

static _Atomic uint64_t waits_ended;

/* Who counts as waiting may not have its timeout yet, or be tried. */
static void
wait_and_be_ended(unsigned index, void *arg)
{
	uint64_t before = waits_ended;

	if (index == 0) {
		client[1].rc = client_wait(&client[1], HWT_MS(5));
		waits_ended++;
		return;
	}
	while (checkout_stats().waiting == 0 && waits_ended == before)
		sleep_ns(HWT_US(100));
	if (arg == NULL)
		(void)client_cancel(&client[1]);
	while (arg != NULL && waits_ended == before)
		(void)manual_step(HWT_MS(10));
}

/* hwt_checkout_acquire_wait: -ECANCELED and -ETIMEDOUT. */
CheckoutTest(answers, hwt_checkout_acquire_wait_ECANCELED_and_ETIMEDOUT)
{
	clients("a a");
	play("take 0");
	in_parallel(2, wait_and_be_ended, NULL);
	assert_rc(client[1].rc, -ECANCELED);
	in_parallel(2, wait_and_be_ended, &client[1]);
	assert_rc(client[1].rc, -ETIMEDOUT);
	play("waits 1, release 0");
}

/* Terracotta's: every entry after shutdown says so. */
CheckoutTest(answers, ESHUTDOWN_of_every_entry_after_shutdown)
{
	clients("a ab c");
	play("take-ms 0 1000, wait-ms 1 1000, shutdown, shut-down 1, "
	     "timeouts 0");
	assert_rc(client_try(&client[2]), -ESHUTDOWN);
	assert_rc(client_acquire(&client[2], HWT_SEC(1)), -ESHUTDOWN);
	assert_rc(client_wait(&client[2], HWT_SEC(1)), -ESHUTDOWN);
	assert_rc(hwt_checkout_pause(checkout, 0), -ESHUTDOWN);
	play("shutdown, cannot-destroy, release 0");
	assert_u64(checkout_stats().shut_down, 1);
}

CheckoutTest(answers, hwt_checkout_read_stats_counts_waits_by_their_time)
{
	struct hwt_checkout_stats stats;

	clients("a a a a");
	play("take 0, wait-ms 1 3, wait 2, pass 1, wait 3");
	assert_u64(checkout_stats().longest_wait_ns, HWT_MS(1));
	play("pass 4, expired 1, release 0, granted 2, cancel 3, release 2");
	stats = checkout_stats();
	assert_u64(stats.granted, 2);
	assert_u64(stats.released, 2);
	assert_u64(stats.waited, 3);
	assert_u64(stats.expired, 1);
	assert_u64(stats.cancelled, 1);
	assert_u64(stats.wait_ns_max, HWT_MS(5));
	assert_u64(stats.wait_ns_sum, HWT_MS(14));
	assert_u64(stats.wait_ns_histogram[21], 1); /* 2.1 to 4.2 ms */
	assert_u64(stats.wait_ns_histogram[22], 2);
	assert_u64(stats.longest_wait_ns, 0);
}
