/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that threads find and wait for while another one takes them away,
 * retires them and frees their memory at once.
 *
 * What is found stands in a table under a mutex. Finders call
 * hwt_checkout_acquire_wait_unlock with it, for an object that may go and, half
 * of the time, for one that stays. The latter is wanted without a thread, too,
 * with a granted that locks the mutex.
 *
 *   counted    grants, and waits that a retirement has ended
 *   judged by  the sanitizers: what is freed is used no more; two holders; a
 *              wait without an end
 */
#include "test/stress/stress.h"

#include "modules/checkout/hwt_checkout.h"

enum {
	FINDERS = 3,
	TABLE = 2,
	STAYING = 2,
	RETIREMENTS = 10000
};

struct thing {
	struct hwt_object object;
	const void *owner; /* not atomic */
};

struct demand {
	struct hwt_request request;
	struct hwt_object *set[2];
	unsigned count;
	atomic_uint told;
};

static struct hwt *timer;
static struct hwt_checkout *checkout;
static struct thing staying[STAYING];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct thing *table[TABLE]; /* under the mutex */
static uint64_t seen; /* under the mutex: calls of granted */
static atomic_uint_fast64_t grants, retired;
static atomic_bool over;

static void
use_and_release(struct demand *demand)
{
	unsigned i;

	for (i = 0; i < demand->count; i++) {
		struct thing *thing = (struct thing *)demand->set[i];

		stress_check(thing->owner == NULL, "two owners");
		thing->owner = demand;
	}
	for (i = 0; i < demand->count; i++)
		((struct thing *)demand->set[i])->owner = NULL;
	atomic_fetch_add(&grants, 1);
	stress_check(
	    hwt_checkout_release(checkout, &demand->request) == 0, "release");
}

static void
note_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct demand *demand = arg;

	(void)request;
	pthread_mutex_lock(&mutex);
	seen++;
	pthread_mutex_unlock(&mutex);
	if (grant == HWT_GRANTED)
		use_and_release(demand);
	atomic_fetch_add(&retired, grant == HWT_GRANT_RETIRED);
	atomic_store(&demand->told, 1);
}

/* Under the mutex. */
static void
find(struct demand *demand, uint64_t random)
{
	demand->set[0] = &table[random % TABLE]->object;
	demand->count = 1 + random / TABLE % 2;
	demand->set[1] = &staying[random / 8 % STAYING].object;
	atomic_store(&demand->told, 0);
	stress_must(hwt_request_init(&demand->request, demand->set,
			demand->count, note_granted, demand) == 0,
	    "hwt_request_init");
}

static void *
finder(void *arg)
{
	uint64_t random = random_seed((uint64_t)(uintptr_t)arg);
	struct demand demand;
	int result;

	while (!atomic_load(&over)) {
		pthread_mutex_lock(&mutex);
		find(&demand, random_next(&random));
		result =
		    hwt_checkout_acquire_wait_unlock(checkout, &demand.request,
			random_next(&random) % 4 == 0 ? HWT_US(300) : HWT_NEVER,
			&mutex);
		stress_check(
		    result == 0 || result == -EIDRM || result == -ETIMEDOUT,
		    "wait: %d", result);
		if (result == 0)
			use_and_release(&demand);
		atomic_fetch_add(&retired, result == -EIDRM);
	}
	return NULL;
}

/* Of objects that stay: so acquire may be called without the mutex, which
 * granted locks. */
static void *
comer(void *arg)
{
	struct demand demand = {.count = 1};
	int result;

	(void)arg;
	demand.set[0] = &staying[0].object;
	stress_must(hwt_request_init(&demand.request, demand.set, 1,
			note_granted, &demand) == 0,
	    "hwt_request_init");
	while (!atomic_load(&over)) {
		atomic_store(&demand.told, 0);
		result =
		    hwt_checkout_acquire(checkout, &demand.request, HWT_NEVER);
		stress_check(result == 0 || result == 1, "acquire: %d", result);
		if (result == 0)
			use_and_release(&demand);
		while (result == 1 && atomic_load(&demand.told) == 0)
			(void)sched_yield();
	}
	return NULL;
}

static struct thing *
thing_create(void)
{
	struct thing *thing = calloc(1, sizeof(*thing));

	stress_must(thing != NULL, "memory");
	stress_must(
	    hwt_object_init(checkout, &thing->object, 1) == 0, "object");
	return thing;
}

/* Puts another one into the table, and frees what was there. */
static void
replace(uint64_t turn)
{
	struct thing *fresh = thing_create();
	struct hwt_object *set[1];
	struct hwt_request request;
	struct thing *old;

	pthread_mutex_lock(&mutex);
	old = table[turn % TABLE];
	table[turn % TABLE] = fresh;
	pthread_mutex_unlock(&mutex);
	set[0] = &old->object;
	stress_must(
	    hwt_request_init(&request, set, 1, NULL, NULL) == 0, "request");
	stress_check(
	    hwt_checkout_acquire_wait(checkout, &request, HWT_NEVER) == 0,
	    "the last wait");
	stress_check(hwt_object_retire(checkout, set[0]) == 0, "retire");
	free(old);
	stress_check(hwt_checkout_release(checkout, &request) == 0, "release");
}

static void
run(void)
{
	uint64_t turns = stress_scaled(RETIREMENTS);
	pthread_t thread[FINDERS + 1];
	uintptr_t i;

	for (i = 0; i < FINDERS; i++)
		thread[i] = stress_thread(finder, (void *)(i + 1));
	thread[FINDERS] = stress_thread(comer, NULL);
	for (i = 0; i < turns; i++) {
		stress_phase("found", i);
		replace(i);
		if (i % 8 == 0)
			stress_sleep_ns(HWT_US(50));
	}
	atomic_store(&over, true);
	for (i = 0; i <= FINDERS; i++)
		stress_join(thread[i]);
}

int
main(int argc, char **argv)
{
	unsigned i;

	stress_begin("checkout_found", argc, argv);
	timer = timer_create_ns(HWT_US(100), 256, 0);
	stress_must(hwt_checkout_create(&checkout, timer, NULL) == 0, "create");
	for (i = 0; i < STAYING; i++)
		stress_must(
		    hwt_object_init(checkout, &staying[i].object, 2 * i) == 0,
		    "object");
	for (i = 0; i < TABLE; i++)
		table[i] = thing_create();
	run();
	for (i = 0; i < TABLE; i++)
		free(table[i]);
	stress_check(hwt_checkout_destroy(checkout) == 0, "destroy");
	stress_check(hwt_stop(timer, NULL) == 0, "hwt_stop");
	stress_check(hwt_destroy(timer) == 0, "hwt_destroy");
	return stress_end("%" PRIu64 " grants, %" PRIu64
			  " waits ended by a retirement",
	    atomic_load(&grants), atomic_load(&retired));
}
