/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HWT_DEBUG=leaks: at exit, a line for each timer, pool and mailbox that is
 * alive. The library reads the variable as it is loaded: each role is played
 * by this binary executed anew.
 */
#include "test/spec/support.h"

#include <dlfcn.h>

#include "test/spec/text.h"

SUITE(debug);

static struct hwt *timer;
static struct hwt_pool *pool;
static struct hwt_mailbox *mailbox;

static void
make_all(void)
{
	child_ok(hwt_create(&timer, NULL));
	child_ok(hwt_pool_create(&pool, 1, 0));
	child_ok(hwt_mailbox_create(&mailbox));
}

static void
make_and_destroy(void)
{
	make_all();
	child_ok(hwt_stop(timer, NULL));
	child_ok(hwt_destroy(timer));
	child_ok(hwt_pool_destroy(pool));
	child_ok(hwt_mailbox_destroy(mailbox));
}

/* The pool stays. */
static void
make_some(void)
{
	make_and_destroy();
	child_ok(hwt_mailbox_create(&mailbox));
	child_ok(hwt_pool_create(&pool, 1, 0));
	child_ok(hwt_mailbox_destroy(mailbox));
}

static void
share(void)
{
	child_ok(hwt_shared(&timer));
}

/* The child ends; its parent says nothing. */
static void
fork_and_make(void)
{
	pid_t child;

	make_all();
	child = child_split();
	if (child != 0)
		_exit(child_wait(child));
	child_ok(hwt_mailbox_create(&mailbox));
}

static const struct role deeds[] = {
    {"make_all", make_all},
    {"make_and_destroy", make_and_destroy},
    {"make_some", make_some},
    {"share", share},
    {"fork_and_make", fork_and_make},
};

ROLES(deeds)

static const char *
said_by(const char *deed, const char *words)
{
	static char said[4096];

	assert_i64(role_run(deed, words, said), LEFT_BY_EXIT);
	return said;
}

/* So many lines, and one of them about an object that function has made. */
static void
assert_alive(
    const char *said, unsigned lines, const char *what, void (*function)(void))
{
	const char *line, *place;
	char begin[64];
	size_t offset;
	Dl_info info;

	cr_assert(count_of(said, "\n") == lines, "%s", said);
	snprintf(begin, sizeof(begin), "hwt: alive at exit: %s 0x", what);
	line = strstr(said, begin);
	cr_assert(line != NULL, "no %s in %s", what, said);
	place = strstr(line, ", made at hwt-test+0x");
	cr_assert(place != NULL, "no place in %s", said);
	offset = strtoul(strchr(place, '+') + 1, NULL, 16);
	cr_assert(dladdr((const void *)(uintptr_t)function, &info) != 0);
	offset += (uintptr_t)info.dli_fbase - (uintptr_t)function;
	cr_assert(offset > 0 && offset < 2048, "%s", said);
}

Test(debug, leaks_names_what_is_alive_at_exit_and_where_it_was_made)
{
	const char *said = said_by("make_all", "leaks");

	assert_alive(said, 3, "timer", make_all);
	assert_alive(said, 3, "pool", make_all);
	assert_alive(said, 3, "mailbox", make_all);
}

Test(debug, leaks_does_not_name_what_was_destroyed_or_is_shared)
{
	cr_assert_str_empty(said_by("make_and_destroy", "leaks"));
	assert_alive(said_by("make_some", "leaks"), 1, "pool", make_some);
	cr_assert_str_empty(said_by("share", "leaks"));
}

Test(debug, leaks_names_in_a_child_only_its_own)
{
	assert_alive(
	    said_by("fork_and_make", "leaks"), 1, "mailbox", fork_and_make);
}

Test(debug, another_word_is_reported_and_has_no_effect)
{
	cr_assert_str_eq(said_by("make_all", "leaksx"),
	    "hwt: HWT_DEBUG=leaksx: the only word is leaks\n");
	cr_assert_str_empty(said_by("make_all", ""));
}
