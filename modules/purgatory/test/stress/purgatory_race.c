/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything at once, on a timer with a worker: watchers, events, values,
 * cancels by handle and by key, deadlines; and shutdown in the middle of
 * it. Each operation that was accepted ends once; its callbacks never
 * overlap; what held when its event came has completed, and nothing is
 * left.
 *
 *   mixed     keys that many share, predicates that check and watch
 *   handoff   a state that is set, then checked: no waiter may miss it, and
 *             there is no deadline that would help
 *   shutdown  the purgatory ends and is destroyed while all others call it,
 *             up to the last call
 */
#include "test/stress/stress.h"

#include "modules/purgatory/hwt_purgatory.h"

enum {
	THREADS = 4,
	OPERATIONS = 60000,
	KEYS = 17,
	ROUNDS = 2000,
	SHUTDOWNS = 300
};

static struct hwt *timer;
static struct hwt_purgatory *purgatory;
static atomic_uint_fast64_t accepted, ended, decided_by_calls, expired;
static atomic_bool closing;

struct waiter {
	atomic_uint busy, dones;
	atomic_bool holds;
	bool checked;
	uint64_t number;
	bool deadline;
};

static void
waiter_enter(struct waiter *waiter)
{
	stress_check(atomic_fetch_add(&waiter->busy, 1) == 0, "overlap");
	stress_check(atomic_load(&waiter->dones) == 0, "after done");
}

static struct hwt_key
key_of(uint64_t number)
{
	return (struct hwt_key){1, number % KEYS};
}

static bool
waiter_try(hwt_operation operation, void *arg)
{
	struct waiter *waiter = arg;
	bool holds;

	waiter_enter(waiter);
	holds = atomic_load(&waiter->holds);
	/* Once: predicates that check each other again and again do not end. */
	if (operation.id % 64 == 0 && !waiter->checked) {
		waiter->checked = true;
		(void)hwt_purgatory_check(
		    purgatory, key_of(waiter->number + 1), NULL);
	}
	if (operation.id % 8 == 0)
		sched_yield();
	atomic_fetch_sub(&waiter->busy, 1);
	return holds;
}

/* The waiter is the user's again: its memory may be used for anything. */
static void
waiter_done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	struct waiter *waiter = arg;

	(void)operation;
	waiter_enter(waiter);
	atomic_fetch_add(&waiter->dones, 1);
	if (outcome == HWT_EXPIRED) {
		atomic_fetch_add(&expired, 1);
		stress_check(waiter->deadline, "expired without a deadline");
		/* Its walk's predicates check as well: after done, and before
		 * the purgatory can be destroyed. */
		(void)hwt_purgatory_check(
		    purgatory, key_of(waiter->number), NULL);
	}
	atomic_fetch_add(&ended, 1);
	free(waiter);
}

static struct waiter *
waiter_make(uint64_t *random, uint64_t number)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));

	stress_must(waiter != NULL, "calloc");
	waiter->number = number;
	waiter->deadline = random_below(random, 4) == 0;
	atomic_init(&waiter->holds, random_below(random, 16) == 0);
	return waiter;
}

/* *handle: of one that may have ended by then. */
static int
waiter_watch(struct waiter *waiter, uint64_t *random, hwt_operation *handle)
{
	struct hwt_key keys[5];
	struct hwt_operation_spec spec = {.try_complete = waiter_try,
	    .done = waiter_done,
	    .arg = waiter,
	    .keys = keys,
	    .key_count = 1 + random_below(random, 5),
	    .delay_ns = waiter->deadline ? HWT_US(random_below(random, 3000))
					 : HWT_NEVER};
	unsigned i;

	if (random_below(random, 4) == 0) {
		spec.try_complete = NULL;
		spec.key_count = 1;
		spec.at_least = 1 + random_below(random, 50);
	}
	for (i = 0; i < spec.key_count; i++)
		keys[i] = key_of(waiter->number + i * i);
	return hwt_purgatory_watch(purgatory, handle, &spec);
}

static void
act(uint64_t *random, hwt_operation *handle)
{
	uint64_t number = random_next(random);
	struct waiter *waiter;
	size_t count = 0;
	int rc = 0;

	switch (random_below(random, 8)) {
	case 0:
		rc = hwt_purgatory_check(purgatory, key_of(number), &count);
		break;
	case 1:
		rc = hwt_purgatory_raise(purgatory, key_of(number),
		    1 + random_below(random, 60), &count);
		break;
	case 2:
		if (random_below(random, 20) == 0)
			rc = hwt_purgatory_cancel_key(
			    purgatory, key_of(number), &count);
		break;
	case 3:
		count = hwt_operation_cancel(purgatory, *handle) == 0;
		break;
	case 4:
		count = hwt_operation_complete(purgatory, *handle) == 0;
		break;
	default:
		waiter = waiter_make(random, number);
		rc = waiter_watch(waiter, random, handle);
		if (rc < 0)
			free(waiter);
		else
			atomic_fetch_add(&accepted, 1);
		count = rc == 1;
		stress_check(
		    rc >= 0 || (rc == -ESHUTDOWN && atomic_load(&closing)),
		    "watch: %d", rc);
		rc = 0;
	}
	stress_check(rc == 0, "rc %d", rc);
	atomic_fetch_add(&decided_by_calls, count);
}

static void *
mixed_thread(void *arg)
{
	uint64_t random = random_seed((uint64_t)(uintptr_t)arg);
	hwt_operation handle = {0};
	uint64_t i;

	for (i = stress_scaled(OPERATIONS); i-- > 0;)
		act(&random, &handle);
	return NULL;
}

static void
make(void)
{
	int error = hwt_purgatory_create(&purgatory, timer, NULL);

	stress_must(error == 0, "create: %d", error);
	atomic_store(&accepted, 0);
	atomic_store(&ended, 0);
	atomic_store(&decided_by_calls, 0);
	atomic_store(&expired, 0);
	atomic_store(&closing, false);
}

/* All was told and counted, and nothing is left. */
static void
unmake(void)
{
	struct hwt_purgatory_stats stats;
	uint64_t ends;
	int error = hwt_purgatory_shutdown(purgatory);

	stress_must(error == 0, "shutdown: %d", error);
	stress_check(atomic_load(&ended) == atomic_load(&accepted),
	    "%" PRIu64 " ended of %" PRIu64, (uint64_t)ended,
	    (uint64_t)accepted);
	error = hwt_purgatory_read_stats(purgatory, &stats);
	stress_check(error == 0, "stats: %d", error);
	stress_check(stats.pending == 0 && stats.links == 0 && stats.keys == 0,
	    "%" PRIu64 " pending, %" PRIu64 " links, %" PRIu64 " keys",
	    stats.pending, stats.links, stats.keys);
	ends =
	    stats.completed + stats.expired + stats.cancelled + stats.shut_down;
	stress_check(ends == atomic_load(&accepted), "counted %" PRIu64, ends);
	stress_check(stats.expired == atomic_load(&expired), "expired");
	/* Checks that were put off are counted nowhere. */
	stress_check(
	    atomic_load(&decided_by_calls) <= stats.completed + stats.cancelled,
	    "calls decided %" PRIu64, (uint64_t)decided_by_calls);
	error = hwt_purgatory_destroy(purgatory);
	stress_check(error == 0, "destroy: %d", error);
}

static void
run_threads(void *(*body)(void *))
{
	pthread_t thread[THREADS];
	uintptr_t i;

	for (i = 0; i < THREADS; i++)
		thread[i] = stress_thread(body, (void *)(i + 1));
	for (i = 0; i < THREADS; i++)
		stress_join(thread[i]);
}

/* Handoff: one sets the state and checks; the others wait for it. */
static atomic_uint_fast64_t state;
static pthread_barrier_t barrier;

struct wanted {
	atomic_uint dones;
	uint64_t round;
};

static bool
wanted_try(hwt_operation operation, void *arg)
{
	(void)operation;
	return atomic_load(&state) >= ((struct wanted *)arg)->round;
}

static void
wanted_done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	(void)operation;
	stress_check(outcome == HWT_COMPLETED, "outcome %d", outcome);
	atomic_fetch_add(&((struct wanted *)arg)->dones, 1);
}

static void
wanted_watch(struct wanted *wanted, uint64_t *random)
{
	struct hwt_key keys[] = {{2, 0}, {2, 1 + random_below(random, 3)}};
	struct hwt_operation_spec spec = {.try_complete = wanted_try,
	    .done = wanted_done,
	    .arg = wanted,
	    .keys = keys,
	    .key_count = 2,
	    .delay_ns = HWT_NEVER};
	int rc;

	stress_spin(random_below(random, 300));
	rc = hwt_purgatory_watch(purgatory, NULL, &spec);
	stress_check(rc >= 0, "watch: %d", rc);
}

static void *
handoff_thread(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg;
	uint64_t random = random_seed(number);
	struct hwt_key key = {2, 0};
	uint64_t round, rounds = stress_scaled(ROUNDS);
	struct wanted wanted;

	for (round = 1; round <= rounds; round++) {
		atomic_init(&wanted.dones, 0);
		wanted.round = round;
		pthread_barrier_wait(&barrier);
		if (number > 1) {
			wanted_watch(&wanted, &random);
			while (atomic_load(&wanted.dones) == 0)
				sched_yield();
		} else {
			stress_spin(random_below(&random, 300));
			atomic_store(&state, round);
			(void)hwt_purgatory_check(purgatory, key, NULL);
		}
		pthread_barrier_wait(&barrier);
		stress_check(number == 1 || atomic_load(&wanted.dones) == 1,
		    "done twice");
	}
	return NULL;
}

static void
handoff(void)
{
	stress_phase("handoff", 0);
	atomic_store(&state, 0);
	make();
	pthread_barrier_init(&barrier, NULL, THREADS);
	run_threads(handoff_thread);
	pthread_barrier_destroy(&barrier);
	(void)!hwt_purgatory_shutdown(purgatory);
	stress_check(hwt_purgatory_destroy(purgatory) == 0, "destroy");
}

/* Shutdown. */
static void *
until_closed_thread(void *arg)
{
	uint64_t random = random_seed((uint64_t)(uintptr_t)arg);
	hwt_operation handle = {0};

	while (!atomic_load(&closing))
		act(&random, &handle);
	for (unsigned i = 0; i < 20; i++)
		act(&random, &handle);
	return NULL;
}

static void
shut_down(uint64_t turn)
{
	pthread_t thread[THREADS];
	uintptr_t i;
	int error;

	stress_phase("shutdown", turn);
	make();
	for (i = 0; i < THREADS; i++)
		thread[i] = stress_thread(
		    until_closed_thread, (void *)(i + 1 + turn * THREADS));
	stress_sleep_ns(HWT_US(300));
	atomic_store(&closing, true);
	error = hwt_purgatory_shutdown(purgatory);
	stress_check(error == 0, "shutdown: %d", error);
	for (i = 0; i < THREADS; i++)
		stress_join(thread[i]);
	unmake();
}

int
main(int argc, char **argv)
{
	uint64_t turn, operations;

	stress_begin("purgatory_race", argc, argv);
	timer = timer_create_ns(HWT_US(100), 256, 0);
	stress_phase("mixed", 0);
	make();
	run_threads(mixed_thread);
	operations = atomic_load(&accepted);
	unmake();
	handoff();
	for (turn = 0; turn < stress_scaled(SHUTDOWNS); turn++)
		shut_down(turn);
	stress_check(hwt_pending_timeouts(timer) == 0, "pending timeouts");
	stress_check(hwt_stop(timer, NULL) == 0, "hwt_stop");
	stress_check(hwt_destroy(timer) == 0, "hwt_destroy");
	return stress_end("%" PRIu64 " operations in one go", operations);
}
