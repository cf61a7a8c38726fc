/* SPDX-License-Identifier: Apache-2.0 */
/*
 * max_pending under threads: never exceeded, and no place is ever lost.
 *
 *   crowd     producers with timeouts of an hour, single and in batches. Their
 *             count is raised after a call accepted and lowered before a call
 *             cancels, so it is never above the true one and must stay within
 *             the limit.
 *   expiry    one producer, so nobody else is scheduling: a refusal is an
 *             error when fewer places were taken before the call than there
 *             are. Places come back from tasks and from a canceller.
 *   full      as many timeouts as there are places, and each re-arms itself in
 *             the first instruction of its task: that must never be refused.
 *
 * After each, when all is quiet, exactly all places can be taken again.
 */
#include "stress.h"

enum {
	LIMIT = 1000,
	CROWD = 3,
	CROWD_CALLS = 3000000,
	BATCH_MAX = 16,
	EXPIRY_CALLS = 2000000,
	FULL_RUNS = 500,
	RING_PLACES = 4096
};

static struct hwt *timer;
/* What is surely taken, by the crowd. */
static atomic_int taken;
static atomic_uint_fast64_t refusals;

/* All places must be there, and not one more. */
static void
check_all_places(const char *after)
{
	static hwt_timeout timeouts[LIMIT + 1];
	struct hwt_spec spec = {.task = never_task, .delay_ns = HWT_SEC(3600)};
	unsigned i, accepted = 0;

	stress_check(!hwt_pending_timeouts(timer), "after %s: pending", after);
	for (i = 0; i < LIMIT + 1; i++)
		accepted += !hwt_new_timeout(
		    timer, &timeouts[i], never_task, NULL, HWT_SEC(3600));
	stress_check(accepted == LIMIT, "after %s: %u of %d places", after,
	    accepted, LIMIT);
	stress_check(hwt_new_timeouts(timer, 1, &spec, NULL) == -ENOBUFS,
	    "after %s: a batch goes over the limit", after);
	for (i = 0; i < LIMIT; i++)
		stress_check(!hwt_cancel(timer, timeouts[i]), "hwt_cancel");
}

struct crowd_member {
	uint64_t random;
	hwt_timeout timeouts[LIMIT + BATCH_MAX];
	unsigned count;
	pthread_t thread;
};

/* False: refused. */
static bool
crowd_schedule(struct crowd_member *member)
{
	struct hwt_spec specs[BATCH_MAX] = {{0}};
	unsigned count = 1 + (unsigned)random_below(&member->random, BATCH_MAX);
	hwt_timeout *timeouts = &member->timeouts[member->count];
	unsigned i;
	int error, now;

	if (random_below(&member->random, 4)) {
		count = 1;
		error = hwt_new_timeout(
		    timer, timeouts, never_task, NULL, HWT_SEC(3600));
	} else {
		for (i = 0; i < count; i++) {
			specs[i].task = never_task;
			specs[i].delay_ns = HWT_SEC(3600);
		}
		error = hwt_new_timeouts(timer, count, specs, timeouts);
	}
	stress_check(!error || error == -ENOBUFS, "schedule: %d", error);
	if (error) {
		atomic_fetch_add(&refusals, 1);
		return false;
	}
	member->count += count;
	now = atomic_fetch_add(&taken, (int)count) + (int)count;
	stress_must(now <= LIMIT, "%d of %d places taken", now, LIMIT);
	return true;
}

static void
crowd_cancel(struct crowd_member *member)
{
	unsigned i;
	int error;

	if (!member->count)
		return;
	i = (unsigned)random_below(&member->random, member->count);
	atomic_fetch_sub(&taken, 1);
	error = hwt_cancel(timer, member->timeouts[i]);
	stress_check(!error, "hwt_cancel: %d", error);
	member->timeouts[i] = member->timeouts[--member->count];
}

/* Stays where it matters: schedules until it is refused, then makes a little
 * room. */
static void *
crowd_thread(void *arg)
{
	struct crowd_member *member = arg;
	uint64_t calls = stress_scaled(CROWD_CALLS);
	unsigned room = 0;

	while (calls--) {
		if (room) {
			crowd_cancel(member);
			room--;
		} else if (!crowd_schedule(member)) {
			room = 1 + (unsigned)random_below(&member->random, 4);
		}
	}
	while (member->count)
		crowd_cancel(member);
	return NULL;
}

static void
run_crowd(void)
{
	static struct crowd_member members[CROWD];
	unsigned i;

	stress_phase("crowd", 0);
	for (i = 0; i < CROWD; i++) {
		members[i].random = random_seed(i);
		members[i].thread = stress_thread(crowd_thread, &members[i]);
	}
	for (i = 0; i < CROWD; i++)
		stress_join(members[i].thread);
	check_all_places("crowd");
}

/* Places returned by tasks and by cancels, counted when they are surely
 * free. */
static atomic_uint_fast64_t released;
static _Atomic uint64_t board[RING_PLACES];
static atomic_bool expiry_over;

static void
release_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	atomic_fetch_add(&released, 1);
}

static void *
expiry_canceller(void *arg)
{
	uint64_t random = random_seed(100);
	hwt_timeout timeout;

	(void)arg;
	while (!atomic_load(&expiry_over)) {
		timeout.id = atomic_exchange(
		    &board[random_below(&random, RING_PLACES)], 0);
		if (timeout.id && !hwt_cancel(timer, timeout))
			atomic_fetch_add(&released, 1);
	}
	return NULL;
}

/* Two places may be free and not yet counted: the worker is between freeing
 * one and its task, the canceller between hwt_cancel and the count. */
static void
expiry_produce(uint64_t *random, uint64_t *accepted)
{
	uint64_t before = atomic_load(&released);
	hwt_timeout timeout;
	int error = hwt_new_timeout(timer, &timeout, release_task, NULL,
	    random_below(random, HWT_MS(4)));

	if (error) {
		stress_check(error == -ENOBUFS, "hwt_new_timeout: %d", error);
		stress_check(*accepted - before >= LIMIT,
		    "refused while %" PRIu64 " of %d places were taken",
		    *accepted - before, LIMIT);
		atomic_fetch_add(&refusals, 1);
		sched_yield();
		return;
	}
	++*accepted;
	before = *accepted - atomic_load(&released);
	stress_check((int64_t)before <= LIMIT + 2,
	    "%" PRIu64 " of %d places taken", before, LIMIT);
	if (random_below(random, 2))
		atomic_store(
		    &board[random_below(random, RING_PLACES)], timeout.id);
}

static void
run_expiry(void)
{
	uint64_t calls = stress_scaled(EXPIRY_CALLS);
	uint64_t random = random_seed(101), accepted = 0;
	pthread_t canceller = stress_thread(expiry_canceller, NULL);

	stress_phase("expiry", 0);
	while (calls--)
		expiry_produce(&random, &accepted);
	stress_phase("the last ones expire", 0);
	while (atomic_load(&released) != accepted)
		stress_sleep_ns(HWT_MS(1));
	atomic_store(&expiry_over, true);
	stress_join(canceller);
	check_all_places("expiry");
}

static atomic_uint full_left;

static void
rearm_task(hwt_timeout timeout, void *arg)
{
	unsigned *runs = arg;
	int error;

	(void)timeout;
	if (!--*runs) {
		atomic_fetch_sub(&full_left, 1);
		return;
	}
	error = hwt_new_timeout(timer, NULL, rearm_task, runs, 0);
	if (!error)
		return;
	stress_fail("re-arming while full: %d", error);
	atomic_fetch_sub(&full_left, 1);
}

static void
run_full(void)
{
	static unsigned runs[LIMIT];
	unsigned i;

	stress_phase("full", 0);
	atomic_store(&full_left, LIMIT);
	for (i = 0; i < LIMIT; i++)
		runs[i] = 1 + (unsigned)stress_scaled(FULL_RUNS);
	for (i = 0; i < LIMIT; i++)
		stress_must(!hwt_new_timeout(
				timer, NULL, rearm_task, &runs[i], HWT_MS(500)),
		    "hwt_new_timeout");
	while (atomic_load(&full_left))
		stress_sleep_ns(HWT_MS(1));
	check_all_places("full");
}

int
main(int argc, char **argv)
{
	struct hwt_options options = {
	    .tick_ns = HWT_MS(1), .max_pending = LIMIT, .log = &quiet_log};
	struct hwt_stats stats;

	stress_begin("limit", argc, argv);
	stress_must(!hwt_create(&timer, &options), "hwt_create");
	run_crowd();
	run_expiry();
	run_full();
	stats = timer_stats(timer);
	stress_check(refusals, "the limit was never met");
	stress_check(!hwt_stop(timer, NULL), "hwt_stop");
	stress_check(!hwt_destroy(timer), "hwt_destroy");
	return stress_end("accepted %" PRIu64 ", refused %" PRIu64,
	    stats.scheduled, stats.rejected);
}
