/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: random operations on manual timers against a model, while calls of the
 * system fail; and short scenarios with each call of the system failing. See
 * model.h.
 *
 *   model [--steps N] [--seconds N] [--seed S]
 *   model --sweep [SCENARIO]
 *   model FILE...
 *
 * --steps: so many, of one seed; a million by default. --seconds: rounds of so
 * many steps for that long, each of the next seed. FILE: the choices are its
 * bytes, as with libFuzzer, for which the same code is compiled with HWT_FUZZ.
 * A failure prints the command that repeats it.
 */
#include "test/model/model.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#define MILLION 1000000
#define BYTES_MAX 65536
#define BYTES_STEPS 600
#define BYTES_LOOK_EVERY 8

/* One that has used no timer before. */
static void *
run_thread(void *options)
{
	model_run(options);
	return NULL;
}

static void
run_in_thread(struct model_options *options)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run_thread, options) != 0)
		model_failed("no thread for a run");
	(void)pthread_join(thread, NULL);
}

static void
run_bytes(const uint8_t *data, size_t size)
{
	struct model_options options = {.bytes = data,
	    .size = size,
	    .steps = BYTES_STEPS,
	    .inside = BYTES_LOOK_EVERY,
	    .failures = true};

	if (size > 0)
		run_in_thread(&options);
}

static void
abort_with(const char *text)
{
	fprintf(stderr, "FAILED: %s\n", text);
	abort();
}

#ifdef HWT_FUZZ

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	model_failed = abort_with;
	run_bytes(data, size);
	return 0;
}

#else

static struct model_options run = {.seed = 1,
    .steps = MILLION,
    .inside = 1,
    .threads = true,
    .failures = true};
static uint64_t seconds;
static struct timespec began;

static void
run_file(const char *name)
{
	static uint8_t data[BYTES_MAX];
	FILE *file = fopen(name, "rb");
	size_t size;

	if (file == NULL) {
		perror(name);
		exit(2);
	}
	size = fread(data, 1, sizeof(data), file);
	(void)fclose(file);
	run_bytes(data, size);
}

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

/* Rounds of run.steps each; returns how many steps they were. */
static uint64_t
run_rounds(void)
{
	uint64_t steps = 0;

	do {
		run.seed += steps > 0;
		/* Before it can crash. */
		printf("model --seed %" PRIu64 " --steps %" PRIu64 "\n",
		    run.seed, run.steps);
		(void)fflush(stdout);
		run_in_thread(&run);
		steps += run.steps;
	} while (elapsed() < (double)seconds);
	return steps;
}

static int
run_random(void)
{
	uint64_t first = run.seed;
	uint64_t steps;

	model_failed = failed;
	(void)clock_gettime(CLOCK_MONOTONIC, &began);
	steps = run_rounds();
	printf("model: seeds %" PRIu64 " to %" PRIu64 ", %" PRIu64
	       " steps, %" PRIu64 " calls compared, %" PRIu64
	       " looks inside, %" PRIu64 " failures of the system, %.1f s\n",
	    first, run.seed, steps, calls_compared, checker_checks(),
	    plan_failures(), elapsed());
	checker_close();
	return 0;
}

static bool
read_arguments(int argc, char **argv)
{
	static const struct option names[] = {{"steps", 1, NULL, 'n'},
	    {"seconds", 1, NULL, 't'}, {"seed", 1, NULL, 's'},
	    {NULL, 0, NULL, 0}};
	int name;

	while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (name == 'n')
			run.steps = strtoull(optarg, NULL, 0);
		else if (name == 't')
			seconds = strtoull(optarg, NULL, 0);
		else if (name == 's')
			run.seed = strtoull(optarg, NULL, 0);
		else
			return false;
	}
	return true;
}

int
main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--sweep") == 0)
		return sweep_main(argc - 2, argv + 2);
	if (!read_arguments(argc, argv)) {
		fprintf(stderr,
		    "usage: model [--steps N] [--seconds N] "
		    "[--seed S] | FILE... | "
		    "--sweep [SCENARIO]\n");
		return 2;
	}
	if (optind == argc)
		return run_random();
	model_failed = abort_with;
	for (; optind < argc; optind++)
		run_file(argv[optind]);
	printf(
	    "model: files: ok, %" PRIu64 " calls compared\n", calls_compared);
	return 0;
}

#endif
