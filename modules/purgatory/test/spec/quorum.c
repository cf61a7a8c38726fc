/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quorum: an operation with at_least and several keys completes when so many of
 * them have reached it.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(quorum);

#define REPLICAS 5 /* more than a record has links for */

static struct yard yard;
static const struct hwt_key replicas[REPLICAS] = {
    KEY(1), KEY(2), KEY(3), KEY(4), KEY(5)};

static int
watch_quorum_of(struct operation *operation, const struct hwt_key *keys,
    size_t count, uint64_t at_least, uint64_t quorum)
{
	struct hwt_operation_spec spec =
	    operation_spec(operation, keys, count, HWT_NEVER);

	operation->yard = &yard;
	spec.try_complete = NULL;
	spec.at_least = at_least;
	spec.quorum = quorum;
	return hwt_purgatory_watch(yard.purgatory, &operation->handle, &spec);
}

/* Of the first count keys. */
static int
watch_quorum(struct operation *operation, size_t count, uint64_t quorum)
{
	return watch_quorum_of(operation, replicas, count, 10, quorum);
}

YardTest(quorum, all_of_three)
{
	struct operation operation = {0};

	assert_rc(watch_quorum(&operation, 3, 3), 0);
	assert_stats(&yard, 1, 3, 3);
	assert_u64(raise_to(&yard, KEY(2), 9), 0);
	assert_stats(&yard, 1, 3, 3);
	assert_u64(raise_to(&yard, KEY(2), 10), 0);
	assert_stats(&yard, 1, 2, 2);
	assert_u64(raise_to(&yard, KEY(1), 11), 0);
	assert_u64(raise_to(&yard, KEY(3), 9), 0);
	assert_pending(&operation);
	assert_u64(raise_to(&yard, KEY(3), 12), 1);
	assert_ended(&operation, HWT_COMPLETED);
	assert_stats(&yard, 0, 0, 0);
}

YardTest(quorum, any_of_three)
{
	struct operation operation = {0};

	assert_rc(watch_quorum(&operation, 3, 1), 0);
	assert_u64(raise_to(&yard, KEY(4), 99), 0);
	assert_u64(raise_to(&yard, KEY(3), 10), 1);
	assert_ended(&operation, HWT_COMPLETED);
	assert_stats(&yard, 0, 0, 0);
}

/* Each key counts once, however often it is raised. */
YardTest(quorum, three_of_five)
{
	struct operation operation = {0};
	unsigned i;

	assert_rc(watch_quorum(&operation, 5, 3), 0);
	for (i = 0; i < 5; i++)
		assert_u64(raise_to(&yard, KEY(2), 10 + i), 0);
	assert_u64(raise_to(&yard, KEY(5), 10), 0);
	assert_pending(&operation);
	assert_u64(raise_to(&yard, KEY(4), 10), 1);
	assert_ended(&operation, HWT_COMPLETED);
	assert_stats(&yard, 0, 0, 0);
}

/* Another operation keeps their values. */
YardTest(quorum, watch_counts_keys_that_have_reached_it)
{
	static struct operation keeps;
	struct operation two = {0}, three = {0};

	keeps.yard = &yard;
	assert_rc(watch_keys(&keeps, replicas, 5, HWT_NEVER), 0);
	assert_u64(raise_to(&yard, KEY(1), 10), 0);
	assert_u64(raise_to(&yard, KEY(5), 10), 0);
	assert_rc(watch_quorum(&two, 5, 2), 1);
	assert_ended(&two, HWT_COMPLETED);
	assert_stats(&yard, 1, 5, 5);
	assert_rc(watch_quorum(&three, 5, 3), 0);
	assert_stats(&yard, 2, 8, 5);
	assert_u64(raise_to(&yard, KEY(1), 11), 0);
	assert_u64(raise_to(&yard, KEY(3), 11), 1);
	assert_ended(&three, HWT_COMPLETED);
	assert_stats(&yard, 1, 5, 5);
}

/* A key that was reached goes with its last link; its value does not matter to
 * the operation any more. */
YardTest(quorum, a_key_that_was_reached_stays_so)
{
	struct operation operation = {0}, later = {0};

	assert_rc(watch_quorum(&operation, 2, 2), 0);
	assert_u64(raise_to(&yard, KEY(1), 10), 0);
	assert_rc(watch_quorum(&later, 2, 2), 0);
	assert_u64(raise_to(&yard, KEY(2), 10), 1);
	assert_ended(&operation, HWT_COMPLETED);
	assert_pending(&later);
	assert_u64(raise_to(&yard, KEY(1), 10), 1);
	assert_ended(&later, HWT_COMPLETED);
}

YardTest(quorum, other_ends_leave_nothing)
{
	struct operation operation[4] = {{0}};
	struct hwt_operation_spec spec;
	unsigned i;

	for (i = 0; i < 3; i++)
		assert_rc(watch_quorum(&operation[i], 2 + i, 2), 0);
	spec = operation_spec(&operation[3], replicas, 5, HWT_MS(5));
	operation[3].yard = &yard;
	spec.try_complete = NULL;
	spec.at_least = 10;
	spec.quorum = 3;
	assert_rc(
	    hwt_purgatory_watch(yard.purgatory, &operation[3].handle, &spec),
	    0);
	assert_u64(raise_to(&yard, KEY(1), 10), 0);
	/* None is under KEY(1) any more. */
	assert_u64(cancel_key(&yard, KEY(1)), 0);
	assert_rc(hwt_operation_cancel(yard.purgatory, operation[0].handle), 0);
	assert_rc(
	    hwt_operation_complete(yard.purgatory, operation[1].handle), 0);
	(void)fixture_step(&yard.fixture, HWT_MS(6));
	assert_ended(&operation[3], HWT_EXPIRED);
	assert_stats(&yard, 1, 3, 3);
	assert_u64(cancel_key(&yard, KEY(4)), 1);
	assert_ended(&operation[2], HWT_CANCELLED);
	assert_stats(&yard, 0, 0, 0);
}

YardTest(quorum, duplicates_count_once)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(1), KEY(2)};
	const struct hwt_key one[] = {KEY(1), KEY(1)};
	struct operation operation = {0};

	assert_rc(watch_quorum_of(&operation, keys, 4, 10, 3), -EINVAL);
	assert_rc(watch_quorum_of(&operation, one, 2, 10, 2), -EINVAL);
	assert_stats(&yard, 0, 0, 0);
	assert_rc(watch_quorum_of(&operation, keys, 4, 10, 2), 0);
	assert_stats(&yard, 1, 2, 2);
	assert_u64(raise_to(&yard, KEY(1), 10), 0);
	assert_u64(raise_to(&yard, KEY(2), 10), 1);
	operation = (struct operation){0};
	assert_rc(watch_quorum_of(&operation, one, 2, 10, 1), 0);
	assert_u64(raise_to(&yard, KEY(1), 10), 1);
}

YardTest(quorum, what_cannot_be_meant_is_EINVAL)
{
	struct operation operation = {.yard = &yard};
	struct hwt_operation_spec spec =
	    operation_spec(&operation, replicas, 3, HWT_NEVER);

	spec.quorum = 1; /* without at_least */
	assert_rc(hwt_purgatory_watch(yard.purgatory, NULL, &spec), -EINVAL);
	spec.at_least = 1; /* with a predicate */
	assert_rc(hwt_purgatory_watch(yard.purgatory, NULL, &spec), -EINVAL);
	assert_rc(watch_quorum(&operation, 3, 0), -EINVAL);
	assert_rc(watch_quorum(&operation, 3, 4), -EINVAL);
	assert_rc(watch_quorum(&operation, 5, UINT64_MAX), -EINVAL);
	assert_rc(watch_quorum(&operation, 1, 2), -EINVAL);
	assert_stats(&yard, 0, 0, 0);
	assert_rc(watch_quorum(&operation, 1, 1), 0);
	assert_u64(raise_to(&yard, KEY(1), 10), 1);
}

/* Many on the same keys, more than a batch, in order of their values. */
YardTest(quorum, those_of_one_raise_end_in_order)
{
	static struct operation operation[80];
	unsigned i;

	for (i = 0; i < 80; i++) {
		operation[i] = (struct operation){0};
		assert_rc(
		    watch_quorum_of(&operation[i], replicas, 3, 80 - i, 2), 0);
	}
	assert_u64(raise_to(&yard, KEY(1), 50), 0);
	assert_stats(&yard, 80, 190, 3);
	assert_u64(raise_to(&yard, KEY(2), 80), 50);
	for (i = 0; i < 79; i++) {
		if (operation[i].dones != 0)
			cr_assert(operation[i].order > operation[i + 1].order);
	}
	assert_u64(raise_to(&yard, KEY(3), 80), 30);
	assert_stats(&yard, 0, 0, 0);
}

YardTest(quorum, memory_is_counted_and_given_back)
{
	struct operation operation = {0};
	uint64_t before, nth;
	int rc = 1;

	assert_rc(watch_quorum(&operation, 5, 1), 0);
	assert_u64(raise_to(&yard, KEY(1), 10), 1);
	before = yard_stats(&yard).memory_bytes;
	for (nth = 1; rc != 0; nth++) {
		operation = (struct operation){0};
		fault_arm(FAULT_MEMORY, nth);
		rc = watch_quorum(&operation, 5, 5);
		(void)fault_disarm();
		assert_rc(rc, rc != 0 ? -ENOMEM : 0);
	}
	cr_assert(nth > 2);
	cr_assert(yard_stats(&yard).memory_bytes >= before + 5 * 88);
	assert_u64(cancel_key(&yard, KEY(5)), 1);
	assert_u64(yard_stats(&yard).memory_bytes, before);
}
