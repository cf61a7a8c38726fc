/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stale handles against reused records: threads end timeouts, keep their
 * handles, share them, and go on using them in every call while others reuse
 * the records.
 *
 * No such call may succeed. If one hit somebody else's timeout, then that one
 * would be gone when its owner looks, or its deadline would have moved: the
 * owners know exactly what is alive. Handles with one bit flipped, handles of
 * another timer and random ones are tried as well.
 */
#include "stress.h"

enum {
	THREADS = 4,
	LIVE = 128,
	STALE_PLACES = 1024,
	STEPS = 3000000,
	/* Accidental equality may have a chance of 2^-32 per call. So few
	 * made-up handles are tried that it fails one run in 50,000. */
	MADE_UP_ONE_IN = 512
};

static struct hwt *timer, *other_timer;
static _Atomic uint64_t stale_board[STALE_PLACES];
static atomic_uint_fast64_t stale_calls;

struct owner {
	uint64_t random;
	hwt_timeout live[LIVE];
	pthread_t thread;
};

static void
nothing(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

static void
use_stale(struct hwt *used, hwt_timeout timeout, uint64_t *random)
{
	int64_t remaining_ns;
	int error;

	switch (random_below(random, 7)) {
	case 0:
		error = hwt_cancel(used, timeout);
		break;
	case 1:
		error = hwt_cancel_wait(used, timeout);
		break;
	case 2:
		error = hwt_reschedule(used, timeout, HWT_SEC(10));
		break;
	case 3:
		error = hwt_remaining(used, timeout, &remaining_ns);
		break;
	case 4:
		error = hwt_reschedule_at(used, timeout, random_next(random));
		break;
	case 5:
		error = hwt_state(used, timeout, NULL);
		break;
	default:
		error = hwt_run(used, timeout);
	}
	stress_check(
	    error == -ENOENT, "handle %#" PRIx64 ": %d", timeout.id, error);
	atomic_fetch_add_explicit(&stale_calls, 1, memory_order_relaxed);
}

static void
live_schedule(hwt_timeout *timeout)
{
	int error =
	    hwt_new_timeout(timer, timeout, never_task, timeout, HWT_SEC(3600));

	stress_must(!error, "hwt_new_timeout: %d", error);
}

/* Checks that nobody touched it, moves it on, or ends it. */
static void
live_use(struct owner *owner, hwt_timeout *timeout)
{
	int64_t remaining_ns = 0;
	int error = hwt_remaining(timer, *timeout, &remaining_ns);
	void *arg = NULL;

	stress_check(hwt_state(timer, *timeout, &arg) == HWT_STATE_PENDING &&
		arg == timeout,
	    "a live timeout: its arg is another's");
	stress_check(!error && remaining_ns > (int64_t)HWT_SEC(1800),
	    "a live timeout: hwt_remaining %d, %" PRId64 " ns", error,
	    remaining_ns);
	if (random_below(&owner->random, 4)) {
		error = hwt_reschedule(timer, *timeout, HWT_SEC(3600));
		stress_check(!error, "a live timeout: reschedule %d", error);
		return;
	}
	error = hwt_cancel(timer, *timeout);
	stress_check(!error, "a live timeout: hwt_cancel %d", error);
	atomic_store(&stale_board[random_below(&owner->random, STALE_PLACES)],
	    timeout->id);
	live_schedule(timeout);
}

/* One that may have ended by itself, which is another way back to the free
 * records. */
static void
short_lived(struct owner *owner)
{
	hwt_timeout timeout;
	int error = hwt_new_timeout(timer, &timeout, nothing, NULL, 0);

	stress_must(!error, "hwt_new_timeout: %d", error);
	if (random_below(&owner->random, 2))
		stress_sleep_ns(HWT_US(150));
	error = hwt_cancel_wait(timer, timeout);
	stress_check(!error || error == -ENOENT, "hwt_cancel_wait: %d", error);
	atomic_store(&stale_board[random_below(&owner->random, STALE_PLACES)],
	    timeout.id);
}

static void
use_made_up(struct owner *owner, hwt_timeout live)
{
	hwt_timeout timeout = live;

	use_stale(other_timer, timeout, &owner->random);
	timeout.id = random_next(&owner->random);
	use_stale(timer, timeout, &owner->random);
	timeout.id = live.id ^ UINT64_C(1) << random_below(&owner->random, 64);
	use_stale(timer, timeout, &owner->random);
}

static void *
owner_thread(void *arg)
{
	struct owner *owner = arg;
	uint64_t steps = stress_scaled(STEPS);
	hwt_timeout stale;
	unsigned i;

	for (i = 0; i < LIVE; i++)
		live_schedule(&owner->live[i]);
	while (steps--) {
		i = (unsigned)random_below(&owner->random, LIVE);
		live_use(owner, &owner->live[i]);
		stale.id = atomic_load(
		    &stale_board[random_below(&owner->random, STALE_PLACES)]);
		use_stale(timer, stale, &owner->random);
		if (!random_below(&owner->random, MADE_UP_ONE_IN))
			use_made_up(owner, owner->live[i]);
		if (!random_below(&owner->random, 128))
			short_lived(owner);
	}
	for (i = 0; i < LIVE; i++)
		stress_check(!hwt_cancel(timer, owner->live[i]),
		    "a live timeout is gone at the end");
	return NULL;
}

int
main(int argc, char **argv)
{
	static struct owner owners[THREADS];
	hwt_timeout others[LIVE];
	unsigned i;

	stress_begin("handles", argc, argv);
	timer = timer_create_ns(HWT_US(100), 512, 0);
	other_timer = timer_create_ns(HWT_MS(100), 512, 0);
	for (i = 0; i < LIVE; i++)
		stress_must(!hwt_new_timeout(other_timer, &others[i],
				never_task, NULL, HWT_SEC(3600)),
		    "hwt_new_timeout");
	for (i = 0; i < THREADS; i++) {
		owners[i].random = random_seed(i);
		owners[i].thread = stress_thread(owner_thread, &owners[i]);
	}
	for (i = 0; i < THREADS; i++)
		stress_join(owners[i].thread);
	for (i = 0; i < LIVE; i++)
		stress_check(!hwt_cancel(other_timer, others[i]),
		    "a timeout of the other timer is gone");
	stress_check(!hwt_pending_timeouts(timer), "pending at the end");
	stress_check(!hwt_stop(timer, NULL), "hwt_stop");
	stress_check(!hwt_stop(other_timer, NULL), "hwt_stop");
	stress_check(!hwt_destroy(timer), "hwt_destroy");
	stress_check(!hwt_destroy(other_timer), "hwt_destroy");
	return stress_end("%" PRIu64 " calls with dead handles, none succeeded",
	    (uint64_t)stale_calls);
}
