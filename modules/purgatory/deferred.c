/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deferred operations: a call has called predicates AGAIN_MAX times for events
 * of others, and would go on as long as others are faster than it.
 *
 * Whoever defers an operation drops RUN and keeps AGAIN in one change of its
 * word, which gets DEFERRED. From then on the next event that comes becomes the
 * owner, as with any idle word, and looks. If none comes, a timeout's task does
 * so at the next tick: the one that defers puts the operation into the list
 * that this task goes through, and arms it. So nobody waits, and the event that
 * set AGAIN is followed by a predicate that begins after it.
 *
 * DEFERRED says that the operation is in the list, or about to be put there. If
 * it cannot be there (no memory, the timer refuses, shutdown), the call takes
 * it back unless somebody else has, and defers nothing any more: it keeps on.
 *
 *        defers                               goes through the list
 *        ------                               ---------------------
 *   (A1) drop RUN, set DEFERRED          (B1) take the list, under the lock
 *   (A2) add it to the list              (B2) clear DEFERRED; if AGAIN is set
 *                                             and RUN is not, become the owner
 *
 *   Forbidden: AGAIN without RUN, and nobody will come to B2. Only A1 makes
 *   such a word. If it sets DEFERRED, A2 follows, and B2 after that; if
 *   DEFERRED was set, the B2 that clears it is still to come.
 *
 * The list has handles: a record may have become another operation's meanwhile,
 * and is not found then.
 *
 * LAST ACCESS. armed is the number of the timeout that is to come, or whose
 * task runs; it becomes 0 with that task's last access. users are those who arm
 * one: at the end of a task, too, when the next task may have ended already.
 * hwt_purgatory_shutdown waits for both. A timeout that can neither be
 * cancelled nor comes any more has gone with its timer, which was stopped.
 */
#include <stdlib.h>

#include "operation.h"

struct deferred {
	struct deferred *next;
	uint64_t id;
};

static hwt_task sweep;

/* Clears DEFERRED. True: the caller has become the owner. */
static bool
take_back(struct operation *operation, uint64_t id)
{
	uint64_t word, next;

	do {
		word = a64_load_acquire(&operation->word);
		if (!word_is_open(word, id))
			return false;
		next = word & ~DEFERRED;
		if ((word & (RUN | AGAIN)) == AGAIN)
			next |= RUN;
	} while (!a64_cas_seq(&operation->word, word, next));
	return next & ~word & RUN;
}

static bool
look_at(struct hwt_purgatory *purgatory, uint64_t id)
{
	struct operation *operation = operation_at(purgatory, id);

	return take_back(operation, id) && operation_own(operation, false);
}

static void
list_visit(struct hwt_purgatory *purgatory)
{
	struct deferred_list *list = &purgatory->deferred;
	struct deferred *each, *next;

	(void)pthread_mutex_lock(&list->lock);
	each = list->first;
	list->first = NULL;
	(void)pthread_mutex_unlock(&list->lock);
	for (; each != NULL; each = next) {
		next = each->next;
		(void)look_at(purgatory, each->id);
		call_flush(call_of(purgatory));
		free(each);
	}
}

/* The caller does what a timeout's task would. True: nothing is deferred. */
static bool
list_visit_now(struct hwt_purgatory *purgatory)
{
	struct deferred_list *list = &purgatory->deferred;
	struct call call;
	bool empty;

	call_begin(&call, purgatory);
	call_keep_on(purgatory);
	list_visit(purgatory);
	call_end(&call);
	(void)pthread_mutex_lock(&list->lock);
	empty = list->first == NULL;
	if (empty) {
		list->armed = 0;
		list->users--;
	}
	(void)pthread_mutex_unlock(&list->lock);
	return empty;
}

/* For a user, who is none any more then. number: what it has set armed to. */
static void
list_arm(struct hwt_purgatory *purgatory, uint64_t number)
{
	struct deferred_list *list = &purgatory->deferred;
	hwt_timeout timeout;

	while (hwt_new_timeout(
		   purgatory->timer, &timeout, sweep, purgatory, 0) != 0) {
		if (list_visit_now(purgatory))
			return;
	}
	(void)pthread_mutex_lock(&list->lock);
	/* Otherwise its task has ended already. */
	if (list->armed == number)
		list->timeout = timeout;
	list->users--;
	(void)pthread_mutex_unlock(&list->lock);
}

/* With the lock held. The number for list_arm. */
static uint64_t
list_begin(struct deferred_list *list)
{
	list->armed = ++list->armings;
	list->users++;
	return list->armed;
}

/* The timeout's task. It calls each predicate once. */
static void
sweep(hwt_timeout timeout, void *arg)
{
	struct hwt_purgatory *purgatory = arg;
	struct deferred_list *list = &purgatory->deferred;
	uint64_t number = 0;
	struct call call;

	(void)timeout;
	call_begin(&call, purgatory);
	call_be_tired(purgatory);
	list_visit(purgatory);
	call_end(&call);
	(void)pthread_mutex_lock(&list->lock);
	if (list->first != NULL)
		number = list_begin(list);
	else
		list->armed = 0;
	(void)pthread_mutex_unlock(&list->lock);
	if (number != 0)
		list_arm(purgatory, number);
}

static bool
list_add(struct hwt_purgatory *purgatory, uint64_t id)
{
	struct deferred_list *list = &purgatory->deferred;
	struct deferred *added = malloc(sizeof(*added));
	uint64_t number = 0;
	bool closed;

	if (added == NULL)
		return false;
	added->id = id;
	(void)pthread_mutex_lock(&list->lock);
	closed = list->closed;
	if (!closed) {
		added->next = list->first;
		list->first = added;
		if (list->armed == 0)
			number = list_begin(list);
	}
	(void)pthread_mutex_unlock(&list->lock);
	if (closed)
		free(added);
	if (number != 0)
		list_arm(purgatory, number);
	return !closed;
}

bool
operation_defer(struct operation *operation, uint64_t word, bool *completed)
{
	struct hwt_purgatory *purgatory = operation->home->purgatory;
	uint64_t id = word_id(word, operation->index);

	/* E:spec release */
	if (!a64_cas_seq(&operation->word, word, (word & ~RUN) | DEFERRED))
		return false;
	if (!(word & DEFERRED) && !list_add(purgatory, id)) {
		call_keep_on(purgatory);
		*completed = look_at(purgatory, id);
	}
	return true;
}

static void
list_free(struct deferred_list *list)
{
	struct deferred *first;

	while ((first = list->first) != NULL) {
		list->first = first->next;
		free(first);
	}
}

void
deferred_close(struct hwt_purgatory *purgatory)
{
	(void)pthread_mutex_lock(&purgatory->deferred.lock);
	purgatory->deferred.closed = true;
	(void)pthread_mutex_unlock(&purgatory->deferred.lock);
}

/* Cancels the timeout, or finds that it has gone. */
static void
list_disarm(
    struct hwt_purgatory *purgatory, hwt_timeout timeout, uint64_t number)
{
	struct deferred_list *list = &purgatory->deferred;
	int error = hwt_cancel_wait(purgatory->timer, timeout);

	(void)error; /* either way it does not run */
	(void)pthread_mutex_lock(&list->lock);
	if (list->armed == number) {
		list_free(list);
		list->armed = 0;
	}
	(void)pthread_mutex_unlock(&list->lock);
}

bool
deferred_await(struct hwt_purgatory *purgatory)
{
	struct deferred_list *list = &purgatory->deferred;
	hwt_timeout timeout;
	uint64_t number;
	bool used;

	(void)pthread_mutex_lock(&list->lock);
	timeout = list->timeout;
	number = list->armed;
	used = list->users > 0;
	(void)pthread_mutex_unlock(&list->lock);
	if (number != 0 && !used)
		list_disarm(purgatory, timeout, number);
	return number == 0 && !used;
}

/* In a forked child. */
void
deferred_free(struct hwt_purgatory *purgatory)
{
	if (pthread_mutex_trylock(&purgatory->deferred.lock) == 0)
		list_free(&purgatory->deferred);
}
