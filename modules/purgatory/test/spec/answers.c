/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers: every error that the header lists, and that nothing has changed
 * then.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(answers);

static int
create_with(const struct hwt_purgatory_options *options)
{
	struct hwt_purgatory *made = NULL;
	int rc = hwt_purgatory_create(&made, manual.timer, options);

	if (rc == 0) {
		assert_rc(hwt_purgatory_shutdown(made), 0);
		assert_rc(hwt_purgatory_destroy(made), 0);
	} else {
		cr_assert(made == NULL);
	}
	return rc;
}

PurgatoryTest(answers, hwt_purgatory_create_EINVAL)
{
	struct hwt_purgatory_options options = {0};
	struct hwt_purgatory *made = NULL;
	unsigned i;

	assert_rc(hwt_purgatory_create(NULL, manual.timer, NULL), -EINVAL);
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

	assert_rc(hwt_purgatory_watch(purgatory, &handle, spec), error);
	assert_u64(handle.id, 0);
	assert_rc(hwt_purgatory_watch(purgatory, NULL, spec), error);
	assert_stats(0, 0, 0);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_u64(check(KEY(1)), 0);
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

PurgatoryTest(answers, hwt_purgatory_watch_EINVAL)
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

PurgatoryTest(answers, what_has_no_predicate_is_left_by_check_and_raise)
{
	struct hwt_key key = KEY(1);
	struct hwt_operation_spec spec =
	    operation_spec(&party[0], &key, 1, HWT_NEVER);

	spec.try_complete = NULL;
	assert_rc(hwt_purgatory_watch(purgatory, &party[0].handle, &spec), 0);
	play("check 1 0, raise 1 1000 0, pending 0, complete 0, completed 0");
}

PurgatoryTest(answers, NULL_is_EINVAL)
{
	struct hwt_purgatory_stats stats;
	size_t count = 99;

	assert_rc(hwt_purgatory_check(NULL, KEY(1), &count), -EINVAL);
	assert_u64(count, 0);
	assert_rc(hwt_purgatory_raise(NULL, KEY(1), 1, &count), -EINVAL);
	assert_rc(hwt_purgatory_cancel_key(NULL, KEY(1), &count), -EINVAL);
	assert_rc(hwt_purgatory_read_stats(NULL, &stats), -EINVAL);
	assert_rc(hwt_purgatory_read_stats(purgatory, NULL), -EINVAL);
	assert_rc(hwt_purgatory_shutdown(NULL), -EINVAL);
	assert_rc(hwt_purgatory_destroy(NULL), 0);
	assert_rc(hwt_operation_complete(NULL, (hwt_operation){1}), -EINVAL);
	assert_rc(hwt_operation_cancel(NULL, (hwt_operation){1}), -EINVAL);
	assert_rc(hwt_purgatory_check(purgatory, KEY(1), NULL), 0);
	assert_rc(hwt_purgatory_raise(purgatory, KEY(1), 1, NULL), 0);
	assert_rc(hwt_purgatory_cancel_key(purgatory, KEY(1), NULL), 0);
}

/* Stale, foreign and senseless handles. */
PurgatoryTest(answers, ENOENT_for_any_handle)
{
	static const uint64_t ids[] = {0, 1, 1023, 1024, UINT64_MAX,
	    UINT64_C(1) << 28, (UINT64_C(1) << 28) - 1, 0x123456789abcdef};
	hwt_operation handle;
	hwt_timeout timeout;
	unsigned i;

	for (i = 0; i < 8; i++) {
		handle.id = ids[i];
		assert_rc(hwt_operation_complete(purgatory, handle), -ENOENT);
		assert_rc(hwt_operation_cancel(purgatory, handle), -ENOENT);
	}
	assert_rc(
	    hwt_new_timeout(manual.timer, &timeout, idle_task, NULL, 1), 0);
	handle.id = timeout.id;
	assert_rc(hwt_operation_cancel(purgatory, handle), -ENOENT);
	play("watch 0 1, cancel 0, watch 1 1, over 0, pending 1");
}

PurgatoryTestWith(
    answers, hwt_purgatory_watch_ENOBUFS_of_max_pending, .max_pending = 3)
{
	unsigned turn;

	for (turn = 0; turn < 10; turn++) {
		memset(party, 0, sizeof(party));
		play("watch-ms 0 1 1000, watch-ms 1 1 1000, watch-ms 2 1 1000");
		party[3].holds = 1;
		assert_rc(watch_key(&party[3], KEY(1), HWT_NEVER), -ENOBUFS);
		assert_u64(party[3].handle.id, 0);
		play("stats 3 3 1, holds 1, check 1 1, met 3 1");
		play(turn % 2 == 0 ? "cancel-key 1 2" : "pass 2000");
	}
}

Test(answers, hwt_purgatory_watch_ENOBUFS_of_a_full_timer)
{
	const struct hwt_options options = {.tick_ns = FIXTURE_TICK,
	    .ticks_per_wheel = FIXTURE_WHEEL,
	    .max_pending = 1};

	fixture_open(&manual, &options);
	assert_rc(hwt_purgatory_create(&purgatory, manual.timer, NULL), 0);
	play("watch 0 1");
	party[1].handle.id = 99;
	assert_rc(watch_keys(&party[1], some_keys, 3, HWT_SEC(1)), -ENOBUFS);
	assert_u64(party[1].handle.id, 0);
	play("stats 1 1 1, pending 1");
	purgatory_close();
}

/* Each piece of memory that hwt_purgatory_watch asks for, one after the other.
 * Without that of a larger table it watches. */
static void
watch_without_memory(size_t count)
{
	struct operation operation;
	uint64_t nth, calls, refused = 0;
	int rc;

	purgatory_open(NULL);
	for (nth = 1;; nth++) {
		operation = (struct operation){0};
		operation.handle.id = 99;
		fault_arm(FAULT_MEMORY, nth);
		rc = watch_keys(&operation, some_keys, count, HWT_SEC(1));
		calls = fault_disarm();
		if (rc == 0 && calls < nth)
			break;
		if (rc == 0)
			assert_u64(cancel_key(some_keys[0]), 1);
		else
			assert_rc(rc, -ENOMEM);
		refused += rc != 0;
		assert_u64(operation.handle.id == 0, rc != 0);
		assert_u64(operation.dones, rc == 0);
		assert_stats(0, 0, 0);
		assert_u64(hwt_pending_timeouts(manual.timer), 0);
	}
	cr_assert(refused > 1, "%zu", count);
	assert_stats(1, count, count);
	purgatory_close();
	assert_ended(&operation, HWT_SHUT_DOWN);
}

Test(answers, hwt_purgatory_watch_ENOMEM_is_undone_at_every_step)
{
	size_t count;

	for (count = 1; count <= 5; count++)
		watch_without_memory(count);
}

PurgatoryTest(answers, hwt_purgatory_create_ENOMEM)
{
	struct hwt_purgatory *made = NULL;

	fault_arm(FAULT_MEMORY, 1);
	assert_rc(hwt_purgatory_create(&made, manual.timer, NULL), -ENOMEM);
	assert_u64(fault_disarm(), 1);
	cr_assert(made == NULL);
}

PurgatoryTest(answers, hwt_purgatory_watch_ESHUTDOWN)
{
	struct hwt_operation_spec spec = spec_of(3);

	assert_rc(hwt_purgatory_shutdown(purgatory), 0);
	assert_refused(&spec, -ESHUTDOWN);
	spec.delay_ns = HWT_NEVER;
	assert_refused(&spec, -ESHUTDOWN);
}

Test(answers, a_timer_that_was_stopped_underneath)
{
	struct hwt_operation_spec spec = spec_of(3);

	purgatory_open(NULL);
	play("watch-ms 0 1 1000, watch-ms 1 9 1000");
	assert_rc(hwt_stop(manual.timer, NULL), 0);
	assert_rc(hwt_purgatory_watch(purgatory, NULL, &spec), -ESHUTDOWN);
	play("stats 2 2 2, holds 1, check 9 0, shutdown, shut-down 0, "
	     "shut-down 1");
	assert_rc(hwt_purgatory_destroy(purgatory), 0);
	assert_rc(hwt_destroy(manual.timer), 0);
}

Test(answers, hwt_purgatory_watch_EAGAIN_when_no_thread_can_be_had)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt_operation_spec spec = spec_of(3);
	struct hwt *timer;

	assert_rc(hwt_create(&timer, &options), 0);
	assert_rc(hwt_purgatory_create(&purgatory, timer, NULL), 0);
	fault_arm_thread(EAGAIN);
	assert_rc(hwt_purgatory_watch(purgatory, NULL, &spec), -EAGAIN);
	(void)fault_disarm();
	assert_stats(0, 0, 0);
	assert_rc(hwt_purgatory_shutdown(purgatory), 0);
	assert_rc(hwt_purgatory_destroy(purgatory), 0);
	assert_rc(hwt_stop(timer, NULL), 0);
	assert_rc(hwt_destroy(timer), 0);
}

/* Shutdown waits for a predicate and for done, and for nothing else. */
static struct gate gate;

static void *
shut_down(void *arg)
{
	assert_rc(hwt_purgatory_shutdown(purgatory), 0);
	*(_Atomic uint64_t *)arg = 1;
	return NULL;
}

static void *
check_first(void *arg)
{
	((struct operation *)arg)->count = check(KEY(1));
	return NULL;
}

static void
shut_down_while_it_passes(void)
{
	static _Atomic uint64_t over;
	pthread_t first, second;

	gate_init(&gate);
	play("watch-ms 0 1 1000, watch-ms 1 2 1000, cannot-destroy, holds 0");
	party[0].data = &gate;
	assert_rc(pthread_create(&first, NULL, check_first, &party[0]), 0);
	gate_await(&gate);
	assert_rc(
	    pthread_create(&second, NULL, shut_down, (void *)(uintptr_t)&over),
	    0);
	wait_for(&party[1].dones, 1);
	assert_u64(over, 0);
	gate_open(&gate);
	assert_rc(pthread_join(first, NULL), 0);
	assert_rc(pthread_join(second, NULL), 0);
	assert_u64(over, 1);
}

PurgatoryTest(answers, hwt_purgatory_shutdown_waits_for_a_predicate_under_way)
{
	party[0].in_try = pass_gate_once;
	shut_down_while_it_passes();
	play("shut-down 0");
	assert_u64(party[0].count, 0);
}

PurgatoryTest(answers, hwt_purgatory_shutdown_waits_for_done_under_way)
{
	party[0].in_done = pass_gate_once;
	shut_down_while_it_passes();
	play("completed 0");
	assert_u64(party[0].count, 1);
}
