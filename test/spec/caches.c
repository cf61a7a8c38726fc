/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which threads have a cache of which timers, from inside: a timer's caches
 * tell how many of them are taken. Nothing but speed and memory depends on it,
 * so no promise is about it.
 */
#include "test/spec/support.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/timer.h"

SUITE(caches);

#define TIMERS (THREAD_SLOTS + 2)
#define TIMEOUTS (4 * (ATTACH_SKIP + 1))

/* Timers and what a thread that has just begun did to them. */
struct crowd {
	struct hwt *timer[TIMERS];
	hwt_timeout timeout[TIMERS][TIMEOUTS];
	uint32_t before[TIMERS];
	unsigned cancelled[TIMERS];
};

static struct crowd crowd;
/* How often pthread_mutex_trylock is to find the lock taken. */
static unsigned taken;

int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);

int
__wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	if (taken == 0)
		return __real_pthread_mutex_trylock(mutex);
	taken--;
	return EBUSY;
}

/* How many caches of a timer are some thread's. */
static uint32_t
owned(const struct hwt *timer)
{
	const struct record_store *store = &timer->store;
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < a32_load_acquire(&store->caches_used); i++)
		count += a32_load_acquire(&store->caches[i].owned) != 0;
	return count;
}

static void
crowd_open(void)
{
	const struct hwt_options options = {.flags = HWT_MANUAL};
	unsigned i, k;

	for (i = 0; i < TIMERS; i++) {
		assert_rc(hwt_create(&crowd.timer[i], &options), 0);
		for (k = 0; k < TIMEOUTS; k++)
			assert_rc(hwt_new_timeout(crowd.timer[i],
				      &crowd.timeout[i][k], forbidden_task,
				      NULL, HWT_MIN(1)),
			    0);
	}
	for (i = 0; i < TIMERS; i++)
		crowd.before[i] = owned(crowd.timer[i]);
}

static void
crowd_end(unsigned i)
{
	assert_rc(hwt_stop(crowd.timer[i], NULL), 0);
	assert_rc(hwt_destroy(crowd.timer[i]), 0);
	crowd.timer[i] = NULL;
}

static void
crowd_close(void)
{
	unsigned i;

	for (i = 0; i < TIMERS; i++) {
		if (crowd.timer[i] != NULL)
			crowd_end(i);
	}
}

static void
cancel_next(unsigned i)
{
	assert_rc(
	    hwt_cancel(crowd.timer[i], crowd.timeout[i][crowd.cancelled[i]++]),
	    0);
}

/* How many caches of the timer this thread has. */
static uint32_t
gained(unsigned i)
{
	return owned(crowd.timer[i]) - crowd.before[i];
}

static void
cancel_in_as_many_as_there_are_slots(void)
{
	unsigned i;

	for (i = 0; i < THREAD_SLOTS; i++) {
		cancel_next(i);
		assert_u64(gained(i), 1);
	}
}

static void
see_them_end(void)
{
	unsigned i;

	cancel_in_as_many_as_there_are_slots();
	for (i = 0; i < THREAD_SLOTS; i++)
		crowd_end(i);
}

static void
only_cancel_after_the_end_of_many(unsigned index, void *arg)
{
	(void)index;
	(void)arg;
	see_them_end();

	cancel_next(THREAD_SLOTS);
	assert_u64(gained(THREAD_SLOTS), 1);
	cancel_next(THREAD_SLOTS + 1);
	assert_u64(gained(THREAD_SLOTS + 1), 1);
}

Test(caches, a_thread_that_only_cancels_forgets_timers_that_are_gone)
{
	crowd_open();

	in_parallel(1, only_cancel_after_the_end_of_many, NULL);

	crowd_close();
}

static void
only_cancel_while_the_lock_is_taken(unsigned index, void *arg)
{
	const unsigned i = THREAD_SLOTS;

	(void)index;
	(void)arg;
	see_them_end();
	taken = 1;

	cancel_next(i);
	assert_u64(taken, 0);
	assert_u64(gained(i), 0);
	while (gained(i) == 0)
		cancel_next(i);
	cr_assert(crowd.cancelled[i] > 2);
	cr_assert(crowd.cancelled[i] <= ATTACH_SKIP + 2);
}

Test(caches, it_waits_for_no_lock_but_tries_again_later)
{
	crowd_open();

	in_parallel(1, only_cancel_while_the_lock_is_taken, NULL);

	crowd_close();
}

static void
only_cancel_in_many(unsigned index, void *arg)
{
	unsigned i;

	(void)index;
	(void)arg;
	cancel_in_as_many_as_there_are_slots();

	while (crowd.cancelled[THREAD_SLOTS] < TIMEOUTS)
		cancel_next(THREAD_SLOTS);
	assert_u64(gained(THREAD_SLOTS), 0);
	for (i = 0; i < THREAD_SLOTS; i++)
		assert_u64(gained(i), 1);
}

Test(caches, it_keeps_those_of_timers_that_live)
{
	crowd_open();

	in_parallel(1, only_cancel_in_many, NULL);

	crowd_close();
}

static void
schedule_in_many(unsigned index, void *arg)
{
	unsigned i;

	(void)index;
	(void)arg;
	cancel_in_as_many_as_there_are_slots();

	for (i = 0; i < TIMEOUTS; i++)
		assert_rc(hwt_new_timeout(crowd.timer[THREAD_SLOTS], NULL,
			      forbidden_task, NULL, HWT_MIN(1)),
		    0);
	assert_u64(gained(THREAD_SLOTS), 0);
	for (i = 0; i < THREAD_SLOTS; i++)
		assert_u64(gained(i), 1);
}

Test(caches, one_that_schedules_keeps_them_too)
{
	crowd_open();

	in_parallel(1, schedule_in_many, NULL);

	crowd_close();
}

/* Returns how many caches of a new timer this thread has in the end. */
static int
schedule_in_a_new_timer(void)
{
	struct hwt *timer;
	unsigned i;

	if (hwt_create(&timer, &(struct hwt_options){.flags = HWT_MANUAL}) != 0)
		return -1;
	for (i = 0; i < TIMEOUTS && owned(timer) == 0; i++)
		(void)hwt_new_timeout(
		    timer, NULL, forbidden_task, NULL, HWT_MIN(1));
	return (int)owned(timer);
}

static void
fork_with_all_slots_taken(unsigned index, void *arg)
{
	int status = -1;
	pid_t child;

	(void)index;
	(void)arg;
	cancel_in_as_many_as_there_are_slots();

	child = fork();
	if (child == 0)
		_exit(schedule_in_a_new_timer());
	cr_assert(waitpid(child, &status, 0) == child);
	cr_assert(WIFEXITED(status));
	assert_u64((uint64_t)WEXITSTATUS(status), 1);
}

Test(caches, in_a_child_the_slots_are_free_again)
{
	crowd_open();

	in_parallel(1, fork_with_all_slots_taken, NULL);

	crowd_close();
}

/* Nobody's caches become those of a thread that there is not, and back. */
static void
change_owners(struct hwt *timer, uint32_t from, uint32_t to)
{
	uint32_t i;

	for (i = 0; i < CACHES_MAX; i++) {
		a32_t *word = &timer->store.caches[i].owned;

		if (a32_load_relaxed(word) == from)
			a32_store_relaxed(word, to);
	}
}

static void
schedule_where_all_are_taken(unsigned index, void *arg)
{
	struct hwt *timer = crowd.timer[0];

	(void)index;
	(void)arg;
	change_owners(timer, 0, 2);
	assert_rc(
	    hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_MIN(1)), 0);
	change_owners(timer, 2, 0);
	assert_u64(gained(0), 0);

	while (gained(0) == 0)
		cancel_next(0);
	cr_assert(crowd.cancelled[0] > ATTACH_SKIP / 4);
	cr_assert(crowd.cancelled[0] <= ATTACH_SKIP + 1);
}

Test(caches, where_none_is_left_a_thread_looks_again_now_and_then)
{
	crowd_open();

	in_parallel(1, schedule_where_all_are_taken, NULL);

	crowd_close();
}
