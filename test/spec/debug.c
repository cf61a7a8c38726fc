/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HWT_DEBUG. The library reads it as it is loaded, so each test runs this
 * program anew, with the variable and with the name of what to do before main,
 * and reads what it says on stderr.
 */
#include "test/spec/support_promises.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SUITE(debug);

#define DEED "HWT_TEST_DEED"
#define NAME "hwt-test" /* argv[0], which the dynamic linker calls it by */

/* What is left alive; static, so that no leak is seen. */
static struct hwt *timer;
static struct hwt_pool *pool;
static struct hwt_mailbox *mailbox;

/* Where a function is in this program's file. */
static size_t
offset_of(void (*function)(void))
{
	Dl_info info;

	if (dladdr((const void *)(uintptr_t)function, &info) == 0)
		abort();
	return (size_t)((uintptr_t)function - (uintptr_t)info.dli_fbase);
}

static void
make_all(void)
{
	const struct hwt_options options = {
	    .flags = HWT_MANUAL, .tick_ns = HWT_MS(1), .slow_task_ns = 1};

	child_ok(hwt_create(&timer, &options));
	child_ok(hwt_pool_create(&pool, 1, 0));
	child_ok(hwt_mailbox_create(&mailbox));
}

static void
destroy_all(void)
{
	child_ok(hwt_stop(timer, NULL));
	child_ok(hwt_destroy(timer));
	child_ok(hwt_pool_destroy(pool));
	child_ok(hwt_mailbox_destroy(mailbox));
}

static void
make_some(void)
{
	make_all();
	destroy_all();
	child_ok(hwt_mailbox_create(&mailbox));
	child_ok(hwt_pool_create(&pool, 1, 0));
	child_ok(hwt_mailbox_destroy(mailbox));
}

static void
make_and_destroy(void)
{
	make_all();
	destroy_all();
}

static void
share(void)
{
	child_ok(hwt_shared(&timer));
}

/* The child's own is alive at its exit; its parent says nothing. */
static void
fork_and_make(void)
{
	pid_t child;

	make_all();
	child = child_split();
	if (child != 0)
		_exit(child_reap(child));
	child_ok(hwt_mailbox_create(&mailbox));
}

/* In the child, what was its parent's is destroyed. */
static void
fork_and_destroy(void)
{
	pid_t child;

	make_all();
	child = child_split();
	if (child != 0)
		_exit(child_reap(child));
	child_ok(hwt_destroy(timer));
	child_ok(hwt_pool_destroy(pool));
	child_ok(hwt_mailbox_destroy(mailbox));
}

static void
slow_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	sleep_ns(HWT_MS(2));
}

static void
be_slow(void)
{
	uint64_t started = 0;

	make_all();
	child_ok(hwt_new_timeout(timer, NULL, slow_task, NULL, 0));
	while (started == 0)
		child_ok(hwt_advance(timer, &started));
}

static const struct deed {
	const char *name;
	void (*function)(void);
} deeds[] = {
    {"make_all", make_all},
    {"make_some", make_some},
    {"make_and_destroy", make_and_destroy},
    {"share", share},
    {"fork_and_make", fork_and_make},
    {"fork_and_destroy", fork_and_destroy},
    {"be_slow", be_slow},
};

#define DEEDS (sizeof(deeds) / sizeof(deeds[0]))

__attribute__((constructor)) static void
do_deed(void)
{
	const char *name = getenv(DEED);

	for (size_t i = 0; name != NULL && i < DEEDS; i++) {
		if (strcmp(deeds[i].name, name) != 0)
			continue;
		deeds[i].function();
		exit(0);
	}
}

struct run {
	const char *deed, *words; /* words: of HWT_DEBUG; NULL: it is not set */
	int ends[2];
	char said[4096];
};

static void
become_program(void *arg)
{
	struct run *run = arg;
	char deed[64], words[64];
	/* What is left alive is no leak here. */
	char *const environment[] = {deed,
	    (char[]){"ASAN_OPTIONS=detect_leaks=0"},
	    run->words != NULL ? words : NULL, NULL};
	char *const arguments[] = {(char[]){NAME}, NULL};

	snprintf(deed, sizeof(deed), DEED "=%s", run->deed);
	if (run->words != NULL)
		snprintf(words, sizeof(words), "HWT_DEBUG=%s", run->words);
	(void)dup2(run->ends[1], STDERR_FILENO);
	(void)close(run->ends[0]);
	(void)close(run->ends[1]);
	execve("/proc/self/exe", arguments, environment);
}

/* What the program says; an empty line is put before it. */
static const char *
said_by(const char *deed, const char *words)
{
	static struct run run;
	size_t length = 1;
	ssize_t got;
	pid_t child;

	run = (struct run){.deed = deed, .words = words, .said = "\n"};
	cr_assert(pipe(run.ends) == 0);
	child = child_fork(become_program, &run);
	(void)close(run.ends[1]);
	while ((got = read(run.ends[0], run.said + length,
		    sizeof(run.said) - 1 - length)) > 0)
		length += (size_t)got;
	(void)close(run.ends[0]);
	assert_u64((uint64_t)child_wait(child), 0);
	run.said[length] = '\0';
	return run.said;
}

static unsigned
lines_of(const char *said)
{
	unsigned lines = 0;

	for (; *said != '\0'; said++)
		lines += *said == '\n';
	return lines - 1;
}

/* A line about one object; in *offset the place where it was made. */
static void
assert_alive(const char *said, const char *what, size_t *offset)
{
	char begin[64];
	const char *line, *place;

	snprintf(begin, sizeof(begin), "\nhwt: alive at exit: %s 0x", what);
	line = strstr(said, begin);
	cr_assert(line != NULL, "no %s in %s", what, said);
	place = strstr(line, ", made at " NAME "+0x");
	cr_assert(place != NULL, "no place in %s", said);
	*offset = strtoul(strchr(place, '+') + 1, NULL, 16);
}

Test(debug, nothing_is_said_and_nothing_allocated_without_it)
{
	cr_assert_str_eq(said_by("make_all", NULL), "\n");
	cr_assert_str_eq(said_by("make_all", ""), "\n");
	cr_assert_str_eq(said_by("be_slow", NULL),
	    "\nhwt: a task held the worker longer than slow_task_ns\n");

	fault_arm(FAULT_HEAP, FAULT_COUNT);
	assert_ok(hwt_mailbox_create(&mailbox));
	assert_u64(fault_disarm(), 1);
	assert_ok(hwt_mailbox_destroy(mailbox));
}

Test(debug, leaks_tells_what_is_alive_at_exit_and_where_it_was_made)
{
	const char *said = said_by("make_all", "leaks");
	size_t place[3];

	assert_u64(lines_of(said), 3);
	assert_alive(said, "timer", &place[0]);
	assert_alive(said, "pool", &place[1]);
	assert_alive(said, "mailbox", &place[2]);

	/* In make_all, behind one another. */
	for (size_t i = 0; i < 3; i++) {
		cr_assert(
		    place[i] > (i == 0 ? offset_of(make_all) : place[i - 1]));
		cr_assert(place[i] < offset_of(make_all) + 2048);
	}
}

Test(debug, leaks_does_not_tell_of_what_was_destroyed)
{
	size_t place;

	cr_assert_str_eq(said_by("make_and_destroy", "leaks"), "\n");
	assert_u64(lines_of(said_by("make_some", "leaks")), 1);
	assert_alive(said_by("make_some", "leaks"), "pool", &place);
	cr_assert(place > offset_of(make_some));
	cr_assert(place < offset_of(make_some) + 2048);
}

Test(debug, leaks_does_not_tell_of_the_shared_timer)
{
	cr_assert_str_eq(said_by("share", "leaks"), "\n");
}

Test(debug, leaks_tells_a_child_of_its_own_alone)
{
	size_t place;

	assert_u64(lines_of(said_by("fork_and_make", "leaks")), 1);
	assert_alive(said_by("fork_and_make", "leaks"), "mailbox", &place);
	cr_assert_str_eq(said_by("fork_and_destroy", "leaks"), "\n");
}

static void
assert_names_the_task(const char *said)
{
	static const char warning[] =
	    "\nhwt: a task held the worker longer than slow_task_ns: /";
	char expected[128];

	snprintf(expected, sizeof(expected), "/" NAME "+%#zx\n",
	    offset_of((void (*)(void))(uintptr_t)slow_task));
	cr_assert(strncmp(said, warning, strlen(warning)) == 0, "%s", said);
	cr_assert(strstr(said, expected) != NULL, "%s", said);
}

Test(debug, slow_names_the_task)
{
	const char *said = said_by("be_slow", "slow");

	assert_u64(lines_of(said), 1);
	assert_names_the_task(said);
}

Test(debug, words_can_be_together)
{
	const char *said = said_by("be_slow", "leaks,slow");

	assert_u64(lines_of(said), 4);
	assert_names_the_task(said);
	assert_u64(lines_of(said_by("be_slow", ",slow,,leaks,")), 4);
	assert_u64(lines_of(said_by("be_slow", "slow, leaks ")), 4);
}

Test(debug, unknown_words_are_told_once)
{
	size_t place;
	const char *said = said_by("make_some", "leak,leaksx,leaks,slo");

	assert_u64(lines_of(said), 2);
	assert_alive(said, "pool", &place);
	cr_assert(strstr(said,
		      "\nhwt: HWT_DEBUG=leak,leaksx,leaks,slo: the words are "
		      "leaks and slow\n") != NULL);
	cr_assert_str_eq(said_by("make_and_destroy", "leak"),
	    "\nhwt: HWT_DEBUG=leak: the words are leaks and slow\n");
}
