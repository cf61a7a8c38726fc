/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reschedules that pull in, ten million times: memory stays flat.
 *
 * Two threads hold 1000 timeouts each, hours away. Half of these are pulled in
 * by a tick each time, so that each call brings a deadline that is earlier
 * than all before; the others go out and in by turns. A queue entry for each
 * call would be 80 MB. Memory after a tenth of the calls and at the end may
 * differ by 1 MiB: a tenth of a byte per call, yet enough for the buckets
 * which the deadlines come through on their way to hold a piece of memory
 * each. In the end each timeout must still be there once.
 */
#include "stress.h"

enum {
	CALLS = 10000000,
	THREADS = 2,
	TIMEOUTS = 1000,
	GROWTH_MAX = 1 << 20
};

struct puller {
	struct hwt *timer;
	hwt_timeout timeouts[TIMEOUTS];
	uint64_t calls;
	struct memory early;
	pthread_t thread;
};

static const uint64_t tick_ns = HWT_MS(10);

static uint64_t
delay_of_turn(unsigned timeout, uint64_t turn)
{
	uint64_t far_ns = HWT_SEC(360000);

	if (timeout % 2)
		return far_ns - turn * tick_ns;
	return turn % 2 ? far_ns / 2 : far_ns;
}

static void *
puller_thread(void *arg)
{
	struct puller *puller = arg;
	uint64_t call, turn;
	unsigned timeout;
	int error;

	for (call = 0; call < puller->calls; call++) {
		timeout = (unsigned)(call % TIMEOUTS);
		turn = 1 + call / TIMEOUTS;
		error = hwt_reschedule(puller->timer, puller->timeouts[timeout],
		    delay_of_turn(timeout, turn));
		stress_must(!error, "hwt_reschedule: %d", error);
		if (call == puller->calls / 10)
			puller->early = memory_now(puller->timer);
	}
	return NULL;
}

int
main(int argc, char **argv)
{
	static struct puller pullers[THREADS];
	struct hwt *timer;
	struct memory late;
	unsigned i, k;

	stress_begin("pull_in_flat", argc, argv);
	timer = timer_create_ns(tick_ns, 512, 0);
	for (i = 0; i < THREADS; i++) {
		pullers[i].timer = timer;
		pullers[i].calls = stress_scaled(CALLS) / THREADS;
		for (k = 0; k < TIMEOUTS; k++)
			stress_must(
			    !hwt_new_timeout(timer, &pullers[i].timeouts[k],
				never_task, NULL, delay_of_turn(k, 0)),
			    "hwt_new_timeout");
	}
	probe_wait(timer);
	stress_phase("pull in", 0);
	for (i = 0; i < THREADS; i++)
		pullers[i].thread = stress_thread(puller_thread, &pullers[i]);
	for (i = 0; i < THREADS; i++)
		stress_join(pullers[i].thread);
	late = memory_now(timer);
	memory_check("pull in", pullers[0].early, late, GROWTH_MAX);
	stress_check(hwt_pending_timeouts(timer) == THREADS * TIMEOUTS,
	    "%" PRIu64 " pending", hwt_pending_timeouts(timer));
	for (i = 0; i < THREADS; i++)
		for (k = 0; k < TIMEOUTS; k++)
			stress_check(!hwt_cancel(timer, pullers[i].timeouts[k]),
			    "timeout %u of thread %u is gone", k, i);
	stress_check(!hwt_stop(timer, NULL), "hwt_stop");
	stress_check(!hwt_destroy(timer), "hwt_destroy");
	return stress_end("%" PRIu64 " reschedules, memory_bytes %" PRIu64
			  ", then %" PRIu64,
	    pullers[0].calls * THREADS, pullers[0].early.timer_bytes,
	    late.timer_bytes);
}
