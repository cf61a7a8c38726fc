/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory follows the number of live timeouts, never the rate of calls.
 *
 *   two threads    one schedules and another cancels, ten million times
 *   three threads  each schedules for the next one to cancel, ten million
 *                  times in all
 *   long sleep     the worker sleeps towards a far deadline while all of
 *                  100,000 placed timeouts are cancelled: their memory must
 *                  go back, and the next 100,000 must find room
 *
 * The threads hand handles on through rings of 1024 places, so 1024 timeouts
 * per ring are live at most. Memory after a tenth of the work and at the end
 * may differ by 1 MiB: a tenth of a byte for each of nine million pairs, where
 * one queue entry lost in 80 pairs would show, and several times what 1024
 * live timeouts need, so that a worker that was descheduled for a while does
 * not.
 */
#include "stress.h"

enum {
	PAIRS = 10000000,
	RING_PLACES = 1024,
	THREADS_MAX = 3,
	PLACED = 100000,
	SLEEP_ROUNDS = 5,
	GROWTH_MAX = 1 << 20
};

/* One thread pushes, one pops; each owns its index. */
struct ring {
	_Alignas(64) atomic_uint_fast64_t pushed;
	_Alignas(64) atomic_uint_fast64_t popped;
	hwt_timeout places[RING_PLACES];
};

struct member {
	struct hwt *timer;
	/* Where this thread's timeouts go; NULL: it schedules none. */
	struct ring *out;
	/* Where the timeouts that it cancels come from; NULL: none. */
	struct ring *in;
	uint64_t pairs;
	/* After a tenth of the pairs. */
	struct memory early;
	pthread_t thread;
};

static bool
schedule_next(struct member *member, uint64_t number)
{
	struct ring *ring = member->out;
	int error;

	if (number ==
	    atomic_load_explicit(&ring->popped, memory_order_acquire) +
		RING_PLACES)
		return false;
	error =
	    hwt_new_timeout(member->timer, &ring->places[number % RING_PLACES],
		never_task, NULL, HWT_SEC(3600));
	stress_must(!error, "hwt_new_timeout: %d", error);
	atomic_store_explicit(&ring->pushed, number + 1, memory_order_release);
	return true;
}

static bool
cancel_next(struct member *member, uint64_t number)
{
	struct ring *ring = member->in;
	int error;

	if (number == atomic_load_explicit(&ring->pushed, memory_order_acquire))
		return false;
	error = hwt_cancel(member->timer, ring->places[number % RING_PLACES]);
	stress_must(!error, "hwt_cancel: %d", error);
	atomic_store_explicit(&ring->popped, number + 1, memory_order_release);
	return true;
}

static void *
member_thread(void *arg)
{
	struct member *member = arg;
	uint64_t scheduled = member->out ? 0 : member->pairs;
	uint64_t cancelled = member->in ? 0 : member->pairs;
	bool moved;

	while (scheduled < member->pairs || cancelled < member->pairs) {
		moved = false;
		if (scheduled < member->pairs &&
		    schedule_next(member, scheduled)) {
			moved = true;
			if (++scheduled == member->pairs / 10)
				member->early = memory_now(member->timer);
		}
		if (cancelled < member->pairs &&
		    cancel_next(member, cancelled)) {
			moved = true;
			cancelled++;
		}
		if (!moved)
			sched_yield();
	}
	return NULL;
}

/* Each ring leads from a thread to the next one; with a single ring the first
 * schedules only and the second cancels only. */
static struct memory
run_rings(const char *what, unsigned threads, unsigned rings)
{
	static struct ring all_rings[THREADS_MAX];
	struct member members[THREADS_MAX] = {{0}};
	struct hwt *timer = timer_create_ns(HWT_MS(10), 512, 0);
	struct memory late;
	unsigned i;

	stress_phase(what, 0);
	memset(all_rings, 0, sizeof(all_rings));
	for (i = 0; i < threads; i++) {
		members[i].timer = timer;
		members[i].pairs = stress_scaled(PAIRS) / rings;
		if (i < rings)
			members[i].out = &all_rings[i];
		if (rings > 1 || i)
			members[i].in = &all_rings[(i + threads - 1) % threads];
	}
	for (i = 0; i < threads; i++)
		members[i].thread = stress_thread(member_thread, &members[i]);
	for (i = 0; i < threads; i++)
		stress_join(members[i].thread);
	late = memory_now(timer);
	memory_check(what, members[0].early, late, GROWTH_MAX);
	stress_check(!hwt_pending_timeouts(timer), "%s: pending", what);
	stress_check(!hwt_stop(timer, NULL), "%s: hwt_stop", what);
	stress_check(!hwt_destroy(timer), "%s: hwt_destroy", what);
	return late;
}

static void
schedule_all(struct hwt *timer, hwt_timeout *timeouts)
{
	unsigned i;
	int error;

	for (i = 0; i < PLACED; i++) {
		error = hwt_new_timeout(
		    timer, &timeouts[i], never_task, NULL, HWT_SEC(3600) + i);
		stress_must(!error, "hwt_new_timeout: %d", error);
	}
	probe_wait(timer);
	probe_wait(timer);
}

/* Until the worker has gone to sleep, or is too slow for that. */
static void
await_sleep(struct hwt *timer)
{
	uint64_t before, after = timer_stats(timer).wakeups;

	do {
		before = after;
		stress_sleep_ns(HWT_MS(20));
		after = timer_stats(timer).wakeups;
	} while (after != before);
}

static struct memory
run_long_sleep(void)
{
	static hwt_timeout timeouts[PLACED];
	struct hwt *timer = timer_create_ns(HWT_MS(1), 512, 0);
	uint64_t rounds = 1 + stress_scaled(SLEEP_ROUNDS);
	struct memory first = {0, 0}, now;
	uint64_t round;
	unsigned i;

	for (round = 0; round < rounds; round++) {
		stress_phase("long sleep", round);
		schedule_all(timer, timeouts);
		now = memory_now(timer);
		if (!round)
			first = now;
		await_sleep(timer);
		for (i = 0; i < PLACED; i++)
			stress_check(!hwt_cancel(timer, timeouts[i]),
			    "long sleep: hwt_cancel");
		/* A worker that is still awake needs no call for that. */
		stress_phase("memory must go back after cancels", round);
		while (timer_stats(timer).memory_bytes > now.timer_bytes / 2)
			stress_sleep_ns(HWT_MS(1));
		probe_wait(timer);
		probe_wait(timer);
	}
	memory_check("long sleep", first, now, GROWTH_MAX);
	stress_check(!hwt_stop(timer, NULL), "long sleep: hwt_stop");
	stress_check(!hwt_destroy(timer), "long sleep: hwt_destroy");
	return now;
}

int
main(int argc, char **argv)
{
	struct memory two, three, sleeping;

	stress_begin("memory_flat", argc, argv);
	two = run_rings("two threads", 2, 1);
	three = run_rings("three threads", 3, 3);
	sleeping = run_long_sleep();
	return stress_end(
	    "%" PRIu64 " pairs with two and with three threads; memory_bytes "
	    "%" PRIu64 ", %" PRIu64 ", with %u placed %" PRIu64,
	    stress_scaled(PAIRS), two.timer_bytes, three.timer_bytes,
	    (unsigned)PLACED, sleeping.timer_bytes);
}
