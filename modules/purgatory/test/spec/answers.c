/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers: every error that the header lists, and that nothing has changed
 * then.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(answers);

static struct yard yard;

static int
create_with(const struct hwt_purgatory_options *options)
{
	struct hwt_purgatory *made = NULL;
	int rc = hwt_purgatory_create(&made, yard.fixture.timer, options);

	if (rc == 0) {
		assert_rc(hwt_purgatory_shutdown(made), 0);
		assert_rc(hwt_purgatory_destroy(made), 0);
	} else {
		cr_assert(made == NULL);
	}
	return rc;
}

YardTest(answers, hwt_purgatory_create_EINVAL)
{
	struct hwt_purgatory_options options = {0};
	struct hwt_purgatory *made = NULL;
	unsigned i;

	assert_rc(
	    hwt_purgatory_create(NULL, yard.fixture.timer, NULL), -EINVAL);
	assert_rc(hwt_purgatory_create(&made, NULL, NULL), -EINVAL);
	cr_assert(made == NULL);
	for (i = 1; i < 1u << 18; i = i * 3 / 2 + 1) {
		options.shards = i;
		assert_rc(create_with(&options), (i & (i - 1)) ? -EINVAL : 0);
	}
	options.shards = 1u << 16;
	assert_rc(create_with(&options), 0);
	options.shards = 1u << 17;
	assert_rc(create_with(&options), -EINVAL);
	options = (struct hwt_purgatory_options){.flags = 1};
	assert_rc(create_with(&options), -EINVAL);
	for (i = 0; i < sizeof(options.reserved) / sizeof(options.reserved[0]);
	     i++) {
		options = (struct hwt_purgatory_options){0};
		options.reserved[i] = 1;
		assert_rc(create_with(&options), -EINVAL);
	}
}

/* What watch is refused leaves nothing behind. */
static void
assert_refused(struct hwt_operation_spec *spec, int error)
{
	hwt_operation handle = {99};

	assert_rc(hwt_purgatory_watch(yard.purgatory, &handle, spec), error);
	assert_u64(handle.id, 0);
	assert_rc(hwt_purgatory_watch(yard.purgatory, NULL, spec), error);
	assert_stats(&yard, 0, 0, 0);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), 0);
	assert_u64(check(&yard, KEY(1)), 0);
}

static void
nobody_ends(hwt_operation handle, void *arg, enum hwt_outcome outcome)
{
	(void)handle;
	(void)arg;
	cr_assert_fail("done of a watch that was refused: %d", outcome);
}

static bool
nobody_tries(hwt_operation handle, void *arg)
{
	(void)handle;
	(void)arg;
	cr_assert_fail("a try of a watch that was refused");
	return false;
}

/* The timer is asked for a timeout only when the predicate does not hold. */
static bool
does_not_hold(hwt_operation handle, void *arg)
{
	(void)handle;
	(void)arg;
	return false;
}

static const struct hwt_key some_keys[] = {
    {7, 1}, {7, 2}, {7, 3}, {7, 4}, {7, 5}};

static struct hwt_operation_spec
spec_of(size_t key_count)
{
	return (struct hwt_operation_spec){.try_complete = nobody_tries,
	    .done = nobody_ends,
	    .keys = some_keys,
	    .key_count = key_count,
	    .delay_ns = HWT_SEC(1)};
}

YardTest(answers, hwt_purgatory_watch_EINVAL)
{
	struct hwt_operation_spec spec = spec_of(1);
	hwt_operation handle = {99};
	unsigned i;

	assert_rc(hwt_purgatory_watch(NULL, &handle, &spec), -EINVAL);
	assert_u64(handle.id, 0);
	assert_refused(NULL, -EINVAL);
	spec.keys = NULL;
	assert_refused(&spec, -EINVAL);
	spec = spec_of(0);
	assert_refused(&spec, -EINVAL);
	spec = spec_of(1);
	spec.done = NULL;
	assert_refused(&spec, -EINVAL);
	spec = spec_of(1);
	spec.at_least = 1;
	assert_refused(&spec, -EINVAL);
	spec = spec_of(2);
	spec.try_complete = NULL;
	spec.at_least = 1;
	assert_refused(&spec, -EINVAL);
	spec = spec_of(1);
	spec.delay_ns = UINT64_C(1) << 63;
	assert_refused(&spec, -EINVAL);
	spec.delay_ns = HWT_NEVER - 1;
	assert_refused(&spec, -EINVAL);
	for (i = 0; i < sizeof(spec.reserved) / sizeof(spec.reserved[0]); i++) {
		spec = spec_of(1);
		spec.reserved[i] = 1;
		assert_refused(&spec, -EINVAL);
	}
}

YardTest(answers, a_check_leaves_what_has_no_predicate)
{
	struct hwt_key key = KEY(1);
	struct hwt_operation_spec spec =
	    operation_spec(&party[0], &key, 1, HWT_NEVER);

	party_make(&yard);
	spec.try_complete = NULL;
	assert_rc(
	    hwt_purgatory_watch(yard.purgatory, &party[0].handle, &spec), 0);
	assert_u64(check(&yard, key), 0);
	assert_u64(raise_to(&yard, key, UINT64_MAX), 0);
	play("pending 0, complete 0, completed 0");
}

YardTest(answers, NULL_is_EINVAL)
{
	struct hwt_purgatory_stats stats;
	size_t count = 99;

	assert_rc(hwt_purgatory_check(NULL, KEY(1), &count), -EINVAL);
	assert_u64(count, 0);
	assert_rc(hwt_purgatory_raise(NULL, KEY(1), 1, &count), -EINVAL);
	assert_rc(hwt_purgatory_cancel_key(NULL, KEY(1), &count), -EINVAL);
	assert_rc(hwt_purgatory_read_stats(NULL, &stats), -EINVAL);
	assert_rc(hwt_purgatory_read_stats(yard.purgatory, NULL), -EINVAL);
	assert_rc(hwt_purgatory_shutdown(NULL), -EINVAL);
	assert_rc(hwt_purgatory_destroy(NULL), 0);
	assert_rc(hwt_operation_complete(NULL, (hwt_operation){1}), -EINVAL);
	assert_rc(hwt_operation_cancel(NULL, (hwt_operation){1}), -EINVAL);
	assert_rc(hwt_purgatory_check(yard.purgatory, KEY(1), NULL), 0);
	assert_rc(hwt_purgatory_raise(yard.purgatory, KEY(1), 1, NULL), 0);
	assert_rc(hwt_purgatory_cancel_key(yard.purgatory, KEY(1), NULL), 0);
}

/* Stale, foreign and senseless handles. */
Test(answers, ENOENT_for_any_handle)
{
	static const uint64_t ids[] = {0, 1, 1023, 1024, UINT64_MAX,
	    UINT64_C(1) << 28, (UINT64_C(1) << 28) - 1, 0x123456789abcdef};
	struct hwt_purgatory *purgatory;

	party_make(&yard);
	hwt_operation handle;
	unsigned i;
	yard_open(&yard, NULL);
	purgatory = yard.purgatory;
	play("watch 0 1");
	for (i = 0; i < 8; i++) {
		handle.id = ids[i];
		assert_rc(hwt_operation_complete(purgatory, handle), -ENOENT);
		assert_rc(hwt_operation_cancel(purgatory, handle), -ENOENT);
	}
	handle = party[0].handle;
	assert_rc(hwt_operation_cancel(purgatory, handle), 0);
	play("watch 1 1");
	assert_rc(hwt_operation_complete(purgatory, handle), -ENOENT);
	assert_rc(hwt_operation_cancel(purgatory, handle), -ENOENT);
	play("pending 1");
	yard_close(&yard);
}

/* More often than a slab has records: each is used again. */
#define HANDLES 3000

YardTestWith(answers, ENOENT_for_a_record_that_is_used_again, .shards = 1)
{
	static hwt_operation told[HANDLES];
	static struct operation operation;
	unsigned i;

	for (i = 0; i < HANDLES; i++) {
		operation = (struct operation){.yard = &yard};
		assert_rc(watch_key(&operation, KEY(1), HWT_NEVER), 0);
		told[i] = operation.handle;
		assert_rc(hwt_operation_cancel(yard.purgatory, told[i]), 0);
	}
	operation = (struct operation){.yard = &yard};
	assert_rc(watch_key(&operation, KEY(1), HWT_NEVER), 0);
	for (i = 0; i < HANDLES; i++)
		assert_rc(
		    hwt_operation_cancel(yard.purgatory, told[i]), -ENOENT);
	assert_pending(&operation);
}

YardTestWith(
    answers, hwt_purgatory_watch_ENOBUFS_of_max_pending, .max_pending = 3)
{
	static struct operation operation[4];
	static struct operation satisfied = {.yard = &yard, .holds = 1};
	unsigned turn, i;

	for (turn = 0; turn < 10; turn++) {
		for (i = 0; i < 4; i++) {
			operation[i] = (struct operation){.yard = &yard};
			assert_rc(watch_key(&operation[i], KEY(1), HWT_SEC(1)),
			    i < 3 ? 0 : -ENOBUFS);
		}
		assert_rc(watch_key(&satisfied, KEY(1), HWT_SEC(1)), -ENOBUFS);
		assert_u64(operation[3].handle.id, 0);
		assert_stats(&yard, 3, 3, 1);
		operation[1].holds = 1;
		assert_u64(check(&yard, KEY(1)), 1);
		assert_rc(watch_key(&satisfied, KEY(1), HWT_SEC(1)), 1);
		satisfied.dones = 0;
		if (turn % 2 == 0)
			assert_u64(cancel_key(&yard, KEY(1)), 2);
		else
			(void)fixture_step(&yard.fixture, HWT_SEC(2));
		assert_stats(&yard, 0, 0, 0);
	}
}

Test(answers, hwt_purgatory_watch_ENOBUFS_of_a_full_timer)
{
	const struct hwt_options options = {.tick_ns = FIXTURE_TICK,
	    .ticks_per_wheel = FIXTURE_WHEEL,
	    .max_pending = 1};
	struct hwt_operation_spec spec;
	size_t count;

	fixture_open(&yard.fixture, &options);
	assert_rc(
	    hwt_purgatory_create(&yard.purgatory, yard.fixture.timer, NULL), 0);
	assert_rc(hwt_new_timeout(
		      yard.fixture.timer, NULL, idle_task, NULL, HWT_SEC(1)),
	    0);
	for (count = 1; count <= 5; count++) {
		hwt_operation handle = {99};

		spec = spec_of(count);
		spec.try_complete = does_not_hold;
		assert_rc(hwt_purgatory_watch(yard.purgatory, &handle, &spec),
		    -ENOBUFS);
		assert_u64(handle.id, 0);
		assert_stats(&yard, 0, 0, 0);
	}
	yard_close(&yard);
}

/* Each piece of memory that hwt_purgatory_watch asks for, one after the other.
 * Without that of a larger table it watches. */
static void
watch_without_memory(size_t count)
{
	struct operation operation;
	uint64_t nth, calls, refused = 0;
	int rc;

	yard_open(&yard, NULL);
	for (nth = 1;; nth++) {
		operation = (struct operation){.yard = &yard};
		operation.handle.id = 99;
		fault_arm(FAULT_MEMORY, nth);
		rc = watch_keys(&operation, some_keys, count, HWT_SEC(1));
		calls = fault_disarm();
		if (rc == 0 && calls < nth)
			break;
		if (rc == 0)
			assert_u64(cancel_key(&yard, some_keys[0]), 1);
		else
			assert_rc(rc, -ENOMEM);
		refused += rc != 0;
		assert_u64(operation.handle.id == 0, rc != 0);
		assert_u64(operation.dones, rc == 0);
		assert_stats(&yard, 0, 0, 0);
		assert_u64(hwt_pending_timeouts(yard.fixture.timer), 0);
	}
	cr_assert(refused > 1, "%zu", count);
	assert_stats(&yard, 1, count, count);
	yard_close(&yard);
	assert_ended(&operation, HWT_SHUT_DOWN);
}

Test(answers, hwt_purgatory_watch_ENOMEM_is_undone_at_every_step)
{
	size_t count;

	for (count = 1; count <= 5; count++)
		watch_without_memory(count);
}

YardTest(answers, hwt_purgatory_create_ENOMEM_at_every_step)
{
	struct hwt_purgatory *made = NULL;
	uint64_t nth;
	int rc;

	for (nth = 1; made == NULL; nth++) {
		fault_arm(FAULT_MEMORY, nth);
		rc = hwt_purgatory_create(&made, yard.fixture.timer, NULL);
		(void)fault_disarm();
		assert_rc(rc, made == NULL ? -ENOMEM : 0);
	}
	cr_assert(nth > 1);
	assert_rc(hwt_purgatory_shutdown(made), 0);
	assert_rc(hwt_purgatory_destroy(made), 0);
}

YardTest(answers, hwt_purgatory_watch_ESHUTDOWN)
{
	struct hwt_operation_spec spec = spec_of(3);

	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	assert_refused(&spec, -ESHUTDOWN);
	spec = spec_of(5);
	assert_refused(&spec, -ESHUTDOWN);
	spec.delay_ns = HWT_NEVER;
	assert_refused(&spec, -ESHUTDOWN);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
}

Test(answers, a_timer_that_was_stopped_underneath)
{
	struct hwt_operation_spec spec = spec_of(3);

	party_make(&yard);
	yard_open(&yard, NULL);
	play("watch-ms 0 1 1000, watch-ms 1 9 1000");
	assert_rc(hwt_stop(yard.fixture.timer, NULL), 0);
	spec.try_complete = does_not_hold;
	assert_rc(hwt_purgatory_watch(yard.purgatory, NULL, &spec), -ESHUTDOWN);
	play("stats 2 2 2, holds 1, check 9 0, shutdown, shut-down 0, "
	     "shut-down 1");
	assert_rc(hwt_purgatory_destroy(yard.purgatory), 0);
	assert_rc(hwt_destroy(yard.fixture.timer), 0);
}

Test(answers, hwt_purgatory_watch_EAGAIN_when_no_thread_can_be_had)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt_operation_spec spec = spec_of(3);
	struct hwt *timer;

	assert_rc(hwt_create(&timer, &options), 0);
	assert_rc(hwt_purgatory_create(&yard.purgatory, timer, NULL), 0);
	fault_arm_thread(EAGAIN);
	spec.try_complete = does_not_hold;
	assert_rc(hwt_purgatory_watch(yard.purgatory, NULL, &spec), -EAGAIN);
	(void)fault_disarm();
	assert_stats(&yard, 0, 0, 0);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	assert_rc(hwt_purgatory_destroy(yard.purgatory), 0);
	assert_rc(hwt_stop(timer, NULL), 0);
	assert_rc(hwt_destroy(timer), 0);
}

YardTest(answers, hwt_purgatory_destroy_EBUSY_while_something_is_pending)
{
	party_make(&yard);
	play("watch-ms 0 1 1000, cannot-destroy, pending 0, cancel-key 1 1");
}

/* Shutdown waits for a predicate and for done, and for nothing else. */
static struct gate gate;

static void *
shut_down(void *arg)
{
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	*(_Atomic uint64_t *)arg = 1;
	return NULL;
}

static void *
check_first(void *arg)
{
	*(size_t *)arg = check(&yard, KEY(1));
	return NULL;
}

static void
shut_down_meanwhile(struct operation *operation, struct operation *other)
{
	static _Atomic uint64_t over;
	size_t completed = 99;
	pthread_t first, second;

	gate_init(&gate);
	assert_rc(pthread_create(&first, NULL, check_first, &completed), 0);
	gate_await(&gate);
	assert_rc(
	    pthread_create(&second, NULL, shut_down, (void *)(uintptr_t)&over),
	    0);
	wait_for(&other->dones, 1);
	assert_u64(over, 0);
	gate_open(&gate);
	assert_rc(pthread_join(first, NULL), 0);
	assert_rc(pthread_join(second, NULL), 0);
	assert_u64(over, 1);
	operation->count = completed;
}

YardTest(answers, hwt_purgatory_shutdown_waits_for_a_predicate_under_way)
{
	party_make(&yard);
	party[0].in_try = pass_gate_once;
	play("watch-ms 0 1 1000, watch-ms 1 2 1000");
	party[0].data = &gate;
	play("holds 0");
	shut_down_meanwhile(&party[0], &party[1]);
	play("shut-down 0");
	assert_u64(party[0].count, 0);
}

YardTest(answers, hwt_purgatory_shutdown_waits_for_done_under_way)
{
	party_make(&yard);
	party[0].in_done = pass_gate_once;
	play("watch-ms 0 1 1000, watch-ms 1 2 1000");
	party[0].data = &gate;
	play("holds 0");
	shut_down_meanwhile(&party[0], &party[1]);
	play("completed 0");
	assert_u64(party[0].count, 1);
}

/* With a worker's own thread in done of an expiry, from where the purgatory is
 * destroyed at once. */
Test(answers, destroyed_as_soon_as_shutdown_has_returned)
{
	static struct operation operation;
	unsigned turn;
	struct hwt *timer = worker_timer_open(HWT_US(100));

	for (turn = 0; turn < 300; turn++) {
		operation = (struct operation){.yard = &yard};
		assert_rc(
		    hwt_purgatory_create(&yard.purgatory, timer, NULL), 0);
		assert_rc(watch_key(&operation, KEY(1), turn * 1000), 0);
		if (turn % 3 == 0)
			wait_for(&operation.dones, 1);
		assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
		assert_rc(hwt_purgatory_destroy(yard.purgatory), 0);
		assert_u64(operation.dones, 1);
	}
	worker_timer_close(timer);
}
