/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate that a pause closes, and whether anything is out.
 *
 * A pause closes the gate, and then nothing is out when the sum of in_flight
 * over all shards is 0: a request is counted before it reads the gate for the
 * last time, and until all that it held is released (E:pause in request.c).
 * Only the thread that pauses decides that; whoever counts down and finds the
 * gate closed tells it to look again. The gate is an object that the pause
 * holds: what meets it waits there.
 *
 * A PAUSE THAT IS TOLD is a request that pauses all. Whoever counts down then
 * looks for the sum himself, under pause_lock, and grants the request if it is
 * 0. The request becomes WAITING, and pauser, under that lock as well, when it
 * has found the sum not to be 0: so one of the two finds it. Whoever ends its
 * wait otherwise takes it from pauser under the lock before its memory can be
 * the caller's, and opens the gate.
 */
#include "checkout.h"

uint64_t
count_in_flight(const struct hwt_checkout *checkout)
{
	uint64_t count = 0;
	uint32_t i;

	for (i = 0; i < checkout->shard_count; i++)
		/* E:pause acquire */
		count += a64_load_seq(&checkout->shards[i].in_flight) &
		    IN_FLIGHT_MASK;
	return count;
}

/* With pause_lock, when the sum was 0. It may rise again for a moment: who
 * comes is counted before he reads the gate. */
static void
pause_note(struct hwt_checkout *checkout)
{
	checkout->paused = true;
	(void)a64_add_seq(&checkout->pauses, 1);
}

bool
pause_declare(struct hwt_checkout *checkout)
{
	if (count_in_flight(checkout) != 0)
		return false;
	pause_note(checkout);
	return true;
}

void
pause_notify(struct hwt_checkout *checkout)
{
	struct request *granted = NULL;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	(void)pthread_cond_signal(&checkout->came_back);
	if (checkout->pauser != NULL && count_in_flight(checkout) == 0 &&
	    request_grant(checkout->pauser)) {
		granted = checkout->pauser;
		checkout->pauser = NULL;
		pause_note(checkout);
	}
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (granted != NULL)
		request_finish(granted, HWT_GRANTED);
}

void
pause_open(struct hwt_checkout *checkout)
{
	gate_open(checkout);
	(void)pthread_mutex_lock(&checkout->pause_lock);
	checkout->pause_begun = false;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
}

enum hwt_grant
pause_all_settle(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	enum hwt_grant grant = HWT_GRANTED;
	bool waits = false;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	if (!pause_declare(checkout)) {
		waits = request_enter_wait(request);
		if (waits)
			checkout->pauser = request;
		else
			grant = word_grant(a64_load_acquire(&request->word));
	}
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	return waits ? (enum hwt_grant)0 : grant;
}

void
pause_all_unlink(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;

	/* It is pauser: there is one pause at a time. */
	(void)pthread_mutex_lock(&checkout->pause_lock);
	checkout->pauser = NULL;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
}

void
pause_all_end(struct hwt_checkout *checkout)
{
	(void)pthread_mutex_lock(&checkout->pause_lock);
	checkout->paused = false;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	pause_open(checkout);
}
