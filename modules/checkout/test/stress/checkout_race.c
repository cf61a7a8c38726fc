/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real threads on a checkout whose timer has a worker. Owners and balances are
 * written without atomics, so that ThreadSanitizer sees a missing edge.
 *
 *   transfers  between accounts with a constant sum: sets of up to four, some
 *              only read; waits with and without a thread, deadlines, cancels;
 *              and pauses, in which the sum is taken
 *   retired    objects whose memory is freed as soon as they are retired, while
 *              the objects beside them in waiting sets come and go
 *   pools      any one of three connections, which are replaced, and pauses
 *   stores     accounts that are loaded from an array and unloaded to it, at
 *              once or by another thread, with loads that fail, a limit, an
 *              idle time, and pauses; the sum is constant
 *
 * At the end of each, nothing is out and nobody waits.
 */
#include "modules/checkout/test/stress/wish.h"

enum {
	THREADS = 4,
	ACCOUNTS = 9,
	SET_MAX = 4,
	TRANSFERS = 20000,
	RETIREMENTS = 1000,
	WAITERS = 6,
	START = 1000
};

static atomic_bool over;
static atomic_uint_fast64_t out, ended, begun;

/* Relaxed: the edges between threads are the library's alone. */
#define COUNT(of, by) atomic_fetch_add_explicit(of, by, memory_order_relaxed)
#define READ(of) atomic_load_explicit(of, memory_order_relaxed)

static struct account {
	struct hwt_object object;
	int64_t balance;
	const void *owner;
} account[ACCOUNTS];

/* A request that its thread uses again and again. */
struct demand {
	struct wish wish;
	unsigned writes; /* those are the first */
	bool breaks; /* the object that it gets next */
	int result; /* of its wait */
	atomic_uint told;
	uint64_t random; /* its thread's */
};

static struct hwt_group group;

/* A quarter of all waits has a deadline. */
static uint64_t
draw_delay(uint64_t *random)
{
	return random_below(random, 4) == 0 ? random_below(random, HWT_US(300))
					    : HWT_NEVER;
}

static void
open_checkout(const char *phase, uint32_t hold_after)
{
	const struct hwt_checkout_options options = {
	    .shards = 4, .hold_after = hold_after};
	unsigned i;

	stress_phase(phase, hold_after);
	stress_must(
	    hwt_checkout_create(&checkout, timer, &options) == 0, "create");
	for (i = 0; i < ACCOUNTS; i++) {
		account[i].balance = START;
		stress_must(
		    hwt_object_init(checkout, &account[i].object, i % 2) == 0,
		    "init");
	}
	atomic_store(&over, false);
}

static void
close_checkout(void)
{
	struct hwt_checkout_stats stats;
	uint64_t counted = 0;
	unsigned k;

	stress_must(hwt_checkout_read_stats(checkout, &stats) == 0, "stats");
	for (k = 0; k < 64; k++)
		counted += stats.wait_ns_histogram[k];
	stress_check(counted == stats.waited && stats.released == stats.granted,
	    "of %" PRIu64 " waits %" PRIu64 " are counted", stats.waited,
	    counted);
	stress_check(stats.out == 0 && stats.waiting == 0,
	    "%" PRIu64 " are out, %" PRIu64 " wait", stats.out, stats.waiting);
	stress_check(hwt_checkout_destroy(checkout) == 0, "destroy");
}

/* Until they have ended, or does what is given, if it is, and ends them. */
static void
run_threads(void *(*body)(void *), unsigned count, void (*beside)(void))
{
	pthread_t thread[THREADS];
	uintptr_t i;

	for (i = 0; i < count; i++)
		thread[i] = stress_thread(body, (void *)(i + 1));
	if (beside != NULL) {
		beside();
		atomic_store(&over, true);
	}
	for (i = 0; i < count; i++)
		stress_join(thread[i]);
}

/* Transfers. */

/* What it was granted, number i. */
static struct account *
account_of(const struct demand *demand, unsigned i)
{
	const struct wish *wish = &demand->wish;

	return wish->wants_keys ? wish->key[i].value
				: (void *)wish->item[i].granted;
}

static void add_connection(void);
static void retire(struct account *mine);

/* With all that it wanted. */
static void
use(struct demand *demand)
{
	bool breaks = demand->breaks;
	struct account *mine;
	unsigned i;
	int rc;

	COUNT(&out, 1);
	for (i = 0; i < demand->wish.count; i++) {
		mine = account_of(demand, i);
		stress_check(mine->owner == NULL, "two owners");
		if (i >= demand->writes)
			continue;
		mine->owner = demand;
		mine->balance += i == 0 ? (int64_t)demand->writes - 1 : -1;
	}
	for (i = 0; i < demand->wish.count; i++) {
		mine = account_of(demand, i);
		stress_check(
		    mine->owner == (i < demand->writes ? demand : NULL),
		    "another owner");
		if (i < demand->writes)
			mine->owner = NULL;
	}
	if (breaks)
		retire(account_of(demand, 0));
	COUNT(&out, -1);
	rc = wish_release(&demand->wish);
	stress_check(rc == 0, "release: %d", rc);
	if (breaks)
		add_connection();
}

static void
note_end(struct wish *wish, int result)
{
	struct demand *demand = (struct demand *)wish;

	demand->result = result;
	if (result == 0)
		use(demand);
	else
		COUNT(&ended, 1);
	atomic_fetch_add(&demand->told, 1);
}

static void
demand_init(struct demand *demand)
{
	atomic_store(&demand->told, 0);
	demand->wish.ended = note_end;
	wish_init(&demand->wish);
}

static void
choose_set(struct demand *demand)
{
	unsigned first = (unsigned)random_below(&demand->random, ACCOUNTS);
	unsigned step = 1 + (unsigned)random_below(&demand->random, 2);
	unsigned i;

	demand->wish.count =
	    1 + (unsigned)random_below(&demand->random, SET_MAX);
	demand->writes = demand->wish.count;
	if (random_below(&demand->random, 2) == 0)
		demand->writes = (unsigned)random_below(
		    &demand->random, demand->wish.count + 1);
	for (i = 0; i < demand->wish.count; i++) {
		demand->wish.item[i].wanted =
		    &account[(first + i * step) % ACCOUNTS].object;
		demand->wish.item[i].use =
		    i < demand->writes ? HWT_WRITE : HWT_READ;
	}
	demand_init(demand);
}

static void
await_end(atomic_uint *told)
{
	while (atomic_load(told) == 0)
		(void)sched_yield();
	stress_check(atomic_load(told) == 1, "granted was called twice");
}

static bool
may_answer(const struct demand *demand, int rc, uint64_t delay_ns)
{
	return rc == 0 || (rc == -EIO && demand->wish.wants_keys) ||
	    (rc == -ETIMEDOUT && delay_ns != HWT_NEVER);
}

static void
acquire(struct demand *demand, uint64_t delay_ns)
{
	int rc = wish_acquire(&demand->wish, delay_ns);

	stress_check(
	    rc == 1 || may_answer(demand, rc, HWT_NEVER), "acquire: %d", rc);
	if (rc == 0)
		use(demand);
	if (rc != 1)
		return;
	if (random_below(&demand->random, 4) == 0) {
		rc = wish_cancel(&demand->wish);
		stress_check(rc == 0 || rc == -EINPROGRESS || rc == -ENOENT,
		    "cancel: %d", rc);
	}
	await_end(&demand->told);
	stress_check(demand->result == -ECANCELED ||
		may_answer(demand, demand->result, delay_ns),
	    "granted: %d", demand->result);
}

static void
acquire_and_wait(struct demand *demand, uint64_t delay_ns)
{
	int rc = wish_wait(&demand->wish, delay_ns);

	stress_check(may_answer(demand, rc, delay_ns), "wait: %d", rc);
	if (rc == 0)
		use(demand);
}

static bool
try(struct demand *demand)
{
	return hwt_checkout_try(checkout, &demand->wish.request.of_objects) ==
	    0;
}

/* Once, in one of the ways in which a request is used. */
static void
run(struct demand *demand)
{
	unsigned how = (unsigned)random_below(&demand->random, 4);

	uint64_t delay_ns = draw_delay(&demand->random);

	if (how > 1)
		acquire(demand, delay_ns);
	else if (how == 1 || demand->wish.wants_keys)
		acquire_and_wait(demand, delay_ns);
	else if (try(demand))
		use(demand);
	COUNT(&begun, 1);
}

static void *
transfer_thread(void *arg)
{
	struct demand demand = {.random = random_seed((uintptr_t)arg)};
	uint64_t turns = stress_scaled(TRANSFERS);

	while (turns-- > 0) {
		choose_set(&demand);
		run(&demand);
	}
	return NULL;
}

/* Reads all balances while nothing is out. */
static void
take_sum(void)
{
	int64_t sum = 0;
	unsigned i;

	stress_check(READ(&out) == 0, "out in a pause");
	for (i = 0; i < ACCOUNTS; i++) {
		stress_check(account[i].owner == NULL, "held in a pause");
		sum += account[i].balance;
	}
	stress_check(sum == START * ACCOUNTS, "the sum is %" PRId64, sum);
	(void)sched_yield();
	stress_check(READ(&out) == 0, "granted in a pause");
}

static void *
pause_thread(void *arg)
{
	uint64_t random = random_seed((uintptr_t)arg);
	int rc;

	while (!atomic_load(&over)) {
		rc = hwt_checkout_pause(
		    checkout, random_below(&random, HWT_US(500)));
		if (rc == 0) {
			take_sum();
			rc = hwt_checkout_resume(checkout);
		}
		stress_check(rc == 0 || rc == -ETIMEDOUT, "pause: %d", rc);
		stress_sleep_ns(HWT_US(200));
	}
	return NULL;
}

/* So many threads that end by themselves, beside pauses. */
static void
run_beside_pauses(void *(*body)(void *))
{
	pthread_t pauses = stress_thread(pause_thread, (void *)(uintptr_t)99);

	run_threads(body, THREADS, NULL);
	atomic_store(&over, true);
	stress_join(pauses);
	take_sum();
}

static void
transfers(uint32_t hold_after)
{
	open_checkout("transfers", hold_after);
	run_beside_pauses(transfer_thread);
	close_checkout();
}

/* Retirement. */

static void
retire(struct account *mine)
{
	int rc = hwt_object_retire(checkout, &mine->object);

	stress_check(rc == 0, "retire: %d", rc);
	free(mine);
}

static void *
come_and_go(void *arg)
{
	struct demand demand = {.wish.count = 1, .writes = 1};

	demand.wish.item[0].wanted = &account[(uintptr_t)arg - 1].object;
	demand_init(&demand);
	while (!atomic_load(&over))
		acquire_and_wait(&demand, HWT_NEVER);
	return NULL;
}

static void
retire_one(uint64_t turn)
{
	struct account *fresh = calloc(1, sizeof(*fresh));
	struct demand *demand = calloc(WAITERS + 1, sizeof(*demand));
	unsigned i;

	stress_must(fresh != NULL && demand != NULL, "memory");
	stress_must(
	    hwt_object_init(checkout, &fresh->object, turn % 3) == 0, "init");
	for (i = 0; i <= WAITERS; i++) {
		demand[i].wish.count = i == 0 ? 1 : 2;
		demand[i].wish.item[0].wanted = &fresh->object;
		demand[i].wish.item[1].wanted = &account[i % 2].object;
		demand_init(&demand[i]);
	}
	stress_must(try(&demand[0]), "try");
	for (i = 1; i <= WAITERS; i++)
		stress_check(wish_acquire(&demand[i].wish,
				 i % 2 ? HWT_NEVER : HWT_US(200)) == 1,
		    "it waits");
	retire(fresh);
	stress_check(wish_release(&demand[0].wish) == 0, "release");
	for (i = 1; i <= WAITERS; i++) {
		await_end(&demand[i].told);
		stress_check(demand[i].result != 0, "granted");
	}
	free(demand);
}

static void
retire_all(void)
{
	uint64_t turns = stress_scaled(RETIREMENTS), i;

	for (i = 0; i < turns; i++)
		retire_one(i);
}

static void
retirements(void)
{
	open_checkout("retired", 0);
	run_threads(come_and_go, 2, retire_all);
	close_checkout();
}

/* Pools. */

static void
add_connection(void)
{
	struct account *made = calloc(1, sizeof(*made));

	stress_must(made != NULL, "memory");
	stress_check(
	    hwt_group_add(checkout, &group, &made->object) == 0, "add");
}

static void *
pool_thread(void *arg)
{
	struct demand demand = {.wish.count = 1,
	    .writes = 1,
	    .wish.item[0].wanted = &group.any,
	    .random = random_seed((uintptr_t)arg)};
	uint64_t turns = stress_scaled(TRANSFERS);

	while (turns-- > 0) {
		demand.breaks = random_below(&demand.random, 32) == 0;
		demand_init(&demand);
		run(&demand);
	}
	return NULL;
}

static void
pools(uint32_t hold_after)
{
	struct demand last = {
	    .wish.count = 1, .writes = 1, .wish.item[0].wanted = &group.any};
	unsigned i;

	open_checkout("pools", hold_after);
	stress_must(hwt_group_init(checkout, &group, 0) == 0, "group");
	for (i = 0; i < 3; i++)
		add_connection();
	run_beside_pauses(pool_thread);
	demand_init(&last);
	for (i = 0; i < 3; i++) {
		stress_must(try(&last), "one is lost");
		retire(account_of(&last, 0));
		stress_check(wish_release(&last.wish) == 0, "release");
	}
	stress_check(hwt_group_retire(checkout, &group) == 0, "retire");
	close_checkout();
}

/* Stores. */

static const char keys[] = "abcdefgh";
static int64_t disk[8]; /* written by loads and unloads alone */
static atomic_uint_fast64_t failures;
static atomic_bool jobs_over;

/* Jobs that answer later, for the thread that completes them. */
static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct later {
	struct hwt_store_job *job;
	struct account *value; /* to unload; NULL: to load */
	unsigned key;
} later[64];
static unsigned later_count;
static _Thread_local uint64_t job_random = 1;

/* How a job ends: -EIO, HWT_STORE_LATER, or 0. */
static int
draw_job(struct hwt_store_job *job, unsigned key, struct account *value)
{
	unsigned how = (unsigned)random_below(&job_random, 8);

	if (how == 0 && !atomic_load(&jobs_over))
		return -EIO;
	if (how > 2 || atomic_load(&jobs_over))
		return 0;
	(void)pthread_mutex_lock(&jobs_lock);
	stress_must(later_count < 64, "so many jobs");
	later[later_count++] = (struct later){job, value, key};
	(void)pthread_mutex_unlock(&jobs_lock);
	return HWT_STORE_LATER;
}

static struct account *
load_now(unsigned key)
{
	struct account *made = calloc(1, sizeof(*made));

	stress_must(made != NULL, "memory");
	made->balance = disk[key];
	return made;
}

static void
unload_now(unsigned key, struct account *value)
{
	stress_check(value->owner == NULL, "unloaded while it is held");
	disk[key] = value->balance;
	free(value);
}

static int
load(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    struct hwt_loaded *loaded)
{
	unsigned number = (unsigned)(*(const char *)key - 'a');
	int rc = draw_job(job, number, NULL);

	stress_check(ctx == disk && size == 1, "load");
	if (rc == 0)
		loaded->value = load_now(number);
	COUNT(&failures, rc < 0);
	return rc;
}

static int
unload(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    void *value)
{
	unsigned number = (unsigned)(*(const char *)key - 'a');
	int rc = draw_job(job, number, value);

	stress_check(ctx == disk && size == 1, "unload");
	if (rc == 0)
		unload_now(number, value);
	return rc;
}

static void
complete(struct later *one)
{
	struct hwt_loaded loaded = {.value = one->value};
	int rc;

	if (one->value != NULL)
		unload_now(one->key, one->value);
	else
		loaded.value = load_now(one->key);
	rc = hwt_store_complete(store, one->job, 0, &loaded);
	stress_check(rc == 0, "complete: %d", rc);
}

static void *
complete_thread(void *arg)
{
	struct hwt_store_stats stats;
	struct later one;
	unsigned left;

	do {
		(void)pthread_mutex_lock(&jobs_lock);
		left = later_count;
		if (left > 0)
			one = later[--later_count];
		(void)pthread_mutex_unlock(&jobs_lock);
		if (left > 0)
			complete(&one);
		else
			stress_sleep_ns(HWT_US(20));
		stress_must(hwt_store_read_stats(store, &stats) == 0, "stats");
	} while (stats.jobs > 0 || !atomic_load(&jobs_over));
	return arg;
}

static void
choose_keys(struct demand *demand)
{
	unsigned first = (unsigned)random_below(&demand->random, 8), i;

	demand->wish.count = 1 + (unsigned)random_below(&demand->random, 3);
	demand->writes =
	    (unsigned)random_below(&demand->random, demand->wish.count + 1);
	for (i = 0; i < demand->wish.count; i++)
		demand->wish.key[i] =
		    (struct hwt_store_item){.key = &keys[(first + i * 3) % 8],
			.size = 1,
			.use = i < demand->writes ? HWT_WRITE : HWT_READ};
	demand_init(demand);
}

static void *
store_thread(void *arg)
{
	struct demand demand = {
	    .wish.wants_keys = true, .random = random_seed((uintptr_t)arg)};
	uint64_t turns = stress_scaled(TRANSFERS);

	job_random = random_seed((uintptr_t)arg + 50);
	while (turns-- > 0) {
		choose_keys(&demand);
		run(&demand);
	}
	return NULL;
}

static void
stores(uint32_t hold_after)
{
	const struct hwt_store_options options = {.load = load,
	    .unload = unload,
	    .ctx = disk,
	    .limit = 4,
	    .idle_ns = HWT_MS(2),
	    .shards = 1};
	pthread_t jobs;
	int64_t sum = 0;
	unsigned i;

	open_checkout("stores", hold_after);
	atomic_store(&jobs_over, false);
	stress_must(hwt_store_create(&store, checkout, &options) == 0, "store");
	jobs = stress_thread(complete_thread, NULL);
	run_beside_pauses(store_thread);
	atomic_store(&jobs_over, true);
	stress_join(jobs);
	stress_check(hwt_store_destroy(store) == 0, "destroy");
	for (i = 0; i < 8; i++)
		sum += disk[i];
	stress_check(sum == 0, "the sum is %" PRId64, sum);
	close_checkout();
}

int
main(int argc, char **argv)
{
	stress_begin("checkout_race", argc, argv);
	timer = timer_create_ns(HWT_US(100), 256, 0);
	transfers(0);
	transfers(2);
	retirements();
	pools(0);
	pools(1);
	stores(0);
	stores(1);
	stress_check(hwt_pending_timeouts(timer) == 0, "pending timeouts");
	stress_check(hwt_stop(timer, NULL) == 0, "hwt_stop");
	stress_check(hwt_destroy(timer) == 0, "hwt_destroy");
	return stress_end("%" PRIu64 " sets, %" PRIu64
			  " waits ended otherwise, "
			  "%" PRIu64 " loads failed",
	    atomic_load(&begun), atomic_load(&ended), atomic_load(&failures));
}
