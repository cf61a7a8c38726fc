/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deadline of an operation: its timeout's task, and moving it.
 *
 * An operation that has a timeout keeps it: the timer moves that, and says
 * whether its task had begun before. The caller need not be the owner. It finds
 * the timeout in the record, and the word tells whose that was: watch stores 0
 * there before it stores the word, and an operation that ends changes the word
 * before the record has another timeout. So with the handle's generation before
 * and after the timeout was read, it is this operation's; or 0, and the caller
 * waits for watch, which is about to arm it, and calls nobody before that.
 *
 * An operation without a deadline gets a timeout that is never due, which is
 * then moved. Between the two, ARMING in its word keeps the record: the owner
 * of one that has ended waits until the timeout is in the record, so that it
 * can be cancelled. That takes a few instructions, which call nobody, under a
 * lock of their own: whoever finds ARMING takes that lock once.
 *
 *        reschedules                          ends it, and is the owner
 *        -----------                          -------------------------
 *   (A1) under the lock: set ARMING,     (B1) set the outcome
 *        if no outcome is set            (B2) if ARMING is set, wait for the
 *   (A2) store the timeout                    lock
 *   (A3) clear ARMING, set ARMED         (B3) if ARMED is set, cancel the
 *                                             timeout; free the record
 *
 *   Forbidden: B3 does not cancel a timeout that A2 stores. A1 and B1 change
 *   one word: if B1 is first, there is no A2; otherwise B2 finds ARMING, or
 *   ARMED already.
 *
 * EDGES
 *   E:timeout the timeout in a record: release by its store in A2 and in watch,
 *             acquire by whoever reads it, before it reads the word once more.
 */
#include <errno.h>

#include "core/pause.h"
#include "operation.h"
#include "probe.h"

void
operation_expire(hwt_timeout timeout, void *arg)
{
	struct operation *operation = arg;
	struct call call;
	uint64_t word;

	(void)timeout;
	call_begin(&call, operation->home->purgatory);
	(void)operation_decide(
	    operation, operation_handle(operation).id, HWT_EXPIRED);
	call_end(&call);
	do {
		word = a64_load_acquire(&operation->word);
		if (!(word & LIVE)) {
			operation_free_locked(operation, word);
			return;
		}
	} while (!a64_cas_seq(&operation->word, word, word & ~ARMED));
}

static bool
is_open(struct operation *operation, uint64_t id)
{
	return word_is_open(a64_load_acquire(&operation->word), id);
}

/* False: it has ended, or has got a timeout meanwhile. */
static bool
arming_begin(struct operation *operation, uint64_t id)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&operation->word);
		if (!word_is_open(word, id) || (word & ARMED))
			return false;
	} while (!a64_cas_seq(&operation->word, word, word | ARMING));
	return true;
}

/* Gives it a timeout that is never due. 0 also where it did not need that. */
static int
operation_arm(
    struct hwt_purgatory *purgatory, struct operation *operation, uint64_t id)
{
	hwt_timeout timeout;
	int error = hwt_new_timeout(
	    purgatory->timer, &timeout, operation_expire, operation, HWT_NEVER);
	bool begun;

	if (error != 0)
		return error;
	(void)pthread_mutex_lock(&purgatory->arming);
	begun = arming_begin(operation, id);
	if (begun) {
		/* E:timeout release */
		a64_store_release(&operation->timeout, timeout.id);
		operation_change(operation, ARMING, ARMED);
	}
	(void)pthread_mutex_unlock(&purgatory->arming);
	/* Either way it is gone: it is not due. */
	if (!begun)
		error = hwt_cancel(purgatory->timer, timeout);
	(void)error;
	return 0;
}

/* Of an operation with a timeout. */
static int
operation_move(struct hwt_purgatory *purgatory, struct operation *operation,
    uint64_t id, uint64_t delay_ns)
{
	hwt_timeout timeout;
	int error;

	/* E:timeout acquire */
	timeout.id = a64_load_acquire(&operation->timeout);
	if (!is_open(operation, id))
		return -ENOENT;
	error = hwt_reschedule(purgatory->timer, timeout, delay_ns);
	/* Whoever has ended it cancels the timeout, moved or not. */
	if (!is_open(operation, id) || error == -EINPROGRESS)
		return -ENOENT;
	/* It would not be open if the task had ended. */
	return error == -ENOENT ? -ESHUTDOWN : error;
}

static int
reschedule(struct hwt_purgatory *purgatory, struct operation *operation,
    uint64_t id, uint64_t delay_ns)
{
	uint64_t word;
	int error;

	for (;;) {
		word = a64_load_acquire(&operation->word);
		if (!word_is_open(word, id))
			return -ENOENT;
		if (!(word & ARMED)) {
			if (delay_ns == HWT_NEVER)
				return 0;
			error = operation_arm(purgatory, operation, id);
			if (error != 0)
				return error;
		} else if (a64_load_acquire(&operation->timeout) == 0) {
			pause_shortly();
		} else {
			return operation_move(
			    purgatory, operation, id, delay_ns);
		}
	}
}

int
hwt_operation_reschedule(
    struct hwt_purgatory *purgatory, hwt_operation operation, uint64_t delay_ns)
{
	struct operation *found;
	int error = purgatory_enter(purgatory);

	if (error != 0)
		return error;
	if (!delay_is_valid(delay_ns))
		return -EINVAL;
	found = operation_at(purgatory, operation.id);
	error = found == NULL
	    ? -ENOENT
	    : reschedule(purgatory, found, operation.id, delay_ns);
	if (error == 0)
		OPERATION_PROBE(reschedule, purgatory, operation.id, delay_ns);
	return error;
}
