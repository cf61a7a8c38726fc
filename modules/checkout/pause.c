/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pausing a whole checkout.
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
#include <errno.h>

#include "checkout.h"

/* With pause_lock, when the sum was 0. It may rise again for a moment: who
 * comes is counted before he reads the gate. */
static void
pause_note(struct hwt_checkout *checkout)
{
	checkout->paused = true;
	(void)a64_add_seq(&checkout->pauses, 1);
}

/* With pause_lock. */
static bool
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
		request_end(granted, HWT_GRANTED);
}

/* A call of hwt_checkout_pause; another may begin before its timeout has ended,
 * when another thread resumes. */
struct pauser {
	struct hwt_checkout *checkout;
	bool expired; /* under pause_lock */
};

static void
pause_expire(hwt_timeout timeout, void *arg)
{
	struct pauser *pauser = arg;
	struct hwt_checkout *checkout = pauser->checkout;

	(void)timeout;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	pauser->expired = true;
	(void)pthread_cond_signal(&checkout->came_back);
	(void)pthread_mutex_unlock(&checkout->pause_lock);
}

/* Closes the gate. */
static int
pause_begin(struct hwt_checkout *checkout, bool is_told)
{
	int error = 0;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	if (is_shut_down(checkout))
		error = -ESHUTDOWN;
	else if (checkout->pause_begun)
		error = -EALREADY;
	if (error == 0) {
		checkout->pause_begun = true;
		checkout->pause_is_told = is_told;
		/* E:pause fence: close the gate, then read in_flight. */
		a64_or_seq(&checkout->gate.word, IN_USE);
	}
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (error == 0)
		requests_let_go(checkout);
	return error;
}

/* Until nothing is out. */
static int
pause_await(const struct pauser *pauser)
{
	struct hwt_checkout *checkout = pauser->checkout;
	bool paused;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	paused = pause_declare(checkout);
	while (!paused && !pauser->expired && !is_shut_down(checkout)) {
		(void)pthread_cond_wait(
		    &checkout->came_back, &checkout->pause_lock);
		paused = pause_declare(checkout);
	}
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (!paused)
		return is_shut_down(checkout) ? -ESHUTDOWN : -ETIMEDOUT;
	return 0;
}

static void
pause_end(struct hwt_checkout *checkout)
{
	struct queue queue;

	queue_begin(&queue);
	gate_open(checkout);
	(void)pthread_mutex_lock(&checkout->pause_lock);
	checkout->pause_begun = false;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	queue_end(&queue);
}

int
pause_all_try(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	int error = pause_begin(checkout, true);
	bool paused;

	if (error != 0)
		return error;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	paused = pause_declare(checkout);
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	/* Now the pause is its own, to be ended. */
	request->refusals = 1;
	return paused ? 0 : -EAGAIN;
}

void
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
	if (!waits)
		request_end(request, grant);
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
	pause_end(checkout);
}

static int
pause_within(struct pauser *pauser)
{
	int error = pause_begin(pauser->checkout, false);

	if (error != 0)
		return error;
	error = pause_await(pauser);
	if (error != 0)
		pause_end(pauser->checkout);
	return error;
}

int
hwt_checkout_pause(struct hwt_checkout *checkout, uint64_t delay_ns)
{
	struct pauser pauser = {checkout, delay_ns == 0};
	bool armed = delay_ns != 0 && delay_ns != HWT_NEVER;
	hwt_timeout timeout = {0};
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (!delay_is_valid(delay_ns))
		return -EINVAL;
	if (queue_in_granted())
		return -EDEADLK;
	/* First, so that a pause that cannot be closes no gate. */
	if (armed)
		error = hwt_new_timeout(
		    checkout->timer, &timeout, pause_expire, &pauser, delay_ns);
	if (error != 0)
		return error;
	error = pause_within(&pauser);
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
	if (!checkout->pause_begun)
		error = -EALREADY;
	else if (!checkout->paused || checkout->pause_is_told)
		error = -EBUSY;
	else
		checkout->paused = false;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (error == 0)
		pause_end(checkout);
	return error;
}
