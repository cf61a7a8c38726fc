/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has become of each timeout, as far as the answers tell: enough to know
 * that each ends exactly once and that no call denies one that lives.
 */
#include "test/fuzz/fuzz.h"

#include <stdio.h>

_Noreturn void
fuzz_object(const char *function, const char *condition)
{
	fprintf(stderr, "FAILED: %s: %s (call %u)\n", function, condition,
	    fuzz.calls);
	abort();
}

struct slot *
slot_of(unsigned timer, hwt_timeout handle)
{
	unsigned i;

	for (i = 0; i < fuzz.slot_count && handle.id != 0; i++) {
		if (fuzz.slots[i].timer == timer &&
		    fuzz.slots[i].handle.id == handle.id)
			return &fuzz.slots[i];
	}
	return NULL;
}

/* NULL: the input has used up what there is. */
struct slot *
slot_new(unsigned timer, bool periodic)
{
	struct slot *slot = &fuzz.slots[fuzz.slot_count];

	if (fuzz.slot_count == SLOTS)
		return NULL;
	fuzz.slot_count++;
	*slot =
	    (struct slot){.timer = timer, .periodic = periodic, .ended = true};
	return slot;
}

/* No two live ones have one handle. */
void
slot_accepted(struct slot *slot, hwt_timeout handle)
{
	require(slot_of(slot->timer, handle) == NULL);
	slot->handle = handle;
	slot->ended = false;
	fuzz.timers[slot->timer].accepted++;
}

void
slot_runs(struct slot *slot, hwt_timeout handle)
{
	require(!slot->ended && !slot->running);
	require(slot->handle.id == 0 || slot->handle.id == handle.id);
	require(slot->periodic || slot->started == 0);
	slot->handle = handle;
	slot->started++;
	slot->running = true;
	slot->held = false;
	slot->in_mailbox = false;
	slot->ending = false;
}

void
slot_ran(struct slot *slot)
{
	slot->running = false;
	if (!slot->periodic || slot->ending || fuzz.timers[slot->timer].stopped)
		slot->ended = true;
}

/* A call that denies a timeout must be right. */
static void
must_be_gone(const struct slot *slot)
{
	require(slot == NULL || slot->ended);
}

void
note_cancel(unsigned timer, hwt_timeout handle, int rc, bool waited)
{
	struct slot *slot = slot_of(timer, handle);

	switch (rc) {
	case 0:
		require(slot != NULL && !slot->ended && !slot->running);
		slot->ended = true;
		break;
	case -EINPROGRESS:
		require(!waited && slot != NULL && slot->running);
		slot->ending = true;
		break;
	case -EDEADLK:
		require(waited && slot != NULL && slot->running);
		break;
	default:
		require(rc == -ENOENT);
		must_be_gone(slot);
	}
}

void
note_reschedule(unsigned timer, hwt_timeout handle, int rc)
{
	const struct slot *slot = slot_of(timer, handle);

	switch (rc) {
	case 0:
		require(slot != NULL && !slot->ended && !slot->held);
		require(!slot->running || slot->periodic);
		break;
	case -EINPROGRESS:
		require(slot != NULL && (slot->running || slot->held));
		break;
	default:
		require(rc == -ENOENT);
		if (slot == NULL || !slot->running)
			must_be_gone(slot);
		else
			require(slot->ending || fuzz.timers[timer].stopped);
	}
}

void
note_remaining(unsigned timer, hwt_timeout handle, int rc)
{
	const struct slot *slot = slot_of(timer, handle);

	switch (rc) {
	case 0:
		require(slot != NULL && !slot->ended && !slot->running);
		break;
	case -EINPROGRESS:
		require(slot != NULL && slot->running);
		break;
	default:
		require(rc == -ENOENT);
		must_be_gone(slot);
	}
}

void
note_unprocessed(unsigned timer, struct hwt_unprocessed *unprocessed)
{
	struct hwt_timeout_info info;
	uint64_t count = 0;

	while (hwt_unprocessed_next(unprocessed, &info)) {
		struct slot *slot = info.arg;

		require(slot->timer == timer && !slot->ended && !slot->held &&
		    !slot->running);
		require(
		    slot->handle.id == 0 || slot->handle.id == info.timeout.id);
		slot->ended = true;
		count++;
	}
	require(count == unprocessed->count);
}

/* Executors keep what they hold. Of one without a handle that is not known; it
 * may still run. */
void
note_dropped(unsigned timer)
{
	unsigned i;

	for (i = 0; i < fuzz.slot_count; i++) {
		struct slot *slot = &fuzz.slots[i];

		if (slot->timer == timer && !slot->held && !slot->running &&
		    slot->handle.id != 0)
			slot->ended = true;
	}
}

void
note_all_ended(unsigned timer)
{
	const struct fuzz_timer *at = &fuzz.timers[timer];
	struct hwt_stats stats;
	unsigned i;

	require(hwt_read_stats(at->timer, &stats) == 0);
	require(stats.pending == 0 && hwt_pending_timeouts(at->timer) == 0);
	require(stats.scheduled == at->accepted);
	for (i = 0; i < fuzz.slot_count; i++) {
		const struct slot *slot = &fuzz.slots[i];

		require(slot->timer != timer || slot->ended ||
		    slot->handle.id == 0);
	}
}
