/* SPDX-License-Identifier: Apache-2.0 */
/* Pushing, and waking a worker that sleeps past the deadline. E:asleep,
 * E:called and E:sleep are drawn in worker.c, E:queue in mpsc_queue.c. */
#include "core/timer.h"

/* Manual timers: only the caller that clears wake_before calls wake. */
static void
wake_manual(struct hwt *timer, uint64_t due_ns)
{
	uint64_t before_ns;

	do {
		/* E:asleep fence */
		before_ns = a64_load_seq(&timer->wake_before);
		if (due_ns >= before_ns)
			return;
		/* E:called release */
	} while (!a64_cas_seq(&timer->wake_before, before_ns, 0));
	if (timer->wake.wake != NULL)
		timer->wake.wake(timer->wake.ctx);
}

/* The worker sleeps past due_ns. Each thread that finds this wakes the worker,
 * so that none relies on another that may be descheduled before its call. With
 * a cache of its own, a thread does so once per sleep. */
static NOINLINE void
wake_worker(struct hwt *timer, struct cache *cache, uint64_t due_ns)
{
	uint64_t sleep;

	if (timer->options.flags & HWT_MANUAL) {
		wake_manual(timer, due_ns);
		return;
	}
	/* If the worker has gone to sleep again since, this ends that sleep: it
	 * was announced before the increment below. E:sleep acquire */
	sleep = a64_load_acquire(&timer->announced_sequence);
	if (cache != NULL && !cache->shared) {
		if (cache->woken_sleep == sleep)
			return;
		cache->woken_sleep = sleep;
	}
	/* E:called release */
	(void)a64_add_seq(&timer->wake_sequence, 1);
	futex_wake(&timer->wake_sequence, 1);
}

static inline void
wake_worker_if_needed(struct hwt *timer, uint64_t due_ns)
{
	/* E:asleep fence */
	if (__builtin_expect(due_ns < a64_load_seq(&timer->wake_before), 0))
		wake_worker(timer, cache_of(timer), due_ns);
}

void
wake_worker_for_trim(struct hwt *timer)
{
	/* A thread that exits has no cache any more, and must not get one.
	 * E:asleep fence */
	if (!(timer->options.flags & HWT_MANUAL) &&
	    a64_load_seq(&timer->wake_before) != 0)
		wake_worker(timer, cache_at_hand(timer), 0);
}

static NOINLINE int
notify_slowly(struct hwt *timer, uint32_t index, uint64_t due_ns)
{
	if (mpsc_push(&timer->queue, index, due_ns) &&
	    !(timer->options.flags & HWT_MANUAL))
		due_ns = 0;
	wake_worker_if_needed(timer, due_ns);
	return 0;
}

int
timer_notify(struct hwt *timer, uint32_t index, uint64_t due_ns)
{
	if (!mpsc_is_pushed(&timer->queue, index, due_ns))
		return notify_slowly(timer, index, due_ns);
	wake_worker_if_needed(timer, due_ns);
	return 0;
}

bool
timer_retract(struct record *record, uint64_t id, uint64_t flags)
{
	uint64_t word;

	do {
		word = wide_word(&record->wide);
		if (!word_matches(word, id) ||
		    word_state(word) != STATE_PENDING ||
		    (word & flags) != flags)
			return false;
	} while (!wide_cas_word(&record->wide, word, word_freed(word)));
	return true;
}
