/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters, those of waits by how long they took, and what is written of them
 * for monitoring. That others can read that is shown by test/check/observed,
 * for the same writer.
 */
#define _GNU_SOURCE
#include "modules/checkout/test/spec/checkout.h"
#include "test/spec/text.h"

SUITE(stats);

static struct store store;

/* Moves time, in which no deadline of a test comes but one of that time. */
static void
pass(uint64_t ns)
{
	(void)fixture_step(&store.fixture, ns);
}

static uint64_t
ended_waits(const struct hwt_checkout_stats *stats)
{
	uint64_t count = 0;
	unsigned k;

	for (k = 0; k < 64; k++)
		count += stats->wait_ns_histogram[k];
	return count;
}

StoreTest(stats, a_wait_is_in_the_element_of_its_time_however_it_ends)
{
	struct hwt_checkout_stats stats;

	party_make(&store, "a a a a");
	play("try 0, wait 1, wait-ms 2 2, wait 3, cancel 3");
	pass(UINT64_C(1) << 20);
	play("release 0");
	pass((UINT64_C(1) << 22) - (UINT64_C(1) << 20));
	play("expired 2");
	stats = store_stats(&store);
	assert_u64(stats.wait_ns_histogram[0], 1);
	assert_u64(stats.wait_ns_histogram[20], 1);
	assert_u64(stats.wait_ns_histogram[22], 1);
	assert_u64(ended_waits(&stats), 3);
	assert_u64(stats.waited, 3);
	assert_u64(stats.wait_ns_max, UINT64_C(1) << 22);
	assert_u64(
	    stats.wait_ns_sum, (UINT64_C(1) << 22) + (UINT64_C(1) << 20));
	play("release 1");
}

StoreTest(stats, a_grant_without_a_wait_is_in_no_element)
{
	struct hwt_checkout_stats stats;

	party_make(&store, "ab");
	play("take 0, release 0, try 0");
	stats = store_stats(&store);
	assert_u64(ended_waits(&stats), 0);
	assert_u64(stats.granted, 2);
	assert_u64(stats.released, 1);
	play("release 0");
}

StoreTest(stats, the_longest_wait_is_that_of_the_first_that_still_waits)
{
	party_make(&store, "a a ab");
	play("try 0, pass 1");
	assert_u64(store_stats(&store).longest_wait_ns, 0);
	play("wait 1, pass 1, wait 2, pass 5");
	assert_u64(store_stats(&store).longest_wait_ns, HWT_MS(6));
	play("cancel 1");
	assert_u64(store_stats(&store).longest_wait_ns, HWT_MS(5));
	play("cancel 2");
	assert_u64(store_stats(&store).longest_wait_ns, 0);
	play("release 0");
}

static void
waits_in_thread(unsigned index, void *arg)
{
	struct demand *demand = arg;

	if (index == 0) {
		assert_rc(demand_wait(&demand[1], HWT_NEVER), 0);
		return;
	}
	while (store_stats(&store).waiting == 0)
		sleep_ns(HWT_US(100));
	pass(HWT_MS(3));
	assert_u64(store_stats(&store).longest_wait_ns, HWT_MS(3));
	demand_release(&demand[0]);
}

StoreTest(stats, a_thread_that_waits_is_counted_as_well)
{
	static struct demand demand[2];
	struct hwt_checkout_stats stats;

	demand_init(&demand[0], &store, "a");
	demand_init(&demand[1], &store, "a");
	assert_rc(demand_try(&demand[0]), 0);

	in_parallel(2, waits_in_thread, demand);

	stats = store_stats(&store);
	assert_u64(stats.wait_ns_sum, HWT_MS(3));
	assert_u64(ended_waits(&stats), 1);
	demand_release(&demand[1]);
}

/* Text. */

static char *
text_of(enum hwt_format format)
{
	return TEXT_OF(hwt_checkout_stats_write(store.checkout, file, format));
}

/* Each counter has a number that no other has. */
static void
count_up(struct demand *demand)
{
	unsigned i;

	for (i = 0; i < 8; i++)
		demand_init(&demand[i], &store, "a");
	assert_rc(demand_try(&demand[0]), 0);
	for (i = 1; i < 8; i++)
		assert_rc(
		    demand_acquire(&demand[i], i < 3 ? HWT_US(1) : HWT_NEVER),
		    1);
	pass(HWT_MS(1));
	for (i = 3; i < 6; i++)
		assert_rc(demand_cancel(&demand[i]), 0);
}

static void
count_down(struct demand *demand)
{
	demand_release(&demand[0]);
	demand_release(&demand[6]);
	demand_release(&demand[7]);
}

StoreTest(stats, prometheus_has_the_counters_and_the_waits)
{
	static struct demand demand[8];
	char *text;

	count_up(demand);

	text = text_of(HWT_PROMETHEUS);

	assert_sample(text, "hwt_checkout_out", "", "1");
	assert_sample(text, "hwt_checkout_waiting", "", "2");
	assert_sample(text, "hwt_checkout_released_total", "", "0");
	assert_sample(text, "hwt_checkout_waits_total", "", "7");
	assert_sample(text, "hwt_checkout_expired_total", "", "2");
	assert_sample(text, "hwt_checkout_cancelled_total", "", "3");
	assert_sample(text, "hwt_checkout_retired_total", "", "0");
	assert_sample(text, "hwt_checkout_shut_down_total", "", "0");
	assert_sample(text, "hwt_checkout_woken_total", "", "0");
	assert_sample(text, "hwt_checkout_pauses_total", "", "0");
	assert_sample(
	    text, "hwt_checkout_longest_wait_seconds", "", "0.001000000");
	assert_sample(text, "hwt_checkout_wait_max_seconds", "", "0.001000000");
	assert_sample(text, "hwt_checkout_wait_seconds_bucket",
	    ",le=\"0.000524287\"", "0");
	assert_sample(text, "hwt_checkout_wait_seconds_bucket",
	    ",le=\"0.001048575\"", "5");
	assert_sample(
	    text, "hwt_checkout_wait_seconds_bucket", ",le=\"+Inf\"", "5");
	assert_sample(text, "hwt_checkout_wait_seconds_sum", "", "0.005000000");
	assert_sample(text, "hwt_checkout_wait_seconds_count", "", "5");
	free(text);
	text = text_of(HWT_PROMETHEUS_SAMPLES);
	cr_assert(strchr(text, '#') == NULL);
	free(text);
	count_down(demand);
}

StoreTest(stats, json_has_the_names_of_the_structure)
{
	static struct demand demand[8];
	char *text, *zeros;

	count_up(demand);

	text = text_of(HWT_JSON);

	zeros = strstr(text, "_histogram\":[");
	cr_assert(zeros != NULL);
	zeros += strlen("_histogram\":[");
	assert_starts_with(zeros, "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,5,0,");
	assert_starts_with(text,
	    "{\"checkout\":\"checkout\",\"serial\":1,\"out\":1,\"waiting\":2,"
	    "\"released\":0,\"waited\":7,\"expired\":2,\"cancelled\":3,"
	    "\"retired\":0,\"shut_down\":0,\"woken\":0,\"pauses\":0,"
	    "\"granted\":1,\"longest_wait_ns\":1000000,"
	    "\"wait_ns_sum\":5000000,\"wait_ns_max\":1000000,"
	    "\"wait_ns_histogram\":[");
	cr_assert_str_eq(text + strlen(text) - strlen(",0]}\n"), ",0]}\n");
	free(text);
	count_down(demand);
}

StoreTest(stats, a_name_and_a_serial_number_of_its_own)
{
	struct hwt_checkout_options options = {.name = "of 15 bytes, \"\n"};
	struct hwt_checkout *made;
	char *text;

	assert_rc(hwt_checkout_create(&made, store.fixture.timer, &options), 0);
	text = TEXT_OF(hwt_checkout_stats_write(made, file, HWT_JSON));
	assert_starts_with(
	    text, "{\"checkout\":\"of 15 bytes, \\\"\\n\",\"serial\":2,");
	free(text);
	assert_rc(hwt_checkout_destroy(made), 0);
	options.name = "of sixteen bytes";
	assert_rc(
	    hwt_checkout_create(&made, store.fixture.timer, &options), -EINVAL);
	options.name = NULL;
	options.list_grants = 2;
	assert_rc(
	    hwt_checkout_create(&made, store.fixture.timer, &options), -EINVAL);
}

StoreTest(stats, what_is_refused_and_an_error_of_the_file)
{
	FILE *full = fopen("/dev/full", "w");
	FILE *broken = file_that_takes(0);

	assert_rc(hwt_checkout_stats_write(NULL, stderr, HWT_JSON), -EINVAL);
	assert_rc(
	    hwt_checkout_stats_write(store.checkout, NULL, HWT_JSON), -EINVAL);
	assert_rc(hwt_checkout_stats_write(
		      store.checkout, stderr, (enum hwt_format)3),
	    -EINVAL);
	assert_rc(
	    hwt_checkout_stats_write(store.checkout, full, HWT_JSON), -ENOSPC);
	assert_rc(
	    hwt_checkout_stats_write(store.checkout, broken, HWT_JSON), -EIO);
	fclose(full);
	fclose(broken);
}
