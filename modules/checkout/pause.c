/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing a whole checkout: the calls. gate.c says how it is found that nothing
 * is out. */
#include <errno.h>

#include "checkout.h"

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
	pause_open(checkout);
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
