/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that check one operation as fast as they can, so that each predicate
 * is followed by the next: no call calls it much more often than for its own
 * event, and no event is lost when all stop at the same time.
 *
 *   counted    predicates
 *   judged by  how many a call has called itself; what holds when all have
 *              checked for the last time completes, though nobody checks again
 */
#include "test/stress/stress.h"

#include "modules/purgatory/hwt_purgatory.h"

enum {
	THREADS = 3,
	ROUNDS = 300,
	CHECKS = 400,
	CALLED_MAX = 1 + 16,
	LOOPS = 5000 /* of a predicate */
};

static const struct hwt_key key = {1, 1};
static struct hwt_purgatory *purgatory;
static pthread_barrier_t barrier;
static atomic_uint_fast64_t state, called, dones;
static _Thread_local unsigned called_here;

/* The last round of each thread's checks makes it hold. */
static bool
holds(hwt_operation operation, void *arg)
{
	bool result = atomic_load(&state) == THREADS;
	volatile unsigned i;

	(void)operation;
	(void)arg;
	for (i = 0; i < LOOPS; i++)
		;
	called_here++;
	atomic_fetch_add(&called, 1);
	return result;
}

static void
done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	(void)operation;
	(void)arg;
	stress_check(outcome == HWT_COMPLETED, "outcome %d", (int)outcome);
	atomic_fetch_add(&dones, 1);
}

static void
check_once(void)
{
	called_here = 0;
	stress_check(hwt_purgatory_check(purgatory, key, NULL) == 0, "check");
	stress_check(called_here <= CALLED_MAX, "a call called %u predicates",
	    called_here);
}

static void *
checker(void *arg)
{
	uint64_t rounds = stress_scaled(ROUNDS);
	unsigned i;

	(void)arg;
	while (rounds-- > 0) {
		pthread_barrier_wait(&barrier);
		for (i = 0; i < CHECKS; i++)
			check_once();
		atomic_fetch_add(&state, 1);
		check_once();
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void
round_of_checks(void)
{
	const struct hwt_operation_spec spec = {.try_complete = holds,
	    .done = done,
	    .keys = &key,
	    .key_count = 1,
	    .delay_ns = HWT_NEVER};
	uint64_t before = atomic_load(&dones);

	atomic_store(&state, 0);
	stress_must(hwt_purgatory_watch(purgatory, NULL, &spec) == 0, "watch");
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	while (atomic_load(&dones) == before)
		stress_sleep_ns(HWT_US(50));
}

int
main(int argc, char **argv)
{
	pthread_t thread[THREADS];
	struct hwt *timer;
	uint64_t rounds, i;

	stress_begin("purgatory_captive", argc, argv);
	rounds = stress_scaled(ROUNDS);
	timer = timer_create_ns(HWT_US(100), 256, 0);
	stress_must(
	    hwt_purgatory_create(&purgatory, timer, NULL) == 0, "create");
	stress_must(
	    !pthread_barrier_init(&barrier, NULL, THREADS + 1), "barrier");
	for (i = 0; i < THREADS; i++)
		thread[i] = stress_thread(checker, NULL);
	for (i = 0; i < rounds; i++) {
		stress_phase("captive", i);
		round_of_checks();
	}
	for (i = 0; i < THREADS; i++)
		stress_join(thread[i]);
	stress_check(hwt_purgatory_shutdown(purgatory) == 0, "shutdown");
	stress_check(hwt_purgatory_destroy(purgatory) == 0, "destroy");
	stress_check(hwt_stop(timer, NULL) == 0, "hwt_stop");
	stress_check(hwt_destroy(timer) == 0, "hwt_destroy");
	return stress_end("%" PRIu64 " predicates", atomic_load(&called));
}
