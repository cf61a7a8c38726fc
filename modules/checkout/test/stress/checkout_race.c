/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real threads on a checkout, on a timer with a worker.
 *
 *   transfers  between accounts with a constant sum, whose balances and owners
 *              are written without atomics, or only read: sets of up to four,
 *              waits with and without a thread, deadlines, cancels; and pauses,
 *              in which the sum is taken
 *   readers    two that are written by one thread, while others read one of
 *              them, in turns that overlap
 *   retired    objects whose memory is freed as soon as they are retired, while
 *              the objects beside them in waiting sets come and go
 *   hammers    a set of eight against seven threads that want one each, and
 *              sleep with it, so that never all are free; without an order,
 *              against seven that come so often and then no more
 *   pools      any one of three connections, which are replaced, and pauses
 *
 * Meanwhile another thread dumps the checkout again and again, after the first
 * transfers with what is granted.
 */
#include "test/stress/stress.h"

#include "modules/checkout/hwt_checkout.h"

enum {
	THREADS = 4,
	ACCOUNTS = 9,
	SET_MAX = 4,
	TRANSFERS = 20000,
	RETIREMENTS = 1000,
	WAITERS = 6,
	EIGHTS = 200,
	COMES = 20000,
	START = 1000
};

static struct hwt *timer;
static struct hwt_checkout *checkout;

static struct account {
	struct hwt_object object;
	int64_t balance;
	const void *owner;
} account[ACCOUNTS];

/* A request that its thread uses again and again. */
struct demand {
	struct hwt_request request;
	struct hwt_object *set[SET_MAX]; /* or items */
	struct hwt_item item[SET_MAX];
	unsigned count, reads; /* of these, the last are only read */
	enum hwt_grant grant;
	atomic_uint told;
};

static atomic_uint_fast64_t out, ended, begun;
static atomic_bool over;

static pthread_t dumps;
static atomic_uint_fast64_t dumped;
static FILE *null_file;

static void *
dump_thread(void *arg)
{
	uint64_t begin;

	/* A tenth of the time at most, also under valgrind. */
	while (!atomic_load(&over)) {
		begin = stress_now_ns();
		stress_check(
		    hwt_checkout_dump(checkout, null_file) == 0, "dump");
		atomic_fetch_add_explicit(&dumped, 1, memory_order_relaxed);
		stress_sleep_ns(HWT_MS(2) + 9 * (stress_now_ns() - begin));
	}
	return arg;
}

/* A dump has begun and ended meanwhile. ThreadSanitizer takes this for no order
 * between what the dump has read and what the caller does next. */
static void
await_dump(void)
{
	uint64_t before = atomic_load_explicit(&dumped, memory_order_relaxed);

	while (atomic_load_explicit(&dumped, memory_order_relaxed) < before + 2)
		sched_yield();
}

static void
make(uint32_t hold_after)
{
	static uint64_t lists;
	struct hwt_checkout_options options;
	unsigned i;

	memset(&options, 0, sizeof(options));
	options.shards = 4;
	options.hold_after = hold_after;
	/* What is listed is held for longer: too long for a set that is only
	 * granted by chance. */
	options.list_grants = hold_after == HWT_CHECKOUT_NEVER ? 0 : lists;
	lists = 1;
	stress_must(
	    hwt_checkout_create(&checkout, timer, &options) == 0, "create");
	for (i = 0; i < ACCOUNTS; i++) {
		account[i].balance = START;
		stress_must(
		    hwt_object_init(checkout, &account[i].object, i % 2) == 0,
		    "init");
	}
	atomic_store(&over, false);
	dumps = stress_thread(dump_thread, NULL);
}

static void
unmake(void)
{
	struct hwt_checkout_stats stats;
	uint64_t counted = 0;
	unsigned k;

	stress_join(dumps);
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

/* With all objects of the set. */
static void
use(struct demand *demand)
{
	unsigned writes = demand->count - demand->reads;
	unsigned i;

	atomic_fetch_add(&out, 1);
	for (i = 0; i < demand->count; i++) {
		struct account *mine = (struct account *)demand->set[i];

		stress_check(mine->owner == NULL, "two owners");
		if (i >= writes)
			continue;
		mine->owner = demand;
		mine->balance += i == 0 ? (int64_t)writes - 1 : -1;
	}
	for (i = 0; i < demand->count; i++) {
		struct account *mine = (struct account *)demand->set[i];

		stress_check(mine->owner == (i < writes ? demand : NULL),
		    "another owner");
		if (i < writes)
			mine->owner = NULL;
	}
	atomic_fetch_sub(&out, 1);
	stress_check(
	    hwt_checkout_release(checkout, &demand->request) == 0, "release");
}

static void
note_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct demand *demand = arg;

	stress_check(request == &demand->request, "a foreign request");
	demand->grant = grant;
	if (grant == HWT_GRANTED)
		use(demand);
	else
		atomic_fetch_add(&ended, 1);
	atomic_fetch_add(&demand->told, 1);
}

static void
choose(struct demand *demand, uint64_t *random)
{
	unsigned count = 1 + (unsigned)(random_next(random) % SET_MAX);
	unsigned first = (unsigned)(random_next(random) % ACCOUNTS);
	unsigned step = 1 + (unsigned)(random_next(random) % 2);
	unsigned i;

	demand->count = count;
	demand->reads = (unsigned)(random_next(random) % (2 * count));
	if (demand->reads > count)
		demand->reads = 0;
	for (i = 0; i < count; i++) {
		demand->set[i] = &account[(first + i * step) % ACCOUNTS].object;
		demand->item[i].wanted = demand->set[i];
		demand->item[i].use =
		    i < count - demand->reads ? HWT_WRITE : HWT_READ;
	}
	atomic_store(&demand->told, 0);
	stress_must(hwt_request_init_items(&demand->request, demand->item,
			count, note_granted, demand) == 0,
	    "request");
}

static void
wait_until_told(struct demand *demand)
{
	while (atomic_load(&demand->told) == 0)
		(void)sched_yield();
	stress_check(atomic_load(&demand->told) == 1, "told twice");
}

static void
without_thread(struct demand *demand, uint64_t *random)
{
	uint64_t delay_ns = random_next(random) % 4 == 0
	    ? random_next(random) % HWT_US(300)
	    : HWT_NEVER;
	int result = hwt_checkout_acquire(checkout, &demand->request, delay_ns);

	stress_check(result == 0 || result == 1, "acquire: %d", result);
	if (result == 0) {
		use(demand);
		return;
	}
	if (random_next(random) % 4 == 0) {
		result = hwt_checkout_cancel(checkout, &demand->request);
		stress_check(
		    result == 0 || result == -EINPROGRESS || result == -ENOENT,
		    "cancel: %d", result);
	}
	wait_until_told(demand);
}

static void
in_thread(struct demand *demand, uint64_t *random)
{
	uint64_t delay_ns = random_next(random) % 4 == 0
	    ? random_next(random) % HWT_US(300)
	    : HWT_NEVER;
	int result =
	    hwt_checkout_acquire_wait(checkout, &demand->request, delay_ns);

	stress_check(result == 0 || result == -ETIMEDOUT, "wait: %d", result);
	if (result == 0)
		use(demand);
}

static void *
transfer_thread(void *arg)
{
	uint64_t random = random_seed((uint64_t)(uintptr_t)arg);
	uint64_t turns = stress_scaled(TRANSFERS);
	struct demand demand;

	while (turns-- > 0) {
		choose(&demand, &random);
		switch (random_next(&random) % 4) {
		case 0:
			if (hwt_checkout_try(checkout, &demand.request) == 0)
				use(&demand);
			break;
		case 1:
			in_thread(&demand, &random);
			break;
		default:
			without_thread(&demand, &random);
		}
		atomic_fetch_add(&begun, 1);
	}
	return NULL;
}

/* Reads all balances while nothing is out. */
static void
take_sum(void)
{
	int64_t sum = 0;
	unsigned i;

	stress_check(atomic_load(&out) == 0, "out in a pause");
	for (i = 0; i < ACCOUNTS; i++) {
		stress_check(account[i].owner == NULL, "held in a pause");
		sum += account[i].balance;
	}
	stress_check(sum == START * ACCOUNTS, "the sum is %" PRId64, sum);
	(void)sched_yield();
	stress_check(atomic_load(&out) == 0, "granted in a pause");
}

static void *
pause_thread(void *arg)
{
	uint64_t random = random_seed((uint64_t)(uintptr_t)arg);
	struct hwt_request pause;
	uint64_t delay_ns;
	int result;

	stress_must(
	    hwt_request_init_pause(checkout, &pause, NULL, 0, NULL, NULL) == 0,
	    "request");
	while (!atomic_load(&over)) {
		delay_ns = random_next(&random) % HWT_US(500);
		/* By a call, or by a request. */
		if (random_next(&random) % 2 == 0) {
			result = hwt_checkout_pause(checkout, delay_ns);
			if (result == 0) {
				take_sum();
				result = hwt_checkout_resume(checkout);
			}
		} else {
			result = hwt_checkout_acquire_wait(
			    checkout, &pause, delay_ns);
			if (result == 0) {
				take_sum();
				result = hwt_checkout_release(checkout, &pause);
			}
		}
		stress_check(
		    result == 0 || result == -ETIMEDOUT, "pause: %d", result);
		stress_sleep_ns(HWT_US(200));
	}
	return NULL;
}

static void
transfers(uint32_t hold_after)
{
	pthread_t thread[THREADS], pauses;
	uintptr_t i;

	stress_phase("transfers", hold_after);
	make(hold_after);
	pauses = stress_thread(pause_thread, (void *)(uintptr_t)99);
	for (i = 0; i < THREADS; i++)
		thread[i] = stress_thread(transfer_thread, (void *)(i + 1));
	for (i = 0; i < THREADS; i++)
		stress_join(thread[i]);
	atomic_store(&over, true);
	stress_join(pauses);
	take_sum();
	unmake();
}

/* Retirement. */

static void
come(void *arg, uint64_t turns)
{
	uint64_t number = (uint64_t)(uintptr_t)arg;
	struct demand demand = {.count = 1};

	demand.set[0] = &account[number % ACCOUNTS].object;
	stress_must(
	    hwt_request_init(&demand.request, demand.set, 1, NULL, NULL) == 0,
	    "request");
	while (!atomic_load(&over) && turns-- > 0) {
		stress_check(hwt_checkout_acquire_wait(
				 checkout, &demand.request, HWT_NEVER) == 0,
		    "wait");
		use(&demand);
	}
}

static void *
come_and_go(void *arg)
{
	come(arg, UINT64_MAX);
	return NULL;
}

/* A set that is never served in order may wait for as long as others come. */
static void *
come_so_often(void *arg)
{
	come(arg, stress_scaled(COMES));
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
		demand[i].count = i == 0 ? 1 : 2;
		demand[i].set[0] = &fresh->object;
		demand[i].set[1] = &account[i % 2].object;
		stress_must(hwt_request_init(&demand[i].request, demand[i].set,
				demand[i].count, note_granted, &demand[i]) == 0,
		    "request");
	}
	stress_check(hwt_checkout_acquire_wait(
			 checkout, &demand[0].request, HWT_NEVER) == 0,
	    "wait");
	for (i = 1; i <= WAITERS; i++)
		stress_check(hwt_checkout_acquire(checkout, &demand[i].request,
				 i % 2 ? HWT_NEVER : HWT_US(200)) == 1,
		    "it waits");
	if (turn < 3)
		await_dump();
	stress_check(
	    hwt_object_retire(checkout, &fresh->object) == 0, "retire");
	free(fresh);
	stress_check(
	    hwt_checkout_release(checkout, &demand[0].request) == 0, "release");
	for (i = 1; i <= WAITERS; i++) {
		wait_until_told(&demand[i]);
		stress_check(demand[i].grant != HWT_GRANTED, "granted");
	}
	free(demand);
}

static void
retirements(void)
{
	uint64_t turns = stress_scaled(RETIREMENTS);
	pthread_t thread[THREADS];
	uintptr_t i;

	make(0);
	for (i = 0; i < THREADS; i++)
		thread[i] = stress_thread(come_and_go, (void *)(i % 2));
	for (i = 0; i < turns; i++) {
		stress_phase("retired", i);
		retire_one(i);
	}
	atomic_store(&over, true);
	for (i = 0; i < THREADS; i++)
		stress_join(thread[i]);
	unmake();
}

/* As come_and_go, but it sleeps while it has its object. */
static void *
come_and_stay(void *arg)
{
	struct hwt_object *set[1];
	struct hwt_request request;

	set[0] = &account[(uintptr_t)arg].object;
	stress_must(
	    hwt_request_init(&request, set, 1, NULL, NULL) == 0, "request");
	while (!atomic_load(&over)) {
		stress_check(hwt_checkout_acquire_wait(
				 checkout, &request, HWT_NEVER) == 0,
		    "wait");
		stress_sleep_ns(HWT_US(100));
		stress_check(
		    hwt_checkout_release(checkout, &request) == 0, "release");
	}
	return NULL;
}

/* Eight objects, against seven threads that want one of them each. */
static void
hammers(uint32_t hold_after, void *(*hammer)(void *))
{
	struct hwt_object *set[8];
	struct hwt_request request;
	pthread_t thread[7];
	uint64_t turns = stress_scaled(EIGHTS);
	uintptr_t i;

	make(hold_after);
	for (i = 0; i < 8; i++)
		set[i] = &account[i].object;
	stress_must(
	    hwt_request_init(&request, set, 8, NULL, NULL) == 0, "request");
	for (i = 0; i < 7; i++)
		thread[i] = stress_thread(hammer, (void *)i);
	for (i = 0; i < turns; i++) {
		stress_phase("hammers", i);
		stress_check(hwt_checkout_acquire_wait(
				 checkout, &request, HWT_NEVER) == 0,
		    "wait");
		stress_check(
		    hwt_checkout_release(checkout, &request) == 0, "release");
	}
	atomic_store(&over, true);
	for (i = 0; i < 7; i++)
		stress_join(thread[i]);
	unmake();
}

/* Reads one of the first two again and again. */
static void *
come_and_read(void *arg)
{
	struct account *mine = &account[(uintptr_t)arg % 2];
	struct hwt_item item = {.wanted = &mine->object, .use = HWT_READ};
	struct hwt_request request;

	stress_must(hwt_request_init_items(&request, &item, 1, NULL, NULL) == 0,
	    "request");
	while (!atomic_load(&over)) {
		stress_check(hwt_checkout_acquire_wait(
				 checkout, &request, HWT_NEVER) == 0,
		    "wait");
		stress_check(mine->owner == NULL, "it is written");
		stress_sleep_ns(HWT_US(20));
		stress_check(mine->owner == NULL, "it is written");
		stress_check(
		    hwt_checkout_release(checkout, &request) == 0, "release");
	}
	return NULL;
}

static void
readers(uint32_t hold_after)
{
	struct demand writer = {.count = 2};
	uint64_t turns = stress_scaled(EIGHTS);
	pthread_t thread[THREADS];
	uintptr_t i;

	make(hold_after);
	writer.set[0] = &account[0].object;
	writer.set[1] = &account[1].object;
	stress_must(
	    hwt_request_init(&writer.request, writer.set, 2, NULL, NULL) == 0,
	    "request");
	for (i = 0; i < THREADS; i++)
		thread[i] = stress_thread(come_and_read, (void *)i);
	for (i = 0; i < turns; i++) {
		stress_phase("readers", i);
		stress_check(hwt_checkout_acquire_wait(
				 checkout, &writer.request, HWT_NEVER) == 0,
		    "wait");
		use(&writer);
	}
	atomic_store(&over, true);
	for (i = 0; i < THREADS; i++)
		stress_join(thread[i]);
	unmake();
}

/* A pool: what its threads have is never theirs twice, and what was retired is
 * used by nobody. */
struct connection {
	struct hwt_object object;
	const void *owner;
};

struct client {
	struct hwt_request request;
	struct hwt_item item;
	uint64_t
	    random; /* its thread's; the rest is whoever's has the request */
	bool breaks; /* what it gets next */
	atomic_uint told;
};

static struct hwt_group group;

static void
add_connection(void)
{
	struct connection *made = calloc(1, sizeof(*made));

	stress_must(made != NULL, "memory");
	stress_check(
	    hwt_group_add(checkout, &group, &made->object) == 0, "add");
}

static void
retire_connection(struct connection *broken)
{
	stress_check(
	    hwt_object_retire(checkout, &broken->object) == 0, "retire");
	free(broken);
}

static void
use_connection(struct client *client)
{
	struct connection *mine = (struct connection *)client->item.granted;
	bool broken = client->breaks;

	atomic_fetch_add(&out, 1);
	stress_check(mine->owner == NULL, "two owners");
	mine->owner = client;
	stress_check(mine->owner == client, "another owner");
	mine->owner = NULL;
	if (broken)
		retire_connection(mine);
	atomic_fetch_sub(&out, 1);
	stress_check(
	    hwt_checkout_release(checkout, &client->request) == 0, "release");
	if (broken)
		add_connection();
}

static void
note_connection(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct client *client = arg;

	stress_check(request == &client->request, "a foreign request");
	if (grant == HWT_GRANTED)
		use_connection(client);
	else
		atomic_fetch_add(&ended, 1);
	atomic_fetch_add(&client->told, 1);
}

static void
wait_for_connection(struct client *client, uint64_t delay_ns)
{
	int result =
	    hwt_checkout_acquire_wait(checkout, &client->request, delay_ns);

	stress_check(result == 0 || result == -ETIMEDOUT, "wait: %d", result);
	if (result == 0)
		use_connection(client);
}

static void
ask_for_connection(struct client *client, uint64_t delay_ns)
{
	int result;

	atomic_store(&client->told, 0);
	result = hwt_checkout_acquire(checkout, &client->request, delay_ns);
	stress_check(result == 0 || result == 1, "acquire: %d", result);
	if (result == 0) {
		use_connection(client);
		return;
	}
	if (random_next(&client->random) % 4 == 0)
		(void)hwt_checkout_cancel(checkout, &client->request);
	while (atomic_load(&client->told) == 0)
		(void)sched_yield();
}

static void *
client_thread(void *arg)
{
	struct client client = {.item.wanted = &group.any,
	    .random = random_seed((uint64_t)(uintptr_t)arg)};
	uint64_t turns = stress_scaled(TRANSFERS);
	uint64_t delay_ns;

	stress_must(hwt_request_init_items(&client.request, &client.item, 1,
			note_connection, &client) == 0,
	    "request");
	while (turns-- > 0) {
		delay_ns = random_next(&client.random) % 4 == 0
		    ? random_next(&client.random) % HWT_US(300)
		    : HWT_NEVER;
		client.breaks = random_next(&client.random) % 32 == 0;
		if (random_next(&client.random) % 2 == 0)
			wait_for_connection(&client, delay_ns);
		else
			ask_for_connection(&client, delay_ns);
		atomic_fetch_add(&begun, 1);
	}
	return NULL;
}

static void
pools(uint32_t hold_after)
{
	struct hwt_request request;
	struct hwt_item item = {.wanted = &group.any};
	pthread_t thread[THREADS], pauses;
	uintptr_t i;

	stress_phase("pools", hold_after);
	make(hold_after);
	stress_must(hwt_group_init(checkout, &group, 0) == 0, "group");
	for (i = 0; i < 3; i++)
		add_connection();
	pauses = stress_thread(pause_thread, (void *)(uintptr_t)98);
	for (i = 0; i < THREADS; i++)
		thread[i] = stress_thread(client_thread, (void *)(i + 1));
	for (i = 0; i < THREADS; i++)
		stress_join(thread[i]);
	atomic_store(&over, true);
	stress_join(pauses);
	stress_must(hwt_request_init_items(&request, &item, 1, NULL, NULL) == 0,
	    "request");
	for (i = 0; i < 3; i++) {
		stress_check(
		    hwt_checkout_try(checkout, &request) == 0, "one is lost");
		retire_connection((struct connection *)item.granted);
		stress_check(
		    hwt_checkout_release(checkout, &request) == 0, "release");
	}
	stress_check(hwt_group_retire(checkout, &group) == 0, "retire");
	unmake();
}

int
main(int argc, char **argv)
{
	stress_begin("checkout_race", argc, argv);
	timer = timer_create_ns(HWT_US(100), 256, 0);
	null_file = fopen("/dev/null", "w");
	stress_must(null_file != NULL, "/dev/null");
	transfers(0);
	transfers(2);
	retirements();
	hammers(HWT_CHECKOUT_NEVER, come_so_often);
	hammers(3, come_and_go);
	hammers(0, come_and_stay);
	hammers(0, come_and_go);
	readers(0);
	readers(1);
	pools(0);
	pools(1);
	stress_check(hwt_pending_timeouts(timer) == 0, "pending timeouts");
	stress_check(hwt_stop(timer, NULL) == 0, "hwt_stop");
	stress_check(hwt_destroy(timer) == 0, "hwt_destroy");
	(void)fclose(null_file);
	return stress_end("%" PRIu64 " transfers, %" PRIu64 " waits ended",
	    atomic_load(&begun), atomic_load(&ended));
}
