/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library as others meet it: it stays mapped, and the header's numbers are
 * what it says they are. What it exports is test/check's job exports/shared.
 */
#include "test/spec/support_promises.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SUITE(library);

static bool
is_mapped(const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[4096];
	bool found = false;

	cr_assert(maps != NULL);
	while (fgets(line, sizeof(line), maps) != NULL)
		found = found || strstr(line, name) != NULL;
	fclose(maps);
	return found;
}

Test(library, dlclose_does_not_unmap_it)
{
	void *library;
	const char *(*version)(void);

	cr_assert(!is_mapped("/libhwt.so"));
	library = library_open();
	*(void **)&version = dlsym(library, "hwt_version");
	cr_assert(is_mapped("/libhwt.so"));

	cr_assert(dlclose(library) == 0);

	cr_assert(is_mapped("/libhwt.so"));
	cr_assert_str_eq(version(), hwt_version());
}

/* A library that is loaded by a program which has many keys of its own. */
#define KEYS 40

struct guest {
	int (*create)(struct hwt **, const struct hwt_options *);
	int (*new_timeout)(
	    struct hwt *, hwt_timeout *, hwt_task *, void *, uint64_t);
	int (*cancel)(struct hwt *, hwt_timeout);
	int (*stop)(struct hwt *, struct hwt_unprocessed *);
	int (*destroy)(struct hwt *);
	struct hwt *timer;
	hwt_timeout timeout;
	pthread_key_t key;
};

/* The system gives out the first key that is free: the one after these. */
static void
guest_open(struct guest *guest)
{
	struct hwt_options options = {.flags = HWT_MANUAL};
	pthread_key_t key;
	void *library;

	for (unsigned i = 0; i < KEYS; i++)
		cr_assert(pthread_key_create(&key, NULL) == 0);
	cr_assert(pthread_key_create(&guest->key, NULL) == 0);
	cr_assert(pthread_key_delete(guest->key) == 0);
	library = library_open();
	*(void **)&guest->create = dlsym(library, "hwt_create");
	*(void **)&guest->new_timeout = dlsym(library, "hwt_new_timeout");
	*(void **)&guest->cancel = dlsym(library, "hwt_cancel");
	*(void **)&guest->stop = dlsym(library, "hwt_stop");
	*(void **)&guest->destroy = dlsym(library, "hwt_destroy");
	assert_ok(guest->create(&guest->timer, &options));
	assert_ok(guest->new_timeout(
	    guest->timer, &guest->timeout, idle_task, NULL, HWT_SEC(1)));
}

static void
cancel_as_a_threads_first_call(unsigned index, void *arg)
{
	struct guest *guest = arg;

	(void)index;
	assert_ok(guest->cancel(guest->timer, guest->timeout));
	/* To give it a value would have taken memory. */
	cr_assert(pthread_getspecific(guest->key) == NULL);

	for (unsigned i = 0; i < 100; i++)
		assert_ok(guest->new_timeout(
		    guest->timer, NULL, idle_task, NULL, HWT_SEC(1)));
	cr_assert(pthread_getspecific(guest->key) != NULL);
}

Test(library, a_cancel_takes_no_memory_for_its_thread)
{
	struct guest guest;

	guest_open(&guest);

	in_parallel(1, cancel_as_a_threads_first_call, &guest);

	assert_ok(guest.stop(guest.timer, NULL));
	assert_ok(guest.destroy(guest.timer));
}

/* As glibc does for libraries that a program was ending with when a thread of
 * it calls dlopen. */
static void
run_constructors(void *library)
{
	struct link_map *map;
	const Elf64_Dyn *entry;
	void (**functions_of)(void) = NULL;
	size_t count = 0, i;

	cr_assert(dlinfo(library, RTLD_DI_LINKMAP, &map) == 0);
	for (entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_INIT_ARRAY)
			functions_of = (void *)(uintptr_t)(map->l_addr +
			    entry->d_un.d_ptr);
		else if (entry->d_tag == DT_INIT_ARRAYSZ)
			count = entry->d_un.d_val / sizeof(*functions_of);
	}
	cr_assert(functions_of != NULL && count >= 2);
	for (i = 0; i < count; i++)
		functions_of[i]();
}

Test(library, constructors_that_run_again_change_nothing)
{
	struct guest guest;

	guest_open(&guest);

	run_constructors(library_open());

	assert_ok(guest.cancel(guest.timer, guest.timeout));
	assert_ok(guest.stop(guest.timer, NULL));
	assert_ok(guest.destroy(guest.timer));
}

/* A timer from before main and, where the library is linked statically, from
 * before its own constructor. Only when asked for, since it would be one more
 * in every test; the program that asks looks at it after main. */
#define EARLY "HWT_TEST_EARLY_TIMER"

static struct hwt *early_timer;

__attribute__((constructor(101))) static void
make_early_timer(void)
{
	struct hwt_options options = {.flags = HWT_MANUAL};

	if (getenv(EARLY) != NULL && hwt_create(&early_timer, &options) != 0)
		_exit(2);
}

__attribute__((destructor)) static void
judge_early_timer(void)
{
	if (early_timer == NULL)
		return;
	child_ok(hwt_new_timeout(early_timer, NULL, idle_task, NULL, 0));
	child_check(hwt_pending_timeouts(early_timer) == 1);
	child_ok(hwt_stop(early_timer, NULL));
	child_ok(hwt_destroy(early_timer));
	_exit(7);
}

static void
become_program_with_early_timer(void *arg)
{
	char *const environment[] = {(char[]){EARLY "=1"}, NULL};
	char *const arguments[] = {
	    (char[]){"hwt-test"}, (char[]){"--version"}, NULL};

	(void)arg;
	(void)dup2(STDERR_FILENO, STDOUT_FILENO);
	execve("/proc/self/exe", arguments, environment);
}

Test(library, a_timer_made_in_a_constructor_is_alive_in_main)
{
	assert_u64((uint64_t)child_wait(
		       child_fork(become_program_with_early_timer, NULL)),
	    7);
}

/* The header. */

Test(library, durations_are_nanoseconds_in_64_bits)
{
	int many = 2000000000;

	/* An int times a thousand would have overflowed. */
	assert_u64(HWT_US(many), UINT64_C(2000000000000));
	assert_u64(HWT_MS(many), UINT64_C(2000000000000000));
	assert_u64(HWT_SEC(many), UINT64_C(2000000000000000000));
	assert_u64(HWT_MIN(1), HWT_SEC(60));
	assert_u64(HWT_MIN(60 * 24 * 365), HWT_SEC(31536000));
	assert_u64(HWT_MIN(UINT64_C(60) * 24 * 365 * 584),
	    UINT64_C(18417024) * HWT_SEC(1000));
	assert_u64(HWT_MS(1 + 1), 2000000);
	assert_u64(HWT_NEVER, UINT64_MAX);
	cr_assert(sizeof(HWT_US(1)) == 8 && sizeof(HWT_MIN(1)) == 8);
}

Test(library, durations_may_be_fractions)
{
	double half = 0.5;

	assert_u64(HWT_US(0.5), 500);
	assert_u64(HWT_MS(0.25), 250000);
	assert_u64(HWT_SEC(0.5), 500000000);
	assert_u64(HWT_SEC(1.5), 1500000000);
	assert_u64(HWT_MIN(1.5), HWT_SEC(90));
	assert_u64(HWT_SEC(half), HWT_MS(500));
	assert_u64(HWT_SEC(0.5F), HWT_MS(500));
}

Test(library, durations_are_constants_and_take_any_whole_number)
{
	static const uint64_t constants[] = {HWT_SEC(2), HWT_MS(0.5)};
	enum {
		TWO_US = HWT_US(2)
	};
	char bytes[HWT_US(2)];
	short few = 2;
	int evaluated = 0;

	assert_u64(constants[0], 2000000000);
	assert_u64(constants[1], 500000);
	assert_u64(TWO_US, sizeof(bytes));
	assert_u64(HWT_US(few), 2000);
	assert_u64(HWT_US(evaluated++), 0);
	assert_u64((uint64_t)evaluated, 1);
	/* A product, whatever stands beside it. */
	assert_u64(1000000 / HWT_US(2), 500);
}

Test(library, negative_durations_are_refused_as_delays)
{
	static const uint64_t constants[] = {
	    HWT_SEC(-0.5), HWT_MS(-5), HWT_US(-0.25F), HWT_MIN(-1e-3)};
	double back = -1.5;
	struct hwt *timer;

	assert_ok(hwt_create(&timer, NULL));
	for (size_t index = 0; index < 4; index++)
		assert_rc(hwt_new_timeout(
			      timer, NULL, idle_task, NULL, constants[index]),
		    -EINVAL);
	assert_rc(hwt_new_timeout(timer, NULL, idle_task, NULL, HWT_SEC(back)),
	    -EINVAL);
	worker_timer_close(timer);
}

Test(library, structures_are_laid_out_as_declared)
{
	/* Programs are compiled against these. */
	assert_u64(sizeof(hwt_timeout), 8);
	assert_u64(sizeof(struct hwt_executor), 2 * sizeof(void *));
	assert_u64(sizeof(struct hwt_options), 32 + 6 * sizeof(void *) + 64);
	assert_u64(offsetof(struct hwt_options, ticks_per_wheel), 8);
	assert_u64(offsetof(struct hwt_options, flags), 12);
	assert_u64(offsetof(struct hwt_options, executor), 32);
	assert_u64(sizeof(struct hwt_spec), 16 + 3 * sizeof(void *) + 24);
	assert_u64(offsetof(struct hwt_spec, delay_ns), 2 * sizeof(void *));
	assert_u64(
	    sizeof(struct hwt_timeout_info), 24 + 3 * sizeof(void *) + 16);
	assert_u64(sizeof(struct hwt_unprocessed), 64);
	assert_u64(sizeof(struct hwt_stats), (12 + 64 + 1 + 16) * 8);
	assert_u64(HWT_MANUAL, 1);
	assert_u64(HWT_RELAXED, 2);
}
