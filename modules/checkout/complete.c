/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that go on elsewhere: an executor's thread calls a job's callback, and
 * whoever was left with it by a callback ends it. */
#include <errno.h>

#include "store.h"

static struct store_entry *
entry_of_job(struct hwt_store_job *job)
{
	return (struct store_entry *)(uintptr_t)job;
}

int
hwt_store_run(struct hwt_store *store, struct hwt_store_job *job)
{
	struct store_entry *entry = entry_of_job(job);
	struct work work = {NULL, NULL};
	struct store_shard *shard;
	bool handed;
	int error = store_enter(store);

	if (error != 0)
		return error;
	if (job == NULL || entry_store(entry) != store)
		return -EINVAL;
	(void)a64_add_seq(&store->busy, 1);
	shard = entry_shard(entry);
	store_lock(shard);
	handed = entry->handed;
	entry->handed = false;
	entry->pending = entry->pending || handed;
	store_unlock(shard);
	if (handed) {
		job_call(&work, entry);
		work_do(store, &work);
	}
	(void)a64_add_seq(&store->busy, UINT64_MAX);
	return handed ? 0 : -ENOENT;
}

int
hwt_store_complete(struct hwt_store *store, struct hwt_store_job *job,
    int result, const struct hwt_loaded *loaded)
{
	static const struct hwt_loaded nothing = {NULL, 1};
	struct store_entry *entry = entry_of_job(job);
	struct work work = {NULL, NULL};
	struct store_shard *shard;
	bool pending;
	int error = store_enter(store);

	if (error != 0)
		return error;
	if (job == NULL || entry_store(entry) != store || result > 0)
		return -EINVAL;
	(void)a64_add_seq(&store->busy, 1);
	shard = entry_shard(entry);
	store_lock(shard);
	pending = entry->pending;
	entry->pending = false;
	store_unlock(shard);
	if (pending) {
		job_ended(
		    &work, entry, result, loaded != NULL ? loaded : &nothing);
		work_do(store, &work);
	}
	(void)a64_add_seq(&store->busy, UINT64_MAX);
	return pending ? 0 : -ENOENT;
}
