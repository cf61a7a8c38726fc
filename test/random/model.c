/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: random operations on manual timers against a model, with a look
 * inside after each step. See random.h.
 *
 *   model [--steps N] [--seconds N] [--seed S] [--quiet]
 *   model N
 *
 * --steps: so many, of one seed; a million unless told otherwise. --seconds, or
 * N alone: rounds of so many steps for that long, each of the next seed. A run
 * of a million steps and more fails too when something that is to be covered
 * did not occur. A failure prints the command that repeats it.
 */
#include "test/random/random.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#define MILLION 1000000

static struct random_options run = {
    .seed = 1, .steps = MILLION, .inside = 1, .threads = true};
static uint64_t seconds;
static bool quiet;
static uint64_t steps_done;
static struct timespec began;

static void
failed(const char *text)
{
	printf("FAILED: %s\nrepeat: model --seed %" PRIu64 " --steps %" PRIu64
	       "\n",
	    text, run.seed, run.steps);
	(void)fflush(stdout);
	_Exit(1);
}

static double
elapsed(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - began.tv_sec) +
	    (double)(now.tv_nsec - began.tv_nsec) / 1e9;
}

/* A thread of its own has used no timer before. */
static void *
round_thread(void *unused)
{
	random_run(&run);
	return unused;
}

static void
run_round(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	/* Before it can crash. */
	printf("model --seed %" PRIu64 " --steps %" PRIu64 "\n", run.seed,
	    run.steps);
	(void)fflush(stdout);
	random_thread_attr(&attr);
	if (pthread_create(&thread, &attr, round_thread, NULL) != 0)
		failed("no thread for a round");
	(void)pthread_attr_destroy(&attr);
	(void)pthread_join(thread, NULL);
	steps_done += run.steps;
}

static bool
read_arguments(int argc, char **argv)
{
	static const struct option names[] = {{"steps", 1, NULL, 'n'},
	    {"seconds", 1, NULL, 't'}, {"seed", 1, NULL, 's'},
	    {"quiet", 0, NULL, 'q'}, {NULL, 0, NULL, 0}};
	int name;

	while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (name == 'n')
			run.steps = strtoull(optarg, NULL, 0);
		else if (name == 't')
			seconds = strtoull(optarg, NULL, 0);
		else if (name == 's')
			run.seed = strtoull(optarg, NULL, 0);
		else if (name == 'q')
			quiet = true;
		else
			return false;
	}
	if (optind < argc)
		seconds = strtoull(argv[optind++], NULL, 0);
	return optind == argc;
}

int
main(int argc, char **argv)
{
	uint64_t first;
	bool complete;

	if (!read_arguments(argc, argv)) {
		fprintf(stderr,
		    "usage: model [--steps N] [--seconds N] [--seed S] "
		    "[--quiet] | model SECONDS\n");
		return 2;
	}
	random_failed = failed;
	(void)clock_gettime(CLOCK_MONOTONIC, &began);
	first = run.seed;
	run_round();
	while (elapsed() < (double)seconds) {
		run.seed++;
		run_round();
	}
	(void)!hwt_shared_shutdown(NULL);
	complete = steps_done < MILLION;
	if (!complete || !quiet)
		complete = cover_report(quiet) || complete;
	printf("model: seeds %" PRIu64 " to %" PRIu64 ", %" PRIu64
	       " steps, %" PRIu64 " calls compared, %" PRIu64
	       " looks inside, %.1f s%s\n",
	    first, run.seed, steps_done, cover_calls(), checker.checks,
	    elapsed(), complete ? "" : ", not everything occurred");
	checker_close(&checker);
	return complete ? 0 : 1;
}
