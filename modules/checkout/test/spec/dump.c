/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_checkout_dump and hwt_store_dump: who has what, who waits for what, since
 * when; while everything goes on. Names of functions, which depend on how the
 * program is linked, are taken out of the texts.
 */
#define _GNU_SOURCE
#include "modules/checkout/test/spec/checkout.h"
#include "test/spec/text.h"

#include <stdarg.h>

SUITE(dump);

static struct store store;

static void
pass(uint64_t ns)
{
	(void)fixture_step(&store.fixture, ns);
}

/* Without the first line, and without what is between " granted " and " arg ".
 * The caller frees it. */
static char *
dump_now(void)
{
	char *text = TEXT_OF(hwt_checkout_dump(store.checkout, file));
	char *rest = strchr(text, '\n') + 1, *name, *arg;

	memmove(text, rest, strlen(rest) + 1);
	for (rest = text; (name = strstr(rest, " granted ")) != NULL;
	     rest = name + 1) {
		arg = strstr(name, " arg ");
		cr_assert(arg != NULL);
		memmove(name, arg, strlen(arg) + 1);
	}
	return text;
}

__attribute__((format(printf, 1, 2))) static void
assert_dump(const char *format, ...)
{
	char *text = dump_now(), *expected;
	va_list arguments;

	va_start(arguments, format);
	cr_assert(vasprintf(&expected, format, arguments) > 0);
	va_end(arguments);
	cr_assert_str_eq(text, expected);
	free(expected);
	free(text);
}

static const void *
object(unsigned i)
{
	return &store.thing[i].object;
}

static void
open_listing(void)
{
	const struct hwt_checkout_options options = {
	    .list_grants = 1, .name = "accounts"};

	store_open(&store, &options);
}

#define ListingTest(suite, name) \
	TestBetween(open_listing(), store_close(&store), suite, name)

StoreTest(dump, what_is_refused_and_an_error_of_the_file)
{
	FILE *full = fopen("/dev/full", "w");
	FILE *broken = file_that_takes(0);

	assert_rc(hwt_checkout_dump(NULL, stderr), -EINVAL);
	assert_rc(hwt_checkout_dump(store.checkout, NULL), -EINVAL);
	assert_rc(hwt_checkout_dump(store.checkout, full), -ENOSPC);
	assert_rc(hwt_checkout_dump(store.checkout, broken), -EIO);
	fclose(full);
	fclose(broken);
}

ListingTest(dump, the_first_line_is_about_the_whole)
{
	char *text, *expected;

	party_make(&store, "a a");
	play("try 0, wait 1");
	pass(5000);
	text = TEXT_OF(hwt_checkout_dump(store.checkout, file));
	cr_assert(asprintf(&expected,
		      "hwt checkout %p \"accounts\": open, 1 out, 1 waiting, "
		      "longest 5000 ns, 0 in executors\ngranted:\n",
		      (void *)store.checkout) > 0);
	assert_starts_with(text, expected);
	free(expected);
	free(text);
	play("release 0, release 1, shutdown");
	text = TEXT_OF(hwt_checkout_dump(store.checkout, file));
	cr_assert(strstr(text, "\"accounts\": shut down, 0 out") != NULL);
	free(text);
}

StoreTest(dump, who_waits_since_when_for_what_and_who_has_it)
{
	party_make(&store, "b C abC cb");
	play("try 0, try 1, wait 2");
	pass(3000);
	assert_dump("waiting:\n"
		    "  request %p waits 3000 ns for %p arg %p\n"
		    "    object %p order 0: free\n"
		    "    object %p order 1: request %p has it\n"
		    "    object %p order 2 to read: 1 read it\n",
	    (void *)&party[2].request, object(1), (void *)&party[2], object(0),
	    object(1), (void *)&party[0].request, object(2));
	play("release 0, release 2, release 1");
	assert_dump("waiting:\n");
}

StoreTest(dump, a_group_of_which_none_is_free)
{
	store_group(&store, 3, 1);
	party_make(&store, "* *");
	play("try 0, wait 1");
	assert_dump("waiting:\n"
		    "  request %p waits 0 ns for %p arg %p\n"
		    "    any of group %p order %d: none is free\n",
	    (void *)&party[1].request, (void *)&store.group, (void *)&party[1],
	    (void *)&store.group, OBJECTS);
	play("release 0, release 1");
}

StoreTest(dump, a_group_of_which_one_was_released)
{
	store_group(&store, 3, 1);
	party_make(&store, "* a a*");
	play("try 0, release 0, try 1, wait 2");
	assert_dump("waiting:\n"
		    "  request %p waits 0 ns for %p arg %p\n"
		    "    object %p order 0: request %p has it\n"
		    "    any of group %p order %d: free\n",
	    (void *)&party[2].request, object(0), (void *)&party[2], object(0),
	    (void *)&party[1].request, (void *)&store.group, OBJECTS);
	play("release 1, release 2");
}

StoreTest(dump, of_a_set_of_many_the_first_eight)
{
	char *text;

	party_make(&store, "j abcdefghijklmnopqrst");
	play("try 0, wait 1");
	text = dump_now();
	cr_assert(strstr(text, " order 7: free\n    and 12 more\n") != NULL);
	free(text);
	play("release 0, release 1");
}

ListingTest(dump, what_is_granted_with_list_grants_without_and_after_a_wait)
{
	store_group(&store, 3, 1);
	party_make(&store, "A* a");
	play("try 0, wait 1");
	pass(7);
	assert_dump("granted:\n"
		    "  request %p out 7 ns arg %p\n"
		    "    object %p order 0 to read\n"
		    "    any of group %p order %d: object %p\n"
		    "waiting:\n"
		    "  request %p waits 7 ns for %p arg %p\n"
		    "    object %p order 0: 1 read it\n",
	    (void *)&party[0].request, (void *)&party[0], object(0),
	    (void *)&store.group, OBJECTS, object(3), (void *)&party[1].request,
	    object(0), (void *)&party[1], object(0));
	play("release 0");
	pass(2);
	assert_dump("granted:\n"
		    "  request %p out 2 ns arg %p\n"
		    "    object %p order 0\n"
		    "waiting:\n",
	    (void *)&party[1].request, (void *)&party[1], object(0));
	play("release 1");
	assert_dump("granted:\nwaiting:\n");
}

ListingTest(dump, an_object_that_was_retired_is_not_in_its_holders_set)
{
	store_group(&store, 3, 1);
	party_make(&store, "ab*");
	play("try 0, retire 0, retire 3");
	assert_rc(hwt_group_retire(store.checkout, &store.group), 0);
	memset(&store.group, 0xff, sizeof(store.group));
	assert_dump("granted:\n"
		    "  request %p out 0 ns arg %p\n"
		    "    object %p order 1\n"
		    "waiting:\n",
	    (void *)&party[0].request, (void *)&party[0], object(1));
	play("forget 0");
	assert_rc(hwt_checkout_release(store.checkout, &party[0].request), 0);
}

ListingTest(dump, pauses_that_wait_and_what_waits_for_them)
{
	struct demand holder = {0}, pause = {0}, waiter = {0};
	char *text;

	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "b");
	assert_rc(hwt_request_init_pause(store.checkout, &pause.request, NULL,
		      0, demand_granted, &pause),
	    0);
	pause.store = &store;
	assert_rc(demand_try(&holder), 0);
	assert_rc(demand_acquire(&pause, HWT_NEVER), 1);
	assert_rc(demand_acquire(&waiter, HWT_NEVER), 1);
	text = TEXT_OF(hwt_checkout_dump(store.checkout, file));
	cr_assert(strstr(text, ": in a pause, or about to be, ") != NULL);
	free(text);
	text = dump_now();
	cr_assert(strstr(text, " 0 ns for the end of the pause arg ") != NULL);
	cr_assert(strstr(text, "\n    pauses all\n") != NULL);
	free(text);
	demand_release(&holder);
	demand_release(&pause);
	demand_release(&waiter);
}

/* What a program does while a dump writes. */
struct meanwhile {
	unsigned writes;
	void (*run)(unsigned write);
};

static ssize_t
meanwhile_write(void *cookie, const char *text, size_t size)
{
	struct meanwhile *meanwhile = cookie;

	(void)text;
	meanwhile->run(meanwhile->writes++);
	return (ssize_t)size;
}

static unsigned
dump_meanwhile(void (*run)(unsigned write))
{
	struct meanwhile meanwhile = {0, run};
	FILE *file = fopencookie(
	    &meanwhile, "w", (cookie_io_functions_t){.write = meanwhile_write});

	cr_assert(file != NULL);
	setvbuf(file, NULL, _IONBF, 0);
	assert_rc(hwt_checkout_dump(store.checkout, file), 0);
	fclose(file);
	return meanwhile.writes;
}

/* More than are copied at a time, in one shard. */
#define CROWD 100
#define LATE 20

static struct demand crowd[CROWD], first, late[LATE];

static void
open_one_shard(void)
{
	const struct hwt_checkout_options options = {
	    .list_grants = 1, .shards = 1};
	unsigned i;

	store_open(&store, &options);
	demand_init(&first, &store, "a");
	assert_rc(demand_try(&first), 0);
	for (i = 0; i < CROWD; i++) {
		demand_init(&crowd[i], &store, "a");
		assert_rc(demand_acquire(&crowd[i], HWT_NEVER), 1);
	}
}

static void
close_one_shard(void)
{
	store_close(&store);
}

static void
all_are_cancelled(unsigned write)
{
	unsigned i;

	/* Behind the first of them, at each of the following lines. */
	if (write < 20)
		return;
	for (i = 0; i < 7 && (write - 20) * 7 + i < CROWD; i++)
		assert_rc(demand_cancel(&crowd[(write - 20) * 7 + i]), 0);
	/* No time has passed. */
	assert_u64(store_stats(&store).longest_wait_ns, 0);
}

TestBetween(open_one_shard(), close_one_shard(), dump,
    all_that_wait_is_cancelled_meanwhile)
{
	unsigned i;

	cr_assert(dump_meanwhile(all_are_cancelled) > 20 + CROWD / 7);
	for (i = 0; i < CROWD; i++)
		assert_told(&crowd[i], HWT_GRANT_CANCELLED);
	demand_release(&first);
}

static void
it_is_shut_down(unsigned write)
{
	if (write == 25)
		assert_rc(hwt_checkout_shutdown(store.checkout), 0);
}

TestBetween(
    open_one_shard(), close_one_shard(), dump, it_is_shut_down_meanwhile)
{
	unsigned i;

	(void)dump_meanwhile(it_is_shut_down);
	for (i = 0; i < CROWD; i++)
		assert_told(&crowd[i], HWT_GRANT_SHUT_DOWN);
	demand_release(&first);
}

static void
another_dump_and_more_that_waits(unsigned write)
{
	char *text;
	unsigned i;

	if (write == 30) {
		text = dump_now();
		/* first and late, too, and none that a dump has put there. */
		assert_u64(count_of(text, "\n  request "), 1 + CROWD + LATE);
		free(text);
	}
	/* A dump does not come to those that come after it has begun. */
	for (i = 0; i < LATE && write > 0; i++) {
		if (write > 1)
			assert_rc(demand_cancel(&late[i]), 0);
		assert_rc(demand_acquire(&late[i], HWT_NEVER), 1);
	}
	cr_assert(write < 5000, "a dump does not end");
}

TestBetween(open_one_shard(), close_one_shard(), dump,
    a_dump_in_a_dump_and_waits_that_begin_meanwhile)
{
	unsigned i;

	for (i = 0; i < LATE; i++)
		demand_init(&late[i], &store, "a");
	(void)dump_meanwhile(another_dump_and_more_that_waits);
	for (i = 0; i < LATE; i++)
		assert_rc(demand_cancel(&late[i]), 0);
	for (i = 0; i < CROWD; i++)
		assert_rc(demand_cancel(&crowd[i]), 0);
	demand_release(&first);
}
