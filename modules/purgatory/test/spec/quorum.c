/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quorum: an operation with at_least and several keys completes when so many of
 * them have reached it.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(quorum);

static struct yard yard;

YardTest(quorum, all_of_three)
{
	party_make(&yard);
	play("quorum 0 3 3, stats 1 3 3, raise 2 9 0, stats 1 3 3, "
	     "raise 2 10 0, stats 1 2 2, raise 1 11 0, raise 3 9 0, "
	     "pending 0, raise 3 12 1, completed 0, stats 0 0 0");
}

YardTest(quorum, any_of_three)
{
	party_make(&yard);
	play("quorum 0 3 1, raise 4 99 0, raise 3 10 1, completed 0, "
	     "stats 0 0 0");
}

/* Each key counts once, however often it is raised. */
YardTest(quorum, three_of_five)
{
	party_make(&yard);
	play("quorum 0 5 3, raise 2 10 0, raise 2 11 0, raise 2 12 0, "
	     "raise 5 10 0, pending 0, raise 4 10 1, completed 0, stats 0 0 0");
}

/* Another operation keeps their values. */
YardTest(quorum, watch_counts_keys_that_have_reached_it)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3), KEY(4), KEY(5)};

	party_make(&yard);
	assert_rc(watch_keys(&party[0], keys, 5, HWT_NEVER), 0);
	play("raise 1 10 0, raise 5 10 0");
	assert_rc(watch_quorum(&party[1], 5, 2), 1);
	play("completed 1, stats 1 5 5, quorum 2 5 3, stats 2 8 5, "
	     "raise 1 11 0, raise 3 11 1, completed 2, stats 1 5 5");
}

/* A key that was reached goes with its last link; its value does not matter to
 * the operation any more. */
YardTest(quorum, a_key_that_was_reached_stays_so)
{
	party_make(&yard);
	play("quorum 0 2 2, raise 1 10 0, quorum 1 2 2, raise 2 10 1, "
	     "completed 0, pending 1, raise 1 10 1, completed 1");
}

YardTest(quorum, other_ends_leave_nothing)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3), KEY(4), KEY(5)};
	struct hwt_operation_spec spec;

	party_make(&yard);
	play("quorum 0 2 2, quorum 1 3 2, quorum 2 4 2");
	spec = operation_spec(&party[3], keys, 5, HWT_MS(5));
	spec.try_complete = NULL;
	spec.at_least = 10;
	spec.quorum = 3;
	assert_rc(
	    hwt_purgatory_watch(yard.purgatory, &party[3].handle, &spec), 0);
	/* None is under KEY(1) any more. */
	play("raise 1 10 0, cancel-key 1 0, cancel 0, complete 1, pass 6, "
	     "expired 3, stats 1 3 3, cancel-key 4 1, cancelled 2, "
	     "stats 0 0 0");
}

static int
watch_at(struct operation *operation, const struct hwt_key *keys, size_t count,
    uint64_t at_least, uint64_t quorum)
{
	struct hwt_operation_spec spec =
	    operation_spec(operation, keys, count, HWT_NEVER);

	spec.try_complete = NULL;
	spec.at_least = at_least;
	spec.quorum = quorum;
	return hwt_purgatory_watch(yard.purgatory, &operation->handle, &spec);
}

YardTest(quorum, duplicates_count_once)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(1), KEY(2)};
	const struct hwt_key one[] = {KEY(1), KEY(1)};

	party_make(&yard);
	assert_rc(watch_at(&party[0], keys, 4, 10, 3), -EINVAL);
	assert_rc(watch_at(&party[0], one, 2, 10, 2), -EINVAL);
	play("stats 0 0 0");
	assert_rc(watch_at(&party[0], keys, 4, 10, 2), 0);
	play("stats 1 2 2, raise 1 10 0, raise 2 10 1");
	assert_rc(watch_at(&party[1], one, 2, 10, 1), 0);
	play("raise 1 10 1");
}

YardTest(quorum, what_cannot_be_meant_is_EINVAL)
{
	static const unsigned wrong[][2] = {{3, 0}, {3, 4}, {5, 9}, {1, 2}};
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3)};
	struct hwt_operation_spec spec;
	unsigned i;

	party_make(&yard);
	spec = operation_spec(&party[0], keys, 3, HWT_NEVER);
	spec.quorum = 1; /* without at_least */
	assert_rc(hwt_purgatory_watch(yard.purgatory, NULL, &spec), -EINVAL);
	spec.at_least = 1; /* with a predicate */
	assert_rc(hwt_purgatory_watch(yard.purgatory, NULL, &spec), -EINVAL);
	for (i = 0; i < 4; i++)
		assert_rc(
		    watch_quorum(&party[0], wrong[i][0], wrong[i][1]), -EINVAL);
	assert_rc(watch_quorum(&party[0], 5, UINT64_MAX), -EINVAL);
	play("stats 0 0 0, quorum 0 1 1, raise 1 10 1");
}

/* Many on the same keys, more than a batch, in order of their values. */
YardTest(quorum, those_of_one_raise_end_in_order)
{
	static struct operation operation[80];
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3)};
	unsigned i;

	for (i = 0; i < 80; i++) {
		operation[i].yard = &yard;
		assert_rc(watch_at(&operation[i], keys, 3, 80 - i, 2), 0);
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
	uint64_t before, nth;
	int rc = 1;

	party_make(&yard);
	play("quorum 0 5 1, raise 1 10 1");
	before = yard_stats(&yard).memory_bytes;
	for (nth = 1; rc != 0; nth++) {
		fault_arm(FAULT_MEMORY, nth);
		rc = watch_quorum(&party[1], 5, 5);
		(void)fault_disarm();
		assert_rc(rc, rc != 0 ? -ENOMEM : 0);
	}
	cr_assert(nth > 2);
	cr_assert(yard_stats(&yard).memory_bytes >= before + 5 * 88);
	play("cancel-key 5 1");
	assert_u64(yard_stats(&yard).memory_bytes, before);
}
