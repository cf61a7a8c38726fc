/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a pair cost, schedule one timeout and cancel the oldest, when
 * nothing is ever due? This is the life of almost every timeout of a network
 * program.
 *
 * Each producer keeps a ring of outstanding timeouts. A round is one subject,
 * measured over the pairs of all producers after they filled their rings, its
 * worker included. Subjects alternate. Each producer has a processor of its
 * own, where there are enough: the kernel would leave threads that were woken
 * together on one processor for a good part of a round, and then the baseline's
 * mutex knows no contention.
 *
 *   pair [producers=N] [outstanding=1024] [delay_ms=30000] [tick_ms=100]
 *        [pairs=2000000] [rounds=7] [--check]
 *
 * Without producers, the cases of 1 and of 2 are run.
 */
#define _GNU_SOURCE
#include "mutex_wheel.h"
#include "perf.h"

enum subject {
	MUTEX,
	HWT,
	RELAXED,
	SUBJECTS
};

static const char *const subject_names[SUBJECTS] = {
    "mutex + wheel", "hwt", "hwt, HWT_RELAXED"};

struct load {
	unsigned producers, rounds;
	uint64_t outstanding, delay_ns, tick_ns, pairs;
};

struct figures {
	struct perf_rounds cpu_ns, wall_ns;
};

/* One round of one subject. */
static struct {
	const struct load *load;
	enum subject subject;
	struct hwt *timer;
	struct mutex_wheel *wheel;
	pthread_barrier_t filled, begun, ended;
} run;

static void
hwt_nothing(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	perf_must(false, "a timeout was due: the delay is too short; a pair");
}

static void
mutex_nothing(void *arg)
{
	(void)arg;
	perf_must(false, "a timeout was due: the delay is too short; a pair");
}

static void
hwt_pairs(hwt_timeout *ring, uint64_t pairs)
{
	uint64_t outstanding = run.load->outstanding;
	uint64_t delay_ns = run.load->delay_ns;
	struct hwt *timer = run.timer;
	uint64_t place = 0;
	int error = 0;

	while (pairs--) {
		error |= hwt_cancel(timer, ring[place]);
		error |= hwt_new_timeout(
		    timer, &ring[place], hwt_nothing, NULL, delay_ns);
		if (++place == outstanding)
			place = 0;
	}
	perf_must(!error, "a pair");
}

static void
mutex_pairs(
    struct mutex_wheel_timeout **ring, uint64_t outstanding, uint64_t pairs)
{
	uint64_t delay_ns = run.load->delay_ns;
	struct mutex_wheel *wheel = run.wheel;
	uint64_t place = 0;

	while (pairs--) {
		mutex_wheel_cancel(wheel, ring[place]);
		ring[place] =
		    mutex_wheel_schedule(wheel, mutex_nothing, NULL, delay_ns);
		perf_must(ring[place], "a pair");
		if (++place == outstanding)
			place = 0;
	}
}

static void
pin(uintptr_t number)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	if (run.load->producers > processors)
		return;
	CPU_ZERO(&set);
	CPU_SET(number, &set);
	/* Where that is not allowed, the kernel's choice must do. */
	(void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *
hwt_producer(void *number)
{
	const struct load *load = run.load;
	hwt_timeout *ring = calloc(load->outstanding, sizeof(*ring));
	uint64_t i;
	int error = 0;

	pin((uintptr_t)number);
	perf_must(ring, "calloc");
	for (i = 0; i < load->outstanding; i++)
		error |= hwt_new_timeout(
		    run.timer, &ring[i], hwt_nothing, NULL, load->delay_ns);
	perf_must(!error, "hwt_new_timeout");
	pthread_barrier_wait(&run.filled);
	pthread_barrier_wait(&run.begun);
	hwt_pairs(ring, load->pairs);
	pthread_barrier_wait(&run.ended);
	for (i = 0; i < load->outstanding; i++)
		error |= hwt_cancel(run.timer, ring[i]);
	perf_must(!error, "hwt_cancel");
	free(ring);
	return NULL;
}

static void *
mutex_producer(void *number)
{
	const struct load *load = run.load;
	uint64_t outstanding = load->outstanding;
	struct mutex_wheel_timeout **ring =
	    calloc(outstanding, sizeof(struct mutex_wheel_timeout *));
	uint64_t i;

	pin((uintptr_t)number);
	perf_must(ring, "calloc");
	for (i = 0; i < outstanding; i++) {
		ring[i] = mutex_wheel_schedule(
		    run.wheel, mutex_nothing, NULL, load->delay_ns);
		perf_must(ring[i], "malloc");
	}
	pthread_barrier_wait(&run.filled);
	pthread_barrier_wait(&run.begun);
	mutex_pairs(ring, outstanding, load->pairs);
	pthread_barrier_wait(&run.ended);
	for (i = 0; i < outstanding; i++)
		mutex_wheel_cancel(run.wheel, ring[i]);
	free(ring);
	return NULL;
}

static void
subject_create(void)
{
	struct hwt_options options = {.tick_ns = run.load->tick_ns,
	    .flags = run.subject == RELAXED ? HWT_RELAXED : 0};

	if (run.subject == MUTEX) {
		run.wheel = mutex_wheel_create(run.load->tick_ns);
		perf_must(run.wheel, "mutex_wheel_create");
	} else {
		perf_must(
		    !hwt_create(&run.timer, &options) && !hwt_start(run.timer),
		    "hwt_create");
	}
}

static void
subject_destroy(void)
{
	if (run.subject == MUTEX)
		mutex_wheel_destroy(run.wheel);
	else
		perf_must(!hwt_stop(run.timer, NULL) && !hwt_destroy(run.timer),
		    "hwt_destroy");
}

/* From the moment at which all rings are full to that at which the last
 * producer is through. */
static void
run_measure(struct figures *figures)
{
	double pairs = (double)run.load->pairs * run.load->producers;
	uint64_t cpu_ns, wall_ns;

	pthread_barrier_wait(&run.filled);
	cpu_ns = perf_cpu_ns();
	wall_ns = perf_now_ns();
	pthread_barrier_wait(&run.begun);
	pthread_barrier_wait(&run.ended);
	wall_ns = perf_now_ns() - wall_ns;
	cpu_ns = perf_cpu_ns() - cpu_ns;
	perf_add(&figures->cpu_ns, (double)cpu_ns / pairs);
	perf_add(&figures->wall_ns, (double)wall_ns / pairs);
}

static void
run_round(
    const struct load *load, enum subject subject, struct figures *figures)
{
	void *(*producer)(void *) =
	    subject == MUTEX ? mutex_producer : hwt_producer;
	pthread_t *threads = calloc(load->producers, sizeof(*threads));
	unsigned i;

	perf_must(threads, "calloc");
	run.load = load;
	run.subject = subject;
	pthread_barrier_init(&run.filled, NULL, load->producers + 1);
	pthread_barrier_init(&run.begun, NULL, load->producers + 1);
	pthread_barrier_init(&run.ended, NULL, load->producers + 1);
	subject_create();
	for (i = 0; i < load->producers; i++)
		perf_must(!pthread_create(&threads[i], NULL, producer,
			      (void *)(uintptr_t)i),
		    "pthread_create");
	run_measure(figures);
	for (i = 0; i < load->producers; i++)
		pthread_join(threads[i], NULL);
	subject_destroy();
	pthread_barrier_destroy(&run.filled);
	pthread_barrier_destroy(&run.begun);
	pthread_barrier_destroy(&run.ended);
	free(threads);
}

/* What was set as a target for the ratio to the baseline, with one and with
 * two producers; 0: nothing. */
static double
ratio_bound(enum subject subject, unsigned producers)
{
	if (subject == HWT && producers == 1)
		return 0.75;
	if (subject == HWT && producers == 2)
		return 0.35;
	return 0;
}

static double
ratio_aim(enum subject subject, unsigned producers)
{
	static const double aims[SUBJECTS][2] = {
	    [HWT] = {0.6, 0.2}, [RELAXED] = {0.35, 0.1}};

	return producers == 1 || producers == 2 ? aims[subject][producers - 1]
						: 0;
}

/* Prints a line; false: its ratio is above the bound. */
static bool
print_subject(const struct load *load, enum subject subject,
    const struct figures *figures)
{
	double ratio = perf_median(&figures[subject].cpu_ns) /
	    perf_median(&figures[MUTEX].cpu_ns);
	double bound = ratio_bound(subject, load->producers);
	double aim = ratio_aim(subject, load->producers);

	printf("  %-17s CPU ", subject_names[subject]);
	perf_print_rounds(&figures[subject].cpu_ns);
	printf(" ns, wall ");
	perf_print_rounds(&figures[subject].wall_ns);
	printf(" ns per pair, ratio %.2f", ratio);
	if (bound > 0)
		printf(", bound %.2f%s", bound, ratio > bound ? " MISSED" : "");
	if (aim > 0)
		printf(", aim %.2f%s", aim, ratio > aim ? " missed" : "");
	printf("\n");
	return bound <= 0 || ratio <= bound;
}

static bool
run_case(const struct load *load)
{
	struct figures figures[SUBJECTS] = {0};
	bool kept = true;
	unsigned round;
	int subject;

	for (round = 0; round < load->rounds; round++)
		for (subject = 0; subject < SUBJECTS; subject++)
			run_round(
			    load, (enum subject)subject, &figures[subject]);
	printf("%u producer%s, %" PRIu64 " outstanding each, delay %" PRIu64
	       " ms, %u rounds of %" PRIu64 " pairs each\n",
	    load->producers, load->producers > 1 ? "s" : "", load->outstanding,
	    load->delay_ns / 1000000, load->rounds, load->pairs);
	for (subject = 0; subject < SUBJECTS; subject++)
		kept &= print_subject(load, (enum subject)subject, figures);
	printf("\n");
	return kept;
}

int
main(int argc, char **argv)
{
	struct load load;
	uint64_t producers = perf_option(argc, argv, "producers", 0);
	bool kept = true;

	load.outstanding = perf_option(argc, argv, "outstanding", 1024);
	load.delay_ns = HWT_MS(perf_option(argc, argv, "delay_ms", 30000));
	load.tick_ns = HWT_MS(perf_option(argc, argv, "tick_ms", 100));
	load.pairs = perf_option(argc, argv, "pairs", 2000000);
	load.rounds = (unsigned)perf_option(argc, argv, "rounds", 7);
	perf_must(load.outstanding && load.pairs && load.rounds, "options");
	perf_header("What does it cost to schedule one timeout and to cancel "
		    "the oldest?");
	for (load.producers = producers ? (unsigned)producers : 1;
	     load.producers <= (producers ? producers : 2); load.producers++)
		kept &= run_case(&load);
	if (perf_flag(argc, argv, "--check"))
		return kept ? 0 : 1;
	return 0;
}
