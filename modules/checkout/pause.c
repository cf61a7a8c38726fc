/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pause: nothing is out, and nothing is granted until it is over.
 *
 * The gate is an object that the pause holds. What is granted is counted by the
 * shard of the request, and unloads of stores by one count. Only the pauser
 * declares the pause, from the sum of these counts, each of which it reads
 * after it has closed the gate:
 *
 *   E:pause  a grant                         the pauser
 *            (A1) count up                   (B1) close the gate
 *            (A2) read the gate; if it is    (B2) read the counts; if all are
 *                 closed, count down,             0, nothing is out
 *                 wait at the gate
 *
 *   Forbidden: A2 finds the gate open, and B2 a count without this grant. All
 *   four are seq. A count that is not 0 may be of a grant that is being taken
 *   back, so whoever counts down and finds the gate closed wakes the pauser.
 *   And what a holder wrote: release by counting down, acquire by B2.
 *
 * What a pool grants is counted under the lock of its shard, where the gate is
 * read, too. The pauser reads that count under the same lock: before the grant,
 * which then finds the gate closed, or after it.
 */
#include <errno.h>

#include "checkout.h"

/* What was released is read first: so what was out is not missed. */
uint64_t
count_out(struct hwt_checkout *checkout)
{
	uint64_t out = a64_load_seq(&checkout->unloads);
	struct shard *shard = checkout->shards;

	for (; shard < checkout->shards + checkout->shard_count; shard++) {
		out -= a64_load_seq(&shard->released);
		out += a64_load_seq(&shard->granted);
		shard_lock(shard);
		out += shard->pool_out;
		shard_unlock(shard);
	}
	return out;
}

void
pause_notify(struct hwt_checkout *checkout)
{
	(void)pthread_mutex_lock(&checkout->pause_lock);
	(void)pthread_cond_signal(&checkout->came_back);
	(void)pthread_mutex_unlock(&checkout->pause_lock);
}

struct pauser {
	struct hwt_checkout *checkout;
	a64_t expired;
};

static void
pause_expire(hwt_timeout timeout, void *arg)
{
	struct pauser *pauser = arg;

	(void)timeout;
	a64_or_seq(&pauser->expired, 1);
	pause_notify(pauser->checkout);
}

/* Under pause_lock. */
static bool
pause_has_begun(const struct hwt_checkout *checkout)
{
	return a64_load_seq(&checkout->gate.word) & IN_USE;
}

static int
pause_within(struct hwt_checkout *checkout, const struct pauser *pauser)
{
	int error = 0;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	if (is_shut_down(checkout))
		error = -ESHUTDOWN;
	else if (pause_has_begun(checkout))
		error = -EALREADY;
	if (error != 0) {
		(void)pthread_mutex_unlock(&checkout->pause_lock);
		return error;
	}
	/* E:pause fence: (B1), (B2) */
	a64_or_seq(&checkout->gate.word, IN_USE);
	while (count_out(checkout) != 0 && error == 0) {
		if (is_shut_down(checkout))
			error = -ESHUTDOWN;
		else if (a64_load_seq(&pauser->expired))
			error = -ETIMEDOUT;
		else
			(void)pthread_cond_wait(
			    &checkout->came_back, &checkout->pause_lock);
	}
	checkout->paused = error == 0;
	a64_count(&checkout->pauses, error == 0);
	if (error != 0)
		gate_open(checkout);
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	queue_run();
	return error;
}

int
hwt_checkout_pause(struct hwt_checkout *checkout, uint64_t delay_ns)
{
	struct pauser pauser = {.checkout = checkout};
	bool armed = delay_ns != 0 && delay_ns != HWT_NEVER;
	hwt_timeout timeout = {0};
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (!delay_is_valid(delay_ns))
		return -EINVAL;
	if (checkout_queue.calls)
		return -EDEADLK;
	/* First, so that a pause that cannot be closes no gate. */
	if (delay_ns == 0)
		a64_or_seq(&pauser.expired, 1);
	if (armed)
		error = hwt_new_timeout(
		    checkout->timer, &timeout, pause_expire, &pauser, delay_ns);
	if (error != 0)
		return error;
	error = pause_within(checkout, &pauser);
	if (armed)
		(void)!hwt_cancel_wait(checkout->timer, timeout);
	return error;
}

int
hwt_checkout_resume(struct hwt_checkout *checkout)
{
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	if (!pause_has_begun(checkout)) {
		error = -EALREADY;
	} else if (!checkout->paused) {
		error = -EBUSY;
	} else {
		checkout->paused = false;
		gate_open(checkout);
	}
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	queue_run();
	return error;
}
