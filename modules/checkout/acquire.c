/* SPDX-License-Identifier: Apache-2.0 */
/* A request's calls: try, acquire, release, cancel. */
#include <errno.h>

#include "checkout.h"

/* Of a thread, at an object that refused, before it sleeps. */
#ifndef LOOKS
#define LOOKS 100u
#endif

/* The state, or an error. */
static int
enter(const struct hwt_checkout *checkout, const struct request *request)
{
	int error = checkout_enter(checkout);
	uint64_t word;

	if (error != 0)
		return error;
	if (request == NULL)
		return -EINVAL;
	word = a64_load_acquire(&request->word);
	if ((word & MAGIC_MASK) != MAGIC || request->checkout != checkout)
		return -EINVAL;
	return (int)word_state(word);
}

int
grant_error(enum hwt_grant grant)
{
	static const int errors[] = {[HWT_GRANTED] = 0,
	    [HWT_GRANT_EXPIRED] = -ETIMEDOUT,
	    [HWT_GRANT_CANCELLED] = -ECANCELED,
	    [HWT_GRANT_RETIRED] = -EIDRM,
	    [HWT_GRANT_SHUT_DOWN] = -ESHUTDOWN};

	return errors[grant];
}

/* READY, it is tried. 0: it is granted; otherwise it is TRYING. */
static int
begin(struct request *request, int64_t *tried)
{
	if (request->count == 0)
		return -EIDRM;
	request->held = 0;
	request->refusals = 0;
	request_store(request, STATE_TRYING);
	*tried = request_try(request);
	if (*tried != TRIED_ALL)
		return grant_error(refusal_of(request, *tried));
	request_store(request, STATE_GRANTED);
	return 0;
}

int
hwt_checkout_try(struct hwt_checkout *checkout, struct hwt_request *user)
{
	struct request *request = (struct request *)user;
	int state = enter(checkout, request), error;
	int64_t tried = TRIED_ALL;

	if (state != STATE_READY)
		return state < 0 ? state : -EBUSY;
	error = begin(request, &tried);
	if (tried != TRIED_ALL) {
		request_abandon(request);
		if (error == 0)
			error = -EAGAIN;
	}
	queue_run();
	return error;
}

/* blocked: NULL, or this thread's. 1: it waits, or has ended since. */
static int
acquire(struct request *request, uint64_t delay_ns, struct blocked *blocked)
{
	int64_t tried = TRIED_ALL;
	int error = begin(request, &tried);

	if (tried == TRIED_ALL)
		return error;
	if (blocked != NULL) {
		tried = request_look(request, tried, LOOKS);
		if (tried == TRIED_ALL) {
			request_store(request, STATE_GRANTED);
			return 0;
		}
		request->blocked = blocked;
		request_change(request, 0, BLOCKING);
	}
	if (error == 0)
		error = request_begin(request, delay_ns);
	if (error != 0) {
		request_abandon(request);
		return error;
	}
	request_go_on(request, tried);
	return 1;
}

int
hwt_checkout_acquire(
    struct hwt_checkout *checkout, struct hwt_request *user, uint64_t delay_ns)
{
	struct request *request = (struct request *)user;
	int state = enter(checkout, request), result;

	if (state < 0 || !delay_is_valid(delay_ns))
		return state < 0 ? state : -EINVAL;
	if (state != STATE_READY)
		return -EBUSY;
	result = acquire(request, delay_ns, NULL);
	queue_run();
	return result;
}

/* Of a request that has begun to wait without a thread: this one waits now, or
 * gets what was kept. 0: it waits. */
static enum hwt_grant
attach(struct request *request, struct blocked *blocked)
{
	enum hwt_grant grant;
	uint64_t word;

	request->blocked = blocked;
	do {
		/* E:request acquire */
		word = a64_load_acquire(&request->word);
		if (word & KEPT) {
			grant = word_outcome(word);
			request_store(request,
			    grant == HWT_GRANTED ? STATE_GRANTED : STATE_READY);
			return grant;
		}
		/* E:request release: of blocked */
	} while (!a64_cas_seq(&request->word, word, word | BLOCKING));
	return (enum hwt_grant)0;
}

/* Sleeps, and tries the request when it was woken for that. */
static enum hwt_grant
await_grant(struct request *request, struct blocked *blocked)
{
	enum hwt_grant grant;
	bool woken;

	do {
		(void)pthread_mutex_lock(&blocked->lock);
		while (!blocked->woken && blocked->grant == 0)
			(void)pthread_cond_wait(&blocked->told, &blocked->lock);
		grant = blocked->grant;
		woken = blocked->woken;
		blocked->woken = false;
		(void)pthread_mutex_unlock(&blocked->lock);
		if (woken)
			request_resume(request, LOOKS);
		queue_run();
	} while (grant == 0);
	return grant;
}

int
hwt_checkout_acquire_wait(
    struct hwt_checkout *checkout, struct hwt_request *user, uint64_t delay_ns)
{
	struct request *request = (struct request *)user;
	struct blocked blocked = {.lock = PTHREAD_MUTEX_INITIALIZER,
	    .told = PTHREAD_COND_INITIALIZER};
	int state = enter(checkout, request), result = 1;
	enum hwt_grant grant = 0;

	if (state < 0 || !delay_is_valid(delay_ns))
		return state < 0 ? state : -EINVAL;
	if (checkout_queue.in_granted)
		return -EDEADLK;
	if (state == STATE_READY) {
		result = acquire(request, delay_ns, &blocked);
		queue_run();
	} else if (state == STATE_GRANTED || request->granted != NULL ||
	    a64_load_acquire(&request->word) & BLOCKING) {
		return -EBUSY;
	} else {
		grant = attach(request, &blocked);
	}
	if (result != 1)
		return result;
	if (grant == 0)
		grant = await_grant(request, &blocked);
	(void)pthread_cond_destroy(&blocked.told);
	(void)pthread_mutex_destroy(&blocked.lock);
	return grant_error(grant);
}

int
hwt_checkout_release(struct hwt_checkout *checkout, struct hwt_request *user)
{
	struct request *request = (struct request *)user;
	int state = enter(checkout, request);

	if (state != STATE_GRANTED)
		return state < 0 ? state : -ENOENT;
	request_store(request, STATE_READY);
	while (request->held > 0)
		object_give(request, --request->held);
	out_end(checkout, request, 1);
	queue_run();
	return 0;
}

int
hwt_checkout_cancel(struct hwt_checkout *checkout, struct hwt_request *user)
{
	struct request *request = (struct request *)user;
	int result = enter(checkout, request);

	if (result < 0)
		return result;
	result = request_end(request, HWT_GRANT_CANCELLED);
	queue_run();
	return result;
}
