/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real threads on a store, on a timer with a worker. A value is allocated by
 * its load and freed by its unload, and its owner is written without atomics,
 * so that the sanitizers find two holders, and what is used after its unload.
 *
 *   clients    random sets, to write and to read, waits with and without a
 *              thread, deadlines and cancels
 *   jobs       loads that fail, unloads that refuse, both now, later by another
 *              thread, or through an executor that refuses some
 *   unloads    by a limit, by time, by trim
 *   pauses     in which nothing is out and no unload runs
 *   dumps      of the store and of the checkout
 *
 * In the end all that was loaded is unloaded, and each wait was told once.
 */
#include "test/stress/stress.h"

#include "modules/checkout/hwt_checkout.h"

enum {
	CLIENTS = 4,
	KEYS = 48,
	SET_MAX = 4,
	TURNS = 20000,
	LIMIT = 24
};

static struct hwt *timer;
static struct hwt_checkout *checkout;
static struct hwt_store *store;

struct value {
	uint32_t key;
	const void *owner;
};

/* What a job may find. Written by the jobs of the key alone. */
static struct ledger {
	struct value *value;
} ledger[KEYS];

static atomic_uint_fast64_t out, unloading, allocated, freed;
static atomic_uint_fast64_t granted, failed, ended;
static atomic_bool over;
static FILE *null_file;

/* Jobs that have been put off, for one thread. */
static pthread_mutex_t later_lock = PTHREAD_MUTEX_INITIALIZER;
static struct put_off {
	struct hwt_store_job *job;
	uint32_t key;
	enum {
		TO_LOAD,
		TO_UNLOAD,
		TO_RUN
	} what;
} put_off[2 * KEYS];
static unsigned put_off_count;

static void
put_it_off(struct hwt_store_job *job, uint32_t key, unsigned what)
{
	(void)pthread_mutex_lock(&later_lock);
	stress_must(put_off_count < 2 * KEYS, "more jobs than keys");
	put_off[put_off_count].job = job;
	put_off[put_off_count].key = key;
	put_off[put_off_count].what = what;
	put_off_count++;
	(void)pthread_mutex_unlock(&later_lock);
}

static uint64_t
draw(unsigned bound)
{
	static _Thread_local uint64_t random;

	if (random == 0)
		random = random_seed((uintptr_t)&random);
	return random_below(&random, bound);
}

static void
make_value(uint32_t key, struct hwt_loaded *loaded)
{
	struct value *value = malloc(sizeof(*value));

	stress_must(value != NULL, "malloc");
	stress_check(ledger[key].value == NULL, "loaded twice");
	*value = (struct value){.key = key};
	ledger[key].value = value;
	loaded->value = value;
	loaded->weight = 1;
	atomic_fetch_add(&allocated, 1);
}

static void
end_value(uint32_t key)
{
	stress_check(ledger[key].value->owner == NULL, "unloaded while out");
	free(ledger[key].value);
	ledger[key].value = NULL;
	atomic_fetch_add(&freed, 1);
}

static int
load(void *ctx, struct hwt_store_job *job, const void *name, size_t size,
    struct hwt_loaded *loaded)
{
	uint32_t key;

	(void)ctx;
	stress_check(size == sizeof(key), "size");
	memcpy(&key, name, sizeof(key));
	stress_check(ledger[key].value == NULL, "loaded twice");
	if (draw(4) == 0) {
		put_it_off(job, key, TO_LOAD);
		return HWT_STORE_LATER;
	}
	if (draw(16) == 0)
		return -EIO;
	make_value(key, loaded);
	return 0;
}

static int
unload(void *ctx, struct hwt_store_job *job, const void *name, size_t size,
    void *value)
{
	uint32_t key;

	(void)ctx;
	(void)size;
	memcpy(&key, name, sizeof(key));
	stress_check(ledger[key].value == value, "another value");
	if (atomic_load(&over)) {
		end_value(key);
		return 0;
	}
	if (draw(8) == 0)
		return -EBUSY;
	atomic_fetch_add(&unloading, 1);
	if (draw(4) == 0) {
		put_it_off(job, key, TO_UNLOAD);
		return HWT_STORE_LATER;
	}
	end_value(key);
	atomic_fetch_sub(&unloading, 1);
	return 0;
}

static int
execute(void *ctx, struct hwt_store *of, struct hwt_store_job *job)
{
	(void)ctx;
	(void)of;
	if (atomic_load(&over) || draw(2) == 0)
		return -EAGAIN;
	put_it_off(job, 0, TO_RUN);
	return 0;
}

static void
end_load(const struct put_off *put)
{
	struct hwt_loaded loaded = {NULL, 0};
	int result = draw(16) == 0 ? -ENOENT : 0;

	if (result == 0)
		make_value(put->key, &loaded);
	stress_check(hwt_store_complete(store, put->job, result, &loaded) == 0,
	    "complete");
}

static void
end_unload(const struct put_off *put)
{
	int result = draw(4) == 0 ? -EBUSY : 0;

	if (result == 0)
		end_value(put->key);
	atomic_fetch_sub(&unloading, 1);
	stress_check(
	    hwt_store_complete(store, put->job, result, NULL) == 0, "complete");
}

/* False: there was none. */
static bool
end_one(void)
{
	struct put_off put;

	(void)pthread_mutex_lock(&later_lock);
	if (put_off_count == 0) {
		(void)pthread_mutex_unlock(&later_lock);
		return false;
	}
	put = put_off[0];
	put_off[0] = put_off[--put_off_count];
	(void)pthread_mutex_unlock(&later_lock);
	if (put.what == TO_LOAD)
		end_load(&put);
	else if (put.what == TO_UNLOAD)
		end_unload(&put);
	else
		stress_check(hwt_store_run(store, put.job) == 0, "run");
	return true;
}

static void *
job_thread(void *arg)
{
	(void)arg;
	while (end_one() || !atomic_load(&over))
		sched_yield();
	return NULL;
}

/* Clients. */

struct client {
	struct hwt_store_request request;
	struct hwt_store_item item[SET_MAX];
	uint32_t key[SET_MAX];
	unsigned count;
	atomic_uint told;
};

static void
use(struct client *client)
{
	struct value *value;
	unsigned i;

	atomic_fetch_add(&out, 1);
	for (i = 0; i < client->count; i++) {
		value = client->item[i].value;
		stress_check(value->key == client->key[i], "another's value");
		stress_check(value->owner == NULL, "two owners");
		if (client->item[i].use == HWT_WRITE)
			value->owner = client;
	}
	if (draw(64) == 0)
		(void)hwt_store_pin(store, &client->request, 0, draw(2) == 0);
	for (i = 0; i < client->count; i++) {
		value = client->item[i].value;
		if (client->item[i].use == HWT_READ)
			continue;
		stress_check(value->owner == client, "another owner");
		value->owner = NULL;
	}
	atomic_fetch_sub(&out, 1);
	atomic_fetch_add(&granted, 1);
	stress_check(
	    hwt_store_release(store, &client->request) == 0, "release");
}

static void
note_result(struct client *client, int result)
{
	if (result == 0) {
		use(client);
		return;
	}
	if (result == -EIO || result == -ENOENT)
		atomic_fetch_add(&failed, 1);
	else
		stress_check(result == -ETIMEDOUT || result == -ECANCELED,
		    "ended by %d", result);
	atomic_fetch_add(&ended, 1);
}

static void
note_granted(struct hwt_store_request *request, void *arg, int result)
{
	struct client *client = arg;

	stress_check(request == &client->request, "a foreign request");
	note_result(client, result);
	atomic_fetch_add(&client->told, 1);
}

static void
choose(struct client *client)
{
	unsigned i, first = (unsigned)draw(KEYS);

	client->count = 1 + (unsigned)draw(SET_MAX);
	for (i = 0; i < client->count; i++) {
		client->key[i] = (first + i * 5) % KEYS;
		client->item[i].key = &client->key[i];
		client->item[i].size = sizeof(client->key[i]);
		client->item[i].use = draw(3) == 0 ? HWT_READ : HWT_WRITE;
	}
	atomic_store(&client->told, 0);
	stress_must(hwt_store_request_init(store, &client->request,
			client->item, client->count, note_granted, client) == 0,
	    "request");
}

static void
ask(struct client *client, uint64_t delay_ns)
{
	int rc, result = hwt_store_acquire(store, &client->request, delay_ns);

	if (result != 1) {
		note_result(client, result);
		return;
	}
	if (draw(4) == 0) {
		rc = hwt_store_cancel(store, &client->request);
		stress_check(rc == 0 || rc == -ENOENT || rc == -EINPROGRESS,
		    "cancel: %d", rc);
	}
	while (atomic_load(&client->told) == 0)
		sched_yield();
	stress_check(atomic_load(&client->told) == 1, "told twice");
}

static void *
client_thread(void *arg)
{
	uint64_t turns = stress_scaled(TURNS), delay_ns;
	struct client client;

	(void)arg;
	memset(&client, 0, sizeof(client));
	while (turns-- > 0) {
		choose(&client);
		delay_ns =
		    draw(4) == 0 ? draw((unsigned)HWT_US(300)) : HWT_NEVER;
		if (draw(2) == 0)
			ask(&client, delay_ns);
		else
			note_result(&client,
			    hwt_store_acquire_wait(
				store, &client.request, delay_ns));
	}
	return NULL;
}

static void *
pause_thread(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		stress_sleep_ns(HWT_US(300));
		(void)hwt_store_trim(store, draw(LIMIT));
		if (draw(8) == 0)
			stress_check(hwt_store_dump(store, null_file) == 0 &&
				hwt_checkout_dump(checkout, null_file) == 0,
			    "dump");
		if (hwt_checkout_pause(checkout, HWT_MS(1)) != 0)
			continue;
		stress_check(atomic_load(&out) == 0, "out in a pause");
		stress_check(
		    atomic_load(&unloading) == 0, "an unload in a pause");
		stress_sleep_ns(HWT_US(20));
		stress_check(atomic_load(&out) == 0, "granted in a pause");
		stress_check(
		    atomic_load(&unloading) == 0, "an unload in a pause");
		stress_check(hwt_checkout_resume(checkout) == 0, "resume");
	}
	return NULL;
}

static void
race(const struct hwt_store_executor *executor, uint32_t hold_after)
{
	struct hwt_checkout_options options;
	struct hwt_store_options kept;
	pthread_t client[CLIENTS], jobs, pauses;
	uintptr_t i;

	stress_phase("store", executor != NULL);
	memset(&options, 0, sizeof(options));
	options.shards = 4;
	options.hold_after = hold_after;
	kept = (struct hwt_store_options){
	    .load = load,
	    .unload = unload,
	    .limit = LIMIT,
	    .idle_ns = HWT_US(500),
	    .backoff_ns = executor != NULL ? HWT_US(200) : 0,
	    .shards = 2,
	    .executor = executor,
	};
	atomic_store(&over, false);
	stress_must(
	    hwt_checkout_create(&checkout, timer, &options) == 0, "create");
	stress_must(hwt_store_create(&store, checkout, &kept) == 0, "store");
	jobs = stress_thread(job_thread, NULL);
	pauses = stress_thread(pause_thread, NULL);
	for (i = 0; i < CLIENTS; i++)
		client[i] = stress_thread(client_thread, NULL);
	for (i = 0; i < CLIENTS; i++)
		stress_join(client[i]);
	atomic_store(&over, true);
	stress_join(pauses);
	stress_join(jobs);
	/* The jobs of a task that had begun before it was over. */
	while (hwt_store_destroy(store) == -EBUSY)
		(void)end_one();
	stress_check(atomic_load(&allocated) == atomic_load(&freed),
	    "%" PRIu64 " loaded, %" PRIu64 " unloaded", atomic_load(&allocated),
	    atomic_load(&freed));
	stress_check(hwt_checkout_destroy(checkout) == 0, "destroy");
}

int
main(int argc, char **argv)
{
	const struct hwt_store_executor executor = {execute, NULL};

	stress_begin("checkout_store", argc, argv);
	timer = timer_create_ns(HWT_US(100), 256, 0);
	null_file = fopen("/dev/null", "w");
	stress_must(null_file != NULL, "/dev/null");
	race(NULL, 0);
	race(&executor, 1);
	race(NULL, HWT_CHECKOUT_NEVER);
	stress_check(hwt_pending_timeouts(timer) == 0, "pending timeouts");
	stress_check(hwt_stop(timer, NULL) == 0, "hwt_stop");
	stress_check(hwt_destroy(timer) == 0, "hwt_destroy");
	(void)fclose(null_file);
	return stress_end("%" PRIu64 " grants, %" PRIu64
			  " waits ended, %" PRIu64 " by a failure, %" PRIu64
			  " loads",
	    atomic_load(&granted), atomic_load(&ended), atomic_load(&failed),
	    atomic_load(&allocated));
}
