/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results that are ignored, of all functions that return an int: a compiler
 * warns of each line with MUST, and of no other, which the job header/ignored
 * looks at. Only compiled.
 */
#include "hwt.h"
#include "hwt_checkout.h"
#include "hwt_purgatory.h"

#ifndef MUST
#define MUST(call) call
#endif

void ignore_timer(struct hwt *timer, hwt_timeout timeout);
void ignore_executors(struct hwt_pool *pool, struct hwt_mailbox *mailbox);
void ignore_purgatory(struct hwt_purgatory *purgatory, hwt_operation operation);
void ignore_checkout(
    struct hwt_checkout *checkout, struct hwt_request *request);
void ignore_store(struct hwt_store *store, struct hwt_store_request *request);

void
ignore_timer(struct hwt *timer, hwt_timeout timeout)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	struct hwt_stats stats;
	uint64_t time;
	int64_t remaining;

	MUST(hwt_create(&timer, NULL));
	MUST(hwt_stop(timer, &unprocessed));
	MUST(hwt_stop_within(timer, 0, NULL));
	MUST(hwt_destroy(timer));
	MUST(hwt_shared(&timer));
	MUST(hwt_shared_shutdown(NULL));
	MUST(hwt_new_timeout(timer, NULL, NULL, NULL, 0));
	MUST(hwt_new_timeout_on(timer, NULL, NULL, NULL, NULL, 0));
	MUST(hwt_new_timeout_at(timer, NULL, NULL, NULL, NULL, 0));
	MUST(hwt_new_periodic(timer, NULL, NULL, NULL, NULL, 0, 1));
	MUST(hwt_new_timeouts(timer, 0, NULL, NULL));
	MUST(hwt_touch(timer, NULL, &timeout, NULL, NULL, 0));
	MUST(hwt_cancel(timer, timeout));
	MUST(hwt_cancel_wait(timer, timeout));
	/* These decide about nothing that anybody owns. */
	hwt_start(timer);
	hwt_unprocessed_next(&unprocessed, &info);
	hwt_reschedule(timer, timeout, 0);
	hwt_reschedule_at(timer, timeout, 0);
	hwt_run(timer, timeout);
	hwt_advance(timer, NULL);
	hwt_stats_write(timer, stderr, HWT_JSON);
	hwt_dump(timer, stderr);
	hwt_now(timer, &time);
	hwt_next_wakeup(timer, &time);
	hwt_remaining(timer, timeout, &remaining);
	hwt_state(timer, timeout, NULL);
	hwt_read_stats(timer, &stats);
}

void
ignore_executors(struct hwt_pool *pool, struct hwt_mailbox *mailbox)
{
	MUST(hwt_pool_create(&pool, 1, 0));
	MUST(hwt_pool_destroy(pool));
	MUST(hwt_mailbox_create(&mailbox));
	MUST(hwt_mailbox_destroy(mailbox));
	hwt_mailbox_run(mailbox, 0, NULL);
	hwt_mailbox_fd(mailbox);
}

void
ignore_purgatory(struct hwt_purgatory *purgatory, hwt_operation operation)
{
	struct hwt_operation_mailbox *mailbox;
	struct hwt_purgatory_stats stats;
	struct hwt_key key = {0, 0};

	MUST(hwt_purgatory_create(&purgatory, NULL, NULL));
	MUST(hwt_purgatory_watch(purgatory, &operation, NULL));
	MUST(hwt_purgatory_shutdown(purgatory));
	MUST(hwt_purgatory_destroy(purgatory));
	MUST(hwt_operation_reschedule(purgatory, operation, 0));
	MUST(hwt_operation_mailbox_create(&mailbox));
	MUST(hwt_operation_mailbox_destroy(mailbox));
	/* done is called with what was decided. */
	hwt_purgatory_check(purgatory, key, NULL);
	hwt_operation_complete(purgatory, operation);
	hwt_operation_cancel(purgatory, operation);
	hwt_purgatory_raise(purgatory, key, 0, NULL);
	hwt_purgatory_cancel_key(purgatory, key, NULL);
	hwt_operation_run(purgatory, operation);
	hwt_operation_mailbox_run(mailbox, 0, NULL);
	hwt_operation_mailbox_fd(mailbox);
	hwt_purgatory_read_stats(purgatory, &stats);
	hwt_purgatory_stats_write(purgatory, stderr, HWT_JSON);
	hwt_purgatory_count_key(purgatory, key, NULL);
	hwt_purgatory_list_key(purgatory, key, NULL, NULL, NULL);
}

void
ignore_checkout(struct hwt_checkout *checkout, struct hwt_request *request)
{
	struct hwt_request_mailbox *mailbox;
	struct hwt_checkout_stats stats;
	struct hwt_object object;
	struct hwt_group group;
	pthread_mutex_t mutex;

	MUST(hwt_checkout_create(&checkout, NULL, NULL));
	MUST(hwt_checkout_destroy(checkout));
	MUST(hwt_object_retire(checkout, NULL));
	MUST(hwt_group_retire(checkout, NULL));
	MUST(hwt_checkout_try(checkout, request));
	MUST(hwt_checkout_acquire(checkout, request, 0));
	MUST(hwt_checkout_acquire_wait(checkout, request, 0));
	MUST(hwt_checkout_acquire_wait_unlock(checkout, request, 0, &mutex));
	MUST(hwt_checkout_pause(checkout, 0));
	MUST(hwt_request_mailbox_create(&mailbox));
	MUST(hwt_request_mailbox_destroy(mailbox));
	/* granted is called with what was decided; or there is one answer for a
	 * correct program. */
	hwt_checkout_release(checkout, request);
	hwt_checkout_cancel(checkout, request);
	hwt_checkout_resume(checkout);
	hwt_checkout_shutdown(checkout);
	hwt_object_init(checkout, &object, 0);
	hwt_group_init(checkout, &group, 0);
	hwt_group_add(checkout, &group, &object);
	hwt_request_init(request, NULL, 0, NULL, NULL);
	hwt_request_init_items(request, NULL, 0, NULL, NULL);
	hwt_request_init_pause(checkout, request, NULL, 0, NULL, NULL);
	hwt_request_run(checkout, request);
	hwt_request_mailbox_run(mailbox, 0, NULL);
	hwt_request_mailbox_fd(mailbox);
	hwt_checkout_read_stats(checkout, &stats);
	hwt_checkout_stats_write(checkout, stderr, HWT_JSON);
	hwt_checkout_dump(checkout, stderr);
}

void
ignore_store(struct hwt_store *store, struct hwt_store_request *request)
{
	struct hwt_store_stats stats;

	MUST(hwt_store_create(&store, NULL, NULL));
	MUST(hwt_store_destroy(store));
	MUST(hwt_store_acquire(store, request, 0));
	MUST(hwt_store_acquire_wait(store, request, 0));
	/* As above. */
	hwt_store_request_init(store, request, NULL, 0, NULL, NULL);
	hwt_store_cancel(store, request);
	hwt_store_release(store, request);
	hwt_store_pin(store, request, 0, true);
	hwt_store_complete(store, NULL, 0, NULL);
	hwt_store_run(store, NULL);
	hwt_store_trim(store, 0);
	hwt_store_read_stats(store, &stats);
	hwt_store_stats_write(store, stderr, HWT_JSON);
	hwt_store_dump(store, stderr);
}
