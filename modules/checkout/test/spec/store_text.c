/* SPDX-License-Identifier: Apache-2.0 */
/* What a store writes about itself: hwt_store_stats_write, hwt_store_dump. */
#define _GNU_SOURCE
#include "modules/checkout/test/spec/shelf.h"
#include "test/spec/text.h"

SUITE(store_text);

static struct shelf shelf;

static void
open_with_backoff(void)
{
	const struct hwt_store_options options = {
	    .backoff_ns = HWT_SEC(1), .name = "accounts"};

	shelf_open(&shelf, &options);
}

#define TextTest(name) \
	TestBetween(open_with_backoff(), shelf_close(&shelf), store_text, name)

static void
pass(uint64_t ns)
{
	(void)fixture_step(&shelf.fixture, ns);
}

/* A different number for each counter. */
static void
count_up(void)
{
	struct claim claim = {0};

	claim_once(&shelf, "abcd");
	claim_once(&shelf, "efgh");
	claim_once(&shelf, "abcd");
	claim_once(&shelf, "efgh");
	claim_once(&shelf, "a");
	assert_rc(hwt_store_trim(shelf.store, 5), 0);
	shelf.result = -EIO;
	claim_init(&claim, &shelf, "x");
	assert_rc(claim_acquire(&claim, HWT_NEVER), 1);
	assert_claim(&claim, -EIO);
	assert_rc(claim_acquire(&claim, HWT_NEVER), -EIO);
	assert_rc(claim_acquire(&claim, HWT_NEVER), -EIO);
	assert_rc(hwt_store_trim(shelf.store, 4), 0);
	shelf.result = 0;
}

#define assert_store(text, metric, value) \
	assert_sample_of(                 \
	    (text), metric "{store=\"accounts\",serial=\"1\"", "", value)

TextTest(prometheus_has_the_counters)
{
	char *text;

	count_up();

	text =
	    TEXT_OF(hwt_store_stats_write(shelf.store, file, HWT_PROMETHEUS));

	assert_store(text, "hwt_store_objects", "5");
	assert_store(text, "hwt_store_weight", "5");
	assert_store(text, "hwt_store_jobs", "0");
	assert_store(text, "hwt_store_hits_total", "9");
	assert_store(text, "hwt_store_misses_total", "9");
	assert_store(text, "hwt_store_joined_total", "0");
	assert_store(text, "hwt_store_backed_off_total", "2");
	assert_store(text, "hwt_store_loads_total", "9");
	assert_store(text, "hwt_store_load_failures_total", "1");
	assert_store(text, "hwt_store_unloads_total", "3");
	free(text);
	text = TEXT_OF(
	    hwt_store_stats_write(shelf.store, file, HWT_PROMETHEUS_SAMPLES));
	cr_assert(strchr(text, '#') == NULL);
	free(text);
}

TextTest(json_has_the_names_of_the_structure)
{
	char *text;

	claim_once(&shelf, "abc");
	text = TEXT_OF(hwt_store_stats_write(shelf.store, file, HWT_JSON));
	cr_assert_str_eq(text,
	    "{\"store\":\"accounts\",\"serial\":1,\"loaded\":3,\"weight\":3,"
	    "\"jobs\":0,\"hits\":0,\"misses\":3,\"joined\":0,\"backed_off\":0,"
	    "\"loads\":3,\"failures\":0,\"unloads\":0,\"refusals\":0}\n");
	free(text);
}

TextTest(what_is_refused_and_an_error_of_the_file)
{
	FILE *full = fopen("/dev/full", "w");
	FILE *broken = file_that_takes(0);
	const struct hwt_store_options options = {.name = "of sixteen bytes"};
	struct hwt_store *made;

	assert_rc(hwt_store_create(&made, shelf.checkout, &options), -EINVAL);
	assert_rc(hwt_store_stats_write(NULL, stderr, HWT_JSON), -EINVAL);
	assert_rc(hwt_store_stats_write(shelf.store, NULL, HWT_JSON), -EINVAL);
	assert_rc(
	    hwt_store_stats_write(shelf.store, stderr, (enum hwt_format)3),
	    -EINVAL);
	assert_rc(hwt_store_dump(NULL, stderr), -EINVAL);
	assert_rc(hwt_store_dump(shelf.store, NULL), -EINVAL);
	assert_rc(hwt_store_stats_write(shelf.store, full, HWT_JSON), -ENOSPC);
	assert_rc(hwt_store_dump(shelf.store, full), -ENOSPC);
	assert_rc(hwt_store_stats_write(shelf.store, broken, HWT_JSON), -EIO);
	assert_rc(hwt_store_dump(shelf.store, broken), -EIO);
	fclose(full);
	fclose(broken);
}

static char *
dump_now(void)
{
	return TEXT_OF(hwt_store_dump(shelf.store, file));
}

#define assert_line(text, ...)                                                \
	do {                                                                  \
		char line[256];                                               \
                                                                              \
		snprintf(line, sizeof(line), __VA_ARGS__);                    \
		cr_assert(strstr(text, line) != NULL, "not there: %s in\n%s", \
		    line, text);                                              \
	} while (0)

TextTest(dump_has_what_is_wanted_and_who_has_it_but_not_what_is_idle)
{
	struct claim holder = {0}, waiter = {0};
	char *text;

	claim_once(&shelf, "abc");
	claim_init(&holder, &shelf, "b");
	claim_init(&waiter, &shelf, "b");
	assert_rc(claim_acquire(&holder, HWT_NEVER), 0);
	assert_rc(claim_acquire(&waiter, HWT_NEVER), 1);

	text = dump_now();

	assert_line(text,
	    "hwt store %p \"accounts\" of checkout %p: 3 loaded, weight 3, "
	    "0 jobs\n  object ",
	    (void *)shelf.store, (void *)shelf.checkout);
	assert_line(text, " key \"b\" wanted by 2: request ");
	assert_u64(count_of(text, "\n"), 2);
	free(text);
	claim_release(&holder);
	claim_release(&waiter);
}

TextTest(dump_has_loads_and_unloads_since_when_and_failures)
{
	struct claim loads = {0}, fails = {0};
	char *text;

	claim_once(&shelf, "u");
	shelf.later = true;
	claim_init(&loads, &shelf, "l");
	assert_rc(claim_acquire(&loads, HWT_NEVER), 1);
	assert_rc(hwt_store_trim(shelf.store, 0), 0);
	shelf.later = false;
	shelf.result = -EIO;
	claim_init(&fails, &shelf, "\177");
	assert_rc(claim_acquire(&fails, HWT_NEVER), 1);
	assert_claim(&fails, -EIO);
	pass(HWT_US(3));

	text = dump_now();

	assert_line(
	    text, " key \"l\" wanted by 1: being loaded, since 3000 ns\n");
	assert_line(
	    text, " key \"u\" wanted by 0: being unloaded, since 3000 ns\n");
	assert_line(text,
	    " key \"\\x7f\" wanted by 0: its load answered %d, since 3000 "
	    "ns\n",
	    -EIO);
	free(text);
	assert_rc(shelf_complete(&shelf, 'l', 0), 0);
	assert_rc(shelf_complete(&shelf, 'u', 0), 0);
	claim_release(&loads);
}

/* More than are copied at a time. */
TextTest(dump_has_all_of_many)
{
	static struct claim claim[25];
	char letters[5] = {0}, *text;
	unsigned i, k;

	for (i = 0; i < 25; i++) {
		for (k = 0; k < 4; k++)
			letters[k] = (char)(1 + 4 * i + k);
		claim_init(&claim[i], &shelf, letters);
		assert_rc(claim_acquire(&claim[i], HWT_NEVER), 1);
		assert_claim(&claim[i], 0);
	}
	text = dump_now();
	assert_u64(count_of(text, "\n"), 101);
	assert_line(text, " key \"\\x0a\" wanted by 1: request %#" PRIx64,
	    (uint64_t)(uintptr_t)&claim[2].request + 8);
	assert_line(text, " key \"\\\"\" wanted");
	free(text);
	for (i = 0; i < 25; i++)
		claim_release(&claim[i]);
}
