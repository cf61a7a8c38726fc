/* SPDX-License-Identifier: Apache-2.0 */
/* A request's way through the library, by its caller: trying, acquiring with
 * and without a wait, releasing, cancelling. request.c has what goes on
 * meanwhile. */
#include <errno.h>

#include "checkout.h"

/* A request of this checkout. */
static inline int
enter_request(
    const struct hwt_checkout *checkout, const struct request *request)
{
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (request == NULL ||
	    (a64_load_acquire(&request->word) & MAGIC_MASK) != MAGIC ||
	    request->checkout != checkout)
		return -EINVAL;
	return 0;
}

static bool
request_move(struct request *request, enum state from, enum state to)
{
	return a64_cas_seq(&request->word, MAGIC | from, MAGIC | to);
}

/* It is in use: there is no upgrade of what it reads. */
static int
error_of_use(struct request *request)
{
	return request->flags & HAS_READS &&
		word_state(a64_load_acquire(&request->word)) == STATE_GRANTED
	    ? -ENOTSUP
	    : -EBUSY;
}

/* begin_try has answered that, and left it as it is. */
static bool
is_in_use(int error)
{
	return error == -EBUSY || error == -ENOTSUP;
}

int
grant_error(enum hwt_grant grant)
{
	switch (grant) {
	case HWT_GRANTED:
		return 0;
	case HWT_GRANT_EXPIRED:
		return -ETIMEDOUT;
	case HWT_GRANT_CANCELLED:
		return -ECANCELED;
	case HWT_GRANT_RETIRED:
		return -EIDRM;
	default:
		return -ESHUTDOWN;
	}
}

/* Tries a request that is READY. */
static int
begin_try(struct request *request, struct object **refused)
{
	enum hwt_grant grant;
	int error;

	if (!request_move(request, STATE_READY, STATE_TRYING))
		return error_of_use(request);
	request->held = 0;
	request->refusals = 0;
	*refused = &request->checkout->gate;
	if (request->flags & PAUSES_ALL) {
		error = pause_all_try(request);
		if (error == 0)
			request_store_granted(request);
		return error;
	}
	if (request->count == 0)
		return -EIDRM;
	*refused = request_try(request);
	if (*refused == NULL) {
		request_store_granted(request);
		return 0;
	}
	grant = refusal_of(*refused);
	return grant != 0 ? grant_error(grant) : -EAGAIN;
}

/* Refused, and it does not wait. */
static void
end_try(struct request *request)
{
	request_drop(request);
	if (request->refusals > 0 && request->flags & PAUSES_ALL)
		pause_all_end(request->checkout);
	request_store(request, STATE_READY);
}

int
hwt_checkout_try(struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct request *tried = (struct request *)request;
	struct object *refused;
	struct queue queue;
	int error = enter_request(checkout, tried);

	if (error != 0)
		return error;
	queue_begin(&queue);
	error = begin_try(tried, &refused);
	if (error != 0 && !is_in_use(error))
		end_try(tried);
	queue_end(&queue);
	return error;
}

/* Whoever retired an object before the request was listed did not find it:
 * then it is ended here, and does not wait for another one before. */
static struct object *
first_retired(const struct request *request, struct object *refused)
{
	uint32_t i;

	for (i = 0; i < request->count; i++) {
		if (a64_load_acquire(&object_at(request, i)->word) & RETIRED)
			return object_at(request, i);
	}
	return refused;
}

/* blocked: NULL, or this thread's; mutex: NULL, or the caller's. */
static int
acquire(struct request *request, uint64_t delay_ns, struct blocked *blocked,
    pthread_mutex_t *mutex)
{
	struct object *refused;
	struct queue queue;
	int error;

	queue_begin(&queue);
	error = begin_try(request, &refused);
	if (error == -EAGAIN && blocked != NULL && mutex == NULL) {
		refused = request_try_long(request, refused);
		if (refused == NULL) {
			request_store_granted(request);
			error = 0;
		}
	}
	if (error == -EAGAIN) {
		request->blocked = blocked;
		error = request_enlist(request, delay_ns);
		if (error == 0) {
			request_settle(
			    request, first_retired(request, refused));
			error = 1;
		}
	}
	if (error < 0 && !is_in_use(error))
		end_try(request);
	/* No object is looked at any more, but as one that waits does. */
	if (mutex != NULL)
		(void)pthread_mutex_unlock(mutex);
	queue_end(&queue);
	return error;
}

int
hwt_checkout_acquire(struct hwt_checkout *checkout, struct hwt_request *request,
    uint64_t delay_ns)
{
	struct request *acquired = (struct request *)request;
	int error = enter_request(checkout, acquired);

	if (error != 0)
		return error;
	if (acquired->granted == NULL || !delay_is_valid(delay_ns))
		return -EINVAL;
	return acquire(acquired, delay_ns, NULL, NULL);
}

/* Woken, the thread tries its request itself. */
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
			request_resume(request);
	} while (grant == 0);
	return grant;
}

static int
enter_blocking(const struct hwt_checkout *checkout,
    const struct request *request, uint64_t delay_ns)
{
	int error = enter_request(checkout, request);

	if (error != 0)
		return error;
	if (!delay_is_valid(delay_ns))
		return -EINVAL;
	return queue_in_granted() ? -EDEADLK : 0;
}

static int
acquire_wait(struct request *request, uint64_t delay_ns, pthread_mutex_t *mutex)
{
	struct blocked blocked = {.lock = PTHREAD_MUTEX_INITIALIZER,
	    .told = PTHREAD_COND_INITIALIZER};
	int result = acquire(request, delay_ns, &blocked, mutex);

	if (result != 1)
		return result;
	result = grant_error(await_grant(request, &blocked));
	(void)pthread_cond_destroy(&blocked.told);
	(void)pthread_mutex_destroy(&blocked.lock);
	return result;
}

int
hwt_checkout_acquire_wait(struct hwt_checkout *checkout,
    struct hwt_request *request, uint64_t delay_ns)
{
	struct request *acquired = (struct request *)request;
	int error = enter_blocking(checkout, acquired, delay_ns);

	return error != 0 ? error : acquire_wait(acquired, delay_ns, NULL);
}

int
hwt_checkout_acquire_wait_unlock(struct hwt_checkout *checkout,
    struct hwt_request *request, uint64_t delay_ns, pthread_mutex_t *mutex)
{
	struct request *acquired = (struct request *)request;
	int error;

	if (mutex == NULL)
		return -EINVAL;
	error = enter_blocking(checkout, acquired, delay_ns);
	if (error == 0)
		return acquire_wait(acquired, delay_ns, mutex);
	(void)pthread_mutex_unlock(mutex);
	return error;
}

int
hwt_request_run(struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct request *handed = (struct request *)request;
	int error = enter_request(checkout, handed);

	return error != 0 ? error : request_run(handed, 0);
}

int
hwt_checkout_release(struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct request *released = (struct request *)request;
	struct queue queue;
	int error = enter_request(checkout, released);

	if (error != 0)
		return error;
	if (!request_move(released, STATE_GRANTED, STATE_ENDED))
		return -ENOENT;
	request_unlist_granted(released);
	queue_begin(&queue);
	if (released->flags & PAUSES_ALL)
		pause_all_end(checkout);
	else
		request_give(released, 1);
	request_store(released, STATE_READY);
	queue_end(&queue);
	return 0;
}

int
hwt_checkout_cancel(struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct request *cancelled = (struct request *)request;
	struct queue queue;
	int error = enter_request(checkout, cancelled);

	if (error != 0)
		return error;
	queue_begin(&queue);
	error = request_stop(cancelled, HWT_GRANT_CANCELLED);
	queue_end(&queue);
	return error;
}
